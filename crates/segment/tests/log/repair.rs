//! Shards that are lost, damaged or in the wrong place come back, whatever interrupts it.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures::FutureExt;
use gabion_platform::{Disk, FaultRates, SimDisk};
use gabion_segment::{Demand, Durability, Log, RepairPass, ScrubbedSegment, TargetMode};
use gabion_types::SegmentId;

use crate::book::Book;
use crate::world::{World, append, life, put, read, steps};

/// A deployment with a small and a large segment, both sealed, with an index that knows it.
fn written(geometry: &str, extra_disks: usize, seed: u64) -> (World, Arc<Book>) {
    let geometry: gabion_types::Geometry = geometry.parse().unwrap();
    let mut world = World::with_disks(geometry, geometry.shards() + extra_disks, seed);
    world.config.upkeep.repair_delay_ms = 0;
    let book = Arc::new(Book::default());
    life(async {
        let (log, _) = world.start(&book).await;
        for name in 0..4 {
            put(&log, name, 3000 + name as usize * 40_000).await.unwrap();
        }
        append(&log, 9, log.stripe_payload_bytes() / 2 + 77).await.unwrap();
    });
    world.kill();
    life(async {
        world.start(&book).await;
    });
    world.kill();
    (world, book)
}

fn unlink(world: &World, suffix: &str) {
    let (disk, path) = world.find(suffix).expect("it is there");
    life(Disk::unlink(disk, &path)).unwrap();
    life(disk.sync_dir(path.rsplit_once('/').unwrap().0)).unwrap();
}

/// The path of the file on a disk whose path ends so.
fn path_on(disk: &SimDisk, suffix: &str) -> Option<String> {
    disk.paths().into_iter().find(|path| path.ends_with(suffix))
}

/// What is in that file.
async fn bytes_on(disk: &SimDisk, suffix: &str) -> Option<Bytes> {
    let file = disk.open(&path_on(disk, suffix)?).await.unwrap();
    Some(file.read_at(0, file.len().await.unwrap() as usize).await.unwrap())
}

async fn repair(log: &Log) -> RepairPass {
    let pass = log.repair(false).await.unwrap();
    assert_eq!((pass.shards_failed, pass.shards_blocked, pass.lost_stripes), (0, 0, 0), "{pass:?}");
    pass
}

/// Every segment has each shard exactly once, on a disk of its own, and nothing else lies about.
fn check_files(world: &World, book: &Book) {
    let shards = world.config.geometry.shards();
    let mut expected = 0;
    for known in book.known() {
        expected += shards;
        for shard in 0..shards {
            let suffix = format!("{}.{shard:03}", known.id);
            let holders = world.disks.iter().filter(|disk| disk.paths().iter().any(|path| path.ends_with(&suffix)));
            assert_eq!(holders.count(), 1, "{suffix}");
        }
    }
    assert_eq!(world.shard_files().len(), expected, "{:?}", world.shard_files());
}

/// All is readable without any one target; without m of them, if `m` is 2.
async fn check_redundancy(world: &World, log: &Log, book: &Book) {
    let parity = world.config.geometry.parity();
    for first in 0..world.disks.len() {
        let lost: Vec<usize> = (0..parity).map(|next| (first + next) % world.disks.len()).collect();
        lost.iter().for_each(|disk| world.disks[*disk].offline(true));
        book.verify(log).await;
        lost.iter().for_each(|disk| world.disks[*disk].offline(false));
    }
}

fn segments(book: &Book) -> Vec<SegmentId> {
    book.known().into_iter().map(|known| known.id).collect()
}

#[test]
fn lost_files_are_built_anew_where_they_were() {
    for geometry in ["1+1", "2+1", "4+2"] {
        let (mut world, book) = written(geometry, 0, 1);
        let parity = world.config.geometry.parity();
        for (number, id) in segments(&book).into_iter().enumerate() {
            for lost in 0..parity {
                unlink(&world, &format!("{id}.{:03}", (number + lost * 2) % world.config.geometry.shards()));
            }
        }
        life(async {
            let (log, _) = world.start(&book).await;
            assert_eq!(log.status().redundancy[parity], 2, "{:?}", log.status().redundancy);
            assert_eq!(log.status().repair.shards_left, 2 * parity);
            let pass = repair(&log).await;
            assert_eq!(pass.shards_built, 2 * parity);
            assert_eq!(log.status().redundancy, [2]);
            assert_eq!(repair(&log).await, RepairPass::default());
            check_redundancy(&world, &log, &book).await;
        });
        check_files(&world, &book);
        // Without the index, it is the same.
        world.kill();
        let rebuilt = Arc::new(Book::default());
        life(async {
            let (log, recovery) = world.start(&rebuilt).await;
            assert!(recovery.unreadable.is_empty());
            assert_eq!(rebuilt.mutations(), book.mutations());
            check_redundancy(&world, &log, &rebuilt).await;
        });
    }
}

#[test]
fn rot_is_found_by_reading_and_healed() {
    let (mut world, book) = written("2+1", 0, 2);
    life(async {
        let (log, _) = world.start(&book).await;
        for id in segments(&book) {
            for (shard, offset) in [(0, 4096 + 200), (1, 4096 + 10)] {
                let (disk, path) = world.find(&format!("{id}.{shard:03}")).unwrap();
                // In different stripes or blocks the other shard helps; in the same place nothing would.
                if shard == 0 || id == segments(&book)[0] {
                    disk.corrupt(&path, offset);
                }
            }
        }
        let _ = book.unreadable(&log).await;
        assert!(!log.status().repairs.is_empty());
        log.repair(false).await.unwrap();
        let left = log.status().repairs;
        assert!(left.is_empty(), "{left:?}");
    });
}

/// Scrubs all segments.
async fn scrub(log: &Log) -> Vec<ScrubbedSegment> {
    scrub_from(log, None).await
}

/// Scrubs all segments after one.
async fn scrub_from(log: &Log, mut after: Option<SegmentId>) -> Vec<ScrubbedSegment> {
    let mut all = Vec::new();
    while let Some(scrubbed) = log.scrub_next(after).await.unwrap() {
        after = Some(scrubbed.segment);
        all.push(scrubbed);
    }
    all
}

#[test]
fn what_is_written_of_an_open_segment_is_scrubbed() {
    let mut world = World::new("2+1", 42);
    world.config.upkeep.repair_delay_ms = 0;
    let book = Arc::new(Book::default());
    life(async {
        let (log, _) = world.start(&book).await;
        let large = append(&log, 9, log.stripe_payload_bytes()).await.unwrap();
        // The last stripe ends before others of its segment do: one of its files is shorter than the others.
        for name in 0..5 {
            put(&log, name, if name < 4 { 3000 } else { 100_000 }).await.unwrap();
        }
        let clean = scrub(&log).await;
        assert!(clean.iter().all(|it| it.is_open && it.bytes > 0 && it.bad_shards == 0), "{clean:?}");
        assert_eq!(clean.len(), 2);
        // Parity is read by nobody else.
        world.rot(&large, 2, 4096 + 10);
        let bad = |of: &[ScrubbedSegment]| of.iter().map(|it| it.bad_shards).sum::<u64>();
        assert_eq!(bad(&scrub(&log).await), 1);
        assert_eq!(log.status().redundancy, [0, 1]);
        // It is built anew once nothing more comes behind it.
        assert_eq!(repair(&log).await.shards_built, 0);
        for name in 10.. {
            append(&log, name, log.stripe_payload_bytes()).await.unwrap();
            if book.known().iter().any(|known| known.id == large.segment && known.sealed.is_some()) {
                break;
            }
        }
        assert_eq!(repair(&log).await.shards_built, 1);
        let healed = scrub(&log).await;
        assert_eq!((bad(&healed), healed.iter().filter(|it| !it.is_open).count()), (0, 1));
        assert!(log.status().repairs.is_empty());
        book.verify(&log).await;
    });
}

/// Stripes come, segments end and begin, and a target fails meanwhile: nothing that is whole is taken for damaged.
#[test]
fn a_scrub_beside_writers_finds_what_is_wrong_and_nothing_else() {
    let mut open_read = 0;
    for seed in 0..24 {
        let mut world = World::new("2+1", 800 + seed);
        if seed % 2 == 1 {
            world.config.durability = Durability::Relaxed;
        }
        let book = Arc::new(Book::default());
        life(async {
            let (log, _) = world.start(&book).await;
            for disk in &world.disks {
                disk.set_rates(FaultRates { slow_turns_max: 20, ..FaultRates::default() });
            }
            let written = Cell::new(false);
            let fails = seed % 4 >= 2;
            let write = async {
                for name in 0..30 {
                    if fails && name == 20 {
                        world.disks[1].fail_writes(1, std::io::ErrorKind::Other);
                    }
                    let (small, large) = tokio::join!(
                        put(&log, name, 1000 + name as usize * 20_000),
                        append(&log, name, log.stripe_payload_bytes())
                    );
                    // What was under way there when the target failed may have been in vain.
                    assert!(fails || small.is_ok() && large.is_ok(), "seed {seed}: {small:?}, {large:?}");
                }
                written.set(true);
            };
            let (mut open, mut bad) = (0, Vec::new());
            let read = async {
                let mut after = None;
                while !written.get() {
                    steps(1).await;
                    let scrubbed = scrub_from(&log, after).await;
                    // Those that are sealed are read once.
                    after = scrubbed.iter().take_while(|it| !it.is_open).last().map(|it| it.segment).or(after);
                    open += scrubbed.iter().filter(|it| it.is_open && it.bytes > 0).count();
                    bad.extend(scrubbed.into_iter().filter(|it| it.bad_shards > 0));
                }
            };
            tokio::join!(write, read);
            open_read += open;
            assert!(fails || bad.is_empty(), "seed {seed}: {bad:?}");
            assert!(bad.iter().all(|it| it.bad_shards == 1), "seed {seed}: {bad:?}");
            book.verify(&log).await;
        });
    }
    assert!(open_read > 30, "{open_read} times one that was written to");
}

/// A chunk is rebuilt piece by piece: those of its pieces that are whole are no sources of themselves.
#[test]
fn one_bad_block_of_a_long_chunk_is_healed() {
    for bad in 0..3 {
        let mut world = World::new("2+1", 20 + bad);
        world.config.stripe_payload_bytes = 2 * 16 * 65_536;
        let book = Arc::new(Book::default());
        let extent = life(async {
            let (log, _) = world.start(&book).await;
            append(&log, 9, log.stripe_payload_bytes()).await.unwrap()
        });
        world.kill();
        life(async {
            let (log, _) = world.start(&book).await;
            world.rot(&extent, bad as usize, 4096 + 600_000);
            let scrubbed = log.scrub_next(None).await.unwrap().unwrap();
            assert_eq!((scrubbed.segment, scrubbed.bad_shards), (extent.segment, 1));
            let pass = repair(&log).await;
            assert_eq!((pass.shards_built, log.status().redundancy), (1, vec![1]));
            assert_eq!(log.scrub_next(None).await.unwrap().unwrap().bad_shards, 0);
        });
    }
}

#[test]
fn a_segment_that_was_opened_with_a_shard_too_few_ends_when_a_target_comes() {
    let mut world = World::new("4+2", 41);
    world.config.upkeep.repair_delay_ms = 0;
    let book = Arc::new(Book::default());
    life(async {
        let (log, _) = world.start(&book).await;
        world.disks[2].offline(true);
        put(&log, 0, 3000).await.unwrap();
        assert_eq!(log.status().redundancy, [0, 1]);
        log.repair(false).await.unwrap();
        put(&log, 1, 3000).await.unwrap();
        assert_eq!(book.known().len(), 1, "there is no reason to begin another one");
        world.disks[2].offline(false);
        world.clock.advance(std::time::Duration::from_millis(world.config.reprobe_ms));
        for _ in 0..3 {
            log.repair(false).await.unwrap();
            steps(200).await;
        }
        assert_eq!(log.status().redundancy, [1]);
        put(&log, 2, 3000).await.unwrap();
        assert_eq!((log.status().redundancy, book.known().len()), (vec![1], 2));
        check_redundancy(&world, &log, &book).await;
    });
    check_files(&world, &book);
}

#[test]
fn a_false_alarm_costs_a_read_and_no_write() {
    let (mut world, book) = written("2+1", 0, 3);
    life(async {
        let (log, _) = world.start(&book).await;
        for disk in &world.disks {
            disk.offline(true);
            book.verify(&log).await;
            disk.offline(false);
        }
        let asked = log.status().repairs.len();
        assert!(asked > 0);
        let pass = repair(&log).await;
        assert_eq!((pass.shards_built, pass.shards_good), (0, asked));
    });
}

#[test]
fn shards_of_a_target_that_stays_away_go_to_another_one() {
    let (mut world, book) = written("2+1", 1, 4);
    // A target that every segment may lie on: take one that holds something.
    let holder =
        world.disks.iter().position(|disk| disk.paths().iter().any(|path| path.starts_with("segments/"))).unwrap();
    world.absent = vec![holder];
    world.config.upkeep.repair_delay_ms = 60_000;
    let moved = life(async {
        let (log, _) = world.start(&book).await;
        let missing = log.status().redundancy[1];
        assert!(missing > 0);
        assert_eq!(repair(&log).await.shards_built, 0, "it may come back");
        world.clock.advance(std::time::Duration::from_secs(61));
        assert_eq!(repair(&log).await.shards_built, missing);
        book.verify(&log).await;
        missing
    });
    // The index is as it was before the move: the shards are found all the same.
    for from_scratch in [false, true] {
        world.kill();
        let page = book.snapshot();
        let older = Arc::new(if from_scratch { Book::default() } else { Book::from_page(page) });
        if !from_scratch {
            let away = older.known().iter().flat_map(|known| known.former.clone()).next().unwrap().target;
            for known in older.page.lock().segments.values_mut() {
                for former in std::mem::take(&mut known.former) {
                    known.targets[usize::from(former.shard)] = away;
                }
            }
        }
        life(async {
            let (log, recovery) = world.start(&older).await;
            assert!(recovery.unreadable.is_empty());
            assert_eq!(recovery.moved.len(), if from_scratch { 0 } else { moved });
            assert_eq!(older.mutations(), book.mutations());
            assert_eq!(log.status().redundancy, [2], "nothing is missing");
            older.verify(&log).await;
            let former = older.known().iter().filter(|known| !known.former.is_empty()).count();
            assert_eq!(former, moved, "what is on the absent target is remembered");
        });
    }
    // It comes back: its copies are superfluous, and go once the others were read.
    world.kill();
    world.absent.clear();
    life(async {
        let (log, _) = world.start(&book).await;
        repair(&log).await;
        assert!(book.known().iter().all(|known| known.former.is_empty()));
        check_files(&world, &book);
        check_redundancy(&world, &log, &book).await;
    });
}

#[test]
fn a_former_copy_is_kept_until_the_new_one_is_known_to_be_good() {
    let (mut world, book) = written("1+1", 1, 5);
    let holder =
        world.disks.iter().position(|disk| disk.paths().iter().any(|path| path.starts_with("segments/"))).unwrap();
    world.absent = vec![holder];
    life(async {
        let (log, _) = world.start(&book).await;
        assert!(repair(&log).await.shards_built > 0);
    });
    world.kill();
    world.absent.clear();
    // The new copy rots, and so does the other shard: what is left is the copy that came back.
    let known = book.known().into_iter().find(|known| !known.former.is_empty()).unwrap();
    let former = known.former[0];
    for (number, disk) in world.disks.iter().enumerate().filter(|(number, _)| *number != holder) {
        for path in disk.paths().into_iter().filter(|path| path.contains(&known.id.to_string())) {
            assert_ne!(number, holder);
            disk.corrupt(&path, 4096 + 300);
        }
    }
    life(async {
        let (log, _) = world.start(&book).await;
        log.repair(false).await.unwrap();
        let suffix = format!("{}.{:03}", known.id, former.shard);
        assert!(world.disks[holder].paths().iter().any(|path| path.ends_with(&suffix)), "the last good copy is kept");
    });
}

/// A shard moved and the target that it went to is lost; its first one is back, and of the other shard a block is bad. What can not be had any more
/// is whole on the copy that came back: no new one without it takes its place, nor its name.
#[test]
fn a_former_copy_does_not_give_way_to_one_with_holes() {
    for extra_disks in 1..=2 {
        let (mut world, book) = written("1+1", extra_disks, 30 + extra_disks as u64);
        life(async {
            let (log, _) = world.start(&book).await;
            let known = || book.known().remove(0);
            let ids: Vec<_> = log.status().targets.iter().map(|target| target.id).collect();
            let number_of = |target| ids.iter().position(|id| *id == target).unwrap();
            let (first, other) = (number_of(known().targets[0]), number_of(known().targets[1]));
            let suffix = format!("{}.000", known().id);
            let copy = bytes_on(&world.disks[first], &suffix).await.unwrap();
            world.disks[first].offline(true);
            repair(&log).await;
            let lost = number_of(known().targets[0]);
            assert_eq!((known().former[0].target, known().former.len()), (ids[first], 1));
            world.disks[first].offline(false);
            world.disks[lost].offline(true);
            world.clock.advance(std::time::Duration::from_millis(world.config.reprobe_ms));
            // Of all that it may go to, its first place has the most room.
            (0..ids.len()).filter(|number| *number != first).for_each(|number| world.disks[number].full_at(64 << 20));
            // Both are asked, and what they answer is known.
            log.room(Demand::default()).await;
            log.target_remove(ids[lost], true, TargetMode::Apply).await.unwrap();
            let path = path_on(&world.disks[other], &format!("{}.001", known().id)).unwrap();
            world.disks[other].corrupt(&path, 4096 + 300);
            let pass = log.repair(true).await.unwrap();
            assert!(bytes_on(&world.disks[first], &suffix).await == Some(copy), "the last good copy is kept");
            // Elsewhere what else there is of the shard gains by it.
            assert_eq!(pass.lost_stripes, extra_disks as u64 - 1, "{pass:?}");
            assert_eq!((known().former[0].target, known().former.len()), (ids[first], 1));
            // The rot goes, and with it the hole: now the old copy may go.
            world.disks[other].corrupt(&path, 4096 + 300);
            assert!(log.repair(true).await.unwrap().shards_built > 0);
            log.repair(true).await.unwrap();
            assert_eq!((known().former.len(), log.status().redundancy), (0, vec![2]));
            assert_eq!(bytes_on(&world.disks[first], &suffix).await.is_none(), number_of(known().targets[0]) != first);
            check_redundancy(&world, &log, &book).await;
        });
    }
}

#[test]
fn a_segment_that_is_freed_leaves_nothing_that_could_come_back() {
    // With one data shard, a single old copy would be a whole segment.
    for with_index in [true, false] {
        let (mut world, book) = written("1+1", 1, 6);
        let target_of = |number: usize| {
            world.disks[number].paths().into_iter().filter(|path| path.starts_with("segments/")).count()
        };
        let holder = (0..3).max_by_key(|number| target_of(*number)).unwrap();
        world.absent = vec![holder];
        let freed = life(async {
            let (log, _) = world.start(&book).await;
            assert!(repair(&log).await.shards_built > 0);
            let known = book.known().into_iter().find(|known| !known.former.is_empty()).unwrap();
            let freed = log.free(known.id, vec![]).await.unwrap();
            assert_eq!(freed.left.len(), 1, "the copy on the absent target");
            known.id
        });
        world.kill();
        world.absent.clear();
        let book = if with_index { book } else { Arc::new(Book::default()) };
        life(async {
            let (_, recovery) = world.start(&book).await;
            assert!(recovery.unreadable.is_empty(), "{:?}", recovery.unreadable);
            assert!(recovery.freed.contains(&freed));
            assert!(world.find(&freed.to_string()).is_none());
            assert!(world.shard_files().iter().all(|path| !path.contains(&freed.to_string())));
        });
    }
}

/// A target fails when a copy has got its name there, and the copy can not be taken back: the shard goes elsewhere, and the copy is not forgotten.
#[test]
fn a_copy_that_could_not_be_taken_back_is_remembered() {
    for is_back in [true, false] {
        let (mut world, book) = written("1+1", 2, 50);
        let known = || book.known().remove(0);
        let (id, suffix) = (known().id, format!("{}.000", known().id));
        life(async {
            let (log, _) = world.start(&book).await;
            let ids: Vec<_> = log.status().targets.iter().map(|target| target.id).collect();
            let from = ids.iter().position(|id| *id == known().targets[0]).unwrap();
            log.target_drain(ids[from], TargetMode::Apply).await.unwrap();
            let mut failed = None;
            let mut repairing = std::pin::pin!(log.repair(true));
            let pass = loop {
                tokio::select! {
                    biased;
                    pass = &mut repairing => break pass.unwrap(),
                    () = steps(1) => {}
                }
                let is_new = |number: &usize| *number != from && path_on(&world.disks[*number], &suffix).is_some();
                if failed.is_none()
                    && let Some(number) = (0..4).find(is_new)
                {
                    world.disks[number].offline(true);
                    failed = Some(number);
                }
            };
            let failed = failed.unwrap();
            assert!(pass.shards_failed > 0 && known().targets[0] == ids[from], "the test tests nothing: {pass:?}");
            log.repair(true).await.unwrap();
            assert!(![from, failed].map(|number| ids[number]).contains(&known().targets[0]), "it went elsewhere");
            if is_back {
                world.disks[failed].offline(false);
                world.clock.advance(std::time::Duration::from_millis(world.config.reprobe_ms));
                log.room(Demand::default()).await;
            }
            assert!(path_on(&world.disks[failed], &suffix).is_some(), "the test tests nothing");
            let freed = log.free(id, vec![]).await.unwrap();
            assert_eq!(freed.left, if is_back { vec![] } else { vec![(0, ids[failed])] });
            assert_eq!(path_on(&world.disks[failed], &suffix).is_none(), is_back);
            world.disks[failed].offline(false);
        });
        world.kill();
        life(async {
            let (_, recovery) = world.start(&book).await;
            assert_eq!(recovery.freed, [id]);
        });
        assert!(world.find(&id.to_string()).is_none());
    }
}

/// Power fails at any step of a repair that moves shards and builds others in place; then all is as before, and a repair finishes it.
#[test]
fn a_crash_in_a_repair_loses_nothing() {
    let mut interrupted = 0;
    for (step, seed) in (0..36).flat_map(|step| (0..2).map(move |seed| (step, 100 + step * 2 + seed))) {
        let (mut world, book) = written("2+1", 1, seed);
        let holder =
            world.disks.iter().position(|disk| disk.paths().iter().any(|path| path.starts_with("segments/"))).unwrap();
        world.absent = vec![holder];
        let before = book.mutations();
        life(async {
            let (log, _) = world.start(&book).await;
            let power = world.power().fails_after(step, step);
            tokio::select! {
                biased;
                _ = log.repair(false) => {}
                () = power => interrupted += 1,
            }
            steps(50).await;
        });
        // Sometimes the index lost what it was not made to keep.
        let book = if seed % 3 == 0 { Arc::new(Book::default()) } else { book };
        world.reopen();
        world.absent = if seed % 4 < 2 { vec![] } else { vec![holder] };
        life(async {
            let (log, recovery) = world.start(&book).await;
            assert!(recovery.unreadable.is_empty(), "step {step}: {:?}", recovery.unreadable);
            assert_eq!(book.mutations(), before, "step {step}");
            book.verify(&log).await;
            repair(&log).await;
            assert_eq!(log.status().redundancy, [2], "step {step}");
            book.verify(&log).await;
        });
        world.kill();
        world.absent.clear();
        life(async {
            let (log, _) = world.start(&book).await;
            repair(&log).await;
            check_files(&world, &book);
            check_redundancy(&world, &log, &book).await;
        });
    }
    assert!(interrupted > 20, "{interrupted} repairs were interrupted");
}

#[test]
fn a_target_that_fails_while_it_is_built_on_is_left_for_another_time() {
    let (mut world, book) = written("2+1", 1, 7);
    let holder =
        world.disks.iter().position(|disk| disk.paths().iter().any(|path| path.starts_with("segments/"))).unwrap();
    world.absent = vec![holder];
    life(async {
        let (log, _) = world.start(&book).await;
        for disk in &world.disks {
            disk.fail_syncs(1, std::io::ErrorKind::Other);
        }
        let pass = log.repair(false).await.unwrap();
        assert!(pass.shards_failed > 0, "{pass:?}");
        let left = world.disks.iter().flat_map(SimDisk::paths).filter(|path| path.ends_with(".rebuild")).count();
        assert_eq!(left, 0);
        book.verify(&log).await;
        // It is asked again when its time has come.
        world.clock.advance(std::time::Duration::from_secs(60));
        for disk in &world.disks {
            disk.fail_syncs(0, std::io::ErrorKind::Other);
        }
        repair(&log).await;
        assert_eq!(log.status().redundancy, [2]);
    });
}

#[test]
fn no_room_blocks_repair_and_nothing_else() {
    let (mut world, book) = written("2+1", 1, 8);
    let holder =
        world.disks.iter().position(|disk| disk.paths().iter().any(|path| path.starts_with("segments/"))).unwrap();
    world.absent = vec![holder];
    life(async {
        let (log, _) = world.start(&book).await;
        for disk in &world.disks {
            disk.full_at(disk.used_bytes());
        }
        let pass = log.repair(false).await.unwrap();
        assert!(pass.shards_blocked > 0 && pass.shards_failed == 0, "{pass:?}");
        assert_eq!(log.status().repair.blocked, pass.shards_blocked);
        book.verify(&log).await;
    });
}

/// However many shards have nowhere to go, a pass asks the targets once for all of them; what can be done is done, and they are not waited with when there is room.
#[test]
fn what_has_nowhere_to_go_is_passed_over() {
    let mut world = World::new("2+1", 60);
    world.config.upkeep.repair_concurrency = 1;
    let book = Arc::new(Book::default());
    let large = 20;
    for life_number in 0..=large {
        life(async {
            let (log, _) = world.start(&book).await;
            match life_number {
                0 => drop(put(&log, 1, 1000).await.unwrap()),
                seed => drop(append(&log, seed, log.stripe_payload_bytes()).await.unwrap()),
            }
        });
        world.kill();
    }
    life(async { drop(world.start(&book).await) });
    world.kill();
    segments(&book).iter().for_each(|id| unlink(&world, &format!("{id}.001")));
    let asked = Arc::new(AtomicUsize::new(0));
    let mut targets = world.targets();
    for (target, disk) in targets.iter_mut().zip(&world.disks) {
        disk.full_at(disk.used_bytes() + world.config.target_reserve_bytes + 65_536);
        let asked = Arc::clone(&asked);
        target.disk = Some(disk.with_space(Arc::new(move |space| {
            asked.fetch_add(1, Ordering::SeqCst);
            space
        })));
    }
    life(async {
        let (log, _) = world.start_on(targets, &book).await;
        let pass = log.repair(false).await.unwrap();
        assert_eq!((pass.shards_built, pass.shards_blocked, pass.shards_failed), (1, large as usize, 0), "{pass:?}");
        assert_eq!(log.status().repair.blocked, large as usize);
        asked.store(0, Ordering::SeqCst);
        assert_eq!(
            log.repair(false).await.unwrap(),
            RepairPass { shards_blocked: large as usize, ..RepairPass::default() }
        );
        assert_eq!(asked.load(Ordering::SeqCst), 2 * 3, "once to see whether they work, and once for room");
        world.disks.iter().for_each(|disk| disk.full_at(u64::MAX));
        assert_eq!(repair(&log).await.shards_built, large as usize);
        assert_eq!(log.status().redundancy, [large as usize + 1]);
    });
}

/// Each look at what there is to repair goes over all segments: readers who meet the same damage again call for none.
#[test]
fn damage_that_is_known_calls_for_no_repair() {
    let (mut world, book) = written("2+1", 0, 61);
    life(async {
        let (log, _) = world.start(&book).await;
        let extent = append(&log, 5, log.stripe_payload_bytes()).await.unwrap();
        let wanted = log.repair_wanted();
        let rang = || wanted.notified().now_or_never().is_some();
        assert!(!rang());
        for (rotten, calls) in [(Some(0), true), (None, false), (Some(1), true), (None, false)] {
            if let Some(shard) = rotten {
                world.rot(&extent, shard, 4096 + 100);
            }
            // One of the two can not be had without the other.
            let _ = read(&log, &extent, 0..extent.len).await;
            assert_eq!(rang(), calls, "{rotten:?}");
        }
        assert_eq!(log.status().repairs.len(), 2);
    });
}

#[test]
fn what_can_not_be_healed_replaces_nothing() {
    let (mut world, book) = written("2+1", 0, 9);
    life(async {
        let (log, _) = world.start(&book).await;
        let id = segments(&book)[0];
        // One block is bad on two shards: that stripe is lost, and what is left of each must stay as it is.
        for shard in [0, 2] {
            let (disk, path) = world.find(&format!("{id}.{shard:03}")).unwrap();
            disk.corrupt(&path, 4096 + 400);
        }
        let lost = book.unreadable(&log).await.len();
        let pass = log.repair(true).await.unwrap();
        assert_eq!((pass.shards_built, pass.shards_failed), (0, 2), "{pass:?}");
        assert_eq!(log.repair(false).await.unwrap(), RepairPass::default(), "it is left for later");
        assert_eq!(book.unreadable(&log).await.len(), lost);
        // One of them heals, e.g. because a cable was at fault: then both do.
        let (disk, path) = world.find(&format!("{id}.000")).unwrap();
        disk.corrupt(&path, 4096 + 400);
        assert_eq!(log.repair(true).await.unwrap().shards_built, 1);
        book.verify(&log).await;
        assert!(log.status().repairs.is_empty());
    });
}

#[test]
fn a_lost_shard_is_built_as_far_as_it_can_be() {
    let (mut world, book) = written("2+1", 0, 10);
    let id = segments(&book)[0];
    unlink(&world, &format!("{id}.002"));
    life(async {
        let (log, _) = world.start(&book).await;
        let (disk, path) = world.find(&format!("{id}.000")).unwrap();
        disk.corrupt(&path, 4096 + 400);
        let pass = log.repair(true).await.unwrap();
        assert!(pass.lost_stripes > 0 && pass.shards_built == 1, "{pass:?}");
        assert_eq!(log.metrics().repair_lost_stripes.get(), pass.lost_stripes);
        // The rot goes, and with it the hole.
        disk.corrupt(&path, 4096 + 400);
        assert_eq!(log.repair(true).await.unwrap().lost_stripes, 0);
        check_redundancy(&world, &log, &book).await;
    });
}

/// A shard is not built with holes where the others are only away for a moment; a bad sector costs its own stripe.
#[test]
fn nothing_is_left_out_of_a_shard_for_targets_that_do_not_answer() {
    let (mut world, book) = written("2+1", 0, 11);
    let id = segments(&book)[0];
    let holder = world
        .disks
        .iter()
        .position(|disk| disk.paths().iter().any(|path| path.ends_with(&format!("{id}.000"))))
        .unwrap();
    unlink(&world, &format!("{id}.002"));
    life(async {
        let (log, _) = world.start(&book).await;
        world.disks[holder].offline(true);
        let pass = log.repair(true).await.unwrap();
        assert_eq!((pass.shards_built, pass.lost_stripes), (0, 0), "{pass:?}");
        assert!(pass.shards_failed > 0 && log.metrics().repair_lost_stripes.get() == 0, "{pass:?}");
        world.disks[holder].offline(false);
        world.clock.advance(std::time::Duration::from_secs(60));
        // It is not one of those that are left alone for an hour.
        assert_eq!(log.repair(false).await.unwrap().shards_built, 1);
        check_redundancy(&world, &log, &book).await;
    });
    check_files(&world, &book);
}
