//! Checks of a request's head before its signature is verified.
//!
//! None of them lets a request in; each refuses one that s3s would judge too kindly, or word otherwise than AWS. Sources: AWS, "Authenticating
//! Requests (AWS Signature Version 4)", "Signature Calculations".

use http::HeaderMap;
use http::header::AUTHORIZATION;
use http::request::Parts;

use super::version_4;
use crate::credentials::CredentialStore;
use crate::error::{S3Code, S3Error};
use crate::s3::{Operation, Query};

const ONE_MECHANISM: &str = "Only one auth mechanism allowed; only the X-Amz-Algorithm query parameter, Signature \
    query string parameter or the Authorization header should be specified";
const SIGV4_ONLY: &str = "The authorization mechanism you have provided is not supported. Please use AWS4-HMAC-SHA256.";

/// Of whom a request is asked, and when.
pub(crate) struct Asked<'a> {
    pub(crate) region: &'a str,
    pub(crate) now_ms: u64,
    pub(crate) credentials: &'a dyn CredentialStore,
    /// Whether Signature Version 2 is accepted.
    pub(crate) sigv2: bool,
    /// What is asked for, if that is anything.
    pub(crate) operation: Option<Operation>,
    /// How long its body is, if HTTP says so.
    pub(crate) body_bytes: Option<u64>,
}

/// Checks a request's head.
///
/// # Errors
/// With what the client is told.
pub(crate) fn check(parts: &Parts, query: &Query, asked: &Asked<'_>) -> Result<(), S3Error> {
    let authorization = authorization(&parts.headers)?;
    let presigned_v4 = query.has("X-Amz-Signature") || query.has("X-Amz-Algorithm") || query.has("X-Amz-Credential");
    let presigned_v2 = query.has("Signature") || query.has("AWSAccessKeyId");
    if usize::from(authorization.is_some()) + usize::from(presigned_v4) + usize::from(presigned_v2) > 1 {
        return Err(S3Error::with(S3Code::InvalidArgument, ONE_MECHANISM));
    }
    decoded_length_is_a_number(&parts.headers)?;
    let signed_v2 = presigned_v2 || authorization.is_some_and(|value| value.starts_with("AWS "));
    match authorization {
        _ if signed_v2 && !asked.sigv2 => Err(S3Error::request(SIGV4_ONLY)),
        _ if signed_v2 => {
            version_4::version_2(parts)?;
            check_token(parts, query, authorization, asked.credentials)
        }
        Some(authorization) => version_4::header(parts, query, authorization, asked),
        None if presigned_v4 => version_4::presigned(parts, query, asked),
        None => version_4::anonymous(parts, asked),
    }
}

fn authorization(headers: &HeaderMap) -> Result<Option<&str>, S3Error> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => match value.to_str() {
            Ok(value) => Ok(Some(value)),
            Err(_) => Err(S3Error::argument("Authorization", "", "Unsupported Authorization Type")),
        },
        (Some(_), Some(_)) => Err(S3Error::with(S3Code::InvalidArgument, ONE_MECHANISM)),
    }
}

/// The session token of a request, in a header or in its query; an empty one counts as absent.
///
/// # Errors
/// `InvalidToken` when there is more than one, or one that is no text.
pub(crate) fn session_token<'a>(headers: &'a HeaderMap, query: &'a Query) -> Result<Option<&'a str>, S3Error> {
    let headers = headers.get_all(SECURITY_TOKEN).iter().map(|token| std::str::from_utf8(token.as_bytes()).ok());
    let named = |(name, token): (&'a str, &'a str)| name.eq_ignore_ascii_case(SECURITY_TOKEN).then_some(Some(token));
    let mut tokens = headers.chain(query.iter().filter_map(named)).filter(|token| *token != Some(""));
    match (tokens.next(), tokens.next()) {
        (None, _) => Ok(None),
        (Some(Some(token)), None) => Ok(Some(token)),
        _ => Err(S3Code::InvalidToken.into()),
    }
}

const SECURITY_TOKEN: &str = "x-amz-security-token";

/// Temporary credentials of Version 2 are judged before the signature, as on AWS: who has no valid token learns nothing by it.
fn check_token(
    parts: &Parts,
    query: &Query,
    authorization: Option<&str>,
    credentials: &dyn CredentialStore,
) -> Result<(), S3Error> {
    let Some(token) = session_token(&parts.headers, query)? else { return Ok(()) };
    // One that can not be read is refused by s3s, for that.
    let Some(access_key) = access_key(authorization, query) else { return Ok(()) };
    match credentials.find(access_key, Some(token)) {
        Ok(_) => Ok(()),
        Err(refusal) => Err(refusal.into()),
    }
}

/// The access key that a request names which is signed in Version 2.
fn access_key<'a>(authorization: Option<&'a str>, query: &'a Query) -> Option<&'a str> {
    let key = match authorization {
        Some(header) => header.strip_prefix("AWS ")?.split(':').next()?,
        None => query.get("AWSAccessKeyId").ok()??,
    };
    Some(key.trim())
}

fn decoded_length_is_a_number(headers: &HeaderMap) -> Result<(), S3Error> {
    let name = "x-amz-decoded-content-length";
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(()) };
    let digits = value.as_bytes();
    if values.next().is_none() && (1..=19).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit) {
        return Ok(());
    }
    Err(S3Code::MissingContentLength.into())
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;
    use crate::credentials::Credentials;

    /// 2026-01-01T00:10:00Z.
    const NOW_MS: u64 = 1_767_226_200_000;
    const DATE: (&str, &str) = ("x-amz-date", "20260101T000000Z");
    const CONTENT: (&str, &str) = ("x-amz-content-sha256", "UNSIGNED-PAYLOAD");
    const NAMES: &str = "host;x-amz-date";

    fn refused(query: &str, headers: &[(&str, &str)], sigv2: bool) -> Option<S3Error> {
        let mut request = Request::builder().method("PUT").uri(format!("/bkt/k?{query}"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let query = Query::parse(query).unwrap();
        let asked = Asked {
            region: "eu-lab",
            now_ms: NOW_MS,
            credentials: &Credentials::new("AK", "secret"),
            sigv2,
            operation: Some(Operation::PutObject),
            body_bytes: Some(0),
        };
        check(&parts, &query, &asked).err()
    }

    fn code(query: &str, headers: &[(&str, &str)]) -> Option<S3Code> {
        refused(query, headers, false).map(|error| error.code)
    }

    fn header(credential: &str, names: &str) -> String {
        format!("AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={names}, Signature=00")
    }

    /// What is said of this `Authorization`, with headers that are in order.
    fn said(authorization: &str, more: &[(&str, &str)]) -> Option<(S3Code, String)> {
        let headers = [&[("authorization", authorization), DATE, CONTENT][..], more].concat();
        refused("", &headers, false).map(|error| (error.code, error.message.into_owned()))
    }

    const GOOD: &str = "AK/20260101/eu-lab/s3/aws4_request";

    #[test]
    fn faults_of_the_authorization_header_are_worded_as_on_aws() {
        let malformed = |text: &str| {
            Some((S3Code::AuthorizationHeaderMalformed, format!("The authorization header is malformed; {text}")))
        };
        let invalid = |text: &str| Some((S3Code::InvalidArgument, text.to_owned()));
        let by = |credential: &str| header(credential, NAMES);
        let parts = "the authorization header requires three components: Credential, SignedHeaders, and Signature.";
        let scope = "the Credential is mal-formed; expecting \"<YOUR-AKID>/YYYYMMDD/REGION/SERVICE/aws4_request\".";
        for (authorization, expected) in [
            (by(GOOD), None),
            ("x".into(), invalid("Authorization header is invalid -- one and only one ' ' (space) required.")),
            ("Bearer x".into(), invalid("Unsupported Authorization Type")),
            (by(GOOD).replace("HMAC-SHA256", "ECDSA-P256-SHA256"), invalid("Unsupported Authorization Type")),
            (by(GOOD).replace(" SignedHeaders=host;x-amz-date,", ""), malformed(parts)),
            (by(GOOD).replace(", ", ",,"), malformed(parts)),
            (
                by(GOOD).replace("SignedHeaders=", "SignedHeaders-"),
                malformed("the authorization component \"SignedHeaders-host;x-amz-date\" is malformed."),
            ),
            (by(GOOD).replace("Credential=", "x="), malformed("missing Credential.")),
            (by(GOOD).replace("SignedHeaders=", "x="), malformed("missing SignedHeaders.")),
            (by(GOOD).replace("Signature=", "x="), malformed("missing Signature.")),
            (by("AK"), malformed(scope)),
            (by(&GOOD.replace("/eu-lab", "")), malformed(scope)),
            (by(&format!("{GOOD}/x")), malformed(scope)),
            (by(&GOOD.replace("s3", "ec2")), malformed("incorrect service \"ec2\". This endpoint belongs to \"s3\".")),
            (
                by(&GOOD.replace("aws4", "aws5")),
                malformed("incorrect terminal \"aws5_request\". This endpoint uses \"aws4_request\"."),
            ),
            (
                by(&GOOD.replace("20260101", "20261301")),
                malformed(
                    "incorrect date format \"20261301\". This date in the credential must be in the format \"yyyyMMdd\".",
                ),
            ),
            (by(&GOOD.replace("eu-lab", "x")), malformed("the region 'x' is wrong; expecting 'eu-lab'")),
            (
                by(&GOOD.replace("20260101", "20260102")),
                malformed("Invalid credential date. Date is not the same as X-Amz-Date."),
            ),
            (
                by(&GOOD.replace("AK", "NO")),
                Some((
                    S3Code::InvalidAccessKeyId,
                    "The AWS Access Key Id you provided does not exist in our records.".into(),
                )),
            ),
        ] {
            assert_eq!(said(&authorization, &[]), expected, "{authorization}");
        }
    }

    #[test]
    fn whatever_counts_is_signed() {
        let names = |names: &str, more: &[(&str, &str)]| {
            let signed = header(GOOD, names);
            let headers = [&[("authorization", &*signed), DATE, CONTENT][..], more].concat();
            refused("", &headers, false).map(|error| (error.code, error.details[0].1.clone()))
        };
        let unsigned = |names: &str| Some((S3Code::AccessDenied, names.to_owned()));
        let more = [("x-amz-tagging", "a=b"), ("x-amz-copy-source", "b/k"), ("content-type", "text/plain")];
        assert_eq!(names("Host;X-Amz-Date", &[]), None);
        assert_eq!(names("hostx;xhost;x-amz-date", &[]), unsigned("host"));
        assert_eq!(names("host", &[]), unsigned("x-amz-date"));
        assert_eq!(names("host;x-amz-date", &more), unsigned("x-amz-copy-source, x-amz-tagging"));
        assert_eq!(names("host;x-amz-date;x-amz-copy-source;x-amz-tagging", &more), None);
        // Each time its value is signed: of many that would be far more than was sent.
        let often = header(GOOD, &format!("host;x-amz-date{}", ";x-amz-date".repeat(50)));
        assert_eq!(said(&often, &[]).map(|(code, _)| code), Some(S3Code::SignatureDoesNotMatch));
    }

    #[test]
    fn what_a_request_says_of_its_body_is_checked() {
        let good = header(GOOD, "host;x-amz-date;x-amz-decoded-content-length");
        let content = |value: &str, more: &[(&str, &str)]| {
            code("", &[&[("authorization", &*good), DATE, ("x-amz-content-sha256", value)][..], more].concat())
        };
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let length = &[("x-amz-decoded-content-length", "1")][..];
        for (value, more, expected) in [
            ("UNSIGNED-PAYLOAD", &[][..], None),
            (empty, &[], None),
            (&empty.replace('e', "f"), &[], Some(S3Code::XAmzContentSHA256Mismatch)),
            (&empty.to_uppercase(), &[], Some(S3Code::InvalidArgument)),
            ("47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=", &[], Some(S3Code::InvalidArgument)),
            ("STREAMING", &[], Some(S3Code::InvalidArgument)),
            ("", &[], Some(S3Code::InvalidRequest)),
            ("STREAMING-UNSIGNED-PAYLOAD-TRAILER", length, None),
            ("STREAMING-AWS4-HMAC-SHA256-PAYLOAD", length, None),
            ("STREAMING-AWS4-HMAC-SHA256-PAYLOAD", &[], Some(S3Code::MissingContentLength)),
            ("STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD", length, Some(S3Code::InvalidRequest)),
        ] {
            assert_eq!(content(value, more), expected, "{value}");
        }
        for bad in ["12abc", "-1", "", "12345678901234567890"] {
            let more = [("x-amz-decoded-content-length", bad)];
            assert_eq!(content("UNSIGNED-PAYLOAD", &more), Some(S3Code::MissingContentLength), "{bad}");
        }
        let nobodys =
            |value: &str, more: &[(&str, &str)]| code("", &[&[("x-amz-content-sha256", value)][..], more].concat());
        assert_eq!(nobodys("UNSIGNED-PAYLOAD", &[]), None);
        assert_eq!(nobodys(empty, &[]), None);
        assert_eq!(nobodys("nonsense", &[]), Some(S3Code::XAmzContentSHA256Mismatch));
        assert_eq!(nobodys("STREAMING-UNSIGNED-PAYLOAD-TRAILER", length), None);
        assert_eq!(nobodys("STREAMING-UNSIGNED-PAYLOAD-TRAILER", &[]), Some(S3Code::MissingContentLength));
        assert_eq!(nobodys("STREAMING-AWS4-HMAC-SHA256-PAYLOAD", length), Some(S3Code::InvalidRequest));
    }

    #[test]
    fn a_header_holds_for_minutes() {
        let at = |date: &'static str| {
            let good = header(&GOOD.replace("20260101", &date[..8]), NAMES);
            refused("", &[("authorization", &good), ("x-amz-date", date), CONTENT], false)
        };
        assert!(at("20260101T002500Z").is_none());
        assert!(at("20251231T235500Z").is_none());
        for date in ["20260101T002501Z", "20251231T235459Z"] {
            let error = at(date).unwrap();
            assert_eq!(error.code, S3Code::RequestTimeTooSkewed);
            let details = [
                ("RequestTime", date.to_owned()),
                ("ServerTime", "2026-01-01T00:10:00Z".to_owned()),
                ("MaxAllowedSkewMilliseconds", "900000".to_owned()),
            ];
            assert_eq!(error.details, details);
        }
        let good = header(GOOD, NAMES);
        for dates in [&[][..], &[("x-amz-date", "")], &[("x-amz-date", "03032006")], &[DATE, DATE]] {
            let headers = [&[("authorization", &*good), CONTENT][..], dates].concat();
            let error = refused("", &headers, false).unwrap();
            assert_eq!(
                (error.code, &*error.message),
                (S3Code::AccessDenied, "AWS authentication requires a valid Date or x-amz-date header")
            );
        }
    }

    #[test]
    fn faults_of_presigned_requests_are_worded_as_on_aws() {
        let good = format!(
            "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={GOOD}&X-Amz-Date=20260101T000000Z&X-Amz-Signature=0\
             &X-Amz-Expires=700&X-Amz-SignedHeaders=host"
        );
        let with = |from: &str, to: &str| {
            let error = refused(&good.replace(from, to), &[], false)?;
            Some((error.code, error.message.into_owned()))
        };
        let wrong = |text: &str| Some((S3Code::AuthorizationQueryParametersError, text.to_owned()));
        let denied = |text: &str| Some((S3Code::AccessDenied, text.to_owned()));
        let unparsed = |text: &str| wrong(&format!("Error parsing the X-Amz-Credential parameter; {text}"));
        let incomplete = "Query-string authentication version 4 requires the X-Amz-Algorithm, X-Amz-Credential, \
            X-Amz-Signature, X-Amz-Date, X-Amz-SignedHeaders, and X-Amz-Expires parameters.";
        let too_long = "X-Amz-Expires must be less than a week (in seconds); that is, the given X-Amz-Expires must be \
            less than 604800 seconds";
        for (from, to, expected) in [
            ("", "", None),
            ("=host", "=Host", None),
            ("Expires=700", "Expires=604800", None),
            ("=host", "=x", denied("There were headers present in the request which were not signed")),
            ("=host", "=", denied("There were headers present in the request which were not signed")),
            ("X-Amz-Date=", "x=", wrong(incomplete)),
            ("=host", "=host&X-Amz-SignedHeaders=x", wrong(incomplete)),
            (
                "HMAC-SHA256",
                "SHA256",
                wrong("X-Amz-Algorithm only supports \"AWS4-HMAC-SHA256 and AWS4-ECDSA-P256-SHA256\""),
            ),
            ("HMAC-SHA256", "ECDSA-P256-SHA256", wrong("X-Amz-Algorithm only supports \"AWS4-HMAC-SHA256\"")),
            ("eu-lab", "x", unparsed("the region 'x' is wrong; expecting 'eu-lab'")),
            ("/s3/", "/sns/", unparsed("incorrect service \"sns\". This endpoint belongs to \"s3\".")),
            ("T000000Z", "", wrong("X-Amz-Date must be in the ISO8601 Long Format \"yyyyMMdd'T'HHmmss'Z'\"")),
            (
                "/20260101/",
                "/20060102/",
                wrong("Invalid credential date \"20060102\". This date is not the same as X-Amz-Date: \"20260101\"."),
            ),
            ("Expires=700", "Expires=604801", wrong(too_long)),
            ("Expires=700", "Expires=-1", wrong("X-Amz-Expires must be non-negative")),
            ("Expires=700", "Expires=soon", wrong("X-Amz-Expires should be a number")),
            ("Expires=700", "Expires=599", denied("Request has expired")),
            ("T000000Z", "T002501Z", denied("Request is not yet valid")),
        ] {
            assert_eq!(with(from, to), expected, "{from} {to}");
        }
        let expired = refused(&good.replace("=700", "=60"), &[], false).unwrap();
        let details = [
            ("X-Amz-Expires", "60".to_owned()),
            ("Expires", "2026-01-01T00:01:00Z".to_owned()),
            ("ServerTime", "2026-01-01T00:10:00Z".to_owned()),
        ];
        assert_eq!(expired.details, details);
        let acl = [("x-amz-acl", "private")];
        assert_eq!(code(&good, &acl), Some(S3Code::AccessDenied));
        let streamed = [("x-amz-content-sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER")];
        assert_eq!(code(&good, &streamed), Some(S3Code::InvalidRequest));
        let token = format!("{good}&X-Amz-Security-Token=t");
        assert_eq!(code(&token, &[]), Some(S3Code::InvalidToken));
        assert_eq!(code(&token.replace("AK/", "NO/"), &[]), Some(S3Code::InvalidAccessKeyId));
    }

    #[test]
    fn a_request_is_signed_once() {
        let good = header(GOOD, NAMES);
        let authorization = ("authorization", &*good);
        for (query, headers) in [
            ("", &[authorization, authorization][..]),
            ("X-Amz-Signature=1", &[authorization]),
            ("Signature=1", &[authorization]),
            ("Signature=1&X-Amz-Signature=1", &[]),
        ] {
            assert_eq!(code(query, headers), Some(S3Code::InvalidArgument), "{query}");
        }
        let token = ("x-amz-security-token", "t");
        let signed = header(GOOD, "host;x-amz-date;x-amz-security-token");
        assert_eq!(code("", &[("authorization", &signed), DATE, CONTENT, token]), Some(S3Code::InvalidToken));
        let twice = [("authorization", &*signed), DATE, CONTENT, token];
        assert_eq!(code("X-Amz-Security-Token=t", &twice), Some(S3Code::InvalidToken));
        let empty = [("authorization", &*signed), DATE, CONTENT, ("x-amz-security-token", "")];
        assert_eq!(code("", &empty), None);
        assert_eq!(code("", &[token]), None);
    }

    #[test]
    fn signature_version_2_is_let_through_when_it_is_wanted() {
        let signed = [("authorization", "AWS AK:sig")];
        let query = "AWSAccessKeyId=AK&Signature=b&Expires=1";
        assert_eq!(code("", &signed), Some(S3Code::InvalidRequest));
        assert_eq!(code(query, &[]), Some(S3Code::InvalidRequest));
        assert!(refused("", &signed, true).is_none());
        assert!(refused(query, &[], true).is_none());
        let streamed = ("x-amz-content-sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER");
        assert_eq!(refused("", &[signed[0], streamed], true).unwrap().code, S3Code::InvalidRequest);
        let token = ("x-amz-security-token", "t");
        assert_eq!(refused("", &[signed[0], token], true).unwrap().code, S3Code::InvalidToken);
    }
}
