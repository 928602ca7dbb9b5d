//! Background tasks: checkpoints, compaction, and the deletion of dead segments. They end when the store is shut down or dropped.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio_util::sync::CancellationToken;

use crate::{
    apply::Apply,
    compact::{self, Pace},
    free, snapshot,
    store::Inner,
};

/// Whether a failure is the one that was told last: one that lasts is told once.
#[derive(Default)]
pub(crate) struct Told(String);

impl Told {
    /// Whether `error` is another one than before; from now on it is the one that was told.
    pub(crate) fn is_new(&mut self, error: &dyn std::fmt::Display) -> bool {
        let error = error.to_string();
        let is_new = error != self.0;
        self.0 = error;
        is_new
    }

    /// It works again.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

/// Makes a checkpoint every interval, or earlier when much was written, while there is work.
pub(crate) async fn checkpoints(store: Weak<Inner>, apply: Arc<Apply>, stop: CancellationToken) {
    let Some(interval_ms) = store.upgrade().map(|inner| inner.config.checkpoint_interval_ms.max(1)) else { return };
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(Duration::from_millis(interval_ms)) => {}
            () = apply.work().checkpoint.notified() => {}
        }
        let Some(inner) = store.upgrade() else { return };
        inner.measure_index_room();
        if inner.holdback.is_on() {
            // Somebody else may have made room, or taken it.
            inner.holdback.room_changed();
        }
        if let Err(error) = inner.checkpoint().await {
            inner.metrics.checkpoint_failures.add(1);
            tracing::error!(%error, "a checkpoint of the index failed");
        }
        // A dead segment may have waited for something in flight that has ended meanwhile.
        apply.work().free.notify_one();
    }
}

/// A snapshot of the index costs at most this share of all that is written: one in so many bytes.
const SNAPSHOT_SHARE: u64 = 16;

/// Writes the index to the log when enough else was written, or it is time to; or withdraws what is there if none is wanted.
pub(crate) async fn snapshots(store: Weak<Inner>, apply: Arc<Apply>, stop: CancellationToken) {
    let Some(inner) = store.upgrade() else { return };
    let (bytes, interval_h) = (inner.config.index_snapshot_bytes, inner.config.index_snapshot_interval_h);
    if bytes == 0 {
        let withdrawn = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            withdrawn = snapshot::withdraw(&inner) => withdrawn,
        };
        if let Err(error) = withdrawn {
            tracing::warn!(%error, "the snapshot of the index in the log stays until the next start, although none is wanted");
        }
        return;
    }
    drop(inner);
    apply.work().snapshot_after(bytes);
    // The last attempt failed: nothing need change for the next one.
    let mut is_owed = false;
    let interval = if interval_h == 0 { Duration::MAX } else { Duration::from_secs(interval_h.saturating_mul(3600)) };
    loop {
        let is_timed = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = apply.work().snapshot.notified() => false,
            () = tokio::time::sleep(interval) => true,
        };
        if is_timed && !is_owed && !apply.work().changed_since_snapshot() {
            continue;
        }
        let Some(inner) = store.upgrade() else { return };
        // While it is written, and until it is known how long it is, none is due.
        apply.work().snapshot_after(u64::MAX);
        let written = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            written = snapshot::write(&inner, Pace::Background) => written,
        };
        is_owed = written.is_err() || (is_owed && matches!(written, Ok(None)));
        let next_bytes = match written {
            Ok(Some(report)) => {
                tracing::info!(rows = report.rows, bytes = report.bytes, "the index was written to the log");
                // What it stored itself was counted, too: it makes no other one due, or else one would follow the other for ever.
                report.stored_bytes.saturating_add(bytes.max(report.stored_bytes.saturating_mul(SNAPSHOT_SHARE)))
            }
            Ok(None) => {
                // There is a reason to have none now, which may last: no more than a look every so many bytes.
                apply.work().snapshot_begins();
                0
            }
            Err(snapshot::Failed { error, stored_bytes }) => {
                inner.metrics.index_snapshot_failures.add(1);
                tracing::warn!(%error, "the index could not be written to the log; it is tried again when more was written");
                // What it came to before it failed was written in vain, and may be again.
                stored_bytes.saturating_mul(SNAPSHOT_SHARE)
            }
        };
        apply.work().snapshot_after(bytes.max(next_bytes));
    }
}

/// Deletes dead segments when there may be some.
pub(crate) async fn frees(store: Weak<Inner>, apply: Arc<Apply>, stop: CancellationToken) {
    let mut told = Told::default();
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = apply.work().free.notified() => {}
        }
        let Some(inner) = store.upgrade() else { return };
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            freed = free::free_dead(&inner) => match freed {
                Ok(count) => {
                    told.clear();
                    if count > 0 {
                        tracing::debug!(count, "freed dead segments");
                    }
                }
                Err(error) if told.is_new(&error) => {
                    tracing::warn!(%error, "dead segments could not be freed; they are tried again later");
                }
                Err(_) => {}
            }
        }
    }
}

/// Lets the log forget freed segments that can not come back any more.
pub(crate) async fn forgets(store: Weak<Inner>, stop: CancellationToken) {
    let Some(interval_ms) = store.upgrade().map(|inner| inner.config.log.epoch_interval_ms.max(1)) else { return };
    let mut told = Told::default();
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(Duration::from_millis(interval_ms)) => {}
        }
        let Some(inner) = store.upgrade() else { return };
        match inner.log.forget_freed().await {
            Ok(count) => {
                told.clear();
                if count > 0 {
                    // Segments that hold little else than what was to be told of these may go now.
                    inner.frees.reconsider();
                    inner.apply.work().free.notify_one();
                }
            }
            Err(error) if told.is_new(&error) => {
                tracing::warn!(%error, "the epoch of the targets could not be moved on: freed segments are remembered longer");
            }
            Err(_) => {}
        }
    }
}

/// Looks how much room there is when that changed.
pub(crate) async fn rooms(store: Weak<Inner>, apply: Arc<Apply>, stop: CancellationToken) {
    // What the last life of the process left.
    apply.work().room.notify_one();
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = apply.work().room.notified() => {}
        }
        let Some(inner) = store.upgrade() else { return };
        inner.measure_room().await;
    }
}

/// Compacts segments when there is enough to gain.
pub(crate) async fn compactions(store: Weak<Inner>, stop: CancellationToken) {
    let Some(inner) = store.upgrade() else { return };
    let interval = Duration::from_millis(inner.config.compaction.interval_ms.max(1));
    let holdback = Arc::clone(&inner.holdback);
    drop(inner);
    let mut told = Told::default();
    let mut is_pressing = false;
    loop {
        // A round gives back what is lacking when it begins, and others write meanwhile.
        if !std::mem::take(&mut is_pressing) {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = holdback.wanted() => {}
                () = tokio::time::sleep(interval) => {}
            }
        }
        let Some(inner) = store.upgrade() else { return };
        let given_back = || inner.metrics.segments_freed.get() + inner.metrics.punched_bytes.get();
        let (was_waited_for, given_back_before) = (holdback.is_on(), given_back());
        let round = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            round = compact::round(&inner, Pace::Background) => round,
        };
        match round {
            Ok(compacted) => {
                told.clear();
                if compacted.victims > 0 {
                    tracing::info!(?compacted, "compacted segments");
                }
            }
            Err(error) => {
                inner.metrics.compaction_failures.add(1);
                if told.is_new(&error) {
                    tracing::warn!(%error, "a compaction failed; it is tried again later");
                }
            }
        }
        let gave_back = given_back() > given_back_before;
        holdback.round_ended(was_waited_for, gave_back);
        inner.measure_room().await;
        is_pressing = gave_back && inner.room(0).await.is_short;
    }
}

/// Runs `work`, which may block for a sync of the disk, without holding up other tasks where there are other threads.
pub(crate) fn blocking<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}
