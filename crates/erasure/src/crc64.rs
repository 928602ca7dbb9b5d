//! CRC-64/NVME: the checksum of blocks on disk, and S3's `x-amz-checksum-crc64nvme`.

#[cfg(target_arch = "x86_64")]
mod vpclmulqdq;

use crc_fast::{CrcAlgorithm, Digest};
#[cfg(target_arch = "x86_64")]
use vpclmulqdq::Folding;

use crate::ring::CRC64_NVME;

/// Bytes below which crc-fast is as fast.
#[cfg(target_arch = "x86_64")]
const FOLDING_BYTES_MIN: usize = 1024;

/// CRC-64/NVME of `bytes`.
#[must_use]
pub fn crc64(bytes: &[u8]) -> u64 {
    extend(0, bytes)
}

/// The checksum of `AB` from that of `A` and the bytes of `B`.
fn extend(crc: u64, bytes: &[u8]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if bytes.len() >= FOLDING_BYTES_MIN
        // With it, crc-fast takes 512 bits at a time.
        && !is_x86_feature_detected!("avx512vl")
        && let Some(folding) = Folding::detect()
    {
        return extend_by(folding, crc, bytes);
    }
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc64Nvme, !crc);
    digest.update(bytes);
    digest.finalize()
}

/// The same for at least [`vpclmulqdq::STEP_BYTES`].
#[cfg(target_arch = "x86_64")]
fn extend_by(folding: Folding, crc: u64, bytes: &[u8]) -> u64 {
    let (steps, rest) = bytes.as_chunks();
    let folded = folding.fold(!crc, steps);
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc64Nvme, 0);
    digest.update(&folded);
    digest.update(rest);
    digest.finalize()
}

/// The checksum of `AB` from that of `A`, that of `B`, and the length of `B` in bytes.
///
/// Costs about 0.1 µs per bit set in `b_len`; for many pieces of one length see [`Crc64Shift`].
#[must_use]
pub fn crc64_combine(a: u64, b: u64, b_len: u64) -> u64 {
    Crc64Shift::new(b_len).combine(a, b)
}

/// [`crc64_combine`] prepared for one length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Crc64Shift(u64);

impl Crc64Shift {
    /// For pieces of `b_len` bytes.
    #[must_use]
    pub fn new(b_len: u64) -> Self {
        Self(CRC64_NVME.shift(b_len))
    }

    /// The checksum of `AB`, where `B` has the length that this was made for.
    #[must_use]
    pub fn combine(self, a: u64, b: u64) -> u64 {
        CRC64_NVME.combine(a, b, self.0)
    }
}

/// CRC-64/NVME of bytes that come in pieces.
#[derive(Clone, Copy, Default, Debug)]
pub struct Crc64(u64);

impl Crc64 {
    /// Of nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends `bytes`.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0 = extend(self.0, bytes);
    }

    /// The checksum of all bytes so far.
    #[must_use]
    pub fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_answers() {
        assert_eq!(crc64(b"123456789"), 0xae8b_1486_0a79_9888);
        assert_eq!(crc64(b""), 0);
        assert_eq!(Crc64::default().finish(), 0);
    }

    #[test]
    fn all_lengths_and_beginnings_are_as_by_crc_fast() {
        let bytes: Vec<u8> = (0..70_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
        let lengths = (0..1500).chain([4095, 4096, 4097, 65_535, 65_536, 65_537]);
        for (start, len) in lengths.enumerate().map(|(at, len)| (at % 67, len)) {
            let piece = &bytes[start..start + len];
            let expected = crc_fast::crc64_nvme(piece);
            assert_eq!(crc64(piece), expected, "{len} bytes from {start}");
            let mut longer = Crc64::new();
            longer.update(&bytes[..start]);
            longer.update(piece);
            assert_eq!(longer.finish(), crc_fast::crc64_nvme(&bytes[..start + len]), "{len} bytes behind {start}");
        }
    }

    /// Also where crc-fast is faster.
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn folding_agrees_with_crc_fast() {
        let Some(folding) = Folding::detect() else { return };
        let bytes: Vec<u8> = (0..3000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
        for len in vpclmulqdq::STEP_BYTES..bytes.len() - 61 {
            let (first, second) = bytes[..len + len % 61].split_at(len % 61);
            let expected = crc_fast::crc64_nvme(&bytes[..len + len % 61]);
            assert_eq!(extend_by(folding, crc_fast::crc64_nvme(first), second), expected, "{len} bytes");
        }
    }

    #[test]
    fn combining_agrees_with_one_pass_at_every_split() {
        let bytes: Vec<u8> = (0..2000u32).map(|i| (i * i / 7) as u8).collect();
        let whole = crc64(&bytes);
        for split in 0..=bytes.len() {
            let (a, b) = bytes.split_at(split);
            assert_eq!(crc64_combine(crc64(a), crc64(b), b.len() as u64), whole, "split at {split}");
            let mut pieces = Crc64::new();
            pieces.update(a);
            pieces.update(b);
            assert_eq!(pieces.finish(), whole, "pieces split at {split}");
        }
    }

    #[test]
    fn lengths_beyond_memory_combine_by_composition() {
        // Moving past 2^40 bytes and then 2^40 + 3 more is moving past 2^41 + 3.
        let (a, zero) = (0x0123_4567_89ab_cdef, 0);
        let two_steps = crc64_combine(crc64_combine(a, zero, 1 << 40), zero, (1 << 40) + 3);
        assert_eq!(two_steps, crc64_combine(a, zero, (1 << 41) + 3));
    }
}
