//! The index: rows, keys, and engines behind one narrow trait.
//!
//! It knows neither the bytes of objects nor segments beyond their ids: the store owns the commit and is the only
//! crate that knows both. The index is a view of the log: it may be lost and rebuilt at any time.
#![forbid(unsafe_code)]

mod error;
mod index;
pub mod keys;
mod memory;
pub mod rows;

pub use error::IndexError;
pub use index::{Index, IndexSnapshot, IndexStats, Order, Precondition, RowKey, Rows, ScanRange, Table, Value, Write};
pub use memory::MemoryIndex;
