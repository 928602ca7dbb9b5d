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

/// Runs all futures to their end, and returns what they came to, in their order. Unlike `join_all` it looks at them again only when all that were not ready have called for it:
/// none of them may wait for another one to be looked at.
pub(crate) async fn together<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let futures: Vec<_> = futures.into_iter().map(|future| Box::pin(maybe_done(future))).collect();
    Together { futures, calls: Arc::default() }.await
}

struct Together<F: Future> {
    futures: Vec<Pin<Box<MaybeDone<F>>>>,
    calls: Arc<Calls>,
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

impl<F: Future> Future for Together<F> {
    type Output = Vec<F::Output>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        this.calls.waiting.register(context.waker());
        let is_pending = |future: &&mut Pin<Box<MaybeDone<F>>>| matches!(*future.as_ref(), MaybeDone::Future(_));
        let pending = this.futures.iter_mut().filter(is_pending).count();
        // Before any is looked at: those that become ready at once count as if they had called.
        this.calls.left.store(pending.cast_signed(), Ordering::Release);
        let waker = Waker::from(Arc::clone(&this.calls));
        let mut inner = Context::from_waker(&waker);
        let mut ready = 0;
        for future in this.futures.iter_mut().filter(is_pending) {
            ready += usize::from(future.as_mut().poll(&mut inner).is_ready());
        }
        if ready == pending {
            let outputs = this.futures.iter_mut().map(|future| future.as_mut().take_output());
            return Poll::Ready(outputs.map(|output| output.expect("all are done, and were not taken")).collect());
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
        let mut together = Box::pin(together(receivers));
        assert!(together.as_mut().poll(&mut context).is_pending());
        for (number, sender) in senders {
            assert_eq!(wakes.0.load(Ordering::Relaxed), 0);
            sender.send(number).unwrap();
        }
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
        let Poll::Ready(outputs) = together.as_mut().poll(&mut context) else { panic!("all are done") };
        assert_eq!(outputs.into_iter().map(Result::unwrap).collect::<Vec<_>>(), (0..6).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn nothing_to_wait_for_is_no_wait() {
        assert!(together(std::iter::empty::<std::future::Ready<()>>()).await.is_empty());
        assert_eq!(together((0..3).map(std::future::ready)).await, [0, 1, 2]);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn whatever_the_turns_that_each_takes_all_come_to_their_end() {
        for round in 0..300 {
            let turns = (0..6).map(async |number| {
                for turn in 0..(number * 7 + round) % 5 {
                    let other = tokio::spawn(async move { turn });
                    assert_eq!(other.await.unwrap(), turn);
                }
                number
            });
            assert_eq!(together(turns).await, [0, 1, 2, 3, 4, 5]);
        }
    }
}
