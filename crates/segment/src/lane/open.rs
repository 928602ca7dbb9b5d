//! Opening a segment: files on as many targets as can be had, with durable headers, before the first stripe.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::join_all;
use gabion_platform::{DiskFile, Durable, is_exhausted};
use gabion_types::{Seq, TargetId};

use super::zeros::Zeros;
use crate::config::Durability;
use crate::core::Core;
use crate::error::LogError;
use crate::format::{CHUNK_HEADER_BYTES_MAX, SEAL_BLOCK_BYTES, ShardHeader, align, shard_header_bytes};
use crate::placement::choose;
use crate::segment::{Life, Segment, ShardFile, ShardFiles};
use crate::segment_info::{LaneKind, Seal, SegmentInfo};
use crate::shard_path::{shard_dir, shard_path};
use crate::target::{Candidates, OVERDUE, is_full, is_overdue};

/// Least payload of a segment for data where targets are nearly full, in bytes: smaller ones would cost more inodes than they hold.
const PAYLOAD_BYTES_MIN: u64 = 16 << 20;
/// Least length of a shard for data, in bytes: the largest stripe of wide geometries fits.
const SHARD_BYTES_MIN: u64 = 4 << 20;
/// Length of a shard for records without data on full targets, in bytes.
const RESERVE_SHARD_BYTES: std::ops::RangeInclusive<u64> = 256 << 10..=2 << 20;
/// Part of a target's room that one segment takes at most.
const ROOM_SHARE: u64 = 8;
/// Part of the targets' reserve that compaction leaves to records without data: deletions go on when it can not.
const DATALESS_SHARE: u64 = 4;
/// Part of a shard that a small segment keeps for records without data.
const RESERVE_SHARE: u64 = 8;
/// Most of it, in bytes per shard.
const RESERVE_BYTES_MAX: u64 = 16 << 20;

/// What a segment is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Anything.
    Data,
    /// What compaction moves: it may take most of the room that data leaves, since it gives back more than it takes.
    Moved,
    /// Records without data, out of the room that data leaves.
    Reserve,
    /// A run of stripes that dies as a whole: it lies apart from everything else, and takes no more room than data.
    Apart,
}

/// A segment that a lane writes.
pub(crate) struct OpenSegment {
    pub(crate) segment: Arc<Segment>,
    pub(crate) files: Arc<ShardFiles>,
    /// Offset of the next stripe, and how many there are; the sequences and the payload so far.
    pub(crate) end: Seal,
    /// Where stripes with data end, and where all stripes end.
    data_limit: u64,
    limit: u64,
    /// What is written ahead, where a client may wait for the sync of a short stripe.
    pub(crate) zeros: Option<Zeros>,
    /// [`TargetSet::gained`] when targets were chosen for it, or last looked for.
    ///
    /// [`TargetSet::gained`]: crate::target::TargetSet::gained
    pub(crate) gained: u64,
}

impl OpenSegment {
    pub(crate) fn is_fresh(&self) -> bool {
        self.end.stripes == 0
    }

    /// Whether a stripe fits before what is kept for records without data.
    pub(crate) fn fits(&self, stored_bytes: u64) -> bool {
        self.end.end_offset + stored_bytes <= self.data_limit
    }

    /// Whether a stripe fits at all.
    pub(crate) fn fits_reserve(&self, stored_bytes: u64) -> bool {
        self.end.end_offset + stored_bytes <= self.limit
    }
}

impl Core {
    /// Opens a segment on targets that have room: as long as the settings say, but at least so long that `whole_bytes` fit, which can not be split.
    pub(crate) async fn open_segment(
        &self,
        kind: LaneKind,
        purpose: Purpose,
        whole_bytes: u64,
    ) -> Result<OpenSegment, LogError> {
        let geometry = self.config.geometry;
        let needed_bytes = self.shard_bytes_for(whole_bytes, kind, purpose);
        let least_bytes = needed_bytes.max(match purpose {
            Purpose::Data | Purpose::Moved | Purpose::Apart => self.shard_bytes_min(kind),
            Purpose::Reserve => *RESERVE_SHARD_BYTES.start(),
        });
        let left_bytes = match purpose {
            // What compaction takes on the way is not taken from writers.
            Purpose::Data => self.left_bytes(purpose).saturating_sub(self.lent_bytes()),
            Purpose::Moved | Purpose::Apart | Purpose::Reserve => self.left_bytes(purpose),
        };
        let wanted_bytes = left_bytes + least_bytes;
        // Targets that failed, and whether it was for want of space.
        let mut excluded: HashMap<usize, bool> = HashMap::new();
        // Each round ends, excludes a target, or found one that leaves since.
        loop {
            let gained = self.media.targets.gained();
            let Candidates { with_room: mut candidates, full } = self.media.targets.candidates(wanted_bytes).await;
            candidates.retain(|candidate| !excluded.contains_key(&candidate.target));
            let (id, number) = self.next_segment();
            let Some(slots) = choose(&candidates, geometry.shards(), geometry.quorum(), number) else {
                let full = full.iter().filter(|target| !excluded.contains_key(target)).count();
                let full = full + excluded.values().filter(|for_space| **for_space).count();
                return Err(if candidates.len() + full >= geometry.quorum() {
                    LogError::NoSpace
                } else {
                    LogError::TooFewTargets(format!(
                        "{} of the {} targets that a segment needs take writes",
                        candidates.len(),
                        geometry.quorum()
                    ))
                });
            };
            let chosen = |target: &usize| slots.contains(&Some(*target));
            let room =
                candidates.iter().filter(|candidate| chosen(&candidate.target)).map(|it| it.available_bytes).min();
            let shard_bytes = self.shard_bytes(room.unwrap_or(0), kind, purpose).max(needed_bytes);
            let targets =
                slots.iter().map(|slot| slot.map_or(TargetId::NONE, |target| self.media.targets.at(target).id));
            let info = SegmentInfo { id, kind, geometry, targets: targets.collect(), former: Vec::new() };
            match self.create(info, &slots, shard_bytes, purpose).await {
                Ok(open) => return Ok(OpenSegment { gained, ..open }),
                // Without descriptors no target would do any better.
                Err(failed) if failed.iter().any(|(_, error)| is_exhausted(error)) => return Err(LogError::Busy),
                Err(failed) => {
                    excluded.extend(failed.iter().map(|(target, error)| (*target, is_full(error))));
                }
            }
        }
    }

    /// Creates all shard files with durable headers; if one fails, removes the others and says which targets failed. Those do well that nothing is said of, but leave.
    async fn create(
        &self,
        info: SegmentInfo,
        slots: &[Option<usize>],
        shard_bytes: u64,
        purpose: Purpose,
    ) -> Result<OpenSegment, Vec<(usize, io::Error)>> {
        let header = ShardHeader {
            kind: info.kind,
            relaxed: self.config.durability == Durability::Relaxed,
            segment: info.id,
            deployment: self.media.targets.deployment,
            shard: 0,
            geometry: info.geometry,
            writer: self.writer,
            epoch: 0,
            created_ms: self.media.clock.now_ms(),
            planned_bytes: shard_bytes,
            targets: info.targets.clone(),
        };
        let created = join_all(slots.iter().enumerate().map(async |(shard, slot)| match slot {
            None => Ok(None),
            Some(target) => {
                let header = ShardHeader { shard: shard as u8, ..header.clone() };
                self.create_shard(*target, &header).await.map(Some).map_err(|error| (*target, error))
            }
        }))
        .await;
        let mut shards = Vec::with_capacity(slots.len());
        let mut failed = Vec::new();
        for (slot, outcome) in slots.iter().zip(created) {
            match outcome {
                Ok(file) => shards.push(file.zip(*slot).map(|(file, target)| ShardFile::new(file, target))),
                Err((target, error)) => {
                    // One that has left meanwhile did not fail, nor is it known of one that has not answered.
                    let may_be_well = is_exhausted(&error) || is_overdue(&error);
                    if !may_be_well && self.media.targets.at(target).disk().is_some() {
                        self.media.targets.failed(target, &error);
                    }
                    failed.push((target, error));
                }
            }
        }
        if !failed.is_empty() {
            drop(shards);
            crate::core::remove_files(&self.media, &info).await;
            return Err(failed);
        }
        // A target that was to be drained or removed meanwhile gets no segment: it may be about to leave, with nothing on it.
        let placing = self.media.targets.placing();
        if !slots.iter().flatten().any(|slot| self.media.targets.is_leaving(*slot)) {
            return Ok(self.opened(info, shards, shard_bytes, purpose));
        }
        drop(placing);
        drop(shards);
        crate::core::remove_files(&self.media, &info).await;
        // It is no candidate any more, but may stay after all.
        Err(Vec::new())
    }

    async fn create_shard(&self, target: usize, header: &ShardHeader) -> io::Result<Arc<dyn DiskFile>> {
        let target = self.media.targets.at(target);
        let disk = target.disk().ok_or(io::ErrorKind::NotFound)?;
        let (path, dir) = (shard_path(header.segment, header.shard), shard_dir(header.segment));
        let (planned_bytes, header) = (header.planned_bytes, Bytes::from(header.encode()));
        let late = {
            let (disk, path) = (Arc::clone(&disk), path.clone());
            // Nobody knows of it.
            async move |made: io::Result<Arc<dyn DiskFile>>| {
                drop(made);
                let _ = disk.unlink(&path).await;
            }
        };
        let create = async move {
            let file = disk.create(&path, planned_bytes).await?;
            file.write_at(0, vec![header], Durable::Yes).await?;
            disk.sync_dir(&dir).await?;
            Ok(file)
        };
        target.in_time_or(OVERDUE, create, late).await
    }

    fn opened(
        &self,
        info: SegmentInfo,
        shards: Vec<Option<ShardFile>>,
        shard_bytes: u64,
        purpose: Purpose,
    ) -> OpenSegment {
        let start = shard_header_bytes(info.geometry.shards()) as u64;
        let info = Arc::new(info);
        let files = Arc::new(ShardFiles::new(Arc::clone(&info), shards));
        let segment = Arc::new(Segment::new(Arc::clone(&info), Life::Open, (0, start)));
        self.writing.lock().insert(info.id, Arc::clone(&files));
        self.insert_segment(Arc::clone(&segment));
        self.media.metrics.segments_opened.add(1);
        for (shard, target) in info.targets.iter().enumerate() {
            if *target == TargetId::NONE {
                self.media.ask_repair(info.id, shard);
            }
        }
        let limit = shard_bytes - SEAL_BLOCK_BYTES as u64;
        let data_limit = match purpose {
            Purpose::Reserve => 0,
            _ => limit.saturating_sub(self.reserve_bytes(shard_bytes / RESERVE_SHARE, info.kind, purpose)),
        };
        let end = Seal { stripes: 0, end_offset: start, min_seq: Seq::ZERO, max_seq: Seq::ZERO, written_bytes: 0 };
        let is_waited_for = info.kind == LaneKind::Small
            && purpose == Purpose::Data
            && self.config.durability == Durability::Sync
            && self.config.prewrite_records_max > 0;
        let zeros = is_waited_for.then(|| Zeros::new(Arc::clone(&files), limit, self.config.prewrite_piece_bytes));
        OpenSegment { segment, files, end, data_limit, limit, zeros, gained: 0 }
    }

    /// What a segment keeps in each shard for records without data, in bytes, where an eighth of the shard is `share`.
    fn reserve_bytes(&self, share: u64, kind: LaneKind, purpose: Purpose) -> u64 {
        match (kind, purpose) {
            (LaneKind::Small, Purpose::Data) => self.config.reserve_bytes.unwrap_or(share.min(RESERVE_BYTES_MAX)),
            _ => 0,
        }
    }

    /// Length of a shard in which a stripe that takes `stored_bytes` fits beside the reserve.
    pub(crate) fn shard_bytes_for(&self, stored_bytes: u64, kind: LaneKind, purpose: Purpose) -> u64 {
        let fixed_bytes = shard_header_bytes(self.config.geometry.shards()) + SEAL_BLOCK_BYTES;
        let used_bytes = stored_bytes + fixed_bytes as u64;
        let share = used_bytes.div_ceil(RESERVE_SHARE - 1);
        (used_bytes + self.reserve_bytes(share, kind, purpose)).next_multiple_of(align(1) as u64)
    }

    /// What a segment leaves on each of its targets, in bytes.
    pub(crate) fn left_bytes(&self, purpose: Purpose) -> u64 {
        match purpose {
            Purpose::Data | Purpose::Apart => self.config.target_reserve_bytes,
            Purpose::Moved => self.config.target_reserve_bytes / DATALESS_SHARE,
            Purpose::Reserve => 0,
        }
    }

    pub(crate) fn shard_bytes_min(&self, kind: LaneKind) -> u64 {
        let geometry = self.config.geometry;
        let stripe_bytes = self.config.stripe_payload_bytes / geometry.data() + CHUNK_HEADER_BYTES_MAX;
        let stripe_bytes = align(stripe_bytes) + shard_header_bytes(geometry.shards()) + SEAL_BLOCK_BYTES;
        let least = (PAYLOAD_BYTES_MIN / geometry.data() as u64).max(SHARD_BYTES_MIN).max(stripe_bytes as u64);
        least.min(self.config.shard_bytes_full(kind))
    }

    /// Length of a shard where there is so much room, in bytes.
    pub(crate) fn shard_bytes(&self, room: u64, kind: LaneKind, purpose: Purpose) -> u64 {
        let shard_bytes = match purpose {
            Purpose::Data | Purpose::Moved | Purpose::Apart => {
                let share = room.saturating_sub(self.left_bytes(purpose)) / ROOM_SHARE;
                share.clamp(self.shard_bytes_min(kind), self.config.shard_bytes_full(kind))
            }
            Purpose::Reserve => (room / ROOM_SHARE).clamp(*RESERVE_SHARD_BYTES.start(), *RESERVE_SHARD_BYTES.end()),
        };
        shard_bytes / align(1) as u64 * align(1) as u64
    }
}
