//! A bounded cache of hot rows in front of an engine.
//!
//! A point read costs an LSM engine some microseconds and a cached row well under one. Known absences are cached
//! too: a PUT of a new key asks for its row first, and the commit then finds the absence and replaces it by the row.
//!
//! Why it is coherent. All commits go through this cache, one at a time. Every row belongs to a slot with a
//! version that is odd while a commit that changes one of the slot's rows is on its way.
//!
//! - A reader looks at the version first. Odd: it asks the engine and leaves the cache alone, so nobody sees an old row in the
//!   cache after somebody saw the new one in the engine. Even: what it finds in the cache was current at that moment.
//! - A reader that missed puts what the engine told it into the cache only if, under the slot's lock, the version is
//!   still the one it saw before it asked. A commit makes the version odd under the same lock before it touches the
//!   engine, so either it comes later and corrects the cache itself, or the reader finds another version and keeps out.
//! - A commit corrects the rows that are in the cache before it makes the version even again.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use bytes::Bytes;
use gabion_types::Counter;
use parking_lot::Mutex;
use quick_cache::{Equivalent, Weighter, sync::Cache};

use crate::{
    Index, IndexError, IndexSnapshot, IndexStats, Ingest, Precondition, Rows, ScanRange, Table, Value, Walk, Write,
};

/// Slots of rows; enough that a commit rarely bars a reader of another row.
const SLOTS: usize = 1024;
/// What an entry costs beside the bytes of key and row: the map's slot (key and value handles, 21 bytes of its own, half
/// as much again for ghosts and free slots) and two allocations.
const ENTRY_BYTES: u64 = 192;

/// An engine with a row cache of bounded size in front; all commits must go through it.
pub struct CachedIndex<E> {
    engine: E,
    rows: Cache<CachedKey, Option<Value>, EntryWeight>,
    slots: Box<[Slot]>,
    /// Held over every commit.
    commits: Mutex<()>,
    hits: Counter,
    misses: Counter,
}

#[derive(Default)]
struct Slot {
    version: AtomicU64,
    /// Held to change the version, and to put a row that the engine told into the cache.
    lock: Mutex<()>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct CachedKey {
    table: Table,
    key: Box<[u8]>,
}

#[derive(Hash)]
struct AskedKey<'a> {
    table: Table,
    key: &'a [u8],
}

#[derive(Clone)]
struct EntryWeight;

impl<E: Index> CachedIndex<E> {
    /// Puts a cache of at most `row_cache_bytes` in front of `engine`.
    pub fn new(engine: E, row_cache_bytes: u64) -> Self {
        let entries = usize::try_from(row_cache_bytes / (ENTRY_BYTES + 320)).unwrap_or(usize::MAX);
        Self {
            engine,
            rows: Cache::with_weighter(entries, row_cache_bytes, EntryWeight),
            slots: (0..SLOTS).map(|_| Slot::default()).collect(),
            commits: Mutex::new(()),
            hits: Counter::default(),
            misses: Counter::default(),
        }
    }

    /// The engine behind the cache; commits to it directly are not seen by the cache.
    pub fn engine(&self) -> &E {
        &self.engine
    }

    fn slot_index(asked: &AskedKey<'_>) -> usize {
        // Not the map's hash: that one is not handed out. A slot is a hint of identity only, so a cheap hash does.
        let mut hash = 0xcbf2_9ce4_8422_2325_u64 ^ asked.table as u64;
        let words = asked.key.chunks(8).map(|chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            u64::from_le_bytes(word)
        });
        for word in words {
            hash = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        }
        ((hash ^ (hash >> 32)) % SLOTS as u64) as usize
    }

    /// Makes the slots of `writes` odd; returns them.
    fn begin(&self, writes: &[Write]) -> Vec<usize> {
        let cached = writes.iter().filter(|write| is_cached(write.table()));
        let mut slots: Vec<usize> = cached.map(|write| Self::slot_index(&asked(write.table(), write.key()))).collect();
        slots.sort_unstable();
        slots.dedup();
        for &slot in &slots {
            self.slots[slot].step();
        }
        slots
    }

    /// Corrects the cache after a commit and makes `slots` even again.
    fn end(&self, slots: &[usize], after: impl IntoIterator<Item = (CachedKey, Correction)>) {
        for (key, correction) in after {
            match correction {
                // Only where an entry is: a row that nobody asked for does not push out one that somebody did.
                Correction::Replace(row) => drop(self.rows.replace(key, row, true)),
                Correction::Forget => drop(self.rows.remove(&key)),
            }
        }
        for &slot in slots {
            self.slots[slot].step();
        }
    }
}

/// What a commit does to a row in the cache.
enum Correction {
    Replace(Option<Value>),
    Forget,
}

impl Slot {
    fn step(&self) {
        let _guard = self.lock.lock();
        self.version.fetch_add(1, Ordering::AcqRel);
    }
}

impl Equivalent<CachedKey> for AskedKey<'_> {
    fn equivalent(&self, key: &CachedKey) -> bool {
        self.table == key.table && *self.key == *key.key
    }
}

impl Weighter<CachedKey, Option<Value>> for EntryWeight {
    fn weight(&self, key: &CachedKey, row: &Option<Value>) -> u64 {
        ENTRY_BYTES + key.key.len() as u64 + row.as_ref().map_or(0, |row| row.len() as u64)
    }
}

fn asked(table: Table, key: &[u8]) -> AskedKey<'_> {
    AskedKey { table, key }
}

fn cached_key(table: Table, key: &[u8]) -> CachedKey {
    CachedKey { table, key: key.into() }
}

/// Whether rows of the table are read one by one, again and again.
fn is_cached(table: Table) -> bool {
    match table {
        Table::Bucket | Table::Object | Table::Upload | Table::Usage => true,
        // Of segments the store has all rows in memory.
        Table::Part | Table::Manifest | Table::Segment | Table::System | Table::Version | Table::Config => false,
    }
}

impl<E: Index> Index for CachedIndex<E> {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Value>, IndexError> {
        if !is_cached(table) {
            return self.engine.get(table, key);
        }
        let asked = asked(table, key);
        let slot = &self.slots[Self::slot_index(&asked)];
        let version = slot.version.load(Ordering::Acquire);
        if version.is_multiple_of(2)
            && let Some(row) = self.rows.get(&asked)
        {
            self.hits.add(1);
            return Ok(row);
        }
        self.misses.add(1);
        let row = self.engine.get(table, key)?;
        if version.is_multiple_of(2) {
            let _guard = slot.lock.lock();
            if slot.version.load(Ordering::Acquire) == version {
                self.rows.insert(cached_key(table, key), row.clone());
            }
        }
        Ok(row)
    }

    fn scan(&self, range: ScanRange, limit: usize) -> Result<Rows, IndexError> {
        self.engine.scan(range, limit)
    }

    fn snapshot(&self) -> Arc<dyn IndexSnapshot> {
        self.engine.snapshot()
    }

    fn walk(&self, tables: &[Table]) -> Result<Box<dyn Walk>, IndexError> {
        self.engine.walk(tables)
    }

    fn commit(&self, preconditions: &[Precondition], writes: Vec<Write>) -> Result<(), IndexError> {
        let _one_at_a_time = self.commits.lock();
        // No other commit is on its way, so a cached row is the current one: the engine need not look it up.
        let mut unknown = Vec::new();
        for precondition in preconditions {
            match self.rows.get(&asked(precondition.table(), precondition.key())) {
                Some(row) if precondition.holds(row.as_deref()) => {}
                // The engine names the first that does not hold; an earlier one that is not cached may be it.
                Some(_) if unknown.is_empty() => return Err(precondition.conflict()),
                _ => unknown.push(precondition.clone()),
            }
        }
        let slots = self.begin(&writes);
        // A later write of the same row comes later here too.
        let changed: Vec<(CachedKey, Option<Value>)> = writes
            .iter()
            .filter(|write| is_cached(write.table()))
            .map(|write| (cached_key(write.table(), write.key()), write.row().map(Bytes::copy_from_slice)))
            .collect();
        let outcome = self.engine.commit(&unknown, writes);
        match &outcome {
            Ok(()) => self.end(&slots, changed.into_iter().map(|(key, row)| (key, Correction::Replace(row)))),
            Err(IndexError::Conflict { .. } | IndexError::Invalid { .. }) => self.end(&slots, []),
            // Whether it was written is unknown.
            Err(_) => self.end(&slots, changed.into_iter().map(|(key, _)| (key, Correction::Forget))),
        }
        outcome
    }

    fn ingest(&self, table: Table) -> Result<Box<dyn Ingest + '_>, IndexError> {
        Ok(Box::new(CachedIngest { rows: &self.rows, below: self.engine.ingest(table)? }))
    }

    fn persist(&self) -> Result<(), IndexError> {
        self.engine.persist()
    }

    fn check(&self) -> Result<(), IndexError> {
        self.engine.check()
    }

    fn is_behind(&self) -> bool {
        self.engine.is_behind()
    }

    fn available_bytes(&self) -> Option<u64> {
        self.engine.available_bytes()
    }

    fn stats(&self) -> IndexStats {
        IndexStats {
            cache_hits: self.hits.get(),
            cache_misses: self.misses.get(),
            cached_rows: self.rows.len() as u64,
            cached_bytes: self.rows.weight(),
            ..self.engine.stats()
        }
    }
}

/// Passes rows by the cache, which forgets what it knew of the index: nobody else uses that meanwhile.
struct CachedIngest<'a> {
    rows: &'a Cache<CachedKey, Option<Value>, EntryWeight>,
    below: Box<dyn Ingest + 'a>,
}

impl Ingest for CachedIngest<'_> {
    fn put(&mut self, key: Vec<u8>, row: Vec<u8>) -> Result<(), IndexError> {
        self.below.put(key, row)
    }

    fn finish(self: Box<Self>) -> Result<(), IndexError> {
        let outcome = self.below.finish();
        self.rows.clear();
        outcome
    }
}

#[cfg(test)]
mod tests;
