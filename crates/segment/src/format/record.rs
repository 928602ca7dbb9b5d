//! A record: one mutation, or the freeing of a segment, and where its data lies.
//!
//! Its checksum is bound to the segment and the stripe, so that a record that stands in the wrong place is none.

use bytes::Bytes;
use gabion_erasure::Crc64;
use gabion_types::limits::{BLOCK_BYTES, INLINE_BYTES_MAX, MUTATION_BYTES_MAX};
use gabion_types::{SegmentId, Seq};

use super::field::{FormatError, Reader, Writer};
use crate::applier::RecordBody;

const MAGIC: &[u8; 2] = b"GR";
const VERSION: u8 = 1;
const KIND_MUTATION: u8 = 1;
const KIND_FREED: u8 = 2;
const FLAG_CARRIED: u8 = 1;
const FIXED_BYTES: usize = 24;
const PIECE_BYTES: usize = 20;
/// Most pieces: data is cut in so many as a piece of a block each would make, and they are then made equally long.
const PIECES_MAX: usize = INLINE_BYTES_MAX / BLOCK_BYTES + 1;

/// Length of a record in bytes, without its data.
pub(crate) const fn record_bytes(mutation_bytes: usize, pieces: usize) -> usize {
    FIXED_BYTES + pieces * PIECE_BYTES + mutation_bytes + 8
}

/// Where a piece of a record's data lies in the record's stripe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PieceRef {
    pub(crate) shard: u8,
    /// From the start of the chunk, header included.
    pub(crate) start: u32,
    pub(crate) len: u32,
    pub(crate) crc64: u64,
}

/// A record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) seq: Seq,
    pub(crate) carried: bool,
    pub(crate) body: RecordBody,
    pub(crate) pieces: Vec<PieceRef>,
}

/// The place that a record is bound to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RecordBinding {
    pub(crate) segment: SegmentId,
    pub(crate) stripe_index: u32,
}

impl RecordBinding {
    pub(crate) fn crc64(self, record: &[u8]) -> u64 {
        let mut crc = Crc64::new();
        crc.update(&self.segment.to_bytes());
        crc.update(&self.stripe_index.to_le_bytes());
        crc.update(record);
        crc.finish()
    }
}

impl Record {
    /// Length in bytes, without its data.
    pub(crate) fn bytes(&self) -> usize {
        record_bytes(body_bytes(&self.body), self.pieces.len())
    }

    /// Writes the record into `out`, which is [`Record::bytes`] long.
    pub(crate) fn encode(&self, binding: RecordBinding, out: &mut [u8]) {
        let end = out.len() - 8;
        let total = u32::try_from(out.len()).expect("a mutation is at most MUTATION_BYTES_MAX");
        let mut writer = Writer::new(out);
        let kind = match self.body {
            RecordBody::Mutation(_) => KIND_MUTATION,
            RecordBody::Freed(_) => KIND_FREED,
        };
        writer.put(MAGIC).u8(VERSION).u8(kind).u32(total).u64(self.seq.as_u64());
        writer.u32(body_bytes(&self.body) as u32).u8(if self.carried { FLAG_CARRIED } else { 0 });
        writer.u8(u8::try_from(self.pieces.len()).expect("at most PIECES_MAX")).zeros(2);
        for piece in &self.pieces {
            writer.u8(piece.shard).zeros(3).u32(piece.start).u32(piece.len).u64(piece.crc64);
        }
        match &self.body {
            RecordBody::Mutation(mutation) => writer.put(mutation),
            RecordBody::Freed(segment) => writer.put(&segment.to_bytes()),
        };
        let crc = binding.crc64(&out[..end]);
        out[end..].copy_from_slice(&crc.to_le_bytes());
    }

    /// Reads the record at the front of `bytes` and takes it off.
    pub(crate) fn decode(binding: RecordBinding, bytes: &mut Bytes) -> Result<Self, FormatError> {
        let whole = bytes.clone();
        let mut reader = Reader::new(&whole);
        if reader.array::<2>()? != *MAGIC {
            return Err(FormatError::Magic);
        }
        match reader.u8()? {
            VERSION => {}
            other => return Err(FormatError::Version(other.into())),
        }
        let kind = reader.u8()?;
        let total = reader.u32()? as usize;
        if total < FIXED_BYTES + 8 {
            return Err(FormatError::Field("record length"));
        }
        let (front, crc) = whole.get(..total).and_then(|record| record.split_last_chunk()).ok_or(FormatError::Short)?;
        if binding.crc64(front) != u64::from_le_bytes(*crc) {
            return Err(FormatError::Checksum);
        }
        let seq = Seq::from_u64(reader.u64()?);
        let mutation_bytes = reader.u32()? as usize;
        let flags = reader.u8()?;
        let pieces = usize::from(reader.u8()?);
        reader.zeros(2)?;
        if flags & !FLAG_CARRIED != 0 {
            return Err(FormatError::Field("flags"));
        }
        if mutation_bytes > MUTATION_BYTES_MAX || pieces > PIECES_MAX || record_bytes(mutation_bytes, pieces) != total {
            return Err(FormatError::Field("record length"));
        }
        let pieces = (0..pieces)
            .map(|_| {
                let shard = reader.u8()?;
                reader.zeros(3)?;
                Ok(PieceRef { shard, start: reader.u32()?, len: reader.u32()?, crc64: reader.u64()? })
            })
            .collect::<Result<Vec<_>, FormatError>>()?;
        let body = match kind {
            KIND_MUTATION => {
                let start = total - 8 - mutation_bytes;
                RecordBody::Mutation(whole.slice(start..start + mutation_bytes))
            }
            KIND_FREED if mutation_bytes == 16 => RecordBody::Freed(SegmentId::from_bytes(reader.array()?)),
            _ => return Err(FormatError::Field("record kind")),
        };
        let _ = bytes.split_to(total);
        Ok(Self { seq, carried: flags & FLAG_CARRIED != 0, body, pieces })
    }
}

/// All records of the mutation area of one chunk.
pub(crate) fn decode_records(binding: RecordBinding, mut area: Bytes) -> Result<Vec<Record>, FormatError> {
    let mut records = Vec::new();
    while !area.is_empty() {
        records.push(Record::decode(binding, &mut area)?);
    }
    Ok(records)
}

fn body_bytes(body: &RecordBody) -> usize {
    match body {
        RecordBody::Mutation(mutation) => mutation.len(),
        RecordBody::Freed(_) => 16,
    }
}
