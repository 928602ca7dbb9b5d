//! All rows of one moment, without a snapshot of fjall's.
//!
//! As long as there is one of those, fjall keeps every memtable that was written to since, also when it lies in a table already (the
//! `SuperVersions` of lsm-tree go with the oldest snapshot alone): half a GB while ten million rows are read under load. An *iterator* of a tree keeps the
//! memtables and tables of the moment in which it was made, and nothing else. So a walk begins with an iterator over each table, made under one snapshot, and lets that go.

use std::path::{Path, PathBuf};

use fjall::{AbstractTree, SeqNo, Slice};
use lsm_tree::{Guard, IterGuardImpl};

use super::{SEAL_KEY, Tables, watched};
use crate::{IndexError, ScanRange, Table, Walk, WalkedRow};

pub(super) struct FjallWalk {
    dir: PathBuf,
    /// What is left, the next table last.
    left: Vec<(Table, Iter)>,
    current: (Slice, Slice),
    /// Keeps the directory from being opened or removed by others: tables delete their files when they go.
    _tables: Tables,
}

type Iter = Box<dyn DoubleEndedIterator<Item = IterGuardImpl> + Send>;

impl FjallWalk {
    /// Of the moment of `snapshot`, which may go once this is there.
    pub(super) fn begin(
        dir: &Path,
        tables: &[Table],
        of: &Tables,
        snapshot: &fjall::Snapshot,
    ) -> Result<Self, IndexError> {
        let begin = |table: Table| watched(dir, || Ok((table, iter(of, table, snapshot.seqno()))));
        let left = tables.iter().rev().map(|&table| begin(table)).collect::<Result<_, _>>()?;
        Ok(Self { dir: dir.to_owned(), left, current: (Slice::empty(), Slice::empty()), _tables: of.clone() })
    }
}

fn iter(of: &Tables, table: Table, at: SeqNo) -> Iter {
    of.of(table).tree.range::<&[u8], _>(ScanRange::all(table).after(SEAL_KEY).bounds(), at, None)
}

impl Walk for FjallWalk {
    fn next(&mut self) -> Result<Option<WalkedRow<'_>>, IndexError> {
        while let Some((table, rows)) = self.left.last_mut() {
            let table = *table;
            let row = watched(&self.dir, || Ok(rows.next().map(IterGuardImpl::into_inner).transpose()?))?;
            match row {
                Some(row) => {
                    self.current = row;
                    return Ok(Some(WalkedRow { table, key: &self.current.0, row: &self.current.1 }));
                }
                None => drop(self.left.pop()),
            }
        }
        Ok(None)
    }
}
