//! What an object holds: bytes that follow from its key and the seed, made and checked without remembering anything.
//!
//! The content of an object is a window of one pool of pseudo-random bytes, read around its end. The window starts where the key's hash says, so that two
//! objects differ; the pool's length is a prime above 1 MiB, so that no two stripes or parts of one object are equal and bytes that come back from
//! the wrong place are noticed. Bodies are slices of the pool: a put copies nothing, a verified get costs one comparison per byte.

/// Bytes of the pool: the smallest prime above 2^20.
const POOL_BYTES: usize = 1_048_583;

/// Largest slice in bytes; the pool is repeated for that long, so that only its length decides where a slice ends.
const SLICE_BYTES: usize = 256 * 1024;

/// A small generator of good statistical quality (SplitMix64, Steele et al. 2014), one per worker.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number in `0..bound`; `bound` must not be 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).expect("below a usize")
    }
}

/// A hash of 64 bits in which every bit of `z` decides every bit.
pub(crate) fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The pool that all objects of one run are windows of.
pub(crate) struct Content {
    pool: Vec<u8>,
    seed: u64,
}

impl Content {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut pool = Vec::with_capacity(POOL_BYTES + SLICE_BYTES);
        while pool.len() < POOL_BYTES {
            pool.extend_from_slice(&random.next().to_le_bytes());
        }
        pool.truncate(POOL_BYTES);
        pool.extend_from_within(..SLICE_BYTES);
        Self { pool, seed }
    }

    /// What the content and the size of the key with these parts follow from.
    pub(crate) fn hash(&self, parts: [&str; 2]) -> u64 {
        parts.iter().fold(mix(self.seed), |start, part| {
            let (words, rest) = part.as_bytes().as_chunks::<8>();
            let hash = words.iter().fold(start, |hash, word| mix(hash ^ u64::from_le_bytes(*word)));
            rest.iter().fold(hash, |hash, byte| mix(hash ^ u64::from(*byte)))
        })
    }

    /// The bytes of the key with this hash, `len` of them, from the first on.
    pub(crate) fn of(&self, hash: u64, len: u64) -> Window<'_> {
        let position = usize::try_from(hash % POOL_BYTES as u64).expect("below POOL_BYTES");
        Window { pool: &self.pool, position, remaining: len }
    }
}

/// What is still to come of an object: a request body, or what a response is compared with.
#[derive(Clone, Copy)]
pub(crate) struct Window<'a> {
    pool: &'a [u8],
    position: usize,
    remaining: u64,
}

impl std::fmt::Debug for Window<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes from {}", self.remaining, self.position)
    }
}

impl<'a> Window<'a> {
    /// Takes up to `limit` bytes that lie in one piece; empty at the end.
    fn take(&mut self, limit: usize) -> &'a [u8] {
        let whole = usize::try_from(self.remaining).unwrap_or(usize::MAX);
        let len = limit.min(SLICE_BYTES).min(whole);
        let slice = &self.pool[self.position..self.position + len];
        self.position = (self.position + len) % POOL_BYTES;
        self.remaining -= len as u64;
        slice
    }

    /// The next bytes in one piece; empty at the end.
    pub(crate) fn next_slice(&mut self) -> &'a [u8] {
        self.take(SLICE_BYTES)
    }

    /// The next `len` bytes as a window of their own; moves past them.
    pub(crate) fn split_to(&mut self, len: u64) -> Window<'a> {
        let len = len.min(self.remaining);
        let part = Window { remaining: len, ..*self };
        let step = usize::try_from(len % POOL_BYTES as u64).expect("below POOL_BYTES");
        self.position = (self.position + step) % POOL_BYTES;
        self.remaining -= len;
        part
    }

    /// Whether the next bytes of the object are `bytes`; moves past them.
    pub(crate) fn matches(&mut self, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            let expected = self.take(bytes.len());
            if expected.is_empty() || expected != &bytes[..expected.len()] {
                return false;
            }
            bytes = &bytes[expected.len()..];
        }
        true
    }

    /// Bytes not yet taken or matched.
    pub(crate) fn remaining(&self) -> u64 {
        self.remaining
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes_of(mut window: Window<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        while window.remaining() > 0 {
            bytes.extend_from_slice(window.next_slice());
        }
        bytes
    }

    fn body(content: &Content, key: &str, len: u64) -> Vec<u8> {
        bytes_of(content.of(content.hash([key, ""]), len))
    }

    #[test]
    fn the_same_key_and_seed_give_the_same_bytes_and_others_differ() {
        let content = Content::new(7);
        let first = body(&content, "a/1", 3 << 20);
        assert_eq!(first.len(), 3 << 20);
        assert_eq!(first, body(&Content::new(7), "a/1", 3 << 20));
        assert_ne!(first, body(&content, "a/2", 3 << 20));
        assert_ne!(first, body(&Content::new(8), "a/1", 3 << 20));
        assert_ne!(first[..1 << 20], first[1 << 20..2 << 20], "a MiB never repeats the one before it");
    }

    #[test]
    fn a_response_is_matched_whatever_its_pieces_are() {
        let content = Content::new(1);
        let hash = content.hash(["key", ""]);
        let body = body(&content, "key", 2_500_000);
        for piece in [7, 4096, 1_048_583, 2_500_000] {
            let mut window = content.of(hash, 2_500_000);
            assert!(body.chunks(piece).all(|chunk| window.matches(chunk)), "pieces of {piece}");
            assert_eq!(window.remaining(), 0);
            assert!(!window.matches(b"x"), "a body that is too long");
        }
        let mut damaged = body.clone();
        damaged[2_000_000] ^= 1;
        assert!(!content.of(hash, 2_500_000).matches(&damaged));
    }

    #[test]
    fn parts_make_up_the_whole() {
        let content = Content::new(3);
        let mut window = content.of(content.hash(["key", ""]), 5_000_000);
        let whole = bytes_of(window);
        let parts: Vec<u8> = (0..3).flat_map(|_| bytes_of(window.split_to(2_000_000))).collect();
        assert!(whole == parts);
        assert_eq!(window.remaining(), 0);
    }
}
