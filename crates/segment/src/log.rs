//! The log: all lanes, all segments, all targets behind one handle.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use gabion_types::{DeploymentId, Extent, SegmentId, Seq, TargetId};

use crate::applier::{Applier, Committed, NewRecord};
use crate::config::{Env, LogConfig, LogTarget};
use crate::error::LogError;
use crate::metrics::LogMetrics;
use crate::recovery::Recovery;
use crate::replay::MutationStream;
use crate::segment_info::KnownSegment;
use crate::status::LogStatus;
use crate::stripe_buffer::StripeBuffer;

/// A handle on the log; clones share it. When the last one is dropped the lanes finish what is queued and end.
#[derive(Clone, Debug)]
pub struct Log {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    metrics: LogMetrics,
}

/// Keeps the files of segments from being unlinked until it is dropped.
#[derive(Debug)]
pub struct Pin {}

/// What is left of a freed segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Freed {
    /// Shards whose files could not be removed: their target is absent or failed. They are removed when the log is next opened with it.
    pub left: Vec<(u8, TargetId)>,
}

impl Log {
    /// Opens (or formats) the targets, recovers every segment that the index does not know as sealed, and seals it.
    ///
    /// `known` is what the index holds; empty if it is lost. Reads and [`Log::mutations`] work at once, writes after [`Log::start`].
    ///
    /// # Errors
    /// `Targets` when the directories make up no usable deployment or too many are absent; `IndexAhead` when the index must be
    /// rebuilt; `Invalid` for a bad configuration; `Io` and `Unavailable` when a segment could be neither completed nor sealed.
    pub async fn open(
        _config: LogConfig,
        _targets: Vec<LogTarget>,
        _known: Vec<KnownSegment>,
        _env: Env,
    ) -> Result<(Log, Recovery), LogError> {
        Err(LogError::Unavailable("not yet".to_owned()))
    }

    /// Starts the lanes. `applier` gets every stripe after it is durable and before its submitters are answered.
    pub fn start(&self, _applier: Arc<dyn Applier>) {}

    /// Commits one record: durable and applied when it resolves. Dropping the future does not take the record back.
    ///
    /// # Errors
    /// `Invalid` (too large, wrong checksum), `Busy`, `NoSpace`: it took no effect. `Unavailable`: unknown.
    pub async fn commit(&self, _record: NewRecord) -> Result<Committed, LogError> {
        Err(LogError::Busy)
    }

    /// Writes one stripe of a large object: durable when it resolves. The stripe must not be empty.
    ///
    /// # Errors
    /// `Invalid`, `Busy`, `NoSpace`, `Unavailable`: no extent names the bytes, they are dead.
    pub async fn append(&self, _payload: StripeBuffer) -> Result<Extent, LogError> {
        Err(LogError::Busy)
    }

    /// An empty buffer for one stripe; waits until the memory budget has room for it. Cancel safe.
    ///
    /// # Errors
    /// `Unavailable` after [`Log::shutdown`].
    pub async fn stripe_buffer(&self) -> Result<StripeBuffer, LogError> {
        Err(LogError::Busy)
    }

    /// Payload of a full stripe of a large object in bytes.
    #[must_use]
    pub fn stripe_payload_bytes(&self) -> usize {
        0
    }

    /// The bytes `range` of `extent`, verified, in order.
    ///
    /// # Errors
    /// `Invalid` when the range leaves the extent, `NotFound` when the segment is gone, `Corrupt` when too many chunks are bad.
    pub async fn read(&self, _extent: &Extent, _range: Range<u32>) -> Result<Vec<Bytes>, LogError> {
        Err(LogError::Busy)
    }

    /// Keeps the files of `segments` until the pin is dropped; segments that are gone already are left out.
    pub fn pin(&self, _segments: impl IntoIterator<Item = SegmentId>) -> Pin {
        Pin {}
    }

    /// Removes a sealed segment in which nothing is needed any more.
    ///
    /// Writes `carried` (mutations that must outlive it, with their sequences) and then a `Freed` record durably, waits until no
    /// pin holds the segment, and unlinks its files. Goes on if the future is dropped.
    ///
    /// # Errors
    /// `Invalid` when it is not sealed, `NotFound`; those of [`Log::commit`]: it is as it was, or freed at the next start.
    pub async fn free(&self, _segment: SegmentId, _carried: Vec<(Seq, Bytes)>) -> Result<Freed, LogError> {
        Err(LogError::Busy)
    }

    /// The stripes of `segment` with their records, from stripe `from_stripe` on. A segment of large stripes has none.
    ///
    /// # Errors
    /// `NotFound`, `Invalid` when the segment has fewer stripes.
    pub async fn mutations(&self, _segment: SegmentId, _from_stripe: u32) -> Result<MutationStream, LogError> {
        Err(LogError::Busy)
    }

    /// Makes everything durable that was acknowledged before the call: the checkpoint of relaxed durability, and free with `Durability::Sync`.
    ///
    /// # Errors
    /// `Unavailable` when acknowledged stripes may be lost by a power cut: no checkpoint may claim them.
    pub async fn sync(&self) -> Result<(), LogError> {
        Ok(())
    }

    /// The next sequence: above all that were given out or observed.
    #[must_use]
    pub fn next_seq(&self) -> Seq {
        Seq::ZERO
    }

    /// Makes every later sequence higher than `seq`.
    pub fn observe_seq(&self, _seq: Seq) {}

    /// Takes no more writes, finishes those that are queued, and resolves when all are answered.
    pub async fn shutdown(&self) {}

    /// The deployment that the targets belong to.
    #[must_use]
    pub fn deployment(&self) -> DeploymentId {
        DeploymentId::from_u128(0)
    }

    /// A snapshot for the admin page.
    #[must_use]
    pub fn status(&self) -> LogStatus {
        LogStatus { deployment: String::new(), geometry: String::new(), targets: vec![], missing_members: vec![], lanes: vec![], open_segments: 0, sealed_segments: 0, unreadable_segments: 0, repairs: vec![], poisoned: None }
    }

    /// The counters.
    #[must_use]
    pub fn metrics(&self) -> &LogMetrics {
        &self.inner.metrics
    }
}
