//! Who asks: accounts, principals, and what an access key stands for.
//!
//! Made when the access key was looked up and shared by its requests, so that a request pays for a pointer. Says who somebody is, never
//! what he may do: that is the authorisation's, which reads it.

use std::fmt::Write;
use std::sync::Arc;

use gabion_policy::{ANONYMOUS_USER_ID, Policy};
use sha2::{Digest, Sha256};

/// Digits of an account's id.
pub(crate) const ACCOUNT_ID_DIGITS: usize = 12;

/// An account: what owns buckets, and has users, groups and roles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// Twelve digits.
    pub id: String,
    /// What answers and ACLs name it by: 64 hexadecimal digits, or what another system called it by.
    pub canonical_id: String,
    /// What people call it by.
    pub display_name: String,
    /// Its address, by which ACLs may name it.
    pub email: Option<String>,
}

impl Account {
    /// The first account of a deployment: the same at every start.
    #[must_use]
    pub fn first(deployment: &str) -> Self {
        let digest = |what: &str| Sha256::digest(format!("gabion {what} of the first account of {deployment}"));
        let number = digest("id").iter().take(8).fold(0, |number: u64, byte| number << 8 | u64::from(*byte));
        Self {
            id: format!("{:012}", number % 10_u64.pow(ACCOUNT_ID_DIGITS as u32)),
            canonical_id: hex::encode(digest("canonical id")),
            display_name: "gabion".into(),
            email: None,
        }
    }

    /// `arn:aws:iam::ID:root`.
    #[must_use]
    pub fn root_arn(&self) -> String {
        format!("arn:aws:iam::{}:root", self.id)
    }
}

/// Names and values.
pub type Tags = Vec<(String, String)>;

/// Who of an account asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Principal {
    /// Nobody who could be told from others.
    Anonymous,
    /// The account itself, which may do everything in it.
    Root,
    /// A user.
    User {
        /// Its name.
        name: String,
        /// Begins and ends with a slash.
        path: String,
        /// `AIDA…`, never used again.
        id: String,
        /// `aws:PrincipalTag/…`.
        tags: Tags,
    },
    /// Somebody who took a role on, for a while.
    AssumedRole {
        /// The role's name.
        role: String,
        /// The role's path.
        path: String,
        /// `AROA…`, never used again.
        id: String,
        /// What he called his session.
        session: String,
        /// Of the role and of the session, which overrides.
        tags: Tags,
    },
}

/// Somebody who asks.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Whose account it is.
    pub account: Arc<Account>,
    /// Who in it.
    pub principal: Principal,
    /// The access key that the request was signed with; empty for nobody.
    pub access_key: String,
    /// Policies that allow and deny, those of his groups or of his role included. A root needs none.
    pub policies: Vec<Arc<Policy>>,
    /// What they can allow at most.
    pub boundary: Option<Arc<Policy>>,
    /// What this session or this access key can be allowed at most: each of them must allow it; also a root's.
    pub session_policies: Vec<Arc<Policy>>,
    /// When the temporary credentials were given, Unix time in milliseconds; nothing for lasting ones.
    pub issued_ms: Option<u64>,
    /// Condition keys that come from where somebody was authenticated, for example `idp.example.org:sub`.
    pub federated: Tags,
}

/// The canonical id that AWS gives to those who do not say who they are.
const ANONYMOUS_CANONICAL_ID: &str = "65a011a29cdf8ec533ec3d1ccaae921c";

impl Identity {
    /// The root of an account.
    #[must_use]
    pub fn root(account: Arc<Account>, access_key: impl Into<String>) -> Self {
        Self {
            account,
            principal: Principal::Root,
            access_key: access_key.into(),
            policies: Vec::new(),
            boundary: None,
            session_policies: Vec::new(),
            issued_ms: None,
            federated: Tags::new(),
        }
    }

    /// Somebody who sent no credentials.
    #[must_use]
    pub fn anonymous() -> Self {
        let account = Account {
            id: "anonymous".into(),
            canonical_id: ANONYMOUS_CANONICAL_ID.into(),
            display_name: String::new(),
            email: None,
        };
        Self { principal: Principal::Anonymous, ..Self::root(Arc::new(account), "") }
    }

    /// Whether nothing is known of who asks.
    #[must_use]
    pub fn is_anonymous(&self) -> bool {
        self.principal == Principal::Anonymous
    }

    /// What names it in policies and logs; of a session, the session's.
    #[must_use]
    pub fn arn(&self) -> String {
        let account = &self.account.id;
        match &self.principal {
            Principal::Anonymous => "*".into(),
            Principal::Root => self.account.root_arn(),
            Principal::User { name, path, .. } => format!("arn:aws:iam::{account}:user{path}{name}"),
            Principal::AssumedRole { role, session, .. } => {
                format!("arn:aws:sts::{account}:assumed-role/{role}/{session}")
            }
        }
    }

    /// The value of `aws:PrincipalArn`: of a session, its role's.
    #[must_use]
    pub fn principal_arn(&self) -> String {
        match &self.principal {
            Principal::AssumedRole { role, path, .. } => format!("arn:aws:iam::{}:role{path}{role}", self.account.id),
            _ => self.arn(),
        }
    }

    /// The value of `aws:userid`, and the `UserId` of GetCallerIdentity.
    #[must_use]
    pub fn user_id(&self) -> String {
        match &self.principal {
            Principal::Anonymous => ANONYMOUS_USER_ID.into(),
            Principal::Root => self.account.id.clone(),
            Principal::User { id, .. } => id.clone(),
            Principal::AssumedRole { id, session, .. } => {
                let mut text = id.clone();
                // Writing to a String can not fail.
                let _ = write!(text, ":{session}");
                text
            }
        }
    }

    /// The value of `aws:username`, which only users have.
    #[must_use]
    pub fn user_name(&self) -> Option<&str> {
        match &self.principal {
            Principal::User { name, .. } => Some(name),
            _ => None,
        }
    }

    /// The value of `aws:PrincipalType`.
    #[must_use]
    pub fn principal_type(&self) -> &'static str {
        match &self.principal {
            Principal::Anonymous => "Anonymous",
            Principal::Root => "Account",
            Principal::User { .. } => "User",
            Principal::AssumedRole { .. } => "AssumedRole",
        }
    }

    /// The values of `aws:PrincipalTag/…`.
    #[must_use]
    pub fn tags(&self) -> &[(String, String)] {
        match &self.principal {
            Principal::Anonymous | Principal::Root => &[],
            Principal::User { tags, .. } | Principal::AssumedRole { tags, .. } => tags,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_account_is_the_same_at_every_start() {
        let account = Account::first("a deployment");
        assert_eq!(account, Account::first("a deployment"));
        assert_ne!(account.id, Account::first("another").id);
        assert!(account.id.len() == ACCOUNT_ID_DIGITS && account.id.bytes().all(|digit| digit.is_ascii_digit()));
        assert!(
            account.canonical_id.len() == 64 && account.canonical_id.bytes().all(|digit| digit.is_ascii_hexdigit())
        );
    }

    #[test]
    fn everybody_has_the_names_that_aws_gives() {
        let account = Arc::new(Account { id: "123456789012".into(), ..Account::first("d") });
        let of = |principal: Principal| Identity { principal, ..Identity::root(Arc::clone(&account), "AK") };
        let user = Principal::User { name: "u".into(), path: "/p/".into(), id: "AIDA1".into(), tags: Tags::new() };
        let role = Principal::AssumedRole {
            role: "r".into(),
            path: "/p/".into(),
            id: "AROA1".into(),
            session: "s".into(),
            tags: vec![("k".into(), "v".into())],
        };
        let iam = "arn:aws:iam::123456789012:";
        let table = [
            (of(Principal::Root), format!("{iam}root"), format!("{iam}root"), "123456789012", "Account"),
            (of(user), format!("{iam}user/p/u"), format!("{iam}user/p/u"), "AIDA1", "User"),
            (
                of(role),
                "arn:aws:sts::123456789012:assumed-role/r/s".into(),
                format!("{iam}role/p/r"),
                "AROA1:s",
                "AssumedRole",
            ),
            (Identity::anonymous(), "*".into(), "*".into(), "anonymous", "Anonymous"),
        ];
        for (identity, arn, principal_arn, user_id, kind) in table {
            assert_eq!((identity.arn(), identity.principal_arn()), (arn, principal_arn));
            assert_eq!((identity.user_id().as_str(), identity.principal_type()), (user_id, kind));
        }
    }
}
