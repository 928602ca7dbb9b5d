//! Signature Version 4 for the operations that are asked for most: verified here with a signing key that is kept, not
//! derived each time, and with the framing of bodies taken off as they arrive.
//!
//! This way only lets in. A request that is not at once seen to be well-formed, fresh and rightly signed goes on to s3s, which verifies it anew
//! and words the refusal. So there is one judge of errors, and a mistake here can cost time but no clear answer. What may
//! be *accepted* is tested against s3s, request by request (`tests/s3/differential.rs`).
//!
//! Source: AWS, "Authenticating Requests (AWS Signature Version 4)". The text that is signed comes from `s3s-sigv4`.

mod chunks;
mod keys;

use std::sync::Arc;

use gabion_platform::Clock;
use http::header::{AUTHORIZATION, CONTENT_LENGTH, HOST};
use http::request::Parts;
use http::{HeaderMap, HeaderName};
use s3s_sigv4::{AmzContentSha256, AmzDate, AuthorizationV4, CredentialV4, Payload, PresignedUrlV4};
use subtle::ConstantTimeEq;

use crate::credentials::CredentialStore;
use crate::s3::Query;

pub(crate) use chunks::Chunks;
use keys::SigningKeys;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const SERVICE: &str = "s3";
/// Most that a client's clock may differ from ours, in milliseconds (15 minutes, as on AWS).
const SKEW_MS_MAX: u64 = 15 * 60 * 1000;
/// Longest life of a presigned request, in seconds (a week, as on AWS).
const EXPIRES_S_MAX: u32 = 7 * 24 * 60 * 60;

const AMZ_DATE: HeaderName = HeaderName::from_static("x-amz-date");
const AMZ_CONTENT_SHA256: HeaderName = HeaderName::from_static("x-amz-content-sha256");
const AMZ_TRAILER: HeaderName = HeaderName::from_static("x-amz-trailer");
const AMZ_DECODED_CONTENT_LENGTH: HeaderName = HeaderName::from_static("x-amz-decoded-content-length");

/// How the body of a verified request comes.
pub(crate) enum Framing {
    /// As it is; with its SHA-256, if that was signed.
    Plain {
        /// What the bytes must hash to.
        sha256: Option<[u8; 32]>,
        /// Their number, as `Content-Length` says it.
        length: Option<u64>,
    },
    /// In aws-chunked framing.
    Chunked(ChunkSigning),
}

/// What the signatures of chunks follow from.
pub(crate) struct ChunkSigning {
    date: AmzDate,
    region: Arc<str>,
    key: [u8; 32],
    /// Signature of the request or of the chunk before.
    previous: [u8; 32],
    /// Whether every chunk and the trailers must be signed.
    required: bool,
}

/// Verifies requests.
pub(crate) struct Verifier {
    credentials: Arc<dyn CredentialStore>,
    clock: Arc<dyn Clock>,
    region: Arc<str>,
    keys: SigningKeys,
}

impl Verifier {
    pub(crate) fn new(credentials: Arc<dyn CredentialStore>, clock: Arc<dyn Clock>, region: &str) -> Self {
        Self { credentials, clock, region: region.into(), keys: SigningKeys::default() }
    }

    /// Verifies a request of which `path` is the decoded path; nothing when that is to be left to s3s.
    pub(crate) fn verify(&self, parts: &Parts, path: &str, query: &Query) -> Option<Framing> {
        // Without a `Host` header (HTTP/2) the authority stands in for it: rare enough to be left alone.
        if !parts.headers.contains_key(HOST) || !lengths_are_plain(&parts.headers) {
            return None;
        }
        if query.has("X-Amz-Signature") { self.presigned(parts, path, query) } else { self.signed(parts, path, query) }
    }

    /// A request that is signed in its `Authorization` header.
    fn signed(&self, parts: &Parts, path: &str, query: &Query) -> Option<Framing> {
        let headers = &parts.headers;
        let authorization = AuthorizationV4::parse(single(headers, &AUTHORIZATION)?).ok()?;
        let date = AmzDate::parse(single(headers, &AMZ_DATE)?).ok()?;
        let content = AmzContentSha256::parse(single(headers, &AMZ_CONTENT_SHA256)?).ok()?;
        let credential = &authorization.credential;
        if !self.is_in_scope(authorization.algorithm, credential, &date)
            || self.age_ms(&date)?.unsigned_abs() > SKEW_MS_MAX
        {
            return None;
        }
        let lines = signed_lines(headers, &authorization.signed_headers)?;
        let hash;
        let payload = match content {
            AmzContentSha256::SingleChunk(sha256) => {
                hash = hex::encode(sha256);
                Payload::SingleChunk(&hash)
            }
            AmzContentSha256::UnsignedPayload => Payload::Unsigned,
            AmzContentSha256::StreamingAws4HmacSha256Payload => Payload::MultipleChunks,
            AmzContentSha256::StreamingAws4HmacSha256PayloadTrailer => Payload::MultipleChunksWithTrailer,
            AmzContentSha256::StreamingUnsignedPayloadTrailer => Payload::UnsignedMultipleChunksWithTrailer,
            AmzContentSha256::StreamingAws4EcdsaP256Sha256Payload
            | AmzContentSha256::StreamingAws4EcdsaP256Sha256PayloadTrailer => return None,
        };
        let canonical =
            s3s_sigv4::create_canonical_request(parts.method.as_str(), path, query.pairs(), &lines, payload);
        let key = self.key(credential.access_key_id, &date)?;
        let signature = self.compare(&canonical, &date, &key, authorization.signature)?;
        if !content.is_streaming() {
            let sha256 = match content {
                AmzContentSha256::SingleChunk(sha256) => Some(sha256),
                _ => None,
            };
            return Some(Framing::Plain { sha256, length: content_length(headers) });
        }
        if !headers.contains_key(AMZ_DECODED_CONTENT_LENGTH)
            || content.has_trailer() && single(headers, &AMZ_TRAILER).is_none()
        {
            return None;
        }
        Some(Framing::Chunked(ChunkSigning {
            date,
            region: Arc::clone(&self.region),
            key,
            previous: signature,
            required: content != AmzContentSha256::StreamingUnsignedPayloadTrailer,
        }))
    }

    /// A request that is signed in its query.
    fn presigned(&self, parts: &Parts, path: &str, query: &Query) -> Option<Framing> {
        let url = PresignedUrlV4::parse(query.pairs(), EXPIRES_S_MAX).ok()?;
        let credential = &url.credential;
        let age_ms = self.age_ms(&url.amz_date)?;
        let fresh = age_ms.saturating_neg() <= i64::try_from(SKEW_MS_MAX).ok()?
            && i128::from(age_ms) <= url.expires.as_millis();
        if !self.is_in_scope(url.algorithm, credential, &url.amz_date) || !fresh {
            return None;
        }
        let sha256 = match parts.headers.contains_key(AMZ_CONTENT_SHA256) {
            false => None,
            true => match AmzContentSha256::parse(single(&parts.headers, &AMZ_CONTENT_SHA256)?).ok()? {
                AmzContentSha256::SingleChunk(sha256) => Some(sha256),
                AmzContentSha256::UnsignedPayload => None,
                _ => return None,
            },
        };
        let lines = signed_lines(&parts.headers, &url.signed_headers)?;
        let canonical =
            s3s_sigv4::create_presigned_canonical_request(parts.method.as_str(), path, query.pairs(), &lines);
        let key = self.key(credential.access_key_id, &url.amz_date)?;
        self.compare(&canonical, &url.amz_date, &key, url.signature)?;
        Some(Framing::Plain { sha256, length: content_length(&parts.headers) })
    }

    /// Whether it is signed in the way, for the service and region, and on the day that it must be.
    fn is_in_scope(&self, algorithm: &str, credential: &CredentialV4<'_>, date: &AmzDate) -> bool {
        algorithm == ALGORITHM
            && credential.aws_service == SERVICE
            && credential.aws_region == &*self.region
            && credential.date == date.fmt_date().as_str()
    }

    /// How long ago the request was signed, in milliseconds; negative when that is to come.
    fn age_ms(&self, date: &AmzDate) -> Option<i64> {
        let now_ms = i64::try_from(self.clock.now_ms()).ok()?;
        now_ms.checked_sub(date.to_time()?.as_millisecond())
    }

    fn key(&self, access_key: &str, date: &AmzDate) -> Option<[u8; 32]> {
        let secret = self.credentials.secret_for(access_key)?;
        Some(self.keys.get(access_key, &secret, date, &self.region, SERVICE))
    }

    /// The signature of a request, if it is the one that was sent.
    fn compare(&self, canonical: &str, date: &AmzDate, key: &[u8; 32], sent: &str) -> Option<[u8; 32]> {
        let text = s3s_sigv4::create_string_to_sign(canonical, date, &self.region, SERVICE);
        let signature = s3s_sigv4::calculate_signature_with_key(&text, key);
        bool::from(signature.ct_eq(&from_hex(sent.as_bytes())?)).then_some(signature)
    }
}

/// 32 bytes in lower-case hexadecimal digits.
fn from_hex(digits: &[u8]) -> Option<[u8; 32]> {
    if digits.iter().any(u8::is_ascii_uppercase) {
        return None;
    }
    let mut bytes = [0; 32];
    hex::decode_to_slice(digits, &mut bytes).ok()?;
    Some(bytes)
}

/// The value of a header that is there once, as text.
fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => std::str::from_utf8(value.as_bytes()).ok(),
        _ => None,
    }
}

fn content_length(headers: &HeaderMap) -> Option<u64> {
    single(headers, &CONTENT_LENGTH)?.parse().ok()
}

/// Whether the length of the body is said once and as a number.
fn lengths_are_plain(headers: &HeaderMap) -> bool {
    let plain = |name: &HeaderName| {
        !headers.contains_key(name)
            || single(headers, name).is_some_and(|value| {
                !value.is_empty() && value.bytes().all(|digit| digit.is_ascii_digit()) && value.parse::<u64>().is_ok()
            })
    };
    plain(&CONTENT_LENGTH) && plain(&AMZ_DECODED_CONTENT_LENGTH)
}

/// Names and values of the headers that are signed. Nothing when one is missing or no text, or when an `x-amz-*` header is
/// not among them: what is not signed could have been added on the way.
fn signed_lines<'a>(headers: &'a HeaderMap, names: &[&'a str]) -> Option<Vec<(&'a str, &'a str)>> {
    let unsigned = |name: &HeaderName| {
        name.as_str().starts_with("x-amz-")
            && name != AMZ_CONTENT_SHA256
            && !names.iter().any(|signed| signed.eq_ignore_ascii_case(name.as_str()))
    };
    if headers.keys().any(unsigned) {
        return None;
    }
    let mut lines = Vec::with_capacity(names.len());
    for &name in names {
        let before = lines.len();
        for value in headers.get_all(name) {
            lines.push((name, std::str::from_utf8(value.as_bytes()).ok()?));
        }
        if lines.len() == before {
            return None;
        }
    }
    Some(lines)
}
