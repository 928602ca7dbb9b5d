//! One append position: where the next stripe goes, writing it to all shards, and ending the segment when that fails.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use gabion_platform::{CachedWriter, CachedWrites, DiskFile, Durable, IoFuture};
use gabion_types::SegmentId;
use tokio::sync::mpsc;
use tokio::task::JoinError;
use tokio::time::sleep;

use super::apply::ApplyJob;
use super::encode::{EncodedStripe, StripePlace};
use super::open::{OpenSegment, Purpose};
use crate::config::Durability;
use crate::core::{Core, min_seq};
use crate::error::LogError;
use crate::format::{SEAL_BLOCK_BYTES, SealReason};
use crate::queue::Portion;
use crate::segment::{ShardFile, ShardFiles};
use crate::segment_info::{LaneKind, Seal, SegmentChange};
use crate::status::RepairEntry;
use crate::target::{OVERDUE, SYNC_OVERDUE, is_full, overdue};

/// How often a batch is written before its submitters are told that it can not be.
pub(crate) const WRITE_ATTEMPTS_MAX: u32 = 3;

/// How often a segment is ended for a target that has come: each of 2880 a day would be a small one.
const ENDED_FOR_GAIN_NS: u64 = 600 * 1_000_000_000;
/// Longest stripe that one thread writes to the page cache, in bytes on all shards: what takes much longer than to wake a thread is written side by side.
pub const IN_A_ROW_BYTES_MAX: usize = 512 << 10;
/// Longest time that it may take. The page cache makes writers wait when drives are behind, and several at a time wait no longer than one.
const IN_A_ROW_US_MAX: u64 = 20_000;
/// Longest time that writing a stripe takes when it waits for no disk: the page cache takes a short one in a tenth of that.
const AT_ONCE_US_MAX: u64 = 1000;
/// Least time that a durable stripe takes if others are waited for: timers are of a millisecond.
const TOGETHER_US_MIN: u64 = 500;
/// So many times as long as a stripe takes they are waited for: who shares one spares the disk, and the cores, the other.
const TOGETHER_STRIPES: u64 = 2;
/// Longest time that they are waited for, up to two milliseconds that a timer may be late.
const TOGETHER_US_MAX: u64 = 20_000;
/// Stripes that are written side by side after one that took longer.
const SIDE_BY_SIDE_STRIPES: u32 = 256;

/// The writing end of a lane.
pub(crate) struct Writer {
    pub(crate) core: Arc<Core>,
    kind: LaneKind,
    purpose: Purpose,
    open: Option<OpenSegment>,
    applies: mpsc::Sender<ApplyJob>,
    cached_writer: CachedWriter,
    /// Stripes that are to be written side by side before one is tried in a row again.
    side_by_side: u32,
    /// How much of what waits the next stripe is to have, by what the last one waited for.
    portion: Portion,
    /// What the last stripe took, in microseconds.
    write_us: u64,
    /// When a segment was last ended for a target that had come, by the monotonic clock.
    ended_for_gain_ns: Option<u64>,
}

/// Whether a stripe can be written.
pub(crate) enum Position {
    /// It goes here.
    At(StripePlace),
    /// It is larger than a new segment: it must be split.
    TooLarge,
    Refused(LogError),
}

/// What became of a stripe.
pub(crate) enum Written {
    /// Enough chunks are durable (with relaxed durability: written): it may be acknowledged.
    Durable,
    /// Too few are: its segment was ended before it, it must never be acknowledged.
    Void(LogError),
}

/// Begins `write` when another one of the same bytes has ended, whatever came of that: what follows is not to be overwritten by it.
fn after(other: IoFuture<()>, write: IoFuture<()>) -> IoFuture<()> {
    Box::pin(async move {
        let _ = other.await;
        write.await
    })
}

impl Writer {
    pub(crate) fn new(core: Arc<Core>, kind: LaneKind, purpose: Purpose, applies: mpsc::Sender<ApplyJob>) -> Self {
        let cached_writer = CachedWriter::new();
        Self {
            core,
            kind,
            purpose,
            open: None,
            applies,
            cached_writer,
            side_by_side: 0,
            portion: Portion::All,
            write_us: 0,
            ended_for_gain_ns: None,
        }
    }

    /// How much of what waits is to be the next stripe.
    ///
    /// Where stripes wait long for a disk, the more share one the better. Where none does, clients of one stripe that are answered together come together, too, and while the
    /// lane and the index have them all, one core after the other has nothing to do. Compaction gains nothing by early answers, and waits for nobody's next record.
    pub(crate) fn portion(&self) -> Portion {
        match self.purpose {
            Purpose::Data => self.portion,
            Purpose::Moved | Purpose::Reserve | Purpose::Apart => Portion::All,
        }
    }

    /// Finds room for a stripe of `stored_bytes`, in a new segment if need be; in one that is longer than usual if the stripe can not be split.
    pub(crate) async fn position(&mut self, stored_bytes: u64, has_data: bool, can_split: bool) -> Position {
        let whole_bytes = if can_split { 0 } else { stored_bytes };
        // Before shards are looked at: one that zeros could not be written to has failed.
        self.keep_clear(stored_bytes).await;
        self.leave_out_the_silent();
        if self.has_failed() {
            self.seal(SealReason::Degraded).await;
        }
        let ends = self.is_to_end();
        if let Some(open) = self.open.as_ref().filter(|_| !ends) {
            if open.fits(stored_bytes) {
                return Position::At(place(open));
            }
            if can_split && open.is_fresh() && open.fits(0) {
                return Position::TooLarge;
            }
        }
        // What fits in no segment of the usual length needs none to be opened to find that out.
        let needed_bytes = self.core.shard_bytes_for(stored_bytes, self.kind, self.purpose);
        if can_split && needed_bytes > self.core.config.shard_bytes_full(self.kind) {
            return Position::TooLarge;
        }
        let refusal = match self.core.open_segment(self.kind, self.purpose, whole_bytes).await {
            Ok(open) => {
                let fits = open.fits(stored_bytes);
                let at = place(&open);
                self.replace(open).await;
                return if fits { Position::At(at) } else { Position::TooLarge };
            }
            Err(refusal) => refusal,
        };
        // Rather on a target that is about to leave, or with a shard too few, than nowhere.
        let gained = self.core.media.targets.gained();
        if let Some(open) = self.open.as_mut().filter(|open| ends && open.fits(stored_bytes)) {
            open.gained = gained;
            return Position::At(place(open));
        }
        if has_data {
            return Position::Refused(refusal);
        }
        self.reserve_position(stored_bytes, whole_bytes, refusal).await
    }

    /// Has shards on targets that owe bytes count as failed, if the segment can do without them and another one can be opened: nothing more comes of what is written there.
    fn leave_out_the_silent(&self) {
        let targets = &self.core.media.targets;
        let Some(open) = self.open.as_ref().filter(|_| targets.any_owes_bytes()) else { return };
        let silent: Vec<_> = open.files.healthy().filter(|(_, file)| targets.at(file.target).owes_bytes()).collect();
        let places: Vec<usize> = silent.iter().map(|(_, file)| file.target).collect();
        if self.core.can_end_without(&open.files, &places) {
            silent.iter().for_each(|(shard, _)| self.core.chunk_failed(&open.files, *shard, &overdue()));
        }
    }

    /// Whether a shard of the open segment failed: it is to go on no longer.
    fn has_failed(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.files.any_poisoned())
    }

    /// Whether the open segment is to go on no longer than it must: a target that it lies on is about to leave, or it has too few shards, and a target has come
    /// since that one more could lie on. Repair builds those of segments that have ended.
    fn is_to_end(&mut self) -> bool {
        let targets = &self.core.media.targets;
        let Some(open) = &self.open else { return false };
        if open.files.present().any(|(_, file)| targets.is_leaving(file.target)) {
            return true;
        }
        if !open.files.lack_some() || open.gained == targets.gained() {
            return false;
        }
        // One that only seems to work comes again and again.
        let now_ns = self.core.media.clock.monotonic_ns();
        let ends = self.ended_for_gain_ns.is_none_or(|at_ns| now_ns.saturating_sub(at_ns) >= ENDED_FOR_GAIN_NS);
        if ends {
            self.ended_for_gain_ns = Some(now_ns);
        }
        ends
    }

    /// Ends a segment that is to go on no longer: a lane that has nothing to write must not keep it.
    pub(crate) async fn retire(&mut self) {
        if self.has_failed() {
            self.seal(SealReason::Degraded).await;
        } else if self.is_to_end() {
            self.seal(SealReason::Complete).await;
        }
    }

    /// At the end of the lane. A shard that can not be made durable any more is to be known to the next process: its segment ends now.
    pub(crate) async fn close(&mut self) {
        self.finish().await;
        if self.core.config.durability == Durability::Relaxed
            && let Some(open) = &self.open
        {
            let files = Arc::clone(&open.files);
            if self.core.sync_files(&files).await.is_ok() && self.has_failed() {
                self.seal(SealReason::Degraded).await;
            }
        }
    }

    /// Ends the open segment: what comes next is to lie in another one.
    pub(crate) async fn finish_segment(&mut self) {
        self.seal(SealReason::Complete).await;
    }

    /// Room for records without data where no segment can be opened for more.
    async fn reserve_position(&mut self, stored_bytes: u64, whole_bytes: u64, refusal: LogError) -> Position {
        if let Some(open) = &self.open {
            if open.fits_reserve(stored_bytes) {
                return Position::At(place(open));
            }
            if whole_bytes == 0 && open.is_fresh() {
                return Position::TooLarge;
            }
        }
        match self.core.open_segment(self.kind, Purpose::Reserve, whole_bytes).await {
            Ok(open) => {
                let fits = open.fits_reserve(stored_bytes);
                let at = place(&open);
                self.replace(open).await;
                if fits { Position::At(at) } else { Position::TooLarge }
            }
            Err(_) => Position::Refused(refusal),
        }
    }

    /// Goes on in a new segment; the old one is ended only now, so that it could be kept if there were no new one.
    async fn replace(&mut self, open: OpenSegment) {
        self.seal(SealReason::Complete).await;
        self.send(ApplyJob::Changed(SegmentChange::Opened((*open.segment.info()).clone()))).await;
        self.open = Some(open);
    }

    /// Writes a stripe at the position that was given for it.
    pub(crate) async fn write(&mut self, stripe: &EncodedStripe) -> Written {
        let core = &self.core;
        let files = Arc::clone(&self.open.as_ref().expect("a position was given").files);
        let start_ns = core.media.clock.monotonic_ns();
        let durable = match core.config.durability {
            // A bug on purpose, which the simulator must find (docs/TESTING.md).
            Durability::Sync if cfg!(feature = "planted-ack-before-sync") => Durable::No,
            Durability::Sync => Durable::Yes,
            Durability::Relaxed => Durable::No,
        };
        let offset = stripe.shape.stripe_offset;
        let shards: Vec<(usize, &ShardFile)> = files.healthy().collect();
        let in_a_row = if durable == Durable::No { self.write_in_a_row(&shards, stripe).await } else { None };
        let outcomes = match in_a_row {
            Some(CachedWrites::Done(outcomes)) => outcomes,
            not_done @ (None | Some(CachedWrites::Stuck { .. })) => {
                let mut before = match not_done {
                    Some(CachedWrites::Stuck { at, ended }) => Some((at, ended)),
                    _ => None,
                };
                // It has been waited for already, and the others have not.
                let stuck = before.as_ref().map(|(at, _)| shards[*at].1.target);
                let write = |(number, &(shard, file)): (usize, &(usize, &ShardFile))| {
                    let write = file.file.write_at(offset, stripe.chunks[shard].clone(), durable);
                    let write = match before.take_if(|(at, _)| *at == number) {
                        Some((_, ended)) => after(ended, write),
                        None => write,
                    };
                    (file.target, write)
                };
                let geometry = files.info.geometry;
                let is_enough = |waited, well, left: &[usize]| {
                    let are_late = waited >= OVERDUE || stuck.is_some_and(|stuck| left == [stuck]);
                    let is_acknowledged = well >= geometry.quorum() && files.well_beside(left) >= geometry.data();
                    // Or the stripe has another place to go to.
                    are_late && (is_acknowledged || self.core.can_end_without(&files, left))
                };
                let targets = &self.core.media.targets;
                targets.enough_in_time(shards.iter().enumerate().map(write), is_enough).await
            }
        };
        let core = &self.core;
        let mut written = 0;
        let mut only_space = true;
        for ((shard, _), outcome) in shards.into_iter().zip(outcomes) {
            match outcome {
                Ok(()) => {
                    written += 1;
                    core.media.metrics.stored_bytes.add(stripe.shape.written_bytes(shard) as u64);
                    if durable == Durable::Yes {
                        core.media.metrics.syncs.add(1);
                    }
                }
                Err(error) => {
                    only_space &= is_full(&error);
                    core.chunk_failed(&files, shard, &error);
                }
            }
        }
        if durable == Durable::No {
            files.unsynced_stripes.fetch_add(1, Ordering::SeqCst);
        }
        let write_us = core.elapsed_us(start_ns);
        core.media.metrics.write_us.observe(write_us);
        // Whoever takes much longer to come again than a stripe takes is better off in the next one. Of two, as one may be held up.
        let usual_us = write_us.min(std::mem::replace(&mut self.write_us, write_us));
        self.portion = match durable {
            Durable::No if write_us <= AT_ONCE_US_MAX => Portion::Half,
            Durable::Yes if usual_us >= TOGETHER_US_MIN => {
                Portion::Together(Duration::from_micros((TOGETHER_STRIPES * usual_us).min(TOGETHER_US_MAX)))
            }
            _ => Portion::All,
        };
        if written < files.info.geometry.quorum() {
            core.media.metrics.stripe_retries.add(1);
            self.seal(SealReason::Voided).await;
            return Written::Void(if only_space {
                LogError::RanOutOfSpace
            } else {
                LogError::Unavailable(format!("{written} chunks of a stripe became durable, which is too few"))
            });
        }
        let OpenSegment { segment, end, .. } = self.open.as_mut().expect("a position was given");
        debug_assert_eq!(offset, end.end_offset);
        end.stripes += 1;
        end.end_offset = stripe.shape.next_offset();
        end.written_bytes += stripe.shape.stripe_payload_bytes();
        end.min_seq = min_seq(end.min_seq, stripe.shape.min_seq);
        end.max_seq = end.max_seq.max(stripe.shape.max_seq);
        segment.wrote(*end);
        Written::Durable
    }

    /// Writes the chunks of a short stripe to the page cache, one after the other by one thread; nothing if they are better written side by side.
    async fn write_in_a_row(&mut self, shards: &[(usize, &ShardFile)], stripe: &EncodedStripe) -> Option<CachedWrites> {
        if self.side_by_side > 0 {
            self.side_by_side -= 1;
            return None;
        }
        if shards.len() < 2 || stripe.shape.stored_bytes() as usize * shards.len() > IN_A_ROW_BYTES_MAX {
            return None;
        }
        let offset = stripe.shape.stripe_offset;
        let write = |&(shard, file): &(usize, &ShardFile)| file.file.cached_write(offset, stripe.chunks[shard].clone());
        let writes = shards.iter().map(write).collect::<Option<Vec<_>>>()?;
        let start_ns = self.core.media.clock.monotonic_ns();
        let written = self.cached_writer.write_until(writes, pin!(sleep(OVERDUE))).await;
        if self.core.elapsed_us(start_ns) > IN_A_ROW_US_MAX {
            self.side_by_side = SIDE_BY_SIDE_STRIPES;
        }
        if let Ok(CachedWrites::Stuck { .. }) = &written {
            self.cached_writer = CachedWriter::new();
        }
        // After an error whatever was written is written once more, to the same place.
        written.ok()
    }

    /// Writes zeros ahead of what comes next, if stripes such as the last one, of `stored_bytes` per shard, gain by it while so many `writers` share them.
    pub(crate) fn write_ahead(&mut self, writers: usize, stored_bytes: u64) {
        let Some(open) = self.open.as_mut().filter(|open| !open.files.any_poisoned()) else { return };
        if let Some(zeros) = &mut open.zeros {
            let has_few_writers = writers <= self.core.config.prewrite_records_max;
            zeros.wrote(&self.core, has_few_writers, stored_bytes, open.end.end_offset);
        }
    }

    /// Waits until nothing is written ahead where the next `bytes` of a shard are to be.
    async fn keep_clear(&mut self, bytes: u64) {
        let Some(open) = &mut self.open else { return };
        if let Some(zeros) = &mut open.zeros {
            zeros.keep_clear(&self.core, open.end.end_offset.saturating_add(bytes)).await;
        }
    }

    /// Waits for what is still written ahead, as for a stripe: whoever opens the files next has them alone.
    pub(crate) async fn finish(&mut self) {
        self.keep_clear(u64::MAX).await;
    }

    /// Hands a durable stripe on, and ends the segment if a shard failed.
    ///
    /// The seal is on the media before the submitters are answered: so recovery, which finds no seal, knows that a stripe was
    /// acknowledged only if all its chunks were written, and never takes one that lost a chunk to a failed target for a torn one.
    pub(crate) async fn hand_over(&mut self, job: ApplyJob) {
        let ended = if self.has_failed() { self.end(SealReason::Degraded).await } else { None };
        self.send(job).await;
        if let Some(change) = ended {
            self.send(ApplyJob::Changed(change)).await;
        }
    }

    async fn send(&self, job: ApplyJob) {
        if self.applies.send(job).await.is_err() {
            self.core.poison("the index takes no more stripes".to_owned());
        }
    }

    /// Ends the open segment, if there is one, and tells the index.
    async fn seal(&mut self, reason: SealReason) {
        if let Some(change) = self.end(reason).await {
            self.send(ApplyJob::Changed(change)).await;
        }
    }

    /// Ends the open segment, if there is one; the index is to learn of it after the last stripe.
    async fn end(&mut self, reason: SealReason) -> Option<SegmentChange> {
        self.finish().await;
        let open = self.open.take()?;
        let id = open.segment.id;
        let seal = open.end;
        self.core.seal_files(&open.files, seal, reason).await;
        open.segment.seal(seal);
        self.core.writing.lock().remove(&id);
        self.core.media.metrics.segments_sealed.add(1);
        Some(SegmentChange::Sealed { id, seal })
    }
}

fn place(open: &OpenSegment) -> StripePlace {
    StripePlace { info: open.segment.info(), stripe_index: open.end.stripes, stripe_offset: open.end.end_offset }
}

/// How long a shard file is that ends with a seal.
pub(crate) fn sealed_len(seal: Seal) -> u64 {
    seal.end_offset + SEAL_BLOCK_BYTES as u64
}

/// The same of one that failed while it was written.
pub(crate) fn distrusted_len(seal: Seal) -> u64 {
    sealed_len(seal) + SEAL_BLOCK_BYTES as u64
}

/// Writes a seal durably, and gives back the room behind it. A shard that failed while it was written stays a block longer, so that the next start reads its seal, which says
/// so: what the shard shows may be in the page cache alone.
pub(crate) async fn write_seal(file: Arc<dyn DiskFile>, seal: Seal, block: Bytes, is_trusted: bool) -> io::Result<()> {
    if !is_trusted {
        // It is durable with the seal.
        let _ = file.set_len(distrusted_len(seal)).await;
    }
    file.write_at(seal.end_offset, vec![block], Durable::Yes).await?;
    if is_trusted {
        // What was preallocated and is not needed; if this fails, only space is lost until the next start.
        let _ = file.set_len(sealed_len(seal)).await;
    }
    Ok(())
}

impl Core {
    /// Whether a segment can end without the shards on these targets, and something else be written then. As many others are well as it is read from, and more than may be lost, so that
    /// one at least says how it ended; and another segment can be opened.
    pub(super) fn can_end_without(&self, files: &ShardFiles, places: &[usize]) -> bool {
        let geometry = files.info.geometry;
        files.well_beside(places) >= geometry.data().max(geometry.parity() + 1)
            && self.media.targets.others_at_work(places) >= geometry.quorum()
    }

    /// Notes that a shard of a segment that is being written failed: it is not trusted until it is built anew.
    pub(super) fn chunk_failed(&self, files: &ShardFiles, shard: usize, error: &io::Error) {
        let Some(file) = &files.shards[shard] else { return };
        file.poison();
        self.media.metrics.chunk_failures.add(1);
        self.media.targets.failed(file.target, error);
        self.media.distrust(files.info.id, shard);
        tracing::warn!(segment = %files.info.id, shard, %error, "a shard failed and is written no more");
    }

    /// Makes everything durable that was acknowledged before the call; free with [`Durability::Sync`].
    ///
    /// # Errors
    /// As [`Core::sync_files`].
    pub(crate) async fn sync_written(self: &Arc<Self>) -> Result<(), LogError> {
        if self.config.durability == Durability::Sync {
            return Ok(());
        }
        let writing: Vec<_> = self.writing.lock().values().cloned().collect();
        // Now and not before: what is written no more was synced, or the log poisoned before it was taken out.
        self.check_poison()?;
        self.sync_each(&writing).await
    }

    /// The same for what was written to some segments.
    ///
    /// # Errors
    /// As [`Core::sync_files`].
    pub(crate) async fn sync_segments(self: &Arc<Self>, segments: &[SegmentId]) -> Result<(), LogError> {
        if self.config.durability == Durability::Sync || segments.is_empty() {
            return Ok(());
        }
        let writing: Vec<_> = {
            let writing = self.writing.lock();
            segments.iter().filter_map(|segment| writing.get(segment).cloned()).collect()
        };
        // As above.
        self.check_poison()?;
        self.sync_each(&writing).await
    }

    async fn sync_each(self: &Arc<Self>, writing: &[Arc<ShardFiles>]) -> Result<(), LogError> {
        // In tasks of their own: whoever waits may go away, and of an error a system tells once.
        let tasks: Vec<_> = writing
            .iter()
            .map(|files| {
                let (core, files) = (Arc::clone(self), Arc::clone(files));
                tokio::spawn(async move { core.sync_files(&files).await })
            })
            .collect();
        let gone = |error: JoinError| {
            let why = format!("a task that syncs failed: {error}");
            // What an error of that sync was is not known: a later one may tell of none.
            if error.is_panic() {
                self.poison(why.clone());
            }
            Err(LogError::Unavailable(why))
        };
        join_all(tasks).await.into_iter().try_for_each(|outcome| outcome.unwrap_or_else(gone))
    }

    /// Makes everything durable that was written to a segment before the call.
    ///
    /// # Errors
    /// `Unavailable` when fewer than `k` shards can be trusted: the log is poisoned then, what it acknowledged may be lost by a power cut.
    pub(crate) async fn sync_files(&self, files: &ShardFiles) -> Result<(), LogError> {
        let wanted = files.unsynced_stripes.load(Ordering::SeqCst);
        let mut synced = files.synced_stripes.lock().await;
        // One who waited for another's turn may have been seen to with it, whatever was written since.
        if *synced < wanted {
            let written = files.unsynced_stripes.load(Ordering::SeqCst);
            let shards: Vec<(usize, &ShardFile)> = files.healthy().collect();
            self.media.metrics.syncs.add(shards.len() as u64);
            let syncs = shards.iter().map(|(_, file)| (file.target, file.file.sync()));
            // One that failed meanwhile is not waited for: a lane that ends the segment waits for this.
            let has_failed =
                |place: &usize| files.present().any(|(_, file)| file.target == *place && file.is_poisoned());
            let is_enough = |waited, _, left: &[usize]| {
                let are_late = waited >= SYNC_OVERDUE && self.can_end_without(files, left);
                left.iter().all(has_failed) || are_late
            };
            let outcomes = self.media.targets.enough_in_time(syncs, is_enough).await;
            for ((shard, _), outcome) in shards.into_iter().zip(outcomes) {
                if let Err(error) = outcome {
                    self.chunk_failed(files, shard, &error);
                }
            }
            *synced = written;
        }
        if files.healthy().count() < files.info.geometry.data() {
            let why = format!(
                "segment {}: too many shards failed; acknowledged writes may be lost by a power cut",
                files.info.id
            );
            self.poison(why.clone());
            return Err(LogError::Unavailable(why));
        }
        Ok(())
    }

    /// Writes the seal to every shard that is there. On a poisoned shard, too: the end is decided, and each seal on the
    /// media makes it more certain that recovery finds it; but such a one does not count, and its file says that it failed.
    async fn seal_files(&self, files: &ShardFiles, seal: Seal, reason: SealReason) {
        if self.config.durability == Durability::Relaxed && self.sync_files(files).await.is_err() {
            return;
        }
        let info = &files.info;
        // What failed of a void lies behind the end: all before it is durable, where writers wait for that.
        let is_void = reason == SealReason::Voided && self.config.durability == Durability::Sync;
        // What was given up may still come, and is not to be on top of the seal.
        let may_come =
            |(_, file): &(usize, &ShardFile)| file.is_poisoned() && self.media.targets.at(file.target).is_silent();
        let (late, others): (Vec<_>, Vec<_>) = files.present().partition(may_come);
        for (_, file) in late {
            let written =
                write_seal(Arc::clone(&file.file), seal, self.media.seal_block(info, reason, seal, false), false);
            self.media.targets.at(file.target).afterwards(async move { drop(written.await) });
        }
        let shards: Vec<_> = others.into_iter().map(|(shard, file)| (shard, file, !file.is_poisoned())).collect();
        let seals = shards.iter().map(|(_, file, trusted)| {
            let block = self.media.seal_block(info, reason, seal, *trusted || is_void);
            let written: IoFuture<()> = Box::pin(write_seal(Arc::clone(&file.file), seal, block, *trusted || is_void));
            (file.target, written)
        });
        // Of so many that count one is left, whatever is lost besides.
        let counts = |place: &usize| shards.iter().any(|(_, file, trusted)| *trusted && file.target == *place);
        let trusted = shards.iter().filter(|(.., trusted)| *trusted).count();
        let least = if reason == SealReason::Voided { info.geometry.parity() + 1 } else { info.geometry.data() };
        let is_enough = |waited, well: usize, left: &[usize]| {
            let is_silent = |place: &usize| self.media.targets.at(*place).is_silent();
            let are_late = waited >= OVERDUE || left.iter().all(is_silent);
            are_late && well.min(trusted - left.iter().filter(|place| counts(place)).count()) >= least
        };
        let outcomes = self.media.targets.enough_in_time(seals, is_enough).await;
        let mut sealed = 0;
        for ((shard, _, trusted), outcome) in shards.into_iter().zip(outcomes) {
            match outcome {
                Ok(()) if trusted => sealed += 1,
                Ok(()) if is_void => self.media.repairs.trust(RepairEntry { segment: info.id, shard: shard as u8 }),
                Ok(()) => {}
                Err(error) => self.chunk_failed(files, shard, &error),
            }
        }
        let unsealed = files.present().count() - sealed;
        if reason == SealReason::Voided && unsealed >= info.geometry.data() {
            tracing::error!(
                segment = %info.id,
                sealed,
                "the void of a stripe is on too few shards: without the index, recovery may find it complete"
            );
        }
    }
}
