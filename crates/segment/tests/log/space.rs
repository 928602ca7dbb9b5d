//! Full targets: data is refused with a clear error, reads and records without data go on.

use std::io;
use std::sync::Arc;

use futures::future::join_all;
use gabion_platform::FaultRates;
use gabion_segment::{LogError, TargetState};

use crate::book::Book;
use crate::world::{World, append, life, put, record};

#[test]
fn full_targets_refuse_data_but_take_deletes() {
    for geometry in ["1+0", "2+1", "4+2"] {
        let mut world = World::new(geometry, 1);
        let book = Arc::new(Book::default());
        life(async {
            let (log, _) = world.start(&book).await;
            put(&log, 0, 1000).await.unwrap();
            for disk in &world.disks {
                disk.full_at(disk.used_bytes() + (9 << 20));
            }
            let mut taken = 0;
            let refused = loop {
                match put(&log, 1 + taken, 100_000).await {
                    Ok(_) => taken += 1,
                    Err(error) => break error,
                }
                assert!(taken < 2000, "{geometry}: it never gets full");
            };
            assert!(matches!(refused, LogError::NoSpace), "{geometry}: {refused}");
            assert!(taken > 10, "{geometry}: {taken}");
            assert!(log.status().targets.iter().any(|target| target.state == TargetState::Full));
            assert!(matches!(append_until_refused(&log).await, LogError::NoSpace));
            for name in 0..500 {
                put(&log, 10_000 + name, 0).await.unwrap_or_else(|error| panic!("{geometry}: delete {name}: {error}"));
            }
            assert!(matches!(put(&log, 5, 100_000).await, Err(LogError::NoSpace)), "{geometry}");
            book.verify(&log).await;
        });
        // A start on full targets, where every segment is sealed: deletes need a new one.
        world.kill();
        life(async {
            let (log, _) = world.start(&book).await;
            for name in 0..100 {
                put(&log, 20_000 + name, 0).await.unwrap_or_else(|error| panic!("{geometry}: delete {name}: {error}"));
            }
            assert!(matches!(put(&log, 6, 100_000).await, Err(LogError::NoSpace)), "{geometry}");
            book.verify(&log).await;
            // Room comes back, and so do writes.
            for disk in &world.disks {
                disk.full_at(1 << 40);
            }
            put(&log, 7, 100_000).await.unwrap();
            append(&log, 1, 1000).await.unwrap();
            assert!(log.status().targets.iter().all(|target| target.state == TargetState::Online));
        });
    }
}

async fn append_until_refused(log: &gabion_segment::Log) -> LogError {
    for seed in 0..200 {
        if let Err(error) = append(log, seed, log.stripe_payload_bytes()).await {
            return error;
        }
    }
    panic!("it never gets full");
}

#[test]
fn a_batch_with_deletes_in_it_is_parted() {
    let mut world = World::new("2+1", 2);
    let book = Arc::new(Book::default());
    life(async {
        let (log, _) = world.start(&book).await;
        put(&log, 0, 1000).await.unwrap();
        for disk in &world.disks {
            disk.full_at(disk.used_bytes());
        }
        while put(&log, 1, 100_000).await.is_ok() {}
        let records = (0..40_u64).map(|name| put(&log, 100 + name, if name % 2 == 0 { 0 } else { 100_000 }));
        for (name, outcome) in futures::future::join_all(records).await.into_iter().enumerate() {
            match name % 2 {
                0 => assert!(outcome.is_ok(), "{outcome:?}"),
                _ => assert!(matches!(outcome, Err(LogError::NoSpace)), "{outcome:?}"),
            }
        }
        book.verify(&log).await;
    });
}

#[test]
fn one_full_target_of_many_is_gone_around() {
    let mut world = World::with_disks("2+1".parse().unwrap(), 4, 3);
    life(async {
        let book = Arc::new(Book::default());
        let (log, _) = world.start(&book).await;
        world.disks[1].full_at(world.disks[1].used_bytes());
        for name in 0..40 {
            put(&log, name, 400_000).await.unwrap();
        }
        book.verify(&log).await;
    });
}

/// A quota is as good as a full disk.
#[test]
fn no_space_is_told_from_a_failure() {
    for (kind, wanted) in [
        (io::ErrorKind::StorageFull, "NoSpace"),
        (io::ErrorKind::QuotaExceeded, "NoSpace"),
        (io::ErrorKind::Other, "TooFewTargets"),
    ] {
        let mut world = World::new("2+1", 4);
        life(async {
            let (log, _) = world.start(&Arc::new(Book::default())).await;
            world.disks.iter().for_each(|disk| disk.fail_writes(1, kind));
            let refused = put(&log, 0, 1000).await.unwrap_err();
            assert!(format!("{refused:?}").starts_with(wanted), "{kind}: {refused:?}");
            assert!(refused.is_refusal());
        });
    }
}

/// Others that ask the targets for less at the same time do not make a full deployment one that lacks targets.
#[test]
fn full_targets_are_full_whatever_others_need() {
    let mut world = World::new("4+2", 5);
    let book = Arc::new(Book::default());
    for round in 0..8 {
        life(async {
            let (log, _) = world.start(&book).await;
            // Answers come in any order.
            let slow = FaultRates { slow_turns_max: 20, ..FaultRates::default() };
            for disk in &world.disks {
                disk.full_at(disk.used_bytes() + (1 << 20));
                disk.set_rates(slow);
            }
            // The first deletion opens a segment in the room that data leaves, while stripes look for theirs.
            let deletions = join_all((0..4_u64).map(|name| put(&log, round * 100 + name, 0)));
            let stripes = join_all((0..16).map(|seed| append(&log, seed, 100_000)));
            let (deletions, stripes) = futures::join!(deletions, stripes);
            assert!(deletions.iter().all(Result::is_ok), "{deletions:?}");
            for outcome in stripes {
                assert!(matches!(outcome, Err(LogError::NoSpace)), "{outcome:?}");
            }
            world.disks.iter().for_each(|disk| disk.set_rates(FaultRates::default()));
            book.verify(&log).await;
        });
        world.kill();
    }
}

/// What was refused takes no effect; of what was written in part only the next start is sure.
#[test]
fn space_that_runs_out_under_a_stripe_is_told_from_a_refusal() {
    let mut world = World::new("2+1", 6);
    life(async {
        let (log, _) = world.start(&Arc::new(Book::default())).await;
        put(&log, 0, 1000).await.unwrap();
        // Nothing can be opened after the first attempt.
        for disk in &world.disks {
            disk.full_at(disk.used_bytes());
            disk.fail_writes(1, io::ErrorKind::StorageFull);
        }
        let refused = put(&log, 1, 1000).await.unwrap_err();
        assert!(matches!(refused, LogError::RanOutOfSpace) && !refused.is_refusal(), "{refused:?}");
        let refused = put(&log, 2, 1000).await.unwrap_err();
        assert!(matches!(refused, LogError::NoSpace) && refused.is_refusal(), "{refused:?}");
    });
}

/// The settings allow segments that are shorter than the largest records: these get longer ones, and are refused only where there is no room for that.
#[test]
fn a_record_that_is_longer_than_a_segment_gets_a_longer_one() {
    for geometry in ["1+0", "2+1", "3+2", "4+2", "8+2"] {
        let mut world = World::new(geometry, 7);
        world.config.stripe_payload_bytes = world.config.geometry.data() * 65_536;
        world.config.segment_payload_bytes = 2 << 20;
        let book = Arc::new(Book::default());
        life(async {
            let (log, _) = world.start(&book).await;
            for name in 0..4 {
                put(&log, 10 * name, 1 << 20).await.unwrap_or_else(|error| panic!("{geometry}: {error}"));
                // A mutation of nearly the largest size, with data and without.
                let long = |len| {
                    let mut record = record(10 * name + 1, len);
                    let mut mutation = record.mutation.to_vec();
                    mutation.extend_from_slice(&[b' '; (1 << 20) - 100]);
                    record.mutation = mutation.into();
                    record
                };
                log.commit_moved(long(1 << 20)).await.unwrap_or_else(|error| panic!("{geometry}: {error}"));
                log.commit(long(0)).await.unwrap_or_else(|error| panic!("{geometry}: {error}"));
                put(&log, 10 * name + 2, 1000).await.unwrap();
            }
            // Many at a time are split, each is taken.
            let outcomes = join_all((100..140).map(|name| put(&log, name, (name as usize - 99) * 26_000))).await;
            outcomes.into_iter().for_each(|outcome| drop(outcome.unwrap()));
            book.verify(&log).await;
        });
        world.kill();
        life(async {
            let (log, _) = world.start(&book).await;
            book.verify(&log).await;
            // A mutation without data finds room where data finds none.
            for disk in &world.disks {
                disk.full_at(disk.used_bytes() + (9 << 20));
            }
            while put(&log, 300, 100_000).await.is_ok() {}
            let mut long = record(301, 0);
            long.mutation = [&long.mutation[..], &[b' '; (1 << 20) - 100]].concat().into();
            log.commit(long).await.unwrap_or_else(|error| panic!("{geometry}: {error}"));
            for disk in &world.disks {
                // What is moved leaves a quarter of the reserve.
                disk.full_at(disk.used_bytes() + world.config.target_reserve_bytes / 4 + (400 << 10));
            }
            let refused = log.commit_moved(record(200, 1 << 20)).await.map(drop);
            let fits = geometry == "8+2";
            assert!(
                matches!((&refused, fits), (Ok(()), true) | (Err(LogError::NoSpace), false)),
                "{geometry}: {refused:?}"
            );
        });
    }
}
