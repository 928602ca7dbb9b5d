//! Buckets: list, create, head, delete.

use std::{collections::BTreeSet, sync::Arc};

use bytes::Bytes;
use gabion_metadata::{
    ScanRange, Table, keys,
    rows::{BucketRow, Row, UsageRow},
};
use gabion_types::{
    BucketName,
    limits::{BUCKETS_MAX, PART_NUMBER_MAX},
};

use crate::{
    BucketInfo, ListBuckets, ListedBuckets, Store, StoreError, Usage,
    configs::{check_length, check_name},
    locks::{Lockable, Mode},
    mutation::{CreateBucketMutation, DeleteBucketMutation, EndUploadMutation, EndedUpload, FirstConfig, Mutation},
    store::Inner,
    tasks,
};

/// Uploads that end in the mutation that deletes their bucket; when there are more, the rest end before it. So many keys of
/// 1 KiB still fit in a mutation.
const ENDED_UPLOADS_MAX: usize = 512;
/// Parts of uploads that end together, or few more: all rows of a commit are in memory at once, and nothing else is committed meanwhile.
const ENDED_PARTS_MAX: usize = 2 * PART_NUMBER_MAX as usize;
/// Rows that are read at a time to find the buckets of one owner among those of others.
const OWNED_PAGE_ROWS: usize = 256;

impl Store {
    /// A page of buckets, in order of name.
    ///
    /// # Errors
    /// `Unavailable`.
    pub async fn list_buckets(&self, request: ListBuckets) -> Result<ListedBuckets, StoreError> {
        let prefix = request.prefix.unwrap_or_default();
        let wanted = request.max.saturating_add(1);
        let rows_max = if request.owner.is_some() { wanted.max(OWNED_PAGE_ROWS) } else { wanted };
        let (mut buckets, mut after) = (Vec::new(), request.after);
        // Those of other owners are passed over, page by page; there are at most `BUCKETS_MAX` of them.
        while buckets.len() < wanted {
            let mut range = ScanRange::prefix(Table::Bucket, prefix.as_bytes());
            if let Some(after) = &after {
                range = range.after(after.as_bytes());
            }
            let rows = self.inner.index.scan(range, rows_max)?;
            for (key, row) in &rows {
                let bucket = self.bucket_info(decode_name(key)?, BucketRow::decode(row)?);
                after = Some(bucket.name.as_str().to_owned());
                if request.owner.as_ref().is_none_or(|owner| bucket.owner == *owner) {
                    buckets.push(bucket);
                }
            }
            if rows.len() < rows_max {
                break;
            }
        }
        let is_truncated = buckets.len() > request.max;
        buckets.truncate(request.max);
        let next = buckets.last().filter(|_| is_truncated).map(|bucket| bucket.name.as_str().to_owned());
        Ok(ListedBuckets { buckets, next })
    }

    /// Creates a bucket of the store's own, in the store's region if none is given.
    ///
    /// # Errors
    /// See [`Store::create_bucket_of`].
    pub async fn create_bucket(&self, name: BucketName, region: Option<String>) -> Result<(), StoreError> {
        self.create_bucket_of(name, region, self.owner().id.clone(), Vec::new()).await
    }

    /// Creates a bucket of `owner` with the documents that configure it, by their names: it is never there without them.
    ///
    /// # Errors
    /// `BucketAlreadyOwnedByYou`, `BucketAlreadyExists`, `TooManyBuckets`, `NoSpace`, `Busy`, `Unavailable`; `InvalidRequest` for documents that are longer than
    /// [`crate::CONFIG_BYTES_MAX`] together.
    pub async fn create_bucket_of(
        &self,
        name: BucketName,
        region: Option<String>,
        owner: String,
        configs: Vec<(&str, Bytes)>,
    ) -> Result<(), StoreError> {
        check_length(configs.iter().map(|(_, document)| document.len()).sum())?;
        configs.iter().try_for_each(|(name, _)| check_name(name))?;
        let first = |(name, document): (&str, Bytes)| FirstConfig { name: name.to_owned(), document: document.into() };
        let configs = configs.into_iter().map(first).collect::<Vec<_>>();
        let inner = Arc::clone(&self.inner);
        let owner = if owner == self.owner().id { self.inner.config.owner.id.clone() } else { owner };
        self.inner.run(async move { inner.commit_create_bucket(name, region, owner, configs).await }).await
    }

    /// A bucket.
    ///
    /// # Errors
    /// `NoSuchBucket`, `Unavailable`.
    pub async fn head_bucket(&self, name: &BucketName) -> Result<BucketInfo, StoreError> {
        let row = self.inner.bucket(name)?;
        Ok(self.bucket_info(name.clone(), row))
    }

    /// A bucket by the name of its owner as of now.
    fn bucket_info(&self, name: BucketName, row: BucketRow) -> BucketInfo {
        let owner = self.inner.named_owner(row.owner);
        BucketInfo { name, created_ms: row.created_ms, region: row.region, owner }
    }

    /// What a bucket holds: its objects as they are listed, without parts of uploads.
    ///
    /// # Errors
    /// `NoSuchBucket`, `Unavailable`.
    pub fn usage(&self, name: &BucketName) -> Result<Usage, StoreError> {
        self.inner.require_bucket(name)?;
        match self.inner.index.get(Table::Usage, &keys::bucket(name))? {
            Some(row) => {
                let UsageRow { objects, bytes } = UsageRow::decode(&row)?;
                Ok(Usage { objects, bytes })
            }
            None => Ok(Usage::default()),
        }
    }

    /// Deletes a bucket without objects. Uploads that are open in it end: they do not keep it, as on AWS.
    ///
    /// # Errors
    /// `NoSuchBucket`, `BucketNotEmpty`, `Busy`, `Unavailable`.
    pub async fn delete_bucket(&self, name: &BucketName) -> Result<(), StoreError> {
        let (inner, name) = (Arc::clone(&self.inner), name.clone());
        self.inner.run(async move { inner.commit_delete_bucket(name).await }).await
    }
}

impl Inner {
    /// What the owner of a bucket is called now, by how its row names him.
    pub(crate) fn named_owner(&self, stored: String) -> String {
        match self.owner.get() {
            Some(owner) if stored == self.config.owner.id => owner.id.clone(),
            _ => stored,
        }
    }

    /// How the rows of buckets may name an owner, by what he is called now.
    pub(crate) fn stored_owners(&self, owner: &str) -> Vec<String> {
        let stored = BTreeSet::from([owner, self.config.owner.id.as_str()]);
        stored.into_iter().filter(|stored| self.named_owner((*stored).to_owned()) == owner).map(str::to_owned).collect()
    }

    async fn commit_create_bucket(
        &self,
        name: BucketName,
        region: Option<String>,
        owner: String,
        configs: Vec<FirstConfig>,
    ) -> Result<(), StoreError> {
        let _guards = self.locks.lock(&[(Lockable::Bucket(&name), Mode::Exclusive)]).await;
        match self.bucket(&name) {
            Err(StoreError::NoSuchBucket) => self.require_free_name(&name, &owner)?,
            Ok(row) if row.owner == owner => return Err(StoreError::BucketAlreadyOwnedByYou),
            Ok(_) => return Err(StoreError::BucketAlreadyExists),
            Err(error) => return Err(error),
        }
        if self.apply.buckets() >= BUCKETS_MAX {
            return Err(StoreError::TooManyBuckets);
        }
        let mutation = Mutation::CreateBucket(CreateBucketMutation {
            bucket: name.as_str().to_owned(),
            created_ms: self.env.clock.now_ms(),
            owner,
            region: region.unwrap_or_else(|| self.config.region.clone()),
            configs: (!configs.is_empty()).then_some(configs),
        });
        self.commit(&mutation).await?;
        Ok(())
    }

    async fn commit_delete_bucket(&self, name: BucketName) -> Result<(), StoreError> {
        let _guards = self.locks.lock(&[(Lockable::Bucket(&name), Mode::Exclusive)]).await;
        self.require_bucket(&name)?;
        if self.holds_objects(&name)? {
            return Err(StoreError::BucketNotEmpty);
        }
        // It only looks empty, maybe.
        self.require_complete_index()?;
        let uploads = loop {
            let range = ScanRange::prefix(Table::Upload, &keys::uploads_with_prefix(&name, ""));
            let rows = self.index.scan(range, ENDED_UPLOADS_MAX + 1)?;
            let uploads = rows.iter().map(|(key, _)| ended(key)).collect::<Result<Vec<_>, _>>()?;
            let together = tasks::blocking(|| self.end_together(&uploads))?;
            if together == uploads.len() && together <= ENDED_UPLOADS_MAX {
                break uploads;
            }
            let ends = uploads.into_iter().take(together).map(|EndedUpload { key, upload }| {
                let bucket = name_of(&name);
                async move { self.commit(&Mutation::EndUpload(EndUploadMutation { bucket, key, upload })).await }
            });
            // All are waited for under the lock: a completion that came before one of them would be acknowledged in vain.
            futures::future::join_all(ends).await.into_iter().try_for_each(|ended| ended.map(drop))?;
        };
        // What may be there after the next start counts as well.
        let had_configs = (self.has_configs(&name)? || self.is_uncertain()).then_some(true);
        let mutation = Mutation::DeleteBucket(DeleteBucketMutation { bucket: name_of(&name), uploads, had_configs });
        self.commit(&mutation).await?;
        Ok(())
    }

    /// Refuses a name under which somebody's objects may be, unless it is the site's owner who asks: he may look at all of them, and decide what becomes of them.
    ///
    /// # Errors
    /// `Unavailable`.
    fn require_free_name(&self, name: &BucketName, owner: &str) -> Result<(), StoreError> {
        self.require_complete_index()?;
        if owner != self.config.owner.id && self.holds_objects(name)? {
            let why = format!(
                "there are objects of an earlier bucket {name} that is gone: as the site's owner create it, see what is there, and delete or copy it"
            );
            return Err(StoreError::Unavailable(why));
        }
        Ok(())
    }

    /// Whether there is an object, or a version of one, under the name of a bucket.
    fn holds_objects(&self, name: &BucketName) -> Result<bool, StoreError> {
        let objects = ScanRange::prefix(Table::Object, &keys::objects_with_prefix(name, ""));
        let versions = ScanRange::prefix(Table::Version, &keys::versions_with_prefix(name, ""));
        Ok(!self.index.scan(objects, 1)?.is_empty() || !self.index.scan(versions, 1)?.is_empty())
    }

    /// How many of these uploads may end in one commit: as many as have few parts, or one.
    fn end_together(&self, uploads: &[EndedUpload]) -> Result<usize, StoreError> {
        let mut parts = 0;
        for (before, ended) in uploads.iter().enumerate() {
            let range = ScanRange::prefix(Table::Part, &keys::parts_of(ended.upload));
            parts += self.index.scan(range, ENDED_PARTS_MAX)?.len();
            if parts > ENDED_PARTS_MAX {
                return Ok(before.max(1));
            }
        }
        Ok(uploads.len())
    }
}

fn name_of(name: &BucketName) -> String {
    name.as_str().to_owned()
}

fn ended(key: &[u8]) -> Result<EndedUpload, StoreError> {
    let (_, key, upload) = keys::decode_upload(key).map_err(|error| StoreError::Unavailable(error.to_string()))?;
    Ok(EndedUpload { key, upload })
}

fn decode_name(key: &[u8]) -> Result<BucketName, StoreError> {
    keys::decode_bucket(key).map_err(|error| StoreError::Unavailable(error.to_string()))
}
