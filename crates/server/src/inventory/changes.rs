//! Buckets whose inventories were configured since the worker looked: it need not look at all buckets to find them.

use std::collections::BTreeSet;

use gabion_types::BucketName;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Filled by requests, emptied by the worker.
#[derive(Default)]
pub(crate) struct Changes {
    buckets: Mutex<BTreeSet<BucketName>>,
    added: Notify,
}

impl Changes {
    pub(crate) fn add(&self, bucket: BucketName) {
        self.buckets.lock().insert(bucket);
        self.added.notify_one();
    }

    pub(super) fn take(&self) -> BTreeSet<BucketName> {
        std::mem::take(&mut *self.buckets.lock())
    }

    /// Waits until there is one.
    pub(super) async fn wait(&self) {
        self.added.notified().await;
    }
}
