//! The whole simulated disk: names, faults, and the steps that operations are made of.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use super::faults::FaultPlan;
use super::inode::Inode;
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
}

impl State {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            dice: Dice::new(seed),
            epoch: 0,
            dirs: BTreeSet::new(),
            live: BTreeMap::new(),
            durable: BTreeMap::new(),
            faults: FaultPlan::new(),
        }
    }

    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }

    pub(super) fn dice(&mut self) -> &mut Dice {
        &mut self.dice
    }

    /// Fails if the operation is of an older epoch, or the disk is offline.
    pub(super) fn check_alive(&self, epoch: u64) -> io::Result<()> {
        if epoch != self.epoch {
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
        self.live.values().map(|inode| inode.lock().len()).sum()
    }

    pub(super) fn paths(&self) -> Vec<String> {
        self.live.keys().cloned().collect()
    }

    pub(super) fn space(&self) -> Space {
        let total_bytes = self.faults.capacity_bytes.unwrap_or(UNLIMITED_BYTES);
        Space { total_bytes, available_bytes: total_bytes.saturating_sub(self.used_bytes()) }
    }

    pub(super) fn create(&mut self, path: &str, preallocate_bytes: u64) -> io::Result<InodeRef> {
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
        self.faults.reads.step()?;
        let inode = inode.lock();
        if inode.len() > max_bytes as u64 {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("{path} has {} bytes", inode.len())));
        }
        Ok(inode.read(0, max_bytes))
    }

    /// Step 1 of `write_file`: new content beside the old, synced.
    pub(super) fn write_replacement(&mut self, replacement: &InodeRef, bytes: &Bytes) -> io::Result<()> {
        self.faults.writes.step()?;
        self.check_room(bytes.len() as u64)?;
        self.faults.syncs.step()?;
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
        self.live.remove(path);
        Ok(())
    }

    pub(super) fn sync_dir(&mut self, dir: &str) -> io::Result<()> {
        self.check_dir(dir)?;
        self.faults.syncs.step()?;
        self.durable.retain(|path, _| path::split(path).0 != dir);
        let live = self.live.iter().filter(|(path, _)| path::split(path).0 == dir);
        self.durable.extend(live.map(|(path, inode)| (path.clone(), Arc::clone(inode))));
        Ok(())
    }

    pub(super) fn read_at(&mut self, inode: &InodeRef, offset: u64, len: usize) -> io::Result<Bytes> {
        self.faults.reads.step()?;
        Ok(inode.lock().read(offset, len))
    }

    pub(super) fn write_at(&mut self, inode: &InodeRef, offset: u64, parts: &[Bytes]) -> io::Result<()> {
        let failed = self.faults.writes.step();
        let mut at = offset;
        let end = offset + parts.iter().map(|part| part.len() as u64).sum::<u64>();
        if failed.is_ok() {
            let growth = end.saturating_sub(inode.lock().len());
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

    pub(super) fn set_len(&mut self, inode: &InodeRef, len: u64) -> io::Result<()> {
        self.faults.writes.step()?;
        let growth = len.saturating_sub(inode.lock().len());
        self.check_room(growth)?;
        inode.lock().set_len(len);
        Ok(())
    }

    pub(super) fn sync(&mut self, inode: &InodeRef) -> io::Result<()> {
        let stepped = self.faults.syncs.step();
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
