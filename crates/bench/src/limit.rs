//! A time limit for each request, with one timer per worker that is only set anew when it rings.
//!
//! A timer per request would cost the client more than parsing the answer does. It rings a few times a second, to see whether the run was stopped: then what is under way is not waited for
//! as long as it may take, but for a moment.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::atomic::{AtomicBool, Ordering},
    task::Poll,
    time::Duration,
};

use tokio::time::{Sleep, sleep_until};

use crate::{
    clock::Stamp,
    failure::Failure,
    stop::{HURRY, STOP},
};

/// How long what is under way when the run is stopped has to end.
const GRACE: Duration = Duration::from_secs(2);
/// The same of what removes what was written, also if it begins later.
const GRACE_OF_CLEANING: Duration = Duration::from_secs(10);
/// How often is looked whether the run was stopped.
const LOOK: Duration = Duration::from_millis(500);

/// Longest time that a request may take, its answer's body included.
pub(crate) struct Limit {
    timeout: Duration,
    cleans: bool,
    timer: Option<Pin<Box<Sleep>>>,
    /// The run was stopped, and once more.
    stops: [&'static AtomicBool; 2],
}

impl Limit {
    pub(crate) fn new(timeout: Duration) -> Self {
        Self { timeout, cleans: false, timer: None, stops: [&STOP, &HURRY] }
    }

    /// Of requests that remove what was written.
    pub(crate) fn of_cleaning(timeout: Duration) -> Self {
        Self { cleans: true, ..Self::new(timeout) }
    }

    /// Runs `request`, which began at `begin`, and drops it when its time is over.
    ///
    /// # Errors
    /// The request's own, `Timeout`, and `Stopped` if its time was cut short; of what cleans up that is a timeout as well.
    pub(crate) async fn run<T>(
        &mut self,
        begin: Stamp,
        request: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let begin = begin.to_tokio();
        let mut deadline = begin + self.timeout;
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(deadline.min(begin + LOOK))));
        let (cleans, [stop, hurry]) = (self.cleans, self.stops);
        let (grace, late) = if cleans { (GRACE_OF_CLEANING, Failure::Timeout) } else { (GRACE, Failure::Stopped) };
        let mut is_stopped = false;
        let mut request = pin!(request);
        poll_fn(|task| {
            if let Poll::Ready(result) = request.as_mut().poll(task) {
                return Poll::Ready(result);
            }
            while timer.as_mut().poll(task).is_ready() {
                // It may have been set long before this request.
                let now = timer.deadline().max(begin);
                if now >= deadline {
                    return Poll::Ready(Err(if is_stopped { late.clone() } else { Failure::Timeout }));
                }
                if hurry.load(Ordering::Relaxed) {
                    return Poll::Ready(Err(Failure::Stopped));
                }
                if !is_stopped && stop.load(Ordering::Relaxed) && now + grace < deadline {
                    (is_stopped, deadline) = (true, now + grace);
                }
                timer.as_mut().reset(deadline.min(now + LOOK));
            }
            Poll::Pending
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_request_has_its_whole_time_whenever_the_timer_was_set() {
        let mut limit = Limit::new(Duration::from_secs(10));
        let now = Stamp::now();
        assert_eq!(limit.run(now, async { Ok(1) }).await, Ok(1));
        let later = now.plus(Duration::from_secs(9));
        let slow = async {
            tokio::time::sleep(Duration::from_secs(15)).await;
            Ok(2)
        };
        assert_eq!(limit.run(later, slow).await, Ok(2), "the timer of the first request rings in between");
        let endless = std::future::pending::<Result<u8, Failure>>();
        assert_eq!(limit.run(later.plus(Duration::from_secs(20)), endless).await, Err(Failure::Timeout));
        assert_eq!(limit.run(later, async { Ok(3) }).await, Ok(3));
    }

    /// How long an endless request of so many seconds at most lasts when the run is stopped after `stopped_s`, in milliseconds, and how it ends.
    async fn endless(limit: Limit, stop: &'static AtomicBool, stopped_s: u64) -> (u128, Failure) {
        let (mut limit, begin) = (limit, tokio::time::Instant::now());
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(stopped_s)).await;
            stop.store(true, Ordering::Relaxed);
        });
        let failure = limit.run(Stamp::now(), std::future::pending::<Result<(), Failure>>()).await.unwrap_err();
        (begin.elapsed().as_millis(), failure)
    }

    #[test]
    fn what_is_under_way_when_the_run_is_stopped_has_a_moment() {
        static NEVER: AtomicBool = AtomicBool::new(false);
        let minute = Duration::from_secs(60);
        for (cleans, timeout, hurries, least_ms, expected) in [
            (false, minute, false, 12_000, Failure::Stopped),
            (true, minute, false, 20_000, Failure::Timeout),
            (false, Duration::from_secs(11), false, 11_000, Failure::Timeout),
            (false, minute, true, 10_000, Failure::Stopped),
            (true, minute, true, 10_000, Failure::Stopped),
        ] {
            let stop: &'static AtomicBool = Box::leak(Box::default());
            let stops = [stop, if hurries { stop } else { &NEVER }];
            let limit = Limit { cleans, stops, ..Limit::new(timeout) };
            // Each has its own clock, which is the real one at the begin.
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
            let (ms, failure) = runtime.block_on(endless(limit, stop, 10));
            assert_eq!(failure, expected, "{cleans} {timeout:?} {hurries}");
            assert!((least_ms..=least_ms + 600).contains(&ms), "{cleans} {timeout:?} {hurries}: {ms}");
        }
    }
}
