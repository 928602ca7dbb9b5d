//! Moving an object that one record can not describe (one of about 100 GiB or more): part by part.
//!
//! Each of its parts is put once more, as a part of an *assembly*: an upload without a row, of an id that no client is ever given. When all
//! of them are durable, one move makes the object of them, as a completion does, under the object's lock and only if it is still what was read.
//! Until then the assembly's parts are rows of their own, which count what they refer to. A move that did not come to
//! its end leaves parts that nobody completes: they are ended at once, or, after a crash, before the next round.

use std::collections::{BTreeSet, HashSet};

use gabion_metadata::{
    Pages, ScanRange, Table, keys,
    rows::{Layout, ManifestPart, ObjectRow, Row},
};
use gabion_segment::NewRecord;
use gabion_types::{BucketName, Extent, ObjectKey, UploadId};
use parking_lot::Mutex;

use super::{
    Fate, Round,
    pass::Found,
    relocate::{Content, Stays, is_in_doubt, is_unchanged, lock, rewrite, sync_before, unless_changed},
};
use crate::{
    ByteRange, StoreError,
    get::pieces::{Piece, Pieces},
    mutation::{CompleteUploadMutation, Data, EndUploadMutation, MovedRow, Mutation, NamedPart, PutPartMutation},
    sealed::stored_len,
    store::Inner,
};

/// What the id of an assembly begins with. That of an upload begins with the time: this one does not come before the year 10889.
const ASSEMBLY: [u8; 6] = [0xff; 6];
/// An upload that ends is named with its bucket and key. An assembly has no row: any name will do.
const NO_NAME: &str = "none";
/// Rows that one scan returns at most.
const PAGE_ROWS: usize = 64;

/// Assemblies that are not to be ended: they are under way, or it is known at the next start only what became of them.
#[derive(Default)]
pub(super) struct Assemblies(Mutex<HashSet<UploadId>>);

/// Whether the object is known to be too large for one record.
pub(super) fn is_due(round: &Round, found: &Found) -> Result<bool, StoreError> {
    if found.place.object().is_none() {
        return Ok(false);
    }
    let row = ObjectRow::decode(&found.value)?;
    let Some(parts) = row.parts else { return Ok(false) };
    // What a record says of pages and parts is as long as their rows are. What else it says takes less than what is kept for it here.
    let mut left = round.inner.config.move_bytes_max / 8 * 7;
    let mut ranges = vec![keys::manifest_parts(parts.manifest)];
    if let Layout::Manifest(manifest) = row.layout {
        ranges.push(keys::manifest_pages(manifest));
    }
    for prefix in ranges {
        let mut pages = Pages::new(ScanRange::prefix(Table::Manifest, &prefix), PAGE_ROWS);
        while let Some(rows) = pages.next(|range, limit| round.inner.index.scan(range, limit))? {
            match left.checked_sub(rows.iter().map(|(_, row)| row.len()).sum()) {
                Some(less) => left = less,
                None => return Ok(true),
            }
        }
    }
    Ok(false)
}

/// Whether it has parts that can be moved one by one.
pub(super) fn is_possible(found: &Found) -> Result<bool, StoreError> {
    if found.place.object().is_none() {
        return Ok(false);
    }
    Ok(ObjectRow::decode(&found.value)?.parts.is_some())
}

/// Moves an object part by part, unless it is not any more what was found.
pub(super) async fn relocate(round: &Round, found: &Found) -> Result<Fate, StoreError> {
    let Some((bucket, key)) = found.place.object() else {
        return Err(StoreError::Internal("only objects have parts".into()));
    };
    let inner = &round.inner;
    let assembly = inner.new_assembly();
    let mut moving = Moving { round, found, bucket, key, assembly, is_uncertain: false, bytes: 0 };
    let fate = moving.relocate().await;
    if moving.is_uncertain {
        return fate;
    }
    if !matches!(fate, Ok(Fate::Moved { .. })) {
        // If this fails, too, the next round does it.
        if let Err(error) = end(inner, assembly).await {
            tracing::debug!(%error, "parts that were moved in vain are ended later");
        }
    }
    inner.compaction.assemblies.0.lock().remove(&assembly);
    fate
}

/// Ends the assemblies of moves that did not come to their end.
pub(super) async fn end_left_overs(inner: &Inner) -> Result<(), StoreError> {
    let mut left_over = BTreeSet::new();
    let mut pages = Pages::new(ScanRange::prefix(Table::Part, &ASSEMBLY), PAGE_ROWS);
    while let Some(rows) = pages.next(|range, limit| inner.index.scan(range, limit))? {
        for (key, _) in &rows {
            let (assembly, _) = keys::decode_part(key).map_err(|error| StoreError::Corrupt(error.to_string()))?;
            left_over.insert(assembly);
        }
    }
    left_over.retain(|assembly| !inner.compaction.assemblies.0.lock().contains(assembly));
    for assembly in left_over {
        end(inner, assembly).await?;
    }
    Ok(())
}

async fn end(inner: &Inner, assembly: UploadId) -> Result<(), StoreError> {
    let (bucket, key) = (NO_NAME.to_owned(), NO_NAME.to_owned());
    inner.commit(&Mutation::EndUpload(EndUploadMutation { bucket, key, upload: assembly })).await?;
    Ok(())
}

impl Inner {
    fn new_assembly(&self) -> UploadId {
        let mut bytes = [0; 16];
        self.env.entropy.fill(&mut bytes[ASSEMBLY.len()..]);
        bytes[..ASSEMBLY.len()].copy_from_slice(&ASSEMBLY);
        let assembly = UploadId::from_bytes(bytes);
        self.compaction.assemblies.0.lock().insert(assembly);
        assembly
    }
}

/// An object on its way.
struct Moving<'a> {
    round: &'a Round,
    found: &'a Found,
    bucket: &'a BucketName,
    key: &'a ObjectKey,
    assembly: UploadId,
    /// Whether the move took effect is known at the next start only.
    is_uncertain: bool,
    bytes: u64,
}

impl Moving<'_> {
    async fn relocate(&mut self) -> Result<Fate, StoreError> {
        let row = ObjectRow::decode(&self.found.value)?;
        let Some(summary) = row.parts else { return Ok(Fate::TooLarge) };
        let mut named = Vec::new();
        let parts = ScanRange::prefix(Table::Manifest, &keys::manifest_parts(summary.manifest));
        let mut pages = Pages::new(parts, PAGE_ROWS);
        while let Some(rows) = pages.next(|range, limit| self.round.inner.index.scan(range, limit))? {
            for (_, part) in rows {
                self.round.check()?;
                let part = ManifestPart::decode(&part)?;
                let Some(pieces) = self.pieces(&row, &part)? else { return Ok(Fate::Changed) };
                let Some(moved) = self.put(&row, part, &pieces).await? else { return Ok(Fate::Changed) };
                named.push(moved);
            }
        }
        self.complete(row, named).await
    }

    /// Where the bytes of a part lie; nothing when the object changed.
    fn pieces(&self, row: &ObjectRow, part: &ManifestPart) -> Result<Option<Vec<Piece>>, StoreError> {
        let index = self.round.inner.index.snapshot();
        if !is_unchanged(&*index, self.found)? {
            return Ok(None);
        }
        let (first, bytes) = match part.sealed {
            Some(sealed) => (sealed.start, stored_len(&row.attributes, part.size)?),
            None => (part.start, part.size),
        };
        let Some(last) = bytes.checked_sub(1) else { return Ok(Some(Vec::new())) };
        let range = ByteRange { first, last: first + last };
        let found = match &row.layout {
            Layout::Empty => None,
            Layout::Extents(extents) => Some(Pieces::listed(extents, range).0),
            Layout::Manifest(manifest) => Pieces::paged(&*index, *manifest, range, None)?.map(|(pieces, _)| pieces),
        };
        let mut found = found.ok_or_else(|| StoreError::Corrupt("the manifest of an object is incomplete".into()))?;
        let mut pieces = Vec::new();
        while let Some(piece) = found.next()? {
            pieces.push(piece);
        }
        Ok(Some(pieces))
    }

    /// Puts a part as one of the assembly; nothing when the object changed.
    async fn put(
        &mut self,
        row: &ObjectRow,
        part: ManifestPart,
        pieces: &[Piece],
    ) -> Result<Option<NamedPart>, StoreError> {
        let content = rewrite(self.round, pieces, Stays::Elsewhere).await;
        let Some(content) = unless_changed(self.round, self.found, content)? else { return Ok(None) };
        let Content { data, record, record_crc64, hold, written_bytes } = content;
        let part_number = part.part_number;
        let mutation = Mutation::PutPart(Box::new(PutPartMutation {
            upload: self.assembly,
            part_number,
            size: part.size,
            tag: part.tag,
            modified_ms: row.modified_ms,
            checksums: part.checksums,
            data: data.clone(),
            salt: part.sealed.map(|sealed| sealed.salt),
            // The object counts, and it does all the time.
            counts: None,
        }));
        let encoded = mutation.encode();
        if !Mutation::fits(&encoded) {
            return Err(StoreError::Corrupt(format!("part {part_number} of an object does not fit into a record")));
        }
        let record_bytes = encoded.len() as u64 + record.iter().map(|bytes| bytes.len() as u64).sum::<u64>();
        self.bytes += record_bytes + written_bytes;
        self.round.pause(record_bytes).await;
        let record = NewRecord { mutation: encoded.into(), data: record, data_crc64: record_crc64 };
        self.round.inner.log.sync_segments(hold.segments()).await?;
        // If it takes effect although it failed, it is a part that nobody completes, and is ended as those are.
        let committed = self.round.inner.log.commit_moved(record).await?;
        drop(hold);
        if pieces.iter().all(Piece::is_whole) {
            let before: Vec<Extent> = pieces.iter().map(|piece| piece.extent).collect();
            match &data {
                Data::Extents(extents) => self.round.moved.remember(&before, extents),
                data => self.round.moved.remember(&before, &data.clone().extents(&committed.extents)),
            }
        }
        Ok(Some(NamedPart { part_number, seq: committed.seq }))
    }

    /// Makes the object of the assembly's parts.
    async fn complete(&mut self, row: ObjectRow, parts: Vec<NamedPart>) -> Result<Fate, StoreError> {
        let inner = &self.round.inner;
        let completed = CompleteUploadMutation {
            bucket: self.bucket.as_str().to_owned(),
            key: self.key.as_str().to_owned(),
            upload: self.assembly,
            modified_ms: row.modified_ms,
            attributes: row.attributes,
            etag: row.etag,
            checksums: row.checksums,
            parts,
            kind: row.kind,
        };
        let mutation = Mutation::moving(row.seq, MovedRow::Completed(completed));
        let encoded = mutation.encode();
        if !Mutation::fits(&encoded) {
            return Ok(Fate::TooLarge);
        }
        self.bytes += encoded.len() as u64;
        sync_before(inner, self.found, &[]).await?;
        // From here on nobody else changes the row: what is committed is ordered as it is applied.
        let _guards = lock(self.round, &self.found.place).await;
        if is_in_doubt(inner, &self.found.place) {
            return Ok(Fate::InDoubt);
        }
        if !is_unchanged(&*inner.index.snapshot(), self.found)? {
            return Ok(Fate::Changed);
        }
        let record = NewRecord { mutation: encoded.into(), data: Vec::new(), data_crc64: 0 };
        if let Err(error) = inner.log.commit_moved(record).await {
            // It may take effect at the next start: its parts must be there then.
            self.is_uncertain = !error.is_refusal();
            if self.is_uncertain {
                inner.note_uncertain();
            }
            return Err(error.into());
        }
        Ok(Fate::Moved { bytes: self.bytes })
    }
}
