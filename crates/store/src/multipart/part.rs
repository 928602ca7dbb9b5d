//! UploadPart and UploadPartCopy.

use std::sync::Arc;

use gabion_erasure::{Checksum, ChecksumAlgorithm, Digests};
use gabion_metadata::rows::{CountsFor, Encryption, Etag, ObjectRow, PartTag, Salt};
use gabion_types::limits::PART_NUMBER_MAX;

use super::{Wanted, checksums::checksum_of};
use crate::{
    CopyKeys, CopySource, EtagKind, KeyError, ObjectBody, PartResult, RangeRequest, Store, StoreError, UploadPart,
    UploadPartCopy, UploadRef,
    body::{self, Collected, Content, Tagging},
    copy::{check_size, crc64_of, extents_of, full_checksum},
    locks::{Lockable, Mode},
    mutation::{Data, Mutation, PutPartMutation},
    quotas::Reserved,
    sealed::Seal,
    store::Inner,
};

/// How often a copy begins anew when its source changes under it.
const ATTEMPTS_MAX: usize = 8;

impl Store {
    /// Stores a part, replacing the one of the same number; durable when it resolves.
    ///
    /// # Errors
    /// `NoSuchBucket`, `NoSuchUpload`, `InvalidPartNumber`, `InvalidRequest`, and as [`Store::put_object`].
    pub async fn upload_part(&self, request: UploadPart, body: ObjectBody) -> Result<PartResult, StoreError> {
        let checked = self.inner.check_part(&request)?;
        if body.checksums.is_empty() && body.compute.is_empty() {
            checked.0.check_without()?;
        }
        self.store_part(request, body, checked).await
    }

    async fn store_part(
        &self,
        request: UploadPart,
        mut body: ObjectBody,
        (wanted, encryption): (Wanted, Option<Box<Encryption>>),
    ) -> Result<PartResult, StoreError> {
        let customer = body.encrypt.take().and_then(|encrypt| encrypt.customer);
        let seal = match &encryption {
            None if customer.is_some() => return Err(KeyError::NotApplicable.into()),
            None => None,
            Some(encryption) => {
                let UploadRef { bucket, key, .. } = &request.target;
                let data_key = Box::pin(self.inner.unlock(encryption, bucket, key, customer.as_ref())).await?;
                Some(Seal::new(&self.inner, encryption, data_key, request.part_number)?)
            }
        };
        let salt = seal.as_ref().map(|seal| seal.salt);
        let mut asked = body.checksums.iter().map(Checksum::algorithm).chain(body.compute.iter().copied());
        asked.try_for_each(|algorithm| wanted.check_part(algorithm))?;
        let collected = body::collect(&self.inner, body, Some(wanted.algorithm), Tagging::Now, seal).await?;
        let inner = Arc::clone(&self.inner);
        let result = self.inner.run(async move { inner.commit_part(request, collected, salt).await }).await?;
        Ok(PartResult { encryption, ..result })
    }

    /// Stores a part from an object: by reference when it is all of it, else its bytes are read and written.
    ///
    /// # Errors
    /// As [`Store::upload_part`] and [`Store::copy_object`]; `InvalidRange` when the range leaves the object.
    pub async fn upload_part_copy(&self, request: UploadPartCopy) -> Result<PartResult, StoreError> {
        self.copy_encrypted_part(request, CopyKeys::default()).await
    }

    /// Stores a part from an object, where one of them may be encrypted with a customer's key. The result has only those checksums that the
    /// upload asked for.
    ///
    /// # Errors
    /// As [`Store::upload_part_copy`]; `Key`.
    pub async fn copy_encrypted_part(&self, request: UploadPartCopy, keys: CopyKeys) -> Result<PartResult, StoreError> {
        let part = UploadPart { target: request.target.clone(), part_number: request.part_number };
        let (wanted, _) = self.inner.check_part(&part)?;
        let mut result = self.copied_part(part, request, keys).await?;
        if !wanted.is_asked {
            result.checksums.clear();
        }
        Ok(result)
    }

    async fn copied_part(
        &self,
        part: UploadPart,
        request: UploadPartCopy,
        keys: CopyKeys,
    ) -> Result<PartResult, StoreError> {
        for _ in 0..ATTEMPTS_MAX {
            let (wanted, encryption) = self.inner.check_part(&part)?;
            let source = self.copy_source(&request.source).await?;
            let CopySource { bucket, key, .. } = &request.source;
            self.inner.check_customer(&source.attributes, bucket, key, keys.source.as_ref())?;
            if let Some(range) = request.range {
                if range.last >= source.size {
                    return Err(StoreError::InvalidRange { size: source.size });
                }
                check_size(range.len())?;
                if range.len() < source.size {
                    let range = RangeRequest::Between(range.first, range.last);
                    return self.copy_range(part, &request, Some(range), keys).await;
                }
            }
            check_size(source.size)?;
            if encryption.is_some() || source.attributes.encryption.is_some() || keys.target.is_some() {
                // Sealed bytes are those of one object and one part.
                return self.copy_range(part, &request, None, keys).await;
            }
            let described = self.described(&request.source, &source, wanted.algorithm).await?;
            let Some(described) = described else { continue };
            let (inner, part, request) = (Arc::clone(&self.inner), part.clone(), request.clone());
            let work = async move { inner.commit_part_copy(part, request, source, described).await };
            if let Some(result) = self.inner.run(work).await? {
                return Ok(result);
            }
        }
        Err(StoreError::Busy)
    }

    /// MD5, where the tag is to be one, and checksum of an object; read as a whole if its row lacks one of them. Nothing when it is not any more what it was.
    async fn described(
        &self,
        source: &CopySource,
        row: &ObjectRow,
        algorithm: ChecksumAlgorithm,
    ) -> Result<Option<Digests>, StoreError> {
        let wants_md5 = self.inner.config.etag == EtagKind::Md5;
        let known_md5 = match row.etag {
            Etag::Md5(md5) if wants_md5 => Some(md5),
            _ => None,
        };
        let known_checksum = full_checksum(row, algorithm).and_then(|_| checksum_of(&row.checksums, algorithm));
        match known_checksum {
            Some(checksum) if known_md5.is_some() == wants_md5 => {
                Ok(Some(Digests { md5: known_md5, checksums: vec![checksum] }))
            }
            _ => self.digest(source, row, (wants_md5, algorithm), None).await,
        }
    }

    async fn copy_range(
        &self,
        part: UploadPart,
        request: &UploadPartCopy,
        range: Option<RangeRequest>,
        keys: CopyKeys,
    ) -> Result<PartResult, StoreError> {
        let _turn = self.byte_copy_turn().await;
        let (body, _, unread) = self.source_body(&request.source, range, keys.source).await?;
        let checked = self.inner.check_part(&part)?;
        let body = ObjectBody { encrypt: keys.target.map(Box::new), ..body };
        unread.rather_than(self.store_part(part, body, checked).await)
    }
}

/// A part that is to be committed.
struct NewPart<'a> {
    part: &'a UploadPart,
    /// Who began its upload.
    creator: Option<String>,
    size: u64,
    tag: PartTag,
    checksums: &'a [Checksum],
    salt: Option<Salt>,
}

impl Inner {
    /// Whether a part may be put, by number and upload.
    fn check_part(&self, request: &UploadPart) -> Result<(Wanted, Option<Box<Encryption>>), StoreError> {
        if !(1..=PART_NUMBER_MAX).contains(&request.part_number) {
            return Err(StoreError::InvalidPartNumber);
        }
        let upload = self.upload_to_change(&request.target)?;
        Ok((Wanted::of(&upload), upload.attributes.encryption))
    }

    async fn commit_part(
        &self,
        request: UploadPart,
        mut collected: Collected,
        salt: Option<Salt>,
    ) -> Result<PartResult, StoreError> {
        let _guards = self
            .locks
            .lock(&[
                (Lockable::Bucket(&request.target.bucket), Mode::Shared),
                (Lockable::Upload(request.target.upload), Mode::Shared),
                (Lockable::Part(request.target.upload, request.part_number), Mode::Exclusive),
            ])
            .await;
        let creator = self.upload_to_change(&request.target)?.attributes.creator;
        collected.kept.reserved = self.part_room(&request, creator.as_deref(), collected.size).await?;
        let (data, record) = match collected.content {
            Content::Inline(pieces) => (Data::Record, pieces),
            Content::Stored(extents) => (Data::Extents(extents), Vec::new()),
        };
        let crc64 = if record.is_empty() { 0 } else { collected.crc64 };
        let tag = collected.tag.expect("it was not to be taken later");
        let part =
            NewPart { part: &request, creator, size: collected.size, tag, checksums: &collected.checksums, salt };
        let (mutation, result) = self.part_mutation(part, data);
        self.commit_with(&mutation, record, crc64, collected.kept).await?;
        Ok(result)
    }

    /// Nothing when the source is not any more what it was.
    async fn commit_part_copy(
        &self,
        part: UploadPart,
        request: UploadPartCopy,
        source: ObjectRow,
        described: Digests,
    ) -> Result<Option<PartResult>, StoreError> {
        let from = &request.source;
        let admitted = self.admit_record(&source).await?;
        let _guards = self
            .locks
            .lock(&[
                (Lockable::Bucket(&from.bucket), Mode::Shared),
                (Lockable::Bucket(&part.target.bucket), Mode::Shared),
                (Lockable::Object(&from.bucket, &from.key), Mode::Shared),
                (Lockable::Upload(part.target.upload), Mode::Shared),
                (Lockable::Part(part.target.upload, part.part_number), Mode::Exclusive),
            ])
            .await;
        let creator = self.upload_to_change(&part.target)?.attributes.creator;
        let Some(source) = self.source_now(from, source.seq)? else { return Ok(None) };
        let extents = extents_of(&*self.index.snapshot(), &source.layout)?;
        let data = Data::Extents(extents.clone());
        let tag = described.md5.map_or_else(|| PartTag::Crc64(crc64_of(&extents)), PartTag::Md5);
        let reserved = self.part_room(&part, creator.as_deref(), source.size).await?;
        let checksums = &described.checksums;
        let new = NewPart { part: &part, creator, size: source.size, tag, checksums, salt: None };
        let (mutation, result) = self.part_mutation(new, data);
        self.commit_reserved(&mutation, &extents, Some(admitted), reserved).await?;
        self.metrics.copies_by_reference.add(1);
        Ok(Some(result))
    }

    /// Room for a part, where that is limited.
    async fn part_room(
        &self,
        part: &UploadPart,
        creator: Option<&str>,
        size: u64,
    ) -> Result<Option<Box<Reserved>>, StoreError> {
        let configs = self.bucket_configs(&part.target.bucket)?;
        match self.limits(&configs, creator)? {
            Some(limits) => Ok(Some(Box::pin(self.reserve_part(limits, part, &configs, creator, size)).await?)),
            None => Ok(None),
        }
    }

    fn part_mutation(&self, new: NewPart<'_>, data: Data) -> (Mutation, PartResult) {
        let NewPart { part, creator, size, tag, checksums, salt } = new;
        let modified_ms = self.env.clock.now_ms();
        let checksums = body::stored_full(checksums);
        let mutation = Mutation::PutPart(Box::new(PutPartMutation {
            upload: part.target.upload,
            part_number: part.part_number,
            size,
            tag,
            modified_ms,
            checksums: checksums.clone(),
            data,
            salt,
            counts: Some(CountsFor { bucket: part.target.bucket.as_str().to_owned(), creator }),
        }));
        (mutation, PartResult { etag: tag.etag(), size, modified_ms, checksums, encryption: None })
    }
}
