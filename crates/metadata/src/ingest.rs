//! Filling a table of an index that nobody uses yet, in the order of the keys: what an engine can do without journal, memtable and compaction.

use crate::{Index, IndexError, ROW_BYTES_MAX, ROW_KEY_BYTES, Table, Write};

/// Rows of one table on their way into an index; see [`Index::ingest`].
pub trait Ingest: Send {
    /// Adds a row. Its key is above all before it.
    ///
    /// # Errors
    /// `Invalid` when the key is not above the one before, or key or row are too short or too long; those of a commit.
    fn put(&mut self, key: Vec<u8>, row: Vec<u8>) -> Result<(), IndexError>;

    /// Makes all rows visible.
    ///
    /// # Errors
    /// Those of a commit.
    fn finish(self: Box<Self>) -> Result<(), IndexError>;
}

/// Checks what every engine refuses.
pub(crate) struct Ascending {
    table: Table,
    last: Vec<u8>,
}

impl Ascending {
    pub(crate) fn new(table: Table) -> Self {
        Self { table, last: Vec::new() }
    }

    pub(crate) fn check(&mut self, key: &[u8], row: &[u8]) -> Result<(), IndexError> {
        if !ROW_KEY_BYTES.contains(&key.len()) || row.len() > ROW_BYTES_MAX || *key <= *self.last {
            return Err(IndexError::Invalid { table: self.table, key_bytes: key.len() });
        }
        self.last.clear();
        self.last.extend_from_slice(key);
        Ok(())
    }
}

/// Ingestion by commits, for engines that have nothing better.
pub(crate) struct ByCommits<'a, I: ?Sized> {
    index: &'a I,
    table: Table,
    order: Ascending,
    batch: Vec<Write>,
    batch_bytes: usize,
}

impl<'a, I: Index + ?Sized> ByCommits<'a, I> {
    pub(crate) fn new(index: &'a I, table: Table) -> Self {
        Self { index, table, order: Ascending::new(table), batch: Vec::new(), batch_bytes: 0 }
    }

    fn commit(&mut self) -> Result<(), IndexError> {
        self.batch_bytes = 0;
        self.index.commit(&[], std::mem::take(&mut self.batch))
    }
}

impl<I: Index + ?Sized> Ingest for ByCommits<'_, I> {
    fn put(&mut self, key: Vec<u8>, row: Vec<u8>) -> Result<(), IndexError> {
        /// Rows, and bytes of rows, in one commit.
        const BATCH_ROWS: usize = 4096;
        const BATCH_BYTES: usize = 4 << 20;
        self.order.check(&key, &row)?;
        self.batch_bytes += key.len() + row.len();
        self.batch.push(Write::Put(self.table, key, row));
        if self.batch.len() >= BATCH_ROWS || self.batch_bytes >= BATCH_BYTES { self.commit() } else { Ok(()) }
    }

    fn finish(mut self: Box<Self>) -> Result<(), IndexError> {
        self.commit()
    }
}
