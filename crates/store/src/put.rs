//! PutObject.

use std::sync::Arc;

use gabion_metadata::{
    Table, Value, keys,
    rows::{Attributes, Etag},
};

use crate::{
    ObjectBody, PutObject, PutResult, Store, StoreError,
    body::{self, Collected, Content, Tagging},
    locks::{Lockable, Mode},
    mutation::{Data, Mutation, PutObjectMutation},
    sealed::Seal,
    store::Inner,
};

impl Store {
    /// Stores an object, replacing the current one; durable and visible when it resolves. Dropping the future before the body
    /// has ended, or while it waits for room under a quota, stores nothing; later it is finished all the same.
    ///
    /// # Errors
    /// `NoSuchBucket`, `PreconditionFailed`, `NoSuchKey` (by `If-Match`), `EntityTooLarge`, `BadDigest`, `Body`, `QuotaExceeded`,
    /// `NoSpace`, `Busy`, `Unavailable`, `Key`.
    pub fn put_object(
        &self,
        request: PutObject,
        body: ObjectBody,
    ) -> impl Future<Output = Result<PutResult, StoreError>> + Send {
        self.put_into(request, body, None)
    }

    /// The same, if the bucket is still the one that it was `before`.
    pub(crate) fn put_into(
        &self,
        mut request: PutObject,
        mut body: ObjectBody,
        before: Option<Value>,
    ) -> impl Future<Output = Result<PutResult, StoreError>> + Send {
        // No `async fn`: the future of one holds its arguments twice, as they came and as they are used, and those of what it awaits likewise.
        let inner = &self.inner;
        // A first look spares the client the body; what counts is the look under the lock.
        let looked = inner.check_write(&request, before.as_ref());
        async move {
            let bucket = looked?;
            request.attributes.encryption = None;
            let seal = match body.encrypt.take() {
                None => None,
                Some(encrypt) => {
                    let (encryption, data_key) =
                        Box::pin(inner.new_encryption(&encrypt, &request.bucket, &request.key)).await?;
                    let seal = Seal::new(inner, &encryption, data_key, 0)?;
                    request.attributes.encryption = Some(encryption);
                    Some(seal)
                }
            };
            let mut collected = body::collect(inner, body, None, Tagging::Late, seal).await?;
            inner.look_for_current(&request)?;
            // As a rule there is nothing left to wait for but the log (and room, at the edge of a quota), which finishes by itself what it was given: no task has to outlive the client.
            if let Content::Inline(_) = collected.content
                && let Some(guards) = inner.locks.try_lock(&places(&request))
            {
                inner.require_open()?;
                inner.check_write(&request, Some(&bucket))?;
                collected.kept.guards = guards;
                return inner.store_object(&mut request, collected).await;
            }
            Box::pin(inner.store_waiting(request, collected, bucket)).await
        }
    }
}

impl Inner {
    /// Whether the bucket is there, the same as `before`, and the conditions hold; gives its row.
    fn check_write(&self, request: &PutObject, before: Option<&Value>) -> Result<Value, StoreError> {
        let bucket = self.same_bucket(&request.bucket, before)?;
        if request.conditions.is_some() {
            let current = self.object(&request.bucket, &request.key)?;
            request.conditions.check(current.as_ref().map(|row| &row.etag))?;
        }
        Ok(bucket)
    }

    /// Looks for the row that is replaced, if there is one. Batches are applied to the index one after the other; here others look for theirs at the same time. As a rule
    /// the row cache has it, or knows that there is none, when it is wanted there.
    fn look_for_current(&self, request: &PutObject) -> Result<(), StoreError> {
        self.index.get(Table::Object, &keys::object(&request.bucket, &request.key))?;
        Ok(())
    }

    /// Stores an object of which somebody else holds the lock, or that is large, in a task of its own.
    async fn store_waiting(
        self: &Arc<Self>,
        mut request: PutObject,
        mut collected: Collected,
        bucket: Value,
    ) -> Result<PutResult, StoreError> {
        let inner = Arc::clone(self);
        let work = async move {
            collected.kept.guards = inner.locks.lock(&places(&request)).await;
            inner.check_write(&request, Some(&bucket))?;
            inner.store_object(&mut request, collected).await
        };
        self.run(work).await
    }

    /// Commits an object whose bytes were taken in; what is kept holds the locks. As [`Inner::commit_with`].
    pub(crate) fn store_object<'a>(
        &'a self,
        request: &'a mut PutObject,
        mut collected: Collected,
    ) -> impl Future<Output = Result<PutResult, StoreError>> + Send + 'a {
        let modified_ms = self.env.clock.now_ms();
        async move {
            let checksums = body::stored_full(&collected.checksums);
            let (data, record) = match collected.content {
                Content::Inline(pieces) => (Data::Record, pieces),
                Content::Stored(extents) => (Data::Extents(extents), Vec::new()),
            };
            let crc64 = if record.is_empty() { 0 } else { collected.crc64 };
            let late = collected.tag.is_none().then(|| self.late_md5s.later(record.clone()));
            let etag = collected.tag.map_or(Etag::Md5([0; 16]), |tag| tag.etag());
            let encryption = request.attributes.encryption.clone();
            // As it is under the lock: it changes only when nobody writes into the bucket.
            let configs = self.bucket_configs(&request.bucket)?;
            let (versioning, creator) = (configs.versioning(), request.attributes.creator.as_deref());
            if let Some(limits) = self.limits(&configs, creator)? {
                let place = (&request.bucket, &request.key);
                let reserved = Box::pin(self.reserve_object(limits, place, &configs, creator, collected.size));
                collected.kept.reserved = Some(reserved.await?);
            }
            drop(configs);
            let mutation = Mutation::PutObject(Box::new(PutObjectMutation {
                bucket: request.bucket.as_str().to_owned(),
                key: request.key.as_str().to_owned(),
                modified_ms,
                size: collected.size,
                etag: etag.clone(),
                attributes: tidy(std::mem::take(&mut request.attributes)),
                checksums: checksums.clone(),
                data,
                parts: Vec::new(),
                kind: versioning.kind(),
            }));
            let committed = self.commit_lacking(&mutation, late.as_ref(), record, crc64, collected.kept).await?;
            let etag = late.map_or(etag, |md5| Etag::Md5(self.late_md5s.take(&md5)));
            let (seq, size) = (committed.seq, collected.size);
            let version = versioning.version(seq);
            Ok(PutResult { etag, seq, version, size, modified_ms, checksums, parts_count: None, encryption })
        }
    }
}

/// The locks of a put.
fn places(request: &PutObject) -> [(Lockable<'_>, Mode); 2] {
    let object = Lockable::Object(&request.bucket, &request.key);
    [(Lockable::Bucket(&request.bucket), Mode::Shared), (object, Mode::Exclusive)]
}

/// Attributes in the form in which rows hold them: the default storage class is no attribute.
pub(crate) fn tidy(mut attributes: Attributes) -> Attributes {
    attributes.storage_class = attributes.storage_class.filter(|class| class != "STANDARD");
    attributes
}
