//! Freed segments that something may still bring back: the log says again that they are freed until nothing can (docs/adr/0004, 0010).
//!
//! Files of one may be left on a target that was absent when the others went. And when all are gone, a target may come back as an image
//! of what it was before: with one data shard, a single old file is a whole segment that an index made anew takes for live. So a segment is
//! forgotten only when such an image would be known for what it is, by its old list of members.

use std::collections::BTreeMap;

use gabion_types::{SegmentId, ShardCopy, TargetId};

/// The freed segments that are remembered.
#[derive(Debug, Default)]
pub(crate) struct Leftovers {
    segments: BTreeMap<SegmentId, Leftover>,
}

#[derive(Debug)]
struct Leftover {
    /// A segment that holds its `Freed` record, if one is known.
    home: Option<SegmentId>,
    /// The highest epoch that any target had when the last of its files was gone; nothing while one may be left.
    removed_at: Option<u64>,
    /// The files that may be left, where that is known.
    left: Vec<ShardCopy>,
}

impl Leftovers {
    /// Remembers a segment.
    pub(crate) fn insert(&mut self, id: SegmentId, home: Option<SegmentId>, removed_at: Option<u64>) {
        self.segments.insert(id, Leftover { home, removed_at, left: Vec::new() });
    }

    /// Remembers a segment of which these files are left.
    pub(crate) fn insert_with(&mut self, id: SegmentId, home: Option<SegmentId>, left: Vec<ShardCopy>) {
        self.segments.insert(id, Leftover { home, removed_at: None, left });
    }

    /// Files that may be left on targets of which `answers` says that they can be asked.
    pub(crate) fn left_on(&self, answers: impl Fn(TargetId) -> bool) -> Vec<(SegmentId, ShardCopy)> {
        let of = self.segments.iter().flat_map(|(id, leftover)| leftover.left.iter().map(|copy| (*id, *copy)));
        of.filter(|(_, copy)| answers(copy.target)).collect()
    }

    /// A file is gone; whether it was the last one, at `epoch`.
    pub(crate) fn is_gone(&mut self, id: SegmentId, copy: ShardCopy, epoch: u64) -> bool {
        let Some(leftover) = self.segments.get_mut(&id) else { return false };
        let before = leftover.left.len();
        leftover.left.retain(|left| *left != copy);
        let is_last = before > 0 && leftover.left.is_empty();
        if is_last {
            leftover.removed_at = Some(epoch);
        }
        is_last
    }

    /// All of them.
    pub(crate) fn ids(&self) -> impl Iterator<Item = SegmentId> {
        self.segments.keys().copied()
    }

    /// Those of which the last `Freed` record may go with the segment `going`.
    pub(crate) fn told_only_in(&self, going: SegmentId) -> Vec<SegmentId> {
        let is_only = |leftover: &Leftover| leftover.home.is_none_or(|home| home == going);
        self.segments.iter().filter(|(_, leftover)| is_only(leftover)).map(|(id, _)| *id).collect()
    }

    /// How many are told of in `home`, as far as is known.
    pub(crate) fn told_in(&self, home: SegmentId) -> usize {
        self.segments.values().filter(|leftover| leftover.home == Some(home)).count()
    }

    /// A `Freed` record was written for a segment.
    pub(crate) fn told(&mut self, id: SegmentId, home: SegmentId) {
        if let Some(leftover) = self.segments.get_mut(&id) {
            leftover.home = Some(home);
        }
    }

    /// Whether segments wait for nothing but a later epoch.
    pub(crate) fn wait_for_epoch(&self) -> bool {
        self.removed().next().is_some()
    }

    /// Those of which no file is left.
    pub(crate) fn removed(&self) -> impl Iterator<Item = SegmentId> {
        self.segments.iter().filter(|(_, leftover)| leftover.removed_at.is_some()).map(|(id, _)| *id)
    }

    /// Those that nothing can bring back, now that a target with a list older than `settled_epoch` is known to be an old image.
    pub(crate) fn settled(&self, settled_epoch: u64) -> Vec<SegmentId> {
        let is_settled = |leftover: &Leftover| leftover.removed_at.is_some_and(|epoch| epoch < settled_epoch);
        self.segments.iter().filter(|(_, leftover)| is_settled(leftover)).map(|(id, _)| *id).collect()
    }

    /// Forgets segments.
    pub(crate) fn forget(&mut self, ids: &[SegmentId]) {
        for id in ids {
            self.segments.remove(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: SegmentId = SegmentId::new(1, 1);
    const B: SegmentId = SegmentId::new(1, 2);
    const HOME: SegmentId = SegmentId::new(2, 1);

    #[test]
    fn the_last_record_that_says_it_is_written_again_before_it_goes() {
        let mut leftovers = Leftovers::default();
        leftovers.insert(A, None, None);
        leftovers.insert(B, Some(HOME), Some(3));
        assert_eq!(leftovers.told_only_in(SegmentId::new(9, 9)), [A]);
        assert_eq!(leftovers.told_only_in(HOME), [A, B]);
        leftovers.told(A, SegmentId::new(2, 2));
        leftovers.told(B, SegmentId::new(2, 2));
        assert!(leftovers.told_only_in(HOME).is_empty());
    }

    #[test]
    fn it_is_forgotten_when_every_older_image_would_be_noticed() {
        let mut leftovers = Leftovers::default();
        leftovers.insert(A, None, None);
        assert!(!leftovers.wait_for_epoch());
        leftovers.insert(B, None, Some(3));
        assert!(leftovers.wait_for_epoch());
        assert!(leftovers.settled(3).is_empty());
        assert_eq!(leftovers.settled(4), [B]);
        leftovers.forget(&[B]);
        assert_eq!(leftovers.ids().collect::<Vec<_>>(), [A]);
    }
}
