//! What a policy is asked about.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Somebody wants to do something with something.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Who.
    pub principal: Principal<'a>,
    /// What, e.g. `s3:GetObject`.
    pub action: &'a str,
    /// With what, e.g. `arn:aws:s3:::bucket/key`; what has no resource is about `*`.
    pub resource: &'a str,
    /// All else that conditions and variables may look at.
    pub context: &'a Context,
}

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Principal<'a> {
    /// Who did not say.
    Anonymous,
    /// The root user of an account.
    Root {
        /// Its 12 digits.
        account: &'a str,
        /// The id by which ACLs know the account.
        canonical_id: &'a str,
    },
    /// A user of an account.
    User {
        /// 12 digits.
        account: &'a str,
        /// The account's.
        canonical_id: &'a str,
        /// `arn:aws:iam::ACCOUNT:user/PATH/NAME`.
        arn: &'a str,
        /// The unique id.
        id: &'a str,
    },
    /// A session of a role, or of a federated user.
    Session {
        /// 12 digits.
        account: &'a str,
        /// The account's.
        canonical_id: &'a str,
        /// `arn:aws:iam::ACCOUNT:role/PATH/NAME`.
        role_arn: &'a str,
        /// `arn:aws:sts::ACCOUNT:assumed-role/ROLE/SESSION`.
        arn: &'a str,
        /// The role's unique id.
        id: &'a str,
    },
    /// Somebody whom an identity provider vouches for, before he has a session.
    Federated {
        /// The provider: a domain, or the ARN of an `oidc-provider` or `saml-provider`.
        provider: &'a str,
    },
    /// A service, which acts on its own.
    Service {
        /// E.g. `logging.s3.amazonaws.com`.
        name: &'a str,
    },
}

impl<'a> Principal<'a> {
    /// The account, of those who have one.
    #[must_use]
    pub fn account(&self) -> Option<&'a str> {
        match *self {
            Self::Root { account, .. } | Self::User { account, .. } | Self::Session { account, .. } => Some(account),
            Self::Anonymous | Self::Federated { .. } | Self::Service { .. } => None,
        }
    }

    pub(crate) fn canonical_id(&self) -> Option<&'a str> {
        match *self {
            Self::Root { canonical_id, .. } | Self::User { canonical_id, .. } | Self::Session { canonical_id, .. } => {
                Some(canonical_id)
            }
            Self::Anonymous | Self::Federated { .. } | Self::Service { .. } => None,
        }
    }
}

/// Most steps that policies take for a request: parts of patterns that are looked at, keys that are looked up, sixteen bytes that are compared.
/// Some tenths of a second. Whoever writes a policy and whoever sends a request could otherwise make a product of two lengths between
/// them, many times over. A thousand keys, each held against a thousand resources of policies, take a third of it.
const STEPS_MAX: usize = 32 << 20;

/// How much may still be done for a request.
#[derive(Clone, Debug)]
pub struct Work(Arc<AtomicUsize>);

impl Default for Work {
    fn default() -> Self {
        Self(Arc::new(AtomicUsize::new(STEPS_MAX)))
    }
}

/// Keys and their values, as conditions and variables see them. A key is the same in any case; one that is absent is another thing than one
/// that is empty.
///
/// It also counts what policies do with it, and its clones: when that is too much, they deny whatever they are asked.
#[derive(Clone, Debug, Default)]
pub struct Context {
    keys: Vec<(String, Vec<String>)>,
    work: Work,
}

impl Context {
    /// No keys yet; what is done with it counts as `work`, with what others count there.
    #[must_use]
    pub fn within(work: Work) -> Self {
        Self { keys: Vec::new(), work }
    }

    /// Pays for some steps before they are taken; nothing when there are not as many left, nor any more from then on.
    pub(crate) fn spend(&self, steps: usize) -> Option<()> {
        let left = self.work.0.load(Ordering::Relaxed).checked_sub(steps);
        self.work.0.store(left.unwrap_or_default(), Ordering::Relaxed);
        left.filter(|left| *left > 0).map(drop)
    }

    /// Whether an answer would have taken more than is allowed: what was found until then says nothing.
    pub(crate) fn is_spent(&self) -> bool {
        self.work.0.load(Ordering::Relaxed) == 0
    }

    /// Adds a value to a key: of what is added twice there are two values.
    pub fn add(&mut self, key: &str, value: impl Into<String>) {
        let value = value.into();
        let key = key.to_lowercase();
        match self.keys.iter_mut().find(|(present, _)| *present == key) {
            Some((_, values)) => values.push(value),
            None => self.keys.push((key, vec![value])),
        }
    }

    /// Adds a value if there is one.
    pub fn add_optional(&mut self, key: &str, value: Option<impl Into<String>>) {
        if let Some(value) = value {
            self.add(key, value);
        }
    }

    /// Takes a key away.
    pub fn remove(&mut self, key: &str) {
        let key = key.to_lowercase();
        self.keys.retain(|(present, _)| *present != key);
    }

    /// Replaces all values of a key.
    pub fn set(&mut self, key: &str, value: impl Into<String>) {
        let key = key.to_lowercase();
        self.keys.retain(|(present, _)| *present != key);
        self.keys.push((key, vec![value.into()]));
    }

    /// The values of a key, at least one; nothing when the request has no such key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&[String]> {
        let key = key.to_lowercase();
        self.keys.iter().find(|(present, _)| *present == key).map(|(_, values)| values.as_slice())
    }
}
