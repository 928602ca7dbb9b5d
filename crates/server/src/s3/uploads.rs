//! Adapters of multipart uploads.

use gabion_store::{
    Checksum, ChecksumAlgorithm, CompleteUpload, CompletedPart, CreateUpload, DigestKind, Encrypt, StoreError,
    UploadPart, UploadRef,
};
use gabion_types::limits::PART_NUMBER_MAX;
use http::header::ETAG;
use http::{HeaderName, Response, StatusCode};
use s3s::{Body, dto};

use super::answer;
use super::body::{self, DocumentDigests};
use super::call::Call;
use super::listing::{Owners, STANDARD, owner, url_encoded};
use super::xml::{Xml, parse_complete};
use super::{acl, checksums, conditions, date, encryption, lifecycle, notifications, object_lock, versioning};
use crate::error::{S3Code, S3Error};
use crate::notifications::EventName;
use crate::ops::checksums::shown;
use crate::ops::{Ops, list_parts, part_number, upload, upload_part};

const CHECKSUM_ALGORITHM: HeaderName = HeaderName::from_static("x-amz-checksum-algorithm");
const CHECKSUM_TYPE: HeaderName = HeaderName::from_static("x-amz-checksum-type");
const OBJECT_SIZE: &str = "x-amz-mp-object-size";
const IF_INITIATED: &str = "x-amz-if-match-initiated-time";

fn target(call: &Call) -> Result<UploadRef, S3Error> {
    Ok(UploadRef { bucket: call.bucket()?, key: call.key()?, upload: call.upload()? })
}

pub(super) async fn create(ops: &Ops, call: &Call) -> Result<Response<Body>, S3Error> {
    let algorithm = checksums::algorithm(call, "x-amz-checksum-algorithm")?;
    let checksum = match (algorithm, checksums::kind(call)?) {
        (Some(algorithm), kind) => Some((algorithm, kind)),
        (None, None) => None,
        (None, Some(_)) => {
            let message = "The x-amz-checksum-type header can only be used with the x-amz-checksum-algorithm header.";
            return Err(S3Error::request(message));
        }
    };
    let (bucket, key) = (call.bucket()?, call.key()?);
    let mut attributes = acl::attributes_of_new(ops, call)?;
    object_lock::of_upload(ops, call, &mut attributes).await?;
    let request = CreateUpload { bucket: bucket.clone(), key: key.clone(), attributes, checksum };
    let (encrypt, md5) = encryption::decide(ops, call, &bucket)?;
    let created = upload::create(ops, request, encrypt.as_ref()).await?;
    let mut response = answer::document(Xml::document("InitiateMultipartUploadResult", |xml| {
        xml.text("Bucket", bucket.as_str());
        xml.text("Key", key.as_str());
        xml.value("UploadId", created.upload);
    }));
    if let Some(encryption) = &created.encryption {
        encryption::show(encryption, md5, true, response.headers_mut());
    }
    // It was begun now: what the store wrote down is later by less than a second.
    lifecycle::show_abortion(ops, call, ops.clock.now_ms(), response.headers_mut())?;
    if let Some((algorithm, kind)) = created.checksum {
        answer::set(&mut response, CHECKSUM_ALGORITHM, algorithm.as_str());
        answer::set(&mut response, CHECKSUM_TYPE, kind.name());
    }
    Ok(response)
}

pub(super) async fn part(ops: &Ops, call: &mut Call) -> Result<Response<Body>, S3Error> {
    let part = UploadPart { target: target(call)?, part_number: part_number(call.query().text("partNumber")?)? };
    let customer = encryption::of_part(call)?;
    let md5 = customer.as_ref().map(encryption::Customer::md5);
    let mut body = body::object_body(call)?;
    body.encrypt = customer.map(|customer| Box::new(Encrypt::with_customer(customer.key)));
    let result = upload_part::run(ops, upload_part::Request { part, body }).await?;
    let mut response = answer::empty(StatusCode::OK);
    answer::set(&mut response, ETAG, format!("\"{}\"", result.etag));
    if let Some(encryption) = &result.encryption {
        encryption::show(encryption, md5, false, response.headers_mut());
    }
    checksums::show_headers(&shown(&result.checksums, None), response.headers_mut());
    // The kind is the object's, not the part's.
    response.headers_mut().remove(CHECKSUM_TYPE);
    Ok(response)
}

pub(super) async fn complete(ops: &Ops, call: &mut Call) -> Result<Response<Body>, S3Error> {
    let given = checksums::value(call)?;
    let whole = given.map(|(algorithm, text)| checksums::parse_whole(algorithm, text)).transpose()?;
    let (checksum, parts_said) = (whole.map(|(checksum, _)| checksum), whole.and_then(|(_, parts)| parts));
    let expected_size = call.header(OBJECT_SIZE)?.map(object_size).transpose()?;
    let mut request = CompleteUpload {
        target: target(call)?,
        parts: Vec::new(),
        conditions: conditions::write(call)?,
        expected_size,
        checksum,
        checksum_kind: checksums::kind(call)?,
        default_retention: None,
    };
    let document = body::document(ops, call, DocumentDigests::Md5Only).await?;
    let parts = parse_complete(&document)?.parts.unwrap_or_default();
    if parts.is_empty() || parts.len() > usize::from(PART_NUMBER_MAX) {
        return Err(S3Code::MalformedXML.into());
    }
    request.parts = parts.iter().map(completed_part).collect::<Result<_, _>>()?;
    if let Some(checksum) = checksum.filter(|_| parts_said.is_some_and(|said| said != request.parts.len())) {
        return Err(StoreError::BadDigest(DigestKind::Checksum(checksum.algorithm())).into());
    }
    let UploadRef { bucket, key, .. } = request.target.clone();
    let customer = encryption::of_part(call)?;
    let md5 = customer.as_ref().map(encryption::Customer::md5);
    request.default_retention = object_lock::by_default(ops, &bucket)?;
    let result = upload::complete(ops, request, customer.map(|customer| customer.key)).await?;
    if call.watch.is_some() {
        let told = notifications::created(EventName::CreatedMultipart, key.as_str(), &result);
        notifications::tell(ops, call, vec![told]).await?;
    }
    let shown = shown(&result.checksums, result.parts_count);
    let mut response = answer::document(Xml::document("CompleteMultipartUploadResult", |xml| {
        xml.text("Location", location(call));
        xml.text("Bucket", bucket.as_str());
        xml.text("Key", key.as_str());
        xml.text("ETag", format!("\"{}\"", result.etag));
        checksums::show_elements(&shown, xml);
        xml.optional("ChecksumType", shown.first().map(|checksum| checksum.kind.name()));
    }));
    versioning::show(result.version, false, response.headers_mut());
    if let Some(encryption) = &result.encryption {
        encryption::show(encryption, md5, false, response.headers_mut());
    }
    lifecycle::show_expiration_of_new(ops, call, result.seq, response.headers_mut()).await?;
    Ok(response)
}

/// Where the object is, as the client addressed it.
pub(super) fn location(call: &Call) -> String {
    let bucket = call.routed.bucket.as_ref().map(|bucket| bucket.as_str()).filter(|_| !call.routed.virtual_host);
    let key = call.routed.key.as_ref().map(|key| key.as_str()).unwrap_or_default();
    let bucket = bucket.map(|bucket| format!("/{bucket}")).unwrap_or_default();
    let host = call.routed.host.to_str().unwrap_or_default();
    format!("{}://{host}{bucket}/{}", call.routed.scheme, url_encoded(key))
}

/// `x-amz-mp-object-size`, in bytes.
fn object_size(text: &str) -> Result<u64, S3Error> {
    text.parse().map_err(|_| match text.parse::<i64>() {
        Ok(negative) => S3Error::request(format!("Value for {OBJECT_SIZE} header is less than zero: '{negative}'")),
        Err(_) => S3Error::request(format!("Value for {OBJECT_SIZE} header is invalid: '{}'", text.escape_debug())),
    })
}

fn completed_part(part: &dto::CompletedPart) -> Result<CompletedPart, S3Error> {
    let (Some(number), Some(etag)) = (part.part_number, &part.e_tag) else {
        return Err(S3Code::MalformedXML.into());
    };
    if number < 1 {
        return Err(S3Error::argument("PartNumber", &number.to_string(), "PartNumber must be >= 1"));
    }
    let part_number = part_number(&number.to_string())?;
    let given = [
        (ChecksumAlgorithm::Crc32, &part.checksum_crc32),
        (ChecksumAlgorithm::Crc32c, &part.checksum_crc32c),
        (ChecksumAlgorithm::Crc64Nvme, &part.checksum_crc64nvme),
        (ChecksumAlgorithm::Sha1, &part.checksum_sha1),
        (ChecksumAlgorithm::Sha256, &part.checksum_sha256),
        (ChecksumAlgorithm::Sha512, &part.checksum_sha512),
        (ChecksumAlgorithm::Md5, &part.checksum_md5),
        (ChecksumAlgorithm::XxHash64, &part.checksum_xxhash64),
        (ChecksumAlgorithm::XxHash3, &part.checksum_xxhash3),
        (ChecksumAlgorithm::XxHash128, &part.checksum_xxhash128),
    ];
    let given: Vec<_> = given.iter().filter_map(|(algorithm, text)| Some((*algorithm, text.as_deref()?))).collect();
    let checksums = match given[..] {
        [] => Vec::new(),
        [(algorithm, text)] => vec![Checksum::from_base64(algorithm, text).map_err(|_| no_one_checksum(&given))?],
        _ => return Err(no_one_checksum(&given)),
    };
    Ok(CompletedPart { part_number, etag: etag.value().to_owned(), checksums })
}

/// Of a part that is named with what is no checksum, or with several.
fn no_one_checksum(given: &[(ChecksumAlgorithm, &str)]) -> S3Error {
    let value = match given {
        [(_, text)] => (*text).to_owned(),
        all => all.iter().map(|(algorithm, text)| format!("{algorithm}:{text};")).collect(),
    };
    S3Error::argument("Checksum", &value, "Invalid Base64 or multiple checksums present in request")
}

/// AbortMultipartUpload. As on AWS, where directory buckets alone have it, an upload is aborted only if it was begun when a condition says,
/// and one that is not there meets it.
pub(super) async fn abort(ops: &Ops, call: &Call) -> Result<Response<Body>, S3Error> {
    let Some(text) = call.header(IF_INITIATED)? else {
        upload::abort(ops, target(call)?).await?;
        return Ok(answer::empty(StatusCode::NO_CONTENT));
    };
    let initiated_ms =
        date::parse_http(text).ok_or_else(|| S3Error::argument(IF_INITIATED, text, "The time is no date of HTTP."))?;
    match upload::abort_if_initiated(ops, target(call)?, initiated_ms).await {
        Ok(()) => {}
        Err(error) if error.code == S3Code::NoSuchUpload => {}
        Err(error) => return Err(error),
    }
    Ok(answer::empty(StatusCode::NO_CONTENT))
}

pub(super) async fn parts(ops: &Ops, call: &Call) -> Result<Response<Body>, S3Error> {
    let target = target(call)?;
    let request = list_parts::Request {
        target: target.clone(),
        after: call.query().count("part-number-marker")?.unwrap_or(0),
        max: call.query().count("max-parts")?,
    };
    let after = request.after;
    let page = list_parts::run(ops, request).await?;
    let owners = Owners::of(ops, &target.bucket)?;
    let of = &*owners.named(page.listed.upload.owner.as_deref());
    let mut response = answer::document(Xml::document("ListPartsResult", |xml| {
        xml.text("Bucket", target.bucket.as_str());
        xml.text("Key", target.key.as_str());
        xml.value("UploadId", target.upload);
        owner(xml, "Initiator", of);
        owner(xml, "Owner", of);
        xml.text("StorageClass", page.listed.upload.storage_class.as_deref().unwrap_or(STANDARD));
        xml.value("PartNumberMarker", after);
        let last = page.listed.parts.last().map_or(0, |part| part.part_number);
        xml.value("NextPartNumberMarker", page.listed.next.unwrap_or(last));
        xml.value("MaxParts", page.max);
        xml.value("IsTruncated", page.listed.truncated);
        if let Some((algorithm, kind)) = page.listed.upload.checksum {
            xml.text("ChecksumAlgorithm", algorithm.as_str());
            xml.text("ChecksumType", kind.name());
        }
        for part in &page.listed.parts {
            xml.element("Part", |xml| {
                xml.value("PartNumber", part.part_number);
                xml.value("LastModified", date::iso(part.modified_ms));
                xml.text("ETag", format!("\"{}\"", part.etag));
                if page.listed.upload.checksum.is_some() {
                    checksums::show_elements(&shown(&part.checksums, None), xml);
                }
                xml.value("Size", part.size);
            });
        }
    }));
    lifecycle::show_abortion(ops, call, page.listed.upload.created_ms, response.headers_mut())?;
    Ok(response)
}
