//! Objects: put, get, head, delete, conditions, attributes.

use crate::harness::{S3, Sign, checksum};

#[tokio::test]
async fn headers_come_back() {
    let s3 = S3::with_bucket().await;
    let given = [
        ("content-type", "text/plain; charset=utf-8"),
        ("cache-control", "no-cache"),
        ("content-disposition", "attachment; filename=\"a\""),
        ("content-encoding", "gzip"),
        ("content-language", "de"),
        ("expires", "Thu, 01 Dec 2044 16:00:00 GMT"),
        ("x-amz-meta-color", "blue"),
        ("x-amz-meta-empty", ""),
    ];
    let put = given.iter().fold(s3.put("/bkt/k").body("hello"), |call, (name, value)| call.header(name, *value));
    let stored = put.send(&s3).await.expect(200);
    assert_eq!(stored.header("etag"), Some("\"5d41402abc4b2a76b9719d911017c592\""));
    for read in [s3.get("/bkt/k").send(&s3).await, s3.head("/bkt/k").send(&s3).await] {
        assert_eq!(read.status, 200);
        for (name, value) in given {
            assert_eq!(read.header(name), Some(value), "{name}");
        }
        assert_eq!(read.header("etag"), stored.header("etag"));
        assert_eq!(read.header("content-length"), Some("5"));
        assert_eq!(read.header("accept-ranges"), Some("bytes"));
        assert!(read.header("last-modified").unwrap().ends_with(" GMT"));
    }
    s3.put("/bkt/plain").body("x").send(&s3).await.expect(200);
    assert_eq!(s3.head("/bkt/plain").send(&s3).await.header("content-type"), Some("binary/octet-stream"));
}

#[tokio::test]
async fn metadata_is_bounded() {
    let s3 = S3::with_bucket().await;
    let put = |len: usize| s3.put("/bkt/k").header("x-amz-meta-a", "v".repeat(len)).send(&s3);
    put(2047).await.expect(200);
    put(2048).await.refused(400, "MetadataTooLarge");
}

#[tokio::test]
async fn responses_are_overridden() {
    let s3 = S3::with_bucket().await;
    s3.put("/bkt/k").body("x").header("content-type", "a/b").send(&s3).await.expect(200);
    let target = "/bkt/k?response-content-type=text%2Fhtml&response-cache-control=no-store&response-content-language=de\
        &response-content-disposition=inline&response-content-encoding=br&response-expires=Thu%2C%2001%20Dec%202044%2016%3A00%3A00%20GMT";
    for sign in [Sign::Header, Sign::Query(60)] {
        let read = s3.get(target).sign(sign).send(&s3).await.expect(200);
        assert_eq!(read.header("content-type"), Some("text/html"));
        assert_eq!(read.header("cache-control"), Some("no-store"));
        assert_eq!(read.header("content-language"), Some("de"));
        assert_eq!(read.header("content-disposition"), Some("inline"));
        assert_eq!(read.header("content-encoding"), Some("br"));
        assert_eq!(read.header("expires"), Some("Thu, 01 Dec 2044 16:00:00 GMT"));
    }
    s3.get("/bkt/k?response-content-type=a%0Ab").send(&s3).await.refused(400, "InvalidArgument");
}

#[tokio::test]
async fn ranges_are_cut() {
    let s3 = S3::with_bucket().await;
    s3.put("/bkt/k").body("0123456789").send(&s3).await.expect(200);
    let table = [
        ("bytes=0-3", 206, "0123", Some("bytes 0-3/10")),
        ("bytes=4-", 206, "456789", Some("bytes 4-9/10")),
        ("bytes=-2", 206, "89", Some("bytes 8-9/10")),
        ("bytes=8-99", 206, "89", Some("bytes 8-9/10")),
        ("bytes=-99", 206, "0123456789", Some("bytes 0-9/10")),
        ("bytes=0-1,3-4", 200, "0123456789", None),
        ("bytes=5-2", 200, "0123456789", None),
        ("bytes= -1", 200, "0123456789", None),
        ("bytes=0 -1", 200, "0123456789", None),
        ("rubbish", 200, "0123456789", None),
    ];
    for (range, status, body, content_range) in table {
        for call in [s3.get("/bkt/k"), s3.head("/bkt/k")] {
            let read = call.header("range", range).send(&s3).await.expect(status);
            assert_eq!(read.header("content-range"), content_range, "{range}");
            assert_eq!(read.header("content-length"), Some(body.len().to_string().as_str()), "{range}");
            assert!(read.body.is_empty() || read.body == body, "{range}");
        }
    }
    let if_range = s3.get("/bkt/k").header("range", "bytes=0-1").header("if-range", "\"other\"").send(&s3).await;
    assert_eq!(if_range.expect(200).text(), "0123456789");
    let beyond = s3.get("/bkt/k").header("range", "bytes=10-").send(&s3).await.refused(416, "InvalidRange");
    assert_eq!(beyond.header("content-range"), Some("bytes */10"));
    assert_eq!(beyond.element("ActualObjectSize").as_deref(), Some("10"));
    let both = s3.get("/bkt/k?partNumber=1").header("range", "bytes=0-1").send(&s3).await;
    both.refused(400, "InvalidRequest");
    // The checksum is told of all bytes, by whatever range they are asked for.
    for (range, is_told) in [("bytes=-99", true), ("bytes=0-", true), ("bytes=0-8", false), ("bytes=1-9", false)] {
        let read = s3.get("/bkt/k").header("range", range).header("x-amz-checksum-mode", "ENABLED");
        let read = read.send(&s3).await.expect(206);
        assert_eq!(read.header("x-amz-checksum-crc64nvme").is_some(), is_told, "{range}");
    }
    s3.put("/bkt/empty").body("").send(&s3).await.expect(200);
    for (range, status) in [("bytes=-1", 200), ("bytes=-0", 416), ("bytes=0-0", 416), ("bytes=0-", 416)] {
        assert_eq!(s3.get("/bkt/empty").header("range", range).send(&s3).await.status, status, "{range}");
    }
    s3.get("/bkt/k?partNumber=0").send(&s3).await.refused(400, "InvalidArgument");
    s3.get("/bkt/k?partNumber=10001").send(&s3).await.refused(400, "InvalidArgument");
    s3.get("/bkt/k?partNumber=2").send(&s3).await.refused(416, "InvalidPartNumber");
}

#[tokio::test]
async fn reads_are_conditional() {
    let s3 = S3::with_bucket().await;
    let expiry = "Tue, 01 Dec 2043 16:00:00 GMT";
    let stored = s3.put("/bkt/k").header("cache-control", "max-age=60").header("expires", expiry).body("x");
    let stored = stored.send(&s3).await.expect(200);
    let etag = stored.header("etag").unwrap().to_owned();
    let bare = etag.trim_matches('"').to_owned();
    let past = "Thu, 01 Dec 1994 16:00:00 GMT";
    let future = "Thu, 01 Dec 2044 16:00:00 GMT";
    let table = [
        ("if-match", etag.clone(), 200),
        ("if-match", bare, 200),
        ("if-match", format!("\"other\", {etag}"), 200),
        ("if-match", "*".into(), 200),
        ("if-match", "\"other\"".into(), 412),
        ("if-none-match", etag.clone(), 304),
        ("if-none-match", "*".into(), 304),
        ("if-none-match", "\"other\"".into(), 200),
        ("if-modified-since", past.into(), 200),
        ("if-modified-since", future.into(), 200),
        ("if-modified-since", "rubbish".into(), 200),
        ("if-unmodified-since", past.into(), 412),
        ("if-unmodified-since", future.into(), 200),
    ];
    for (name, value, status) in table {
        for call in [s3.get("/bkt/k"), s3.head("/bkt/k")] {
            let read = call.header(name, value.as_str()).send(&s3).await;
            assert_eq!(read.status, status, "{name}: {value}");
            if status == 304 {
                assert!(read.body.is_empty());
                assert_eq!(read.header("etag"), Some(etag.as_str()));
                assert!(read.header("last-modified").is_some());
                assert_eq!(read.header("cache-control"), Some("max-age=60"));
                assert_eq!(read.header("expires"), Some(expiry));
            }
        }
    }
    // RFC 9110: tags win over dates.
    let both = s3.get("/bkt/k").header("if-match", &*etag).header("if-unmodified-since", past);
    both.send(&s3).await.expect(200);
    let both = s3.get("/bkt/k").header("if-none-match", &*etag).header("if-modified-since", past);
    both.send(&s3).await.expect(304);
}

#[tokio::test]
async fn writes_are_conditional() {
    let s3 = S3::with_bucket().await;
    let put = |name: &str, value: &str| s3.put("/bkt/k").body("x").header(name, value).send(&s3);
    put("if-match", "\"x\"").await.refused(404, "NoSuchKey");
    let stored = put("if-none-match", "*").await.expect(200);
    let etag = stored.header("etag").unwrap();
    let again = put("if-none-match", "*").await.refused(412, "PreconditionFailed");
    assert_eq!(again.element("Condition").as_deref(), Some("If-None-Match"));
    put("if-match", etag).await.expect(200);
    put("if-match", "\"other\"").await.refused(412, "PreconditionFailed");
    put("if-none-match", etag).await.refused(412, "PreconditionFailed");
    for any in ["\"*\"", "*, *", "\"other\", *"] {
        put("if-none-match", any).await.refused(412, "PreconditionFailed");
    }
    // Neither one that is lost on the way nor one that is no text makes a write that has none.
    let none = ["", " ", ",", "“*”", "“quoted”"];
    for (none, name) in none.iter().flat_map(|none| [(none, "if-none-match"), (none, "if-match")]) {
        put(name, none).await.refused(400, "InvalidArgument");
    }
    put("if-none-match", "\"other\"").await.expect(200);
    put("if-match", "*").await.expect(200);
    s3.delete("/bkt/k").send(&s3).await.expect(204);
    put("if-match", "*").await.refused(404, "NoSuchKey");
    put("if-unmodified-since", "Thu, 01 Dec 2044 16:00:00 GMT").await.refused(501, "NotImplemented");
}

#[tokio::test]
async fn deletes_are_idempotent_and_conditional() {
    let s3 = S3::with_bucket().await;
    s3.delete("/bkt/k").send(&s3).await.expect(204);
    s3.put("/bkt/k").body("x").send(&s3).await.expect(200);
    s3.delete("/bkt/k").header("if-match", "\"other\"").send(&s3).await.refused(412, "PreconditionFailed");
    // Nobody wants it gone all the same.
    for condition in ["if-none-match", "if-modified-since", "if-unmodified-since"] {
        let date = "Thu, 01 Dec 1994 16:00:00 GMT";
        s3.delete("/bkt/k").header(condition, date).send(&s3).await.refused(501, "NotImplemented");
    }
    for none in ["", "“quoted”"] {
        s3.delete("/bkt/k").header("if-match", none).send(&s3).await.refused(400, "InvalidArgument");
    }
    s3.delete("/bkt/k?versionId=null").header("if-match", "*").send(&s3).await.expect(204);
    s3.get("/bkt/k").send(&s3).await.refused(404, "NoSuchKey");
    s3.delete("/none/k").send(&s3).await.refused(404, "NoSuchBucket");
    s3.delete("/bkt/k?versionId=1").send(&s3).await.refused(400, "InvalidArgument");
    let size = |size: &str| s3.delete("/bkt/sized").header("x-amz-if-match-size", size);
    let time = |time: &str| s3.delete("/bkt/sized").header("x-amz-if-match-last-modified-time", time);
    size("1").send(&s3).await.expect(204);
    let put = || s3.put("/bkt/sized").body("xy").send(&s3);
    put().await.expect(200);
    size("1").send(&s3).await.refused(412, "PreconditionFailed");
    size("many").send(&s3).await.refused(400, "InvalidArgument");
    size("2").send(&s3).await.expect(204);
    put().await.expect(200);
    let modified = s3.head("/bkt/sized").send(&s3).await.header("last-modified").unwrap().to_owned();
    time("Wed, 21 Oct 2015 07:28:00 GMT").send(&s3).await.refused(412, "PreconditionFailed");
    time("yesterday").send(&s3).await.refused(400, "InvalidArgument");
    time(&modified).send(&s3).await.expect(204);
    s3.head("/bkt/sized").send(&s3).await.expect(404);
}

#[tokio::test]
async fn many_objects_are_deleted_at_once() {
    let s3 = S3::with_bucket().await;
    for key in ["a", "b", "c%26d", "e"] {
        s3.put(&format!("/bkt/{key}")).body("x").send(&s3).await.expect(200);
    }
    let delete = |document: &str| s3.post("/bkt?delete").body(document);
    let document = "<Delete><Object><Key>a</Key></Object><Object><Key>none</Key></Object><Object><Key>c&amp;d</Key></Object>\
        <Object><Key>e</Key><VersionId>7</VersionId></Object></Delete>";
    delete(document).send(&s3).await.refused(400, "InvalidRequest");
    delete(document).header("content-md5", "1B2M2Y8AsgTpgAmY7PhCfg==").send(&s3).await.refused(400, "BadDigest");
    delete(document).header("x-amz-checksum-crc32", "AAAAAA==").send(&s3).await.refused(400, "BadDigest");
    let answer = delete(document).md5().send(&s3).await.expect(200);
    assert_eq!(answer.elements("Key"), ["a", "none", "c&amp;d", "e"]);
    assert_eq!(answer.elements("Code"), ["NoSuchVersion"]);
    let quiet = "<Delete><Quiet>true</Quiet><Object><Key>b</Key></Object><Object><Key></Key></Object></Delete>";
    let crc = crate::harness::crc32(quiet.as_bytes());
    let call = delete(quiet).header("x-amz-checksum-crc32", crc).header("x-amz-sdk-checksum-algorithm", "CRC32");
    let answer = call.send(&s3).await.expect(200);
    assert_eq!((answer.elements("Deleted").len(), answer.elements("Error").len()), (0, 1));
    assert_eq!(s3.get("/bkt").send(&s3).await.elements("Key"), ["e"]);
    let many = |count: usize| {
        let objects: String = (0..count).map(|i| format!("<Object><Key>k{i}</Key></Object>")).collect();
        delete(&format!("<Delete>{objects}</Delete>")).md5()
    };
    assert_eq!(many(1000).send(&s3).await.expect(200).elements("Deleted").len(), 1000);
    many(1001).send(&s3).await.refused(400, "MalformedXML");
    delete("<Delete></Delete>").md5().send(&s3).await.refused(400, "MalformedXML");
    s3.post("/none?delete").body(document).md5().send(&s3).await.refused(404, "NoSuchBucket");
}

#[tokio::test]
async fn attributes_are_shown_as_asked() {
    let s3 = S3::with_bucket().await;
    s3.put("/bkt/k").body("hello").send(&s3).await.expect(200);
    let get = |names: &str| s3.get("/bkt/k?attributes").header("x-amz-object-attributes", names).send(&s3);
    let all = get("ETag,Checksum,ObjectParts,StorageClass,ObjectSize").await.expect(200);
    assert_eq!(all.element("ETag").as_deref(), Some("5d41402abc4b2a76b9719d911017c592"));
    assert_eq!(all.element("ObjectSize").as_deref(), Some("5"));
    assert_eq!(all.element("StorageClass").as_deref(), Some("STANDARD"));
    assert_eq!(all.element("ChecksumType").as_deref(), Some("FULL_OBJECT"));
    assert_eq!(all.element("ObjectParts"), None);
    assert!(all.header("last-modified").is_some());
    let one = get("ObjectSize").await.expect(200);
    assert_eq!((one.element("ETag"), one.element("ObjectSize").as_deref()), (None, Some("5")));
    get("Colour").await.refused(400, "InvalidArgument");
    s3.get("/bkt/k?attributes").send(&s3).await.refused(400, "InvalidRequest");
    let none = s3.get("/bkt/none?attributes").header("x-amz-object-attributes", "ETag").send(&s3).await;
    none.refused(404, "NoSuchKey");
}

/// What is in memory is told at once, by another way than what is read first: an answer is the same by both.
#[tokio::test]
async fn what_is_in_memory_is_answered_as_what_is_read() {
    let s3 = S3::with_store(|config| config.log.warm_bytes = 1 << 20).await;
    let body: Vec<u8> = (0..4096).map(|at| (at / 7) as u8).collect();
    let crc32 = checksum(gabion_store::ChecksumAlgorithm::Crc32, &body);
    for (key, name, value) in [("plain", "x-amz-meta-a", "b"), ("tagged", "x-amz-tagging", "a=1&b=2")] {
        let put = s3.put(&format!("/bkt/{key}")).body(body.clone()).header("content-type", "a/b");
        put.header(name, value).header("x-amz-checksum-crc32", crc32.clone()).send(&s3).await.expect(200);
    }
    let tag = s3.head("/bkt/plain").send(&s3).await.header("etag").unwrap().to_owned();
    let asked = [
        ("", None, 200, 0..4096),
        ("", Some(("range", "bytes=100-199")), 206, 100..200),
        ("", Some(("range", "bytes=-1")), 206, 4095..4096),
        ("?partNumber=1", None, 206, 0..4096),
        ("", Some(("x-amz-checksum-mode", "ENABLED")), 200, 0..4096),
        ("?response-content-type=c%2Fd", None, 200, 0..4096),
        ("", Some(("if-match", &*tag)), 200, 0..4096),
        ("", Some(("if-none-match", &*tag)), 304, 0..0),
        ("", Some(("if-match", "\"other\"")), 412, 0..0),
        ("", Some(("range", "bytes=4096-")), 416, 0..0),
    ];
    let answers = async || {
        let mut answers = Vec::new();
        for (key, (query, header, status, range)) in
            ["plain", "tagged"].into_iter().flat_map(|key| asked.clone().map(|asked| (key, asked)))
        {
            let get = s3.get(&format!("/bkt/{key}{query}"));
            let get = header.into_iter().fold(get, |get, (name, value)| get.header(name, value));
            let mut answer = get.send(&s3).await.expect(status);
            if status < 300 {
                assert_eq!(answer.body, body[range], "{key}{query} {header:?}");
                assert_eq!(answer.header("x-amz-tagging-count"), (key == "tagged").then_some("2"));
            }
            for own in ["x-amz-request-id", "date"] {
                answer.headers.remove(own);
            }
            // An error document names its request.
            answers.push((answer.status, answer.headers, (status < 300).then_some(answer.body)));
        }
        answers
    };
    let read = answers().await;
    let before = s3.store.log_metrics().warm_reads.get();
    s3.disk.offline(true);
    assert_eq!(answers().await, read);
    assert_eq!(s3.store.log_metrics().warm_reads.get() - before, 14);
}
