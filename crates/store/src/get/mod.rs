//! GetObject, HeadObject and GetObjectAttributes.

pub(crate) mod pieces;
mod stream;

use gabion_metadata::{
    ScanRange, Table, Value, keys,
    rows::{Layout, ManifestPart, ObjectRow, Row},
};
use gabion_segment::Pin;
use gabion_types::{Extent, Place};

use crate::{
    ByteRange, GetAttributes, GetObject, ObjectAttributes, ObjectInfo, ObjectRead, ObjectStream, PartInfo, PartsPage,
    Store, StoreError, store::Inner,
};
use pieces::Pieces;

/// How often a read begins anew when the object changes under it, before it says so.
const ATTEMPTS_MAX: usize = 16;

impl Store {
    /// Opens the current object, or a range or part of it, for reading. The first bytes are read and verified before it
    /// resolves, so that a failure there is an error and no broken body.
    ///
    /// # Errors
    /// `NoSuchBucket`, `NoSuchKey`, `PreconditionFailed`, `NotModified`, `InvalidRange`, `InvalidPartNumber`, `Corrupt`, `Busy`.
    pub async fn get_object(&self, request: GetObject) -> Result<ObjectRead, StoreError> {
        let inner = &self.inner;
        let row_key = keys::object(&request.bucket, &request.key);
        for _ in 0..ATTEMPTS_MAX {
            let Some((mut read, bytes)) = inner.begin_read(&request, &row_key)? else {
                inner.metrics.read_retries.add(1);
                continue;
            };
            if let Some((pieces, pin)) = bytes {
                read.body = stream::open(inner, pieces, pin).await?;
            }
            return Ok(read);
        }
        Err(StoreError::Busy)
    }

    /// What [`Store::get_object`] would say, from the index alone; the body is empty.
    ///
    /// # Errors
    /// As [`Store::get_object`], without those of reading.
    pub async fn head_object(&self, request: GetObject) -> Result<ObjectRead, StoreError> {
        let (_, mut row) = self.inner.require_object(&request.bucket, &request.key)?;
        self.inner.resolve(&request, &mut row)
    }

    /// What is known about an object, with a page of its parts.
    ///
    /// # Errors
    /// As [`Store::head_object`].
    pub async fn get_attributes(&self, request: GetAttributes) -> Result<ObjectAttributes, StoreError> {
        // Row and parts from one moment: an overwrite in between must not lose the parts.
        let index = self.inner.index.snapshot();
        let Some(value) = index.get(Table::Object, &keys::object(&request.bucket, &request.key))? else {
            self.inner.require_bucket(&request.bucket)?;
            return Err(StoreError::NoSuchKey);
        };
        let mut row = ObjectRow::decode(&value)?;
        request.conditions.check(&row.etag, row.modified_ms)?;
        let parts = match row.parts {
            Some(summary) => {
                let prefix = keys::manifest_parts(summary.manifest);
                let after = keys::manifest_part(summary.manifest, request.parts_after);
                let range = ScanRange::prefix(Table::Manifest, &prefix).after(&after);
                let mut rows = index.scan(range, request.parts_max.saturating_add(1))?;
                let truncated = rows.len() > request.parts_max;
                rows.truncate(request.parts_max);
                let parts = rows.iter().map(|(_, row)| part_info(row)).collect::<Result<Vec<_>, _>>()?;
                let next = parts.last().map_or(request.parts_after, |part| part.part_number);
                Some(PartsPage { total: summary.count, parts, next, truncated })
            }
            None => None,
        };
        Ok(ObjectAttributes { info: info(&mut row), parts })
    }
}

/// What is to be read, kept where it lies.
type Pinned = (Pieces, Pin);

impl Inner {
    /// What the answer to a read is, with what is left to be read for it; nothing when the object changed meanwhile.
    fn begin_read(
        &self,
        request: &GetObject,
        row_key: &[u8],
    ) -> Result<Option<(ObjectRead, Option<Pinned>)>, StoreError> {
        let (value, mut row) = self.require_row(&request.bucket, row_key)?;
        let read = self.resolve(request, &mut row)?;
        let range = match (read.range, row.size, read.len) {
            (_, 0, _) | (_, _, 0) => return Ok(Some((read, None))),
            (Some(range), ..) => range,
            (None, size, _) => ByteRange { first: 0, last: size - 1 },
        };
        Ok(self.pin(row_key, &value, &row, range)?.map(|pinned| (read, Some(pinned))))
    }

    /// Checks conditions, and finds the range that is meant; what the row says beside its bytes goes to the answer.
    fn resolve(&self, request: &GetObject, row: &mut ObjectRow) -> Result<ObjectRead, StoreError> {
        request.conditions.check(&row.etag, row.modified_ms)?;
        let mut read =
            ObjectRead { info: info(row), range: None, len: row.size, part: None, body: ObjectStream::empty() };
        if let Some(part_number) = request.part_number {
            if request.range.is_some() {
                let message = "Cannot specify both Range header and partNumber query parameter";
                return Err(StoreError::InvalidRequest(message.into()));
            }
            let (start, len) = match self.manifest_part(row, part_number)? {
                Some(part) => {
                    let found = (part.start, part.size);
                    read.part = Some(part_of(part));
                    found
                }
                None => (0, row.size),
            };
            read.len = len;
            read.range = len.checked_sub(1).map(|last| ByteRange { first: start, last: start + last });
        } else if let Some(range) = request.range {
            let range = range.resolve(row.size)?;
            read.len = range.len();
            read.range = Some(range);
        }
        Ok(read)
    }

    /// The part of an object; nothing for part 1 of an object that has no parts, which is all of it.
    fn manifest_part(&self, row: &ObjectRow, part_number: u16) -> Result<Option<ManifestPart>, StoreError> {
        let Some(parts) = row.parts else {
            return if part_number == 1 { Ok(None) } else { Err(StoreError::InvalidPartNumber) };
        };
        match self.index.get(Table::Manifest, &keys::manifest_part(parts.manifest, part_number))? {
            Some(part) => Ok(Some(ManifestPart::decode(&part)?)),
            None => Err(StoreError::InvalidPartNumber),
        }
    }

    /// Pins the segments of a range and makes sure that it was not too late: that all are there and nothing is punched out of them, or that
    /// the row is still `value`. As long as it is, its segments are live; once they are pinned, their files stay.
    fn pin(
        &self,
        row_key: &[u8],
        value: &Value,
        row: &ObjectRow,
        range: ByteRange,
    ) -> Result<Option<Pinned>, StoreError> {
        let (pieces, segments) = match &row.layout {
            Layout::Manifest(manifest) => match Pieces::paged(self.index.snapshot(), *manifest, range)? {
                Some(found) => found,
                None => return self.gone(row_key, value),
            },
            Layout::Extents(extents) => Pieces::listed(extents, range),
            Layout::Empty => Pieces::listed(&[], range),
        };
        let segment_count = segments.len();
        let pin = self.log.pin(segments);
        // What lies in one chunk is in a segment in which no holes are punched: where it was when the row was read, it is as long as the file.
        let is_there = |extents: &[Extent]| extents.iter().all(|extent| matches!(extent.place, Place::Chunk { .. }));
        if pin.len() == segment_count && matches!(&row.layout, Layout::Extents(extents) if is_there(extents)) {
            return Ok(Some((pieces, pin)));
        }
        match self.index.get(Table::Object, row_key)? {
            Some(now) if now == *value => Ok(Some((pieces, pin))),
            _ => Ok(None),
        }
    }

    /// The manifest of a row is not there: because the row is not any more.
    fn gone<T>(&self, row_key: &[u8], value: &Value) -> Result<Option<T>, StoreError> {
        match self.index.get(Table::Object, row_key)? {
            Some(now) if now == *value => Err(StoreError::Corrupt("the manifest of an object is incomplete".into())),
            _ => Ok(None),
        }
    }
}

/// What a row says about its object, taken out of it.
fn info(row: &mut ObjectRow) -> ObjectInfo {
    ObjectInfo {
        size: row.size,
        etag: row.etag.clone(),
        modified_ms: row.modified_ms,
        seq: row.seq,
        attributes: std::mem::take(&mut row.attributes),
        checksums: std::mem::take(&mut row.checksums),
        parts_count: row.parts.map(|parts| parts.count),
    }
}

fn part_info(row: &[u8]) -> Result<PartInfo, StoreError> {
    Ok(part_of(ManifestPart::decode(row)?))
}

fn part_of(part: ManifestPart) -> PartInfo {
    PartInfo { part_number: part.part_number, size: part.size, checksums: part.checksums }
}
