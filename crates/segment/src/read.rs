//! Reading extents: verified bytes, with as few reads of as few targets as their place allows.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::{join_all, try_join_all};
use gabion_erasure::{crc64, crc64_combine};
use gabion_platform::{FilePlace, Load, Wanted};
use gabion_types::limits::BLOCK_BYTES;
use gabion_types::{Extent, Place};
use tokio::time::timeout;

use crate::cells::Cells;
use crate::degraded::Failed;
use crate::error::LogError;
use crate::format::chunk_header_bytes;
use crate::media::{ChunkError, Media, VERIFIES_NOTHING, check_blocks};
use crate::segment_info::{LaneKind, SegmentInfo};
use crate::target::OVERDUE;
use crate::warm::PiecePlace;

/// What was read of one chunk: whole cells from the start of `range`, which are whole checksum blocks.
struct Run {
    range: Range<usize>,
    bytes: Bytes,
    /// Where the bytes lie; nothing if they were made out of others.
    place: Option<FilePlace>,
    /// Checksums of the blocks, if the whole stripe is read: together they must give that of the extent.
    crcs: Vec<u64>,
}

/// A slice is shared, which costs an allocation of its own: the whole is not sliced.
fn part(piece: Bytes, range: Range<usize>) -> Bytes {
    if range.len() == piece.len() { piece } else { piece.slice(range) }
}

impl Media {
    /// Bytes `range` of `extent`, which lies in `info`, in order. Where they were dealt in cells, and if all of them were read as they lie, their places are added to `places`.
    pub(crate) async fn read(
        &self,
        info: &SegmentInfo,
        extent: &Extent,
        range: Range<usize>,
        places: Option<&mut Vec<FilePlace>>,
    ) -> Result<Vec<Bytes>, LogError> {
        if let Some(piece) = self.read_warm(extent, range.clone()) {
            return Ok(vec![piece]);
        }
        self.count_read(&range);
        match (extent.place, info.kind) {
            (Place::Chunk { shard, start }, LaneKind::Small) if usize::from(shard) < info.geometry.data() => {
                let bytes = self.read_piece(info, extent, shard.into(), start as usize).await?;
                // Named anew, not kept in the future, which is moved about.
                if let Some(place) = PiecePlace::of(extent) {
                    self.warm.keep(place, &bytes);
                }
                Ok(vec![part(bytes, range)])
            }
            (Place::Cells { cell_bytes }, LaneKind::Large) => {
                let cells = Cells::from_extent(info.geometry.data(), cell_bytes, extent.len)
                    .ok_or_else(|| LogError::Invalid(format!("no stripe has cells of {cell_bytes} bytes")))?;
                // Beside the future that all reads are part of, as what is rare below: it is moved about with each request.
                Box::pin(self.read_cells(info, extent, cells, range, places)).await
            }
            _ => Err(LogError::Invalid(format!("{extent:?} does not fit its segment"))),
        }
    }

    /// Has the page caches load what is to be read in order of bytes `range` of `extent`, where that is much and they do not have it. What fails here is told to who reads.
    pub(crate) async fn load(&self, info: &SegmentInfo, extent: &Extent, range: Range<usize>, wanted: Wanted) -> Load {
        let (Place::Cells { cell_bytes }, LaneKind::Large) = (extent.place, info.kind) else { return None };
        let cells = Cells::from_extent(info.geometry.data(), cell_bytes, extent.len)?;
        let header_bytes = chunk_header_bytes(cells.data_shards, cells.chunk_bytes());
        let of_shard = async |shard| {
            let touched = cells.touched(shard, &range)?;
            let file = self.file(info, shard).await.ok()?;
            if self.targets.owes_bytes(info.targets[shard]) {
                return None;
            }
            // With the header, if it is the first part.
            let start = if touched.start == 0 { 0 } else { header_bytes + touched.start };
            let load = file.load(extent.stripe_offset + start as u64, header_bytes + touched.end - start, wanted)?;
            // Then it is for the read to find out what there is.
            Some(timeout(OVERDUE, load))
        };
        let loads: Vec<_> = join_all((0..cells.data_shards).map(of_shard)).await.into_iter().flatten().collect();
        if loads.is_empty() {
            return None;
        }
        self.metrics.loads.add(loads.len() as u64);
        Some(Box::pin(join_all(loads).map(drop)))
    }

    /// Bytes `range` of a piece in one chunk, if it was read before. An extent that says otherwise than the one before is read, and found wrong.
    pub(crate) fn read_warm(&self, extent: &Extent, range: Range<usize>) -> Option<Bytes> {
        let piece = self.warm.get(&PiecePlace::of(extent)?)?;
        self.count_read(&range);
        self.metrics.warm_reads.add(1);
        Some(part(piece, range))
    }

    fn count_read(&self, range: &Range<usize>) {
        self.metrics.reads.add(1);
        self.metrics.read_bytes.add(range.len() as u64);
    }

    /// A piece in one chunk: one read of exactly its bytes.
    async fn read_piece(
        &self,
        info: &SegmentInfo,
        extent: &Extent,
        shard: usize,
        start: usize,
    ) -> Result<Bytes, LogError> {
        let len = extent.len as usize;
        let error = match self.raw(info, shard, extent.stripe_offset + start as u64, len).await {
            Ok(bytes) if bytes.len() == len && (crc64(&bytes) == extent.crc64 || VERIFIES_NOTHING) => return Ok(bytes),
            Ok(_) => ChunkError::Corrupt("an extent has a wrong checksum".to_owned()),
            Err(error) => error,
        };
        Box::pin(self.rebuild_piece(info, extent, shard, start, error)).await
    }

    /// A piece whose chunk could not be read, or has other bytes.
    async fn rebuild_piece(
        &self,
        info: &SegmentInfo,
        extent: &Extent,
        shard: usize,
        start: usize,
        error: ChunkError,
    ) -> Result<Bytes, LogError> {
        self.damaged(info, shard, &error);
        let header_bytes = self.header_bytes(info, extent.stripe_offset).await?;
        let Some(start) = start.checked_sub(header_bytes) else {
            return Err(LogError::Invalid(format!("{extent:?} begins in a chunk's header")));
        };
        let bytes =
            self.reconstruct(info, extent.stripe_offset, shard, &error, start..start + extent.len as usize).await?;
        if crc64(&bytes) != extent.crc64 {
            return Err(LogError::corrupt(info.id, format!("{extent:?} has a wrong checksum even when it is rebuilt")));
        }
        Ok(bytes)
    }

    /// Length of the chunk headers of a stripe, from whichever shard has one.
    async fn header_bytes(&self, info: &SegmentInfo, stripe_offset: u64) -> Result<usize, LogError> {
        let headers = join_all((0..info.geometry.shards()).map(|shard| self.header(info, stripe_offset, shard))).await;
        if let Some(header) = headers.iter().flatten().next() {
            return Ok(header.shape.header_bytes());
        }
        if headers.iter().any(|header| matches!(header, Err(ChunkError::Exhausted(_)))) {
            return Err(LogError::Busy);
        }
        let failed: Vec<Failed> =
            headers.into_iter().enumerate().filter_map(|(shard, header)| Some((shard, header.err()?))).collect();
        Err(self.too_few(info, &format!("headers of the stripe at {stripe_offset}"), 0, 1, &failed).await)
    }

    /// A range of a stripe that was dealt in cells: one read per chunk that it touches.
    async fn read_cells(
        &self,
        info: &SegmentInfo,
        extent: &Extent,
        cells: Cells,
        range: Range<usize>,
        places: Option<&mut Vec<FilePlace>>,
    ) -> Result<Vec<Bytes>, LogError> {
        let whole = range.len() == cells.len;
        let runs = try_join_all((0..cells.data_shards).map(async |shard| {
            let Some(touched) = cells.touched(shard, &range) else { return Ok(None) };
            let read = if whole {
                self.whole_chunk(info, extent, cells, shard).await
            } else {
                let part = self.part_of_chunk(info, extent.stripe_offset, shard, touched.clone()).await;
                part.map(|(bytes, place)| (bytes, place, Vec::new()))
            };
            let (bytes, place, crcs) = match read {
                Ok((bytes, place, crcs)) => (bytes, Some(place), crcs),
                Err(error) => {
                    self.damaged(info, shard, &error);
                    let bytes = self.reconstruct(info, extent.stripe_offset, shard, &error, touched.clone()).await?;
                    let crcs = if whole { bytes.chunks(BLOCK_BYTES).map(crc64).collect() } else { Vec::new() };
                    (bytes, None, crcs)
                }
            };
            Ok::<_, LogError>(Some(Run { range: touched, bytes, place, crcs }))
        }))
        .await?;
        let mut pieces = Vec::with_capacity(range.len() / cells.cell_bytes + 2);
        let mut places = places.filter(|_| runs.iter().flatten().all(|run| run.place.is_some()));
        let mut crc = 0;
        for slice in cells.slices(range) {
            let run = runs[slice.shard].as_ref().expect("every chunk that the range touches was read");
            if whole {
                crc = crc64_combine(crc, run.crcs[slice.range.start / cells.cell_bytes], slice.range.len() as u64);
            }
            if let (Some(places), Some(FilePlace { file, offset })) = (&mut places, &run.place) {
                let offset = offset + (slice.range.start - run.range.start) as u64;
                places.push(FilePlace { file: Arc::clone(file), offset });
            }
            pieces.push(run.bytes.slice(slice.range.start - run.range.start..slice.range.end - run.range.start));
        }
        if whole && crc != extent.crc64 && !VERIFIES_NOTHING {
            return Err(LogError::corrupt(info.id, format!("{extent:?} has a wrong checksum")));
        }
        Ok(pieces)
    }

    /// The payload of a chunk with one read of it and its header, whose length is known beforehand.
    async fn whole_chunk(
        &self,
        info: &SegmentInfo,
        extent: &Extent,
        cells: Cells,
        shard: usize,
    ) -> Result<(Bytes, FilePlace, Vec<u64>), ChunkError> {
        let header_bytes = chunk_header_bytes(cells.data_shards, cells.chunk_bytes());
        let payload_bytes = cells.payload_bytes(shard);
        let (chunk, file) = self.raw_of(info, shard, extent.stripe_offset, header_bytes + payload_bytes).await?;
        let header = self.remember(info, extent.stripe_offset, shard, &chunk)?;
        if header.shape.header_bytes() != header_bytes || header.shape.payload_bytes(shard) != payload_bytes {
            return Err(ChunkError::Corrupt("the chunk is not of the extent's length".to_owned()));
        }
        let payload = chunk.slice(header_bytes.min(chunk.len())..);
        check_blocks(&header, 0..payload_bytes, &payload)?;
        let place = FilePlace { file, offset: extent.stripe_offset + header_bytes as u64 };
        Ok((payload, place, header.block_crcs.clone()))
    }

    /// Whole blocks of a chunk: the header from memory, or with a read of its own.
    async fn part_of_chunk(
        &self,
        info: &SegmentInfo,
        stripe_offset: u64,
        shard: usize,
        range: Range<usize>,
    ) -> Result<(Bytes, FilePlace), ChunkError> {
        debug_assert!(range.start.is_multiple_of(BLOCK_BYTES) || range.start == 0);
        let header = self.header(info, stripe_offset, shard).await?;
        let payload_bytes = header.shape.payload_bytes(shard);
        if range.end > payload_bytes || !(range.end.is_multiple_of(BLOCK_BYTES) || range.end == payload_bytes) {
            return Err(ChunkError::Corrupt("the chunk is not of the extent's length".to_owned()));
        }
        self.placed_payload(info, &header, range).await
    }
}
