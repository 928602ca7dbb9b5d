//! Targets that give errors instead of bytes when the store is opened: what can not be read then may be there all the same.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use gabion_metadata::rows::{LaneKind, SegmentState};
use gabion_platform::OpenFile;
use gabion_store::{ConfigScope, Store, StoreError};
use gabion_types::SegmentId;

use crate::harness::*;

/// A store whose disks can not open the files of one segment as long as it is told so.
async fn open_sick(world: &World, segment: SegmentId, is_sick: &Arc<AtomicBool>) -> Store {
    let (segment, is_sick) = (segment.to_string(), Arc::clone(is_sick));
    let open: Arc<OpenFile> = Arc::new(move |_, path, opened| {
        if path.contains(&segment) && is_sick.load(Ordering::SeqCst) {
            return Box::pin(async { Err(io::Error::other("a bad sector")) });
        }
        opened
    });
    world.open_on(|_, disk| disk.wrapped(Arc::clone(&open))).await
}

/// All targets are there, and the index is lost. The mutations of one segment can not be read, by no fault of its bytes: what they refer to looks dead,
/// and is not given back, also when the segment can be read again. The next start finds all of it.
#[tokio::test]
async fn what_gives_errors_at_the_start_keeps_what_it_refers_to() {
    let mut config = config(1, 1);
    (config.log.small_lanes, config.log.large_lanes) = (1, 1);
    let mut world = World::new(51, config);
    let store = world.open().await;
    store.create_bucket(bucket("bucket"), None).await.unwrap();
    let body = bytes(1, 3 << 20);
    put(&store, "bucket", "large", &body).await;
    let store = world.restart(store).await;
    let segment = |world: &World, kind| {
        let rows = world.segment_rows();
        rows.into_iter().find(|(_, row)| row.kind == kind && row.sealed_stripes.is_some()).unwrap().0
    };
    let (small, large) = (segment(&world, LaneKind::Small), segment(&world, LaneKind::Large));
    store.shutdown().await;
    drop(store);
    world.lose_index();
    let is_sick = Arc::new(AtomicBool::new(true));
    let store = open_sick(&world, small, &is_sick).await;
    assert!(!store.status().log.targets.iter().any(|target| target.last_error.is_some()), "no target is out of order");
    assert!(store.status().kept_segments > 0);
    let give_back = async || {
        store.free_dead_segments().await.unwrap();
        store.compact().await.unwrap();
        store.free_dead_segments().await.unwrap();
        assert!(world.segment_rows().contains_key(&large), "it looks dead, and is not");
    };
    give_back().await;
    is_sick.store(false, Ordering::SeqCst);
    give_back().await;
    store.shutdown().await;
    drop(store);
    let store = world.open().await;
    assert_eq!(store.status().kept_segments, 0);
    assert_eq!(get(&store, "bucket", "large").await.unwrap(), body);
    delete(&store, "bucket", "large").await;
    let store = world.restart(store).await;
    store.free_dead_segments().await.unwrap();
    assert!(world.segment_rows().get(&large).is_none_or(|row| row.state == SegmentState::Freeing));
}

/// Power failed under the first stripe of a segment; at the next start its files gave errors, and at the one after that they show that nothing is in them.
/// Then nothing is missing: the index may be kept in the log again.
#[tokio::test]
async fn a_segment_that_holds_nothing_is_missed_no_more() {
    let mut config = config(2, 1);
    config.log.small_lanes = 1;
    let mut world = World::new(52, config);
    let store = world.open().await;
    store.create_bucket(bucket("bucket"), None).await.unwrap();
    let store = world.restart(store).await;
    put(&store, "bucket", "key", &bytes(1, 1000)).await;
    let segment = *world.segment_rows().iter().find(|(_, row)| row.sealed_stripes.is_none()).unwrap().0;
    world.crash(store, usize::MAX).await;
    // As if nothing of the stripe had come to the media. It comes after the file's header of 4 KiB.
    for disk in &world.disks {
        let path = disk.paths().into_iter().find(|path| path.contains(&segment.to_string())).unwrap();
        disk.corrupt(&path, 4096);
    }
    world.lose_index();
    let store = open_sick(&world, segment, &Arc::new(AtomicBool::new(true))).await;
    assert_eq!(store.status().log.unreadable_segments, 1);
    let store = world.restart(store).await;
    assert_eq!(store.status().log.unreadable_segments, 0);
    assert!(store.snapshot_index().await.unwrap().is_some());
}

/// What can not be read now may be there at the next start: what is deleted meanwhile stays deleted, and no bucket is taken to be empty, or nobody's.
#[tokio::test]
async fn nothing_is_decided_by_what_can_not_be_read_for_now() {
    let mut config = config(1, 1);
    config.log.small_lanes = 1;
    let mut world = World::new(53, config);
    let store = world.open().await;
    store.create_bucket(bucket("first"), None).await.unwrap();
    let store = world.restart(store).await;
    let known = world.segment_rows();
    store.create_bucket(bucket("bucket"), None).await.unwrap();
    let scope = || ConfigScope::Bucket(bucket("first"));
    store.put_config(scope(), "policy", "{}".into()).await.unwrap();
    for key in ["deleted", "kept"] {
        put(&store, "first", key, &bytes(1, 1000)).await;
    }
    let store = world.restart(store).await;
    let hidden = *world.segment_rows().keys().find(|id| !known.contains_key(id)).unwrap();
    store.shutdown().await;
    drop(store);
    world.lose_index();
    world.clock.advance(Duration::from_secs(1));
    let store = open_sick(&world, hidden, &Arc::new(AtomicBool::new(true))).await;
    assert!(get(&store, "first", "deleted").await.is_err());
    delete(&store, "first", "deleted").await;
    store.delete_config(scope(), "policy").await.unwrap();
    for refused in [store.create_bucket(bucket("bucket"), None).await, store.delete_bucket(&bucket("first")).await] {
        assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
    }
    store.shutdown().await;
    drop(store);
    let store = world.open().await;
    assert!(matches!(get(&store, "first", "deleted").await, Err(StoreError::NoSuchKey)));
    assert_eq!(get(&store, "first", "kept").await.unwrap(), bytes(1, 1000));
    assert_eq!(store.bucket_configs(&bucket("first")).unwrap().get("policy"), None);
    delete(&store, "first", "kept").await;
    store.delete_bucket(&bucket("first")).await.unwrap();
    store.delete_bucket(&bucket("bucket")).await.unwrap();
    store.create_bucket(bucket("another"), None).await.unwrap();
}

/// Bytes of an object are lost, but no mutation: nothing is waited for.
#[tokio::test]
async fn damage_beside_the_mutations_hides_none() {
    let mut config = config(1, 0);
    (config.log.small_lanes, config.log.large_lanes) = (1, 1);
    let mut world = World::new(54, config);
    let store = world.open().await;
    store.create_bucket(bucket("bucket"), None).await.unwrap();
    let store = world.restart(store).await;
    for key in ["first", "second", "third"] {
        put(&store, "bucket", key, &bytes(1, 50_000)).await;
    }
    put(&store, "bucket", "large", &bytes(2, 2 << 20)).await;
    let open = |world: &World, kind| {
        let rows = world.segment_rows();
        rows.into_iter().find(|(_, row)| row.kind == kind && row.sealed_stripes.is_none()).unwrap().0
    };
    let (small, large) = (open(&world, LaneKind::Small), open(&world, LaneKind::Large));
    world.crash(store, usize::MAX).await;
    // In the second stripe.
    for (segment, at) in [(small, 80_000), (large, 300_000)] {
        let path = world.disks[0].paths().into_iter().find(|path| path.contains(&segment.to_string())).unwrap();
        world.disks[0].corrupt(&path, at);
    }
    world.lose_index();
    let (store, report) = world.try_open().await.unwrap();
    assert_eq!(report.segments_unreadable, 2, "the operator is told of what is lost: {report:?}");
    assert!(get(&store, "bucket", "second").await.is_err() && get(&store, "bucket", "large").await.is_err());
    assert_eq!(get(&store, "bucket", "third").await.unwrap(), bytes(1, 50_000));
    assert!(store.snapshot_index().await.unwrap().is_some());
}
