//! GFNI on vectors of 64 bytes (AVX-512BW).

use std::arch::x86_64::{
    __m512i, _mm512_gf2p8affine_epi64_epi8, _mm512_loadu_si512, _mm512_mask_storeu_epi8, _mm512_maskz_loadu_epi8,
    _mm512_set1_epi64, _mm512_setzero_si512, _mm512_storeu_si512, _mm512_ternarylogic_epi64, _mm512_xor_si512,
};

use super::{Kernel, generic, generic::Simd, gfni::BIT_MATRICES};
use crate::Plan;

/// The kernel, if this machine has its instructions.
pub(super) fn detect() -> Option<&'static dyn Kernel> {
    let present =
        is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw") && is_x86_feature_detected!("gfni");
    present.then_some(&Gfni512(()))
}

/// Made by [`detect`] only: a value proves that this machine has AVX-512F, AVX-512BW and GFNI.
#[derive(Clone, Copy)]
struct Gfni512(());

impl Kernel for Gfni512 {
    fn name(&self) -> &'static str {
        "gfni-avx512"
    }

    fn apply(&self, plan: &Plan, sources: &[&[u8]], outputs: &mut [&mut [u8]]) {
        // SAFETY: `self` proves that the machine has the features.
        unsafe { apply(*self, plan, sources, outputs) }
    }
}

#[target_feature(enable = "avx512f,avx512bw,gfni")]
fn apply(simd: Gfni512, plan: &Plan, sources: &[&[u8]], outputs: &mut [&mut [u8]]) {
    generic::apply(simd, plan, sources, outputs);
}

/// The lanes of the first `len` bytes, at most 63.
#[inline(always)]
fn mask(len: usize) -> u64 {
    (1 << len) - 1
}

impl Simd<64> for Gfni512 {
    const MANY_REGISTERS: bool = true;
    const ADDS_PAIRS: bool = true;
    type Sum = __m512i;
    type Source = __m512i;
    type Factor = __m512i;

    #[inline(always)]
    fn zero(self) -> __m512i {
        // SAFETY: `self` proves that the machine has AVX-512F.
        unsafe { _mm512_setzero_si512() }
    }

    #[inline(always)]
    fn factor(self, coefficient: u8) -> __m512i {
        // SAFETY: `self` proves that the machine has AVX-512F.
        unsafe { _mm512_set1_epi64(BIT_MATRICES[usize::from(coefficient)].cast_signed()) }
    }

    #[inline(always)]
    fn load(self, block: &[u8; 64]) -> __m512i {
        // SAFETY: `self` proves that the machine has AVX-512F; the reference is good for 64 bytes, unaligned.
        unsafe { _mm512_loadu_si512(block.as_ptr().cast()) }
    }

    #[inline(always)]
    fn store(self, sum: __m512i, block: &mut [u8; 64]) {
        // SAFETY: `self` proves that the machine has AVX-512F; the reference is good for 64 bytes, unaligned.
        unsafe { _mm512_storeu_si512(block.as_mut_ptr().cast(), sum) }
    }

    #[inline(always)]
    fn add(self, sum: __m512i, source: __m512i, factor: __m512i) -> __m512i {
        // SAFETY: `self` proves that the machine has AVX-512F and GFNI.
        unsafe { _mm512_xor_si512(sum, _mm512_gf2p8affine_epi64_epi8::<0>(source, factor)) }
    }

    /// One ternary instruction adds both products.
    #[inline(always)]
    fn add_pair(self, sum: __m512i, sources: [__m512i; 2], factors: [__m512i; 2]) -> __m512i {
        const XOR_OF_THREE: i32 = 0x96;
        // SAFETY: `self` proves that the machine has AVX-512F and GFNI.
        unsafe {
            _mm512_ternarylogic_epi64::<XOR_OF_THREE>(
                sum,
                _mm512_gf2p8affine_epi64_epi8::<0>(sources[0], factors[0]),
                _mm512_gf2p8affine_epi64_epi8::<0>(sources[1], factors[1]),
            )
        }
    }

    #[inline(always)]
    fn load_part(self, part: &[u8]) -> __m512i {
        // SAFETY: `self` proves that the machine has AVX-512BW; lanes that the mask leaves out are not read.
        unsafe { _mm512_maskz_loadu_epi8(mask(part.len()), part.as_ptr().cast()) }
    }

    #[inline(always)]
    fn store_part(self, sum: __m512i, part: &mut [u8]) {
        // SAFETY: `self` proves that the machine has AVX-512BW; lanes that the mask leaves out are not written.
        unsafe { _mm512_mask_storeu_epi8(part.as_mut_ptr().cast(), mask(part.len()), sum) }
    }
}
