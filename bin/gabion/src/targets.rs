//! From paths to targets: directories made at the first start, disks opened, the deployment's geometry found.

use std::io;
use std::path::{Path, PathBuf};

use gabion_platform::{Disk, DriverChoice, DriverOptions, StateLock, open_disk};
use gabion_segment::LogTarget;
use gabion_types::{DeploymentId, Geometry};
use serde::Deserialize;

use crate::exit::Failure;

/// The targets of a start.
#[derive(Debug)]
pub(crate) struct Targets {
    /// Held as long as the targets are used: no other server writes to them, whatever its state directory.
    pub(crate) locks: Vec<StateLock>,
    /// In the order in which they were given; without a disk where the directory is missing.
    pub(crate) targets: Vec<LogTarget>,
    /// Geometry of the deployment; nothing if no target has been used yet.
    pub(crate) stored_geometry: Option<Geometry>,
    /// Per target: path, driver and file system, for humans.
    pub(crate) described: Vec<String>,
    /// Whether the first target belongs to the deployment (or is about to).
    pub(crate) first_is_member: bool,
}

/// What this program needs to know of a target's `gabion.json`; the log checks the rest.
#[derive(Deserialize)]
struct Membership {
    geometry: String,
}

const LOCK_FILE: &str = "gabion.lock";
const MEMBERSHIP_FILE: &str = "gabion.json";
const MEMBERSHIP_BYTES_MAX: usize = 1 << 20;

/// Opens the targets. Directories are made only when no target is in use yet, and no deployment is `remembered`: later, a
/// missing one may be a drive that is not mounted, and must not be replaced by an empty directory.
///
/// # Errors
/// When there is none, or none can be opened, or the driver is not to be had.
pub(crate) async fn open(
    paths: &[PathBuf],
    driver: DriverChoice,
    remembered: Option<DeploymentId>,
) -> Result<Targets, Failure> {
    if paths.is_empty() {
        return Err(Failure::config(
            "no targets are given: name at least one directory, e.g. gabion server ./data, or set targets in the file",
        ));
    }
    let in_use = paths.iter().any(|path| path.join(MEMBERSHIP_FILE).exists());
    if !in_use {
        if let Some(deployment) = remembered {
            return Err(Failure::targets(format!(
                "none of the targets holds anything, but the state directory belongs to deployment {deployment}: are their file systems mounted? \
                 Nothing was made or formatted; to begin anew, give another state directory"
            )));
        }
        for path in paths {
            make(path)?;
        }
    }
    let mut opened = Targets {
        locks: lock(paths)?,
        targets: Vec::new(),
        stored_geometry: None,
        described: Vec::new(),
        first_is_member: true,
    };
    for (index, path) in paths.iter().enumerate() {
        let name = path.display().to_string();
        let disk = match open_disk(path, driver, DriverOptions::default()) {
            Ok(opened_disk) => {
                opened.described.push(format!("{name} ({}, {})", opened_disk.file_system, opened_disk.driver));
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
                opened.described.push(format!("{name} (absent: {error})"));
                None
            }
            Err(error) => return Err(Failure::targets(format!("target {name} can not be opened: {error}"))),
        };
        let geometry = match &disk {
            Some(disk) => stored_geometry(disk.as_ref()).await,
            None => None,
        };
        if index == 0 {
            opened.first_is_member = !in_use || geometry.is_some();
        }
        opened.stored_geometry = opened.stored_geometry.or(geometry);
        // The log spreads shards over failure domains; every target counts as one.
        opened.targets.push(LogTarget { name: name.clone(), disk, failure_domain: name });
    }
    Ok(opened)
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

/// Takes the locks of the targets that are there.
fn lock(paths: &[PathBuf]) -> Result<Vec<StateLock>, Failure> {
    let mut locks = Vec::new();
    for path in paths {
        match StateLock::acquire(&path.join(LOCK_FILE)) {
            Ok(lock) => locks.push(lock),
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                return Err(Failure::held(format!(
                    "{error}: a server is using the target {}; stop it first",
                    path.display()
                )));
            }
            // A target that is missing or broken is for the log to judge. Where the file system has no locks (Lustre mounted
            // without flock), that one server writes to a deployment is up to the operator.
            Err(error) => tracing::debug!(target_dir = %path.display(), %error, "the target is not locked"),
        }
    }
    Ok(locks)
}

async fn stored_geometry(disk: &dyn Disk) -> Option<Geometry> {
    let bytes = disk.read_file(MEMBERSHIP_FILE, MEMBERSHIP_BYTES_MAX).await.ok()?;
    // What can not be read here is for the log to report.
    serde_json::from_slice::<Membership>(&bytes).ok()?.geometry.parse().ok()
}

fn make(path: &Path) -> Result<(), Failure> {
    match std::fs::create_dir(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Failure::targets(format!(
            "target {}: the directory in which it should be made does not exist; make it, or check the path",
            path.display()
        ))),
        Err(error) => Err(Failure::targets(format!("target {} can not be made: {error}", path.display()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let first = open(&paths, DriverChoice::Threads, None).await.unwrap();
        assert!(first.targets.iter().all(|target| target.disk.is_some()) && first.first_is_member);
        assert_eq!(first.stored_geometry, None);
        drop(first);

        std::fs::write(paths[1].join(MEMBERSHIP_FILE), "{\"geometry\":\"1+1\",\"more\":1}").unwrap();
        std::fs::remove_dir_all(&paths[0]).unwrap();
        let later = open(&paths, DriverChoice::Threads, None).await.unwrap();
        assert!(later.targets[0].disk.is_none() && later.targets[1].disk.is_some());
        assert!(!paths[0].exists(), "a missing drive is not replaced by a directory");
        assert!(!later.first_is_member);
        assert_eq!(later.stored_geometry, parsed("1+1"));
    }

    #[tokio::test]
    async fn targets_are_used_by_one_server_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let paths = ["a", "b"].map(|name| dir.path().join(name));
        let first = open(&paths, DriverChoice::Threads, None).await.unwrap();
        let failure = open(&paths[1..], DriverChoice::Threads, None).await.unwrap_err().to_string();
        assert!(failure.contains("a server is using the target"), "{failure}");
        drop(first);
        open(&paths[1..], DriverChoice::Threads, None).await.unwrap();
    }

    #[tokio::test]
    async fn drives_that_are_not_mounted_are_not_taken_for_new_ones() {
        let dir = tempfile::tempdir().unwrap();
        let paths = ["a", "b"].map(|name| dir.path().join(name));
        std::fs::create_dir(&paths[0]).unwrap();
        let remembered = Some(DeploymentId::from_u128(7));
        let failure = open(&paths, DriverChoice::Threads, remembered).await.unwrap_err().to_string();
        assert!(failure.contains("are their file systems mounted?"), "{failure}");
        assert!(!paths[1].exists());
    }

    #[tokio::test]
    async fn what_can_not_be_made_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let failure = open(&[dir.path().join("no/such")], DriverChoice::Auto, None).await.unwrap_err().to_string();
        assert!(failure.contains("does not exist"), "{failure}");
        let failure = open(&[], DriverChoice::Auto, None).await.unwrap_err().to_string();
        assert!(failure.contains("no targets are given"), "{failure}");
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert!(open(&[file], DriverChoice::Auto, None).await.is_err());
    }
}
