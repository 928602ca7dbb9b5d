//! Reading what nobody reads: every chunk of every segment, at a bounded rate, before parity is needed.
//!
//! Of a segment that is still written to, all stripes that are complete when it is its turn: they never change, and nothing waits for their being read. What is wrong with one is
//! noted, and repaired once it is sealed.
//!
//! One segment at a time, all of its shards beside each other, in the order of their ids, so that whoever asks can remember where it was. Checksums imply the code: where all chunks
//! of a stripe are what was written, so is their parity.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Bound;
use std::sync::Arc;

use futures::future::join_all;
use gabion_types::SegmentId;
use serde::{Serialize, Serializer};

use super::install::check_current;
use crate::core::Core;
use crate::error::LogError;
use crate::recovery::list_target_in_time;
use crate::segment::{Pin, Segment};
use crate::status::RepairEntry;
use crate::target::{OVERDUE, Standing, Target};

/// A segment that was read to its end, or to where it was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ScrubbedSegment {
    /// Which one.
    #[serde(serialize_with = "segment_text")]
    pub segment: SegmentId,
    /// Whether it was still written to: what comes behind what was read is for the next scrub.
    pub is_open: bool,
    /// Bytes that were read.
    pub bytes: u64,
    /// Shards with damage, or without a file, on targets that are there: they are queued for repair.
    pub bad_shards: u64,
    /// Chunks that are not what was written.
    pub bad_chunks: u64,
    /// Shards that could not be read because their targets are absent or do not answer.
    pub unread_shards: u64,
}

/// Files under shards' names that belong to nothing that is known.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Strays {
    /// Files of segments that are not there.
    pub unknown_files: u64,
    /// Files of segments that are there, on targets that have no such shard of it.
    pub misplaced_files: u64,
    /// Their bytes together.
    pub bytes: u64,
    /// The first of them, as target and path, for people.
    pub examples: Vec<String>,
    /// Targets that did not answer: what lies on them was not looked at.
    pub targets_unlisted: u64,
}

/// Examples that are named.
const EXAMPLES_MAX: usize = 10;

/// Scrubs the first segment after `after`, or the first of all; nothing when there is none.
pub(crate) async fn next(core: &Core, after: Option<SegmentId>) -> Result<Option<ScrubbedSegment>, LogError> {
    if after.is_none() {
        // Targets that failed are asked whether they work again.
        for (number, _) in core.media.targets.all() {
            core.media.targets.room(number).await;
        }
    }
    let mut after = after;
    loop {
        let Some(segment) = following(core, after) else { return Ok(None) };
        if segment.pin() {
            let _pin = Pin::new(vec![Arc::clone(&segment)]);
            if let Some(scrubbed) = scrub(core, &segment).await? {
                core.media.metrics.scrub_segments.add(1);
                return Ok(Some(scrubbed));
            }
        }
        after = Some(segment.id);
    }
}

fn following(core: &Core, after: Option<SegmentId>) -> Option<Arc<Segment>> {
    let segments = core.segments.lock();
    let later = segments.range((after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded));
    later.map(|(_, segment)| segment).find(|segment| segment.written().is_some()).cloned()
}

/// Reads all shards whose targets are there; nothing if the segment goes meanwhile.
async fn scrub(core: &Core, segment: &Segment) -> Result<Option<ScrubbedSegment>, LogError> {
    // Only what was noted before it is read is known to be no damage when it is found to be whole: all of it lies before the end.
    let noted = core.media.repairs.snapshot();
    let Some(written) = segment.written() else { return Ok(None) };
    let mut scrubbed = ScrubbedSegment {
        segment: segment.id,
        is_open: !written.is_sealed,
        bytes: 0,
        bad_shards: 0,
        bad_chunks: 0,
        unread_shards: 0,
    };
    let info = segment.info();
    let mut present = Vec::new();
    for (shard, target) in info.targets.iter().enumerate() {
        match core.media.targets.standing(*target) {
            // It is missing, and repair knows it.
            Standing::Gone => {}
            Standing::Down { .. } => scrubbed.unread_shards += 1,
            Standing::Here | Standing::Leaving => present.push(shard),
        }
    }
    let room = core.upkeep_memory.room(present.len(), 0, &core.scrub_pace).await;
    let checks = present.into_iter().map(async |shard| {
        let checked = check_current(core, &info, written, shard, &core.scrub_pace, &room).await;
        core.media.metrics.scrub_bytes.add(checked.as_ref().map_or(0, |checked| checked.bytes));
        (shard, checked)
    });
    let checks = join_all(checks).await;
    drop(room);
    if segment.written().is_none() {
        return Ok(None);
    }
    for (shard, checked) in checks {
        let target = info.targets[shard];
        let damage = match checked {
            Ok(checked) if checked.is_unread => {
                scrubbed.unread_shards += 1;
                continue;
            }
            Ok(checked) => {
                scrubbed.bytes += checked.bytes;
                scrubbed.bad_chunks += checked.bad_chunks;
                checked.damage
            }
            Err(error) if error.lacks_bytes() => Some(error.to_string()),
            Err(error) => return Err(error),
        };
        let entry = RepairEntry { segment: segment.id, shard: shard as u8 };
        if damage.is_none() && noted.contains(&entry) && segment.info().targets[shard] == target {
            core.media.repairs.remove_read(entry);
        }
        // A shard that moved meanwhile was whole when it did.
        let Some(damage) = damage.filter(|_| segment.info().targets[shard] == target) else { continue };
        if !core.media.answers(target).await {
            // It is the target that fails, not the shard: the others are not read one by one to find that out.
            if let Some(number) = core.media.targets.find(target) {
                core.media.targets.failed(number, &io::Error::other(damage));
            }
            scrubbed.unread_shards += 1;
            continue;
        }
        scrubbed.bad_shards += 1;
        core.media.metrics.scrub_bad_shards.add(1);
        tracing::warn!(segment = %segment.id, shard, %target, %damage, "scrub found damage");
        core.media.ask_repair(segment.id, shard);
    }
    Ok(Some(scrubbed))
}

/// Looks for files under shards' names that no segment of the log has.
pub(crate) async fn strays(core: &Core) -> Strays {
    let (mut found, mut targets_unlisted) = (Vec::new(), 0);
    for (_, target) in core.media.targets.all() {
        let Some(disk) = target.disk() else { continue };
        match list_target_in_time(&target, &disk).await {
            Ok(files) => found.extend(files.shards.into_iter().map(|file| (Arc::clone(&target), file))),
            Err(error) => {
                tracing::debug!(target_name = %target.name, %error, "a target can not be listed");
                targets_unlisted += 1;
            }
        }
    }
    // After the listing: what was opened meanwhile is known by now.
    let segments: BTreeMap<SegmentId, Arc<Segment>> =
        core.segments.lock().iter().map(|(id, segment)| (*id, Arc::clone(segment))).collect();
    let known: BTreeSet<SegmentId> =
        core.leftovers.lock().ids().chain(core.unreadable.lock().iter().copied()).collect();
    let mut strays = Strays { targets_unlisted, ..Strays::default() };
    for (target, (id, shard, len)) in found {
        let path = crate::shard_path::shard_path(id, shard);
        match segments.get(&id) {
            Some(segment) => {
                if segment.info().copies().any(|copy| copy.shard == shard && copy.target == target.id) {
                    continue;
                }
                if !is_there(&target, &path).await {
                    continue;
                }
                strays.misplaced_files += 1;
            }
            // Removed, or moved, since it was listed?
            None if known.contains(&id) || !is_there(&target, &path).await => continue,
            None => strays.unknown_files += 1,
        }
        strays.bytes += len;
        if strays.examples.len() < EXAMPLES_MAX {
            strays.examples.push(format!("{}/{path}", target.name));
        }
    }
    strays
}

async fn is_there(target: &Arc<Target>, path: &str) -> bool {
    match target.disk() {
        Some(disk) => target.in_time(OVERDUE, disk.open(path)).await.is_ok(),
        None => false,
    }
}

fn segment_text<S: Serializer>(id: &SegmentId, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(id)
}
