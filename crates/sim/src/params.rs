//! What a run is: everything that its seed decides beforehand.

use std::fmt;

use gabion_platform::Dice;
use gabion_segment::{Durability, LogConfig};
use gabion_store::{EtagKind, StoreConfig};
use gabion_types::{Geometry, limits::BLOCK_BYTES};

/// Client operations of a run, unless told otherwise.
const OPS: std::ops::Range<u64> = 60..360;

/// Least length of a part that is not the last one.
pub(crate) const PART_BYTES_MIN: usize = 10;

/// What a caller wants to be other than the seed has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// Client operations.
    pub ops: Option<u64>,
    /// The geometry.
    pub geometry: Option<Geometry>,
    /// No target fails: crashes, restarts and loss of the index only.
    pub calm: bool,
}

/// A run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Params {
    /// What everything follows from.
    pub seed: u64,
    /// What was changed about it.
    pub overrides: Overrides,
    /// Client operations, all lives together.
    pub ops: u64,
    /// Geometry of segments.
    pub geometry: Geometry,
    /// Targets, at least as many as a segment has shards.
    pub targets: usize,
    /// Clients that work at a time.
    pub clients: u64,
    /// Keys that they share.
    pub keys: usize,
    /// Whether targets may fail.
    pub targets_fail: bool,
    small_lanes: usize,
    large_lanes: usize,
    stripe_blocks: usize,
    segment_payload_bytes: u64,
    checkpoint_interval_ms: u64,
    checkpoint_bytes: u64,
    batch_records_max: usize,
    /// Whether segments are compacted, repaired and scrubbed.
    pub has_upkeep: bool,
    compaction_interval_ms: u64,
    index_snapshot_bytes: u64,
    /// Whether one of the buckets comes and goes.
    pub buckets_change: bool,
    /// Targets that may join while clients are at work; without any, none joins or leaves.
    pub spare_targets: usize,
    /// Whether writes are acknowledged before they are synced.
    pub is_relaxed: bool,
    /// What entity tags are.
    pub etag: EtagKind,
    /// Most records ahead of which zeros are written, and how many bytes of them at a time.
    prewrite_records_max: usize,
    prewrite_piece_bytes: u64,
    /// Memory for short pieces that were read, in bytes.
    warm_bytes: u64,
}

impl Params {
    /// What follows from `seed`.
    #[must_use]
    pub fn derive(seed: u64, overrides: Overrides) -> Self {
        let mut dice = Dice::new(seed);
        let geometries = [(1, 0), (1, 1), (2, 1), (2, 2), (3, 2), (4, 2)];
        let (data, parity) = pick(&mut dice, &geometries);
        let extra_targets = pick(&mut dice, &[0, 0, 1, 2]);
        let mut params = Self {
            seed,
            ops: OPS.start + dice.below(OPS.end - OPS.start),
            geometry: Geometry::new(data, parity).expect("the geometries above are valid"),
            targets: 0,
            clients: 1 + dice.below(8),
            keys: 3 + dice.below(12) as usize,
            targets_fail: dice.below(4) > 0,
            small_lanes: 1 + dice.below(3) as usize,
            large_lanes: 1 + dice.below(2) as usize,
            stripe_blocks: pick(&mut dice, &[1, 2, 3, 6]),
            segment_payload_bytes: (1 << 20) << dice.below(3),
            checkpoint_interval_ms: pick(&mut dice, &[5, 50, 500, 1 << 40]),
            checkpoint_bytes: pick(&mut dice, &[1 << 18, 1 << 22, u64::MAX]),
            batch_records_max: pick(&mut dice, &[1, 4, 1024]),
            has_upkeep: dice.below(4) > 0,
            compaction_interval_ms: pick(&mut dice, &[20, 300, 1 << 40]),
            index_snapshot_bytes: pick(&mut dice, &[0, 16 << 10, 64 << 10, 256 << 10, 1 << 20]),
            buckets_change: dice.below(3) == 0,
            spare_targets: pick(&mut dice, &[0, 0, 1, 3]),
            is_relaxed: dice.below(4) == 0,
            etag: pick(&mut dice, &[EtagKind::Md5, EtagKind::Md5, EtagKind::Crc64Nvme]),
            prewrite_records_max: pick(&mut dice, &[0, 24, 1024, 1024]),
            prewrite_piece_bytes: pick(&mut dice, &[8 << 10, 16 << 10, 16 << 10, 32 << 10]),
            warm_bytes: pick(&mut dice, &[0, 64 << 10, 1 << 20]),
            overrides,
        };
        params.ops = params.overrides.ops.unwrap_or(params.ops);
        params.geometry = params.overrides.geometry.unwrap_or(params.geometry);
        params.targets = params.geometry.shards() + extra_targets;
        // What is drained is moved by repair.
        params.spare_targets *= usize::from(params.has_upkeep);
        params.targets_fail &= !params.overrides.calm && params.geometry.parity() > 0;
        params
    }

    /// How the store is opened.
    pub(crate) fn config(&self) -> StoreConfig {
        let mut log = LogConfig::new(self.geometry);
        log.small_lanes = self.small_lanes;
        log.large_lanes = self.large_lanes;
        log.stripe_payload_bytes = self.stripe_blocks * self.geometry.data() * BLOCK_BYTES;
        let stripe_and_headers = log.stripe_payload_bytes + self.geometry.data() * 8192;
        log.segment_payload_bytes = self.segment_payload_bytes.max(stripe_and_headers as u64);
        log.batch_records_max = self.batch_records_max;
        log.prewrite_records_max = self.prewrite_records_max;
        log.prewrite_piece_bytes = self.prewrite_piece_bytes;
        log.warm_bytes = self.warm_bytes;
        log.target_reserve_bytes = 0;
        log.reprobe_ms = 100;
        log.epoch_interval_ms = 40;
        log.durability = if self.is_relaxed { Durability::Relaxed } else { Durability::Sync };
        log.upkeep.repair_delay_ms = 200;
        let mut config = StoreConfig::new(log);
        config.checkpoint_interval_ms = self.checkpoint_interval_ms;
        config.checkpoint_bytes = self.checkpoint_bytes;
        config.index_snapshot_bytes = self.index_snapshot_bytes;
        config.scrub_interval_h = 0;
        config.repair_interval_ms = if self.has_upkeep { 50 } else { 0 };
        config.compaction.interval_ms = if self.has_upkeep { self.compaction_interval_ms } else { 1 << 40 };
        config.etag = self.etag;
        config.part_bytes_min = PART_BYTES_MIN as u64;
        config.read_memory_bytes = 16 << 20;
        config.put_memory_bytes = 8 << 20;
        config
    }
}

/// Arguments of `cargo xtask sim` that run it again.
impl fmt::Display for Params {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "--seed {}", self.seed)?;
        if let Some(ops) = self.overrides.ops {
            write!(f, " --steps {ops}")?;
        }
        if let Some(geometry) = self.overrides.geometry {
            write!(f, " --geometry {geometry}")?;
        }
        if self.overrides.calm {
            f.write_str(" --calm")?;
        }
        Ok(())
    }
}

/// One of `choices`.
pub(crate) fn pick<T: Copy>(dice: &mut Dice, choices: &[T]) -> T {
    choices[dice.below(choices.len() as u64) as usize]
}
