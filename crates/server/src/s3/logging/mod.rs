//! Server access logs: what was asked of a bucket, delivered as objects to another one of its owner's.
//!
//! `config` is what a bucket says, `record` writes a line, `delivery` gathers lines and stores them. Delivery is by best effort, as on AWS: lines wait in
//! memory, of bounded size, for a while, and are stored when the server stops; what a crash takes is gone. Only buckets with a
//! configuration pay. Source: AWS, "Logging requests with server access logging", "Amazon S3 server access log format".

mod config;
mod delivery;
mod record;

use http::{Response, StatusCode};
use s3s::Body;

use super::answer;
use super::body;
use super::call::Call;
use super::configs;
use super::xml::Xml;
use crate::auth::{self, Delivery, LOGS, may_put};
use crate::error::{S3Code, S3Error};
use crate::ops::Ops;

pub(crate) use config::Logging;
pub(crate) use delivery::Deliveries;
pub use delivery::{LogDeliveryFigures, LogDeliveryOptions};
pub(super) use record::{Also, AlsoDone, Draft};

/// The name of the document.
pub(super) const NAME: &str = "logging";

pub(super) async fn put(ops: &Ops, call: &mut Call) -> Result<Response<Body>, S3Error> {
    let document = body::required(ops, call).await?;
    let Some((logging, kept)) = Logging::parse(&document)? else {
        configs::delete(ops, call, NAME).await?;
        return Ok(answer::empty(StatusCode::OK));
    };
    let bucket = call.bucket()?;
    let source = ops.store.head_bucket(&bucket).await?;
    // Whose the target is, is all that a stranger learns of it.
    let target = ops.store.head_bucket(&logging.target).await.ok().filter(|target| target.owner == source.owner);
    let invalid =
        || S3Error::new(S3Code::InvalidTargetBucketForLogging).detail("TargetBucket", logging.target.as_str());
    if target.is_none() {
        return Err(invalid());
    }
    let now_ms = ops.clock.now_ms();
    let key = delivery::key(ops, &logging, &source.owner, &bucket, (now_ms, now_ms), "0")?;
    match auth::delivery(ops, LOGS, &bucket, &logging.target, key.as_str())? {
        Delivery::Denied => return Err(invalid()),
        Delivery::Own if !may_put(ops, call, &logging.target, &key)? => {
            let message = "You may have no logs put where you may not put objects, unless the target's policy lets logging.s3.amazonaws.com put them.";
            return Err(S3Error::with(S3Code::AccessDenied, message));
        }
        Delivery::Own | Delivery::Allowed => {}
    }
    configs::put(ops, call, NAME, kept).await
}

pub(super) async fn get(ops: &Ops, call: &Call) -> Result<Response<Body>, S3Error> {
    let none = || answer::document(Xml::document("BucketLoggingStatus", |_| {}));
    Ok(configs::get(ops, call, NAME).await?.unwrap_or_else(none))
}
