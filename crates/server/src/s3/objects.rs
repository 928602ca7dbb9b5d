//! Adapters of the operations on objects: put, get, head, delete.

use futures::future::{BoxFuture, Either};
use gabion_store::{
    AppendObject, Attributes, DeleteObject, Etag, EtagMatch, GetObject, ObjectBody, ObjectRead, Opening, PutObject,
    PutResult, RangeRequest, VersionId,
};
use gabion_types::ObjectKey;
use http::header::{ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, ETAG, LAST_MODIFIED};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use s3s::Body;
use time::OffsetDateTime;

use super::Operation;
use super::acl;
use super::answer;
use super::body::{self, DocumentDigests};
use super::call::Call;
use super::logging::{Also, AlsoDone};
use super::xml::{Xml, parse_delete};
use super::{
    attributes, checksums, conditions, date, encryption, lifecycle, notifications, object_lock, tags, versioning,
};
use crate::auth;
use crate::error::{S3Code, S3Error, VERSION_ID};
use crate::notifications::EventName;
use crate::ops::checksums::shown;
use crate::ops::{Ops, delete_object, get_object, part_number, put_object};

const PARTS_COUNT: HeaderName = HeaderName::from_static("x-amz-mp-parts-count");
pub(super) const WRITE_OFFSET: &str = "x-amz-write-offset-bytes";
const OBJECT_SIZE: HeaderName = HeaderName::from_static("x-amz-object-size");

pub(super) async fn put(ops: &Ops, call: &mut Call) -> Result<Response<Body>, S3Error> {
    let put = asked_put(ops, call)?;
    let offset_bytes = write_offset(call)?;
    let body = body::object_body(call)?;
    store(ops, call, put, offset_bytes, body).await
}

/// Where the body is to be appended.
fn write_offset(call: &Call) -> Result<Option<u64>, S3Error> {
    let Some(text) = call.header(WRITE_OFFSET)? else { return Ok(None) };
    let invalid = |_| S3Error::argument(WRITE_OFFSET, text, "The write offset is not a number of bytes.");
    text.parse().map(Some).map_err(invalid)
}

/// PutObject, of which the body is known already.
pub(super) async fn put_body(ops: &Ops, call: &mut Call, body: ObjectBody) -> Result<Response<Body>, S3Error> {
    let put = asked_put(ops, call)?;
    store(ops, call, put, None, body).await
}

fn asked_put(ops: &Ops, call: &Call) -> Result<PutObject, S3Error> {
    Ok(PutObject {
        bucket: call.bucket()?,
        key: call.key()?,
        attributes: acl::attributes_of_new(ops, call)?,
        conditions: conditions::write(call)?,
    })
}

fn store(
    ops: &Ops,
    call: &mut Call,
    mut put: PutObject,
    offset_bytes: Option<u64>,
    mut body: ObjectBody,
) -> impl Future<Output = Result<Response<Body>, S3Error>> + Send {
    let decided = encryption::decide(ops, call, &put.bucket);
    async move {
        let (encrypt, md5) = decided?;
        body.encrypt = encrypt.map(Box::new);
        object_lock::of_put(ops, call, &mut put.attributes).await?;
        // The tags of what is appended to are not those of the request.
        let is_told = offset_bytes.is_none() && lifecycle::has_rules(ops, call)?;
        let ending = is_told.then(|| (put.key.clone(), put.attributes.tags.clone()));
        put_object::check_length(&body)?;
        let result = match offset_bytes {
            None => put_object::run(ops, put_object::Request { put, body }).await?,
            Some(offset_bytes) => put_object::append(ops, AppendObject { object: put, offset_bytes }, body).await?,
        };
        if call.watch.is_some() {
            let event = if call.is_form() { EventName::CreatedPost } else { EventName::CreatedPut };
            let told = notifications::created(event, call.key()?.as_str(), &result);
            Box::pin(notifications::tell(ops, call, vec![told])).await?;
        }
        let mut response = stored(&result, call.take_headers());
        versioning::show(result.version, false, response.headers_mut());
        if let Some(encryption) = &result.encryption {
            encryption::show(encryption, md5, true, response.headers_mut());
        }
        response.headers_mut().insert(OBJECT_SIZE, answer::number(result.size));
        if let Some((key, tags)) = ending {
            let object = (&key, result.size, result.modified_ms);
            lifecycle::show_expiration(ops, call, object, &tags, response.headers_mut())?;
        }
        Ok(response)
    }
}

/// Tag and checksums of what was stored.
fn stored(result: &PutResult, headers: HeaderMap) -> Response<Body> {
    let mut response = answer::reusing(headers, StatusCode::OK);
    if let Some(tag) = quoted(&result.etag) {
        response.headers_mut().insert(ETAG, tag);
    }
    checksums::show_headers(&shown(&result.checksums, None), response.headers_mut());
    response
}

/// An answer, or one that waits: for an object's bytes, or for what its reader may know of it.
pub(super) type MaybeLater<'a> = Either<Response<Body>, BoxFuture<'a, Result<Response<Body>, S3Error>>>;

/// Waits, where that is to be done.
pub(super) async fn awaited(answer: MaybeLater<'_>) -> Result<Response<Body>, S3Error> {
    match answer {
        Either::Left(response) => Ok(response),
        Either::Right(later) => later.await,
    }
}

/// GetObject. Nobody waits, and no memory is taken for it, where the bytes are in memory and all who read the object may know all that is shown.
pub(super) fn get<'a>(ops: &'a Ops, call: &'a mut Call) -> Result<MaybeLater<'a>, S3Error> {
    let (request, shown) = asked(ops, call)?;
    let checksums = request.checksums;
    match get_object::get(ops, request)? {
        Opening::Ready(read) => later(ops, call, get_object::Response::of(read, checksums), shown, with_bytes),
        Opening::Reading(reading) => Ok(Either::Right(Box::pin(async move {
            let found = get_object::Response::of(reading.await?, checksums);
            awaited(later(ops, call, found, shown, with_bytes)?).await
        }))),
    }
}

/// HeadObject.
pub(super) fn head<'a>(ops: &'a Ops, call: &'a mut Call) -> Result<MaybeLater<'a>, S3Error> {
    let (request, shown) = asked(ops, call)?;
    let found = get_object::head(ops, &request)?;
    later(ops, call, found, shown, |response, _| response)
}

/// The answer of an object that was found, which `whole` makes of its head; later, if not all of it may be shown to all.
fn later<'a>(
    ops: &'a Ops,
    call: &'a mut Call,
    found: get_object::Response,
    mut shown: Shown,
    whole: fn(Response<Body>, ObjectRead) -> Response<Body>,
) -> Result<MaybeLater<'a>, S3Error> {
    if is_said_to_few(&found.read.info.attributes) {
        return Ok(Either::Right(Box::pin(async move {
            shown.hidden = hidden(ops, call, &found.read.info.attributes).await?;
            shown_object(ops, call, found, shown).map(|(response, read)| whole(response, read))
        })));
    }
    shown_object(ops, call, found, shown).map(|(response, read)| Either::Left(whole(response, read)))
}

/// The answer with the object's bytes.
fn with_bytes(mut response: Response<Body>, read: ObjectRead) -> Response<Body> {
    if let Some(places) = read.body.places() {
        response.extensions_mut().insert(places.clone());
    }
    *response.body_mut() = body::sending(read.body, read.len);
    response
}

/// Whether there is something that not all who read an object may know of it.
fn is_said_to_few(attributes: &Attributes) -> bool {
    attributes.retention.is_some() || attributes.legal_hold.is_some() || !attributes.tags.is_empty()
}

/// The headers that the reader of an object may not see: by what it is kept, and how many tags it has. Policies look at the request, which is all there yet.
///
/// # Errors
/// Those of the index.
async fn hidden(ops: &Ops, call: &Call, attributes: &Attributes) -> Result<Vec<HeaderName>, S3Error> {
    let (key, version) = (call.key()?, call.version()?);
    let (_, tagging) = auth::action(Operation::GetObjectTagging, version.is_some());
    let mut hidden = Vec::new();
    for (is_there, action, names) in [
        (attributes.retention.is_some(), "s3:GetObjectRetention", &[object_lock::MODE, object_lock::UNTIL][..]),
        (attributes.legal_hold.is_some(), "s3:GetObjectLegalHold", &[object_lock::HOLD]),
        (!attributes.tags.is_empty(), tagging, &[tags::COUNT]),
    ] {
        if is_there && !auth::may(ops, call, action, Some(&key), version).await? {
            hidden.extend_from_slice(names);
        }
    }
    Ok(hidden)
}

/// RestoreObject: no object is in a class from which it would have to be restored.
pub(super) async fn restore(ops: &Ops, call: &Call) -> Result<Response<Body>, S3Error> {
    ops.store.object_info(&call.bucket()?, &call.key()?, call.version()?).await?;
    let message = "Restore is not allowed for the object's current storage class";
    Err(S3Error::with(S3Code::InvalidObjectState, message).detail("StorageClass", "STANDARD"))
}

/// When the object ends, if a rule says so and it is the current one.
fn show_end(ops: &Ops, call: &Call, read: &ObjectRead, response: &mut Response<Body>) -> Result<(), S3Error> {
    if !lifecycle::has_rules(ops, call)? || call.version()?.is_some() {
        return Ok(());
    }
    let object = (&call.key()?, read.info.size, read.info.modified_ms);
    lifecycle::show_expiration(ops, call, object, &read.info.attributes.tags, response.headers_mut())
}

/// What an answer shows because of its request.
struct Shown {
    /// Headers that it wants to see.
    overrides: Vec<(HeaderName, HeaderValue)>,
    /// The MD5 of the customer's key.
    md5: Option<HeaderValue>,
    /// Headers that its sender may not see.
    hidden: Vec<HeaderName>,
}

/// What a GetObject or HeadObject asks for, and what it wants to see.
fn asked(ops: &Ops, call: &Call) -> Result<(get_object::Request, Shown), S3Error> {
    let overrides = attributes::overrides(call.query())?;
    if !overrides.is_empty() && call.caller.is_anonymous() {
        let message = "Request specific response headers cannot be used for anonymous GET requests.";
        return Err(S3Error::request(message));
    }
    let customer = encryption::reading(call)?;
    let md5 = customer.as_ref().map(encryption::Customer::md5);
    let get = GetObject {
        bucket: call.bucket()?,
        key: call.key()?,
        version: call.version()?,
        range: range(call),
        part_number: call.query().get("partNumber")?.map(part_number).transpose()?,
        conditions: conditions::read(ops, call, ""),
        customer: customer.map(|customer| customer.key),
    };
    let checksums = call.header("x-amz-checksum-mode")?.is_some_and(|mode| mode.eq_ignore_ascii_case("ENABLED"));
    Ok((get_object::Request { get, checksums }, Shown { overrides, md5, hidden: Vec::new() }))
}

/// The head of an answer, and what is left to be sent.
fn shown_object(
    ops: &Ops,
    call: &mut Call,
    found: get_object::Response,
    shown: Shown,
) -> Result<(Response<Body>, ObjectRead), S3Error> {
    let version = versioning::shown(ops, call, found.read.info.version)?;
    let read = found.read;
    let info = &read.info;
    let status = if read.range.is_some() { StatusCode::PARTIAL_CONTENT } else { StatusCode::OK };
    let mut response = answer::reusing(call.take_headers(), status);
    let headers = response.headers_mut();
    attributes::show(&info.attributes, headers);
    checksums::show_headers(&found.checksums, headers);
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(CONTENT_LENGTH, answer::number(read.len));
    object_lock::show(&info.attributes, headers);
    if let Some(encryption) = &info.attributes.encryption {
        encryption::show(encryption, shown.md5, false, headers);
    }
    for (name, value) in shown.overrides {
        headers.insert(name, value);
    }
    if let Some(tag) = quoted(&info.etag) {
        headers.insert(ETAG, tag);
    }
    if let Some(date) = answer::value(format_args!("{}", date::http(info.modified_ms))) {
        headers.insert(LAST_MODIFIED, date);
    }
    if let Some(range) = read.range {
        answer::set(&mut response, CONTENT_RANGE, format!("bytes {}-{}/{}", range.first, range.last, info.size));
    }
    if let Some(parts) = found.parts_count {
        answer::set(&mut response, PARTS_COUNT, parts.to_string());
    }
    shown.hidden.iter().for_each(|name| drop(response.headers_mut().remove(name)));
    versioning::show(version, false, response.headers_mut());
    show_end(ops, call, &read, &mut response)?;
    Ok((response, read))
}

/// A tag as a value.
fn quoted(etag: &Etag) -> Option<HeaderValue> {
    let Etag::Md5(md5) = etag else { return answer::value(format_args!("\"{etag}\"")) };
    // What most objects have is written without the formatter.
    let mut text = [b'"'; 34];
    hex::encode_to_slice(md5, &mut text[1..33]).ok()?;
    HeaderValue::from_bytes(&text).ok()
}

/// The range that is asked for. `If-Range` is met by sending all: HTTP leaves every range to the server's choice.
fn range(call: &Call) -> Option<RangeRequest> {
    let range = call.list("range").filter(|_| call.list("if-range").is_none())?;
    RangeRequest::parse(&range)
}

/// What is told when an object goes, or gets a delete marker.
const REMOVED: (EventName, EventName) = (EventName::RemovedDelete, EventName::RemovedMarker);
const IF_SIZE: &str = "x-amz-if-match-size";
const IF_MODIFIED: &str = "x-amz-if-match-last-modified-time";

fn size_of(text: &str) -> Result<u64, S3Error> {
    text.parse().map_err(|_| S3Error::argument(IF_SIZE, text, "The size is not a number of bytes."))
}

fn time_of(text: &str) -> Result<u64, S3Error> {
    date::parse_http(text).ok_or_else(|| S3Error::argument(IF_MODIFIED, text, "The time is no date of HTTP."))
}

pub(super) async fn delete(ops: &Ops, call: &Call) -> Result<Response<Body>, S3Error> {
    conditions::refuse(call, &["if-none-match", "if-modified-since", "if-unmodified-since"])?;
    let delete = DeleteObject {
        version: call.version()?,
        if_match: conditions::tags(call, "if-match")?,
        if_size: call.header(IF_SIZE)?.map(size_of).transpose()?,
        if_modified_ms: call.header(IF_MODIFIED)?.map(time_of).transpose()?,
        bypass_governance: object_lock::bypasses(ops, call).await?,
        ..DeleteObject::current(call.key()?)
    };
    let is_version = delete.version.is_some();
    let deleted = delete_object::one(ops, call.bucket()?, delete).await?;
    if call.watch.is_some() {
        let told = notifications::deleted(REMOVED, call.key()?.as_str(), is_version, &deleted);
        Box::pin(notifications::tell(ops, call, told.into_iter().collect())).await?;
    }
    let mut response = answer::empty(StatusCode::NO_CONTENT);
    versioning::show(deleted.version, deleted.is_marker, response.headers_mut());
    if deleted.version == Some(VersionId::ELSEWHERE) {
        // It is told as it was named.
        answer::set(&mut response, VERSION_ID, call.query().text("versionId")?);
    }
    Ok(response)
}

pub(super) async fn delete_many(ops: &Ops, call: &mut Call) -> Result<Response<Body>, S3Error> {
    let document = body::document(ops, call, DocumentDigests::Required).await?;
    let delete = parse_delete(&document)?;
    // Before anything is asked about each of them.
    delete_object::check_count(delete.objects.len())?;
    let quiet = delete.quiet.unwrap_or(false);
    let bypass_governance = object_lock::asks_to_bypass(ops, call)?;
    let mut objects = Vec::with_capacity(delete.objects.len());
    for object in delete.objects {
        // Policies may take their time for each.
        tokio::task::yield_now().await;
        let version = object.version_id.filter(|version| !version.is_empty());
        let (_, action) = auth::action(Operation::DeleteObject, version.is_some());
        let parsed = version.as_deref().and_then(|version| version.parse().ok());
        let if_match = object.e_tag.map(|tag| EtagMatch::parse(tag.value()));
        let refused = match ObjectKey::new(&object.key) {
            Ok(key) if !auth::may_delete(ops, call, action, &key, parsed, if_match.as_ref()).await? => {
                Some(S3Code::AccessDenied.into())
            }
            Ok(key) if bypass_governance && !object_lock::may_bypass(ops, call, &key, parsed).await? => {
                Some(S3Code::AccessDenied.into())
            }
            _ => None,
        };
        // No object has a size below zero: the condition holds for none.
        let if_size = object.size.map(|size| u64::try_from(size).unwrap_or(u64::MAX));
        let if_modified_ms = object
            .last_modified_time
            .map(|at| u64::try_from(OffsetDateTime::from(at).unix_timestamp_nanos() / 1_000_000).unwrap_or(0));
        let named = delete_object::Named { key: object.key, version, if_match, if_size, if_modified_ms, refused };
        objects.push(named);
    }
    let request = delete_object::Request { bucket: call.bucket()?, objects, bypass_governance };
    let outcomes = delete_object::many(ops, request).await?;
    if call.watch.is_some() {
        let told = outcomes.iter().filter_map(|delete_object::Outcome { key, version, result }| {
            notifications::deleted(REMOVED, key, version.is_some(), result.as_ref().ok()?)
        });
        notifications::tell(ops, call, told.collect()).await?;
    }
    let is_logged = call.settings(ops)?.logging.is_some();
    let mut response = answer::document(Xml::document("DeleteResult", |xml| {
        for delete_object::Outcome { key, version, result } in &outcomes {
            match result {
                Ok(_) if quiet => {}
                Ok(deleted) => xml.element("Deleted", |xml| {
                    xml.text("Key", key);
                    xml.optional("VersionId", version.as_deref());
                    if deleted.is_marker {
                        xml.text("DeleteMarker", "true");
                        if let Some(marker) = deleted.version {
                            xml.value("DeleteMarkerVersionId", marker);
                        }
                    }
                }),
                Err(error) => xml.element("Error", |xml| {
                    xml.text("Key", key);
                    xml.optional("VersionId", version.as_deref());
                    xml.text("Code", error.code.as_str());
                    xml.text("Message", &error.message);
                }),
            }
        }
    }));
    if is_logged {
        let done = outcomes.into_iter().map(|delete_object::Outcome { key, version, result }| {
            let error = result.as_ref().err().map(|error| error.code);
            Also {
                operation: "BATCH.DELETE.OBJECT",
                key,
                version,
                status: error.as_ref().map_or(StatusCode::NO_CONTENT, |code| code.status()),
                error: error.map(|code| code.as_str()),
            }
        });
        response.extensions_mut().insert(AlsoDone(done.collect()));
    }
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_quoted() {
        let etags =
            [Etag::Md5(std::array::from_fn(|i| (i * 17) as u8)), Etag::Multipart([1; 16], 2), Etag::Opaque("x".into())];
        for etag in etags {
            assert_eq!(quoted(&etag).unwrap(), format!("\"{etag}\""));
        }
    }
}
