//! CreateMultipartUpload, CompleteMultipartUpload, AbortMultipartUpload.

use gabion_store::{CompleteUpload, CreateUpload, CreatedUpload, Encrypt, ListParts, PutResult, SecretKey, UploadRef};

use super::Ops;
use crate::error::{S3Code, S3Error};

/// CreateMultipartUpload.
///
/// # Errors
/// `NoSuchBucket`, `InvalidRequest` for a kind of checksum that the algorithm has not.
pub(crate) async fn create(
    ops: &Ops,
    request: CreateUpload,
    encrypt: Option<&Encrypt>,
) -> Result<CreatedUpload, S3Error> {
    Ok(ops.store.create_encrypted_upload(request, encrypt).await?)
}

/// CompleteMultipartUpload.
///
/// # Errors
/// `NoSuchUpload`, `InvalidPart`, `InvalidPartOrder`, `EntityTooSmall`, `BadDigest`, `PreconditionFailed`.
pub(crate) async fn complete(
    ops: &Ops,
    request: CompleteUpload,
    customer: Option<SecretKey>,
) -> Result<PutResult, S3Error> {
    Ok(ops.store.complete_encrypted_upload(request, customer).await?)
}

/// AbortMultipartUpload.
///
/// # Errors
/// `NoSuchUpload`.
pub(crate) async fn abort(ops: &Ops, target: UploadRef) -> Result<(), S3Error> {
    Ok(ops.store.abort_upload(target).await?)
}

/// AbortMultipartUpload of an upload that must have been begun in a given second.
///
/// # Errors
/// `NoSuchUpload`, `PreconditionFailed`.
pub(crate) async fn abort_if_initiated(ops: &Ops, target: UploadRef, initiated_ms: u64) -> Result<(), S3Error> {
    // When it was begun never changes: nothing comes between the look and the deed.
    let look = ListParts { target: target.clone(), after: 0, max: 0 };
    let upload = ops.store.list_parts(look).await?.upload;
    if upload.created_ms / 1000 != initiated_ms / 1000 {
        return Err(S3Error::new(S3Code::PreconditionFailed).detail("Condition", "x-amz-if-match-initiated-time"));
    }
    abort(ops, target).await
}
