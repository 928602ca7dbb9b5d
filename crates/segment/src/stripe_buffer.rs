//! The buffer that a large object's bytes are collected in, dealt to the data chunks as they come: received there, or copied once on their way to the targets.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use gabion_platform::Chunk;
use gabion_types::limits::BLOCK_BYTES;
use tokio::sync::OwnedSemaphorePermit;

/// One stripe of a large object while it is being filled; it counts against the log's memory budget until it is dropped or durable, and nobody has a part of it.
#[derive(Debug)]
pub struct StripeBuffer {
    /// Payload of each data chunk so far, cells of 64 KiB dealt round robin, behind room for a header.
    pub(crate) chunks: Vec<Chunk>,
    /// That room: the header of a full stripe is as long.
    pub(crate) front_bytes: usize,
    pub(crate) len: usize,
    capacity: usize,
    /// What it takes of the budget: that counts for as long as anybody has it.
    pub(crate) permit: Arc<OwnedSemaphorePermit>,
}

impl StripeBuffer {
    /// Empty chunks, which have room for `capacity` bytes together behind the `front_bytes` of each.
    pub(crate) fn new(chunks: Vec<Chunk>, front_bytes: usize, capacity: usize, permit: OwnedSemaphorePermit) -> Self {
        Self { chunks, front_bytes, len: 0, capacity, permit: Arc::new(permit) }
    }

    /// Takes as much of the front of `bytes` as there is room for; returns how many bytes that were.
    pub fn put(&mut self, bytes: &[u8]) -> usize {
        let mut taken = 0;
        while taken < bytes.len() && !self.is_full() {
            taken += self.put_in_cell(&bytes[taken..]);
        }
        taken
    }

    /// The same up to the end of the current cell.
    pub fn put_in_cell(&mut self, bytes: &[u8]) -> usize {
        let room = self.room();
        let taken = bytes.len().min(room.len());
        room[..taken].copy_from_slice(&bytes[..taken]);
        self.advance(taken);
        taken
    }

    /// Memory for the bytes that come next, up to the end of their cell; what was there before is in it. Empty when the stripe is full.
    pub fn room(&mut self) -> &mut [u8] {
        let bytes = (BLOCK_BYTES - self.len % BLOCK_BYTES).min(self.remaining());
        let shard = self.shard();
        &mut self.chunks[shard].room()[..bytes]
    }

    /// Takes the first `bytes` of [`StripeBuffer::room`] as the next ones. There must be so many.
    pub fn advance(&mut self, bytes: usize) {
        assert!(bytes <= BLOCK_BYTES - self.len % BLOCK_BYTES, "a cell ends there");
        let shard = self.shard();
        self.chunks[shard].advance(bytes);
        self.len += bytes;
    }

    /// The chunk that the next byte goes to.
    fn shard(&self) -> usize {
        self.len / BLOCK_BYTES % self.chunks.len()
    }

    /// Bytes of the payload that lie in one cell, to be read for as long as it takes. As long as the stripe counts, too.
    #[must_use]
    pub fn part(&self, range: Range<usize>) -> Bytes {
        let (row, cell) = (range.start / BLOCK_BYTES / self.chunks.len(), range.start / BLOCK_BYTES);
        let start = self.front_bytes + row * BLOCK_BYTES + range.start % BLOCK_BYTES;
        assert!(range.start < range.end && range.end <= (cell + 1) * BLOCK_BYTES, "{range:?} is not of one cell");
        self.chunks[cell % self.chunks.len()].part(start..start + range.len(), Arc::clone(&self.permit))
    }

    /// Bytes taken so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing was taken yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes that still fit.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.capacity - self.len
    }

    /// Whether no byte fits any more.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.remaining() == 0
    }
}
