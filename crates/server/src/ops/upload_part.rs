//! UploadPart and UploadPartCopy.

use gabion_store::{CopyKeys, ObjectBody, PartResult, UploadPart, UploadPartCopy};

use super::Ops;
use super::put_object::check_length;
use crate::error::S3Error;

/// Uploads a part.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) part: UploadPart,
    pub(crate) body: ObjectBody,
}

/// UploadPart.
///
/// # Errors
/// `EntityTooLarge` before the body is read; `NoSuchUpload`, and all that the body may fail with.
pub(crate) async fn run(ops: &Ops, request: Request) -> Result<PartResult, S3Error> {
    check_length(&request.body)?;
    Ok(ops.store.upload_part(request.part, request.body).await?)
}

/// UploadPartCopy.
///
/// # Errors
/// `NoSuchUpload`, `NoSuchKey`, `PreconditionFailed`, `InvalidRange`.
pub(crate) async fn copy(ops: &Ops, request: UploadPartCopy, keys: CopyKeys) -> Result<PartResult, S3Error> {
    Ok(ops.store.copy_encrypted_part(request, keys).await?)
}
