//! Eight streams in vectors of 32 bytes, or sixteen in two of them (AVX2).
#![allow(clippy::needless_range_loop, reason = "iterators are not bound to be inlined: see `lanes`")]

use std::arch::x86_64::{
    __m256i, _mm_loadu_si128, _mm256_add_epi32, _mm256_and_si256, _mm256_andnot_si256, _mm256_castsi128_si256,
    _mm256_inserti128_si256, _mm256_loadu_si256, _mm256_or_si256, _mm256_set1_epi32, _mm256_slli_epi32,
    _mm256_srli_epi32, _mm256_storeu_si256, _mm256_unpackhi_epi32, _mm256_unpackhi_epi64, _mm256_unpacklo_epi32,
    _mm256_unpacklo_epi64, _mm256_xor_si256,
};

use super::lanes::{Lanes, compress};
use super::{Block, Kernel, LANES_MAX, State, scalar};

/// The kernel, if this machine has its instructions.
pub(super) fn detect() -> Option<&'static dyn Kernel> {
    is_x86_feature_detected!("avx2").then_some(&Avx2(()))
}

/// Made by [`detect`] only: a value proves that this machine has AVX2.
#[derive(Clone, Copy)]
struct Avx2(());

impl Kernel for Avx2 {
    fn name(&self) -> &'static str {
        "avx2"
    }

    fn lanes(&self) -> usize {
        LANES_MAX
    }

    fn compress(&self, states: &mut [State], blocks: &[&[Block]]) {
        for (states, blocks) in states.chunks_mut(LANES_MAX).zip(blocks.chunks(LANES_MAX)) {
            // SAFETY: `self` proves that the machine has the feature.
            unsafe {
                match states.len() {
                    1 => scalar::KERNEL.compress(states, blocks),
                    2..=8 => eight(*self, states, blocks),
                    _ => sixteen(*self, states, blocks),
                }
            }
        }
    }
}

#[target_feature(enable = "avx2")]
fn eight(simd: Avx2, states: &mut [State], blocks: &[&[Block]]) {
    compress::<8, _>(simd, states, blocks);
}

#[target_feature(enable = "avx2")]
fn sixteen(simd: Avx2, states: &mut [State], blocks: &[&[Block]]) {
    compress::<16, _>(Two(simd), states, blocks);
}

impl Lanes<8> for Avx2 {
    type Word = __m256i;

    #[inline(always)]
    fn splat(self, value: u32) -> __m256i {
        // SAFETY: `self` proves that the machine has AVX2, for this and all that follow.
        unsafe { _mm256_set1_epi32(value.cast_signed()) }
    }

    #[inline(always)]
    fn load(self, words: &[u32; 8]) -> __m256i {
        // SAFETY: as above; the reference is good for 32 bytes, unaligned.
        unsafe { _mm256_loadu_si256(words.as_ptr().cast()) }
    }

    #[inline(always)]
    fn store(self, word: __m256i, words: &mut [u32; 8]) {
        // SAFETY: as above; the reference is good for 32 bytes, unaligned.
        unsafe { _mm256_storeu_si256(words.as_mut_ptr().cast(), word) }
    }

    /// Streams `i` and `i + 4` share a register; four words of them at a time.
    #[inline(always)]
    fn transpose(self, blocks: [&Block; 8]) -> [__m256i; 16] {
        let mut words = [self.splat(0); 16];
        for quarter in 0..4 {
            // SAFETY: as above; each reference is good for 64 bytes, of which the quarter's 16 are read.
            unsafe {
                let mut rows = [self.splat(0); 4];
                for lane in 0..4 {
                    let low = _mm_loadu_si128(blocks[lane].as_ptr().add(16 * quarter).cast());
                    let high = _mm_loadu_si128(blocks[lane + 4].as_ptr().add(16 * quarter).cast());
                    rows[lane] = _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(low), high);
                }
                let (low, low_hi) = (_mm256_unpacklo_epi32(rows[0], rows[1]), _mm256_unpackhi_epi32(rows[0], rows[1]));
                let (high, high_hi) =
                    (_mm256_unpacklo_epi32(rows[2], rows[3]), _mm256_unpackhi_epi32(rows[2], rows[3]));
                words[4 * quarter] = _mm256_unpacklo_epi64(low, high);
                words[4 * quarter + 1] = _mm256_unpackhi_epi64(low, high);
                words[4 * quarter + 2] = _mm256_unpacklo_epi64(low_hi, high_hi);
                words[4 * quarter + 3] = _mm256_unpackhi_epi64(low_hi, high_hi);
            }
        }
        words
    }

    #[inline(always)]
    fn add(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: as above.
        unsafe { _mm256_add_epi32(a, b) }
    }

    #[inline(always)]
    fn rotate<const LEFT: i32, const RIGHT: i32>(self, word: __m256i) -> __m256i {
        // SAFETY: as above.
        unsafe { _mm256_or_si256(_mm256_slli_epi32::<LEFT>(word), _mm256_srli_epi32::<RIGHT>(word)) }
    }

    #[inline(always)]
    fn add_f(self, sum: __m256i, b: __m256i, c: __m256i, d: __m256i) -> __m256i {
        // SAFETY: as above.
        unsafe { _mm256_add_epi32(sum, _mm256_xor_si256(d, _mm256_and_si256(b, _mm256_xor_si256(c, d)))) }
    }

    /// The two halves have no bit in common, so that they may be added one by one.
    #[inline(always)]
    fn add_g(self, sum: __m256i, b: __m256i, c: __m256i, d: __m256i) -> __m256i {
        // SAFETY: as above.
        unsafe { _mm256_add_epi32(_mm256_add_epi32(sum, _mm256_andnot_si256(d, c)), _mm256_and_si256(d, b)) }
    }

    #[inline(always)]
    fn add_h(self, sum: __m256i, b: __m256i, c: __m256i, d: __m256i) -> __m256i {
        // SAFETY: as above.
        unsafe { _mm256_add_epi32(sum, _mm256_xor_si256(b, _mm256_xor_si256(c, d))) }
    }

    #[inline(always)]
    fn add_i(self, sum: __m256i, b: __m256i, c: __m256i, d: __m256i) -> __m256i {
        let ones = self.splat(u32::MAX);
        // SAFETY: as above.
        unsafe { _mm256_add_epi32(sum, _mm256_xor_si256(c, _mm256_or_si256(b, _mm256_xor_si256(d, ones)))) }
    }
}

/// Two vectors in turn: a step of one fills the time in which the other waits for its step before.
#[derive(Clone, Copy)]
struct Two(Avx2);

macro_rules! both {
    ($($f:ident),*) => {$(
        #[inline(always)]
        fn $f(self, sum: Self::Word, b: Self::Word, c: Self::Word, d: Self::Word) -> Self::Word {
            [self.0.$f(sum[0], b[0], c[0], d[0]), self.0.$f(sum[1], b[1], c[1], d[1])]
        }
    )*};
}

impl Lanes<16> for Two {
    type Word = [__m256i; 2];

    #[inline(always)]
    fn splat(self, value: u32) -> Self::Word {
        [self.0.splat(value); 2]
    }

    #[inline(always)]
    fn load(self, words: &[u32; 16]) -> Self::Word {
        let (halves, _) = words.as_chunks();
        [self.0.load(&halves[0]), self.0.load(&halves[1])]
    }

    #[inline(always)]
    fn store(self, word: Self::Word, words: &mut [u32; 16]) {
        let (halves, _) = words.as_chunks_mut();
        self.0.store(word[0], &mut halves[0]);
        self.0.store(word[1], &mut halves[1]);
    }

    #[inline(always)]
    fn transpose(self, blocks: [&Block; 16]) -> [Self::Word; 16] {
        let (mut lower, mut upper) = ([blocks[0]; 8], [blocks[8]; 8]);
        for lane in 0..8 {
            (lower[lane], upper[lane]) = (blocks[lane], blocks[lane + 8]);
        }
        let (first, second) = (self.0.transpose(lower), self.0.transpose(upper));
        let mut words = [self.splat(0); 16];
        for at in 0..16 {
            words[at] = [first[at], second[at]];
        }
        words
    }

    #[inline(always)]
    fn add(self, a: Self::Word, b: Self::Word) -> Self::Word {
        [self.0.add(a[0], b[0]), self.0.add(a[1], b[1])]
    }

    #[inline(always)]
    fn rotate<const LEFT: i32, const RIGHT: i32>(self, word: Self::Word) -> Self::Word {
        [self.0.rotate::<LEFT, RIGHT>(word[0]), self.0.rotate::<LEFT, RIGHT>(word[1])]
    }

    both!(add_f, add_g, add_h, add_i);
}
