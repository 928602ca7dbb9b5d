//! RenameObject: an object gets another key by one record, whatever its length. No byte moves (docs/adr/0006).
//!
//! The record says all about the object under its new key, and that the old one is left: both take effect, or neither. Both keys are locked
//! while it commits, so that nobody sees the object twice or not at all who looks at one point in time.

use std::sync::Arc;

use gabion_metadata::rows::{Encryption, EncryptionScheme, ObjectRow, Renamed};

use crate::{
    Encrypt, ObjectInfo, ReadConditions, RenameObject, Store, StoreError, Versioning,
    copy::{copied_parts, extents_of},
    delete::check_lock,
    get::info,
    locks::{Lockable, Mode},
    mutation::{Data, Mutation, PutObjectMutation, RenameObjectMutation},
    store::Inner,
};

/// How often it begins anew when the object changes under it.
const ATTEMPTS_MAX: usize = 8;

impl Store {
    /// Gives an object another key of its bucket, in place of what is there; durable and visible when it resolves. Nothing else about it changes,
    /// its time neither. What was done by a client's token is not done again as long as the object is there that it gave its key.
    ///
    /// # Errors
    /// `NoSuchBucket`, `NoSuchKey`; `PreconditionFailed`; `AccessDenied` for what is locked; `IdempotencyMismatch`; `InvalidRequest` in a bucket that keeps
    /// versions or did, for an object to itself, and for one whose parts one mutation can not describe (some 100 GiB); `Key`, `NoSpace`, `Busy`, `Unavailable`.
    pub async fn rename_object(&self, request: RenameObject) -> Result<ObjectInfo, StoreError> {
        if request.from == request.to {
            let message = "This rename request is illegal because it is trying to rename an object to itself.";
            return Err(StoreError::InvalidRequest(message.into()));
        }
        let request = Arc::new(request);
        for _ in 0..ATTEMPTS_MAX {
            let inner = Arc::clone(&self.inner);
            if let Some(done) = inner.renamed_before(&request)? {
                return Ok(done);
            }
            let source = inner.require_version(&request.bucket, &request.from, None)?.row;
            let encryption = inner.wrapped_for_new_key(&request, &source).await?;
            let shared = Arc::clone(&request);
            let work = async move { inner.commit_rename(&shared, source, encryption).await };
            if let Some(renamed) = self.inner.run(work).await? {
                return Ok(renamed);
            }
        }
        Err(StoreError::Busy)
    }
}

impl Inner {
    /// The object that this request gave its key before.
    fn renamed_before(&self, request: &RenameObject) -> Result<Option<ObjectInfo>, StoreError> {
        let Some(token) = &request.client_token else { return Ok(None) };
        let Some(mut row) = self.object(&request.bucket, &request.to)? else { return Ok(None) };
        match &row.attributes.renamed {
            Some(renamed) if renamed.token != *token => Ok(None),
            Some(renamed) if renamed.from == request.from.as_str() => Ok(Some(info(&mut row))),
            Some(_) => Err(StoreError::IdempotencyMismatch),
            None => Ok(None),
        }
    }

    /// How the object is encrypted under its new key: a data key is wrapped for one key of one bucket.
    async fn wrapped_for_new_key(
        &self,
        request: &RenameObject,
        row: &ObjectRow,
    ) -> Result<Option<Box<Encryption>>, StoreError> {
        let RenameObject { bucket, from, to, customer, .. } = request;
        self.check_customer(&row.attributes, bucket, from, customer.as_ref())?;
        let Some(encryption) = &row.attributes.encryption else { return Ok(None) };
        let data_key = self.unlock(encryption, bucket, from, customer.as_ref()).await?;
        let encrypt = Encrypt {
            scheme: encryption.scheme,
            customer: customer.clone(),
            // Of master keys the newest.
            key_id: encryption.key_id.clone().filter(|_| encryption.scheme == EncryptionScheme::KeyService),
            context: encryption.context.clone(),
            bucket_key: encryption.bucket_key,
        };
        let mut wrapped = self.wrapped(&encrypt, &data_key, bucket, to).await?;
        (wrapped.frame_bytes, wrapped.salt) = (encryption.frame_bytes, encryption.salt);
        Ok(Some(wrapped))
    }

    /// Nothing if the object is another one than `seen`.
    async fn commit_rename(
        &self,
        request: &RenameObject,
        seen: ObjectRow,
        encryption: Option<Box<Encryption>>,
    ) -> Result<Option<ObjectInfo>, StoreError> {
        let RenameObject { bucket, from, to, .. } = request;
        // Before the locks: compaction, which makes room, takes them as well.
        let admitted = self.admit_record(&seen).await?;
        let _guards = self
            .locks
            .lock(&[
                (Lockable::Bucket(bucket), Mode::Shared),
                (Lockable::Object(bucket, from), Mode::Exclusive),
                (Lockable::Object(bucket, to), Mode::Exclusive),
            ])
            .await;
        self.require_unversioned(bucket, "Objects can not be renamed in a bucket that keeps versions, or did.")?;
        if let Some(done) = self.renamed_before(request)? {
            return Ok(Some(done));
        }
        // Its bytes may have been moved since it was looked at.
        let mut row = self.require_version(bucket, from, None)?.row;
        if row.seq != seen.seq {
            return Ok(None);
        }
        request.source_conditions.check_copy(&row.etag, row.modified_ms).map_err(of_source)?;
        let now_ms = self.env.clock.now_ms();
        check_lock(&row.attributes, now_ms, false)?;
        let replaced = self.object(bucket, to)?;
        check_target(&request.target_conditions, replaced.as_ref())?;
        if let Some(replaced) = &replaced {
            check_lock(&replaced.attributes, now_ms, false)?;
        }

        let index = self.index.snapshot();
        let extents = extents_of(&*index, &row.layout)?;
        let parts = copied_parts(&*index, &row)?;
        row.attributes.encryption = encryption;
        row.attributes.renamed = request
            .client_token
            .as_ref()
            .map(|token| Box::new(Renamed { from: from.as_str().to_owned(), token: token.clone() }));
        let taken = self.taken_with(&row);
        let object = PutObjectMutation::again(bucket, to, row.clone(), Data::Extents(extents.clone()), parts);
        let from = from.as_str().to_owned();
        let mutation = Mutation::RenameObject(Box::new(RenameObjectMutation { from, object, taken }));
        if !Mutation::fits(&mutation.encode()) {
            let message = "The object has too many parts to be renamed; copy them, and delete it.";
            return Err(StoreError::InvalidRequest(message.into()));
        }
        row.seq = self.commit_referring(&mutation, &extents, Some(admitted)).await?.seq;
        self.metrics.renames.add(1);
        Ok(Some(info(&mut row)))
    }

    /// Refuses what there is no answer to where a key has versions.
    pub(crate) fn require_unversioned(
        &self,
        bucket: &gabion_types::BucketName,
        message: &'static str,
    ) -> Result<(), StoreError> {
        self.require_bucket(bucket)?;
        match self.bucket_configs(bucket)?.versioning() {
            Versioning::Never => Ok(()),
            Versioning::Enabled | Versioning::Suspended => Err(StoreError::InvalidRequest(message.into())),
        }
    }
}

/// Checks the conditions on what a renamed object would replace.
fn check_target(conditions: &ReadConditions, replaced: Option<&ObjectRow>) -> Result<(), StoreError> {
    match replaced {
        Some(row) => conditions.check_copy(&row.etag, row.modified_ms),
        None if conditions.if_match.is_some() => Err(StoreError::PreconditionFailed("If-Match")),
        None if conditions.if_modified_since_ms.is_some() => Err(StoreError::PreconditionFailed("If-Modified-Since")),
        None => Ok(()),
    }
}

/// Names the header of a condition that is on the source.
fn of_source(error: StoreError) -> StoreError {
    match error {
        StoreError::PreconditionFailed(header) => StoreError::PreconditionFailed(match header {
            "If-Match" => "x-amz-rename-source-If-Match",
            "If-None-Match" => "x-amz-rename-source-If-None-Match",
            "If-Modified-Since" => "x-amz-rename-source-If-Modified-Since",
            "If-Unmodified-Since" => "x-amz-rename-source-If-Unmodified-Since",
            other => other,
        }),
        error => error,
    }
}
