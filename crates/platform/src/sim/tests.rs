//! The simulated disk against its own specification (the text of `sim`): what each fault does, over many seeds, and
//! that each outcome that the text allows does occur.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;
use futures::executor::block_on;

use super::{FaultPlan, SECTOR_BYTES, SimDisk};
use crate::disk::{Disk, DiskFile, Durable};

const SEEDS: u64 = 200;

fn create(disk: &SimDisk, path: &str) -> Arc<dyn DiskFile> {
    let file = block_on(disk.create(path, 0)).unwrap();
    let dir = path.rsplit_once('/').map_or("", |(dir, _)| dir);
    block_on(disk.sync_dir(dir)).unwrap();
    file
}

fn write(file: &Arc<dyn DiskFile>, offset: u64, bytes: &[u8], durable: Durable) -> io::Result<()> {
    block_on(file.write_at(offset, vec![Bytes::copy_from_slice(bytes)], durable))
}

fn content(disk: &SimDisk, path: &str) -> Vec<u8> {
    block_on(disk.read_file(path, 1 << 30)).unwrap().to_vec()
}

fn kind<T>(result: io::Result<T>) -> io::ErrorKind {
    result.err().expect("an error").kind()
}

#[test]
fn what_was_synced_survives_every_crash() {
    for seed in 0..SEEDS {
        let disk = SimDisk::new(seed);
        let file = create(&disk, "a/f");
        write(&file, 0, &[1; 5000], Durable::No).unwrap();
        write(&file, 100, &[2; 300], Durable::No).unwrap();
        block_on(file.sync()).unwrap();
        write(&file, 5000, &[3; 10], Durable::Yes).unwrap();
        let before = content(&disk, "a/f");
        for again in 0..3 {
            disk.crash(seed + again);
            assert_eq!(content(&disk.reopen(), "a/f"), before);
        }
    }
}

#[test]
fn an_unsynced_write_is_kept_lost_or_torn_at_sectors() {
    let mut outcomes = BTreeSet::new();
    for seed in 0..4 * SEEDS {
        let disk = SimDisk::new(seed);
        let file = create(&disk, "f");
        write(&file, 0, &[1; 4 * SECTOR_BYTES], Durable::Yes).unwrap();
        // Begins and ends within sectors.
        write(&file, 100, &[2; 3 * SECTOR_BYTES], Durable::No).unwrap();
        disk.crash(seed);
        let after = content(&disk.reopen(), "f");
        let sectors: Vec<bool> = after
            .chunks(SECTOR_BYTES)
            .enumerate()
            .map(|(sector, bytes)| {
                let (start, end) = match sector {
                    0 => (100, SECTOR_BYTES),
                    3 => (0, 100),
                    _ => (0, SECTOR_BYTES),
                };
                assert!(bytes[..start].iter().chain(&bytes[end..]).all(|byte| *byte == 1));
                assert!(bytes[start..end].iter().all(|byte| *byte == bytes[start]), "torn within a sector");
                bytes[start] == 2
            })
            .collect();
        outcomes.insert(sectors);
    }
    assert!(outcomes.contains(&vec![true; 4]), "kept");
    assert!(outcomes.contains(&vec![false; 4]), "lost");
    assert_eq!(outcomes.len(), 16, "every way to tear");
}

#[test]
fn a_later_write_may_survive_an_earlier_one_and_the_gap_reads_as_zeros() {
    let mut seen = BTreeSet::new();
    for seed in 0..SEEDS {
        let disk = SimDisk::new(seed);
        let file = create(&disk, "f");
        write(&file, 0, &[1; 10], Durable::No).unwrap();
        write(&file, 10, &[2; 10], Durable::No).unwrap();
        disk.crash(seed);
        seen.insert(content(&disk.reopen(), "f"));
    }
    let mut gap = vec![0; 10];
    gap.extend([2; 10]);
    assert!(seen.contains(&gap));
    assert!(seen.contains(&Vec::new()));
    assert_eq!(seen.len(), 4);
}

#[test]
fn names_that_were_not_synced_may_be_lost_and_removed_ones_may_come_back() {
    let mut outcomes = BTreeSet::new();
    for seed in 0..SEEDS {
        let disk = SimDisk::new(seed);
        create(&disk, "d/synced");
        create(&disk, "d/removed");
        block_on(disk.unlink("d/removed")).unwrap();
        block_on(disk.create("d/created", 0)).unwrap();
        disk.crash(seed);
        let paths = disk.paths();
        assert!(paths.contains(&"d/synced".to_owned()));
        outcomes.insert(paths);
    }
    assert_eq!(outcomes.len(), 4, "{outcomes:?}");
}

#[test]
fn a_directory_sync_reaches_no_further_than_its_directory() {
    let mut lost = false;
    for seed in 0..SEEDS {
        let disk = SimDisk::new(seed);
        block_on(disk.create("d/f", 0)).unwrap();
        block_on(disk.create("d/e/f", 0)).unwrap();
        block_on(disk.sync_dir("d")).unwrap();
        disk.crash(seed);
        let paths = disk.paths();
        assert!(paths.contains(&"d/f".to_owned()));
        lost |= !paths.contains(&"d/e/f".to_owned());
    }
    assert!(lost);
}

#[test]
fn a_preallocated_length_may_be_lost_until_it_is_synced() {
    let mut lens = BTreeSet::new();
    for seed in 0..SEEDS {
        let disk = SimDisk::new(seed);
        block_on(disk.create("f", 1000)).unwrap();
        block_on(disk.sync_dir("")).unwrap();
        disk.crash(seed);
        lens.insert(content(&disk.reopen(), "f").len());
    }
    assert_eq!(lens, [0, 1000].into());
}

#[test]
fn a_file_written_whole_is_old_or_new_wherever_the_crash_comes() {
    let mut outcomes = BTreeSet::new();
    for seed in 0..SEEDS {
        let disk = SimDisk::new(seed);
        block_on(disk.write_file("f", Bytes::from_static(b"old"))).unwrap();
        let mut replacing = disk.write_file("f", Bytes::from_static(b"the new one"));
        // Every poll is another place to crash at.
        let answered = (0..seed % 5).find_map(|_| (&mut replacing).now_or_never()).is_some();
        disk.crash(seed);
        drop(replacing);
        let after = content(&disk.reopen(), "f");
        assert!(after == b"the new one" || (after == b"old" && !answered));
        outcomes.insert((answered, after));
    }
    assert_eq!(outcomes.len(), 3, "{outcomes:?}");
}

#[test]
fn handles_from_before_a_crash_fail_for_ever() {
    for kill in [false, true] {
        let disk = SimDisk::new(1);
        let file = create(&disk, "f");
        let mut in_flight: Vec<_> =
            (0..20).map(|i| file.write_at(i, vec![Bytes::from_static(b"x")], Durable::Yes)).collect();
        let answered = in_flight.iter_mut().map(|write| write.now_or_never().is_some()).collect::<Vec<_>>();
        if kill {
            disk.kill()
        } else {
            disk.crash(1)
        }
        for (write, answered) in in_flight.into_iter().zip(answered) {
            if !answered {
                assert_eq!(kind(block_on(write)), io::ErrorKind::NotConnected);
            }
        }
        assert_eq!(kind(block_on(file.read_at(0, 1))), io::ErrorKind::NotConnected);
        assert_eq!(kind(block_on(disk.list(""))), io::ErrorKind::NotConnected);
        let disk = disk.reopen();
        write(&block_on(disk.open("f")).unwrap(), 0, b"y", Durable::Yes).unwrap();
        assert_eq!(kind(write(&file, 0, b"z", Durable::Yes)), io::ErrorKind::NotConnected);
        assert_eq!(content(&disk, "f")[0], b'y');
    }
}

#[test]
fn the_death_of_the_process_loses_nothing() {
    let disk = SimDisk::new(1);
    write(&block_on(disk.create("f", 0)).unwrap(), 0, b"unsynced", Durable::No).unwrap();
    disk.kill();
    assert_eq!(content(&disk.reopen(), "f"), b"unsynced");
}

#[test]
fn a_failed_sync_drops_the_writes_though_reads_still_see_them() {
    for seed in 0..SEEDS {
        let disk = SimDisk::new(seed);
        let file = create(&disk, "f");
        write(&file, 0, b"old", Durable::Yes).unwrap();
        disk.fail_syncs(1, io::ErrorKind::Other);
        assert_eq!(kind(write(&file, 0, b"new", Durable::Yes)), io::ErrorKind::Other);
        block_on(file.sync()).unwrap();
        assert_eq!(content(&disk, "f"), b"new");
        disk.crash(seed);
        assert_eq!(content(&disk.reopen(), "f"), b"old");
    }
}

#[test]
fn a_failed_directory_sync_makes_no_name_durable() {
    let mut lost = false;
    for seed in 0..SEEDS {
        let disk = SimDisk::new(seed);
        block_on(disk.create("f", 0)).unwrap();
        disk.fail_syncs(1, io::ErrorKind::Other);
        assert_eq!(kind(block_on(disk.sync_dir(""))), io::ErrorKind::Other);
        disk.crash(seed);
        lost |= disk.paths().is_empty();
    }
    assert!(lost);
}

#[test]
fn failures_are_counted_down_and_then_over() {
    let disk = SimDisk::new(1);
    let file = create(&disk, "f");
    disk.inject(FaultPlan::new().fail_reads(2, io::ErrorKind::TimedOut).fail_writes(1, io::ErrorKind::Other));
    assert_eq!(kind(block_on(file.read_at(0, 1))), io::ErrorKind::TimedOut);
    assert_eq!(kind(block_on(disk.read_file("f", 1))), io::ErrorKind::TimedOut);
    block_on(file.read_at(0, 1)).unwrap();
    assert_eq!(kind(block_on(file.set_len(9))), io::ErrorKind::Other);
    assert_eq!(block_on(file.len()).unwrap(), 0);
    write(&file, 0, b"x", Durable::Yes).unwrap();
}

#[test]
fn a_failed_write_may_have_written_any_of_its_sectors() {
    let mut outcomes = BTreeSet::new();
    for seed in 0..SEEDS {
        let disk = SimDisk::new(seed);
        let file = create(&disk, "f");
        write(&file, 0, &[1; 2 * SECTOR_BYTES], Durable::Yes).unwrap();
        disk.fail_writes(1, io::ErrorKind::Other);
        assert_eq!(kind(write(&file, 0, &[2; 2 * SECTOR_BYTES], Durable::No)), io::ErrorKind::Other);
        let after = content(&disk, "f");
        outcomes.insert((after[0], after[SECTOR_BYTES]));
    }
    assert_eq!(outcomes.len(), 4);
}

#[test]
fn a_full_disk_refuses_growth_and_nothing_else() {
    let disk = SimDisk::new(1);
    let file = create(&disk, "f");
    write(&file, 0, &[1; 100], Durable::Yes).unwrap();
    disk.full_at(150);
    assert_eq!(block_on(disk.space()).unwrap().available_bytes, 50);
    assert_eq!(kind(write(&file, 60, &[2; 100], Durable::Yes)), io::ErrorKind::StorageFull);
    assert_eq!(kind(block_on(disk.create("g", 51))), io::ErrorKind::StorageFull);
    assert_eq!(kind(block_on(disk.write_file("g", Bytes::from(vec![0; 51])))), io::ErrorKind::StorageFull);
    assert_eq!(disk.paths(), ["f"]);
    assert_eq!(content(&disk, "f"), [1; 100]);
    write(&file, 0, &[2; 150], Durable::Yes).unwrap();
    block_on(file.set_len(0)).unwrap();
    block_on(disk.create("g", 150)).unwrap();
    assert_eq!(disk.used_bytes(), 150);
    block_on(disk.unlink("g")).unwrap();
    assert_eq!(disk.used_bytes(), 0);
}

#[test]
fn a_hole_makes_room_for_others_until_it_is_written_again() {
    let disk = SimDisk::new(1);
    let file = create(&disk, "f");
    write(&file, 0, &[1; 8 * 4096], Durable::Yes).unwrap();
    disk.full_at(disk.used_bytes());
    assert_eq!(kind(block_on(disk.create("g", 1))), io::ErrorKind::StorageFull);
    block_on(file.punch(4096, 3 * 4096)).unwrap();
    assert_eq!(block_on(disk.space()).unwrap().available_bytes, 3 * 4096);
    block_on(disk.create("g", 2 * 4096)).unwrap();
    assert_eq!(kind(write(&file, 4096, &[2; 2 * 4096], Durable::Yes)), io::ErrorKind::StorageFull);
    write(&file, 4096, &[2; 4096], Durable::Yes).unwrap();
    assert_eq!(block_on(disk.space()).unwrap().available_bytes, 0);
    write(&file, 0, &[3; 4096], Durable::Yes).unwrap();
}

#[test]
fn an_offline_disk_answers_nothing_until_it_is_back() {
    let disk = SimDisk::new(1);
    let file = create(&disk, "f");
    disk.offline(true);
    assert_eq!(kind(write(&file, 0, b"x", Durable::No)), io::ErrorKind::NotConnected);
    assert_eq!(kind(block_on(file.read_at(0, 1))), io::ErrorKind::NotConnected);
    assert_eq!(kind(block_on(disk.open("f"))), io::ErrorKind::NotConnected);
    assert_eq!(kind(block_on(disk.space())), io::ErrorKind::NotConnected);
    disk.offline(false);
    assert_eq!(content(&disk, "f"), b"");
}

#[test]
fn rot_flips_one_bit_and_survives_a_crash() {
    let disk = SimDisk::new(1);
    let file = create(&disk, "f");
    write(&file, 0, &[4; 3], Durable::Yes).unwrap();
    disk.corrupt("f", 1);
    assert_eq!(content(&disk, "f"), [4, 5, 4]);
    disk.crash(1);
    assert_eq!(content(&disk.reopen(), "f"), [4, 5, 4]);
}

#[test]
fn one_seed_gives_one_history() {
    let history = |seed: u64| {
        let disk = SimDisk::new(seed);
        let file = create(&disk, "f");
        let appends = (0..30_u8).map(|i| write_in_turn(&disk, &file, i));
        block_on(futures::future::join_all(appends));
        let order = content(&disk, "order");
        disk.crash(seed);
        (order, content(&disk.reopen(), "f"))
    };
    assert_eq!(history(7), history(7));
    assert!((0..10).any(|seed| history(seed).0 != history(seed + 100).0), "operations interleave by the seed");
}

/// Writes block `i`, then notes in the file `order` that it was the latest to end.
async fn write_in_turn(disk: &SimDisk, file: &Arc<dyn DiskFile>, i: u8) {
    file.write_at(u64::from(i) * 600, vec![Bytes::from(vec![i; 600])], Durable::No).await.unwrap();
    disk.write_file("order", Bytes::from(vec![i])).await.unwrap();
}
