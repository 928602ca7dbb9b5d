//! An object under a key: the current one, an older version, or a delete marker.

use gabion_types::{ManifestId, SegmentId, Seq, UploadId};
use minicbor::{Decode, Encode};

use super::{Attributes, Etag, Home, Layout, StoredChecksum, row};

/// An object under a bucket and a key, in the table `Object` if it is current, else in the table `Version`, where delete markers are as well.
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
    /// What it is among the versions of its key; nothing is S3's `null` version.
    #[n(9)]
    pub kind: Option<VersionKind>,
    /// The commit that moved it last; nothing as long as it lies where it was first written. Of two records of one row
    /// with the same `seq`, that of the later move counts.
    #[n(10)]
    pub moved: Option<Seq>,
    /// Other segments than that of `home` in which there may be records that would bring back an object under this key: of those that it took the place of,
    /// one after the other since the key was last free, and of itself before it was moved. Ascending; nothing when they are not all known.
    #[n(11)]
    pub former_homes: Option<Vec<SegmentId>>,
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
    /// The upload that it was, as long as it lies where it was first written and nothing about it changes: who completes it once more is told the
    /// same. Of an object that compaction put together, compaction's own, which nobody knows.
    #[n(2)]
    pub upload: Option<UploadId>,
}

/// What a row is among the versions of its key, beside an object that is the `null` version.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Encode, Decode)]
#[cbor(index_only)]
pub enum VersionKind {
    /// An object with a version id of its own: its commit's.
    #[n(0)]
    Version,
    /// A delete marker with a version id of its own.
    #[n(1)]
    Marker,
    /// A delete marker that is the `null` version.
    #[n(2)]
    NullMarker,
}

impl VersionKind {
    /// Whether a row of this kind is a delete marker.
    #[must_use]
    pub fn is_marker(kind: Option<Self>) -> bool {
        matches!(kind, Some(VersionKind::Marker | VersionKind::NullMarker))
    }

    /// Whether a row of this kind is the `null` version of its key.
    #[must_use]
    pub fn is_null(kind: Option<Self>) -> bool {
        matches!(kind, None | Some(VersionKind::NullMarker))
    }
}

row!(ObjectRow, "object", version 1);
