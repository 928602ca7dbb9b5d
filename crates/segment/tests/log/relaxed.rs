//! Relaxed durability: a process may die, a power cut takes what was not synced, and nothing half.

use std::pin::pin;
use std::sync::Arc;

use futures::future::{join, join_all};
use futures::poll;
use gabion_platform::FaultRates;
use gabion_segment::{Durability, LogError};

use crate::book::{Book, Page};
use crate::world::{World, append, life, pattern, put, read};

fn world(geometry: &str, seed: u64) -> World {
    let mut world = World::new(geometry, seed);
    world.config.durability = Durability::Relaxed;
    world
}

#[test]
fn a_dead_process_loses_nothing() {
    for geometry in ["1+0", "4+2"] {
        let mut world = world(geometry, 1);
        let book = Arc::new(Book::default());
        let extent = life(async {
            let (log, _) = world.start(&book).await;
            join_all((0..20).map(|name| put(&log, name, 3000)))
                .await
                .into_iter()
                .for_each(|outcome| drop(outcome.unwrap()));
            assert_eq!(log.metrics().syncs.get(), 0);
            append(&log, 1, 100_000).await.unwrap()
        });
        world.kill();
        for page in [Page::default(), book.snapshot()] {
            let rebuilt = Arc::new(Book::from_page(page));
            life(async {
                let (log, _) = world.start(&rebuilt).await;
                assert_eq!(rebuilt.mutations(), book.mutations());
                rebuilt.verify(&log).await;
                assert!(read(&log, &extent, 0..extent.len).await.unwrap() == pattern(1, 100_000));
            });
            world.kill();
        }
    }
}

#[test]
fn what_was_synced_survives_power_loss_and_the_rest_is_whole_or_gone() {
    let mut ahead = 0;
    for geometry in ["1+0", "2+1", "4+2"] {
        for seed in 0..30 {
            let context = format!("{geometry}, seed {seed}");
            let mut world = world(geometry, seed);
            let book = Arc::new(Book::default());
            let checkpoint = life(async {
                let (log, _) = world.start(&book).await;
                for name in 0..6 {
                    put(&log, name, 30_000).await.unwrap();
                }
                log.sync().await.unwrap();
                let checkpoint = book.snapshot();
                for name in 6..12 {
                    put(&log, name, 30_000).await.unwrap();
                }
                checkpoint
            });
            world.crash(seed);
            // An index that kept more than its checkpoint may be ahead of the media: that must be seen.
            let mut survivor =
                Arc::new(Book::from_page(if seed % 2 == 0 { book.snapshot() } else { checkpoint.clone() }));
            life(async {
                match world.open(survivor.known()).await {
                    Ok(_) => {}
                    Err(LogError::IndexAhead { .. }) => {
                        assert_eq!(seed % 2, 0, "{context}: the checkpoint was synced");
                        ahead += 1;
                        survivor = Arc::new(Book::default());
                    }
                    Err(other) => panic!("{context}: {other}"),
                }
            });
            world.kill();
            life(async {
                let (log, _) = world.start(&survivor).await;
                survivor.verify(&log).await;
                let found = survivor.mutations();
                for (seq, record) in &checkpoint.records {
                    assert!(found.contains_key(seq), "{context}: {record:?} was synced");
                }
                // What is left is the front of what was written.
                let all: Vec<_> = book.mutations().into_iter().collect();
                let left: Vec<_> = found.into_iter().collect();
                assert_eq!(left[..], all[..left.len()], "{context}");
            });
        }
    }
    assert!(ahead > 0, "the test tests nothing");
}

#[test]
fn a_failed_sync_is_an_error_of_the_checkpoint() {
    let mut world = world("1+0", 3);
    life(async {
        let book = Arc::new(Book::default());
        let (log, _) = world.start(&book).await;
        put(&log, 1, 100).await.unwrap();
        world.disks[0].fail_syncs(1, std::io::ErrorKind::Other);
        assert!(matches!(log.sync().await, Err(LogError::Unavailable(_))));
        assert!(matches!(log.sync().await, Err(LogError::Unavailable(_))));
        assert!(matches!(put(&log, 2, 100).await, Err(LogError::Unavailable(_))));
    });
}

#[test]
fn with_parity_a_failed_sync_costs_a_shard_only() {
    let mut world = world("2+1", 4);
    let book = Arc::new(Book::default());
    life(async {
        let (log, _) = world.start(&book).await;
        put(&log, 1, 100).await.unwrap();
        world.disks[0].fail_syncs(1, std::io::ErrorKind::Other);
        log.sync().await.unwrap();
        assert_eq!(log.status().repairs.len(), 1);
    });
    world.crash(1);
    let rebuilt = Arc::new(Book::default());
    life(async {
        let (log, _) = world.start(&rebuilt).await;
        assert_eq!(rebuilt.mutations(), book.mutations());
        rebuilt.verify(&log).await;
    });
}

#[test]
fn an_error_of_a_sync_is_noted_though_nobody_waits_for_it() {
    let mut left = 0;
    for seed in 0..20 {
        let mut world = world("1+0", seed);
        life(async {
            let book = Arc::new(Book::default());
            let (log, _) = world.start(&book).await;
            put(&log, 1, 100).await.unwrap();
            world.disks[0].fail_syncs(1, std::io::ErrorKind::Other);
            world.disks[0].set_rates(FaultRates { slow_turns_max: 20, ..FaultRates::default() });
            // Whoever waits for it goes away, if it is not there at once.
            left += u32::from(poll!(pin!(log.sync())).is_pending());
            // The drive says it once.
            assert!(matches!(log.sync().await, Err(LogError::Unavailable(_))), "seed {seed}");
        });
    }
    assert!(left > 0, "the test tests nothing");
}

#[test]
fn a_sync_covers_only_what_was_written_before_it() {
    let mut amid = 0;
    for seed in 0..20 {
        let mut world = world("1+0", seed);
        world.config.large_lanes = 1;
        life(async {
            let book = Arc::new(Book::default());
            let (log, _) = world.start(&book).await;
            let segment = append(&log, 1, 100_000).await.unwrap().segment;
            world.disks[0].set_rates(FaultRates { slow_turns_max: 20, ..FaultRates::default() });
            let segments = [segment];
            let mut first = pin!(log.sync_segments(&segments));
            assert!(poll!(&mut first).is_pending());
            let later = append(&log, 2, 100_000).await.unwrap();
            assert_eq!(later.segment, segment);
            let is_amid = poll!(&mut first).is_pending();
            if is_amid {
                first.await.unwrap();
            }
            assert_eq!(log.metrics().syncs.get(), 1, "seed {seed}");
            log.sync_segments(&segments).await.unwrap();
            assert_eq!(log.metrics().syncs.get(), 2, "seed {seed}");
            amid += u32::from(is_amid);
        });
    }
    assert!(amid > 0, "the test tests nothing");
}

#[test]
fn those_who_wait_for_a_sync_share_the_next_one() {
    let mut world = world("1+0", 6);
    world.config.large_lanes = 1;
    life(async {
        let book = Arc::new(Book::default());
        let (log, _) = world.start(&book).await;
        let mut segments = Vec::new();
        for name in 0..16 {
            segments.push(append(&log, name, 100_000).await.unwrap().segment);
        }
        // Others write meanwhile.
        world.disks[0].set_rates(FaultRates { slow_turns_max: 20, ..FaultRates::default() });
        let others = join_all((16..48).map(|name| append(&log, name, 100_000)));
        let syncs = join_all(segments.iter().map(|segment| log.sync_segments(std::slice::from_ref(segment))));
        let (others, synced) = join(others, syncs).await;
        assert!(others.iter().all(Result::is_ok) && synced.iter().all(Result::is_ok));
        assert!((1..=2).contains(&log.metrics().syncs.get()), "{}", log.metrics().syncs.get());
    });
}
