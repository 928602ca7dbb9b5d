//! Four, eight or sixteen streams (AVX-512): one instruction for any boolean function, one to rotate.
#![allow(clippy::needless_range_loop, reason = "iterators are not bound to be inlined: see `lanes`")]

use std::arch::asm;
use std::arch::x86_64::{
    __m128i, __m256i, __m512i, _mm_add_epi32, _mm_loadu_si128, _mm_rol_epi32, _mm_set1_epi32, _mm_storeu_si128,
    _mm_ternarylogic_epi32, _mm_unpackhi_epi32, _mm_unpackhi_epi64, _mm_unpacklo_epi32, _mm_unpacklo_epi64,
    _mm256_add_epi32, _mm256_castsi128_si256, _mm256_inserti128_si256, _mm256_loadu_si256, _mm256_rol_epi32,
    _mm256_set1_epi32, _mm256_storeu_si256, _mm256_ternarylogic_epi32, _mm256_unpackhi_epi32, _mm256_unpackhi_epi64,
    _mm256_unpacklo_epi32, _mm256_unpacklo_epi64, _mm512_add_epi32, _mm512_loadu_si512, _mm512_rol_epi32,
    _mm512_set1_epi32, _mm512_shuffle_i32x4, _mm512_storeu_si512, _mm512_ternarylogic_epi32, _mm512_unpackhi_epi32,
    _mm512_unpackhi_epi64, _mm512_unpacklo_epi32, _mm512_unpacklo_epi64,
};

use super::lanes::{Lanes, compress};
use super::{Block, Kernel, LANES_MAX, State, scalar};

/// The kernel, if this machine has its instructions.
pub(super) fn detect() -> Option<&'static dyn Kernel> {
    let present =
        is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vl") && is_x86_feature_detected!("avx2");
    present.then_some(&Avx512(()))
}

/// Made by [`detect`] only: a value proves that this machine has AVX-512F, AVX-512VL and AVX2.
#[derive(Clone, Copy)]
struct Avx512(());

impl Kernel for Avx512 {
    fn name(&self) -> &'static str {
        "avx512"
    }

    fn lanes(&self) -> usize {
        LANES_MAX
    }

    fn compress(&self, states: &mut [State], blocks: &[&[Block]]) {
        for (states, blocks) in states.chunks_mut(LANES_MAX).zip(blocks.chunks(LANES_MAX)) {
            // SAFETY: `self` proves that the machine has the features.
            unsafe {
                match states.len() {
                    1 => scalar::KERNEL.compress(states, blocks),
                    2..=4 => four(*self, states, blocks),
                    5..=8 => eight(*self, states, blocks),
                    _ => sixteen(*self, states, blocks),
                }
            }
        }
    }
}

#[target_feature(enable = "avx512f,avx512vl")]
fn four(simd: Avx512, states: &mut [State], blocks: &[&[Block]]) {
    compress::<4, _>(simd, states, blocks);
}

#[target_feature(enable = "avx512f,avx512vl,avx2")]
fn eight(simd: Avx512, states: &mut [State], blocks: &[&[Block]]) {
    compress::<8, _>(simd, states, blocks);
}

#[target_feature(enable = "avx512f")]
fn sixteen(simd: Avx512, states: &mut [State], blocks: &[&[Block]]) {
    compress::<16, _>(simd, states, blocks);
}

/// `b ? c : d`, by the bits of `b`; the table's index is `b c d`.
const F: i32 = 0xca;
/// `d ? b : c`.
const G: i32 = 0xe4;
/// `b ^ c ^ d`.
const H: i32 = 0x96;
/// `c ^ (b | !d)`.
const I: i32 = 0x39;

/// Two rows of two streams each to two words of four: the 4 x 4 transpose inside each 128 bits.
macro_rules! transpose_rows {
    ($rows:expr, $lo32:ident, $hi32:ident, $lo64:ident, $hi64:ident) => {{
        let (low, low_hi) = ($lo32($rows[0], $rows[1]), $hi32($rows[0], $rows[1]));
        let (high, high_hi) = ($lo32($rows[2], $rows[3]), $hi32($rows[2], $rows[3]));
        [$lo64(low, high), $hi64(low, high), $lo64(low_hi, high_hi), $hi64(low_hi, high_hi)]
    }};
}

macro_rules! lanes {
    ($lanes:literal, $word:ty, $set1:ident, $load:ident, $store:ident, $add:ident, $rol:ident, $ternary:ident, $transpose:ident, $opaque:ident) => {
        impl Lanes<$lanes> for Avx512 {
            type Word = $word;

            #[inline(always)]
            fn splat(self, value: u32) -> $word {
                // SAFETY: `self` proves that the machine has the features, for this and all that follow.
                unsafe { $set1(value.cast_signed()) }
            }

            #[inline(always)]
            fn load(self, words: &[u32; $lanes]) -> $word {
                // SAFETY: as above; the reference is good for a whole vector, unaligned.
                unsafe { $load(words.as_ptr().cast()) }
            }

            #[inline(always)]
            fn store(self, word: $word, words: &mut [u32; $lanes]) {
                // SAFETY: as above; the reference is good for a whole vector, unaligned.
                unsafe { $store(words.as_mut_ptr().cast(), word) }
            }

            #[inline(always)]
            fn transpose(self, blocks: [&Block; $lanes]) -> [$word; 16] {
                // SAFETY: as above.
                unsafe { $transpose(blocks) }
            }

            #[inline(always)]
            fn add(self, a: $word, b: $word) -> $word {
                // SAFETY: as above.
                unsafe { $add(a, b) }
            }

            #[inline(always)]
            fn opaque(self, word: $word) -> $word {
                // SAFETY: as above.
                unsafe { $opaque(word) }
            }

            #[inline(always)]
            fn rotate<const LEFT: i32, const RIGHT: i32>(self, word: $word) -> $word {
                // SAFETY: as above.
                unsafe { $rol::<LEFT>(word) }
            }

            #[inline(always)]
            fn add_f(self, sum: $word, b: $word, c: $word, d: $word) -> $word {
                // SAFETY: as above.
                unsafe { $add(sum, $ternary::<F>($opaque(b), c, d)) }
            }

            #[inline(always)]
            fn add_g(self, sum: $word, b: $word, c: $word, d: $word) -> $word {
                // SAFETY: as above.
                unsafe { $add(sum, $ternary::<G>($opaque(b), c, d)) }
            }

            #[inline(always)]
            fn add_h(self, sum: $word, b: $word, c: $word, d: $word) -> $word {
                // SAFETY: as above.
                unsafe { $add(sum, $ternary::<H>($opaque(b), c, d)) }
            }

            #[inline(always)]
            fn add_i(self, sum: $word, b: $word, c: $word, d: $word) -> $word {
                // SAFETY: as above.
                unsafe { $add(sum, $ternary::<I>($opaque(b), c, d)) }
            }
        }
    };
}

lanes!(
    4,
    __m128i,
    _mm_set1_epi32,
    _mm_loadu_si128,
    _mm_storeu_si128,
    _mm_add_epi32,
    _mm_rol_epi32,
    _mm_ternarylogic_epi32,
    transpose_four,
    opaque_four
);
lanes!(
    8,
    __m256i,
    _mm256_set1_epi32,
    _mm256_loadu_si256,
    _mm256_storeu_si256,
    _mm256_add_epi32,
    _mm256_rol_epi32,
    _mm256_ternarylogic_epi32,
    transpose_eight,
    opaque_eight
);
lanes!(
    16,
    __m512i,
    _mm512_set1_epi32,
    _mm512_loadu_si512,
    _mm512_storeu_si512,
    _mm512_add_epi32,
    _mm512_rol_epi32,
    _mm512_ternarylogic_epi32,
    transpose_sixteen,
    opaque_sixteen
);

/// See [`Lanes::opaque`]. The boolean functions overwrite their first operand, so that a copy is made of one of three. It has to be the newest: copies take no time, but what was copied
/// early is waited for (measured on a Zen 4).
macro_rules! opaque {
    ($name:ident, $word:ty, $class:ident, $features:literal) => {
        #[target_feature(enable = $features)]
        #[inline]
        fn $name(mut word: $word) -> $word {
            // SAFETY: it is a comment.
            unsafe {
                asm!("/* {0} */", inout($class) word, options(pure, nomem, nostack, preserves_flags));
            }
            word
        }
    };
}

opaque!(opaque_four, __m128i, xmm_reg, "avx512f,avx512vl");
opaque!(opaque_eight, __m256i, ymm_reg, "avx512f,avx512vl");
opaque!(opaque_sixteen, __m512i, zmm_reg, "avx512f");

/// # Safety
/// The machine has AVX-512VL.
#[inline(always)]
unsafe fn transpose_four(blocks: [&Block; 4]) -> [__m128i; 16] {
    // SAFETY: the caller's promise; each reference is good for 64 bytes, of which the quarter's 16 are read.
    unsafe {
        let mut words = [_mm_set1_epi32(0); 16];
        for quarter in 0..4 {
            let mut rows = [_mm_set1_epi32(0); 4];
            for lane in 0..4 {
                rows[lane] = _mm_loadu_si128(blocks[lane].as_ptr().add(16 * quarter).cast());
            }
            let four =
                transpose_rows!(rows, _mm_unpacklo_epi32, _mm_unpackhi_epi32, _mm_unpacklo_epi64, _mm_unpackhi_epi64);
            for at in 0..4 {
                words[4 * quarter + at] = four[at];
            }
        }
        words
    }
}

/// Streams `i` and `i + 4` share a register.
///
/// # Safety
/// The machine has AVX2.
#[inline(always)]
unsafe fn transpose_eight(blocks: [&Block; 8]) -> [__m256i; 16] {
    // SAFETY: the caller's promise; each reference is good for 64 bytes, of which the quarter's 16 are read.
    unsafe {
        let mut words = [_mm256_set1_epi32(0); 16];
        for quarter in 0..4 {
            let mut rows = [_mm256_set1_epi32(0); 4];
            for lane in 0..4 {
                let low = _mm_loadu_si128(blocks[lane].as_ptr().add(16 * quarter).cast());
                let high = _mm_loadu_si128(blocks[lane + 4].as_ptr().add(16 * quarter).cast());
                rows[lane] = _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(low), high);
            }
            let four = transpose_rows!(
                rows,
                _mm256_unpacklo_epi32,
                _mm256_unpackhi_epi32,
                _mm256_unpacklo_epi64,
                _mm256_unpackhi_epi64
            );
            for at in 0..4 {
                words[4 * quarter + at] = four[at];
            }
        }
        words
    }
}

/// First inside the 128 bits of four streams each, then the quarters of them.
///
/// # Safety
/// The machine has AVX-512F.
#[inline(always)]
unsafe fn transpose_sixteen(blocks: [&Block; 16]) -> [__m512i; 16] {
    // SAFETY: the caller's promise; each reference is good for 64 bytes.
    unsafe {
        let mut inner = [[_mm512_set1_epi32(0); 4]; 4];
        for four in 0..4 {
            let mut rows = [_mm512_set1_epi32(0); 4];
            for lane in 0..4 {
                rows[lane] = _mm512_loadu_si512(blocks[4 * four + lane].as_ptr().cast());
            }
            inner[four] = transpose_rows!(
                rows,
                _mm512_unpacklo_epi32,
                _mm512_unpackhi_epi32,
                _mm512_unpacklo_epi64,
                _mm512_unpackhi_epi64
            );
        }
        let mut words = [_mm512_set1_epi32(0); 16];
        for at in 0..4 {
            let low = _mm512_shuffle_i32x4::<0x44>(inner[0][at], inner[1][at]);
            let low_hi = _mm512_shuffle_i32x4::<0xee>(inner[0][at], inner[1][at]);
            let high = _mm512_shuffle_i32x4::<0x44>(inner[2][at], inner[3][at]);
            let high_hi = _mm512_shuffle_i32x4::<0xee>(inner[2][at], inner[3][at]);
            words[at] = _mm512_shuffle_i32x4::<0x88>(low, high);
            words[4 + at] = _mm512_shuffle_i32x4::<0xdd>(low, high);
            words[8 + at] = _mm512_shuffle_i32x4::<0x88>(low_hi, high_hi);
            words[12 + at] = _mm512_shuffle_i32x4::<0xdd>(low_hi, high_hi);
        }
        words
    }
}
