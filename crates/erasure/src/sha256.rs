//! SHA-256, of two streams at once.
//!
//! The instructions for SHA-256 wait for each other: two streams in turn take a tenth longer than one. So [`Sha256::update_many`] takes two streams at
//! a time, and the next one when one of them has no bytes left. Source: FIPS 180-4. Where a machine has no such instructions it is that of the crate `sha2`.

#[cfg(target_arch = "x86_64")]
mod shani;

use crate::blocks::{Block, Fill};

type State = [u32; 8];

/// The state before the first byte.
const START: State =
    [0x6a09_e667, 0xbb67_ae85, 0x3c6e_f372, 0xa54f_f53a, 0x510e_527f, 0x9b05_688c, 0x1f83_d9ab, 0x5be0_cd19];

/// A SHA-256 under way.
#[derive(Clone)]
pub struct Sha256 {
    state: State,
    fill: Fill,
}

impl Default for Sha256 {
    fn default() -> Self {
        Self { state: START, fill: Fill::default() }
    }
}

impl Sha256 {
    /// Appends `bytes`.
    pub fn update(&mut self, bytes: &[u8]) {
        let (begun, whole) = self.fill.split(bytes);
        if let Some(begun) = begun {
            compress(&mut self.state, &[begun]);
        }
        compress(&mut self.state, whole);
    }

    /// Appends to many streams at once: two take little more time than one.
    pub fn update_many(streams: &mut [(&mut Sha256, &[u8])]) {
        Self::update_many_with(compress_two, streams);
    }

    /// The same by another way of taking two.
    fn update_many_with(compress_two: CompressTwo, streams: &mut [(&mut Sha256, &[u8])]) {
        let mut left = streams.iter_mut().filter_map(|(sha256, bytes)| {
            let (begun, whole) = sha256.fill.split(bytes);
            if let Some(begun) = begun {
                compress(&mut sha256.state, &[begun]);
            }
            (!whole.is_empty()).then_some((&mut sha256.state, whole))
        });
        let (mut one, mut other) = (left.next(), left.next());
        while let (Some((state, blocks)), Some((second, others))) = (&mut one, &mut other) {
            let run = blocks.len().min(others.len());
            compress_two([state, second], [&blocks[..run], &others[..run]]);
            (*blocks, *others) = (&blocks[run..], &others[run..]);
            if blocks.is_empty() {
                one = left.next();
            }
            if others.is_empty() {
                other = left.next();
            }
        }
        for (state, blocks) in one.into_iter().chain(other) {
            compress(state, blocks);
        }
    }

    /// The digest of all bytes.
    #[must_use]
    pub fn finish(mut self) -> [u8; 32] {
        let (blocks, count) = self.fill.end(u64::to_be_bytes);
        compress(&mut self.state, &blocks[..count]);
        let mut digest = [0; 32];
        for (bytes, word) in digest.as_chunks_mut().0.iter_mut().zip(self.state) {
            *bytes = word.to_be_bytes();
        }
        digest
    }
}

/// Takes as many blocks into each of two states.
type CompressTwo = fn([&mut State; 2], [&[Block]; 2]);

/// Takes blocks into a state.
fn compress(state: &mut State, blocks: &[Block]) {
    #[cfg(target_arch = "x86_64")]
    if let Some(kernel) = shani::detect() {
        return kernel.compress([state], [blocks]);
    }
    by_crate(state, blocks);
}

fn compress_two(states: [&mut State; 2], blocks: [&[Block]; 2]) {
    #[cfg(target_arch = "x86_64")]
    if let Some(kernel) = shani::detect() {
        return kernel.compress(states, blocks);
    }
    two_by_crate(states, blocks);
}

fn two_by_crate(states: [&mut State; 2], blocks: [&[Block]; 2]) {
    for (state, blocks) in states.into_iter().zip(blocks) {
        by_crate(state, blocks);
    }
}

fn by_crate(state: &mut State, blocks: &[Block]) {
    for block in blocks {
        sha2::compress256(state, std::slice::from_ref(block.into()));
    }
}

#[cfg(test)]
mod tests {
    use sha2::Digest;

    use super::*;
    use crate::blocks::BLOCK_BYTES;

    fn bytes(seed: usize, len: usize) -> Vec<u8> {
        (0..len).map(|at| (at * 31 + seed * 7 + (at >> 8)) as u8).collect()
    }

    fn expected(bytes: &[u8]) -> [u8; 32] {
        sha2::Sha256::digest(bytes).into()
    }

    #[test]
    fn all_lengths_in_one_piece_and_in_three() {
        let bytes = bytes(1, 300);
        for len in 0..bytes.len() {
            let bytes = &bytes[..len];
            let mut whole = Sha256::default();
            whole.update(bytes);
            assert_eq!(whole.finish(), expected(bytes), "{len}");
            for first in [0, len.min(1), len / 3, len.min(63), len.min(64), len.min(65)] {
                let mut pieces = Sha256::default();
                let second = first + (len - first) / 2;
                for piece in [&bytes[..first], &bytes[first..second], &bytes[second..]] {
                    pieces.update(piece);
                }
                assert_eq!(pieces.finish(), expected(bytes), "{len} after {first}");
            }
        }
    }

    /// By the instructions, if there are any, and without.
    #[test]
    fn streams_that_go_together_keep_their_own_digests() {
        for way in [compress_two as CompressTwo, two_by_crate] {
            for lens in
                [[64; 6], [0, 1, 5000, 64, 300, 8000], [9000, 100, 65, 128, 7000, 63], [200, 0, 0, 0, 0, 100_000]]
            {
                for count in 0..=lens.len() {
                    let bodies: Vec<_> = (0..count).map(|stream| bytes(stream, lens[stream])).collect();
                    let mut all = vec![Sha256::default(); count];
                    // Twice, so that blocks that were begun go on.
                    for _ in 0..2 {
                        let mut streams: Vec<_> =
                            all.iter_mut().zip(&bodies).map(|(sha256, body)| (sha256, &body[..])).collect();
                        Sha256::update_many_with(way, &mut streams);
                    }
                    for (sha256, body) in all.into_iter().zip(&bodies) {
                        assert_eq!(sha256.finish(), expected(&[&body[..], body].concat()), "{count} of {lens:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn the_crate_takes_blocks_as_the_instructions_do() {
        let bytes = bytes(3, 10 * BLOCK_BYTES);
        let (mut one, mut other) = (START, START);
        compress(&mut one, bytes.as_chunks().0);
        by_crate(&mut other, bytes.as_chunks().0);
        assert_eq!(one, other);
    }
}
