//! From a list of directories to one deployment: format them all, or find that they belong together.

use std::collections::{BTreeSet, HashSet};
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::join_all;
use gabion_platform::Disk;
use gabion_types::{DeploymentId, TargetId};

use super::membership::{MEMBERSHIP_BYTES_MAX, MEMBERSHIP_FILE, Member, Membership};
use super::{Own, Target, TargetSet};
use crate::config::{Env, LogConfig, LogTarget};
use crate::error::LogError;
use crate::shard_path::SEGMENTS_DIR;

/// What a given directory turned out to be.
enum Found {
    /// The directory is missing or does not answer.
    Missing(String),
    /// It has neither a membership nor segments.
    Empty,
    /// It has segments but no membership.
    Foreign,
    /// Its membership can not be read.
    Broken(String),
    Member(Membership),
}

/// Epoch of the list of members of a new deployment.
const FIRST_EPOCH: u64 = 1;

/// Opens the targets: formats them if all are empty, else checks that they belong together.
///
/// Returns the set, and sentences for the operator.
pub(crate) async fn open_targets(
    config: &LogConfig,
    given: Vec<LogTarget>,
    env: &Env,
) -> Result<(TargetSet, Vec<String>), LogError> {
    let found = join_all(given.iter().map(look)).await;
    let lists: Vec<&Membership> = found.iter().filter_map(member).collect();
    let Some(newest) = Membership::newest(&lists) else {
        if let Some(expected) = config.expected_deployment {
            return Err(LogError::Targets(format!(
                "none of the targets belongs to deployment {expected}, which this server served before: are their file systems mounted? \
                 Nothing was formatted; to begin anew, give another state directory"
            )));
        }
        let memberships = format(config, &given, &found, env).await?;
        let first = memberships[0].clone();
        return Ok((assemble(config, given, memberships.into_iter().map(Some).collect(), first, env), Vec::new()));
    };
    if let Some(expected) = config.expected_deployment.filter(|expected| *expected != newest.deployment) {
        return Err(LogError::Targets(format!(
            "the targets belong to deployment {}, the state directory to {expected}: give the targets of the one or the state directory of the other",
            newest.deployment
        )));
    }
    check_one_deployment(&given, &found, &newest)?;
    // What was served before was formatted to its end: an empty directory of it is a drive that is not mounted.
    if config.expected_deployment.is_none()
        && let Some(memberships) = finish_formatting(&given, &found, &newest).await?
    {
        let memberships = memberships.into_iter().map(Some).collect();
        return Ok((assemble(config, given, memberships, newest, env), Vec::new()));
    }
    let mut warnings = Vec::new();
    let (given, found) = without_strangers(given, found, &newest, &mut warnings);
    if newest.geometry != config.geometry {
        warnings.push(format!(
            "the targets were formatted for geometry {}; new segments get {}",
            newest.geometry, config.geometry
        ));
    }
    check_presence(config, &given, &found, &newest, &mut warnings)?;
    let memberships: Vec<Option<Membership>> =
        found.into_iter().map(|found| if let Found::Member(this) = found { Some(this) } else { None }).collect();
    let brought_up = bring_up(&given, memberships, &newest, &mut warnings).await;
    Ok((assemble(config, given, brought_up, newest, env), warnings))
}

/// Leaves out targets that belonged to the deployment and were removed from it, also where nothing is left of them, or nothing that can be read.
fn without_strangers(
    given: Vec<LogTarget>,
    found: Vec<Found>,
    newest: &Membership,
    warnings: &mut Vec<String>,
) -> (Vec<LogTarget>, Vec<Found>) {
    let is_stranger = |found: &Found| member(found).is_some_and(|this| newest.member(this.target).is_none());
    let is_known = |id: TargetId| found.iter().filter_map(member).any(|this| this.target == id);
    let all_there = newest.members.iter().all(|entry| is_known(entry.id));
    let mut kept = (Vec::new(), Vec::new());
    for (target, found) in given.into_iter().zip(found) {
        if is_stranger(&found) {
            warnings.push(format!(
                "target {} is no member of deployment {} any more: it is left alone, take it off the list of targets",
                target.name, newest.deployment
            ));
            continue;
        }
        let why = match &found {
            Found::Missing(why) => Some(format!("is missing ({why})")),
            Found::Broken(why) => Some(format!("has an unreadable gabion.json ({why})")),
            Found::Empty | Found::Foreign | Found::Member(_) => None,
        };
        if all_there && let Some(why) = why {
            warnings.push(format!(
                "target {} {why}, and all members of deployment {} are there without it: it is left alone, take it off the list of targets",
                target.name, newest.deployment
            ));
            continue;
        }
        kept.0.push(target);
        kept.1.push(found);
    }
    kept
}

/// Refuses to open with more members absent than parity replaces, and targets that are no members.
fn check_presence(
    config: &LogConfig,
    given: &[LogTarget],
    found: &[Found],
    newest: &Membership,
    warnings: &mut Vec<String>,
) -> Result<(), LogError> {
    let present = found.iter().filter_map(member).count();
    let mut absent = Vec::new();
    for (target, found) in given.iter().zip(found) {
        let why = match found {
            Found::Member(_) => continue,
            Found::Missing(why) => format!("is missing ({why})"),
            Found::Empty => "is empty".to_owned(),
            Found::Foreign => "has segments but no gabion.json".to_owned(),
            Found::Broken(why) => format!("has an unreadable gabion.json ({why})"),
        };
        if present >= newest.members.len() {
            return Err(LogError::Targets(format!(
                "target {} {why}, and it is no member: all {} members of deployment {} are there without it; a new one joins by gabion target add",
                target.name,
                newest.members.len(),
                newest.deployment
            )));
        }
        warnings.push(format!("target {} {why}: it counts as absent", target.name));
        absent.push(target.name.clone());
    }
    let missing = newest.members.len() - present;
    if missing > config.geometry.parity() {
        let named = if absent.is_empty() { "they were not given".to_owned() } else { absent.join(", ") };
        return Err(LogError::Targets(format!(
            "{missing} of the {} targets of deployment {} are absent ({named}); geometry {} can do without {} at most",
            newest.members.len(),
            newest.deployment,
            config.geometry,
            config.geometry.parity()
        )));
    }
    if missing > absent.len() {
        warnings.push(format!("{} members of the deployment were not given as targets", missing - absent.len()));
    }
    Ok(())
}

/// Writes the newest list of members where an older one is: what a change that was cut off, or a target that was away, left behind. Not to a stale
/// target: that it is one must be seen until it can do no harm. Returns the lists that lie there now.
async fn bring_up(
    given: &[LogTarget],
    mut memberships: Vec<Option<Membership>>,
    newest: &Membership,
    warnings: &mut Vec<String>,
) -> Vec<Option<Membership>> {
    for (target, slot) in given.iter().zip(&mut memberships) {
        let Some(found) = slot else { continue };
        if newest.epoch == 0 || found.says_what(newest) || found.is_stale(newest) {
            continue;
        }
        let membership = Membership { target: found.target, ..newest.clone() };
        match write(target, &membership).await {
            Ok(()) => *found = membership,
            Err(error) => warnings.push(format!("the newest list of members could not be written: {error}")),
        }
    }
    memberships
}

fn member(found: &Found) -> Option<&Membership> {
    if let Found::Member(membership) = found { Some(membership) } else { None }
}

async fn look(target: &LogTarget) -> Found {
    let Some(disk) = &target.disk else { return Found::Missing("no such directory".to_owned()) };
    match disk.read_file(MEMBERSHIP_FILE, MEMBERSHIP_BYTES_MAX).await {
        Ok(bytes) => match Membership::decode(&bytes) {
            Ok(membership) => {
                // A process that died may have given it its name, and not made that durable; from here on it is relied on. Where this fails,
                // the next write fails, too.
                if let Err(error) = disk.sync_dir("").await {
                    tracing::warn!(target_name = %target.name, %error, "the name of gabion.json may not be durable");
                }
                Found::Member(membership)
            }
            Err(why) => Found::Broken(why),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => match disk.list(SEGMENTS_DIR).await {
            Ok(_) => Found::Foreign,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Found::Empty,
            Err(error) => Found::Missing(error.to_string()),
        },
        Err(error) => Found::Missing(error.to_string()),
    }
}

/// Makes a new deployment of directories that are all empty.
async fn format(
    config: &LogConfig,
    given: &[LogTarget],
    found: &[Found],
    env: &Env,
) -> Result<Vec<Membership>, LogError> {
    for (target, found) in given.iter().zip(found) {
        let why = match found {
            Found::Empty | Found::Member(_) => continue,
            Found::Missing(why) => format!("is not there ({why})"),
            Found::Foreign => "has segments but no gabion.json".to_owned(),
            Found::Broken(why) => format!("has an unreadable gabion.json ({why})"),
        };
        return Err(LogError::Targets(format!("target {} {why}; nothing was formatted", target.name)));
    }
    let needed = config.geometry.shards();
    if given.len() < needed {
        return Err(LogError::Targets(format!(
            "geometry {} needs {needed} targets, {} were given",
            config.geometry,
            given.len()
        )));
    }
    let deployment = DeploymentId::from_bytes(random(env));
    let new_member = |target: &LogTarget| {
        Member::new(TargetId::from_bytes(random(env)), label(target).to_owned(), target.name.clone())
    };
    let members: Vec<Member> = given.iter().map(new_member).collect();
    let membership = |member: &Member| Membership {
        deployment,
        target: member.id,
        geometry: config.geometry,
        epoch: FIRST_EPOCH,
        members: members.clone(),
        lost: Some(BTreeSet::new()),
    };
    let memberships: Vec<Membership> = members.iter().map(membership).collect();
    for (target, membership) in given.iter().zip(&memberships) {
        write(target, membership).await?;
    }
    Ok(memberships)
}

/// A crash in the middle of [`format`] leaves some directories formatted and no segment anywhere: the rest is formatted now.
async fn finish_formatting(
    given: &[LogTarget],
    found: &[Found],
    first: &Membership,
) -> Result<Option<Vec<Membership>>, LogError> {
    if first.epoch > FIRST_EPOCH {
        return Ok(None);
    }
    let formatted: HashSet<TargetId> = found.iter().filter_map(member).map(|this| this.target).collect();
    let unformatted = found.iter().filter(|found| matches!(found, Found::Empty)).count();
    if unformatted == 0 || given.len() != first.members.len() || formatted.len() + unformatted != given.len() {
        return Ok(None);
    }
    for (target, found) in given.iter().zip(found) {
        let (Some(disk), Found::Member(_)) = (&target.disk, found) else { continue };
        match disk.list(SEGMENTS_DIR).await {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            _ => return Ok(None),
        }
    }
    let mut left = first.members.iter().filter(|member| !formatted.contains(&member.id));
    let mut memberships = Vec::with_capacity(given.len());
    for (target, found) in given.iter().zip(found) {
        if let Found::Member(membership) = found {
            memberships.push(membership.clone());
            continue;
        }
        let id = left.next().expect("as many members are left as directories are empty").id;
        let membership = Membership { target: id, ..first.clone() };
        write(target, &membership).await?;
        memberships.push(membership);
    }
    Ok(Some(memberships))
}

/// The failure domain that a target is given, or its own.
pub(super) fn label(target: &LogTarget) -> &str {
    if target.failure_domain.is_empty() { &target.name } else { &target.failure_domain }
}

/// Writes a target's membership, durably.
pub(super) async fn write(target: &LogTarget, membership: &Membership) -> Result<(), LogError> {
    let disk: &Arc<dyn Disk> = target.disk.as_ref().expect("only directories that answered are formatted");
    let bytes = Bytes::from(membership.encode());
    disk.write_file(MEMBERSHIP_FILE, bytes).await.map_err(|error| LogError::io(&target.name, error))
}

fn check_one_deployment(given: &[LogTarget], found: &[Found], first: &Membership) -> Result<(), LogError> {
    let mut seen: Vec<(&LogTarget, &Membership)> = Vec::new();
    for (target, membership) in given.iter().zip(found).filter_map(|(target, found)| Some((target, member(found)?))) {
        if membership.deployment != first.deployment {
            let is_of_first = |found: &Found| member(found).is_some_and(|this| this.deployment == first.deployment);
            let other =
                given.iter().zip(found).find(|(_, found)| is_of_first(found)).map_or("another", |it| &it.0.name);
            return Err(LogError::Targets(format!(
                "target {} belongs to deployment {}, but target {other} to deployment {}",
                target.name, membership.deployment, first.deployment
            )));
        }
        if let Some((other, _)) = seen.iter().find(|(_, other)| other.target == membership.target) {
            return Err(LogError::Targets(format!(
                "targets {} and {} are the same target {}",
                other.name, target.name, membership.target
            )));
        }
        seen.push((target, membership));
    }
    Ok(())
}

fn assemble(
    config: &LogConfig,
    given: Vec<LogTarget>,
    memberships: Vec<Option<Membership>>,
    mut newest: Membership,
    env: &Env,
) -> TargetSet {
    let now_ns = env.clock.monotonic_ns();
    let present: HashSet<TargetId> = memberships.iter().flatten().map(|membership| membership.target).collect();
    let mut targets = Vec::with_capacity(given.len());
    let silence = Arc::default();
    for (given, membership) in given.into_iter().zip(memberships) {
        let target = match membership {
            Some(membership) => {
                let is_behind = membership.is_stale(&newest);
                let own = Own { epoch: membership.epoch, is_behind, was_behind: is_behind, ..Own::default() };
                let entry = newest.members.iter_mut().find(|member| member.id == membership.target);
                let entry = entry.expect("strangers were left out");
                // The label that is given counts, and the next change of the members records it.
                if !given.failure_domain.is_empty() {
                    entry.failure_domain.clone_from(&given.failure_domain);
                } else if entry.failure_domain.is_empty() {
                    entry.failure_domain.clone_from(&given.name);
                }
                entry.name.clone_from(&given.name);
                Target::new(given.name, entry.id, entry.failure_domain.clone(), given.disk, own, now_ns, &silence)
            }
            None => {
                let is_this = |member: &&Member| member.name == given.name && !present.contains(&member.id);
                let id = newest.members.iter().find(is_this).map_or(TargetId::NONE, |member| member.id);
                let failure_domain = label(&given).to_owned();
                Target::new(given.name, id, failure_domain, None, Own::default(), now_ns, &silence)
            }
        };
        targets.push(target);
    }
    TargetSet::new(targets, silence, newest, Arc::clone(&env.clock), config)
}

pub(super) fn random(env: &Env) -> [u8; 16] {
    let mut bytes = [0; 16];
    env.entropy.fill(&mut bytes);
    bytes
}
