//! Power loss and process death at any moment: what was acknowledged is there, what was not is there whole or not at all.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::Arc;

use gabion_platform::{Disk, FaultPlan};
use gabion_segment::{Committed, LogError, Seal};
use gabion_types::Extent;
use parking_lot::Mutex;

use crate::book::{Book, Page};
use crate::world::{World, append, life, mutation, pattern, put, read, steps};

/// What survives of the index.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Index {
    Lost,
    Older,
    Current,
}

/// How the process ends.
#[derive(Debug, Clone, Copy, PartialEq)]
enum End {
    Kill,
    PowerLoss,
}

#[derive(Default)]
struct Acknowledged {
    records: Vec<(String, Committed)>,
    stripes: Vec<(u64, Extent)>,
    errors: Vec<LogError>,
}

/// What a life of writers left behind.
struct Left {
    acknowledged: Arc<Mutex<Acknowledged>>,
    older: Page,
    current: Page,
}

/// Writers work until the process ends in the middle of whatever is going on after `moment` steps.
fn interrupted_life(world: &mut World, book: Arc<Book>, seed: u64, moment: u64, how: End) -> Left {
    let acknowledged = Arc::new(Mutex::new(Acknowledged::default()));
    let mut older = Page::default();
    life(async {
        let (log, _) = world.start(&book).await;
        for writer in 0..4_u64 {
            let (log, acknowledged) = (log.clone(), Arc::clone(&acknowledged));
            tokio::spawn(async move {
                for number in 0.. {
                    let name = seed * 1_000_000 + writer * 10_000 + number;
                    let len = [0, 300, 4096, 70_000, 500_000][(name.wrapping_mul(2_654_435_761) >> 7) as usize % 5];
                    match put(&log, name, len).await {
                        Ok(committed) => acknowledged.lock().records.push((mutation(name, len), committed)),
                        Err(error) => return acknowledged.lock().errors.push(error),
                    }
                }
            });
        }
        let (log, stripes) = (log.clone(), Arc::clone(&acknowledged));
        tokio::spawn(async move {
            for number in 0_u64.. {
                let len = 1 + (number as usize * 77_777) % log.stripe_payload_bytes();
                match append(&log, number, len).await {
                    Ok(extent) => stripes.lock().stripes.push((number, extent)),
                    Err(error) => return stripes.lock().errors.push(error),
                }
            }
        });
        steps(moment / 2).await;
        older = book.snapshot();
        steps(moment - moment / 2).await;
        // Before the tasks go: what is in flight at this moment stays undone.
        end(world, how, seed);
    });
    let errors = std::mem::take(&mut acknowledged.lock().errors);
    assert!(errors.is_empty(), "seed {seed}: {errors:?}");
    Left { acknowledged, older, current: book.snapshot() }
}

fn end(world: &mut World, end: End, seed: u64) {
    match end {
        End::Kill => world.kill(),
        End::PowerLoss => world.crash(seed),
    }
}

/// Checks that all that was acknowledged is in `book` and readable, and that all in `book` is whole.
async fn check(log: &gabion_segment::Log, book: &Book, left: &Left, context: &str) {
    book.verify(log).await;
    check_acknowledged(log, book, left, context).await;
}

async fn check_acknowledged(log: &gabion_segment::Log, book: &Book, left: &Left, context: &str) {
    let found = book.mutations();
    let unreadable = book.unreadable(log).await;
    let (records, stripes) = {
        let acknowledged = left.acknowledged.lock();
        (acknowledged.records.clone(), acknowledged.stripes.clone())
    };
    for (text, committed) in &records {
        assert_eq!(found.get(&committed.seq), Some(text), "{context}: an acknowledged record is lost");
        let error = unreadable.get(&committed.seq);
        assert!(error.is_none(), "{context}: an acknowledged record can not be read: {error:?}");
    }
    for (seed, extent) in stripes {
        let bytes = read(log, &extent, 0..extent.len).await.unwrap_or_else(|error| panic!("{context}: {error}"));
        assert!(bytes == pattern(seed, extent.len as usize), "{context}: an acknowledged stripe is lost");
    }
}

#[test]
fn what_was_acknowledged_survives() {
    let mut rolled_forward = 0;
    let mut voided = 0;
    for geometry in ["1+0", "1+1", "2+1", "4+2"] {
        for seed in 0..12 {
            let how = if seed % 4 == 3 { End::Kill } else { End::PowerLoss };
            let index = [Index::Lost, Index::Older, Index::Current][seed as usize % 3];
            let context = format!("{geometry}, seed {seed}, {how:?}, {index:?}");
            let mut world = World::new(geometry, seed);
            let left = interrupted_life(&mut world, Arc::default(), seed, 200 + seed * 191, how);
            let page = match index {
                Index::Lost => Page::default(),
                Index::Older => left.older.clone(),
                Index::Current => left.current.clone(),
            };
            let book = Arc::new(Book::from_page(page));
            let seen = life(async {
                let (log, recovery) = world.start(&book).await;
                rolled_forward += recovery.rolled_forward;
                voided += recovery.voided;
                assert!(recovery.unreadable.is_empty(), "{context}: {:?}", recovery.unreadable);
                check(&log, &book, &left, &context).await;
                // The log goes on, above all that was.
                let last = book.mutations().last_key_value().map(|(seq, _)| *seq).unwrap_or_default();
                let committed = put(&log, 5, 5000).await.unwrap();
                assert!(committed.seq > last, "{context}");
                book.mutations()
            });
            // What recovery decided stays decided, also when the index is lost later.
            end(&mut world, End::PowerLoss, seed + 1);
            let rebuilt = Arc::new(Book::default());
            life(async {
                let (log, _) = world.start(&rebuilt).await;
                check(&log, &rebuilt, &left, &context).await;
                assert_eq!(rebuilt.mutations(), seen, "{context}");
            });
        }
    }
    assert!(
        rolled_forward > 0 && voided > 0,
        "{rolled_forward} rolled forward, {voided} voided: the test tests nothing"
    );
}

#[test]
fn the_loss_of_m_targets_with_the_crash_loses_nothing_and_voids_stay_void() {
    let mut voided = 0;
    let mut rolled_forward = 0;
    for (geometry, lost) in
        [("1+1", vec![1]), ("2+1", vec![0]), ("4+2", vec![1, 4]), ("4+2", vec![0, 5]), ("4+2", vec![3])]
    {
        for seed in 100..110 {
            let context = format!("{geometry} without {lost:?}, seed {seed}");
            let mut world = World::new(geometry, seed);
            let left = interrupted_life(&mut world, Arc::default(), seed, 130 + (seed - 100) * 97, End::PowerLoss);
            world.absent = lost.clone();
            let older = left.older.clone();
            let book = Arc::new(Book::from_page(if seed % 2 == 0 { Page::default() } else { older }));
            let seen = life(async {
                let (log, recovery) = world.start(&book).await;
                voided += recovery.voided;
                rolled_forward += recovery.rolled_forward;
                check(&log, &book, &left, &context).await;
                book.mutations()
            });
            // The targets come back, with stripes that were voided without them; the index is lost.
            end(&mut world, End::Kill, seed);
            world.absent.clear();
            let rebuilt = Arc::new(Book::default());
            life(async {
                let (log, _) = world.start(&rebuilt).await;
                assert_eq!(rebuilt.mutations(), seen, "{context}: a void came back");
                check(&log, &rebuilt, &left, &context).await;
            });
            // And others go.
            end(&mut world, End::Kill, seed);
            world.absent = vec![lost[0] + 1];
            if world.absent[0] >= world.disks.len() {
                continue;
            }
            let rebuilt = Arc::new(Book::default());
            life(async {
                let (log, _) = world.start(&rebuilt).await;
                assert_eq!(rebuilt.mutations(), seen, "{context}: a void came back");
                check(&log, &rebuilt, &left, &context).await;
            });
        }
    }
    assert!(
        rolled_forward > 0 && voided > 0,
        "{rolled_forward} rolled forward, {voided} voided: the test tests nothing"
    );
}

/// Reads of one target, of which one fails, or all from one on: more of them than recovery makes.
fn failing_reads() -> impl Iterator<Item = (u32, u32)> {
    (0..60).flat_map(|passed| [(passed, 1), (passed, u32::MAX)])
}

/// Three records, each in a stripe of its own; the process dies, a chunk of one of them is torn, and reads of another target fail.
fn torn(world: &mut World, stripe: usize, (passed, failing): (u32, u32)) {
    let extents = life(async {
        let (log, _) = world.start(&Arc::default()).await;
        let mut extents = Vec::new();
        for name in 0..3 {
            extents.push(put(&log, name, 5000).await.unwrap().extents[0]);
        }
        extents
    });
    world.kill();
    world.rot(&extents[stripe], 2, 0);
    let (disk, _) = world.find(&format!("{}.000", extents[stripe].segment)).unwrap();
    disk.inject(FaultPlan::new().fail_reads_after(passed, failing, ErrorKind::Other));
}

/// Of a torn stripe as many chunks are left as it takes, one of them on a target that fails a read: each in turn, so also between the check and the
/// completion. Whatever recovery makes of the stripe, the replay after it finds the same, and so does every later one.
#[test]
fn a_chunk_that_can_not_be_read_again_does_not_complete_a_stripe() {
    let (mut completed, mut voided, mut untouched) = (0, 0, 0);
    for fault in failing_reads() {
        let context = format!("reads that fail: {fault:?}");
        let mut world = World::new("2+1", 1);
        torn(&mut world, 2, fault);
        let book = Arc::new(Book::default());
        let seen = life(async {
            let (log, recovery) = world.start(&book).await;
            assert!(recovery.unreadable.is_empty(), "{context}: {:?}", recovery.unreadable);
            completed += recovery.rolled_forward;
            voided += recovery.voided;
            untouched += u64::from(!log.reads_failed());
            book.mutations()
        });
        assert!(seen.values().any(|text| *text == mutation(1, 5000)), "{context}: {seen:?}");
        world.kill();
        world.disks.iter().for_each(|disk| disk.fail_reads(0, ErrorKind::Other));
        let rebuilt = Arc::new(Book::default());
        life(async {
            let (log, _) = world.start(&rebuilt).await;
            rebuilt.verify(&log).await;
            assert_eq!(rebuilt.mutations(), seen, "{context}");
        });
    }
    // Some faults come after the last read: none between the first and the last was left out.
    assert!(
        completed > 0 && voided > 1 && untouched > 1,
        "{completed} completed, {voided} voided, {untouched} as ever"
    );
}

/// The same where stripes follow: they were acknowledged, and are not cut off.
#[test]
fn what_follows_a_stripe_that_can_not_be_completed_is_not_cut_off() {
    let mut completed = 0;
    for fault in failing_reads() {
        let context = format!("reads that fail: {fault:?}");
        let mut world = World::new("2+1", 1);
        torn(&mut world, 0, fault);
        for _ in 0..2 {
            let book = Arc::new(Book::default());
            life(async {
                let (log, recovery) = world.open(vec![]).await.unwrap_or_else(|error| panic!("{context}: {error}"));
                book.replay_what_is_left(&log, &recovery).await;
                completed += recovery.rolled_forward;
            });
            let seen = book.mutations();
            for name in [1, 2] {
                assert!(seen.values().any(|text| *text == mutation(name, 5000)), "{context}: {seen:?}");
            }
            world.kill();
            world.disks.iter().for_each(|disk| disk.fail_reads(0, ErrorKind::Other));
        }
    }
    assert!(completed > 0, "the test tests nothing");
}

#[test]
fn a_crash_in_recovery_is_recovered_from() {
    for seed in 200..212 {
        let context = format!("seed {seed}");
        let mut world = World::new("4+2", seed);
        let left = interrupted_life(&mut world, Arc::default(), seed, 900, End::PowerLoss);
        for again in 0..4 {
            // Recovery itself is cut off at some step, several times.
            life(async {
                let power = world.power().fails_after((seed - 200) * 17 + again * 3, seed * 7 + again);
                tokio::select! {
                    biased;
                    _ = world.open(vec![]) => {}
                    () = power => {}
                }
            });
            world.reopen();
        }
        let book = Arc::new(Book::default());
        life(async {
            let (log, _) = world.start(&book).await;
            check(&log, &book, &left, &context).await;
        });
    }
}

/// Power failed under the first stripe of a segment, and fails again while what is left of it is removed, file by file. The last few files are not taken
/// for those of a segment that was lost.
#[test]
fn the_removal_of_a_voided_segment_can_be_cut_off() {
    let mut few = 0;
    for seed in 0..3 {
        for step in 0.. {
            let context = format!("seed {seed}, step {step}");
            let mut world = World::new("4+2", seed);
            let extent = life(async {
                let (log, _) = world.start(&Arc::default()).await;
                put(&log, 1, 5000).await.unwrap().extents[0]
            });
            world.kill();
            // Nobody was told of it, let us say: half of its chunks are there.
            for shard in [1, 2, 4] {
                world.rot(&extent, shard, 0);
            }
            let is_cut = life(async {
                let power = world.power().fails_after(step, seed * 7 + step);
                tokio::select! {
                    biased;
                    opened = world.open(vec![]) => opened.map(|_| false).unwrap(),
                    () = power => true,
                }
            });
            if !is_cut {
                break;
            }
            world.reopen();
            let left = world.shard_files().len();
            few += u64::from((1..4).contains(&left));
            if seed == 1 {
                // Nothing is decided for good while one of its targets is away.
                world.absent = vec![step as usize % 6];
                life(async { drop(world.start(&Arc::default()).await) });
                world.kill();
                world.absent.clear();
            }
            let book = Arc::new(Book::default());
            life(async {
                let (log, recovery) = world.start(&book).await;
                assert!(recovery.unreadable.is_empty(), "{context}, {left} files: {:?}", recovery.unreadable);
                assert!(book.mutations().is_empty(), "{context}");
                put(&log, 2, 5000).await.unwrap();
                book.verify(&log).await;
            });
        }
    }
    assert!(few > 5, "{few}: the test tests nothing");
}

/// The only chunk of a first stripe that was never acknowledged can not be overwritten: then nothing is removed, and it is void all the same.
#[test]
fn a_voided_segment_stays_where_one_of_its_chunks_can_not_be_made_void() {
    let mut world = World::new("2+1", 2);
    let extent = life(async {
        let (log, _) = world.start(&Arc::default()).await;
        put(&log, 1, 5000).await.unwrap().extents[0]
    });
    world.kill();
    world.rot(&extent, 1, 0);
    world.rot(&extent, 2, 0);
    let (disk, _) = world.find(&format!("{}.000", extent.segment)).unwrap();
    disk.fail_writes(1, ErrorKind::Other);
    for _ in 0..2 {
        let book = Arc::new(Book::default());
        life(async {
            let (_log, recovery) = world.start(&book).await;
            assert!(recovery.unreadable.is_empty(), "{:?}", recovery.unreadable);
            let ends: Vec<_> = recovery.segments.iter().map(|found| (found.info.id, found.seal.stripes)).collect();
            assert_eq!(ends, [(extent.segment, 0)]);
            assert_eq!(world.shard_files().len(), 3);
        });
        world.kill();
        world.disks.iter().for_each(|disk| disk.fail_writes(0, ErrorKind::Other));
    }
}

#[test]
fn a_recovery_that_was_cut_off_does_not_bind_the_next_one() {
    // The first recovery misses one target and is cut off, perhaps with a seal on one shard only; the second misses another
    // target and opens the log; what that one showed holds for ever.
    let mut damaged = 0;
    for geometry in ["2+1", "4+2"] {
        for seed in 250..274 {
            let context = format!("{geometry}, seed {seed}");
            let mut world = World::new(geometry, seed);
            let left = interrupted_life(&mut world, Arc::default(), seed, 300 + (seed - 250) * 41, End::PowerLoss);
            world.absent = vec![0];
            life(async {
                let power = world.power().fails_after((seed - 250) * 9, seed * 7);
                tokio::select! {
                    biased;
                    _ = world.open(vec![]) => {}
                    () = power => {}
                }
            });
            world.reopen();
            world.absent = vec![1];
            let book = Arc::new(Book::default());
            let seen = life(async {
                let (log, recovery) = world.open(vec![]).await.unwrap();
                // A stripe that was never acknowledged may be torn on the target that the first recovery missed, completed on the
                // others, and sealed: without yet another of them it can not be read. It is reported, and back with its target.
                let mut lost = book.replay_what_is_left(&log, &recovery).await;
                lost.extend(book.unreadable(&log).await.into_values());
                check_acknowledged(&log, &book, &left, &context).await;
                damaged += u64::from(!lost.is_empty());
                lost.is_empty().then(|| book.mutations())
            });
            end(&mut world, End::PowerLoss, seed);
            world.absent.clear();
            let rebuilt = Arc::new(Book::default());
            life(async {
                let (log, _) = world.start(&rebuilt).await;
                assert!(seen.is_none_or(|seen| rebuilt.mutations() == seen), "{context}");
                check(&log, &rebuilt, &left, &context).await;
            });
        }
    }
    assert!(damaged < 6, "{damaged}: that should be rare");
}

#[test]
fn a_target_that_fails_in_recovery_loses_nothing() {
    for seed in 280..292 {
        let context = format!("seed {seed}");
        let mut world = World::new("2+1", seed);
        let left = interrupted_life(&mut world, Arc::default(), seed, 800, End::PowerLoss);
        let disk = seed as usize % 3;
        match seed % 4 {
            0 => world.disks[disk].fail_writes(1, std::io::ErrorKind::Other),
            1 => world.disks[disk].fail_syncs(2, std::io::ErrorKind::Other),
            2 => world.disks[disk].fail_writes(100, std::io::ErrorKind::StorageFull),
            _ => world.disks[disk].fail_reads(3, std::io::ErrorKind::Other),
        }
        let seen = life(async {
            let book = Arc::new(Book::default());
            let (log, recovery) = world.open(vec![]).await.unwrap_or_else(|error| panic!("{context}: {error}"));
            book.replay(&log, &recovery).await;
            check(&log, &book, &left, &context).await;
            book.mutations()
        });
        world.disks[disk].fail_writes(0, std::io::ErrorKind::Other);
        world.disks[disk].fail_reads(0, std::io::ErrorKind::Other);
        end(&mut world, End::PowerLoss, seed);
        let rebuilt = Arc::new(Book::default());
        life(async {
            let (log, _) = world.start(&rebuilt).await;
            assert_eq!(rebuilt.mutations(), seen, "{context}");
            check(&log, &rebuilt, &left, &context).await;
        });
    }
}

/// With as much parity as data one shard that takes no seal is no reason to keep the log from opening, as it would open without its target.
#[test]
fn a_target_that_takes_no_seal_keeps_no_log_from_opening() {
    for (geometry, seed) in
        ["1+1", "1+2", "2+2", "3+3"].into_iter().flat_map(|geometry| (292..295).map(move |seed| (geometry, seed)))
    {
        let context = format!("{geometry}, seed {seed}");
        let mut world = World::new(geometry, seed);
        let left = interrupted_life(&mut world, Arc::default(), seed, 800, End::PowerLoss);
        let disk = seed as usize % world.disks.len();
        world.disks[disk].fail_writes(1000, std::io::ErrorKind::Other);
        life(async {
            let book = Arc::new(Book::default());
            let (log, recovery) = world.open(vec![]).await.unwrap_or_else(|error| panic!("{context}: {error}"));
            book.replay(&log, &recovery).await;
            check(&log, &book, &left, &context).await;
        });
    }
}

/// The segments that `stripes` short records in stripes of their own leave behind, sealed or as they are when the process dies.
fn left_behind(seed: u64, stripes: u64, is_sealed: bool) -> (World, Arc<Book>) {
    let mut world = World::new("2+1", seed);
    world.config.upkeep.repair_delay_ms = 0;
    let book = Arc::new(Book::default());
    life(async {
        let (log, _) = world.start(&book).await;
        for name in 0..stripes {
            put(&log, name, 30_000).await.unwrap();
        }
    });
    world.kill();
    if is_sealed {
        life(async { drop(world.start(&book).await) });
        world.kill();
    }
    (world, book)
}

fn cut(world: &World, suffix: &str, len: u64) {
    let (disk, path) = world.find(suffix).unwrap();
    life(async {
        let file = disk.open(&path).await.unwrap();
        file.set_len(len).await.unwrap();
        file.sync().await.unwrap();
    });
}

/// Half of a shard file is gone, as after a check of its file system. What recovery completes and seals on it does not make it whole: what it lacks is known until it was built anew.
#[test]
fn a_shard_file_that_was_cut_short_is_not_made_to_look_whole() {
    for (is_sealed, shard) in
        [false, true].into_iter().flat_map(|is_sealed| (0..3).map(move |shard| (is_sealed, shard)))
    {
        let context = format!("sealed: {is_sealed}, shard {shard}");
        let (mut world, book) = left_behind(410 + shard, 8, is_sealed);
        let known = book.known().remove(0);
        cut(&world, &format!("{}.{shard:03}", known.id), known.next_offset / 2);
        // Also by a start before which nothing was repaired.
        for _ in 0..2 {
            life(async {
                let (log, recovery) = world.start(&book).await;
                assert!(recovery.unreadable.is_empty(), "{context}: {:?}", recovery.unreadable);
                assert_eq!(log.status().redundancy, [0, 1], "{context}");
            });
            world.kill();
        }
        life(async {
            let (log, _) = world.start(&book).await;
            assert_eq!(log.repair(false).await.unwrap().shards_built, 1, "{context}");
            assert_eq!(log.status().redundancy, [1], "{context}");
            for disk in &world.disks {
                disk.offline(true);
                book.verify(&log).await;
                disk.offline(false);
            }
        });
    }
}

/// What a crash may take of a shard is its chunk of the last stripe: that is completed, and the shard is as good as any, however short its chunks are.
#[test]
fn a_shard_that_lacks_nothing_but_the_last_stripe_is_completed() {
    for shard in 0..3 {
        let (mut world, book) = left_behind(420 + shard, 3, true);
        let offsets: Vec<u64> =
            book.snapshot().records.values().map(|record| record.extents[0].stripe_offset).collect();
        // The record is in the first chunk: of the second one there is a header, and no more.
        let len = if shard == 1 { offsets[1] + 4096 } else { offsets[2] };
        cut(&world, &format!("{}.{shard:03}", book.known()[0].id), len);
        life(async {
            let (log, _) = world.start(&book).await;
            assert_eq!(log.status().redundancy, [1], "shard {shard}");
            assert_eq!(log.scrub_next(None).await.unwrap().unwrap().bad_shards, 0, "shard {shard}");
        });
    }
}

#[test]
fn many_lives_in_a_row() {
    for geometry in ["1+0", "4+2"] {
        let mut world = World::new(geometry, 300);
        let mut all: BTreeMap<_, String> = BTreeMap::new();
        let mut book = Arc::new(Book::default());
        for seed in 300..306 {
            let left = interrupted_life(&mut world, Arc::clone(&book), seed, 400 + seed % 7 * 150, End::PowerLoss);
            for (text, committed) in &left.acknowledged.lock().records {
                assert!(all.insert(committed.seq, text.clone()).is_none(), "a sequence was given out twice");
            }
            let page = if seed % 2 == 0 { left.older } else { Page::default() };
            book = Arc::new(Book::from_page(page));
        }
        life(async {
            let (log, _) = world.start(&book).await;
            book.verify(&log).await;
            let found = book.mutations();
            for (seq, text) in &all {
                assert_eq!(found.get(seq), Some(text));
            }
        });
    }
}

#[test]
fn an_index_that_knows_more_than_the_media_is_refused() {
    let mut world = World::new("2+1", 400);
    let book = Arc::new(Book::default());
    life(async {
        let (log, _) = world.start(&book).await;
        put(&log, 1, 1000).await.unwrap();
    });
    world.kill();
    let mut known = book.known();
    known[0].applied_stripes += 1;
    known[0].next_offset += 1 << 24;
    let refused = life(world.open(known.clone()));
    assert!(matches!(refused, Err(LogError::IndexAhead { segment }) if segment == known[0].id), "{refused:?}");
    // Nothing was changed by the refusal: with no index, all is found.
    world.kill();
    let book = Arc::new(Book::default());
    life(async {
        let (log, _) = world.start(&book).await;
        book.verify(&log).await;
        assert_eq!(book.mutations().len(), 1);
    });
}

#[test]
fn an_older_index_cuts_off_nothing_that_was_seen_since() {
    let mut world = World::new("4+2", 401);
    let book = Arc::new(Book::default());
    let mut before = Vec::new();
    life(async {
        let (log, _) = world.start(&book).await;
        put(&log, 1, 1000).await.unwrap();
        before = book.known();
        put(&log, 2, 1000).await.unwrap();
    });
    world.kill();
    // Every target failed under the second stripe, so that its void is known to the index alone.
    for known in &mut before {
        known.sealed = Some(Seal {
            stripes: known.applied_stripes,
            end_offset: known.next_offset,
            min_seq: known.min_seq,
            max_seq: known.max_seq,
            written_bytes: known.written_bytes,
        });
    }
    // Without that index the stripe is there and counts.
    let rebuilt = Arc::new(Book::default());
    life(async {
        let (_log, _) = world.start(&rebuilt).await;
        assert_eq!(rebuilt.mutations().len(), 2);
    });
    world.kill();
    let refused = life(world.open(before.clone()));
    assert!(matches!(refused, Err(LogError::IndexBehind { segment }) if segment == before[0].id), "{refused:?}");
    world.kill();
    let again = Arc::new(Book::default());
    life(async {
        let (log, _) = world.start(&again).await;
        again.verify(&log).await;
        assert_eq!(again.mutations(), rebuilt.mutations());
    });
}
