//! An operation of the simulated disk as a future: steps, between which others may run.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use parking_lot::Mutex;
use tokio::time::{Sleep, sleep};

use super::state::State;
use crate::disk::IoFuture;

type Step<T> = Box<dyn FnOnce(&mut State) -> io::Result<T> + Send>;

/// The future; if it is dropped after its first poll, it does its remaining steps then.
pub(super) struct Operation<T> {
    state: Arc<Mutex<State>>,
    epoch: u64,
    first: VecDeque<Step<()>>,
    /// Taken when it has run or will never run.
    last: Option<Step<T>>,
    begun: bool,
    /// What to wait for before the step that is next; unknown until it is asked.
    wait: Option<Wait>,
}

struct Wait {
    turns: u32,
    pause: Option<Pin<Box<Sleep>>>,
}

impl Wait {
    fn new(state: &mut State) -> Self {
        Self { turns: state.turns(), pause: state.pause().map(|pause| Box::pin(sleep(pause))) }
    }
}

impl<T: Send + 'static> Operation<T> {
    /// An operation of one step.
    pub(super) fn new(
        state: Arc<Mutex<State>>,
        epoch: u64,
        last: impl FnOnce(&mut State) -> io::Result<T> + Send + 'static,
    ) -> Self {
        Self { state, epoch, first: VecDeque::new(), last: Some(Box::new(last)), begun: false, wait: None }
    }

    /// The same, with a step before all others.
    pub(super) fn after(mut self, step: impl FnOnce(&mut State) -> io::Result<()> + Send + 'static) -> Self {
        self.first.push_front(Box::new(step));
        self
    }

    pub(super) fn boxed(self) -> IoFuture<T> {
        Box::pin(self)
    }
}

impl<T> Operation<T> {
    /// Does the next step; the result once it was the last one or failed.
    fn step(&mut self, state: &mut State) -> Option<io::Result<T>> {
        self.wait = None;
        let outcome = state.check_alive(self.epoch).and_then(|()| match self.first.pop_front() {
            Some(step) => step(state).map(|()| None),
            None => self.last.take().expect("an operation is not polled after its end")(state).map(Some),
        });
        if outcome.is_err() {
            self.last = None;
        }
        outcome.transpose()
    }
}

impl<T> Future for Operation<T> {
    type Output = io::Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        let this = &mut *self;
        this.begun = true;
        let shared = Arc::clone(&this.state);
        let mut state = shared.lock();
        loop {
            let wait = this.wait.get_or_insert_with(|| Wait::new(&mut state));
            if wait.turns > 0 {
                wait.turns -= 1;
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            if let Some(pause) = &mut wait.pause {
                ready!(pause.as_mut().poll(context));
            }
            if let Some(result) = this.step(&mut state) {
                return Poll::Ready(result);
            }
        }
    }
}

impl<T> Drop for Operation<T> {
    fn drop(&mut self) {
        if !self.begun {
            return;
        }
        let shared = Arc::clone(&self.state);
        let mut state = shared.lock();
        while self.last.is_some() {
            // No one listens.
            let _ = self.step(&mut state);
        }
    }
}
