//! Adapters of ListObjects, ListObjectsV2 and ListMultipartUploads.

use std::borrow::Cow;

use gabion_store::Owner;
use gabion_types::BucketName;
use http::Response;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
use s3s::Body;

use super::answer;
use super::call::Call;
use super::date;
use super::query::Query;
use super::xml::Xml;
use crate::credentials::AccountName;
use crate::error::{S3Code, S3Error};
use crate::ops::list_objects::{self, From};
use crate::ops::{Ops, list_uploads};

/// AWS leaves slashes as they are. A space is `%20` here and `+` there: all clients read both.
const URL: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'*');
/// The storage class of all objects.
pub(super) const STANDARD: &str = "STANDARD";

/// How keys are written.
#[derive(Clone, Copy)]
pub(super) struct Names {
    encoded: bool,
}

impl Names {
    pub(super) fn of(query: &Query) -> Result<Self, S3Error> {
        match query.get("encoding-type")? {
            None => Ok(Self { encoded: false }),
            Some("url") => Ok(Self { encoded: true }),
            Some(other) => {
                Err(S3Error::argument("encoding-type", other, "Invalid Encoding Method specified in Request"))
            }
        }
    }

    pub(super) fn write(self, xml: &mut Xml, element: &str, name: &str) {
        if self.encoded {
            xml.value(element, url_encoded(name));
        } else {
            xml.text(element, name);
        }
    }

    pub(super) fn declare(self, xml: &mut Xml) {
        if self.encoded {
            xml.text("EncodingType", "url");
        }
    }

    pub(super) fn prefixes(self, xml: &mut Xml, prefixes: &[String]) {
        for prefix in prefixes {
            xml.element("CommonPrefixes", |xml| self.write(xml, "Prefix", prefix));
        }
    }
}

/// A name as it stands in a URL.
pub(crate) fn url_encoded(name: &str) -> PercentEncode<'_> {
    utf8_percent_encode(name, URL)
}

pub(super) fn owner(xml: &mut Xml, element: &str, owner: &Owner) {
    xml.element(element, |xml| {
        xml.text("ID", &owner.id);
        xml.text("DisplayName", &owner.display_name);
    });
}

/// Who owns the objects of a bucket, as listings name them.
pub(super) struct Owners<'a> {
    ops: &'a Ops,
    bucket: Owner,
    /// Whether objects have owners of their own.
    by_writer: bool,
}

impl<'a> Owners<'a> {
    /// # Errors
    /// `NoSuchBucket`.
    pub(super) fn of(ops: &'a Ops, bucket: &BucketName) -> Result<Self, S3Error> {
        let settings = ops.settings(bucket)?;
        let access = &settings.access;
        let owner = access.owner.as_deref().ok_or(S3Code::NoSuchBucket)?;
        let by_writer = access.ownership.ownership(ops.object_ownership).has_acls();
        Ok(Self { ops, bucket: account(ops, owner), by_writer })
    }

    /// By the canonical id that is kept with an object, if it is not the bucket's owner's.
    pub(super) fn named(&self, id: Option<&str>) -> Cow<'_, Owner> {
        match id.filter(|_| self.by_writer) {
            None => Cow::Borrowed(&self.bucket),
            Some(id) => Cow::Owned(account(self.ops, id)),
        }
    }
}

/// An account, by its canonical id; one that is no more has no name.
fn account(ops: &Ops, id: &str) -> Owner {
    let account = ops.credentials.account(AccountName::CanonicalId(id));
    let display_name = account.map(|account| account.display_name.clone()).unwrap_or_default();
    Owner { id: id.to_owned(), display_name }
}

/// ListObjects.
pub(super) async fn objects(ops: &Ops, call: &Call) -> Result<Response<Body>, S3Error> {
    let query = call.query();
    let names = Names::of(query)?;
    let marker = query.text("marker")?;
    let page = list_objects::run(ops, request(call, From::Marker(marker.to_owned()))?).await?;
    let delimiter = query.text("delimiter")?;
    let owners = Owners::of(ops, &call.bucket()?)?;
    Ok(answer::document(Xml::document("ListBucketResult", |xml| {
        xml.text("Name", call.bucket().map(|name| name.to_string()).unwrap_or_default());
        names.write(xml, "Prefix", query.text("prefix").unwrap_or_default());
        names.write(xml, "Marker", marker);
        // AWS gives it with a delimiter only: else it is the last key.
        if let (Some(next), true) = (&page.listed.next, page.listed.truncated && !delimiter.is_empty()) {
            names.write(xml, "NextMarker", next);
        }
        xml.value("MaxKeys", page.max);
        if !delimiter.is_empty() {
            names.write(xml, "Delimiter", delimiter);
        }
        xml.value("IsTruncated", page.listed.truncated);
        names.declare(xml);
        contents(xml, names, &page, Some(&owners));
    })))
}

/// ListObjectsV2.
pub(super) async fn objects_v2(ops: &Ops, call: &Call) -> Result<Response<Body>, S3Error> {
    let query = call.query();
    let names = Names::of(query)?;
    let token = query.get("continuation-token")?;
    let start_after = query.text("start-after")?;
    let from = match token {
        Some(token) if !token.is_empty() => From::Token(token.to_owned()),
        // An empty one is where every listing begins.
        _ => From::StartAfter(start_after.to_owned()),
    };
    let fetch_owner = query.text("fetch-owner")?.eq_ignore_ascii_case("true");
    let page = list_objects::run(ops, request(call, from)?).await?;
    let delimiter = query.text("delimiter")?;
    let owners = Owners::of(ops, &call.bucket()?)?;
    Ok(answer::document(Xml::document("ListBucketResult", |xml| {
        xml.text("Name", call.bucket().map(|name| name.to_string()).unwrap_or_default());
        names.write(xml, "Prefix", query.text("prefix").unwrap_or_default());
        xml.optional("ContinuationToken", token);
        xml.optional("NextContinuationToken", page.next_token.as_deref());
        // Where a token counts this does not.
        if !start_after.is_empty() && token.is_none_or(str::is_empty) {
            names.write(xml, "StartAfter", start_after);
        }
        xml.value("KeyCount", page.listed.entries.len() + page.listed.common_prefixes.len());
        xml.value("MaxKeys", page.max);
        if !delimiter.is_empty() {
            names.write(xml, "Delimiter", delimiter);
        }
        xml.value("IsTruncated", page.listed.truncated);
        names.declare(xml);
        contents(xml, names, &page, fetch_owner.then_some(&owners));
    })))
}

fn request(call: &Call, from: From) -> Result<list_objects::Request, S3Error> {
    let query = call.query();
    Ok(list_objects::Request {
        bucket: call.bucket()?,
        prefix: query.text("prefix")?.to_owned(),
        delimiter: query.get("delimiter")?.map(str::to_owned),
        from,
        max: query.count("max-keys")?,
    })
}

fn contents(xml: &mut Xml, names: Names, page: &list_objects::Response, owners: Option<&Owners<'_>>) {
    for entry in &page.listed.entries {
        xml.element("Contents", |xml| {
            names.write(xml, "Key", &entry.key);
            xml.value("LastModified", date::iso(entry.modified_ms));
            xml.display("ETag", format_args!("\"{}\"", entry.etag));
            for (algorithm, _) in &entry.checksums {
                xml.text("ChecksumAlgorithm", algorithm.as_str());
            }
            xml.optional("ChecksumType", entry.checksums.first().map(|(_, kind)| kind.name()));
            xml.value("Size", entry.size);
            if let Some(owners) = owners {
                owner(xml, "Owner", &owners.named(entry.owner.as_deref()));
            }
            xml.text("StorageClass", entry.storage_class.as_deref().unwrap_or(STANDARD));
        });
    }
    names.prefixes(xml, &page.listed.common_prefixes);
}

/// ListMultipartUploads.
pub(super) async fn uploads(ops: &Ops, call: &Call) -> Result<Response<Body>, S3Error> {
    let query = call.query();
    let names = Names::of(query)?;
    let owned = |name| Ok::<_, S3Error>(query.get(name)?.map(str::to_owned));
    let request = list_uploads::Request {
        bucket: call.bucket()?,
        prefix: query.text("prefix")?.to_owned(),
        delimiter: owned("delimiter")?,
        key_marker: owned("key-marker")?,
        upload_id_marker: owned("upload-id-marker")?,
        max: query.count("max-uploads")?,
    };
    let asked = request.clone();
    let page = list_uploads::run(ops, request).await?;
    let owners = Owners::of(ops, &asked.bucket)?;
    Ok(answer::document(Xml::document("ListMultipartUploadsResult", |xml| {
        xml.text("Bucket", asked.bucket.as_str());
        names.write(xml, "KeyMarker", asked.key_marker.as_deref().unwrap_or_default());
        // Without a key it does not count.
        let has_key = asked.key_marker.as_deref().is_some_and(|key| !key.is_empty());
        xml.text("UploadIdMarker", asked.upload_id_marker.as_deref().filter(|_| has_key).unwrap_or_default());
        // AWS gives the last upload of a page also where no page follows.
        let last = page.listed.uploads.last();
        let (key, upload) = match page.listed.truncated {
            true => (page.listed.next_key_marker.as_deref(), page.listed.next_upload_id_marker),
            false => (last.map(|upload| upload.key.as_str()), last.map(|upload| upload.upload)),
        };
        names.write(xml, "NextKeyMarker", key.unwrap_or_default());
        xml.text("NextUploadIdMarker", upload.map(|id| id.to_string()).unwrap_or_default());
        names.write(xml, "Prefix", &asked.prefix);
        if let Some(delimiter) = asked.delimiter.as_deref().filter(|delimiter| !delimiter.is_empty()) {
            names.write(xml, "Delimiter", delimiter);
        }
        xml.value("MaxUploads", page.max);
        xml.value("IsTruncated", page.listed.truncated);
        names.declare(xml);
        for upload in &page.listed.uploads {
            xml.element("Upload", |xml| {
                names.write(xml, "Key", &upload.key);
                xml.value("UploadId", upload.upload);
                let of = owners.named(upload.owner.as_deref());
                owner(xml, "Initiator", &of);
                owner(xml, "Owner", &of);
                xml.text("StorageClass", upload.storage_class.as_deref().unwrap_or(STANDARD));
                xml.value("Initiated", date::iso(upload.created_ms));
                if let Some((algorithm, kind)) = upload.checksum {
                    xml.text("ChecksumAlgorithm", algorithm.as_str());
                    xml.text("ChecksumType", kind.name());
                }
            });
        }
        names.prefixes(xml, &page.listed.common_prefixes);
    })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_written_plain_or_encoded() {
        let written = |encoded| {
            let names = Names { encoded };
            let document = Xml::plain("R", |xml| names.write(xml, "Key", "a/b c+d&\u{1}ü"));
            document.split("<Key>").nth(1).unwrap().split("</Key>").next().unwrap().to_owned()
        };
        assert_eq!(written(false), "a/b c+d&amp;&#x1;ü");
        assert_eq!(written(true), "a/b%20c%2Bd%26%01%C3%BC");
    }

    #[test]
    fn the_only_encoding_is_url() {
        assert!(Names::of(&Query::parse("").unwrap()).is_ok_and(|names| !names.encoded));
        assert!(Names::of(&Query::parse("encoding-type=url").unwrap()).is_ok_and(|names| names.encoded));
        for other in ["encoding-type=base64", "encoding-type=", "encoding-type"] {
            assert!(Names::of(&Query::parse(other).unwrap()).is_err(), "{other}");
        }
    }
}
