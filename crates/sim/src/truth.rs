//! Counters as they must be, computed from the rows.

use std::collections::{BTreeMap, BTreeSet};

use gabion_metadata::{
    Index, MemoryIndex, ScanRange, Table,
    keys::{self, Counted},
    rows::{
        BucketRow, ConfigRow, CountsFor, Home, Layout, ManifestPage, ManifestPart, ObjectRow, PartRow, Row, RowError,
        SegmentRow, SegmentState, SnapshotRow, UploadRow, UsageRow, VersionKind,
    },
};
use gabion_types::{Extent, ManifestId, SegmentId};

use crate::index::all;

/// What the rows add up to.
#[derive(Default)]
struct Sums {
    live: BTreeMap<SegmentId, i64>,
    usage: BTreeMap<Vec<u8>, UsageRow>,
    manifest_rows: usize,
    layouts: Vec<(Layout, u64)>,
    /// Stripes that rows refer to.
    stripes: BTreeSet<(SegmentId, u64)>,
}

/// Checks live bytes of every segment and the usage of every bucket against the rows, that every row's bytes lie in segments
/// that are there, in stripes that do not count as holes, and that no manifest is left behind.
///
/// # Errors
/// What is wrong.
pub(crate) fn check(index: &MemoryIndex) -> Result<(), String> {
    add_up(index).map_err(|error| format!("a row can not be decoded: {error}"))?
}

fn add_up(index: &MemoryIndex) -> Result<Result<(), String>, RowError> {
    let mut sums = Sums::default();
    if let Ok(Some(row)) = index.get(Table::System, &keys::system("snapshot")) {
        let row = SnapshotRow::decode(&row)?;
        sums.home(row.home);
        for extent in row.extents {
            *sums.live.entry(extent.segment).or_default() += i64::from(extent.len);
        }
    }
    for (_, row) in all(index, Table::Bucket) {
        sums.home(BucketRow::decode(&row)?.home);
    }
    for (_, row) in all(index, Table::Upload) {
        sums.home(UploadRow::decode(&row)?.home);
    }
    for (_, row) in all(index, Table::Part) {
        let row = PartRow::decode(&row)?;
        sums.home(row.home);
        if let Some(CountsFor { bucket, creator }) = &row.counts {
            sums.count(keys::counter(Counted::PartsOfBucket(bucket)), row.size);
            if let Some(creator) = creator {
                sums.count(keys::counter(Counted::PartsOfUser(creator)), row.size);
            }
        }
        sums.layouts.push((row.layout, row.size));
    }
    for (_, row) in all(index, Table::Config) {
        sums.home(ConfigRow::decode(&row)?.home);
    }
    let current = all(index, Table::Object).into_iter().map(|(key, row)| {
        let bucket = keys::decode_object(&key).map(|(bucket, _)| bucket.as_bytes().to_vec());
        (bucket.unwrap_or_default(), row)
    });
    let versions = all(index, Table::Version).into_iter().map(|(key, row)| {
        let bucket = keys::decode_version(&key).map(|(bucket, ..)| bucket.as_bytes().to_vec());
        (bucket.unwrap_or_default(), row)
    });
    for (bucket, row) in current.chain(versions) {
        let row = ObjectRow::decode(&row)?;
        sums.home(row.home);
        if !VersionKind::is_marker(row.kind) {
            sums.count(bucket, row.size);
            if let Some(creator) = &row.attributes.creator {
                sums.count(keys::counter(Counted::ObjectsOfUser(creator)), row.size);
            }
        }
        if let Some(parts) = &row.parts
            && let Err(wrong) = sums.parts(index, parts.manifest, parts.count as usize, row.size)?
        {
            return Ok(Err(wrong));
        }
        sums.layouts.push((row.layout, row.size));
    }
    for (layout, size) in std::mem::take(&mut sums.layouts) {
        let extents = sums.extents(index, layout)?;
        if extents.iter().map(|extent| u64::from(extent.len)).sum::<u64>() != size {
            return Ok(Err(format!("extents {extents:?} do not add up to {size} bytes")));
        }
        for extent in extents {
            *sums.live.entry(extent.segment).or_default() += i64::from(extent.len);
            sums.stripes.insert((extent.segment, extent.stripe_offset));
        }
    }
    sums.compare(index)
}

impl Sums {
    fn home(&mut self, home: Home) {
        *self.live.entry(home.segment).or_default() += i64::from(home.bytes);
    }

    fn count(&mut self, counter: Vec<u8>, size: u64) {
        let usage = self.usage.entry(counter).or_default();
        usage.objects += 1;
        usage.bytes += size;
    }

    fn parts(
        &mut self,
        index: &MemoryIndex,
        manifest: ManifestId,
        count: usize,
        size: u64,
    ) -> Result<Result<(), String>, RowError> {
        let rows = scan(index, ScanRange::prefix(Table::Manifest, &keys::manifest_parts(manifest)));
        self.manifest_rows += rows.len();
        let mut start = 0;
        for (_, row) in &rows {
            let part = ManifestPart::decode(row)?;
            if part.start != start {
                return Ok(Err(format!("a part begins at {} instead of {start}", part.start)));
            }
            start += part.size;
            self.home(part.home);
        }
        if start == size && rows.len() == count {
            return Ok(Ok(()));
        }
        Ok(Err(format!("{} parts with {start} bytes instead of {count} with {size}", rows.len())))
    }

    fn extents(&mut self, index: &MemoryIndex, layout: Layout) -> Result<Vec<Extent>, RowError> {
        Ok(match layout {
            Layout::Empty => Vec::new(),
            Layout::Extents(extents) => extents,
            Layout::Manifest(manifest) => {
                let pages = scan(index, ScanRange::prefix(Table::Manifest, &keys::manifest_pages(manifest)));
                self.manifest_rows += pages.len();
                let mut extents = Vec::new();
                for (_, page) in pages {
                    extents.extend(ManifestPage::decode(&page)?.extents);
                }
                extents
            }
        })
    }

    fn compare(mut self, index: &MemoryIndex) -> Result<Result<(), String>, RowError> {
        let manifest_rows = all(index, Table::Manifest).len();
        if manifest_rows != self.manifest_rows {
            return Ok(Err(format!("{manifest_rows} rows of manifests instead of {}", self.manifest_rows)));
        }
        let mut counted = BTreeMap::new();
        for (key, row) in all(index, Table::Usage) {
            counted.insert(key, UsageRow::decode(&row)?);
        }
        if counted != self.usage {
            return Ok(Err(format!("usage {counted:?} instead of {:?}", self.usage)));
        }
        for (key, row) in all(index, Table::Segment) {
            let row = SegmentRow::decode(&row)?;
            let Ok(id) = keys::decode_segment(&key) else { return Ok(Err("a segment's key is malformed".into())) };
            let live = self.live.remove(&id).unwrap_or(0);
            if row.live_bytes != live {
                return Ok(Err(format!("segment {id} has {} live bytes, its rows have {live}", row.live_bytes)));
            }
            let is_live = |offset: &&u64| self.stripes.contains(&(id, **offset));
            if let Some(offset) = row.punched.iter().flatten().find(is_live) {
                return Ok(Err(format!(
                    "the stripe at {offset} of segment {id} counts as a hole, and rows refer to it"
                )));
            }
            if row.state == SegmentState::Freeing && live > 0 {
                return Ok(Err(format!("segment {id} is freed, and rows refer to {live} bytes of it")));
            }
        }
        match self.live.first_key_value() {
            None => Ok(Ok(())),
            Some((id, live)) => Ok(Err(format!("rows refer to {live} bytes of segment {id}, which is not there"))),
        }
    }
}

fn scan(index: &MemoryIndex, range: ScanRange) -> gabion_metadata::Rows {
    index.scan(range, usize::MAX).expect("an index in memory does not fail")
}
