//! What is coded in the benches.

use std::num::NonZeroUsize;

use gabion_erasure::{Codec, crc64};

/// Bytes that have a checksum of their own on disk.
pub(crate) const BLOCK: NonZeroUsize = NonZeroUsize::new(gabion_types::limits::BLOCK_BYTES).expect("it is not zero");

/// `count` shards of arbitrary bytes, each at the start of a cache line, as buffers of this size are. Their distance is no
/// power of two, or they would meet in the same cache sets.
pub(crate) struct Shards {
    bytes: Vec<u8>,
    first: usize,
    len: usize,
}

impl Shards {
    const LINE_BYTES: usize = 64;
    const GAP_BYTES: usize = 4096 + 256;

    pub(crate) fn new(count: usize, len: usize) -> Self {
        let pattern = |index: usize| (index.wrapping_mul(0x9e37_79b9) >> 16) as u8;
        let bytes: Vec<u8> = (0..count * (len + Self::GAP_BYTES) + Self::LINE_BYTES).map(pattern).collect();
        Self { first: bytes.as_ptr().align_offset(Self::LINE_BYTES), bytes, len }
    }

    pub(crate) fn slices(&self) -> Vec<&[u8]> {
        let shards = self.bytes[self.first..].chunks_exact(self.len + Self::GAP_BYTES);
        shards.map(|shard| &shard[..self.len]).collect()
    }

    pub(crate) fn slices_mut(&mut self) -> Vec<&mut [u8]> {
        let shards = self.bytes[self.first..].chunks_exact_mut(self.len + Self::GAP_BYTES);
        shards.map(|shard| &mut shard[..self.len]).collect()
    }
}

/// What [`Codec::encode_with_crcs`] gives, in passes of their own.
pub(crate) fn encode_then_crcs(codec: &Codec, data: &[&[u8]], parity: &mut [&mut [u8]]) -> Vec<Vec<u64>> {
    codec.encode(data, parity).expect("shards fit");
    let shards = data.iter().copied().chain(parity.iter().map(|shard| &**shard));
    shards.map(|shard| shard.chunks(BLOCK.get()).map(crc64).collect()).collect()
}
