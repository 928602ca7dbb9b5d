//! Whether a bucket keeps versions.
//!
//! Source: AWS, "Using versioning in S3 buckets".

use gabion_store::Versioning;
use http::Response;
use s3s::Body;

use super::answer;
use super::call::Call;
use super::xml::Xml;
use crate::error::S3Error;
use crate::ops::{Ops, bucket};

pub(super) async fn get(ops: &Ops, call: &Call) -> Result<Response<Body>, S3Error> {
    let bucket = call.bucket()?;
    bucket::head(ops, &bucket).await?;
    let status = match ops.settings(&bucket)?.versioning {
        Versioning::Never => None,
        kept => Some(kept.document()),
    };
    Ok(answer::document(Xml::document("VersioningConfiguration", |xml| xml.optional("Status", status))))
}
