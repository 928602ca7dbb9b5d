//! GetObject and HeadObject.

use gabion_store::{ChecksumKind, GetObject, ObjectRead, Opening};

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

/// Opens the object, of which [`Response::of`] makes what is answered.
///
/// # Errors
/// `NoSuchKey`, `InvalidRange`, `InvalidPartNumber`, `NotModified`, `PreconditionFailed`.
pub(crate) fn get(ops: &Ops, request: Request) -> Result<Opening<'_>, S3Error> {
    check(&request)?;
    Ok(ops.store.open_object(request.get)?)
}

/// Asks the index alone.
///
/// # Errors
/// As [`get`].
pub(crate) fn head(ops: &Ops, request: &Request) -> Result<Response, S3Error> {
    check(request)?;
    let read = ops.store.head_object(&request.get)?;
    Ok(Response::of(read, request.checksums))
}

fn check(request: &Request) -> Result<(), S3Error> {
    if request.get.range.is_some() && request.get.part_number.is_some() {
        return Err(S3Error::request("Cannot specify both Range header and partNumber query parameter"));
    }
    Ok(())
}

impl Response {
    /// Of what was read; `checksums` says whether they are asked for.
    pub(crate) fn of(read: ObjectRead, checksums: bool) -> Self {
        let checksums = if checksums { checksums_of(&read) } else { Vec::new() };
        let parts_count = read.part.as_ref().and(read.info.parts_count);
        Self { read, checksums, parts_count }
    }
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
