//! Full targets: data is refused with a clear error, reads and records without data go on.

use std::sync::Arc;

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
