//! The least of a server, for tests of whole runs.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    sync::Arc,
    time::Duration,
};

use http_body_util::{BodyExt, Full, StreamBody};
use hyper::{Request, Response, body::Bytes, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use percent_encoding::percent_decode_str;
use tokio::runtime::Runtime;

use crate::xml::elements;

/// The least of an S3 server: one bucket that exists, objects, and uploads.
#[derive(Default)]
pub(crate) struct Bucket {
    /// Requests that came.
    pub(crate) requests: u32,
    /// Objects that are written before nothing is answered any more.
    pub(crate) hangs_after: Option<usize>,
    /// Every other request to write, list or remove is refused for the moment.
    pub(crate) unsteady: bool,
    /// What is refused for good, as `METHOD ` or `METHOD key`, in how it begins: with this status.
    pub(crate) refused: Option<(&'static str, u16, &'static str)>,
    /// The same by what the query contains.
    pub(crate) refused_query: Option<(&'static str, u16)>,
    /// Each page of a listing says that another one follows, which is the same.
    pub(crate) turns_in_circles: bool,
    /// What stands before the entries of each page of a listing, with its prefix for `PREFIX`.
    pub(crate) lists_first: &'static str,
    /// An object comes to be, once, when a listing was answered with nothing.
    pub(crate) appears_late: bool,
    /// Objects that are written before nothing is answered any more but that it can not.
    pub(crate) lives_for: Option<usize>,
    /// All versions, of a bucket that keeps them.
    pub(crate) versions: Option<BTreeSet<(String, u32)>>,
    pub(crate) objects: BTreeMap<String, Bytes>,
    pub(crate) uploads: BTreeSet<String>,
    /// Parts of uploads are taken.
    pub(crate) takes_parts: bool,
    /// How often an upload is kept although it is given up.
    pub(crate) stubborn: u32,
    /// Parts that came while it held no object: it could have been deleted then.
    pub(crate) unheld: u32,
    /// How many more objects meet no bucket, as another run has just deleted it.
    pub(crate) vanishes: u32,
    /// How often it was deleted.
    pub(crate) removed: u32,
    /// Bodies of the requests that created it.
    pub(crate) created: Vec<Bytes>,
    /// Session tokens that came, and whether they were signed.
    pub(crate) tokens: BTreeSet<(Option<String>, bool)>,
    /// What puts of objects said of their content: `x-amz-content-sha256`, the length without framing, and the trailer.
    pub(crate) contents: Vec<[Option<String>; 3]>,
    /// How often each object was read.
    pub(crate) reads: BTreeMap<String, u32>,
    /// Objects that were deleted, and deletions of none.
    pub(crate) deleted: u32,
    pub(crate) missed: u32,
    /// Keys that end so are not deleted with others, and pages of a listing go on.
    pub(crate) held: Option<&'static str>,
    /// Objects are there when a request has deleted one.
    pub(crate) forgets_deletions: bool,
    /// Objects are there whoever deletes them.
    pub(crate) keeps_objects: bool,
    /// How long a put takes.
    pub(crate) put_takes: Duration,
    /// Answers to HEAD do not say how long an object is.
    pub(crate) hides_lengths: bool,
}

impl Bucket {
    fn keep_version(&mut self, key: &str) {
        let id = self.requests;
        if let Some(versions) = &mut self.versions {
            versions.insert((key.to_owned(), id));
        }
    }

    fn delete(&mut self, key: &str) {
        if self.keeps_objects {
            return;
        }
        self.keep_version(key);
        match self.objects.remove(key) {
            Some(_) => self.deleted += 1,
            None => self.missed += 1,
        }
    }

    fn answer(&mut self, request: &Request<()>, body: Bytes) -> (u16, String, Bytes) {
        let query = request.uri().query().unwrap_or_default();
        let path = percent_decode_str(request.uri().path()).decode_utf8().unwrap();
        let key = path.splitn(3, '/').nth(2).unwrap_or_default().to_owned();
        let prefix = query.split('&').find_map(|pair| pair.strip_prefix("prefix=")).unwrap_or_default();
        let prefix = percent_decode_str(prefix).decode_utf8().unwrap();
        let xml = |text: String| (200, text, Bytes::new());
        self.requests += 1;
        let header = |name| request.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
        let is_signed = header("authorization").is_some_and(|value| value.contains(";x-amz-security-token,"));
        self.tokens.insert((header("x-amz-security-token"), is_signed));
        let is_measured = request.method() == "GET" && !key.is_empty() || request.method() == "HEAD";
        let is_dead = self.lives_for.is_some_and(|count| self.objects.len() >= count);
        if is_dead || self.unsteady && !is_measured && self.requests % 2 == 1 {
            return (503, String::new(), Bytes::new());
        }
        if let Some((begin, status, code)) = self.refused
            && format!("{} {key}", request.method()).starts_with(begin)
        {
            return (status, format!("<Code>{code}</Code>"), Bytes::new());
        }
        if let Some((part, status)) = self.refused_query
            && query.contains(part)
        {
            return (status, String::new(), Bytes::new());
        }
        match (request.method().as_str(), key.as_str()) {
            ("HEAD", "") => xml(String::new()),
            ("GET", "") if query.contains("uploads") => {
                let uploads = self.uploads.iter().filter(|key| key.starts_with(&*prefix));
                let show = |key| format!("<Upload><Key>{key}</Key><UploadId>1</UploadId></Upload>");
                xml(uploads.map(show).collect())
            }
            ("GET", "") if query.contains("versions") => {
                let versions = self.versions.iter().flatten().filter(|(key, _)| key.starts_with(&*prefix));
                let show = |(key, id): &(String, u32)| {
                    format!("<Version><Key>{key}</Key><VersionId>{id}</VersionId></Version>")
                };
                xml(versions.take(7).map(show).collect())
            }
            ("GET", "") => {
                let token = query.split('&').find_map(|pair| pair.strip_prefix("continuation-token="));
                let token = token.map(|token| percent_decode_str(token).decode_utf8().unwrap().into_owned());
                let after = token.filter(|_| self.held.is_some()).unwrap_or_default();
                let keys = self.objects.keys().filter(|key| key.starts_with(&*prefix) && **key > after);
                let last = keys.clone().nth(6).filter(|_| self.held.is_some()).cloned();
                let keys = keys.take(7);
                let lists_folders = query.contains("delimiter=");
                let show = |key: &String| match key[prefix.len()..].split_once('/') {
                    Some((folder, _)) if lists_folders => {
                        format!("<CommonPrefixes><Prefix>{prefix}{folder}/</Prefix></CommonPrefixes>")
                    }
                    _ => format!("<Key>{key}</Key>"),
                };
                let keys: String = keys.map(show).collect();
                if keys.is_empty() && std::mem::take(&mut self.appears_late) {
                    self.objects.insert(format!("{prefix}late"), Bytes::new());
                }
                if let Some(last) = last {
                    return xml(format!(
                        "{keys}<NextContinuationToken>{last}</NextContinuationToken><IsTruncated>true</IsTruncated>"
                    ));
                }
                let is_measured = query.contains("max-keys=1000") && !keys.is_empty() && self.turns_in_circles;
                let keys = self.lists_first.replace("PREFIX", &prefix) + &keys;
                let next = if is_measured { "<NextContinuationToken>x</NextContinuationToken>" } else { "" };
                xml(format!("{keys}{next}<IsTruncated>{is_measured}</IsTruncated>"))
            }
            ("POST", "") => {
                let body = String::from_utf8(body.to_vec()).unwrap();
                let mut refused = String::new();
                for object in elements(&body, "Object") {
                    let key = elements(object, "Key").next().unwrap();
                    match elements(object, "VersionId").next() {
                        Some(id) => {
                            self.versions.as_mut().unwrap().remove(&(key.to_owned(), id.parse().unwrap()));
                        }
                        None if self.held.is_some_and(|held| key.ends_with(held)) => {
                            refused += &format!("<Error><Key>{key}</Key><Code>AccessDenied</Code></Error>");
                        }
                        None => self.delete(key),
                    }
                }
                xml(refused)
            }
            ("POST", _) if query.contains("uploadId") => {
                self.uploads.remove(&key);
                self.objects.insert(key, Bytes::new());
                xml(String::new())
            }
            ("POST", _) => {
                self.uploads.insert(key);
                xml("<UploadId>1</UploadId>".to_owned())
            }
            ("PUT", "") => {
                self.created.push(body);
                xml(String::new())
            }
            ("DELETE", "") if !self.objects.is_empty() => (409, "<Code>BucketNotEmpty</Code>".to_owned(), Bytes::new()),
            ("DELETE", "") => {
                self.removed += 1;
                xml(String::new())
            }
            ("PUT", _) if query.contains("uploadId") => {
                self.unheld += u32::from(self.objects.is_empty());
                (if self.takes_parts { 200 } else { 503 }, String::new(), Bytes::new())
            }
            ("PUT", _) if self.vanishes > 0 => {
                self.vanishes -= 1;
                (404, "<Code>NoSuchBucket</Code>".to_owned(), Bytes::new())
            }
            ("PUT", _) if is_lease(&key) => {
                self.keep_version(&key);
                self.objects.insert(key, body);
                xml(String::new())
            }
            ("PUT", _) => {
                let names = ["x-amz-content-sha256", "x-amz-decoded-content-length", "x-amz-trailer"];
                self.contents.push(names.map(header));
                self.keep_version(&key);
                self.objects.insert(key, body);
                xml(String::new())
            }
            (method @ ("GET" | "HEAD"), _) => match self.objects.get(&key) {
                Some(body) => {
                    *self.reads.entry(key).or_default() += u32::from(method == "GET");
                    (200, String::new(), body.clone())
                }
                None => (404, String::new(), Bytes::new()),
            },
            ("DELETE", _) if query.contains("uploadId") && self.stubborn > 0 => {
                self.stubborn -= 1;
                (503, String::new(), Bytes::new())
            }
            ("DELETE", _) if query.contains("uploadId") => {
                self.uploads.remove(&key);
                xml(String::new())
            }
            ("DELETE", _) if self.forgets_deletions && !is_lease(&key) => xml(String::new()),
            ("DELETE", _) => {
                self.delete(&key);
                xml(String::new())
            }
            (method, _) => panic!("{method} {path}?{query}"),
        }
    }
}

/// What holds the bucket is none of what is measured.
fn is_lease(key: &str) -> bool {
    key.ends_with(".lease")
}

/// Serves the bucket until the runtime is dropped; its address.
pub(crate) fn serve(bucket: &Arc<Mutex<Bucket>>) -> (Runtime, String) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let bucket = Arc::clone(bucket);
    runtime.spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let bucket = Arc::clone(&bucket);
            let service = service_fn(move |request: Request<Incoming>| {
                let bucket = Arc::clone(&bucket);
                async move {
                    let (head, body) = request.into_parts();
                    let body = body.collect().await.unwrap().to_bytes();
                    if head.method == "PUT" && !is_lease(head.uri.path()) {
                        let takes = bucket.lock().put_takes;
                        tokio::time::sleep(takes).await;
                    }
                    let hangs = |bucket: &Bucket| bucket.hangs_after.is_some_and(|count| bucket.objects.len() > count);
                    if hangs(&bucket.lock()) {
                        std::future::pending::<()>().await;
                    }
                    let hides_length = head.method == "HEAD" && bucket.lock().hides_lengths;
                    let (status, text, bytes) = bucket.lock().answer(&Request::from_parts(head, ()), body);
                    let body = Full::new(if text.is_empty() { bytes } else { text.into() });
                    // What comes as a stream has no length that is known before.
                    let body = if hides_length { StreamBody::new(body.into_stream()).boxed() } else { body.boxed() };
                    Ok::<_, Infallible>(Response::builder().status(status).body(body).unwrap())
                }
            });
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
    (runtime, url)
}
