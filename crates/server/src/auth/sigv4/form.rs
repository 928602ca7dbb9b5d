//! Signature Version 4 of requests to IAM and STS: a form whose hash is signed, though no header says it.
//!
//! Unlike for S3, everything is said here, the refusals too: s3s knows these services not.

use http::request::Parts;
use http::{HeaderMap, StatusCode};
use s3s_sigv4::{AmzDate, Payload};
use subtle::ConstantTimeEq;

use super::authorization::Authorization;
use super::date::{DAY_BYTES, unix_seconds};
use super::{AMZ_DATE, SKEW_MS_MAX, Verifier, signed_lines, single, to_hex};
use crate::auth::session_token;
use crate::credentials::{Credential, NoCredential};
use crate::s3::Query;
use http::header::AUTHORIZATION;
use sha2::{Digest, Sha256};

/// What global services are signed for, besides the server's region.
const GLOBAL_REGIONS: [&str; 3] = ["us-east-1", "aws-global", ""];

/// Why a form is not from whom it says: status, code and message of IAM's.
type Refusal = (StatusCode, &'static str, &'static str);

const MISSING: Refusal =
    (StatusCode::FORBIDDEN, "MissingAuthenticationToken", "Request is missing Authentication Token");
const INCOMPLETE: Refusal =
    (StatusCode::BAD_REQUEST, "IncompleteSignature", "The request signature does not conform to AWS standards.");
const WRONG: Refusal = (
    StatusCode::FORBIDDEN,
    "SignatureDoesNotMatch",
    "The request signature we calculated does not match the signature you provided. Check your AWS Secret Access Key and signing method.",
);
const SCOPE: Refusal = (
    StatusCode::FORBIDDEN,
    "SignatureDoesNotMatch",
    "Credential should be scoped to a valid region and to the service iam or sts.",
);
const SKEWED: Refusal = (
    StatusCode::FORBIDDEN,
    "SignatureDoesNotMatch",
    "Signature expired: the clocks of client and server differ too much.",
);
const UNKNOWN: Refusal =
    (StatusCode::FORBIDDEN, "InvalidClientTokenId", "The security token included in the request is invalid.");
const EXPIRED: Refusal =
    (StatusCode::FORBIDDEN, "ExpiredToken", "The security token included in the request is expired");

/// Which service a request was signed for, though not whether by whom it says.
pub(crate) fn service_of(headers: &HeaderMap) -> Option<&str> {
    Authorization::of_any_region(single(headers, &AUTHORIZATION)?).map(|authorization| authorization.service)
}

impl Verifier {
    /// Who sent a form.
    ///
    /// # Errors
    /// With what the client is told.
    pub(crate) fn form(&self, parts: &Parts, path: &str, query: &Query, body: &[u8]) -> Result<Credential, Refusal> {
        if !parts.headers.contains_key(AUTHORIZATION) {
            return Err(MISSING);
        }
        let header = single(&parts.headers, &AUTHORIZATION).ok_or(INCOMPLETE)?;
        let authorization = Authorization::of_any_region(header).ok_or(INCOMPLETE)?;
        let date = single(&parts.headers, &AMZ_DATE).ok_or(INCOMPLETE)?;
        let parsed = AmzDate::parse(date).map_err(|_| INCOMPLETE)?;
        let age_ms = unix_seconds(date).and_then(|signed_s| self.age_ms(signed_s)).ok_or(INCOMPLETE)?;
        let Authorization { service, region, .. } = authorization;
        let in_scope =
            matches!(service, "iam" | "sts") && (region == &*self.region || GLOBAL_REGIONS.contains(&region));
        if !in_scope || date.get(..DAY_BYTES) != Some(authorization.day) {
            return Err(SCOPE);
        }
        if age_ms.unsigned_abs() > SKEW_MS_MAX {
            return Err(SKEWED);
        }
        let token = session_token(&parts.headers, query).map_err(|_| UNKNOWN)?;
        let credential = self.credentials.find(authorization.access_key, token).map_err(|refusal| match refusal {
            NoCredential::UnknownKey | NoCredential::InvalidToken => UNKNOWN,
            NoCredential::ExpiredToken => EXPIRED,
        })?;
        let names: Vec<&str> = authorization.signed_headers.split(';').collect();
        if !names.contains(&"host") {
            return Err(INCOMPLETE);
        }
        let lines = signed_lines(&parts.headers, &names).ok_or(INCOMPLETE)?;
        let hash = to_hex(Sha256::digest(body).into());
        let hash = std::str::from_utf8(&hash).expect("they are digits");
        let method = parts.method.as_str();
        let canonical =
            s3s_sigv4::create_canonical_request(method, path, query.pairs(), &lines, Payload::SingleChunk(hash));
        let text = s3s_sigv4::create_string_to_sign(&canonical, &parsed, region, service);
        let key = s3s_sigv4::derive_signing_key(credential.secret.expose(), &parsed, region, service);
        let expected = hex::encode(s3s_sigv4::calculate_signature_with_key(&text, &key));
        if bool::from(expected.as_bytes().ct_eq(authorization.signature.as_bytes())) {
            Ok(credential)
        } else {
            Err(WRONG)
        }
    }
}
