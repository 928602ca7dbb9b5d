//! Moving shards from fuller targets to emptier ones, as after one was added.
//!
//! There is a goal and no list: how far apart the fullest and the emptiest target may be. What is to be moved follows from where shards lie and how
//! full the targets are; it is planned as a whole, a few moves of it are made, as repair makes them, and then it is planned anew. So it may be
//! stopped anywhere, what users write and delete meanwhile is taken into account, and whatever is endangered comes first.
//!
//! No move puts more shards of a segment into one failure domain than lay in the one that it leaves, and none goes where another shard of its
//! segment lies. Each makes the targets more alike, and in a plan each shard moves once, so it ends.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use futures::stream::{self, StreamExt};
use gabion_types::{SegmentId, TargetId};
use parking_lot::Mutex;

use super::census::shard_file_bytes;
use super::install::Installed;
use super::members::{TargetMode, TargetPlan};
use super::repair::{RepairPass, repair_onto};
use crate::core::Core;
use crate::error::LogError;
use crate::segment::Segment;
use crate::status::RebalanceStatus;
use crate::target::Standing;

/// What a log remembers of rebalancing.
#[derive(Default)]
pub(crate) struct Rebalance {
    /// What is under way; nothing when nobody asked for it, or when it is done.
    state: Mutex<Option<RebalanceStatus>>,
}

/// A target that shards may leave or come to.
#[derive(Debug, Clone)]
struct Fill {
    id: TargetId,
    failure_domain: String,
    used_bytes: u64,
    total_bytes: u64,
    /// Bytes that may still come.
    room_bytes: u64,
}

/// Where the shards of a sealed segment lie.
#[derive(Debug, Clone)]
struct Lying {
    segment: SegmentId,
    shard_bytes: u64,
    targets: Vec<TargetId>,
    /// Which of them this plan has moved.
    moved: Vec<bool>,
}

/// One shard that moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Move {
    segment: SegmentId,
    shard: usize,
    from: TargetId,
    to: TargetId,
    bytes: u64,
}

#[derive(Debug, Default)]
struct Plan {
    moves: Vec<Move>,
    /// How far apart the fullest and the emptiest target are, as shares of their size.
    spread: f64,
    /// The same after the moves.
    spread_after: f64,
}

impl Fill {
    fn share(&self) -> f64 {
        self.used_bytes as f64 / self.total_bytes as f64
    }
}

impl Rebalance {
    /// What is under way.
    pub(crate) fn status(&self) -> Option<RebalanceStatus> {
        self.state.lock().clone()
    }

    /// Has repair move shards until the targets' fills are `until_percent` apart at most.
    pub(crate) fn begin(&self, until_percent: u8) {
        *self.state.lock() = Some(RebalanceStatus { until_percent, ..RebalanceStatus::default() });
    }
}

/// Plans it all; begins if that is asked for.
pub(crate) async fn rebalance(core: &Core, until_percent: u8, mode: TargetMode) -> TargetPlan {
    let plan = plan_now(core, until_percent, &HashSet::new()).await;
    let mut told = TargetPlan::new("rebalance", TargetId::NONE);
    told.segments = plan.moves.len();
    told.bytes = plan.moves.iter().map(|moved| moved.bytes).sum();
    told.warnings.push(format!(
        "the fullest target is {:.1} % fuller than the emptiest; {}",
        plan.spread * 100.0,
        if plan.moves.is_empty() {
            "nothing is to be moved".to_owned()
        } else {
            format!("{:.1} % afterwards", plan.spread_after * 100.0)
        }
    ));
    if mode == TargetMode::Apply {
        core.rebalance.begin(until_percent);
        told.applied = true;
    }
    told
}

/// Makes some of the moves that are planned now; false when there are none. Segments that could not be moved go to `failed` and are left alone.
pub(crate) async fn step(
    core: &Core,
    moves_max: usize,
    failed: &mut HashSet<SegmentId>,
    done: &mut RepairPass,
) -> bool {
    let Some(goal) = core.rebalance.status() else { return false };
    let plan = plan_now(core, goal.until_percent, failed).await;
    let is_same = |state: &RebalanceStatus| state.until_percent == goal.until_percent;
    if let Some(state) = core.rebalance.state.lock().as_mut().filter(|state| is_same(state)) {
        state.spread_percent = (plan.spread * 100.0).round() as u8;
        state.shards_left = plan.moves.len();
        state.bytes_left = plan.moves.iter().map(|moved| moved.bytes).sum();
    }
    if plan.moves.is_empty() {
        // What failed is tried again in the next pass.
        let mut state = core.rebalance.state.lock();
        // While a target is away the others may be alike by chance.
        if failed.is_empty()
            && !core.media.targets.lacks_some()
            && let Some(ended) = state.take_if(|state| is_same(state))
        {
            tracing::info!(shards = ended.shards_moved, bytes = ended.bytes_moved, "the targets are rebalanced");
        }
        return false;
    }
    let workers = core.config.upkeep.repair_concurrency.max(1);
    // One of each segment: a later one may keep the rule of failure domains only if the one before it was made.
    let mut segments = HashSet::new();
    let chosen: Vec<Move> =
        plan.moves.into_iter().filter(|moved| segments.insert(moved.segment)).take(moves_max).collect();
    let mut outcomes =
        stream::iter(chosen).map(async |moved| (moved, make(core, moved).await)).buffer_unordered(workers);
    while let Some((moved, outcome)) = outcomes.next().await {
        match outcome {
            Ok(bytes) if bytes > 0 => {
                done.shards_built += 1;
                done.bytes_built += bytes;
                core.media.metrics.rebalance_shards.add(1);
                core.media.metrics.rebalance_bytes.add(bytes);
                if let Some(state) = core.rebalance.state.lock().as_mut() {
                    state.shards_moved += 1;
                    state.bytes_moved += bytes;
                    state.shards_left = state.shards_left.saturating_sub(1);
                    state.bytes_left = state.bytes_left.saturating_sub(moved.bytes);
                }
            }
            // It went, or moved, since it was planned.
            Ok(_) | Err(LogError::NotFound(_)) => {}
            Err(error) => {
                tracing::warn!(segment = %moved.segment, shard = moved.shard, to = %moved.to, %error, "a shard could not be moved");
                done.shards_failed += 1;
                failed.insert(moved.segment);
            }
        }
    }
    true
}

/// Makes one move; the bytes that were written.
async fn make(core: &Core, moved: Move) -> Result<u64, LogError> {
    let segment = core.segment(moved.segment)?;
    let Some(place) = core.media.targets.find(moved.to) else { return Ok(0) };
    if segment.info().targets[moved.shard] != moved.from || segment.info().targets.contains(&moved.to) {
        return Ok(0);
    }
    match repair_onto(core, segment, moved.shard, place).await? {
        Installed::WasGood => Ok(0),
        Installed::Built { bytes, .. } => Ok(bytes),
    }
}

async fn plan_now(core: &Core, until_percent: u8, without: &HashSet<SegmentId>) -> Plan {
    let targets = &core.media.targets;
    let mut fills = Vec::new();
    for (number, target) in targets.all() {
        if targets.standing(target.id) != Standing::Here {
            continue;
        }
        if let Some(space) = targets.room(number).await.filter(|space| space.total_bytes > 0) {
            fills.push(Fill {
                id: target.id,
                failure_domain: target.failure_domain.clone(),
                used_bytes: space.total_bytes.saturating_sub(space.available_bytes),
                total_bytes: space.total_bytes,
                room_bytes: space.available_bytes.saturating_sub(core.config.target_reserve_bytes),
            });
        }
    }
    let segments: Vec<Arc<Segment>> = core.segments.lock().values().cloned().collect();
    let lying = segments.iter().filter(|segment| !without.contains(&segment.id)).filter_map(|segment| {
        let shard_bytes = shard_file_bytes(segment.settled_seal()?);
        let targets = segment.info().targets.clone();
        Some(Lying { segment: segment.id, shard_bytes, moved: vec![false; targets.len()], targets })
    });
    let lying: Vec<Lying> = lying.collect();
    let domains = lying.iter().flat_map(|lying| &lying.targets);
    let domains: HashMap<TargetId, String> =
        domains.filter_map(|id| Some((*id, targets.failure_domain(*id)?))).collect();
    plan(fills, lying, &domains, f64::from(until_percent) / 100.0)
}

/// Moves until no two targets are further apart than `until`, or no move helps. Pure.
fn plan(mut fills: Vec<Fill>, mut segments: Vec<Lying>, domains: &HashMap<TargetId, String>, until: f64) -> Plan {
    let spread = |fills: &[Fill]| {
        let shares = || fills.iter().map(Fill::share);
        shares().fold(0.0, f64::max) - shares().fold(1.0, f64::min).min(shares().fold(0.0, f64::max))
    };
    let mut plan = Plan { spread: spread(&fills), ..Plan::default() };
    // Pairs between which nothing was found to be moved: looked at once, or planning would take for ever.
    let mut hopeless: HashSet<(TargetId, TargetId)> = HashSet::new();
    loop {
        fills.sort_by(|a, b| b.share().total_cmp(&a.share()).then(a.id.cmp(&b.id)));
        let pairs = (0..fills.len()).flat_map(|from| (from + 1..fills.len()).rev().map(move |to| (from, to)));
        let mut found = None;
        for (from, to) in pairs {
            let (source, sink) = (&fills[from], &fills[to]);
            if source.share() - sink.share() <= until || hopeless.contains(&(source.id, sink.id)) {
                continue;
            }
            found = segments.iter().position(|lying| fits(lying, source, sink, domains)).map(|at| (at, from, to));
            if found.is_some() {
                break;
            }
            hopeless.insert((source.id, sink.id));
        }
        let Some((at, from, to)) = found else { break };
        let (lying, source, sink) = (&mut segments[at], fills[from].id, fills[to].id);
        let bytes = lying.shard_bytes;
        let shard = lying.targets.iter().position(|target| *target == source).expect("a move that fits has a shard");
        lying.targets[shard] = sink;
        lying.moved[shard] = true;
        fills[from].used_bytes = fills[from].used_bytes.saturating_sub(bytes);
        fills[from].room_bytes += bytes;
        fills[to].used_bytes += bytes;
        fills[to].room_bytes -= bytes;
        plan.moves.push(Move { segment: lying.segment, shard, from: source, to: sink, bytes });
    }
    plan.spread_after = spread(&fills);
    plan
}

/// Whether a segment's shard may go from one target to the other, and whether that helps.
fn fits(lying: &Lying, source: &Fill, sink: &Fill, domains: &HashMap<TargetId, String>) -> bool {
    let bytes = lying.shard_bytes;
    // The gap is wider than what moves is on either: in whole numbers, or two targets would hand each other a shard to and fro.
    let wide = |number: u64| u128::from(number);
    let (ours, theirs) =
        (wide(source.used_bytes) * wide(sink.total_bytes), wide(sink.used_bytes) * wide(source.total_bytes));
    let helps = ours.saturating_sub(theirs) > wide(bytes) * wide(source.total_bytes.max(sink.total_bytes));
    let movable = lying.targets.iter().zip(&lying.moved).any(|(target, moved)| *target == source.id && !moved);
    if !movable || lying.targets.contains(&sink.id) || !helps || sink.room_bytes < bytes {
        return false;
    }
    let others = || lying.targets.iter().filter(|target| **target != source.id);
    let held =
        |domain: &str| others().filter(|target| domains.get(target).is_some_and(|other| other == domain)).count();
    held(&sink.failure_domain) <= held(&source.failure_domain)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TOTAL: u64 = 1000;

    fn id(number: usize) -> TargetId {
        let mut bytes = [0; 16];
        bytes[15] = number as u8 + 1;
        TargetId::from_bytes(bytes)
    }

    /// Targets with these failure domains, and segments on the targets with these numbers, each shard of 10 bytes.
    fn world(labels: &[&str], segments: &[Vec<usize>]) -> (Vec<Fill>, Vec<Lying>, HashMap<TargetId, String>) {
        let used = |target| 10 * segments.iter().flatten().filter(|holder| **holder == target).count() as u64;
        let fills = labels.iter().enumerate().map(|(target, label)| Fill {
            id: id(target),
            failure_domain: (*label).to_owned(),
            used_bytes: used(target),
            total_bytes: TOTAL,
            room_bytes: TOTAL - used(target),
        });
        let lying = segments.iter().enumerate().map(|(number, targets)| Lying {
            segment: SegmentId::from_u128(number as u128),
            shard_bytes: 10,
            targets: targets.iter().map(|target| id(*target)).collect(),
            moved: vec![false; targets.len()],
        });
        let domains = labels.iter().enumerate().map(|(target, label)| (id(target), (*label).to_owned()));
        (fills.collect(), lying.collect(), domains.collect())
    }

    #[test]
    fn a_new_target_takes_its_share() {
        let segments: Vec<Vec<usize>> = (0..40).map(|_| vec![0, 1, 2]).collect();
        let (fills, lying, domains) = world(&["a", "b", "c", "d"], &segments);
        let all = plan(fills.clone(), lying.clone(), &domains, 0.02);
        assert!((all.spread - 0.4).abs() < 1e-9 && all.spread_after <= 0.02, "{all:?}");
        assert!((28..=30).contains(&all.moves.len()) && all.moves.iter().all(|moved| moved.to == id(3)));
        let half = plan(fills.clone(), lying.clone(), &domains, 0.2);
        assert!(half.spread_after <= 0.2 && half.moves.len() < all.moves.len());
        assert!(plan(fills, lying, &domains, 0.4).moves.is_empty());
    }

    #[test]
    fn a_full_sink_and_a_rack_that_holds_enough_take_nothing() {
        let segments: Vec<Vec<usize>> = (0..40).map(|_| vec![0, 1, 2]).collect();
        // The new one stands in the rack of another one: only that one's shards may go there.
        let (fills, lying, domains) = world(&["a", "b", "c", "c"], &segments);
        let moves = plan(fills, lying.clone(), &domains, 0.0).moves;
        assert!(!moves.is_empty() && moves.iter().all(|moved| moved.from == id(2)), "{moves:?}");
        let (mut fills, lying, domains) = world(&["a", "b", "c", "d"], &segments);
        fills[3].room_bytes = 35;
        assert_eq!(plan(fills, lying, &domains, 0.0).moves.len(), 3);
    }

    proptest! {
        /// Whatever lies where: no target gets two shards of a segment, no domain more than one had before, and the spread does not grow.
        #[test]
        fn rules_are_kept(
            racks in prop::collection::vec(0..4_usize, 4..9),
            seeds in prop::collection::vec(any::<u64>(), 0..60),
            until in 0.0..0.3_f64,
        ) {
            let names = ["a", "b", "c", "d"];
            let labels: Vec<&str> = racks.iter().map(|rack| names[*rack]).collect();
            let segments: Vec<Vec<usize>> = seeds.iter().map(|seed| {
                let first = (*seed % racks.len() as u64) as usize / 2;
                (0..3).map(|shard| (first + shard) % racks.len()).collect()
            }).collect();
            let (fills, lying, domains) = world(&labels, &segments);
            let plan = plan(fills, lying.clone(), &domains, until);
            prop_assert!(plan.spread_after <= plan.spread + 1e-9);
            let mut now = lying.clone();
            for moved in &plan.moves {
                let segment = &mut now[u128::from_be_bytes(moved.segment.to_bytes()) as usize];
                prop_assert_eq!(segment.targets[moved.shard], moved.from);
                prop_assert!(!segment.targets.contains(&moved.to));
                segment.targets[moved.shard] = moved.to;
            }
            let most = |lying: &Lying| names.iter().map(|name| {
                lying.targets.iter().filter(|target| domains[target] == *name).count()
            }).max();
            for (before, after) in lying.iter().zip(&now) {
                prop_assert!(most(after) <= most(before));
            }
        }
    }
}
