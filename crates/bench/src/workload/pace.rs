//! When a worker's operations are due, where there are to be so many a second.
//!
//! The operations of all workers are due at equal distances, dealt to the workers in turn. Whoever is late begins at once, and is timed from when it was due: what an endpoint does while it stalls is
//! seen by all that would have been sent then, and not only by those that were under way (coordinated omission).

use std::time::Duration;

use super::{End, Load, Run, STOP};
use crate::clock::Stamp;

/// How long a worker that waits goes without looking whether the run was stopped.
const LOOK: Duration = Duration::from_millis(100);

/// The operations of one worker.
pub(super) struct Pace {
    from: Stamp,
    /// Time from there until the first is due, in seconds.
    first_s: f64,
    distance_s: f64,
    /// How many have come.
    count: u64,
}

impl Pace {
    /// Of a worker that begins `now`; nothing if it is to do what it can.
    pub(super) fn new(load: &Load, worker: usize, run: &Run, now: Stamp) -> Option<Self> {
        let rate = load.rate?;
        let distance_s = load.workers as f64 / rate;
        // They are dealt from the start of the measurement on, in all processes, and before it as far as there is time.
        let ahead_s = run.start.since(now).as_secs_f64() + worker as f64 / rate;
        Some(Self { from: now, first_s: ahead_s % distance_s, distance_s, count: 0 })
    }

    /// When the next one is due.
    fn due(&self) -> Stamp {
        self.from.plus(Duration::from_secs_f64(self.first_s + self.count as f64 * self.distance_s))
    }

    /// Waits until the next one is due, or the phase is over or stopped. If it was due before, says since when.
    pub(super) async fn next(&mut self, run: &Run) -> Option<Stamp> {
        let due = self.due();
        self.count += 1;
        if due <= Stamp::now() {
            return Some(due);
        }
        let until = match run.end {
            End::At(end) => due.min(end),
            End::After(_) | End::Done => due,
        };
        loop {
            let now = Stamp::now();
            if now >= until || STOP.load(std::sync::atomic::Ordering::Relaxed) {
                return None;
            }
            tokio::time::sleep_until(until.min(now.plus(LOOK)).to_tokio()).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        cli::{Operation, Settings},
        workload::{Action, Goal, Share},
    };

    fn paces(flags: &[&str], start: Stamp, now: Stamp) -> Vec<Pace> {
        let load = Load::new(&Settings::for_tests(Operation::Get, flags), Share::WHOLE);
        let run = Run::new(Goal::Any(Action::Get), start, End::Done);
        (0..load.workers).filter_map(|worker| Pace::new(&load, worker, &run, now)).collect()
    }

    /// When the operations of all workers are due, in milliseconds from `now`, for a second and a half.
    fn due_ms(flags: &[&str], warmup: Duration) -> Vec<u128> {
        let now = Stamp::now();
        let mut due = Vec::new();
        for mut pace in paces(flags, now.plus(warmup), now) {
            while pace.due().since(now) < Duration::from_millis(1500) {
                due.push((pace.due().since(now) + Duration::from_micros(1)).as_millis());
                pace.count += 1;
            }
        }
        due.sort_unstable();
        due
    }

    #[test]
    fn operations_are_due_at_equal_distances() {
        assert!(due_ms(&[], Duration::ZERO).is_empty(), "nobody asked for a rate");
        let even: Vec<u128> = (0..12).map(|i| 125 * i).collect();
        assert_eq!(due_ms(&["-c", "3", "--rate", "8"], Duration::ZERO), even);
        assert_eq!(due_ms(&["-c", "4", "--rate", "8"], Duration::from_secs(1)), even);
        // The first that is measured is due when the measurement begins, whoever waits for it.
        let later: Vec<u128> = even.iter().map(|ms| ms + 105).filter(|ms| *ms < 1500).collect();
        assert_eq!(due_ms(&["-c", "4", "--rate", "8"], Duration::from_millis(230)), later);
    }

    #[tokio::test]
    async fn who_is_late_is_told_since_when_and_does_not_wait() {
        let now = Stamp::now();
        let mut pace = paces(&["-c", "1", "--rate", "1000000"], now, now).remove(0);
        let run = Run::new(Goal::Any(Action::Get), now, End::Done);
        // All of them were due within a millisecond, which is over.
        while Stamp::now().since(now) < Duration::from_millis(1) {}
        for count in 0..1000 {
            let late = pace.next(&run).await.unwrap();
            assert_eq!(late.since(now).as_nanos().div_ceil(1000), count);
        }
    }

    #[tokio::test]
    async fn nobody_waits_beyond_the_end_of_a_phase() {
        let now = Stamp::now();
        let mut pace = paces(&["-c", "1", "--rate", "0.001"], now, now).remove(0);
        let end = now.plus(Duration::from_millis(20));
        let run = Run::new(Goal::Any(Action::Get), now, End::At(end));
        pace.next(&run).await;
        // The next one is due a quarter of an hour later.
        assert_eq!(pace.next(&run).await, None);
        assert!(Stamp::now() >= end);
    }
}
