//! Makes the reports that are due: walks a bucket page after page, and puts data files, then the manifest, into another bucket.
//!
//! It holds one page and one data file of bounded size, and rests after each page as long as it took. A report is there when its manifest is:
//! one that is cut off leaves nothing that anybody would read, and is made again under the same names by the next start, because when it was
//! begun is kept with the bucket. Reports of a day or week that has passed are not made up for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use gabion_erasure::Md5;
use gabion_store::{ConfigScope, Configs, ListBuckets, ListDetails, StoreError, VersionDetails};
use gabion_types::{BucketName, ObjectKey};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::columns::Listed;
use super::config::Inventory;
use super::data_file::DataFile;
use super::manifest::{File, Report};
use crate::auth::{Delivery, REPORTS, delivery};
use crate::error::{S3Code, S3Error};
use crate::lifecycle::DAY_MS;
use crate::ops::Ops;
use crate::s3::{INVENTORY, INVENTORY_RUN, OwnObject, put_own};

/// Objects of a page.
const PAGE_ROWS: usize = 1000;
/// How long after a failure a report is tried again, in milliseconds.
const RETRY_MS: u64 = 15 * 60 * 1000;
/// Longest rest before it is looked whether a report is due, in milliseconds.
const REST_MS_MAX: u64 = 60_000;

/// What the worker counts.
#[derive(Debug, Default)]
pub struct InventoryFigures {
    reports: Counter,
    objects: Counter,
    failures: Counter,
    finished_s: Gauge,
}

impl InventoryFigures {
    /// Makes the figures show on the page of `registry`.
    pub fn register(&self, registry: &mut Registry) {
        let mut counter = |name: &str, help: &str, metric: &Counter| registry.register(name, help, metric.clone());
        counter("gabion_inventory_reports", "Inventories of buckets that were delivered", &self.reports);
        counter("gabion_inventory_objects", "Objects and versions that were listed in inventories", &self.objects);
        let help = "Inventories that could not be made or delivered; they are tried again";
        counter("gabion_inventory_failures", help, &self.failures);
        let help = "Unix time at which the last inventory was delivered";
        registry.register("gabion_inventory_finished_seconds", help, self.finished_s.clone());
    }
}

/// How the worker works.
#[derive(Clone, Copy, Debug)]
pub struct InventoryOptions {
    /// Length of a day in milliseconds, for tests; nothing for days as they are.
    pub debug_day_ms: Option<u64>,
}

/// The last report of an inventory, as it is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Run {
    /// When it was begun, Unix time in milliseconds: of which day or week it is follows from the schedule, which may be another by now.
    begun_ms: u64,
    /// Whether it was delivered.
    is_done: bool,
}

/// Makes reports.
pub(crate) struct Worker {
    pub(crate) ops: Arc<Ops>,
    pub(crate) options: InventoryOptions,
    pub(crate) figures: Arc<InventoryFigures>,
}

/// Why a report was not made.
enum Ended {
    Stopped,
    /// It was configured anew meanwhile, or is no more.
    Changed,
    Failed(S3Error),
}

impl From<S3Error> for Ended {
    fn from(error: S3Error) -> Self {
        Self::Failed(error)
    }
}

impl From<StoreError> for Ended {
    fn from(error: StoreError) -> Self {
        Self::Failed(error.into())
    }
}

/// An inventory of a bucket.
struct Task<'a> {
    bucket: &'a BucketName,
    /// As it is kept: as long as it is the same nothing was configured anew.
    document: &'a Bytes,
    inventory: &'a Inventory,
    stop: &'a CancellationToken,
}

impl Task<'_> {
    fn is_current(&self, configs: &Configs) -> bool {
        configs.get(&format!("{INVENTORY}{}", self.inventory.id)) == Some(self.document)
    }
}

impl Worker {
    /// Works until it is told to stop.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let mut walked = None;
        let mut retries: BTreeMap<BucketName, u64> = BTreeMap::new();
        loop {
            let now_ms = self.ops.clock.now_ms();
            let day = now_ms / self.day_ms();
            let changed = self.ops.inventories.take();
            let mut failed = BTreeSet::new();
            let outcome = if walked == Some(day) {
                let due = retries.iter().filter(|(_, at_ms)| **at_ms <= now_ms).map(|(bucket, _)| bucket.clone());
                let buckets: BTreeSet<BucketName> = due.chain(changed).collect();
                retries.retain(|bucket, _| !buckets.contains(bucket));
                self.buckets(buckets, &mut failed, &stop).await
            } else {
                retries.clear();
                self.all_buckets(&mut failed, &stop).await
            };
            match outcome {
                Ok(()) => walked = Some(day),
                Err(Ended::Stopped) => return,
                Err(Ended::Changed) => {}
                Err(Ended::Failed(error)) => {
                    self.figures.failures.inc();
                    tracing::warn!(error = %error.message, "not all buckets could be asked for their inventories; it is tried again");
                }
            }
            let retry_ms = self.ops.clock.now_ms() + RETRY_MS.min(self.day_ms());
            retries.extend(failed.into_iter().map(|bucket| (bucket, retry_ms)));
            if self.rest_between(&retries, &stop).await.is_err() {
                return;
            }
        }
    }

    /// Until a day ends, a report is to be tried again, or an inventory was configured.
    async fn rest_between(&self, retries: &BTreeMap<BucketName, u64>, stop: &CancellationToken) -> Result<(), Ended> {
        let now_ms = self.ops.clock.now_ms();
        let day_ends_ms = (now_ms / self.day_ms() + 1) * self.day_ms();
        let next_ms = retries.values().copied().min().unwrap_or(u64::MAX).min(day_ends_ms);
        let rest_ms = next_ms.saturating_sub(now_ms).clamp(1, REST_MS_MAX);
        tokio::select! {
            biased;
            () = stop.cancelled() => Err(Ended::Stopped),
            () = self.ops.inventories.wait() => Ok(()),
            () = tokio::time::sleep(Duration::from_millis(rest_ms)) => Ok(()),
        }
    }

    fn day_ms(&self) -> u64 {
        self.options.debug_day_ms.unwrap_or(DAY_MS).max(1)
    }

    /// Makes all reports that are due.
    ///
    /// # Errors
    /// When not all buckets could be asked; a report that fails is counted.
    pub(crate) async fn pass_now(&self) -> Result<(), S3Error> {
        match self.all_buckets(&mut BTreeSet::new(), &CancellationToken::new()).await {
            Ok(()) | Err(Ended::Stopped | Ended::Changed) => Ok(()),
            Err(Ended::Failed(error)) => Err(error),
        }
    }

    async fn all_buckets(&self, failed: &mut BTreeSet<BucketName>, stop: &CancellationToken) -> Result<(), Ended> {
        let mut after = None;
        loop {
            let page = ListBuckets { owner: None, prefix: None, after, max: PAGE_ROWS };
            let listed = self.ops.store.list_buckets(page).await?;
            self.buckets(listed.buckets.into_iter().map(|bucket| bucket.name), failed, stop).await?;
            match listed.next {
                Some(next) => after = Some(next),
                None => return Ok(()),
            }
        }
    }

    /// Makes the reports of buckets that are due; adds to `failed` where that failed.
    async fn buckets(
        &self,
        buckets: impl IntoIterator<Item = BucketName>,
        failed: &mut BTreeSet<BucketName>,
        stop: &CancellationToken,
    ) -> Result<(), Ended> {
        for bucket in buckets {
            if stop.is_cancelled() {
                return Err(Ended::Stopped);
            }
            let configs = match self.ops.store.bucket_configs(&bucket) {
                Ok(configs) => configs,
                Err(error) => {
                    self.figures.failures.inc();
                    tracing::warn!(%bucket, %error, "a bucket could not be asked for its inventories; it is tried again");
                    failed.insert(bucket);
                    continue;
                }
            };
            for (name, document) in configs.iter().filter(|(name, _)| name.starts_with(INVENTORY)) {
                let inventory = match Inventory::parse(document) {
                    Ok((inventory, _)) => inventory,
                    Err(error) => {
                        self.figures.failures.inc();
                        tracing::warn!(%bucket, name, error = %error.message, "an inventory of a bucket can not be read");
                        continue;
                    }
                };
                let task = Task { bucket: &bucket, document, inventory: &inventory, stop };
                match self.make_if_due(&task, &configs).await {
                    Ok(()) | Err(Ended::Changed) => {}
                    Err(Ended::Stopped) => return Err(Ended::Stopped),
                    Err(Ended::Failed(error)) => {
                        self.figures.failures.inc();
                        let target = &inventory.destination.bucket;
                        tracing::warn!(%bucket, %target, id = inventory.id, error = %error.message, "an inventory could not be made; it is tried again");
                        failed.insert(bucket.clone());
                    }
                }
            }
        }
        Ok(())
    }

    async fn make_if_due(&self, task: &Task<'_>, configs: &Configs) -> Result<(), Ended> {
        if !task.inventory.is_enabled {
            return Ok(());
        }
        let now_ms = self.ops.clock.now_ms();
        let period = |unix_ms| task.inventory.schedule.period(unix_ms, self.day_ms());
        let kept = configs.get(&format!("{INVENTORY_RUN}{}", task.inventory.id));
        let last = kept.and_then(|document| serde_json::from_slice::<Run>(document).ok());
        let run = match last {
            // A clock that was set back makes no second one.
            Some(last) if last.is_done && period(last.begun_ms) >= period(now_ms) => return Ok(()),
            // One that was cut off is made again under its names.
            Some(last) if !last.is_done && period(last.begun_ms) == period(now_ms) => last,
            _ => Run { begun_ms: now_ms, is_done: false },
        };
        let place = task.inventory.destination.place(task.bucket.as_str());
        self.require_destination(task, &format!("{place}{}/", task.inventory.id))?;
        self.keep(task, &run).await?;
        self.make(task, run.begun_ms).await?;
        self.keep(task, &Run { is_done: true, ..run }).await?;
        self.figures.reports.inc();
        self.figures.finished_s.set(i64::try_from(self.ops.clock.now_ms() / 1000).unwrap_or(i64::MAX));
        Ok(())
    }

    /// The bucket may be another one than when it was configured, and its policy, too.
    fn require_destination(&self, task: &Task<'_>, key: &str) -> Result<(), Ended> {
        let destination = &task.inventory.destination;
        let owner = self.ops.settings(&destination.bucket)?.access.owner.clone();
        let account = owner.and_then(|owner| self.ops.account_id(&owner));
        let is_expected = destination.account.is_none() || destination.account == account;
        if is_expected && delivery(&self.ops, REPORTS, task.bucket, &destination.bucket, key)? != Delivery::Denied {
            return Ok(());
        }
        Err(Ended::Failed(S3Error::with(S3Code::AccessDenied, "the destination does not take reports of this bucket")))
    }

    /// Keeps how far a report is, as long as its inventory is as it was.
    async fn keep(&self, task: &Task<'_>, run: &Run) -> Result<(), Ended> {
        let name = format!("{INVENTORY_RUN}{}", task.inventory.id);
        let document = serde_json::to_vec(run).map_err(|_| S3Error::new(S3Code::InternalError))?;
        let (inventory, kept) = (format!("{INVENTORY}{}", task.inventory.id), task.document.clone());
        let is_current = move |configs: &Configs| configs.get(&inventory) == Some(&kept);
        let scope = ConfigScope::Bucket(task.bucket.clone());
        match self.ops.store.put_config_if(scope, &name, Bytes::from(document), is_current).await {
            Err(StoreError::PreconditionFailed(_) | StoreError::NoSuchBucket) => Err(Ended::Changed),
            outcome => Ok(outcome?),
        }
    }

    async fn make(&self, task: &Task<'_>, begun_ms: u64) -> Result<(), Ended> {
        let listed = Arc::new(self.listed(task.bucket)?);
        let mut report =
            Report { source: task.bucket.as_str(), inventory: task.inventory, begun_ms, files: Vec::new() };
        let mut file = None;
        let mut after = None;
        loop {
            let page_begun_ms = self.ops.clock.now_ms();
            if !task.is_current(&*self.ops.store.bucket_configs(task.bucket)?) {
                return Err(Ended::Changed);
            }
            let page = ListDetails {
                bucket: task.bucket.clone(),
                prefix: task.inventory.prefix.clone(),
                all_versions: task.inventory.all_versions,
                after,
                max: PAGE_ROWS,
            };
            let page = self.ops.store.list_details(page).await?;
            let count = page.entries.len() as u64;
            if count > 0 {
                file = Some(write(task.inventory, &listed, file, page.entries).await?);
                self.figures.objects.inc_by(count);
            }
            let is_last = page.next.is_none();
            if let Some(full) = file.take_if(|file| is_last || file.is_full()) {
                self.put_data(task, &mut report, full).await?;
            }
            if is_last {
                break;
            }
            after = page.next;
            self.rest(self.ops.clock.now_ms().saturating_sub(page_begun_ms), task.stop).await?;
        }
        self.put(task, report.symlink_key(), "text/plain", report.symlink().into_bytes()).await?;
        let manifest = report.manifest().into_bytes();
        let checksum = md5(&manifest);
        let key = report.manifest_key();
        self.put(task, format!("{key}.json"), "application/json", manifest).await?;
        // The last, as on AWS: who waits for it finds all else.
        self.put(task, format!("{key}.checksum"), "text/plain", checksum.into_bytes()).await
    }

    fn listed(&self, bucket: &BucketName) -> Result<Listed, Ended> {
        let settings = self.ops.settings(bucket)?;
        let owner = settings.access.owner.clone().ok_or(S3Error::new(S3Code::NoSuchBucket))?;
        Ok(Listed {
            bucket: bucket.as_str().to_owned(),
            owner,
            has_acls: settings.access.ownership.ownership(self.ops.object_ownership).has_acls(),
            lifecycle: settings.lifecycle.as_ref().and_then(|rules| rules.as_ref().ok()).cloned(),
        })
    }

    async fn put_data(&self, task: &Task<'_>, report: &mut Report<'_>, file: DataFile) -> Result<(), Ended> {
        let bytes = blocking(move || file.finish()).await?;
        let (key, size, md5) = (report.next_key(), bytes.len() as u64, md5(&bytes));
        self.put(task, key.clone(), "application/octet-stream", bytes).await?;
        report.files.push(File { key, size, md5 });
        Ok(())
    }

    async fn put(&self, task: &Task<'_>, key: String, content_type: &str, bytes: Vec<u8>) -> Result<(), Ended> {
        if task.stop.is_cancelled() {
            return Err(Ended::Stopped);
        }
        let destination = &task.inventory.destination;
        // Who may not write there now may not, whatever was allowed when the report was begun.
        self.require_destination(task, &key)?;
        let object = OwnObject {
            bucket: destination.bucket.clone(),
            key: ObjectKey::new(&key).map_err(|error| S3Error::request(error.to_string()))?,
            content_type: content_type.to_owned(),
            encrypt: destination.encrypt(),
            bytes: Bytes::from(bytes),
        };
        Ok(put_own(&self.ops, object).await?)
    }

    async fn rest(&self, ms: u64, stop: &CancellationToken) -> Result<(), Ended> {
        tokio::select! {
            biased;
            () = stop.cancelled() => Err(Ended::Stopped),
            () = tokio::time::sleep(Duration::from_millis(ms)) => Ok(()),
        }
    }
}

/// Adds rows to a file, or to a new one; compression takes its time, so that no thread that serves requests does it.
async fn write(
    inventory: &Inventory,
    listed: &Arc<Listed>,
    file: Option<DataFile>,
    entries: Vec<VersionDetails>,
) -> Result<DataFile, S3Error> {
    let (listed, columns, format) = (Arc::clone(listed), inventory.columns.clone(), inventory.destination.format);
    blocking(move || {
        let mut file = file.map_or_else(|| DataFile::new(format, &columns), Ok)?;
        for entry in &entries {
            file.add(columns.iter().map(|column| listed.value(*column, entry)).collect())?;
        }
        Ok(file)
    })
    .await
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, S3Error> + Send + 'static) -> Result<T, S3Error> {
    match tokio::task::spawn_blocking(work).await {
        Ok(outcome) => outcome,
        Err(error) => {
            tracing::error!(%error, "writing an inventory failed");
            Err(S3Code::InternalError.into())
        }
    }
}

fn md5(bytes: &[u8]) -> String {
    let mut digest = Md5::default();
    digest.update(bytes);
    hex::encode(digest.finish())
}
