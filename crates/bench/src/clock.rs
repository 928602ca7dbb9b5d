//! The only place of this crate that reads the time: measuring it is what a load generator is for.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A point on the monotonic clock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Stamp(Instant);

impl Stamp {
    #[expect(clippy::disallowed_methods, reason = "a load generator measures real time; no simulator owns it")]
    pub(crate) fn now() -> Self {
        Self(Instant::now())
    }

    /// Time from `earlier` to this point; zero when `earlier` is later.
    pub(crate) fn since(self, earlier: Stamp) -> Duration {
        self.0.saturating_duration_since(earlier.0)
    }

    pub(crate) fn plus(self, duration: Duration) -> Self {
        Self(self.0 + duration)
    }
}

/// Seconds since 1970, for the date of a signature.
#[expect(clippy::disallowed_methods, reason = "a signature carries the real date")]
pub(crate) fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
