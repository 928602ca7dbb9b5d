//! Buckets as websites: their configuration, and the host under which browsers read them.
//!
//! A website is read by nobody in particular: its pages are gets of an anonymous caller, allowed by what the bucket says of those. It answers
//! in HTML, has index documents for directories, and sends browsers elsewhere.
//! Source: AWS, "Website endpoints", "Configuring an index document", "Configuring a custom error document".

mod rules;
mod serve;

use http::{HeaderName, Response};
use s3s::Body;

use super::body;
use super::call::Call;
use super::configs;
use crate::error::{S3Code, S3Error};
use crate::ops::Ops;

pub(crate) use rules::Website;
pub(super) use serve::{Visit, serve};

/// The name of the document.
pub(super) const NAME: &str = "website";
/// Where an object sends those who read it on a website.
pub(super) const REDIRECT_LOCATION: HeaderName = HeaderName::from_static("x-amz-website-redirect-location");
/// Largest document, in bytes.
const DOCUMENT_BYTES_MAX: usize = 128 * 1024;
/// Longest place to which an object may send a browser, in bytes.
const REDIRECT_BYTES_MAX: usize = 2048;

/// The place to which an object sends those who read it on a website (`x-amz-website-redirect-location`).
///
/// # Errors
/// `InvalidRedirectLocation`.
pub(super) fn redirect_location(call: &Call) -> Result<Option<String>, S3Error> {
    let Some(place) = call.header(REDIRECT_LOCATION.as_str())? else { return Ok(None) };
    if !["/", "http://", "https://"].iter().any(|start| place.starts_with(start)) {
        return Err(S3Code::InvalidRedirectLocation.into());
    }
    if place.len() > REDIRECT_BYTES_MAX {
        let message = "The length of website redirect location cannot exceed 2,048 characters.";
        return Err(S3Error::with(S3Code::InvalidRedirectLocation, message));
    }
    Ok(Some(place.to_owned()))
}

pub(super) async fn put(ops: &Ops, call: &mut Call) -> Result<Response<Body>, S3Error> {
    let document = body::bounded(ops, call, DOCUMENT_BYTES_MAX).await?;
    let (_, kept) = Website::parse(&document)?;
    configs::put(ops, call, NAME, kept).await
}

pub(super) async fn get(ops: &Ops, call: &Call) -> Result<Response<Body>, S3Error> {
    configs::get(ops, call, NAME).await?.ok_or_else(|| S3Code::NoSuchWebsiteConfiguration.into())
}

pub(super) async fn delete(ops: &Ops, call: &Call) -> Result<Response<Body>, S3Error> {
    configs::delete(ops, call, NAME).await
}
