//! A part of an upload that is not completed yet.

use gabion_types::Seq;
use minicbor::{Decode, Encode};

use super::{Home, Layout, PartTag, Salt, StoredChecksum, row};

/// A part, under its upload and its number.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub struct PartRow {
    /// Length in bytes.
    #[n(0)]
    pub size: u64,
    /// Its tag.
    #[n(1)]
    pub tag: PartTag,
    /// When it was uploaded, Unix time in milliseconds.
    #[n(2)]
    pub modified_ms: u64,
    /// The commit that made it current.
    #[n(3)]
    pub seq: Seq,
    /// Its checksums.
    #[n(4)]
    pub checksums: Vec<StoredChecksum>,
    /// Where its bytes lie.
    #[n(5)]
    pub layout: Layout,
    /// The mutation record that made it current.
    #[n(6)]
    pub home: Home,
    /// The commit that moved it last; nothing as long as it lies where it was first written. Of two records of one row
    /// with the same `seq`, that of the later move counts.
    #[n(7)]
    pub moved: Option<Seq>,
    /// Its salt, if the upload is encrypted.
    #[n(8)]
    pub salt: Option<Salt>,
    /// Where its bytes count while its upload is open; nothing for one that is older than this field, or that only moves.
    #[n(9)]
    pub counts: Option<CountsFor>,
}

/// Whose bytes those of a part are.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub struct CountsFor {
    /// The bucket of its upload.
    #[n(0)]
    pub bucket: String,
    /// Who began its upload: [`super::Attributes::creator`].
    #[n(1)]
    pub creator: Option<String>,
}

row!(PartRow, "part", version 1);
