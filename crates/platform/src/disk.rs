//! The disk as everything above sees it: a tree of files on one target, and nothing of how it is driven.
//!
//! Two real drivers (`threads`, `uring`) and the simulated one (`sim`) implement these traits; one conformance suite
//! runs over all three.
//!
//! # Futures
//!
//! An operation begins when its future is first polled; a driver at its limit makes the future wait its turn. Once
//! begun, an operation completes whether or not its future lives on: dropping the future only detaches it, and the
//! buffers are the driver's until the kernel is done with them.

use std::fmt;
use std::future::Future;
use std::io;
use std::os::fd::BorrowedFd;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;

/// What every disk operation returns: see the module's notes on when it begins and what dropping it means.
pub type IoFuture<T> = Pin<Box<dyn Future<Output = io::Result<T>> + Send + 'static>>;

/// What [`DiskFile::load`] returns: nothing where there is nothing to be waited for. An error is not told: whoever reads will hear.
pub type Load = Option<Pin<Box<dyn Future<Output = ()> + Send + 'static>>>;

/// A write to the page cache that is still to be done, by a thread that may wait.
pub type CachedWrite = Box<dyn FnOnce() -> io::Result<()> + Send>;

/// Most bytes that one [`DiskFile::read_at`] may ask for; its buffer is allocated up front.
pub const READ_BYTES_MAX: usize = 1 << 30;

/// Unit of [`DiskFile::punch`] and [`DiskFile::prewrite`], in bytes: the block of every file system that can.
pub(crate) const BLOCK_BYTES: u64 = 4096;

/// A directory tree on one target.
///
/// Paths are relative to the target's root, `/`-separated, with no empty, `.` or `..` component; anything else is
/// refused with [`io::ErrorKind::InvalidInput`]. The empty path names the root where a directory is asked for.
///
/// Error kinds are meaningful: [`io::ErrorKind::StorageFull`] when space or quota is used up,
/// [`io::ErrorKind::NotFound`], [`io::ErrorKind::AlreadyExists`], [`io::ErrorKind::ReadOnlyFilesystem`]; what fails
/// otherwise says something about the target, not about the call.
pub trait Disk: Send + Sync + 'static {
    /// Creates the file `path` exclusively, with its parent directories, and opens it for reading and writing.
    ///
    /// `preallocate_bytes` is best effort: where it takes, the file may read as zeros up to that length.
    /// The entries of directories that were made are durable when this resolves; the file's own is after
    /// [`Disk::sync_dir`].
    ///
    /// # Errors
    /// `AlreadyExists`; `StorageFull` when the preallocation does not fit (the file is removed again).
    fn create(&self, path: &str, preallocate_bytes: u64) -> IoFuture<Arc<dyn DiskFile>>;

    /// Opens the existing file `path` for reading and writing.
    ///
    /// # Errors
    /// `NotFound` if there is none.
    fn open(&self, path: &str) -> IoFuture<Arc<dyn DiskFile>>;

    /// The entries of the directory `dir`, sorted by name.
    ///
    /// Temporary files of [`Disk::write_file`] and names that are not UTF-8 (no file of ours) are left out.
    ///
    /// # Errors
    /// `NotFound` if there is no such directory.
    fn list(&self, dir: &str) -> IoFuture<Vec<DirEntry>>;

    /// The whole of the small file `path`.
    ///
    /// # Errors
    /// `NotFound`; `FileTooLarge` if it is longer than `max_bytes`.
    fn read_file(&self, path: &str, max_bytes: usize) -> IoFuture<Bytes>;

    /// Replaces the file `path` by one that holds `bytes`, atomically and durably: after a crash at any moment it
    /// holds the old content or the new, and once this has resolved, the new. Parent directories are made.
    ///
    /// # Errors
    /// Any; the old content is then still there, or (if only the last directory sync failed) the new one.
    fn write_file(&self, path: &str, bytes: Bytes) -> IoFuture<()>;

    /// Gives the file `from` the name `to`, in place of the file that has it, if there is one: at every moment `to` names the one
    /// file or the other. Both lie in the same directory, and the change is durable after [`Disk::sync_dir`] of it.
    ///
    /// # Errors
    /// `NotFound` if there is no `from`; `InvalidInput` if the directories differ; any other: it may have been renamed.
    fn rename(&self, from: &str, to: &str) -> IoFuture<()>;

    /// Removes the file `path`; it is no error if there is none. Durable after [`Disk::sync_dir`].
    ///
    /// # Errors
    /// Any other than `NotFound`.
    fn unlink(&self, path: &str) -> IoFuture<()>;

    /// Makes creations, renames and removals in the directory `dir` durable.
    ///
    /// # Errors
    /// `NotFound` if there is no such directory; any other: what was to be made durable is unknown.
    fn sync_dir(&self, dir: &str) -> IoFuture<()>;

    /// Size of and room on the file system that the target lies on.
    ///
    /// # Errors
    /// Any: the target does not answer.
    fn space(&self) -> IoFuture<Space>;
}

/// An open file. It is closed when the last handle and the last operation on it are gone.
#[expect(clippy::len_without_is_empty, reason = "no caller asks whether a file is empty")]
pub trait DiskFile: Send + Sync + 'static {
    /// Reads `len` bytes at `offset`; fewer only where the file ends.
    ///
    /// # Errors
    /// `InvalidInput` if `len` is above [`READ_BYTES_MAX`]; any other: nothing was read.
    fn read_at(&self, offset: u64, len: usize) -> IoFuture<Bytes>;

    /// Has the page cache load `len` bytes at `offset` that are read in order soon, in pages as large as the kernel makes them: of what is read at random it makes none
    /// (docs/adr/0022). There is nothing to be waited for where it has them, where they are few, and where that can not be told or done. If the future is dropped, what was not
    /// loaded by then is not.
    fn load(&self, _offset: u64, _len: usize, _wanted: Wanted) -> Load {
        None
    }

    /// Writes all `parts` back to back at `offset`; with [`Durable::Yes`] also syncs the file's data before it
    /// resolves.
    ///
    /// # Errors
    /// Any: what the range holds is unknown, and if it was durable, so is every write since the last good sync.
    fn write_at(&self, offset: u64, parts: Vec<Bytes>, durable: Durable) -> IoFuture<()>;

    /// The same without a sync, for whoever has a thread that may wait ([`crate::CachedWriter`]): nothing is written before it is called. `None` where only
    /// [`DiskFile::write_at`] can, or writes of other files should not wait for it: such a write may wait for a network.
    fn cached_write(&self, _offset: u64, _parts: Vec<Bytes>) -> Option<CachedWrite> {
        None
    }

    /// Makes all writes that have resolved durable, with the file's length (`fdatasync`).
    ///
    /// # Errors
    /// Any: the kernel may have dropped the unsynced writes, and a second sync that succeeds proves nothing.
    fn sync(&self) -> IoFuture<()>;

    /// The file's length in bytes.
    ///
    /// # Errors
    /// Any: the target does not answer.
    fn len(&self) -> IoFuture<u64>;

    /// Cuts or extends (with zeros) the file to `len` bytes; cutting gives back preallocated space.
    ///
    /// # Errors
    /// Any: the length is unknown.
    fn set_len(&self, len: u64) -> IoFuture<()>;

    /// Gives the space of `len` bytes at `offset` back: they read as zeros, the file is as long as before. `offset` and `len` are
    /// multiples of 4096. Not durable before [`DiskFile::sync`]: until then power loss may bring back what was there, or a part of it.
    ///
    /// # Errors
    /// `Unsupported` where the file system can not; `InvalidInput` when the range is not aligned; any other: what the range holds is unknown.
    fn punch(&self, offset: u64, len: u64) -> IoFuture<()>;

    /// Puts pages that the page cache has of `len` bytes at `offset` into `pipe`, as [`crate::PagePipe`] wants them; says how many bytes those are. What was not read
    /// a moment before is read from the disk, and waited for.
    ///
    /// # Errors
    /// `Unsupported` where the kernel knows nothing of the file; `WouldBlock` when the pipe is full.
    fn lend_pages(&self, _pipe: BorrowedFd<'_>, _offset: u64, _len: usize) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Drops what the page cache has of `len` bytes at `offset`; says whether the range can be punched without changing a page that somebody was lent. The
    /// kernel keeps a large page of which a hole is a part, and fills the hole with zeros in it. Meant for ranges that nobody reads any more: what was lent
    /// earlier may be on its way to a slow client for as long as that likes.
    ///
    /// # Errors
    /// Any: it is not known.
    fn evict(&self, _offset: u64, _len: u64) -> IoFuture<bool> {
        Box::pin(std::future::ready(Ok(true)))
    }

    /// Writes zeros to `len` bytes at `offset`, past the page cache, where the file system overwrites in place: later durable writes that lie in what was
    /// written so find blocks of which nothing is left to be noted, and a sync of them writes no metadata. Says whether they gain by it.
    ///
    /// For ranges that read as zeros (what was preallocated): neither a crash nor an error changes what is read then. `offset` and `len` are multiples of 4096, and
    /// nothing else may write to the range meanwhile. A write to it begins only when those have ended, too, that were under way elsewhere in the file at the same time: their
    /// syncs may have the metadata of these blocks in hand.
    ///
    /// # Errors
    /// `InvalidInput` when the range is not aligned; any other: it reads as zeros still, if it did before.
    fn prewrite(&self, offset: u64, len: u64) -> IoFuture<bool>;
}

/// When what is loaded into the page cache will be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// Somebody waits for it.
    Now,
    /// Somebody who is busy with what lies before it will: it keeps few turns from others.
    Later,
}

/// Whether a write is durable when it resolves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durable {
    /// It lies in the page cache; [`DiskFile::sync`] makes it durable.
    No,
    /// It survives power loss.
    Yes,
}

/// One entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirEntry {
    /// Its name within the directory.
    pub name: String,
    /// Whether it is a directory itself.
    pub is_dir: bool,
    /// Length in bytes; 0 for a directory.
    pub len: u64,
}

/// Room on the file system that a target lies on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// Size of the file system in bytes.
    pub total_bytes: u64,
    /// Bytes that this process may still write.
    pub available_bytes: u64,
}

impl fmt::Debug for dyn Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Disk")
    }
}

impl fmt::Debug for dyn DiskFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DiskFile")
    }
}

/// A future that is its error already: for arguments that are refused before anything begins.
pub(crate) fn refused<T: Send + 'static>(error: io::Error) -> IoFuture<T> {
    Box::pin(std::future::ready(Err(error)))
}

/// Refuses reads and writes that leave the range of file offsets, and reads beyond [`READ_BYTES_MAX`].
pub(crate) fn check_read(offset: u64, len: usize) -> io::Result<()> {
    if len > READ_BYTES_MAX {
        return Err(invalid(format!("a read of {len} bytes is above the limit of {READ_BYTES_MAX}")));
    }
    check_extent(offset, len as u64)
}

/// Refuses writes that leave the range of file offsets; returns the number of bytes.
pub(crate) fn check_write(offset: u64, parts: &[Bytes]) -> io::Result<u64> {
    let bytes = parts.iter().map(|part| part.len() as u64).sum();
    check_extent(offset, bytes)?;
    Ok(bytes)
}

/// Refuses ranges that leave the range of file offsets or are not whole blocks.
pub(crate) fn check_blocks(offset: u64, len: u64) -> io::Result<()> {
    if !offset.is_multiple_of(BLOCK_BYTES) || !len.is_multiple_of(BLOCK_BYTES) {
        return Err(invalid(format!("{len} bytes at {offset} are not aligned")));
    }
    check_extent(offset, len)
}

/// Refuses lengths that no file can have.
pub(crate) fn check_len(len: u64) -> io::Result<()> {
    check_extent(0, len)
}

fn check_extent(offset: u64, bytes: u64) -> io::Result<()> {
    match offset.checked_add(bytes) {
        Some(end) if i64::try_from(end).is_ok() => Ok(()),
        _ => Err(invalid(format!("{bytes} bytes at {offset} leave the range of file offsets"))),
    }
}

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}
