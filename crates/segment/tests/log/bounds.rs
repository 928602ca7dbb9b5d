//! The bounds of DESIGN §8, counted.

use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::{Either, join_all, select};
use gabion_erasure::crc64;
use gabion_platform::{Disk, ManualClock};
use gabion_segment::{Durability, Log, NewRecord};
use tokio::time::Instant;

use crate::book::Book;
use crate::world::{World, append, life, pattern, put, record, steps};

#[test]
fn concurrent_commits_form_few_stripes() {
    let mut world = World::new("4+2", 1);
    world.config.small_lanes = 2;
    life(async {
        let book = Arc::new(Book::default());
        let (log, _) = world.start(&book).await;
        let outcomes = join_all((0..64).map(|name| put(&log, name, 4096))).await;
        assert!(outcomes.iter().all(Result::is_ok));
        assert_eq!(log.metrics().small_records.get(), 64);
        assert!(log.metrics().small_stripes.get() <= 2, "{}", log.metrics().small_stripes.get());
        assert!(log.metrics().syncs.get() <= 12, "{}", log.metrics().syncs.get());
    });
}

/// A world with one lane for small records, and its clock.
fn of_one_lane(durability: Durability) -> (World, Arc<ManualClock>) {
    let mut world = World::new("4+2", 7);
    world.config.small_lanes = 1;
    world.config.durability = durability;
    let clock = Arc::clone(&world.clock);
    (world, clock)
}

/// Puts a record in each of `names` at a time, on a disk that takes 2 ms for a stripe, or none.
async fn put_on(log: &Log, clock: &ManualClock, disk_is_slow: bool, is_moved: bool, names: Range<u64>) {
    let puts = join_all(names.map(async |name| {
        let record = record(name, 4096);
        if is_moved { log.commit_moved(record).await } else { log.commit(record).await }
    }));
    let outcomes = if disk_is_slow {
        let time_passes = async {
            loop {
                steps(1).await;
                clock.advance(Duration::from_millis(2));
            }
        };
        let Either::Left((outcomes, _)) = select(pin!(puts), pin!(time_passes)).await;
        outcomes
    } else {
        puts.await
    };
    assert!(outcomes.iter().all(Result::is_ok));
}

/// Puts a record on a disk that takes no time: how long it waited for others.
async fn waits(log: &Log, clock: &ManualClock, is_moved: bool, name: u64) -> Duration {
    let before = Instant::now();
    put_on(log, clock, false, is_moved, name..name + 1).await;
    before.elapsed()
}

#[test]
fn a_lone_record_goes_at_once() {
    let (mut world, clock) = of_one_lane(Durability::Sync);
    life(async {
        let book = Arc::new(Book::default());
        let (log, _) = world.start(&book).await;
        for name in 0..4 {
            put_on(&log, &clock, true, false, name..name + 1).await;
        }
        // However long the last ones took.
        assert_eq!(waits(&log, &clock, false, 4).await, Duration::ZERO);
        assert_eq!(log.metrics().small_stripes.get(), 5);
        assert_eq!(log.metrics().held_us.snapshot().buckets.iter().sum::<u64>(), 0);
    });
}

#[test]
fn what_waits_for_no_disk_is_written_in_halves() {
    for (durability, disk_is_slow, is_moved, stripes) in [
        // 50, 25, 24 and the last.
        (Durability::Relaxed, false, false, 4),
        (Durability::Relaxed, false, true, 1),
        (Durability::Relaxed, true, false, 1),
        (Durability::Sync, false, false, 1),
    ] {
        let (mut world, clock) = of_one_lane(durability);
        life(async {
            let (log, _) = world.start(&Arc::new(Book::default())).await;
            // What the first stripe took says how the next are cut.
            put_on(&log, &clock, disk_is_slow, is_moved, 0..1).await;
            put_on(&log, &clock, false, is_moved, 1..101).await;
            let written = log.metrics().small_stripes.get() - 1;
            assert_eq!(written, stripes, "{durability:?}, slow: {disk_is_slow}, moved: {is_moved}");
        });
    }
}

#[test]
fn who_write_together_are_waited_for_where_stripes_wait_long_for_a_disk() {
    for (durability, slow, is_moved, is_waited_for) in [
        (Durability::Sync, [true, true], false, true),
        (Durability::Sync, [true, true], true, false),
        // One stripe alone may have been held up.
        (Durability::Sync, [true, false], false, false),
        (Durability::Sync, [false, true], false, false),
        (Durability::Relaxed, [true, true], false, false),
    ] {
        let (mut world, clock) = of_one_lane(durability);
        life(async {
            let (log, _) = world.start(&Arc::new(Book::default())).await;
            for (at, disk_is_slow) in (0..).zip(slow) {
                put_on(&log, &clock, disk_is_slow, is_moved, 8 * at..8 * (at + 1)).await;
            }
            // Of eight who write one is here.
            let waited = waits(&log, &clock, is_moved, 100).await;
            assert_eq!(waited > Duration::ZERO, is_waited_for, "{durability:?}, slow: {slow:?}, moved: {is_moved}");
            assert_eq!(log.metrics().held_us.snapshot().buckets.iter().sum::<u64>(), u64::from(is_waited_for));
        });
    }
}

#[test]
fn who_come_one_after_the_other_share_a_stripe_where_stripes_wait_long_for_a_disk() {
    let (mut world, clock) = of_one_lane(Durability::Sync);
    life(async {
        let (log, _) = world.start(&Arc::new(Book::default())).await;
        put_on(&log, &clock, true, false, 0..8).await;
        put_on(&log, &clock, true, false, 8..16).await;
        let stripes = log.metrics().small_stripes.get();
        // Of eight who write seven are waited for.
        let puts = join_all((16..23_u64).map(async |name| {
            tokio::time::sleep(Duration::from_micros(100 * (name - 16))).await;
            put(&log, name, 4096).await
        }));
        assert!(puts.await.iter().all(Result::is_ok));
        assert_eq!(log.metrics().small_stripes.get() - stripes, 1);
    });
}

#[test]
fn chunks_fill_their_places_unless_they_are_much_shorter() {
    let mut world = World::new("4+2", 9);
    world.config.prewrite_records_max = 0;
    life(async {
        let book = Arc::new(Book::default());
        let (log, _) = world.start(&book).await;
        let (mut places, mut written) = (Vec::new(), Vec::new());
        // Of a lone record one data shard has all, and the others have a block for their headers. They lack one, and then four.
        for (name, len) in (0..).zip([3000, 15_000, 3000]) {
            let committed = put(&log, name, len).await.unwrap();
            places.push(committed.extents[0].stripe_offset);
            written.push(log.metrics().stored_bytes.get());
        }
        assert_eq!((places[1] - places[0], written[0]), (4096, 6 * 4096));
        assert_eq!((places[2] - places[1], written[1] - written[0]), (4 * 4096, 3 * 4 * 4096 + 3 * 4096));
        let before = written[2];
        put(&log, 3, 4096).await.unwrap();
        assert_eq!(log.metrics().stored_bytes.get() - before, 6 * 8192);
        // Three of four shards lack two blocks of the second row of cells, or fourteen.
        let before = log.metrics().stored_bytes.get();
        append(&log, 1, 4 * 65_536 + 12_000).await.unwrap();
        let place = 65_536 + 3 * 4096;
        assert_eq!(log.metrics().stored_bytes.get() - before, 6 * place);
        let before = log.metrics().stored_bytes.get();
        append(&log, 2, 4 * 65_536 + 60_000).await.unwrap();
        let place = 65_536 + 15 * 4096;
        assert_eq!(log.metrics().stored_bytes.get() - before, 3 * place + 3 * (place - 14 * 4096));
    });
}

#[test]
fn shards_of_synced_records_have_two_extents_where_they_would_have_three() {
    // MiB that a shard is to have by the settings, as large ones do, and that one of small records has.
    let lens = [("4+2", 256, 112), ("3+1", 384, 384), ("8+2", 100, 100), ("8+2", 128, 112)];
    for ((geometry, mib, small), durability) in
        lens.into_iter().flat_map(|lens| [Durability::Sync, Durability::Relaxed].map(|it| (lens, it)))
    {
        let mut world = World::new(geometry, 9);
        world.config.durability = durability;
        world.config.segment_payload_bytes = world.config.geometry.data() as u64 * (mib << 20);
        let is_full = durability == Durability::Relaxed || small == mib;
        life(async {
            let book = Arc::new(Book::default());
            let (log, _) = world.start(&book).await;
            put(&log, 1, 4096).await.unwrap();
            append(&log, 2, 65_536).await.unwrap();
            let mut lens = Vec::new();
            for disk in &world.disks {
                for path in disk.paths().into_iter().filter(|path| path.starts_with("segments/")) {
                    lens.push(disk.open(&path).await.unwrap().len().await.unwrap());
                }
            }
            lens.sort_unstable();
            let (shards, full) = (world.disks.len(), (mib << 20) + 2 * 4096);
            let small = if is_full { full } else { small << 20 };
            assert_eq!(lens, [vec![small; shards], vec![full; shards]].concat(), "{geometry} {durability:?}");
        });
    }
}

#[test]
fn bytes_written_under_load_stay_within_the_bound() {
    for geometry in ["1+0", "2+1", "4+2"] {
        let mut world = World::new(geometry, 3);
        world.config.small_lanes = 2;
        world.config.segment_payload_bytes = 64 << 20;
        let (data, shards) = (world.config.geometry.data() as f64, world.config.geometry.shards() as f64);
        life(async {
            let book = Arc::new(Unverified);
            let (log, _) = world.open(vec![]).await.unwrap();
            log.start(book);
            let puts = 50_u64;
            join_all((0..64_u64).map(|client| {
                let log = log.clone();
                async move {
                    for put in 0..puts {
                        let data = pattern(client * puts + put, 4096);
                        let data_crc64 = crc64(&data);
                        let mutation = Bytes::from(vec![b'm'; 400]);
                        let record = NewRecord { mutation, data: vec![Bytes::from(data)], data_crc64 };
                        log.commit(record).await.unwrap();
                    }
                }
            }))
            .await;
            let bound = 1.25 * (shards / data) * (64.0 * puts as f64) * (4096.0 + 512.0);
            let written = (log.metrics().stored_bytes.get() + log.metrics().prewritten_bytes.get()) as f64;
            assert!(written <= bound, "{geometry}: {written} bytes, {:.2} of the bound", written / bound);
            let syncs = log.metrics().syncs.get();
            assert!(syncs < 64 * puts / 2, "{geometry}: {syncs} syncs");
            // One file per shard and segment, none per object.
            assert!(world.shard_files().len() <= 100, "{geometry}");
        });
    }
}

struct Unverified;

impl gabion_segment::Applier for Unverified {
    fn apply(&self, _: &gabion_segment::AppliedStripe) -> Result<(), gabion_segment::ApplyError> {
        Ok(())
    }

    fn segment_changed(&self, _: gabion_segment::SegmentChange) -> Result<(), gabion_segment::ApplyError> {
        Ok(())
    }
}
