//! What a snapshot of the index keeps, and that it comes back: with the next one, or when none is wanted any more.

use std::collections::BTreeSet;

use gabion_metadata::{
    Index, Table, Write, keys as keys_of,
    rows::{Row, SegmentState, SnapshotRow},
};
use gabion_store::Store;
use gabion_types::SegmentId;

use crate::{
    compaction::{check_rebuild, fresh},
    harness::{truth::check_counters, *},
};

fn row(world: &World) -> SnapshotRow {
    SnapshotRow::decode(&world.snapshot_row().unwrap()).unwrap()
}

fn segments_of(row: &SnapshotRow) -> BTreeSet<SegmentId> {
    row.extents.iter().map(|extent| extent.segment).collect()
}

fn held(world: &World) -> BTreeSet<SegmentId> {
    let rows = world.segment_rows().into_iter();
    rows.filter(|(_, row)| row.state != SegmentState::Freeing).map(|(id, _)| id).collect()
}

/// What was begun ends: removals of files.
async fn settle() {
    for _ in 0..300 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn it_lies_apart_and_goes_as_a_whole_with_the_next() {
    for geometry in [(1, 0), (2, 1)] {
        let (world, store) = fresh(300, geometry).await;
        let mut before: Option<BTreeSet<SegmentId>> = None;
        for round in 0..4 {
            put(&store, "bucket", &format!("{round}"), &bytes(round, 1_500_000)).await;
            let written = store.snapshot_index().await.unwrap().unwrap();
            put(&store, "bucket", &format!("later {round}"), &bytes(round, 1_500_000)).await;
            let segments = segments_of(&row(&world));
            let live: i64 = segments.iter().map(|id| world.segment_rows()[id].live_bytes).sum();
            assert_eq!(live as u64, written.bytes, "they hold nothing else");
            store.free_dead_segments().await.unwrap();
            settle().await;
            if let Some(before) = before.replace(segments) {
                assert!(held(&world).is_disjoint(&before), "the one before is gone, without a restart");
            }
        }
        check_counters(&world.index.current.lock());
    }
}

#[tokio::test]
async fn what_fills_its_last_stripe_to_the_brim_still_ends_its_segment() {
    let (mut world, mut store) = fresh(301, (1, 0)).await;
    let stripe_bytes = world.config.log.stripe_payload_bytes as u64;
    // The length of one row is changed until the last stripe is full.
    let mut padding = 1000;
    for attempt in 0.. {
        let row = Write::Put(Table::System, keys_of::system("scrub"), vec![1; padding as usize]);
        world.index.current.lock().commit(&[], vec![row]).unwrap();
        match store.snapshot_index().await.unwrap().unwrap().bytes % stripe_bytes {
            0 => break,
            over if over < 500 => padding -= over,
            over => padding += stripe_bytes - over,
        }
        assert!(attempt < 20);
    }
    let segments = segments_of(&row(&world));
    store.snapshot_index().await.unwrap().unwrap();
    assert!(segments_of(&row(&world)).is_disjoint(&segments));
    store = world.restart(store).await;
    store.shutdown().await;
}

#[tokio::test]
async fn its_record_moves_and_is_found_where_it_went() {
    let (mut world, mut store) = fresh(302, (2, 1)).await;
    world.config.compaction.live_ratio_max = 1.0;
    store = world.restart(store).await;
    for i in 0..30 {
        put(&store, "bucket", &format!("{i}"), &bytes(i, 3000)).await;
    }
    store.snapshot_index().await.unwrap().unwrap();
    let first = row(&world);
    for i in 0..25 {
        delete(&store, "bucket", &format!("{i}")).await;
    }
    for _ in 0..2 {
        store = world.restart(store).await;
        let before = row(&world);
        let compacted = store.compact().await.unwrap();
        assert!(compacted.rows_failed == 0 && compacted.victims_freed > 0, "{compacted:?}");
        let after = row(&world);
        assert!(after.home.segment != before.home.segment && after.moved > before.moved, "{after:?}");
        assert_eq!((after.seq, &after.extents, &after.covered), (first.seq, &first.extents, &first.covered));
        check_counters(&world.index.current.lock());
        for restore in [true, false] {
            world.config.index_snapshot_restore = restore;
            store = check_rebuild(&mut world, store).await;
            store.shutdown().await;
            drop(store);
            world.lose_index();
            let report;
            (store, report) = world.try_open().await.unwrap();
            assert_eq!(report.rows_restored > 0, restore);
            assert_eq!(keys(&store, "bucket").await.len(), 5);
        }
        // So that what was moved has something dead beside it.
        delete(&store, "bucket", &keys(&store, "bucket").await[0]).await;
        put(&store, "bucket", "9", &bytes(9, 3000)).await;
    }
    // The next one takes its place, wherever the record of the first is.
    let written = store.snapshot_index().await.unwrap().unwrap();
    assert!(row(&world).seq == written.seq && row(&world).moved.is_none());
    check_rebuild(&mut world, store).await;
}

#[tokio::test]
async fn one_that_is_not_wanted_any_more_is_withdrawn_for_good() {
    let (mut world, mut store) = fresh(303, (2, 1)).await;
    for i in 0..100 {
        put(&store, "bucket", &format!("{i}"), &bytes(i, 300)).await;
    }
    store.snapshot_index().await.unwrap().unwrap();
    let segments = segments_of(&row(&world));
    for i in 0..90 {
        delete(&store, "bucket", &format!("{i}")).await;
    }
    world.config.index_snapshot_bytes = 0;
    store = world.restart(store).await;
    settle().await;
    assert!(row(&world).is_withdrawn());
    assert!(held(&world).is_disjoint(&segments), "its segments are free");
    // The record that named it is still in the log, the one that withdrew it may move: it does not come back.
    world.config.compaction.live_ratio_max = 1.0;
    for _ in 0..3 {
        store = world.restart(store).await;
        store.shutdown().await;
        drop(store);
        let before = world.rows();
        world.lose_index();
        let report;
        (store, report) = world.try_open().await.unwrap();
        assert_eq!(report.rows_restored, 0);
        world.check_rebuilt(&before);
        assert_eq!(keys(&store, "bucket").await.len(), 10);
        check_counters(&world.index.current.lock());
        store.compact().await.unwrap();
    }
    // And then one is wanted again.
    world.config.index_snapshot_bytes = u64::MAX;
    store = world.restart(store).await;
    store.snapshot_index().await.unwrap().unwrap();
    store.shutdown().await;
    drop(store);
    world.lose_index();
    assert!(world.try_open().await.unwrap().1.rows_restored > 10);
}

/// Lets `hours` pass, by the runtime's clock.
async fn pass(hours: u64) {
    settle().await;
    tokio::time::advance(std::time::Duration::from_secs(hours * 3600 + 1)).await;
    settle().await;
}

fn snapshots(store: &Store) -> u64 {
    store.metrics().index_snapshots.get()
}

#[tokio::test(start_paused = true)]
async fn one_is_written_in_time_if_anything_changed() {
    let mut config = config(1, 0);
    config.index_snapshot_interval_h = 24;
    let world = World::new(304, config);
    let store = world.open().await;
    pass(25).await;
    assert_eq!(snapshots(&store), 0, "there is nothing yet");
    store.create_bucket(bucket("bucket"), None).await.unwrap();
    put(&store, "bucket", "key", &bytes(1, 300)).await;
    pass(10).await;
    assert_eq!(snapshots(&store), 0, "it is not time yet");
    pass(15).await;
    assert_eq!(snapshots(&store), 1);
    for _ in 0..3 {
        pass(25).await;
        assert_eq!(snapshots(&store), 1, "nothing changed since");
    }
    delete(&store, "bucket", "key").await;
    pass(25).await;
    assert_eq!(snapshots(&store), 2);
    store.shutdown().await;
}

#[tokio::test]
async fn a_comparison_of_index_and_log_looks_at_it() {
    let (world, store) = fresh(305, (1, 0)).await;
    store.snapshot_index().await.unwrap().unwrap();
    assert!(store.cross_check().await.unwrap().is_clean());
    let mut wrong = row(&world);
    wrong.extents[0].segment = SegmentId::new(7, 7);
    let write = Write::Put(Table::System, keys_of::system("snapshot"), wrong.encode());
    world.index.current.lock().commit(&[], vec![write]).unwrap();
    let report = store.cross_check().await.unwrap();
    assert_eq!((report.rows_without_segment, report.is_clean()), (1, false), "{report:?}");
    store.shutdown().await;
}
