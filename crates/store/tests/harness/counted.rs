//! An index that counts the rows that scans of it return, what a listing costs, and the objects that are looked for by their keys; and in which
//! something can be done between two reads.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use gabion_metadata::{
    Index, IndexError, IndexSnapshot, IndexStats, Ingest, MemoryIndex, Precondition, Rows, ScanRange, Table, Value,
    Write,
};
use parking_lot::Mutex;

/// Rows that scans returned.
#[derive(Clone, Default)]
pub struct ScannedRows(Arc<AtomicU64>);

impl ScannedRows {
    /// All of them so far.
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn counted(&self, rows: Rows) -> Rows {
        self.0.fetch_add(rows.len() as u64, Ordering::Relaxed);
        rows
    }
}

/// How often an object was looked for.
#[derive(Clone, Default)]
pub struct ObjectsAskedFor(Arc<AtomicU64>);

impl ObjectsAskedFor {
    /// So far.
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What is done right before a table is read for the next time.
#[derive(Clone, Default)]
pub struct Interruption(Arc<Mutex<Option<(Table, Work)>>>);

type Work = Box<dyn FnOnce() + Send>;

impl Interruption {
    /// Has `work` done once.
    pub fn before(&self, table: Table, work: impl FnOnce() + Send + 'static) {
        *self.0.lock() = Some((table, Box::new(work)));
    }

    /// Whether nothing is left to be done.
    pub fn is_over(&self) -> bool {
        self.0.lock().is_none()
    }

    fn reads(&self, table: Table) {
        let due = self.0.lock().take_if(|(before, _)| *before == table);
        // It reads, too.
        if let Some((_, work)) = due {
            work();
        }
    }
}

/// An index, counted, its snapshots included.
pub struct CountedIndex {
    pub inner: MemoryIndex,
    pub scanned: ScannedRows,
    pub asked_for: ObjectsAskedFor,
    pub interruption: Interruption,
}

struct CountedSnapshot {
    inner: Arc<dyn IndexSnapshot>,
    scanned: ScannedRows,
    interruption: Interruption,
}

impl Index for CountedIndex {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Value>, IndexError> {
        if table == Table::Object {
            self.asked_for.0.fetch_add(1, Ordering::Relaxed);
        }
        self.interruption.reads(table);
        self.inner.get(table, key)
    }

    fn scan(&self, range: ScanRange, limit: usize) -> Result<Rows, IndexError> {
        self.interruption.reads(range.table);
        Ok(self.scanned.counted(self.inner.scan(range, limit)?))
    }

    fn snapshot(&self) -> Arc<dyn IndexSnapshot> {
        let (scanned, interruption) = (self.scanned.clone(), self.interruption.clone());
        Arc::new(CountedSnapshot { inner: self.inner.snapshot(), scanned, interruption })
    }

    fn commit(&self, preconditions: &[Precondition], writes: Vec<Write>) -> Result<(), IndexError> {
        self.inner.commit(preconditions, writes)
    }

    fn ingest(&self, table: Table) -> Result<Box<dyn Ingest + '_>, IndexError> {
        self.inner.ingest(table)
    }

    fn persist(&self) -> Result<(), IndexError> {
        self.inner.persist()
    }

    fn check(&self) -> Result<(), IndexError> {
        self.inner.check()
    }

    fn available_bytes(&self) -> Option<u64> {
        self.inner.available_bytes()
    }

    fn stats(&self) -> IndexStats {
        self.inner.stats()
    }
}

impl IndexSnapshot for CountedSnapshot {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Value>, IndexError> {
        self.interruption.reads(table);
        self.inner.get(table, key)
    }

    fn scan(&self, range: ScanRange, limit: usize) -> Result<Rows, IndexError> {
        self.interruption.reads(range.table);
        Ok(self.scanned.counted(self.inner.scan(range, limit)?))
    }
}
