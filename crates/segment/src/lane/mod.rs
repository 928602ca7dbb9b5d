//! Lanes: each is one task with one open segment, one append position and one stripe in flight.
//!
//! A lane writes; its apply task takes what is durable into the index and answers the submitters, in order, while the lane
//! writes the next stripe.

pub(crate) mod apply;
pub(crate) mod encode;
pub(crate) mod large;
pub(crate) mod open;
pub(crate) mod small;
pub(crate) mod submit;
pub(crate) mod writer;
pub(crate) mod zeros;

use std::sync::Arc;

use crate::core::Core;
use crate::queue::Queue;

/// Ends a lane: if it ends by a panic, nobody waits for it for ever.
pub(crate) struct LaneGuard<T> {
    core: Arc<Core>,
    queue: Arc<Queue<T>>,
    finished: bool,
}

impl<T> LaneGuard<T> {
    pub(crate) fn new(core: Arc<Core>, queue: Arc<Queue<T>>) -> Self {
        Self { core, queue, finished: false }
    }

    pub(crate) fn finish(mut self) {
        self.finished = true;
    }
}

impl<T> Drop for LaneGuard<T> {
    fn drop(&mut self) {
        self.queue.close();
        if !self.finished {
            self.core.poison("a lane ended unexpectedly".to_owned());
        }
        self.queue.clear();
    }
}
