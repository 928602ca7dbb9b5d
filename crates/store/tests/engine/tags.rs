//! Tags of objects: they change alone, and last.

use gabion_store::{Attributes, GetObject, ObjectBody, ObjectInfo, PutObject, Store, StoreError};

use crate::harness::{truth::check_counters, *};

async fn fresh(seed: u64) -> (World, Store) {
    let world = World::new(seed, config(2, 1));
    let store = world.open().await;
    store.create_bucket(bucket("bucket"), None).await.unwrap();
    (world, store)
}

fn tags(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

async fn tagged(store: &Store, name: &str) -> Vec<(String, String)> {
    store.object_info(&bucket("bucket"), &key(name), None).await.unwrap().attributes.tags
}

async fn tag(store: &Store, name: &str, pairs: &[(&str, &str)]) {
    put_object_tags(store, bucket("bucket"), key(name), tags(pairs)).await.unwrap();
}

#[tokio::test]
async fn nothing_else_changes_with_them() {
    let (world, store) = fresh(1).await;
    let attributes =
        Attributes { content_type: Some("a/b".into()), tags: tags(&[("first", "1")]), ..Attributes::default() };
    for (name, len) in [("empty", 0), ("small", 100), ("large", 3 << 20)] {
        let body = bytes(7, len);
        let request = PutObject { attributes: attributes.clone(), ..put_request("bucket", name) };
        store.put_object(request, ObjectBody::from_bytes(body.clone())).await.unwrap();
        assert_eq!(tagged(&store, name).await, tags(&[("first", "1")]));
        let head = || store.head_object(&GetObject::whole(bucket("bucket"), key(name)));
        let before = ObjectInfo::clone(&head().unwrap().info);
        world.clock.advance(std::time::Duration::from_secs(60));
        tag(&store, name, &[("b", "2"), ("a", "")]).await;
        let mut after = ObjectInfo::clone(&head().unwrap().info);
        assert_eq!(std::mem::take(&mut after.attributes.tags), tags(&[("b", "2"), ("a", "")]));
        let mut expected = before;
        expected.attributes.tags.clear();
        assert_eq!(after, expected);
        assert_eq!(get(&store, "bucket", name).await.unwrap(), body);
        check_counters(&world.index.current.lock());
    }
}

#[tokio::test]
async fn the_last_ones_are_found_again_without_the_index() {
    let (mut world, mut store) = fresh(2).await;
    put(&store, "bucket", "tagged", &bytes(1, 5000)).await;
    put(&store, "bucket", "replaced", &bytes(2, 5000)).await;
    for number in 0..3 {
        for name in ["tagged", "replaced"] {
            tag(&store, name, &[("number", &number.to_string())]).await;
        }
        store = world.restart(store).await;
    }
    put(&store, "bucket", "replaced", &bytes(3, 5000)).await;
    for is_compacted in [false, true] {
        if is_compacted {
            world.config.compaction.live_ratio_max = 1.0;
            store = world.restart(store).await;
            store.compact().await.unwrap();
        }
        world.crash(store, 0).await;
        world.lose_index();
        store = world.open().await;
        assert_eq!(tagged(&store, "tagged").await, tags(&[("number", "2")]));
        assert_eq!(tagged(&store, "replaced").await, []);
        assert_eq!(get(&store, "bucket", "tagged").await.unwrap(), bytes(1, 5000));
        check_counters(&world.index.current.lock());
    }
}

#[tokio::test]
async fn only_what_is_there_has_any() {
    let (_world, store) = fresh(3).await;
    put(&store, "bucket", "gone", &bytes(1, 10)).await;
    delete(&store, "bucket", "gone").await;
    for (name, is_expected) in [
        (bucket("none"), (|error| matches!(error, StoreError::NoSuchBucket)) as fn(StoreError) -> bool),
        (bucket("bucket"), |error| matches!(error, StoreError::NoSuchKey)),
    ] {
        assert!(is_expected(store.object_info(&name, &key("gone"), None).await.unwrap_err()));
        assert!(is_expected(put_object_tags(&store, name, key("gone"), tags(&[("a", "1")])).await.unwrap_err()));
    }
}
