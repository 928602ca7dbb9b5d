//! The store: a handle that is cheap to clone, and what all operations share.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    future::Future,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use gabion_metadata::{
    Index, IndexStats, Table, Value, keys,
    rows::{BucketRow, ObjectRow, Row, SegmentState},
};
use gabion_segment::{Committed, Log, LogMetrics, LogStatus, LogTarget, MemoryUse, NewRecord, StripeBuffer};
use gabion_types::{BucketName, Extent, ObjectKey, SegmentId, limits::INLINE_BYTES_MAX};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

use crate::{
    Env, IndexFactory, KeyKeeper, OpenReport, Owner, Progress, RebuildReport, SnapshotReport, StoreConfig, StoreError,
    VerifyReport,
    apply::Apply,
    compact::{self, Compacted, Compaction, Pace},
    free::{self, Frees},
    get::known::KnownRows,
    holdback::{Admitted, Holdback},
    holds::Holds,
    in_flight::{InFlight, Kept, MissingMd5},
    late_md5::{LateMd5, LateMd5s},
    locks::Locks,
    md5s::Md5s,
    metrics::StoreMetrics,
    mutation::Mutation,
    open,
    quotas::{Quotas, Reserved},
    snapshot, tasks,
    uncertain::{Change, Uncertain},
    upkeep,
};

/// Bytes that one permit of a memory budget stands for: budgets beyond 4 GiB then still fit tokio's counters.
pub(crate) const PERMIT_BYTES: usize = 1024;

/// Most copies that move bytes at a time; beyond it the targets are busy anyway.
const BYTE_COPIES_MAX: u64 = 16;

/// The object engine. Clones share it; when the last one is dropped, its background tasks end.
#[derive(Clone)]
pub struct Store {
    pub(crate) inner: Arc<Inner>,
}

/// What all operations share.
pub(crate) struct Inner {
    pub config: StoreConfig,
    /// What [`StoreConfig::owner`] is called.
    pub owner: OnceLock<Owner>,
    pub env: Env,
    pub index: Arc<dyn Index>,
    pub log: Log,
    pub apply: Arc<Apply>,
    pub locks: Locks,
    pub holds: Arc<Holds>,
    /// Rows that reads have decoded.
    pub known_rows: KnownRows,
    /// MD5s of the bodies that arrive, and of small ones that have arrived.
    pub md5s: Md5s,
    pub late_md5s: Arc<LateMd5s>,
    pub noted_damage: upkeep::NotedDamage,
    pub metrics: StoreMetrics,
    pub frees: Frees,
    pub scrub: upkeep::Scrub,
    pub compaction: Compaction,
    pub holdback: Arc<Holdback>,
    pub quotas: Quotas,
    /// Commits that failed in a way that may let them take effect at the next start.
    pub uncertain: Arc<Uncertain>,
    /// Who keeps the keys of encrypted objects.
    pub keys: OnceLock<Arc<dyn KeyKeeper>>,
    put_memory: Budget,
    read_memory: Budget,
    read_ahead_memory: Budget,
    /// Pages of manifests that are being read.
    pages_memory: Budget,
    /// Whatever must be finished although its request is gone.
    commits: TaskTracker,
    background: TaskTracker,
    checkpointing: tokio::sync::Mutex<()>,
    /// Held over every snapshot of the index.
    pub snapshotting: tokio::sync::Mutex<()>,
    /// Copies that move bytes, at a time. Each holds memory for reads while it waits for memory for writes, and the other way
    /// round: together they never need more than half of the former, so that none waits for another for ever.
    pub byte_copies: Semaphore,
    stop: CancellationToken,
    closed: AtomicBool,
    /// Room that the index' file system had when it was last asked, in bytes.
    index_available_bytes: AtomicU64,
    _stop_when_dropped: DropGuard,
}

/// A snapshot for the admin page.
#[derive(Clone, Debug)]
pub struct StoreStatus {
    /// The log's own.
    pub log: LogStatus,
    /// The index's own.
    pub index: IndexStats,
    /// Bytes that its file system still has room for, if it can be asked.
    pub index_available_bytes: Option<u64>,
    /// Buckets.
    pub buckets: usize,
    /// Segments that exist.
    pub segments: usize,
    /// Bytes in segments that some row needs; bytes that two rows share count twice.
    pub live_bytes: u64,
    /// Payload bytes ever written to the segments that exist.
    pub written_bytes: u64,
    /// Of these, what was given back where it lay.
    pub punched_bytes: u64,
    /// Segments of which so little is live that they are to be compacted.
    pub compaction_segments: usize,
    /// What compacting them gives back, in bytes of payload.
    pub compaction_debt_bytes: u64,
    /// Whether writers are let in only as fast as compaction makes room for them.
    pub holds_back: bool,
    /// Writers that wait for room.
    pub writers_waiting: usize,
    /// Segments in which nothing is needed and that are about to be deleted.
    pub dead_segments: usize,
    /// Segments whose files are being removed, or could not all be removed because a target is absent.
    pub freeing_segments: usize,
    /// Segments that are kept as they are because mutations that may refer to them can not be read for now; until the next start.
    pub kept_segments: usize,
    /// Uploads that are refused parts and completions until the next start, or until they are aborted, because nobody knows whether an earlier request for them took effect; 65536: of all uploads
    /// that is so.
    pub unsettled_uploads: usize,
    /// Buckets in which nothing is created until the next start, or until they are deleted again, for the same reason.
    pub unsettled_buckets: Vec<String>,
    /// How far the scrub is.
    pub scrub: upkeep::ScrubStatus,
    /// Why the store takes no writes, if it takes none.
    pub unavailable: Option<String>,
}

/// Memory that is shared by bytes: a semaphore in units of [`PERMIT_BYTES`].
pub(crate) struct Budget {
    semaphore: Arc<Semaphore>,
    permits: u32,
}

/// Most that a reader gets at once when nothing was read ahead for it, in bytes: large enough to keep a target busy, small enough that hundreds of readers who stall
/// leave room for others, and that what the page cache has goes to the socket while the processor's caches have it. A multiple of the blocks that checksums guard.
pub(crate) const NEEDED_BYTES_MAX: u32 = 512 << 10;

/// A share of a [`Budget`], given back when it is dropped.
pub(crate) type Share = OwnedSemaphorePermit;

/// Gives back what is not needed for `bytes`.
pub(crate) fn shrink(share: &mut Share, bytes: usize) {
    let spare = share.num_permits().saturating_sub(bytes.div_ceil(PERMIT_BYTES));
    drop(share.split(spare));
}

impl Budget {
    /// A budget of `bytes`, but at least `bytes_min`.
    pub(crate) fn new(bytes: u64, bytes_min: usize) -> Self {
        let permits = bytes.max(bytes_min as u64).div_ceil(PERMIT_BYTES as u64);
        let permits = u32::try_from(permits).unwrap_or(u32::MAX).min(Semaphore::MAX_PERMITS.min(1 << 28) as u32);
        Self { semaphore: Arc::new(Semaphore::new(permits as usize)), permits }
    }

    /// Waits for a share of `bytes`, or of all there is.
    async fn take(&self, bytes: usize) -> Share {
        let wanted = u32::try_from(bytes.div_ceil(PERMIT_BYTES)).unwrap_or(u32::MAX).clamp(1, self.permits);
        Arc::clone(&self.semaphore).acquire_many_owned(wanted).await.expect("the semaphore is never closed")
    }

    /// How much of it is taken.
    pub(crate) fn memory(&self, name: &'static str) -> MemoryUse {
        MemoryUse::of(name, &self.semaphore, self.permits as usize, PERMIT_BYTES)
    }

    /// What is missing to `share` for `bytes`, or for all there is, if that much is free.
    pub(crate) fn try_top_up(&self, share: Option<&Share>, bytes: usize) -> Option<Share> {
        let wanted = bytes.div_ceil(PERMIT_BYTES).min(self.permits as usize);
        let missing = wanted.saturating_sub(share.map_or(0, Share::num_permits));
        Arc::clone(&self.semaphore).try_acquire_many_owned(u32::try_from(missing).ok()?).ok()
    }

    /// A share of `bytes` if that much is free.
    fn try_take(&self, bytes: usize) -> Option<Share> {
        let wanted = u32::try_from(bytes.div_ceil(PERMIT_BYTES)).ok()?;
        Arc::clone(&self.semaphore).try_acquire_many_owned(wanted).ok()
    }
}

/// What opening puts together.
pub(crate) struct Parts {
    pub config: StoreConfig,
    pub env: Env,
    pub index: Arc<dyn Index>,
    pub log: Log,
    pub apply: Arc<Apply>,
    pub holds: Arc<Holds>,
}

impl Store {
    /// Opens (or formats) a deployment: recovers the log, replays what the index lacks, rebuilds the index when it is
    /// missing or can not be trusted, and begins to serve.
    ///
    /// # Errors
    /// `Unavailable` with a sentence for the operator when targets or index can not be used; others as they come.
    pub async fn open(
        config: StoreConfig,
        targets: Vec<LogTarget>,
        index: Box<dyn IndexFactory>,
        env: Env,
        progress: Arc<dyn Progress>,
    ) -> Result<(Store, OpenReport), StoreError> {
        open::open(config, targets, index, env, progress).await
    }

    /// Throws the index away and rebuilds it from the segments alone.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub async fn rebuild_index(
        config: StoreConfig,
        targets: Vec<LogTarget>,
        index: Box<dyn IndexFactory>,
        env: Env,
        progress: Arc<dyn Progress>,
    ) -> Result<RebuildReport, StoreError> {
        open::rebuild(config, targets, index, env, progress).await
    }

    /// Brings the present index up to date, builds another in `scratch` from the log, and compares them row by row. The present one stays as
    /// it is, whatever comes of it; the other is deleted.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub async fn verify_index(
        config: StoreConfig,
        targets: Vec<LogTarget>,
        present: Box<dyn IndexFactory>,
        scratch: Box<dyn IndexFactory>,
        env: Env,
        progress: Arc<dyn Progress>,
    ) -> Result<VerifyReport, StoreError> {
        open::verify(config, targets, present, scratch, env, progress).await
    }

    pub(crate) fn new(parts: Parts) -> Self {
        let Parts { config, env, index, log, apply, holds } = parts;
        let stop = CancellationToken::new();
        let stripe_bytes = log.stripe_payload_bytes().max(1) as u64;
        let copy_bytes = 2 * (config.read_ahead_stripes.max(1) as u64 + 2) * stripe_bytes;
        let byte_copies = (config.read_memory_bytes / copy_bytes).clamp(1, BYTE_COPIES_MAX) as usize;
        let inner = Inner {
            locks: Locks::new(config.key_locks),
            put_memory: Budget::new(config.put_memory_bytes, INLINE_BYTES_MAX),
            read_memory: Budget::new(config.read_memory_bytes / 2, NEEDED_BYTES_MAX as usize),
            read_ahead_memory: Budget::new(config.read_memory_bytes / 8 * 3, 1),
            pages_memory: Budget::new(config.read_memory_bytes / 8, 1),
            metrics: StoreMetrics::default(),
            frees: Frees::default(),
            scrub: upkeep::Scrub::default(),
            compaction: Compaction::default(),
            holdback: Arc::new(Holdback::new(Arc::clone(&apply.work().room))),
            commits: TaskTracker::new(),
            background: TaskTracker::new(),
            checkpointing: tokio::sync::Mutex::default(),
            snapshotting: tokio::sync::Mutex::default(),
            byte_copies: Semaphore::new(byte_copies),
            closed: AtomicBool::new(false),
            quotas: Quotas::default(),
            keys: OnceLock::new(),
            uncertain: Arc::default(),
            index_available_bytes: AtomicU64::new(u64::MAX),
            _stop_when_dropped: stop.clone().drop_guard(),
            config,
            owner: OnceLock::new(),
            env,
            index,
            log,
            apply,
            holds,
            known_rows: KnownRows::default(),
            md5s: Md5s::default(),
            late_md5s: Arc::default(),
            noted_damage: upkeep::NotedDamage::default(),
            stop,
        };
        Self { inner: Arc::new(inner) }
    }

    /// Begins what happens by itself.
    pub(crate) fn begin(&self) {
        let inner = &self.inner;
        inner.measure_index_room();
        // Before a checkpoint writes down what is known now.
        upkeep::resume_damage(inner);
        inner.background.spawn(tasks::checkpoints(Arc::downgrade(inner), Arc::clone(&inner.apply), inner.stop.clone()));
        inner.background.spawn(tasks::snapshots(Arc::downgrade(inner), Arc::clone(&inner.apply), inner.stop.clone()));
        let wanted = inner.log.repair_wanted();
        inner.background.spawn(upkeep::scrubs(Arc::downgrade(inner), inner.stop.clone()));
        inner.background.spawn(upkeep::repairs(Arc::downgrade(inner), wanted, inner.stop.clone()));
        inner.background.spawn(tasks::frees(Arc::downgrade(inner), Arc::clone(&inner.apply), inner.stop.clone()));
        inner.background.spawn(tasks::forgets(Arc::downgrade(inner), inner.stop.clone()));
        inner.background.spawn(tasks::rooms(Arc::downgrade(inner), Arc::clone(&inner.apply), inner.stop.clone()));
        inner.background.spawn(tasks::compactions(Arc::downgrade(inner), inner.stop.clone()));
    }

    /// The owner of what has no other.
    #[must_use]
    pub fn owner(&self) -> &Owner {
        self.inner.owner.get().unwrap_or(&self.inner.config.owner)
    }

    /// Says who [`Store::owner`] is; the first time counts. What is stored names it by [`StoreConfig::owner`] for ever, so that it may be called
    /// otherwise at the next start.
    pub fn set_owner(&self, owner: Owner) {
        // Whoever comes second finds the same deployment, and so the same owner.
        let _ = self.inner.owner.set(owner);
    }

    /// The region of buckets that are created without one.
    #[must_use]
    pub fn region(&self) -> &str {
        &self.inner.config.region
    }

    /// Takes no more requests, finishes those in flight, makes a checkpoint and lets go of the log.
    pub async fn shutdown(&self) {
        let inner = &self.inner;
        inner.closed.store(true, Ordering::Release);
        inner.commits.close();
        inner.commits.wait().await;
        inner.stop.cancel();
        inner.background.close();
        inner.background.wait().await;
        inner.log.shutdown().await;
        if let Err(error) = inner.checkpoint().await {
            tracing::warn!(%error, "the last checkpoint failed; the next start replays the log");
        }
    }

    /// Makes the index durable up to what is acknowledged now: the next start replays only what comes later. Happens by
    /// itself every checkpoint interval.
    ///
    /// # Errors
    /// `Unavailable`.
    pub async fn checkpoint(&self) -> Result<(), StoreError> {
        self.inner.checkpoint().await
    }

    /// Writes the index to the log, as fast as it goes once one that is under way is done, so that a start without it need not replay everything; nothing when there is a reason
    /// not to. Happens by itself, in its own time, when enough was written.
    ///
    /// # Errors
    /// Those of the log and the index; the snapshot before still counts.
    pub async fn snapshot_index(&self) -> Result<Option<SnapshotReport>, StoreError> {
        snapshot::write(&self.inner, Pace::Now).await.map_err(|failed| failed.error)
    }

    /// Deletes the segments in which nothing is needed; returns how many. Happens by itself when there are any.
    ///
    /// # Errors
    /// Those of the log and the index; what was not deleted is tried again later.
    pub async fn free_dead_segments(&self) -> Result<usize, StoreError> {
        free::free_dead(&self.inner).await
    }

    /// Compacts segments in which little is live, now and as fast as it goes; happens by itself, in its own time. Deletes
    /// what is dead then.
    ///
    /// # Errors
    /// `NoSpace` when there is no room to move anything; those of the log and the index. What was moved, is moved.
    pub async fn compact(&self) -> Result<Compacted, StoreError> {
        compact::round(&self.inner, Pace::Now).await
    }

    /// Offsets of the stripes that some row needs, of those of `segments` that are sealed segments of large objects and to which nothing in
    /// flight may come to refer; all stripes of the others must be taken to be needed. Reads the whole index. A stripe that is not
    /// among them may have been punched out: then it is no damage that its bytes do not match its checksums.
    ///
    /// # Errors
    /// Those of the index.
    pub async fn live_stripes(
        &self,
        segments: &HashSet<SegmentId>,
    ) -> Result<HashMap<SegmentId, BTreeSet<u64>>, StoreError> {
        compact::live_stripes(&self.inner, segments).await
    }

    /// A snapshot for the admin page.
    #[must_use]
    pub fn status(&self) -> StoreStatus {
        let inner = &self.inner;
        let log = inner.log.status();
        let closed = inner.is_closed().then(|| "the store is shut down".to_owned());
        let (compaction_segments, compaction_debt_bytes) = compact::debt(inner);
        let (unsettled_uploads, unsettled_buckets) = inner.uncertain.all();
        let mut status = StoreStatus {
            compaction_segments,
            compaction_debt_bytes,
            holds_back: inner.holdback.is_on(),
            writers_waiting: inner.holdback.waiting(),
            unavailable: closed.or_else(|| log.poisoned.clone()),
            scrub: upkeep::scrub_status(inner, log.sealed_segments + log.open_segments),
            log,
            index: inner.index.stats(),
            index_available_bytes: inner.index.available_bytes(),
            buckets: inner.apply.buckets(),
            segments: 0,
            live_bytes: 0,
            written_bytes: 0,
            punched_bytes: 0,
            dead_segments: 0,
            freeing_segments: 0,
            kept_segments: inner.apply.kept_segments(),
            unsettled_uploads,
            unsettled_buckets,
        };
        // Of segments that are only remembered nothing is left to be counted.
        let remembered = inner.log.remembered();
        inner.apply.with_segments(|segments| {
            for (_, segment) in segments.iter().filter(|(id, _)| !remembered.contains(id)) {
                status.segments += 1;
                status.live_bytes += u64::try_from(segment.row.live_bytes).unwrap_or(0);
                status.written_bytes += segment.row.written_bytes;
                status.punched_bytes += segment.row.punched_bytes.unwrap_or(0);
                status.dead_segments += usize::from(segment.is_dead());
                status.freeing_segments += usize::from(segment.row.state == SegmentState::Freeing);
            }
        });
        status
    }

    /// All budgets of memory: what is taken of each, and how much there is.
    #[must_use]
    pub fn memory(&self) -> Vec<MemoryUse> {
        let inner = &self.inner;
        let own = [
            inner.put_memory.memory("bodies"),
            inner.read_memory.memory("reads"),
            inner.read_ahead_memory.memory("reads ahead"),
            inner.pages_memory.memory("manifests"),
        ];
        own.into_iter().chain(inner.log.memory()).collect()
    }

    /// The store's own figures.
    #[must_use]
    pub fn metrics(&self) -> &StoreMetrics {
        &self.inner.metrics
    }

    /// The log's figures.
    #[must_use]
    pub fn log_metrics(&self) -> &LogMetrics {
        self.inner.log.metrics()
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Store")
    }
}

impl Inner {
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Whether work in the background may go on, as an error.
    pub(crate) fn require_open(&self) -> Result<(), StoreError> {
        if self.is_closed() {
            return Err(StoreError::Unavailable("the store is shutting down".into()));
        }
        Ok(())
    }

    /// Runs `work` to its end, also when the caller goes away.
    pub(crate) async fn run<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        self.require_open()?;
        self.commits.spawn(work).await.map_err(|error| StoreError::Internal(format!("a task failed: {error}")))?
    }

    /// As [`Inner::run`], but begins at once and hands back a handle.
    pub(crate) fn spawn<T, F>(&self, work: F) -> tokio::task::JoinHandle<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        self.commits.spawn(work)
    }

    /// Waits for a share of the memory for small bodies.
    ///
    /// # Errors
    /// `Busy` when it takes too long.
    pub(crate) async fn put_share(&self, bytes: usize) -> Result<Share, StoreError> {
        self.share_of(&self.put_memory, bytes).await
    }

    /// Waits for the memory of one stripe of a large body. Whoever waits must not keep others' waits from ending.
    ///
    /// # Errors
    /// `Busy` when it takes too long; those of the log.
    pub(crate) async fn stripe_buffer(&self) -> Result<StripeBuffer, StoreError> {
        Ok(self.no_longer_than_allowed(self.log.stripe_buffer()).await??)
    }

    /// Waits for a share of the memory for what a reader needs first.
    ///
    /// # Errors
    /// `Busy` when it takes too long.
    pub(crate) async fn first_read_share(&self, bytes: usize) -> Result<Share, StoreError> {
        self.share_of(&self.read_memory, bytes).await
    }

    /// The same, if it is there at once.
    pub(crate) fn try_read_share(&self, bytes: usize) -> Option<Share> {
        self.read_memory.try_take(bytes)
    }

    async fn share_of(&self, budget: &Budget, bytes: usize) -> Result<Share, StoreError> {
        // Mostly it is there, and no timer is made.
        match budget.try_take(bytes) {
            Some(share) => Ok(share),
            None => Box::pin(self.no_longer_than_allowed(budget.take(bytes))).await,
        }
    }

    /// Waits for a share of the memory for what readers need next; they were promised it with their first.
    pub(crate) async fn read_share(&self, bytes: usize) -> Share {
        self.read_memory.take(bytes).await
    }

    /// The outcome of a wait for memory. Others may hold it for as long as their clients are slow.
    async fn no_longer_than_allowed<T>(&self, wait: impl Future<Output = T>) -> Result<T, StoreError> {
        let longest = Duration::from_millis(self.config.memory_wait_ms);
        tokio::time::timeout(longest, wait).await.map_err(|_| {
            self.metrics.memory_refusals.add(1);
            StoreError::Busy
        })
    }

    /// Whether the index has room for more rows.
    ///
    /// # Errors
    /// `NoSpace`.
    pub(crate) fn check_index_room(&self) -> Result<(), StoreError> {
        self.check_index_available(self.config.index_reserve_bytes)
    }

    /// Whether it has enough that what can do without need not end.
    ///
    /// # Errors
    /// `NoSpace`.
    pub(crate) fn check_index_room_to_spare(&self) -> Result<(), StoreError> {
        self.check_index_available(self.config.index_reserve_bytes.saturating_mul(2))
    }

    fn check_index_available(&self, bytes: u64) -> Result<(), StoreError> {
        if self.index_available_bytes.load(Ordering::Acquire) < bytes { Err(StoreError::NoSpace) } else { Ok(()) }
    }

    /// Asks how much room the index has left. An index that could not write would take the log down with it, deletions and all.
    pub(crate) fn measure_index_room(&self) {
        let Some(available_bytes) = self.index.available_bytes() else { return };
        let reserve_bytes = self.config.index_reserve_bytes;
        let before_bytes = self.index_available_bytes.swap(available_bytes, Ordering::AcqRel);
        let is_full = available_bytes < reserve_bytes;
        if (before_bytes < reserve_bytes) != is_full {
            if is_full {
                tracing::error!(
                    available_bytes,
                    reserve_bytes,
                    "the index' file system is full: only deletions are taken"
                );
            } else {
                tracing::warn!(available_bytes, "the index' file system has room again");
            }
        }
    }

    /// What is missing to `share` of the memory for the pages of manifests that are being read, for `bytes`, if it is free. That memory is one of its own: who holds pages for
    /// long keeps nobody from going on.
    pub(crate) fn try_pages_share(&self, share: Option<&Share>, bytes: usize) -> Option<Share> {
        let missing = self.pages_memory.try_top_up(share, bytes);
        self.metrics.memory_refusals.add(u64::from(missing.is_none()));
        missing
    }

    /// A share of the memory for reading ahead, if it is free.
    pub(crate) fn read_ahead_share(&self, bytes: usize) -> Option<Share> {
        self.read_ahead_memory.try_take(bytes)
    }

    /// Whether what is not there now may be there after the next start, so that its deletion must be logged all the same: what came of a commit is unknown, or mutations could not be
    /// read that may be read again.
    pub(crate) fn is_uncertain(&self) -> bool {
        self.uncertain.is_any() || self.apply.awaits_unreadable()
    }

    /// Refuses what depends on what is not there, while mutations can not be read that may be there at the next start.
    ///
    /// # Errors
    /// `Unavailable`.
    pub(crate) fn require_complete_index(&self) -> Result<(), StoreError> {
        if self.apply.awaits_unreadable() {
            let why = "mutations can not be read for now that may say otherwise: bring back the targets that are away, or remove them, and restart";
            return Err(StoreError::Unavailable(why.to_owned()));
        }
        Ok(())
    }

    /// The outcome of a commit is unknown: it may take effect at the next start.
    pub(crate) fn note_uncertain(&self) {
        self.uncertain.note(None);
    }

    /// Commits a mutation that refers to no bytes: durable and applied when it resolves.
    pub(crate) async fn commit(&self, mutation: &Mutation) -> Result<Committed, StoreError> {
        self.commit_with(mutation, Vec::new(), 0, self.holds.hold().into()).await
    }

    /// Commits a mutation that refers to bytes that lie in the log. Its record was let in, unless it makes room.
    pub(crate) async fn commit_referring(
        &self,
        mutation: &Mutation,
        extents: &[Extent],
        admitted: Option<Admitted>,
    ) -> Result<Committed, StoreError> {
        self.commit_reserved(mutation, extents, admitted, None).await
    }

    /// The same, in room that was reserved.
    pub(crate) async fn commit_reserved(
        &self,
        mutation: &Mutation,
        extents: &[Extent],
        admitted: Option<Admitted>,
        reserved: Option<Box<Reserved>>,
    ) -> Result<Committed, StoreError> {
        let kept = Kept { _admitted: [admitted, None], reserved, ..self.keeping(extents) };
        self.commit_with(mutation, Vec::new(), 0, kept).await
    }

    /// What a commit needs that refers to bytes that lie in the log.
    pub(crate) fn keeping(&self, extents: &[Extent]) -> Kept {
        let mut hold = self.holds.hold();
        hold.add_all(extents);
        hold.into()
    }

    /// Commits a mutation with its record's data, and lets go of what is kept for it. What refers to no segment is handed to the log before anything is
    /// waited for: it is then finished without this future.
    pub(crate) fn commit_with(
        &self,
        mutation: &Mutation,
        data: Vec<Bytes>,
        data_crc64: u64,
        kept: Kept,
    ) -> impl Future<Output = Result<Committed, StoreError>> + Send + use<'_> {
        self.commit_lacking(mutation, None, data, data_crc64, kept)
    }

    /// As [`Inner::commit_with`], for a mutation that may lack the MD5 of its object's tag.
    pub(crate) fn commit_lacking(
        &self,
        mutation: &Mutation,
        md5: Option<&Arc<LateMd5>>,
        data: Vec<Bytes>,
        data_crc64: u64,
        kept: Kept,
    ) -> impl Future<Output = Result<Committed, StoreError>> + Send + use<'_> {
        let (encoded, change) = (self.encode(mutation), Change::of(mutation));
        let missing = md5.map(|md5| (Arc::clone(md5), Arc::clone(&self.late_md5s)));
        async move {
            let encoded = encoded?;
            let missing = missing.map(|(md5, all)| {
                let at = Mutation::md5_at(&encoded).expect("it is a put with an MD5");
                MissingMd5 { md5, all, at }
            });
            if !kept.hold.segments().is_empty() {
                Box::pin(self.log.sync_segments(kept.hold.segments())).await?;
            }
            let record = NewRecord { mutation: encoded.into(), data, data_crc64 };
            let in_flight = InFlight::new(kept, Arc::clone(&self.uncertain), self.commits.token());
            let in_flight = in_flight.changing(change).lacking(missing);
            Ok(self.log.commit_with(record, Box::new(in_flight)).await?)
        }
    }

    /// A mutation as a record has it, if it may be committed now.
    fn encode(&self, mutation: &Mutation) -> Result<Vec<u8>, StoreError> {
        if mutation.creates() {
            self.check_index_room()?;
        }
        let encoded = mutation.encode();
        if !Mutation::fits(&encoded) {
            return Err(StoreError::InvalidRequest("The metadata of the request is too large".into()));
        }
        Ok(encoded)
    }

    /// The row of a bucket.
    pub(crate) fn bucket(&self, bucket: &BucketName) -> Result<BucketRow, StoreError> {
        let row = self.index.get(Table::Bucket, &keys::bucket(bucket))?.ok_or(StoreError::NoSuchBucket)?;
        Ok(BucketRow::decode(&row)?)
    }

    /// Whether there is such a bucket, as an error.
    pub(crate) fn require_bucket(&self, bucket: &BucketName) -> Result<(), StoreError> {
        match self.index.get(Table::Bucket, &keys::bucket(bucket))? {
            Some(_) => Ok(()),
            None => Err(StoreError::NoSuchBucket),
        }
    }

    /// The row of a bucket that is there and may be written into, and is the one that it was `before`, if that is said: it may have been deleted since, and made again, by others perhaps, and who may write there was asked of the
    /// one before.
    pub(crate) fn same_bucket(&self, bucket: &BucketName, before: Option<&Value>) -> Result<Value, StoreError> {
        let now = self.index.get(Table::Bucket, &keys::bucket(bucket))?.ok_or(StoreError::NoSuchBucket)?;
        // As a rule they are the same bytes; compaction writes others.
        if let Some(before) = before.filter(|before| **before != now)
            && BucketRow::decode(before)?.seq != BucketRow::decode(&now)?.seq
        {
            return Err(StoreError::NoSuchBucket);
        }
        self.uncertain.require_known_bucket(bucket)?;
        Ok(now)
    }

    /// The current object under a key, if there is one.
    pub(crate) fn object(&self, bucket: &BucketName, key: &ObjectKey) -> Result<Option<ObjectRow>, StoreError> {
        let row = self.index.get(Table::Object, &keys::object(bucket, key))?;
        Ok(row.map(|row| ObjectRow::decode(&row)).transpose()?)
    }

    /// Makes the index durable; see [`Store::checkpoint`].
    pub(crate) async fn checkpoint(&self) -> Result<(), StoreError> {
        // Who finds nothing left to do must know that it is done: one at a time.
        let _one = self.checkpointing.lock().await;
        upkeep::note_damage(self);
        let Some(work) = self.apply.work().take() else { return Ok(()) };
        self.log.sync().await?;
        tasks::blocking(|| self.index.persist())?;
        work.done();
        self.metrics.checkpoints.add(1);
        Ok(())
    }
}
