//! What can go wrong, which is not much.

/// A wrapped key does not open: the key is another one, or what was wrapped for something else is shown here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the key does not open what it is to open")]
pub struct WrongKey;

/// Stored bytes are not what was sealed: changed, cut, moved or of another body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stored bytes are not what was encrypted")]
pub struct Tampered;
