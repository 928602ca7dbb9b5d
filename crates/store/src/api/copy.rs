//! Copies.

use gabion_erasure::ChecksumAlgorithm;
use gabion_metadata::rows::Attributes;
use gabion_types::{BucketName, ObjectKey};

use crate::{PutResult, ReadConditions, VersionId, WriteConditions};

/// What is copied.
#[derive(Clone, Debug)]
pub struct CopySource {
    /// The bucket.
    pub bucket: BucketName,
    /// The key.
    pub key: ObjectKey,
    /// This version instead of the current object.
    pub version: Option<VersionId>,
    /// When to refuse.
    pub conditions: ReadConditions,
}

/// Attributes of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopyMetadata {
    /// The source's `Content-*`, `Cache-Control`, `Expires` and `x-amz-meta-*`; of all else, which S3 never copies, the copy's own.
    Copy {
        /// What the request says of the copy.
        own: Box<Attributes>,
    },
    /// These.
    Replace(Box<Attributes>),
}

/// Copies an object.
#[derive(Clone, Debug)]
pub struct CopyObject {
    /// What is copied.
    pub source: CopySource,
    /// Whether who asks named the version that is copied: it may be one of the copy's own key then, and becomes the current object again.
    pub is_version_named: bool,
    /// Bucket of the copy.
    pub bucket: BucketName,
    /// Key of the copy.
    pub key: ObjectKey,
    /// Attributes of the copy.
    pub metadata: CopyMetadata,
    /// Tags of the copy; without any it has the source's.
    pub tags: Option<Vec<(String, String)>>,
    /// Canonical id of the account that owns the copy: never the source's. Nothing means the bucket's owner.
    pub owner: Option<String>,
    /// What is granted on the copy: never the source's.
    pub acl: Option<String>,
    /// Id of the user who makes the copy, if it is a user.
    pub creator: Option<String>,
    /// When to refuse, by the object that the copy would replace.
    pub conditions: WriteConditions,
    /// Checksum that the copy must have; without one it has the source's.
    pub checksum_algorithm: Option<ChecksumAlgorithm>,
}

/// A copy that was made.
pub type CopyResult = PutResult;
