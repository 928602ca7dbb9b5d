//! The apply task of a lane: durable stripes go into the index in order, then their submitters are answered.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use crate::applier::{AppliedRecord, AppliedStripe, Applier};
use crate::core::Core;
use crate::error::LogError;
use crate::segment_info::SegmentChange;

/// Stripes that may wait for the index before their lane waits, too.
pub(crate) const APPLY_QUEUE_STRIPES: usize = 4;

/// Time between two looks at an index that is behind.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Answers the submitters of a stripe, given what was applied.
pub(crate) type Answer = Box<dyn FnOnce(Result<(), LogError>, Vec<AppliedRecord>) + Send>;

/// What the index is to learn.
pub(crate) enum ApplyJob {
    Stripe { stripe: AppliedStripe, answer: Answer },
    Changed(SegmentChange),
}

/// Runs until the lane and its jobs are gone.
pub(crate) async fn run_applies(core: Arc<Core>, applier: Arc<dyn Applier>, mut jobs: mpsc::Receiver<ApplyJob>) {
    while let Some(job) = jobs.recv().await {
        let start_ns = core.media.clock.monotonic_ns();
        // Nobody waits for an index that gets nothing any more.
        while applier.is_behind() && core.poisoned().is_none() {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        match job {
            ApplyJob::Stripe { stripe, answer } => {
                let outcome = apply(&core, &*applier, &stripe, start_ns);
                answer(outcome, stripe.records);
            }
            ApplyJob::Changed(change) => {
                let sealed = if let SegmentChange::Sealed { id, .. } = &change { Some(*id) } else { None };
                if core.poisoned().is_some() {
                    continue;
                }
                match applier.segment_changed(change) {
                    Ok(()) => sealed.into_iter().filter_map(|id| core.segment(id).ok()).for_each(|it| it.settle()),
                    Err(error) => core.poison(format!("the index failed: {error}")),
                }
            }
        }
    }
}

/// `start_ns`: since when the stripe waits for the index.
fn apply(core: &Core, applier: &dyn Applier, stripe: &AppliedStripe, start_ns: u64) -> Result<(), LogError> {
    // After one stripe failed, a later one of the same lane must not reach the index: its position would skip the first.
    core.check_poison()?;
    let outcome = applier.apply(stripe);
    core.media.metrics.apply_us.observe(core.elapsed_us(start_ns));
    outcome.map_err(|error| {
        core.poison(format!("the index failed: {error}"));
        LogError::Unavailable(format!("the index failed: {error}"))
    })
}
