//! What lies on the targets, one structure per file: size, encode and decode together. Pure; `docs/FORMAT.md` holds the tables.
//!
//! All numbers are little-endian; identifiers are 16 bytes as written in text. Every structure has a magic, a version and its own
//! CRC-64/NVME. Decoders get bytes of unknown origin: they never trust a length and never panic.

mod chunk_header;
mod field;
mod record;
mod seal_block;
mod shard_header;
#[cfg(test)]
mod tests;

pub use chunk_header::stored_bytes;
pub(crate) use chunk_header::{
    CHUNK_HEADER_BYTES_MAX, ChunkHeader, ChunkSpan, FILLED_BYTES_MAX, StripeShape, chunk_header_bytes,
};
pub(crate) use field::FormatError;
pub(crate) use record::{PieceRef, Record, RecordBinding, decode_records, record_bytes};
pub(crate) use seal_block::{SEAL_BLOCK_BYTES, SealBlock, SealReason};
pub(crate) use shard_header::{SHARD_HEADER_BYTES_MAX, ShardHeader, shard_header_bytes};

use gabion_types::limits::CHUNK_ALIGN_BYTES;

/// Rounds up to the unit of the media, 4 KiB.
pub(crate) const fn align(bytes: usize) -> usize {
    bytes.next_multiple_of(CHUNK_ALIGN_BYTES)
}
