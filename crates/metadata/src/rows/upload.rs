//! A multipart upload that is neither completed nor aborted.

use gabion_types::Seq;
use minicbor::{Decode, Encode};

use super::{Attributes, ChecksumKind, Home, row};

/// An upload, under its bucket, key and id.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub struct UploadRow {
    /// The bucket.
    #[n(0)]
    pub bucket: String,
    /// The key.
    #[n(1)]
    pub key: String,
    /// When it was begun, Unix time in milliseconds.
    #[n(2)]
    pub created_ms: u64,
    /// The commit that began it.
    #[n(3)]
    pub seq: Seq,
    /// What the client said about the object to be.
    #[n(4)]
    pub attributes: Attributes,
    /// The checksum algorithm chosen for it, by its number in `gabion_erasure::ChecksumAlgorithm`.
    #[n(5)]
    pub checksum_algorithm: Option<u8>,
    /// The kind of checksum chosen for it.
    #[n(6)]
    pub checksum_kind: Option<ChecksumKind>,
    /// The access key that began it.
    #[n(7)]
    pub owner: String,
    /// The mutation record that began it.
    #[n(8)]
    pub home: Home,
    /// The commit that moved it last; nothing as long as it lies where it was first written. Of two records of one row
    /// with the same `seq`, that of the later move counts.
    #[n(9)]
    pub moved: Option<Seq>,
}

row!(UploadRow, "upload", version 1);
