//! What lies on targets, for people: read only, without opening a log. Called by `gabion inspect`.
//!
//! Nothing here decides anything or repairs anything; what can not be read is shown as such. All structures serialise to JSON.

mod read;
mod views;

use std::collections::BTreeMap;
use std::io;

use futures::future::join_all;
use gabion_types::SegmentId;

use crate::config::LogTarget;
use crate::error::LogError;
use crate::shard_path::{SEGMENTS_DIR, parse_shard_name};
use crate::target::membership::{MEMBERSHIP_BYTES_MAX, MEMBERSHIP_FILE, Membership};
use read::{OpenShards, chunk_state, shape_at};
pub use views::{
    ChunkState, ChunkView, PieceView, RecordView, SealView, SegmentFiles, SegmentView, ShardView, StripeLine,
    StripeView, TargetView,
};

/// Shows a target: its membership, and the segments that have a shard on it.
///
/// # Errors
/// `Io` when the target does not answer; `Targets` when it has no membership that can be read.
pub async fn inspect_target(target: &LogTarget) -> Result<TargetView, LogError> {
    let missing = || LogError::Targets(format!("target {} is missing", target.name));
    let disk = target.disk.as_ref().ok_or_else(missing)?;
    let failed = |error| LogError::io(&target.name, error);
    let bytes = disk.read_file(MEMBERSHIP_FILE, MEMBERSHIP_BYTES_MAX).await.map_err(failed)?;
    let membership = Membership::decode(&bytes)
        .map_err(|why| LogError::Targets(format!("target {}: gabion.json: {why}", target.name)))?;
    let mut segments: BTreeMap<SegmentId, SegmentFiles> = BTreeMap::new();
    let mut other_files = 0;
    let dirs = match disk.list(SEGMENTS_DIR).await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        dirs => dirs.map_err(failed)?,
    };
    for dir in dirs.into_iter().filter(|dir| dir.is_dir) {
        for file in disk.list(&format!("{SEGMENTS_DIR}/{}", dir.name)).await.map_err(failed)? {
            let Some((id, shard)) = parse_shard_name(&file.name) else {
                other_files += 1;
                continue;
            };
            let segment = segments.entry(id).or_insert_with(|| SegmentFiles::new(id));
            segment.shards.push(shard);
            segment.bytes += file.len;
        }
    }
    let space = disk.space().await.map_err(failed)?;
    Ok(TargetView {
        name: target.name.clone(),
        target: membership.target.to_string(),
        deployment: membership.deployment.to_string(),
        failure_domain: membership.own().failure_domain.clone(),
        geometry: membership.geometry.to_string(),
        members: membership.members.iter().map(|member| member.id.to_string()).collect(),
        total_bytes: space.total_bytes,
        available_bytes: space.available_bytes,
        shard_bytes: segments.values().map(|segment| segment.bytes).sum(),
        other_files,
        segments: segments.into_values().collect(),
    })
}

/// Shows a segment: the headers and seals of its shards, and all its stripes with the state of each chunk's header.
///
/// # Errors
/// `NotFound` when no target has a shard of it; `Corrupt` when no shard has a valid header.
pub async fn inspect_segment(targets: &[LogTarget], segment: SegmentId) -> Result<SegmentView, LogError> {
    let shards = OpenShards::open(targets, segment).await?;
    let mut stripes = Vec::new();
    let mut offset = shards.start_offset();
    let end_offset = shards.seals().await;
    let ended = |offset: u64| end_offset.iter().flatten().any(|block| block.seal.end_offset <= offset);
    while !ended(offset) {
        let heads = join_all((0..shards.count()).map(|shard| shards.header(shard, offset))).await;
        let Some(shape) = shape_at(&heads, stripes.len() as u32) else { break };
        let states = heads.iter().map(|head| chunk_state(head, &shape));
        stripes.push(StripeLine {
            stripe_index: shape.stripe_index,
            stripe_offset: offset,
            stored_bytes: shape.stored_bytes() * shards.count() as u64,
            payload_bytes: shape.stripe_payload_bytes(),
            headers: states.collect(),
        });
        offset = shape.next_offset();
    }
    let seals = join_all((0..shards.count()).map(|shard| shards.seal(shard, offset))).await;
    Ok(shards.view(stripes, &end_offset, &seals))
}

/// Shows a stripe: every chunk with all its checksums checked, and the records.
///
/// # Errors
/// As [`inspect_segment`]; `Invalid` when the segment has no such stripe.
pub async fn inspect_stripe(
    targets: &[LogTarget],
    segment: SegmentId,
    stripe_index: u32,
) -> Result<StripeView, LogError> {
    let shards = OpenShards::open(targets, segment).await?;
    let mut offset = shards.start_offset();
    let mut index = 0;
    loop {
        let heads = join_all((0..shards.count()).map(|shard| shards.header(shard, offset))).await;
        let Some(shape) = shape_at(&heads, index) else {
            return Err(LogError::Invalid(format!("segment {segment} has {index} stripes")));
        };
        if index == stripe_index {
            return Ok(shards.stripe(&shape, &heads).await);
        }
        index += 1;
        offset = shape.next_offset();
    }
}
