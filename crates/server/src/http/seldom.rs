//! A future that is waited for beside a busy one, and is looked at only when something has woken it.
//!
//! The task of a connection is polled for every request; what may end the connection (timers, a shutdown) changes once in many
//! thousands of them, but would be asked each time, behind locks that all connections share.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use parking_lot::Mutex;

pin_project_lite::pin_project! {
    /// Polls `inner` when it was woken, not when its task was.
    pub(super) struct Seldom<F> {
        #[pin]
        inner: F,
        bell: Arc<Bell>,
        // Rings the bell.
        ringer: Waker,
        // Who was told to be woken by the bell.
        listener: Option<Waker>,
    }
}

struct Bell {
    rung: AtomicBool,
    /// Stays when it is woken: a ring that comes late must not use up what the next one needs.
    task: Mutex<Option<Waker>>,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        // First the note, then the call: whoever comes because of the call finds the note.
        self.rung.store(true, Ordering::Release);
        let task = self.task.lock().clone();
        if let Some(task) = task {
            task.wake();
        }
    }
}

impl<F> Seldom<F> {
    pub(super) fn new(inner: F) -> Self {
        let bell = Arc::new(Bell { rung: AtomicBool::new(true), task: Mutex::default() });
        Self { inner, ringer: Waker::from(Arc::clone(&bell)), bell, listener: None }
    }
}

impl<F: Future> Future for Seldom<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        if !this.listener.as_ref().is_some_and(|listener| listener.will_wake(cx.waker())) {
            // Before the note is read: a ring between the two finds the new listener.
            *this.bell.task.lock() = Some(cx.waker().clone());
            *this.listener = Some(cx.waker().clone());
        }
        if !this.bell.rung.load(Ordering::Acquire) {
            return Poll::Pending;
        }
        // What rings before this, `inner` sees now; what rings later, leaves a note.
        this.bell.rung.swap(false, Ordering::AcqRel);
        this.inner.poll(&mut Context::from_waker(this.ringer))
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::atomic::AtomicU32;

    use super::*;

    /// Counts its wakes.
    #[derive(Default)]
    struct Counting(AtomicU32);

    impl Wake for Counting {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn is_polled_when_it_was_woken_and_wakes_the_task_that_polled_last() {
        let seen = std::cell::RefCell::new((0, None));
        let mut seldom = std::pin::pin!(Seldom::new(poll_fn(|cx: &mut Context<'_>| {
            let (polls, waker) = &mut *seen.borrow_mut();
            *polls += 1;
            *waker = Some(cx.waker().clone());
            if *polls == 4 { Poll::Ready(()) } else { Poll::Pending }
        })));
        let tasks = [Arc::new(Counting::default()), Arc::new(Counting::default())];
        let wakers = tasks.clone().map(Waker::from);
        let mut poll = |task: usize| seldom.as_mut().poll(&mut Context::from_waker(&wakers[task])).is_ready();
        let woken = || tasks.each_ref().map(|task| task.0.load(Ordering::Relaxed));
        let polls = || seen.borrow().0;
        let wake = || seen.borrow().1.clone().into_iter().for_each(Waker::wake);

        assert!(!poll(0) && !poll(0));
        assert_eq!((polls(), woken()), (1, [0, 0]), "nobody woke it");
        wake();
        assert_eq!(woken(), [1, 0]);
        assert!(!poll(0) && !poll(0));
        assert_eq!(polls(), 2);
        wake();
        assert_eq!(woken(), [2, 0], "it is woken again and again");
        assert!(!poll(0) && !poll(1));
        assert_eq!(polls(), 3);
        wake();
        assert_eq!(woken(), [2, 1], "the task that polled last is woken");
        assert!(poll(1));
    }

    #[test]
    fn a_call_that_comes_late_uses_nothing_up() {
        let mut seldom = std::pin::pin!(Seldom::new(std::future::pending::<()>()));
        let bell = Arc::clone(&seldom.bell);
        let task = Arc::new(Counting::default());
        let waker = Waker::from(Arc::clone(&task));
        let mut poll = || assert!(seldom.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        poll();
        // One thread leaves the note, another polls for reasons of its own and takes it, and only then the call comes.
        bell.rung.store(true, Ordering::Release);
        poll();
        let called = bell.task.lock().clone();
        called.into_iter().for_each(Waker::wake);
        poll();
        Waker::from(bell).wake();
        assert_eq!(task.0.load(Ordering::Relaxed), 2, "the next ring calls again");
    }

    #[tokio::test(start_paused = true)]
    async fn a_timer_inside_it_goes_off() {
        let waited = tokio::time::Instant::now();
        let mut seldom = std::pin::pin!(Seldom::new(tokio::time::sleep(std::time::Duration::from_secs(5))));
        for second in 1..5 {
            tokio::select! {
                () = seldom.as_mut() => panic!("after {second} s"),
                () = tokio::time::sleep(std::time::Duration::from_secs(1)) => {}
            }
        }
        seldom.await;
        assert_eq!(waited.elapsed().as_secs(), 5);
    }
}
