//! The io_uring driver: bytes of open files move through one ring per target; names go to the thread pool.
//!
//! One driver thread and one ring per target, because a target that hangs must take no other with it, and because a
//! read that the page cache answers is copied by whoever submits it: a thread per target spreads the copying over
//! cores (long reads go to kernel workers). Submitters put requests into an intake and wake the driver by an
//! eventfd, and only if it sleeps; the driver takes all that has come since, so that under load many operations
//! share one system call.
//!
//! What the page cache holds does not go by the ring: a short read is first tried without waiting (`RWF_NOWAIT`) by whoever asks. With 64 clients a get of
//! 4 KiB takes a third less of the server's CPU time that way (docs/BENCHMARKS.md).
//!
//! Files and buffers are not registered. A registered file saves the kernel a reference count per operation, a
//! registered buffer saves pinning pages, which only direct I/O does; both would bring a limited table to manage. This
//! is a choice by reckoning, not by measurement; to be measured when direct I/O comes.
//!
//! Measured against threads (2 cores, ext4, shared machine): a cached 4 KiB read with 64 in flight costs 1.3 to 5.1 us
//! here and 3.8 to 9.8 us on threads (eight runs each); durable 64 KiB writes (four runs each) differ more among
//! themselves than between the drivers.

mod driver;
mod operation;
mod ring;

use std::sync::Arc;

use bytes::Bytes;

use crate::disk::{DiskFile, Durable, IoFuture, check_len, check_punch, check_read, check_write, refused};
use crate::host::HostFile;
use crate::parts::Parts;

pub(crate) use ring::Ring;

/// Reads up to this size are first tried without waiting: what the page cache holds is copied by the caller, in less time than it takes to wake the driver.
const CACHED_READ_BYTES_MAX: usize = 128 << 10;

/// A file whose bytes move through a ring.
#[derive(Debug)]
pub(crate) struct UringFile {
    file: Arc<HostFile>,
    ring: Arc<Ring>,
}

impl UringFile {
    pub(crate) fn new(file: HostFile, ring: Arc<Ring>) -> Self {
        Self { file: Arc::new(file), ring }
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
            && let Some(bytes) = self.file.read_cached(offset, len)
        {
            return Box::pin(std::future::ready(Ok(bytes)));
        }
        self.ring.read(Arc::clone(&self.file), offset, len)
    }

    fn write_at(&self, offset: u64, parts: Vec<Bytes>, durable: Durable) -> IoFuture<()> {
        if let Err(error) = check_write(offset, &parts) {
            return refused(error);
        }
        let parts = Parts::new(offset, parts);
        if parts.is_done() && durable == Durable::No {
            return Box::pin(std::future::ready(Ok(())));
        }
        self.ring.write(Arc::clone(&self.file), parts, durable)
    }

    fn sync(&self) -> IoFuture<()> {
        self.ring.write(Arc::clone(&self.file), Parts::new(0, Vec::new()), Durable::Yes)
    }

    fn len(&self) -> IoFuture<u64> {
        let file = Arc::clone(&self.file);
        self.file.pool().run(move || file.len())
    }

    fn punch(&self, offset: u64, len: u64) -> IoFuture<()> {
        if let Err(error) = check_punch(offset, len) {
            return refused(error);
        }
        let file = Arc::clone(&self.file);
        self.file.pool().run(move || file.punch(offset, len))
    }

    fn set_len(&self, len: u64) -> IoFuture<()> {
        if let Err(error) = check_len(len) {
            return refused(error);
        }
        let file = Arc::clone(&self.file);
        self.file.pool().run(move || file.set_len(len))
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{Advice, Mode, OFlags, fadvise};

    use super::*;
    use crate::threads::Pool;

    #[tokio::test]
    async fn reads_are_the_same_from_the_page_cache_and_by_the_ring() {
        let Ok(ring) = Ring::start(8) else { return };
        let dir = tempfile::tempdir().unwrap();
        let fd = rustix::fs::open(dir.path().join("f"), OFlags::RDWR | OFlags::CREATE, Mode::RWXU).unwrap();
        let file = UringFile::new(HostFile::new(fd, "f", Pool::new(1, 1)), ring);
        let content: Vec<u8> = (0..200_000_u32).map(|at| (at % 251) as u8).collect();
        file.write_at(0, vec![Bytes::from(content.clone())], Durable::Yes).await.unwrap();
        for (offset, len) in [(0, 1), (4095, 4098), (150_000, 40_000), (190_000, 20_000), (200_000, 5), (300_000, 5)] {
            let expected = &content[offset.min(content.len())..(offset + len).min(content.len())];
            assert_eq!(file.read_at(offset as u64, len).await.unwrap(), expected);
            assert_eq!(file.ring.read(Arc::clone(&file.file), offset as u64, len).await.unwrap(), expected);
            // Where the kernel forgets the pages, the read has to wait for the disk.
            fadvise(file.file.fd(), 0, None, Advice::DontNeed).unwrap();
            assert_eq!(file.read_at(offset as u64, len).await.unwrap(), expected);
            match file.file.read_cached(offset as u64, len) {
                Some(bytes) => assert_eq!(bytes, expected),
                None => assert!(expected.len() < len, "it was just read"),
            }
        }
    }
}
