//! The io_uring driver: what is read from the disk comes through one ring per target; names and writes go to the thread pool.
//!
//! One driver thread and one ring per target, because a target that hangs must take no other with it. Submitters put
//! requests into an intake and wake the driver by an eventfd, and only if it sleeps; the driver takes all that has come
//! since, so that under load many reads share one system call, and hundreds can be in flight without a thread for each.
//!
//! What the page cache holds does not go by the ring: a short read is first tried without waiting (`RWF_NOWAIT`) by whoever asks. With 64 clients a get of
//! 4 KiB takes a third less of the server's CPU time that way (docs/BENCHMARKS.md).
//!
//! Writes go by threads, too. A sync always blocks, so that a ring hands it, with the write before it, to a worker of the kernel: submitter, driver, worker, driver, submitter are
//! twice as many turns as submitter, thread, submitter, and took a fifth more of the server's CPU time per 4 KiB put. Few are in flight at a time: a lane writes one stripe after the other, and the zeros ahead of them.
//!
//! Files and buffers are not registered. A registered file saves the kernel a reference count per operation, a
//! registered buffer saves pinning pages, which only direct I/O does; both would bring a limited table to manage. This
//! is a choice by reckoning, not by measurement; to be measured when direct I/O comes.

mod driver;
mod operation;
mod ring;

use std::sync::Arc;

use bytes::Bytes;

use crate::disk::{DiskFile, Durable, IoFuture, check_read, refused};
use crate::host::HostFile;
use crate::threads::ThreadFile;

pub(crate) use ring::Ring;

/// Reads up to this size are first tried without waiting: what the page cache holds is copied by the caller, in some tens of microseconds at most, and stays in its caches.
const CACHED_READ_BYTES_MAX: usize = 512 << 10;

/// A file that is read through a ring, and written on threads.
#[derive(Debug)]
pub(crate) struct UringFile {
    on_threads: ThreadFile,
    ring: Arc<Ring>,
}

impl UringFile {
    pub(crate) fn new(file: HostFile, ring: Arc<Ring>) -> Self {
        Self { on_threads: ThreadFile::new(file), ring }
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
        if len <= CACHED_READ_BYTES_MAX
            && let Some(bytes) = self.file().read_cached(offset, len)
        {
            return Box::pin(std::future::ready(Ok(bytes)));
        }
        self.ring.read(Arc::clone(self.file()), offset, len)
    }

    fn write_at(&self, offset: u64, parts: Vec<Bytes>, durable: Durable) -> IoFuture<()> {
        self.on_threads.write_at(offset, parts, durable)
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

    fn prewrite(&self, offset: u64, len: u64) -> IoFuture<bool> {
        self.on_threads.prewrite(offset, len)
    }

    fn set_len(&self, len: u64) -> IoFuture<()> {
        self.on_threads.set_len(len)
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{Advice, Mode, OFlags, fadvise};

    use super::*;
    use crate::host::Writes;
    use crate::threads::Pool;

    #[tokio::test]
    async fn reads_are_the_same_from_the_page_cache_and_by_the_ring() {
        let Ok(ring) = Ring::start(8) else { return };
        let dir = tempfile::tempdir().unwrap();
        let fd = rustix::fs::open(dir.path().join("f"), OFlags::RDWR | OFlags::CREATE, Mode::RWXU).unwrap();
        let file = UringFile::new(HostFile::new(fd, "f", Pool::new(1, 1), Writes::Cached), ring);
        let content: Vec<u8> = (0..200_000_u32).map(|at| (at % 251) as u8).collect();
        file.write_at(0, vec![Bytes::from(content.clone())], Durable::Yes).await.unwrap();
        for (offset, len) in [(0, 1), (4095, 4098), (150_000, 40_000), (190_000, 20_000), (200_000, 5), (300_000, 5)] {
            let expected = &content[offset.min(content.len())..(offset + len).min(content.len())];
            assert_eq!(file.read_at(offset as u64, len).await.unwrap(), expected);
            assert_eq!(file.ring.read(Arc::clone(file.file()), offset as u64, len).await.unwrap(), expected);
            // Where the kernel forgets the pages, the read has to wait for the disk.
            fadvise(file.file().fd(), 0, None, Advice::DontNeed).unwrap();
            assert_eq!(file.read_at(offset as u64, len).await.unwrap(), expected);
            match file.file().read_cached(offset as u64, len) {
                Some(bytes) => assert_eq!(bytes, expected),
                None => assert!(expected.len() < len, "it was just read"),
            }
        }
    }
}
