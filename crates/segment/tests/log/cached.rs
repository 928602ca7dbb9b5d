//! Short stripes with relaxed durability: one thread writes their chunks to the page cache, and who does what else.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread::{self, ThreadId};
use std::time::Duration;

use bytes::Bytes;
use futures::executor::block_on;
use gabion_platform::{CachedWrite, DiskFile, Durable, IoFuture, Load, ManualClock, Wanted};
use gabion_segment::{Durability, Log, LogTarget, TargetState};
use gabion_types::{Extent, SegmentId};
use parking_lot::Mutex;

use crate::book::Book;
use crate::world::{World, append, life, life_with_threads, pattern, put, read};

/// What was asked of all disks of a world.
struct Asked {
    /// Chunks that one thread wrote: of which disk, which thread.
    in_a_row: Mutex<Vec<(usize, ThreadId)>>,
    /// Chunks that were not durable at once and were written otherwise.
    side_by_side: AtomicU64,
    /// What was to be loaded into the page cache: of which disk, from where to where.
    loads: Mutex<Vec<(usize, Range<u64>)>>,
    /// The disk that takes nothing any more.
    failed: Option<usize>,
    /// The disk of which a write in a row does not come to its end before the sender is gone.
    stuck: Mutex<Option<(usize, Receiver<()>)>>,
    clock: Arc<ManualClock>,
    /// How long each of these writes takes.
    write_ms: u64,
}

struct CachedFile {
    file: Arc<dyn DiskFile>,
    number: usize,
    asked: Arc<Asked>,
}

impl DiskFile for CachedFile {
    fn read_at(&self, offset: u64, len: usize) -> IoFuture<Bytes> {
        self.file.read_at(offset, len)
    }

    fn load(&self, offset: u64, len: usize, _wanted: Wanted) -> Load {
        self.asked.loads.lock().push((self.number, offset..offset + len as u64));
        None
    }

    fn write_at(&self, offset: u64, parts: Vec<Bytes>, durable: Durable) -> IoFuture<()> {
        self.asked.side_by_side.fetch_add(u64::from(durable == Durable::No), Ordering::Relaxed);
        self.file.write_at(offset, parts, durable)
    }

    fn cached_write(&self, offset: u64, parts: Vec<Bytes>) -> Option<CachedWrite> {
        let (asked, file, number) = (Arc::clone(&self.asked), Arc::clone(&self.file), self.number);
        Some(Box::new(move || {
            asked.in_a_row.lock().push((number, thread::current().id()));
            let stuck = asked.stuck.lock().take_if(|(stuck, _)| *stuck == number);
            if let Some((_, ended)) = stuck {
                let _ = ended.recv();
            }
            asked.clock.advance(Duration::from_millis(asked.write_ms));
            if asked.failed == Some(number) {
                return Err(io::ErrorKind::Other.into());
            }
            block_on(file.write_at(offset, parts, Durable::No))
        }))
    }

    fn sync(&self) -> IoFuture<()> {
        self.file.sync()
    }

    fn len(&self) -> IoFuture<u64> {
        self.file.len()
    }

    fn set_len(&self, len: u64) -> IoFuture<()> {
        self.file.set_len(len)
    }

    fn punch(&self, offset: u64, len: u64) -> IoFuture<()> {
        self.file.punch(offset, len)
    }

    fn prewrite(&self, offset: u64, len: u64) -> IoFuture<bool> {
        self.file.prewrite(offset, len)
    }
}

/// A log on such disks.
async fn start(world: &mut World, asked: &Arc<Asked>) -> Log {
    let mut targets: Vec<LogTarget> = world.targets();
    for (number, target) in targets.iter_mut().enumerate() {
        let asked = Arc::clone(asked);
        target.disk = Some(world.disks[number].wrapped(Arc::new(move |_, _, opened| {
            let asked = Arc::clone(&asked);
            Box::pin(
                async move { Ok(Arc::new(CachedFile { file: opened.await?, number, asked }) as Arc<dyn DiskFile>) },
            )
        })));
    }
    world.start_on(targets, &Arc::default()).await.0
}

fn world(geometry: &str, durability: Durability) -> World {
    let mut world = World::new(geometry, 1);
    world.config.durability = durability;
    world
}

fn asked(world: &World, failed: Option<usize>, write_ms: u64) -> Arc<Asked> {
    let (in_a_row, side_by_side, clock) = (Mutex::default(), AtomicU64::new(0), Arc::clone(&world.clock));
    Arc::new(Asked {
        in_a_row,
        side_by_side,
        loads: Mutex::default(),
        failed,
        stuck: Mutex::default(),
        clock,
        write_ms,
    })
}

#[test]
fn one_thread_writes_short_stripes_that_need_not_be_durable() {
    let mut world = world("4+2", Durability::Relaxed);
    let asked = asked(&world, None, 0);
    life_with_threads(async {
        let log = start(&mut world, &asked).await;
        for name in 0..5 {
            let committed = put(&log, name, 9000).await.unwrap();
            assert_eq!(read(&log, &committed.extents[0], 0..9000).await.unwrap(), pattern(name, 9000));
        }
        let written = std::mem::take(&mut *asked.in_a_row.lock());
        assert_eq!(written.len(), 5 * 6);
        assert!(written.iter().all(|(_, thread)| *thread == written[0].1), "{written:?}");
        assert_ne!(written[0].1, thread::current().id(), "nobody else may have to wait for a disk");
        assert_eq!(asked.side_by_side.load(Ordering::Relaxed), 0);
        // Threads of their own copy what is longer sooner.
        let extent = append(&log, 7, 900_000).await.unwrap();
        assert_eq!(read(&log, &extent, 0..900_000).await.unwrap(), pattern(7, 900_000));
        assert_eq!((asked.in_a_row.lock().len(), asked.side_by_side.load(Ordering::Relaxed)), (0, 6));
    });
}

#[test]
fn what_is_loaded_of_an_extent_are_the_bytes_that_it_is_read_from() {
    let mut world = world("4+2", Durability::Sync);
    let asked = asked(&world, None, 0);
    life(async {
        let log = start(&mut world, &asked).await;
        let small = put(&log, 1, 9000).await.unwrap().extents[0];
        let len = 1 << 20;
        let extent = append(&log, 2, len as usize).await.unwrap();
        let at = extent.stripe_offset;
        let loads = async |extent: &Extent, range| {
            assert!(log.load(extent, range, Wanted::Now).await.is_none());
            let mut loads = std::mem::take(&mut *asked.loads.lock());
            loads.sort_by_key(|(disk, _)| *disk);
            loads.into_iter().map(|(_, range)| (range.start - at, range.end - at)).collect::<Vec<_>>()
        };
        let cell = 64 << 10;
        let header = loads(&extent, 0..len).await[0].1 - 4 * cell;
        assert!(header > 0, "{header}");
        // Four data chunks with their headers; of a part the rows of cells that it touches.
        assert_eq!(loads(&extent, 0..len).await, [(0, header + 4 * cell); 4]);
        let from = 8 * cell as u32;
        assert_eq!(loads(&extent, from..len).await, [(header + 2 * cell, header + 4 * cell); 4]);
        assert_eq!(loads(&extent, from..from + 1).await, [(header + 2 * cell, header + 3 * cell)]);
        for (extent, range) in [(&extent, 5..5), (&extent, 0..len + 1), (&small, 0..9000)] {
            assert_eq!(loads(extent, range).await, []);
        }
        let gone = Extent { segment: SegmentId::new(7, 7), ..extent };
        assert_eq!(loads(&gone, 0..len).await, []);
        assert_eq!(log.metrics().unreadable_chunks.get(), 0);
    });
}

#[test]
fn what_must_be_durable_and_what_has_one_chunk_goes_by_its_target() {
    for (geometry, durability) in [("4+2", Durability::Sync), ("1+0", Durability::Relaxed)] {
        let mut world = world(geometry, durability);
        let asked = asked(&world, None, 0);
        life(async {
            let log = start(&mut world, &asked).await;
            put(&log, 1, 9000).await.unwrap();
            assert_eq!(asked.in_a_row.lock().len(), 0, "{geometry} {durability:?}");
        });
    }
}

#[test]
fn a_chunk_that_fails_takes_no_other_with_it() {
    let mut world = world("2+2", Durability::Relaxed);
    let asked = asked(&world, Some(1), 0);
    life_with_threads(async {
        let log = start(&mut world, &asked).await;
        let committed = put(&log, 1, 9000).await.unwrap();
        let disks: Vec<usize> = asked.in_a_row.lock().iter().map(|(disk, _)| *disk).collect();
        assert_eq!(disks.len(), 4, "all were tried: {disks:?}");
        assert_eq!(read(&log, &committed.extents[0], 0..9000).await.unwrap(), pattern(1, 9000));
        assert_eq!(log.metrics().chunk_failures.get(), 1);
        let failed = |target: &gabion_segment::TargetStatus| target.state == TargetState::Failed;
        assert_eq!(log.status().targets.iter().filter(|target| failed(target)).count(), 1);
    });
}

#[test]
fn drives_that_are_behind_are_written_side_by_side_for_a_while() {
    let mut world = world("2+1", Durability::Relaxed);
    let asked = asked(&world, None, 10);
    life_with_threads(async {
        let log = start(&mut world, &asked).await;
        for name in 0..260 {
            put(&log, name, 100).await.unwrap();
        }
        // One that took 30 ms, 256 that nobody timed, and one that took 30 ms again.
        assert_eq!((asked.in_a_row.lock().len(), asked.side_by_side.load(Ordering::Relaxed)), (2 * 3, 258 * 3));
    });
}

#[test]
fn a_chunk_that_comes_to_no_end_is_left_out_and_the_others_are_written_by_their_targets() {
    let mut world = world("2+2", Durability::Relaxed);
    let asked = asked(&world, None, 0);
    let book = Arc::new(Book::default());
    let (end, ended) = mpsc::channel();
    let committed = life_with_threads(async {
        let log = start(&mut world, &asked).await;
        *asked.stuck.lock() = Some((1, ended));
        let committed = {
            let log = log.clone();
            tokio::spawn(async move { put(&log, 1, 9000).await.unwrap() })
        };
        while asked.stuck.lock().is_some() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // From here on time runs ahead.
        tokio::time::pause();
        let committed = committed.await.unwrap();
        let disks: Vec<usize> = asked.in_a_row.lock().iter().map(|(disk, _)| *disk).collect();
        assert_eq!(disks.last(), Some(&1), "nothing behind it was begun: {disks:?}");
        // The one that is stuck is not written beside that.
        assert_eq!(asked.side_by_side.load(Ordering::Relaxed), 4);
        assert_eq!(log.metrics().chunk_failures.get(), 1);
        assert_eq!(read(&log, &committed.extents[0], 0..9000).await.unwrap(), pattern(1, 9000));
        committed
    });
    drop(end);
    world.kill();
    life(async {
        let (log, _) = world.start(&book).await;
        assert_eq!(read(&log, &committed.extents[0], 0..9000).await.unwrap(), pattern(1, 9000));
    });
}
