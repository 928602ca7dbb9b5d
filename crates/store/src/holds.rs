//! Segments that something in flight may come to refer to: they are not deleted although no row refers to them yet.
//!
//! A stripe of a large object is durable before the mutation that names it. In between, its segment may be sealed and
//! has no live bytes. Two things guard it: a *hold* on the segment from the moment the extent is known until the
//! mutation is applied, and, for the moment between the two in which the lane knows the extent and the writer does not,
//! an *epoch*: a segment is deleted only when every append that began before it was sealed has returned.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use gabion_types::{Extent, SegmentId};
use parking_lot::Mutex;

/// All holds and epochs of a store.
#[derive(Default)]
pub(crate) struct Holds {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    held: HashMap<SegmentId, usize>,
    epoch: u64,
    /// Appends under way, by the epoch in which they began.
    appends: BTreeMap<u64, usize>,
}

/// Keeps segments from being deleted until it is dropped.
pub(crate) struct Hold {
    holds: Arc<Holds>,
    segments: Vec<SegmentId>,
}

/// An append that is under way.
pub(crate) struct Appending {
    holds: Arc<Holds>,
    epoch: u64,
}

impl Holds {
    /// Holds nothing yet.
    pub(crate) fn hold(self: &Arc<Self>) -> Hold {
        Hold { holds: Arc::clone(self), segments: Vec::new() }
    }

    /// To be called before an append, and kept until its extent is held.
    pub(crate) fn append(self: &Arc<Self>) -> Appending {
        let mut state = self.state.lock();
        let epoch = state.epoch;
        *state.appends.entry(epoch).or_default() += 1;
        Appending { holds: Arc::clone(self), epoch }
    }

    /// A segment was sealed; returns the epoch that ends with it.
    pub(crate) fn sealed(&self) -> u64 {
        let mut state = self.state.lock();
        state.epoch += 1;
        state.epoch - 1
    }

    /// Whether nothing in flight refers to `segment`, or may come to, that was sealed at the end of `sealed_epoch`.
    pub(crate) fn is_free(&self, segment: SegmentId, sealed_epoch: u64) -> bool {
        let state = self.state.lock();
        !state.held.contains_key(&segment) && state.appends.keys().next().is_none_or(|&oldest| oldest > sealed_epoch)
    }
}

impl Hold {
    /// Holds `segment` as well.
    pub(crate) fn add(&mut self, segment: SegmentId) {
        if !self.segments.contains(&segment) {
            *self.holds.state.lock().held.entry(segment).or_default() += 1;
            self.segments.push(segment);
        }
    }

    /// Holds the segments of `extents` as well.
    pub(crate) fn add_all(&mut self, extents: &[Extent]) {
        extents.iter().for_each(|extent| self.add(extent.segment));
    }

    /// What it holds.
    pub(crate) fn segments(&self) -> &[SegmentId] {
        &self.segments
    }

    /// Holds on until the process ends: whether the mutation took effect is unknown until the next start.
    pub(crate) fn leak(mut self) {
        self.segments.clear();
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut state = self.holds.state.lock();
        for segment in self.segments.drain(..) {
            if let Some(count) = state.held.get_mut(&segment) {
                *count -= 1;
                if *count == 0 {
                    state.held.remove(&segment);
                }
            }
        }
    }
}

impl Drop for Appending {
    fn drop(&mut self) {
        let mut state = self.holds.state.lock();
        if let Some(count) = state.appends.get_mut(&self.epoch) {
            *count -= 1;
            if *count == 0 {
                state.appends.remove(&self.epoch);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_is_free_when_no_append_and_no_hold_is_left() {
        let holds = Arc::new(Holds::default());
        let segment = SegmentId::new(1, 1);
        let before = holds.append();
        let sealed = holds.sealed();
        let after = holds.append();
        assert!(!holds.is_free(segment, sealed));
        let (mut first, mut second) = (holds.hold(), holds.hold());
        first.add(segment);
        first.add(segment);
        second.add(segment);
        drop(before);
        assert!(!holds.is_free(segment, sealed));
        drop(first);
        assert!(!holds.is_free(segment, sealed));
        drop(second);
        assert!(holds.is_free(segment, sealed), "an append that began later does not matter");
        assert!(!holds.is_free(segment, sealed + 1));
        drop(after);
        assert!(holds.is_free(segment, sealed + 1));
    }

    #[test]
    fn a_leaked_hold_stays() {
        let holds = Arc::new(Holds::default());
        let segment = SegmentId::new(1, 1);
        let mut hold = holds.hold();
        hold.add(segment);
        hold.leak();
        assert!(!holds.is_free(segment, 0));
    }
}
