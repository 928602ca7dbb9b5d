//! Multiplication by table look-up of half bytes (NEON), for ARM's 64-bit machines.

use std::arch::aarch64::{uint8x16_t, vandq_u8, vdupq_n_u8, veorq_u8, vld1q_u8, vqtbl1q_u8, vshrq_n_u8, vst1q_u8};
use std::arch::is_aarch64_feature_detected;

use super::{Kernel, generic, generic::Simd};
use crate::{Plan, field::MULTIPLES};

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

    fn apply(&self, plan: &Plan, sources: &[&[u8]], outputs: &mut [&mut [u8]]) {
        // SAFETY: `self` proves that the machine has the feature.
        unsafe { apply(*self, plan, sources, outputs) }
    }
}

#[target_feature(enable = "neon")]
fn apply(simd: Neon, plan: &Plan, sources: &[&[u8]], outputs: &mut [&mut [u8]]) {
    generic::apply(simd, plan, sources, outputs);
}

/// Something for the lower and something for the upper half of every byte.
#[derive(Clone, Copy)]
struct Halves {
    low: uint8x16_t,
    high: uint8x16_t,
}

impl Simd<16> for Neon {
    const MANY_REGISTERS: bool = true;
    const ADDS_PAIRS: bool = false;
    type Sum = uint8x16_t;
    type Source = Halves;
    type Factor = Halves;

    #[inline(always)]
    fn zero(self) -> uint8x16_t {
        // SAFETY: `self` proves that the machine has NEON.
        unsafe { vdupq_n_u8(0) }
    }

    #[inline(always)]
    fn factor(self, coefficient: u8) -> Halves {
        let multiples = &MULTIPLES[usize::from(coefficient)];
        // SAFETY: `self` proves that the machine has NEON; the references are good for 16 bytes, unaligned.
        unsafe { Halves { low: vld1q_u8(multiples.low.as_ptr()), high: vld1q_u8(multiples.high.as_ptr()) } }
    }

    #[inline(always)]
    fn load(self, block: &[u8; 16]) -> Halves {
        // SAFETY: `self` proves that the machine has NEON; the reference is good for 16 bytes, unaligned.
        let bytes = unsafe { vld1q_u8(block.as_ptr()) };
        // SAFETY: `self` proves that the machine has NEON.
        unsafe { Halves { low: vandq_u8(bytes, vdupq_n_u8(15)), high: vshrq_n_u8::<4>(bytes) } }
    }

    #[inline(always)]
    fn store(self, sum: uint8x16_t, block: &mut [u8; 16]) {
        // SAFETY: `self` proves that the machine has NEON; the reference is good for 16 bytes, unaligned.
        unsafe { vst1q_u8(block.as_mut_ptr(), sum) }
    }

    #[inline(always)]
    fn add(self, sum: uint8x16_t, source: Halves, factor: Halves) -> uint8x16_t {
        // SAFETY: `self` proves that the machine has NEON.
        unsafe {
            let product = veorq_u8(vqtbl1q_u8(factor.low, source.low), vqtbl1q_u8(factor.high, source.high));
            veorq_u8(sum, product)
        }
    }
}
