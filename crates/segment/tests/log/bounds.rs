//! The bounds of DESIGN §8, counted.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::{Either, join_all, select};
use gabion_erasure::crc64;
use gabion_segment::{Durability, NewRecord};

use crate::book::Book;
use crate::world::{World, life, pattern, put, record, steps};

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

#[test]
fn a_lone_record_goes_at_once() {
    let mut world = World::new("4+2", 2);
    life(async {
        let book = Arc::new(Book::default());
        let (log, _) = world.start(&book).await;
        for name in 0..5 {
            // The clock stands still: whoever waited for a timer would wait for ever.
            put(&log, name, 100).await.unwrap();
        }
        assert_eq!(log.metrics().small_stripes.get(), 5);
    });
}

#[test]
fn what_waits_for_no_disk_is_written_in_halves() {
    for (durability, disk_is_slow, is_moved, stripes) in [
        (Durability::Relaxed, false, false, 4),
        (Durability::Relaxed, false, true, 1),
        (Durability::Relaxed, true, false, 1),
        (Durability::Sync, false, false, 1),
    ] {
        let mut world = World::new("4+2", 7);
        world.config.small_lanes = 1;
        world.config.durability = durability;
        let clock = Arc::clone(&world.clock);
        life(async {
            let (log, _) = world.start(&Arc::new(Book::default())).await;
            let time_passes = async {
                loop {
                    steps(1).await;
                    clock.advance(Duration::from_millis(if disk_is_slow { 2 } else { 0 }));
                }
            };
            // What the first stripe took says how the next are cut.
            let put = async |name| {
                let record = record(name, 4096);
                if is_moved { log.commit_moved(record).await } else { log.commit(record).await }
            };
            let is_put = matches!(select(pin!(put(0)), pin!(time_passes)).await, Either::Left((Ok(_), _)));
            assert!(is_put);
            let outcomes = join_all((1..=100).map(put)).await;
            assert!(outcomes.iter().all(Result::is_ok));
            // 50, 25, 24 and the last.
            let written = log.metrics().small_stripes.get() - 1;
            assert_eq!(written, stripes, "{durability:?}, slow: {disk_is_slow}, moved: {is_moved}");
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
