//! Shards that were found damaged or missing: a bounded set, so that a broken target can not grow the server.

use std::collections::BTreeSet;

use parking_lot::Mutex;

use crate::status::RepairEntry;

/// The set of shards that need repair.
#[derive(Debug)]
pub(crate) struct RepairQueue {
    entries: Mutex<BTreeSet<RepairEntry>>,
    max: usize,
}

impl RepairQueue {
    pub(crate) fn new(max: usize) -> Self {
        Self { entries: Mutex::default(), max }
    }

    /// Adds a shard; false if there is no room for it.
    pub(crate) fn add(&self, entry: RepairEntry) -> bool {
        let mut entries = self.entries.lock();
        if entries.len() >= self.max && !entries.contains(&entry) {
            return false;
        }
        entries.insert(entry);
        true
    }

    /// Takes out a shard that is whole again.
    pub(crate) fn remove(&self, entry: RepairEntry) {
        self.entries.lock().remove(&entry);
    }

    /// Drops the entries of a segment that is gone.
    pub(crate) fn forget(&self, segment: gabion_types::SegmentId) {
        self.entries.lock().retain(|entry| entry.segment != segment);
    }

    pub(crate) fn snapshot(&self) -> Vec<RepairEntry> {
        self.entries.lock().iter().copied().collect()
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
        assert!(queue.add(entry(1, 0)) && queue.add(entry(1, 0)) && queue.add(entry(2, 0)));
        assert!(!queue.add(entry(3, 0)));
        assert!(queue.add(entry(2, 0)));
        queue.forget(SegmentId::from_u128(2));
        assert_eq!(queue.snapshot(), [entry(1, 0)]);
    }
}
