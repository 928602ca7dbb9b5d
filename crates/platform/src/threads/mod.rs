//! The driver that works everywhere: positioned reads and writes on a bounded pool of threads, one pool per target.
//!
//! It is the better one where io_uring would hand every operation to kernel workers anyway (Lustre, BeeGFS, NFS,
//! FUSE), and the only one where io_uring is forbidden. A target of its own pool: one that hangs takes no other
//! with it.

mod pool;

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use bytes::Bytes;

use crate::disk::{
    CachedWrite, DiskFile, Durable, IoFuture, check_blocks, check_len, check_read, check_write, refused,
};
use crate::host::HostFile;
use crate::parts::Parts;

pub(crate) use pool::Pool;

/// A file whose bytes move on the pool.
#[derive(Debug, Clone)]
pub(crate) struct ThreadFile {
    file: Arc<HostFile>,
}

impl ThreadFile {
    pub(crate) fn new(file: HostFile) -> Self {
        Self { file: Arc::new(file) }
    }

    pub(crate) fn file(&self) -> &Arc<HostFile> {
        &self.file
    }

    /// Writes what may be written.
    pub(crate) fn write(&self, parts: Parts, durable: Durable) -> IoFuture<()> {
        let file = Arc::clone(&self.file);
        // Write and sync are one job: no second wait in the queue between them.
        self.file.pool().run(move || file.write_at(parts, durable))
    }
}

impl DiskFile for ThreadFile {
    fn read_at(&self, offset: u64, len: usize) -> IoFuture<Bytes> {
        if let Err(error) = check_read(offset, len) {
            return refused(error);
        }
        let file = Arc::clone(&self.file);
        self.file.pool().run(move || file.read_at(offset, len))
    }

    fn write_at(&self, offset: u64, parts: Vec<Bytes>, durable: Durable) -> IoFuture<()> {
        if let Err(error) = check_write(offset, &parts) {
            return refused(error);
        }
        self.write(Parts::new(offset, parts), durable)
    }

    fn cached_write(&self, offset: u64, parts: Vec<Bytes>) -> Option<CachedWrite> {
        check_write(offset, &parts).ok()?;
        let parts = Parts::new(offset, parts);
        let file = Arc::clone(&self.file);
        file.may_write_beside_others(&parts).then(|| Box::new(move || file.write_at(parts, Durable::No)) as CachedWrite)
    }

    fn sync(&self) -> IoFuture<()> {
        let file = Arc::clone(&self.file);
        self.file.pool().run(move || file.sync())
    }

    fn len(&self) -> IoFuture<u64> {
        let file = Arc::clone(&self.file);
        self.file.pool().run(move || file.len())
    }

    fn punch(&self, offset: u64, len: u64) -> IoFuture<()> {
        if let Err(error) = check_blocks(offset, len) {
            return refused(error);
        }
        let file = Arc::clone(&self.file);
        self.file.pool().run(move || file.punch(offset, len))
    }

    fn lend_pages(&self, pipe: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<usize> {
        self.file.lend_pages(pipe, offset, len)
    }

    fn evict(&self, offset: u64, len: u64) -> IoFuture<bool> {
        if let Err(error) = check_blocks(offset, len) {
            return refused(error);
        }
        let file = Arc::clone(&self.file);
        self.file.pool().run(move || file.evict(offset, len))
    }

    fn prewrite(&self, offset: u64, len: u64) -> IoFuture<bool> {
        if let Err(error) = check_blocks(offset, len) {
            return refused(error);
        }
        let file = Arc::clone(&self.file);
        self.file.pool().run(move || file.prewrite(offset, len))
    }

    fn set_len(&self, len: u64) -> IoFuture<()> {
        if let Err(error) = check_len(len) {
            return refused(error);
        }
        let file = Arc::clone(&self.file);
        self.file.pool().run(move || file.set_len(len))
    }
}
