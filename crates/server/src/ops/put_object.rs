//! PutObject.

use futures::FutureExt;
use gabion_store::{AppendObject, ObjectBody, PutObject, PutResult};
use gabion_types::limits::PUT_BYTES_MAX;

use super::Ops;
use crate::error::{S3Code, S3Error};

/// Puts an object.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) put: PutObject,
    pub(crate) body: ObjectBody,
}

/// Runs it, with a body that [`check_length`] allows.
///
/// # Errors
/// `NoSuchBucket` before the body is read; all that the body or the conditions may fail with.
pub(crate) fn run(ops: &Ops, request: Request) -> impl Future<Output = Result<PutResult, S3Error>> + Send {
    ops.store.put_object(request.put, request.body).map(|put| Ok(put?))
}

/// Appends such a body to an object.
///
/// # Errors
/// As [`run`]; `InvalidWriteOffset`, `TooManyParts`.
pub(crate) async fn append(ops: &Ops, request: AppendObject, body: ObjectBody) -> Result<PutResult, S3Error> {
    Ok(Box::pin(ops.store.append_object(request, body)).await?)
}

/// Refuses a body that is too large before it is read.
///
/// # Errors
/// `EntityTooLarge`.
pub(crate) fn check_length(body: &ObjectBody) -> Result<(), S3Error> {
    match body.length {
        Some(bytes) if bytes > PUT_BYTES_MAX => Err(S3Error::new(S3Code::EntityTooLarge)
            .detail("ProposedSize", bytes.to_string())
            .detail("MaxSizeAllowed", PUT_BYTES_MAX.to_string())),
        _ => Ok(()),
    }
}
