//! Moving one row: its bytes are written again, and its mutation is logged again as a move.

use bytes::Bytes;
use gabion_erasure::{Crc64, crc64_combine};
use gabion_metadata::{
    IndexSnapshot, Table,
    rows::{BucketRow, ConfigRow, Layout, ObjectRow, PartRow, Row, SnapshotRow, UploadRow, VersionKind},
};
use gabion_segment::{LogError, NewRecord};
use gabion_types::{BucketName, Extent, SegmentId, limits::INLINE_BYTES_MAX};

use super::{
    Fate, Round, by_parts,
    moved::hold_all,
    pass::{Found, RowPlace},
};
use crate::{
    StoreError,
    copy::{copied_parts, extents_of},
    get::pieces::Piece,
    holds::Hold,
    locks::{Guards, Lockable, Mode},
    mutation::{
        CreateBucketMutation, CreateUploadMutation, Data, IndexSnapshotMutation, MovedRow, Mutation, PutConfigMutation,
        PutMarkerMutation, PutObjectMutation, PutPartMutation,
    },
    references::References,
    sealed::stored_len,
    store::Inner,
    uncertain::NameHash,
};

/// What a move writes in one record.
struct Prepared {
    mutation: Mutation,
    content: Content,
    /// The extents that the row had.
    before: Vec<Extent>,
}

/// Where the bytes of a row will lie.
pub(super) struct Content {
    pub data: Data,
    /// The bytes, if they go into the record.
    pub record: Vec<Bytes>,
    pub record_crc64: u64,
    /// Keeps what was written already, or what other rows refer to, until the row refers to it.
    pub hold: Hold,
    /// Object bytes that were written already.
    pub written_bytes: u64,
}

/// Which bytes of a row are left where they lie.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stays {
    /// Those that do not lie in a victim.
    Elsewhere,
    /// None: the row takes as few extents as its bytes need.
    Nothing,
}

impl Stays {
    pub(super) fn stays(self, round: &Round, piece: &Piece) -> bool {
        self == Stays::Elsewhere && piece.is_whole() && !round.victims.contains(&piece.extent.segment)
    }
}

/// Moves a row, unless it is not any more what was found.
pub(super) async fn relocate(round: &Round, found: &Found) -> Result<Fate, StoreError> {
    if by_parts::is_due(round, found)? {
        return by_parts::relocate(round, found).await;
    }
    match relocate_whole(round, found, Stays::Elsewhere).await? {
        Fate::TooLarge if by_parts::is_possible(found)? => by_parts::relocate(round, found).await,
        // It was put when stripes were larger, or has more extents than a body that is put now.
        Fate::TooLarge => relocate_whole(round, found, Stays::Nothing).await,
        fate => Ok(fate),
    }
}

/// Moves a row with one record.
async fn relocate_whole(round: &Round, found: &Found, stays: Stays) -> Result<Fate, StoreError> {
    let inner = &round.inner;
    let Some(prepared) = prepare(round, found, stays).await? else { return Ok(Fate::Changed) };
    let Prepared { mutation, content, before } = prepared;
    let encoded = mutation.encode();
    if encoded.len() > inner.config.move_bytes_max {
        return Ok(Fate::TooLarge);
    }
    let record_bytes = encoded.len() as u64 + content.record.iter().map(|part| part.len() as u64).sum::<u64>();
    let record = NewRecord { mutation: encoded.into(), data: content.record.clone(), data_crc64: content.record_crc64 };

    sync_before(inner, found, content.hold.segments()).await?;
    // From here on nobody else changes the row: what is committed is ordered as it is applied.
    let _guards = lock(round, &found.place).await;
    if is_in_doubt(inner, &found.place) {
        return Ok(Fate::InDoubt);
    }
    // A bug on purpose, which the simulator must find (docs/TESTING.md).
    let forgets = cfg!(feature = "planted-compaction-forgets");
    if !forgets && !is_unchanged(&*inner.index.snapshot(), found)? {
        return Ok(Fate::Changed);
    }
    let committed = match inner.log.commit_moved(record).await {
        Ok(committed) => committed,
        Err(error) => {
            if !error.is_refusal() {
                // It may take effect at the next start: what it refers to must be there then.
                content.hold.leak();
                inner.note_uncertain();
            }
            return Err(error.into());
        }
    };
    match &content.data {
        Data::Extents(extents) => round.moved.remember(&before, extents),
        data => round.moved.remember(&before, &data.clone().extents(&committed.extents)),
    }
    Ok(Fate::Moved { bytes: record_bytes + content.written_bytes })
}

/// Makes durable what a move follows from, with relaxed durability: what it refers to, and the row's own record, which lies in another lane with all
/// that was there before it: its bucket, or its upload. Else a power cut might take those and leave the move.
pub(super) async fn sync_before(inner: &Inner, found: &Found, refers_to: &[SegmentId]) -> Result<(), StoreError> {
    let (table, key) = found.place.row_key();
    let home = References::of_row(table, &key, &found.value)?.home;
    let segments: Vec<SegmentId> = refers_to.iter().copied().chain(home.map(|home| home.segment)).collect();
    Ok(inner.log.sync_segments(&segments).await?)
}

/// Whether the row may be gone after the next start, as a deletion failed with its outcome unknown: moved behind that, the row would come back, and what was deleted with it would not. The
/// caller holds its lock.
pub(super) fn is_in_doubt(inner: &Inner, place: &RowPlace) -> bool {
    let uncertain = &inner.uncertain;
    let (bucket, upload, name) = match place {
        RowPlace::IndexSnapshot => (None, None, None),
        RowPlace::Bucket(bucket) => (Some(bucket), None, None),
        RowPlace::Upload(bucket, _, upload) | RowPlace::Part(bucket, upload, _) => (Some(bucket), Some(*upload), None),
        RowPlace::Object(bucket, key) | RowPlace::Version(bucket, key, _) => {
            (Some(bucket), None, Some(NameHash::of_object(bucket.as_str(), key.as_str())))
        }
        RowPlace::Config(bucket, name) => {
            (bucket.as_ref(), None, Some(NameHash::of_config(bucket.as_ref().map(BucketName::as_str), name)))
        }
    };
    bucket.is_some_and(|bucket| uncertain.require_known_bucket(bucket).is_err())
        || upload.is_some_and(|upload| uncertain.require_known_upload(upload).is_err())
        || name.is_some_and(|name| uncertain.may_be_gone(name))
}

/// Waits for the locks that a change of the row takes.
pub(super) async fn lock(round: &Round, place: &RowPlace) -> Guards {
    let locks = &round.inner.locks;
    match place {
        // A newer one is newer, whatever the order in which they are applied, and nothing deletes it.
        RowPlace::IndexSnapshot => Guards::default(),
        RowPlace::Config(None, _) => locks.lock(&[(Lockable::Site, Mode::Exclusive)]).await,
        RowPlace::Bucket(bucket) | RowPlace::Config(Some(bucket), _) => {
            locks.lock(&[(Lockable::Bucket(bucket), Mode::Exclusive)]).await
        }
        RowPlace::Upload(bucket, _, upload) => {
            let upload = (Lockable::Upload(*upload), Mode::Exclusive);
            locks.lock(&[(Lockable::Bucket(bucket), Mode::Shared), upload]).await
        }
        RowPlace::Part(bucket, upload, part_number) => {
            let shared = [(Lockable::Bucket(bucket), Mode::Shared), (Lockable::Upload(*upload), Mode::Shared)];
            let part = (Lockable::Part(*upload, *part_number), Mode::Exclusive);
            locks.lock(&[shared[0], shared[1], part]).await
        }
        RowPlace::Object(bucket, key) | RowPlace::Version(bucket, key, _) => {
            let object = (Lockable::Object(bucket, key), Mode::Exclusive);
            locks.lock(&[(Lockable::Bucket(bucket), Mode::Shared), object]).await
        }
    }
}

pub(super) fn is_unchanged(index: &dyn IndexSnapshot, found: &Found) -> Result<bool, StoreError> {
    let (table, key) = found.place.row_key();
    Ok(index.get(table, &key)?.is_some_and(|value| value == found.value))
}

/// Reads the row's bytes and writes those that lie in stripes; nothing when the row changed meanwhile.
async fn prepare(round: &Round, found: &Found, stays: Stays) -> Result<Option<Prepared>, StoreError> {
    let no_data = || Content {
        data: Data::Record,
        record: Vec::new(),
        record_crc64: 0,
        hold: round.inner.holds.hold(),
        written_bytes: 0,
    };
    let (seq, row, content, before) = match &found.place {
        RowPlace::IndexSnapshot => {
            let SnapshotRow { seq, extents, rows, covered, .. } = SnapshotRow::decode(&found.value)?;
            let mutation = IndexSnapshotMutation { rows, extents, covered };
            (seq, MovedRow::IndexSnapshot(mutation), no_data(), Vec::new())
        }
        RowPlace::Bucket(bucket) => {
            let row = BucketRow::decode(&found.value)?;
            let mutation = CreateBucketMutation {
                bucket: bucket.as_str().to_owned(),
                created_ms: row.created_ms,
                owner: row.owner,
                region: row.region,
                // Each of its documents is a row of its own.
                configs: None,
            };
            (row.seq, MovedRow::Bucket(mutation), no_data(), Vec::new())
        }
        RowPlace::Config(bucket, name) => {
            let row = ConfigRow::decode(&found.value)?;
            let bucket = bucket.as_ref().map(|bucket| bucket.as_str().to_owned());
            let mutation = PutConfigMutation { bucket, name: name.clone(), document: row.document };
            (row.seq, MovedRow::Config(mutation), no_data(), Vec::new())
        }
        RowPlace::Upload(_, _, upload) => {
            let row = UploadRow::decode(&found.value)?;
            let mutation = CreateUploadMutation {
                bucket: row.bucket,
                key: row.key,
                upload: *upload,
                created_ms: row.created_ms,
                attributes: row.attributes,
                checksum_algorithm: row.checksum_algorithm,
                checksum_kind: row.checksum_kind,
                owner: row.owner,
            };
            (row.seq, MovedRow::Upload(mutation), no_data(), Vec::new())
        }
        RowPlace::Part(_, upload, part_number) => {
            let row = PartRow::decode(&found.value)?;
            // How long the frames of a sealed one are, its upload says.
            let is_whole = |bytes| match row.salt {
                Some(_) => (bytes > row.size) == (row.size > 0),
                None => bytes == row.size,
            };
            let Some(before) = extents(round, found, &row.layout, is_whole)? else { return Ok(None) };
            let pieces: Vec<Piece> = before.iter().copied().map(Piece::whole).collect();
            let content = rewrite(round, &pieces, stays).await;
            let Some(content) = unless_changed(round, found, content)? else { return Ok(None) };
            let mutation = PutPartMutation {
                upload: *upload,
                part_number: *part_number,
                size: row.size,
                tag: row.tag,
                modified_ms: row.modified_ms,
                checksums: row.checksums,
                data: content.data.clone(),
                salt: row.salt,
                counts: row.counts,
            };
            (row.seq, MovedRow::Part(mutation), content, before)
        }
        RowPlace::Object(bucket, key) | RowPlace::Version(bucket, key, _) => {
            let row = ObjectRow::decode(&found.value)?;
            if let Some(kind) = row.kind.filter(|kind| VersionKind::is_marker(Some(*kind))) {
                let marker = PutMarkerMutation {
                    bucket: bucket.as_str().to_owned(),
                    key: key.as_str().to_owned(),
                    modified_ms: row.modified_ms,
                    kind,
                    attributes: row.attributes,
                };
                let mutation = Mutation::moving(row.seq, MovedRow::Marker(marker));
                return Ok(Some(Prepared { mutation, content: no_data(), before: Vec::new() }));
            }
            let parts = copied_parts(&*round.inner.index.snapshot(), &row)?;
            let stored_bytes = match parts.is_empty() {
                true => stored_len(&row.attributes, row.size)?,
                false => parts
                    .iter()
                    .try_fold(0, |sum, part| Ok::<_, StoreError>(sum + stored_len(&row.attributes, part.size)?))?,
            };
            let Some(before) = extents(round, found, &row.layout, |bytes| bytes == stored_bytes)? else {
                return Ok(None);
            };
            let pieces: Vec<Piece> = before.iter().copied().map(Piece::whole).collect();
            let content = rewrite(round, &pieces, stays).await;
            let Some(content) = unless_changed(round, found, content)? else { return Ok(None) };
            let seq = row.seq;
            let mutation = PutObjectMutation::again(bucket, key, row, content.data.clone(), parts);
            (seq, MovedRow::Object(mutation), content, before)
        }
    };
    let mutation = Mutation::moving(seq, row);
    Ok(Some(Prepared { mutation, content, before }))
}

/// The extents of a row; nothing when they are not whole, because the row changed.
fn extents(
    round: &Round,
    found: &Found,
    layout: &Layout,
    is_whole: impl FnOnce(u64) -> bool,
) -> Result<Option<Vec<Extent>>, StoreError> {
    let index = round.inner.index.snapshot();
    let extents = extents_of(&*index, layout)?;
    let is_whole = is_whole(extents.iter().map(|extent| u64::from(extent.len)).sum());
    match (is_whole, is_unchanged(&*index, found)?) {
        (true, true) => Ok(Some(extents)),
        (false, true) => Err(StoreError::Corrupt("the manifest of an object is incomplete".into())),
        (_, false) => Ok(None),
    }
}

/// A row that changed has bytes that may be gone: that is no damage.
pub(super) fn unless_changed(
    round: &Round,
    found: &Found,
    content: Result<Content, StoreError>,
) -> Result<Option<Content>, StoreError> {
    match content {
        Err(error @ (StoreError::Corrupt(_) | StoreError::Unreadable(_))) => {
            let is_unchanged = is_unchanged(&*round.inner.index.snapshot(), found)?;
            if is_unchanged { Err(error) } else { Ok(None) }
        }
        content => content.map(Some),
    }
}

/// Sees to it that all of `pieces` lie where they may stay.
pub(super) async fn rewrite(round: &Round, pieces: &[Piece], stays: Stays) -> Result<Content, StoreError> {
    let inner = &round.inner;
    let mut content =
        Content { data: Data::Record, record: Vec::new(), record_crc64: 0, hold: inner.holds.hold(), written_bytes: 0 };
    if pieces.is_empty() {
        return Ok(content);
    }
    if pieces.iter().all(|piece| stays.stays(round, piece)) {
        content.data = Data::Extents(pieces.iter().map(|piece| piece.extent).collect());
        return Ok(content);
    }
    if let Some((extents, hold)) = shared(round, pieces, stays).await {
        inner.metrics.compaction_extents_shared.add(extents.len() as u64);
        return Ok(Content { data: Data::Extents(extents), hold, ..content });
    }
    let bytes: usize = pieces.iter().map(Piece::len).sum();
    if bytes > INLINE_BYTES_MAX {
        return super::restripe::restripe(round, pieces, stays).await;
    }
    for piece in pieces {
        let bytes = read(round, piece).await?;
        // What was checked when it was read is checked again when it is written: no bit changes in between unnoticed.
        let crc64 = if piece.is_whole() { piece.extent.crc64 } else { crc64_of(&bytes) };
        content.record_crc64 = crc64_combine(content.record_crc64, crc64, piece.len() as u64);
        content.record.extend(bytes);
    }
    Ok(content)
}

fn crc64_of(bytes: &[Bytes]) -> u64 {
    let mut crc = Crc64::new();
    bytes.iter().for_each(|bytes| crc.update(bytes));
    crc.finish()
}

/// Where extents are already that another row shares.
async fn shared(round: &Round, pieces: &[Piece], stays: Stays) -> Option<(Vec<Extent>, Hold)> {
    let moved = |piece: &Piece| match stays.stays(round, piece) {
        true => Some(piece.extent),
        false if piece.is_whole() && stays == Stays::Elsewhere => round.moved.get(&piece.extent),
        false => None,
    };
    let moved: Vec<Extent> = pieces.iter().map(moved).collect::<Option<_>>()?;
    let mut hold = round.inner.holds.hold();
    hold_all(&round.inner, &moved, &mut hold).await.then_some((moved, hold))
}

/// The bytes of a piece, verified.
pub(super) async fn read(round: &Round, piece: &Piece) -> Result<Vec<Bytes>, StoreError> {
    let bytes = round.inner.log.read(&piece.extent, piece.from..piece.to).await.map_err(|error| match error {
        // What one row's bytes suffer from says nothing of the others.
        error @ LogError::NotFound(_) => StoreError::Corrupt(error.to_string()),
        error => error.into(),
    })?;
    round.inner.metrics.compaction_read_bytes.add(piece.len() as u64);
    Ok(bytes)
}

const _: () = assert!(Table::ALL.len() == 10, "a new table may have rows that refer to segments");
