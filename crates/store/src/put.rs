//! PutObject.

use std::sync::Arc;

use gabion_metadata::rows::Attributes;

use crate::{
    ObjectBody, PutObject, PutResult, Store, StoreError,
    body::{self, Collected, Content},
    locks::{Lockable, Mode},
    mutation::{Data, Mutation, PutObjectMutation},
    store::Inner,
};

impl Store {
    /// Stores an object, replacing the current one; durable and visible when it resolves. Dropping the future before the body
    /// has ended stores nothing; later it is finished all the same.
    ///
    /// # Errors
    /// `NoSuchBucket`, `PreconditionFailed`, `NoSuchKey` (by `If-Match`), `EntityTooLarge`, `BadDigest`, `Body`, `NoSpace`, `Busy`,
    /// `Unavailable`.
    pub async fn put_object(&self, request: PutObject, body: ObjectBody) -> Result<PutResult, StoreError> {
        let inner = &self.inner;
        // A first look spares the client the body; what counts is the look under the lock.
        inner.check_write(&request)?;
        let collected = body::collect(inner, body, None).await?;
        let inner = Arc::clone(inner);
        self.inner.run(async move { inner.commit_put(request, collected).await }).await
    }
}

impl Inner {
    async fn commit_put(&self, request: PutObject, collected: Collected) -> Result<PutResult, StoreError> {
        let object = Lockable::Object(&request.bucket, &request.key);
        let _guards =
            self.locks.lock(&[(Lockable::Bucket(&request.bucket), Mode::Shared), (object, Mode::Exclusive)]).await;
        self.check_write(&request)?;
        self.store_object(request, collected).await
    }

    /// Whether the bucket is there and the conditions hold.
    fn check_write(&self, request: &PutObject) -> Result<(), StoreError> {
        self.require_bucket(&request.bucket)?;
        if request.conditions.if_none_match_any || request.conditions.if_match.is_some() {
            let current = self.object(&request.bucket, &request.key)?;
            request.conditions.check(current.as_ref().map(|row| &row.etag))?;
        }
        Ok(())
    }

    /// Commits an object whose bytes were taken in; the caller holds the locks.
    pub(crate) async fn store_object(&self, request: PutObject, collected: Collected) -> Result<PutResult, StoreError> {
        let (etag, modified_ms) = (collected.tag.etag(), self.env.clock.now_ms());
        let checksums = body::stored_full(&collected.checksums);
        let (data, record) = match collected.content {
            Content::Inline(pieces) => (Data::Record, pieces),
            Content::Stored(extents) => (Data::Extents(extents), Vec::new()),
        };
        let crc64 = if record.is_empty() { 0 } else { collected.crc64 };
        let mutation = Mutation::PutObject(Box::new(PutObjectMutation {
            bucket: request.bucket.as_str().to_owned(),
            key: request.key.as_str().to_owned(),
            modified_ms,
            size: collected.size,
            etag: etag.clone(),
            attributes: tidy(request.attributes),
            checksums: checksums.clone(),
            data,
            parts: Vec::new(),
        }));
        let committed = self.commit_with(&mutation, record, crc64, collected.hold).await?;
        Ok(PutResult { etag, seq: committed.seq, size: collected.size, modified_ms, checksums, parts_count: None })
    }
}

/// Attributes in the form in which rows hold them: the default storage class is no attribute.
pub(crate) fn tidy(mut attributes: Attributes) -> Attributes {
    attributes.storage_class = attributes.storage_class.filter(|class| class != "STANDARD");
    attributes
}
