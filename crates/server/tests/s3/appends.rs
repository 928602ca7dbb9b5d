//! PutObject with a write offset.

use gabion_store::ChecksumAlgorithm;

use crate::harness::{Call, S3, checksum};

fn append(s3: &S3, offset: &str, body: &str) -> Call {
    s3.put("/bkt/log").header("x-amz-write-offset-bytes", offset.to_owned()).body(body.to_owned())
}

#[tokio::test]
async fn an_object_grows_by_what_is_appended() {
    let s3 = S3::with_bucket().await;
    let made = append(&s3, "0", "one ").header("content-type", "text/plain").header("x-amz-meta-m", "1");
    let made = made.send(&s3).await.expect(200);
    assert_eq!(made.header("x-amz-object-size"), Some("4"));
    let more = append(&s3, "4", "two").header("content-type", "a/b").header("x-amz-meta-m", "2");
    let appended = more.send(&s3).await.expect(200);
    let whole = checksum(ChecksumAlgorithm::Crc64Nvme, b"one two");
    assert_eq!(appended.header("x-amz-object-size"), Some("7"));
    assert_eq!(appended.header("x-amz-checksum-crc64nvme"), Some(&*whole));
    assert_eq!(appended.header("x-amz-checksum-type"), Some("FULL_OBJECT"));
    let etag = appended.header("etag").unwrap();
    assert!(etag.ends_with("-2\"") && Some(etag) != made.header("etag"), "{etag}");
    let read = s3.get("/bkt/log").header("x-amz-checksum-mode", "ENABLED").send(&s3).await.expect(200);
    assert_eq!((read.text().as_str(), read.header("etag")), ("one two", Some(etag)));
    assert_eq!(read.header("x-amz-checksum-crc64nvme"), Some(&*whole));
    // What is said beside the bytes was said when it was made.
    assert_eq!((read.header("content-type"), read.header("x-amz-meta-m")), (Some("text/plain"), Some("1")));
    let part = s3.get("/bkt/log").header("range", "bytes=2-5").send(&s3).await.expect(206);
    assert_eq!(part.text(), "e tw");
}

#[tokio::test]
async fn it_is_refused_as_on_aws() {
    let s3 = S3::with_bucket().await;
    append(&s3, "1", "x").send(&s3).await.refused(400, "InvalidWriteOffset");
    s3.put("/bkt/log").body("0123456789").send(&s3).await.expect(200);
    for offset in ["0", "9", "11"] {
        append(&s3, offset, "x").send(&s3).await.refused(400, "InvalidWriteOffset");
    }
    for offset in ["-1", "x", "99999999999999999999"] {
        append(&s3, offset, "x").send(&s3).await.refused(400, "InvalidArgument");
    }
    append(&s3, "10", "x").header("if-match", "\"x\"").send(&s3).await.refused(412, "PreconditionFailed");
    append(&s3, "10", "x").header("if-none-match", "*").send(&s3).await.refused(412, "PreconditionFailed");
    append(&s3, "10", "x").header("content-md5", "AAAAAAAAAAAAAAAAAAAAAA==").send(&s3).await.refused(400, "BadDigest");
    let absent = s3.put("/none/log").header("x-amz-write-offset-bytes", "0").body("x");
    absent.send(&s3).await.refused(404, "NoSuchBucket");
    let copy = s3.put("/bkt/c").header("x-amz-copy-source", "/bkt/log").header("x-amz-write-offset-bytes", "0");
    copy.send(&s3).await.refused(501, "NotImplemented");
    assert_eq!(s3.get("/bkt/log").send(&s3).await.text(), "0123456789");
    let document = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
    s3.put("/bkt?versioning").body(document).send(&s3).await.expect(200);
    append(&s3, "10", "x").send(&s3).await.refused(400, "InvalidRequest");
}
