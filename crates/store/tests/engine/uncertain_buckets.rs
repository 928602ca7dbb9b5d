//! Deletions of buckets of which nobody knows whether they took effect, and names of buckets that are gone, under which something is left.

use bytes::Bytes;
use gabion_metadata::{Index, Table, Write, keys};
use gabion_store::*;

use crate::harness::*;

const BODY: Bytes = Bytes::from_static(b"body");

/// A bucket in which nothing is, in a log of one lane.
async fn one_lane(seed: u64) -> (World, Store) {
    let mut config = config(1, 0);
    (config.log.small_lanes, config.log.large_lanes) = (1, 1);
    let world = World::new(seed, config);
    let store = world.open().await;
    store.create_bucket(bucket("bucket"), None).await.unwrap();
    (world, store)
}

/// A bucket without objects, with an upload of one part, whose tag is said.
async fn empty_bucket() -> Empty {
    let (mut world, store) = one_lane(702).await;
    store.create_bucket(bucket("source"), None).await.unwrap();
    put(&store, "source", "key", &BODY).await;
    let store = world.restart(store).await;
    let target = UploadRef { bucket: bucket("bucket"), key: key("key"), upload: begin(&store).await.unwrap() };
    let etag = part(&store, &target).await.unwrap();
    (world, store, target, etag)
}

async fn begin(store: &Store) -> Result<gabion_types::UploadId, StoreError> {
    let (bucket, key) = (bucket("bucket"), key("key"));
    store.create_upload(CreateUpload { bucket, key, attributes: Default::default(), checksum: None }).await
}

async fn part(store: &Store, target: &UploadRef) -> Result<String, StoreError> {
    let request = UploadPart { target: target.clone(), part_number: 1 };
    Ok(store.upload_part(request, ObjectBody::from_bytes(BODY)).await?.etag.to_string())
}

async fn complete(store: &Store, target: &UploadRef, etag: &str) -> Result<(), StoreError> {
    let request = complete_request(
        target.clone(),
        vec![CompletedPart { part_number: 1, etag: etag.to_owned(), checksums: Vec::new() }],
    );
    store.complete_upload(request).await.map(drop)
}

/// A bucket without objects, as it was made.
type Empty = (World, Store, UploadRef, String);

/// What becomes of a request before whose `step` the targets go away, to come back behind it; nothing if it came to its end before.
async fn away_before<T>(world: &World, step: u64, request: impl Future<Output = T>) -> Option<T> {
    world.power.cut_after(step);
    let outcome = request.await;
    let went_away = world.power.is_out();
    world.restore_power();
    went_away.then_some(outcome)
}

/// Those that the targets went away under, and came back to, before each step of a deletion in which it fails then.
async fn away_in_a_deletion(versioning: Option<Versioning>) -> Vec<Empty> {
    let mut failed = Vec::new();
    for step in 0.. {
        let (world, store, target, etag) = empty_bucket().await;
        if let Some(versioning) = versioning {
            let scope = ConfigScope::Bucket(bucket("bucket"));
            store.put_config(scope, VERSIONING, versioning.document().into()).await.unwrap();
        }
        let Some(outcome) = away_before(&world, step, store.delete_bucket(&bucket("bucket"))).await else { break };
        // They may have gone away behind it.
        if outcome.is_err() {
            failed.push((world, store, target, etag));
        }
    }
    failed
}

/// Puts sixty objects, and deletes forty of them behind a restart: a segment that is worth compacting.
async fn mostly_dead(world: &mut World, store: Store, bucket: &str) -> Store {
    for number in 0..60 {
        put(&store, bucket, &format!("{number}"), &bytes(1, 3000)).await;
    }
    let store = world.restart(store).await;
    for number in 20..60 {
        delete(&store, bucket, &format!("{number}")).await;
    }
    store
}

async fn try_put(store: &Store) -> Result<(), StoreError> {
    store.put_object(put_request("bucket", "key"), ObjectBody::from_bytes(BODY)).await.map(drop)
}

/// Whether bucket and object are there; one without the other must not be.
async fn is_found(store: &Store) -> bool {
    let found = get(store, "bucket", "key").await;
    assert_eq!(store.head_bucket(&bucket("bucket")).await.is_ok(), found.is_ok(), "{found:?}");
    found.is_ok_and(|body| body == BODY)
}

#[tokio::test]
async fn nothing_is_created_in_a_bucket_that_may_be_gone() {
    let mut late = 0;
    for start in Start::ALL {
        for (mut world, store, target, etag) in away_in_a_deletion(None).await {
            if !was_refused_as_unknown(&try_put(&store).await) {
                assert!(is_found(&world.rebuild(store).await).await);
                continue;
            }
            let copy = copy_request("key", "copy");
            let source = CopySource { bucket: bucket("source"), ..copy.source };
            let outcomes = [
                store.copy_object(CopyObject { source, ..copy }).await.map(drop),
                append(&store, "key", 0, &BODY).await.map(drop),
                begin(&store).await.map(drop),
                part(&store, &target).await.map(drop),
                complete(&store, &target, &etag).await,
                store.put_config(ConfigScope::Bucket(bucket("bucket")), "cors", BODY).await,
            ];
            assert!(outcomes.iter().all(was_refused_as_unknown), "{outcomes:?}");
            assert_eq!(store.status().unsettled_buckets, ["bucket"]);
            // A start finds out, once and for all.
            let store = world.begin_again(store, start).await;
            let is_there = try_put(&store).await.is_ok();
            late += u32::from(!is_there);
            let store = world.rebuild(store).await;
            assert_eq!(is_found(&store).await, is_there, "{start:?}");
        }
    }
    assert!(late > 0);
}

#[tokio::test]
async fn no_delete_marker_is_put_into_a_bucket_that_may_be_gone() {
    let mut are_unknown = 0;
    for (_world, store, ..) in away_in_a_deletion(Some(Versioning::Enabled)).await {
        let request = DeleteObject::current(key("key"));
        are_unknown +=
            u32::from(was_refused_as_unknown(&store.delete_object(bucket("bucket"), request).await.map(drop)));
    }
    assert!(are_unknown > 0);
}

/// Compaction would have it come back by itself, with what of its documents and uploads it has moved.
#[tokio::test]
async fn a_bucket_that_may_be_gone_keeps_all_that_is_its_own_or_nothing() {
    const DOCUMENTS: [&str; 2] = ["cors", "tagging"];
    let scope = || ConfigScope::Bucket(bucket("bucket"));
    let mut left = 0;
    for step in 0.. {
        let (mut world, store) = one_lane(704).await;
        // In a segment that is to be compacted, and in one that is not.
        store.put_config(scope(), DOCUMENTS[0], BODY).await.unwrap();
        let target = UploadRef { bucket: bucket("bucket"), key: key("key"), upload: begin(&store).await.unwrap() };
        part(&store, &target).await.unwrap();
        store.create_bucket(bucket("source"), None).await.unwrap();
        let store = mostly_dead(&mut world, store, "source").await;
        store.put_config(scope(), DOCUMENTS[1], BODY).await.unwrap();
        let Some(outcome) = away_before(&world, step, store.delete_bucket(&bucket("bucket"))).await else { break };
        if outcome.is_ok() {
            continue;
        }
        let compacted = store.compact().await.unwrap();
        assert!(compacted.victims > 0, "{compacted:?}");
        left += compacted.rows_failed;
        let store = world.rebuild(store).await;
        let is_there = store.head_bucket(&bucket("bucket")).await.is_ok();
        for name in DOCUMENTS {
            let key = keys::config(Some(&bucket("bucket")), name);
            let document = world.index.current.lock().get(Table::Config, &key).unwrap();
            assert_eq!(document.is_some(), is_there, "{name} behind {step} steps");
        }
        let rows = world.rows();
        for table in [Table::Upload, Table::Part] {
            assert_eq!(rows.iter().any(|row| row.0 == table), is_there, "{table} behind {step} steps");
        }
    }
    assert!(left > 0);
}

/// A start that finds that something was deleted is not contradicted by one that makes the index anew.
#[tokio::test]
async fn what_was_found_to_be_deleted_stays_so_though_it_was_to_be_moved() {
    let mut left = 0;
    for step in 0.. {
        let (mut world, store) = one_lane(705).await;
        let store = mostly_dead(&mut world, store, "bucket").await;
        let deletion = store.delete_object(bucket("bucket"), DeleteObject::current(key("0")));
        let Some(outcome) = away_before(&world, step, deletion).await else { break };
        if outcome.is_ok() {
            continue;
        }
        // Whoever writes asks the target whether it works again.
        let _ = try_put(&store).await;
        let compacted = store.compact().await.unwrap();
        assert!(compacted.victims > 0, "{compacted:?}");
        left += compacted.rows_failed;
        let store = world.crash_and_open(store, usize::MAX).await;
        let is_there = get(&store, "bucket", "0").await.is_ok();
        let store = world.rebuild(store).await;
        assert_eq!(get(&store, "bucket", "0").await.is_ok(), is_there, "{step} steps, {outcome:?}");
        // Now it is known what came of it.
        assert_eq!(store.compact().await.unwrap().rows_failed, 0);
    }
    assert!(left > 0);
}

#[tokio::test]
async fn a_deletion_that_is_repeated_settles_it() {
    for start in Start::ALL {
        let all = away_in_a_deletion(None).await;
        assert!(!all.is_empty());
        for (mut world, store, ..) in all {
            store.delete_bucket(&bucket("bucket")).await.unwrap();
            store.create_bucket(bucket("bucket"), None).await.unwrap();
            put(&store, "bucket", "key", &BODY).await;
            let store = world.begin_again(store, start).await;
            assert!(is_found(&store).await, "{start:?}");
        }
    }
}

#[tokio::test]
async fn a_name_under_which_objects_are_left_is_nobodys_but_the_sites_owners() {
    let mut world = World::new(703, config(1, 0));
    let store = world.open().await;
    let (name, stranger) = (bucket("bucket"), || "somebody-else".to_owned());
    store.create_bucket(name.clone(), None).await.unwrap();
    put(&store, "bucket", "key", &BODY).await;
    store.shutdown().await;
    drop(store);
    let lost = vec![Write::Delete(Table::Bucket, keys::bucket(&name))];
    world.index.current.lock().commit(&[], lost).unwrap();

    let store = world.open().await;
    let refused = store.create_bucket_of(name.clone(), None, stranger(), Vec::new()).await;
    assert!(matches!(&refused, Err(StoreError::Unavailable(why)) if why.contains("bucket")), "{refused:?}");
    store.create_bucket(name.clone(), None).await.unwrap();
    assert_eq!(get(&store, "bucket", "key").await.unwrap(), BODY);
    delete(&store, "bucket", "key").await;
    store.delete_bucket(&name).await.unwrap();
    store.create_bucket_of(name, None, stranger(), Vec::new()).await.unwrap();
    let store = world.restart(store).await;
    assert_eq!(keys_of_bucket(&store).await, Vec::<String>::new());
}

async fn keys_of_bucket(store: &Store) -> Vec<String> {
    crate::harness::keys(store, "bucket").await
}
