//! The targets of a store that is open: see [`gabion_segment::Log`], which does it all.

use gabion_segment::{LogTarget, TargetMode, TargetPlan};
use gabion_types::TargetId;

use crate::{Store, StoreError};

impl Store {
    /// Takes a new, empty target into the deployment; see [`gabion_segment::Log::target_add`].
    ///
    /// # Errors
    /// `InvalidRequest` with a sentence for the operator; `Unavailable`.
    pub async fn target_add(&self, target: LogTarget, mode: TargetMode) -> Result<TargetPlan, StoreError> {
        operator(self.inner.log.target_add(target, mode).await)
    }

    /// Takes a target out of use and moves its shards away; see [`gabion_segment::Log::target_drain`].
    ///
    /// # Errors
    /// As [`Store::target_add`].
    pub async fn target_drain(&self, id: TargetId, mode: TargetMode) -> Result<TargetPlan, StoreError> {
        operator(self.inner.log.target_drain(id, mode).await)
    }

    /// Takes a target that was drained back into use; see [`gabion_segment::Log::target_undrain`].
    ///
    /// # Errors
    /// As [`Store::target_add`].
    pub async fn target_undrain(&self, id: TargetId, mode: TargetMode) -> Result<TargetPlan, StoreError> {
        operator(self.inner.log.target_undrain(id, mode).await)
    }

    /// Removes a target from the deployment; see [`gabion_segment::Log::target_remove`].
    ///
    /// # Errors
    /// As [`Store::target_add`].
    pub async fn target_remove(&self, id: TargetId, lost: bool, mode: TargetMode) -> Result<TargetPlan, StoreError> {
        operator(self.inner.log.target_remove(id, lost, mode).await)
    }

    /// Takes a new, empty target into the place of another one; see [`gabion_segment::Log::target_replace`].
    ///
    /// # Errors
    /// As [`Store::target_add`].
    pub async fn target_replace(
        &self,
        old: TargetId,
        new: LogTarget,
        mode: TargetMode,
    ) -> Result<TargetPlan, StoreError> {
        operator(self.inner.log.target_replace(old, new, mode).await)
    }
}

/// What went wrong is told whole: it is the operator who asked.
fn operator<T>(outcome: Result<T, gabion_segment::LogError>) -> Result<T, StoreError> {
    outcome.map_err(|error| match error {
        gabion_segment::LogError::Invalid(why) => StoreError::InvalidRequest(why),
        error => StoreError::Unavailable(error.to_string()),
    })
}
