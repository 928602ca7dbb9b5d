//! A bound on bytes per second, shared by all who work at it.

use std::time::Duration;

use gabion_types::limits::BLOCK_BYTES;
use parking_lot::Mutex;
use tokio::time::Instant;

/// Lets so many bytes pass in a second; time that nobody used is not saved up.
#[derive(Debug)]
pub(crate) struct Pace {
    bytes_per_s: u64,
    /// When all that has passed so far has taken its time.
    due: Mutex<Option<Instant>>,
}

impl Pace {
    /// A pace; 0 bytes per second are no bound.
    pub(crate) fn new(bytes_per_s: u64) -> Self {
        Self { bytes_per_s, due: Mutex::new(None) }
    }

    /// Most that one who keeps the pace should ask for at once, in bytes: a tenth of a second's worth.
    pub(crate) fn burst_bytes(&self) -> usize {
        match self.bytes_per_s {
            0 => usize::MAX,
            bytes_per_s => usize::try_from(bytes_per_s / 10).unwrap_or(usize::MAX).max(BLOCK_BYTES),
        }
    }

    /// Waits until `bytes` more may pass.
    pub(crate) async fn pass(&self, bytes: u64) {
        if self.bytes_per_s > 0 {
            tokio::time::sleep_until(self.book(Instant::now(), bytes)).await;
        }
    }

    /// When `bytes` that are asked for now may pass.
    fn book(&self, now: Instant, bytes: u64) -> Instant {
        let mut due = self.due.lock();
        let start = due.map_or(now, |due| due.max(now));
        *due = Some(start + Duration::from_secs_f64(bytes as f64 / self.bytes_per_s as f64));
        start
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_together_keep_the_bound_and_idle_time_is_not_saved() {
        let (pace, start) = (Pace::new(1000), Instant::now());
        let second = |count| start + Duration::from_secs(count);
        assert_eq!(pace.book(start, 2000), start);
        assert_eq!(pace.book(start, 1000), second(2));
        assert_eq!(pace.book(second(1), 1000), second(3));
        assert_eq!(pace.book(second(10), 500), second(10));
        assert_eq!(pace.book(second(10), 500), second(10) + Duration::from_millis(500));
    }

    #[tokio::test(flavor = "current_thread")]
    async fn no_bound_needs_no_clock() {
        Pace::new(0).pass(u64::MAX).await;
    }
}
