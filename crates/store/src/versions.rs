//! Versions of objects: where they are in the index.
//!
//! The current object of a key is in the table `Object`; its older versions, and delete markers, are in the table `Version`. When the
//! newest version is a delete marker, there is no current object (docs/adr/0016).

use gabion_metadata::{
    IndexError, IndexSnapshot, Order, ScanRange, Table, Value,
    keys::{self, VersionKey},
    rows::{ObjectRow, Row, VersionKind},
};
use gabion_types::{BucketName, ObjectKey};

use crate::{StoreError, VersionId, store::Inner};

/// A version, and where its row is.
pub(crate) struct Located {
    pub table: Table,
    pub row_key: Vec<u8>,
    pub value: Value,
    pub row: ObjectRow,
}

impl Located {
    fn new(table: Table, row_key: Vec<u8>, value: Value) -> Result<Self, StoreError> {
        let row = ObjectRow::decode(&value)?;
        Ok(Self { table, row_key, value, row })
    }

    /// The current object, of which this is key and row.
    fn current((row_key, value): (Vec<u8>, Value)) -> Result<Self, StoreError> {
        Self::new(Table::Object, row_key, value)
    }

    /// Itself, if it is an object.
    ///
    /// # Errors
    /// `DeleteMarker`.
    fn object(self, is_named: bool) -> Result<Self, StoreError> {
        if !VersionKind::is_marker(self.row.kind) {
            return Ok(self);
        }
        Err(StoreError::DeleteMarker { version: VersionId::of(&self.row), modified_ms: self.row.modified_ms, is_named })
    }
}

impl Inner {
    /// The current object under a key, or a version of it.
    ///
    /// # Errors
    /// `NoSuchBucket`, `NoSuchKey`, `NoSuchVersion`, `DeleteMarker`.
    pub(crate) fn require_version(
        &self,
        bucket: &BucketName,
        key: &ObjectKey,
        version: Option<VersionId>,
    ) -> Result<Located, StoreError> {
        match version {
            None => self.require_current(bucket, key).and_then(Located::current),
            Some(_) => self.require_version_in(&*self.index.snapshot(), bucket, key, version),
        }
    }

    /// The same at one point in time.
    pub(crate) fn require_version_in(
        &self,
        index: &dyn IndexSnapshot,
        bucket: &BucketName,
        key: &ObjectKey,
        version: Option<VersionId>,
    ) -> Result<Located, StoreError> {
        let Some(version) = version else {
            let found = self.current(bucket, key, |row_key| index.get(Table::Object, row_key))?;
            return Located::current(found);
        };
        match locate(index, bucket, key, version)? {
            Some(found) => found.object(true),
            None => {
                self.require_bucket(bucket)?;
                Err(StoreError::NoSuchVersion(version))
            }
        }
    }

    /// The row of the current object under a key, behind its own key.
    ///
    /// # Errors
    /// `NoSuchBucket`, `NoSuchKey`, `DeleteMarker`.
    pub(crate) fn require_current(&self, bucket: &BucketName, key: &ObjectKey) -> Result<(Vec<u8>, Value), StoreError> {
        self.current(bucket, key, |row_key| self.index.get(Table::Object, row_key))
    }

    /// The same, as `look` finds it.
    fn current(
        &self,
        bucket: &BucketName,
        key: &ObjectKey,
        look: impl FnOnce(&[u8]) -> Result<Option<Value>, IndexError>,
    ) -> Result<(Vec<u8>, Value), StoreError> {
        let row_key = keys::object(bucket, key);
        match look(&row_key)? {
            Some(value) => Ok((row_key, value)),
            None => Err(self.no_object(bucket, key)?),
        }
    }

    /// Why there is no current object under a key.
    pub(crate) fn no_object(&self, bucket: &BucketName, key: &ObjectKey) -> Result<StoreError, StoreError> {
        self.require_bucket(bucket)?;
        if self.apply.has_versions(bucket)
            && let Some(newest) = newest(&*self.index.snapshot(), bucket, key)?
            && let Err(marker) = newest.object(false)
        {
            return Ok(marker);
        }
        Ok(StoreError::NoSuchKey)
    }
}

/// A version of a key, at one point in time.
pub(crate) fn locate(
    index: &dyn IndexSnapshot,
    bucket: &BucketName,
    key: &ObjectKey,
    version: VersionId,
) -> Result<Option<Located>, StoreError> {
    let current = keys::object(bucket, key);
    if let Some(value) = index.get(Table::Object, &current)? {
        let found = Located::new(Table::Object, current, value)?;
        if VersionId::of(&found.row) == version {
            return Ok(Some(found));
        }
    }
    let which = match version {
        VersionId::Null => VersionKey::Null,
        VersionId::Of(seq) => VersionKey::Of(seq),
    };
    let row_key = keys::version(bucket, key, which);
    index.get(Table::Version, &row_key)?.map(|value| Located::new(Table::Version, row_key, value)).transpose()
}

/// Whether a row that is not a current object is the newest of its key all the same: then it is a delete marker.
pub(crate) fn is_newest(
    index: &dyn IndexSnapshot,
    bucket: &BucketName,
    key: &ObjectKey,
    row: &ObjectRow,
) -> Result<bool, StoreError> {
    let has_current = index.get(Table::Object, &keys::object(bucket, key))?.is_some();
    Ok(!has_current && newest(index, bucket, key)?.is_none_or(|newest| newest.row.seq == row.seq))
}

/// The newest of a key's rows that are not a current object.
pub(crate) fn newest(
    index: &dyn IndexSnapshot,
    bucket: &BucketName,
    key: &ObjectKey,
) -> Result<Option<Located>, StoreError> {
    // The null version is the first of them, and the others begin with the newest.
    let range = ScanRange::prefix(Table::Version, &keys::versions_of(bucket, key.as_str()));
    debug_assert_eq!(range.order, Order::Ascending);
    let rows = index.scan(range, 2)?;
    let located = rows.into_iter().map(|(key, value)| Located::new(Table::Version, key, value));
    let rows: Vec<Located> = located.collect::<Result<_, _>>()?;
    Ok(rows.into_iter().max_by_key(|found| found.row.seq))
}
