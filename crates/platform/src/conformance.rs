//! What every disk must do, whichever driver is behind it: one suite, run over threads, io_uring and the simulated
//! disk.
//!
//! Each law takes an empty disk. Nothing here asks for time or order beyond what the trait promises.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::{join_all, try_join_all};
use tokio::task::unconstrained;

use crate::disk::{Disk, DiskFile, Durable, READ_BYTES_MAX};
use crate::entropy::{Entropy, SeededEntropy};
use crate::path::PATH_COMPONENT_BYTES_MAX;
use crate::{CountedDisk, DriverChoice, DriverOptions, SimDisk, open_disk};

type Shared = Arc<dyn Disk>;

fn pattern(seed: u64, len: usize) -> Bytes {
    let mut bytes = vec![0; len];
    SeededEntropy::new(seed).fill(&mut bytes);
    bytes.into()
}

fn kind<T>(result: io::Result<T>) -> io::ErrorKind {
    result.err().expect("an error").kind()
}

async fn names(disk: &Shared, dir: &str) -> Vec<String> {
    disk.list(dir).await.unwrap().into_iter().map(|entry| entry.name).collect()
}

async fn all_laws(fresh: &dyn Fn() -> Shared) {
    what_is_written_is_read(fresh()).await;
    parts_are_written_back_to_back(fresh()).await;
    what_a_thread_of_the_caller_writes_is_read(fresh()).await;
    nothing_begins_before_it_is_polled(fresh()).await;
    reads_end_with_the_file(fresh()).await;
    gaps_read_as_zeros(fresh()).await;
    lengths_change(fresh()).await;
    holes_read_as_zeros(fresh()).await;
    blocks_are_written_ahead(fresh()).await;
    creation_is_exclusive(fresh()).await;
    preallocated_space_is_writable_and_given_back(fresh()).await;
    directories_are_made_and_listed(fresh()).await;
    missing_things_are_not_found(fresh()).await;
    small_files_are_replaced_whole(fresh()).await;
    replacing_is_atomic_for_readers(fresh()).await;
    unlinking_is_idempotent_and_spares_open_files(fresh()).await;
    renaming_replaces_and_spares_open_files(fresh()).await;
    paths_that_leave_the_root_are_refused(fresh()).await;
    ranges_beyond_the_limits_are_refused(fresh()).await;
    many_operations_at_once_keep_apart(fresh()).await;
    dropped_futures_leave_the_disk_usable(fresh()).await;
    handles_outlive_the_disk(fresh()).await;
    space_is_told(fresh()).await;
    operations_are_counted(fresh()).await;
}

async fn what_is_written_is_read(disk: Shared) {
    let file = disk.create("f", 0).await.unwrap();
    // Sizes around sectors, pages, and what one system call is likely to split.
    for (round, len) in [1, 511, 512, 4095, 4097, 65_536, 1 << 20, (5 << 20) + 13].into_iter().enumerate() {
        for durable in [Durable::No, Durable::Yes] {
            let bytes = pattern(round as u64, len);
            file.write_at(round as u64 * 7, vec![bytes.clone()], durable).await.unwrap();
            assert_eq!(file.read_at(round as u64 * 7, len).await.unwrap(), bytes);
        }
    }
    file.sync().await.unwrap();
    disk.sync_dir("").await.unwrap();
    let again = disk.open("f").await.unwrap();
    assert_eq!(again.read_at(49, 1000).await.unwrap(), pattern(7, (5 << 20) + 13)[..1000]);
}

async fn parts_are_written_back_to_back(disk: Shared) {
    let file = disk.create("f", 0).await.unwrap();
    // More parts than one vectored call takes, empty ones among them, and of uneven lengths.
    let parts: Vec<Bytes> = (0..3000).map(|part| pattern(part, (part % 17) as usize)).collect();
    let whole = parts.concat();
    for (offset, durable) in [(0, Durable::No), (100_000, Durable::Yes)] {
        file.write_at(offset, parts.clone(), durable).await.unwrap();
        assert_eq!(file.read_at(offset, whole.len()).await.unwrap(), whole);
    }
    // Large parts together.
    let large: Vec<Bytes> = (0..5).map(|part| pattern(part, 1 << 20)).collect();
    file.write_at(1, large.clone(), Durable::Yes).await.unwrap();
    assert_eq!(file.read_at(1, 5 << 20).await.unwrap(), large.concat());
    for nothing in [vec![], vec![Bytes::new(); 3]] {
        for durable in [Durable::No, Durable::Yes] {
            file.write_at(77, nothing.clone(), durable).await.unwrap();
        }
    }
    assert_eq!(file.read_at(1, 5 << 20).await.unwrap(), large.concat());
}

async fn what_a_thread_of_the_caller_writes_is_read(disk: Shared) {
    let (disk, counters) = CountedDisk::new(disk);
    let file = disk.create("f", 0).await.unwrap();
    let bytes = pattern(1, 10_000);
    let Some(write) = file.cached_write(77, vec![bytes.slice(..10), bytes.slice(10..)]) else { return };
    assert_eq!((file.len().await.unwrap(), counters.counts().writes), (0, 0), "nothing is done before it is called");
    write().unwrap();
    assert_eq!(file.read_at(77, 20_000).await.unwrap(), bytes);
    assert_eq!((counters.counts().writes, counters.counts().write_bytes, counters.counts().syncs), (1, 10_000, 0));
    assert!(file.cached_write(u64::MAX, vec![bytes]).is_none());
    assert!(file.cached_write(0, vec![pattern(1, 1 << 20)]).is_none(), "long ones have better ways");
    file.sync().await.unwrap();
}

async fn nothing_begins_before_it_is_polled(disk: Shared) {
    let file = disk.create("f", 0).await.unwrap();
    file.write_at(0, vec![pattern(1, 5000)], Durable::No).await.unwrap();
    let (read, write) = (file.read_at(0, 5000), file.write_at(0, vec![pattern(3, 5000)], Durable::No));
    file.write_at(0, vec![pattern(2, 5000)], Durable::No).await.unwrap();
    assert_eq!(read.await.unwrap(), pattern(2, 5000));
    drop(write);
    assert_eq!(file.read_at(0, 5000).await.unwrap(), pattern(2, 5000));
}

async fn reads_end_with_the_file(disk: Shared) {
    let file = disk.create("f", 0).await.unwrap();
    assert_eq!(file.read_at(0, 10).await.unwrap(), Bytes::new());
    file.write_at(0, vec![Bytes::from_static(b"0123456789")], Durable::No).await.unwrap();
    let table: [(u64, usize, &[u8]); 6] = [
        (0, 10, b"0123456789"),
        (0, 11, b"0123456789"),
        (7, 100_000, b"789"),
        (10, 1, b""),
        (1 << 40, 5, b""),
        (3, 0, b""),
    ];
    for (offset, len, expected) in table {
        assert_eq!(file.read_at(offset, len).await.unwrap(), expected, "{offset} {len}");
    }
}

async fn gaps_read_as_zeros(disk: Shared) {
    let file = disk.create("f", 0).await.unwrap();
    file.write_at(10_000, vec![Bytes::from_static(b"x")], Durable::Yes).await.unwrap();
    let read = file.read_at(0, 20_000).await.unwrap();
    assert_eq!(read.len(), 10_001);
    assert!(read[..10_000].iter().all(|byte| *byte == 0));
}

async fn lengths_change(disk: Shared) {
    let file = disk.create("f", 0).await.unwrap();
    assert_eq!(file.len().await.unwrap(), 0);
    file.write_at(0, vec![pattern(1, 5000)], Durable::No).await.unwrap();
    file.set_len(3).await.unwrap();
    assert_eq!(file.len().await.unwrap(), 3);
    file.set_len(6).await.unwrap();
    assert_eq!(file.read_at(3, 10).await.unwrap(), [0; 3][..]);
    assert_eq!(disk.list("").await.unwrap()[0].len, 6);
}

async fn holes_read_as_zeros(disk: Shared) {
    let file = disk.create("f", 0).await.unwrap();
    let bytes = pattern(1, 40_960);
    file.write_at(0, vec![bytes.clone()], Durable::Yes).await.unwrap();
    for (offset, len) in [(1, 4096), (4096, 100), (4096, u64::MAX - 4095)] {
        assert_eq!(kind(file.punch(offset, len).await), io::ErrorKind::InvalidInput);
    }
    file.punch(4096, 0).await.unwrap();
    assert_eq!(file.read_at(0, 40_960).await.unwrap(), bytes);
    match file.punch(4096, 8192).await {
        Ok(()) => {}
        // Not every file system can; then nothing has changed.
        Err(error) if error.kind() == io::ErrorKind::Unsupported => {
            assert_eq!(file.read_at(0, 40_960).await.unwrap(), bytes);
            return;
        }
        Err(error) => panic!("{error}"),
    }
    // Beyond the end nothing grows.
    file.punch(36_864, 40_960).await.unwrap();
    file.sync().await.unwrap();
    assert_eq!(file.len().await.unwrap(), 40_960);
    let mut expected = bytes.to_vec();
    expected[4096..12_288].fill(0);
    expected[36_864..].fill(0);
    assert_eq!(file.read_at(0, 50_000).await.unwrap(), expected);
    file.write_at(8192, vec![pattern(2, 10)], Durable::Yes).await.unwrap();
    expected[8192..8202].copy_from_slice(&pattern(2, 10));
    assert_eq!(file.read_at(0, 50_000).await.unwrap(), expected);
    // To the end of the file, be it in the middle of a block.
    file.write_at(40_960, vec![pattern(3, 100)], Durable::Yes).await.unwrap();
    file.punch(36_864, 8192).await.unwrap();
    expected.resize(41_060, 0);
    assert_eq!(file.read_at(0, 50_000).await.unwrap(), expected);
}

async fn blocks_are_written_ahead(disk: Shared) {
    let file = disk.create("f", 1 << 20).await.unwrap();
    for (offset, len) in [(1, 4096), (4096, 100), (4096, u64::MAX - 4095)] {
        assert_eq!(kind(file.prewrite(offset, len).await), io::ErrorKind::InvalidInput);
    }
    file.prewrite(4096, 0).await.unwrap();
    let mut expected = vec![0; 300 << 10];
    let mut at = 8192;
    // Two pieces, one behind the other, with writes before, within, across their border and beyond them, in whole blocks and not.
    for (from, len, rounds) in [(32 << 10, 64 << 10, 14), (96 << 10, 64 << 10, 30)] {
        file.prewrite(from, len).await.unwrap();
        for round in 0..rounds {
            let bytes = pattern(round, [4096, 12_288, 100, 3996][round as usize % 4]);
            let durable = if round % 3 == 0 { Durable::No } else { Durable::Yes };
            file.write_at(at as u64, vec![bytes.slice(..50), bytes.slice(50..)], durable).await.unwrap();
            expected[at..at + bytes.len()].copy_from_slice(&bytes);
            at += bytes.len();
        }
        assert!(if from == 32 << 10 { at < 96 << 10 } else { at > 160 << 10 }, "{at}");
        assert_eq!(file.read_at(0, at).await.unwrap(), expected[..at]);
    }
    file.sync().await.unwrap();
    let again = disk.open("f").await.unwrap();
    assert_eq!(again.read_at(0, at).await.unwrap(), expected[..at]);
}

async fn creation_is_exclusive(disk: Shared) {
    let file = disk.create("a/f", 0).await.unwrap();
    file.write_at(0, vec![Bytes::from_static(b"first")], Durable::Yes).await.unwrap();
    assert_eq!(kind(disk.create("a/f", 0).await), io::ErrorKind::AlreadyExists);
    assert_eq!(kind(disk.create("a", 0).await), io::ErrorKind::AlreadyExists);
    assert_eq!(kind(disk.create("a/f/g", 0).await), io::ErrorKind::NotADirectory);
    assert_eq!(disk.read_file("a/f", 10).await.unwrap(), "first");
    let racers = join_all((0..20).map(|_| disk.create("race/for/it", 0))).await;
    assert_eq!(racers.iter().filter(|racer| racer.is_ok()).count(), 1);
}

async fn preallocated_space_is_writable_and_given_back(disk: Shared) {
    let file = disk.create("f", 1 << 20).await.unwrap();
    let len = file.len().await.unwrap();
    assert!(len == 0 || len == 1 << 20, "{len}");
    assert!(file.read_at(0, 1 << 20).await.unwrap().iter().all(|byte| *byte == 0));
    file.write_at(4096, vec![pattern(1, 4096)], Durable::Yes).await.unwrap();
    file.set_len(8192).await.unwrap();
    let read = file.read_at(0, 1 << 20).await.unwrap();
    assert_eq!((read.len(), &read[4096..]), (8192, &pattern(1, 4096)[..]));
}

async fn directories_are_made_and_listed(disk: Shared) {
    assert!(disk.list("").await.unwrap().is_empty());
    for path in ["b", "a/x", "a/y/deep", "c"] {
        let file = disk.create(path, 0).await.unwrap();
        file.write_at(0, vec![pattern(1, path.len())], Durable::No).await.unwrap();
    }
    let table = [("", "a/0 b1 c1"), ("a", "x3 y/0"), ("a/y", "deep8")];
    for (dir, expected) in table {
        let entries = disk.list(dir).await.unwrap();
        let told = entries.iter().map(|e| format!("{}{}{}", e.name, if e.is_dir { "/" } else { "" }, e.len));
        assert_eq!(told.collect::<Vec<_>>().join(" "), expected);
        disk.sync_dir(dir).await.unwrap();
    }
    assert_eq!(kind(disk.list("b").await), io::ErrorKind::NotADirectory);
}

async fn missing_things_are_not_found(disk: Shared) {
    assert_eq!(kind(disk.open("f").await), io::ErrorKind::NotFound);
    assert_eq!(kind(disk.open("a/f").await), io::ErrorKind::NotFound);
    assert_eq!(kind(disk.read_file("f", 10).await), io::ErrorKind::NotFound);
    assert_eq!(kind(disk.list("a").await), io::ErrorKind::NotFound);
    assert_eq!(kind(disk.sync_dir("a").await), io::ErrorKind::NotFound);
}

async fn small_files_are_replaced_whole(disk: Shared) {
    let longest = "n".repeat(PATH_COMPONENT_BYTES_MAX);
    for path in ["f", "new/dir/f", &longest] {
        for content in [&b"first, and longer"[..], b"second", b""] {
            disk.write_file(path, Bytes::copy_from_slice(content)).await.unwrap();
            assert_eq!(disk.read_file(path, content.len()).await.unwrap(), content);
        }
    }
    assert_eq!(names(&disk, "").await, ["f", "new", &longest]);
    disk.write_file("f", pattern(1, 100)).await.unwrap();
    assert_eq!(kind(disk.read_file("f", 99).await), io::ErrorKind::FileTooLarge);
    assert_eq!(disk.read_file("f", 100).await.unwrap(), pattern(1, 100));
    assert_eq!(kind(disk.write_file("new", Bytes::new()).await), io::ErrorKind::IsADirectory);
    assert_eq!(names(&disk, "").await.len(), 3);
}

async fn replacing_is_atomic_for_readers(disk: Shared) {
    let content = |version: u8| Bytes::from(vec![version; 3000]);
    disk.write_file("f", content(0)).await.unwrap();
    let writers = try_join_all((1..20).map(|version| disk.write_file("f", content(version))));
    let readers = try_join_all((0..50).map(|_| disk.read_file("f", 3000)));
    let listers = try_join_all((0..20).map(|_| disk.list("")));
    let (written, read, listed) = futures::join!(writers, readers, listers);
    written.unwrap();
    for read in read.unwrap() {
        assert_eq!(read.len(), 3000);
        assert!(read.iter().all(|byte| *byte == read[0]));
    }
    for entries in listed.unwrap() {
        assert_eq!(entries.len(), 1, "{entries:?}");
    }
}

async fn unlinking_is_idempotent_and_spares_open_files(disk: Shared) {
    disk.unlink("f").await.unwrap();
    disk.unlink("no/such/dir/f").await.unwrap();
    let file = disk.create("f", 0).await.unwrap();
    file.write_at(0, vec![pattern(1, 100)], Durable::No).await.unwrap();
    disk.unlink("f").await.unwrap();
    disk.unlink("f").await.unwrap();
    assert!(disk.list("").await.unwrap().is_empty());
    file.write_at(100, vec![pattern(2, 100)], Durable::Yes).await.unwrap();
    assert_eq!(file.read_at(0, 100).await.unwrap(), pattern(1, 100));
    let other = disk.create("f", 0).await.unwrap();
    assert_eq!(other.len().await.unwrap(), 0);
}

async fn renaming_replaces_and_spares_open_files(disk: Shared) {
    assert_eq!(kind(disk.rename("d/f", "d/g").await), io::ErrorKind::NotFound);
    let old = disk.create("d/g", 0).await.unwrap();
    old.write_at(0, vec![pattern(1, 100)], Durable::No).await.unwrap();
    let new = disk.create("d/f", 0).await.unwrap();
    new.write_at(0, vec![pattern(2, 200)], Durable::Yes).await.unwrap();
    disk.rename("d/f", "d/g").await.unwrap();
    disk.sync_dir("d").await.unwrap();
    assert_eq!(names(&disk, "d").await, ["g"]);
    assert_eq!(disk.read_file("d/g", 1000).await.unwrap(), pattern(2, 200));
    assert_eq!(old.read_at(0, 200).await.unwrap(), pattern(1, 100));
    disk.rename("d/g", "d/h").await.unwrap();
    assert_eq!(names(&disk, "d").await, ["h"]);
    assert_eq!(kind(disk.rename("d/h", "h").await), io::ErrorKind::InvalidInput);
}

async fn paths_that_leave_the_root_are_refused(disk: Shared) {
    for path in ["/etc/passwd", "../f", "a/../../f", "a//f", "./f", "a/", "\0"] {
        assert_eq!(kind(disk.create(path, 0).await), io::ErrorKind::InvalidInput, "{path:?}");
        assert_eq!(kind(disk.open(path).await), io::ErrorKind::InvalidInput);
        assert_eq!(kind(disk.list(path).await), io::ErrorKind::InvalidInput);
        assert_eq!(kind(disk.read_file(path, 10).await), io::ErrorKind::InvalidInput);
        assert_eq!(kind(disk.write_file(path, Bytes::new()).await), io::ErrorKind::InvalidInput);
        assert_eq!(kind(disk.unlink(path).await), io::ErrorKind::InvalidInput);
        assert_eq!(kind(disk.sync_dir(path).await), io::ErrorKind::InvalidInput);
    }
    assert_eq!(kind(disk.open("").await), io::ErrorKind::InvalidInput);
    assert!(disk.list("").await.unwrap().is_empty());
}

async fn ranges_beyond_the_limits_are_refused(disk: Shared) {
    let file = disk.create("f", 0).await.unwrap();
    assert_eq!(kind(file.read_at(0, READ_BYTES_MAX + 1).await), io::ErrorKind::InvalidInput);
    assert_eq!(kind(file.read_at(u64::MAX, 1).await), io::ErrorKind::InvalidInput);
    assert_eq!(kind(file.read_at(i64::MAX as u64, 1).await), io::ErrorKind::InvalidInput);
    let byte = vec![Bytes::from_static(b"x")];
    for durable in [Durable::No, Durable::Yes] {
        assert_eq!(kind(file.write_at(u64::MAX, byte.clone(), durable).await), io::ErrorKind::InvalidInput);
        assert_eq!(kind(file.write_at(i64::MAX as u64, byte.clone(), durable).await), io::ErrorKind::InvalidInput);
    }
    assert_eq!(kind(file.set_len(u64::MAX).await), io::ErrorKind::InvalidInput);
    assert_eq!(file.len().await.unwrap(), 0);
}

async fn many_operations_at_once_keep_apart(disk: Shared) {
    const FILES: usize = 4;
    const BLOCKS: u64 = 200;
    const BLOCK_BYTES: usize = 3001;
    let files = try_join_all((0..FILES).map(|file| disk.create(&format!("f{file}"), 0)));
    let files: Vec<Arc<dyn DiskFile>> = files.await.unwrap();
    let at = |block: u64| block * BLOCK_BYTES as u64;
    let content = |file: usize, block: u64| pattern(file as u64 * BLOCKS + block, BLOCK_BYTES);
    let all = || (0..FILES).flat_map(|file| (0..BLOCKS).map(move |block| (file, block)));
    let writes = all().map(|(file, block)| {
        let durable = if block % 10 == 0 { Durable::Yes } else { Durable::No };
        let bytes = content(file, block);
        files[file].write_at(at(block), vec![bytes.slice(..1000), bytes.slice(1000..)], durable)
    });
    try_join_all(writes).await.unwrap();
    let reads = all().map(|(file, block)| files[file].read_at(at(block), BLOCK_BYTES));
    let syncs = files.iter().map(|file| file.sync());
    let (read, synced) = futures::join!(try_join_all(reads), try_join_all(syncs));
    synced.unwrap();
    for ((file, block), read) in all().zip(read.unwrap()) {
        assert_eq!(read, content(file, block));
    }
}

async fn dropped_futures_leave_the_disk_usable(disk: Shared) {
    let file = disk.create("f", 0).await.unwrap();
    let never_polled = file.write_at(0, vec![Bytes::from_static(b"never")], Durable::Yes);
    drop(never_polled);
    assert_eq!(file.len().await.unwrap(), 0);
    // Some are dropped in flight, and if the driver's limits are narrow, some while they wait for room.
    drop_after_first_poll(&file);
    file.write_at(600_000, vec![pattern(1, 1000)], Durable::Yes).await.unwrap();
    assert_eq!(file.read_at(600_000, 1000).await.unwrap(), pattern(1, 1000));
}

/// Only for a driver that has room for all of it: what waits for room when it is dropped has not begun.
async fn dropped_futures_are_only_detached(disk: Shared) {
    let file = disk.create("f", 0).await.unwrap();
    drop_after_first_poll(&file);
    // The writes are done sooner or later, without anyone waiting for them.
    let all = (0..50).map(|block| pattern(block, 10_000)).collect::<Vec<_>>().concat();
    while file.read_at(0, all.len()).await.unwrap() != all {
        tokio::task::yield_now().await;
    }
}

/// Begins 50 writes and as many reads; their buffers are freed by whoever is last.
fn drop_after_first_poll(file: &Arc<dyn DiskFile>) {
    for block in 0..50_u64 {
        let write = file.write_at(block * 10_000, vec![pattern(block, 10_000)], Durable::Yes);
        let read = file.read_at(0, 1 << 20);
        // Unconstrained: when many are done at their first poll, tokio's budget of a task would run out, and the later
        // ones would not begin.
        let _ = (unconstrained(write).now_or_never(), unconstrained(read).now_or_never());
    }
}

async fn handles_outlive_the_disk(disk: Shared) {
    let file = disk.create("f", 0).await.unwrap();
    drop(disk);
    let write = file.write_at(0, vec![pattern(1, 100)], Durable::Yes);
    let read = file.read_at(0, 100);
    drop(file);
    write.await.unwrap();
    assert_eq!(read.await.unwrap(), pattern(1, 100));
}

async fn space_is_told(disk: Shared) {
    let space = disk.space().await.unwrap();
    assert!(space.available_bytes > 0);
    assert!(space.available_bytes <= space.total_bytes);
}

async fn operations_are_counted(disk: Shared) {
    let (disk, counters) = CountedDisk::new(disk);
    let file = disk.create("f", 0).await.unwrap();
    file.write_at(0, vec![pattern(1, 30), pattern(2, 12)], Durable::Yes).await.unwrap();
    file.write_at(0, vec![pattern(1, 8)], Durable::No).await.unwrap();
    file.sync().await.unwrap();
    file.read_at(40, 100).await.unwrap();
    disk.write_file("g", pattern(1, 5)).await.unwrap();
    disk.read_file("g", 5).await.unwrap();
    disk.sync_dir("").await.unwrap();
    disk.unlink("g").await.unwrap();
    assert_eq!(kind(disk.open("g").await), io::ErrorKind::NotFound);
    assert_eq!(kind(disk.open("..").await), io::ErrorKind::InvalidInput);
    let counts = counters.counts();
    assert_eq!((counts.reads, counts.read_bytes), (2, 7));
    assert_eq!((counts.writes, counts.write_bytes), (3, 55));
    assert_eq!((counts.syncs, counts.creates, counts.unlinks, counts.errors), (5, 2, 1, 1));
}

/// Fresh directories of one driver, removed at the end.
struct Targets {
    root: tempfile::TempDir,
    choice: DriverChoice,
    options: DriverOptions,
    next: std::cell::Cell<u32>,
}

impl Targets {
    fn new(choice: DriverChoice, options: DriverOptions) -> Self {
        Self { root: tempfile::tempdir().unwrap(), choice, options, next: 0.into() }
    }

    fn fresh(&self) -> io::Result<Shared> {
        let path = self.root.path().join(self.next.replace(self.next.get() + 1).to_string());
        rustix::fs::mkdir(&path, rustix::fs::Mode::RWXU)?;
        Ok(open_disk(&path, self.choice, self.options, None)?.disk)
    }
}

/// Limits so small that everything waits for room.
fn narrow() -> DriverOptions {
    DriverOptions { threads_max: Some(2), in_flight_max: 2 }
}

async fn run(choice: DriverChoice, options: DriverOptions) {
    let targets = Targets::new(choice, options);
    match targets.fresh() {
        Err(error) if error.kind() == io::ErrorKind::Unsupported => println!("skipped: {error}"),
        opened => {
            opened.unwrap();
            all_laws(&|| targets.fresh().unwrap()).await;
            if options == DriverOptions::default() {
                dropped_futures_are_only_detached(targets.fresh().unwrap()).await;
            }
        }
    }
}

#[tokio::test]
async fn threads() {
    run(DriverChoice::Threads, DriverOptions::default()).await;
}

#[tokio::test]
async fn uring() {
    run(DriverChoice::IoUring, DriverOptions::default()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn threads_from_many_threads() {
    run(DriverChoice::Threads, DriverOptions::default()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn uring_from_many_threads() {
    run(DriverChoice::IoUring, DriverOptions::default()).await;
}

#[tokio::test]
async fn threads_with_narrow_limits() {
    run(DriverChoice::Threads, narrow()).await;
}

#[tokio::test]
async fn uring_with_narrow_limits() {
    run(DriverChoice::IoUring, narrow()).await;
}

#[tokio::test]
async fn simulated() {
    for seed in 0..20 {
        all_laws(&|| Arc::new(SimDisk::new(seed))).await;
        dropped_futures_are_only_detached(Arc::new(SimDisk::new(seed))).await;
    }
}
