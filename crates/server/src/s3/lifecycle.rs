//! Adapters of lifecycle rules, and what answers say about them.

use gabion_types::ObjectKey;
use http::{HeaderMap, HeaderName, HeaderValue, Response};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use s3s::Body;

use super::body::{self, DocumentDigests};
use super::call::Call;
use super::{configs, date};
use crate::error::{S3Code, S3Error};
use crate::lifecycle::LifecycleRules;
use crate::lifecycle::due::Subject;
use crate::ops::Ops;

/// The name of the document.
pub(super) const NAME: &str = "lifecycle";

const EXPIRATION: HeaderName = HeaderName::from_static("x-amz-expiration");
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
    let document = body::document(call, DocumentDigests::Any).await?;
    let (_, kept) = LifecycleRules::parse(&document)?;
    configs::put(ops, call, NAME, kept).await
}

pub(super) async fn get(ops: &Ops, call: &Call) -> Result<Response<Body>, S3Error> {
    configs::get(ops, call, NAME).await?.ok_or_else(|| S3Code::NoSuchLifecycleConfiguration.into())
}

pub(super) async fn delete(ops: &Ops, call: &Call) -> Result<Response<Body>, S3Error> {
    configs::delete(ops, call, NAME).await
}
