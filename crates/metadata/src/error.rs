//! Why the index refused.

use std::{io, path::PathBuf};

use crate::Table;

/// Why the index refused, by what the caller does next.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// A precondition does not hold; nothing was written.
    #[error("a row of the table {table} is not as expected")]
    Conflict {
        /// The table of the row.
        table: Table,
        /// The key of the row.
        key: Vec<u8>,
    },
    /// A key or a row has a length that no engine takes; nothing was written. A bug of the caller.
    #[error("a row of the table {table} is too long, or its key of {key_bytes} bytes is too short or too long")]
    Invalid {
        /// The table of the row.
        table: Table,
        /// Length of the key in bytes.
        key_bytes: usize,
    },
    /// What lies on disk can not be trusted: the index must be rebuilt from the segments.
    #[error("the index is corrupt: {0}")]
    Corrupt(String),
    /// Another process has the index open.
    #[error("the index in {0} is open in another process")]
    Locked(PathBuf),
    /// The system failed. What a failed commit wrote is unknown until the index is opened again.
    #[error("the index can not be read or written: {0}")]
    Io(#[from] io::Error),
    /// An earlier failure closed the index: it takes no further commits until it is opened again.
    #[error("the index is closed after a failure")]
    Closed,
}
