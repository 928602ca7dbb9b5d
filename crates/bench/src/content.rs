//! What an object holds: bytes that follow from its key and the seed, made and checked without remembering anything.
//!
//! The content of an object is a window of one pool of pseudo-random bytes, read around its end. The window starts where the key's hash says, so that two
//! objects differ; the pool's length is a prime above 1 MiB, so that no two stripes or parts of one object are equal and bytes that come back from
//! the wrong place are noticed. Bodies are slices of the pool: a put copies nothing, a verified get costs one comparison per byte.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

/// Bytes of the pool: the smallest prime above 2^20.
const POOL_BYTES: usize = 1_048_583;

/// Largest frame handed to the connection at once, in bytes.
const FRAME_BYTES: usize = 256 * 1024;

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

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The pool that all objects of one run are windows of. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Content {
    pool: Bytes,
    seed: u64,
}

impl Content {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut pool = Vec::with_capacity(POOL_BYTES + 8);
        while pool.len() < POOL_BYTES {
            pool.extend_from_slice(&random.next().to_le_bytes());
        }
        pool.truncate(POOL_BYTES);
        Self { pool: pool.into(), seed }
    }

    /// The bytes of `key`, `len` of them, from the first on.
    pub(crate) fn of(&self, key: &str, len: u64) -> Window {
        let hash = key.bytes().fold(mix(self.seed), |hash, byte| mix(hash ^ u64::from(byte)));
        let start = usize::try_from(hash % POOL_BYTES as u64).expect("below POOL_BYTES");
        Window { pool: self.pool.clone(), position: start, remaining: len }
    }
}

/// What is still to come of an object: an iterator of slices, a request body, or what a response is compared with.
#[derive(Clone)]
pub(crate) struct Window {
    pool: Bytes,
    position: usize,
    remaining: u64,
}

impl Window {
    /// Takes up to `limit` bytes that lie in one piece; empty at the end.
    fn take(&mut self, limit: usize) -> Bytes {
        let whole = usize::try_from(self.remaining).unwrap_or(usize::MAX);
        let len = limit.min(POOL_BYTES - self.position).min(whole);
        let slice = self.pool.slice(self.position..self.position + len);
        self.position = (self.position + len) % POOL_BYTES;
        self.remaining -= len as u64;
        slice
    }

    /// Whether the next bytes of the object are `bytes`; moves past them.
    pub(crate) fn matches(&mut self, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            let expected = self.take(bytes.len());
            if expected.is_empty() || expected != bytes[..expected.len()] {
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

impl Iterator for Window {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        (self.remaining > 0).then(|| self.take(FRAME_BYTES))
    }
}

impl Body for Window {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Poll::Ready(self.next().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.remaining == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.remaining)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes_of(content: &Content, key: &str, len: u64) -> Vec<u8> {
        content.of(key, len).flat_map(|slice| slice.to_vec()).collect()
    }

    #[test]
    fn the_same_key_and_seed_give_the_same_bytes_and_others_differ() {
        let content = Content::new(7);
        let first = bytes_of(&content, "a/1", 3 << 20);
        assert_eq!(first.len(), 3 << 20);
        assert_eq!(first, bytes_of(&Content::new(7), "a/1", 3 << 20));
        assert_ne!(first, bytes_of(&content, "a/2", 3 << 20));
        assert_ne!(first, bytes_of(&Content::new(8), "a/1", 3 << 20));
        assert_ne!(first[..1 << 20], first[1 << 20..2 << 20], "a MiB never repeats the one before it");
    }

    #[test]
    fn a_response_is_matched_whatever_its_frames_are() {
        let content = Content::new(1);
        let body = bytes_of(&content, "key", 2_500_000);
        for frame in [1, 7, 4096, 1_048_583, 2_500_000] {
            if frame == 1 && body.len() > 100_000 {
                let mut window = content.of("key", 1000);
                assert!(body[..1000].chunks(1).all(|chunk| window.matches(chunk)));
                continue;
            }
            let mut window = content.of("key", 2_500_000);
            assert!(body.chunks(frame).all(|chunk| window.matches(chunk)), "frames of {frame}");
            assert_eq!(window.remaining(), 0);
            assert!(!window.matches(b"x"), "a body that is too long");
        }
        let mut damaged = body.clone();
        damaged[2_000_000] ^= 1;
        assert!(!content.of("key", 2_500_000).matches(&damaged));
    }
}
