//! ListObjectsV2 and ListObjects: order, prefixes, delimiters, pages.

use std::collections::BTreeSet;

use aws_sdk_s3::{Client, types::EncodingType};
use gabion_tests::failure;

use crate::{BUCKET, refused, served};

const KEYS: [&str; 16] = [
    "a",
    "a/",
    "a/1",
    "a/2",
    "a/b/1",
    "a/b/2",
    "a/c",
    "a0",
    "b",
    "b/x/y/z",
    "c//d",
    "photos/2024/1.jpg",
    "photos/2024/2.jpg",
    "photos/2025/1.jpg",
    "z z",
    "ü",
];

async fn filled(client: &Client) {
    for key in KEYS {
        client.put_object().bucket(BUCKET).key(key).send().await.unwrap();
    }
}

/// What S3 lists: keys and common prefixes, by definition.
fn model(prefix: &str, delimiter: Option<&str>, after: &str) -> (Vec<String>, Vec<String>) {
    let (mut keys, mut prefixes) = (Vec::new(), BTreeSet::new());
    for key in KEYS.into_iter().filter(|key| key.starts_with(prefix)) {
        let common = delimiter.and_then(|delimiter| {
            let end = key[prefix.len()..].find(delimiter)? + prefix.len() + delimiter.len();
            Some(key[..end].to_owned())
        });
        match common {
            // A common prefix is skipped when it is not after the start, even if keys within it are.
            Some(common) if common.as_str() > after && !after.starts_with(&common) => drop(prefixes.insert(common)),
            Some(_) => {}
            None if key > after => keys.push(key.to_owned()),
            None => {}
        }
    }
    (keys, prefixes.into_iter().collect())
}

async fn listed_v2(
    client: &Client,
    prefix: &str,
    delimiter: Option<&str>,
    after: &str,
    page_keys: i32,
) -> (Vec<String>, Vec<String>) {
    let (mut keys, mut prefixes, mut token) = (Vec::new(), Vec::new(), None::<String>);
    loop {
        let page = client
            .list_objects_v2()
            .bucket(BUCKET)
            .prefix(prefix)
            .set_delimiter(delimiter.map(str::to_owned))
            .start_after(after)
            .max_keys(page_keys)
            .set_continuation_token(token)
            .send()
            .await
            .unwrap();
        keys.extend(page.contents().iter().filter_map(|object| object.key()).map(str::to_owned));
        prefixes.extend(page.common_prefixes().iter().filter_map(|common| common.prefix()).map(str::to_owned));
        let count = page.contents().len() + page.common_prefixes().len();
        assert_eq!(page.key_count(), Some(count as i32));
        assert!(count <= page_keys as usize);
        token = page.next_continuation_token().map(str::to_owned);
        assert_eq!(page.is_truncated(), Some(token.is_some()));
        if token.is_none() {
            return (keys, prefixes);
        }
    }
}

async fn listed_v1(
    client: &Client,
    prefix: &str,
    delimiter: Option<&str>,
    page_keys: i32,
) -> (Vec<String>, Vec<String>) {
    let (mut keys, mut prefixes, mut marker) = (Vec::<String>::new(), Vec::<String>::new(), String::new());
    loop {
        let page = client
            .list_objects()
            .bucket(BUCKET)
            .prefix(prefix)
            .set_delimiter(delimiter.map(str::to_owned))
            .marker(&marker)
            .max_keys(page_keys)
            .send()
            .await
            .unwrap();
        keys.extend(page.contents().iter().filter_map(|object| object.key()).map(str::to_owned));
        prefixes.extend(page.common_prefixes().iter().filter_map(|common| common.prefix()).map(str::to_owned));
        if page.is_truncated() != Some(true) {
            return (keys, prefixes);
        }
        // AWS gives NextMarker with a delimiter only; without one the last key is the marker.
        let last_key = page.contents().last().and_then(|object| object.key()).map(str::to_owned);
        let next = page.next_marker().map(str::to_owned).or(last_key);
        marker = next.expect("a truncated page holds something to go on from");
    }
}

#[tokio::test]
async fn listings_agree_with_the_definition_whatever_the_page() {
    let (_server, client) = served().await;
    filled(&client).await;
    for prefix in ["", "a", "a/", "a/b/", "photos/", "photos/2024", "none", "ü"] {
        for delimiter in [None, Some("/"), Some("/2"), Some("0")] {
            for page_keys in [1, 2, 5, 1000] {
                let expected = model(prefix, delimiter, "");
                let v2 = listed_v2(&client, prefix, delimiter, "", page_keys).await;
                assert_eq!(v2, expected, "v2, prefix {prefix:?}, delimiter {delimiter:?}, pages of {page_keys}");
                let v1 = listed_v1(&client, prefix, delimiter, page_keys).await;
                assert_eq!(v1, expected, "v1, prefix {prefix:?}, delimiter {delimiter:?}, pages of {page_keys}");
            }
        }
    }
}

#[tokio::test]
async fn start_after_is_exclusive() {
    let (_server, client) = served().await;
    filled(&client).await;
    for after in ["", "a", "a/1", "a/b/1", "a/zzz", "b", "photos/2024/1.jpg", "zzzz", "üü"] {
        for delimiter in [None, Some("/")] {
            let expected = model("", delimiter, after);
            assert_eq!(listed_v2(&client, "", delimiter, after, 3).await, expected, "after {after:?} {delimiter:?}");
        }
    }
}

#[tokio::test]
async fn details_of_a_listing() {
    let (_server, client) = served().await;
    filled(&client).await;
    let list = || client.list_objects_v2().bucket(BUCKET);

    let page = list().fetch_owner(true).max_keys(1).send().await.unwrap();
    let object = &page.contents()[0];
    assert!(object.owner().and_then(|owner| owner.id()).is_some());
    assert_eq!(object.e_tag(), Some("\"d41d8cd98f00b204e9800998ecf8427e\""));
    assert_eq!(object.storage_class().map(|class| class.as_str()), Some("STANDARD"));
    assert!(object.last_modified().is_some());
    assert!(list().max_keys(1).send().await.unwrap().contents()[0].owner().is_none());

    let none = list().max_keys(0).send().await.unwrap();
    assert_eq!((none.contents().len(), none.is_truncated()), (0, Some(false)));
    let clamped = list().max_keys(5000).send().await.unwrap();
    assert_eq!(clamped.max_keys(), Some(1000));

    let encoded = list().encoding_type(EncodingType::Url).start_after("z").send().await.unwrap();
    let keys: Vec<_> = encoded.contents().iter().filter_map(|object| object.key()).collect();
    assert!(matches!(keys[..], ["z+z" | "z%20z", "%C3%BC"]), "{keys:?}");

    assert_eq!(failure(list().max_keys(-1).send().await), refused(400, "InvalidArgument"));
    assert_eq!(failure(list().continuation_token("?").send().await), refused(400, "InvalidArgument"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_keys_are_listed_once_each() {
    let (mut server, _) = served().await;
    server.bench(&["put", "--count", "2500", "--size", "10", "-c", "16", "--warmup", "0s", "--keep"]).await.unwrap();
    for restart in [false, true] {
        if restart {
            server.crash().await.unwrap();
        }
        let client = server.client();
        let mut pages = client.list_objects_v2().bucket("gabion-bench").into_paginator().send();
        let mut keys = Vec::new();
        while let Some(page) = pages.next().await {
            keys.extend(page.unwrap().contents().iter().filter_map(|object| object.key()).map(str::to_owned));
        }
        assert_eq!(keys.len(), 2500);
        assert!(keys.is_sorted_by(|a, b| a < b));
    }
}
