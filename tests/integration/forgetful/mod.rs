//! A file system that keeps no more over a power loss than POSIX asks for, on FUSE.
//!
//! ext4 and XFS keep more than they promise: a file that was synced has its name, writes reach the disk in order. Here what was not synced is lost, kept in
//! part or torn at 512 bytes, as a seed says; a file's sync keeps its bytes and its length, never its name, which takes a sync of the directory. Everything
//! is in memory; the mount speaks the kernel's protocol itself ([`wire`]), so that nothing needs to be installed.

mod volume;
mod wire;

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    sync::{Arc, Mutex},
    thread::JoinHandle,
};

use rand::rngs::SmallRng;
use volume::Volume;

/// A mounted forgetful file system, unmounted when dropped.
pub(crate) struct ForgetfulDisk {
    at: tempfile::TempDir,
    volume: Arc<Mutex<Volume>>,
    server: Mutex<Option<JoinHandle<()>>>,
}

impl ForgetfulDisk {
    /// Mounts an empty one; `None`, with the reason printed, where that is not possible.
    pub(crate) fn mount() -> Option<Self> {
        let at = tempfile::tempdir().unwrap();
        let disk = Self { at, volume: Arc::new(Mutex::new(Volume::new())), server: Mutex::default() };
        match disk.attach() {
            Ok(()) => Some(disk),
            Err(why) => {
                println!("skipped: FUSE can not be had here: {why}");
                None
            }
        }
    }

    /// Where it is mounted.
    pub(crate) fn path(&self) -> &Path {
        self.at.path()
    }

    fn attach(&self) -> Result<(), String> {
        let device = fs::File::options().read(true).write(true).open("/dev/fuse").map_err(|error| error.to_string())?;
        // The program inherits the connection as its standard input: that is the descriptor that it names to the kernel.
        let stdin = device.try_clone().map_err(|error| error.to_string())?;
        let output = Command::new("mount")
            .args(["-i", "-t", "fuse", "-o", "fd=0,rootmode=40000,user_id=0,group_id=0", "gabion-forgetful"])
            .arg(self.at.path())
            .stdin(Stdio::from(stdin))
            .output()
            .map_err(|error| error.to_string())?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
        }
        let volume = Arc::clone(&self.volume);
        *self.server.lock().unwrap() = Some(std::thread::spawn(move || wire::serve(device, &volume)));
        Ok(())
    }

    /// From now on everything fails.
    pub(crate) fn cut_power(&self) {
        self.volume.lock().unwrap().cut_power();
    }

    /// Mounts what is left, once nobody has a file open.
    pub(crate) fn power_on(&self, random: &mut SmallRng) {
        let status = Command::new("umount").arg(self.at.path()).status().unwrap();
        assert!(status.success(), "the forgetful file system can not be unmounted");
        let server = self.server.lock().unwrap().take().expect("it was mounted");
        server.join().expect("the file system itself does not fail");
        self.volume.lock().unwrap().restart(random);
        self.attach().unwrap();
    }
}

impl Drop for ForgetfulDisk {
    fn drop(&mut self) {
        // Lazily: the server of a failed test may still be dying.
        let _ = Command::new("umount").arg("-l").arg(self.at.path()).output();
    }
}
