//! Quotas: what may be held, and who says so.

use gabion_types::BucketName;

use crate::{Configs, StoreError};

/// How much may be held; what is absent is not limited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limit {
    /// Bytes of objects, all versions included, and of the parts of open uploads.
    pub bytes: Option<u64>,
    /// Objects, all versions included; delete markers are none.
    pub objects: Option<u64>,
}

/// What limits something that is put into a bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// For the bucket.
    pub bucket: Limit,
    /// For all buckets of its owner together.
    pub account: Limit,
    /// For all that its creator made, in all buckets.
    pub user: Limit,
}

/// Who or what holds objects.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Holder {
    /// A bucket.
    Bucket(BucketName),
    /// The account with this canonical id: all its buckets.
    Account(String),
    /// The user with this id: what he made, in all buckets.
    User(String),
}

/// What somebody holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holding {
    /// Objects, all versions included; delete markers are none.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Parts of open uploads.
    pub parts: u64,
    /// Their bytes.
    pub part_bytes: u64,
}

impl Holding {
    /// Bytes that count.
    #[must_use]
    pub fn all_bytes(&self) -> u64 {
        self.bytes.saturating_add(self.part_bytes)
    }
}

/// Knows what is limited. Asked for every commit that adds something, so it answers from memory.
pub trait QuotaKeeper: Send + Sync {
    /// The limits of what `creator`, if it is a user, puts into the bucket with these documents.
    ///
    /// # Errors
    /// When a limit can not be read: then nothing is stored.
    fn limits(&self, bucket: &Configs, creator: Option<&str>) -> Result<Limits, StoreError>;
}
