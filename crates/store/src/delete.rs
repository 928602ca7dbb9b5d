//! DeleteObject and DeleteObjects.

use std::sync::Arc;

use gabion_types::{BucketName, ObjectKey};

use crate::{
    DeleteObject, Deleted, Store, StoreError, WriteConditions,
    in_flight::Kept,
    locks::{Guards, Lockable, Mode},
    mutation::{DeleteObjectMutation, Mutation},
    store::Inner,
};

impl Store {
    /// Deletes the current object, if there is one.
    ///
    /// # Errors
    /// `NoSuchBucket`; `PreconditionFailed`, or `NoSuchKey` when a tag is asked for and there is no object; `Busy`,
    /// `Unavailable`. A full disk is no hindrance.
    pub async fn delete_object(&self, bucket: BucketName, request: DeleteObject) -> Result<Deleted, StoreError> {
        let inner = &self.inner;
        // As for a put: no task has to outlive the client.
        if let Some(guards) = inner.locks.try_lock(&places(&bucket, &request)) {
            inner.require_open()?;
            return inner.commit_delete(&bucket, &request, guards).await;
        }
        let inner = Arc::clone(inner);
        let work = async move {
            let guards = inner.locks.lock(&places(&bucket, &request)).await;
            inner.commit_delete(&bucket, &request, guards).await
        };
        self.inner.run(work).await
    }

    /// Deletes many objects at once: their commits share stripes. The results are in the order of the requests.
    ///
    /// # Errors
    /// `NoSuchBucket`; what concerns one key is in its result.
    pub async fn delete_objects(
        &self,
        bucket: BucketName,
        requests: Vec<DeleteObject>,
    ) -> Result<Vec<(ObjectKey, Result<Deleted, StoreError>)>, StoreError> {
        self.inner.require_bucket(&bucket)?;
        let deletes = requests.into_iter().map(|request| {
            let (bucket, key) = (bucket.clone(), request.key.clone());
            async move { (key, self.delete_object(bucket, request).await) }
        });
        Ok(futures::future::join_all(deletes).await)
    }
}

/// The locks of a deletion.
fn places<'a>(bucket: &'a BucketName, request: &'a DeleteObject) -> [(Lockable<'a>, Mode); 2] {
    [(Lockable::Bucket(bucket), Mode::Shared), (Lockable::Object(bucket, &request.key), Mode::Exclusive)]
}

impl Inner {
    async fn commit_delete(
        &self,
        bucket: &BucketName,
        request: &DeleteObject,
        guards: Guards,
    ) -> Result<Deleted, StoreError> {
        let current = self.object(bucket, &request.key)?;
        if current.is_none() {
            self.require_bucket(bucket)?;
        }
        let conditions = WriteConditions { if_none_match_any: false, if_match: request.if_match.clone() };
        conditions.check(current.as_ref().map(|row| &row.etag))?;
        let existed = current.is_some();
        if !existed && !self.is_uncertain() {
            return Ok(Deleted { existed });
        }
        let mutation = Mutation::DeleteObject(DeleteObjectMutation {
            bucket: bucket.as_str().to_owned(),
            key: request.key.as_str().to_owned(),
        });
        self.commit_with(&mutation, Vec::new(), 0, Kept { guards, ..self.holds.hold().into() }).await?;
        Ok(Deleted { existed })
    }
}
