//! The log: all lanes, all segments, all targets behind one handle.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use gabion_erasure::Crc64;
use gabion_platform::{FilePlace, Load, Wanted};
use gabion_types::limits::{INLINE_BYTES_MAX, MUTATION_BYTES_MAX};
use gabion_types::{DeploymentId, Extent, SegmentId, Seq, TargetId};
use tokio::sync::Notify;

use crate::applier::{Applier, Committed, Companion, NewRecord, RecordBody};
use crate::config::{Env, LogConfig, LogTarget};
use crate::core::Core;
use crate::error::LogError;
use crate::format::record_bytes;
use crate::free::{Freed, forget_freed, free};
use crate::lane::encode::LargePayload;
use crate::lane::open::Purpose;
use crate::lane::submit::{Lanes, Submission};
use crate::media::Media;
use crate::metrics::LogMetrics;
use crate::punch::{DeadStripe, dead_stripes, punch};
use crate::recovery::{Recovery, recover};
use crate::replay::MutationStream;
use crate::room::{Demand, Room, room};
use crate::segment::{Life, Pin, Segment};
use crate::segment_info::KnownSegment;
use crate::status::{Damage, LogStatus, MemoryUse};
use crate::stripe_buffer::StripeBuffer;
use crate::target::open_targets;
use crate::upkeep::Liveness;
use crate::upkeep::census::{Census, Patience};
use crate::upkeep::install::Installed;
use crate::upkeep::members::{self, TargetMode, TargetPlan};
use crate::upkeep::rebalance;
use crate::upkeep::repair::{self, RepairPass};
use crate::upkeep::scrub::{self, ScrubbedSegment, Strays};

/// Above every offset that a segment has: what an index that was damaged may name is refused before it is computed with.
const OFFSET_MAX: u64 = 1 << 62;

/// A handle on the log; clones share it. When the last one is dropped the lanes finish what is queued and end.
#[derive(Clone)]
pub struct Log {
    handle: Arc<Handle>,
}

/// Checks a record.
fn submission(record: NewRecord) -> Result<Submission, LogError> {
    let NewRecord { mutation, data, data_crc64 } = record;
    if mutation.len() > MUTATION_BYTES_MAX {
        return Err(LogError::Invalid(format!("a mutation of {} bytes", mutation.len())));
    }
    let data_bytes = data.iter().map(Bytes::len).fold(0, usize::saturating_add);
    if data_bytes > INLINE_BYTES_MAX {
        return Err(LogError::Invalid(format!("a record with {data_bytes} bytes of data")));
    }
    let mut crc = Crc64::new();
    data.iter().for_each(|part| crc.update(part));
    if data_bytes > 0 && crc.finish() != data_crc64 {
        return Err(LogError::Invalid("the checksum of the data is not that of the data".to_owned()));
    }
    Ok(Submission { body: RecordBody::Mutation(mutation), carried: None, data, data_bytes, data_crc64 })
}

struct Handle {
    core: Arc<Core>,
    lanes: Arc<Lanes>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.lanes.close();
    }
}

impl Log {
    /// Opens (or formats) the targets, recovers every segment that the index does not know as sealed, and seals it.
    ///
    /// `known` is what the index holds; empty if it is lost. Reads and [`Log::mutations`] work at once, writes after [`Log::start`].
    ///
    /// # Errors
    /// `Targets` when the directories make up no usable deployment or too many are absent; `IndexAhead` and `IndexBehind` when
    /// the index must be rebuilt; `Invalid` for a bad configuration; `Io` and `Unavailable` when a segment could be neither completed nor sealed.
    pub async fn open(
        config: LogConfig,
        targets: Vec<LogTarget>,
        known: Vec<KnownSegment>,
        env: Env,
    ) -> Result<(Log, Recovery), LogError> {
        config.check()?;
        let (targets, warnings) = open_targets(&config, targets, &env).await?;
        let media = Media::new(targets, &config, Arc::clone(&env.clock));
        let lanes = Lanes::new(&config);
        let core = Core::new(config, media, &env);
        let recovery = recover(&core, known, warnings).await?;
        Ok((Log { handle: Arc::new(Handle { core: Arc::new(core), lanes: Arc::new(lanes) }) }, recovery))
    }

    /// Starts the lanes, in the current tokio runtime. `applier` gets every stripe after it is durable and before its submitters
    /// are answered. A second call does nothing.
    pub fn start(&self, applier: Arc<dyn Applier>) {
        if self.handle.core.applier.set(Arc::clone(&applier)).is_ok() {
            self.handle.core.media.is_open.store(true, Ordering::Relaxed);
            self.handle.lanes.start(&self.handle.core, &applier);
        }
    }

    /// Commits one record, which is queued, or refused, when this returns: durable and applied when the future resolves. Dropping that does not take the record back.
    ///
    /// # Errors
    /// `Invalid` (too large, wrong checksum), `Busy`: it took no effect. `NoSpace`, `Unavailable`: it was not applied; if the writing
    /// itself failed, it may still take effect, as a whole, at the next start.
    pub fn commit(&self, record: NewRecord) -> impl Future<Output = Result<Committed, LogError>> + Send {
        self.commit_for(Purpose::Data, record, None)
    }

    /// As [`Log::commit`], with a companion, which is answered in any case.
    ///
    /// # Errors
    /// As [`Log::commit`].
    pub fn commit_with(
        &self,
        record: NewRecord,
        companion: Box<dyn Companion>,
    ) -> impl Future<Output = Result<Committed, LogError>> + Send {
        self.commit_for(Purpose::Data, record, Some(companion))
    }

    /// As [`Log::commit`], for a record that compaction moves: through a lane of its own, which may take room that new data leaves.
    ///
    /// # Errors
    /// As [`Log::commit`].
    pub fn commit_moved(&self, record: NewRecord) -> impl Future<Output = Result<Committed, LogError>> + Send {
        self.commit_for(Purpose::Moved, record, None)
    }

    /// What waits holds nothing of the record, and is small: it lies in the futures of requests.
    fn commit_for(
        &self,
        purpose: Purpose,
        record: NewRecord,
        companion: Option<Box<dyn Companion>>,
    ) -> impl Future<Output = Result<Committed, LogError>> + Send {
        let Handle { core, lanes } = &*self.handle;
        let queued = match submission(record) {
            Ok(submission) => lanes.commit(core, purpose, submission, companion),
            Err(error) => {
                companion.into_iter().for_each(|companion| companion.answered(Err(&error)));
                Err(error)
            }
        };
        async move { queued?.outcome(core).await }
    }

    /// Writes one stripe of a large object: durable when it resolves. Dropping the future does not stop the write.
    ///
    /// # Errors
    /// `Invalid` when the stripe is empty or of another log; `NoSpace`, `Unavailable`: no extent names the bytes, they are dead.
    pub async fn append(&self, payload: StripeBuffer) -> Result<Extent, LogError> {
        self.append_for(Purpose::Data, payload, false).await
    }

    /// As [`Log::append`], for object bytes that compaction moves; see [`Log::commit_moved`].
    ///
    /// # Errors
    /// As [`Log::append`].
    pub async fn append_moved(&self, payload: StripeBuffer) -> Result<Extent, LogError> {
        self.append_for(Purpose::Moved, payload, false).await
    }

    /// As [`Log::append`], for one of a run of stripes that will die together: it lies in segments that hold nothing else. They end with the
    /// last one, so that the next run has others.
    ///
    /// # Errors
    /// As [`Log::append`].
    pub async fn append_apart(&self, payload: StripeBuffer, is_last: bool) -> Result<Extent, LogError> {
        self.append_for(Purpose::Apart, payload, is_last).await
    }

    async fn append_for(
        &self,
        purpose: Purpose,
        payload: StripeBuffer,
        ends_segment: bool,
    ) -> Result<Extent, LogError> {
        let core = &self.handle.core;
        if payload.is_empty() || payload.chunks.len() != core.config.geometry.data() {
            return Err(LogError::Invalid("a stripe without payload, or of another geometry".to_owned()));
        }
        // Coded in the submitter's task: so several stripes are coded at once, and the lane only writes.
        let payload = LargePayload::new(payload, &core.media.codec(core.config.geometry), &core.buffers);
        self.handle.lanes.append(core, purpose, payload, ends_segment).await
    }

    /// An empty buffer for one stripe; waits until the memory budget has room for it. Cancel safe.
    ///
    /// # Errors
    /// `Unavailable` after [`Log::shutdown`].
    pub async fn stripe_buffer(&self) -> Result<StripeBuffer, LogError> {
        self.handle.lanes.stripe_buffer(&self.handle.core).await
    }

    /// The same, if the memory budget has room now.
    #[must_use]
    pub fn try_stripe_buffer(&self) -> Option<StripeBuffer> {
        self.handle.lanes.try_stripe_buffer(&self.handle.core)
    }

    /// The same for what is done by nobody's request: it does not wait for as long as uploads have all the memory there is, a few stripes are kept from them. Cancel safe.
    ///
    /// # Errors
    /// As [`Log::stripe_buffer`].
    pub async fn own_stripe_buffer(&self) -> Result<StripeBuffer, LogError> {
        self.handle.lanes.own_stripe_buffer(&self.handle.core).await
    }

    /// Payload of a full stripe of a large object in bytes.
    #[must_use]
    pub fn stripe_payload_bytes(&self) -> usize {
        self.handle.core.config.stripe_payload_bytes
    }

    /// The bytes `range` of `extent`, if it is a short one that was read before, verified then, and is still in memory. What lies at a place of a segment never changes: nothing has
    /// to be pinned for that, nor does the segment have to be there.
    #[must_use]
    pub fn warm(&self, extent: &Extent, range: Range<u32>) -> Option<Bytes> {
        if range.start >= range.end || range.end > extent.len {
            return None;
        }
        self.handle.core.media.read_warm(extent, range.start as usize..range.end as usize)
    }

    /// The bytes `range` of `extent`, verified, in order.
    ///
    /// # Errors
    /// `Invalid` when the range leaves the extent, `NotFound` when the segment is gone, `Corrupt` when too many chunks are bad.
    pub fn read(
        &self,
        extent: &Extent,
        range: Range<u32>,
    ) -> impl Future<Output = Result<Vec<Bytes>, LogError>> + Send {
        self.read_placed(extent, range, None)
    }

    /// The same; of large stripes that are read as they lie, the places of all pieces are added to `places`.
    ///
    /// # Errors
    /// As [`Log::read`].
    pub async fn read_placed(
        &self,
        extent: &Extent,
        range: Range<u32>,
        mut places: Option<&mut Vec<FilePlace>>,
    ) -> Result<Vec<Bytes>, LogError> {
        if range.start > range.end || range.end > extent.len || extent.stripe_offset >= OFFSET_MAX {
            return Err(LogError::Invalid(format!("bytes {range:?} of {extent:?}")));
        }
        if range.is_empty() {
            return Ok(Vec::new());
        }
        let core = &self.handle.core;
        let segment = core.segment(extent.segment)?;
        // Files are not unlinked under a read even if the caller has no pin of its own.
        let Some(_pinned) = segment.pinned() else { return Err(LogError::NotFound(extent.segment)) };
        let range = range.start as usize..range.end as usize;
        let targets = &core.media.targets;
        loop {
            let (info, had_ended) = (segment.info(), targets.has_ended());
            match core.media.read(&info, extent, range.clone(), places.as_deref_mut()).await {
                // Too few of its targets answer. In a place of its own, not in the future that all reads are.
                Err(LogError::Unreadable { .. }) if Box::pin(targets.waits_for(&info.targets, had_ended)).await => {}
                read => return read,
            }
        }
    }

    /// Has the page caches of the machine load bytes `range` of `extent`, which are read in order soon: all of them at once and in large pages, if they are many, lie on file
    /// systems of this machine and are not there. Opens the files; what there is to be waited for then, if anything, is returned. Nothing else comes of it, and no error.
    pub async fn load(&self, extent: &Extent, range: Range<u32>, wanted: Wanted) -> Load {
        if range.start >= range.end || range.end > extent.len || extent.stripe_offset >= OFFSET_MAX {
            return None;
        }
        let core = &self.handle.core;
        let segment = core.segment(extent.segment).ok()?;
        let _pinned = segment.pinned()?;
        core.media.load(&segment.info(), extent, range.start as usize..range.end as usize, wanted).await
    }

    /// Keeps the files of `segments` until the pin is dropped; segments that are gone already are left out.
    pub fn pin(&self, segments: impl IntoIterator<Item = SegmentId>) -> Pin {
        let known = self.handle.core.segments.lock();
        let pinned = segments.into_iter().filter_map(|id| known.get(&id)).filter(|segment| segment.pin());
        Pin::new(pinned.cloned().collect())
    }

    /// Whether a pin keeps the files of a segment: if it is freed, they stay for now.
    #[must_use]
    pub fn is_pinned(&self, segment: SegmentId) -> bool {
        self.handle.core.segments.lock().get(&segment).is_some_and(|segment| segment.is_pinned())
    }

    /// Removes a sealed segment in which nothing is needed any more.
    ///
    /// Writes `carried` (mutations that must outlive it, with their sequences) and then a `Freed` record durably, waits until no
    /// pin holds the segment, and unlinks its files. Goes on if the future is dropped.
    ///
    /// # Errors
    /// `Invalid` when it is not sealed or being freed already, `NotFound`; those of [`Log::commit`]: it is as it was, or will be
    /// freed at the next start.
    pub async fn free(&self, segment: SegmentId, carried: Vec<(Seq, Bytes)>) -> Result<Freed, LogError> {
        let (core, lanes) = (Arc::clone(&self.handle.core), Arc::clone(&self.handle.lanes));
        let found = core.segment(segment)?;
        if let Some((seq, mutation)) = carried.iter().find(|(_, mutation)| mutation.len() > MUTATION_BYTES_MAX) {
            return Err(LogError::Invalid(format!("carried mutation {seq} has {} bytes", mutation.len())));
        }
        if !found.begin_free() {
            return Err(LogError::Invalid(format!("segment {segment} is not sealed, or is being freed already")));
        }
        let task = tokio::spawn(free(core, lanes, found, carried));
        task.await.unwrap_or_else(|error| Err(LogError::Unavailable(format!("freeing {segment} was stopped: {error}"))))
    }

    /// The freed segments of which no file is left, and that are not forgotten yet.
    #[must_use]
    pub fn remembered(&self) -> BTreeSet<SegmentId> {
        self.handle.core.leftovers.lock().removed().collect()
    }

    /// Forgets the freed segments that nothing can bring back any more ([`crate::SegmentChange::Removed`]); returns how many were. To be called now and
    /// then: it takes two calls, `epoch_interval_ms` apart, from when a segment's files are gone.
    ///
    /// # Errors
    /// `Unavailable` when the targets do not take a list of members: the segments are remembered longer.
    pub async fn forget_freed(&self) -> Result<usize, LogError> {
        forget_freed(&self.handle.core).await
    }

    /// The stripes of a sealed segment of large objects that do not begin at any offset in `live`, but for its last one: what
    /// [`Log::punch`] can give back the space of. Nothing while the segment is pinned: whoever reads it may have begun before what it reads
    /// was dead. (Who pins it later looks at its row again, and sees that it is gone.)
    ///
    /// # Errors
    /// `Invalid` for another segment, `NotFound`; `Corrupt` when no header leads on.
    pub async fn dead_stripes(
        &self,
        segment: SegmentId,
        live: &BTreeSet<u64>,
    ) -> Result<Option<Vec<DeadStripe>>, LogError> {
        let core = &self.handle.core;
        dead_stripes(core, core.segment(segment)?, live).await
    }

    /// Gives back the space of stripes that [`Log::dead_stripes`] found, but for the headers of their chunks. They can not be read any
    /// more: what needs them must be gone for good. Doing it again does no harm, and is needed for those that were left, because somebody has pages of them: returns
    /// these. Nothing if a target can not do it.
    ///
    /// # Errors
    /// `Invalid`, `NotFound`; `Unavailable` when a target fails: some holes may be there.
    pub async fn punch(&self, segment: SegmentId, dead: &[DeadStripe]) -> Result<Option<Vec<DeadStripe>>, LogError> {
        let core = &self.handle.core;
        punch(core, core.segment(segment)?, dead).await
    }

    /// The stripes of `segment` with their records, from stripe `from_stripe` on. A segment of large stripes has none.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` when the segment is not sealed or has fewer stripes; `Corrupt`.
    pub async fn mutations(&self, segment: SegmentId, from_stripe: u32) -> Result<MutationStream, LogError> {
        let core = &self.handle.core;
        MutationStream::open(Arc::clone(core), core.segment(segment)?, from_stripe).await
    }

    /// Makes everything durable that was acknowledged before the call: the checkpoint of relaxed durability, and free with
    /// [`crate::Durability::Sync`].
    ///
    /// # Errors
    /// `Unavailable` when acknowledged stripes may be lost by a power cut: no checkpoint may claim them.
    pub async fn sync(&self) -> Result<(), LogError> {
        self.handle.core.sync_written().await
    }

    /// Makes what was appended to `segments` durable, before a mutation that refers to it is committed: or else, with relaxed durability, a
    /// power cut might take the bytes and leave the mutation. Free with [`crate::Durability::Sync`].
    ///
    /// # Errors
    /// As [`Log::sync`].
    pub async fn sync_segments(&self, segments: &[SegmentId]) -> Result<(), LogError> {
        self.handle.core.sync_segments(segments).await
    }

    /// Builds missing and damaged shards anew, and moves those of targets that are drained, until nothing is left that can be done now. Targets that are
    /// absent or failed are waited for as long as `repair_delay_ms` says, or not at all if `at_once`. May be dropped at any moment.
    ///
    /// # Errors
    /// `Unavailable` when the log takes no writes; what fails for one segment is in the report.
    pub async fn repair(&self, at_once: bool) -> Result<RepairPass, LogError> {
        let (core, lanes) = (&self.handle.core, &self.handle.lanes);
        let patience = if at_once { Patience::None } else { Patience::Delay };
        repair::pass(core, patience, || lanes.look_again_if_short(core)).await
    }

    /// Segments of which a shard could not be built: it is tried again after a while.
    #[must_use]
    pub fn repair_put_off(&self) -> BTreeSet<SegmentId> {
        self.handle.core.repair.put_off_segments()
    }

    /// What could not be built of a segment may be built now.
    pub fn repair_again(&self, segment: SegmentId) {
        self.handle.core.repair.again(segment);
        self.handle.core.media.repair_wanted.notify_one();
    }

    /// Builds one shard of a sealed segment on the target `onto`, which may be the one that it lies on; false if it is whole there.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` when the target is not there or holds another shard of the segment; `Corrupt` when too many chunks
    /// are lost; `Io`.
    pub async fn repair_shard(&self, segment: SegmentId, shard: u8, onto: TargetId) -> Result<bool, LogError> {
        let core = &self.handle.core;
        let place = core.media.targets.find(onto);
        let place = place.ok_or_else(|| LogError::Invalid(format!("target {onto} is not there")))?;
        let installed = repair::repair_onto(core, core.segment(segment)?, shard.into(), place).await?;
        Ok(installed != Installed::WasGood)
    }

    /// Rings when damage was noted that was not known, or the targets changed.
    #[must_use]
    pub fn repair_wanted(&self) -> Arc<Notify> {
        Arc::clone(&self.handle.core.media.repair_wanted)
    }

    /// Takes a new, empty target into the deployment; its failure domain is its label, or its name if that is empty.
    ///
    /// # Errors
    /// `Invalid` with a sentence when it can not join; `Io`; `Unavailable` when it is unknown whether it joined.
    pub async fn target_add(&self, target: LogTarget, mode: TargetMode) -> Result<TargetPlan, LogError> {
        self.change_targets(mode, |mode| members::add(&self.handle.core, target.clone(), mode)).await
    }

    /// Takes a target out of use, while it is there: no new segments go to it, and repair moves its shards to others.
    ///
    /// # Errors
    /// `Invalid` with a sentence when that can not be done; `Unavailable` when it is unknown whether it was.
    pub async fn target_drain(&self, id: TargetId, mode: TargetMode) -> Result<TargetPlan, LogError> {
        self.change_targets(mode, |mode| members::drain(&self.handle.core, id, mode)).await
    }

    /// Takes a target that was drained back into use.
    ///
    /// # Errors
    /// As [`Log::target_drain`].
    pub async fn target_undrain(&self, id: TargetId, mode: TargetMode) -> Result<TargetPlan, LogError> {
        self.change_targets(mode, |mode| members::undrain(&self.handle.core, id, mode)).await
    }

    /// Removes a target from the deployment: one on which nothing lies, or, if it is `lost`, any; repair then builds its shards anew elsewhere.
    ///
    /// # Errors
    /// As [`Log::target_drain`]; while it is unknown whether it was removed, it is as one that is drained.
    pub async fn target_remove(&self, id: TargetId, lost: bool, mode: TargetMode) -> Result<TargetPlan, LogError> {
        self.change_targets(mode, |mode| members::remove(&self.handle.core, id, lost, mode)).await
    }

    /// Takes a new, empty target into the deployment in the place of `old`. If `old` is there it is drained, and can be removed when nothing
    /// is left on it; if not, it is no member any more.
    ///
    /// # Errors
    /// As [`Log::target_add`].
    pub async fn target_replace(
        &self,
        old: TargetId,
        new: LogTarget,
        mode: TargetMode,
    ) -> Result<TargetPlan, LogError> {
        self.change_targets(mode, |mode| members::replace(&self.handle.core, old, new.clone(), mode)).await
    }

    /// Has repair move shards from fuller targets to emptier ones until their fills are `until_percent` of their size apart at most, or as alike as
    /// whole shards make them. Failure domains are kept. One that is under way gets the new goal; 100 ends it.
    pub async fn rebalance(&self, until_percent: u8, mode: TargetMode) -> TargetPlan {
        let plan = rebalance::rebalance(&self.handle.core, until_percent, mode).await;
        self.handle.core.media.repair_wanted.notify_one();
        plan
    }

    /// Goes on with a rebalancing that an earlier opening began.
    pub fn rebalance_on(&self, until_percent: u8) {
        self.handle.core.rebalance.begin(until_percent);
    }

    /// What a rebalancing that is under way has as its goal.
    #[must_use]
    pub fn rebalancing(&self) -> Option<u8> {
        self.handle.core.rebalance.status().map(|status| status.until_percent)
    }

    /// One change at a time: what one leaves is what the next one finds. After it lanes look where they write, and repair looks what there is to do.
    async fn change_targets<F: Future<Output = Result<TargetPlan, LogError>>>(
        &self,
        mode: TargetMode,
        change: impl Fn(TargetMode) -> F,
    ) -> Result<TargetPlan, LogError> {
        // Whatever does not answer does not do so here, without the turn.
        let plan = change(TargetMode::DryRun).await?;
        if mode == TargetMode::DryRun {
            return Ok(plan);
        }
        let turn = self.handle.core.media.targets.operator_turn().await;
        let plan = change(TargetMode::Apply).await;
        self.handle.core.media.close_left();
        drop(turn);
        self.handle.lanes.look_again();
        self.handle.core.media.repair_wanted.notify_one();
        plan
    }

    /// Reads the first segment after `after` (of all, if that is nothing) to its end, or to where it is written at that moment, and checks every byte; damage is queued for repair.
    /// Nothing when there is no further one. At `scrub_bytes_per_s`. Targets that do not answer are passed over.
    ///
    /// # Errors
    /// `Busy` when this machine lacks descriptors or memory.
    pub async fn scrub_next(&self, after: Option<SegmentId>) -> Result<Option<ScrubbedSegment>, LogError> {
        scrub::next(&self.handle.core, after).await
    }

    /// A scrub of all segments begins: damage that could not be noted for want of room will be found by it.
    pub fn scrub_begins(&self) {
        self.handle.core.media.repairs.scrub_begins();
    }

    /// Whether more damage was found than could be noted, and there is room for it by now: a scrub would find it.
    #[must_use]
    pub fn wants_scrub(&self) -> bool {
        self.handle.core.media.repairs.wants_scrub()
    }

    /// Shards that are known to be damaged, or were found missing, and are not repaired yet.
    #[must_use]
    pub fn damage(&self) -> Damage {
        self.handle.core.media.repairs.damage()
    }

    /// Notes what an earlier process knew, as far as the segments are still there. What is whole by now is found to be so when it is to be repaired.
    pub fn note_damage(&self, damage: &Damage) {
        let core = &self.handle.core;
        for entry in &damage.shards {
            let segment = core.segments.lock().get(&entry.segment).cloned();
            let is_there = segment.is_some_and(|it| usize::from(entry.shard) < it.info().geometry.shards());
            // What can not be read now may be another time.
            if is_there || core.unreadable.lock().contains(&entry.segment) {
                core.media.ask_repair(entry.segment, entry.shard.into());
            }
        }
        if damage.more {
            core.media.repairs.there_is_more();
        }
    }

    /// Looks for files under the names of shards that belong to no segment, or not to the target that they lie on.
    pub async fn strays(&self) -> Strays {
        scrub::strays(&self.handle.core).await
    }

    /// The ends of all sealed segments: offset just after the last stripe of each.
    #[must_use]
    pub fn ends(&self) -> HashMap<SegmentId, Option<u64>> {
        let segments = self.handle.core.segments.lock();
        let end = |segment: &Arc<Segment>| match segment.life() {
            Life::Open => None,
            Life::Sealed(seal) | Life::Freeing(seal) => Some(seal.end_offset),
            Life::Removing => None,
        };
        segments.iter().map(|(id, segment)| (*id, end(segment))).collect()
    }

    /// Says who knows which stripes are needed; a second call does nothing.
    pub fn set_liveness(&self, liveness: Arc<dyn Liveness>) {
        let _ = self.handle.core.liveness.set(liveness);
    }

    /// Takes no more writes, finishes those that are queued, and resolves when all are answered and durable. Open segments stay
    /// as they are; the next start seals them.
    pub async fn shutdown(&self) {
        self.handle.lanes.close();
        self.handle.lanes.finished().await;
        if let Err(error) = self.sync().await {
            tracing::error!(%error, "the last sync failed");
        }
    }

    /// The deployment that the targets belong to.
    #[must_use]
    pub fn deployment(&self) -> DeploymentId {
        self.handle.core.media.targets.deployment
    }

    /// Whether a member of the deployment is away or out of order: what can not be read now may be there again when it returns.
    #[must_use]
    pub fn lacks_targets(&self) -> bool {
        self.handle.core.media.targets.lacks_some()
    }

    /// Whether a target gave an error instead of bytes since the log was opened.
    #[must_use]
    pub fn reads_failed(&self) -> bool {
        self.handle.core.media.reads_failed.load(Ordering::Relaxed)
    }

    /// Bytes of records that must be written again when a segment is freed, because only there it is said which segments were freed before.
    #[must_use]
    pub fn retold_bytes(&self, segment: SegmentId) -> u64 {
        let told = self.handle.core.leftovers.lock().told_in(segment);
        (told * record_bytes(size_of::<u128>(), 0)) as u64
    }

    /// How much room there is for what compaction moves and for writers beside it, asked of the targets now.
    pub async fn room(&self, demand: Demand) -> Room {
        room(&self.handle.core, demand).await
    }

    /// Lends writers so much of the reserve of each target, in bytes, while compaction moves what [`Log::room`] was told of; 0 when
    /// what it gives back is there.
    pub fn lend(&self, bytes: u64) {
        self.handle.core.lend(bytes);
    }

    /// A snapshot for the admin page.
    #[must_use]
    pub fn status(&self) -> LogStatus {
        let core = &self.handle.core;
        let (open_segments, segments) = {
            let segments = core.segments.lock();
            (segments.values().filter(|segment| segment.life() == Life::Open).count(), segments.len())
        };
        let census = Census::take(core, Patience::Delay);
        LogStatus {
            deployment: core.media.targets.deployment.to_string(),
            geometry: core.config.geometry.to_string(),
            targets: core.media.targets.status(|id| census.shards_on(id)),
            missing_members: core.media.targets.missing_members(),
            membership_epoch: core.media.targets.epoch(),
            redundancy: census.redundancy.clone(),
            at_risk: census.at_risk,
            repair: core.repair.status(core, &census),
            rebalance: core.rebalance.status(),
            lanes: self.handle.lanes.status(),
            open_segments,
            sealed_segments: segments - open_segments,
            unreadable_segments: core.unreadable.lock().len(),
            repairs: core.media.repairs.snapshot(),
            poisoned: core.poisoned().map(str::to_owned),
        }
    }

    /// The budgets of memory that large stripes, the rebuilding of chunks, and upkeep share.
    #[must_use]
    pub fn memory(&self) -> [MemoryUse; 3] {
        let core = &self.handle.core;
        [self.handle.lanes.memory(), core.media.rebuild_memory(), core.upkeep_memory.status()]
    }

    /// The counters.
    #[must_use]
    pub fn metrics(&self) -> &LogMetrics {
        &self.handle.core.media.metrics
    }
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Log").field("deployment", &self.deployment()).finish_non_exhaustive()
    }
}
