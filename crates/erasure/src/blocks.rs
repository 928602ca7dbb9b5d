//! What digests of the MD4 family have in common: they take in blocks of 64 bytes, and pad the last one with the length (RFC 1321, 3.1 and 3.2).

/// Bytes that are taken in at a time.
pub(crate) const BLOCK_BYTES: usize = 64;

pub(crate) type Block = [u8; BLOCK_BYTES];

/// The bytes of a digest: how many there were, and those that do not fill a block yet.
#[derive(Clone)]
pub(crate) struct Fill {
    bytes: u64,
    rest: Block,
}

impl Default for Fill {
    fn default() -> Self {
        Self { bytes: 0, rest: [0; BLOCK_BYTES] }
    }
}

impl Fill {
    /// Takes of `bytes` what the block that was begun lacks, and returns it if that fills it; then whole blocks, and keeps the rest.
    pub(crate) fn split<'a>(&mut self, bytes: &'a [u8]) -> (Option<Block>, &'a [Block]) {
        let (first, others) = bytes.split_at(self.missing().min(bytes.len()));
        let is_full = !first.is_empty() && self.append(first);
        let begun = is_full.then_some(self.rest);
        let (blocks, tail) = others.as_chunks();
        self.bytes += (blocks.len() * BLOCK_BYTES) as u64;
        self.append(tail);
        (begun, blocks)
    }

    /// Bytes that a block that was begun lacks.
    fn missing(&self) -> usize {
        (BLOCK_BYTES - self.len()) % BLOCK_BYTES
    }

    /// Appends to the block that was begun, which is then full or not.
    fn append(&mut self, bytes: &[u8]) -> bool {
        let len = self.len();
        self.rest[len..len + bytes.len()].copy_from_slice(bytes);
        self.bytes += bytes.len() as u64;
        len + bytes.len() == BLOCK_BYTES
    }

    /// The last blocks, of which there are one or two: what is left, and the padding. `length` writes the number of bits.
    pub(crate) fn end(&self, length: fn(u64) -> [u8; size_of::<u64>()]) -> ([Block; 2], usize) {
        let len = self.len();
        let count = (len + 1 + size_of::<u64>()).div_ceil(BLOCK_BYTES);
        let mut blocks = [[0; BLOCK_BYTES]; 2];
        let bytes = &mut blocks.as_flattened_mut()[..count * BLOCK_BYTES];
        bytes[..len].copy_from_slice(&self.rest[..len]);
        bytes[len] = 0x80;
        let (_, end) = bytes.split_last_chunk_mut().expect("a block is longer");
        *end = length(self.bytes.wrapping_mul(8));
        (blocks, count)
    }

    /// Bytes of a block that was begun.
    fn len(&self) -> usize {
        (self.bytes % BLOCK_BYTES as u64) as usize
    }
}
