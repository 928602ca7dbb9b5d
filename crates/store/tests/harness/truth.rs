//! Counters as they must be, computed from the rows.

use std::collections::BTreeMap;

use gabion_metadata::{
    Index, MemoryIndex, ScanRange, Table, keys,
    rows::{
        BucketRow, Home, Layout, ManifestPage, ManifestPart, ObjectRow, PartRow, Row, SegmentRow, SnapshotRow,
        UploadRow, UsageRow,
    },
};
use gabion_types::{Extent, SegmentId};

/// Live bytes of every segment and the usage of every bucket are what the rows add up to; manifests belong to a row.
pub fn check_counters(index: &MemoryIndex) {
    let rows = |table| index.scan(ScanRange::all(table), usize::MAX).unwrap();
    let mut live: BTreeMap<SegmentId, i64> = BTreeMap::new();
    let mut usage: BTreeMap<Vec<u8>, UsageRow> = BTreeMap::new();
    let mut manifest_rows = 0;
    let snapshot = index.get(Table::System, &keys::system("snapshot")).unwrap();
    let snapshot = snapshot.map(|row| SnapshotRow::decode(&row).unwrap());
    for extent in snapshot.iter().flat_map(|row| &row.extents) {
        *live.entry(extent.segment).or_default() += i64::from(extent.len);
    }
    let mut home = |home: Home| *live.entry(home.segment).or_default() += i64::from(home.bytes);
    if let Some(row) = snapshot {
        home(row.home);
    }
    for (_, row) in rows(Table::Bucket) {
        home(BucketRow::decode(&row).unwrap().home);
    }
    for (_, row) in rows(Table::Upload) {
        home(UploadRow::decode(&row).unwrap().home);
    }
    let mut layouts = Vec::new();
    for (_, row) in rows(Table::Part) {
        let row = PartRow::decode(&row).unwrap();
        home(row.home);
        layouts.push((row.layout, row.size));
    }
    for (key, row) in rows(Table::Object) {
        let row = ObjectRow::decode(&row).unwrap();
        home(row.home);
        let bucket = keys::decode_object(&key).unwrap().0.as_bytes().to_vec();
        let usage = usage.entry(bucket).or_default();
        usage.objects += 1;
        usage.bytes += row.size;
        if let Some(parts) = row.parts {
            let range = ScanRange::prefix(Table::Manifest, &keys::manifest_parts(parts.manifest));
            let parts_found = index.scan(range, usize::MAX).unwrap();
            assert_eq!(parts_found.len(), parts.count as usize);
            manifest_rows += parts_found.len();
            let mut start = 0;
            for (_, part) in parts_found {
                let part = ManifestPart::decode(&part).unwrap();
                assert_eq!(part.start, start);
                start += part.size;
                home(part.home);
            }
            assert_eq!(start, row.size);
        }
        layouts.push((row.layout, row.size));
    }
    for (layout, size) in layouts {
        let extents: Vec<Extent> = match layout {
            Layout::Empty => Vec::new(),
            Layout::Extents(extents) => extents,
            Layout::Manifest(manifest) => {
                let range = ScanRange::prefix(Table::Manifest, &keys::manifest_pages(manifest));
                let pages = index.scan(range, usize::MAX).unwrap();
                manifest_rows += pages.len();
                pages.iter().flat_map(|(_, page)| ManifestPage::decode(page).unwrap().extents).collect()
            }
        };
        assert_eq!(extents.iter().map(|extent| u64::from(extent.len)).sum::<u64>(), size);
        for extent in extents {
            *live.entry(extent.segment).or_default() += i64::from(extent.len);
        }
    }
    assert_eq!(rows(Table::Manifest).len(), manifest_rows, "no manifest is left behind");
    let counted: BTreeMap<Vec<u8>, UsageRow> =
        rows(Table::Usage).into_iter().map(|(key, row)| (key, UsageRow::decode(&row).unwrap())).collect();
    assert_eq!(counted, usage);
    for (key, row) in rows(Table::Segment) {
        let id = keys::decode_segment(&key).unwrap();
        let row = SegmentRow::decode(&row).unwrap();
        assert_eq!(row.live_bytes, live.remove(&id).unwrap_or(0), "segment {id}");
    }
    assert!(live.is_empty(), "rows refer to segments that are not there: {live:?}");
}
