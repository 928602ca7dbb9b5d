//! What can be seen of a segment's shards at an offset.

use std::sync::Arc;

use futures::future::join_all;
use gabion_types::SegmentId;
use gabion_types::limits::CHUNK_ALIGN_BYTES;

use super::copies::{Placed, Seen, newest, place, read_headers};
use super::listing::Listing;
use crate::core::Core;
use crate::format::{ChunkHeader, SEAL_BLOCK_BYTES, SealBlock};
use crate::lane::writer::distrusted_len;
use crate::media::{ChunkError, decode_header};
use crate::segment_info::{KnownSegment, Seal, SegmentInfo};

/// The shards of one segment.
pub(super) struct Shards {
    pub(super) info: Arc<SegmentInfo>,
    /// Whether its writer acknowledged before it synced.
    pub(super) relaxed: bool,
    /// Length of each shard file; `None` where it is out of sight or gone.
    pub(super) files: Vec<Option<u64>>,
    /// Whether every target that the segment was opened on is in sight.
    pub(super) in_sight: bool,
}

/// What the headers of a segment's files say.
pub(super) enum Headers {
    Shards(Shards),
    /// There are files, all blank: it was never opened.
    Blank,
    /// No header is valid.
    Lost(String),
}

/// What a shard shows at an offset.
pub(super) enum Head {
    Chunk(Arc<ChunkHeader>),
    Seal(SealBlock),
    /// It was read, and neither is there.
    Nothing,
    /// It can not be read: what is there is not known.
    OutOfSight,
}

impl Shards {
    /// Finds out what a segment is, and which of its shards are there.
    pub(super) async fn look(core: &Core, listing: &Listing, id: SegmentId, known: Option<&KnownSegment>) -> Headers {
        let found = listing.found(id);
        let headers = read_headers(core, id, found).await;
        let base = match (known, newest(&headers)) {
            (Some(known), _) => known.info(),
            (None, Some(header)) => SegmentInfo {
                id,
                kind: header.kind,
                geometry: header.geometry,
                targets: header.targets.clone(),
                former: Vec::new(),
            },
            (None, None) if headers.iter().all(|header| matches!(header, Seen::Blank)) => return Headers::Blank,
            (None, None) => {
                return Headers::Lost(format!("none of its {} shard files has a valid header", found.len()));
            }
        };
        let Placed { info, files } = place(core, listing, &base, found, &headers);
        Headers::Shards(Self {
            relaxed: newest(&headers).is_some_and(|header| header.relaxed),
            files,
            in_sight: listing.is_in_sight(core, &info),
            info: Arc::new(info),
        })
    }

    /// Shards whose files are there.
    pub(super) fn present(&self) -> impl Iterator<Item = usize> {
        self.files.iter().enumerate().filter_map(|(shard, len)| len.map(|_| shard))
    }

    /// Looks at one shard.
    pub(super) async fn head(&self, core: &Core, shard: usize, offset: u64) -> Head {
        if self.files[shard].is_none() {
            return Head::OutOfSight;
        }
        match core.media.raw(&self.info, shard, offset, CHUNK_ALIGN_BYTES).await {
            Ok(bytes) => match core.media.seal_in(&self.info, &bytes, offset) {
                Some(block) => Head::Seal(block),
                None => match decode_header(&self.info, offset, shard, &bytes) {
                    Ok(header) => Head::Chunk(Arc::new(header)),
                    Err(_) => Head::Nothing,
                },
            },
            Err(ChunkError::Corrupt(_)) => Head::Nothing,
            Err(ChunkError::Absent | ChunkError::Io(_) | ChunkError::Overdue | ChunkError::Exhausted(_)) => {
                Head::OutOfSight
            }
        }
    }

    /// Looks at all shards.
    pub(super) async fn heads(&self, core: &Core, offset: u64) -> Vec<Head> {
        join_all((0..self.files.len()).map(|shard| self.head(core, shard, offset))).await
    }

    /// Which shards say in their seals that they failed while they were written, or may say so, by what they show where their `seal` is to be: those that are as long as one that
    /// does and can not be asked. Of a writer that does not wait for the drives also those without a seal: what is on them before the last stripe is not known to be durable.
    pub(super) fn distrusted(&self, ends: &[Head], seal: Seal) -> Vec<bool> {
        let is_distrusted = |(len, end): (&Option<u64>, &Head)| match (len, end) {
            (None, _) => false,
            (Some(_), Head::Seal(block)) => block.is_distrusted,
            (Some(len), _) => self.relaxed || *len == distrusted_len(seal),
        };
        self.files.iter().zip(ends).map(is_distrusted).collect()
    }

    /// Whether enough shards show a stripe at the end that `seal` tells of.
    pub(super) async fn has_stripe(&self, core: &Core, seal: Seal) -> bool {
        let heads = self.heads(core, seal.end_offset).await;
        let is_stripe = |head: &&Head| matches!(head, Head::Chunk(chunk) if chunk.shape.stripe_index == seal.stripes);
        heads.iter().filter(is_stripe).count() >= self.info.geometry.data()
    }

    /// The seal at the end of the shard files; the longest, should there be several.
    pub(super) async fn seal_at_end(&self, core: &Core) -> Option<Seal> {
        let seals = join_all(self.files.iter().enumerate().map(async |(shard, len)| {
            let offset = (*len)?.checked_sub(SEAL_BLOCK_BYTES as u64)?;
            let bytes = core.media.raw(&self.info, shard, offset, SEAL_BLOCK_BYTES).await.ok()?;
            Some(core.media.seal_in(&self.info, &bytes, offset)?.seal)
        }))
        .await;
        seals.into_iter().flatten().max_by_key(|seal| seal.end_offset)
    }
}
