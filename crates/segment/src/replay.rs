//! The records of a segment, stripe by stripe, as they were applied when they were written.

use crate::applier::AppliedStripe;
use crate::error::LogError;

/// Streams the stripes of one segment with their records; see [`crate::Log::mutations`].
#[derive(Debug)]
pub struct MutationStream {}

impl MutationStream {
    /// The next stripe; `None` after the last.
    ///
    /// # Errors
    /// `Corrupt` when a record can not be read even with parity; `NotFound` when the segment is gone.
    pub async fn next(&mut self) -> Result<Option<AppliedStripe>, LogError> {
        Ok(None)
    }
}
