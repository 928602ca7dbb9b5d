//! Targets that came back as older images of themselves, and what of them must not count (docs/adr/0010).
//!
//! At most `m` targets are damaged, and a stale one is: so of a segment that lives, a shard lies on a target that is not stale. What is found on stale
//! ones alone was freed since their images were made. It is set aside under another name, before the target gets the newest list of
//! members: from then on nothing says any more that it was stale.
//!
//! A target that was replaced or removed as lost is no member any more, but its shards may not be built anew yet: to a segment that was on it, it is
//! as lost as one that is absent. The list of members says which targets that is true of; they count as damaged. Where it does not say, because it is of
//! an older version, what is lost is counted for each segment, too.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::sync::Arc;

use gabion_types::{Geometry, SegmentId, TargetId};

use super::copies::{newest, read_headers};
use super::listing::{Found, Listing};
use crate::core::Core;
use crate::segment_info::KnownSegment;
use crate::shard_path::{SEGMENTS_DIR, set_aside_path, shard_path};
use crate::target::Target;

/// Takes out of the listing what is found on stale targets alone.
pub(super) async fn leave_out(core: &Core, listing: &mut Listing, known: &[KnownSegment], warnings: &mut Vec<String>) {
    let stale: Vec<Arc<Target>> = stale(core, listing).into_iter().map(|(_, target)| target).collect();
    if stale.is_empty() {
        return;
    }
    let targets = &core.media.targets;
    let lost = targets.lost();
    let damaged = stale.len() + listing.absent() + lost;
    if damaged > targets.parity() {
        warnings.push(format!(
            "targets {} came back as older images of themselves, {} are absent, and {lost} that left are not built anew: together they are more than \
             parity replaces, so what is found on the older images alone counts as it is, and what was deleted since may be back",
            names(&stale),
            listing.absent()
        ));
        return;
    }
    let ids: HashSet<TargetId> = stale.iter().map(|target| target.id).collect();
    let only_there = |found: &[Found]| found.iter().all(|found| ids.contains(&found.target_id));
    let only: Vec<SegmentId> =
        listing.shards.iter().filter(|(_, found)| only_there(found)).map(|(id, _)| *id).collect();
    let known: HashMap<SegmentId, &KnownSegment> = known.iter().map(|known| (known.id, known)).collect();
    let mut kept = 0;
    for id in only {
        let headers = read_headers(core, id, listing.found(id)).await;
        let is_lost = |target: &&TargetId| {
            ids.contains(target) || (!listing.is_listed(**target) && !targets.is_missed_by_none(**target))
        };
        let bears = |geometry: Geometry, targets: &[TargetId]| {
            // Of a segment with less parity than that the rest may be lost.
            geometry.parity() >= damaged.max(targets.iter().filter(is_lost).count())
        };
        // The header may name a target that the shard was moved from since, the row be of an older index: the one that says more is lost counts.
        if newest(&headers).is_none_or(|header| bears(header.geometry, &header.targets))
            && known.get(&id).is_none_or(|known| bears(known.geometry, &known.targets))
        {
            if let Some(found) = listing.shards.remove(&id) {
                listing.stale.insert(id, found);
            }
        } else {
            kept += 1;
        }
    }
    if kept > 0 {
        warnings.push(format!(
            "targets {} came back as older images of themselves, and {kept} segments that are found on them alone had more shards on them and on \
             targets that are gone or absent than parity replaces: they count as they are, and what was deleted since may be back",
            names(&stale)
        ));
    }
}

/// Sets aside what was left out, and brings the stale targets up to date: those on which all of it could be. `freed` are segments of which the log
/// says that they are freed: their files were removed, or are remembered.
pub(super) async fn set_aside(core: &Core, listing: &Listing, freed: &BTreeSet<SegmentId>, warnings: &mut Vec<String>) {
    for (number, target) in stale(core, listing) {
        let mut files: Vec<(SegmentId, u8)> = Vec::new();
        for (id, found) in listing.stale.iter().filter(|(id, _)| !freed.contains(id)) {
            files.extend(found.iter().filter(|found| found.target_id == target.id).map(|found| (*id, found.shard)));
        }
        let outcome = rename(&target, &files).await;
        let count = files.len();
        let outcome = match outcome {
            Ok(()) => core.media.targets.bring_up(number).await.map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        warnings.push(match outcome {
            Ok(()) => {
                target.count_set_aside(count);
                format!(
                    "target {} came back as an older image of itself: files of {count} segments that were freed since were set aside on it, their \
                     names end in .stale and they may be removed; run a scrub, so that what else is old on it is found and repaired",
                    target.name
                )
            }
            Err(error) => format!(
                "target {} came back as an older image of itself, and files of {count} segments that were freed since could not be set aside on it \
                 ({error}): they do not count, and this is tried again at the next start",
                target.name
            ),
        });
    }
}

/// Renames files, durably.
async fn rename(target: &Target, files: &[(SegmentId, u8)]) -> io::Result<()> {
    let disk = target.disk().ok_or(io::ErrorKind::NotFound)?;
    for &(id, shard) in files {
        disk.rename(&shard_path(id, shard), &set_aside_path(id, shard)).await?;
    }
    // Also where there was nothing to rename: a start that was cut off may have done it, and not made it durable.
    let dirs = match disk.list(SEGMENTS_DIR).await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        dirs => dirs?,
    };
    for dir in dirs.into_iter().filter(|entry| entry.is_dir) {
        disk.sync_dir(&format!("{SEGMENTS_DIR}/{}", dir.name)).await?;
    }
    Ok(())
}

/// Targets whose lists are older than they were, and that were listed.
fn stale(core: &Core, listing: &Listing) -> Vec<(usize, Arc<Target>)> {
    let all = core.media.targets.all().into_iter();
    all.filter(|(_, target)| target.is_behind() && listing.is_listed(target.id)).collect()
}

fn names(targets: &[Arc<Target>]) -> String {
    targets.iter().map(|target| target.name.as_str()).collect::<Vec<_>>().join(", ")
}
