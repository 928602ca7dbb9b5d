//! The tags of objects.
//!
//! Tags change without the object becoming another one: its row is logged again with them, as compaction logs a row that it moves
//! (docs/adr/0007), and refers to the bytes where they lie. So a rebuild finds them by the rule that it has for moves.

use std::sync::Arc;

use gabion_types::{BucketName, ObjectKey};

use crate::{
    Store, StoreError,
    copy::{copied_parts, extents_of},
    locks::{Lockable, Mode},
    mutation::{Data, MovedRow, Mutation, PutObjectMutation},
    store::Inner,
};

impl Store {
    /// The tags of the current object, in the order given.
    ///
    /// # Errors
    /// `NoSuchBucket`, `NoSuchKey`, `Unavailable`.
    pub async fn object_tags(&self, bucket: &BucketName, key: &ObjectKey) -> Result<Vec<(String, String)>, StoreError> {
        Ok(self.inner.require_object(bucket, key)?.1.attributes.tags)
    }

    /// Replaces the tags of the current object, durably; nothing else about it changes. The caller has checked them.
    ///
    /// # Errors
    /// `NoSuchBucket`, `NoSuchKey`, `NoSpace`, `Busy`, `Unavailable`; `InvalidRequest` for an object whose parts one mutation can not describe
    /// (some 100 GiB): its tags are given when it is uploaded.
    pub async fn put_object_tags(
        &self,
        bucket: BucketName,
        key: ObjectKey,
        tags: Vec<(String, String)>,
    ) -> Result<(), StoreError> {
        let inner = Arc::clone(&self.inner);
        self.inner.run(async move { inner.commit_tags(&bucket, &key, tags).await }).await
    }
}

impl Inner {
    async fn commit_tags(
        &self,
        bucket: &BucketName,
        key: &ObjectKey,
        tags: Vec<(String, String)>,
    ) -> Result<(), StoreError> {
        let object = Lockable::Object(bucket, key);
        let _guards = self.locks.lock(&[(Lockable::Bucket(bucket), Mode::Shared), (object, Mode::Exclusive)]).await;
        let (_, mut row) = self.require_object(bucket, key)?;
        let index = self.index.snapshot();
        let extents = extents_of(&*index, &row.layout)?;
        let parts = copied_parts(&*index, &row)?;
        let seq = row.seq;
        row.attributes.tags = tags;
        let tagged = PutObjectMutation::again(bucket, key, row, Data::Extents(extents.clone()), parts);
        let mutation = Mutation::moving(seq, MovedRow::Object(tagged));
        if !Mutation::fits(&mutation.encode()) {
            let message = "The object has too many parts for its tags to be changed; give them when it is uploaded.";
            return Err(StoreError::InvalidRequest(message.into()));
        }
        self.commit_referring(&mutation, &extents).await?;
        Ok(())
    }
}
