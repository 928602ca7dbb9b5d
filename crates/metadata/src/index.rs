//! The narrow trait that the store sees of an index, and the words it uses.
//!
//! Rows are bytes here: what they mean is said in [`crate::rows`] and [`crate::keys`]. An engine orders rows by key,
//! byte by byte, in each table by itself.

use std::{
    fmt,
    ops::{Bound, RangeInclusive},
    sync::Arc,
};

use bytes::Bytes;

use crate::{IndexError, Ingest, Walk, ingest::ByCommits, keys::successor, walk::ByScans};

/// Length of a row's key in bytes. Shorter keys are the engines' own; the longest is that of an upload.
pub const ROW_KEY_BYTES: RangeInclusive<usize> = 2..=4096;
/// Longest row in bytes: above any row with as many extents or attributes as the limits allow.
pub const ROW_BYTES_MAX: usize = 1024 * 1024;

/// The bytes of a row; cheap to clone.
pub type Value = Bytes;

/// The tables, each an ordered map of its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Table {
    /// Buckets by name.
    Bucket = 0,
    /// Current objects by bucket and key.
    Object = 1,
    /// Multipart uploads by bucket, key and id.
    Upload = 2,
    /// Parts by upload and number.
    Part = 3,
    /// Pages and parts of manifests.
    Manifest = 4,
    /// Segments by id.
    Segment = 5,
    /// Counters by bucket, and by user.
    Usage = 6,
    /// Deployment, format version, clock and the like, by short names.
    System = 7,
    /// Versions of objects that are not current, and delete markers, by bucket, key and age.
    Version = 8,
    /// Documents that configure a bucket or the site, by bucket and name.
    Config = 9,
}

impl Table {
    /// Every table, in the order of their numbers.
    pub const ALL: [Table; 10] = [
        Table::Bucket,
        Table::Object,
        Table::Upload,
        Table::Part,
        Table::Manifest,
        Table::Segment,
        Table::Usage,
        Table::System,
        Table::Version,
        Table::Config,
    ];

    /// Its name: part of the format of embedded engines.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Table::Bucket => "bucket",
            Table::Object => "object",
            Table::Upload => "upload",
            Table::Part => "part",
            Table::Manifest => "manifest",
            Table::Segment => "segment",
            Table::Usage => "usage",
            Table::System => "system",
            Table::Version => "version",
            Table::Config => "config",
        }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A row's place: table and key.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RowKey {
    /// The table.
    pub table: Table,
    /// The key in the table.
    pub key: Vec<u8>,
}

/// One change of one row. In a commit that changes a row more than once the last change holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Write {
    /// The row under the key is this value.
    Put(Table, Vec<u8>, Vec<u8>),
    /// There is no row under the key.
    Delete(Table, Vec<u8>),
}

impl Write {
    /// The table that it changes.
    #[must_use]
    pub fn table(&self) -> Table {
        match self {
            Write::Put(table, ..) | Write::Delete(table, _) => *table,
        }
    }

    /// The key of the row that it changes.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        match self {
            Write::Put(_, key, _) | Write::Delete(_, key) => key,
        }
    }

    /// The row afterwards; nothing when it is deleted.
    #[must_use]
    pub fn row(&self) -> Option<&[u8]> {
        match self {
            Write::Put(_, _, row) => Some(row),
            Write::Delete(..) => None,
        }
    }

    /// Checks the lengths of key and row: every engine does so first.
    ///
    /// # Errors
    /// `Invalid`.
    pub fn check(&self) -> Result<(), IndexError> {
        let fits = self.row().is_none_or(|row| row.len() <= ROW_BYTES_MAX);
        if ROW_KEY_BYTES.contains(&self.key().len()) && fits {
            return Ok(());
        }
        Err(IndexError::Invalid { table: self.table(), key_bytes: self.key().len() })
    }
}

/// What must hold at the moment of a commit, before its own writes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Precondition {
    /// There is no row under the key.
    Absent(Table, Vec<u8>),
    /// There is a row under the key.
    Present(Table, Vec<u8>),
    /// The row under the key has this value.
    Equals(Table, Vec<u8>, Vec<u8>),
}

impl Precondition {
    /// The table of the row.
    #[must_use]
    pub fn table(&self) -> Table {
        match self {
            Precondition::Absent(table, _) | Precondition::Present(table, _) | Precondition::Equals(table, ..) => {
                *table
            }
        }
    }

    /// The key of the row.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        match self {
            Precondition::Absent(_, key) | Precondition::Present(_, key) | Precondition::Equals(_, key, _) => key,
        }
    }

    /// Whether it holds when `row` is what lies under the key.
    #[must_use]
    pub fn holds(&self, row: Option<&[u8]>) -> bool {
        match self {
            Precondition::Absent(..) => row.is_none(),
            Precondition::Present(..) => row.is_some(),
            Precondition::Equals(_, _, value) => row == Some(value),
        }
    }

    /// The error of a commit in which it does not hold.
    #[must_use]
    pub fn conflict(&self) -> IndexError {
        IndexError::Conflict { table: self.table(), key: self.key().to_vec() }
    }
}

/// Whether a scan goes up or down.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Order {
    /// From the lowest key up.
    #[default]
    Ascending,
    /// From the highest key down.
    Descending,
}

/// A run of keys of one table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScanRange {
    /// The table.
    pub table: Table,
    /// The lower end.
    pub start: Bound<Vec<u8>>,
    /// The upper end.
    pub end: Bound<Vec<u8>>,
    /// Which end comes first.
    pub order: Order,
}

impl ScanRange {
    /// All rows of a table, ascending.
    #[must_use]
    pub fn all(table: Table) -> Self {
        Self { table, start: Bound::Unbounded, end: Bound::Unbounded, order: Order::Ascending }
    }

    /// All rows whose keys begin with `prefix`, ascending.
    #[must_use]
    pub fn prefix(table: Table, prefix: &[u8]) -> Self {
        let end = successor(prefix).map_or(Bound::Unbounded, Bound::Excluded);
        Self { table, start: Bound::Included(prefix.to_vec()), end, order: Order::Ascending }
    }

    /// Only what is at `key` or above.
    #[must_use]
    pub fn from(mut self, key: &[u8]) -> Self {
        if key_at(&self.start).is_none_or(|start| start < key) {
            self.start = Bound::Included(key.to_vec());
        }
        self
    }

    /// Only what is above `key`.
    #[must_use]
    pub fn after(mut self, key: &[u8]) -> Self {
        if key_at(&self.start).is_none_or(|start| start <= key) {
            self.start = Bound::Excluded(key.to_vec());
        }
        self
    }

    /// Only what is at `key` or below.
    #[must_use]
    pub fn up_to(mut self, key: &[u8]) -> Self {
        if key_at(&self.end).is_none_or(|end| end > key) {
            self.end = Bound::Included(key.to_vec());
        }
        self
    }

    /// The same rows, from the highest key down.
    #[must_use]
    pub fn descending(mut self) -> Self {
        self.order = Order::Descending;
        self
    }

    /// Whether no key can be in it. Engines ask this first: ordered maps panic on ends that are out of order.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match (&self.start, &self.end) {
            (Bound::Unbounded, Bound::Excluded(end)) => end.is_empty(),
            (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
            (Bound::Included(start), Bound::Included(end)) => start > end,
            (Bound::Included(start) | Bound::Excluded(start), Bound::Included(end) | Bound::Excluded(end)) => {
                start >= end
            }
        }
    }

    /// Both ends, borrowed, as ordered maps take them.
    #[must_use]
    pub fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        (self.start.as_ref().map(Vec::as_slice), self.end.as_ref().map(Vec::as_slice))
    }
}

/// The key at an end, if it has one.
fn key_at(bound: &Bound<Vec<u8>>) -> Option<&[u8]> {
    match bound {
        Bound::Included(key) | Bound::Excluded(key) => Some(key),
        Bound::Unbounded => None,
    }
}

/// Figures of an index; zero where an engine has no such thing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IndexStats {
    /// Length of its files on disk, the journal included, and tables that were merged since, but that a [`Walk`] or a snapshot still reads.
    pub disk_bytes: u64,
    /// Bytes of the journal: what a start must replay.
    pub journal_bytes: u64,
    /// Point reads answered by the row cache.
    pub cache_hits: u64,
    /// Point reads that the row cache passed on to the engine.
    pub cache_misses: u64,
    /// Rows in the row cache, known absences included.
    pub cached_rows: u64,
    /// Bytes of the rows in the row cache, keys and overhead included.
    pub cached_bytes: u64,
}

/// Rows found by a scan, in its order.
pub type Rows = Vec<(Vec<u8>, Value)>;

/// The index at one point in time: what is committed later does not show.
pub trait IndexSnapshot: Send + Sync {
    /// The row under `key`.
    ///
    /// # Errors
    /// `Corrupt` or `Io`.
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Value>, IndexError>;

    /// The first rows of `range`, at most `limit`, in its order.
    ///
    /// # Errors
    /// `Corrupt` or `Io`.
    fn scan(&self, range: ScanRange, limit: usize) -> Result<Rows, IndexError>;
}

/// An ordered, transactional map of rows; linearizable.
///
/// Calls block for as long as memory, a cached block or a page read takes; `persist` blocks for a sync of the disk.
pub trait Index: Send + Sync + 'static {
    /// The row under `key`.
    ///
    /// # Errors
    /// `Corrupt` or `Io`.
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Value>, IndexError>;

    /// The first rows of `range`, at most `limit`, in its order, at one point in time.
    ///
    /// # Errors
    /// `Corrupt` or `Io`.
    fn scan(&self, range: ScanRange, limit: usize) -> Result<Rows, IndexError>;

    /// The index as it is now. Holding one keeps old rows on disk, and all that is written meanwhile in memory: let it go soon.
    fn snapshot(&self) -> Arc<dyn IndexSnapshot>;

    /// All rows of `tables` as they are now, to be read for as long as it takes: what is written meanwhile is not kept in memory for that, what was there
    /// when it began stays on disk.
    ///
    /// # Errors
    /// `Corrupt` or `Io`.
    fn walk(&self, tables: &[Table]) -> Result<Box<dyn Walk>, IndexError> {
        Ok(Box::new(ByScans::new(self.snapshot(), tables)))
    }

    /// Checks all preconditions and makes all writes, or none, at one point in time. Does not sync: after a crash
    /// some prefix of the commits since the last [`Index::persist`] is there.
    ///
    /// # Errors
    /// `Conflict` with the first precondition that does not hold, or `Invalid` when a key or a row is too short or too
    /// long ([`ROW_KEY_BYTES`], [`ROW_BYTES_MAX`]): nothing was written. `Io`, `Corrupt`, `Closed`: the writes may or
    /// may not survive.
    fn commit(&self, preconditions: &[Precondition], writes: Vec<Write>) -> Result<(), IndexError>;

    /// Begins to fill a table that has no rows, of an index that nobody else uses: all rows, ascending. Not atomic: after a crash any of them may be
    /// there, durable though commits before them are not, unless those were persisted.
    ///
    /// # Errors
    /// Those of a commit.
    fn ingest(&self, table: Table) -> Result<Box<dyn Ingest + '_>, IndexError> {
        Ok(Box::new(ByCommits::new(self, table)))
    }

    /// Makes durable: every commit that returned before this call survives power loss once it returns.
    ///
    /// # Errors
    /// `Io` or `Closed`: nothing new can be trusted to be durable.
    fn persist(&self) -> Result<(), IndexError>;

    /// A quick check whether the index can be trusted.
    ///
    /// # Errors
    /// `Corrupt` when it must be rebuilt.
    fn check(&self) -> Result<(), IndexError>;

    /// Whether a commit would have to wait for what was committed before, on the thread that it is made on. Whoever can wait without a thread does so
    /// before; an engine that has failed says no, and commits say why.
    fn is_behind(&self) -> bool {
        false
    }

    /// Bytes that the index' file system still has room for; `None` for an engine that lies on none, or when it can not be asked.
    fn available_bytes(&self) -> Option<u64>;

    /// Figures for metrics.
    fn stats(&self) -> IndexStats;
}
