//! Why a document is no policy.

use std::borrow::Cow;

/// A document is no policy, or none of the kind that is wanted. The text is what AWS tells its clients with the code `MalformedPolicy` (S3)
/// or `MalformedPolicyDocument` (IAM, STS).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PolicyError(pub(crate) Cow<'static, str>);

impl PolicyError {
    pub(crate) fn new(message: impl Into<Cow<'static, str>>) -> Self {
        Self(message.into())
    }

    /// What the client is told.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0
    }
}

/// A text of a document as it is shown in an error: no longer than this, in characters.
const SHOWN_CHARS_MAX: usize = 64;

/// The beginning of a text, for an error.
pub(crate) fn shown(text: &str) -> String {
    text.chars().take(SHOWN_CHARS_MAX).collect()
}
