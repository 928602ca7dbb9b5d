//! Giving back space: a sealed segment to which no row refers is deleted (docs/adr/0004).
//!
//! What its mutations *did* is all dead, but what they *took away* must stay away: a deletion is carried into another
//! segment, with its sequence, as long as some segment that stays may hold an older mutation which would bring the row back
//! in a rebuild. Before anything goes, the index is made durable with all of the segment applied: from then on no
//! replay needs it.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use gabion_metadata::{
    Table, keys,
    rows::{LaneKind, SegmentState},
};
use gabion_segment::{AppliedRecord, Log, LogError, RecordBody};
use gabion_types::{BucketName, SegmentId, Seq};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::{
    StoreError,
    apply::Segment,
    mutation::{
        CompleteUploadMutation, DeleteObjectMutation, EndUploadMutation, MovedRow, Mutation, RenameObjectMutation,
        Taken,
    },
    store::Inner,
};

/// Segments whose files are being removed at a time, a task of some KiB each; the rest is tried later. So many, because all of them may wait for one drive that does not
/// answer, while there is room to be gained on the others. Those that wait for their readers are not counted: there are no more of them than are read.
const REMOVALS_MAX: usize = 4096;
/// Segments that have more to carry than their bytes divided by this are left for later.
const CARRIED_SHARE: u64 = 4;

/// What the deletion of segments remembers.
#[derive(Default)]
pub(crate) struct Frees {
    /// One run at a time.
    run: tokio::sync::Mutex<()>,
    state: Mutex<State>,
    /// Rings when the files of a segment are gone, or stay.
    removed: Notify,
}

#[derive(Default)]
struct State {
    in_flight: HashSet<SegmentId>,
    /// Those that the next start may find freed: what came of their record is unknown.
    doubtful: HashSet<SegmentId>,
    /// Segments that could not go, with the number of segments freed at that time: they are looked at again when there
    /// are more.
    postponed: HashMap<SegmentId, u64>,
    freed: u64,
    /// Segments that could not be read to the end, which was told.
    unreadable: HashSet<SegmentId>,
}

/// As long as it is there, no segment is looked at to be freed, and those that were are either going or staying.
pub(crate) struct Settled<'a> {
    frees: &'a Frees,
    _run: tokio::sync::MutexGuard<'a, ()>,
}

impl Frees {
    /// Something changed that may let segments go which could not.
    pub(crate) fn reconsider(&self) {
        self.state.lock().freed += 1;
    }

    /// Waits until the files of none of `segments` are about to be removed, at most `longest`: readers may keep them.
    pub(crate) async fn wait_for_removals(&self, segments: &HashSet<SegmentId>, longest: Duration) {
        let removed = async {
            loop {
                let rung = self.removed.notified();
                if self.state.lock().in_flight.is_disjoint(segments) {
                    return;
                }
                rung.await;
            }
        };
        // Whether it took too long matters to nobody.
        let _ = tokio::time::timeout(longest, removed).await;
    }

    /// Waits until what is being freed is decided.
    pub(crate) async fn settle(&self) -> Settled<'_> {
        Settled { frees: self, _run: self.run.lock().await }
    }
}

impl State {
    /// Segments that are going and that nobody reads.
    fn removals(&self, log: &Log) -> usize {
        self.in_flight.iter().filter(|segment| !log.is_pinned(**segment)).count()
    }

    /// A segment is not looked at before another one was freed.
    fn postpone(&mut self, segment: SegmentId) {
        self.postponed.insert(segment, self.freed);
    }

    /// A segment stays that can not be read to the end, or not at all.
    fn keep_unreadable(&mut self, segment: SegmentId, error: &LogError) {
        if self.unreadable.insert(segment) {
            tracing::warn!(%segment, %error, "a dead segment is kept, as it can not be read");
        }
        match error {
            LogError::Corrupt { .. } => drop(self.postponed.insert(segment, u64::MAX)),
            _ => self.postpone(segment),
        }
    }
}

impl Settled<'_> {
    /// Whether the removal of a segment is under way, or may turn out to be.
    pub(crate) fn is_going(&self, segment: SegmentId) -> bool {
        let state = self.frees.state.lock();
        state.in_flight.contains(&segment) || state.doubtful.contains(&segment)
    }
}

/// Whether a segment may go now.
enum Verdict {
    Free {
        carried: Vec<(Seq, Bytes)>,
    },
    Postpone,
    /// It can not be read to the end: what it took away is not known, and it stays.
    Unreadable(LogError),
}

/// Deletes what can be deleted; returns how many segments have begun to go and are no more counted.
pub(crate) async fn free_dead(inner: &Arc<Inner>) -> Result<usize, StoreError> {
    let _run = inner.frees.run.lock().await;
    let mut count = 0;
    loop {
        let dead = candidates(inner);
        if dead.is_empty() {
            return Ok(count);
        }
        // All that makes them dead was committed before this.
        inner.checkpoint().await?;
        let before = count;
        for segment in dead {
            count += usize::from(free_one(inner, segment).await?);
        }
        if count == before {
            return Ok(count);
        }
    }
}

/// Whether there are segments that can be deleted at once, or are about to go. When a reader lets one go, nobody knows.
pub(crate) fn has_dead(inner: &Inner) -> bool {
    !candidates(inner).is_empty() || inner.frees.state.lock().removals(&inner.log) > 0
}

/// Dead segments that are worth a look.
fn candidates(inner: &Inner) -> Vec<SegmentId> {
    let state = inner.frees.state.lock();
    let room = REMOVALS_MAX.saturating_sub(state.removals(&inner.log));
    let is_worth = |id: &SegmentId| {
        !state.in_flight.contains(id) && state.postponed.get(id).is_none_or(|&freed| freed < state.freed)
    };
    inner.apply.dead_segments().into_iter().filter(is_worth).take(room).collect()
}

/// Deletes one segment, unless it has to wait.
async fn free_one(inner: &Arc<Inner>, segment: SegmentId) -> Result<bool, StoreError> {
    let (freed_bytes, kept_bytes) = inner.apply.with_segments(|segments| {
        let row = segments.get(segment).map(|segment| &segment.row);
        row.map_or((0, 0), |row| (row.written_bytes, row.written_bytes.saturating_sub(row.punched_bytes.unwrap_or(0))))
    });
    let carried = match judge(inner, segment).await? {
        Verdict::Free { carried } => carried,
        Verdict::Postpone => {
            inner.frees.state.lock().postpone(segment);
            return Ok(false);
        }
        Verdict::Unreadable(error) => {
            inner.frees.state.lock().keep_unreadable(segment, &error);
            return Ok(false);
        }
    };
    inner.frees.state.lock().in_flight.insert(segment);
    let (weak, log, carried_count) = (Arc::downgrade(inner), inner.log.clone(), carried.len() as u64);
    let mut task = tokio::spawn(async move {
        let outcome = log.free(segment, carried).await;
        if let Some(inner) = weak.upgrade() {
            {
                let mut state = inner.frees.state.lock();
                state.in_flight.remove(&segment);
                match &outcome {
                    Ok(_) => drop(state.doubtful.remove(&segment)),
                    Err(error) => {
                        // Of what can not be read nothing was tried.
                        if !error.is_refusal() && !error.lacks_bytes() {
                            state.doubtful.insert(segment);
                        }
                        // Tried again when the next segment dies.
                        state.postponed.remove(&segment);
                    }
                }
            }
            inner.frees.removed.notify_waiters();
            if outcome.is_ok() {
                inner.holdback.removed(segment, kept_bytes);
            }
        }
        outcome
    });
    // The removal of the files waits for readers; what matters here is that it is in the log and applied.
    let is_logged = async {
        loop {
            let rung = inner.apply.work().freed.notified();
            if inner
                .apply
                .with_segments(|segments| segments.get(segment).is_none_or(|s| s.row.state == SegmentState::Freeing))
            {
                return;
            }
            rung.await;
        }
    };
    tokio::select! {
        biased;
        outcome = &mut task => match outcome {
            Ok(Ok(freed)) if freed.left.is_empty() => {}
            Ok(Ok(freed)) => tracing::warn!(%segment, shards = freed.left.len(), "files of a freed segment are left on targets that are away or do not answer"),
            Ok(Err(LogError::NotFound(_))) => return Ok(false),
            // Nothing in it was looked at before.
            Ok(Err(error)) if error.lacks_bytes() => {
                inner.frees.state.lock().keep_unreadable(segment, &error);
                return Ok(false);
            }
            Ok(Err(error)) => return Err(error.into()),
            Err(error) => return Err(StoreError::Internal(format!("a task failed: {error}"))),
        },
        () = is_logged => {}
    }
    let mut state = inner.frees.state.lock();
    state.freed += 1;
    state.postponed.remove(&segment);
    inner.metrics.segments_freed.add(1);
    inner.metrics.freed_bytes.add(freed_bytes);
    inner.metrics.mutations_carried.add(carried_count);
    Ok(true)
}

/// Reads what a dead segment's mutations took away, and decides.
async fn judge(inner: &Inner, segment: SegmentId) -> Result<Verdict, StoreError> {
    let any_going = !inner.frees.state.lock().in_flight.is_empty();
    let found = inner.apply.with_segments(|segments| {
        let row = &segments.get(segment)?.row;
        let may_matter = segments.may_create_before(segment, row.max_seq) || any_going;
        Some((row.kind, row.written_bytes, may_matter))
    });
    let Some((kind, written_bytes, may_matter)) = found else { return Ok(Verdict::Postpone) };
    let mut carried = Vec::new();
    // What the log itself says again of freed segments counts as well: else they are told on from segment to segment, each of which holds nothing
    // else and goes at once.
    let mut carried_bytes = inner.log.retold_bytes(segment);
    if carried_bytes > written_bytes / CARRIED_SHARE {
        return Ok(Verdict::Postpone);
    }
    if kind == LaneKind::Large || !(may_matter || inner.apply.must_carry_all()) {
        return Ok(Verdict::Free { carried });
    }
    let snapshot = inner.apply.snapshot_without(segment)?;
    let mut stripes = match inner.log.mutations(segment, 0).await {
        Err(error) if error.lacks_bytes() => return Ok(Verdict::Unreadable(error)),
        stripes => stripes?,
    };
    loop {
        let stripe = match stripes.next().await {
            Err(error) if error.lacks_bytes() => {
                return Ok(Verdict::Unreadable(error));
            }
            stripe => stripe?,
        };
        let Some(stripe) = stripe else { return Ok(Verdict::Free { carried }) };
        for record in &stripe.records {
            match taken_away(inner, segment, snapshot, record)? {
                Needed::No => {}
                Needed::Carry(mutation) => {
                    carried_bytes += mutation.len() as u64;
                    // It is a slice of what was read of its stripe, which may be many times as long.
                    carried.push((record.seq, Bytes::copy_from_slice(&mutation)));
                }
                Needed::Here => return Ok(Verdict::Postpone),
            }
            if carried_bytes > written_bytes / CARRIED_SHARE {
                return Ok(Verdict::Postpone);
            }
        }
    }
}

/// What is still needed of a record of a dead segment.
enum Needed {
    No,
    /// This mutation, with the record's sequence.
    Carry(Bytes),
    /// The record, where it is.
    Here,
}

/// `snapshot`: the commit of a snapshot of the index that may know rows which the segment took away.
fn taken_away(
    inner: &Inner,
    segment: SegmentId,
    snapshot: Option<Seq>,
    record: &AppliedRecord,
) -> Result<Needed, StoreError> {
    let bytes = match &record.body {
        // While the files of a segment are being removed, the log must say so. (Of those that may come back with a target the log
        // itself says it again before the record goes.)
        RecordBody::Freed(freed) => {
            let is_going = inner.frees.state.lock().in_flight.contains(freed);
            return Ok(if is_going { Needed::Here } else { Needed::No });
        }
        RecordBody::Mutation(bytes) => bytes,
    };
    let may_return = inner.apply.must_carry_all()
        || inner.apply.with_segments(|segments| segments.may_create_before(segment, record.seq));
    if !may_return {
        return Ok(Needed::No);
    }
    let mutation =
        Mutation::decode(bytes).map_err(|error| StoreError::Corrupt(format!("segment {segment}: {error}")))?;
    Ok(match mutation {
        Mutation::DeleteObject(deleted) if may_come_back(inner, segment, snapshot, deleted.taken.as_ref()) => {
            Needed::Carry(bytes.clone())
        }
        // What the object became, a newer mutation says; that it left its key is said by no other.
        Mutation::RenameObject(renamed) if may_come_back(inner, segment, snapshot, renamed.taken.as_ref()) => {
            let RenameObjectMutation { from, object, taken } = *renamed;
            let left = DeleteObjectMutation { bucket: object.bucket, key: from, taken };
            Needed::Carry(Mutation::DeleteObject(left).encode().into())
        }
        Mutation::DeleteVersion(_) => Needed::Carry(bytes.clone()),
        Mutation::DeleteBucket(deleted) => {
            let is_there = inner.index.get(Table::Bucket, &keys::bucket(&name(&deleted.bucket)?))?.is_some();
            let takes_nothing_else = deleted.uploads.is_empty() && !deleted.had_configs.unwrap_or(false);
            if is_there && takes_nothing_else { Needed::No } else { Needed::Carry(bytes.clone()) }
        }
        Mutation::DeleteConfig(deleted) => {
            let bucket = deleted.bucket.as_deref().map(name).transpose()?;
            // As for objects: a document that is there is newer.
            match inner.index.get(Table::Config, &keys::config(bucket.as_ref(), &deleted.name))? {
                Some(_) => Needed::No,
                None => Needed::Carry(bytes.clone()),
            }
        }
        Mutation::EndUpload(_) => Needed::Carry(bytes.clone()),
        Mutation::CompleteUpload(completed) => carry_end(*completed),
        Mutation::Move(moved) => match moved.row {
            // The parts of the move are those of an upload, too.
            MovedRow::Completed(completed) => carry_end(completed),
            _ => Needed::No,
        },
        Mutation::CreateBucket(_)
        | Mutation::PutObject(_)
        | Mutation::DeleteObject(_)
        | Mutation::RenameObject(_)
        | Mutation::CreateUpload(_)
        | Mutation::PutMarker(_)
        | Mutation::PutPart(_)
        | Mutation::PutConfig(_)
        | Mutation::IndexSnapshot(_) => Needed::No,
    })
}

/// Whether anything but `segment` may bring back what left a key. An object that has come under the key since makes no difference: its own deletion will
/// know nothing of what is older.
fn may_come_back(inner: &Inner, segment: SegmentId, snapshot: Option<Seq>, taken: Option<&Taken>) -> bool {
    let Some(taken) = taken.filter(|_| !inner.apply.must_carry_all()) else { return true };
    // It knows nothing of what came after it.
    if snapshot.is_some_and(|snapshot| taken.made.is_none_or(|made| made <= snapshot)) {
        return true;
    }
    inner.apply.with_segments(|segments| {
        taken.homes.iter().any(|&home| home != segment && segments.get(home).is_some_and(Segment::stays))
    })
}

/// A completion's object was replaced or deleted by a newer mutation; that the upload ended is said by no other.
fn carry_end(completed: CompleteUploadMutation) -> Needed {
    let ended = EndUploadMutation { bucket: completed.bucket, key: completed.key, upload: completed.upload };
    Needed::Carry(Mutation::EndUpload(ended).encode().into())
}

fn name(name: &str) -> Result<BucketName, StoreError> {
    BucketName::new(name).map_err(|error| StoreError::Corrupt(error.to_string()))
}
