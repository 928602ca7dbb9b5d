//! What a listing shows of an object.

use minicbor::Decode;

use super::{ChecksumKind, Etag, ObjectRow, Row, RowError, decode_fields};

/// The fields of an [`ObjectRow`] that a listing shows; the others are skipped, which costs a page of a listing half of what all of them do.
#[derive(Clone, PartialEq, Eq, Debug, Decode)]
pub struct ListedObject {
    /// `Last-Modified`, Unix time in milliseconds.
    #[n(1)]
    pub modified_ms: u64,
    /// Length in bytes.
    #[n(2)]
    pub size: u64,
    /// Its entity tag.
    #[n(3)]
    pub etag: Etag,
    /// What the client said about it.
    #[n(5)]
    pub attributes: ListedAttributes,
    /// Its checksums.
    #[n(6)]
    pub checksums: Vec<ListedChecksum>,
}

/// Of [`super::Attributes`].
#[derive(Clone, PartialEq, Eq, Debug, Decode)]
pub struct ListedAttributes {
    /// `x-amz-storage-class`; nothing means `STANDARD`.
    #[n(7)]
    pub storage_class: Option<String>,
    /// Canonical id of the account that owns it; nothing means the bucket's owner.
    #[n(10)]
    pub owner: Option<String>,
}

/// Of [`super::StoredChecksum`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Decode)]
pub struct ListedChecksum {
    /// The algorithm, by its number in `gabion_erasure::ChecksumAlgorithm`.
    #[n(0)]
    pub algorithm: u8,
    /// What it is a checksum of.
    #[n(1)]
    pub kind: ChecksumKind,
}

impl ListedObject {
    /// Reads an [`ObjectRow`].
    ///
    /// # Errors
    /// When the version is unknown or the bytes are malformed.
    pub fn decode(row: &[u8]) -> Result<Self, RowError> {
        decode_fields(ObjectRow::NAME, ObjectRow::VERSION, row)
    }
}
