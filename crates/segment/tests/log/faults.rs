//! Targets that fail while the log is open.

use std::io::ErrorKind;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use gabion_segment::inspect::{inspect_segment, inspect_target};
use gabion_segment::{Demand, Durability, LogError, TargetState};
use gabion_types::Geometry;

use crate::book::{Book, Page};
use crate::world::{World, append, life, pattern, put, read};

/// One fault at the moment of a write, and what must come of it.
#[derive(Debug, Clone, Copy)]
enum Fault {
    Write,
    Sync,
    Offline,
}

fn inject(world: &World, disk: usize, fault: Fault) {
    match fault {
        Fault::Write => world.disks[disk].fail_writes(1, ErrorKind::Other),
        Fault::Sync => world.disks[disk].fail_syncs(1, ErrorKind::Other),
        Fault::Offline => world.disks[disk].offline(true),
    }
}

#[test]
fn a_failed_chunk_is_gone_around() {
    // Geometry, number of targets, failing targets; whether the write is acknowledged.
    let table = [
        ("4+2", 6, 1, true),
        ("4+2", 6, 2, false),
        ("4+2", 8, 2, true),
        ("4+2", 8, 3, true),
        ("2+1", 3, 1, false),
        ("2+1", 4, 1, true),
        ("1+1", 2, 1, false),
        ("1+0", 1, 1, false),
        ("1+0", 2, 1, true),
    ];
    for fault in [Fault::Write, Fault::Sync, Fault::Offline] {
        for (geometry, disks, failing, acknowledged) in table {
            let context = format!("{geometry} on {disks}, {failing} fail by {fault:?}");
            let geometry: Geometry = geometry.parse().unwrap();
            let mut world = World::with_disks(geometry, disks, 1);
            let book = Arc::new(Book::default());
            let (first, second) = life(async {
                let (log, _) = world.start(&book).await;
                let first = put(&log, 1, 5000).await.unwrap();
                let used: Vec<usize> = (0..disks).filter(|disk| world.disks[*disk].paths().len() > 1).collect();
                used.iter().take(failing).for_each(|disk| inject(&world, *disk, fault));
                let second = put(&log, 2, 6000).await;
                assert_eq!(second.is_ok(), acknowledged, "{context}: {second:?}");
                let failed = log.status().targets.iter().filter(|target| target.state == TargetState::Failed).count();
                assert_eq!(failed, failing, "{context}");
                if let Ok(second) = &second {
                    assert_eq!(read(&log, &second.extents[0], 0..6000).await.unwrap(), pattern(2, 6000), "{context}");
                    put(&log, 3, 100).await.unwrap();
                }
                (first, second)
            });
            // Power fails, the index is lost: the acknowledged is there.
            for disk in &world.disks {
                disk.offline(false);
            }
            world.crash(7);
            let rebuilt = Arc::new(Book::default());
            life(async {
                let (log, _) = world.start(&rebuilt).await;
                rebuilt.verify(&log).await;
                let found = rebuilt.mutations();
                assert_eq!(found.get(&first.seq).map(String::as_str), Some("put 1 5000"), "{context}");
                if let Ok(second) = second {
                    assert_eq!(found.get(&second.seq).map(String::as_str), Some("put 2 6000"), "{context}");
                    assert_eq!(found.len(), 3, "{context}: the same record twice is one record");
                }
            });
        }
    }
}

#[test]
fn an_acknowledged_quorum_survives_the_loss_of_the_other_parity() {
    // 4+2: one chunk fails, five are durable; then one more target is lost for good.
    for lost in 0..6 {
        let mut world = World::new("4+2", 20 + lost as u64);
        let book = Arc::new(Book::default());
        let committed = life(async {
            let (log, _) = world.start(&book).await;
            put(&log, 1, 100).await.unwrap();
            world.disks[2].fail_syncs(1, ErrorKind::Other);
            put(&log, 2, 50_000).await.unwrap()
        });
        world.crash(lost as u64);
        world.absent = vec![lost];
        let rebuilt = Arc::new(Book::default());
        life(async {
            let (log, _) = world.start(&rebuilt).await;
            assert!(rebuilt.mutations().contains_key(&committed.seq), "without {lost}");
            rebuilt.verify(&log).await;
        });
    }
}

/// The page cache shows what the drive refused: neither repair, nor a scrub, nor the next start takes that for a whole shard. Whoever counts on it loses what was acknowledged
/// when the others fail that parity is there for.
#[test]
fn a_shard_whose_sync_failed_is_not_trusted_until_it_was_written_anew() {
    // How it is seen to: by repair, after a scrub, or by the next start, with or without its index.
    for (seen_to, fault) in (0..4).flat_map(|way| [(way, Fault::Write), (way, Fault::Sync)]) {
        let context = format!("way {seen_to}, {fault:?}");
        let mut world = World::new("4+2", 70 + seen_to);
        world.config.upkeep.repair_delay_ms = 0;
        let book = Arc::new(Book::default());
        let committed = life(async {
            let (log, _) = world.start(&book).await;
            put(&log, 1, 100).await.unwrap();
            inject(&world, 2, fault);
            let committed = put(&log, 2, 50_000).await.unwrap();
            assert_eq!(log.status().redundancy, [0, 1], "{context}");
            if seen_to < 2 {
                world.clock.advance(Duration::from_secs(31));
                if seen_to == 1 {
                    log.scrub_next(None).await.unwrap();
                    assert_eq!(log.status().redundancy, [0, 1], "{context}: reading proves nothing");
                }
                let pass = log.repair(false).await.unwrap();
                assert_eq!((pass.shards_built, pass.shards_good), (1, 0), "{context}");
                assert_eq!(log.status().redundancy, [1], "{context}");
            }
            committed
        });
        if seen_to >= 2 {
            world.kill();
            let book = if seen_to == 2 { Arc::clone(&book) } else { Arc::default() };
            life(async {
                let (log, _) = world.start(&book).await;
                assert_eq!(log.status().redundancy, [0, 1], "{context}");
                assert_eq!(log.repair(false).await.unwrap().shards_built, 1, "{context}");
                assert_eq!(log.status().redundancy, [1], "{context}");
            });
        }
        world.crash(seen_to);
        world.absent = vec![0, 5];
        let rebuilt = Arc::new(Book::default());
        life(async {
            let (log, recovery) = world.start(&rebuilt).await;
            assert!(recovery.unreadable.is_empty(), "{context}: {:?}", recovery.unreadable);
            assert!(rebuilt.mutations().contains_key(&committed.seq), "{context}");
            rebuilt.verify(&log).await;
        });
    }
}

/// What was relaxed may lack all that was written since the last sync. The segment ends for it, so that its seals say so: with the next stripe, when repair is asked for, or with the
/// process.
#[test]
fn a_relaxed_shard_whose_sync_failed_is_not_trusted_by_the_next_process() {
    for (seed, ended) in [(80, Ended::Written), (81, Ended::Repaired), (82, Ended::ShutDown)] {
        let mut world = World::new("4+2", seed);
        world.config.durability = Durability::Relaxed;
        world.config.upkeep.repair_delay_ms = 0;
        let book = Arc::new(Book::default());
        life(async {
            let (log, _) = world.start(&book).await;
            for name in 0..4 {
                put(&log, name, 5000).await.unwrap();
            }
            world.disks[2].fail_syncs(1, ErrorKind::Other);
            if ended == Ended::ShutDown {
                return log.shutdown().await;
            }
            log.sync().await.unwrap();
            world.clock.advance(Duration::from_secs(31));
            match ended {
                Ended::Written => drop(put(&log, 4, 100).await.unwrap()),
                // Whatever it finds to do yet.
                _ => drop(log.repair(false).await.unwrap()),
            }
            log.sync().await.unwrap();
            tokio::task::yield_now().await;
            log.shutdown().await;
        });
        let lacking = |log: &gabion_segment::Log| log.status().redundancy.get(1).copied().unwrap_or_default();
        // Also after one that did not come to repair.
        for _ in 0..2 {
            world.kill();
            life(async {
                let (log, _) = world.start(&book).await;
                assert_eq!(lacking(&log), 1, "{ended:?}: {:?}", log.status().redundancy);
            });
            life(async {
                let target = inspect_target(&world.targets()[0]).await.unwrap();
                let mut distrusted = 0;
                for segment in &target.segments {
                    let segment = inspect_segment(&world.targets(), segment.segment.parse().unwrap()).await.unwrap();
                    let seals = segment.shards.iter().filter_map(|shard| shard.seal.as_ref());
                    distrusted += seals.filter(|seal| seal.distrusted).count();
                }
                assert_eq!(distrusted, 1, "{ended:?}: operators are shown it");
            });
        }
        life(async {
            let (log, _) = world.start(&book).await;
            assert_eq!(log.repair(false).await.unwrap().shards_built, 1, "{ended:?}");
            assert_eq!(lacking(&log), 0, "{ended:?}");
        });
        world.crash(1);
        world.absent = vec![0, 5];
        let rebuilt = Arc::new(Book::default());
        life(async {
            let (log, recovery) = world.start(&rebuilt).await;
            assert!(recovery.unreadable.is_empty(), "{ended:?}: {:?}", recovery.unreadable);
            assert_eq!(rebuilt.mutations(), book.mutations(), "{ended:?}");
            rebuilt.verify(&log).await;
        });
    }
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Written,
    Repaired,
    ShutDown,
}

#[test]
fn a_voided_stripe_stays_void_and_its_retry_counts_once() {
    // Two of six chunks fail: the stripe could be complete on the media (four did not fail), but it was not acknowledged.
    for fault in [Fault::Write, Fault::Sync] {
        let mut world = World::new("4+2", 30);
        let book = Arc::new(Book::default());
        life(async {
            let (log, _) = world.start(&book).await;
            put(&log, 1, 100).await.unwrap();
            inject(&world, 0, fault);
            inject(&world, 1, fault);
            let refused = put(&log, 2, 5000).await;
            assert!(matches!(refused, Err(LogError::Unavailable(_))), "{refused:?}");
            assert_eq!(book.mutations().len(), 1);
        });
        for page in [Page::default(), book.snapshot()] {
            world.kill();
            let book = Arc::new(Book::from_page(page));
            life(async {
                let (log, _) = world.start(&book).await;
                let found: Vec<String> = book.mutations().into_values().collect();
                assert_eq!(found, ["put 1 100"], "{fault:?}");
                book.verify(&log).await;
            });
        }
    }
}

#[test]
fn a_failed_target_is_probed_again_after_its_time() {
    let mut world = World::new("1+0", 40);
    life(async {
        let book = Arc::new(Book::default());
        let (log, _) = world.start(&book).await;
        put(&log, 1, 100).await.unwrap();
        world.disks[0].fail_syncs(1, ErrorKind::Other);
        assert!(matches!(put(&log, 2, 100).await, Err(LogError::Unavailable(_))));
        // The disk is well again, but nobody asks it yet: nothing is written.
        let refused = put(&log, 3, 100).await;
        assert!(matches!(&refused, Err(error @ LogError::TooFewTargets(_)) if error.is_refusal()), "{refused:?}");
        world.clock.advance(Duration::from_secs(31));
        put(&log, 4, 100).await.unwrap();
        assert_eq!(log.status().targets[0].state, TargetState::Online);
        book.verify(&log).await;
        let names: Vec<String> = book.mutations().into_values().collect();
        assert_eq!(names, ["put 1 100", "put 4 100"]);
    });
}

#[test]
fn a_large_stripe_goes_around_a_failed_target() {
    let mut world = World::with_disks("2+1".parse().unwrap(), 4, 50);
    let book = Arc::new(Book::default());
    let extents = life(async {
        let (log, _) = world.start(&book).await;
        let first = append(&log, 1, 300_000).await.unwrap();
        let used = (0..4).find(|disk| world.disks[*disk].paths().len() > 1).unwrap();
        world.disks[used].offline(true);
        let second = append(&log, 2, 400_000).await.unwrap();
        assert_ne!(first.segment, second.segment);
        assert!(read(&log, &second, 0..second.len).await.unwrap() == pattern(2, 400_000));
        assert!(read(&log, &first, 0..first.len).await.unwrap() == pattern(1, 300_000));
        assert_eq!(log.metrics().stripe_retries.get(), 1);
        world.disks[used].offline(false);
        [first, second]
    });
    world.crash(1);
    life(async {
        let (log, _) = world.start(&Arc::new(Book::default())).await;
        assert!(read(&log, &extents[0], 0..extents[0].len).await.unwrap() == pattern(1, 300_000));
        assert!(read(&log, &extents[1], 0..extents[1].len).await.unwrap() == pattern(2, 400_000));
    });
}

#[test]
fn failures_at_every_step_lose_nothing_that_was_acknowledged() {
    // The n-th write or sync of a target fails, whatever it belongs to: opening, stripes, seals.
    for step in 0..24 {
        for fault in [Fault::Write, Fault::Sync] {
            let context = format!("step {step}, {fault:?}");
            let mut world = World::with_disks("2+1".parse().unwrap(), 5, 60 + step);
            let book = Arc::new(Book::default());
            let acknowledged = life(async {
                let (log, _) = world.start(&book).await;
                let mut acknowledged = Vec::new();
                for name in 0..24 {
                    if name == step {
                        inject(&world, (step % 5) as usize, fault);
                    }
                    if let Ok(committed) = put(&log, name, 400_000).await {
                        acknowledged.push((committed.seq, crate::world::mutation(name, 400_000)));
                    }
                }
                assert!(acknowledged.len() >= 23, "{context}: {}", acknowledged.len());
                book.verify(&log).await;
                acknowledged
            });
            world.crash(step);
            let rebuilt = Arc::new(Book::default());
            life(async {
                let (log, _) = world.start(&rebuilt).await;
                rebuilt.verify(&log).await;
                let found = rebuilt.mutations();
                for (seq, text) in &acknowledged {
                    assert_eq!(found.get(seq), Some(text), "{context}");
                }
            });
        }
    }
}

#[test]
fn a_target_that_does_not_answer_takes_no_room_from_the_others() {
    // As many targets may be silent as leave a segment its quorum; beyond that nothing can be written.
    for (silent, has_room) in [(0, true), (1, true), (2, false)] {
        let mut world = World::with_disks("4+2".parse().unwrap(), 6, 1);
        let book = Arc::new(Book::default());
        life(async {
            let (log, _) = world.start(&book).await;
            let before = log.room(Demand::default()).await;
            (0..silent).for_each(|disk| world.disks[disk].offline(true));
            let room = log.room(Demand::default()).await;
            assert_eq!((room.data_bytes > 0, room.is_short), (has_room, !has_room), "{silent} silent");
            assert!(!has_room || room == before, "{silent} silent: {room:?}, {before:?}");
        });
    }
}

#[test]
fn an_index_that_is_behind_holds_up_no_thread() {
    let mut world = World::with_disks("2+1".parse().unwrap(), 3, 1);
    let book = Arc::new(Book::default());
    life(async {
        let (log, _) = world.start(&book).await;
        let first = put(&log, 1, 5000).await.unwrap();
        book.behind.store(true, Ordering::SeqCst);
        let mut second = pin!(put(&log, 2, 6000));
        for _ in 0..10 {
            let waited = tokio::time::timeout(Duration::from_secs(1), second.as_mut()).await;
            assert!(waited.is_err(), "it was acknowledged while the index was behind");
            assert_eq!(read(&log, &first.extents[0], 0..5000).await.unwrap(), pattern(1, 5000));
        }
        book.behind.store(false, Ordering::SeqCst);
        let second = second.await.unwrap();
        assert_eq!(read(&log, &second.extents[0], 0..6000).await.unwrap(), pattern(2, 6000));
        log.shutdown().await;
    });
}
