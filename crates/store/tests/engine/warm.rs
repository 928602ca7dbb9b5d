//! Small objects that were read before: they are answered from memory, whatever their targets do. Nothing else is.

use futures::FutureExt;
use gabion_store::{
    Encrypt, EtagMatch, GetObject, KeyError, ObjectBody, RangeRequest, ReadConditions, SecretKey, Store, StoreError,
};

use crate::harness::*;

fn whole(name: &str) -> GetObject {
    GetObject::whole(bucket("bucket"), key(name))
}

async fn warm_store(world: &mut World) -> Store {
    world.config.log.warm_bytes = 1 << 20;
    let store = world.open().await;
    store.create_bucket(bucket("bucket"), None).await.unwrap();
    store
}

#[tokio::test]
async fn what_was_read_before_needs_no_target_and_nothing_else_is_answered_without() {
    let mut world = World::new(61, config(2, 1));
    let store = warm_store(&mut world).await;
    let secret = |seed: u8| SecretKey::filled(|key| key.fill(seed));
    let stored = put(&store, "bucket", "read", &bytes(1, 4096)).await;
    for (seed, name) in [(2, "never read"), (3, "overwritten"), (4, "deleted")] {
        put(&store, "bucket", name, &bytes(seed, 4096)).await;
    }
    let encrypt = Some(Box::new(Encrypt::with_customer(secret(1))));
    let sealed = ObjectBody { encrypt, ..ObjectBody::from_bytes(bytes(5, 4096)) };
    store.put_object(put_request("bucket", "sealed"), sealed).await.unwrap();
    let sealed = |seed| GetObject { customer: Some(secret(seed)), ..whole("sealed") };
    for (seed, request) in [(1, whole("read")), (3, whole("overwritten")), (4, whole("deleted")), (5, sealed(1))] {
        assert_eq!(read(&store, request).await.unwrap(), bytes(seed, 4096));
    }
    put(&store, "bucket", "overwritten", &bytes(6, 4096)).await;
    delete(&store, "bucket", "deleted").await;
    world.disks.iter().for_each(|disk| disk.offline(true));

    let before = store.log_metrics().warm_reads.get();
    assert_eq!(read(&store, whole("read")).await.unwrap(), bytes(1, 4096));
    let part = GetObject { part_number: Some(1), ..whole("read") };
    assert_eq!(read(&store, part).await.unwrap(), bytes(1, 4096));
    for (range, expected) in [
        (RangeRequest::From(4000), 4000..4096),
        (RangeRequest::Last(1), 4095..4096),
        (RangeRequest::Between(0, 0), 0..1),
        (RangeRequest::Between(10, 9999), 10..4096),
    ] {
        assert_eq!(get_range(&store, "bucket", "read", range).await.unwrap(), bytes(1, 4096)[expected]);
    }
    assert_eq!(store.log_metrics().warm_reads.get() - before, 6);
    assert_eq!(read(&store, sealed(1)).await.unwrap(), bytes(5, 4096), "what is stored of it is warm");

    // Refusals come before bytes.
    let conditions = |if_none_match| ReadConditions { if_none_match, ..ReadConditions::default() };
    let known = conditions(Some(EtagMatch::OneOf(vec![stored.etag.to_string()])));
    let refused = read(&store, GetObject { conditions: known, ..whole("read") }).await;
    assert!(matches!(refused, Err(StoreError::NotModified(_))), "{refused:?}");
    assert!(matches!(read(&store, sealed(2)).await, Err(StoreError::Key(KeyError::Wrong))));
    assert!(read(&store, whole("sealed")).await.is_err());
    assert!(matches!(get(&store, "bucket", "deleted").await, Err(StoreError::NoSuchKey)));
    // Neither the bytes of before nor others come from memory.
    for name in ["overwritten", "never read"] {
        assert!(get(&store, "bucket", name).await.is_err(), "{name}");
    }
    let range = get_range(&store, "bucket", "read", RangeRequest::From(4096)).await;
    assert!(matches!(range, Err(StoreError::InvalidRange { .. })), "{range:?}");
}

/// Readers hold what they were given, warm or not, within the memory for reads.
#[tokio::test]
async fn what_is_warm_counts_against_the_memory_of_its_readers() {
    let mut world = World::new(62, config(2, 1));
    world.config.read_memory_bytes = 1 << 19;
    let store = warm_store(&mut world).await;
    put(&store, "bucket", "read", &bytes(1, 16 << 10)).await;
    assert_eq!(get(&store, "bucket", "read").await.unwrap(), bytes(1, 16 << 10));
    let mut held = Vec::new();
    for _ in 0..(1 << 19) / (16 << 10) {
        held.push(store.get_object(whole("read")).now_or_never().expect("there is room").unwrap());
    }
    let mut one_more = Box::pin(store.get_object(whole("read")));
    assert!(one_more.as_mut().now_or_never().is_none(), "there is none");
    held.pop();
    assert_eq!(one_more.await.unwrap().len, 16 << 10);
}
