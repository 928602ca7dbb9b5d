//! How the payload of a large stripe is dealt to the data chunks in cells, round robin. Pure.

use std::ops::Range;

use gabion_types::limits::{BLOCK_BYTES, CHUNK_ALIGN_BYTES, CHUNK_PAYLOAD_BYTES_MAX};

use crate::format::align;

/// The deal of one stripe's payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cells {
    pub(crate) data_shards: usize,
    pub(crate) cell_bytes: usize,
    /// Length of the whole payload.
    pub(crate) len: usize,
}

/// A part of one cell, in order of the payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CellSlice {
    pub(crate) shard: usize,
    /// In the shard's payload.
    pub(crate) range: Range<usize>,
}

impl Cells {
    /// The deal for a payload of `len` bytes: cells of one checksum block, or smaller ones where the payload would not reach every chunk.
    pub(crate) fn for_payload(data_shards: usize, len: usize) -> Self {
        let even = align(len.div_ceil(data_shards));
        Self { data_shards, cell_bytes: even.clamp(CHUNK_ALIGN_BYTES, BLOCK_BYTES), len }
    }

    /// The deal that an extent names, if it is one that is ever made.
    pub(crate) fn from_extent(data_shards: usize, cell_bytes: u32, len: u32) -> Option<Self> {
        let (cell_bytes, len) = (cell_bytes as usize, len as usize);
        let valid = len > 0
            && Self::for_payload(data_shards, len).cell_bytes == cell_bytes
            && len.div_ceil(data_shards) <= CHUNK_PAYLOAD_BYTES_MAX;
        valid.then_some(Self { data_shards, cell_bytes, len })
    }

    /// Length of the payload of the chunk on `shard`.
    pub(crate) fn payload_bytes(self, shard: usize) -> usize {
        let row_bytes = self.data_shards * self.cell_bytes;
        let rest = (self.len % row_bytes).saturating_sub(shard * self.cell_bytes);
        self.len / row_bytes * self.cell_bytes + rest.min(self.cell_bytes)
    }

    /// Length of the longest chunk's payload.
    pub(crate) fn chunk_bytes(self) -> usize {
        self.payload_bytes(0)
    }

    /// The cells that `range` of the payload touches, as whole cells of the chunk on `shard`; `None` if it touches none there.
    pub(crate) fn touched(self, shard: usize, range: &Range<usize>) -> Option<Range<usize>> {
        if range.is_empty() {
            return None;
        }
        let first = range.start / self.cell_bytes;
        let last = (range.end - 1) / self.cell_bytes;
        if last < shard {
            return None;
        }
        let first_row = first.saturating_sub(shard).div_ceil(self.data_shards);
        let last_row = (last - shard) / self.data_shards;
        if first_row > last_row {
            return None;
        }
        let end = ((last_row + 1) * self.cell_bytes).min(self.payload_bytes(shard));
        Some(first_row * self.cell_bytes..end)
    }

    /// `range` of the payload, cell by cell in order.
    pub(crate) fn slices(self, range: Range<usize>) -> impl Iterator<Item = CellSlice> {
        let mut at = range.start;
        std::iter::from_fn(move || {
            if at >= range.end {
                return None;
            }
            let cell = at / self.cell_bytes;
            let within = at % self.cell_bytes;
            let count = (self.cell_bytes - within).min(range.end - at);
            at += count;
            let start = cell / self.data_shards * self.cell_bytes + within;
            Some(CellSlice { shard: cell % self.data_shards, range: start..start + count })
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn cells_are_blocks_unless_the_payload_is_short() {
        let cell = |data_shards, len| Cells::for_payload(data_shards, len).cell_bytes;
        assert_eq!(cell(4, 8 << 20), BLOCK_BYTES);
        assert_eq!(cell(4, 4 * BLOCK_BYTES), BLOCK_BYTES);
        assert_eq!(cell(4, 100_000), 28_672);
        assert_eq!(cell(4, 1), 4096);
        assert_eq!(cell(1, 1 << 20), BLOCK_BYTES);
    }

    #[test]
    fn an_extent_with_other_cells_is_refused() {
        assert!(Cells::from_extent(4, 65_536, 8 << 20).is_some());
        assert!(Cells::from_extent(4, 4096, 8 << 20).is_none());
        assert!(Cells::from_extent(4, 0, 0).is_none());
        assert!(Cells::from_extent(1, 65_536, u32::MAX).is_none());
    }

    proptest! {
        #[test]
        fn agrees_with_dealing_byte_by_byte(data_shards in 1..7_usize, len in 1..900_000_usize, a in any::<usize>(), b in any::<usize>()) {
            let cells = Cells::for_payload(data_shards, len);
            let mut counts = vec![0; data_shards];
            let place: Vec<(usize, usize)> = (0..len).map(|at| {
                let shard = at / cells.cell_bytes % data_shards;
                counts[shard] += 1;
                (shard, counts[shard] - 1)
            }).collect();
            for (shard, count) in counts.iter().enumerate() {
                prop_assert_eq!(cells.payload_bytes(shard), *count);
            }
            // One block is one cell: what a checksum of a block guards is a contiguous run of the payload.
            prop_assert!(cells.cell_bytes == BLOCK_BYTES || cells.chunk_bytes() <= cells.cell_bytes);
            let (a, b) = (a % len, b % len);
            let range = a.min(b)..a.max(b) + 1;
            let sliced: Vec<_> = cells.slices(range.clone()).flat_map(|slice| {
                slice.range.map(move |at| (slice.shard, at))
            }).collect();
            prop_assert_eq!(&sliced[..], &place[range.clone()]);
            for shard in 0..data_shards {
                let of_shard = |(found, at): &(usize, usize)| (*found == shard).then_some(*at);
                let touched = place[range.clone()].iter().filter_map(of_shard).collect::<Vec<_>>();
                match cells.touched(shard, &range) {
                    None => prop_assert!(touched.is_empty()),
                    Some(found) => {
                        prop_assert_eq!(found.start / cells.cell_bytes, touched[0] / cells.cell_bytes);
                        prop_assert!(found.start.is_multiple_of(cells.cell_bytes));
                        let last = *touched.last().unwrap();
                        prop_assert!(found.end > last && found.end - last <= cells.cell_bytes);
                        prop_assert!(found.end <= cells.payload_bytes(shard));
                    }
                }
            }
        }
    }
}
