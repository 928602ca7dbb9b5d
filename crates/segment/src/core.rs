//! What the lanes, recovery, reads and the handle share.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use gabion_platform::{Buffers, Entropy};
use gabion_types::{SegmentId, Seq, ShardCopy, TargetId};
use parking_lot::Mutex;

use crate::applier::Applier;
use crate::config::{Env, LogConfig};
use crate::error::LogError;
use crate::leftovers::Leftovers;
use crate::media::Media;
use crate::segment::{Segment, ShardFiles};
use crate::segment_info::SegmentInfo;
use crate::sequencer::Sequencer;
use crate::target::lost::Holders;
use crate::target::{OVERDUE, is_overdue};
use crate::upkeep::rebalance::Rebalance;
use crate::upkeep::repair::Repair;
use crate::upkeep::{Liveness, Pace, UpkeepMemory};

/// What was out of sight when the log was opened.
pub(crate) struct Unseen {
    /// Members that were absent or could not be listed.
    pub(crate) unlisted: BTreeSet<TargetId>,
    /// Some file could not be read.
    pub(crate) any_unread: bool,
}

/// The state of one log.
pub(crate) struct Core {
    pub(crate) config: LogConfig,
    pub(crate) media: Media,
    pub(crate) sequencer: Sequencer,
    pub(crate) buffers: Buffers,
    pub(crate) segments: Mutex<BTreeMap<SegmentId, Arc<Segment>>>,
    /// The files of the segments that lanes write.
    pub(crate) writing: Mutex<BTreeMap<SegmentId, Arc<ShardFiles>>>,
    /// Freed segments that are not forgotten yet.
    pub(crate) leftovers: Mutex<Leftovers>,
    /// When the epoch of the members was last moved on, by the monotonic clock; held while it is.
    pub(crate) epoch_moved_ns: tokio::sync::Mutex<Option<u64>>,
    pub(crate) unreadable: Mutex<BTreeSet<SegmentId>>,
    /// What was out of sight when the log was opened.
    pub(crate) unseen: OnceLock<Unseen>,
    pub(crate) repair: Repair,
    pub(crate) rebalance: Rebalance,
    pub(crate) scrub_pace: Pace,
    pub(crate) upkeep_memory: UpkeepMemory,
    pub(crate) liveness: OnceLock<Arc<dyn Liveness>>,
    pub(crate) applier: OnceLock<Arc<dyn Applier>>,
    /// Random for each opening, the upper half of the ids of all segments that are opened.
    pub(crate) writer: u64,
    pub(crate) entropy: Arc<dyn Entropy>,
    /// What writers may take of the reserve of each target, in bytes, because compaction took as much of what is theirs, or is about to.
    lent_bytes: AtomicU64,
    next_segment: AtomicU64,
    poison: OnceLock<String>,
}

impl Core {
    pub(crate) fn new(config: LogConfig, media: Media, env: &Env) -> Self {
        let mut writer = [0; 8];
        env.entropy.fill(&mut writer);
        Self {
            repair: Repair::new(&config),
            rebalance: Rebalance::default(),
            scrub_pace: Pace::new(config.upkeep.scrub_bytes_per_s),
            upkeep_memory: UpkeepMemory::new(),
            liveness: OnceLock::new(),
            config,
            media,
            sequencer: Sequencer::new(Arc::clone(&env.clock)),
            buffers: Buffers::default(),
            segments: Mutex::default(),
            writing: Mutex::default(),
            leftovers: Mutex::default(),
            epoch_moved_ns: tokio::sync::Mutex::default(),
            unreadable: Mutex::default(),
            unseen: OnceLock::new(),
            applier: OnceLock::new(),
            writer: u64::from_le_bytes(writer),
            entropy: Arc::clone(&env.entropy),
            lent_bytes: AtomicU64::new(0),
            next_segment: AtomicU64::new(0),
            poison: OnceLock::new(),
        }
    }

    /// The id of the next segment, and its number.
    pub(crate) fn next_segment(&self) -> (SegmentId, u64) {
        let number = self.next_segment.fetch_add(1, Ordering::Relaxed);
        (SegmentId::new(self.writer, crate::shard_path::neighbourly(number)), number)
    }

    /// See the field.
    pub(crate) fn lent_bytes(&self) -> u64 {
        self.lent_bytes.load(Ordering::Acquire)
    }

    /// Lends writers so much of the reserve; 0: it is all there again.
    pub(crate) fn lend(&self, bytes: u64) {
        self.lent_bytes.store(bytes, Ordering::Release);
    }

    pub(crate) fn segment(&self, id: SegmentId) -> Result<Arc<Segment>, LogError> {
        if let Some(segment) = self.segments.lock().get(&id) {
            return Ok(Arc::clone(segment));
        }
        // It is not gone, it is lost: no row that names it is out of date.
        if self.unreadable.lock().contains(&id) {
            if self.media.targets.lacks_some() {
                return Err(LogError::unreadable(
                    id,
                    "too many of its shards are lost, or on targets that are not there",
                ));
            }
            return Err(LogError::corrupt(id, "too many of its shards are lost"));
        }
        Err(LogError::NotFound(id))
    }

    /// Segments that could not be read when the log was opened, so that it is not known where they lie.
    pub(crate) fn unplaced(&self) -> BTreeSet<SegmentId> {
        let unreadable = self.unreadable.lock().clone();
        let segments = self.segments.lock();
        unreadable.into_iter().filter(|id| !segments.contains_key(id)).collect()
    }

    /// The targets that segments have shards on.
    pub(crate) fn holders(&self) -> Holders {
        let segments: Vec<Arc<Segment>> = self.segments.lock().values().cloned().collect();
        // One after the other: collecting them would sort as many as there are shards to find a few targets.
        let mut named = BTreeSet::new();
        segments.iter().for_each(|segment| named.extend(&segment.info().targets));
        Holders {
            named,
            unlisted: self.unseen.get().map(|unseen| unseen.unlisted.clone()).unwrap_or_default(),
            any_unplaced: !self.unplaced().is_empty(),
            any_unread: self.unseen.get().is_some_and(|unseen| unseen.any_unread),
        }
    }

    pub(crate) fn insert_segment(&self, segment: Arc<Segment>) {
        self.segments.lock().insert(segment.id, segment);
    }

    /// Refuses all writes from now on.
    pub(crate) fn poison(&self, why: String) {
        tracing::error!(%why, "the log takes no more writes until it is opened again");
        // The first reason stays: later ones follow from it.
        let _ = self.poison.set(why);
    }

    pub(crate) fn poisoned(&self) -> Option<&str> {
        self.poison.get().map(String::as_str)
    }

    pub(crate) fn check_poison(&self) -> Result<(), LogError> {
        match self.poisoned() {
            Some(why) => Err(LogError::Unavailable(why.to_owned())),
            None => Ok(()),
        }
    }

    /// Whether something refers to a stripe; as long as nobody can tell, it is so.
    pub(crate) fn is_live(&self, segment: SegmentId, stripe_offset: u64) -> bool {
        self.liveness.get().is_none_or(|liveness| liveness.is_live(segment, stripe_offset))
    }

    /// Microseconds since `start_ns` of the monotonic clock.
    pub(crate) fn elapsed_us(&self, start_ns: u64) -> u64 {
        self.media.clock.monotonic_ns().saturating_sub(start_ns) / 1000
    }
}

/// The lower of two sequences where zero stands for none.
pub(crate) fn min_seq(a: Seq, b: Seq) -> Seq {
    match (a, b) {
        (Seq::ZERO, other) | (other, Seq::ZERO) => other,
        (a, b) => a.min(b),
    }
}

/// Removes the files of `info` from all present targets, durably; returns the copies that are left on targets of the deployment. One target that does not answer holds up nothing that
/// others can remove.
pub(crate) async fn remove_files(media: &Media, info: &SegmentInfo) -> Vec<ShardCopy> {
    let outcomes = futures::future::join_all(
        info.copies().map(async |copy| if remove_copy(media, info.id, copy).await { None } else { Some(copy) }),
    )
    .await;
    outcomes.into_iter().flatten().collect()
}

/// Removes one shard file, durably, when it is its target's turn, which has not so many to remove at once that it comes to nothing else; true if it is gone, or its target is no member
/// any more.
pub(crate) async fn remove_copy(media: &Media, segment: SegmentId, copy: ShardCopy) -> bool {
    let ShardCopy { shard, target } = copy;
    media.forget_shard(segment, shard, target);
    let _turn = media.targets.removal_turn(target).await;
    let is_gone = || !media.targets.is_member(target);
    let Some(holder) = media.targets.present(target) else { return is_gone() };
    let Some(disk) = holder.disk() else { return is_gone() };
    let remove = async move {
        disk.unlink(&crate::shard_path::shard_path(segment, shard)).await?;
        match disk.sync_dir(&crate::shard_path::shard_dir(segment)).await {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            synced => synced,
        }
    };
    match holder.in_time(OVERDUE, remove).await {
        Ok(()) => true,
        // That is told of the target.
        Err(error) if is_overdue(&error) => false,
        Err(error) => {
            tracing::warn!(%segment, shard, %error, "a shard file could not be removed, or not durably");
            false
        }
    }
}
