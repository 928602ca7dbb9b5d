//! Once more: for requests that prepare a measurement or remove what it wrote. Those that are measured are sent once, and a failure is counted.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use crate::{failure::Failure, stop::STOP};

/// How often a request is sent once more: a server that is started again, or told to slow down, is back by then.
const RETRIES: u32 = 4;
/// The same of one that removes what was written, where a server answers that can not do it now: for a dozen seconds, as what stays is somebody's work.
const RETRIES_OF_CLEANING: u32 = 7;
/// The same where nobody answers, and the run was stopped: somebody waits for its end.
const RETRIES_WHEN_STOPPED: u32 = 1;
/// How long is waited before the first of them; twice as long before each that follows.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// What is left of it for one request.
#[derive(Debug)]
pub(crate) struct Patience {
    failures: u32,
    cleans: bool,
    stop: &'static AtomicBool,
}

impl Default for Patience {
    fn default() -> Self {
        Self { failures: 0, cleans: false, stop: &STOP }
    }
}

impl Patience {
    /// With what removes what was written.
    pub(crate) fn of_cleaning() -> Self {
        Self { cleans: true, ..Self::default() }
    }

    /// Waits until the request may be sent once more.
    ///
    /// # Errors
    /// The failure, if it will not pass by itself or was met too often.
    pub(crate) async fn after(&mut self, failure: Failure) -> Result<(), Failure> {
        let retries = match (failure.is_silence(), self.cleans) {
            (true, _) if self.stop.load(Ordering::Relaxed) => RETRIES_WHEN_STOPPED,
            (false, true) => RETRIES_OF_CLEANING,
            _ => RETRIES,
        };
        if self.failures >= retries || !failure.may_pass() {
            return Err(failure);
        }
        tokio::time::sleep(FIRST_PAUSE * 2_u32.pow(self.failures)).await;
        self.failures += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Fault;

    #[tokio::test(start_paused = true)]
    async fn only_what_may_pass_is_tried_again_and_not_for_ever() {
        let status = |status, code: &str| Failure::Status { status, code: code.to_owned() };
        for failure in [Failure::Timeout, status(503, ""), status(200, "SlowDown")] {
            let (mut patience, mut tries) = (Patience::default(), 0);
            while patience.after(failure.clone()).await.is_ok() {
                tries += 1;
            }
            assert_eq!(tries, RETRIES, "{failure}");
        }
        let refused = Failure::Connection { fault: Fault::Refused, reason: String::new() };
        for (failure, expected) in [(status(503, "SlowDown"), RETRIES_OF_CLEANING), (refused, RETRIES)] {
            let (mut patience, mut tries) = (Patience::of_cleaning(), 0);
            while patience.after(failure.clone()).await.is_ok() {
                tries += 1;
            }
            assert_eq!(tries, expected, "{failure}");
        }
        for (failure, expected) in [(Failure::Timeout, RETRIES_WHEN_STOPPED), (status(503, ""), RETRIES_OF_CLEANING)] {
            static STOPPED: AtomicBool = AtomicBool::new(true);
            let (mut patience, mut tries) = (Patience { stop: &STOPPED, ..Patience::of_cleaning() }, 0);
            while patience.after(failure.clone()).await.is_ok() {
                tries += 1;
            }
            assert_eq!(tries, expected, "{failure}");
        }
        for failure in [Failure::Mismatch, status(403, "AccessDenied"), status(200, "AccessDenied")] {
            assert_eq!(Patience::default().after(failure.clone()).await, Err(failure));
        }
    }
}
