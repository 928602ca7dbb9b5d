//! `/status`: what the store looks like, as JSON.

use axum::extract::State;
use axum::response::{IntoResponse, Json, Response};
use gabion_store::{Store, StoreStatus, TargetState};
use serde::Serialize;
use serde_json::{Value, json};

use super::{Admin, Phase, unready};

#[derive(Serialize)]
struct Status {
    version: &'static str,
    phase: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    store: Option<Value>,
}

pub(super) async fn status(State(admin): State<Admin>) -> Response {
    let (phase, store) = match &*admin.phase() {
        Phase::Starting => ("starting", None),
        Phase::Stopping => ("stopping", None),
        Phase::Serving(store) => ("serving", Some(of_store(store))),
    };
    Json(Status { version: admin.shared.version, phase, store }).into_response()
}

fn of_store(store: &Store) -> Value {
    let status = store.status();
    let unavailable = unready(&status);
    let StoreStatus {
        log,
        index,
        index_available_bytes,
        live_bytes,
        written_bytes,
        punched_bytes,
        dead_segments,
        freeing_segments,
        kept_segments,
        unsettled_uploads,
        unsettled_buckets,
        compaction_segments,
        compaction_debt_bytes,
        holds_back,
        writers_waiting,
        scrub,
        ..
    } = status;
    json!({
        "log": log,
        "index": {
            "disk_bytes": index.disk_bytes,
            "journal_bytes": index.journal_bytes,
            "available_bytes": index_available_bytes,
            "cache_hits": index.cache_hits,
            "cache_misses": index.cache_misses,
            "cached_rows": index.cached_rows,
            "cached_bytes": index.cached_bytes,
        },
        "live_bytes": live_bytes,
        "written_bytes": written_bytes,
        "punched_bytes": punched_bytes,
        "segments_to_free": dead_segments + freeing_segments,
        "segments_kept": kept_segments,
        "unsettled": { "uploads": unsettled_uploads, "buckets": unsettled_buckets },
        "compaction": {
            "candidates": compaction_segments,
            "debt_bytes": compaction_debt_bytes,
            "holds_back_writers": holds_back,
            "writers_waiting": writers_waiting,
        },
        "scrub": scrub,
        "unavailable": unavailable,
    })
}

/// A target's state in the words of `/status` and of the figures.
pub(crate) fn target_state(state: TargetState) -> &'static str {
    match state {
        TargetState::Online => "online",
        TargetState::Absent => "absent",
        TargetState::Failed => "failed",
        TargetState::Full => "full",
    }
}
