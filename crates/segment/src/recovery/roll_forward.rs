//! Completing a stripe: chunks that are missing or torn are rebuilt from `k` valid ones and written, in pieces of bounded size.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use gabion_erasure::crc64;
use gabion_platform::Durable;
use gabion_types::limits::BLOCK_BYTES;

use crate::core::Core;
use crate::degraded::{Failed, GatherError};
use crate::error::LogError;
use crate::format::{ChunkHeader, StripeShape};
use crate::media::ChunkError;
use crate::segment_info::SegmentInfo;

/// Bytes of a chunk that are in memory at a time.
const PIECE_BYTES: usize = 16 * BLOCK_BYTES;

/// The pieces of a payload of this length.
pub(super) fn pieces(payload_bytes: usize) -> impl Iterator<Item = Range<usize>> {
    (0..payload_bytes).step_by(PIECE_BYTES).map(move |start| start..(start + PIECE_BYTES).min(payload_bytes))
}

/// Checks every block of a chunk.
pub(super) async fn check_chunk(core: &Core, info: &SegmentInfo, header: &ChunkHeader) -> Result<(), ChunkError> {
    for range in pieces(header.shape.payload_bytes(header.shard.into())) {
        core.media.payload(info, header, range).await?;
    }
    Ok(())
}

/// Writes a valid chunk once more, durably: it may be in the page cache only, after a sync that failed, and then a
/// later sync that succeeds proves nothing.
pub(super) async fn rewrite_chunk(core: &Core, info: &SegmentInfo, header: &ChunkHeader) -> Result<(), LogError> {
    let shard = usize::from(header.shard);
    for range in pieces(header.shape.payload_bytes(shard)) {
        let bytes =
            core.media.payload(info, header, range.clone()).await.map_err(|error| failed(info, shard, error))?;
        put(core, info, header, range, bytes).await?;
    }
    put_header(core, info, header).await
}

/// Why a chunk was not rebuilt.
pub(super) enum NotRebuilt {
    /// Chunks that were good could not be read again, and too few are left.
    TooFew(Vec<Failed>),
    /// It can not be written, or there is no memory or descriptor for it.
    Failed(LogError),
}

impl From<LogError> for NotRebuilt {
    fn from(error: LogError) -> Self {
        Self::Failed(error)
    }
}

/// Rebuilds the chunk on `shard` from the chunks of `valid` (by shard, `k` at least) and writes it durably; its header.
pub(super) async fn rebuild_chunk(
    core: &Core,
    info: &SegmentInfo,
    shape: &StripeShape,
    valid: &[Option<Arc<ChunkHeader>>],
    shard: usize,
) -> Result<ChunkHeader, NotRebuilt> {
    let mut header = ChunkHeader { shape: shape.clone(), shard: shard as u8, block_crcs: Vec::new() };
    let codec = core.media.codec(info.geometry);
    for range in pieces(shape.payload_bytes(shard)) {
        let have = match core.media.gather(info, shape, valid, shard, range.clone()).await {
            Ok(have) => have,
            Err(GatherError::Busy) => return Err(LogError::Busy.into()),
            Err(GatherError::TooFew { failed, .. }) => return Err(NotRebuilt::TooFew(failed)),
        };
        let have: Vec<(usize, &[u8])> = have.iter().map(|(shard, bytes)| (*shard, &bytes[..])).collect();
        let mut rebuilt = vec![0; range.len()];
        codec
            .reconstruct(&have, &mut [(shard, &mut rebuilt)])
            .map_err(|error| LogError::corrupt(info.id, error.to_string()))?;
        header.block_crcs.extend(rebuilt.chunks(BLOCK_BYTES).map(crc64));
        put(core, info, &header, range, rebuilt.into()).await?;
    }
    put_header(core, info, &header).await?;
    Ok(header)
}

/// Writes a piece of a chunk's payload, not yet durably; after the last one come the zeros up to the chunk's end.
async fn put(
    core: &Core,
    info: &SegmentInfo,
    header: &ChunkHeader,
    range: Range<usize>,
    bytes: Bytes,
) -> Result<(), LogError> {
    let (shape, shard) = (&header.shape, usize::from(header.shard));
    let offset = shape.stripe_offset + (shape.header_bytes() + range.start) as u64;
    let mut parts = vec![bytes];
    if range.end == shape.payload_bytes(shard) {
        parts.push(Bytes::from(vec![0; shape.written_bytes(shard) - shape.header_bytes() - range.end]));
    }
    write(core, info, shard, offset, parts, Durable::No).await
}

/// Writes a chunk's header, and makes the whole chunk durable.
async fn put_header(core: &Core, info: &SegmentInfo, header: &ChunkHeader) -> Result<(), LogError> {
    let mut bytes = vec![0; header.shape.header_bytes()];
    header.encode(&mut bytes);
    write(core, info, header.shard.into(), header.shape.stripe_offset, vec![bytes.into()], Durable::Yes).await
}

async fn write(
    core: &Core,
    info: &SegmentInfo,
    shard: usize,
    offset: u64,
    parts: Vec<Bytes>,
    durable: Durable,
) -> Result<(), LogError> {
    let file = core.media.file(info, shard).await.map_err(|error| failed(info, shard, error))?;
    file.write_at(offset, parts, durable).await.map_err(|error| failed(info, shard, error))
}

fn failed(info: &SegmentInfo, shard: usize, error: impl std::fmt::Display) -> LogError {
    LogError::Unavailable(format!("segment {}, shard {shard}: {error}", info.id))
}
