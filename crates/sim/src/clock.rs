//! Time of the simulated machine: tokio's paused clock while a process lives, and what has passed before it.

use std::time::Duration;

use gabion_platform::Clock;
use parking_lot::Mutex;
use tokio::time::Instant;

/// Time begins here.
const START_MS: u64 = 1_750_000_000_000;

/// A clock that passes as tokio's does: at once, whenever nothing is left to do but to wait.
#[derive(Debug, Default)]
pub(crate) struct SimClock {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// What passed before this life.
    before: Duration,
    /// When this life began.
    began: Option<Instant>,
    /// How far the wall clock was set forward, or back.
    skew_ms: i64,
}

impl SimClock {
    /// A life begins; called within its runtime.
    pub(crate) fn begin(&self) {
        self.state.lock().began = Some(Instant::now());
    }

    /// A life ends: time stands until the next one.
    pub(crate) fn freeze(&self) {
        let mut state = self.state.lock();
        state.before = state.passed();
        state.began = None;
    }

    /// Sets the wall clock forward, or back.
    pub(crate) fn step_wall(&self, by_ms: i64) {
        self.state.lock().skew_ms += by_ms;
    }
}

impl State {
    fn passed(&self) -> Duration {
        self.before + self.began.map_or(Duration::ZERO, |began| began.elapsed())
    }
}

impl Clock for SimClock {
    fn now_ms(&self) -> u64 {
        let state = self.state.lock();
        (START_MS + state.passed().as_millis() as u64).saturating_add_signed(state.skew_ms)
    }

    fn monotonic_ns(&self) -> u64 {
        self.state.lock().passed().as_nanos() as u64
    }
}
