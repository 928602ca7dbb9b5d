//! The count of the last seal that is known to be persisted, in a file of 16 bytes beside the database.
//!
//! The count and its complement, big-endian. It is written in place and not synced: an old count only hides that newer
//! seals are lost, and it is never ahead of the journal, because the journal is synced first.

use std::{
    fs::{File, OpenOptions},
    io::{self, ErrorKind, Read},
    os::unix::fs::FileExt,
    path::Path,
};

use crate::IndexError;

const MARK_FILE: &str = "persisted";

/// The file, open.
pub(super) struct Mark {
    file: File,
    count: u64,
}

impl Mark {
    /// A new mark in `dir`; durable once [`Mark::sync`] returns.
    pub(super) fn create(dir: &Path) -> Result<Self, IndexError> {
        let file = OpenOptions::new().write(true).create(true).truncate(true).open(dir.join(MARK_FILE))?;
        Ok(Self { file, count: 0 })
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
        (&mut file).take(17).read_to_end(&mut bytes)?;
        let count = decode(&bytes).ok_or_else(|| IndexError::Corrupt(format!("the file {MARK_FILE:?} is damaged")))?;
        Ok(Self { file, count })
    }

    /// The count.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Writes a new count.
    pub(super) fn set(&mut self, count: u64) -> io::Result<()> {
        self.file.write_all_at(&encode(count), 0)?;
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

fn encode(count: u64) -> [u8; 16] {
    ((u128::from(count) << 64) | u128::from(!count)).to_be_bytes()
}

pub(super) fn decode(bytes: &[u8]) -> Option<u64> {
    let both = u128::from_be_bytes(bytes.try_into().ok()?);
    let (count, complement) = ((both >> 64) as u64, both as u64);
    (count == !complement).then_some(count)
}
