//! Writing a snapshot: the rows of one moment, streamed into large stripes, and then the mutation that makes them count.
//!
//! A crash before that mutation is durable leaves stripes to which nothing refers: they are dead, and the snapshot before still counts. One
//! after it leaves a whole snapshot: the stripes are durable before the mutation is written, and so is all that the rows speak of.

use std::{sync::Arc, time::Duration};

use gabion_metadata::{Walk, WalkedRow};
use gabion_segment::StripeBuffer;
use gabion_types::{Extent, SegmentId, Seq, limits::CHUNK_ALIGN_BYTES};
use tokio::time::Instant;

use super::{EXTENTS_MAX, stream::Encoder};
use crate::{
    SnapshotReport, StoreError,
    apply::{Begun, Pending, snapshot_row},
    compact::Pace,
    holds::Hold,
    in_flight::Kept,
    mutation::{IndexSnapshotMutation, Mutation},
    store::Inner,
    tasks,
};

/// Bytes of rows that are read in one turn, or few more.
const PIECE_BYTES: usize = 1 << 20;
/// A stripe has at least so many of them.
const PIECES_A_STRIPE: usize = 8;
/// In the background rows are read for one part of the time in so many: others hardly notice, where reading ten millions takes some twenty seconds of a core.
const TIME_SHARE: u32 = 4;
/// How often the last step is tried while the queues of the log are full, and how long is waited in between.
const COMMIT_ATTEMPTS: usize = 100;
const COMMIT_RETRY: Duration = Duration::from_millis(100);
/// What an extent, or a segment that is covered, takes in the mutation, at most.
const MUTATION_ENTRY_BYTES: usize = 56;
/// What a chunk takes beside its payload, at most: its header and records, and the padding of both.
const STRIPE_HEAD_BYTES_MAX: usize = 4 * CHUNK_ALIGN_BYTES;

/// It was not written.
pub(crate) struct Failed {
    pub error: StoreError,
    /// What the attempt stored in vain, on all targets.
    pub stored_bytes: u64,
}

impl From<StoreError> for Failed {
    /// Before anything was.
    fn from(error: StoreError) -> Self {
        Self { error, stored_bytes: 0 }
    }
}

/// Writes one; `None` when the index lacks what is in the log and can not be read, so that it is no place to begin from, or when it is
/// unknown what became of the last attempt.
///
/// # Errors
/// Those of the log and the index: the snapshot before still counts.
pub(crate) async fn write(inner: &Arc<Inner>, pace: Pace) -> Result<Option<SnapshotReport>, Failed> {
    let _one = inner.snapshotting.lock().await;
    if inner.apply.must_carry_all() {
        return Ok(None);
    }
    let Some(Begun { rows, covered, pending }) = inner.apply.begin_snapshot()? else { return Ok(None) };
    let mut stripes = Stripes { inner, filling: None, extents: Vec::new(), hold: inner.holds.hold() };
    let written = stripes.write_rows(rows, pace).await;
    let Stripes { extents, hold, .. } = stripes;
    let mutation_bytes = (extents.len() + covered.len()) * MUTATION_ENTRY_BYTES;
    let stripe_bytes = extents.iter().map(|extent| extent.len as usize).chain([mutation_bytes]);
    let stored_bytes = stripe_bytes.map(|bytes| stored_bytes(inner, bytes)).sum();
    let committing = Arc::clone(inner);
    let written = match written {
        Ok((rows, bytes)) => {
            // From here on it may come to count: that is not to be forgotten half-way.
            let commit = async move { commit(&committing, covered, pending, extents, rows, hold).await };
            inner.run(commit).await.map(|seq| SnapshotReport { rows, bytes, stored_bytes, seq })
        }
        Err(error) => {
            drop((pending, hold));
            Err(error)
        }
    };
    // Deletions that it knows need not be carried any more, nor those that waited for one that was not written.
    inner.frees.reconsider();
    inner.apply.work().free.notify_one();
    let report = written.map_err(|error| Failed { error, stored_bytes })?;
    inner.metrics.index_snapshots.add(1);
    inner.metrics.index_snapshot_bytes.add(report.bytes);
    Ok(Some(report))
}

/// What a stripe of so much payload takes on all targets, at most.
fn stored_bytes(inner: &Inner, payload_bytes: usize) -> u64 {
    let geometry = inner.config.log.geometry;
    let chunk_bytes = payload_bytes.div_ceil(geometry.data()) + STRIPE_HEAD_BYTES_MAX;
    (geometry.shards() * chunk_bytes) as u64
}

/// Says that there is none any more, if there is one: what it keeps is given back.
///
/// # Errors
/// Those of the log and the index: it still counts.
pub(crate) async fn withdraw(inner: &Arc<Inner>) -> Result<(), StoreError> {
    let _one = inner.snapshotting.lock().await;
    if snapshot_row(&*inner.index.snapshot())?.is_none_or(|row| row.is_withdrawn()) {
        return Ok(());
    }
    let mutation = Mutation::IndexSnapshot(IndexSnapshotMutation { rows: 0, extents: Vec::new(), covered: Vec::new() });
    let committing = Arc::clone(inner);
    inner.run(async move { committing.commit(&mutation).await }).await?;
    inner.frees.reconsider();
    inner.apply.work().free.notify_one();
    Ok(())
}

async fn commit(
    inner: &Inner,
    covered: Vec<SegmentId>,
    pending: Arc<Pending>,
    extents: Vec<Extent>,
    rows: u64,
    hold: Hold,
) -> Result<Seq, StoreError> {
    // With relaxed durability the rows speak of stripes, and lie in some, that a power cut could still take.
    inner.log.sync().await?;
    let mutation = Mutation::IndexSnapshot(IndexSnapshotMutation { rows, extents: extents.clone(), covered });
    let mut attempt = 1;
    let committed = loop {
        let kept = Kept { snapshot: Some(Arc::clone(&pending)), ..inner.keeping(&extents) };
        match inner.commit_with(&mutation, Vec::new(), 0, kept).await {
            Err(StoreError::Busy) if attempt < COMMIT_ATTEMPTS => {
                attempt += 1;
                tokio::time::sleep(COMMIT_RETRY).await;
            }
            other => break other,
        }
    };
    drop((hold, pending));
    Ok(committed?.seq)
}

/// The stripes of a snapshot that is being written, one after the other.
struct Stripes<'a> {
    inner: &'a Inner,
    filling: Option<StripeBuffer>,
    extents: Vec<Extent>,
    /// Keeps them from being freed before a row refers to them.
    hold: Hold,
}

impl Stripes<'_> {
    /// Writes all rows; returns how many there are, and their bytes.
    async fn write_rows(&mut self, mut rows: Box<dyn Walk>, pace: Pace) -> Result<(u64, u64), StoreError> {
        let (mut encoder, mut out) = Encoder::new(self.inner.log.deployment());
        let piece_bytes = PIECE_BYTES.min(self.inner.log.stripe_payload_bytes() / PIECES_A_STRIPE);
        let (mut bytes, mut is_last) = (0, false);
        while !is_last {
            // Tables that were merged meanwhile are kept until the end.
            self.inner.check_index_room_to_spare()?;
            let began = Instant::now();
            let fill = || {
                while out.len() < piece_bytes {
                    let Some(WalkedRow { table, key, row }) = rows.next()? else { return Ok(true) };
                    encoder.put(table, key, row, &mut out);
                }
                Ok::<_, StoreError>(false)
            };
            is_last = tasks::blocking(fill)?;
            if pace == Pace::Background && !is_last {
                self.inner.holdback.pause(began.elapsed() * (TIME_SHARE - 1)).await;
            }
            bytes += out.len() as u64;
            self.put(&out).await?;
            out.clear();
        }
        let rows = encoder.rows();
        let end = encoder.finish();
        self.put(&end).await?;
        self.flush(true).await?;
        Ok((rows, bytes + end.len() as u64))
    }

    async fn put(&mut self, mut bytes: &[u8]) -> Result<(), StoreError> {
        while !bytes.is_empty() {
            // Not before something comes behind it: the last one is told.
            if self.filling.as_ref().is_some_and(StripeBuffer::is_full) {
                self.flush(false).await?;
            }
            let filling = match &mut self.filling {
                Some(filling) => filling,
                empty => empty.insert(self.inner.log.own_stripe_buffer().await?),
            };
            let taken = filling.put(bytes);
            bytes = &bytes[taken..];
        }
        Ok(())
    }

    async fn flush(&mut self, is_last: bool) -> Result<(), StoreError> {
        let Some(filled) = self.filling.take() else { return Ok(()) };
        if self.extents.len() == EXTENTS_MAX {
            return Err(StoreError::Unavailable("the index is too large for a snapshot in the log".into()));
        }
        let _appending = self.inner.holds.append();
        let extent = self.inner.log.append_apart(filled, is_last).await?;
        self.hold.add(extent.segment);
        self.extents.push(extent);
        Ok(())
    }
}
