//! What the store is opened with, and what opening reports.

use std::{str::FromStr, sync::Arc};

use gabion_metadata::{Index, IndexError};
use gabion_platform::{Clock, Entropy};
use gabion_segment::LogConfig;
use gabion_types::{
    Seq,
    limits::{INLINE_BYTES_MAX, MUTATION_BYTES_MAX, PART_BYTES_MIN},
};

/// Configuration of a store.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// The log's own.
    pub log: LogConfig,
    /// Region of buckets that are created without one.
    pub region: String,
    /// Owner of all buckets and objects.
    pub owner: Owner,
    /// Time between checkpoints of the index while there is work, in milliseconds; at least 1.
    pub checkpoint_interval_ms: u64,
    /// Bytes written to the log after which a checkpoint is made before its time.
    pub checkpoint_bytes: u64,
    /// Bytes written to the log after which the index is written to it as well; more if the index is large. 0: never, and what was written is
    /// given back.
    pub index_snapshot_bytes: u64,
    /// Hours after which it is written in any case, if anything changed; 0: never.
    pub index_snapshot_interval_h: u64,
    /// Whether an index that is lost is begun with the newest snapshot in the log, and not with nothing.
    pub index_snapshot_restore: bool,
    /// What the entity tags of new objects and parts are.
    pub etag: EtagKind,
    /// Room that the index' file system keeps, in bytes: below it nothing new is taken in (`NoSpace`), deletions go on. Looked at with
    /// every checkpoint interval.
    pub index_reserve_bytes: u64,
    /// Longest wait for a share of the memory for bodies or of that for downloads before the client is told `Busy`, in milliseconds.
    pub memory_wait_ms: u64,
    /// Time between looks at what there is to repair, in milliseconds; 0: nothing is repaired by itself. Damage that is noted is looked
    /// at earlier.
    pub repair_interval_ms: u64,
    /// Time between two scrubs, in hours; 0: nothing is scrubbed by itself.
    pub scrub_interval_h: u64,
    /// Bytes of small bodies that are in memory at a time; at least one body of `INLINE_BYTES_MAX`. A request waits for
    /// its share before it reads its body.
    pub put_memory_bytes: u64,
    /// Bytes of objects that reads hold in memory at a time. Half of it is for what readers need next, half a MiB each, for which they wait;
    /// the other half is for what is read ahead, or loaded ahead into the page cache, as far as it is free.
    pub read_memory_bytes: u64,
    /// Large stripes that a body stream has loaded or read behind the one that its reader has begun; at least 1.
    pub read_ahead_stripes: usize,
    /// Slots of the table of key locks; at least 1.
    pub key_locks: usize,
    /// Compaction.
    pub compaction: CompactionConfig,
    /// Longest description of an object that compaction writes in one record, in bytes, at most `MUTATION_BYTES_MAX`; smaller in tests.
    pub move_bytes_max: usize,
    /// Smallest part that is not the last one of its upload, in bytes (AWS: 5 MiB); smaller in tests.
    pub part_bytes_min: u64,
}

impl StoreConfig {
    /// Defaults around a log configuration.
    #[must_use]
    pub fn new(log: LogConfig) -> Self {
        Self {
            log,
            region: "us-east-1".into(),
            owner: Owner { id: "gabion".into(), display_name: "gabion".into() },
            checkpoint_interval_ms: 1000,
            checkpoint_bytes: 1 << 30,
            index_snapshot_bytes: 16 << 30,
            index_snapshot_interval_h: 24,
            index_snapshot_restore: true,
            etag: EtagKind::Md5,
            index_reserve_bytes: 512 << 20,
            memory_wait_ms: 20_000,
            repair_interval_ms: 5000,
            scrub_interval_h: 168,
            put_memory_bytes: 256 * INLINE_BYTES_MAX as u64,
            read_memory_bytes: 768 << 20,
            read_ahead_stripes: 3,
            key_locks: 4096,
            compaction: CompactionConfig::default(),
            move_bytes_max: MUTATION_BYTES_MAX,
            part_bytes_min: PART_BYTES_MIN,
        }
    }
}

/// What entity tags are. What is stored keeps the tag that it was given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EtagKind {
    /// The MD5 of the bytes, as on AWS; of an upload in parts, of the parts' MD5s.
    #[default]
    Md5,
    /// The CRC-64/NVME of the bytes, which is computed in any case: no MD5 is, but for a client who sends one. It detects accidents, not
    /// forgery.
    Crc64Nvme,
}

impl FromStr for EtagKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "md5" => Ok(Self::Md5),
            "crc64nvme" => Ok(Self::Crc64Nvme),
            _ => Err(format!("{text:?} is neither md5 nor crc64nvme")),
        }
    }
}

/// How segments in which little is live are compacted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CompactionConfig {
    /// Most of a segment that may be live, from 0 to 1, so that it is compacted. More when space is short.
    pub live_ratio_max: f64,
    /// Bytes per second that are moved at most, while space is not short; 0: no limit. What is shorter than 16 KiB counts as that.
    pub bytes_per_s: u64,
    /// Time between two looks for segments to compact, in milliseconds; at least 1.
    pub interval_ms: u64,
    /// Whether dead stripes of large objects are punched out of their segments, where targets can do that, before anything is moved.
    pub punch_holes: bool,
    /// Longest time that a write waits for room which compaction is making, in milliseconds, before the client is told `Busy`; 0: writes are never
    /// held back.
    pub writers_wait_ms: u64,
    /// Live bytes of all segments that one round compacts. A round reads the index once, and needs as much room as it moves.
    pub round_bytes_max: u64,
}

impl Default for CompactionConfig {
    fn default() -> Self {
        Self {
            live_ratio_max: 0.7,
            bytes_per_s: 64 << 20,
            interval_ms: 10_000,
            punch_holes: true,
            writers_wait_ms: 20_000,
            round_bytes_max: 8 << 30,
        }
    }
}

/// Who owns buckets and objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Canonical id.
    pub id: String,
    /// Name for humans.
    pub display_name: String,
}

/// The world outside: time and randomness.
#[derive(Clone)]
pub struct Env {
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Randomness.
    pub entropy: Arc<dyn Entropy>,
}

/// Opens the index of a deployment, or throws it away.
pub trait IndexFactory: Send + Sync {
    /// Opens the index; an empty one where there is none.
    ///
    /// # Errors
    /// `Corrupt` when it can not be trusted: the store then destroys and rebuilds it.
    fn open(&self) -> Result<Arc<dyn Index>, IndexError>;

    /// Moves what is there aside or deletes it, so that the next [`IndexFactory::open`] gives an empty index. No handle
    /// to it is open any more.
    ///
    /// # Errors
    /// `Io`.
    fn destroy(&self) -> Result<(), IndexError>;
}

/// Is told how far a replay or rebuild got.
pub trait Progress: Send + Sync {
    /// `mutations` were replayed so far, of segments with `bytes_total` bytes to read, `bytes_done` of them read.
    fn replayed(&self, mutations: u64, bytes_done: u64, bytes_total: u64);
}

/// Tells nobody.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Progress for Silent {
    fn replayed(&self, _: u64, _: u64, _: u64) {}
}

/// What opening a store found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenReport {
    /// Why the index was rebuilt from the segments; nothing when it was not.
    pub index_rebuilt: Option<String>,
    /// Rows that the index was given back from its newest snapshot in the log, before anything was replayed.
    pub rows_restored: u64,
    /// Mutations replayed from the log.
    pub mutations_replayed: u64,
    /// Segments found.
    pub segments: usize,
    /// Stripes that recovery completed.
    pub stripes_rolled_forward: u64,
    /// Stripes that recovery voided: they were never acknowledged.
    pub stripes_voided: u64,
    /// Segments of which mutations, or all, can not be read: more of their shards are lost, damaged or silent than parity replaces.
    pub segments_unreadable: usize,
    /// Sentences for the operator.
    pub warnings: Vec<String>,
}

/// A snapshot of the index that was written to the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotReport {
    /// Number of its rows.
    pub rows: u64,
    /// Its length in bytes.
    pub bytes: u64,
    /// What writing it stored on all targets, with parity and headers, in bytes: so much at most.
    pub stored_bytes: u64,
    /// The commit that made it the newest.
    pub seq: Seq,
}

/// What a comparison of the index with the log found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// What opening the present index found.
    pub present: OpenReport,
    /// What building the other one found.
    pub rebuilt: OpenReport,
    /// Rows that were compared.
    pub rows: u64,
    /// Rows that differ.
    pub differing: u64,
    /// The first hundred of them.
    pub differences: Vec<RowDifference>,
}

/// A row of the present index that is not what the log says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowDifference {
    /// The table's name.
    pub table: &'static str,
    /// The row's key.
    pub key: Vec<u8>,
    /// What is wrong with it.
    pub fault: RowFault,
}

/// What is wrong with a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowFault {
    /// The log has it, the index does not.
    Missing,
    /// The index has it, the log does not.
    Surplus,
    /// They say different things.
    Different,
}

/// What a rebuild of the index did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RebuildReport {
    /// What the opening at its end found.
    pub open: OpenReport,
    /// Buckets in the rebuilt index.
    pub buckets: u64,
    /// Current objects in the rebuilt index.
    pub objects: u64,
}
