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

    /// The point at which the wall clock shows `unix_ns`, so that several processes begin together.
    pub(crate) fn at_unix_ns(unix_ns: u64) -> Self {
        let (now, wall) = (Self::now(), self::unix_ns());
        match unix_ns.checked_sub(wall) {
            Some(ahead) => now.plus(Duration::from_nanos(ahead)),
            None => now.before(Duration::from_nanos(wall - unix_ns)),
        }
    }

    /// Time from `earlier` to this point; zero when `earlier` is later.
    pub(crate) fn since(self, earlier: Stamp) -> Duration {
        self.0.saturating_duration_since(earlier.0)
    }

    pub(crate) fn plus(self, duration: Duration) -> Self {
        Self(self.0 + duration)
    }

    /// So much earlier; the same point where the clock does not go back so far.
    pub(crate) fn before(self, duration: Duration) -> Self {
        Self(self.0.checked_sub(duration).unwrap_or(self.0))
    }

    /// The same point on tokio's clock.
    pub(crate) fn to_tokio(self) -> tokio::time::Instant {
        tokio::time::Instant::from_std(self.0)
    }
}

/// Nanoseconds since 1970 on the wall clock.
#[expect(clippy::disallowed_methods, reason = "processes agree on a moment by the wall clock")]
pub(crate) fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Seconds since 1970, for the date of a signature.
pub(crate) fn unix_seconds() -> u64 {
    unix_ns() / 1_000_000_000
}
