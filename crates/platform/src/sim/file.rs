//! An open simulated file.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

use super::SimDisk;
use super::state::InodeRef;
use crate::disk::{
    BLOCK_BYTES, DiskFile, Durable, IoFuture, check_blocks, check_len, check_read, check_write, refused,
};

/// A file and the disk it lies on; it outlives its name.
#[derive(Debug)]
pub(super) struct SimFile {
    disk: SimDisk,
    inode: InodeRef,
    /// Handles of this disk that are open, this one included.
    open_files: Arc<AtomicUsize>,
}

impl SimFile {
    pub(super) fn new(disk: SimDisk, inode: InodeRef, open_files: &Arc<AtomicUsize>) -> Self {
        open_files.fetch_add(1, Ordering::Relaxed);
        Self { disk, inode, open_files: Arc::clone(open_files) }
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        self.open_files.fetch_sub(1, Ordering::Relaxed);
    }
}

impl DiskFile for SimFile {
    fn read_at(&self, offset: u64, len: usize) -> IoFuture<Bytes> {
        if let Err(error) = check_read(offset, len) {
            return refused(error);
        }
        let inode = Arc::clone(&self.inode);
        self.disk.operation(move |state| state.read_at(&inode, offset, len)).boxed()
    }

    fn write_at(&self, offset: u64, parts: Vec<Bytes>, durable: Durable) -> IoFuture<()> {
        if let Err(error) = check_write(offset, &parts) {
            return refused(error);
        }
        let inode = Arc::clone(&self.inode);
        match durable {
            Durable::No => self.disk.operation(move |state| state.write_at(&inode, offset, &parts)).boxed(),
            Durable::Yes => {
                let written = Arc::clone(&inode);
                self.disk
                    .operation(move |state| state.sync(&inode))
                    .after(move |state| state.write_at(&written, offset, &parts))
                    .boxed()
            }
        }
    }

    fn sync(&self) -> IoFuture<()> {
        let inode = Arc::clone(&self.inode);
        self.disk.operation(move |state| state.sync(&inode)).boxed()
    }

    fn len(&self) -> IoFuture<u64> {
        let inode = Arc::clone(&self.inode);
        self.disk.operation(move |_| Ok(inode.lock().len())).boxed()
    }

    fn punch(&self, offset: u64, len: u64) -> IoFuture<()> {
        if let Err(error) = check_blocks(offset, len) {
            return refused(error);
        }
        let inode = Arc::clone(&self.inode);
        self.disk.operation(move |state| state.punch(&inode, offset, len)).boxed()
    }

    fn evict(&self, offset: u64, len: u64) -> IoFuture<bool> {
        if let Err(error) = check_blocks(offset, len) {
            return refused(error);
        }
        let let_go = !self.disk.state.lock().pages_lent();
        Box::pin(std::future::ready(Ok(let_go)))
    }

    fn prewrite(&self, offset: u64, len: u64) -> IoFuture<bool> {
        if let Err(error) = check_blocks(offset, len) {
            return refused(error);
        }
        // Block by block, in any order: it takes as long as many writes do.
        let mut operation = self.disk.operation(|_| Ok(true));
        for at in (offset..offset + len).step_by(BLOCK_BYTES as usize) {
            let inode = Arc::clone(&self.inode);
            operation = operation.after(move |state| state.prewrite(&inode, at, BLOCK_BYTES));
        }
        operation.boxed()
    }

    fn set_len(&self, len: u64) -> IoFuture<()> {
        if let Err(error) = check_len(len) {
            return refused(error);
        }
        let inode = Arc::clone(&self.inode);
        self.disk.operation(move |state| state.set_len(&inode, len)).boxed()
    }
}
