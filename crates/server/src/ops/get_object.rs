//! GetObject and HeadObject.

use gabion_store::{ChecksumKind, GetObject, ObjectRead};

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
    /// Checksums of exactly the bytes that are sent: of a range that is not all there is none.
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
pub(crate) fn head(ops: &Ops, request: &Request) -> Result<Response, S3Error> {
    check(request)?;
    let read = ops.store.head_object(&request.get)?;
    Ok(response(read, request.checksums))
}

fn check(request: &Request) -> Result<(), S3Error> {
    if request.get.range.is_some() && request.get.part_number.is_some() {
        return Err(S3Error::request("Cannot specify both Range header and partNumber query parameter"));
    }
    Ok(())
}

fn response(read: ObjectRead, checksums: bool) -> Response {
    let checksums = if checksums { checksums_of(&read) } else { Vec::new() };
    let parts_count = read.part.as_ref().and(read.info.parts_count);
    Response { read, checksums, parts_count }
}

fn checksums_of(read: &ObjectRead) -> Vec<ShownChecksum> {
    let whole = || shown(&read.info.checksums, read.info.parts_count);
    let is_all = read.len == read.info.size;
    match (&read.part, read.info.checksums.first()) {
        (Some(part), Some(object)) if object.kind == ChecksumKind::Composite || !is_all => {
            // A part that came with another checksum than the object's is of an upload that asked for none: as on AWS nothing is told of it.
            let is_asked = part.checksums.iter().all(|checksum| checksum.algorithm == object.algorithm);
            let of_part = if is_asked { shown(&part.checksums, None) } else { Vec::new() };
            of_part.into_iter().map(|checksum| ShownChecksum { kind: object.kind, ..checksum }).collect()
        }
        _ if is_all => whole(),
        _ => Vec::new(),
    }
}
