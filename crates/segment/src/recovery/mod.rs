//! What was found on the targets when the log was opened, and how it was made whole.
//!
//! Every segment that the index does not know as sealed is walked, completed or cut, and sealed before the log is open: from then
//! on nothing is ever appended to it. A stripe with `k` valid chunks is completed; one with fewer, and nothing behind it, was never acknowledged and is
//! void, which its seal records. A void is never decided with more than `m` shards out of sight.

mod copies;
mod listing;
mod removal;
mod roll_forward;
mod shards;
mod stale;
mod walk;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures::stream::{self, StreamExt};
use gabion_types::{SegmentId, Seq, TargetId};

use crate::core::{Core, Unseen};
use crate::error::LogError;
use crate::format::SealReason;
use crate::lane::writer::{sealed_len, write_seal};
use crate::segment::{Life, Segment};
use crate::segment_info::{KnownSegment, Seal, SegmentInfo};
use copies::{has_strays, place, read_headers};
pub(crate) use listing::list_target_in_time;
use listing::{Found, Listing, list_shards};
use removal::{remove_empty, remove_freed};
use walk::recover_segment;

/// Most segments that are read at once.
const PARALLEL_MAX: usize = 16;
/// Most shards that are read at once over all segments: each may hold a buffer of a mebibyte.
const PARALLEL_SHARDS_MAX: usize = 256;

/// The outcome of opening the log.
#[derive(Debug, Clone, Default)]
pub struct Recovery {
    /// Segments of which the index does not know everything, all sealed now: replay [`crate::Log::mutations`] from
    /// `applied_from` on and then note the seal. Segments that the index knew as sealed and wholly applied are not named.
    pub segments: Vec<RecoveredSegment>,
    /// Segments that can not be read or only in part.
    pub unreadable: Vec<UnreadableSegment>,
    /// Segments that a `Freed` record names, found in the log or known from the index: none of their mutations counts any more.
    /// Those not in `removed` may have files that come back with a target: keep them as [`crate::KnownSegment::freed`].
    pub freed: Vec<SegmentId>,
    /// Segments of which no file is left or can come back: freed ones, and ones that were opened but never written. The index may forget them.
    pub removed: Vec<SegmentId>,
    /// Segments that the index knows and whose shards lie elsewhere than it says.
    pub moved: Vec<SegmentInfo>,
    /// The highest sequence in the log and in the known segments.
    pub max_seq: Seq,
    /// Sentences for the operator.
    pub warnings: Vec<String>,
    /// Stripes that were completed from at least `k` valid chunks.
    pub rolled_forward: u64,
    /// Segments that ended in a stripe with fewer than `k` valid chunks, which is void now.
    pub voided: u64,
}

/// A segment that recovery read.
#[derive(Debug, Clone)]
pub struct RecoveredSegment {
    /// What never changes about it.
    pub info: Arc<SegmentInfo>,
    /// Its end.
    pub seal: Seal,
    /// Index of the first stripe that the index has not applied.
    pub applied_from: u32,
    /// Whether the index knew it.
    pub known: bool,
}

/// A segment that can not be read or only in part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadableSegment {
    /// Which one.
    pub id: SegmentId,
    /// What was found.
    pub detail: String,
    /// Not one of its files is left, and all targets are in sight.
    pub gone: bool,
}

/// What became of one segment.
enum Outcome {
    Recovered(Walked),
    /// It was opened but holds nothing, and each of its files says so: they can go, one by one.
    Empty,
    Unreadable(String),
}

/// A segment that was walked to its end.
struct Walked {
    info: Arc<SegmentInfo>,
    seal: Seal,
    /// Where a replay begins: stripe and offset.
    replay_from: (u32, u64),
    /// Segments that its records free.
    frees: Vec<SegmentId>,
    rolled_forward: u64,
    voided: bool,
    /// What could not be read of it.
    damage: Option<String>,
}

/// Recovers all segments and registers them with `core`.
pub(crate) async fn recover(
    core: &Core,
    known: Vec<KnownSegment>,
    warnings: Vec<String>,
) -> Result<Recovery, LogError> {
    let mut recovery = Recovery { warnings, ..Recovery::default() };
    let mut listing = list_shards(core, &mut recovery.warnings).await?;
    stale::leave_out(core, &mut listing, &known, &mut recovery.warnings).await;
    recovery.max_seq = known
        .iter()
        .map(|known| known.max_seq.max(known.sealed.map_or(Seq::ZERO, |seal| seal.max_seq)))
        .max()
        .unwrap_or_default();
    let known = find_moved(core, &listing, known, &mut recovery).await?;
    let mut freed: BTreeMap<SegmentId, Option<Arc<SegmentInfo>>> = BTreeMap::new();
    freed.extend(core.config.forgotten.iter().map(|id| (*id, None)));
    let mut named = core.config.forgotten.clone();
    let (mut to_walk, mut trusted) = (Vec::new(), Vec::new());
    for known in known {
        let found = listing.found(known.id);
        named.insert(known.id);
        let info = Arc::new(known.info());
        match known.sealed {
            _ if known.freed => {
                freed.insert(known.id, Some(info));
            }
            Some(seal) if known.applied_stripes == seal.stripes && !lacks_seal(&info, seal, found) => {
                trust_sealed(core, &listing, info, seal, found, &mut recovery);
                trusted.push(known);
            }
            _ => to_walk.push((known.id, Some(known))),
        }
    }
    to_walk.extend(listing.shards.keys().filter(|id| !named.contains(id)).map(|id| (*id, None)));
    let parallel = (PARALLEL_SHARDS_MAX / core.config.geometry.shards()).clamp(1, PARALLEL_MAX);
    let listing = &listing;
    let gone = to_walk
        .iter()
        .filter_map(|(_, known)| known.as_ref())
        .chain(&trusted)
        .filter(|known| is_gone(core, listing, known));
    let gone: Vec<SegmentId> = gone.map(|known| known.id).collect();
    let mut outcomes = stream::iter(to_walk)
        .map(async |(id, known): (SegmentId, Option<KnownSegment>)| {
            let outcome = recover_segment(core, listing, id, known.as_ref()).await;
            (id, known, outcome)
        })
        .buffer_unordered(parallel);
    let mut empty = Vec::new();
    let mut walked = Vec::new();
    while let Some((id, known, outcome)) = outcomes.next().await {
        match outcome? {
            Outcome::Recovered(segment) => walked.push((segment, known)),
            Outcome::Empty => empty.push(id),
            Outcome::Unreadable(detail) => unreadable(core, &mut recovery, id, detail),
        }
    }
    drop(outcomes);
    let mut homes = BTreeMap::new();
    for (segment, _) in &walked {
        for id in &segment.frees {
            freed.entry(*id).or_insert(None);
            homes.insert(*id, segment.info.id);
        }
    }
    homes.retain(|_, home| !freed.contains_key(home));
    if let Some(id) = gone.into_iter().find(|id| !freed.contains_key(id)) {
        return Err(LogError::IndexAhead { segment: id });
    }
    register(core, walked, &freed, &mut recovery);
    remove_empty(core, listing, empty, &mut recovery).await;
    remove_freed(core, listing, freed, &homes, &mut recovery).await;
    let freed: BTreeSet<SegmentId> = recovery.freed.iter().copied().collect();
    stale::set_aside(core, listing, &freed, &mut recovery.warnings).await;
    for segment in &mut recovery.unreadable {
        segment.gone = listing.is_complete() && listing.found(segment.id).is_empty();
    }
    let any_unread = core.media.reads_failed.load(Ordering::Relaxed);
    // It is set once, and no list is written before.
    let _ = core.unseen.set(Unseen { unlisted: listing.unlisted(core), any_unread });
    core.sequencer.observe(recovery.max_seq);
    recovery.segments.sort_by_key(|segment| segment.info.id);
    recovery.unreadable.sort_by_key(|segment| segment.id);
    recovery.removed.sort_unstable();
    Ok(recovery)
}

/// Looks where the shards of the known segments really are: an older index, or one that was not told in time, may be wrong.
async fn find_moved(
    core: &Core,
    listing: &Listing,
    known: Vec<KnownSegment>,
    recovery: &mut Recovery,
) -> Result<Vec<KnownSegment>, LogError> {
    for known in &known {
        if known.targets.len() != known.geometry.shards() {
            return Err(LogError::Invalid(format!(
                "known segment {}: {} targets for {}",
                known.id,
                known.targets.len(),
                known.geometry
            )));
        }
    }
    let mut looked = stream::iter(known)
        .map(async |mut known: KnownSegment| {
            let (info, found) = (known.info(), listing.found(known.id));
            if !has_strays(&info, found) && info.former.is_empty() {
                return (known, None);
            }
            let headers = read_headers(core, known.id, found).await;
            let placed = place(core, listing, &info, found, &headers).info;
            let moved = (placed != info).then(|| placed.clone());
            known.targets = placed.targets;
            known.former = placed.former;
            (known, moved)
        })
        .buffered(PARALLEL_MAX);
    let mut out = Vec::new();
    while let Some((known, moved)) = looked.next().await {
        recovery.moved.extend(moved);
        out.push(known);
    }
    Ok(out)
}

/// Whether no file is left of a segment that the index has applied, though all its targets are in sight, or gone with nothing missing, or no more of them are away than its
/// parity bears: then shards would be there, if it were. If the log does not say that it was freed, then the record that said so was freed as well: the index is an older copy,
/// and its rows may name what is long gone.
fn is_gone(core: &Core, listing: &Listing, known: &KnownSegment) -> bool {
    let in_sight = |target: &TargetId| {
        *target == TargetId::NONE || listing.is_listed(*target) || core.media.targets.is_missed_by_none(*target)
    };
    // A shard that the segment was opened without is one that it lacks.
    let lacking = known.targets.iter().filter(|target| **target == TargetId::NONE || !in_sight(target)).count();
    known.applied_stripes > 0
        && listing.found(known.id).is_empty()
        && (known.targets.iter().all(in_sight) || lacking <= known.geometry.parity())
}

/// Whether a shard that is there does not end with the seal: it was away when the segment was sealed, and what was written last
/// may be torn on it; or it failed while it was written; or its surplus was not given back.
fn lacks_seal(info: &SegmentInfo, seal: Seal, found: &[Found]) -> bool {
    let is_ours = |found: &Found| info.targets.get(usize::from(found.shard)) == Some(&found.target_id);
    found.iter().any(|found| is_ours(found) && found.len != sealed_len(seal))
}

/// A segment that the index knows to its end: only which shards are there is looked at.
fn trust_sealed(
    core: &Core,
    listing: &Listing,
    info: Arc<SegmentInfo>,
    seal: Seal,
    found: &[Found],
    recovery: &mut Recovery,
) {
    let is_there = |(shard, target): (usize, &TargetId)| {
        found.iter().any(|found| usize::from(found.shard) == shard && found.target_id == *target)
    };
    let mut present = 0;
    for (shard, target) in info.targets.iter().enumerate() {
        if is_there((shard, target)) {
            present += 1;
        } else if listing.is_listed(*target) {
            // Of targets that are away, repair knows by itself.
            core.media.ask_repair(info.id, shard);
        }
    }
    if present < info.geometry.data() {
        let away = info.targets.iter().filter(|target| !listing.is_listed(**target)).count();
        let detail = format!(
            "{present} of its {} shard files are there, {} are needed; {away} of its targets are absent",
            info.geometry.shards(),
            info.geometry.data()
        );
        unreadable(core, recovery, info.id, detail);
    }
    let replay_from = (seal.stripes, seal.end_offset);
    core.insert_segment(Arc::new(Segment::new(info, Life::Sealed(seal), replay_from)));
}

fn unreadable(core: &Core, recovery: &mut Recovery, id: SegmentId, detail: String) {
    core.unreadable.lock().insert(id);
    recovery.unreadable.push(UnreadableSegment { id, detail, gone: false });
}

/// Writes the seal durably to these shards, of which some may not be `trusted`.
async fn write_seals(
    core: &Core,
    info: &SegmentInfo,
    seal: Seal,
    reason: SealReason,
    shards: impl Iterator<Item = (usize, bool)>,
) -> Vec<(usize, io::Result<()>)> {
    futures::future::join_all(shards.map(async |(shard, is_trusted)| {
        let outcome = async {
            let file = core.media.file(info, shard).await.map_err(io::Error::other)?;
            write_seal(Arc::clone(&file), seal, core.media.seal_block(info, reason, seal, is_trusted), is_trusted).await
        };
        (shard, outcome.await)
    }))
    .await
}

/// Makes the walked segments readable and names them to the index; freed ones are left out.
fn register(
    core: &Core,
    walked: Vec<(Walked, Option<KnownSegment>)>,
    freed: &BTreeMap<SegmentId, Option<Arc<SegmentInfo>>>,
    recovery: &mut Recovery,
) {
    for (segment, known) in walked {
        let id = segment.info.id;
        recovery.rolled_forward += segment.rolled_forward;
        recovery.voided += u64::from(segment.voided);
        recovery.max_seq = recovery.max_seq.max(segment.seal.max_seq);
        if freed.contains_key(&id) {
            continue;
        }
        if let Some(detail) = segment.damage {
            unreadable(core, recovery, id, detail);
        }
        let life = Life::Sealed(segment.seal);
        core.insert_segment(Arc::new(Segment::new(Arc::clone(&segment.info), life, segment.replay_from)));
        let complete = |known: &KnownSegment| known.sealed.is_some() && known.applied_stripes == segment.seal.stripes;
        if known.as_ref().is_some_and(complete) {
            continue;
        }
        recovery.segments.push(RecoveredSegment {
            info: segment.info,
            seal: segment.seal,
            applied_from: known.as_ref().map_or(0, |known| known.applied_stripes),
            known: known.is_some(),
        });
    }
}
