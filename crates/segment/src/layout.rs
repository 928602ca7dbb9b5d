//! How the records of a batch are dealt to the data chunks of a stripe. Pure.
//!
//! A record's mutation lies at the front of a chunk and its data in the back of the same chunk, whole, so that reading it is one read
//! of one target. Parity chunks are as long as the longest data chunk; so data too long to be balanced against others is cut in
//! pieces, each of which is an extent of its own.

use std::ops::Range;

use gabion_types::limits::{BLOCK_BYTES, CHUNK_PAYLOAD_BYTES_MAX};

use crate::format::{ChunkSpan, align, chunk_header_bytes, record_bytes};

/// Longest data of a record that stays whole, in bytes.
pub const WHOLE_BYTES_MAX: usize = 128 * 1024;
/// Longest piece, in bytes: what a read of a part of it reads in vain is bounded by this.
const PIECE_BYTES_MAX: usize = 256 * 1024;

/// What the layout must know of a record.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RecordSize {
    pub(crate) mutation_bytes: usize,
    pub(crate) data_bytes: usize,
}

/// A piece of a record's data in a chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PiecePlan {
    pub(crate) shard: usize,
    /// From the start of the chunk's payload.
    pub(crate) payload_offset: usize,
    /// Which bytes of the record's data.
    pub(crate) range: Range<usize>,
}

/// Where one record goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RecordPlan {
    /// The chunk that holds the record itself.
    pub(crate) shard: usize,
    /// From the start of that chunk's payload.
    pub(crate) payload_offset: usize,
    /// Length of the record without its data.
    pub(crate) record_bytes: usize,
    pub(crate) pieces: Vec<PiecePlan>,
}

/// Where every record of a batch goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layout {
    /// In the order of the records given.
    pub(crate) records: Vec<RecordPlan>,
    /// One per data shard.
    pub(crate) spans: Vec<ChunkSpan>,
    pub(crate) chunk_bytes: usize,
    pub(crate) header_bytes: usize,
}

impl Layout {
    /// What the stripe takes in every shard file, in bytes.
    pub(crate) fn stored_bytes(&self) -> u64 {
        align(self.header_bytes + self.chunk_bytes) as u64
    }
}

/// Deals `records` to `data_shards` chunks, the longest first, each to the chunk that is least filled so far.
///
/// `None` if a chunk would become longer than the format allows: the batch is too large.
pub(crate) fn deal(records: &[RecordSize], data_shards: usize) -> Option<Layout> {
    let mut filled = vec![0_usize; data_shards];
    let mut plans: Vec<Option<RecordPlan>> = vec![None; records.len()];
    let mut order: Vec<usize> = (0..records.len()).collect();
    order.sort_by_key(|&record| std::cmp::Reverse(records[record].data_bytes));
    for index in order {
        let size = records[index];
        let ranges = cut(size.data_bytes, data_shards);
        let own_bytes = record_bytes(size.mutation_bytes, ranges.len());
        let shard = least(&filled);
        filled[shard] += own_bytes;
        let mut pieces = Vec::with_capacity(ranges.len());
        for (number, range) in ranges.into_iter().enumerate() {
            let shard = if number == 0 { shard } else { least(&filled) };
            filled[shard] += range.len();
            pieces.push(PiecePlan { shard, payload_offset: 0, range });
        }
        plans[index] = Some(RecordPlan { shard, payload_offset: 0, record_bytes: own_bytes, pieces });
    }
    let mut records: Vec<RecordPlan> =
        plans.into_iter().map(|plan| plan.expect("every record is in the order")).collect();
    let spans = place(&mut records, data_shards)?;
    let chunk_bytes = spans.iter().map(|span| span.payload_bytes as usize).max().unwrap_or(0);
    if chunk_bytes > CHUNK_PAYLOAD_BYTES_MAX {
        return None;
    }
    Some(Layout { records, spans, chunk_bytes, header_bytes: chunk_header_bytes(data_shards, chunk_bytes) })
}

/// Gives every record and piece its offset: records in their given order at the front of each chunk, then the data.
fn place(records: &mut [RecordPlan], data_shards: usize) -> Option<Vec<ChunkSpan>> {
    let mut ends = vec![0_usize; data_shards];
    for record in &mut *records {
        record.payload_offset = ends[record.shard];
        ends[record.shard] += record.record_bytes;
    }
    let index_ends = ends.clone();
    for piece in records.iter_mut().flat_map(|record| &mut record.pieces) {
        piece.payload_offset = ends[piece.shard];
        ends[piece.shard] += piece.range.len();
    }
    ends.iter()
        .zip(index_ends)
        .map(|(&end, index_end)| {
            Some(ChunkSpan { payload_bytes: u32::try_from(end).ok()?, index_bytes: u32::try_from(index_end).ok()? })
        })
        .collect()
}

/// The pieces that data of this length is cut in: none, one, or several of about a `data_shards`-th each.
fn cut(data_bytes: usize, data_shards: usize) -> Vec<Range<usize>> {
    if data_bytes == 0 {
        return Vec::new();
    }
    let piece_bytes = if data_bytes <= WHOLE_BYTES_MAX {
        data_bytes
    } else {
        data_bytes.div_ceil(data_shards).clamp(BLOCK_BYTES, PIECE_BYTES_MAX)
    };
    // As many pieces as that takes, but all alike: no short one at the end.
    let pieces = data_bytes.div_ceil(piece_bytes);
    let piece_bytes = data_bytes.div_ceil(pieces);
    (0..pieces).map(|piece| piece * piece_bytes..((piece + 1) * piece_bytes).min(data_bytes)).collect()
}

fn least(filled: &[usize]) -> usize {
    filled.iter().enumerate().min_by_key(|(_, bytes)| **bytes).map_or(0, |(shard, _)| shard)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sizes(sizes: &[(usize, usize)]) -> Vec<RecordSize> {
        sizes.iter().map(|&(mutation_bytes, data_bytes)| RecordSize { mutation_bytes, data_bytes }).collect()
    }

    #[test]
    fn small_data_lies_whole_beside_its_record() {
        let layout = deal(&sizes(&[(100, 4096), (100, 4096), (100, 128 * 1024), (50, 0)]), 4).unwrap();
        for record in &layout.records[..3] {
            assert_eq!(record.pieces.len(), 1);
            assert_eq!(record.pieces[0].shard, record.shard);
        }
        assert!(layout.records[3].pieces.is_empty());
        let shards: Vec<_> = layout.records.iter().map(|record| record.shard).collect();
        assert_eq!(shards, [1, 2, 0, 3]);
    }

    #[test]
    fn a_lone_mebibyte_is_dealt_evenly() {
        let layout = deal(&sizes(&[(300, 1 << 20)]), 4).unwrap();
        assert_eq!(layout.records[0].pieces.len(), 4);
        assert!(layout.chunk_bytes < (1 << 18) + 600);
        let lone = deal(&sizes(&[(300, 1 << 20)]), 1).unwrap();
        assert_eq!(lone.records[0].pieces.len(), 4);
        let wide = deal(&sizes(&[(300, 1 << 20)]), 128).unwrap();
        assert_eq!(wide.records[0].pieces.len(), 16);
    }

    #[test]
    fn too_large_a_batch_has_no_layout() {
        assert!(deal(&sizes(&[(1 << 20, 1 << 20); 5]), 1).is_none());
        assert!(deal(&sizes(&[(1 << 20, 1 << 20); 5]), 4).is_some());
    }

    proptest! {
        /// Nothing overlaps, nothing is lost, chunks are filled without a gap.
        #[test]
        fn every_byte_has_its_own_place(
            records in proptest::collection::vec((0..2000_usize, prop_oneof![0..9000_usize, 0..400_000_usize]), 1..30),
            data_shards in 1..9_usize,
        ) {
            let records = sizes(&records);
            let Some(layout) = deal(&records, data_shards) else { return Ok(()) };
            let mut used: Vec<Vec<Range<usize>>> = vec![Vec::new(); data_shards];
            for (record, size) in layout.records.iter().zip(&records) {
                prop_assert_eq!(record.record_bytes, record_bytes(size.mutation_bytes, record.pieces.len()));
                used[record.shard].push(record.payload_offset..record.payload_offset + record.record_bytes);
                prop_assert!(record.payload_offset + record.record_bytes <= layout.spans[record.shard].index_bytes as usize);
                let mut next = 0;
                for piece in &record.pieces {
                    prop_assert_eq!(piece.range.start, next);
                    prop_assert!(!piece.range.is_empty());
                    prop_assert!(piece.payload_offset >= layout.spans[piece.shard].index_bytes as usize);
                    next = piece.range.end;
                    used[piece.shard].push(piece.payload_offset..piece.payload_offset + piece.range.len());
                }
                prop_assert_eq!(next, size.data_bytes);
            }
            for (shard, mut ranges) in used.into_iter().enumerate() {
                ranges.sort_by_key(|range| range.start);
                let mut end = 0;
                for range in ranges {
                    prop_assert_eq!(range.start, end);
                    end = range.end;
                }
                prop_assert_eq!(end, layout.spans[shard].payload_bytes as usize);
            }
        }
    }
}
