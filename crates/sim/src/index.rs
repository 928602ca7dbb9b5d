//! The state directory of the simulated machine: an index in memory that loses its latest commits with the power, can be lost,
//! found damaged, or restored from an older copy.

use std::sync::Arc;

use gabion_metadata::{Index, IndexError, MemoryIndex, ScanRange, Table, Write};
use gabion_store::IndexFactory;
use parking_lot::Mutex;

/// The state directory; clones are the same one.
#[derive(Clone, Default)]
pub(crate) struct StateDir {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    current: MemoryIndex,
    is_damaged: bool,
    backup: Option<MemoryIndex>,
}

impl StateDir {
    /// The index as it is.
    pub(crate) fn index(&self) -> MemoryIndex {
        self.state.lock().current.clone()
    }

    /// Commits since the last persist.
    pub(crate) fn unpersisted(&self) -> usize {
        self.state.lock().current.unpersisted_commits()
    }

    /// Power loss: all but `keep_commits` commits after the last persist are gone.
    pub(crate) fn crash(&self, keep_commits: usize) {
        self.state.lock().current.crash(keep_commits);
    }

    /// It is gone.
    pub(crate) fn lose(&self) {
        self.state.lock().current = MemoryIndex::new();
    }

    /// The next opening finds that its checksums do not match.
    pub(crate) fn damage(&self) {
        self.state.lock().is_damaged = true;
    }

    /// Copies it aside.
    pub(crate) fn back_up(&self) {
        let mut state = self.state.lock();
        state.backup = Some(copy(&state.current));
    }

    /// Puts the copy in its place; false if there is none.
    pub(crate) fn restore_backup(&self) -> bool {
        let mut state = self.state.lock();
        match &state.backup {
            Some(backup) => {
                state.current = copy(backup);
                true
            }
            None => false,
        }
    }

    /// All rows but those that say how far the index got, and how the segments are.
    pub(crate) fn rows(&self) -> Vec<IndexRow> {
        let index = self.index();
        let tables = Table::ALL.into_iter().filter(|table| !matches!(table, Table::System | Table::Segment));
        let rows =
            tables.flat_map(|table| all(&index, table).into_iter().map(move |(key, row)| (table, key, row.to_vec())));
        rows.collect()
    }
}

/// A row with its table and key.
pub(crate) type IndexRow = (Table, Vec<u8>, Vec<u8>);

/// All rows of a table.
pub(crate) fn all(index: &MemoryIndex, table: Table) -> gabion_metadata::Rows {
    index.scan(ScanRange::all(table), usize::MAX).expect("an index in memory does not fail")
}

/// An index with the same rows that shares nothing with it.
fn copy(index: &MemoryIndex) -> MemoryIndex {
    let copy = MemoryIndex::new();
    for table in Table::ALL {
        let writes = all(index, table).into_iter().map(|(key, row)| Write::Put(table, key, row.to_vec()));
        copy.commit(&[], writes.collect()).and_then(|()| copy.persist()).expect("an index in memory does not fail");
    }
    copy
}

impl IndexFactory for StateDir {
    fn open(&self) -> Result<Arc<dyn Index>, IndexError> {
        let state = self.state.lock();
        if state.is_damaged {
            return Err(IndexError::Corrupt("injected fault".into()));
        }
        Ok(Arc::new(state.current.clone()))
    }

    fn destroy(&self) -> Result<(), IndexError> {
        let mut state = self.state.lock();
        state.is_damaged = false;
        state.current = MemoryIndex::new();
        Ok(())
    }
}
