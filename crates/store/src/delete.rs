//! DeleteObject and DeleteObjects.

use std::sync::Arc;

use gabion_metadata::Table;
use gabion_metadata::rows::{Attributes, ObjectRow, Retention, RetentionMode, VersionKind};
use gabion_types::{BucketName, ObjectKey, Seq};

use crate::{
    DeleteObject, Deleted, EtagMatch, Store, StoreError, VersionId, WriteConditions,
    in_flight::Kept,
    locks::{Guards, Lockable, Mode},
    mutation::{DeleteObjectMutation, DeleteVersionMutation, Mutation, PutMarkerMutation, Taken},
    store::Inner,
    versions,
};

impl Store {
    /// Deletes the current object, if there is one, or a version; in a bucket that keeps versions, a delete marker takes the place of what is
    /// current. A version that is locked stays.
    ///
    /// # Errors
    /// `NoSuchBucket`; `AccessDenied` for a version that is locked; `PreconditionFailed`, or `NoSuchKey` when a tag is asked for and there is no object; `Busy`,
    /// `Unavailable`. A full disk is no hindrance.
    pub async fn delete_object(&self, bucket: BucketName, request: DeleteObject) -> Result<Deleted, StoreError> {
        let inner = &self.inner;
        // As for a put: no task has to outlive the client.
        if let Some(guards) = inner.locks.try_lock(&places(&bucket, &request)) {
            inner.require_open()?;
            return inner.commit_delete(&bucket, &request, guards).await;
        }
        Box::pin(inner.delete_waiting(bucket, request)).await
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
    /// Deletes an object of which somebody else holds the lock, in a task of its own.
    async fn delete_waiting(
        self: &Arc<Self>,
        bucket: BucketName,
        request: DeleteObject,
    ) -> Result<Deleted, StoreError> {
        let inner = Arc::clone(self);
        let work = async move {
            let guards = inner.locks.lock(&places(&bucket, &request)).await;
            inner.commit_delete(&bucket, &request, guards).await
        };
        self.run(work).await
    }

    async fn commit_delete(
        &self,
        bucket: &BucketName,
        request: &DeleteObject,
        guards: Guards,
    ) -> Result<Deleted, StoreError> {
        let kept = Kept { guards, ..self.holds.hold().into() };
        match (request.version, self.bucket_configs(bucket)?.versioning().marker_kind()) {
            (Some(version), _) => Box::pin(self.delete_version(bucket, request, version, kept)).await,
            (None, Some(kind)) => Box::pin(self.put_marker(bucket, request, kind, kept)).await,
            (None, None) => {
                let (existed, taken) = self.current_to_delete(bucket, request)?;
                let seq = if existed || self.is_uncertain() {
                    Some(self.delete_null(bucket, request, taken, kept).await?)
                } else {
                    None
                };
                Ok(Deleted { existed, version: None, is_marker: false, seq })
            }
        }
    }

    /// Whether there is a current object to be deleted, if it may be, and what goes with it.
    fn current_to_delete(
        &self,
        bucket: &BucketName,
        request: &DeleteObject,
    ) -> Result<(bool, Option<Taken>), StoreError> {
        let found = self.object(bucket, &request.key)?;
        let existed = self.check_delete(bucket, request, found.as_ref())?;
        Ok((existed, found.and_then(|row| self.taken_with(&row))))
    }

    /// What goes with an object that leaves its key; nothing when it is not all known: what came of a commit whose outcome is unknown may lie anywhere, and of segments that can not be read
    /// the index may lack what is older.
    pub(crate) fn taken_with(&self, row: &ObjectRow) -> Option<Taken> {
        let is_known = !self.is_uncertain() && !self.apply.must_carry_all();
        Taken::with(row, self.apply.snapshot_unknown()).filter(|_| is_known)
    }

    /// Whether there is what is to be deleted, if it may be.
    fn check_delete(
        &self,
        bucket: &BucketName,
        request: &DeleteObject,
        found: Option<&ObjectRow>,
    ) -> Result<bool, StoreError> {
        if found.is_none() {
            self.require_bucket(bucket)?;
        }
        if found.is_none() && request.if_match == Some(EtagMatch::Any) {
            return Err(StoreError::PreconditionFailed("If-Match"));
        }
        let conditions = WriteConditions { if_none_match: None, if_match: request.if_match.clone() };
        conditions.check(found.map(|row| &row.etag))?;
        let is_of_second = |row: &ObjectRow, ms: u64| row.modified_ms / 1000 == ms / 1000;
        if let Some(row) = found
            && (request.if_size.is_some_and(|size| size != row.size)
                || request.if_modified_ms.is_some_and(|ms| !is_of_second(row, ms)))
        {
            return Err(StoreError::PreconditionFailed("size or time"));
        }
        if request.if_seq.is_some_and(|seq| found.is_none_or(|row| row.seq != seq)) {
            return Err(StoreError::PreconditionFailed("seq"));
        }
        Ok(found.is_some())
    }

    /// There is no `null` version any more.
    async fn delete_null(
        &self,
        bucket: &BucketName,
        request: &DeleteObject,
        taken: Option<Taken>,
        kept: Kept,
    ) -> Result<Seq, StoreError> {
        let mutation = Mutation::DeleteObject(DeleteObjectMutation {
            bucket: bucket.as_str().to_owned(),
            key: request.key.as_str().to_owned(),
            taken,
        });
        Ok(self.commit_with(&mutation, Vec::new(), 0, kept).await?.seq)
    }

    /// Deletes a version for good.
    async fn delete_version(
        &self,
        bucket: &BucketName,
        request: &DeleteObject,
        version: VersionId,
        kept: Kept,
    ) -> Result<Deleted, StoreError> {
        let index = self.index.snapshot();
        let found = versions::locate(&*index, bucket, &request.key, version)?;
        if let Some(found) = &found
            && request.if_noncurrent
            && (found.table == Table::Object || versions::is_newest(&*index, bucket, &request.key, &found.row)?)
        {
            return Err(StoreError::PreconditionFailed("noncurrent"));
        }
        let found = found.map(|found| found.row);
        // A version that is gone is deleted: no condition is about it.
        let existed = match &found {
            Some(row) => self.check_delete(bucket, request, Some(row))?,
            None => {
                self.require_bucket(bucket)?;
                false
            }
        };
        let is_marker = found.as_ref().is_some_and(|row| VersionKind::is_marker(row.kind));
        if let Some(row) = &found {
            check_lock(&row.attributes, self.env.clock.now_ms(), request.bypass_governance)?;
        }
        let seq = match version {
            _ if !existed && (version == VersionId::ELSEWHERE || !self.is_uncertain()) => None,
            VersionId::Null => Some(self.delete_null(bucket, request, None, kept).await?),
            VersionId::Of(seq) => {
                let mutation = Mutation::DeleteVersion(DeleteVersionMutation {
                    bucket: bucket.as_str().to_owned(),
                    key: request.key.as_str().to_owned(),
                    version: seq,
                });
                Some(self.commit_with(&mutation, Vec::new(), 0, kept).await?.seq)
            }
        };
        Ok(Deleted { existed, version: Some(version), is_marker, seq })
    }

    /// Makes a delete marker the newest version.
    async fn put_marker(
        &self,
        bucket: &BucketName,
        request: &DeleteObject,
        kind: VersionKind,
        kept: Kept,
    ) -> Result<Deleted, StoreError> {
        let current = self.object(bucket, &request.key)?;
        let existed = self.check_delete(bucket, request, current.as_ref())?;
        self.uncertain.require_known_bucket(bucket)?;
        let mutation = Mutation::PutMarker(Box::new(PutMarkerMutation {
            bucket: bucket.as_str().to_owned(),
            key: request.key.as_str().to_owned(),
            modified_ms: self.env.clock.now_ms(),
            kind,
            attributes: Attributes::default(),
        }));
        let committed = self.commit_with(&mutation, Vec::new(), 0, kept).await?;
        let version = if VersionKind::is_null(Some(kind)) { VersionId::Null } else { VersionId::Of(committed.seq) };
        Ok(Deleted { existed, version: Some(version), is_marker: true, seq: Some(committed.seq) })
    }
}

/// Whether a version may be deleted now.
///
/// # Errors
/// `AccessDenied` while it is retained or held.
pub(crate) fn check_lock(attributes: &Attributes, now_ms: u64, bypass_governance: bool) -> Result<(), StoreError> {
    const LOCKED: StoreError = StoreError::AccessDenied("Access Denied because object protected by object lock.");
    if attributes.legal_hold == Some(true) {
        return Err(LOCKED);
    }
    match attributes.retention {
        Some(Retention { until_ms, .. }) if until_ms <= now_ms => Ok(()),
        Some(Retention { mode: RetentionMode::Governance, .. }) if bypass_governance => Ok(()),
        Some(_) => Err(LOCKED),
        None => Ok(()),
    }
}
