//! Renaming: one record, whatever the object's length; what it keeps, what it refuses, and what a request that comes again does.

use gabion_metadata::{
    Index, Table, keys as keys_of,
    rows::{ObjectRow, Row, SegmentState},
};
use gabion_store::{
    Attributes, ConfigScope, Encrypt, EtagMatch, GetObject, KeyError, ObjectBody, ReadConditions, RenameObject,
    Retention, RetentionMode, SecretKey, Store, StoreError, VERSIONING, Versioning,
};

use gabion_types::SegmentId;

use crate::{
    compaction::check_rebuild,
    harness::{truth::check_counters, *},
};

/// The segment of an object's record.
fn home(world: &World, name: &str) -> SegmentId {
    let row = world.index.current.lock().get(Table::Object, &keys_of::object(&bucket("bucket"), &key(name))).unwrap();
    ObjectRow::decode(&row.unwrap()).unwrap().home.segment
}

async fn rename(store: &Store, from: &str, to: &str) -> Result<(), StoreError> {
    store.rename_object(rename_request(from, to)).await.map(drop)
}

#[tokio::test]
async fn no_byte_moves_and_nothing_is_lost() {
    let (mut world, mut store) = compacting(1).await;
    for (name, size) in [("small", 5000), ("large", 20_000_000), ("empty", 0)] {
        let body = bytes(size as u64, size);
        let mut request = put_request("bucket", name);
        request.attributes.user = vec![("n".into(), "v".into())];
        request.attributes.tags = vec![("t".into(), "1".into())];
        request.attributes.acl = Some("acl".into());
        let before = store.put_object(request, ObjectBody::from_bytes(body.clone())).await.unwrap();
        put(&store, "bucket", "there", &bytes(1, 3000)).await;
        world.clock.advance(std::time::Duration::from_secs(60));
        let stored = store.log_metrics().stored_bytes.get();
        let renamed = store.rename_object(rename_request(name, "there")).await.unwrap();
        // A stripe for a record, with parity; it names the extents of a large object.
        assert!(store.log_metrics().stored_bytes.get() - stored <= 3 * 8192, "no bytes move: {name}");
        assert_eq!((&renamed.etag, renamed.modified_ms), (&before.etag, before.modified_ms), "as on AWS");
        assert_eq!(renamed.checksums, before.checksums);
        let said = (&renamed.attributes.user[0].1, &renamed.attributes.tags[0].1, renamed.attributes.acl.as_deref());
        assert_eq!(said, (&"v".to_owned(), &"1".to_owned(), Some("acl")));
        assert_eq!(keys(&store, "bucket").await, ["there"]);
        // The records that it came by go one after the other: first the put's, then its own.
        for round in 0..3_u64 {
            put(&store, "bucket", "filler", &bytes(round, 100_000)).await;
            delete(&store, "bucket", "filler").await;
            store = world.restart(store).await;
            store.compact().await.unwrap();
            store.free_dead_segments().await.unwrap();
            assert_eq!(get(&store, "bucket", "there").await.unwrap(), body);
            check_counters(&world.index.current.lock());
            store = check_rebuild(&mut world, store).await;
            assert_eq!(keys(&store, "bucket").await, ["there"], "{name}, round {round}");
        }
    }
}

/// The renaming's own segment goes, and one stays that holds the put of the old key.
#[tokio::test]
async fn the_old_key_stays_left_when_the_record_is_gone() {
    let (mut world, mut store) = compacting(2).await;
    put(&store, "bucket", "old", &bytes(1, 5000)).await;
    // Keeps the segment of that put alive, whatever goes around it.
    put(&store, "bucket", "keeper", &bytes(2, 700_000)).await;
    let of_put = home(&world, "old");
    store = world.restart(store).await;
    rename(&store, "old", "new").await.unwrap();
    let of_renaming = home(&world, "new");
    assert_ne!(of_put, of_renaming);
    put(&store, "bucket", "dead", &bytes(3, 900_000)).await;
    store = world.restart(store).await;
    // Nothing is left in the segment but that the old key was left.
    put(&store, "bucket", "new", &bytes(4, 100)).await;
    delete(&store, "bucket", "dead").await;
    store = world.restart(store).await;
    while store.free_dead_segments().await.unwrap() > 0 {}
    let segments = world.segment_rows();
    let is_there = |segment| segments.get(&segment).is_some_and(|row| row.state != SegmentState::Freeing);
    assert_eq!((is_there(of_put), is_there(of_renaming)), (true, false));
    assert_eq!(keys(&store, "bucket").await, ["keeper", "new"]);
    let store = check_rebuild(&mut world, store).await;
    assert_eq!(keys(&store, "bucket").await, ["keeper", "new"]);
    check_counters(&world.index.current.lock());
}

#[tokio::test]
async fn a_token_is_honoured_as_long_as_the_object_is_there() {
    let (mut world, mut store) = compacting(3).await;
    put(&store, "bucket", "a", &bytes(1, 10)).await;
    put(&store, "bucket", "x", &bytes(2, 10)).await;
    let with = |from, to, token: &str| RenameObject { client_token: Some(token.into()), ..rename_request(from, to) };
    store.rename_object(with("a", "b", "t")).await.unwrap();
    for _ in 0..2 {
        store.rename_object(with("a", "b", "t")).await.unwrap();
        assert!(matches!(store.rename_object(with("x", "b", "t")).await, Err(StoreError::IdempotencyMismatch)));
        assert!(matches!(store.rename_object(with("a", "b", "u")).await, Err(StoreError::NoSuchKey)));
        assert!(matches!(rename(&store, "a", "b").await, Err(StoreError::NoSuchKey)));
        world.lose_index();
        store = world.crash_and_open(store, 0).await;
    }
    // A new object under the old key is not renamed by it.
    put(&store, "bucket", "a", &bytes(3, 10)).await;
    store.rename_object(with("a", "b", "t")).await.unwrap();
    assert_eq!(get(&store, "bucket", "b").await.unwrap(), bytes(1, 10));
    // Nor does a copy remember what became of its source.
    store.copy_object(copy_request("b", "c")).await.unwrap();
    assert!(matches!(store.rename_object(with("gone", "c", "t")).await, Err(StoreError::NoSuchKey)));
    rename(&store, "x", "b").await.unwrap();
    store.rename_object(with("a", "b", "t")).await.unwrap();
    assert_eq!(get(&store, "bucket", "b").await.unwrap(), bytes(3, 10));
}

#[tokio::test]
async fn conditions_are_on_both_objects() {
    let (_world, store) = compacting(4).await;
    let from = put(&store, "bucket", "from", &bytes(1, 10)).await;
    let to = put(&store, "bucket", "to", &bytes(2, 10)).await;
    let tag = |etag: &gabion_store::Etag| Some(EtagMatch::OneOf(vec![etag.to_string()]));
    let none = ReadConditions::default();
    let (earlier, later) = (Some(START_MS - 5000), Some(START_MS + 5000));
    let table = [
        (ReadConditions { if_match: tag(&to.etag), ..none.clone() }, none.clone(), "x-amz-rename-source-If-Match"),
        (
            ReadConditions { if_none_match: tag(&from.etag), ..none.clone() },
            none.clone(),
            "x-amz-rename-source-If-None-Match",
        ),
        (
            ReadConditions { if_modified_since_ms: later, ..none.clone() },
            none.clone(),
            "x-amz-rename-source-If-Modified-Since",
        ),
        (
            ReadConditions { if_unmodified_since_ms: earlier, ..none.clone() },
            none.clone(),
            "x-amz-rename-source-If-Unmodified-Since",
        ),
        (none.clone(), ReadConditions { if_match: tag(&from.etag), ..none.clone() }, "If-Match"),
        (none.clone(), ReadConditions { if_none_match: Some(EtagMatch::Any), ..none.clone() }, "If-None-Match"),
        (none.clone(), ReadConditions { if_modified_since_ms: later, ..none.clone() }, "If-Modified-Since"),
        (none.clone(), ReadConditions { if_unmodified_since_ms: earlier, ..none.clone() }, "If-Unmodified-Since"),
    ];
    for (source_conditions, target_conditions, header) in table {
        let request = RenameObject { source_conditions, target_conditions, ..rename_request("from", "to") };
        match store.rename_object(request).await {
            Err(StoreError::PreconditionFailed(failed)) => assert_eq!(failed, header),
            other => panic!("{header}: {other:?}"),
        }
    }
    let absent = |target_conditions| RenameObject { target_conditions, ..rename_request("from", "absent") };
    for (conditions, header) in [
        (ReadConditions { if_match: Some(EtagMatch::Any), ..none.clone() }, "If-Match"),
        (ReadConditions { if_modified_since_ms: earlier, ..none.clone() }, "If-Modified-Since"),
    ] {
        let refused = store.rename_object(absent(conditions)).await;
        assert!(matches!(refused, Err(StoreError::PreconditionFailed(failed)) if failed == header), "{header}");
    }
    let holds = ReadConditions { if_none_match: Some(EtagMatch::Any), if_unmodified_since_ms: earlier, ..none.clone() };
    store.rename_object(absent(holds)).await.unwrap();
    assert!(matches!(rename(&store, "to", "to").await, Err(StoreError::InvalidRequest(_))));
    assert!(matches!(rename(&store, "from", "to").await, Err(StoreError::NoSuchKey)));
}

#[tokio::test]
async fn what_is_locked_or_has_versions_keeps_its_key() {
    let (_world, store) = compacting(5).await;
    let held = Attributes { legal_hold: Some(true), ..Attributes::default() };
    let retention = Some(Retention { mode: RetentionMode::Governance, until_ms: START_MS + 1000 });
    for attributes in [held, Attributes { retention, ..Attributes::default() }] {
        let request = gabion_store::PutObject { attributes, ..put_request("bucket", "locked") };
        store.put_object(request, ObjectBody::from_bytes(bytes(1, 10))).await.unwrap();
        put(&store, "bucket", "free", &bytes(2, 10)).await;
        assert!(matches!(rename(&store, "locked", "other").await, Err(StoreError::AccessDenied(_))));
        assert!(matches!(rename(&store, "free", "locked").await, Err(StoreError::AccessDenied(_))));
    }
    for versioning in [Versioning::Enabled, Versioning::Suspended] {
        let scope = ConfigScope::Bucket(bucket("bucket"));
        store.put_config(scope, VERSIONING, versioning.document().into()).await.unwrap();
        assert!(matches!(rename(&store, "free", "other").await, Err(StoreError::InvalidRequest(_))));
    }
}

#[tokio::test]
async fn an_encrypted_object_opens_under_its_new_key() {
    let (mut world, store) = compacting(6).await;
    let secret = |seed: u8| SecretKey::filled(|key| key.fill(seed));
    let body = bytes(1, 2_500_000);
    let encrypt = Some(Box::new(Encrypt::with_customer(secret(1))));
    let sealed = ObjectBody { encrypt, ..ObjectBody::from_bytes(body.clone()) };
    store.put_object(put_request("bucket", "old"), sealed).await.unwrap();
    for (customer, expected) in [(None, KeyError::Needed), (Some(secret(2)), KeyError::Wrong)] {
        match store.rename_object(RenameObject { customer, ..rename_request("old", "new") }).await {
            Err(StoreError::Key(error)) => assert_eq!(error.to_string(), expected.to_string()),
            other => panic!("{other:?}"),
        }
    }
    let stored = store.log_metrics().stored_bytes.get();
    store.rename_object(RenameObject { customer: Some(secret(1)), ..rename_request("old", "new") }).await.unwrap();
    assert!(store.log_metrics().stored_bytes.get() - stored <= 3 * 8192, "no bytes move");
    let whole = GetObject { customer: Some(secret(1)), ..GetObject::whole(bucket("bucket"), key("new")) };
    assert_eq!(read(&store, whole.clone()).await.unwrap(), body);
    let store = check_rebuild(&mut world, store).await;
    assert_eq!(read(&store, whole).await.unwrap(), body);
}

/// Who looks while objects change places sees as many as there are, in a listing as well as key by key.
#[tokio::test]
async fn an_object_is_never_seen_twice_or_not_at_all() {
    let (_world, store) = compacting(7).await;
    put(&store, "bucket", "a", &bytes(1, 10)).await;
    let mover = tokio::spawn({
        let store = store.clone();
        async move {
            for _ in 0..50 {
                rename(&store, "a", "b").await.unwrap();
                rename(&store, "b", "a").await.unwrap();
            }
        }
    });
    let mut looks = 0;
    while !mover.is_finished() {
        assert_eq!(keys(&store, "bucket").await.len(), 1);
        looks += 1;
        tokio::task::yield_now().await;
    }
    mover.await.unwrap();
    assert!(looks > 10, "{looks}");
}
