//! The scrub: all segments, one after the other, in an interval; where it was stands in the index, so that a restart does not begin anew.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use gabion_metadata::{Index, Table, Write, keys};
use gabion_types::SegmentId;
use minicbor::{Decode, Encode};
use parking_lot::Mutex;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::cross_check::{CrossCheck, cross_check};
use super::damage;
use crate::{Store, StoreError, open::SCRUB_ROW, store::Inner};

const HOUR_MS: u64 = 3_600_000;
/// How often it is looked whether a scrub is due.
const LOOK_MS: u64 = 60_000;

/// A scrub: one that is under way, or the last one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ScrubReport {
    /// When it began, in milliseconds since 1970.
    pub started_ms: u64,
    /// When it ended.
    pub finished_ms: Option<u64>,
    /// Segments that were read.
    pub segments: u64,
    /// Those of them that were still written to: they were read as far as they were written then.
    pub open_segments: u64,
    /// Bytes that were read.
    pub bytes: u64,
    /// Shards that were damaged or without a file.
    pub bad_shards: u64,
    /// Chunks that were not what was written.
    pub bad_chunks: u64,
    /// Shards that were not read because their targets are absent or do not answer.
    pub unread_shards: u64,
    /// Shards that were built anew at its end, for whatever reason.
    pub shards_repaired: u64,
    /// What the comparison of index and log found; nothing if it was not made, or before this start of the server.
    pub cross_check: Option<CrossCheck>,
}

/// How far the scrub is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ScrubStatus {
    /// Whether one is under way.
    pub running: bool,
    /// Whether one is asked for that waits until the one that is under way has ended.
    pub waiting: bool,
    /// How many ended since the store was opened, completely or not.
    pub ended: u64,
    /// Why the one that ended last did before its end; nothing if it was complete, or one is under way.
    pub error: Option<String>,
    /// Segments that it has read.
    pub segments_done: u64,
    /// Segments that there are to read.
    pub segments_total: u64,
    /// Bytes that it has read.
    pub bytes: u64,
    /// Shards that it found bad.
    pub errors_found: u64,
    /// Shards that it could not read because their targets are absent or do not answer.
    pub unread_shards: u64,
    /// When it began, in milliseconds since 1970.
    pub started_ms: u64,
    /// When it ended; nothing while it is under way.
    pub finished_ms: Option<u64>,
    /// The last one that was finished.
    pub last: Option<ScrubReport>,
}

/// What the store remembers of its scrubs while it is open.
#[derive(Default)]
pub(crate) struct Scrub {
    /// One at a time.
    turn: tokio::sync::Mutex<()>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    running: bool,
    waiting: usize,
    ended: u64,
    error: Option<String>,
    current: ScrubReport,
    last: Option<ScrubReport>,
}

/// What the index remembers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
struct Cursor {
    #[n(0)]
    started_ms: u64,
    #[n(1)]
    finished_ms: Option<u64>,
    /// The last segment that was read.
    #[n(2)]
    after: Option<SegmentId>,
    #[n(3)]
    segments: u64,
    #[n(4)]
    bytes: u64,
    #[n(5)]
    bad_shards: u64,
    #[n(6)]
    bad_chunks: u64,
    #[n(7)]
    shards_repaired: u64,
    /// Not in rows of earlier versions.
    #[n(8)]
    unread_shards: Option<u64>,
    /// Nor is this.
    #[n(9)]
    open_segments: Option<u64>,
}

impl Cursor {
    fn report(&self, cross_check: Option<CrossCheck>) -> ScrubReport {
        ScrubReport {
            started_ms: self.started_ms,
            finished_ms: self.finished_ms,
            segments: self.segments,
            open_segments: self.open_segments.unwrap_or(0),
            bytes: self.bytes,
            bad_shards: self.bad_shards,
            bad_chunks: self.bad_chunks,
            unread_shards: self.unread_shards.unwrap_or(0),
            shards_repaired: self.shards_repaired,
            cross_check,
        }
    }

    fn load(index: &dyn Index) -> Result<Option<Self>, StoreError> {
        let row = index.get(Table::System, &keys::system(SCRUB_ROW))?;
        // One that can not be read is of no use: the scrub begins anew.
        Ok(row.and_then(|row| minicbor::decode(&row).ok()))
    }

    /// Not made durable: losing it costs reading some segments again.
    fn store(&self, index: &dyn Index) -> Result<(), StoreError> {
        let row = minicbor::to_vec(self).map_err(|error| StoreError::Internal(error.to_string()))?;
        index.commit(&[], vec![Write::Put(Table::System, keys::system(SCRUB_ROW), row)])?;
        Ok(())
    }
}

/// Scrubs when it is time, until the store is shut down or dropped.
pub(crate) async fn scrubs(store: Weak<Inner>, stop: CancellationToken) {
    let Some(interval_h) = store.upgrade().map(|inner| inner.config.scrub_interval_h) else { return };
    if interval_h == 0 {
        return;
    }
    let mut wait_ms = 0;
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(Duration::from_millis(wait_ms)) => {}
        }
        wait_ms = LOOK_MS;
        let Some(inner) = store.upgrade() else { return };
        if !is_due(&inner, interval_h) {
            continue;
        }
        let outcome = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            outcome = scrub(&inner, false) => outcome,
        };
        match outcome {
            Ok(report) => tracing::info!(segments = report.segments, bad_shards = report.bad_shards, "a scrub is done"),
            Err(error) => tracing::warn!(%error, "a scrub stopped; it goes on later"),
        }
    }
}

/// Whether a scrub is under way, or the last one is long ago, or there is damage that only a scrub finds again. The first one of a deployment comes an interval after it is first asked for.
fn is_due(inner: &Inner, interval_h: u64) -> bool {
    if inner.log.wants_scrub() {
        return true;
    }
    let now_ms = inner.env.clock.now_ms();
    match Cursor::load(&*inner.index) {
        Ok(Some(Cursor { finished_ms: Some(finished_ms), .. })) => {
            now_ms.saturating_sub(finished_ms) >= interval_h.saturating_mul(HOUR_MS)
        }
        Ok(Some(_)) => true,
        Ok(None) => {
            let cursor = Cursor { started_ms: now_ms, finished_ms: Some(now_ms), ..Cursor::default() };
            if let Err(error) = cursor.store(&*inner.index) {
                tracing::warn!(%error, "when the first scrub is due could not be noted");
            }
            false
        }
        Err(_) => false,
    }
}

/// Scrubs all segments, from the first if `anew`, or from where the last scrub was cut off.
async fn scrub(inner: &Arc<Inner>, anew: bool) -> Result<ScrubReport, StoreError> {
    let waiting = anew.then(|| Waiting::begin(inner));
    let _turn = inner.scrub.turn.lock().await;
    let _running = Running::begin(inner);
    drop(waiting);
    let outcome = scrub_all(inner, anew).await;
    let mut state = inner.scrub.state.lock();
    state.error = outcome.as_ref().err().map(ToString::to_string);
    if let Ok(report) = &outcome {
        state.current = report.clone();
        state.last = Some(report.clone());
    }
    outcome
}

async fn scrub_all(inner: &Arc<Inner>, anew: bool) -> Result<ScrubReport, StoreError> {
    let started = Cursor { started_ms: inner.env.clock.now_ms(), ..Cursor::default() };
    let mut cursor = match Cursor::load(&*inner.index)? {
        Some(cursor) if !anew && cursor.finished_ms.is_none() => cursor,
        _ => started,
    };
    if cursor.after.is_none() {
        // First: what could not be noted is forgotten now, and whoever goes on must know that all is to be read.
        cursor.store(&*inner.index)?;
        inner.log.scrub_begins();
    }
    inner.scrub.state.lock().current = cursor.report(None);
    while let Some(scrubbed) = inner.log.scrub_next(cursor.after).await? {
        cursor.after = Some(scrubbed.segment);
        cursor.segments += 1;
        *cursor.open_segments.get_or_insert(0) += u64::from(scrubbed.is_open);
        cursor.bytes += scrubbed.bytes;
        cursor.bad_shards += scrubbed.bad_shards;
        cursor.bad_chunks += scrubbed.bad_chunks;
        *cursor.unread_shards.get_or_insert(0) += scrubbed.unread_shards;
        if scrubbed.bad_shards > 0 {
            // First: whoever goes on after this segment does not read it again.
            damage::note(inner);
        }
        cursor.store(&*inner.index)?;
        inner.scrub.state.lock().current = cursor.report(None);
    }
    let compared = cross_check(inner).await?;
    if !compared.is_clean() {
        tracing::error!(?compared, "index and log do not agree");
    }
    if cursor.bad_shards > 0 {
        match inner.log.repair(false).await {
            Ok(pass) => cursor.shards_repaired = pass.shards_built as u64,
            Err(error) => tracing::warn!(%error, "what the scrub found could not be repaired; it is tried again"),
        }
    }
    cursor.finished_ms = Some(inner.env.clock.now_ms());
    cursor.store(&*inner.index)?;
    Ok(cursor.report(Some(compared)))
}

/// Says that a scrub waits for its turn.
struct Waiting<'a>(&'a Inner);

impl<'a> Waiting<'a> {
    fn begin(inner: &'a Inner) -> Self {
        inner.scrub.state.lock().waiting += 1;
        Self(inner)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.scrub.state.lock().waiting -= 1;
    }
}

/// Says that the scrub ended, however it did.
struct Running<'a>(&'a Inner);

impl<'a> Running<'a> {
    fn begin(inner: &'a Inner) -> Self {
        let mut state = inner.scrub.state.lock();
        state.running = true;
        state.error = Some("it was cut off".to_owned());
        Self(inner)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut state = self.0.scrub.state.lock();
        state.running = false;
        state.ended += 1;
    }
}

/// How far the scrub is.
pub(crate) fn status(inner: &Inner, segments: usize) -> ScrubStatus {
    let (running, waiting, ended, error, mut current, mut last) = {
        let state = inner.scrub.state.lock();
        let error = state.error.clone().filter(|_| !state.running);
        (state.running, state.waiting > 0, state.ended, error, state.current.clone(), state.last.clone())
    };
    if !running && let Ok(Some(cursor)) = Cursor::load(&*inner.index) {
        current = cursor.report(None);
        // A first interval that has only begun is no scrub.
        let is_done =
            cursor.finished_ms.is_some_and(|finished_ms| finished_ms > cursor.started_ms || cursor.segments > 0);
        last = last.or_else(|| is_done.then(|| current.clone()));
    }
    ScrubStatus {
        running,
        waiting,
        ended,
        error,
        segments_done: current.segments,
        segments_total: (segments as u64).max(current.segments),
        bytes: current.bytes,
        errors_found: current.bad_shards,
        unread_shards: current.unread_shards,
        started_ms: current.started_ms,
        finished_ms: last.as_ref().and_then(|last| last.finished_ms),
        last,
    }
}

impl Store {
    /// Reads and checks everything, from the first segment on, repairs what is bad, and compares index and log. Happens by itself in an
    /// interval. If it is dropped, the scrub goes on where it was when the next one is due.
    ///
    /// # Errors
    /// `Busy` when this machine lacks descriptors or memory; `Unavailable`; those of the index.
    pub async fn scrub_now(&self) -> Result<ScrubReport, StoreError> {
        scrub(&self.inner, true).await
    }
}
