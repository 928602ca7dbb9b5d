//! The few S3 requests that a load needs, each signed and sent on the worker's own connection.

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Either, Full, Limited};
use hyper::body::Incoming;
use sha2::{Digest, Sha256};

use crate::{
    clock,
    connection::{Connection, RequestBody},
    content::Window,
    sign::{
        EMPTY_SHA256, Identity, Signer, UNSIGNED_PAYLOAD, Unsigned, amz_date, encode_path, encode_query, sha256_hex,
    },
};

/// Largest answer that is read into memory (a page of a listing, an error), in bytes.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// Why an operation failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The endpoint answered with an error.
    Status { status: u16, code: String },
    /// The connection could not be opened or broke.
    Connection(String),
    /// No answer within the time limit.
    Timeout,
    /// The body read is not the one that was written.
    Mismatch,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Status { status, code } => write!(f, "{status} {code}"),
            Failure::Connection(reason) => write!(f, "connection: {reason}"),
            Failure::Timeout => f.write_str("timeout"),
            Failure::Mismatch => f.write_str("content mismatch"),
        }
    }
}

impl std::error::Error for Failure {}

impl Failure {
    /// The name under which it is counted.
    pub(crate) fn kind(&self) -> String {
        match self {
            Failure::Connection(_) => "connection".to_owned(),
            other => other.to_string(),
        }
    }
}

fn broken(error: &(impl std::fmt::Display + ?Sized)) -> Failure {
    Failure::Connection(error.to_string())
}

/// One page of a listing.
pub(crate) struct Page {
    pub(crate) keys: Vec<String>,
    pub(crate) next: Option<String>,
    pub(crate) bytes: u64,
}

/// An S3 client for one bucket, used by one worker.
pub(crate) struct Client {
    connection: Connection,
    signer: Signer,
    bucket: String,
}

/// A request before it is signed.
struct Call<'a> {
    method: Method,
    /// Key of the object, or empty for the bucket.
    key: &'a str,
    /// Encoded and sorted.
    query: String,
    /// Lower-case names, beyond those that every request has.
    headers: Vec<(&'static str, String)>,
    body: RequestBody,
    payload_hash: &'a str,
}

impl<'a> Call<'a> {
    fn new(method: Method, key: &'a str) -> Self {
        let body = Either::Left(Full::new(Bytes::new()));
        Self { method, key, query: String::new(), headers: Vec::new(), body, payload_hash: EMPTY_SHA256 }
    }
}

impl Client {
    pub(crate) fn new(connection: Connection, identity: Identity, bucket: &str) -> Self {
        Self { connection, signer: Signer::new(identity), bucket: bucket.to_owned() }
    }

    /// Creates the bucket; `false` when it was there.
    pub(crate) async fn create_bucket(&mut self) -> Result<bool, Failure> {
        match self.finish(Call::new(Method::HEAD, "")).await {
            Ok(_) => return Ok(false),
            Err(Failure::Status { status: 404, .. }) => {}
            Err(error) => return Err(error),
        }
        match self.finish(Call::new(Method::PUT, "")).await {
            Ok(_) => Ok(true),
            Err(Failure::Status { status: 409, code }) if code == "BucketAlreadyOwnedByYou" => Ok(false),
            Err(error) => Err(error),
        }
    }

    pub(crate) async fn delete_bucket(&mut self) -> Result<(), Failure> {
        self.finish(Call::new(Method::DELETE, "")).await.map(drop)
    }

    /// Writes an object. `payload_hash`: [`payload_hash`] of the content, or `None` to leave it unsigned.
    pub(crate) async fn put(&mut self, key: &str, content: Window, payload_hash: Option<&str>) -> Result<u64, Failure> {
        let bytes = content.remaining();
        let mut call = Call::new(Method::PUT, key);
        call.body = Either::Right(content);
        call.payload_hash = payload_hash.unwrap_or(UNSIGNED_PAYLOAD);
        self.finish(call).await?;
        Ok(bytes)
    }

    /// Reads an object to its end; with `expected` every byte is compared.
    pub(crate) async fn get(&mut self, key: &str, mut expected: Option<Window>) -> Result<u64, Failure> {
        let mut body = self.start(Call::new(Method::GET, key)).await?.into_body();
        let mut bytes = 0;
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(|error| broken(&error))?.into_data() else { continue };
            bytes += data.len() as u64;
            if expected.as_mut().is_some_and(|expected| !expected.matches(&data)) {
                self.close();
                return Err(Failure::Mismatch);
            }
        }
        match expected {
            Some(rest) if rest.remaining() > 0 => Err(Failure::Mismatch),
            _ => Ok(bytes),
        }
    }

    pub(crate) async fn stat(&mut self, key: &str) -> Result<u64, Failure> {
        self.finish(Call::new(Method::HEAD, key)).await.map(|_| 0)
    }

    pub(crate) async fn delete(&mut self, key: &str) -> Result<u64, Failure> {
        self.finish(Call::new(Method::DELETE, key)).await.map(|_| 0)
    }

    /// One page of at most 1000 keys after the token of the page before.
    pub(crate) async fn list(&mut self, prefix: &str, token: Option<&str>) -> Result<Page, Failure> {
        let mut call = Call::new(Method::GET, "");
        if let Some(token) = token {
            call.query = format!("continuation-token={}&", encode_query(token));
        }
        call.query += &format!("list-type=2&prefix={}", encode_query(prefix));
        let answer = self.finish(call).await?;
        let text = std::str::from_utf8(&answer).map_err(|error| broken(&error))?;
        Ok(Page {
            keys: elements(text, "Key").map(unescape).collect(),
            next: elements(text, "NextContinuationToken").next().map(unescape),
            bytes: answer.len() as u64,
        })
    }

    /// Deletes up to 1000 keys with one request.
    pub(crate) async fn delete_keys(&mut self, keys: &[String]) -> Result<(), Failure> {
        let mut xml = String::from("<Delete><Quiet>true</Quiet>");
        for key in keys {
            xml += &format!("<Object><Key>{}</Key></Object>", escape(key));
        }
        xml += "</Delete>";
        let hash = sha256_hex(xml.as_bytes());
        let mut call = Call::new(Method::POST, "");
        call.query = "delete=".to_owned();
        call.headers.push(("x-amz-checksum-sha256", STANDARD.encode(Sha256::digest(xml.as_bytes()))));
        call.headers.push(("x-amz-sdk-checksum-algorithm", "SHA256".to_owned()));
        call.body = Either::Left(Full::new(xml.into()));
        call.payload_hash = &hash;
        let answer = self.finish(call).await?;
        let text = String::from_utf8_lossy(&answer);
        match elements(&text, "Code").next() {
            Some(code) => Err(Failure::Status { status: 200, code: code.to_owned() }),
            None => Ok(()),
        }
    }

    /// Gives up the connection, whose answer was not read to its end.
    pub(crate) fn close(&mut self) {
        self.connection.close();
    }

    /// Runs one operation of this client within the time limit.
    pub(crate) async fn within_limit<T>(
        &mut self,
        operation: impl AsyncFnOnce(&mut Client) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let limit = self.connection.timeout();
        let result = tokio::time::timeout(limit, operation(self)).await.unwrap_or(Err(Failure::Timeout));
        if matches!(result, Err(Failure::Timeout | Failure::Connection(_))) {
            self.close();
        }
        result
    }

    /// Sends the request and returns its whole answer.
    async fn finish(&mut self, call: Call<'_>) -> Result<Bytes, Failure> {
        collect(self.start(call).await?).await
    }

    /// Sends the request and returns the head of a successful answer.
    async fn start(&mut self, call: Call<'_>) -> Result<Response<Incoming>, Failure> {
        let request = self.signed(call)?;
        let response = self.connection.send(request).await.map_err(|error| broken(&error))?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status().as_u16();
        let answer = collect(response).await?;
        let text = String::from_utf8_lossy(&answer);
        let code = elements(&text, "Code").next().unwrap_or_default().to_owned();
        Err(Failure::Status { status, code })
    }

    fn signed(&mut self, call: Call<'_>) -> Result<Request<RequestBody>, Failure> {
        let path = if call.key.is_empty() {
            encode_path(&format!("/{}", self.bucket))
        } else {
            encode_path(&format!("/{}/{}", self.bucket, call.key))
        };
        let date = amz_date(clock::unix_seconds());
        let authority = self.connection.endpoint().authority.clone();
        let mut headers: Vec<(&str, &str)> =
            vec![("host", &authority), ("x-amz-content-sha256", call.payload_hash), ("x-amz-date", &date)];
        headers.extend(call.headers.iter().map(|(name, value)| (*name, value.as_str())));
        headers.sort_unstable();
        let authorization = self.signer.authorization(
            &date,
            &Unsigned {
                method: call.method.as_str(),
                path: &path,
                query: &call.query,
                headers: &headers,
                payload_hash: call.payload_hash,
            },
        );
        let target = if call.query.is_empty() { path } else { format!("{path}?{}", call.query) };
        let mut request = Request::builder().method(call.method).uri(target).header("authorization", authorization);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        request.body(call.body).map_err(|error| broken(&error))
    }
}

/// Hex SHA-256 of an object's content.
pub(crate) fn payload_hash(content: Window) -> String {
    let mut digest = Sha256::new();
    for slice in content {
        digest.update(&slice);
    }
    hex::encode(digest.finalize())
}

async fn collect(response: Response<Incoming>) -> Result<Bytes, Failure> {
    let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX);
    Ok(body.collect().await.map_err(|error| broken(&*error))?.to_bytes())
}

/// The texts of all elements of this name that have no children and no attributes, in order.
fn elements<'a>(xml: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    let mut rest = xml;
    std::iter::from_fn(move || {
        let begin = rest.find(&open)? + open.len();
        let end = begin + rest[begin..].find(&close)?;
        let text = &rest[begin..end];
        rest = &rest[end + close.len()..];
        Some(text)
    })
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn unescape(text: &str) -> String {
    text.replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&quot;", "\"")
        .replace("&#34;", "\"")
        .replace("&apos;", "'")
        .replace("&#39;", "'")
        .replace("&amp;", "&")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_of_a_listing() {
        let xml = "<R><Contents><Key>a&amp;b</Key><Size>1</Size></Contents><Contents><Key>c</Key></Contents>\
                   <NextContinuationToken>t==</NextContinuationToken></R>";
        assert_eq!(elements(xml, "Key").map(unescape).collect::<Vec<_>>(), ["a&b", "c"]);
        assert_eq!(elements(xml, "NextContinuationToken").next(), Some("t=="));
        assert_eq!(elements(xml, "Code").next(), None);
        assert_eq!(elements("<Key>cut", "Key").next(), None);
    }

    #[test]
    fn names_survive_xml() {
        for key in ["plain", "a&b<c>d", "&amp;", "&lt;"] {
            assert_eq!(unescape(&escape(key)), key);
        }
    }
}
