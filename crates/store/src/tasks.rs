//! Background tasks: checkpoints, and the deletion of dead segments. They end when the store is shut down or dropped.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio_util::sync::CancellationToken;

use crate::{apply::Apply, free, store::Inner};

/// Makes a checkpoint every interval, or earlier when much was written, while there is work.
pub(crate) async fn checkpoints(store: Weak<Inner>, apply: Arc<Apply>, stop: CancellationToken) {
    let Some(interval_ms) = store.upgrade().map(|inner| inner.config.checkpoint_interval_ms.max(1)) else { return };
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(Duration::from_millis(interval_ms)) => {}
            () = apply.work().checkpoint.notified() => {}
        }
        let Some(inner) = store.upgrade() else { return };
        inner.measure_index_room();
        if let Err(error) = inner.checkpoint().await {
            inner.metrics.checkpoint_failures.add(1);
            tracing::error!(%error, "a checkpoint of the index failed");
        }
        // A dead segment may have waited for something in flight that has ended meanwhile.
        apply.work().free.notify_one();
    }
}

/// Deletes dead segments when there may be some.
pub(crate) async fn frees(store: Weak<Inner>, apply: Arc<Apply>, stop: CancellationToken) {
    // A failure that lasts is told once.
    let mut told = String::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = apply.work().free.notified() => {}
        }
        let Some(inner) = store.upgrade() else { return };
        tokio::select! {
            () = stop.cancelled() => return,
            freed = free::free_dead(&inner) => match freed {
                Ok(count) => {
                    told.clear();
                    if count > 0 {
                        tracing::debug!(count, "freed dead segments");
                    }
                }
                Err(error) if error.to_string() == told => {}
                Err(error) => {
                    told = error.to_string();
                    tracing::warn!(%error, "dead segments could not be freed; they are tried again later");
                }
            }
        }
    }
}

/// Runs `work`, which may block for a sync of the disk, without holding up other tasks where there are other threads.
pub(crate) fn blocking<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}
