//! An index that counts the rows that scans of it return, what a listing costs, and the objects that are looked for by their keys.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use gabion_metadata::{
    Index, IndexError, IndexSnapshot, IndexStats, Ingest, MemoryIndex, Precondition, Rows, ScanRange, Table, Value,
    Write,
};

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

/// An index, counted, its snapshots included.
pub struct CountedIndex {
    pub inner: MemoryIndex,
    pub scanned: ScannedRows,
    pub asked_for: ObjectsAskedFor,
}

struct CountedSnapshot {
    inner: Arc<dyn IndexSnapshot>,
    scanned: ScannedRows,
}

impl Index for CountedIndex {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Value>, IndexError> {
        if table == Table::Object {
            self.asked_for.0.fetch_add(1, Ordering::Relaxed);
        }
        self.inner.get(table, key)
    }

    fn scan(&self, range: ScanRange, limit: usize) -> Result<Rows, IndexError> {
        Ok(self.scanned.counted(self.inner.scan(range, limit)?))
    }

    fn snapshot(&self) -> Arc<dyn IndexSnapshot> {
        Arc::new(CountedSnapshot { inner: self.inner.snapshot(), scanned: self.scanned.clone() })
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

    fn stats(&self) -> IndexStats {
        self.inner.stats()
    }
}

impl IndexSnapshot for CountedSnapshot {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Value>, IndexError> {
        self.inner.get(table, key)
    }

    fn scan(&self, range: ScanRange, limit: usize) -> Result<Rows, IndexError> {
        Ok(self.scanned.counted(self.inner.scan(range, limit)?))
    }
}
