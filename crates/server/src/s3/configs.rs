//! Configurations of buckets: documents that are kept as they were checked, and given back as they are kept.

use std::sync::Arc;

use bytes::Bytes;
use gabion_store::{ConfigScope, Configs};
use gabion_types::BucketName;
use http::{Response, StatusCode};
use parking_lot::Mutex;
use s3s::Body;

use super::answer;
use super::call::Call;
use crate::access::BucketAccess;
use crate::error::S3Error;
use crate::ops::Ops;

/// Keeps a document.
///
/// # Errors
/// `NoSuchBucket`; what the store fails with.
pub(super) async fn put(ops: &Ops, call: &Call, name: &str, document: String) -> Result<Response<Body>, S3Error> {
    ops.store.put_config(ConfigScope::Bucket(call.bucket()?), name, Bytes::from(document)).await?;
    Ok(answer::empty(StatusCode::OK))
}

/// Keeps a document if `judge` lets it, by who may reach the bucket when nothing else happens in it.
///
/// # Errors
/// What `judge` refuses it with; else as [`put`].
pub(super) async fn put_judged(
    ops: &Ops,
    bucket: BucketName,
    name: &str,
    document: Bytes,
    judge: impl FnOnce(&BucketAccess) -> Result<(), S3Error> + Send + 'static,
) -> Result<(), S3Error> {
    let refusal = Arc::new(Mutex::new(None));
    let told = Arc::clone(&refusal);
    let condition = move |configs: &Configs| {
        *told.lock() = judge(&BucketAccess::parse(configs)).err();
        told.lock().is_none()
    };
    let outcome = ops.store.put_config_if(ConfigScope::Bucket(bucket), name, document, condition).await;
    match refusal.lock().take() {
        Some(refusal) => Err(refusal),
        None => Ok(outcome?),
    }
}

/// Shows a document, if there is one.
///
/// # Errors
/// `NoSuchBucket`.
pub(super) async fn get(ops: &Ops, call: &Call, name: &str) -> Result<Option<Response<Body>>, S3Error> {
    let bucket = call.bucket()?;
    ops.store.head_bucket(&bucket).await?;
    let configs = ops.store.bucket_configs(&bucket)?;
    let document = configs.get(name).and_then(|document| std::str::from_utf8(document).ok());
    Ok(document.map(|document| answer::document(document.to_owned())))
}

/// Forgets a document, if there is one.
///
/// # Errors
/// `NoSuchBucket`; what the store fails with.
pub(super) async fn delete(ops: &Ops, call: &Call, name: &str) -> Result<Response<Body>, S3Error> {
    ops.store.delete_config(ConfigScope::Bucket(call.bucket()?), name).await?;
    Ok(answer::empty(StatusCode::NO_CONTENT))
}
