//! CompleteMultipartUpload.

use std::sync::Arc;

use gabion_erasure::{Checksum, ChecksumAlgorithm, Md5, crc64_combine};
use gabion_metadata::{
    IndexSnapshot, Table, keys,
    rows::{Attributes, ChecksumKind, Etag, ManifestPart, PartRow, PartTag, Row, UploadRow},
};

use super::{Wanted, checksums::checksum_of, rules};
use crate::{
    CompleteUpload, DigestKind, PutResult, SecretKey, Store, StoreError, UploadRef, VersionId,
    copy::{crc64_of, extents_of},
    locks::{Lockable, Mode},
    mutation::{CompleteUploadMutation, Mutation, NamedPart},
    store::Inner,
};

impl Store {
    /// Makes the current object of an upload's parts; durable and visible when it resolves. No byte moves. Who asks again, of an upload whose
    /// object is still the current one, is told the same again: the first answer may have been lost.
    ///
    /// # Errors
    /// `NoSuchBucket`, `NoSuchUpload`, `InvalidPart`, `InvalidPartOrder`, `EntityTooSmall`, `EntityTooLarge`, `InvalidRequest`,
    /// `BadDigest`, `PreconditionFailed`, `NoSuchKey` (by `If-Match`), `QuotaExceeded`, `NoSpace`, `Busy`, `Unavailable`.
    pub async fn complete_upload(&self, request: CompleteUpload) -> Result<PutResult, StoreError> {
        let inner = Arc::clone(&self.inner);
        self.inner.run(async move { inner.commit_complete(request, None).await }).await
    }

    /// As [`Store::complete_upload`], by somebody who shows the customer's key if the upload is encrypted with one (he must where a checksum was asked
    /// for), and none otherwise.
    ///
    /// # Errors
    /// As [`Store::complete_upload`]; `Key`.
    pub async fn complete_encrypted_upload(
        &self,
        request: CompleteUpload,
        customer: Option<SecretKey>,
    ) -> Result<PutResult, StoreError> {
        let inner = Arc::clone(&self.inner);
        self.inner.run(async move { inner.commit_complete(request, Some(customer)).await }).await
    }
}

impl Inner {
    /// `shown` is the customer's key that was shown, if it was asked for.
    async fn commit_complete(
        &self,
        request: CompleteUpload,
        shown: Option<Option<SecretKey>>,
    ) -> Result<PutResult, StoreError> {
        let target = &request.target;
        let _guards = self
            .locks
            .lock(&[
                (Lockable::Bucket(&target.bucket), Mode::Shared),
                (Lockable::Object(&target.bucket, &target.key), Mode::Exclusive),
                (Lockable::Upload(target.upload), Mode::Exclusive),
            ])
            .await;
        let upload = match self.upload_to_change(target) {
            Err(StoreError::NoSuchUpload) => return self.completed_before(&request, shown),
            upload => upload?,
        };
        let wanted = Wanted::of(&upload);
        self.check_shown(&upload.attributes, target, shown.as_ref(), wanted.is_asked)?;
        let parts = rules::check(&request.parts, wanted, self.config.part_bytes_min, |part_number| {
            let row = self.index.get(Table::Part, &keys::part(target.upload, part_number))?;
            Ok(row.map(|row| PartRow::decode(&row)).transpose()?)
        })?;
        let size = parts.iter().map(|(_, part)| part.size).sum::<u64>();
        let checksum = check_whole(&request, wanted, &parts, size)?;
        let current = self.object(&target.bucket, &target.key)?;
        request.conditions.check(current.as_ref().map(|row| &row.etag))?;

        let (etag, modified_ms) = (self.etag(&parts)?, self.env.clock.now_ms());
        let checksums: Vec<_> = checksum.iter().map(|checksum| wanted.stored(checksum)).collect();
        let UploadRow { mut attributes, .. } = upload;
        attributes.retention = attributes.retention.or(request.default_retention);
        let encryption = attributes.encryption.clone();
        let configs = self.bucket_configs(&target.bucket)?;
        let (versioning, creator) = (configs.versioning(), attributes.creator.as_deref());
        let reserved = match self.limits(&configs, creator)? {
            Some(limits) => {
                let place = (&target.bucket, &target.key);
                Some(Box::pin(self.reserve_completed(limits, place, &configs, creator, &parts)).await?)
            }
            None => None,
        };
        let mutation = Mutation::CompleteUpload(Box::new(CompleteUploadMutation {
            kind: versioning.kind(),
            bucket: target.bucket.as_str().to_owned(),
            key: target.key.as_str().to_owned(),
            upload: target.upload,
            modified_ms,
            attributes,
            etag: etag.clone(),
            checksums: checksums.clone(),
            parts: parts
                .iter()
                .map(|(part_number, row)| NamedPart { part_number: *part_number, seq: row.seq })
                .collect(),
        }));
        let committed = self.commit_reserved(&mutation, &[], None, reserved).await?;
        let parts_count = Some(count(&parts));
        let (seq, version) = (committed.seq, versioning.version(committed.seq));
        Ok(PutResult { etag, seq, version, size, modified_ms, checksums, parts_count, encryption })
    }

    /// What this completion made before: it names the same parts, and says nothing else of the whole. Conditions were judged then.
    ///
    /// # Errors
    /// `NoSuchUpload` if it is not the current object, or has changed since; `Key`.
    fn completed_before(
        &self,
        request: &CompleteUpload,
        shown: Option<Option<SecretKey>>,
    ) -> Result<PutResult, StoreError> {
        let UploadRef { bucket, key, upload } = &request.target;
        let row = self.object(bucket, key)?.ok_or(StoreError::NoSuchUpload)?;
        let parts = row.parts.filter(|parts| parts.upload == Some(*upload)).ok_or(StoreError::NoSuchUpload)?;
        let is_ascending = request.parts.windows(2).all(|pair| pair[0].part_number < pair[1].part_number);
        let is_it = |checksum: Checksum| {
            let algorithm = checksum.algorithm();
            checksum_of(&row.checksums, algorithm) == Some(checksum)
        };
        if request.parts.len() != parts.count as usize
            || !is_ascending
            || request.expected_size.is_some_and(|size| size != row.size)
            || !request.checksum.is_none_or(is_it)
        {
            return Err(StoreError::NoSuchUpload);
        }
        for named in &request.parts {
            let part = self.index.get(Table::Manifest, &keys::manifest_part(parts.manifest, named.part_number))?;
            let part = part.map(|part| ManifestPart::decode(&part)).transpose()?;
            if !part.is_some_and(|part| rules::is_tag(named, part.tag)) {
                return Err(StoreError::NoSuchUpload);
            }
        }
        // What was asked for when it was begun is not known any more.
        self.check_shown(&row.attributes, &request.target, shown.as_ref(), false)?;
        let version = Some(VersionId::of(&row)).filter(|version| *version != VersionId::Null);
        Ok(PutResult {
            etag: row.etag,
            seq: row.seq,
            version,
            size: row.size,
            modified_ms: row.modified_ms,
            checksums: row.checksums,
            parts_count: Some(parts.count),
            encryption: row.attributes.encryption,
        })
    }

    /// Whether the customer's key that was shown goes with an upload. None has to be shown but where a checksum was asked for, as on AWS:
    /// there is nothing to encrypt, and who may complete an upload is decided by policies.
    fn check_shown(
        &self,
        attributes: &Attributes,
        target: &UploadRef,
        shown: Option<&Option<SecretKey>>,
        is_needed: bool,
    ) -> Result<(), StoreError> {
        match shown {
            Some(customer) if is_needed || customer.is_some() => {
                self.check_customer(attributes, &target.bucket, &target.key, customer.as_ref())
            }
            _ => Ok(()),
        }
    }

    /// The MD5 of the parts' MD5s if all have one: then all of them were put by a server that computes them, whatever this one does. Else the
    /// CRC of the whole, or the MD5 of the parts' tags where there is a part whose CRC is not known. The caller holds the upload's lock: no part is moved meanwhile.
    fn etag(&self, parts: &[(u16, PartRow)]) -> Result<Etag, StoreError> {
        let is_md5 = |part: &PartRow| matches!(part.tag, PartTag::Md5(_));
        if !parts.iter().all(|(_, part)| is_md5(part)) {
            let index = self.index.snapshot();
            let mut whole = Some(0);
            for (_, part) in parts {
                let crc64 = part_crc64(&*index, part)?;
                whole = whole.zip(crc64).map(|(whole, crc64)| crc64_combine(whole, crc64, part.size));
            }
            if let Some(crc64) = whole {
                return Ok(Etag::Crc64 { crc64, parts: count(parts) });
            }
        }
        let mut md5 = Md5::default();
        for (_, part) in parts {
            match part.tag {
                PartTag::Md5(tag) => md5.update(&tag),
                PartTag::Crc64(crc64) => md5.update(&crc64.to_be_bytes()),
            }
        }
        Ok(Etag::Multipart(md5.finish(), count(parts)))
    }
}

/// The CRC of a part's bytes as clients know them. The extents tell it of a part that has an MD5, unless it is sealed: then its checksum does, if it is that.
fn part_crc64(index: &dyn IndexSnapshot, part: &PartRow) -> Result<Option<u64>, StoreError> {
    match part.tag {
        PartTag::Crc64(crc64) => Ok(Some(crc64)),
        PartTag::Md5(_) if part.salt.is_none() => Ok(Some(crc64_of(&extents_of(index, &part.layout)?))),
        PartTag::Md5(_) => {
            let checksum = checksum_of(&part.checksums, ChecksumAlgorithm::Crc64Nvme);
            Ok(checksum.and_then(|checksum| checksum.as_bytes().try_into().ok()).map(u64::from_be_bytes))
        }
    }
}

fn count(parts: &[(u16, PartRow)]) -> u32 {
    u32::try_from(parts.len()).expect("part numbers have 16 bits")
}

/// What the client says of the whole object; returns its checksum.
fn check_whole(
    request: &CompleteUpload,
    wanted: Wanted,
    parts: &[(u16, PartRow)],
    size: u64,
) -> Result<Option<Checksum>, StoreError> {
    if let Some(expected) = request.expected_size
        && expected != size
    {
        return Err(StoreError::InvalidRequest(format!(
            "The provided 'x-amz-mp-object-size' header value {expected} does not match what was computed: {size}"
        )));
    }
    let mode = wanted.is_asked.then_some(wanted.kind);
    if request.checksum_kind.is_some() && request.checksum_kind != mode {
        return Err(StoreError::InvalidRequest(format!(
            "The upload was created using the {} checksum mode. The complete request must use the same checksum mode.",
            mode.map_or("null", ChecksumKind::name)
        )));
    }
    let checksum = wanted.of_object(parts);
    if let Some(expected) = request.checksum
        && Some(expected) != checksum
    {
        wanted.check_part(expected.algorithm())?;
        return Err(StoreError::BadDigest(DigestKind::Checksum(expected.algorithm())));
    }
    Ok(checksum)
}
