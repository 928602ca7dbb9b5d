//! Full targets: data is refused with a clear error, reads and records without data go on.

use std::io;
use std::sync::Arc;

use futures::future::join_all;
use gabion_platform::FaultRates;
use gabion_segment::{LogError, TargetState};

use crate::book::Book;
use crate::world::{World, append, life, put};

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
        (io::ErrorKind::Other, "Unavailable"),
    ] {
        let mut world = World::new("2+1", 4);
        life(async {
            let (log, _) = world.start(&Arc::new(Book::default())).await;
            world.disks.iter().for_each(|disk| disk.fail_writes(1, kind));
            let refused = put(&log, 0, 1000).await.unwrap_err();
            assert!(format!("{refused:?}").starts_with(wanted), "{kind}: {refused:?}");
            assert_eq!(refused.is_refusal(), wanted == "NoSpace");
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
