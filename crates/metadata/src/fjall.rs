//! The embedded engine: fjall 3, an LSM tree in Rust.
//!
//! One keyspace per table; a commit is one atomic batch in the journal, handed to the kernel but not synced, so a
//! killed process loses nothing and a power cut some last commits; `persist` syncs the journal. Writers take turns:
//! that makes preconditions atomic with the writes, and fjall's journal has one writer anyway. Reads go through
//! snapshots.
//!
//! What fjall leaves to us:
//!
//! - *Journals that end early.* fjall reads its journal up to the first record that makes no sense and drops the rest, as it
//!   must after a power cut, but so it does when a bit of what was persisted has flipped. Therefore every `persist` writes
//!   a *seal*: one row with the same count in every keyspace, and the count in a file beside the database once the journal
//!   is synced. An index whose seals differ, or are below the file's count, lost persisted commits.
//! - *Files that are gone.* A missing keyspace or journal would be created afresh. Both are looked for at open.
//! - *Batches that are seen in part.* What fjall shows is all below a sequence number, and a flush or a compaction that ends moves that on while a batch is being put into
//!   memtables row by row. Who reads until it is done gets what was before that batch.
//! - *Writers that wait behind their batch*, for ever once a worker of fjall has failed. [`room`] has them wait before it, and asks.
//! - *Sequence numbers in the journal*, which no checksum covers ([`journal`]).
//! - *Tables that are ahead of the journal.* Who writes a memtable to a table syncs the journal before, but then may write a later one, too, that was sealed while it waited for its turn. What a power cut
//!   leaves of such commits is one table's rows, and no others: at open no table may have more than the journal, or all tables, have.
//! - *Names.* fjall syncs its files and most of its directories, but not the one that names the keyspaces. All directories are synced at
//!   creation, before the mark that says that it is finished, and that of the index itself with them.
//! - *Panics.* Whatever unwinds out of fjall becomes `Corrupt`.
//! - *Corruption met while running* is written down in the directory, so that the next open reports it.

mod fault;
mod ingest;
mod journal;
mod mark;
mod room;
mod walk;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicU32},
};

use bytes::Bytes;
use fjall::{AbstractTree, Database, Keyspace, KeyspaceCreateOptions, OwnedWriteBatch, PersistMode, Readable};
use parking_lot::{Mutex, RwLock};

use self::{fault::guarded, ingest::FjallIngest, mark::Mark, walk::FjallWalk};
use crate::{
    Index, IndexError, IndexOptions, IndexSnapshot, IndexStats, Ingest, Order, Precondition, Rows, ScanRange, Table,
    Value, Walk, Write,
};

/// Directory of fjall's files inside the index directory.
const DATABASE_DIR: &str = "fjall";
/// Names why the index must not be trusted, once that is known.
const DISTRUST_FILE: &str = "corrupt";
/// Key of the seal in every keyspace: shorter than any row's key and below all of them.
const SEAL_KEY: &[u8] = &[0];
/// Version of what this module adds to fjall's format; first byte of a seal.
const SEAL_VERSION: u8 = 1;
/// Smallest journal bound that fjall takes, in bytes.
const JOURNAL_BYTES_MIN: u64 = 64 << 20;

/// An index in a directory of its own on a local file system; one process at a time.
///
/// Start after a kill: fjall replays its whole journal, flushed commits included. Killed with the longest journal that 2 M
/// commits of three rows made at the default bound of 64 MiB (136 MiB) it opened in 1.0 s; with a bound of 512 MiB
/// (607 MiB) in 6.5 s. `cargo run --release --ignore-rust-version -p gabion-metadata --example open_after_kill 2000000 64`
/// prints this, on two cores of a loaded machine.
pub struct FjallIndex {
    dir: PathBuf,
    database: Database,
    tables: Tables,
    /// Held over every commit.
    commits: Mutex<()>,
    /// What was before the commit that is on its way, or before one that failed.
    before: RwLock<Option<fjall::Snapshot>>,
    /// Looks at tables that were behind.
    looks: AtomicU32,
    /// Held over every persist: the count of the last seal, and where it is written down.
    seal: Mutex<Seal>,
}

/// Number of tables, as the mark says it.
const TABLES: u8 = Table::ALL.len() as u8;

#[derive(Clone)]
struct Tables(Arc<[Keyspace; Table::ALL.len()]>);

struct Seal {
    count: u64,
    mark: Mark,
}

struct FjallSnapshot {
    dir: PathBuf,
    tables: Tables,
    snapshot: fjall::Snapshot,
}

impl FjallIndex {
    /// Opens the index in `dir`, or creates an empty one when there is none.
    ///
    /// # Errors
    /// `Corrupt` when it can not be trusted: [`FjallIndex::remove`] it and rebuild. `Locked` when another process has it
    /// open. `Io` when the system failed.
    pub fn open(dir: &Path, options: IndexOptions) -> Result<Self, IndexError> {
        match fs::read_to_string(dir.join(DISTRUST_FILE)) {
            Ok(reason) => return Err(IndexError::Corrupt(reason)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
        let is_new = !dir.join(DATABASE_DIR).try_exists()?;
        if is_new { Self::create(dir, options) } else { Self::recover(dir, options) }
    }

    /// Deletes the index in `dir`, so that an empty one can be created. What is no part of it stays.
    ///
    /// # Errors
    /// `Locked` or `Io`.
    pub fn remove(dir: &Path) -> Result<(), IndexError> {
        let database = dir.join(DATABASE_DIR);
        fault::unless_locked(&database)?;
        // The mark goes last: without it what is left of the database is never taken for an index.
        for result in [fs::remove_dir_all(&database), fs::remove_file(dir.join(DISTRUST_FILE)), Mark::remove(dir)] {
            match result {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
                _ => {}
            }
        }
        Ok(())
    }

    fn create(dir: &Path, options: IndexOptions) -> Result<Self, IndexError> {
        fs::create_dir_all(dir)?;
        let database = open_database(dir, options)?;
        let index = Self::over(dir, database, Seal { count: 0, mark: Mark::create(dir, TABLES)? })?;
        index.persist()?;
        // Without a name that lasts nothing in it does: fjall leaves out the directories of its keyspaces.
        sync_names(dir)?;
        index.seal.lock().mark.sync(dir)?;
        Ok(index)
    }

    fn recover(dir: &Path, options: IndexOptions) -> Result<Self, IndexError> {
        let mark = Mark::open(dir)?;
        let journaled = journal::check(&dir.join(DATABASE_DIR))?;
        let database = open_database(dir, options)?;
        let (marked, tables) = (mark.count(), mark.tables());
        if tables > TABLES {
            return Err(IndexError::Corrupt(format!("it has {tables} tables: it was written by a newer program")));
        }
        let known = &Table::ALL[..usize::from(tables)];
        for table in known {
            if !database.keyspace_exists(table.name()) {
                return Err(IndexError::Corrupt(format!("the keyspace {table} is gone")));
            }
        }
        let index = Self::over(dir, database, Seal { count: 0, mark })?;
        index.check_tables(known, journaled)?;
        let count = index.check_seals(known)?;
        if count < marked {
            return Err(IndexError::Corrupt(format!("the journal ends at seal {count}, seal {marked} was persisted")));
        }
        let mut seal = index.seal.lock();
        seal.count = count;
        if tables < TABLES {
            // An older program's: tables that it did not have begin empty, with a seal. Nothing is written to them before that is durable.
            seal.mark.set_tables(TABLES);
            drop(seal);
            index.persist()?;
            sync_names(dir)?;
            index.seal.lock().mark.sync(dir)?;
        } else {
            drop(seal);
        }
        index.check()?;
        Ok(index)
    }

    fn over(dir: &Path, database: Database, seal: Seal) -> Result<Self, IndexError> {
        let keyspace = |table: Table| guarded(|| database.keyspace(table.name(), || keyspace_options(table)));
        let mut keyspaces = Vec::with_capacity(Table::ALL.len());
        for table in Table::ALL {
            keyspaces.push(keyspace(table)?);
        }
        let keyspaces = keyspaces.try_into().map_err(|_| IndexError::Closed)?;
        Ok(Self {
            dir: dir.to_owned(),
            database,
            tables: Tables(Arc::new(keyspaces)),
            commits: Mutex::new(()),
            before: RwLock::new(None),
            looks: AtomicU32::new(0),
            seal: Mutex::new(seal),
        })
    }

    /// Commits are whole up to the last that is in a journal, as far as all `tables` reach, too; none may have a row of a later one.
    fn check_tables(&self, tables: &[Table], journaled: u64) -> Result<(), IndexError> {
        let highest = |table: Table| Ok(self.tables.of(table).tree.get_highest_persisted_seqno().unwrap_or(0));
        let mut written = Vec::with_capacity(tables.len());
        for &table in tables {
            written.push((guarded(|| highest(table))?, table));
        }
        let everywhere = written.iter().map(|(highest, _)| *highest).min().unwrap_or(0);
        let whole = everywhere.max(journaled);
        match written.iter().find(|(highest, _)| *highest > whole) {
            None => Ok(()),
            Some((highest, table)) => Err(IndexError::Corrupt(format!(
                "the table {table} has rows of commit {highest}, and commits are there as a whole only up to {whole}"
            ))),
        }
    }

    /// Reads the seals of the keyspaces of `tables`, which must agree; returns their count.
    fn check_seals(&self, tables: &[Table]) -> Result<u64, IndexError> {
        let snapshot = self.whole();
        let mut counts = Vec::with_capacity(tables.len());
        for &table in tables {
            let seal = guarded(|| snapshot.get(self.tables.of(table), SEAL_KEY))?;
            let count = seal.as_deref().and_then(decode_seal);
            counts.push(count.ok_or_else(|| IndexError::Corrupt(format!("the keyspace {table} has no seal")))?);
        }
        match counts.iter().all(|count| *count == counts[0]) {
            true => Ok(counts[0]),
            false => Err(IndexError::Corrupt(format!("commits are missing: the seals of the tables are {counts:?}"))),
        }
    }

    /// A snapshot that has every batch as a whole or not at all.
    fn whole(&self) -> fjall::Snapshot {
        match &*self.before.read() {
            Some(before) => before.clone(),
            None => self.database.snapshot(),
        }
    }

    /// Makes a batch visible in one step. `commits` is held.
    fn commit_batch(&self, batch: OwnedWriteBatch) -> Result<(), IndexError> {
        watched(&self.dir, || {
            // What a commit that failed has left of itself is not seen until the index is opened again.
            if self.before.read().is_none() {
                let now = self.database.snapshot();
                *self.before.write() = Some(now);
            }
            batch.commit()?;
            let before = self.before.write().take();
            drop(before);
            Ok(())
        })
    }

    fn reader(&self) -> FjallSnapshot {
        FjallSnapshot { dir: self.dir.clone(), tables: self.tables.clone(), snapshot: self.whole() }
    }
}

/// Makes durable the names of all files and directories in `dir`, and its own.
fn sync_names(dir: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            sync_names(&entry.path())?;
        }
    }
    fs::File::open(dir)?.sync_all()?;
    match dir.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => fs::File::open(parent)?.sync_all(),
        _ => Ok(()),
    }
}

impl Index for FjallIndex {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Value>, IndexError> {
        watched(&self.dir, || get(&self.whole(), &self.tables, table, key))
    }

    fn scan(&self, range: ScanRange, limit: usize) -> Result<Rows, IndexError> {
        watched(&self.dir, || scan(&self.whole(), &self.tables, &range, limit))
    }

    fn snapshot(&self) -> Arc<dyn IndexSnapshot> {
        Arc::new(self.reader())
    }

    fn walk(&self, tables: &[Table]) -> Result<Box<dyn Walk>, IndexError> {
        Ok(Box::new(FjallWalk::begin(&self.dir, tables, &self.tables, &self.whole())?))
    }

    fn commit(&self, preconditions: &[Precondition], writes: Vec<Write>) -> Result<(), IndexError> {
        writes.iter().try_for_each(Write::check)?;
        let _one_at_a_time = self.commits.lock();
        for precondition in preconditions {
            let row = self.get(precondition.table(), precondition.key())?;
            if !precondition.holds(row.as_deref()) {
                return Err(precondition.conflict());
            }
        }
        let mut tables = [false; Table::ALL.len()];
        writes.iter().for_each(|write| tables[write.table() as usize] = true);
        self.wait_for_room(|table| tables[table as usize])?;
        let mut batch = self.database.batch();
        for write in writes {
            // A batch has one sequence number: of two writes of a row the memtable and the journal keep the later.
            match write {
                Write::Put(table, key, row) => batch.insert(self.tables.of(table), key, row),
                Write::Delete(table, key) => batch.remove(self.tables.of(table), key),
            }
        }
        self.commit_batch(batch)
    }

    fn ingest(&self, table: Table) -> Result<Box<dyn Ingest + '_>, IndexError> {
        Ok(Box::new(FjallIngest::begin(&self.dir, table, self.tables.of(table).clone())?))
    }

    fn persist(&self) -> Result<(), IndexError> {
        let mut seal = self.seal.lock();
        let count = seal.count + 1;
        {
            let _one_at_a_time = self.commits.lock();
            self.wait_for_room(|_| true)?;
            let mut batch = self.database.batch();
            for table in Table::ALL {
                batch.insert(self.tables.of(table), SEAL_KEY, encode_seal(count));
            }
            self.commit_batch(batch)?;
        }
        seal.count = count;
        watched(&self.dir, || self.database.persist(PersistMode::SyncAll))?;
        seal.mark.set(count)?;
        Ok(())
    }

    fn check(&self) -> Result<(), IndexError> {
        self.check_seals(&Table::ALL)?;
        let snapshot = self.reader();
        for table in Table::ALL {
            snapshot.scan(ScanRange::all(table), 1)?;
            snapshot.scan(ScanRange::all(table).descending(), 1)?;
        }
        Ok(())
    }

    fn is_behind(&self) -> bool {
        self.lacks_room()
    }

    fn available_bytes(&self) -> Option<u64> {
        let room = rustix::fs::statvfs(&self.dir).ok()?;
        Some(room.f_bavail.saturating_mul(room.f_frsize))
    }

    fn stats(&self) -> IndexStats {
        // Figures only: what can not be had is none.
        let disk_bytes = bytes_below(&self.dir.join(DATABASE_DIR)).unwrap_or(0);
        let journal_bytes = guarded(|| self.database.journal_disk_space()).unwrap_or(0);
        IndexStats { disk_bytes, journal_bytes, ..IndexStats::default() }
    }
}

/// Length of all files below `dir`. fjall's own figure leaves out the tables that were merged since, which a walk or a snapshot keeps on disk.
fn bytes_below(dir: &Path) -> std::io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        // What is gone by now takes nothing.
        let taken = match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => bytes_below(&entry.path()),
            Ok(metadata) => Ok(metadata.len()),
            Err(error) => Err(error),
        };
        match taken {
            Ok(taken) => bytes += taken,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(bytes)
}

impl IndexSnapshot for FjallSnapshot {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Value>, IndexError> {
        watched(&self.dir, || get(&self.snapshot, &self.tables, table, key))
    }

    fn scan(&self, range: ScanRange, limit: usize) -> Result<Rows, IndexError> {
        watched(&self.dir, || scan(&self.snapshot, &self.tables, &range, limit))
    }
}

impl Tables {
    fn of(&self, table: Table) -> &Keyspace {
        &self.0[table as usize]
    }
}

/// Opens or creates fjall's database.
fn open_database(dir: &Path, options: IndexOptions) -> Result<Database, IndexError> {
    let path = dir.join(DATABASE_DIR);
    let builder = Database::builder(&path)
        .cache_size(options.cache_bytes)
        .worker_threads(worker_threads())
        .max_journaling_size(options.journal_bytes_max.max(JOURNAL_BYTES_MIN));
    match guarded(|| builder.open()) {
        Err(IndexError::Locked(_)) => Err(IndexError::Locked(dir.to_owned())),
        other => other,
    }
}

/// As many as fjall has by itself, but three instead of two: the first of several compacts nothing, and while all others do it takes the message that there is more to be compacted, and puts it
/// back, without a pause. Of two, each compaction kept both cores busy.
fn worker_threads() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| if cores.get() == 2 { 3 } else { cores.get().min(4) })
}

/// Sizes of memtables: their sum (times the few that wait to be written) bounds memory, and what does not fit one goes to a
/// small table that must be compacted again. Objects are the bulk of all rows; filters are fjall's default: on.
fn memtable_bytes(table: Table) -> u64 {
    match table {
        Table::Object => 32 << 20,
        Table::Part | Table::Manifest | Table::Version => 16 << 20,
        Table::Bucket | Table::Upload | Table::Segment | Table::Usage | Table::System | Table::Config => 8 << 20,
    }
}

fn keyspace_options(table: Table) -> KeyspaceCreateOptions {
    KeyspaceCreateOptions::default().max_memtable_size(memtable_bytes(table))
}

fn encode_seal(count: u64) -> [u8; 9] {
    let mut seal = [SEAL_VERSION; 9];
    seal[1..].copy_from_slice(&count.to_be_bytes());
    seal
}

fn decode_seal(seal: &[u8]) -> Option<u64> {
    let (&version, count) = seal.split_first()?;
    (version == SEAL_VERSION).then_some(u64::from_be_bytes(count.try_into().ok()?))
}

/// Decodes what this module reads by itself.
#[cfg(feature = "fuzzing")]
pub(crate) fn read_state_files(bytes: &[u8]) {
    let _ = mark::decode(bytes);
    let _ = decode_seal(bytes);
    journal::read(bytes);
}

/// The row is copied: a slice of fjall's would keep the whole block that it lies in, also in a row cache.
fn get(snapshot: &fjall::Snapshot, tables: &Tables, table: Table, key: &[u8]) -> Result<Option<Value>, fjall::Error> {
    if key.len() <= SEAL_KEY.len() {
        return Ok(None);
    }
    Ok(snapshot.get(tables.of(table), key)?.map(|row| Bytes::copy_from_slice(&row)))
}

fn scan(snapshot: &fjall::Snapshot, tables: &Tables, range: &ScanRange, limit: usize) -> Result<Rows, fjall::Error> {
    let range = range.clone().after(SEAL_KEY);
    if range.is_empty() {
        return Ok(Vec::new());
    }
    let rows = snapshot.range::<&[u8], _>(tables.of(range.table), range.bounds());
    let owned = |row: fjall::Guard| {
        let (key, row) = row.into_inner()?;
        Ok((key.to_vec(), Bytes::copy_from_slice(&row)))
    };
    match range.order {
        Order::Ascending => rows.take(limit).map(owned).collect(),
        Order::Descending => rows.rev().take(limit).map(owned).collect(),
    }
}

/// Runs a call of a running index; corruption that it meets is written down for the next open.
fn watched<T>(dir: &Path, call: impl FnOnce() -> Result<T, fjall::Error>) -> Result<T, IndexError> {
    guarded(call).inspect_err(|error| {
        if let IndexError::Corrupt(reason) = error
            && let Err(error) = fs::write(dir.join(DISTRUST_FILE), reason)
        {
            tracing::error!(%error, "the index is corrupt and that can not be written down");
        }
    })
}

#[cfg(test)]
mod tests;
