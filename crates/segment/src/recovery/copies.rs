//! Which of the shard files that were found are the segment's.
//!
//! Repair may have built a shard anew elsewhere: then two files claim to be it, or the index names a target that does not have it
//! any more. A file under a shard's name is either the one that the segment was opened with, or a whole and checked copy, whose
//! header has a higher epoch; so any of them may be read, and the highest epoch is the one to keep.

use std::io;
use std::sync::atomic::Ordering;

use futures::future::join_all;
use gabion_types::limits::CHUNK_ALIGN_BYTES;
use gabion_types::{SegmentId, ShardCopy, TargetId};

use super::listing::{Found, Listing};
use crate::core::Core;
use crate::format::{ChunkHeader, FormatError, SHARD_HEADER_BYTES_MAX, SealBlock, ShardHeader};
use crate::segment_info::SegmentInfo;
use crate::shard_path::shard_path;

/// What the front of a shard file shows.
pub(super) enum Seen {
    Header(Box<ShardHeader>),
    /// No header, and no stripe after it: opening the segment was cut off here.
    Blank,
    Other,
}

/// A segment with every shard where its file is.
pub(super) struct Placed {
    pub(super) info: SegmentInfo,
    /// Length of each shard file; `None` where it is out of sight or gone.
    pub(super) files: Vec<Option<u64>>,
}

/// The header of the highest epoch.
pub(super) fn newest(headers: &[Seen]) -> Option<&ShardHeader> {
    let headers =
        headers.iter().filter_map(|seen| if let Seen::Header(header) = seen { Some(&**header) } else { None });
    // The first of several: `max_by_key` takes the last.
    headers.rev().max_by_key(|header| header.epoch)
}

/// Reads the headers of the files that were found, in their order.
pub(super) async fn read_headers(core: &Core, id: SegmentId, found: &[Found]) -> Vec<Seen> {
    join_all(found.iter().map(|found| read_header(core, id, found))).await
}

/// Whether a file lies where the segment has no shard, as far as is known: then the headers must tell.
pub(super) fn has_strays(info: &SegmentInfo, found: &[Found]) -> bool {
    found.iter().any(|found| info.targets.get(usize::from(found.shard)) != Some(&found.target_id))
}

/// Chooses a file for every shard of `base`; `headers` are those of `found`.
pub(super) fn place(core: &Core, listing: &Listing, base: &SegmentInfo, found: &[Found], headers: &[Seen]) -> Placed {
    let mut info = base.clone();
    let mut files = vec![None; base.geometry.shards()];
    let mut others: Vec<ShardCopy> = base.former.clone();
    for (shard, file) in files.iter_mut().enumerate() {
        let mut claims: Vec<(Option<u64>, bool, &Found)> = Vec::new();
        for (found, seen) in found.iter().zip(headers).filter(|(found, _)| usize::from(found.shard) == shard) {
            let is_base = base.targets[shard] == found.target_id;
            match claim(base, found, seen) {
                Some(epoch) => claims.push((Some(epoch), is_base, found)),
                None if is_base => claims.push((None, true, found)),
                None => {
                    tracing::warn!(segment = %base.id, shard, target = %found.target_id, "a shard file lies on the wrong target: ignored");
                }
            }
        }
        claims.sort_by_key(|(epoch, is_base, _)| (*epoch, *is_base));
        if let Some((_, _, best)) = claims.pop() {
            info.targets[shard] = best.target_id;
            *file = Some(best.len);
        }
        let copy = |target| ShardCopy { shard: shard as u8, target };
        others.extend(claims.iter().map(|(_, _, found)| copy(found.target_id)));
        // Targets that are away may hold what they were once named for.
        let named = headers.iter().filter_map(|seen| if let Seen::Header(header) = seen { Some(header) } else { None });
        let named = named.filter_map(|header| header.targets.get(shard)).chain([&base.targets[shard]]);
        others.extend(named.filter(|target| !listing.is_listed(**target)).map(|target| copy(*target)));
    }
    others.retain(|copy| {
        let is_there = found.iter().any(|found| found.shard == copy.shard && found.target_id == copy.target);
        copy.target != TargetId::NONE
            && info.targets.get(usize::from(copy.shard)).is_some_and(|current| *current != copy.target)
            && core.media.targets.is_member(copy.target)
            && (is_there || !listing.is_listed(copy.target))
    });
    others.sort_unstable();
    others.dedup();
    info.former = others;
    Placed { info, files }
}

/// The epoch of a file that says itself that it is this shard on this target.
fn claim(base: &SegmentInfo, found: &Found, seen: &Seen) -> Option<u64> {
    let Seen::Header(header) = seen else { return None };
    let is_here = header.targets.get(usize::from(found.shard)) == Some(&found.target_id);
    (is_here && header.geometry == base.geometry && header.kind == base.kind).then_some(header.epoch)
}

async fn read_header(core: &Core, id: SegmentId, found: &Found) -> Seen {
    let Some(disk) = core.media.targets.disk(found.target_id) else { return Seen::Other };
    let read = async {
        let file = disk.open(&shard_path(id, found.shard)).await?;
        file.read_at(0, SHARD_HEADER_BYTES_MAX + CHUNK_ALIGN_BYTES).await
    };
    let bytes = match read.await {
        Ok(bytes) => bytes,
        Err(error) => {
            if error.kind() != io::ErrorKind::NotFound {
                core.media.reads_failed.store(true, Ordering::Relaxed);
            }
            return Seen::Other;
        }
    };
    match ShardHeader::decode(&bytes) {
        Ok(header)
            if header.segment == id
                && header.shard == found.shard
                && header.deployment == core.media.targets.deployment =>
        {
            Seen::Header(Box::new(header))
        }
        // The header is durable before the first stripe is written: a torn one has none behind it.
        Err(_) if STARTS.iter().all(|&start| is_unwritten(bytes.get(start..).unwrap_or_default())) => Seen::Blank,
        _ => Seen::Other,
    }
}

/// Where the first stripe can begin: after a header block of either length.
const STARTS: [usize; 2] = [CHUNK_ALIGN_BYTES, SHARD_HEADER_BYTES_MAX];
const _: () = assert!(SHARD_HEADER_BYTES_MAX == 2 * CHUNK_ALIGN_BYTES);

/// Whether neither a chunk nor a seal begins here, not even a damaged one.
fn is_unwritten(bytes: &[u8]) -> bool {
    let no_magic = |error: &FormatError| matches!(error, FormatError::Magic | FormatError::Short);
    ChunkHeader::decode(bytes).is_err_and(|error| no_magic(&error))
        && SealBlock::decode(bytes, 0).is_err_and(|error| no_magic(&error))
}
