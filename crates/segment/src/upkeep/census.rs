//! What is missing at this moment, over all segments: nothing of it is remembered, so nothing of it can be out of date.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use gabion_types::{ShardCopy, TargetId};

use crate::core::Core;
use crate::format::SEAL_BLOCK_BYTES;
use crate::segment::{Life, Segment};
use crate::segment_info::Seal;
use crate::status::RepairEntry;
use crate::target::Standing;

/// Whether targets that are absent or failed are waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// As long as the configuration says.
    Delay,
    /// Not at all.
    None,
}

/// What is missing, and where everything lies.
pub(crate) struct Census {
    /// Segments by the number of shards that they lack.
    pub(crate) redundancy: Vec<usize>,
    /// Segments that lack shards, and of which no further one may be lost.
    pub(crate) at_risk: usize,
    /// Shards that are missing and whose targets are waited for.
    pub(crate) waiting: usize,
    /// What can be done something about, the most endangered segments first.
    pub(crate) needs: Vec<Need>,
    /// Shards of sealed segments, and of others, by their target.
    shards_on: HashMap<TargetId, (usize, usize)>,
}

/// A segment that wants repair.
pub(crate) struct Need {
    pub(crate) segment: Arc<Segment>,
    /// Shards to be built anew or moved.
    pub(crate) shards: Vec<u8>,
    /// Length of each, in bytes.
    pub(crate) shard_bytes: u64,
    /// Former copies of other shards are there, which may be removed.
    pub(crate) has_stale: bool,
    /// Shards that may still be lost before bytes are; below zero they are.
    spare: i64,
}

impl Need {
    /// What there is to write.
    pub(crate) fn bytes(&self) -> u64 {
        self.shard_bytes * self.shards.len() as u64
    }
}

/// Length of a whole shard file.
pub(crate) fn shard_file_bytes(seal: Seal) -> u64 {
    seal.end_offset + SEAL_BLOCK_BYTES as u64
}

impl Census {
    pub(crate) fn take(core: &Core, patience: Patience) -> Self {
        let targets = &core.media.targets;
        let now_ns = core.media.clock.monotonic_ns();
        let patience_ns = match patience {
            Patience::Delay => core.config.upkeep.repair_delay_ms.saturating_mul(1_000_000),
            Patience::None => 0,
        };
        let damaged: BTreeSet<RepairEntry> = core.media.repairs.snapshot().into_iter().collect();
        let segments: Vec<Arc<Segment>> = core.segments.lock().values().cloned().collect();
        let mut standings: HashMap<TargetId, Standing> = HashMap::new();
        let mut this =
            Self { redundancy: Vec::new(), at_risk: 0, waiting: 0, needs: Vec::new(), shards_on: HashMap::new() };
        for segment in segments {
            let info = segment.info();
            let is_damaged = |shard: usize| damaged.contains(&RepairEntry { segment: segment.id, shard: shard as u8 });
            let Some(seal) = segment.settled_seal() else {
                if segment.written().is_some() {
                    info.targets.iter().for_each(|&target| this.shards_on.entry(target).or_default().1 += 1);
                }
                // What a segment lacks that is written still is built when it has ended.
                if segment.life() == Life::Open {
                    let mut missing = 0;
                    for (shard, &target) in info.targets.iter().enumerate() {
                        let standing = standings.entry(target).or_insert_with(|| targets.standing(target));
                        let is_away = matches!(standing, Standing::Gone | Standing::Down { .. });
                        missing += usize::from(is_away || is_damaged(shard));
                        this.waiting += usize::from(is_away);
                    }
                    if missing > 0 {
                        this.count(missing, info.geometry.parity());
                    }
                }
                continue;
            };
            let (mut missing, mut shards) = (0, Vec::new());
            for (shard, &target) in info.targets.iter().enumerate() {
                this.shards_on.entry(target).or_default().0 += 1;
                let standing = *standings.entry(target).or_insert_with(|| targets.standing(target));
                let is_damaged = is_damaged(shard);
                let (is_missing, is_due) = match standing {
                    Standing::Gone => (true, true),
                    Standing::Down { since_ns, given_up } => {
                        (true, given_up || now_ns.saturating_sub(since_ns) >= patience_ns)
                    }
                    Standing::Leaving => (is_damaged, true),
                    Standing::Here => (is_damaged, is_damaged),
                };
                missing += usize::from(is_missing);
                this.waiting += usize::from(is_missing && !is_due);
                if is_due {
                    shards.push(shard as u8);
                }
            }
            this.count(missing, info.geometry.parity());
            let is_stale = |copy: &ShardCopy| !shards.contains(&copy.shard) && targets.find(copy.target).is_some();
            let has_stale = info.former.iter().any(is_stale);
            if !shards.is_empty() || has_stale {
                let spare = info.geometry.parity() as i64 - missing as i64;
                this.needs.push(Need { segment, shards, shard_bytes: shard_file_bytes(seal), has_stale, spare });
            }
        }
        this.needs.sort_by_key(|need| (need.shards.is_empty(), need.spare, need.segment.id));
        this
    }

    fn count(&mut self, missing: usize, parity: usize) {
        if self.redundancy.len() <= missing {
            self.redundancy.resize(missing + 1, 0);
        }
        self.redundancy[missing] += 1;
        self.at_risk += usize::from(missing > 0 && missing >= parity);
    }

    /// How many shards of sealed segments lie on a target, and how many of segments that are still written to.
    pub(crate) fn shards_on(&self, target: TargetId) -> (usize, usize) {
        self.shards_on.get(&target).copied().unwrap_or_default()
    }
}
