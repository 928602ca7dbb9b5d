//! The buffer that a large object's bytes are collected in, dealt to the data chunks as they come: the one copy on their way to the targets.

use bytes::BytesMut;
use gabion_types::limits::BLOCK_BYTES;
use tokio::sync::OwnedSemaphorePermit;

/// One stripe of a large object while it is being filled; it counts against the log's memory budget until it is dropped or durable.
#[derive(Debug)]
pub struct StripeBuffer {
    /// Payload of each data chunk so far, cells of 64 KiB dealt round robin, behind room for a header.
    pub(crate) chunks: Vec<BytesMut>,
    /// That room: the header of a full stripe is as long.
    pub(crate) front_bytes: usize,
    pub(crate) len: usize,
    capacity: usize,
    pub(crate) permit: OwnedSemaphorePermit,
}

impl StripeBuffer {
    /// Empty chunks, and how many bytes they take together beside the room of `front_bytes` in each.
    pub(crate) fn new(
        mut chunks: Vec<BytesMut>,
        front_bytes: usize,
        capacity: usize,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        chunks.iter_mut().for_each(|chunk| chunk.resize(front_bytes, 0));
        Self { chunks, front_bytes, len: 0, capacity, permit }
    }

    /// Takes as much of the front of `bytes` as there is room for; returns how many bytes that were.
    pub fn put(&mut self, bytes: &[u8]) -> usize {
        let taken = bytes.len().min(self.remaining());
        let mut rest = &bytes[..taken];
        while !rest.is_empty() {
            let shard = self.len / BLOCK_BYTES % self.chunks.len();
            let (now, later) = rest.split_at(rest.len().min(BLOCK_BYTES - self.len % BLOCK_BYTES));
            self.chunks[shard].extend_from_slice(now);
            self.len += now.len();
            rest = later;
        }
        taken
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
