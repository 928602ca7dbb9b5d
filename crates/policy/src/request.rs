//! What a policy is asked about.

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

/// Keys and their values, as conditions and variables see them. A key is the same in any case; one that is absent is another thing than one
/// that is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Context(Vec<(String, Vec<String>)>);

impl Context {
    /// Adds a value to a key: of what is added twice there are two values.
    pub fn add(&mut self, key: &str, value: impl Into<String>) {
        let value = value.into();
        let key = key.to_lowercase();
        match self.0.iter_mut().find(|(present, _)| *present == key) {
            Some((_, values)) => values.push(value),
            None => self.0.push((key, vec![value])),
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
        self.0.retain(|(present, _)| *present != key);
    }

    /// Replaces all values of a key.
    pub fn set(&mut self, key: &str, value: impl Into<String>) {
        let key = key.to_lowercase();
        self.0.retain(|(present, _)| *present != key);
        self.0.push((key, vec![value.into()]));
    }

    /// The values of a key, at least one; nothing when the request has no such key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&[String]> {
        let key = key.to_lowercase();
        self.0.iter().find(|(present, _)| *present == key).map(|(_, values)| values.as_slice())
    }
}
