//! Adapters of CopyObject and UploadPartCopy.

use gabion_store::{
    Attributes, ByteRange, CopyMetadata, CopyObject, CopySource, Encrypt, RangeRequest, UploadPartCopy, UploadRef,
    VersionId, Versioning,
};
use gabion_types::{BucketName, ObjectKey};
use http::{HeaderName, Response};
use percent_encoding::percent_decode_str;
use s3s::Body;

use super::acl::{self, ObjectAccess};
use super::answer;
use super::call::Call;
use super::query::is_encoded;
use super::xml::Xml;
use super::{
    attributes, checksums, conditions, date, encryption, lifecycle, notifications, object_lock, quota, tags,
    versioning, website,
};
use crate::error::S3Error;
use crate::notifications::EventName;
use crate::ops::checksums::{ShownChecksum, shown};
use crate::ops::{Ops, copy_object, part_number, upload_part};

const SOURCE_VERSION_ID: HeaderName = HeaderName::from_static("x-amz-copy-source-version-id");

pub(super) async fn copy(ops: &Ops, call: &Call) -> Result<Response<Body>, S3Error> {
    let metadata = match call.header("x-amz-metadata-directive")? {
        None | Some("COPY") => {
            attributes::check_user(call)?;
            let mut own = Attributes { website_redirect: website::redirect_location(call)?, ..Attributes::default() };
            object_lock::of_put(ops, call, &mut own).await?;
            CopyMetadata::Copy { own: Box::new(own) }
        }
        Some("REPLACE") => {
            let mut attributes = attributes::read(call)?;
            object_lock::of_put(ops, call, &mut attributes).await?;
            CopyMetadata::Replace(Box::new(attributes))
        }
        Some(other) => {
            return Err(S3Error::argument("x-amz-metadata-directive", other, "Unknown metadata directive."));
        }
    };
    let ObjectAccess { owner, acl } = acl::of_new_object(ops, call)?;
    let source = source(ops, call)?;
    let is_version_named = source.version.is_some();
    let (source, from) = named(ops, source).await?;
    let request = CopyObject {
        source,
        is_version_named,
        bucket: call.bucket()?,
        key: call.key()?,
        metadata,
        tags: tags::of_copy(call)?,
        owner,
        creator: quota::creator(call.caller()),
        acl,
        conditions: conditions::write(call)?,
        checksum_algorithm: checksums::algorithm(call, "x-amz-checksum-algorithm")?,
    };
    let source = encryption::of_source(call)?;
    let (encrypt, md5) = encryption::decide(ops, call, &request.bucket)?;
    let result = copy_object::run(ops, request, encryption::copy_keys(call, source, encrypt)?).await?;
    if call.watch.is_some() {
        let told = notifications::created(EventName::CreatedCopy, call.key()?.as_str(), &result);
        notifications::tell(ops, call, vec![told]).await?;
    }
    let checksums = shown(&result.checksums, result.parts_count);
    let mut response = document("CopyObjectResult", result.modified_ms, &result.etag, &checksums);
    // A put to a bucket that keeps versions no more does not tell of the null version, a copy does.
    let is_suspended = call.settings(ops)?.versioning == Versioning::Suspended;
    let version = result.version.or(is_suspended.then_some(VersionId::Null));
    versioning::show(version, false, response.headers_mut());
    show_source(from, &mut response);
    if let Some(encryption) = &result.encryption {
        encryption::show(encryption, md5, true, response.headers_mut());
    }
    lifecycle::show_expiration_of_new(ops, call, result.seq, response.headers_mut()).await?;
    Ok(response)
}

/// Whether an UploadPartCopy makes sense: AWS says so before it looks whether there is a source.
///
/// # Errors
/// `InvalidArgument`.
pub(super) fn check_part(call: &Call) -> Result<(), S3Error> {
    part_number(call.query().text("partNumber")?)?;
    range(call).map(drop)
}

/// `x-amz-copy-source-range`.
fn range(call: &Call) -> Result<Option<ByteRange>, S3Error> {
    let Some(text) = call.header("x-amz-copy-source-range")? else { return Ok(None) };
    let malformed = || {
        let message = "The x-amz-copy-source-range value must be of the form bytes=first-last where first and last \
            are the zero-based offsets of the first and last bytes to copy";
        S3Error::argument("x-amz-copy-source-range", text, message)
    };
    RangeRequest::parse_copy_source(text).ok_or_else(malformed).map(Some)
}

pub(super) async fn copy_part(ops: &Ops, call: &Call) -> Result<Response<Body>, S3Error> {
    let range = range(call)?;
    let (source, from) = named(ops, source(ops, call)?).await?;
    let request = UploadPartCopy {
        target: UploadRef { bucket: call.bucket()?, key: call.key()?, upload: call.upload()? },
        part_number: part_number(call.query().text("partNumber")?)?,
        source,
        range,
    };
    let (source, customer) = (encryption::of_source(call)?, encryption::of_part(call)?);
    let md5 = customer.as_ref().map(encryption::Customer::md5);
    let target = customer.map(|customer| Encrypt::with_customer(customer.key));
    let result = upload_part::copy(ops, request, encryption::copy_keys(call, source, target)?).await?;
    let mut response = document("CopyPartResult", result.modified_ms, &result.etag, &shown(&result.checksums, None));
    show_source(from, &mut response);
    if let Some(encryption) = &result.encryption {
        encryption::show(encryption, md5, false, response.headers_mut());
    }
    Ok(response)
}

fn document(root: &str, modified_ms: u64, etag: &gabion_store::Etag, checksums: &[ShownChecksum]) -> Response<Body> {
    answer::document(Xml::document(root, |xml| {
        xml.value("LastModified", date::iso(modified_ms));
        xml.text("ETag", format!("\"{etag}\""));
        checksums::show_elements(checksums, xml);
        if let (Some(first), "CopyObjectResult") = (checksums.first(), root) {
            xml.text("ChecksumType", first.kind.name());
        }
    }))
}

/// The source, and which version of it the answer tells. Where versions are kept, it is one of them from here on, whatever becomes current meanwhile.
async fn named(ops: &Ops, mut source: CopySource) -> Result<(CopySource, Option<VersionId>), S3Error> {
    if ops.settings(&source.bucket)?.versioning == Versioning::Never {
        let version = source.version.filter(|version| *version != VersionId::Null);
        return Ok((source, version));
    }
    if source.version.is_none()
        && let Ok(info) = ops.store.object_info(&source.bucket, &source.key, None).await
    {
        source.version = Some(info.version);
    }
    let version = source.version;
    Ok((source, version))
}

fn show_source(version: Option<VersionId>, response: &mut Response<Body>) {
    if let Some(version) = version.filter(|version| *version != VersionId::Null) {
        answer::set(response, SOURCE_VERSION_ID, version.to_string());
    }
}

/// What a copy reads.
///
/// # Errors
/// `InvalidArgument` and others when the header names nothing.
fn source(ops: &Ops, call: &Call) -> Result<CopySource, S3Error> {
    let (bucket, key, version) = parse_source(call.header("x-amz-copy-source")?.unwrap_or_default())?;
    Ok(CopySource { bucket, key, version, conditions: conditions::read(ops, call, "x-amz-copy-source-") })
}

/// What is copied.
#[derive(Clone, Debug)]
pub(crate) struct SourceName {
    pub(crate) bucket: BucketName,
    pub(crate) key: ObjectKey,
    pub(crate) version: Option<VersionId>,
}

/// What a request copies.
///
/// # Errors
/// See [`parse_source`].
pub(crate) fn source_name(call: &Call) -> Result<SourceName, S3Error> {
    let (bucket, key, version) = parse_source(call.header("x-amz-copy-source")?.unwrap_or_default())?;
    Ok(SourceName { bucket, key, version })
}

/// Reads `[/]bucket/key[?versionId=…]`, encoded as in a URL.
///
/// # Errors
/// `InvalidArgument`, as AWS says of each: how it is encoded, the bucket, the key, the version.
pub(super) fn parse_source(text: &str) -> Result<(BucketName, ObjectKey, Option<VersionId>), S3Error> {
    const HEADER: &str = "x-amz-copy-source";
    let invalid = |message: &'static str| S3Error::argument(HEADER, text, message);
    // AWS shows no value here but the header's own name.
    let no_key = || S3Error::argument(HEADER, HEADER, "Invalid copy source object key");
    let (path, version) = match text.split_once("?versionId=") {
        Some((path, version)) => (path, Some(version)),
        None => (text, None),
    };
    let not_a_version = |id| S3Error::argument("versionId", id, "Invalid version id specified");
    let version = version.map(|id| id.parse().map_err(|_| not_a_version(id))).transpose()?;
    if path.starts_with("arn:") {
        return Err(S3Error::unsupported("x-amz-copy-source"));
    }
    // A plus sign is a space, as in a query, on AWS: clients that encode for one send it (s5cmd), and others write `%2B`.
    let path = path.replace('+', " ");
    let path = is_encoded(&path).then(|| percent_decode_str(&path).decode_utf8().ok()).flatten();
    let path = path.ok_or_else(|| invalid("Invalid copy source encoding"))?;
    let path = path.strip_prefix('/').unwrap_or(&path);
    let (bucket, key) = path.split_once('/').ok_or_else(no_key)?;
    let bucket = BucketName::new(bucket).map_err(|_| invalid("Invalid copy source bucket name"))?;
    let key = ObjectKey::new(key).map_err(|_| no_key())?;
    Ok((bucket, key, version))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::S3Code;

    #[test]
    fn sources_are_bucket_and_key() {
        let table = [
            ("bkt/k", Ok("bkt k")),
            ("/bkt/k", Ok("bkt k")),
            ("bkt/a/b%20c%2Bd+e", Ok("bkt a/b c+d e")),
            ("%2Fbkt%2Fa%2Fb", Ok("bkt a/b")),
            ("/bkt//k", Ok("bkt /k")),
            ("bkt/k?versionId=null", Ok("bkt k")),
            ("bkt/k%3FversionId=1", Ok("bkt k?versionId=1")),
            ("bkt/k?versionId=1", Err(S3Code::InvalidArgument)),
            ("arn:aws:s3:us-east-1:1:accesspoint/a/object/k", Err(S3Code::NotImplemented)),
            ("bkt", Err(S3Code::InvalidArgument)),
            ("bkt/", Err(S3Code::InvalidArgument)),
            ("", Err(S3Code::InvalidArgument)),
            ("bkt/%ff", Err(S3Code::InvalidArgument)),
            ("bkt/%ZZ", Err(S3Code::InvalidArgument)),
            ("bkt/k%", Err(S3Code::InvalidArgument)),
            ("bkt/k%1", Err(S3Code::InvalidArgument)),
            ("B/k", Err(S3Code::InvalidArgument)),
            ("../k", Err(S3Code::InvalidArgument)),
            ("192.168.1.1/k", Err(S3Code::InvalidArgument)),
        ];
        for (text, expected) in table {
            let got = parse_source(text).map(|(bucket, key, _)| format!("{bucket} {key}")).map_err(|error| error.code);
            assert_eq!(got, expected.map(str::to_owned), "{text}");
        }
    }
}
