//! GetObject and HeadObject.

use gabion_store::{GetObject, ObjectRead};

use super::Ops;
use super::checksums::{ShownChecksum, shown};
use crate::error::S3Error;

/// Reads an object or a part of it.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) get: GetObject,
    /// `x-amz-checksum-mode: ENABLED`.
    pub(crate) checksums: bool,
    /// Whether the bytes are wanted.
    pub(crate) bytes: bool,
}

/// An object or a part of it.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) read: ObjectRead,
    /// Checksums of exactly the bytes that are sent: of a range there is none.
    pub(crate) checksums: Vec<ShownChecksum>,
    /// `x-amz-mp-parts-count`, when a part was asked for.
    pub(crate) parts_count: Option<u32>,
}

/// Runs it.
///
/// # Errors
/// `NoSuchKey`, `InvalidRange`, `InvalidPartNumber`, `NotModified`, `PreconditionFailed`.
pub(crate) async fn run(ops: &Ops, request: Request) -> Result<Response, S3Error> {
    if request.get.range.is_some() && request.get.part_number.is_some() {
        return Err(S3Error::request("Cannot specify both Range header and partNumber query parameter"));
    }
    let read = if request.bytes {
        ops.store.get_object(request.get).await?
    } else {
        ops.store.head_object(request.get).await?
    };
    let checksums = match (&read.part, read.range) {
        _ if !request.checksums => Vec::new(),
        (Some(part), _) if read.info.parts_count.is_some() => shown(&part.checksums, None),
        (None, Some(_)) => Vec::new(),
        _ => shown(&read.info.checksums, read.info.parts_count),
    };
    let parts_count = read.part.as_ref().and(read.info.parts_count);
    Ok(Response { read, checksums, parts_count })
}
