//! Time, as a thing that is passed in: the simulation turns its own.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// Source of time.
pub trait Clock: Send + Sync + 'static {
    /// Wall-clock time in milliseconds since 1970; may step either way.
    fn now_ms(&self) -> u64;

    /// Nanoseconds since a fixed moment; never goes back.
    fn monotonic_ns(&self) -> u64;
}

/// The operating system's clocks.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock that everything else must ask")]
    fn now_ms(&self) -> u64 {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }

    #[expect(clippy::disallowed_methods, reason = "this is the clock that everything else must ask")]
    fn monotonic_ns(&self) -> u64 {
        static START: OnceLock<Instant> = OnceLock::new();
        u64::try_from(START.get_or_init(Instant::now).elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// A clock that stands until it is moved.
#[derive(Debug, Default)]
pub struct ManualClock {
    now_ms: AtomicU64,
    monotonic_ns: AtomicU64,
}

impl ManualClock {
    /// A clock whose wall stands at `now_ms` and whose monotonic side at zero.
    pub fn new(now_ms: u64) -> Self {
        Self { now_ms: AtomicU64::new(now_ms), monotonic_ns: AtomicU64::new(0) }
    }

    /// Lets time pass on both sides; parts of a millisecond are seen by the monotonic side alone.
    pub fn advance(&self, by: Duration) {
        self.now_ms.fetch_add(u64::try_from(by.as_millis()).unwrap_or(u64::MAX), Ordering::SeqCst);
        self.monotonic_ns.fetch_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX), Ordering::SeqCst);
    }

    /// Steps the wall clock, also backwards, as an operator or NTP does.
    pub fn set_now_ms(&self, now_ms: u64) {
        self.now_ms.store(now_ms, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now_ms(&self) -> u64 {
        self.now_ms.load(Ordering::SeqCst)
    }

    fn monotonic_ns(&self) -> u64 {
        self.monotonic_ns.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_clock_is_past_2020_and_never_goes_back() {
        assert!(SystemClock.now_ms() > 1_577_836_800_000);
        let first = SystemClock.monotonic_ns();
        assert!(SystemClock.monotonic_ns() >= first);
    }

    #[test]
    fn a_manual_clock_moves_only_when_told() {
        let clock = ManualClock::new(5);
        clock.advance(Duration::from_micros(2500));
        assert_eq!((clock.now_ms(), clock.monotonic_ns()), (7, 2_500_000));
        clock.set_now_ms(1);
        assert_eq!((clock.now_ms(), clock.monotonic_ns()), (1, 2_500_000));
    }
}
