//! CRC-64/NVME: the checksum of blocks on disk, and S3's `x-amz-checksum-crc64nvme`.

#[cfg(target_arch = "x86_64")]
mod vpclmulqdq;

use crc_fast::{CrcAlgorithm, Digest};
#[cfg(target_arch = "x86_64")]
use vpclmulqdq::{FOLDED_BYTES, Folding, STEP_BYTES};

use crate::ring::CRC64_NVME;

/// Bytes below which crc-fast is as fast.
#[cfg(target_arch = "x86_64")]
const FOLDING_BYTES_MIN: usize = 1024;
#[cfg(target_arch = "x86_64")]
const _: () = assert!(FOLDING_BYTES_MIN >= STEP_BYTES, "there is a step to fold");

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
    if crc == 0 {
        // Without a copy of crc-fast's constants.
        return crc_fast::crc64_nvme(bytes);
    }
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc64Nvme, !crc);
    digest.update(bytes);
    digest.finalize()
}

/// The same for at least [`STEP_BYTES`].
#[cfg(target_arch = "x86_64")]
fn extend_by(folding: Folding, crc: u64, bytes: &[u8]) -> u64 {
    let (steps, rest) = bytes.as_chunks();
    let mut left = [0; FOLDED_BYTES + STEP_BYTES];
    left[..FOLDED_BYTES].copy_from_slice(&folding.fold(!crc, steps));
    // What was folded begins with a register of zero, and crc-fast with one of ones.
    left[..8].iter_mut().for_each(|byte| *byte = !*byte);
    left[FOLDED_BYTES..][..rest.len()].copy_from_slice(rest);
    crc_fast::crc64_nvme(&left[..FOLDED_BYTES + rest.len()])
}

/// What takes CRC-64/NVME of bytes.
pub type Crc64Kernel = fn(&[u8]) -> u64;

/// Every way to take it that this machine has, with its name, whichever [`crc64`] chooses.
#[must_use]
pub fn crc64_kernels() -> Vec<(&'static str, Crc64Kernel)> {
    #[allow(unused_mut, reason = "on other machines there is one")]
    let mut kernels: Vec<(&'static str, Crc64Kernel)> = vec![("crc-fast", crc_fast::crc64_nvme)];
    #[cfg(target_arch = "x86_64")]
    if Folding::detect().is_some() {
        kernels.push(("vpclmulqdq-256", |bytes| match Folding::detect() {
            Some(folding) if bytes.len() >= STEP_BYTES => extend_by(folding, 0, bytes),
            _ => crc_fast::crc64_nvme(bytes),
        }));
    }
    kernels
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
#[derive(Clone, Default, Debug)]
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

    fn bytes(len: u32) -> Vec<u8> {
        (0..len).map(|i| (i.wrapping_mul(2_654_435_761) >> 11) as u8).collect()
    }

    /// Bit by bit, of the beginning of each length.
    fn oracle(bytes: &[u8]) -> Vec<u64> {
        let mut register = u64::MAX;
        let mut crcs = vec![0];
        for byte in bytes {
            register ^= u64::from(*byte);
            for _ in 0..8 {
                register = (register >> 1) ^ (0x9a6c_9329_ac4b_c9b5 & (register & 1).wrapping_neg());
            }
            crcs.push(!register);
        }
        crcs
    }

    #[test]
    fn all_lengths_in_one_piece_and_in_three() {
        let bytes = bytes(6000);
        let crcs = oracle(&bytes);
        for len in (0..3000).chain([4095, 4096, 4097, 6000]) {
            assert_eq!(crc64(&bytes[..len]), crcs[len], "{len} bytes");
            for (name, kernel) in crc64_kernels() {
                assert_eq!(kernel(&bytes[..len]), crcs[len], "{len} bytes by {name}");
            }
            let mut pieces = Crc64::new();
            // One that is folded, one that is not, and what is left.
            let first = len.min(1100 + len % 67);
            let second = len.min(first + len % 61);
            for (from, to) in [(0, first), (first, second), (second, len)] {
                pieces.update(&bytes[from..to]);
                assert_eq!(pieces.finish(), crcs[to], "{from} to {to} of {len} bytes");
            }
        }
    }

    /// Also where crc-fast is faster.
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn folding_goes_on_from_any_register() {
        let Some(folding) = Folding::detect() else {
            eprintln!("skipped: this machine has no 256-bit carry-less products");
            return;
        };
        let bytes = bytes(3000);
        let crcs = oracle(&bytes);
        for len in STEP_BYTES..bytes.len() - 61 {
            let start = len % 61;
            let crc = extend_by(folding, crcs[start], &bytes[start..start + len]);
            assert_eq!(crc, crcs[start + len], "{len} bytes");
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
