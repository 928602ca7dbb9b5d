//! The io_uring driver: what is read from the disk comes through a ring, and so goes what is written in place; all else goes to the thread pool.
//!
//! Each target has a ring and a driver thread of its own for reads, because a target that hangs must take no other with it. Submitters put
//! requests into an intake and wake the driver by an eventfd, and only if it sleeps; the driver takes all that has come
//! since, so that under load many reads share one system call, and hundreds can be in flight without a thread for each.
//!
//! What the page cache holds does not go by the ring: a short read is first tried without waiting (`RWF_NOWAIT`) by whoever asks. With 64 clients a get of
//! 4 KiB takes a third less of the server's CPU time that way (docs/MEASUREMENTS.md).
//!
//! Writes go by threads as a rule. A sync blocks, so that a ring hands it, with the write before it, to a worker of the kernel: submitter, driver, worker, driver, submitter are
//! twice as many turns as submitter, thread, submitter, and took a fifth more of the server's CPU time per 4 KiB put. Few are in flight at a time: a lane writes one stripe after the other, and the zeros ahead of them.
//!
//! What is durable at once, short, and overwrites blocks that were written ahead needs no thread that waits (docs/adr/0018): the kernel starts the write, and if the drive must be told to flush, a worker of its own does so
//! afterwards. The chunks of a stripe lie on as many targets, and one thread that starts them all takes the place of six or eleven that each start one and sleep. So these writes have a ring that all targets share. Starting
//! one does not wait for the drive, as a rule: the kernel hands over to a worker what would. Where a drive that hangs holds the driver up nevertheless, threads write what comes later, each target's own.
//!
//! Files and buffers are not registered. A registered file saves the kernel a reference count per operation, a
//! registered buffer saves pinning pages, which only direct I/O does; both would bring a limited table to manage. This
//! is a choice by reckoning, not by measurement.

mod driver;
mod operation;
mod ring;

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::Semaphore;

use crate::disk::{CachedWrite, DiskFile, Durable, IoFuture, Load, Wanted, check_read, check_write, refused};
use crate::host::{HostFile, Writes};
use crate::parts::Parts;
use crate::threads::ThreadFile;

use operation::Sink;
use ring::Reader;

pub(crate) use ring::Ring;

/// Reads up to this size are first tried without waiting: what the page cache holds is copied by the caller, in some tens of microseconds at most, and stays in its caches.
const CACHED_READ_BYTES_MAX: usize = 512 << 10;

/// Least that is loaded into the page cache along a descriptor of its own, in bytes: the kernel begins with small pages.
const LOAD_BYTES_MIN: usize = 256 << 10;
/// Most such descriptors of a target at a time.
const LOADS_MAX: usize = 16;

/// What loads of a target share.
#[derive(Debug, Clone)]
struct Loads {
    /// Taken by each that is under way.
    turns: Arc<Semaphore>,
    /// Taken before that by one that nobody waits for yet: so who begins to read has few of these before him.
    turns_ahead: Arc<Semaphore>,
    /// Where the bytes go.
    sink: Arc<Sink>,
}

impl Loads {
    /// Those of a target with as many operations in flight at most. Each holds its place among them for all of its range, so that half are left to reads, if there are two.
    fn beside_reads(in_flight_max: usize) -> Self {
        let turns = LOADS_MAX.min(in_flight_max / 2).max(1);
        let semaphore = |permits| Arc::new(Semaphore::new(permits));
        Self { turns: semaphore(turns), turns_ahead: semaphore((turns / 2).max(1)), sink: Arc::new(Sink::new()) }
    }
}

/// The rings of a target.
#[derive(Debug, Clone)]
pub(crate) struct Rings {
    /// Reads, of this target alone.
    reads: Arc<Ring>,
    /// What is loaded into the page cache from this target, if anything is.
    loads: Option<Loads>,
    /// Writes in place of all targets.
    in_place: Option<Arc<Ring>>,
}

impl Rings {
    /// Those of a target that is read by `reads`, where `writes` are allowed; `loads` says whether what is read in order is loaded into the page cache.
    pub(crate) fn new(reads: Arc<Ring>, writes: Writes, loads: bool) -> Self {
        let shared = || {
            ring::shared().inspect_err(|error| {
                tracing::info!(%error, "there is no ring for writes in place; threads write");
            })
        };
        let in_place = if writes == Writes::InPlace { shared().ok() } else { None };
        let loads = loads.then(|| Loads::beside_reads(reads.in_flight_max()));
        Self { reads, loads, in_place }
    }
}

/// A file that is read and overwritten in place through rings, and else written on threads.
#[derive(Debug)]
pub(crate) struct UringFile {
    on_threads: ThreadFile,
    rings: Rings,
}

impl UringFile {
    pub(crate) fn new(file: HostFile, rings: Rings) -> Self {
        Self { on_threads: ThreadFile::new(file), rings }
    }

    fn file(&self) -> &Arc<HostFile> {
        self.on_threads.file()
    }
}

impl DiskFile for UringFile {
    fn read_at(&self, offset: u64, len: usize) -> IoFuture<Bytes> {
        if let Err(error) = check_read(offset, len) {
            return refused(error);
        }
        if len == 0 {
            return Box::pin(std::future::ready(Ok(Bytes::new())));
        }
        let (file, ring) = (Arc::clone(self.file()), Arc::clone(&self.rings.reads));
        // Not before it is polled: whoever looks first whether the target answers does not touch it if it does not.
        Box::pin(async move {
            if len <= CACHED_READ_BYTES_MAX
                && let Some(bytes) = file.read_cached(offset, len)
            {
                return Ok(bytes);
            }
            ring.read(file, offset, len).await
        })
    }

    fn load(&self, offset: u64, len: usize, wanted: Wanted) -> Load {
        let Loads { turns, turns_ahead, sink } = self.rings.loads.as_ref().filter(|_| len >= LOAD_BYTES_MIN)?.clone();
        check_read(offset, len).ok()?;
        let is_missing = move |file: &HostFile| file.has_cached(offset, len) == Some(false);
        if !is_missing(self.file()) {
            return None;
        }
        let (file, ring) = (Arc::clone(self.file()), Arc::clone(&self.rings.reads));
        Some(Box::pin(async move {
            let ahead = match wanted {
                Wanted::Now => None,
                Wanted::Later => Some(turns_ahead.acquire_owned().await.expect("the semaphore is never closed")),
            };
            let turn = turns.acquire_owned().await.expect("the semaphore is never closed");
            // Another may have loaded it meanwhile, or is about to.
            if is_missing(&file)
                && let Ok(fd) = file.reader(offset)
            {
                ring.load(file, Reader { fd, sink, _turns: (turn, ahead) }, offset, len).await;
            }
        }))
    }

    fn write_at(&self, offset: u64, parts: Vec<Bytes>, durable: Durable) -> IoFuture<()> {
        if let Err(error) = check_write(offset, &parts) {
            return refused(error);
        }
        let mut parts = Parts::new(offset, parts);
        let on_threads = self.on_threads.clone();
        let Some(ring) = self.rings.in_place.clone() else { return on_threads.write(parts, durable) };
        Box::pin(async move {
            if on_threads.file().goes_in_place(&parts, durable) {
                match ring.begin_in_place(on_threads.file(), parts) {
                    Ok(written) => {
                        return written.await.unwrap_or_else(|_| Err(io::Error::other("no thread for a write")));
                    }
                    Err(back) => parts = back,
                }
            }
            on_threads.write(parts, durable).await
        })
    }

    fn cached_write(&self, offset: u64, parts: Vec<Bytes>) -> Option<CachedWrite> {
        self.on_threads.cached_write(offset, parts)
    }

    fn sync(&self) -> IoFuture<()> {
        self.on_threads.sync()
    }

    fn len(&self) -> IoFuture<u64> {
        self.on_threads.len()
    }

    fn punch(&self, offset: u64, len: u64) -> IoFuture<()> {
        self.on_threads.punch(offset, len)
    }

    fn lend_pages(&self, pipe: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<usize> {
        self.on_threads.lend_pages(pipe, offset, len)
    }

    fn evict(&self, offset: u64, len: u64) -> IoFuture<bool> {
        self.on_threads.evict(offset, len)
    }

    fn prewrite(&self, offset: u64, len: u64) -> IoFuture<bool> {
        self.on_threads.prewrite(offset, len)
    }

    fn set_len(&self, len: u64) -> IoFuture<()> {
        self.on_threads.set_len(len)
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;
    use std::sync::mpsc;
    use std::time::Duration;

    use rustix::fs::{Advice, Mode, OFlags, fadvise};

    use super::*;
    use crate::threads::Pool;

    #[tokio::test]
    async fn reads_are_the_same_from_the_page_cache_and_by_the_ring() {
        let Ok(ring) = Ring::start(8) else { return };
        let dir = tempfile::tempdir().unwrap();
        let fd = rustix::fs::open(dir.path().join("f"), OFlags::RDWR | OFlags::CREATE, Mode::RWXU).unwrap();
        let file = UringFile::new(
            HostFile::new(fd, "f", Pool::new(1, 1), Writes::Cached),
            Rings::new(ring, Writes::Cached, false),
        );
        let content: Vec<u8> = (0..200_000_u32).map(|at| (at % 251) as u8).collect();
        file.write_at(0, vec![Bytes::from(content.clone())], Durable::Yes).await.unwrap();
        for (offset, len) in [(0, 1), (4095, 4098), (150_000, 40_000), (190_000, 20_000), (200_000, 5), (300_000, 5)] {
            let expected = &content[offset.min(content.len())..(offset + len).min(content.len())];
            assert_eq!(file.read_at(offset as u64, len).await.unwrap(), expected);
            assert_eq!(file.rings.reads.read(Arc::clone(file.file()), offset as u64, len).await.unwrap(), expected);
            // Where the kernel forgets the pages, the read has to wait for the disk.
            fadvise(file.file().fd(), 0, None, Advice::DontNeed).unwrap();
            assert_eq!(file.read_at(offset as u64, len).await.unwrap(), expected);
            match file.file().read_cached(offset as u64, len) {
                Some(bytes) => assert_eq!(bytes, expected),
                None => assert!(expected.len() < len, "it was just read"),
            }
        }
    }

    /// Six files with blocks that were written ahead, each with a pool of one thread; none where the kernel or the file system can not do it.
    async fn prewritten(dir: &std::path::Path) -> Option<Vec<UringFile>> {
        let rings = Rings::new(Ring::start(8).ok()?, Writes::InPlace, true);
        rings.in_place.as_ref()?;
        let mut files = Vec::new();
        for number in 0..6 {
            let path = dir.join(number.to_string());
            let fd = rustix::fs::open(path, OFlags::RDWR | OFlags::CREATE, Mode::RWXU).unwrap();
            let file = UringFile::new(HostFile::new(fd, "f", Pool::new(1, 4), Writes::InPlace), rings.clone());
            file.set_len(1 << 20).await.unwrap();
            if !file.prewrite(0, 128 << 10).await.unwrap() {
                return None;
            }
            file.sync().await.unwrap();
            files.push(file);
        }
        Some(files)
    }

    /// Five blocks of memory, each of other bytes.
    fn blocks() -> Vec<Bytes> {
        let memory: Bytes = (0..6 * 4096_u32).map(|at| (at / 4096 * 7 + at % 251) as u8).collect();
        let before = memory.as_ptr().align_offset(4096);
        (0..5).map(|number| memory.slice(before + number * 4096..before + (number + 1) * 4096)).collect()
    }

    #[tokio::test]
    async fn stripes_over_blocks_that_were_written_ahead_need_no_thread() {
        let dir = tempfile::tempdir().unwrap();
        let Some(files) = prewritten(dir.path()).await else { return };
        // The one thread of each pool has something else to do.
        let mut busy = Vec::new();
        for file in &files {
            let (free, held) = mpsc::channel::<()>();
            file.file().pool().detach(move || _ = held.recv_timeout(Duration::from_secs(20)));
            busy.push(free);
        }
        let blocks = blocks();
        for stripe in 0..16 {
            let offset = stripe * 8192;
            let parts = || vec![blocks[stripe as usize % 5].clone(), blocks[(stripe as usize + 1) % 5].clone()];
            let writes = files.iter().map(|file| file.write_at(offset, parts(), Durable::Yes));
            futures::future::try_join_all(writes).await.unwrap();
            for file in &files {
                assert_eq!(file.read_at(offset, 8192).await.unwrap(), parts().concat());
            }
        }
        // A thread that was needed has gone by now.
        assert!(busy.iter().all(|free| free.send(()).is_ok()));
    }

    #[tokio::test]
    async fn what_else_was_written_is_made_durable_by_a_sync_of_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let Some(files) = prewritten(dir.path()).await else { return };
        let blocks = blocks();
        let goes = |offset, parts: &[Bytes], durable| {
            files[0].file().goes_in_place(&Parts::new(offset, parts.to_vec()), durable)
        };
        assert!(goes(0, &blocks[..2], Durable::Yes));
        assert!(!goes(0, &blocks[..2], Durable::No));
        assert!(!goes(0, &[], Durable::Yes), "nothing is written, and nothing made durable");
        assert!(!goes(128 << 10, &blocks[..2], Durable::Yes), "behind what was written ahead");
        let unsynced = |file: &UringFile| {
            let file = Arc::clone(file.file());
            move || !file.goes_in_place(&Parts::new(0, vec![blocks[0].clone()]), Durable::Yes)
        };
        let unsynced = unsynced(&files[0]);
        files[0].write_at(256 << 10, vec![Bytes::from_static(b"later")], Durable::No).await.unwrap();
        assert!(unsynced());
        // This goes by a thread, and syncs the file.
        files[0].write_at(0, vec![Bytes::from(vec![1; 4096])], Durable::Yes).await.unwrap();
        assert!(!unsynced());
        files[0].set_len(2 << 20).await.unwrap();
        assert!(unsynced());
        files[0].sync().await.unwrap();
        assert!(!unsynced());
    }

    #[tokio::test]
    async fn what_the_page_cache_lacks_is_loaded_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let Ok(ring) = Ring::start(8) else { return };
        let rings = |loads| Rings::new(Arc::clone(&ring), Writes::InPlace, loads);
        let open = |loads| {
            let flags = OFlags::RDWR | OFlags::CREATE;
            let fd = rustix::fs::open(dir.path().join("f"), flags, Mode::RWXU).unwrap();
            UringFile::new(HostFile::new(fd, "f", Pool::new(1, 1), Writes::InPlace), rings(loads))
        };
        let file = open(true);
        let content: Bytes = (0..1_500_000_u32).map(|at| (at / 4096 * 7 + at % 251) as u8).collect();
        file.write_at(0, vec![content.clone()], Durable::Yes).await.unwrap();
        assert!(file.load(0, 1 << 20, Wanted::Now).is_none(), "it was just written, or the kernel does not tell");
        // What the kernel reads ahead can not be dropped before it is there.
        let forget = async |pages: Range<usize>| {
            for _ in 0..200 {
                fadvise(file.file().fd(), 0, None, Advice::DontNeed).unwrap();
                if file.file().has_cached(pages.start as u64, pages.len()) == Some(false) {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        forget(0..content.len()).await;
        match file.file().has_cached(0, content.len()) {
            Some(false) => {}
            // The kernel does not tell, or the file system keeps its pages.
            told => {
                let has_disk = [0xEF53, 0x5846_5342].contains(&rustix::fs::fstatfs(file.file().fd()).unwrap().f_type);
                assert!(told.is_none() || !has_disk, "pages can not be dropped");
                return;
            }
        }
        // From amid a page, from a page, and beyond the end; behind pages that are there and behind such that are not.
        for (offset, len) in [(5000, 700_000), (0, 1_000_000), (1_200_000, 1_000_000), (409_600, 409_600)] {
            for keeps_front in [false, true] {
                let end = (offset + len).min(content.len());
                forget(offset..end).await;
                if keeps_front {
                    file.read_at(0, 4096).await.unwrap();
                }
                let cached = || file.file().has_cached(offset as u64, end - offset);
                let load = |file: &UringFile, len| file.load(offset as u64, len, Wanted::Now);
                assert_eq!(cached(), Some(false));
                assert!(load(&open(false), len).is_none(), "not on this target");
                assert!(load(&file, LOAD_BYTES_MIN - 1).is_none(), "that is few");
                load(&file, len).unwrap().await;
                assert_eq!(cached(), Some(true));
                assert_eq!(file.read_at(offset as u64, len).await.unwrap(), content[offset..end]);
            }
        }
        assert!(file.load(u64::MAX, LOAD_BYTES_MIN, Wanted::Now).is_none(), "no file is so long");
        // All turns that those have for whom nobody waits are taken.
        forget(0..LOAD_BYTES_MIN).await;
        let loads = file.rings.loads.as_ref().unwrap();
        let turns = loads.turns_ahead.available_permits();
        assert_eq!((turns, loads.turns.available_permits()), (2, 4), "of 8 operations");
        let taken = Arc::clone(&loads.turns_ahead).try_acquire_many_owned(turns as u32).unwrap();
        let mut later = file.load(0, LOAD_BYTES_MIN, Wanted::Later).unwrap();
        assert!(futures::poll!(&mut later).is_pending());
        assert_eq!(loads.turns.available_permits(), 4, "none of those that others have");
        let now = file.load(LOAD_BYTES_MIN as u64, LOAD_BYTES_MIN, Wanted::Now);
        if let Some(now) = now {
            now.await;
        }
        assert!(futures::poll!(&mut later).is_pending());
        assert_eq!(file.file().has_cached(0, LOAD_BYTES_MIN), Some(false));
        drop(taken);
        later.await;
        assert_eq!(file.file().has_cached(0, 2 * LOAD_BYTES_MIN), Some(true));
        assert_eq!((loads.turns_ahead.available_permits(), loads.turns.available_permits()), (2, 4), "all are back");
    }

    #[test]
    fn loads_leave_half_of_a_ring_to_reads_if_it_takes_two() {
        let turns = |in_flight_max| {
            let loads = Loads::beside_reads(in_flight_max);
            (loads.turns.available_permits(), loads.turns_ahead.available_permits())
        };
        assert_eq!([1, 2, 3, 8, 256].map(turns), [(1, 1), (1, 1), (1, 1), (4, 2), (16, 8)]);
    }

    #[test]
    fn targets_share_one_ring() {
        let Ok(first) = ring::shared() else { return };
        assert!(Arc::ptr_eq(&first, &ring::shared().unwrap()));
    }
}
