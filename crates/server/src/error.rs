//! What a client is told when a request fails: S3's error codes, and the one mapping of the store's errors to them.
//!
//! Source: AWS, "Amazon S3 API Reference", "Error responses". Codes that AWS has not are marked in docs/SEMANTICS.md.

use std::borrow::Cow;

use gabion_store::{BodyError, DigestKind, KeyError, StoreError, VersionId};
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_RANGE, ETAG, EXPIRES, LAST_MODIFIED, RETRY_AFTER};
use http::{HeaderName, HeaderValue, StatusCode};

use crate::credentials::NoCredential;
use crate::s3::date;

/// Says that the version is a delete marker.
pub(crate) const DELETE_MARKER: HeaderName = HeaderName::from_static("x-amz-delete-marker");
/// The id of a version.
pub(crate) const VERSION_ID: HeaderName = HeaderName::from_static("x-amz-version-id");

macro_rules! codes {
    (@name $code:ident) => { stringify!($code) };
    (@name $code:ident $name:literal) => { $name };
    ($($code:ident $(as $name:literal)? $status:literal $message:literal,)*) => {
        /// An error code of S3.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum S3Code {
            $(#[doc = $message] $code,)*
        }

        impl S3Code {
            /// All codes.
            pub const ALL: &'static [S3Code] = &[$(S3Code::$code,)*];

            /// The code as clients read it.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(S3Code::$code => codes!(@name $code $($name)?),)* }
            }

            /// The HTTP status that goes with it.
            ///
            /// # Panics
            /// Never: all statuses of the table are valid.
            #[must_use]
            pub fn status(self) -> StatusCode {
                let status = match self { $(S3Code::$code => $status,)* };
                StatusCode::from_u16(status).expect("the table has statuses of three digits")
            }

            /// What it means, for humans.
            #[must_use]
            pub const fn message(self) -> &'static str {
                match self { $(S3Code::$code => $message,)* }
            }
        }
    };
}

codes! {
    InvalidRetentionPeriod 400 "The retention period must be a positive integer value.",
    ObjectLockConfigurationNotFoundError 404 "Object Lock configuration does not exist for this bucket",
    NoSuchObjectLockConfiguration 404 "The specified object does not have a ObjectLock configuration",
    InvalidBucketState 409 "The request is not valid for the current state of the bucket.",
    IllegalVersioningConfigurationException 400 "The versioning configuration specified in the request is invalid.",
    AccessDenied 403 "Access Denied",
    AccessForbidden 403 "Access Forbidden",
    AccessControlListNotSupported 400 "The bucket does not allow ACLs",
    AuthorizationHeaderMalformed 400 "The authorization header that you provided is not valid.",
    AuthorizationQueryParametersError 400 "The authorization query parameters that you provided are not valid.",
    BadDigest 400 "The Content-MD5 you specified did not match what we received.",
    BadRequest 400 "Bad Request",
    BucketAlreadyExists 409 "The requested bucket name is not available. The bucket namespace is shared by all users of the system. Please select a different name and try again.",
    BucketAlreadyOwnedByYou 409 "Your previous request to create the named bucket succeeded and you already own it.",
    BucketNotEmpty 409 "The bucket you tried to delete is not empty",
    EntityTooLarge 400 "Your proposed upload exceeds the maximum allowed size",
    EntityTooSmall 400 "Your proposed upload is smaller than the minimum allowed size",
    ExpiredToken 400 "The provided token has expired.",
    IdempotencyParameterMismatch 400 "Parameters on this idempotent request are inconsistent with parameters used in previous request(s).",
    IllegalLocationConstraintException 400 "The location constraint is incompatible for the region specific endpoint this request was sent to.",
    IncompleteBody 400 "The request body terminated unexpectedly",
    InsufficientStorage 507 "There is not enough storage space left to complete the request.",
    InternalError 500 "We encountered an internal error. Please try again.",
    InvalidAccessKeyId 403 "The AWS Access Key Id you provided does not exist in our records.",
    InvalidArgument 400 "Invalid Argument",
    InvalidBucketAclWithObjectOwnership 400 "Bucket cannot have ACLs set with ObjectOwnership's BucketOwnerEnforced setting",
    InvalidChunkSizeError 403 "Only the last chunk is allowed to have a size less than 8192 bytes",
    InvalidBucketName 400 "The specified bucket is not valid.",
    InvalidDigest 400 "The Content-MD5 you specified was invalid.",
    InvalidEncryptionAlgorithmError 400 "The Encryption request you specified is not valid. Supported value: AES256.",
    InvalidLocationConstraint 400 "The specified location-constraint is not valid",
    InvalidObjectState 403 "The operation is not valid for the current state of the object.",
    InvalidPart 400 "One or more of the specified parts could not be found.  The part may not have been uploaded, or the specified entity tag may not match the part's entity tag.",
    InvalidPartNumber 416 "The requested partnumber is not satisfiable",
    InvalidPartOrder 400 "The list of parts was not in ascending order. Parts must be ordered by part number.",
    InvalidPolicyDocument 400 "The content of the form does not meet the conditions specified in the policy document.",
    InvalidRange 416 "The requested range is not satisfiable",
    InvalidRedirectLocation 400 "The website redirect location must have a prefix of 'http://' or 'https://' or '/'.",
    InvalidRequest 400 "Invalid Request",
    InvalidS3DestinationBucket 400 "The S3 bucket specified in the request is not valid or does not exist.",
    InvalidStorageClass 400 "The storage class you specified is not valid",
    InvalidTag 400 "The tag provided was not a valid tag.",
    InvalidTargetBucketForLogging 400 "The target bucket for logging does not exist, is not owned by you, or does not have the appropriate grants for the log-delivery group.",
    InvalidToken 400 "The provided token is malformed or otherwise invalid.",
    InvalidURI 400 "Couldn't parse the specified URI.",
    InvalidWriteOffset 400 "The write offset value that you specified does not match the current object size.",
    KmsNotFoundException as "KMS.NotFoundException" 400 "The key that the request names does not exist.",
    KeyTooLongError 400 "Your key is too long",
    MalformedACLError 400 "The XML you provided was not well-formed or did not validate against our published schema",
    MalformedPolicy 400 "This policy contains invalid Json",
    MalformedPOSTRequest 400 "The body of your POST request is not well-formed multipart/form-data.",
    MalformedTrailerError 400 "The request contained trailing data that was not well-formed or did not conform to our published schema.",
    MalformedXML 400 "The XML you provided was not well-formed or did not validate against our published schema",
    MaxMessageLengthExceeded 400 "Your request was too big.",
    MaxPostPreDataLengthExceededError 400 "Your POST request fields preceding the upload file were too large.",
    MetadataTooLarge 400 "Your metadata headers exceed the maximum allowed metadata size",
    MethodNotAllowed 405 "The specified method is not allowed against this resource.",
    MissingRequestBodyError 400 "Request Body is empty",
    MissingContentLength 411 "You must provide the Content-Length HTTP header.",
    MissingSecurityHeader 400 "Your request was missing a required header",
    NoSuchBucket 404 "The specified bucket does not exist",
    NoSuchCORSConfiguration 404 "The CORS configuration does not exist",
    NoSuchConfiguration 404 "The specified configuration does not exist.",
    NoSuchBucketPolicy 404 "The bucket policy does not exist",
    NoSuchKey 404 "The specified key does not exist.",
    NoSuchLifecycleConfiguration 404 "The lifecycle configuration does not exist",
    NoSuchTagSet 404 "The TagSet does not exist",
    NoSuchVersion 404 "The specified version does not exist.",
    NoSuchPublicAccessBlockConfiguration 404 "The public access block configuration was not found",
    NoSuchUpload 404 "The specified upload does not exist. The upload ID may be invalid, or the upload may have been aborted or completed.",
    NoSuchWebsiteConfiguration 404 "The specified bucket does not have a website configuration",
    NotImplemented 501 "A header you provided implies functionality that is not implemented",
    NotModified 304 "Not Modified",
    OwnershipControlsNotFoundError 404 "The bucket ownership controls were not found",
    PreconditionFailed 412 "At least one of the pre-conditions you specified did not hold",
    QuotaExceeded 403 "The quota set for the bucket, its account or the user is exceeded.",
    ReplicationConfigurationNotFoundError 404 "The replication configuration was not found",
    RequestTimeTooSkewed 403 "The difference between the request time and the current time is too large.",
    RequestTimeout 400 "Your socket connection to the server was not read from or written to within the timeout period. Idle connections will be closed.",
    ServerSideEncryptionConfigurationNotFoundError 404 "The server side encryption configuration was not found",
    ServiceUnavailable 503 "Service is unable to handle request.",
    SignatureDoesNotMatch 403 "The request signature we calculated does not match the signature you provided. Check your key and signing method.",
    SlowDown 503 "Please reduce your request rate.",
    TooManyParts 400 "You have attempted to add more parts than the maximum of 10000 that are allowed for this object. You can use the CopyObject operation to copy this object to another and then add more data to the newly copied object.",
    TooManyBuckets 400 "You have attempted to create more buckets than allowed",
    TooManyConfigurations 400 "You are attempting to create a new configuration but have already reached the limit of configurations.",
    UnexpectedContent 400 "This request does not support content.",
    UnresolvableGrantByEmailAddress 400 "The e-mail address you provided does not match any account on record.",
    XAmzContentSHA256Mismatch 400 "The provided 'x-amz-content-sha256' header does not match what was computed.",
}

/// A failed request.
#[derive(Clone, Debug)]
pub struct S3Error {
    /// The code.
    pub code: S3Code,
    /// What went wrong, for the client. Holds no path and no secret.
    pub message: Cow<'static, str>,
    /// Further elements of the error document: names and texts.
    pub details: Vec<(&'static str, String)>,
    /// Further headers of the answer.
    pub headers: Vec<(HeaderName, HeaderValue)>,
}

impl S3Error {
    /// With the code's own message.
    #[must_use]
    pub fn new(code: S3Code) -> Self {
        Self::with(code, code.message())
    }

    /// With a message of its own.
    #[must_use]
    pub fn with(code: S3Code, message: impl Into<Cow<'static, str>>) -> Self {
        Self { code, message: message.into(), details: Vec::new(), headers: Vec::new() }
    }

    /// `InvalidArgument` about a named argument.
    #[must_use]
    pub fn argument(name: &str, value: &str, message: impl Into<Cow<'static, str>>) -> Self {
        Self::with(S3Code::InvalidArgument, message)
            .detail("ArgumentName", name)
            .detail("ArgumentValue", value.chars().take(ARGUMENT_CHARS_MAX).collect::<String>())
    }

    /// `InvalidRequest`.
    #[must_use]
    pub fn request(message: impl Into<Cow<'static, str>>) -> Self {
        Self::with(S3Code::InvalidRequest, message)
    }

    /// `NotImplemented` because of a header or a query.
    #[must_use]
    pub fn unsupported(name: &str) -> Self {
        Self::new(S3Code::NotImplemented).detail("Header", name)
    }

    /// Adds an element to the error document.
    #[must_use]
    pub fn detail(mut self, name: &'static str, text: impl Into<String>) -> Self {
        self.details.push((name, text.into()));
        self
    }

    /// Adds an element to the error document, if there is a text for it and it is not there yet.
    #[must_use]
    pub fn or_detail(self, name: &'static str, text: Option<impl Into<String>>) -> Self {
        match text {
            Some(text) if !self.details.iter().any(|(present, _)| *present == name) => self.detail(name, text),
            _ => self,
        }
    }

    /// Adds a header to the answer.
    #[must_use]
    pub fn header(mut self, name: HeaderName, value: &str) -> Self {
        // Not `from_str`: what is not ASCII goes out as it came in.
        if let Ok(value) = HeaderValue::from_bytes(value.as_bytes()) {
            self.headers.push((name, value));
        }
        self
    }
}

/// An argument is echoed at most this long, in characters.
const ARGUMENT_CHARS_MAX: usize = 128;

impl From<S3Code> for S3Error {
    fn from(code: S3Code) -> Self {
        Self::new(code)
    }
}

impl From<NoCredential> for S3Error {
    fn from(refusal: NoCredential) -> Self {
        Self::new(match refusal {
            NoCredential::UnknownKey => S3Code::InvalidAccessKeyId,
            NoCredential::InvalidToken => S3Code::InvalidToken,
            NoCredential::ExpiredToken => S3Code::ExpiredToken,
        })
    }
}

impl From<BodyError> for S3Error {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::Incomplete => Self::new(S3Code::IncompleteBody),
            BodyError::WrongLength => Self::with(
                S3Code::IncompleteBody,
                "You did not provide the number of bytes specified by the Content-Length HTTP header",
            ),
            BodyError::SmallChunk { number, bytes } => Self::new(S3Code::InvalidChunkSizeError)
                .detail("Chunk", number.to_string())
                .detail("BadChunkSize", bytes.to_string()),
            BodyError::Sha256Mismatch { found } => {
                Self::new(S3Code::XAmzContentSHA256Mismatch).detail("S3ComputedContentSHA256", hex::encode(found))
            }
            BodyError::BadChunkSignature => Self::new(S3Code::SignatureDoesNotMatch),
            BodyError::TooLarge => Self::new(S3Code::EntityTooLarge),
            BodyError::TimedOut => Self::new(S3Code::RequestTimeout),
            BodyError::MalformedTrailer(_) => Self::new(S3Code::MalformedTrailerError),
            BodyError::InvalidTrailer(name) => Self::request(format!("Value for {name} trailing header is invalid.")),
        }
    }
}

impl From<KeyError> for S3Error {
    fn from(error: KeyError) -> Self {
        match error {
            KeyError::Needed => Self::request(
                "The object was stored using a form of Server Side Encryption. The correct parameters must be provided to \
                 retrieve the object.",
            ),
            KeyError::Wrong => {
                Self::request("The provided encryption parameters did not match the ones used originally.")
            }
            KeyError::NotApplicable => Self::request("The encryption parameters are not applicable to this object."),
            KeyError::NoKeeper => Self::with(
                S3Code::NotImplemented,
                "Server side encryption is asked for, but this server has no key for it (encryption.keys, encryption.master_key).",
            ),
            KeyError::NotFound(id) => {
                Self::with(S3Code::KmsNotFoundException, format!("Invalid keyId '{}'", id.escape_debug()))
            }
            KeyError::Refused(reason) => {
                tracing::warn!(%reason, "a request was refused: the use of a key was");
                Self::new(S3Code::AccessDenied)
            }
            KeyError::Unavailable(reason) => {
                tracing::warn!(%reason, "a request failed: keys are not available");
                Self::new(S3Code::ServiceUnavailable)
            }
        }
    }
}

impl From<StoreError> for S3Error {
    /// The only place in which the store's errors become S3's. What only the operator may know is logged here.
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::NoSuchBucket => Self::new(S3Code::NoSuchBucket),
            StoreError::NoSuchKey => Self::new(S3Code::NoSuchKey),
            StoreError::NoSuchVersion(VersionId::ELSEWHERE) => Self::new(S3Code::NoSuchVersion),
            StoreError::NoSuchVersion(version) => {
                Self::new(S3Code::NoSuchVersion).detail("VersionId", version.to_string())
            }
            StoreError::DeleteMarker { version, modified_ms, is_named } => {
                let version = version.to_string();
                let error = match is_named {
                    true => Self::new(S3Code::MethodNotAllowed).detail("ResourceType", "DeleteMarker"),
                    false => Self::new(S3Code::NoSuchKey),
                };
                let error = error.header(DELETE_MARKER, "true").header(VERSION_ID, &version);
                if is_named {
                    error.header(LAST_MODIFIED, &date::http(modified_ms).to_string()).header(ALLOW, "DELETE")
                } else {
                    error
                }
            }
            StoreError::AccessDenied(message) => Self::with(S3Code::AccessDenied, message),
            StoreError::NoSuchUpload => Self::new(S3Code::NoSuchUpload),
            StoreError::BucketAlreadyExists => Self::new(S3Code::BucketAlreadyExists),
            StoreError::BucketAlreadyOwnedByYou => Self::new(S3Code::BucketAlreadyOwnedByYou),
            StoreError::BucketNotEmpty => Self::new(S3Code::BucketNotEmpty),
            StoreError::TooManyBuckets => Self::new(S3Code::TooManyBuckets),
            StoreError::PreconditionFailed(header) => Self::new(S3Code::PreconditionFailed).detail("Condition", header),
            StoreError::NotModified(current) => {
                let error = Self::new(S3Code::NotModified)
                    .header(ETAG, &format!("\"{}\"", current.etag))
                    .header(LAST_MODIFIED, &date::http(current.modified_ms).to_string());
                let caching = [(CACHE_CONTROL, current.cache_control), (EXPIRES, current.expires)];
                caching.into_iter().fold(error, |error, (name, value)| match value {
                    Some(value) => error.header(name, &value),
                    None => error,
                })
            }
            StoreError::InvalidRange { size } => Self::new(S3Code::InvalidRange)
                .detail("ActualObjectSize", size.to_string())
                .header(CONTENT_RANGE, &format!("bytes */{size}")),
            StoreError::InvalidPart => Self::new(S3Code::InvalidPart),
            StoreError::InvalidPartNumber => Self::new(S3Code::InvalidPartNumber),
            StoreError::InvalidPartOrder => Self::new(S3Code::InvalidPartOrder),
            StoreError::EntityTooSmall { part_number, etag, size, size_min } => Self::new(S3Code::EntityTooSmall)
                .detail("ProposedSize", size.to_string())
                .detail("MinSizeAllowed", size_min.to_string())
                .detail("PartNumber", part_number.to_string())
                .detail("ETag", etag.to_string()),
            // How long an object is, not everybody may know who may write.
            StoreError::InvalidWriteOffset { .. } => Self::new(S3Code::InvalidWriteOffset),
            StoreError::TooManyParts => Self::new(S3Code::TooManyParts),
            StoreError::IdempotencyMismatch => Self::new(S3Code::IdempotencyParameterMismatch),
            StoreError::EntityTooLarge => Self::new(S3Code::EntityTooLarge),
            StoreError::BadDigest(DigestKind::Md5) => Self::new(S3Code::BadDigest),
            StoreError::BadDigest(DigestKind::Checksum(algorithm)) => Self::with(
                S3Code::BadDigest,
                format!("The {algorithm} you specified did not match the calculated checksum."),
            ),
            StoreError::BadDigest(DigestKind::PartChecksum(algorithm, part_number)) => {
                let algorithm = algorithm.as_str().to_ascii_lowercase();
                let message =
                    format!("The {algorithm} you specified for part {part_number} did not match what we received.");
                Self::with(S3Code::BadDigest, message)
            }
            StoreError::InvalidRequest(message) => Self::request(message),
            StoreError::Body(error) => error.into(),
            StoreError::Key(error) => error.into(),
            StoreError::QuotaExceeded => Self::new(S3Code::QuotaExceeded),
            StoreError::NoSpace => Self::new(S3Code::InsufficientStorage),
            StoreError::Busy => Self::new(S3Code::SlowDown).header(RETRY_AFTER, "1"),
            StoreError::Unreadable(reason) => {
                tracing::warn!(%reason, "a request failed: what it reads can not be read now");
                Self::new(S3Code::ServiceUnavailable)
            }
            StoreError::Unavailable(reason) => {
                tracing::warn!(%reason, "a request was refused: the store is unavailable");
                Self::new(S3Code::ServiceUnavailable)
            }
            StoreError::Corrupt(reason) => {
                tracing::error!(%reason, "a request failed: stored data is corrupt");
                Self::new(S3Code::InternalError)
            }
            StoreError::Internal(reason) => {
                tracing::error!(%reason, "a request failed: internal error");
                Self::new(S3Code::InternalError)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use gabion_store::{ChecksumAlgorithm, Etag, Unmodified};

    use super::*;

    #[test]
    fn every_store_error_has_its_code() {
        let etag = Etag::Md5([0; 16]);
        let table: Vec<(StoreError, u16, &str)> = vec![
            (StoreError::NoSuchBucket, 404, "NoSuchBucket"),
            (StoreError::NoSuchKey, 404, "NoSuchKey"),
            (StoreError::NoSuchVersion(VersionId::Null), 404, "NoSuchVersion"),
            (
                StoreError::DeleteMarker { version: VersionId::Null, modified_ms: 0, is_named: true },
                405,
                "MethodNotAllowed",
            ),
            (StoreError::DeleteMarker { version: VersionId::Null, modified_ms: 0, is_named: false }, 404, "NoSuchKey"),
            (StoreError::QuotaExceeded, 403, "QuotaExceeded"),
            (StoreError::AccessDenied("because"), 403, "AccessDenied"),
            (StoreError::NoSuchUpload, 404, "NoSuchUpload"),
            (StoreError::BucketAlreadyExists, 409, "BucketAlreadyExists"),
            (StoreError::BucketAlreadyOwnedByYou, 409, "BucketAlreadyOwnedByYou"),
            (StoreError::BucketNotEmpty, 409, "BucketNotEmpty"),
            (StoreError::TooManyBuckets, 400, "TooManyBuckets"),
            (StoreError::PreconditionFailed("If-Match"), 412, "PreconditionFailed"),
            (
                StoreError::NotModified(Box::new(Unmodified {
                    etag: etag.clone(),
                    modified_ms: 0,
                    cache_control: None,
                    expires: None,
                })),
                304,
                "NotModified",
            ),
            (StoreError::InvalidRange { size: 3 }, 416, "InvalidRange"),
            (StoreError::InvalidPart, 400, "InvalidPart"),
            (StoreError::InvalidPartNumber, 416, "InvalidPartNumber"),
            (StoreError::InvalidPartOrder, 400, "InvalidPartOrder"),
            (StoreError::EntityTooSmall { part_number: 1, etag, size: 1, size_min: 5 }, 400, "EntityTooSmall"),
            (StoreError::EntityTooLarge, 400, "EntityTooLarge"),
            (StoreError::InvalidWriteOffset { size: 3 }, 400, "InvalidWriteOffset"),
            (StoreError::TooManyParts, 400, "TooManyParts"),
            (StoreError::IdempotencyMismatch, 400, "IdempotencyParameterMismatch"),
            (StoreError::BadDigest(DigestKind::Md5), 400, "BadDigest"),
            (StoreError::BadDigest(DigestKind::Checksum(ChecksumAlgorithm::Crc32)), 400, "BadDigest"),
            (StoreError::BadDigest(DigestKind::PartChecksum(ChecksumAlgorithm::Sha256, 1)), 400, "BadDigest"),
            (StoreError::InvalidRequest("text".into()), 400, "InvalidRequest"),
            (StoreError::Body(BodyError::Incomplete), 400, "IncompleteBody"),
            (StoreError::Body(BodyError::Sha256Mismatch { found: [0; 32] }), 400, "XAmzContentSHA256Mismatch"),
            (StoreError::Body(BodyError::BadChunkSignature), 403, "SignatureDoesNotMatch"),
            (StoreError::Body(BodyError::TooLarge), 400, "EntityTooLarge"),
            (StoreError::Body(BodyError::TimedOut), 400, "RequestTimeout"),
            (StoreError::Body(BodyError::WrongLength), 400, "IncompleteBody"),
            (StoreError::Body(BodyError::SmallChunk { number: 2, bytes: 3 }), 403, "InvalidChunkSizeError"),
            (StoreError::Body(BodyError::MalformedTrailer("text".into())), 400, "MalformedTrailerError"),
            (StoreError::Body(BodyError::InvalidTrailer("x-amz-checksum-sha1")), 400, "InvalidRequest"),
            (KeyError::Needed.into(), 400, "InvalidRequest"),
            (KeyError::Wrong.into(), 400, "InvalidRequest"),
            (KeyError::NotApplicable.into(), 400, "InvalidRequest"),
            (KeyError::NoKeeper.into(), 501, "NotImplemented"),
            (KeyError::NotFound("k".into()).into(), 400, "KMS.NotFoundException"),
            (KeyError::Refused("/secret/path".into()).into(), 403, "AccessDenied"),
            (KeyError::Unavailable("/secret/path".into()).into(), 503, "ServiceUnavailable"),
            (StoreError::NoSpace, 507, "InsufficientStorage"),
            (StoreError::Busy, 503, "SlowDown"),
            (StoreError::Unreadable("/secret/path".into()), 503, "ServiceUnavailable"),
            (StoreError::Unavailable("/secret/path".into()), 503, "ServiceUnavailable"),
            (StoreError::Corrupt("/secret/path".into()), 500, "InternalError"),
            (StoreError::Internal("/secret/path".into()), 500, "InternalError"),
        ];
        for (error, status, code) in table {
            let shown = error.to_string();
            let error = S3Error::from(error);
            assert_eq!((error.code.status().as_u16(), error.code.as_str()), (status, code), "{shown}");
            assert!(!error.message.contains("/secret"), "{shown}");
        }
    }

    #[test]
    fn codes_have_valid_statuses() {
        for code in S3Code::ALL {
            assert!(code.status().as_u16() >= 300, "{code:?}");
        }
    }
}
