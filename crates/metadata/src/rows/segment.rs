//! A segment of the log, as far as the index goes.

use gabion_types::{Geometry, Seq, ShardCopy, TargetId};
use minicbor::{Decode, Encode};

use super::row;

/// A segment, under its id.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub struct SegmentRow {
    /// Data and parity shards.
    #[cbor(n(0), with = "geometry")]
    pub geometry: Geometry,
    /// The target of every shard; `TargetId::NONE` where the shard is absent.
    #[n(1)]
    pub targets: Vec<TargetId>,
    /// Where it is in its life.
    #[n(2)]
    pub state: SegmentState,
    /// The kind of lane that wrote it.
    #[n(3)]
    pub kind: LaneKind,
    /// How many of its stripes are in the index: replay begins after them.
    #[n(4)]
    pub applied_stripes: u32,
    /// Offset in the shard files just after the last applied stripe, in bytes.
    #[n(5)]
    pub next_offset: u64,
    /// Number of stripes when it was sealed; nothing while it is open.
    #[n(6)]
    pub sealed_stripes: Option<u32>,
    /// The lowest sequence of its mutations.
    #[n(7)]
    pub min_seq: Seq,
    /// The highest sequence of its mutations.
    #[n(8)]
    pub max_seq: Seq,
    /// Bytes of objects and records in it that some row still needs. Below zero only in the middle of a replay.
    #[n(9)]
    pub live_bytes: i64,
    /// Bytes of objects and records that were ever written to it.
    #[n(10)]
    pub written_bytes: u64,
    /// The lowest sequence of those of its mutations that can bring a row into being; nothing when there are none. A
    /// tombstone above it must not be forgotten as long as the segment exists.
    #[n(11)]
    pub creates_min_seq: Option<Seq>,
    /// Copies of its shards that were replaced by ones on other targets and may still be there: they go before the row does.
    #[n(12)]
    pub former: Option<Vec<ShardCopy>>,
    /// Offsets of its stripes whose space was given back where they lie, or is about to be: nothing needs them.
    #[n(13)]
    pub punched: Option<Vec<u64>>,
    /// Their payload in bytes.
    #[n(14)]
    pub punched_bytes: Option<u64>,
}

/// Where a segment is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Encode, Decode)]
#[cbor(index_only)]
pub enum SegmentState {
    /// A lane appends to it.
    #[n(0)]
    Open,
    /// Complete; it only shrinks.
    #[n(1)]
    Sealed,
    /// Its removal is logged, its files are being unlinked.
    #[n(2)]
    Freeing,
}

/// What a lane writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Encode, Decode)]
#[cbor(index_only)]
pub enum LaneKind {
    /// Records of small objects and mutations.
    #[n(0)]
    Small,
    /// Stripes of large objects.
    #[n(1)]
    Large,
}

row!(SegmentRow, "segment", version 1);

/// A geometry as the pair of its counts, checked when read.
mod geometry {
    use minicbor::{Decoder, Encode, Encoder};

    use super::Geometry;

    type EncodeError<W> = minicbor::encode::Error<<W as minicbor::encode::Write>::Error>;

    pub(super) fn encode<C, W: minicbor::encode::Write>(
        geometry: &Geometry,
        e: &mut Encoder<W>,
        ctx: &mut C,
    ) -> Result<(), EncodeError<W>> {
        (geometry.data() as u64, geometry.parity() as u64).encode(e, ctx)
    }

    pub(super) fn decode<C>(d: &mut Decoder<'_>, ctx: &mut C) -> Result<Geometry, minicbor::decode::Error> {
        let (data, parity): (u8, u8) = d.decode_with(ctx)?;
        Geometry::new(data.into(), parity.into()).map_err(minicbor::decode::Error::message)
    }
}
