//! What a commit waits for before it is made.
//!
//! Memtables that are full are written to tables by fjall's workers, in the background, and a writer that is faster than they
//! are must wait for them. fjall has it wait behind its batch, which shows nothing of the batch to readers meanwhile, and without a look at whether a worker
//! has failed. Here it waits before its batch, for less than would make fjall wait. Lanes of the log wait before that, without a thread ([`crate::Index::is_behind`]): a thread that
//! waits here is one less for reads.

use std::{sync::atomic::Ordering, time::Duration};

use fjall::{AbstractTree, PersistMode};

use super::{FjallIndex, SEAL_KEY, memtable_bytes, watched};
use crate::{IndexError, Table};

/// Memtables of one table that may be on their way to disk when a commit begins. fjall waits at four, and one more may get there during a commit.
const SEALED_MAX: usize = 2;
/// Tables that were not merged yet and may overlap. fjall waits at thirty.
const RUNS_MAX: usize = 27;
/// How many times its own size a memtable may have that no worker has sealed yet.
const OVERFULL: u64 = 2;
/// Time between two looks at a table that is behind.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// Looks at tables that are behind for each at which the engine is asked whether it has failed.
const LOOKS_PER_QUESTION: u32 = 64;

impl FjallIndex {
    /// Waits until those of the tables that `touched` names can take a batch. `commits` is held.
    ///
    /// # Errors
    /// `Closed` when a worker of the engine has failed: what is waited for will not come.
    pub(super) fn wait_for_room(&self, touched: impl Fn(Table) -> bool) -> Result<(), IndexError> {
        while Table::ALL.into_iter().any(|table| touched(table) && self.is_full(table)) {
            self.urge()?;
            #[expect(
                clippy::disallowed_methods,
                reason = "the engine has no event to wait for, and sleeps in its place"
            )]
            std::thread::sleep(LOOK_AGAIN);
        }
        Ok(())
    }

    /// Whether some table is to be waited for, and the engine is not known to have failed. To ask it costs a lock which its workers hold while they sync: not every time.
    pub(super) fn lacks_room(&self) -> bool {
        if !Table::ALL.into_iter().any(|table| self.is_full(table)) {
            return false;
        }
        if !self.looks.fetch_add(1, Ordering::Relaxed).is_multiple_of(LOOKS_PER_QUESTION) {
            return true;
        }
        // Whoever commits asks.
        self.commits.try_lock().is_none_or(|_commits| self.urge().is_ok())
    }

    /// Asks the engine to seal what is overfull, and whether it has failed. It asks its workers for the former behind each write, forgets that when they have much to do, and does not at an opening,
    /// which makes one memtable of all that a journal has: so a row is written that is there already. `commits` is held.
    fn urge(&self) -> Result<(), IndexError> {
        watched(&self.dir, || {
            // It tells that it has failed where it would write.
            self.database.persist(PersistMode::Buffer)?;
            for table in Table::ALL.into_iter().filter(|table| self.is_overfull(*table)) {
                let keyspace = self.tables.of(table);
                if let Some(seal) = keyspace.get(SEAL_KEY)? {
                    keyspace.insert(SEAL_KEY, seal)?;
                }
            }
            Ok(())
        })
    }

    /// Whether writers are to wait until the engine's workers have written more of a table.
    fn is_full(&self, table: Table) -> bool {
        let tree = &self.tables.of(table).tree;
        tree.sealed_memtable_count() > SEALED_MAX || tree.l0_run_count() > RUNS_MAX || self.is_overfull(table)
    }

    fn is_overfull(&self, table: Table) -> bool {
        self.tables.of(table).tree.active_memtable().size() > OVERFULL * memtable_bytes(table)
    }
}
