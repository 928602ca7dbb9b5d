//! Copies: what they share, what they change, and what is refused.

use gabion_store::{Attributes, ChecksumAlgorithm, CopyMetadata, CopyObject, EtagMatch, GetObject, Store, StoreError};

use crate::harness::{truth::check_counters, *};

async fn fresh(seed: u64) -> (World, Store) {
    let world = World::new(seed, config(2, 1));
    let store = world.open().await;
    store.create_bucket(bucket("bucket"), None).await.unwrap();
    (world, store)
}

#[tokio::test]
async fn a_copy_outlives_its_source() {
    let (mut world, mut store) = fresh(1).await;
    for (name, size) in [("small", 5000), ("large", 5_000_000), ("empty", 0)] {
        put(&store, "bucket", name, &bytes(size as u64, size)).await;
        let stored = store.log_metrics().stored_bytes.get();
        store.copy_object(copy_request(name, &format!("{name} copy"))).await.unwrap();
        assert!(store.log_metrics().stored_bytes.get() - stored < 100_000, "no bytes move");
        delete(&store, "bucket", name).await;
        store = world.restart(store).await;
        store.free_dead_segments().await.unwrap();
        assert_eq!(get(&store, "bucket", &format!("{name} copy")).await.unwrap(), bytes(size as u64, size));
        check_counters(&world.index.current.lock());
    }
}

#[tokio::test]
async fn attributes_are_copied_or_replaced() {
    let (_world, store) = fresh(2).await;
    let mut source = put_request("bucket", "from");
    source.attributes.content_type = Some("a/b".into());
    source.attributes.storage_class = Some("GLACIER".into());
    source.attributes.website_redirect = Some("/x".into());
    source.attributes.user = vec![("n".into(), "v".into())];
    store.put_object(source, gabion_store::ObjectBody::from_bytes(bytes(1, 10))).await.unwrap();
    let head = |name: &'static str| {
        let store = store.clone();
        async move { store.head_object(&GetObject::whole(bucket("bucket"), key(name))).unwrap().info.attributes.clone() }
    };
    store.copy_object(copy_request("from", "copied")).await.unwrap();
    let copied = head("copied").await;
    assert_eq!((copied.content_type.as_deref(), copied.user.len()), (Some("a/b"), 1));
    assert_eq!((copied.storage_class, copied.website_redirect), (None, None));
    let replaced = Attributes { content_type: Some("c/d".into()), ..Attributes::default() };
    let metadata = CopyMetadata::Replace(Box::new(replaced.clone()));
    store.copy_object(CopyObject { metadata, ..copy_request("from", "from") }).await.unwrap();
    assert_eq!(head("from").await, replaced);
    assert_eq!(get(&store, "bucket", "from").await.unwrap(), bytes(1, 10));
    let to_itself = store.copy_object(copy_request("from", "from")).await;
    assert!(matches!(to_itself, Err(StoreError::InvalidRequest(_))));
    let otherwise = CopyObject { tags: Some(vec![("a".into(), "1".into())]), ..copy_request("from", "from") };
    store.copy_object(otherwise).await.unwrap();
}

#[tokio::test]
async fn conditions_hold_on_both_sides() {
    let (_world, store) = fresh(3).await;
    put(&store, "bucket", "from", &bytes(1, 10)).await;
    put(&store, "bucket", "to", &bytes(2, 10)).await;
    let mut stale = copy_request("from", "to");
    stale.source.conditions.if_match = Some(EtagMatch::parse("other"));
    assert!(matches!(store.copy_object(stale).await, Err(StoreError::PreconditionFailed("If-Match"))));
    let mut same = copy_request("from", "to");
    same.source.conditions.if_none_match = Some(EtagMatch::Any);
    assert!(matches!(store.copy_object(same).await, Err(StoreError::PreconditionFailed("If-None-Match"))));
    let mut exists = copy_request("from", "to");
    exists.conditions.if_none_match = Some(EtagMatch::Any);
    assert!(matches!(store.copy_object(exists).await, Err(StoreError::PreconditionFailed("If-None-Match"))));
    assert_eq!(get(&store, "bucket", "to").await.unwrap(), bytes(2, 10));
}

#[tokio::test]
async fn a_checksum_that_the_source_lacks_is_computed() {
    let (_world, store) = fresh(4).await;
    for size in [10, 2_500_000] {
        let body = bytes(1, size);
        put(&store, "bucket", "from", &body).await;
        for algorithm in ChecksumAlgorithm::ALL {
            let copy = CopyObject { checksum_algorithm: Some(algorithm), ..copy_request("from", "to") };
            let copied = store.copy_object(copy).await.unwrap();
            let mut digester = gabion_erasure::Digester::new(false, &[algorithm]);
            digester.update(&body);
            assert_eq!(copied.checksums.len(), 1);
            assert_eq!(copied.checksums[0].value, digester.finish().checksums[0].as_bytes());
        }
    }
}
