//! Adapters of the operations on a bucket's ownership controls.
//!
//! Source: AWS, "Controlling ownership of objects and disabling ACLs for your bucket".

use bytes::Bytes;
use gabion_store::ConfigScope;
use http::{Response, StatusCode};
use s3s::Body;

use super::answer;
use super::body;
use super::call::Call;
use super::configs;
use super::xml::{Xml, parse_ownership_controls};
use crate::access::acl::{Acl, Owners};
use crate::access::settings::REMOVED;
use crate::access::{BucketAccess, OWNERSHIP, Ownership};
use crate::error::{S3Code, S3Error};
use crate::ops::Ops;

/// What the header of CreateBucket asks for.
///
/// # Errors
/// `InvalidArgument`.
pub(super) fn requested(call: &Call) -> Result<Option<Ownership>, S3Error> {
    const HEADER: &str = "x-amz-object-ownership";
    let Some(name) = call.header(HEADER)? else { return Ok(None) };
    let invalid = || S3Error::argument(HEADER, name, format!("Invalid x-amz-object-ownership header: {name}"));
    Ownership::parse(name).map(Some).ok_or_else(invalid)
}

pub(super) async fn get(ops: &Ops, call: &Call) -> Result<Response<Body>, S3Error> {
    let bucket = call.bucket()?;
    let none = || S3Error::new(S3Code::OwnershipControlsNotFoundError).detail("BucketName", bucket.as_str());
    let ownership = ops.settings(&bucket)?.access.ownership.shown(ops.object_ownership).ok_or_else(none)?;
    Ok(answer::document(Xml::document("OwnershipControls", |xml| {
        xml.element("Rule", |xml| xml.text("ObjectOwnership", ownership.as_str()));
    })))
}

pub(super) async fn put(ops: &Ops, call: &mut Call) -> Result<Response<Body>, S3Error> {
    let document = body::required(ops, call).await?;
    let bucket = call.bucket()?;
    let malformed = || S3Error::new(S3Code::MalformedXML);
    let ownership = match &parse_ownership_controls(&document)?.rules[..] {
        [rule] => Ownership::parse(rule.object_ownership.as_str()).ok_or_else(malformed)?,
        _ => return Err(malformed()),
    };
    let judge = move |access: &BucketAccess| match (ownership.has_acls(), &access.acl, &access.owner) {
        (false, Some(acl), Some(owner)) if !acl.is_among(Owners { own: owner, bucket: owner }) => {
            Err(S3Code::InvalidBucketAclWithObjectOwnership.into())
        }
        _ => Ok(()),
    };
    configs::put_judged(ops, bucket, OWNERSHIP, Bytes::from_static(ownership.as_str().as_bytes()), judge).await?;
    Ok(answer::empty(StatusCode::OK))
}

/// A bucket whose controls were deleted is as buckets were before there were any, which is not as it is when nothing was said.
pub(super) async fn delete(ops: &Ops, call: &Call) -> Result<Response<Body>, S3Error> {
    let scope = ConfigScope::Bucket(call.bucket()?);
    ops.store.put_config(scope, OWNERSHIP, Bytes::from_static(REMOVED.as_bytes())).await?;
    Ok(answer::empty(StatusCode::NO_CONTENT))
}

/// The list of a bucket that is created: nothing when it is private.
///
/// # Errors
/// `InvalidBucketAclWithObjectOwnership` where lists do not count.
pub(super) fn check_new(ownership: Ownership, acl: Option<Acl>, owner: &str) -> Result<Option<Acl>, S3Error> {
    match acl.filter(|acl| *acl != Acl::private(owner)) {
        Some(_) if !ownership.has_acls() => Err(S3Code::InvalidBucketAclWithObjectOwnership.into()),
        acl => Ok(acl),
    }
}
