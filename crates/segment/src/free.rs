//! Removing a segment: its `Freed` record is durable before the first of its files goes. Forgetting it: when nothing can bring it back.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::join_all;
use gabion_types::{SegmentId, Seq, TargetId};

use crate::applier::RecordBody;
use crate::core::{Core, remove_copy, remove_files};
use crate::error::LogError;
use crate::lane::submit::Lanes;
use crate::segment::Segment;
use crate::segment_info::SegmentChange;
use crate::status::TargetState;

/// Records that are queued at a time: well under what a lane's queue takes.
const RECORDS_AT_ONCE: usize = 256;
/// Files that were left and are removed at a time, and how many times that in one go.
const REMOVED_AT_ONCE: usize = 64;
const REMOVED_PER_CALL: usize = 16;
/// Segments that the index forgets in one change: others wait for it.
const FORGOTTEN_AT_ONCE: usize = 1000;

/// What is left of a freed segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Freed {
    /// Shards whose files could not be removed: their target is absent, failed, or does not answer. They are removed when the log is next opened with it, or before if it does what it is told by then.
    pub left: Vec<(u8, TargetId)>,
}

/// Frees a segment that [`Segment::begin_free`] claimed.
pub(crate) async fn free(
    core: Arc<Core>,
    lanes: Arc<Lanes>,
    segment: Arc<Segment>,
    carried: Vec<(Seq, Bytes)>,
) -> Result<Freed, LogError> {
    let home = match log_freed(&core, &lanes, segment.id, carried).await {
        Ok(home) => home,
        Err(error) => {
            segment.cancel_free();
            return Err(error);
        }
    };
    segment.begin_removal().await;
    // Only now do its shards stay where they are.
    let info = segment.info();
    let left = remove_files(&core.media, &info).await;
    let targets = &core.media.targets;
    // Before it is no segment any more: its files belong to something at every moment.
    match &left[..] {
        [] => core.leftovers.lock().insert(info.id, home, Some(targets.written_epoch())),
        left => core.leftovers.lock().insert_with(info.id, home, left.to_vec()),
    }
    core.unreadable.lock().remove(&info.id);
    core.segments.lock().remove(&info.id);
    core.media.repairs.forget(info.id);
    if left.is_empty() {
        removed(&core, info.id);
    }
    Ok(Freed { left: left.into_iter().map(|copy| (copy.shard, copy.target)).collect() })
}

/// Removes files that were left on targets that do what they are told now.
async fn remove_left(core: &Core) {
    let targets = &core.media.targets;
    let works = |number: usize| {
        let target = targets.at(number);
        !target.is_silent() && target.state() != TargetState::Failed
    };
    // Of one that is no member any more nothing is left.
    let answers = |target| !targets.is_member(target) || targets.find(target).is_some_and(works);
    let left = core.leftovers.lock().left_on(answers);
    for left in left.chunks(REMOVED_AT_ONCE).take(REMOVED_PER_CALL) {
        let outcomes = join_all(left.iter().map(async |(id, copy)| remove_copy(&core.media, *id, *copy).await)).await;
        let all_went = outcomes.iter().all(|is_gone| *is_gone);
        for ((id, copy), _) in left.iter().zip(outcomes).filter(|(_, is_gone)| *is_gone) {
            if core.leftovers.lock().is_gone(*id, *copy, targets.written_epoch()) {
                removed(core, *id);
            }
        }
        if !all_went {
            break;
        }
    }
}

/// Of targets that are no members any more nothing is left: freed segments whose last files lay there are gone.
pub(crate) fn forget_left_behind(core: &Core) {
    let targets = &core.media.targets;
    let left = core.leftovers.lock().left_on(|target| !targets.is_member(target));
    for (id, copy) in left {
        core.media.forget_shard(id, copy.shard, copy.target);
        if core.leftovers.lock().is_gone(id, copy, targets.written_epoch()) {
            removed(core, id);
        }
    }
}

/// The last file of a segment is gone.
fn removed(core: &Core, id: SegmentId) {
    core.media.metrics.segments_removed.add(1);
    if core.media.targets.parity() == 0 {
        // A target that comes back as an old image is more damage than such a log bears.
        forget(core, &[id]);
    }
}

/// Writes what must outlive the segment, and then that the segment is freed: durably, whatever else is. Returns where it says so.
async fn log_freed(
    core: &Arc<Core>,
    lanes: &Lanes,
    id: SegmentId,
    carried: Vec<(Seq, Bytes)>,
) -> Result<Option<SegmentId>, LogError> {
    for group in carried.chunks(RECORDS_AT_ONCE) {
        let records = group.iter().map(|(seq, mutation)| (RecordBody::Mutation(mutation.clone()), Some(*seq)));
        lanes.commit_dataless(core, records).await?;
    }
    // The records that freed the leftovers may lie in this very segment.
    let told = core.leftovers.lock().told_only_in(id);
    for group in told.chunks(RECORDS_AT_ONCE) {
        let records = group.iter().map(|id| (RecordBody::Freed(*id), None));
        let committed = lanes.commit_dataless(core, records).await?;
        let mut leftovers = core.leftovers.lock();
        group.iter().zip(committed).for_each(|(id, committed)| leftovers.told(*id, committed.home.segment));
    }
    // By itself: it is freed if this is written, and not if it is refused, whatever became of the others.
    let committed = lanes.commit_dataless(core, std::iter::once((RecordBody::Freed(id), None))).await?;
    let home = committed.first().map(|committed| committed.home.segment);
    // Files that are gone do not come back after a power cut: nothing that lets them go may.
    core.sync_written().await?;
    Ok(home)
}

/// Removes what was left of freed segments and can be removed now, forgets those that nothing can bring back any more, and sees to it that others can be forgotten later; returns how many
/// were. Moves the epoch of the members on, at most once in `epoch_interval_ms`, when segments wait for it, or nothing more for a target that
/// was lost, and most of the members are there.
pub(crate) async fn forget_freed(core: &Core) -> Result<usize, LogError> {
    let targets = &core.media.targets;
    remove_left(core).await;
    let mut moved_ns = core.epoch_moved_ns.lock().await;
    if !core.leftovers.lock().wait_for_epoch() && !targets.has_news_of_lost(|| core.holders()) {
        return Ok(0);
    }
    let now_ns = core.media.clock.monotonic_ns();
    let interval_ns = core.config.epoch_interval_ms.saturating_mul(1_000_000);
    if moved_ns.is_some_and(|moved_ns| now_ns.saturating_sub(moved_ns) < interval_ns) {
        return Ok(0);
    }
    *moved_ns = Some(now_ns);
    if !targets.move_on(|| core.holders()).await? {
        return Ok(0);
    }
    let settled = core.leftovers.lock().settled(targets.settled_epoch());
    forget(core, &settled);
    Ok(settled.len())
}

fn forget(core: &Core, ids: &[SegmentId]) {
    for ids in ids.chunks(FORGOTTEN_AT_ONCE) {
        core.leftovers.lock().forget(ids);
        if let Some(applier) = core.applier.get()
            && let Err(error) = applier.segment_changed(SegmentChange::Removed(ids.to_vec()))
        {
            core.poison(format!("the index failed: {error}"));
            return;
        }
    }
}
