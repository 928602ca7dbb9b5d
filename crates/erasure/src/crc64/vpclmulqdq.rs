//! CRC-64/NVME by carry-less products of two 64-bit pairs at a time (VPCLMULQDQ with 256 bits).
//!
//! `crc-fast` has this for 512 bits, and 128 bits for all other x86. In between are AMD's Zen 3 and Intel's client processors since Alder Lake, where two products cost what one does.
//! Source: V. Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel 2009.

use std::arch::x86_64::{
    __m128i, __m256i, _mm_clmulepi64_si128, _mm_set_epi64x, _mm_storeu_si128, _mm_xor_si128,
    _mm256_broadcastsi128_si256, _mm256_castsi256_si128, _mm256_clmulepi64_epi128, _mm256_extracti128_si256,
    _mm256_loadu_si256, _mm256_set_epi64x, _mm256_xor_si256,
};

use crate::ring::CRC64_NVME;

/// Vectors that are folded side by side, each in the time that the others' products take.
const VECTORS: usize = 4;
/// Bytes that are taken in at a time.
pub(super) const STEP_BYTES: usize = VECTORS * 32;
/// Bytes that steps are folded to.
pub(super) const FOLDED_BYTES: usize = 16;

/// What moves 16 bytes past `bits` more: the factors of their first and their second half. A product of two reflected polynomials is short of one power of x.
const fn past(bits: u32) -> (i64, i64) {
    (CRC64_NVME.power(bits + 63).cast_signed(), CRC64_NVME.power(bits - 1).cast_signed())
}

const PAST_A_STEP: (i64, i64) = past(STEP_BYTES as u32 * 8);
/// Of each half of a vector but the last what moves it to the last.
const PAST_HALVES: [(i64, i64); 2 * VECTORS - 1] = {
    let mut halves = [(0, 0); 2 * VECTORS - 1];
    let mut at = 0;
    while at < halves.len() {
        halves[at] = past((halves.len() - at) as u32 * 128);
        at += 1;
    }
    halves
};

/// Made by [`Folding::detect`] only: a value proves that this machine has AVX2, VPCLMULQDQ and PCLMULQDQ.
#[derive(Clone, Copy)]
pub(super) struct Folding(());

impl Folding {
    pub(super) fn detect() -> Option<Self> {
        let present = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("vpclmulqdq")
            && is_x86_feature_detected!("pclmulqdq");
        present.then_some(Self(()))
    }

    /// The bytes that lead a register of zero to where `steps` lead `register`.
    ///
    /// # Panics
    /// When there is no step.
    pub(super) fn fold(self, register: u64, steps: &[[u8; STEP_BYTES]]) -> [u8; FOLDED_BYTES] {
        // SAFETY: `self` proves that the machine has the features.
        unsafe { fold(register, steps) }
    }
}

#[target_feature(enable = "avx2,vpclmulqdq,pclmulqdq")]
fn fold(register: u64, steps: &[[u8; STEP_BYTES]]) -> [u8; FOLDED_BYTES] {
    let (first, others) = steps.split_first().expect("there is a step");
    // No closures: instructions in them become calls.
    let mut sums: [__m256i; VECTORS] = [vector(first, 0), vector(first, 1), vector(first, 2), vector(first, 3)];
    sums[0] = _mm256_xor_si256(sums[0], _mm256_set_epi64x(0, 0, 0, register.cast_signed()));
    let factors = _mm256_broadcastsi128_si256(factors(PAST_A_STEP));
    for step in others {
        for (at, sum) in sums.iter_mut().enumerate() {
            let first = _mm256_clmulepi64_epi128::<0x00>(*sum, factors);
            let second = _mm256_clmulepi64_epi128::<0x11>(*sum, factors);
            *sum = _mm256_xor_si256(_mm256_xor_si256(first, second), vector(step, at));
        }
    }
    let [.., last] = sums;
    let mut folded = _mm256_extracti128_si256::<1>(last);
    for (at, past) in PAST_HALVES.into_iter().enumerate() {
        let half = match at % 2 {
            0 => _mm256_castsi256_si128(sums[at / 2]),
            _ => _mm256_extracti128_si256::<1>(sums[at / 2]),
        };
        folded = _mm_xor_si128(folded, product(half, past));
    }
    let mut bytes = [0; FOLDED_BYTES];
    // SAFETY: the array has the 16 bytes that are written, at any address.
    unsafe { _mm_storeu_si128(bytes.as_mut_ptr().cast(), folded) };
    bytes
}

#[inline]
#[target_feature(enable = "avx2")]
fn vector(step: &[u8; STEP_BYTES], at: usize) -> __m256i {
    let (vectors, _) = step.as_chunks::<32>();
    // SAFETY: a chunk has the 32 bytes that are read, at any address.
    unsafe { _mm256_loadu_si256(vectors[at].as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "sse2")]
fn factors((first, second): (i64, i64)) -> __m128i {
    _mm_set_epi64x(second, first)
}

#[inline]
#[target_feature(enable = "pclmulqdq")]
fn product(half: __m128i, past: (i64, i64)) -> __m128i {
    let factors = factors(past);
    _mm_xor_si128(_mm_clmulepi64_si128::<0x00>(half, factors), _mm_clmulepi64_si128::<0x11>(half, factors))
}
