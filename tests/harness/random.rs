//! One seed per test, printed and repeatable.

use std::time::{SystemTime, UNIX_EPOCH};

use rand::{SeedableRng, rngs::SmallRng};

/// The seed of this run: `GABION_TEST_SEED`, or new each time.
///
/// # Panics
/// When the variable is no number.
#[must_use]
pub fn seed() -> u64 {
    match std::env::var("GABION_TEST_SEED") {
        Ok(text) => text.parse().expect("GABION_TEST_SEED is a number"),
        Err(_) => fresh_seed(),
    }
}

#[expect(clippy::disallowed_methods, reason = "a new seed each run; the run prints it")]
fn fresh_seed() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_nanos() as u64 & 0xffff_ffff)
}

/// A generator for one part of a test: `part` keeps parts with one seed apart.
#[must_use]
pub fn seeded(seed: u64, part: u64) -> SmallRng {
    SmallRng::seed_from_u64(seed ^ part.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}
