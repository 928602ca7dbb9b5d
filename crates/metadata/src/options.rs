//! How much memory and journal an embedded index may use.

/// Bounds of an embedded index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IndexOptions {
    /// Memory for blocks of the engine's tables, in bytes.
    pub cache_bytes: u64,
    /// Where the engine begins to write tables so that it can drop its oldest journal, in bytes; at least 64 MiB.
    /// The journal of a running server stays below this plus 128 MiB: it is what a start after a kill must replay.
    pub journal_bytes_max: u64,
    /// Memory for the row cache ([`crate::CachedIndex`]), in bytes.
    pub row_cache_bytes: u64,
}

impl Default for IndexOptions {
    /// 192 MiB of blocks, 64 MiB of journal, 128 MiB of rows.
    fn default() -> Self {
        Self { cache_bytes: 192 << 20, journal_bytes_max: 64 << 20, row_cache_bytes: 128 << 20 }
    }
}
