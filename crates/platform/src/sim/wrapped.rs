//! A simulated disk with something between its files, or its room, and whoever asks for them.

use std::sync::Arc;

use bytes::Bytes;

use super::SimDisk;
use crate::disk::{DirEntry, Disk, DiskFile, IoFuture, Space};

/// How a file of a wrapped disk came to be open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opening {
    /// It was created.
    Created,
    /// It was there.
    Existing,
}

/// What comes of opening the file of that path: as the disk does it, another file around it, or an error.
pub type OpenFile = dyn Fn(Opening, &str, IoFuture<Arc<dyn DiskFile>>) -> IoFuture<Arc<dyn DiskFile>> + Send + Sync;

/// What comes of asking how much room there is: as the disk says it, later, or an error.
pub type AskSpace = dyn Fn(IoFuture<Space>) -> IoFuture<Space> + Send + Sync;

/// What comes of a change of names, or of a small file that is written as a whole: as the disk does it, later, or an error.
pub type AskChange = dyn Fn(IoFuture<()>) -> IoFuture<()> + Send + Sync;

struct Wrapped {
    disk: SimDisk,
    open: Arc<OpenFile>,
    space: Arc<AskSpace>,
    change: Arc<AskChange>,
}

impl Wrapped {
    fn new(disk: &SimDisk) -> Self {
        Self {
            disk: disk.clone(),
            open: Arc::new(|_, _, file| file),
            space: Arc::new(|space| space),
            change: Arc::new(|change| change),
        }
    }
}

impl SimDisk {
    /// The same disk, whose files are opened as `open` has it.
    pub fn wrapped(&self, open: Arc<OpenFile>) -> Arc<dyn Disk> {
        Arc::new(Wrapped { open, ..Wrapped::new(self) })
    }

    /// The same disk, which says how much room it has as `space` has it.
    pub fn with_space(&self, space: Arc<AskSpace>) -> Arc<dyn Disk> {
        Arc::new(Wrapped { space, ..Wrapped::new(self) })
    }

    /// The same disk, on which names change, and small files are written, as `change` has it.
    pub fn with_changes(&self, change: Arc<AskChange>) -> Arc<dyn Disk> {
        Arc::new(Wrapped { change, ..Wrapped::new(self) })
    }
}

impl Disk for Wrapped {
    fn create(&self, path: &str, preallocate_bytes: u64) -> IoFuture<Arc<dyn DiskFile>> {
        (self.open)(Opening::Created, path, self.disk.create(path, preallocate_bytes))
    }

    fn open(&self, path: &str) -> IoFuture<Arc<dyn DiskFile>> {
        (self.open)(Opening::Existing, path, self.disk.open(path))
    }

    fn list(&self, dir: &str) -> IoFuture<Vec<DirEntry>> {
        self.disk.list(dir)
    }

    fn read_file(&self, path: &str, max_bytes: usize) -> IoFuture<Bytes> {
        self.disk.read_file(path, max_bytes)
    }

    fn write_file(&self, path: &str, bytes: Bytes) -> IoFuture<()> {
        (self.change)(self.disk.write_file(path, bytes))
    }

    fn rename(&self, from: &str, to: &str) -> IoFuture<()> {
        (self.change)(self.disk.rename(from, to))
    }

    fn unlink(&self, path: &str) -> IoFuture<()> {
        (self.change)(self.disk.unlink(path))
    }

    fn sync_dir(&self, dir: &str) -> IoFuture<()> {
        (self.change)(self.disk.sync_dir(dir))
    }

    fn space(&self) -> IoFuture<Space> {
        (self.space)(self.disk.space())
    }
}
