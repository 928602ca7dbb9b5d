//! Writers on a nearly full disk wait for room that compaction makes, and no longer than it makes some.

use futures::{StreamExt, stream};
use gabion_store::{GetObject, ObjectBody, Store, StoreConfig, StoreError};
use tokio::time::Instant;

use crate::{compaction::check_rebuild, harness::*};

const SEGMENT_BYTES: u64 = 1 << 20;
const DISK_BYTES: u64 = 48 * SEGMENT_BYTES;
/// Bytes that all clients together have under way: what they overwrite is still there meanwhile.
const IN_FLIGHT_BYTES: usize = 4 << 20;
const WAIT_MS: u64 = 20_000;

/// A disk of 48 segments; compaction begins when somebody waits for it, and not by itself.
fn small_disk(writers_wait_ms: u64) -> StoreConfig {
    let mut config = config(1, 0);
    config.log.segment_payload_bytes = SEGMENT_BYTES;
    config.log.small_lanes = 1;
    config.log.large_lanes = 1;
    config.log.target_reserve_bytes = 6 * SEGMENT_BYTES;
    config.compaction.writers_wait_ms = writers_wait_ms;
    config
}

async fn nearly_full(seed: u64, config: StoreConfig) -> (World, Store) {
    let world = World::new(seed, config);
    world.disks[0].full_at(DISK_BYTES);
    let store = world.open().await;
    store.create_bucket(bucket("bucket"), None).await.unwrap();
    (world, store)
}

async fn try_put(store: &Store, name: &str, seed: u64, size: usize) -> Result<(), StoreError> {
    store.put_object(put_request("bucket", name), ObjectBody::from_bytes(bytes(seed, size))).await.map(drop)
}

/// As many as leave six segments or so beside the reserve, with headers and padding.
fn objects(size: usize) -> u64 {
    32 * SEGMENT_BYTES / (size as u64 * 5 / 4 + 4096)
}

/// Overwrites all objects in an order of its own, twice; counts what was refused.
async fn churn(store: &Store, objects: u64, size: usize) -> usize {
    let writes = (0..2 * objects).map(|number| (number, number * 37 % objects));
    let writes = stream::iter(writes).map(|(number, key)| async move {
        if number % 10 == 9 {
            delete(store, "bucket", &key.to_string()).await;
        }
        usize::from(try_put(store, &key.to_string(), number, size).await.is_err())
    });
    writes.buffer_unordered((IN_FLIGHT_BYTES / size).min(16)).fold(0, |refused, one| async move { refused + one }).await
}

#[tokio::test(start_paused = true)]
async fn writers_get_room_as_fast_as_compaction_makes_it() {
    let large = (1 << 20) + (100 << 10);
    for (seed, size, objects) in [(1, 16 << 10, objects(16 << 10)), (2, 300 << 10, objects(300 << 10)), (3, large, 27)]
    {
        let (mut world, store) = nearly_full(seed, small_disk(WAIT_MS)).await;
        for key in 0..objects {
            try_put(&store, &key.to_string(), key, size).await.unwrap();
        }
        assert_eq!(churn(&store, objects, size).await, 0, "{size}");
        let metrics = store.metrics();
        assert!(metrics.writes_held_back.get() > 0 && metrics.writes_held_back_in_vain.get() == 0, "{size}");
        assert!(metrics.segments_freed.get() > 0, "{size}");
        let store = check_rebuild(&mut world, store).await;
        assert_eq!(keys(&store, "bucket").await.len() as u64, objects);
        for key in (0..objects).step_by(7) {
            let last = (0..2 * objects).filter(|number| number * 37 % objects == key).max().unwrap();
            assert_eq!(get(&store, "bucket", &key.to_string()).await.unwrap(), bytes(last, size), "{size}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_wait_they_are_refused() {
    let objects = objects(16 << 10);
    let (_world, store) = nearly_full(4, small_disk(0)).await;
    for key in 0..objects {
        try_put(&store, &key.to_string(), key, 16 << 10).await.unwrap();
    }
    assert!(churn(&store, objects, 16 << 10).await > 0);
    assert_eq!(store.metrics().writes_held_back.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn where_nothing_can_be_gained_nobody_waits() {
    let (_world, store) = nearly_full(5, small_disk(WAIT_MS)).await;
    let began = Instant::now();
    let mut stored = 0;
    let refused = loop {
        match try_put(&store, &stored.to_string(), stored, 100_000).await {
            Ok(()) => stored += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, StoreError::NoSpace), "{refused}");
    assert_eq!((began.elapsed().as_millis(), store.metrics().writes_held_back.get()), (0, 0));
    // All but the reserve was used.
    assert!(stored * 100_000 > DISK_BYTES - 10 * SEGMENT_BYTES, "{stored}");
    assert!(!store.status().holds_back);
}

/// Deletions take no room that others wait for; what they free lets writers in.
#[tokio::test(start_paused = true)]
async fn deletions_go_on_and_let_writers_in() {
    let (_world, store) = nearly_full(6, small_disk(WAIT_MS)).await;
    let mut stored = 0_u64;
    while try_put(&store, &stored.to_string(), stored, 100_000).await.is_ok() {
        stored += 1;
    }
    let began = Instant::now();
    for key in 0..stored / 2 {
        assert!(delete(&store, "bucket", &key.to_string()).await);
    }
    for key in 0..stored / 4 {
        try_put(&store, &format!("new {key}"), key, 100_000).await.unwrap();
    }
    assert!(began.elapsed().as_millis() < u128::from(WAIT_MS));
}

/// What large bodies have written before they are complete can not be reclaimed: they must not wait for each other.
#[tokio::test(start_paused = true)]
async fn bodies_of_all_sizes_get_through() {
    const SIZES: [usize; 8] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 512 << 10, 1200 << 10, 2 << 20, 4 << 20];
    const CLIENTS: usize = 16;
    const SEGMENT_BYTES: u64 = 2 << 20;
    for seed in 0..6 {
        let mut config = small_disk(WAIT_MS);
        config.log.segment_payload_bytes = SEGMENT_BYTES;
        config.log.target_reserve_bytes = 6 * SEGMENT_BYTES;
        config.log.stripe_payload_bytes = 256 << 10;
        config.compaction.punch_holes = seed % 2 == 0;
        config.compaction.interval_ms = 1000;
        let (mut world, store) = nearly_full(seed, config).await;
        world.disks[0].full_at(48 * SEGMENT_BYTES);
        let size = |key: u64| SIZES[key as usize % SIZES.len()];
        // Of 48 segments, of which six are kept.
        let objects = (30 + seed) * SEGMENT_BYTES * SIZES.len() as u64 / SIZES.iter().sum::<usize>() as u64;
        for key in 0..objects {
            try_put(&store, &key.to_string(), key, size(key)).await.unwrap();
        }
        let writes = (0..3 * objects).map(|number| (number, (number + seed) * 37 % objects));
        let outcomes = stream::iter(writes).map(|(number, key)| {
            let store = &store;
            async move {
                let began = Instant::now();
                let outcome = try_put(store, &key.to_string(), number, size(key)).await;
                let waited = began.elapsed().as_millis() as u64;
                // One wait for a body, and a moment for its turns at the disk.
                assert!(waited <= WAIT_MS + 1000, "seed {seed}, {number}: {waited} ms");
                usize::from(outcome.is_err())
            }
        });
        let refused = outcomes.buffer_unordered(CLIENTS).fold(0, |sum, one| async move { sum + one }).await;
        let metrics = store.metrics();
        assert_eq!((refused, metrics.writes_held_back_in_vain.get()), (0, 0), "seed {seed}");
        assert!(metrics.writes_held_back.get() > 0, "seed {seed}");
        let store = check_rebuild(&mut world, store).await;
        assert_eq!(store.status().writers_waiting, 0);
    }
}

/// When a slow reader lets go of what it reads nobody knows: nobody waits for that, either.
#[tokio::test(start_paused = true)]
async fn what_a_reader_keeps_is_nothing_to_wait_for() {
    let (_world, store) = nearly_full(7, small_disk(WAIT_MS)).await;
    put(&store, "bucket", "read", &bytes(1, 20 << 20)).await;
    let reader = store.get_object(GetObject::whole(bucket("bucket"), key("read"))).await.unwrap();
    delete(&store, "bucket", "read").await;
    store.free_dead_segments().await.unwrap();
    let began = Instant::now();
    let mut stored = 0;
    let refused = loop {
        match try_put(&store, &stored.to_string(), stored, 100_000).await {
            Ok(()) => stored += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, StoreError::NoSpace), "{refused}");
    assert_eq!((began.elapsed().as_millis(), store.metrics().writes_held_back.get()), (0, 0));
    drop(reader);
    let mut attempts = 0;
    while try_put(&store, "again", 1, 100_000).await.is_err() {
        tokio::task::yield_now().await;
        attempts += 1;
        assert!(attempts < 1000);
    }
}
