//! Tags that are CRCs, as clients see them.

use gabion_store::{ChecksumAlgorithm, EtagKind};

use crate::harness::{Answer, S3, checksum, crc32};

/// CRC-64/NVME of "123456789", as a tag of one body.
const TAG: &str = "\"ae8b14860a799888-1\"";

async fn crc() -> S3 {
    S3::with_tags(EtagKind::Crc64Nvme).await
}

fn xml(tag: &str) -> Option<String> {
    Some(tag.replace('"', "&quot;"))
}

#[tokio::test]
async fn a_crc_is_shown_wherever_a_tag_is() {
    let s3 = crc().await;
    let put = s3.put("/bkt/k").body("123456789").send(&s3).await.expect(200);
    assert_eq!(put.header("etag"), Some(TAG));
    // What integrity rests on is what it was.
    let crc64 = checksum(ChecksumAlgorithm::Crc64Nvme, b"123456789");
    assert_eq!(put.header("x-amz-checksum-crc64nvme"), Some(crc64.as_str()));
    assert_eq!(s3.get("/bkt/k").send(&s3).await.expect(200).header("etag"), Some(TAG));
    assert_eq!(s3.head("/bkt/k").send(&s3).await.expect(200).header("etag"), Some(TAG));
    assert_eq!(s3.get("/bkt?list-type=2").send(&s3).await.expect(200).element("ETag"), xml(TAG));
    let copy = s3.put("/bkt/c").header("x-amz-copy-source", "bkt/k").send(&s3).await.expect(200);
    assert_eq!(copy.element("ETag"), xml(TAG));
    let names = "ETag,Checksum,ObjectParts,ObjectSize";
    let attributes = s3.get("/bkt/k?attributes").header("x-amz-object-attributes", names).send(&s3).await.expect(200);
    assert_eq!(attributes.element("ETag").as_deref(), Some(TAG.trim_matches('"')));
    // It came as one body: it has no parts, whatever its tag looks like.
    assert_eq!(attributes.element("ObjectParts"), None);
    let first = s3.get("/bkt/k?partNumber=1").send(&s3).await.expect(206);
    assert_eq!((first.text().as_str(), first.header("x-amz-mp-parts-count")), ("123456789", None));
    s3.get("/bkt/k?partNumber=2").send(&s3).await.refused(416, "InvalidPartNumber");
    let other = s3.put("/bkt/crc32").body("123456789").header("x-amz-checksum-crc32", crc32(b"123456789"));
    assert_eq!(other.send(&s3).await.expect(200).header("etag"), Some(TAG));
    let wrong = s3.put("/bkt/crc32").body("123456789").header("x-amz-checksum-crc32", crc32(b"x"));
    wrong.send(&s3).await.refused(400, "BadDigest");
}

#[tokio::test]
async fn conditions_take_crcs() {
    let s3 = crc().await;
    s3.put("/bkt/k").body("123456789").send(&s3).await.expect(200);
    let bare = TAG.trim_matches('"');
    for tag in [TAG, bare] {
        s3.get("/bkt/k").header("if-match", tag).send(&s3).await.expect(200);
        assert_eq!(s3.get("/bkt/k").header("if-none-match", tag).send(&s3).await.expect(304).header("etag"), Some(TAG));
    }
    for other in ["\"ae8b14860a799888\"", "\"25f9e794323b453885f5181f1b624d0b\"", "\"ae8b14860a799888-2\""] {
        let get = s3.get("/bkt/k").header("if-match", other);
        get.send(&s3).await.refused(412, "PreconditionFailed");
        let put = s3.put("/bkt/k").body("x").header("if-match", other);
        put.send(&s3).await.refused(412, "PreconditionFailed");
        s3.get("/bkt/k").header("if-none-match", other).send(&s3).await.expect(200);
    }
    s3.put("/bkt/k").body("x").header("if-match", TAG).send(&s3).await.expect(200);
}

#[tokio::test]
async fn content_md5_is_checked_all_the_same() {
    let s3 = crc().await;
    let put = s3.put("/bkt/k").body("123456789").md5().send(&s3).await.expect(200);
    assert_eq!(put.header("etag"), Some(TAG));
    let wrong = s3.put("/bkt/k").body("12345678x").header("content-md5", "JfnnlDI7RTiF9RgfG2JNCw==");
    wrong.send(&s3).await.refused(400, "BadDigest");
    assert_eq!(s3.get("/bkt/k").send(&s3).await.expect(200).text(), "123456789");
}

async fn complete(s3: &S3, upload: &str, parts: &[(u16, &Answer)]) -> Answer {
    let part = |(number, answer): &(u16, &Answer)| {
        let sha256 = answer.header("x-amz-checksum-sha256");
        let sha256 = sha256.map(|sha256| format!("<ChecksumSHA256>{sha256}</ChecksumSHA256>")).unwrap_or_default();
        let etag = xml(answer.header("etag").unwrap()).unwrap();
        format!("<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag>{sha256}</Part>")
    };
    let parts: String = parts.iter().map(part).collect();
    let document = format!("<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>");
    s3.post(&format!("/bkt/k?uploadId={upload}")).body(document).send(s3).await
}

#[tokio::test]
async fn uploads_have_the_crc_of_all_their_bytes() {
    let s3 = crc().await;
    for algorithm in [None, Some("SHA256")] {
        let mut begin = s3.post("/bkt/k?uploads");
        if let Some(algorithm) = algorithm {
            begin = begin.header("x-amz-checksum-algorithm", algorithm);
        }
        let upload = begin.send(&s3).await.expect(200).element("UploadId").unwrap();
        let put = |number: u16, body: &'static str| {
            let put = s3.put(&format!("/bkt/k?partNumber={number}&uploadId={upload}")).body(body);
            let put = match algorithm {
                Some(_) => put.header("x-amz-checksum-sha256", checksum(ChecksumAlgorithm::Sha256, body.as_bytes())),
                None => put,
            };
            put.send(&s3)
        };
        let (one, two) = (put(1, "123456789123").await.expect(200), put(2, "123456789").await.expect(200));
        assert_eq!(two.header("etag"), Some(TAG));
        let listed = s3.get(&format!("/bkt/k?uploadId={upload}")).send(&s3).await.expect(200);
        assert_eq!(listed.elements("ETag")[1], xml(TAG).unwrap());
        complete(&s3, &upload, &[(1, &two), (2, &two)]).await.refused(400, "InvalidPart");
        let done = complete(&s3, &upload, &[(1, &one), (2, &two)]).await.expect(200);
        let whole = s3.put("/bkt/whole").body("123456789123123456789").send(&s3).await.expect(200);
        let tag = whole.header("etag").unwrap().replace("-1\"", "-2\"");
        assert_eq!(done.element("ETag"), xml(&tag));
        let get = s3.get("/bkt/k?partNumber=2").header("x-amz-checksum-mode", "ENABLED");
        let second = get.send(&s3).await.expect(206);
        let seen = (second.text(), second.header("etag"), second.header("x-amz-mp-parts-count"));
        assert_eq!(seen, ("123456789".into(), Some(tag.as_str()), Some("2")));
        let names = "ETag,ObjectParts";
        let attributes = s3.get("/bkt/k?attributes").header("x-amz-object-attributes", names).send(&s3).await;
        assert_eq!(attributes.element("PartsCount").as_deref(), Some("2"));
        // A composite checksum shows the number of parts in answers to both.
        let copied = s3.put("/bkt/c").header("x-amz-copy-source", "bkt/k").send(&s3).await.expect(200);
        assert_eq!(copied.element("ETag"), xml(&tag));
        for answer in [&done, &copied] {
            let sha256 = answer.element("ChecksumSHA256");
            assert_eq!(sha256.map(|sha256| sha256.ends_with("-2")), algorithm.map(|_| true));
        }
    }
}
