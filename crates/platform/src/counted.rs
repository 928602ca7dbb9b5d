//! A disk that counts what passes through it, for metrics and for tests that hold the server to its limits
//! (DESIGN.md §8).

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use crate::disk::{CachedWrite, DirEntry, Disk, DiskFile, Durable, IoFuture, Load, Space, Wanted};

/// Counts of one disk since it was wrapped. An operation counts when it begins; bytes read, what is written ahead and errors when it ends.
#[derive(Debug, Default)]
pub struct IoCounters {
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    write_bytes: AtomicU64,
    syncs: AtomicU64,
    creates: AtomicU64,
    unlinks: AtomicU64,
    errors: AtomicU64,
}

/// The counters at one moment (each by itself).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IoCounts {
    /// Reads, of files in part or whole.
    pub reads: u64,
    /// Bytes that reads returned.
    pub read_bytes: u64,
    /// Writes, vectored ones as one; a file written whole is one, and so are zeros written ahead.
    pub writes: u64,
    /// Bytes that writes were given.
    pub write_bytes: u64,
    /// Syncs of files and directories, one for a durable write or zeros written ahead, two for a file written whole.
    pub syncs: u64,
    /// Files created, those written whole included.
    pub creates: u64,
    /// Files removed.
    pub unlinks: u64,
    /// Operations of any kind that failed, `NotFound` and `AlreadyExists` left out: those are answers.
    pub errors: u64,
}

impl IoCounters {
    /// All counters, now.
    pub fn counts(&self) -> IoCounts {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        IoCounts {
            reads: get(&self.reads),
            read_bytes: get(&self.read_bytes),
            writes: get(&self.writes),
            write_bytes: get(&self.write_bytes),
            syncs: get(&self.syncs),
            creates: get(&self.creates),
            unlinks: get(&self.unlinks),
            errors: get(&self.errors),
        }
    }
}

/// A disk, counted.
#[derive(Debug)]
pub struct CountedDisk {
    inner: Arc<dyn Disk>,
    counters: Arc<IoCounters>,
}

#[derive(Debug)]
struct CountedFile {
    inner: Arc<dyn DiskFile>,
    counters: Arc<IoCounters>,
}

impl CountedDisk {
    /// Wraps `inner`; what is done through it directly is not counted.
    #[expect(clippy::new_ret_no_self, reason = "callers want the disk as any other, and the counters")]
    pub fn new(inner: Arc<dyn Disk>) -> (Arc<dyn Disk>, Arc<IoCounters>) {
        let counters = Arc::<IoCounters>::default();
        (Arc::new(Self { inner, counters: Arc::clone(&counters) }), counters)
    }

    fn files(&self, opened: IoFuture<Arc<dyn DiskFile>>) -> IoFuture<Arc<dyn DiskFile>> {
        let counters = Arc::clone(&self.counters);
        Box::pin(async move { Ok(Arc::new(CountedFile { inner: opened.await?, counters }) as Arc<dyn DiskFile>) })
    }
}

/// Runs `begun` when the operation begins and `ended` with what it returned.
fn count<T: Send + 'static>(
    counters: &Arc<IoCounters>,
    operation: IoFuture<T>,
    begun: impl FnOnce(&IoCounters) + Send + 'static,
    ended: impl FnOnce(&IoCounters, &T) + Send + 'static,
) -> IoFuture<T> {
    let counters = Arc::clone(counters);
    Box::pin(async move {
        begun(&counters);
        let result = operation.await;
        match &result {
            Ok(value) => ended(&counters, value),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::AlreadyExists) => {}
            Err(_) => add(&counters.errors, 1),
        }
        result
    })
}

fn add(counter: &AtomicU64, amount: u64) {
    counter.fetch_add(amount, Ordering::Relaxed);
}

impl Disk for CountedDisk {
    fn create(&self, path: &str, preallocate_bytes: u64) -> IoFuture<Arc<dyn DiskFile>> {
        let created = self.files(self.inner.create(path, preallocate_bytes));
        count(&self.counters, created, |_| {}, |c, _| add(&c.creates, 1))
    }

    fn open(&self, path: &str) -> IoFuture<Arc<dyn DiskFile>> {
        count(&self.counters, self.files(self.inner.open(path)), |_| {}, |_, _| {})
    }

    fn list(&self, dir: &str) -> IoFuture<Vec<DirEntry>> {
        count(&self.counters, self.inner.list(dir), |_| {}, |_, _| {})
    }

    fn read_file(&self, path: &str, max_bytes: usize) -> IoFuture<Bytes> {
        let read = self.inner.read_file(path, max_bytes);
        count(&self.counters, read, |c| add(&c.reads, 1), |c, bytes| add(&c.read_bytes, bytes.len() as u64))
    }

    fn write_file(&self, path: &str, bytes: Bytes) -> IoFuture<()> {
        let len = bytes.len() as u64;
        let begun = move |c: &IoCounters| {
            add(&c.creates, 1);
            add(&c.writes, 1);
            add(&c.write_bytes, len);
            add(&c.syncs, 2);
        };
        count(&self.counters, self.inner.write_file(path, bytes), begun, |_, ()| {})
    }

    fn rename(&self, from: &str, to: &str) -> IoFuture<()> {
        count(&self.counters, self.inner.rename(from, to), |_| {}, |_, ()| {})
    }

    fn unlink(&self, path: &str) -> IoFuture<()> {
        count(&self.counters, self.inner.unlink(path), |c| add(&c.unlinks, 1), |_, ()| {})
    }

    fn sync_dir(&self, dir: &str) -> IoFuture<()> {
        count(&self.counters, self.inner.sync_dir(dir), |c| add(&c.syncs, 1), |_, ()| {})
    }

    fn space(&self) -> IoFuture<Space> {
        count(&self.counters, self.inner.space(), |_| {}, |_, _| {})
    }
}

impl DiskFile for CountedFile {
    fn read_at(&self, offset: u64, len: usize) -> IoFuture<Bytes> {
        let read = self.inner.read_at(offset, len);
        count(&self.counters, read, |c| add(&c.reads, 1), |c, bytes| add(&c.read_bytes, bytes.len() as u64))
    }

    /// Not a read: nothing comes back.
    fn load(&self, offset: u64, len: usize, wanted: Wanted) -> Load {
        self.inner.load(offset, len, wanted)
    }

    fn write_at(&self, offset: u64, parts: Vec<Bytes>, durable: Durable) -> IoFuture<()> {
        let len = parts.iter().map(|part| part.len() as u64).sum();
        let begun = move |c: &IoCounters| {
            add(&c.writes, 1);
            add(&c.write_bytes, len);
            add(&c.syncs, u64::from(durable == Durable::Yes));
        };
        count(&self.counters, self.inner.write_at(offset, parts, durable), begun, |_, ()| {})
    }

    fn cached_write(&self, offset: u64, parts: Vec<Bytes>) -> Option<CachedWrite> {
        let len = parts.iter().map(|part| part.len() as u64).sum();
        let write = self.inner.cached_write(offset, parts)?;
        let counters = Arc::clone(&self.counters);
        Some(Box::new(move || {
            add(&counters.writes, 1);
            add(&counters.write_bytes, len);
            write().inspect_err(|_| add(&counters.errors, 1))
        }))
    }

    fn sync(&self) -> IoFuture<()> {
        count(&self.counters, self.inner.sync(), |c| add(&c.syncs, 1), |_, ()| {})
    }

    fn punch(&self, offset: u64, len: u64) -> IoFuture<()> {
        count(&self.counters, self.inner.punch(offset, len), |_| {}, |_, ()| {})
    }

    fn lend_pages(&self, pipe: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<usize> {
        self.inner.lend_pages(pipe, offset, len)
    }

    fn evict(&self, offset: u64, len: u64) -> IoFuture<bool> {
        count(&self.counters, self.inner.evict(offset, len), |_| {}, |_, _| {})
    }

    fn prewrite(&self, offset: u64, len: u64) -> IoFuture<bool> {
        let ended = move |c: &IoCounters, written: &bool| {
            if *written {
                add(&c.writes, 1);
                add(&c.write_bytes, len);
                add(&c.syncs, 1);
            }
        };
        count(&self.counters, self.inner.prewrite(offset, len), |_| {}, ended)
    }

    fn len(&self) -> IoFuture<u64> {
        count(&self.counters, self.inner.len(), |_| {}, |_, _| {})
    }

    fn set_len(&self, len: u64) -> IoFuture<()> {
        count(&self.counters, self.inner.set_len(len), |_| {}, |_, ()| {})
    }
}
