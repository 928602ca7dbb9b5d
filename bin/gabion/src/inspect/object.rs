//! An object's row in the index, and where its bytes lie.

use std::fmt::Write;
use std::path::Path;

use gabion_metadata::rows::{ChecksumKind, Layout, ManifestPage, ObjectRow, Row};
use gabion_metadata::{FjallIndex, Index, IndexError, IndexOptions, ScanRange, Table, keys};
use gabion_platform::DirLock;
use gabion_store::ChecksumAlgorithm;
use gabion_types::{BucketName, Extent, ManifestId, ObjectKey, Place};
use serde::Serialize;

use super::show;
use crate::exit::Failure;

/// Rows of a manifest that are read at a time.
const PAGES_AT_A_TIME: usize = 64;

#[derive(Serialize)]
struct ObjectReport {
    bucket: String,
    key: String,
    seq: String,
    modified_ms: u64,
    size_bytes: u64,
    etag: String,
    layout: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    manifest: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    part_count: Option<u32>,
    content_type: Option<String>,
    user_metadata: Vec<(String, String)>,
    checksums: Vec<ChecksumReport>,
    mutation: MutationReport,
    extents: Vec<ExtentReport>,
}

#[derive(Serialize)]
struct ChecksumReport {
    algorithm: String,
    kind: &'static str,
    hex: String,
}

/// The record that made the object current.
#[derive(Serialize)]
struct MutationReport {
    segment: String,
    bytes: u32,
}

#[derive(Serialize)]
struct ExtentReport {
    segment: String,
    stripe_offset: u64,
    #[serde(flatten)]
    place: PlaceReport,
    bytes: u32,
    crc64: String,
}

#[derive(Serialize)]
#[serde(rename_all = "lowercase", tag = "place")]
enum PlaceReport {
    Chunk { shard: u8, start: u32 },
    Cells { cell_bytes: u32 },
}

pub(super) fn run(bucket: &str, key: &str, state: &Path, json: bool) -> Result<(), Failure> {
    let bucket = BucketName::new(bucket).map_err(|error| Failure::config(error.to_string()))?;
    let key = ObjectKey::new(key).map_err(|error| Failure::config(error.to_string()))?;
    let dir = crate::index::dir(state);
    if !dir.is_dir() {
        return Err(Failure::failed(format!(
            "there is no index in {}: is {} the state directory?",
            dir.display(),
            state.display()
        )));
    }
    let _lock = DirLock::acquire(&state.join("gabion.lock")).map_err(|error| match error.kind() {
        std::io::ErrorKind::ResourceBusy => Failure::held(format!("{error}: stop the server first, it owns the index")),
        _ => Failure::failed(error.to_string()),
    })?;
    let index = FjallIndex::open(&dir, IndexOptions::default()).map_err(failed)?;
    let Some(value) = index.get(Table::Object, &keys::object(&bucket, &key)).map_err(failed)? else {
        return Err(Failure::failed(format!(
            "there is no object {key:?} in the bucket {bucket:?} as far as the index goes; after a crash, start and stop the server first: it replays the log"
        )));
    };
    let row = ObjectRow::decode(&value).map_err(|error| Failure::failed(error.to_string()))?;
    let report = report(&bucket, &key, row, &index)?;
    show(&report, json, text)
}

fn failed(error: IndexError) -> Failure {
    match error {
        IndexError::Corrupt(_) => {
            Failure::failed(format!("{error}; run gabion rebuild-index, or start the server, which does it"))
        }
        error => Failure::failed(error.to_string()),
    }
}

fn report(bucket: &BucketName, key: &ObjectKey, row: ObjectRow, index: &impl Index) -> Result<ObjectReport, Failure> {
    let (layout, manifest, extents) = match row.layout {
        Layout::Empty => ("empty", None, Vec::new()),
        Layout::Extents(extents) => ("extents", None, extents),
        Layout::Manifest(manifest) => ("manifest", Some(manifest), pages(manifest, index)?),
    };
    Ok(ObjectReport {
        bucket: bucket.as_str().to_owned(),
        key: key.as_str().to_owned(),
        seq: row.seq.to_string(),
        modified_ms: row.modified_ms,
        size_bytes: row.size,
        etag: row.etag.to_string(),
        layout,
        manifest: manifest.map(|manifest| manifest.to_string()),
        part_count: row.parts.map(|parts| parts.count),
        content_type: row.attributes.content_type,
        user_metadata: row.attributes.user,
        checksums: row.checksums.iter().map(checksum).collect(),
        mutation: MutationReport { segment: row.home.segment.to_string(), bytes: row.home.bytes },
        extents: extents.iter().map(extent).collect(),
    })
}

fn pages(manifest: ManifestId, index: &impl Index) -> Result<Vec<Extent>, Failure> {
    let mut extents = Vec::new();
    let mut range = ScanRange::prefix(Table::Manifest, &keys::manifest_pages(manifest));
    loop {
        let rows = index.scan(range.clone(), PAGES_AT_A_TIME).map_err(failed)?;
        let Some((last, _)) = rows.last() else { return Ok(extents) };
        range = range.after(last);
        for (_, value) in &rows {
            let page = ManifestPage::decode(value).map_err(|error| Failure::failed(error.to_string()))?;
            extents.extend(page.extents);
        }
    }
}

fn checksum(stored: &gabion_store::StoredChecksum) -> ChecksumReport {
    let algorithm = ChecksumAlgorithm::ALL.get(usize::from(stored.algorithm));
    let algorithm =
        algorithm.map_or_else(|| format!("unknown ({})", stored.algorithm), |known| known.as_str().to_owned());
    let kind = match stored.kind {
        ChecksumKind::FullObject => "full object",
        ChecksumKind::Composite => "composite",
    };
    let hex = stored.value.iter().fold(String::new(), |mut hex, byte| {
        // Writing to a String can not fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    });
    ChecksumReport { algorithm, kind, hex }
}

fn extent(extent: &Extent) -> ExtentReport {
    let place = match extent.place {
        Place::Chunk { shard, start } => PlaceReport::Chunk { shard, start },
        Place::Cells { cell_bytes } => PlaceReport::Cells { cell_bytes },
    };
    ExtentReport {
        segment: extent.segment.to_string(),
        stripe_offset: extent.stripe_offset,
        place,
        bytes: extent.len,
        crc64: format!("{:016x}", extent.crc64),
    }
}

fn text(report: &ObjectReport) -> String {
    let mut out = String::new();
    let mut line = |name: &str, value: &dyn std::fmt::Display| {
        let _ = writeln!(out, "{name:<12} {value}");
    };
    line("object", &format_args!("{}/{}", report.bucket, report.key));
    line("seq", &report.seq);
    line("modified", &format_args!("{} ms since 1970", report.modified_ms));
    line("size", &format_args!("{} bytes", report.size_bytes));
    line("etag", &report.etag);
    if let Some(content_type) = &report.content_type {
        line("type", content_type);
    }
    for (name, value) in &report.user_metadata {
        line("metadata", &format_args!("{name}: {value}"));
    }
    for checksum in &report.checksums {
        line("checksum", &format_args!("{} {} ({})", checksum.algorithm, checksum.hex, checksum.kind));
    }
    if let Some(count) = report.part_count {
        line("parts", &count);
    }
    line("mutation", &format_args!("segment {}, {} bytes", report.mutation.segment, report.mutation.bytes));
    line("layout", &report.layout);
    if let Some(manifest) = &report.manifest {
        line("manifest", manifest);
    }
    for extent in &report.extents {
        let place = match extent.place {
            PlaceReport::Chunk { shard, start } => format!("shard {shard} at {start} of the chunk"),
            PlaceReport::Cells { cell_bytes } => format!("cells of {cell_bytes}"),
        };
        let (segment, stripe, bytes, crc64) = (&extent.segment, extent.stripe_offset, extent.bytes, &extent.crc64);
        line("extent", &format_args!("segment {segment}, stripe at {stripe}, {place}, {bytes} bytes, crc64 {crc64}"));
    }
    out
}
