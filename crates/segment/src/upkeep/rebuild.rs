//! Building a shard file of a sealed segment, stripe by stripe, under a name that nobody reads.
//!
//! A chunk that is whole where the shard lies now is copied; else it is reconstructed from any `k` others, all of whose blocks are
//! checked. A stripe that can not be had at all is left out where there is no file to be replaced, so that it costs only itself; where
//! there is one, nothing is replaced: what is left of it may be all that there is. Nothing is left out for targets that do not answer: they are
//! waited for.
//!
//! What is usual goes through [`Sources`], which read ahead. Whatever is not as it should be is looked at stripe by stripe, in full.

use std::sync::Arc;

use futures::future::join_all;
use gabion_erasure::crc64;
use gabion_platform::{Disk, DiskFile};
use gabion_types::limits::{BLOCK_BYTES, CHUNK_ALIGN_BYTES};

use super::Pace;
use super::ahead::TimedFile;
use super::census::shard_file_bytes;
use super::check::{ShardToCheck, pieces};
use super::output::{OUTPUT_BYTES_MAX, Output};
use super::sources::{Had, Sources};
use crate::core::Core;
use crate::degraded::{Failed, GatherError};
use crate::error::LogError;
use crate::format::{ChunkHeader, SHARD_HEADER_BYTES_MAX, SealReason, ShardHeader, StripeShape, shard_header_bytes};
use crate::media::{ChunkError, check_blocks, decode_header};
use crate::segment::{Segment, Written};
use crate::segment_info::{Seal, SegmentInfo};
use crate::target::{OVERDUE, SYNC_OVERDUE, Target, overdue};

/// What is to be built.
pub(super) struct Rebuild<'a> {
    pub(super) core: &'a Core,
    pub(super) segment: &'a Segment,
    pub(super) info: &'a SegmentInfo,
    pub(super) seal: Seal,
    pub(super) shard: usize,
    /// The target that it is built for.
    pub(super) target: &'a Arc<Target>,
    /// The shard has a file now, which the new one is to replace.
    pub(super) replaces_a_file: bool,
    pub(super) pace: &'a Pace,
}

/// A file that was built and checked.
#[derive(Debug, Default)]
pub(super) struct Built {
    pub(super) bytes: u64,
    /// Live stripes of which this shard could not be had.
    pub(super) lost_stripes: u64,
}

/// The chunks of a stripe, as far as their headers can be read.
struct Stripe {
    shape: StripeShape,
    headers: Vec<Option<Arc<ChunkHeader>>>,
    /// What is wrong with the others.
    failed: Vec<Failed>,
}

/// What became of a chunk.
enum Chunk {
    Written,
    /// Nothing needs its stripe.
    NotNeeded,
    Lost(Loss),
}

/// Why a chunk can not be had.
struct Loss {
    told: LogError,
    failed: Vec<Failed>,
}

impl Rebuild<'_> {
    /// Writes all of the shard to `file`, durably, and reads it back.
    pub(super) async fn build(&self, file: &Arc<dyn DiskFile>) -> Result<Built, LogError> {
        let built = self.write(file).await?;
        let cut = file.set_len(shard_file_bytes(self.seal));
        self.target.in_time(OVERDUE, cut).await.map_err(|error| self.failed(error))?;
        self.target.in_time(SYNC_OVERDUE, file.sync()).await.map_err(|error| self.failed(error))?;
        self.read_back(file, &built).await?;
        Ok(built)
    }

    async fn write(&self, file: &Arc<dyn DiskFile>) -> Result<Built, LogError> {
        let mut built = Built::default();
        let (memory, free) = (&self.core.upkeep_memory, Pace::new(0));
        let room = memory.room(self.info.geometry.data(), OUTPUT_BYTES_MAX, &free).await;
        let mut sources = Sources::open(self.core, self.info, self.seal, self.shard, &room, &free).await;
        let mut output = Output::new(self.timed(file), &self.core.buffers);
        let header = self.shard_header().await.encode();
        self.place(&mut output, 0, header.len()).await?.copy_from_slice(&header);
        let mut offset = shard_header_bytes(self.info.geometry.shards()) as u64;
        for stripe_index in 0..self.seal.stripes {
            if self.segment.settled_seal().is_none() {
                return Err(LogError::NotFound(self.info.id));
            }
            let shape = match self.usual_stripe(&mut sources, &mut output, offset, stripe_index).await? {
                Some(shape) => shape,
                None => self.stripe_in_full(&mut output, offset, stripe_index, &mut built).await?,
            };
            built.bytes += shape.written_bytes(self.shard) as u64;
            offset = shape.next_offset();
        }
        if offset != self.seal.end_offset {
            return Err(LogError::corrupt(self.info.id, format!("its stripes end at {offset}, not where its seal is")));
        }
        let block = self.core.media.seal_block(self.info, SealReason::Complete, self.seal, true);
        self.place(&mut output, self.seal.end_offset, block.len()).await?.copy_from_slice(&block);
        output.finish().await.map_err(|error| self.failed(error))?;
        Ok(built)
    }

    /// Has the chunk of a stripe from the sources that are read ahead; nothing if something is wrong with one of them.
    async fn usual_stripe(
        &self,
        sources: &mut Sources<'_>,
        output: &mut Output<'_>,
        offset: u64,
        stripe_index: u32,
    ) -> Result<Option<StripeShape>, LogError> {
        if !self.core.is_live(self.info.id, offset) {
            return Ok(None);
        }
        let Some(stripe) = sources.stripe(offset, stripe_index).await else { return Ok(None) };
        let written_bytes = stripe.shape.written_bytes(self.shard);
        self.pace.pass(written_bytes as u64).await;
        let chunk = self.place(output, offset, written_bytes).await?;
        match sources.chunk(&stripe, chunk).await {
            Had::Whole => Ok(Some(stripe.shape)),
            Had::Nothing => {
                output.cut(offset);
                Ok(None)
            }
        }
    }

    /// Has the chunk of a stripe from wherever it can be had.
    async fn stripe_in_full(
        &self,
        output: &mut Output<'_>,
        offset: u64,
        stripe_index: u32,
        built: &mut Built,
    ) -> Result<StripeShape, LogError> {
        let stripe = self.stripe(offset, stripe_index).await?;
        let is_live = || self.core.is_live(self.info.id, offset);
        let chunk = self.place(output, offset, stripe.shape.written_bytes(self.shard)).await?;
        let outcome = if !is_live() {
            Chunk::NotNeeded
        } else if self.copy(chunk, &stripe).await? {
            Chunk::Written
        } else {
            self.reconstruct(chunk, &stripe).await?
        };
        match outcome {
            Chunk::Written => {}
            Chunk::Lost(error) if is_live() => {
                if self.replaces_a_file || self.is_one_silent(&error.failed).await {
                    return Err(error.told);
                }
                built.lost_stripes += 1;
                output.cut(offset);
            }
            Chunk::Lost(_) | Chunk::NotNeeded => {
                output.cut(offset);
                let header = self.dead_header(&stripe);
                let place = self.place(output, offset, header.shape.header_bytes()).await?;
                header.encode(place);
            }
        }
        Ok(stripe.shape)
    }

    /// Where the file's next `len` bytes go.
    async fn place<'o>(&self, output: &'o mut Output<'_>, offset: u64, len: usize) -> Result<&'o mut [u8], LogError> {
        output.at(offset, len).await.map_err(|error| self.failed(error))
    }

    async fn read_back(&self, file: &Arc<dyn DiskFile>, built: &Built) -> Result<(), LogError> {
        let (target, file) = (self.target.id, self.timed(file));
        let whole =
            ShardToCheck { info: self.info, written: Written::whole(self.seal), shard: self.shard, target, file };
        let free = Pace::new(0);
        let room = self.core.upkeep_memory.room(1, 0, &free).await;
        let checked = whole.check(self.core, &free, &room).await?;
        match checked.damage {
            _ if checked.is_unread => Err(self.failed(overdue())),
            Some(damage) if checked.bad_chunks != built.lost_stripes || built.lost_stripes == 0 => {
                Err(LogError::Unavailable(format!("the shard that was built is not what was written: {damage}")))
            }
            _ => Ok(()),
        }
    }

    /// The header of the new file: that of the others, with a higher epoch.
    async fn shard_header(&self) -> ShardHeader {
        let (core, info) = (self.core, self.info);
        let headers = join_all((0..info.geometry.shards()).map(async |shard| {
            let bytes = core.media.raw(info, shard, 0, SHARD_HEADER_BYTES_MAX).await.ok()?;
            let header = ShardHeader::decode(&bytes).ok()?;
            (header.segment == info.id && header.geometry == info.geometry).then_some(header)
        }))
        .await;
        let newest = headers.into_iter().flatten().max_by_key(|header| header.epoch);
        let mut targets = info.targets.clone();
        targets[self.shard] = self.target.id;
        let epoch = newest.as_ref().map_or(0, |header| header.epoch) + 1;
        let newest = newest.unwrap_or_else(|| ShardHeader {
            kind: info.kind,
            relaxed: false,
            segment: info.id,
            deployment: core.media.targets.deployment,
            shard: 0,
            geometry: info.geometry,
            writer: core.writer,
            epoch: 0,
            created_ms: core.media.clock.now_ms(),
            planned_bytes: shard_file_bytes(self.seal),
            targets: Vec::new(),
        });
        ShardHeader { shard: self.shard as u8, epoch, targets, ..newest }
    }

    async fn stripe(&self, offset: u64, stripe_index: u32) -> Result<Stripe, LogError> {
        let (core, info) = (self.core, self.info);
        let headers = join_all((0..info.geometry.shards()).map(async |shard| {
            let bytes = core.media.raw(info, shard, offset, CHUNK_ALIGN_BYTES).await?;
            match decode_header(info, offset, shard, &bytes) {
                Ok(header) if header.shape.stripe_index == stripe_index => Ok(Arc::new(header)),
                Ok(_) => Err(ChunkError::Corrupt("chunk header: it is of another stripe".to_owned())),
                Err(error) => Err(ChunkError::Corrupt(format!("chunk header: {error}"))),
            }
        }))
        .await;
        let (mut found, mut failed) = (vec![None; headers.len()], Vec::new());
        let mut shape: Option<StripeShape> = None;
        for (shard, header) in headers.into_iter().enumerate() {
            match header {
                Ok(header) if header.shape == *shape.get_or_insert_with(|| header.shape.clone()) => {
                    found[shard] = Some(header);
                }
                Ok(_) => {
                    failed.push((shard, ChunkError::Corrupt("chunk header: it disagrees with another".to_owned())))
                }
                Err(ChunkError::Exhausted(_)) => return Err(LogError::Busy),
                Err(error) => failed.push((shard, error)),
            }
        }
        match shape {
            Some(shape) => Ok(Stripe { shape, headers: found, failed }),
            None => Err(core.media.too_few(info, &format!("headers of stripe {stripe_index}"), 0, 1, &failed).await),
        }
    }

    /// Whether one of the targets that these chunks lie on does not answer: it may come back, and with it what is missing.
    async fn is_one_silent(&self, failed: &[Failed]) -> bool {
        let targets = &self.core.media.targets;
        for (shard, error) in failed {
            let target = self.info.targets[*shard];
            // One that was late may answer by now, but has not said what is there.
            let is_late = matches!(error, ChunkError::Overdue);
            let is_silent = || async { is_late || targets.is_member(target) && !self.core.media.answers(target).await };
            if *shard != self.shard && !matches!(error, ChunkError::Corrupt(_)) && is_silent().await {
                return true;
            }
        }
        false
    }

    /// Copies the chunk from where the shard lies now; false if it is not whole there.
    async fn copy(&self, chunk: &mut [u8], stripe: &Stripe) -> Result<bool, LogError> {
        let Some(header) = &stripe.headers[self.shard] else { return Ok(false) };
        let (head, payload) = chunk.split_at_mut(stripe.shape.header_bytes());
        for range in pieces(stripe.shape.payload_bytes(self.shard)) {
            self.pace.pass(range.len() as u64).await;
            let bytes = match self.core.media.payload(self.info, header, range.clone()).await {
                Ok(bytes) => bytes,
                Err(ChunkError::Exhausted(_)) => return Err(LogError::Busy),
                Err(_) => return Ok(false),
            };
            payload[range].copy_from_slice(&bytes);
        }
        header.encode(head);
        Ok(true)
    }

    /// Reconstructs the chunk from the others.
    async fn reconstruct(&self, chunk: &mut [u8], stripe: &Stripe) -> Result<Chunk, LogError> {
        let (core, shape) = (self.core, &stripe.shape);
        let (head, payload) = chunk.split_at_mut(shape.header_bytes());
        let codec = core.media.codec(self.info.geometry);
        let mut header = ChunkHeader { shape: shape.clone(), shard: self.shard as u8, block_crcs: Vec::new() };
        for range in pieces(shape.payload_bytes(self.shard)) {
            self.pace.pass(range.len() as u64).await;
            let _room = core.media.rebuild_room(range.len().saturating_mul(self.info.geometry.data() + 1)).await;
            let have = match core.media.gather(self.info, shape, &stripe.headers, self.shard, range.clone()).await {
                Ok(have) => have,
                Err(GatherError::Busy) => return Err(LogError::Busy),
                Err(GatherError::TooFew { have, failed: more }) => {
                    let failed: Vec<Failed> = stripe.failed.iter().cloned().chain(more).collect();
                    let what = format!("stripe {}", shape.stripe_index);
                    let told = core.media.too_few(self.info, &what, have, self.info.geometry.data(), &failed).await;
                    return Ok(Chunk::Lost(Loss { told, failed }));
                }
            };
            let have: Vec<(usize, &[u8])> = have.iter().map(|(shard, bytes)| (*shard, &bytes[..])).collect();
            let rebuilt = &mut payload[range.clone()];
            codec
                .reconstruct(&have, &mut [(self.shard, &mut *rebuilt)])
                .map_err(|error| LogError::corrupt(self.info.id, error.to_string()))?;
            // Where the chunk's own header survived it must agree.
            if let Some(own) = &stripe.headers[self.shard]
                && let Err(error) = check_blocks(own, range.clone(), rebuilt)
            {
                let told =
                    LogError::corrupt(self.info.id, format!("a rebuilt chunk disagrees with its own header: {error}"));
                return Ok(Chunk::Lost(Loss { told, failed: Vec::new() }));
            }
            header.block_crcs.extend(rebuilt.chunks(BLOCK_BYTES).map(crc64));
        }
        header.encode(head);
        Ok(Chunk::Written)
    }

    /// Of a stripe that nothing needs there is only the header: by it whoever walks the segment finds the next stripe.
    fn dead_header(&self, stripe: &Stripe) -> ChunkHeader {
        if let Some(own) = &stripe.headers[self.shard] {
            return ChunkHeader::clone(own);
        }
        let blocks = stripe.shape.payload_bytes(self.shard).div_ceil(BLOCK_BYTES);
        ChunkHeader { shape: stripe.shape.clone(), shard: self.shard as u8, block_crcs: vec![0; blocks] }
    }

    /// A write failed: the target that was to take the shard is at fault.
    pub(super) fn failed(&self, error: std::io::Error) -> LogError {
        if let Some(number) = self.core.media.targets.find(self.target.id) {
            self.core.media.targets.failed(number, &error);
        }
        LogError::io(&self.target.name, error)
    }

    fn timed(&self, file: &Arc<dyn DiskFile>) -> TimedFile {
        TimedFile { file: Arc::clone(file), target: Some(Arc::clone(self.target)) }
    }

    /// The disk that it is built on.
    pub(super) fn disk(&self) -> Result<Arc<dyn Disk>, LogError> {
        self.target.disk().ok_or_else(|| LogError::Unavailable(format!("target {} is not there", self.target.name)))
    }
}
