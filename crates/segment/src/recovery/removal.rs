//! Files that are needed no more: of segments that were freed, and of ones that were opened and never written.

use std::collections::BTreeMap;
use std::sync::Arc;

use gabion_types::{SegmentId, ShardCopy};

use super::Recovery;
use super::listing::Listing;
use crate::core::{Core, remove_copy};
use crate::segment_info::SegmentInfo;

/// Removes segments that hold nothing, of which all targets are there.
pub(super) async fn remove_empty(core: &Core, listing: &Listing, empty: Vec<SegmentId>, recovery: &mut Recovery) {
    for id in empty {
        if remove_found(core, listing, id).await {
            recovery.removed.push(id);
        }
    }
}

/// Goes on with the removal of freed segments: a crash came between their `Freed` record and their last file, or a target was away.
pub(super) async fn remove_freed(
    core: &Core,
    listing: &Listing,
    freed: BTreeMap<SegmentId, Option<Arc<SegmentInfo>>>,
    recovery: &mut Recovery,
) {
    for (id, info) in freed {
        let removed = remove_found(core, listing, id).await;
        let in_sight = match info {
            Some(info) => listing.is_in_sight(core, &info),
            None => listing.is_complete(),
        };
        if removed && in_sight {
            recovery.removed.push(id);
        } else {
            core.leftovers.lock().insert(id);
        }
        recovery.unreadable.retain(|segment| segment.id != id);
        core.unreadable.lock().remove(&id);
        core.media.repairs.forget(id);
        core.segments.lock().remove(&id);
        recovery.freed.push(id);
    }
}

/// Removes all files of a segment that were found, durably; false if one is left.
async fn remove_found(core: &Core, listing: &Listing, id: SegmentId) -> bool {
    let mut removed = true;
    for found in listing.found(id) {
        removed &= remove_copy(&core.media, id, ShardCopy { shard: found.shard, target: found.target_id }).await;
    }
    removed
}
