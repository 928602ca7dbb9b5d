//! A segment while the log is open: what is known of it, who pins it, and the files that its lane writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use gabion_platform::DiskFile;
use gabion_types::{SegmentId, Seq};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::segment_info::{Seal, SegmentInfo};

/// One segment.
pub(crate) struct Segment {
    pub(crate) id: SegmentId,
    info: Mutex<Arc<SegmentInfo>>,
    /// A stripe and its offset: where a replay that does not begin at the front begins.
    pub(crate) replay_from: (u32, u64),
    state: Mutex<State>,
    unpinned: Notify,
    /// The index knows that it is sealed.
    settled: AtomicBool,
    /// Held while its shards are moved: one at a time, so that no list of targets forgets another move.
    pub(crate) move_turn: tokio::sync::Mutex<()>,
}

struct State {
    life: Life,
    pins: usize,
    /// While a lane appends to it: the end of what is complete.
    so_far: Seal,
}

/// What of a segment can be read from front to back at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Written {
    /// All stripes before it are complete, and none of them changes any more.
    pub(crate) end: Seal,
    /// It is the segment's, and stands behind the last stripe.
    pub(crate) is_sealed: bool,
}

/// Where a segment is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Life {
    /// A lane appends to it.
    Open,
    /// It ended.
    Sealed(Seal),
    /// It ended, and its `Freed` record is being written.
    Freeing(Seal),
    /// Its files are being removed.
    Removing,
}

impl Segment {
    pub(crate) fn new(info: Arc<SegmentInfo>, life: Life, replay_from: (u32, u64)) -> Self {
        Self {
            id: info.id,
            info: Mutex::new(info),
            replay_from,
            state: Mutex::new(State {
                life,
                pins: 0,
                so_far: Seal {
                    stripes: 0,
                    end_offset: replay_from.1,
                    min_seq: Seq::ZERO,
                    max_seq: Seq::ZERO,
                    written_bytes: 0,
                },
            }),
            unpinned: Notify::new(),
            settled: AtomicBool::new(life != Life::Open),
            move_turn: tokio::sync::Mutex::default(),
        }
    }

    /// What it is, and where its shards lie now.
    pub(crate) fn info(&self) -> Arc<SegmentInfo> {
        Arc::clone(&self.info.lock())
    }

    /// Its shards lie elsewhere from now on.
    pub(crate) fn set_info(&self, info: Arc<SegmentInfo>) {
        *self.info.lock() = info;
    }

    /// The index took its end.
    pub(crate) fn settle(&self) {
        self.settled.store(true, Ordering::SeqCst);
    }

    /// Its end, if it is sealed, the index knows it, and it is not about to go.
    pub(crate) fn settled_seal(&self) -> Option<Seal> {
        match self.life() {
            Life::Sealed(seal) if self.settled.load(Ordering::SeqCst) => Some(seal),
            _ => None,
        }
    }

    /// A stripe is complete: it ends here.
    pub(crate) fn wrote(&self, end: Seal) {
        self.state.lock().so_far = end;
    }

    /// What there is to be read of it now, unless it is about to go. Its seal counts once the index took it: before that it may be on no shard, if the log takes no more writes.
    pub(crate) fn written(&self) -> Option<Written> {
        let state = self.state.lock();
        match state.life {
            Life::Open => Some(Written { end: state.so_far, is_sealed: false }),
            Life::Sealed(end) => Some(Written { end, is_sealed: self.settled.load(Ordering::SeqCst) }),
            Life::Freeing(_) | Life::Removing => None,
        }
    }

    pub(crate) fn life(&self) -> Life {
        self.state.lock().life
    }

    pub(crate) fn seal(&self, seal: Seal) {
        self.state.lock().life = Life::Sealed(seal);
    }

    /// Keeps the files; false if their removal has begun.
    pub(crate) fn pin(&self) -> bool {
        let mut state = self.state.lock();
        let pinned = state.life != Life::Removing;
        state.pins += usize::from(pinned);
        pinned
    }

    /// Keeps the files until it is dropped; nothing if their removal has begun.
    pub(crate) fn pinned(&self) -> Option<Pinned<'_>> {
        self.pin().then(|| Pinned(self))
    }

    /// Keeps the files if nobody else does.
    pub(crate) fn pin_alone(&self) -> bool {
        let mut state = self.state.lock();
        let is_free = state.pins == 0 && state.life != Life::Removing;
        state.pins += usize::from(is_free);
        is_free
    }

    /// Whether anybody keeps the files.
    pub(crate) fn is_pinned(&self) -> bool {
        self.state.lock().pins > 0
    }

    pub(crate) fn unpin(&self) {
        let mut state = self.state.lock();
        state.pins -= 1;
        if state.pins == 0 {
            self.unpinned.notify_waiters();
        }
    }

    /// Claims a sealed segment for freeing; false if it is not sealed or claimed already.
    pub(crate) fn begin_free(&self) -> bool {
        let mut state = self.state.lock();
        if let Life::Sealed(seal) = state.life {
            state.life = Life::Freeing(seal);
            return true;
        }
        false
    }

    /// Gives the claim back.
    pub(crate) fn cancel_free(&self) {
        let mut state = self.state.lock();
        if let Life::Freeing(seal) = state.life {
            state.life = Life::Sealed(seal);
        }
    }

    /// Waits until nothing pins the segment, and then lets nobody pin it any more.
    pub(crate) async fn begin_removal(&self) {
        loop {
            let unpinned = self.unpinned.notified();
            {
                let mut state = self.state.lock();
                if state.pins == 0 {
                    state.life = Life::Removing;
                    return;
                }
            }
            unpinned.await;
        }
    }
}

impl Written {
    /// All of a segment that ended.
    pub(crate) fn whole(seal: Seal) -> Self {
        Self { end: seal, is_sealed: true }
    }
}

/// Keeps the files of segments from being unlinked until it is dropped.
pub struct Pin {
    segments: Vec<Arc<Segment>>,
}

/// A pin of one segment that is at hand.
pub(crate) struct Pinned<'a>(&'a Segment);

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        self.0.unpin();
    }
}

impl Pin {
    pub(crate) fn new(segments: Vec<Arc<Segment>>) -> Self {
        Self { segments }
    }

    /// How many segments it holds: fewer than were named if some are gone.
    #[must_use]
    pub fn len(&self) -> usize {
        self.segments.len()
    }

    /// Whether it holds nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        for segment in &self.segments {
            segment.unpin();
        }
    }
}

impl std::fmt::Debug for Pin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.segments.iter().map(|segment| segment.id)).finish()
    }
}

/// The shard files of a segment that is being written.
pub(crate) struct ShardFiles {
    pub(crate) info: Arc<SegmentInfo>,
    /// `None` where the shard was absent when the segment was opened.
    pub(crate) shards: Vec<Option<ShardFile>>,
    /// Stripes that were written and not synced with it.
    pub(crate) unsynced_stripes: AtomicU64,
    /// Held while the files are synced: how many of these stripes are durable.
    pub(crate) synced_stripes: tokio::sync::Mutex<u64>,
}

/// A shard file that is being written.
pub(crate) struct ShardFile {
    pub(crate) file: Arc<dyn DiskFile>,
    /// The place of its target in the list of targets.
    pub(crate) target: usize,
    /// A write or sync failed: what the file holds is unknown, and no later success says otherwise.
    poisoned: AtomicBool,
}

impl ShardFile {
    pub(crate) fn new(file: Arc<dyn DiskFile>, target: usize) -> Self {
        Self { file, target, poisoned: AtomicBool::new(false) }
    }

    pub(crate) fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::SeqCst)
    }

    pub(crate) fn poison(&self) {
        self.poisoned.store(true, Ordering::SeqCst);
    }
}

impl ShardFiles {
    pub(crate) fn new(info: Arc<SegmentInfo>, shards: Vec<Option<ShardFile>>) -> Self {
        Self { info, shards, unsynced_stripes: AtomicU64::new(0), synced_stripes: tokio::sync::Mutex::new(0) }
    }

    /// Whether the segment was opened with a shard too few.
    pub(crate) fn lack_some(&self) -> bool {
        self.shards.iter().any(Option::is_none)
    }

    /// Shards that are there and took every write.
    pub(crate) fn healthy(&self) -> impl Iterator<Item = (usize, &ShardFile)> {
        self.present().filter(|(_, file)| !file.is_poisoned())
    }

    /// Shards that are there.
    pub(crate) fn present(&self) -> impl Iterator<Item = (usize, &ShardFile)> {
        self.shards.iter().enumerate().filter_map(|(shard, file)| Some((shard, file.as_ref()?)))
    }

    /// How many shards are well beside those on these targets.
    pub(crate) fn well_beside(&self, places: &[usize]) -> usize {
        self.healthy().filter(|(_, file)| !places.contains(&file.target)).count()
    }

    pub(crate) fn any_poisoned(&self) -> bool {
        self.present().any(|(_, file)| file.is_poisoned())
    }
}

#[cfg(test)]
mod tests {
    use gabion_types::{Geometry, SegmentId, Seq, TargetId};

    use super::*;
    use crate::segment_info::LaneKind;

    fn sealed() -> Arc<Segment> {
        let info = SegmentInfo {
            id: SegmentId::new(1, 1),
            kind: LaneKind::Small,
            geometry: Geometry::SINGLE,
            targets: vec![TargetId::from_u128(1)],
            former: Vec::new(),
        };
        let seal = Seal { stripes: 1, end_offset: 8192, min_seq: Seq::ZERO, max_seq: Seq::ZERO, written_bytes: 1 };
        Arc::new(Segment::new(Arc::new(info), Life::Sealed(seal), (0, 4096)))
    }

    #[tokio::test(flavor = "current_thread")]
    async fn removal_waits_for_the_last_pin_and_refuses_new_ones() {
        let segment = sealed();
        assert!(segment.pin());
        assert!(segment.begin_free() && !segment.begin_free());
        assert!(segment.pin());
        let pins: Vec<Pin> = (0..2).map(|_| Pin::new(vec![Arc::clone(&segment)])).collect();
        let removal = tokio::spawn({
            let segment = Arc::clone(&segment);
            async move { segment.begin_removal().await }
        });
        tokio::task::yield_now().await;
        assert!(!removal.is_finished());
        drop(pins);
        removal.await.unwrap();
        assert_eq!(segment.life(), Life::Removing);
        // A pin that there is not is not given back either.
        assert!(segment.pinned().is_none());
        assert!(!segment.pin());
    }

    #[test]
    fn a_cancelled_free_leaves_it_sealed() {
        let segment = sealed();
        assert!(segment.begin_free());
        segment.cancel_free();
        assert!(matches!(segment.life(), Life::Sealed(_)));
    }
}
