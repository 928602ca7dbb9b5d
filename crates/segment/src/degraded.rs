//! Ranges of chunks that can not be read, rebuilt from any `k` others of their stripe.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::join_all;
use gabion_types::limits::BLOCK_BYTES;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::LogError;
use crate::format::{ChunkHeader, StripeShape};
use crate::media::{ChunkError, Media, check_blocks};
use crate::segment_info::SegmentInfo;

/// Memory for rebuilding chunks, in bytes; one rebuild of the widest geometry may take more, alone.
const REBUILD_MEMORY_BYTES: usize = 256 << 20;

/// The memory for rebuilding chunks, in blocks.
pub(crate) fn rebuild_memory() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(REBUILD_MEMORY_BYTES / BLOCK_BYTES))
}

impl Media {
    /// Bytes `range` of the payload of the chunk on `shard`, from at least `k` other chunks whose blocks are all checked.
    ///
    /// # Errors
    /// `Corrupt` when fewer than `k` others can be read; `Busy` when that is for want of descriptors or memory.
    pub(crate) async fn reconstruct(
        &self,
        info: &SegmentInfo,
        stripe_offset: u64,
        shard: usize,
        range: Range<usize>,
    ) -> Result<Bytes, LogError> {
        self.metrics.degraded_reads.add(1);
        let lost = |detail: String| LogError::corrupt(info.id, format!("stripe at {stripe_offset}: {detail}"));
        let headers = self.other_headers(info, stripe_offset, shard).await?;
        let Some(shape) = headers.iter().flatten().next().map(|header| header.shape.clone()) else {
            return Err(lost("no chunk has a valid header".to_owned()));
        };
        if range.is_empty() || range.end > shape.payload_bytes(shard) {
            return Err(lost(format!("bytes {range:?} are not in the chunk on shard {shard}")));
        }
        let start = range.start / BLOCK_BYTES * BLOCK_BYTES;
        let end = range.end.next_multiple_of(BLOCK_BYTES).min(shape.payload_bytes(shard));
        // Many readers of a lost target must not hold `k` times their bytes all at once.
        let _room = self.rebuild_room((end - start).saturating_mul(info.geometry.data() + 1)).await;
        let have = self.gather(info, &shape, &headers, shard, start..end).await?;
        let mut rebuilt = vec![0; end - start];
        let slices: Vec<(usize, &[u8])> = have.iter().map(|(shard, bytes)| (*shard, &bytes[..])).collect();
        self.codec(info.geometry)
            .reconstruct(&slices, &mut [(shard, &mut rebuilt)])
            .map_err(|error| lost(error.to_string()))?;
        // The chunk's own header may have survived: then its checksums must agree.
        if let Ok(own) = self.header(info, stripe_offset, shard).await
            && let Err(error) = check_blocks(&own, start..end, &rebuilt)
        {
            return Err(lost(format!("rebuilt shard {shard} disagrees with its own header: {error}")));
        }
        Ok(Bytes::from(rebuilt).slice(range.start - start..range.end - start))
    }

    /// Waits for a share of the memory for rebuilding chunks: of all there is when that is less.
    pub(crate) async fn rebuild_room(&self, bytes: usize) -> OwnedSemaphorePermit {
        let units = bytes.div_ceil(BLOCK_BYTES).clamp(1, REBUILD_MEMORY_BYTES / BLOCK_BYTES);
        let room = Arc::clone(&self.rebuilds).acquire_many_owned(units as u32).await;
        room.expect("the semaphore is never closed")
    }

    /// The headers of all shards but one, where they can be read and agree.
    async fn other_headers(
        &self,
        info: &SegmentInfo,
        stripe_offset: u64,
        without: usize,
    ) -> Result<Vec<Option<Arc<ChunkHeader>>>, LogError> {
        let headers = join_all((0..info.geometry.shards()).map(async |shard| {
            if shard == without {
                return Ok(None);
            }
            match self.header(info, stripe_offset, shard).await {
                Ok(header) => Ok(Some(header)),
                Err(ChunkError::Exhausted(_)) => Err(LogError::Busy),
                Err(error) => {
                    self.damaged(info, shard, &error);
                    Ok(None)
                }
            }
        }))
        .await
        .into_iter()
        .collect::<Result<Vec<_>, LogError>>()?;
        let shape = headers.iter().flatten().next().map(|header| header.shape.clone());
        let agrees = |header: &Arc<ChunkHeader>| Some(&header.shape) == shape.as_ref();
        Ok(headers.into_iter().map(|header| header.filter(agrees)).collect())
    }

    /// `k` chunks other than `without`, `range` of each, zeros where a chunk is shorter.
    pub(crate) async fn gather(
        &self,
        info: &SegmentInfo,
        shape: &StripeShape,
        headers: &[Option<Arc<ChunkHeader>>],
        without: usize,
        range: Range<usize>,
    ) -> Result<Vec<(usize, Bytes)>, LogError> {
        let needed = info.geometry.data();
        // A chunk that ends before the range counts as zeros there: it is known without its target.
        let blank = |shard: usize| shape.payload_bytes(shard) <= range.start;
        let mut have: Vec<(usize, Bytes)> = (0..info.geometry.shards())
            .filter(|&shard| shard != without && blank(shard))
            .map(|shard| (shard, Bytes::from(vec![0; range.len()])))
            .collect();
        let mut candidates = headers.iter().flatten().filter(|header| !blank(header.shard.into()));
        while have.len() < needed {
            let wave: Vec<_> = candidates.by_ref().take(needed - have.len()).collect();
            if wave.is_empty() {
                return Err(LogError::corrupt(
                    info.id,
                    format!("stripe at {}: {} of {needed} chunks can be read", shape.stripe_offset, have.len()),
                ));
            }
            let read = join_all(wave.iter().map(|header| self.padded(info, header, range.clone()))).await;
            for (header, outcome) in wave.into_iter().zip(read) {
                match outcome {
                    Ok(bytes) => have.push((header.shard.into(), bytes)),
                    Err(ChunkError::Exhausted(_)) => return Err(LogError::Busy),
                    Err(error) => self.damaged(info, header.shard.into(), &error),
                }
            }
        }
        have.truncate(needed);
        Ok(have)
    }

    /// Checked bytes `range` of a chunk's payload, with zeros after its end.
    async fn padded(&self, info: &SegmentInfo, header: &ChunkHeader, range: Range<usize>) -> Result<Bytes, ChunkError> {
        let payload_bytes = header.shape.payload_bytes(header.shard.into());
        // Whole blocks are read even where the wanted chunk ends within one: only whole blocks can be checked.
        let end = range.end.next_multiple_of(BLOCK_BYTES).min(payload_bytes);
        let bytes = self.payload(info, header, range.start..end).await?;
        if bytes.len() >= range.len() {
            return Ok(bytes.slice(..range.len()));
        }
        let mut padded = vec![0; range.len()];
        padded[..bytes.len()].copy_from_slice(&bytes);
        Ok(padded.into())
    }
}
