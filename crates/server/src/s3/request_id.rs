//! Ids of requests: 16 upper-case hexadecimal digits, unique within a process and unlikely to repeat beyond it.

use std::sync::atomic::{AtomicU64, Ordering};

use gabion_platform::Entropy;

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

    pub(super) fn next(&self) -> String {
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        format!("{:016X}", scatter(self.seed.wrapping_add(count)))
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
        let made: std::collections::BTreeSet<String> = (0..1000).map(|_| ids.next()).collect();
        assert_eq!(made.len(), 1000);
        let digit = |byte: u8| byte.is_ascii_digit() || (b'A'..=b'F').contains(&byte);
        assert!(made.iter().all(|id| id.len() == 16 && id.bytes().all(digit)));
    }
}
