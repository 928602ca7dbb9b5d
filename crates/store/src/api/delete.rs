//! Deletes.

use gabion_types::ObjectKey;

use crate::EtagMatch;

/// Deletes an object of a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeleteObject {
    /// The key.
    pub key: ObjectKey,
    /// Only if the current object has this tag.
    pub if_match: Option<EtagMatch>,
}

/// What a delete did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deleted {
    /// Whether there was an object; S3 answers the same in both cases.
    pub existed: bool,
}
