//! Multipart uploads.

use gabion_erasure::{Checksum, ChecksumAlgorithm};
use gabion_metadata::rows::{Attributes, ChecksumKind, Encryption, Etag, Retention, StoredChecksum};
use gabion_types::{BucketName, ObjectKey, UploadId};

use crate::{ByteRange, CopySource, WriteConditions};

/// Names an upload: it belongs to one key of one bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadRef {
    /// The bucket.
    pub bucket: BucketName,
    /// The key.
    pub key: ObjectKey,
    /// The upload.
    pub upload: UploadId,
}

/// Begins an upload.
#[derive(Clone, Debug)]
pub struct CreateUpload {
    /// The bucket.
    pub bucket: BucketName,
    /// The key.
    pub key: ObjectKey,
    /// What the client says about the object to be.
    pub attributes: Attributes,
    /// The checksum of the object to be. Without an algorithm it is CRC-64/NVME of the full object, and parts may carry any;
    /// without a kind it is AWS's default for the algorithm (full object for CRC-64/NVME, else composite).
    pub checksum: Option<(ChecksumAlgorithm, Option<ChecksumKind>)>,
}

/// An upload that was begun.
#[derive(Debug)]
pub struct CreatedUpload {
    /// Its id.
    pub upload: UploadId,
    /// The checksum of the object to be, if the request named an algorithm.
    pub checksum: Option<(ChecksumAlgorithm, ChecksumKind)>,
    /// How its parts are encrypted, if they are.
    pub encryption: Option<Box<Encryption>>,
}

/// Uploads a part.
#[derive(Clone, Debug)]
pub struct UploadPart {
    /// The upload.
    pub target: UploadRef,
    /// Number of the part, 1 to 10 000.
    pub part_number: u16,
}

/// Uploads a part from an object.
#[derive(Clone, Debug)]
pub struct UploadPartCopy {
    /// The upload.
    pub target: UploadRef,
    /// Number of the part, 1 to 10 000.
    pub part_number: u16,
    /// The object.
    pub source: CopySource,
    /// Only this range of it; it must lie within the object.
    pub range: Option<ByteRange>,
}

/// A part that was stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartResult {
    /// Its tag.
    pub etag: Etag,
    /// Its length in bytes.
    pub size: u64,
    /// When it was stored, Unix time in milliseconds.
    pub modified_ms: u64,
    /// Its checksums.
    pub checksums: Vec<StoredChecksum>,
    /// How its upload is encrypted, if it is.
    pub encryption: Option<Box<Encryption>>,
}

/// Makes an object of an upload's parts.
#[derive(Clone, Debug)]
pub struct CompleteUpload {
    /// The upload.
    pub target: UploadRef,
    /// The parts that make up the object, ascending; others are dropped.
    pub parts: Vec<CompletedPart>,
    /// When to refuse.
    pub conditions: WriteConditions,
    /// The length that the object must have (`x-amz-mp-object-size`), in bytes.
    pub expected_size: Option<u64>,
    /// The checksum that the object must have; of a composite one without its `-N`.
    pub checksum: Option<Checksum>,
    /// The kind of checksum that the client believes the upload to have.
    pub checksum_kind: Option<ChecksumKind>,
    /// What the object is kept by if its upload was begun without a retention.
    pub default_retention: Option<Retention>,
}

/// A part as a completion names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompletedPart {
    /// Its number.
    pub part_number: u16,
    /// Its tag, with or without quotes.
    pub etag: String,
    /// Its checksums, if the client gives them.
    pub checksums: Vec<Checksum>,
}

/// Asks for a page of the parts of an upload, in order of number.
#[derive(Clone, Debug)]
pub struct ListParts {
    /// The upload.
    pub target: UploadRef,
    /// Only numbers above it; 0 for all.
    pub after: u16,
    /// Most parts to return.
    pub max: usize,
}

/// A page of parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedParts {
    /// The upload.
    pub upload: UploadSummary,
    /// The parts.
    pub parts: Vec<PartSummary>,
    /// Number of the last part of this page. Set when truncated.
    pub next: Option<u16>,
    /// Whether there is more.
    pub truncated: bool,
}

/// A part of an upload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartSummary {
    /// Its number.
    pub part_number: u16,
    /// Its length in bytes.
    pub size: u64,
    /// Its tag.
    pub etag: Etag,
    /// When it was stored, Unix time in milliseconds.
    pub modified_ms: u64,
    /// Its checksums.
    pub checksums: Vec<StoredChecksum>,
}

/// Asks for a page of uploads, in order of key and then of beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListUploads {
    /// The bucket.
    pub bucket: BucketName,
    /// Only keys that begin with it; empty for all.
    pub prefix: String,
    /// Keys that have it behind the prefix are rolled up to their common prefix; nothing or empty for none.
    pub delimiter: Option<String>,
    /// Only keys above it, or with `upload_id_marker` also later uploads to it.
    pub key_marker: Option<String>,
    /// See `key_marker`; ignored without it.
    pub upload_id_marker: Option<UploadId>,
    /// Most uploads and common prefixes to return together.
    pub max: usize,
}

/// A page of uploads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedUploads {
    /// The uploads.
    pub uploads: Vec<UploadSummary>,
    /// The common prefixes.
    pub common_prefixes: Vec<String>,
    /// `key_marker` of the next page. Set when truncated.
    pub next_key_marker: Option<String>,
    /// `upload_id_marker` of the next page. Set when truncated and the page ends with an upload.
    pub next_upload_id_marker: Option<UploadId>,
    /// Whether there is more.
    pub truncated: bool,
}

/// An upload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadSummary {
    /// The key.
    pub key: String,
    /// The upload.
    pub upload: UploadId,
    /// When it was begun, Unix time in milliseconds.
    pub created_ms: u64,
    /// Its storage class; nothing means `STANDARD`.
    pub storage_class: Option<String>,
    /// Canonical id of the account that will own the object; nothing means the bucket's owner.
    pub owner: Option<String>,
    /// The checksum of the object to be, if one was asked for.
    pub checksum: Option<(ChecksumAlgorithm, ChecksumKind)>,
}
