//! The fast path against s3s: the same requests, good, malformed and wrongly signed, get the same answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gabion_platform::{Clock, Dice, SeededEntropy, SystemClock};
use gabion_server::credentials::{
    Account, AccountName, Credential, CredentialStore, Credentials, NoCredential, SecretKey,
};
use gabion_server::s3::{S3Options, S3Service};
use http::{HeaderName, HeaderValue, Method, Request, Version};
use http_body_util::BodyExt;

use crate::harness::{ACCESS_KEY, Call, Payload, S3, SECRET_KEY, Sent, Sign, options, peer, store};
use crate::twins::{Stage, by_others, good, stage, twins};

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
            "x-amz-request-id" => String::new(),
            _ => String::from_utf8_lossy(value.as_bytes()).into_owned(),
        };
        headers.push((name.to_string(), value));
    }
    headers.sort();
    let text = String::from_utf8_lossy(&body.collect().await.unwrap().to_bytes()).into_owned();
    let text = text.split("<RequestId>").next().unwrap_or_default().to_owned();
    (parts.status.as_u16(), headers, text)
}

/// All single changes to a request's head, and some to its body.
pub(crate) fn changes(request: &Request<Vec<u8>>, dice: &mut Dice) -> Vec<(String, Request<Vec<u8>>)> {
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
        format!("{target}{and}X-Amz-Expires=3600"),
        format!("{target}{and}a=%ff"),
        target.replace("bkt", "Bkt"),
        target.replace("bkt", "other"),
        target.replace("%20", "+"),
        target.replace("%2B", "+"),
        target.replace("X-Amz-Expires=3600", "X-Amz-Expires=0"),
        target.replace("X-Amz-Expires=3600", "X-Amz-Expires=3600&X-Amz-Expires=3600"),
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

/// Other ways to say it, each signed as it is said: what is in order may be spelled in many ways, and what is not can be signed as well.
fn respelled(call: &Call) -> Vec<(String, Call)> {
    let mut others = Vec::new();
    let mut other = |what: String, change: &mut dyn FnMut(&mut Call)| {
        let mut call = call.clone();
        change(&mut call);
        others.push((format!("signed with {what}"), call));
    };
    for at in 0..call.headers.len() {
        let (name, value) = &call.headers[at];
        other(format!("{name} twice"), &mut |call| call.headers.push(call.headers[at].clone()));
        other(format!("{name} in capitals"), &mut |call| call.headers[at].0.make_ascii_uppercase());
        for (what, value) in [
            ("spaces", format!("  {}  ", value.replace(' ', "   "))),
            ("a tab", format!("{value}\tx")),
            ("more letters", format!("{value}\u{e9}")),
            ("nothing", String::new()),
        ] {
            other(format!("{what} in {name}"), &mut |call| call.headers[at].1.clone_from(&value));
        }
    }
    for (name, value) in [
        ("x-amz-meta-b", "  two   words "),
        ("x-amz-meta-b", "\u{fc}ber"),
        ("x-amz-security-token", ""),
        ("x-amz-security-token", "token"),
        ("x-amz-trailer", "x-amz-checksum-crc32"),
        ("x-amz-decoded-content-length", "9000"),
        ("x-amz-expected-bucket-owner", ""),
        ("x-amz-request-payer", "requester"),
        ("date", "Mon, 01 Jan 2001 00:00:00 GMT"),
        ("range", "bytes=0-0,5-6"),
        ("if-match", "*"),
        ("if-none-match", "\"a\", \"b\""),
        ("if-modified-since", "Mon, 01 Jan 2001 00:00:00 GMT"),
        ("content-encoding", "gzip,aws-chunked"),
        ("cache-control", "no-store"),
        ("x-amz-storage-class", "STANDARD_IA"),
        ("x-amz-acl", "private"),
    ] {
        other(format!("{name}: {value}"), &mut |call| call.headers.push((name.into(), value.into())));
    }
    other("45 headers more".into(), &mut |call| {
        call.headers.extend((0..45).map(|i| (format!("x-amz-meta-{i}"), i.to_string())));
    });
    for (name, value) in [
        ("x-id", "GetObject"),
        ("x", "a b+c"),
        ("x", ""),
        ("x", "\u{e9}&="),
        ("versionId", "null"),
        ("partNumber", "1"),
    ] {
        other(format!("?{name}={value}"), &mut |call| call.query.push((name.into(), value.into())));
        other(format!("?{name}={value} twice"), &mut |call| {
            call.query.extend([(name.into(), value.into()), (name.into(), value.into())]);
        });
    }
    for host in ["S3.TEST", "bkt.s3.test", "BKT.s3.test:80", "nowhere.s3.test", "b\u{fc}cher.test", "other", ""] {
        other(format!("host {host}"), &mut |call| call.host = host);
    }
    for clock_s in [-1000, -800, 800, 1000, -4000, -86_400 * 8] {
        other(format!("a clock that is {clock_s} s fast"), &mut |call| call.clock_s = clock_s);
    }
    for expires_s in [604_800, 604_801] {
        let is_presigned = matches!(call.sign, Sign::Query(_));
        let sign = if is_presigned { Sign::Query(expires_s) } else { call.sign };
        other(format!("{expires_s} s to live"), &mut |call| call.sign = sign);
    }
    other("another region".into(), &mut |call| call.region = "eu-west-1");
    other("another service".into(), &mut |call| call.service = "iam");
    other("another key".into(), &mut |call| call.access_key = "AKNONE");
    for name in ["host", "x-amz-date", "x-amz-content-sha256"] {
        other(format!("no {name}"), &mut |call| call.unlisted.push(name));
    }
    for says in
        ["UNSIGNED-PAYLOAD", "", "E3B0C44298FC1C149AFBF4C8996FB92427AE41E4649B934CA495991B7852B855", "STREAMING"]
    {
        other(format!("content {says:?}"), &mut |call| call.payload = Payload::Says(says.into()));
    }
    for bytes in [1, 8191, 8193, 1 << 20] {
        other(format!("chunks of {bytes}"), &mut |call| match &mut call.payload {
            Payload::SignedChunks { chunk_bytes, .. } | Payload::UnsignedChunks { chunk_bytes, .. } => {
                *chunk_bytes = bytes;
            }
            _ => {}
        });
    }
    for (from, to) in [("%20", "+"), ("%20", "%2520"), ("%2B", "%2b"), ("/bkt/", "/bkt//"), ("/bkt/", "//bkt/")] {
        other(format!("{to} for {from}"), &mut |call| call.path = call.path.replace(from, to));
    }
    for version in [Version::HTTP_10, Version::HTTP_2] {
        other(format!("{version:?}"), &mut |call| call.version = version);
    }
    others
}

/// Four tests, as together they take minutes: requests without a body, ...
#[tokio::test]
async fn both_paths_answer_alike() {
    compared(|call| call.method != "PUT", 15_000).await;
}

/// ... with one as it is, ...
#[tokio::test]
async fn both_paths_take_bodies_alike() {
    let is_plain = |call: &Call| !matches!(call.payload, Payload::SignedChunks { .. } | Payload::UnsignedChunks { .. });
    let (twins, stage) = compared(|call| call.method == "PUT" && is_plain(call), 12_000).await;
    has_parts(&twins, &stage, &["1", "2"]).await;
}

/// ... in aws-chunked framing, ...
#[tokio::test]
async fn both_paths_take_chunks_alike() {
    let is_meant = |call: &Call| matches!(call.payload, Payload::SignedChunks { trailer: None, .. });
    let (twins, stage) = compared(is_meant, 5000).await;
    has_parts(&twins, &stage, &["3"]).await;
}

/// ... and with a trailer behind it.
#[tokio::test]
async fn both_paths_take_trailers_alike() {
    let has_trailer = |call: &Call| {
        matches!(call.payload, Payload::SignedChunks { trailer: Some(_), .. } | Payload::UnsignedChunks { .. })
    };
    compared(has_trailer, 3000).await;
}

/// The parts that good requests sent, and no others.
async fn has_parts(twins: &[S3; 2], stage: &Stage, expected: &[&str]) {
    for s3 in twins {
        let listed = s3.get(&format!("/bkt/k?uploadId={}", stage.upload)).send(s3).await.expect(200);
        assert_eq!(listed.elements("PartNumber"), expected);
    }
}

/// Sends those of the requests to both paths, and others like them: more than so many.
async fn compared(is_meant: impl Fn(&Call) -> bool, more_than: u32) -> ([S3; 2], Stage) {
    let (twins, stage, clock) = twins([true, false]).await;
    let [fast, slow] = &twins;
    let mut dice = Dice::new(1);
    let (mut asked, mut refused) = (0, 0);
    for (kind, call) in good(&stage).into_iter().chain(by_others(&stage)).filter(|(_, call)| is_meant(call)) {
        let request = call.clone().build();
        let mut requests = vec![("unchanged".into(), request.clone())];
        requests.extend(respelled(&call).into_iter().map(|(what, call)| (what, call.build())));
        requests.extend(changes(&request, &mut dice));
        // A body without framing is as long as its head says: HTTP sees to that.
        let is_sent = |what: &str| what == "unchanged" || kind.contains("chunks") && what.starts_with("body");
        // Frames that cut the framing anywhere, and say nothing of the length. Byte by byte takes as long as eight others: what is in order, and an eighth of what is not.
        let in_frames: Vec<_> = requests
            .iter()
            .filter(|(what, _)| is_sent(what))
            .flat_map(|(what, request)| {
                let few = if what == "unchanged" || dice.below(8) == 0 { 1 } else { 8 + dice.below(23) as usize };
                [few, 7, 1000].map(|bytes| (format!("{what}, in frames of {bytes}"), request.clone(), Some(bytes)))
            })
            .collect();
        let requests = requests.into_iter().map(|(what, request)| (what, request, None)).chain(in_frames);
        for (what, request, frame_bytes) in requests {
            // s3s has the system's clock, by which requests are signed, and on a slow machine this takes minutes.
            clock.set_now_ms(SystemClock.now_ms());
            let found = ask(fast, request.clone(), frame_bytes).await;
            let expected = ask(slow, request.clone(), frame_bytes).await;
            asked += 1;
            refused += u32::from(expected.0 >= 400);
            assert_eq!(found, expected, "{kind}, {what}: {:?}", request.uri());
        }
    }
    assert!(asked > more_than && refused > asked / 2, "{asked} {refused}");
    (twins, stage)
}

/// Counts how often it is asked.
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
    let asked = Arc::new(AtomicU64::new(0));
    let credentials = CountingCredentials(Credentials::new(ACCESS_KEY, SECRET_KEY), Arc::clone(&asked));
    let (store, disk) = store().await;
    let options = S3Options { domains: vec!["s3.test".into()], fast_path: true, ..options() };
    let service =
        S3Service::new(store.clone(), Arc::new(credentials), options, Arc::new(SystemClock), &SeededEntropy::new(9))
            .unwrap();
    let s3 = S3 { service, store, disk, iam: None };
    let stage = stage(&s3).await;
    for (kind, call) in good(&stage) {
        let before = asked.load(Ordering::SeqCst);
        call.send(&s3).await;
        let times = if kind.starts_with("presigned") { 2 } else { 1 };
        assert_eq!(asked.load(Ordering::SeqCst) - before, times, "{kind}");
    }
}
