//! What a client of the IAM and STS API is told when a request fails.
//!
//! Source: AWS, "IAM API Reference" and "STS API Reference", "Common errors" and the errors of each action.

use std::borrow::Cow;

use gabion_store::StoreError;
use http::StatusCode;

/// A failed request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct IamError {
    /// The code as clients read it.
    pub code: &'static str,
    /// The HTTP status.
    pub status: StatusCode,
    /// What went wrong, for the client.
    pub message: Cow<'static, str>,
}

impl IamError {
    fn new(status: StatusCode, code: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self { code, status, message: message.into() }
    }

    /// Something else than what is meant for the client was wrong with the request.
    pub(crate) fn sender(code: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, code, message)
    }

    pub(crate) fn validation(message: impl Into<Cow<'static, str>>) -> Self {
        Self::sender("ValidationError", message)
    }

    pub(crate) fn missing(parameter: &str) -> Self {
        Self::validation(format!("The request must contain the parameter {parameter}."))
    }

    pub(crate) fn malformed_policy(message: impl Into<Cow<'static, str>>) -> Self {
        Self::sender("MalformedPolicyDocument", message)
    }

    /// `what` is `user`, `role` and the like.
    pub(crate) fn no_entity(what: &str, name: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, "NoSuchEntity", format!("The {what} with name {name} cannot be found."))
    }

    pub(crate) fn not_found(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "NoSuchEntity", message)
    }

    pub(crate) fn exists(what: &str, name: &str) -> Self {
        let message = format!("{what} with name {name} already exists.");
        Self::new(StatusCode::CONFLICT, "EntityAlreadyExists", message)
    }

    pub(crate) fn delete_conflict(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::CONFLICT, "DeleteConflict", message)
    }

    pub(crate) fn limit(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::CONFLICT, "LimitExceeded", message)
    }

    pub(crate) fn forbidden(code: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::FORBIDDEN, code, message)
    }

    pub(crate) fn denied(arn: &str, action: &str, resource: &str) -> Self {
        let message = format!("User: {arn} is not authorized to perform: {action} on resource: {resource}");
        Self::forbidden("AccessDenied", message)
    }

    pub(crate) fn failure() -> Self {
        let message = "The request processing has failed because of an unknown error, exception or failure.";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "ServiceFailure", message)
    }

    /// Too many requests are on their way.
    pub(crate) fn busy() -> Self {
        let message = "The request has failed due to a temporary failure of the server.";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", message)
    }

    /// Whether the client is to blame.
    pub(crate) fn is_senders(&self) -> bool {
        self.status.is_client_error()
    }
}

impl From<StoreError> for IamError {
    fn from(error: StoreError) -> Self {
        tracing::error!(%error, "a change of users or policies could not be stored");
        match error {
            StoreError::Unavailable(_) | StoreError::Busy | StoreError::NoSpace => Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "ServiceUnavailable",
                "The request has failed due to a temporary failure of the server.",
            ),
            // A document that is too large as a whole, though none of its parts is.
            StoreError::InvalidRequest(why) => Self::limit(why),
            _ => Self::failure(),
        }
    }
}
