//! Replay: brings the index up to what the log holds; all of it, when the index is new.
//!
//! The index says, in the same commit as the rows, how far it got: per segment between replays, by the merge's position in
//! the middle of one. So every mutation is applied exactly once, whenever the process ends.

use std::collections::BTreeMap;

use gabion_metadata::{
    Index,
    rows::{self, SegmentState},
};
use gabion_segment::{AppliedRecord, LaneKind, Log, RecordBody, RecoveredSegment, Recovery};
use gabion_types::{SegmentId, Seq};

use super::{
    merge::{Merge, Source},
    system::State,
};
use crate::{Progress, StoreError, apply::Apply, mutation::Mutation, tasks};

/// Mutations in one index commit; a few more where several share a position.
const BATCH_MUTATIONS: usize = 1000;
/// Bytes of mutations in one index commit.
const BATCH_BYTES: usize = 8 << 20;
/// Mutations in one index commit that may take thousands of rows each.
const BATCH_ENDS: usize = 16;

/// What a replay came to.
pub(super) struct Replayed {
    pub mutations: u64,
    /// Segments of which mutations could not be read, and why.
    pub lost: BTreeMap<SegmentId, String>,
}

/// Replays what the index lacks.
pub(super) async fn replay(
    log: &Log,
    index: &dyn Index,
    apply: &Apply,
    recovery: &Recovery,
    before: State,
    progress: &dyn Progress,
) -> Result<Replayed, StoreError> {
    let mut state = begin(log, apply, recovery, &before)?;
    let (mutations, lost, is_silent) = merge(log, apply, recovery, &mut state, progress).await?;
    let mut done = State { replayed: None, replaying: None, ..state };
    // What a recovery could not read may have been data alone, or for a moment: of these all mutations were read now. Segments of large objects have none.
    let is_read = |id: &SegmentId| {
        let is_known_large = apply.with_segments(|segments| {
            segments.get(*id).is_some_and(|segment| segment.row.kind == rows::LaneKind::Large)
        });
        is_known_large || recovery.segments.iter().any(|segment| segment.info.id == *id)
    };
    done.unreadable.retain(|id| !is_read(id));
    done.unreadable.extend(lost.keys());
    if !recovery.segments.is_empty() || done != before {
        apply.replay(&[], |overlay| {
            // What could not be read stays unsealed: it is looked at again, and seen, when it can be.
            for segment in recovery.segments.iter().filter(|segment| !lost.contains_key(&segment.info.id)) {
                overlay.segment_sealed(segment.info.id, &segment.seal, 0);
            }
            done.store(overlay)
        })?;
        tasks::blocking(|| index.persist())?;
    }
    if let Some(until) = done.snapshot_unknown {
        apply.note_snapshot_unknown(until);
    }
    if !done.unreadable.is_empty() {
        apply.note_unreadable(is_silent || log.reads_failed() || log.lacks_targets());
    }
    Ok(Replayed { mutations, lost })
}

/// Makes rows for the segments that are found, so that live bytes have a place, and forgets those that are gone.
fn begin(log: &Log, apply: &Apply, recovery: &Recovery, before: &State) -> Result<State, StoreError> {
    let is_known = |id: &SegmentId| apply.with_segments(|segments| segments.get(*id).is_some());
    let mut state = before.clone();
    state.replaying = (!recovery.segments.is_empty()).then_some(recovery.max_seq);
    if before.deployment.is_none() {
        // It was not restored either.
        state.snapshot_unknown = state.replaying;
        state.holes_unknown = state.replaying.is_some();
    }
    state.deployment = Some(log.deployment());
    // Of a segment that is applied to its end nothing is missing here, though its bytes can not be read now.
    let is_applied = |id: &SegmentId| {
        apply.with_segments(|segments| {
            segments.get(*id).is_some_and(|segment| segment.row.sealed_stripes == Some(segment.row.applied_stripes))
        })
    };
    let lost = recovery.unreadable.iter().map(|unreadable| unreadable.id);
    state.unreadable.extend(lost.filter(|id| !is_applied(id) && !recovery.freed.contains(id)));
    // Now it is known that there was nothing in them.
    for id in &recovery.removed {
        state.unreadable.remove(id);
    }
    // Those that are found get a row now, which says it from here on.
    state.forgotten.extend(recovery.freed.iter().filter(|id| !is_known(id)));
    let found = recovery.segments.iter().map(|segment| &segment.info.id);
    for id in found.chain(&recovery.removed) {
        state.forgotten.remove(id);
    }
    apply.replay(&[], |overlay| {
        for segment in &recovery.segments {
            overlay.segment_opened(&segment.info);
        }
        for info in &recovery.moved {
            overlay.segment_moved(info);
        }
        for id in recovery.freed.iter().chain(&before.forgotten) {
            overlay.segment_freed(*id);
        }
        for id in &recovery.removed {
            overlay.segment_removed(*id);
        }
        state.store(overlay)
    })?;
    Ok(state)
}

async fn merge(
    log: &Log,
    apply: &Apply,
    recovery: &Recovery,
    state: &mut State,
    progress: &dyn Progress,
) -> Result<(u64, BTreeMap<SegmentId, String>, bool), StoreError> {
    let is_needed = |segment: &&RecoveredSegment| {
        let is_open = apply.with_segments(|segments| {
            segments.get(segment.info.id).is_some_and(|segment| segment.row.state != SegmentState::Freeing)
        });
        segment.info.kind == LaneKind::Small && segment.applied_from < segment.seal.stripes && is_open
    };
    let sources: Vec<Source> = recovery.segments.iter().filter(is_needed).map(source).collect();
    let bytes_total = sources.iter().map(|source| source.bytes).sum();
    let mut merge = Merge::new(log, sources);
    let behind = state.replayed.map(Seq::from_u64);
    let (mut batch, mut replayed) = (Batch::default(), 0);
    while let Some((position, record)) = merge.next().await? {
        if behind.is_some_and(|behind| position <= behind) {
            continue;
        }
        // Records of one position stay together: what is behind a position is all applied.
        if batch.is_full() && position > batch.position {
            replayed += batch.apply(apply, state, merge.lost())?;
            progress.replayed(replayed, merge.bytes_done(), bytes_total);
            tokio::task::yield_now().await;
        }
        batch.push(position, record);
    }
    replayed += batch.apply(apply, state, merge.lost())?;
    progress.replayed(replayed, bytes_total, bytes_total);
    Ok((replayed, merge.lost().clone(), merge.is_silent()))
}

fn source(segment: &RecoveredSegment) -> Source {
    Source {
        segment: segment.info.id,
        from_stripe: segment.applied_from,
        min_seq: segment.seal.min_seq,
        bytes: segment.seal.written_bytes,
    }
}

/// Mutations that go into one index commit.
#[derive(Default)]
struct Batch {
    records: Vec<AppliedRecord>,
    bytes: usize,
    /// Of these, how many end uploads.
    ends: usize,
    position: Seq,
}

impl Batch {
    fn is_full(&self) -> bool {
        self.records.len() >= BATCH_MUTATIONS || self.bytes >= BATCH_BYTES || self.ends >= BATCH_ENDS
    }

    fn push(&mut self, position: Seq, record: AppliedRecord) {
        self.position = position;
        self.bytes += record.home.bytes as usize;
        self.ends +=
            usize::from(matches!(&record.body, RecordBody::Mutation(mutation) if Mutation::ends_uploads(mutation)));
        self.records.push(record);
    }

    /// What was lost until now is noted with it: when the replay is cut off, the next one passes over all up to here, though it may be able to read that.
    fn apply(
        &mut self,
        apply: &Apply,
        state: &mut State,
        lost: &BTreeMap<SegmentId, String>,
    ) -> Result<u64, StoreError> {
        if self.records.is_empty() {
            return Ok(0);
        }
        let position = self.position;
        apply.replay(&self.records, |overlay| state.store_progress(position, lost.keys(), overlay))?;
        let count = self.records.len() as u64;
        (self.bytes, self.ends) = (0, 0);
        self.records.clear();
        Ok(count)
    }
}
