//! The text of a request that its signature is of, for requests that are signed in their headers.
//!
//! Built in one buffer from what the request has, in the form that "Signature Calculations for the Authorization Header" (AWS)
//! gives. A request that it can not be built for at once is left to s3s, like one that turns out to be signed otherwise.

use http::{HeaderMap, HeaderValue};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::s3::Query;

/// Most headers of a request that is looked at; clients send some eight.
const FIELDS_MAX: usize = 40;
/// What a text has at most in a request without a query and with short names, in bytes.
const TEXT_BYTES: usize = 768;

/// The headers of a request, gone through once.
pub(super) struct Fields<'a> {
    all: [(&'a str, &'a [u8]); FIELDS_MAX],
    count: usize,
    pub(super) authorization: &'a str,
    pub(super) date: &'a str,
    pub(super) content_sha256: &'a str,
    pub(super) content_length: Option<u64>,
    pub(super) has_decoded_length: bool,
    /// `x-amz-security-token`, if there is one.
    pub(super) token: Option<&'a str>,
}

impl<'a> Fields<'a> {
    /// To be filled in place by [`Fields::read`], as it is long.
    pub(super) fn none() -> Self {
        Self {
            all: [("", &[][..]); FIELDS_MAX],
            count: 0,
            authorization: "",
            date: "",
            content_sha256: "",
            content_length: None,
            has_decoded_length: false,
            token: None,
        }
    }

    /// Goes through the headers of a request. Nothing when one is missing that must be there, is there twice, or asks for what only s3s answers.
    pub(super) fn read(&mut self, headers: &'a HeaderMap) -> Option<&Self> {
        let (mut host, mut trailer) = (None, None);
        let (mut authorization, mut date, mut content_sha256) = (None, None, None);
        let mut decoded_length = None;
        for (name, value) in headers {
            let name = name.as_str();
            match name {
                "host" => once(&mut host, value.to_str().ok()?)?,
                "x-amz-trailer" => once(&mut trailer, ())?,
                "authorization" => once(&mut authorization, text(value)?)?,
                "x-amz-date" => once(&mut date, text(value)?)?,
                "x-amz-content-sha256" => once(&mut content_sha256, text(value)?)?,
                "content-length" => once(&mut self.content_length, length(value)?)?,
                "x-amz-decoded-content-length" => once(&mut decoded_length, length(value)?)?,
                "x-amz-security-token" => once(&mut self.token, text(value)?)?,
                _ => {}
            }
            *self.all.get_mut(self.count)? = (name, value.as_bytes());
            self.count += 1;
        }
        // An empty token is for s3s to judge.
        if host.is_none() || self.token == Some("") {
            return None;
        }
        (self.authorization, self.date, self.content_sha256) = (authorization?, date?, content_sha256?);
        self.has_decoded_length = decoded_length.is_some();
        Some(self)
    }

    /// The text, with the headers that are named in `signed`. Nothing when one is not there, when `host` is not among them,
    /// or when an `x-amz-*` header is not: what is not signed could have been added on the way.
    pub(super) fn canonical_request(&self, method: &str, path: &str, query: &Query, signed: &str) -> Option<Vec<u8>> {
        let fields = self.all.get(..self.count)?;
        let mut is_signed = [false; FIELDS_MAX];
        let mut out = Vec::with_capacity(TEXT_BYTES);
        out.extend_from_slice(method.as_bytes());
        out.push(b'\n');
        encode(&mut out, path, PATH);
        out.push(b'\n');
        push_query(&mut out, query);
        out.push(b'\n');
        let mut host = false;
        for name in signed.as_bytes().split(|byte| *byte == b';') {
            // Named twice, or signed by itself: s3s knows what that means.
            let at = fields.iter().position(|(field, _)| field.as_bytes() == name)?;
            if is_signed[at] || name == b"authorization" {
                return None;
            }
            host |= name == b"host";
            out.extend_from_slice(name);
            out.push(b':');
            // The lines of one name stand together.
            for (line, (_, value)) in fields[at..].iter().take_while(|(field, _)| field.as_bytes() == name).enumerate()
            {
                if line > 0 {
                    out.push(b',');
                }
                push_value(&mut out, value)?;
                is_signed[at + line] = true;
            }
            out.push(b'\n');
        }
        let unsigned = |(field, is_signed): (&(&str, &[u8]), &bool)| {
            !is_signed && field.0.starts_with("x-amz-") && field.0 != "x-amz-content-sha256"
        };
        if !host || fields.iter().zip(&is_signed).any(unsigned) {
            return None;
        }
        out.push(b'\n');
        out.extend_from_slice(signed.as_bytes());
        out.push(b'\n');
        out.extend_from_slice(self.content_sha256.as_bytes());
        Some(out)
    }
}

fn once<T>(slot: &mut Option<T>, value: T) -> Option<()> {
    slot.replace(value).is_none().then_some(())
}

fn text(value: &HeaderValue) -> Option<&str> {
    std::str::from_utf8(value.as_bytes()).ok()
}

/// A number of bytes: some digits that fit.
fn length(value: &HeaderValue) -> Option<u64> {
    let digits = value.as_bytes();
    let plain = (1..=19).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit);
    if plain { text(value)?.parse().ok() } else { None }
}

/// A value without spaces at its ends, and with single ones inside.
fn push_value(out: &mut Vec<u8>, value: &[u8]) -> Option<()> {
    // To the end, whatever it finds: that is done for many at a time.
    if value.iter().fold(true, |all, byte| all & byte.is_ascii_graphic()) {
        out.extend_from_slice(value);
        return Some(());
    }
    for (i, word) in std::str::from_utf8(value).ok()?.split_whitespace().enumerate() {
        if i > 0 {
            out.push(b' ');
        }
        out.extend_from_slice(word.as_bytes());
    }
    Some(())
}

/// Names and values, encoded and in the order of the names.
fn push_query(out: &mut Vec<u8>, query: &Query) {
    let encoded = |text: &str| {
        let mut out = Vec::with_capacity(text.len());
        encode(&mut out, text, TEXT);
        out
    };
    let mut pairs: Vec<_> = query.iter().map(|(name, value)| (encoded(name), encoded(value))).collect();
    pairs.sort_by(|one, other| one.0.cmp(&other.0));
    for (i, (name, value)) in pairs.iter().enumerate() {
        if i > 0 {
            out.push(b'&');
        }
        out.extend_from_slice(name);
        out.push(b'=');
        out.extend_from_slice(value);
    }
}

/// Letters, digits and `-_.~` stand for themselves, and slashes between the parts of a path.
const TEXT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
const PATH: &AsciiSet = &TEXT.remove(b'/');

fn encode(out: &mut Vec<u8>, text: &str, encoded: &'static AsciiSet) {
    for part in utf8_percent_encode(text, encoded) {
        out.extend_from_slice(part.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderName;
    use s3s_sigv4::Payload;

    use super::*;

    const SIGNED: &str = "host;x-amz-content-sha256;x-amz-date;x-amz-meta-a";

    fn headers(more: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let usual = [
            ("host", "s3.test"),
            ("authorization", "AWS4"),
            ("x-amz-date", "20260101T000000Z"),
            ("x-amz-content-sha256", "UNSIGNED-PAYLOAD"),
            ("x-amz-meta-a", "  some \u{fc}  text "),
            ("x-amz-meta-a", ""),
            ("accept", "*/*"),
        ];
        for (name, value) in usual.iter().chain(more) {
            headers.append(HeaderName::from_static(name), HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        headers
    }

    fn canonical(headers: &HeaderMap, signed: &str) -> Option<Vec<u8>> {
        let query = Query::parse("b=2&a=%20/&a=1&c").unwrap();
        Fields::none().read(headers)?.canonical_request("GET", "/bkt/a b/\u{fc}~", &query, signed)
    }

    #[test]
    fn is_what_s3s_makes_of_it() {
        let headers = headers(&[]);
        let lines: Vec<(&str, &str)> = SIGNED
            .split(';')
            .flat_map(|name| headers.get_all(name).iter().map(move |value| (name, text(value).unwrap())))
            .collect();
        let query = Query::parse("b=2&a=%20/&a=1&c").unwrap();
        let path = "/bkt/a b/\u{fc}~";
        let expected = s3s_sigv4::create_canonical_request("GET", path, query.pairs(), &lines, Payload::Unsigned);
        assert_eq!(String::from_utf8(canonical(&headers, SIGNED).unwrap()).unwrap(), expected);
    }

    #[test]
    fn every_byte_is_encoded_wherever_it_stands() {
        for (encoded, kept) in [(TEXT, "-_.~"), (PATH, "-_.~/")] {
            let expected = |byte: u8| match char::from(byte) {
                plain if plain.is_ascii_alphanumeric() || kept.contains(plain) => plain.to_string(),
                _ => format!("%{byte:02X}"),
            };
            for letter in (0..=0xff).map(|code| char::from_u32(code).unwrap()) {
                for text in [format!("{letter}"), format!("{letter}a{letter}{letter}"), format!("a{letter}/")] {
                    let mut out = Vec::new();
                    encode(&mut out, &text, encoded);
                    assert_eq!(String::from_utf8(out).unwrap(), text.bytes().map(expected).collect::<String>());
                }
            }
        }
    }

    #[test]
    fn what_is_not_plain_is_left_alone() {
        for signed in [
            "",
            "host",
            "x-amz-content-sha256;x-amz-date;x-amz-meta-a",
            "host;x-amz-content-sha256;x-amz-date;x-amz-meta-a;x-amz-meta-b",
            "host;host;x-amz-content-sha256;x-amz-date;x-amz-meta-a",
            "Host;x-amz-content-sha256;x-amz-date;x-amz-meta-a",
            "authorization;host;x-amz-content-sha256;x-amz-date;x-amz-meta-a",
            "host;x-amz-date",
        ] {
            assert_eq!(canonical(&headers(&[]), signed), None, "{signed}");
        }
        assert!(
            canonical(&headers(&[]), "host;x-amz-date;x-amz-meta-a").is_some(),
            "the payload's hash is in it anyway"
        );
        for field in [
            ("x-amz-acl", "private"),
            ("x-amz-security-token", ""),
            ("x-amz-date", "20260101T000000Z"),
            ("authorization", "AWS4"),
            ("x-amz-content-sha256", ""),
            ("content-length", "+1"),
            ("content-length", ""),
            ("x-amz-decoded-content-length", "12345678901234567890"),
        ] {
            assert_eq!(canonical(&headers(&[field]), SIGNED), None, "{field:?}");
        }
        for name in ["authorization", "host", "x-amz-date", "x-amz-content-sha256"] {
            let mut headers = headers(&[]);
            headers.remove(name);
            assert_eq!(canonical(&headers, SIGNED), None, "without {name}");
        }
        let mut many = headers(&[]);
        for i in 0..FIELDS_MAX {
            many.append(format!("x-{i}").parse::<HeaderName>().unwrap(), HeaderValue::from_static("1"));
        }
        assert_eq!(canonical(&many, SIGNED), None);
    }
}
