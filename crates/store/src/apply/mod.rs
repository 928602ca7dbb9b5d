//! Applying mutations to the index: one way for live commits and for replay.
//!
//! All rows that a batch of records touches, the counters, and the position in the log up to which they are complete go
//! to the index in one commit, under one mutex. A mutation applies only where the row is older than itself, so that a
//! record that stands twice in the log, or comes again in a replay, changes nothing. A record that moves a row (compaction,
//! docs/adr/0007) is that row's commit again, at a later place: it applies where the row is of that commit and was not moved since.

mod accounts;
mod bucket;
mod config;
mod object;
mod overlay;
mod segments;
mod snapshot;
mod upload;
mod versioned;

use std::{
    collections::{BTreeSet, HashSet},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use gabion_metadata::{Index, Write, rows::Home};
use gabion_segment::{
    AppliedRecord, AppliedStripe, Applier, ApplyError, DeadStripe, Liveness, RecordBody, SegmentChange,
};
use gabion_types::{BucketName, Extent, SegmentId, Seq};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::{
    Holding, StoreError,
    config_cache::ConfigCache,
    holds::Holds,
    mutation::{MovedRow, Mutation},
    open,
};

use accounts::Accounts;
pub(crate) use accounts::{of_bucket as held_by_bucket, of_user as held_by_user};
pub(crate) use overlay::Overlay;
pub(crate) use segments::{Segment, Segments};
pub(crate) use snapshot::{Begun, Pending, snapshot_row};
use versioned::Versioned;

/// Applies records to an index; shared by the log, which calls it, and the store, which asks it about segments.
pub(crate) struct Apply {
    index: Arc<dyn Index>,
    holds: Arc<Holds>,
    state: Mutex<State>,
    /// The documents of buckets, as they are in the index.
    pub(crate) configs: ConfigCache,
    /// Buckets with versions that are not current.
    versioned: Versioned,
    accounts: Accounts,
    work: Work,
    /// Segments exist that can not be read and that the index knows nothing of: what they hold may come back.
    has_unreadable: AtomicBool,
    /// The segments that what can not be read may refer to, when it may be read again: all there were when that was noticed. They look dead and may not
    /// be. Nothing that is opened later is among them: no mutation refers to what was written after it.
    kept: OnceLock<HashSet<SegmentId>>,
    /// See [`Apply::snapshot_unknown`].
    snapshot_unknown: OnceLock<Seq>,
}

struct State {
    segments: Segments,
    buckets: usize,
}

/// What the background tasks wait for.
#[derive(Default)]
pub(crate) struct Work {
    /// Bytes stored by stripes applied since the last checkpoint.
    stored_bytes: AtomicU64,
    /// Index commits since the last checkpoint.
    commits: AtomicU64,
    checkpoint_bytes: u64,
    /// Bytes stored by stripes applied since the last snapshot of the index was begun, and how many make the next one due.
    snapshot_stored_bytes: AtomicU64,
    snapshot_bytes: AtomicU64,
    /// Mutations applied since then: one of them is its own.
    changes: AtomicU64,
    /// Rings when a snapshot of the index is due.
    pub(crate) snapshot: Notify,
    /// Rings when so much was stored that a checkpoint should not wait for its time.
    pub(crate) checkpoint: Notify,
    /// Rings when a segment may have become wholly dead.
    pub(crate) free: Notify,
    /// Rings when the removal of a segment was applied.
    pub(crate) freed: Notify,
    /// Rings when a segment took room or gave some back.
    pub(crate) room: Arc<Notify>,
}

impl Work {
    /// What was committed since the last call, if anything was, for a checkpoint; begins anew.
    pub(crate) fn take(&self) -> Option<TakenWork<'_>> {
        self.stored_bytes.store(0, Ordering::Relaxed);
        (self.commits.swap(0, Ordering::AcqRel) > 0).then(|| TakenWork(self))
    }

    /// Something was committed to the index.
    pub(crate) fn committed(&self) {
        self.commits.fetch_add(1, Ordering::AcqRel);
    }

    /// So many bytes from now on make the next snapshot of the index due; `u64::MAX`: none is.
    pub(crate) fn snapshot_after(&self, bytes: u64) {
        self.snapshot_bytes.store(bytes, Ordering::Relaxed);
        if self.snapshot_stored_bytes.load(Ordering::Relaxed) >= bytes {
            self.snapshot.notify_one();
        }
    }

    /// What was stored until now counts no more for the next one.
    pub(crate) fn snapshot_begins(&self) {
        self.snapshot_stored_bytes.store(0, Ordering::Relaxed);
        self.changes.store(0, Ordering::Relaxed);
    }

    /// Whether anything changed since the last one was begun.
    pub(crate) fn changed_since_snapshot(&self) -> bool {
        self.changes.load(Ordering::Relaxed) > 1
    }

    /// Counts what a stripe stored.
    fn stored(&self, bytes: u64) {
        let add = |counter: &AtomicU64| counter.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if add(&self.stored_bytes) >= self.checkpoint_bytes {
            self.checkpoint.notify_one();
        }
        if add(&self.snapshot_stored_bytes) >= self.snapshot_bytes.load(Ordering::Relaxed) {
            self.snapshot.notify_one();
        }
    }
}

/// What a checkpoint is to make durable. There is work still if it is dropped: the checkpoint failed, or whoever waited for it went.
pub(crate) struct TakenWork<'a>(&'a Work);

impl TakenWork<'_> {
    /// It is durable.
    pub(crate) fn done(self) {
        std::mem::forget(self);
    }
}

impl Drop for TakenWork<'_> {
    fn drop(&mut self) {
        self.0.commits.fetch_add(1, Ordering::AcqRel);
    }
}

impl Apply {
    /// Reads segments and the number of buckets from `index`.
    pub(crate) fn load(index: Arc<dyn Index>, holds: Arc<Holds>, checkpoint_bytes: u64) -> Result<Self, StoreError> {
        let segments = Segments::load(&*index)?;
        let buckets = bucket::count(&*index)?;
        let versioned = Versioned::load(&*index)?;
        let work = Work { checkpoint_bytes, snapshot_bytes: AtomicU64::new(u64::MAX), ..Work::default() };
        // What the newest snapshot does not cover would have to be replayed over it.
        work.snapshot_stored_bytes.store(segments.uncovered_bytes(), Ordering::Relaxed);
        work.changes.store(segments.uncovered_bytes(), Ordering::Relaxed);
        Ok(Self {
            index,
            holds,
            state: Mutex::new(State { segments, buckets }),
            configs: ConfigCache::default(),
            versioned,
            accounts: Accounts::default(),
            work,
            has_unreadable: AtomicBool::new(false),
            kept: OnceLock::new(),
            snapshot_unknown: OnceLock::new(),
        })
    }

    pub(crate) fn work(&self) -> &Work {
        &self.work
    }

    /// Whether every deletion must stay in the log: see `has_unreadable`.
    pub(crate) fn must_carry_all(&self) -> bool {
        self.has_unreadable.load(Ordering::Acquire)
    }

    /// Segments can not be read that the index lacks; `may_return` says whether they may be read again.
    pub(crate) fn note_unreadable(&self, may_return: bool) {
        self.has_unreadable.store(true, Ordering::Release);
        if may_return {
            let there: HashSet<SegmentId> = self.with_segments(|segments| segments.iter().map(|(id, _)| id).collect());
            tracing::warn!(
                segments = there.len(),
                "mutations can not be read that may be there when a target returns: until a start that finds them, or no target away, \
                 no space is given back of the segments that they may refer to"
            );
            // Noted once, at the start: what is opened later does not count.
            let _ = self.kept.set(there);
        }
    }

    /// Whether segments could not be read at the start that may be read again.
    pub(crate) fn awaits_unreadable(&self) -> bool {
        self.kept.get().is_some()
    }

    /// The index was made of the log without its snapshot when this was the log's highest sequence. Noted once, at the start.
    pub(crate) fn note_snapshot_unknown(&self, until: Seq) {
        let _ = self.snapshot_unknown.set(until);
    }

    /// What a snapshot of the index in the log says of keys, these rows do not know whose commits go up to this.
    pub(crate) fn snapshot_unknown(&self) -> Option<Seq> {
        self.snapshot_unknown.get().copied()
    }

    /// The commit of the newest snapshot of the index, if deletions in `segment` may have taken away what it knows: rows that came later it does not know.
    pub(crate) fn snapshot_without(&self, segment: SegmentId) -> Result<Option<Seq>, StoreError> {
        let state = self.state.lock();
        if state.segments.is_pending_without(segment) {
            return Ok(Some(Seq::from_u64(u64::MAX)));
        }
        let row = snapshot_row(&*self.index.snapshot())?;
        let row = row.filter(|row| !row.is_withdrawn() && !row.covered.contains(&segment));
        Ok(row.map(|row| row.seq))
    }

    /// Segments that must stay as they are.
    pub(crate) fn kept_segments(&self) -> usize {
        self.kept.get().map_or(0, HashSet::len)
    }

    /// Whether a segment must stay as it is, because what can not be read at the moment may refer to it.
    pub(crate) fn is_kept(&self, id: SegmentId) -> bool {
        self.kept.get().is_some_and(|kept| kept.contains(&id))
    }

    /// Number of buckets.
    pub(crate) fn buckets(&self) -> usize {
        self.state.lock().buckets
    }

    /// What the buckets of an account hold together; `owners` says how their rows name it.
    pub(crate) fn held_by_account(
        &self,
        account: &str,
        owners: impl FnOnce() -> Vec<String>,
    ) -> Result<Holding, StoreError> {
        if let Some(held) = self.accounts.get(account) {
            return Ok(held);
        }
        let _nothing_is_committed = self.state.lock();
        // Whoever held the lock may have added them up.
        if let Some(held) = self.accounts.get(account) {
            return Ok(held);
        }
        self.accounts.add_up(&*self.index, account, owners())
    }

    /// Whether a bucket may have objects with versions that are not current, or delete markers.
    pub(crate) fn has_versions(&self, bucket: &BucketName) -> bool {
        self.versioned.contains(bucket)
    }

    /// Looks at the segments; no stripe is applied meanwhile.
    pub(crate) fn with_segments<T>(&self, look: impl FnOnce(&Segments) -> T) -> T {
        look(&self.state.lock().segments)
    }

    /// Sealed segments that no row refers to, and nothing in flight may come to, oldest mutations first.
    pub(crate) fn dead_segments(&self) -> Vec<SegmentId> {
        let state = self.state.lock();
        let dead = |id: SegmentId, segment: &Segment| {
            segment.is_dead() && self.holds.is_free(id, segment.sealed_epoch) && !self.is_kept(id)
        };
        let mut found: Vec<(Seq, SegmentId)> = state
            .segments
            .iter()
            .filter(|&(id, segment)| dead(id, segment))
            .map(|(id, s)| (s.row.min_seq, id))
            .collect();
        found.sort_unstable();
        found.into_iter().map(|(_, id)| id).collect()
    }

    /// Notes that stripes of a segment are punched out; returns the offsets of those that were before.
    pub(crate) fn punched(&self, segment: SegmentId, dead: &[DeadStripe]) -> Result<Vec<u64>, StoreError> {
        let mut before = Vec::new();
        self.commit(|overlay| {
            before = overlay.segment_punched(segment, dead);
            Ok(())
        })?;
        Ok(before)
    }

    /// Notes that stripes of a segment may be punched out.
    pub(crate) fn may_be_punched(&self, segment: SegmentId, dead: &[DeadStripe]) -> Result<(), StoreError> {
        self.commit(|overlay| {
            overlay.segment_may_have_holes(segment, dead);
            Ok(())
        })
    }

    /// Applies a batch of replayed records, and whatever `also` puts beside them, in one index commit.
    pub(crate) fn replay(
        &self,
        records: &[AppliedRecord],
        also: impl FnOnce(&mut Overlay<'_>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        self.commit(|overlay| {
            records.iter().try_for_each(|record| apply_record(overlay, record))?;
            also(overlay)
        })
    }

    fn commit(&self, change: impl FnOnce(&mut Overlay<'_>) -> Result<(), StoreError>) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        let mut overlay = Overlay::new(&*self.index, &state.segments, &self.versioned);
        change(&mut overlay)?;
        let counted = self.accounts.is_used().then(|| overlay.usage().clone());
        let outcome = overlay.finish()?;
        self.index.commit(&[], outcome.writes)?;
        if let Some(counted) = counted {
            self.accounts.changed(&counted);
            if !outcome.owners.is_empty() {
                self.accounts.forget(&outcome.owners);
            }
        }
        outcome.configs.iter().for_each(|bucket| self.configs.forget(bucket.as_ref()));
        self.work.committed();
        state.buckets = state.buckets.saturating_add_signed(outcome.buckets);
        let news = state.segments.install(outcome.segments);
        if let Some(covered) = outcome.covered {
            state.segments.set_snapshot(covered);
        }
        if news.any_dead {
            self.work.free.notify_one();
        }
        if news.any_freed {
            self.work.freed.notify_waiters();
        }
        Ok(())
    }
}

impl Applier for Apply {
    fn apply(&self, stripe: &AppliedStripe) -> Result<(), ApplyError> {
        self.commit(|overlay| {
            // What is carried took effect before its segment was given up; only a replay that comes by it needs it.
            let mut news = stripe.records.iter().filter(|record| !record.carried);
            news.try_for_each(|record| apply_record(overlay, record))?;
            overlay.stripe_applied(stripe);
            Ok(())
        })
        .map_err(|error| ApplyError(error.to_string()))?;
        let is_mutation = |record: &&AppliedRecord| matches!(record.body, RecordBody::Mutation(_));
        let mutations = stripe.records.iter().filter(is_mutation).count() as u64;
        self.work.changes.fetch_add(mutations, Ordering::Relaxed);
        self.work.stored(stripe.stored_bytes);
        Ok(())
    }

    fn is_behind(&self) -> bool {
        self.index.is_behind()
    }

    fn segment_changed(&self, change: SegmentChange) -> Result<(), ApplyError> {
        self.commit(|overlay| {
            match &change {
                SegmentChange::Opened(info) => overlay.segment_opened(info),
                SegmentChange::Sealed { id, seal } => overlay.segment_sealed(*id, seal, self.holds.sealed()),
                SegmentChange::Moved(info) => overlay.segment_moved(info),
                SegmentChange::Removed(ids) => {
                    ids.iter().for_each(|id| overlay.segment_removed(*id));
                    open::forget(overlay, ids)?;
                }
            }
            Ok(())
        })
        .map_err(|error| ApplyError(error.to_string()))?;
        self.work.room.notify_one();
        Ok(())
    }
}

impl Liveness for Apply {
    fn is_live(&self, segment: SegmentId, stripe_offset: u64) -> bool {
        self.with_segments(|segments| {
            let punched = segments.get(segment).and_then(|segment| segment.row.punched.as_ref());
            // They were found from the front to the end.
            punched.is_none_or(|offsets| offsets.binary_search(&stripe_offset).is_err())
        })
    }
}

/// Applies one record.
fn apply_record(overlay: &mut Overlay<'_>, record: &AppliedRecord) -> Result<(), StoreError> {
    let bytes = match &record.body {
        RecordBody::Freed(segment) => {
            overlay.segment_freed(*segment);
            return Ok(());
        }
        RecordBody::Mutation(bytes) => bytes,
    };
    let mutation = Mutation::decode(bytes)
        .map_err(|error| StoreError::Unavailable(format!("segment {}: {error}", record.home.segment)))?;
    if mutation.creates() {
        overlay.creates(record.home.segment, record.seq);
    }
    let home = Home { segment: record.home.segment, bytes: record.home.bytes };
    let at = At { seq: record.seq, moved: None, home, extents: &record.extents };
    match mutation {
        Mutation::CreateBucket(mutation) => bucket::create(overlay, &at, mutation),
        Mutation::DeleteBucket(mutation) => bucket::delete(overlay, &at, mutation),
        Mutation::PutObject(mutation) => object::put(overlay, &at, *mutation),
        Mutation::RenameObject(mutation) => object::rename(overlay, &at, *mutation),
        Mutation::DeleteObject(mutation) => object::delete(overlay, &at, mutation),
        Mutation::PutMarker(mutation) => object::put_marker(overlay, &at, *mutation),
        Mutation::DeleteVersion(mutation) => object::delete_version(overlay, &at, mutation),
        Mutation::CreateUpload(mutation) => upload::create(overlay, &at, *mutation),
        Mutation::PutPart(mutation) => upload::put_part(overlay, &at, *mutation),
        Mutation::CompleteUpload(mutation) => upload::complete(overlay, &at, *mutation),
        Mutation::EndUpload(mutation) => upload::end(overlay, &at, &mutation.bucket, &mutation.key, mutation.upload),
        Mutation::PutConfig(mutation) => config::put(overlay, &at, mutation),
        Mutation::DeleteConfig(mutation) => config::delete(overlay, &at, mutation),
        Mutation::IndexSnapshot(mutation) => snapshot::apply(overlay, &at, mutation),
        Mutation::Move(mutation) => {
            // The other half of a bug on purpose: a move that comes late counts as if it were a new commit.
            let forgets = cfg!(feature = "planted-compaction-forgets");
            let at = if forgets { at } else { At { seq: mutation.seq, moved: Some(record.seq), ..at } };
            match mutation.row {
                MovedRow::Bucket(mutation) => bucket::create(overlay, &at, mutation),
                MovedRow::Object(mutation) => object::put(overlay, &at, mutation),
                MovedRow::Upload(mutation) => upload::create(overlay, &at, mutation),
                MovedRow::Part(mutation) => upload::put_part(overlay, &at, mutation),
                MovedRow::Completed(mutation) => upload::complete(overlay, &at, mutation),
                MovedRow::IndexSnapshot(mutation) => snapshot::apply(overlay, &at, mutation),
                MovedRow::Config(mutation) => config::put(overlay, &at, mutation),
                MovedRow::Marker(mutation) => object::put_marker(overlay, &at, mutation),
            }
        }
    }
}

/// The record that a mutation came in.
#[derive(Clone, Copy)]
struct At<'a> {
    /// The commit that made the row.
    seq: Seq,
    /// The record's own sequence, if it moves a row.
    moved: Option<Seq>,
    home: Home,
    /// The record's own data.
    extents: &'a [Extent],
}

/// What decides which of two records of one row counts: the later commit, and of one commit the later move.
type Version = (Seq, Option<Seq>);

impl At<'_> {
    fn version(&self) -> Version {
        (self.seq, self.moved)
    }

    /// The record's own sequence.
    fn written(&self) -> Seq {
        self.moved.unwrap_or(self.seq)
    }
}

/// What a batch comes to.
pub(crate) struct Outcome {
    writes: Vec<Write>,
    segments: segments::Changes,
    buckets: isize,
    /// Whose buckets came or went.
    owners: BTreeSet<String>,
    covered: Option<Option<snapshot::Covered>>,
    configs: BTreeSet<Option<BucketName>>,
}

#[cfg(test)]
mod tests;
