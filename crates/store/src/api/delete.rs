//! Deletes.

use gabion_types::{ObjectKey, Seq};

use crate::{EtagMatch, VersionId};

/// Deletes an object of a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeleteObject {
    /// The key.
    pub key: ObjectKey,
    /// This version, for good. Without one, a bucket that keeps versions gets a delete marker.
    pub version: Option<VersionId>,
    /// Only if the object (or the version that is named) has this tag.
    pub if_match: Option<EtagMatch>,
    /// Only if it has this length in bytes.
    pub if_size: Option<u64>,
    /// Only if it was modified in this second: Unix time in milliseconds.
    pub if_modified_ms: Option<u64>,
    /// Only if it is the one of this commit.
    pub if_seq: Option<Seq>,
    /// Only if the version that is named is not the newest of its key.
    pub if_noncurrent: bool,
    /// Whether a version that is retained in governance mode may go all the same; the caller has checked the permission.
    pub bypass_governance: bool,
}

impl DeleteObject {
    /// Deletes what is current.
    #[must_use]
    pub fn current(key: ObjectKey) -> Self {
        Self {
            key,
            version: None,
            if_match: None,
            if_size: None,
            if_modified_ms: None,
            if_seq: None,
            if_noncurrent: false,
            bypass_governance: false,
        }
    }
}

/// What a delete did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deleted {
    /// Whether there was an object, or a version; S3 answers the same in both cases.
    pub existed: bool,
    /// The version that was deleted, or the delete marker that was made, if the bucket keeps versions or did, or one was named.
    pub version: Option<VersionId>,
    /// Whether that is a delete marker.
    pub is_marker: bool,
    /// The commit, if there was anything to be done.
    pub seq: Option<Seq>,
}
