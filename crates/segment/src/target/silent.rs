//! Targets that do not answer.
//!
//! A drive that hangs gives no error, and a file system says from memory how much room it has on one. So whatever is done on a target by somebody who can do without it has a time. One
//! that takes longer makes its target silent: nothing new begins there before all that is overdue has come to its end (docs/adr/0024).
//!
//! Nobody gives up what nothing else stands in for: a parallel file system that fails over takes minutes, and who waits has lost nothing. So a stripe waits for its last chunks no longer
//! than that once enough of the others are there, and a read goes to the others, and waits only where these are too few.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use gabion_platform::{Clock, IoFuture};
use gabion_types::TargetId;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{Instant, Sleep, sleep, timeout, timeout_at};

use super::{Target, TargetSet, TargetState};
use crate::together::{Outcome, Together};

/// Longest time that a target may take to read or write a chunk, to make or remove a file, or to take a list of members. One that is merely busy takes seconds.
pub(crate) const OVERDUE: Duration = Duration::from_secs(30);
/// The same for making durable what was written before: all that the page cache has of it is on its way to the drive then.
pub(crate) const SYNC_OVERDUE: Duration = Duration::from_secs(120);
/// How often it is looked whether enough others are there.
const LOOKED_AGAIN: Duration = Duration::from_secs(1);

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

    /// The same as a future for itself.
    pub(crate) fn timed<T: Send + 'static>(self: &Arc<Self>, limit: Duration, work: IoFuture<T>) -> IoFuture<T> {
        let target = Arc::clone(self);
        Box::pin(async move { target.in_time(limit, work).await })
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
        self.is_late(Owed::Other, async move { late(work.await).await });
        Err(overdue())
    }

    /// Whether a read or a write is overdue: what is asked of it now is had elsewhere.
    pub(crate) fn owes_bytes(&self) -> bool {
        self.owed.load(Ordering::SeqCst) > 0
    }

    /// Counts `work`, which is under way there, as overdue until it has ended.
    fn is_late(self: &Arc<Self>, owed: Owed, work: impl Future<Output = ()> + Send + 'static) {
        let target = Arc::clone(self);
        let bytes = usize::from(owed == Owed::Bytes);
        target.silence.change(|silence| {
            target.overdue.fetch_add(1, Ordering::SeqCst);
            target.owed.fetch_add(bytes, Ordering::SeqCst);
            silence.owed.fetch_add(bytes, Ordering::SeqCst);
        });
        // What is written there is not known to have failed.
        target.is_waited_for("nothing new is placed there before it has");
        tokio::spawn(async move {
            work.await;
            target.silence.change(|silence| {
                target.overdue.fetch_sub(1, Ordering::SeqCst);
                target.owed.fetch_sub(bytes, Ordering::SeqCst);
                silence.owed.fetch_sub(bytes, Ordering::SeqCst);
                silence.ended.fetch_add(1, Ordering::SeqCst);
            });
            target.has_come();
        });
    }

    /// Does `work` when nothing is overdue there any more; not if the process ends before.
    pub(crate) fn afterwards(self: &Arc<Self>, work: impl Future<Output = ()> + Send + 'static) {
        let target = Arc::clone(self);
        tokio::spawn(async move {
            loop {
                let mut ended = pin!(target.silence.rings.notified());
                // Before it is looked at: from here on nothing is missed.
                ended.as_mut().enable();
                if !target.is_silent() {
                    break;
                }
                ended.await;
            }
            work.await;
        });
    }

    /// Notes that something of it is waited for since it should have been done.
    fn is_waited_for(&self, what_follows: &str) {
        let waits = &mut self.health.lock().waits;
        *waits += 1;
        if *waits == 1 {
            tracing::error!(target_name = %self.name, "a target does not answer: {what_follows}");
        }
    }

    /// The other way round.
    fn has_come(&self) {
        let waits = &mut self.health.lock().waits;
        *waits -= 1;
        if *waits == 0 {
            tracing::warn!(target_name = %self.name, "a target answers again");
        }
    }
}

/// What is overdue.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owed {
    /// A read, or something that is to be written or made durable.
    Bytes,
    /// Something else: a drive that is busy with removals may be read all the same.
    Other,
}

/// What all targets together owe.
#[derive(Default)]
pub(crate) struct Silence {
    /// Held while any of it changes, also that of each target: whoever looks under it sees what is owed, or that it has ended.
    turn: Mutex<()>,
    /// Reads and writes.
    owed: AtomicUsize,
    /// How often something came to its end that was overdue.
    ended: AtomicU64,
    /// Rings then.
    rings: Notify,
}

impl Silence {
    fn change(&self, change: impl FnOnce(&Self)) {
        let turn = self.turn.lock();
        change(self);
        drop(turn);
        self.rings.notify_waiters();
    }
}

impl TargetSet {
    /// Whether the target `id` is there and owes bytes.
    pub(crate) fn owes_bytes(&self, id: TargetId) -> bool {
        self.any_owes_bytes() && self.present(id).is_some_and(|target| target.owes_bytes())
    }

    /// Whether any target does. Of all reads this is asked, and hardly ever is there one.
    pub(crate) fn any_owes_bytes(&self) -> bool {
        self.silence.owed.load(Ordering::SeqCst) > 0
    }

    /// How often something came to its end that was overdue.
    pub(crate) fn has_ended(&self) -> u64 {
        self.silence.ended.load(Ordering::SeqCst)
    }

    /// Whether one of `targets` owes bytes, or something that was overdue has ended since so much [had](Self::has_ended); in the first case it waits for that, or for a while.
    pub(crate) async fn waits_for(&self, targets: &[TargetId], had_ended: u64) -> bool {
        let mut rings = pin!(self.silence.rings.notified());
        // Before it is looked at: from here on nothing is missed.
        rings.as_mut().enable();
        let (has_ended, owes) = {
            let _turn = self.silence.turn.lock();
            (self.has_ended() != had_ended, targets.iter().any(|target| self.owes_bytes(*target)))
        };
        if owes && !has_ended {
            // What is wanted may have another place by then.
            let _ = timeout(OVERDUE, rings).await;
        }
        has_ended || owes
    }

    /// How many targets take new segments, as far as is known, without those at these places.
    pub(crate) fn others_at_work(&self, places: &[usize]) -> usize {
        let is_at_work = |(place, target): &(usize, Arc<Target>)| {
            !places.contains(place)
                && !target.is_silent()
                && !target.is_draining()
                && target.state() == TargetState::Online
        };
        self.all().iter().filter(|target| is_at_work(target)).count()
    }

    /// What comes of a read on the target `id`, for which others stand in.
    ///
    /// # Errors
    /// Its own, or one that [`is_overdue`].
    pub(crate) async fn read_in_time<T: Send + 'static>(&self, id: TargetId, read: IoFuture<T>) -> io::Result<T> {
        if self.owes_bytes(id) {
            return Err(overdue());
        }
        Watched { targets: self, id, read: Some(read), late: None }.await
    }

    /// What comes of all `works`, each on the target at its place. Those that are left are waited for no longer than `is_enough` says, which is told for how long they have been, how many did
    /// well, and where the others are.
    ///
    /// # Errors
    /// Those of each, or one that [`is_overdue`].
    pub(crate) async fn enough_in_time<T: Send + 'static>(
        &self,
        works: impl IntoIterator<Item = (usize, IoFuture<T>)>,
        is_enough: impl Fn(Duration, usize, &[usize]) -> bool,
    ) -> Vec<io::Result<T>> {
        let (places, works): (Vec<usize>, Vec<IoFuture<T>>) = works.into_iter().unzip();
        let mut all = Together::new(works);
        let (begun, mut before, mut waited_for) = (Instant::now(), None, Vec::<Arc<Target>>::new());
        while timeout(LOOKED_AGAIN, &mut all).await.is_err() {
            let waited = begun.elapsed();
            let well = all.done().filter(|outcome| outcome.is_some_and(io::Result::is_ok)).count();
            let left = places.iter().zip(all.done()).filter(|(_, outcome)| outcome.is_none());
            // Where those that hung come back one after the other, the last one is not given up for being that.
            let comes_back = before.replace(well).is_some_and(|before| before < well);
            let left: Vec<usize> = left.map(|(place, _)| *place).collect();
            if !comes_back && is_enough(waited, well, &left) {
                break;
            }
            if waited_for.is_empty() && waited >= OVERDUE {
                waited_for = left.into_iter().map(|place| self.at(place)).collect();
                waited_for.iter().for_each(|target| target.is_waited_for("it is waited for"));
            }
        }
        let outcome = |(place, outcome)| match outcome {
            Outcome::Done(outcome) => outcome,
            Outcome::UnderWay(work) => {
                self.at(place).is_late(Owed::Bytes, async move { drop(work.await) });
                Err(overdue())
            }
        };
        let outcomes = places.into_iter().zip(all.outcomes()).map(outcome).collect();
        waited_for.iter().for_each(|target| target.has_come());
        outcomes
    }
}

/// A read. It is seen to come to its end in time also when whoever wanted it has gone: clients may be less patient.
struct Watched<'a, T: Send + 'static> {
    targets: &'a TargetSet,
    id: TargetId,
    /// Nothing when it has ended.
    read: Option<IoFuture<T>>,
    /// When it is overdue; what is in memory is there at once, without it.
    late: Option<Pin<Box<Sleep>>>,
}

impl<T: Send + 'static> Future for Watched<'_, T> {
    type Output = io::Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        let this = &mut *self;
        if let Some(read) = &mut this.read {
            if let Poll::Ready(outcome) = read.as_mut().poll(context) {
                this.read = None;
                return Poll::Ready(outcome);
            }
            ready!(this.late.get_or_insert_with(|| Box::pin(sleep(OVERDUE))).as_mut().poll(context));
        }
        if let (Some(read), Some(target)) = (this.read.take(), this.targets.present(this.id)) {
            gives_nothing(&target, &*this.targets.clock, read);
        }
        Poll::Ready(Err(overdue()))
    }
}

impl<T: Send + 'static> Drop for Watched<'_, T> {
    fn drop(&mut self) {
        let (Some(mut read), Some(late)) = (self.read.take(), &self.late) else { return };
        let (Some(target), Ok(runtime)) = (self.targets.present(self.id), Handle::try_current()) else { return };
        let (clock, late) = (Arc::clone(&self.targets.clock), late.deadline());
        drop(runtime.spawn(async move {
            if timeout_at(late, &mut read).await.is_err() {
                gives_nothing(&target, &*clock, read);
            }
        }));
    }
}

/// Notes that a read of a target is overdue: what lies there is to be had elsewhere, and, if that goes on, to be built anew elsewhere.
fn gives_nothing<T: Send + 'static>(target: &Arc<Target>, clock: &dyn Clock, read: IoFuture<T>) {
    target.failed(clock, &overdue());
    target.is_late(Owed::Bytes, async move { drop(read.await) });
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
