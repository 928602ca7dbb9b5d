//! Tags of objects: in the header `x-amz-tagging`, in documents, and the operations on them.
//!
//! Source: AWS, "Categorizing your storage using tags", "PutObjectTagging".

use std::collections::HashSet;

use gabion_store::Attributes;
use http::{HeaderName, HeaderValue, Response, StatusCode};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use s3s::Body;
use s3s::dto::Tagging;

use super::body;
use super::call::Call;
use super::query::{Query, is_encoded};
use super::xml::{Xml, parse_tagging};
use super::{Operation, answer, notifications, versioning};
use crate::auth;
use crate::error::{S3Code, S3Error};
use crate::notifications::EventName;
use crate::ops::Ops;

/// Keys and values.
pub(super) type Tags = Vec<(String, String)>;

/// The header that carries them.
pub(super) const HEADER: &str = "x-amz-tagging";
/// Number of an object's tags, in the answers of GetObject and HeadObject.
pub(super) const COUNT: HeaderName = HeaderName::from_static("x-amz-tagging-count");
/// Whose tags they are: how many there may be, and what is said of more.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    Object,
    Bucket,
}

impl Of {
    const fn most(self) -> (usize, &'static str) {
        match self {
            Of::Object => (10, "Object tags cannot be greater than 10"),
            Of::Bucket => (50, "Bucket tag count cannot be greater than 50"),
        }
    }

    /// What is said of keys that AWS keeps for itself.
    const fn reserved(self) -> &'static str {
        match self {
            Of::Object => "Your TagKey cannot be prefixed with aws:",
            Of::Bucket => "System tags cannot be added/updated by requester",
        }
    }
}

/// Most characters of a key.
const KEY_CHARS_MAX: usize = 128;
/// Most characters of a value.
const VALUE_CHARS_MAX: usize = 256;
/// What keys begin with that AWS keeps for itself.
const RESERVED: &str = "aws:";
/// Characters of keys and values, besides letters, digits and white space of any script.
const PUNCTUATION: &str = "_.:/=+-@";

/// The tags that a request gives to the object that it makes.
///
/// # Errors
/// `InvalidArgument` for a header that is no query string; else as [`check`].
pub(crate) fn of_header(call: &Call) -> Result<Tags, S3Error> {
    let Some(header) = call.header(HEADER)? else { return Ok(Tags::new()) };
    let malformed = || {
        let message = "The header 'x-amz-tagging' shall be encoded as UTF-8 then URLEncoded URL query parameters without tag name duplicates.";
        S3Error::argument(HEADER, header, message)
    };
    let is_pair = |pair: &str| !pair.starts_with('=') && pair.matches('=').count() <= 1;
    if !is_encoded(header) || !header.split('&').all(is_pair) {
        return Err(malformed());
    }
    let query = Query::parse(header).map_err(|_| malformed())?;
    let mut tags: Tags = query.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    if duplicate(&tags).is_some() {
        return Err(malformed());
    }
    check(&tags, Of::Object)?;
    // Their order in a query says nothing.
    tags.sort_unstable();
    Ok(tags)
}

/// The tags that the header of a request gives to an object: to others, and where they stay as they are, it says nothing.
///
/// # Errors
/// As [`of_header`] and [`of_copy`].
pub(crate) fn of_new(call: &Call) -> Result<Tags, S3Error> {
    match call.operation() {
        Some(Operation::PutObject | Operation::PostObject | Operation::CreateMultipartUpload) => of_header(call),
        Some(Operation::CopyObject) => Ok(of_copy(call)?.unwrap_or_default()),
        _ => Ok(Tags::new()),
    }
}

/// The tags of a form, in which they are a document.
///
/// # Errors
/// As [`of_document`].
pub(super) fn of_form(document: &str) -> Result<Tags, S3Error> {
    of_document(parse_tagging(document.as_bytes())?, Of::Object)
}

/// Tags as they stand in the header.
///
/// # Errors
/// Never: what is encoded can stand in a header.
pub(super) fn as_header(tags: &Tags) -> Result<HeaderValue, S3Error> {
    let encode = |text| utf8_percent_encode(text, NON_ALPHANUMERIC);
    let pairs: Vec<String> =
        tags.iter().map(|(key, value)| format!("{}={}", encode(key.as_str()), encode(value.as_str()))).collect();
    HeaderValue::from_str(&pairs.join("&")).map_err(|_| S3Code::InvalidTag.into())
}

/// The tags of a copy: `None` says that it has those of its source. As on AWS the header counts only if they are to be replaced.
///
/// # Errors
/// `InvalidArgument` for an unknown directive; else as [`of_header`].
pub(super) fn of_copy(call: &Call) -> Result<Option<Tags>, S3Error> {
    match call.header("x-amz-tagging-directive")? {
        None | Some("COPY") => Ok(None),
        Some("REPLACE") => of_header(call).map(Some),
        Some(other) => Err(S3Error::argument("x-amz-tagging-directive", other, "Unknown tagging directive.")),
    }
}

/// Reads the tags of a document.
///
/// # Errors
/// `MalformedXML` for a tag without a key or a value; else as [`check`].
pub(super) fn of_document(tagging: Tagging, of: Of) -> Result<Tags, S3Error> {
    let pair = |tag: s3s::dto::Tag| tag.key.zip(tag.value).ok_or(S3Error::new(S3Code::MalformedXML));
    let tags: Tags = tagging.tag_set.into_iter().map(pair).collect::<Result<_, _>>()?;
    check(&tags, of)?;
    if let Some(key) = duplicate(&tags) {
        return Err(invalid("Cannot provide multiple Tags with the same key", key));
    }
    Ok(tags)
}

/// Whether an object or a bucket may have these tags.
///
/// # Errors
/// `InvalidTag` for keys and values that are too long or have characters that tags may not have, and for keys that are empty or reserved;
/// then `BadRequest` for too many.
fn check(tags: &[(String, String)], of: Of) -> Result<(), S3Error> {
    let is_allowed = |text: &str, chars_max: usize| {
        text.chars().count() <= chars_max
            && text
                .chars()
                .all(|c| c.is_alphanumeric() || (c.is_whitespace() && !c.is_control()) || PUNCTUATION.contains(c))
    };
    for (key, value) in tags {
        let is_reserved = key.get(..RESERVED.len()).is_some_and(|start| start.eq_ignore_ascii_case(RESERVED));
        if is_reserved {
            return Err(invalid(of.reserved(), key));
        }
        if key.is_empty() || !is_allowed(key, KEY_CHARS_MAX) {
            return Err(invalid("The TagKey you have provided is invalid", key));
        }
        if !is_allowed(value, VALUE_CHARS_MAX) {
            return Err(invalid("The TagValue you have provided is invalid", key).detail("TagValue", value.clone()));
        }
    }
    let (most, message) = of.most();
    if tags.len() > most { Err(S3Error::with(S3Code::BadRequest, message)) } else { Ok(()) }
}

fn invalid(message: &'static str, key: &str) -> S3Error {
    S3Error::with(S3Code::InvalidTag, message).detail("TagKey", key)
}

/// A key that is there more than once.
fn duplicate(tags: &[(String, String)]) -> Option<&str> {
    let mut before = HashSet::new();
    tags.iter().map(|(key, _)| key.as_str()).find(|key| !before.insert(*key))
}

pub(super) async fn get(ops: &Ops, call: &Call) -> Result<Response<Body>, S3Error> {
    let info = ops.store.object_info(&call.bucket()?, &call.key()?, call.version()?).await;
    let info = info.map_err(versioning::marker_is_told)?;
    let mut response = answer::document(as_document(&info.attributes.tags));
    versioning::show(versioning::shown(ops, call, info.version)?, false, response.headers_mut());
    Ok(response)
}

/// Tags as a document.
pub(super) fn as_document(tags: &Tags) -> String {
    Xml::document("Tagging", |xml| {
        xml.element("TagSet", |xml| {
            for (key, value) in tags {
                xml.element("Tag", |xml| {
                    xml.text("Key", key);
                    xml.text("Value", value);
                });
            }
        });
    })
}

pub(super) async fn put(ops: &Ops, call: &mut Call) -> Result<Response<Body>, S3Error> {
    let document = body::required(ops, call).await?;
    let tags = of_document(parse_tagging(&document)?, Of::Object)?;
    auth::authorize_tags(ops, call, &tags).await?;
    replace(ops, call, tags, StatusCode::OK, EventName::TaggingPut).await
}

async fn replace(
    ops: &Ops,
    call: &Call,
    tags: Tags,
    status: StatusCode,
    event: EventName,
) -> Result<Response<Body>, S3Error> {
    let change = |attributes: &mut Attributes| {
        attributes.tags = tags;
        Ok(())
    };
    let info = ops.store.update_attributes(call.bucket()?, call.key()?, call.version()?, change).await;
    let info = info.map_err(versioning::marker_is_told)?;
    let version = versioning::shown(ops, call, info.version)?;
    if call.watch.is_some() {
        let told = notifications::described(event, call.key()?.as_str(), &info.etag, version);
        notifications::tell(ops, call, vec![told]).await?;
    }
    let mut response = answer::empty(status);
    versioning::show(version, false, response.headers_mut());
    Ok(response)
}

pub(super) async fn delete(ops: &Ops, call: &Call) -> Result<Response<Body>, S3Error> {
    replace(ops, call, Tags::new(), StatusCode::NO_CONTENT, EventName::TaggingDelete).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tags(pairs: &[(&str, &str)]) -> Tags {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn tags_are_checked() {
        let (long_key, long_value) = ("ü".repeat(128), "ß".repeat(256));
        let check = |tags: &[(String, String)]| check(tags, Of::Object);
        let many: Vec<_> = (0..11).map(|number| (number.to_string(), String::new())).collect();
        assert!(check(&tags(&[(&long_key, &long_value), ("a B_.:/=+-@", ""), ("Ключ", "値")])).is_ok());
        assert!(check(&many[..10]).is_ok());
        assert_eq!(check(&many).unwrap_err().code, S3Code::BadRequest);
        assert!(super::check(&many, Of::Bucket).is_ok());
        for (key, value) in
            [("", ""), ("aws:x", ""), ("AWS:x", ""), ("a&b", ""), ("a", "<"), ("a\u{0}", ""), ("a", "\n")]
        {
            assert_eq!(check(&tags(&[(key, value)])).unwrap_err().code, S3Code::InvalidTag, "{key:?} {value:?}");
        }
        for (key, value) in [(format!("{long_key}k"), String::new()), ("k".to_owned(), format!("{long_value}v"))] {
            assert_eq!(check(&[(key, value)]).unwrap_err().code, S3Code::InvalidTag);
        }
    }

    #[test]
    fn documents_of_tags_are_read() {
        let read =
            |document: &str| parse_tagging(document.as_bytes()).and_then(|tagging| of_document(tagging, Of::Object));
        let tag = |key: &str, value: &str| format!("<Tag><Key>{key}</Key><Value>{value}</Value></Tag>");
        let document = |tags: &str| format!("<Tagging><TagSet>{tags}</TagSet></Tagging>");
        assert_eq!(read(&document(&[tag("a", "1"), tag("b", "")].concat())).unwrap(), tags(&[("a", "1"), ("b", "")]));
        assert_eq!(read(&document("")).unwrap(), Tags::new());
        assert_eq!(read("<Tagging><TagSet/></Tagging>").unwrap(), Tags::new());
        for (text, code) in [
            ("<Tagging/>".to_owned(), S3Code::MalformedXML),
            (document("<Tag><Key>a</Key></Tag>"), S3Code::MalformedXML),
            (document(&[tag("a", "1"), tag("a", "2")].concat()), S3Code::InvalidTag),
        ] {
            assert_eq!(read(&text).map_err(|error| error.code), Err(code), "{text}");
        }
    }
}
