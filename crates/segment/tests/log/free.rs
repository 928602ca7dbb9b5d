//! Freeing a segment: its record is durable before its files go, and it does not come back.

use std::sync::Arc;

use bytes::Bytes;
use gabion_platform::Disk;
use gabion_segment::{Log, LogError};
use gabion_types::{Extent, SegmentId, Seq};

use crate::book::{Book, Page};
use crate::world::{World, life, put, read, steps};

/// Two lives of writing; after the second start, all segments of the first are sealed.
fn sealed_world(geometry: &str, seed: u64) -> (World, Arc<Book>) {
    let mut world = World::new(geometry, seed);
    let book = Arc::new(Book::default());
    life(async {
        let (log, _) = world.start(&book).await;
        for name in 0..3 {
            put(&log, name, 2000).await.unwrap();
        }
    });
    world.kill();
    (world, book)
}

/// What must outlive the segment: its second record.
fn carried(book: &Book) -> (SegmentId, Vec<(Seq, Bytes)>) {
    let page = book.snapshot();
    let (seq, record) = page.records.iter().nth(1).unwrap();
    (record.home.segment, vec![(*seq, Bytes::from_static(b"put 1 2000"))])
}

async fn free_first(log: &Log, book: &Book) -> Result<gabion_segment::Freed, LogError> {
    let (id, carried) = carried(book);
    log.free(id, carried).await
}

#[test]
fn a_freed_segment_is_gone_and_what_was_carried_is_there() {
    let (mut world, book) = sealed_world("2+1", 1);
    world.config.warm_bytes = 1 << 20;
    let (id, expected) = carried(&book);
    life(async {
        let (log, _) = world.start(&book).await;
        let extent = book.snapshot().records.values().next().unwrap().extents[0];
        let bytes = read(&log, &extent, 0..extent.len).await.unwrap();
        let freed = free_first(&log, &book).await.unwrap();
        assert!(freed.left.is_empty());
        // An older image of a target would bring it back until two epochs of the members have passed.
        assert_eq!(log.forget_freed().await.unwrap(), 0);
        assert!(book.snapshot().removed.is_empty());
        assert_eq!(log.forget_freed().await.unwrap(), 0, "not so soon");
        world.clock.advance(std::time::Duration::from_millis(world.config.epoch_interval_ms));
        assert_eq!(log.forget_freed().await.unwrap(), 1);
        assert_eq!(book.snapshot().removed, [id]);
        assert!(world.find(&id.to_string()).is_none());
        // What is in memory is what lay there.
        assert_eq!(log.warm(&extent, 0..extent.len).unwrap(), bytes);
        let other = Extent { crc64: !extent.crc64, ..extent };
        assert!(matches!(read(&log, &other, 0..1).await, Err(LogError::NotFound(_))));
        assert!(matches!(free_again(&log, id).await, Err(LogError::NotFound(_))));
        let found = book.mutations();
        assert_eq!(found.len(), 1);
        assert_eq!(found.get(&expected[0].0).map(String::as_str), Some("put 1 2000"));
        let page = book.snapshot();
        assert!(page.records[&expected[0].0].carried);
    });
    world.crash(3);
    let rebuilt = Arc::new(Book::default());
    life(async {
        let (_, recovery) = world.start(&rebuilt).await;
        assert_eq!(recovery.freed, [id]);
        assert!(recovery.removed.is_empty());
        assert_eq!(rebuilt.mutations(), book.mutations());
    });
}

#[test]
fn a_damaged_record_of_a_deletion_does_not_keep_the_log_closed() {
    let (mut world, book) = sealed_world("1+0", 5);
    life(async {
        let (log, _) = world.start(&book).await;
        free_first(&log, &book).await.unwrap();
        put(&log, 9, 2000).await.unwrap();
    });
    world.kill();
    let last = book.snapshot().records.values().last().unwrap().extents[0];
    let begin = 4096_u64;
    assert!(last.stripe_offset > begin, "the deletion was written before");
    for stripe in (begin..last.stripe_offset).step_by(4096) {
        let suffix = format!("{}.000", last.segment);
        let (disk, path) = world.find(&suffix).unwrap();
        (100..130).step_by(10).for_each(|at| disk.corrupt(&path, stripe + at));
    }
    life(async {
        let (_, recovery) = world.open(Vec::new()).await.unwrap();
        assert_eq!(recovery.unreadable.iter().map(|segment| segment.id).collect::<Vec<_>>(), [last.segment]);
    });
}

async fn free_again(log: &Log, id: SegmentId) -> Result<gabion_segment::Freed, LogError> {
    log.free(id, vec![]).await
}

#[test]
fn an_open_segment_is_not_freed() {
    let mut world = World::new("2+1", 2);
    life(async {
        let book = Arc::new(Book::default());
        let (log, _) = world.start(&book).await;
        let committed = put(&log, 1, 10).await.unwrap();
        assert!(matches!(log.free(committed.home.segment, vec![]).await, Err(LogError::Invalid(_))));
        assert!(matches!(log.mutations(committed.home.segment, 0).await, Err(LogError::Invalid(_))));
        assert!(matches!(log.free(SegmentId::new(9, 9), vec![]).await, Err(LogError::NotFound(_))));
    });
}

#[test]
fn a_pinned_segment_keeps_its_files() {
    let (mut world, book) = sealed_world("2+1", 3);
    let (id, _) = carried(&book);
    life(async {
        let (log, _) = world.start(&book).await;
        let extent = book.snapshot().records.values().next().unwrap().extents[0];
        let pin = log.pin([id, SegmentId::new(9, 9)]);
        assert_eq!(pin.len(), 1);
        let free = tokio::spawn({
            let (log, book) = (log.clone(), Arc::clone(&book));
            async move { free_first(&log, &book).await }
        });
        steps(300).await;
        assert!(!free.is_finished());
        assert_eq!(read(&log, &extent, 0..extent.len).await.unwrap().len(), 2000);
        drop(pin);
        free.await.unwrap().unwrap();
        assert!(log.pin([id]).is_empty());
    });
}

#[test]
fn a_free_that_is_dropped_goes_on() {
    let (mut world, book) = sealed_world("1+0", 4);
    let (id, _) = carried(&book);
    life(async {
        let (log, _) = world.start(&book).await;
        tokio::select! {
            biased;
            _ = free_first(&log, &book) => panic!("not that fast"),
            () = steps(2) => {}
        }
        steps(500).await;
        assert!(world.find(&id.to_string()).is_none());
    });
}

#[test]
fn a_crash_at_any_step_leaves_it_whole_or_frees_it() {
    let mut whole = 0;
    let mut freed = 0;
    for geometry in ["1+0", "1+1", "4+2"] {
        for step in 0..60 {
            let context = format!("{geometry}, step {step}");
            let (mut world, book) = sealed_world(geometry, 100 + step);
            let (id, carried) = carried(&book);
            let before = book.mutations();
            let page = book.snapshot();
            let sealed = life(async {
                let (log, _) = world.start(&book).await;
                let sealed = book.snapshot();
                tokio::select! {
                    biased;
                    _ = free_first(&log, &book) => {}
                    () = steps(step) => {}
                }
                world.crash(step);
                sealed
            });
            // With the index of before, of the second start, of after, and with none.
            let pages = [page, sealed, book.snapshot(), Page::default()];
            let survived = Arc::new(Book::from_page(pages[step as usize % 4].clone()));
            life(async {
                let (log, recovery) = world.start(&survived).await;
                survived.verify(&log).await;
                let found = survived.mutations();
                assert_eq!(found.get(&carried[0].0).map(String::as_str), Some("put 1 2000"), "{context}");
                if recovery.freed.contains(&id) || survived.known().iter().all(|known| known.id != id) {
                    freed += 1;
                    assert_eq!(found.len(), 1, "{context}");
                    assert!(log.pin([id]).is_empty(), "{context}: it can still be read");
                    assert!(world.find(&id.to_string()).is_none(), "{context}: files are left");
                } else {
                    whole += 1;
                    assert_eq!(found, before, "{context}");
                }
            });
        }
    }
    assert!(whole > 5 && freed > 5, "{whole} {freed}: the test tests nothing");
}

#[test]
fn what_was_freed_is_not_unreadable_any_more() {
    let (mut world, book) = sealed_world("2+1", 6);
    let (id, _) = carried(&book);
    life(async { drop(world.start(&book).await) });
    world.kill();
    life(async {
        for shard in 0..2 {
            let (disk, path) = world.find(&format!("{id}.{shard:03}")).unwrap();
            disk.unlink(&path).await.unwrap();
        }
        let (log, recovery) = world.start(&book).await;
        assert_eq!(recovery.unreadable.iter().map(|segment| segment.id).collect::<Vec<_>>(), [id]);
        assert_eq!(log.status().unreadable_segments, 1);
        let extent = book.snapshot().records.values().next().unwrap().extents[0];
        free_first(&log, &book).await.unwrap();
        assert_eq!(log.status().unreadable_segments, 0);
        // Who reads it has a row of before: there is a newer one.
        assert!(matches!(read(&log, &extent, 0..1).await, Err(LogError::NotFound(_))));
    });
}

#[test]
fn a_shard_on_an_absent_target_does_not_bring_it_back() {
    // 1+1: one shard alone is a whole segment.
    let (mut world, book) = sealed_world("1+1", 5);
    let (id, carried) = carried(&book);
    world.disks.push(gabion_platform::SimDisk::new(99));
    world.disks.pop();
    world.absent = vec![1];
    life(async {
        let (log, _) = world.start(&book).await;
        // One target is no quorum of 1+1: nothing can be freed now.
        assert!(matches!(free_first(&log, &book).await, Err(LogError::TooFewTargets(_))));
    });
    world.kill();
    world.absent.clear();
    life(async {
        let (log, _) = world.start(&book).await;
        // The file can not be removed just now, but all else goes on.
        let (disk, _) = world.find(&format!("{id}.001")).unwrap();
        let disk = disk.clone();
        let free = free_first(&log, &book);
        tokio::pin!(free);
        let freed = loop {
            tokio::select! {
                biased;
                freed = &mut free => break freed.unwrap(),
                () = steps(1) => {}
            }
            if book.snapshot().segments.get(&id).is_some_and(|known| known.freed) {
                disk.offline(true);
            }
        };
        disk.offline(false);
        assert_eq!(freed.left.len(), 1);
    });
    assert!(world.find(&format!("{id}.001")).is_some(), "the test tests nothing");
    // The index is lost, the target is back with a whole copy of what was freed.
    world.kill();
    let rebuilt = Arc::new(Book::default());
    life(async {
        let (_, recovery) = world.start(&rebuilt).await;
        assert_eq!(recovery.freed, [id]);
        let found: Vec<String> = rebuilt.mutations().into_values().collect();
        assert_eq!(found, ["put 1 2000"]);
        assert_eq!(rebuilt.mutations().keys().next(), Some(&carried[0].0));
    });
    assert!(world.find(&id.to_string()).is_none());
}
