//! What the log is told when it is opened.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use gabion_platform::{Clock, Disk, Entropy};
use gabion_types::limits::{BLOCK_BYTES, CHUNK_ALIGN_BYTES, CHUNK_PAYLOAD_BYTES_MAX, SEGMENT_PAYLOAD_BYTES_DEFAULT};
use gabion_types::{DeploymentId, Geometry, SegmentId};

use crate::error::LogError;
use crate::format::{SEAL_BLOCK_BYTES, shard_header_bytes};
use crate::segment_info::LaneKind;

/// When a write is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// After every chunk of its stripe is synced: survives power loss.
    #[default]
    Sync,
    /// After every chunk is written: survives the end of the process; power loss may take what came after the last [`crate::Log::sync`],
    /// from some record on. There is one lane of small records, whatever `small_lanes` says.
    Relaxed,
}

/// Settings of the log. Start from [`LogConfig::new`] and change what is needed.
#[derive(Debug, Clone)]
pub struct LogConfig {
    /// The deployment that the targets must be: then empty ones are not formatted, and others are refused. `None`: any, or a new one.
    pub expected_deployment: Option<DeploymentId>,
    /// Geometry of new segments.
    pub geometry: Geometry,
    /// When a write is acknowledged.
    pub durability: Durability,
    /// Writers of small records, at least 1.
    pub small_lanes: usize,
    /// Writers of large stripes, at least 1.
    pub large_lanes: usize,
    /// Payload of a segment in bytes, over all its data shards, at least 1 MiB; where a record does not fit in that, its segment is as long as it needs. Segments of small records
    /// may be shorter: [`LogConfig::shard_bytes_full`].
    pub segment_payload_bytes: u64,
    /// Payload of one stripe of a large object in bytes, over all its data shards; a multiple of `k` × 64 KiB.
    pub stripe_payload_bytes: usize,
    /// Memory for stripes of large objects that are being filled or written, parity included, in bytes.
    pub stripe_memory_bytes: u64,
    /// Zeros are written ahead while at most so many records are written at a time, in a stripe and waiting for the next: syncs then have no metadata to write.
    /// 0: none. Nothing where the file system does not overwrite in place, or durability is relaxed.
    pub prewrite_records_max: usize,
    /// Length of a piece of such zeros, in bytes of a shard: a multiple of 4096, at least that.
    pub prewrite_piece_bytes: u64,
    /// Most bytes (records and their data) in one group commit, unless a single record is larger.
    pub batch_bytes_max: usize,
    /// Most records in one group commit.
    pub batch_records_max: usize,
    /// Most records waiting in one small lane.
    pub queue_records_max: usize,
    /// Most bytes waiting in one small lane.
    pub queue_bytes_max: usize,
    /// Room that a small segment keeps for records without data, in bytes per shard; `None`: an eighth of the shard, 16 MiB at most.
    pub reserve_bytes: Option<u64>,
    /// Room on a target that new data leaves, in bytes: for records without data, and, but for a quarter of it, for what
    /// compaction moves.
    pub target_reserve_bytes: u64,
    /// Most decoded chunk headers in memory (each under 2 KiB in usual geometries).
    pub header_cache_entries: usize,
    /// Memory for small objects that are read again and again, in bytes; 0: none.
    pub warm_bytes: u64,
    /// Most shard files that reads keep open.
    pub open_files_max: usize,
    /// Most entries of the repair queue; beyond it, damage is only counted.
    pub repair_queue_max: usize,
    /// How long a failed target is left alone before it is probed again, in milliseconds.
    pub reprobe_ms: u64,
    /// Least time between two epochs of the list of members that are for nothing but forgetting what was freed, in milliseconds.
    pub epoch_interval_ms: u64,
    /// Repair and scrub.
    pub upkeep: UpkeepConfig,
    /// Freed segments that the index has no row of, and that are not forgotten: files of them go when they turn up.
    pub forgotten: BTreeSet<SegmentId>,
}

/// Settings of repair and scrub.
#[derive(Debug, Clone)]
pub struct UpkeepConfig {
    /// How long a target may be absent or failed before its shards are built elsewhere, in milliseconds.
    pub repair_delay_ms: u64,
    /// Most bytes of shards that are built in a second; 0: as fast as targets go.
    pub repair_bytes_per_s: u64,
    /// Segments that are repaired at a time, at least 1.
    pub repair_concurrency: usize,
    /// Most bytes that a scrub reads in a second; 0: as fast as targets go.
    pub scrub_bytes_per_s: u64,
}

impl Default for UpkeepConfig {
    fn default() -> Self {
        Self { repair_delay_ms: 600_000, repair_bytes_per_s: 0, repair_concurrency: 2, scrub_bytes_per_s: 50 << 20 }
    }
}

/// A directory that is given as a target.
#[derive(Clone)]
pub struct LogTarget {
    /// Its path, or another name for humans.
    pub name: String,
    /// Its disk; `None` if the directory is missing.
    pub disk: Option<Arc<dyn Disk>>,
    /// Its failure domain: shards of a segment are spread over these.
    pub failure_domain: String,
}

/// Time and randomness.
#[derive(Clone)]
pub struct Env {
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The source of identifiers.
    pub entropy: Arc<dyn Entropy>,
}

/// Payload that a stripe of a large object aims at, in bytes: about ten milliseconds of one NVMe's writes, so that a sync is small against it.
const STRIPE_PAYLOAD_AIM_BYTES: usize = 8 * 1024 * 1024;
/// Largest default chunk payload, in bytes.
const CHUNK_PAYLOAD_AIM_MAX_BYTES: usize = 4 * 1024 * 1024;

/// Zeros that are written ahead at a time, in bytes of a shard. A longer piece holds up the stripes that are written meanwhile: with 1 MiB the 99th percentile of
/// one client's puts was twice as long.
const PREWRITE_PIECE_BYTES: u64 = 128 * 1024;

/// A block group of an ext4 with blocks of 4 KiB, in bytes: an extent ends with it.
const BLOCK_GROUP_BYTES: u64 = 128 << 20;
/// Length of a shard of small records that has at most two extents of an unfragmented ext4, in bytes: less than a block group has beside what the file system keeps there.
const TWO_EXTENTS_BYTES: u64 = 112 << 20;
/// Longest shard that has three, in bytes.
const THREE_EXTENTS_BYTES: u64 = 3 * BLOCK_GROUP_BYTES;

impl LogConfig {
    /// Good defaults for `geometry`.
    #[must_use]
    pub fn new(geometry: Geometry) -> Self {
        let chunk = (STRIPE_PAYLOAD_AIM_BYTES / geometry.data()).clamp(BLOCK_BYTES, CHUNK_PAYLOAD_AIM_MAX_BYTES);
        let chunk = chunk / BLOCK_BYTES * BLOCK_BYTES;
        Self {
            expected_deployment: None,
            geometry,
            durability: Durability::Sync,
            small_lanes: 2,
            large_lanes: 4,
            segment_payload_bytes: SEGMENT_PAYLOAD_BYTES_DEFAULT,
            stripe_payload_bytes: chunk * geometry.data(),
            stripe_memory_bytes: 256 * 1024 * 1024,
            prewrite_records_max: 24,
            prewrite_piece_bytes: PREWRITE_PIECE_BYTES,
            batch_bytes_max: 4 * 1024 * 1024,
            batch_records_max: 1024,
            queue_records_max: 4096,
            queue_bytes_max: 64 * 1024 * 1024,
            reserve_bytes: None,
            target_reserve_bytes: 1 << 30,
            header_cache_entries: 16 * 1024,
            warm_bytes: 0,
            open_files_max: 1024,
            repair_queue_max: 64 * 1024,
            reprobe_ms: 30_000,
            epoch_interval_ms: 60_000,
            upkeep: UpkeepConfig::default(),
            forgotten: BTreeSet::new(),
        }
    }

    /// Length of a shard of a new segment where there is room enough, in bytes, with headers and seal.
    ///
    /// Each synced stripe of small records makes some more of a preallocated file written blocks. An inode of ext4 holds four extents; a file that has three, beside what was
    /// written, gets a block for a tree with each such sync, and loses it again. So such shards are shorter. Longer ones keep their tree (docs/adr/0023).
    #[must_use]
    pub fn shard_bytes_full(&self, kind: LaneKind) -> u64 {
        let payload_bytes = self.segment_payload_bytes.div_ceil(self.geometry.data() as u64);
        let aligned = payload_bytes.next_multiple_of(CHUNK_ALIGN_BYTES as u64);
        let shard_bytes = aligned + (shard_header_bytes(self.geometry.shards()) + SEAL_BLOCK_BYTES) as u64;
        let is_synced_often = kind == LaneKind::Small && self.durability == Durability::Sync;
        if is_synced_often && (TWO_EXTENTS_BYTES..=THREE_EXTENTS_BYTES).contains(&shard_bytes) {
            TWO_EXTENTS_BYTES
        } else {
            shard_bytes
        }
    }

    pub(crate) fn check(&self) -> Result<(), LogError> {
        let row_bytes = self.geometry.data() * BLOCK_BYTES;
        let chunk_bytes = self.stripe_payload_bytes / self.geometry.data();
        let stripe_memory =
            self.stripe_payload_bytes as u64 / self.geometry.data() as u64 * self.geometry.shards() as u64;
        let rules = [
            (self.small_lanes >= 1 && self.large_lanes >= 1, "at least one small and one large lane are needed"),
            (self.small_lanes <= 256 && self.large_lanes <= 256, "more than 256 lanes of a kind"),
            (self.segment_payload_bytes >= 1 << 20, "segment_payload_bytes is below 1 MiB"),
            (self.segment_payload_bytes <= 1 << 40, "segment_payload_bytes is above 1 TiB"),
            (self.stripe_payload_bytes > 0, "stripe_payload_bytes is zero"),
            (self.stripe_payload_bytes.is_multiple_of(row_bytes), "stripe_payload_bytes is no multiple of k * 64 KiB"),
            (chunk_bytes <= CHUNK_PAYLOAD_BYTES_MAX, "stripe_payload_bytes is above k * 8 MiB"),
            (u32::try_from(self.stripe_payload_bytes).is_ok(), "stripe_payload_bytes is above 4 GiB"),
            (
                self.segment_payload_bytes
                    >= (self.stripe_payload_bytes + self.geometry.data() * 2 * CHUNK_ALIGN_BYTES) as u64,
                "segment_payload_bytes does not hold one stripe of a large object",
            ),
            (self.stripe_memory_bytes >= stripe_memory, "stripe_memory_bytes does not hold one stripe"),
            (
                self.prewrite_piece_bytes > 0 && self.prewrite_piece_bytes.is_multiple_of(CHUNK_ALIGN_BYTES as u64),
                "prewrite_piece_bytes is no multiple of 4096",
            ),
            (self.batch_bytes_max <= 5 << 20, "batch_bytes_max is above 5 MiB"),
            (self.batch_records_max >= 1 && self.queue_records_max >= 1, "batch and queue must take one record"),
        ];
        match rules.iter().find(|(holds, _)| !holds) {
            Some((_, broken)) => Err(LogError::Invalid((*broken).to_owned())),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sync => "sync",
            Self::Relaxed => "relaxed",
        })
    }
}

impl FromStr for Durability {
    type Err = LogError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "sync" => Ok(Self::Sync),
            "relaxed" => Ok(Self::Relaxed),
            _ => Err(LogError::Invalid(format!("durability {text:?}: it is sync or relaxed"))),
        }
    }
}

impl fmt::Debug for LogTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogTarget")
            .field("name", &self.name)
            .field("present", &self.disk.is_some())
            .field("failure_domain", &self.failure_domain)
            .finish()
    }
}

impl fmt::Debug for Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Env")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_hold_for_every_geometry() {
        for (data, parity) in [(1, 0), (1, 1), (2, 1), (4, 2), (8, 3), (10, 4), (128, 16)] {
            LogConfig::new(Geometry::new(data, parity).unwrap()).check().unwrap();
        }
    }

    #[test]
    fn durability_parses_what_it_prints() {
        for durability in [Durability::Sync, Durability::Relaxed] {
            assert_eq!(durability.to_string().parse::<Durability>().unwrap(), durability);
        }
        assert!("fast".parse::<Durability>().is_err());
    }
}
