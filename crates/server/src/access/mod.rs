//! What is said about access to a bucket and its objects: policy, ACLs, ownership, public access. [`crate::auth`] decides by it.

pub(crate) mod acl;
pub(crate) mod settings;

use std::sync::Arc;

use gabion_policy::Policy;
use gabion_store::Configs;

use acl::Acl;
pub use settings::Ownership;
use settings::{OwnershipControls, PublicAccessBlock};

/// Names of the documents of a bucket.
pub(crate) const POLICY: &str = "policy";
pub(crate) const ACL: &str = "acl";
pub(crate) const OWNERSHIP: &str = "ownershipControls";
pub(crate) const PUBLIC_ACCESS: &str = "publicAccessBlock";

/// What is said about access to a bucket.
#[derive(Debug, Default)]
pub(crate) struct BucketAccess {
    /// Canonical id of the account whose it is; nothing when there is no such bucket.
    pub(crate) owner: Option<String>,
    pub(crate) policy: Option<BucketPolicy>,
    pub(crate) ownership: OwnershipControls,
    /// Nothing when none was put: as if all were off.
    pub(crate) public_access: Option<PublicAccessBlock>,
    /// Nothing means private.
    pub(crate) acl: Option<Acl>,
}

/// A bucket's policy.
#[derive(Debug)]
pub(crate) struct BucketPolicy {
    /// Nothing when it is not understood, which a newer program wrote: then it denies everything.
    pub(crate) policy: Option<Arc<Policy>>,
    pub(crate) is_public: bool,
}

impl BucketPolicy {
    /// As it is stored: a byte, then the document as it was sent.
    pub(crate) fn encode(document: &[u8]) -> Vec<u8> {
        [MARK, document].concat()
    }

    /// The document as it was sent.
    pub(crate) fn document(stored: &[u8]) -> &[u8] {
        stored.get(MARK.len()..).unwrap_or_default()
    }

    fn decode(stored: &[u8]) -> Self {
        let policy = Policy::parse(Self::document(stored)).ok().map(Arc::new);
        let is_public = policy.as_ref().is_some_and(|policy| policy.is_public());
        Self { policy, is_public }
    }
}

/// Before a document. Others wrote another byte where the root user of the account was to be bound, too, which nothing does any more.
const MARK: &[u8] = b"=";

impl BucketAccess {
    pub(crate) fn parse(configs: &Configs) -> Self {
        // A list that is not understood grants nothing to others.
        let acl = |document: &[u8]| std::str::from_utf8(document).ok().and_then(Acl::decode).unwrap_or_default();
        Self {
            owner: configs.owner().map(str::to_owned),
            policy: configs.get(POLICY).map(|stored| BucketPolicy::decode(stored)),
            ownership: configs.get(OWNERSHIP).map_or(OwnershipControls::Unsaid, |name| OwnershipControls::decode(name)),
            public_access: configs.get(PUBLIC_ACCESS).map(|switches| PublicAccessBlock::decode(switches)),
            acl: configs.get(ACL).map(|document| acl(document)),
        }
    }
}
