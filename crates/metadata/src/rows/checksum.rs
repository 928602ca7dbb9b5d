//! A checksum that a client may ask for again.

use minicbor::{Decode, Encode};

/// A checksum of an object or a part.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub struct StoredChecksum {
    /// The algorithm, by its number in `gabion_erasure::ChecksumAlgorithm`: this crate computes none.
    #[n(0)]
    pub algorithm: u8,
    /// What it is a checksum of.
    #[n(1)]
    pub kind: ChecksumKind,
    /// The digest, raw.
    #[cbor(n(2), with = "minicbor::bytes")]
    pub value: Vec<u8>,
}

/// What a checksum of a multipart object covers (AWS: `x-amz-checksum-type`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Encode, Decode)]
#[cbor(index_only)]
pub enum ChecksumKind {
    /// All bytes of the object.
    #[n(0)]
    FullObject,
    /// The concatenated checksums of its parts.
    #[n(1)]
    Composite,
}

impl ChecksumKind {
    /// As S3 writes it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            ChecksumKind::FullObject => "FULL_OBJECT",
            ChecksumKind::Composite => "COMPOSITE",
        }
    }
}
