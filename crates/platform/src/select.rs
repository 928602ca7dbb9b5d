//! Which driver a target gets: by the type of its file system and by what the kernel allows, unless the admin says.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use crate::disk::Disk;
use crate::error::explain;
use crate::host::{DataPath, HostDisk, Namespace, Writes};
use crate::lock::DirLock;
use crate::threads::Pool;
use crate::uring::{Ring, Rings};

/// Threads for names and writes, where a ring reads: lanes write a stripe each, and the zeros ahead of it, and repair a few.
const WRITING_THREADS_MAX: usize = 8;

/// How far the kernel may read ahead on a device whose files are loaded in order, in KiB. At worst it reads twice as much more than a chunk has; below four pages
/// of 4 KiB there is little to make large ones of.
const READ_AHEAD_KIB: RangeInclusive<u64> = 16..=512;

/// Which driver to use for a target. As text: `auto`, `io_uring`, `threads`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DriverChoice {
    /// By file system and probe.
    #[default]
    Auto,
    /// io_uring, or an error if the kernel does not allow it.
    IoUring,
    /// Positioned reads and writes on threads.
    Threads,
}

impl DriverChoice {
    const ALL: [(DriverChoice, &'static str); 3] =
        [(DriverChoice::Auto, "auto"), (DriverChoice::IoUring, "io_uring"), (DriverChoice::Threads, "threads")];
}

impl fmt::Display for DriverChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (_, name) = Self::ALL.iter().find(|(choice, _)| choice == self).expect("the table names every choice");
        f.pad(name)
    }
}

impl FromStr for DriverChoice {
    type Err = UnknownDriver;

    fn from_str(text: &str) -> Result<Self, UnknownDriver> {
        let found = Self::ALL.iter().find(|(_, name)| *name == text);
        found.map(|(choice, _)| *choice).ok_or(UnknownDriver)
    }
}

/// The text names no driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownDriver;

impl fmt::Display for UnknownDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a driver is auto, io_uring or threads")
    }
}

impl std::error::Error for UnknownDriver {}

/// Limits of a driver; the defaults fit servers from a laptop to a storage node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DriverOptions {
    /// Most threads of the target's pool; `None`: 32 on a network file system (they wait for the network), 16 on a
    /// local one, 8 where io_uring reads.
    pub threads_max: Option<usize>,
    /// Most operations in flight on the target, waiting in its queue or running, without those that go by the ring of all targets; further ones wait asynchronously.
    /// At least 1; io_uring takes at most 1024.
    pub in_flight_max: usize,
}

impl Default for DriverOptions {
    fn default() -> Self {
        Self { threads_max: None, in_flight_max: 256 }
    }
}

/// A target's disk, and what was chosen for it.
#[derive(Debug, Clone)]
pub struct OpenedDisk {
    /// The disk.
    pub disk: Arc<dyn Disk>,
    /// `io_uring` or `threads`.
    pub driver: &'static str,
    /// Name of the file system's type, such as `ext4` or `Lustre`; `unknown (0x…)` with its number otherwise.
    pub file_system: String,
}

/// Opens the existing directory `root` as a target, and keeps its `lock` as long as the disk lives, or work on it.
///
/// # Errors
/// `NotFound`, `NotADirectory`, `PermissionDenied`, …, of the root; `Unsupported` if io_uring is asked for by name
/// and the kernel does not allow it.
pub fn open_disk(
    root: &Path,
    choice: DriverChoice,
    options: DriverOptions,
    lock: Option<DirLock>,
) -> io::Result<OpenedDisk> {
    let namespace = Namespace::open_root(root, lock)?;
    let stat = rustix::fs::fstatfs(namespace.root())
        .map_err(|errno| explain(errno, "ask for the file system of", &root.display().to_string()))?;
    // The field's type and sign differ between architectures; the magic numbers have 32 bits.
    let file_system = FileSystem::of_magic(stat.f_type as u32);
    let ring = match choice {
        DriverChoice::Threads => None,
        DriverChoice::IoUring => Some(Ring::start(options.in_flight_max).map_err(|error| {
            let message = format!("io_uring is asked for, but can not be used: {error}");
            io::Error::new(io::ErrorKind::Unsupported, message)
        })?),
        DriverChoice::Auto => ring_where_it_pays(file_system, options),
    };
    let (driver, default_threads_max) = match &ring {
        Some(_) => ("io_uring", WRITING_THREADS_MAX),
        None => ("threads", file_system.threads_max()),
    };
    let writes = file_system.writes();
    let loads = writes == Writes::InPlace && ring.is_some() && loads_in_order(&namespace, root);
    let data_path = DataPath { rings: ring.map(|reads| Rings::new(reads, writes, loads)), writes };
    let pool = Pool::new(options.threads_max.unwrap_or(default_threads_max), options.in_flight_max);
    let disk = Arc::new(HostDisk::new(namespace, pool, data_path));
    Ok(OpenedDisk { disk, driver, file_system: file_system.to_string() })
}

fn ring_where_it_pays(file_system: FileSystem, options: DriverOptions) -> Option<Arc<Ring>> {
    let FileSystem::Local(_) = file_system else { return None };
    match Ring::start(options.in_flight_max) {
        Ok(ring) => Some(ring),
        Err(error) => {
            tracing::info!(%error, "io_uring can not be used; the target is driven by threads");
            None
        }
    }
}

/// Whether what is read in order is loaded into the page cache along a descriptor of its own: not where the kernel would read much of what nobody asked for, or nothing.
fn loads_in_order(namespace: &Namespace, root: &Path) -> bool {
    let device = rustix::fs::fstat(namespace.root()).map(|stat| stat.st_dev);
    let refusal = match device.ok().and_then(read_ahead) {
        Some((setting, kib)) => refusal(&setting, kib),
        None => Some("nothing in /sys/dev/block says how far the kernel reads ahead on the device".to_owned()),
    };
    if let Some(refusal) = refusal.as_ref().filter(|refusal| is_news(refusal)) {
        tracing::info!(
            root = %root.display(),
            "large objects take more CPU time to read than they need, as they are not loaded in large pages: {refusal}"
        );
    }
    refusal.is_none()
}

/// Whether this was not said yet: targets that share a device have the same to say.
fn is_news(refusal: &str) -> bool {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    SAID.lock().unwrap_or_else(PoisonError::into_inner).insert(refusal.to_owned())
}

/// Why nothing is loaded in order where the kernel reads `kib` ahead, as `setting` says.
fn refusal(setting: &Path, kib: u64) -> Option<String> {
    if READ_AHEAD_KIB.contains(&kib) {
        return None;
    }
    let (least, most) = READ_AHEAD_KIB.into_inner();
    let setting = setting.display();
    Some(format!("{setting} is {kib}, not {least} to {most} (write 128 to it, and start again)"))
}

/// How far the kernel reads ahead on a block device, in KiB, with the file that says so. Nothing where it does not tell.
fn read_ahead(device: u64) -> Option<(PathBuf, u64)> {
    let device = format!("/sys/dev/block/{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    // A partition has the queue of its disk.
    ["queue", "../queue"].iter().find_map(|queue| {
        let setting = fs::canonicalize(format!("{device}/{queue}/read_ahead_kb")).ok()?;
        let kib = fs::read_to_string(&setting).ok()?.trim().parse().ok()?;
        Some((setting, kib))
    })
}

/// What a file system is to us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FileSystem {
    /// On this machine: io_uring reads without a kernel worker for each.
    Local(&'static str),
    /// Behind a network or a user process: io_uring would hand every operation to a kernel worker.
    Remote(&'static str),
    /// Not in the table; treated as remote, where nothing is assumed.
    Unknown(u32),
}

impl FileSystem {
    /// From `linux/magic.h`, and for those out of the kernel's tree from their own sources.
    fn of_magic(magic: u32) -> Self {
        match magic {
            0x0000_EF53 => FileSystem::Local("ext4"),
            0x5846_5342 => FileSystem::Local("XFS"),
            0x9123_683E => FileSystem::Local("Btrfs"),
            0x0102_1994 => FileSystem::Local("tmpfs"),
            0x8584_58F6 => FileSystem::Local("ramfs"),
            0x2FC1_2FC1 => FileSystem::Local("ZFS"),
            0xF2F5_2010 => FileSystem::Local("F2FS"),
            0xCA45_1A4E => FileSystem::Local("bcachefs"),
            0x794C_7630 => FileSystem::Local("overlayfs"),
            0x0BD0_0BD0 => FileSystem::Remote("Lustre"),
            0x1983_0326 => FileSystem::Remote("BeeGFS"),
            0x0000_6969 => FileSystem::Remote("NFS"),
            0x6573_5546 => FileSystem::Remote("FUSE"),
            0x4750_4653 => FileSystem::Remote("GPFS"),
            0x00C3_6400 => FileSystem::Remote("CephFS"),
            0x2003_0528 => FileSystem::Remote("OrangeFS"),
            0xFE53_4D42 => FileSystem::Remote("SMB"),
            0xFF53_4D42 => FileSystem::Remote("CIFS"),
            0x0102_1997 => FileSystem::Remote("9P"),
            _ => FileSystem::Unknown(magic),
        }
    }

    fn writes(self) -> Writes {
        match self {
            // The others write elsewhere what is overwritten, or nowhere at all.
            FileSystem::Local("ext4" | "XFS") => Writes::InPlace,
            FileSystem::Local(_) => Writes::LongDirect,
            FileSystem::Remote(_) | FileSystem::Unknown(_) => Writes::Cached,
        }
    }

    fn threads_max(self) -> usize {
        match self {
            FileSystem::Local(_) => 16,
            FileSystem::Remote(_) | FileSystem::Unknown(_) => 32,
        }
    }
}

impl fmt::Display for FileSystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileSystem::Local(name) | FileSystem::Remote(name) => f.write_str(name),
            FileSystem::Unknown(magic) => write!(f, "unknown (0x{magic:08X})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drivers_have_names() {
        for (choice, name) in DriverChoice::ALL {
            assert_eq!(choice.to_string(), name);
            assert_eq!(name.parse(), Ok(choice));
        }
        assert_eq!("uring".parse::<DriverChoice>(), Err(UnknownDriver));
    }

    #[test]
    fn file_systems_behind_a_network_are_driven_by_threads() {
        for magic in [0x0BD0_0BD0, 0x1983_0326, 0x6969, 0x6573_5546, 0x4750_4653, 0x00C3_6400, 0x1234_5678] {
            assert!(ring_where_it_pays(FileSystem::of_magic(magic), DriverOptions::default()).is_none());
        }
        assert_eq!(FileSystem::of_magic(0x0BD0_0BD0).to_string(), "Lustre");
        assert_eq!(FileSystem::of_magic(0x1234).to_string(), "unknown (0x00001234)");
    }

    #[test]
    fn zeros_are_written_ahead_where_files_are_overwritten_in_place() {
        let writes = |magic| FileSystem::of_magic(magic).writes();
        assert_eq!([0xEF53, 0x5846_5342].map(writes), [Writes::InPlace; 2]);
        assert_eq!([0x9123_683E, 0x2FC1_2FC1, 0xF2F5_2010, 0x794C_7630].map(writes), [Writes::LongDirect; 4]);
        assert_eq!([0x0BD0_0BD0, 0x6969, 0x1234_5678].map(writes), [Writes::Cached; 3]);
    }

    #[test]
    fn how_far_the_kernel_reads_ahead_is_known_of_block_devices() {
        assert_eq!(read_ahead(rustix::fs::makedev(0, 0)), None);
        for disk in fs::read_dir("/sys/class/block").into_iter().flatten().flatten() {
            let Ok(device) = fs::read_to_string(disk.path().join("dev")) else { continue };
            let (major, minor) = device.trim().split_once(':').unwrap();
            let (setting, kib) =
                read_ahead(rustix::fs::makedev(major.parse().unwrap(), minor.parse().unwrap())).unwrap();
            assert_eq!(fs::read_to_string(setting).unwrap().trim(), kib.to_string());
        }
    }

    #[test]
    fn it_is_told_why_nothing_is_loaded_in_order() {
        let setting = Path::new("/sys/devices/disk/queue/read_ahead_kb");
        assert!([16, 128, 512].iter().all(|&kib| refusal(setting, kib).is_none()));
        for kib in [0, 4, 15, 513, 8192] {
            let refusal = refusal(setting, kib).unwrap();
            assert!(refusal.contains(&format!("read_ahead_kb is {kib}, not 16 to 512")), "{refusal}");
        }
    }

    #[test]
    fn what_targets_have_in_common_is_said_once() {
        assert!(is_news("one device") && is_news("another device"));
        assert!(!is_news("one device"));
    }

    #[test]
    fn a_missing_root_is_told_by_its_name() {
        let error =
            open_disk(Path::new("/no/such/target"), DriverChoice::Auto, DriverOptions::default(), None).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(error.to_string().contains("/no/such/target"));
    }

    #[test]
    fn auto_chooses_and_tells() {
        let dir = tempfile::tempdir().unwrap();
        let opened = open_disk(dir.path(), DriverChoice::Auto, DriverOptions::default(), None).unwrap();
        assert!(["io_uring", "threads"].contains(&opened.driver));
        assert!(!opened.file_system.is_empty());
    }
}
