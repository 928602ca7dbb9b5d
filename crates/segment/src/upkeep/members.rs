//! Targets that join, are drained, leave and take each other's place, while the log is open.
//!
//! A change of the list of members is one durable step ([`crate::target::TargetSet::change`]); what follows from it, moving or
//! rebuilding shards, is repair's work and has no state of its own. Every change can be asked for as a plan first.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use gabion_types::{SegmentId, TargetId};
use serde::Serialize;

use super::census::shard_file_bytes;
use crate::config::LogTarget;
use crate::core::Core;
use crate::error::LogError;
use crate::free::forget_left_behind;
use crate::placement::{Candidate, spread};
use crate::recovery::list_target_in_time;
use crate::segment::{Segment, Written};
use crate::segment_info::SegmentInfo;
use crate::shard_path::{SEGMENTS_DIR, parse_shard_name};
use crate::target::membership::{MEMBERSHIP_BYTES_MAX, MEMBERSHIP_FILE, Member, Membership};
use crate::target::{Newcomer, Standing};

/// Whether a change is made or only thought through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetMode {
    /// Nothing changes.
    DryRun,
    /// The change is made, if it can be.
    Apply,
}

/// What a change of the targets comes to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TargetPlan {
    /// What is asked for: `add`, `drain`, `undrain`, `remove`, `replace` or `rebalance`.
    pub action: String,
    /// The target that joined, or that the change is about; empty in a dry run of `add` and `replace`, and for `rebalance`.
    pub target: String,
    /// Segments of which a shard is to be moved or built anew; for `rebalance` the number of moves.
    pub segments: usize,
    /// Those of them that are still written to: they are sealed first.
    pub open_segments: usize,
    /// Bytes of those shards, as far as they are written.
    pub bytes: u64,
    /// Whether there is somewhere for all of them to go, and enough targets for new segments.
    pub fits: bool,
    /// Sentences for the operator.
    pub warnings: Vec<String>,
    /// Whether the change was made.
    pub applied: bool,
}

impl TargetPlan {
    pub(super) fn new(action: &str, target: TargetId) -> Self {
        let target = if target == TargetId::NONE { String::new() } else { target.to_string() };
        Self {
            action: action.to_owned(),
            target,
            segments: 0,
            open_segments: 0,
            bytes: 0,
            fits: true,
            warnings: Vec::new(),
            applied: false,
        }
    }

    fn refuse(&mut self, why: String) {
        self.fits = false;
        self.warnings.push(why);
    }

    /// Whether to go on; an error when the plan can not be carried out.
    fn proceed(&self, mode: TargetMode) -> Result<bool, LogError> {
        match mode {
            TargetMode::DryRun => Ok(false),
            TargetMode::Apply if self.fits => Ok(true),
            TargetMode::Apply => Err(LogError::Invalid(format!("{}. Nothing was changed", self.warnings.join(". ")))),
        }
    }
}

/// A new target joins: new segments go there, too.
pub(crate) async fn add(core: &Core, target: LogTarget, mode: TargetMode) -> Result<TargetPlan, LogError> {
    check_newcomer(core, &target).await?;
    let mut plan = TargetPlan::new("add", TargetId::NONE);
    if plan.proceed(mode)? {
        let id = new_id(core);
        let newcomer = Newcomer { target, id, replaces: TargetId::NONE };
        core.media.targets.change(|_| Ok(()), Some(newcomer), || core.holders()).await?;
        measure(core, id).await;
        plan.target = id.to_string();
        plan.applied = true;
    }
    Ok(plan)
}

/// No new segments go to a target, and its shards are moved away.
pub(crate) async fn drain(core: &Core, id: TargetId, mode: TargetMode) -> Result<TargetPlan, LogError> {
    member(core, id)?;
    let mut plan = TargetPlan::new("drain", id);
    if core.media.targets.find(id).is_none() {
        plan.refuse(
            "the target is not there: there is nothing to move from it; remove it as lost, or replace it".to_owned(),
        );
    }
    leave_enough(core, id, &mut plan);
    plan_moves(core, id, None, &mut plan).await;
    if plan.proceed(mode)? {
        core.media.targets.change(|members| set_draining(members, id, true), None, || core.holders()).await?;
        plan.applied = true;
    }
    Ok(plan)
}

/// A target that was drained stays.
pub(crate) async fn undrain(core: &Core, id: TargetId, mode: TargetMode) -> Result<TargetPlan, LogError> {
    member(core, id)?;
    let mut plan = TargetPlan::new("undrain", id);
    if plan.proceed(mode)? {
        core.media.targets.change(|members| set_draining(members, id, false), None, || core.holders()).await?;
        plan.applied = true;
    }
    Ok(plan)
}

/// A target leaves: with nothing on it, or as `lost`, when what was on it is to be built anew elsewhere.
pub(crate) async fn remove(core: &Core, id: TargetId, lost: bool, mode: TargetMode) -> Result<TargetPlan, LogError> {
    let plan = plan_removal(core, id, lost).await?;
    if !plan.proceed(mode)? {
        return Ok(plan);
    }
    // Once more when nothing can be added any more to what lies on it.
    let _removal = core.media.targets.begin_removal(id);
    let mut plan = plan_removal(core, id, lost).await?;
    plan.proceed(mode)?;
    let changed = core.media.targets.change(|members| leave(members, id), None, || core.holders()).await;
    changed.map_err(|error| match error {
        LogError::Unavailable(why) => LogError::Unavailable(format!(
            "{why}. Until another list counts the target is as one that is drained: remove it again, or undrain it to keep it"
        )),
        error => error,
    })?;
    plan.applied = true;
    forget_left_behind(core);
    forget_lost(core).await;
    Ok(plan)
}

async fn plan_removal(core: &Core, id: TargetId, lost: bool) -> Result<TargetPlan, LogError> {
    member(core, id)?;
    let mut plan = TargetPlan::new("remove", id);
    if lost {
        plan_loss(core, id, &mut plan);
        let loses = !plan.fits;
        plan_moves(core, id, None, &mut plan).await;
        if !loses && !answers(core, id) {
            // What is lost is lost, wherever it can go.
            plan.fits = true;
        }
    } else {
        let (segments, open) = (segments_on(core, id).len(), is_written(core, id));
        if segments > 0 {
            plan.refuse(format!("shards of {segments} segments lie on it: drain it first, or remove it as lost"));
        }
        if open {
            plan.refuse("a segment is being written to it: drain it first".to_owned());
        }
        keep_unplaced(core, id, &mut plan).await;
    }
    let (geometry, staying) = (core.config.geometry, staying(core, id));
    let quorum = geometry.quorum();
    if core.media.targets.members().len() <= quorum {
        plan.refuse(format!("geometry {geometry} needs {quorum} targets at least"));
    } else if staying < quorum && !lost {
        plan.refuse(format!(
            "{staying} targets would be left for new segments, geometry {geometry} needs {quorum} at least: add or undrain one first"
        ));
    } else {
        warn_of_few(core, id, &mut plan);
    }
    Ok(plan)
}

/// A new target takes the place of another one: of its shards, and of its failure domain if it has no label of its own and the other one had.
pub(crate) async fn replace(
    core: &Core,
    old: TargetId,
    mut new: LogTarget,
    mode: TargetMode,
) -> Result<TargetPlan, LogError> {
    let before = member(core, old)?;
    check_newcomer(core, &new).await?;
    // What was a domain by itself is called as its directory was: the next drive that is mounted there is none with this one.
    let is_path = before.failure_domain == before.name || before.failure_domain.starts_with('/');
    if new.failure_domain.is_empty() && !is_path {
        new.failure_domain = before.failure_domain;
    }
    let mut plan = TargetPlan::new("replace", TargetId::NONE);
    let is_there = core.media.targets.find(old).is_some();
    let room = match &new.disk {
        Some(disk) => disk.space().await.map_err(|error| LogError::io(&new.name, error))?.available_bytes,
        None => 0,
    };
    plan_moves(core, old, Some(room), &mut plan).await;
    if !is_there && !plan.fits {
        plan.fits = true;
    }
    if plan.proceed(mode)? {
        let id = new_id(core);
        let newcomer = Newcomer { target: new, id, replaces: old };
        let edit =
            |members: &mut Vec<Member>| if is_there { set_draining(members, old, true) } else { leave(members, old) };
        core.media.targets.change(edit, Some(newcomer), || core.holders()).await?;
        measure(core, id).await;
        plan.target = id.to_string();
        plan.applied = true;
        forget_left_behind(core);
        forget_lost(core).await;
    }
    Ok(plan)
}

fn member(core: &Core, id: TargetId) -> Result<Member, LogError> {
    let members = core.media.targets.members();
    let found = members.into_iter().find(|member| member.id == id);
    found.ok_or_else(|| LogError::Invalid(format!("{id} is no target of this deployment")))
}

fn set_draining(members: &mut [Member], id: TargetId, draining: bool) -> Result<(), LogError> {
    let found = members.iter_mut().find(|member| member.id == id);
    found.ok_or_else(|| LogError::Invalid(format!("{id} is no target of this deployment any more")))?.draining =
        draining;
    Ok(())
}

fn leave(members: &mut Vec<Member>, id: TargetId) -> Result<(), LogError> {
    members.retain(|member| member.id != id);
    Ok(())
}

/// Says of a target on which nothing lay at once that nothing of it is missing, so that it counts for as short as can be. Where this can not be done
/// it is done as for others, later ([`crate::free::forget_freed`]).
async fn forget_lost(core: &Core) {
    if core.media.targets.has_news_of_lost(|| core.holders())
        && let Err(error) = core.media.targets.move_on(|| core.holders()).await
    {
        tracing::warn!(%error, "a target that left counts as lost for longer than it is");
    }
}

/// Asks a target that has just joined how much room it has: until something is written nobody else does.
async fn measure(core: &Core, id: TargetId) {
    if let Some(number) = core.media.targets.find(id) {
        core.media.targets.room(number).await;
    }
}

fn new_id(core: &Core) -> TargetId {
    let mut bytes = [0; 16];
    core.entropy.fill(&mut bytes);
    TargetId::from_bytes(bytes)
}

/// A newcomer is empty, or what is left of a target that was removed.
async fn check_newcomer(core: &Core, target: &LogTarget) -> Result<(), LogError> {
    let refused = |why: String| Err(LogError::Invalid(format!("target {} {why}", target.name)));
    let Some(disk) = &target.disk else { return refused("is not there".to_owned()) };
    let failed = |error| LogError::io(&target.name, error);
    match disk.read_file(MEMBERSHIP_FILE, MEMBERSHIP_BYTES_MAX).await {
        Ok(bytes) => match Membership::decode(&bytes) {
            Ok(found) if found.deployment != core.media.targets.deployment => {
                return refused(format!("belongs to deployment {}", found.deployment));
            }
            Ok(found) if core.media.targets.is_member(found.target) => {
                return refused(format!("is target {} of this deployment already", found.target));
            }
            Ok(_) => {}
            Err(why) => return refused(format!("has an unreadable gabion.json ({why})")),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
    }
    let dirs = match disk.list(SEGMENTS_DIR).await {
        Ok(dirs) => dirs,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    for dir in dirs.into_iter().filter(|dir| dir.is_dir) {
        let files = disk.list(&format!("{SEGMENTS_DIR}/{}", dir.name)).await.map_err(failed)?;
        if files.iter().any(|file| parse_shard_name(&file.name).is_some()) {
            return refused("holds shards of segments: a new target must be empty".to_owned());
        }
    }
    Ok(())
}

/// A segment that has a shard on a target, or the former copy of one.
struct Lying {
    info: Arc<SegmentInfo>,
    /// Nothing if only a former copy lies there.
    shard: Option<usize>,
    /// Nothing if it is about to go.
    written: Option<Written>,
}

/// The segments that lie on a target.
fn segments_on(core: &Core, id: TargetId) -> Vec<Lying> {
    // In the order of their ids.
    let segments: Vec<_> = core.segments.lock().values().cloned().collect();
    let lying = |segment: Arc<Segment>| {
        let info = segment.info();
        let lies_there = info.copies().any(|copy| copy.target == id);
        let shard = info.targets.iter().position(|target| *target == id);
        lies_there.then(|| Lying { info, shard, written: segment.written() })
    };
    segments.into_iter().filter_map(lying).collect()
}

/// Refuses to let a target go that holds shards of segments that could not be read when the log was opened, or may: no drain moves them, and when others
/// come back they may be needed.
async fn keep_unplaced(core: &Core, id: TargetId, plan: &mut TargetPlan) {
    let unplaced = core.unplaced();
    if unplaced.is_empty() {
        return;
    }
    let target = core.media.targets.present(id);
    let listed = match target.and_then(|target| Some((target.disk()?, target))) {
        Some((disk, target)) => list_target_in_time(&target, &disk).await.map_err(|error| error.to_string()),
        None => Err("it is not there".to_owned()),
    };
    let held = listed.map(|files| {
        let held: BTreeSet<SegmentId> = files.shards.into_iter().map(|(segment, ..)| segment).collect();
        held.intersection(&unplaced).count()
    });
    let what = match held {
        Ok(0) => return,
        Ok(held) => {
            format!("shards of {held} segments lie on it that could not be read at the start, and that no drain moves")
        }
        Err(why) => format!(
            "{} segments could not be read at the start, and whether shards of them lie on it is not known ({why})",
            unplaced.len()
        ),
    };
    plan.refuse(format!(
        "{what}: bring back the targets that are absent or give errors, and restart; or, if those are gone for good, remove it as lost"
    ));
}

/// Whether a lane writes to a target.
fn is_written(core: &Core, id: TargetId) -> bool {
    core.writing.lock().values().any(|files| files.info.targets.contains(&id))
}

/// Members that new segments may go to without `id`.
fn staying(core: &Core, id: TargetId) -> usize {
    core.media.targets.members().iter().filter(|member| member.id != id && !member.draining).count()
}

/// New segments must still find as many targets as they have shards.
fn leave_enough(core: &Core, id: TargetId, plan: &mut TargetPlan) {
    let staying = staying(core, id);
    let needed = core.config.geometry.shards();
    if staying < needed {
        plan.refuse(format!(
            "{staying} targets would be left for new segments, geometry {} needs {needed}: add or replace one first",
            core.config.geometry
        ));
    }
}

fn warn_of_few(core: &Core, id: TargetId, plan: &mut TargetPlan) {
    let staying = staying(core, id);
    let needed = core.config.geometry.shards();
    if staying < needed {
        plan.warnings.push(format!(
            "{staying} targets are left for new segments, geometry {} wants {needed}: new segments lack a shard until one is added",
            core.config.geometry
        ));
    }
}

/// Counts what goes for good with a target that is given up.
fn plan_loss(core: &Core, id: TargetId, plan: &mut TargetPlan) {
    let targets = &core.media.targets;
    let damaged: BTreeSet<(SegmentId, usize)> =
        core.media.repairs.snapshot().into_iter().map(|entry| (entry.segment, usize::from(entry.shard))).collect();
    let (mut lost, mut lost_already) = (0, 0);
    for Lying { info, shard, .. } in segments_on(core, id) {
        if shard.is_none() {
            continue;
        }
        // What is left without it: one that failed since the start is not counted on, nor is a shard of which anything is known to be wrong.
        let is_left = |(shard, target): &(usize, &TargetId)| {
            **target != id && answers(core, **target) && !damaged.contains(&(info.id, *shard))
        };
        if info.targets.iter().enumerate().filter(is_left).count() >= info.geometry.data() {
            continue;
        }
        // What may be read again with it: all that has not left. Most of what is to be repaired was only out of reach, or has one bad chunk.
        if info.targets.iter().filter(|target| targets.is_member(**target)).count() < info.geometry.data() {
            lost_already += 1;
        } else {
            lost += 1;
        }
    }
    if lost_already > 0 {
        plan.warnings.push(format!("{lost_already} segments have too few shards with it, too"));
    }
    if lost == 0 {
        return;
    }
    let what = format!("{lost} segments have too few shards without it: what they hold is lost");
    match (targets.find(id).is_some(), answers(core, id)) {
        (true, true) => plan.refuse(what),
        (true, false) => plan.refuse(format!("{what}; if it is gone for good, restart the server without it first")),
        (false, _) => plan.warnings.push(what),
    }
}

/// Whether a target can be relied on, as far as is known: one that failed since the start can not.
fn answers(core: &Core, id: TargetId) -> bool {
    matches!(core.media.targets.standing(id), Standing::Here | Standing::Leaving)
}

/// Finds a place for every shard on a target; `newcomer` is the room on one that replaces it.
async fn plan_moves(core: &Core, id: TargetId, newcomer: Option<u64>, plan: &mut TargetPlan) {
    let targets = &core.media.targets;
    let mut rooms: BTreeMap<usize, (TargetId, Candidate)> = BTreeMap::new();
    for (number, target) in targets.all() {
        if target.id == id || targets.standing(target.id) != Standing::Here {
            continue;
        }
        if let Some(space) = targets.room(number).await {
            let available_bytes = space.available_bytes.saturating_sub(core.config.target_reserve_bytes);
            let failure_domain = target.failure_domain.clone();
            rooms.insert(number, (target.id, Candidate { target: number, failure_domain, available_bytes }));
        }
    }
    let mut newcomer = newcomer.map(|room| room.saturating_sub(core.config.target_reserve_bytes));
    let (mut homeless, mut homeless_bytes) = (0, 0);
    for Lying { info, shard, written } in segments_on(core, id) {
        let (Some(shard), Some(written)) = (shard, written) else { continue };
        let bytes = shard_file_bytes(written.end);
        plan.segments += 1;
        plan.open_segments += usize::from(!written.is_sealed);
        plan.bytes += bytes;
        if let Some(room) = newcomer.as_mut().filter(|room| **room >= bytes) {
            *room -= bytes;
            continue;
        }
        let candidates: Vec<Candidate> = rooms
            .values()
            .filter(|(holder, candidate)| !info.targets.contains(holder) && candidate.available_bytes >= bytes)
            .map(|(_, candidate)| candidate.clone())
            .collect();
        let others = info.targets.iter().enumerate().filter(|(other, _)| *other != shard);
        let domains: Vec<String> = others.filter_map(|(_, target)| targets.failure_domain(*target)).collect();
        match spread(&candidates, &domains).and_then(|number| rooms.get_mut(&number)) {
            Some((_, candidate)) => candidate.available_bytes -= bytes,
            None => {
                homeless += 1;
                homeless_bytes += bytes;
            }
        }
    }
    if homeless > 0 {
        plan.refuse(format!(
            "{homeless} of its shards ({homeless_bytes} bytes) have nowhere to go: the other targets hold a shard of the segment or have no room"
        ));
    }
}
