//! Why an operation failed, and how it is counted.

use crate::http::HttpError;

/// Why an operation failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The endpoint answered with an error.
    Status { status: u16, code: String },
    /// The connection could not be opened or broke.
    Connection(String),
    /// What came back is not an answer of S3.
    Malformed(String),
    /// No answer within the time limit.
    Timeout,
    /// The body read is not the one that was written.
    Mismatch,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Status { status, code } if code.is_empty() => write!(f, "{status}"),
            Failure::Status { status, code } => write!(f, "{status} {code}"),
            Failure::Connection(reason) => write!(f, "connection: {reason}"),
            Failure::Malformed(reason) => f.write_str(reason),
            Failure::Timeout => f.write_str("timeout"),
            Failure::Mismatch => f.write_str("content mismatch"),
        }
    }
}

impl std::error::Error for Failure {}

impl From<HttpError> for Failure {
    fn from(error: HttpError) -> Self {
        match error {
            HttpError::Malformed(_) => Failure::Malformed(error.to_string()),
            error => Failure::Connection(error.to_string()),
        }
    }
}

impl Failure {
    /// The name under which it is counted.
    pub(crate) fn kind(&self) -> String {
        match self {
            Failure::Connection(_) => "connection".to_owned(),
            other => other.to_string(),
        }
    }
}
