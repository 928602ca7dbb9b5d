//! Appending to an object: the new bytes are written, and one record makes the row of the old bytes and the new ones. No old byte moves, but for
//! those of small appends before, which are gathered.
//!
//! The precondition is the object's length, under its lock: of two that append at one place, one is refused. Who reads the object meanwhile reads
//! the one that he began with, as when it is overwritten.
//!
//! Gathering: a record names all extents, at up to 56 bytes each, so that many tiny ones would cost more than the bytes. An append takes
//! along the extents at the end that are no longer than itself and what it took along so far, up to half the length of a record's data. So ten thousand
//! appends of 100 bytes leave some ten extents, and each byte is written again a logarithmic number of times, and never once its extent is long.

use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use gabion_erasure::{Checksum, ChecksumAlgorithm, Md5, combine_full_object, crc64_combine};
use gabion_metadata::{
    Value,
    rows::{ChecksumKind, Etag, ObjectRow, PartTag, StoredChecksum},
};
use gabion_types::{
    Extent, Seq,
    limits::{INLINE_BYTES_MAX, OBJECT_BYTES_MAX, PART_NUMBER_MAX},
};

use crate::{
    AppendObject, EtagMatch, GetObject, ObjectBody, ObjectRead, PutResult, RangeRequest, Store, StoreError,
    body::{self, Collected, Content, Tagging},
    copy::{crc64_of, extents_of},
    delete::check_lock,
    holdback::Admitted,
    locks::{Lockable, Mode},
    mutation::{Data, Mutation, PutObjectMutation},
    store::Inner,
};

/// A record gathers no more bytes: half of what it can hold, so that appends need no larger segments than puts do.
const GATHERED_BYTES_MAX: u64 = INLINE_BYTES_MAX as u64 / 2;

impl Store {
    /// Adds bytes to the end of an object, or makes it where there is none; durable and visible when it resolves. As [`Store::put_object`], the object
    /// stays as it is if the body does not come as promised.
    ///
    /// # Errors
    /// `InvalidWriteOffset`, `TooManyParts`; `AccessDenied` for what is locked; `InvalidRequest` in a bucket that keeps versions or did, and where object or
    /// bytes are to be encrypted; those of [`Store::put_object`].
    pub async fn append_object(&self, mut request: AppendObject, body: ObjectBody) -> Result<PutResult, StoreError> {
        let inner = Arc::clone(&self.inner);
        let bucket = inner.same_bucket(&request.object.bucket, None)?;
        let seen = inner.check_append(&request)?;
        if let Some(length) = body.length {
            // It counts for who made the object.
            let (attributes, before) =
                seen.as_ref().map_or((&request.object.attributes, 0), |seen| (&seen.attributes, seen.size));
            let (bucket, key) = (&request.object.bucket, &request.object.key);
            self.check_room(bucket, key, attributes.creator.as_deref(), before.saturating_add(length))?;
        }
        let Some(seen) = seen else {
            // What comes in between is not overwritten.
            let asked = request.object.conditions.if_none_match.replace(EtagMatch::Any);
            return match self.put_into(request.object.clone(), body, Some(bucket)).await {
                Err(StoreError::PreconditionFailed("If-None-Match")) if asked.is_none() => {
                    let now = inner.object(&request.object.bucket, &request.object.key)?;
                    Err(StoreError::InvalidWriteOffset { size: now.map_or(0, |row| row.size) })
                }
                made => made,
            };
        };
        if seen.attributes.encryption.is_some() || body.encrypt.is_some() {
            let message = "Bytes can not be appended to an object that is encrypted, or be encrypted themselves.";
            return Err(StoreError::InvalidRequest(message.into()));
        }
        if body.length.is_some_and(|length| seen.size.saturating_add(length) > OBJECT_BYTES_MAX) {
            return Err(StoreError::EntityTooLarge);
        }
        let also = combinable(&seen.checksums).map(|(algorithm, _)| algorithm);
        let mut collected = body::collect(&inner, body, also.filter(is_not_crc64), Tagging::Now, None).await?;
        let tail = self.tail(&request, &seen, &mut collected).await?;
        let work = async move { inner.commit_append(request, &bucket, collected, tail).await };
        self.inner.run(work).await
    }

    /// Reads what goes along with a small body.
    async fn tail(
        &self,
        request: &AppendObject,
        seen: &ObjectRow,
        collected: &mut Collected,
    ) -> Result<Option<Tail>, StoreError> {
        if !matches!(collected.content, Content::Inline(_)) {
            return Ok(None);
        }
        let extents = extents_of(&*self.inner.index.snapshot(), &seen.layout)?;
        let len = goes_along(&extents, collected.size);
        let Some(first) = seen.size.checked_sub(len).filter(|_| len > 0) else { return Ok(None) };
        let admitted = self.inner.admit(len).await?;
        let get = GetObject {
            range: Some(RangeRequest::From(first)),
            ..GetObject::whole(request.object.bucket.clone(), request.object.key.clone())
        };
        let mut read = match self.get_object(get).await {
            // It is another one by now, or none: the commit says what of it.
            Err(StoreError::NoSuchKey | StoreError::InvalidRange { .. }) => return Ok(None),
            read => read?,
        };
        if read.info.seq != seen.seq {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        while let Some(piece) = read.body.next().await {
            bytes.push(piece?);
        }
        Ok(Some(Tail { seq: seen.seq, len, bytes, admitted, _memory: read }))
    }
}

/// Bytes at the end of an object that are written again with what is appended.
struct Tail {
    /// The object's commit.
    seq: Seq,
    len: u64,
    bytes: Vec<Bytes>,
    admitted: Admitted,
    /// Holds the memory that they count against.
    _memory: ObjectRead,
}

impl Inner {
    /// The object that is appended to, if all that can be looked at before the body allows it; nothing if there is none.
    fn check_append(&self, request: &AppendObject) -> Result<Option<ObjectRow>, StoreError> {
        let AppendObject { object, offset_bytes } = request;
        self.require_unversioned(
            &object.bucket,
            "Bytes can not be appended to objects in a bucket that keeps versions, or did.",
        )?;
        let current = self.object(&object.bucket, &object.key)?;
        object.conditions.check(current.as_ref().map(|row| &row.etag))?;
        let size = current.as_ref().map_or(0, |row| row.size);
        if *offset_bytes != size {
            return Err(StoreError::InvalidWriteOffset { size });
        }
        if let Some(row) = &current {
            check_lock(&row.attributes, self.env.clock.now_ms(), false)?;
            if parts_of(row) >= u32::from(PART_NUMBER_MAX) {
                return Err(StoreError::TooManyParts);
            }
        }
        Ok(current)
    }

    async fn commit_append(
        &self,
        request: AppendObject,
        before: &Value,
        collected: Collected,
        tail: Option<Tail>,
    ) -> Result<PutResult, StoreError> {
        let (bucket, key) = (&request.object.bucket, &request.object.key);
        let object = Lockable::Object(bucket, key);
        let _guards = self.locks.lock(&[(Lockable::Bucket(bucket), Mode::Shared), (object, Mode::Exclusive)]).await;
        self.same_bucket(bucket, Some(before))?;
        let Some(mut row) = self.check_append(&request)? else {
            // It was there a moment ago, without bytes.
            return Err(StoreError::InvalidWriteOffset { size: 0 });
        };
        if row.attributes.encryption.is_some() {
            return Err(StoreError::InvalidWriteOffset { size: row.size });
        }
        let size = row.size.saturating_add(collected.size);
        if size > OBJECT_BYTES_MAX {
            return Err(StoreError::EntityTooLarge);
        }
        let mut extents = extents_of(&*self.index.snapshot(), &row.layout)?;
        let crc64 = crc64_combine(crc64_of(&extents), collected.crc64, collected.size);
        row.checksums = checksums(&row, &collected, crc64);
        row.etag = etag(&row, collected.tag, crc64)?;
        row.modified_ms = self.env.clock.now_ms();
        row.size = size;
        // Of the parts that it was uploaded in, only their number is left.
        row.attributes.appends = Some(parts_of(&row));

        let (mut kept, mut record_crc64) = (collected.kept, collected.crc64);
        let (configs, creator) = (self.bucket_configs(bucket)?, row.attributes.creator.as_deref());
        if let Some(limits) = self.limits(&configs, creator)? {
            kept.reserved = Some(Box::pin(self.reserve_object(limits, (bucket, key), &configs, creator, size)).await?);
        }
        drop(configs);
        let (data, record) = match collected.content {
            Content::Stored(appended) => {
                extents.extend(appended);
                (Data::Extents(extents), Vec::new())
            }
            Content::Inline(pieces) => {
                let mut record = Vec::new();
                if let Some(tail) = tail.filter(|tail| tail.seq == row.seq)
                    && let Some(at) = begins_at(&extents, tail.len)
                {
                    record_crc64 = crc64_combine(crc64_of(&extents[at..]), record_crc64, collected.size);
                    extents.truncate(at);
                    record = tail.bytes;
                    let mut admitted = tail.admitted;
                    admitted.spend();
                    kept._admitted[1] = Some(admitted);
                }
                record.extend(pieces);
                (if extents.is_empty() { Data::Record } else { Data::Appended(extents) }, record)
            }
        };
        if let Data::Extents(extents) | Data::Appended(extents) = &data {
            kept.hold.add_all(extents);
        }
        let mutation =
            Mutation::PutObject(Box::new(PutObjectMutation::again(bucket, key, row.clone(), data, Vec::new())));
        if !Mutation::fits(&mutation.encode()) {
            return Err(StoreError::TooManyParts);
        }
        let crc64 = if record.is_empty() { 0 } else { record_crc64 };
        let committed = self.commit_with(&mutation, record, crc64, kept).await?;
        self.metrics.appends.add(1);
        let ObjectRow { etag, modified_ms, checksums, .. } = row;
        let seq = committed.seq;
        Ok(PutResult { etag, seq, version: None, size, modified_ms, checksums, parts_count: None, encryption: None })
    }
}

/// How many parts an object has: those that it was uploaded in, and what was appended.
fn parts_of(row: &ObjectRow) -> u32 {
    row.parts.map_or(1, |parts| parts.count).saturating_add(row.attributes.appends.unwrap_or(0))
}

/// How many of the last bytes are written again with `len` that come behind them: whole extents.
fn goes_along(extents: &[Extent], len: u64) -> u64 {
    let mut gathered = len;
    for extent in extents.iter().rev() {
        let extent_len = u64::from(extent.len);
        if extent_len > gathered || gathered + extent_len > GATHERED_BYTES_MAX {
            break;
        }
        gathered += extent_len;
    }
    gathered - len
}

/// The first of the extents that are the last `len` bytes.
fn begins_at(extents: &[Extent], mut len: u64) -> Option<usize> {
    for (at, extent) in extents.iter().enumerate().rev() {
        len = len.checked_sub(extent.len.into())?;
        if len == 0 {
            return Some(at);
        }
    }
    None
}

fn is_not_crc64(algorithm: &ChecksumAlgorithm) -> bool {
    *algorithm != ChecksumAlgorithm::Crc64Nvme
}

/// The checksum of a whole object that can be told on when bytes come behind it.
fn combinable(checksums: &[StoredChecksum]) -> Option<(ChecksumAlgorithm, Checksum)> {
    let full = checksums.iter().filter(|checksum| checksum.kind == ChecksumKind::FullObject);
    full.filter_map(|checksum| {
        let algorithm = ChecksumAlgorithm::from_index(checksum.algorithm)?;
        combine_full_object(algorithm, &[])?;
        Some((algorithm, Checksum::new(algorithm, &checksum.value).ok()?))
    })
    .next()
}

/// The checksum of the object with what comes behind it: that which it had if it can be told on, else CRC-64/NVME, which the log knows of all bytes.
fn checksums(row: &ObjectRow, collected: &Collected, crc64: u64) -> Vec<StoredChecksum> {
    let told_on =
        combinable(&row.checksums).filter(|(algorithm, _)| is_not_crc64(algorithm)).and_then(|(algorithm, before)| {
            let appended = collected.checksums.iter().find(|checksum| checksum.algorithm() == algorithm)?;
            combine_full_object(algorithm, &[(before, row.size), (*appended, collected.size)])
        });
    body::stored_full(&[told_on.unwrap_or_else(|| body::crc64_checksum(crc64))])
}

/// The tag of an object that bytes came behind: as that of an object in parts, no MD5 of its bytes. It follows from the tag before and the bytes,
/// whatever they are made of.
fn etag(row: &ObjectRow, appended: Option<PartTag>, crc64: u64) -> Result<Etag, StoreError> {
    let before = match &row.etag {
        Etag::Multipart(_, parts) | Etag::Crc64 { parts, .. } => *parts,
        Etag::Md5(_) | Etag::Opaque(_) => 1,
    };
    let parts = before.saturating_add(1);
    match appended {
        Some(PartTag::Crc64(_)) => Ok(Etag::Crc64 { crc64, parts }),
        Some(PartTag::Md5(md5)) => {
            let mut both = Md5::default();
            both.update(row.etag.to_string().as_bytes());
            both.update(&md5);
            Ok(Etag::Multipart(both.finish(), parts))
        }
        None => Err(StoreError::Internal("a body that was taken in has no tag".into())),
    }
}

#[cfg(test)]
mod tests {
    use gabion_types::{Place, SegmentId};
    use proptest::prelude::*;

    use super::*;

    fn extent(len: u64) -> Extent {
        let place = Place::Chunk { shard: 0, start: 0 };
        let len = u32::try_from(len).unwrap();
        Extent { segment: SegmentId::new(1, 1), stripe_offset: 0, place, len, crc64: 0 }
    }

    proptest! {
        #[test]
        fn small_appends_leave_few_extents(lens in prop::collection::vec(1_u64..5000, 1..400)) {
            let (mut extents, mut written) = (Vec::new(), 0);
            for len in &lens {
                let along = goes_along(&extents, *len);
                if along > 0 {
                    extents.truncate(begins_at(&extents, along).unwrap());
                }
                extents.push(extent(along + len));
                written += along + len;
            }
            let total: u64 = lens.iter().sum();
            prop_assert_eq!(extents.iter().map(|extent| u64::from(extent.len)).sum::<u64>(), total);
            // Each extent is longer than the next, or they are long.
            let doublings = u64::from(total.ilog2()) + 1;
            prop_assert!(written <= total * doublings, "{} bytes are written for {}", written, total);
            prop_assert!(extents.windows(2).all(|two| two[0].len > two[1].len || u64::from(two[0].len + two[1].len) > GATHERED_BYTES_MAX));
        }
    }

    #[test]
    fn a_tail_is_whole_extents() {
        let extents = [extent(5), extent(3), extent(3)];
        for (len, expected) in [(3, Some(2)), (6, Some(1)), (11, Some(0)), (1, None), (4, None), (12, None)] {
            assert_eq!(begins_at(&extents, len), expected, "{len}");
        }
        assert_eq!((goes_along(&extents, 2), goes_along(&extents, 3), goes_along(&extents, 0)), (0, 11, 0));
        assert_eq!(goes_along(&extents, GATHERED_BYTES_MAX), 0);
    }
}
