//! What Signature Version 4 asks of a request's head, in header or query, but for the signature itself: AWS's rules, order and words.
//!
//! Looked at where a request was not let in at once, before s3s verifies the signature. None of it lets a request in. Sources: AWS, "Authenticating Requests
//! (AWS Signature Version 4)", and its answers to requests that break one rule each.

use http::request::Parts;
use http::{HeaderMap, HeaderName};
use s3s_sigv4::AmzContentSha256;

use super::front::{Asked, session_token};
use super::sigv4::{
    AMZ_CONTENT_SHA256, AMZ_DATE, DAY_BYTES, EXPIRES_S_MAX, SHA256_HEX_BYTES, SKEW_MS_MAX, single, unix_seconds,
};
use crate::error::{S3Code, S3Error};
use crate::s3::{Query, date, echo};

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const NOT_SIGNED: &str = "There were headers present in the request which were not signed";
const DATE: &str = "AWS authentication requires a valid Date or x-amz-date header";
const INCOMPLETE: &str = "Query-string authentication version 4 requires the X-Amz-Algorithm, X-Amz-Credential, X-Amz-Signature, \
    X-Amz-Date, X-Amz-SignedHeaders, and X-Amz-Expires parameters.";
const TOO_LONG: &str = "X-Amz-Expires must be less than a week (in seconds); that is, the given X-Amz-Expires must be less than 604800 seconds";
const CONTENT_SHA256: &str = "x-amz-content-sha256 must be UNSIGNED-PAYLOAD, STREAMING-UNSIGNED-PAYLOAD-TRAILER, \
    STREAMING-AWS4-HMAC-SHA256-PAYLOAD, STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER, STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD, \
    STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD-TRAILER or a valid sha256 value.";
const NOT_HERE: &str = "The value of x-amz-content-sha256 header is invalid.";
const NOT_SIGNED_AT_ALL: &str = "Anonymous requests don't support this x-amz-content-sha256 value. Please use UNSIGNED-PAYLOAD or \
    STREAMING-UNSIGNED-PAYLOAD-TRAILER.";
/// SHA-256 of nothing.
pub(crate) const EMPTY_SHA256: [u8; 32] = [
    0xe3, 0xb0, 0xc4, 0x42, 0x98, 0xfc, 0x1c, 0x14, 0x9a, 0xfb, 0xf4, 0xc8, 0x99, 0x6f, 0xb9, 0x24, 0x27, 0xae, 0x41,
    0xe4, 0x64, 0x9b, 0x93, 0x4c, 0xa4, 0x95, 0x99, 0x1b, 0x78, 0x52, 0xb8, 0x55,
];

/// Where a signature stands, and so how its faults are worded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Header,
    Query,
}

impl Place {
    /// What is wrong with the text of the signature.
    fn malformed(self, what: impl std::fmt::Display) -> S3Error {
        match self {
            Self::Header => S3Error::with(
                S3Code::AuthorizationHeaderMalformed,
                format!("The authorization header is malformed; {what}"),
            ),
            Self::Query => S3Error::with(S3Code::AuthorizationQueryParametersError, what.to_string()),
        }
    }

    /// What is wrong with its credential.
    fn credential(self, what: impl std::fmt::Display) -> S3Error {
        match self {
            Self::Header => self.malformed(what),
            Self::Query => self.malformed(format_args!("Error parsing the X-Amz-Credential parameter; {what}")),
        }
    }
}

/// `access key/day/region/service/aws4_request`.
struct Scope<'a> {
    access_key: &'a str,
    day: &'a str,
}

impl<'a> Scope<'a> {
    fn parse(text: &'a str, region: &str, place: Place) -> Result<Self, S3Error> {
        let parts: Vec<&str> = text.split('/').collect();
        let &[access_key, day, named, service, end] = &parts[..] else {
            return Err(place.credential(
                "the Credential is mal-formed; expecting \"<YOUR-AKID>/YYYYMMDD/REGION/SERVICE/aws4_request\".",
            ));
        };
        if service != "s3" {
            let service = echo(service);
            return Err(
                place.credential(format_args!("incorrect service \"{service}\". This endpoint belongs to \"s3\"."))
            );
        }
        if end != "aws4_request" {
            let end = echo(end);
            return Err(
                place.credential(format_args!("incorrect terminal \"{end}\". This endpoint uses \"aws4_request\"."))
            );
        }
        if day.len() != DAY_BYTES || unix_seconds(&format!("{day}T000000Z")).is_none() {
            let day = echo(day);
            return Err(place.credential(format_args!(
                "incorrect date format \"{day}\". This date in the credential must be in the format \"yyyyMMdd\"."
            )));
        }
        if named != region {
            let named = echo(named);
            let wrong = place.credential(format_args!("the region '{named}' is wrong; expecting '{region}'"));
            // Clients sign again for the region that they are told.
            return Err(wrong.detail("Region", region));
        }
        Ok(Self { access_key, day })
    }
}

/// Checks a request that is signed in its `Authorization` header.
pub(super) fn header(parts: &Parts, query: &Query, authorization: &str, asked: &Asked<'_>) -> Result<(), S3Error> {
    let unusable = |value: &str, message: &'static str| S3Error::argument("Authorization", value, message);
    let Some((algorithm, rest)) = authorization.split_once(' ') else {
        let message = "Authorization header is invalid -- one and only one ' ' (space) required.";
        return Err(unusable(authorization, message));
    };
    if algorithm != ALGORITHM {
        return Err(unusable(algorithm, "Unsupported Authorization Type"));
    }
    let date = single(&parts.headers, &AMZ_DATE).ok_or_else(no_date)?;
    let signed_s = unix_seconds(date).ok_or_else(no_date)?;
    let [credential, signed_headers] = components(rest)?;
    let scope = Scope::parse(credential, asked.region, Place::Header)?;
    check_skew(date, signed_s, asked)?;
    check_key(parts, query, scope.access_key, asked)?;
    if date.get(..DAY_BYTES) != Some(scope.day) {
        return Err(Place::Header.malformed("Invalid credential date. Date is not the same as X-Amz-Date."));
    }
    match single(&parts.headers, &AMZ_CONTENT_SHA256).filter(|value| !value.is_empty()) {
        None => return Err(S3Error::request("Missing required header for this request: x-amz-content-sha256")),
        Some(value) => content(parts, value, asked)?,
    }
    all_is_signed(&parts.headers, signed_headers)
}

/// That the date by which a request is signed is missing, or none.
pub(super) fn no_date() -> S3Error {
    S3Error::with(S3Code::AccessDenied, DATE)
}

/// Whether a request that is signed in its header is signed at this time, by its date as it was sent and in Unix seconds.
pub(super) fn check_skew(date: &str, signed_s: i64, asked: &Asked<'_>) -> Result<(), S3Error> {
    let now_ms = i64::try_from(asked.now_ms).unwrap_or(i64::MAX);
    if now_ms.abs_diff(signed_s.saturating_mul(1000)) <= SKEW_MS_MAX {
        return Ok(());
    }
    Err(S3Error::new(S3Code::RequestTimeTooSkewed)
        .detail("RequestTime", date)
        .detail("ServerTime", iso(asked.now_ms))
        .detail("MaxAllowedSkewMilliseconds", SKEW_MS_MAX.to_string()))
}

/// Credential and signed headers of an `Authorization` header.
fn components(text: &str) -> Result<[&str; 2], S3Error> {
    let malformed = |what: std::fmt::Arguments<'_>| Place::Header.malformed(what);
    let parts: Vec<&str> = text.split(',').map(str::trim_ascii).collect();
    if parts.len() != 3 {
        let message = "the authorization header requires three components: Credential, SignedHeaders, and Signature.";
        return Err(malformed(format_args!("{message}")));
    }
    let mut values = [""; 3];
    for ((part, value), name) in parts.into_iter().zip(&mut values).zip(["Credential", "SignedHeaders", "Signature"]) {
        let mut pair = part.split('=');
        let (Some(given), Some(text), None) = (pair.next(), pair.next(), pair.next()) else {
            return Err(malformed(format_args!("the authorization component \"{}\" is malformed.", echo(part))));
        };
        if given != name {
            return Err(malformed(format_args!("missing {name}.")));
        }
        *value = text;
    }
    let [credential, signed_headers, _] = values;
    Ok([credential, signed_headers])
}

/// Checks a request that is signed in its query: it has all parameters, each once, and holds for a week at most.
pub(super) fn presigned(parts: &Parts, query: &Query, asked: &Asked<'_>) -> Result<(), S3Error> {
    let wrong = |what: &str| Place::Query.malformed(what);
    let get =
        |name: &str| query.get(name).ok().flatten().filter(|text| !text.is_empty()).ok_or_else(|| wrong(INCOMPLETE));
    for name in ["X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Signature", "X-Amz-Date", "X-Amz-Expires"] {
        get(name)?;
    }
    let signed_headers = query.get("X-Amz-SignedHeaders").ok().flatten().ok_or_else(|| wrong(INCOMPLETE))?;
    match get("X-Amz-Algorithm")? {
        ALGORITHM => {}
        "AWS4-ECDSA-P256-SHA256" => return Err(wrong("X-Amz-Algorithm only supports \"AWS4-HMAC-SHA256\"")),
        _ => return Err(wrong("X-Amz-Algorithm only supports \"AWS4-HMAC-SHA256 and AWS4-ECDSA-P256-SHA256\"")),
    }
    let scope = Scope::parse(get("X-Amz-Credential")?, asked.region, Place::Query)?;
    let date = get("X-Amz-Date")?;
    let signed_s = unix_seconds(date)
        .ok_or_else(|| wrong("X-Amz-Date must be in the ISO8601 Long Format \"yyyyMMdd'T'HHmmss'Z'\""))?;
    let day = date.get(..DAY_BYTES).unwrap_or_default();
    if day != scope.day {
        return Err(Place::Query.malformed(format_args!(
            "Invalid credential date \"{}\". This date is not the same as X-Amz-Date: \"{day}\".",
            scope.day
        )));
    }
    let expires: i64 = get("X-Amz-Expires")?.parse().map_err(|_| wrong("X-Amz-Expires should be a number"))?;
    match expires {
        ..0 => return Err(wrong("X-Amz-Expires must be non-negative")),
        _ if expires > i64::from(EXPIRES_S_MAX) => return Err(wrong(TOO_LONG)),
        _ => {}
    }
    check_time(signed_s, expires, asked.now_ms)?;
    check_key(parts, query, scope.access_key, asked)?;
    if let Some(value) = single(&parts.headers, &AMZ_CONTENT_SHA256) {
        if is_streaming(value) {
            return Err(S3Error::request(NOT_HERE));
        }
        content(parts, value, asked)?;
    }
    all_is_signed(&parts.headers, signed_headers)
}

/// Whether a presigned request holds now.
fn check_time(signed_s: i64, expires_s: i64, now_ms: u64) -> Result<(), S3Error> {
    let signed_ms = signed_s.saturating_mul(1000);
    let ends_ms = signed_ms.saturating_add(expires_s.saturating_mul(1000));
    let age_ms = i64::try_from(now_ms).unwrap_or(i64::MAX).saturating_sub(signed_ms);
    let refused = |message: &'static str, name: &'static str, text: String| {
        S3Error::with(S3Code::AccessDenied, message)
            .detail(name, text)
            .detail("Expires", iso(u64::try_from(ends_ms).unwrap_or_default()))
            .detail("ServerTime", iso(now_ms))
    };
    if age_ms < 0 && age_ms.unsigned_abs() > SKEW_MS_MAX {
        return Err(refused("Request is not yet valid", "X-Amz-Date", signed_ms.to_string()));
    }
    if age_ms > expires_s.saturating_mul(1000) {
        return Err(refused("Request has expired", "X-Amz-Expires", expires_s.to_string()));
    }
    Ok(())
}

/// Who signs with a key that there is not, or with a token that is not the key's, learns that before anything else is looked at.
fn check_key(parts: &Parts, query: &Query, access_key: &str, asked: &Asked<'_>) -> Result<(), S3Error> {
    let token = session_token(&parts.headers, query)?;
    match asked.credentials.find(access_key, token) {
        Ok(_) => Ok(()),
        Err(refusal) => {
            let error = S3Error::from(refusal);
            let key = (error.code == S3Code::InvalidAccessKeyId).then(|| echo(access_key));
            Err(error.or_detail("AWSAccessKeyId", key))
        }
    }
}

/// What a signed request says of its body.
fn content(parts: &Parts, value: &str, asked: &Asked<'_>) -> Result<(), S3Error> {
    let invalid = || S3Error::argument("x-amz-content-sha256", value, CONTENT_SHA256);
    let parsed = AmzContentSha256::parse(value).map_err(|_| invalid())?;
    match parsed {
        // It is parsed from Base64, too, which is not what is signed.
        AmzContentSha256::SingleChunk(_) if value.len() != SHA256_HEX_BYTES => Err(invalid()),
        AmzContentSha256::SingleChunk(hash) => of_nothing(&hash, value, asked),
        AmzContentSha256::UnsignedPayload => Ok(()),
        AmzContentSha256::StreamingAws4EcdsaP256Sha256Payload
        | AmzContentSha256::StreamingAws4EcdsaP256Sha256PayloadTrailer => Err(S3Error::request(NOT_HERE)),
        AmzContentSha256::StreamingAws4HmacSha256Payload
        | AmzContentSha256::StreamingAws4HmacSha256PayloadTrailer
        | AmzContentSha256::StreamingUnsignedPayloadTrailer => streamed(parts, asked),
    }
}

/// Objects alone come in chunks; how long they are without their framing must be said.
fn streamed(parts: &Parts, asked: &Asked<'_>) -> Result<(), S3Error> {
    if asked.operation.is_some_and(|operation| !operation.is_streamed()) {
        return Err(S3Error::request(NOT_HERE));
    }
    if parts.headers.contains_key("x-amz-decoded-content-length") {
        return Ok(());
    }
    Err(S3Code::MissingContentLength.into())
}

/// What hash nothing has is known before it has come.
fn of_nothing(hash: &[u8; 32], value: &str, asked: &Asked<'_>) -> Result<(), S3Error> {
    if asked.body_bytes == Some(0) && *hash != EMPTY_SHA256 {
        return Err(mismatch(value, asked));
    }
    Ok(())
}

fn mismatch(value: &str, asked: &Asked<'_>) -> S3Error {
    let error = S3Error::new(S3Code::XAmzContentSHA256Mismatch).detail("ClientComputedContentSHA256", echo(value));
    let found = (asked.body_bytes == Some(0)).then(|| hex::encode(EMPTY_SHA256));
    error.or_detail("S3ComputedContentSHA256", found)
}

/// Checks what a request says of its body that nobody has signed, as far as it says anything.
pub(super) fn anonymous(parts: &Parts, asked: &Asked<'_>) -> Result<(), S3Error> {
    let Some(value) = single(&parts.headers, &AMZ_CONTENT_SHA256) else { return Ok(()) };
    match AmzContentSha256::parse(value) {
        Ok(AmzContentSha256::SingleChunk(hash)) => of_nothing(&hash, value, asked),
        Ok(AmzContentSha256::UnsignedPayload) => Ok(()),
        Ok(AmzContentSha256::StreamingUnsignedPayloadTrailer) => streamed(parts, asked),
        Ok(_) => Err(S3Error::request(NOT_SIGNED_AT_ALL)),
        // No body has such a hash.
        Err(_) => Err(mismatch(value, asked)),
    }
}

/// Signature Version 2 signs no chunks.
pub(super) fn version_2(parts: &Parts) -> Result<(), S3Error> {
    match single(&parts.headers, &AMZ_CONTENT_SHA256) {
        Some(value) if is_streaming(value) => Err(S3Error::request(NOT_HERE)),
        _ => Ok(()),
    }
}

fn is_streaming(value: &str) -> bool {
    AmzContentSha256::parse(value).is_ok_and(|content| content.is_streaming())
}

/// Without `host` in the signature, a request for one server or bucket could be replayed to another; and any other header that the server heeds
/// could have been added on the way.
fn all_is_signed(headers: &HeaderMap, signed: &str) -> Result<(), S3Error> {
    // A name that stood there often would have its header signed as often, which may be far more than was sent.
    // (Over HTTP/2 the authority stands for `host`.)
    if signed.split(';').count() > headers.keys_len() + 1 {
        return Err(S3Code::SignatureDoesNotMatch.into());
    }
    let is_signed = |name: &str| signed.split(';').any(|signed| signed.eq_ignore_ascii_case(name));
    let amz = headers.keys().map(HeaderName::as_str).filter(|name| name.starts_with("x-amz-"));
    let mut unsigned: Vec<&str> = amz
        .filter(|name| *name != AMZ_CONTENT_SHA256.as_str())
        .chain(["host"])
        .filter(|name| !is_signed(name))
        .collect();
    if unsigned.is_empty() {
        return Ok(());
    }
    unsigned.sort_unstable();
    Err(S3Error::with(S3Code::AccessDenied, NOT_SIGNED).detail("HeadersNotSigned", unsigned.join(", ")))
}

/// `2015-10-21T07:28:00Z`.
fn iso(unix_ms: u64) -> String {
    date::iso(unix_ms).to_string().replace(".000Z", "Z")
}
