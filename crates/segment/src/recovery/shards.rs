//! What can be seen of a segment's shards at an offset.

use std::sync::Arc;

use futures::future::join_all;
use gabion_types::limits::CHUNK_ALIGN_BYTES;
use gabion_types::{SegmentId, TargetId};

use super::listing::{Found, Listing};
use crate::core::Core;
use crate::format::{ChunkHeader, FormatError, SEAL_BLOCK_BYTES, SHARD_HEADER_BYTES_MAX, SealBlock, ShardHeader};
use crate::media::{ChunkError, decode_header};
use crate::segment_info::{KnownSegment, Seal, SegmentInfo};
use crate::shard_path::shard_path;

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
    Seal(Seal),
    /// It was read, and neither is there.
    Nothing,
    /// It can not be read: what is there is not known.
    OutOfSight,
}

impl Shards {
    /// Finds out what a segment is, and which of its shards are there.
    pub(super) async fn look(core: &Core, listing: &Listing, id: SegmentId, known: Option<&KnownSegment>) -> Headers {
        let found = listing.found(id);
        let headers = join_all(found.iter().map(|found| read_header(core, id, found))).await;
        let valid =
            headers.iter().find_map(|header| if let Seen::Header(header) = header { Some(header) } else { None });
        let info = match (known, valid) {
            (Some(known), _) => known.info(),
            (None, Some(header)) => {
                SegmentInfo { id, kind: header.kind, geometry: header.geometry, targets: header.targets.clone() }
            }
            (None, None) if headers.iter().all(|header| matches!(header, Seen::Blank)) => return Headers::Blank,
            (None, None) => {
                return Headers::Lost(format!("none of its {} shard files has a valid header", found.len()));
            }
        };
        let mut files = vec![None; info.geometry.shards()];
        for found in found {
            let shard = usize::from(found.shard);
            if info.targets.get(shard) != Some(&found.target_id) {
                tracing::warn!(segment = %id, shard, target = %found.target_id, "a shard file lies on the wrong target: ignored");
                continue;
            }
            files[shard] = Some(found.len);
        }
        let is_in_sight = |target: &TargetId| *target == TargetId::NONE || listing.is_listed(*target);
        Headers::Shards(Self {
            relaxed: valid.is_some_and(|header| header.relaxed),
            files,
            in_sight: info.targets.iter().all(is_in_sight),
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
            Ok(bytes) => match self.seal_in(core, &bytes, offset) {
                Some(seal) => Head::Seal(seal),
                None => match decode_header(&self.info, offset, shard, &bytes) {
                    Ok(header) => Head::Chunk(Arc::new(header)),
                    Err(_) => Head::Nothing,
                },
            },
            Err(ChunkError::Corrupt(_)) => Head::Nothing,
            Err(ChunkError::Absent | ChunkError::Io(_) | ChunkError::Exhausted(_)) => Head::OutOfSight,
        }
    }

    /// Looks at all shards.
    pub(super) async fn heads(&self, core: &Core, offset: u64) -> Vec<Head> {
        join_all((0..self.files.len()).map(|shard| self.head(core, shard, offset))).await
    }

    /// The seal at the end of the shard files; the longest, should there be several.
    pub(super) async fn seal_at_end(&self, core: &Core) -> Option<Seal> {
        let seals = join_all(self.files.iter().enumerate().map(async |(shard, len)| {
            let offset = (*len)?.checked_sub(SEAL_BLOCK_BYTES as u64)?;
            let bytes = core.media.raw(&self.info, shard, offset, SEAL_BLOCK_BYTES).await.ok()?;
            self.seal_in(core, &bytes, offset)
        }))
        .await;
        seals.into_iter().flatten().max_by_key(|seal| seal.end_offset)
    }

    fn seal_in(&self, core: &Core, bytes: &[u8], offset: u64) -> Option<Seal> {
        let block = SealBlock::decode(bytes, offset).ok()?;
        let ours = block.segment == self.info.id
            && block.kind == self.info.kind
            && block.deployment == core.media.targets.deployment;
        ours.then_some(block.seal)
    }
}

/// What the front of a shard file shows.
enum Seen {
    Header(Box<ShardHeader>),
    /// No header, and no stripe after it: opening the segment was cut off here.
    Blank,
    Other,
}

async fn read_header(core: &Core, id: SegmentId, found: &Found) -> Seen {
    let Some(disk) = core.media.targets.disk(found.target_id) else { return Seen::Other };
    let read = async {
        let file = disk.open(&shard_path(id, found.shard)).await?;
        file.read_at(0, SHARD_HEADER_BYTES_MAX + CHUNK_ALIGN_BYTES).await
    };
    let Ok(bytes) = read.await else { return Seen::Other };
    match ShardHeader::decode(&bytes) {
        Ok(header)
            if header.segment == id
                && header.shard == found.shard
                && header.deployment == core.media.targets.deployment =>
        {
            Seen::Header(Box::new(header))
        }
        // The header is durable before the first stripe is written: a torn one has none behind it.
        Err(_) if STARTS.iter().all(|&start| is_unwritten(bytes.get(start..).unwrap_or_default())) => Seen::Blank,
        _ => Seen::Other,
    }
}

/// Where the first stripe can begin: after a header block of either length.
const STARTS: [usize; 2] = [CHUNK_ALIGN_BYTES, SHARD_HEADER_BYTES_MAX];
const _: () = assert!(SHARD_HEADER_BYTES_MAX == 2 * CHUNK_ALIGN_BYTES);

/// Whether neither a chunk nor a seal begins here, not even a damaged one.
fn is_unwritten(bytes: &[u8]) -> bool {
    let no_magic = |error: &FormatError| matches!(error, FormatError::Magic | FormatError::Short);
    ChunkHeader::decode(bytes).is_err_and(|error| no_magic(&error))
        && SealBlock::decode(bytes, 0).is_err_and(|error| no_magic(&error))
}
