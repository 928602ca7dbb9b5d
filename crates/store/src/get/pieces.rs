//! Which parts of which extents make up a range of an object.

use std::collections::{BTreeSet, VecDeque};

use gabion_metadata::{
    IndexSnapshot, Pages, ScanRange, Table, Value, keys,
    rows::{ManifestPage, Row},
};
use gabion_types::{Extent, ManifestId, SegmentId};

use crate::{
    ByteRange, StoreError,
    store::{Share, shrink},
};

/// Pages that one scan asks for.
const SCAN_PAGES: usize = 64;

/// A part of an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub extent: Extent,
    /// Offset in the extent of its first byte.
    pub from: u32,
    /// Offset in the extent just after its last byte.
    pub to: u32,
}

impl Piece {
    /// All of an extent.
    pub(crate) fn whole(extent: Extent) -> Self {
        Self { extent, from: 0, to: extent.len }
    }

    /// Whether it is all of its extent.
    pub(crate) fn is_whole(&self) -> bool {
        self.from == 0 && self.to == self.extent.len
    }

    /// Its bytes.
    pub(crate) fn len(&self) -> usize {
        (self.to - self.from) as usize
    }

    /// Its part up to the next multiple of `bytes_max` in its extent, and the rest, if there is one.
    pub(super) fn cut(self, bytes_max: u32) -> (Self, Option<Self>) {
        let end = (self.from / bytes_max + 1).saturating_mul(bytes_max);
        if end < self.to { (Self { to: end, ..self }, Some(Self { from: end, ..self })) } else { (self, None) }
    }
}

/// The pieces of a range, in order.
pub(crate) struct Pieces {
    at_hand: VecDeque<Piece>,
    /// Pages of the manifest that come behind those, as they are stored: some 40 bytes an extent. No snapshot of the index is kept instead: it would hold back whatever is written
    /// to the index for as long as a client takes to read.
    later: VecDeque<Page>,
    later_bytes: usize,
    /// For those pages.
    share: Option<Share>,
    range: ByteRange,
}

/// Bytes of pages that a reader keeps without a share of memory: those of an object of 3 GiB in stripes of 8 MiB.
const PAGES_BYTES_FREE: usize = 16 << 10;

/// What is missing to a share for so many bytes of pages, if it is free.
pub(crate) type TakeShare<'a> = &'a dyn Fn(Option<&Share>, usize) -> Option<Share>;

/// A page of a manifest.
struct Page {
    /// Offset in the object at which it begins.
    start: u64,
    row: Value,
}

impl Page {
    /// Memory that it takes.
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.row.len()
    }
}

impl Pieces {
    /// From extents that begin at the object's first byte; with the segments that they lie in.
    pub(crate) fn listed(extents: &[Extent], range: ByteRange) -> (Self, Vec<SegmentId>) {
        let mut at_hand = VecDeque::with_capacity(extents.len());
        cut(extents, 0, range, &mut at_hand);
        let mut segments: Vec<SegmentId> = at_hand.iter().map(|piece| piece.extent.segment).collect();
        segments.sort_unstable();
        segments.dedup();
        (Self { at_hand, later: VecDeque::new(), later_bytes: 0, share: None, range }, segments)
    }

    /// From the pages of a manifest; with the segments that they lie in. Nothing when the manifest is not whole. Pages count against memory where there is a `take` for it.
    ///
    /// # Errors
    /// `Busy` when there is no memory for the pages.
    pub(crate) fn paged(
        index: &dyn IndexSnapshot,
        manifest: ManifestId,
        range: ByteRange,
        take: Option<TakeShare<'_>>,
    ) -> Result<Option<(Self, Vec<SegmentId>)>, StoreError> {
        let all = ScanRange::prefix(Table::Manifest, &keys::manifest_pages(manifest));
        let first = keys::manifest_page(manifest, range.first);
        let Some((first, _)) = index.scan(all.clone().up_to(&first).descending(), 1)?.pop() else { return Ok(None) };
        let last = keys::manifest_page(manifest, range.last);
        let mut rows = Pages::new(all.from(&first).up_to(&last), SCAN_PAGES);
        let (mut later, mut later_bytes, mut share) = (VecDeque::new(), 0, None::<Share>);
        let (mut segments, mut bytes, mut found) = (BTreeSet::new(), 0, VecDeque::new());
        while let Some(page) = rows.next(|range, limit| index.scan(range, limit))? {
            for (key, row) in page {
                let Ok((_, keys::ManifestKey::Page(start))) = keys::decode_manifest(&key) else {
                    return Err(StoreError::Unavailable("the index is corrupt: no manifest page".into()));
                };
                cut(&ManifestPage::decode(&row)?.extents, start, range, &mut found);
                segments.extend(found.iter().map(|piece| piece.extent.segment));
                bytes += found.iter().map(|piece| u64::from(piece.to - piece.from)).sum::<u64>();
                found.clear();
                let page = Page { start, row };
                later_bytes += page.bytes();
                later.push_back(page);
            }
            let Some(take) = take.filter(|_| later_bytes > PAGES_BYTES_FREE) else { continue };
            let more = take(share.as_ref(), later_bytes).ok_or(StoreError::Busy)?;
            match &mut share {
                Some(share) => share.merge(more),
                none => *none = Some(more),
            }
        }
        if bytes != range.len() {
            return Ok(None);
        }
        let pieces = Self { at_hand: VecDeque::new(), later, later_bytes, share, range };
        Ok(Some((pieces, segments.into_iter().collect())))
    }

    /// The next piece; nothing after the last.
    pub(crate) fn next(&mut self) -> Result<Option<Piece>, StoreError> {
        while self.at_hand.is_empty() {
            let Some(page) = self.later.pop_front() else { return Ok(None) };
            self.later_bytes -= page.bytes();
            if let Some(share) = &mut self.share {
                shrink(share, self.later_bytes);
            }
            cut(&ManifestPage::decode(&page.row)?.extents, page.start, self.range, &mut self.at_hand);
        }
        Ok(self.at_hand.pop_front())
    }

    /// Makes the piece that was taken last the next one again.
    pub(super) fn put_back(&mut self, piece: Piece) {
        self.at_hand.push_front(piece);
    }

    /// Whether it is known that there is no further one.
    pub(super) fn is_done(&self) -> bool {
        self.later.is_empty() && self.at_hand.is_empty()
    }
}

/// Adds what of `range` lies in `extents`, which begin at offset `start` of the object.
fn cut(extents: &[Extent], mut start: u64, range: ByteRange, into: &mut VecDeque<Piece>) {
    for extent in extents {
        let end = start + u64::from(extent.len);
        let (from, to) = (range.first.max(start), (range.last + 1).min(end));
        if from < to {
            // Both are within the extent, whose length has 32 bits.
            into.push_back(Piece { extent: *extent, from: (from - start) as u32, to: (to - start) as u32 });
        }
        start = end;
    }
}

#[cfg(test)]
mod tests {
    use gabion_metadata::{Index, MemoryIndex, Write};
    use gabion_types::Place;
    use proptest::prelude::*;

    use super::*;
    use crate::store::{Budget, PERMIT_BYTES};

    fn extent(number: u64, len: u32) -> Extent {
        let place = Place::Cells { cell_bytes: 4096 };
        Extent { segment: SegmentId::new(1, number / 3), stripe_offset: number * 4096, place, len, crc64: number }
    }

    proptest! {
        #[test]
        fn pieces_are_the_range(
            lens in prop::collection::vec(1_u32..50, 1..200), ends in any::<[prop::sample::Index; 2]>(), page_len in 1_usize..20,
            part_max in 1_u32..60,
        ) {
            let extents: Vec<Extent> = lens.iter().enumerate().map(|(i, &len)| extent(i as u64, len)).collect();
            let size: u64 = lens.iter().map(|&len| u64::from(len)).sum();
            let (a, b) = (ends[0].index(size as usize) as u64, ends[1].index(size as usize) as u64);
            let range = ByteRange { first: a.min(b), last: a.max(b) };
            // The oracle: every byte by itself.
            let bytes: Vec<(u64, u32)> =
                extents.iter().flat_map(|e| (0..e.len).map(|at| (e.crc64, at))).collect();
            let expected = &bytes[range.first as usize..=range.last as usize];

            let index = MemoryIndex::new();
            let (manifest, mut start, mut writes) = (ManifestId::from_u128(9), 0, Vec::new());
            for page in extents.chunks(page_len) {
                let row = ManifestPage { extents: page.to_vec() }.encode();
                writes.push(Write::Put(Table::Manifest, keys::manifest_page(manifest, start), row));
                start += page.iter().map(|e| u64::from(e.len)).sum::<u64>();
            }
            index.commit(&[], writes).unwrap();
            for (mut pieces, segments) in [
                Pieces::listed(&extents, range),
                Pieces::paged(&*index.snapshot(), manifest, range, None).unwrap().unwrap(),
            ] {
                let mut got = Vec::new();
                while let Some(piece) = pieces.next().unwrap() {
                    prop_assert!(segments.contains(&piece.extent.segment));
                    let mut rest = Some(piece);
                    while let Some(piece) = rest.take() {
                        let (part, behind) = piece.cut(part_max);
                        prop_assert!(part.len() <= part_max as usize);
                        got.extend((part.from..part.to).map(|at| (part.extent.crc64, at)));
                        rest = behind;
                    }
                }
                prop_assert_eq!(&got[..], expected);
                prop_assert!(pieces.is_done() && pieces.later_bytes == 0);
            }
        }
    }

    #[test]
    fn a_manifest_with_a_hole_is_not_whole() {
        let index = MemoryIndex::new();
        let manifest = ManifestId::from_u128(9);
        let row = ManifestPage { extents: vec![extent(1, 10)] }.encode();
        index.commit(&[], vec![Write::Put(Table::Manifest, keys::manifest_page(manifest, 0), row)]).unwrap();
        let range = ByteRange { first: 0, last: 10 };
        assert!(Pieces::paged(&*index.snapshot(), manifest, range, None).unwrap().is_none());
    }

    /// Memory for the pages of a huge object is counted, and given back as they are read.
    #[test]
    fn pages_count_against_memory_while_they_are_there() {
        let index = MemoryIndex::new();
        let (manifest, count) = (ManifestId::from_u128(9), 10_000_u64);
        let extents: Vec<Extent> = (0..count).map(|number| extent(number, 10)).collect();
        let pages = extents.chunks(16).enumerate().map(|(at, page)| {
            let row = ManifestPage { extents: page.to_vec() }.encode();
            Write::Put(Table::Manifest, keys::manifest_page(manifest, at as u64 * 160), row)
        });
        index.commit(&[], pages.collect()).unwrap();
        let (snapshot, range) = (index.snapshot(), ByteRange { first: 0, last: count * 10 - 1 });
        let paged = |memory: &Budget, range| {
            let take = |share: Option<&Share>, bytes: usize| memory.try_top_up(share, bytes);
            Pieces::paged(&*snapshot, manifest, range, Some(&take)).map(|found| found.unwrap().0)
        };
        let memory = Budget::new(64 << 20, 1);
        let used = |memory: &Budget| usize::try_from(memory.memory("pages").used_bytes).unwrap();
        let mut pieces = paged(&memory, range).unwrap();
        let all = pieces.later_bytes;
        assert!((all..all + PERMIT_BYTES).contains(&used(&memory)), "{} {all}", used(&memory));
        for _ in 0..count / 2 {
            pieces.next().unwrap().unwrap();
        }
        assert!((all / 3..all * 2 / 3).contains(&used(&memory)), "{} {all}", used(&memory));
        drop(pieces);
        assert_eq!(used(&memory), 0);
        // Who wants more than there is gets all of it, and the next one nothing.
        let memory = Budget::new(all as u64 / 2, 1);
        let first = paged(&memory, range).unwrap();
        assert!(matches!(paged(&memory, range), Err(StoreError::Busy)));
        // What is short takes none.
        let before = used(&memory);
        assert!(before > 0 && paged(&memory, ByteRange { first: 5, last: 1000 }).is_ok());
        drop(first);
        assert_eq!(used(&memory), 0);
    }
}
