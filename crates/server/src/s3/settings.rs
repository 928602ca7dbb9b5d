//! What the documents of a bucket say, parsed once per change of any of them.

use std::sync::Arc;

use gabion_store::{Configs, Versioning};
use gabion_types::BucketName;

use crate::error::S3Error;
use crate::ops::Ops;

/// The parsed documents of a bucket; nothing for what is not configured.
#[derive(Debug, Default)]
pub(crate) struct BucketSettings {
    pub(crate) versioning: Versioning,
}

impl BucketSettings {
    fn parse(configs: &Configs) -> Self {
        Self { versioning: configs.versioning() }
    }
}

impl Ops {
    /// What is configured for a bucket; nothing for one that is not there.
    ///
    /// # Errors
    /// Those of the index.
    pub(crate) fn settings(&self, bucket: &BucketName) -> Result<Arc<BucketSettings>, S3Error> {
        Ok(self.store.bucket_configs(bucket)?.parsed(BucketSettings::parse))
    }
}
