//! All rows of tables as they were at one moment, read for as long as it takes.

use std::{sync::Arc, vec};

use crate::{IndexError, IndexSnapshot, Pages, Rows, ScanRange, Table, Value};

/// Rows of some tables at one moment, table after table, each in the order of its keys; see [`Index::walk`](crate::Index::walk).
pub trait Walk: Send {
    /// The next row; nothing after the last.
    ///
    /// # Errors
    /// `Corrupt` or `Io`: the walk is of no use any more.
    fn next(&mut self) -> Result<Option<WalkedRow<'_>>, IndexError>;
}

/// A row that a walk came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WalkedRow<'a> {
    /// Its table.
    pub table: Table,
    /// Its key in the table.
    pub key: &'a [u8],
    /// What lies under it.
    pub row: &'a [u8],
}

/// A walk by scans of a snapshot, for engines in which that holds nothing back.
pub(crate) struct ByScans {
    snapshot: Arc<dyn IndexSnapshot>,
    /// Those that are not begun, the next one last.
    tables: Vec<Table>,
    /// The table that is being read, and what is left of it behind `rows`.
    reading: Option<(Table, Pages)>,
    rows: vec::IntoIter<(Vec<u8>, Value)>,
    current: (Vec<u8>, Value),
}

impl ByScans {
    pub(crate) fn new(snapshot: Arc<dyn IndexSnapshot>, tables: &[Table]) -> Self {
        let (tables, rows) = (tables.iter().rev().copied().collect(), Rows::new().into_iter());
        Self { snapshot, tables, reading: None, rows, current: Default::default() }
    }
}

impl Walk for ByScans {
    fn next(&mut self) -> Result<Option<WalkedRow<'_>>, IndexError> {
        /// Rows that one scan returns at most.
        const PAGE_ROWS: usize = 1024;
        loop {
            if let (Some((table, _)), Some(row)) = (&self.reading, self.rows.next()) {
                self.current = row;
                return Ok(Some(WalkedRow { table: *table, key: &self.current.0, row: &self.current.1 }));
            }
            let page = match &mut self.reading {
                Some((_, pages)) => pages.next(|range, limit| self.snapshot.scan(range, limit))?,
                None => None,
            };
            match page {
                Some(page) => self.rows = page.into_iter(),
                None => match self.tables.pop() {
                    Some(table) => self.reading = Some((table, Pages::new(ScanRange::all(table), PAGE_ROWS))),
                    None => return Ok(None),
                },
            }
        }
    }
}
