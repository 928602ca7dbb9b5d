//! What is said about a segment between this crate and the one that keeps the index.

use std::fmt;

use gabion_types::{Geometry, SegmentId, Seq, ShardCopy, TargetId};
use serde::Serialize;

/// What a lane writes, and so what its segments hold.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LaneKind {
    /// Records: mutations with the bytes of small objects.
    Small,
    /// Stripes of large objects; no records.
    Large,
}

/// What a segment is, which never changes, and where its shards lie, which repair changes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SegmentInfo {
    /// Its id.
    pub id: SegmentId,
    /// What it holds.
    pub kind: LaneKind,
    /// Its geometry.
    pub geometry: Geometry,
    /// The target of every shard, `k + m` of them; `TargetId::NONE` where the shard never was.
    pub targets: Vec<TargetId>,
    /// Copies of its shards that others took the place of, and that may still be there.
    pub former: Vec<ShardCopy>,
}

/// The end of a segment: nothing is ever appended after it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seal {
    /// Number of stripes.
    pub stripes: u32,
    /// Offset just after the last stripe in every shard file, in bytes.
    pub end_offset: u64,
    /// Lowest sequence of its records; zero if it has none.
    pub min_seq: Seq,
    /// Highest sequence of its records; zero if it has none.
    pub max_seq: Seq,
    /// Payload of its stripes in bytes: records and object bytes, without parity, headers and padding.
    pub written_bytes: u64,
}

/// A segment as the index knows it, at the last moment that the index remembers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KnownSegment {
    /// Its id.
    pub id: SegmentId,
    /// What it holds.
    pub kind: LaneKind,
    /// Its geometry.
    pub geometry: Geometry,
    /// The target of every shard.
    pub targets: Vec<TargetId>,
    /// See [`SegmentInfo::former`].
    pub former: Vec<ShardCopy>,
    /// Its end, if the index saw it sealed.
    pub sealed: Option<Seal>,
    /// How many of its stripes are in the index.
    pub applied_stripes: u32,
    /// Offset just after the last applied stripe ([`crate::AppliedStripe::next_offset`]); 0 if none is applied.
    pub next_offset: u64,
    /// Lowest sequence of the applied records; zero if there are none.
    pub min_seq: Seq,
    /// Highest sequence of the applied records; zero if there are none.
    pub max_seq: Seq,
    /// Payload of the applied stripes: the sum of [`crate::AppliedStripe::payload_bytes`].
    pub written_bytes: u64,
    /// Whether its `Freed` record is applied and [`SegmentChange::Removed`] has not come yet.
    pub freed: bool,
}

/// A change in the life of a segment, told in order with the stripes of its lane.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SegmentChange {
    /// A lane begins to write it.
    Opened(SegmentInfo),
    /// It is complete.
    Sealed {
        /// Which one.
        id: SegmentId,
        /// Its end.
        seal: Seal,
    },
    /// Its shards lie elsewhere now. Comes only after [`SegmentChange::Sealed`]. An index that does not know it yet still finds all
    /// shards: the log looks for them when it is opened.
    Moved(SegmentInfo),
    /// All files of these freed segments are gone, durably, and can not come back with a target: the index may forget them. Until then it must
    /// keep the rows and pass them as [`KnownSegment::freed`], so that such files are not taken for a new segment.
    Removed(Vec<SegmentId>),
}

impl KnownSegment {
    /// What it is and where it lies.
    #[must_use]
    pub fn info(&self) -> SegmentInfo {
        SegmentInfo {
            id: self.id,
            kind: self.kind,
            geometry: self.geometry,
            targets: self.targets.clone(),
            former: self.former.clone(),
        }
    }
}

impl SegmentInfo {
    /// All copies of its shards, those included that others took the place of.
    pub(crate) fn copies(&self) -> impl Iterator<Item = ShardCopy> {
        let current = self.targets.iter().enumerate().filter(|(_, target)| **target != TargetId::NONE);
        let current = current.map(|(shard, &target)| ShardCopy { shard: shard as u8, target });
        current.chain(self.former.iter().copied())
    }
}

impl fmt::Display for LaneKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Small => "small",
            Self::Large => "large",
        })
    }
}
