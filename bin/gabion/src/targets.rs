//! From paths to targets: directories made at the first start, disks opened, the deployment's geometry found.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use futures::future::BoxFuture;
use gabion_platform::{DirLock, DriverChoice, DriverOptions, open_disk};
use gabion_segment::LogTarget;
use gabion_server::admin::OpenTarget;
use gabion_types::{DeploymentId, Geometry};
use serde::Deserialize;
use serde_json::Value;

use crate::config::{Config, MEMBERSHIP_FILE, is_member};
use crate::exit::Failure;

/// The targets of a start.
#[derive(Debug)]
pub(crate) struct Targets {
    /// In the order in which they were given; without a disk where the directory is missing. Each disk holds its target's lock: no other server
    /// writes there, whatever its state directory.
    pub(crate) targets: Vec<LogTarget>,
    /// Geometry of the deployment; nothing if no target has been used yet.
    pub(crate) stored_geometry: Option<Geometry>,
    /// What was found of each.
    pub(crate) described: Vec<Described>,
    /// Whether the first target belongs to the deployment (or is about to).
    pub(crate) first_is_member: bool,
}

/// A target, for humans.
#[derive(Clone, Debug)]
pub(crate) struct Described {
    /// Its path.
    pub(crate) name: String,
    /// Its file system and driver, or why it is absent.
    how: String,
}

impl fmt::Display for Described {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.how)
    }
}

/// What this program needs to know of a target's `gabion.json`; the log checks the rest.
#[derive(Deserialize)]
struct Membership {
    target: String,
    geometry: String,
    /// Grows with every change of the members.
    #[serde(default)]
    epoch: u64,
    /// Their ids; since version 2 of the file with their paths.
    members: Vec<Value>,
}

impl Membership {
    /// Ids and paths of the members that know theirs from the root on: another path may mean another place at each start.
    fn places(&self) -> impl Iterator<Item = (&str, &Path)> {
        self.members.iter().filter_map(|member| {
            let (id, path) = (member.get("id")?.as_str()?, Path::new(member.get("name")?.as_str()?));
            path.is_absolute().then_some((id, path))
        })
    }
}

const LOCK_FILE: &str = "gabion.lock";
const MEMBERSHIP_BYTES_MAX: u64 = 1 << 20;

/// Whether a new deployment may begin in targets of which none is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begin {
    IfEmpty,
    /// What is asked for needs one that is there.
    Never,
}

/// Opens the targets. Directories are made only when no target is in use yet, and no deployment is `remembered`: later, a
/// missing one may be a drive that is not mounted, and must not be replaced by an empty directory.
///
/// # Errors
/// When there is none, or none can be opened, or the driver is not to be had.
pub(crate) async fn open(config: &Config, remembered: Option<DeploymentId>, begin: Begin) -> Result<Targets, Failure> {
    let (paths, driver) = (&config.targets, config.driver);
    if paths.is_empty() {
        return Err(Failure::config(
            "no targets are given: name at least one directory, e.g. gabion server ./data, or set targets in the file",
        ));
    }
    let in_use = paths.iter().any(|path| is_member(path));
    if !in_use {
        if let Some(deployment) = remembered {
            return Err(Failure::targets(format!(
                "none of the targets holds anything, but the state directory belongs to deployment {deployment}: are their file systems mounted? \
                 Nothing was made or formatted; to begin anew, give another state directory"
            )));
        }
        if begin == Begin::Never {
            return Err(Failure::targets(
                "none of the targets holds anything: are their file systems mounted? Nothing was made or formatted",
            ));
        }
        for path in paths {
            make(path)?;
        }
    }
    let locks: Vec<Option<DirLock>> = paths.iter().map(|path| lock_at_start(path)).collect::<Result<_, _>>()?;
    let mut opened =
        Targets { targets: Vec::new(), stored_geometry: None, described: Vec::new(), first_is_member: true };
    let mut memberships = Vec::new();
    for (index, (path, lock)) in paths.iter().zip(locks).enumerate() {
        let name = path.display().to_string();
        let disk = match open_disk(path, driver, DriverOptions::default(), lock) {
            Ok(opened_disk) => {
                let how = format!("{}, {}", opened_disk.file_system, opened_disk.driver);
                opened.described.push(Described { name: name.clone(), how });
                Some(opened_disk.disk)
            }
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                return Err(Failure::config(format!(
                    "target {name} can not be opened with --driver {driver}: {error}; use --driver auto"
                )));
            }
            Err(error) if in_use => {
                // The log warns of every absent target; why this one could not be opened is known only here.
                tracing::info!(target_dir = %name, %error, "the target can not be opened");
                opened.described.push(Described { name: name.clone(), how: format!("absent: {error}") });
                None
            }
            Err(error) => return Err(Failure::targets(format!("target {name} can not be opened: {error}"))),
        };
        let membership = disk.as_ref().and_then(|_| membership_at(path));
        let geometry = membership.as_ref().and_then(|membership| membership.geometry.parse().ok());
        memberships.extend(membership);
        if index == 0 {
            opened.first_is_member = !in_use || geometry.is_some();
        }
        opened.stored_geometry = opened.stored_geometry.or(geometry);
        opened.targets.push(LogTarget { name, disk, failure_domain: config.label(path).to_owned() });
    }
    open_remembered(&mut opened, paths, driver, &memberships)?;
    Ok(opened)
}

/// Opens the members that were added while a server ran and are not on the command line yet, where the others remember them.
fn open_remembered(
    opened: &mut Targets,
    given: &[PathBuf],
    driver: DriverChoice,
    memberships: &[Membership],
) -> Result<(), Failure> {
    let Some(newest) = memberships.iter().max_by_key(|membership| membership.epoch) else { return Ok(()) };
    for (id, path) in newest.places() {
        let is_given = given.iter().any(|given| given == path) || memberships.iter().any(|known| known.target == id);
        if is_given {
            continue;
        }
        // Another directory may lie at the path by now.
        if membership_at(path).is_none_or(|found| found.target != id) {
            tracing::info!(target_dir = %path.display(), id, "this target is a member and was not given, and it is not where it was");
            continue;
        }
        let lock = lock_at_start(path)?;
        let Ok(disk) = open_disk(path, driver, DriverOptions::default(), lock) else { continue };
        let name = path.display().to_string();
        tracing::info!(target_dir = %name, "this target is a member and was not given: name it at the next start");
        let how = format!("{}, {}, remembered", disk.file_system, disk.driver);
        opened.described.push(Described { name: name.clone(), how });
        opened.targets.push(LogTarget { name, disk: Some(disk.disk), failure_domain: String::new() });
    }
    Ok(())
}

/// Those that the log took, by their names: the others were removed from the deployment, or are not wanted, and it warns of each.
pub(crate) fn of_members(described: Vec<Described>, members: &BTreeSet<String>) -> Vec<Described> {
    described.into_iter().filter(|target| members.contains(&target.name)).collect()
}

/// The geometry to run with: the deployment's own, or at its first start the wanted one or the default for its size.
///
/// # Errors
/// When another one is wanted than the deployment has.
pub(crate) fn geometry(
    stored: Option<Geometry>,
    wanted: Option<Geometry>,
    target_count: usize,
) -> Result<Geometry, Failure> {
    match (stored, wanted) {
        (Some(stored), Some(wanted)) if stored != wanted => Err(Failure::config(format!(
            "the targets were formatted for geometry {stored}, but {wanted} is asked for: the geometry of a deployment can not be changed; \
             leave --geometry out, or start a new deployment on other directories"
        ))),
        (Some(stored), _) => Ok(stored),
        (None, Some(wanted)) => Ok(wanted),
        (None, None) => Ok(default_geometry(target_count)),
    }
}

/// Survives one loss from two targets on, two from four on, three from eleven on; wider than 8+3 only if asked for.
fn default_geometry(target_count: usize) -> Geometry {
    let (data, parity) = match target_count {
        0 | 1 => (1, 0),
        2 => (1, 1),
        3 => (2, 1),
        4..=10 => (target_count - 2, 2),
        _ => (8, 3),
    };
    Geometry::new(data, parity).expect("all of these are within the bounds")
}

/// Opens directories that are to join while the server runs.
#[derive(Debug)]
pub(crate) struct Opener {
    /// How they are read and written.
    pub(crate) driver: DriverChoice,
}

impl OpenTarget for Opener {
    fn open(&self, path: String, label: Option<String>) -> BoxFuture<'static, Result<LogTarget, String>> {
        let driver = self.driver;
        Box::pin(async move {
            let directory = PathBuf::from(&path);
            // It is never made: a path without a mounted drive would put the data onto the system's disk.
            if !directory.is_dir() {
                return Err(format!("{path} is no directory: mount the drive there, or make it"));
            }
            check_empty(&directory)?;
            let lock = lock(&directory).map_err(|error| {
                let this = std::process::id();
                format!("{path} is in use as a target: {error} (this server is {this})")
            })?;
            let opened = open_disk(&directory, driver, DriverOptions::default(), lock)
                .map_err(|error| format!("{path} can not be opened: {error}"))?;
            // Without a label it is a domain by itself, or has that of the one that it replaces.
            let failure_domain = label.unwrap_or_default();
            Ok(LogTarget { name: path, disk: Some(opened.disk), failure_domain })
        })
    }
}

/// A directory that joins a deployment holds nothing, or what is left of a target: else it is a drive that is used for something else, or the one that
/// others are mounted on. Snapshots and the like, whose names begin with a dot, do no harm.
///
/// # Errors
/// With a sentence for the operator.
fn check_empty(directory: &Path) -> Result<(), String> {
    if is_member(directory) {
        return Ok(());
    }
    let shown = directory.display();
    let entries = std::fs::read_dir(directory).map_err(|error| format!("{shown} can not be listed: {error}"))?;
    for entry in entries {
        let name = entry.map_err(|error| format!("{shown} can not be listed: {error}"))?.file_name();
        let name = name.to_string_lossy();
        if !name.starts_with('.') && !matches!(&*name, LOCK_FILE | "lost+found") {
            return Err(format!(
                "{shown} is not empty, it holds {name}: is it the directory that was meant, and its drive mounted?"
            ));
        }
    }
    Ok(())
}

/// Takes the lock of a target.
///
/// # Errors
/// When somebody has it.
fn lock_at_start(path: &Path) -> Result<Option<DirLock>, Failure> {
    lock(path).map_err(|error| {
        Failure::held(format!("{error}: a server is using the target {}; stop it first", path.display()))
    })
}

/// The lock of a target. One that is missing or broken is for the log to judge. Where the file system has no locks (Lustre mounted without flock), that
/// one server writes to a deployment is up to the operator.
///
/// # Errors
/// `ResourceBusy`.
fn lock(path: &Path) -> io::Result<Option<DirLock>> {
    match DirLock::acquire(&path.join(LOCK_FILE)) {
        Ok(lock) => Ok(Some(lock)),
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => Err(error),
        Err(error) => {
            tracing::debug!(target_dir = %path.display(), %error, "the target is not locked");
            Ok(None)
        }
    }
}

/// What can not be read here is for the log to report.
fn membership_at(path: &Path) -> Option<Membership> {
    let mut text = Vec::new();
    let file = File::open(path.join(MEMBERSHIP_FILE)).ok()?;
    file.take(MEMBERSHIP_BYTES_MAX).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

fn make(path: &Path) -> Result<(), Failure> {
    match std::fs::create_dir(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound && !path.parent().is_some_and(Path::is_dir) => {
            Err(Failure::targets(format!(
                "target {}: the directory in which it should be made does not exist; make it, or check the path",
                path.display()
            )))
        }
        Err(error) => Err(Failure::targets(format!("target {} can not be made: {error}", path.display()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Layers;

    async fn opened(paths: &[PathBuf], remembered: Option<DeploymentId>) -> Result<Targets, Failure> {
        let texts = paths.iter().map(|path| path.display().to_string()).collect();
        let flags = [("targets", texts), ("driver", vec!["threads".to_owned()])].into();
        let config = Config::read(&Layers { flags, ..Layers::default() }.resolve()).unwrap();
        open(&config, remembered, Begin::IfEmpty).await
    }

    fn parsed(text: &str) -> Option<Geometry> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn the_geometry_follows_from_the_targets_until_it_is_stored() {
        let table = [
            (1, "1+0"),
            (2, "1+1"),
            (3, "2+1"),
            (4, "2+2"),
            (5, "3+2"),
            (6, "4+2"),
            (10, "8+2"),
            (11, "8+3"),
            (40, "8+3"),
        ];
        for (count, expected) in table {
            assert_eq!(geometry(None, None, count).unwrap().to_string(), expected, "{count} targets");
        }
        assert_eq!(geometry(None, parsed("3+1"), 6).unwrap().to_string(), "3+1");
        assert_eq!(geometry(parsed("2+1"), None, 6).unwrap().to_string(), "2+1");
        assert_eq!(geometry(parsed("2+1"), parsed("2+1"), 6).unwrap().to_string(), "2+1");
        let failure = geometry(parsed("2+1"), parsed("4+2"), 6).unwrap_err().to_string();
        assert!(failure.contains("formatted for geometry 2+1, but 4+2 is asked for"), "{failure}");
    }

    #[tokio::test]
    async fn directories_are_made_at_the_first_start_only() {
        let dir = tempfile::tempdir().unwrap();
        let paths = ["a", "b"].map(|name| dir.path().join(name));
        let first = opened(&paths, None).await.unwrap();
        assert!(first.targets.iter().all(|target| target.disk.is_some()) && first.first_is_member);
        assert_eq!(first.stored_geometry, None);
        drop(first);

        std::fs::write(
            paths[1].join(MEMBERSHIP_FILE),
            "{\"target\":\"x\",\"geometry\":\"1+1\",\"members\":[],\"more\":1}",
        )
        .unwrap();
        std::fs::remove_dir_all(&paths[0]).unwrap();
        let later = opened(&paths, None).await.unwrap();
        assert!(later.targets[0].disk.is_none() && later.targets[1].disk.is_some());
        assert!(!paths[0].exists(), "a missing drive is not replaced by a directory");
        assert!(!later.first_is_member);
        assert_eq!(later.stored_geometry, parsed("1+1"));
    }

    #[tokio::test]
    async fn targets_that_were_removed_are_not_told_of() {
        let dir = tempfile::tempdir().unwrap();
        let paths = ["a", "b"].map(|name| dir.path().join(name));
        let Targets { targets, described, .. } = opened(&paths, None).await.unwrap();
        assert_eq!((targets.len(), described.len()), (2, 2));
        let told = of_members(described, &[targets[1].name.clone()].into());
        assert_eq!(told.len(), 1);
        assert!(told[0].to_string().starts_with(&format!("{} (", paths[1].display())), "{}", told[0]);
    }

    #[tokio::test]
    async fn targets_are_used_by_one_server_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let paths = ["a", "b"].map(|name| dir.path().join(name));
        let first = opened(&paths, None).await.unwrap();
        let failure = opened(&paths[1..], None).await.unwrap_err().to_string();
        assert!(failure.contains("a server is using the target"), "{failure}");
        drop(first);
        opened(&paths[1..], None).await.unwrap();
    }

    #[tokio::test]
    async fn drives_that_are_not_mounted_are_not_taken_for_new_ones() {
        let dir = tempfile::tempdir().unwrap();
        let paths = ["a", "b"].map(|name| dir.path().join(name));
        std::fs::create_dir(&paths[0]).unwrap();
        let remembered = Some(DeploymentId::from_u128(7));
        let failure = opened(&paths, remembered).await.unwrap_err().to_string();
        assert!(failure.contains("are their file systems mounted?"), "{failure}");
        assert!(!paths[1].exists());
    }

    #[tokio::test]
    async fn members_that_were_added_are_found_where_the_others_remember_them() {
        let dir = tempfile::tempdir().unwrap();
        let paths = ["a", "b", "c"].map(|name| dir.path().join(name));
        let file = |target: &str, epoch: u64| {
            let member = |(id, path): (&str, &PathBuf)| serde_json::json!({ "id": id, "name": path });
            let members: Vec<Value> = ["1", "2", "3"].into_iter().zip(&paths).map(member).collect();
            let members = if epoch == 0 { Vec::new() } else { members };
            serde_json::json!({ "target": target, "geometry": "1+0", "epoch": epoch, "members": members }).to_string()
        };
        // The first missed the last change; another target took the place of the third.
        for (path, text) in paths.iter().zip([file("1", 0), file("2", 1), file("9", 1)]) {
            std::fs::create_dir(path).unwrap();
            std::fs::write(path.join(MEMBERSHIP_FILE), text).unwrap();
        }
        let names = |targets: &Targets| targets.targets.iter().map(|target| target.name.clone()).collect::<Vec<_>>();
        let shown = paths.each_ref().map(|path| path.display().to_string());
        assert_eq!(names(&opened(&paths[..1], None).await.unwrap()), shown[..1]);
        assert_eq!(names(&opened(&paths[..2], None).await.unwrap()), shown[..2]);
        std::fs::write(paths[2].join(MEMBERSHIP_FILE), file("3", 0)).unwrap();
        assert_eq!(names(&opened(&paths[..2], None).await.unwrap()), shown);
        assert_eq!(names(&opened(&paths[1..], None).await.unwrap()).len(), 3);
    }

    #[tokio::test]
    async fn what_can_not_be_made_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let failure = opened(&[dir.path().join("no/such")], None).await.unwrap_err().to_string();
        assert!(failure.contains("does not exist"), "{failure}");
        let failure = opened(&[], None).await.unwrap_err().to_string();
        assert!(failure.contains("no targets are given"), "{failure}");
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert!(opened(&[file], None).await.is_err());
    }
}
