//! Listings of objects, and the walk over an ordered table that listings of uploads share.
//!
//! A walk seeks past each common prefix; it never walks through it. It reads from one snapshot, so that a page is of one
//! moment.

use std::sync::Arc;

use gabion_erasure::ChecksumAlgorithm;
use gabion_metadata::{IndexSnapshot, ScanRange, Table, Value, keys, rows::ListedObject};
use gabion_types::BucketName;

use crate::{ListObjects, ListedObjects, ObjectSummary, Store, StoreError};

/// Rows that the first scan after a seek asks for where there may be common prefixes; doubles up to [`SCAN_ROWS_MAX`] while none turns up.
const SCAN_ROWS_MIN: usize = 16;
/// Most rows that one scan asks for.
const SCAN_ROWS_MAX: usize = 1024;

impl Store {
    /// A page of objects, in order of key.
    ///
    /// # Errors
    /// `NoSuchBucket`, `Unavailable`.
    pub async fn list_objects(&self, request: ListObjects) -> Result<ListedObjects, StoreError> {
        self.inner.require_bucket(&request.bucket)?;
        list(self.inner.index.snapshot(), &request)
    }
}

fn list(index: Arc<dyn IndexSnapshot>, request: &ListObjects) -> Result<ListedObjects, StoreError> {
    let mut page = ListedObjects { entries: Vec::new(), common_prefixes: Vec::new(), next: None, truncated: false };
    if request.max == 0 {
        return Ok(page);
    }
    let objects = Objects { bucket: request.bucket.clone() };
    let after = request.after.as_deref().map(|key| keys::objects_with_prefix(&request.bucket, key));
    let mut walk = Walk::new(&*index, objects, &request.prefix, request.delimiter.as_deref(), after, request.max);
    let after = request.after.as_deref().unwrap_or("");
    let mut ends_with_prefix = false;
    while let Some(found) = walk.next()? {
        // A common prefix that is not above the marker was told on an earlier page.
        if let Found::Prefix(prefix) = &found
            && prefix.as_str() <= after
        {
            continue;
        }
        if page.entries.len() + page.common_prefixes.len() == request.max {
            page.truncated = true;
            page.next = match ends_with_prefix {
                true => page.common_prefixes.last().cloned(),
                false => page.entries.last().map(|entry| entry.key.clone()),
            };
            break;
        }
        ends_with_prefix = matches!(found, Found::Prefix(_));
        match found {
            Found::Prefix(prefix) => page.common_prefixes.push(prefix),
            Found::Row(found) => page.entries.push(summary(found.key, &found.row)?),
        }
    }
    Ok(page)
}

pub(crate) fn summary(key: String, row: &[u8]) -> Result<ObjectSummary, StoreError> {
    let row = ListedObject::decode(row)?;
    let checksums = row.checksums.iter();
    Ok(ObjectSummary {
        key,
        size: row.size,
        etag: row.etag,
        modified_ms: row.modified_ms,
        checksums: checksums
            .filter_map(|checksum| Some((ChecksumAlgorithm::from_index(checksum.algorithm)?, checksum.kind)))
            .collect(),
        storage_class: row.attributes.storage_class,
        owner: row.attributes.owner,
    })
}

/// A table that can be listed by object key.
pub(crate) trait Listed {
    /// The table.
    const TABLE: Table;
    /// What the keys of all rows begin with whose object keys begin with `prefix`.
    fn row_prefix(&self, prefix: &str) -> Vec<u8>;
    /// The object key of a row.
    fn object_key(&self, row_key: &[u8]) -> Result<String, StoreError>;
}

/// Current objects of a bucket.
pub(crate) struct Objects {
    pub bucket: BucketName,
}

impl Listed for Objects {
    const TABLE: Table = Table::Object;

    fn row_prefix(&self, prefix: &str) -> Vec<u8> {
        keys::objects_with_prefix(&self.bucket, prefix)
    }

    fn object_key(&self, row_key: &[u8]) -> Result<String, StoreError> {
        let (_, key) = keys::decode_object(row_key).map_err(|error| StoreError::Unavailable(error.to_string()))?;
        Ok(key.to_owned())
    }
}

/// What a walk comes upon.
pub(crate) enum Found {
    /// Rows whose object keys begin with it; the walk is past them already.
    Prefix(String),
    /// A row.
    Row(FoundRow),
}

/// A row that a walk comes upon.
pub(crate) struct FoundRow {
    /// Its key in the table.
    pub row_key: Vec<u8>,
    /// The object key in it.
    pub key: String,
    /// Its value.
    pub row: Value,
}

/// A walk over the rows below a prefix, in order.
pub(crate) struct Walk<'a, L> {
    index: &'a dyn IndexSnapshot,
    listed: L,
    prefix: &'a str,
    delimiter: Option<&'a str>,
    range: Option<ScanRange>,
    page: std::vec::IntoIter<(Vec<u8>, Value)>,
    scan_rows: usize,
}

impl<'a, L: Listed> Walk<'a, L> {
    /// From the first row above the row key `after`; some `rows` are wanted.
    pub(crate) fn new(
        index: &'a dyn IndexSnapshot,
        listed: L,
        prefix: &'a str,
        delimiter: Option<&'a str>,
        after: Option<Vec<u8>>,
        rows: usize,
    ) -> Self {
        let mut range = ScanRange::prefix(L::TABLE, &listed.row_prefix(prefix));
        if let Some(after) = after {
            range = range.after(&after);
        }
        let delimiter = delimiter.filter(|delimiter| !delimiter.is_empty());
        Self {
            index,
            listed,
            prefix,
            delimiter,
            range: Some(range),
            page: Vec::new().into_iter(),
            // One more, to know whether the page is the last.
            scan_rows: if delimiter.is_some() { SCAN_ROWS_MIN } else { rows.saturating_add(1).min(SCAN_ROWS_MAX) },
        }
    }

    pub(crate) fn next(&mut self) -> Result<Option<Found>, StoreError> {
        let Some((row_key, row)) = self.next_row()? else { return Ok(None) };
        let key = self.listed.object_key(&row_key)?;
        let rest = key.get(self.prefix.len()..).unwrap_or_default();
        let delimited = self.delimiter.and_then(|delimiter| Some((rest.find(delimiter)?, delimiter)));
        match delimited {
            None => Ok(Some(Found::Row(FoundRow { row_key, key, row }))),
            Some((at, delimiter)) => {
                let common = key[..self.prefix.len() + at + delimiter.len()].to_owned();
                self.seek_past(&common);
                Ok(Some(Found::Prefix(common)))
            }
        }
    }

    fn next_row(&mut self) -> Result<Option<(Vec<u8>, Value)>, StoreError> {
        if let Some(row) = self.page.next() {
            return Ok(Some(row));
        }
        let Some(range) = self.range.take() else { return Ok(None) };
        let rows = self.index.scan(range.clone(), self.scan_rows)?;
        if rows.len() == self.scan_rows {
            self.range = rows.last().map(|(last, _)| range.after(last));
        }
        self.scan_rows = (self.scan_rows * 2).min(SCAN_ROWS_MAX);
        self.page = rows.into_iter();
        Ok(self.page.next())
    }

    /// Goes on behind all rows whose object keys begin with `common`.
    fn seek_past(&mut self, common: &str) {
        let Some(past) = keys::successor(&self.listed.row_prefix(common)) else {
            (self.range, self.page) = (None, Vec::new().into_iter());
            return;
        };
        // Often it is a step or two within the page that is at hand.
        let rest = self.page.as_slice();
        let skipped = rest.partition_point(|(key, _)| *key < past);
        if skipped < rest.len() {
            self.page.by_ref().take(skipped).for_each(drop);
        } else if let Some(range) = self.range.take() {
            self.page = Vec::new().into_iter();
            self.range = Some(range.from(&past));
            self.scan_rows = SCAN_ROWS_MIN;
        } else {
            self.page = Vec::new().into_iter();
        }
    }
}
