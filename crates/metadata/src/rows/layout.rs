//! Where the bytes of an object, and the record of a row, lie in the log.

use gabion_types::{Extent, ManifestId, SegmentId};
use minicbor::{Decode, Encode};

/// Where a row's own mutation record lies: as long as the row lives, it counts as live bytes there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Encode, Decode)]
pub struct Home {
    /// The segment.
    #[n(0)]
    pub segment: SegmentId,
    /// Length of the record in bytes.
    #[n(1)]
    pub bytes: u32,
}

/// Where the bytes of an object or a part lie.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub enum Layout {
    /// There are none.
    #[n(0)]
    Empty,
    /// In these extents, one after the other; at most `LAYOUT_EXTENTS_MAX`.
    #[n(1)]
    Extents(#[n(0)] Vec<Extent>),
    /// In the extents of the pages of this manifest.
    #[n(2)]
    Manifest(#[n(0)] ManifestId),
}
