//! Shards that were found damaged or missing: a bounded set, so that a broken target can not grow the server. That there was more is remembered:
//! a scrub finds it again.
//!
//! Of some it is known that they failed while they were written. The page cache may show what their medium lacks, so that no look at them proves anything: they are
//! built anew, and nothing else takes them out. They are left out for want of room neither: there is one of each segment and target that failed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::status::{Damage, RepairEntry};

/// What became of a shard that was to be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Added {
    /// It was not there.
    New,
    /// It was there.
    Known,
    /// There is no room for it.
    Dropped,
}

/// The set of shards that need repair.
#[derive(Debug)]
pub(crate) struct RepairQueue {
    /// Whether each is distrusted.
    entries: Mutex<BTreeMap<RepairEntry, bool>>,
    max: usize,
    /// Something was left out since a scrub began.
    overflowed: AtomicBool,
}

impl RepairQueue {
    pub(crate) fn new(max: usize) -> Self {
        Self { entries: Mutex::default(), max, overflowed: AtomicBool::new(false) }
    }

    /// Adds a shard.
    pub(crate) fn add(&self, entry: RepairEntry) -> Added {
        let mut entries = self.entries.lock();
        if entries.contains_key(&entry) {
            return Added::Known;
        }
        if entries.len() >= self.max {
            self.there_is_more();
            return Added::Dropped;
        }
        entries.insert(entry, false);
        Added::New
    }

    /// Adds a shard that failed while it was written.
    pub(crate) fn distrust(&self, entry: RepairEntry) {
        self.entries.lock().insert(entry, true);
    }

    /// What failed of a shard lies where nothing is: reading it proves what it is.
    pub(crate) fn trust(&self, entry: RepairEntry) {
        if let Some(distrusted) = self.entries.lock().get_mut(&entry) {
            *distrusted = false;
        }
    }

    /// Whether it has to be built anew, whatever is read of it.
    pub(crate) fn is_distrusted(&self, entry: RepairEntry) -> bool {
        self.entries.lock().get(&entry).is_some_and(|distrusted| *distrusted)
    }

    /// Takes out a shard that was built anew.
    pub(crate) fn remove(&self, entry: RepairEntry) {
        self.entries.lock().remove(&entry);
    }

    /// Takes out a shard that was read and is whole.
    pub(crate) fn remove_read(&self, entry: RepairEntry) {
        let mut entries = self.entries.lock();
        if entries.get(&entry) == Some(&false) {
            entries.remove(&entry);
        }
    }

    /// Drops the entries of a segment that is gone.
    pub(crate) fn forget(&self, segment: gabion_types::SegmentId) {
        self.entries.lock().retain(|entry, _| entry.segment != segment);
    }

    /// There is damage that is not in the set: only a scrub finds it.
    pub(crate) fn there_is_more(&self) {
        self.overflowed.store(true, Ordering::SeqCst);
    }

    /// Whether there is damage that is not in the set.
    pub(crate) fn has_overflowed(&self) -> bool {
        self.overflowed.load(Ordering::SeqCst)
    }

    /// Whether there is damage that is not in the set, and room for it by now.
    pub(crate) fn wants_scrub(&self) -> bool {
        self.has_overflowed() && self.entries.lock().len() <= self.max / 2
    }

    /// All damage is looked for anew.
    pub(crate) fn scrub_begins(&self) {
        self.overflowed.store(false, Ordering::SeqCst);
    }

    pub(crate) fn damage(&self) -> Damage {
        Damage { shards: self.snapshot(), more: self.has_overflowed() }
    }

    pub(crate) fn snapshot(&self) -> Vec<RepairEntry> {
        self.entries.lock().keys().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use gabion_types::SegmentId;

    use super::*;

    #[test]
    fn is_bounded_and_knows_no_duplicates() {
        let queue = RepairQueue::new(2);
        let entry = |segment, shard| RepairEntry { segment: SegmentId::from_u128(segment), shard };
        assert_eq!(
            [(1, 0), (1, 0), (2, 0)].map(|(segment, shard)| queue.add(entry(segment, shard))),
            [Added::New, Added::Known, Added::New]
        );
        assert!(!queue.has_overflowed());
        assert_eq!(queue.add(entry(3, 0)), Added::Dropped);
        assert_eq!(queue.add(entry(2, 0)), Added::Known);
        assert!(queue.has_overflowed() && !queue.wants_scrub(), "what is noted is repaired first");
        queue.forget(SegmentId::from_u128(2));
        assert_eq!(queue.snapshot(), [entry(1, 0)]);
        assert!(queue.wants_scrub());
        queue.scrub_begins();
        assert!(!queue.wants_scrub());
    }

    #[test]
    fn what_failed_while_it_was_written_stays_whatever_is_read() {
        let queue = RepairQueue::new(1);
        let entry = |shard| RepairEntry { segment: SegmentId::from_u128(1), shard };
        queue.add(entry(0));
        queue.distrust(entry(1));
        queue.add(entry(1));
        assert!(queue.is_distrusted(entry(1)) && !queue.is_distrusted(entry(0)));
        (0..2).for_each(|shard| queue.remove_read(entry(shard)));
        assert_eq!(queue.snapshot(), [entry(1)]);
        queue.remove(entry(1));
        assert!(queue.snapshot().is_empty() && !queue.is_distrusted(entry(1)));
        queue.distrust(entry(1));
        queue.trust(entry(1));
        queue.remove_read(entry(1));
        assert!(queue.snapshot().is_empty());
    }
}
