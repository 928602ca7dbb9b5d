//! Names on a target: the blocking calls behind every [`crate::Disk`] operation that is not about bytes of an open
//! file.
//!
//! Everything is relative to a descriptor of the target's root, so that a target that is renamed or mounted over
//! under a running server is not written in two places. Called from pool threads only.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use rustix::fs::{AtFlags, FallocateFlags, FileType, Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};

use super::file;
use crate::disk::{DirEntry, Space};
use crate::entropy::{Entropy, OsEntropy};
use crate::error::explain;
use crate::lock::DirLock;
use crate::parts::Parts;
use crate::path;

const FILE_MODE: Mode = Mode::from_raw_mode(0o640);
const DIR_MODE: Mode = Mode::from_raw_mode(0o750);
const FILE_FLAGS: OFlags = OFlags::RDWR.union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW).union(OFlags::NOCTTY);
const DIR_FLAGS: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::DIRECTORY);

/// Directories known to be durable that are remembered: above the 256 that hold shard files; more are only synced
/// again.
const DURABLE_DIRS_MAX: usize = 4096;

/// The directory tree of one target.
#[derive(Debug)]
pub(crate) struct Namespace {
    root: OwnedFd,
    /// Directories whose own entries, up to the root, were synced by this process. A directory that merely exists
    /// may have been made by a concurrent creator that has not synced it yet, or by a process that was killed
    /// before it did.
    durable_dirs: Mutex<HashSet<String>>,
    /// Held as long as anything may be done here: its open files hold it, too.
    lock: Option<Arc<DirLock>>,
}

impl Namespace {
    /// Opens the directory `root`, which must exist.
    pub(crate) fn open_root(root: &Path, lock: Option<DirLock>) -> io::Result<Self> {
        let fd = rustix::fs::open(root, DIR_FLAGS, Mode::empty())
            .map_err(|errno| explain(errno, "open target", &root.display().to_string()))?;
        Ok(Self { root: fd, durable_dirs: Mutex::default(), lock: lock.map(Arc::new) })
    }

    pub(crate) fn lock(&self) -> Option<Arc<DirLock>> {
        self.lock.clone()
    }

    pub(crate) fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    pub(crate) fn create(&self, path: &str, preallocate_bytes: u64) -> io::Result<OwnedFd> {
        let fd = self.create_exclusive(path).map_err(|error| explain(error, "create", path))?;
        if let Err(errno) = preallocate(&fd, preallocate_bytes) {
            drop(fd);
            let _ = rustix::fs::unlinkat(&self.root, path, AtFlags::empty());
            return Err(explain(errno, "preallocate", path));
        }
        Ok(fd)
    }

    pub(crate) fn open(&self, path: &str) -> io::Result<OwnedFd> {
        self.open_existing(path).map_err(|errno| explain(errno, "open", path))
    }

    pub(crate) fn list(&self, dir: &str) -> io::Result<Vec<DirEntry>> {
        self.entries(dir).map_err(|errno| explain(errno, "list", dir))
    }

    pub(crate) fn read_file(&self, path: &str, max_bytes: usize) -> io::Result<Bytes> {
        let fd = self.open_for_reading(path).map_err(|errno| explain(errno, "open", path))?;
        let len = file::len(&fd).map_err(|errno| explain(errno, "read", path))?;
        // One byte more than allowed, to notice a file that grows under us.
        let want = usize::try_from(len).unwrap_or(usize::MAX).min(max_bytes).saturating_add(1);
        let bytes = file::read_at(&fd, 0, want).map_err(|error| explain(error, "read", path))?;
        if len > max_bytes as u64 || bytes.len() > max_bytes {
            let message = format!("{} bytes or more, {max_bytes} are allowed", len.max(bytes.len() as u64));
            return Err(explain(io::Error::new(io::ErrorKind::FileTooLarge, message), "read", path));
        }
        Ok(bytes)
    }

    pub(crate) fn write_file(&self, path: &str, bytes: Bytes) -> io::Result<()> {
        let mut unique = [0; 8];
        OsEntropy.fill(&mut unique);
        let temporary = path::temporary(path, u64::from_le_bytes(unique));
        self.write_and_rename(path, &temporary, bytes).map_err(|error| explain(error, "replace", path))
    }

    pub(crate) fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        rustix::fs::renameat(&self.root, from, &self.root, to).map_err(|errno| explain(errno, "rename", from))
    }

    pub(crate) fn unlink(&self, path: &str) -> io::Result<()> {
        match rustix::fs::unlinkat(&self.root, path, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(explain(errno, "unlink", path)),
        }
    }

    pub(crate) fn sync_dir(&self, dir: &str) -> io::Result<()> {
        self.sync_dir_entries(dir).map_err(|errno| explain(errno, "sync directory", dir))
    }

    pub(crate) fn space(&self) -> io::Result<Space> {
        let stat =
            rustix::fs::fstatvfs(&self.root).map_err(|errno| explain(errno, "ask for the space of", "target"))?;
        Ok(Space {
            total_bytes: stat.f_blocks.saturating_mul(stat.f_frsize),
            available_bytes: stat.f_bavail.saturating_mul(stat.f_frsize),
        })
    }

    fn create_exclusive(&self, path: &str) -> io::Result<OwnedFd> {
        let (dir, _) = path::split(path);
        self.make_dirs(dir)?;
        let create = || {
            let flags = FILE_FLAGS.union(OFlags::CREATE).union(OFlags::EXCL);
            retry_on_intr(|| rustix::fs::openat(&self.root, path, flags, FILE_MODE))
        };
        match create() {
            // Someone removed a directory that we remember: make it anew, once.
            Err(Errno::NOENT) if !dir.is_empty() => {
                self.durable_dirs.lock().clear();
                self.make_dirs(dir)?;
                Ok(create()?)
            }
            created => Ok(created?),
        }
    }

    /// Makes `dir` and all above it, and makes their entries durable, unless that is known to be done.
    fn make_dirs(&self, dir: &str) -> io::Result<()> {
        if dir.is_empty() || self.durable_dirs.lock().contains(dir) {
            return Ok(());
        }
        let ends = dir.match_indices('/').map(|(end, _)| end).chain([dir.len()]);
        for path in ends.map(|end| &dir[..end]) {
            if self.durable_dirs.lock().contains(path) {
                continue;
            }
            match rustix::fs::mkdirat(&self.root, path, DIR_MODE) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno.into()),
            }
            self.sync_dir_entries(path::split(path).0)?;
            let mut known = self.durable_dirs.lock();
            if known.len() >= DURABLE_DIRS_MAX {
                known.clear();
            }
            known.insert(path.to_owned());
        }
        Ok(())
    }

    fn write_and_rename(&self, path: &str, temporary: &str, bytes: Bytes) -> io::Result<()> {
        let fd = self.create_exclusive(temporary)?;
        let renamed = (|| {
            file::write_at(&fd, Parts::new(0, vec![bytes]))?;
            retry_on_intr(|| rustix::fs::fsync(&fd))?;
            Ok(rustix::fs::renameat(&self.root, temporary, &self.root, path)?)
        })();
        if renamed.is_err() {
            let _ = rustix::fs::unlinkat(&self.root, temporary, AtFlags::empty());
            return renamed;
        }
        Ok(self.sync_dir_entries(path::split(path).0)?)
    }

    fn open_existing(&self, path: &str) -> rustix::io::Result<OwnedFd> {
        retry_on_intr(|| rustix::fs::openat(&self.root, path, FILE_FLAGS, Mode::empty()))
    }

    fn open_for_reading(&self, path: &str) -> rustix::io::Result<OwnedFd> {
        let flags = FILE_FLAGS.difference(OFlags::RDWR).union(OFlags::RDONLY);
        retry_on_intr(|| rustix::fs::openat(&self.root, path, flags, Mode::empty()))
    }

    fn open_dir(&self, dir: &str) -> rustix::io::Result<OwnedFd> {
        let dir = if dir.is_empty() { "." } else { dir };
        retry_on_intr(|| rustix::fs::openat(&self.root, dir, DIR_FLAGS, Mode::empty()))
    }

    fn sync_dir_entries(&self, dir: &str) -> rustix::io::Result<()> {
        let fd = self.open_dir(dir)?;
        match retry_on_intr(|| rustix::fs::fsync(&fd)) {
            // File systems without it (some FUSE, CIFS) change names synchronously, on a server.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => Ok(()),
            synced => synced,
        }
    }

    fn entries(&self, dir: &str) -> rustix::io::Result<Vec<DirEntry>> {
        let fd = self.open_dir(dir)?;
        let mut entries = Vec::new();
        for entry in rustix::fs::Dir::read_from(&fd)? {
            let entry = entry?;
            let Some(name) = OsStr::from_bytes(entry.file_name().to_bytes()).to_str() else { continue };
            if matches!(name, "." | "..") || path::is_temporary(name) {
                continue;
            }
            let stat = match rustix::fs::statat(&fd, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => stat,
                // Removed since the directory was read.
                Err(Errno::NOENT) => continue,
                Err(errno) => return Err(errno),
            };
            let is_dir = FileType::from_raw_mode(stat.st_mode).is_dir();
            let len = if is_dir { 0 } else { u64::try_from(stat.st_size).unwrap_or(0) };
            entries.push(DirEntry { name: name.to_owned(), is_dir, len });
        }
        entries.sort();
        Ok(entries)
    }
}

/// Gives the file its blocks at once, where the file system can: fewer metadata changes per sync, and a full disk
/// shows early.
fn preallocate(fd: &OwnedFd, bytes: u64) -> rustix::io::Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    match retry_on_intr(|| rustix::fs::fallocate(fd, FallocateFlags::empty(), 0, bytes)) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        done => done,
    }
}
