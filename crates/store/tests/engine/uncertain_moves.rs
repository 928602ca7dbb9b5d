//! Moves of which nobody knows whether they took effect: the targets went away while their records were written, and may have the last of them whole, without the seal that cuts it
//! off. The index knows better; one that is made anew before the next start takes such a move for done. Then what was deleted since must stay deleted, and what the move refers to must be
//! there.

use std::collections::BTreeMap;

use gabion_metadata::{
    Table, keys,
    rows::{ObjectRow, Row},
};
use gabion_store::{Store, StoreError};
use gabion_types::SegmentId;

use crate::harness::*;

/// The same in both tests: the steps at which one finds moves are those at which the other deletes what did not move.
const SEED: u64 = 601;
const OBJECTS: u64 = 4;
/// Each lies in stripes of its own, and moves with a record of its own.
const SIZE: usize = 1_100_000;
/// All of the objects fit into one.
const SEGMENT_BYTES: u64 = 6 << 20;

/// Objects in sealed segments in which something is dead.
async fn partly_dead() -> (World, Store) {
    let mut config = config(1, 0);
    config.compaction.live_ratio_max = 1.0;
    (config.log.small_lanes, config.log.large_lanes) = (1, 1);
    config.log.segment_payload_bytes = SEGMENT_BYTES;
    let mut world = World::new(SEED, config);
    let store = world.open().await;
    store.create_bucket(bucket("bucket"), None).await.unwrap();
    for number in 0..OBJECTS {
        put(&store, "bucket", &format!("{number}"), &bytes(number, SIZE)).await;
    }
    put(&store, "bucket", "dead", &bytes(0, SIZE)).await;
    delete(&store, "bucket", "dead").await;
    let store = world.restart(store).await;
    (world, store)
}

/// The segment of each object's record.
fn homes(world: &World) -> BTreeMap<String, SegmentId> {
    let rows = world.rows().into_iter().filter(|(table, ..)| *table == Table::Object);
    let home = |(_, key, row): (Table, Vec<u8>, Vec<u8>)| {
        (keys::decode_object(&key).unwrap().1.to_owned(), ObjectRow::decode(&row).unwrap().home.segment)
    };
    rows.map(home).collect()
}

/// A round in which the targets go away before this step, and come back after it; nothing if it came to its end before.
async fn away_in_a_round(step: u64) -> Option<(World, Store)> {
    let (world, store) = partly_dead().await;
    world.power.cut_after(step);
    let _ = store.compact().await;
    let went_away = world.power.is_out();
    world.restore_power();
    went_away.then_some((world, store))
}

/// Makes the index anew, of what the store leaves; tells whether a move was found that the index had not.
async fn rebuild(world: &World, store: Store) -> (Store, bool) {
    let before = homes(world);
    let store = world.rebuild(store).await;
    let found = homes(world) != before;
    (store, found)
}

#[tokio::test]
async fn what_they_refer_to_is_there_when_they_are_found() {
    let (mut step, mut found) = (0, 0);
    while let Some((world, store)) = away_in_a_round(step).await {
        store.free_dead_segments().await.unwrap();
        let (store, was_found) = rebuild(&world, store).await;
        found += u32::from(was_found);
        for number in 0..OBJECTS {
            assert_eq!(get(&store, "bucket", &format!("{number}")).await.unwrap(), bytes(number, SIZE), "{step}");
        }
        store.shutdown().await;
        step += 1;
    }
    assert!(found > 0, "none of {step}");
}

#[tokio::test]
async fn what_was_deleted_since_does_not_come_back_with_them() {
    let (mut step, mut are_freed) = (0, 0);
    while let Some((world, store)) = away_in_a_round(step).await {
        let homes = homes(&world);
        let first = *homes.values().min().unwrap();
        // What did not move is deleted, and no segment that was there before is needed any more.
        let (deleted, moved): (Vec<_>, Vec<_>) = homes.into_iter().partition(|(_, home)| *home == first);
        for (name, _) in &deleted {
            delete(&store, "bucket", name).await;
        }
        // The segment of the deletions is sealed, and dead as well: they are carried or forgotten.
        let filler = bytes(0, 1_000_000);
        for _ in 0..=SEGMENT_BYTES / 1_000_000 + 1 {
            put(&store, "bucket", "filler", &filler).await;
        }
        store.free_dead_segments().await.unwrap();
        are_freed += u32::from(!moved.is_empty() && !world.segment_rows().contains_key(&first));
        let (store, _) = rebuild(&world, store).await;
        for (name, _) in &deleted {
            let found = get(&store, "bucket", name).await;
            assert!(matches!(found, Err(StoreError::NoSuchKey)), "{name} after {step}: {found:?}");
        }
        for (name, _) in &moved {
            assert_eq!(get(&store, "bucket", name).await.unwrap(), bytes(name.parse().unwrap(), SIZE), "{step}");
        }
        store.shutdown().await;
        step += 1;
    }
    assert!(are_freed > 0, "none of {step}");
}
