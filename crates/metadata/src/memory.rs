//! An index in memory, with crashes: for tests and the simulator.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::RwLock;

use crate::{
    Index, IndexError, IndexSnapshot, IndexStats, Order, Precondition, RowKey, Rows, ScanRange, Table, Value, Write,
};

/// An ordered map per table, copied on write when a snapshot holds it. Clones share the rows.
///
/// It keeps how to undo every commit since the last persist, so that [`MemoryIndex::crash`] can drop them.
#[derive(Clone, Default)]
pub struct MemoryIndex {
    shared: Arc<RwLock<State>>,
}

#[derive(Default)]
struct State {
    tables: Tables,
    /// Per commit since the last persist: what its rows were before it, in the order of its writes.
    undo: Vec<Vec<(RowKey, Option<Value>)>>,
    available_bytes: Option<u64>,
}

type Rowset = BTreeMap<Vec<u8>, Value>;

#[derive(Clone, Default)]
struct Tables([Arc<Rowset>; Table::ALL.len()]);

impl MemoryIndex {
    /// An empty index.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of commits since the last persist.
    #[must_use]
    pub fn unpersisted_commits(&self) -> usize {
        self.shared.read().undo.len()
    }

    /// Sets the room that its file system claims to have.
    pub fn set_available_bytes(&self, bytes: Option<u64>) {
        self.shared.write().available_bytes = bytes;
    }

    /// Goes back to the last persist and the first `keep_commits` commits after it, as power loss may; what is left
    /// is what was on disk, so it counts as persisted. Snapshots taken before keep what they saw.
    pub fn crash(&self, keep_commits: usize) {
        let mut state = self.shared.write();
        let keep = keep_commits.min(state.undo.len());
        let lost = state.undo.split_off(keep);
        for (place, before) in lost.into_iter().rev().flat_map(|commit| commit.into_iter().rev()) {
            state.tables.set(place.table, place.key, before);
        }
        state.undo.clear();
    }
}

impl Tables {
    fn rows(&self, table: Table) -> &Rowset {
        &self.0[table as usize]
    }

    /// Puts or deletes a row; returns what was there.
    fn set(&mut self, table: Table, key: Vec<u8>, value: Option<Value>) -> Option<Value> {
        let rows = Arc::make_mut(&mut self.0[table as usize]);
        match value {
            Some(value) => rows.insert(key, value),
            None => rows.remove(&key),
        }
    }
}

impl IndexSnapshot for Tables {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Value>, IndexError> {
        Ok(self.rows(table).get(key).cloned())
    }

    fn scan(&self, range: ScanRange, limit: usize) -> Result<Rows, IndexError> {
        if range.is_empty() {
            return Ok(Vec::new());
        }
        let rows = self.rows(range.table).range::<[u8], _>(range.bounds());
        let owned = |(key, value): (&Vec<u8>, &Value)| (key.clone(), value.clone());
        Ok(match range.order {
            Order::Ascending => rows.take(limit).map(owned).collect(),
            Order::Descending => rows.rev().take(limit).map(owned).collect(),
        })
    }
}

impl Index for MemoryIndex {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Value>, IndexError> {
        self.shared.read().tables.get(table, key)
    }

    fn scan(&self, range: ScanRange, limit: usize) -> Result<Rows, IndexError> {
        self.shared.read().tables.scan(range, limit)
    }

    fn snapshot(&self) -> Arc<dyn IndexSnapshot> {
        Arc::new(self.shared.read().tables.clone())
    }

    fn commit(&self, preconditions: &[Precondition], writes: Vec<Write>) -> Result<(), IndexError> {
        writes.iter().try_for_each(Write::check)?;
        let mut state = self.shared.write();
        for precondition in preconditions {
            let row = state.tables.rows(precondition.table()).get(precondition.key());
            if !precondition.holds(row.map(|value| &value[..])) {
                return Err(precondition.conflict());
            }
        }
        let mut undo = Vec::with_capacity(writes.len());
        for write in writes {
            let (table, key, value) = match write {
                Write::Put(table, key, value) => (table, key, Some(Value::from(value))),
                Write::Delete(table, key) => (table, key, None),
            };
            let before = state.tables.set(table, key.clone(), value);
            undo.push((RowKey { table, key }, before));
        }
        state.undo.push(undo);
        Ok(())
    }

    fn persist(&self) -> Result<(), IndexError> {
        self.shared.write().undo.clear();
        Ok(())
    }

    fn check(&self) -> Result<(), IndexError> {
        Ok(())
    }

    fn available_bytes(&self) -> Option<u64> {
        self.shared.read().available_bytes
    }

    fn stats(&self) -> IndexStats {
        IndexStats::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::{self, Fixture};

    struct Crashing(MemoryIndex, usize);

    impl Fixture for Crashing {
        fn index(&self) -> Arc<dyn Index> {
            Arc::new(self.0.clone())
        }

        fn crash_and_reopen(&mut self) {
            self.0.crash(self.1);
            self.1 = self.1 * 2 + 1;
        }
    }

    #[test]
    fn conforms() {
        for keep in [0, 1] {
            conformance::run(&|| Box::new(Crashing(MemoryIndex::new(), keep)));
        }
    }

    #[test]
    fn a_crash_keeps_as_many_commits_as_told() {
        for keep in 0..7 {
            let index = MemoryIndex::new();
            for i in 0..3_u8 {
                index.commit(&[], vec![Write::Put(Table::Object, b"key".to_vec(), vec![i])]).unwrap();
            }
            index.persist().unwrap();
            for i in 3..8_u8 {
                index.commit(&[], vec![Write::Put(Table::Object, b"key".to_vec(), vec![i])]).unwrap();
            }
            assert_eq!(index.unpersisted_commits(), 5);
            let before = index.snapshot();
            index.crash(keep);
            assert_eq!(index.get(Table::Object, b"key").unwrap().unwrap()[0], 2 + keep.min(5) as u8);
            assert_eq!(before.get(Table::Object, b"key").unwrap().unwrap()[0], 7);
            assert_eq!(index.unpersisted_commits(), 0);
        }
    }
}
