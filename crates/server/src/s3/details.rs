//! What an error document says besides code and message: SDKs show it (`error.response["Error"]["Key"]`), and scripts read it.
//!
//! Made when a request has failed, from the request alone, for all operations: what only the place knows where it failed (sizes, conditions, arguments) is
//! already there. Source: the answers of AWS.

use gabion_store::Versioning;
use gabion_types::BucketName;

use super::call::Call;
use super::copies;
use super::route::Operation;
use crate::error::{S3Code, S3Error};
use crate::ops::Ops;

/// A text of a client is echoed at most this long, in characters.
const ECHO_CHARS_MAX: usize = 128;

/// Adds what the document of this error has.
pub(super) fn add(ops: &Ops, call: &Call, error: S3Error) -> S3Error {
    let key = || call.routed.key.as_ref().map(|key| key.as_str().to_owned());
    let asked = |name: &str| call.query().get(name).ok().flatten().map(echo);
    match error.code {
        S3Code::NoSuchKey => error.or_detail("Key", key()),
        S3Code::NoSuchVersion => {
            let error = error.or_detail("Key", key());
            error.or_detail("VersionId", asked("versionId"))
        }
        S3Code::NoSuchUpload | S3Code::InvalidPart => error.or_detail("UploadId", asked("uploadId")),
        S3Code::InvalidPartNumber => error.or_detail("PartNumberRequested", asked("partNumber")),
        S3Code::InvalidRange => {
            let range = call.headers().get("range").or_else(|| call.headers().get("x-amz-copy-source-range"));
            error.or_detail("RangeRequested", range.and_then(|range| range.to_str().ok()).map(echo))
        }
        S3Code::MethodNotAllowed => {
            error.or_detail("Method", call.routed.operation.as_ref().ok().map(|asked| method(*asked)))
        }
        S3Code::XAmzContentSHA256Mismatch => {
            let signed = call.headers().get("x-amz-content-sha256").and_then(|hash| hash.to_str().ok());
            error.or_detail("ClientComputedContentSHA256", signed.map(echo))
        }
        S3Code::BucketNotEmpty => {
            let mut error = error.or_detail("BucketName", call.named_bucket().map(BucketName::to_string));
            if call.settings(ops).is_ok_and(|settings| settings.versioning != Versioning::Never) {
                error.message = format!("{}. You must delete all versions in the bucket.", error.message).into();
            }
            error
        }
        S3Code::NoSuchBucket => error.or_detail("BucketName", missing_bucket(ops, call)),
        code if IS_ABOUT_BUCKETS.contains(&code) => {
            error.or_detail("BucketName", call.named_bucket().map(BucketName::to_string))
        }
        _ => error,
    }
}

/// Codes whose documents name the bucket, besides those that have more to say.
const IS_ABOUT_BUCKETS: &[S3Code] = &[
    S3Code::BucketAlreadyExists,
    S3Code::BucketAlreadyOwnedByYou,
    S3Code::NoSuchBucketPolicy,
    S3Code::NoSuchCORSConfiguration,
    S3Code::NoSuchLifecycleConfiguration,
    S3Code::NoSuchPublicAccessBlockConfiguration,
    S3Code::NoSuchTagSet,
    S3Code::NoSuchWebsiteConfiguration,
    S3Code::ObjectLockConfigurationNotFoundError,
    S3Code::OwnershipControlsNotFoundError,
    S3Code::ReplicationConfigurationNotFoundError,
    S3Code::ServerSideEncryptionConfigurationNotFoundError,
];

/// Which bucket does not exist: of a copy it may be that of the source.
fn missing_bucket(ops: &Ops, call: &Call) -> Option<String> {
    let copies = matches!(call.routed.operation, Ok(Operation::CopyObject | Operation::UploadPartCopy));
    if copies && call.settings(ops).is_ok() {
        return copies::source_name(call).ok().map(|source| source.bucket.to_string());
    }
    call.named_bucket().map(BucketName::to_string)
}

fn method(operation: Operation) -> &'static str {
    match operation.name() {
        name if name.starts_with("Head") => "HEAD",
        name if name.starts_with("Put") => "PUT",
        name if name.starts_with("Delete") => "DELETE",
        name if name.starts_with("Restore") => "POST",
        _ => "GET",
    }
}

/// What a client said, as far as it is told back.
pub(crate) fn echo(text: &str) -> String {
    text.chars().take(ECHO_CHARS_MAX).collect()
}
