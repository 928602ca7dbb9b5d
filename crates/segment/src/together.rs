//! Waits for several operations of one stripe with one turn.
//!
//! A stripe's chunks are written by as many threads, which end one after the other. Nobody has anything to do before the last one has: that each of them wakes the
//! lane makes it look at all of them as often as there are chunks, each time with a wake-up of a thread of the runtime.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures::future::{MaybeDone, maybe_done};
use futures::task::AtomicWaker;

/// Runs all futures until each is done. Unlike `join_all` it looks at them again only when all that were not ready have called for it: none of them may wait for another one to be
/// looked at. Whoever does not wait for the last ones has them still.
pub(crate) struct Together<F: Future> {
    futures: Vec<MaybeDone<F>>,
    calls: Arc<Calls>,
}

/// What became of one of them.
pub(crate) enum Outcome<F: Future> {
    /// It came to this.
    Done(F::Output),
    /// It is still to be run.
    UnderWay(F),
}

impl<F: Future + Unpin> Together<F> {
    pub(crate) fn new(futures: impl IntoIterator<Item = F>) -> Self {
        Self { futures: futures.into_iter().map(maybe_done).collect(), calls: Arc::default() }
    }

    /// What each came to, if it is done, in their order.
    pub(crate) fn done(&self) -> impl Iterator<Item = Option<&F::Output>> {
        self.futures.iter().map(|future| match future {
            MaybeDone::Done(output) => Some(output),
            MaybeDone::Future(_) | MaybeDone::Gone => None,
        })
    }

    /// What became of each, in their order.
    pub(crate) fn outcomes(self) -> impl Iterator<Item = Outcome<F>> {
        self.futures.into_iter().map(|future| match future {
            MaybeDone::Done(output) => Outcome::Done(output),
            MaybeDone::Future(future) => Outcome::UnderWay(future),
            MaybeDone::Gone => unreachable!("nobody has taken it"),
        })
    }
}

/// Counts those that are still to call, and wakes whoever waits when it was the last one.
#[derive(Default)]
struct Calls {
    left: AtomicIsize,
    waiting: AtomicWaker,
}

impl Calls {
    /// So many need not call any more. Says whether none is left.
    fn done(&self, futures: isize) -> bool {
        self.left.fetch_sub(futures, Ordering::AcqRel) <= futures
    }
}

impl Wake for Calls {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // One that calls twice makes it wake too early, never too late.
        if self.done(1) {
            self.waiting.wake();
        }
    }
}

impl<F: Future + Unpin> Future for Together<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        this.calls.waiting.register(context.waker());
        let is_pending = |future: &&mut MaybeDone<F>| matches!(future, MaybeDone::Future(_));
        let pending = this.futures.iter_mut().filter(is_pending).count();
        // Before any is looked at: those that become ready at once count as if they had called.
        this.calls.left.store(pending.cast_signed(), Ordering::Release);
        let waker = Waker::from(Arc::clone(&this.calls));
        let mut inner = Context::from_waker(&waker);
        let mut ready = 0;
        for future in this.futures.iter_mut().filter(is_pending) {
            ready += usize::from(Pin::new(future).poll(&mut inner).is_ready());
        }
        if ready == pending {
            return Poll::Ready(());
        }
        if this.calls.done(ready.cast_signed()) {
            // All others called meanwhile.
            context.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use futures::FutureExt;
    use futures::channel::oneshot;
    use futures::task::{ArcWake, waker};

    use super::*;

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl ArcWake for Wakes {
        fn wake_by_ref(wakes: &Arc<Self>) {
            wakes.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    async fn all<F: Future + Unpin>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
        let mut together = Together::new(futures);
        (&mut together).await;
        let outcomes = together.outcomes().map(|outcome| match outcome {
            Outcome::Done(output) => output,
            Outcome::UnderWay(_) => panic!("it was waited for"),
        });
        outcomes.collect()
    }

    #[test]
    fn the_last_one_wakes_and_no_other() {
        let wakes = Arc::new(Wakes::default());
        let waker = waker(Arc::clone(&wakes));
        let mut context = Context::from_waker(&waker);
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..6).map(|_| oneshot::channel()).unzip();
        let mut senders = senders.into_iter().enumerate();
        // One is there before anybody waits.
        let (first, sender) = senders.next().unwrap();
        sender.send(first).unwrap();
        let mut together = Together::new(receivers);
        assert!(Pin::new(&mut together).poll(&mut context).is_pending());
        for (number, sender) in senders {
            assert_eq!(wakes.0.load(Ordering::Relaxed), 0);
            sender.send(number).unwrap();
        }
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
        assert!(Pin::new(&mut together).poll(&mut context).is_ready());
        assert_eq!(
            together.done().map(|output| output.unwrap().unwrap()).collect::<Vec<_>>(),
            (0..6).collect::<Vec<_>>()
        );
    }

    #[test]
    fn those_that_are_under_way_are_left_to_whoever_wants_them() {
        let waker = waker(Arc::new(Wakes::default()));
        let mut context = Context::from_waker(&waker);
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..3).map(|_| oneshot::channel()).unzip();
        let mut senders = senders.into_iter();
        senders.next().unwrap().send(7).unwrap();
        let mut together = Together::new(receivers);
        assert!(Pin::new(&mut together).poll(&mut context).is_pending());
        assert_eq!(together.done().collect::<Vec<_>>(), [Some(&Ok(7)), None, None]);
        senders.next().unwrap().send(8).unwrap();
        let mut outcomes = together.outcomes();
        assert!(matches!(outcomes.next(), Some(Outcome::Done(Ok(7)))));
        let mut late = outcomes.filter_map(|outcome| match outcome {
            Outcome::Done(_) => None,
            Outcome::UnderWay(future) => Some(future),
        });
        assert_eq!(late.next().unwrap().now_or_never(), Some(Ok(8)));
        assert_eq!(late.next().unwrap().now_or_never(), None);
    }

    #[tokio::test]
    async fn nothing_to_wait_for_is_no_wait() {
        assert!(all(std::iter::empty::<std::future::Ready<()>>()).await.is_empty());
        assert_eq!(all((0..3).map(std::future::ready)).await, [0, 1, 2]);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn whatever_the_turns_that_each_takes_all_come_to_their_end() {
        for round in 0..300 {
            let turns = (0..6).map(|number| {
                Box::pin(async move {
                    for turn in 0..(number * 7 + round) % 5 {
                        let other = tokio::spawn(async move { turn });
                        assert_eq!(other.await.unwrap(), turn);
                    }
                    number
                })
            });
            assert_eq!(all(turns).await, [0, 1, 2, 3, 4, 5]);
        }
    }
}
