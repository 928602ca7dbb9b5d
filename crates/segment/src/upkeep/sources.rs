//! Where the chunks of a shard that is built come from as long as nothing is wrong: the shard itself where it lies now, or the first `k` others.
//!
//! They are read ahead, each file in long runs and all of them at once, and what they give is checked block by block. A stripe of which any of it is
//! missing or wrong is somebody else's business: here it is only counted, so that a file which is bad throughout is not asked for ever.

use bytes::Bytes;
use gabion_erasure::{Codec, crc64};
use gabion_types::limits::{BLOCK_BYTES, CHUNK_ALIGN_BYTES};

use super::Pace;
use super::ahead::{Ahead, Room, TimedFile};
use super::census::shard_file_bytes;
use super::check::pieces;
use crate::core::Core;
use crate::format::{ChunkHeader, StripeShape};
use crate::media::{check_blocks, decode_header};
use crate::segment_info::{Seal, SegmentInfo};

/// Stripes in a row that a source may be of no use for before another one is asked.
const MISSES_MAX: u32 = 4;

/// The files that are read.
pub(super) struct Sources<'a> {
    core: &'a Core,
    info: &'a SegmentInfo,
    seal: Seal,
    /// The shard that is built.
    shard: usize,
    codec: Codec,
    room: &'a Room,
    pace: &'a Pace,
    /// The shard itself alone, or `k` others; none when there are too few.
    chosen: Vec<Source<'a>>,
    /// Shards that were not asked yet.
    spare: Vec<usize>,
}

struct Source<'a> {
    shard: usize,
    ahead: Ahead<'a>,
    misses: u32,
}

/// A stripe all of whose sources agree on what it is.
pub(super) struct SourceStripe {
    pub(super) shape: StripeShape,
    headers: Vec<ChunkHeader>,
}

/// What became of a chunk.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Had {
    Whole,
    Nothing,
}

impl<'a> Sources<'a> {
    /// Chooses the files.
    pub(super) async fn open(
        core: &'a Core,
        info: &'a SegmentInfo,
        seal: Seal,
        shard: usize,
        room: &'a Room,
        pace: &'a Pace,
    ) -> Self {
        let codec = core.media.codec(info.geometry);
        let spare = (0..info.geometry.shards()).filter(|other| *other != shard).rev().collect();
        let mut this = Self { core, info, seal, shard, codec, room, pace, chosen: Vec::new(), spare };
        match this.source(shard).await {
            Some(own) => this.chosen.push(own),
            None => this.choose().await,
        }
        this
    }

    /// What the headers of the chosen chunks say; nothing if they do not all say the same.
    pub(super) async fn stripe(&mut self, offset: u64, stripe_index: u32) -> Option<SourceStripe> {
        self.replace_the_useless().await;
        let mut headers: Vec<ChunkHeader> = Vec::with_capacity(self.chosen.len());
        for source in &mut self.chosen {
            let header = source.header(self.info, offset, stripe_index).await;
            let agrees = |header: &ChunkHeader| headers.first().is_none_or(|first| first.shape == header.shape);
            match header.filter(agrees) {
                Some(header) => headers.push(header),
                None => source.misses += 1,
            }
        }
        let shape = headers.first().filter(|_| headers.len() == self.chosen.len())?.shape.clone();
        Some(SourceStripe { shape, headers })
    }

    /// Fills `chunk` with header and payload of the shard's chunk. What is in it when that fails is worth nothing.
    pub(super) async fn chunk(&mut self, stripe: &SourceStripe, chunk: &mut [u8]) -> Had {
        let (head, payload) = chunk.split_at_mut(stripe.shape.header_bytes());
        let header = if self.chosen[0].shard == self.shard {
            self.copy(stripe, payload).await
        } else {
            self.decode(stripe, payload).await
        };
        match header {
            Some(header) => {
                header.encode(head);
                self.chosen.iter_mut().for_each(|source| source.misses = 0);
                Had::Whole
            }
            None => Had::Nothing,
        }
    }

    async fn copy(&mut self, stripe: &SourceStripe, payload: &mut [u8]) -> Option<ChunkHeader> {
        let (own, header) = (&mut self.chosen[0], &stripe.headers[0]);
        for range in pieces(stripe.shape.payload_bytes(self.shard)) {
            let bytes = own.payload(header, range.start, range.end).await?;
            payload[range].copy_from_slice(&bytes);
        }
        Some(header.clone())
    }

    async fn decode(&mut self, stripe: &SourceStripe, payload: &mut [u8]) -> Option<ChunkHeader> {
        let (shape, own) = (&stripe.shape, self.own_header(&stripe.shape).await);
        let mut header = ChunkHeader { shape: shape.clone(), shard: self.shard as u8, block_crcs: Vec::new() };
        for range in pieces(shape.payload_bytes(self.shard)) {
            let mut have: Vec<(usize, Bytes)> = Vec::with_capacity(self.chosen.len());
            for (source, header) in self.chosen.iter_mut().zip(&stripe.headers) {
                have.push((source.shard, source.padded(header, range.start, range.end).await?));
            }
            let have: Vec<(usize, &[u8])> = have.iter().map(|(shard, bytes)| (*shard, &bytes[..])).collect();
            let rebuilt = &mut payload[range.clone()];
            self.codec.reconstruct(&have, &mut [(self.shard, &mut *rebuilt)]).ok()?;
            let first = header.block_crcs.len();
            header.block_crcs.extend(rebuilt.chunks(BLOCK_BYTES).map(crc64));
            // Where the chunk's own header survived it must agree.
            let of_piece = |header: &ChunkHeader| {
                header.block_crcs.get(first..first + rebuilt.len().div_ceil(BLOCK_BYTES)).map(<[u64]>::to_vec)
            };
            if own.as_ref().is_some_and(|own| of_piece(own) != of_piece(&header)) {
                return None;
            }
        }
        Some(header)
    }

    /// The header of the chunk that is there now, if there is one.
    async fn own_header(&self, shape: &StripeShape) -> Option<ChunkHeader> {
        let bytes = self.core.media.raw(self.info, self.shard, shape.stripe_offset, CHUNK_ALIGN_BYTES).await.ok()?;
        let header = decode_header(self.info, shape.stripe_offset, self.shard, &bytes).ok()?;
        (header.shape == *shape).then_some(header)
    }

    async fn replace_the_useless(&mut self) {
        let before = self.chosen.len();
        self.chosen.retain(|source| source.misses < MISSES_MAX);
        if self.chosen.len() < before {
            self.choose().await;
        }
    }

    /// Fills up to `k` others, or has none at all.
    async fn choose(&mut self) {
        while self.chosen.len() < self.info.geometry.data() {
            let Some(shard) = self.spare.pop() else {
                self.chosen.clear();
                return;
            };
            self.chosen.extend(self.source(shard).await);
        }
    }

    async fn source(&self, shard: usize) -> Option<Source<'a>> {
        let file = self.core.media.file(self.info, shard).await.ok()?;
        let file = TimedFile { file, target: self.core.media.replaceable(self.info, shard) };
        let ahead = Ahead::new(file, shard_file_bytes(self.seal), self.room, self.pace);
        Some(Source { shard, ahead, misses: 0 })
    }
}

impl Source<'_> {
    async fn header(&mut self, info: &SegmentInfo, offset: u64, stripe_index: u32) -> Option<ChunkHeader> {
        let bytes = self.ahead.read(offset, CHUNK_ALIGN_BYTES).await.ok()?;
        let header = decode_header(info, offset, self.shard, &bytes).ok()?;
        (header.shape.stripe_index == stripe_index).then_some(header)
    }

    /// Checked bytes of the chunk's payload; `start` is that of a block, `end` that of one or of the payload.
    async fn payload(&mut self, header: &ChunkHeader, start: usize, end: usize) -> Option<Bytes> {
        let front = header.shape.stripe_offset + header.shape.header_bytes() as u64;
        let bytes = self.ahead.read(front + start as u64, end - start).await.ok();
        let checked = bytes.filter(|bytes| check_blocks(header, start..end, bytes).is_ok());
        self.misses += u32::from(checked.is_none());
        checked
    }

    /// The same, with zeros after the payload's end.
    async fn padded(&mut self, header: &ChunkHeader, start: usize, end: usize) -> Option<Bytes> {
        let payload_bytes = header.shape.payload_bytes(self.shard);
        if payload_bytes <= start {
            return Some(vec![0; end - start].into());
        }
        // Whole blocks are read even where the wanted chunk ends within one: only whole blocks can be checked.
        let bytes = self.payload(header, start, end.next_multiple_of(BLOCK_BYTES).min(payload_bytes)).await?;
        if bytes.len() >= end - start {
            return Some(bytes.slice(..end - start));
        }
        let mut padded = vec![0; end - start];
        padded[..bytes.len()].copy_from_slice(&bytes);
        Some(padded.into())
    }
}
