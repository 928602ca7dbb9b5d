//! The header of a chunk: which stripe, how its payload is spread over the data shards, and the checksums of this chunk's blocks.
//!
//! All but `shard` and the block checksums is the same in every chunk of a stripe, so any one valid header describes the whole stripe.

use gabion_types::limits::{BLOCK_BYTES, CHUNK_ALIGN_BYTES, CHUNK_PAYLOAD_BYTES_MAX, DATA_SHARDS_MAX};
use gabion_types::{Geometry, SegmentId, Seq};

use super::align;
use super::field::{FormatError, Reader, Writer, checked};
use crate::segment_info::LaneKind;

const MAGIC: &[u8; 4] = b"GCHK";
const VERSION: u16 = 1;
const FIXED_BYTES: usize = 72;
const FLAG_FREED: u8 = 1;

/// Length of the longest chunk header in bytes: it is found with one read of one block of the media.
pub(crate) const CHUNK_HEADER_BYTES_MAX: usize = chunk_header_bytes(DATA_SHARDS_MAX, CHUNK_PAYLOAD_BYTES_MAX);
const _: () = assert!(CHUNK_HEADER_BYTES_MAX <= CHUNK_ALIGN_BYTES);

/// Most bytes of its place that a chunk fills with zeros where it is shorter than others of its stripe, if it has as much itself. What is left out of a preallocated file stays marked as unwritten:
/// the file system keeps two more extents for each such gap, and writes what lies on both sides of it apart (docs/adr/0023).
pub(crate) const FILLED_BYTES_MAX: usize = 16 << 10;

/// Length of the header of every chunk of a stripe in bytes, whose longest payload is `chunk_bytes`.
pub(crate) const fn chunk_header_bytes(data_shards: usize, chunk_bytes: usize) -> usize {
    FIXED_BYTES + 8 * data_shards + 8 * chunk_bytes.div_ceil(BLOCK_BYTES) + 8
}

/// What a stripe whose longest payload is `chunk_bytes` takes in every shard file, in bytes.
#[must_use]
pub const fn stored_bytes(data_shards: usize, chunk_bytes: usize) -> usize {
    align(chunk_header_bytes(data_shards, chunk_bytes) + chunk_bytes)
}

/// How much of a data chunk is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ChunkSpan {
    /// Records and data, in bytes.
    pub(crate) payload_bytes: u32,
    /// The records at the front of the payload, in bytes.
    pub(crate) index_bytes: u32,
}

/// What all chunks of a stripe say alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StripeShape {
    pub(crate) kind: LaneKind,
    pub(crate) geometry: Geometry,
    pub(crate) segment: SegmentId,
    pub(crate) stripe_index: u32,
    pub(crate) stripe_offset: u64,
    /// The longest payload: the length of every parity chunk.
    pub(crate) chunk_bytes: u32,
    /// Bytes of a cell; 0 in a stripe of records.
    pub(crate) cell_bytes: u32,
    pub(crate) min_seq: Seq,
    pub(crate) max_seq: Seq,
    /// Whether one of its records frees a segment: recovery looks for these without reading all records.
    pub(crate) frees: bool,
    /// One per data shard.
    pub(crate) spans: Vec<ChunkSpan>,
}

/// The header of one chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChunkHeader {
    pub(crate) shape: StripeShape,
    pub(crate) shard: u8,
    /// CRC-64/NVME of each 64 KiB of the chunk's own payload, the last one shorter.
    pub(crate) block_crcs: Vec<u64>,
}

impl StripeShape {
    /// Length of every chunk's header in bytes.
    pub(crate) fn header_bytes(&self) -> usize {
        chunk_header_bytes(self.geometry.data(), self.chunk_bytes as usize)
    }

    /// What the stripe takes in every shard file, in bytes.
    pub(crate) fn stored_bytes(&self) -> u64 {
        stored_bytes(self.geometry.data(), self.chunk_bytes as usize) as u64
    }

    /// Length of the payload of the chunk on `shard`, in bytes.
    pub(crate) fn payload_bytes(&self, shard: usize) -> usize {
        self.spans.get(shard).map_or(self.chunk_bytes, |span| span.payload_bytes) as usize
    }

    /// Length of the whole stripe's payload, in bytes.
    pub(crate) fn stripe_payload_bytes(&self) -> u64 {
        self.spans.iter().map(|span| u64::from(span.payload_bytes)).sum()
    }

    /// What is really written for the chunk on `shard`, in bytes: its place, of which a chunk that is much shorter than others leaves the rest untouched.
    pub(crate) fn written_bytes(&self, shard: usize) -> usize {
        let own_bytes = align(self.header_bytes() + self.payload_bytes(shard));
        let place_bytes = self.stored_bytes() as usize;
        if place_bytes - own_bytes <= own_bytes.min(FILLED_BYTES_MAX) { place_bytes } else { own_bytes }
    }

    /// Offset just after the stripe.
    pub(crate) fn next_offset(&self) -> u64 {
        self.stripe_offset + self.stored_bytes()
    }
}

impl ChunkHeader {
    /// Writes the header into `out`, which is [`StripeShape::header_bytes`] long.
    pub(crate) fn encode(&self, out: &mut [u8]) {
        let shape = &self.shape;
        let header_bytes = u32::try_from(out.len()).expect("at most CHUNK_HEADER_BYTES_MAX");
        let mut writer = Writer::new(out);
        writer.put(MAGIC).u16(VERSION).lane_kind(shape.kind).u8(self.shard);
        writer.u8(shape.geometry.data() as u8).u8(shape.geometry.parity() as u8);
        writer.u8(if shape.frees { FLAG_FREED } else { 0 }).zeros(1).u32(header_bytes);
        writer.put(&shape.segment.to_bytes()).u32(shape.stripe_index).u32(shape.cell_bytes).u64(shape.stripe_offset);
        writer.u32(shape.chunk_bytes).zeros(4).u64(shape.min_seq.as_u64()).u64(shape.max_seq.as_u64());
        for span in &shape.spans {
            writer.u32(span.payload_bytes).u32(span.index_bytes);
        }
        for crc in &self.block_crcs {
            writer.u64(*crc);
        }
        writer.finish();
    }

    /// Reads the header at the front of `bytes`, which may go on after it.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut reader = Reader::new(bytes);
        reader.magic_and_version(MAGIC, VERSION)?;
        let kind = reader.lane_kind()?;
        let shard = reader.u8()?;
        let (data, parity, flags) = (reader.u8()?, reader.u8()?, reader.u8()?);
        reader.zeros(1)?;
        let header_bytes = reader.u32()? as usize;
        if !(FIXED_BYTES + 8..=CHUNK_HEADER_BYTES_MAX).contains(&header_bytes) {
            return Err(FormatError::Field("header length"));
        }
        checked(bytes.get(..header_bytes).ok_or(FormatError::Short)?)?;
        let geometry = Geometry::new(data.into(), parity.into()).map_err(|_| FormatError::Field("geometry"))?;
        let segment = SegmentId::from_bytes(reader.array()?);
        let (stripe_index, cell_bytes, stripe_offset) = (reader.u32()?, reader.u32()?, reader.u64()?);
        let chunk_bytes = reader.u32()?;
        reader.zeros(4)?;
        let (min_seq, max_seq) = (Seq::from_u64(reader.u64()?), Seq::from_u64(reader.u64()?));
        let spans = (0..geometry.data())
            .map(|_| Ok(ChunkSpan { payload_bytes: reader.u32()?, index_bytes: reader.u32()? }))
            .collect::<Result<Vec<_>, FormatError>>()?;
        if flags & !FLAG_FREED != 0 {
            return Err(FormatError::Field("flags"));
        }
        let shape = StripeShape {
            kind,
            geometry,
            segment,
            stripe_index,
            stripe_offset,
            chunk_bytes,
            cell_bytes,
            min_seq,
            max_seq,
            frees: flags & FLAG_FREED != 0,
            spans,
        };
        check(&shape, shard, header_bytes)?;
        let blocks = shape.payload_bytes(shard.into()).div_ceil(BLOCK_BYTES);
        let block_crcs = (0..blocks).map(|_| reader.u64()).collect::<Result<Vec<_>, _>>()?;
        Ok(Self { shape, shard, block_crcs })
    }
}

/// Whether the fields fit together, so that all arithmetic on them holds.
fn check(shape: &StripeShape, shard: u8, header_bytes: usize) -> Result<(), FormatError> {
    let bad = |field| Err(FormatError::Field(field));
    if usize::from(shard) >= shape.geometry.shards() {
        return bad("shard");
    }
    if shape.chunk_bytes == 0 || shape.chunk_bytes as usize > CHUNK_PAYLOAD_BYTES_MAX {
        return bad("chunk length");
    }
    if header_bytes != shape.header_bytes() {
        return bad("header length");
    }
    if !shape.stripe_offset.is_multiple_of(CHUNK_ALIGN_BYTES as u64) || shape.stripe_offset > 1 << 62 {
        return bad("stripe offset");
    }
    if shape.spans.iter().any(|span| span.index_bytes > span.payload_bytes)
        || shape.spans.iter().map(|span| span.payload_bytes).max() != Some(shape.chunk_bytes)
    {
        return bad("spans");
    }
    let cells_fit = match shape.kind {
        LaneKind::Small => shape.cell_bytes == 0,
        LaneKind::Large => {
            shape.cell_bytes > 0
                && shape.cell_bytes as usize <= BLOCK_BYTES
                && (shape.cell_bytes as usize).is_multiple_of(CHUNK_ALIGN_BYTES)
        }
    };
    if cells_fit { Ok(()) } else { bad("cell length") }
}
