//! ListMultipartUploads.

use gabion_store::{ListUploads, ListedUploads};
use gabion_types::limits::LIST_KEYS_MAX;
use gabion_types::{BucketName, UploadId};

use super::Ops;
use crate::error::S3Error;

/// Asks for a page of uploads.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) bucket: BucketName,
    pub(crate) prefix: String,
    pub(crate) delimiter: Option<String>,
    pub(crate) key_marker: Option<String>,
    pub(crate) upload_id_marker: Option<String>,
    /// `max-uploads`; more than 1000 means 1000.
    pub(crate) max: Option<usize>,
}

/// A page of uploads.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) listed: ListedUploads,
    /// Most uploads, as applied.
    pub(crate) max: usize,
}

/// Runs it.
///
/// # Errors
/// `NoSuchBucket`, `InvalidArgument` for a marker that is no upload id.
pub(crate) async fn run(ops: &Ops, request: Request) -> Result<Response, S3Error> {
    let max = request.max.unwrap_or(LIST_KEYS_MAX).min(LIST_KEYS_MAX);
    let key_marker = request.key_marker.filter(|marker| !marker.is_empty());
    // Without a key marker AWS ignores it.
    let upload_id_marker = match request.upload_id_marker.as_deref().filter(|id| !id.is_empty() && key_marker.is_some())
    {
        Some(id) => Some(
            id.parse::<UploadId>().map_err(|_| S3Error::argument("upload-id-marker", id, "Invalid uploadId marker"))?,
        ),
        None => None,
    };
    let list = ListUploads {
        bucket: request.bucket,
        prefix: request.prefix,
        delimiter: request.delimiter.filter(|delimiter| !delimiter.is_empty()),
        key_marker,
        upload_id_marker,
        max,
    };
    let listed = if max == 0 {
        ops.store.head_bucket(&list.bucket).await?;
        ListedUploads {
            uploads: Vec::new(),
            common_prefixes: Vec::new(),
            next_key_marker: None,
            next_upload_id_marker: None,
            truncated: false,
        }
    } else {
        ops.store.list_uploads(list).await?
    };
    Ok(Response { listed, max })
}
