//! From a batch to the bytes of its chunks. Pure but for the memory that it takes from the pool.

use std::num::NonZeroUsize;
use std::sync::Arc;

use bytes::Bytes;
use gabion_erasure::{Codec, crc64, crc64_combine};
use gabion_platform::{Buffer, Buffers, Chunk};
use gabion_types::limits::{BLOCK_BYTES, CHUNK_ALIGN_BYTES};
use gabion_types::{Extent, Place, Seq};
use tokio::sync::OwnedSemaphorePermit;

use crate::applier::{AppliedRecord, RecordBody, RecordHome};
use crate::cells::Cells;
use crate::core::min_seq;
use crate::format::{
    ChunkHeader, ChunkSpan, FILLED_BYTES_MAX, PieceRef, Record, RecordBinding, StripeShape, align, chunk_header_bytes,
};
use crate::layout::{Layout, RecordPlan};
use crate::segment_info::{LaneKind, SegmentInfo};
use crate::stripe_buffer::StripeBuffer;

/// What a chunk is filled up with: to the next block, and to the end of its place.
static ZEROS: [u8; CHUNK_ALIGN_BYTES + FILLED_BYTES_MAX] = [0; CHUNK_ALIGN_BYTES + FILLED_BYTES_MAX];

/// Where a stripe is to be written.
#[derive(Clone)]
pub(crate) struct StripePlace {
    pub(crate) info: Arc<SegmentInfo>,
    pub(crate) stripe_index: u32,
    pub(crate) stripe_offset: u64,
}

/// A stripe, ready to be written.
pub(crate) struct EncodedStripe {
    pub(crate) shape: StripeShape,
    /// For each shard the parts of its chunk, padding included.
    pub(crate) chunks: Vec<Vec<Bytes>>,
}

/// A record with its sequence.
pub(crate) struct SequencedRecord<'a> {
    pub(crate) seq: Seq,
    pub(crate) carried: bool,
    pub(crate) body: &'a RecordBody,
    pub(crate) data: &'a [Bytes],
    pub(crate) data_crc64: u64,
}

/// Encodes a stripe of records; also says of each record, in the order given, where it lies.
pub(crate) fn encode_records(
    records: &[SequencedRecord<'_>],
    layout: &Layout,
    place: &StripePlace,
    codec: &Codec,
    buffers: &Buffers,
) -> (EncodedStripe, Vec<AppliedRecord>) {
    let shape = records_shape(records, layout, place);
    let stored_bytes = shape.stored_bytes() as usize;
    let header_bytes = shape.header_bytes();
    let mut chunks: Vec<Buffer> = (0..shape.geometry.shards()).map(|_| buffers.zeroed(stored_bytes)).collect();
    let binding = RecordBinding { segment: place.info.id, stripe_index: place.stripe_index };
    let mut applied = Vec::with_capacity(records.len());
    for (record, plan) in records.iter().zip(&layout.records) {
        let pieces = put_data(record, plan, header_bytes, &mut chunks);
        let extents = pieces.iter().map(|piece| Extent {
            segment: place.info.id,
            stripe_offset: place.stripe_offset,
            place: Place::Chunk { shard: piece.shard, start: piece.start },
            len: piece.len,
            crc64: piece.crc64,
        });
        applied.push(AppliedRecord {
            seq: record.seq,
            carried: record.carried,
            body: record.body.clone(),
            extents: extents.collect(),
            home: RecordHome { segment: place.info.id, bytes: plan.record_bytes as u32 },
        });
        let start = header_bytes + plan.payload_offset;
        let encoded = Record { seq: record.seq, carried: record.carried, body: record.body.clone(), pieces };
        encoded.encode(binding, &mut chunks[plan.shard][start..start + plan.record_bytes]);
    }
    let payload = header_bytes..header_bytes + layout.chunk_bytes;
    let block_crcs = {
        let (data, parity) = chunks.split_at_mut(shape.geometry.data());
        let data: Vec<&[u8]> = data.iter().map(|chunk| &chunk[payload.clone()]).collect();
        let mut parity: Vec<&mut [u8]> = parity.iter_mut().map(|chunk| &mut chunk[payload.clone()]).collect();
        encode_blocks(codec, &data, &mut parity, |shard| shape.payload_bytes(shard))
    };
    for ((shard, chunk), block_crcs) in chunks.iter_mut().enumerate().zip(block_crcs) {
        ChunkHeader { shape: shape.clone(), shard: shard as u8, block_crcs }.encode(&mut chunk[..header_bytes]);
    }
    let written = |(shard, chunk): (usize, Buffer)| vec![chunk.freeze().slice(..shape.written_bytes(shard))];
    let chunks = chunks.into_iter().enumerate().map(written).collect();
    (EncodedStripe { shape, chunks }, applied)
}

fn records_shape(records: &[SequencedRecord<'_>], layout: &Layout, place: &StripePlace) -> StripeShape {
    StripeShape {
        kind: LaneKind::Small,
        geometry: place.info.geometry,
        segment: place.info.id,
        stripe_index: place.stripe_index,
        stripe_offset: place.stripe_offset,
        chunk_bytes: layout.chunk_bytes as u32,
        cell_bytes: 0,
        min_seq: records.iter().fold(Seq::ZERO, |seq, record| min_seq(seq, record.seq)),
        max_seq: records.iter().map(|record| record.seq).max().unwrap_or_default(),
        frees: records.iter().any(|record| matches!(record.body, RecordBody::Freed(_))),
        spans: layout.spans.clone(),
    }
}

/// Parity, and the checksums of the blocks of all chunks; of a data chunk those of its payload, without the zeros behind it.
fn encode_blocks(
    codec: &Codec,
    data: &[&[u8]],
    parity: &mut [&mut [u8]],
    payload_bytes: impl Fn(usize) -> usize,
) -> Vec<Vec<u64>> {
    const BLOCK: NonZeroUsize = NonZeroUsize::new(BLOCK_BYTES).expect("a block has bytes");
    let own_bytes: Vec<usize> = (0..data.len()).map(payload_bytes).collect();
    codec
        .encode_with_crcs(data, parity, &own_bytes, BLOCK)
        .expect("all chunks are of one length, as many as the geometry has, and as long as the longest payload")
}

/// Copies a record's data to its places: the one copy on its way to the targets.
fn put_data(
    record: &SequencedRecord<'_>,
    plan: &RecordPlan,
    header_bytes: usize,
    chunks: &mut [Buffer],
) -> Vec<PieceRef> {
    let mut parts = record.data.iter().map(|part| &part[..]);
    let mut rest: &[u8] = &[];
    let mut pieces = Vec::with_capacity(plan.pieces.len());
    for piece in &plan.pieces {
        let start = header_bytes + piece.payload_offset;
        let mut out = &mut chunks[piece.shard][start..start + piece.range.len()];
        while !out.is_empty() {
            if rest.is_empty() {
                rest = parts.next().expect("the layout was made for this much data");
            }
            let (front, later) = rest.split_at(rest.len().min(out.len()));
            let (filled, unfilled) = out.split_at_mut(front.len());
            filled.copy_from_slice(front);
            (rest, out) = (later, unfilled);
        }
        let crc64 = if plan.pieces.len() == 1 {
            record.data_crc64
        } else {
            crc64(&chunks[piece.shard][start..start + piece.range.len()])
        };
        pieces.push(PieceRef { shard: piece.shard as u8, start: start as u32, len: piece.range.len() as u32, crc64 });
    }
    pieces
}

/// The payload of a large stripe with its parity and checksums, which do not depend on where it will lie.
pub(crate) struct LargePayload {
    pub(crate) cells: Cells,
    /// CRC-64/NVME of the whole payload.
    pub(crate) crc64: u64,
    /// For every chunk room for a header, and its payload, zeros up to the longest and to the end of its place; data, then parity.
    chunks: Vec<Chunk>,
    front_bytes: usize,
    block_crcs: Vec<Vec<u64>>,
    /// The memory that the stripe holds of the budget.
    _permit: Arc<OwnedSemaphorePermit>,
}

impl LargePayload {
    /// Deals the tail in smaller cells if it is short, and adds parity and checksums.
    pub(crate) fn new(buffer: StripeBuffer, codec: &Codec, buffers: &Buffers) -> Self {
        let geometry = codec.geometry();
        let cells = Cells::for_payload(geometry.data(), buffer.len);
        let StripeBuffer { chunks: mut data, mut front_bytes, len, permit, .. } = buffer;
        if cells.cell_bytes < BLOCK_BYTES {
            (data, front_bytes) = deal_again(&data, cells, buffers);
        }
        let payload_bytes = cells.chunk_bytes();
        let place_bytes = align(front_bytes + payload_bytes);
        for chunk in &mut data {
            let behind = place_bytes - front_bytes - chunk.filled_bytes();
            chunk.room()[..behind].fill(0);
            chunk.advance(behind);
        }
        let chunk = || buffers.take(place_bytes).fill_behind(front_bytes);
        let mut parity: Vec<Chunk> = (0..geometry.parity()).map(|_| chunk()).collect();
        let block_crcs = {
            let data: Vec<&[u8]> = data.iter().map(|chunk| &chunk.filled()[..payload_bytes]).collect();
            let mut coded = Vec::with_capacity(parity.len());
            for chunk in &mut parity {
                let (payload, behind) = chunk.room().split_at_mut(payload_bytes);
                behind.fill(0);
                coded.push(payload);
            }
            encode_blocks(codec, &data, &mut coded, |shard| cells.payload_bytes(shard))
        };
        parity.iter_mut().for_each(|chunk| chunk.advance(place_bytes - front_bytes));
        // A cell is a block, so the checksum of the payload follows from those of the blocks.
        let crc64 = cells.slices(0..len).fold(0, |crc, slice| {
            let block = block_crcs[slice.shard][slice.range.start / cells.cell_bytes];
            crc64_combine(crc, block, slice.range.len() as u64)
        });
        data.append(&mut parity);
        Self { cells, crc64, chunks: data, front_bytes, block_crcs, _permit: permit }
    }

    /// What a stripe of it looks like at `place`.
    pub(crate) fn shape(&self, place: &StripePlace) -> StripeShape {
        let span = |shard| ChunkSpan { payload_bytes: self.cells.payload_bytes(shard) as u32, index_bytes: 0 };
        StripeShape {
            kind: LaneKind::Large,
            geometry: place.info.geometry,
            segment: place.info.id,
            stripe_index: place.stripe_index,
            stripe_offset: place.stripe_offset,
            chunk_bytes: self.cells.chunk_bytes() as u32,
            cell_bytes: self.cells.cell_bytes as u32,
            min_seq: Seq::ZERO,
            max_seq: Seq::ZERO,
            frees: false,
            spans: (0..self.cells.data_shards).map(span).collect(),
        }
    }

    /// The stripe at `place`: the payload is not copied. Where the header is as long as the room for it each chunk is one piece of memory, as drives can take it.
    pub(crate) fn encode(&mut self, place: &StripePlace) -> EncodedStripe {
        let shape = self.shape(place);
        let header_bytes = shape.header_bytes();
        let front_bytes = self.front_bytes;
        let encode = |(shard, (chunk, block_crcs)): (usize, (&mut Chunk, &Vec<u64>))| {
            let header = ChunkHeader { shape: shape.clone(), shard: shard as u8, block_crcs: block_crcs.clone() };
            let written_bytes = shape.written_bytes(shard);
            // It is written once: an attempt before this one may still read it.
            if front_bytes == header_bytes && !chunk.front().is_empty() {
                header.encode(chunk.front());
                return vec![chunk.share().slice(..written_bytes)];
            }
            let mut front = vec![0; header_bytes];
            header.encode(&mut front);
            let own_bytes = shape.payload_bytes(shard);
            let padding = written_bytes - header_bytes - own_bytes;
            let payload = chunk.part(front_bytes..front_bytes + own_bytes, ());
            vec![Bytes::from(front), payload, Bytes::from_static(&ZEROS[..padding])]
        };
        let chunks = self.chunks.iter_mut().zip(&self.block_crcs).enumerate().map(encode).collect();
        EncodedStripe { chunks, shape }
    }
}

/// Deals a short payload, which lies in cells of a block, in smaller ones, so that every chunk has its share. The chunks, and the room for a header in each.
fn deal_again(dealt: &[Chunk], cells: Cells, buffers: &Buffers) -> (Vec<Chunk>, usize) {
    let before = Cells { cell_bytes: BLOCK_BYTES, ..cells };
    let mut payload = Vec::with_capacity(cells.len);
    for slice in before.slices(0..cells.len) {
        payload.extend_from_slice(&dealt[slice.shard].filled()[slice.range]);
    }
    let front_bytes = chunk_header_bytes(cells.data_shards, cells.chunk_bytes());
    let place_bytes = align(front_bytes + cells.chunk_bytes());
    let mut rest = &payload[..];
    let deal = |shard| {
        let (own, later) = rest.split_at(cells.payload_bytes(shard));
        rest = later;
        let mut chunk = buffers.take(place_bytes).fill_behind(front_bytes);
        chunk.put(own);
        chunk
    };
    ((0..cells.data_shards).map(deal).collect(), front_bytes)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use gabion_types::{Geometry, SegmentId, TargetId};
    use tokio::sync::Semaphore;

    use super::*;
    use crate::layout::{RecordSize, deal};
    use crate::media::check_blocks;

    fn place(geometry: Geometry, kind: LaneKind) -> StripePlace {
        let targets = vec![TargetId::from_u128(1); geometry.shards()];
        let info = SegmentInfo { id: SegmentId::new(1, 2), kind, geometry, targets, former: Vec::new() };
        StripePlace { info: Arc::new(info), stripe_index: 5, stripe_offset: 40_960 }
    }

    fn concat(chunk: &[Bytes]) -> Vec<u8> {
        chunk.iter().flat_map(|part| part.iter().copied()).collect()
    }

    #[test]
    fn records_lie_where_their_extents_say() {
        let geometry = Geometry::new(2, 1).unwrap();
        let data: Vec<Vec<Bytes>> = vec![
            vec![Bytes::from(vec![1; 5000])],
            vec![],
            vec![Bytes::from(vec![2; 100_000]), Bytes::from(vec![3; 200_001])],
        ];
        let body = RecordBody::Mutation(Bytes::from_static(b"m"));
        let records: Vec<SequencedRecord<'_>> = data
            .iter()
            .zip(1..)
            .map(|(data, seq)| SequencedRecord {
                seq: Seq::from_u64(seq),
                carried: false,
                body: &body,
                data,
                data_crc64: crc64(&concat(data)),
            })
            .collect();
        let sizes: Vec<RecordSize> = data
            .iter()
            .map(|data| RecordSize { mutation_bytes: 1, data_bytes: data.iter().map(Bytes::len).sum() })
            .collect();
        let layout = deal(&sizes, 2).unwrap();
        let place = place(geometry, LaneKind::Small);
        let (stripe, applied) = encode_records(&records, &layout, &place, &Codec::new(geometry), &Buffers::default());
        assert_eq!(stripe.chunks.len(), 3);
        for (record, data) in applied.iter().zip(&data) {
            let mut found = Vec::new();
            for extent in &record.extents {
                let Place::Chunk { shard, start } = extent.place else { panic!("{extent:?}") };
                let chunk = concat(&stripe.chunks[usize::from(shard)]);
                let bytes = &chunk[start as usize..][..extent.len as usize];
                assert_eq!(crc64(bytes), extent.crc64);
                found.extend_from_slice(bytes);
            }
            assert_eq!(found, concat(data));
        }
        assert_eq!(applied[2].extents.len(), 2);
        for (shard, chunk) in stripe.chunks.iter().enumerate() {
            let chunk = concat(chunk);
            assert_eq!(chunk.len(), stripe.shape.written_bytes(shard));
            let header = ChunkHeader::decode(&chunk).unwrap();
            let payload = stripe.shape.payload_bytes(shard);
            check_blocks(&header, 0..payload, &chunk[header.shape.header_bytes()..][..payload]).unwrap();
            assert!(chunk[header.shape.header_bytes() + payload..].iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn a_large_payload_keeps_its_bytes_and_checksum() {
        let geometry = Geometry::new(3, 1).unwrap();
        let capacity = 12 * BLOCK_BYTES;
        let front_bytes = crate::format::chunk_header_bytes(3, capacity / 3);
        let row = 3 * BLOCK_BYTES;
        for len in [1, 4096, 50_000, row, row + 1, row + 12_000, 700_000, capacity - 5000, capacity] {
            let bytes: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
            let permit = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
            let buffers = Buffers::default();
            // What was in a buffer before is not in what is written.
            let mut used: Vec<Buffer> = (0..5).map(|_| buffers.take(capacity / 3 + 4096)).collect();
            used.iter_mut().for_each(|buffer| buffer.fill(0xaa));
            drop(used);
            let chunk = || buffers.take(align(front_bytes + capacity / 3)).fill_behind(front_bytes);
            let mut buffer = StripeBuffer::new((0..3).map(|_| chunk()).collect(), front_bytes, capacity, permit);
            for part in bytes.chunks(10_007) {
                assert_eq!(buffer.put(part), part.len());
            }
            let mut payload = LargePayload::new(buffer, &Codec::new(geometry), &buffers);
            assert_eq!(payload.crc64, crc64(&bytes), "{len}");
            let stripe = payload.encode(&place(geometry, LaneKind::Large));
            let is_whole = !(3 * BLOCK_BYTES..=9 * BLOCK_BYTES).contains(&len);
            assert_eq!(stripe.chunks.iter().all(|parts| parts.len() == 1), is_whole, "{len}");
            let chunks: Vec<Vec<u8>> = stripe.chunks.iter().map(|chunk| concat(chunk)).collect();
            let header_bytes = stripe.shape.header_bytes();
            for (shard, chunk) in chunks.iter().enumerate() {
                assert_eq!(chunk.len(), stripe.shape.written_bytes(shard), "{len}");
                let behind = header_bytes + stripe.shape.payload_bytes(shard);
                assert!(chunk[behind..].iter().all(|byte| *byte == 0), "{len}");
            }
            // A second attempt while the first is still under way, and one after it.
            let again = |payload: &mut LargePayload| -> Vec<Vec<u8>> {
                payload.encode(&place(geometry, LaneKind::Large)).chunks.iter().map(|chunk| concat(chunk)).collect()
            };
            assert!(again(&mut payload) == chunks, "{len}");
            drop(stripe);
            assert!(again(&mut payload) == chunks, "{len}");
            let mut found = Vec::new();
            for slice in payload.cells.slices(0..len) {
                found.extend_from_slice(&chunks[slice.shard][header_bytes..][slice.range]);
            }
            assert!(found == bytes, "{len}");
        }
    }
}
