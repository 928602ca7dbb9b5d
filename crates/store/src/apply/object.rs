//! Mutations of objects: what is current under a key, and what lies under it.
//!
//! All versions of a key are a set, ordered by the commits that made them; at most one of them is the `null` version. The newest is in the
//! table `Object` if it is an object; all others, and delete markers, are in the table `Version` (docs/adr/0016). The set follows from the
//! mutations in whatever order they come, which is what a replay of moved records needs: a version goes by its commit's number, a `null`
//! version by being older.

use gabion_encryption::Frames;
use gabion_metadata::{
    Table,
    keys::{self, Counted, VersionKey},
    rows::{Attributes, Etag, Home, Layout, ManifestPart, ObjectRow, PartsSummary, Row, Salt, SealedPart, VersionKind},
};
use gabion_types::{BucketName, ManifestId, ObjectKey, SegmentId, Seq};

use super::{At, Overlay, Version, overlay::Count};
use crate::{
    StoreError,
    mutation::{
        CopiedPart, DeleteObjectMutation, DeleteVersionMutation, PutMarkerMutation, PutObjectMutation,
        RenameObjectMutation,
    },
};

pub(super) fn put(overlay: &mut Overlay<'_>, at: &At<'_>, m: PutObjectMutation) -> Result<(), StoreError> {
    let place = Place::new(overlay, &m.bucket, &m.key)?;
    let Some(mut room) = place.make_room(overlay, at.version(), m.kind)? else { return place.note(overlay, at) };
    let extents = m.data.extents(at.extents);
    overlay.count_extents(&extents, Count::Up);
    let manifest = manifest_of(at.seq);
    let parts = put_copied_parts(overlay, manifest, at.home, m.parts, Sealing::of(&m.attributes));
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
        kind: m.kind,
        moved: at.moved,
        former_homes: room.former_homes.take(),
    };
    place.insert(overlay, room, &row)
}

pub(super) fn put_marker(overlay: &mut Overlay<'_>, at: &At<'_>, m: PutMarkerMutation) -> Result<(), StoreError> {
    let place = Place::new(overlay, &m.bucket, &m.key)?;
    if !VersionKind::is_marker(Some(m.kind)) {
        return Err(StoreError::Unavailable("malformed mutation: a delete marker that is none".into()));
    }
    let Some(room) = place.make_room(overlay, at.version(), Some(m.kind))? else { return Ok(()) };
    let row = ObjectRow {
        seq: at.seq,
        modified_ms: m.modified_ms,
        size: 0,
        etag: Etag::Opaque(String::new()),
        layout: Layout::Empty,
        attributes: m.attributes,
        checksums: Vec::new(),
        parts: None,
        home: at.home,
        kind: Some(m.kind),
        moved: at.moved,
        former_homes: None,
    };
    place.insert(overlay, room, &row)
}

/// An object gets another key. That it leaves the one that it had is as a deletion of this commit: an object that came there later stays.
pub(super) fn rename(overlay: &mut Overlay<'_>, at: &At<'_>, m: RenameObjectMutation) -> Result<(), StoreError> {
    let left = DeleteObjectMutation { bucket: m.object.bucket.clone(), key: m.from, taken: None };
    put(overlay, at, m.object)?;
    delete(overlay, at, left)
}

/// There is no `null` version any more: in a bucket that never kept versions, no object.
pub(super) fn delete(overlay: &mut Overlay<'_>, at: &At<'_>, m: DeleteObjectMutation) -> Result<(), StoreError> {
    let place = Place::new(overlay, &m.bucket, &m.key)?;
    let room = place.make_room(overlay, at.version(), None)?;
    place.promote(overlay, room.and_then(|room| room.removed_current))
}

pub(super) fn delete_version(
    overlay: &mut Overlay<'_>,
    at: &At<'_>,
    m: DeleteVersionMutation,
) -> Result<(), StoreError> {
    if m.version >= at.seq {
        // It was asked for before there was such a version, and says nothing of the one that came.
        return Ok(());
    }
    let place = Place::new(overlay, &m.bucket, &m.key)?;
    // Whatever record it came by.
    let any_move = (m.version, Some(Seq::from_u64(u64::MAX)));
    let room = place.make_room(overlay, any_move, Some(VersionKind::Version))?;
    place.promote(overlay, room.and_then(|room| room.removed_current))
}

/// A place that is free for a row.
pub(super) struct Room {
    /// The current object that stays, or becomes an older version.
    current: Option<ObjectRow>,
    /// The commit of the current object that was taken away: all others are older.
    removed_current: Option<Seq>,
    /// Where there may be older records of what comes here: see [`ObjectRow::former_homes`].
    pub(super) former_homes: Option<Vec<SegmentId>>,
}

/// Segments of older records that a row names at most: of a key with more, deletions are told on as long as there is any older segment.
const FORMER_HOMES_MAX: usize = 8;

/// The same with one more. When they become too many, those that are gone are left out; nothing if they still are.
fn with_home(overlay: &Overlay<'_>, mut homes: Vec<SegmentId>, home: SegmentId) -> Option<Vec<SegmentId>> {
    if let Err(at) = homes.binary_search(&home) {
        homes.insert(at, home);
    }
    if homes.len() > FORMER_HOMES_MAX {
        // One is left in any case: that there is none would say that the key was free.
        homes.retain(|&it| it == home || overlay.stays(it));
    }
    (homes.len() <= FORMER_HOMES_MAX).then_some(homes)
}

/// A key of a bucket, and where its rows are.
pub(super) struct Place {
    bucket: BucketName,
    /// The key of its current object's row.
    row_key: Vec<u8>,
    /// Whether there may be rows in the table `Version`.
    is_versioned: bool,
}

impl Place {
    pub(super) fn new(overlay: &mut Overlay<'_>, bucket: &str, key: &str) -> Result<Self, StoreError> {
        let bucket = overlay.bucket_name(bucket)?.clone();
        let row_key = keys::object(&bucket, &object_key(key)?);
        let is_versioned = overlay.has_versions(&bucket);
        Ok(Self { bucket, row_key, is_versioned })
    }

    /// Counts an object for its bucket, and for the user who made it.
    fn count(&self, overlay: &mut Overlay<'_>, row: &ObjectRow, count: Count) {
        overlay.count_usage(self.bucket.as_str().as_bytes(), row.size, count);
        if let Some(creator) = &row.attributes.creator {
            overlay.count_usage(&keys::counter(Counted::ObjectsOfUser(creator)), row.size, count);
        }
    }

    fn version_key(&self, version: VersionKey) -> Vec<u8> {
        keys::version_of_object(&self.row_key, version)
    }

    /// Takes away what a row of this kind, made by `version`, takes the place of: the same commit's row before it was moved, or an older
    /// `null` version. Nothing if what is there is newer. Whoever does not insert anything then, promotes.
    pub(super) fn make_room(
        &self,
        overlay: &mut Overlay<'_>,
        version: Version,
        kind: Option<VersionKind>,
    ) -> Result<Option<Room>, StoreError> {
        let current = overlay.get::<ObjectRow>(Table::Object, &self.row_key)?;
        let is_it = |row: &ObjectRow| match VersionKind::is_null(kind) {
            true => VersionKind::is_null(row.kind),
            false => !VersionKind::is_null(row.kind) && row.seq == version.0,
        };
        let is_newer = |row: &ObjectRow| (row.seq, row.moved) >= version;
        match current {
            Some(row) if is_it(&row) && is_newer(&row) => Ok(None),
            Some(mut row) if is_it(&row) => {
                let removed_current = Some(row.seq);
                let former_homes = row.former_homes.take().filter(|_| self.is_lone(kind));
                let former_homes = former_homes.and_then(|homes| with_home(overlay, homes, row.home.segment));
                self.remove(overlay, Table::Object, self.row_key.clone(), row)?;
                Ok(Some(Room { current: None, removed_current, former_homes }))
            }
            current => {
                let of = if VersionKind::is_null(kind) { VersionKey::Null } else { VersionKey::Of(version.0) };
                match self.version(overlay, of)? {
                    Some((_, row)) if is_newer(&row) => return Ok(None),
                    Some((key, row)) => self.remove(overlay, Table::Version, key, row)?,
                    None => {}
                }
                let former_homes = (current.is_none() && self.is_lone(kind)).then(Vec::new);
                Ok(Some(Room { current, removed_current: None, former_homes }))
            }
        }
    }

    /// Whether a row of this kind is the only one that the key may have.
    fn is_lone(&self, kind: Option<VersionKind>) -> bool {
        kind.is_none() && !self.is_versioned
    }

    /// Takes the segment of a record that comes to nothing into the current row: in another rebuild it might come to something.
    pub(super) fn note(&self, overlay: &mut Overlay<'_>, at: &At<'_>) -> Result<(), StoreError> {
        let Some(mut row) = overlay.get::<ObjectRow>(Table::Object, &self.row_key)? else { return Ok(()) };
        let Some(homes) = row.former_homes.take() else { return Ok(()) };
        let home = at.home.segment;
        if row.home.segment == home || homes.binary_search(&home).is_ok() {
            return Ok(());
        }
        row.former_homes = with_home(overlay, homes, home);
        overlay.put(Table::Object, self.row_key.clone(), &row);
        Ok(())
    }

    fn version(&self, overlay: &Overlay<'_>, version: VersionKey) -> Result<Option<(Vec<u8>, ObjectRow)>, StoreError> {
        if !self.is_versioned {
            return Ok(None);
        }
        let key = self.version_key(version);
        Ok(overlay.get(Table::Version, &key)?.map(|row| (key, row)))
    }

    /// Takes a row away, and all that it refers to.
    fn remove(&self, overlay: &mut Overlay<'_>, table: Table, key: Vec<u8>, row: ObjectRow) -> Result<(), StoreError> {
        overlay.count_home(row.home, Count::Down);
        if !VersionKind::is_marker(row.kind) {
            self.count(overlay, &row, Count::Down);
        }
        let extents = overlay.take_layout(row.layout)?;
        overlay.count_extents(&extents, Count::Down);
        if let Some(parts) = row.parts {
            for (key, part) in overlay.rows_with_prefix(Table::Manifest, &keys::manifest_parts(parts.manifest))? {
                overlay.count_home(ManifestPart::decode(&part)?.home, Count::Down);
                overlay.delete(Table::Manifest, key);
            }
        }
        overlay.delete(table, key);
        Ok(())
    }

    /// Takes away a row that is older than `seq`.
    pub(super) fn remove_older(
        &self,
        overlay: &mut Overlay<'_>,
        table: Table,
        key: Vec<u8>,
        seq: Seq,
    ) -> Result<(), StoreError> {
        match overlay.get::<ObjectRow>(table, &key)? {
            Some(row) if row.seq < seq => self.remove(overlay, table, key, row),
            _ => Ok(()),
        }
    }

    /// Puts a row where there is room for it; its extents are counted already.
    pub(super) fn insert(mut self, overlay: &mut Overlay<'_>, room: Room, row: &ObjectRow) -> Result<(), StoreError> {
        let is_marker = VersionKind::is_marker(row.kind);
        overlay.count_home(row.home, Count::Up);
        if !is_marker {
            self.count(overlay, row, Count::Up);
        }
        let is_newest = match &room.current {
            // It is the newest of all others.
            Some(current) => current.seq < row.seq,
            None => self.newest(overlay, room.removed_current)?.is_none_or(|(_, newest)| newest.seq < row.seq),
        };
        if is_newest && let Some(current) = room.current {
            overlay.delete(Table::Object, self.row_key.clone());
            self.put_version(overlay, &current);
        }
        if is_newest && !is_marker {
            overlay.put(Table::Object, self.row_key, row);
            return Ok(());
        }
        self.put_version(overlay, row);
        self.promote(overlay, None)
    }

    /// Puts a row into the table `Version`.
    fn put_version(&mut self, overlay: &mut Overlay<'_>, row: &ObjectRow) {
        let version = if VersionKind::is_null(row.kind) { VersionKey::Null } else { VersionKey::Of(row.seq) };
        overlay.put(Table::Version, self.version_key(version), row);
        overlay.add_versioned(&self.bucket);
        self.is_versioned = true;
    }

    /// Makes the newest version current, if it is an object and none is. `behind`: all there are, are older than this commit.
    pub(super) fn promote(&self, overlay: &mut Overlay<'_>, behind: Option<Seq>) -> Result<(), StoreError> {
        if !self.is_versioned || overlay.get_raw(Table::Object, &self.row_key)?.is_some() {
            return Ok(());
        }
        if let Some((key, row)) = self.newest(overlay, behind)?
            && !VersionKind::is_marker(row.kind)
        {
            overlay.delete(Table::Version, key);
            overlay.put(Table::Object, self.row_key.clone(), &row);
        }
        Ok(())
    }

    /// The newest row in the table `Version`. `behind` as for [`Place::promote`]: what lies before it is not looked at, where many rows may have
    /// been that are deleted.
    fn newest(&self, overlay: &Overlay<'_>, behind: Option<Seq>) -> Result<Option<(Vec<u8>, ObjectRow)>, StoreError> {
        if !self.is_versioned {
            return Ok(None);
        }
        let null = self.version(overlay, VersionKey::Null)?;
        let prefix = keys::numbered_of_object(&self.row_key);
        let from = behind.map(|seq| self.version_key(VersionKey::Of(seq)));
        let numbered = overlay.first_with_prefix(Table::Version, &prefix, from.as_deref().unwrap_or(&prefix))?;
        let numbered = numbered.map(|(key, row)| Ok::<_, StoreError>((key, ObjectRow::decode(&row)?))).transpose()?;
        Ok(null.into_iter().chain(numbered).max_by_key(|(_, row)| row.seq))
    }
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
    mut sealing: Sealing,
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
            sealed: sealing.part(part.salt, part.size),
        };
        start += part.size;
        overlay.put(Table::Manifest, keys::manifest_part(manifest, part.part_number), &row);
    }
    (count > 0).then_some(PartsSummary { count, manifest, upload: None })
}

/// Where the parts of an object lie among its sealed bytes, counted as they come.
pub(super) struct Sealing {
    frames: Option<Frames>,
    start: u64,
}

impl Sealing {
    /// Of an object with these attributes.
    pub(super) fn of(attributes: &Attributes) -> Self {
        let frames = attributes.encryption.as_ref().and_then(|encryption| Frames::new(encryption.frame_bytes));
        Self { frames, start: 0 }
    }

    /// The next part.
    pub(super) fn part(&mut self, salt: Option<Salt>, size: u64) -> Option<SealedPart> {
        let sealed = SealedPart { salt: salt?, start: self.start };
        self.start += self.frames?.sealed_len(size);
        Some(sealed)
    }
}

/// An object key that a mutation carries.
pub(super) fn object_key(key: &str) -> Result<ObjectKey, StoreError> {
    ObjectKey::new(key).map_err(|error| StoreError::Unavailable(format!("malformed mutation: {error}")))
}
