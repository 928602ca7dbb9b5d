//! The seam to whoever keeps the index: durable stripes go out, and an answer comes back before any submitter hears of them.

use std::sync::Arc;

use bytes::Bytes;
use gabion_types::{Extent, SegmentId, Seq};

use crate::error::LogError;
use crate::segment_info::{SegmentChange, SegmentInfo};

/// Takes durable stripes into the index.
///
/// Called by one task per lane: in stripe order within a lane, concurrently between lanes.
pub trait Applier: Send + Sync {
    /// Applies all records of one stripe, all or nothing.
    ///
    /// Stripes of large objects come with no records: they move the segment's position on. After a failed write the same
    /// record may be applied only once here, but stand twice in the log with the same sequence; replay must be idempotent by it.
    ///
    /// # Errors
    /// The log then refuses all further writes: the index is behind for ever until the next start replays.
    fn apply(&self, stripe: &AppliedStripe) -> Result<(), ApplyError>;

    /// Whether a stripe that is applied now would hold up its thread until the index has written more of what it has. It is waited for before, without a thread.
    fn is_behind(&self) -> bool {
        false
    }

    /// Notes a change in a segment's life.
    ///
    /// # Errors
    /// As [`Applier::apply`].
    fn segment_changed(&self, change: SegmentChange) -> Result<(), ApplyError>;
}

/// Why the index did not take a stripe.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct ApplyError(pub String);

/// A durable stripe.
#[derive(Debug, Clone)]
pub struct AppliedStripe {
    /// The segment that it lies in.
    pub segment: Arc<SegmentInfo>,
    /// Its index in the segment, from 0.
    pub stripe_index: u32,
    /// Offset just after it in every shard file, in bytes.
    pub next_offset: u64,
    /// What it takes on the targets, in bytes over all shards, padding and parity included.
    pub stored_bytes: u64,
    /// Its payload in bytes: records and object bytes.
    pub payload_bytes: u64,
    /// Its records in order of their sequence; none in a stripe of a large object.
    pub records: Vec<AppliedRecord>,
}

/// A durable record.
#[derive(Debug, Clone)]
pub struct AppliedRecord {
    /// Its sequence; a carried record keeps the one that it was first written with.
    pub seq: Seq,
    /// Whether it was carried over from a freed segment.
    pub carried: bool,
    /// What it says.
    pub body: RecordBody,
    /// Where its data lies: none, one, or several pieces in order.
    pub extents: Vec<Extent>,
    /// Where the record itself lies.
    pub home: RecordHome,
}

/// What a record says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordBody {
    /// A mutation of the index, opaque here.
    Mutation(Bytes),
    /// This segment was freed: nothing in it is needed, its files are being removed. See [`SegmentChange::Removed`].
    Freed(SegmentId),
}

/// Where a record lies, and what it takes there without its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordHome {
    /// The segment.
    pub segment: SegmentId,
    /// Length of the record without its data, in bytes.
    pub bytes: u32,
}

/// A record to be committed.
#[derive(Debug, Clone)]
pub struct NewRecord {
    /// The mutation, at most `MUTATION_BYTES_MAX`.
    pub mutation: Bytes,
    /// Its data in order, at most `INLINE_BYTES_MAX` together; may be empty.
    pub data: Vec<Bytes>,
    /// CRC-64/NVME of the data (0 if there is none): checked before the record is queued.
    pub data_crc64: u64,
}

/// Goes with a record to the log, and is there until the record is answered, whether or not its submitter still waits.
///
/// Dropped without an answer: nobody knows what became of the record.
pub trait Companion: Send {
    /// The batch of the record is closed: the last moment to change bytes of its mutation. Its length must stay. Others wait meanwhile.
    fn complete(&mut self, _mutation: &mut Bytes) {}

    /// The record is durable and applied, or was refused, or failed. The log has let go of its data. Called before its submitter hears of it, where others
    /// wait for their turn: must be quick.
    fn answered(self: Box<Self>, outcome: Result<(), &LogError>);
}

/// A record that is durable and applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    /// Its sequence.
    pub seq: Seq,
    /// Where its data lies.
    pub extents: Vec<Extent>,
    /// Where the record lies.
    pub home: RecordHome,
}
