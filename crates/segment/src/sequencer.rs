//! The sequence of commits, one for all lanes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gabion_platform::Clock;
use gabion_types::Seq;

/// Gives out sequences that ascend, whatever the clock does.
pub(crate) struct Sequencer {
    last: AtomicU64,
    clock: Arc<dyn Clock>,
}

impl Sequencer {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { last: AtomicU64::new(0), clock }
    }

    /// Above all that were given out or observed.
    pub(crate) fn next(&self) -> Seq {
        let now_ms = self.clock.now_ms();
        let step = |last| Some(Seq::from_u64(last).next(now_ms).as_u64());
        let last = self.last.fetch_update(Ordering::SeqCst, Ordering::SeqCst, step).expect("step always has a next");
        Seq::from_u64(last).next(now_ms)
    }

    /// Makes all later ones higher than `seq`.
    pub(crate) fn observe(&self, seq: Seq) {
        self.last.fetch_max(seq.as_u64(), Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use gabion_platform::ManualClock;

    use super::*;

    #[test]
    fn ascends_over_what_was_observed_and_a_clock_that_goes_back() {
        let clock = Arc::new(ManualClock::new(1000));
        let sequencer = Sequencer::new(Arc::clone(&clock) as Arc<dyn Clock>);
        let first = sequencer.next();
        assert_eq!(first.millis(), 1000);
        sequencer.observe(Seq::ZERO.next(5000));
        let second = sequencer.next();
        clock.set_now_ms(10);
        let third = sequencer.next();
        assert!(first < second && second < third);
        assert_eq!(third.millis(), 5000);
    }
}
