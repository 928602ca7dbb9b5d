//! Ids of requests: 16 upper-case hexadecimal digits, unique within a process and unlikely to repeat beyond it.

use std::sync::atomic::{AtomicU64, Ordering};

use gabion_platform::Entropy;
use gabion_types::{STRIPES, Striped};

/// The id of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RequestId([u8; 16]);

impl RequestId {
    fn new(number: u64) -> Self {
        let mut digits = [0; 16];
        digits[..8].copy_from_slice(&eight_digits((number >> 32) as u32));
        digits[8..].copy_from_slice(&eight_digits(number as u32));
        Self(digits)
    }

    pub(super) fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("it has digits only")
    }
}

/// Makes ids without asking for entropy each time.
pub(super) struct RequestIds {
    seed: u64,
    /// Each counts in steps of as many as there are, from a number of its own on.
    counts: Striped<AtomicU64>,
}

impl RequestIds {
    pub(super) fn new(entropy: &dyn Entropy) -> Self {
        let mut seed = [0; 8];
        entropy.fill(&mut seed);
        Self { seed: u64::from_le_bytes(seed), counts: Striped::new(|number| AtomicU64::new(number as u64)) }
    }

    pub(super) fn next(&self) -> RequestId {
        let count = self.counts.mine().fetch_add(STRIPES as u64, Ordering::Relaxed);
        RequestId::new(scatter(self.seed.wrapping_add(count)))
    }
}

/// The digits of a number, all at once: one after the other in memory, they are not yet there together when they are read.
fn eight_digits(number: u32) -> [u8; 8] {
    const EACH: u64 = 0x0101_0101_0101_0101;
    let number = u64::from(number);
    let halves = (number | number << 16) & 0x0000_ffff_0000_ffff;
    let bytes = (halves | halves << 8) & 0x00ff_00ff_00ff_00ff;
    let digits = (bytes | bytes << 4) & (15 * EACH);
    // From ten on the carry goes into the upper half.
    let letters = ((digits + 6 * EACH) >> 4) & EACH;
    (digits + u64::from(b'0') * EACH + letters * u64::from(b'A' - b'9' - 1)).to_be_bytes()
}

/// A permutation of 64 bits without visible order (the finaliser of SplitMix64; Steele, Lea, Flood, OOPSLA 2014).
fn scatter(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use gabion_platform::SeededEntropy;

    use super::*;

    #[test]
    fn ids_are_sixteen_digits_and_differ() {
        let ids = RequestIds::new(&SeededEntropy::new(1));
        let made: std::collections::BTreeSet<RequestId> = std::thread::scope(|scope| {
            let thousand = || (0..1000).map(|_| ids.next()).collect::<Vec<_>>();
            let threads: Vec<_> = (0..40).map(|_| scope.spawn(thousand)).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(made.len(), 40_000);
        for number in [0, 1, 0x0123_4567_89ab_cdef, u64::MAX] {
            assert_eq!(RequestId::new(number).as_str(), format!("{number:016X}"));
        }
    }
}
