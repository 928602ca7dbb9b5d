//! Changes that an operator asks for: the only part of the admin port that is not read only, and the only one that wants a token.

use std::fmt;
use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use futures::future::BoxFuture;
use gabion_store::{LogTarget, Store, StoreError, TargetMode, TargetPlan};
use gabion_types::TargetId;
use serde::Deserialize;
use serde_json::json;
use subtle::ConstantTimeEq;

use super::{Admin, Phase};
use crate::credentials::SecretKey;

/// Opens directories that are to become targets: the server itself knows no files.
pub trait OpenTarget: Send + Sync + 'static {
    /// Opens the directory `path`; its failure domain is `label`, or itself.
    ///
    /// # Errors
    /// With a sentence for the operator.
    fn open(&self, path: String, label: Option<String>) -> BoxFuture<'static, Result<LogTarget, String>>;
}

/// Who may change what, and how directories are opened.
pub struct Changes {
    token: SecretKey,
    opener: Arc<dyn OpenTarget>,
}

impl Changes {
    /// Changes are made for those who know `token`.
    #[must_use]
    pub fn new(token: SecretKey, opener: Arc<dyn OpenTarget>) -> Self {
        Self { token, opener }
    }

    pub(super) fn knows(&self, headers: &HeaderMap) -> bool {
        let given = headers.get(header::AUTHORIZATION).map_or(&b""[..], |value| value.as_bytes());
        let wanted = format!("Bearer {}", self.token.expose());
        bool::from(given.ct_eq(wanted.as_bytes()))
    }
}

impl fmt::Debug for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Changes")
    }
}

/// What is to be done with a target.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Request {
    /// Path or id; for `add` the path of a directory. Empty for `rebalance`.
    target: String,
    /// Failure domain of a new target.
    label: Option<String>,
    /// For `replace`: the path of the directory that takes its place.
    with: Option<String>,
    /// For `remove`: it will not come back, what lies on it is built anew elsewhere.
    #[serde(default)]
    lost: bool,
    /// For `rebalance`: how far apart the fills of the targets may be, in percent.
    until_percent: Option<u8>,
    /// Only say what would be done.
    #[serde(default)]
    dry_run: bool,
}

/// Why a change is not made.
#[derive(Debug)]
pub(super) struct Refusal(pub(super) StatusCode, pub(super) String);

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.0, Json(json!({ "error": self.1 }))).into_response()
    }
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::InvalidRequest(why) => Self(StatusCode::BAD_REQUEST, why),
            StoreError::Unavailable(why) => Self(StatusCode::SERVICE_UNAVAILABLE, why),
            other => Self(StatusCode::INTERNAL_SERVER_ERROR, other.to_string()),
        }
    }
}

fn bad(why: impl Into<String>) -> Refusal {
    Refusal(StatusCode::BAD_REQUEST, why.into())
}

/// `POST /targets/ACTION`: add, drain, undrain, remove, replace, rebalance.
pub(super) async fn target(
    State(admin): State<Admin>,
    Path(action): Path<String>,
    headers: HeaderMap,
    Json(request): Json<Request>,
) -> Result<Json<TargetPlan>, Refusal> {
    let (changes, store) = admitted(&admin, &headers)?;
    // In a task of its own: an operator who hangs up does not stop a change half way.
    let task = tokio::spawn(async move { change(&changes, &store, &action, request).await });
    task.await.map_err(|error| Refusal(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?.map(Json)
}

/// `POST /scrub`: begins to read and check everything; `/status` says how far it is.
pub(super) async fn scrub(State(admin): State<Admin>, headers: HeaderMap) -> Result<StatusCode, Refusal> {
    let (_, store) = admitted(&admin, &headers)?;
    if store.status().scrub.waiting {
        // One that has not begun yet will read all that this one would.
        return Ok(StatusCode::ACCEPTED);
    }
    tokio::spawn(async move {
        match store.scrub_now().await {
            Ok(report) => tracing::info!(?report, "the scrub that was asked for is complete"),
            Err(error) => tracing::error!(%error, "the scrub that was asked for failed"),
        }
    });
    Ok(StatusCode::ACCEPTED)
}

pub(super) fn admitted(admin: &Admin, headers: &HeaderMap) -> Result<(Arc<Changes>, Store), Refusal> {
    let Some(changes) = &admin.shared.changes else {
        return Err(Refusal(StatusCode::FORBIDDEN, "this server takes no changes over its admin port".to_owned()));
    };
    if !changes.knows(headers) {
        let why = "the admin token is missing or wrong: it stands in the file admin-token of the state directory";
        return Err(Refusal(StatusCode::UNAUTHORIZED, why.to_owned()));
    }
    match &*admin.phase() {
        Phase::Serving(store) => Ok((Arc::clone(changes), store.clone())),
        Phase::Starting | Phase::Stopping => {
            Err(Refusal(StatusCode::SERVICE_UNAVAILABLE, "the server is starting or stopping".to_owned()))
        }
    }
}

async fn change(changes: &Changes, store: &Store, action: &str, request: Request) -> Result<TargetPlan, Refusal> {
    let Request { target, label, with, lost, until_percent, dry_run } = request;
    let mode = if dry_run { TargetMode::DryRun } else { TargetMode::Apply };
    if label.is_some() && !matches!(action, "add" | "replace") {
        return Err(bad(format!("{action} takes no label")));
    }
    if with.is_some() != (action == "replace") || (lost && action != "remove") {
        return Err(bad("a directory to replace it with belongs to replace, and only to that; lost belongs to remove"));
    }
    if until_percent.is_some() != (action == "rebalance") || (action == "rebalance" && !target.is_empty()) {
        return Err(bad("how far apart the targets may be belongs to rebalance, and only to that; it takes no target"));
    }
    let plan = match (action, with) {
        ("add", _) => {
            let target = changes.opener.open(target, label).await.map_err(bad)?;
            store.target_add(target, mode).await?
        }
        ("replace", Some(with)) => {
            let old = find(store, &target)?;
            let new = changes.opener.open(with, label).await.map_err(bad)?;
            store.target_replace(old, new, mode).await?
        }
        ("drain", _) => store.target_drain(find(store, &target)?, mode).await?,
        ("undrain", _) => store.target_undrain(find(store, &target)?, mode).await?,
        ("remove", _) => store.target_remove(find(store, &target)?, lost, mode).await?,
        ("rebalance", _) => store.target_rebalance(until_percent.unwrap_or(100), mode).await?,
        _ => {
            return Err(bad(format!("{action} is no action: it is add, drain, undrain, remove, replace or rebalance")));
        }
    };
    tracing::info!(action, target = %plan.target, segments = plan.segments, bytes = plan.bytes, applied = plan.applied, "targets");
    Ok(plan)
}

/// The member with this path or id.
fn find(store: &Store, wanted: &str) -> Result<TargetId, Refusal> {
    let trimmed = wanted.trim_end_matches('/');
    let log = store.status().log;
    let found = log.targets.iter().find(|target| {
        target.id != TargetId::NONE && (target.id.to_string() == wanted || target.name.trim_end_matches('/') == trimmed)
    });
    // One that is not there has no path that it could be told from others by.
    let missing = || log.missing_members.iter().find(|id| id.to_string() == wanted);
    found.map(|target| target.id).or_else(|| missing().copied()).ok_or_else(|| {
        let names = log.targets.iter().map(|target| target.name.clone());
        let missing = log.missing_members.iter().map(|id| format!("{id} (not there)"));
        let known: Vec<String> = names.chain(missing).collect();
        bad(format!("{wanted} is no target of this deployment; they are: {}", known.join(", ")))
    })
}
