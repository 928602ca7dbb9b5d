//! `POST /iam/...`: accounts, users, access keys and policies, for an operator with the admin token.

use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Json;
use serde_json::Value;

use super::Admin;
use super::changes::{Refusal, admitted};
use crate::iam::IamError;
use crate::iam::admin::Request;

/// `POST /iam/KIND/ACTION`, for example `/iam/user/create`.
pub(super) async fn iam(
    State(admin): State<Admin>,
    Path((kind, action)): Path<(String, String)>,
    headers: HeaderMap,
    Json(request): Json<Request>,
) -> Result<Json<Value>, Refusal> {
    admitted(&admin, &headers)?;
    let iam = admin.shared.iam.load_full();
    let iam = iam.ok_or_else(|| Refusal(StatusCode::NOT_FOUND, "this server has no users".to_owned()))?;
    Ok(Json(iam.administer(&format!("{kind}/{action}"), request).await?))
}

impl From<IamError> for Refusal {
    fn from(error: IamError) -> Self {
        Self(error.status, error.message.into_owned())
    }
}
