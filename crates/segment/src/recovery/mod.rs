//! What was found on the targets when the log was opened.

use std::sync::Arc;

use gabion_types::{SegmentId, Seq};

use crate::segment_info::{Seal, SegmentInfo};

/// The outcome of opening the log.
#[derive(Debug, Clone, Default)]
pub struct Recovery {
    /// Segments of which the index does not know everything, all sealed now: replay [`crate::Log::mutations`] from
    /// `applied_from` on and then note the seal. Segments that the index knew as sealed and wholly applied are not named.
    pub segments: Vec<RecoveredSegment>,
    /// Segments that can not be read or only in part.
    pub unreadable: Vec<UnreadableSegment>,
    /// Segments that a `Freed` record names, found in the log or known from the index: the index must hold no mutation of theirs back.
    /// Those not in `removed` still have files on an absent target: keep them as [`crate::KnownSegment::freed`].
    pub freed: Vec<SegmentId>,
    /// Segments of which no file is left: freed ones, and ones that were opened but never written. The index may forget them.
    pub removed: Vec<SegmentId>,
    /// The highest sequence in the log and in the known segments.
    pub max_seq: Seq,
    /// Sentences for the operator.
    pub warnings: Vec<String>,
    /// Stripes that were completed from at least `k` valid chunks.
    pub rolled_forward: u64,
    /// Segments that ended in a stripe with fewer than `k` valid chunks, which is void now.
    pub voided: u64,
}

/// A segment that recovery read.
#[derive(Debug, Clone)]
pub struct RecoveredSegment {
    /// What never changes about it.
    pub info: Arc<SegmentInfo>,
    /// Its end.
    pub seal: Seal,
    /// Index of the first stripe that the index has not applied.
    pub applied_from: u32,
    /// Whether the index knew it.
    pub known: bool,
}

/// A segment that can not be read or only in part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadableSegment {
    /// Which one.
    pub id: SegmentId,
    /// What was found.
    pub detail: String,
}
