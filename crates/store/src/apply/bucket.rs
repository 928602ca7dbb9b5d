//! Mutations of buckets.

use gabion_metadata::{
    Index, ScanRange, Table, Value, keys,
    rows::{BucketRow, Home, ObjectRow, Row, UploadRow},
};
use gabion_types::BucketName;

use super::{At, Overlay, config, object, overlay::Count, upload};
use crate::{
    StoreError,
    mutation::{CreateBucketMutation, DeleteBucketMutation, FirstConfig, PutConfigMutation},
};

/// Number of buckets in an index.
pub(super) fn count(index: &dyn Index) -> Result<usize, StoreError> {
    Ok(index.scan(ScanRange::all(Table::Bucket), usize::MAX)?.len())
}

pub(super) fn create(overlay: &mut Overlay<'_>, at: &At<'_>, m: CreateBucketMutation) -> Result<(), StoreError> {
    let bucket = name(&m.bucket)?;
    let key = keys::bucket(&bucket);
    let there = overlay.get::<BucketRow>(Table::Bucket, &key)?;
    if there.as_ref().is_some_and(|row| row.seq > at.seq) {
        return Ok(());
    }
    // Those of one that is not there any more, or that came into being though it was not acknowledged, are not this one's.
    config::end(overlay, at, &bucket)?;
    // The record has several rows: each counts its share of it.
    let mut home = at.home;
    for FirstConfig { name, document } in m.configs.into_iter().flatten() {
        let bytes = u32::try_from(name.len() + document.len()).unwrap_or(u32::MAX);
        home.bytes = home.bytes.saturating_sub(bytes);
        let at = At { home: Home { bytes, ..at.home }, ..*at };
        config::put(overlay, &at, PutConfigMutation { bucket: Some(m.bucket.clone()), name, document })?;
    }
    match there {
        Some(row) if (row.seq, row.moved) >= at.version() => return Ok(()),
        Some(row) => overlay.count_home(row.home, Count::Down),
        None => overlay.count_bucket(Count::Up),
    }
    let row =
        BucketRow { created_ms: m.created_ms, owner: m.owner, region: m.region, seq: at.seq, home, moved: at.moved };
    overlay.count_home(home, Count::Up);
    overlay.put(Table::Bucket, key, &row);
    overlay.config_changed(Some(bucket));
    Ok(())
}

pub(super) fn delete(overlay: &mut Overlay<'_>, at: &At<'_>, m: DeleteBucketMutation) -> Result<(), StoreError> {
    let key = keys::bucket(&name(&m.bucket)?);
    if let Some(row) = overlay.get::<BucketRow>(Table::Bucket, &key)?
        && row.seq < at.seq
    {
        overlay.count_home(row.home, Count::Down);
        overlay.count_bucket(Count::Down);
        overlay.delete(Table::Bucket, key);
        overlay.config_changed(Some(name(&m.bucket)?));
    }
    let bucket = name(&m.bucket)?;
    // There are none, but for one whose commit failed, as it seemed, and took effect at the next start after all. A deletion that comes again may find
    // the bucket that was made in the meantime, with all that is in it.
    let is_older = |row: &Value| Ok(ObjectRow::decode(row)?.seq < at.seq);
    for (row_key, _) in overlay.rows_where(Table::Object, &keys::objects_with_prefix(&bucket, ""), is_older)? {
        let (_, key) = keys::decode_object(&row_key).map_err(|error| StoreError::Unavailable(error.to_string()))?;
        let place = object::Place::new(overlay, &m.bucket, key)?;
        place.remove_older(overlay, Table::Object, row_key, at.seq)?;
    }
    for (row_key, _) in overlay.rows_where(Table::Version, &keys::versions_with_prefix(&bucket, ""), is_older)? {
        let (_, key, _) = keys::decode_version(&row_key).map_err(|error| StoreError::Unavailable(error.to_string()))?;
        let place = object::Place::new(overlay, &m.bucket, &key)?;
        place.remove_older(overlay, Table::Version, row_key, at.seq)?;
    }
    config::end(overlay, at, &bucket)?;
    m.uploads.iter().try_for_each(|ended| upload::end(overlay, at, &m.bucket, &ended.key, ended.upload))?;
    // As of objects: it names those that it knew.
    let is_older = |row: &Value| Ok(UploadRow::decode(row)?.seq < at.seq);
    for (row_key, _) in overlay.rows_where(Table::Upload, &keys::uploads_with_prefix(&bucket, ""), is_older)? {
        let (_, key, id) = keys::decode_upload(&row_key).map_err(|error| StoreError::Unavailable(error.to_string()))?;
        upload::end(overlay, at, &m.bucket, &key, id)?;
    }
    Ok(())
}

/// A bucket name that a mutation carries.
pub(super) fn name(name: &str) -> Result<BucketName, StoreError> {
    BucketName::new(name).map_err(|error| StoreError::Unavailable(format!("malformed mutation: {error}")))
}
