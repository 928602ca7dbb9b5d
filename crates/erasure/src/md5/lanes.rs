//! The steps of MD5 on words that stand for as many streams as a vector has lanes.
//!
//! Everything is inlined into functions that have the instructions of their vectors enabled. A closure has not: instructions in it become calls.

use super::{Block, State};

/// How far ahead of its blocks each stream is fetched, in blocks. What sixteen bodies have left is in no near cache, and a processor follows fewer streams by itself.
const FETCHED_AHEAD: usize = 8;

/// A vector of 32-bit words, one of each of `N` streams.
pub(super) trait Lanes<const N: usize>: Copy {
    type Word: Copy;

    /// The same value in all lanes.
    fn splat(self, value: u32) -> Self::Word;
    fn load(self, words: &[u32; N]) -> Self::Word;
    fn store(self, word: Self::Word, words: &mut [u32; N]);
    /// Word `i` of all blocks in word `i` of the result.
    fn transpose(self, blocks: [&Block; N]) -> [Self::Word; 16];
    fn add(self, a: Self::Word, b: Self::Word) -> Self::Word;
    /// Rotates to the left by `LEFT`, which is 32 - `RIGHT`.
    fn rotate<const LEFT: i32, const RIGHT: i32>(self, word: Self::Word) -> Self::Word;
    /// Adds RFC 1321's F of `b`, `c` and `d`; so do the others.
    fn add_f(self, sum: Self::Word, b: Self::Word, c: Self::Word, d: Self::Word) -> Self::Word;
    fn add_g(self, sum: Self::Word, b: Self::Word, c: Self::Word, d: Self::Word) -> Self::Word;
    fn add_h(self, sum: Self::Word, b: Self::Word, c: Self::Word, d: Self::Word) -> Self::Word;
    fn add_i(self, sum: Self::Word, b: Self::Word, c: Self::Word, d: Self::Word) -> Self::Word;
}

/// Has what lies there, if anything does, brought into the nearest cache.
#[inline(always)]
fn fetch(block: *const Block) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every processor of this kind has the instruction, which reads nothing: no address is wrong.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(block.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = block;
}

/// Takes the blocks of up to `N` streams, which are of one length, into their states. Lanes that have no stream do again what the last one
/// does, and it is dropped.
///
/// # Panics
/// When there is no stream, more than `N`, or their lengths differ.
#[inline(always)]
pub(super) fn compress<const N: usize, L: Lanes<N>>(lanes: L, states: &mut [State], streams: &[&[Block]]) {
    let last = states.len() - 1;
    assert!(states.len() <= N && streams.len() == states.len());
    let run = streams[0].len();
    assert!(streams.iter().all(|blocks| blocks.len() == run));
    let streams: [&[Block]; N] = std::array::from_fn(|lane| streams[lane.min(last)]);
    let words: [[u32; N]; 4] = std::array::from_fn(|at| std::array::from_fn(|lane| states[lane.min(last)][at]));
    let (mut a, mut b) = (lanes.load(&words[0]), lanes.load(&words[1]));
    let (mut c, mut d) = (lanes.load(&words[2]), lanes.load(&words[3]));
    for at in 0..run {
        let mut blocks: [&Block; N] = [&streams[0][at]; N];
        for (block, stream) in blocks.iter_mut().zip(&streams) {
            *block = &stream[at];
            fetch(stream.as_ptr().wrapping_add(at + FETCHED_AHEAD));
        }
        let words = lanes.transpose(blocks);
        let before = [a, b, c, d];
        macro_rules! step {
            ($f:ident, $a:ident, $b:ident, $c:ident, $d:ident, $word:expr, $left:expr, $constant:expr) => {
                // All but the last two operations can be done before the step before this one has ended.
                let sum = lanes.add(lanes.add(words[$word], lanes.splat($constant)), $a);
                $a = lanes.add(lanes.rotate::<{ $left }, { 32 - $left }>(lanes.$f(sum, $b, $c, $d)), $b);
            };
        }
        macro_rules! four {
            ($f:ident, [$w0:expr, $w1:expr, $w2:expr, $w3:expr], [$s0:expr, $s1:expr, $s2:expr, $s3:expr], [$k0:expr, $k1:expr, $k2:expr, $k3:expr]) => {
                step!($f, a, b, c, d, $w0, $s0, $k0);
                step!($f, d, a, b, c, $w1, $s1, $k1);
                step!($f, c, d, a, b, $w2, $s2, $k2);
                step!($f, b, c, d, a, $w3, $s3, $k3);
            };
        }
        four!(add_f, [0, 1, 2, 3], [7, 12, 17, 22], [0xd76a_a478, 0xe8c7_b756, 0x2420_70db, 0xc1bd_ceee]);
        four!(add_f, [4, 5, 6, 7], [7, 12, 17, 22], [0xf57c_0faf, 0x4787_c62a, 0xa830_4613, 0xfd46_9501]);
        four!(add_f, [8, 9, 10, 11], [7, 12, 17, 22], [0x6980_98d8, 0x8b44_f7af, 0xffff_5bb1, 0x895c_d7be]);
        four!(add_f, [12, 13, 14, 15], [7, 12, 17, 22], [0x6b90_1122, 0xfd98_7193, 0xa679_438e, 0x49b4_0821]);
        four!(add_g, [1, 6, 11, 0], [5, 9, 14, 20], [0xf61e_2562, 0xc040_b340, 0x265e_5a51, 0xe9b6_c7aa]);
        four!(add_g, [5, 10, 15, 4], [5, 9, 14, 20], [0xd62f_105d, 0x0244_1453, 0xd8a1_e681, 0xe7d3_fbc8]);
        four!(add_g, [9, 14, 3, 8], [5, 9, 14, 20], [0x21e1_cde6, 0xc337_07d6, 0xf4d5_0d87, 0x455a_14ed]);
        four!(add_g, [13, 2, 7, 12], [5, 9, 14, 20], [0xa9e3_e905, 0xfcef_a3f8, 0x676f_02d9, 0x8d2a_4c8a]);
        four!(add_h, [5, 8, 11, 14], [4, 11, 16, 23], [0xfffa_3942, 0x8771_f681, 0x6d9d_6122, 0xfde5_380c]);
        four!(add_h, [1, 4, 7, 10], [4, 11, 16, 23], [0xa4be_ea44, 0x4bde_cfa9, 0xf6bb_4b60, 0xbebf_bc70]);
        four!(add_h, [13, 0, 3, 6], [4, 11, 16, 23], [0x289b_7ec6, 0xeaa1_27fa, 0xd4ef_3085, 0x0488_1d05]);
        four!(add_h, [9, 12, 15, 2], [4, 11, 16, 23], [0xd9d4_d039, 0xe6db_99e5, 0x1fa2_7cf8, 0xc4ac_5665]);
        four!(add_i, [0, 7, 14, 5], [6, 10, 15, 21], [0xf429_2244, 0x432a_ff97, 0xab94_23a7, 0xfc93_a039]);
        four!(add_i, [12, 3, 10, 1], [6, 10, 15, 21], [0x655b_59c3, 0x8f0c_cc92, 0xffef_f47d, 0x8584_5dd1]);
        four!(add_i, [8, 15, 6, 13], [6, 10, 15, 21], [0x6fa8_7e4f, 0xfe2c_e6e0, 0xa301_4314, 0x4e08_11a1]);
        four!(add_i, [4, 11, 2, 9], [6, 10, 15, 21], [0xf753_7e82, 0xbd3a_f235, 0x2ad7_d2bb, 0xeb86_d391]);
        a = lanes.add(a, before[0]);
        b = lanes.add(b, before[1]);
        c = lanes.add(c, before[2]);
        d = lanes.add(d, before[3]);
    }
    for (at, word) in [a, b, c, d].into_iter().enumerate() {
        let mut words = [0; N];
        lanes.store(word, &mut words);
        for (state, word) in states.iter_mut().zip(words) {
            state[at] = word;
        }
    }
}
