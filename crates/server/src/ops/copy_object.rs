//! CopyObject.

use gabion_store::{CopyKeys, CopyObject, CopyResult};

use super::Ops;
use crate::error::{S3Code, S3Error};

/// Runs it: the rules are the store's; what is missing is said about the source here.
///
/// # Errors
/// `NoSuchKey`, `NoSuchBucket`, `PreconditionFailed`, `InvalidRequest`.
pub(crate) async fn run(ops: &Ops, request: CopyObject, keys: CopyKeys) -> Result<CopyResult, S3Error> {
    let source = request.source.key.clone();
    ops.store.copy_encrypted(request, keys).await.map_err(|error| {
        let error = S3Error::from(error);
        if error.code == S3Code::NoSuchKey { error.detail("Key", source.as_str()) } else { error }
    })
}
