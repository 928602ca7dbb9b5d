//! The newest snapshot of the index that lies in the log.

use gabion_types::{Extent, SegmentId, Seq};
use minicbor::{Decode, Encode};

use super::{Home, row};

/// A snapshot of the index, under the name `snapshot` in the table `System`.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub struct SnapshotRow {
    /// The commit that made it the newest.
    #[n(0)]
    pub seq: Seq,
    /// The mutation record that says so.
    #[n(1)]
    pub home: Home,
    /// Where its rows lie, one after the other.
    #[n(2)]
    pub extents: Vec<Extent>,
    /// Number of its rows.
    #[n(3)]
    pub rows: u64,
    /// Segments of records all of which had been applied when it was taken, ascending. Of others it may know something that later
    /// mutations took away.
    #[n(4)]
    pub covered: Vec<SegmentId>,
    /// The commit that moved its record last; nothing as long as it lies where it was first written.
    #[n(5)]
    pub moved: Option<Seq>,
}

impl SnapshotRow {
    /// Whether there is one: a row without bytes says that there is none any more.
    #[must_use]
    pub fn is_withdrawn(&self) -> bool {
        self.extents.is_empty()
    }
}

row!(SnapshotRow, "snapshot", version 1);
