//! One pass over all rows: those that refer to a victim are moved.

use std::sync::Arc;

use gabion_metadata::{
    Pages, Rows, ScanRange, Table, Value,
    keys::{self, VersionKey},
    rows::{
        BucketRow, ConfigRow, Home, Layout, ManifestPage, ManifestPart, ObjectRow, PartRow, PartsSummary, Row,
        SnapshotRow, UploadRow,
    },
};
use gabion_types::{BucketName, Extent, ObjectKey, UploadId, limits::INLINE_BYTES_MAX};
use tokio::sync::Semaphore;

use super::{PACED_ROW_BYTES_MIN, PAUSE_EVERY_BYTES, Round, UNIT_BYTES, UNITS_PER_ROW_MIN, relocate::relocate};
use crate::{StoreError, snapshot::SNAPSHOT_ROW, tasks};

/// Rows that one scan returns at most.
const PAGE_ROWS: usize = 512;

/// A row as it was found.
#[derive(Clone)]
pub(super) struct Found {
    pub place: RowPlace,
    pub value: Value,
    /// Length of what it describes, in bytes.
    pub size: u64,
}

/// Where a row is, in words that locks understand.
#[derive(Clone, Debug)]
pub(super) enum RowPlace {
    Bucket(BucketName),
    Upload(BucketName, ObjectKey, UploadId),
    /// A part of an upload of this bucket.
    Part(BucketName, UploadId, u16),
    Object(BucketName, ObjectKey),
    /// A version that is not current, or a delete marker.
    Version(BucketName, ObjectKey, VersionKey),
    /// A document of a bucket, or of the site.
    Config(Option<BucketName>, String),
    IndexSnapshot,
}

impl RowPlace {
    /// The bucket and key of an object.
    pub(super) fn object(&self) -> Option<(&BucketName, &ObjectKey)> {
        match self {
            RowPlace::Object(bucket, key) | RowPlace::Version(bucket, key, _) => Some((bucket, key)),
            _ => None,
        }
    }

    /// Table and key.
    pub(super) fn row_key(&self) -> (Table, Vec<u8>) {
        match self {
            RowPlace::Bucket(bucket) => (Table::Bucket, keys::bucket(bucket)),
            RowPlace::Upload(bucket, key, upload) => (Table::Upload, keys::upload(bucket, key, *upload)),
            RowPlace::Part(_, upload, part_number) => (Table::Part, keys::part(*upload, *part_number)),
            RowPlace::Object(bucket, key) => (Table::Object, keys::object(bucket, key)),
            RowPlace::Version(bucket, key, version) => (Table::Version, keys::version(bucket, key, *version)),
            RowPlace::Config(bucket, name) => (Table::Config, keys::config(bucket.as_ref(), name)),
            RowPlace::IndexSnapshot => (Table::System, keys::system(SNAPSHOT_ROW)),
        }
    }
}

/// Goes over all rows and begins a move for each that refers to a victim. Returns when all are begun.
///
/// A row that comes to refer to a victim behind the pass (a copy) is found by the next one.
pub(super) async fn over_rows(round: &Arc<Round>, budget: &Arc<Semaphore>) -> Result<(), StoreError> {
    let mut moves = Moves { round, budget, unpaused_bytes: 0 };
    let (table, key) = RowPlace::IndexSnapshot.row_key();
    if let Some(value) = round.inner.index.get(table, &key)?
        && round.is_victim(SnapshotRow::decode(&value)?.home)
    {
        moves.begin(Found { place: RowPlace::IndexSnapshot, value, size: 0 }).await?;
    }
    let mut pages = Pages::new(ScanRange::all(Table::Bucket), PAGE_ROWS);
    while let Some(rows) = round.next(&mut pages)? {
        for (key, value) in rows {
            let row = BucketRow::decode(&value)?;
            if round.is_victim(row.home) {
                let bucket = keys::decode_bucket(&key).map_err(|error| malformed(&error))?;
                moves.begin(Found { place: RowPlace::Bucket(bucket), value, size: 0 }).await?;
            }
        }
    }
    let mut pages = Pages::new(ScanRange::all(Table::Config), PAGE_ROWS);
    while let Some(rows) = round.next(&mut pages)? {
        for (key, value) in rows {
            if round.is_victim(ConfigRow::decode(&value)?.home) {
                let (bucket, name) = keys::decode_config(&key).map_err(|error| malformed(&error))?;
                let place = RowPlace::Config(bucket, name.to_owned());
                moves.begin(Found { place, value, size: 0 }).await?;
            }
        }
    }
    let mut pages = Pages::new(ScanRange::all(Table::Upload), PAGE_ROWS);
    while let Some(rows) = round.next(&mut pages)? {
        for (key, value) in rows {
            over_upload(&mut moves, &key, value).await?;
        }
        round.check()?;
        tokio::task::yield_now().await;
    }
    over_objects(&mut moves, Table::Object).await?;
    over_objects(&mut moves, Table::Version).await
}

/// Current objects, or versions that are not.
async fn over_objects(moves: &mut Moves<'_>, table: Table) -> Result<(), StoreError> {
    let round = moves.round;
    let mut pages = Pages::new(ScanRange::all(table), PAGE_ROWS);
    while let Some(rows) = tasks::blocking(|| round.next(&mut pages))? {
        for (key, value) in rows {
            let row = ObjectRow::decode(&value)?;
            if round.is_victim(row.home) || round.layout_refers(&row.layout)? || round.parts_refer(row.parts)? {
                let place = if table == Table::Object {
                    let (bucket, key) = keys::decode_object(&key).map_err(|error| malformed(&error))?;
                    RowPlace::Object(bucket_name(bucket)?, object_key(key)?)
                } else {
                    let (bucket, key, version) = keys::decode_version(&key).map_err(|error| malformed(&error))?;
                    RowPlace::Version(bucket_name(bucket)?, object_key(&key)?, version)
                };
                moves.begin(Found { place, value, size: row.size }).await?;
            }
        }
        round.check()?;
        tokio::task::yield_now().await;
    }
    Ok(())
}

/// An upload, and its parts: only from here it is known what bucket they belong to.
async fn over_upload(moves: &mut Moves<'_>, key: &[u8], value: Value) -> Result<(), StoreError> {
    let round = moves.round;
    let (bucket, object, upload) = keys::decode_upload(key).map_err(|error| malformed(&error))?;
    let bucket = bucket_name(bucket)?;
    let mut pages = Pages::new(ScanRange::prefix(Table::Part, &keys::parts_of(upload)), PAGE_ROWS);
    while let Some(rows) = round.next(&mut pages)? {
        for (key, value) in rows {
            let row = PartRow::decode(&value)?;
            if round.is_victim(row.home) || round.layout_refers(&row.layout)? {
                let (_, part_number) = keys::decode_part(&key).map_err(|error| malformed(&error))?;
                let place = RowPlace::Part(bucket.clone(), upload, part_number);
                moves.begin(Found { place, value, size: row.size }).await?;
            }
        }
    }
    if round.is_victim(UploadRow::decode(&value)?.home) {
        let place = RowPlace::Upload(bucket, object_key(&object)?, upload);
        moves.begin(Found { place, value, size: 0 }).await?;
    }
    Ok(())
}

/// Moves that are begun, as many as there is memory for.
struct Moves<'a> {
    round: &'a Arc<Round>,
    budget: &'a Arc<Semaphore>,
    unpaused_bytes: u64,
}

impl Moves<'_> {
    /// Begins a move when there is room for it.
    async fn begin(&mut self, found: Found) -> Result<(), StoreError> {
        self.round.check()?;
        let held_bytes = found.size.min(INLINE_BYTES_MAX as u64);
        let units = held_bytes.div_ceil(UNIT_BYTES).max(UNITS_PER_ROW_MIN) as u32;
        let share = Arc::clone(self.budget).acquire_many_owned(units).await.expect("the semaphore is never closed");
        self.unpaused_bytes += (held_bytes + found.value.len() as u64).max(PACED_ROW_BYTES_MIN);
        if self.unpaused_bytes >= PAUSE_EVERY_BYTES {
            self.round.pause(std::mem::take(&mut self.unpaused_bytes)).await;
        }
        let round = Arc::clone(self.round);
        // To its end whatever becomes of the round: a lock must not be let go of while a commit under it is on its way.
        self.round.inner.spawn(async move {
            let outcome = relocate(&round, &found).await;
            round.note(&found.place, outcome);
            drop(share);
        });
        Ok(())
    }
}

impl Round {
    pub(super) fn is_victim(&self, home: Home) -> bool {
        home.bytes > 0 && self.victims.contains(&home.segment)
    }

    /// Whether any of the extents lies in a victim.
    pub(super) fn any_victim(&self, extents: &[Extent]) -> bool {
        extents.iter().any(|extent| self.victims.contains(&extent.segment))
    }

    fn layout_refers(&self, layout: &Layout) -> Result<bool, StoreError> {
        match layout {
            Layout::Empty => Ok(false),
            Layout::Extents(extents) => Ok(self.any_victim(extents)),
            Layout::Manifest(manifest) => {
                let pages = ScanRange::prefix(Table::Manifest, &keys::manifest_pages(*manifest));
                self.any_row(pages, |page| Ok(self.any_victim(&ManifestPage::decode(page)?.extents)))
            }
        }
    }

    fn parts_refer(&self, parts: Option<PartsSummary>) -> Result<bool, StoreError> {
        let Some(parts) = parts else { return Ok(false) };
        let parts = ScanRange::prefix(Table::Manifest, &keys::manifest_parts(parts.manifest));
        self.any_row(parts, |part| Ok(self.is_victim(ManifestPart::decode(part)?.home)))
    }

    fn any_row(&self, range: ScanRange, is_it: impl Fn(&[u8]) -> Result<bool, StoreError>) -> Result<bool, StoreError> {
        let mut pages = Pages::new(range, PAGE_ROWS);
        while let Some(rows) = self.next(&mut pages)? {
            for (_, row) in rows {
                if is_it(&row)? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    fn next(&self, pages: &mut Pages) -> Result<Option<Rows>, StoreError> {
        Ok(pages.next(|range, limit| self.inner.index.scan(range, limit))?)
    }
}

fn malformed(error: &dyn std::fmt::Display) -> StoreError {
    StoreError::Corrupt(format!("the index: {error}"))
}

fn bucket_name(name: &str) -> Result<BucketName, StoreError> {
    BucketName::new(name).map_err(|error| malformed(&error))
}

fn object_key(key: &str) -> Result<ObjectKey, StoreError> {
    ObjectKey::new(key).map_err(|error| malformed(&error))
}
