//! Where a copy of a shard lies.

use minicbor::{Decode, Encode};

use crate::TargetId;

/// A copy of a shard of a segment on a target.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Encode, Decode)]
#[cbor(array)]
pub struct ShardCopy {
    /// Which shard.
    #[n(0)]
    pub shard: u8,
    /// The target that it lies on.
    #[n(1)]
    pub target: TargetId,
}
