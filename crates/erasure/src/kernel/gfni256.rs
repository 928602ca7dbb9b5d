//! GFNI on vectors of 32 bytes (AVX2), for machines without AVX-512.

use std::arch::x86_64::{
    __m256i, _mm256_gf2p8affine_epi64_epi8, _mm256_loadu_si256, _mm256_set1_epi64x, _mm256_setzero_si256,
    _mm256_storeu_si256, _mm256_xor_si256,
};

use super::{Kernel, generic, generic::Simd, gfni::BIT_MATRICES};
use crate::Plan;

/// The kernel, if this machine has its instructions.
pub(super) fn detect() -> Option<&'static dyn Kernel> {
    let present = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("gfni");
    present.then_some(&Gfni256(()))
}

/// Made by [`detect`] only: a value proves that this machine has AVX2 and GFNI.
#[derive(Clone, Copy)]
struct Gfni256(());

impl Kernel for Gfni256 {
    fn name(&self) -> &'static str {
        "gfni-avx2"
    }

    fn apply(&self, plan: &Plan, sources: &[&[u8]], outputs: &mut [&mut [u8]]) {
        // SAFETY: `self` proves that the machine has the features.
        unsafe { apply(*self, plan, sources, outputs) }
    }
}

#[target_feature(enable = "avx2,gfni")]
fn apply(simd: Gfni256, plan: &Plan, sources: &[&[u8]], outputs: &mut [&mut [u8]]) {
    generic::apply(simd, plan, sources, outputs);
}

impl Simd<32> for Gfni256 {
    const MANY_REGISTERS: bool = false;
    const ADDS_PAIRS: bool = false;
    type Sum = __m256i;
    type Source = __m256i;
    type Factor = __m256i;

    #[inline(always)]
    fn zero(self) -> __m256i {
        // SAFETY: `self` proves that the machine has AVX.
        unsafe { _mm256_setzero_si256() }
    }

    #[inline(always)]
    fn factor(self, coefficient: u8) -> __m256i {
        // SAFETY: `self` proves that the machine has AVX.
        unsafe { _mm256_set1_epi64x(BIT_MATRICES[usize::from(coefficient)].cast_signed()) }
    }

    #[inline(always)]
    fn load(self, block: &[u8; 32]) -> __m256i {
        // SAFETY: `self` proves that the machine has AVX; the reference is good for 32 bytes, unaligned.
        unsafe { _mm256_loadu_si256(block.as_ptr().cast()) }
    }

    #[inline(always)]
    fn store(self, sum: __m256i, block: &mut [u8; 32]) {
        // SAFETY: `self` proves that the machine has AVX; the reference is good for 32 bytes, unaligned.
        unsafe { _mm256_storeu_si256(block.as_mut_ptr().cast(), sum) }
    }

    #[inline(always)]
    fn add(self, sum: __m256i, source: __m256i, factor: __m256i) -> __m256i {
        // SAFETY: `self` proves that the machine has AVX2 and GFNI.
        unsafe { _mm256_xor_si256(sum, _mm256_gf2p8affine_epi64_epi8::<0>(source, factor)) }
    }
}
