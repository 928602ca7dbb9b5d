//! Files that are needed no more: of segments that were freed, and of ones that were opened and never written.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use futures::future::join_all;
use gabion_types::{SegmentId, ShardCopy};

use super::Recovery;
use super::listing::Listing;
use crate::core::{Core, remove_copy};
use crate::segment_info::SegmentInfo;
use crate::shard_path::shard_dir;

/// Removes segments that hold nothing; files of them on targets that are absent hold nothing either, and are removed when those are back.
pub(super) async fn remove_empty(core: &Core, listing: &Listing, empty: Vec<SegmentId>, recovery: &mut Recovery) {
    for id in empty {
        core.media.repairs.forget(id);
        if remove_found(core, listing, id).await {
            recovery.removed.push(id);
        }
    }
}

/// Goes on with the removal of freed segments: a crash came between their `Freed` record and their last file, or a target was away. `homes` says where
/// such a record of them is.
pub(super) async fn remove_freed(
    core: &Core,
    listing: &Listing,
    freed: BTreeMap<SegmentId, Option<Arc<SegmentInfo>>>,
    homes: &BTreeMap<SegmentId, SegmentId>,
    recovery: &mut Recovery,
) {
    let targets = &core.media.targets;
    let is_durable = sync_dirs(core, listing, freed.keys().copied()).await;
    for (id, info) in freed {
        let removed = remove_found(core, listing, id).await;
        let in_sight = match info {
            Some(info) => listing.is_in_sight(core, &info),
            None => listing.is_complete(),
        };
        let is_gone = removed && in_sight && is_durable;
        if is_gone && targets.parity() == 0 {
            recovery.removed.push(id);
        } else {
            // Whether an image of a target that has it would be noticed was known to the process before, perhaps.
            let removed_at = is_gone.then(|| targets.written_epoch());
            core.leftovers.lock().insert(id, homes.get(&id).copied(), removed_at);
        }
        recovery.unreadable.retain(|segment| segment.id != id);
        core.unreadable.lock().remove(&id);
        core.media.repairs.forget(id);
        core.segments.lock().remove(&id);
        recovery.freed.push(id);
    }
}

/// Makes durable what a process that died may have removed, and did not come to: else it would be back after a power cut.
async fn sync_dirs(core: &Core, listing: &Listing, freed: impl Iterator<Item = SegmentId>) -> bool {
    let dirs: BTreeSet<String> = freed.map(shard_dir).collect();
    let all = core.media.targets.all();
    let listed = all.iter().filter(|(_, target)| listing.is_listed(target.id));
    let synced = join_all(listed.map(async |(number, target)| {
        let Some(disk) = target.disk() else { return false };
        for dir in &dirs {
            match disk.sync_dir(dir).await {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    core.media.targets.failed(*number, &error);
                    return false;
                }
                _ => {}
            }
        }
        true
    }));
    synced.await.into_iter().all(|synced| synced)
}

/// Removes all files of a segment that were found, durably; false if one is left.
async fn remove_found(core: &Core, listing: &Listing, id: SegmentId) -> bool {
    let mut removed = true;
    for found in listing.found(id).iter().chain(listing.stale.get(&id).into_iter().flatten()) {
        removed &= remove_copy(&core.media, id, ShardCopy { shard: found.shard, target: found.target_id }).await;
    }
    removed
}
