//! The documents of buckets, and whose they are, in memory, so that a request looks its bucket's up with one hash, and what the server made of
//! them with it.
//!
//! What is kept is forgotten when a mutation that changes it has been applied, before its client is answered.

use std::{
    any::Any,
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};

use bytes::Bytes;
use gabion_metadata::rows::VersionKind;
use gabion_types::{BucketName, Seq};
use parking_lot::Mutex;
use quick_cache::{Weighter, sync::Cache};

use crate::{StoreError, VersionId};

/// Bytes of documents that are kept.
const CACHE_BYTES: u64 = 64 << 20;
/// What an entry costs beside its documents; most have none.
const ENTRY_BYTES: u64 = 2048;
/// How much larger documents are with what is made of them, about.
const PARSED_FACTOR: u64 = 4;
/// Buckets that are in use at a time, about.
const BUCKETS_USUAL: usize = 1024;

/// Name of the document that says whether versions are kept: the only one that the store itself reads.
pub const VERSIONING: &str = "versioning";

/// Whether a bucket keeps the versions of its objects.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Versioning {
    /// It never did.
    #[default]
    Never,
    /// Each put makes a version, each deletion a delete marker.
    Enabled,
    /// What was kept is kept; what is written now is the `null` version.
    Suspended,
}

impl Versioning {
    /// The document that says so.
    #[must_use]
    pub fn document(self) -> &'static str {
        match self {
            Versioning::Never => "",
            Versioning::Enabled => "Enabled",
            Versioning::Suspended => "Suspended",
        }
    }

    /// What a new object is among the versions of its key.
    pub(crate) fn kind(self) -> Option<VersionKind> {
        (self == Versioning::Enabled).then_some(VersionKind::Version)
    }

    /// What a delete marker is among them.
    pub(crate) fn marker_kind(self) -> Option<VersionKind> {
        match self {
            Versioning::Never => None,
            Versioning::Enabled => Some(VersionKind::Marker),
            Versioning::Suspended => Some(VersionKind::NullMarker),
        }
    }

    /// The id of what a commit makes; what is `null` needs none.
    pub(crate) fn version(self, seq: Seq) -> Option<VersionId> {
        (self == Versioning::Enabled).then_some(VersionId::Of(seq))
    }

    /// Of a document that can not be read (a newer program's) nothing is thrown away.
    fn of(document: &[u8]) -> Self {
        match document {
            b"" => Versioning::Never,
            b"Suspended" => Versioning::Suspended,
            _ => Versioning::Enabled,
        }
    }
}

/// The documents that configure a bucket, by name, as they were at one point in time.
#[derive(Default)]
pub struct Configs {
    owner: Option<String>,
    documents: BTreeMap<String, Bytes>,
    versioning: Versioning,
    parsed: OnceLock<Arc<dyn Any + Send + Sync>>,
}

impl Configs {
    /// `owner` is that of the bucket, if there is such a bucket.
    pub(crate) fn new(owner: Option<String>, documents: BTreeMap<String, Bytes>) -> Self {
        let versioning = documents.get(VERSIONING).map_or(Versioning::Never, |document| Versioning::of(document));
        Self { owner, documents, versioning, parsed: OnceLock::new() }
    }

    /// Who owns the bucket; nothing when there is no such bucket.
    #[must_use]
    pub fn owner(&self) -> Option<&str> {
        self.owner.as_deref()
    }

    /// Whether versions of objects are kept.
    #[must_use]
    pub fn versioning(&self) -> Versioning {
        self.versioning
    }

    /// The document of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Bytes> {
        self.documents.get(name)
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Bytes)> {
        self.documents.iter().map(|(name, document)| (name.as_str(), document))
    }

    /// What `parse` makes of them: made once, and kept beside them. All callers use one type.
    pub fn parsed<T: Send + Sync + 'static>(&self, parse: impl Fn(&Configs) -> T) -> Arc<T> {
        let kept = self.parsed.get_or_init(|| Arc::new(parse(self)));
        // Another type than the one that is kept is made anew each time.
        Arc::clone(kept).downcast().unwrap_or_else(|_| Arc::new(parse(self)))
    }
}

impl std::fmt::Debug for Configs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Documents may hold secrets.
        f.debug_set().entries(self.documents.keys()).finish()
    }
}

/// Buckets' documents, as many as are in use and fit.
pub(crate) struct ConfigCache {
    kept: Cache<BucketName, Arc<Configs>, Bytewise>,
    /// Held while documents are read to be kept, and while they are forgotten: nothing is kept that was read before a change and comes
    /// after it.
    changing: Mutex<()>,
}

#[derive(Clone)]
struct Bytewise;

impl Weighter<BucketName, Arc<Configs>> for Bytewise {
    fn weight(&self, _: &BucketName, configs: &Arc<Configs>) -> u64 {
        let documents = configs.iter().map(|(name, document)| (name.len() + document.len()) as u64).sum::<u64>();
        ENTRY_BYTES + PARSED_FACTOR * documents
    }
}

impl Default for ConfigCache {
    fn default() -> Self {
        Self { kept: Cache::with_weighter(BUCKETS_USUAL, CACHE_BYTES, Bytewise), changing: Mutex::default() }
    }
}

impl ConfigCache {
    /// The documents of a bucket; `load` reads them from the index.
    pub(crate) fn get(
        &self,
        bucket: &BucketName,
        load: impl FnOnce() -> Result<Configs, StoreError>,
    ) -> Result<Arc<Configs>, StoreError> {
        if let Some(configs) = self.kept.get(bucket) {
            return Ok(configs);
        }
        let _changing = self.changing.lock();
        let configs = Arc::new(load()?);
        // Names of buckets that are not there can be made up without end.
        if configs.owner().is_some() {
            self.kept.insert(bucket.clone(), Arc::clone(&configs));
        }
        Ok(configs)
    }

    /// A document of `bucket` changed in the index; of the site nothing is kept.
    pub(crate) fn forget(&self, bucket: Option<&BucketName>) {
        let Some(bucket) = bucket else { return };
        let _changing = self.changing.lock();
        self.kept.remove(bucket);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configs(text: &'static str) -> Configs {
        Configs::new(Some("me".to_owned()), BTreeMap::from([("cors".to_owned(), Bytes::from_static(text.as_bytes()))]))
    }

    #[test]
    fn what_changed_is_read_again() {
        let (cache, bucket) = (ConfigCache::default(), BucketName::new("bucket").unwrap());
        assert_eq!(cache.get(&bucket, || Ok(configs("old"))).unwrap().get("cors").unwrap(), "old");
        assert_eq!(cache.get(&bucket, || Err(StoreError::Busy)).unwrap().get("cors").unwrap(), "old");
        cache.forget(None);
        cache.forget(Some(&bucket));
        assert!(cache.get(&bucket, || Err(StoreError::Busy)).is_err());
        assert_eq!(cache.get(&bucket, || Ok(configs("new"))).unwrap().get("cors").unwrap(), "new");
    }

    #[test]
    fn what_is_not_there_is_not_kept() {
        let (cache, bucket) = (ConfigCache::default(), BucketName::new("bucket").unwrap());
        assert!(cache.get(&bucket, || Ok(Configs::new(None, BTreeMap::new()))).is_ok());
        assert!(cache.get(&bucket, || Err(StoreError::Busy)).is_err());
    }

    #[test]
    fn what_is_made_of_documents_is_made_once() {
        let configs = configs("12");
        let parse = |configs: &Configs| configs.get("cors").unwrap().len();
        assert_eq!(*configs.parsed(parse), 2);
        assert_eq!(*configs.parsed(|_| 7_usize), 2, "it is there already");
        assert_eq!(*configs.parsed(|_| "another type"), "another type");
    }
}
