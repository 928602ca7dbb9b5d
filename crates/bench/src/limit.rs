//! A time limit for each request, with one timer per worker that is only set anew when it rings.
//!
//! A timer per request would cost the client more than parsing the answer does.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    task::Poll,
    time::Duration,
};

use tokio::time::{Sleep, sleep_until};

use crate::{clock::Stamp, failure::Failure};

/// Longest time that a request may take, its answer's body included.
pub(crate) struct Limit {
    timeout: Duration,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Limit {
    pub(crate) fn new(timeout: Duration) -> Self {
        Self { timeout, timer: None }
    }

    /// Runs `request`, which began at `begin`, and drops it when its time is over.
    ///
    /// # Errors
    /// The request's own, and `Timeout`.
    pub(crate) async fn run<T>(
        &mut self,
        begin: Stamp,
        request: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let deadline = begin.plus(self.timeout).to_tokio();
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        let mut request = pin!(request);
        poll_fn(|task| {
            if let Poll::Ready(result) = request.as_mut().poll(task) {
                return Poll::Ready(result);
            }
            while timer.as_mut().poll(task).is_ready() {
                if timer.deadline() >= deadline {
                    return Poll::Ready(Err(Failure::Timeout));
                }
                timer.as_mut().reset(deadline);
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
}
