//! Adapters of the operations on bucket policies.
//!
//! Source: AWS, "Bucket policies for Amazon S3", "PutBucketPolicy", "GetBucketPolicyStatus".

use bytes::Bytes;
use gabion_policy::{Policy, PolicyError};
use gabion_store::ConfigScope;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response, StatusCode};
use s3s::Body;

use super::answer;
use super::body::{self, DocumentDigests};
use super::call::Call;
use super::configs;
use super::xml::Xml;
use crate::access::{self, BucketAccess, BucketPolicy};
use crate::error::{S3Code, S3Error};
use crate::ops::Ops;

impl From<PolicyError> for S3Error {
    fn from(error: PolicyError) -> Self {
        Self::with(S3Code::MalformedPolicy, error.message().to_owned())
    }
}

/// Policies are a matter of the bucket's account, whomever they let in.
///
/// # Errors
/// `MethodNotAllowed`.
fn check_account(ops: &Ops, call: &Call, method: &'static str) -> Result<(), S3Error> {
    let caller = call.caller();
    if caller.is_anonymous() || call.settings(ops)?.access.owner.as_ref() != Some(&caller.account.canonical_id) {
        let error = S3Error::new(S3Code::MethodNotAllowed);
        return Err(error.detail("Method", method).detail("ResourceType", "BUCKETPOLICY"));
    }
    Ok(())
}

pub(super) async fn get(ops: &Ops, call: &Call) -> Result<Response<Body>, S3Error> {
    check_account(ops, call, "GET")?;
    let bucket = call.bucket()?;
    let configs = ops.store.bucket_configs(&bucket)?;
    let stored = configs.get(access::POLICY);
    let stored =
        stored.ok_or_else(|| S3Error::new(S3Code::NoSuchBucketPolicy).detail("BucketName", bucket.as_str()))?;
    let mut response = Response::new(Body::from(Bytes::copy_from_slice(BucketPolicy::document(stored))));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

pub(super) async fn put(ops: &Ops, call: &mut Call) -> Result<Response<Body>, S3Error> {
    check_account(ops, call, "PUT")?;
    let document = body::document(ops, call, DocumentDigests::Any).await?;
    let bucket = call.bucket()?;
    let policy = Policy::parse(&document)?;
    policy.check_bucket(bucket.as_str())?;
    let stored = BucketPolicy::encode(&document);
    let is_public = policy.is_public();
    let judge = move |access: &BucketAccess| {
        let blocks = access.public_access.is_some_and(|block| block.block_policy);
        if is_public && blocks { Err(S3Code::AccessDenied.into()) } else { Ok(()) }
    };
    configs::put_judged(ops, bucket, access::POLICY, Bytes::from(stored), judge).await?;
    Ok(answer::empty(StatusCode::NO_CONTENT))
}

pub(super) async fn delete(ops: &Ops, call: &Call) -> Result<Response<Body>, S3Error> {
    check_account(ops, call, "DELETE")?;
    ops.store.delete_config(ConfigScope::Bucket(call.bucket()?), access::POLICY).await?;
    Ok(answer::empty(StatusCode::NO_CONTENT))
}

/// Whether the bucket is public, by its policy or its ACL.
pub(super) async fn status(ops: &Ops, call: &Call) -> Result<Response<Body>, S3Error> {
    let settings = ops.settings(&call.bucket()?)?;
    let access = &settings.access;
    let block = access.public_access.unwrap_or_default();
    let by_policy = access.policy.as_ref().is_some_and(|policy| policy.is_public) && !block.restrict;
    let has_acls = access.ownership.ownership(ops.object_ownership).has_acls() && !block.ignore_acls;
    let by_acl = has_acls && access.acl.as_ref().is_some_and(|acl| acl.is_public());
    Ok(answer::document(Xml::document("PolicyStatus", |xml| xml.value("IsPublic", by_policy || by_acl))))
}
