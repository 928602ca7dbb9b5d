//! Configurations that no bucket has here: tools ask for them before they do anything else, and are told what AWS tells of a bucket that
//! has none. Writing one is `NotImplemented`.
//!
//! Source: AWS, "Actions on general purpose buckets": GetBucketReplication, GetBucketAccelerateConfiguration, GetBucketAbac,
//! ListBucketAnalyticsConfigurations, ListBucketMetricsConfigurations, ListBucketIntelligentTieringConfigurations.

use http::Response;
use s3s::Body;

use super::answer;
use super::call::Call;
use super::xml::Xml;
use crate::error::{S3Code, S3Error};
use crate::ops::Ops;

/// Of a bucket that is not there nothing is told but that.
async fn require_bucket(ops: &Ops, call: &Call) -> Result<(), S3Error> {
    ops.store.head_bucket(&call.bucket()?).await?;
    Ok(())
}

/// GetBucketReplication.
pub(super) async fn replication(ops: &Ops, call: &Call) -> Result<Response<Body>, S3Error> {
    require_bucket(ops, call).await?;
    Err(S3Code::ReplicationConfigurationNotFoundError.into())
}

/// GetBucketAccelerateConfiguration: of a bucket that never had one there is no status.
pub(super) async fn acceleration(ops: &Ops, call: &Call) -> Result<Response<Body>, S3Error> {
    require_bucket(ops, call).await?;
    Ok(answer::document(Xml::document("AccelerateConfiguration", |_| {})))
}

/// GetBucketAbac.
pub(super) async fn abac(ops: &Ops, call: &Call) -> Result<Response<Body>, S3Error> {
    require_bucket(ops, call).await?;
    Ok(answer::document(Xml::document("AbacStatus", |xml| xml.text("Status", "Disabled"))))
}

/// A configuration of which a bucket may have many, each with an id.
pub(super) async fn one(ops: &Ops, call: &Call) -> Result<Response<Body>, S3Error> {
    require_bucket(ops, call).await?;
    Err(S3Code::NoSuchConfiguration.into())
}

/// A list of such; `root` is the document's name.
pub(super) async fn list(ops: &Ops, call: &Call, root: &str) -> Result<Response<Body>, S3Error> {
    require_bucket(ops, call).await?;
    Ok(answer::document(Xml::document(root, |xml| xml.value("IsTruncated", false))))
}
