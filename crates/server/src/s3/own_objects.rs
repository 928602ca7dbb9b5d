//! Objects that the server itself puts in a bucket, as the bucket has it: encrypted by its default, kept by its rule.

use bytes::Bytes;
use gabion_store::{Attributes, Encrypt, ObjectBody, PutObject, WriteConditions};
use gabion_types::{BucketName, ObjectKey};

use super::{encryption, object_lock};
use crate::error::S3Error;
use crate::ops::Ops;

/// An object of the server's own.
pub(crate) struct OwnObject {
    pub(crate) bucket: BucketName,
    pub(crate) key: ObjectKey,
    pub(crate) content_type: String,
    /// How it is encrypted; nothing: as the bucket says.
    pub(crate) encrypt: Option<Encrypt>,
    pub(crate) bytes: Bytes,
}

/// Puts it. Whether it may be put there the caller has asked.
///
/// # Errors
/// `ServiceUnavailable` when the bucket says what only a newer program understands; those of the store.
pub(crate) async fn put_own(ops: &Ops, object: OwnObject) -> Result<(), S3Error> {
    let OwnObject { bucket, key, content_type, encrypt, bytes } = object;
    let encrypt = match encrypt {
        Some(encrypt) => Some(encrypt),
        None => encryption::by_default(ops, &bucket)?,
    };
    let retention = object_lock::by_default(ops, &bucket)?;
    let attributes = Attributes { content_type: Some(content_type), retention, ..Attributes::default() };
    let mut body = ObjectBody::from_bytes(bytes);
    body.encrypt = encrypt.map(Box::new);
    let put = PutObject { bucket, key, attributes, conditions: WriteConditions::default() };
    ops.store.put_object(put, body).await?;
    Ok(())
}
