//! MD5, S3's entity tag, of many bodies at once.
//!
//! One MD5 is a chain of dependent steps that leaves most of a core idle (some 0.6 GB/s). Independent ones fill it: a vector holds the same word of up to 16 streams, and a step
//! of all costs what a step of one does. So [`Md5::update_many`] takes whatever streams have bytes at the moment. Source: RFC 1321.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod lanes;
#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
mod neon;
mod scalar;
#[cfg(test)]
mod tests;

use std::sync::OnceLock;

use crate::blocks::{BLOCK_BYTES, Block, Fill};

/// Most streams that go through a kernel at a time.
const LANES_MAX: usize = 16;

type State = [u32; 4];

/// The state before the first byte.
const START: State = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];

/// Takes as many blocks into each of up to [`LANES_MAX`] states; all slices of blocks are of one length.
pub trait Kernel: Send + Sync {
    /// Its instruction set.
    fn name(&self) -> &'static str;

    /// Streams that are best taken together.
    fn lanes(&self) -> usize;

    fn compress(&self, states: &mut [State], blocks: &[&[Block]]);
}

/// The kernels that this machine can run, fastest first; the last one runs anywhere.
fn available() -> &'static [&'static dyn Kernel] {
    static KERNELS: OnceLock<Vec<&'static dyn Kernel>> = OnceLock::new();
    KERNELS.get_or_init(detect)
}

#[cfg(target_arch = "x86_64")]
fn detect() -> Vec<&'static dyn Kernel> {
    [avx512::detect(), avx2::detect(), Some(scalar::KERNEL)].into_iter().flatten().collect()
}

#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
fn detect() -> Vec<&'static dyn Kernel> {
    [neon::detect(), Some(scalar::KERNEL)].into_iter().flatten().collect()
}

#[cfg(not(any(target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little"))))]
fn detect() -> Vec<&'static dyn Kernel> {
    vec![scalar::KERNEL]
}

/// An MD5 under way.
#[derive(Clone)]
pub struct Md5 {
    state: State,
    fill: Fill,
}

impl Default for Md5 {
    fn default() -> Self {
        Self { state: START, fill: Fill::default() }
    }
}

impl Md5 {
    /// Appends `bytes`.
    pub fn update(&mut self, bytes: &[u8]) {
        Self::update_many(&mut [(self, bytes)]);
    }

    /// How many streams are best taken together: 16 with AVX-512 or AVX2, 8 with NEON, else 1.
    #[must_use]
    pub fn lanes() -> usize {
        available()[0].lanes()
    }

    /// Appends to many streams at once; the more there are, up to [`Md5::lanes`], the less each costs.
    pub fn update_many(streams: &mut [(&mut Md5, &[u8])]) {
        Self::update_many_with(available()[0], streams);
    }

    /// The kernels of this machine, fastest first, for benches.
    #[doc(hidden)]
    #[must_use]
    pub fn kernels() -> &'static [&'static dyn Kernel] {
        available()
    }

    /// As [`Md5::update_many`], by a kernel of one's choice.
    #[doc(hidden)]
    pub fn update_many_with(kernel: &dyn Kernel, streams: &mut [(&mut Md5, &[u8])]) {
        for group in streams.chunks_mut(LANES_MAX) {
            let lanes = group.len();
            let mut states = [START; LANES_MAX];
            // Blocks that were begun come first, then those that are whole as they are.
            let mut begun = [[[0; BLOCK_BYTES]; 1]; LANES_MAX];
            let mut is_full = [false; LANES_MAX];
            let mut whole = [&[][..]; LANES_MAX];
            for (lane, (md5, bytes)) in group.iter_mut().enumerate() {
                let (full, blocks) = md5.fill.split(bytes);
                is_full[lane] = full.is_some();
                begun[lane] = [full.unwrap_or([0; BLOCK_BYTES])];
                (states[lane], whole[lane]) = (md5.state, blocks);
            }
            let begun: [&[Block]; LANES_MAX] = std::array::from_fn(|lane| &begun[lane][..usize::from(is_full[lane])]);
            advance(kernel, &mut states[..lanes], &begun[..lanes]);
            advance(kernel, &mut states[..lanes], &whole[..lanes]);
            for (state, (md5, _)) in states.into_iter().zip(group) {
                md5.state = state;
            }
        }
    }

    /// The digest of all bytes.
    #[must_use]
    pub fn finish(self) -> [u8; 16] {
        let (blocks, count) = self.end();
        let mut states = [self.state];
        advance(available()[0], &mut states, &[&blocks[..count]]);
        digest(states[0])
    }

    /// The digests of many streams, in their order, whose last blocks are taken together.
    pub fn finish_many(md5s: &[Md5]) -> impl Iterator<Item = [u8; 16]> {
        md5s.chunks(LANES_MAX).flat_map(|group| {
            let mut states = [START; LANES_MAX];
            let mut ends = [([[0; BLOCK_BYTES]; 2], 0); LANES_MAX];
            for ((state, end), md5) in states.iter_mut().zip(&mut ends).zip(group) {
                (*state, *end) = (md5.state, md5.end());
            }
            let blocks: [&[Block]; LANES_MAX] = std::array::from_fn(|lane| &ends[lane].0[..ends[lane].1]);
            advance(available()[0], &mut states[..group.len()], &blocks[..group.len()]);
            states.into_iter().take(group.len()).map(digest)
        })
    }

    /// The last blocks, of which there are one or two.
    fn end(&self) -> ([Block; 2], usize) {
        self.fill.end(u64::to_le_bytes)
    }
}

/// What a last state says.
fn digest(state: State) -> [u8; 16] {
    let mut digest = [0; 16];
    for (bytes, word) in digest.chunks_exact_mut(4).zip(state) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    digest
}

/// Takes all blocks of each stream into its state; streams may have different lengths.
fn advance(kernel: &dyn Kernel, states: &mut [State], streams: &[&[Block]]) {
    let mut left = [&[][..]; LANES_MAX];
    left[..streams.len()].copy_from_slice(streams);
    loop {
        // Those that have blocks left go together, as far as the shortest of them goes.
        let mut live = [0; LANES_MAX];
        let mut lanes = 0;
        for lane in (0..streams.len()).filter(|&lane| !left[lane].is_empty()) {
            live[lanes] = lane;
            lanes += 1;
        }
        let live = &live[..lanes];
        let Some(run) = live.iter().map(|&lane| left[lane].len()).min() else { return };
        let mut packed = [START; LANES_MAX];
        let mut blocks = [&[][..]; LANES_MAX];
        for (to, &lane) in live.iter().enumerate() {
            packed[to] = states[lane];
            (blocks[to], left[lane]) = left[lane].split_at(run);
        }
        kernel.compress(&mut packed[..lanes], &blocks[..lanes]);
        for (from, &lane) in live.iter().enumerate() {
            states[lane] = packed[from];
        }
    }
}
