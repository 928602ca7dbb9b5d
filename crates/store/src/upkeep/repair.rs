//! When repair runs: by itself in an interval and when damage is noted, and when it is asked for.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use gabion_segment::RepairPass;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::rebalance;
use crate::{Store, StoreError, compact::note_needless, store::Inner, tasks::Told};

/// Damage is often noted by many readers at once: it is looked at together, this long after the first.
const GATHER_MS: u64 = 200;

/// Repairs what there is to repair, until the store is shut down or dropped.
pub(crate) async fn repairs(store: Weak<Inner>, wanted: Arc<Notify>, stop: CancellationToken) {
    let Some(interval_ms) = store.upgrade().map(|inner| {
        rebalance::resume(&inner);
        inner.config.repair_interval_ms
    }) else {
        return;
    };
    if interval_ms == 0 {
        return;
    }
    let mut told = Told::default();
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(Duration::from_millis(interval_ms)) => {}
            () = wanted.notified() => tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = tokio::time::sleep(Duration::from_millis(GATHER_MS)) => {}
            }
        }
        // Not the store: a long pass must not keep it from ending.
        let Some(log) = store.upgrade().map(|inner| inner.log.clone()) else { return };
        let pass = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            pass = log.repair(false) => pass,
        };
        if let (Ok(_), Some(inner)) = (&pass, store.upgrade()) {
            rebalance::settle(&inner);
            // Of what is put off a pass says nothing. While a round of compaction runs, the next one will do.
            if !inner.log.repair_put_off().is_empty()
                && let Some(no_round) = inner.compaction.try_no_round()
                && let Err(error) = note_needless(&inner, no_round).await
            {
                tracing::warn!(%error, "whether anything needs what can not be repaired is not known");
            }
        }
        match pass {
            Ok(pass) => {
                told.clear();
                if pass.shards_built > 0 {
                    tracing::info!(
                        shards = pass.shards_built,
                        bytes = pass.bytes_built,
                        blocked = pass.shards_blocked,
                        "repaired"
                    );
                }
            }
            Err(error) if told.is_new(&error) => tracing::warn!(%error, "repair stopped; it is tried again"),
            Err(_) => {}
        }
    }
}

/// Whether something could not be built, which perhaps nothing needs.
fn lacks_some(pass: &RepairPass) -> bool {
    pass.shards_failed > 0 || pass.lost_stripes > 0
}

impl Store {
    /// Repairs at once what can be repaired, without waiting for targets that may come back. Happens by itself in time.
    ///
    /// # Errors
    /// `Unavailable`; what could not be repaired is in the report.
    pub async fn repair_now(&self) -> Result<RepairPass, StoreError> {
        let mut pass = self.inner.log.repair(true).await?;
        if lacks_some(&pass) && note_needless(&self.inner, self.inner.compaction.no_round().await).await? {
            let again = self.inner.log.repair(true).await?;
            pass = RepairPass { shards_blocked: 0, shards_failed: 0, lost_stripes: 0, ..pass };
            pass.add(&again);
        }
        rebalance::settle(&self.inner);
        Ok(pass)
    }
}
