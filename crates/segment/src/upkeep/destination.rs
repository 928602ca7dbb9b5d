//! Where a shard goes that can not stay where it was.

use futures::future::join_all;
use gabion_types::TargetId;

use super::install::has_former;
use crate::core::Core;
use crate::placement::{Candidate, spread};
use crate::segment_info::SegmentInfo;
use crate::target::Standing;

/// The room on the targets that take shards, all asked at one time.
pub(super) struct Rooms {
    /// In bytes, but for the reserve.
    left_bytes: Vec<(TargetId, u64)>,
}

impl Rooms {
    pub(super) async fn ask(core: &Core) -> Self {
        let targets = &core.media.targets;
        let there = targets.all().into_iter().filter(|(_, target)| targets.standing(target.id) == Standing::Here);
        let asked = join_all(there.map(async |(number, target)| {
            let left_bytes =
                targets.room(number).await?.available_bytes.checked_sub(core.config.target_reserve_bytes)?;
            Some((target.id, left_bytes))
        }));
        Self { left_bytes: asked.await.into_iter().flatten().collect() }
    }

    /// Whether there may be a [`destination`].
    pub(super) fn are_enough(&self, info: &SegmentInfo, shard: usize, shard_bytes: u64) -> bool {
        self.left_bytes.iter().any(|&(target, left_bytes)| {
            left_bytes >= shard_bytes && (target == info.targets[shard] || !info.targets.contains(&target))
        })
    }
}

/// The place of the target that is to take a shard: its own if that is there and has room, the one that replaces it, or one that holds
/// no shard of the segment, in the failure domain with the fewest of them, with the most room. `None` if there is none now. Not one with a former copy of the
/// shard that is to be kept, if `keeps_former`.
pub(crate) async fn destination(
    core: &Core,
    info: &SegmentInfo,
    shard: usize,
    shard_bytes: u64,
    keeps_former: bool,
) -> Option<usize> {
    let targets = &core.media.targets;
    let own = info.targets[shard];
    // Repair takes no room that deletions and the index count on.
    let wanted_bytes = shard_bytes.saturating_add(core.config.target_reserve_bytes);
    if targets.standing(own) == Standing::Here
        && let Some(number) = targets.find(own)
        && let Some(space) = targets.room(number).await
        && space.available_bytes >= wanted_bytes
    {
        return Some(number);
    }
    let mut candidates = Vec::new();
    for (number, target) in targets.all() {
        if target.id == own || info.targets.contains(&target.id) || targets.standing(target.id) != Standing::Here {
            continue;
        }
        if keeps_former && has_former(info, shard, target.id) {
            continue;
        }
        if let Some(space) = targets.room(number).await.filter(|space| space.available_bytes >= wanted_bytes) {
            candidates.push(Candidate {
                target: number,
                failure_domain: target.failure_domain.clone(),
                available_bytes: space.available_bytes,
            });
        }
    }
    let replacement = targets.replacement(own).and_then(|id| targets.find(id));
    if let Some(candidate) = candidates.iter().find(|candidate| Some(candidate.target) == replacement) {
        return Some(candidate.target);
    }
    let others =
        info.targets.iter().enumerate().filter(|(other, target)| *other != shard && **target != TargetId::NONE);
    let domains: Vec<String> = others.filter_map(|(_, target)| targets.failure_domain(*target)).collect();
    spread(&candidates, &domains)
}
