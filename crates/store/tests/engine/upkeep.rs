//! Scrub, repair and the comings and goings of targets, from the store's view.

use std::sync::Arc;

use gabion_metadata::{Index, ScanRange, Table, Write};
use gabion_platform::{Disk, SimDisk};
use gabion_segment::LogTarget;
use gabion_store::{ObjectBody, Store, StoreError, TargetMode, TargetState};
use gabion_types::SegmentId;

use crate::harness::{truth::check_counters, *};

/// A store with some small and large objects in sealed segments.
async fn filled(seed: u64) -> (World, Store) {
    let mut world = World::new(seed, config(2, 1));
    world.config.log.upkeep.repair_delay_ms = 0;
    let store = world.open().await;
    store.create_bucket(bucket("bucket"), None).await.unwrap();
    for i in 0..6 {
        put(&store, "bucket", &format!("small {i}"), &bytes(i, 20_000)).await;
        put(&store, "bucket", &format!("large {i}"), &bytes(i, 1_300_000)).await;
    }
    let store = world.restart(store).await;
    (world, store)
}

async fn check_objects(store: &Store) {
    for i in 0..6 {
        assert!(get(store, "bucket", &format!("small {i}")).await.unwrap() == bytes(i, 20_000), "small {i}");
        assert!(get(store, "bucket", &format!("large {i}")).await.unwrap() == bytes(i, 1_300_000), "large {i}");
    }
}

/// Flips a bit in one shard of each segment; returns how many.
fn rot(world: &World) -> u64 {
    let paths: Vec<String> = world.disks[1].paths().into_iter().filter(|path| path.starts_with("segments/")).collect();
    for path in &paths {
        // In the header of the first chunk: there is one, whatever the chunk holds.
        world.disks[1].corrupt(path, 4096 + 20);
    }
    paths.len() as u64
}

#[tokio::test]
async fn a_scrub_finds_rot_that_nobody_reads_and_heals_it() {
    let (mut world, store) = filled(1).await;
    let clean = store.scrub_now().await.unwrap();
    assert_eq!((clean.bad_shards, clean.bad_chunks), (0, 0));
    assert!(clean.segments > 3 && clean.bytes > 9_000_000, "{clean:?}");
    assert!(clean.cross_check.as_ref().unwrap().is_clean(), "{:?}", clean.cross_check);
    let rotten = rot(&world);
    let found = store.scrub_now().await.unwrap();
    assert_eq!((found.bad_shards, found.bad_chunks), (rotten, rotten));
    assert_eq!(found.shards_repaired, rotten);
    let healed = store.scrub_now().await.unwrap();
    assert_eq!((healed.bad_shards, healed.segments), (0, clean.segments));
    for disk in &world.disks {
        disk.offline(true);
        check_objects(&store).await;
        disk.offline(false);
    }
    // What the last one found is known after a restart.
    let store = world.restart(store).await;
    let status = store.status().scrub;
    assert!(!status.running && status.last.unwrap().segments == clean.segments);
}

/// Nothing was sealed since the start.
#[tokio::test]
async fn a_scrub_reads_what_was_just_written() {
    let mut world = World::new(9, config(2, 1));
    let store = world.open().await;
    store.create_bucket(bucket("bucket"), None).await.unwrap();
    put(&store, "bucket", "small", &bytes(1, 20_000)).await;
    put(&store, "bucket", "large", &bytes(2, 1_300_000)).await;
    let clean = store.scrub_now().await.unwrap();
    let open = store.status().log.open_segments as u64;
    assert!(open >= 2 && (clean.segments, clean.open_segments, clean.bad_shards) == (open, open, 0), "{clean:?}");
    assert!(clean.bytes > 1_900_000, "{clean:?}");
    let status = store.status().scrub;
    assert_eq!((status.segments_done, status.segments_total), (open, open));
    let rotten = rot(&world);
    let found = store.scrub_now().await.unwrap();
    assert_eq!((rotten, found.bad_shards, found.shards_repaired), (open, open, 0), "{found:?}");
    // They end with the process: then they are built anew.
    let store = world.restart(store).await;
    store.repair_now().await.unwrap();
    let healed = store.scrub_now().await.unwrap();
    assert_eq!((healed.bad_shards, healed.open_segments, store.status().log.repairs), (0, 0, vec![]));
}

#[tokio::test]
async fn a_scrub_passes_over_a_target_that_does_not_answer() {
    let (mut world, store) = filled(5).await;
    let whole = store.scrub_now().await.unwrap();
    let rotten = rot(&world);
    world.disks[0].offline(true);
    let partly = store.scrub_now().await.unwrap();
    assert_eq!((partly.segments, partly.unread_shards), (whole.segments, rotten), "{partly:?}");
    assert_eq!(partly.bad_shards, rotten, "and it finds what is wrong on the others");
    let status = store.status();
    assert_eq!(status.log.targets[0].state, TargetState::Failed, "it was asked once, not shard by shard");
    assert_eq!(status.scrub.unread_shards, rotten);
    // When it is back, all is read, and what was rotten is healed.
    world.disks[0].offline(false);
    world.clock.advance(std::time::Duration::from_secs(60));
    store.repair_now().await.unwrap();
    let again = store.scrub_now().await.unwrap();
    assert_eq!((again.unread_shards, again.bad_shards, again.bytes), (0, 0, whole.bytes));
    let store = world.restart(store).await;
    check_objects(&store).await;
}

/// Repair is off here: whoever reads notes it, and the next process has to know.
#[tokio::test]
async fn damage_that_was_found_is_known_after_a_restart() {
    let (mut world, store) = filled(7).await;
    for path in world.disks[1].paths().into_iter().filter(|path| path.starts_with("segments/")) {
        world.disks[1].corrupt(&path, 16 << 10);
    }
    check_objects(&store).await;
    let found = store.status().log.repairs;
    assert!(!found.is_empty());
    let mut store = world.restart(store).await;
    for _ in 0..2 {
        assert_eq!(store.status().log.repairs, found);
        assert!(store.status().log.redundancy.iter().skip(1).sum::<usize>() >= found.len(), "status counts it");
        store.checkpoint().await.unwrap();
        store = world.crash_and_open(store, 0).await;
    }
    let pass = store.repair_now().await.unwrap();
    assert_eq!((pass.shards_built, pass.shards_good), (found.len(), 0));
    // What nobody has read.
    store.scrub_now().await.unwrap();
    let mut store = world.restart(store).await;
    assert_eq!(store.status().log.repairs, []);
    // What was repaired between the last checkpoint and a kill is looked at once more, and found to be whole.
    world.disks[1].corrupt(&shard_path(&world, found[0].segment), 16 << 10);
    check_objects(&store).await;
    store.checkpoint().await.unwrap();
    assert_eq!(store.repair_now().await.unwrap().shards_built, 1);
    store = world.crash_and_open(store, 0).await;
    assert_eq!(store.status().log.repairs, found[..1]);
    let pass = store.repair_now().await.unwrap();
    assert_eq!((pass.shards_built, pass.shards_good), (0, 1));
    assert_eq!(store.scrub_now().await.unwrap().bad_shards, 0);
    check_objects(&store).await;
}

/// Whoever goes on after a segment does not read it again: what was found there is written down before.
#[tokio::test]
async fn what_a_scrub_found_before_a_kill_is_known_after_it() {
    let (mut world, store) = filled(8).await;
    rot(&world);
    {
        let mut scrub = std::pin::pin!(store.scrub_now());
        while store.status().scrub.errors_found == 0 || !store.status().scrub.running {
            assert!(futures::poll!(scrub.as_mut()).is_pending());
            tokio::task::yield_now().await;
        }
    }
    let found = store.status().log.repairs;
    assert!(!found.is_empty());
    let store = world.crash_and_open(store, usize::MAX).await;
    assert_eq!(store.status().log.repairs, found);
}

/// The shard of a segment on the second disk.
fn shard_path(world: &World, segment: SegmentId) -> String {
    let is_its = |path: &String| path.contains(&segment.to_string());
    world.disks[1].paths().into_iter().find(is_its).expect("it has a shard there")
}

/// What can not be read now is told as that, and not as lost, to whoever reads and whoever writes.
#[tokio::test]
async fn targets_that_do_not_answer_are_no_corruption() {
    let (world, store) = filled(6).await;
    let (silent, talking) = (&world.disks[..2], |is| move |disk: &SimDisk| disk.offline(is));
    silent.iter().for_each(talking(true));
    let (mut refused, mut read) = (0, 0);
    for i in 0..6 {
        for name in [format!("small {i}"), format!("large {i}")] {
            match get(&store, "bucket", &name).await {
                Ok(_) => read += 1,
                Err(StoreError::Unreadable(_)) => refused += 1,
                Err(other) => panic!("{name}: {other:?}"),
            }
        }
    }
    assert!(refused >= 6, "{refused} refused, {read} read");
    let written = store.put_object(put_request("bucket", "new"), ObjectBody::from_bytes(bytes(1, 100))).await;
    assert!(matches!(written, Err(StoreError::Unavailable(_))), "{written:?}");
    silent.iter().for_each(talking(false));
    check_objects(&store).await;
}

#[tokio::test]
async fn a_scrub_that_was_cut_off_goes_on_where_it_was() {
    let (mut world, store) = filled(2).await;
    let total = store.scrub_now().await.unwrap();
    {
        let mut scrub = std::pin::pin!(store.scrub_now());
        while store.status().scrub.segments_done != 2 || !store.status().scrub.running {
            assert!(futures::poll!(scrub.as_mut()).is_pending());
            tokio::task::yield_now().await;
        }
    }
    assert!(!store.status().scrub.running);
    let read = || store.log_metrics().scrub_bytes.get();
    let before = read();
    assert!(before > total.bytes && before < 2 * total.bytes);
    world.config.scrub_interval_h = 1;
    let store = world.restart(store).await;
    let done = loop {
        tokio::task::yield_now().await;
        match store.status().scrub {
            status if !status.running && status.last.is_some() && status.segments_done > 2 => {
                break status.last.unwrap();
            }
            _ => {}
        }
    };
    assert!(done.segments >= total.segments, "all are read: {done:?}");
    assert!(store.log_metrics().scrub_bytes.get() < total.bytes, "but not all of them again");
}

#[tokio::test]
async fn index_and_log_are_compared_both_ways() {
    let (world, store) = filled(3).await;
    assert!(store.cross_check().await.unwrap().is_clean());
    let file = world.disks[0].create("segments/05/00000000000000070000000000000005.000", 0).await.unwrap();
    drop(file);
    let report = store.cross_check().await.unwrap();
    assert_eq!((report.strays.unknown_files, report.strays.misplaced_files), (1, 0));
    assert!(report.strays.examples[0].contains("0000000000000005.000"), "{report:?}");
    let path =
        world.disks[1].paths().into_iter().find(|path| path.ends_with(".000") || path.ends_with(".001")).unwrap();
    world.disks[2].create(&path, 0).await.unwrap();
    assert_eq!(store.cross_check().await.unwrap().strays.misplaced_files, 1);
    // A row that names a segment that never was.
    let index = world.index.current.lock().clone();
    let rows = index.scan(ScanRange::all(Table::Object), 100).unwrap();
    let (key, row) = rows.iter().find(|(_, row)| row.len() > 40).unwrap();
    let mut gabion_row = <gabion_metadata::rows::ObjectRow as gabion_metadata::rows::Row>::decode(row).unwrap();
    gabion_row.home.segment = gabion_types::SegmentId::new(7, 7);
    let bytes = gabion_metadata::rows::Row::encode(&gabion_row);
    index.commit(&[], vec![Write::Put(Table::Object, key.clone(), bytes)]).unwrap();
    let report = store.cross_check().await.unwrap();
    assert_eq!((report.rows_without_segment, report.rows_past_end), (1, 0), "{report:?}");
    assert!(!report.is_clean());
}

#[tokio::test]
async fn a_lost_target_is_replaced_and_the_rebuilt_index_is_the_same() {
    let (mut world, store) = filled(4).await;
    store.shutdown().await;
    drop(store);
    let lost = world.disks[1].clone();
    lost.offline(true);
    let store = world.open().await;
    let id = store.status().log.missing_members[0];
    let disk = SimDisk::new(4711);
    let new = |disk: &SimDisk| LogTarget {
        name: "disk 3".to_owned(),
        disk: Some(Arc::new(disk.clone()) as Arc<dyn Disk>),
        failure_domain: String::new(),
    };
    let plan = store.target_replace(id, new(&disk), TargetMode::DryRun).await.unwrap();
    assert!(plan.fits && plan.segments > 0 && !plan.applied, "{plan:?}");
    store.target_replace(id, new(&disk), TargetMode::Apply).await.unwrap();
    let pass = store.repair_now().await.unwrap();
    assert_eq!((pass.shards_built, pass.shards_failed, pass.shards_blocked), (plan.segments, 0, 0));
    check_objects(&store).await;
    check_counters(&world.index.current.lock());
    let rows = world.rows();
    // The old target is out for good: another one may go.
    world.disks[1] = disk;
    world.crash(store, 0).await;
    world.lose_index();
    world.disks[0].offline(true);
    let store = world.open().await;
    world.check_rebuilt(&rows);
    check_objects(&store).await;
}

#[tokio::test]
async fn a_rebalance_goes_on_after_a_restart_until_it_is_done() {
    let (mut world, store) = filled(9).await;
    assert!(matches!(store.target_rebalance(101, TargetMode::Apply).await, Err(StoreError::InvalidRequest(_))));
    assert!(store.target_rebalance(0, TargetMode::Apply).await.unwrap().applied);
    let store = world.restart(store).await;
    while store.status().log.rebalance.is_none() {
        tokio::task::yield_now().await;
    }
    store.repair_now().await.unwrap();
    assert!(store.status().log.rebalance.is_none());
    let store = world.restart(store).await;
    for _ in 0..100 {
        tokio::task::yield_now().await;
        assert!(store.status().log.rebalance.is_none(), "it is forgotten when it is done");
    }
    check_objects(&store).await;
}
