//! Lines on their way: gathered per bucket, stored as an object when there are enough of them or the first has waited long enough.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use gabion_store::{Attributes, KeyError, ObjectBody, PutObject, StoreError, WriteConditions};
use gabion_types::{BucketName, ObjectKey};
use http::Response;
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use s3s::Body;
use sha2::{Digest, Sha256};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::Logging;
use super::config::Source;
use super::record::{AlsoDone, Draft};
use crate::auth::{Delivery, LOGS, delivery};
use crate::error::S3Error;
use crate::ops::Ops;
use crate::s3::{encryption, object_lock};

/// A log object is at most about this long.
const OBJECT_BYTES: usize = 1 << 20;
/// Lines in memory, of all buckets together; beyond that they are dropped and counted.
const WAITING_BYTES_MAX: usize = 32 << 20;

/// What is counted.
#[derive(Clone, Debug, Default)]
pub struct LogDeliveryFigures {
    objects: Counter,
    records: Counter,
    dropped: Counter,
}

impl LogDeliveryFigures {
    /// Makes the figures show on the page of `registry`.
    pub fn register(&self, registry: &mut Registry) {
        let mut counter = |name: &str, help: &str, metric: &Counter| registry.register(name, help, metric.clone());
        counter("gabion_bucket_log_objects", "Log objects that were delivered to buckets", &self.objects);
        counter("gabion_bucket_log_records", "Requests that were written down for the logs of buckets", &self.records);
        let help = "Records that were dropped: too many waited, or their bucket could not take them";
        counter("gabion_bucket_log_dropped_records", help, &self.dropped);
    }
}

/// How logs are delivered.
#[derive(Clone, Copy, Debug)]
pub struct LogDeliveryOptions {
    /// Longest time that a line waits, in milliseconds.
    pub interval_ms: u64,
}

/// Lines of one bucket that go to one object.
struct Batch {
    source: BucketName,
    logging: Logging,
    /// When its first line was written.
    begun_ms: u64,
    event_ms: u64,
    lines: String,
    count: u64,
}

/// What lines are gathered by.
type BatchOf = (BucketName, Logging, u64);

/// All lines that wait.
#[derive(Default)]
pub(crate) struct Deliveries {
    waiting: Mutex<Waiting>,
    is_due: Notify,
    objects: AtomicU64,
    figures: LogDeliveryFigures,
}

#[derive(Default)]
struct Waiting {
    open: HashMap<BatchOf, Batch>,
    full: Vec<Batch>,
    bytes: usize,
}

impl Deliveries {
    pub(crate) fn new(figures: LogDeliveryFigures) -> Self {
        Self { figures, ..Self::default() }
    }

    /// Writes down what a request did.
    pub(crate) async fn log(&self, ops: &Ops, draft: &Draft, response: &Response<Body>, error: Option<&'static str>) {
        let now_ms = ops.clock.now_ms();
        // A copy that failed may not have come to its source; and why it failed is not the matter of the source's owner.
        if let Some((bucket, logging, also)) = &draft.source
            && response.status().is_success()
            && let Ok(info) = ops.store.head_bucket(bucket).await
        {
            self.add(bucket, logging, draft.event_ms, draft.line_of(&info.owner, bucket, also, now_ms), now_ms);
        }
        let Some(logging) = &draft.logging else { return };
        // The bucket may just have been deleted: then nobody wants to read it.
        let Ok(info) = ops.store.head_bucket(&draft.bucket).await else { return };
        let add = |line| self.add(&draft.bucket, logging, draft.event_ms, line, now_ms);
        add(draft.line(&info.owner, response, error, now_ms));
        for also in response.extensions().get::<AlsoDone>().into_iter().flat_map(|AlsoDone(done)| done) {
            add(draft.line_of(&info.owner, &draft.bucket, also, now_ms));
        }
    }

    /// Adds a line to those that wait.
    fn add(&self, bucket: &BucketName, logging: &Logging, event_ms: u64, line: String, now_ms: u64) {
        let mut waiting = self.waiting.lock();
        if waiting.bytes + line.len() > WAITING_BYTES_MAX {
            self.figures.dropped.inc();
            return;
        }
        waiting.bytes += line.len() + 1;
        let of = (bucket.clone(), logging.clone(), logging.partition(event_ms));
        let batch = waiting.open.entry(of.clone()).or_insert_with(|| Batch {
            source: bucket.clone(),
            logging: logging.clone(),
            begun_ms: now_ms,
            event_ms,
            lines: String::new(),
            count: 0,
        });
        batch.lines.push_str(&line);
        batch.lines.push('\n');
        batch.count += 1;
        self.figures.records.inc();
        let is_full = batch.lines.len() >= OBJECT_BYTES;
        if is_full && let Some(full) = waiting.open.remove(&of) {
            waiting.full.push(full);
            self.is_due.notify_one();
        }
    }

    /// Delivers until it is told to stop, and then the rest.
    pub(crate) async fn run(&self, ops: &Ops, options: LogDeliveryOptions, stop: CancellationToken) {
        loop {
            let step = Duration::from_millis((options.interval_ms / 10).clamp(10, 1000));
            let is_stopped = tokio::select! {
                biased;
                () = stop.cancelled() => true,
                () = self.is_due.notified() => false,
                () = tokio::time::sleep(step) => false,
            };
            let wait_ms = if is_stopped { 0 } else { options.interval_ms };
            for batch in self.take_due(ops.clock.now_ms(), wait_ms) {
                self.deliver(ops, batch).await;
            }
            if is_stopped {
                return;
            }
        }
    }

    fn take_due(&self, now_ms: u64, wait_ms: u64) -> Vec<Batch> {
        let mut waiting = self.waiting.lock();
        let mut due = std::mem::take(&mut waiting.full);
        let ripe: Vec<BatchOf> = waiting
            .open
            .iter()
            .filter(|(_, batch)| now_ms.saturating_sub(batch.begun_ms) >= wait_ms)
            .map(|(of, _)| of.clone())
            .collect();
        due.extend(ripe.iter().filter_map(|of| waiting.open.remove(of)));
        due
    }

    async fn deliver(&self, ops: &Ops, batch: Batch) {
        let stored = self.store(ops, &batch).await;
        let mut waiting = self.waiting.lock();
        match stored {
            Ok(()) => {
                self.figures.objects.inc();
                waiting.bytes = waiting.bytes.saturating_sub(batch.lines.len());
            }
            // It is tried again; as long as that lasts, memory is bounded by what may wait.
            Err(
                StoreError::Busy
                | StoreError::Unavailable(_)
                | StoreError::NoSpace
                | StoreError::Key(KeyError::Unavailable(_)),
            ) => waiting.full.push(batch),
            Err(error) => {
                tracing::warn!(bucket = %batch.source, target = %batch.logging.target, %error, "a log could not be delivered");
                self.figures.dropped.inc_by(batch.count);
                waiting.bytes = waiting.bytes.saturating_sub(batch.lines.len());
            }
        }
    }

    async fn store(&self, ops: &Ops, batch: &Batch) -> Result<(), StoreError> {
        let source = ops.store.head_bucket(&batch.source).await?;
        let target = ops.store.head_bucket(&batch.logging.target).await?;
        // It may be another one by now.
        if source.owner != target.owner {
            return Err(StoreError::AccessDenied("the target of a log is another account's"));
        }
        let now_ms = ops.clock.now_ms();
        let (moments, unique) = ((batch.event_ms, now_ms), self.unique(batch, now_ms));
        let key = key(ops, &batch.logging, &source.owner, &batch.source, moments, &unique)?;
        let unread = |error: S3Error| StoreError::Unavailable(error.message.into_owned());
        // So may what its policy says.
        if delivery(ops, LOGS, &batch.source, &batch.logging.target, key.as_str()).map_err(unread)? == Delivery::Denied
        {
            return Err(StoreError::AccessDenied("the policy of a log's target denies it"));
        }
        let encrypt = encryption::by_default(ops, &batch.logging.target).map_err(unread)?;
        let retention = object_lock::by_default(ops, &batch.logging.target).map_err(unread)?;
        let put = PutObject {
            bucket: batch.logging.target.clone(),
            key,
            attributes: Attributes { content_type: Some("text/plain".into()), retention, ..Attributes::default() },
            conditions: WriteConditions::default(),
        };
        let mut body = ObjectBody::from_bytes(Bytes::copy_from_slice(batch.lines.as_bytes()));
        body.encrypt = encrypt.map(Box::new);
        ops.store.put_object(put, body).await.map(drop)
    }

    /// Sixteen digits that no other log object of the same second has.
    fn unique(&self, batch: &Batch, now_ms: u64) -> String {
        let number = self.objects.fetch_add(1, Ordering::Relaxed);
        let digest = Sha256::new()
            .chain_update(batch.source.as_str())
            .chain_update(now_ms.to_be_bytes())
            .chain_update(number.to_be_bytes())
            .chain_update(&batch.lines)
            .finalize();
        hex::encode_upper(&digest[..8])
    }
}
/// The key of a log object of `bucket`, which is `owner`'s, of what happened at the first of two moments and is delivered at the other.
///
/// # Errors
/// When it is none: the prefix makes it too long.
pub(super) fn key(
    ops: &Ops,
    logging: &Logging,
    owner: &str,
    bucket: &BucketName,
    (event_ms, now_ms): (u64, u64),
    unique: &str,
) -> Result<ObjectKey, StoreError> {
    let account = ops.account_id(owner).unwrap_or_default();
    let of = Source { account: &account, region: &ops.region, bucket: bucket.as_str() };
    let key = logging.key(&of, event_ms, now_ms, unique);
    ObjectKey::new(&key).map_err(|error| StoreError::InvalidRequest(error.to_string()))
}
