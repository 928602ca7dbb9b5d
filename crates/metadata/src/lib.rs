//! The index: rows, keys, and engines behind one narrow trait.
//!
//! It knows neither the bytes of objects nor segments beyond their ids: the store owns the commit and is the only
//! crate that knows both. The index is a view of the log: it may be lost and rebuilt at any time.
#![forbid(unsafe_code)]

mod cached;
pub mod conformance;
mod error;
mod fjall;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod index;
mod ingest;
pub mod keys;
mod memory;
mod options;
mod pages;
pub mod rows;
mod walk;

pub use cached::CachedIndex;
pub use error::IndexError;
pub use fjall::FjallIndex;
pub use index::{
    Index, IndexSnapshot, IndexStats, Order, Precondition, ROW_BYTES_MAX, ROW_KEY_BYTES, RowKey, Rows, ScanRange,
    Table, Value, Write,
};
pub use ingest::Ingest;
pub use memory::MemoryIndex;
pub use options::IndexOptions;
pub use pages::Pages;
pub use walk::{Walk, WalkedRow};
