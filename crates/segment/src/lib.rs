//! The data plane: an erasure-coded, checksummed, append-only log of segments on many targets.
//!
//! What this crate must not know: keys, buckets, objects, the index. Mutations are opaque bytes; what becomes durable goes to an
//! [`Applier`], what lies somewhere is named by an extent.
//!
//! Invariants: no submitter is answered before its stripe is durable and applied; no byte is returned that was not checked against
//! the checksum it was written with; a segment that ends, ends there for ever. The bytes on disk are described in `docs/FORMAT.md`.
#![forbid(unsafe_code)]

mod applier;
mod cells;
mod config;
mod core;
mod degraded;
mod error;
mod format;
mod free;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub mod inspect;
mod lane;
mod layout;
mod leftovers;
mod log;
mod media;
mod metrics;
mod placement;
mod punch;
mod queue;
mod read;
mod recovery;
mod repair_queue;
mod replay;
mod room;
mod segment;
mod segment_info;
mod sequencer;
mod shard_path;
mod status;
mod stripe_buffer;
mod target;
mod together;
mod upkeep;
mod warm;

pub use applier::{
    AppliedRecord, AppliedStripe, Applier, ApplyError, Committed, Companion, NewRecord, RecordBody, RecordHome,
};
pub use config::{Durability, Env, LogConfig, LogTarget, UpkeepConfig};
pub use error::LogError;
pub use format::stored_bytes;
pub use free::Freed;
pub use lane::writer::IN_A_ROW_BYTES_MAX;
pub use layout::WHOLE_BYTES_MAX;
pub use log::Log;
pub use metrics::{Histogram, HistogramSnapshot, LogMetrics};
pub use punch::DeadStripe;
pub use recovery::{RecoveredSegment, Recovery, UnreadableSegment};
pub use replay::MutationStream;
pub use room::{Demand, Room};
pub use segment::Pin;
pub use segment_info::{KnownSegment, LaneKind, Seal, SegmentChange, SegmentInfo};
pub use status::{
    Damage, LaneStatus, LogStatus, MemoryUse, RebalanceStatus, RepairEntry, RepairStatus, TargetState, TargetStatus,
};
pub use stripe_buffer::StripeBuffer;
pub use upkeep::Liveness;
pub use upkeep::members::{TargetMode, TargetPlan};
pub use upkeep::repair::RepairPass;
pub use upkeep::scrub::{ScrubbedSegment, Strays};
