//! What a commit keeps until the log has answered it, whether or not its client still waits.
//!
//! It goes to the log with the record, so that a commit needs no task of its own to outlive a client that hangs up.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use gabion_segment::{Companion, LogError};
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::{
    apply::Pending,
    holdback::Admitted,
    holds::Hold,
    late_md5::{LateMd5, LateMd5s},
    locks::Guards,
    quotas::Reserved,
    store::Share,
    uncertain::{Change, Uncertain},
};

/// What a commit needs to be kept.
pub(crate) struct Kept {
    /// The segments that the mutation refers to.
    pub hold: Hold,
    /// The locks under which it was decided, unless its task has them.
    pub guards: Guards,
    /// Memory of the body.
    pub _share: Option<Share>,
    /// Room that the body was let in for, and its record: while others wait, they may depend on what it overwrites.
    pub _admitted: [Option<Admitted>; 2],
    /// What it adds to what is limited.
    pub reserved: Option<Box<Reserved>>,
    /// The snapshot of the index that it makes count.
    pub snapshot: Option<Arc<Pending>>,
}

impl From<Hold> for Kept {
    fn from(hold: Hold) -> Self {
        let guards = Guards::default();
        Self { hold, guards, _share: None, _admitted: [None, None], reserved: None, snapshot: None }
    }
}

/// An MD5 that is taken by the time that the log closes the batch, and where in the mutation it belongs.
pub(crate) struct MissingMd5 {
    pub md5: Arc<LateMd5>,
    pub all: Arc<LateMd5s>,
    pub at: usize,
}

/// A commit that the log has, or is about to get.
pub(crate) struct InFlight {
    /// There until it is dropped.
    kept: Option<Kept>,
    uncertain: Arc<Uncertain>,
    /// What the mutation takes away.
    change: Option<Change>,
    /// The MD5 that the mutation lacks.
    missing: Option<MissingMd5>,
    /// Whether it is known what came of it.
    is_known: bool,
    /// Lets a shutdown wait for it.
    _running: TaskTrackerToken,
}

impl InFlight {
    /// `uncertain` is told when nobody knows what came of it.
    pub(crate) fn new(kept: Kept, uncertain: Arc<Uncertain>, running: TaskTrackerToken) -> Self {
        Self { kept: Some(kept), uncertain, change: None, missing: None, is_known: false, _running: running }
    }

    /// Its mutation takes away what others may stand on.
    pub(crate) fn changing(mut self, change: Option<Change>) -> Self {
        self.change = change;
        self
    }

    /// Its mutation lacks an MD5 until the log closes the batch.
    pub(crate) fn lacking(mut self, missing: Option<MissingMd5>) -> Self {
        self.missing = missing;
        self
    }
}

impl Companion for InFlight {
    fn complete(&mut self, mutation: &mut Bytes) {
        if let Some(missing) = &self.missing {
            let mut bytes = BytesMut::from(std::mem::take(mutation));
            bytes[missing.at..missing.at + 16].copy_from_slice(&missing.all.take(&missing.md5));
            *mutation = bytes.freeze();
        }
    }

    fn answered(mut self: Box<Self>, outcome: Result<(), &LogError>) {
        self.is_known = outcome.map_or_else(LogError::is_refusal, |()| true);
        if let (Ok(()), Some(change)) = (outcome, &self.change) {
            self.uncertain.took_effect(change);
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let Some(kept) = self.kept.take() else { return };
        if !self.is_known {
            // It was not applied, but may take effect at the next start: what it refers to must be there then.
            self.uncertain.note(self.change.take());
            kept.hold.leak();
            if let Some(reserved) = kept.reserved {
                reserved.leak();
            }
            if let Some(snapshot) = kept.snapshot {
                snapshot.leak();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use gabion_metadata::MemoryIndex;
    use gabion_types::SegmentId;
    use tokio_util::task::TaskTracker;

    use super::*;
    use crate::{apply::Apply, holds::Holds};

    #[test]
    fn what_may_take_effect_later_is_held_for_ever() {
        let segment = SegmentId::new(1, 1);
        let (few, lost) = (LogError::TooFewTargets(String::new()), LogError::Unavailable(String::new()));
        // Answered how, if at all; whether nothing refers to the segment, and another snapshot may be begun, afterwards.
        let table = [
            (Some(Ok(())), true),
            (Some(Err(&LogError::Busy)), true),
            (Some(Err(&LogError::NoSpace)), true),
            (Some(Err(&few)), true),
            (Some(Err(&LogError::RanOutOfSpace)), false),
            (Some(Err(&lost)), false),
            (None, false),
        ];
        for (outcome, is_free) in table {
            let (holds, uncertain) = (Arc::new(Holds::default()), Arc::new(Uncertain::default()));
            let apply = Apply::load(Arc::new(MemoryIndex::new()), Arc::default(), u64::MAX).unwrap();
            let apply = Arc::new(apply);
            let pending = apply.begin_snapshot().unwrap().unwrap().pending;
            let mut kept = Kept { snapshot: Some(Arc::clone(&pending)), ..holds.hold().into() };
            kept.hold.add(segment);
            let commit = Box::new(InFlight::new(kept, Arc::clone(&uncertain), TaskTracker::new().token()));
            assert!(!holds.is_free(segment, 0));
            match outcome {
                Some(outcome) => commit.answered(outcome),
                None => drop(commit),
            }
            assert_eq!((holds.is_free(segment, 0), uncertain.is_any()), (is_free, !is_free));
            assert!(apply.begin_snapshot().unwrap().is_none(), "its task has not let go of it");
            drop(pending);
            assert_eq!(apply.begin_snapshot().unwrap().is_some(), is_free, "{outcome:?}");
        }
    }
}
