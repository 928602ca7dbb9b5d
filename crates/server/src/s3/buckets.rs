//! Adapters of the operations on buckets themselves.

use bytes::Bytes;
use gabion_types::BucketName;
use gabion_types::limits::BUCKETS_MAX;
use http::header::LOCATION;
use http::{HeaderName, Response, StatusCode};
use s3s::Body;

use super::acl;
use super::answer;
use super::body::{self, DocumentDigests};
use super::call::Call;
use super::xml::{Xml, parse_create_bucket};
use super::{bucket_tags, date, object_lock, ownership};
use crate::access;
use crate::access::acl::Owners;
use crate::access::settings::OwnershipControls;
use crate::error::{S3Code, S3Error};
use crate::ops::{Ops, bucket, create_bucket, list_buckets};

const BUCKET_ARN: HeaderName = HeaderName::from_static("x-amz-bucket-arn");
const BUCKET_REGION: HeaderName = HeaderName::from_static("x-amz-bucket-region");
const ACCESS_POINT_ALIAS: HeaderName = HeaderName::from_static("x-amz-access-point-alias");
/// The region that GetBucketLocation shows as nothing.
const NAMELESS_REGION: &str = "us-east-1";

pub(super) async fn list(ops: &Ops, call: &Call) -> Result<Response<Body>, S3Error> {
    let query = call.query();
    let text = |name| Ok::<_, S3Error>(query.get(name)?.filter(|text| !text.is_empty()).map(str::to_owned));
    let request = list_buckets::Request {
        prefix: text("prefix")?,
        token: text("continuation-token")?,
        max: query.get("max-buckets")?.filter(|text| !text.is_empty()).map(max_buckets).transpose()?,
        region: text("bucket-region")?,
    };
    let account = &call.caller.account;
    let page = match call.caller.is_anonymous() {
        // Who has no account has no buckets: none is looked for.
        true => list_buckets::Response { buckets: Vec::new(), next_token: None, prefix: None, regions: false },
        false => list_buckets::run(ops, account, request).await?,
    };
    Ok(answer::document(Xml::document("ListAllMyBucketsResult", |xml| {
        xml.element("Owner", |xml| {
            xml.text("ID", &account.canonical_id);
            xml.text("DisplayName", &account.display_name);
        });
        xml.element("Buckets", |xml| {
            for bucket in &page.buckets {
                xml.element("Bucket", |xml| {
                    xml.text("Name", bucket.name.as_str());
                    xml.value("CreationDate", date::iso(bucket.created_ms));
                    xml.optional("BucketRegion", page.regions.then_some(&bucket.region));
                });
            }
        });
        xml.optional("ContinuationToken", page.next_token.as_deref());
        xml.optional("Prefix", page.prefix.as_deref());
    })))
}

/// How many buckets a page may have.
///
/// # Errors
/// `InvalidArgument`.
fn max_buckets(text: &str) -> Result<usize, S3Error> {
    let max = text.parse().ok().filter(|max| (1..=BUCKETS_MAX).contains(max));
    let message = "Argument max-buckets must be an integer between 1 and 10000.";
    max.ok_or_else(|| S3Error::argument("max-buckets", text, message))
}

pub(super) async fn create(ops: &Ops, call: &mut Call) -> Result<Response<Body>, S3Error> {
    let document = body::document(ops, call, DocumentDigests::Any).await?;
    let mut tags = None;
    let location = if document.is_empty() {
        None
    } else {
        let configuration = parse_create_bucket(&document)?;
        if configuration.bucket.is_some() || configuration.location.is_some() {
            return Err(S3Error::unsupported("directory bucket"));
        }
        tags = bucket_tags::of_creation(configuration.tags.unwrap_or_default())?;
        configuration.location_constraint.map(|constraint| constraint.as_str().to_owned())
    };
    let locks = object_lock::of_creation(call)?;
    let bucket = call.bucket()?;
    let owner = call.caller.account.canonical_id.clone();
    let said = ownership::requested(call)?;
    let acl = acl::requested(ops, call, Owners { own: &owner, bucket: &owner })?;
    let acl = ownership::check_new(said.unwrap_or(ops.object_ownership), acl, &owner)?;
    let documents = [
        said.map(|said| (access::OWNERSHIP, Bytes::from_static(said.as_str().as_bytes()))),
        acl.as_ref().map(|acl| (access::ACL, acl.encode().into())),
        tags.as_ref().map(|tags| (bucket_tags::NAME, tags.clone().into())),
    ];
    let of_locks = locks.then(object_lock::first_configs);
    let configs = documents.into_iter().flatten().chain(of_locks.into_iter().flatten()).collect();
    let request = create_bucket::Request { bucket: bucket.clone(), location, owner, configs };
    if !create_bucket::run(ops, request).await? {
        // It was there already, and stays as it is: who asks for something else must not be told that he got it.
        let settings = ops.settings(&bucket)?;
        let access = &settings.access;
        if locks && settings.object_lock.is_none() {
            return Err(S3Error::new(S3Code::BucketAlreadyExists).detail("BucketName", bucket.as_str()));
        }
        let is_so = said.is_none_or(|said| access.ownership == OwnershipControls::Said(said));
        return if is_so && access.acl == acl && tags.is_none() {
            Ok(created(answer::empty(StatusCode::OK), &bucket))
        } else {
            Err(S3Error::new(S3Code::BucketAlreadyExists).detail("BucketName", bucket.as_str()))
        };
    }
    Ok(created(answer::empty(StatusCode::OK), &bucket))
}

fn created(mut response: Response<Body>, bucket: &BucketName) -> Response<Body> {
    answer::set(&mut response, LOCATION, format!("/{bucket}"));
    answer::set(&mut response, BUCKET_ARN, arn(bucket));
    response
}

fn arn(bucket: &BucketName) -> String {
    format!("arn:aws:s3:::{bucket}")
}

pub(super) async fn head(ops: &Ops, call: &Call) -> Result<Response<Body>, S3Error> {
    let name = call.bucket()?;
    let bucket = bucket::head(ops, &name).await?;
    let mut response = answer::empty(StatusCode::OK);
    answer::set(&mut response, BUCKET_ARN, arn(&name));
    answer::set(&mut response, BUCKET_REGION, &bucket.region);
    answer::set(&mut response, ACCESS_POINT_ALIAS, "false");
    Ok(response)
}

pub(super) async fn location(ops: &Ops, call: &Call) -> Result<Response<Body>, S3Error> {
    let bucket = bucket::head(ops, &call.bucket()?).await?;
    Ok(answer::document(Xml::document("LocationConstraint", |xml| {
        if bucket.region != NAMELESS_REGION {
            xml.escaped(&bucket.region);
        }
    })))
}

pub(super) async fn delete(ops: &Ops, call: &Call) -> Result<Response<Body>, S3Error> {
    bucket::delete(ops, &call.bucket()?).await?;
    Ok(answer::empty(StatusCode::NO_CONTENT))
}
