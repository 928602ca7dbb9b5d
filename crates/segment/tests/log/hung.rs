//! Drives that hang: they give no error, and nothing comes of what they are asked. Who can do without them waits half a minute once, who can not waits until they answer.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gabion_platform::{Access, Disk, SimDisk};
use gabion_segment::{Durability, Log, LogError, RepairPass, TargetMode, TargetState};
use gabion_types::{Extent, Place};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout};

use crate::book::Book;
use crate::world::{World, append, life, pattern, put, read, steps};

/// Longest that is waited for a drive, with what happens beside that.
const PATIENCE: Duration = Duration::from_secs(35);

/// What a drive does not do for now.
struct Hang {
    reads: AtomicBool,
    changes: AtomicBool,
    zeros: AtomicBool,
    answers: Semaphore,
}

impl Hang {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            reads: AtomicBool::new(false),
            changes: AtomicBool::new(false),
            zeros: AtomicBool::new(false),
            answers: Semaphore::new(0),
        })
    }

    fn disk(self: &Arc<Self>, world: &World, number: usize) -> Arc<dyn Disk> {
        let hang = Arc::clone(self);
        world.disks[number].gated(Arc::new(move |access| {
            let hang = Arc::clone(&hang);
            let hangs = match access {
                Access::Read(_) => &hang.reads,
                Access::Change => &hang.changes,
                Access::Zeros => &hang.zeros,
            };
            let hangs = hangs.load(Ordering::SeqCst);
            Box::pin(async move {
                if hangs {
                    drop(hang.answers.acquire().await);
                }
                Ok(())
            })
        }))
    }

    /// From now on.
    fn begin(&self, reads: bool, changes: bool) {
        self.reads.store(reads, Ordering::SeqCst);
        self.changes.store(changes, Ordering::SeqCst);
    }

    /// Everything that was asked for is done.
    async fn end(&self) {
        self.begin(false, false);
        self.zeros.store(false, Ordering::SeqCst);
        self.answers.add_permits(1000);
        steps(300).await;
        self.answers.forget_permits(1000);
    }
}

async fn start(world: &mut World, hung: &[(usize, &Arc<Hang>)], book: &Arc<Book>) -> Log {
    let mut targets = world.targets();
    for (number, hang) in hung {
        targets[*number].disk = Some(hang.disk(world, *number));
    }
    world.start_on(targets, book).await.0
}

/// What `work` comes to, and how long it takes.
async fn timed<T>(work: impl Future<Output = T>) -> (T, Duration) {
    let begin = Instant::now();
    let outcome = work.await;
    (outcome, begin.elapsed())
}

/// Time goes by until failed targets are asked whether they work again.
async fn probe(world: &World, log: &Log) {
    world.clock.advance(Duration::from_millis(world.config.reprobe_ms));
    log.room(gabion_segment::Demand::default()).await;
}

fn all_are_online(log: &Log) -> bool {
    log.status().targets.iter().all(|target| target.state == TargetState::Online)
}

/// How many shard files of a drive end with a seal that says that they failed.
async fn distrusted_files(disk: &SimDisk, book: &Book) -> usize {
    let mut count = 0;
    for known in book.known() {
        let Some(seal) = known.sealed else { continue };
        for path in disk.paths().iter().filter(|path| path.contains(&known.id.to_string())) {
            let file = disk.open(path).await.unwrap();
            let block = file.read_at(seal.end_offset, 4096).await.unwrap();
            // docs/FORMAT.md, "Seal block".
            let is_seal = block.starts_with(b"GABSEAL");
            count += usize::from(is_seal && block[80] == 1 && file.len().await.unwrap() == seal.end_offset + 8192);
        }
    }
    count
}

#[test]
fn a_stripe_waits_for_a_drive_that_hangs_no_longer_than_it_must() {
    // With two chunks to spare one is left out; with one the stripe goes elsewhere.
    for (geometry, disks) in [("2+2", 4), ("4+2", 6), ("2+1", 4)] {
        for durability in [Durability::Sync, Durability::Relaxed] {
            let context = format!("{geometry} {durability:?}");
            let mut world = World::with_disks(geometry.parse().unwrap(), disks, 7);
            world.config.durability = durability;
            let (hang, book) = (Hang::new(), Arc::new(Book::default()));
            let extents = life(async {
                let log = start(&mut world, &[(1, &hang)], &book).await;
                let mut extents = Vec::new();
                // Until it has a shard of both segments that are open.
                for seed in 0.. {
                    put(&log, seed, 9000).await.unwrap();
                    extents.push((seed, append(&log, seed, 300_000).await.unwrap()));
                    let open = book.known().into_iter().filter(|known| known.sealed.is_none());
                    if open.filter(|known| known.targets.contains(&log.status().targets[1].id)).count() == 2 {
                        break;
                    }
                }
                hang.begin(false, true);
                let (outcomes, took) = timed(async {
                    let both = futures::future::join(put(&log, 1001, 9000), append(&log, 1001, 300_000)).await;
                    (both.0.map(drop), both.1)
                })
                .await;
                outcomes.0.unwrap();
                extents.push((1001, outcomes.1.unwrap()));
                assert!(took >= Duration::from_secs(30) && took < PATIENCE, "{context}: {took:?}");
                assert_eq!(log.metrics().chunk_failures.get(), 2, "{context}");
                // Nothing waits any more.
                let (_, took) = timed(async {
                    for seed in 1002..1010 {
                        put(&log, seed, 9000).await.unwrap();
                        extents.push((seed, append(&log, seed, 300_000).await.unwrap()));
                    }
                })
                .await;
                assert!(took < Duration::from_secs(1), "{context}: {took:?}");
                book.verify(&log).await;
                hang.end().await;
                probe(&world, &log).await;
                assert!(all_are_online(&log), "{context}");
                assert_eq!(distrusted_files(&world.disks[1], &book).await, 2, "{context}");
                let (pass, _) = timed(log.repair(true)).await;
                assert!(pass.unwrap().shards_built > 0, "{context}: what it has is not trusted");
                assert!(log.status().repairs.is_empty(), "{context}");
                extents
            });
            world.kill();
            // With an index and without.
            for rebuilt in [Arc::new(Book::from_page(book.snapshot())), Arc::new(Book::default())] {
                life(async {
                    let (log, recovery) = world.start(&rebuilt).await;
                    assert!(recovery.unreadable.is_empty(), "{context}");
                    assert_eq!(rebuilt.mutations(), book.mutations(), "{context}");
                    rebuilt.verify(&log).await;
                    for (seed, extent) in &extents {
                        let found = read(&log, extent, 0..extent.len).await.unwrap();
                        assert!(found == pattern(*seed, extent.len as usize), "{context}: {seed}");
                    }
                });
                world.kill();
            }
        }
    }
}

#[test]
fn a_crash_while_a_drive_hangs_costs_nothing_that_was_acknowledged() {
    for (geometry, disks) in [("2+2", 4), ("2+1", 4)] {
        for durability in [Durability::Sync, Durability::Relaxed] {
            for late in [false, true] {
                let context = format!("{geometry} {durability:?} {late}");
                let mut world = World::with_disks(geometry.parse().unwrap(), disks, 8);
                world.config.durability = durability;
                let (hang, book) = (Hang::new(), Arc::new(Book::default()));
                life(async {
                    let log = start(&mut world, &[(1, &hang)], &book).await;
                    for name in 0..5 {
                        put(&log, name, 9000).await.unwrap();
                    }
                    hang.begin(false, true);
                    for name in 5..10 {
                        put(&log, name, 9000).await.unwrap();
                    }
                    if late {
                        hang.end().await;
                    }
                });
                world.kill();
                for rebuilt in [Arc::new(Book::from_page(book.snapshot())), Arc::new(Book::default())] {
                    life(async {
                        let (log, _) = world.start(&rebuilt).await;
                        assert_eq!(rebuilt.mutations(), book.mutations(), "{context}");
                        rebuilt.verify(&log).await;
                    });
                    world.kill();
                }
            }
        }
    }
}

#[test]
fn a_stripe_that_has_nowhere_else_to_go_waits_for_its_drives() {
    // Also where others have room, if too few shards would be left to be sure what became of it.
    let all = (0..12).collect::<Vec<_>>();
    for (geometry, disks, hung) in [
        ("1+0", 1, vec![0]),
        ("2+1", 3, vec![1]),
        ("2+2", 4, vec![0, 1]),
        ("1+1", 2, vec![0]),
        ("2+1", 6, all[..6].to_vec()),
        ("4+2", 12, all),
    ] {
        for durability in [Durability::Sync, Durability::Relaxed] {
            let mut world = World::with_disks(geometry.parse().unwrap(), disks, 9);
            world.config.durability = durability;
            let (hang, book) = (Hang::new(), Arc::new(Book::default()));
            life(async {
                let hung: Vec<_> = hung.iter().map(|number| (*number, &hang)).collect();
                let log = start(&mut world, &hung, &book).await;
                put(&log, 1, 9000).await.unwrap();
                hang.begin(false, true);
                let mut written = std::pin::pin!(put(&log, 2, 9000));
                assert!(timeout(Duration::from_secs(600), &mut written).await.is_err(), "{geometry}");
                let are_named = |number: &usize| log.status().targets[*number].silent;
                assert!(hung.iter().any(|(number, _)| are_named(number)), "{geometry}");
                hang.end().await;
                written.await.unwrap();
                assert!(log.status().targets.iter().all(|target| !target.silent), "{geometry}");
                put(&log, 3, 9000).await.unwrap();
                assert_eq!(log.metrics().chunk_failures.get(), 0, "{geometry}: it has done what it was told");
                book.verify(&log).await;
            });
        }
    }
}

#[test]
fn what_was_written_is_made_durable_without_a_drive_that_hangs() {
    // One of the three that a segment needs can be done without where there is a fourth.
    for (geometry, disks, is_left_out) in [("2+2", 4, true), ("2+1", 4, true), ("2+1", 3, false)] {
        let mut world = World::with_disks(geometry.parse().unwrap(), disks, 10);
        world.config.durability = Durability::Relaxed;
        let book = Arc::new(Book::default());
        life(async {
            let (log, hangs) = start_on_any(&mut world, &book).await;
            put(&log, 1, 9000).await.unwrap();
            let hang = &hangs[holder(&log, &book)];
            hang.begin(false, true);
            let (synced, took) = timed(timeout(Duration::from_secs(600), log.sync())).await;
            assert_eq!(synced.is_ok(), is_left_out, "{geometry} {disks}");
            assert!(took >= Duration::from_secs(120), "{geometry} {disks}: {took:?}");
            assert!(took < Duration::from_secs(125) || !is_left_out, "{geometry} {disks}: {took:?}");
            assert_eq!(log.metrics().chunk_failures.get(), u64::from(is_left_out));
            hang.end().await;
            probe(&world, &log).await;
            put(&log, 2, 9000).await.unwrap();
            log.sync().await.unwrap();
            log.repair(true).await.unwrap();
            assert!(all_are_online(&log) && log.status().repairs.is_empty(), "{geometry}");
            book.verify(&log).await;
        });
    }
}

/// The number of a drive that has a shard of the first segment.
fn holder(log: &Log, book: &Book) -> usize {
    let holder = book.known()[0].targets[1];
    log.status().targets.iter().position(|target| target.id == holder).unwrap()
}

/// Zeros that are written ahead are waited for as stripes are.
#[test]
fn zeros_that_come_to_no_end_are_done_without_where_a_stripe_would_be() {
    for (geometry, disks, is_left_out) in [("2+2", 4, true), ("2+1", 4, true), ("2+1", 3, false)] {
        let mut world = World::with_disks(geometry.parse().unwrap(), disks, 19);
        world.config.prewrite_piece_bytes = 32 << 10;
        let book = Arc::new(Book::default());
        life(async {
            let (log, hangs) = start_on_any(&mut world, &book).await;
            put(&log, 0, 1000).await.unwrap();
            let hang = &hangs[holder(&log, &book)];
            hang.zeros.store(true, Ordering::SeqCst);
            let (written, took) = timed(timeout(Duration::from_secs(600), async {
                for name in 1..60 {
                    put(&log, name, 1000).await.unwrap();
                }
            }))
            .await;
            assert_eq!(written.is_ok(), is_left_out, "{geometry} {disks}");
            assert!(took >= Duration::from_secs(30), "the test tests nothing");
            assert!(took < PATIENCE || !is_left_out, "{geometry} {disks}: {took:?}");
            assert_eq!(log.metrics().chunk_failures.get(), u64::from(is_left_out));
            hang.end().await;
            put(&log, 60, 1000).await.unwrap();
            book.verify(&log).await;
        });
    }
}

/// As large puts and checkpoints have them made durable: every second.
#[test]
fn a_sync_that_is_under_way_holds_up_no_stripe_that_goes_on() {
    for (geometry, disks) in [("2+2", 4), ("2+1", 4)] {
        let mut world = World::with_disks(geometry.parse().unwrap(), disks, 16);
        world.config.durability = Durability::Relaxed;
        let book = Arc::new(Book::default());
        life(async {
            let (log, hangs) = start_on_any(&mut world, &book).await;
            put(&log, 1, 9000).await.unwrap();
            let number = holder(&log, &book);
            hangs[number].begin(false, true);
            let syncing = {
                let log = log.clone();
                tokio::spawn(async move { log.sync().await })
            };
            sleep(Duration::from_secs(1)).await;
            let (written, took) = timed(put(&log, 2, 9000)).await;
            written.unwrap();
            assert!(took < PATIENCE, "{geometry}: {took:?}");
            syncing.await.unwrap().unwrap();
            hangs[number].end().await;
            book.verify(&log).await;
        });
    }
}

/// What is open when a drive begins to hang, and is written only later.
#[test]
fn a_drive_that_is_known_to_hang_is_not_waited_for_again() {
    let mut world = World::with_disks("2+2".parse().unwrap(), 5, 17);
    let book = Arc::new(Book::default());
    life(async {
        let (log, hangs) = start_on_any(&mut world, &book).await;
        // One segment for each kind.
        let small = put(&log, 1, 9000).await.unwrap().extents[0];
        append(&log, 1, 400_000).await.unwrap();
        let known = book.known();
        let both = known[0].targets.iter().find(|target| known[1].targets.contains(target)).unwrap();
        let number = log.status().targets.iter().position(|target| target.id == *both).unwrap();
        hangs[number].begin(true, true);
        let (outcomes, took) = timed(async {
            put(&log, 2, 9000).await.unwrap();
            append(&log, 2, 400_000).await.unwrap();
            read(&log, &small, 0..9000).await.unwrap()
        })
        .await;
        assert!(outcomes == pattern(1, 9000));
        assert!(took >= Duration::from_secs(30) && took < PATIENCE, "{took:?}");
        hangs[number].end().await;
        book.verify(&log).await;
    });
}

/// A record and a large extent, and the number of a drive that has a part of both that is asked for.
async fn on_one_drive(log: &Log, book: &Book) -> (usize, [(u64, Extent); 2]) {
    let small = put(log, 1, 9000).await.unwrap().extents[0];
    let Place::Chunk { shard, .. } = small.place else { panic!("{small:?}") };
    let targets = |extent: &Extent| book.known().into_iter().find(|known| known.id == extent.segment).unwrap().targets;
    let holder = targets(&small)[usize::from(shard)];
    let number = log.status().targets.iter().position(|target| target.id == holder).unwrap();
    for seed in 2..40 {
        let large = append(log, seed, 400_000).await.unwrap();
        if targets(&large)[..2].contains(&holder) {
            return (number, [(1, small), (seed, large)]);
        }
    }
    panic!("it holds nothing but parity")
}

/// A log on drives each of which may hang.
async fn start_on_any(world: &mut World, book: &Arc<Book>) -> (Log, Vec<Arc<Hang>>) {
    let hangs: Vec<_> = world.disks.iter().map(|_| Hang::new()).collect();
    let log = start(world, &hangs.iter().enumerate().collect::<Vec<_>>(), book).await;
    (log, hangs)
}

async fn is_right(log: &Log, (seed, extent): &(u64, Extent)) -> bool {
    let small = 100..extent.len / 2;
    let part = read(log, extent, small.clone()).await.unwrap();
    let whole = read(log, extent, 0..extent.len).await.unwrap();
    let expected = pattern(*seed, extent.len as usize);
    whole == expected && part == expected[small.start as usize..small.end as usize]
}

#[test]
fn a_read_goes_around_a_drive_that_hangs() {
    let mut world = World::with_disks("2+1".parse().unwrap(), 3, 11);
    let book = Arc::new(Book::default());
    life(async {
        let (log, hangs) = start_on_any(&mut world, &book).await;
        let (number, extents) = on_one_drive(&log, &book).await;
        let hang = &hangs[number];
        hang.begin(true, false);
        for (number, extent) in extents.iter().enumerate() {
            let (right, took) = timed(is_right(&log, extent)).await;
            assert!(right);
            // Once, by whoever finds it out.
            let waits = number == 0;
            assert!(took < PATIENCE && (took >= Duration::from_secs(30)) == waits, "{took:?}");
        }
        assert!(log.metrics().degraded_reads.get() > 0);
        assert!(log.status().repairs.is_empty(), "nothing is known to be damaged");
        assert_eq!(log.status().targets[number].state, TargetState::Failed, "who looks after it sees it");
        hang.end().await;
        probe(&world, &log).await;
        let before = log.metrics().degraded_reads.get();
        for extent in &extents {
            assert!(is_right(&log, extent).await);
        }
        assert_eq!(log.metrics().degraded_reads.get(), before, "it is read again");
        assert!(all_are_online(&log));
    });
}

#[test]
fn a_reader_who_gives_up_sooner_is_no_reason_to_wait_again() {
    let mut world = World::with_disks("2+1".parse().unwrap(), 3, 12);
    let book = Arc::new(Book::default());
    life(async {
        let (log, hangs) = start_on_any(&mut world, &book).await;
        let (number, extents) = on_one_drive(&log, &book).await;
        let hang = &hangs[number];
        hang.begin(true, false);
        assert!(timeout(Duration::from_secs(5), is_right(&log, &extents[0])).await.is_err());
        sleep(Duration::from_secs(26)).await;
        let (right, took) = timed(is_right(&log, &extents[0])).await;
        assert!(right && took < Duration::from_secs(1), "{took:?}");
    });
}

#[test]
fn a_read_of_which_too_much_hangs_waits_for_it() {
    let mut world = World::with_disks("2+1".parse().unwrap(), 3, 13);
    let book = Arc::new(Book::default());
    life(async {
        let (log, hangs) = start_on_any(&mut world, &book).await;
        // Of the record alone parity would do: the other data chunk has nothing.
        let (number, [_, extent]) = on_one_drive(&log, &book).await;
        let hung = [&hangs[number], &hangs[(number + 1) % 3]];
        hung.iter().for_each(|hang| hang.begin(true, false));
        let mut reading = std::pin::pin!(is_right(&log, &extent));
        assert!(timeout(Duration::from_secs(600), &mut reading).await.is_err());
        for hang in hung {
            hang.end().await;
        }
        assert!(reading.await);
        assert!(log.status().repairs.is_empty());
    });
    // Nor is a drive given up that nothing stands in for.
    let mut world = World::new("1+0", 13);
    let (hang, book) = (Hang::new(), Arc::new(Book::default()));
    life(async {
        let log = start(&mut world, &[(0, &hang)], &book).await;
        let extent = put(&log, 1, 9000).await.unwrap().extents[0];
        hang.begin(true, false);
        let found = (1, extent);
        let mut reading = std::pin::pin!(is_right(&log, &found));
        assert!(timeout(Duration::from_secs(600), &mut reading).await.is_err());
        hang.end().await;
        assert!(reading.await);
    });
}

#[test]
fn repair_goes_around_a_drive_that_hangs() {
    let mut world = World::with_disks("2+2".parse().unwrap(), 6, 14);
    let (hang, book) = (Hang::new(), Arc::new(Book::default()));
    life(async {
        let log = start(&mut world, &[(1, &hang)], &book).await;
        for seed in 0..30 {
            put(&log, seed, 9000).await.unwrap();
            append(&log, seed, 400_000).await.unwrap();
        }
    });
    world.kill();
    let book = Arc::new(Book::from_page(book.snapshot()));
    life(async {
        let log = start(&mut world, &[(1, &hang)], &book).await;
        let leaving = log.status().targets[0].id;
        // It neither gives what others are built of, nor takes what they would place there.
        hang.begin(true, true);
        world.disks[0].offline(true);
        log.target_drain(leaving, TargetMode::Apply).await.unwrap();
        let (passes, took) = timed(async {
            let mut passes: Vec<RepairPass> = Vec::new();
            for _ in 0..3 {
                passes.push(log.repair(true).await.unwrap());
            }
            passes
        })
        .await;
        assert!(took < Duration::from_secs(200), "{took:?}");
        let left = book.known().into_iter().filter(|known| known.targets.contains(&leaving)).count();
        assert_eq!(left, 0, "{passes:?}");
        assert!(passes.iter().all(|pass| pass.lost_stripes == 0));
        let scrubbed = timed(log.scrub_next(None)).await;
        assert!(scrubbed.1 < PATIENCE && scrubbed.0.unwrap().is_some_and(|scrubbed| scrubbed.bad_shards == 0));
        hang.end().await;
        probe(&world, &log).await;
        log.repair(true).await.unwrap();
        book.verify(&log).await;
    });
}

#[test]
fn a_drive_that_was_late_is_no_damage_to_a_scrub() {
    let mut world = World::with_disks("2+1".parse().unwrap(), 3, 18);
    // Some minutes for a segment.
    world.config.upkeep.scrub_bytes_per_s = 50_000;
    let (hang, book) = (Hang::new(), Arc::new(Book::default()));
    life(async {
        let log = start(&mut world, &[(1, &hang)], &book).await;
        for seed in 0..30 {
            append(&log, seed, 400_000).await.unwrap();
        }
        hang.begin(true, false);
        let scrubbing = {
            let log = log.clone();
            tokio::spawn(async move { log.scrub_next(None).await })
        };
        while !log.status().targets[1].silent {
            sleep(Duration::from_secs(1)).await;
        }
        hang.end().await;
        assert!(!scrubbing.is_finished(), "the test tests nothing");
        let scrubbed = scrubbing.await.unwrap().unwrap().unwrap();
        assert_eq!((scrubbed.bad_shards, scrubbed.bad_chunks, scrubbed.unread_shards), (0, 0, 1), "{scrubbed:?}");
        assert!(log.status().repairs.is_empty());
        let scrubbed = log.scrub_next(None).await.unwrap().unwrap();
        assert_eq!((scrubbed.bad_shards, scrubbed.unread_shards), (0, 0), "{scrubbed:?}");
    });
}

#[test]
fn holes_are_not_waited_for_on_a_drive_that_hangs() {
    let mut world = World::with_disks("2+1".parse().unwrap(), 3, 15);
    let (hang, book) = (Hang::new(), Arc::new(Book::default()));
    life(async {
        let log = start(&mut world, &[(1, &hang)], &book).await;
        for seed in 0..30 {
            append(&log, seed, 400_000).await.unwrap();
        }
        let id = book.known().iter().find(|known| known.sealed.is_some()).unwrap().id;
        let dead = log.dead_stripes(id, &BTreeSet::new()).await.unwrap().unwrap();
        hang.begin(false, true);
        for _ in 0..2 {
            let (punched, took) = timed(log.punch(id, &dead)).await;
            assert!(matches!(punched, Err(LogError::Unavailable(_))), "{punched:?}");
            assert!(took < PATIENCE, "{took:?}");
        }
        hang.end().await;
        assert!(log.punch(id, &dead).await.unwrap().is_some());
    });
}
