//! Rebalancing: repair does it ([`gabion_segment::Log::rebalance`]); here it is remembered, so that a restart goes on with it.
//!
//! The row says no more than what the operator asked for. Losing it, as with the index, costs asking again.

use gabion_metadata::{Index, Table, Write, keys};
use gabion_segment::{TargetMode, TargetPlan};

use crate::{Store, StoreError, open::REBALANCE_ROW, store::Inner, tasks};

/// Goes on with what was asked for before the start.
pub(super) fn resume(inner: &Inner) {
    match asked(&*inner.index) {
        Ok(Some(until_percent)) if inner.log.rebalancing().is_none() => inner.log.rebalance_on(until_percent),
        Ok(_) => {}
        Err(error) => tracing::warn!(%error, "whether targets are to be rebalanced can not be read"),
    }
}

/// Forgets what was asked for, if it is done.
pub(super) fn settle(inner: &Inner) {
    let forget = || -> Result<(), StoreError> {
        if inner.log.rebalancing().is_none() && asked(&*inner.index)?.is_some() {
            inner.index.commit(&[], vec![Write::Delete(Table::System, keys::system(REBALANCE_ROW))])?;
            inner.apply.work().committed();
        }
        Ok(())
    };
    if let Err(error) = forget() {
        tracing::warn!(%error, "that the targets are rebalanced could not be noted");
    }
}

fn asked(index: &dyn Index) -> Result<Option<u8>, StoreError> {
    let row = index.get(Table::System, &keys::system(REBALANCE_ROW))?;
    Ok(row.and_then(|row| row.first().copied()))
}

impl Store {
    /// Moves shards from fuller targets to emptier ones until their fills are `until_percent` of their size apart at most; see
    /// [`gabion_segment::Log::rebalance`]. Goes on after a restart.
    ///
    /// # Errors
    /// `InvalidRequest` when that is no share; those of the index.
    pub async fn target_rebalance(&self, until_percent: u8, mode: TargetMode) -> Result<TargetPlan, StoreError> {
        if until_percent > 100 {
            return Err(StoreError::InvalidRequest(format!("{until_percent} % is no share")));
        }
        let plan = self.inner.log.rebalance(until_percent, mode).await;
        if mode == TargetMode::Apply {
            // After it has begun: a row without it is taken for one of a rebalance that is done.
            let row = Write::Put(Table::System, keys::system(REBALANCE_ROW), vec![until_percent]);
            tasks::blocking(|| self.inner.index.commit(&[], vec![row]))?;
            // The next checkpoint makes it durable.
            self.inner.apply.work().committed();
        }
        Ok(plan)
    }
}
