//! Mutations of the documents that configure buckets and the site.

use gabion_metadata::{
    Table, keys,
    rows::{BucketRow, ConfigRow, Row},
};
use gabion_types::BucketName;

use super::{At, Overlay, bucket, overlay::Count};
use crate::{
    StoreError,
    mutation::{DeleteConfigMutation, PutConfigMutation},
};

pub(super) fn put(overlay: &mut Overlay<'_>, at: &At<'_>, m: PutConfigMutation) -> Result<(), StoreError> {
    let bucket = bucket_of(m.bucket.as_deref())?;
    if let Some(bucket) = &bucket
        && overlay.get::<BucketRow>(Table::Bucket, &keys::bucket(bucket))?.is_some_and(|row| row.seq > at.seq)
    {
        // It is one of a bucket that went before this one came.
        return Ok(());
    }
    let key = keys::config(bucket.as_ref(), &m.name);
    match overlay.get::<ConfigRow>(Table::Config, &key)? {
        Some(row) if (row.seq, row.moved) >= at.version() => return Ok(()),
        Some(row) => overlay.count_home(row.home, Count::Down),
        None => {}
    }
    overlay.count_home(at.home, Count::Up);
    let row = ConfigRow { seq: at.seq, home: at.home, document: m.document, moved: at.moved };
    overlay.put(Table::Config, key, &row);
    overlay.config_changed(bucket);
    Ok(())
}

pub(super) fn delete(overlay: &mut Overlay<'_>, at: &At<'_>, m: DeleteConfigMutation) -> Result<(), StoreError> {
    let bucket = bucket_of(m.bucket.as_deref())?;
    let key = keys::config(bucket.as_ref(), &m.name);
    if let Some(row) = overlay.get::<ConfigRow>(Table::Config, &key)?
        && row.seq < at.seq
    {
        overlay.count_home(row.home, Count::Down);
        overlay.delete(Table::Config, key);
        overlay.config_changed(bucket);
    }
    Ok(())
}

/// A bucket takes its documents along.
pub(super) fn end(overlay: &mut Overlay<'_>, at: &At<'_>, bucket: &BucketName) -> Result<(), StoreError> {
    for (key, row) in overlay.rows_with_prefix(Table::Config, &keys::config(Some(bucket), ""))? {
        let row = ConfigRow::decode(&row)?;
        if row.seq < at.seq {
            overlay.count_home(row.home, Count::Down);
            overlay.delete(Table::Config, key);
            overlay.config_changed(Some(bucket.clone()));
        }
    }
    Ok(())
}

fn bucket_of(name: Option<&str>) -> Result<Option<BucketName>, StoreError> {
    name.map(bucket::name).transpose()
}
