//! Reading shard files from front to back in long runs: the next run of each file is on its way while the current one is looked at, so that
//! neither the targets wait for checksums nor checksums for the targets.
//!
//! What is held is bounded whatever the geometry is, and however many segments are worked at: [`Room`]. A run that can not be read is read
//! again piece by piece, as it is asked for: one bad sector costs the chunk that it lies in, not all of the run.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use gabion_platform::DiskFile;
use gabion_types::limits::{BLOCK_BYTES, CHUNK_ALIGN_BYTES};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;

use super::Pace;
use crate::status::MemoryUse;

/// Memory of scrub and repair for reading ahead and writing behind, in bytes: all segments together that are worked at.
const UPKEEP_MEMORY_BYTES: usize = 256 << 20;
/// What one segment takes of it for reading ahead at most, in bytes.
const SEGMENT_MEMORY_BYTES: usize = 64 << 20;
/// Longest run, in bytes: a millisecond of a fast drive, so that asking for it costs nothing beside it, and readers do not wait long behind it.
const RUN_BYTES_MAX: usize = 2 << 20;
/// Runs of a file in memory: the current one and the next.
const RUNS: usize = 2;

/// The memory of scrub and repair.
pub(crate) struct UpkeepMemory(Arc<Semaphore>);

/// A share of it, for one segment. Nobody asks for a second one who holds one.
pub(super) struct Room {
    run_bytes: usize,
    _share: OwnedSemaphorePermit,
}

impl UpkeepMemory {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Semaphore::new(UPKEEP_MEMORY_BYTES / BLOCK_BYTES)))
    }

    /// What is taken of it at this moment.
    pub(crate) fn status(&self) -> MemoryUse {
        MemoryUse::of("upkeep", &self.0, UPKEEP_MEMORY_BYTES / BLOCK_BYTES, BLOCK_BYTES)
    }

    /// Waits for the room to read so many files of a segment at once, and `more_bytes` for something else.
    pub(super) async fn room(&self, files: usize, more_bytes: usize, pace: &Pace) -> Room {
        let run_bytes = run_bytes(files).min(pace.burst_bytes()).next_multiple_of(CHUNK_ALIGN_BYTES);
        let units = (files * RUNS * run_bytes + more_bytes).div_ceil(BLOCK_BYTES);
        let units = units.min(UPKEEP_MEMORY_BYTES / BLOCK_BYTES) as u32;
        let share = Arc::clone(&self.0).acquire_many_owned(units).await;
        Room { run_bytes, _share: share.expect("the semaphore is never closed") }
    }
}

/// Length of a run where so many files are read at once.
fn run_bytes(files: usize) -> usize {
    (SEGMENT_MEMORY_BYTES / (RUNS * files.max(1))).clamp(BLOCK_BYTES, RUN_BYTES_MAX)
}

/// One file that is read from front to back.
pub(super) struct Ahead<'a> {
    file: Arc<dyn DiskFile>,
    pace: &'a Pace,
    run_bytes: usize,
    /// Nothing from here on is asked for.
    end: u64,
    current: Run,
    next: Option<(u64, JoinHandle<io::Result<Bytes>>)>,
    /// A run that could not be read.
    failed: Range<u64>,
}

#[derive(Default)]
struct Run {
    offset: u64,
    bytes: Bytes,
}

impl<'a> Ahead<'a> {
    /// Reads `file` up to `end`.
    pub(super) fn new(file: Arc<dyn DiskFile>, end: u64, room: &Room, pace: &'a Pace) -> Self {
        Self { file, pace, run_bytes: room.run_bytes, end, current: Run::default(), next: None, failed: 0..0 }
    }

    /// `len` bytes at `offset`, fewer where the file ends. Offsets that ascend are what this is for; others are right as well.
    pub(super) async fn read(&mut self, offset: u64, len: usize) -> io::Result<Bytes> {
        let mut whole = BytesMut::new();
        loop {
            let (at, missing) = (offset + whole.len() as u64, len - whole.len());
            if self.failed.contains(&at) || at >= self.end {
                let rest = self.file.read_at(at, missing).await?;
                if whole.is_empty() {
                    return Ok(rest);
                }
                whole.extend_from_slice(&rest);
                return Ok(whole.freeze());
            }
            let piece = self.current.bytes_at(at, missing);
            if piece.len() == len {
                return Ok(piece);
            }
            if piece.is_empty() {
                if !self.advance(at).await {
                    return Ok(whole.freeze());
                }
                continue;
            }
            whole.extend_from_slice(&piece);
            if whole.len() == len {
                return Ok(whole.freeze());
            }
        }
    }

    /// Makes the run that `at` lies in the current one, and has the one after it read. False if the file ends before.
    async fn advance(&mut self, at: u64) -> bool {
        let read_ahead =
            self.next.take().filter(|(offset, _)| (*offset..*offset + self.run_bytes as u64).contains(&at));
        let (offset, run) = match read_ahead {
            Some(run) => run,
            None => self.begin(at).await,
        };
        match run.await.unwrap_or_else(|error| Err(io::Error::other(error))) {
            Ok(bytes) => {
                let behind = offset + bytes.len() as u64;
                if bytes.len() < ((self.end - offset) as usize).min(self.run_bytes) {
                    // The file ends here: nothing behind is waited or paid for.
                    self.end = behind;
                }
                self.current = Run { offset, bytes };
                if behind == offset + self.run_bytes as u64 && behind < self.end {
                    self.next = Some(self.begin(behind).await);
                }
                at < behind
            }
            Err(_) => {
                self.failed = offset..(offset + self.run_bytes as u64).min(self.end);
                true
            }
        }
    }

    /// Has a run read, whoever waits for it.
    async fn begin(&self, offset: u64) -> (u64, JoinHandle<io::Result<Bytes>>) {
        let len = (self.end - offset).min(self.run_bytes as u64) as usize;
        self.pace.pass(len as u64).await;
        (offset, tokio::spawn(self.file.read_at(offset, len)))
    }
}

impl Run {
    /// Its bytes from `at` on, `len` of them at most.
    fn bytes_at(&self, at: u64, len: usize) -> Bytes {
        let Some(start) =
            at.checked_sub(self.offset).map(|start| start as usize).filter(|start| *start < self.bytes.len())
        else {
            return Bytes::new();
        };
        self.bytes.slice(start..(start + len).min(self.bytes.len()))
    }
}

#[cfg(test)]
mod tests {
    use gabion_platform::{Disk, Durable, IoFuture};
    use parking_lot::Mutex;

    use super::*;

    /// Counts what it is asked for, and refuses reads that touch a bad byte.
    struct Asked {
        file: Arc<dyn DiskFile>,
        reads: Mutex<Vec<Range<u64>>>,
        bad: u64,
    }

    impl DiskFile for Asked {
        fn read_at(&self, offset: u64, len: usize) -> IoFuture<Bytes> {
            let range = offset..offset + len as u64;
            self.reads.lock().push(range.clone());
            if range.contains(&self.bad) {
                return Box::pin(std::future::ready(Err(io::Error::other("a bad sector"))));
            }
            self.file.read_at(offset, len)
        }

        fn write_at(&self, offset: u64, parts: Vec<Bytes>, durable: Durable) -> IoFuture<()> {
            self.file.write_at(offset, parts, durable)
        }

        fn sync(&self) -> IoFuture<()> {
            self.file.sync()
        }

        fn len(&self) -> IoFuture<u64> {
            self.file.len()
        }

        fn prewrite(&self, offset: u64, len: u64) -> IoFuture<bool> {
            self.file.prewrite(offset, len)
        }

        fn set_len(&self, len: u64) -> IoFuture<()> {
            self.file.set_len(len)
        }

        fn punch(&self, offset: u64, len: u64) -> IoFuture<()> {
            self.file.punch(offset, len)
        }
    }

    async fn file(len: usize, bad: u64) -> (Arc<Asked>, Vec<u8>) {
        let content: Vec<u8> = (0..len).map(|at| (at * 7 + at / 251) as u8).collect();
        let file = gabion_platform::SimDisk::new(1).create("f", 0).await.unwrap();
        file.write_at(0, vec![content.clone().into()], Durable::No).await.unwrap();
        (Arc::new(Asked { file, reads: Mutex::default(), bad }), content)
    }

    const RUN: usize = 8192;

    fn room() -> Room {
        let share = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        Room { run_bytes: RUN, _share: share }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn every_range_is_what_the_file_holds() {
        let (file, content) = file(5 * RUN + 100, u64::MAX).await;
        let pace = Pace::new(0);
        let end = content.len() as u64;
        for step in [1, 1000, 4096, RUN, 3 * RUN] {
            let mut ahead = Ahead::new(Arc::clone(&file) as Arc<dyn DiskFile>, end, &room(), &pace);
            for start in (0..content.len() + step).step_by(step.max(97)) {
                let read = ahead.read(start as u64, step).await.unwrap();
                let expected = &content[start.min(content.len())..(start + step).min(content.len())];
                assert_eq!(read, expected, "{step} bytes at {start}");
            }
            assert_eq!(ahead.read(5, 20).await.unwrap(), &content[5..25], "back again");
        }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn each_run_is_read_once_and_before_it_is_asked_for() {
        let (file, content) = file(4 * RUN, u64::MAX).await;
        let pace = Pace::new(0);
        let mut ahead = Ahead::new(Arc::clone(&file) as Arc<dyn DiskFile>, content.len() as u64, &room(), &pace);
        ahead.read(0, 10).await.unwrap();
        tokio::task::yield_now().await;
        assert_eq!(file.reads.lock().len(), 2, "the second run is under way when the first byte is seen");
        for start in (0..content.len()).step_by(64) {
            ahead.read(start as u64, 64).await.unwrap();
        }
        let runs: Vec<_> = (0..4).map(|run| (run * RUN) as u64..((run + 1) * RUN) as u64).collect();
        assert_eq!(*file.reads.lock(), runs);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_bad_sector_costs_what_lies_on_it_alone() {
        let bad = (RUN + 1000) as u64;
        let (file, content) = file(4 * RUN, bad).await;
        let pace = Pace::new(0);
        let mut ahead = Ahead::new(Arc::clone(&file) as Arc<dyn DiskFile>, content.len() as u64, &room(), &pace);
        for start in (0..content.len()).step_by(512) {
            let read = ahead.read(start as u64, 512).await;
            match (start as u64..start as u64 + 512).contains(&bad) {
                true => assert!(read.is_err()),
                false => assert_eq!(read.unwrap(), &content[start..start + 512]),
            }
        }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn memory_is_bounded_for_every_geometry_and_given_back() {
        let (memory, pace) = (UpkeepMemory::new(), Pace::new(0));
        for files in 1..=160 {
            let room = memory.room(files, 16 << 20, &pace).await;
            assert!(room.run_bytes >= BLOCK_BYTES);
            let used = memory.status().used_bytes;
            assert!(
                used >= (files * RUNS * room.run_bytes) as u64 && used <= UPKEEP_MEMORY_BYTES as u64,
                "{files}: {used}"
            );
        }
        assert_eq!(memory.status().used_bytes, 0);
        let slow = Pace::new(1 << 20);
        assert!(memory.room(1, 0, &slow).await.run_bytes <= 256 << 10, "a slow pace is not kept in jumps");
    }
}
