//! Does what is due: walks the buckets that have rules, once a day, and ends objects, versions and uploads whose time has come.
//!
//! It seeks by the prefixes of the rules and reads page after page; it holds one page, never a bucket. How far it has come is kept with the
//! site, so that a restart goes on where the pass was. A deletion holds only for the object that was looked at: the store compares
//! under the object's lock, and refuses what is locked. While others wait for the store, it waits longer.
//! What it does not find due it leaves alone; what fails is counted and tried again by the next pass.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use gabion_store::{
    ConfigScope, DeleteObject, ListBuckets, ListObjects, ListUploads, ListVersions, ObjectSummary, StoreError,
    UploadRef, UploadSummary, VersionId, VersionSummary, Versioning,
};
use gabion_types::{BucketName, ObjectKey};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::due::Subject;
use super::history::{Candidate, History};
use super::rules::Rule;
use super::{DAY_MS, Days, LifecycleRules};
use crate::error::S3Error;
use crate::notifications::{EventName, EventSet, Origin};
use crate::ops::Ops;
use crate::s3::notifications;

/// Where the worker keeps how far it has come.
const PROGRESS: &str = "lifecycle/progress";
/// Rows of a page.
const PAGE_ROWS: usize = 1000;
/// Deletions that are under way at a time: their commits share stripes.
const DELETIONS_MAX: usize = 32;
/// How often progress is written, in milliseconds.
const PROGRESS_INTERVAL_MS: u64 = 30_000;
/// Longest rest before it is looked whether a pass is due, in milliseconds.
const REST_MS_MAX: u64 = 60_000;

/// What the worker counts.
#[derive(Debug, Default)]
pub struct LifecycleFigures {
    objects: Counter,
    versions: Counter,
    uploads: Counter,
    looked_at: Counter,
    failures: Counter,
    passes: Counter,
    finished_s: Gauge,
}

impl LifecycleFigures {
    /// Makes the figures show on the page of `registry`.
    pub fn register(&self, registry: &mut Registry) {
        let mut counter = |name: &str, help: &str, metric: &Counter| registry.register(name, help, metric.clone());
        counter("gabion_lifecycle_expired_objects", "Objects that lifecycle rules ended", &self.objects);
        counter(
            "gabion_lifecycle_expired_versions",
            "Noncurrent versions and delete markers that lifecycle rules ended",
            &self.versions,
        );
        counter("gabion_lifecycle_aborted_uploads", "Uploads that lifecycle rules aborted", &self.uploads);
        counter("gabion_lifecycle_rows", "Objects and uploads that lifecycle rules were held against", &self.looked_at);
        counter(
            "gabion_lifecycle_failures",
            "Deletions and walks that failed; the next pass tries again",
            &self.failures,
        );
        counter("gabion_lifecycle_passes", "Passes over all buckets with lifecycle rules", &self.passes);
        let help = "Unix time at which the last pass over all buckets with lifecycle rules came to its end";
        registry.register("gabion_lifecycle_finished_seconds", help, self.finished_s.clone());
    }
}

/// How the worker works.
#[derive(Clone, Copy, Debug)]
pub struct LifecycleOptions {
    /// Length of a day in milliseconds, for tests; nothing for days as they are.
    pub debug_day_ms: Option<u64>,
    /// Most objects, versions and uploads that are ended in a second.
    pub deletions_per_second: u32,
}

/// How far the last pass came.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Progress {
    /// The number of the day, or of the short day, that the pass is of.
    day: u64,
    /// The bucket that it had come to; nothing when it was done.
    bucket: Option<String>,
    /// The last key that was looked at there.
    key: Option<String>,
}

/// Ends what is due.
pub(crate) struct Worker {
    pub(crate) ops: Arc<Ops>,
    pub(crate) options: LifecycleOptions,
    pub(crate) figures: Arc<LifecycleFigures>,
}

/// Why a pass came to no end.
enum Ended {
    Stopped,
    Failed(S3Error),
}

/// Why something was left.
#[derive(Debug, thiserror::Error)]
enum Left {
    #[error(transparent)]
    ByStore(#[from] StoreError),
    /// Nobody could be told.
    #[error("{}", .0.message)]
    Untold(S3Error),
}

impl From<S3Error> for Left {
    fn from(error: S3Error) -> Self {
        Self::Untold(error)
    }
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

impl Worker {
    /// Works until it is told to stop.
    pub(crate) async fn run(self, stop: CancellationToken) {
        // What is not kept where no bucket has rules: nothing is written for the sake of a feature that is not in use.
        let mut done = None;
        loop {
            let today = self.ops.clock.now_ms() / self.pass_ms();
            let progress = self.progress().unwrap_or_default();
            // One that was cut off stays that of its day: the buckets before had none today.
            let day = if progress.bucket.is_some() { progress.day } else { today };
            if done != Some(day) && (progress.day < day || progress.bucket.is_some()) {
                match self.pass(day, progress, &stop).await {
                    Ok(()) => {
                        done = Some(day);
                        self.figures.passes.inc();
                        self.figures.finished_s.set(i64::try_from(self.ops.clock.now_ms() / 1000).unwrap_or(i64::MAX));
                        if day < today {
                            continue;
                        }
                    }
                    Err(Ended::Stopped) => return,
                    Err(Ended::Failed(error)) => {
                        self.figures.failures.inc();
                        tracing::warn!(error = %error.message, "a pass over lifecycle rules failed; it goes on later");
                    }
                }
            }
            let next_ms = (self.ops.clock.now_ms() / self.pass_ms() + 1) * self.pass_ms();
            let rest_ms = next_ms.saturating_sub(self.ops.clock.now_ms()).min(REST_MS_MAX);
            if self.rest(rest_ms.max(1), &stop).await.is_err() {
                return;
            }
        }
    }

    /// How often there is a pass: when a day ends something may be due.
    fn pass_ms(&self) -> u64 {
        self.options.debug_day_ms.map_or(DAY_MS, |day_ms| (day_ms / 2).max(1))
    }

    fn days(&self) -> Days {
        self.options.debug_day_ms.map_or(Days::Real, Days::Short)
    }

    fn progress(&self) -> Option<Progress> {
        if self.options.debug_day_ms.is_some() {
            // What is there is of days as they are.
            return None;
        }
        let document = self.ops.store.site_config(PROGRESS).ok().flatten()?;
        serde_json::from_slice(&document).ok()
    }

    async fn keep(&self, progress: &Progress) -> Result<(), Ended> {
        // What can be seen from outside within minutes need not be kept.
        if self.options.debug_day_ms.is_some() {
            return Ok(());
        }
        let document = serde_json::to_vec(progress).map_err(|_| S3Error::new(crate::error::S3Code::InternalError))?;
        Ok(self.ops.store.put_config(ConfigScope::Site, PROGRESS, Bytes::from(document)).await?)
    }

    async fn rest(&self, ms: u64, stop: &CancellationToken) -> Result<(), Ended> {
        tokio::select! {
            biased;
            () = stop.cancelled() => Err(Ended::Stopped),
            () = tokio::time::sleep(Duration::from_millis(ms)) => Ok(()),
        }
    }

    /// One walk over all buckets, now.
    ///
    /// # Errors
    /// What it was cut off by.
    pub(crate) async fn pass_now(&self) -> Result<(), S3Error> {
        let day = self.ops.clock.now_ms() / self.pass_ms();
        match self.pass(day, Progress::default(), &CancellationToken::new()).await {
            Ok(()) | Err(Ended::Stopped) => Ok(()),
            Err(Ended::Failed(error)) => Err(error),
        }
    }

    /// One walk over all buckets, from where an unfinished one had come to.
    async fn pass(&self, day: u64, from: Progress, stop: &CancellationToken) -> Result<(), Ended> {
        let is_kept = from.bucket.is_some();
        let mut walk =
            Walk { worker: self, stop, progress: from, kept_ms: self.ops.clock.now_ms(), found_rules: is_kept };
        let mut resumed = walk.progress.bucket.take();
        walk.progress.day = day;
        let mut after = None;
        if let Some(bucket) = &resumed {
            walk.buckets_from(bucket).await?;
            after = resumed.take();
        }
        loop {
            let page = ListBuckets { owner: None, prefix: None, after, max: PAGE_ROWS };
            let listed = self.ops.store.list_buckets(page).await?;
            for bucket in &listed.buckets {
                walk.progress.key = None;
                walk.bucket(&bucket.name).await?;
            }
            match listed.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        if walk.found_rules { self.keep(&Progress { day, bucket: None, key: None }).await } else { Ok(()) }
    }
}

/// A pass under way.
struct Walk<'a> {
    worker: &'a Worker,
    stop: &'a CancellationToken,
    progress: Progress,
    /// When the progress was last written.
    kept_ms: u64,
    /// Whether any bucket has rules.
    found_rules: bool,
}

impl Walk<'_> {
    /// Goes on in the bucket in which a pass was cut off, if it is still there.
    async fn buckets_from(&mut self, bucket: &str) -> Result<(), Ended> {
        match BucketName::new(bucket) {
            Ok(bucket) => self.bucket(&bucket).await,
            Err(_) => Ok(()),
        }
    }

    async fn bucket(&mut self, bucket: &BucketName) -> Result<(), Ended> {
        if self.stop.is_cancelled() {
            return Err(Ended::Stopped);
        }
        let settings = self.worker.ops.settings(bucket)?;
        let rules = match &settings.lifecycle {
            None => return Ok(()),
            Some(Ok(rules)) => rules,
            Some(Err(error)) => {
                self.worker.figures.failures.inc();
                tracing::warn!(%bucket, error = %error.message, "the lifecycle rules of a bucket can not be read");
                return Ok(());
            }
        };
        self.found_rules = true;
        self.progress.bucket = Some(bucket.as_str().to_owned());
        match self.objects(bucket, rules).await {
            Err(Ended::Failed(error)) => self.failed(bucket, &error),
            outcome => outcome?,
        }
        if settings.versioning != Versioning::Never {
            match self.versions(bucket, rules).await {
                Err(Ended::Failed(error)) => self.failed(bucket, &error),
                outcome => outcome?,
            }
        }
        match self.uploads(bucket, rules).await {
            Err(Ended::Failed(error)) => self.failed(bucket, &error),
            outcome => outcome?,
        }
        Ok(())
    }

    /// A bucket that can not be walked is no reason not to walk the others.
    fn failed(&self, bucket: &BucketName, error: &S3Error) {
        self.worker.figures.failures.inc();
        tracing::warn!(%bucket, error = %error.message, "lifecycle rules could not be held against all of a bucket");
    }

    async fn objects(&mut self, bucket: &BucketName, rules: &LifecycleRules) -> Result<(), Ended> {
        let resumed = self.progress.key.take();
        for prefix in rules.prefixes(|rule| rule.expiration.is_some()) {
            // A pass that was cut off had come past what is before its key.
            let mut after = resumed.clone().filter(|key| key.as_str() >= prefix);
            if after.as_ref().is_some_and(|key| !key.starts_with(prefix)) {
                continue;
            }
            loop {
                if !self.count(bucket, &rules.rules)? {
                    return Ok(());
                }
                let began_ms = self.worker.ops.clock.now_ms();
                let page = ListObjects {
                    bucket: bucket.clone(),
                    prefix: prefix.to_owned(),
                    delimiter: None,
                    after: after.take(),
                    max: PAGE_ROWS,
                };
                let listed = self.worker.ops.store.list_objects(page).await?;
                self.worker.figures.looked_at.inc_by(listed.entries.len() as u64);
                let ended = self.end_objects(bucket, rules, &listed.entries).await;
                self.progress.key = listed.entries.last().map(|entry| entry.key.clone());
                self.turn(began_ms, ended).await?;
                match listed.next.filter(|_| listed.truncated) {
                    Some(next) => after = Some(next),
                    None => break,
                }
            }
        }
        Ok(())
    }

    /// Ends those of a page that are due; gives their number.
    async fn end_objects(&self, bucket: &BucketName, rules: &LifecycleRules, page: &[ObjectSummary]) -> u64 {
        let (now_ms, days) = (self.worker.ops.clock.now_ms(), self.worker.days());
        let mut due: Vec<(&ObjectSummary, Vec<&Rule>)> = Vec::new();
        for entry in page {
            let is_due = |rule: &&Rule| {
                rule.filter.may_match(&entry.key, entry.size)
                    && rule.object_ends_ms(entry.modified_ms, days).is_some_and(|ends_ms| ends_ms <= now_ms)
            };
            let about: Vec<&Rule> = rules.rules.iter().filter(is_due).collect();
            if !about.is_empty() {
                due.push((entry, about));
            }
        }
        let mut ended = 0;
        for some in due.chunks(DELETIONS_MAX) {
            let mut deletions = Vec::with_capacity(some.len());
            for (entry, about) in some {
                deletions.push(self.end_object(bucket, entry, about));
            }
            ended += futures::future::join_all(deletions).await.into_iter().filter(|is_ended| *is_ended).count();
        }
        ended as u64
    }

    /// Whether an object was ended: one of the rules is about it.
    async fn end_object(&self, bucket: &BucketName, entry: &ObjectSummary, rules: &[&Rule]) -> bool {
        let Ok(key) = ObjectKey::new(&entry.key) else { return false };
        let store = &self.worker.ops.store;
        let outcome = async {
            let found = store.object_info(bucket, &key, None).await?;
            let subject = Subject { key: &entry.key, size: found.size, tags: &found.attributes.tags };
            if found.modified_ms != entry.modified_ms || !rules.iter().any(|rule| rule.filter.matches(subject)) {
                return Ok(false);
            }
            // Where versions are kept, a delete marker takes its place.
            let delete = DeleteObject { if_seq: Some(found.seq), ..DeleteObject::current(key) };
            self.end(bucket, rules, delete).await
        };
        match outcome.await {
            Ok(is_ended) => {
                self.worker.figures.objects.inc_by(u64::from(is_ended));
                is_ended
            }
            Err(error) => self.left(bucket, &entry.key, &error),
        }
    }

    /// Whether these are rules of the bucket still: a walk takes hours, and whoever takes a wrong one back is not to see it go on.
    fn count<'r>(&self, bucket: &BucketName, rules: impl IntoIterator<Item = &'r Rule>) -> Result<bool, S3Error> {
        let settings = self.worker.ops.settings(bucket)?;
        let Some(Ok(now)) = &settings.lifecycle else { return Ok(false) };
        Ok(rules.into_iter().all(|rule| now.rules.contains(rule)))
    }

    /// Whether there was what is deleted by rules that count still. Those who want to know are told; while they can not be, it stays.
    async fn end(&self, bucket: &BucketName, rules: &[&Rule], delete: DeleteObject) -> Result<bool, Left> {
        const EXPIRED: (EventName, EventName) = (EventName::ExpiredDelete, EventName::ExpiredMarker);
        let ops = &self.worker.ops;
        if !self.count(bucket, rules.iter().copied())? {
            return Ok(false);
        }
        let settings = ops.settings(bucket)?;
        let Some(rules) = settings.notifications.as_ref() else {
            return Ok(ops.store.delete_object(bucket.clone(), delete).await?.existed);
        };
        let rules = rules.as_ref().map_err(Clone::clone)?;
        let (key, is_version) = (delete.key.clone(), delete.version.is_some());
        let owner = settings.access.owner.as_deref().unwrap_or_default();
        let account = ops.account_id(owner);
        let events = EventSet::of(&[EXPIRED.0, EXPIRED.1]);
        ops.notifier.admit(rules, events, Some(key.as_str()), account.as_deref())?;
        let deleted = ops.store.delete_object(bucket.clone(), delete).await?;
        if let Some(told) = notifications::deleted(EXPIRED, key.as_str(), is_version, &deleted) {
            let origin = Origin::of_lifecycle(&ops.region, bucket.as_str(), owner, account, ops.clock.now_ms());
            ops.notifier.tell(rules, &origin, &[told]).await?;
        }
        Ok(deleted.existed)
    }

    /// What is not what was looked at any more, or is locked, stays; all else that stays is told.
    fn left(&self, bucket: &BucketName, key: &str, error: &Left) -> bool {
        use StoreError::{AccessDenied, DeleteMarker, NoSuchBucket, NoSuchKey, NoSuchVersion, PreconditionFailed};
        let is_usual = matches!(
            error,
            Left::ByStore(
                NoSuchKey
                    | NoSuchBucket
                    | NoSuchVersion(_)
                    | DeleteMarker { .. }
                    | PreconditionFailed(_)
                    | AccessDenied(_)
            )
        );
        if !is_usual {
            self.worker.figures.failures.inc();
            tracing::debug!(%bucket, key, %error, "an object whose time has come was not deleted");
        }
        false
    }

    /// Ends versions that are not current any more, and delete markers behind which there is nothing.
    async fn versions(&mut self, bucket: &BucketName, rules: &LifecycleRules) -> Result<(), Ended> {
        for prefix in rules.prefixes(|rule| rule.noncurrent.is_some() || rule.ends_lone_markers()) {
            let mut history = History::default();
            let mut after = None;
            loop {
                if !self.count(bucket, &rules.rules)? {
                    return Ok(());
                }
                let began_ms = self.worker.ops.clock.now_ms();
                let page = ListVersions {
                    bucket: bucket.clone(),
                    prefix: prefix.to_owned(),
                    delimiter: None,
                    after: after.take(),
                    max: PAGE_ROWS,
                };
                let listed = self.worker.ops.store.list_versions(page).await?;
                self.worker.figures.looked_at.inc_by(listed.entries.len() as u64);
                let mut candidates = Vec::new();
                // By its commit, also where it is a `null` version: that may be ended before the next page is asked for.
                let last =
                    listed.entries.last().map(|entry| (entry.object.key.clone(), Some(VersionId::Of(entry.seq))));
                for entry in listed.entries {
                    history.take(entry, &mut candidates);
                }
                if !listed.truncated {
                    candidates.extend(history.end());
                }
                let ended = self.end_versions(bucket, rules, &candidates).await;
                self.turn(began_ms, ended).await?;
                match last.filter(|_| listed.truncated) {
                    Some(last) => after = Some(last),
                    None => break,
                }
            }
        }
        Ok(())
    }

    /// Ends those that are due; gives their number.
    async fn end_versions(&self, bucket: &BucketName, rules: &LifecycleRules, found: &[Candidate]) -> u64 {
        let (now_ms, days) = (self.worker.ops.clock.now_ms(), self.worker.days());
        let mut due: Vec<(&Candidate, Vec<&Rule>)> = Vec::new();
        for candidate in found {
            let entry = &candidate.entry;
            let is_due = |rule: &&Rule| {
                rule.filter.may_match(&entry.object.key, entry.object.size)
                    && candidate.ends_ms(rule, days).is_some_and(|ends_ms| ends_ms <= now_ms)
            };
            let about: Vec<&Rule> = rules.rules.iter().filter(is_due).collect();
            if !about.is_empty() {
                due.push((candidate, about));
            }
        }
        let mut ended = 0;
        for some in due.chunks(DELETIONS_MAX) {
            let mut deletions = Vec::with_capacity(some.len());
            for (candidate, about) in some {
                deletions.push(self.end_version(bucket, &candidate.entry, about));
            }
            ended += futures::future::join_all(deletions).await.into_iter().filter(|is_ended| *is_ended).count();
        }
        ended as u64
    }

    /// Whether a version was ended: one of the rules is about it, and it is not the current one again.
    async fn end_version(&self, bucket: &BucketName, entry: &VersionSummary, rules: &[&Rule]) -> bool {
        let Ok(key) = ObjectKey::new(&entry.object.key) else { return false };
        let store = &self.worker.ops.store;
        let outcome = async {
            if rules.iter().all(|rule| !rule.filter.tags.is_empty()) {
                let found = store.object_info(bucket, &key, Some(entry.version)).await?;
                let subject = Subject { key: &entry.object.key, size: found.size, tags: &found.attributes.tags };
                if !rules.iter().any(|rule| rule.filter.matches(subject)) {
                    return Ok(false);
                }
            }
            let delete = DeleteObject {
                version: Some(entry.version),
                if_seq: Some(entry.seq),
                // Whoever deleted what was over it has it back.
                if_noncurrent: !entry.is_latest,
                ..DeleteObject::current(key.clone())
            };
            self.end(bucket, rules, delete).await
        };
        match outcome.await {
            Ok(is_ended) => {
                self.worker.figures.versions.inc_by(u64::from(is_ended));
                is_ended
            }
            Err(error) => self.left(bucket, &entry.object.key, &error),
        }
    }

    async fn uploads(&mut self, bucket: &BucketName, rules: &LifecycleRules) -> Result<(), Ended> {
        for prefix in rules.prefixes(|rule| rule.abort_days.is_some()) {
            let (mut key_marker, mut upload_id_marker) = (None, None);
            loop {
                if !self.count(bucket, &rules.rules)? {
                    return Ok(());
                }
                let began_ms = self.worker.ops.clock.now_ms();
                let page = ListUploads {
                    bucket: bucket.clone(),
                    prefix: prefix.to_owned(),
                    delimiter: None,
                    key_marker: key_marker.take(),
                    upload_id_marker: upload_id_marker.take(),
                    max: PAGE_ROWS,
                };
                let listed = self.worker.ops.store.list_uploads(page).await?;
                self.worker.figures.looked_at.inc_by(listed.uploads.len() as u64);
                let mut ended = 0;
                for upload in &listed.uploads {
                    ended += u64::from(self.end_upload(bucket, rules, upload).await);
                }
                self.turn(began_ms, ended).await?;
                if !listed.truncated {
                    break;
                }
                (key_marker, upload_id_marker) = (listed.next_key_marker, listed.next_upload_id_marker);
            }
        }
        Ok(())
    }

    /// Whether an upload was due, and was aborted.
    async fn end_upload(&self, bucket: &BucketName, rules: &LifecycleRules, upload: &UploadSummary) -> bool {
        let (now_ms, days) = (self.worker.ops.clock.now_ms(), self.worker.days());
        let is_due = rules.rules.iter().any(|rule| {
            upload.key.starts_with(rule.filter.prefix.as_str())
                && rule.upload_ends_ms(upload.created_ms, days).is_some_and(|ends_ms| ends_ms <= now_ms)
        });
        let Some(key) = ObjectKey::new(&upload.key).ok().filter(|_| is_due) else { return false };
        if !self.count(bucket, &rules.rules).unwrap_or(false) {
            return false;
        }
        let target = UploadRef { bucket: bucket.clone(), key, upload: upload.upload };
        match self.worker.ops.store.abort_upload(target).await {
            Ok(()) => {
                self.worker.figures.uploads.inc();
                true
            }
            Err(StoreError::NoSuchUpload | StoreError::NoSuchBucket) => false,
            Err(error) => {
                self.worker.figures.failures.inc();
                tracing::debug!(%bucket, key = upload.key, %error, "an upload whose time has come was not aborted");
                false
            }
        }
    }

    /// After a page that was begun at `began_ms`: rests as long as it took, and as long as so many deletions may take; keeps the progress now and then.
    async fn turn(&mut self, began_ms: u64, ended: u64) -> Result<(), Ended> {
        let took_ms = self.worker.ops.clock.now_ms().saturating_sub(began_ms);
        let paced_ms = ended * 1000 / u64::from(self.worker.options.deletions_per_second.max(1));
        self.worker.rest(took_ms.max(paced_ms.saturating_sub(took_ms)), self.stop).await?;
        let now_ms = self.worker.ops.clock.now_ms();
        if now_ms.saturating_sub(self.kept_ms) >= PROGRESS_INTERVAL_MS {
            self.kept_ms = now_ms;
            // Where there is no room for that, ending objects is what makes some.
            if let Err(Ended::Failed(error)) = self.worker.keep(&self.progress).await {
                tracing::warn!(error = %error.message, "how far the lifecycle rules are can not be kept");
            }
        }
        Ok(())
    }
}
