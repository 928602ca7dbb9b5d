//! Signature Version 4 for the operations that are asked for most: verified here with a signing key that is kept, not
//! derived each time, and with the framing of bodies taken off as they arrive.
//!
//! This way only lets in. A request that is not at once seen to be well-formed, fresh and rightly signed goes on to [`super::check`], which words what is wrong
//! with its head, and to s3s, which verifies it anew. So there is one judge of errors, and a mistake here can cost time but no clear answer. What may
//! be *accepted* is tested against s3s, request by request (`tests/s3/differential.rs`).
//!
//! Source: AWS, "Authenticating Requests (AWS Signature Version 4)". Of presigned requests the text that is signed comes from `s3s-sigv4`; of
//! those that are signed in their headers, which are nearly all, it is built here, in one buffer.

mod authorization;
mod canonical;
mod chunks;
mod date;
mod form;
mod keys;
mod mismatch;

use std::sync::Arc;

use gabion_platform::Clock;
use http::header::{AUTHORIZATION, CONTENT_LENGTH, HOST};
use http::request::Parts;
use http::{HeaderMap, HeaderName};
use s3s_sigv4::{AmzContentSha256, AmzDate, PresignedUrlV4};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::credentials::{Credential, CredentialStore, Identity};
use crate::s3::Query;

use authorization::Authorization;
use canonical::Fields;
pub(crate) use chunks::Chunks;
pub(super) use date::{DAY_BYTES, unix_seconds};
pub(crate) use form::service_of;
use keys::{SigningKey, SigningKeys};
pub(crate) use mismatch::Said;
pub(super) use mismatch::explain;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const SERVICE: &str = "s3";
/// Most that a client's clock may differ from ours, in milliseconds (15 minutes, as on AWS).
pub(super) const SKEW_MS_MAX: u64 = 15 * 60 * 1000;
/// Longest life of a presigned request, in seconds (a week, as on AWS).
pub(super) const EXPIRES_S_MAX: u32 = 7 * 24 * 60 * 60;

/// Hexadecimal digits of a SHA-256.
pub(super) const SHA256_HEX_BYTES: usize = 64;

pub(super) const AMZ_CONTENT_SHA256: HeaderName = HeaderName::from_static("x-amz-content-sha256");
pub(super) const AMZ_DATE: HeaderName = HeaderName::from_static("x-amz-date");
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
    Chunked {
        /// What the signatures of chunks and trailers follow from, if they are signed.
        signing: Option<Box<ChunkSigning>>,
        /// Whether trailers may follow.
        has_trailers: bool,
    },
}

/// What the signatures of chunks follow from.
pub(crate) struct ChunkSigning {
    date: AmzDate,
    region: Arc<str>,
    key: SigningKey,
    /// Signature of the request or of the chunk before.
    previous: [u8; 32],
    /// What is signed with a chunk, of which so many bytes are the same for all; empty before the first.
    text: Vec<u8>,
    scope_bytes: usize,
}

impl ChunkSigning {
    /// Of a request with this signature.
    fn new(date: AmzDate, region: Arc<str>, key: SigningKey, signature: [u8; 32]) -> Box<Self> {
        Box::new(Self { date, region, key, previous: signature, text: Vec::new(), scope_bytes: 0 })
    }
}

impl Framing {
    /// How the body of a request comes that s3s has verified, and [`super::check`] has let through. `secret` is what it was signed with, if it was.
    pub(crate) fn of_verified(headers: &HeaderMap, secret: Option<&str>, region: &str) -> Option<Self> {
        let plain = |sha256| Self::Plain { sha256, length: content_length(headers) };
        if !headers.contains_key(AMZ_CONTENT_SHA256) {
            return Some(plain(None));
        }
        let content = AmzContentSha256::parse(single(headers, &AMZ_CONTENT_SHA256)?).ok()?;
        let signing = match content {
            AmzContentSha256::SingleChunk(sha256) => return Some(plain(Some(sha256))),
            AmzContentSha256::UnsignedPayload => return Some(plain(None)),
            AmzContentSha256::StreamingUnsignedPayloadTrailer => None,
            AmzContentSha256::StreamingAws4HmacSha256Payload
            | AmzContentSha256::StreamingAws4HmacSha256PayloadTrailer => {
                let date = AmzDate::parse(single(headers, &AMZ_DATE)?).ok()?;
                let (_, signature) = single(headers, &AUTHORIZATION)?.rsplit_once("Signature=")?;
                let previous = from_hex(signature.trim_ascii().as_bytes())?;
                let key = SigningKey::new(s3s_sigv4::derive_signing_key(secret?, &date, region, SERVICE));
                Some(ChunkSigning::new(date, region.into(), key, previous))
            }
            AmzContentSha256::StreamingAws4EcdsaP256Sha256Payload
            | AmzContentSha256::StreamingAws4EcdsaP256Sha256PayloadTrailer => return None,
        };
        Some(Self::Chunked { signing, has_trailers: content.has_trailer() })
    }
}

/// A request that was verified.
pub(crate) struct Verified {
    /// How its body comes.
    pub(crate) framing: Framing,
    /// Who signed it.
    pub(crate) caller: Arc<Identity>,
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
        Self { credentials, clock, region: region.into(), keys: SigningKeys::new(region, SERVICE) }
    }

    /// Verifies a request of which `path` is the decoded path, and which is signed in its `Authorization` header; nothing when that is to be
    /// left to s3s. What [`super::check`] refuses is never let in.
    pub(crate) fn signed(&self, parts: &Parts, path: &str, query: &Query) -> Option<Verified> {
        let mut fields = Fields::none();
        let fields = fields.read(&parts.headers)?;
        if query.iter().any(|(name, _)| is_of_a_signature(name)) {
            return None;
        }
        let authorization = Authorization::parse(fields.authorization)?;
        let content = match from_hex(fields.content_sha256.as_bytes()) {
            Some(sha256) => AmzContentSha256::SingleChunk(sha256),
            None => match AmzContentSha256::parse(fields.content_sha256).ok()? {
                // From Base64, which is not what is signed.
                AmzContentSha256::SingleChunk(_) => return None,
                content => content,
            },
        };
        let age_ms = self.age_ms(unix_seconds(fields.date)?)?;
        let in_scope = authorization.service == SERVICE
            && authorization.region == &*self.region
            && fields.date.get(..DAY_BYTES) == Some(authorization.day);
        if !in_scope || age_ms.unsigned_abs() > SKEW_MS_MAX {
            return None;
        }
        let canonical = fields.canonical_request(parts.method.as_str(), path, query, authorization.signed_headers)?;
        let (key, caller) = self.key(authorization.access_key, fields.token, fields.date)?;
        let signature = self.compare(canonical, fields.date, &key, authorization.signature)?;
        let sha256 = match content {
            AmzContentSha256::SingleChunk(sha256) => Some(sha256),
            AmzContentSha256::UnsignedPayload => None,
            AmzContentSha256::StreamingAws4HmacSha256Payload
            | AmzContentSha256::StreamingAws4HmacSha256PayloadTrailer
            | AmzContentSha256::StreamingUnsignedPayloadTrailer => {
                if !fields.has_decoded_length {
                    return None;
                }
                let date = AmzDate::parse(fields.date).ok()?;
                let is_signed = content != AmzContentSha256::StreamingUnsignedPayloadTrailer;
                let signing = is_signed.then(|| ChunkSigning::new(date, Arc::clone(&self.region), key, signature));
                let framing = Framing::Chunked { signing, has_trailers: content.has_trailer() };
                return Some(Verified { framing, caller });
            }
            AmzContentSha256::StreamingAws4EcdsaP256Sha256Payload
            | AmzContentSha256::StreamingAws4EcdsaP256Sha256PayloadTrailer => return None,
        };
        Some(Verified { framing: Framing::Plain { sha256, length: fields.content_length }, caller })
    }

    /// Verifies a request that is signed in its query, which [`super::check`] has let through; else like [`Verifier::signed`].
    pub(crate) fn presigned(&self, parts: &Parts, path: &str, query: &Query) -> Option<Verified> {
        // Without a `Host` header (HTTP/2) the authority stands in for it: rare enough to be left alone.
        let host = parts.headers.get(HOST).and_then(|host| host.to_str().ok());
        if !query.has("X-Amz-Signature") || host.is_none() || !lengths_are_plain(&parts.headers) {
            return None;
        }
        let url = PresignedUrlV4::parse(query.pairs(), EXPIRES_S_MAX).ok()?;
        let credential = &url.credential;
        let date = url.amz_date.fmt_iso8601();
        let age_ms = self.age_ms(unix_seconds(&date)?)?;
        let fresh = age_ms.saturating_neg() <= i64::try_from(SKEW_MS_MAX).ok()?
            && i128::from(age_ms) <= url.expires.as_millis();
        let in_scope = url.algorithm == ALGORITHM
            && credential.aws_service == SERVICE
            && credential.aws_region == &*self.region
            && date.get(..DAY_BYTES) == Some(credential.date);
        if !in_scope || !fresh {
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
        let token = super::session_token(&parts.headers, query).ok()?;
        let (key, caller) = self.key(credential.access_key_id, token, &date)?;
        self.compare(canonical.into_bytes(), &date, &key, url.signature)?;
        Some(Verified { framing: Framing::Plain { sha256, length: content_length(&parts.headers) }, caller })
    }

    /// How long ago the request was signed, in milliseconds; negative when that is to come.
    fn age_ms(&self, signed_s: i64) -> Option<i64> {
        i64::try_from(self.clock.now_ms()).ok()?.checked_sub(signed_s.checked_mul(1000)?)
    }

    fn key(&self, access_key: &str, token: Option<&str>, date: &str) -> Option<(SigningKey, Arc<Identity>)> {
        let Credential { secret, identity } = self.credentials.find(access_key, token).ok()?;
        Some((self.keys.get(access_key, &secret, date)?, identity))
    }

    /// The signature of a request with this canonical text, if it is the one that was sent.
    fn compare(&self, canonical: Vec<u8>, date: &str, key: &SigningKey, sent: &str) -> Option<[u8; 32]> {
        let hash: [u8; 32] = Sha256::digest(&canonical).into();
        // The text to sign goes into the same buffer.
        let mut text = canonical;
        text.clear();
        for part in
            [ALGORITHM, "\n", date, "\n", date.get(..DAY_BYTES)?, "/", &self.region, "/", SERVICE, "/aws4_request\n"]
        {
            text.extend_from_slice(part.as_bytes());
        }
        text.extend_from_slice(&to_hex(hash));
        let signature = key.sign(&text);
        are_equal(&to_hex(signature), sent.as_bytes().try_into().ok()?).then_some(signature)
    }
}

/// Whether a query parameter signs a request, or stands for a session.
fn is_of_a_signature(name: &str) -> bool {
    const EXACT: [&str; 5] = ["X-Amz-Signature", "X-Amz-Algorithm", "X-Amz-Credential", "Signature", "AWSAccessKeyId"];
    EXACT.contains(&name) || name.eq_ignore_ascii_case("x-amz-security-token")
}

/// 32 bytes in lower-case hexadecimal digits.
fn from_hex(digits: &[u8]) -> Option<[u8; 32]> {
    let digits: &[u8; 64] = digits.try_into().ok()?;
    // Without branches: it is done for many digits at a time.
    let mut values = [0; 64];
    let mut most = 0;
    for (value, digit) in values.iter_mut().zip(digits) {
        let (number, letter) = (digit.wrapping_sub(b'0'), digit.wrapping_sub(b'a'));
        *value = if number < 10 { number } else { letter.saturating_add(10) };
        most = most.max(*value);
    }
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(values.as_chunks::<2>().0) {
        *byte = pair[0] << 4 | (pair[1] & 15);
    }
    (most < 16).then_some(bytes)
}

/// The other way round.
fn to_hex(bytes: [u8; 32]) -> [u8; 64] {
    let digit = |value: u8| value + b'0' + u8::from(value > 9) * (b'a' - b'0' - 10);
    let mut digits = [0; 64];
    for (pair, byte) in digits.as_chunks_mut::<2>().0.iter_mut().zip(bytes) {
        *pair = [digit(byte >> 4), digit(byte & 15)];
    }
    digits
}

/// Whether two signatures are the same, in a time that does not depend on where they differ.
fn are_equal(one: &[u8; 64], other: &[u8; 64]) -> bool {
    let words = one.as_chunks::<8>().0.iter().zip(other.as_chunks::<8>().0);
    let difference = words.fold(0, |all, (one, other)| all | (u64::from_ne_bytes(*one) ^ u64::from_ne_bytes(*other)));
    difference.ct_eq(&0).into()
}

/// The value of a header that is there once, as text.
pub(super) fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
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

/// Names and values of the headers that are signed. Nothing when one is missing or no text, when there are more names than headers, or when an
/// `x-amz-*` header is not among them: what is not signed could have been added on the way.
fn signed_lines<'a>(headers: &'a HeaderMap, names: &[&'a str]) -> Option<Vec<(&'a str, &'a str)>> {
    let unsigned = |name: &HeaderName| {
        name.as_str().starts_with("x-amz-")
            && name != AMZ_CONTENT_SHA256
            && !names.iter().any(|signed| signed.eq_ignore_ascii_case(name.as_str()))
    };
    if names.len() > headers.keys_len() || headers.keys().any(unsigned) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_digits_are_lower_case() {
        let bytes = std::array::from_fn(|i| (i * 37) as u8);
        assert_eq!(to_hex(bytes), hex::encode(bytes).as_bytes());
        assert_eq!(from_hex(&to_hex(bytes)), Some(bytes));
        for bad in ["", &"0".repeat(63), &"0".repeat(65), &"A".repeat(64), &"g".repeat(64), &"/".repeat(64)] {
            assert_eq!(from_hex(bad.as_bytes()), None, "{bad}");
        }
        for byte in 0..=u8::MAX {
            for at in [0, 1, 31, 63] {
                let mut digits = [b'0'; 64];
                digits[at] = byte;
                let expected = hex::decode(digits).ok().filter(|_| !byte.is_ascii_uppercase());
                assert_eq!(from_hex(&digits).map(Vec::from), expected, "{byte} at {at}");
            }
        }
    }

    #[test]
    fn signatures_that_differ_anywhere_are_not_equal() {
        let digits = to_hex([0x5a; 32]);
        assert!(are_equal(&digits, &digits));
        for at in 0..digits.len() {
            let mut other = digits;
            other[at] ^= 1;
            assert!(!are_equal(&digits, &other), "{at}");
        }
    }
}
