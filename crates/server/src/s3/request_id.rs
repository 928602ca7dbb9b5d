//! Ids of requests: 16 upper-case hexadecimal digits, unique within a process and unlikely to repeat beyond it.

use std::sync::atomic::{AtomicU64, Ordering};

use gabion_platform::Entropy;

/// The id of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RequestId([u8; 16]);

impl RequestId {
    fn new(number: u64) -> Self {
        let mut digits = [0; 16];
        for (i, digit) in digits.iter_mut().enumerate() {
            *digit = b"0123456789ABCDEF"[(number >> (60 - 4 * i)) as usize & 15];
        }
        Self(digits)
    }

    pub(super) fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("it has digits only")
    }
}

/// Makes ids without asking for entropy each time.
pub(super) struct RequestIds {
    seed: u64,
    count: AtomicU64,
}

impl RequestIds {
    pub(super) fn new(entropy: &dyn Entropy) -> Self {
        let mut seed = [0; 8];
        entropy.fill(&mut seed);
        Self { seed: u64::from_le_bytes(seed), count: AtomicU64::new(0) }
    }

    pub(super) fn next(&self) -> RequestId {
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        RequestId::new(scatter(self.seed.wrapping_add(count)))
    }
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
        let made: std::collections::BTreeSet<RequestId> = (0..1000).map(|_| ids.next()).collect();
        assert_eq!(made.len(), 1000);
        for number in [0, 1, 0x0123_4567_89ab_cdef, u64::MAX] {
            assert_eq!(RequestId::new(number).as_str(), format!("{number:016X}"));
        }
    }
}
