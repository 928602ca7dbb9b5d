//! CopyObject: by reference. A copy shares the extents of its source; no byte moves (docs/adr/0006).
//!
//! The source's key is locked (shared) while the copy commits: as long as the source's row is current, its segments are
//! live, and once the copy is applied, they are live by the copy.

use std::sync::Arc;

use futures::StreamExt;
use gabion_erasure::{ChecksumAlgorithm, Digester, Digests, combine_full_object, crc64_combine};
use gabion_metadata::{
    IndexSnapshot, ScanRange, Table, Value, keys,
    rows::{Attributes, ChecksumKind, Encryption, Layout, ManifestPage, ManifestPart, ObjectRow, Row, StoredChecksum},
};
use gabion_types::{
    Extent, Seq,
    limits::{INLINE_BYTES_MAX, LAYOUT_EXTENTS_MAX, PUT_BYTES_MAX},
};
use parking_lot::Mutex;
use tokio::sync::SemaphorePermit;

use crate::{
    BodyError, CopyKeys, CopyMetadata, CopyObject, CopyResult, CopySource, GetObject, KeyError, ObjectBody, PutObject,
    PutResult, RangeRequest, SecretKey, Store, StoreError, body,
    locks::{Lockable, Mode},
    multipart::checksum_of,
    mutation::{CopiedPart, Data, Mutation, PutObjectMutation},
    put::tidy,
    store::Inner,
};

/// How often a copy begins anew when its source changes under it.
const ATTEMPTS_MAX: usize = 8;

impl Store {
    /// Copies an object.
    ///
    /// # Errors
    /// As [`Store::put_object`] and [`Store::head_object`]; `InvalidRequest` for a copy to itself that changes nothing, and for a
    /// source above 5 GiB.
    pub async fn copy_object(&self, request: CopyObject) -> Result<CopyResult, StoreError> {
        self.copy_encrypted(request, CopyKeys::default()).await
    }

    /// Copies an object, where source or copy may be encrypted: by reference where one key serves both, else its bytes are opened and sealed anew.
    ///
    /// # Errors
    /// As [`Store::copy_object`]; `Key`.
    pub async fn copy_encrypted(&self, request: CopyObject, keys: CopyKeys) -> Result<CopyResult, StoreError> {
        let request = Arc::new(request);
        // That there is none is said after what is wrong with the source.
        let target = self.inner.index.get(Table::Bucket, &keys::bucket(&request.bucket))?;
        for _ in 0..ATTEMPTS_MAX {
            let source = self.copy_source(&request.source).await?;
            let CopySource { bucket, key, .. } = &request.source;
            self.inner.check_customer(&source.attributes, bucket, key, keys.source.as_ref())?;
            check_self_copy(&request, &source, &keys)?;
            check_size(source.size)?;
            let encryption = match self.shared_key(&request, &source, &keys).await? {
                SharedKey::Serves(encryption) => encryption,
                SharedKey::No => return self.copy_bytes(&request, &keys, target).await,
            };
            let Some(computed) = self.missing_checksum(&request, &source, &keys).await? else { continue };
            let (inner, shared, target_now) = (Arc::clone(&self.inner), Arc::clone(&request), target.clone());
            let work =
                async move { inner.commit_copy(&shared, target_now.as_ref(), source, computed, encryption).await };
            match self.inner.run(work).await? {
                Copied::Done(result) => return Ok(result),
                Copied::SourceChanged => {}
                Copied::TooManyParts => return self.copy_bytes(&request, &keys, target).await,
            }
        }
        Err(StoreError::Busy)
    }

    /// Whether a copy may share its source's bytes, and how it is encrypted then: with the source's data key, wrapped for the copy.
    async fn shared_key(
        &self,
        request: &CopyObject,
        source: &ObjectRow,
        keys: &CopyKeys,
    ) -> Result<SharedKey, StoreError> {
        let inner = &self.inner;
        let (encryption, encrypt) = match (&source.attributes.encryption, &keys.target) {
            (None, None) => return Ok(SharedKey::Serves(None)),
            (Some(encryption), Some(encrypt)) if inner.is_same_key(encryption, encrypt) => (encryption, encrypt),
            _ => return Ok(SharedKey::No),
        };
        let CopySource { bucket, key, .. } = &request.source;
        let data_key = match inner.unlock(encryption, bucket, key, encrypt.customer.as_ref()).await {
            // What the copy is to be encrypted with is another customer's key.
            Err(StoreError::Key(KeyError::Wrong)) => return Ok(SharedKey::No),
            data_key => data_key?,
        };
        let mut wrapped = inner.wrapped(encrypt, &data_key, &request.bucket, &request.key).await?;
        (wrapped.frame_bytes, wrapped.salt) = (encryption.frame_bytes, encryption.salt);
        Ok(SharedKey::Serves(Some(wrapped)))
    }

    /// The source's row, when it may be copied.
    pub(crate) async fn copy_source(&self, source: &CopySource) -> Result<ObjectRow, StoreError> {
        let found = self.inner.require_version(&source.bucket, &source.key, source.version);
        let row = found.map_err(as_source)?.row;
        source.conditions.check_copy(&row.etag, row.modified_ms)?;
        Ok(row)
    }

    /// The checksum that the copy must have and the source has not, if any; nothing when the source is not any more what it was.
    async fn missing_checksum(
        &self,
        request: &CopyObject,
        source: &ObjectRow,
        keys: &CopyKeys,
    ) -> Result<Option<Digests>, StoreError> {
        match request.checksum_algorithm.filter(|&algorithm| full_checksum(source, algorithm).is_none()) {
            None => Ok(Some(Digests::default())),
            Some(algorithm) => self.digest(&request.source, source, (false, algorithm), keys.source.clone()).await,
        }
    }

    /// Digests of an object, MD5 and a checksum, by reading it; nothing when it is not any more what it was. It may be again by the time of the commit, which could not tell.
    pub(crate) async fn digest(
        &self,
        source: &CopySource,
        row: &ObjectRow,
        (wants_md5, algorithm): (bool, ChecksumAlgorithm),
        customer: Option<SecretKey>,
    ) -> Result<Option<Digests>, StoreError> {
        let mut read = self.get_object(GetObject { customer, ..whole(source) }).await?;
        if read.info.seq != row.seq {
            return Ok(None);
        }
        let mut digester = Digester::new(false, &[algorithm]);
        let mut md5 = wants_md5.then(|| self.inner.md5s.begin());
        while let Some(bytes) = read.body.next().await {
            let bytes = bytes?;
            digester.update(&bytes);
            if let Some(md5) = &mut md5 {
                md5.update(&bytes).await;
            }
        }
        let md5 = match md5 {
            Some(md5) => Some(md5.finish().await),
            None => None,
        };
        Ok(Some(Digests { md5, ..digester.finish() }))
    }

    /// Copies by reading and writing: for a source with so many parts that one mutation can not describe them, and for one that is encrypted otherwise.
    async fn copy_bytes(
        &self,
        request: &CopyObject,
        keys: &CopyKeys,
        target: Option<Value>,
    ) -> Result<CopyResult, StoreError> {
        let _turn = self.byte_copy_turn().await;
        let (body, source, unread) = self.source_body(&request.source, None, keys.source.clone()).await?;
        let put = PutObject {
            bucket: request.bucket.clone(),
            key: request.key.clone(),
            attributes: copied_attributes(request, &source),
            conditions: request.conditions.clone(),
        };
        let mut compute: Vec<_> = request.checksum_algorithm.into_iter().collect();
        if compute.is_empty() {
            let algorithms = source.checksums.iter().map(|checksum| checksum.algorithm);
            compute.extend(algorithms.filter_map(ChecksumAlgorithm::from_index));
        }
        let body = ObjectBody { compute, encrypt: keys.target.clone().map(Box::new), ..body };
        let put = self.put_into(put, body, Some(target.ok_or(StoreError::NoSuchBucket)?));
        unread.rather_than(put.await)
    }

    /// Waits for a turn to copy bytes.
    pub(crate) async fn byte_copy_turn(&self) -> SemaphorePermit<'_> {
        self.inner.byte_copies.acquire().await.expect("the semaphore is never closed")
    }

    /// An object, or a range of it, as a body to be put; with its row, and why it could not be read to its end.
    pub(crate) async fn source_body(
        &self,
        source: &CopySource,
        range: Option<RangeRequest>,
        customer: Option<SecretKey>,
    ) -> Result<(ObjectBody, ObjectRow, Unread), StoreError> {
        let (row, read) = loop {
            let row = self.copy_source(source).await?;
            match range {
                Some(RangeRequest::Between(_, last)) if last >= row.size => {
                    return Err(StoreError::InvalidRange { size: row.size });
                }
                Some(_) => {}
                None => check_size(row.size)?,
            }
            let read = self.get_object(GetObject { range, customer: customer.clone(), ..whole(source) }).await?;
            // If another object came between: what is copied and what describes it are to be of one.
            if read.info.seq == row.seq {
                break (row, read);
            }
        };
        let unread = Unread::default();
        let told = unread.clone();
        let stream = read.body.map(move |bytes| {
            bytes.map_err(|error| {
                tracing::error!(%error, "the source of a copy can not be read");
                told.0.lock().get_or_insert(error);
                BodyError::Incomplete
            })
        });
        Ok((ObjectBody::from_stream(stream.boxed(), Some(read.len)), row, unread))
    }
}

/// Why the source of a copy could not be read to its end: that its bytes do not come is no fault of the client's.
#[derive(Clone, Default)]
pub(crate) struct Unread(Arc<Mutex<Option<StoreError>>>);

impl Unread {
    /// What came of the copy.
    pub(crate) fn rather_than<T>(self, outcome: Result<T, StoreError>) -> Result<T, StoreError> {
        match self.0.lock().take() {
            Some(error) if outcome.is_err() => Err(error),
            _ => outcome,
        }
    }
}

/// Whether a copy may share the bytes of its source.
enum SharedKey {
    /// Yes; how the copy is encrypted, if it is.
    Serves(Option<Box<Encryption>>),
    No,
}

/// What came of an attempt.
enum Copied {
    Done(PutResult),
    SourceChanged,
    TooManyParts,
}

impl Inner {
    /// The source of a copy as it is under the lock: its bytes may have been moved since it was looked at. Nothing if it is another one.
    pub(crate) fn source_now(&self, source: &CopySource, seq: Seq) -> Result<Option<ObjectRow>, StoreError> {
        match self.require_version(&source.bucket, &source.key, source.version) {
            Ok(now) => Ok(Some(now.row).filter(|row| row.seq == seq)),
            Err(
                StoreError::NoSuchBucket
                | StoreError::NoSuchKey
                | StoreError::NoSuchVersion(_)
                | StoreError::DeleteMarker { .. },
            ) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn commit_copy(
        &self,
        request: &CopyObject,
        target: Option<&Value>,
        source: ObjectRow,
        computed: Digests,
        encryption: Option<Box<Encryption>>,
    ) -> Result<Copied, StoreError> {
        let from = &request.source;
        let admitted = self.admit_record(&source).await?;
        let _guards = self
            .locks
            .lock(&[
                (Lockable::Bucket(&from.bucket), Mode::Shared),
                (Lockable::Bucket(&request.bucket), Mode::Shared),
                (Lockable::Object(&from.bucket, &from.key), Mode::Shared),
                (Lockable::Object(&request.bucket, &request.key), Mode::Exclusive),
            ])
            .await;
        self.same_bucket(&request.bucket, Some(target.ok_or(StoreError::NoSuchBucket)?))?;
        let Some(source) = self.source_now(from, source.seq)? else { return Ok(Copied::SourceChanged) };
        let current = self.object(&request.bucket, &request.key)?;
        request.conditions.check(current.as_ref().map(|row| &row.etag))?;

        let index = self.index.snapshot();
        let modified_ms = self.env.clock.now_ms();
        let parts = copied_parts(&*index, &source)?;
        let checksums = match request.checksum_algorithm {
            Some(_) if !computed.checksums.is_empty() => body::stored_full(&computed.checksums),
            Some(algorithm) => full_checksum(&source, algorithm).into_iter().cloned().collect(),
            None => copied_checksums(&source, &parts),
        };
        let extents = extents_of(&*index, &source.layout)?;
        if is_in_pieces(&source, &extents) {
            return Ok(Copied::TooManyParts);
        }
        let configs = self.bucket_configs(&request.bucket)?;
        let versioning = configs.versioning();
        let mutation = Mutation::PutObject(Box::new(PutObjectMutation {
            bucket: request.bucket.as_str().to_owned(),
            key: request.key.as_str().to_owned(),
            modified_ms,
            size: source.size,
            etag: source.etag.clone(),
            attributes: Attributes { encryption: encryption.clone(), ..copied_attributes(request, &source) },
            checksums: checksums.clone(),
            data: Data::Extents(extents.clone()),
            parts,
            kind: versioning.kind(),
        }));
        if !Mutation::fits(&mutation.encode()) {
            return Ok(Copied::TooManyParts);
        }
        let creator = request.creator.as_deref();
        let reserved = match self.limits(&configs, creator)? {
            Some(limits) => {
                let place = (&request.bucket, &request.key);
                Some(Box::pin(self.reserve_object(limits, place, &configs, creator, source.size)).await?)
            }
            None => None,
        };
        let committed = self.commit_reserved(&mutation, &extents, Some(admitted), reserved).await?;
        self.metrics.copies_by_reference.add(1);
        Ok(Copied::Done(PutResult {
            etag: source.etag,
            seq: committed.seq,
            version: versioning.version(committed.seq),
            size: source.size,
            modified_ms,
            checksums,
            parts_count: source.parts.map(|parts| parts.count),
            encryption,
        }))
    }
}

/// A delete marker can be no source, if it is named.
fn as_source(error: StoreError) -> StoreError {
    match error {
        StoreError::DeleteMarker { is_named: true, .. } => StoreError::InvalidRequest(
            "The source of a copy request may not specifically refer to a delete marker by version id.".into(),
        ),
        error => error,
    }
}

/// Asks for all of a source.
fn whole(source: &CopySource) -> GetObject {
    GetObject { version: source.version, ..GetObject::whole(source.bucket.clone(), source.key.clone()) }
}

/// The source of a copy, and of a part that is copied whole, is at most 5 GiB.
pub(crate) fn check_size(size: u64) -> Result<(), StoreError> {
    if size <= PUT_BYTES_MAX {
        return Ok(());
    }
    let message = "The specified copy source is larger than the maximum allowable size for a copy source: 5368709120";
    Err(StoreError::InvalidRequest(message.into()))
}

/// A copy of an object to itself must change something.
fn check_self_copy(request: &CopyObject, source: &ObjectRow, keys: &CopyKeys) -> Result<(), StoreError> {
    let is_same = request.source.bucket == request.bucket && request.source.key == request.key;
    let changes = match &request.metadata {
        CopyMetadata::Replace(_) => true,
        CopyMetadata::Copy { own } => **own != Attributes::default() || request.checksum_algorithm.is_some(),
    };
    let is_encrypted_otherwise = match (&source.attributes.encryption, &keys.target) {
        (None, None) => false,
        // Which of several keys it is, is for the copy to find out.
        (Some(before), Some(after)) => {
            before.scheme != after.scheme || after.key_id.is_some() || after.customer.is_some()
        }
        _ => true,
    };
    let is_asked = changes || keys.is_asked || request.tags.is_some() || request.is_version_named;
    if !is_same || is_asked || is_encrypted_otherwise {
        return Ok(());
    }
    let message = "This copy request is illegal because it is trying to copy an object to itself without changing the \
                   object's metadata, storage class, website redirect location or encryption attributes.";
    Err(StoreError::InvalidRequest(message.into()))
}

/// Those of the copy, but for its encryption: that is never the source's.
fn copied_attributes(request: &CopyObject, source: &ObjectRow) -> Attributes {
    let attributes = match &request.metadata {
        CopyMetadata::Replace(attributes) => (**attributes).clone(),
        CopyMetadata::Copy { own } => {
            let copied = source.attributes.clone();
            Attributes {
                content_type: copied.content_type,
                cache_control: copied.cache_control,
                content_disposition: copied.content_disposition,
                content_encoding: copied.content_encoding,
                content_language: copied.content_language,
                expires: copied.expires,
                user: copied.user,
                ..(**own).clone()
            }
        }
    };
    let tags = request.tags.as_ref().unwrap_or(&source.attributes.tags).clone();
    let (owner, acl, creator) = (request.owner.clone(), request.acl.clone(), request.creator.clone());
    tidy(Attributes { tags, owner, acl, creator, encryption: None, ..attributes })
}

/// A checksum of the full object that its row holds.
pub(crate) fn full_checksum(row: &ObjectRow, algorithm: ChecksumAlgorithm) -> Option<&StoredChecksum> {
    let is_it = |checksum: &&StoredChecksum| {
        checksum.algorithm == algorithm.index() && checksum.kind == ChecksumKind::FullObject
    };
    row.checksums.iter().find(is_it)
}

/// All extents of a layout.
pub(crate) fn extents_of(index: &dyn IndexSnapshot, layout: &Layout) -> Result<Vec<Extent>, StoreError> {
    match layout {
        Layout::Empty => Ok(Vec::new()),
        Layout::Extents(extents) => Ok(extents.clone()),
        Layout::Manifest(manifest) => {
            let rows = index.scan(ScanRange::prefix(Table::Manifest, &keys::manifest_pages(*manifest)), usize::MAX)?;
            let mut extents = Vec::new();
            for (_, page) in rows {
                extents.extend(ManifestPage::decode(&page)?.extents);
            }
            Ok(extents)
        }
    }
}

/// Whether a copy puts an object together that was appended to very often: it begins to count anew, and shall not bear what its source was made of.
fn is_in_pieces(source: &ObjectRow, extents: &[Extent]) -> bool {
    let is_many = extents.len() > LAYOUT_EXTENTS_MAX;
    is_many && source.attributes.appends.is_some() && source.size < extents.len() as u64 * INLINE_BYTES_MAX as u64
}

/// The CRC-64/NVME of what lies in `extents`, one after the other.
pub(crate) fn crc64_of(extents: &[Extent]) -> u64 {
    extents.iter().fold(0, |crc, extent| crc64_combine(crc, extent.crc64, extent.len.into()))
}

/// The checksums of a source as its copy has them. The copy of an upload was not uploaded in parts, so AWS gives it the checksum of the whole instead
/// of one of its parts' checksums; so it is here where that follows from them. Of the others the bytes would have to be read: they stay.
fn copied_checksums(source: &ObjectRow, parts: &[CopiedPart]) -> Vec<StoredChecksum> {
    let whole = |checksum: &StoredChecksum| {
        let algorithm = ChecksumAlgorithm::from_index(checksum.algorithm).filter(|_| !parts.is_empty())?;
        let of_part = |part: &CopiedPart| Some((checksum_of(&part.checksums, algorithm)?, part.size));
        combine_full_object(algorithm, &parts.iter().map(of_part).collect::<Option<Vec<_>>>()?)
    };
    let copied = source.checksums.iter().map(|checksum| match checksum.kind {
        ChecksumKind::FullObject => checksum.clone(),
        ChecksumKind::Composite => {
            whole(checksum).map_or_else(|| checksum.clone(), |whole| body::stored(&whole, ChecksumKind::FullObject))
        }
    });
    copied.collect()
}

/// The parts of a source, as its copy describes them.
pub(crate) fn copied_parts(index: &dyn IndexSnapshot, source: &ObjectRow) -> Result<Vec<CopiedPart>, StoreError> {
    let Some(parts) = source.parts else { return Ok(Vec::new()) };
    let rows = index.scan(ScanRange::prefix(Table::Manifest, &keys::manifest_parts(parts.manifest)), usize::MAX)?;
    let copied = rows.iter().map(|(_, row)| {
        let part = ManifestPart::decode(row)?;
        let salt = part.sealed.map(|sealed| sealed.salt);
        Ok(CopiedPart {
            part_number: part.part_number,
            size: part.size,
            tag: part.tag,
            checksums: part.checksums,
            salt,
        })
    });
    copied.collect()
}
