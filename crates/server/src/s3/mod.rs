//! S3 on HTTP: from a request to an operation of `crate::ops` and back.
//!
//! A request passes `route` (what is asked for), `crate::auth` (checks that s3s lacks), then either `crate::auth::sigv4` (the
//! operations that are asked for most) or s3s (all others, and all that are refused) for signatures and the framing of
//! bodies, and `dispatch` (headers, queries and documents to values, values to answers). Errors before s3s, in s3s and
//! behind it look the same to a client. The body is not polled before the request was found good, so that a client that
//! waits for `100 Continue` sends it only then.

mod absent;
mod acl;
mod answer;
mod attributes;
mod body;
mod bucket_encryption;
mod bucket_policy;
mod bucket_tags;
mod buckets;
mod call;
mod checksums;
mod conditions;
mod configs;
mod content;
mod copies;
mod cors;
pub(crate) mod date;
mod details;
mod dispatch;
mod encryption;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod host;
mod inventory;
mod lifecycle;
mod listing;
mod logging;
pub(crate) mod notifications;
mod object_attributes;
mod object_lock;
mod objects;
mod own_objects;
mod owners;
mod ownership;
mod payment;
mod posts;
mod public_access;
mod query;
pub(crate) mod quota;
mod received;
mod renames;
mod request_id;
mod rfc2047;
mod route;
mod settings;
pub(crate) mod tags;
mod unsupported;
mod uploads;
mod versioning;
mod website;
pub(crate) mod xml;

use std::borrow::Cow;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use gabion_platform::{Clock, Entropy};
use gabion_store::{Encrypt, EncryptionScheme, Owner, Store};
use gabion_types::BucketName;
use http::header::{AUTHORIZATION, CONNECTION, EXPECT, ORIGIN, SERVER, USER_AGENT};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, Version};
use s3s::config::{S3Config, StaticConfigProvider};
use s3s::region::Region;
use s3s::service::S3ServiceBuilder;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use crate::access::Ownership;
use crate::audit::{AuditLog, Entry, Known};
use crate::auth::forms::FormKeys;
use crate::auth::sigv4::{Framing, Said, Verified};
use crate::auth::{self, Asked};
use crate::credentials::{CredentialStore, Identity};
use crate::documents::DocumentMemory;
use crate::error::{S3Code, S3Error};
use crate::http::{Answer, Handler, OperationName, Peer, ReadInto, RequestBody, take_head};
use crate::iam::Iam;
use crate::iam::http::{Front, is_query};
use crate::inventory::worker::Worker as InventoryWorker;
use crate::inventory::{Changes, InventoryFigures, InventoryOptions};
use crate::lifecycle::worker::Worker;
use crate::lifecycle::{LifecycleFigures, LifecycleOptions};
use crate::notifications::{NotificationOptions, Notifier};
use crate::ops::Ops;

pub(crate) use acl::requested as requested_acl;
use answer::{About, Rendered};
pub(crate) use call::Call;
use content::{Content, Waiting};
pub(crate) use copies::{SourceName, source_name};
pub(crate) use details::echo;
use dispatch::{Dispatch, Nowhere};
use host::Domains;
pub use host::check_domain;
pub(crate) use inventory::{INVENTORY, INVENTORY_RUN};
pub(crate) use listing::url_encoded;
pub(crate) use logging::Deliveries;
pub use logging::{LogDeliveryFigures, LogDeliveryOptions};
pub(crate) use object_lock::of_creation as makes_locks;
pub(crate) use own_objects::{OwnObject, put_own};
pub(crate) use query::Query;
use received::Received;
pub(crate) use renames::renamed_key;
use request_id::{RequestId, RequestIds};
pub(crate) use route::{Operation, Routed, decoded_path};
pub(crate) use settings::BucketSettings;
use website::Visit;
pub(crate) use xml::Xml;

const TRAILER: HeaderName = HeaderName::from_static("x-amz-trailer");
const REQUEST_ID: HeaderName = HeaderName::from_static("x-amz-request-id");
const SERVER_NAME: HeaderValue = HeaderValue::from_static("Gabion");

/// How S3 is spoken.
#[derive(Clone, Debug, Default)]
pub struct S3Options {
    /// The region: requests must be signed for it.
    pub region: String,
    /// Domains under which `bucket.domain` names a bucket (virtual-host style); any other host is path-style.
    pub domains: Vec<String>,
    /// Domains under which `bucket.domain` is the website of a bucket.
    pub website_domains: Vec<String>,
    /// Whether Signature Version 2 is accepted.
    pub sigv2: bool,
    /// Over which connections customers may show keys.
    pub customer_keys: CustomerKeys,
    /// How objects are encrypted of which neither request nor bucket says anything; nothing: not at all.
    pub default_encryption: Option<EncryptionScheme>,
    /// Whether the operations that are asked for most are verified by `auth::sigv4`; if not, s3s verifies all. The answers are the same.
    pub fast_path: bool,
    /// Whose objects are in buckets that do not say, and whether ACLs count in them.
    pub object_ownership: Ownership,
    /// Says who did what.
    pub audit: AuditLog,
    /// Counts what becomes of the logs of buckets.
    pub log_figures: LogDeliveryFigures,
    /// Who can be notified of what happens to objects.
    pub notifications: NotificationOptions,
}

/// Over which connections customers may show keys (SSE-C): else they are refused, as a key that went over the wire in the clear is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum CustomerKeys {
    /// Over TLS only, as on AWS.
    Encrypted,
    /// Also over connections that do not leave the machine, where a proxy for TLS may stand.
    #[default]
    Local,
    /// Over any: whatever is in front of the server sees to it.
    Any,
}

/// Why a service was not made.
#[derive(Debug, thiserror::Error)]
pub enum S3ServiceError {
    /// A domain is no host name.
    #[error("{0:?} is not a domain")]
    Domain(String),
    /// A region is not one.
    #[error("{0:?} is not the name of a region: lower-case letters, digits and hyphens")]
    Region(String),
}

/// Checks the name of a region.
///
/// # Errors
/// When it is none.
pub fn check_region(name: &str) -> Result<(), S3ServiceError> {
    region(name).map(drop)
}

fn region(name: &str) -> Result<Region, S3ServiceError> {
    name.parse().map_err(|_| S3ServiceError::Region(name.to_owned()))
}

/// The body of an answer.
pub type ResponseBody = s3s::Body;

/// Answers S3 requests from a store. Clones share it.
#[derive(Clone)]
pub struct S3Service {
    inner: Arc<Inner>,
}

struct Inner {
    /// Verifies and dispatches.
    s3s: s3s::service::S3Service,
    /// Verifies the operations that are asked for most.
    verifier: auth::sigv4::Verifier,
    fast_path: bool,
    dispatch: Dispatch,
    domains: Domains,
    /// Hosts of websites.
    websites: Domains,
    region: String,
    sigv2: bool,
    customer_keys: CustomerKeys,
    ids: RequestIds,
    /// Who sends what says nothing of its sender.
    nobody: Arc<Identity>,
    /// IAM and STS, if they are served.
    iam: Option<Front>,
    audit: AuditLog,
}

impl S3Service {
    /// Puts S3 in front of a store.
    ///
    /// # Errors
    /// When a domain or the region is malformed.
    pub fn new(
        store: Store,
        credentials: Arc<dyn CredentialStore>,
        options: S3Options,
        clock: Arc<dyn Clock>,
        entropy: &dyn Entropy,
    ) -> Result<Self, S3ServiceError> {
        Self::made(store, credentials, None, options, clock, entropy)
    }

    /// The same with users and policies, and with IAM and STS beside S3.
    ///
    /// # Errors
    /// See [`S3Service::new`].
    pub fn with_iam(
        store: Store,
        iam: Arc<Iam>,
        options: S3Options,
        clock: Arc<dyn Clock>,
        entropy: &dyn Entropy,
    ) -> Result<Self, S3ServiceError> {
        Self::made(store, Arc::clone(&iam) as _, Some(iam), options, clock, entropy)
    }

    fn made(
        store: Store,
        credentials: Arc<dyn CredentialStore>,
        iam: Option<Arc<Iam>>,
        options: S3Options,
        clock: Arc<dyn Clock>,
        entropy: &dyn Entropy,
    ) -> Result<Self, S3ServiceError> {
        let domains = Domains::new(&options.domains)?;
        let websites = Domains::new(&options.website_domains)?;
        let region = region(&options.region)?;
        let mut config = S3Config::default();
        config.expected_region = Some(region);
        config.enable_sig_v2 = options.sigv2;
        config.sig_v4_allowed_services = vec!["s3".into()];
        config.custom_route_max_body_size = None;
        // It may be missing, and s3s wants it: `by_s3s` puts it in. That nothing else is unsigned was checked before.
        config.unsigned_amz_header_allowlist = vec![TRAILER.as_str().to_owned()];
        let mut builder = S3ServiceBuilder::new(Nowhere);
        let forms = FormKeys::new(Arc::clone(&credentials), Arc::clone(&clock), &options.region, options.sigv2);
        let nobody = Arc::new(Identity::anonymous());
        let documents = DocumentMemory::default();
        let iam = iam.map(|iam| Front {
            iam,
            documents: documents.clone(),
            verifier: auth::sigv4::Verifier::new(Arc::clone(&credentials), Arc::clone(&clock), &options.region),
            region: options.region.clone(),
            nobody: Arc::clone(&nobody),
        });
        let verifier = auth::sigv4::Verifier::new(Arc::clone(&credentials), Arc::clone(&clock), &options.region);
        builder.set_auth(auth::Provider(Arc::clone(&credentials)));
        builder.set_config(Arc::new(StaticConfigProvider::new(Arc::new(config))));
        if !options.domains.is_empty() {
            builder.set_host(domains.clone());
        }
        let first = credentials.first_account();
        store.set_owner(Owner { id: first.canonical_id.clone(), display_name: first.display_name.clone() });
        store.set_quota_keeper(Arc::new(quota::Keeper::new(&credentials)));
        let ops = Ops {
            store,
            region: options.region.clone(),
            clock,
            logs: Deliveries::new(options.log_figures),
            inventories: Changes::default(),
            notifier: Notifier::new(options.notifications),
            documents,
            credentials,
            object_ownership: options.object_ownership,
            default_encryption: options.default_encryption.map(Encrypt::by),
            apart: TaskTracker::new(),
        };
        let ops = Arc::new(ops);
        let dispatch = Dispatch { ops, forms: Arc::new(forms), nobody: Arc::clone(&nobody) };
        builder.set_route(dispatch.clone());
        let inner = Inner {
            s3s: builder.build(),
            verifier,
            fast_path: options.fast_path,
            dispatch,
            domains,
            websites,
            region: options.region,
            sigv2: options.sigv2,
            customer_keys: options.customer_keys,
            ids: RequestIds::new(entropy),
            nobody,
            iam,
            audit: options.audit,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Waits for what goes on though its client is gone, when no more requests come.
    pub async fn finish(&self) {
        let apart = &self.inner.dispatch.ops.apart;
        apart.close();
        apart.wait().await;
    }

    /// Does what lifecycle rules ask for, until it is told to stop.
    pub async fn run_lifecycle(
        &self,
        options: LifecycleOptions,
        figures: Arc<LifecycleFigures>,
        stop: CancellationToken,
    ) {
        let worker = Worker { ops: Arc::clone(&self.inner.dispatch.ops), options, figures };
        worker.run(stop).await;
    }

    /// Holds lifecycle rules against all that is there once, now.
    ///
    /// # Errors
    /// When the walk could not come to its end.
    pub async fn apply_lifecycle(
        &self,
        options: LifecycleOptions,
        figures: Arc<LifecycleFigures>,
    ) -> Result<(), S3Error> {
        Worker { ops: Arc::clone(&self.inner.dispatch.ops), options, figures }.pass_now().await
    }

    /// Makes the inventories of buckets that are due, until it is told to stop.
    pub async fn run_inventory(
        &self,
        options: InventoryOptions,
        figures: Arc<InventoryFigures>,
        stop: CancellationToken,
    ) {
        InventoryWorker { ops: Arc::clone(&self.inner.dispatch.ops), options, figures }.run(stop).await;
    }

    /// Makes the inventories of buckets that are due, once, now.
    ///
    /// # Errors
    /// When not all buckets could be asked for theirs.
    pub async fn make_inventories(
        &self,
        options: InventoryOptions,
        figures: Arc<InventoryFigures>,
    ) -> Result<(), S3Error> {
        InventoryWorker { ops: Arc::clone(&self.inner.dispatch.ops), options, figures }.pass_now().await
    }

    /// Delivers the logs of buckets until it is told to stop, and what is left then.
    pub async fn run_log_delivery(&self, options: LogDeliveryOptions, stop: CancellationToken) {
        let ops = &self.inner.dispatch.ops;
        ops.logs.run(ops, options, stop).await;
    }

    /// Keeps and delivers notifications until it is told to stop. Requests that make some wait for it. To be called once.
    pub async fn run_notifications(&self, stop: CancellationToken) {
        let ops = &self.inner.dispatch.ops;
        ops.notifier.run(&ops.store, &ops.clock, stop).await;
    }

    /// Answers a request; failures are answers too. It is admitted, and noted for the audit log, at once, and goes on when the future is polled.
    pub fn call<B>(&self, request: Request<B>, peer: Peer) -> impl Future<Output = Response<ResponseBody>> + Send
    where
        B: ReadInto + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (mut parts, body) = request.into_parts();
        self.answer(&mut parts, body, peer).map(|answer| answer.response)
    }

    /// What is done before anything is waited for is done here, so that the future, which is moved about, holds only what comes after. What that needs of the head is
    /// taken out of it.
    fn answer<'a, B>(
        &'a self,
        parts: &mut Parts,
        body: B,
        peer: Peer,
    ) -> impl Future<Output = Answer<ResponseBody>> + Send + use<'a, B>
    where
        B: ReadInto + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let id = self.inner.ids.next();
        let headless = parts.method == Method::HEAD;
        let closable = parts.version < Version::HTTP_2;
        let expects = parts.headers.contains_key(EXPECT);
        let visit = self.visit(parts, peer, id);
        let from_page =
            parts.headers.contains_key(ORIGIN).then(|| self.asked_by_page(parts, peer, visit.as_ref())).flatten();
        let (body, received) = Received::watch(body);
        let mut operation = OperationName::UNKNOWN;
        let uri = parts.uri.clone();
        let mut heard = self.inner.audit.is_on().then(|| Box::new(Heard::of(&self.inner, parts, peer, id)));
        if let Some(heard) = &heard {
            parts.extensions.insert(Arc::clone(&heard.known));
        }
        let query = self.inner.iam.as_ref().filter(|_| visit.is_none() && is_query(parts));
        let mut next = match (visit, query) {
            (Some(visit), _) => {
                operation = OperationName("Website");
                if let Some(heard) = &heard {
                    heard.known.caller.get_or_init(|| Arc::clone(&visit.caller));
                }
                Next::Await(website::serve(&self.inner.dispatch, visit).boxed())
            }
            (None, Some(front)) => {
                let known = parts.extensions.get::<Arc<Known>>().cloned().unwrap_or_default();
                let (asked, parts) = (Arc::clone(&known), take_head(parts));
                Next::Query(known, async move { front.answer(parts, body, peer, id.as_str(), &asked).await }.boxed())
            }
            (None, None) => self.next(parts, body, peer, id, &mut operation),
        };
        if let Some(heard) = &heard {
            heard.expect(operation, &mut next);
        }
        async move {
            let about = About { resource: uri.path(), request_id: id.as_str(), headless };
            let mut response = match &mut next {
                Next::Run(call) => self.inner.dispatch.answer(call, &about).await,
                Next::Await(response) => response.await,
                Next::Query(known, response) => {
                    let response = response.await;
                    operation = known.operation.get().copied().unwrap_or(operation);
                    response
                }
                Next::Refuse(error) => answer::error(error, &about),
            };
            if let Some((bucket, asked)) = from_page.as_deref() {
                cors::show(&self.inner.dispatch.ops, bucket, asked, response.headers_mut());
            }
            if let Some(heard) = &mut heard {
                heard.status = Some(response.status());
            }
            let cut_short = !response.status().is_success() && !received.is_complete();
            let unasked = expects && !received.was_asked_for();
            let headers = response.headers_mut();
            if closable && (cut_short || unasked) {
                // What is left of the body would be in the way of the next request. Where it is too much to be thrown away the connection is closed in any case, but nothing says so.
                // And botocore misreads what follows on a connection on which `100 Continue` was skipped.
                headers.insert(CONNECTION, HeaderValue::from_static("close"));
            }
            headers.insert(SERVER, SERVER_NAME);
            if let Ok(id) = HeaderValue::from_str(id.as_str()) {
                headers.insert(REQUEST_ID, id);
            }
            Answer { response, operation }
        }
    }

    /// What a browser wants to see of a website, if the host is one's.
    fn visit(&self, parts: &Parts, peer: Peer, id: RequestId) -> Option<Visit> {
        if self.inner.websites.is_empty() {
            return None;
        }
        let host = route::host(parts);
        let bucket = self.inner.websites.bucket(host.to_str().unwrap_or_default())?;
        // A path that is no text names no page.
        let path = route::decoded_path(&parts.uri).map_or_else(|_| "\u{fffd}".to_owned(), Cow::into_owned);
        Some(Visit {
            bucket,
            path,
            query: parts.uri.query().map(str::to_owned),
            method: parts.method.clone(),
            headers: parts.headers.clone(),
            caller: Arc::clone(&self.inner.nobody),
            peer,
            host,
            version: parts.version,
            request_id: id.as_str().to_owned(),
        })
    }

    /// What a page of another origin asks for, and of which bucket.
    fn asked_by_page(
        &self,
        parts: &Parts,
        peer: Peer,
        visit: Option<&Visit>,
    ) -> Option<Box<(BucketName, cors::Asked)>> {
        let path = route::decoded_path(&parts.uri).ok()?;
        let asked = cors::Asked::of(&parts.method, &parts.headers)?;
        // A preflight says it all by itself.
        if parts.method == Method::OPTIONS {
            return None;
        }
        if let Some(visit) = visit {
            return Some(Box::new((BucketName::new(&visit.bucket).ok()?, asked)));
        }
        let routed = Routed::new(parts, &path, &self.inner.domains, peer).ok()?;
        Some(Box::new((routed.bucket?, asked)))
    }

    /// How a request to S3 goes on.
    fn next<'a, B>(
        &'a self,
        parts: &mut Parts,
        body: B,
        peer: Peer,
        id: RequestId,
        operation: &mut OperationName,
    ) -> Next<'a>
    where
        B: ReadInto + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        match self.admit(parts, peer, body.size_hint().exact(), operation) {
            Ok((routed, Some(Verified { framing, caller }))) => {
                let reads = routed.operation.as_ref().is_ok_and(|operation| operation.reads_body());
                let (content, trailers) =
                    if reads { Content::framed(body, framing) } else { (Content::default(), None) };
                Next::Run(Call::new(routed, caller, std::mem::take(&mut parts.headers), content, trailers))
            }
            Ok((routed, None)) => {
                let parts = take_head(parts);
                Next::Await(self.by_s3s(parts, body, routed, id).boxed())
            }
            Err(error) => Next::Refuse(Box::new(error)),
        }
    }

    /// Has s3s verify a request and call [`Dispatch`], or word its refusal.
    async fn by_s3s<B>(&self, mut parts: Parts, body: B, routed: Routed, id: RequestId) -> Response<ResponseBody>
    where
        B: ReadInto + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let headless = parts.method == Method::HEAD;
        let uri = parts.uri.clone();
        let about = About { resource: uri.path(), request_id: id.as_str(), headless };
        if let Some(uri) = routed.uri_of_version_2(&parts) {
            parts.uri = uri;
        }
        parts.extensions.insert(id);
        parts.extensions.insert(routed);
        // The head is all that s3s has to judge.
        parts.extensions.insert(Waiting::new(body));
        if !parts.headers.contains_key(TRAILER) && is_streamed(&parts.headers) {
            parts.headers.insert(TRAILER, HeaderValue::from_static(""));
        }
        let said = Said::of(&parts);
        let mut response = match self.inner.s3s.call(Request::from_parts(parts, s3s::Body::empty())).await {
            Ok(response) => response,
            Err(error) => {
                tracing::error!(%error, "a request could not be answered");
                answer::error(&S3Code::InternalError.into(), &about)
            }
        };
        if !response.status().is_success() && response.extensions().get::<Rendered>().is_none() {
            answer::complete(&mut response, &about, |code| said.refusal(code));
        }
        response
    }

    /// Routes a request and verifies it, as far as that is not left to s3s; then checks what s3s does not.
    fn admit(
        &self,
        parts: &Parts,
        peer: Peer,
        body_bytes: Option<u64>,
        operation: &mut OperationName,
    ) -> Result<(Routed, Option<Verified>), S3Error> {
        let path = route::decoded_path(&parts.uri)?;
        let mut routed = Routed::new(parts, &path, &self.inner.domains, peer)?;
        routed.private |= match self.inner.customer_keys {
            CustomerKeys::Encrypted => false,
            CustomerKeys::Local => peer.address.ip().is_loopback(),
            CustomerKeys::Any => true,
        };
        if let Ok(routed) = &routed.operation {
            *operation = OperationName(routed.name());
        }
        let unsigned = || {
            let framing = Framing::Plain { sha256: None, length: body_bytes };
            Verified { framing, caller: Arc::clone(&self.inner.nobody) }
        };
        if matches!(routed.operation, Ok(Operation::PostObject | Operation::PreflightRequest)) {
            // The form says who sends it; a browser asks beforehand without saying for whom.
            return Ok((routed, Some(unsigned())));
        }
        let frequent = routed.operation.as_ref().is_ok_and(|operation| operation.is_frequent());
        // s3s takes each POST of this type for an upload from a browser, whatever it is.
        let is_form = parts.method == Method::POST && posts::is_form(&parts.headers);
        let verifies = is_form || (frequent && self.inner.fast_path);
        let verifier = verifies.then_some(&self.inner.verifier);
        // Nothing hashes to nothing else, and objects alone come in chunks: that is for the check below to say.
        let may_be = |verified: &Verified| match verified.framing {
            Framing::Plain { sha256: Some(sha256), .. } => body_bytes != Some(0) || sha256 == auth::EMPTY_SHA256,
            Framing::Plain { sha256: None, .. } => true,
            Framing::Chunked { .. } => routed.operation.as_ref().is_ok_and(|operation| operation.is_streamed()),
        };
        let signed = verifier.and_then(|verifier| verifier.signed(parts, &path, &routed.query)).filter(may_be);
        if signed.is_some() {
            return Ok((routed, signed));
        }
        let ops = &self.inner.dispatch.ops;
        let asked = Asked {
            region: &self.inner.region,
            now_ms: ops.clock.now_ms(),
            credentials: &*ops.credentials,
            sigv2: self.inner.sigv2,
            operation: routed.operation.as_ref().ok().copied(),
            body_bytes,
        };
        auth::check(parts, &routed.query, &asked)?;
        routed.check_version_2(parts)?;
        if let Some(signed) = auth::version_2::verify(parts, &routed, &asked)? {
            return Ok((routed, Some(signed)));
        }
        let presigned = verifier.and_then(|verifier| verifier.presigned(parts, &path, &routed.query));
        if !is_form || presigned.is_some() || routed.is_version_2(parts) {
            return Ok((routed, presigned));
        }
        if parts.headers.contains_key(AUTHORIZATION) || routed.query.has("X-Amz-Signature") {
            let mismatch = S3Code::SignatureDoesNotMatch;
            return Err(Said::of(parts).refusal(mismatch.as_str()).unwrap_or_else(|| mismatch.into()));
        }
        Ok((routed, Some(unsigned())))
    }
}

impl Handler for S3Service {
    type Body = ResponseBody;

    fn handle<'a>(
        &'a self,
        head: &mut Parts,
        body: RequestBody,
        peer: Peer,
    ) -> impl Future<Output = Answer<ResponseBody>> + Send + use<'a> {
        self.answer(head, body, peer)
    }
}

/// Whether a body with trailers comes.
fn is_streamed(headers: &HeaderMap) -> bool {
    headers.get("x-amz-content-sha256").is_some_and(|content| content.as_bytes().ends_with(b"-TRAILER"))
}

/// A request of which the audit log says a line when this goes: also if nobody waits for its answer any more, as it may take effect all the same.
struct Heard {
    inner: Arc<Inner>,
    id: RequestId,
    peer: Peer,
    method: Method,
    uri: Uri,
    user_agent: Option<String>,
    known: Arc<Known>,
    status: Option<StatusCode>,
}

impl Heard {
    fn of(inner: &Arc<Inner>, parts: &Parts, peer: Peer, id: RequestId) -> Self {
        let agent = parts.headers.get(USER_AGENT).map(|agent| String::from_utf8_lossy(agent.as_bytes()).into_owned());
        Self {
            inner: Arc::clone(inner),
            id,
            peer,
            method: parts.method.clone(),
            uri: parts.uri.clone(),
            user_agent: agent,
            known: Arc::default(),
            status: None,
        }
    }

    /// Keeps what is known before it is answered. Who sends a form stands in the form, and what is asked of IAM likewise.
    fn expect(&self, operation: OperationName, next: &mut Next<'_>) {
        if !matches!(next, Next::Query(..)) {
            self.known.operation.get_or_init(|| operation);
        }
        match next {
            Next::Run(call) if call.is_form() => call.known = Some(Arc::clone(&self.known)),
            Next::Run(call) => {
                self.known.caller.get_or_init(|| call.shared_caller());
            }
            Next::Await(_) | Next::Query(..) | Next::Refuse(_) => {}
        }
    }
}

impl Drop for Heard {
    fn drop(&mut self) {
        self.inner.audit.write(&Entry {
            time_ms: self.inner.dispatch.ops.clock.now_ms(),
            request_id: self.id.as_str(),
            peer: self.peer,
            operation: self.known.operation.get().unwrap_or(&OperationName::UNKNOWN).0,
            caller: self.known.caller.get().map(|caller| &**caller),
            method: self.method.as_str(),
            path: self.uri.path(),
            query: self.uri.query(),
            user_agent: self.user_agent.as_deref(),
            status: self.status.or_else(|| std::thread::panicking().then_some(StatusCode::INTERNAL_SERVER_ERROR)),
        });
    }
}

/// How a request that was read goes on.
#[allow(clippy::large_enum_variant, reason = "it lives once per request, and most requests are of the large one")]
enum Next<'a> {
    Run(Call),
    /// By s3s.
    Await(BoxFuture<'a, Response<ResponseBody>>),
    /// By IAM or STS.
    Query(Arc<Known>, BoxFuture<'a, Response<ResponseBody>>),
    Refuse(Box<S3Error>),
}
