//! File systems of a test's own: small, in memory or in an image file, that can be made read-only and lose power.
//!
//! Power loss is the file system's own shutdown (`FS_IOC_SHUTDOWN` without flushing the log, as xfstests does it): from that moment on nothing
//! reaches the image, whatever the page cache and the journal in memory still hold is gone, and the next mount recovers from what the image has. What
//! it can not show is a drive that lies about its cache: every block that the kernel gave to the image stays.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// A kind of file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FileSystem {
    Tmpfs,
    Ext4,
    Xfs,
}

/// A mounted file system, unmounted when dropped.
pub(crate) struct SmallDisk {
    file_system: FileSystem,
    size_mib: u32,
    at: PathBuf,
    /// Holds the image, and the place where it is mounted unless another was given.
    home: tempfile::TempDir,
}

impl SmallDisk {
    /// Mounts a new file system somewhere; `None`, with the reason printed, where that is not possible.
    pub(crate) fn mount(file_system: FileSystem, size_mib: u32) -> Option<Self> {
        let home = tempfile::tempdir().unwrap();
        let at = home.path().join("mounted");
        Self::make(file_system, size_mib, at, home)
    }

    /// Mounts a new file system at a directory, which is made.
    pub(crate) fn mount_at(file_system: FileSystem, size_mib: u32, at: &Path) -> Option<Self> {
        Self::make(file_system, size_mib, at.to_owned(), tempfile::tempdir().unwrap())
    }

    fn make(file_system: FileSystem, size_mib: u32, at: PathBuf, home: tempfile::TempDir) -> Option<Self> {
        fs::create_dir_all(&at).unwrap();
        let disk = Self { file_system, size_mib, at, home };
        match disk.format().and_then(|()| disk.attach()) {
            Ok(()) => Some(disk),
            Err(why) => {
                println!("skipped: a file system of the test's own can not be had here ({file_system:?}): {why}");
                None
            }
        }
    }

    /// Where it is mounted.
    pub(crate) fn path(&self) -> &Path {
        &self.at
    }

    fn image(&self) -> PathBuf {
        self.home.path().join("image")
    }

    fn format(&self) -> Result<(), String> {
        let program = match self.file_system {
            FileSystem::Tmpfs => return Ok(()),
            FileSystem::Ext4 => "mkfs.ext4",
            FileSystem::Xfs => "mkfs.xfs",
        };
        let image = fs::File::create(self.image()).and_then(|file| file.set_len(u64::from(self.size_mib) << 20));
        image.map_err(|error| error.to_string())?;
        run(Command::new(program).arg("-q").arg(self.image()))
    }

    fn attach(&self) -> Result<(), String> {
        let mut mount = Command::new("mount");
        match self.file_system {
            FileSystem::Tmpfs => mount.args(["-t", "tmpfs", "-o", &format!("size={}m", self.size_mib), "gabion-test"]),
            FileSystem::Ext4 => mount.args(["-t", "ext4", "-o", "loop,errors=remount-ro"]).arg(self.image()),
            FileSystem::Xfs => mount.args(["-t", "xfs", "-o", "loop"]).arg(self.image()),
        };
        run(mount.arg(&self.at))
    }

    /// The ring of a killed process gives its files back some time after the process is gone.
    fn detach(&self) -> Result<(), String> {
        const ATTEMPTS: usize = 5000;
        let mut outcome = Ok(());
        for _ in 0..ATTEMPTS {
            outcome = run(Command::new("umount").arg(&self.at));
            if !matches!(&outcome, Err(why) if why.contains("busy")) {
                break;
            }
        }
        outcome
    }

    /// Takes room with a file of another's until this much is left.
    pub(crate) fn leave(&self, room_mib: u32) {
        let output = Command::new("df").args(["--output=avail", "-B1M"]).arg(&self.at).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let available_mib: u32 = text.lines().nth(1).expect("df prints a line per file system").trim().parse().unwrap();
        if available_mib > room_mib {
            let length = format!("{}M", available_mib - room_mib);
            run(Command::new("fallocate").args(["-l", &length]).arg(self.at.join("of-another"))).unwrap();
        }
    }

    /// Makes durable what was put there before a test begins.
    pub(crate) fn sync(&self) {
        run(Command::new("sync").arg("-f").arg(&self.at)).unwrap();
    }

    /// Makes an ext4 find an error in itself: the kernel makes it read-only then, also under open files.
    pub(crate) fn fail(&self) {
        assert_eq!(self.file_system, FileSystem::Ext4, "only ext4 can be told to");
        let output = Command::new("findmnt").args(["-no", "SOURCE"]).arg(&self.at).output().unwrap();
        let source = String::from_utf8(output.stdout).unwrap();
        let device = source.trim().strip_prefix("/dev/").expect("it is a loop device");
        fs::write(format!("/sys/fs/ext4/{device}/trigger_fs_error"), "1").unwrap();
    }

    /// Makes it read-only, while no file is open for writing.
    pub(crate) fn make_read_only(&self) {
        run(Command::new("mount").args(["-o", "remount,ro"]).arg(&self.at)).unwrap();
    }

    /// The power is gone: what was not synced is lost, and whatever is asked from now on fails.
    pub(crate) fn cut_power(&self) -> Result<(), String> {
        // _IOR('X', 125, __u32) with FS_SHUTDOWN_FLAGS_NOLOGFLUSH; Python, since this crate forbids unsafe code and no usual program does it.
        const SHUTDOWN: &str = "import fcntl, os, struct, sys\n\
            fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x8004587d, struct.pack('I', 2))";
        run(Command::new("python3").args(["-c", SHUTDOWN]).arg(&self.at))
    }

    /// The power is back, after [`SmallDisk::cut_power`] or [`SmallDisk::fail`], once nobody has a file open.
    pub(crate) fn power_on(&self) {
        self.detach().and_then(|()| self.attach()).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: the server of a failed test may still be dying.
        let _ = Command::new("umount").arg("-l").arg(&self.at).output();
    }
}

fn run(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    match command.output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("{name}: {}", String::from_utf8_lossy(&output.stderr).trim())),
        Err(error) => Err(format!("{name}: {error}")),
    }
}
