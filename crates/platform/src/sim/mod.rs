//! A disk that exists only in memory and fails on request. The list of its faults is the specification of what the
//! layers above must survive; what is not in the list is not claimed to be survived.
//!
//! # The medium
//!
//! Every file has a synced content, and a list of writes and length changes that were made since its last sync.
//! Reads see all of them (a page cache). Names have a live and a durable state too: creating, replacing and
//! removing a file changes the live one, and [`Disk::sync_dir`] makes the names directly in that directory durable.
//! Directories themselves are durable once made.
//!
//! # The faults
//!
//! - **Power loss** ([`SimDisk::crash`]): each write since the file's last sync is, in order and by a seeded
//!   choice, kept, lost, or torn at 512-byte or 4-KiB borders of the file, any subset of its sectors being kept: so writes
//!   between two syncs reach the medium in any order. Each length change (preallocation too) and each hole is kept or lost. Each name whose
//!   live state was not made durable has the one state or the other. A gap left by a lost write reads as zeros. What was
//!   synced is there. A [`SimPower`] that disks share goes out before any chosen step of any of them, until all have crashed.
//! - **Process death** ([`SimDisk::kill`]): nothing is lost.
//! - After either, every handle and disk from before fails for ever, operations in flight included;
//!   [`SimDisk::reopen`] gives the disk anew.
//! - **Failing reads, writes, syncs**: the next so many, or one in so many for as long as it is so ([`FaultRates`]), fail with a
//!   given kind. A failed read or length change changes nothing. A failed write may have written any of its sectors. A failed
//!   file sync drops the unsynced writes as Linux does: reads still see them, a later sync that succeeds does not make them
//!   durable, and a crash loses them. A failed directory sync leaves the names as they were, not durable.
//! - **Short reads**: a read of a part of a file gives fewer bytes than there are.
//! - **Misdirected writes**: a write says that it succeeded and has hit another file of the disk, at the same offset.
//! - **Slow**: an operation waits many turns before a step, while others overtake it.
//! - **Hung**: an operation comes to nothing for seconds or minutes, and is done then.
//! - **Full**: what would make the lengths of all files exceed a capacity fails with `StorageFull` and changes
//!   nothing. Holes that were punched do not count, until they are written again.
//! - **Offline**: every operation fails with `NotConnected`, until it is online again.
//! - **Rot**: a bit of a file flips, on the medium and in the cache; given, or anywhere ([`SimDisk::rot`]): in data, headers,
//!   seals, memberships.
//! - **Stale**: the medium holds what it held before ([`SimDisk::image`], [`SimDisk::restore`]).
//! - **Replaced**: the medium is empty.
//!
//! Not simulated: a sync that lies, reordering across a sync, rot of names.
//!
//! # Determinism
//!
//! No threads, and no clock but that of tokio, which a simulation has stand still: an operation is one or more steps, and before each step its future yields or not (more often if the
//! disk is slow), by the seed. So concurrent operations interleave, as on a real disk, but the same way each time on a current-thread
//! runtime. A future that is dropped in flight does its remaining steps at that moment, where a real disk does them
//! some time later; what is to come late has to be kept and polled.
//!
//! [`Disk::write_file`] has three steps (write and sync the new content; replace the name; make the name durable),
//! a durable write two (write, sync); a crash may come between them.

mod content;
mod faults;
mod file;
mod gated;
mod image;
mod inode;
mod operation;
mod power;
mod state;
mod wrapped;

#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::disk::{DirEntry, Disk, DiskFile, IoFuture, Space, refused};
use crate::path;

pub use faults::{FaultPlan, FaultRates, HANGS_S_MAX, OneIn};
pub use gated::{Access, AskAccess};
pub use image::DiskImage;
pub use inode::SECTOR_BYTES;
pub use power::SimPower;
pub use wrapped::{AskChange, AskSpace, OpenFile, Opening};

use file::SimFile;
use operation::Operation;
use state::State;

/// The simulated disk; see the module's text for what it simulates. Clones are the same disk.
#[derive(Clone)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
    /// Crashes that this handle has seen; it fails once there was another.
    epoch: u64,
}

impl SimDisk {
    /// An empty disk, whose interleavings are determined by `seed`.
    pub fn new(seed: u64) -> Self {
        Self::powered(seed, &SimPower::new())
    }

    /// The same, on a power supply that it shares with others.
    pub fn powered(seed: u64, power: &SimPower) -> Self {
        Self { state: Arc::new(Mutex::new(State::new(seed, power.clone()))), epoch: 0 }
    }

    /// Power loss: unsynced changes are kept, lost or torn as `seed` has it, and every handle fails from now on.
    pub fn crash(&self, seed: u64) {
        self.state.lock().crash(seed);
    }

    /// The process dies, the machine does not: nothing is lost, but every handle fails from now on.
    pub fn kill(&self) {
        self.state.lock().kill();
    }

    /// The same disk for a process that starts after a crash. Faults that were injected stay.
    pub fn reopen(&self) -> SimDisk {
        SimDisk { state: Arc::clone(&self.state), epoch: self.state.lock().epoch() }
    }

    /// Adds the faults of `plan` to those that are there.
    ///
    /// # Panics
    /// If the plan flips a bit where there is no file or no byte: the test is wrong.
    pub fn inject(&self, plan: FaultPlan) {
        self.state.lock().inject(plan);
    }

    /// Makes the next `count` reads fail with `kind`.
    pub fn fail_reads(&self, count: u32, kind: io::ErrorKind) {
        self.inject(FaultPlan::new().fail_reads(count, kind));
    }

    /// Makes the next `count` writes fail with `kind`.
    pub fn fail_writes(&self, count: u32, kind: io::ErrorKind) {
        self.inject(FaultPlan::new().fail_writes(count, kind));
    }

    /// Makes the next `count` syncs, of files or directories, fail with `kind`.
    pub fn fail_syncs(&self, count: u32, kind: io::ErrorKind) {
        self.inject(FaultPlan::new().fail_syncs(count, kind));
    }

    /// Somebody has pages of all files from now on, or nobody any more: see [`DiskFile::evict`].
    pub fn lend_pages(&self, lent: bool) {
        self.state.lock().lend_pages(lent);
    }

    /// Takes the disk offline, or brings it back.
    pub fn offline(&self, offline: bool) {
        self.inject(FaultPlan::new().offline(offline));
    }

    /// Sets the capacity to `capacity_bytes`; [`SimDisk::used_bytes`] makes the disk full.
    pub fn full_at(&self, capacity_bytes: u64) {
        self.inject(FaultPlan::new().full_at(capacity_bytes));
    }

    /// Flips a bit of the byte at `offset` of the file `path`.
    ///
    /// # Panics
    /// If there is no such file or byte: the test is wrong.
    pub fn corrupt(&self, path: &str, offset: u64) {
        self.inject(FaultPlan::new().flip_bit(path, offset));
    }

    /// Flips `count` bits, anywhere in what was ever written to the files that are there.
    pub fn rot(&self, count: u32) {
        self.state.lock().rot(count);
    }

    /// How often operations fail by chance from now on, and how slow they are.
    pub fn set_rates(&self, rates: FaultRates) {
        self.state.lock().set_rates(rates);
    }

    /// What was set by [`SimDisk::set_rates`] last.
    #[must_use]
    pub fn rates(&self) -> FaultRates {
        self.state.lock().rates()
    }

    /// Whether an operation ever hung ([`FaultRates::hangs`]): it may still.
    #[must_use]
    pub fn has_hung(&self) -> bool {
        self.state.lock().has_hung()
    }

    /// What is on the medium.
    pub fn image(&self) -> DiskImage {
        self.state.lock().image()
    }

    /// The medium holds `image` and nothing else: an older one is a target that comes back stale, [`DiskImage::default`] one that
    /// was replaced by an empty one. Every handle fails from now on, as after [`SimDisk::kill`].
    pub fn restore(&self, image: &DiskImage) {
        self.state.lock().restore(image);
    }

    /// Handles on files that are open.
    pub fn open_files(&self) -> usize {
        self.state.lock().open_files().load(Ordering::Relaxed)
    }

    /// A number that depends on everything that was ever asked of the disk, in its order: two runs with the same one did the same.
    pub fn digest(&self) -> u64 {
        self.state.lock().digest()
    }

    /// The room that all files take together: their lengths without the holes that were punched.
    pub fn used_bytes(&self) -> u64 {
        self.state.lock().used_bytes()
    }

    /// Paths of all files, sorted.
    pub fn paths(&self) -> Vec<String> {
        self.state.lock().paths()
    }

    fn operation<T: Send + 'static>(
        &self,
        last: impl FnOnce(&mut State) -> io::Result<T> + Send + 'static,
    ) -> Operation<T> {
        Operation::new(Arc::clone(&self.state), self.epoch, last)
    }
}

impl Disk for SimDisk {
    fn create(&self, path: &str, preallocate_bytes: u64) -> IoFuture<Arc<dyn DiskFile>> {
        if let Err(error) = path::check_file(path) {
            return refused(error);
        }
        let (disk, path) = (self.clone(), path.to_owned());
        self.operation(move |state| {
            let inode = state.create(&path, preallocate_bytes)?;
            Ok(Arc::new(SimFile::new(disk, inode, state.open_files())) as Arc<dyn DiskFile>)
        })
        .boxed()
    }

    fn open(&self, path: &str) -> IoFuture<Arc<dyn DiskFile>> {
        if let Err(error) = path::check_file(path) {
            return refused(error);
        }
        let (disk, path) = (self.clone(), path.to_owned());
        self.operation(move |state| {
            let inode = state.open(&path)?;
            Ok(Arc::new(SimFile::new(disk, inode, state.open_files())) as Arc<dyn DiskFile>)
        })
        .boxed()
    }

    fn list(&self, dir: &str) -> IoFuture<Vec<DirEntry>> {
        if let Err(error) = path::check_dir(dir) {
            return refused(error);
        }
        let dir = dir.to_owned();
        self.operation(move |state| state.list(&dir)).boxed()
    }

    fn read_file(&self, path: &str, max_bytes: usize) -> IoFuture<Bytes> {
        if let Err(error) = path::check_file(path) {
            return refused(error);
        }
        let path = path.to_owned();
        self.operation(move |state| state.read_file(&path, max_bytes)).boxed()
    }

    fn write_file(&self, path: &str, bytes: Bytes) -> IoFuture<()> {
        if let Err(error) = path::check_file(path) {
            return refused(error);
        }
        let replacement = Arc::default();
        let written = Arc::clone(&replacement);
        let path = path.to_owned();
        let renamed = path.clone();
        self.operation(move |state| state.sync_dir(path::split(&path).0))
            .after(move |state| state.rename_over(&renamed, replacement))
            .after(move |state| state.write_replacement(&written, &bytes))
            .boxed()
    }

    fn rename(&self, from: &str, to: &str) -> IoFuture<()> {
        if let Err(error) = path::check_rename(from, to) {
            return refused(error);
        }
        let (from, to) = (from.to_owned(), to.to_owned());
        self.operation(move |state| state.rename(&from, &to)).boxed()
    }

    fn unlink(&self, path: &str) -> IoFuture<()> {
        if let Err(error) = path::check_file(path) {
            return refused(error);
        }
        let path = path.to_owned();
        self.operation(move |state| state.unlink(&path)).boxed()
    }

    fn sync_dir(&self, dir: &str) -> IoFuture<()> {
        if let Err(error) = path::check_dir(dir) {
            return refused(error);
        }
        let dir = dir.to_owned();
        self.operation(move |state| state.sync_dir(&dir)).boxed()
    }

    fn space(&self) -> IoFuture<Space> {
        self.operation(|state| Ok(state.space())).boxed()
    }
}

impl fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimDisk").field("epoch", &self.epoch).finish_non_exhaustive()
    }
}
