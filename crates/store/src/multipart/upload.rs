//! CreateMultipartUpload and AbortMultipartUpload.

use std::sync::Arc;

use gabion_metadata::rows::Attributes;
use gabion_types::UploadId;

use super::Wanted;
use crate::{
    CreateUpload, CreatedUpload, Encrypt, Store, StoreError, UploadRef,
    locks::{Lockable, Mode},
    mutation::{CreateUploadMutation, EndUploadMutation, Mutation},
    put::tidy,
    store::Inner,
};

impl Store {
    /// Begins an upload.
    ///
    /// # Errors
    /// `NoSuchBucket`, `InvalidRequest`, `NoSpace`, `Busy`, `Unavailable`.
    pub async fn create_upload(&self, request: CreateUpload) -> Result<UploadId, StoreError> {
        Ok(self.create_encrypted_upload(request, None).await?.upload)
    }

    /// Begins an upload whose parts are encrypted, if `encrypt` says how.
    ///
    /// # Errors
    /// As [`Store::create_upload`]; `Key`.
    pub async fn create_encrypted_upload(
        &self,
        request: CreateUpload,
        encrypt: Option<&Encrypt>,
    ) -> Result<CreatedUpload, StoreError> {
        let checksum = Wanted::asked(request.checksum)?;
        let inner = Arc::clone(&self.inner);
        let encryption = match encrypt {
            Some(encrypt) => Some(inner.new_encryption(encrypt, &request.bucket, &request.key).await?.0),
            None => None,
        };
        let upload = inner.new_upload_id();
        let mutation = Mutation::CreateUpload(Box::new(CreateUploadMutation {
            bucket: request.bucket.as_str().to_owned(),
            key: request.key.as_str().to_owned(),
            upload,
            created_ms: inner.env.clock.now_ms(),
            attributes: tidy(Attributes { encryption: encryption.clone(), ..request.attributes }),
            checksum_algorithm: checksum.map(|(algorithm, _)| algorithm.index()),
            checksum_kind: checksum.map(|(_, kind)| kind),
            owner: inner.config.owner.id.clone(),
        }));
        let work = async move {
            let _guards = inner.locks.lock(&[(Lockable::Bucket(&request.bucket), Mode::Shared)]).await;
            inner.require_bucket(&request.bucket)?;
            inner.uncertain.require_known_bucket(&request.bucket)?;
            inner.commit(&mutation).await?;
            Ok(CreatedUpload { upload, checksum, encryption })
        };
        self.inner.run(work).await
    }

    /// Ends an upload and drops its parts.
    ///
    /// # Errors
    /// `NoSuchBucket`, `NoSuchUpload`, `Busy`, `Unavailable`. A full disk is no hindrance.
    pub async fn abort_upload(&self, target: UploadRef) -> Result<(), StoreError> {
        let inner = Arc::clone(&self.inner);
        let work = async move {
            let upload = Lockable::Upload(target.upload);
            let bucket = Lockable::Bucket(&target.bucket);
            let _guards = inner.locks.lock(&[(bucket, Mode::Shared), (upload, Mode::Exclusive)]).await;
            inner.upload(&target)?;
            inner.uncertain.require_not_completed(target.upload)?;
            let mutation = Mutation::EndUpload(EndUploadMutation {
                bucket: target.bucket.as_str().to_owned(),
                key: target.key.as_str().to_owned(),
                upload: target.upload,
            });
            inner.commit(&mutation).await?;
            Ok(())
        };
        self.inner.run(work).await
    }
}

impl Inner {
    /// 48 bits of time, so that the uploads to a key are listed as they began, and 80 random ones.
    fn new_upload_id(&self) -> UploadId {
        let mut bytes = [0; 16];
        self.env.entropy.fill(&mut bytes[6..]);
        bytes[..6].copy_from_slice(&self.env.clock.now_ms().to_be_bytes()[2..]);
        UploadId::from_bytes(bytes)
    }
}
