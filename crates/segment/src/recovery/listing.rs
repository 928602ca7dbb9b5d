//! Which shard files lie on which targets: directory entries only, nothing is opened.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io;
use std::sync::Arc;

use futures::future::join_all;
use futures::stream::{self, StreamExt};
use gabion_platform::{DirEntry, Disk, IoFuture};
use gabion_types::{SegmentId, TargetId};

use crate::core::Core;
use crate::error::LogError;
use crate::segment_info::SegmentInfo;
use crate::shard_path::{SEGMENTS_DIR, is_set_aside, is_unfinished, parse_shard_name, shard_dir};
use crate::target::{OVERDUE, Target};

/// Directories of a target that are listed at once.
const PARALLEL_DIRS: usize = 8;

/// A shard file that is there.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found {
    pub(super) shard: u8,
    pub(super) target_id: TargetId,
    pub(super) len: u64,
}

/// All shard files of all targets that answered.
#[derive(Debug, Default)]
pub(super) struct Listing {
    pub(super) shards: BTreeMap<SegmentId, Vec<Found>>,
    /// Those of segments that count no more, see [`super::stale`].
    pub(super) stale: BTreeMap<SegmentId, Vec<Found>>,
    listed: HashSet<TargetId>,
    /// Members of the deployment that are not listed.
    absent: usize,
}

impl Listing {
    /// The shard files of a segment.
    pub(super) fn found(&self, id: SegmentId) -> &[Found] {
        self.shards.get(&id).map_or(&[], Vec::as_slice)
    }

    /// Whether what lies on a target is known.
    pub(super) fn is_listed(&self, target: TargetId) -> bool {
        self.listed.contains(&target)
    }

    /// Whether every copy that there may be of a segment's shards is listed. What left the deployment counts no more.
    pub(super) fn is_in_sight(&self, core: &Core, info: &SegmentInfo) -> bool {
        info.copies().all(|copy| self.is_listed(copy.target) || !core.media.targets.is_member(copy.target))
    }

    /// Which members of the deployment are not listed.
    pub(super) fn unlisted(&self, core: &Core) -> BTreeSet<TargetId> {
        let members = core.media.targets.members().into_iter().map(|member| member.id);
        members.filter(|id| !self.is_listed(*id)).collect()
    }

    /// How many members of the deployment are not listed.
    pub(super) fn absent(&self) -> usize {
        self.absent
    }

    /// Whether all members of the deployment are listed.
    pub(super) fn is_complete(&self) -> bool {
        self.absent == 0
    }
}

/// Lists all targets.
///
/// # Errors
/// `Targets` when more than `m` members are absent or can not be listed.
pub(super) async fn list_shards(core: &Core, warnings: &mut Vec<String>) -> Result<Listing, LogError> {
    let targets = &core.media.targets;
    let all = targets.all();
    let listed = join_all(all.iter().map(async |(_, target)| match target.disk() {
        Some(disk) => Some(list_and_tidy(target, &disk).await),
        None => None,
    }))
    .await;
    let mut listing = Listing::default();
    let mut unlisted = Vec::new();
    for ((number, target), outcome) in all.into_iter().zip(listed) {
        match outcome {
            None => {}
            Some(Ok(files)) => {
                listing.listed.insert(target.id);
                target.count_set_aside(files.set_aside);
                for (id, shard, len) in files.shards {
                    listing.shards.entry(id).or_default().push(Found { shard, target_id: target.id, len });
                }
            }
            Some(Err(error)) => {
                targets.failed(number, &error);
                warnings.push(format!("target {} can not be listed ({error}): it counts as absent", target.name));
                unlisted.push(target.name.clone());
            }
        }
    }
    let absent = targets.missing_members().len() + unlisted.len();
    if absent > core.config.geometry.parity() {
        return Err(LogError::Targets(format!(
            "{absent} targets are absent or can not be listed ({}); geometry {} can do without {} at most",
            unlisted.join(", "),
            core.config.geometry,
            core.config.geometry.parity()
        )));
    }
    listing.absent = absent;
    Ok(listing)
}

/// What lies on a target.
#[derive(Debug, Default)]
pub(crate) struct TargetFiles {
    /// The shard files: segment, shard and length.
    pub(crate) shards: Vec<(SegmentId, u8, u64)>,
    /// Paths of those that are being built.
    pub(crate) unfinished: Vec<String>,
    /// Number of those that were set aside.
    pub(crate) set_aside: usize,
}

/// Lists a target, and removes files whose building was cut off: they were no part of a segment yet.
async fn list_and_tidy(target: &Target, disk: &Arc<dyn Disk>) -> io::Result<TargetFiles> {
    let files = list_target(target, disk).await?;
    for path in &files.unfinished {
        if let Err(error) = disk.unlink(path).await {
            tracing::warn!(target_name = %target.name, %path, %error, "an unfinished shard file is left");
        }
    }
    Ok(files)
}

/// Lists a target.
async fn list_target(target: &Target, disk: &Arc<dyn Disk>) -> io::Result<TargetFiles> {
    list_by(target, |dir| disk.list(dir)).await
}

/// The same, of a target that is not waited for without end.
pub(crate) async fn list_target_in_time(target: &Arc<Target>, disk: &Arc<dyn Disk>) -> io::Result<TargetFiles> {
    list_by(target, |dir| target.timed(OVERDUE, disk.list(dir))).await
}

async fn list_by(target: &Target, list: impl Fn(&str) -> IoFuture<Vec<DirEntry>>) -> io::Result<TargetFiles> {
    let dirs = match list(SEGMENTS_DIR).await {
        Ok(dirs) => dirs,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Default::default()),
        Err(error) => return Err(error),
    };
    let mut files = TargetFiles::default();
    let mut lists = stream::iter(dirs.into_iter().filter(|dir| dir.is_dir))
        .map(async |dir| {
            let path = format!("{SEGMENTS_DIR}/{}", dir.name);
            let entries = list(&path).await;
            (path, entries)
        })
        .buffer_unordered(PARALLEL_DIRS);
    while let Some((path, entries)) = lists.next().await {
        for entry in entries? {
            match parse_shard_name(&entry.name) {
                Some((id, shard)) if !entry.is_dir && shard_dir(id) == path => {
                    files.shards.push((id, shard, entry.len));
                }
                _ if is_unfinished(&entry.name) => files.unfinished.push(format!("{path}/{}", entry.name)),
                _ if is_set_aside(&entry.name) => files.set_aside += 1,
                _ => {
                    tracing::warn!(target_name = %target.name, dir = %path, name = %entry.name, "not a shard file, left alone")
                }
            }
        }
    }
    Ok(files)
}
