//! Reading a whole shard file, ahead of what is checked, and checking every byte that counts.

use std::ops::Range;

use bytes::Bytes;
use gabion_types::TargetId;
use gabion_types::limits::{BLOCK_BYTES, CHUNK_ALIGN_BYTES};

use super::Pace;
use super::ahead::{Ahead, Room, TimedFile};
use super::census::shard_file_bytes;
use crate::core::Core;
use crate::error::LogError;
use crate::format::{
    SEAL_BLOCK_BYTES, SHARD_HEADER_BYTES_MAX, SealBlock, ShardHeader, StripeShape, shard_header_bytes,
};
use crate::media::{ChunkError, check_blocks, decode_header};
use crate::replay::any_shape;
use crate::segment::Written;
use crate::segment_info::{Seal, SegmentInfo};

/// A shard file that was read to its end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Checked {
    pub(crate) bytes: u64,
    /// The first thing that is wrong, if anything is.
    pub(crate) damage: Option<String>,
    /// Chunks that are wrong; of stripes that nobody needs those whose headers are.
    pub(crate) bad_chunks: u64,
    /// Its target has not answered in time: what is wrong is not known.
    pub(crate) is_unread: bool,
}

impl Checked {
    pub(crate) fn is_good(&self) -> bool {
        self.damage.is_none() && !self.is_unread
    }

    fn note(&mut self, damage: String) {
        self.damage.get_or_insert(damage);
    }
}

/// A shard of a segment, or of what there is of one that is still written to, in a file.
pub(crate) struct ShardToCheck<'a> {
    pub(crate) info: &'a SegmentInfo,
    pub(crate) written: Written,
    pub(crate) shard: usize,
    /// The target that the file must say it lies on.
    pub(crate) target: TargetId,
    pub(super) file: TimedFile,
}

impl ShardToCheck<'_> {
    /// Reads all of it, in the runs that there is `room` for.
    ///
    /// # Errors
    /// `Corrupt` when no shard of the segment tells where the next stripe begins: then nothing can be said.
    pub(super) async fn check(&self, core: &Core, pace: &Pace, room: &Room) -> Result<Checked, LogError> {
        let mut checked = Checked::default();
        let Written { end, is_sealed } = self.written;
        let file_bytes = if is_sealed { shard_file_bytes(end) } else { end.end_offset };
        let ahead = &mut Ahead::new(self.file.clone(), file_bytes, room, pace);
        if let Err(damage) = self.check_header(core, ahead).await {
            checked.note(damage);
        }
        let mut offset = shard_header_bytes(self.info.geometry.shards()) as u64;
        for stripe_index in 0..end.stripes {
            if ahead.was_overdue() {
                break;
            }
            let (shape, outcome) = self.check_chunk(core, ahead, offset, stripe_index).await;
            // Nobody reads the bytes of a stripe that is dead, but its headers lead to the next one.
            if let Err(damage) = outcome
                && (shape.is_none() || core.is_live(self.info.id, offset))
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
        if !ahead.was_overdue() && offset != end.end_offset {
            checked.note(format!("its stripes end at {offset}, their end is known to be at {}", end.end_offset));
        }
        if is_sealed && let Err(damage) = self.check_seal(core, ahead).await {
            checked.note(damage);
        }
        if ahead.was_overdue() {
            (checked.damage, checked.bad_chunks, checked.is_unread) = (None, 0, true);
        }
        Ok(checked)
    }

    async fn check_header(&self, core: &Core, ahead: &mut Ahead<'_>) -> Result<(), String> {
        let header = ShardHeader::decode(&read(ahead, 0, SHARD_HEADER_BYTES_MAX).await?)
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
        core: &Core,
        ahead: &mut Ahead<'_>,
        offset: u64,
        stripe_index: u32,
    ) -> (Option<StripeShape>, Result<(), String>) {
        let header = match read(ahead, offset, CHUNK_ALIGN_BYTES).await {
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
        // Of a stripe that was punched out nothing but the header is needed.
        let payload_bytes = if core.is_live(self.info.id, offset) { header.shape.payload_bytes(self.shard) } else { 0 };
        for range in pieces(payload_bytes) {
            let checked = read(ahead, front + range.start as u64, range.len())
                .await
                .and_then(|bytes| check_blocks(&header, range, &bytes).map_err(|error: ChunkError| error.to_string()));
            if let Err(error) = checked {
                outcome = Err(error);
                break;
            }
        }
        (Some(header.shape), outcome)
    }

    async fn check_seal(&self, core: &Core, ahead: &mut Ahead<'_>) -> Result<(), String> {
        let Seal { stripes, end_offset, .. } = self.written.end;
        let block = SealBlock::decode(&read(ahead, end_offset, SEAL_BLOCK_BYTES).await?, end_offset)
            .map_err(|error| format!("seal: {error}"))?;
        let fits = block.segment == self.info.id
            && block.deployment == core.media.targets.deployment
            && block.seal.stripes == stripes;
        if fits { Ok(()) } else { Err("seal: it is not the segment's".to_owned()) }
    }
}

async fn read(ahead: &mut Ahead<'_>, offset: u64, len: usize) -> Result<Bytes, String> {
    ahead.read(offset, len).await.map_err(|error| error.to_string())
}

/// The pieces in which a payload is looked at: of a run that ends within one, little is copied.
pub(super) fn pieces(payload_bytes: usize) -> impl Iterator<Item = Range<usize>> {
    const PIECE_BYTES: usize = 4 * BLOCK_BYTES;
    (0..payload_bytes).step_by(PIECE_BYTES).map(move |start| start..(start + PIECE_BYTES).min(payload_bytes))
}
