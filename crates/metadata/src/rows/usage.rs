//! How much a bucket holds.

use minicbor::{Decode, Encode};

use super::row;

/// Counters of a bucket, under its name; they change in the commit that changes the object.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Encode, Decode)]
pub struct UsageRow {
    /// Number of current objects.
    #[n(0)]
    pub objects: u64,
    /// Sum of their sizes in bytes.
    #[n(1)]
    pub bytes: u64,
}

row!(UsageRow, "usage", version 1);
