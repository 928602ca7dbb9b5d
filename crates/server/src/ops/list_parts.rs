//! ListParts.

use gabion_store::{ListParts, ListedParts, UploadRef};
use gabion_types::limits::LIST_KEYS_MAX;

use super::Ops;
use crate::error::S3Error;

/// Asks for a page of parts.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) target: UploadRef,
    /// `part-number-marker`.
    pub(crate) after: usize,
    /// `max-parts`; more than 1000 means 1000.
    pub(crate) max: Option<usize>,
}

/// A page of parts.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) listed: ListedParts,
    /// Most parts, as applied.
    pub(crate) max: usize,
}

/// Runs it.
///
/// # Errors
/// `NoSuchUpload`.
pub(crate) async fn run(ops: &Ops, request: Request) -> Result<Response, S3Error> {
    let max = request.max.unwrap_or(LIST_KEYS_MAX).min(LIST_KEYS_MAX);
    // Above every part number there is nothing.
    let after = u16::try_from(request.after).unwrap_or(u16::MAX);
    let listed = ops.store.list_parts(ListParts { target: request.target, after, max }).await?;
    Ok(Response { listed, max })
}
