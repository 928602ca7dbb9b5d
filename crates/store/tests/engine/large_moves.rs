//! Objects that one record can not describe move part by part, and are what they were whatever comes in between.

use bytes::Bytes;
use gabion_metadata::Table;
use gabion_store::{GetObject, Store};

use crate::{
    compaction::{begin, check_rebuild, complete, fresh, upload},
    harness::{truth::check_counters, *},
};

/// Parts that lie in records of their own, in stripes of their own, and some that share a stripe once they were moved.
const SIZES: [usize; 6] = [400, 1_300_000, 70_000, 80_000, 1_100_001, 300];
/// Less than the parts of the object take.
const MOVE_BYTES_MAX: usize = 600;

fn whole() -> Bytes {
    (1..).zip(SIZES).flat_map(|(number, size)| bytes(number, size).to_vec()).collect::<Vec<_>>().into()
}

/// An object of many parts, among things that are dead; every segment is sealed, and worth compacting.
async fn large(seed: u64) -> (World, Store) {
    let (mut world, mut store) = fresh(seed, (2, 1)).await;
    world.config.compaction.live_ratio_max = 1.0;
    world.config.move_bytes_max = MOVE_BYTES_MAX;
    store = world.restart(store).await;
    let target = begin(&store, "large").await;
    let mut parts = Vec::new();
    for (number, size) in (1..).zip(SIZES) {
        parts.push(upload(&store, &target, number, size).await);
        put(&store, "bucket", "dead", &bytes(number.into(), 100_000)).await;
    }
    complete(&store, &target, parts).await;
    store = stir(&mut world, store).await;
    (world, store)
}

async fn check(store: &Store, name: &str) {
    assert_eq!(get(store, "bucket", name).await.unwrap(), whole());
    for (number, size) in (1..).zip(SIZES) {
        let part = GetObject { part_number: Some(number), ..GetObject::whole(bucket("bucket"), key(name)) };
        assert_eq!(read(store, part).await.unwrap(), bytes(number.into(), size), "part {number}");
    }
}

fn parts_left(world: &World) -> usize {
    world.rows().iter().filter(|(table, ..)| *table == Table::Part).count()
}

/// Seals all segments, each with something that is dead: what moved with the object as well, so that it is moved once more.
async fn stir(world: &mut World, store: Store) -> Store {
    for (name, size) in [("small filler", 2000), ("large filler", 1_060_000)] {
        put(&store, "bucket", name, &bytes(1, size)).await;
        put(&store, "bucket", "dead", &bytes(1, size)).await;
    }
    delete(&store, "bucket", "dead").await;
    world.restart(store).await
}

#[tokio::test]
async fn they_move_again_and_again_and_nothing_of_a_move_is_left() {
    let (mut world, mut store) = large(200).await;
    for _ in 0..3 {
        let compacted = store.compact().await.unwrap();
        assert!(compacted.rows_moved >= 1 && compacted.rows_failed == 0, "{compacted:?}");
        assert_eq!(compacted.victims_freed, compacted.victims, "{compacted:?}");
        check(&store, "large").await;
        assert_eq!(parts_left(&world), 0);
        check_counters(&world.index.current.lock());
        store = check_rebuild(&mut world, store).await;
        check(&store, "large").await;
        store = stir(&mut world, store).await;
    }
    for name in keys(&store, "bucket").await {
        delete(&store, "bucket", &name).await;
    }
    store = world.restart(store).await;
    store.compact().await.unwrap();
    store.free_dead_segments().await.unwrap();
    store = check_rebuild(&mut world, store).await;
    assert!(keys(&store, "bucket").await.is_empty());
    assert_eq!(parts_left(&world), 0);
}

/// What was moved as one, with parts that share stripes, is cut where its parts begin.
#[tokio::test]
async fn what_was_packed_across_parts_is_cut_at_parts_again() {
    let (mut world, mut store) = large(201).await;
    world.config.move_bytes_max = 1 << 20;
    store = world.restart(store).await;
    assert_eq!(store.compact().await.unwrap().rows_failed, 0);
    world.config.move_bytes_max = MOVE_BYTES_MAX;
    store = stir(&mut world, store).await;
    for _ in 0..2 {
        let compacted = store.compact().await.unwrap();
        assert!(compacted.rows_moved >= 1 && compacted.rows_failed == 0, "{compacted:?}");
        check(&store, "large").await;
        check_counters(&world.index.current.lock());
        store = check_rebuild(&mut world, store).await;
        check(&store, "large").await;
        store = stir(&mut world, store).await;
    }
}

#[tokio::test]
async fn copies_share_their_bytes_after_the_move() {
    let (mut world, mut store) = large(202).await;
    store.copy_object(copy_request("large", "copy")).await.unwrap();
    store = stir(&mut world, store).await;
    let before = store.status().written_bytes;
    for _ in 0..2 {
        assert_eq!(store.compact().await.unwrap().rows_failed, 0);
        for name in ["copy", "large"] {
            check(&store, name).await;
        }
        check_counters(&world.index.current.lock());
        store = check_rebuild(&mut world, store).await;
        store = stir(&mut world, store).await;
    }
    assert!(store.status().written_bytes < before, "{:?}", store.status());
}

#[test]
fn whoever_writes_meanwhile_wins_and_the_parts_are_ended() {
    // One step is one poll of one task.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().event_interval(1).build().unwrap();
    runtime.block_on(overwrite_while_it_moves());
}

async fn overwrite_while_it_moves() {
    let (mut changed, mut polls) = (0, 3);
    loop {
        let (mut world, mut store) = large(203).await;
        let task = tokio::spawn({
            let store = store.clone();
            async move { store.compact().await }
        });
        for _ in 0..polls {
            tokio::task::yield_now().await;
        }
        let is_done = task.is_finished();
        let deletes = polls % 2 == 0;
        if deletes {
            delete(&store, "bucket", "large").await;
        } else {
            put(&store, "bucket", "large", &bytes(7, 1000)).await;
        }
        changed += task.await.unwrap().unwrap().rows_changed;
        assert_eq!(parts_left(&world), 0, "{polls}");
        for _ in 0..2 {
            let got = get(&store, "bucket", "large").await;
            assert_eq!(got.ok(), (!deletes).then(|| bytes(7, 1000)), "{polls}");
            store = check_rebuild(&mut world, store).await;
        }
        store.shutdown().await;
        if is_done {
            break;
        }
        polls += 1 + polls / 4;
    }
    assert!(changed > 3, "{changed}: some of them came while it was moved");
}

/// A crash at any step of any disk: what was moved so far is given up, and nothing of it is left.
#[tokio::test]
async fn a_crash_at_any_step_loses_nothing_and_leaves_nothing() {
    let mut left_over = 0;
    let mut steps = 1;
    loop {
        let (mut world, mut store) = large(204).await;
        world.power.cut_after(steps);
        let outcome = store.compact().await;
        let is_done = !world.power.is_out();
        assert!(!is_done || outcome.is_ok(), "{outcome:?}");
        store = world.crash_and_open(store, steps as usize % 7).await;
        check(&store, "large").await;
        check_counters(&world.index.current.lock());
        left_over += parts_left(&world);
        store = check_rebuild(&mut world, store).await;
        check(&store, "large").await;
        assert_eq!(store.compact().await.unwrap().rows_failed, 0);
        assert_eq!(parts_left(&world), 0);
        check(&store, "large").await;
        store = check_rebuild(&mut world, store).await;
        store.shutdown().await;
        if is_done {
            break;
        }
        steps += 1 + steps / 3;
    }
    assert!(left_over > 0, "some crashes came in the middle of a move");
}
