//! One stream at a time, on any machine.

use super::lanes::{Lanes, compress};
use super::{Block, Kernel, State};

/// The kernel.
pub(super) const KERNEL: &dyn Kernel = &Scalar;

#[derive(Clone, Copy)]
struct Scalar;

impl Kernel for Scalar {
    fn name(&self) -> &'static str {
        "scalar"
    }

    fn lanes(&self) -> usize {
        1
    }

    fn compress(&self, states: &mut [State], blocks: &[&[Block]]) {
        for (state, blocks) in states.iter_mut().zip(blocks) {
            compress::<1, _>(Scalar, std::slice::from_mut(state), &[blocks]);
        }
    }
}

/// See [`Lanes::opaque`].
#[inline(always)]
fn opaque(word: u32) -> u32 {
    #[cfg(target_arch = "x86_64")]
    let word = {
        let mut word = word;
        // SAFETY: it is a comment.
        unsafe {
            std::arch::asm!("/* {0:e} */", inout(reg) word, options(pure, nomem, nostack, preserves_flags));
        }
        word
    };
    word
}

impl Lanes<1> for Scalar {
    type Word = u32;

    #[inline(always)]
    fn splat(self, value: u32) -> u32 {
        value
    }

    #[inline(always)]
    fn load(self, words: &[u32; 1]) -> u32 {
        words[0]
    }

    #[inline(always)]
    fn store(self, word: u32, words: &mut [u32; 1]) {
        words[0] = word;
    }

    #[inline(always)]
    fn transpose(self, blocks: [&Block; 1]) -> [u32; 16] {
        let (words, _) = blocks[0].as_chunks::<4>();
        std::array::from_fn(|at| u32::from_le_bytes(words[at]))
    }

    #[inline(always)]
    fn add(self, a: u32, b: u32) -> u32 {
        a.wrapping_add(b)
    }

    #[inline(always)]
    fn opaque(self, word: u32) -> u32 {
        opaque(word)
    }

    #[inline(always)]
    fn rotate<const LEFT: i32, const RIGHT: i32>(self, word: u32) -> u32 {
        word.rotate_left(LEFT.cast_unsigned())
    }

    #[inline(always)]
    fn add_f(self, sum: u32, b: u32, c: u32, d: u32) -> u32 {
        sum.wrapping_add(d ^ (b & (c ^ d)))
    }

    /// The two halves have no bit in common, so that they may be added one by one: `d` need not wait for `b`.
    #[inline(always)]
    fn add_g(self, sum: u32, b: u32, c: u32, d: u32) -> u32 {
        opaque(sum.wrapping_add(c & !d)).wrapping_add(b & d)
    }

    #[inline(always)]
    fn add_h(self, sum: u32, b: u32, c: u32, d: u32) -> u32 {
        sum.wrapping_add(b ^ c ^ d)
    }

    #[inline(always)]
    fn add_i(self, sum: u32, b: u32, c: u32, d: u32) -> u32 {
        sum.wrapping_add(c ^ (b | !d))
    }
}
