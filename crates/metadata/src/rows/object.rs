//! The current object under a key.

use gabion_types::{ManifestId, Seq};
use minicbor::{Decode, Encode};

use super::{Attributes, Etag, Home, Layout, StoredChecksum, row};

/// The current object under a bucket and a key.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub struct ObjectRow {
    /// The commit that made it current.
    #[n(0)]
    pub seq: Seq,
    /// `Last-Modified`, Unix time in milliseconds.
    #[n(1)]
    pub modified_ms: u64,
    /// Length in bytes.
    #[n(2)]
    pub size: u64,
    /// Its entity tag.
    #[n(3)]
    pub etag: Etag,
    /// Where its bytes lie.
    #[n(4)]
    pub layout: Layout,
    /// What the client said about it.
    #[n(5)]
    pub attributes: Attributes,
    /// Its checksums.
    #[n(6)]
    pub checksums: Vec<StoredChecksum>,
    /// Its parts, if it was uploaded in parts.
    #[n(7)]
    pub parts: Option<PartsSummary>,
    /// The mutation record that made it current.
    #[n(8)]
    pub home: Home,
    /// Its version; nothing is S3's `null` version.
    #[n(9)]
    pub version: Option<VersionId>,
    /// The commit that moved it last; nothing as long as it lies where it was first written. Of two records of one row
    /// with the same `seq`, that of the later move counts.
    #[n(10)]
    pub moved: Option<Seq>,
}

/// The parts of a completed multipart object.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Encode, Decode)]
pub struct PartsSummary {
    /// Number of parts.
    #[n(0)]
    pub count: u32,
    /// The manifest whose part rows describe them.
    #[n(1)]
    pub manifest: ManifestId,
}

/// The version of an object in a bucket with versioning.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Encode, Decode)]
#[cbor(transparent)]
pub struct VersionId(#[cbor(n(0), with = "minicbor::bytes")] pub [u8; 16]);

row!(ObjectRow, "object", version 1);
