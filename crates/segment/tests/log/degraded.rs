//! Lost targets and rotten bytes: reads give what was written, or an error, never anything else.

use std::sync::Arc;

use gabion_platform::Disk;
use gabion_segment::{Committed, Log, LogError};
use gabion_types::{Extent, Place};

use crate::book::Book;
use crate::world::{World, append, life, pattern, put, read};

struct Written {
    records: Vec<(u64, usize, Committed)>,
    stripes: Vec<(u64, Extent)>,
}

async fn write_some(log: &Log) -> Written {
    let mut written = Written { records: vec![], stripes: vec![] };
    let sizes = [1, 4096, 100_000, 700_000];
    for (name, len) in sizes.into_iter().enumerate() {
        written.records.push((name as u64, len, put(log, name as u64, len).await.unwrap()));
    }
    let together = (10..30_u64).map(|name| async move { (name, 9000, put(log, name, 9000).await.unwrap()) });
    written.records.extend(futures::future::join_all(together).await);
    let full = log.stripe_payload_bytes();
    for (seed, len) in [100, 70_000, full / 2 + 5, full].into_iter().enumerate() {
        if len <= full {
            written.stripes.push((seed as u64, append(log, seed as u64, len).await.unwrap()));
        }
    }
    written
}

async fn check(log: &Log, written: &Written, context: &str) {
    for (name, len, committed) in &written.records {
        let mut found = Vec::new();
        for extent in &committed.extents {
            found.extend(read(log, extent, 0..extent.len).await.unwrap_or_else(|error| panic!("{context}: {error}")));
        }
        assert!(found == pattern(*name, *len), "{context}: record {name}");
    }
    for (seed, extent) in &written.stripes {
        let expected = pattern(*seed, extent.len as usize);
        for (start, end) in [(0, extent.len), (extent.len / 3, extent.len / 2 + 1), (extent.len - 1, extent.len)] {
            let found = read(log, extent, start..end).await.unwrap_or_else(|error| panic!("{context}: {error}"));
            assert!(found == expected[start as usize..end as usize], "{context}: stripe {seed} {start}..{end}");
        }
    }
}

/// All sets of at most `most` of `count` numbers.
fn subsets(count: usize, most: usize) -> Vec<Vec<usize>> {
    let all = (0..1_u32 << count).map(|bits| (0..count).filter(|number| bits >> number & 1 == 1).collect::<Vec<_>>());
    all.filter(|set| set.len() <= most).collect()
}

#[test]
fn any_m_targets_may_be_offline() {
    for geometry in ["1+0", "1+1", "2+1", "4+2"] {
        let mut world = World::new(geometry, 1);
        let parity = world.config.geometry.parity();
        life(async {
            let book = Arc::new(Book::default());
            let (log, _) = world.start(&book).await;
            let written = write_some(&log).await;
            for lost in subsets(world.disks.len(), parity) {
                lost.iter().for_each(|disk| world.disks[*disk].offline(true));
                check(&log, &written, &format!("{geometry} without {lost:?}")).await;
                lost.iter().for_each(|disk| world.disks[*disk].offline(false));
            }
            assert!(parity == 0 || log.metrics().degraded_reads.get() > 0);
            assert!(parity == 0 || !log.status().repairs.is_empty());
        });
    }
}

#[test]
fn any_m_targets_may_be_gone_at_the_start() {
    for geometry in ["1+1", "2+1", "4+2"] {
        let mut world = World::new(geometry, 2);
        let parity = world.config.geometry.parity();
        let written = life(async {
            let book = Arc::new(Book::default());
            let (log, _) = world.start(&book).await;
            write_some(&log).await
        });
        for lost in subsets(world.disks.len(), parity) {
            world.kill();
            world.absent = lost.clone();
            let book = Arc::new(Book::default());
            life(async {
                let (log, recovery) = world.start(&book).await;
                check(&log, &written, &format!("{geometry} without {lost:?}")).await;
                book.verify(&log).await;
                assert!(book.mutations().len() >= written.records.len());
                assert_eq!(recovery.warnings.is_empty(), lost.is_empty());
                // Writing goes on as long as a quorum of targets is there.
                let outcome = put(&log, 1000, 100).await;
                let enough = world.disks.len() - lost.len() >= world.config.geometry.quorum();
                assert_eq!(outcome.is_ok(), enough, "{geometry} without {lost:?}: {outcome:?}");
            });
        }
    }
}

/// What comes of reading the extents of what was written.
async fn outcomes(log: &Log, written: &Written) -> (usize, usize, usize) {
    let (mut good, mut unreadable, mut corrupt) = (0, 0, 0);
    let records = written.records.iter().flat_map(|(_, _, committed)| &committed.extents);
    for extent in records.chain(written.stripes.iter().map(|(_, extent)| extent)) {
        match read(log, extent, 0..extent.len).await {
            Ok(_) => good += 1,
            Err(LogError::Unreadable { .. }) => unreadable += 1,
            Err(LogError::Corrupt { .. }) => corrupt += 1,
            Err(other) => panic!("{other}"),
        }
    }
    (good, unreadable, corrupt)
}

#[test]
fn more_than_m_silent_is_an_error_that_passes_and_not_wrong_bytes() {
    type Fault = fn(&World);
    let faults: [(&str, Fault, Fault); 2] = [
        (
            "offline",
            |world| world.disks[..3].iter().for_each(|disk| disk.offline(true)),
            |world| world.disks[..3].iter().for_each(|disk| disk.offline(false)),
        ),
        (
            "read errors",
            |world| world.disks[..3].iter().for_each(|disk| disk.fail_reads(u32::MAX, std::io::ErrorKind::Other)),
            |world| world.disks[..3].iter().for_each(|disk| disk.fail_reads(0, std::io::ErrorKind::Other)),
        ),
    ];
    for (number, (name, fault, end)) in faults.into_iter().enumerate() {
        let mut world = World::new("4+2", 3 + number as u64);
        life(async {
            let book = Arc::new(Book::default());
            let (log, _) = world.start(&book).await;
            let written = write_some(&log).await;
            fault(&world);
            let (_, unreadable, corrupt) = outcomes(&log, &written).await;
            assert!(unreadable > 0 && corrupt == 0, "{name}: {unreadable} {corrupt}");
            end(&world);
            check(&log, &written, name).await;
        });
    }
}

/// What was read and is wrong, and files that are gone from targets that are there, are lost; what was not read may make up for it, or not.
#[test]
fn corrupt_is_what_no_target_that_comes_back_can_heal() {
    let mut world = World::new("4+2", 7);
    life(async {
        let book = Arc::new(Book::default());
        let (log, _) = world.start(&book).await;
        let written = write_some(&log).await;
        let extent = written.stripes.last().unwrap().1;
        let holders: Vec<usize> = (0..6)
            .map(|shard| {
                let suffix = format!("{}.{shard:03}", extent.segment);
                world.disks.iter().position(|disk| disk.paths().iter().any(|path| path.ends_with(&suffix))).unwrap()
            })
            .collect();
        let refused = async || read(&log, &extent, 0..extent.len).await.unwrap_err();
        let (rotten, silent) =
            (|shard| world.rot(&extent, shard, 100_000), |shard: usize, is| world.disks[holders[shard]].offline(is));
        rotten(0);
        rotten(1);
        silent(5, true);
        assert!(matches!(refused().await, LogError::Unreadable { .. }), "three good ones and one that may come back");
        silent(4, true);
        silent(2, true);
        assert!(matches!(refused().await, LogError::Unreadable { .. }), "one good one and three that may come back");
        (2..6).for_each(|shard| silent(shard, false));
        rotten(4);
        assert!(matches!(refused().await, LogError::Corrupt { .. }), "three good ones");
        silent(5, true);
        assert!(matches!(refused().await, LogError::Corrupt { .. }), "it does not help if that comes back");
        silent(5, false);
        rotten(4);
        read(&log, &extent, 0..extent.len).await.unwrap();
        // A file that is gone from a target that is there will not come back; one that is not mounted may.
        silent(3, true);
        read(&log, &extent, 0..extent.len).await.unwrap_err();
        silent(3, false);
        let (disk, path) = world.find(&format!("{}.003", extent.segment)).unwrap();
        disk.unlink(&path).await.unwrap();
        assert!(matches!(refused().await, LogError::Corrupt { .. }), "a file is gone");
        disk.unlink("gabion.json").await.unwrap();
        assert!(matches!(refused().await, LogError::Unreadable { .. }), "all of it is gone");
    });
}

#[test]
fn a_log_does_not_open_with_more_than_m_absent() {
    let mut world = World::new("4+2", 8);
    life(async {
        let book = Arc::new(Book::default());
        let (log, _) = world.start(&book).await;
        put(&log, 1, 100).await.unwrap();
    });
    world.kill();
    world.absent = vec![0, 1, 2];
    let refused = life(world.open(vec![]));
    let Err(LogError::Targets(sentence)) = refused else { panic!("{refused:?}") };
    assert!(sentence.contains("disk0") && sentence.contains("disk2"), "{sentence}");
}

#[test]
fn rot_anywhere_is_healed_or_refused() {
    for (geometry, most) in [("1+0", 0), ("1+1", 1), ("2+1", 1), ("4+2", 2)] {
        let mut world = World::new(geometry, 4);
        let shards = world.config.geometry.shards();
        life(async {
            let book = Arc::new(Book::default());
            let (log, _) = world.start(&book).await;
            let small = put(&log, 1, 90_000).await.unwrap();
            let large = append(&log, 2, log.stripe_payload_bytes()).await.unwrap();
            let piece = small.extents[0];
            let Place::Chunk { shard, start } = piece.place else { panic!("{piece:?}") };
            // One byte in data, header and parity of `most` shards.
            for (extent, offsets) in [(piece, [3, u64::from(start) + 100]), (large, [40, 100_000])] {
                for offset in offsets {
                    for victim in 0..shards {
                        let victims: Vec<usize> = (0..most).map(|next| (victim + next) % shards).collect();
                        let victims: Vec<usize> = victims
                            .into_iter()
                            .filter(|victim| {
                                extent != piece
                                    || *victim == usize::from(shard)
                                    || *victim >= world.config.geometry.data()
                            })
                            .collect();
                        victims.iter().for_each(|victim| world.rot(&extent, *victim, offset));
                        let found = read(&log, &extent, 0..extent.len).await.unwrap();
                        let seed = if extent == piece { 1 } else { 2 };
                        assert!(found == pattern(seed, extent.len as usize), "{geometry} {victims:?} {offset}");
                        // Another flip of the same bit heals it.
                        victims.iter().for_each(|victim| world.rot(&extent, *victim, offset));
                    }
                }
            }
            // Beyond m it is an error.
            let victims: Vec<usize> =
                if most == 0 { vec![0] } else { (0..=most).map(|next| (usize::from(shard) + next) % shards).collect() };
            for victim in &victims {
                world.rot(&large, *victim, 100_000);
            }
            let refused = read(&log, &large, 0..large.len).await;
            assert!(matches!(refused, Err(LogError::Corrupt { .. })), "{geometry}: {refused:?}");
            assert!(log.metrics().corrupt_chunks.get() > 0);
        });
    }
}

#[test]
fn rotten_headers_and_records_do_not_hinder_a_rebuild() {
    let mut world = World::new("4+2", 5);
    let written = life(async {
        let book = Arc::new(Book::default());
        let (log, _) = world.start(&book).await;
        write_some(&log).await
    });
    world.kill();
    let book = Arc::new(Book::default());
    life(async {
        // Sealed first, so that nothing is rolled forward.
        let (_, recovery) = world.start(&book).await;
        assert_eq!(recovery.segments.len(), 2);
    });
    let first = written.records[0].2.extents[0];
    for shard in [0, 3] {
        let (disk, path) = world.find(&format!("{}.{shard:03}", first.segment)).unwrap();
        disk.corrupt(&path, 20);
        disk.corrupt(&path, first.stripe_offset + 5);
    }
    let piece = written.records[5].2.extents[0];
    let Place::Chunk { shard, .. } = piece.place else { panic!("{piece:?}") };
    world.rot(&piece, shard.into(), 140);
    world.kill();
    let rebuilt = Arc::new(Book::default());
    life(async {
        let (log, recovery) = world.start(&rebuilt).await;
        assert!(recovery.unreadable.is_empty(), "{:?}", recovery.unreadable);
        assert_eq!(rebuilt.mutations(), book.mutations());
        check(&log, &written, "after rot").await;
    });
}

#[test]
fn a_lost_segment_is_reported_not_guessed_at() {
    let mut world = World::new("2+1", 6);
    let book = Arc::new(Book::default());
    let written = life(async {
        let (log, _) = world.start(&book).await;
        write_some(&log).await
    });
    world.kill();
    let segment = written.records[0].2.home.segment;
    for shard in [0, 2] {
        let (disk, path) = world.find(&format!("{segment}.{shard:03}")).unwrap();
        life(disk.unlink(&path)).unwrap();
    }
    let rebuilt = Arc::new(Book::default());
    life(async {
        let (log, recovery) = world.start(&rebuilt).await;
        assert_eq!(recovery.unreadable.len(), 1);
        assert_eq!(recovery.unreadable[0].id, segment);
        let extent = written.records[0].2.extents[0];
        assert!(matches!(read(&log, &extent, 0..1).await, Err(LogError::Corrupt { .. })));
        assert!(world.find(&format!("{segment}.001")).is_some(), "the last shard is left for whoever finds the others");
    });
}

#[test]
fn want_of_descriptors_or_memory_is_no_damage() {
    let mut world = World::new("2+1", 9);
    life(async {
        let book = Arc::new(Book::default());
        let (log, _) = world.start(&book).await;
        let written = write_some(&log).await;
        let extent = written.stripes.last().unwrap().1;
        world.disks.iter().for_each(|disk| disk.fail_reads(40, std::io::ErrorKind::OutOfMemory));
        let mut refused = 0;
        while let Err(error) = read(&log, &extent, 0..extent.len).await {
            assert!(matches!(error, LogError::Busy), "{error}");
            refused += 1;
            assert!(refused < 200, "the fault has an end");
        }
        assert!(refused > 0);
        check(&log, &written, "afterwards").await;
        assert!(log.status().repairs.is_empty() && log.metrics().unreadable_chunks.get() == 0);
    });
}

#[test]
fn a_segment_that_can_not_be_opened_for_want_of_descriptors_is_no_fault_of_the_targets() {
    let mut world = World::new("2+1", 10);
    life(async {
        let book = Arc::new(Book::default());
        let (log, _) = world.start(&book).await;
        world.disks[1].fail_writes(1, std::io::ErrorKind::OutOfMemory);
        assert!(matches!(put(&log, 1, 100).await, Err(LogError::Busy)));
        put(&log, 1, 100).await.unwrap();
        assert!(log.status().targets.iter().all(|target| target.state == gabion_segment::TargetState::Online));
    });
}

/// What too few targets have is lost only as long as all of them can be asked.
#[test]
fn what_a_failed_target_may_have_is_not_called_lost() {
    let mut world = World::new("2+1", 40);
    let book = Arc::new(Book::default());
    life(async {
        let (log, _) = world.start(&book).await;
        put(&log, 1, 2000).await.unwrap();
        log.shutdown().await;
    });
    world.kill();
    let extent = book.snapshot().records.values().next().unwrap().extents[0];
    life(async {
        for disk in &world.disks[..2] {
            let path = disk.paths().into_iter().find(|path| path.contains(&extent.segment.to_string())).unwrap();
            disk.unlink(&path).await.unwrap();
        }
        let (log, recovery) = world.open(Vec::new()).await.unwrap();
        log.start(Arc::new(Book::default()));
        assert_eq!(recovery.unreadable.len(), 1);
        let outcome = read(&log, &extent, 0..1).await;
        assert!(matches!(outcome, Err(LogError::Corrupt { .. })), "{outcome:?}");
        world.disks[2].offline(true);
        log.repair(true).await.unwrap();
        assert!(log.lacks_targets());
        let outcome = read(&log, &extent, 0..1).await;
        assert!(matches!(outcome, Err(LogError::Unreadable { .. })), "{outcome:?}");
    });
}
