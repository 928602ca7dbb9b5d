//! Multipart uploads.
//!
//! A part is put under a shared lock of its upload, a completion or abort takes it alone: what a completion names can not change
//! under it, and no part is put into an upload that has ended.

mod checksums;
mod complete;
mod list;
mod part;
mod rules;
mod upload;

pub(crate) use checksums::{Wanted, checksum_of};

use gabion_metadata::{
    IndexError, Table, Value, keys,
    rows::{Row, UploadRow},
};

use crate::{StoreError, UploadRef, store::Inner};

impl Inner {
    /// The row of an upload; it must belong to the bucket and key that are named.
    pub(crate) fn upload(&self, target: &UploadRef) -> Result<UploadRow, StoreError> {
        self.upload_as(target, |row_key| self.index.get(Table::Upload, row_key))
    }

    /// The row of an upload that parts are put into, or that is completed: it must be certain that it, its parts and its bucket are there after the next start.
    fn upload_to_change(&self, target: &UploadRef) -> Result<UploadRow, StoreError> {
        let upload = self.upload(target)?;
        self.uncertain.require_known_bucket(&target.bucket)?;
        self.uncertain.require_known_upload(target.upload)?;
        Ok(upload)
    }

    /// The row of an upload, as `look` finds it.
    fn upload_as(
        &self,
        target: &UploadRef,
        look: impl FnOnce(&[u8]) -> Result<Option<Value>, IndexError>,
    ) -> Result<UploadRow, StoreError> {
        match look(&keys::upload(&target.bucket, &target.key, target.upload))? {
            Some(row) => Ok(UploadRow::decode(&row)?),
            None => {
                self.require_bucket(&target.bucket)?;
                Err(StoreError::NoSuchUpload)
            }
        }
    }
}
