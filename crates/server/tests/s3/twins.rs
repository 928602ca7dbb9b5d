//! Two servers as sites have them, whose answers follow from what they are asked alone; and requests that are in order, of all kinds that the fast path serves.

use std::sync::Arc;

use gabion_platform::{Clock, ManualClock, SeededEntropy, SystemClock};
use gabion_server::credentials::{Account, Credentials};
use gabion_server::iam::{Iam, IamOptions};
use gabion_server::s3::S3Service;
use gabion_store::ChecksumAlgorithm;

use crate::encryption::{How, keys};
use crate::harness::{ACCESS_KEY, Call, Payload, S3, SECRET_KEY, Sign, checksum, crc32, options, store_at};
use crate::iam::{Signer, user};

const FAR: &str = "2099-01-01T00:00:00.000Z";
/// A host that names the bucket `bkt`.
const VIRTUAL: &str = "bkt.s3.test:9000";

/// Body of the requests that have one: two chunks.
pub(crate) fn content() -> Vec<u8> {
    (0..9000).map(|i: u32| (i * 7 + i / 251) as u8).collect()
}

/// What is on a server, but for what has the same name on all.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Stage {
    /// An upload of `/bkt/k`.
    pub(crate) upload: String,
    /// An upload of `/bkt/sealed`, with the customer's key 1.
    sealed: String,
    /// The versions of `/versioned/k`, and the marker of `/versioned/gone`.
    versions: Vec<String>,
    /// A version of `/locked/k` that nobody may delete.
    locked: String,
    /// Users, if there are any.
    who: Option<Who>,
}

#[derive(Debug, Clone, PartialEq)]
struct Who {
    /// May get and put objects of `/bkt/ann/`, and no others.
    ann: Signer,
    /// The same for a while.
    session: Signer,
}

/// Buckets and objects of all kinds.
pub(crate) async fn stage(s3: &S3) -> Stage {
    s3.store.keep_keys(Arc::new(keys()));
    for bucket in ["/bkt", "/versioned", "/public", "/encrypted"] {
        s3.put(bucket).send(s3).await.expect(200);
    }
    s3.put("/locked").header("x-amz-bucket-object-lock-enabled", "true").send(s3).await.expect(200);
    let versioning = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
    s3.put("/versioned?versioning").body(versioning).md5().send(s3).await.expect(200);
    let open = r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":"*","Action":["s3:GetObject","s3:PutObject"],"Resource":"arn:aws:s3:::public/in/*"}]}"#;
    s3.delete("/public?publicAccessBlock").send(s3).await;
    s3.put("/public?policy").body(open).md5().send(s3).await.expect(204);
    let encryption = "<ServerSideEncryptionConfiguration><Rule><ApplyServerSideEncryptionByDefault><SSEAlgorithm>AES256</SSEAlgorithm></ApplyServerSideEncryptionByDefault></Rule></ServerSideEncryptionConfiguration>";
    s3.put("/encrypted?encryption").body(encryption).md5().send(s3).await.expect(200);
    s3.put("/bkt/a%20key%2B").body(content()).send(s3).await.expect(200);
    How::Customer(1).put(s3.put("/bkt/hidden").body(content())).send(s3).await.expect(200);
    for key in ["/public/in/k", "/public/out", "/encrypted/k", "/bkt/ann/k"] {
        s3.put(key).body(content()).header("x-amz-tagging", "a=b").send(s3).await.expect(200);
    }
    let mut versions = Vec::new();
    for call in [s3.put("/versioned/k").body("one"), s3.put("/versioned/k").body("two"), s3.delete("/versioned/gone")] {
        let answer = call.send(s3).await;
        versions.push(answer.header("x-amz-version-id").unwrap().to_owned());
    }
    let lock = s3.put("/locked/k").body("x").header("x-amz-object-lock-mode", "COMPLIANCE");
    let lock = lock.header("x-amz-object-lock-retain-until-date", FAR).send(s3).await.expect(200);
    let begin = async |call: Call| call.send(s3).await.expect(200).element("UploadId").unwrap();
    Stage {
        upload: begin(s3.post("/bkt/k?uploads")).await,
        sealed: begin(How::Customer(1).put(s3.post("/bkt/sealed?uploads"))).await,
        versions,
        locked: lock.header("x-amz-version-id").unwrap().to_owned(),
        who: None,
    }
}

async fn users(s3: &S3) -> Who {
    let ann = user(s3, "ann").await;
    let own = r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":["s3:GetObject","s3:PutObject"],"Resource":"arn:aws:s3:::bkt/ann/*"}]}"#;
    let policy = [("UserName", "ann"), ("PolicyName", "p"), ("PolicyDocument", own)];
    Signer::root().iam(s3, "PutUserPolicy", &policy).await.expect(200);
    let session = Signer::of(&ann.sts(s3, "GetSessionToken", &[]).await.expect(200));
    Who { ann, session }
}

/// A server with users, keys, domains and Signature Version 2.
async fn twin(fast_path: bool, clock: Arc<dyn Clock>) -> (S3, Stage) {
    let (store, disk) = store_at(Arc::clone(&clock), |_| {}).await;
    let root = Credentials::new(ACCESS_KEY, SECRET_KEY);
    let iam = IamOptions { root, first_account: Account::first("test"), seal_key: None, near_providers: true };
    let iam = Iam::open(store.clone(), iam, Arc::clone(&clock), Arc::new(SeededEntropy::new(8))).unwrap();
    let options = gabion_server::s3::S3Options { domains: vec!["s3.test".into()], sigv2: true, fast_path, ..options() };
    let service = S3Service::with_iam(store.clone(), Arc::clone(&iam), options, clock, &SeededEntropy::new(9)).unwrap();
    let s3 = S3 { service, store, disk, iam: Some(iam) };
    let stage = stage(&s3).await;
    let who = Some(users(&s3).await);
    (s3, Stage { who, ..stage })
}

/// Two servers of the same, with the fast path or without it; the clock of both stands until it is moved.
pub(crate) async fn twins(fast_paths: [bool; 2]) -> ([S3; 2], Stage, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new(SystemClock.now_ms()));
    let [(one, stage), (other, stage_of_other)] =
        [twin(fast_paths[0], clock.clone()).await, twin(fast_paths[1], clock.clone()).await];
    assert_eq!(stage, stage_of_other);
    ([one, other], stage, clock)
}

/// Requests that are in order, of all kinds that the fast path serves, by the root user.
pub(crate) fn good(stage: &Stage) -> Vec<(&'static str, Call)> {
    let upload = &stage.upload;
    let part = |number: u16| Call::new("PUT", &format!("/bkt/k?partNumber={number}&uploadId={upload}")).body(content());
    let long = || (0..300_000_u32).map(|i| (i * 7 + i / 251) as u8).collect::<Vec<u8>>();
    let put = |payload| Call::new("PUT", "/bkt/a%20key%2B").body(content()).payload(payload);
    let get = |target: &str| Call::new("GET", target);
    let trailer = || ("x-amz-checksum-crc32", crc32(&content()));
    let by_host = |method: &str, target: &str| Call::new(method, target).change(|call| call.host = VIRTUAL);
    let version = |key: &str, version: &str| format!("/{key}?versionId={version}");
    let [one, two, gone] = stage.versions.clone().try_into().unwrap_or_else(|_| panic!("{stage:?}"));
    let sum = |algorithm| checksum(algorithm, &content());
    vec![
        ("signed", put(Payload::Signed).header("x-amz-meta-a", "some text").header("content-type", "text/plain")),
        ("unsigned", put(Payload::Unsigned).md5()),
        ("signed chunks", put(Payload::SignedChunks { chunk_bytes: 8192, trailer: None })),
        ("signed chunks, trailer", put(Payload::SignedChunks { chunk_bytes: 8192, trailer: Some(trailer()) })),
        ("unsigned chunks", put(Payload::UnsignedChunks { chunk_bytes: 8192, trailer: trailer() })),
        ("presigned put", put(Payload::Signed).sign(Sign::Query(3600))),
        ("with a checksum", put(Payload::Unsigned).header("x-amz-checksum-sha256", sum(ChecksumAlgorithm::Sha256))),
        ("with a wrong one", put(Payload::Unsigned).header("x-amz-checksum-crc32c", sum(ChecksumAlgorithm::Crc32))),
        ("empty", Call::new("PUT", "/bkt/empty")),
        ("get", get("/bkt/a%20key%2B?x-id=GetObject")),
        ("get with checksums", get("/bkt/a%20key%2B").header("x-amz-checksum-mode", "ENABLED")),
        ("range", get("/bkt/a%20key%2B").header("range", "bytes=10-19")),
        ("range at the end", get("/bkt/a%20key%2B").header("range", "bytes=-9")),
        ("range beyond the end", get("/bkt/a%20key%2B").header("range", "bytes=9000-")),
        ("part of a get", get("/bkt/a%20key%2B?partNumber=1")),
        ("presigned get", get("/bkt/a%20key%2B?response-content-type=text%2Fcsv").sign(Sign::Query(3600))),
        ("not modified", get("/bkt/a%20key%2B").header("if-none-match", "*")),
        ("modified", get("/bkt/a%20key%2B").header("if-unmodified-since", "Mon, 01 Jan 2001 00:00:00 GMT")),
        ("missing", get("/bkt/missing")),
        ("no bucket", get("/nowhere/k")),
        ("a key with more to it", get("/bkt/a//b/../%C3%A9%20")),
        ("head", Call::new("HEAD", "/bkt/a%20key%2B")),
        ("head of missing", Call::new("HEAD", "/bkt/missing")),
        ("head of a range", Call::new("HEAD", "/bkt/a%20key%2B").header("range", "bytes=10-19")),
        ("presigned head", Call::new("HEAD", "/bkt/a%20key%2B").sign(Sign::Query(3600))),
        ("part", part(1).payload(Payload::Unsigned)),
        ("presigned part", part(2).sign(Sign::Query(3600))),
        ("part in signed chunks", part(3).payload(Payload::SignedChunks { chunk_bytes: 8192, trailer: None })),
        (
            "part of no upload",
            Call::new("PUT", "/bkt/k?partNumber=1&uploadId=00000000000000000000000000000000").body("part"),
        ),
        ("only if there is none", put(Payload::Unsigned).header("if-none-match", "*")),
        ("only if it is another", put(Payload::Unsigned).header("if-match", "\"00000000000000000000000000000000\"")),
        ("tagged", put(Payload::Unsigned).header("x-amz-tagging", "a=b&c=d")),
        ("long", Call::new("PUT", "/bkt/long").body(long()).payload(Payload::Unsigned)),
        ("by host", by_host("GET", "/a%20key%2B")),
        ("put by host", by_host("PUT", "/by%20host").body(content())),
        ("delete by host", by_host("DELETE", "/by%20host")),
        ("versioned put", Call::new("PUT", "/versioned/k").body("three").payload(Payload::Unsigned)),
        ("version", get(&version("versioned/k", &one))),
        ("head of a version", Call::new("HEAD", &version("versioned/k", &two))),
        ("marker", get(&version("versioned/gone", &gone))),
        ("behind a marker", get("/versioned/gone")),
        ("versioned delete", Call::new("DELETE", "/versioned/k")),
        ("delete of a version", Call::new("DELETE", &version("versioned/k", &one))),
        (
            "locked put",
            Call::new("PUT", "/locked/k")
                .body("x")
                .header("x-amz-object-lock-mode", "GOVERNANCE")
                .header("x-amz-object-lock-retain-until-date", FAR)
                .header("x-amz-object-lock-legal-hold", "OFF")
                .md5(),
        ),
        ("head of what is locked", Call::new("HEAD", "/locked/k")),
        ("delete of what is locked", Call::new("DELETE", &version("locked/k", &stage.locked))),
        ("put with a key", How::Customer(2).put(Call::new("PUT", "/bkt/hidden2").body(content()))),
        ("get with a key", How::Customer(1).get(get("/bkt/hidden"))),
        ("head with another key", How::Customer(2).get(Call::new("HEAD", "/bkt/hidden"))),
        ("get without a key", get("/bkt/hidden")),
        (
            "part with a key",
            How::Customer(1)
                .get(Call::new("PUT", &format!("/bkt/sealed?partNumber=1&uploadId={}", stage.sealed)).body("x")),
        ),
        ("put to be encrypted", How::Named("k1").put(Call::new("PUT", "/bkt/named").body(content()))),
        ("get of what is encrypted", get("/encrypted/k")),
        ("by its owner", get("/bkt/a%20key%2B").header("x-amz-expected-bucket-owner", "000000000000")),
        ("delete", Call::new("DELETE", "/bkt/empty")),
        ("delete if it is another", Call::new("DELETE", "/bkt/long").header("if-match", "\"0\"")),
        ("presigned delete", Call::new("DELETE", "/bkt/long").sign(Sign::Query(3600))),
    ]
}

/// The same by users, by nobody, and in Signature Version 2.
pub(crate) fn by_others(stage: &Stage) -> Vec<(&'static str, Call)> {
    let Who { ann, session } = stage.who.as_ref().expect("a twin has users");
    let call = |method: &str, target: &str| Call::new(method, target);
    let mut without = session.sign(call("GET", "/bkt/ann/k"));
    without.access_key = ann.access_key;
    let in_query = |token: &str| {
        let token = percent_encoding::utf8_percent_encode(token, percent_encoding::NON_ALPHANUMERIC);
        let mut call = call("GET", &format!("/bkt/ann/k?X-Amz-Security-Token={token}")).sign(Sign::Query(3600));
        (call.access_key, call.secret_key) = (session.access_key, session.secret_key);
        call
    };
    let token = session.token.as_deref().expect("a session has a token");
    let unsigned = |method: &str, target: &str| call(method, target).sign(Sign::Not);
    vec![
        ("user's put", ann.sign(call("PUT", "/bkt/ann/k").body(content()))),
        ("user's get", ann.sign(call("GET", "/bkt/ann/k"))),
        ("user's head", ann.sign(call("HEAD", "/bkt/ann/k"))),
        ("user's delete", ann.sign(call("DELETE", "/bkt/ann/k"))),
        ("user's get of another's", ann.sign(call("GET", "/bkt/a%20key%2B"))),
        ("user's head of another's", ann.sign(call("HEAD", "/bkt/a%20key%2B"))),
        ("user's get of what is missing", ann.sign(call("GET", "/bkt/ann/missing"))),
        ("user's tags", ann.sign(call("PUT", "/bkt/ann/tagged").body("x").header("x-amz-tagging", "a=b"))),
        ("user's part", ann.sign(call("PUT", &format!("/bkt/k?partNumber=9&uploadId={}", stage.upload)).body("part"))),
        ("user's public get", ann.sign(call("GET", "/public/in/k"))),
        ("session's put", session.sign(call("PUT", "/bkt/ann/k2").body(content()).payload(Payload::Unsigned))),
        (
            "session's chunks",
            session.sign(
                call("PUT", "/bkt/ann/k3")
                    .body(content())
                    .payload(Payload::SignedChunks { chunk_bytes: 8192, trailer: None }),
            ),
        ),
        ("session's get", session.sign(call("GET", "/bkt/ann/k"))),
        ("session's presigned get", in_query(token)),
        ("token of another", without),
        ("nobody's get", unsigned("GET", "/public/in/k")),
        ("nobody's put", unsigned("PUT", "/public/in/k2").body(content())),
        ("nobody's get of what is not public", unsigned("GET", "/public/out")),
        ("nobody's head of what is not public", unsigned("HEAD", "/bkt/a%20key%2B")),
        ("nobody's delete", unsigned("DELETE", "/public/in/k")),
        ("version 2", call("GET", "/bkt/a%20key%2B").sign(Sign::Version2)),
        ("put in version 2", call("PUT", "/bkt/old").body("x").sign(Sign::Version2)),
    ]
}
