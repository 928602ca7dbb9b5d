//! What can go wrong in the data plane, by what the caller does next.

use std::io;
use std::sync::Arc;

use gabion_types::SegmentId;

/// An error of the log. Cheap to clone: one failure answers every submitter of a batch.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LogError {
    /// No target has room for new data; reads and data-less records go on. Nothing was written.
    #[error("no space is left for new data")]
    NoSpace,
    /// Space ran out while it was being written. As with `Unavailable`, only the next start is sure of what became of it.
    #[error("space ran out while a stripe was written")]
    RanOutOfSpace,
    /// Every queue that could take the request is full: come again later.
    #[error("the write queues are full")]
    Busy,
    /// Too few targets take writes. Nothing was written.
    #[error("the log is unavailable: {0}")]
    TooFewTargets(String),
    /// The log can not serve this now. Whether a submitted record took effect is unknown; it did as a whole or not at all.
    #[error("the log is unavailable: {0}")]
    Unavailable(String),
    /// Bytes are lost: more chunks were read and are wrong, or are gone for good, than parity can replace.
    #[error("segment {segment} is corrupt: {detail}")]
    Corrupt {
        /// The segment.
        segment: SegmentId,
        /// What was found.
        detail: String,
    },
    /// Bytes can not be read now: too many of the targets that hold them fail or are away, and they may come back.
    #[error("segment {segment} can not be read now: {detail}")]
    Unreadable {
        /// The segment.
        segment: SegmentId,
        /// What was found.
        detail: String,
    },
    /// There is no such segment, or it is being removed: the row that named it is out of date.
    #[error("segment {0} is not there")]
    NotFound(SegmentId),
    /// The caller broke a limit or a rule of this interface.
    #[error("invalid request: {0}")]
    Invalid(String),
    /// The index has applied stripes that the targets do not hold: it must be rebuilt from the segments.
    #[error("the index is ahead of segment {segment}: rebuild it")]
    IndexAhead {
        /// The segment.
        segment: SegmentId,
    },
    /// The index says that a segment ends before the end that its shards show: it is an older copy, and what was decided since is not in it. It must
    /// be rebuilt from the segments.
    #[error("the index is an older copy: segment {segment} goes on behind the end that it says; rebuild it")]
    IndexBehind {
        /// The segment.
        segment: SegmentId,
    },
    /// The targets do not make up one usable deployment; the sentence names which and why.
    #[error("{0}")]
    Targets(String),
    /// An operation on a target failed, and the log could not go around it.
    #[error("target {target}: {source}")]
    Io {
        /// The target's name for humans.
        target: String,
        /// The cause.
        source: Arc<io::Error>,
    },
}

impl LogError {
    /// Whether it is certain that what was submitted takes no effect, not even at a later start: it was refused before anything was written.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::NoSpace | Self::Busy | Self::TooFewTargets(_) | Self::Invalid(_))
    }

    /// Whether bytes could not be had: they are lost, or their targets do not give them now.
    #[must_use]
    pub fn lacks_bytes(&self) -> bool {
        matches!(self, Self::Corrupt { .. } | Self::Unreadable { .. })
    }

    pub(crate) fn io(target: &str, source: io::Error) -> Self {
        Self::Io { target: target.to_owned(), source: Arc::new(source) }
    }

    pub(crate) fn corrupt(segment: SegmentId, detail: impl Into<String>) -> Self {
        Self::Corrupt { segment, detail: detail.into() }
    }

    pub(crate) fn unreadable(segment: SegmentId, detail: impl Into<String>) -> Self {
        Self::Unreadable { segment, detail: detail.into() }
    }
}
