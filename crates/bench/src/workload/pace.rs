//! When operations are due, where there are to be so many a second.
//!
//! They are due at equal distances, and whoever is free takes the next one of those at its endpoint: one that refuses everything at once would take nearly all, as its workers are always free. One that begins late, because nobody was free, is timed from when it was due: what an endpoint does while it
//! stalls is seen by all that would have been sent then, and not only by those that were under way (coordinated omission).

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use super::{End, Load, Run, Share};
use crate::clock::Stamp;

/// How long a worker that waits goes without looking whether there is anything to wait for.
const LOOK: Duration = Duration::from_millis(100);
/// How late an operation may begin without being told: a timer and a scheduler are no more exact.
pub(super) const LATE_MIN: Duration = Duration::from_millis(5);

/// The operations of one process in a phase, by who takes turns at them: workers of the same process and the same endpoint.
#[derive(Debug)]
pub(super) struct Paces {
    /// Those of this process.
    own: Vec<Pace>,
    /// How many there are in all processes.
    groups: usize,
    processes: usize,
}

impl Paces {
    /// So many in a second in all processes; each endpoint has its part.
    pub(super) fn new(rate: f64, load: &Load, start: Stamp, now: Stamp) -> Self {
        let Share { index, of } = load.process;
        // Both are dealt workers in turn, so that their numbers say the same again after so many.
        let groups = (of / common_divisor(of, load.endpoints) * load.endpoints).min(load.workers).max(of);
        let pace = |group| Pace::new(rate, Share { index: group, of: groups }, start, now);
        Self { own: (index..groups).step_by(of).map(pace).collect(), groups, processes: of }
    }

    /// Those that this worker takes turns at.
    pub(super) fn of(&self, worker: usize) -> &Pace {
        &self.own[worker % self.groups / self.processes]
    }

    /// The same of all as [`Pace::missed`].
    pub(super) fn missed(&self, end: Stamp) -> Option<(u64, Duration)> {
        let missed = self.own.iter().filter_map(|pace| pace.missed(end));
        missed.reduce(|(sum, longest), (count, since)| (sum + count, longest.max(since)))
    }
}

/// The greatest number that divides both.
fn common_divisor(one: usize, other: usize) -> usize {
    if other == 0 { one } else { common_divisor(other, one % other) }
}

/// The operations that workers take turns at.
#[derive(Debug)]
pub(super) struct Pace {
    from: Stamp,
    /// Time from there until the first is due, in seconds.
    first_s: f64,
    distance_s: f64,
    /// How many were taken.
    taken: AtomicU64,
    /// How many of these have begun: who has taken one that is due behind the end does not begin it.
    begun: AtomicU64,
}

impl Pace {
    /// So many in a second, of which each of those that take turns has its share, counted from `start` on; and before it as far as there is time from `now` on.
    fn new(rate: f64, share: Share, start: Stamp, now: Stamp) -> Self {
        let from = now.min(start);
        let ahead_s = start.since(from).as_secs_f64();
        #[expect(clippy::cast_possible_truncation, reason = "a warm-up is no longer than years")]
        let before = (ahead_s * rate) as u64;
        // Of those before the start, the shares count back.
        let (index, of) = (share.index as u64, share.of as u64);
        let skipped = (index + before) % of;
        // What both are rounded by may make their difference less than nothing.
        let first_s = (ahead_s - before as f64 / rate).max(0.0) + skipped as f64 / rate;
        Self { from, first_s, distance_s: of as f64 / rate, taken: AtomicU64::new(0), begun: AtomicU64::new(0) }
    }

    /// Takes the next one: when it is due.
    fn take(&self) -> Stamp {
        self.due(self.taken.fetch_add(1, Ordering::Relaxed))
    }

    fn due(&self, turn: u64) -> Stamp {
        self.from.plus(Duration::from_secs_f64(self.first_s + turn as f64 * self.distance_s))
    }

    /// One that was taken begins.
    pub(super) fn begins(&self) {
        self.begun.fetch_add(1, Ordering::Relaxed);
    }

    /// How many were due before `end` and have not begun, and how long the first of them had been due by then. What a timer may be late for is none of them.
    fn missed(&self, end: Stamp) -> Option<(u64, Duration)> {
        let begun = self.begun.load(Ordering::Relaxed);
        let seconds = end.before(LATE_MIN).since(self.from).as_secs_f64() - self.first_s;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "operations of a run")]
        let due = (seconds / self.distance_s).ceil().max(0.0) as u64;
        let missed = due.checked_sub(begun).filter(|missed| *missed > 0)?;
        Some((missed, end.since(self.due(begun))))
    }
}

impl Run {
    /// Waits until the next operation of this worker is due, if they come at a rate, or until the phase is over. One that was due before is told since when, less what the worker's timer was late for the one before
    /// it (`lag`): that is nothing of the endpoint's. So is one whose timer rings so late that it counts as late.
    pub(super) async fn turn(&self, worker: usize, lag: &mut Duration) -> Option<Stamp> {
        let due = self.paces.as_ref()?.of(worker).take();
        let mut now = Stamp::now();
        if now >= due {
            *lag = now.since(due).min(*lag);
            return Some(due.plus(*lag));
        }
        while now < due && !self.is_over(now) {
            let next = due.min(now.plus(LOOK));
            let next = if let End::At(end) = self.end { next.min(end) } else { next };
            tokio::time::sleep_until(next.to_tokio()).await;
            now = Stamp::now();
        }
        woken(due, now, lag)
    }
}

/// When an operation that was waited for was due, if it counts as late. Less than that is the timer's (`lag`); more is told with the operation itself, and not taken from those that follow.
fn woken(due: Stamp, now: Stamp, lag: &mut Duration) -> Option<Stamp> {
    let late = now.since(due);
    let is_late = late >= LATE_MIN;
    *lag = if is_late { Duration::ZERO } else { late };
    is_late.then_some(due)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Action, Goal};

    fn paced(rate: f64, start: Stamp, end: End) -> Run {
        let paces = Paces::new(rate, &Load { workers: 1, ..Load::empty(Share::WHOLE) }, start, start);
        Run { paces: Some(paces), ..Run::new(Goal::Any(Action::Get), start, end) }
    }

    /// When the operations of so many processes are due, in milliseconds from when they come, for a second and a half.
    fn due_ms(processes: usize, warmup: Duration) -> Vec<u128> {
        let now = Stamp::now();
        let mut due = Vec::new();
        for index in 0..processes {
            let pace = Pace::new(8.0, Share { index, of: processes }, now.plus(warmup), now);
            loop {
                let ms = (pace.take().since(now) + Duration::from_micros(1)).as_millis();
                if ms >= 1500 {
                    break;
                }
                due.push(ms);
            }
        }
        due.sort_unstable();
        due
    }

    #[test]
    fn operations_are_due_at_equal_distances_in_all_processes() {
        let even: Vec<u128> = (0..12).map(|i| 125 * i).collect();
        // The first that is measured is due when the measurement begins.
        let later: Vec<u128> = even.iter().map(|ms| ms + 105).filter(|ms| *ms < 1500).collect();
        for processes in [1, 3, 4] {
            assert_eq!(due_ms(processes, Duration::ZERO), even);
            assert_eq!(due_ms(processes, Duration::from_secs(1)), even);
            assert_eq!(due_ms(processes, Duration::from_millis(230)), later);
        }
    }

    #[test]
    fn each_endpoint_has_its_part_at_equal_distances() {
        let now = Stamp::now();
        for (workers, processes, endpoints) in [(6, 1, 2), (12, 2, 3), (8, 2, 2), (12, 4, 6), (3, 1, 5), (7, 2, 1)] {
            let mut due = vec![Vec::new(); endpoints];
            for index in 0..processes {
                let load = Load { workers, endpoints, ..Load::empty(Share { index, of: processes }) };
                let paces = Paces::new(120.0, &load, now, now);
                // Workers take turns until a second is over.
                let mut own: Vec<usize> = load.own_workers().collect();
                while !own.is_empty() {
                    own.retain(|worker| {
                        let ms = (paces.of(*worker).take().since(now) + Duration::from_micros(1)).as_millis();
                        let is_in_time = ms < 1000;
                        due[worker % endpoints].extend(is_in_time.then_some(ms));
                        is_in_time
                    });
                }
            }
            let part = 120 / endpoints.min(workers);
            for due in due.iter_mut().filter(|due| !due.is_empty()) {
                due.sort_unstable();
                assert_eq!(due.len(), part, "{workers} {processes} {endpoints}");
            }
            let mut all = due.concat();
            all.sort_unstable();
            let even: Vec<u128> = (0..120).map(|i| (i * 1_000_000 / 120 + 1) / 1000).collect();
            assert_eq!(all, even, "{workers} {processes} {endpoints}");
        }
    }

    #[test]
    fn processes_that_come_at_other_times_begin_where_others_do() {
        let start = Stamp::now().plus(Duration::from_secs(1));
        let at_start = |index, ahead_ms| {
            let now = start.plus(Duration::from_millis(ahead_ms));
            let pace = Pace::new(8.0, Share { index, of: 2 }, start, now);
            std::iter::repeat_with(|| pace.take()).find(|due| *due >= start).unwrap().since(start).as_millis()
        };
        // Of a phase without a warm-up the start is over when the workers come to it.
        for ahead_ms in [0, 7] {
            assert_eq!((at_start(0, ahead_ms), at_start(1, ahead_ms)), (0, 125));
        }
    }

    #[test]
    fn any_time_and_rate_have_a_first_operation() {
        let now = Stamp::now();
        for rate in [0.001, 0.7, 3.0, 10.0, 49.0, 1e3, 1e9] {
            for ahead_ms in 0..1000 {
                let start = now.plus(Duration::from_millis(ahead_ms));
                let first = Pace::new(rate, Share::WHOLE, start, now).take();
                assert!(first >= now && first <= start.plus(Duration::from_nanos(1)), "{rate} {ahead_ms}");
            }
        }
    }

    #[tokio::test]
    async fn who_is_late_is_told_since_when_and_does_not_wait() {
        let now = Stamp::now();
        let run = paced(1e6, now, End::Done);
        // All of them were due within a millisecond, which is over.
        while Stamp::now().since(now) < Duration::from_millis(1) {}
        let mut lag = Duration::ZERO;
        for count in 0..1000 {
            let late = run.turn(0, &mut lag).await.unwrap();
            assert_eq!(late.since(now).as_nanos().div_ceil(1000), count);
        }
    }

    #[tokio::test]
    async fn what_a_timer_was_late_for_is_not_the_endpoints() {
        let now = Stamp::now();
        let run = paced(1e6, now, End::Done);
        while Stamp::now().since(now) < Duration::from_millis(1) {}
        // As if it had woken up so much too late for the one before.
        let mut lag = Duration::from_micros(700);
        for count in 0..300 {
            let late = run.turn(0, &mut lag).await.unwrap();
            assert_eq!(late.since(now).as_nanos().div_ceil(1000), 700 + count);
        }
    }

    #[test]
    fn a_timer_that_rings_much_too_late_makes_an_operation_late() {
        let due = Stamp::now();
        let most = LATE_MIN - Duration::from_nanos(1);
        for late in [Duration::ZERO, Duration::from_millis(1), most] {
            let mut lag = Duration::from_millis(2);
            assert_eq!((woken(due, due.plus(late), &mut lag), lag), (None, late));
        }
        for late in [LATE_MIN, Duration::from_secs(3)] {
            let mut lag = Duration::from_millis(2);
            assert_eq!((woken(due, due.plus(late), &mut lag), lag), (Some(due), Duration::ZERO));
        }
        // The phase was over before.
        let mut lag = Duration::from_millis(2);
        assert_eq!((woken(due, due.before(LATE_MIN), &mut lag), lag), (None, Duration::ZERO));
    }

    #[test]
    fn what_was_due_and_did_not_begin_is_counted() {
        let now = Stamp::now();
        let pace = Pace::new(1000.0, Share::WHOLE, now, now);
        let end = now.plus(Duration::from_millis(2000));
        // Those of the last five milliseconds may be waiting for a timer.
        assert_eq!(pace.missed(end), Some((1995, Duration::from_millis(2000))));
        (0..1500).for_each(|_| pace.begins());
        assert_eq!(pace.missed(end), Some((495, Duration::from_millis(500))));
        (1500..1995).for_each(|_| pace.begins());
        assert_eq!(pace.missed(end), None);
        assert_eq!(pace.missed(now), None);
        // Each of several processes has its own.
        let second = Pace::new(1000.0, Share { index: 1, of: 4 }, now, now);
        assert_eq!(second.missed(end), Some((499, Duration::from_millis(1999))));
    }

    #[tokio::test]
    async fn nobody_waits_for_what_does_not_come() {
        let now = Stamp::now();
        let end = now.plus(Duration::from_millis(20));
        let run = paced(0.001, now, End::At(end));
        let mut lag = Duration::ZERO;
        run.turn(0, &mut lag).await;
        // The next one is due a quarter of an hour later.
        assert_eq!(run.turn(0, &mut lag).await, None);
        assert!(Stamp::now() >= end);
        // All that were to be done are begun.
        let run = paced(0.001, now, End::After(1));
        assert!(run.goes_on(Stamp::now()));
        run.turn(0, &mut lag).await;
        assert_eq!(run.turn(0, &mut lag).await, None);
        assert!(!run.goes_on(Stamp::now()));
    }
}
