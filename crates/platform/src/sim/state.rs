//! The whole simulated disk: names, faults, and the steps that operations are made of.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;

use super::faults::{FaultPlan, FaultRates, HANGS_S_MAX};
use super::image::DiskImage;
use super::inode::Inode;
use super::power::SimPower;
use crate::disk::{DirEntry, Space};
use crate::entropy::Dice;
use crate::path;

/// Told as the size of a disk without a set capacity: 1 TiB.
const UNLIMITED_BYTES: u64 = 1 << 40;

pub(super) type InodeRef = Arc<Mutex<Inode>>;

/// Everything behind the handles.
pub(super) struct State {
    dice: Dice,
    epoch: u64,
    /// All directories but the root.
    dirs: BTreeSet<String>,
    live: BTreeMap<String, InodeRef>,
    durable: BTreeMap<String, InodeRef>,
    faults: FaultPlan,
    rates: FaultRates,
    has_hung: bool,
    power: SimPower,
    /// Somebody has pages of the files.
    pages_lent: bool,
    /// Handles on files that are open; counted without the lock, since a handle may be dropped under it.
    open_files: Arc<AtomicUsize>,
    /// Everything that was ever asked, in order.
    digest: u64,
}

impl State {
    pub(super) fn new(seed: u64, power: SimPower) -> Self {
        Self {
            dice: Dice::new(seed),
            epoch: 0,
            dirs: BTreeSet::new(),
            live: BTreeMap::new(),
            durable: BTreeMap::new(),
            faults: FaultPlan::new(),
            rates: FaultRates::default(),
            has_hung: false,
            power,
            pages_lent: false,
            open_files: Arc::default(),
            digest: 0,
        }
    }

    pub(super) fn open_files(&self) -> &Arc<AtomicUsize> {
        &self.open_files
    }

    pub(super) fn digest(&self) -> u64 {
        self.digest
    }

    pub(super) fn set_rates(&mut self, rates: FaultRates) {
        self.rates = rates;
    }

    pub(super) fn has_hung(&self) -> bool {
        self.has_hung
    }

    pub(super) fn rates(&self) -> FaultRates {
        self.rates
    }

    pub(super) fn lend_pages(&mut self, lent: bool) {
        self.pages_lent = lent;
    }

    pub(super) fn pages_lent(&self) -> bool {
        self.pages_lent
    }

    /// Turns that an operation waits before its next step.
    pub(super) fn turns(&mut self) -> u32 {
        if self.rates.slow_turns_max > 0 && self.dice.below(4) == 0 {
            return self.dice.below(u64::from(self.rates.slow_turns_max) + 1) as u32;
        }
        u32::from(self.dice.coin())
    }

    /// Time that it waits besides, if it does.
    pub(super) fn pause(&mut self) -> Option<Duration> {
        if self.rates.hangs.hits(&mut self.dice) {
            self.has_hung = true;
            return Some(Duration::from_secs(1 + self.dice.below(HANGS_S_MAX)));
        }
        let is_slow = self.rates.slow_ms_max > 0 && self.dice.coin();
        is_slow.then(|| Duration::from_millis(1 + self.dice.below(self.rates.slow_ms_max.into())))
    }

    /// Adds to the digest what was asked and how it went.
    fn note(&mut self, what: u64, offset: u64, bytes: u64) {
        for word in [what, offset, bytes] {
            self.digest = (self.digest ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
        }
    }

    pub(super) fn image(&self) -> DiskImage {
        let files = self.live.iter().map(|(path, inode)| (path.clone(), inode.lock().medium().clone()));
        DiskImage { dirs: self.dirs.clone(), files: files.collect() }
    }

    /// The medium holds `image` and nothing else.
    pub(super) fn restore(&mut self, image: &DiskImage) {
        self.kill();
        self.dirs = image.dirs.clone();
        let inode = |content: &super::content::Content| Arc::new(Mutex::new(Inode::on_medium(content.clone())));
        self.live = image.files.iter().map(|(path, content)| (path.clone(), inode(content))).collect();
        self.durable = self.live.clone();
    }

    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// One step of an operation begins: fails if it is of an older epoch, the power is out, or the disk is offline.
    pub(super) fn check_alive(&self, epoch: u64) -> io::Result<()> {
        if epoch != self.epoch || !self.power.step() {
            return Err(io::Error::new(io::ErrorKind::NotConnected, "the simulated machine crashed"));
        }
        if self.faults.offline == Some(true) {
            return Err(io::Error::new(io::ErrorKind::NotConnected, "the simulated disk is offline"));
        }
        Ok(())
    }

    pub(super) fn kill(&mut self) {
        self.epoch += 1;
    }

    pub(super) fn crash(&mut self, seed: u64) {
        self.kill();
        let mut dice = Dice::new(seed);
        let names: BTreeSet<String> = self.live.keys().chain(self.durable.keys()).cloned().collect();
        let mut survivors = BTreeMap::new();
        for name in names {
            let (live, durable) = (self.live.get(&name), self.durable.get(&name));
            let settled = matches!((live, durable), (Some(live), Some(durable)) if Arc::ptr_eq(live, durable));
            let kept = if settled || dice.coin() { live } else { durable };
            if let Some(inode) = kept {
                inode.lock().lose_power(&mut dice);
                survivors.insert(name, Arc::clone(inode));
            }
        }
        self.durable = survivors.clone();
        self.live = survivors;
    }

    pub(super) fn inject(&mut self, mut plan: FaultPlan) {
        for (path, offset) in std::mem::take(&mut plan.flips) {
            let inode = self.live.get(&path).unwrap_or_else(|| panic!("no file {path} to corrupt"));
            assert!(inode.lock().flip_bit(offset), "file {path} has no byte {offset} to corrupt");
        }
        self.faults.merge(plan);
    }

    pub(super) fn used_bytes(&self) -> u64 {
        self.live.values().map(|inode| inode.lock().allocated_bytes()).sum()
    }

    pub(super) fn paths(&self) -> Vec<String> {
        self.live.keys().cloned().collect()
    }

    pub(super) fn space(&self) -> Space {
        let total_bytes = self.faults.capacity_bytes.unwrap_or(UNLIMITED_BYTES);
        Space { total_bytes, available_bytes: total_bytes.saturating_sub(self.used_bytes()) }
    }

    pub(super) fn create(&mut self, path: &str, preallocate_bytes: u64) -> io::Result<InodeRef> {
        self.note(1, path.len() as u64, preallocate_bytes);
        self.check_room(preallocate_bytes)?;
        self.make_dirs(path)?;
        if self.live.contains_key(path) || self.dirs.contains(path) {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, format!("{path} exists")));
        }
        let inode = InodeRef::default();
        if preallocate_bytes > 0 {
            inode.lock().set_len(preallocate_bytes);
        }
        self.live.insert(path.to_owned(), Arc::clone(&inode));
        Ok(inode)
    }

    pub(super) fn open(&self, path: &str) -> io::Result<InodeRef> {
        if self.dirs.contains(path) {
            return Err(io::Error::new(io::ErrorKind::IsADirectory, format!("{path} is a directory")));
        }
        self.live.get(path).cloned().ok_or_else(|| not_found(path))
    }

    pub(super) fn list(&self, dir: &str) -> io::Result<Vec<DirEntry>> {
        self.check_dir(dir)?;
        let dirs = self.dirs.iter().map(|path| (path, true, 0));
        let files = self.live.iter().map(|(path, inode)| (path, false, inode.lock().len()));
        let mut entries: Vec<_> = dirs
            .chain(files)
            .filter(|(path, ..)| path::split(path).0 == dir)
            .map(|(path, is_dir, len)| DirEntry { name: path::split(path).1.to_owned(), is_dir, len })
            .collect();
        entries.sort();
        Ok(entries)
    }

    pub(super) fn read_file(&mut self, path: &str, max_bytes: usize) -> io::Result<Bytes> {
        let inode = self.open(path)?;
        self.note(2, path.len() as u64, inode.lock().len());
        self.faults.reads.step()?;
        self.rates.read_fails.strikes(&mut self.dice)?;
        let inode = inode.lock();
        if inode.len() > max_bytes as u64 {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("{path} has {} bytes", inode.len())));
        }
        Ok(inode.read(0, max_bytes))
    }

    /// Step 1 of `write_file`: new content beside the old, synced.
    pub(super) fn write_replacement(&mut self, replacement: &InodeRef, bytes: &Bytes) -> io::Result<()> {
        self.note(3, 0, bytes.len() as u64);
        self.faults.writes.step()?;
        self.rates.write_fails.strikes(&mut self.dice)?;
        self.check_room(bytes.len() as u64)?;
        self.faults.syncs.step()?;
        self.rates.sync_fails.strikes(&mut self.dice)?;
        let mut inode = replacement.lock();
        inode.write(0, bytes.clone());
        inode.sync();
        Ok(())
    }

    /// Step 2 of `write_file`: the name means the new content.
    pub(super) fn rename_over(&mut self, path: &str, replacement: InodeRef) -> io::Result<()> {
        self.make_dirs(path)?;
        if self.dirs.contains(path) {
            return Err(io::Error::new(io::ErrorKind::IsADirectory, format!("{path} is a directory")));
        }
        self.live.insert(path.to_owned(), replacement);
        Ok(())
    }

    pub(super) fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        if self.dirs.contains(to) {
            return Err(io::Error::new(io::ErrorKind::IsADirectory, format!("{to} is a directory")));
        }
        let inode = self.open(from)?;
        self.live.remove(from);
        self.live.insert(to.to_owned(), inode);
        Ok(())
    }

    pub(super) fn unlink(&mut self, path: &str) -> io::Result<()> {
        if self.dirs.contains(path) {
            return Err(io::Error::new(io::ErrorKind::IsADirectory, format!("{path} is a directory")));
        }
        self.note(4, path.len() as u64, 0);
        self.live.remove(path);
        Ok(())
    }

    pub(super) fn sync_dir(&mut self, dir: &str) -> io::Result<()> {
        self.check_dir(dir)?;
        self.note(5, dir.len() as u64, 0);
        self.faults.syncs.step()?;
        self.rates.sync_fails.strikes(&mut self.dice)?;
        self.durable.retain(|path, _| path::split(path).0 != dir);
        let live = self.live.iter().filter(|(path, _)| path::split(path).0 == dir);
        self.durable.extend(live.map(|(path, inode)| (path.clone(), Arc::clone(inode))));
        Ok(())
    }

    pub(super) fn read_at(&mut self, inode: &InodeRef, offset: u64, len: usize) -> io::Result<Bytes> {
        self.note(6, offset, len as u64);
        self.faults.reads.step()?;
        self.rates.read_fails.strikes(&mut self.dice)?;
        let len =
            if self.rates.short_reads.hits(&mut self.dice) { self.dice.below(len as u64 + 1) as usize } else { len };
        Ok(inode.lock().read(offset, len))
    }

    pub(super) fn write_at(&mut self, inode: &InodeRef, offset: u64, parts: &[Bytes]) -> io::Result<()> {
        let bytes = parts.iter().map(|part| part.len() as u64).sum::<u64>();
        self.note(7, offset, bytes);
        let failed = self.faults.writes.step().and_then(|()| self.rates.write_fails.strikes(&mut self.dice));
        let inode = &match self.rates.misdirected_writes.hits(&mut self.dice) {
            true => self.any_file().unwrap_or_else(|| Arc::clone(inode)),
            false => Arc::clone(inode),
        };
        let mut at = offset;
        if failed.is_ok() {
            let growth = inode.lock().growth_bytes(offset, bytes);
            self.check_room(growth)?;
        }
        let mut inode = inode.lock();
        for part in parts.iter().filter(|part| !part.is_empty()) {
            match failed {
                Ok(()) => inode.write(at, part.clone()),
                Err(_) => inode.write_torn(at, part, &mut self.dice),
            }
            at += part.len() as u64;
        }
        failed
    }

    /// A file that a misdirected write hits.
    fn any_file(&mut self) -> Option<InodeRef> {
        let count = self.live.len() as u64;
        let at = if count > 0 { self.dice.below(count) } else { return None };
        self.live.values().nth(at as usize).cloned()
    }

    /// Flips `count` bits anywhere in the bytes that the files hold; fewer if there are no files.
    pub(super) fn rot(&mut self, count: u32) {
        for _ in 0..count {
            let Some(inode) = self.any_file() else { return };
            let mut inode = inode.lock();
            if let Some(offset) = inode.any_offset(&mut self.dice) {
                inode.flip_bit(offset);
            }
        }
    }

    pub(super) fn set_len(&mut self, inode: &InodeRef, len: u64) -> io::Result<()> {
        self.note(8, len, 0);
        self.faults.writes.step()?;
        self.rates.write_fails.strikes(&mut self.dice)?;
        let growth = len.saturating_sub(inode.lock().len());
        self.check_room(growth)?;
        inode.lock().set_len(len);
        Ok(())
    }

    pub(super) fn punch(&mut self, inode: &InodeRef, offset: u64, len: u64) -> io::Result<()> {
        self.faults.writes.step()?;
        inode.lock().punch(offset, len);
        Ok(())
    }

    /// Zeros that are on the medium when this returns, and nothing of it if it fails.
    pub(super) fn prewrite(&mut self, inode: &InodeRef, offset: u64, len: u64) -> io::Result<()> {
        self.note(10, offset, len);
        self.faults.writes.step()?;
        self.rates.write_fails.strikes(&mut self.dice)?;
        let growth = inode.lock().growth_bytes(offset, len);
        self.check_room(growth)?;
        inode.lock().prewrite(offset, len);
        Ok(())
    }

    pub(super) fn sync(&mut self, inode: &InodeRef) -> io::Result<()> {
        self.note(9, inode.lock().len(), 0);
        let stepped = self.faults.syncs.step().and_then(|()| self.rates.sync_fails.strikes(&mut self.dice));
        match stepped {
            Ok(()) => inode.lock().sync(),
            Err(_) => inode.lock().sync_failed(),
        }
        stepped
    }

    /// Makes the directories that the file `path` lies in.
    fn make_dirs(&mut self, path: &str) -> io::Result<()> {
        for (end, _) in path.match_indices('/') {
            let dir = &path[..end];
            if self.live.contains_key(dir) {
                return Err(io::Error::new(io::ErrorKind::NotADirectory, format!("{dir} is a file")));
            }
            self.dirs.insert(dir.to_owned());
        }
        Ok(())
    }

    fn check_dir(&self, dir: &str) -> io::Result<()> {
        if self.live.contains_key(dir) {
            return Err(io::Error::new(io::ErrorKind::NotADirectory, format!("{dir} is a file")));
        }
        if dir.is_empty() || self.dirs.contains(dir) { Ok(()) } else { Err(not_found(dir)) }
    }

    fn check_room(&self, growth_bytes: u64) -> io::Result<()> {
        match self.faults.capacity_bytes {
            Some(capacity) if growth_bytes > 0 && self.used_bytes().saturating_add(growth_bytes) > capacity => {
                Err(io::Error::new(io::ErrorKind::StorageFull, "the simulated disk is full"))
            }
            _ => Ok(()),
        }
    }
}

fn not_found(path: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("no {path}"))
}
