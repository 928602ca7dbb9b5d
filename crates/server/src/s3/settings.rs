//! What the documents of a bucket say, parsed once per change of any of them.

use std::sync::Arc;

use gabion_store::{Configs, Versioning};
use gabion_types::BucketName;

use super::bucket_encryption::{BucketEncryption, NotUnderstood};
use super::cors::{self, CorsRules};
use super::logging::{self, Logging};
use super::object_lock::{self, LockRule};
use super::website::{self, Website};
use super::{lifecycle, notifications, payment, quota};
use crate::access::BucketAccess;
use crate::error::{S3Code, S3Error};
use crate::iam::Quota;
use crate::lifecycle::LifecycleRules;
use crate::notifications::NotificationRules;
use crate::ops::Ops;

/// The parsed documents of a bucket; nothing for what is not configured.
#[derive(Debug, Default)]
pub(crate) struct BucketSettings {
    pub(crate) versioning: Versioning,
    /// Whether objects can be locked, and how long they are by themselves.
    pub(crate) object_lock: Option<Result<LockRule, S3Error>>,
    pub(crate) cors: Option<Result<CorsRules, S3Error>>,
    pub(crate) lifecycle: Option<Result<LifecycleRules, S3Error>>,
    /// Whom to tell of what happens.
    pub(crate) notifications: Option<Result<NotificationRules, S3Error>>,
    pub(crate) website: Option<Result<Website, S3Error>>,
    pub(crate) logging: Option<Result<Logging, S3Error>>,
    /// Whether who asks must say that he pays.
    pub(crate) requesters_pay: bool,
    pub(crate) encryption: Option<Result<BucketEncryption, NotUnderstood>>,
    pub(crate) access: BucketAccess,
    /// How much it may hold.
    pub(crate) quota: Option<Result<Quota, S3Error>>,
}

impl BucketSettings {
    /// Of a bucket's documents: parsed once.
    pub(crate) fn of(configs: &Configs) -> Arc<Self> {
        configs.parsed(Self::parse)
    }

    fn parse(configs: &Configs) -> Self {
        Self {
            versioning: configs.versioning(),
            object_lock: parsed(configs, object_lock::NAME, LockRule::parse),
            encryption: BucketEncryption::of(configs),
            access: BucketAccess::parse(configs),
            quota: parsed(configs, quota::NAME, quota::parse),
            cors: parsed(configs, cors::NAME, |document| CorsRules::parse(document).map(|(rules, _)| rules)),
            lifecycle: parsed(configs, lifecycle::NAME, |document| {
                LifecycleRules::parse(document).map(|(rules, _)| rules)
            }),
            notifications: parsed(configs, notifications::NAME, |document| {
                NotificationRules::parse(document).map(|(rules, _)| rules)
            }),
            website: parsed(configs, website::NAME, |document| Website::parse(document).map(|(website, _)| website)),
            logging: parsed(configs, logging::NAME, |document| match Logging::parse(document)? {
                Some((logging, _)) => Ok(logging),
                None => Err(S3Code::MalformedXML.into()),
            }),
            // What can not be read restricts.
            requesters_pay: parsed(configs, payment::NAME, payment::requesters_pay)
                .is_some_and(|pay| pay.unwrap_or(true)),
        }
    }
}

/// A document that can not be read (a newer program wrote it) is an error for what depends on it.
fn parsed<T>(
    configs: &Configs,
    name: &str,
    parse: impl FnOnce(&[u8]) -> Result<T, S3Error>,
) -> Option<Result<T, S3Error>> {
    let document = configs.get(name)?;
    Some(parse(document).map_err(|error| {
        tracing::error!(name, error = %error.message, "a document of a bucket can not be read");
        S3Code::InternalError.into()
    }))
}

impl Ops {
    /// What is configured for a bucket; nothing for one that is not there.
    ///
    /// # Errors
    /// Those of the index.
    pub(crate) fn settings(&self, bucket: &BucketName) -> Result<Arc<BucketSettings>, S3Error> {
        Ok(BucketSettings::of(&*self.store.bucket_configs(bucket)?))
    }
}
