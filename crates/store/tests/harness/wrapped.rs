//! Simulated disks with something between them and the store.

use std::sync::Arc;

use bytes::Bytes;
use gabion_platform::{DirEntry, Disk, DiskFile, IoFuture, SimDisk, Space};
use gabion_segment::LogTarget;
use gabion_store::{Silent, Store};

use super::World;

/// What comes of opening the file of that path on the disk of that number: as the disk does it, or otherwise.
pub type OpenFile = dyn Fn(usize, &str, IoFuture<Arc<dyn DiskFile>>) -> IoFuture<Arc<dyn DiskFile>> + Send + Sync;

struct Wrapped {
    disk: SimDisk,
    number: usize,
    open: Arc<OpenFile>,
}

impl World {
    /// A store whose disks open files, new ones as well, as `open` does.
    pub async fn open_by(&self, open: Arc<OpenFile>) -> Store {
        let targets = self.targets().into_iter().zip(&self.disks).enumerate().map(|(number, (target, disk))| {
            let disk: Arc<dyn Disk> = Arc::new(Wrapped { disk: disk.clone(), number, open: Arc::clone(&open) });
            LogTarget { disk: Some(disk), ..target }
        });
        let targets = targets.collect();
        Store::open(self.config.clone(), targets, self.factory(), self.env(), Arc::new(Silent)).await.unwrap().0
    }
}

impl Disk for Wrapped {
    fn create(&self, path: &str, preallocate_bytes: u64) -> IoFuture<Arc<dyn DiskFile>> {
        (self.open)(self.number, path, self.disk.create(path, preallocate_bytes))
    }

    fn open(&self, path: &str) -> IoFuture<Arc<dyn DiskFile>> {
        (self.open)(self.number, path, self.disk.open(path))
    }

    fn list(&self, dir: &str) -> IoFuture<Vec<DirEntry>> {
        self.disk.list(dir)
    }

    fn read_file(&self, path: &str, max_bytes: usize) -> IoFuture<Bytes> {
        self.disk.read_file(path, max_bytes)
    }

    fn write_file(&self, path: &str, bytes: Bytes) -> IoFuture<()> {
        self.disk.write_file(path, bytes)
    }

    fn rename(&self, from: &str, to: &str) -> IoFuture<()> {
        self.disk.rename(from, to)
    }

    fn unlink(&self, path: &str) -> IoFuture<()> {
        self.disk.unlink(path)
    }

    fn sync_dir(&self, dir: &str) -> IoFuture<()> {
        self.disk.sync_dir(dir)
    }

    fn space(&self) -> IoFuture<Space> {
        self.disk.space()
    }
}
