//! A line of a log: one request, in 26 fields.

use std::fmt::Write;

use gabion_types::BucketName;
use gabion_types::limits::KEY_BYTES_MAX;
use http::header::{AUTHORIZATION, CONTENT_LENGTH, HOST, REFERER, USER_AGENT};
use http::{HeaderMap, Response, StatusCode};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use s3s::Body;
use time::OffsetDateTime;

use super::Logging;
use crate::access_log;
use crate::error::S3Error;
use crate::ops::Ops;
use crate::s3::answer::About;
use crate::s3::call::Call;
use crate::s3::copies;
use crate::s3::listing::url_encoded;
use crate::s3::route::Operation;

/// What can not stand between quotes: what a client sends must not look like another field or line.
const QUOTED: &AsciiSet = &CONTROLS.add(b'"').add(b'[').add(b']');
/// Longest text of a client in a line, in bytes.
const TEXT_BYTES_MAX: usize = 2048;
/// Longest version id in the lines of what a request did besides, in bytes; those that there are have 16.
const VERSION_BYTES_MAX: usize = 64;
const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// A request that is to be logged, as it was when it began: some of it is gone when it has been answered.
pub(crate) struct Draft {
    /// The log of its bucket, if it has one.
    pub(super) logging: Option<Logging>,
    /// What is read of another log's bucket: the source of a copy.
    pub(super) source: Option<(BucketName, Logging, Also)>,
    pub(super) bucket: BucketName,
    pub(super) event_ms: u64,
    operation: String,
    requester: String,
    key: String,
    uri: String,
    remote: String,
    request_id: String,
    referer: String,
    agent: String,
    version: String,
    host: String,
    signed: (&'static str, &'static str),
}

impl Draft {
    /// Nothing when no bucket that it is about has a log.
    ///
    /// # Errors
    /// Those of the index.
    pub(in crate::s3) fn of(ops: &Ops, call: &Call, about: &About<'_>) -> Result<Option<Box<Self>>, S3Error> {
        let Some(bucket) = &call.routed.bucket else { return Ok(None) };
        let logging = call.settings(ops)?.logging.clone().and_then(Result::ok);
        let source = copied(ops, call)?;
        if logging.is_none() && source.is_none() {
            return Ok(None);
        }
        let operation = call.routed.operation.as_ref().map_or("REST.UNKNOWN".to_owned(), |operation| named(*operation));
        let method = operation.split('.').nth(1).unwrap_or_default();
        let query: Vec<String> = call.query().iter().filter(|(name, _)| !is_secret(name)).map(pair).collect();
        let query = if query.is_empty() { String::new() } else { format!("?{}", query.join("&")) };
        let text = |name| header(call.headers(), name);
        Ok(Some(Box::new(Self {
            logging,
            source,
            bucket: bucket.clone(),
            event_ms: ops.clock.now_ms(),
            uri: quoted(&format!("{method} {}{query} HTTP/1.1", about.resource)),
            operation,
            requester: requester(call),
            key: key(call),
            remote: call.routed.source.to_string(),
            request_id: about.request_id.to_owned(),
            referer: text(&REFERER),
            agent: text(&USER_AGENT),
            version: call.query().get("versionId").ok().flatten().map_or("-".to_owned(), bare),
            host: call.headers().get(HOST).and_then(|host| host.to_str().ok()).map_or("-".to_owned(), bare),
            signed: signed(call),
        })))
    }

    /// It has turned out who asked, and for what key: a form says so in its body.
    pub(in crate::s3) fn learn(&mut self, call: &Call) {
        self.requester = requester(call);
        self.key = key(call);
        self.signed = signed(call);
    }

    /// The line of the request itself, without its end.
    pub(super) fn line(&self, owner: &str, response: &Response<Body>, error: Option<&str>, now_ms: u64) -> String {
        let number = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
        let length = number(CONTENT_LENGTH.as_str());
        let size = match number("content-range").and_then(|range| range.rsplit('/').next()) {
            Some(size) => Some(size),
            None if response.status().is_success() => number("x-amz-object-size").or(length),
            None => None,
        };
        let sent = length.filter(|length| *length != "0").map(str::to_owned);
        let sent = sent.or_else(|| {
            response.body().bytes().map(|bytes| bytes.len()).filter(|len| *len > 0).map(|len| len.to_string())
        });
        self.write(
            owner,
            &Line {
                bucket: &self.bucket,
                operation: &self.operation,
                key: &self.key,
                uri: &self.uri,
                status: response.status(),
                error,
                sent: sent.as_deref(),
                size,
                version: number("x-amz-version-id").unwrap_or(&self.version),
                referer: &self.referer,
                agent: &self.agent,
            },
            now_ms,
        )
    }

    /// The line of something that the request did as well, in a bucket of this owner.
    pub(super) fn line_of(&self, owner: &str, bucket: &BucketName, also: &Also, now_ms: u64) -> String {
        // A thousand of them may come of one request: they say again only what it takes to find it.
        let key = match short(&also.key, KEY_BYTES_MAX) {
            "" => "-".to_owned(),
            key => url_encoded(key).to_string(),
        };
        self.write(
            owner,
            &Line {
                bucket,
                operation: also.operation,
                key: &key,
                uri: "-",
                status: also.status,
                error: also.error,
                sent: None,
                size: None,
                version: also
                    .version
                    .as_deref()
                    .map(|version| bare(short(version, VERSION_BYTES_MAX)))
                    .as_deref()
                    .unwrap_or("-"),
                referer: "-",
                agent: "-",
            },
            now_ms,
        )
    }

    fn write(&self, owner: &str, of: &Line<'_>, now_ms: u64) -> String {
        let mut line = String::with_capacity(512);
        let total_ms = now_ms.saturating_sub(self.event_ms);
        let (signature, authentication) = self.signed;
        // What has no request line has none between quotes either.
        let quotes = if of.uri == "-" { "" } else { "\"" };
        // A string takes all that is written.
        let _ = write!(
            line,
            "{owner} {} [{}] {} {} {} {} {} {quotes}{}{quotes} {} {} {} {} {total_ms} {total_ms} \"{}\" \"{}\" {} - {signature} - {authentication} {} - - -",
            of.bucket,
            moment(self.event_ms),
            self.remote,
            self.requester,
            self.request_id,
            of.operation,
            of.key,
            of.uri,
            of.status.as_u16(),
            of.error.unwrap_or("-"),
            of.sent.unwrap_or("-"),
            of.size.unwrap_or("-"),
            of.referer,
            of.agent,
            of.version,
            self.host,
        );
        line
    }
}

/// What lines of one request differ in.
struct Line<'a> {
    bucket: &'a BucketName,
    operation: &'a str,
    key: &'a str,
    uri: &'a str,
    status: StatusCode,
    error: Option<&'a str>,
    sent: Option<&'a str>,
    size: Option<&'a str>,
    version: &'a str,
    referer: &'a str,
    agent: &'a str,
}

/// Something that a request did beside what it is named for, and that has a line of its own: it deleted one object of many, or read the
/// source of a copy.
#[derive(Clone, Debug)]
pub(in crate::s3) struct Also {
    /// As AWS calls it.
    pub(in crate::s3) operation: &'static str,
    pub(in crate::s3) key: String,
    pub(in crate::s3) version: Option<String>,
    pub(in crate::s3) status: StatusCode,
    pub(in crate::s3) error: Option<&'static str>,
}

/// What an answer carries to its log.
#[derive(Clone, Debug, Default)]
pub(in crate::s3) struct AlsoDone(pub(in crate::s3) Vec<Also>);

/// The source of a copy, if its bucket has a log.
fn copied(ops: &Ops, call: &Call) -> Result<Option<(BucketName, Logging, Also)>, S3Error> {
    let operation = match call.routed.operation {
        Ok(Operation::CopyObject) => "REST.COPY.OBJECT_GET",
        Ok(Operation::UploadPartCopy) => "REST.COPY.PART_GET",
        _ => return Ok(None),
    };
    // One that is none is refused, in a line of its own.
    let Ok(source) = copies::source_name(call) else { return Ok(None) };
    let Some(Ok(logging)) = &ops.settings(&source.bucket)?.logging else { return Ok(None) };
    let version = source.version.map(|version| version.to_string());
    let also = Also { operation, key: source.key.to_string(), version, status: StatusCode::OK, error: None };
    Ok(Some((source.bucket, logging.clone(), also)))
}

/// The key, encoded as in a URL.
fn key(call: &Call) -> String {
    call.routed.key.as_ref().map_or_else(|| "-".to_owned(), |key| url_encoded(key.as_str()).to_string())
}

/// `REST.GET.OBJECT`, as AWS calls it.
fn named(operation: Operation) -> String {
    use Operation as O;
    let name = match operation {
        O::ListObjects | O::ListObjectsV2 => "REST.GET.BUCKET",
        O::CreateBucket => "REST.PUT.BUCKET",
        O::CopyObject => "REST.COPY.OBJECT",
        O::RenameObject => "REST.RENAME.OBJECT",
        O::UploadPart => "REST.PUT.PART",
        O::UploadPartCopy => "REST.COPY.PART",
        O::CreateMultipartUpload => "REST.POST.UPLOADS",
        O::CompleteMultipartUpload => "REST.POST.UPLOAD",
        O::AbortMultipartUpload => "REST.DELETE.UPLOAD",
        O::ListMultipartUploads => "REST.GET.UPLOADS",
        O::ListParts => "REST.GET.UPLOAD",
        O::DeleteObjects => "REST.POST.MULTI_OBJECT_DELETE",
        O::PostObject => "REST.POST.OBJECT",
        O::PreflightRequest => "REST.OPTIONS.PREFLIGHT",
        O::GetBucketLocation => "REST.GET.LOCATION",
        O::GetObjectTagging => "REST.GET.OBJECT_TAGGING",
        O::PutObjectTagging => "REST.PUT.OBJECT_TAGGING",
        O::DeleteObjectTagging => "REST.DELETE.OBJECT_TAGGING",
        O::GetObjectAttributes => "REST.GET.OBJECT_ATTRIBUTES",
        other => return of_name(other.name()),
    };
    name.to_owned()
}

/// `REST.PUT.LIFECYCLE` of `PutBucketLifecycleConfiguration`: what it does, and with what.
fn of_name(name: &str) -> String {
    let end = name[1..].find(|letter: char| letter.is_ascii_uppercase()).map_or(name.len(), |at| at + 1);
    let (verb, rest) = name.split_at(end);
    let bare = rest.strip_suffix("Configuration").unwrap_or(rest);
    let bare = match bare.strip_prefix("Bucket").or_else(|| bare.strip_prefix("Object")) {
        Some(of) if !of.is_empty() => of,
        _ => bare,
    };
    let mut words = String::new();
    let mut before = false;
    for letter in bare.chars() {
        if letter.is_ascii_uppercase() && before {
            words.push('_');
        }
        before = letter.is_ascii_lowercase();
        words.push(letter.to_ascii_uppercase());
    }
    let method = if verb == "List" { "GET".to_owned() } else { verb.to_ascii_uppercase() };
    format!("REST.{method}.{words}")
}

fn requester(call: &Call) -> String {
    if call.caller.is_anonymous() {
        return "-".to_owned();
    }
    match call.caller.principal {
        crate::credentials::Principal::Root => call.caller.account.canonical_id.clone(),
        _ => bare(&call.caller.arn()),
    }
}

/// Version and kind of the signature.
fn signed(call: &Call) -> (&'static str, &'static str) {
    let query = call.query();
    match call.headers().get(AUTHORIZATION) {
        Some(value) if value.as_bytes().starts_with(b"AWS ") => ("SigV2", "AuthHeader"),
        Some(_) => ("SigV4", "AuthHeader"),
        None if query.has("X-Amz-Signature") => ("SigV4", "QueryString"),
        None if query.has("Signature") => ("SigV2", "QueryString"),
        None if call.form.as_ref().is_some_and(|form| form.is_version_2) => ("SigV2", "-"),
        None if call.form.as_ref().is_some_and(|form| form.date.is_some()) => ("SigV4", "-"),
        None => ("-", "-"),
    }
}

/// Whoever may read the log must not be able to send the request again.
fn is_secret(name: &str) -> bool {
    access_log::is_secret(name)
}

fn pair((name, value): (&str, &str)) -> String {
    if value.is_empty() {
        url_encoded(name).to_string()
    } else {
        format!("{}={}", url_encoded(name), url_encoded(value))
    }
}

fn header(headers: &HeaderMap, name: &http::HeaderName) -> String {
    let text = headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    text.filter(|text| !text.is_empty()).map_or_else(|| "-".to_owned(), |text| quoted(&text))
}

/// A text of a client, so that it can stand between quotes.
fn quoted(text: &str) -> String {
    utf8_percent_encode(short(text, TEXT_BYTES_MAX), QUOTED).to_string()
}

fn short(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

/// The same where there are no quotes.
fn bare(text: &str) -> String {
    quoted(text).replace(' ', "%20")
}

/// `06/Feb/2019:00:00:38 +0000`.
fn moment(unix_ms: u64) -> String {
    let seconds = i64::try_from(unix_ms / 1000).unwrap_or(i64::MAX);
    let at = OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let month = MONTHS[usize::from(u8::from(at.month()) - 1)];
    format!("{:02}/{month}/{:04}:{:02}:{:02}:{:02} +0000", at.day(), at.year(), at.hour(), at.minute(), at.second())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_called_as_on_aws() {
        for (operation, expected) in [
            (Operation::GetObject, "REST.GET.OBJECT"),
            (Operation::HeadBucket, "REST.HEAD.BUCKET"),
            (Operation::DeleteBucket, "REST.DELETE.BUCKET"),
            (Operation::ListObjectsV2, "REST.GET.BUCKET"),
            (Operation::CompleteMultipartUpload, "REST.POST.UPLOAD"),
            (Operation::PutBucketLifecycleConfiguration, "REST.PUT.LIFECYCLE"),
            (Operation::GetBucketRequestPayment, "REST.GET.REQUEST_PAYMENT"),
            (Operation::PutBucketCors, "REST.PUT.CORS"),
        ] {
            assert_eq!(named(operation), expected);
        }
    }

    #[test]
    fn texts_of_clients_stay_in_their_field() {
        assert_eq!(quoted("a \"b\" [c]\n"), "a %22b%22 %5Bc%5D%0A");
        assert_eq!(bare("a b"), "a%20b");
        assert_eq!(quoted(&"ü".repeat(5000)).len(), 1024 * "%C3%BC".len());
        assert_eq!(moment(1_549_411_238_000), "06/Feb/2019:00:00:38 +0000");
    }
}
