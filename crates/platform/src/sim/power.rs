//! The power supply of a simulated machine: it goes out between any two steps of any of its disks.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// A supply that disks share; clones are the same one. When it goes out every operation fails, on all of them, until it is
/// restored: meanwhile the disks are to be crashed.
#[derive(Clone, Default)]
pub struct SimPower {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    out: Notify,
}

#[derive(Default)]
struct State {
    /// Steps that were ever begun.
    steps: u64,
    /// The step before which it goes out.
    out_at: Option<u64>,
    is_out: bool,
}

impl SimPower {
    /// A supply that does not fail.
    pub fn new() -> Self {
        Self::default()
    }

    /// It goes out after `steps` more steps of all disks together.
    pub fn cut_after(&self, steps: u64) {
        let mut state = self.shared.state.lock();
        state.out_at = Some(state.steps + steps);
    }

    /// It is back, and does not fail.
    pub fn restore(&self) {
        let mut state = self.shared.state.lock();
        state.out_at = None;
        state.is_out = false;
    }

    /// Whether it is out.
    pub fn is_out(&self) -> bool {
        self.shared.state.lock().is_out
    }

    /// Waits until it is out. Cancel safe.
    pub async fn wait_until_out(&self) {
        let out = self.shared.out.notified();
        if !self.is_out() {
            out.await;
        }
    }

    /// Steps that all disks ever began.
    pub fn steps(&self) -> u64 {
        self.shared.state.lock().steps
    }

    /// A disk begins a step; false if there is no power for it.
    pub(super) fn step(&self) -> bool {
        let mut state = self.shared.state.lock();
        if !state.is_out && state.out_at == Some(state.steps) {
            state.is_out = true;
            self.shared.out.notify_waiters();
        }
        state.steps += u64::from(!state.is_out);
        !state.is_out
    }
}

impl fmt::Debug for SimPower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimPower").field("is_out", &self.is_out()).finish_non_exhaustive()
    }
}
