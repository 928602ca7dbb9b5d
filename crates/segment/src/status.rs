//! What the log looks like at one moment, for the admin page.

use gabion_types::{SegmentId, TargetId};
use serde::{Serialize, Serializer};
use tokio::sync::Semaphore;

use crate::segment_info::LaneKind;

/// A snapshot of the log.
#[derive(Debug, Clone, Serialize)]
pub struct LogStatus {
    /// The deployment's id.
    pub deployment: String,
    /// Geometry of new segments.
    pub geometry: String,
    /// All targets that were given.
    pub targets: Vec<TargetStatus>,
    /// Members of the deployment that no given target is.
    #[serde(serialize_with = "as_texts")]
    pub missing_members: Vec<TargetId>,
    /// Epoch of the list of members: it grows with every change.
    pub membership_epoch: u64,
    /// Segments by the number of shards that they lack: the first are whole. Of those that are written still only the ones that lack some.
    pub redundancy: Vec<usize>,
    /// Those that lack shards, and of which no further one may be lost.
    pub at_risk: usize,
    /// How far repair is.
    pub repair: RepairStatus,
    /// Shards on their way from fuller to emptier targets, while that was asked for and is not done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rebalance: Option<RebalanceStatus>,
    /// All lanes.
    pub lanes: Vec<LaneStatus>,
    /// Segments that a lane writes.
    pub open_segments: usize,
    /// Sealed segments.
    pub sealed_segments: usize,
    /// Segments with fewer readable shards than data shards.
    pub unreadable_segments: usize,
    /// Shards that need repair.
    pub repairs: Vec<RepairEntry>,
    /// Why the log refuses all writes, if it does.
    pub poisoned: Option<String>,
}

/// A target at one moment.
#[derive(Debug, Clone, Serialize)]
pub struct TargetStatus {
    /// Its path, or another name for humans.
    pub name: String,
    /// Its id; zero if the directory is missing or no member.
    #[serde(serialize_with = "as_text")]
    pub id: TargetId,
    /// Its failure domain.
    pub failure_domain: String,
    /// How it does.
    pub state: TargetState,
    /// Its shards are being moved away, and no new ones come.
    pub draining: bool,
    /// The target whose shards it takes, if it replaces one.
    #[serde(serialize_with = "as_optional_text", skip_serializing_if = "Option::is_none")]
    pub replaces: Option<TargetId>,
    /// It has not done in time what it was to do: what can do without it does.
    pub silent: bool,
    /// It came back as an older image of itself: what was deleted meanwhile does not count on it.
    pub stale: bool,
    /// Files of segments that were deleted before it came back as an older image: they may be removed by hand.
    pub set_aside_files: usize,
    /// Shards of sealed segments that lie on it.
    pub shards: usize,
    /// Shards on it of segments that are still written to.
    pub open_shards: usize,
    /// Bytes that may still be written, as far as was last seen.
    pub available_bytes: u64,
    /// Size of its file system in bytes, as far as was last seen.
    pub total_bytes: u64,
    /// The last error that it gave.
    pub last_error: Option<String>,
}

/// How a target does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TargetState {
    /// It takes reads and writes.
    Online,
    /// It was not there when the log was opened.
    Absent,
    /// A write or sync failed; it is probed again before it gets new segments.
    Failed,
    /// It has too little room for new data.
    Full,
}

/// A lane at one moment.
#[derive(Debug, Clone, Serialize)]
pub struct LaneStatus {
    /// What it writes.
    pub kind: LaneKind,
    /// Records or stripes waiting.
    pub queued: usize,
    /// Bytes waiting.
    pub queued_bytes: usize,
    /// Records or stripes being written or applied.
    pub in_flight: usize,
}

/// A budget of memory at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct MemoryUse {
    /// What it is for.
    pub name: &'static str,
    /// What is taken of it, in bytes: nothing while nothing is asked.
    pub used_bytes: u64,
    /// Most that can be taken.
    pub limit_bytes: u64,
}

impl MemoryUse {
    /// Of a semaphore that had `units` permits of `unit_bytes` each.
    pub fn of(name: &'static str, semaphore: &Semaphore, units: usize, unit_bytes: usize) -> Self {
        let used = units.saturating_sub(semaphore.available_permits());
        Self { name, used_bytes: used as u64 * unit_bytes as u64, limit_bytes: units as u64 * unit_bytes as u64 }
    }
}

/// Repair at one moment.
#[derive(Debug, Clone, Serialize)]
pub struct RepairStatus {
    /// Whether it is at work.
    pub running: bool,
    /// Segments with shards to be built or moved; without those whose targets are waited for.
    pub segments_left: usize,
    /// Shards to be built or moved.
    pub shards_left: usize,
    /// Their bytes.
    pub bytes_left: u64,
    /// Shards that are missing and not among those: their targets may come back, and are waited for.
    pub shards_waiting: usize,
    /// More damage was found than could be noted: the next scrub finds it.
    pub overflowed: bool,
    /// Bytes built per second in this pass; 0 while that is not known.
    pub bytes_per_s: u64,
    /// Seconds until all is done at this rate.
    pub eta_s: Option<u64>,
    /// Shards that found no target to go to in the last pass.
    pub blocked: usize,
    /// The last thing that failed.
    pub last_error: Option<String>,
}

/// Rebalancing at one moment.
#[derive(Debug, Clone, Default, Serialize)]
pub struct RebalanceStatus {
    /// How far apart the fills of two targets may be in the end, in percent of their size.
    pub until_percent: u8,
    /// How far apart they were when it was last planned.
    pub spread_percent: u8,
    /// Shards that are to be moved, as last planned.
    pub shards_left: usize,
    /// Their bytes.
    pub bytes_left: u64,
    /// Shards that were moved since it was asked for, or since the start.
    pub shards_moved: usize,
    /// Their bytes.
    pub bytes_moved: u64,
}

/// A shard that needs repair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct RepairEntry {
    /// The segment.
    #[serde(serialize_with = "segment_text")]
    pub segment: SegmentId,
    /// The shard.
    pub shard: u8,
}

/// What is known to be damaged or missing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Damage {
    /// Shards that need repair.
    pub shards: Vec<RepairEntry>,
    /// There is more, which a scrub is to find.
    pub more: bool,
}

fn as_text<S: Serializer>(id: &TargetId, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(id)
}

fn as_optional_text<S: Serializer>(id: &Option<TargetId>, serializer: S) -> Result<S::Ok, S::Error> {
    match id {
        Some(id) => serializer.collect_str(id),
        None => serializer.serialize_none(),
    }
}

fn segment_text<S: Serializer>(id: &SegmentId, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(id)
}

fn as_texts<S: Serializer>(ids: &[TargetId], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(ids.iter().map(ToString::to_string))
}
