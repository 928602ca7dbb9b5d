//! The block that ends a segment. One valid seal on any shard ends the segment at its offset, whatever stands there on others.

use gabion_types::{DeploymentId, SegmentId, Seq};

use super::field::{FormatError, Reader, Writer, checked};
use crate::segment_info::{LaneKind, Seal};

const MAGIC: &[u8; 8] = b"GABSEAL\0";
const VERSION: u16 = 1;

/// Length of the block in bytes.
pub(crate) const SEAL_BLOCK_BYTES: usize = 4096;

/// Why a segment ended: for humans, nothing is decided by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SealReason {
    /// The next stripe did not fit.
    Complete,
    /// A shard failed; all stripes before are acknowledged.
    Degraded,
    /// Too few chunks of the next stripe became durable: that stripe is void.
    Voided,
    /// It was open when the writer ended.
    Recovered,
}

/// A seal block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SealBlock {
    pub(crate) kind: LaneKind,
    pub(crate) reason: SealReason,
    pub(crate) segment: SegmentId,
    pub(crate) deployment: DeploymentId,
    pub(crate) seal: Seal,
    /// The shard failed while it was written: its medium may lack what the page cache shows, until it is built anew. Or a start found its file cut short.
    pub(crate) is_distrusted: bool,
}

impl SealBlock {
    /// The block.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![0; SEAL_BLOCK_BYTES];
        let mut writer = Writer::new(&mut out);
        let reason = match self.reason {
            SealReason::Complete => 1,
            SealReason::Degraded => 2,
            SealReason::Voided => 3,
            SealReason::Recovered => 4,
        };
        writer.put(MAGIC).u16(VERSION).lane_kind(self.kind).u8(reason).u32(self.seal.stripes);
        writer.put(&self.segment.to_bytes()).put(&self.deployment.to_bytes()).u64(self.seal.end_offset);
        writer.u64(self.seal.min_seq.as_u64()).u64(self.seal.max_seq.as_u64()).u64(self.seal.written_bytes);
        writer.u8(u8::from(self.is_distrusted));
        writer.finish();
        out
    }

    /// Reads the block at the front of `bytes`, which were read at `offset`: a seal is valid only where it belongs.
    pub(crate) fn decode(bytes: &[u8], offset: u64) -> Result<Self, FormatError> {
        let mut reader = Reader::new(bytes);
        reader.magic_and_version(MAGIC, VERSION)?;
        checked(bytes.get(..SEAL_BLOCK_BYTES).ok_or(FormatError::Short)?)?;
        let kind = reader.lane_kind()?;
        let reason = match reader.u8()? {
            1 => SealReason::Complete,
            2 => SealReason::Degraded,
            3 => SealReason::Voided,
            4 => SealReason::Recovered,
            _ => return Err(FormatError::Field("reason")),
        };
        let stripes = reader.u32()?;
        let segment = SegmentId::from_bytes(reader.array()?);
        let deployment = DeploymentId::from_bytes(reader.array()?);
        let end_offset = reader.u64()?;
        if end_offset != offset {
            return Err(FormatError::Field("end offset"));
        }
        let (min_seq, max_seq) = (Seq::from_u64(reader.u64()?), Seq::from_u64(reader.u64()?));
        let seal = Seal { stripes, end_offset, min_seq, max_seq, written_bytes: reader.u64()? };
        let is_distrusted = match reader.u8()? {
            0 => false,
            1 => true,
            _ => return Err(FormatError::Field("distrusted")),
        };
        Ok(Self { kind, reason, segment, deployment, seal, is_distrusted })
    }
}
