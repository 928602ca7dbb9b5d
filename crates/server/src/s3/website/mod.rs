//! Websites: where objects send those who read them there.
//!
//! Source: AWS, "Website endpoints", "Configuring an index document", "Configuring a custom error document".

use http::HeaderName;

use super::call::Call;
use crate::error::{S3Code, S3Error};

/// Where an object sends those who read it on a website.
pub(super) const REDIRECT_LOCATION: HeaderName = HeaderName::from_static("x-amz-website-redirect-location");
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
