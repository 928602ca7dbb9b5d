//! How much a bucket holds, or what a user made.

use minicbor::{Decode, Encode};

use super::row;

/// Counters of the objects of a bucket or of a user, or of the parts of open uploads; they change in the commit that changes what they count.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Encode, Decode)]
pub struct UsageRow {
    /// Number of objects, versions that are not current included, or of parts.
    #[n(0)]
    pub objects: u64,
    /// Sum of their sizes in bytes.
    #[n(1)]
    pub bytes: u64,
}

row!(UsageRow, "usage", version 1);
