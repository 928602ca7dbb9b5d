//! Multipart uploads.

use aws_sdk_s3::{
    Client,
    primitives::ByteStream,
    types::{CompletedMultipartUpload, CompletedPart, ObjectAttributes},
};
use bytes::Bytes;
use gabion_tests::{Content, bytes_of, failure};
use md5::{Digest, Md5};

use crate::{BUCKET, refused, served};

const PART: usize = 5 << 20;

async fn create(client: &Client, key: &str) -> String {
    let created = client.create_multipart_upload().bucket(BUCKET).key(key).send().await.unwrap();
    created.upload_id().unwrap().to_owned()
}

async fn upload(client: &Client, key: &str, upload: &str, number: i32, content: Content) -> CompletedPart {
    let part = client.upload_part().bucket(BUCKET).key(key).upload_id(upload).part_number(number);
    let done = part.body(ByteStream::from(content.bytes())).send().await.unwrap();
    CompletedPart::builder().part_number(number).set_e_tag(done.e_tag().map(str::to_owned)).build()
}

fn all(parts: impl IntoIterator<Item = CompletedPart>) -> CompletedMultipartUpload {
    CompletedMultipartUpload::builder().set_parts(Some(parts.into_iter().collect())).build()
}

#[tokio::test]
async fn an_upload_becomes_an_object() {
    let (mut server, client) = served().await;
    let contents = [Content::new(1, PART), Content::new(2, PART + 12_345), Content::new(3, 77)];
    let created = client.create_multipart_upload().bucket(BUCKET).key("k").content_type("text/x").metadata("m", "1");
    let id = created.send().await.unwrap().upload_id().unwrap().to_owned();
    let mut parts = Vec::new();
    for (index, content) in contents.into_iter().enumerate() {
        // Numbers need not be dense.
        parts.push(upload(&client, "k", &id, 10 * (index as i32 + 1), content).await);
    }
    assert_eq!(failure(client.head_object().bucket(BUCKET).key("k").send().await).status(), Some(404), "not before");
    server.crash().await.unwrap();
    let client = server.client();
    let complete =
        client.complete_multipart_upload().bucket(BUCKET).key("k").upload_id(&id).multipart_upload(all(parts));
    let completed = complete.send().await.unwrap();
    let digests: Vec<u8> = contents.iter().flat_map(|content| Md5::digest(content.bytes()).to_vec()).collect();
    let etag = format!("\"{}-3\"", hex::encode(Md5::digest(&digests)));
    assert_eq!(completed.e_tag(), Some(etag.as_str()));

    let whole: Bytes = contents.iter().flat_map(|content| content.bytes()).collect();
    for restart in [false, true] {
        if restart {
            server.crash().await.unwrap();
        }
        let client = server.client();
        let got = client.get_object().bucket(BUCKET).key("k").send().await.unwrap();
        assert_eq!((got.e_tag(), got.content_type()), (Some(etag.as_str()), Some("text/x")));
        assert_eq!(got.metadata().unwrap()["m"], "1");
        assert_eq!(bytes_of(got).await.unwrap(), whole);
        let (first, end) = (PART - 100, 2 * PART + 12_345 + 50);
        let range = format!("bytes={first}-{}", end - 1);
        let got = client.get_object().bucket(BUCKET).key("k").range(range).send().await.unwrap();
        assert_eq!(bytes_of(got).await.unwrap(), whole.slice(first..end), "a range over all parts");
        for (index, content) in contents.into_iter().enumerate() {
            let number = index as i32 + 1;
            let get = client.get_object().bucket(BUCKET).key("k").part_number(10 * number).send().await;
            // S3 counts the parts of a complete object from the numbers that they were uploaded with.
            let got = get.unwrap();
            assert_eq!(got.parts_count(), Some(3));
            assert_eq!(bytes_of(got).await.unwrap(), content.bytes(), "part {number}");
        }
        let head = client.head_object().bucket(BUCKET).key("k").part_number(10).send().await.unwrap();
        assert_eq!((head.content_length(), head.parts_count()), (Some(PART as i64), Some(3)));
        let missing = client.get_object().bucket(BUCKET).key("k").part_number(11).send().await;
        assert_eq!(failure(missing).status(), Some(416));
    }
    let uploads = server.client().list_multipart_uploads().bucket(BUCKET).send().await.unwrap();
    assert_eq!(uploads.uploads().len(), 0);
    let attributes = server
        .client()
        .get_object_attributes()
        .bucket(BUCKET)
        .key("k")
        .object_attributes(ObjectAttributes::Etag)
        .object_attributes(ObjectAttributes::ObjectSize)
        .object_attributes(ObjectAttributes::ObjectParts)
        .send()
        .await
        .unwrap();
    assert_eq!(attributes.object_size(), Some(whole.len() as i64));
    assert_eq!(attributes.e_tag(), Some(etag.trim_matches('"')));
    assert_eq!(attributes.object_parts().unwrap().total_parts_count(), Some(3));
}

#[tokio::test]
async fn a_part_can_be_replaced_and_left_out() {
    let (_server, client) = served().await;
    let id = create(&client, "k").await;
    upload(&client, "k", &id, 1, Content::new(1, PART)).await;
    let one = upload(&client, "k", &id, 1, Content::new(2, PART)).await;
    upload(&client, "k", &id, 2, Content::new(3, PART)).await;
    let three = upload(&client, "k", &id, 3, Content::new(4, 10)).await;
    let complete = client.complete_multipart_upload().bucket(BUCKET).key("k").upload_id(&id);
    complete.multipart_upload(all([one, three])).send().await.unwrap();
    let got = client.get_object().bucket(BUCKET).key("k").send().await.unwrap();
    let expected: Bytes =
        [Content::new(2, PART), Content::new(4, 10)].iter().flat_map(|content| content.bytes()).collect();
    assert_eq!(bytes_of(got).await.unwrap(), expected);
}

#[tokio::test]
async fn a_wrong_completion_is_refused_and_the_upload_goes_on() {
    let (_server, client) = served().await;
    let id = create(&client, "k").await;
    let one = upload(&client, "k", &id, 1, Content::new(1, 1000)).await;
    let two = upload(&client, "k", &id, 2, Content::new(2, 1000)).await;
    let complete = |parts| {
        let complete = client.complete_multipart_upload().bucket(BUCKET).key("k").upload_id(&id);
        complete.multipart_upload(all(parts)).send()
    };
    let part = |number, etag: &str| CompletedPart::builder().part_number(number).e_tag(etag).build();
    let wrong_etag = part(1, "\"d41d8cd98f00b204e9800998ecf8427e\"");
    let missing = part(7, one.e_tag().unwrap());
    let rows = [
        (vec![one.clone(), two.clone()], "EntityTooSmall"),
        (vec![two.clone(), one.clone()], "InvalidPartOrder"),
        (vec![one.clone(), one.clone()], "InvalidPartOrder"),
        (vec![wrong_etag], "InvalidPart"),
        (vec![missing], "InvalidPart"),
        (vec![], "MalformedXML"),
    ];
    for (parts, code) in rows {
        let shown = format!("{parts:?}");
        assert_eq!(failure(complete(parts).await), refused(400, code), "{shown}");
    }
    complete(vec![part(2, two.e_tag().unwrap().trim_matches('"'))]).await.expect("an ETag without quotes is one too");
    assert_eq!(failure(complete(vec![one]).await), refused(404, "NoSuchUpload"));
}

#[tokio::test]
async fn errors_of_parts_and_aborts() {
    let (_server, client) = served().await;
    let id = create(&client, "k").await;
    let part = |key: &str, id: &str, number| {
        let part = client.upload_part().bucket(BUCKET).key(key).upload_id(id).part_number(number);
        part.body(ByteStream::from_static(b"x")).send()
    };
    assert_eq!(failure(part("k", &id, 0).await), refused(400, "InvalidArgument"));
    assert_eq!(failure(part("k", &id, 10_001).await), refused(400, "InvalidArgument"));
    assert_eq!(failure(part("k", "nonsense", 1).await), refused(404, "NoSuchUpload"));
    assert_eq!(failure(part("other", &id, 1).await), refused(404, "NoSuchUpload"));
    part("k", &id, 10_000).await.unwrap();
    let abort = || client.abort_multipart_upload().bucket(BUCKET).key("k").upload_id(&id).send();
    abort().await.unwrap();
    assert_eq!(failure(abort().await), refused(404, "NoSuchUpload"));
    assert_eq!(failure(part("k", &id, 1).await), refused(404, "NoSuchUpload"));
    let parts = client.list_parts().bucket(BUCKET).key("k").upload_id(&id).send().await;
    assert_eq!(failure(parts), refused(404, "NoSuchUpload"));
    let nowhere = client.create_multipart_upload().bucket("nobucket").key("k").send().await;
    assert_eq!(failure(nowhere), refused(404, "NoSuchBucket"));
}

#[tokio::test]
async fn parts_and_uploads_are_listed_in_pages() {
    let (mut server, client) = served().await;
    let mut uploads = Vec::new();
    for key in ["a/1", "a/2", "a/2", "b"] {
        uploads.push((key.to_owned(), create(&client, key).await));
    }
    let (key, id) = uploads[0].clone();
    for number in [3, 1, 2, 5] {
        upload(&client, &key, &id, number, Content::new(number as u64, 100 * number as usize)).await;
    }
    server.crash().await.unwrap();
    let client = server.client();

    let (mut found, mut marker) = (Vec::new(), None::<String>);
    loop {
        let list = client.list_parts().bucket(BUCKET).key(&key).upload_id(&id).max_parts(3);
        let page = list.set_part_number_marker(marker).send().await.unwrap();
        found.extend(page.parts().iter().map(|part| (part.part_number().unwrap(), part.size().unwrap())));
        assert!(page.parts().iter().all(|part| part.e_tag().is_some() && part.last_modified().is_some()));
        if page.is_truncated() != Some(true) {
            break;
        }
        marker = page.next_part_number_marker().map(str::to_owned);
    }
    assert_eq!(found, [(1, 100), (2, 200), (3, 300), (5, 500)]);

    let (mut found, mut markers) = (Vec::new(), (None::<String>, None::<String>));
    loop {
        let list = client.list_multipart_uploads().bucket(BUCKET).max_uploads(1);
        let page = list.set_key_marker(markers.0).set_upload_id_marker(markers.1).send().await.unwrap();
        for upload in page.uploads() {
            found.push((upload.key().unwrap().to_owned(), upload.upload_id().unwrap().to_owned()));
        }
        if page.is_truncated() != Some(true) {
            break;
        }
        markers = (page.next_key_marker().map(str::to_owned), page.next_upload_id_marker().map(str::to_owned));
    }
    assert!(found.is_sorted_by_key(|(key, _)| key.clone()), "{found:?}");
    found.sort();
    uploads.sort();
    assert_eq!(found, uploads);

    let grouped = client.list_multipart_uploads().bucket(BUCKET).delimiter("/").send().await.unwrap();
    let prefixes: Vec<_> = grouped.common_prefixes().iter().filter_map(|common| common.prefix()).collect();
    assert_eq!((prefixes, grouped.uploads().len()), (vec!["a/"], 1));
    let prefixed = client.list_multipart_uploads().bucket(BUCKET).prefix("a/2").send().await.unwrap();
    assert_eq!(prefixed.uploads().len(), 2);
}

#[tokio::test]
async fn parts_are_copied_from_objects() {
    let (_server, client) = served().await;
    let source = Content::new(8, 3 * PART);
    let body = ByteStream::from(source.bytes());
    client.put_object().bucket(BUCKET).key("source").body(body).send().await.unwrap();
    let id = create(&client, "k").await;
    let copy = |number, range: Option<String>| {
        let copy = client.upload_part_copy().bucket(BUCKET).key("k").upload_id(&id).part_number(number);
        copy.copy_source(format!("{BUCKET}/source")).set_copy_source_range(range).send()
    };
    let done = |number, etag: Option<&str>| {
        CompletedPart::builder().part_number(number).set_e_tag(etag.map(str::to_owned)).build()
    };
    let mut parts = Vec::new();
    let whole = copy(1, None).await.unwrap();
    parts.push(done(1, whole.copy_part_result().unwrap().e_tag()));
    let range = copy(2, Some(format!("bytes=100-{}", PART + 199))).await.unwrap();
    parts.push(done(2, range.copy_part_result().unwrap().e_tag()));
    let beyond = copy(3, Some(format!("bytes=0-{}", 3 * PART))).await;
    let outcome = failure(beyond);
    assert!(matches!(outcome.status(), Some(400 | 416)), "{outcome:?}");
    client.delete_object().bucket(BUCKET).key("source").send().await.unwrap();
    let complete = client.complete_multipart_upload().bucket(BUCKET).key("k").upload_id(&id);
    complete.multipart_upload(all(parts)).send().await.unwrap();
    let got = client.get_object().bucket(BUCKET).key("k").send().await.unwrap();
    let bytes = source.bytes();
    let expected: Bytes = [bytes.clone(), bytes.slice(100..PART + 200)].concat().into();
    assert_eq!(bytes_of(got).await.unwrap(), expected);
}

#[tokio::test]
async fn completion_obeys_conditions() {
    let (_server, client) = served().await;
    client.put_object().bucket(BUCKET).key("k").send().await.unwrap();
    let id = create(&client, "k").await;
    let part = upload(&client, "k", &id, 1, Content::new(1, 10)).await;
    let complete = || {
        let complete = client.complete_multipart_upload().bucket(BUCKET).key("k").upload_id(&id);
        complete.multipart_upload(all([part.clone()]))
    };
    assert_eq!(failure(complete().if_none_match("*").send().await), refused(412, "PreconditionFailed"));
    client.delete_object().bucket(BUCKET).key("k").send().await.unwrap();
    complete().if_none_match("*").send().await.unwrap();
}
