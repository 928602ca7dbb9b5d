//! The disk of both real drivers: names go to the pool; files are handed out with the data path that was chosen.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use bytes::Bytes;

use super::{HostFile, Namespace, Writes};
use crate::disk::{DirEntry, Disk, DiskFile, IoFuture, Space, refused};
use crate::lock::DirLock;
use crate::path;
use crate::threads::{Pool, ThreadFile};
use crate::uring::{Rings, UringFile};

/// How the bytes of open files move: on the pool, but for what goes by a ring where there is one.
#[derive(Debug, Clone)]
pub(crate) struct DataPath {
    pub(crate) rings: Option<Rings>,
    pub(crate) writes: Writes,
}

impl DataPath {
    fn file(&self, fd: OwnedFd, path: &str, pool: Arc<Pool>, lock: Option<Arc<DirLock>>) -> Arc<dyn DiskFile> {
        let file = HostFile::new(fd, path, pool, self.writes).under(lock);
        match &self.rings {
            None => Arc::new(ThreadFile::new(file)),
            Some(rings) => Arc::new(UringFile::new(file, rings.clone())),
        }
    }
}

/// A target on a real file system.
#[derive(Debug)]
pub(crate) struct HostDisk {
    namespace: Arc<Namespace>,
    pool: Arc<Pool>,
    data_path: DataPath,
}

impl HostDisk {
    pub(crate) fn new(namespace: Namespace, pool: Arc<Pool>, data_path: DataPath) -> Self {
        Self { namespace: Arc::new(namespace), pool, data_path }
    }

    fn on_pool<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Namespace) -> io::Result<T> + Send + 'static,
    ) -> IoFuture<T> {
        let namespace = Arc::clone(&self.namespace);
        self.pool.run(move || work(&namespace))
    }

    fn file_from(
        &self,
        path: &str,
        work: impl FnOnce(&Namespace, &str) -> io::Result<OwnedFd> + Send + 'static,
    ) -> IoFuture<Arc<dyn DiskFile>> {
        if let Err(error) = path::check_file(path) {
            return refused(error);
        }
        let (path, pool, data_path) = (path.to_owned(), Arc::clone(&self.pool), self.data_path.clone());
        self.on_pool(move |names| {
            let fd = work(names, &path)?;
            Ok(data_path.file(fd, &path, pool, names.lock()))
        })
    }

    fn on_file<T: Send + 'static>(
        &self,
        path: &str,
        work: impl FnOnce(&Namespace, &str) -> io::Result<T> + Send + 'static,
    ) -> IoFuture<T> {
        if let Err(error) = path::check_file(path) {
            return refused(error);
        }
        let path = path.to_owned();
        self.on_pool(move |names| work(names, &path))
    }

    fn on_dir<T: Send + 'static>(
        &self,
        dir: &str,
        work: impl FnOnce(&Namespace, &str) -> io::Result<T> + Send + 'static,
    ) -> IoFuture<T> {
        if let Err(error) = path::check_dir(dir) {
            return refused(error);
        }
        let dir = dir.to_owned();
        self.on_pool(move |names| work(names, &dir))
    }
}

impl Disk for HostDisk {
    fn create(&self, path: &str, preallocate_bytes: u64) -> IoFuture<Arc<dyn DiskFile>> {
        self.file_from(path, move |names, path| names.create(path, preallocate_bytes))
    }

    fn open(&self, path: &str) -> IoFuture<Arc<dyn DiskFile>> {
        self.file_from(path, Namespace::open)
    }

    fn list(&self, dir: &str) -> IoFuture<Vec<DirEntry>> {
        self.on_dir(dir, Namespace::list)
    }

    fn read_file(&self, path: &str, max_bytes: usize) -> IoFuture<Bytes> {
        self.on_file(path, move |names, path| names.read_file(path, max_bytes))
    }

    fn write_file(&self, path: &str, bytes: Bytes) -> IoFuture<()> {
        self.on_file(path, move |names, path| names.write_file(path, bytes))
    }

    fn rename(&self, from: &str, to: &str) -> IoFuture<()> {
        if let Err(error) = path::check_rename(from, to) {
            return refused(error);
        }
        let to = to.to_owned();
        self.on_file(from, move |names, from| names.rename(from, &to))
    }

    fn unlink(&self, path: &str) -> IoFuture<()> {
        self.on_file(path, Namespace::unlink)
    }

    fn sync_dir(&self, dir: &str) -> IoFuture<()> {
        self.on_dir(dir, Namespace::sync_dir)
    }

    fn space(&self) -> IoFuture<Space> {
        self.on_pool(Namespace::space)
    }
}
