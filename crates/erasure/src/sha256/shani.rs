//! The instructions for SHA-256 of x86 (SHA-NI).
#![allow(clippy::needless_range_loop, reason = "one number counts lanes of several arrays")]

use std::arch::x86_64::{
    __m128i, _mm_add_epi32, _mm_alignr_epi8, _mm_blend_epi16, _mm_loadu_si128, _mm_set_epi64x, _mm_setzero_si128,
    _mm_sha256msg1_epu32, _mm_sha256msg2_epu32, _mm_sha256rnds2_epu32, _mm_shuffle_epi8, _mm_shuffle_epi32,
    _mm_storeu_si128,
};

use super::{Block, State};

/// Rounds of a block, four of which go with one vector of words.
const STEPS: usize = 16;

/// Words that are added in each round (FIPS 180-4, 4.2.2).
const ROUND_WORDS: [[u32; 4]; STEPS] = [
    [0x428a_2f98, 0x7137_4491, 0xb5c0_fbcf, 0xe9b5_dba5],
    [0x3956_c25b, 0x59f1_11f1, 0x923f_82a4, 0xab1c_5ed5],
    [0xd807_aa98, 0x1283_5b01, 0x2431_85be, 0x550c_7dc3],
    [0x72be_5d74, 0x80de_b1fe, 0x9bdc_06a7, 0xc19b_f174],
    [0xe49b_69c1, 0xefbe_4786, 0x0fc1_9dc6, 0x240c_a1cc],
    [0x2de9_2c6f, 0x4a74_84aa, 0x5cb0_a9dc, 0x76f9_88da],
    [0x983e_5152, 0xa831_c66d, 0xb003_27c8, 0xbf59_7fc7],
    [0xc6e0_0bf3, 0xd5a7_9147, 0x06ca_6351, 0x1429_2967],
    [0x27b7_0a85, 0x2e1b_2138, 0x4d2c_6dfc, 0x5338_0d13],
    [0x650a_7354, 0x766a_0abb, 0x81c2_c92e, 0x9272_2c85],
    [0xa2bf_e8a1, 0xa81a_664b, 0xc24b_8b70, 0xc76c_51a3],
    [0xd192_e819, 0xd699_0624, 0xf40e_3585, 0x106a_a070],
    [0x19a4_c116, 0x1e37_6c08, 0x2748_774c, 0x34b0_bcb5],
    [0x391c_0cb3, 0x4ed8_aa4a, 0x5b9c_ca4f, 0x682e_6ff3],
    [0x748f_82ee, 0x78a5_636f, 0x84c8_7814, 0x8cc7_0208],
    [0x90be_fffa, 0xa450_6ceb, 0xbef9_a3f7, 0xc671_78f2],
];

/// Made by [`detect`] only: a value proves that this machine has the instructions.
#[derive(Clone, Copy)]
pub(super) struct ShaNi(());

/// The kernel, if this machine has its instructions.
pub(super) fn detect() -> Option<ShaNi> {
    (is_x86_feature_detected!("sha") && is_x86_feature_detected!("sse4.1") && is_x86_feature_detected!("ssse3"))
        .then_some(ShaNi(()))
}

impl ShaNi {
    /// Takes as many blocks into each state: of as many as the shortest slice has.
    pub(super) fn compress<const LANES: usize>(self, states: [&mut State; LANES], blocks: [&[Block]; LANES]) {
        // SAFETY: `self` proves that the machine has the features.
        unsafe { compress(states, blocks) }
    }
}

/// A state as the instructions want it: words a, b, e and f in one vector, c, d, g and h in the other, the last ones first.
#[derive(Clone, Copy)]
struct Halves {
    abef: __m128i,
    cdgh: __m128i,
}

/// Nothing is left to closures, which are not bound to be inlined; and steps are written out, so that all words of a block are in registers.
#[target_feature(enable = "sha,sse4.1,ssse3")]
fn compress<const LANES: usize>(states: [&mut State; LANES], blocks: [&[Block]; LANES]) {
    let mut count = usize::MAX;
    let mut halves = [Halves { abef: _mm_setzero_si128(), cdgh: _mm_setzero_si128() }; LANES];
    for lane in 0..LANES {
        count = count.min(blocks[lane].len());
        halves[lane] = unpack(states[lane]);
    }
    for block in 0..count {
        let before = halves;
        let mut words = [[_mm_setzero_si128(); 4]; LANES];
        for lane in 0..LANES {
            words[lane] = load_words(&blocks[lane][block]);
        }
        // Each step of one lane waits for the one before it, and for none of the other lane's.
        macro_rules! steps {
            ($($step:literal)*) => {
                $(for lane in 0..LANES {
                    rounds::<$step>(&mut words[lane], &mut halves[lane]);
                })*
            };
        }
        steps!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
        for lane in 0..LANES {
            halves[lane].abef = _mm_add_epi32(halves[lane].abef, before[lane].abef);
            halves[lane].cdgh = _mm_add_epi32(halves[lane].cdgh, before[lane].cdgh);
        }
    }
    for lane in 0..LANES {
        *states[lane] = pack(halves[lane]);
    }
}

/// Four rounds, whose words follow from those of the sixteen before but in the first steps (FIPS 180-4, 6.2.2).
#[target_feature(enable = "sha,sse4.1,ssse3")]
#[inline]
fn rounds<const STEP: usize>(words: &mut [__m128i; 4], halves: &mut Halves) {
    if STEP >= 4 {
        let [first, second, third, fourth] =
            [words[STEP % 4], words[(STEP + 1) % 4], words[(STEP + 2) % 4], words[(STEP + 3) % 4]];
        let sum = _mm_add_epi32(_mm_sha256msg1_epu32(first, second), _mm_alignr_epi8::<4>(fourth, third));
        words[STEP % 4] = _mm_sha256msg2_epu32(sum, fourth);
    }
    let sum = _mm_add_epi32(words[STEP % 4], load(&ROUND_WORDS[STEP]));
    halves.cdgh = _mm_sha256rnds2_epu32(halves.cdgh, halves.abef, sum);
    halves.abef = _mm_sha256rnds2_epu32(halves.abef, halves.cdgh, _mm_shuffle_epi32::<0x0e>(sum));
}

#[target_feature(enable = "sse4.1,ssse3")]
#[inline]
fn unpack(state: &State) -> Halves {
    let [[a, b, c, d], [e, f, g, h]] = state.as_chunks().0 else { unreachable!("eight words are twice four") };
    let cdab = _mm_shuffle_epi32::<0xb1>(load(&[*a, *b, *c, *d]));
    let efgh = _mm_shuffle_epi32::<0x1b>(load(&[*e, *f, *g, *h]));
    Halves { abef: _mm_alignr_epi8::<8>(cdab, efgh), cdgh: _mm_blend_epi16::<0xf0>(efgh, cdab) }
}

#[target_feature(enable = "sse4.1,ssse3")]
#[inline]
fn pack(halves: Halves) -> State {
    let feba = _mm_shuffle_epi32::<0x1b>(halves.abef);
    let dchg = _mm_shuffle_epi32::<0xb1>(halves.cdgh);
    let mut state = [0; 8];
    let (abcd, efgh) = state.split_at_mut(4);
    store(abcd.try_into().expect("four words"), _mm_blend_epi16::<0xf0>(feba, dchg));
    store(efgh.try_into().expect("four words"), _mm_alignr_epi8::<8>(dchg, feba));
    state
}

/// The words of a block, whose bytes are the highest first.
#[target_feature(enable = "sse4.1,ssse3")]
#[inline]
fn load_words(block: &Block) -> [__m128i; 4] {
    let order = _mm_set_epi64x(0x0c0d_0e0f_0809_0a0b, 0x0405_0607_0001_0203);
    let (quarters, _) = block.as_chunks::<16>();
    let mut words = [_mm_setzero_si128(); 4];
    for at in 0..4 {
        // SAFETY: the reference is good for 16 bytes, unaligned.
        let quarter = unsafe { _mm_loadu_si128(quarters[at].as_ptr().cast()) };
        words[at] = _mm_shuffle_epi8(quarter, order);
    }
    words
}

#[target_feature(enable = "sse4.1")]
#[inline]
fn load(words: &[u32; 4]) -> __m128i {
    // SAFETY: the reference is good for 16 bytes, unaligned.
    unsafe { _mm_loadu_si128(words.as_ptr().cast()) }
}

#[target_feature(enable = "sse4.1")]
#[inline]
fn store(words: &mut [u32; 4], value: __m128i) {
    // SAFETY: as above.
    unsafe { _mm_storeu_si128(words.as_mut_ptr().cast(), value) }
}
