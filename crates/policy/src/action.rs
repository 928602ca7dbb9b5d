//! The element `Action`, and the actions of S3.

use crate::error::PolicyError;
use crate::json::Json;
use crate::pattern::{Marks, Pattern};
use crate::principal::texts;
use crate::request::Context;

/// Patterns of actions, in lower case: actions are the same in any case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Actions(Vec<(String, Pattern)>);

impl Actions {
    /// # Errors
    /// `Policy has invalid action`.
    pub(crate) fn parse(json: Json) -> Result<Self, PolicyError> {
        let texts = texts(json).filter(|texts| !texts.is_empty()).ok_or_else(invalid)?;
        let patterns = texts.into_iter().map(|text| {
            let lower = text.to_lowercase();
            if lower != "*" && !lower.split_once(':').is_some_and(|(service, name)| is_name(service) && is_name(name)) {
                return Err(invalid());
            }
            let pattern = Pattern::parse(&lower, Marks { wildcards: true, variables: false })?;
            Ok((text, pattern))
        });
        patterns.collect::<Result<_, _>>().map(Self)
    }

    pub(crate) fn to_json(&self) -> Json {
        Json::List(self.0.iter().map(|(source, _)| Json::Text(source.clone())).collect())
    }

    /// Whether an action, in lower case, is among them.
    pub(crate) fn matches(&self, action: &str, context: &Context) -> bool {
        self.0.iter().any(|(_, pattern)| pattern.matches(action, context) == Some(true))
    }

    /// Whether each of the patterns stands for an action of S3 at least.
    pub(crate) fn are_of_s3(&self) -> bool {
        let empty = Context::default();
        let is_known = |pattern: &Pattern| {
            ACTIONS.iter().any(|name| pattern.matches(&format!("s3:{}", name.to_lowercase()), &empty) == Some(true))
        };
        self.0.iter().all(|(_, pattern)| is_known(pattern))
    }
}

/// What an action is done with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum About {
    Bucket,
    Object,
}

impl Actions {
    /// Whether each of the patterns stands for an action that `may_be` about something that there is. `s3:PutObject` is not asked: Ceph's
    /// clients give it with the bucket alone, where it says nothing.
    pub(crate) fn all_apply(&self, may_be: impl Fn(About) -> bool) -> bool {
        let empty = Context::default();
        let applies = |pattern: &Pattern| {
            ACTIONS.iter().any(|name| {
                may_be(about(name)) && pattern.matches(&format!("s3:{}", name.to_lowercase()), &empty) == Some(true)
            })
        };
        self.0.iter().all(|(source, pattern)| source.eq_ignore_ascii_case("s3:PutObject") || applies(pattern))
    }
}

/// What one of [`ACTIONS`] is done with.
fn about(name: &str) -> About {
    const OBJECTS: [&str; 10] = [
        "AbortMultipartUpload",
        "BypassGovernanceRetention",
        "DeleteObject",
        "GetObject",
        "InitiateReplication",
        "ListMultipartUploadParts",
        "ObjectOwnerOverride",
        "PutObject",
        "Replicate",
        "RestoreObject",
    ];
    let of_objects = OBJECTS.iter().any(|start| name.starts_with(start)) || name.starts_with("UpdateObject");
    if of_objects { About::Object } else { About::Bucket }
}

fn invalid() -> PolicyError {
    PolicyError::new("Policy has invalid action")
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_*?".contains(&byte))
}

/// The actions of S3 that a bucket's policy may name. Source: AWS, "Actions, resources, and condition keys for Amazon S3"; appending and
/// renaming are part of `PutObject` there.
const ACTIONS: &[&str] = &[
    "AbortMultipartUpload",
    "BypassGovernanceRetention",
    "CreateBucket",
    "CreateBucketMetadataTableConfiguration",
    "CreateSession",
    "DeleteBucket",
    "DeleteBucketMetadataTableConfiguration",
    "DeleteBucketOwnershipControls",
    "DeleteBucketPolicy",
    "DeleteBucketPublicAccessBlock",
    "DeleteBucketTagging",
    "DeleteBucketWebsite",
    "DeleteObject",
    "DeleteObjectTagging",
    "DeleteObjectVersion",
    "DeleteObjectVersionTagging",
    "GetAccelerateConfiguration",
    "GetAnalyticsConfiguration",
    "GetBucketAbac",
    "GetBucketAcl",
    "GetBucketCORS",
    "GetBucketLocation",
    "GetBucketLogging",
    "GetBucketMetadataTableConfiguration",
    "GetBucketNotification",
    "GetBucketObjectLockConfiguration",
    "GetBucketOwnershipControls",
    "GetBucketPolicy",
    "GetBucketPolicyStatus",
    "GetBucketPublicAccessBlock",
    "GetBucketRequestPayment",
    "GetBucketTagging",
    "GetBucketVersioning",
    "GetBucketWebsite",
    "GetEncryptionConfiguration",
    "GetIntelligentTieringConfiguration",
    "GetInventoryConfiguration",
    "GetLifecycleConfiguration",
    "GetMetricsConfiguration",
    "GetObject",
    "GetObjectAcl",
    "GetObjectAttributes",
    "GetObjectLegalHold",
    "GetObjectRetention",
    "GetObjectTagging",
    "GetObjectTorrent",
    "GetObjectVersion",
    "GetObjectVersionAcl",
    "GetObjectVersionAttributes",
    "GetObjectVersionForReplication",
    "GetObjectVersionTagging",
    "GetObjectVersionTorrent",
    "GetReplicationConfiguration",
    "InitiateReplication",
    "ListBucket",
    "ListBucketMultipartUploads",
    "ListBucketVersions",
    "ListMultipartUploadParts",
    "ObjectOwnerOverrideToBucketOwner",
    "PutAccelerateConfiguration",
    "PutAnalyticsConfiguration",
    "PutBucketAbac",
    "PutBucketAcl",
    "PutBucketCORS",
    "PutBucketLogging",
    "PutBucketNotification",
    "PutBucketObjectLockConfiguration",
    "PutBucketOwnershipControls",
    "PutBucketPolicy",
    "PutBucketPublicAccessBlock",
    "PutBucketRequestPayment",
    "PutBucketTagging",
    "PutBucketVersioning",
    "PutBucketWebsite",
    "PutEncryptionConfiguration",
    "PutIntelligentTieringConfiguration",
    "PutInventoryConfiguration",
    "PutLifecycleConfiguration",
    "PutMetricsConfiguration",
    "PutObject",
    "PutObjectAcl",
    "PutObjectLegalHold",
    "PutObjectRetention",
    "PutObjectTagging",
    "PutObjectVersionAcl",
    "PutObjectVersionTagging",
    "PutReplicationConfiguration",
    "ReplicateDelete",
    "ReplicateObject",
    "ReplicateTags",
    "RestoreObject",
    "UpdateObjectEncryption",
];
