//! The count of the last seal that is known to be persisted, in a file of 17 bytes beside the database.
//!
//! The count and its complement, big-endian, and the number of tables, without which there were [`TABLES_FIRST`]. The count is written in place and not synced: an old count only hides that newer
//! seals are lost, and it is never ahead of the journal, because the journal is synced first.

use std::{
    fs::{File, OpenOptions},
    io::{self, ErrorKind, Read},
    os::unix::fs::FileExt,
    path::Path,
};

use crate::IndexError;

const MARK_FILE: &str = "persisted";
/// Tables that an index has whose mark does not say how many.
const TABLES_FIRST: u8 = 8;

/// The file, open.
pub(super) struct Mark {
    file: File,
    count: u64,
    tables: u8,
}

impl Mark {
    /// A new mark in `dir` of an index with so many tables; durable once [`Mark::sync`] returns.
    pub(super) fn create(dir: &Path, tables: u8) -> Result<Self, IndexError> {
        let file = OpenOptions::new().write(true).create(true).truncate(true).open(dir.join(MARK_FILE))?;
        Ok(Self { file, count: 0, tables })
    }

    /// The mark in `dir`.
    ///
    /// # Errors
    /// `Corrupt` when it is gone, which is also how a creation that did not finish looks, or makes no sense.
    pub(super) fn open(dir: &Path) -> Result<Self, IndexError> {
        let mut file = match OpenOptions::new().read(true).write(true).open(dir.join(MARK_FILE)) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(IndexError::Corrupt("its creation was not finished".into()));
            }
            Err(error) => return Err(error.into()),
        };
        let mut bytes = Vec::new();
        (&mut file).take(18).read_to_end(&mut bytes)?;
        let read = decode(&bytes).ok_or_else(|| IndexError::Corrupt(format!("the file {MARK_FILE:?} is damaged")))?;
        let (count, tables) = read;
        Ok(Self { file, count, tables })
    }

    /// The number of tables.
    pub(super) fn tables(&self) -> u8 {
        self.tables
    }

    /// There are so many tables from the next [`Mark::set`] on.
    pub(super) fn set_tables(&mut self, tables: u8) {
        self.tables = tables;
    }

    /// The count.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Writes a new count.
    pub(super) fn set(&mut self, count: u64) -> io::Result<()> {
        self.file.write_all_at(&encode(count, self.tables), 0)?;
        self.count = count;
        Ok(())
    }

    /// Makes the file and its name durable.
    pub(super) fn sync(&self, dir: &Path) -> io::Result<()> {
        self.file.sync_all()?;
        File::open(dir)?.sync_all()
    }

    /// Deletes the mark in `dir`.
    pub(super) fn remove(dir: &Path) -> io::Result<()> {
        std::fs::remove_file(dir.join(MARK_FILE))
    }
}

fn encode(count: u64, tables: u8) -> [u8; 17] {
    let mut bytes = [tables; 17];
    bytes[..16].copy_from_slice(&((u128::from(count) << 64) | u128::from(!count)).to_be_bytes());
    bytes
}

/// Count and number of tables.
pub(super) fn decode(bytes: &[u8]) -> Option<(u64, u8)> {
    let (both, rest) = bytes.split_first_chunk::<16>()?;
    let both = u128::from_be_bytes(*both);
    let (count, complement) = ((both >> 64) as u64, both as u64);
    let tables = match rest {
        [] => TABLES_FIRST,
        [tables] => *tables,
        _ => return None,
    };
    (count == !complement).then_some((count, tables))
}
