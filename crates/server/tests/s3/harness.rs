//! A server on simulated disks, and a client that signs by itself: every header and every byte of a request is the test's.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use gabion_metadata::{Index, IndexError, MemoryIndex};
use gabion_platform::{Clock, Disk, OsEntropy, SeededEntropy, SimDisk, SystemClock};
use gabion_segment::{LogConfig, LogTarget};
use gabion_server::credentials::{Account, CredentialStore, Credentials};
use gabion_server::http::{Peer, ReadInto};
use gabion_server::iam::{Iam, IamOptions};
use gabion_server::s3::{S3Options, S3Service};
use gabion_store::{BodyPiece, Env, EtagKind, IndexFactory, Silent, Store, StoreConfig};
use gabion_types::Geometry;
use hmac::{Hmac, Mac};
use http::{HeaderMap, Request, Version};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use md5::Md5;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use sha2::{Digest, Sha256};
use tokio::sync::oneshot;

pub(crate) const ACCESS_KEY: &str = "AKTEST";
pub(crate) const SECRET_KEY: &str = "secret/key";
pub(crate) const REGION: &str = "us-east-1";
pub(crate) const HOST: &str = "s3.test:9000";
const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

pub(crate) struct Factory(pub(crate) MemoryIndex);

impl IndexFactory for Factory {
    fn open(&self) -> Result<Arc<dyn Index>, IndexError> {
        Ok(Arc::new(self.0.clone()))
    }

    fn destroy(&self) -> Result<(), IndexError> {
        Ok(())
    }
}

pub(crate) async fn store() -> (Store, SimDisk) {
    store_with(|_| {}).await
}

async fn store_with(change: impl FnOnce(&mut StoreConfig)) -> (Store, SimDisk) {
    store_at(Arc::new(SystemClock), change).await
}

/// With this clock.
pub(crate) async fn store_at(clock: Arc<dyn Clock>, change: impl FnOnce(&mut StoreConfig)) -> (Store, SimDisk) {
    let mut log = LogConfig::new(Geometry::SINGLE);
    log.segment_payload_bytes = 8 << 20;
    log.stripe_payload_bytes = 2 << 20;
    log.target_reserve_bytes = 0;
    let mut config = StoreConfig::new(log);
    config.checkpoint_interval_ms = u64::MAX / 1_000_000;
    config.compaction.interval_ms = u64::MAX / 1_000_000;
    config.part_bytes_min = 10;
    change(&mut config);
    let disk = SimDisk::new(7);
    let target = LogTarget {
        name: "disk".into(),
        disk: Some(Arc::new(disk.clone()) as Arc<dyn Disk>),
        failure_domain: "domain".into(),
    };
    let env = Env { clock, entropy: Arc::new(SeededEntropy::new(7)) };
    let opened = Store::open(config, vec![target], Box::new(Factory(MemoryIndex::new())), env, Arc::new(Silent)).await;
    (opened.unwrap().0, disk)
}

pub(crate) fn options() -> S3Options {
    S3Options {
        region: REGION.into(),
        domains: Vec::new(),
        website_domains: Vec::new(),
        sigv2: false,
        fast_path: crate::FAST_PATH,
        log_figures: Default::default(),
        ..S3Options::default()
    }
}

/// A server with its client.
pub(crate) struct S3 {
    pub(crate) service: S3Service,
    pub(crate) store: Store,
    pub(crate) disk: SimDisk,
    /// Users and policies, where there are such.
    pub(crate) iam: Option<Arc<Iam>>,
}

impl S3 {
    pub(crate) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut S3Options)) -> Self {
        let mut options = options();
        change(&mut options);
        Self::of(store().await, options)
    }

    /// With tags of this kind, and a bucket `bkt`.
    pub(crate) async fn with_tags(kind: EtagKind) -> Self {
        Self::with_store(|config| config.etag = kind).await
    }

    /// With such a store, and a bucket `bkt`.
    pub(crate) async fn with_store(change: impl FnOnce(&mut StoreConfig)) -> Self {
        let s3 = Self::of(store_with(change).await, options());
        s3.put("/bkt").send(&s3).await.expect(200);
        s3
    }

    /// With these users.
    pub(crate) async fn for_users(credentials: Arc<dyn CredentialStore>) -> Self {
        Self::for_those(credentials, store().await, options())
    }

    fn of(store: (Store, SimDisk), options: S3Options) -> Self {
        Self::for_those(Arc::new(Credentials::new(ACCESS_KEY, SECRET_KEY)), store, options)
    }

    fn for_those(credentials: Arc<dyn CredentialStore>, (store, disk): (Store, SimDisk), options: S3Options) -> Self {
        let service =
            S3Service::new(store.clone(), credentials, options, Arc::new(SystemClock), &SeededEntropy::new(9)).unwrap();
        Self { service, store, disk, iam: None }
    }

    /// With users and policies.
    pub(crate) async fn with_iam() -> Self {
        Self::of_iam(store().await)
    }

    /// The same, with what is stored already.
    pub(crate) fn of_iam((store, disk): (Store, SimDisk)) -> Self {
        let root = Credentials::new(ACCESS_KEY, SECRET_KEY);
        let options = IamOptions { root, first_account: Account::first("test"), seal_key: None, near_providers: true };
        let clock = Arc::new(SystemClock);
        // Ids must differ from one start to the next.
        let iam = Iam::open(store.clone(), options, clock.clone(), Arc::new(OsEntropy)).unwrap();
        let service =
            S3Service::with_iam(store.clone(), Arc::clone(&iam), self::options(), clock, &SeededEntropy::new(9))
                .unwrap();
        Self { service, store, disk, iam: Some(iam) }
    }

    /// The same store behind a server that was started anew.
    pub(crate) fn again(self, change: impl FnOnce(&mut S3Options)) -> Self {
        let mut options = options();
        change(&mut options);
        Self::of((self.store, self.disk), options)
    }

    /// With a bucket `bkt`.
    pub(crate) async fn with_bucket() -> Self {
        let s3 = Self::new().await;
        s3.put("/bkt").send(&s3).await.expect(200);
        s3
    }

    /// Sends a request as it is.
    pub(crate) async fn ask(&self, request: Request<Vec<u8>>) -> Answer {
        Answer::read(self.service.call(request.map(Sent::new), peer()).await).await
    }

    pub(crate) fn call(&self, method: &str, target: &str) -> Call {
        Call::new(method, target)
    }

    pub(crate) fn get(&self, target: &str) -> Call {
        Call::new("GET", target)
    }

    pub(crate) fn head(&self, target: &str) -> Call {
        Call::new("HEAD", target)
    }

    pub(crate) fn put(&self, target: &str) -> Call {
        Call::new("PUT", target)
    }

    pub(crate) fn post(&self, target: &str) -> Call {
        Call::new("POST", target)
    }

    pub(crate) fn delete(&self, target: &str) -> Call {
        Call::new("DELETE", target)
    }
}

/// How a request is signed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sign {
    Header,
    /// In the query, valid for this many seconds.
    Query(u64),
    /// Signature Version 2.
    Version2,
    /// The same with `+0000` in its date, which is in this header, and what the host adds to the path (`/bucket`).
    Version2Dated(&'static str, &'static str),
    Not,
}

/// What `x-amz-content-sha256` says, and how the body is framed.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Payload {
    Signed,
    Unsigned,
    /// This text, whatever the body is.
    Says(String),
    SignedChunks {
        chunk_bytes: usize,
        trailer: Option<(&'static str, String)>,
    },
    UnsignedChunks {
        chunk_bytes: usize,
        trailer: (&'static str, String),
    },
}

/// A request to be.
#[derive(Clone)]
pub(crate) struct Call {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) query: Vec<(String, String)>,
    pub(crate) headers: Vec<(String, String)>,
    /// Sent, but not signed.
    pub(crate) smuggled: Vec<(String, String)>,
    /// Left out of the list of signed headers.
    pub(crate) unlisted: Vec<&'static str>,
    pub(crate) sign: Sign,
    pub(crate) payload: Payload,
    pub(crate) body: Vec<u8>,
    /// Sent instead of the framed body.
    pub(crate) sent: Option<Vec<u8>>,
    /// Applied to the framed body.
    pub(crate) tamper: Option<fn(&mut Vec<u8>)>,
    pub(crate) no_length: bool,
    pub(crate) version: Version,
    pub(crate) clock_s: i64,
    pub(crate) access_key: &'static str,
    pub(crate) secret_key: &'static str,
    pub(crate) region: &'static str,
    pub(crate) service: &'static str,
    pub(crate) host: &'static str,
}

impl Call {
    /// `target` is an encoded path and a query, of which names and values are decoded here.
    pub(crate) fn new(method: &str, target: &str) -> Self {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let decode = |text: &str| percent_encoding::percent_decode_str(text).decode_utf8().unwrap().into_owned();
        let pairs = query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(name), decode(value))
        });
        Self {
            method: method.into(),
            path: path.into(),
            query: pairs.collect(),
            headers: Vec::new(),
            smuggled: Vec::new(),
            unlisted: Vec::new(),
            sign: Sign::Header,
            payload: Payload::Signed,
            body: Vec::new(),
            sent: None,
            tamper: None,
            no_length: false,
            version: Version::HTTP_11,
            clock_s: 0,
            access_key: ACCESS_KEY,
            secret_key: SECRET_KEY,
            region: REGION,
            service: "s3",
            host: HOST,
        }
    }

    pub(crate) fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    pub(crate) fn smuggle(mut self, name: &str, value: &str) -> Self {
        self.smuggled.push((name.into(), value.into()));
        self
    }

    pub(crate) fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    pub(crate) fn md5(self) -> Self {
        let digest = BASE64_STANDARD.encode(Md5::digest(&self.body));
        self.header("content-md5", digest)
    }

    pub(crate) fn payload(mut self, payload: Payload) -> Self {
        self.payload = payload;
        self
    }

    pub(crate) fn sign(mut self, sign: Sign) -> Self {
        self.sign = sign;
        self
    }

    pub(crate) fn change(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    pub(crate) async fn send(self, s3: &S3) -> Answer {
        self.send_in_pieces(s3, 100_003).await
    }

    /// The same, in pieces of at most so many bytes.
    pub(crate) async fn send_in_pieces(self, s3: &S3, piece_bytes: usize) -> Answer {
        let request = self.build().map(|body| Sent { piece_bytes, ..Sent::new(body) });
        Answer::read(s3.service.call(request, peer()).await).await
    }

    /// The same, of which no byte comes before `meanwhile` is done.
    pub(crate) async fn send_slowly(self, s3: &S3, meanwhile: impl Future<Output = ()>) -> Answer {
        let (open, gate) = oneshot::channel();
        let request = self.build().map(|body| Sent { gate: Some(gate), ..Sent::new(body) });
        let polled = Arc::clone(&request.body().polled);
        let sending = async { Answer::read(s3.service.call(request, peer()).await).await };
        let opening = async {
            while !polled.load(Ordering::SeqCst) {
                tokio::task::yield_now().await;
            }
            meanwhile.await;
            // Nobody waits for a body that came too late.
            let _ = open.send(());
        };
        tokio::join!(sending, opening).0
    }

    /// Sends the head and so many bytes of the body, and waits for an answer.
    pub(crate) async fn send_partly(self, s3: &S3, early_bytes: usize) -> Answer {
        let (_open, gate) = oneshot::channel();
        let request = self.build().map(|body| Sent { gate: Some(gate), early_bytes, ..Sent::new(body) });
        Answer::read(s3.service.call(request, peer()).await).await
    }

    /// Sends the head; says whether anybody asked for the body.
    pub(crate) async fn send_head(self, s3: &S3) -> (Answer, bool) {
        let request = self.build().map(Sent::new);
        let polled = Arc::clone(&request.body().polled);
        let answer = Answer::read(s3.service.call(request, peer()).await).await;
        (answer, polled.load(Ordering::SeqCst))
    }

    /// The request as it goes to the server.
    pub(crate) fn build(mut self) -> Request<Vec<u8>> {
        let now_s = i64::try_from(SystemClock.now_ms() / 1000).unwrap() + self.clock_s;
        let date = amz_date(now_s);
        let scope = format!("{}/{}/{}/aws4_request", &date[..8], self.region, self.service);
        let hash = match &self.payload {
            Payload::Signed => sha256_hex(&self.body),
            Payload::Unsigned => "UNSIGNED-PAYLOAD".into(),
            Payload::Says(text) => text.clone(),
            Payload::SignedChunks { trailer: None, .. } => "STREAMING-AWS4-HMAC-SHA256-PAYLOAD".into(),
            Payload::SignedChunks { trailer: Some(_), .. } => "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER".into(),
            Payload::UnsignedChunks { .. } => "STREAMING-UNSIGNED-PAYLOAD-TRAILER".into(),
        };
        self.headers.push(("host".into(), self.host.into()));
        if let Payload::SignedChunks { trailer, .. } = &self.payload {
            self.announce(trailer.as_ref().map(|(name, _)| *name));
        }
        if let Payload::UnsignedChunks { trailer, .. } = &self.payload {
            self.announce(Some(trailer.0));
        }
        let mut seed = String::new();
        match self.sign {
            Sign::Header => {
                self.headers.push(("x-amz-date".into(), date.clone()));
                self.headers.push(("x-amz-content-sha256".into(), hash.clone()));
                let names = self.signed_names();
                seed = self.signature(&date, &scope, &names, &hash);
                let value = format!(
                    "AWS4-HMAC-SHA256 Credential={}/{scope}, SignedHeaders={names}, Signature={seed}",
                    self.access_key
                );
                self.headers.push(("authorization".into(), value));
            }
            Sign::Query(expires_s) => {
                let names = self.signed_names();
                let added = [
                    ("X-Amz-Algorithm", "AWS4-HMAC-SHA256".to_owned()),
                    ("X-Amz-Credential", format!("{}/{scope}", self.access_key)),
                    ("X-Amz-Date", date.clone()),
                    ("X-Amz-Expires", expires_s.to_string()),
                    ("X-Amz-SignedHeaders", names.clone()),
                ];
                self.query.extend(added.map(|(name, value)| (name.to_owned(), value)));
                let signature = self.signature(&date, &scope, &names, "UNSIGNED-PAYLOAD");
                self.query.push(("X-Amz-Signature".into(), signature));
            }
            Sign::Version2 => self.sign_v2(now_s, "date", "GMT", ""),
            Sign::Version2Dated(header, bucket) => self.sign_v2(now_s, header, "+0000", bucket),
            Sign::Not => {}
        }
        let mut body = self.frame(&seed, &date, &scope);
        if let Some(tamper) = self.tamper {
            tamper(&mut body);
        }
        let body = self.sent.clone().unwrap_or(body);
        let bodiless = body.is_empty() && ["GET", "HEAD", "DELETE"].contains(&self.method.as_str());
        if !(self.no_length || bodiless) {
            self.headers.push(("content-length".into(), body.len().to_string()));
        }
        let query = self.canonical_query();
        let target = if query.is_empty() { self.path.clone() } else { format!("{}?{query}", self.path) };
        let mut request = Request::builder().method(self.method.as_str()).uri(target).version(self.version);
        for (name, value) in self.headers.iter().chain(&self.smuggled) {
            request = request.header(name.as_str(), value.as_bytes());
        }
        request.body(body).unwrap()
    }

    fn announce(&mut self, trailer: Option<&str>) {
        self.headers.push(("x-amz-decoded-content-length".into(), self.body.len().to_string()));
        self.headers.push(("content-encoding".into(), "aws-chunked".into()));
        if let Some(trailer) = trailer {
            self.headers.push(("x-amz-trailer".into(), trailer.to_owned()));
        }
    }

    fn signed_names(&mut self) -> String {
        self.headers.sort();
        let mut names: Vec<String> = self.headers.iter().map(|(name, _)| name.to_lowercase()).collect();
        names.dedup();
        names.retain(|name| !self.unlisted.contains(&name.as_str()));
        names.join(";")
    }

    fn signature(&self, date: &str, scope: &str, names: &str, hash: &str) -> String {
        let mut canonical = format!("{}\n{}\n{}\n", self.method, self.path, self.canonical_query());
        for name in names.split(';') {
            let values: Vec<&str> =
                self.headers.iter().filter(|(n, _)| n.to_lowercase() == name).map(|(_, v)| v.trim()).collect();
            canonical.push_str(&format!("{name}:{}\n", values.join(",")));
        }
        canonical.push_str(&format!("\n{names}\n{hash}"));
        self.keyed(&format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{}", sha256_hex(canonical.as_bytes())), date)
    }

    fn keyed(&self, text: &str, date: &str) -> String {
        let key = hmac(format!("AWS4{}", self.secret_key).as_bytes(), &date[..8]);
        let key = hmac(&hmac(&hmac(&key, self.region), self.service), "aws4_request");
        hex::encode(hmac(&key, text))
    }

    fn canonical_query(&self) -> String {
        let encode = |text: &str| utf8_percent_encode(text, QUERY).to_string();
        let mut pairs: Vec<(String, String)> =
            self.query.iter().map(|(name, value)| (encode(name), encode(value))).collect();
        pairs.sort();
        let pairs: Vec<String> = pairs.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
        pairs.join("&")
    }

    fn frame(&self, seed: &str, date: &str, scope: &str) -> Vec<u8> {
        let mut previous = seed.to_owned();
        let mut framed = Vec::new();
        match &self.payload {
            Payload::SignedChunks { chunk_bytes, trailer } => {
                for chunk in self.body.chunks(*chunk_bytes).chain([&[][..]]) {
                    let text = format!(
                        "AWS4-HMAC-SHA256-PAYLOAD\n{date}\n{scope}\n{previous}\n{}\n{}",
                        sha256_hex(b""),
                        sha256_hex(chunk)
                    );
                    previous = self.keyed(&text, date);
                    framed.extend(format!("{:x};chunk-signature={previous}\r\n", chunk.len()).bytes());
                    framed.extend(chunk);
                    if !chunk.is_empty() || trailer.is_none() {
                        framed.extend(b"\r\n");
                    }
                }
                if let Some((name, value)) = trailer {
                    let hash = sha256_hex(format!("{name}:{value}\n").as_bytes());
                    let text = format!("AWS4-HMAC-SHA256-TRAILER\n{date}\n{scope}\n{previous}\n{hash}");
                    let signature = self.keyed(&text, date);
                    framed.extend(format!("{name}:{value}\r\nx-amz-trailer-signature:{signature}\r\n\r\n").bytes());
                }
            }
            Payload::UnsignedChunks { chunk_bytes, trailer: (name, value) } => {
                for chunk in self.body.chunks(*chunk_bytes) {
                    framed.extend(format!("{:x}\r\n", chunk.len()).bytes());
                    framed.extend(chunk);
                    framed.extend(b"\r\n");
                }
                framed.extend(format!("0\r\n{name}:{value}\r\n\r\n").bytes());
            }
            _ => framed.extend(&self.body),
        }
        framed
    }

    fn sign_v2(&mut self, now_s: i64, header: &str, zone: &str, bucket: &str) {
        let at = std::time::UNIX_EPOCH + std::time::Duration::from_secs(u64::try_from(now_s).unwrap());
        let date = httpdate::fmt_http_date(at).replace("GMT", zone);
        let dated = if header == "date" { format!("{date}\n") } else { format!("\n{header}:{date}\n") };
        // A bucket alone is signed with a slash behind it, sent or not.
        let is_bucket = bucket.is_empty() && self.path.matches('/').count() == 1 && self.path.len() > 1;
        let slash = if is_bucket { "/" } else { "" };
        let text = format!("{}\n\n\n{dated}{bucket}{}{slash}", self.method, self.path);
        let mut mac = Hmac::<sha1::Sha1>::new_from_slice(self.secret_key.as_bytes()).unwrap();
        mac.update(text.as_bytes());
        let signature = BASE64_STANDARD.encode(mac.finalize().into_bytes());
        self.headers.push((header.into(), date));
        self.headers.push(("authorization".into(), format!("AWS {}:{signature}", self.access_key)));
    }
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    async fn read(response: http::Response<s3s::Body>) -> Self {
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Self { status: parts.status.as_u16(), headers: parts.headers, body }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.to_vec()).unwrap()
    }

    /// A header, or nothing.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// The text of the first element of that name, still escaped.
    pub(crate) fn element(&self, name: &str) -> Option<String> {
        element(&self.text(), name)
    }

    /// The texts of all elements of that name.
    pub(crate) fn elements(&self, name: &str) -> Vec<String> {
        let text = self.text();
        let (open, close) = (format!("<{name}>"), format!("</{name}>"));
        let parts = text.split(&open).skip(1);
        parts.map(|part| part.split(&close).next().unwrap().to_owned()).collect()
    }

    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}", self.text());
        self
    }

    #[track_caller]
    pub(crate) fn refused(self, status: u16, code: &str) -> Self {
        assert_eq!((self.status, self.element("Code").as_deref()), (status, Some(code)), "{}", self.text());
        self
    }
}

pub(crate) fn element(text: &str, name: &str) -> Option<String> {
    let rest = text.split(&format!("<{name}>")).nth(1)?;
    Some(rest.split(&format!("</{name}>")).next()?.to_owned())
}

pub(crate) fn peer() -> Peer {
    Peer { address: "127.0.0.1:1".parse().unwrap(), tls: false }
}

/// A body as a connection has it: it comes piece by piece, into memory or to where it is wanted. It notes whether it was asked for.
pub(crate) struct Sent {
    pub(crate) polled: Arc<AtomicBool>,
    pub(crate) bytes: Bytes,
    /// Bytes of a piece, at most.
    pub(crate) piece_bytes: usize,
    /// Whether HTTP says how long it is.
    pub(crate) has_length: bool,
    /// What it waits for before it goes on.
    pub(crate) gate: Option<oneshot::Receiver<()>>,
    /// Bytes that come before that.
    pub(crate) early_bytes: usize,
}

impl Sent {
    pub(crate) fn new(bytes: impl Into<Bytes>) -> Self {
        let polled = Arc::new(AtomicBool::new(false));
        Self { polled, bytes: bytes.into(), piece_bytes: usize::MAX, has_length: true, gate: None, early_bytes: 0 }
    }

    fn poll_next(&mut self, cx: &mut Context<'_>, room: usize) -> Poll<Option<Bytes>> {
        self.polled.store(true, Ordering::SeqCst);
        if let Some(gate) = &mut self.gate
            && self.early_bytes == 0
        {
            ready!(Pin::new(gate).poll(cx)).unwrap();
            self.gate = None;
        }
        let now = if self.gate.is_some() { self.early_bytes } else { usize::MAX };
        let bytes = self.bytes.len().min(self.piece_bytes).min(room).min(now);
        self.early_bytes = self.early_bytes.saturating_sub(bytes);
        Poll::Ready((bytes > 0).then(|| self.bytes.split_to(bytes)))
    }
}

impl Body for Sent {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        Poll::Ready(ready!(self.poll_next(cx, usize::MAX)).map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.has_length && self.bytes.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        if self.has_length { SizeHint::with_exact(self.bytes.len() as u64) } else { SizeHint::default() }
    }
}

impl ReadInto for Sent {
    fn poll_into(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        room: &mut [u8],
    ) -> Poll<Option<Result<BodyPiece, std::io::Error>>> {
        let wanted = if room.is_empty() { usize::MAX } else { room.len() };
        let Some(bytes) = ready!(self.poll_next(cx, wanted)) else { return Poll::Ready(None) };
        let piece = if room.is_empty() {
            BodyPiece::Bytes(bytes)
        } else {
            room[..bytes.len()].copy_from_slice(&bytes);
            BodyPiece::InRoom(bytes.len())
        };
        Poll::Ready(Some(Ok(piece)))
    }
}

pub(crate) fn crc32(bytes: &[u8]) -> String {
    checksum(gabion_store::ChecksumAlgorithm::Crc32, bytes)
}

pub(crate) fn checksum(algorithm: gabion_store::ChecksumAlgorithm, bytes: &[u8]) -> String {
    let mut digester = gabion_erasure::Digester::new(false, &[algorithm]);
    digester.update(bytes);
    digester.finish().checksums[0].to_base64()
}

pub(crate) fn sha256_hex(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// Credential, date and signature of a form with this policy, in Version 4.
pub(crate) fn signed_form_v4(policy: &str) -> (String, String, String) {
    let date = amz_date(i64::try_from(SystemClock.now_ms() / 1000).unwrap());
    let credential = format!("{ACCESS_KEY}/{}/{REGION}/s3/aws4_request", &date[..8]);
    let signature = Call::new("POST", "/").keyed(policy, &date);
    (credential, date, signature)
}

/// The signature of a form with this policy, in Version 2.
pub(crate) fn signed_form_v2(policy: &str) -> String {
    let mut mac = Hmac::<sha1::Sha1>::new_from_slice(SECRET_KEY.as_bytes()).unwrap();
    mac.update(policy.as_bytes());
    BASE64_STANDARD.encode(mac.finalize().into_bytes())
}

fn hmac(key: &[u8], text: &str) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

fn amz_date(unix_s: i64) -> String {
    let at = time::OffsetDateTime::from_unix_timestamp(unix_s).unwrap();
    let (month, day) = (u8::from(at.month()), at.day());
    format!("{:04}{month:02}{day:02}T{:02}{:02}{:02}Z", at.year(), at.hour(), at.minute(), at.second())
}
