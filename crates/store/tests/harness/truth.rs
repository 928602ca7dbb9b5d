//! Counters as they must be, computed from the rows.

use std::collections::BTreeMap;

use gabion_metadata::{
    Index, MemoryIndex, ScanRange, Table,
    keys::{self, Counted, VersionKey},
    rows::{
        BucketRow, ConfigRow, CountsFor, Home, Layout, ManifestPage, ManifestPart, ObjectRow, PartRow, Row, SegmentRow,
        SnapshotRow, UploadRow, UsageRow, VersionKind,
    },
};
use gabion_types::{Extent, SegmentId, Seq};

/// Whether one is current, and all: their commits, and whether they are delete markers.
type VersionsOfKey = (bool, Vec<(Seq, bool)>);

/// Bytes that a body takes: sealed ones have 16 more in each frame of 64 KiB.
fn stored(size: u64, is_sealed: bool) -> u64 {
    if is_sealed { size + 16 * size.div_ceil(65_536) } else { size }
}

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
        if let Some(CountsFor { bucket, creator }) = &row.counts {
            let counters = [Some(Counted::PartsOfBucket(bucket)), creator.as_deref().map(Counted::PartsOfUser)];
            for counter in counters.into_iter().flatten() {
                let usage = usage.entry(keys::counter(counter)).or_default();
                usage.objects += 1;
                usage.bytes += row.size;
            }
        }
        layouts.push((row.layout, stored(row.size, row.salt.is_some())));
    }
    for (_, row) in rows(Table::Config) {
        home(ConfigRow::decode(&row).unwrap().home);
    }
    let current = rows(Table::Object).into_iter().map(|(key, row)| {
        let (bucket, key) = keys::decode_object(&key).unwrap();
        ((bucket.as_bytes().to_vec(), key.to_owned()), ObjectRow::decode(&row).unwrap())
    });
    let versions = rows(Table::Version).into_iter().map(|(key, row)| {
        let (bucket, key, version) = keys::decode_version(&key).unwrap();
        let row = ObjectRow::decode(&row).unwrap();
        let expected = if VersionKind::is_null(row.kind) { VersionKey::Null } else { VersionKey::Of(row.seq) };
        assert_eq!(version, expected);
        ((bucket.as_bytes().to_vec(), key), row)
    });
    let mut of_key: BTreeMap<(Vec<u8>, String), VersionsOfKey> = BTreeMap::new();
    for (is_current, (place, row)) in current.map(|found| (true, found)).chain(versions.map(|found| (false, found))) {
        let entry = of_key.entry(place.clone()).or_default();
        entry.0 |= is_current;
        entry.1.push((row.seq, VersionKind::is_marker(row.kind)));
        assert!(!is_current || !VersionKind::is_marker(row.kind), "{place:?}: a delete marker is current");
        home(row.home);
        if !VersionKind::is_marker(row.kind) {
            let creator = row.attributes.creator.as_deref();
            for counter in creator.map(|id| keys::counter(Counted::ObjectsOfUser(id))).into_iter().chain([place.0]) {
                let usage = usage.entry(counter).or_default();
                usage.objects += 1;
                usage.bytes += row.size;
            }
        }
        let is_sealed = row.attributes.encryption.is_some();
        let mut stored_bytes = stored(row.size, is_sealed);
        if let Some(parts) = row.parts {
            let range = ScanRange::prefix(Table::Manifest, &keys::manifest_parts(parts.manifest));
            let parts_found = index.scan(range, usize::MAX).unwrap();
            assert_eq!(parts_found.len(), parts.count as usize);
            manifest_rows += parts_found.len();
            let mut start = 0;
            stored_bytes = 0;
            for (_, part) in parts_found {
                let part = ManifestPart::decode(&part).unwrap();
                assert_eq!(part.start, start);
                assert_eq!(part.sealed.map(|sealed| sealed.start), is_sealed.then_some(stored_bytes));
                start += part.size;
                stored_bytes += stored(part.size, is_sealed);
                home(part.home);
            }
            assert_eq!(start, row.size);
        }
        layouts.push((row.layout, stored_bytes));
    }
    for (place, (has_current, versions)) in of_key {
        let (newest, is_marker) = *versions.iter().max().unwrap();
        assert_eq!(has_current, !is_marker, "{place:?}: {versions:?}");
        assert!(is_marker || versions[0].0 == newest, "{place:?}: an older version is current");
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
