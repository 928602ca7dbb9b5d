//! Where submitters meet the lanes: small records gather until a stripe is worth it, a full queue refuses what comes.

use std::sync::Arc;

use bytes::Bytes;
use gabion_types::{Extent, Seq};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;

use super::apply::{APPLY_QUEUE_STRIPES, run_applies};
use super::encode::LargePayload;
use super::large::{PendingStripe, run_large_lane};
use super::open::Purpose;
use super::small::{PendingRecord, run_small_lane};
use crate::applier::{Applier, Committed, Companion, RecordBody};
use crate::config::{Durability, LogConfig};
use crate::core::Core;
use crate::error::LogError;
use crate::format::record_bytes;
use crate::format::{align, chunk_header_bytes};
use crate::queue::{GATHER_BYTES, GATHER_ITEMS, Queue, Refusal};
use crate::segment_info::LaneKind;
use crate::status::{LaneStatus, MemoryUse};
use crate::stripe_buffer::StripeBuffer;

/// Stripes that there is memory for beside that of uploads: one that is filled while the other is written.
const OWN_STRIPES: usize = 2;
/// Unit of the stripe memory budget: a semaphore counts in 32 bits.
const BUDGET_UNIT_BYTES: usize = 64 * 1024;

/// The queues of all lanes, and the memory that large stripes may take.
pub(crate) struct Lanes {
    small: Vec<Arc<Queue<PendingRecord>>>,
    large: Vec<Arc<Queue<PendingStripe>>>,
    /// What compaction moves goes through lanes of its own: it lies apart from what is new and may die soon, and takes room that new
    /// data may not.
    moved_small: Arc<Queue<PendingRecord>>,
    moved_large: Arc<Queue<PendingStripe>>,
    /// Runs of stripes that die as a whole have segments of their own: nothing else is kept by them, and they by nothing else.
    apart: Arc<Queue<PendingStripe>>,
    budget: Arc<Semaphore>,
    budget_units: usize,
    /// Memory of a few stripes that no upload takes: slow ones may have all the other for as long as they like, and what gives space back goes on.
    own_budget: Arc<Semaphore>,
    own_budget_units: usize,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

/// A record to be queued.
pub(crate) struct Submission {
    pub(crate) body: RecordBody,
    pub(crate) carried: Option<Seq>,
    pub(crate) data: Vec<Bytes>,
    pub(crate) data_bytes: usize,
    pub(crate) data_crc64: u64,
}

/// A record that a lane has.
pub(crate) struct Queued(oneshot::Receiver<Result<Committed, LogError>>);

impl Queued {
    /// Waits until it is durable and applied.
    pub(crate) async fn outcome(self, core: &Core) -> Result<Committed, LogError> {
        self.0.await.unwrap_or_else(|_| Err(gone(core)))
    }
}

impl Lanes {
    pub(crate) fn new(config: &LogConfig) -> Self {
        let small = || Arc::new(Queue::new(config.queue_records_max, config.queue_bytes_max));
        // What waits here is bounded by the budget already.
        let large = || Arc::new(Queue::new(usize::MAX, usize::MAX));
        let units = (config.stripe_memory_bytes / BUDGET_UNIT_BYTES as u64).min(Semaphore::MAX_PERMITS as u64) as usize;
        let own_units = OWN_STRIPES * stripe_units(config) as usize;
        Self {
            small: (0..small_lanes(config)).map(|_| small()).collect(),
            large: (0..config.large_lanes).map(|_| large()).collect(),
            moved_small: small(),
            moved_large: large(),
            apart: large(),
            budget: Arc::new(Semaphore::new(units)),
            budget_units: units,
            own_budget: Arc::new(Semaphore::new(own_units)),
            own_budget_units: own_units,
            tasks: Mutex::default(),
        }
    }

    /// Starts a task per lane and one for what it applies.
    pub(crate) fn start(&self, core: &Arc<Core>, applier: &Arc<dyn Applier>) {
        let mut tasks = self.tasks.lock();
        let mut applies = || {
            let (sender, receiver) = mpsc::channel(APPLY_QUEUE_STRIPES);
            tasks.push(tokio::spawn(run_applies(Arc::clone(core), Arc::clone(applier), receiver)));
            sender
        };
        let small = self.small.iter().map(|queue| (queue, Purpose::Data)).chain([(&self.moved_small, Purpose::Moved)]);
        let small: Vec<_> = small.map(|(queue, purpose)| (Arc::clone(queue), purpose, applies())).collect();
        let large = self.large.iter().map(|queue| (queue, Purpose::Data));
        let large = large.chain([(&self.moved_large, Purpose::Moved), (&self.apart, Purpose::Apart)]);
        let large: Vec<_> = large.map(|(queue, purpose)| (Arc::clone(queue), purpose, applies())).collect();
        for (queue, purpose, applies) in small {
            tasks.push(tokio::spawn(run_small_lane(Arc::clone(core), queue, purpose, applies)));
        }
        for (queue, purpose, applies) in large {
            tasks.push(tokio::spawn(run_large_lane(Arc::clone(core), queue, purpose, applies)));
        }
    }

    /// Queues a record to be committed.
    pub(crate) fn commit(
        &self,
        core: &Core,
        purpose: Purpose,
        submission: Submission,
        companion: Option<Box<dyn Companion>>,
    ) -> Result<Queued, LogError> {
        let lane = match purpose {
            Purpose::Moved => &*self.moved_small,
            Purpose::Data | Purpose::Reserve | Purpose::Apart => gathering(core, &self.small),
        };
        submit(core, lane, submission, companion)
    }

    /// Commits records without data through one lane, in order; returns when all are durable and applied.
    pub(crate) async fn commit_dataless(
        &self,
        core: &Core,
        records: impl Iterator<Item = (RecordBody, Option<Seq>)>,
    ) -> Result<Vec<Committed>, LogError> {
        let lane = gathering(core, &self.small);
        let answers = records
            .map(|(body, carried)| {
                let submission = Submission { body, carried, data: Vec::new(), data_bytes: 0, data_crc64: 0 };
                submit(core, lane, submission, None)
            })
            .collect::<Vec<_>>();
        // All are waited for, whatever becomes of the first.
        let mut outcomes = Vec::with_capacity(answers.len());
        for answer in answers {
            outcomes.push(match answer {
                Ok(queued) => queued.outcome(core).await,
                Err(error) => Err(error),
            });
        }
        outcomes.into_iter().collect()
    }

    /// Writes one stripe of a large object; with the last one of a run the segment ends.
    pub(crate) async fn append(
        &self,
        core: &Core,
        purpose: Purpose,
        payload: LargePayload,
        ends_segment: bool,
    ) -> Result<Extent, LogError> {
        core.check_poison()?;
        let (answer, answered) = oneshot::channel();
        let bytes = payload.cells.len;
        let lane = match purpose {
            Purpose::Moved => &*self.moved_large,
            Purpose::Data | Purpose::Reserve => shortest(&self.large),
            Purpose::Apart => &*self.apart,
        };
        lane.push(PendingStripe { payload, ends_segment, answer }, bytes).map_err(|_| gone(core))?;
        answered.await.unwrap_or_else(|_| Err(gone(core)))
    }

    /// An empty stripe buffer, when the budget has room.
    pub(crate) async fn stripe_buffer(&self, core: &Core) -> Result<StripeBuffer, LogError> {
        stripe_buffer_of(&self.budget, core).await
    }

    /// The same, if it has room now.
    pub(crate) fn try_stripe_buffer(&self, core: &Core) -> Option<StripeBuffer> {
        let permit = Arc::clone(&self.budget).try_acquire_many_owned(stripe_units(&core.config)).ok()?;
        Some(empty_stripe(core, permit))
    }

    /// The same for what the log's user does by itself: out of the budget if it has room now, else when there is room beside it.
    pub(crate) async fn own_stripe_buffer(&self, core: &Core) -> Result<StripeBuffer, LogError> {
        match self.try_stripe_buffer(core) {
            Some(buffer) => Ok(buffer),
            None => stripe_buffer_of(&self.own_budget, core).await,
        }
    }

    /// Takes no more; what waits is still written.
    pub(crate) fn close(&self) {
        self.budget.close();
        self.own_budget.close();
        self.small.iter().chain([&self.moved_small]).for_each(|queue| queue.close());
        self.large.iter().chain([&self.moved_large, &self.apart]).for_each(|queue| queue.close());
    }

    /// Wakes lanes, if one writes a segment that lacks a shard, which is to end when a target has come, or of which one has failed.
    pub(crate) fn look_again_if_short(&self, core: &Core) {
        let is_short = core.writing.lock().values().any(|files| files.lack_some() || files.any_poisoned());
        if is_short {
            self.look_again();
        }
    }

    /// Wakes the lanes: a target that they write to may be about to leave.
    pub(crate) fn look_again(&self) {
        self.small.iter().chain([&self.moved_small]).for_each(|queue| queue.wake());
        self.large.iter().chain([&self.moved_large, &self.apart]).for_each(|queue| queue.wake());
    }

    /// Waits until all that was queued is answered.
    pub(crate) async fn finished(&self) {
        let tasks = std::mem::take(&mut *self.tasks.lock());
        for task in tasks {
            // A task that panicked has poisoned the log and said so.
            let _ = task.await;
        }
    }

    /// The memory for large stripes at this moment.
    pub(crate) fn memory(&self) -> MemoryUse {
        let of_uploads = MemoryUse::of("stripes", &self.budget, self.budget_units, BUDGET_UNIT_BYTES);
        let own = MemoryUse::of("stripes", &self.own_budget, self.own_budget_units, BUDGET_UNIT_BYTES);
        MemoryUse {
            used_bytes: of_uploads.used_bytes + own.used_bytes,
            limit_bytes: of_uploads.limit_bytes + own.limit_bytes,
            ..of_uploads
        }
    }

    pub(crate) fn status(&self) -> Vec<LaneStatus> {
        let lane = |kind, depth: crate::queue::Depth| LaneStatus {
            kind,
            queued: depth.items,
            queued_bytes: depth.bytes,
            in_flight: depth.in_flight,
        };
        let small = self.small.iter().chain([&self.moved_small]);
        let small = small.map(|queue| lane(LaneKind::Small, queue.depth()));
        let large = self.large.iter().chain([&self.moved_large, &self.apart]);
        let large = large.map(|queue| lane(LaneKind::Large, queue.depth()));
        small.chain(large).collect()
    }
}

/// What a stripe takes of the budget: it is of whole chunks, parity included.
fn stripe_units(config: &LogConfig) -> u32 {
    let geometry = config.geometry;
    let chunk_bytes = config.stripe_payload_bytes / geometry.data();
    (chunk_bytes * geometry.shards()).div_ceil(BUDGET_UNIT_BYTES) as u32
}

/// An empty stripe buffer, when `budget` has room.
async fn stripe_buffer_of(budget: &Arc<Semaphore>, core: &Core) -> Result<StripeBuffer, LogError> {
    let permit = Arc::clone(budget).acquire_many_owned(stripe_units(&core.config)).await.map_err(|_| gone(core))?;
    Ok(empty_stripe(core, permit))
}

fn empty_stripe(core: &Core, permit: OwnedSemaphorePermit) -> StripeBuffer {
    let geometry = core.config.geometry;
    let chunk_bytes = core.config.stripe_payload_bytes / geometry.data();
    let front_bytes = chunk_header_bytes(geometry.data(), chunk_bytes);
    let stored_bytes = align(front_bytes + chunk_bytes);
    let chunk = || core.buffers.take(stored_bytes).fill_behind(front_bytes);
    let chunks = (0..geometry.data()).map(|_| chunk()).collect();
    StripeBuffer::new(chunks, front_bytes, core.config.stripe_payload_bytes, permit)
}

/// Lanes of small records. With relaxed durability there is one: a power cut then takes the last of its records and leaves all before them, so that
/// none survives one that it follows from, such as an object its bucket.
fn small_lanes(config: &LogConfig) -> usize {
    match config.durability {
        Durability::Sync => config.small_lanes,
        Durability::Relaxed => 1,
    }
}

/// The first lane whose next stripe has room, or else the one with the least to do: records that gather in one lane make fewer
/// and fuller stripes, and so fewer syncs and less padding; another lane only helps when there is more than a stripe's worth.
fn gathering<'a>(core: &Core, queues: &'a [Arc<Queue<PendingRecord>>]) -> &'a Queue<PendingRecord> {
    let records = GATHER_ITEMS.min(core.config.queue_records_max);
    let has_room = |queue: &&Arc<Queue<PendingRecord>>| {
        let depth = queue.depth();
        depth.items < records && depth.bytes < GATHER_BYTES
    };
    match queues.iter().find(has_room) {
        Some(queue) => queue,
        None => shortest(queues),
    }
}

fn shortest<T>(queues: &[Arc<Queue<T>>]) -> &Queue<T> {
    let load = |queue: &&Arc<Queue<T>>| {
        let depth = queue.depth();
        depth.items + depth.in_flight
    };
    queues.iter().min_by_key(load).expect("there is at least one lane")
}

fn submit(
    core: &Core,
    lane: &Queue<PendingRecord>,
    submission: Submission,
    companion: Option<Box<dyn Companion>>,
) -> Result<Queued, LogError> {
    let Submission { body, carried, data, data_bytes, data_crc64 } = submission;
    let (answer, answered) = oneshot::channel();
    let body_bytes = match &body {
        RecordBody::Mutation(mutation) => mutation.len(),
        RecordBody::Freed(_) => 16,
    };
    let bytes = record_bytes(body_bytes, 1) + data_bytes;
    let pending = PendingRecord { body, carried, data, data_bytes, data_crc64, answer, companion };
    let pushed = match core.check_poison() {
        Ok(()) => lane.push(pending, bytes).map_err(|(pending, refusal)| match refusal {
            Refusal::Full => {
                core.media.metrics.busy_refusals.add(1);
                (pending, LogError::Busy)
            }
            Refusal::Closed => (pending, gone(core)),
        }),
        Err(error) => Err((pending, error)),
    };
    pushed.map(|()| Queued(answered)).map_err(|(pending, error)| {
        pending.answer(Err(error.clone()));
        error
    })
}

fn gone(core: &Core) -> LogError {
    LogError::Unavailable(core.poisoned().unwrap_or("the log was shut down").to_owned())
}
