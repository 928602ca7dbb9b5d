//! Compaction: what is live in segments that are mostly dead is written again elsewhere, and the segments are deleted (docs/adr/0007).
//!
//! A *round* chooses segments (its *victims*), goes once over all rows, and moves each row that refers to a victim: its bytes are read (and
//! verified, as every read is), written through lanes of their own, and the row's mutation is logged again as a move. The move is committed under
//! the row's lock, and only if the row is still what was read; what was written for a row that changed meanwhile is dead. So a newer
//! overwrite always wins, and a crash at any point leaves rows that refer to the old place or to the new one, both of which are there: victims
//! are deleted as every dead segment is, after a checkpoint, and only when no row refers to them.
//!
//! Memory is bounded by the rows in flight; nothing of a round outlives it but what it wrote.

mod by_parts;
mod choose;
mod moved;
mod pass;
mod punch;
mod relocate;
mod restripe;

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use gabion_metadata::rows::SegmentState;
use gabion_segment::Room;
use gabion_types::SegmentId;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use self::{
    by_parts::Assemblies,
    choose::{Bounds, Sealed, choose},
    moved::MovedExtents,
    punch::{Punching, punchable_bytes},
};
use crate::{
    StoreError,
    apply::{Segment, snapshot_row},
    free,
    store::Inner,
};
pub(crate) use punch::{live_stripes, note_all_holes, note_needless};

/// Unit of the memory that rows in flight take, in bytes.
const UNIT_BYTES: u64 = 1024;
/// Memory of all rows in flight, in units: 64 MiB, and so at most 256 rows of the least share.
const UNITS: u32 = 64 * 1024;
const UNITS_PER_ROW_MIN: u64 = 256;
/// Rows with large stripes that are moved at a time: each holds some stripes in memory.
const RESTRIPED_AT_ONCE: usize = 2;
/// Rounds that may leave a victim with something live before it is left alone until the next start.
const ATTEMPTS_MAX: u32 = 3;
/// How much of a segment may be live to be compacted when space is short.
const LIVE_RATIO_MAX_SHORT: f64 = 0.95;
/// How long the files of victims are waited for, so that what writers are let in for is there.
const REMOVALS_WAIT: Duration = Duration::from_secs(1);
/// Bytes that are moved between two pauses.
const PAUSE_EVERY_BYTES: u64 = 1 << 20;
/// As how many bytes a row counts at least: what a small one costs is not its bytes but the way through index and log, as a put.
const PACED_ROW_BYTES_MIN: u64 = 16 << 10;

/// What compaction remembers between rounds.
#[derive(Default)]
pub(crate) struct Compaction {
    /// One round at a time.
    run: tokio::sync::Mutex<()>,
    /// Victims that something in them was live of after a round, and how often.
    attempts: Mutex<HashMap<SegmentId, u32>>,
    punching: Punching,
    assemblies: Assemblies,
}

/// While it is held no round runs.
pub(crate) type NoRound<'a> = tokio::sync::MutexGuard<'a, ()>;

impl Compaction {
    /// Nothing while a round runs.
    pub(crate) fn try_no_round(&self) -> Option<NoRound<'_>> {
        self.run.try_lock().ok()
    }

    /// Waits for a round to end.
    pub(crate) async fn no_round(&self) -> NoRound<'_> {
        self.run.lock().await
    }
}

/// What a round did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compacted {
    /// Segments whose live part was to be moved.
    pub victims: usize,
    /// Rows that were moved.
    pub rows_moved: u64,
    /// Rows that changed while they were being moved: they are looked at again in the next round.
    pub rows_changed: u64,
    /// Rows that could not be moved.
    pub rows_failed: u64,
    /// Rows that could not be read now, because too many targets are away or fail: they are looked at again in the next round.
    pub rows_unreadable: u64,
    /// Payload that was written, in bytes: records and object bytes.
    pub moved_bytes: u64,
    /// Victims that are deleted.
    pub victims_freed: usize,
    /// Payload of dead stripes of large objects whose space was given back where they lay, in bytes.
    pub punched_bytes: u64,
}

/// How eager a round is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pace {
    /// As configured: not for little, not faster than allowed.
    Background,
    /// At once, and whatever there is.
    Now,
}

/// One round, as its moves see it.
pub(super) struct Round {
    inner: Arc<Inner>,
    victims: HashSet<SegmentId>,
    moved: MovedExtents,
    restripes: Semaphore,
    /// Bytes per second; nothing: as fast as it goes.
    bytes_per_s: Option<u64>,
    rows_moved: AtomicU64,
    rows_changed: AtomicU64,
    rows_failed: AtomicU64,
    rows_unreadable: AtomicU64,
    /// Some may turn out to be deleted.
    has_doubts: AtomicBool,
    moved_bytes: AtomicU64,
    /// Why the round can not go on.
    fatal: Mutex<Option<StoreError>>,
}

/// What became of a row.
pub(super) enum Fate {
    /// Moved, with so many bytes of records and data.
    Moved { bytes: u64 },
    /// It is not what it was any more.
    Changed,
    /// One mutation can not hold it.
    TooLarge,
    /// Nobody knows whether it is deleted.
    InDoubt,
}

/// Runs one round, if there is anything worth it.
pub(crate) async fn round(inner: &Arc<Inner>, pace: Pace) -> Result<Compacted, StoreError> {
    let _run = inner.compaction.run.lock().await;
    by_parts::end_left_overs(inner).await?;
    if inner.holdback.is_on() {
        // First what costs nothing.
        free::free_dead(inner).await?;
    }
    let Some(Plan { victims, holes, is_short }) = plan(inner, pace).await? else { return Ok(Compacted::default()) };
    inner.metrics.compactions.add(1);
    // First what costs little.
    let punched_bytes = if holes.is_empty() { 0 } else { punch::punch(inner, &holes).await? };
    if punched_bytes > 0 {
        inner.holdback.room_changed();
    }
    if victims.is_empty() {
        return Ok(Compacted { punched_bytes, ..Compacted::default() });
    }
    let is_throttled = pace == Pace::Background && !is_short && inner.config.compaction.bytes_per_s > 0;
    let victim_ids: HashSet<SegmentId> = victims.iter().map(|victim| victim.id).collect();
    let live_bytes = victims.iter().map(|victim| victim.live_bytes).sum();
    let moving = inner.begin_moving(victim_ids.clone(), live_bytes).await;
    let round = Arc::new(Round {
        inner: Arc::clone(inner),
        victims: victim_ids.clone(),
        moved: MovedExtents::default(),
        restripes: Semaphore::new(RESTRIPED_AT_ONCE),
        bytes_per_s: is_throttled.then_some(inner.config.compaction.bytes_per_s),
        rows_moved: AtomicU64::new(0),
        rows_changed: AtomicU64::new(0),
        rows_failed: AtomicU64::new(0),
        rows_unreadable: AtomicU64::new(0),
        has_doubts: AtomicBool::new(false),
        moved_bytes: AtomicU64::new(0),
        fatal: Mutex::new(None),
    });
    let budget = Arc::new(Semaphore::new(UNITS as usize));
    let passed = pass::over_rows(&round, &budget).await;
    // When all shares are back, all moves are done.
    let _all = budget.acquire_many(UNITS).await.expect("the semaphore is never closed");
    if let Some(error) = round.fatal.lock().take() {
        return Err(error);
    }
    passed?;
    free::free_dead(inner).await?;
    if moving.is_waited_for() {
        inner.frees.wait_for_removals(&victim_ids, REMOVALS_WAIT).await;
    }
    drop(moving);
    let is_freed = |victim: &&Sealed| {
        inner.apply.with_segments(|segments| {
            segments.get(victim.id).is_none_or(|segment| segment.row.state == SegmentState::Freeing)
        })
    };
    let victims_freed = victims.iter().filter(is_freed).count();
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    // What targets that are away keep from moving is no fault of the segments.
    if count(&round.rows_unreadable) == 0 {
        inner.compaction.note(inner, &round.victims);
    }
    Ok(Compacted {
        victims: victims.len(),
        rows_moved: count(&round.rows_moved),
        rows_changed: count(&round.rows_changed),
        rows_failed: count(&round.rows_failed),
        rows_unreadable: count(&round.rows_unreadable),
        moved_bytes: count(&round.moved_bytes),
        victims_freed,
        punched_bytes,
    })
}

/// Sealed segments that a round may choose from, and what there is to gain, in bytes.
pub(crate) fn debt(inner: &Inner) -> (usize, u64) {
    let ratio = inner.config.compaction.live_ratio_max;
    let debt: Vec<Sealed> = sealed(inner).into_iter().filter(|segment| segment.is_debt(ratio)).collect();
    let holes = holes(inner, false);
    (debt.len() + holes.len(), debt.iter().map(Sealed::garbage_bytes).sum::<u64>() + holes.values().sum::<u64>())
}

/// What a round is to do.
struct Plan {
    victims: Vec<Sealed>,
    /// Segments of large objects with dead stripes to be punched out.
    holes: HashSet<SegmentId>,
    /// Whether space is short.
    is_short: bool,
}

/// What a round is to do; nothing when it is not worth it.
async fn plan(inner: &Inner, pace: Pace) -> Result<Option<Plan>, StoreError> {
    let room = inner.room(0).await;
    let victims = choose_victims(inner, pace, &room)?;
    let holes = holes(inner, room.is_short);
    let garbage = victims.iter().map(Sealed::garbage_bytes).sum::<u64>() + holes.values().sum::<u64>();
    // A round reads the whole index once.
    let is_worth = pace == Pace::Now || room.is_short || garbage >= inner.index.stats().disk_bytes;
    let holes: HashSet<SegmentId> = holes.into_keys().collect();
    let is_empty = victims.is_empty() && holes.is_empty();
    Ok((is_worth && !is_empty).then_some(Plan { victims, holes, is_short: room.is_short }))
}

/// The segments that a round is to compact.
fn choose_victims(inner: &Inner, pace: Pace, room: &Room) -> Result<Vec<Sealed>, StoreError> {
    let config = &inner.config.compaction;
    let live_ratio_max =
        if room.is_short { config.live_ratio_max.max(LIVE_RATIO_MAX_SHORT) } else { config.live_ratio_max };
    // What is moved too early is moved once more. Holes are not counted on: whoever reads beside them keeps them from being punched.
    let enough_bytes = (pace == Pace::Background && room.is_short).then_some(room.lacking_bytes);
    // What is moved must find room before anything is given back; half of it, as others write, too.
    let live_bytes_max = config.round_bytes_max.min(room.moved_bytes / 2);
    let bounds = Bounds { live_ratio_max, live_bytes_max, enough_bytes };
    let mut choosable = sealed(inner);
    // They hold nothing else, and die as a whole with the next one.
    if let Some(snapshot) = snapshot_row(&*inner.index.snapshot())? {
        let kept: HashSet<SegmentId> = snapshot.extents.iter().map(|extent| extent.segment).collect();
        choosable.retain(|segment| !kept.contains(&segment.id));
    }
    Ok(choose(choosable, bounds))
}

/// Whether room can be made: by what is dead, or by a round of compaction.
pub(crate) fn has_gain(inner: &Inner, room: &Room) -> bool {
    let has_victims = || choose_victims(inner, Pace::Background, room).is_ok_and(|victims| !victims.is_empty());
    free::has_dead(inner) || !holes(inner, room.is_short).is_empty() || has_victims()
}

/// Segments with dead stripes to be punched out, and their payload in bytes.
fn holes(inner: &Inner, is_short: bool) -> HashMap<SegmentId, u64> {
    if !inner.compaction.punching.is_on(inner) {
        return HashMap::new();
    }
    let now_ms = inner.env.clock.now_ms();
    let bytes = |id, segment: &Segment| match segment.row.state {
        SegmentState::Sealed if !inner.compaction.punching.rests(id, now_ms, is_short) => {
            punchable_bytes(inner, segment, is_short) + inner.compaction.punching.due_bytes(id, now_ms, is_short)
        }
        _ => 0,
    };
    inner.apply.with_segments(|segments| {
        let punchable = segments
            .iter()
            .filter(|(id, segment)| !inner.apply.is_kept(*id) && inner.holds.is_free(*id, segment.sealed_epoch))
            .map(|(id, segment)| (id, bytes(id, segment)));
        punchable.filter(|(_, bytes)| *bytes > 0).collect()
    })
}

fn sealed(inner: &Inner) -> Vec<Sealed> {
    let now_ms = inner.env.clock.now_ms();
    let attempts = inner.compaction.attempts.lock();
    // What holes can be punched in is not worth moving.
    let punches = inner.compaction.punching.is_on(inner);
    let is_punched = |segment: &Segment| punches && punch::is_punched(segment);
    inner.apply.with_segments(|segments| {
        let choosable = segments.iter().filter(|(id, segment)| {
            segment.row.state == SegmentState::Sealed
                && segment.row.live_bytes > 0
                && !inner.apply.is_kept(*id)
                // What is written and not committed yet looks dead. It could not be moved, and would keep what is.
                && inner.holds.is_free(*id, segment.sealed_epoch)
                && attempts.get(id).is_none_or(|&attempts| attempts < ATTEMPTS_MAX)
                && !is_punched(segment)
        });
        choosable
            .map(|(id, segment)| Sealed {
                id,
                live_bytes: segment.row.live_bytes.unsigned_abs(),
                written_bytes: segment.row.written_bytes,
                age_ms: now_ms.saturating_sub(segment.row.max_seq.millis()),
            })
            .collect()
    })
}

impl Compaction {
    /// Remembers the victims in which something is live still, and forgets those that are gone.
    fn note(&self, inner: &Inner, victims: &HashSet<SegmentId>) {
        let mut attempts = self.attempts.lock();
        inner.apply.with_segments(|segments| {
            attempts.retain(|id, _| segments.get(*id).is_some());
            for &id in victims {
                if segments.get(id).is_some_and(|segment| segment.row.live_bytes > 0) {
                    *attempts.entry(id).or_default() += 1;
                }
            }
        });
    }
}

impl Round {
    /// Whether to stop: the store is closed, or a move failed in a way that others will, too.
    fn check(&self) -> Result<(), StoreError> {
        if self.inner.is_closed() {
            return Err(StoreError::Unavailable("the store is shutting down".into()));
        }
        if self.fatal.lock().is_some() {
            return Err(StoreError::Internal("a move failed".into()));
        }
        Ok(())
    }

    /// Counts what became of a row.
    fn note(&self, row: &dyn std::fmt::Debug, outcome: Result<Fate, StoreError>) {
        let metrics = &self.inner.metrics;
        match outcome {
            Ok(Fate::Moved { bytes }) => {
                self.rows_moved.fetch_add(1, Ordering::Relaxed);
                self.moved_bytes.fetch_add(bytes, Ordering::Relaxed);
                metrics.compaction_rows_moved.add(1);
                metrics.compaction_moved_bytes.add(bytes);
            }
            Ok(Fate::Changed) => {
                self.rows_changed.fetch_add(1, Ordering::Relaxed);
                metrics.compaction_rows_changed.add(1);
            }
            Ok(Fate::TooLarge) => self.failed(row, "it does not fit into one mutation"),
            Ok(Fate::InDoubt) => {
                self.count_failed();
                if !self.has_doubts.swap(true, Ordering::Relaxed) {
                    tracing::warn!(
                        ?row,
                        "rows can not be moved that may turn out to be deleted when the server is restarted"
                    );
                }
            }
            // What one row's bytes suffer from says nothing of the others.
            Err(StoreError::Corrupt(why)) => self.failed(row, &why),
            Err(StoreError::Unreadable(why)) => {
                // One warning is enough: as a rule it is the same for all.
                if self.rows_unreadable.fetch_add(1, Ordering::Relaxed) == 0 {
                    tracing::warn!(?row, why, "rows can not be moved for now");
                }
            }
            Err(error) => {
                self.fatal.lock().get_or_insert(error);
            }
        }
    }

    fn count_failed(&self) {
        self.rows_failed.fetch_add(1, Ordering::Relaxed);
        self.inner.metrics.compaction_rows_failed.add(1);
    }

    fn failed(&self, row: &dyn std::fmt::Debug, why: &str) {
        self.count_failed();
        tracing::warn!(?row, why, "a row can not be moved; its segment stays");
    }

    /// Waits as long as `bytes` take at the allowed speed.
    async fn pause(&self, bytes: u64) {
        if let Some(bytes_per_s) = self.bytes_per_s {
            let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(bytes_per_s);
            let pause = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
            self.inner.holdback.pause(pause).await;
        }
    }
}
