//! Checks of a request's head before its signature is verified.
//!
//! None of them lets a request in; each refuses one that s3s would judge too kindly. Sources: AWS, "Authenticating
//! Requests (AWS Signature Version 4)", "Signature Calculations".

use http::HeaderMap;
use http::header::AUTHORIZATION;
use http::request::Parts;

use crate::credentials::CredentialStore;
use crate::error::{S3Code, S3Error};
use crate::s3::Query;

const ONE_MECHANISM: &str = "Only one auth mechanism allowed; only the X-Amz-Algorithm query parameter, Signature \
    query string parameter or the Authorization header should be specified";
const SIGV4_ONLY: &str = "The authorization mechanism you have provided is not supported. Please use AWS4-HMAC-SHA256.";
const NOT_SIGNED: &str = "There were headers present in the request which were not signed";

const INCOMPLETE: &str = "Query-string authentication version 4 requires the X-Amz-Algorithm, X-Amz-Credential, X-Amz-Signature, \
    X-Amz-Date, X-Amz-SignedHeaders, and X-Amz-Expires parameters.";
const TOO_LONG: &str = "X-Amz-Expires must be less than a week (in seconds); that is, the given X-Amz-Expires must be less than 604800 seconds";
/// A week.
const EXPIRES_MAX_S: i64 = 604_800;

/// Checks a request's head.
///
/// # Errors
/// With what the client is told.
pub(crate) fn check(
    parts: &Parts,
    query: &Query,
    sigv2: bool,
    credentials: &dyn CredentialStore,
) -> Result<(), S3Error> {
    let authorization = authorization(&parts.headers)?;
    let presigned_v4 = query.has("X-Amz-Signature") || query.has("X-Amz-Algorithm") || query.has("X-Amz-Credential");
    let presigned_v2 = query.has("Signature") || query.has("AWSAccessKeyId");
    if usize::from(authorization.is_some()) + usize::from(presigned_v4) + usize::from(presigned_v2) > 1 {
        return Err(S3Error::with(S3Code::InvalidArgument, ONE_MECHANISM));
    }
    let signed_v2 = presigned_v2 || authorization.is_some_and(|value| value.starts_with("AWS "));
    if signed_v2 && !sigv2 {
        return Err(S3Error::request(SIGV4_ONLY));
    }
    if let Some(authorization) = authorization
        && !signed_v2
    {
        host_is_signed(signed_headers(authorization)?)?;
    }
    if presigned_v4 {
        presigned_is_complete(query)?;
    }
    decoded_length_is_a_number(&parts.headers)?;
    check_token(parts, query, authorization, credentials)
}

fn authorization(headers: &HeaderMap) -> Result<Option<&str>, S3Error> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => match value.to_str() {
            Ok(value) => Ok(Some(value)),
            Err(_) => Err(S3Code::AuthorizationHeaderMalformed.into()),
        },
        (Some(_), Some(_)) => Err(S3Error::with(S3Code::InvalidArgument, ONE_MECHANISM)),
    }
}

/// A presigned request has all its parameters, each once, and holds for a week at most.
fn presigned_is_complete(query: &Query) -> Result<(), S3Error> {
    let wrong = |message: &'static str| S3Error::with(S3Code::AuthorizationQueryParametersError, message);
    let get = |name: &str| query.get(name).ok().flatten().ok_or_else(|| wrong(INCOMPLETE));
    for name in ["X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Signature", "X-Amz-Date"] {
        get(name)?;
    }
    let signed = get("X-Amz-SignedHeaders")?;
    let expires = get("X-Amz-Expires")?;
    let seconds: i64 = expires.parse().map_err(|_| wrong("X-Amz-Expires should be a number"))?;
    match seconds {
        ..0 => return Err(wrong("X-Amz-Expires must be non-negative")),
        0..=EXPIRES_MAX_S => {}
        _ => return Err(wrong(TOO_LONG)),
    }
    host_is_signed(signed)
}

/// The list behind `SignedHeaders=`, of which there must be one.
fn signed_headers(authorization: &str) -> Result<&str, S3Error> {
    let mut lists = authorization.split("SignedHeaders=").skip(1);
    match (lists.next(), lists.next()) {
        (Some(rest), None) => Ok(rest.split(',').next().unwrap_or_default().trim()),
        _ => Err(S3Error::new(S3Code::AuthorizationHeaderMalformed)),
    }
}

/// Without `host` in the signature, a request for one server or bucket could be replayed to another.
fn host_is_signed(list: &str) -> Result<(), S3Error> {
    if list.split(';').any(|name| name.eq_ignore_ascii_case("host")) {
        Ok(())
    } else {
        Err(S3Error::with(S3Code::AccessDenied, NOT_SIGNED).detail("HeadersNotSigned", "host"))
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

/// Temporary credentials are judged before the signature, as on AWS: who has no valid token learns nothing by it.
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

/// The access key that a request names, however it is signed.
fn access_key<'a>(authorization: Option<&'a str>, query: &'a Query) -> Option<&'a str> {
    let of_scope = |scope: &'a str| scope.split('/').next();
    let key = match authorization {
        Some(header) => match header.strip_prefix("AWS ") {
            Some(version_2) => version_2.split(':').next()?,
            None => of_scope(header.split_once("Credential=")?.1.split(',').next()?)?,
        },
        None => match query.get("X-Amz-Credential").ok()? {
            Some(scope) => of_scope(scope)?,
            None => query.get("AWSAccessKeyId").ok()??,
        },
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
    Err(S3Error::argument(name, &String::from_utf8_lossy(digits), "The length is not a number of bytes."))
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;
    use crate::credentials::Credentials;

    const GOOD: &str = "AWS4-HMAC-SHA256 Credential=AK/20260101/us-east-1/s3/aws4_request, \
        SignedHeaders=host;x-amz-date, Signature=00";
    const OTHER: &str = "AWS4-HMAC-SHA256 Credential=other/20260101/us-east-1/s3/aws4_request, \
        SignedHeaders=host;x-amz-date, Signature=00";

    fn refused(method: &str, query: &str, headers: &[(&str, &str)], sigv2: bool) -> Option<S3Code> {
        let mut request = Request::builder().method(method).uri(format!("/bkt/k?{query}"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let query = Query::parse(query).unwrap();
        check(&parts, &query, sigv2, &Credentials::new("AK", "secret")).err().map(|error| error.code)
    }

    #[test]
    fn heads_that_are_refused() {
        let unsigned_host = "AWS4-HMAC-SHA256 Credential=c, SignedHeaders=x-amz-date, Signature=00";
        let similar = "AWS4-HMAC-SHA256 Credential=c, SignedHeaders=hostx;xhost, Signature=00";
        let twice = "AWS4-HMAC-SHA256 SignedHeaders=host, SignedHeaders=x-amz-date, Signature=00";
        let none = "AWS4-HMAC-SHA256 Credential=c, Signature=00";
        let dated = "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=c&X-Amz-Date=d&X-Amz-Signature=0";
        let expiring = |seconds: &str| format!("{dated}&X-Amz-Expires={seconds}&X-Amz-SignedHeaders=host");
        let presigned = &format!("{dated}&X-Amz-Expires=60&X-Amz-SignedHeaders=");
        let presigned_by = |key: &str| {
            expiring("60").replace("Credential=c", &format!("Credential={key}%2F20260101%2Fr%2Fs3%2Faws4_request"))
        };
        type Row<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)], Option<S3Code>);
        let table: &[Row<'_>] = &[
            ("GET", "", &[], None),
            ("GET", "", &[("authorization", GOOD)], None),
            ("GET", "", &[("authorization", unsigned_host)], Some(S3Code::AccessDenied)),
            ("GET", "", &[("authorization", similar)], Some(S3Code::AccessDenied)),
            ("GET", "", &[("authorization", twice)], Some(S3Code::AuthorizationHeaderMalformed)),
            ("GET", "", &[("authorization", none)], Some(S3Code::AuthorizationHeaderMalformed)),
            ("GET", "", &[("authorization", GOOD), ("authorization", GOOD)], Some(S3Code::InvalidArgument)),
            ("GET", "X-Amz-Signature=1", &[("authorization", GOOD)], Some(S3Code::InvalidArgument)),
            ("GET", "Signature=1", &[("authorization", GOOD)], Some(S3Code::InvalidArgument)),
            ("GET", "Signature=1&X-Amz-Signature=1", &[], Some(S3Code::InvalidArgument)),
            ("GET", &format!("{presigned}host"), &[], None),
            ("GET", &format!("{presigned}x-amz-date%3BHost"), &[], None),
            ("GET", &format!("{presigned}x-amz-date"), &[], Some(S3Code::AccessDenied)),
            ("GET", presigned, &[], Some(S3Code::AccessDenied)),
            (
                "GET",
                &format!("{presigned}host&X-Amz-SignedHeaders=x"),
                &[],
                Some(S3Code::AuthorizationQueryParametersError),
            ),
            ("GET", "X-Amz-Signature=1", &[], Some(S3Code::AuthorizationQueryParametersError)),
            ("GET", &expiring("0"), &[], None),
            ("GET", &expiring("604800"), &[], None),
            ("GET", &expiring("604801"), &[], Some(S3Code::AuthorizationQueryParametersError)),
            ("GET", &expiring("-1"), &[], Some(S3Code::AuthorizationQueryParametersError)),
            ("GET", &expiring("soon"), &[], Some(S3Code::AuthorizationQueryParametersError)),
            ("GET", "", &[("authorization", "AWS AK:sig")], Some(S3Code::InvalidRequest)),
            ("GET", "AWSAccessKeyId=a&Signature=b&Expires=1", &[], Some(S3Code::InvalidRequest)),
            ("GET", "", &[("x-amz-security-token", "t")], None),
            ("GET", "", &[("x-amz-security-token", "t"), ("authorization", GOOD)], Some(S3Code::InvalidToken)),
            ("GET", "", &[("x-amz-security-token", "t"), ("authorization", OTHER)], Some(S3Code::InvalidAccessKeyId)),
            ("GET", "", &[("x-amz-security-token", ""), ("authorization", GOOD)], None),
            (
                "GET",
                "X-Amz-Security-Token=t",
                &[("x-amz-security-token", "t"), ("authorization", GOOD)],
                Some(S3Code::InvalidToken),
            ),
            ("GET", &format!("{}&X-Amz-Security-Token=t", presigned_by("AK")), &[], Some(S3Code::InvalidToken)),
            ("GET", &format!("{}&X-Amz-Security-Token=t", presigned_by("no")), &[], Some(S3Code::InvalidAccessKeyId)),
            ("PUT", "", &[("x-amz-decoded-content-length", "12")], None),
            ("PUT", "", &[("x-amz-decoded-content-length", "12abc")], Some(S3Code::InvalidArgument)),
            ("PUT", "", &[("x-amz-decoded-content-length", "-1")], Some(S3Code::InvalidArgument)),
            ("PUT", "", &[("x-amz-decoded-content-length", "")], Some(S3Code::InvalidArgument)),
        ];
        for (method, query, headers, expected) in table {
            assert_eq!(refused(method, query, headers, false), *expected, "{method} {query} {headers:?}");
        }
    }

    #[test]
    fn signature_version_2_is_let_through_when_it_is_wanted() {
        assert_eq!(refused("GET", "", &[("authorization", "AWS AK:sig")], true), None);
        assert_eq!(refused("GET", "AWSAccessKeyId=a&Signature=b&Expires=1", &[], true), None);
    }
}
