//! Mutations of multipart uploads.
//!
//! In a rebuild, mutations that no row needs any more may be missing: a part may come without its upload (which ended
//! later), and a completion without its parts (its object was replaced later).

use std::collections::BTreeMap;

use gabion_metadata::{
    Table,
    keys::{self, Counted},
    rows::{CountsFor, ManifestPart, ObjectRow, PartRow, PartsSummary, Row, UploadRow},
};
use gabion_types::UploadId;

use super::{
    At, Overlay, bucket,
    object::{Place, Sealing, manifest_of, object_key},
    overlay::Count,
};
use crate::{
    StoreError,
    mutation::{CompleteUploadMutation, CreateUploadMutation, NamedPart, PutPartMutation},
};

pub(super) fn create(overlay: &mut Overlay<'_>, at: &At<'_>, m: CreateUploadMutation) -> Result<(), StoreError> {
    let key = keys::upload(&bucket::name(&m.bucket)?, &object_key(&m.key)?, m.upload);
    match overlay.get::<UploadRow>(Table::Upload, &key)? {
        Some(row) if (row.seq, row.moved) >= at.version() => return Ok(()),
        Some(row) => overlay.count_home(row.home, Count::Down),
        None => {}
    }
    let row = UploadRow {
        bucket: m.bucket,
        key: m.key,
        created_ms: m.created_ms,
        seq: at.seq,
        attributes: m.attributes,
        checksum_algorithm: m.checksum_algorithm,
        checksum_kind: m.checksum_kind,
        owner: m.owner,
        home: at.home,
        moved: at.moved,
    };
    overlay.count_home(at.home, Count::Up);
    overlay.put(Table::Upload, key, &row);
    Ok(())
}

pub(super) fn put_part(overlay: &mut Overlay<'_>, at: &At<'_>, m: PutPartMutation) -> Result<(), StoreError> {
    let key = keys::part(m.upload, m.part_number);
    match overlay.get::<PartRow>(Table::Part, &key)? {
        Some(row) if (row.seq, row.moved) >= at.version() => return Ok(()),
        Some(row) => drop_part(overlay, key.clone(), row)?,
        None => {}
    }
    let extents = m.data.extents(at.extents);
    overlay.count_extents(&extents, Count::Up);
    overlay.count_home(at.home, Count::Up);
    count_part(overlay, m.counts.as_ref(), m.size, Count::Up);
    let row = PartRow {
        size: m.size,
        tag: m.tag,
        modified_ms: m.modified_ms,
        seq: at.seq,
        checksums: m.checksums,
        layout: overlay.store_layout(manifest_of(at.seq), extents),
        home: at.home,
        moved: at.moved,
        salt: m.salt,
        counts: m.counts,
    };
    overlay.put(Table::Part, key, &row);
    Ok(())
}

pub(super) fn complete(overlay: &mut Overlay<'_>, at: &At<'_>, m: CompleteUploadMutation) -> Result<(), StoreError> {
    let place = Place::new(overlay, &m.bucket, &m.key)?;
    let Some(parts) = named_parts(overlay, m.upload, &m.parts)? else {
        // An earlier attempt, whose outcome nobody knew then, took effect after all, and its object is this one; or, in a rebuild, what took the object away comes later, and takes
        // away what is older as well. (If the parts are lost with segments that can not be read, what the object took the place of is there again, as when a put is lost.)
        place.note(overlay, at)?;
        return end(overlay, at, &m.bucket, &m.key, m.upload);
    };
    let Some(mut room) = place.make_room(overlay, at.version(), m.kind)? else {
        place.note(overlay, at)?;
        return end(overlay, at, &m.bucket, &m.key, m.upload);
    };
    let manifest = manifest_of(at.seq);
    let (mut extents, mut start) = (Vec::new(), 0);
    let mut sealing = Sealing::of(&m.attributes);
    for (&part_number, part) in &parts {
        let row = ManifestPart {
            part_number,
            start,
            size: part.size,
            checksums: part.checksums.clone(),
            tag: part.tag,
            home: part.home,
            sealed: sealing.part(part.salt, part.size),
        };
        start += part.size;
        overlay.put(Table::Manifest, keys::manifest_part(manifest, part_number), &row);
        count_part(overlay, part.counts.as_ref(), part.size, Count::Down);
        // The object refers to record and extents of the part from now on, instead of the part's row.
        extents.extend(overlay.take_layout(part.layout.clone())?);
        overlay.delete(Table::Part, keys::part(m.upload, part_number));
    }
    let count = u32::try_from(parts.len()).expect("part numbers have 16 bits");
    let row = ObjectRow {
        seq: at.seq,
        modified_ms: m.modified_ms,
        size: start,
        etag: m.etag,
        layout: overlay.store_layout(manifest, extents),
        attributes: m.attributes,
        checksums: m.checksums,
        parts: Some(PartsSummary { count, manifest, upload: Some(m.upload) }),
        home: at.home,
        kind: m.kind,
        moved: at.moved,
        former_homes: room.former_homes.take(),
    };
    place.insert(overlay, room, &row)?;
    end(overlay, at, &m.bucket, &m.key, m.upload)
}

/// An upload ends: its row goes, and all parts that are left.
pub(super) fn end(
    overlay: &mut Overlay<'_>,
    at: &At<'_>,
    bucket: &str,
    key: &str,
    upload: UploadId,
) -> Result<(), StoreError> {
    let row_key = keys::upload(&bucket::name(bucket)?, &object_key(key)?, upload);
    if let Some(row) = overlay.get::<UploadRow>(Table::Upload, &row_key)?
        && row.seq < at.written()
    {
        overlay.count_home(row.home, Count::Down);
        overlay.delete(Table::Upload, row_key);
    }
    for (key, part) in overlay.rows_with_prefix(Table::Part, &keys::parts_of(upload))? {
        let part = PartRow::decode(&part)?;
        if part.seq < at.written() {
            drop_part(overlay, key, part)?;
        }
    }
    Ok(())
}

/// The rows of exactly the named parts; nothing when one of them is missing or another one.
fn named_parts(
    overlay: &Overlay<'_>,
    upload: UploadId,
    named: &[NamedPart],
) -> Result<Option<BTreeMap<u16, PartRow>>, StoreError> {
    let mut parts = BTreeMap::new();
    for named in named {
        match overlay.get::<PartRow>(Table::Part, &keys::part(upload, named.part_number))? {
            Some(row) if row.seq == named.seq => parts.insert(named.part_number, row),
            _ => return Ok(None),
        };
    }
    Ok(Some(parts))
}

fn drop_part(overlay: &mut Overlay<'_>, key: Vec<u8>, part: PartRow) -> Result<(), StoreError> {
    overlay.count_home(part.home, Count::Down);
    count_part(overlay, part.counts.as_ref(), part.size, Count::Down);
    let extents = overlay.take_layout(part.layout)?;
    overlay.count_extents(&extents, Count::Down);
    overlay.delete(Table::Part, key);
    Ok(())
}

/// Counts a part for the bucket of its upload, and for the user who began it.
fn count_part(overlay: &mut Overlay<'_>, counts: Option<&CountsFor>, size: u64, count: Count) {
    let Some(CountsFor { bucket, creator }) = counts else { return };
    overlay.count_usage(&keys::counter(Counted::PartsOfBucket(bucket)), size, count);
    if let Some(creator) = creator {
        overlay.count_usage(&keys::counter(Counted::PartsOfUser(creator)), size, count);
    }
}
