//! Removing a segment: its `Freed` record is durable before the first of its files goes.

use std::sync::Arc;

use bytes::Bytes;
use gabion_types::{SegmentId, Seq, TargetId};

use crate::applier::RecordBody;
use crate::core::{Core, remove_files};
use crate::error::LogError;
use crate::lane::submit::Lanes;
use crate::segment::Segment;
use crate::segment_info::SegmentChange;

/// Carried records that are queued at a time: well under what a lane's queue takes.
const CARRIED_AT_ONCE: usize = 256;

/// What is left of a freed segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Freed {
    /// Shards whose files could not be removed: their target is absent or failed. They are removed when the log is next opened with it.
    pub left: Vec<(u8, TargetId)>,
}

/// Frees a segment that [`Segment::begin_free`] claimed.
pub(crate) async fn free(
    core: Arc<Core>,
    lanes: Arc<Lanes>,
    segment: Arc<Segment>,
    carried: Vec<(Seq, Bytes)>,
) -> Result<Freed, LogError> {
    if let Err(error) = log_freed(&core, &lanes, segment.id, carried).await {
        segment.cancel_free();
        return Err(error);
    }
    segment.begin_removal().await;
    // Only now do its shards stay where they are.
    let info = segment.info();
    let left = remove_files(&core.media, &info).await;
    core.segments.lock().remove(&info.id);
    core.media.repairs.forget(info.id);
    if left.is_empty() {
        core.media.metrics.segments_removed.add(1);
        if let Some(applier) = core.applier.get()
            && let Err(error) = applier.segment_changed(SegmentChange::Removed(info.id))
        {
            core.poison(format!("the index failed: {error}"));
        }
    } else {
        core.leftovers.lock().insert(info.id);
    }
    Ok(Freed { left: left.into_iter().map(|copy| (copy.shard, copy.target)).collect() })
}

/// Writes what must outlive the segment, and then that the segment is freed: durably, whatever else is.
async fn log_freed(core: &Core, lanes: &Lanes, id: SegmentId, carried: Vec<(Seq, Bytes)>) -> Result<(), LogError> {
    for group in carried.chunks(CARRIED_AT_ONCE) {
        let records = group.iter().map(|(seq, mutation)| (RecordBody::Mutation(mutation.clone()), Some(*seq)));
        lanes.commit_dataless(core, records).await?;
    }
    // The records that freed the leftovers may lie in this very segment.
    let mut freed: Vec<SegmentId> = core.leftovers.lock().iter().copied().collect();
    freed.push(id);
    lanes.commit_dataless(core, freed.into_iter().map(|id| (RecordBody::Freed(id), None))).await?;
    // Files that are gone do not come back after a power cut: nothing that lets them go may.
    core.sync_written().await
}
