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

/// Opens the object.
///
/// # Errors
/// `NoSuchKey`, `InvalidRange`, `InvalidPartNumber`, `NotModified`, `PreconditionFailed`.
pub(crate) async fn get(ops: &Ops, request: Request) -> Result<Response, S3Error> {
    check(&request)?;
    let read = ops.store.get_object(request.get).await?;
    Ok(response(read, request.checksums))
}

/// Asks the index alone.
///
/// # Errors
/// As [`get`].
pub(crate) async fn head(ops: &Ops, request: Request) -> Result<Response, S3Error> {
    check(&request)?;
    let read = ops.store.head_object(request.get).await?;
    Ok(response(read, request.checksums))
}

fn check(request: &Request) -> Result<(), S3Error> {
    if request.get.range.is_some() && request.get.part_number.is_some() {
        return Err(S3Error::request("Cannot specify both Range header and partNumber query parameter"));
    }
    Ok(())
}

fn response(read: ObjectRead, checksums: bool) -> Response {
    let checksums = match (&read.part, read.range) {
        _ if !checksums => Vec::new(),
        (Some(part), _) if read.info.parts_count.is_some() => shown(&part.checksums, None),
        (None, Some(_)) => Vec::new(),
        _ => shown(&read.info.checksums, read.info.parts_count),
    };
    let parts_count = read.part.as_ref().and(read.info.parts_count);
    Response { read, checksums, parts_count }
}
