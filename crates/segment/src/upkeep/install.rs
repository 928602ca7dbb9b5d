//! Giving a shard its new place: from a temporary file to the one that readers use, and away with the old one.
//!
//! | a crash after | leaves |
//! | --- | --- |
//! | creation, or any write | a file under a temporary name, which the next start removes |
//! | the rename | a whole copy beside the old one, or not: either may be read; the index names the old one, recovery finds the new one |
//! | the index knows | an old copy, which the row still names and which is removed once the new one was read to its end |

use std::io;
use std::sync::Arc;

use gabion_platform::DiskFile;
use gabion_types::{ShardCopy, TargetId};

use super::Pace;
use super::ahead::{Room, TimedFile};
use super::census::shard_file_bytes;
use super::check::ShardToCheck;
use super::rebuild::{Built, Rebuild};
use crate::core::{Core, remove_copy};
use crate::error::LogError;
use crate::media::ChunkError;
use crate::segment::{Segment, Written};
use crate::segment_info::{Seal, SegmentChange, SegmentInfo};
use crate::shard_path::{shard_dir, shard_path, unfinished_path};
use crate::status::RepairEntry;
use crate::target::OVERDUE;

/// What became of one shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Installed {
    /// It was read to its end, and nothing is wrong with it.
    WasGood,
    /// It was built anew.
    Built {
        /// Bytes that were written.
        bytes: u64,
        /// Stripes that are lost for good.
        lost_stripes: u64,
    },
}

/// Builds a shard on the target at `place`, and lets readers use it. The caller holds the segment's turn and a pin.
pub(crate) async fn install(
    core: &Core,
    segment: &Segment,
    shard: usize,
    place: usize,
    pace: &Pace,
) -> Result<Installed, LogError> {
    let seal = segment.settled_seal().ok_or(LogError::NotFound(segment.id))?;
    let info = segment.info();
    let target = core.media.targets.at(place);
    let in_place = target.id == info.targets[shard];
    let entry = RepairEntry { segment: info.id, shard: shard as u8 };
    let may_be_good = in_place && !core.media.repairs.is_distrusted(entry);
    if may_be_good {
        let checked = check_alone(core, &info, seal, shard, pace).await?;
        if checked.is_good() {
            core.media.repairs.remove_read(entry);
            return Ok(Installed::WasGood);
        }
        if checked.is_unread {
            return Err(LogError::Unavailable(format!("target {} has not answered in time", target.name)));
        }
    }
    let replaces_a_file = match core.media.file(&info, shard).await {
        Ok(_) => true,
        Err(ChunkError::Absent) => false,
        // What can not be opened now may be there all the same.
        Err(_) => core.media.targets.find(info.targets[shard]).is_some(),
    };
    // So it is where a former copy lies: what is left of that may be all that there is.
    let replaces_a_file = replaces_a_file || lies_there(core, &info, shard, target.id).await;
    let rebuild = Rebuild { core, segment, info: &info, seal, shard, target: &target, replaces_a_file, pace };
    // A name of its own: what an attempt that was given up still does can not touch the next one's file.
    let unfinished = unfinished_path(info.id, shard as u8, core.repair.next_attempt());
    let built = build_apart(&rebuild, &unfinished).await?;
    let copy = |target| ShardCopy { shard: shard as u8, target };
    if let Err(error) = give_name(&rebuild, &unfinished).await {
        if !in_place && !has_former(&info, shard, target.id) {
            // It may have got its name all the same.
            withdraw(core, segment, copy(target.id)).await?;
        }
        return Err(error);
    }
    core.media.forget_shard(info.id, shard as u8, info.targets[shard]);
    if !in_place {
        let mut moved = (*info).clone();
        moved.former.retain(|former| *former != copy(target.id));
        if info.targets[shard] != TargetId::NONE && core.media.targets.is_member(info.targets[shard]) {
            moved.former.push(copy(info.targets[shard]));
        }
        moved.targets[shard] = target.id;
        if !tell_unless_leaving(core, segment, moved, place)? {
            // It may be about to leave, with nothing on it.
            withdraw(core, segment, copy(target.id)).await?;
            return Err(LogError::Unavailable(format!("target {} is leaving", target.name)));
        }
    }
    if built.lost_stripes > 0 {
        // It has holes: what could not be read may be read another time, and a former copy may have what is missing.
        core.media.ask_repair(info.id, shard);
        return Ok(Installed::Built { bytes: built.bytes, lost_stripes: built.lost_stripes });
    }
    core.media.repairs.remove(entry);
    if !in_place
        // What was just built was read to its end: the old one is needed no more. It is as good as it is, whatever becomes of copies of others.
        && let Err(error) = remove_former(core, segment, Some(shard)).await
    {
        tracing::warn!(segment = %info.id, shard, %error, "what a shard was before it was built anew could not be removed; it is tried again");
    }
    Ok(Installed::Built { bytes: built.bytes, lost_stripes: 0 })
}

/// Whether a former copy of the shard lies on a target, or may.
async fn lies_there(core: &Core, info: &SegmentInfo, shard: usize, target: TargetId) -> bool {
    if !has_former(info, shard, target) {
        return false;
    }
    let Some(disk) = core.media.targets.disk(target) else { return true };
    let opened = core.media.targets.read_in_time(target, disk.open(&shard_path(info.id, shard as u8))).await;
    !opened.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// Whether a target is named as one with a former copy of the shard.
pub(super) fn has_former(info: &SegmentInfo, shard: usize, target: TargetId) -> bool {
    info.former.contains(&ShardCopy { shard: shard as u8, target })
}

/// Reads the shard where it lies now, and no other of its segment beside it.
async fn check_alone(
    core: &Core,
    info: &SegmentInfo,
    seal: Seal,
    shard: usize,
    pace: &Pace,
) -> Result<super::check::Checked, LogError> {
    let room = core.upkeep_memory.room(1, 0, pace).await;
    check_current(core, info, Written::whole(seal), shard, pace, &room).await
}

/// Reads the shard where it lies now.
pub(super) async fn check_current(
    core: &Core,
    info: &SegmentInfo,
    written: Written,
    shard: usize,
    pace: &Pace,
    room: &Room,
) -> Result<super::check::Checked, LogError> {
    core.media.forget_shard(info.id, shard as u8, info.targets[shard]);
    let missing = |damage: String| super::check::Checked { damage: Some(damage), ..Default::default() };
    match core.media.file(info, shard).await {
        Ok(file) => {
            let target = info.targets[shard];
            let file = TimedFile { file, target: core.media.replaceable(info, shard) };
            ShardToCheck { info, written, shard, target, file }.check(core, pace, room).await
        }
        Err(ChunkError::Exhausted(_)) => Err(LogError::Busy),
        Err(ChunkError::Overdue) => Ok(super::check::Checked { is_unread: true, ..Default::default() }),
        Err(error) => Ok(missing(error.to_string())),
    }
}

/// Builds the shard under a name that nobody reads.
async fn build_apart(rebuild: &Rebuild<'_>, unfinished: &str) -> Result<Built, LogError> {
    let disk = rebuild.disk()?;
    let late = {
        let (disk, path) = (Arc::clone(&disk), unfinished.to_owned());
        // Nobody waits for it any more.
        async move |made: io::Result<Arc<dyn DiskFile>>| {
            drop(made);
            let _ = disk.unlink(&path).await;
        }
    };
    let create = disk.create(unfinished, shard_file_bytes(rebuild.seal));
    let outcome = async {
        let created = rebuild.target.in_time_or(OVERDUE, create, late).await;
        let file = created.map_err(|error| rebuild.failed(error))?;
        rebuild.build(&file).await
    };
    let outcome = outcome.await;
    if outcome.is_err() {
        // If this fails, the next start removes it.
        let _ = rebuild.target.in_time(OVERDUE, disk.unlink(unfinished)).await;
    }
    outcome
}

/// Gives what was built its own name, durably. If that fails it may have it all the same.
async fn give_name(rebuild: &Rebuild<'_>, unfinished: &str) -> Result<(), LogError> {
    let disk = rebuild.disk()?;
    let path = shard_path(rebuild.info.id, rebuild.shard as u8);
    let rename = {
        let (disk, renamed, dir) = (Arc::clone(&disk), disk.rename(unfinished, &path), shard_dir(rebuild.info.id));
        async move {
            renamed.await?;
            disk.sync_dir(&dir).await
        }
    };
    let outcome = rebuild.target.in_time(OVERDUE, rename).await.map_err(|error| rebuild.failed(error));
    if outcome.is_err() {
        // As above.
        let _ = rebuild.target.in_time(OVERDUE, disk.unlink(unfinished)).await;
    }
    outcome
}

/// Removes a copy that readers were never told of. One that can not be removed counts as a former one: else nothing would know of it once the segment is freed, and with one
/// data shard it is a whole segment.
async fn withdraw(core: &Core, segment: &Segment, copy: ShardCopy) -> Result<(), LogError> {
    let mut info = (*segment.info()).clone();
    if remove_copy(&core.media, segment.id, copy).await || info.former.contains(&copy) {
        return Ok(());
    }
    info.former.push(copy);
    tell(core, segment, info)
}

/// Removes copies that others took the place of, where that can be done: of `verified` at once, of the others after their
/// successor was read to its end.
pub(crate) async fn remove_former(core: &Core, segment: &Segment, verified: Option<usize>) -> Result<(), LogError> {
    let info = segment.info();
    let mut left = (*info).clone();
    for copy in &info.former {
        let shard = usize::from(copy.shard);
        if core.media.targets.is_member(copy.target) && core.media.targets.find(copy.target).is_none() {
            continue;
        }
        if verified != Some(shard) {
            let Some(seal) = segment.settled_seal() else { return Ok(()) };
            let checked = check_alone(core, &info, seal, shard, &core.repair.pace).await?;
            if !checked.is_good() {
                if !checked.is_unread {
                    core.media.ask_repair(info.id, shard);
                }
                continue;
            }
        }
        if remove_copy(&core.media, info.id, *copy).await {
            left.former.retain(|former| former != copy);
        }
    }
    if left.former.len() < info.former.len() {
        tell(core, segment, left)?;
    }
    Ok(())
}

/// Tells of a shard's new place, unless that was marked as one that leaves since it was chosen.
fn tell_unless_leaving(core: &Core, segment: &Segment, info: SegmentInfo, place: usize) -> Result<bool, LogError> {
    let _placing = core.media.targets.placing();
    if core.media.targets.is_leaving(place) {
        return Ok(false);
    }
    tell(core, segment, info)?;
    Ok(true)
}

/// Tells the index where a segment's shards are, and then the readers.
fn tell(core: &Core, segment: &Segment, info: SegmentInfo) -> Result<(), LogError> {
    core.check_poison()?;
    if let Some(applier) = core.applier.get()
        && let Err(error) = applier.segment_changed(SegmentChange::Moved(info.clone()))
    {
        let why = format!("the index failed: {error}");
        core.poison(why.clone());
        return Err(LogError::Unavailable(why));
    }
    segment.set_info(Arc::new(info));
    Ok(())
}
