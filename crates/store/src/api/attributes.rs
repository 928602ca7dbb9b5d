//! GetObjectAttributes.

use gabion_encryption::SecretKey;
use gabion_types::{BucketName, ObjectKey};

use crate::{ObjectInfo, PartInfo, ReadConditions, VersionId};

/// Asks for what is known about an object, with a page of its parts.
#[derive(Clone, Debug)]
pub struct GetAttributes {
    /// The bucket.
    pub bucket: BucketName,
    /// The key.
    pub key: ObjectKey,
    /// This version instead of the current object.
    pub version: Option<VersionId>,
    /// When to refuse.
    pub conditions: ReadConditions,
    /// Only parts with numbers above it; 0 for all.
    pub parts_after: u16,
    /// Most parts to return; 0 when none are asked for.
    pub parts_max: usize,
    /// The customer's key, if the object is encrypted with one.
    pub customer: Option<SecretKey>,
}

/// What is known about an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectAttributes {
    /// The object.
    pub info: ObjectInfo,
    /// A page of its parts, if it was uploaded in parts.
    pub parts: Option<PartsPage>,
}

/// A page of parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartsPage {
    /// Number of parts of the object.
    pub total: u32,
    /// The parts.
    pub parts: Vec<PartInfo>,
    /// Number of the last part of this page, or what was asked for when it is empty.
    pub next: u16,
    /// Whether there is more.
    pub truncated: bool,
}
