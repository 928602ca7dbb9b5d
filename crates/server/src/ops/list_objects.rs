//! ListObjects and ListObjectsV2.

use gabion_store::{ListObjects, ListedObjects};
use gabion_types::BucketName;
use gabion_types::limits::LIST_KEYS_MAX;

use super::{Ops, token};
use crate::error::S3Error;

/// Where a listing begins.
#[derive(Clone, Debug)]
pub(crate) enum From {
    /// `marker` of ListObjects, empty for the beginning.
    Marker(String),
    /// `start-after` of ListObjectsV2, empty for the beginning.
    StartAfter(String),
    /// `continuation-token` of ListObjectsV2.
    Token(String),
}

/// Asks for a page of objects.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) bucket: BucketName,
    pub(crate) prefix: String,
    pub(crate) delimiter: Option<String>,
    pub(crate) from: From,
    /// `max-keys`; more than 1000 means 1000.
    pub(crate) max: Option<usize>,
}

/// A page of objects.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) listed: ListedObjects,
    /// Most entries, as applied.
    pub(crate) max: usize,
    /// `NextContinuationToken`.
    pub(crate) next_token: Option<String>,
}

/// Runs it.
///
/// # Errors
/// `NoSuchBucket`, `InvalidArgument` for a token that is none.
pub(crate) async fn run(ops: &Ops, request: Request) -> Result<Response, S3Error> {
    let max = request.max.unwrap_or(LIST_KEYS_MAX).min(LIST_KEYS_MAX);
    let after = match request.from {
        From::Marker(after) | From::StartAfter(after) => Some(after).filter(|after| !after.is_empty()),
        From::Token(token) => Some(token::decode(&token)?),
    };
    let list = ListObjects {
        bucket: request.bucket,
        prefix: request.prefix,
        delimiter: request.delimiter.filter(|delimiter| !delimiter.is_empty()),
        after,
        max,
    };
    let listed = if max == 0 {
        ops.store.head_bucket(&list.bucket).await?;
        ListedObjects { entries: Vec::new(), common_prefixes: Vec::new(), next: None, truncated: false }
    } else {
        ops.store.list_objects(list).await?
    };
    let next_token = listed.next.as_deref().filter(|_| listed.truncated).map(token::encode);
    Ok(Response { listed, max, next_token })
}
