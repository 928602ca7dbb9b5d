//! A bucket.

use gabion_types::Seq;
use minicbor::{Decode, Encode};

use super::{Home, row};

/// A bucket, under its name.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub struct BucketRow {
    /// When it was created, Unix time in milliseconds.
    #[n(0)]
    pub created_ms: u64,
    /// The access key that created it.
    #[n(1)]
    pub owner: String,
    /// The region that the client asked for.
    #[n(2)]
    pub region: String,
    /// The commit that created it.
    #[n(3)]
    pub seq: Seq,
    /// The mutation record that created it.
    #[n(4)]
    pub home: Home,
    /// The commit that moved it last; nothing as long as it lies where it was first written. Of two records of one row
    /// with the same `seq`, that of the later move counts.
    #[n(5)]
    pub moved: Option<Seq>,
}

row!(BucketRow, "bucket", version 1);
