//! Multiplication by table look-up of half bytes (AVX2), for machines without GFNI.

use std::arch::x86_64::{
    __m128i, __m256i, _mm_loadu_si128, _mm256_and_si256, _mm256_broadcastsi128_si256, _mm256_loadu_si256,
    _mm256_set1_epi8, _mm256_setzero_si256, _mm256_shuffle_epi8, _mm256_srli_epi64, _mm256_storeu_si256,
    _mm256_xor_si256,
};

use super::{Kernel, generic, generic::Simd};
use crate::{Plan, field::MULTIPLES};

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

    fn apply(&self, plan: &Plan, sources: &[&[u8]], outputs: &mut [&mut [u8]]) {
        // SAFETY: `self` proves that the machine has the feature.
        unsafe { apply(*self, plan, sources, outputs) }
    }
}

#[target_feature(enable = "avx2")]
fn apply(simd: Avx2, plan: &Plan, sources: &[&[u8]], outputs: &mut [&mut [u8]]) {
    generic::apply(simd, plan, sources, outputs);
}

/// Something for the lower and something for the upper half of every byte.
#[derive(Clone, Copy)]
struct Halves {
    low: __m256i,
    high: __m256i,
}

impl Avx2 {
    /// A table of 16 bytes in both lanes: the shuffle looks up within its lane.
    #[inline(always)]
    fn table(self, table: &[u8; 16]) -> __m256i {
        // SAFETY: the reference is good for 16 bytes, unaligned; SSE2 is part of the architecture.
        let table: __m128i = unsafe { _mm_loadu_si128(table.as_ptr().cast()) };
        // SAFETY: `self` proves that the machine has AVX2.
        unsafe { _mm256_broadcastsi128_si256(table) }
    }
}

impl Simd<32> for Avx2 {
    const MANY_REGISTERS: bool = false;
    const ADDS_PAIRS: bool = false;
    type Sum = __m256i;
    type Source = Halves;
    type Factor = Halves;

    #[inline(always)]
    fn zero(self) -> __m256i {
        // SAFETY: `self` proves that the machine has AVX.
        unsafe { _mm256_setzero_si256() }
    }

    #[inline(always)]
    fn factor(self, coefficient: u8) -> Halves {
        let multiples = &MULTIPLES[usize::from(coefficient)];
        Halves { low: self.table(&multiples.low), high: self.table(&multiples.high) }
    }

    #[inline(always)]
    fn load(self, block: &[u8; 32]) -> Halves {
        // SAFETY: `self` proves that the machine has AVX; the reference is good for 32 bytes, unaligned.
        let bytes = unsafe { _mm256_loadu_si256(block.as_ptr().cast()) };
        // SAFETY: `self` proves that the machine has AVX2.
        unsafe {
            let half = _mm256_set1_epi8(15);
            Halves { low: _mm256_and_si256(bytes, half), high: _mm256_and_si256(_mm256_srli_epi64::<4>(bytes), half) }
        }
    }

    #[inline(always)]
    fn store(self, sum: __m256i, block: &mut [u8; 32]) {
        // SAFETY: `self` proves that the machine has AVX; the reference is good for 32 bytes, unaligned.
        unsafe { _mm256_storeu_si256(block.as_mut_ptr().cast(), sum) }
    }

    #[inline(always)]
    fn add(self, sum: __m256i, source: Halves, factor: Halves) -> __m256i {
        // SAFETY: `self` proves that the machine has AVX2.
        unsafe {
            let product = _mm256_xor_si256(
                _mm256_shuffle_epi8(factor.low, source.low),
                _mm256_shuffle_epi8(factor.high, source.high),
            );
            _mm256_xor_si256(sum, product)
        }
    }
}
