use std::{
    io::{Read, Seek, SeekFrom, Write as _},
    os::unix::fs::FileExt,
    process::Command,
    sync::Weak,
    thread,
};

use tempfile::TempDir;

use super::*;
use crate::{
    CachedIndex, WalkedRow,
    conformance::{self, Fixture},
};

const SMALL: IndexOptions = IndexOptions { cache_bytes: 1 << 20, journal_bytes_max: 0, row_cache_bytes: 1 << 20 };

fn copy_dir(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            copy_dir(&from, &to)?;
        } else if from.extension().is_some_and(|ext| ext == "jnl") {
            copy_sparse(&from, &to)?;
        } else {
            fs::copy(from, to)?;
        }
    }
    Ok(())
}

/// Names and lengths of all files.
fn listing(dir: &Path) -> std::io::Result<Vec<(PathBuf, u64)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => files.extend(listing(&entry.path())?),
            false => files.push((entry.path(), entry.metadata()?.len())),
        }
    }
    files.sort();
    Ok(files)
}

/// The same with long journals.
fn copy_all(from: &Path, to: &Path) {
    let copied = Command::new("cp").args(["-r", "--sparse=always"]).args([&from.join("."), to]).status();
    assert!(copied.unwrap().success());
}

/// Journals are 64 MB of mostly nothing.
fn copy_sparse(from: &Path, to: &Path) -> std::io::Result<()> {
    let len = fs::metadata(from)?.len();
    let written = written_bytes(from);
    let mut copy = fs::File::create(to)?;
    copy.write_all(&read_head(from, written))?;
    copy.set_len(len)
}

fn read_head(path: &Path, bytes: u64) -> Vec<u8> {
    let mut head = Vec::new();
    fs::File::open(path).unwrap().take(bytes).read_to_end(&mut head).unwrap();
    head
}

/// Bytes of a small journal before the zeros of its preallocation.
fn written_bytes(journal: &Path) -> u64 {
    let head = read_head(journal, 4 << 20);
    head.iter().rposition(|&byte| byte != 0).map_or(0, |last| last as u64 + 1)
}

fn journal(dir: &Path) -> PathBuf {
    dir.join(DATABASE_DIR).join("0.jnl")
}

/// A copy of the files of an open index: what a killed process leaves. The engine tidies up in the background: a copy that it did not hold still for
/// is of no one moment, and is made again.
fn killed(dir: &Path) -> TempDir {
    loop {
        let copy = tempfile::tempdir().unwrap();
        let copied = || {
            let before = listing(dir)?;
            copy_dir(dir, copy.path())?;
            Ok::<_, std::io::Error>(before == listing(dir)?)
        };
        match copied() {
            Ok(true) => return copy,
            Ok(false) => {}
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{error}"),
        }
    }
}

struct Crashing<F> {
    dir: TempDir,
    index: Option<Arc<dyn Index>>,
    open: F,
    power_cut: bool,
}

impl<F: Fn(&Path) -> Arc<dyn Index>> Crashing<F> {
    fn new(open: F, power_cut: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let index = Some(open(dir.path()));
        Self { dir, index, open, power_cut }
    }
}

impl<F: Fn(&Path) -> Arc<dyn Index>> Fixture for Crashing<F> {
    fn index(&self) -> Arc<dyn Index> {
        self.index.clone().unwrap()
    }

    fn crash_and_reopen(&mut self) {
        let copy = killed(self.dir.path());
        self.index = None;
        self.dir = copy;
        if self.power_cut {
            // The mark was not synced, the journal only up to the last seal, and then some bytes more.
            let journal = journal(self.dir.path());
            let bytes = read_head(&journal, written_bytes(&journal));
            let seal = bytes.windows(SEAL_KEY.len() + 9).rposition(|window| {
                window[0] == SEAL_KEY[0] && window[1] == SEAL_VERSION && window[2..9] == [0; 7] && window[9] > 0
            });
            // The batch of seals ends with the last of them, a checksum and a trailer.
            let end = bytes.len() as u64;
            let synced = seal.map_or(end, |seal| (seal + SEAL_KEY.len() + 9 + 13) as u64).min(end);
            cut(&journal, synced + (end - synced) * 2 / 3);
        }
        self.index = Some((self.open)(self.dir.path()));
    }
}

fn open(dir: &Path) -> Arc<dyn Index> {
    Arc::new(FjallIndex::open(dir, SMALL).unwrap())
}

fn open_cached(dir: &Path) -> Arc<dyn Index> {
    Arc::new(CachedIndex::new(FjallIndex::open(dir, SMALL).unwrap(), SMALL.row_cache_bytes))
}

#[test]
fn conforms_when_killed() {
    conformance::run(&|| Box::new(Crashing::new(open, false)));
}

#[test]
fn conforms_when_the_power_is_cut() {
    conformance::run(&|| Box::new(Crashing::new(open, true)));
}

#[test]
fn conforms_behind_a_cache() {
    conformance::run(&|| Box::new(Crashing::new(open_cached, false)));
}

fn put(table: Table, i: u32) -> Write {
    Write::Put(table, format!("row {i:06}").into_bytes(), vec![i as u8; 40])
}

/// Commits `i`, in several tables at once.
fn commit(index: &FjallIndex, i: u32) {
    let count = Write::Put(Table::Usage, b"count".to_vec(), i.to_be_bytes().to_vec());
    index.commit(&[], vec![put(Table::Object, i), put(Table::Segment, i), count]).unwrap();
}

/// Reads all; how many commits there are, when what is there is what they left.
fn commits(index: &FjallIndex) -> Result<u32, IndexError> {
    let count = index.get(Table::Usage, b"count")?;
    let count = count.map_or(0, |count| u32::from_be_bytes(count[..].try_into().unwrap()));
    for table in [Table::Object, Table::Segment] {
        let expected: Vec<_> = (1..=count).map(|i| put(table, i)).collect();
        let found = index.scan(ScanRange::all(table), usize::MAX)?;
        let found: Vec<_> = found.into_iter().map(|(key, row)| Write::Put(table, key, row.to_vec())).collect();
        assert!(found == expected, "{} rows in table {table}, {count} commits", found.len());
    }
    Ok(count)
}

fn is_corrupt<T>(result: Result<T, IndexError>) -> bool {
    matches!(result, Err(IndexError::Corrupt(_)))
}

/// Twenty commits, of which ten are persisted: where the journal ends with these, and where with all.
fn half_persisted() -> (TempDir, FjallIndex, u64, u64) {
    let dir = tempfile::tempdir().unwrap();
    let index = FjallIndex::open(dir.path(), SMALL).unwrap();
    (1..=10).for_each(|i| commit(&index, i));
    index.persist().unwrap();
    let persisted = written_bytes(&journal(dir.path()));
    (11..=20).for_each(|i| commit(&index, i));
    let end = written_bytes(&journal(dir.path()));
    (dir, index, persisted, end)
}

#[test]
fn any_cut_of_the_journal_leaves_a_prefix_or_is_corrupt() {
    let (dir, index, persisted, end) = half_persisted();
    let whole = killed(dir.path());
    drop(index);
    let mut last = 10;
    for kept in (0..persisted).step_by(97).chain((persisted..end).step_by(11)).chain([end]) {
        let saved = read_head(&journal(whole.path()), end);
        cut(&journal(whole.path()), kept);
        match FjallIndex::open(whole.path(), SMALL) {
            Ok(index) => {
                assert!(kept >= persisted, "{kept} of {persisted} persisted bytes were taken for all");
                let count = commits(&index).unwrap();
                assert!(count >= last, "cut at {kept}: {count} commits, {last} with less of the journal");
                last = count;
            }
            Err(error) => {
                assert!(kept < persisted && matches!(error, IndexError::Corrupt(_)), "cut at {kept}: {error}")
            }
        }
        fs::write(journal(whole.path()), saved).unwrap();
        cut(&journal(whole.path()), end);
        let _ = fs::remove_file(whole.path().join(DISTRUST_FILE));
    }
    assert_eq!(last, 20);
}

/// Cuts the journal behind its first `bytes`, as a power cut does that loses the rest.
fn cut(journal: &Path, bytes: u64) {
    let file = fs::OpenOptions::new().write(true).open(journal).unwrap();
    file.set_len(bytes).unwrap();
    file.set_len(64 << 20).unwrap();
}

/// Writes the memtables of `tables` to tables of the tree.
fn flush(index: &FjallIndex, tables: &[Table]) {
    tables.iter().for_each(|&table| index.tables.of(table).rotate_memtable_and_wait().unwrap());
}

/// A worker of fjall's that waits for its turn takes a memtable along that was sealed since it synced the journal.
#[test]
fn a_table_that_is_ahead_of_the_journal_is_found() {
    let (dir, index, persisted, end) = half_persisted();
    flush(&index, &[Table::Object]);
    for (kept, is_whole) in [(persisted, false), (end - 1, false), (end, true)] {
        let copy = killed(dir.path());
        cut(&journal(copy.path()), kept);
        match FjallIndex::open(copy.path(), SMALL) {
            Ok(index) => assert!(is_whole && commits(&index).unwrap() == 20, "{kept} of {end} bytes"),
            Err(IndexError::Corrupt(reason)) => {
                assert!(
                    !is_whole && reason.contains("the table object has rows of commit"),
                    "{kept} of {end}: {reason}"
                );
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Journals of which all lies in tables are deleted, also the last one that anything was written to.
#[test]
fn an_empty_journal_is_no_loss_where_all_tables_reach_as_far() {
    let dir = tempfile::tempdir().unwrap();
    let index = FjallIndex::open(dir.path(), SMALL).unwrap();
    (1..=10).for_each(|i| commit(&index, i));
    index.persist().unwrap();
    flush(&index, &Table::ALL);
    let with_next_journal = |dir: &Path| {
        let copy = killed(dir);
        fs::remove_file(journal(copy.path())).unwrap();
        let next = journal(copy.path()).with_file_name("1.jnl");
        fs::File::create(&next).unwrap();
        cut(&next, 0);
        copy
    };
    let copy = with_next_journal(dir.path());
    let reopened = FjallIndex::open(copy.path(), SMALL).unwrap();
    assert_eq!(commits(&reopened).unwrap(), 10);
    commit(&index, 11);
    flush(&index, &[Table::Object, Table::Usage]);
    assert!(is_corrupt(FjallIndex::open(with_next_journal(dir.path()).path(), SMALL)), "a segment's row is gone");
}

/// fjall drops what is behind the first entry that makes no sense, in any journal, and goes on with the next: seals there would agree.
#[test]
fn a_bit_that_flips_in_a_journal_before_the_last_is_found() {
    /// A journal is ended when one of so many bytes is met at the begin of a table.
    const JOURNAL_BYTES: u64 = 64_000_000;
    let dir = tempfile::tempdir().unwrap();
    let index = FjallIndex::open(dir.path(), IndexOptions { journal_bytes_max: 1 << 30, ..SMALL }).unwrap();
    let next = journal(dir.path()).with_file_name("1.jnl");
    let mut count = 0;
    while !next.exists() {
        // Large rows of one table, which is written again and again; those of the others stay in memtables. Journals are compressed.
        let noise = |at: u64| {
            let mixed = at.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            ((mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 56) as u8
        };
        let row =
            |number: u64| Write::Put(Table::Config, number.to_be_bytes().to_vec(), (0..256 << 10).map(noise).collect());
        index.commit(&[], (0..16).map(row).collect()).unwrap();
        count += 1;
        if count <= 10 {
            commit(&index, count);
        }
        assert!(u64::from(count) < 4 * JOURNAL_BYTES / (4 << 20), "no journal is ended");
    }
    index.persist().unwrap();
    drop(index);
    let copied = || {
        let copy = tempfile::tempdir().unwrap();
        copy_all(dir.path(), copy.path());
        copy
    };
    assert_eq!(commits(&FjallIndex::open(copied().path(), SMALL).unwrap()).unwrap(), 10);
    let bytes = read_head(&journal(dir.path()), 64 << 20);
    // What each batch ends with, and what the next begins with.
    let ends = bytes.windows(4).enumerate().filter(|(_, bytes)| bytes == b"FJL\x03").map(|(at, _)| at);
    let ends: Vec<usize> = ends.collect();
    assert!(ends.len() > 20, "{}", ends.len());
    for at in [ends[1], ends[9], ends[9] + 4, ends[ends.len() - 1]] {
        let copy = copied();
        let file = fs::OpenOptions::new().write(true).open(journal(copy.path())).unwrap();
        file.write_all_at(&[bytes[at] ^ 8], at as u64).unwrap();
        assert!(is_corrupt(FjallIndex::open(copy.path(), SMALL)), "byte {at}");
    }
}

/// Every file of an index in which everything is persisted, half of it in tables, half in the journal.
fn persisted_index() -> (TempDir, Vec<PathBuf>) {
    let dir = tempfile::tempdir().unwrap();
    let index = FjallIndex::open(dir.path(), SMALL).unwrap();
    (1..=50).for_each(|i| commit(&index, i));
    flush(&index, &[Table::Object, Table::Usage]);
    (51..=100).for_each(|i| commit(&index, i));
    index.persist().unwrap();
    let copy = killed(dir.path());
    let mut files = Vec::new();
    let mut dirs = vec![copy.path().to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { dirs.push(path) } else { files.push(path) }
        }
    }
    files.sort();
    (copy, files)
}

/// Opens and reads all of a damaged copy: right or corrupt, and never a panic.
fn right_or_corrupt(dir: &Path, damage: &str) -> bool {
    let index = match FjallIndex::open(dir, SMALL) {
        Ok(index) => index,
        Err(IndexError::Corrupt(_)) => return false,
        Err(error) => panic!("{damage}: {error}"),
    };
    match commits(&index) {
        Ok(count) => {
            assert_eq!(count, 100, "{damage}: commits are gone and nobody says so");
            true
        }
        Err(IndexError::Corrupt(_)) => {
            drop(index);
            assert!(is_corrupt(FjallIndex::open(dir, SMALL)), "{damage}: corruption is remembered");
            false
        }
        Err(error) => panic!("{damage}: {error}"),
    }
}

#[test]
fn a_flipped_bit_is_found_or_harmless() {
    let (dir, files) = persisted_index();
    let (mut right, mut corrupt) = (0, 0);
    for file in &files {
        let name = file.strip_prefix(dir.path()).unwrap().display().to_string();
        // Most of the danger is in the journal; every other kind of file comes once per keyspace.
        let is_journal = name.ends_with(".jnl");
        let bytes = if is_journal { written_bytes(file) } else { fs::metadata(file).unwrap().len() };
        let samples = if is_journal { 32 } else { 2 }.min(bytes);
        for sample in 0..samples {
            let at = sample * bytes / samples + sample % (bytes / samples).max(1);
            let copy = killed(dir.path());
            let mut damaged = fs::OpenOptions::new().read(true).write(true).open(copy.path().join(&name)).unwrap();
            let mut byte = [0];
            damaged.seek(SeekFrom::Start(at)).unwrap();
            damaged.read_exact(&mut byte).unwrap();
            damaged.seek(SeekFrom::Start(at)).unwrap();
            damaged.write_all(&[byte[0] ^ (1 << (sample % 8))]).unwrap();
            drop(damaged);
            match right_or_corrupt(copy.path(), &format!("{name}, bit {} of byte {at}", sample % 8)) {
                true => right += 1,
                false => corrupt += 1,
            }
        }
    }
    println!("{right} harmless, {corrupt} found");
    assert!(corrupt > 20);
}

#[test]
fn a_missing_or_truncated_file_is_found_or_harmless() {
    let (dir, files) = persisted_index();
    for file in &files {
        let name = file.strip_prefix(dir.path()).unwrap();
        for keep in [None, Some(0), Some(1), Some(2)] {
            let copy = killed(dir.path());
            let damaged = copy.path().join(name);
            match keep {
                None => fs::remove_file(&damaged).unwrap(),
                Some(half) => {
                    let len = if name.extension().is_some_and(|ext| ext == "jnl") {
                        written_bytes(&damaged)
                    } else {
                        fs::metadata(&damaged).unwrap().len()
                    };
                    fs::OpenOptions::new().write(true).open(&damaged).unwrap().set_len(len * half / 3).unwrap();
                }
            }
            right_or_corrupt(copy.path(), &format!("{} with {keep:?} thirds left", name.display()));
        }
    }
}

#[test]
fn a_missing_keyspace_is_found() {
    let (dir, _) = persisted_index();
    for keyspace in 0..=Table::ALL.len() {
        let copy = killed(dir.path());
        fs::remove_dir_all(copy.path().join(DATABASE_DIR).join("keyspaces").join(keyspace.to_string())).unwrap();
        assert!(is_corrupt(FjallIndex::open(copy.path(), SMALL)), "keyspace {keyspace}");
    }
}

#[test]
fn what_is_no_index_is_corrupt_until_removed() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join(DATABASE_DIR).join("keyspaces").join("junk")).unwrap();
    fs::write(dir.path().join("other"), "stays").unwrap();
    assert!(is_corrupt(FjallIndex::open(dir.path(), SMALL)));
    FjallIndex::remove(dir.path()).unwrap();
    let index = FjallIndex::open(dir.path(), SMALL).unwrap();
    commit(&index, 1);
    drop(index);
    assert_eq!(commits(&FjallIndex::open(dir.path(), SMALL).unwrap()).unwrap(), 1);
    FjallIndex::remove(dir.path()).unwrap();
    assert_eq!(commits(&FjallIndex::open(dir.path(), SMALL).unwrap()).unwrap(), 0);
    assert!(dir.path().join("other").exists());
}

#[test]
fn two_can_not_have_it_open() {
    let dir = tempfile::tempdir().unwrap();
    let index = FjallIndex::open(dir.path(), SMALL).unwrap();
    let second = FjallIndex::open(dir.path(), SMALL).map(|_| ());
    assert!(matches!(&second, Err(IndexError::Locked(path)) if path == dir.path()), "{second:?}");
    assert!(matches!(FjallIndex::remove(dir.path()), Err(IndexError::Locked(_))));
    drop(index);
    FjallIndex::open(dir.path(), SMALL).unwrap();
}

#[test]
fn figures_are_there() {
    let dir = tempfile::tempdir().unwrap();
    let index = FjallIndex::open(dir.path(), SMALL).unwrap();
    let stats = index.stats();
    assert!(stats.journal_bytes > 0 && stats.disk_bytes >= stats.journal_bytes, "{stats:?}");
}

/// They take room until it is done with them, of which the engine's own figure says nothing.
#[test]
fn tables_that_a_walk_keeps_count_as_on_disk() {
    const ROWS: u32 = 64;
    const ROW_BYTES: usize = 256 << 10;
    let dir = TempDir::new().unwrap();
    let index = FjallIndex::open(dir.path(), SMALL).unwrap();
    let keyspace = index.tables.of(Table::Bucket);
    let write = |round: u32| {
        for row in 0..ROWS {
            let put = Write::Put(Table::Bucket, row.to_be_bytes().into(), vec![round as u8; ROW_BYTES]);
            index.commit(&[], vec![put]).unwrap();
        }
        keyspace.rotate_memtable().unwrap();
        while keyspace.tree.sealed_memtable_count() > 0 {
            thread::yield_now();
        }
    };
    write(0);
    let walk = index.walk(&[Table::Bucket]).unwrap();
    write(1);
    keyspace.major_compact().unwrap();
    let rows_bytes = u64::from(ROWS) * ROW_BYTES as u64;
    let of_tables = || bytes_below(&dir.path().join(DATABASE_DIR).join("keyspaces")).unwrap();
    assert!(of_tables() >= 2 * rows_bytes, "{} of {rows_bytes}", of_tables());
    assert!(keyspace.disk_space() < 2 * rows_bytes);
    // The engine lets go of them as it writes the next ones.
    drop(walk);
    write(2);
    keyspace.major_compact().unwrap();
    assert!(of_tables() < 2 * rows_bytes, "{} of {rows_bytes}", of_tables());
}

/// A snapshot of fjall's keeps all memtables since: half a GB while ten million rows were read under load, without a bound.
#[test]
fn a_walk_keeps_no_memtables_of_what_is_written_meanwhile() {
    const ROWS: u32 = 16;
    const ROW_BYTES: usize = 512 << 10;
    let dir = TempDir::new().unwrap();
    let index = FjallIndex::open(dir.path(), SMALL).unwrap();
    let tree = &index.tables.of(Table::Bucket).tree;
    // Fills a memtable and waits until it lies in a table; returns whether it is still there.
    let write = |number: u32| {
        let memtable = tree.active_memtable();
        let (id, kept) = (memtable.id(), Arc::downgrade(&memtable));
        drop(memtable);
        let row = |row: u32| Write::Put(Table::Bucket, row.to_be_bytes().into(), vec![number as u8; ROW_BYTES]);
        index.commit(&[], (0..ROWS).map(row).collect()).unwrap();
        while tree.active_memtable().id() == id || tree.sealed_memtable_count() > 0 {
            thread::yield_now();
        }
        kept
    };
    let kept = |memtables: &[Weak<_>]| memtables.iter().filter(|memtable| memtable.strong_count() > 0).count();
    write(0);
    let (mut walk, mut memtables) = (index.walk(&[Table::Bucket]).unwrap(), Vec::new());
    for number in 0..ROWS {
        memtables.push(write(number + 1));
        let WalkedRow { table, key, row } = walk.next().unwrap().unwrap();
        assert_eq!((table, key, row), (Table::Bucket, &number.to_be_bytes()[..], &[0; ROW_BYTES][..]));
    }
    assert!(walk.next().unwrap().is_none());
    assert!(kept(&memtables) <= 4, "{}", kept(&memtables));
    let (snapshot, memtables) = (index.snapshot(), (0..ROWS).map(write).collect::<Vec<_>>());
    assert_eq!(kept(&memtables), memtables.len(), "a snapshot keeps them: else this test tells nothing");
    drop(snapshot);
}

/// What fjall shows moves on when a flush or a compaction ends, also amid a batch.
#[test]
fn batches_are_whole_while_tables_are_written() {
    const ROUNDS: u32 = 60;
    const ROWS: u32 = 4000;
    let dir = TempDir::new().unwrap();
    let index = FjallIndex::open(dir.path(), SMALL).unwrap();
    let places = |row: u32| [(Table::Bucket, row.to_be_bytes()), (Table::Config, row.to_be_bytes())];
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for round in 1..=ROUNDS {
                let put = |(table, key): (Table, [u8; 4])| Write::Put(table, key.into(), vec![round as u8; 500]);
                index.commit(&[], (0..ROWS).flat_map(places).map(put).collect()).unwrap();
            }
        });
        while !writer.is_finished() {
            let snapshot = index.snapshot();
            let mut walk = index.walk(&[Table::Bucket, Table::Config]).unwrap();
            let round = |(table, key): (Table, [u8; 4])| snapshot.get(table, &key).unwrap().map(|row| row[0]);
            let (first, last) = (places(0).map(round), places(ROWS - 1).map(round));
            assert_eq!([first, last], [[first[0]; 2]; 2]);
            let mut walked = Vec::new();
            while let Some(WalkedRow { row, .. }) = walk.next().unwrap() {
                walked.push(row[0]);
            }
            walked.dedup();
            assert!(walked.len() <= 1, "{walked:?}");
        }
    });
}

#[test]
fn a_commit_that_waits_for_a_table_that_can_not_be_written_fails() {
    /// So small that the engine has more to ask its workers for than it remembers.
    const ROW_BYTES: usize = 4 << 10;
    let dir = tempfile::tempdir().unwrap();
    let index = Arc::new(FjallIndex::open(dir.path(), SMALL).unwrap());
    let keyspace = index.tables.of(Table::Config).clone();
    let no_flush = keyspace.tree.get_flush_lock();
    let writer = thread::spawn({
        let index = Arc::clone(&index);
        move || {
            let commit = |count: u64| {
                let key = count.to_be_bytes().to_vec();
                index.commit(&[], vec![Write::Put(Table::Config, key, vec![0; ROW_BYTES])])
            };
            (0..).find_map(|count| commit(count).err().map(|error| (count, error))).unwrap()
        }
    });
    while !index.is_behind() {
        thread::yield_now();
    }
    fs::remove_dir_all(keyspace.path().join("tables")).unwrap();
    drop(no_flush);
    let (count, error) = writer.join().unwrap();
    assert!(matches!(error, IndexError::Closed), "{error}");
    assert!((0..1000).any(|_| !index.is_behind()), "nobody waits for an engine that has failed");
    // Three memtables that were sealed late, one that is not, and a row.
    let bytes = count * ROW_BYTES as u64;
    assert!(bytes < 9 * memtable_bytes(Table::Config), "{bytes} bytes were committed");
}

#[test]
fn an_index_that_was_killed_while_it_was_behind_goes_on() {
    const ROW_BYTES: usize = 64 << 10;
    let dir = tempfile::tempdir().unwrap();
    let index = FjallIndex::open(dir.path(), SMALL).unwrap();
    let keyspace = index.tables.of(Table::Config).clone();
    let row = |number: u64| vec![Write::Put(Table::Config, number.to_be_bytes().to_vec(), vec![0; ROW_BYTES])];
    let (copy, again) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    {
        let _no_flush = keyspace.tree.get_flush_lock();
        let rows = 5 * memtable_bytes(Table::Config) / 2 / ROW_BYTES as u64;
        (0..rows).for_each(|number| index.commit(&[], row(number)).unwrap());
        for copy in [&copy, &again] {
            copy_all(dir.path(), copy.path());
        }
    }
    // All of it is one memtable now.
    let index = FjallIndex::open(copy.path(), SMALL).unwrap();
    let active = || index.tables.of(Table::Config).tree.active_memtable().size();
    assert!(active() > 2 * memtable_bytes(Table::Config), "{}", active());
    index.commit(&[], row(0)).unwrap();
    assert!(active() < memtable_bytes(Table::Config), "{}", active());
    // Nor does who only looks wait for ever.
    let index = FjallIndex::open(again.path(), SMALL).unwrap();
    while index.is_behind() {
        thread::yield_now();
    }
    index.persist().unwrap();
}
