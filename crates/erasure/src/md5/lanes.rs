//! The steps of MD5 on words that stand for as many streams as a vector has lanes.
//!
//! Everything is inlined into functions that have the instructions of their vectors enabled. A closure has not: instructions in it become calls. Nor are the methods of iterators and slices
//! bound to be inlined where a program is built in several units without link-time optimisation, so that what is done for every block goes by index.
#![allow(clippy::needless_range_loop, reason = "iterators are not bound to be inlined: see above")]

use super::{Block, State};

/// How far ahead of its blocks each stream is fetched, in blocks. What sixteen bodies have left is in no near cache, and a processor follows fewer streams by itself.
const FETCHED_AHEAD: usize = 8;

/// RFC 1321's T: what each of the 64 steps adds.
#[rustfmt::skip]
const CONSTANTS: [u32; 64] = [
    0xd76a_a478, 0xe8c7_b756, 0x2420_70db, 0xc1bd_ceee, 0xf57c_0faf, 0x4787_c62a, 0xa830_4613, 0xfd46_9501,
    0x6980_98d8, 0x8b44_f7af, 0xffff_5bb1, 0x895c_d7be, 0x6b90_1122, 0xfd98_7193, 0xa679_438e, 0x49b4_0821,
    0xf61e_2562, 0xc040_b340, 0x265e_5a51, 0xe9b6_c7aa, 0xd62f_105d, 0x0244_1453, 0xd8a1_e681, 0xe7d3_fbc8,
    0x21e1_cde6, 0xc337_07d6, 0xf4d5_0d87, 0x455a_14ed, 0xa9e3_e905, 0xfcef_a3f8, 0x676f_02d9, 0x8d2a_4c8a,
    0xfffa_3942, 0x8771_f681, 0x6d9d_6122, 0xfde5_380c, 0xa4be_ea44, 0x4bde_cfa9, 0xf6bb_4b60, 0xbebf_bc70,
    0x289b_7ec6, 0xeaa1_27fa, 0xd4ef_3085, 0x0488_1d05, 0xd9d4_d039, 0xe6db_99e5, 0x1fa2_7cf8, 0xc4ac_5665,
    0xf429_2244, 0x432a_ff97, 0xab94_23a7, 0xfc93_a039, 0x655b_59c3, 0x8f0c_cc92, 0xffef_f47d, 0x8584_5dd1,
    0x6fa8_7e4f, 0xfe2c_e6e0, 0xa301_4314, 0x4e08_11a1, 0xf753_7e82, 0xbd3a_f235, 0x2ad7_d2bb, 0xeb86_d391,
];

/// The word of its block that each step adds.
const WORDS: [usize; 64] = {
    let mut words = [0; 64];
    let mut step = 0;
    while step < 64 {
        words[step] = match step / 16 {
            0 => step,
            1 => 5 * step + 1,
            2 => 3 * step + 5,
            _ => 7 * step,
        } % 16;
        step += 1;
    }
    words
};

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
    /// The same word, of which a compiler no longer knows how it was made. Additions can be done in any order, so that compilers put off what could be done early, and add it behind what
    /// each step waits for: a fifth operation, where four are enough. Measured on a Zen 4, it makes AVX-512 a tenth to a fifth faster, one stream by some per cent, and AVX2 no faster.
    #[inline(always)]
    fn opaque(self, word: Self::Word) -> Self::Word {
        word
    }
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
        for lane in 0..N {
            blocks[lane] = &streams[lane][at];
            fetch(streams[lane].as_ptr().wrapping_add(at + FETCHED_AHEAD));
        }
        let words = lanes.transpose(blocks);
        let before = [a, b, c, d];
        macro_rules! step {
            ($f:ident, $a:ident, $b:ident, $c:ident, $d:ident, $step:expr, $left:expr) => {
                // What is added first can be there before the step before this one has ended.
                let sum = lanes.add(lanes.add(words[WORDS[$step]], lanes.splat(CONSTANTS[$step])), $a);
                let sum = lanes.$f(lanes.opaque(sum), $b, $c, $d);
                $a = lanes.add(lanes.rotate::<{ $left }, { 32 - $left }>(sum), $b);
            };
        }
        macro_rules! sixteen {
            ($f:ident, $first:expr, [$s0:expr, $s1:expr, $s2:expr, $s3:expr]) => {
                sixteen!(four $f, $first, $s0, $s1, $s2, $s3);
                sixteen!(four $f, $first + 4, $s0, $s1, $s2, $s3);
                sixteen!(four $f, $first + 8, $s0, $s1, $s2, $s3);
                sixteen!(four $f, $first + 12, $s0, $s1, $s2, $s3);
            };
            (four $f:ident, $first:expr, $s0:expr, $s1:expr, $s2:expr, $s3:expr) => {
                step!($f, a, b, c, d, $first, $s0);
                step!($f, d, a, b, c, $first + 1, $s1);
                step!($f, c, d, a, b, $first + 2, $s2);
                step!($f, b, c, d, a, $first + 3, $s3);
            };
        }
        sixteen!(add_f, 0, [7, 12, 17, 22]);
        sixteen!(add_g, 16, [5, 9, 14, 20]);
        sixteen!(add_h, 32, [4, 11, 16, 23]);
        sixteen!(add_i, 48, [6, 10, 15, 21]);
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
