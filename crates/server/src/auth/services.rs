//! Whether S3 itself may put something in a bucket for the sake of another one.
//!
//! An account may have it put in its own buckets, unless their policies deny it; in others' only where their policies allow the service
//! `s3.amazonaws.com` to, as on AWS; logs go to no others'. So no tenant has anything written into a bucket that is not his, unless its owner says so, and nobody
//! within an account has anything written where he may not write himself: who asks for it is asked for that.
//!
//! Source: AWS, "Granting permissions for Amazon S3 Inventory and Amazon S3 analytics"; "The confused deputy problem".

use gabion_policy::{Context, Outcome, Principal, Request};
use gabion_types::BucketName;

use crate::error::S3Error;
use crate::ops::Ops;
use crate::s3::date;

/// Who puts reports, as policies name it.
pub(crate) const REPORTS: &str = "s3.amazonaws.com";
/// Who puts logs.
pub(crate) const LOGS: &str = "logging.s3.amazonaws.com";

/// Whether the service may put something in a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// The bucket's policy says so.
    Allowed,
    /// Nothing is said of it, and the bucket is of the same account.
    Own,
    Denied,
}

/// Whether `service` may put `key` in `destination` for the sake of `source`.
///
/// # Errors
/// Those of the index.
pub(crate) fn delivery(
    ops: &Ops,
    service: &'static str,
    source: &BucketName,
    destination: &BucketName,
    key: &str,
) -> Result<Delivery, S3Error> {
    let (from, to) = (ops.settings(source)?, ops.settings(destination)?);
    let (Some(source_owner), Some(owner)) = (&from.access.owner, &to.access.owner) else { return Ok(Delivery::Denied) };
    let unsaid = if source_owner == owner { Delivery::Own } else { Delivery::Denied };
    let Some(stored) = &to.access.policy else { return Ok(unsaid) };
    // One that is not understood denies everything.
    let Some(policy) = &stored.policy else { return Ok(Delivery::Denied) };
    let now_ms = ops.clock.now_ms();
    let mut context = Context::default();
    context.add("aws:CurrentTime", date::iso(now_ms).to_string());
    context.add("aws:EpochTime", (now_ms / 1000).to_string());
    context.add("aws:SecureTransport", "true");
    context.add("aws:PrincipalIsAWSService", "true");
    context.add("aws:PrincipalServiceName", service);
    context.add("aws:SourceArn", format!("arn:aws:s3:::{source}"));
    context.add_optional("aws:SourceAccount", ops.account_id(source_owner));
    context.add_optional("aws:ResourceAccount", ops.account_id(owner));
    context.add_optional("s3:ResourceAccount", ops.account_id(owner));
    context.add("s3:x-amz-acl", "bucket-owner-full-control");
    let resource = format!("arn:aws:s3:::{destination}/{key}");
    let principal = Principal::Service { name: service };
    let request = Request { principal, action: "s3:PutObject", resource: &resource, context: &context };
    Ok(match policy.outcome(&request) {
        Outcome::Deny => Delivery::Denied,
        Outcome::Allow(_) => Delivery::Allowed,
        Outcome::Neutral => unsaid,
    })
}
