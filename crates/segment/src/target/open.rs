//! From a list of directories to one deployment: format them all, or find that they belong together.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::join_all;
use gabion_platform::Disk;
use gabion_types::{DeploymentId, TargetId};

use super::membership::{MEMBERSHIP_BYTES_MAX, MEMBERSHIP_FILE, Membership};
use super::{Target, TargetSet};
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

/// Opens the targets: formats them if all are empty, else checks that they belong together.
///
/// Returns the set, and sentences for the operator.
pub(crate) async fn open_targets(
    config: &LogConfig,
    given: Vec<LogTarget>,
    env: &Env,
) -> Result<(TargetSet, Vec<String>), LogError> {
    let found = join_all(given.iter().map(look)).await;
    let members: Vec<&Membership> = found.iter().filter_map(member).collect();
    let Some(first) = members.first() else {
        if let Some(expected) = config.expected_deployment {
            return Err(LogError::Targets(format!(
                "none of the targets belongs to deployment {expected}, which this server served before: are their file systems mounted? \
                 Nothing was formatted; to begin anew, give another state directory"
            )));
        }
        let memberships = format(config, &given, &found, env).await?;
        return Ok((assemble(config, given, memberships.into_iter().map(Some).collect(), env)?, Vec::new()));
    };
    let first = (*first).clone();
    if let Some(expected) = config.expected_deployment.filter(|expected| *expected != first.deployment) {
        return Err(LogError::Targets(format!(
            "the targets belong to deployment {}, the state directory to {expected}: give the targets of the one or the state directory of the other",
            first.deployment
        )));
    }
    check_one_deployment(&given, &found, &first)?;
    if let Some(memberships) = finish_formatting(&given, &found, &first).await? {
        return Ok((assemble(config, given, memberships.into_iter().map(Some).collect(), env)?, Vec::new()));
    }
    let mut warnings = Vec::new();
    if first.geometry != config.geometry {
        warnings.push(format!(
            "the targets were formatted for geometry {}; new segments get {}",
            first.geometry, config.geometry
        ));
    }
    let mut absent = Vec::new();
    for (target, found) in given.iter().zip(&found) {
        let why = match found {
            Found::Member(_) => continue,
            Found::Missing(why) => format!("is missing ({why})"),
            Found::Empty => "is empty".to_owned(),
            Found::Foreign => "has segments but no gabion.json".to_owned(),
            Found::Broken(why) => format!("has an unreadable gabion.json ({why})"),
        };
        if members.len() >= first.members.len() {
            return Err(LogError::Targets(format!(
                "target {} {why}, and it is no member: all {} members of deployment {} are there without it",
                target.name,
                first.members.len(),
                first.deployment
            )));
        }
        warnings.push(format!("target {} {why}: it counts as absent", target.name));
        absent.push(target.name.clone());
    }
    let missing = first.members.len() - members.len();
    if missing > config.geometry.parity() {
        let named = if absent.is_empty() { "they were not given".to_owned() } else { absent.join(", ") };
        return Err(LogError::Targets(format!(
            "{missing} of the {} targets of deployment {} are absent ({named}); geometry {} can do without {} at most",
            first.members.len(),
            first.deployment,
            config.geometry,
            config.geometry.parity()
        )));
    }
    if missing > absent.len() {
        warnings.push(format!("{} members of the deployment were not given as targets", missing - absent.len()));
    }
    let memberships = found.into_iter().map(|found| if let Found::Member(this) = found { Some(this) } else { None });
    Ok((assemble(config, given, memberships.collect(), env)?, warnings))
}

fn member(found: &Found) -> Option<&Membership> {
    if let Found::Member(membership) = found { Some(membership) } else { None }
}

async fn look(target: &LogTarget) -> Found {
    let Some(disk) = &target.disk else { return Found::Missing("no such directory".to_owned()) };
    match disk.read_file(MEMBERSHIP_FILE, MEMBERSHIP_BYTES_MAX).await {
        Ok(bytes) => match Membership::decode(&bytes) {
            Ok(membership) => Found::Member(membership),
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
    let members: Vec<TargetId> = given.iter().map(|_| TargetId::from_bytes(random(env))).collect();
    let memberships: Vec<Membership> = given
        .iter()
        .zip(&members)
        .map(|(target, &id)| Membership {
            deployment,
            target: id,
            failure_domain: target.failure_domain.clone(),
            geometry: config.geometry,
            members: members.clone(),
        })
        .collect();
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
    let mut left = first.members.iter().filter(|id| !formatted.contains(id));
    let mut memberships = Vec::with_capacity(given.len());
    for (target, found) in given.iter().zip(found) {
        if let Found::Member(membership) = found {
            memberships.push(membership.clone());
            continue;
        }
        let id = *left.next().expect("as many members are left as directories are empty");
        let membership = Membership { target: id, failure_domain: target.failure_domain.clone(), ..first.clone() };
        write(target, &membership).await?;
        memberships.push(membership);
    }
    Ok(Some(memberships))
}

async fn write(target: &LogTarget, membership: &Membership) -> Result<(), LogError> {
    let disk: &Arc<dyn Disk> = target.disk.as_ref().expect("only directories that answered are formatted");
    let bytes = Bytes::from(membership.encode());
    disk.write_file(MEMBERSHIP_FILE, bytes).await.map_err(|error| LogError::io(&target.name, error))
}

fn check_one_deployment(given: &[LogTarget], found: &[Found], first: &Membership) -> Result<(), LogError> {
    let mut seen: Vec<(&LogTarget, &Membership)> = Vec::new();
    for (target, membership) in given.iter().zip(found).filter_map(|(target, found)| Some((target, member(found)?))) {
        if membership.deployment != first.deployment {
            let (other, _) = seen[0];
            return Err(LogError::Targets(format!(
                "target {} belongs to deployment {}, but target {} to deployment {}",
                target.name, membership.deployment, other.name, first.deployment
            )));
        }
        if !first.members.contains(&membership.target) {
            return Err(LogError::Targets(format!(
                "target {} calls itself {}, which is no member of deployment {}",
                target.name, membership.target, first.deployment
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
    env: &Env,
) -> Result<TargetSet, LogError> {
    let first = memberships.iter().flatten().next().expect("a deployment has a member").clone();
    let present: HashSet<TargetId> = memberships.iter().flatten().map(|membership| membership.target).collect();
    let targets: Vec<Target> = given
        .into_iter()
        .zip(memberships)
        .map(|(given, membership)| match membership {
            Some(membership) => Target::new(given.name, membership.target, given.failure_domain, given.disk),
            None => Target::new(given.name, TargetId::NONE, given.failure_domain, None),
        })
        .collect();
    Ok(TargetSet {
        deployment: first.deployment,
        targets,
        missing_members: first.members.into_iter().filter(|id| !present.contains(id)).collect(),
        clock: Arc::clone(&env.clock),
        reprobe_ms: config.reprobe_ms,
    })
}

fn random(env: &Env) -> [u8; 16] {
    let mut bytes = [0; 16];
    env.entropy.fill(&mut bytes);
    bytes
}
