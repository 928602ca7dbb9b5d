//! Documents that configure a bucket or the site. The store keeps them durably and hands them out; what they say is the server's matter,
//! but for whether versions are kept.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use gabion_metadata::{
    Pages, ScanRange, Table, keys,
    rows::{ConfigRow, Row},
};
use gabion_types::BucketName;

use crate::{
    Store, StoreError,
    config_cache::Configs,
    locks::{Guards, Lockable, Mode},
    mutation::{DeleteConfigMutation, Mutation, PutConfigMutation},
    store::Inner,
};

/// Longest document in bytes.
pub const CONFIG_BYTES_MAX: usize = 512 * 1024;
/// Longest name of a document in bytes.
const NAME_BYTES_MAX: usize = 512;
/// Rows that one scan returns at most.
const PAGE_ROWS: usize = 64;

/// Whose configuration a document is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ConfigScope {
    /// A bucket's; it ends with the bucket.
    Bucket(BucketName),
    /// The site's.
    Site,
}

impl ConfigScope {
    fn bucket(&self) -> Option<&BucketName> {
        match self {
            ConfigScope::Bucket(bucket) => Some(bucket),
            ConfigScope::Site => None,
        }
    }
}

impl Store {
    /// The documents of a bucket, mostly from memory; none for a bucket that is not there.
    ///
    /// # Errors
    /// `Unavailable`.
    pub fn bucket_configs(&self, bucket: &BucketName) -> Result<Arc<Configs>, StoreError> {
        self.inner.bucket_configs(bucket)
    }

    /// Writes a document; durable when it returns.
    ///
    /// # Errors
    /// `NoSuchBucket`; `InvalidRequest` for one that is longer than [`CONFIG_BYTES_MAX`]; `NoSpace`, `Busy`, `Unavailable`.
    pub async fn put_config(&self, scope: ConfigScope, name: &str, document: Bytes) -> Result<(), StoreError> {
        self.put_config_if(scope, name, document, |_| true).await
    }

    /// As [`Store::put_config`], if the documents of the bucket are as they must be when nothing else happens in it (the site's are not looked
    /// at).
    ///
    /// # Errors
    /// `PreconditionFailed` if not; else as [`Store::put_config`].
    pub async fn put_config_if(
        &self,
        scope: ConfigScope,
        name: &str,
        document: Bytes,
        condition: impl FnOnce(&Configs) -> bool + Send + 'static,
    ) -> Result<(), StoreError> {
        check_length(document.len())?;
        check_name(name)?;
        let (inner, name) = (Arc::clone(&self.inner), name.to_owned());
        let work = async move {
            let _guards = inner.lock_config(&scope).await?;
            if let Some(bucket) = scope.bucket() {
                inner.uncertain.require_known_bucket(bucket)?;
            }
            inner.check_configs(&scope, condition)?;
            let bucket = scope.bucket().map(|bucket| bucket.as_str().to_owned());
            inner.commit(&Mutation::PutConfig(PutConfigMutation { bucket, name, document: document.to_vec() })).await
        };
        self.inner.run(work).await?;
        Ok(())
    }

    /// Deletes a document, if it is there; durable when it returns.
    ///
    /// # Errors
    /// `NoSuchBucket`, `Busy`, `Unavailable`.
    pub async fn delete_config(&self, scope: ConfigScope, name: &str) -> Result<(), StoreError> {
        self.delete_config_if(scope, name, |_| true).await
    }

    /// As [`Store::delete_config`], if the documents of the bucket are as they must be when nothing else happens in it (the site's are not looked
    /// at).
    ///
    /// # Errors
    /// `PreconditionFailed` if not; else as [`Store::delete_config`].
    pub async fn delete_config_if(
        &self,
        scope: ConfigScope,
        name: &str,
        condition: impl FnOnce(&Configs) -> bool + Send + 'static,
    ) -> Result<(), StoreError> {
        check_name(name)?;
        let (inner, name) = (Arc::clone(&self.inner), name.to_owned());
        let work = async move {
            let _guards = inner.lock_config(&scope).await?;
            inner.check_configs(&scope, condition)?;
            let is_there = inner.index.get(Table::Config, &keys::config(scope.bucket(), &name))?.is_some();
            if is_there || inner.is_uncertain() {
                let bucket = scope.bucket().map(|bucket| bucket.as_str().to_owned());
                inner.commit(&Mutation::DeleteConfig(DeleteConfigMutation { bucket, name })).await?;
            }
            Ok(())
        };
        self.inner.run(work).await
    }

    /// A document of the site.
    ///
    /// # Errors
    /// `Unavailable`.
    pub fn site_config(&self, name: &str) -> Result<Option<Bytes>, StoreError> {
        let row = self.inner.index.get(Table::Config, &keys::config(None, name))?;
        row.map(|row| Ok(ConfigRow::decode(&row)?.document.into())).transpose()
    }

    /// A page of the site's documents, in the order of their names: those that begin with `prefix` and come after `after`.
    ///
    /// # Errors
    /// `Unavailable`.
    pub fn list_site_configs(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(String, Bytes)>, StoreError> {
        let mut range = ScanRange::prefix(Table::Config, &keys::config(None, prefix));
        if let Some(after) = after {
            range = range.after(&keys::config(None, after));
        }
        self.inner.index.scan(range, limit)?.into_iter().map(|(key, row)| named(&key, &row)).collect()
    }
}

impl Inner {
    pub(crate) fn bucket_configs(&self, bucket: &BucketName) -> Result<Arc<Configs>, StoreError> {
        self.apply.configs.get(bucket, || {
            let mut documents = BTreeMap::new();
            let mut pages = Pages::new(ScanRange::prefix(Table::Config, &keys::config(Some(bucket), "")), PAGE_ROWS);
            while let Some(rows) = pages.next(|range, limit| self.index.scan(range, limit))? {
                for (key, row) in rows {
                    let (name, document) = named(&key, &row)?;
                    documents.insert(name, document);
                }
            }
            let owner = match self.bucket(bucket) {
                Ok(row) => Some(self.named_owner(row.owner)),
                Err(StoreError::NoSuchBucket) => None,
                Err(error) => return Err(error),
            };
            Ok(Configs::new(owner, documents))
        })
    }

    /// Whether any document configures a bucket.
    pub(crate) fn has_configs(&self, bucket: &BucketName) -> Result<bool, StoreError> {
        let range = ScanRange::prefix(Table::Config, &keys::config(Some(bucket), ""));
        Ok(!self.index.scan(range, 1)?.is_empty())
    }

    fn check_configs(&self, scope: &ConfigScope, condition: impl FnOnce(&Configs) -> bool) -> Result<(), StoreError> {
        match scope.bucket() {
            Some(bucket) if !condition(&*self.bucket_configs(bucket)?) => {
                Err(StoreError::PreconditionFailed("configuration"))
            }
            _ => Ok(()),
        }
    }

    /// Waits until nothing else happens in the bucket: what was begun under the documents of before has come to its end.
    async fn lock_config(&self, scope: &ConfigScope) -> Result<Guards, StoreError> {
        match scope {
            ConfigScope::Site => Ok(self.locks.lock(&[(Lockable::Site, Mode::Exclusive)]).await),
            ConfigScope::Bucket(bucket) => {
                let guards = self.locks.lock(&[(Lockable::Bucket(bucket), Mode::Exclusive)]).await;
                self.require_bucket(bucket)?;
                Ok(guards)
            }
        }
    }
}

pub(crate) fn check_length(bytes: usize) -> Result<(), StoreError> {
    match bytes {
        0..=CONFIG_BYTES_MAX => Ok(()),
        _ => Err(StoreError::InvalidRequest("The document is too large".into())),
    }
}

pub(crate) fn check_name(name: &str) -> Result<(), StoreError> {
    match name.len() {
        1..=NAME_BYTES_MAX => Ok(()),
        _ => Err(StoreError::InvalidRequest("The name of the configuration is too long".into())),
    }
}

fn named(key: &[u8], row: &[u8]) -> Result<(String, Bytes), StoreError> {
    let (_, name) = keys::decode_config(key).map_err(|error| StoreError::Corrupt(format!("the index: {error}")))?;
    Ok((name.to_owned(), ConfigRow::decode(row)?.document.into()))
}
