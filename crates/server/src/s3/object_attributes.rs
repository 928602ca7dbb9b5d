//! Adapter of GetObjectAttributes.

use http::Response;
use http::header::LAST_MODIFIED;
use s3s::Body;

use super::answer;
use super::call::Call;
use super::listing::STANDARD;
use super::query::count;
use super::xml::Xml;
use super::{checksums, date, encryption, versioning};
use crate::error::S3Error;
use crate::ops::Ops;
use crate::ops::checksums::shown;
use crate::ops::object_attributes::{Request, Wanted, run};

pub(super) async fn get(ops: &Ops, call: &Call) -> Result<Response<Body>, S3Error> {
    let names = call.list("x-amz-object-attributes");
    let wanted = Wanted::parse(names.as_deref().into_iter())?;
    let number = |name| count(name, call.header(name)?);
    let request = Request {
        bucket: call.bucket()?,
        key: call.key()?,
        version: call.version()?,
        wanted,
        parts_after: number("x-amz-part-number-marker")?.unwrap_or(0),
        parts_max: number("x-amz-max-parts")?,
        customer: encryption::reading(call)?.map(|customer| customer.key),
    };
    let found = run(ops, request).await?;
    let info = &found.attributes.info;
    let mut response = answer::document(Xml::document("GetObjectAttributesResponse", |xml| {
        if wanted.etag {
            xml.value("ETag", &info.etag);
        }
        let checksums = shown(&info.checksums, None);
        if let (true, Some(first)) = (wanted.checksum, checksums.first()) {
            xml.element("Checksum", |xml| {
                checksums::show_elements(&checksums, xml);
                xml.text("ChecksumType", first.kind.name());
            });
        }
        if let (true, Some(page)) = (wanted.parts, &found.attributes.parts) {
            xml.element("ObjectParts", |xml| {
                xml.value("PartsCount", page.total);
                xml.value("PartNumberMarker", found.parts_after);
                let last = page.parts.last().map_or(0, |part| part.part_number);
                xml.value("NextPartNumberMarker", last);
                xml.value("MaxParts", found.parts_max);
                xml.value("IsTruncated", page.truncated);
                for part in &page.parts {
                    xml.element("Part", |xml| {
                        xml.value("PartNumber", part.part_number);
                        xml.value("Size", part.size);
                        checksums::show_elements(&shown(&part.checksums, None), xml);
                    });
                }
            });
        }
        if wanted.storage_class {
            xml.text("StorageClass", STANDARD);
        }
        if wanted.size {
            xml.value("ObjectSize", info.size);
        }
    }));
    versioning::show(versioning::shown(ops, call, info.version)?, false, response.headers_mut());
    answer::set(&mut response, LAST_MODIFIED, date::http(info.modified_ms).to_string());
    Ok(response)
}
