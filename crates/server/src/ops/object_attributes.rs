//! GetObjectAttributes.

use gabion_store::{GetAttributes, ObjectAttributes, ReadConditions, SecretKey, VersionId};
use gabion_types::limits::LIST_KEYS_MAX;
use gabion_types::{BucketName, ObjectKey};

use super::Ops;
use crate::error::S3Error;

/// Which attributes are asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) etag: bool,
    pub(crate) checksum: bool,
    pub(crate) parts: bool,
    pub(crate) storage_class: bool,
    pub(crate) size: bool,
}

impl Wanted {
    /// Reads the names, of which there must be one at least.
    ///
    /// # Errors
    /// `InvalidArgument`.
    pub(crate) fn parse<'a>(names: impl Iterator<Item = &'a str>) -> Result<Self, S3Error> {
        let mut wanted = Self::default();
        for name in names.flat_map(|list| list.split(',')).map(str::trim).filter(|name| !name.is_empty()) {
            match name {
                "ETag" => wanted.etag = true,
                "Checksum" => wanted.checksum = true,
                "ObjectParts" => wanted.parts = true,
                "StorageClass" => wanted.storage_class = true,
                "ObjectSize" => wanted.size = true,
                _ => {
                    let message = "Invalid attribute name specified.";
                    return Err(S3Error::argument("x-amz-object-attributes", name, message));
                }
            }
        }
        if wanted == Self::default() {
            let message = "The x-amz-object-attributes header specifying the attributes to be retrieved is either \
                missing or empty";
            return Err(S3Error::request(message));
        }
        Ok(wanted)
    }
}

/// Asks for attributes.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) bucket: BucketName,
    pub(crate) key: ObjectKey,
    pub(crate) version: Option<VersionId>,
    pub(crate) wanted: Wanted,
    /// `x-amz-part-number-marker`.
    pub(crate) parts_after: usize,
    /// `x-amz-max-parts`; more than 1000 means 1000.
    pub(crate) parts_max: Option<usize>,
    /// The customer's key, if the object is encrypted with one.
    pub(crate) customer: Option<SecretKey>,
}

/// What is known about the object, all of it; the adapter shows what was asked for.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) attributes: ObjectAttributes,
    /// Most parts, as applied.
    pub(crate) parts_max: usize,
    /// The part number marker, as applied.
    pub(crate) parts_after: u16,
}

/// Runs it.
///
/// # Errors
/// `NoSuchKey`, `NoSuchBucket`.
pub(crate) async fn run(ops: &Ops, request: Request) -> Result<Response, S3Error> {
    let parts_max = request.parts_max.unwrap_or(LIST_KEYS_MAX).min(LIST_KEYS_MAX);
    let parts_after = u16::try_from(request.parts_after).unwrap_or(u16::MAX);
    let get = GetAttributes {
        bucket: request.bucket,
        key: request.key,
        version: request.version,
        conditions: ReadConditions::default(),
        parts_after,
        parts_max: if request.wanted.parts { parts_max } else { 0 },
        customer: request.customer,
    };
    let attributes = ops.store.get_attributes(get).await?;
    Ok(Response { attributes, parts_max, parts_after })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_named_in_lists() {
        let wanted = Wanted::parse(["ETag, ObjectSize", "Checksum"].into_iter()).unwrap();
        assert_eq!(wanted, Wanted { etag: true, checksum: true, size: true, ..Wanted::default() });
        for bad in [&[][..], &[""], &["ETag,Colour"], &["etag"]] {
            assert!(Wanted::parse(bad.iter().copied()).is_err(), "{bad:?}");
        }
    }
}
