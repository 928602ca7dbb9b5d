//! An open file and the blocking calls on it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use rustix::fs::FallocateFlags;
use rustix::io::{Errno, retry_on_intr};

use super::direct;
use crate::disk::Durable;
use crate::error::explain;
use crate::parts::Parts;
use crate::threads::Pool;

/// A descriptor that is closed on the pool, since closing blocks: file systems that buffer until close write then,
/// and closing the last handle of an unlinked segment frees its blocks.
#[derive(Debug)]
pub(crate) struct HostFile {
    /// Empty only while being dropped.
    fd: Option<OwnedFd>,
    path: Box<str>,
    pool: Arc<Pool>,
    /// Whether long writes go past the page cache.
    is_direct: AtomicBool,
}

impl HostFile {
    pub(crate) fn new(fd: OwnedFd, path: &str, pool: Arc<Pool>) -> Self {
        Self { fd: Some(fd), path: path.into(), pool, is_direct: AtomicBool::new(false) }
    }

    /// The same, with long writes past the page cache, if the file system can do that.
    pub(crate) fn direct(fd: OwnedFd, path: &str, pool: Arc<Pool>) -> Self {
        let file = Self::new(fd, path, pool);
        file.is_direct.store(true, Ordering::Relaxed);
        file
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_ref().expect("it is taken by drop alone").as_fd()
    }

    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    pub(crate) fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        read_at(self.fd(), offset, len).map_err(|error| self.explain(error, "read"))
    }

    /// The `len` bytes at `offset` if the page cache holds all of them; never waits for the disk.
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

    pub(crate) fn write_at(&self, mut parts: Parts, durable: Durable) -> io::Result<()> {
        if self.is_direct.load(Ordering::Relaxed) && direct::takes(&parts) {
            match direct::write(self.fd(), &mut parts).map_err(|error| self.explain(error, "write"))? {
                direct::Outcome::Written => {}
                direct::Outcome::Unsupported => self.is_direct.store(false, Ordering::Relaxed),
            }
        }
        write_at(self.fd(), parts).map_err(|error| self.explain(error, "write"))?;
        match durable {
            Durable::No => Ok(()),
            Durable::Yes => self.sync(),
        }
    }

    pub(crate) fn sync(&self) -> io::Result<()> {
        // Retrying an interrupted sync is safe: the kernel reports EINTR before it has taken any error off the file.
        retry_on_intr(|| rustix::fs::fdatasync(self.fd())).map_err(|errno| self.explain(errno, "sync"))
    }

    pub(crate) fn len(&self) -> io::Result<u64> {
        len(self.fd()).map_err(|errno| self.explain(errno, "stat"))
    }

    pub(crate) fn set_len(&self, len: u64) -> io::Result<()> {
        retry_on_intr(|| rustix::fs::ftruncate(self.fd(), len)).map_err(|errno| self.explain(errno, "truncate"))
    }

    pub(crate) fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        if len == 0 {
            return Ok(());
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match retry_on_intr(|| rustix::fs::fallocate(self.fd(), flags, offset, len)) {
            Ok(()) => Ok(()),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Err(io::ErrorKind::Unsupported.into()),
            Err(errno) => Err(self.explain(errno, "punch a hole")),
        }
    }

    pub(crate) fn explain(&self, error: impl Into<io::Error>, action: &'static str) -> io::Error {
        explain(error, action, &self.path)
    }
}

impl Drop for HostFile {
    fn drop(&mut self) {
        let fd = self.fd.take();
        self.pool.detach(move || drop(fd));
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
