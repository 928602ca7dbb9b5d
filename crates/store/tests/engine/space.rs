//! Space comes back, and what was deleted stays deleted.

use std::{
    collections::BTreeSet,
    future,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use futures::StreamExt;
use gabion_metadata::rows::{LaneKind, SegmentRow, SegmentState};
use gabion_platform::{DirEntry, Disk, DiskFile, Durable, IoFuture, OpenFile, SimDisk, Space};
use gabion_store::{DeleteObject, GetObject, ObjectBody, Store, StoreError};
use gabion_types::SegmentId;

use crate::harness::{truth::check_counters, *};

async fn fresh(seed: u64) -> (World, Store) {
    let world = World::new(seed, config(2, 1));
    let store = world.open().await;
    store.create_bucket(bucket("bucket"), None).await.unwrap();
    (world, store)
}

fn files(world: &World) -> usize {
    world.disks.iter().map(|disk| disk.paths().iter().filter(|path| path.starts_with("segments/")).count()).sum()
}

#[tokio::test]
async fn dead_segments_are_deleted() {
    let (mut world, mut store) = fresh(1).await;
    for i in 0..20 {
        put(&store, "bucket", &format!("{i}"), &bytes(i, 1_500_000)).await;
    }
    let before = files(&world);
    for i in 0..20 {
        delete(&store, "bucket", &format!("{i}")).await;
    }
    store.free_dead_segments().await.unwrap();
    let freed = store.metrics().segments_freed.get() as usize;
    assert!(freed >= 5, "{freed}");
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(files(&world) <= before - 3 * freed + 6);
    // What was open is sealed by a restart and goes then, but for the segment that the bucket lives in.
    store = world.restart(store).await;
    store.free_dead_segments().await.unwrap();
    let status = store.status();
    assert!(status.segments <= 3, "{status:?}");
    check_counters(&world.index.current.lock());
    world.crash(store, 0).await;
    world.lose_index();
    store = world.open().await;
    assert!(keys(&store, "bucket").await.is_empty());
}

/// A small segment each: one in which an object that stays lives beside a dead one, then one that holds its deletion.
async fn with_old_creator(seed: u64) -> (World, Store) {
    let (mut world, mut store) = fresh(seed).await;
    put(&store, "bucket", "stays", &bytes(1, 100_000)).await;
    put(&store, "bucket", "goes", &bytes(2, 100)).await;
    store = world.restart(store).await;
    // The deletion lies in a segment with so much else that it can be carried.
    delete(&store, "bucket", "goes").await;
    for i in 0..4 {
        put(&store, "bucket", "other", &bytes(i, 100_000)).await;
    }
    store = world.restart(store).await;
    delete(&store, "bucket", "other").await;
    store = world.restart(store).await;
    (world, store)
}

#[tokio::test]
async fn a_deletion_outlives_its_segment_while_what_it_deleted_may_return() {
    let (mut world, store) = with_old_creator(2).await;
    store.free_dead_segments().await.unwrap();
    assert!(store.metrics().segments_freed.get() >= 1);
    assert!(store.metrics().mutations_carried.get() >= 1);
    assert!(files(&world) > 0);
    world.crash(store, 0).await;
    world.lose_index();
    let store = world.open().await;
    assert_eq!(keys(&store, "bucket").await, ["stays"]);
}

/// An object that is gone, after `places` puts of it that each lie beside an object that stays. Its last put and its deletion lay in segments of their own, which went: how many
/// mutations were carried for it, and which keys are there when the index is made anew of the log.
async fn carried_and_rebuilt(seed: u64, places: usize) -> (u64, Vec<String>) {
    let (mut world, mut store) = fresh(seed).await;
    put(&store, "bucket", "stays", &bytes(1, 100_000)).await;
    for number in 0..places {
        put(&store, "bucket", "goes", &bytes(2, 100)).await;
        store = world.restart(store).await;
        put(&store, "bucket", &format!("stays {number}"), &bytes(1, 100_000)).await;
    }
    store = world.restart(store).await;
    put(&store, "bucket", "goes", &bytes(3, 100)).await;
    put(&store, "bucket", "filler", &bytes(4, 100_000)).await;
    store = world.restart(store).await;
    delete(&store, "bucket", "goes").await;
    for number in 0..4 {
        put(&store, "bucket", "filler", &bytes(number, 100_000)).await;
    }
    store = world.restart(store).await;
    delete(&store, "bucket", "filler").await;
    let mut carried = 0;
    for _ in 0..2 {
        store.free_dead_segments().await.unwrap();
        carried += store.metrics().mutations_carried.get();
        store = world.restart(store).await;
    }
    world.crash(store, 0).await;
    world.lose_index();
    let store = world.open().await;
    (carried, keys(&store, "bucket").await)
}

#[tokio::test]
async fn a_deletion_is_carried_for_what_it_deleted_and_for_nothing_else() {
    // What it deleted is gone. Other objects that stay are older than it, too.
    assert_eq!(carried_and_rebuilt(21, 0).await, (0, vec!["stays".to_owned()]));
    // What that took the place of stays beside something else: in one segment, in several, and in more than a row names.
    for places in [1, 3, 12] {
        let (carried, rebuilt) = carried_and_rebuilt(22, places).await;
        assert!(
            carried > 0 && rebuilt.len() == 1 + places && !rebuilt.contains(&"goes".to_owned()),
            "{carried} {rebuilt:?}"
        );
    }
}

#[tokio::test]
async fn a_deletion_is_carried_although_there_is_an_object_again() {
    let (mut world, mut store) = fresh(23).await;
    put(&store, "bucket", "stays", &bytes(1, 100_000)).await;
    put(&store, "bucket", "goes", &bytes(2, 100)).await;
    store = world.restart(store).await;
    delete(&store, "bucket", "goes").await;
    for number in 0..4 {
        put(&store, "bucket", "filler", &bytes(number, 100_000)).await;
    }
    store = world.restart(store).await;
    // It comes again before its deletion's segment goes, and is deleted after it: its own deletion knows nothing of the first one's segment.
    put(&store, "bucket", "goes", &bytes(3, 100)).await;
    for number in 4..8 {
        put(&store, "bucket", "filler", &bytes(number, 100_000)).await;
    }
    store.free_dead_segments().await.unwrap();
    assert!(store.metrics().segments_freed.get() >= 1);
    store = world.restart(store).await;
    delete(&store, "bucket", "goes").await;
    for number in 8..12 {
        put(&store, "bucket", "filler", &bytes(number, 100_000)).await;
    }
    store = world.restart(store).await;
    delete(&store, "bucket", "filler").await;
    store = world.restart(store).await;
    store.free_dead_segments().await.unwrap();
    world.crash(store, 0).await;
    world.lose_index();
    store = world.open().await;
    assert_eq!(keys(&store, "bucket").await, ["stays"]);
}

#[tokio::test]
async fn a_deletion_is_carried_while_a_segment_stays_that_the_object_was_moved_from() {
    let (mut world, mut store) = fresh(24).await;
    world.config.compaction.live_ratio_max = 1.0;
    store = world.restart(store).await;
    for number in 0..20 {
        put(&store, "bucket", &format!("{number}"), &bytes(number, 3000)).await;
    }
    store = world.restart(store).await;
    for number in 0..10 {
        delete(&store, "bucket", &format!("{number}")).await;
    }
    store = world.restart(store).await;
    let compacted = store.compact().await.unwrap();
    assert!(compacted.rows_moved >= 10, "{compacted:?}");
    for number in 10..19 {
        delete(&store, "bucket", &format!("{number}")).await;
    }
    for _ in 0..3 {
        store = world.restart(store).await;
        store.free_dead_segments().await.unwrap();
    }
    world.crash(store, 0).await;
    world.lose_index();
    store = world.open().await;
    assert_eq!(keys(&store, "bucket").await, ["19"]);
}

#[tokio::test]
async fn a_deletion_goes_once_nothing_can_return() {
    let (mut world, mut store) = with_old_creator(3).await;
    delete(&store, "bucket", "stays").await;
    store.delete_bucket(&bucket("bucket")).await.unwrap();
    for _ in 0..4 {
        store = world.restart(store).await;
        store.free_dead_segments().await.unwrap();
    }
    let status = store.status();
    assert!(status.segments <= 2, "deletions do not keep each other: {status:?}");
}

#[tokio::test]
async fn a_crash_at_any_index_commit_after_a_free_loses_nothing() {
    for keep_commits in 0..8 {
        let (mut world, store) = with_old_creator(4).await;
        put(&store, "bucket", "new", &bytes(9, 1000)).await;
        store.free_dead_segments().await.unwrap();
        delete(&store, "bucket", "new").await;
        let store = world.crash_and_open(store, keep_commits).await;
        assert_eq!(keys(&store, "bucket").await, ["stays"]);
        assert_eq!(get(&store, "bucket", "stays").await.unwrap(), bytes(1, 100_000));
        check_counters(&world.index.current.lock());
    }
}

#[tokio::test]
async fn nothing_goes_that_a_crash_would_have_to_replay() {
    let mut config = config(2, 1);
    config.log.small_lanes = 1;
    let mut world = World::new(8, config);
    let mut store = world.open().await;
    store.create_bucket(bucket("bucket"), None).await.unwrap();
    put(&store, "bucket", "goes", &bytes(2, 100)).await;
    // From here on the durable index holds the object.
    store = world.restart(store).await;
    delete(&store, "bucket", "goes").await;
    store.delete_bucket(&bucket("bucket")).await.unwrap();
    store.create_bucket(bucket("filler"), None).await.unwrap();
    for i in 0..150 {
        put(&store, "filler", "key", &bytes(i, 100_000)).await;
    }
    delete(&store, "filler", "key").await;
    store.delete_bucket(&bucket("filler")).await.unwrap();
    // The segments of the object and of its deletion go, and the latter need not be carried: nothing can come back.
    store.free_dead_segments().await.unwrap();
    assert!(store.metrics().segments_freed.get() >= 3);
    assert_eq!(store.metrics().mutations_carried.get(), 0);
    let store = world.crash_and_open(store, 0).await;
    let all = gabion_store::ListBuckets { prefix: None, after: None, max: 10, owner: None };
    assert_eq!(store.list_buckets(all).await.unwrap().buckets, []);
    check_counters(&world.index.current.lock());
}

#[tokio::test]
async fn a_reader_keeps_what_it_reads() {
    let (mut world, mut store) = fresh(5).await;
    let body = bytes(5, 6_000_000);
    put(&store, "bucket", "key", &body).await;
    store = world.restart(store).await;
    let mut read = store.get_object(GetObject::whole(bucket("bucket"), key("key"))).await.unwrap();
    delete(&store, "bucket", "key").await;
    store.free_dead_segments().await.unwrap();
    assert!(store.metrics().segments_freed.get() >= 1);
    let mut got = Vec::new();
    while let Some(bytes) = read.body.next().await {
        got.extend_from_slice(&bytes.unwrap());
    }
    assert_eq!(got, body);
    assert!(matches!(get(&store, "bucket", "key").await, Err(StoreError::NoSuchKey)));
}

#[tokio::test]
async fn what_a_body_wrote_is_kept_until_its_object_is_there() {
    let (_world, store) = fresh(6).await;
    // A slow body fills segments; meanwhile others seal, and dead ones are freed.
    let (send, receive) = futures::channel::mpsc::unbounded();
    let slow = ObjectBody::from_stream(Box::pin(receive), None);
    let task = tokio::spawn({
        let store = store.clone();
        async move { store.put_object(put_request("bucket", "slow"), slow).await }
    });
    let mut expected = Vec::new();
    for i in 0..24 {
        let piece = bytes(100 + i, 700_000);
        expected.extend_from_slice(&piece);
        send.unbounded_send(Ok(piece)).unwrap();
        put(&store, "bucket", "other", &bytes(i, 1_200_000)).await;
        store.free_dead_segments().await.unwrap();
    }
    drop(send);
    task.await.unwrap().unwrap();
    store.free_dead_segments().await.unwrap();
    assert_eq!(get(&store, "bucket", "slow").await.unwrap(), expected);
}

#[tokio::test]
async fn a_full_disk_takes_deletes_and_then_puts_again() {
    let (world, store) = fresh(7).await;
    for disk in &world.disks {
        disk.full_at(40 << 20);
    }
    let mut stored = 0;
    let full = loop {
        let request = put_request("bucket", &format!("{stored}"));
        match store.put_object(request, ObjectBody::from_bytes(bytes(stored, 1_500_000))).await {
            Ok(_) => stored += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(full, StoreError::NoSpace), "{full:?}");
    assert_eq!(get(&store, "bucket", "0").await.unwrap(), bytes(0, 1_500_000));
    let deletes = (0..stored).map(|i| DeleteObject::current(key(&format!("{i}")))).collect();
    for (_, deleted) in store.delete_objects(bucket("bucket"), deletes).await.unwrap() {
        assert!(deleted.unwrap().existed);
    }
    store.free_dead_segments().await.unwrap();
    assert!(store.metrics().segments_freed.get() > 0);
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    put(&store, "bucket", "again", &bytes(1, 1_500_000)).await;
    assert_eq!(keys(&store, "bucket").await, ["again"]);
}

#[tokio::test(start_paused = true)]
async fn a_full_index_volume_stops_what_is_new_and_lets_deletions_go_on() {
    let mut config = config(2, 1);
    config.checkpoint_interval_ms = 1000;
    config.index_reserve_bytes = 1000;
    let world = World::new(77, config);
    let store = world.open().await;
    store.create_bucket(bucket("bucket"), None).await.unwrap();
    put(&store, "bucket", "old", &bytes(1, 1000)).await;
    let measured = || tokio::time::sleep(std::time::Duration::from_millis(1500));
    world.index.current.lock().set_available_bytes(Some(999));
    measured().await;
    for len in [0, 1000, 2_000_000] {
        let refused = store.put_object(put_request("bucket", "new"), ObjectBody::from_bytes(bytes(2, len))).await;
        assert!(matches!(refused, Err(StoreError::NoSpace)), "{len}: {refused:?}");
    }
    assert!(matches!(store.create_bucket(bucket("other"), None).await, Err(StoreError::NoSpace)));
    assert_eq!(get(&store, "bucket", "old").await.unwrap(), bytes(1, 1000));
    assert!(delete(&store, "bucket", "old").await);
    world.index.current.lock().set_available_bytes(Some(1000));
    measured().await;
    put(&store, "bucket", "new", &bytes(3, 1000)).await;
    assert_eq!(keys(&store, "bucket").await, ["new"]);
    // Nor does what keeps tables of the index go on, before it is too late for writers.
    assert!(matches!(store.snapshot_index().await, Err(StoreError::NoSpace)));
    world.index.current.lock().set_available_bytes(Some(2000));
    measured().await;
    assert!(store.snapshot_index().await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_memory_ends_with_busy() {
    let mut config = config(2, 1);
    config.put_memory_bytes = 1;
    config.log.stripe_memory_bytes = 3 * config.log.stripe_payload_bytes as u64 / 2;
    let world = World::new(78, config);
    let store = world.open().await;
    store.create_bucket(bucket("bucket"), None).await.unwrap();
    for (len, rest) in [(1 << 20, 100), (2 << 20, 2 << 20)] {
        // A client that sends nothing more holds all the memory there is.
        let stalled = {
            let store = store.clone();
            let body = futures::stream::iter([Ok(bytes(1, 10))]).chain(futures::stream::pending());
            let body = ObjectBody::from_stream(Box::pin(body), Some(len));
            tokio::spawn(async move { store.put_object(put_request("bucket", "stalled"), body).await })
        };
        tokio::task::yield_now().await;
        let other = || store.put_object(put_request("bucket", "other"), ObjectBody::from_bytes(bytes(2, rest)));
        let refusals = store.metrics().memory_refusals.get();
        assert!(matches!(other().await, Err(StoreError::Busy)), "{len}");
        assert_eq!(store.metrics().memory_refusals.get(), refusals + 1);
        stalled.abort();
        assert!(stalled.await.unwrap_err().is_cancelled());
        other().await.unwrap();
    }
    assert_eq!(keys(&store, "bucket").await, ["other"]);
}

/// Nor do uploads that hold the memory of all stripes keep what the store does by itself from going on.
#[tokio::test(start_paused = true)]
async fn slow_uploads_hold_up_neither_snapshots_nor_what_gives_space_back() {
    let mut config = config(2, 1);
    config.log.stripe_memory_bytes = 3 * config.log.stripe_payload_bytes as u64 / 2;
    let world = World::new(79, config);
    let store = world.open().await;
    store.create_bucket(bucket("bucket"), None).await.unwrap();
    put(&store, "bucket", "key", &bytes(1, 1000)).await;
    let stalled = {
        let store = store.clone();
        let body = futures::stream::iter([Ok(bytes(1, 10))]).chain(futures::stream::pending());
        let body = ObjectBody::from_stream(Box::pin(body), Some(2 << 20));
        tokio::spawn(async move { store.put_object(put_request("bucket", "stalled"), body).await })
    };
    while store.memory().iter().find(|memory| memory.name == "stripes").unwrap().used_bytes == 0 {
        tokio::task::yield_now().await;
    }
    let written = tokio::time::timeout(std::time::Duration::from_secs(60), store.snapshot_index()).await;
    assert!(written.unwrap().unwrap().is_some());
    stalled.abort();
}

/// What was deleted in a segment that can not be read is not known, so that it stays; the others do not wait for it.
#[tokio::test]
async fn a_dead_segment_that_can_not_be_read_does_not_keep_the_others() {
    let mut config = config(1, 0);
    config.log.small_lanes = 1;
    let mut world = World::new(91, config);
    let mut store = world.open().await;
    store.create_bucket(bucket("bucket"), None).await.unwrap();
    let segments = |world: &World| -> BTreeSet<String> {
        world.disks[0].paths().into_iter().filter(|path| path.starts_with("segments/")).collect()
    };
    let mut made = Vec::new();
    for round in 0..3 {
        let before = segments(&world);
        for number in 0..20 {
            put(&store, "bucket", &format!("{round}-{number}"), &bytes(number, 1000)).await;
        }
        made.push(segments(&world).difference(&before).next().unwrap_or_else(|| before.last().unwrap()).clone());
        // The next start seals the segment.
        store = world.restart(store).await;
    }
    // The first stays, so that what the others took away matters.
    (4096 * 6 + 200..4096 * 6 + 400).for_each(|at| world.disks[0].corrupt(&made[1], at));
    for round in 1..3 {
        for number in 0..20 {
            delete(&store, "bucket", &format!("{round}-{number}")).await;
        }
    }
    store = world.restart(store).await;
    store.free_dead_segments().await.unwrap();
    let left = segments(&world);
    assert_eq!(made.iter().map(|path| left.contains(path)).collect::<Vec<_>>(), [true, true, false]);
    assert_eq!(get(&store, "bucket", "0-7").await.unwrap(), bytes(7, 1000));
}

/// A store whose only lane for large objects seals a segment with each mebibyte.
async fn with_short_segments(
    seed: u64,
    data: usize,
    parity: usize,
    open: impl AsyncFn(&World) -> Store,
) -> (World, Store) {
    let mut config = config(data, parity);
    (config.log.small_lanes, config.log.large_lanes) = (1, 1);
    config.log.segment_payload_bytes = 1 << 20;
    let world = World::new(seed, config);
    let store = open(&world).await;
    store.create_bucket(bucket("bucket"), None).await.unwrap();
    (world, store)
}

async fn settle() {
    for _ in 0..2000 {
        tokio::task::yield_now().await;
    }
}

/// A slow download keeps many dead segments, and none but these.
#[tokio::test]
async fn what_readers_keep_holds_up_nothing_that_nobody_reads() {
    let (world, store) = with_short_segments(31, 1, 0, World::open).await;
    let body = bytes(1, 72 << 20);
    put(&store, "bucket", "read", &body).await;
    let read: BTreeSet<_> = world.segment_rows().into_keys().collect();
    assert!(read.len() > 70);
    put(&store, "bucket", "goes", &bytes(2, 4 << 20)).await;
    let mut reader = store.get_object(GetObject::whole(bucket("bucket"), key("read"))).await.unwrap();
    delete(&store, "bucket", "read").await;
    delete(&store, "bucket", "goes").await;
    store.free_dead_segments().await.unwrap();
    settle().await;
    let left: BTreeSet<_> = world.segment_rows().into_keys().collect();
    assert!(left.is_superset(&read), "it is read");
    // The segment that was open, and that of the deletions.
    assert!(left.difference(&read).count() <= 2, "{}", left.difference(&read).count());
    let mut got = Vec::new();
    while let Some(bytes) = reader.body.next().await {
        got.extend_from_slice(&bytes.unwrap());
    }
    assert_eq!(got, body);
    drop(reader);
    settle().await;
    assert!(world.segment_rows().len() <= 4, "{}", world.segment_rows().len());
}

/// A disk on which the removal of a file never ends.
struct NeverRemoves(SimDisk);

impl Disk for NeverRemoves {
    fn create(&self, path: &str, preallocate_bytes: u64) -> IoFuture<Arc<dyn DiskFile>> {
        self.0.create(path, preallocate_bytes)
    }

    fn open(&self, path: &str) -> IoFuture<Arc<dyn DiskFile>> {
        self.0.open(path)
    }

    fn list(&self, dir: &str) -> IoFuture<Vec<DirEntry>> {
        self.0.list(dir)
    }

    fn read_file(&self, path: &str, max_bytes: usize) -> IoFuture<Bytes> {
        self.0.read_file(path, max_bytes)
    }

    fn write_file(&self, path: &str, bytes: Bytes) -> IoFuture<()> {
        self.0.write_file(path, bytes)
    }

    fn rename(&self, from: &str, to: &str) -> IoFuture<()> {
        self.0.rename(from, to)
    }

    fn unlink(&self, _path: &str) -> IoFuture<()> {
        Box::pin(future::pending())
    }

    fn sync_dir(&self, dir: &str) -> IoFuture<()> {
        self.0.sync_dir(dir)
    }

    fn space(&self) -> IoFuture<Space> {
        self.0.space()
    }
}

/// A drive that does not answer keeps the files that are on it, and none of those on others.
#[tokio::test]
async fn a_target_that_hangs_holds_up_no_removal_on_the_others() {
    let open = async |world: &World| {
        let is_sick = |number: usize, disk: &SimDisk| -> Arc<dyn Disk> {
            if number == 0 { Arc::new(NeverRemoves(disk.clone())) } else { Arc::new(disk.clone()) }
        };
        world.open_on(is_sick).await
    };
    let (world, store) = with_short_segments(32, 1, 1, open).await;
    put(&store, "bucket", "goes", &bytes(1, 72 << 20)).await;
    let files = |disk: usize| world.disks[disk].paths().iter().filter(|path| path.starts_with("segments/")).count();
    let before = files(0);
    assert!(before > 70 && files(1) == before);
    delete(&store, "bucket", "goes").await;
    store.free_dead_segments().await.unwrap();
    settle().await;
    assert!(files(0) >= before && files(1) <= 4, "{} {}", files(0), files(1));
    put(&store, "bucket", "comes", &bytes(2, 1 << 20)).await;
    store.shutdown().await;
}

/// A segment of a large object of which too little is left goes as little as one of records, and keeps no other from going.
#[tokio::test]
async fn a_dead_segment_that_is_lost_keeps_no_other() {
    let (mut world, mut store) = fresh(33).await;
    let mut made = Vec::new();
    for name in ["first", "second"] {
        let before = world.segment_rows();
        put(&store, "bucket", name, &bytes(1, 1_500_000)).await;
        let of_it = |(id, row): &(SegmentId, SegmentRow)| row.kind == LaneKind::Large && !before.contains_key(id);
        made.push(world.segment_rows().into_iter().find(of_it).unwrap().0);
        store = world.restart(store).await;
    }
    store.shutdown().await;
    drop(store);
    // One shard is left of three, and it does not end as the index says.
    let lost = made[0].to_string();
    for (number, disk) in world.disks.iter().enumerate() {
        let path = disk.paths().into_iter().find(|path| path.contains(&lost)).unwrap();
        if number > 0 {
            disk.unlink(&path).await.unwrap();
        } else {
            let file = disk.open(&path).await.unwrap();
            file.set_len(file.len().await.unwrap() - 4096).await.unwrap();
        }
    }
    let store = world.open().await;
    assert_eq!(store.status().log.unreadable_segments, 1);
    assert!(get(&store, "bucket", "first").await.is_err());
    delete(&store, "bucket", "first").await;
    delete(&store, "bucket", "second").await;
    for _ in 0..2 {
        store.free_dead_segments().await.unwrap();
        let states = world.segment_rows();
        assert_eq!(states[&made[0]].state, SegmentState::Sealed);
        assert!(states.get(&made[1]).is_none_or(|row| row.state == SegmentState::Freeing));
        store.compact().await.unwrap();
    }
}

/// Bytes that were read, as long as somebody has a part of them.
struct Read {
    bytes: Bytes,
    held: Arc<Held>,
}

/// How many of those there are, and how many there were at most.
#[derive(Default)]
struct Held {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl AsRef<[u8]> for Read {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Read {
    fn drop(&mut self) {
        self.held.now.fetch_sub(1, Ordering::SeqCst);
    }
}

struct ReadFile {
    file: Arc<dyn DiskFile>,
    held: Arc<Held>,
}

impl DiskFile for ReadFile {
    fn read_at(&self, offset: u64, len: usize) -> IoFuture<Bytes> {
        let (read, held) = (self.file.read_at(offset, len), Arc::clone(&self.held));
        Box::pin(async move {
            let bytes = read.await?;
            let now = held.now.fetch_add(1, Ordering::SeqCst) + 1;
            held.most.fetch_max(now, Ordering::SeqCst);
            Ok(Bytes::from_owner(Read { bytes, held }))
        })
    }

    fn write_at(&self, offset: u64, parts: Vec<Bytes>, durable: Durable) -> IoFuture<()> {
        self.file.write_at(offset, parts, durable)
    }

    fn sync(&self) -> IoFuture<()> {
        self.file.sync()
    }

    fn len(&self) -> IoFuture<u64> {
        self.file.len()
    }

    fn set_len(&self, len: u64) -> IoFuture<()> {
        self.file.set_len(len)
    }

    fn punch(&self, offset: u64, len: u64) -> IoFuture<()> {
        self.file.punch(offset, len)
    }

    fn prewrite(&self, offset: u64, len: u64) -> IoFuture<bool> {
        self.file.prewrite(offset, len)
    }
}

/// Deletions of a segment that goes are kept in memory until they are written again, and nothing of what was read with them.
#[tokio::test]
async fn what_is_carried_keeps_nothing_else_in_memory() {
    const DELETED: usize = 100;
    let (mut world, mut store) = fresh(34).await;
    put(&store, "bucket", "stays", &bytes(1, 100_000)).await;
    for number in 0..DELETED {
        put(&store, "bucket", &format!("goes {number}"), &bytes(2, 100)).await;
    }
    store = world.restart(store).await;
    // One after the other: each lies in a stripe of its own.
    for number in 0..DELETED {
        delete(&store, "bucket", &format!("goes {number}")).await;
    }
    for number in 0..8 {
        put(&store, "bucket", "filler", &bytes(number, 100_000)).await;
    }
    store = world.restart(store).await;
    delete(&store, "bucket", "filler").await;
    store.shutdown().await;
    drop(store);
    let held = Arc::new(Held::default());
    let open: Arc<OpenFile> = Arc::new({
        let held = Arc::clone(&held);
        move |_, _, opened| {
            let held = Arc::clone(&held);
            Box::pin(async move { Ok(Arc::new(ReadFile { file: opened.await?, held }) as Arc<dyn DiskFile>) })
        }
    });
    let store = world.open_on(|_, disk| disk.wrapped(Arc::clone(&open))).await;
    held.most.store(0, Ordering::SeqCst);
    store.free_dead_segments().await.unwrap();
    assert!(store.metrics().mutations_carried.get() >= DELETED as u64);
    let most = held.most.load(Ordering::SeqCst);
    assert!((1..DELETED / 4).contains(&most), "{most}");
}
