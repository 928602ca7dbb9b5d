//! POST object: uploads from browsers, as `multipart/form-data`.
//!
//! The form carries what the headers of a put would: key, metadata, and a policy with its signature instead of a signed request. So its
//! fields are read, verified and turned into those headers; from there on it is a put, whose body is the file as it streams in. Nothing is
//! stored unless the whole form was good. Source: AWS, "Browser-based uploads using POST", "POST Object".

mod form;
mod policy;

use std::sync::Arc;

use bytes::Bytes;
use futures::Stream;
use gabion_store::{BodyError, ObjectBody};
use gabion_types::limits::{KEY_BYTES_MAX, PUT_BYTES_MAX};
use gabion_types::{ObjectKey, ObjectKeyError};
use http::header::{CONTENT_TYPE, ETAG, LOCATION};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use parking_lot::Mutex;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use s3s::Body;

use super::answer;
use super::call::{Call, FormSignature};
use super::checksums::BodyDigests;
use super::route::Operation;
use super::uploads::location;
use super::xml::Xml;
use super::{objects, owners, payment, quota, tags, unsupported};
use crate::auth;
use crate::auth::forms::{FormKeys, SignedForm};
use crate::error::{S3Code, S3Error};
use crate::ops::Ops;

use form::Form;
use policy::Policy;

/// Stands for the name of the file, in the key.
const FILENAME: &str = "${filename}";
/// Headers that a form's fields of the same name stand for, besides `x-amz-*`.
const HEADERS: &[&str] = &[
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-md5",
    "content-type",
    "expires",
];
/// `x-amz-*` fields that are about the signature, or about what is no put.
const SIGNING: &[&str] = &[
    "x-amz-algorithm",
    "x-amz-content-sha256",
    "x-amz-copy-source",
    "x-amz-credential",
    "x-amz-date",
    "x-amz-decoded-content-length",
    "x-amz-sdk-checksum-algorithm",
    "x-amz-security-token",
    "x-amz-signature",
    "x-amz-tagging",
    "x-amz-trailer",
];
/// What a parameter that is added to a redirect may not hold as it is.
const PARAMETER: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// The fields of a form that stand before its file: names in lower case.
#[derive(Debug, Default)]
pub(super) struct Fields(Vec<(String, String)>);

impl Fields {
    #[cfg(test)]
    fn of(fields: &[(&str, &str)]) -> Self {
        Self(fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(present, _)| *present == name).map(|(_, value)| value)
    }

    /// Reads up to the file, whose name it gives.
    async fn read(form: &mut Form) -> Result<(Self, String), S3Error> {
        let mut fields = Self::default();
        while let Some(part) = form.next_part().await? {
            let name = part.name.to_ascii_lowercase();
            if name == "file" {
                return Ok((fields, part.filename.unwrap_or_default()));
            }
            let value = form.value().await?;
            let value = std::str::from_utf8(&value)
                .map_err(|_| S3Error::argument(&part.name, "", "The field is not UTF-8."))?;
            if fields.get(&name).is_some() {
                return Err(S3Error::argument(&part.name, value, "The field is there more than once."));
            }
            fields.0.push((name, value.to_owned()));
        }
        Err(S3Error::argument("file", "0", "POST requires exactly one file upload per request."))
    }

    fn signed(&self) -> SignedForm<'_> {
        SignedForm {
            policy: self.get("policy"),
            algorithm: self.get("x-amz-algorithm"),
            credential: self.get("x-amz-credential"),
            date: self.get("x-amz-date"),
            signature: self.get("x-amz-signature"),
            token: self.get("x-amz-security-token"),
            access_key_v2: self.get("awsaccesskeyid"),
            signature_v2: self.get("signature"),
        }
    }

    /// The headers that a put of the same would have.
    fn headers(&self) -> Result<HeaderMap, S3Error> {
        let mut headers = HeaderMap::new();
        for (name, value) in self.iter() {
            let header = match name {
                "acl" => "x-amz-acl",
                _ if HEADERS.contains(&name) => name,
                _ if name.starts_with("x-amz-") && !SIGNING.contains(&name) => name,
                _ => continue,
            };
            let invalid = || S3Error::argument(name, value, "The field can be no header.");
            let header = HeaderName::from_bytes(header.as_bytes()).map_err(|_| invalid())?;
            headers.insert(header, HeaderValue::from_bytes(value.as_bytes()).map_err(|_| invalid())?);
        }
        if let Some(document) = self.get("tagging").filter(|document| !document.is_empty()) {
            let tags = tags::of_form(document)?;
            headers.insert(HeaderName::from_static(tags::HEADER), tags::as_header(&tags)?);
        }
        Ok(headers)
    }

    /// The key, with the name of the file in it.
    fn key(&mut self, filename: &str) -> Result<ObjectKey, S3Error> {
        let Some((_, key)) = self.0.iter_mut().find(|(name, _)| name == "key") else {
            let message = "Bucket POST must contain a field named 'key'.  If it is specified, please check the order of the fields.";
            return Err(S3Error::argument("key", "", message));
        };
        if key.contains(FILENAME) {
            // Some browsers send the whole path.
            let name = filename.rsplit(['/', '\\']).next().unwrap_or_default();
            *key = key.replace(FILENAME, name);
        }
        ObjectKey::new(&*key).map_err(|error| match error {
            ObjectKeyError::TooLong => S3Error::new(S3Code::KeyTooLongError)
                .detail("Size", key.len().to_string())
                .detail("MaxSizeAllowed", KEY_BYTES_MAX.to_string()),
            ObjectKeyError::Empty => S3Error::argument("key", "", "User key must have a length greater than 0."),
        })
    }
}

/// Whether a request's body is a form.
pub(super) fn is_form(headers: &HeaderMap) -> bool {
    const FORM: &[u8] = b"multipart/form-data";
    let is_form = |value: &HeaderValue| {
        value.as_bytes().trim_ascii_start().get(..FORM.len()).is_some_and(|start| start.eq_ignore_ascii_case(FORM))
    };
    headers.get_all(CONTENT_TYPE).iter().any(is_form)
}

pub(super) async fn post(ops: &Ops, keys: &FormKeys, call: &mut Call) -> Result<Response<Body>, S3Error> {
    let boundary = call.header("content-type")?.and_then(form::boundary).ok_or(S3Code::MalformedPOSTRequest)?;
    let mut form = Form::new(std::mem::take(&mut call.body), &boundary);
    let (mut fields, filename) = Fields::read(&mut form).await?;
    let (bucket, key) = (call.bucket()?, fields.key(&filename)?);
    let signature = fields.signed();
    if let Some(caller) = keys.verify(&signature)? {
        call.sent_by(caller);
    }
    let is_version_2 = signature.version() == Some(2);
    let policy = fields.get("policy").map(Policy::parse).transpose()?;
    if let Some(policy) = &policy {
        policy.check(&fields, bucket.as_str(), keys.now_ms())?;
    }
    let signed = FormSignature { is_version_2, date: fields.get("x-amz-date").map(str::to_owned) };
    call.turn_into_put(key.clone(), fields.headers()?, signed);
    unsupported::check(call)?;
    // The fields are the put's, and so is the right to it.
    Box::pin(auth::authorize(ops, call, Operation::PutObject)).await?;
    if call.has.extensions {
        owners::check(ops, call).await?;
    }

    call.is_charged = payment::charges(ops, call).await?;
    if let Some(watch) = &call.watch {
        watch.admit(ops, call)?;
    }
    let (least, most) = policy.and_then(|policy| policy.length()).unwrap_or((0, PUT_BYTES_MAX));
    quota::look_at(ops, call, least)?;

    let refused = Arc::new(Mutex::new(None));
    let file = File { form: Some(form), size: 0, least, most: most.min(PUT_BYTES_MAX), refused: Arc::clone(&refused) };
    let digests = BodyDigests::of(call)?;
    let body = ObjectBody {
        stream: Box::new(Box::pin(file.stream())),
        length: None,
        content_md5: digests.md5,
        checksums: digests.checksum.into_iter().collect(),
        compute: Vec::new(),
        trailers: None,
        encrypt: None,
    };
    let mut response = match objects::put_body(ops, call, body).await {
        Ok(response) => response,
        // What was wrong with the form, where that was it.
        Err(error) => return Err(refused.lock().take().unwrap_or(error)),
    };

    let etag = response.headers().get(ETAG).and_then(|etag| etag.to_str().ok()).unwrap_or_default().to_owned();
    let redirect = fields.get("success_action_redirect").or(fields.get("redirect"));
    if let Some(target) = redirect.and_then(|url| redirect_to(url, bucket.as_str(), key.as_str(), &etag)) {
        response.headers_mut().insert(LOCATION, target);
        *response.status_mut() = StatusCode::SEE_OTHER;
        return Ok(response);
    }
    let location = location(call);
    match fields.get("success_action_status") {
        Some("200") => {}
        Some("201") => {
            let document = Xml::plain("PostResponse", |xml| {
                xml.text("Location", &location);
                xml.text("Bucket", bucket.as_str());
                xml.text("Key", key.as_str());
                xml.text("ETag", &etag);
            });
            *response.status_mut() = StatusCode::CREATED;
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/xml"));
            *response.body_mut() = Body::from(document);
        }
        _ => *response.status_mut() = StatusCode::NO_CONTENT,
    }
    answer::set(&mut response, LOCATION, location);
    Ok(response)
}

/// Where the browser is sent afterwards; nothing when the URL can be none.
fn redirect_to(url: &str, bucket: &str, key: &str, etag: &str) -> Option<HeaderValue> {
    let (scheme, rest) = url.split_once("://")?;
    if !["http", "https"].contains(&scheme.to_ascii_lowercase().as_str()) || rest.is_empty() {
        return None;
    }
    let (url, fragment) = url.split_once('#').map_or((url, None), |(url, fragment)| (url, Some(fragment)));
    let separator = if url.contains('?') { '&' } else { '?' };
    let encode = |text| utf8_percent_encode(text, PARAMETER);
    let mut target = format!("{url}{separator}bucket={}&key={}&etag={}", encode(bucket), encode(key), encode(etag));
    if let Some(fragment) = fragment {
        target.push('#');
        target.push_str(fragment);
    }
    HeaderValue::from_str(&target).ok()
}

/// The file of a form.
struct File {
    /// Until its end.
    form: Option<Form>,
    size: u64,
    least: u64,
    most: u64,
    /// Why it may not be stored.
    refused: Arc<Mutex<Option<S3Error>>>,
}

impl File {
    fn stream(self) -> impl Stream<Item = Result<Bytes, BodyError>> + Send + 'static {
        futures::stream::unfold(self, |mut file| async move {
            let item = file.next().await?;
            Some((item, file))
        })
    }

    async fn next(&mut self) -> Option<Result<Bytes, BodyError>> {
        match self.form.as_mut()?.piece().await {
            Ok(Some(piece)) => {
                self.size += piece.len() as u64;
                if self.size > self.most {
                    return self.refuse(
                        S3Error::new(S3Code::EntityTooLarge)
                            .detail("ProposedSize", self.size.to_string())
                            .detail("MaxSizeAllowed", self.most.to_string()),
                    );
                }
                Some(Ok(piece))
            }
            Ok(None) if self.size < self.least => self.refuse(
                S3Error::new(S3Code::EntityTooSmall)
                    .detail("ProposedSize", self.size.to_string())
                    .detail("MinSizeAllowed", self.least.to_string()),
            ),
            Ok(None) => {
                self.form = None;
                None
            }
            Err(error) => self.refuse(error.into()),
        }
    }

    fn refuse(&mut self, error: S3Error) -> Option<Result<Bytes, BodyError>> {
        self.form = None;
        *self.refused.lock() = Some(error);
        Some(Err(BodyError::Incomplete))
    }
}

/// Reads a policy, and a form whose boundary is `b`.
#[cfg(feature = "fuzzing")]
pub(super) fn fuzz(bytes: &[u8]) {
    use base64::Engine;
    use futures::FutureExt;

    let _ = Policy::parse(&base64::prelude::BASE64_STANDARD.encode(bytes));
    let pieces = bytes.chunks(7).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
    let mut form = Form::new(super::content::Content::of_pieces(pieces), "b");
    let read = async {
        let (fields, _) = Fields::read(&mut form).await?;
        fields.headers()?;
        while form.piece().await?.is_some() {}
        Ok::<_, S3Error>(())
    };
    // All pieces are there already: it never waits.
    let _ = read.now_or_never();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_become_headers() {
        let fields = Fields::of(&[
            ("key", "k"),
            ("acl", "private"),
            ("content-type", "text/plain"),
            ("x-amz-meta-a", "ü"),
            ("x-amz-date", "20260101T000000Z"),
            ("x-amz-copy-source", "/b/other"),
            ("x-ignore-b", "1"),
            ("host", "elsewhere"),
            ("tagging", "<Tagging><TagSet><Tag><Key>a b</Key><Value>&amp;</Value></Tag></TagSet></Tagging>"),
        ]);
        // A tag may not hold that character.
        assert_eq!(fields.headers().unwrap_err().code, S3Code::InvalidTag);
        let fields = Fields(fields.0.into_iter().map(|(name, value)| (name, value.replace("&amp;", "="))).collect());
        let headers = fields.headers().unwrap();
        let mut shown: Vec<_> = headers
            .iter()
            .map(|(name, value)| format!("{name}: {}", String::from_utf8_lossy(value.as_bytes())))
            .collect();
        shown.sort();
        assert_eq!(
            shown,
            ["content-type: text/plain", "x-amz-acl: private", "x-amz-meta-a: ü", "x-amz-tagging: a%20b=%3D"]
        );
        assert!(Fields::of(&[("x-amz-meta-a", "1\n2")]).headers().is_err());
        assert!(Fields::of(&[("tagging", "<Tagging>")]).headers().is_err());
    }

    #[test]
    fn keys_take_the_name_of_the_file() {
        for (key, filename, expected) in [
            ("k", "f.txt", "k"),
            ("user/${filename}", "f.txt", "user/f.txt"),
            ("${filename}/${filename}", "C:\\dir\\f", "f/f"),
            ("${filename}", "/etc/passwd", "passwd"),
            ("$filename", "f", "$filename"),
        ] {
            assert_eq!(Fields::of(&[("key", key)]).key(filename).unwrap().as_str(), expected);
        }
        assert_eq!(Fields::of(&[]).key("f").unwrap_err().code, S3Code::InvalidArgument);
        assert_eq!(Fields::of(&[("key", "${filename}")]).key("").unwrap_err().code, S3Code::InvalidArgument);
        assert_eq!(Fields::of(&[("key", &"k".repeat(1025))]).key("").unwrap_err().code, S3Code::KeyTooLongError);
    }

    #[test]
    fn redirects_say_what_was_stored() {
        let to = |url| redirect_to(url, "b", "a b/ü", "\"e\"").map(|target| target.to_str().unwrap().to_owned());
        let parameters = "bucket=b&key=a%20b%2F%C3%BC&etag=%22e%22";
        assert_eq!(to("http://x/y"), Some(format!("http://x/y?{parameters}")));
        assert_eq!(to("HTTPS://x/?a=1#f"), Some(format!("HTTPS://x/?a=1&{parameters}#f")));
        for url in ["", "/relative", "javascript:alert(1)", "ftp://x/", "http://", "http://x/\r\nSet-Cookie: a"] {
            assert_eq!(to(url), None, "{url}");
        }
    }
}
