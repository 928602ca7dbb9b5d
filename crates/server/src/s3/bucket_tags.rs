//! Tags of buckets.
//!
//! Source: AWS, "PutBucketTagging", "Using cost allocation S3 bucket tags".

use http::{Response, StatusCode};
use s3s::Body;
use s3s::dto;

use super::body;
use super::call::Call;
use super::configs;
use super::tags::{self, Of};
use super::xml::parse_tagging;
use crate::error::{S3Code, S3Error};
use crate::ops::Ops;

/// The name of the document.
pub(super) const NAME: &str = "tagging";

/// The document of the tags with which a bucket is created; nothing for none.
///
/// # Errors
/// `InvalidTag`, `MalformedXML`.
pub(super) fn of_creation(tag_set: Vec<dto::Tag>) -> Result<Option<String>, S3Error> {
    let tags = tags::of_document(dto::Tagging { tag_set }, Of::Bucket)?;
    Ok((!tags.is_empty()).then(|| tags::as_document(&tags)))
}

pub(super) async fn put(ops: &Ops, call: &mut Call) -> Result<Response<Body>, S3Error> {
    let document = body::required(ops, call).await?;
    let tags = tags::of_document(parse_tagging(&document)?, Of::Bucket)?;
    if tags.is_empty() {
        return configs::delete(ops, call, NAME).await;
    }
    let mut response = configs::put(ops, call, NAME, tags::as_document(&tags)).await?;
    *response.status_mut() = StatusCode::NO_CONTENT;
    Ok(response)
}

pub(super) async fn get(ops: &Ops, call: &Call) -> Result<Response<Body>, S3Error> {
    configs::get(ops, call, NAME).await?.ok_or_else(|| S3Code::NoSuchTagSet.into())
}

pub(super) async fn delete(ops: &Ops, call: &Call) -> Result<Response<Body>, S3Error> {
    configs::delete(ops, call, NAME).await
}
