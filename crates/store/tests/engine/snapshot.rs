//! The index in the log: a lost one begins with it, and comes to the same as one that is rebuilt from everything.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use gabion_metadata::{
    Index, Table, Write, keys as keys_of,
    rows::{Row, SegmentState, SnapshotRow},
};
use gabion_platform::{OpenFile, Opening};
use gabion_store::{OpenReport, RowDifference, RowFault, Store, StoreError};

use crate::{
    harness::{truth::check_counters, *},
    recovery::replay_prefix,
};

async fn fresh(seed: u64, geometry: (usize, usize)) -> (World, Store) {
    let world = World::new(seed, config(geometry.0, geometry.1));
    let store = world.open().await;
    store.create_bucket(bucket("bucket"), None).await.unwrap();
    (world, store)
}

async fn put_many(store: &Store, range: std::ops::Range<u64>) {
    futures::future::join_all(range.map(|i| async move {
        put(store, "bucket", &format!("key {i:04}"), &bytes(i, 300)).await;
    }))
    .await;
}

/// Loses the index and opens; what it was is what it is.
async fn lose_and_open(world: &mut World, store: Store) -> (Store, OpenReport) {
    store.shutdown().await;
    drop(store);
    let before = world.rows();
    world.lose_index();
    let (store, report) = world.try_open().await.unwrap();
    assert!(report.index_rebuilt.is_some());
    world.check_rebuilt(&before);
    check_counters(&world.index.current.lock());
    (store, report)
}

#[tokio::test]
async fn a_lost_index_begins_with_its_snapshot_and_replays_what_came_later() {
    for geometry in [(1, 0), (2, 1)] {
        let (mut world, mut store) = fresh(1, geometry).await;
        put_many(&store, 0..600).await;
        put(&store, "bucket", "large", &bytes(9, 3_000_000)).await;
        // How far a scrub got is in the index, and no part of what the log says.
        let row = Write::Put(Table::System, keys_of::system("scrub"), vec![1; 40]);
        world.index.current.lock().commit(&[], vec![row]).unwrap();
        let written = store.snapshot_index().await.unwrap().unwrap();
        assert!(written.rows > 600 && written.bytes > 60_000, "{written:?}");
        put_many(&store, 500..650).await;
        delete(&store, "bucket", "key 0001").await;
        delete(&store, "bucket", "large").await;
        let report;
        (store, report) = lose_and_open(&mut world, store).await;
        assert_eq!(report.rows_restored, written.rows);
        assert_eq!(report.mutations_replayed, 1 + 150 + 2, "the snapshot's own, and what came later");
        if geometry.1 > 0 {
            store.shutdown().await;
            drop(store);
            world.lose_index();
            world.disks[1].offline(true);
            let report;
            (store, report) = world.try_open().await.unwrap();
            assert_eq!(report.rows_restored, written.rows, "as long as parity replaces what is lost");
        }
        assert_eq!(get(&store, "bucket", "key 0500").await.unwrap(), bytes(500, 300));
        assert_eq!(keys(&store, "bucket").await.len(), 649);
    }
}

#[tokio::test]
async fn what_was_deleted_after_a_snapshot_stays_deleted_although_its_deletion_could_go_without_one() {
    for snapshot in [true, false] {
        let (mut world, mut store) = fresh(2, (1, 0)).await;
        // No segment that is kept for the snapshot's sake brings the bucket back.
        store = world.restart(store).await;
        if snapshot {
            store.snapshot_index().await.unwrap().unwrap();
        }
        store = world.restart(store).await;
        // The bucket and everything older dies, and then the segment that says so.
        put(&store, "bucket", "filler", &bytes(1, 20_000)).await;
        delete(&store, "bucket", "filler").await;
        store.delete_bucket(&bucket("bucket")).await.unwrap();
        store = world.restart(store).await;
        store.create_bucket(bucket("another"), None).await.unwrap();
        store.free_dead_segments().await.unwrap();
        let carried = store.metrics().mutations_carried.get();
        store = world.restart(store).await;
        store.free_dead_segments().await.unwrap();
        let carried = carried + store.metrics().mutations_carried.get();
        assert_eq!(carried > 0, snapshot, "only a snapshot has what may come back");
        let report;
        (store, report) = lose_and_open(&mut world, store).await;
        assert_eq!(report.rows_restored > 0, snapshot);
        assert!(matches!(store.head_bucket(&bucket("bucket")).await, Err(StoreError::NoSuchBucket)));
        // Once a newer snapshot knows the deletion it need not be carried any more.
        if snapshot {
            store = world.restart(store).await;
            store.snapshot_index().await.unwrap().unwrap();
            store = world.restart(store).await;
            store.free_dead_segments().await.unwrap();
            (store, _) = lose_and_open(&mut world, store).await;
            assert!(matches!(store.head_bucket(&bucket("bucket")).await, Err(StoreError::NoSuchBucket)));
        }
    }
}

#[tokio::test]
async fn a_snapshot_that_can_not_be_read_is_given_up() {
    let (mut world, mut store) = fresh(3, (1, 0)).await;
    put_many(&store, 0..600).await;
    store.snapshot_index().await.unwrap().unwrap();
    put_many(&store, 550..700).await;
    // Once it is sealed; before, an end that can not be read was never acknowledged.
    store = world.restart(store).await;
    let row = SnapshotRow::decode(&world.snapshot_row().unwrap()).unwrap();
    let rotten = row.extents.last().unwrap();
    let id = rotten.segment.to_string();
    let path = format!("segments/{}/{id}.000", &id[30..]);
    world.disks[0].corrupt(&path, rotten.stripe_offset + 200);
    let report;
    (store, report) = lose_and_open(&mut world, store).await;
    assert_eq!(report.rows_restored, 0);
    assert!(report.index_rebuilt.unwrap().contains("snapshot"), "the operator is told");
    assert_eq!(report.mutations_replayed, 1 + 600 + 150 + 1);
    // The next one is good again.
    store.snapshot_index().await.unwrap().unwrap();
    let (_, report) = lose_and_open(&mut world, store).await;
    assert!(report.rows_restored > 700);
}

#[tokio::test]
async fn a_restore_that_is_cut_off_begins_anew() {
    let (mut world, store) = fresh(4, (1, 0)).await;
    put_many(&store, 0..600).await;
    store.snapshot_index().await.unwrap().unwrap();
    put_many(&store, 600..650).await;
    let expected = list_all(&store, "bucket").await;
    world.crash(store, usize::MAX).await;
    for commits in 0..5 {
        let cut = gabion_metadata::MemoryIndex::new();
        replay_prefix(&world, &cut, commits).await;
        *world.index.current.lock() = fork(&cut);
        let (store, report) = world.try_open().await.unwrap();
        assert_eq!(list_all(&store, "bucket").await, expected);
        check_counters(&world.index.current.lock());
        assert!(report.rows_restored > 0 || commits > 2, "{commits}: {report:?}");
        world.crash(store, usize::MAX).await;
    }
}

/// All of it is written but the record that makes it count: there is no room for a segment to put that in. It takes no effect, and the next one is as good as any.
#[tokio::test]
async fn a_snapshot_that_was_refused_is_followed_by_another() {
    let (world, store) = fresh(9, (1, 0)).await;
    put_many(&store, 0..50).await;
    store.shutdown().await;
    drop(store);
    let may_create = Arc::new(AtomicUsize::new(usize::MAX));
    let left = Arc::clone(&may_create);
    let open: Arc<OpenFile> = Arc::new(move |opening, _, opened| {
        let take = |left: usize| left.checked_sub(usize::from(opening == Opening::Created));
        match left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take) {
            Ok(_) => opened,
            Err(_) => Box::pin(async { Err(io::ErrorKind::StorageFull.into()) }),
        }
    });
    let store = world.open_on(|_, disk| disk.wrapped(Arc::clone(&open))).await;
    may_create.store(1, Ordering::SeqCst);
    let refused = store.snapshot_index().await;
    assert!(matches!(refused, Err(StoreError::NoSpace)), "{refused:?}");
    assert_eq!(may_create.load(Ordering::SeqCst), 0, "its stripes were written");
    may_create.store(usize::MAX, Ordering::SeqCst);
    put_many(&store, 50..60).await;
    assert!(store.snapshot_index().await.unwrap().is_some());
    store.shutdown().await;
}

#[tokio::test]
async fn the_old_snapshot_dies_with_the_new_one() {
    let (mut world, mut store) = fresh(5, (2, 1)).await;
    put_many(&store, 0..600).await;
    for _ in 0..4 {
        store.snapshot_index().await.unwrap().unwrap();
        store = world.restart(store).await;
        check_counters(&world.index.current.lock());
    }
    store.free_dead_segments().await.unwrap();
    let row = SnapshotRow::decode(&world.snapshot_row().unwrap()).unwrap();
    let large = world.segment_rows().into_iter().filter(|(_, row)| row.kind == gabion_metadata::rows::LaneKind::Large);
    let expected: std::collections::BTreeSet<_> = row.extents.iter().map(|extent| extent.segment).collect();
    let held: std::collections::BTreeSet<_> = large.filter(|(_, row)| row.live_bytes > 0).map(|(id, _)| id).collect();
    assert_eq!(held, expected, "only the newest holds space");
    lose_and_open(&mut world, store).await;
}

#[tokio::test]
async fn snapshots_are_written_when_enough_else_was() {
    let mut config = config(1, 0);
    config.index_snapshot_bytes = 256 << 10;
    let mut world = World::new(6, config);
    let mut store = world.open().await;
    store.create_bucket(bucket("bucket"), None).await.unwrap();
    for round in 0..200 {
        put_many(&store, round * 20..(round + 1) * 20).await;
        // Rows go, also those that the snapshot has passed by or will come to.
        for gone in [round * 20, round * 10 + 3, round * 5 + 2] {
            delete(&store, "bucket", &format!("key {gone:04}")).await;
        }
        if store.metrics().index_snapshots.get() > 0 {
            break;
        }
    }
    assert!(store.metrics().index_snapshots.get() > 0, "4000 objects of 300 bytes are more than enough");
    let report;
    (store, report) = lose_and_open(&mut world, store).await;
    assert!(report.rows_restored > 0);
    store.shutdown().await;
}

/// What a snapshot stores itself once made the next one due, when `index_snapshot_bytes` was small: for ever, and all dead segments were read
/// again after each (found by the simulator).
#[tokio::test]
async fn a_snapshot_makes_no_other_one_due() {
    let mut config = config(4, 2);
    config.index_snapshot_bytes = 16 << 10;
    let world = World::new(12, config);
    let store = world.open().await;
    store.create_bucket(bucket("bucket"), None).await.unwrap();
    put_many(&store, 0..3).await;
    let settle = async || {
        for _ in 0..2000 {
            tokio::task::yield_now().await;
        }
        store.metrics().index_snapshots.get()
    };
    let written = settle().await;
    assert!(written > 0, "there was enough for one");
    assert_eq!(settle().await, written, "nobody asked for anything");
    put_many(&store, 3..10).await;
    store.shutdown().await;
}

#[tokio::test]
async fn rows_that_are_not_what_the_log_says_are_found() {
    let (world, store) = fresh(7, (1, 0)).await;
    put_many(&store, 0..50).await;
    store.shutdown().await;
    drop(store);
    let report = world.verify().await;
    assert_eq!((report.differing, report.rows > 50), (0, true));
    let name = |name: &str| keys_of::object(&bucket("bucket"), &key(name));
    let index = world.index.current.lock().clone();
    let row = index.get(Table::Object, &name("key 0003")).unwrap().unwrap().to_vec();
    let writes = vec![
        Write::Delete(Table::Object, name("key 0002")),
        Write::Put(Table::Object, name("key 0004"), row.clone()),
        Write::Put(Table::Object, name("key 9999"), row),
    ];
    index.commit(&[], writes).unwrap();
    index.persist().unwrap();
    let report = world.verify().await;
    let fault = |key, fault| RowDifference { table: "object", key: name(key), fault };
    let expected = [
        fault("key 0002", RowFault::Missing),
        fault("key 0004", RowFault::Different),
        fault("key 9999", RowFault::Surplus),
    ];
    assert_eq!((report.differing, &report.differences[..]), (3, &expected[..]));
}

/// A segment of an object that the newest snapshot knows, one of whose two copies was built anew elsewhere since, while its disk was
/// away; and the disks of the copies: the one that stayed, the one that was away, the new one.
async fn moved_since(seed: u64) -> (World, Store, gabion_types::SegmentId, [usize; 3]) {
    let mut world = World::new(seed, config(1, 1));
    world.disks.push(gabion_platform::SimDisk::new(99));
    world.config.repair_interval_ms = 0;
    let mut store = world.open().await;
    store.create_bucket(bucket("bucket"), None).await.unwrap();
    store = world.restart(store).await;
    let put = put(&store, "bucket", "key", &bytes(1, 1000)).await;
    store = world.restart(store).await;
    store.snapshot_index().await.unwrap().unwrap();
    let rows = world.segment_rows();
    let (id, _) = rows.into_iter().find(|(_, row)| row.live_bytes > 0 && row.max_seq == put.seq).unwrap();
    let before = disks_of(&world, id);
    let (stays, away) = (before[0], before[1]);
    world.crash(store, usize::MAX).await;
    world.disks[away].offline(true);
    store = world.open().await;
    store.repair_now().await.unwrap();
    let new = 3 - stays - away;
    assert_eq!(disks_of(&world, id).len(), 3);
    (world, store, id, [stays, away, new])
}

fn disks_of(world: &World, id: gabion_types::SegmentId) -> Vec<usize> {
    let id = id.to_string();
    let has = |disk: &usize| world.disks[*disk].paths().iter().any(|path| path.contains(&id));
    let mut disks: Vec<usize> = (0..world.disks.len()).filter(has).collect();
    disks.sort_by_key(|&disk| world.disks[disk].paths().iter().any(|path| path.ends_with(&format!("{id}.001"))));
    disks
}

#[tokio::test]
async fn a_restored_index_knows_where_copies_are_that_were_replaced_since() {
    let (mut world, store, id, [.., away, _]) = moved_since(9).await;
    let before = world.segment_rows()[&id].clone();
    assert!(before.former.is_some());
    world.crash(store, usize::MAX).await;
    world.lose_index();
    let (store, report) = world.try_open().await.unwrap();
    assert!(report.rows_restored > 0);
    let row = world.segment_rows()[&id].clone();
    assert_eq!((&row.targets, &row.former), (&before.targets, &before.former));
    // So it is not taken for gone before they are.
    delete(&store, "bucket", "key").await;
    store.free_dead_segments().await.unwrap();
    world.crash(store, usize::MAX).await;
    let store = world.open().await;
    assert!(world.segment_rows().contains_key(&id));
    world.crash(store, usize::MAX).await;
    world.disks[away].offline(false);
    let store = world.open().await;
    // It is only remembered until an older image of a target would be noticed.
    assert!(world.segment_rows().get(&id).is_none_or(|row| row.state == SegmentState::Freeing));
    assert_eq!((disks_of(&world, id), store.status().freeing_segments), (vec![], 0));
    assert!(keys(&store, "bucket").await.is_empty());
}

#[tokio::test]
async fn a_restored_index_waits_for_what_is_left_of_freed_segments() {
    let (mut world, mut store, id, [_, away, new]) = moved_since(10).await;
    world.crash(store, usize::MAX).await;
    world.disks[away].offline(false);
    store = world.open().await;
    store.repair_now().await.unwrap();
    world.crash(store, usize::MAX).await;
    world.disks[new].offline(true);
    store = world.open().await;
    delete(&store, "bucket", "key").await;
    store.free_dead_segments().await.unwrap();
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(disks_of(&world, id), [new]);
    world.crash(store, usize::MAX).await;
    world.lose_index();
    let report;
    (store, report) = world.try_open().await.unwrap();
    assert!(report.rows_restored > 0);
    for _ in 0..2 {
        assert!(world.segment_rows().contains_key(&id));
        world.crash(store, usize::MAX).await;
        store = world.open().await;
    }
    world.crash(store, usize::MAX).await;
    world.disks[new].offline(false);
    store = world.open().await;
    // It is only remembered until an older image of a target would be noticed.
    assert!(world.segment_rows().get(&id).is_none_or(|row| row.state == SegmentState::Freeing));
    assert_eq!((disks_of(&world, id), store.status().freeing_segments), (vec![], 0));
    assert!(keys(&store, "bucket").await.is_empty());
}

#[tokio::test]
async fn an_old_copy_of_the_index_is_noticed_when_what_it_needs_was_freed() {
    let (mut world, mut store) = fresh(8, (1, 1)).await;
    store = world.restart(store).await;
    let old = fork(&world.index.current.lock());
    put(&store, "bucket", "filler", &bytes(1, 20_000)).await;
    delete(&store, "bucket", "filler").await;
    store.delete_bucket(&bucket("bucket")).await.unwrap();
    store = world.restart(store).await;
    store.create_bucket(bucket("another"), None).await.unwrap();
    store.free_dead_segments().await.unwrap();
    store.shutdown().await;
    drop(store);
    let before = world.rows();
    *world.index.current.lock() = old;
    let (store, report) = world.try_open().await.unwrap();
    // The log may notice it before the store does.
    let is_noticed = |why: &String| why.contains("old copy") || why.contains("ahead of segment");
    assert!(report.index_rebuilt.as_ref().is_some_and(is_noticed), "{report:?}");
    world.check_rebuilt(&before);
    assert!(matches!(store.head_bucket(&bucket("bucket")).await, Err(StoreError::NoSuchBucket)));
}

#[tokio::test]
async fn an_old_copy_of_an_index_that_was_being_rebuilt_is_noticed() {
    // How far the rebuild was: two commits without a snapshot, the mark, the rows and these two with one.
    for (has_snapshot, commits) in [(false, 1), (false, 2), (true, 1), (true, 2), (true, 3), (true, 4)] {
        let (mut world, mut store) = fresh(9, (1, 0)).await;
        put(&store, "bucket", "object", &bytes(1, 20_000)).await;
        store = world.restart(store).await;
        if has_snapshot {
            store.snapshot_index().await.unwrap().unwrap();
        }
        put(&store, "bucket", "another", &bytes(1, 20_000)).await;
        delete(&store, "bucket", "object").await;
        store.shutdown().await;
        drop(store);
        // Rows refer to segments that are gone, or of which nothing counts as applied.
        let half = gabion_metadata::MemoryIndex::new();
        replay_prefix(&world, &half, commits).await;
        let mut store = world.open().await;
        // The segments go, and so do those that say so.
        delete(&store, "bucket", "another").await;
        store.delete_bucket(&bucket("bucket")).await.unwrap();
        for number in 0..4 {
            store = world.restart(store).await;
            store.create_bucket(bucket(&format!("bucket-{}", number + 1)), None).await.unwrap();
            if number > 0 {
                store.delete_bucket(&bucket(&format!("bucket-{number}"))).await.unwrap();
            }
            store.free_dead_segments().await.unwrap();
        }
        store.shutdown().await;
        drop(store);
        let before = world.rows();
        *world.index.current.lock() = half;
        let (store, report) = world.try_open().await.unwrap();
        assert!(report.index_rebuilt.is_some(), "{has_snapshot} {commits}: {report:?}");
        world.check_rebuilt(&before);
        assert!(matches!(store.head_bucket(&bucket("bucket")).await, Err(StoreError::NoSuchBucket)));
    }
}

#[tokio::test]
async fn what_a_power_cut_takes_of_a_relaxed_log_is_not_what_a_freed_segment_said() {
    for seed in 0..12 {
        for lose_index in [false, true] {
            let mut config = config(1, 0);
            config.log.durability = gabion_segment::Durability::Relaxed;
            let mut world = World::new(100 + seed, config);
            let mut store = world.open().await;
            store.create_bucket(bucket("bucket"), None).await.unwrap();
            put(&store, "bucket", "deleted", &bytes(1, 1000)).await;
            put(&store, "bucket", "kept", &bytes(2, 1000)).await;
            store = world.restart(store).await;
            delete(&store, "bucket", "deleted").await;
            put(&store, "bucket", "filler", &bytes(3, 2000)).await;
            delete(&store, "bucket", "filler").await;
            // The segment that says so is sealed, and goes; what it said is carried.
            store = world.restart(store).await;
            store.checkpoint().await.unwrap();
            store.free_dead_segments().await.unwrap();
            assert!(store.metrics().mutations_carried.get() > 0);
            world.crash(store, 0).await;
            if lose_index {
                world.lose_index();
            }
            let store = world.open().await;
            assert_eq!(keys(&store, "bucket").await, ["kept"], "seed {seed}, lost: {lose_index}");
            check_counters(&world.index.current.lock());
        }
    }
}

#[tokio::test]
async fn what_can_not_be_written_to_the_log_now_is_not_tried_all_the_time() {
    let mut world = World::with_a_lost_stripe(8).await;
    world.config.index_snapshot_bytes = 1024;
    let store = world.open().await;
    assert!(store.snapshot_index().await.unwrap().is_none(), "the index lacks what can not be read");
    put(&store, "bucket", "enough", &bytes(1, 5000)).await;
    // While a task spins, the runtime's thread never parks.
    let parks = || tokio::runtime::Handle::current().metrics().worker_park_count(0);
    let before = parks();
    for _ in 0..10 {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert!(parks() >= before + 10);
    store.shutdown().await;
}
