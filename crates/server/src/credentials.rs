//! Access keys, their secrets, and who signs with them.

use std::fmt;
use std::sync::Arc;

use crate::iam::Quota;

pub use crate::auth::identity::{Account, Identity, Principal, Tags};

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

/// What an access key stands for.
#[derive(Clone, Debug)]
pub struct Credential {
    /// What its requests are signed with.
    pub secret: SecretKey,
    /// Who signs with it.
    pub identity: Arc<Identity>,
}

/// Why a key, with the session token that came with it, stands for nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoCredential {
    /// There is no such key, or it is a temporary one without its token, or it was taken out of use.
    UnknownKey,
    /// The token is not one that was given with this key.
    InvalidToken,
    /// It was one, and its time is over.
    ExpiredToken,
}

/// Knows accounts and access keys. Asked for every request, so it answers from memory.
pub trait CredentialStore: Send + Sync + 'static {
    /// Who asks with this key and this session token.
    ///
    /// # Errors
    /// When nobody does.
    fn find(&self, access_key: &str, token: Option<&str>) -> Result<Credential, NoCredential>;

    /// What requests with this key are signed with, whatever their token; nothing when there is no such key. To sign rightly is not
    /// enough: [`CredentialStore::find`] says who it was, if anybody.
    fn secret_for(&self, access_key: &str) -> Option<SecretKey>;

    /// The account of the deployment itself.
    fn first_account(&self) -> Arc<Account>;

    /// The account that is named.
    fn account(&self, name: AccountName<'_>) -> Option<Arc<Account>>;

    /// Whether any account or user has a quota.
    fn has_quotas(&self) -> bool {
        false
    }

    /// How much the user with this id may hold of what it made.
    fn user_quota(&self, _id: &str) -> Quota {
        Quota::default()
    }

    /// How much the buckets of the account with this canonical id may hold together.
    fn quota(&self, _canonical_id: &str) -> Quota {
        Quota::default()
    }
}

/// How an account is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccountName<'a> {
    /// By its twelve digits.
    Id(&'a str),
    /// As ACLs and owners of buckets name it.
    CanonicalId(&'a str),
    /// By its address; letters count as equal whatever their case.
    Email(&'a str),
}

impl AccountName<'_> {
    /// Whether it names this account.
    #[must_use]
    pub fn is_of(self, account: &Account) -> bool {
        match self {
            Self::Id(id) => account.id == id,
            Self::CanonicalId(id) => account.canonical_id == id,
            Self::Email(email) => account.email.as_ref().is_some_and(|own| own.eq_ignore_ascii_case(email)),
        }
    }
}

/// An access key with its secret, of the root of the deployment; by itself a deployment without other users.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// What requests name.
    pub access_key: String,
    /// What they are signed with.
    pub secret_key: SecretKey,
    root: Arc<Identity>,
}

impl Credentials {
    /// From an access key and its secret.
    #[must_use]
    pub fn new(access_key: impl Into<String>, secret_key: impl Into<Arc<str>>) -> Self {
        let access_key = access_key.into();
        let root = Identity::root(Arc::new(Account::first("")), access_key.clone());
        Self { access_key, secret_key: SecretKey::new(secret_key), root: Arc::new(root) }
    }

    /// The same, as the root of this account.
    #[must_use]
    pub fn of_account(self, account: Account) -> Self {
        let root = Identity::root(Arc::new(account), self.access_key.clone());
        Self { root: Arc::new(root), ..self }
    }
}

impl CredentialStore for Credentials {
    fn find(&self, access_key: &str, token: Option<&str>) -> Result<Credential, NoCredential> {
        match (access_key == self.access_key, token) {
            (false, _) => Err(NoCredential::UnknownKey),
            (true, Some(_)) => Err(NoCredential::InvalidToken),
            (true, None) => Ok(Credential { secret: self.secret_key.clone(), identity: Arc::clone(&self.root) }),
        }
    }

    fn secret_for(&self, access_key: &str) -> Option<SecretKey> {
        (access_key == self.access_key).then(|| self.secret_key.clone())
    }

    fn first_account(&self) -> Arc<Account> {
        Arc::clone(&self.root.account)
    }

    fn account(&self, name: AccountName<'_>) -> Option<Arc<Account>> {
        name.is_of(&self.root.account).then(|| self.first_account())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_never_shown() {
        let credentials = Credentials::new("AK", "very secret");
        let found = credentials.find("AK", None).unwrap();
        assert!(!format!("{credentials:?} {found:?}").contains("very"));
        assert_eq!(found.secret.expose(), "very secret");
        assert_eq!(credentials.find("ak", None).err(), Some(NoCredential::UnknownKey));
        assert_eq!(credentials.find("AK", Some("t")).err(), Some(NoCredential::InvalidToken));
        assert!(credentials.secret_for("ak").is_none());
    }

    #[test]
    fn accounts_are_found_by_all_their_names() {
        let account = Account { email: Some("One@Example.org".into()), ..Account::first("d") };
        assert!(AccountName::Id(&account.id).is_of(&account));
        assert!(AccountName::CanonicalId(&account.canonical_id).is_of(&account));
        assert!(AccountName::Email("one@example.org").is_of(&account));
        assert!(!AccountName::Email("two@example.org").is_of(&account));
        assert!(!AccountName::Email("").is_of(&Account { email: None, ..account }));
    }
}
