//! Adapters of the operations on a bucket's public access block.
//!
//! Source: AWS, "PutPublicAccessBlock".

use bytes::Bytes;
use gabion_store::ConfigScope;
use http::{Response, StatusCode};
use s3s::Body;
use s3s::dto::PublicAccessBlockConfiguration;

use super::answer;
use super::body;
use super::call::Call;
use super::xml::{Xml, parse_public_access_block};
use crate::access::PUBLIC_ACCESS;
use crate::access::settings::PublicAccessBlock;
use crate::error::{S3Code, S3Error};
use crate::ops::Ops;

pub(super) async fn get(ops: &Ops, call: &Call) -> Result<Response<Body>, S3Error> {
    let bucket = call.bucket()?;
    let none = || S3Error::new(S3Code::NoSuchPublicAccessBlockConfiguration).detail("BucketName", bucket.as_str());
    let block = ops.settings(&bucket)?.access.public_access.ok_or_else(none)?;
    Ok(answer::document(Xml::document("PublicAccessBlockConfiguration", |xml| {
        for (name, on) in block.switches() {
            xml.value(name, on);
        }
    })))
}

pub(super) async fn put(ops: &Ops, call: &mut Call) -> Result<Response<Body>, S3Error> {
    let document = body::required(ops, call).await?;
    let asked = parse_public_access_block(&document)?;
    if asked == PublicAccessBlockConfiguration::default() {
        return Err(S3Error::request("Must specify at least one configuration."));
    }
    let block = PublicAccessBlock::new(&asked);
    let scope = ConfigScope::Bucket(call.bucket()?);
    ops.store.put_config(scope, PUBLIC_ACCESS, Bytes::from(block.encode())).await?;
    Ok(answer::empty(StatusCode::OK))
}

pub(super) async fn delete(ops: &Ops, call: &Call) -> Result<Response<Body>, S3Error> {
    ops.store.delete_config(ConfigScope::Bucket(call.bucket()?), PUBLIC_ACCESS).await?;
    Ok(answer::empty(StatusCode::NO_CONTENT))
}
