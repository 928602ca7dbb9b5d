//! The admin port: health, figures, status, and changes of the targets. What only reads wants no authentication: it belongs on a private address.
//!
//! It is up before the store is, so that a long replay shows as alive and not ready.

mod changes;
mod health;
mod status;
mod users;

use std::sync::{Arc, OnceLock};

use arc_swap::{ArcSwap, ArcSwapOption};
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::DefaultBodyLimit;
use axum::extract::State;
use axum::http::request::Parts;
use axum::http::{Method, Request, Response, StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::{get, post};
use gabion_platform::Clock;
use gabion_store::Store;
use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;
use tower::ServiceExt;

use crate::audit::{AuditLog, OperatorEntry};
use crate::http::{Answer, Handler, Peer, RequestBody, take_head};
use crate::iam::Iam;
use crate::metrics::store::StoreFigures;

pub use changes::{Changes, OpenTarget};
pub(crate) use health::unready;
pub(crate) use status::target_state;

/// How far the server is.
#[derive(Clone)]
pub enum Phase {
    /// The store is being opened: recovery, replay.
    Starting,
    /// Requests are served.
    Serving(Store),
    /// Requests in flight are finished.
    Stopping,
}

/// What the admin port shows; clones share it.
#[derive(Clone)]
pub struct Admin {
    shared: Arc<Shared>,
}

struct Shared {
    phase: Arc<ArcSwap<Phase>>,
    registry: Registry,
    version: &'static str,
    /// None: the page is read only.
    changes: Option<Arc<Changes>>,
    /// Users and policies, once they were read.
    iam: ArcSwapOption<Iam>,
    audit: OnceLock<(AuditLog, Arc<dyn Clock>)>,
}

/// Longest body of a request for a change, in bytes.
const REQUEST_BYTES_MAX: usize = 64 * 1024;

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

impl Admin {
    /// An admin page of a server that is starting. `registry` holds the figures of the data port; those of the store are added.
    /// Without `changes` it is read only.
    #[must_use]
    pub fn new(mut registry: Registry, version: &'static str, changes: Option<Changes>) -> Self {
        let phase = Arc::new(ArcSwap::from_pointee(Phase::Starting));
        let source = Arc::clone(&phase);
        registry.register_collector(Box::new(StoreFigures(Arc::new(move || match &**source.load() {
            Phase::Serving(store) => Some(store.clone()),
            Phase::Starting | Phase::Stopping => None,
        }))));
        Self {
            shared: Arc::new(Shared {
                phase,
                registry,
                version,
                changes: changes.map(Arc::new),
                iam: ArcSwapOption::empty(),
                audit: OnceLock::new(),
            }),
        }
    }

    /// Says how far the server is.
    pub fn set_phase(&self, phase: Phase) {
        self.shared.phase.store(Arc::new(phase));
    }

    /// Hands over users and policies, so that they can be changed.
    pub fn set_iam(&self, iam: Arc<Iam>) {
        self.shared.iam.store(Some(iam));
    }

    /// Says where it is written down what operators change; the first time counts.
    pub fn set_audit(&self, audit: AuditLog, clock: Arc<dyn Clock>) {
        if audit.is_on() {
            // Whoever comes second has the same one.
            let _ = self.shared.audit.set((audit, clock));
        }
    }

    /// The handler to serve on the admin port.
    #[must_use]
    pub fn handler(&self) -> AdminHandler {
        let router = Router::new()
            .route("/health/live", get(health::live))
            .route("/health/ready", get(health::ready))
            .route("/metrics", get(metrics))
            .route("/status", get(status::status))
            .route("/targets/{action}", post(changes::target))
            .route("/scrub", post(changes::scrub))
            .route("/iam/{kind}/{action}", post(users::iam))
            .layer(DefaultBodyLimit::max(REQUEST_BYTES_MAX))
            .fallback(|| async { (StatusCode::NOT_FOUND, "see /health/live, /health/ready, /metrics and /status\n") })
            .with_state(self.clone());
        AdminHandler { router, shared: Arc::clone(&self.shared) }
    }

    fn phase(&self) -> Arc<Phase> {
        self.shared.phase.load_full()
    }
}

/// Serves the admin page.
#[derive(Clone)]
pub struct AdminHandler {
    router: Router,
    shared: Arc<Shared>,
}

impl Handler for AdminHandler {
    type Body = Body;

    fn handle<'a>(
        &'a self,
        head: &mut Parts,
        body: RequestBody,
        peer: Peer,
    ) -> impl Future<Output = Answer<Body>> + Send + use<'a> {
        let request = Request::from_parts(take_head(head), Body::new(body));
        async move {
            match self.shared.audit.get().filter(|_| request.method() == Method::POST) {
                Some((audit, clock)) => self.audited(request, peer, audit.clone(), Arc::clone(clock)).await.into(),
                None => self.run(request).await.into(),
            }
        }
    }
}

impl AdminHandler {
    async fn run(&self, request: Request<Body>) -> Response<Body> {
        match self.router.clone().oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }

    /// Answers a request that may change something, and writes it down: but for one that only looked. It goes on to its end if nobody waits for it any more, as what it changes is
    /// written down as well.
    async fn audited(
        &self,
        request: Request<Body>,
        peer: Peer,
        audit: AuditLog,
        clock: Arc<dyn Clock>,
    ) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let operation = format!("admin:{}", parts.uri.path().trim_start_matches("/iam/").trim_start_matches('/'));
        let Ok(body) = to_bytes(body, REQUEST_BYTES_MAX).await else {
            return StatusCode::PAYLOAD_TOO_LARGE.into_response();
        };
        let asked = serde_json::from_slice(&body).ok();
        // Whatever becomes of it: what is no request of this port is refused before anybody asks who sent it.
        let is_operators = self.shared.changes.as_ref().is_some_and(|changes| changes.knows(&parts.headers));
        let (handler, request) = (self.clone(), Request::from_parts(parts, Body::from(body)));
        let running = tokio::spawn(async move {
            let response = handler.run(request).await;
            let status = response.status();
            let only_looks = operation.ends_with("/list") || operation.ends_with("/show");
            if !(only_looks && status.is_success()) {
                let time_ms = clock.now_ms();
                audit.write_operator(OperatorEntry {
                    time_ms,
                    peer,
                    operation: &operation,
                    request: asked,
                    status,
                    is_operators,
                });
            }
            response
        });
        running.await.unwrap_or_else(|error| {
            tracing::error!(%error, "a request of an operator failed");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        })
    }
}

async fn metrics(State(admin): State<Admin>) -> axum::response::Response {
    let mut page = String::new();
    match text::encode(&mut page, &admin.shared.registry) {
        Ok(()) => ([(header::CONTENT_TYPE, OPENMETRICS)], page).into_response(),
        Err(error) => {
            tracing::error!(%error, "the figures can not be written");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

#[cfg(test)]
mod tests;
