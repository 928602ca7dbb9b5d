//! Mutations of current objects.

use gabion_metadata::{
    Table, keys,
    rows::{Etag, Home, ManifestPart, ObjectRow, PartsSummary, Row},
};
use gabion_types::{ManifestId, ObjectKey, Seq};

use super::{At, Overlay, Version, overlay::Count};
use crate::{
    StoreError,
    mutation::{CopiedPart, Data, DeleteObjectMutation, PutObjectMutation},
};

pub(super) fn put(overlay: &mut Overlay<'_>, at: &At<'_>, m: PutObjectMutation) -> Result<(), StoreError> {
    let place = Place::new(overlay, &m.bucket, &m.key)?;
    if !supersede(overlay, &place, at.version())? {
        return Ok(());
    }
    let extents = match m.data {
        Data::Record => at.extents.to_vec(),
        Data::Extents(extents) => extents,
    };
    overlay.count_extents(&extents, Count::Up);
    let manifest = manifest_of(at.seq);
    let parts = put_copied_parts(overlay, manifest, at.home, m.parts);
    let row = ObjectRow {
        seq: at.seq,
        modified_ms: m.modified_ms,
        size: m.size,
        etag: m.etag,
        layout: overlay.store_layout(manifest, extents),
        attributes: m.attributes,
        checksums: m.checksums,
        parts,
        home: at.home,
        version: None,
        moved: at.moved,
    };
    make_current(overlay, place, &row);
    Ok(())
}

pub(super) fn delete(overlay: &mut Overlay<'_>, at: &At<'_>, m: DeleteObjectMutation) -> Result<(), StoreError> {
    let place = Place::new(overlay, &m.bucket, &m.key)?;
    supersede(overlay, &place, at.version())?;
    Ok(())
}

/// Where the current object of a bucket and key is.
pub(super) struct Place {
    row_key: Vec<u8>,
    /// Length of the bucket's name, which is at the front of it.
    bucket_bytes: usize,
}

impl Place {
    pub(super) fn new(overlay: &mut Overlay<'_>, bucket: &str, key: &str) -> Result<Self, StoreError> {
        let bucket = overlay.bucket_name(bucket)?;
        let row_key = keys::object(bucket, &object_key(key)?);
        Ok(Self { row_key, bucket_bytes: bucket.as_str().len() })
    }

    /// The key of its bucket.
    fn bucket_key(&self) -> &[u8] {
        &self.row_key[..self.bucket_bytes]
    }
}

/// Takes away the current object, if it is older than `version`. Tells whether there is room for one of `version` now.
pub(super) fn supersede(overlay: &mut Overlay<'_>, place: &Place, version: Version) -> Result<bool, StoreError> {
    let Some(row) = overlay.get::<ObjectRow>(Table::Object, &place.row_key)? else { return Ok(true) };
    if (row.seq, row.moved) >= version {
        return Ok(false);
    }
    overlay.count_home(row.home, Count::Down);
    let extents = overlay.take_layout(row.layout)?;
    overlay.count_extents(&extents, Count::Down);
    if let Some(parts) = row.parts {
        for (key, part) in overlay.rows_with_prefix(Table::Manifest, &keys::manifest_parts(parts.manifest))? {
            overlay.count_home(ManifestPart::decode(&part)?.home, Count::Down);
            overlay.delete(Table::Manifest, key);
        }
    }
    overlay.count_usage(place.bucket_key(), row.size, Count::Down);
    overlay.delete(Table::Object, place.row_key.clone());
    Ok(true)
}

/// Whether the current object has this tag.
pub(super) fn is_current(overlay: &Overlay<'_>, place: &Place, etag: &Etag) -> Result<bool, StoreError> {
    let row = overlay.get::<ObjectRow>(Table::Object, &place.row_key)?;
    Ok(row.is_some_and(|row| row.etag == *etag))
}

/// Makes `row` the current object; its extents are counted already.
pub(super) fn make_current(overlay: &mut Overlay<'_>, place: Place, row: &ObjectRow) {
    overlay.count_home(row.home, Count::Up);
    overlay.count_usage(place.bucket_key(), row.size, Count::Up);
    overlay.put(Table::Object, place.row_key, row);
}

/// The manifest of what a commit made: the same in every replay.
pub(super) fn manifest_of(seq: Seq) -> ManifestId {
    ManifestId::from_u128(seq.as_u64().into())
}

fn put_copied_parts(
    overlay: &mut Overlay<'_>,
    manifest: ManifestId,
    home: Home,
    parts: Vec<CopiedPart>,
) -> Option<PartsSummary> {
    let count = u32::try_from(parts.len()).expect("a mutation is smaller than that");
    let mut start = 0;
    for part in parts {
        let row = ManifestPart {
            part_number: part.part_number,
            start,
            size: part.size,
            checksums: part.checksums,
            tag: part.tag,
            // The parts are described by the record of the copy, which the object's row counts.
            home: Home { segment: home.segment, bytes: 0 },
        };
        start += part.size;
        overlay.put(Table::Manifest, keys::manifest_part(manifest, part.part_number), &row);
    }
    (count > 0).then_some(PartsSummary { count, manifest })
}

/// An object key that a mutation carries.
pub(super) fn object_key(key: &str) -> Result<ObjectKey, StoreError> {
    ObjectKey::new(key).map_err(|error| StoreError::Unavailable(format!("malformed mutation: {error}")))
}
