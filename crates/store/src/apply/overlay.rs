//! Rows as they will be after the batch that is being applied: the index, and what the batch changed so far over it.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    ops::Bound,
};

use gabion_metadata::{
    Index, Pages, Rows, ScanRange, Table, Value, Write, keys,
    rows::{BucketRow, Home, Layout, ManifestPage, Row, SegmentState, UsageRow},
};
use gabion_segment::{AppliedStripe, DeadStripe, Seal, SegmentInfo};
use gabion_types::{BucketName, Extent, ManifestId, SegmentId, Seq, limits::LAYOUT_EXTENTS_MAX};

use super::{Outcome, Segment, Segments, accounts, bucket, segments, snapshot::Covered, versioned::Versioned};
use crate::StoreError;

/// Rows that one scan returns at most.
const PAGE_ROWS: usize = 512;

/// The same where one is looked for.
const FIRST_ROWS: usize = 2;

/// A batch that is being applied.
pub(crate) struct Overlay<'a> {
    index: &'a dyn Index,
    before: &'a Segments,
    versioned: &'a Versioned,
    /// Changed rows per table; `None` for those that are gone.
    rows: [BTreeMap<Vec<u8>, Option<Value>>; Table::ALL.len()],
    segments: segments::Changes,
    /// Change of counters by their keys: objects, or parts, and bytes.
    usage: accounts::Changes,
    buckets: isize,
    covered: Option<Option<Covered>>,
    /// Buckets whose documents changed; the site's when there is none.
    configs: BTreeSet<Option<BucketName>>,
    /// The last name that was checked: most records of a batch have the same.
    bucket_name: Option<BucketName>,
}

/// Whether a reference comes or goes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Count {
    Up,
    Down,
}

impl Count {
    fn signed(self, amount: u64) -> i64 {
        let amount = amount as i64;
        if self == Count::Up { amount } else { -amount }
    }
}

impl<'a> Overlay<'a> {
    pub(crate) fn new(index: &'a dyn Index, before: &'a Segments, versioned: &'a Versioned) -> Self {
        let (rows, segments, usage) = (Default::default(), BTreeMap::new(), BTreeMap::new());
        let configs = BTreeSet::new();
        Self { index, before, versioned, rows, segments, usage, buckets: 0, covered: None, configs, bucket_name: None }
    }

    /// A bucket name that a mutation carries.
    pub(crate) fn bucket_name(&mut self, name: &str) -> Result<&BucketName, StoreError> {
        if self.bucket_name.as_ref().is_none_or(|known| known.as_str() != name) {
            self.bucket_name = Some(bucket::name(name)?);
        }
        Ok(self.bucket_name.as_ref().expect("it was set"))
    }

    /// The row under `key`.
    pub(crate) fn get<R: Row>(&self, table: Table, key: &[u8]) -> Result<Option<R>, StoreError> {
        Ok(self.get_raw(table, key)?.map(|row| R::decode(&row)).transpose()?)
    }

    /// The row under `key`, as bytes.
    pub(crate) fn get_raw(&self, table: Table, key: &[u8]) -> Result<Option<Value>, StoreError> {
        match self.rows[table as usize].get(key) {
            Some(row) => Ok(row.clone()),
            None => Ok(self.index.get(table, key)?),
        }
    }

    /// The row under `key` is `row`.
    pub(crate) fn put<R: Row>(&mut self, table: Table, key: Vec<u8>, row: &R) {
        self.rows[table as usize].insert(key, Some(row.encode().into()));
    }

    /// The row under `key` is these bytes: rows of the table `System`.
    pub(crate) fn put_raw(&mut self, table: Table, key: Vec<u8>, row: Vec<u8>) {
        self.rows[table as usize].insert(key, Some(row.into()));
    }

    /// There is no row under `key`.
    pub(crate) fn delete(&mut self, table: Table, key: Vec<u8>) {
        self.rows[table as usize].insert(key, None);
    }

    /// All rows whose keys begin with `prefix`, in order.
    pub(crate) fn rows_with_prefix(&self, table: Table, prefix: &[u8]) -> Result<Rows, StoreError> {
        self.rows_where(table, prefix, |_| Ok(true))
    }

    /// Those of them that are wanted, which may be few of many.
    pub(crate) fn rows_where(
        &self,
        table: Table,
        prefix: &[u8],
        is_wanted: impl Fn(&Value) -> Result<bool, StoreError>,
    ) -> Result<Rows, StoreError> {
        let changed = &self.rows[table as usize];
        let mut found = BTreeMap::new();
        let mut pages = Pages::new(ScanRange::prefix(table, prefix), PAGE_ROWS);
        while let Some(page) = pages.next(|range, limit| self.index.scan(range, limit))? {
            for (key, row) in page {
                if !changed.contains_key(&key) && is_wanted(&row)? {
                    found.insert(key, row);
                }
            }
        }
        let here = changed.range::<[u8], _>((Bound::Included(prefix), Bound::Unbounded));
        for (key, row) in here.take_while(|(key, _)| key.starts_with(prefix)) {
            if let Some(row) = row
                && is_wanted(row)?
            {
                found.insert(key.clone(), row.clone());
            }
        }
        Ok(found.into_iter().collect())
    }

    /// The first row at `from` or above whose key begins with `prefix`.
    pub(crate) fn first_with_prefix(
        &self,
        table: Table,
        prefix: &[u8],
        from: &[u8],
    ) -> Result<Option<(Vec<u8>, Value)>, StoreError> {
        let changed = &self.rows[table as usize];
        let here = changed
            .range::<[u8], _>((Bound::Included(from), Bound::Unbounded))
            .take_while(|(key, _)| key.starts_with(prefix))
            .find_map(|(key, row)| Some((key.clone(), row.clone()?)));
        let mut pages = Pages::new(ScanRange::prefix(table, prefix).from(from), FIRST_ROWS);
        while let Some(page) = pages.next(|range, limit| self.index.scan(range, limit))? {
            if let Some(there) = page.into_iter().find(|(key, _)| !changed.contains_key(key)) {
                return Ok(here.into_iter().chain([there]).min_by(|a, b| a.0.cmp(&b.0)));
            }
        }
        Ok(here)
    }

    /// Whether a bucket may have rows in the table `Version`.
    pub(crate) fn has_versions(&self, bucket: &BucketName) -> bool {
        self.versioned.contains(bucket)
    }

    /// A bucket is to have rows in the table `Version`.
    pub(crate) fn add_versioned(&self, bucket: &BucketName) {
        self.versioned.add(bucket);
    }

    /// A row comes or goes, and with it what its mutation record counts for.
    pub(crate) fn count_home(&mut self, home: Home, count: Count) {
        self.count(home.segment, count.signed(home.bytes.into()));
    }

    /// References to `extents` come or go.
    pub(crate) fn count_extents(&mut self, extents: &[Extent], count: Count) {
        for extent in extents {
            self.count(extent.segment, count.signed(extent.len.into()));
        }
    }

    fn count(&mut self, segment: SegmentId, bytes: i64) {
        // A segment that is not there was lost or freed; what refers to it now is taken away by a later mutation of a
        // replay. Neither coming nor going is counted.
        if let Some(segment) = self.segment(segment) {
            segment.row.live_bytes += bytes;
        }
    }

    /// Stores where bytes lie, paged if need be; counts nothing.
    pub(crate) fn store_layout(&mut self, manifest: ManifestId, extents: Vec<Extent>) -> Layout {
        match extents.len() {
            0 => Layout::Empty,
            1..=LAYOUT_EXTENTS_MAX => Layout::Extents(extents),
            _ => {
                let mut start = 0;
                for extents in extents.chunks(LAYOUT_EXTENTS_MAX) {
                    let page = ManifestPage { extents: extents.to_vec() };
                    self.put(Table::Manifest, keys::manifest_page(manifest, start), &page);
                    start += extents.iter().map(|extent| u64::from(extent.len)).sum::<u64>();
                }
                Layout::Manifest(manifest)
            }
        }
    }

    /// Takes away what [`Overlay::store_layout`] stored, and returns it; counts nothing.
    pub(crate) fn take_layout(&mut self, layout: Layout) -> Result<Vec<Extent>, StoreError> {
        match layout {
            Layout::Empty => Ok(Vec::new()),
            Layout::Extents(extents) => Ok(extents),
            Layout::Manifest(manifest) => {
                let mut extents = Vec::new();
                for (key, page) in self.rows_with_prefix(Table::Manifest, &keys::manifest_pages(manifest))? {
                    extents.extend(ManifestPage::decode(&page)?.extents);
                    self.delete(Table::Manifest, key);
                }
                Ok(extents)
            }
        }
    }

    /// How counters change.
    pub(super) fn usage(&self) -> &accounts::Changes {
        &self.usage
    }

    /// An object comes or goes that a counter counts.
    pub(crate) fn count_usage(&mut self, counter: &[u8], bytes: u64, count: Count) {
        if !self.usage.contains_key(counter) {
            self.usage.insert(counter.to_vec(), (0, 0));
        }
        let usage = self.usage.get_mut(counter).expect("it is there");
        usage.0 += count.signed(1);
        usage.1 += count.signed(bytes);
    }

    /// A bucket comes or goes.
    pub(crate) fn count_bucket(&mut self, count: Count) {
        self.buckets += if count == Count::Up { 1 } else { -1 };
    }

    /// A document of a bucket, or of the site, changes.
    pub(crate) fn config_changed(&mut self, bucket: Option<BucketName>) {
        self.configs.insert(bucket);
    }

    fn segment(&mut self, id: SegmentId) -> Option<&mut Segment> {
        match self.segments.entry(id) {
            Entry::Occupied(changed) => changed.into_mut().as_mut(),
            Entry::Vacant(unchanged) => {
                let segment = self.before.get(id)?.clone();
                unchanged.insert(Some(segment)).as_mut()
            }
        }
    }

    /// Whether a segment is there and stays for now.
    pub(crate) fn stays(&self, id: SegmentId) -> bool {
        let segment = self.segments.get(&id).map_or_else(|| self.before.get(id), Option::as_ref);
        segment.is_some_and(Segment::stays)
    }

    /// A mutation of `segment` may bring a row into being.
    pub(crate) fn creates(&mut self, segment: SegmentId, seq: Seq) {
        if let Some(segment) = self.segment(segment) {
            let min = &mut segment.row.creates_min_seq;
            *min = Some(min.map_or(seq, |min| min.min(seq)));
        }
    }

    /// The index is complete up to the end of `stripe` in its segment.
    pub(crate) fn stripe_applied(&mut self, stripe: &AppliedStripe) {
        self.segment_opened(&stripe.segment);
        let Some(segment) = self.segment(stripe.segment.id) else { return };
        let row = &mut segment.row;
        row.applied_stripes = stripe.stripe_index + 1;
        row.next_offset = stripe.next_offset;
        row.written_bytes += stripe.payload_bytes;
        let seqs = || stripe.records.iter().map(|record| record.seq);
        if let (Some(min), Some(max)) = (seqs().min(), seqs().max()) {
            row.min_seq = if row.min_seq == Seq::ZERO { min } else { row.min_seq.min(min) };
            row.max_seq = row.max_seq.max(max);
        }
    }

    /// A segment comes into being, unless it is there.
    pub(crate) fn segment_opened(&mut self, info: &SegmentInfo) {
        if self.segment(info.id).is_none() {
            self.segments.insert(info.id, Some(Segment::opened(info)));
        }
    }

    /// A segment is complete and wholly applied.
    pub(crate) fn segment_sealed(&mut self, id: SegmentId, seal: &Seal, epoch: u64) {
        if let Some(segment) = self.segment(id) {
            segment.seal(seal, epoch);
        }
    }

    /// A segment's shards lie elsewhere now.
    pub(crate) fn segment_moved(&mut self, info: &SegmentInfo) {
        if let Some(segment) = self.segment(info.id) {
            segment.moved(info);
        }
    }

    /// These stripes of a segment are punched out; returns the offsets of those that were before.
    pub(crate) fn segment_punched(&mut self, id: SegmentId, dead: &[DeadStripe]) -> Vec<u64> {
        let Some(segment) = self.segment(id) else { return Vec::new() };
        let bytes = dead.iter().map(|stripe| stripe.payload_bytes).sum();
        // Of what only may be holes nothing was given back, as far as is known.
        let is_known = segment.row.punched_bytes.replace(bytes) != Some(0);
        let before = segment.row.punched.replace(dead.iter().map(|stripe| stripe.offset).collect());
        before.filter(|_| is_known).unwrap_or_default()
    }

    /// Stripes of a segment may be holes.
    pub(crate) fn segment_may_have_holes(&mut self, id: SegmentId, dead: &[DeadStripe]) {
        if let Some(segment) = self.segment(id) {
            segment.row.punched = Some(dead.iter().map(|stripe| stripe.offset).collect());
            segment.row.punched_bytes.get_or_insert(0);
        }
    }

    /// A segment's removal is in the log: nothing in it counts any more.
    pub(crate) fn segment_freed(&mut self, id: SegmentId) {
        if let Some(segment) = self.segment(id) {
            segment.row.state = SegmentState::Freeing;
        }
    }

    /// A segment's files are gone.
    pub(crate) fn segment_removed(&mut self, id: SegmentId) {
        self.segments.insert(id, None);
    }

    /// The newest snapshot of the index covers these segments; nothing when there is none any more.
    pub(crate) fn covers(&mut self, covered: Option<Covered>) {
        self.covered = Some(covered);
    }

    /// All that the batch comes to.
    pub(crate) fn finish(mut self) -> Result<Outcome, StoreError> {
        let owners = self.owners()?;
        for (counter, (objects, bytes)) in std::mem::take(&mut self.usage) {
            let usage = self.get::<UsageRow>(Table::Usage, &counter)?.unwrap_or_default();
            let usage = UsageRow {
                objects: usage.objects.saturating_add_signed(objects),
                bytes: usage.bytes.saturating_add_signed(bytes),
            };
            // No objects, no row: a bucket that is gone leaves none behind.
            match usage.objects {
                0 => self.delete(Table::Usage, counter),
                _ => self.put(Table::Usage, counter, &usage),
            }
        }
        let mut writes: Vec<Write> = segments::writes(&self.segments).collect();
        for (table, rows) in Table::ALL.into_iter().zip(std::mem::take(&mut self.rows)) {
            writes.extend(rows.into_iter().map(|(key, row)| match row {
                Some(row) => Write::Put(table, key, row.into()),
                None => Write::Delete(table, key),
            }));
        }
        let Self { segments, buckets, covered, configs, .. } = self;
        Ok(Outcome { writes, segments, buckets, owners, covered, configs })
    }

    /// Who owns a bucket that he did not own before, or the other way round.
    fn owners(&self) -> Result<BTreeSet<String>, StoreError> {
        let owner = |row: Option<&Value>| row.map(|row| BucketRow::decode(row).map(|row| row.owner)).transpose();
        let mut owners = BTreeSet::new();
        for (key, after) in &self.rows[Table::Bucket as usize] {
            let (before, after) = (owner(self.index.get(Table::Bucket, key)?.as_ref())?, owner(after.as_ref())?);
            if before != after {
                owners.extend(before.into_iter().chain(after));
            }
        }
        Ok(owners)
    }
}
