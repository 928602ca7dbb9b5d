//! Server-side encryption: with customers' keys, with the site's master key, with keys that are named.

use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use gabion_platform::{Disk, SystemClock};
use gabion_server::keys::{KeyFile, KeyRing, KeySources};
use gabion_server::s3::CustomerKeys;
use md5::{Digest, Md5};

use crate::harness::{Answer, Call, S3};

const SSE: &str = "x-amz-server-side-encryption";
const KEY_ID: &str = "x-amz-server-side-encryption-aws-kms-key-id";
const CUSTOMER: &str = "x-amz-server-side-encryption-customer-";
const SOURCE: &str = "x-amz-copy-source-server-side-encryption-customer-";

/// How something is encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    Not,
    Master,
    Named(&'static str),
    Customer(u8),
}

const ALL: [How; 5] = [How::Not, How::Master, How::Named("k1"), How::Customer(1), How::Customer(2)];

/// Headers of a customer's key.
fn shown(call: Call, prefix: &str, key: u8) -> Call {
    call.header(&format!("{prefix}algorithm"), "AES256")
        .header(&format!("{prefix}key"), BASE64_STANDARD.encode([key; 32]))
        .header(&format!("{prefix}key-md5"), BASE64_STANDARD.encode(Md5::digest([key; 32])))
}

impl How {
    /// Asks for it.
    pub(crate) fn put(self, call: Call) -> Call {
        match self {
            How::Not => call,
            How::Master => call.header(SSE, "AES256"),
            How::Named(id) => call.header(SSE, "aws:kms").header(KEY_ID, id),
            How::Customer(key) => shown(call, CUSTOMER, key),
        }
    }

    /// What a request must show to read it.
    pub(crate) fn get(self, call: Call) -> Call {
        if let How::Customer(key) = self { shown(call, CUSTOMER, key) } else { call }
    }

    #[track_caller]
    fn is_told(self, answer: &Answer) {
        let md5 = |key: u8| BASE64_STANDARD.encode(Md5::digest([key; 32]));
        let told = [SSE, KEY_ID, &format!("{CUSTOMER}algorithm"), &format!("{CUSTOMER}key-MD5")]
            .map(|name| answer.header(name));
        match self {
            How::Not => assert_eq!(told, [None; 4]),
            How::Master => assert_eq!(told, [Some("AES256"), None, None, None]),
            How::Named(id) => assert_eq!(told, [Some("aws:kms"), Some(id), None, None]),
            How::Customer(key) => assert_eq!(told, [None, None, Some("AES256"), Some(&md5(key)[..])]),
        }
    }
}

pub(crate) fn keys() -> KeyRing {
    let text: String = (0..3_u8).map(|n| format!("k{n} {}\n", BASE64_STANDARD.encode([0x80 | n; 32]))).collect();
    let sources = KeySources { file: KeyFile::parse(&text).unwrap(), ..KeySources::default() };
    KeyRing::new(sources, Arc::new(SystemClock)).unwrap()
}

/// A server with keys `k0` (the master key) to `k2`, and a bucket `bkt`.
async fn with_keys() -> S3 {
    let s3 = S3::with_bucket().await;
    s3.store.keep_keys(Arc::new(keys()));
    s3
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i as u8).wrapping_mul(31) ^ (i >> 8) as u8).collect()
}

fn md5_tag(bytes: &[u8]) -> String {
    format!("\"{}\"", hex::encode(Md5::digest(bytes)))
}

#[tokio::test]
async fn what_is_encrypted_comes_back_in_any_range() {
    let s3 = with_keys().await;
    for len in [0, 1, 5000, 65_536, 65_537, 200_000, (1 << 20) - 100, 1 << 20, 5_000_000] {
        let body = bytes(len);
        for how in &ALL[1..4] {
            let put = how.put(s3.put("/bkt/k").body(body.clone()).md5()).send(&s3).await.expect(200);
            how.is_told(&put);
            let etag = put.header("etag").unwrap().to_owned();
            // The tag is the MD5 of the content where only the site's own key encrypts it.
            assert_eq!(etag == md5_tag(&body), *how == How::Master, "{how:?} {etag}");
            assert_eq!(etag.len(), 34);
            let head = how.get(s3.head("/bkt/k")).send(&s3).await.expect(200);
            how.is_told(&head);
            assert_eq!(
                (head.header("content-length"), head.header("etag")),
                (Some(&len.to_string()[..]), Some(&etag[..]))
            );
            let whole = how.get(s3.get("/bkt/k")).header("x-amz-checksum-mode", "ENABLED").send(&s3).await.expect(200);
            how.is_told(&whole);
            assert!(whole.body == body, "{how:?} {len}");
            let crc64 = crate::harness::checksum(gabion_store::ChecksumAlgorithm::Crc64Nvme, &body);
            assert_eq!(whole.header("x-amz-checksum-crc64nvme"), Some(&crc64[..]), "checksums are of the plain bytes");
            for (first, last) in
                [(0, 0), (1, 65_535), (65_535, 65_536), (65_536, 140_000), (len / 2, len), (len.saturating_sub(1), len)]
            {
                if first < len {
                    let range = format!("bytes={first}-{last}");
                    let part = how.get(s3.get("/bkt/k")).header("range", &range[..]).send(&s3).await.expect(206);
                    assert!(part.body == body[first..=last.min(len - 1)], "{how:?} {len} {range}");
                    let said = format!("bytes {first}-{}/{len}", last.min(len - 1));
                    assert_eq!(part.header("content-range"), Some(&said[..]));
                }
            }
            let listed = s3.get("/bkt?list-type=2").send(&s3).await.expect(200);
            assert_eq!(listed.element("Size"), Some(len.to_string()));
        }
    }
}

#[tokio::test]
async fn what_is_stored_is_no_plaintext() {
    let s3 = with_keys().await;
    let secret = b"what nobody but its owner may ever read".repeat(100);
    for (how, key) in ALL.iter().zip(["not", "master", "named", "customer"]) {
        how.put(s3.put(&format!("/bkt/{key}")).body(secret.clone())).send(&s3).await.expect(200);
    }
    let mut found = 0;
    for path in s3.disk.paths() {
        let file = s3.disk.read_file(&path, 64 << 20).await.unwrap();
        found += file.windows(39).filter(|window| **window == secret[..39]).count();
    }
    assert_eq!(found, 100, "that of the object that is not encrypted");
}

#[tokio::test]
async fn a_customers_key_must_be_shown_and_be_the_right_one() {
    let s3 = with_keys().await;
    let how = How::Customer(1);
    how.put(s3.put("/bkt/k").body("secret")).send(&s3).await.expect(200);
    let message = |answer: Answer| answer.element("Message").unwrap();
    let none = s3.get("/bkt/k").send(&s3).await.refused(400, "InvalidRequest");
    assert!(message(none).starts_with("The object was stored using a form of Server Side Encryption."));
    let wrong = How::Customer(2).get(s3.get("/bkt/k")).send(&s3).await.refused(400, "InvalidRequest");
    assert!(message(wrong).starts_with("The provided encryption parameters did not match"));
    s3.head("/bkt/k").send(&s3).await.expect(400);
    How::Customer(2).get(s3.head("/bkt/k")).send(&s3).await.expect(400);
    let attributes = |call: Call| call.header("x-amz-object-attributes", "ObjectSize");
    attributes(s3.get("/bkt/k?attributes")).send(&s3).await.refused(400, "InvalidRequest");
    let found = attributes(how.get(s3.get("/bkt/k?attributes"))).send(&s3).await.expect(200);
    assert_eq!(found.element("ObjectSize").as_deref(), Some("6"));
    // A key for what needs none.
    for (key, other) in [("plain", How::Not), ("master", How::Master)] {
        let target = format!("/bkt/{key}");
        other.put(s3.put(&target).body("x")).send(&s3).await.expect(200);
        let refused = how.get(s3.get(&target)).send(&s3).await.refused(400, "InvalidRequest");
        assert_eq!(message(refused), "The encryption parameters are not applicable to this object.");
    }
    // An empty object is as secret as any other.
    how.put(s3.put("/bkt/empty")).send(&s3).await.expect(200);
    s3.get("/bkt/empty").send(&s3).await.refused(400, "InvalidRequest");
    How::Customer(2).get(s3.get("/bkt/empty")).send(&s3).await.refused(400, "InvalidRequest");
}

#[tokio::test]
async fn headers_of_encryption_are_checked() {
    let s3 = with_keys().await;
    let (key, md5) = (BASE64_STANDARD.encode([1; 32]), BASE64_STANDARD.encode(Md5::digest([1; 32])));
    let customer = |names: &[(&str, &str)]| {
        names.iter().map(|(name, value)| (format!("{CUSTOMER}{name}"), (*value).to_owned())).collect::<Vec<_>>()
    };
    let named = |names: &[(&str, &str)]| {
        names.iter().map(|(name, value)| (format!("{SSE}{name}"), (*value).to_owned())).collect::<Vec<_>>()
    };
    let short = BASE64_STANDARD.encode([1; 31]);
    let table = [
        (customer(&[("algorithm", "AES256")]), "InvalidArgument"),
        (customer(&[("key", &key), ("key-md5", &md5)]), "InvalidArgument"),
        (customer(&[("algorithm", "AES256"), ("key", &key)]), "InvalidArgument"),
        (customer(&[("algorithm", "AES256"), ("key-md5", &md5)]), "InvalidArgument"),
        (
            customer(&[("algorithm", "AES256"), ("key", &key), ("key-md5", "AAAAAAAAAAAAAAAAAAAAAA==")]),
            "InvalidArgument",
        ),
        (customer(&[("algorithm", "AES256"), ("key", &short), ("key-md5", &md5)]), "InvalidArgument"),
        (customer(&[("algorithm", "AES256"), ("key", "%"), ("key-md5", &md5)]), "InvalidArgument"),
        (customer(&[("algorithm", "AES128"), ("key", &key), ("key-md5", &md5)]), "InvalidEncryptionAlgorithmError"),
        (
            [customer(&[("algorithm", "AES256"), ("key", &key), ("key-md5", &md5)]), named(&[("", "AES256")])].concat(),
            "InvalidArgument",
        ),
        (named(&[("", "aes:kms")]), "InvalidArgument"),
        (named(&[("", "AES192")]), "InvalidArgument"),
        (named(&[("", "AES256"), ("-aws-kms-key-id", "k1")]), "InvalidArgument"),
        (named(&[("-aws-kms-key-id", "k1")]), "InvalidArgument"),
        (named(&[("-context", "e30=")]), "InvalidArgument"),
        (named(&[("", "aws:kms"), ("-aws-kms-key-id", "k1"), ("-context", "W10=")]), "InvalidArgument"),
        (named(&[("", "aws:kms"), ("-aws-kms-key-id", "k1"), ("-bucket-key-enabled", "yes")]), "InvalidArgument"),
        (named(&[("", "aws:kms"), ("-aws-kms-key-id", "k9")]), "KMS.NotFoundException"),
        (named(&[("", "aws:kms")]), "KMS.NotFoundException"),
    ];
    for (headers, code) in table {
        for target in ["/bkt/k", "/bkt/k?uploads"] {
            let mut call = if target == "/bkt/k" { s3.put(target).body("x") } else { s3.post(target) };
            for (name, value) in &headers {
                call = call.header(name, &value[..]);
            }
            let answer = call.send(&s3).await.refused(400, code);
            assert!(!answer.text().contains(&key), "{headers:?}: the key is told");
        }
    }
    s3.head("/bkt/k").send(&s3).await.expect(404);
    How::Master.put(s3.put("/bkt/k").body("x")).send(&s3).await.expect(200);
    How::Master.put(s3.get("/bkt/k")).send(&s3).await.refused(400, "InvalidArgument");
    How::Master.put(s3.head("/bkt/k")).send(&s3).await.expect(400);
    s3.put("/bkt/k").header(SSE, "aws:kms:dsse").body("x").send(&s3).await.refused(501, "NotImplemented");
}

#[tokio::test]
async fn keys_have_names_and_contexts_that_are_told() {
    let s3 = with_keys().await;
    let arn = "arn:aws:kms:us-east-1:1:key/k2";
    let context = BASE64_STANDARD.encode(r#"{"team":"x"}"#);
    let put = How::Named(arn).put(s3.put("/bkt/k").body("x")).header(&format!("{SSE}-context"), &context[..]);
    let put = put.header(&format!("{SSE}-bucket-key-enabled"), "true").send(&s3).await.expect(200);
    How::Named(arn).is_told(&put);
    assert_eq!(put.header(&format!("{SSE}-context")), Some(&context[..]));
    let read = s3.get("/bkt/k").send(&s3).await.expect(200);
    assert_eq!((read.text().as_str(), read.header(&format!("{SSE}-context"))), ("x", None));
    assert_eq!(read.header(&format!("{SSE}-bucket-key-enabled")), Some("true"));
}

#[tokio::test]
async fn without_keys_only_customers_can_encrypt() {
    let s3 = S3::with_bucket().await;
    How::Master.put(s3.put("/bkt/k").body("x")).send(&s3).await.refused(501, "NotImplemented");
    How::Named("k1").put(s3.put("/bkt/k").body("x")).send(&s3).await.refused(501, "NotImplemented");
    How::Customer(1).put(s3.put("/bkt/k").body("x")).send(&s3).await.expect(200);
    assert_eq!(How::Customer(1).get(s3.get("/bkt/k")).send(&s3).await.text(), "x");
}

#[tokio::test]
async fn a_customers_key_is_not_shown_over_the_wire() {
    let s3 = S3::with(|options| options.customer_keys = CustomerKeys::Encrypted).await;
    s3.put("/bkt").send(&s3).await.expect(200);
    let refused = How::Customer(1).put(s3.put("/bkt/k").body("x")).send(&s3).await.refused(400, "InvalidRequest");
    assert!(refused.text().contains("must be made over a secure connection."));
}

#[tokio::test]
async fn a_customers_key_has_no_place_in_a_url() {
    let s3 = with_keys().await;
    How::Customer(1).put(s3.put("/bkt/k").body("x")).send(&s3).await.expect(200);
    let presigned = || s3.get("/bkt/k").sign(crate::harness::Sign::Query(60));
    assert_eq!(How::Customer(1).get(presigned()).send(&s3).await.expect(200).text(), "x");
    let name = format!("X-Amz-{}Key", "Server-Side-Encryption-Customer-");
    let target = format!("/bkt/k?{name}={}", "AQEB".repeat(10) + "AQE%3D");
    let refused = s3.get(&target).sign(crate::harness::Sign::Query(60)).send(&s3).await.refused(400, "InvalidArgument");
    assert!(!refused.text().contains("AQEB"), "the key is told");
}

async fn begin(s3: &S3, how: How, target: &str) -> String {
    let begun = how.put(s3.post(&format!("{target}?uploads"))).send(s3).await.expect(200);
    how.is_told(&begun);
    begun.element("UploadId").unwrap()
}

async fn complete(s3: &S3, how: How, target: &str, upload: &str, parts: &[(u16, String)]) -> Answer {
    let parts: String = parts
        .iter()
        .map(|(number, etag)| format!("<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>"))
        .collect();
    let document = format!("<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>");
    let call = s3.post(&format!("{target}?uploadId={upload}")).body(document);
    let completed = how.get(call).send(s3).await.expect(200);
    how.is_told(&completed);
    completed
}

#[tokio::test]
async fn parts_are_sealed_by_themselves_and_read_across() {
    let s3 = with_keys().await;
    for how in &ALL[1..4] {
        let upload = begin(&s3, *how, "/bkt/k").await;
        // Numbers with gaps; the second is uploaded twice, and one is not named in the end.
        let sizes = [(2_u16, 70_000_usize), (3, 65_536), (7, 2_500_000), (8, 20), (4000, 100_001)];
        let (mut whole, mut parts) = (Vec::new(), Vec::new());
        for (number, size) in sizes {
            let target = format!("/bkt/k?partNumber={number}&uploadId={upload}");
            if number == 3 {
                how.get(s3.put(&target).body(bytes(100_000))).send(&s3).await.expect(200);
            }
            let body: Vec<u8> = bytes(size).iter().map(|byte| byte ^ number as u8).collect();
            let put = how.get(s3.put(&target).body(body.clone())).send(&s3).await.expect(200);
            how.is_told(&put);
            if number != 8 {
                whole.extend(body);
                parts.push((number, put.header("etag").unwrap().to_owned()));
            }
        }
        let listed = how.get(s3.get(&format!("/bkt/k?uploadId={upload}"))).send(&s3).await.expect(200);
        assert_eq!(listed.elements("Size"), sizes.map(|(_, size)| size.to_string()));
        complete(&s3, *how, "/bkt/k", &upload, &parts).await;
        let read = how.get(s3.get("/bkt/k")).send(&s3).await.expect(200);
        assert!(read.body == whole, "{how:?}");
        for (first, last) in [(0, 0), (69_999, 70_000), (69_990, 135_540), (135_535, 2_700_000), (2_735_536, 2_735_537)]
        {
            let range = format!("bytes={first}-{last}");
            let part = how.get(s3.get("/bkt/k")).header("range", &range[..]).send(&s3).await.expect(206);
            assert!(part.body == whole[first..=last.min(whole.len() - 1)], "{how:?} {range}");
        }
        let part = how.get(s3.get("/bkt/k?partNumber=3")).send(&s3).await.expect(206);
        assert!(part.body == whole[70_000..135_536] && part.header("x-amz-mp-parts-count") == Some("4"));
        let head = how.get(s3.head("/bkt/k?partNumber=4000")).send(&s3).await.expect(206);
        assert_eq!(head.header("content-length"), Some("100001"));
    }
}

#[tokio::test]
async fn parts_need_the_key_of_their_upload() {
    let s3 = with_keys().await;
    let upload = begin(&s3, How::Customer(1), "/bkt/k").await;
    let target = format!("/bkt/k?partNumber=1&uploadId={upload}");
    s3.put(&target).body("x").send(&s3).await.refused(400, "InvalidRequest");
    How::Customer(2).put(s3.put(&target).body("x")).send(&s3).await.refused(400, "InvalidRequest");
    let put = How::Customer(1).put(s3.put(&target).body("x")).send(&s3).await.expect(200);
    let first = put.header("etag").unwrap();
    let document = format!(
        "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{first}</ETag></Part></CompleteMultipartUpload>"
    );
    let complete = || s3.post(&format!("/bkt/k?uploadId={upload}")).body(document.clone());
    How::Customer(2).get(complete()).send(&s3).await.refused(400, "InvalidRequest");
    How::Customer(1).is_told(&How::Customer(1).get(complete()).send(&s3).await.expect(200));
    // Nothing is encrypted when an upload ends: the key has to be shown only where a checksum was asked for, as on AWS.
    for algorithm in [None, Some("CRC32C")] {
        let mut begin = How::Customer(1).put(s3.post("/bkt/l?uploads"));
        if let Some(algorithm) = algorithm {
            begin = begin.header("x-amz-checksum-algorithm", algorithm).header("x-amz-checksum-type", "FULL_OBJECT");
        }
        let upload = begin.send(&s3).await.expect(200).element("UploadId").unwrap();
        let target = format!("/bkt/l?partNumber=1&uploadId={upload}");
        let put = How::Customer(1).put(s3.put(&target).body("x")).send(&s3).await.expect(200);
        let document = document.replace(first, put.header("etag").unwrap());
        let completed = s3.post(&format!("/bkt/l?uploadId={upload}")).body(document).send(&s3).await;
        assert_eq!(completed.status, if algorithm.is_some() { 400 } else { 200 }, "{}", completed.text());
    }
    assert_eq!(How::Customer(1).get(s3.get("/bkt/l")).send(&s3).await.expect(200).text(), "x");
    // What is not a customer's takes no key; what else is said of encryption with a part changes nothing.
    let upload = begin(&s3, How::Named("k1"), "/bkt/n").await;
    let target = format!("/bkt/n?partNumber=1&uploadId={upload}");
    How::Customer(1).put(s3.put(&target).body("x")).send(&s3).await.refused(400, "InvalidRequest");
    How::Named("k1").is_told(&How::Named("other").put(s3.put(&target).body("x")).send(&s3).await.expect(200));
}

#[tokio::test]
async fn copies_are_opened_and_sealed_anew() {
    let s3 = with_keys().await;
    let body = bytes(150_000);
    for from in ALL {
        from.put(s3.put("/bkt/from").body(body.clone()).header("x-amz-meta-a", "b")).send(&s3).await.expect(200);
        let copy = |to: How, target: &str| {
            let call = s3.put(target).header("x-amz-copy-source", "/bkt/from");
            to.put(if let How::Customer(key) = from { shown(call, SOURCE, key) } else { call })
        };
        for to in ALL {
            let copied = copy(to, "/bkt/to").send(&s3).await.expect(200);
            to.is_told(&copied);
            let read = to.get(s3.get("/bkt/to")).send(&s3).await.expect(200);
            to.is_told(&read);
            assert!(read.body == body && read.header("x-amz-meta-a") == Some("b"), "{from:?} {to:?}");
            let is_md5 = matches!(to, How::Not | How::Master);
            assert_eq!(read.header("etag") == Some(&md5_tag(&body)[..]), is_md5, "{from:?} {to:?}");
        }
        if let How::Customer(key) = from {
            let call = || s3.put("/bkt/to").header("x-amz-copy-source", "/bkt/from");
            call().send(&s3).await.refused(400, "InvalidRequest");
            shown(call(), SOURCE, key + 7).send(&s3).await.refused(400, "InvalidRequest");
        }
        // A part of each is sealed as its upload is.
        for to in ALL {
            let upload = begin(&s3, to, "/bkt/parts").await;
            let mut parts = Vec::new();
            for (number, range) in [(1, None), (2, Some("bytes=65530-65541")), (5, None)] {
                let target = format!("/bkt/parts?partNumber={number}&uploadId={upload}");
                let call = s3.put(&target).header("x-amz-copy-source", "/bkt/from");
                let call = if let How::Customer(key) = from { shown(call, SOURCE, key) } else { call };
                let call = range.map_or(call.clone(), |range| call.header("x-amz-copy-source-range", range));
                let copied = to.get(call).send(&s3).await.expect(200);
                to.is_told(&copied);
                parts.push((number, copied.element("ETag").unwrap()));
            }
            complete(&s3, to, "/bkt/parts", &upload, &parts).await;
            let read = to.get(s3.get("/bkt/parts")).send(&s3).await.expect(200);
            assert!(read.body == [&body[..], &body[65_530..=65_541], &body].concat(), "{from:?} {to:?}");
        }
    }
}

#[tokio::test]
async fn a_new_key_of_an_object_changes_nothing_of_its_bytes() {
    let s3 = with_keys().await;
    let body = bytes(200_000);
    for how in &ALL[1..4] {
        let put = how.put(s3.put("/bkt/old").body(body.clone())).send(&s3).await.expect(200);
        let rename = || s3.put("/bkt/new?renameObject").header("x-amz-rename-source", "old");
        if let How::Customer(_) = how {
            rename().send(&s3).await.refused(400, "InvalidRequest");
        }
        how.get(rename()).send(&s3).await.expect(200);
        let read = how.get(s3.get("/bkt/new")).send(&s3).await.expect(200);
        how.is_told(&read);
        assert!(read.body == body && read.header("etag") == put.header("etag"), "{how:?}");
        // Bytes behind it would have to be sealed as well.
        let append = how.get(s3.put("/bkt/new")).header("x-amz-write-offset-bytes", "200000").body("x");
        append.send(&s3).await.refused(400, "InvalidRequest");
    }
}

#[tokio::test]
async fn a_copy_to_itself_may_change_the_key() {
    let s3 = with_keys().await;
    s3.put("/bkt/k").body("x").send(&s3).await.expect(200);
    let copy = || s3.put("/bkt/k").header("x-amz-copy-source", "/bkt/k");
    copy().send(&s3).await.refused(400, "InvalidRequest");
    let mut before = How::Not;
    for how in [How::Master, How::Customer(1), How::Customer(2), How::Named("k1"), How::Named("k2"), How::Not] {
        let call = if let How::Customer(key) = before { shown(copy(), SOURCE, key) } else { copy() };
        how.is_told(&how.put(call).send(&s3).await.expect(200));
        assert_eq!(how.get(s3.get("/bkt/k")).send(&s3).await.expect(200).text(), "x", "{how:?}");
        if how == How::Master {
            // Who says how it is encrypted changes something, as on AWS, also if it was so before.
            how.is_told(&how.put(copy()).send(&s3).await.expect(200));
        }
        before = how;
    }
}

#[tokio::test]
async fn copies_of_parts_keep_them_where_one_key_serves() {
    let s3 = with_keys().await;
    let upload = begin(&s3, How::Master, "/bkt/k").await;
    let mut parts = Vec::new();
    for number in [1, 2] {
        let target = format!("/bkt/k?partNumber={number}&uploadId={upload}");
        let put = s3.put(&target).body(bytes(70_000)).send(&s3).await.expect(200);
        parts.push((number, put.header("etag").unwrap().to_owned()));
    }
    complete(&s3, How::Master, "/bkt/k", &upload, &parts).await;
    let copy = s3.put("/bkt/copy").header("x-amz-copy-source", "/bkt/k");
    How::Master.put(copy).send(&s3).await.expect(200);
    s3.put("/bkt/copy?tagging").body("<Tagging><TagSet/></Tagging>").send(&s3).await.expect(200);
    s3.delete("/bkt/k").send(&s3).await.expect(204);
    assert!(s3.get("/bkt/copy").send(&s3).await.expect(200).body == [bytes(70_000), bytes(70_000)].concat());
    let part = s3.get("/bkt/copy?partNumber=2").send(&s3).await.expect(206);
    assert!(part.body == bytes(70_000) && part.header("x-amz-mp-parts-count") == Some("2"));
}

fn configuration(rule: &str) -> String {
    format!(
        "<ServerSideEncryptionConfiguration xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Rule>{rule}</Rule></ServerSideEncryptionConfiguration>"
    )
}

fn by_default(algorithm: &str, key: &str) -> String {
    let key = if key.is_empty() { String::new() } else { format!("<KMSMasterKeyID>{key}</KMSMasterKeyID>") };
    format!(
        "<ApplyServerSideEncryptionByDefault><SSEAlgorithm>{algorithm}</SSEAlgorithm>{key}</ApplyServerSideEncryptionByDefault>"
    )
}

#[tokio::test]
async fn a_bucket_decides_where_a_request_does_not() {
    let s3 = with_keys().await;
    let missing = "ServerSideEncryptionConfigurationNotFoundError";
    s3.get("/bkt?encryption").send(&s3).await.refused(404, missing);
    s3.get("/none?encryption").send(&s3).await.refused(404, "NoSuchBucket");
    s3.put("/none?encryption")
        .body(configuration(&by_default("AES256", "")))
        .send(&s3)
        .await
        .refused(404, "NoSuchBucket");
    s3.put("/bkt?encryption").body("<x/>").send(&s3).await.refused(400, "MalformedXML");
    s3.put("/bkt/source").body("x").send(&s3).await.expect(200);
    for (rule, how) in [
        (by_default("AES256", ""), How::Master),
        (by_default("aws:kms", "k2") + "<BucketKeyEnabled>true</BucketKeyEnabled>", How::Named("k2")),
    ] {
        s3.put("/bkt?encryption").body(configuration(&rule)).send(&s3).await.expect(200);
        let shown = s3.get("/bkt?encryption").send(&s3).await.expect(200);
        assert!(shown.text().contains(&by_default(
            &shown.element("SSEAlgorithm").unwrap(),
            if how == How::Master { "" } else { "k2" }
        )));
        let put = s3.put("/bkt/k").body("plain").send(&s3).await.expect(200);
        how.is_told(&put);
        let bucket_key = (how != How::Master).then_some("true");
        assert_eq!(put.header(&format!("{SSE}-bucket-key-enabled")), bucket_key);
        let read = s3.get("/bkt/k").send(&s3).await.expect(200);
        how.is_told(&read);
        assert_eq!(read.text(), "plain");
        how.is_told(&s3.put("/bkt/copy").header("x-amz-copy-source", "/bkt/source").send(&s3).await.expect(200));
        let upload = begin(&s3, how, "/bkt/other").await;
        assert_eq!(upload.len(), 32);
        let begun = s3.post("/bkt/parts?uploads").send(&s3).await.expect(200);
        how.is_told(&begun);
        // What a request says counts.
        for asked in [How::Master, How::Named("k1"), How::Customer(1)] {
            asked.is_told(&asked.put(s3.put("/bkt/asked").body("x")).send(&s3).await.expect(200));
        }
        let without = s3.put("/bkt/k").header(&format!("{SSE}-bucket-key-enabled"), "false").body("x").send(&s3).await;
        assert_eq!(without.expect(200).header(&format!("{SSE}-bucket-key-enabled")), None);
    }
    for _ in 0..2 {
        s3.delete("/bkt?encryption").send(&s3).await.expect(204);
        s3.get("/bkt?encryption").send(&s3).await.refused(404, missing);
    }
    How::Not.is_told(&s3.put("/bkt/k").body("x").send(&s3).await.expect(200));
}

#[tokio::test]
async fn a_bucket_may_refuse_customers_keys() {
    let s3 = with_keys().await;
    How::Customer(1).put(s3.put("/bkt/old").body("x")).send(&s3).await.expect(200);
    let blocked = "<BlockedEncryptionTypes><EncryptionType>SSE-C</EncryptionType></BlockedEncryptionTypes>";
    s3.put("/bkt?encryption").body(configuration(blocked)).send(&s3).await.expect(200);
    How::Customer(1).put(s3.put("/bkt/k").body("x")).send(&s3).await.refused(403, "AccessDenied");
    How::Customer(1).put(s3.post("/bkt/k?uploads")).send(&s3).await.refused(403, "AccessDenied");
    assert_eq!(How::Customer(1).get(s3.get("/bkt/old")).send(&s3).await.expect(200).text(), "x");
    s3.put("/bkt/k").body("x").send(&s3).await.expect(200);
}

#[tokio::test]
async fn a_site_may_encrypt_all_that_nothing_is_said_of() {
    let s3 = S3::with(|options| options.default_encryption = Some(gabion_store::EncryptionScheme::Master)).await;
    s3.store.keep_keys(Arc::new(keys()));
    s3.put("/bkt").send(&s3).await.expect(200);
    let shown = s3.get("/bkt?encryption").send(&s3).await.expect(200);
    assert_eq!(shown.element("SSEAlgorithm").as_deref(), Some("AES256"));
    How::Master.is_told(&s3.put("/bkt/k").body("x").send(&s3).await.expect(200));
}

#[tokio::test]
async fn what_the_server_puts_is_encrypted_as_its_bucket_says() {
    let s3 = with_keys().await;
    s3.put("/logs").send(&s3).await.expect(200);
    s3.put("/logs?encryption").body(configuration(&by_default("AES256", ""))).send(&s3).await.expect(200);
    let log = "<BucketLoggingStatus><LoggingEnabled><TargetBucket>logs</TargetBucket><TargetPrefix/></LoggingEnabled></BucketLoggingStatus>";
    s3.put("/bkt?logging").body(log).send(&s3).await.expect(200);
    s3.put("/bkt/k").body("x").send(&s3).await.expect(200);
    let stop = tokio_util::sync::CancellationToken::new();
    stop.cancel();
    s3.service.run_log_delivery(gabion_server::s3::LogDeliveryOptions { interval_ms: 60_000 }, stop).await;
    let key = s3.get("/logs?list-type=2").send(&s3).await.expect(200).element("Key").unwrap();
    let read = s3.get(&format!("/logs/{key}")).send(&s3).await.expect(200);
    How::Master.is_told(&read);
    assert!(read.text().contains("REST.PUT.OBJECT"));
}
