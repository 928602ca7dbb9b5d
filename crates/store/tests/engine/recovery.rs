//! Replay, rebuild, and what is lost.

use std::ops::Range;

use gabion_metadata::{
    Index, ROW_BYTES_MAX, ScanRange, Table, Write, keys as keys_of,
    rows::{LaneKind, SegmentRow, SegmentState},
};
use gabion_platform::SimDisk;
use gabion_segment::Durability;
use gabion_store::StoreError;
use gabion_types::SegmentId;

use crate::harness::{truth::check_counters, *};

/// Two lanes' worth of puts, overwrites and deletes.
async fn fill(store: &gabion_store::Store, rounds: u64) {
    for round in 0..rounds {
        futures::future::join_all((0..50).map(|i| {
            let name = format!("key {}", (round * 17 + i) % 90);
            async move {
                if (round + i).is_multiple_of(5) {
                    delete(store, "bucket", &name).await;
                } else {
                    put(store, "bucket", &name, &bytes(round * 100 + i, 300)).await;
                }
            }
        }))
        .await;
    }
}

#[tokio::test]
async fn a_replay_that_is_cut_off_goes_on_where_it_was() {
    for geometry in [(1, 0), (2, 1)] {
        let mut world = World::new(1, config(geometry.0, geometry.1));
        let mut store = world.open().await;
        store.create_bucket(bucket("bucket"), None).await.unwrap();
        fill(&store, 20).await;
        store = world.restart(store).await;
        fill(&store, 60).await;
        let expected = list_all(&store, "bucket").await;
        world.crash(store, 0).await;
        // The tail is some 3000 mutations: a few commits. Cut it off after each of them.
        let before = fork(&world.index.current.lock());
        for keep_commits in 0..6 {
            *world.index.current.lock() = fork(&before);
            // Opening persists at its end; a crash just before that leaves a prefix of its commits.
            let (store, report) = world.try_open().await.unwrap();
            assert!(report.mutations_replayed > 2000, "{report:?}");
            assert_eq!(report.index_rebuilt, None);
            drop(store);
            let cut = fork(&before);
            replay_prefix(&world, &cut, keep_commits).await;
            *world.index.current.lock() = cut;
            let store = world.open().await;
            assert_eq!(list_all(&store, "bucket").await, expected);
            check_counters(&world.index.current.lock());
            world.crash(store, usize::MAX).await;
        }
    }
}

/// What a replay could not read it does not take to be applied, also when it is cut off: the next one may be able to.
#[tokio::test]
async fn what_a_replay_that_is_cut_off_could_not_read_is_not_forgotten() {
    // In the records of some stripes.
    const FLIPPED: Range<u64> = 20..40;
    let mut world = World::new(1, config(1, 0));
    let store = world.open().await;
    store.create_bucket(bucket("bucket"), None).await.unwrap();
    for round in 0..60 {
        let names = (0..50).map(|i| format!("key {round} {i}"));
        let put = async |name: String| put(&store, "bucket", &name, &bytes(round, 300)).await;
        futures::future::join_all(names.map(put)).await;
    }
    let expected = list_all(&store, "bucket").await;
    world.crash(store, 0).await;
    let before = fork(&world.index.current.lock());
    // Of a segment that has ended a recovery reads the seal.
    let store = world.open().await;
    world.crash(store, usize::MAX).await;
    for keep_commits in [2, 3, 4] {
        let paths: Vec<String> =
            world.disks[0].paths().into_iter().filter(|path| path.starts_with("segments/")).collect();
        // Twice, and it is as it was.
        let flip = || FLIPPED.for_each(|number| world.disks[0].corrupt(&paths[0], number * 5000));
        flip();
        let cut = fork(&before);
        replay_prefix(&world, &cut, keep_commits).await;
        *world.index.current.lock() = cut;
        flip();
        let (store, report) = world.try_open().await.unwrap();
        assert_eq!(list_all(&store, "bucket").await, expected, "{keep_commits} {report:?}");
        assert!(report.index_rebuilt.is_some(), "{keep_commits} {report:?}");
        check_counters(&world.index.current.lock());
        world.crash(store, usize::MAX).await;
    }
}

/// Leaves in `index` what the first commits of a replay leave.
pub(crate) async fn replay_prefix(world: &World, index: &gabion_metadata::MemoryIndex, commits: usize) {
    let interrupted = std::sync::Arc::new(Interrupted { index: index.clone(), left: parking_lot::Mutex::new(commits) });
    let factory = Box::new(OneIndex(interrupted));
    let opened = gabion_store::Store::open(
        world.config.clone(),
        world.targets(),
        factory,
        world.env(),
        std::sync::Arc::new(gabion_store::Silent),
    )
    .await;
    assert!(matches!(opened, Err(StoreError::Unavailable(_))), "it was cut off");
}

struct OneIndex(std::sync::Arc<Interrupted>);

impl gabion_store::IndexFactory for OneIndex {
    fn open(&self) -> Result<std::sync::Arc<dyn Index>, gabion_metadata::IndexError> {
        Ok(self.0.clone())
    }

    fn destroy(&self) -> Result<(), gabion_metadata::IndexError> {
        Ok(())
    }
}

/// Fails after so many commits.
struct Interrupted {
    index: gabion_metadata::MemoryIndex,
    left: parking_lot::Mutex<usize>,
}

impl Index for Interrupted {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<gabion_metadata::Value>, gabion_metadata::IndexError> {
        self.index.get(table, key)
    }

    fn scan(
        &self,
        range: gabion_metadata::ScanRange,
        limit: usize,
    ) -> Result<gabion_metadata::Rows, gabion_metadata::IndexError> {
        self.index.scan(range, limit)
    }

    fn snapshot(&self) -> std::sync::Arc<dyn gabion_metadata::IndexSnapshot> {
        self.index.snapshot()
    }

    fn commit(
        &self,
        preconditions: &[gabion_metadata::Precondition],
        writes: Vec<Write>,
    ) -> Result<(), gabion_metadata::IndexError> {
        let mut left = self.left.lock();
        *left = left.checked_sub(1).ok_or(gabion_metadata::IndexError::Closed)?;
        self.index.commit(preconditions, writes)
    }

    fn persist(&self) -> Result<(), gabion_metadata::IndexError> {
        Err(gabion_metadata::IndexError::Closed)
    }

    fn check(&self) -> Result<(), gabion_metadata::IndexError> {
        Ok(())
    }

    fn available_bytes(&self) -> Option<u64> {
        self.index.available_bytes()
    }

    fn stats(&self) -> gabion_metadata::IndexStats {
        self.index.stats()
    }
}

#[tokio::test]
async fn an_index_that_can_not_be_trusted_is_rebuilt() {
    let mut world = World::new(2, config(2, 1));
    let mut store = world.open().await;
    store.create_bucket(bucket("bucket"), None).await.unwrap();
    fill(&store, 5).await;
    let expected = list_all(&store, "bucket").await;
    store.shutdown().await;
    let sound = fork(&world.index.current.lock());
    drop(store);
    let damages: [(&str, Write); 2] = [
        ("format", Write::Put(Table::System, b"format".to_vec(), vec![0, 0, 0, 0, 0, 0, 0, 9])),
        ("segment", Write::Put(Table::Segment, vec![1; 16], vec![1, 2, 3])),
    ];
    for (what, damage) in damages {
        let index = fork(&sound);
        index.commit(&[], vec![damage]).unwrap();
        *world.index.current.lock() = index;
        let (opened, report) = world.try_open().await.unwrap();
        assert!(report.index_rebuilt.is_some(), "{what}: {report:?}");
        assert_eq!(list_all(&opened, "bucket").await, expected, "{what}");
        world.crash(opened, usize::MAX).await;
    }
    let index = fork(&sound);
    index.commit(&[], vec![Write::Put(Table::System, b"deployment".to_vec(), vec![7; 16])]).unwrap();
    *world.index.current.lock() = index.clone();
    let refused = world.try_open().await.map(|_| ()).unwrap_err().to_string();
    assert!(refused.contains("the targets belong to deployment"), "{refused}");
    assert!(index.get(Table::Bucket, b"bucket").unwrap().is_some(), "the index of another deployment is left alone");
    world.lose_index();
    let (opened, report) = world.try_open().await.unwrap();
    assert_eq!(report.index_rebuilt.as_deref(), Some("there was none"));
    store = opened;
    assert_eq!(list_all(&store, "bucket").await, expected);
    let (again, report) = {
        world.crash(store, usize::MAX).await;
        world.try_open().await.unwrap()
    };
    assert_eq!((report.index_rebuilt, report.mutations_replayed), (None, 0));
    assert_eq!(list_all(&again, "bucket").await, expected);
}

fn relaxed() -> gabion_store::StoreConfig {
    let mut config = config(2, 1);
    config.log.durability = Durability::Relaxed;
    config
}

/// The mutation lies in another segment than the bytes, and a power cut may take either (found by the simulator).
#[tokio::test]
async fn relaxed_durability_leaves_no_object_without_its_bytes() {
    let (mut kept, mut lost) = (0, 0);
    for seed in 0..24 {
        let mut world = World::new(seed, relaxed());
        let store = world.open().await;
        store.create_bucket(bucket("bucket"), None).await.unwrap();
        put(&store, "bucket", "small", &bytes(3, 5000)).await;
        store.checkpoint().await.unwrap();
        let body = bytes(seed, 1_500_000);
        put(&store, "bucket", "large", &body).await;
        store.copy_object(copy_request("large", "copy")).await.unwrap();
        let store = world.crash_and_open(store, 0).await;
        for name in ["large", "copy"] {
            match get(&store, "bucket", name).await {
                Ok(got) => {
                    assert_eq!(got, body, "seed {seed}");
                    kept += 1;
                }
                Err(StoreError::NoSuchKey) => lost += 1,
                Err(error) => panic!("seed {seed}: {name}: {error}"),
            }
        }
        assert_eq!(get(&store, "bucket", "small").await.unwrap(), bytes(3, 5000));
    }
    assert!(kept > 0 && lost > 0, "{kept} kept, {lost} lost: the power cut proves nothing");
}

/// What a client did after it was told of something else does not survive that.
#[tokio::test]
async fn relaxed_durability_loses_the_last_records_and_none_before_them() {
    let mut partial = 0;
    for seed in 0..24 {
        let mut world = World::new(seed, relaxed());
        let store = world.open().await;
        store.create_bucket(bucket("bucket"), None).await.unwrap();
        store.checkpoint().await.unwrap();
        for round in 0..6 {
            // More than one lane gathers before the next takes some.
            let puts = (0..150).map(|i| (i, format!("{round} {i}")));
            futures::future::join_all(puts.map(|(i, name)| {
                let store = &store;
                async move { put(store, "bucket", &name, &bytes(i, 200)).await }
            }))
            .await;
        }
        let store = world.crash_and_open(store, 0).await;
        let listed = keys(&store, "bucket").await;
        let counts: Vec<usize> =
            (0..6).map(|round| listed.iter().filter(|key| key.starts_with(&format!("{round} "))).count()).collect();
        let is_prefix = counts.windows(2).all(|pair| pair[1] == 0 || pair[0] == 150);
        assert!(is_prefix, "seed {seed}: of six rounds, one after the other, {counts:?} are left");
        partial += usize::from(listed.len() < 900 && !listed.is_empty());
    }
    assert!(partial > 0, "the power cut proves nothing");
}

/// A row is moved through another lane than that in which its bucket was created.
#[tokio::test]
async fn relaxed_durability_leaves_no_moved_object_without_its_bucket() {
    let mut cut = 0;
    for seed in 0..24 {
        for steps in 5.. {
            let mut config = config(1, 0);
            config.log.durability = Durability::Relaxed;
            let mut world = World::new(seed, config);
            let mut store = world.open().await;
            store.create_bucket(bucket("bucket"), None).await.unwrap();
            put(&store, "bucket", "source", &bytes(1, 30_000)).await;
            put(&store, "bucket", "dead", &bytes(2, 100_000)).await;
            store = world.restart(store).await;
            delete(&store, "bucket", "dead").await;
            store.checkpoint().await.unwrap();
            store.create_bucket(bucket("new"), None).await.unwrap();
            let copy = gabion_store::CopyObject { bucket: bucket("new"), ..copy_request("source", "copy") };
            store.copy_object(copy).await.unwrap();
            world.power.cut_after(steps);
            let compacted = store.compact().await;
            let is_done = !world.power.is_out();
            assert!(!is_done || compacted.unwrap().rows_moved >= 2);
            let store = world.crash_and_open(store, 0).await;
            let found =
                world.rows().into_iter().any(|(table, key, _)| table == Table::Object && key.starts_with(b"new"));
            if found {
                get(&store, "new", "copy").await.unwrap_or_else(|error| panic!("seed {seed}, {steps} steps: {error}"));
                store
                    .head_bucket(&bucket("new"))
                    .await
                    .unwrap_or_else(|error| panic!("seed {seed}, {steps} steps: {error}"));
            }
            get(&store, "bucket", "source").await.unwrap();
            if is_done {
                break;
            }
            cut += 1;
        }
    }
    assert!(cut > 20, "{cut}");
}

#[tokio::test]
async fn relaxed_durability_keeps_what_a_checkpoint_covers() {
    for seed in 3..23 {
        let mut config = config(2, 1);
        config.log.durability = Durability::Relaxed;
        let mut world = World::new(seed, config);
        let store = world.open().await;
        store.create_bucket(bucket("bucket"), None).await.unwrap();
        put(&store, "bucket", "old", &bytes(1, 1000)).await;
        put(&store, "bucket", "large", &bytes(2, 2_000_000)).await;
        store.checkpoint().await.unwrap();
        put(&store, "bucket", "new", &bytes(3, 1000)).await;
        // The index may be ahead of the log after this: then it is rebuilt.
        let store = world.crash_and_open(store, (seed % 3) as usize).await;
        assert_eq!(get(&store, "bucket", "old").await.unwrap(), bytes(1, 1000));
        assert_eq!(get(&store, "bucket", "large").await.unwrap(), bytes(2, 2_000_000));
        match get(&store, "bucket", "new").await {
            Ok(body) => assert_eq!(body, bytes(3, 1000)),
            Err(error) => assert!(matches!(error, StoreError::NoSuchKey)),
        }
        check_counters(&world.index.current.lock());
    }
}

#[tokio::test]
async fn a_lost_target_is_not_noticed() {
    let mut world = World::new(30, config(4, 2));
    let store = world.open().await;
    store.create_bucket(bucket("bucket"), None).await.unwrap();
    fill(&store, 3).await;
    put(&store, "bucket", "large", &bytes(2, 3_000_000)).await;
    let expected = list_all(&store, "bucket").await;
    world.crash(store, 0).await;
    world.lose_index();
    for lost in [0, 3] {
        world.disks[lost].offline(true);
    }
    let store = world.open().await;
    assert_eq!(list_all(&store, "bucket").await, expected);
    assert_eq!(get(&store, "bucket", "large").await.unwrap(), bytes(2, 3_000_000));
    // With as many lost as parity replaces, nothing new could survive one more: no write is taken.
    let put = store.put_object(put_request("bucket", "new"), gabion_store::ObjectBody::from_bytes(bytes(4, 10))).await;
    assert!(matches!(put, Err(StoreError::Unavailable(_))));
}

#[tokio::test]
async fn a_freed_segment_does_not_come_back_with_a_target() {
    // 1+1: one shard is a whole segment.
    for lose_index in [false, true] {
        let mut world = World::new(31, config(1, 1));
        world.disks.push(gabion_platform::SimDisk::new(99));
        let mut store = world.open().await;
        store.create_bucket(bucket("bucket"), None).await.unwrap();
        store = world.restart(store).await;
        put(&store, "bucket", "key", &bytes(1, 1000)).await;
        put(&store, "bucket", "large", &bytes(2, 2_000_000)).await;
        store = world.restart(store).await;
        delete(&store, "bucket", "key").await;
        delete(&store, "bucket", "large").await;
        world.crash(store, usize::MAX).await;
        world.disks[1].offline(true);
        store = world.open().await;
        store.free_dead_segments().await.unwrap();
        world.crash(store, usize::MAX).await;
        if lose_index {
            world.lose_index();
            store = world.open().await;
            world.crash(store, usize::MAX).await;
        }
        world.disks[1].offline(false);
        store = world.open().await;
        assert!(keys(&store, "bucket").await.is_empty(), "lost: {lose_index}");
        check_counters(&world.index.current.lock());
        world.crash(store, 0).await;
        store = world.open().await;
        assert!(keys(&store, "bucket").await.is_empty());
    }
}

#[tokio::test]
async fn a_lost_stripe_does_not_take_those_behind_it() {
    let world = World::with_a_lost_stripe(32).await;
    let (store, report) = world.try_open().await.unwrap();
    // The operator is told, though all of the segment's files are there and only a replay reads what is in them.
    assert!(report.segments_unreadable == 1 && report.warnings.len() == 1, "{report:?}");
    let expected: Vec<String> = (0..20).filter(|&i| i != 4).map(|i| format!("{i:02}")).collect();
    assert_eq!(keys(&store, "bucket").await, expected);
}

#[tokio::test]
async fn what_can_not_be_read_for_now_keeps_what_it_refers_to() {
    let mut config = config(1, 1);
    config.log.small_lanes = 1;
    config.log.large_lanes = 1;
    let mut world = World::new(33, config);
    // One more than a segment needs, so that writes go on without one.
    world.disks.push(SimDisk::powered(99, &world.power));
    let store = world.open().await;
    store.create_bucket(bucket("bucket"), None).await.unwrap();
    store.create_bucket(bucket("other"), None).await.unwrap();
    // In a segment of its own.
    let store = world.restart(store).await;
    let known = world.segment_rows();
    let body = bytes(1, 3 << 20);
    put(&store, "bucket", "large", &body).await;
    // Both segments are sealed by the next start; later ones say nothing of the object.
    let store = world.restart(store).await;
    let (mut small, mut large) = (None, None);
    let is_new = |(id, row): &(_, SegmentRow)| row.sealed_stripes.is_some() && !known.contains_key(id);
    for (id, row) in world.segment_rows().into_iter().filter(is_new) {
        match row.kind {
            LaneKind::Small => small = small.or(Some(id)),
            LaneKind::Large => large = large.or(Some(id)),
        }
    }
    let (small, large) = (small.unwrap(), large.unwrap());
    store.shutdown().await;
    drop(store);
    // One target is away, and the mutations on the other one rot: nothing says that the object is there.
    let file_on = |disk: &SimDisk| disk.paths().into_iter().find(|path| path.contains(&small.to_string()));
    let mut holders = (0..3).filter_map(|disk| Some((disk, file_on(&world.disks[disk])?)));
    let ((away, _), (rotten, path)) = (holders.next().unwrap(), holders.next().unwrap());
    drop(holders);
    (100..4000).step_by(50).for_each(|at| world.disks[rotten].corrupt(&path, 4096 + at));
    world.disks[away].offline(true);
    world.lose_index();
    let store = world.open().await;
    assert!(world.segment_rows()[&large].punched.is_none(), "nothing of it counts as a hole");
    put(&store, "other", "new", &bytes(2, 3 << 20)).await;
    delete(&store, "other", "new").await;
    store.checkpoint().await.unwrap();
    store.free_dead_segments().await.unwrap();
    store.compact().await.unwrap();
    store.free_dead_segments().await.unwrap();
    assert!(world.segment_rows().contains_key(&large), "it looks dead, and is not");
    store.shutdown().await;
    drop(store);
    world.disks[away].offline(false);
    let store = world.open().await;
    assert_eq!(get(&store, "bucket", "large").await.unwrap(), body);
    check_counters(&world.index.current.lock());
    // With everything there, what is dead goes.
    delete(&store, "bucket", "large").await;
    let store = world.restart(store).await;
    store.checkpoint().await.unwrap();
    store.free_dead_segments().await.unwrap();
    assert!(!world.segment_rows().get(&large).is_some_and(|row| row.state != SegmentState::Freeing));
}

/// More segments were freed, and may come back with a target, than one row of the index names. It is made anew of a log that says so of each, and remembers all.
#[tokio::test]
async fn an_index_is_made_of_a_log_in_which_very_many_segments_are_freed() {
    let per_row = (ROW_BYTES_MAX / size_of::<u128>()) as u64;
    let mut world = World::new(95, config(2, 1));
    let store = world.open().await;
    store.create_bucket(bucket("bucket"), None).await.unwrap();
    put(&store, "bucket", "kept", &bytes(1, 1000)).await;
    for seed in 0..4 {
        put(&store, "bucket", "goes", &bytes(seed, 1_500_000)).await;
    }
    delete(&store, "bucket", "goes").await;
    let store = world.restart(store).await;
    store.shutdown().await;
    drop(store);
    // As an index has them that was written when such a list had one row and no more.
    let row = (0..per_row).flat_map(|id| SegmentId::new(7, id).to_bytes()).collect();
    let write = Write::Put(Table::System, keys_of::system("forgotten"), row);
    world.index.current.lock().commit(&[], vec![write]).unwrap();
    let store = world.open().await;
    // Where the log says it of these it does not know: so it says it again before anything else goes.
    assert!(store.free_dead_segments().await.unwrap() >= 2);
    world.crash(store, 0).await;
    world.lose_index();
    let (store, report) = world.try_open().await.unwrap();
    let remembers_all = |world: &World| {
        let list = ScanRange::prefix(Table::System, b"forgotten");
        let rows = world.index.current.lock().scan(list, usize::MAX).unwrap();
        rows.iter().map(|(_, row)| row.len() as u64 / 16).sum::<u64>() > per_row
    };
    assert!(report.index_rebuilt.is_some() && report.rows_restored == 0 && remembers_all(&world));
    assert_eq!(get(&store, "bucket", "kept").await.unwrap(), bytes(1, 1000));
    // Nor is that too many for a snapshot of it.
    assert!(store.snapshot_index().await.unwrap().is_some());
    world.crash(store, 0).await;
    world.lose_index();
    let (store, report) = world.try_open().await.unwrap();
    assert!(report.rows_restored > 0 && remembers_all(&world));
    assert_eq!(get(&store, "bucket", "kept").await.unwrap(), bytes(1, 1000));
}
