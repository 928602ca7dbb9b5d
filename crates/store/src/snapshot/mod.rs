//! A snapshot of the index in the log (docs/adr/0009): who loses the index reads it back and replays what came later, instead of
//! everything that ever was.
//!
//! It is a view of a view: a rebuild without it comes to the same. Therefore it is given up whenever anything about it is in doubt, and nothing
//! else ever depends on one. What it costs is that *deletions* which it may not know must outlive their segments (`Segments::may_create_before`).

mod restore;
pub(crate) mod stream;
mod write;

use gabion_types::limits::MUTATION_BYTES_MAX;

pub(crate) use restore::{Restored, restore};
pub(crate) use write::{Failed, withdraw, write};

/// Name of the row of the newest one, in the table `System`.
pub(crate) const SNAPSHOT_ROW: &str = "snapshot";

/// Stripes that one may have: 64 GiB of rows in stripes of 8 MiB.
const EXTENTS_MAX: usize = 8 * 1024;
/// Segments that it may say it covers; of any others it is taken to know nothing, which is safe.
pub(crate) const COVERED_MAX: usize = 16 * 1024;
const _: () = assert!(EXTENTS_MAX * 56 + COVERED_MAX * 18 + 1024 <= MUTATION_BYTES_MAX);
