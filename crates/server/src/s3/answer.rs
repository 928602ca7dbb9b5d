//! Answers: success with or without a document, and errors.

use std::fmt;
use std::io::Write;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use s3s::Body;

use super::xml::Xml;
use crate::error::S3Error;
use crate::http::ANSWER_HEADERS;

/// Bytes of the values that answers have: tags, dates, lengths.
const VALUE_BYTES: usize = 64;

/// Marks an answer whose error document is already complete.
#[derive(Clone, Copy)]
pub(super) struct Rendered;

const XML: HeaderValue = HeaderValue::from_static("application/xml");

/// An answer without a body.
pub(super) fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    // The map would grow twice on the way.
    *response.headers_mut() = HeaderMap::with_capacity(ANSWER_HEADERS);
    response
}

/// An answer without a body, whose headers lie where those of the request did: a map of that size is not made for each.
pub(super) fn reusing(mut headers: HeaderMap, status: StatusCode) -> Response<Body> {
    headers.clear();
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

/// A value that is written out, in the stack as far as it fits there; nothing when it can not be one.
pub(super) fn value(text: fmt::Arguments<'_>) -> Option<HeaderValue> {
    let mut buffer = [0; VALUE_BYTES];
    let mut left = &mut buffer[..];
    match left.write_fmt(text) {
        Ok(()) => {
            let len = VALUE_BYTES - left.len();
            HeaderValue::from_bytes(&buffer[..len]).ok()
        }
        Err(_) => HeaderValue::try_from(text.to_string()).ok(),
    }
}

/// A number of bytes as a value.
pub(super) fn number(number: u64) -> HeaderValue {
    // `HeaderValue::from` makes two allocations.
    let mut digits = [0; 20];
    let (mut from, mut left) = (digits.len(), number);
    loop {
        from -= 1;
        digits[from] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    HeaderValue::from_bytes(&digits[from..]).expect("it has digits only")
}

/// An answer with a document.
pub(super) fn document(xml: String) -> Response<Body> {
    let mut response = Response::new(Body::from(xml));
    response.headers_mut().insert(CONTENT_TYPE, XML);
    response
}

/// Sets a header; a value that can not be one is left out.
pub(super) fn set(response: &mut Response<Body>, name: HeaderName, value: impl TryInto<HeaderValue>) {
    if let Ok(value) = value.try_into() {
        response.headers_mut().insert(name, value);
    }
}

/// What an error document says about the request.
pub(super) struct About<'a> {
    /// The path, as sent.
    pub(super) resource: &'a str,
    pub(super) request_id: &'a str,
    /// Whether the request was a HEAD.
    pub(super) headless: bool,
}

/// The answer to a failed request.
pub(super) fn error(error: &S3Error, about: &About<'_>) -> Response<Body> {
    let status = error.code.status();
    let mut response = if status == StatusCode::NOT_MODIFIED {
        empty(status)
    } else if about.headless {
        // The type that the document would have, as on AWS.
        let mut response = empty(status);
        response.headers_mut().insert(CONTENT_TYPE, XML);
        response
    } else {
        let mut response = document(Xml::plain("Error", |xml| {
            xml.text("Code", error.code.as_str());
            xml.text("Message", &error.message);
            for (name, text) in &error.details {
                xml.text(name, text);
            }
            footer(xml, about);
        }));
        *response.status_mut() = status;
        response
    };
    for (name, value) in &error.headers {
        response.headers_mut().insert(name.clone(), value.clone());
    }
    response.extensions_mut().insert(Rendered);
    response
}

fn footer(xml: &mut Xml, about: &About<'_>) {
    xml.text("Resource", about.resource);
    xml.text("RequestId", about.request_id);
}

/// Completes an error document of s3s, which knows neither resource nor request id. `ours` has better words for some codes.
pub(super) fn complete(response: &mut Response<Body>, about: &About<'_>, ours: impl FnOnce(&str) -> Option<S3Error>) {
    response.extensions_mut().insert(Rendered);
    response.headers_mut().remove(CONTENT_LENGTH);
    if about.headless {
        *response.body_mut() = Body::empty();
        return;
    }
    let bytes = response.body().bytes().unwrap_or_default();
    let document = std::str::from_utf8(&bytes).unwrap_or_default();
    let Some((inner, _)) = document.split_once("<Error>").and_then(|(_, rest)| rest.split_once("</Error>")) else {
        return;
    };
    let code = inner.split_once("<Code>").and_then(|(_, rest)| rest.split('<').next());
    if let Some(error) = code.and_then(ours) {
        *response = self::error(&error, about);
        return;
    }
    let completed = Xml::plain("Error", |xml| {
        xml.raw(&[inner]);
        footer(xml, about);
    });
    *response.body_mut() = Body::from(Bytes::from(completed));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::S3Code;

    const ABOUT: About<'static> = About { resource: "/b/k<", request_id: "00000000000000AB", headless: false };

    fn text(response: &Response<Body>) -> String {
        String::from_utf8(response.body().bytes().unwrap().to_vec()).unwrap()
    }

    #[test]
    fn values_are_what_is_written() {
        for text in ["", "\"tag\"", &"x".repeat(VALUE_BYTES), &"x".repeat(VALUE_BYTES + 1)] {
            assert_eq!(value(format_args!("{text}")).unwrap(), text);
        }
        assert_eq!(value(format_args!("a\nb")), None);
        for length in [0, 9, 10, 4096, u64::MAX] {
            assert_eq!(number(length), length.to_string());
        }
    }

    #[test]
    fn an_error_document_names_resource_and_request() {
        let response = error(&S3Error::new(S3Code::NoSuchKey).detail("Key", "k<"), &ABOUT);
        assert_eq!(response.status(), 404);
        assert_eq!(
            text(&response),
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>NoSuchKey</Code><Message>The specified key does not \
             exist.</Message><Key>k&lt;</Key><Resource>/b/k&lt;</Resource><RequestId>00000000000000AB</RequestId></Error>"
        );
        let headless = error(&S3Error::new(S3Code::NoSuchKey), &About { headless: true, ..ABOUT });
        assert_eq!((headless.status().as_u16(), text(&headless).as_str()), (404, ""));
        let unmodified = error(&S3Error::new(S3Code::NotModified), &ABOUT);
        assert_eq!((unmodified.status().as_u16(), text(&unmodified).as_str()), (304, ""));
    }

    #[test]
    fn an_error_document_of_s3s_is_completed() {
        let source = || s3s::S3Error::with_message(s3s::S3ErrorCode::AuthorizationHeaderMalformed, "a < b");
        let mut response = source().to_http_response().unwrap();
        complete(&mut response, &ABOUT, |_| None);
        assert_eq!(response.status(), 400);
        let text = text(&response);
        assert!(
            text.ends_with(
                "<Code>AuthorizationHeaderMalformed</Code><Message>a &lt; b</Message>\
             <Resource>/b/k&lt;</Resource><RequestId>00000000000000AB</RequestId></Error>"
            ),
            "{text}"
        );
        let mut response = source().to_http_response().unwrap();
        complete(&mut response, &ABOUT, |code| {
            assert_eq!(code, "AuthorizationHeaderMalformed");
            Some(S3Code::SignatureDoesNotMatch.into())
        });
        assert_eq!(response.status(), 403);
    }
}
