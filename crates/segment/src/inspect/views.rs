//! What is shown.

use gabion_types::SegmentId;
use serde::Serialize;

/// A target.
#[derive(Debug, Clone, Serialize)]
pub struct TargetView {
    /// Its path.
    pub name: String,
    /// Its id.
    pub target: String,
    /// The deployment that it belongs to.
    pub deployment: String,
    /// Its failure domain when it was formatted.
    pub failure_domain: String,
    /// Geometry that the deployment was formatted for.
    pub geometry: String,
    /// Ids of all targets of the deployment.
    pub members: Vec<String>,
    /// Size of its file system in bytes.
    pub total_bytes: u64,
    /// Bytes that may still be written.
    pub available_bytes: u64,
    /// Length of all its shard files together, in bytes.
    pub shard_bytes: u64,
    /// Files among the shards that are none.
    pub other_files: usize,
    /// Segments that have a shard on it.
    pub segments: Vec<SegmentFiles>,
}

/// The shard files of a segment on one target: more than one only where something went wrong.
#[derive(Debug, Clone, Serialize)]
pub struct SegmentFiles {
    /// The segment.
    pub segment: String,
    /// Its shards here.
    pub shards: Vec<u8>,
    /// Their length in bytes.
    pub bytes: u64,
}

/// A segment.
#[derive(Debug, Clone, Serialize)]
pub struct SegmentView {
    /// Its id.
    pub segment: String,
    /// The deployment that it belongs to.
    pub deployment: String,
    /// `small` (records) or `large` (stripes of large objects).
    pub kind: String,
    /// Its geometry.
    pub geometry: String,
    /// Whether its writer acknowledged before it synced.
    pub relaxed: bool,
    /// When it was opened, in milliseconds since 1970.
    pub created_ms: u64,
    /// Length that its shard files were planned for, in bytes.
    pub planned_bytes: u64,
    /// Whether any shard has a seal: then the segment ends there.
    pub sealed: bool,
    /// Its shards in order.
    pub shards: Vec<ShardView>,
    /// Its stripes in order, as far as headers lead.
    pub stripes: Vec<StripeLine>,
}

/// A shard of a segment.
#[derive(Debug, Clone, Serialize)]
pub struct ShardView {
    /// Its index; data shards come first.
    pub shard: u8,
    /// The target that it belongs on; zero: it was absent when the segment was opened.
    pub target: String,
    /// Where it was found.
    pub found_on: Option<String>,
    /// Length of its file in bytes.
    pub file_bytes: Option<u64>,
    /// Its header block.
    pub header: ChunkState,
    /// Its seal.
    pub seal: Option<SealView>,
}

/// A seal block.
#[derive(Debug, Clone, Serialize)]
pub struct SealView {
    /// Why the segment ended.
    pub reason: String,
    /// Number of stripes.
    pub stripes: u32,
    /// Offset just after the last one.
    pub end_offset: u64,
    /// Lowest sequence of its records.
    pub min_seq: String,
    /// Highest sequence of its records.
    pub max_seq: String,
    /// Payload in bytes.
    pub written_bytes: u64,
    /// Whether the shard failed while it was written, or was found cut short: it is built anew, whatever is read of it.
    pub distrusted: bool,
}

/// A stripe in the list of a segment.
#[derive(Debug, Clone, Serialize)]
pub struct StripeLine {
    /// Its index.
    pub stripe_index: u32,
    /// Its offset in every shard file.
    pub stripe_offset: u64,
    /// What it takes over all shards, in bytes.
    pub stored_bytes: u64,
    /// Its payload in bytes.
    pub payload_bytes: u64,
    /// State of each chunk's header.
    pub headers: Vec<ChunkState>,
}

/// What a chunk, or a part of it, looks like.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase", tag = "state", content = "detail")]
pub enum ChunkState {
    /// All checksums that were checked are right.
    Valid,
    /// It was read and is wrong.
    Corrupt(String),
    /// Zeros stand where its payload was, as in a stripe that was punched out when nothing needed it any more. Whether it was says the index.
    Punched,
    /// There is no file or no target.
    Missing,
    /// The target gave an error.
    Unreadable(String),
}

/// A stripe.
#[derive(Debug, Clone, Serialize)]
pub struct StripeView {
    /// The segment.
    pub segment: String,
    /// Its index.
    pub stripe_index: u32,
    /// Its offset in every shard file.
    pub stripe_offset: u64,
    /// Length of every chunk's header in bytes.
    pub header_bytes: usize,
    /// Length of the longest payload in bytes.
    pub chunk_bytes: u32,
    /// Bytes of a cell; 0 in a stripe of records.
    pub cell_bytes: u32,
    /// Lowest sequence of its records.
    pub min_seq: String,
    /// Highest sequence of its records.
    pub max_seq: String,
    /// Its chunks in order.
    pub chunks: Vec<ChunkView>,
    /// Its records, chunk by chunk, as far as they can be read without parity.
    pub records: Vec<RecordView>,
}

/// A chunk.
#[derive(Debug, Clone, Serialize)]
pub struct ChunkView {
    /// Its shard.
    pub shard: u8,
    /// `data` or `parity`.
    pub role: String,
    /// Payload in bytes.
    pub payload_bytes: usize,
    /// The part of it that holds records, in bytes.
    pub index_bytes: u32,
    /// Header and all blocks.
    pub state: ChunkState,
}

/// A record.
#[derive(Debug, Clone, Serialize)]
pub struct RecordView {
    /// Shard of the chunk that holds it.
    pub shard: u8,
    /// Its sequence.
    pub seq: String,
    /// `mutation` or `freed`.
    pub kind: String,
    /// Whether it was carried over from a freed segment.
    pub carried: bool,
    /// Length of the mutation in bytes.
    pub mutation_bytes: usize,
    /// The segment that it frees.
    pub frees: Option<String>,
    /// Its data.
    pub pieces: Vec<PieceView>,
}

/// A piece of a record's data.
#[derive(Debug, Clone, Serialize)]
pub struct PieceView {
    /// Shard of the chunk that holds it.
    pub shard: u8,
    /// From the start of the chunk, in bytes.
    pub start: u32,
    /// Length in bytes.
    pub len: u32,
    /// CRC-64/NVME, hexadecimal.
    pub crc64: String,
    /// Whether the bytes have that checksum.
    pub state: ChunkState,
}

impl SegmentFiles {
    pub(super) fn new(id: SegmentId) -> Self {
        Self { segment: id.to_string(), shards: Vec::new(), bytes: 0 }
    }
}
