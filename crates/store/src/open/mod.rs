//! Opening: index, log, and what it takes to make one match the other.

mod merge;
mod replay;
mod system;
mod verify;

pub(crate) use system::{DAMAGE_ROW, REBALANCE_ROW, SCRUB_ROW, State, forget};
pub(crate) use verify::verify;

use std::sync::Arc;

use gabion_metadata::{
    Index, IndexError, Pages, ScanRange, Table,
    rows::{SegmentRow, SegmentState},
};
use gabion_segment::{Log, LogConfig, LogError, LogTarget, Recovery, UnreadableSegment};
use gabion_types::SegmentId;

use crate::{
    Env, IndexFactory, OpenReport, Progress, RebuildReport, Store, StoreConfig, StoreError,
    apply::Apply,
    compact::note_all_holes,
    holds::Holds,
    snapshot::{self, Restored},
    store::Parts,
};

/// How often opening is tried again, with an index that was thrown away or restored, before it gives up: twice should do.
const ATTEMPTS_MAX: usize = 4;
/// Bytes of segments of records that are looked through for a snapshot in any case: seconds.
const SNAPSHOT_LOOKED_THROUGH_MIN: u64 = 1 << 30;
/// Why an index is rebuilt that is not there.
const NO_INDEX: &str = "there was none";
/// Rows that one scan returns at most.
const PAGE_ROWS: usize = 4096;

/// Opens everything; see [`Store::open`].
pub(crate) async fn open(
    config: StoreConfig,
    targets: Vec<LogTarget>,
    factory: Box<dyn IndexFactory>,
    env: Env,
    progress: Arc<dyn Progress>,
) -> Result<(Store, OpenReport), StoreError> {
    let (opened, report) = open_index(&config, &targets, &*factory, &env, &*progress).await?;
    let Opened { index, log, apply, holds, .. } = opened;
    log.set_liveness(Arc::clone(&apply) as Arc<dyn gabion_segment::Liveness>);
    log.start(Arc::clone(&apply) as Arc<dyn gabion_segment::Applier>);
    let store = Store::new(Parts { config, env, index, log, apply, holds });
    if system::are_holes_unknown(&*store.inner.index)? {
        // Before anybody checks or repairs. What is not noted now is with the next start, or when it can not be repaired.
        tracing::info!("which stripes of large objects nothing needs is looked for, as the index was made anew");
        match note_all_holes(&store.inner).await {
            Ok(false) => {}
            Ok(true) => store.inner.apply.replay(&[], |overlay| {
                system::holes_are_known(overlay);
                Ok(())
            })?,
            Err(error) => {
                tracing::warn!(%error, "which stripes nothing needs is not known: their holes may be taken for damage");
            }
        }
    }
    store.begin();
    Ok((store, report))
}

/// Opens index and log and makes the index what the log says; nothing is started yet.
async fn open_index(
    config: &StoreConfig,
    targets: &[LogTarget],
    factory: &dyn IndexFactory,
    env: &Env,
    progress: &dyn Progress,
) -> Result<(Opened, OpenReport), StoreError> {
    let (mut distrust, mut rows_restored, mut may_restore) = (None, 0, config.index_snapshot_restore);
    for _ in 0..=ATTEMPTS_MAX {
        if let Some(reason) = distrust.as_ref().filter(|_| rows_restored == 0) {
            tracing::warn!(%reason, "the index is thrown away and rebuilt from the segments");
            factory.destroy().map_err(|error| startup(&error))?;
        }
        let opened = match attempt(config, targets, factory, env).await? {
            Attempt::Opened(opened) => opened,
            Attempt::Distrusted(reason) => {
                (distrust, rows_restored) = (Some(reason), 0);
                continue;
            }
        };
        if opened.is_lost() && may_restore {
            // Once: what was no good will be no better.
            may_restore = false;
            match opened.restore(config, progress).await? {
                Restored::Nothing => {}
                Restored::Rows(rows) => {
                    rows_restored = rows;
                    distrust.get_or_insert_with(|| NO_INDEX.into());
                    continue;
                }
                Restored::Broken(reason) => {
                    distrust = Some(reason);
                    continue;
                }
            }
        }
        return catch_up(*opened, Rebuilt { distrust, rows_restored }, progress).await;
    }
    Err(StoreError::Unavailable(format!("the index can not be rebuilt: {}", distrust.unwrap_or_default())))
}

/// Throws the index away and opens; see [`Store::rebuild_index`].
pub(crate) async fn rebuild(
    config: StoreConfig,
    targets: Vec<LogTarget>,
    factory: Box<dyn IndexFactory>,
    env: Env,
    progress: Arc<dyn Progress>,
) -> Result<RebuildReport, StoreError> {
    factory.destroy().map_err(|error| startup(&error))?;
    let (store, mut open) = open(config, targets, factory, env, progress).await?;
    open.index_rebuilt.get_or_insert_with(|| "asked for".into());
    let index = &*store.inner.index;
    let (buckets, objects) = (count(index, Table::Bucket)?, count(index, Table::Object)?);
    store.shutdown().await;
    Ok(RebuildReport { open, buckets, objects })
}

enum Attempt {
    Opened(Box<Opened>),
    /// The index can not be trusted, and why.
    Distrusted(String),
}

struct Opened {
    index: Arc<dyn Index>,
    log: Log,
    apply: Arc<Apply>,
    holds: Arc<Holds>,
    recovery: Recovery,
    state: system::State,
}

impl Opened {
    /// Whether the log has an index that is not here.
    fn is_lost(&self) -> bool {
        self.state.deployment.is_none() && !self.recovery.segments.is_empty()
    }

    /// Fills the index from its newest snapshot in the log.
    async fn restore(&self, config: &StoreConfig, progress: &dyn Progress) -> Result<Restored, StoreError> {
        let looked_through_min = config.index_snapshot_bytes.saturating_mul(2).max(SNAPSHOT_LOOKED_THROUGH_MIN);
        snapshot::restore(&self.log, &*self.index, &self.recovery, looked_through_min, progress).await
    }
}

/// How the index came to be, if it was not there or not as it should be.
struct Rebuilt {
    distrust: Option<String>,
    rows_restored: u64,
}

async fn attempt(
    config: &StoreConfig,
    targets: &[LogTarget],
    factory: &dyn IndexFactory,
    env: &Env,
) -> Result<Attempt, StoreError> {
    let index = match factory.open().and_then(|index| index.check().map(|()| index)) {
        Ok(index) => index,
        Err(IndexError::Corrupt(reason)) => return Ok(Attempt::Distrusted(reason)),
        Err(error) => return Err(startup(&error)),
    };
    let state = match system::State::load(&*index)? {
        Ok(state) => state,
        Err(reason) => return Ok(Attempt::Distrusted(reason)),
    };
    let holds = Arc::new(Holds::default());
    let apply = match Apply::load(Arc::clone(&index), Arc::clone(&holds), config.checkpoint_bytes) {
        Ok(apply) => Arc::new(apply),
        Err(error @ StoreError::Corrupt(_)) => return Ok(Attempt::Distrusted(error.to_string())),
        Err(error) => return Err(error),
    };
    let known = apply.with_segments(|segments| segments.known());
    let log_env = gabion_segment::Env { clock: Arc::clone(&env.clock), entropy: Arc::clone(&env.entropy) };
    // Drives that are not mounted look like new ones, and those of another deployment are no reason to throw the index away.
    let expected_deployment = state.deployment.or(config.log.expected_deployment);
    let forgotten = state.forgotten.iter().copied().collect();
    let log_config = LogConfig { expected_deployment, forgotten, ..config.log.clone() };
    let opened = Log::open(log_config, targets.to_vec(), known, log_env).await;
    let (log, recovery) = match opened {
        Ok(opened) => opened,
        Err(error @ (LogError::IndexAhead { .. } | LogError::IndexBehind { .. })) => {
            return Ok(Attempt::Distrusted(error.to_string()));
        }
        Err(error) => return Err(startup(&error)),
    };
    let returned = recovery.segments.iter().find(|segment| state.unreadable.contains(&segment.info.id));
    if let Some(segment) = returned {
        let id = segment.info.id;
        return Ok(Attempt::Distrusted(format!("segment {id} can be read again, which the index was built without")));
    }
    if state.replaying.is_some_and(|until| recovery.max_seq > until) {
        // Nothing is written to the log before a replay is done.
        return Ok(Attempt::Distrusted(
            "it is an old copy, of the time when it was brought up to date with an older log".into(),
        ));
    }
    if let Some(id) = outlived(&apply, &recovery) {
        // What took its rows away may be gone, too: a replay would not notice.
        return Ok(Attempt::Distrusted(format!("it is an old copy: segment {id}, which it needs, was freed since")));
    }
    Ok(Attempt::Opened(Box::new(Opened { index, log, apply, holds, recovery, state })))
}

/// A segment that was freed although the index needs it. An index that only lost its last commits has none: before a segment is freed, it is
/// made durable that nothing in it is needed (docs/adr/0004).
///
/// That it was freed is in the log, but not for ever. Where there are several shards of it and none is left on any target it was freed, too: no
/// accident takes them all. A single file may have been lost, and then its rows must say so.
fn outlived(apply: &Apply, recovery: &Recovery) -> Option<SegmentId> {
    let gone = recovery.unreadable.iter().filter(|segment| segment.gone).map(|segment| segment.id);
    apply.with_segments(|segments| {
        let row = |id: SegmentId| segments.get(id).map(|segment| &segment.row);
        let gone = gone.filter(|&id| row(id).is_some_and(|row| row.geometry.shards() > 1));
        let is_needed = |row: &SegmentRow| {
            let is_applied = row.sealed_stripes == Some(row.applied_stripes);
            row.state != SegmentState::Freeing && (row.live_bytes > 0 || !is_applied)
        };
        recovery.freed.iter().copied().chain(gone).find(|&id| row(id).is_some_and(is_needed))
    })
}

/// Replays what the index lacks.
async fn catch_up(
    opened: Opened,
    rebuilt: Rebuilt,
    progress: &dyn Progress,
) -> Result<(Opened, OpenReport), StoreError> {
    let was_lost = opened.is_lost();
    let Opened { index, log, apply, recovery, state, .. } = &opened;
    let replayed = replay::replay(log, &**index, apply, recovery, state.clone(), progress).await?;
    let mut unreadable = replayed.lost;
    let sentence = |segment: &UnreadableSegment| (segment.id, format!("segment {}: {}", segment.id, segment.detail));
    unreadable.extend(recovery.unreadable.iter().map(sentence));
    let report = OpenReport {
        index_rebuilt: rebuilt.distrust.or_else(|| was_lost.then(|| NO_INDEX.into())),
        rows_restored: rebuilt.rows_restored,
        mutations_replayed: replayed.mutations,
        segments: apply.with_segments(|segments| segments.iter().count()),
        stripes_rolled_forward: recovery.rolled_forward,
        stripes_voided: recovery.voided,
        segments_unreadable: unreadable.len(),
        warnings: recovery.warnings.iter().cloned().chain(unreadable.into_values()).collect(),
    };
    Ok((opened, report))
}

/// An error at start is for the operator: it may name a path.
fn startup(error: &dyn std::error::Error) -> StoreError {
    StoreError::Unavailable(error.to_string())
}

fn count(index: &dyn Index, table: Table) -> Result<u64, StoreError> {
    let (mut pages, mut count) = (Pages::new(ScanRange::all(table), PAGE_ROWS), 0);
    while let Some(rows) = pages.next(|range, limit| index.scan(range, limit))? {
        count += rows.len() as u64;
    }
    Ok(count)
}
