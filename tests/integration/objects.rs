//! PutObject, GetObject, HeadObject, DeleteObject, DeleteObjects.

use std::time::Duration;

use aws_sdk_s3::{
    primitives::{ByteStream, DateTime},
    types::{Delete, ObjectIdentifier},
};
use gabion_tests::{Content, bytes_of, failure};
use md5::{Digest, Md5};

use crate::{BUCKET, refused, served};

#[tokio::test]
async fn every_size_is_read_as_it_was_written() {
    let (mut server, client) = served().await;
    let mib = 1 << 20;
    let sizes = [0, 1, 511, 4095, 4096, 4097, 65_535, 65_536, 65_537, mib - 1, mib, mib + 1, 4 * mib, 9 * mib + 3];
    for (index, size) in sizes.into_iter().enumerate() {
        let bytes = Content::new(index as u64, size).bytes();
        let key = format!("size/{size}");
        let put =
            client.put_object().bucket(BUCKET).key(&key).body(ByteStream::from(bytes.clone())).send().await.unwrap();
        let etag = format!("\"{}\"", hex::encode(Md5::digest(&bytes)));
        assert_eq!(put.e_tag(), Some(etag.as_str()), "{size}");
        let head = client.head_object().bucket(BUCKET).key(&key).send().await.unwrap();
        assert_eq!((head.content_length(), head.e_tag()), (Some(size as i64), Some(etag.as_str())));
    }
    for restart in [false, true] {
        if restart {
            assert!(server.stop().await.unwrap(), "a graceful end is a success");
            server.spawn().await.unwrap();
        }
        let client = server.client();
        for (index, size) in sizes.into_iter().enumerate() {
            let got = client.get_object().bucket(BUCKET).key(format!("size/{size}")).send().await.unwrap();
            assert_eq!(got.content_length(), Some(size as i64));
            assert_eq!(bytes_of(got).await.unwrap(), Content::new(index as u64, size).bytes(), "{size}, {restart}");
        }
    }
}

#[tokio::test]
async fn keys_are_any_text() {
    let (_server, client) = served().await;
    let longest = "k".repeat(1024);
    let keys = [
        "plain",
        "a b",
        "a+b",
        "100%",
        "%41",
        "a//b",
        "/leading",
        "trailing/",
        "a/../b",
        "./dot",
        "ü/日本/🪨",
        "quote\"'<>&",
        "?q=1",
        "#hash",
        "~tilde",
        "back\\slash",
        "new\nline",
        &longest,
    ];
    for (index, key) in keys.into_iter().enumerate() {
        let body = ByteStream::from(Content::new(index as u64, 100).bytes());
        client
            .put_object()
            .bucket(BUCKET)
            .key(key)
            .body(body)
            .send()
            .await
            .unwrap_or_else(|e| panic!("{key:?}: {e:?}"));
    }
    for (index, key) in keys.into_iter().enumerate() {
        let got = client.get_object().bucket(BUCKET).key(key).send().await.unwrap();
        assert_eq!(bytes_of(got).await.unwrap(), Content::new(index as u64, 100).bytes(), "{key:?}");
    }
    let mut expected = keys.map(str::to_owned).to_vec();
    expected.sort();
    let listed = client.list_objects_v2().bucket(BUCKET).send().await.unwrap();
    let found: Vec<_> = listed.contents().iter().filter_map(|object| object.key()).map(str::to_owned).collect();
    assert_eq!(found, expected, "in the order of their UTF-8 bytes");

    let too_long = client.put_object().bucket(BUCKET).key("k".repeat(1025)).send().await;
    assert_eq!(failure(too_long), refused(400, "KeyTooLongError"));
}

#[tokio::test]
async fn metadata_and_system_headers_come_back() {
    let (_server, client) = served().await;
    let expires = DateTime::from_secs(2_000_000_000);
    client
        .put_object()
        .bucket(BUCKET)
        .key("k")
        .body(ByteStream::from_static(b"body"))
        .content_type("text/x-test; charset=utf-8")
        .cache_control("max-age=60")
        .content_disposition("attachment; filename=\"x\"")
        .content_encoding("gzip")
        .content_language("de")
        .expires(expires)
        .metadata("color", "blue stone")
        .metadata("MixedCase", "kept lower")
        .send()
        .await
        .unwrap();
    let head = client.head_object().bucket(BUCKET).key("k").send().await.unwrap();
    let got = client.get_object().bucket(BUCKET).key("k").send().await.unwrap();
    assert_eq!(head.content_type(), Some("text/x-test; charset=utf-8"));
    assert_eq!(got.content_type(), head.content_type());
    assert_eq!((head.cache_control(), got.cache_control()), (Some("max-age=60"), Some("max-age=60")));
    assert_eq!(head.content_disposition(), Some("attachment; filename=\"x\""));
    assert_eq!(head.content_encoding(), Some("gzip"), "aws-chunked is not a part of what is stored");
    assert_eq!(head.content_language(), Some("de"));
    assert_eq!(head.expires_string(), got.expires_string());
    assert!(head.expires_string().is_some());
    let metadata = head.metadata().unwrap();
    assert_eq!(metadata.get("color").map(String::as_str), Some("blue stone"));
    assert_eq!(metadata.get("mixedcase").map(String::as_str), Some("kept lower"));
    assert_eq!(metadata.len(), 2);
    assert_eq!(got.metadata(), head.metadata());
    assert_eq!(head.accept_ranges(), Some("bytes"));

    client.put_object().bucket(BUCKET).key("bare").send().await.unwrap();
    let bare = client.head_object().bucket(BUCKET).key("bare").send().await.unwrap();
    let content_type = bare.content_type();
    assert!(matches!(content_type, Some("binary/octet-stream" | "application/octet-stream")), "{content_type:?}");

    let overridden = client
        .get_object()
        .bucket(BUCKET)
        .key("k")
        .response_content_type("application/json")
        .response_cache_control("no-store")
        .response_content_disposition("inline")
        .response_content_language("fr")
        .response_content_encoding("identity")
        .send()
        .await
        .unwrap();
    assert_eq!(overridden.content_type(), Some("application/json"));
    assert_eq!(overridden.cache_control(), Some("no-store"));
    assert_eq!(overridden.content_disposition(), Some("inline"));
    assert_eq!(overridden.content_language(), Some("fr"));
    assert_eq!(overridden.content_encoding(), Some("identity"));

    let much = client.put_object().bucket(BUCKET).key("much").metadata("m", "x".repeat(2048)).send().await;
    assert_eq!(failure(much), refused(400, "MetadataTooLarge"));
}

#[tokio::test]
async fn ranges() {
    let (_server, client) = served().await;
    for (key, len) in [("small", 1000), ("large", 9_000_000)] {
        let whole = Content::new(5, len).bytes();
        let body = ByteStream::from(whole.clone());
        client.put_object().bucket(BUCKET).key(key).body(body).send().await.unwrap();
        let middle = len / 2;
        let rows = [
            ("bytes=0-0".to_owned(), 0, 1),
            ("bytes=0-".to_owned(), 0, len),
            (format!("bytes={middle}-{}", middle + 99), middle, middle + 100),
            (format!("bytes={}-", len - 1), len - 1, len),
            ("bytes=-10".to_owned(), len - 10, len),
            (format!("bytes=-{}", len + 5), 0, len),
            (format!("bytes=10-{}", len + 500), 10, len),
            (format!("bytes=1-{}", len - 2), 1, len - 1),
        ];
        for (range, first, end) in rows {
            let got = client.get_object().bucket(BUCKET).key(key).range(&range).send().await.unwrap();
            let shown = format!("bytes {first}-{}/{len}", end - 1);
            assert_eq!(got.content_range(), Some(shown.as_str()), "{range}");
            assert_eq!(got.content_length(), Some((end - first) as i64));
            assert_eq!(bytes_of(got).await.unwrap(), whole.slice(first..end), "{key} {range}");
            let head = client.head_object().bucket(BUCKET).key(key).range(&range).send().await.unwrap();
            assert_eq!(head.content_length(), Some((end - first) as i64), "HEAD {range}");
        }
        for range in [format!("bytes={len}-"), format!("bytes={}-{}", len + 1, len + 5), "bytes=-0".to_owned()] {
            let outcome = failure(client.get_object().bucket(BUCKET).key(key).range(&range).send().await);
            assert_eq!(outcome, refused(416, "InvalidRange"), "{range}");
        }
        for range in ["bytes=5-2", "lines=1-2", "bytes=a-b"] {
            let got = client.get_object().bucket(BUCKET).key(key).range(range).send().await.unwrap();
            assert_eq!(got.content_length(), Some(len as i64), "{range:?} is ignored");
        }
    }
}

#[tokio::test]
async fn conditional_reads() {
    let (_server, client) = served().await;
    client.put_object().bucket(BUCKET).key("k").body(ByteStream::from_static(b"x")).send().await.unwrap();
    let head = client.head_object().bucket(BUCKET).key("k").send().await.unwrap();
    let etag = head.e_tag().unwrap().to_owned();
    let modified = *head.last_modified().unwrap();
    let before = DateTime::from_secs(modified.secs() - 3600);
    let get = || client.get_object().bucket(BUCKET).key("k");

    get().if_match(&etag).send().await.unwrap();
    get().if_match(etag.trim_matches('"')).send().await.unwrap();
    get().if_none_match("\"other\"").send().await.unwrap();
    get().if_modified_since(before).send().await.unwrap();
    get().if_unmodified_since(modified).send().await.unwrap();
    // If-Match wins over If-Unmodified-Since, If-None-Match over If-Modified-Since (RFC 9110, 13.2.2).
    get().if_match(&etag).if_unmodified_since(before).send().await.unwrap();
    get().if_none_match("\"other\"").if_modified_since(modified).send().await.unwrap();

    assert_eq!(failure(get().if_match("\"other\"").send().await), refused(412, "PreconditionFailed"));
    assert_eq!(failure(get().if_unmodified_since(before).send().await), refused(412, "PreconditionFailed"));
    assert_eq!(failure(get().if_none_match(&etag).send().await).status(), Some(304));
    assert_eq!(failure(get().if_modified_since(modified).send().await).status(), Some(304));
    assert_eq!(failure(get().if_none_match(&etag).if_modified_since(before).send().await).status(), Some(304));

    let head = || client.head_object().bucket(BUCKET).key("k");
    assert_eq!(failure(head().if_none_match(&etag).send().await).status(), Some(304));
    assert_eq!(failure(head().if_match("\"other\"").send().await).status(), Some(412));
}

#[tokio::test]
async fn what_is_missing_is_said_to_be_missing() {
    let (_server, client) = served().await;
    assert_eq!(failure(client.get_object().bucket(BUCKET).key("none").send().await), refused(404, "NoSuchKey"));
    assert_eq!(failure(client.head_object().bucket(BUCKET).key("none").send().await).status(), Some(404));
    assert_eq!(failure(client.get_object().bucket("nobucket").key("k").send().await), refused(404, "NoSuchBucket"));
    client.delete_object().bucket(BUCKET).key("none").send().await.expect("deleting nothing is a success");
    assert_eq!(failure(client.delete_object().bucket("nobucket").key("k").send().await), refused(404, "NoSuchBucket"));
}

#[tokio::test]
async fn an_overwrite_and_a_delete_are_seen_at_once() {
    let (_server, client) = served().await;
    for (round, len) in [10usize, 2_000_000, 20, 3_000_000, 0].into_iter().enumerate() {
        let content = Content::new(round as u64, len);
        let body = ByteStream::from(content.bytes());
        client.put_object().bucket(BUCKET).key("k").body(body).send().await.unwrap();
        let got = client.get_object().bucket(BUCKET).key("k").send().await.unwrap();
        assert_eq!(bytes_of(got).await.unwrap(), content.bytes());
        let listed = client.list_objects_v2().bucket(BUCKET).send().await.unwrap();
        assert_eq!(listed.contents()[0].size(), Some(len as i64));
    }
    client.delete_object().bucket(BUCKET).key("k").send().await.unwrap();
    assert_eq!(failure(client.get_object().bucket(BUCKET).key("k").send().await), refused(404, "NoSuchKey"));
    assert_eq!(client.list_objects_v2().bucket(BUCKET).send().await.unwrap().key_count(), Some(0));
}

#[tokio::test]
async fn delete_objects_deletes_many_and_reports_each() {
    let (_server, client) = served().await;
    let keys: Vec<String> = (0..300).map(|index| format!("many/{index}")).collect();
    for chunk in keys.chunks(32) {
        let puts = chunk.iter().map(|key| client.put_object().bucket(BUCKET).key(key).send());
        futures::future::try_join_all(puts).await.unwrap();
    }
    let identifiers = |keys: &[String]| {
        keys.iter().map(|key| ObjectIdentifier::builder().key(key).build().unwrap()).collect::<Vec<_>>()
    };
    let delete = |keys: &[String], quiet| Delete::builder().set_objects(Some(identifiers(keys))).quiet(quiet).build();
    let loud =
        client.delete_objects().bucket(BUCKET).delete(delete(&keys[..200], false).unwrap()).send().await.unwrap();
    assert_eq!((loud.deleted().len(), loud.errors().len()), (200, 0));
    let quiet = client.delete_objects().bucket(BUCKET).delete(delete(&keys, true).unwrap()).send().await.unwrap();
    assert_eq!((quiet.deleted().len(), quiet.errors().len()), (0, 0));
    assert_eq!(client.list_objects_v2().bucket(BUCKET).send().await.unwrap().key_count(), Some(0));

    let too_many: Vec<String> = (0..1001).map(|index| index.to_string()).collect();
    let outcome = failure(client.delete_objects().bucket(BUCKET).delete(delete(&too_many, true).unwrap()).send().await);
    assert_eq!(outcome, refused(400, "MalformedXML"));
}

#[tokio::test]
async fn a_streamed_body_needs_no_length_in_memory() {
    let (_server, client) = served().await;
    // A file body is read as it is sent; with the SDK's default checksum it goes out in chunks with a trailer.
    let content = Content::new(9, 20_000_000);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), content.bytes()).unwrap();
    let body = ByteStream::read_from().path(file.path()).build().await.unwrap();
    tokio::time::timeout(Duration::from_secs(100), client.put_object().bucket(BUCKET).key("file").body(body).send())
        .await
        .unwrap()
        .unwrap();
    let got = client.get_object().bucket(BUCKET).key("file").send().await.unwrap();
    assert_eq!(bytes_of(got).await.unwrap(), content.bytes());
}
