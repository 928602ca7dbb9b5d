//! Targets that do not answer.
//!
//! A drive that hangs gives no error, and a file system says from memory how much room it has on one. So whatever is done on a target outside of stripes, by somebody who can do without
//! it, has a time. One that takes longer makes its target silent: nothing new begins there before all that is overdue has come to its end.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::timeout;

use super::Target;

/// Longest time that a target may take to make or remove a file, or to take a list of members. One that is merely busy takes seconds.
pub(crate) const OVERDUE: Duration = Duration::from_secs(30);

impl Target {
    /// Whether something that it was to do is overdue.
    pub(crate) fn is_silent(&self) -> bool {
        self.overdue.load(Ordering::SeqCst) > 0
    }

    /// Does `work` there, which nothing begins before it is polled, if nothing else is overdue.
    ///
    /// # Errors
    /// Its own, or one that [`is_overdue`] when it takes longer than `limit`: it goes on then.
    pub(crate) async fn in_time<T: Send + 'static>(
        self: &Arc<Self>,
        limit: Duration,
        work: impl Future<Output = io::Result<T>> + Send + 'static,
    ) -> io::Result<T> {
        self.in_time_or(limit, work, |_| std::future::ready(())).await
    }

    /// The same; `late` is given what came of it too late.
    ///
    /// # Errors
    /// As [`Target::in_time`].
    pub(crate) async fn in_time_or<T, L>(
        self: &Arc<Self>,
        limit: Duration,
        work: impl Future<Output = io::Result<T>> + Send + 'static,
        late: impl FnOnce(io::Result<T>) -> L + Send + 'static,
    ) -> io::Result<T>
    where
        T: Send + 'static,
        L: Future<Output = ()> + Send,
    {
        if self.is_silent() {
            return Err(overdue());
        }
        let mut work = Box::pin(work);
        if let Ok(outcome) = timeout(limit, &mut work).await {
            return outcome;
        }
        let target = Arc::clone(self);
        // What is written there is not known to have failed.
        if target.overdue.fetch_add(1, Ordering::SeqCst) == 0 {
            tracing::error!(target_name = %target.name, "a target does not answer: nothing new is placed there before it has");
        }
        tokio::spawn(async move {
            late(work.await).await;
            if target.overdue.fetch_sub(1, Ordering::SeqCst) == 1 {
                tracing::warn!(target_name = %target.name, "a target answers again");
            }
        });
        Err(overdue())
    }
}

/// Nothing was heard for as long as is waited.
#[derive(Debug, thiserror::Error)]
#[error("the target has not answered in time")]
struct Overdue;

/// That nothing was heard, as an error.
pub(crate) fn overdue() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, Overdue)
}

/// Whether an error says that, and nothing else is known.
pub(crate) fn is_overdue(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<Overdue>())
}
