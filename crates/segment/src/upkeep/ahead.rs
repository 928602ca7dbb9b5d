//! Reading shard files from front to back in long runs: the next run of each file is on its way while the current one is looked at, so that
//! neither the targets wait for checksums nor checksums for the targets.
//!
//! What is held is bounded whatever the geometry is, and however many segments are worked at: [`Room`]. A run that can not be read is read
//! again piece by piece, as it is asked for: one bad sector costs the chunk that it lies in, not all of the run.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use gabion_platform::{DiskFile, Durable, IoFuture};
use gabion_types::limits::{BLOCK_BYTES, CHUNK_ALIGN_BYTES};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;

use super::Pace;
use crate::status::MemoryUse;
use crate::target::{OVERDUE, Target, is_overdue};

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

/// A shard file, and the target that it lies on, unless that is waited for without end.
#[derive(Clone)]
pub(super) struct TimedFile {
    pub(super) file: Arc<dyn DiskFile>,
    pub(super) target: Option<Arc<Target>>,
}

impl TimedFile {
    pub(super) fn read(&self, offset: u64, len: usize) -> IoFuture<Bytes> {
        self.in_time(self.file.read_at(offset, len))
    }

    /// Not durable.
    pub(super) fn write(&self, offset: u64, bytes: Bytes) -> IoFuture<()> {
        self.in_time(self.file.write_at(offset, vec![bytes], Durable::No))
    }

    fn in_time<T: Send + 'static>(&self, work: IoFuture<T>) -> IoFuture<T> {
        match &self.target {
            Some(target) => target.timed(OVERDUE, work),
            None => work,
        }
    }
}

/// One file that is read from front to back.
pub(super) struct Ahead<'a> {
    file: TimedFile,
    pace: &'a Pace,
    run_bytes: usize,
    /// Nothing from here on is asked for.
    end: u64,
    current: Run,
    next: Option<(u64, JoinHandle<io::Result<Bytes>>)>,
    /// A run that could not be read.
    failed: Range<u64>,
    was_overdue: bool,
}

#[derive(Default)]
struct Run {
    offset: u64,
    bytes: Bytes,
}

impl<'a> Ahead<'a> {
    /// Reads `file` up to `end`.
    pub(super) fn new(file: TimedFile, end: u64, room: &Room, pace: &'a Pace) -> Self {
        Self {
            file,
            pace,
            run_bytes: room.run_bytes,
            end,
            current: Run::default(),
            next: None,
            failed: 0..0,
            was_overdue: false,
        }
    }

    /// Whether something could not be read because the target did not answer.
    pub(super) fn was_overdue(&self) -> bool {
        self.was_overdue
    }

    /// `len` bytes at `offset`, fewer where the file ends. Offsets that ascend are what this is for; others are right as well.
    pub(super) async fn read(&mut self, offset: u64, len: usize) -> io::Result<Bytes> {
        let mut whole = BytesMut::new();
        loop {
            let (at, missing) = (offset + whole.len() as u64, len - whole.len());
            if self.failed.contains(&at) || at >= self.end {
                let rest = self.file.read(at, missing).await;
                let rest = rest.inspect_err(|error| self.was_overdue |= is_overdue(error))?;
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
        (offset, tokio::spawn(self.file.read(offset, len)))
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
    use std::future::ready;

    use gabion_platform::{Access, SimDisk};
    use parking_lot::Mutex;

    use super::*;

    /// What a file was asked for.
    type Reads = Arc<Mutex<Vec<Range<u64>>>>;

    /// A file that refuses reads which touch a bad byte, and what it holds.
    async fn file(len: usize, bad: u64) -> (TimedFile, Reads, Vec<u8>) {
        let content: Vec<u8> = (0..len).map(|at| (at * 7 + at / 251) as u8).collect();
        let reads = Reads::default();
        let asked = Arc::clone(&reads);
        let disk = SimDisk::new(1).gated(Arc::new(move |access| {
            let Access::Read(range) = access else { return Box::pin(ready(Ok(()))) };
            let is_bad = range.contains(&bad);
            asked.lock().push(range);
            Box::pin(ready(if is_bad { Err(io::Error::other("a bad sector")) } else { Ok(()) }))
        }));
        let file = disk.create("f", 0).await.unwrap();
        file.write_at(0, vec![content.clone().into()], Durable::No).await.unwrap();
        (TimedFile { file, target: None }, reads, content)
    }

    const RUN: usize = 8192;

    fn room() -> Room {
        let share = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        Room { run_bytes: RUN, _share: share }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn every_range_is_what_the_file_holds() {
        let (file, _, content) = file(5 * RUN + 100, u64::MAX).await;
        let pace = Pace::new(0);
        let end = content.len() as u64;
        for step in [1, 1000, 4096, RUN, 3 * RUN] {
            let mut ahead = Ahead::new(file.clone(), end, &room(), &pace);
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
        let (file, reads, content) = file(4 * RUN, u64::MAX).await;
        let pace = Pace::new(0);
        let mut ahead = Ahead::new(file, content.len() as u64, &room(), &pace);
        ahead.read(0, 10).await.unwrap();
        tokio::task::yield_now().await;
        assert_eq!(reads.lock().len(), 2, "the second run is under way when the first byte is seen");
        for start in (0..content.len()).step_by(64) {
            ahead.read(start as u64, 64).await.unwrap();
        }
        let runs: Vec<_> = (0..4).map(|run| (run * RUN) as u64..((run + 1) * RUN) as u64).collect();
        assert_eq!(*reads.lock(), runs);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_bad_sector_costs_what_lies_on_it_alone() {
        let bad = (RUN + 1000) as u64;
        let (file, _, content) = file(4 * RUN, bad).await;
        let pace = Pace::new(0);
        let mut ahead = Ahead::new(file, content.len() as u64, &room(), &pace);
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
