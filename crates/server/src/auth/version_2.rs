//! Signature Version 2 in the `Authorization` header, where it is let in: verified here, because clients of it write dates that s3s does not read.
//!
//! Presigned URLs of Version 2 are verified by s3s. Source: AWS, "Signing and authenticating REST requests".

use std::borrow::Cow;

use http::header::{AUTHORIZATION, DATE};
use http::request::Parts;
use s3s_sigv2::{AuthorizationV2, Mode};
use subtle::ConstantTimeEq;

use super::front::{Asked, session_token};
use super::sigv4::{AMZ_DATE, Framing, Verified, single, unix_seconds};
use super::version_4;
use crate::credentials::Credential;
use crate::error::{S3Code, S3Error};
use crate::s3::{Routed, date, echo};

/// Verifies a request that is signed so, and that [`super::check`] has let through; nothing for all others.
///
/// # Errors
/// `AccessDenied` without a date, `RequestTimeTooSkewed`, `InvalidAccessKeyId` and others of its credentials, `SignatureDoesNotMatch`.
pub(crate) fn verify(parts: &Parts, routed: &Routed, asked: &Asked<'_>) -> Result<Option<Verified>, S3Error> {
    let headers = &parts.headers;
    let authorization = single(headers, &AUTHORIZATION).and_then(|value| AuthorizationV2::parse(value).ok());
    let Some(AuthorizationV2 { access_key, signature }) = authorization else { return Ok(None) };
    let date = single(headers, &AMZ_DATE).or_else(|| single(headers, &DATE)).unwrap_or_default();
    let signed_s = moment(date).ok_or_else(version_4::no_date)?;
    version_4::check_skew(date, signed_s, asked)?;
    let token = session_token(headers, &routed.query)?;
    let of_key = |error: S3Error| error.detail("AWSAccessKeyId", echo(access_key));
    let found = asked.credentials.find(access_key, token);
    let Credential { secret, identity } = found.map_err(|refusal| of_key(refusal.into()))?;
    let mismatch = || of_key(S3Code::SignatureDoesNotMatch.into()).detail("SignatureProvided", echo(signature));
    let mut lines = Vec::with_capacity(headers.len());
    for (name, value) in headers {
        match std::str::from_utf8(value.as_bytes()) {
            Ok(value) => lines.push((name.as_str(), value)),
            Err(_) if name.as_str().starts_with("x-amz-") => return Err(mismatch()),
            Err(_) => {}
        }
    }
    let uri = routed.uri_of_version_2(parts);
    let path = uri.as_ref().unwrap_or(&parts.uri).path();
    let host = routed.bucket.as_ref().filter(|_| routed.virtual_host).map(|bucket| bucket.as_str());
    let method = parts.method.as_str();
    // Sorted, as they are looked for by halves: one that is not found is not signed.
    let mut pairs = routed.query.pairs().to_vec();
    pairs.sort_by(|one, other| one.0.cmp(&other.0));
    let text = s3s_sigv2::create_string_to_sign(Mode::HeaderAuth, method, path, Some(&pairs), &lines, host);
    let expected = s3s_sigv2::calculate_signature(secret.expose(), &text);
    if !bool::from(expected.as_bytes().ct_eq(signature.as_bytes())) {
        return Err(mismatch());
    }
    let framing = Framing::of_verified(headers, None, asked.region).ok_or(S3Code::InvalidRequest)?;
    Ok(Some(Verified { framing, caller: identity }))
}

/// Unix time in seconds of a date as Version 4 has it, or HTTP, whose zone may be `+0000`.
pub(super) fn moment(text: &str) -> Option<i64> {
    unix_seconds(text).or_else(|| {
        let http = text.strip_suffix("+0000").map_or(Cow::Borrowed(text), |rest| format!("{rest}GMT").into());
        i64::try_from(date::parse_http(&http)? / 1000).ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_have_several_forms() {
        for text in ["20070327T212026Z", "Tue, 27 Mar 2007 21:20:26 GMT", "Tue, 27 Mar 2007 21:20:26 +0000"] {
            assert_eq!(moment(text), Some(1_175_030_426), "{text}");
        }
        for text in ["", "+0000", "Tue, 27 Mar 2007 21:20:26 +0200", "2007-03-27T21:20:26Z"] {
            assert_eq!(moment(text), None, "{text}");
        }
    }
}
