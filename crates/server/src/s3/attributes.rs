//! System headers, user metadata and tags of an object, both ways.

use std::borrow::Cow;

use gabion_store::Attributes;
use gabion_types::limits::USER_METADATA_BYTES_MAX;
use http::header::{CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_TYPE, EXPIRES};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::call::Call;
use super::query::Query;
use super::{rfc2047, tags, website};
use crate::error::{S3Code, S3Error};

const USER: &str = "x-amz-meta-";
/// What an object is when nobody said.
const CONTENT_TYPE_DEFAULT: HeaderValue = HeaderValue::from_static("binary/octet-stream");
/// Each system header is at most this long, so that what is stored about an object fits its mutation.
const SYSTEM_BYTES_MAX: usize = 8 * 1024;

/// Reads what a request says about an object.
///
/// # Errors
/// `MetadataTooLarge`, `InvalidArgument` for a value that is no text, `InvalidTag`.
pub(super) fn read(call: &Call) -> Result<Attributes, S3Error> {
    Ok(Attributes {
        content_type: system(call, "content-type")?,
        cache_control: system(call, "cache-control")?,
        content_disposition: system(call, "content-disposition")?,
        content_encoding: system(call, "content-encoding")?.and_then(|coding| without_framing(&coding)),
        content_language: system(call, "content-language")?,
        expires: system(call, "expires")?,
        website_redirect: website::redirect_location(call)?,
        user: user(call.headers(), call.form.is_some())?,
        tags: tags::of_header(call)?,
        ..Attributes::default()
    })
}

fn system(call: &Call, name: &str) -> Result<Option<String>, S3Error> {
    match call.owned(name)? {
        Some(value) if value.len() > SYSTEM_BYTES_MAX => {
            Err(S3Error::argument(name, &value, format!("The header is longer than {SYSTEM_BYTES_MAX} bytes.")))
        }
        value => Ok(value),
    }
}

/// `aws-chunked` is how the bytes came, not what they are.
fn without_framing(coding: &str) -> Option<String> {
    if !coding.to_ascii_lowercase().contains("aws-chunked") {
        return Some(coding.trim().to_owned()).filter(|coding| !coding.is_empty());
    }
    let kept: Vec<&str> = coding
        .split(',')
        .map(str::trim)
        .filter(|coding| !coding.is_empty() && !coding.eq_ignore_ascii_case("aws-chunked"))
        .collect();
    (!kept.is_empty()).then(|| kept.join(", "))
}

/// Whether user metadata is short enough, also where it does not count (in a copy that has its source's).
///
/// # Errors
/// `MetadataTooLarge`, `InvalidArgument`.
pub(super) fn check_user(call: &Call) -> Result<(), S3Error> {
    user(call.headers(), false).map(drop)
}

/// `x-amz-meta-*`; what comes in several lines is joined by commas, as HTTP has it. Fields of forms have no need of encoded words.
fn user(headers: &HeaderMap, is_form: bool) -> Result<Vec<(String, String)>, S3Error> {
    let mut user = Vec::new();
    let mut bytes = 0;
    for name in headers.keys() {
        let Some(short) = name.as_str().strip_prefix(USER) else { continue };
        let mut lines = Vec::new();
        for line in headers.get_all(name) {
            match std::str::from_utf8(line.as_bytes()) {
                Ok(line) => lines.push(line.trim()),
                Err(_) => return Err(S3Error::argument(name.as_str(), "", "Metadata must be UTF-8.")),
            }
        }
        let value = lines.join(",");
        bytes += short.len() + value.len();
        let text = match rfc2047::decoded(&value) {
            Cow::Owned(text) if !is_form => Some(text),
            _ => None,
        };
        user.push((short.to_owned(), text.unwrap_or(value)));
    }
    if bytes > USER_METADATA_BYTES_MAX {
        return Err(S3Error::new(S3Code::MetadataTooLarge)
            .detail("Size", bytes.to_string())
            .detail("MaxSizeAllowed", USER_METADATA_BYTES_MAX.to_string()));
    }
    user.sort();
    Ok(user)
}

/// Puts attributes into the headers of an answer.
pub(super) fn show(attributes: &Attributes, headers: &mut HeaderMap) {
    let mut show = |name: HeaderName, value: &Option<String>| {
        // Not `from_str`: what is not ASCII goes out as it came in.
        if let Some(value) = value.as_deref().and_then(|value| HeaderValue::from_bytes(value.as_bytes()).ok()) {
            headers.insert(name, value);
        }
    };
    show(CONTENT_TYPE, &attributes.content_type);
    show(CACHE_CONTROL, &attributes.cache_control);
    show(CONTENT_DISPOSITION, &attributes.content_disposition);
    show(CONTENT_ENCODING, &attributes.content_encoding);
    show(CONTENT_LANGUAGE, &attributes.content_language);
    show(EXPIRES, &attributes.expires);
    show(website::REDIRECT_LOCATION, &attributes.website_redirect);
    headers.entry(CONTENT_TYPE).or_insert(CONTENT_TYPE_DEFAULT);
    if !attributes.tags.is_empty() {
        headers.insert(tags::COUNT, HeaderValue::from(attributes.tags.len()));
    }
    for (name, value) in &attributes.user {
        let name = HeaderName::from_bytes(format!("{USER}{name}").as_bytes());
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_str(&rfc2047::encoded(value))) {
            headers.insert(name, value);
        }
    }
}

/// The `response-*` parameters and the headers that they replace. They count for signed requests only.
const OVERRIDES: [(&str, HeaderName); 6] = [
    ("response-content-type", CONTENT_TYPE),
    ("response-content-language", CONTENT_LANGUAGE),
    ("response-expires", EXPIRES),
    ("response-cache-control", CACHE_CONTROL),
    ("response-content-disposition", CONTENT_DISPOSITION),
    ("response-content-encoding", CONTENT_ENCODING),
];

/// Reads the headers that a request wants in its answer.
///
/// # Errors
/// `InvalidArgument` for a value that can be no header.
pub(super) fn overrides(query: &Query) -> Result<Vec<(HeaderName, HeaderValue)>, S3Error> {
    let mut headers = Vec::new();
    if query.is_empty() {
        return Ok(headers);
    }
    for (parameter, header) in OVERRIDES {
        if let Some(value) = query.get(parameter)? {
            let refused = |why: &'static str| S3Error::argument(parameter, value, why);
            let latin_1 = value.chars().map(u8::try_from).collect::<Result<Vec<u8>, _>>();
            let latin_1 = latin_1.map_err(|_| refused("Header value cannot be represented using ISO-8859-1."))?;
            let value = HeaderValue::from_bytes(&latin_1).map_err(|_| refused("The value can be no header."))?;
            headers.push((header, value));
        }
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(HeaderName::from_static(name), HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        headers
    }

    #[test]
    fn framing_is_no_content_encoding() {
        for (coding, kept) in [
            ("aws-chunked", None),
            ("AWS-Chunked", None),
            ("aws-chunked,gzip", Some("gzip")),
            ("gzip, aws-chunked", Some("gzip")),
            ("gzip", Some("gzip")),
            ("deflate,  gzip", Some("deflate,  gzip")),
            ("deflate, aws-chunked, gzip", Some("deflate, gzip")),
            ("", None),
        ] {
            assert_eq!(without_framing(coding).as_deref(), kept, "{coding}");
        }
    }

    #[test]
    fn user_metadata_is_bounded_sorted_and_joined() {
        let read = user(
            &headers(&[("x-amz-meta-b", "2"), ("x-amz-meta-a", " 1 "), ("x-amz-meta-b", "3"), ("etag", "x")]),
            false,
        );
        assert_eq!(read.unwrap(), [("a".to_owned(), "1".to_owned()), ("b".to_owned(), "2,3".to_owned())]);
        assert!(user(&headers(&[("x-amz-meta-a", &"v".repeat(2047))]), false).is_ok());
        let error = user(&headers(&[("x-amz-meta-a", &"v".repeat(2048))]), false).unwrap_err();
        assert_eq!(error.code, S3Code::MetadataTooLarge);
    }

    #[test]
    fn encoded_words_are_read_but_in_forms() {
        let given = headers(&[("x-amz-meta-a", "=?UTF-8?B?YWJj?=")]);
        assert_eq!(user(&given, false).unwrap()[0].1, "abc");
        assert_eq!(user(&given, true).unwrap()[0].1, "=?UTF-8?B?YWJj?=");
    }

    #[test]
    fn attributes_come_back() {
        let attributes = Attributes {
            cache_control: Some("no-cache".into()),
            content_disposition: Some("filename=\"grün\"".into()),
            user: vec![("a".into(), "1".into()), ("ü".into(), "x".into()), ("c".into(), "grün".into())],
            ..Attributes::default()
        };
        let mut shown = HeaderMap::new();
        show(&attributes, &mut shown);
        assert_eq!(shown["content-type"], "binary/octet-stream");
        assert_eq!(shown["cache-control"], "no-cache");
        assert_eq!(shown["x-amz-meta-a"], "1");
        assert_eq!(shown["x-amz-meta-c"], "=?UTF-8?Q?gr=C3=BCn?=");
        assert_eq!(shown["content-disposition"].as_bytes(), "filename=\"grün\"".as_bytes());
        assert_eq!(shown.len(), 5);
    }

    #[test]
    fn overrides_must_be_headers() {
        let query = Query::parse("response-content-type=text%2Fplain&response-expires=x").unwrap();
        let found = overrides(&query).unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!(found[0], (CONTENT_TYPE, HeaderValue::from_static("text/plain")));
        let query = Query::parse("response-content-disposition=filename%3D%22r%C3%A9sum%C3%A9%22").unwrap();
        assert_eq!(overrides(&query).unwrap()[0].1.as_bytes(), b"filename=\"r\xe9sum\xe9\"");
        for refused in ["a%0d%0ax-evil:1", "%E2%82%AC"] {
            assert!(
                overrides(&Query::parse(&format!("response-content-type={refused}")).unwrap()).is_err(),
                "{refused}"
            );
        }
    }
}
