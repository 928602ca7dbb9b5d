//! An open file and the blocking calls on it.

use std::io;
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use parking_lot::Mutex;
use rustix::fs::{Advice, FallocateFlags, Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::pipe::{SpliceFlags, splice};

use super::direct;
use crate::disk::{BLOCK_BYTES, Durable};
use crate::error::explain;
use crate::lock::DirLock;
use crate::parts::Parts;
use crate::threads::Pool;

/// Longest page that the page cache makes on machines whose smallest are of 4 KiB. Where there are longer ones, they are found not to be dropped.
const LARGE_PAGE_BYTES: u64 = 2 << 20;

/// A descriptor that is closed on the pool, since closing blocks: file systems that buffer until close write then,
/// and closing the last handle of an unlinked segment frees its blocks.
#[derive(Debug)]
pub(crate) struct HostFile {
    /// Empty only while being dropped.
    fd: Option<OwnedFd>,
    /// The same file for what goes past the page cache, once there was such: the flag belongs to the open file, and reads want the page cache.
    direct: OnceLock<OwnedFd>,
    path: Box<str>,
    pool: Arc<Pool>,
    writes: Writes,
    /// The file system can not write past the page cache.
    refuses_direct: AtomicBool,
    /// Blocks that were written ahead, of which nothing is left to be noted.
    prewritten: Mutex<Range<u64>>,
    /// Writes, cuts and holes that have ended, whatever came of them.
    changes: AtomicU64,
    /// Of these, how many a sync of the whole file has made durable.
    synced: AtomicU64,
    /// Held by a sync. Of two at a time on an ext4 without a journal the later one may find that the earlier one has its metadata in hand, and return before that is written.
    /// Writes in place sync what they write without it: see [`crate::DiskFile::prewrite`].
    sync_turn: Mutex<()>,
    /// Of the target.
    lock: Option<Arc<DirLock>>,
}

/// `cachestat`, which has this number on every architecture that we know.
const SYS_CACHESTAT: libc::c_long = 451;

/// What the kernel is asked about.
#[repr(C)]
struct CacheRange {
    offset: u64,
    len: u64,
}

/// What it tells.
#[repr(C)]
#[derive(Default)]
struct CacheState {
    cached_pages: u64,
    /// Dirty, written back, evicted, evicted lately.
    others: [u64; 4],
}

/// What writes to a file system may do besides going by the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Writes {
    /// Nothing: behind a network or a user process direct writes mean other things.
    Cached,
    /// Long ones go past it.
    LongDirect,
    /// So do they, and short durable ones where blocks were written ahead: the file system overwrites in place.
    InPlace,
}

impl HostFile {
    pub(crate) fn new(fd: OwnedFd, path: &str, pool: Arc<Pool>, writes: Writes) -> Self {
        spare_access_time(&fd);
        Self {
            fd: Some(fd),
            direct: OnceLock::new(),
            path: path.into(),
            pool,
            writes,
            refuses_direct: AtomicBool::new(false),
            prewritten: Mutex::new(0..0),
            changes: AtomicU64::new(0),
            synced: AtomicU64::new(0),
            sync_turn: Mutex::new(()),
            lock: None,
        }
    }

    /// The same, which keeps a lock as long as it lives.
    pub(crate) fn under(mut self, lock: Option<Arc<DirLock>>) -> Self {
        self.lock = lock;
        self
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_ref().expect("it is taken by drop alone").as_fd()
    }

    /// The descriptor of what goes past the page cache, if there is one yet.
    pub(crate) fn direct_fd(&self) -> Option<BorrowedFd<'_>> {
        self.direct.get().map(AsFd::as_fd)
    }

    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    pub(crate) fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        read_at(self.fd(), offset, len).map_err(|error| self.explain(error, "read"))
    }

    /// The `len` bytes at `offset` if the page cache holds all of them. It does not wait for what it lacks, but has it read ahead: see docs/adr/0012 for what may hold that up.
    pub(crate) fn read_cached(&self, offset: u64, len: usize) -> Option<Bytes> {
        let mut bytes = Vec::<u8>::with_capacity(len);
        let vector = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: len };
        let offset = libc::off_t::try_from(offset).ok()?;
        // SAFETY: the one vector is the buffer's capacity, which nobody else refers to, and the descriptor is open while `self` is.
        let read = unsafe { libc::preadv2(self.fd().as_raw_fd(), &vector, 1, offset, libc::RWF_NOWAIT) };
        if usize::try_from(read) != Ok(len) {
            return None;
        }
        // SAFETY: the kernel has written this many bytes, which are all that the capacity was asked for.
        unsafe { bytes.set_len(len) };
        Some(bytes.into())
    }

    /// Whether the page cache has all of `len` bytes at `offset`, or is about to; nothing where the kernel does not tell (Linux 6.5 does).
    pub(crate) fn has_cached(&self, offset: u64, len: usize) -> Option<bool> {
        let page_bytes = rustix::param::page_size() as u64;
        let last = (offset + len as u64).checked_sub(1)?;
        let range = CacheRange { offset, len: len as u64 };
        let mut state = CacheState::default();
        // SAFETY: both are laid out as the kernel has them (`struct cachestat_range`, `struct cachestat`) and live longer than the call.
        let told =
            unsafe { libc::syscall(SYS_CACHESTAT, self.fd().as_raw_fd(), &raw const range, &raw mut state, 0_u32) };
        (told == 0).then(|| state.cached_pages > last / page_bytes - offset / page_bytes)
    }

    /// A descriptor for reading once from `offset` on. The kernel reads ahead along a descriptor: of this one it takes what is read first for what follows, be the
    /// pages before it cached or not.
    pub(crate) fn reader(&self, offset: u64) -> io::Result<OwnedFd> {
        let path = format!("/proc/self/fd/{}", self.fd().as_raw_fd());
        let fd = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        spare_access_time(&fd);
        if let Some(before) = offset.checked_sub(1).and_then(|before| libc::off_t::try_from(before).ok()) {
            let mut byte = 0_u8;
            let vector = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
            // SAFETY: the one vector is a byte that lives longer than the call, and the descriptor is open. What comes of it is no matter.
            let _ = unsafe { libc::preadv2(fd.as_raw_fd(), &raw const vector, 1, before, libc::RWF_NOWAIT) };
        }
        Ok(fd)
    }

    pub(crate) fn write_at(&self, parts: Parts, durable: Durable) -> io::Result<()> {
        let written = self.write(parts, durable);
        self.note_change();
        written.map_err(|error| self.explain(error, "write"))?;
        match durable {
            Durable::No => Ok(()),
            Durable::Yes => self.sync(),
        }
    }

    fn write(&self, mut parts: Parts, durable: Durable) -> io::Result<()> {
        if self.goes_direct(&parts, durable)
            && let Some(direct) = self.direct()
        {
            let outcome = direct::write(direct, &mut parts)?;
            self.note(&outcome);
        }
        write_at(self.fd(), parts)
    }

    pub(crate) fn sync(&self) -> io::Result<()> {
        // Counted before: what ends meanwhile may have come too late.
        let changes = self.changes.load(Ordering::Acquire);
        self.sync_by(self.fd()).map_err(|errno| self.explain(errno, "sync"))?;
        self.synced.fetch_max(changes, Ordering::Release);
        Ok(())
    }

    fn note_change(&self) {
        self.changes.fetch_add(1, Ordering::Release);
    }

    fn sync_by(&self, fd: BorrowedFd<'_>) -> rustix::io::Result<()> {
        let _turn = self.sync_turn.lock();
        // Retrying an interrupted sync is safe: the kernel reports EINTR before it has taken any error off the file.
        retry_on_intr(|| rustix::fs::fdatasync(fd))
    }

    pub(crate) fn len(&self) -> io::Result<u64> {
        len(self.fd()).map_err(|errno| self.explain(errno, "stat"))
    }

    pub(crate) fn set_len(&self, len: u64) -> io::Result<()> {
        let cut = retry_on_intr(|| rustix::fs::ftruncate(self.fd(), len));
        self.note_change();
        cut.map_err(|errno| self.explain(errno, "truncate"))
    }

    pub(crate) fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        if len == 0 {
            return Ok(());
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let punched = retry_on_intr(|| rustix::fs::fallocate(self.fd(), flags, offset, len));
        self.note_change();
        match punched {
            Ok(()) => Ok(()),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Err(io::ErrorKind::Unsupported.into()),
            Err(errno) => Err(self.explain(errno, "punch a hole")),
        }
    }

    /// Whether pages are lent: where it is known that they can be dropped from the page cache while somebody has them.
    pub(crate) fn lends(&self) -> bool {
        self.writes == Writes::InPlace
    }

    pub(crate) fn lend_pages(&self, pipe: BorrowedFd<'_>, mut offset: u64, len: usize) -> io::Result<usize> {
        if !self.lends() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let mut lent = 0;
        while lent < len {
            match splice(self.fd(), Some(&mut offset), pipe, None, len - lent, SpliceFlags::NONBLOCK) {
                Ok(0) => break,
                Ok(bytes) => lent += bytes,
                Err(Errno::INTR) => {}
                Err(_) if lent > 0 => break,
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(lent)
    }

    pub(crate) fn evict(&self, offset: u64, len: u64) -> io::Result<bool> {
        let Some(last) = len.checked_sub(BLOCK_BYTES).map(|rest| offset + rest).filter(|_| self.lends()) else {
            return Ok(true);
        };
        // A large page is dropped if it lies in the range as a whole.
        let start = offset / LARGE_PAGE_BYTES * LARGE_PAGE_BYTES;
        let end = (offset + len).next_multiple_of(LARGE_PAGE_BYTES);
        retry_on_intr(|| rustix::fs::fadvise(self.fd(), start, NonZeroU64::new(end - start), Advice::DontNeed))
            .map_err(|errno| self.explain(errno, "drop pages of"))?;
        // A page that lies across an edge has the first or the last block of the range.
        Ok(!self.is_cached(offset)? && !self.is_cached(last)?)
    }

    /// Whether the page cache has the page with the byte at `offset`. A read that is not to wait would tell as well, but fails for other reasons, too.
    fn is_cached(&self, offset: u64) -> io::Result<bool> {
        let page_bytes = rustix::param::page_size();
        let offset = offset / page_bytes as u64 * page_bytes as u64;
        // SAFETY: the kernel chooses an address where nothing is, and nobody reads what is mapped there.
        let page = unsafe { mmap(ptr::null_mut(), page_bytes, ProtFlags::READ, MapFlags::SHARED, self.fd(), offset) };
        let page = page.map_err(|errno| self.explain(errno, "map"))?;
        let mut state = 0_u8;
        // SAFETY: it is mapped, and there is a byte for the state of its one page.
        let asked = unsafe { libc::mincore(page, page_bytes, &raw mut state) };
        let error = io::Error::last_os_error();
        // SAFETY: it was mapped above, and is not referred to.
        unsafe { munmap(page, page_bytes) }.map_err(|errno| self.explain(errno, "unmap"))?;
        if asked == 0 { Ok(state & 1 == 1) } else { Err(self.explain(error, "ask for pages of")) }
    }

    pub(crate) fn prewrite(&self, offset: u64, len: u64) -> io::Result<bool> {
        if self.writes != Writes::InPlace || len == 0 {
            return Ok(false);
        }
        let Some(direct) = self.direct() else { return Ok(false) };
        let explain = |error: io::Error| self.explain(error, "write zeros ahead");
        let outcome = direct::write_zeros(direct, offset, len).map_err(explain)?;
        self.note(&outcome);
        if outcome == direct::Outcome::Unsupported {
            return Ok(false);
        }
        // By its own descriptor: an error of another write that the kernel tells it is told that write's sync, too.
        self.sync_by(direct).map_err(|errno| explain(errno.into()))?;
        let mut prewritten = self.prewritten.lock();
        let goes_on = prewritten.end == offset;
        *prewritten = if goes_on { prewritten.start } else { offset }..offset + len;
        Ok(true)
    }

    fn is_prewritten(&self, parts: &Parts) -> bool {
        let prewritten = self.prewritten.lock();
        prewritten.start <= parts.offset() && parts.offset() + parts.bytes() as u64 <= prewritten.end
    }

    /// Whether a write is to go past the page cache.
    fn goes_direct(&self, parts: &Parts, durable: Durable) -> bool {
        self.may_go_direct(parts) && (direct::is_long(parts) || self.is_in_place(parts, durable))
    }

    /// Whether a write is no more than a copy to the page cache of this machine, for which one thread may do those of several files.
    pub(crate) fn may_write_beside_others(&self, parts: &Parts) -> bool {
        self.writes != Writes::Cached && !direct::is_long(parts)
    }

    fn may_go_direct(&self, parts: &Parts) -> bool {
        self.writes != Writes::Cached && direct::is_aligned(parts) && !self.refuses_direct.load(Ordering::Relaxed)
    }

    /// Whether a write is to be durable at once, in blocks that were written ahead and from where it lies: one that would have to be copied first gains nothing.
    fn is_in_place(&self, parts: &Parts, durable: Durable) -> bool {
        durable == Durable::Yes && direct::lies_in_blocks(parts) && self.is_prewritten(parts)
    }

    /// Whether a write and its sync are to be one write to the drive and nothing else. That makes durable what it writes and not what else was written to the file,
    /// as a sync does: so not where there is such.
    pub(crate) fn goes_in_place(&self, parts: &Parts, durable: Durable) -> bool {
        let is_synced = || self.synced.load(Ordering::Acquire) == self.changes.load(Ordering::Acquire);
        self.direct.get().is_some()
            && !parts.is_done()
            && self.may_go_direct(parts)
            && self.is_in_place(parts, durable)
            && is_synced()
    }

    /// Notes that the file system can not write past the page cache.
    pub(crate) fn refuse_direct(&self) {
        self.refuses_direct.store(true, Ordering::Relaxed);
    }

    /// The descriptor of what goes past the page cache, opened if need be; nothing where that can not be done.
    fn direct(&self) -> Option<BorrowedFd<'_>> {
        if self.direct.get().is_none() {
            match direct::open(self.fd()) {
                // Another thread may have been quicker.
                Ok(direct) => drop(self.direct.set(direct)),
                Err(Errno::INVAL | Errno::OPNOTSUPP) => self.refuse_direct(),
                Err(_) => {}
            }
        }
        self.direct_fd()
    }

    fn note(&self, outcome: &direct::Outcome) {
        if *outcome == direct::Outcome::Unsupported {
            self.refuse_direct();
        }
    }

    pub(crate) fn explain(&self, error: impl Into<io::Error>, action: &'static str) -> io::Error {
        explain(error, action, &self.path)
    }
}

impl Drop for HostFile {
    fn drop(&mut self) {
        // The lock last: what is written when the file is closed is still under it.
        let held = (self.fd.take(), self.direct.take(), self.lock.take());
        self.pool.detach(move || drop(held));
    }
}

/// Has reads leave the time of the last access alone, where that may be asked for: to note it waits for the file system's journal, and so for a drive that hangs, also when what is read is cached.
fn spare_access_time(fd: &OwnedFd) {
    if let Ok(flags) = rustix::fs::fcntl_getfl(fd) {
        // Somebody else's file has it noted.
        let _ = rustix::fs::fcntl_setfl(fd, flags | OFlags::NOATIME);
    }
}

pub(super) fn len(fd: impl AsFd) -> rustix::io::Result<u64> {
    Ok(u64::try_from(rustix::fs::fstat(fd)?.st_size).unwrap_or(0))
}

/// Reads up to `len` bytes, fewer only at the end of the file.
pub(super) fn read_at(fd: impl AsFd, offset: u64, len: usize) -> io::Result<Bytes> {
    let mut bytes = Vec::with_capacity(len);
    while bytes.len() < len {
        let at = offset + bytes.len() as u64;
        // The spare capacity is written by the kernel; nothing is zeroed first.
        let spare = rustix::buffer::spare_capacity(&mut bytes);
        match rustix::io::pread(&fd, spare, at) {
            Ok(0) => break,
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    // An allocator may give more than was asked for.
    bytes.truncate(len);
    Ok(bytes.into())
}

/// Writes all parts, however short the single writes are.
pub(super) fn write_at(fd: impl AsFd, mut parts: Parts) -> io::Result<()> {
    while !parts.is_done() {
        let written = match parts.rest() {
            [part] => rustix::io::pwrite(&fd, part, parts.offset()),
            _ => rustix::io::pwritev(&fd, &parts.vectors(), parts.offset()),
        };
        match written {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(bytes) => parts.advance(bytes),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(writes: Writes) -> (tempfile::TempDir, HostFile) {
        let dir = tempfile::tempdir().unwrap();
        let fd = rustix::fs::open(dir.path().join("f"), OFlags::RDWR | OFlags::CREATE, Mode::RWXU).unwrap();
        let file = HostFile::new(fd, "f", Pool::new(1, 1), writes);
        file.set_len(1 << 20).unwrap();
        (dir, file)
    }

    #[test]
    fn reading_changes_nothing_about_a_file() {
        use rustix::fs::{Timespec, Timestamps, fstat, futimens};

        let (dir, file) = file(Writes::InPlace);
        let long_ago = Timespec { tv_sec: 1_000_000_000, tv_nsec: 0 };
        let accessed = || fstat(file.fd()).unwrap().st_atime as i64;
        let reads: [&dyn Fn(); 3] =
            [&|| drop(file.read_at(0, 100).unwrap()), &|| drop(file.read_cached(0, 100)), &|| {
                drop(read_at(file.reader(4096).unwrap(), 0, 100).unwrap())
            }];
        for read in reads {
            futimens(file.fd(), &Timestamps { last_access: long_ago, last_modification: long_ago }).unwrap();
            read();
            assert_eq!(accessed(), long_ago.tv_sec);
        }
        // Where others' reads are noted, unless it is mounted so that none are.
        let _ = std::fs::read(dir.path().join("f")).unwrap();
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        assert!(accessed() != long_ago.tv_sec || mounts.contains("noatime"), "the test tests nothing");
    }

    #[test]
    fn what_is_durable_at_once_goes_past_the_page_cache_where_blocks_were_written_ahead() {
        let (_dir, file) = file(Writes::InPlace);
        if !file.prewrite(65_536, 65_536).unwrap() || !file.prewrite(131_072, 65_536).unwrap() {
            return;
        }
        // It begins at a block of memory, as chunks do.
        let memory = Bytes::from(vec![7; 3 * 4096]);
        let before = memory.as_ptr().align_offset(4096);
        let block = memory.slice(before..before + 8192);
        for (offset, durable, is_direct) in [
            (0, Durable::Yes, false),
            (57_344, Durable::Yes, false),
            (61_440, Durable::Yes, false),
            (65_536, Durable::Yes, true),
            (126_976, Durable::Yes, true),
            (188_416, Durable::Yes, true),
            (90_112, Durable::No, false),
            (192_512, Durable::Yes, false),
            (70_000, Durable::Yes, false),
        ] {
            let parts = || Parts::new(offset, vec![block.clone()]);
            assert_eq!(file.goes_direct(&parts(), durable), is_direct, "{offset} {durable:?}");
            file.write_at(parts(), durable).unwrap();
            assert_eq!(file.read_at(offset, block.len()).unwrap(), block);
        }
        // What would have to be copied first goes by the page cache.
        let elsewhere = Parts::new(98_304, vec![memory.slice(before + 1..before + 4097)]);
        assert!(!file.goes_direct(&elsewhere, Durable::Yes));
    }

    #[test]
    fn nothing_is_written_ahead_where_files_are_not_overwritten_in_place() {
        for writes in [Writes::Cached, Writes::LongDirect] {
            let (_dir, file) = file(writes);
            assert!(!file.prewrite(0, 65_536).unwrap());
            assert_eq!(*file.prewritten.lock(), 0..0);
        }
    }
}
