//! Targets that come back as older images of themselves: what was deleted stays deleted, whatever the index comes from (docs/adr/0010).

use std::{sync::Arc, time::Duration};

use gabion_metadata::MemoryIndex;
use gabion_platform::{Disk, DiskImage, SimDisk};
use gabion_segment::LogTarget;
use gabion_store::{CreateUpload, ListUploads, ObjectBody, Store, TargetMode, UploadPart, UploadRef};
use gabion_types::TargetId;

use crate::harness::*;

/// A deployment of 1+1 on three targets, with an object that was deleted and an upload that was aborted, all traces of which are gone from the log, and an
/// object that lives.
struct Deleted {
    world: World,
    /// The targets and the index as they were when the object was there, and which targets held it.
    images: Vec<DiskImage>,
    index: MemoryIndex,
    held: Vec<usize>,
}

fn id_of(store: &Store, disk: usize) -> TargetId {
    store.status().log.targets.iter().find(|target| target.name == format!("disk {disk}")).unwrap().id
}

fn shards_on(disk: &SimDisk) -> Vec<String> {
    let paths = disk.paths().into_iter().filter(|path| path.starts_with("segments/") && !path.ends_with(".stale"));
    paths.collect()
}

/// Waits until no freed segment is remembered: time is paused, and passes only here.
async fn forget(world: &World, store: &Store) {
    for _ in 0..20 {
        world.clock.advance(Duration::from_millis(world.config.log.epoch_interval_ms));
        tokio::time::sleep(Duration::from_millis(world.config.log.epoch_interval_ms)).await;
        store.free_dead_segments().await.unwrap();
    }
}

async fn deleted(seed: u64) -> Deleted {
    let mut config = config(1, 1);
    (config.log.small_lanes, config.log.large_lanes) = (1, 1);
    config.log.upkeep.repair_delay_ms = 0;
    config.compaction.live_ratio_max = 1.0;
    let mut world = World::new(seed, config);
    let store = world.open().await;
    store.create_bucket(bucket("bucket"), None).await.unwrap();
    put(&store, "bucket", "first", &bytes(0, 20_000)).await;
    let third = SimDisk::powered(seed * 1000 + 2, &world.power);
    let new = LogTarget {
        name: "disk 2".to_owned(),
        disk: Some(Arc::new(third.clone()) as Arc<dyn Disk>),
        failure_domain: "domain 2".to_owned(),
    };
    assert!(store.target_add(new, TargetMode::Apply).await.unwrap().applied);
    world.disks.push(third);
    let store = world.restart(store).await;
    let before: Vec<Vec<String>> = world.disks.iter().map(shards_on).collect();
    put(&store, "bucket", "deleted", &bytes(1, 20_000)).await;
    let (bucket_name, key_name) = (bucket("bucket"), key("upload"));
    let request = CreateUpload {
        bucket: bucket_name.clone(),
        key: key_name.clone(),
        attributes: Default::default(),
        checksum: None,
    };
    let upload = store.create_upload(request).await.unwrap();
    let upload = UploadRef { bucket: bucket_name, key: key_name, upload };
    let part = UploadPart { target: upload.clone(), part_number: 1 };
    store.upload_part(part, ObjectBody::from_bytes(bytes(3, 5000))).await.unwrap();
    let held = (0..3).filter(|disk| shards_on(&world.disks[*disk]) != before[*disk]).collect();
    let store = world.restart(store).await;
    store.checkpoint().await.unwrap();
    let images = world.disks.iter().map(SimDisk::image).collect();
    let index = fork(&world.index.current.lock());
    store.abort_upload(upload).await.unwrap();
    assert!(delete(&store, "bucket", "deleted").await && delete(&store, "bucket", "first").await);
    put(&store, "bucket", "lives", &bytes(2, 20_000)).await;
    // What says that it was deleted and freed goes, too: rows that are older are moved on, and then nothing of it is needed.
    let mut store = world.restart(store).await;
    for round in 0..4 {
        store.compact().await.unwrap();
        forget(&world, &store).await;
        put(&store, "bucket", "filler", &bytes(round, 20_000)).await;
        assert!(delete(&store, "bucket", "filler").await);
        store = world.restart(store).await;
    }
    store.shutdown().await;
    Deleted { world, images, index, held }
}

/// A target that held the deleted object comes back as it was, and the index is lost, or comes back, too.
async fn comes_back(mut world: World, stale: usize, image: &DiskImage, index: Option<&MemoryIndex>) {
    world.disks[stale].restore(image);
    for disk in &mut world.disks {
        *disk = disk.reopen();
    }
    *world.index.current.lock() = index.map_or_else(MemoryIndex::new, fork);
    let store = world.open().await;
    let targets = store.status().log.targets;
    assert_eq!(keys(&store, "bucket").await, ["lives"]);
    assert!(targets.iter().any(|target| target.set_aside_files > 0), "{targets:?}");
    let uploads = ListUploads {
        bucket: bucket("bucket"),
        prefix: String::new(),
        delimiter: None,
        key_marker: None,
        upload_id_marker: None,
        max: 10,
    };
    assert!(store.list_uploads(uploads).await.unwrap().uploads.is_empty());
    assert_eq!(get(&store, "bucket", "lives").await.unwrap(), bytes(2, 20_000));
    store.repair_now().await.unwrap();
    store.shutdown().await;
    drop(store);
    let report = world.verify().await;
    assert_eq!(report.differing, 0, "{report:?}");
}

#[tokio::test(start_paused = true)]
async fn what_was_deleted_does_not_come_back_with_an_older_image() {
    for seed in 1..5 {
        let Deleted { world, images, index, held } = deleted(seed).await;
        let stale = held[seed as usize % 2];
        comes_back(world, stale, &images[stale], (seed > 2).then_some(&index)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_deleted_does_not_come_back_when_the_other_target_has_left() {
    for seed in 11..19 {
        let Deleted { world, images, index, held } = deleted(seed).await;
        let is_lost = seed % 2 == 0;
        let (leaves, stale) = (held[0], held[1]);
        world.disks[leaves].offline(is_lost);
        let store = world.open().await;
        let id = id_of(&store, leaves);
        if !is_lost {
            store.target_drain(id, TargetMode::Apply).await.unwrap();
            put(&store, "bucket", "lives", &bytes(2, 20_000)).await;
            store.repair_now().await.unwrap();
        }
        assert!(store.target_remove(id, is_lost, TargetMode::Apply).await.unwrap().applied);
        store.repair_now().await.unwrap();
        forget(&world, &store).await;
        store.shutdown().await;
        drop(store);
        world.disks[leaves].offline(true);
        comes_back(world, stale, &images[stale], (seed > 14).then_some(&index)).await;
    }
}
