//! Reading a whole shard file and checking every byte that counts.

use std::sync::Arc;

use bytes::Bytes;
use gabion_platform::DiskFile;
use gabion_types::TargetId;
use gabion_types::limits::CHUNK_ALIGN_BYTES;

use super::Pace;
use crate::core::Core;
use crate::error::LogError;
use crate::format::{
    SEAL_BLOCK_BYTES, SHARD_HEADER_BYTES_MAX, SealBlock, ShardHeader, StripeShape, shard_header_bytes,
};
use crate::media::{ChunkError, check_blocks, decode_header};
use crate::recovery::pieces;
use crate::replay::any_shape;
use crate::segment_info::{Seal, SegmentInfo};

/// A shard file that was read to its end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Checked {
    pub(crate) bytes: u64,
    /// The first thing that is wrong, if anything is.
    pub(crate) damage: Option<String>,
    /// Chunks of live stripes that are wrong.
    pub(crate) bad_chunks: u64,
}

impl Checked {
    pub(crate) fn is_good(&self) -> bool {
        self.damage.is_none()
    }

    fn note(&mut self, damage: String) {
        self.damage.get_or_insert(damage);
    }
}

/// A shard of a segment, in a file.
pub(crate) struct ShardToCheck<'a> {
    pub(crate) info: &'a SegmentInfo,
    pub(crate) seal: Seal,
    pub(crate) shard: usize,
    /// The target that the file must say it lies on.
    pub(crate) target: TargetId,
    pub(crate) file: &'a Arc<dyn DiskFile>,
}

impl ShardToCheck<'_> {
    /// Reads all of it.
    ///
    /// # Errors
    /// `Corrupt` when no shard of the segment tells where the next stripe begins: then nothing can be said.
    pub(crate) async fn check(&self, core: &Core, pace: &Pace) -> Result<Checked, LogError> {
        let mut checked = Checked::default();
        if let Err(damage) = self.check_header(core).await {
            checked.note(damage);
        }
        let mut offset = shard_header_bytes(self.info.geometry.shards()) as u64;
        for stripe_index in 0..self.seal.stripes {
            let (shape, outcome) = self.check_chunk(offset, stripe_index, pace).await;
            if let Err(damage) = outcome
                && core.is_live(self.info.id, offset)
            {
                checked.bad_chunks += 1;
                checked.note(format!("stripe {stripe_index}: {damage}"));
            }
            let shape = match shape {
                Some(shape) => shape,
                None => any_shape(&core.media, self.info, offset, stripe_index).await?,
            };
            checked.bytes += shape.written_bytes(self.shard) as u64;
            offset = shape.next_offset();
        }
        if offset != self.seal.end_offset {
            checked.note(format!("its stripes end at {offset}, its seal is at {}", self.seal.end_offset));
        }
        if let Err(damage) = self.check_seal(core).await {
            checked.note(damage);
        }
        Ok(checked)
    }

    async fn read(&self, offset: u64, len: usize) -> Result<Bytes, String> {
        self.file.read_at(offset, len).await.map_err(|error| error.to_string())
    }

    async fn check_header(&self, core: &Core) -> Result<(), String> {
        let header = ShardHeader::decode(&self.read(0, SHARD_HEADER_BYTES_MAX).await?)
            .map_err(|error| format!("shard header: {error}"))?;
        let fits = header.segment == self.info.id
            && header.deployment == core.media.targets.deployment
            && usize::from(header.shard) == self.shard
            && header.geometry == self.info.geometry
            && header.targets.get(self.shard) == Some(&self.target);
        if fits { Ok(()) } else { Err("shard header: it belongs to another file".to_owned()) }
    }

    /// Checks one chunk; the shape of its stripe, if its own header tells.
    async fn check_chunk(
        &self,
        offset: u64,
        stripe_index: u32,
        pace: &Pace,
    ) -> (Option<StripeShape>, Result<(), String>) {
        let header = match self.read(offset, CHUNK_ALIGN_BYTES).await {
            Ok(bytes) => {
                decode_header(self.info, offset, self.shard, &bytes).map_err(|error| format!("chunk header: {error}"))
            }
            Err(error) => Err(error),
        };
        let header = match header {
            Ok(header) if header.shape.stripe_index == stripe_index => header,
            Ok(_) => return (None, Err("chunk header: it is of another stripe".to_owned())),
            Err(error) => return (None, Err(error)),
        };
        let front = offset + header.shape.header_bytes() as u64;
        let mut outcome = Ok(());
        for range in pieces(header.shape.payload_bytes(self.shard)) {
            pace.pass(range.len() as u64).await;
            let read = self.read(front + range.start as u64, range.len()).await;
            let checked = read
                .and_then(|bytes| check_blocks(&header, range, &bytes).map_err(|error: ChunkError| error.to_string()));
            if let Err(error) = checked {
                outcome = Err(error);
                break;
            }
        }
        (Some(header.shape), outcome)
    }

    async fn check_seal(&self, core: &Core) -> Result<(), String> {
        let block = SealBlock::decode(&self.read(self.seal.end_offset, SEAL_BLOCK_BYTES).await?, self.seal.end_offset)
            .map_err(|error| format!("seal: {error}"))?;
        let fits = block.segment == self.info.id
            && block.deployment == core.media.targets.deployment
            && block.seal.stripes == self.seal.stripes;
        if fits { Ok(()) } else { Err("seal: it is not the segment's".to_owned()) }
    }
}
