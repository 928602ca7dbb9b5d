//! Renaming.

use gabion_encryption::SecretKey;
use gabion_types::{BucketName, ObjectKey};

use crate::ReadConditions;

/// Gives an object another key.
#[derive(Clone, Debug)]
pub struct RenameObject {
    /// The bucket of both keys.
    pub bucket: BucketName,
    /// The key that the object has.
    pub from: ObjectKey,
    /// The key that it gets. What is there is replaced.
    pub to: ObjectKey,
    /// When to refuse, by the object itself.
    pub source_conditions: ReadConditions,
    /// When to refuse, by the object that it would replace. Without one, those on a tag that matches and on a change since a time do not hold.
    pub target_conditions: ReadConditions,
    /// Tells a request that is sent again from another one.
    pub client_token: Option<String>,
    /// The customer's key, if the object is encrypted with one.
    pub customer: Option<SecretKey>,
}
