//! The loop that all SIMD kernels share.
//!
//! What limits it: with operands in the second cache, loads of sources and the multiplications; beyond it, memory.
//! Therefore every source byte is loaded once for all rows of a group, the sums never leave the registers, and
//! outputs are written once. Everything here is inlined into one function per instruction set, which carries the
//! `target_feature` attribute; that is why every function is `inline(always)`, and why loops run over indices:
//! closures and iterator adaptors are not bound to be inlined.
#![allow(clippy::needless_range_loop)]

use crate::{
    Plan,
    plan::{GROUP_ROWS_MAX, Group},
};

/// An instruction set. A value of this type proves that this machine has it.
pub(super) trait Simd<const BYTES: usize>: Copy {
    /// Whether there are 32 vector registers rather than 16.
    const MANY_REGISTERS: bool;
    /// Whether it adds two products at once: see [`Simd::add_pair`].
    const ADDS_PAIRS: bool;
    /// A vector of sums.
    type Sum: Copy;
    /// A vector of source bytes, ready to be multiplied.
    type Source: Copy;
    /// A coefficient, ready to multiply with.
    type Factor: Copy;

    fn zero(self) -> Self::Sum;
    fn factor(self, coefficient: u8) -> Self::Factor;
    fn load(self, block: &[u8; BYTES]) -> Self::Source;
    fn store(self, sum: Self::Sum, block: &mut [u8; BYTES]);
    /// `sum + source · factor`.
    fn add(self, sum: Self::Sum, source: Self::Source, factor: Self::Factor) -> Self::Sum;

    /// `sum + sources[0] · factors[0] + sources[1] · factors[1]`.
    #[inline(always)]
    fn add_pair(self, sum: Self::Sum, sources: [Self::Source; 2], factors: [Self::Factor; 2]) -> Self::Sum {
        self.add(self.add(sum, sources[0], factors[0]), sources[1], factors[1])
    }

    /// Loads fewer than `BYTES` bytes; the rest of the vector is zero.
    #[inline(always)]
    fn load_part(self, part: &[u8]) -> Self::Source {
        let mut block = [0; BYTES];
        block[..part.len()].copy_from_slice(part);
        self.load(&block)
    }

    /// Stores the first bytes of a vector, fewer than `BYTES`.
    #[inline(always)]
    fn store_part(self, sum: Self::Sum, part: &mut [u8]) {
        let mut block = [0; BYTES];
        self.store(sum, &mut block);
        part.copy_from_slice(&block[..part.len()]);
    }
}

/// [`super::Kernel::apply`] for vectors of `BYTES`.
#[inline(always)]
pub(super) fn apply<V: Simd<BYTES>, const BYTES: usize>(
    simd: V,
    plan: &Plan,
    sources: &[&[u8]],
    outputs: &mut [&mut [u8]],
) {
    const { assert!(GROUP_ROWS_MAX == 6) };
    plan.check(sources, outputs);
    let mut rest = outputs;
    for group in plan.groups() {
        let (rows, after) = rest.split_at_mut(group.rows);
        rest = after;
        // How many vectors of a source are under way at once: as many as the registers bear.
        match (group.rows, V::MANY_REGISTERS) {
            (1, true) => pass::<V, BYTES, 1, 4>(simd, &group, sources, rows),
            (2, true) => pass::<V, BYTES, 2, 4>(simd, &group, sources, rows),
            (3, true) => pass::<V, BYTES, 3, 4>(simd, &group, sources, rows),
            (4, true) => pass::<V, BYTES, 4, 2>(simd, &group, sources, rows),
            (5, true) => pass::<V, BYTES, 5, 2>(simd, &group, sources, rows),
            (6, true) => pass::<V, BYTES, 6, 2>(simd, &group, sources, rows),
            (1, false) => pass::<V, BYTES, 1, 4>(simd, &group, sources, rows),
            (2, false) => pass::<V, BYTES, 2, 2>(simd, &group, sources, rows),
            (3, false) => pass::<V, BYTES, 3, 2>(simd, &group, sources, rows),
            (4, false) => pass::<V, BYTES, 4, 2>(simd, &group, sources, rows),
            (5, false) => pass::<V, BYTES, 5, 2>(simd, &group, sources, rows),
            (6, false) => pass::<V, BYTES, 6, 2>(simd, &group, sources, rows),
            _ => unreachable!("a group has 1 to GROUP_ROWS_MAX rows"),
        }
    }
}

/// All `R` rows of a group in one pass, `U` vectors of every slice per step.
#[inline(always)]
fn pass<V: Simd<BYTES>, const BYTES: usize, const R: usize, const U: usize>(
    simd: V,
    group: &Group<'_>,
    sources: &[&[u8]],
    outputs: &mut [&mut [u8]],
) {
    let (coefficients, _) = group.coefficients.as_chunks::<R>();
    let len = sources[0].len();
    let mut at = 0;
    while len - at >= U * BYTES {
        step::<V, BYTES, R, U>(simd, coefficients, sources, outputs, at);
        at += U * BYTES;
    }
    while len - at >= BYTES {
        step::<V, BYTES, R, 1>(simd, coefficients, sources, outputs, at);
        at += BYTES;
    }
    if at < len {
        tail::<V, BYTES, R>(simd, coefficients, sources, outputs, at);
    }
}

/// `U` vectors at offset `at`. Two sources at a time where two products are added at once.
#[inline(always)]
fn step<V: Simd<BYTES>, const BYTES: usize, const R: usize, const U: usize>(
    simd: V,
    coefficients: &[[u8; R]],
    sources: &[&[u8]],
    outputs: &mut [&mut [u8]],
    at: usize,
) {
    let mut sums = [[simd.zero(); U]; R];
    let paired = if V::ADDS_PAIRS { sources.len() & !1 } else { 0 };
    let (pairs, _) = sources[..paired].as_chunks::<2>();
    let (pair_coefficients, _) = coefficients[..paired].as_chunks::<2>();
    for pair in 0..pairs.len() {
        let ([first, second], [a, b]) = (&pairs[pair], &pair_coefficients[pair]);
        let x = load_all::<V, BYTES, U>(simd, first, at);
        let y = load_all::<V, BYTES, U>(simd, second, at);
        for r in 0..R {
            let factors = [simd.factor(a[r]), simd.factor(b[r])];
            for u in 0..U {
                sums[r][u] = simd.add_pair(sums[r][u], [x[u], y[u]], factors);
            }
        }
    }
    for unpaired in paired..sources.len() {
        let x = load_all::<V, BYTES, U>(simd, sources[unpaired], at);
        for r in 0..R {
            let factor = simd.factor(coefficients[unpaired][r]);
            for u in 0..U {
                sums[r][u] = simd.add(sums[r][u], x[u], factor);
            }
        }
    }
    for r in 0..R {
        let (blocks, _) = outputs[r][at..at + U * BYTES].as_chunks_mut::<BYTES>();
        for u in 0..U {
            simd.store(sums[r][u], &mut blocks[u]);
        }
    }
}

/// The `U` vectors of `source` from offset `at` on.
#[inline(always)]
fn load_all<V: Simd<BYTES>, const BYTES: usize, const U: usize>(simd: V, source: &[u8], at: usize) -> [V::Source; U] {
    let (blocks, _) = source[at..at + U * BYTES].as_chunks::<BYTES>();
    let mut loaded = [simd.load(&blocks[0]); U];
    for u in 1..U {
        loaded[u] = simd.load(&blocks[u]);
    }
    loaded
}

/// The last bytes, from offset `at` on, fewer than a vector.
#[inline(always)]
fn tail<V: Simd<BYTES>, const BYTES: usize, const R: usize>(
    simd: V,
    coefficients: &[[u8; R]],
    sources: &[&[u8]],
    outputs: &mut [&mut [u8]],
    at: usize,
) {
    let mut sums = [simd.zero(); R];
    for source in 0..sources.len() {
        let loaded = simd.load_part(&sources[source][at..]);
        for r in 0..R {
            sums[r] = simd.add(sums[r], loaded, simd.factor(coefficients[source][r]));
        }
    }
    for r in 0..R {
        simd.store_part(sums[r], &mut outputs[r][at..]);
    }
}
