//! Buckets.

use gabion_types::BucketName;

/// Asks for a page of buckets, in order of name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListBuckets {
    /// Only names that begin with it.
    pub prefix: Option<String>,
    /// Only names above it.
    pub after: Option<String>,
    /// Most buckets to return.
    pub max: usize,
    /// Only those of this owner.
    pub owner: Option<String>,
}

/// A page of buckets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedBuckets {
    /// The buckets.
    pub buckets: Vec<BucketInfo>,
    /// `after` of the next page, if there is more.
    pub next: Option<String>,
}

/// A bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketInfo {
    /// Its name.
    pub name: BucketName,
    /// When it was created, Unix time in milliseconds.
    pub created_ms: u64,
    /// Its region.
    pub region: String,
    /// Whose it is.
    pub owner: String,
}

/// What a bucket holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Objects.
    pub objects: u64,
    /// Bytes of objects.
    pub bytes: u64,
}
