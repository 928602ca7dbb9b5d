//! The block at the front of every shard file: which segment, which shard, and where the others are.

use gabion_types::limits::SHARDS_MAX;
use gabion_types::{DeploymentId, Geometry, SegmentId, TargetId};

use super::align;
use super::field::{FormatError, Reader, Writer, checked};
use crate::segment_info::LaneKind;

const MAGIC: &[u8; 8] = b"GABSHARD";
const VERSION: u16 = 1;
const FIXED_BYTES: usize = 88;
const FLAG_RELAXED: u8 = 1;

/// Length of the longest header block in bytes.
pub(crate) const SHARD_HEADER_BYTES_MAX: usize = shard_header_bytes(SHARDS_MAX);

/// Length of the header block in bytes for this many shards.
pub(crate) const fn shard_header_bytes(shards: usize) -> usize {
    align(FIXED_BYTES + 16 * shards + 8)
}

/// The header block of one shard file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ShardHeader {
    pub(crate) kind: LaneKind,
    /// Whether stripes were acknowledged before they were synced: what the index applied may then not be on the media.
    pub(crate) relaxed: bool,
    pub(crate) segment: SegmentId,
    pub(crate) deployment: DeploymentId,
    pub(crate) shard: u8,
    pub(crate) geometry: Geometry,
    pub(crate) writer: u64,
    /// 0 in the file that the segment was opened with; higher in one that was built anew.
    pub(crate) epoch: u64,
    pub(crate) created_ms: u64,
    /// Length that the shard file was planned for, in bytes.
    pub(crate) planned_bytes: u64,
    /// Target of every shard; `NONE` where it was absent when the segment was opened.
    pub(crate) targets: Vec<TargetId>,
}

impl ShardHeader {
    /// The block, a multiple of 4 KiB long.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![0; shard_header_bytes(self.targets.len())];
        let header_bytes = u32::try_from(out.len()).expect("at most SHARD_HEADER_BYTES_MAX");
        let mut writer = Writer::new(&mut out);
        writer.put(MAGIC).u16(VERSION).lane_kind(self.kind).u8(if self.relaxed { FLAG_RELAXED } else { 0 });
        writer.u32(header_bytes).put(&self.segment.to_bytes()).put(&self.deployment.to_bytes());
        writer.u8(self.shard).u8(self.geometry.data() as u8).u8(self.geometry.parity() as u8).zeros(5);
        writer.u64(self.writer).u64(self.epoch).u64(self.created_ms).u64(self.planned_bytes);
        for target in &self.targets {
            writer.put(&target.to_bytes());
        }
        writer.finish();
        out
    }

    /// Reads the block at the front of `bytes`, which may go on after it.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut reader = Reader::new(bytes);
        reader.magic_and_version(MAGIC, VERSION)?;
        let kind = reader.lane_kind()?;
        let flags = reader.u8()?;
        let header_bytes = reader.u32()? as usize;
        if !(FIXED_BYTES + 8..=SHARD_HEADER_BYTES_MAX).contains(&header_bytes) {
            return Err(FormatError::Field("header length"));
        }
        checked(bytes.get(..header_bytes).ok_or(FormatError::Short)?)?;
        let segment = SegmentId::from_bytes(reader.array()?);
        let deployment = DeploymentId::from_bytes(reader.array()?);
        let shard = reader.u8()?;
        let (data, parity) = (reader.u8()?, reader.u8()?);
        reader.zeros(5)?;
        let geometry = Geometry::new(data.into(), parity.into()).map_err(|_| FormatError::Field("geometry"))?;
        if flags & !FLAG_RELAXED != 0 {
            return Err(FormatError::Field("flags"));
        }
        if usize::from(shard) >= geometry.shards() || header_bytes != shard_header_bytes(geometry.shards()) {
            return Err(FormatError::Field("shard"));
        }
        let (writer, epoch) = (reader.u64()?, reader.u64()?);
        let (created_ms, planned_bytes) = (reader.u64()?, reader.u64()?);
        let targets =
            (0..geometry.shards()).map(|_| reader.array().map(TargetId::from_bytes)).collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            kind,
            relaxed: flags & FLAG_RELAXED != 0,
            segment,
            deployment,
            shard,
            geometry,
            writer,
            epoch,
            created_ms,
            planned_bytes,
            targets,
        })
    }
}
