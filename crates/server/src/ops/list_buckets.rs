//! ListBuckets, in pages.

use gabion_store::{BucketInfo, ListBuckets};
use gabion_types::limits::BUCKETS_MAX;

use super::{Ops, token};
use crate::credentials::Account;
use crate::error::S3Error;

/// Asks for buckets.
#[derive(Clone, Debug, Default)]
pub(crate) struct Request {
    pub(crate) prefix: Option<String>,
    /// `continuation-token`.
    pub(crate) token: Option<String>,
    /// `max-buckets`: 1 to 10 000.
    pub(crate) max: Option<usize>,
    /// `bucket-region`.
    pub(crate) region: Option<String>,
}

/// A page of buckets.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) buckets: Vec<BucketInfo>,
    pub(crate) next_token: Option<String>,
    pub(crate) prefix: Option<String>,
    /// Whether to show each bucket's region: AWS does when the request asks for pages.
    pub(crate) regions: bool,
}

/// Runs it.
///
/// # Errors
/// `InvalidArgument`.
pub(crate) async fn run(ops: &Ops, account: &Account, request: Request) -> Result<Response, S3Error> {
    let max = request.max.unwrap_or(BUCKETS_MAX);
    let after = request.token.as_deref().map(token::decode).transpose()?;
    let regions =
        request.prefix.is_some() || request.token.is_some() || request.max.is_some() || request.region.is_some();
    if request.region.as_ref().is_some_and(|region| *region != ops.region) {
        return Ok(Response { buckets: Vec::new(), next_token: None, prefix: request.prefix, regions });
    }
    let listed = ops
        .store
        .list_buckets(ListBuckets {
            prefix: request.prefix.clone(),
            after,
            max,
            owner: Some(account.canonical_id.clone()),
        })
        .await?;
    let next_token = listed.next.as_deref().map(token::encode);
    Ok(Response { buckets: listed.buckets, next_token, prefix: request.prefix, regions })
}
