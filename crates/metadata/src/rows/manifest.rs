//! The manifest of an object with many extents or with parts: pages of extents, and one row per part.

use gabion_types::Extent;
use minicbor::{Decode, Encode};

use super::{Home, PartTag, SealedPart, StoredChecksum, row};

/// A run of extents, under the manifest and the offset of the run's first byte among those that are stored: of an encrypted object, the sealed ones.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub struct ManifestPage {
    /// The extents, one after the other; at most `LAYOUT_EXTENTS_MAX`.
    #[n(0)]
    pub extents: Vec<Extent>,
}

/// A part of a completed multipart object, under the manifest and the part's number.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub struct ManifestPart {
    /// Number of the part, 1 to 10 000.
    #[n(0)]
    pub part_number: u16,
    /// Offset of its first byte in the object.
    #[n(1)]
    pub start: u64,
    /// Length in bytes.
    #[n(2)]
    pub size: u64,
    /// The checksums of the part.
    #[n(3)]
    pub checksums: Vec<StoredChecksum>,
    /// The tag of the part.
    #[n(4)]
    pub tag: PartTag,
    /// The mutation record that uploaded the part.
    #[n(5)]
    pub home: Home,
    /// How it is sealed, if the object is encrypted.
    #[n(6)]
    pub sealed: Option<SealedPart>,
}

row!(ManifestPage, "manifest page", version 1);

row!(ManifestPart, "manifest part", version 1);
