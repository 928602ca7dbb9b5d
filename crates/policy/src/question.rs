//! One policy's look at one request, with an end to the work that it may take.

use std::cell::Cell;

use crate::request::Context;

/// Most steps of one policy for one request: characters that are compared or put together. Whoever writes a policy and whoever sends a request
/// could otherwise make a product of two lengths between them, many times over. A policy of the largest size whose patterns all begin
/// with `*` takes as many for a key of the greatest length.
const STEPS_MAX: usize = 2 << 20;

/// What a policy is asked about, and how much it may still do for an answer.
#[derive(Debug)]
pub(crate) struct Question<'a> {
    pub(crate) context: &'a Context,
    steps_left: Cell<Option<usize>>,
}

impl<'a> Question<'a> {
    pub(crate) fn new(context: &'a Context) -> Self {
        Self { context, steps_left: Cell::new(Some(STEPS_MAX)) }
    }

    /// Pays for some steps before they are taken; nothing when there are not as many left, nor any more from then on.
    pub(crate) fn spend(&self, steps: usize) -> Option<()> {
        self.steps_left.set(self.steps_left.get()?.checked_sub(steps));
        self.steps_left.get().map(|_| ())
    }

    /// Whether an answer would have taken more than is allowed: what was found until then says nothing.
    pub(crate) fn is_spent(&self) -> bool {
        self.steps_left.get().is_none()
    }
}
