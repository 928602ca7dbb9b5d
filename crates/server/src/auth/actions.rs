//! The permissions that operations need.
//!
//! Source: AWS, "Required permissions for Amazon S3 API operations", "Mapping of ACL permissions and access policy permissions".

use crate::access::acl::Permission;
use crate::s3::Operation;

/// What an operation is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// What an account has: no bucket.
    Account,
    Bucket,
    Object,
}

/// The permission that an operation needs first of all, on what; `versioned` when the request names a version. What more a request needs
/// depends on its headers.
///
/// Every operation is listed, so that none that is added is served unasked.
pub(crate) fn action(operation: Operation, versioned: bool) -> (Target, &'static str) {
    use Operation as O;
    let by_version = |plain, of_version| (Target::Object, if versioned { of_version } else { plain });
    match operation {
        O::ListBuckets => (Target::Account, "s3:ListAllMyBuckets"),
        O::CreateBucket => (Target::Bucket, "s3:CreateBucket"),
        O::DeleteBucket => (Target::Bucket, "s3:DeleteBucket"),
        O::HeadBucket | O::ListObjects | O::ListObjectsV2 => (Target::Bucket, "s3:ListBucket"),
        O::ListMultipartUploads => (Target::Bucket, "s3:ListBucketMultipartUploads"),
        O::GetBucketLocation => (Target::Bucket, "s3:GetBucketLocation"),
        O::GetBucketAcl => (Target::Bucket, "s3:GetBucketAcl"),
        O::PutBucketAcl => (Target::Bucket, "s3:PutBucketAcl"),
        O::GetBucketPolicy => (Target::Bucket, "s3:GetBucketPolicy"),
        O::PutBucketPolicy => (Target::Bucket, "s3:PutBucketPolicy"),
        O::DeleteBucketPolicy => (Target::Bucket, "s3:DeleteBucketPolicy"),
        O::GetBucketPolicyStatus => (Target::Bucket, "s3:GetBucketPolicyStatus"),
        O::GetPublicAccessBlock => (Target::Bucket, "s3:GetBucketPublicAccessBlock"),
        O::PutPublicAccessBlock | O::DeletePublicAccessBlock => (Target::Bucket, "s3:PutBucketPublicAccessBlock"),
        O::GetBucketOwnershipControls => (Target::Bucket, "s3:GetBucketOwnershipControls"),
        O::PutBucketOwnershipControls | O::DeleteBucketOwnershipControls => {
            (Target::Bucket, "s3:PutBucketOwnershipControls")
        }
        O::GetBucketEncryption => (Target::Bucket, "s3:GetEncryptionConfiguration"),
        O::PutBucketEncryption | O::DeleteBucketEncryption => (Target::Bucket, "s3:PutEncryptionConfiguration"),
        O::GetBucketCors => (Target::Bucket, "s3:GetBucketCORS"),
        O::PutBucketCors | O::DeleteBucketCors => (Target::Bucket, "s3:PutBucketCORS"),
        O::GetBucketTagging => (Target::Bucket, "s3:GetBucketTagging"),
        O::PutBucketTagging | O::DeleteBucketTagging => (Target::Bucket, "s3:PutBucketTagging"),
        O::GetBucketRequestPayment => (Target::Bucket, "s3:GetBucketRequestPayment"),
        O::PutBucketRequestPayment => (Target::Bucket, "s3:PutBucketRequestPayment"),
        O::GetBucketWebsite => (Target::Bucket, "s3:GetBucketWebsite"),
        O::PutBucketWebsite => (Target::Bucket, "s3:PutBucketWebsite"),
        O::DeleteBucketWebsite => (Target::Bucket, "s3:DeleteBucketWebsite"),
        O::GetBucketReplication => (Target::Bucket, "s3:GetReplicationConfiguration"),
        O::GetBucketAccelerateConfiguration => (Target::Bucket, "s3:GetAccelerateConfiguration"),
        O::GetBucketAbac => (Target::Bucket, "s3:GetBucketAbac"),
        O::GetBucketAnalyticsConfiguration | O::ListBucketAnalyticsConfigurations => {
            (Target::Bucket, "s3:GetAnalyticsConfiguration")
        }
        O::GetBucketIntelligentTieringConfiguration | O::ListBucketIntelligentTieringConfigurations => {
            (Target::Bucket, "s3:GetIntelligentTieringConfiguration")
        }
        O::GetBucketMetricsConfiguration | O::ListBucketMetricsConfigurations => {
            (Target::Bucket, "s3:GetMetricsConfiguration")
        }
        O::GetBucketLogging => (Target::Bucket, "s3:GetBucketLogging"),
        O::PutBucketLogging => (Target::Bucket, "s3:PutBucketLogging"),
        O::GetBucketInventoryConfiguration | O::ListBucketInventoryConfigurations => {
            (Target::Bucket, "s3:GetInventoryConfiguration")
        }
        O::PutBucketInventoryConfiguration | O::DeleteBucketInventoryConfiguration => {
            (Target::Bucket, "s3:PutInventoryConfiguration")
        }
        O::GetBucketNotificationConfiguration => (Target::Bucket, "s3:GetBucketNotification"),
        O::PutBucketNotificationConfiguration => (Target::Bucket, "s3:PutBucketNotification"),
        O::GetBucketLifecycleConfiguration => (Target::Bucket, "s3:GetLifecycleConfiguration"),
        O::PutBucketLifecycleConfiguration | O::DeleteBucketLifecycle => {
            (Target::Bucket, "s3:PutLifecycleConfiguration")
        }
        // Asked by browsers, which have no credentials: what is allowed then is the bucket's CORS configuration alone.
        O::PreflightRequest => (Target::Account, ""),
        O::GetBucketVersioning => (Target::Bucket, "s3:GetBucketVersioning"),
        O::PutBucketVersioning => (Target::Bucket, "s3:PutBucketVersioning"),
        O::ListObjectVersions => (Target::Bucket, "s3:ListBucketVersions"),
        O::GetObjectLockConfiguration => (Target::Bucket, "s3:GetBucketObjectLockConfiguration"),
        O::PutObjectLockConfiguration => (Target::Bucket, "s3:PutBucketObjectLockConfiguration"),
        O::GetObjectRetention => (Target::Object, "s3:GetObjectRetention"),
        O::PutObjectRetention => (Target::Object, "s3:PutObjectRetention"),
        O::GetObjectLegalHold => (Target::Object, "s3:GetObjectLegalHold"),
        O::PutObjectLegalHold => (Target::Object, "s3:PutObjectLegalHold"),
        O::GetObject | O::HeadObject => by_version("s3:GetObject", "s3:GetObjectVersion"),
        O::GetObjectAttributes => by_version("s3:GetObjectAttributes", "s3:GetObjectVersionAttributes"),
        O::GetObjectAcl => by_version("s3:GetObjectAcl", "s3:GetObjectVersionAcl"),
        O::PutObjectAcl => by_version("s3:PutObjectAcl", "s3:PutObjectVersionAcl"),
        O::GetObjectTagging => by_version("s3:GetObjectTagging", "s3:GetObjectVersionTagging"),
        O::PutObjectTagging => by_version("s3:PutObjectTagging", "s3:PutObjectVersionTagging"),
        O::DeleteObjectTagging => by_version("s3:DeleteObjectTagging", "s3:DeleteObjectVersionTagging"),
        O::DeleteObject => by_version("s3:DeleteObject", "s3:DeleteObjectVersion"),
        // Of each key when its turn comes.
        O::DeleteObjects => (Target::Bucket, "s3:DeleteObject"),
        // A form is read before it is known what it asks for: it is asked for as a put then.
        O::PostObject
        | O::PutObject
        | O::CopyObject
        | O::RenameObject
        | O::UploadPart
        | O::UploadPartCopy
        | O::CreateMultipartUpload
        | O::CompleteMultipartUpload => (Target::Object, "s3:PutObject"),
        O::RestoreObject => (Target::Object, "s3:RestoreObject"),
        O::AbortMultipartUpload => (Target::Object, "s3:AbortMultipartUpload"),
        O::ListParts => (Target::Object, "s3:ListMultipartUploadParts"),
    }
}

/// Whether an operation reads an object, so that who may not list the bucket must not learn from it whether there is such a key.
pub(crate) fn reads_object(operation: Operation) -> bool {
    use Operation as O;
    matches!(
        operation,
        O::GetObject
            | O::HeadObject
            | O::GetObjectAttributes
            | O::GetObjectAcl
            | O::PutObjectAcl
            | O::GetObjectTagging
            | O::PutObjectTagging
            | O::DeleteObjectTagging
            | O::GetObjectRetention
            | O::PutObjectRetention
            | O::GetObjectLegalHold
            | O::PutObjectLegalHold
            | O::RestoreObject
    )
}

/// Whether an operation is about an object that is there, which has an owner and an ACL of its own.
pub(crate) fn is_of_object(action: &str) -> bool {
    // What is put and deleted is the bucket's matter.
    const OF_BUCKET: [&str; 3] = ["s3:PutObject", "s3:DeleteObject", "s3:DeleteObjectVersion"];
    action.contains("Object") && !OF_BUCKET.contains(&action)
}

/// Which ACL grants an action, and with which permission.
pub(crate) fn permission(action: &str) -> Option<(Target, Permission)> {
    use Permission::{Read, ReadAcp, Write, WriteAcp};
    Some(match action {
        "s3:ListBucket" | "s3:ListBucketVersions" | "s3:ListBucketMultipartUploads" => (Target::Bucket, Read),
        "s3:PutObject" | "s3:DeleteObject" | "s3:AbortMultipartUpload" => (Target::Bucket, Write),
        "s3:GetBucketAcl" => (Target::Bucket, ReadAcp),
        "s3:PutBucketAcl" => (Target::Bucket, WriteAcp),
        "s3:GetObject" | "s3:GetObjectVersion" => (Target::Object, Read),
        "s3:GetObjectAcl" | "s3:GetObjectVersionAcl" => (Target::Object, ReadAcp),
        "s3:PutObjectAcl" | "s3:PutObjectVersionAcl" => (Target::Object, WriteAcp),
        _ => return None,
    })
}
