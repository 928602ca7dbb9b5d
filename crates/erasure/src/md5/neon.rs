//! Eight streams in pairs of vectors of 16 bytes (NEON).
//!
//! A step is a chain of five vector operations, each of some two cycles: two vectors at once hide that. (It was never timed: docs/TESTING.md.)
#![allow(clippy::needless_range_loop, reason = "iterators are not bound to be inlined: see `lanes`")]

use std::arch::aarch64::{
    uint32x4_t, uint64x2_t, vaddq_u32, vbslq_u32, vdupq_n_u32, veorq_u32, vld1q_u8, vld1q_u32, vornq_u32,
    vreinterpretq_u32_u8, vreinterpretq_u32_u64, vreinterpretq_u64_u32, vshlq_n_u32, vsriq_n_u32, vst1q_u32,
    vtrn1q_u32, vtrn1q_u64, vtrn2q_u32, vtrn2q_u64,
};
use std::arch::is_aarch64_feature_detected;

use super::lanes::{Lanes, compress};
use super::{Block, Kernel, State, scalar};

const LANES: usize = 8;
/// Fewest streams that are taken together: an estimate, that a scalar step takes about half the cycles of one of these.
const STREAMS_MIN: usize = 3;

/// The kernel, if this machine has its instructions.
pub(super) fn detect() -> Option<&'static dyn Kernel> {
    is_aarch64_feature_detected!("neon").then_some(&Neon(()))
}

/// Made by [`detect`] only: a value proves that this machine has NEON.
#[derive(Clone, Copy)]
struct Neon(());

impl Kernel for Neon {
    fn name(&self) -> &'static str {
        "neon"
    }

    fn lanes(&self) -> usize {
        LANES
    }

    fn compress(&self, states: &mut [State], blocks: &[&[Block]]) {
        for (states, blocks) in states.chunks_mut(LANES).zip(blocks.chunks(LANES)) {
            if states.len() < STREAMS_MIN {
                scalar::KERNEL.compress(states, blocks);
            } else {
                // SAFETY: `self` proves that the machine has the feature.
                unsafe { eight(*self, states, blocks) }
            }
        }
    }
}

#[target_feature(enable = "neon")]
fn eight(simd: Neon, states: &mut [State], blocks: &[&[Block]]) {
    compress::<LANES, _>(simd, states, blocks);
}

/// Word `i` of four streams in vector `i`, from the words of stream `i` in row `i`.
#[inline(always)]
fn transpose_four(rows: [uint32x4_t; 4]) -> [uint32x4_t; 4] {
    // SAFETY: NEON is there, since its vectors are made by `Neon` only, for this and all that follow.
    unsafe {
        let even: [uint64x2_t; 2] =
            [vreinterpretq_u64_u32(vtrn1q_u32(rows[0], rows[1])), vreinterpretq_u64_u32(vtrn1q_u32(rows[2], rows[3]))];
        let odd: [uint64x2_t; 2] =
            [vreinterpretq_u64_u32(vtrn2q_u32(rows[0], rows[1])), vreinterpretq_u64_u32(vtrn2q_u32(rows[2], rows[3]))];
        [
            vreinterpretq_u32_u64(vtrn1q_u64(even[0], even[1])),
            vreinterpretq_u32_u64(vtrn1q_u64(odd[0], odd[1])),
            vreinterpretq_u32_u64(vtrn2q_u64(even[0], even[1])),
            vreinterpretq_u32_u64(vtrn2q_u64(odd[0], odd[1])),
        ]
    }
}

/// The lower four streams, then the upper four.
type Word = [uint32x4_t; 2];

impl Lanes<LANES> for Neon {
    type Word = Word;

    #[inline(always)]
    fn splat(self, value: u32) -> Word {
        // SAFETY: `self` proves that the machine has NEON, for this and all that follow.
        unsafe { [vdupq_n_u32(value); 2] }
    }

    #[inline(always)]
    fn load(self, words: &[u32; LANES]) -> Word {
        // SAFETY: as above; the reference is good for 32 bytes.
        unsafe { [vld1q_u32(words.as_ptr()), vld1q_u32(words.as_ptr().add(4))] }
    }

    #[inline(always)]
    fn store(self, word: Word, words: &mut [u32; LANES]) {
        // SAFETY: as above; the reference is good for 32 bytes.
        unsafe {
            vst1q_u32(words.as_mut_ptr(), word[0]);
            vst1q_u32(words.as_mut_ptr().add(4), word[1]);
        }
    }

    /// Four words of four streams at a time.
    #[inline(always)]
    fn transpose(self, blocks: [&Block; LANES]) -> [Word; 16] {
        let mut words = [self.splat(0); 16];
        for half in 0..2 {
            for quarter in 0..4 {
                let mut rows = [words[0][0]; 4];
                for lane in 0..4 {
                    let block = blocks[4 * half + lane];
                    // SAFETY: as above; the reference is good for 64 bytes, of which the quarter's 16 are read.
                    rows[lane] = unsafe { vreinterpretq_u32_u8(vld1q_u8(block.as_ptr().add(16 * quarter))) };
                }
                let four = transpose_four(rows);
                for at in 0..4 {
                    words[4 * quarter + at][half] = four[at];
                }
            }
        }
        words
    }

    #[inline(always)]
    fn add(self, a: Word, b: Word) -> Word {
        // SAFETY: as above.
        unsafe { [vaddq_u32(a[0], b[0]), vaddq_u32(a[1], b[1])] }
    }

    #[inline(always)]
    fn rotate<const LEFT: i32, const RIGHT: i32>(self, word: Word) -> Word {
        // SAFETY: as above.
        unsafe {
            [
                vsriq_n_u32::<RIGHT>(vshlq_n_u32::<LEFT>(word[0]), word[0]),
                vsriq_n_u32::<RIGHT>(vshlq_n_u32::<LEFT>(word[1]), word[1]),
            ]
        }
    }

    #[inline(always)]
    fn add_f(self, sum: Word, b: Word, c: Word, d: Word) -> Word {
        // SAFETY: as above.
        let f = unsafe { [vbslq_u32(b[0], c[0], d[0]), vbslq_u32(b[1], c[1], d[1])] };
        self.add(sum, f)
    }

    #[inline(always)]
    fn add_g(self, sum: Word, b: Word, c: Word, d: Word) -> Word {
        // SAFETY: as above.
        let g = unsafe { [vbslq_u32(d[0], b[0], c[0]), vbslq_u32(d[1], b[1], c[1])] };
        self.add(sum, g)
    }

    #[inline(always)]
    fn add_h(self, sum: Word, b: Word, c: Word, d: Word) -> Word {
        // SAFETY: as above.
        let h = unsafe { [veorq_u32(b[0], veorq_u32(c[0], d[0])), veorq_u32(b[1], veorq_u32(c[1], d[1]))] };
        self.add(sum, h)
    }

    #[inline(always)]
    fn add_i(self, sum: Word, b: Word, c: Word, d: Word) -> Word {
        // SAFETY: as above.
        let i = unsafe { [veorq_u32(c[0], vornq_u32(b[0], d[0])), veorq_u32(c[1], vornq_u32(b[1], d[1]))] };
        self.add(sum, i)
    }
}
