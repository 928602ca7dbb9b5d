//! Listings of objects.

use gabion_erasure::ChecksumAlgorithm;
use gabion_metadata::rows::{ChecksumKind, Etag};
use gabion_types::{BucketName, Seq};

use crate::{ObjectInfo, VersionId};

/// Asks for a page of objects, in order of key (UTF-8 bytes).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListObjects {
    /// The bucket.
    pub bucket: BucketName,
    /// Only keys that begin with it; empty for all.
    pub prefix: String,
    /// Keys that have it behind the prefix are rolled up to their common prefix; nothing or empty for none.
    pub delimiter: Option<String>,
    /// Only keys and common prefixes above it (`start-after`, `marker`, the position in a continuation token).
    pub after: Option<String>,
    /// Most entries and common prefixes to return together.
    pub max: usize,
}

/// A page of objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedObjects {
    /// The objects.
    pub entries: Vec<ObjectSummary>,
    /// The common prefixes.
    pub common_prefixes: Vec<String>,
    /// `after` of the next page: the last key or common prefix of this one. Set when truncated.
    pub next: Option<String>,
    /// Whether there is more.
    pub truncated: bool,
}

/// An object in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectSummary {
    /// Its key.
    pub key: String,
    /// Its length in bytes.
    pub size: u64,
    /// Its tag.
    pub etag: Etag,
    /// `Last-Modified`, Unix time in milliseconds.
    pub modified_ms: u64,
    /// Algorithms and kinds of its checksums.
    pub checksums: Vec<(ChecksumAlgorithm, ChecksumKind)>,
    /// Its storage class; nothing means `STANDARD`.
    pub storage_class: Option<String>,
    /// Canonical id of the account that owns it; nothing means the bucket's owner.
    pub owner: Option<String>,
}

/// Asks for a page of versions, in order of key, and of a key the newest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListVersions {
    /// The bucket.
    pub bucket: BucketName,
    /// Only keys that begin with it; empty for all.
    pub prefix: String,
    /// As in [`ListObjects`].
    pub delimiter: Option<String>,
    /// Only keys and common prefixes above it, and what follows of this key if a version of it is named.
    pub after: Option<(String, Option<VersionId>)>,
    /// Most versions and common prefixes to return together.
    pub max: usize,
}

/// A page of versions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedVersions {
    /// The versions and delete markers.
    pub entries: Vec<VersionSummary>,
    /// The common prefixes.
    pub common_prefixes: Vec<String>,
    /// `after` of the next page: the last of this one. Set when truncated.
    pub next: Option<(String, Option<VersionId>)>,
    /// Whether there is more.
    pub truncated: bool,
}

/// A version in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionSummary {
    /// The object; of a delete marker only key and time count.
    pub object: ObjectSummary,
    /// Which version it is.
    pub version: VersionId,
    /// The commit that made it.
    pub seq: Seq,
    /// Whether it is the newest of its key.
    pub is_latest: bool,
    /// Whether it is a delete marker.
    pub is_marker: bool,
}

/// Asks for a page of objects with all that is known about each, in the order of [`ListVersions`]: for those who walk a whole bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListDetails {
    /// The bucket.
    pub bucket: BucketName,
    /// Only keys that begin with it; empty for all.
    pub prefix: String,
    /// Whether versions that are not current, and delete markers, are listed, too.
    pub all_versions: bool,
    /// Only what comes after this version of this key.
    pub after: Option<(String, Seq)>,
    /// Most versions to return.
    pub max: usize,
}

/// A page of objects with all that is known about each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedDetails {
    /// The objects, or versions.
    pub entries: Vec<VersionDetails>,
    /// `after` of the next page: the last of this one. Set when there may be more.
    pub next: Option<(String, Seq)>,
}

/// A version with all that is known about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionDetails {
    /// Its key.
    pub key: String,
    /// What is known; of a delete marker only version and time count.
    pub info: ObjectInfo,
    /// Whether it is the newest of its key.
    pub is_latest: bool,
    /// Whether it is a delete marker.
    pub is_marker: bool,
}
