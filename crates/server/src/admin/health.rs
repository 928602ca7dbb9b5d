//! Whether the server lives, and whether it can serve.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Json, Response};
use gabion_store::StoreStatus;
use gabion_types::Geometry;
use serde::Serialize;

use super::status::target_state;
use super::{Admin, Phase};

#[derive(Serialize)]
struct Readiness {
    ready: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

pub(super) async fn live() -> &'static str {
    "ok\n"
}

pub(super) async fn ready(State(admin): State<Admin>) -> Response {
    let reason = match &*admin.phase() {
        Phase::Starting => Some("starting: the log is being replayed".to_owned()),
        Phase::Stopping => Some("stopping".to_owned()),
        Phase::Serving(store) => unready(&store.status()),
    };
    let status = if reason.is_none() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(Readiness { ready: reason.is_none(), reason })).into_response()
}

/// Why the store can not take writes safely, if it can not. A full target still serves reads and deletes, and to its
/// writers the right answer is 507, not another server.
pub(crate) fn unready(status: &StoreStatus) -> Option<String> {
    if let Some(reason) = status.unavailable.as_ref().or(status.log.poisoned.as_ref()) {
        return Some(reason.clone());
    }
    let quorum = status.log.geometry.parse::<Geometry>().map_or(1, Geometry::quorum);
    let usable = |state: &str| matches!(state, "online" | "full");
    let up = status.log.targets.iter().filter(|target| usable(target_state(target.state))).count();
    (up < quorum).then(|| format!("{up} targets are up, {} needs {quorum} to acknowledge a write", status.log.geometry))
}
