//! What a client is told whose signature is another than ours: the texts that we have signed, so that it can compare them with its own.
//!
//! Made from the request alone, once s3s has refused it: nothing of it is a secret, and what might hold one is left out.

use std::fmt::Write;

use http::header::AUTHORIZATION;
use http::request::Parts;
use http::{HeaderMap, Method, Uri};
use s3s_sigv4::PresignedUrlV4;
use sha2::{Digest, Sha256};

use super::authorization::Authorization;
use super::canonical::Fields;
use super::date::DAY_BYTES;
use super::{ALGORITHM, EXPIRES_S_MAX, SERVICE, signed_lines, single};
use crate::error::{S3Code, S3Error};
use crate::s3::{Query, decoded_path, echo};

/// Longest text that is told, in bytes.
const TEXT_BYTES_MAX: usize = 4096;
/// Headers and parameters in whose texts secrets stand.
const SECRET: [&str; 2] = ["x-amz-security-token", "-customer-key"];
/// Beginnings of headers that clients send and may be told again. Others may have been added on the way, or by a browser, and be none of their business.
const CLIENTS: [&str; 12] = [
    "accept",
    "amz-sdk-",
    "cache-control",
    "content-",
    "date",
    "expect",
    "expires",
    "host",
    "if-",
    "range",
    "user-agent",
    "x-amz-",
];

/// The head of a request, kept until s3s has verified it.
pub(crate) struct Said {
    method: Method,
    uri: Uri,
    headers: HeaderMap,
}

/// What a request says of its signature, and what we would have signed.
struct Signed {
    access_key: String,
    signature: String,
    /// When, in which region, and the text.
    canonical: Option<(String, String, String)>,
}

impl Said {
    pub(crate) fn of(parts: &Parts) -> Self {
        Self { method: parts.method.clone(), uri: parts.uri.clone(), headers: parts.headers.clone() }
    }

    /// What the client is told when s3s refuses the request with this code, if we have words of our own for that.
    pub(crate) fn refusal(&self, code: &str) -> Option<S3Error> {
        let code = [S3Code::SignatureDoesNotMatch, S3Code::InvalidAccessKeyId, S3Code::RequestTimeTooSkewed]
            .into_iter()
            .find(|known| known.as_str() == code)?;
        let mut error = S3Error::new(code);
        let Some(signed) = self.signed().filter(|_| code != S3Code::RequestTimeTooSkewed) else { return Some(error) };
        error = error.detail("AWSAccessKeyId", echo(&signed.access_key));
        if code != S3Code::SignatureDoesNotMatch {
            return Some(error);
        }
        let Some((date, region, canonical)) = signed.canonical else {
            return Some(error.detail("SignatureProvided", echo(&signed.signature)));
        };
        let hash = hex::encode(Sha256::digest(&canonical));
        let day = date.get(..DAY_BYTES).unwrap_or_default();
        let text = format!("{ALGORITHM}\n{date}\n{day}/{region}/{SERVICE}/aws4_request\n{hash}");
        error = explain(error, &signed.signature, &text);
        if canonical.len() <= TEXT_BYTES_MAX && may_be_told(&canonical) {
            let bytes = in_bytes(&canonical);
            error = error.detail("CanonicalRequest", canonical).detail("CanonicalRequestBytes", bytes);
        }
        Some(error)
    }

    fn signed(&self) -> Option<Signed> {
        let query = Query::parse(self.uri.query().unwrap_or_default()).ok()?;
        let path = decoded_path(&self.uri).ok()?;
        let method = self.method.as_str();
        if let Some(header) = single(&self.headers, &AUTHORIZATION) {
            let signed = Authorization::parse(header)?;
            let text = Fields::none().read(&self.headers).and_then(|fields| {
                let text = fields.canonical_request(method, &path, &query, signed.signed_headers)?;
                Some((fields.date.to_owned(), signed.region.to_owned(), String::from_utf8(text).ok()?))
            });
            return Some(Signed {
                access_key: signed.access_key.into(),
                signature: signed.signature.into(),
                canonical: text,
            });
        }
        let url = PresignedUrlV4::parse(query.pairs(), EXPIRES_S_MAX).ok()?;
        let text = signed_lines(&self.headers, &url.signed_headers).map(|lines| {
            let text = s3s_sigv4::create_presigned_canonical_request(method, &path, query.pairs(), &lines);
            (url.amz_date.fmt_iso8601().to_string(), url.credential.aws_region.to_owned(), text)
        });
        Some(Signed {
            access_key: url.credential.access_key_id.into(),
            signature: url.signature.into(),
            canonical: text,
        })
    }
}

/// Whether nothing in a canonical request could be a secret.
fn may_be_told(canonical: &str) -> bool {
    let lower = canonical.to_ascii_lowercase();
    let names = lower.rsplit('\n').nth(1).unwrap_or_default();
    !SECRET.iter().any(|name| lower.contains(name))
        && names.split(';').all(|name| CLIENTS.iter().any(|begins| name.starts_with(begins)))
}

/// Adds which text we have signed instead of what gave `signature`.
pub(in crate::auth) fn explain(error: S3Error, signature: &str, text: &str) -> S3Error {
    if text.len() > TEXT_BYTES_MAX {
        return error.detail("SignatureProvided", echo(signature));
    }
    error
        .detail("StringToSign", text)
        .detail("SignatureProvided", echo(signature))
        .detail("StringToSignBytes", in_bytes(text))
}

/// In hexadecimal digits, with a space between bytes, as AWS shows them.
fn in_bytes(text: &str) -> String {
    let mut shown = String::with_capacity(3 * text.len());
    for (i, byte) in text.bytes().enumerate() {
        let separator = if i > 0 { " " } else { "" };
        // A string takes whatever is written to it.
        let _ = write!(shown, "{separator}{byte:02x}");
    }
    shown
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn told(header: &str, name: &str, value: &str) -> S3Error {
        let request = Request::builder()
            .uri("/bkt/k?b=1&a")
            .header("host", "h")
            .header("authorization", header)
            .header("x-amz-date", "20260101T000000Z")
            .header("x-amz-content-sha256", "UNSIGNED-PAYLOAD")
            .header(name, value);
        let (parts, ()) = request.body(()).unwrap().into_parts();
        Said::of(&parts).refusal("SignatureDoesNotMatch").unwrap()
    }

    #[test]
    fn texts_are_told_without_secrets() {
        let header = |names: &str| {
            format!(
                "AWS4-HMAC-SHA256 Credential=AK/20260101/r/s3/aws4_request, SignedHeaders=host;{names}, Signature=00"
            )
        };
        let names = |error: &S3Error| error.details.iter().map(|(name, _)| *name).collect::<Vec<_>>();
        let error = told(&header("x-amz-content-sha256;x-amz-date;x-amz-meta-a"), "x-amz-meta-a", "b");
        let whole = [
            "AWSAccessKeyId",
            "StringToSign",
            "SignatureProvided",
            "StringToSignBytes",
            "CanonicalRequest",
            "CanonicalRequestBytes",
        ];
        assert_eq!(names(&error), whole);
        assert_eq!(
            error.details[4].1,
            "GET\n/bkt/k\na=&b=1\nhost:h\nx-amz-content-sha256:UNSIGNED-PAYLOAD\nx-amz-date:20260101T000000Z\n\
             x-amz-meta-a:b\n\nhost;x-amz-content-sha256;x-amz-date;x-amz-meta-a\nUNSIGNED-PAYLOAD"
        );
        assert!(error.details[1].1.starts_with("AWS4-HMAC-SHA256\n20260101T000000Z\n20260101/r/s3/aws4_request\n"));
        assert!(error.details[3].1.starts_with("41 57 53 34 "));
        let secrets = ["x-amz-security-token", "x-amz-server-side-encryption-customer-key"];
        for secret in secrets {
            let error = told(&header(&format!("{secret};x-amz-content-sha256;x-amz-date")), secret, "secret");
            assert_eq!(names(&error), whole[..4], "{secret}");
        }
        let long = told(&header("x-amz-content-sha256;x-amz-date;x-amz-meta-a"), "x-amz-meta-a", &"b".repeat(5000));
        assert_eq!(names(&long), whole[..4]);
    }
}
