//! Adapters of lifecycle rules, and what answers say about them.

use bytes::Bytes;
use gabion_store::ConfigScope;
use gabion_types::{ObjectKey, Seq};
use http::{HeaderMap, HeaderName, HeaderValue, Response};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use s3s::Body;

use super::body;
use super::call::Call;
use super::{answer, configs, date};
use crate::error::{S3Code, S3Error};
use crate::lifecycle::LifecycleRules;
use crate::lifecycle::due::Subject;
use crate::ops::Ops;

/// The name of the document.
pub(super) const NAME: &str = "lifecycle";
/// The name of the document that says from which size on objects change their class, where it is not AWS's default.
const SMALLEST: &str = "lifecycle-smallest";
/// What it can say, the default first.
const SIZES: [&str; 2] = ["all_storage_classes_128K", "varies_by_storage_class"];

const EXPIRATION: HeaderName = HeaderName::from_static("x-amz-expiration");
const SMALLEST_TO_MOVE: HeaderName = HeaderName::from_static("x-amz-transition-default-minimum-object-size");
const ABORT_DATE: HeaderName = HeaderName::from_static("x-amz-abort-date");
const ABORT_RULE: HeaderName = HeaderName::from_static("x-amz-abort-rule-id");

/// Whether there are rules that may be about the objects of the bucket.
///
/// # Errors
/// Those of the index.
pub(super) fn has_rules(ops: &Ops, call: &Call) -> Result<bool, S3Error> {
    Ok(call.settings(ops)?.lifecycle.is_some())
}

/// Says of a current object when it ends, and by which rule, if one is about it.
///
/// # Errors
/// Those of the index.
pub(super) fn show_expiration(
    ops: &Ops,
    call: &Call,
    (key, size, modified_ms): (&ObjectKey, u64, u64),
    tags: &[(String, String)],
    headers: &mut HeaderMap,
) -> Result<(), S3Error> {
    let settings = call.settings(ops)?;
    let Some(Ok(rules)) = &settings.lifecycle else { return Ok(()) };
    let subject = Subject { key: key.as_str(), size, tags };
    if let Some((ends_ms, id)) = rules.object_ends(subject, modified_ms) {
        let id = utf8_percent_encode(id, NON_ALPHANUMERIC);
        let text = format!("expiry-date=\"{}\", rule-id=\"{id}\"", date::http(ends_ms));
        if let Ok(value) = HeaderValue::from_str(&text) {
            headers.insert(EXPIRATION, value);
        }
    }
    Ok(())
}

/// The same of the object that a commit just made, whose tags its request does not say.
///
/// # Errors
/// Those of the index; that the object is not there any more, or cannot be looked at, is none: it was made.
pub(super) async fn show_expiration_of_new(
    ops: &Ops,
    call: &Call,
    made: Seq,
    headers: &mut HeaderMap,
) -> Result<(), S3Error> {
    if !has_rules(ops, call)? {
        return Ok(());
    }
    let key = call.key()?;
    match ops.store.object_info(&call.bucket()?, &key, None).await {
        Ok(info) if info.seq == made => {
            show_expiration(ops, call, (&key, info.size, info.modified_ms), &info.attributes.tags, headers)
        }
        _ => Ok(()),
    }
}

/// Says of an upload when it is aborted, and by which rule, if one is about it.
///
/// # Errors
/// Those of the index.
pub(super) fn show_abortion(ops: &Ops, call: &Call, begun_ms: u64, headers: &mut HeaderMap) -> Result<(), S3Error> {
    let settings = call.settings(ops)?;
    let Some(Ok(rules)) = &settings.lifecycle else { return Ok(()) };
    if let Some((ends_ms, id)) = rules.upload_ends(call.key()?.as_str(), begun_ms) {
        if let Ok(value) = HeaderValue::from_str(&date::http(ends_ms).to_string()) {
            headers.insert(ABORT_DATE, value);
        }
        if let Ok(value) = HeaderValue::from_str(id) {
            headers.insert(ABORT_RULE, value);
        }
    }
    Ok(())
}

pub(super) async fn put(ops: &Ops, call: &mut Call) -> Result<Response<Body>, S3Error> {
    let document = body::required(ops, call).await?;
    let (_, kept) = LifecycleRules::parse(&document)?;
    let smallest = match call.header(SMALLEST_TO_MOVE.as_str())? {
        None => SIZES[0],
        Some(given) => match SIZES.iter().find(|size| **size == given) {
            Some(size) => size,
            None => {
                let message = "The minimum object size is all_storage_classes_128K or varies_by_storage_class.";
                return Err(S3Error::argument(SMALLEST_TO_MOVE.as_str(), given, message));
            }
        },
    };
    let mut response = configs::put(ops, call, NAME, kept).await?;
    if smallest != smallest_to_move(ops, call)? {
        let scope = ConfigScope::Bucket(call.bucket()?);
        ops.store.put_config(scope, SMALLEST, Bytes::from_static(smallest.as_bytes())).await?;
    }
    answer::set(&mut response, SMALLEST_TO_MOVE, smallest);
    Ok(response)
}

pub(super) async fn get(ops: &Ops, call: &Call) -> Result<Response<Body>, S3Error> {
    let mut response = configs::get(ops, call, NAME).await?.ok_or(S3Code::NoSuchLifecycleConfiguration)?;
    answer::set(&mut response, SMALLEST_TO_MOVE, smallest_to_move(ops, call)?);
    Ok(response)
}

pub(super) async fn delete(ops: &Ops, call: &Call) -> Result<Response<Body>, S3Error> {
    let deleted = configs::delete(ops, call, NAME).await?;
    configs::delete(ops, call, SMALLEST).await?;
    Ok(deleted)
}

/// From which size on objects change their class: kept and told, as classes are all one here.
fn smallest_to_move(ops: &Ops, call: &Call) -> Result<&'static str, S3Error> {
    let configs = ops.store.bucket_configs(&call.bucket()?)?;
    let kept = configs.get(SMALLEST);
    Ok(SIZES.into_iter().find(|size| kept.is_some_and(|kept| kept == size)).unwrap_or(SIZES[0]))
}
