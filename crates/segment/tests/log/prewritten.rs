//! Zeros that are written ahead of short stripes: when, how far, and what must wait for them.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures::future::join_all;
use gabion_platform::{DiskFile, Durable, IoFuture, Opening};
use gabion_segment::{Durability, Log, LogTarget, TargetState};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::book::Book;
use crate::world::{World, append, life, pattern, put, read, steps};

const PIECE_BYTES: u64 = 32 << 10;
/// A stripe of one short record.
const STRIPE_BYTES: u64 = 4 << 10;

/// What becomes of zeros that are to be written ahead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Written,
    /// By a file system that gains nothing by them.
    Refused,
    Failed(io::ErrorKind),
}

/// What was asked of a disk.
struct Asked {
    fate: Fate,
    /// Zeros are written when there is a permit for them.
    permits: Semaphore,
    /// Zeros, and then other writes, in order: offset, length, and whether it was done.
    zeros: Mutex<Vec<(u64, u64, bool)>>,
    writes: Mutex<Vec<(u64, u64)>>,
    /// Files that were cut to a length.
    cuts: AtomicUsize,
}

impl Asked {
    fn new(fate: Fate, permits: usize) -> Arc<Self> {
        Arc::new(Self {
            fate,
            permits: Semaphore::new(permits),
            zeros: Mutex::default(),
            writes: Mutex::default(),
            cuts: AtomicUsize::new(0),
        })
    }

    fn written_until(&self) -> u64 {
        self.writes.lock().iter().map(|(offset, len)| offset + len).max().unwrap_or(0)
    }

    fn pending(&self) -> Option<u64> {
        self.zeros.lock().iter().find(|(_, _, done)| !done).map(|(offset, _, _)| *offset)
    }
}

struct WatchedFile {
    file: Arc<dyn DiskFile>,
    asked: Arc<Asked>,
}

impl DiskFile for WatchedFile {
    fn read_at(&self, offset: u64, len: usize) -> IoFuture<Bytes> {
        self.file.read_at(offset, len)
    }

    fn write_at(&self, offset: u64, parts: Vec<Bytes>, durable: Durable) -> IoFuture<()> {
        let len: usize = parts.iter().map(Bytes::len).sum();
        self.asked.writes.lock().push((offset, len as u64));
        self.file.write_at(offset, parts, durable)
    }

    fn sync(&self) -> IoFuture<()> {
        self.file.sync()
    }

    fn len(&self) -> IoFuture<u64> {
        self.file.len()
    }

    fn set_len(&self, len: u64) -> IoFuture<()> {
        self.asked.cuts.fetch_add(1, Ordering::Relaxed);
        self.file.set_len(len)
    }

    fn punch(&self, offset: u64, len: u64) -> IoFuture<()> {
        self.file.punch(offset, len)
    }

    fn prewrite(&self, offset: u64, len: u64) -> IoFuture<bool> {
        let (asked, written) = (Arc::clone(&self.asked), self.file.prewrite(offset, len));
        let number = asked.zeros.lock().len();
        asked.zeros.lock().push((offset, len, false));
        Box::pin(async move {
            asked.permits.acquire().await.expect("it is never closed").forget();
            asked.zeros.lock()[number].2 = true;
            match asked.fate {
                Fate::Written => written.await,
                Fate::Refused => Ok(false),
                Fate::Failed(kind) => Err(kind.into()),
            }
        })
    }
}

/// A log of which the files that are created on `disk` are watched.
async fn start(world: &mut World, disk: usize, asked: &Arc<Asked>, book: &Arc<Book>) -> Log {
    world.config.prewrite_piece_bytes = PIECE_BYTES;
    let mut targets: Vec<LogTarget> = world.targets();
    let asked = Arc::clone(asked);
    targets[disk].disk = Some(world.disks[disk].wrapped(Arc::new(move |opening, _, opened| {
        if opening == Opening::Existing {
            return opened;
        }
        let asked = Arc::clone(&asked);
        Box::pin(async move { Ok(Arc::new(WatchedFile { file: opened.await?, asked }) as Arc<dyn DiskFile>) })
    })));
    world.start_on(targets, book).await.0
}

#[test]
fn zeros_lie_ahead_of_short_stripes_and_nowhere_else() {
    let mut world = World::new("2+1", 1);
    let book = Arc::new(Book::default());
    let asked = Asked::new(Fate::Written, usize::MAX >> 3);
    let committed = life(async {
        let log = start(&mut world, 0, &asked, &book).await;
        let mut committed = Vec::new();
        for name in 0..60 {
            committed.push(put(&log, name, 1000).await.unwrap());
        }
        let zeros = asked.zeros.lock().clone();
        assert!(zeros.len() > 5 && zeros.iter().all(|(_, len, done)| *len == PIECE_BYTES && *done), "{zeros:?}");
        assert!(zeros.windows(2).all(|pair| pair[0].0 + PIECE_BYTES == pair[1].0), "one behind the other: {zeros:?}");
        let last = zeros.last().map(|(offset, len, _)| offset + len).unwrap();
        assert!(last <= asked.written_until() + 2 * PIECE_BYTES, "as far ahead as two pieces");
        let zeros_bytes = log.metrics().prewritten_bytes.get();
        assert!(zeros_bytes >= (zeros.len() as u64 - 1) * 3 * PIECE_BYTES, "{zeros_bytes}");
        log.shutdown().await;
        committed
    });
    world.crash(5);
    life(async {
        let (log, _) = world.start(&book).await;
        for (name, committed) in committed.iter().enumerate() {
            assert_eq!(read(&log, &committed.extents[0], 0..1000).await.unwrap(), pattern(name as u64, 1000));
        }
    });
}

#[test]
fn long_stripes_and_those_that_nobody_waits_for_have_none() {
    type Change = fn(&mut World);
    let table: [(&str, usize, Change); 6] = [
        ("long", 200_000, |_| {}),
        ("of many records", 0, |_| {}),
        ("of few records while many wait", 0, |world| world.config.batch_records_max = 8),
        ("relaxed", 1000, |world| world.config.durability = Durability::Relaxed),
        ("switched off", 1000, |world| world.config.prewrite_records_max = 0),
        ("of large objects", 0, |_| {}),
    ];
    for (what, len, change) in table {
        let mut world = World::new("2+1", 2);
        change(&mut world);
        let book = Arc::new(Book::default());
        let asked = Asked::new(Fate::Written, usize::MAX >> 3);
        life(async {
            let log = start(&mut world, 1, &asked, &book).await;
            for name in 0..30 {
                match what {
                    "of large objects" => drop(append(&log, name, 3000).await.unwrap()),
                    "of many records" | "of few records while many wait" => {
                        let stripes = if what == "of many records" { 1 } else { 4 };
                        let many = stripes * (world.config.prewrite_records_max as u64 + 1);
                        let puts = (0..many).map(|number| put(&log, name * many + number, 100));
                        assert!(join_all(puts).await.iter().all(Result::is_ok));
                    }
                    _ => drop(put(&log, name, len).await.unwrap()),
                }
            }
            assert!(asked.zeros.lock().is_empty(), "{what}");
        });
    }
}

#[test]
fn what_would_lie_in_zeros_that_are_under_way_waits_for_them() {
    let mut world = World::new("2+1", 3);
    let book = Arc::new(Book::default());
    let asked = Asked::new(Fate::Written, 0);
    life(async {
        let log = start(&mut world, 2, &asked, &book).await;
        let mut name = 0;
        // Up to the zeros nothing waits.
        let mut end = 0;
        while asked.pending().is_none_or(|offset| end + STRIPE_BYTES <= offset) {
            end = put(&log, name, 1000).await.unwrap().extents[0].stripe_offset + STRIPE_BYTES;
            name += 1;
        }
        let held = asked.pending().unwrap();
        let stuck = tokio::spawn({
            let log = log.clone();
            async move { put(&log, 1000, 1000).await.map(drop) }
        });
        steps(500).await;
        assert!(!stuck.is_finished() && asked.written_until() <= held);
        asked.permits.add_permits(1);
        stuck.await.unwrap().unwrap();
        // The end of the log waits for what is still under way: whoever opens the files next has them alone.
        while asked.pending().is_none() {
            put(&log, name, 1000).await.unwrap();
            name += 1;
        }
        let shutdown = tokio::spawn(async move { log.shutdown().await });
        steps(500).await;
        assert!(!shutdown.is_finished());
        asked.permits.add_permits(1);
        shutdown.await.unwrap();
    });
}

#[test]
fn a_segment_ends_when_no_zeros_are_under_way_behind_it() {
    let mut world = World::new("4+2", 4);
    let book = Arc::new(Book::default());
    let asked = Asked::new(Fate::Written, 0);
    life(async {
        let log = start(&mut world, 0, &asked, &book).await;
        let mut name = 0;
        while asked.pending().is_none() {
            put(&log, name, 1000).await.unwrap();
            name += 1;
        }
        // A shard whose zeros are written fails: its segment is to end before the put is answered.
        steps(500).await;
        world.disks[1].fail_writes(1, io::ErrorKind::Other);
        let stuck = tokio::spawn({
            let log = log.clone();
            async move { put(&log, 1000, 1000).await.map(drop) }
        });
        steps(500).await;
        assert!(!stuck.is_finished());
        assert_eq!(
            (log.metrics().chunk_failures.get(), asked.cuts.load(Ordering::Relaxed)),
            (1, 0),
            "nothing was ended"
        );
        asked.permits.add_permits(usize::MAX >> 4);
        stuck.await.unwrap().unwrap();
        assert_eq!(asked.cuts.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn whoever_can_not_is_not_asked_again_and_costs_nothing() {
    for fate in [Fate::Refused, Fate::Failed(io::ErrorKind::StorageFull)] {
        let mut world = World::new("2+1", 5);
        let book = Arc::new(Book::default());
        let asked = Asked::new(fate, usize::MAX >> 3);
        life(async {
            let log = start(&mut world, 0, &asked, &book).await;
            for name in 0..60 {
                put(&log, name, 1000).await.unwrap();
            }
            assert_eq!(asked.zeros.lock().len(), 1, "{fate:?}");
            assert!(log.status().targets.iter().all(|target| target.state != TargetState::Failed), "{fate:?}");
        });
    }
}

#[test]
fn a_target_that_fails_to_write_zeros_has_failed() {
    let mut world = World::with_disks("2+1".parse().unwrap(), 4, 6);
    let book = Arc::new(Book::default());
    let asked = Asked::new(Fate::Failed(io::ErrorKind::Other), usize::MAX >> 3);
    let committed = life(async {
        let log = start(&mut world, 0, &asked, &book).await;
        let mut committed = Vec::new();
        // Some segment lies on the watched disk.
        for name in 0..400 {
            committed.push(put(&log, name, 1000).await.unwrap());
        }
        assert_eq!(asked.zeros.lock().len(), 1);
        let failed = log.status().targets.iter().filter(|target| target.state == TargetState::Failed).count();
        assert_eq!((failed, log.metrics().chunk_failures.get()), (1, 1));
        log.shutdown().await;
        committed
    });
    life(async {
        let (log, _) = world.start(&book).await;
        for (name, committed) in committed.iter().enumerate() {
            assert_eq!(read(&log, &committed.extents[0], 0..1000).await.unwrap(), pattern(name as u64, 1000));
        }
    });
}
