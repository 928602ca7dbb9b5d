//! Which buckets may have versions that are not current: all others are spared the look for them.

use std::collections::HashSet;

use gabion_metadata::{Index, ScanRange, Table, keys};
use gabion_types::BucketName;
use parking_lot::RwLock;

use crate::StoreError;

/// Buckets with rows in the table `Version`, now or before.
#[derive(Default)]
pub(crate) struct Versioned {
    buckets: RwLock<HashSet<BucketName>>,
}

impl Versioned {
    /// Finds them by one seek for each.
    pub(super) fn load(index: &dyn Index) -> Result<Self, StoreError> {
        let mut buckets = HashSet::new();
        let mut range = ScanRange::all(Table::Version);
        while let Some((key, _)) = index.scan(range, 1)?.pop() {
            let malformed = |error: &dyn std::fmt::Display| StoreError::Unavailable(format!("the index: {error}"));
            let (bucket, ..) = keys::decode_version(&key).map_err(|error| malformed(&error))?;
            let bucket = BucketName::new(bucket).map_err(|error| malformed(&error))?;
            let past = keys::successor(&keys::versions_with_prefix(&bucket, ""));
            buckets.insert(bucket);
            match past {
                Some(past) => range = ScanRange::all(Table::Version).from(&past),
                None => break,
            }
        }
        Ok(Self { buckets: RwLock::new(buckets) })
    }

    /// Whether a bucket is one of them.
    pub(crate) fn contains(&self, bucket: &BucketName) -> bool {
        let buckets = self.buckets.read();
        !buckets.is_empty() && buckets.contains(bucket)
    }

    /// A bucket is to have such rows.
    pub(crate) fn add(&self, bucket: &BucketName) {
        if !self.contains(bucket) {
            self.buckets.write().insert(bucket.clone());
        }
    }
}
