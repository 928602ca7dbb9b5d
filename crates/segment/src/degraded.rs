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
use crate::status::MemoryUse;

/// Memory for rebuilding chunks, in bytes; one rebuild of the widest geometry may take more, alone.
const REBUILD_MEMORY_BYTES: usize = 256 << 20;

/// The memory for rebuilding chunks, in blocks.
pub(crate) fn rebuild_memory() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(REBUILD_MEMORY_BYTES / BLOCK_BYTES))
}

/// Why fewer than `k` chunks could be gathered.
#[derive(Debug)]
pub(crate) enum GatherError {
    /// This machine lacks descriptors or memory.
    Busy,
    /// Too few are good.
    TooFew {
        /// How many were.
        have: usize,
        /// What is wrong with those that were tried.
        failed: Vec<Failed>,
    },
}

/// A shard of which a chunk could not be had, and why.
pub(crate) type Failed = (usize, ChunkError);

impl Media {
    /// What it comes to that only `have` chunks of a stripe are good where `needed` are: the stripe is lost when those that could not be read would
    /// not make up for it.
    pub(crate) async fn too_few(
        &self,
        info: &SegmentInfo,
        what: &str,
        have: usize,
        needed: usize,
        failed: &[Failed],
    ) -> LogError {
        let mut out_of_reach = 0;
        for (shard, error) in failed {
            out_of_reach += usize::from(self.may_come_back(info, *shard, error).await);
        }
        let detail = format!("{what}: {have} of {needed} chunks can be read, {out_of_reach} may come back");
        if have + out_of_reach >= needed {
            LogError::unreadable(info.id, detail)
        } else {
            LogError::corrupt(info.id, detail)
        }
    }

    /// Whether what could not be had may be as good as ever.
    async fn may_come_back(&self, info: &SegmentInfo, shard: usize, error: &ChunkError) -> bool {
        let target = info.targets[shard];
        match error {
            ChunkError::Corrupt(_) => false,
            ChunkError::Io(_) | ChunkError::Overdue | ChunkError::Exhausted(_) => true,
            // A file that is gone from a target that is there is lost.
            ChunkError::Absent => self.targets.is_member(target) && !self.answers(target).await,
        }
    }

    /// Bytes `range` of the payload of the chunk on `shard`, which can not be had because of `own`, from `k` other chunks whose blocks are all
    /// checked.
    ///
    /// # Errors
    /// When there are fewer than `k` others: `Unreadable` if that may pass, else `Corrupt`; `Busy` when it is for want of descriptors or memory.
    pub(crate) async fn reconstruct(
        &self,
        info: &SegmentInfo,
        stripe_offset: u64,
        shard: usize,
        own: &ChunkError,
        range: Range<usize>,
    ) -> Result<Bytes, LogError> {
        self.metrics.degraded_reads.add(1);
        let lost = |detail: String| LogError::corrupt(info.id, format!("stripe at {stripe_offset}: {detail}"));
        let (headers, mut failed) = self.other_headers(info, stripe_offset, shard).await?;
        let Some(shape) = headers.iter().flatten().next().map(|header| header.shape.clone()) else {
            return Err(self.beyond_parity(info, stripe_offset, 0, (shard, own), &failed).await);
        };
        if range.is_empty() || range.end > shape.payload_bytes(shard) {
            return Err(lost(format!("bytes {range:?} are not in the chunk on shard {shard}")));
        }
        let start = range.start / BLOCK_BYTES * BLOCK_BYTES;
        let end = range.end.next_multiple_of(BLOCK_BYTES).min(shape.payload_bytes(shard));
        // Many readers of a lost target must not hold `k` times their bytes all at once.
        let _room = self.rebuild_room((end - start).saturating_mul(info.geometry.data() + 1)).await;
        let have = match self.gather(info, &shape, &headers, shard, start..end).await {
            Ok(have) => have,
            Err(GatherError::Busy) => return Err(LogError::Busy),
            Err(GatherError::TooFew { have, failed: more }) => {
                failed.extend(more);
                return Err(self.beyond_parity(info, stripe_offset, have, (shard, own), &failed).await);
            }
        };
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

    /// The memory for rebuilding chunks at this moment.
    pub(crate) fn rebuild_memory(&self) -> MemoryUse {
        MemoryUse::of("rebuilds", &self.rebuilds, REBUILD_MEMORY_BYTES / BLOCK_BYTES, BLOCK_BYTES)
    }

    /// Waits for a share of the memory for rebuilding chunks: of all there is when that is less.
    pub(crate) async fn rebuild_room(&self, bytes: usize) -> OwnedSemaphorePermit {
        let units = bytes.div_ceil(BLOCK_BYTES).clamp(1, REBUILD_MEMORY_BYTES / BLOCK_BYTES);
        let room = Arc::clone(&self.rebuilds).acquire_many_owned(units as u32).await;
        room.expect("the semaphore is never closed")
    }

    /// The error of a chunk that can neither be read nor be reconstructed: that it may be read later is enough for it not to be lost.
    async fn beyond_parity(
        &self,
        info: &SegmentInfo,
        stripe_offset: u64,
        have: usize,
        (shard, own): (usize, &ChunkError),
        failed: &[Failed],
    ) -> LogError {
        let what = format!("stripe at {stripe_offset}");
        if self.may_come_back(info, shard, own).await {
            return LogError::unreadable(info.id, format!("{what}: shard {shard}: {own}"));
        }
        self.too_few(info, &what, have, info.geometry.data(), failed).await
    }

    /// The headers of all shards but one, where they can be read and agree, and what is wrong with the others.
    async fn other_headers(
        &self,
        info: &SegmentInfo,
        stripe_offset: u64,
        without: usize,
    ) -> Result<(Vec<Option<Arc<ChunkHeader>>>, Vec<Failed>), LogError> {
        let shards = (0..info.geometry.shards()).filter(|shard| *shard != without);
        let read = join_all(shards.map(async |shard| (shard, self.header(info, stripe_offset, shard).await))).await;
        let (mut headers, mut failed) = (vec![None; info.geometry.shards()], Vec::new());
        let mut shape: Option<StripeShape> = None;
        for (shard, outcome) in read {
            match outcome {
                Ok(header) if header.shape == *shape.get_or_insert_with(|| header.shape.clone()) => {
                    headers[shard] = Some(header);
                }
                Ok(_) => {
                    failed.push((shard, ChunkError::Corrupt("chunk header: it disagrees with another".to_owned())))
                }
                Err(ChunkError::Exhausted(_)) => return Err(LogError::Busy),
                Err(error) => {
                    self.damaged(info, shard, &error);
                    failed.push((shard, error));
                }
            }
        }
        Ok((headers, failed))
    }

    /// `k` chunks other than `without`, `range` of each, zeros where a chunk is shorter.
    pub(crate) async fn gather(
        &self,
        info: &SegmentInfo,
        shape: &StripeShape,
        headers: &[Option<Arc<ChunkHeader>>],
        without: usize,
        range: Range<usize>,
    ) -> Result<Vec<(usize, Bytes)>, GatherError> {
        let needed = info.geometry.data();
        // A chunk that ends before the range counts as zeros there: it is known without its target.
        let blank = |shard: usize| shape.payload_bytes(shard) <= range.start;
        let mut have: Vec<(usize, Bytes)> = (0..info.geometry.shards())
            .filter(|&shard| shard != without && blank(shard))
            .map(|shard| (shard, Bytes::from(vec![0; range.len()])))
            .collect();
        let mut failed = Vec::new();
        let is_candidate = |shard: usize| shard != without && !blank(shard);
        let mut candidates = headers.iter().flatten().filter(|header| is_candidate(header.shard.into()));
        while have.len() < needed {
            let wave: Vec<_> = candidates.by_ref().take(needed - have.len()).collect();
            if wave.is_empty() {
                return Err(GatherError::TooFew { have: have.len(), failed });
            }
            let read = join_all(wave.iter().map(|header| self.padded(info, header, range.clone()))).await;
            for (header, outcome) in wave.into_iter().zip(read) {
                match outcome {
                    Ok(bytes) => have.push((header.shard.into(), bytes)),
                    Err(ChunkError::Exhausted(_)) => return Err(GatherError::Busy),
                    Err(error) => {
                        self.damaged(info, header.shard.into(), &error);
                        failed.push((header.shard.into(), error));
                    }
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
