//! Quotas: how much a bucket, or all buckets of an account, may hold.
//!
//! Looked at before a body is asked for, with the size that the request says, which a body can not exceed. What is admitted counts at once, so that requests
//! under way together do not go over; what there really is is looked up every second, and again before anything is refused. That an object is
//! replaced and frees its room is not counted in advance.

use std::collections::HashMap;

use gabion_store::{GetObject, ListBuckets, ListParts, UploadRef, Usage};
use gabion_types::BucketName;
use gabion_types::limits::BUCKETS_MAX;
use parking_lot::Mutex;

use super::call::Call;
use super::copies::source_name;
use super::route::Operation;
use crate::error::{S3Code, S3Error};
use crate::iam::Quota;
use crate::ops::Ops;

/// Name of the document of a bucket's quota.
pub(crate) const NAME: &str = "quota";
/// How long what was looked up counts, in milliseconds.
const KNOWN_MS: u64 = 1000;
/// Buckets and accounts whose usage is remembered; beyond them it is looked up anew.
const KNOWN_MAX: usize = 10_000;
/// Parts that are looked up at a time.
const PARTS_PAGE: usize = 1000;

/// A document of a bucket's quota.
pub(crate) fn parse(document: &[u8]) -> Result<Quota, S3Error> {
    serde_json::from_slice(document).map_err(|_| S3Code::InternalError.into())
}

/// What whole quotas are of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Of {
    Bucket(BucketName),
    /// The account with this canonical id.
    Account(String),
}

struct Known {
    at_ms: u64,
    usage: Usage,
}

/// What buckets and accounts with quotas hold, as far as that was looked up lately.
#[derive(Default)]
pub(crate) struct Usages(Mutex<HashMap<Of, Known>>);

/// Refuses what would go over a quota.
///
/// # Errors
/// `QuotaExceeded`; those of the store.
pub(super) async fn check(ops: &Ops, call: &Call, operation: Operation) -> Result<(), S3Error> {
    use Operation::{CompleteMultipartUpload, CopyObject, PostObject, PutObject, UploadPart, UploadPartCopy};
    let writes = matches!(
        operation,
        PutObject | PostObject | CopyObject | UploadPart | UploadPartCopy | CompleteMultipartUpload
    );
    if !writes {
        return Ok(());
    }
    let settings = call.settings(ops)?;
    let of_bucket = settings.quota.clone().transpose()?.unwrap_or_default();
    let owner = settings.access.owner.as_deref();
    let of_account = owner.map(|owner| ops.credentials.quota(owner)).unwrap_or_default();
    if of_bucket.is_unlimited() && of_account.is_unlimited() {
        return Ok(());
    }
    let more = Usage {
        objects: u64::from(!matches!(operation, UploadPart | UploadPartCopy)),
        bytes: size(ops, call, operation).await?,
    };
    if !of_bucket.is_unlimited() {
        admit(ops, Of::Bucket(call.bucket()?), of_bucket, more).await?;
    }
    match owner {
        Some(owner) if !of_account.is_unlimited() => admit(ops, Of::Account(owner.to_owned()), of_account, more).await,
        _ => Ok(()),
    }
}

/// How many bytes a request brings.
async fn size(ops: &Ops, call: &Call, operation: Operation) -> Result<u64, S3Error> {
    let number = |name| Ok::<_, S3Error>(call.header(name)?.and_then(|length| length.parse().ok()));
    match operation {
        Operation::CompleteMultipartUpload => {
            let target = UploadRef { bucket: call.bucket()?, key: call.key()?, upload: call.upload()? };
            let (mut bytes, mut after) = (0, 0);
            loop {
                let page = ops.store.list_parts(ListParts { target: target.clone(), after, max: PARTS_PAGE }).await?;
                bytes += page.parts.iter().map(|part| part.size).sum::<u64>();
                match page.next {
                    Some(next) => after = next,
                    None => return Ok(bytes),
                }
            }
        }
        Operation::CopyObject | Operation::UploadPartCopy => {
            let source = source_name(call)?;
            // That it is not there, or wants a key, is for the operation to say.
            let found = ops
                .store
                .head_object(GetObject { version: source.version, ..GetObject::whole(source.bucket, source.key) });
            Ok(found.await.map_or(0, |found| found.info.size))
        }
        _ => match number("x-amz-decoded-content-length")? {
            Some(bytes) => Ok(bytes),
            None => Ok(number("content-length")?.unwrap_or(0)),
        },
    }
}

async fn admit(ops: &Ops, of: Of, quota: Quota, more: Usage) -> Result<(), S3Error> {
    let now_ms = ops.clock.now_ms();
    {
        let mut known = ops.usages.0.lock();
        if let Some(known) = known.get_mut(&of)
            && now_ms.saturating_sub(known.at_ms) < KNOWN_MS
            && fits(known.usage, more, quota)
        {
            known.usage = sum(known.usage, more);
            return Ok(());
        }
    }
    let usage = look_up(ops, &of).await?;
    if !fits(usage, more, quota) {
        return Err(S3Code::QuotaExceeded.into());
    }
    let mut known = ops.usages.0.lock();
    if known.len() >= KNOWN_MAX {
        known.clear();
    }
    known.insert(of, Known { at_ms: now_ms, usage: sum(usage, more) });
    Ok(())
}

async fn look_up(ops: &Ops, of: &Of) -> Result<Usage, S3Error> {
    match of {
        Of::Bucket(bucket) => Ok(ops.store.usage(bucket)?),
        Of::Account(owner) => {
            let all = ListBuckets { prefix: None, after: None, max: BUCKETS_MAX, owner: Some(owner.clone()) };
            let mut total = Usage::default();
            for bucket in ops.store.list_buckets(all).await?.buckets {
                total = sum(total, ops.store.usage(&bucket.name)?);
            }
            Ok(total)
        }
    }
}

fn sum(one: Usage, other: Usage) -> Usage {
    Usage { objects: one.objects.saturating_add(other.objects), bytes: one.bytes.saturating_add(other.bytes) }
}

fn fits(usage: Usage, more: Usage, quota: Quota) -> bool {
    let after = sum(usage, more);
    quota.bytes.is_none_or(|most| after.bytes <= most) && quota.objects.is_none_or(|most| after.objects <= most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_holds_to_the_last_byte() {
        let usage = |objects, bytes| Usage { objects, bytes };
        let quota = |bytes, objects| Quota { bytes, objects };
        let table = [
            (quota(None, None), usage(u64::MAX, u64::MAX), true),
            (quota(Some(10), None), usage(9, 9), true),
            (quota(Some(10), None), usage(9, 10), false),
            (quota(None, Some(10)), usage(9, 100), true),
            (quota(None, Some(10)), usage(10, 0), false),
            (quota(Some(10), Some(0)), usage(0, 0), false),
        ];
        for (quota, used, expected) in table {
            assert_eq!(fits(used, usage(1, 1), quota), expected, "{quota:?} {used:?}");
        }
        assert!(parse(b"{\"bytes\":1}").is_ok() && parse(b"{\"byts\":1}").is_err(), "what is not understood restricts");
    }
}
