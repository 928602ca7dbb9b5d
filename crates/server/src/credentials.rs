//! Access keys and their secrets.

use std::fmt;
use std::sync::Arc;

/// The secret of an access key. Neither shown nor compared with `==`.
#[derive(Clone)]
pub struct SecretKey(Arc<str>);

impl SecretKey {
    /// Wraps a secret.
    #[must_use]
    pub fn new(secret: impl Into<Arc<str>>) -> Self {
        Self(secret.into())
    }

    /// The secret itself, for those who compute signatures.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Whether `other` is a clone of this one. Equal secrets that were made apart are not: nothing is compared.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretKey(hidden)")
    }
}

/// One identity: today the root of the deployment.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// What requests name.
    pub access_key: String,
    /// What they are signed with.
    pub secret_key: SecretKey,
}

impl Credentials {
    /// From an access key and its secret.
    #[must_use]
    pub fn new(access_key: impl Into<String>, secret_key: impl Into<Arc<str>>) -> Self {
        Self { access_key: access_key.into(), secret_key: SecretKey::new(secret_key) }
    }
}

/// Knows the secrets. Asked once per request, so it answers from memory.
pub trait CredentialStore: Send + Sync + 'static {
    /// The secret of `access_key`; nothing when there is no such key.
    fn secret_for(&self, access_key: &str) -> Option<SecretKey>;
}

impl CredentialStore for Credentials {
    fn secret_for(&self, access_key: &str) -> Option<SecretKey> {
        (access_key == self.access_key).then(|| self.secret_key.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_never_shown() {
        let credentials = Credentials::new("AK", "very secret");
        assert!(!format!("{credentials:?}").contains("very"));
        assert_eq!(credentials.secret_for("AK").unwrap().expose(), "very secret");
        assert!(credentials.secret_for("ak").is_none());
    }
}
