//! Compaction: space comes back, every row stays what it was, whatever happens in between.

use std::time::Duration;

use futures::StreamExt;
use gabion_metadata::{
    Index, Table,
    rows::{Layout, ObjectRow, Row},
};
use gabion_platform::{FaultRates, OneIn};
use gabion_store::{
    CompletedPart, CreateUpload, GetObject, ListParts, ObjectBody, Silent, Store, StoreError, UploadPart, UploadRef,
};
use tokio::time::Instant;

use crate::{
    harness::{truth::check_counters, *},
    recovery::replay_prefix,
};

pub async fn fresh(seed: u64, geometry: (usize, usize)) -> (World, Store) {
    let world = World::new(seed, config(geometry.0, geometry.1));
    let store = world.open().await;
    store.create_bucket(bucket("bucket"), None).await.unwrap();
    (world, store)
}

/// Two thirds of what is written is dead; every segment is sealed.
pub async fn half_dead(world: &mut World, mut store: Store, size: usize) -> Store {
    for i in 0..60 {
        put(&store, "bucket", &format!("{i}"), &bytes(i, size)).await;
    }
    store = world.restart(store).await;
    for i in (0..60).filter(|i| i % 3 != 0) {
        delete(&store, "bucket", &format!("{i}")).await;
    }
    world.restart(store).await
}

pub async fn check_half_dead(store: &Store, size: usize) {
    let expected: Vec<String> = (0..60).filter(|i| i % 3 == 0).map(|i| format!("{i}")).collect();
    let mut found = keys(store, "bucket").await;
    found.retain(|name| name.parse::<u64>().is_ok());
    found.sort_by_key(|name| name.parse::<u64>().unwrap());
    assert_eq!(found, expected);
    for i in (0..60).step_by(3) {
        assert_eq!(get(store, "bucket", &format!("{i}")).await.unwrap(), bytes(i, size), "{i}");
    }
}

/// The index that is rebuilt from the segments alone is the one that is there, row for row.
pub async fn check_rebuild(world: &mut World, store: Store) -> Store {
    store.shutdown().await;
    drop(store);
    let before = world.rows();
    let (config, targets, factory, env) = (world.config.clone(), world.targets(), world.factory(), world.env());
    Store::rebuild_index(config, targets, factory, env, std::sync::Arc::new(Silent)).await.unwrap();
    world.check_rebuilt(&before);
    check_counters(&world.index.current.lock());
    world.open().await
}

#[tokio::test]
async fn what_is_live_moves_and_the_rest_is_given_back() {
    for (seed, geometry, size) in [(1, (1, 0), 3000), (2, (2, 1), 3000), (3, (2, 1), 200_000), (4, (2, 1), 1_500_000)] {
        let (mut world, store) = fresh(seed, geometry).await;
        let mut store = half_dead(&mut world, store, size).await;
        let before = store.status();
        assert!(before.compaction_segments > 0 && before.compaction_debt_bytes > 0, "{before:?}");
        let compacted = store.compact().await.unwrap();
        assert!(compacted.victims > 0 && compacted.victims_freed == compacted.victims, "{compacted:?}");
        assert_eq!((compacted.rows_changed, compacted.rows_failed), (0, 0));
        // The bucket's own row lies in one of them.
        assert!((20..=21).contains(&compacted.rows_moved), "{compacted:?}");
        check_half_dead(&store, size).await;
        check_counters(&world.index.current.lock());
        store = world.restart(store).await;
        let after = store.status();
        assert!(after.written_bytes < before.written_bytes / 2, "{after:?} after {before:?}");
        assert_eq!((after.compaction_segments, after.compaction_debt_bytes), (0, 0));
        check_half_dead(&store, size).await;
        assert_eq!(store.compact().await.unwrap().rows_moved, 0, "there is nothing left to do");
        store = check_rebuild(&mut world, store).await;
        check_half_dead(&store, size).await;
    }
}

#[tokio::test]
async fn rows_move_again_and_again() {
    let (mut world, mut store) = fresh(5, (2, 1)).await;
    world.config.compaction.live_ratio_max = 1.0;
    store = world.restart(store).await;
    for round in 0..6 {
        for i in 0..20 {
            put(&store, "bucket", &format!("{}", (i * 7 + round * 3) % 30), &bytes(round * 100 + i, 20_000)).await;
            put(&store, "bucket", "filler", &bytes(i, 100)).await;
        }
        delete(&store, "bucket", &format!("{round}")).await;
        let expected = list_all(&store, "bucket").await;
        store = world.restart(store).await;
        store.compact().await.unwrap();
        assert_eq!(list_all(&store, "bucket").await, expected);
        store = check_rebuild(&mut world, store).await;
        assert_eq!(list_all(&store, "bucket").await, expected);
    }
    assert!(store.status().segments < 12, "{:?}", store.status());
}

#[tokio::test]
async fn a_deletion_after_the_move_holds_in_every_replay() {
    let (mut world, store) = fresh(6, (2, 1)).await;
    let mut store = half_dead(&mut world, store, 3000).await;
    store.compact().await.unwrap();
    for i in (0..60).step_by(6) {
        delete(&store, "bucket", &format!("{i}")).await;
    }
    store = world.crash_and_open(store, 0).await;
    assert_eq!(keys(&store, "bucket").await.len(), 10);
    store = world.restart(store).await;
    store.compact().await.unwrap();
    store = check_rebuild(&mut world, store).await;
    assert_eq!(keys(&store, "bucket").await.len(), 10);
}

fn extents(world: &World, name: &str) -> Vec<gabion_types::Extent> {
    let index = world.index.current.lock().clone();
    let row_key = gabion_metadata::keys::object(&bucket("bucket"), &key(name));
    let row = gabion_metadata::Index::get(&index, Table::Object, &row_key).unwrap().unwrap();
    match ObjectRow::decode(&row).unwrap().layout {
        Layout::Extents(extents) => extents,
        layout => panic!("{layout:?}"),
    }
}

#[tokio::test]
async fn copies_share_their_bytes_after_a_move_as_before() {
    for (seed, size) in [(7, 3000), (8, 1_500_000)] {
        let (mut world, mut store) = fresh(seed, (2, 1)).await;
        put(&store, "bucket", "0 source", &bytes(1, size)).await;
        for i in 0..4 {
            put(&store, "bucket", "dead", &bytes(i, size.max(100_000))).await;
        }
        store = world.restart(store).await;
        for name in ["1 copy", "2 copy"] {
            store.copy_object(copy_request("0 source", name)).await.unwrap();
        }
        delete(&store, "bucket", "dead").await;
        store = world.restart(store).await;
        let before = extents(&world, "0 source");
        let compacted = store.compact().await.unwrap();
        assert!(compacted.victims > 0, "{compacted:?}");
        let after = extents(&world, "0 source");
        assert_ne!(after, before);
        // Moves go on side by side: who comes later finds what the first one wrote, unless both read at the same time.
        assert!(store.metrics().compaction_extents_shared.get() <= 2 * after.len() as u64);
        for name in ["0 source", "1 copy", "2 copy"] {
            assert_eq!(get(&store, "bucket", name).await.unwrap(), bytes(1, size));
        }
        store = check_rebuild(&mut world, store).await;
        for name in ["0 source", "1 copy", "2 copy"] {
            assert_eq!(get(&store, "bucket", name).await.unwrap(), bytes(1, size));
        }
    }
}

pub async fn begin(store: &Store, name: &str) -> UploadRef {
    let (bucket, key) = (bucket("bucket"), key(name));
    let request =
        CreateUpload { bucket: bucket.clone(), key: key.clone(), attributes: Default::default(), checksum: None };
    UploadRef { bucket, key, upload: store.create_upload(request).await.unwrap() }
}

pub async fn upload(store: &Store, target: &UploadRef, part_number: u16, size: usize) -> CompletedPart {
    let request = UploadPart { target: target.clone(), part_number };
    let body = ObjectBody::from_bytes(bytes(part_number.into(), size));
    let part = store.upload_part(request, body).await.unwrap();
    CompletedPart { part_number, etag: part.etag.to_string(), checksums: Vec::new() }
}

pub async fn complete(store: &Store, target: &UploadRef, parts: Vec<CompletedPart>) {
    let request = complete_request(target.clone(), parts);
    store.complete_upload(request).await.unwrap();
}

#[tokio::test]
async fn uploads_and_what_was_made_of_them_move() {
    let (mut world, mut store) = fresh(9, (2, 1)).await;
    world.config.compaction.live_ratio_max = 1.0;
    store = world.restart(store).await;
    let (done, open) = (begin(&store, "done").await, begin(&store, "open").await);
    let sizes = [2_500_000, 300, 700_000];
    let (mut parts, mut open_parts) = (Vec::new(), Vec::new());
    for (number, size) in (1..).zip(sizes) {
        parts.push(upload(&store, &done, number, size).await);
        open_parts.push(upload(&store, &open, number, size).await);
        for i in 0..3 {
            put(&store, "bucket", "dead", &bytes(i, 100_000)).await;
            put(&store, "bucket", "dead", &bytes(i, 1_200_000)).await;
        }
    }
    complete(&store, &done, parts).await;
    delete(&store, "bucket", "dead").await;
    store = world.restart(store).await;
    let whole: Vec<u8> = (1..).zip(sizes).flat_map(|(number, size)| bytes(number, size).to_vec()).collect();
    for rows_min in [5, 4] {
        let compacted = store.compact().await.unwrap();
        assert!(compacted.rows_moved >= rows_min, "{compacted:?}");
        assert_eq!(compacted.rows_failed, 0);
        assert_eq!(get(&store, "bucket", "done").await.unwrap(), whole);
        let part = gabion_store::GetObject {
            part_number: Some(3),
            ..gabion_store::GetObject::whole(bucket("bucket"), key("done"))
        };
        assert_eq!(read(&store, part).await.unwrap(), bytes(3, sizes[2]));
        store = check_rebuild(&mut world, store).await;
        // What was moved lies beside something that is dead, so that it moves once more.
        upload(&store, &open, 2, sizes[1]).await;
        store = world.restart(store).await;
        let listed = store.list_parts(ListParts { target: open.clone(), after: 0, max: 10 }).await.unwrap().parts;
        assert_eq!(listed.len(), 3);
    }
    complete(&store, &open, open_parts).await;
    assert_eq!(get(&store, "bucket", "open").await.unwrap(), whole);
    store = check_rebuild(&mut world, store).await;
    assert_eq!(get(&store, "bucket", "open").await.unwrap(), whole);
}

#[tokio::test]
async fn whoever_writes_meanwhile_wins() {
    for seed in 10..16 {
        let (mut world, store) = fresh(seed, (2, 1)).await;
        let mut store = half_dead(&mut world, store, 30_000).await;
        let task = tokio::spawn({
            let store = store.clone();
            async move { store.compact().await }
        });
        for _ in 0..seed {
            tokio::task::yield_now().await;
        }
        for i in 0..60 {
            let name = format!("{i}");
            match i % 6 {
                0 => put(&store, "bucket", &name, &bytes(1000 + i, 30_000)).await.size,
                3 => u64::from(delete(&store, "bucket", &name).await),
                _ => 0,
            };
        }
        task.await.unwrap().unwrap();
        for lost in [false, true] {
            for i in (0..60).step_by(3) {
                let got = get(&store, "bucket", &format!("{i}")).await;
                match i % 6 {
                    0 => assert_eq!(got.unwrap(), bytes(1000 + i, 30_000)),
                    _ => assert!(got.is_err(), "{i}"),
                }
            }
            if !lost {
                store = check_rebuild(&mut world, store).await;
            }
        }
    }
}

/// However far a compaction came: everything is there after power loss, and the segments alone say the same.
#[test]
fn a_crash_at_any_step_loses_nothing() {
    // One step is one poll of one task.
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_time().event_interval(1).build().unwrap();
    for (seed, size) in [(100, 40_000), (101, 40_000), (102, 40_000), (103, 1_200_000)] {
        let mut steps = seed as usize % 7;
        while !runtime().block_on(crash_after(seed, size, steps)) {
            steps += 1 + steps / 2;
            assert!(steps < 1_000_000, "it does not come to its end");
        }
        assert!(steps > 50, "{steps}");
    }
}

/// Tells whether the compaction had come to its end by then.
async fn crash_after(seed: u64, size: usize, steps: usize) -> bool {
    let (mut world, store) = fresh(seed, (2, 1)).await;
    let mut store = half_dead(&mut world, store, size).await;
    let task = tokio::spawn({
        let store = store.clone();
        async move { store.compact().await }
    });
    for _ in 0..steps {
        tokio::task::yield_now().await;
    }
    let is_done = task.is_finished();
    task.abort();
    let _ = task.await;
    store = world.crash_and_open(store, steps % 5).await;
    check_half_dead(&store, size).await;
    check_counters(&world.index.current.lock());
    if steps.is_multiple_of(3) {
        store = check_rebuild(&mut world, store).await;
        check_half_dead(&store, size).await;
    }
    store.compact().await.unwrap();
    check_half_dead(&store, size).await;
    store.shutdown().await;
    is_done
}

#[tokio::test]
async fn bytes_that_are_lost_stay_where_they_are() {
    let (mut world, store) = fresh(17, (1, 0)).await;
    let store = half_dead(&mut world, store, 30_000).await;
    let extent = extents(&world, "30")[0];
    let gabion_types::Place::Chunk { start, .. } = extent.place else { panic!("{extent:?}") };
    let id = extent.segment.to_string();
    let path = world.disks[0].paths().into_iter().find(|path| path.contains(&id)).unwrap();
    world.disks[0].corrupt(&path, extent.stripe_offset + u64::from(start) + 7);
    let compacted = store.compact().await.unwrap();
    assert_eq!(compacted.rows_failed, 1, "{compacted:?}");
    assert!(compacted.rows_moved >= 19);
    for i in (0..60).step_by(3) {
        let got = get(&store, "bucket", &format!("{i}")).await;
        assert_eq!(got.is_ok(), i != 30, "{i}");
    }
    // It is tried some times, and then left alone.
    for _ in 0..5 {
        store.compact().await.unwrap();
    }
    assert_eq!(store.compact().await.unwrap().victims, 0);
    check_counters(&world.index.current.lock());
}

/// Fills the targets until writers are refused; returns the number of objects.
async fn fill_up(store: &Store, size: usize) -> u64 {
    let mut stored = 0;
    loop {
        let body = ObjectBody::from_bytes(bytes(stored, size));
        match store.put_object(put_request("bucket", &format!("{stored}")), body).await {
            Ok(_) => stored += 1,
            Err(StoreError::NoSpace) => return stored,
            Err(error) => panic!("{error:?}"),
        }
    }
}

/// However few their bytes, moving them costs the processor what putting them costs: they count as 16 KiB.
#[tokio::test(start_paused = true)]
async fn small_objects_are_moved_no_faster_than_longer_ones() {
    const OBJECTS: u64 = 600;
    let mut config = config(1, 0);
    config.compaction.interval_ms = 1000;
    config.compaction.bytes_per_s = 1 << 20;
    let mut world = World::new(22, config);
    let mut store = world.open().await;
    store.create_bucket(bucket("bucket"), None).await.unwrap();
    for i in 0..OBJECTS {
        put(&store, "bucket", &format!("{i}"), &bytes(i, 1000)).await;
    }
    store = world.restart(store).await;
    for i in (0..OBJECTS).step_by(2) {
        assert!(delete(&store, "bucket", &format!("{i}")).await);
    }
    let began = Instant::now();
    while store.metrics().compaction_rows_moved.get() < OBJECTS / 2 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(began.elapsed() < Duration::from_secs(60), "they are moved");
    }
    // 64 of 16 KiB in a second.
    assert!(began.elapsed() >= Duration::from_secs(4), "{:?}", began.elapsed());
    for i in (1..OBJECTS).step_by(2) {
        assert_eq!(get(&store, "bucket", &format!("{i}")).await.unwrap(), bytes(i, 1000));
    }
}

#[tokio::test]
async fn full_targets_are_compacted_out_of_the_reserve() {
    for (seed, size) in [(20, 90_000), (21, 1_500_000)] {
        let mut config = config(2, 1);
        config.log.target_reserve_bytes = 24 << 20;
        let mut world = World::new(seed, config);
        for disk in &world.disks {
            disk.full_at(80 << 20);
        }
        let mut store = world.open().await;
        store.create_bucket(bucket("bucket"), None).await.unwrap();
        let stored = fill_up(&store, size).await;
        // Every second object goes: no segment dies as a whole, and writers find no room.
        for i in (0..stored).step_by(2) {
            assert!(delete(&store, "bucket", &format!("{i}")).await);
        }
        store = world.restart(store).await;
        store.free_dead_segments().await.unwrap();
        // Compaction begins by itself when a writer finds no room, and may be the quicker one.
        let meanwhile = fill_up(&store, size).await;
        let mut rounds = 0;
        loop {
            // What a writer that was refused has on its way still keeps segments from being chosen.
            for _ in 0..200 {
                tokio::task::yield_now().await;
            }
            if store.compact().await.unwrap().victims == 0 {
                break;
            }
            rounds += 1;
        }
        assert!(rounds >= 1 || meanwhile > 0);
        for i in (1..stored).step_by(2) {
            assert_eq!(get(&store, "bucket", &format!("{i}")).await.unwrap(), bytes(i, size));
        }
        let again = meanwhile + fill_up(&store, size).await;
        assert!(again > stored / 4, "{again} after {stored}");
        check_counters(&world.index.current.lock());
    }
}

#[tokio::test]
async fn deletions_go_on_when_compaction_finds_no_room() {
    let mut config = config(2, 1);
    config.log.target_reserve_bytes = 24 << 20;
    let mut world = World::new(22, config);
    for disk in &world.disks {
        disk.full_at(80 << 20);
    }
    let mut store = world.open().await;
    store.create_bucket(bucket("bucket"), None).await.unwrap();
    let stored = fill_up(&store, 90_000).await;
    store = world.restart(store).await;
    // Something else fills the disks up to what compaction leaves.
    for disk in &world.disks {
        disk.full_at(disk.used_bytes() + (6 << 20));
    }
    for i in (0..stored).filter(|i| i % 3 != 0) {
        assert!(delete(&store, "bucket", &format!("{i}")).await);
    }
    assert_eq!(store.compact().await.unwrap().victims, 0, "it would leave too little to deletions");
    for i in (0..stored).step_by(3) {
        assert!(delete(&store, "bucket", &format!("{i}")).await);
    }
    store.free_dead_segments().await.unwrap();
    for _ in 0..300 {
        tokio::task::yield_now().await;
    }
    for disk in &world.disks {
        disk.full_at(80 << 20);
    }
    put(&store, "bucket", "again", &bytes(1, 90_000)).await;
}

/// Large objects, a third of them left, in a world that punches holes.
pub async fn holed(seed: u64, geometry: (usize, usize)) -> (World, Store) {
    let mut config = config(geometry.0, geometry.1);
    config.compaction.punch_holes = true;
    let mut world = World::new(seed, config);
    let store = world.open().await;
    store.create_bucket(bucket("bucket"), None).await.unwrap();
    let store = half_dead(&mut world, store, 1_500_000).await;
    (world, store)
}

fn live_extents(world: &World) -> Vec<gabion_types::Extent> {
    (0..60).step_by(3).flat_map(|i| extents(world, &format!("{i}"))).collect()
}

#[tokio::test]
async fn dead_stripes_are_punched_out_where_they_lie() {
    for (seed, geometry) in [(30, (1, 0)), (31, (2, 1)), (32, (4, 2))] {
        let (mut world, mut store) = holed(seed, geometry).await;
        let before = live_extents(&world);
        let segments: std::collections::HashSet<_> = before.iter().map(|extent| extent.segment).collect();
        assert!(store.status().compaction_debt_bytes > 30_000_000, "{:?}", store.status());
        let compacted = store.compact().await.unwrap();
        assert!(compacted.punched_bytes > 30_000_000, "{compacted:?}");
        assert_eq!(live_extents(&world), before, "nothing of it moved");
        check_half_dead(&store, 1_500_000).await;
        let live = store.live_stripes(&segments).await.unwrap();
        let stripes: std::collections::HashSet<_> =
            live.iter().flat_map(|(&id, offsets)| offsets.iter().map(move |&offset| (id, offset))).collect();
        assert_eq!(stripes, before.iter().map(|extent| (extent.segment, extent.stripe_offset)).collect());
        assert_eq!(store.compact().await.unwrap().punched_bytes, 0, "once is enough");
        // Neither a lost target nor a lost index makes a difference.
        if geometry.1 > 0 {
            world.disks[0].offline(true);
            check_half_dead(&store, 1_500_000).await;
            world.disks[0].offline(false);
        }
        store = world.crash_and_open(store, 0).await;
        check_half_dead(&store, 1_500_000).await;
        store = check_rebuild(&mut world, store).await;
        check_half_dead(&store, 1_500_000).await;
        // What the rebuilt index does not know any more is no damage, and is punched again.
        assert_eq!(store.scrub_now().await.unwrap().bad_shards, 0);
        assert!(store.compact().await.unwrap().punched_bytes > 30_000_000);
        check_half_dead(&store, 1_500_000).await;
        for i in (0..60).step_by(3) {
            delete(&store, "bucket", &format!("{i}")).await;
        }
        store = world.restart(store).await;
        store.free_dead_segments().await.unwrap();
        check_counters(&world.index.current.lock());
    }
}

/// Also when the process ends amid it, wherever that is, and the next one goes on.
#[tokio::test]
async fn a_rebuild_takes_no_hole_for_damage() {
    for commits in 1..=3 {
        let (mut world, store) = holed(34, (2, 1)).await;
        assert!(store.compact().await.unwrap().punched_bytes > 30_000_000);
        world.crash(store, usize::MAX).await;
        let cut = gabion_metadata::MemoryIndex::new();
        replay_prefix(&world, &cut, commits).await;
        *world.index.current.lock() = cut;
        let (store, report) = world.try_open().await.unwrap();
        assert_eq!(report.index_rebuilt, None, "it goes on with what there is");
        assert_eq!(store.scrub_now().await.unwrap().bad_shards, 0, "cut off after {commits} commits");
        check_half_dead(&store, 1_500_000).await;
        assert!(store.compact().await.unwrap().punched_bytes > 30_000_000);
        // It is known from now on.
        let row = world.index.current.lock().get(Table::System, b"holes-unknown").unwrap();
        assert_eq!(row, None);
        world.crash(store, usize::MAX).await;
    }
}

#[tokio::test]
async fn a_target_that_fails_does_not_end_a_round() {
    let (world, store) = holed(33, (2, 1)).await;
    world.disks[0].offline(true);
    assert_eq!(store.compact().await.unwrap().punched_bytes, 0);
    world.disks[0].offline(false);
    assert_eq!(store.compact().await.unwrap().punched_bytes, 0, "they are let alone for a while");
    world.clock.advance(std::time::Duration::from_secs(600));
    assert!(store.compact().await.unwrap().punched_bytes > 30_000_000);
    check_half_dead(&store, 1_500_000).await;
}

#[tokio::test]
async fn what_a_copy_or_a_body_on_its_way_needs_is_not_punched_out() {
    let (mut world, mut store) = holed(33, (2, 1)).await;
    store.copy_object(copy_request("0", "copy")).await.unwrap();
    delete(&store, "bucket", "0").await;
    let (send, receive) = futures::channel::mpsc::unbounded();
    let slow = ObjectBody::from_stream(Box::pin(receive), None);
    let task = tokio::spawn({
        let store = store.clone();
        async move { store.put_object(put_request("bucket", "slow"), slow).await }
    });
    let mut expected = Vec::new();
    for i in 0..12 {
        let piece = bytes(100 + i, 700_000);
        expected.extend_from_slice(&piece);
        send.unbounded_send(Ok(piece)).unwrap();
        for _ in 0..200 {
            tokio::task::yield_now().await;
        }
        // Dead stripes beside those of the body.
        put(&store, "bucket", "other", &bytes(i, 1_200_000)).await;
        store.compact().await.unwrap();
    }
    drop(send);
    task.await.unwrap().unwrap();
    for _ in 0..2 {
        store.compact().await.unwrap();
        assert_eq!(get(&store, "bucket", "slow").await.unwrap(), expected);
        assert_eq!(get(&store, "bucket", "copy").await.unwrap(), bytes(0, 1_500_000));
        store = world.restart(store).await;
    }
}

#[tokio::test]
async fn what_a_reader_has_begun_is_not_punched_out_under_it() {
    let mut config = config(2, 1);
    config.compaction.punch_holes = true;
    config.read_ahead_stripes = 1;
    let mut world = World::new(34, config);
    let store = world.open().await;
    store.create_bucket(bucket("bucket"), None).await.unwrap();
    let body = bytes(1, 3_000_000);
    put(&store, "bucket", "read", &body).await;
    put(&store, "bucket", "stays", &bytes(2, 3_000_000)).await;
    let store = world.restart(store).await;
    let mut reading = store.get_object(GetObject::whole(bucket("bucket"), key("read"))).await.unwrap();
    let mut read = reading.body.next().await.unwrap().unwrap().to_vec();
    delete(&store, "bucket", "read").await;
    assert_eq!(store.compact().await.unwrap().punched_bytes, 0, "somebody reads it");
    while let Some(piece) = reading.body.next().await {
        read.extend_from_slice(&piece.unwrap());
    }
    assert_eq!(read, body);
    drop(reading);
    assert!(store.compact().await.unwrap().punched_bytes > 1_000_000);
    assert_eq!(get(&store, "bucket", "stays").await.unwrap(), bytes(2, 3_000_000));
}

/// What was sent is on its way to a client for longer than the body is read: pages of it that a hole would change are left alone, and tried again later.
#[tokio::test]
async fn what_is_on_its_way_to_a_client_is_not_punched_out() {
    let (world, store) = holed(35, (2, 1)).await;
    let again = std::time::Duration::from_secs(600);
    let used = || world.disks.iter().map(|disk| disk.used_bytes()).collect::<Vec<_>>();
    let before = used();
    world.disks[1].lend_pages(true);
    assert_eq!(store.compact().await.unwrap().punched_bytes, 0);
    let held = used();
    assert!(before.iter().zip(&held).all(|(before, held)| held >= before), "on no target: {before:?} {held:?}");
    check_half_dead(&store, 1_500_000).await;
    assert_eq!(store.scrub_now().await.unwrap().bad_shards, 0);
    world.disks[1].lend_pages(false);
    assert_eq!(store.compact().await.unwrap().punched_bytes, 0, "each try goes through the index");
    world.clock.advance(again);
    assert!(store.compact().await.unwrap().punched_bytes > 30_000_000);
    let after = used();
    assert!(held.iter().zip(&after).all(|(held, after)| *held > after + 12_000_000), "{held:?} {after:?}");
    // More of it dies: what was punched before stays a hole that nobody takes for damage.
    for i in (0..60).step_by(6) {
        delete(&store, "bucket", &format!("{i}")).await;
    }
    world.disks[0].lend_pages(true);
    assert_eq!(store.compact().await.unwrap().punched_bytes, 0);
    let scrubbed = store.scrub_now().await.unwrap();
    assert_eq!(scrubbed.bad_shards, 0);
    world.disks[0].lend_pages(false);
    world.clock.advance(again);
    let punched_bytes = store.compact().await.unwrap().punched_bytes;
    assert!((1..=10 * 1_500_000).contains(&punched_bytes), "no more than died: {punched_bytes}");
    assert_eq!(store.compact().await.unwrap().punched_bytes, 0);
    assert_eq!(store.scrub_now().await.unwrap().bad_shards, 0);
    for i in (3..60).step_by(6) {
        assert_eq!(get(&store, "bucket", &format!("{i}")).await.unwrap(), bytes(i, 1_500_000), "{i}");
    }
}

/// The segment dies, and is being freed, at any moment of a round that is about to punch it: the round leaves it alone.
#[tokio::test]
async fn what_is_freed_while_it_is_to_be_punched_is_left_alone() {
    for step in 0..20 {
        let mut config = config(1, 0);
        config.log.large_lanes = 1;
        config.compaction.punch_holes = true;
        let mut world = World::new(200 + step, config);
        let store = world.open().await;
        store.create_bucket(bucket("bucket"), None).await.unwrap();
        put(&store, "bucket", "dies", &bytes(1, 1_500_000)).await;
        put(&store, "bucket", "dies later", &bytes(2, 1_500_000)).await;
        let store = world.restart(store).await;
        delete(&store, "bucket", "dies").await;
        let freeing = async {
            for _ in 0..step {
                tokio::task::yield_now().await;
            }
            delete(&store, "bucket", "dies later").await;
            store.free_dead_segments().await
        };
        let (compacted, freed) = futures::join!(store.compact(), freeing);
        compacted.unwrap();
        freed.unwrap();
        assert!(keys(&store, "bucket").await.is_empty());
    }
}

/// Targets that do not answer for a while are no fault of the segments that lie on them.
#[tokio::test]
async fn what_can_not_be_read_for_a_while_is_moved_when_it_can() {
    let (mut world, store) = fresh(70, (2, 1)).await;
    let store = half_dead(&mut world, store, 30_000).await;
    store.free_dead_segments().await.unwrap();
    let down = FaultRates { read_fails: OneIn(1), ..FaultRates::default() };
    world.disks.iter().for_each(|disk| disk.set_rates(down));
    for _ in 0..5 {
        let compacted = store.compact().await.unwrap();
        assert!(compacted.rows_unreadable > 0, "{compacted:?}");
        assert_eq!((compacted.rows_failed, compacted.victims_freed), (0, 0), "{compacted:?}");
    }
    world.disks.iter().for_each(|disk| disk.set_rates(FaultRates::default()));
    let compacted = store.compact().await.unwrap();
    assert!(compacted.victims > 0 && compacted.victims_freed == compacted.victims, "{compacted:?}");
    check_half_dead(&store, 30_000).await;
}

/// What is written and not committed yet looks dead. Its segment can not be freed, and is not to be given up after some rounds.
#[tokio::test]
async fn what_is_being_written_is_no_victim_before_it_is_done() {
    let mut config = config(1, 0);
    config.log.large_lanes = 1;
    let world = World::new(71, config);
    let store = world.open().await;
    store.create_bucket(bucket("bucket"), None).await.unwrap();
    put(&store, "bucket", "beside", &bytes(1, 1_500_000)).await;
    let body = bytes(2, 8_000_000);
    let (pieces, stream) = futures::channel::mpsc::unbounded();
    let half = bytes::Bytes::copy_from_slice(&body[..6_000_000]);
    pieces.unbounded_send(Ok(half)).unwrap();
    let slow = store
        .put_object(put_request("bucket", "slow"), ObjectBody::from_stream(stream.boxed(), Some(body.len() as u64)));
    let rounds = async {
        while store.status().log.sealed_segments == 0 {
            tokio::task::yield_now().await;
        }
        for _ in 0..4 {
            assert_eq!(store.compact().await.unwrap().victims, 0);
        }
        pieces.unbounded_send(Ok(bytes::Bytes::copy_from_slice(&body[6_000_000..]))).unwrap();
        drop(pieces);
    };
    let (put, ()) = futures::join!(slow, rounds);
    put.unwrap();
    assert_eq!(get(&store, "bucket", "slow").await.unwrap(), body);
    delete(&store, "bucket", "slow").await;
    let compacted = store.compact().await.unwrap();
    assert!(compacted.victims > 0 && compacted.victims_freed == compacted.victims, "{compacted:?}");
    assert_eq!(get(&store, "bucket", "beside").await.unwrap(), bytes(1, 1_500_000));
}
