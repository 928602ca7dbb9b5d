//! A simulated disk whose files have something between them and whoever reads and writes.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::SimDisk;
use crate::disk::{Disk, DiskFile, Durable, IoFuture};

/// What is asked of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// These bytes of it.
    Read(Range<u64>),
    /// To hold other bytes, or to be as long as that, durably or not; or to make durable what it holds.
    Change,
    /// To have zeros written ahead.
    Zeros,
}

/// What is waited for before it is done, and the error that comes instead.
pub type AskAccess = dyn Fn(Access) -> IoFuture<()> + Send + Sync;

struct Gated {
    file: Arc<dyn DiskFile>,
    ask: Arc<AskAccess>,
}

impl SimDisk {
    /// The same disk, of whose files `ask` is asked first.
    pub fn gated(&self, ask: Arc<AskAccess>) -> Arc<dyn Disk> {
        self.wrapped(Arc::new(move |_, _, opened| {
            let ask = Arc::clone(&ask);
            Box::pin(async move { Ok(Arc::new(Gated { file: opened.await?, ask }) as Arc<dyn DiskFile>) })
        }))
    }
}

impl Gated {
    fn pass<T: Send + 'static>(&self, access: Access, operation: IoFuture<T>) -> IoFuture<T> {
        let asked = (self.ask)(access);
        Box::pin(async move {
            asked.await?;
            operation.await
        })
    }
}

impl DiskFile for Gated {
    fn read_at(&self, offset: u64, len: usize) -> IoFuture<Bytes> {
        self.pass(Access::Read(offset..offset + len as u64), self.file.read_at(offset, len))
    }

    fn write_at(&self, offset: u64, parts: Vec<Bytes>, durable: Durable) -> IoFuture<()> {
        self.pass(Access::Change, self.file.write_at(offset, parts, durable))
    }

    fn sync(&self) -> IoFuture<()> {
        self.pass(Access::Change, self.file.sync())
    }

    fn len(&self) -> IoFuture<u64> {
        self.file.len()
    }

    fn set_len(&self, len: u64) -> IoFuture<()> {
        self.pass(Access::Change, self.file.set_len(len))
    }

    fn punch(&self, offset: u64, len: u64) -> IoFuture<()> {
        self.pass(Access::Change, self.file.punch(offset, len))
    }

    fn evict(&self, offset: u64, len: u64) -> IoFuture<bool> {
        self.file.evict(offset, len)
    }

    fn prewrite(&self, offset: u64, len: u64) -> IoFuture<bool> {
        self.pass(Access::Zeros, self.file.prewrite(offset, len))
    }
}
