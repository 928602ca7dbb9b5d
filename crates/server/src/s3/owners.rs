//! Whose buckets a request is about, where it says whom it expects.

use gabion_store::StoreError;
use gabion_types::BucketName;

use super::call::Call;
use super::copies::parse_source;
use crate::error::{S3Code, S3Error};
use crate::ops::Ops;

/// Refuses a request that expects another account behind its bucket, or behind the one that it copies from.
///
/// # Errors
/// `AccessDenied`; the store's.
pub(super) async fn check(ops: &Ops, call: &Call) -> Result<(), S3Error> {
    if let (Some(expected), Some(bucket)) = (call.header("x-amz-expected-bucket-owner")?, &call.routed.bucket) {
        expect(ops, bucket, expected).await?;
    }
    if let (Some(expected), Some(source)) =
        (call.header("x-amz-source-expected-bucket-owner")?, call.header("x-amz-copy-source")?)
    {
        expect(ops, &parse_source(source)?.0, expected).await?;
    }
    Ok(())
}

/// That there is no such bucket is for the operation to say, if the request may know.
async fn expect(ops: &Ops, bucket: &BucketName, expected: &str) -> Result<(), S3Error> {
    match ops.store.head_bucket(bucket).await {
        Ok(found) if ops.account_id(&found.owner).as_deref() == Some(expected) => Ok(()),
        Err(StoreError::NoSuchBucket) => Ok(()),
        Ok(_) => Err(S3Code::AccessDenied.into()),
        Err(error) => Err(error.into()),
    }
}
