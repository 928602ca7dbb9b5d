//! Bytes of small objects that are read again and again, kept as they were read and verified.
//!
//! The page cache has them as well, but there a read of 4 KiB is a system call, a buffer, a copy and a checksum: a tenth of what a get costs. What lies at a place of a
//! segment never changes, and its number is never used again. So nothing has to be forgotten: what is asked for no more makes room for what is.

use bytes::Bytes;
use gabion_types::{Extent, Place, SegmentId};
use quick_cache::{Weighter, sync::Cache};

/// Longest piece that is kept, in bytes: what is longer costs more to send than to read.
const PIECE_BYTES_MAX: u32 = 16 * 1024;
/// What an entry costs beside its bytes.
const ENTRY_BYTES: u64 = 160;
/// Length of most pieces, about.
const PIECE_BYTES_USUAL: u64 = 4096;

/// Where a piece lies.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct PiecePlace {
    segment: SegmentId,
    stripe_offset: u64,
    shard: u8,
    /// In the chunk.
    start: u32,
    len: u32,
    /// Of the bytes: an extent that says otherwise of them than the one that they were read for does not find them.
    crc64: u64,
}

impl PiecePlace {
    /// Where an extent lies; nothing when it does not lie in one chunk, or is longer than what is kept.
    pub(crate) fn of(extent: &Extent) -> Option<Self> {
        let Place::Chunk { shard, start } = extent.place else { return None };
        let &Extent { segment, stripe_offset, len, crc64, .. } = extent;
        (len <= PIECE_BYTES_MAX).then_some(Self { segment, stripe_offset, shard, start, len, crc64 })
    }
}

/// Pieces by where they lie.
pub(crate) struct Warm(Option<Cache<PiecePlace, Bytes, Bytewise>>);

#[derive(Clone)]
struct Bytewise;

impl Weighter<PiecePlace, Bytes> for Bytewise {
    fn weight(&self, _: &PiecePlace, piece: &Bytes) -> u64 {
        ENTRY_BYTES + piece.len() as u64
    }
}

impl Warm {
    /// Keeps at most so many bytes; with none it keeps nothing.
    pub(crate) fn new(bytes_max: u64) -> Self {
        let pieces = usize::try_from(bytes_max / (ENTRY_BYTES + PIECE_BYTES_USUAL)).unwrap_or(usize::MAX);
        Self((bytes_max > 0).then(|| Cache::with_weighter(pieces, bytes_max, Bytewise)))
    }

    /// The piece that lies there, if it is kept.
    pub(crate) fn get(&self, place: &PiecePlace) -> Option<Bytes> {
        self.0.as_ref()?.get(place)
    }

    /// Keeps a piece that was verified.
    pub(crate) fn keep(&self, place: PiecePlace, piece: &Bytes) {
        if let Some(pieces) = &self.0 {
            pieces.insert(place, piece.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(start: u32, len: u32) -> Extent {
        let place = Place::Chunk { shard: 2, start };
        Extent { segment: SegmentId::new(1, 1), stripe_offset: 4096, place, len, crc64: 0 }
    }

    fn place(start: u32) -> PiecePlace {
        PiecePlace::of(&extent(start, 4096)).unwrap()
    }

    #[test]
    fn short_pieces_are_kept_as_far_as_there_is_room() {
        let warm = Warm::new(1 << 20);
        for start in 0..10_000 {
            warm.keep(place(start), &vec![start as u8; 4096].into());
            // One that is asked for all the time stays.
            if let Some(piece) = warm.get(&place(7)) {
                assert_eq!(piece, [7; 4096][..]);
            } else {
                assert!(start < 7, "{start}");
            }
        }
        let kept = (0..10_000).filter(|start| warm.get(&place(*start)).is_some()).count();
        assert!((100..=256).contains(&kept), "{kept}");
    }

    #[test]
    fn what_is_long_or_not_wanted_is_not_kept() {
        assert!(PiecePlace::of(&extent(1, PIECE_BYTES_MAX)).is_some());
        assert!(PiecePlace::of(&extent(1, PIECE_BYTES_MAX + 1)).is_none());
        assert!(PiecePlace::of(&Extent { place: Place::Cells { cell_bytes: 4096 }, ..extent(1, 1) }).is_none());
        let none = Warm::new(0);
        none.keep(place(1), &Bytes::from_static(b"x"));
        assert!(none.get(&place(1)).is_none());
    }
}
