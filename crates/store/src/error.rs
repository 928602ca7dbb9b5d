//! Why the store refused, by what the client is told.

use gabion_metadata::{IndexError, rows::Etag, rows::RowError};
use gabion_segment::LogError;

use crate::VersionId;

/// Why an operation of the store failed. No variant carries a path.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is no such bucket.
    #[error("the bucket does not exist")]
    NoSuchBucket,
    /// There is no such object.
    #[error("the key does not exist")]
    NoSuchKey,
    /// There is no such version of the object.
    #[error("the version {0} does not exist")]
    NoSuchVersion(VersionId),
    /// The version is a delete marker.
    #[error("the version {version} is a delete marker")]
    DeleteMarker {
        /// Its id.
        version: VersionId,
        /// When it was made, Unix time in milliseconds.
        modified_ms: u64,
        /// Whether it was asked for by its id; if not, it is the newest version.
        is_named: bool,
    },
    /// The request may not do this, whoever makes it: the object is locked.
    #[error("access denied: {0}")]
    AccessDenied(&'static str),
    /// The upload never was, was completed or was aborted.
    #[error("the upload does not exist")]
    NoSuchUpload,
    /// The bucket exists, and is another account's.
    #[error("the bucket exists and is another's")]
    BucketAlreadyExists,
    /// The bucket exists.
    #[error("the bucket exists and is yours")]
    BucketAlreadyOwnedByYou,
    /// The bucket still holds objects.
    #[error("the bucket is not empty")]
    BucketNotEmpty,
    /// There are as many buckets as there may be.
    #[error("there are too many buckets")]
    TooManyBuckets,
    /// A condition of the request does not hold; names the header.
    #[error("the condition {0} does not hold")]
    PreconditionFailed(&'static str),
    /// The client has the current object already.
    #[error("the object was not modified")]
    NotModified(Box<Unmodified>),
    /// The range begins behind the end of the object.
    #[error("the range can not be satisfied")]
    InvalidRange {
        /// Length of the object in bytes.
        size: u64,
    },
    /// A part named in a completion is unknown or not the one that was uploaded.
    #[error("a part was not found, or its tag or checksum does not match")]
    InvalidPart,
    /// A part number that is out of range, or that the object does not have.
    #[error("the part number is invalid")]
    InvalidPartNumber,
    /// The parts of a completion do not ascend.
    #[error("the parts are not in ascending order")]
    InvalidPartOrder,
    /// A part that is not the last one is too small.
    #[error("part {part_number} has {size} bytes, fewer than {size_min}")]
    EntityTooSmall {
        /// Number of the part.
        part_number: u16,
        /// Tag of the part.
        etag: Etag,
        /// Its length in bytes.
        size: u64,
        /// Least length of a part that is not the last one, in bytes.
        size_min: u64,
    },
    /// An append does not begin where the object ends.
    #[error("the object has {size} bytes: that is where an append begins")]
    InvalidWriteOffset {
        /// Length of the object in bytes.
        size: u64,
    },
    /// The object consists of as many parts and appends as it may.
    #[error("the object has too many parts")]
    TooManyParts,
    /// A client's token came before, with another request.
    #[error("the client's token belongs to another request")]
    IdempotencyMismatch,
    /// The object or part would be larger than allowed.
    #[error("the body or the object is too large")]
    EntityTooLarge,
    /// A digest that the client gave is not that of the bytes that came.
    #[error("the {0} does not match the body")]
    BadDigest(DigestKind),
    /// The request contradicts itself or the state it refers to; the text is for the client.
    #[error("{0}")]
    InvalidRequest(String),
    /// The body did not come as promised.
    #[error("the body failed: {0}")]
    Body(#[from] BodyError),
    /// It would be more than the bucket, its account or the user may hold.
    #[error("a quota would be exceeded")]
    QuotaExceeded,
    /// The targets are full: reads and deletes go on.
    #[error("there is no space left")]
    NoSpace,
    /// A queue is full: try again soon.
    #[error("too busy")]
    Busy,
    /// The store can not do this now (shutting down, too few targets, index failed), and perhaps not until an operator acts.
    #[error("unavailable: {0}")]
    Unavailable(String),
    /// Stored bytes can not be read now: too many of the targets that hold them are away or fail. They may come back.
    #[error("unreadable for now: {0}")]
    Unreadable(String),
    /// Stored bytes are lost beyond what parity can rebuild.
    #[error("stored data is corrupt: {0}")]
    Corrupt(String),
    /// The key of an encrypted object.
    #[error("{0}")]
    Key(#[from] KeyError),
    /// What must not happen; the text is for the log.
    #[error("internal error: {0}")]
    Internal(String),
}

/// Why a body ended before its end. Made by the server, passed through by the store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// The body ended in the middle of its framing, or the connection did.
    #[error("the body is incomplete")]
    Incomplete,
    /// Not as many bytes came as were announced.
    #[error("the body has not the length that was announced")]
    WrongLength,
    /// A chunk that was not the last was too small; which chunk came behind it, counted from 1, and how many bytes it had.
    #[error("a chunk before chunk {number} has {bytes} bytes only")]
    SmallChunk {
        /// The chunk behind it.
        number: u64,
        /// Its size.
        bytes: u64,
    },
    /// The SHA-256 that was signed is not that of the body.
    #[error("the SHA-256 of the body does not match")]
    Sha256Mismatch {
        /// What it is.
        found: [u8; 32],
    },
    /// The signature of a chunk is wrong.
    #[error("the signature of a chunk does not match")]
    BadChunkSignature,
    /// More bytes came than were announced or are allowed.
    #[error("the body is too large")]
    TooLarge,
    /// The client was too slow.
    #[error("the body took too long")]
    TimedOut,
    /// The trailers are malformed, or not those that were announced; the text is for the log.
    #[error("malformed trailers: {0}")]
    MalformedTrailer(String),
    /// The trailer of this name has a value that can be none.
    #[error("the trailer {0} has an invalid value")]
    InvalidTrailer(&'static str),
}

/// Why a key does not serve.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The object, or the upload, is encrypted with a customer's key, and none was shown.
    #[error("the customer's key is needed")]
    Needed,
    /// The key that was shown is another one.
    #[error("the customer's key is another one")]
    Wrong,
    /// A customer's key was shown for what is not encrypted with one.
    #[error("a customer's key is of no use here")]
    NotApplicable,
    /// Nobody keeps keys: the site has none configured.
    #[error("no keys are configured")]
    NoKeeper,
    /// There is no key of this id.
    #[error("there is no key {0}")]
    NotFound(String),
    /// Whoever keeps the key does not let us use it; the text is for the log.
    #[error("the use of a key was refused: {0}")]
    Refused(String),
    /// Whoever keeps the key does not answer; the text is for the log.
    #[error("keys are not available: {0}")]
    Unavailable(String),
}

/// Which digest of a body did not match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DigestKind {
    /// `Content-MD5`.
    Md5,
    /// `x-amz-checksum-*`.
    Checksum(gabion_erasure::ChecksumAlgorithm),
    /// That of a part, which a completion names by its number: the part has none of the kind.
    PartChecksum(gabion_erasure::ChecksumAlgorithm, u16),
}

impl std::fmt::Display for DigestKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            DigestKind::Md5 => f.write_str("Content-MD5"),
            DigestKind::Checksum(algorithm) => f.write_str(algorithm.as_str()),
            DigestKind::PartChecksum(algorithm, part_number) => write!(f, "{algorithm} of part {part_number}"),
        }
    }
}

impl From<LogError> for StoreError {
    fn from(error: LogError) -> Self {
        match error {
            LogError::NoSpace | LogError::RanOutOfSpace => StoreError::NoSpace,
            LogError::Busy => StoreError::Busy,
            LogError::Unavailable(reason) | LogError::TooFewTargets(reason) => StoreError::Unavailable(reason),
            error @ LogError::Unreadable { .. } => StoreError::Unreadable(error.to_string()),
            LogError::Io { source, .. } => StoreError::Unavailable(format!("a target failed: {}", source.kind())),
            error @ LogError::Corrupt { .. } => StoreError::Corrupt(error.to_string()),
            error => StoreError::Internal(error.to_string()),
        }
    }
}

impl From<IndexError> for StoreError {
    fn from(error: IndexError) -> Self {
        match error {
            IndexError::Corrupt(reason) => StoreError::Corrupt(format!("the index: {reason}")),
            IndexError::Io(error) => StoreError::Unavailable(format!("the index failed: {}", error.kind())),
            IndexError::Closed => StoreError::Unavailable("the index is closed after a failure".into()),
            IndexError::Locked(_) => StoreError::Unavailable("the index is open in another process".into()),
            error @ (IndexError::Conflict { .. } | IndexError::Invalid { .. }) => {
                StoreError::Internal(error.to_string())
            }
        }
    }
}

impl From<RowError> for StoreError {
    fn from(error: RowError) -> Self {
        StoreError::Corrupt(format!("the index: {error}"))
    }
}

/// What a client that has the current object already is told of it, so that its cache knows for how long it may keep that (RFC 9110 §15.4.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unmodified {
    /// Its tag.
    pub etag: Etag,
    /// `Last-Modified`, Unix time in milliseconds.
    pub modified_ms: u64,
    /// `Cache-Control`, as it was put.
    pub cache_control: Option<String>,
    /// `Expires`, as it was put.
    pub expires: Option<String>,
}
