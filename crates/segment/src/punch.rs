//! Giving back the space of dead stripes of large objects in a sealed segment, without moving what is live beside them.
//!
//! Of each chunk the first block stays: it holds the header, by which whoever walks the segment finds the next stripe. The
//! last stripe of a segment stays whole: recovery may have to complete it on a shard that was away.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use futures::future::{join_all, try_join_all};
use gabion_platform::{DiskFile, Durable};
use gabion_types::SegmentId;
use gabion_types::limits::CHUNK_ALIGN_BYTES;

use crate::core::Core;
use crate::error::LogError;
use crate::format::{SEAL_BLOCK_BYTES, SealReason, shard_header_bytes};
use crate::media::{ChunkError, Media};
use crate::replay::any_shape;
use crate::segment::{Life, Pin, Segment};
use crate::segment_info::{LaneKind, Seal, SegmentInfo};
use crate::status::RepairEntry;
use crate::target::{OVERDUE, Target};

/// A stripe that can be punched out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeadStripe {
    /// Where its chunks lie in every shard file, in bytes.
    pub offset: u64,
    /// Where the next stripe begins.
    pub next_offset: u64,
    /// Its payload in bytes.
    pub payload_bytes: u64,
}

/// Finds the stripes of `segment` that do not begin at any of `live` and that can be punched out; nothing while anybody reads it.
pub(crate) async fn dead_stripes(
    core: &Core,
    segment: Arc<Segment>,
    live: &BTreeSet<u64>,
) -> Result<Option<Vec<DeadStripe>>, LogError> {
    let (info, end) = punchable(&segment)?;
    if !segment.pin_alone() {
        return Ok(None);
    }
    let _pin = Pin::new(vec![Arc::clone(&segment)]);
    let mut dead = Vec::new();
    let mut offset = shard_header_bytes(info.geometry.shards()) as u64;
    for stripe_index in 0..end.stripes.saturating_sub(1) {
        let shape = any_shape(&core.media, &info, offset, stripe_index).await?;
        if !live.contains(&offset) {
            dead.push(DeadStripe {
                offset,
                next_offset: shape.next_offset(),
                payload_bytes: shape.stripe_payload_bytes(),
            });
        }
        offset = shape.next_offset();
    }
    Ok(Some(dead))
}

/// Punches out `dead` stripes of `segment` and returns those that were left, because somebody has pages of them (see [`DiskFile::evict`]); nothing if a target can not do that.
///
/// [`DiskFile::evict`]: gabion_platform::DiskFile::evict
pub(crate) async fn punch(
    core: &Core,
    segment: Arc<Segment>,
    dead: &[DeadStripe],
) -> Result<Option<Vec<DeadStripe>>, LogError> {
    let (info, end) = punchable(&segment)?;
    if dead.is_empty() {
        return Ok(Some(Vec::new()));
    }
    if !segment.pin() {
        return Err(LogError::NotFound(info.id));
    }
    let _pin = Pin::new(vec![Arc::clone(&segment)]);
    let files = files(&core.media, &info).await?;
    seal(&core.media, &info, end, &files).await?;
    let mut left = Vec::new();
    for stripe in dead {
        match punch_stripe(&files, stripe).await? {
            Punched::Unsupported => return Ok(None),
            Punched::Done => {}
            Punched::Left => left.push(*stripe),
        }
    }
    Ok(Some(left))
}

/// What came of a stripe that was to be punched out.
enum Punched {
    Done,
    /// Somebody has pages that the holes would change.
    Left,
    /// A target can not.
    Unsupported,
}

/// A sealed segment of large objects with its end.
fn punchable(segment: &Segment) -> Result<(Arc<SegmentInfo>, Seal), LogError> {
    let info = segment.info();
    let Life::Sealed(end) = segment.life() else { return Err(unfit(info.id, "is not sealed")) };
    if info.kind != LaneKind::Large {
        return Err(unfit(info.id, "holds records"));
    }
    Ok((info, end))
}

fn unfit(segment: SegmentId, why: &str) -> LogError {
    LogError::Invalid(format!("no hole can be punched in segment {segment}: it {why}"))
}

/// Writes the seal to all shards that are to have holes, durably, whatever was there: what a sync that failed has left in the page cache looks like one. Where neither a seal
/// nor an index tells the end, a hole looks like it: recovery would take the stripe for torn, and cut it off with all that is behind it.
///
/// What stands there already is written once more as it is, so that no power cut can tear it. A shard without it may lack the last stripe, too, and will not look so any more: it
/// is to be repaired.
async fn seal(media: &Media, info: &SegmentInfo, end: Seal, files: &[ShardFile]) -> Result<(), LogError> {
    let writes = files.iter().map(async |ShardFile { shard, target, file }| {
        let mut block = target.in_time(OVERDUE, file.read_at(end.end_offset, SEAL_BLOCK_BYTES)).await?;
        if media.seal_in(info, &block, end.end_offset).map(|block| block.seal) != Some(end) {
            media.ask_repair(info.id, *shard);
            let entry = RepairEntry { segment: info.id, shard: *shard as u8 };
            block = media.seal_block(info, SealReason::Recovered, end, !media.repairs.is_distrusted(entry));
        }
        target.in_time(OVERDUE, file.write_at(end.end_offset, vec![block], Durable::Yes)).await
    });
    let written = try_join_all(writes).await;
    written.map_err(|error| LogError::Unavailable(format!("a seal can not be written: {error}")))?;
    Ok(())
}

/// Punches out one stripe on all shards that are there.
async fn punch_stripe(files: &[ShardFile], stripe: &DeadStripe) -> Result<Punched, LogError> {
    let start = stripe.offset + CHUNK_ALIGN_BYTES as u64;
    let len = stripe.next_offset.saturating_sub(start);
    let evict = async |of: &ShardFile| of.target.in_time(OVERDUE, of.file.evict(start, len)).await;
    let let_go = join_all(files.iter().map(evict)).await;
    // Where it is not known, somebody may have some.
    if !let_go.iter().all(|let_go| matches!(let_go, Ok(true))) {
        return Ok(Punched::Left);
    }
    let punch = async |of: &ShardFile| of.target.in_time(OVERDUE, of.file.punch(start, len)).await;
    match try_join_all(files.iter().map(punch)).await {
        Ok(_) => Ok(Punched::Done),
        Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(Punched::Unsupported),
        Err(error) => Err(LogError::Unavailable(format!("a hole can not be punched: {error}"))),
    }
}

/// A shard and its file, and the target that it lies on.
struct ShardFile {
    shard: usize,
    target: Arc<Target>,
    file: Arc<dyn DiskFile>,
}

/// The files of the shards that are there. What is not has nothing to give back; if it comes back, it only takes more room than it must.
async fn files(media: &Media, info: &SegmentInfo) -> Result<Vec<ShardFile>, LogError> {
    let files = try_join_all((0..info.geometry.shards()).map(async |shard| match media.file(info, shard).await {
        Ok(file) => {
            let target = media.targets.present(info.targets[shard]);
            Ok(target.map(|target| ShardFile { shard, target, file }))
        }
        Err(ChunkError::Absent) => Ok(None),
        Err(error) => Err(LogError::Unavailable(format!("a shard can not be opened: {error}"))),
    }));
    Ok(files.await?.into_iter().flatten().collect())
}
