//! GetObject, HeadObject and GetObjectAttributes.

pub(crate) mod known;
mod opened;
pub(crate) mod pieces;
mod stream;

use std::sync::Arc;

use gabion_encryption::BodyRange;
use gabion_metadata::{
    ScanRange, Table, Value, keys,
    rows::{Layout, ManifestPart, ObjectRow, Row},
};
use gabion_segment::Pin;
use gabion_types::{Extent, Place};

use crate::{
    ByteRange, GetAttributes, GetObject, ObjectAttributes, ObjectInfo, ObjectRead, ObjectStream, Opening, PartInfo,
    PartsPage, Store, StoreError, VersionId, store::Inner, versions::Located,
};
use known::Known;
use pieces::Pieces;

/// How often a read begins anew when the object changes under it, before it says so.
const ATTEMPTS_MAX: usize = 16;

impl Store {
    /// Opens the current object, or a range or part of it, for reading. The first bytes are read and verified before it
    /// resolves, so that a failure there is an error and no broken body.
    ///
    /// # Errors
    /// `NoSuchBucket`, `NoSuchKey`, `PreconditionFailed`, `NotModified`, `InvalidRange`, `InvalidPartNumber`, `Corrupt`, `Busy`.
    pub fn get_object(&self, request: GetObject) -> impl Future<Output = Result<ObjectRead, StoreError>> + Send {
        let opening = self.open_object(request);
        async move {
            match opening? {
                Opening::Ready(read) => Ok(read),
                Opening::Reading(reading) => reading.await,
            }
        }
    }

    /// The same, told at once where nothing is to be waited for.
    ///
    /// # Errors
    /// As [`Store::get_object`], without those of reading.
    pub fn open_object(&self, request: GetObject) -> Result<Opening<'_>, StoreError> {
        let inner = &self.inner;
        let (mut read, pinned) = inner.begin_read_anew(&request)?;
        let Some(Pinned { pieces, pin, bodies }) = pinned else { return Ok(Opening::Ready(read)) };
        let reading = async move {
            read.body = match bodies {
                None => stream::open(inner, pieces, pin).await?,
                Some(bodies) => Box::pin(opened::open(inner, &request, &read.info, bodies, pieces, pin)).await?,
            };
            Ok(read)
        };
        Ok(Opening::Reading(Box::pin(reading)))
    }

    /// What [`Store::get_object`] would say, from the index alone; the body is empty.
    ///
    /// # Errors
    /// As [`Store::get_object`], without those of reading.
    pub fn head_object(&self, request: &GetObject) -> Result<ObjectRead, StoreError> {
        self.inner.anew(|| self.inner.resolve(request, &self.inner.find(request)?))
    }

    /// What is known about an object, with a page of its parts.
    ///
    /// # Errors
    /// As [`Store::head_object`].
    pub async fn get_attributes(&self, request: GetAttributes) -> Result<ObjectAttributes, StoreError> {
        // Row and parts from one moment: an overwrite in between must not lose the parts.
        let index = self.inner.index.snapshot();
        let (bucket, key) = (&request.bucket, &request.key);
        let mut row = self.inner.require_version_in(&*index, bucket, key, request.version)?.row;
        request.conditions.check(&row.etag, row.modified_ms, &row.attributes)?;
        self.inner.check_customer(&row.attributes, &request.bucket, &request.key, request.customer.as_ref())?;
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

/// The row that is read, and where it is.
struct Found {
    table: Table,
    row_key: Vec<u8>,
    value: Value,
    known: Arc<Known>,
}

/// What is to be read, kept where it lies.
struct Pinned {
    pieces: Pieces,
    pin: Pin,
    /// What of it is to be opened, if it is sealed.
    bodies: Option<Vec<BodyRange>>,
}

impl Inner {
    /// What the answer to a read is, with what is left to be read for it.
    fn begin_read_anew(&self, request: &GetObject) -> Result<(ObjectRead, Option<Pinned>), StoreError> {
        self.anew(|| self.begin_read(request))
    }

    /// What `attempt` comes to, which is begun anew as long as it says nothing.
    fn anew<T>(&self, attempt: impl Fn() -> Result<Option<T>, StoreError>) -> Result<T, StoreError> {
        for _ in 0..ATTEMPTS_MAX {
            match attempt()? {
                Some(done) => return Ok(done),
                None => self.metrics.read_retries.add(1),
            }
        }
        Err(StoreError::Busy)
    }

    /// The same; nothing when the object changed meanwhile.
    fn begin_read(&self, request: &GetObject) -> Result<Option<(ObjectRead, Option<Pinned>)>, StoreError> {
        let found = self.find(request)?;
        let row = &found.known.row;
        let Some(mut read) = self.resolve(request, &found)? else { return Ok(None) };
        let range = match (read.range, row.size, read.len) {
            (_, 0, _) | (_, _, 0) => return Ok(Some((read, None))),
            (Some(range), ..) => range,
            (None, size, _) => ByteRange { first: 0, last: size - 1 },
        };
        let (stored, bodies) = match &read.info.attributes.encryption {
            None => (range, None),
            Some(encryption) => match self.locate(row, encryption, range)? {
                Some(sealed) => (sealed.stored, Some(sealed.bodies)),
                None if self.is_there(&found)? => {
                    return Err(StoreError::Corrupt("the parts of an object are incomplete".into()));
                }
                None => return Ok(None),
            },
        };
        if bodies.is_none()
            && let Some(body) = self.warm(row, stored)
        {
            read.body = body;
            return Ok(Some((read, None)));
        }
        let pinned = self.pin(&found, stored)?;
        Ok(pinned.map(|(pieces, pin)| (read, Some(Pinned { pieces, pin, bodies }))))
    }

    /// A range of an object that is one short piece, if that was read before and is still in memory, and there is room to hold it: then no file is needed.
    fn warm(&self, row: &ObjectRow, range: ByteRange) -> Option<ObjectStream> {
        let Layout::Extents(extents) = &row.layout else { return None };
        let [extent] = extents.as_slice() else { return None };
        let piece = self.log.warm(extent, u32::try_from(range.first).ok()?..u32::try_from(range.last + 1).ok()?)?;
        Some(ObjectStream::of_piece(piece, self.try_read_share(extent.len as usize)?))
    }

    /// The row that is asked for.
    fn find(&self, request: &GetObject) -> Result<Found, StoreError> {
        let (bucket, key) = (&request.bucket, &request.key);
        if request.version.is_some() {
            let Located { table, row_key, value, row } = self.require_version(bucket, key, request.version)?;
            return Ok(Found { table, row_key, value, known: Arc::new(Known::new(row)) });
        }
        let (row_key, value) = self.require_current(bucket, key)?;
        let known = self.known_rows.get(&value)?;
        Ok(Found { table: Table::Object, row_key, value, known })
    }

    /// Checks conditions, and finds the range that is meant; what the row says beside its bytes goes to the answer. Nothing when the object changed
    /// meanwhile.
    fn resolve(&self, request: &GetObject, found: &Found) -> Result<Option<ObjectRead>, StoreError> {
        let Known { row, info } = &*found.known;
        request.conditions.check(&row.etag, row.modified_ms, &info.attributes)?;
        if info.attributes.encryption.is_some() || request.customer.is_some() {
            self.check_customer(&info.attributes, &request.bucket, &request.key, request.customer.as_ref())?;
        }
        let mut read =
            ObjectRead { info: Arc::clone(info), range: None, len: row.size, part: None, body: ObjectStream::empty() };
        if let Some(part_number) = request.part_number {
            if request.range.is_some() {
                let message = "Cannot specify both Range header and partNumber query parameter";
                return Err(StoreError::InvalidRequest(message.into()));
            }
            let (start, len) = match self.manifest_part(row, part_number) {
                Ok(Some(part)) => {
                    let place = (part.start, part.size);
                    read.part = Some(part_of(part));
                    place
                }
                Ok(None) => (0, row.size),
                // What replaced it took its parts along.
                Err(StoreError::InvalidPartNumber) if !self.is_there(found)? => return Ok(None),
                Err(error) => return Err(error),
            };
            read.len = len;
            read.range = len.checked_sub(1).map(|last| ByteRange { first: start, last: start + last });
        } else if let Some(range) = request.range {
            read.range = range.resolve(row.size)?;
            read.len = read.range.map_or(row.size, ByteRange::len);
        }
        Ok(Some(read))
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
    fn pin(&self, found: &Found, range: ByteRange) -> Result<Option<(Pieces, Pin)>, StoreError> {
        let layout = &found.known.row.layout;
        let (pieces, segments) = match layout {
            Layout::Manifest(manifest) => match Pieces::paged(
                &*self.index.snapshot(),
                *manifest,
                range,
                Some(&|share, bytes| self.try_pages_share(share, bytes)),
            )? {
                Some(found) => found,
                None if self.is_there(found)? => {
                    return Err(StoreError::Corrupt("the manifest of an object is incomplete".into()));
                }
                None => return Ok(None),
            },
            Layout::Extents(extents) => Pieces::listed(extents, range),
            Layout::Empty => Pieces::listed(&[], range),
        };
        let segment_count = segments.len();
        let pin = self.log.pin(segments);
        // What lies in one chunk is in a segment in which no holes are punched: where it was when the row was read, it is as long as the file.
        let is_there = |extents: &[Extent]| extents.iter().all(|extent| matches!(extent.place, Place::Chunk { .. }));
        if pin.len() == segment_count && matches!(layout, Layout::Extents(extents) if is_there(extents)) {
            return Ok(Some((pieces, pin)));
        }
        Ok(self.is_there(found)?.then_some((pieces, pin)))
    }

    /// Whether a row is still what was found.
    fn is_there(&self, found: &Found) -> Result<bool, StoreError> {
        Ok(self.index.get(found.table, &found.row_key)?.is_some_and(|now| now == found.value))
    }
}

/// What a row says about its object, taken out of it.
pub(crate) fn info(row: &mut ObjectRow) -> ObjectInfo {
    ObjectInfo {
        size: row.size,
        etag: row.etag.clone(),
        modified_ms: row.modified_ms,
        seq: row.seq,
        version: VersionId::of(row),
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
