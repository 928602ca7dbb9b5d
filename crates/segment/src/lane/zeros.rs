//! Zeros that are written ahead of short stripes, so that their syncs have nothing to note of the files.
//!
//! Shard files are preallocated, and the first sync of a preallocated block is a change of the file's metadata: the file system writes the inode, and commits its
//! journal if it has one. Of a short stripe that is most of what it waits for (docs/adr/0018). Where zeros were written before, a sync is a write to the drive and
//! nothing else. It doubles the bytes, so that it is done only while few records share a stripe: when few clients write.
//!
//! Recovery learns nothing new: what was preallocated and what was written ahead both read as zeros. No stripe and no seal is written where a piece is under way.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use gabion_platform::is_exhausted;
use gabion_types::limits::CHUNK_ALIGN_BYTES;
use tokio::task::JoinHandle;

use crate::core::Core;
use crate::segment::{ShardFile, ShardFiles};
use crate::target::{OVERDUE, is_full};

/// Longest chunk that counts as short, in bytes: stripes of a few records may be long all the same.
const CHUNK_BYTES_MAX: u64 = 64 << 10;

/// What was written ahead in an open segment.
pub(crate) struct Zeros {
    files: Arc<ShardFiles>,
    /// Where the segment ends at the latest.
    limit: u64,
    /// Length of a piece; short chunks must come to as much before the first one.
    piece_bytes: u64,
    /// Where the last piece ends.
    until: u64,
    /// What short chunks came to, less what others did, in bytes of a shard.
    short_bytes: u64,
    running: Option<Piece>,
    /// It brings nothing on some target, or can not be done.
    given_up: bool,
}

/// A piece that is being written.
struct Piece {
    range: Range<u64>,
    outcomes: JoinHandle<Vec<(usize, io::Result<bool>)>>,
}

impl Zeros {
    pub(crate) fn new(files: Arc<ShardFiles>, limit: u64, piece_bytes: u64) -> Self {
        Self { files, limit, piece_bytes, until: 0, short_bytes: 0, running: None, given_up: false }
    }

    /// Notes that a stripe was written whose chunks have `chunk_bytes` and end at `end`, and begins the next piece when less than one is left, and most stripes are short: few
    /// write.
    pub(crate) fn wrote(&mut self, core: &Arc<Core>, has_few_writers: bool, chunk_bytes: u64, end: u64) {
        if !has_few_writers || chunk_bytes > CHUNK_BYTES_MAX {
            self.short_bytes = self.short_bytes.saturating_sub(chunk_bytes);
            return;
        }
        // Not more than a few others take back.
        self.short_bytes = (self.short_bytes + chunk_bytes).min(2 * self.piece_bytes);
        if let Some(range) = self.next(end) {
            self.start(core, range);
        }
    }

    /// The piece to be written when the last stripe ends at `end`.
    fn next(&self, end: u64) -> Option<Range<u64>> {
        let is_due = self.short_bytes >= self.piece_bytes && self.until.saturating_sub(end) < self.piece_bytes;
        if self.running.is_some() || self.given_up || !is_due {
            return None;
        }
        // The first one lies so far ahead that stripes hardly ever have to wait for it.
        let distance = (self.piece_bytes / 4).next_multiple_of(CHUNK_ALIGN_BYTES as u64);
        let start = if self.until > end { self.until } else { end + distance };
        let range = start..(start + self.piece_bytes).min(self.limit);
        (!range.is_empty()).then_some(range)
    }

    fn start(&mut self, core: &Arc<Core>, range: Range<u64>) {
        let (offset, len) = (range.start, range.end - range.start);
        let (core, files) = (Arc::clone(core), Arc::clone(&self.files));
        let write = |(shard, file): (usize, &ShardFile)| (shard, (file.target, file.file.prewrite(offset, len)));
        let (shards, writes): (Vec<usize>, Vec<_>) = self.files.healthy().map(write).unzip();
        let outcomes = tokio::spawn(async move {
            // One that comes late finds a shard that is not trusted any more.
            let is_enough = |waited, _, left: &[usize]| waited >= OVERDUE && core.can_end_without(&files, left);
            let outcomes = core.media.targets.enough_in_time(writes, is_enough).await;
            shards.into_iter().zip(outcomes).collect()
        });
        self.running = Some(Piece { range, outcomes });
    }

    /// Waits until no piece is under way that begins before `end`.
    pub(crate) async fn keep_clear(&mut self, core: &Core, end: u64) {
        // A bug on purpose, which the simulator must find (docs/TESTING.md): nothing is ever in the way.
        let is_in_the_way = |piece: &Piece| piece.range.start < end && !cfg!(feature = "planted-zeros-over-stripes");
        let is_due = |piece: &Piece| is_in_the_way(piece) || piece.outcomes.is_finished();
        let Some(Piece { range, outcomes }) = self.running.take_if(|piece| is_due(piece)) else { return };
        // It is cut off with the runtime alone, and then nothing is written after it.
        let outcomes = outcomes.await.unwrap_or_default();
        self.given_up = outcomes.is_empty();
        for (shard, outcome) in outcomes {
            match outcome {
                Ok(true) => core.media.metrics.prewritten_bytes.add(range.end - range.start),
                Ok(false) => self.given_up = true,
                Err(error) => {
                    self.given_up = true;
                    if !is_full(&error) && !is_exhausted(&error) {
                        core.chunk_failed(&self.files, shard, &error);
                    }
                }
            }
        }
        self.until = range.end;
    }
}
