//! Keeping what is written: finding shards that are damaged, lost or in the wrong place, building them anew, and changing the
//! targets that they lie on.
//!
//! Nothing here is in the way of readers and writers: a shard that is missing is reconstructed by whoever reads it, and a shard that
//! moves is readable at every moment. Only sealed segments are built anew and moved: they never change, so that two whole copies
//! of a shard are equal. Of those that are still written to, the scrub reads what is complete.

mod ahead;
pub(crate) mod census;
pub(crate) mod check;
pub(crate) mod destination;
pub(crate) mod install;
pub(crate) mod members;
mod output;
mod pace;
pub(crate) mod rebalance;
mod rebuild;
pub(crate) mod repair;
pub(crate) mod scrub;
mod sources;

pub(crate) use ahead::UpkeepMemory;
pub(crate) use pace::Pace;

use gabion_types::SegmentId;

/// Knows which stripes of a segment something refers to. What is dead may have been punched out, and is no damage.
pub trait Liveness: Send + Sync {
    /// Whether any byte or record of the stripe at this offset is needed.
    fn is_live(&self, segment: SegmentId, stripe_offset: u64) -> bool;
}
