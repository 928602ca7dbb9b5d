//! What is stored of accounts, users, groups, roles, policies, access keys and identity providers: one document of the site each, in JSON, under the
//! id that it keeps for ever, so that a new name is one change.
//!
//! A field that is added gets a default; a document that can not be read stands for nobody and allows nothing.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::auth::identity::Tags;

/// Where the documents of IAM are among those of the site.
pub(crate) const PREFIX: &str = "iam/";

/// How much may be stored; what is absent is not limited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quota {
    /// Bytes of objects, as their sizes count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objects: Option<u64>,
}

impl Quota {
    /// Whether nothing is limited.
    #[must_use]
    pub fn is_unlimited(&self) -> bool {
        *self == Self::default()
    }
}

/// An account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AccountDoc {
    pub(crate) id: String,
    pub(crate) canonical_id: String,
    pub(crate) display_name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) email: Option<String>,
    pub(crate) created_ms: u64,
    #[serde(default, skip_serializing_if = "Quota::is_unlimited")]
    pub(crate) quota: Quota,
}

/// What users, groups, roles and policies have in common.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Named {
    /// The account's id.
    pub(crate) account: String,
    /// Begins with four letters that say what it is; never used again.
    pub(crate) id: String,
    /// As it was given; letters count as equal whatever their case.
    pub(crate) name: String,
    /// Begins and ends with a slash.
    pub(crate) path: String,
    pub(crate) created_ms: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) tags: Tags,
}

impl Named {
    /// `arn:aws:iam::ACCOUNT:KIND/PATH/NAME`.
    pub(crate) fn arn(&self, kind: &str) -> String {
        format!("arn:aws:iam::{}:{kind}{}{}", self.account, self.path, self.name)
    }
}

/// Which policies somebody is under.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Policies {
    /// Documents by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) inline: BTreeMap<String, String>,
    /// ARNs of managed ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) attached: Vec<String>,
    /// ARN of the one that bounds all others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) boundary: Option<String>,
}

/// A user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct User {
    #[serde(flatten)]
    pub(crate) named: Named,
    #[serde(flatten)]
    pub(crate) policies: Policies,
    /// Ids of the groups that it is in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) groups: Vec<String>,
    /// How much it may hold of what it made, in all buckets.
    #[serde(default, skip_serializing_if = "Quota::is_unlimited")]
    pub(crate) quota: Quota,
}

/// A group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Group {
    #[serde(flatten)]
    pub(crate) named: Named,
    #[serde(flatten)]
    pub(crate) policies: Policies,
}

/// A role.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Role {
    #[serde(flatten)]
    pub(crate) named: Named,
    #[serde(flatten)]
    pub(crate) policies: Policies,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) description: String,
    /// Longest session.
    pub(crate) max_session_s: u64,
    /// Who may take it on.
    pub(crate) trust: String,
}

/// A managed policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ManagedPolicy {
    #[serde(flatten)]
    pub(crate) named: Named,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) description: String,
    /// When a version was added last.
    pub(crate) updated_ms: u64,
    /// The number that counts.
    pub(crate) default_version: u32,
    /// In ascending order; at most five.
    pub(crate) versions: Vec<PolicyVersion>,
}

/// A version of a managed policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PolicyVersion {
    pub(crate) number: u32,
    pub(crate) document: String,
    pub(crate) created_ms: u64,
}

impl ManagedPolicy {
    /// The document that counts.
    pub(crate) fn document(&self) -> Option<&str> {
        let counts = |version: &&PolicyVersion| version.number == self.default_version;
        self.versions.iter().find(counts).map(|version| version.document.as_str())
    }
}

/// A secret as it is stored: `plain:…`, or `aes256gcm:…` in base64.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Sealed(pub(super) String);

impl fmt::Debug for Sealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sealed(hidden)")
    }
}

/// An access key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeyDoc {
    pub(crate) access_key: String,
    /// The account's id.
    pub(crate) account: String,
    /// Id of the user; nothing: the account's root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) user: Option<String>,
    pub(crate) secret: Sealed,
    pub(crate) active: bool,
    pub(crate) created_ms: u64,
    /// Of a service account: it may do what its owner may and this allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) policy: Option<String>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) description: String,
}

/// An OpenID Connect provider whom an account trusts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Provider {
    /// The account's id.
    pub(crate) account: String,
    /// The issuer.
    pub(crate) url: String,
    /// Audiences that are accepted.
    pub(crate) client_ids: Vec<String>,
    pub(crate) thumbprints: Vec<String>,
    pub(crate) created_ms: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) tags: Tags,
}

impl Provider {
    /// The issuer without its scheme: what condition keys and its ARN begin and end with.
    pub(crate) fn host(&self) -> &str {
        host_of(&self.url)
    }

    /// `arn:aws:iam::ACCOUNT:oidc-provider/HOST`.
    pub(crate) fn arn(&self) -> String {
        format!("arn:aws:iam::{}:oidc-provider/{}", self.account, self.host())
    }
}

/// A URL without its scheme and without a slash at its end.
pub(crate) fn host_of(url: &str) -> &str {
    url.split_once("://").map_or(url, |(_, rest)| rest).trim_end_matches('/')
}

/// Whether condition keys of AWS's own begin as those of a provider there would: what its tokens say is taken for what the provider says, and nothing else.
pub(crate) fn is_prefix_of_keys(host: &str) -> bool {
    let name = host.split([':', '/']).next().unwrap_or_default();
    ["aws", "iam", "kms", "s3", "sts"].iter().any(|prefix| name.eq_ignore_ascii_case(prefix))
}

/// What session tokens are made with.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct TokenKeyDoc {
    pub(crate) key: Sealed,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_provider_speaks_in_the_name_of_aws() {
        for url in ["https://aws", "http://AWS/", "https://s3:443", "https://sts/realms/x", "https://aws:8443/a"] {
            assert!(is_prefix_of_keys(host_of(url)), "{url}");
        }
        for url in ["https://aws.example.org", "https://login.s3", "https://awsx/aws", "https://idp.example.org/aws"] {
            assert!(!is_prefix_of_keys(host_of(url)), "{url}");
        }
    }
}
