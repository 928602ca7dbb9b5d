//! Power loss before any step of any disk, in a round of compaction and while holes are punched: with the index and without it everything is what
//! it was, and the next round ends what was begun.

use gabion_store::{Compacted, Store};

use crate::{
    compaction::check_rebuild,
    harness::{truth::check_counters, *},
};

/// Objects that lie in stripes of their own, and ones that lie in records.
const LARGE: usize = 1_100_000;
const SMALL: usize = 30_000;
const OBJECTS: u64 = 6;

fn size(number: u64) -> usize {
    if number.is_multiple_of(2) { LARGE } else { SMALL }
}

fn is_live(number: u64) -> bool {
    number >= OBJECTS - 2
}

/// A third of what is in sealed segments is needed.
async fn third_live(seed: u64, punch_holes: bool) -> (World, Store) {
    let mut config = config(2, 1);
    config.compaction.punch_holes = punch_holes;
    (config.log.small_lanes, config.log.large_lanes) = (1, 1);
    let mut world = World::new(seed, config);
    let store = world.open().await;
    store.create_bucket(bucket("bucket"), None).await.unwrap();
    for i in 0..OBJECTS {
        put(&store, "bucket", &format!("{i}"), &bytes(i, size(i))).await;
    }
    for i in (0..OBJECTS).filter(|&i| !is_live(i)) {
        delete(&store, "bucket", &format!("{i}")).await;
    }
    let store = world.restart(store).await;
    (world, store)
}

async fn check(world: &World, store: &Store) {
    for i in 0..OBJECTS {
        let got = get(store, "bucket", &format!("{i}")).await;
        assert_eq!(got.ok(), is_live(i).then(|| bytes(i, size(i))), "{i}");
    }
    check_counters(&world.index.current.lock());
    let found = store.cross_check().await.unwrap();
    assert!(found.is_clean(), "{found:?}");
}

/// Cuts the power after `steps` steps of a round; tells what the round did if it came to its end.
async fn cut_after(seed: u64, punch_holes: bool, steps: u64) -> Option<Compacted> {
    let (mut world, mut store) = third_live(seed, punch_holes).await;
    world.power.cut_after(steps);
    let compacted = store.compact().await;
    // Removals of files that were begun go on by themselves.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    let is_done = !world.power.is_out();
    world.crash(store, steps as usize % 7).await;
    if steps.is_multiple_of(2) {
        world.lose_index();
    }
    store = world.open().await;
    check(&world, &store).await;
    store = check_rebuild(&mut world, store).await;
    check(&world, &store).await;
    let again = store.compact().await.unwrap();
    assert_eq!(again.rows_failed, 0);
    check(&world, &store).await;
    store = check_rebuild(&mut world, store).await;
    check(&world, &store).await;
    store.shutdown().await;
    is_done.then(|| compacted.unwrap())
}

async fn cut_at_every_step(seed: u64, punch_holes: bool) -> (Compacted, u64) {
    let (mut steps, mut cuts) = (0, 0);
    loop {
        if let Some(compacted) = cut_after(seed, punch_holes, steps).await {
            return (compacted, cuts);
        }
        cuts += 1;
        // Every step at first, then every few: odd and even ones in turn.
        steps += 1 + steps / 24 * 2;
    }
}

#[tokio::test]
async fn in_a_round() {
    let (compacted, cuts) = cut_at_every_step(400, false).await;
    assert!(compacted.rows_moved >= 2 && compacted.victims_freed >= 2, "{compacted:?}");
    assert!(cuts > 20, "{cuts}");
}

#[tokio::test]
async fn while_holes_are_punched() {
    let (compacted, cuts) = cut_at_every_step(401, true).await;
    assert!(compacted.punched_bytes > LARGE as u64, "{compacted:?}");
    assert!(cuts > 20, "{cuts}");
}
