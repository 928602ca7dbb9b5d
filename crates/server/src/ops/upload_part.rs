//! UploadPart and UploadPartCopy.

use gabion_store::{ByteRange, CopyKeys, ObjectBody, PartResult, StoreError, UploadPart, UploadPartCopy};

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
/// `NoSuchUpload`, `NoSuchKey`, `PreconditionFailed`; `InvalidArgument` or `InvalidRequest` for a range that leaves the source.
pub(crate) async fn copy(ops: &Ops, request: UploadPartCopy, keys: CopyKeys) -> Result<PartResult, S3Error> {
    let range = request.range;
    ops.store.copy_encrypted_part(request, keys).await.map_err(|error| match (error, range) {
        (StoreError::InvalidRange { size }, Some(range)) => beyond(range, size),
        (error, _) => error.into(),
    })
}

/// What AWS says of a range that leaves the source.
fn beyond(ByteRange { first, last }: ByteRange, size: u64) -> S3Error {
    if first >= size {
        return S3Error::request("The specified copy range is invalid for the source object size");
    }
    let message = format!("Range specified is not valid for source object of size: {size}");
    S3Error::argument("x-amz-copy-source-range", &format!("bytes={first}-{last}"), message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::S3Code;

    #[test]
    fn ranges_that_leave_the_source_are_told_apart() {
        for (first, last, code) in
            [(0, 100, S3Code::InvalidArgument), (9, 10, S3Code::InvalidArgument), (10, 12, S3Code::InvalidRequest)]
        {
            assert_eq!(beyond(ByteRange { first, last }, 10).code, code);
        }
    }
}
