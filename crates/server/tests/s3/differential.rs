//! The fast path against s3s: the same requests, good, malformed and wrongly signed, get the same answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gabion_platform::{Clock, Dice, SeededEntropy, SystemClock};
use gabion_server::credentials::{
    Account, AccountName, Credential, CredentialStore, Credentials, NoCredential, SecretKey,
};
use gabion_server::s3::{S3Options, S3Service};
use http::{HeaderName, HeaderValue, Method, Request};
use http_body_util::BodyExt;

use crate::harness::{ACCESS_KEY, Call, Payload, REGION, S3, SECRET_KEY, Sent, Sign, crc32, peer, store};

/// Body of the requests that have one: two chunks.
fn content() -> Vec<u8> {
    (0..9000).map(|i: u32| (i * 7 + i / 251) as u8).collect()
}

/// Begins an upload of `/bkt/k`.
async fn begin_upload(s3: &S3) -> String {
    s3.post("/bkt/k?uploads").send(s3).await.expect(200).element("UploadId").unwrap()
}

/// Requests that are in order, of all kinds that the fast path serves. The upload is one of `/bkt/k`.
fn good(upload: &str) -> Vec<(&'static str, Call)> {
    let part = |number: u16| Call::new("PUT", &format!("/bkt/k?partNumber={number}&uploadId={upload}")).body(content());
    let long = || (0..300_000_u32).map(|i| (i * 7 + i / 251) as u8).collect::<Vec<u8>>();
    let put = |payload| Call::new("PUT", "/bkt/a%20key%2B").body(content()).payload(payload);
    let trailer = || ("x-amz-checksum-crc32", crc32(&content()));
    vec![
        ("signed", put(Payload::Signed).header("x-amz-meta-a", "some text").header("content-type", "text/plain")),
        ("unsigned", put(Payload::Unsigned).md5()),
        ("signed chunks", put(Payload::SignedChunks { chunk_bytes: 8192, trailer: None })),
        ("signed chunks, trailer", put(Payload::SignedChunks { chunk_bytes: 8192, trailer: Some(trailer()) })),
        ("unsigned chunks", put(Payload::UnsignedChunks { chunk_bytes: 8192, trailer: trailer() })),
        ("presigned put", put(Payload::Signed).sign(Sign::Query(60))),
        ("empty", Call::new("PUT", "/bkt/empty")),
        ("get", Call::new("GET", "/bkt/a%20key%2B?x-id=GetObject")),
        ("range", Call::new("GET", "/bkt/a%20key%2B").header("range", "bytes=10-19")),
        ("presigned get", Call::new("GET", "/bkt/a%20key%2B?response-content-type=text%2Fcsv").sign(Sign::Query(60))),
        ("not modified", Call::new("GET", "/bkt/a%20key%2B").header("if-none-match", "*")),
        ("missing", Call::new("GET", "/bkt/missing")),
        ("head", Call::new("HEAD", "/bkt/a%20key%2B")),
        ("head of missing", Call::new("HEAD", "/bkt/missing")),
        ("presigned head", Call::new("HEAD", "/bkt/a%20key%2B").sign(Sign::Query(60))),
        ("part", part(1).payload(Payload::Unsigned)),
        ("presigned part", part(2).sign(Sign::Query(60))),
        ("part in signed chunks", part(3).payload(Payload::SignedChunks { chunk_bytes: 8192, trailer: None })),
        (
            "part of no upload",
            Call::new("PUT", "/bkt/k?partNumber=1&uploadId=00000000000000000000000000000000").body("part"),
        ),
        ("only if there is none", put(Payload::Unsigned).header("if-none-match", "*")),
        ("only if it is another", put(Payload::Unsigned).header("if-match", "\"00000000000000000000000000000000\"")),
        ("tagged", put(Payload::Unsigned).header("x-amz-tagging", "a=b&c=d")),
        ("long", Call::new("PUT", "/bkt/long").body(long()).payload(Payload::Unsigned)),
        ("delete", Call::new("DELETE", "/bkt/empty")),
        ("presigned delete", Call::new("DELETE", "/bkt/long").sign(Sign::Query(60))),
    ]
}

/// What a client sees of an answer, without what differs from request to request. The body comes in frames of so many bytes, or as one whose length is known.
async fn ask(s3: &S3, request: Request<Vec<u8>>, frame_bytes: Option<usize>) -> (u16, Vec<(String, String)>, String) {
    let (parts, body) = request.into_parts();
    let body = match frame_bytes {
        None => Sent::new(body),
        Some(piece_bytes) => Sent { piece_bytes, has_length: false, ..Sent::new(body) },
    };
    let answer = s3.service.call(Request::from_parts(parts, body), peer()).await;
    let (parts, body) = answer.into_parts();
    let mut headers: Vec<(String, String)> = Vec::new();
    for (name, value) in &parts.headers {
        // Whether the end of such a body was seen, and the connection can stay, depends on who reads one frame further.
        if frame_bytes.is_some() && name == http::header::CONNECTION {
            continue;
        }
        let value = match name.as_str() {
            "x-amz-request-id" | "last-modified" => String::new(),
            _ => String::from_utf8_lossy(value.as_bytes()).into_owned(),
        };
        headers.push((name.to_string(), value));
    }
    headers.sort();
    let text = String::from_utf8_lossy(&body.collect().await.unwrap().to_bytes()).into_owned();
    let text = text.split("<RequestId>").next().unwrap_or_default().to_owned();
    (parts.status.as_u16(), headers, text)
}

/// One with the fast path and one without; both with a bucket, an object, and an upload of the same id.
async fn pair() -> (S3, S3, String) {
    let fast = S3::with(|options| options.fast_path = true).await;
    let slow = S3::with(|options| options.fast_path = false).await;
    for s3 in [&fast, &slow] {
        s3.put("/bkt").send(s3).await.expect(200);
        s3.put("/bkt/a%20key%2B").body(content()).send(s3).await.expect(200);
    }
    // Ids come of the same seed, and of the time.
    loop {
        let (upload, other) = (begin_upload(&fast).await, begin_upload(&slow).await);
        if upload == other {
            return (fast, slow, upload);
        }
    }
}

/// All single changes to a request's head, and some to its body.
fn changes(request: &Request<Vec<u8>>, dice: &mut Dice) -> Vec<(String, Request<Vec<u8>>)> {
    let mut changed = Vec::new();
    let mut change = |what: String, change: &mut dyn FnMut(&mut Request<Vec<u8>>)| {
        let mut request = request.clone();
        change(&mut request);
        changed.push((what, request));
    };
    let names: Vec<HeaderName> = request.headers().keys().cloned().collect();
    for name in &names {
        let value = request.headers()[name].as_bytes().to_vec();
        change(format!("without {name}"), &mut |r| drop(r.headers_mut().remove(name)));
        change(format!("{name} twice"), &mut |r| {
            let again = HeaderValue::from_bytes(&value).unwrap();
            r.headers_mut().append(name, again);
        });
        let lower = value.to_ascii_lowercase();
        for (what, other) in [
            ("empty", Vec::new()),
            ("upper", value.to_ascii_uppercase()),
            ("lower", lower),
            ("spaced", [b" ", &value[..], b" "].concat()),
            ("longer", [&value[..], b"0"].concat()),
            ("shorter", value[..value.len().saturating_sub(1)].to_vec()),
            ("not UTF-8", [&value[..], b"\xff"].concat()),
            ("a plus", [b"+", &value[..]].concat()),
        ] {
            change(format!("{name} {what}"), &mut |r| {
                r.headers_mut().insert(name, HeaderValue::from_bytes(&other).unwrap());
            });
        }
        for _ in 0..12 {
            let (at, bit) = (dice.below(value.len().max(1) as u64) as usize, 1_u8 << dice.below(5));
            let mut other = value.clone();
            other.get_mut(at).into_iter().for_each(|byte| *byte ^= bit);
            if let Ok(other) = HeaderValue::from_bytes(&other) {
                change(format!("{name} with another byte {at}"), &mut |r| {
                    r.headers_mut().insert(name, other.clone());
                });
            }
        }
    }
    for (name, value) in [
        ("x-amz-meta-added", "1"),
        ("x-amz-date", "20200101T000000Z"),
        ("x-amz-content-sha256", "UNSIGNED-PAYLOAD"),
        ("x-amz-decoded-content-length", "9000"),
        ("x-amz-trailer", "x-amz-checksum-crc32"),
        ("x-amz-copy-source", "/bkt/a%20key%2B"),
        ("x-amz-security-token", "token"),
        ("x-amz-acl", "public-read"),
        ("content-length", "3"),
        ("host", "other.test"),
        ("authorization", "AWS4-HMAC-SHA256 Credential=a/b/c/d/aws4_request, SignedHeaders=host, Signature=0"),
        ("expect", "100-continue"),
    ] {
        change(format!("{name} added"), &mut |r| {
            r.headers_mut().append(name, HeaderValue::from_static(value));
        });
    }
    for method in [Method::GET, Method::HEAD, Method::PUT, Method::DELETE, Method::POST, Method::PATCH] {
        change(format!("as {method}"), &mut |r| *r.method_mut() = method.clone());
    }
    let target = request.uri().to_string();
    let and = if target.contains('?') { '&' } else { '?' };
    for other in [
        format!("{target}{and}versionId=null"),
        format!("{target}{and}acl"),
        format!("{target}{and}X-Amz-Signature=00"),
        format!("{target}{and}X-Amz-Expires=60"),
        format!("{target}{and}a=%ff"),
        target.replace("bkt", "Bkt"),
        target.replace("bkt", "other"),
        target.replace("%20", "+"),
        target.replace("%2B", "+"),
        target.replace("X-Amz-Expires=60", "X-Amz-Expires=0"),
        target.replace("X-Amz-Expires=60", "X-Amz-Expires=60&X-Amz-Expires=60"),
        target.replace("X-Amz-Algorithm=AWS4-HMAC-SHA256", "X-Amz-Algorithm=AWS4-ECDSA-P256-SHA256"),
        target.to_uppercase(),
    ] {
        change(format!("at {other}"), &mut |r| *r.uri_mut() = other.parse().unwrap());
    }
    let body = request.body();
    for _ in 0..60 {
        let at = dice.below(body.len().max(1) as u64) as usize;
        change(format!("body cut at {at}"), &mut |r| r.body_mut().truncate(at));
        let bit = 1_u8 << dice.below(8);
        change(format!("body with another byte {at}"), &mut |r| {
            r.body_mut().get_mut(at).into_iter().for_each(|byte| *byte ^= bit);
        });
        change(format!("body with one byte more at {at}"), &mut |r| {
            let at = at.min(r.body().len());
            r.body_mut().insert(at, b'0');
        });
    }
    // Framing lies at the end, too.
    for back in 0..body.len().min(200) {
        change(format!("body without its last {back} bytes"), &mut |r| {
            let len = r.body().len() - back;
            r.body_mut().truncate(len);
        });
    }
    changed
}

#[tokio::test]
async fn both_paths_answer_alike() {
    let (fast, slow, upload) = pair().await;
    let mut dice = Dice::new(1);
    let (mut asked, mut refused) = (0, 0);
    for (kind, call) in good(&upload) {
        let request = call.build();
        let mut requests = changes(&request, &mut dice);
        requests.push(("unchanged".into(), request));
        // Frames that cut the framing anywhere, and say nothing of the length.
        let in_frames = requests.iter().flat_map(|(what, request)| {
            [1, 7, 1000].map(|bytes| (format!("{what}, in frames of {bytes}"), request.clone(), Some(bytes)))
        });
        // A body without framing is as long as its head says: HTTP sees to that.
        let is_sent = |what: &str| what.starts_with("unchanged") || kind.contains("chunks") && what.starts_with("body");
        let in_frames: Vec<_> = in_frames.filter(|(what, ..)| is_sent(what)).collect();
        let requests = requests.into_iter().map(|(what, request)| (what, request, None)).chain(in_frames);
        for (what, request, frame_bytes) in requests {
            let found = ask(&fast, request.clone(), frame_bytes).await;
            let expected = ask(&slow, request.clone(), frame_bytes).await;
            asked += 1;
            refused += u32::from(expected.0 >= 400);
            assert_eq!(found, expected, "{kind}, {what}: {:?}", request.uri());
        }
    }
    let parts = format!("/bkt/k?uploadId={upload}");
    let listed = [&fast, &slow].map(async |s3| s3.get(&parts).send(s3).await.expect(200).elements("PartNumber"));
    let [of_fast, of_slow] = futures::future::join_all(listed).await.try_into().unwrap();
    assert_eq!((&of_fast[..], &of_slow), (&["1", "2", "3"].map(String::from)[..], &of_fast));
    assert!(asked > 4000 && refused > asked / 2, "{asked} {refused}");
}

/// Counts how often it is asked.
#[derive(Default)]
struct Counting(AtomicU64);

impl Clock for Counting {
    fn now_ms(&self) -> u64 {
        self.0.fetch_add(1, Ordering::SeqCst);
        SystemClock.now_ms()
    }

    fn monotonic_ns(&self) -> u64 {
        SystemClock.monotonic_ns()
    }
}

struct CountingCredentials(Credentials, Arc<AtomicU64>);

impl CredentialStore for CountingCredentials {
    fn find(&self, access_key: &str, token: Option<&str>) -> Result<Credential, NoCredential> {
        self.1.fetch_add(1, Ordering::SeqCst);
        self.0.find(access_key, token)
    }

    /// Asked by s3s alone.
    fn secret_for(&self, access_key: &str) -> Option<SecretKey> {
        self.1.fetch_add(10, Ordering::SeqCst);
        self.0.secret_for(access_key)
    }

    fn first_account(&self) -> Arc<Account> {
        self.0.first_account()
    }

    fn account(&self, name: AccountName<'_>) -> Option<Arc<Account>> {
        self.0.account(name)
    }
}

/// s3s asks for secrets in its own way: it was not asked. What is signed in its query was looked at beforehand.
#[tokio::test]
async fn what_is_in_order_takes_the_fast_path() {
    let (clock, secrets) = (Arc::new(Counting::default()), Arc::new(AtomicU64::new(0)));
    let credentials = CountingCredentials(Credentials::new(ACCESS_KEY, SECRET_KEY), Arc::clone(&secrets));
    let (store, disk) = store().await;
    let options =
        S3Options { region: REGION.into(), domains: Vec::new(), sigv2: false, fast_path: true, ..S3Options::default() };
    let service =
        S3Service::new(store.clone(), Arc::new(credentials), options, Arc::clone(&clock) as _, &SeededEntropy::new(9))
            .unwrap();
    let s3 = S3 { service, store, disk, iam: None };
    s3.put("/bkt").send(&s3).await.expect(200);
    let upload = begin_upload(&s3).await;
    for (kind, call) in good(&upload) {
        let before = (clock.0.load(Ordering::SeqCst), secrets.load(Ordering::SeqCst));
        call.send(&s3).await;
        let after = (clock.0.load(Ordering::SeqCst), secrets.load(Ordering::SeqCst));
        let times = if kind.starts_with("presigned") { 2 } else { 1 };
        assert_eq!((after.0 - before.0, after.1 - before.1), (times, times), "{kind}");
    }
}
