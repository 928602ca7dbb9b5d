//! Directories that a floor works in, and that go with it.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, ensure};
use gabion_platform::{Disk, DriverChoice, DriverOptions, open_disk};

use super::FloorArgs;

/// As many directories as the geometry has shards, dealt to the targets in turn.
pub(super) struct Place {
    directories: Vec<PathBuf>,
}

impl Place {
    /// Makes the directories for the floor `name`.
    ///
    /// # Errors
    /// When one can not be made.
    pub(super) fn make(args: &FloorArgs, name: &str) -> anyhow::Result<Self> {
        ensure!(!args.targets.is_empty(), "--targets: name directories on the drives of the targets");
        let mut place = Self { directories: Vec::new() };
        for shard in 0..args.geometry.shards() {
            let target = &args.targets[shard % args.targets.len()];
            let directory = target.join(format!("gabion-floor-{}-{name}-{shard}", std::process::id()));
            fs::create_dir(&directory).with_context(|| format!("making {}", directory.display()))?;
            place.directories.push(directory);
        }
        Ok(place)
    }

    /// The directories with their disks, driven as the server drives its targets.
    ///
    /// # Errors
    /// When one can not be opened.
    pub(super) fn disks(&self) -> anyhow::Result<Vec<(&Path, Arc<dyn Disk>)>> {
        let open = |directory: &PathBuf| open_disk(directory, DriverChoice::Auto, DriverOptions::default(), None);
        let disks = self.directories.iter().map(|directory| {
            let opened = open(directory).with_context(|| format!("opening {}", directory.display()))?;
            Ok((directory.as_path(), opened.disk))
        });
        disks.collect()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for directory in &self.directories {
            // What can not be removed bears the name of this program; the measurement stands.
            let _ = fs::remove_dir_all(directory);
        }
    }
}
