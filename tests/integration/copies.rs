//! CopyObject.

use aws_sdk_s3::{
    primitives::ByteStream,
    types::{ChecksumAlgorithm, MetadataDirective},
};
use gabion_tests::{Content, bytes_of, failure};

use crate::{BUCKET, refused, served};

#[tokio::test]
async fn a_copy_has_the_bytes_and_by_default_the_metadata() {
    let (mut server, client) = served().await;
    client.create_bucket().bucket("other").send().await.unwrap();
    for (key, len) in [("empty", 0), ("small", 5000), ("large", 7_000_000)] {
        let content = Content::new(3, len);
        let body = ByteStream::from(content.bytes());
        let put = client.put_object().bucket(BUCKET).key(key).body(body).content_type("text/a").metadata("a", "1");
        let etag = put.send().await.unwrap().e_tag().unwrap().to_owned();
        let source = format!("{BUCKET}/{key}");
        let copied = client.copy_object().copy_source(&source).bucket("other").key(key).send().await.unwrap();
        let result = copied.copy_object_result().unwrap();
        assert_eq!(result.e_tag(), Some(etag.as_str()));
        assert!(result.last_modified().is_some());
        let replaced = client
            .copy_object()
            .copy_source(&source)
            .bucket("other")
            .key(format!("{key}.replaced"))
            .metadata_directive(MetadataDirective::Replace)
            .content_type("text/b")
            .metadata("b", "2");
        replaced.send().await.unwrap();
        // The copy owns its bytes: the source may go, and the server may crash.
        client.delete_object().bucket(BUCKET).key(key).send().await.unwrap();
    }
    server.crash().await.unwrap();
    let client = server.client();
    for (key, len) in [("empty", 0), ("small", 5000), ("large", 7_000_000)] {
        for (name, content_type, metadata) in
            [(key.to_owned(), "text/a", "a"), (format!("{key}.replaced"), "text/b", "b")]
        {
            let got = client.get_object().bucket("other").key(&name).send().await.unwrap();
            assert_eq!(got.content_type(), Some(content_type), "{name}");
            assert_eq!(got.metadata().unwrap().keys().collect::<Vec<_>>(), [metadata]);
            assert_eq!(bytes_of(got).await.unwrap(), Content::new(3, len).bytes());
        }
    }
}

#[tokio::test]
async fn copy_to_itself_must_change_something() {
    let (_server, client) = served().await;
    client.put_object().bucket(BUCKET).key("k").metadata("a", "1").send().await.unwrap();
    let copy = || client.copy_object().copy_source(format!("{BUCKET}/k")).bucket(BUCKET).key("k");
    assert_eq!(failure(copy().send().await), refused(400, "InvalidRequest"));
    copy().metadata_directive(MetadataDirective::Replace).metadata("a", "2").send().await.unwrap();
    let head = client.head_object().bucket(BUCKET).key("k").send().await.unwrap();
    assert_eq!(head.metadata().unwrap()["a"], "2");
}

#[tokio::test]
async fn copy_conditions_and_errors() {
    let (_server, client) = served().await;
    let put =
        client.put_object().bucket(BUCKET).key("a b/ü+%").body(ByteStream::from_static(b"x")).send().await.unwrap();
    let etag = put.e_tag().unwrap();
    let source = format!("{BUCKET}/a%20b/%C3%BC%2B%25");
    let copy = || client.copy_object().copy_source(&source).bucket(BUCKET).key("copy");
    assert_eq!(failure(copy().copy_source_if_match("\"other\"").send().await), refused(412, "PreconditionFailed"));
    assert_eq!(failure(copy().copy_source_if_none_match(etag).send().await), refused(412, "PreconditionFailed"));
    copy().copy_source_if_match(etag).if_none_match("*").send().await.unwrap();
    assert_eq!(failure(copy().if_none_match("*").send().await), refused(412, "PreconditionFailed"));
    assert_eq!(failure(copy().copy_source(format!("{BUCKET}/none")).send().await), refused(404, "NoSuchKey"));
    assert_eq!(failure(copy().copy_source("nobucket/k").send().await), refused(404, "NoSuchBucket"));
    assert_eq!(failure(copy().bucket("nobucket").send().await), refused(404, "NoSuchBucket"));
    assert_eq!(failure(copy().copy_source("no-slash").send().await).status(), Some(400));
}

#[tokio::test]
async fn a_copy_can_be_given_another_checksum() {
    let (_server, client) = served().await;
    let body = ByteStream::from_static(b"checksum me");
    client.put_object().bucket(BUCKET).key("k").body(body).send().await.unwrap();
    let copy = client.copy_object().copy_source(format!("{BUCKET}/k")).bucket(BUCKET).key("copy");
    let copied = copy.checksum_algorithm(ChecksumAlgorithm::Sha256).send().await.unwrap();
    let sha256 = copied.copy_object_result().unwrap().checksum_sha256();
    assert_eq!(sha256, Some("gg62K3Zgohb3Eb0N83rIoXa2YqFZlZhw7cIAuFcmLa8="));
    let head = client
        .head_object()
        .bucket(BUCKET)
        .key("copy")
        .checksum_mode(aws_sdk_s3::types::ChecksumMode::Enabled)
        .send()
        .await
        .unwrap();
    assert_eq!(head.checksum_sha256(), sha256);
}
