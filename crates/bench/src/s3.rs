//! The S3 requests that a load needs, each signed and sent on the worker's own connection.

use std::{borrow::Cow, ops::Range};

use base64::{Engine, engine::general_purpose::STANDARD};
use sha2::{Digest, Sha256};

use crate::{
    clock,
    content::Window,
    cover::{Cover, NO_BODY},
    failure::Failure,
    http::{Body, Chunked, Connection, Head},
    sign::{HASH_DIGITS, Identity, Signer, Unsigned, amz_date, encode_path, encode_query},
    xml::{elements, escape, unescape},
};

/// Largest answer that is read into memory (a page of a listing, an error), in bytes.
const ANSWER_BYTES_MAX: usize = 16 << 20;
/// Most headers that are signed.
const SIGNED_HEADERS_MAX: usize = 8;
/// The region that a bucket is created in by a request that names none.
const DEFAULT_REGION: &str = "us-east-1";

/// One page of a listing.
#[derive(Debug)]
pub(crate) struct Page {
    /// Keys and common prefixes on it.
    pub(crate) entries: u64,
    /// The greatest key or common prefix on it and the pages before; nothing if that was not asked for, or there is none.
    pub(crate) last: Option<String>,
    /// Where the next page begins, if there is one.
    pub(crate) next: Option<String>,
    pub(crate) bytes: u64,
}

/// What is listed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listing<'a> {
    pub(crate) prefix: &'a str,
    pub(crate) delimiter: Option<&'a str>,
    pub(crate) max_keys: u32,
    pub(crate) token: Option<&'a str>,
    /// Whether keys and common prefixes are to be those that were asked for.
    pub(crate) order: Order<'a>,
}

/// What is looked at on a page of a listing.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Order<'a> {
    /// Nothing.
    Any,
    /// That all begin with the prefix, ascend, and are behind this one, the last of the page before, if there was one.
    Behind(Option<&'a str>),
}

/// An object, or one version of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ObjectName {
    pub(crate) key: String,
    version: Option<String>,
}

/// A place in a listing of versions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Marker {
    key: String,
    version: String,
}

impl ObjectName {
    /// What the key stands for.
    pub(crate) fn newest(key: String) -> Self {
        Self { key, version: None }
    }
}

/// An S3 client for one bucket, used by one worker.
pub(crate) struct Client {
    connection: Connection,
    signer: Signer,
    /// Sent with each request, if there is one.
    session_token: Option<String>,
    /// What creates the bucket; empty for the region that is not named.
    location: String,
    /// `/BUCKET`, encoded.
    root: String,
    /// The second that `date` shows.
    second: u64,
    date: String,
    path: String,
    /// Length of the body without its framing.
    length: String,
    head: String,
    /// What stands around the bytes of a body that is framed.
    frames: String,
    answer: Vec<u8>,
}

/// A request before it is signed.
struct Call<'a> {
    method: &'static str,
    /// Key of the object, or empty for the bucket.
    key: &'a str,
    /// Encoded and sorted.
    query: &'a str,
    /// Lower-case names, beyond those that every request has.
    headers: &'a [(&'a str, &'a str)],
    /// Framed when it is sent, if `cover` wants it.
    body: Body<'a>,
    cover: &'a Cover,
}

impl<'a> Call<'a> {
    fn new(method: &'static str, key: &'a str) -> Self {
        Self { method, key, query: "", headers: &[], body: Body::EMPTY, cover: &NO_BODY }
    }
}

impl Client {
    pub(crate) fn new(connection: Connection, mut identity: Identity, bucket: &str) -> Self {
        let mut root = String::from("/");
        encode_path(&mut root, bucket);
        Self {
            connection,
            session_token: identity.session_token.take(),
            location: location(&identity.region),
            signer: Signer::new(identity),
            root,
            second: 0,
            date: amz_date(0),
            path: String::new(),
            length: String::new(),
            head: String::new(),
            frames: String::new(),
            answer: Vec::new(),
        }
    }

    /// Connects, so that the first request does not have to.
    ///
    /// # Errors
    /// When the endpoint can not be reached.
    pub(crate) async fn connect(&mut self) -> std::io::Result<()> {
        self.connection.open().await
    }

    /// How many requests were sent once more, on a new connection, since this was asked last.
    pub(crate) fn take_retries(&mut self) -> u64 {
        self.connection.take_retries()
    }

    /// Asks whether there is the bucket.
    pub(crate) async fn head_bucket(&mut self) -> Result<(), Failure> {
        self.finish(Call::new("HEAD", "")).await
    }

    /// Creates the bucket; `false` when it was there.
    pub(crate) async fn create_bucket(&mut self) -> Result<bool, Failure> {
        match self.head_bucket().await {
            Ok(()) => return Ok(false),
            Err(Failure::Status { status: 404, .. }) => {}
            Err(error) => return Err(error),
        }
        let location = self.location.clone();
        let body = Body::Bytes(location.as_bytes());
        let cover = &Cover::of_document(&location);
        match self.finish(Call { body, cover, ..Call::new("PUT", "") }).await {
            Ok(()) => Ok(true),
            Err(Failure::Status { status: 409, code }) if code == "BucketAlreadyOwnedByYou" => Ok(false),
            Err(error) => Err(error),
        }
    }

    pub(crate) async fn delete_bucket(&mut self) -> Result<(), Failure> {
        self.finish(Call::new("DELETE", "")).await
    }

    /// Writes an object without content.
    pub(crate) async fn put_empty(&mut self, key: &str) -> Result<(), Failure> {
        self.finish(Call::new("PUT", key)).await
    }

    /// Writes an object.
    pub(crate) async fn put(&mut self, key: &str, content: Window<'_>, cover: &Cover) -> Result<u64, Failure> {
        let body = Body::Content(content);
        self.finish(Call { body, cover, ..Call::new("PUT", key) }).await?;
        Ok(content.remaining())
    }

    /// Reads an object to its end and checks its length; with `verify` every byte is compared.
    pub(crate) async fn get(&mut self, key: &str, mut expected: Window<'_>, verify: bool) -> Result<u64, Failure> {
        self.start(Call::new("GET", key)).await?;
        let length = expected.remaining();
        let mut bytes = 0;
        loop {
            let piece = self.connection.body().await?;
            if piece.is_empty() {
                break;
            }
            bytes += piece.len() as u64;
            if verify && !expected.matches(piece) {
                self.connection.close();
                return Err(Failure::Mismatch);
            }
        }
        if bytes == length { Ok(bytes) } else { Err(Failure::Mismatch) }
    }

    /// Asks for an object's head and checks the length there; with `verify` there must be one.
    pub(crate) async fn stat(&mut self, key: &str, length: u64, verify: bool) -> Result<(), Failure> {
        let head = self.start(Call::new("HEAD", key)).await?;
        let is_right = head.content_length.map_or(!verify, |found| found == length);
        if is_right { Ok(()) } else { Err(Failure::Mismatch) }
    }

    pub(crate) async fn delete(&mut self, key: &str) -> Result<(), Failure> {
        self.finish(Call::new("DELETE", key)).await
    }

    /// One page of a listing, `Malformed` if it is not in the order that is asked for; its keys are what [`Client::listed_keys`] returns until the next request.
    pub(crate) async fn list(&mut self, listing: Listing<'_>) -> Result<Page, Failure> {
        let mut query = String::new();
        if let Some(token) = listing.token {
            query += "continuation-token=";
            encode_query(&mut query, token);
            query.push('&');
        }
        if let Some(delimiter) = listing.delimiter {
            query += "delimiter=";
            encode_query(&mut query, delimiter);
            query.push('&');
        }
        query += "list-type=2&max-keys=";
        query += &listing.max_keys.to_string();
        query += "&prefix=";
        encode_query(&mut query, listing.prefix);
        self.finish(Call { query: &query, ..Call::new("GET", "") }).await?;
        let text = self.text()?;
        let (entries, last) = match listing.order {
            Order::Any => (elements(text, "Key").count() + text.matches("<CommonPrefixes>").count(), None),
            Order::Behind(before) => {
                let (keys, last_key) = in_order(elements(text, "Key"), listing.prefix, before)?;
                let folders = elements(text, "CommonPrefixes").filter_map(|folder| elements(folder, "Prefix").next());
                let (folders, last_folder) = in_order(folders, listing.prefix, before)?;
                (keys + folders, last_key.max(last_folder).map(Cow::into_owned))
            }
        };
        let goes_on = elements(text, "IsTruncated").next().is_none_or(|truncated| truncated != "false");
        let next = elements(text, "NextContinuationToken").next().filter(|token| goes_on && !token.is_empty());
        let next = next.map(unescape);
        Ok(Page { entries: entries as u64, last, next, bytes: self.answer.len() as u64 })
    }

    /// The keys of the page that was just read.
    pub(crate) fn listed_keys(&self) -> Vec<String> {
        self.text().map(|text| elements(text, "Key").map(unescape).collect()).unwrap_or_default()
    }

    /// Up to 1000 versions, delete markers among them, of keys that begin with `prefix`, behind `after`; and what those that follow are behind, if any do.
    pub(crate) async fn list_versions(
        &mut self,
        prefix: &str,
        after: Option<&Marker>,
    ) -> Result<(Vec<ObjectName>, Option<Marker>), Failure> {
        let mut query = String::new();
        if let Some(after) = after {
            query += "key-marker=";
            encode_query(&mut query, &after.key);
            query.push('&');
        }
        query += "max-keys=1000&prefix=";
        encode_query(&mut query, prefix);
        if let Some(after) = after {
            query += "&version-id-marker=";
            encode_query(&mut query, &after.version);
        }
        query += "&versions=";
        self.finish(Call { query: &query, ..Call::new("GET", "") }).await?;
        let text = self.text()?;
        let versions = elements(text, "Version").chain(elements(text, "DeleteMarker")).filter_map(|version| {
            let text = |name| elements(version, name).next().map(unescape);
            Some(ObjectName { key: text("Key")?, version: Some(text("VersionId")?) })
        });
        let of_all = |name| elements(text, name).next().map(unescape);
        let goes_on = of_all("IsTruncated").is_some_and(|truncated| truncated == "true");
        let next = of_all("NextKeyMarker").filter(|_| goes_on);
        let next = next.map(|key| Marker { key, version: of_all("NextVersionIdMarker").unwrap_or_default() });
        Ok((versions.collect(), next))
    }

    /// Deletes up to 1000 objects or versions with one request; with what those are refused that stay.
    ///
    /// # Errors
    /// Also that of a single one, if it may pass.
    pub(crate) async fn delete_objects(&mut self, names: &[ObjectName]) -> Result<Vec<Failure>, Failure> {
        let mut xml = String::from("<Delete><Quiet>true</Quiet>");
        for ObjectName { key, version } in names {
            xml += &format!("<Object><Key>{}</Key>", escape(key));
            if let Some(version) = version {
                xml += &format!("<VersionId>{}</VersionId>", escape(version));
            }
            xml += "</Object>";
        }
        xml += "</Delete>";
        let checksum = STANDARD.encode(Sha256::digest(xml.as_bytes()));
        let headers = [("x-amz-checksum-sha256", checksum.as_str()), ("x-amz-sdk-checksum-algorithm", "SHA256")];
        let body = Body::Bytes(xml.as_bytes());
        let cover = &Cover::of_document(&xml);
        let call = Call { query: "delete=", headers: &headers, body, cover, ..Call::new("POST", "") };
        self.finish(call).await?;
        let codes = elements(self.text()?, "Code");
        let mut refused: Vec<_> = codes.map(|code| Failure::Status { status: 200, code: plain(code) }).collect();
        match refused.iter().position(Failure::may_pass) {
            Some(index) => Err(refused.swap_remove(index)),
            None => Ok(refused),
        }
    }

    /// Begins an upload and returns its id.
    pub(crate) async fn create_upload(&mut self, key: &str) -> Result<String, Failure> {
        self.finish(Call { query: "uploads=", ..Call::new("POST", key) }).await?;
        let id = elements(self.text()?, "UploadId").next().map(unescape);
        id.ok_or_else(|| Failure::Malformed("the answer to CreateMultipartUpload names no upload".to_owned()))
    }

    /// Sends one part and returns its entity tag.
    pub(crate) async fn upload_part(
        &mut self,
        key: &str,
        upload: &str,
        number: u32,
        content: Window<'_>,
        cover: &Cover,
    ) -> Result<String, Failure> {
        let mut query = format!("partNumber={number}&uploadId=");
        encode_query(&mut query, upload);
        let body = Body::Content(content);
        self.finish(Call { query: &query, body, cover, ..Call::new("PUT", key) }).await?;
        Ok(self.connection.etag().to_owned())
    }

    /// Makes the object from parts 1, 2, … that have these entity tags.
    pub(crate) async fn complete_upload(&mut self, key: &str, upload: &str, etags: &[String]) -> Result<(), Failure> {
        let mut xml = String::from("<CompleteMultipartUpload>");
        for (index, etag) in etags.iter().enumerate() {
            xml += &format!("<Part><PartNumber>{}</PartNumber><ETag>{}</ETag></Part>", index + 1, escape(etag));
        }
        xml += "</CompleteMultipartUpload>";
        let mut query = String::from("uploadId=");
        encode_query(&mut query, upload);
        let body = Body::Bytes(xml.as_bytes());
        let cover = &Cover::of_document(&xml);
        self.finish(Call { query: &query, body, cover, ..Call::new("POST", key) }).await?;
        // S3 may send the head of the answer before it knows whether the upload succeeds.
        self.refuse_error_in_answer()
    }

    pub(crate) async fn abort_upload(&mut self, key: &str, upload: &str) -> Result<(), Failure> {
        let mut query = String::from("uploadId=");
        encode_query(&mut query, upload);
        self.finish(Call { query: &query, ..Call::new("DELETE", key) }).await
    }

    /// Up to 1000 uploads in progress of keys that begin with `prefix`: their keys and ids.
    pub(crate) async fn list_uploads(&mut self, prefix: &str) -> Result<Vec<(String, String)>, Failure> {
        let mut query = String::from("max-uploads=1000&prefix=");
        encode_query(&mut query, prefix);
        query += "&uploads=";
        self.finish(Call { query: &query, ..Call::new("GET", "") }).await?;
        let text = self.text()?;
        let uploads = elements(text, "Upload").filter_map(|upload| {
            let text = |name| elements(upload, name).next().map(unescape);
            Some((text("Key")?, text("UploadId")?))
        });
        Ok(uploads.filter(|(key, _)| key.starts_with(prefix)).collect())
    }

    fn refuse_error_in_answer(&self) -> Result<(), Failure> {
        match elements(self.text()?, "Code").next() {
            Some(code) => Err(Failure::Status { status: 200, code: plain(code) }),
            None => Ok(()),
        }
    }

    fn text(&self) -> Result<&str, Failure> {
        std::str::from_utf8(&self.answer).map_err(|_| Failure::Malformed("the answer is not UTF-8".to_owned()))
    }

    /// Sends the request and reads its whole answer into `answer`.
    async fn finish(&mut self, call: Call<'_>) -> Result<(), Failure> {
        self.start(call).await?;
        self.read_answer().await
    }

    async fn read_answer(&mut self) -> Result<(), Failure> {
        self.answer.clear();
        loop {
            let piece = self.connection.body().await?;
            if piece.is_empty() {
                return Ok(());
            }
            if self.answer.len() + piece.len() > ANSWER_BYTES_MAX {
                self.connection.close();
                return Err(Failure::Malformed(format!("the answer has more than {ANSWER_BYTES_MAX} bytes")));
            }
            self.answer.extend_from_slice(piece);
        }
    }

    /// Sends the request and returns the head of a successful answer.
    async fn start(&mut self, call: Call<'_>) -> Result<Head, Failure> {
        let (body, signature) = (call.body, self.write_head(&call));
        let body = match (body, call.cover.seal()) {
            (Body::Content(content), Some(seal)) => {
                let signer = self.signer.chunks(&self.date, &self.head[signature]);
                seal.write_frames(&mut self.frames, content.remaining(), signer);
                Body::Chunked(Chunked::new(content, &self.frames))
            }
            (body, _) => body,
        };
        let head = self.connection.exchange(self.head.as_bytes(), body, call.method == "HEAD").await?;
        if (200..300).contains(&head.status) {
            return Ok(head);
        }
        self.read_answer().await?;
        let text = String::from_utf8_lossy(&self.answer);
        let code = elements(&text, "Code").next().map(plain).unwrap_or_default();
        Err(Failure::Status { status: head.status, code })
    }

    /// Puts the request's head together, signed; where in it the signature is.
    fn write_head(&mut self, call: &Call<'_>) -> Range<usize> {
        let second = clock::unix_seconds();
        if second != self.second {
            (self.second, self.date) = (second, amz_date(second));
        }
        self.path.clear();
        self.path.push_str(&self.root);
        if !call.key.is_empty() {
            self.path.push('/');
            encode_path(&mut self.path, call.key);
        }
        let authority = self.connection.endpoint().authority.as_str();
        let mut headers = [("", ""); SIGNED_HEADERS_MAX];
        headers[..3].copy_from_slice(&[
            ("host", authority),
            ("x-amz-content-sha256", call.cover.content_sha256()),
            ("x-amz-date", self.date.as_str()),
        ]);
        let mut count = 3;
        if let Some(token) = &self.session_token {
            headers[count] = ("x-amz-security-token", token);
            count += 1;
        }
        let sorted = count;
        headers[count..count + call.headers.len()].copy_from_slice(call.headers);
        count += call.headers.len();
        let mut body_bytes = call.body.len();
        if let Some(seal) = call.cover.seal() {
            self.length.clear();
            push_decimal(&mut self.length, body_bytes);
            headers[count] = ("x-amz-decoded-content-length", &self.length);
            headers[count + 1] = ("content-encoding", "aws-chunked");
            count += 2;
            if let Some(trailer) = call.cover.trailer() {
                headers[count] = ("x-amz-trailer", trailer);
                count += 1;
            }
            body_bytes = seal.framed_bytes(body_bytes);
        }
        let headers = &mut headers[..count];
        if count > sorted {
            headers.sort_unstable();
        }
        let head = &mut self.head;
        head.clear();
        for part in [call.method, " ", &self.path, if call.query.is_empty() { "" } else { "?" }, call.query] {
            head.push_str(part);
        }
        head.push_str(" HTTP/1.1\r\n");
        for (name, value) in headers.iter() {
            for part in [name, ": ", value, "\r\n"] {
                head.push_str(part);
            }
        }
        if body_bytes > 0 || matches!(call.method, "PUT" | "POST") {
            head.push_str("content-length: ");
            push_decimal(head, body_bytes);
            head.push_str("\r\n");
        }
        head.push_str("authorization: ");
        let request = Unsigned {
            method: call.method,
            path: &self.path,
            query: call.query,
            headers,
            payload_hash: call.cover.content_sha256(),
        };
        self.signer.authorize(head, &self.date, &request);
        let end = head.len();
        head.push_str("\r\n\r\n");
        end - HASH_DIGITS..end
    }
}

/// Counts entries of a page, of keys or of common prefixes, as they stand there, and finds the last of them.
///
/// # Errors
/// When one of them does not begin with `prefix`, or does not come behind the one before it.
fn in_order<'a>(
    entries: impl Iterator<Item = &'a str>,
    prefix: &str,
    before: Option<&'a str>,
) -> Result<(usize, Option<Cow<'a, str>>), Failure> {
    let (mut count, mut last) = (0, before.map(Cow::Borrowed));
    for entry in entries {
        // Most have nothing that would have to be escaped.
        let entry = if entry.contains('&') { Cow::Owned(unescape(entry)) } else { Cow::Borrowed(entry) };
        if !entry.starts_with(prefix) {
            return Err(Failure::Malformed("a listing with what was not asked for".to_owned()));
        }
        if last.as_ref().is_some_and(|last| *last >= entry) {
            return Err(Failure::Malformed("a listing that is not in order".to_owned()));
        }
        (count, last) = (count + 1, Some(entry));
    }
    Ok((count, last))
}

/// The code of an error, if it is such as one may print and count: not whatever a server sends.
fn plain(code: &str) -> String {
    let is_plain = code.len() <= 64 && code.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
    if is_plain { code.to_owned() } else { String::new() }
}

/// The body of a request that creates a bucket in `region`; empty where AWS wants none.
fn location(region: &str) -> String {
    if region == DEFAULT_REGION {
        return String::new();
    }
    format!(
        "<CreateBucketConfiguration xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><LocationConstraint>{}</LocationConstraint></CreateBucketConfiguration>",
        escape(region)
    )
}

/// Adds a number in decimal digits.
pub(crate) fn push_decimal(out: &mut String, number: u64) {
    use std::fmt::Write;
    write!(out, "{number}").expect("writing to a string succeeds");
}
