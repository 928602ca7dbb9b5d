//! Quotas: how much a bucket, all buckets of an account, and what a user made, may hold.
//!
//! The store asks here what is limited and decides, exactly, when something is committed (`gabion_store::QuotaKeeper`). What can not fit by the
//! size that a request says is refused before its body is asked for as well, as a courtesy; by then it is known who asks, and that he may.

use std::sync::{Arc, Weak};

use gabion_store::{Configs, Limit, Limits, QuotaKeeper, StoreError, UploadPart, UploadRef};

use super::call::Call;
use super::objects::WRITE_OFFSET;
use super::route::Operation;
use super::settings::BucketSettings;
use crate::credentials::{CredentialStore, Identity, Principal};
use crate::error::{S3Code, S3Error};
use crate::iam::Quota;
use crate::ops::{Ops, part_number};

/// Name of the document of a bucket's quota.
pub(crate) const NAME: &str = "quota";

/// A document of a bucket's quota.
pub(crate) fn parse(document: &[u8]) -> Result<Quota, S3Error> {
    serde_json::from_slice(document).map_err(|_| S3Code::InternalError.into())
}

/// Tells the store what is limited. It is held by the store, which users are held in: so it holds them loosely.
pub(crate) struct Keeper(Weak<dyn CredentialStore>);

impl Keeper {
    pub(super) fn new(credentials: &Arc<dyn CredentialStore>) -> Self {
        Self(Arc::downgrade(credentials))
    }
}

impl QuotaKeeper for Keeper {
    fn limits(&self, bucket: &Configs, creator: Option<&str>) -> Result<Limits, StoreError> {
        let unknown = |what: &str| StoreError::Internal(format!("{what} can not be read"));
        let settings = BucketSettings::of(bucket);
        let of_bucket = match &settings.quota {
            None => Quota::default(),
            Some(Ok(quota)) => *quota,
            Some(Err(_)) => return Err(unknown("the quota of a bucket")),
        };
        let credentials = self.0.upgrade().ok_or_else(|| unknown("quotas"))?;
        let mut limits = Limits { bucket: limit(of_bucket), ..Limits::default() };
        if credentials.has_quotas() {
            limits.account = bucket.owner().map(|owner| limit(credentials.quota(owner))).unwrap_or_default();
            limits.user = creator.map(|user| limit(credentials.user_quota(user))).unwrap_or_default();
        }
        Ok(limits)
    }
}

fn limit(quota: Quota) -> Limit {
    Limit { bytes: quota.bytes, objects: quota.objects }
}

/// Whose what he makes is, where users are limited: his own, if he is a user. What the root or a role makes is no user's.
pub(super) fn creator(caller: &Identity) -> Option<String> {
    match &caller.principal {
        Principal::User { id, .. } => Some(id.clone()),
        Principal::Anonymous | Principal::Root | Principal::AssumedRole { .. } => None,
    }
}

/// Refuses what its size says is too much.
///
/// # Errors
/// `QuotaExceeded`; those of the store.
pub(super) fn look(ops: &Ops, call: &Call, operation: Operation) -> Result<(), S3Error> {
    if !matches!(operation, Operation::PutObject | Operation::UploadPart) || !is_limited(ops, call)? {
        return Ok(());
    }
    // What is appended counts for whose object it is: that is for the store to say.
    if operation == Operation::PutObject && call.header(WRITE_OFFSET)?.is_some() {
        return Ok(());
    }
    let number = |name| Ok::<_, S3Error>(call.header(name)?.and_then(|length| length.parse().ok()));
    let bytes = match number("x-amz-decoded-content-length")? {
        Some(bytes) => bytes,
        None => number("content-length")?.unwrap_or(0),
    };
    if operation == Operation::PutObject {
        return look_at(ops, call, bytes);
    }
    let target = UploadRef { bucket: call.bucket()?, key: call.key()?, upload: call.upload()? };
    let part = UploadPart { target, part_number: part_number(call.query().text("partNumber")?)? };
    Ok(ops.store.check_part_room(&part, bytes)?)
}

/// The same for an object of at least so many bytes.
///
/// # Errors
/// See [`look`].
pub(super) fn look_at(ops: &Ops, call: &Call, bytes: u64) -> Result<(), S3Error> {
    if is_limited(ops, call)? {
        let creator = creator(call.caller());
        ops.store.check_room(&call.bucket()?, &call.key()?, creator.as_deref(), bytes)?;
    }
    Ok(())
}

/// Whether there may be a quota that counts.
fn is_limited(ops: &Ops, call: &Call) -> Result<bool, S3Error> {
    Ok(call.settings(ops)?.quota.is_some() || ops.credentials.has_quotas())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_understood_restricts() {
        assert!(parse(b"{\"bytes\":1}").is_ok() && parse(b"{\"byts\":1}").is_err());
    }
}
