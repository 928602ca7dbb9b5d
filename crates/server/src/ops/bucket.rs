//! HeadBucket, GetBucketLocation, DeleteBucket: a name in, little out.

use gabion_store::BucketInfo;
use gabion_types::BucketName;

use super::Ops;
use crate::error::S3Error;

/// HeadBucket and GetBucketLocation.
///
/// # Errors
/// `NoSuchBucket`.
pub(crate) async fn head(ops: &Ops, bucket: &BucketName) -> Result<BucketInfo, S3Error> {
    Ok(ops.store.head_bucket(bucket).await?)
}

/// DeleteBucket.
///
/// # Errors
/// `NoSuchBucket`, `BucketNotEmpty`.
pub(crate) async fn delete(ops: &Ops, bucket: &BucketName) -> Result<(), S3Error> {
    Ok(ops.store.delete_bucket(bucket).await?)
}
