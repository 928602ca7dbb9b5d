//! What runs when a signature has been verified: the operation that was routed.

use std::sync::Arc;

use http::{Extensions, HeaderMap, HeaderValue, Method, Response, Uri};
use s3s::route::S3Route;
use s3s::{Body, S3, S3Request, S3Response, S3Result};

use super::answer::{self, About};
use super::call::Call;
use super::content::{Content, TakeTrailers, Waiting};
use super::request_id::RequestId;
use super::route::{Operation, Routed};
use super::{
    absent, acl, bucket_encryption, bucket_policy, bucket_tags, buckets, copies, cors, details, inventory, lifecycle,
    listing, logging, notifications, object_attributes, object_lock, objects, owners, ownership, payment, posts,
    public_access, quota, renames, tags, unsupported, uploads, versioning, website,
};
use crate::audit::Known;
use crate::auth::forms::FormKeys;
use crate::auth::sigv4::Framing;
use crate::auth::{self, Standing, session_token};
use crate::credentials::Identity;
use crate::error::{S3Code, S3Error};
use crate::ops::Ops;

/// Runs operations for those who were authenticated: by `crate::auth::sigv4`, or by s3s, which hands requests over as they are, so that
/// headers that it would read more strictly than AWS, and documents that it would write less faithfully, are ours to read and to write.
#[derive(Clone)]
pub(super) struct Dispatch {
    pub(super) ops: Arc<Ops>,
    /// Verifies forms.
    pub(super) forms: Arc<FormKeys>,
    /// Who sends what says nothing of its sender.
    pub(super) nobody: Arc<Identity>,
}

/// s3s wants it; no request gets there.
pub(super) struct Nowhere;

impl S3 for Nowhere {}

#[async_trait::async_trait]
impl S3Route for Dispatch {
    fn is_match(&self, _: &Method, _: &Uri, _: &HeaderMap, _: &mut Extensions) -> bool {
        true
    }

    /// Nobody is anonymous: [`Dispatch::call`] refuses with an answer of its own.
    async fn check_access(&self, _: &mut S3Request<Body>) -> S3Result<()> {
        Ok(())
    }

    async fn call(&self, mut request: S3Request<Body>) -> S3Result<S3Response<Body>> {
        let headless = request.method == Method::HEAD;
        let waiting = request.extensions.remove::<Waiting>();
        let routed = request.extensions.remove::<Routed>();
        let id = request.extensions.get::<RequestId>().copied();
        let request_id = id.as_ref().map(RequestId::as_str).unwrap_or_default();
        let about = About { resource: request.uri.path(), request_id, headless };
        // Without credentials nothing is told, not even whether there is such an operation.
        let admitted = routed.zip(waiting).ok_or_else(|| S3Error::new(S3Code::AccessDenied));
        let admitted = admitted.and_then(|(routed, waiting)| {
            let (caller, body) = (self.caller(&request, &routed)?, self.body(&request, &waiting)?);
            Ok((caller, body, routed))
        });
        let known = request.extensions.remove::<Arc<Known>>();
        let response = match admitted {
            Ok((caller, (body, take), routed)) => {
                if let Some(known) = &known {
                    known.caller.get_or_init(|| Arc::clone(&caller));
                }
                self.answer(&mut Call::new(routed, caller, request.headers, body, take), &about).await
            }
            Err(error) => answer::error(&error, &about),
        };
        let (parts, body) = response.into_parts();
        let mut response = S3Response::with_status(body, parts.status);
        response.headers = parts.headers;
        response.extensions = parts.extensions;
        Ok(response)
    }
}

impl Dispatch {
    /// Who sent a request that s3s has verified. The token was looked at before; what it says now counts.
    fn caller(&self, request: &S3Request<Body>, routed: &Routed) -> Result<Arc<Identity>, S3Error> {
        let Some(signed) = &request.credentials else { return Ok(Arc::clone(&self.nobody)) };
        let token = session_token(&request.headers, &routed.query)?;
        match self.ops.credentials.find(&signed.access_key, token) {
            Ok(credential) => Ok(credential.identity),
            Err(refusal) => Err(refusal.into()),
        }
    }

    /// The body of a request that s3s has verified, without its framing.
    fn body(&self, request: &S3Request<Body>, waiting: &Waiting) -> Result<(Content, Option<TakeTrailers>), S3Error> {
        let secret = request.credentials.as_ref().map(|signed| signed.secret_key.expose());
        // What can be framed in no way was refused before.
        let framing = Framing::of_verified(&request.headers, secret, &self.ops.region).ok_or(S3Code::InvalidRequest)?;
        Ok(waiting.unframed(framing))
    }

    /// Runs the operation; failures are answers too.
    pub(super) async fn answer(&self, call: &mut Call, about: &About<'_>) -> Response<Body> {
        let ops = &*self.ops;
        // What can not be looked up now can not be done either: the operation says so.
        let logged = logging::Draft::of(ops, call, about).unwrap_or_default();
        // Boxed, so that it takes little of the request's future while the operation runs.
        let watch = match notifications::Watch::of(ops, call, about) {
            // So does it when there is no such bucket.
            Err(error) if error.code == S3Code::NoSuchBucket => None,
            watch => watch.transpose().map(Box::new),
        };
        let outcome = match watch {
            None => self.run(call).await,
            Some(watch) => Box::pin(self.run_watched(call, *watch)).await,
        };
        let code = outcome.as_ref().err().map(|error| error.code.as_str());
        let mut response = outcome.unwrap_or_else(|error| answer::error(&details::add(ops, call, error), about));
        if let Some(mut logged) = logged {
            if call.is_form() {
                logged.learn(call);
            }
            ops.logs.log(ops, &logged, &response, code).await;
        }
        if call.is_charged {
            response.headers_mut().insert(payment::CHARGED, HeaderValue::from_static("requester"));
        }
        response
    }

    /// Runs an operation of which others are told: also if the client hangs up, as what has taken effect must be told.
    async fn run_watched(
        &self,
        call: &mut Call,
        watch: Result<Box<notifications::Watch>, S3Error>,
    ) -> Result<Response<Body>, S3Error> {
        let watch = watch?;
        let (dispatch, mut taken) = (self.clone(), call.take());
        taken.watch = Some(watch);
        let running = self.ops.apart.spawn(async move {
            let outcome = dispatch.run(&mut taken).await;
            (outcome, taken)
        });
        let Ok((outcome, taken)) = running.await else { return Err(S3Code::InternalError.into()) };
        *call = taken;
        outcome
    }

    /// Runs the operation, if it is allowed.
    ///
    /// # Errors
    /// Those of the operation, and `AccessDenied`.
    pub(super) async fn run(&self, call: &mut Call) -> Result<Response<Body>, S3Error> {
        let operation = match &call.routed.operation {
            // Nobody is not told what there is, only what is no request at all.
            Err(error) if call.caller.is_anonymous() && error.code == S3Code::NotImplemented => {
                return Err(S3Code::AccessDenied.into());
            }
            operation => operation.clone()?,
        };
        let ops = &*self.ops;
        unsupported::check(call)?;
        if operation == Operation::UploadPartCopy {
            copies::check_part(call)?;
        }
        let standing = match operation {
            // Who sends a form, and for what, stands in the form; and it is read first whether or not there is such a bucket, as on AWS.
            Operation::PostObject => Standing::Granted,
            _ => auth::authorize(ops, call, operation).await?,
        };
        match self.perform(call, operation).await {
            Err(error) if standing == Standing::Granted => Err(Box::pin(auth::hide(ops, call, operation, error)).await),
            outcome => outcome,
        }
    }

    /// Reads a page of a website. Whoever may read it is told when it is not there, also if he may not list the bucket, as on AWS.
    ///
    /// # Errors
    /// As [`Dispatch::run`].
    pub(super) async fn read_page(&self, call: &mut Call, operation: Operation) -> Result<Response<Body>, S3Error> {
        auth::authorize(&self.ops, call, operation).await?;
        self.perform(call, operation).await
    }

    /// Runs an operation that was allowed.
    async fn perform(&self, call: &mut Call, operation: Operation) -> Result<Response<Body>, S3Error> {
        let ops = &*self.ops;
        if call.has.extensions {
            owners::check(ops, call).await?;
        }
        let is_of_bucket = call.routed.bucket.is_some();
        if is_of_bucket && !matches!(operation, Operation::PreflightRequest | Operation::PostObject) {
            call.is_charged = payment::charges(ops, call).await?;
        }
        if operation != Operation::GetObject && operation != Operation::HeadObject && is_of_bucket {
            quota::look(ops, call, operation)?;
        }
        // Of a form it is not known yet which key it is about.
        if let Some(watch) = call.watch.as_ref().filter(|_| operation != Operation::PostObject) {
            watch.admit(ops, call)?;
        }
        // Beside the request's future, which is small that way: it is moved about.
        match operation {
            Operation::GetObject => objects::awaited(objects::get(ops, call)?).await,
            Operation::HeadObject => objects::awaited(objects::head(ops, call)?).await,
            Operation::PutObject => Box::pin(objects::put(ops, call)).await,
            Operation::DeleteObject => Box::pin(objects::delete(ops, call)).await,
            Operation::UploadPart => Box::pin(uploads::part(ops, call)).await,
            Operation::ListBuckets => Box::pin(buckets::list(ops, call)).await,
            Operation::CreateBucket => Box::pin(buckets::create(ops, call)).await,
            Operation::HeadBucket => Box::pin(buckets::head(ops, call)).await,
            Operation::DeleteBucket => Box::pin(buckets::delete(ops, call)).await,
            Operation::GetBucketLocation => Box::pin(buckets::location(ops, call)).await,
            Operation::PutBucketVersioning => Box::pin(versioning::put(ops, call)).await,
            Operation::ListObjectVersions => Box::pin(versioning::list(ops, call)).await,
            Operation::GetObjectLockConfiguration => Box::pin(object_lock::get(ops, call)).await,
            Operation::PutObjectLockConfiguration => Box::pin(object_lock::put(ops, call)).await,
            Operation::GetObjectRetention => Box::pin(object_lock::get_retention(ops, call)).await,
            Operation::PutObjectRetention => Box::pin(object_lock::put_retention(ops, call)).await,
            Operation::GetObjectLegalHold => Box::pin(object_lock::get_legal_hold(ops, call)).await,
            Operation::PutObjectLegalHold => Box::pin(object_lock::put_legal_hold(ops, call)).await,
            Operation::GetBucketVersioning => Box::pin(versioning::get(ops, call)).await,
            Operation::DeleteObjects => Box::pin(objects::delete_many(ops, call)).await,
            Operation::CopyObject => Box::pin(copies::copy(ops, call)).await,
            Operation::RenameObject => Box::pin(renames::rename(ops, call)).await,
            Operation::UploadPartCopy => Box::pin(copies::copy_part(ops, call)).await,
            Operation::ListObjects => Box::pin(listing::objects(ops, call)).await,
            Operation::ListObjectsV2 => Box::pin(listing::objects_v2(ops, call)).await,
            Operation::ListMultipartUploads => Box::pin(listing::uploads(ops, call)).await,
            Operation::CreateMultipartUpload => Box::pin(uploads::create(ops, call)).await,
            Operation::CompleteMultipartUpload => Box::pin(uploads::complete(ops, call)).await,
            Operation::AbortMultipartUpload => Box::pin(uploads::abort(ops, call)).await,
            Operation::ListParts => Box::pin(uploads::parts(ops, call)).await,
            Operation::GetObjectAttributes => Box::pin(object_attributes::get(ops, call)).await,
            Operation::GetBucketEncryption => Box::pin(bucket_encryption::get(ops, call)).await,
            Operation::PutBucketEncryption => Box::pin(bucket_encryption::put(ops, call)).await,
            Operation::DeleteBucketEncryption => Box::pin(bucket_encryption::delete(ops, call)).await,
            Operation::GetObjectTagging => Box::pin(tags::get(ops, call)).await,
            Operation::PutObjectTagging => Box::pin(tags::put(ops, call)).await,
            Operation::DeleteObjectTagging => Box::pin(tags::delete(ops, call)).await,
            Operation::PreflightRequest => {
                cors::preflight(ops, &call.bucket()?, call.headers(), call.routed.key.is_some())
            }
            Operation::GetBucketCors => Box::pin(cors::get(ops, call)).await,
            Operation::PutBucketCors => Box::pin(cors::put(ops, call)).await,
            Operation::DeleteBucketCors => Box::pin(cors::delete(ops, call)).await,
            Operation::GetBucketTagging => Box::pin(bucket_tags::get(ops, call)).await,
            Operation::PutBucketTagging => Box::pin(bucket_tags::put(ops, call)).await,
            Operation::DeleteBucketTagging => Box::pin(bucket_tags::delete(ops, call)).await,
            Operation::GetBucketWebsite => Box::pin(website::get(ops, call)).await,
            Operation::PutBucketWebsite => Box::pin(website::put(ops, call)).await,
            Operation::DeleteBucketWebsite => Box::pin(website::delete(ops, call)).await,
            Operation::GetBucketLogging => Box::pin(logging::get(ops, call)).await,
            Operation::PutBucketLogging => Box::pin(logging::put(ops, call)).await,
            Operation::GetBucketNotificationConfiguration => Box::pin(notifications::get(ops, call)).await,
            Operation::PutBucketNotificationConfiguration => Box::pin(notifications::put(ops, call)).await,
            Operation::GetBucketRequestPayment => Box::pin(payment::get(ops, call)).await,
            Operation::PutBucketRequestPayment => Box::pin(payment::put(ops, call)).await,
            Operation::GetBucketInventoryConfiguration => Box::pin(inventory::get(ops, call)).await,
            Operation::PutBucketInventoryConfiguration => Box::pin(inventory::put(ops, call)).await,
            Operation::DeleteBucketInventoryConfiguration => Box::pin(inventory::delete(ops, call)).await,
            Operation::ListBucketInventoryConfigurations => Box::pin(inventory::list(ops, call)).await,
            Operation::GetBucketLifecycleConfiguration => Box::pin(lifecycle::get(ops, call)).await,
            Operation::PutBucketLifecycleConfiguration => Box::pin(lifecycle::put(ops, call)).await,
            Operation::DeleteBucketLifecycle => Box::pin(lifecycle::delete(ops, call)).await,
            Operation::GetBucketReplication => Box::pin(absent::replication(ops, call)).await,
            Operation::GetBucketAccelerateConfiguration => Box::pin(absent::acceleration(ops, call)).await,
            Operation::GetBucketAbac => Box::pin(absent::abac(ops, call)).await,
            Operation::GetBucketAnalyticsConfiguration
            | Operation::GetBucketIntelligentTieringConfiguration
            | Operation::GetBucketMetricsConfiguration => Box::pin(absent::one(ops, call)).await,
            Operation::ListBucketAnalyticsConfigurations => {
                Box::pin(absent::list(ops, call, "ListBucketAnalyticsConfigurationResult")).await
            }
            Operation::ListBucketIntelligentTieringConfigurations => {
                Box::pin(absent::list(ops, call, "ListBucketIntelligentTieringConfigurationsOutput")).await
            }
            Operation::ListBucketMetricsConfigurations => {
                Box::pin(absent::list(ops, call, "ListMetricsConfigurationsResult")).await
            }
            Operation::GetBucketAcl => Box::pin(acl::get_of_bucket(ops, call)).await,
            Operation::PutBucketAcl => Box::pin(acl::put_of_bucket(ops, call)).await,
            Operation::GetObjectAcl => Box::pin(acl::get_of_object(ops, call)).await,
            Operation::PutObjectAcl => Box::pin(acl::put_of_object(ops, call)).await,
            Operation::GetBucketPolicy => Box::pin(bucket_policy::get(ops, call)).await,
            Operation::PutBucketPolicy => Box::pin(bucket_policy::put(ops, call)).await,
            Operation::DeleteBucketPolicy => Box::pin(bucket_policy::delete(ops, call)).await,
            Operation::GetBucketPolicyStatus => Box::pin(bucket_policy::status(ops, call)).await,
            Operation::GetPublicAccessBlock => Box::pin(public_access::get(ops, call)).await,
            Operation::PutPublicAccessBlock => Box::pin(public_access::put(ops, call)).await,
            Operation::DeletePublicAccessBlock => Box::pin(public_access::delete(ops, call)).await,
            Operation::GetBucketOwnershipControls => Box::pin(ownership::get(ops, call)).await,
            Operation::PutBucketOwnershipControls => Box::pin(ownership::put(ops, call)).await,
            Operation::DeleteBucketOwnershipControls => Box::pin(ownership::delete(ops, call)).await,
            Operation::RestoreObject => Box::pin(objects::restore(ops, call)).await,
            Operation::PostObject => Box::pin(posts::post(ops, &self.forms, call)).await,
        }
    }
}
