//! Copies.

use gabion_store::ChecksumAlgorithm;

use crate::harness::{S3, checksum};

#[tokio::test]
async fn a_copy_takes_bytes_and_attributes() {
    let s3 = S3::with_bucket().await;
    let put = s3.put("/bkt/a%20b").body("hello").header("content-type", "a/b").header("x-amz-meta-m", "1");
    put.send(&s3).await.expect(200);
    let copied = s3.put("/bkt/c").header("x-amz-copy-source", "/bkt/a%20b").send(&s3).await.expect(200);
    assert_eq!(copied.element("ETag").as_deref(), Some("&quot;5d41402abc4b2a76b9719d911017c592&quot;"));
    assert!(copied.element("LastModified").unwrap().ends_with(".000Z"));
    assert!(copied.text().contains("<CopyObjectResult"));
    let read = s3.get("/bkt/c").send(&s3).await.expect(200);
    assert_eq!(
        (read.text().as_str(), read.header("content-type"), read.header("x-amz-meta-m")),
        ("hello", Some("a/b"), Some("1"))
    );
    let replaced =
        s3.put("/bkt/c").header("x-amz-copy-source", "bkt/a%20b").header("x-amz-metadata-directive", "REPLACE");
    replaced.header("x-amz-meta-n", "2").send(&s3).await.expect(200);
    let read = s3.head("/bkt/c").send(&s3).await;
    assert_eq!((read.header("x-amz-meta-m"), read.header("x-amz-meta-n")), (None, Some("2")));
    assert_eq!(read.header("content-type"), Some("binary/octet-stream"));
}

#[tokio::test]
async fn copies_are_refused_as_on_aws() {
    let s3 = S3::with_bucket().await;
    let stored = s3.put("/bkt/k").body("x").send(&s3).await.expect(200);
    let etag = stored.header("etag").unwrap();
    let copy = |source: &str| s3.put("/bkt/c").header("x-amz-copy-source", source);
    copy("/bkt/none").send(&s3).await.refused(404, "NoSuchKey");
    copy("/none/k").send(&s3).await.refused(404, "NoSuchBucket");
    for source in ["/bkt", "/bkt/", "BKT/k", "192.168.1.1/k", "bkt/%zz", "bkt/k%"] {
        copy(source).send(&s3).await.refused(400, "InvalidArgument");
    }
    // Metadata that does not count has its bound all the same.
    let long = copy("/bkt/k").header("x-amz-meta-m", "v".repeat(2048));
    long.send(&s3).await.refused(400, "MetadataTooLarge");
    copy("/bkt/k?versionId=1").send(&s3).await.refused(400, "InvalidArgument");
    copy("/bkt/k?versionId=null").send(&s3).await.expect(200);
    copy("/bkt/k").header("x-amz-metadata-directive", "MERGE").send(&s3).await.refused(400, "InvalidArgument");
    copy("/bkt/k").header("x-amz-copy-source-if-match", "\"x\"").send(&s3).await.refused(412, "PreconditionFailed");
    copy("/bkt/k").header("x-amz-copy-source-if-none-match", etag).send(&s3).await.refused(412, "PreconditionFailed");
    copy("/bkt/k").header("x-amz-copy-source-if-match", etag).send(&s3).await.expect(200);
    copy("/bkt/k").header("if-none-match", "*").send(&s3).await.refused(412, "PreconditionFailed");
    copy("/bkt/k").header("x-amz-storage-class", "GLACIER").send(&s3).await.refused(400, "InvalidStorageClass");
    let itself = s3.put("/bkt/k").header("x-amz-copy-source", "/bkt/k");
    itself.clone().send(&s3).await.refused(400, "InvalidRequest");
    itself.header("x-amz-metadata-directive", "REPLACE").send(&s3).await.expect(200);
    s3.put("/none/c").header("x-amz-copy-source", "/bkt/k").send(&s3).await.refused(404, "NoSuchBucket");
}

#[tokio::test]
async fn a_copy_onto_itself_changes_something_or_names_a_version() {
    let s3 = S3::with_bucket().await;
    let versioning = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
    s3.put("/bkt?versioning").body(versioning).send(&s3).await.expect(200);
    let put = s3.put("/bkt/k").body("x").send(&s3).await.expect(200);
    let version = put.header("x-amz-version-id").unwrap();
    let itself = |source: &str| s3.put("/bkt/k").header("x-amz-copy-source", source);
    itself("/bkt/k").send(&s3).await.refused(400, "InvalidRequest");
    assert_eq!(s3.head("/bkt/k").send(&s3).await.expect(200).header("x-amz-version-id"), Some(version));
    itself("/bkt/k").header("x-amz-metadata-directive", "REPLACE").send(&s3).await.expect(200);
    itself(&format!("/bkt/k?versionId={version}")).send(&s3).await.expect(200);
}

#[tokio::test]
async fn a_copy_can_have_another_checksum() {
    let s3 = S3::with_bucket().await;
    s3.put("/bkt/k").body("hello").send(&s3).await.expect(200);
    let copy = s3.put("/bkt/c").header("x-amz-copy-source", "/bkt/k").header("x-amz-checksum-algorithm", "SHA256");
    let copied = copy.send(&s3).await.expect(200);
    let expected = crate::harness::checksum(gabion_store::ChecksumAlgorithm::Sha256, b"hello");
    assert_eq!(copied.element("ChecksumSHA256"), Some(expected));
    let copy = s3.put("/bkt/c").header("x-amz-copy-source", "/bkt/k").header("x-amz-checksum-algorithm", "CRC16");
    copy.send(&s3).await.refused(400, "InvalidRequest");
}

#[tokio::test]
async fn a_copy_of_parts_has_the_checksum_of_the_whole() {
    let s3 = S3::with_bucket().await;
    let table = [
        (ChecksumAlgorithm::Crc32, "FULL_OBJECT"),
        (ChecksumAlgorithm::Crc32c, "FULL_OBJECT"),
        (ChecksumAlgorithm::Sha256, "COMPOSITE"),
    ];
    for (of, kind) in table {
        let algorithm = of.as_str();
        let header = format!("x-amz-checksum-{}", algorithm.to_lowercase());
        let begin = s3.post("/bkt/parts?uploads").header("x-amz-checksum-algorithm", algorithm);
        let upload = begin.send(&s3).await.expect(200).element("UploadId").unwrap();
        let mut parts = String::new();
        for (number, length) in [(1, 5 << 20), (2, 1000)] {
            let part = s3.put(&format!("/bkt/parts?partNumber={number}&uploadId={upload}"));
            let bytes = vec![b'a' + number; length];
            let checksum = checksum(of, &bytes);
            let put = part.body(bytes).header(&header, &checksum).send(&s3).await.expect(200);
            parts += &format!(
                "<Part><PartNumber>{number}</PartNumber><ETag>{}</ETag><Checksum{algorithm}>{}</Checksum{algorithm}></Part>",
                put.header("etag").unwrap(),
                checksum
            );
        }
        let document = format!("<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>");
        s3.post(&format!("/bkt/parts?uploadId={upload}")).body(document).send(&s3).await.expect(200);
        let copy = |to: &str| s3.put(to).header("x-amz-copy-source", "/bkt/parts");
        copy("/bkt/copy").send(&s3).await.expect(200);
        copy("/bkt/read").header("x-amz-checksum-algorithm", algorithm).send(&s3).await.expect(200);
        let shown = async |key: &str| {
            let head = s3.head(key).header("x-amz-checksum-mode", "ENABLED").send(&s3).await.expect(200);
            (head.header(&header).unwrap().to_owned(), head.header("x-amz-checksum-type").unwrap().to_owned())
        };
        let (copied, read) = (shown("/bkt/copy").await, shown("/bkt/read").await);
        assert_eq!((copied.1.as_str(), read.1.as_str()), (kind, "FULL_OBJECT"), "{algorithm}");
        assert_eq!(copied == read, kind == "FULL_OBJECT", "{algorithm}: {copied:?}, {read:?}");
        assert_eq!(copied == shown("/bkt/parts").await, kind == "COMPOSITE", "{algorithm}");
    }
}
