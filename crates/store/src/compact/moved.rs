//! Where extents went in a round, so that rows that share an extent share it still after their moves (docs/adr/0006).

use std::collections::HashMap;

use gabion_metadata::rows::SegmentState;
use gabion_types::{Extent, Place, SegmentId};
use parking_lot::Mutex;

use crate::{holds::Hold, store::Inner};

/// Moves that are remembered (some 100 bytes each). Beyond it, rows that share bytes are moved one by one.
const REMEMBERED_MAX: usize = 64 * 1024;

/// Old extents and new ones.
#[derive(Default)]
pub(super) struct MovedExtents {
    table: Mutex<HashMap<Old, Extent>>,
}

/// Segment, stripe, and place in the stripe.
type Old = (SegmentId, u64, u8, u32);

fn old(extent: &Extent) -> Old {
    let (shard, start) = match extent.place {
        Place::Chunk { shard, start } => (shard, start),
        Place::Cells { .. } => (u8::MAX, 0),
    };
    (extent.segment, extent.stripe_offset, shard, start)
}

impl MovedExtents {
    /// Remembers that each of `from` lies in the one of `to` at its place, if they are of the same lengths.
    pub(super) fn remember(&self, from: &[Extent], to: &[Extent]) {
        if from.len() != to.len() || from.iter().zip(to).any(|(from, to)| from.len != to.len || from.crc64 != to.crc64)
        {
            return;
        }
        let mut table = self.table.lock();
        if table.len() + from.len() <= REMEMBERED_MAX {
            table.extend(from.iter().zip(to).map(|(from, to)| (old(from), *to)));
        }
    }

    /// Where `extent` went, if that is remembered and it is the same one.
    pub(super) fn get(&self, extent: &Extent) -> Option<Extent> {
        let found = self.table.lock().get(&old(extent)).copied()?;
        (found.len == extent.len && found.crc64 == extent.crc64).then_some(found)
    }
}

/// Holds the segments of `extents`, which no row that is known here refers to; false if one of them is going or gone.
pub(super) async fn hold_all(inner: &Inner, extents: &[Extent], hold: &mut Hold) -> bool {
    // Nothing is looked at to be freed meanwhile: what is held when this ends, is not freed later.
    let settled = inner.frees.settle().await;
    hold.add_all(extents);
    let is_there = |segment: SegmentId| {
        !settled.is_going(segment)
            && inner.apply.with_segments(|segments| {
                segments.get(segment).is_some_and(|segment| segment.row.state != SegmentState::Freeing)
            })
    };
    extents.iter().all(|extent| is_there(extent.segment))
}
