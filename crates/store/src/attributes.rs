//! What is said about an object, and changes without the object becoming another one: tags, access control, retention.
//!
//! Its row is logged again with them, as compaction logs a row that it moves (docs/adr/0007), and refers to the bytes where they lie. So
//! a rebuild finds them by the rule that it has for moves.

use std::sync::Arc;

use gabion_metadata::rows::Attributes;
use gabion_types::{BucketName, ObjectKey};

use crate::{
    ObjectInfo, Store, StoreError, VersionId,
    copy::{copied_parts, extents_of},
    get::info,
    locks::{Lockable, Mode},
    mutation::{Data, MovedRow, Mutation, PutObjectMutation},
    store::Inner,
};

impl Store {
    /// What is known about the current object, or a version of it.
    ///
    /// # Errors
    /// `NoSuchBucket`, `NoSuchKey`, `NoSuchVersion`, `DeleteMarker`, `Unavailable`.
    pub async fn object_info(
        &self,
        bucket: &BucketName,
        key: &ObjectKey,
        version: Option<VersionId>,
    ) -> Result<ObjectInfo, StoreError> {
        Ok(info(&mut self.inner.require_version(bucket, key, version)?.row))
    }

    /// Changes what is said about the current object, or a version of it, durably; nothing else about it changes. `change` sees it under the
    /// object's lock, and may refuse; the caller has checked what it writes.
    ///
    /// # Errors
    /// Those of `change`; `NoSuchBucket`, `NoSuchKey`, `NoSuchVersion`, `DeleteMarker`, `NoSpace`, `Busy`, `Unavailable`; `InvalidRequest` for an
    /// object whose parts one mutation can not describe (some 100 GiB): what is said about it is said when it is uploaded.
    pub async fn update_attributes<F>(
        &self,
        bucket: BucketName,
        key: ObjectKey,
        version: Option<VersionId>,
        change: F,
    ) -> Result<ObjectInfo, StoreError>
    where
        F: FnOnce(&mut Attributes) -> Result<(), StoreError> + Send + 'static,
    {
        let inner = Arc::clone(&self.inner);
        self.inner.run(async move { inner.commit_attributes(&bucket, &key, version, change).await }).await
    }
}

impl Inner {
    async fn commit_attributes(
        &self,
        bucket: &BucketName,
        key: &ObjectKey,
        version: Option<VersionId>,
        change: impl FnOnce(&mut Attributes) -> Result<(), StoreError>,
    ) -> Result<ObjectInfo, StoreError> {
        let admitted = self.admit_record(&self.require_version(bucket, key, version)?.row).await?;
        let object = Lockable::Object(bucket, key);
        let _guards = self.locks.lock(&[(Lockable::Bucket(bucket), Mode::Shared), (object, Mode::Exclusive)]).await;
        let mut row = self.require_version(bucket, key, version)?.row;
        let index = self.index.snapshot();
        let extents = extents_of(&*index, &row.layout)?;
        let parts = copied_parts(&*index, &row)?;
        let before = row.attributes.clone();
        change(&mut row.attributes)?;
        if row.attributes == before {
            return Ok(info(&mut row));
        }
        let changed = PutObjectMutation::again(bucket, key, row.clone(), Data::Extents(extents.clone()), parts);
        let mutation = Mutation::moving(row.seq, MovedRow::Object(changed));
        if !Mutation::fits(&mutation.encode()) {
            let message =
                "The object has too many parts for what is said about it to be changed; say it when it is uploaded.";
            return Err(StoreError::InvalidRequest(message.into()));
        }
        self.commit_referring(&mutation, &extents, Some(admitted)).await?;
        Ok(info(&mut row))
    }
}
