//! The records of a segment, stripe by stripe, as they were applied when they were written.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::join_all;
use gabion_types::limits::CHUNK_ALIGN_BYTES;
use gabion_types::{Extent, Place};

use crate::applier::{AppliedRecord, AppliedStripe, RecordHome};
use crate::core::Core;
use crate::error::LogError;
use crate::format::{FormatError, Record, RecordBinding, StripeShape, decode_records, shard_header_bytes};
use crate::lane::small::in_order;
use crate::media::{ChunkError, Media, decode_header};
use crate::segment::{Life, Pin, Segment};
use crate::segment_info::{LaneKind, Seal, SegmentInfo};

/// First bytes that are read of a chunk: the header, and the records of a usual batch with it.
const HEAD_BYTES: usize = 4 * CHUNK_ALIGN_BYTES;

/// Streams the stripes of one segment with their records; see [`crate::Log::mutations`].
pub struct MutationStream {
    core: Arc<Core>,
    segment: Arc<Segment>,
    end: Seal,
    stripe_index: u32,
    stripe_offset: u64,
    _pin: Pin,
}

impl MutationStream {
    /// The stream from stripe `from_stripe` of a sealed segment.
    pub(crate) async fn open(core: Arc<Core>, segment: Arc<Segment>, from_stripe: u32) -> Result<Self, LogError> {
        let (id, info) = (segment.id, segment.info());
        let (Life::Sealed(end) | Life::Freeing(end)) = segment.life() else {
            return Err(LogError::Invalid(format!("segment {id} is not sealed")));
        };
        if from_stripe > end.stripes {
            return Err(LogError::Invalid(format!("segment {id} has {} stripes, not {from_stripe}", end.stripes)));
        }
        if !segment.pin() {
            return Err(LogError::NotFound(id));
        }
        let pin = Pin::new(vec![Arc::clone(&segment)]);
        let start = (0, shard_header_bytes(info.geometry.shards()) as u64);
        let (stripe_index, stripe_offset) = if info.kind == LaneKind::Large || from_stripe == end.stripes {
            (end.stripes, end.end_offset)
        } else if segment.replay_from.0 <= from_stripe {
            segment.replay_from
        } else {
            start
        };
        let mut this = Self { core, segment, end, stripe_index, stripe_offset, _pin: pin };
        while this.stripe_index < from_stripe {
            let shape = any_shape(&this.core.media, &info, this.stripe_offset, this.stripe_index).await?;
            this.stripe_index += 1;
            this.stripe_offset = shape.next_offset();
        }
        Ok(this)
    }

    /// The next stripe; `None` after the last.
    ///
    /// # Errors
    /// `Corrupt` or `Unreadable` when a record can not be had even with parity. The stream then goes on after that stripe, or ends if no header is
    /// left that leads on.
    pub async fn next(&mut self) -> Result<Option<AppliedStripe>, LogError> {
        if self.stripe_index >= self.end.stripes {
            return Ok(None);
        }
        let info = &self.segment.info();
        let (shape, records) = match read_stripe(&self.core.media, info, self.stripe_offset, self.stripe_index).await {
            Ok(read) => read,
            Err(error) => {
                match any_shape(&self.core.media, info, self.stripe_offset, self.stripe_index).await {
                    Ok(shape) => self.stripe_offset = shape.next_offset(),
                    Err(_) => self.stripe_index = self.end.stripes - 1,
                }
                self.stripe_index += 1;
                return Err(error);
            }
        };
        let stripe = AppliedStripe {
            segment: Arc::clone(info),
            stripe_index: self.stripe_index,
            next_offset: shape.next_offset(),
            stored_bytes: shape.stored_bytes() * info.geometry.shards() as u64,
            payload_bytes: shape.stripe_payload_bytes(),
            records: in_order(records.into_iter().map(|record| applied(&shape, record)).collect()),
        };
        self.stripe_index += 1;
        self.stripe_offset = shape.next_offset();
        Ok(Some(stripe))
    }
}

impl std::fmt::Debug for MutationStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MutationStream")
            .field("segment", &self.segment.id)
            .field("stripe_index", &self.stripe_index)
            .finish_non_exhaustive()
    }
}

fn applied(shape: &StripeShape, record: Record) -> AppliedRecord {
    let extents = record.pieces.iter().map(|piece| Extent {
        segment: shape.segment,
        stripe_offset: shape.stripe_offset,
        place: Place::Chunk { shard: piece.shard, start: piece.start },
        len: piece.len,
        crc64: piece.crc64,
    });
    AppliedRecord {
        seq: record.seq,
        carried: record.carried,
        extents: extents.collect(),
        home: RecordHome { segment: shape.segment, bytes: record.bytes() as u32 },
        body: record.body,
    }
}

/// What any one valid header says of the stripe `stripe_index` at `stripe_offset`.
///
/// # Errors
/// `Unreadable` or `Corrupt` when there is none.
pub(crate) async fn any_shape(
    media: &Media,
    info: &SegmentInfo,
    stripe_offset: u64,
    stripe_index: u32,
) -> Result<StripeShape, LogError> {
    let mut failed = Vec::new();
    for shard in 0..info.geometry.shards() {
        match header_at(media, info, shard, stripe_offset, stripe_index, CHUNK_ALIGN_BYTES).await {
            Ok((shape, _)) => return Ok(shape),
            Err(error) => {
                media.damaged(info, shard, &error);
                failed.push((shard, error));
            }
        }
    }
    Err(media.too_few(info, &format!("headers of stripe {stripe_index}"), 0, 1, &failed).await)
}

/// The header of a chunk, which must be of this stripe, and the first bytes that it was read with.
async fn header_at(
    media: &Media,
    info: &SegmentInfo,
    shard: usize,
    stripe_offset: u64,
    stripe_index: u32,
    len: usize,
) -> Result<(StripeShape, Bytes), ChunkError> {
    let head = media.raw(info, shard, stripe_offset, len).await?;
    let header = decode_header(info, stripe_offset, shard, &head)
        .and_then(|header| {
            let expected = header.shape.stripe_index == stripe_index;
            if expected { Ok(header) } else { Err(FormatError::Field("stripe index")) }
        })
        .map_err(|error| ChunkError::Corrupt(format!("chunk header: {error}")))?;
    Ok((header.shape, head))
}

/// A stripe's shape and all its records.
pub(crate) async fn read_stripe(
    media: &Media,
    info: &SegmentInfo,
    stripe_offset: u64,
    stripe_index: u32,
) -> Result<(StripeShape, Vec<Record>), LogError> {
    let heads = join_all((0..info.geometry.data()).map(async |shard| {
        let head = header_at(media, info, shard, stripe_offset, stripe_index, HEAD_BYTES).await;
        head.inspect_err(|error| media.damaged(info, shard, error))
    }))
    .await;
    let shape = match heads.iter().flatten().next() {
        Some((shape, _)) => shape.clone(),
        None => any_shape(media, info, stripe_offset, stripe_index).await?,
    };
    let areas = join_all(heads.into_iter().enumerate().map(|(shard, head)| {
        let head = head.map(|(_, head)| head);
        records_of_chunk(media, info, &shape, shard, head)
    }))
    .await;
    let mut records = Vec::new();
    for area in areas {
        records.extend(area?);
    }
    Ok((shape, records))
}

/// The records of one chunk; `head` is its first bytes, or why they can not be had.
async fn records_of_chunk(
    media: &Media,
    info: &SegmentInfo,
    shape: &StripeShape,
    shard: usize,
    head: Result<Bytes, ChunkError>,
) -> Result<Vec<Record>, LogError> {
    let index_bytes = shape.spans[shard].index_bytes as usize;
    if index_bytes == 0 {
        return Ok(Vec::new());
    }
    let binding = RecordBinding { segment: info.id, stripe_index: shape.stripe_index };
    let decode = |area: Bytes| -> Result<Vec<Record>, FormatError> {
        let records = decode_records(binding, area)?;
        if records.iter().all(|record| fits(shape, record)) { Ok(records) } else { Err(FormatError::Field("pieces")) }
    };
    let own = match head {
        Ok(head) => {
            let area = index_area(media, info, shape, shard, head, index_bytes).await;
            let records =
                area.and_then(|area| decode(area).map_err(|error| ChunkError::Corrupt(format!("record: {error}"))));
            match records {
                Ok(records) => return Ok(records),
                Err(error) => {
                    media.damaged(info, shard, &error);
                    error
                }
            }
        }
        Err(error) => error,
    };
    let area = media.reconstruct(info, shape.stripe_offset, shard, &own, 0..index_bytes).await?;
    decode(area).map_err(|error| {
        LogError::corrupt(info.id, format!("stripe {}: a rebuilt record is bad: {error}", shape.stripe_index))
    })
}

/// The record area of a chunk: out of `head` if it lies there whole, else with a second read.
async fn index_area(
    media: &Media,
    info: &SegmentInfo,
    shape: &StripeShape,
    shard: usize,
    head: Bytes,
    index_bytes: usize,
) -> Result<Bytes, ChunkError> {
    let start = shape.header_bytes();
    if head.len() >= start + index_bytes {
        return Ok(head.slice(start..start + index_bytes));
    }
    let area = media.raw(info, shard, shape.stripe_offset + start as u64, index_bytes).await?;
    if area.len() < index_bytes {
        return Err(ChunkError::Corrupt("the file is cut short".to_owned()));
    }
    Ok(area)
}

/// Whether the pieces of a record lie in the stripe's data.
fn fits(shape: &StripeShape, record: &Record) -> bool {
    record.pieces.iter().all(|piece| {
        let Some(span) = shape.spans.get(usize::from(piece.shard)) else { return false };
        let data = shape.header_bytes() + span.index_bytes as usize..shape.header_bytes() + span.payload_bytes as usize;
        let (start, len) = (piece.start as usize, piece.len as usize);
        len > 0 && start >= data.start && start + len <= data.end
    })
}
