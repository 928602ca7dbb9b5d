//! Targets that give errors instead of bytes when the store is opened: what can not be read then may be there all the same.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use gabion_metadata::rows::{LaneKind, SegmentState};
use gabion_platform::{DirEntry, Disk, DiskFile, IoFuture, SimDisk, Space};
use gabion_segment::LogTarget;
use gabion_store::{Silent, Store};
use gabion_types::SegmentId;

use crate::harness::*;

/// A disk that can not open the files of one segment as long as it is told so.
struct Sick {
    disk: SimDisk,
    segment: String,
    is_sick: Arc<AtomicBool>,
}

impl Disk for Sick {
    fn create(&self, path: &str, preallocate_bytes: u64) -> IoFuture<Arc<dyn DiskFile>> {
        self.disk.create(path, preallocate_bytes)
    }

    fn open(&self, path: &str) -> IoFuture<Arc<dyn DiskFile>> {
        if path.contains(&self.segment) && self.is_sick.load(Ordering::SeqCst) {
            return Box::pin(async { Err(io::Error::other("a bad sector")) });
        }
        self.disk.open(path)
    }

    fn list(&self, dir: &str) -> IoFuture<Vec<DirEntry>> {
        self.disk.list(dir)
    }

    fn read_file(&self, path: &str, max_bytes: usize) -> IoFuture<Bytes> {
        self.disk.read_file(path, max_bytes)
    }

    fn write_file(&self, path: &str, bytes: Bytes) -> IoFuture<()> {
        self.disk.write_file(path, bytes)
    }

    fn rename(&self, from: &str, to: &str) -> IoFuture<()> {
        self.disk.rename(from, to)
    }

    fn unlink(&self, path: &str) -> IoFuture<()> {
        self.disk.unlink(path)
    }

    fn sync_dir(&self, dir: &str) -> IoFuture<()> {
        self.disk.sync_dir(dir)
    }

    fn space(&self) -> IoFuture<Space> {
        self.disk.space()
    }
}

async fn open_sick(world: &World, segment: SegmentId, is_sick: &Arc<AtomicBool>) -> Store {
    let sick = |target: (LogTarget, &SimDisk)| LogTarget {
        disk: Some(Arc::new(Sick {
            disk: target.1.clone(),
            segment: segment.to_string(),
            is_sick: Arc::clone(is_sick),
        })),
        ..target.0
    };
    let targets = world.targets().into_iter().zip(&world.disks).map(sick).collect();
    Store::open(world.config.clone(), targets, world.factory(), world.env(), Arc::new(Silent)).await.unwrap().0
}

/// All targets are there, and the index is lost. The mutations of one segment can not be read, by no fault of its bytes: what they refer to looks dead,
/// and is not given back, also when the segment can be read again. The next start finds all of it.
#[tokio::test]
async fn what_gives_errors_at_the_start_keeps_what_it_refers_to() {
    let mut config = config(1, 1);
    (config.log.small_lanes, config.log.large_lanes) = (1, 1);
    let mut world = World::new(51, config);
    let store = world.open().await;
    store.create_bucket(bucket("bucket"), None).await.unwrap();
    let body = bytes(1, 3 << 20);
    put(&store, "bucket", "large", &body).await;
    let store = world.restart(store).await;
    let segment = |world: &World, kind| {
        let rows = world.segment_rows();
        rows.into_iter().find(|(_, row)| row.kind == kind && row.sealed_stripes.is_some()).unwrap().0
    };
    let (small, large) = (segment(&world, LaneKind::Small), segment(&world, LaneKind::Large));
    store.shutdown().await;
    drop(store);
    world.lose_index();
    let is_sick = Arc::new(AtomicBool::new(true));
    let store = open_sick(&world, small, &is_sick).await;
    assert!(!store.status().log.targets.iter().any(|target| target.last_error.is_some()), "no target is out of order");
    assert!(store.status().kept_segments > 0);
    let give_back = async || {
        store.free_dead_segments().await.unwrap();
        store.compact().await.unwrap();
        store.free_dead_segments().await.unwrap();
        assert!(world.segment_rows().contains_key(&large), "it looks dead, and is not");
    };
    give_back().await;
    is_sick.store(false, Ordering::SeqCst);
    give_back().await;
    store.shutdown().await;
    drop(store);
    let store = world.open().await;
    assert_eq!(store.status().kept_segments, 0);
    assert_eq!(get(&store, "bucket", "large").await.unwrap(), body);
    delete(&store, "bucket", "large").await;
    let store = world.restart(store).await;
    store.free_dead_segments().await.unwrap();
    assert!(world.segment_rows().get(&large).is_none_or(|row| row.state == SegmentState::Freeing));
}
