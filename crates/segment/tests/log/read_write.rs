//! What is written is read, whole and in part.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use gabion_platform::CountedDisk;
use gabion_segment::{Companion, Log, LogError, NewRecord};
use gabion_types::{Extent, Place};
use tokio::time::timeout;

use crate::book::Book;
use crate::world::{World, append, life, pattern, put, read, record};

const GEOMETRIES: [&str; 4] = ["1+0", "1+1", "2+1", "4+2"];

#[test]
fn records_of_every_size_are_read_back() {
    for geometry in GEOMETRIES {
        let mut world = World::new(geometry, 1);
        life(async {
            let book = Arc::new(Book::default());
            let (log, _) = world.start(&book).await;
            let sizes = [0, 1, 511, 4096, 65_535, 65_536, 65_537, 128 << 10, (128 << 10) + 1, 300_000, 1 << 20];
            for (name, len) in sizes.into_iter().enumerate() {
                let committed = put(&log, name as u64, len).await.unwrap();
                assert_eq!(committed.extents.iter().map(|extent| extent.len as usize).sum::<usize>(), len);
                if (1..=128 << 10).contains(&len) {
                    assert_eq!(committed.extents.len(), 1, "{geometry}: {len} bytes lie whole in one chunk");
                }
            }
            book.verify(&log).await;
            assert_eq!(log.metrics().degraded_reads.get(), 0);
            assert_eq!(book.mutations().len(), sizes.len());
        });
    }
}

/// Whether nobody else has bytes at the moment at which their record is answered.
struct LastHolder(Bytes, Arc<AtomicBool>);

impl Companion for LastHolder {
    fn answered(self: Box<Self>, _: Result<(), &LogError>) {
        self.1.store(self.0.is_unique(), Ordering::Relaxed);
    }
}

#[test]
fn data_is_let_go_of_before_its_record_is_answered() {
    let mut world = World::new("2+1", 5);
    life(async {
        let (log, _) = world.start(&Arc::new(Book::default())).await;
        let (record, is_last) = (record(1, 5000), Arc::new(AtomicBool::new(false)));
        let holder = LastHolder(record.data[0].clone(), Arc::clone(&is_last));
        log.commit_with(record, Box::new(holder)).await.unwrap();
        assert!(is_last.load(Ordering::Relaxed));
    });
}

#[test]
fn any_range_of_a_record_is_read() {
    let mut world = World::new("2+1", 2);
    life(async {
        let book = Arc::new(Book::default());
        let (log, _) = world.start(&book).await;
        let committed = put(&log, 7, 50_000).await.unwrap();
        let expected = pattern(7, 50_000);
        for range in [0..1, 49_999..50_000, 4095..4097, 0..50_000, 5..5] {
            let found = read(&log, &committed.extents[0], range.clone()).await.unwrap();
            assert_eq!(found, expected[range.start as usize..range.end as usize]);
        }
        assert!(matches!(read(&log, &committed.extents[0], 0..50_001).await, Err(LogError::Invalid(_))));
    });
}

#[test]
fn stripes_of_every_length_are_read_whole_and_in_part() {
    for geometry in GEOMETRIES {
        let mut world = World::new(geometry, 3);
        life(async {
            let book = Arc::new(Book::default());
            let (log, _) = world.start(&book).await;
            let full = log.stripe_payload_bytes();
            for (seed, len) in [1, 4096, 5000, 65_536, 65_537, full / 2 + 77, full - 1, full].into_iter().enumerate() {
                if len > full {
                    continue;
                }
                let extent = append(&log, seed as u64, len).await.unwrap();
                let expected = pattern(seed as u64, len);
                assert!(read(&log, &extent, 0..len as u32).await.unwrap() == expected, "{geometry} {len}");
                for (start, end) in [(0, 1), (len - 1, len), (len / 3, len / 3 + len / 2), (len / 2, len)] {
                    let found = read(&log, &extent, start as u32..end as u32).await.unwrap();
                    assert!(found == expected[start..end], "{geometry} {len} {start}..{end}");
                }
            }
            assert_eq!(log.metrics().degraded_reads.get(), 0);
        });
    }
}

/// What is sent from a file is what was verified: the places are those of the very bytes.
#[test]
fn places_are_where_the_bytes_lie() {
    for geometry in GEOMETRIES {
        let mut world = World::new(geometry, 13);
        life(async {
            let book = Arc::new(Book::default());
            let (log, _) = world.start(&book).await;
            let full = log.stripe_payload_bytes();
            for (seed, len) in [1, 5000, 65_537, full / 2 + 77, full].into_iter().enumerate() {
                let extent = append(&log, seed as u64, len).await.unwrap();
                for (start, end) in [(0, len), (len - 1, len), (len / 3, len / 3 + len / 2), (len / 2, len)] {
                    let mut places = Vec::new();
                    let range = start as u32..end as u32;
                    let pieces = log.read_placed(&extent, range, Some(&mut places)).await.unwrap();
                    assert!(pieces.concat() == pattern(seed as u64, len)[start..end]);
                    assert_eq!(places.len(), pieces.len(), "{geometry} {len} {start}..{end}");
                    for (piece, place) in pieces.iter().zip(&places) {
                        assert!(place.file.read_at(place.offset, piece.len()).await.unwrap() == *piece);
                    }
                }
            }
            // What is made out of other chunks lies nowhere.
            if geometry != "1+0" {
                let extent = append(&log, 9, full).await.unwrap();
                world.disks[0].offline(true);
                let mut places = Vec::new();
                let pieces = log.read_placed(&extent, 0..full as u32, Some(&mut places)).await.unwrap();
                world.disks[0].offline(false);
                assert!(pieces.concat() == pattern(9, full));
                let is_degraded = log.metrics().degraded_reads.get() > 0;
                assert_eq!(places.is_empty(), is_degraded, "{geometry}");
            }
        });
    }
}

#[test]
fn a_small_read_is_one_read_of_one_target() {
    let mut world = World::new("4+2", 4);
    life(async {
        let book = Arc::new(Book::default());
        let (log, _) = world.start(&book).await;
        let committed = put(&log, 1, 4096).await.unwrap();
        let Place::Chunk { .. } = committed.extents[0].place else { panic!("small data lies in a chunk") };
        // All other targets fail every read: the one that holds the bytes is enough.
        let (holder, _) = world
            .find(&format!("{}.{:03}", committed.extents[0].segment, shard_of(&committed.extents[0].place)))
            .unwrap();
        let holder = holder.paths();
        for disk in world.disks.iter().filter(|disk| disk.paths() != holder) {
            disk.offline(true);
        }
        assert_eq!(read(&log, &committed.extents[0], 0..4096).await.unwrap(), pattern(1, 4096));
        assert_eq!(log.metrics().degraded_reads.get(), 0);
    });
}

#[test]
fn what_is_warm_needs_no_target() {
    let mut world = World::new("2+1", 5);
    world.config.warm_bytes = 1 << 20;
    life(async {
        let book = Arc::new(Book::default());
        let (log, _) = world.start(&book).await;
        let [read_before, never_read, long] = [put(&log, 1, 4096), put(&log, 2, 4096), put(&log, 3, 20_000)];
        let (read_before, never_read, long) =
            (read_before.await.unwrap(), never_read.await.unwrap(), long.await.unwrap());
        assert_eq!(read(&log, &read_before.extents[0], 0..4096).await.unwrap(), pattern(1, 4096));
        assert_eq!(read(&log, &long.extents[0], 0..20_000).await.unwrap(), pattern(3, 20_000));
        assert_eq!(log.metrics().warm_reads.get(), 0);
        world.disks.iter().for_each(|disk| disk.offline(true));
        assert_eq!(read(&log, &read_before.extents[0], 0..4096).await.unwrap(), pattern(1, 4096));
        assert_eq!(read(&log, &read_before.extents[0], 100..200).await.unwrap(), pattern(1, 4096)[100..200]);
        assert_eq!(log.metrics().warm_reads.get(), 2);
        assert!(read(&log, &never_read.extents[0], 0..4096).await.is_err());
        assert!(read(&log, &long.extents[0], 0..20_000).await.is_err());
        // Another extent that claims to lie there is not answered with it.
        let there = read_before.extents[0];
        for other in [Extent { len: 4095, ..there }, Extent { crc64: !there.crc64, ..there }] {
            assert!(read(&log, &other, 0..4095).await.is_err());
            assert!(log.warm(&other, 0..4095).is_none());
        }
        // Nor is more than it has, or nothing.
        assert_eq!(log.warm(&there, 100..4096).unwrap(), pattern(1, 4096)[100..]);
        assert!([0..4097, 5..5, 4096..4096].into_iter().all(|range| log.warm(&there, range).is_none()));
        assert!(log.warm(&never_read.extents[0], 0..4096).is_none() && log.warm(&long.extents[0], 0..1).is_none());
    });
}

/// The log counts the reads of targets that the disks count, each once, and none for what is warm.
#[test]
fn reads_of_targets_are_counted_as_the_disks_count_them() {
    let mut degraded = 0;
    for geometry in GEOMETRIES {
        let mut world = World::new(geometry, 14);
        world.config.warm_bytes = 1 << 20;
        degraded += life(async {
            let (mut targets, mut counters) = (world.targets(), Vec::new());
            for target in &mut targets {
                let (disk, counter) = CountedDisk::new(target.disk.take().unwrap());
                target.disk = Some(disk);
                counters.push(counter);
            }
            let (log, _) = world.start_on(targets, &Arc::default()).await;
            let small = put(&log, 1, 4096).await.unwrap().extents[0];
            let long = append(&log, 2, log.stripe_payload_bytes()).await.unwrap();
            let data_shards = world.config.geometry.data() as u64;
            let reads = async |extent, range| {
                let of_disks = || {
                    let counts = counters.iter().map(|counter| counter.counts());
                    counts.fold((0, 0), |(reads, bytes), more| (reads + more.reads, bytes + more.read_bytes))
                };
                let of_log = || (log.metrics().target_reads.get(), log.metrics().target_read_bytes.get());
                let (disks_before, log_before) = (of_disks(), of_log());
                read(&log, extent, range).await.unwrap();
                let (disks, log) = (of_disks(), of_log());
                let counted = (log.0 - log_before.0, log.1 - log_before.1);
                assert_eq!(counted, (disks.0 - disks_before.0, disks.1 - disks_before.1), "{geometry}");
                counted
            };
            assert_eq!(reads(&small, 0..4096).await, (1, 4096), "{geometry}");
            assert_eq!(reads(&small, 0..4096).await, (0, 0), "{geometry}: it is warm");
            for _ in 0..2 {
                let (calls, bytes) = reads(&long, 0..long.len).await;
                assert_eq!(calls, data_shards, "{geometry}: one for each chunk");
                assert!(bytes > long.len.into(), "{geometry}: the headers are read, too");
            }
            assert_eq!(reads(&long, 0..1).await, (1, 65_536), "{geometry}: a block, with a header that is known");
            // One of them has a chunk of data.
            for disk in world.disks.iter().filter(|_| geometry != "1+0") {
                disk.offline(true);
                let (calls, _) = reads(&long, 0..long.len).await;
                let is_degraded = log.metrics().degraded_reads.get() > 0;
                assert_eq!(calls > data_shards, is_degraded, "{geometry}: what others hold is read instead");
                if is_degraded {
                    break;
                }
                disk.offline(false);
            }
            log.metrics().degraded_reads.get()
        });
    }
    assert!(degraded > 0, "none lacked a chunk of data");
}

fn shard_of(place: &Place) -> u8 {
    if let Place::Chunk { shard, .. } = place { *shard } else { panic!("not in a chunk") }
}

#[test]
fn segments_are_rotated_and_all_stay_readable() {
    let mut world = World::new("2+1", 5);
    life(async {
        let book = Arc::new(Book::default());
        let (log, _) = world.start(&book).await;
        for name in 0..30 {
            put(&log, name, 1 << 20).await.unwrap();
            append(&log, name, log.stripe_payload_bytes()).await.unwrap();
        }
        book.verify(&log).await;
        let status = log.status();
        assert!(status.sealed_segments >= 5, "{status:?}");
        assert_eq!(status.open_segments, 2);
        // Surplus of sealed segments is given back: each shard ends with its seal.
        let page = book.snapshot();
        let sealed: u64 =
            page.segments.values().filter_map(|known| known.sealed).map(|seal| seal.end_offset + 4096).sum();
        let used: u64 = world.disks.iter().map(gabion_platform::SimDisk::used_bytes).sum();
        assert!(used < 3 * (sealed + 2 * (4 << 20)), "{used} {sealed}");
    });
}

#[test]
fn bad_requests_are_refused_before_anything_is_written() {
    let mut world = World::new("2+1", 6);
    life(async {
        let book = Arc::new(Book::default());
        let (log, _) = world.start(&book).await;
        let wrong_sum = NewRecord { data_crc64: 1, ..record(1, 100) };
        assert!(matches!(log.commit(wrong_sum).await, Err(LogError::Invalid(_))));
        let large = Bytes::from(vec![0; (1 << 20) + 1]);
        let large_mutation = NewRecord { mutation: large.clone(), data: vec![], data_crc64: 0 };
        assert!(matches!(log.commit(large_mutation).await, Err(LogError::Invalid(_))));
        let large_data = NewRecord { mutation: Bytes::new(), data: vec![large], data_crc64: 0 };
        assert!(matches!(log.commit(large_data).await, Err(LogError::Invalid(_))));
        let empty = log.stripe_buffer().await.unwrap();
        assert!(matches!(log.append(empty).await, Err(LogError::Invalid(_))));
        assert!(world.shard_files().is_empty());
    });
}

#[test]
fn full_queues_refuse_at_once() {
    let mut world = World::new("1+0", 7);
    world.config.queue_records_max = 8;
    life(async {
        let book = Arc::new(Book::default());
        let (log, _) = world.start(&book).await;
        let outcomes = join_all((0..20).map(|name| put(&log, name, 10))).await;
        let busy = outcomes.iter().filter(|outcome| matches!(outcome, Err(LogError::Busy))).count();
        assert_eq!(busy, 12);
        assert!(put(&log, 100, 10).await.is_ok());
    });
}

#[test]
fn stripe_buffers_wait_for_the_memory_budget() {
    let mut world = World::new("2+1", 8);
    world.config.stripe_memory_bytes = 2 * 3 * 4 * 65_536;
    life(async {
        let (log, _) = world.open(vec![]).await.unwrap();
        let mut first = log.stripe_buffer().await.unwrap();
        first.put(b"bytes");
        let _second = log.stripe_buffer().await.unwrap();
        let third = tokio::spawn({
            let log = log.clone();
            async move { log.stripe_buffer().await.unwrap().remaining() }
        });
        crate::world::steps(10).await;
        assert!(!third.is_finished());
        assert!(log.try_stripe_buffer().is_none());
        // What nobody asked for has two of its own.
        let own = [log.own_stripe_buffer().await.unwrap(), log.own_stripe_buffer().await.unwrap()];
        assert_eq!(log.memory()[0].used_bytes, log.memory()[0].limit_bytes);
        assert!(timeout(Duration::from_secs(9), log.own_stripe_buffer()).await.is_err());
        drop(own);
        crate::world::steps(10).await;
        assert!(!third.is_finished() && log.try_stripe_buffer().is_none());
        // Whoever still reads what was in it has its memory.
        let part = first.part(1..3);
        drop(first);
        crate::world::steps(10).await;
        assert!(!third.is_finished());
        assert_eq!(part, "yt");
        drop(part);
        assert_eq!(third.await.unwrap(), log.stripe_payload_bytes());
        assert!(log.try_stripe_buffer().is_some());
    });
}

#[test]
fn a_stripe_is_filled_in_place_and_read_before_it_is_full() {
    let mut world = World::new("3+1", 8);
    life(async {
        let (log, _) = world.start(&Arc::new(Book::default())).await;
        let mut stripe = log.stripe_buffer().await.unwrap();
        let payload: Vec<u8> = (0..log.stripe_payload_bytes()).map(|at| (at / 999) as u8).collect();
        let mut parts = Vec::new();
        while !stripe.is_full() {
            let from = stripe.len();
            let room = stripe.room();
            let bytes = room.len().min(50_000);
            room[..bytes].copy_from_slice(&payload[from..][..bytes]);
            stripe.advance(bytes);
            parts.push(stripe.part(from..from + bytes));
        }
        assert!(stripe.room().is_empty());
        assert!(parts.concat() == payload);
        let extent = log.append(stripe).await.unwrap();
        let read = log.read(&extent, 0..payload.len() as u32).await.unwrap();
        assert!(read.concat() == payload);
        assert!(parts.concat() == payload, "they are as they were");
    });
}

#[test]
fn shutdown_answers_what_is_queued_and_refuses_the_rest() {
    let mut world = World::new("2+1", 9);
    life(async {
        let book = Arc::new(Book::default());
        let (log, _) = world.start(&book).await;
        let queued = join_all((0..50).map(|name| put(&log, name, 1000)));
        let (outcomes, ()) = tokio::join!(queued, async {
            crate::world::steps(1).await;
            log.shutdown().await;
        });
        assert!(outcomes.iter().all(Result::is_ok));
        assert!(matches!(put(&log, 99, 1).await, Err(LogError::Unavailable(_))));
        assert!(matches!(log.stripe_buffer().await, Err(LogError::Unavailable(_))));
    });
}

#[test]
fn the_futures_can_move_between_threads() {
    fn is_send<T: Send>(_: &T) {}
    let mut world = World::new("1+0", 10);
    let env = world.env();
    is_send(&Log::open(world.config.clone(), world.targets(), vec![], env));
    life(async {
        let (log, _) = world.open(vec![]).await.unwrap();
        is_send(&log.commit(record(1, 1)));
        is_send(&log.stripe_buffer());
        is_send(&log.append(log.stripe_buffer().await.unwrap()));
        let id = gabion_types::SegmentId::new(1, 1);
        let extent = gabion_types::Extent {
            segment: id,
            stripe_offset: 0,
            place: Place::Cells { cell_bytes: 4096 },
            len: 1,
            crc64: 0,
        };
        is_send(&log.read(&extent, 0..1));
        is_send(&log.free(id, vec![]));
        is_send(&log.mutations(id, 0));
        is_send(&log.sync());
        is_send(&log.shutdown());
        assert!(matches!(read(&log, &extent, 0..1).await, Err(LogError::NotFound(_))));
    });
}

#[test]
fn an_index_that_fails_stops_all_writes() {
    let mut world = World::new("2+1", 11);
    let book = Arc::new(Book::default());
    life(async {
        let (log, _) = world.start(&book).await;
        put(&log, 1, 100).await.unwrap();
        book.fail.store(true, std::sync::atomic::Ordering::SeqCst);
        assert!(matches!(put(&log, 2, 100).await, Err(LogError::Unavailable(_))));
        book.fail.store(false, std::sync::atomic::Ordering::SeqCst);
        assert!(matches!(put(&log, 3, 100).await, Err(LogError::Unavailable(_))));
        assert!(log.status().poisoned.is_some());
        book.verify(&log).await;
    });
    world.kill();
    life(async {
        let (log, _) = world.start(&book).await;
        let names: Vec<String> = book.mutations().into_values().collect();
        assert_eq!(names, ["put 1 100", "put 2 100"], "the second was durable, so replay applies it");
        put(&log, 3, 100).await.unwrap();
    });
}

#[test]
fn an_index_that_panics_leaves_nobody_waiting() {
    struct Panics;
    impl gabion_segment::Applier for Panics {
        fn apply(&self, _: &gabion_segment::AppliedStripe) -> Result<(), gabion_segment::ApplyError> {
            panic!("told to");
        }

        fn segment_changed(&self, _: gabion_segment::SegmentChange) -> Result<(), gabion_segment::ApplyError> {
            Ok(())
        }
    }
    let mut world = World::new("1+0", 12);
    life(async {
        let (log, _) = world.open(vec![]).await.unwrap();
        log.start(Arc::new(Panics));
        for name in 0..3 {
            assert!(matches!(put(&log, name, 100).await, Err(LogError::Unavailable(_))), "{name}");
        }
        assert!(log.status().poisoned.is_some());
        log.shutdown().await;
    });
}

#[test]
fn works_on_many_threads() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_time().worker_threads(4).build().unwrap();
    let mut world = World::new("4+2", 13);
    world.config.small_lanes = 2;
    world.config.large_lanes = 2;
    runtime.block_on(async {
        let book = Arc::new(Book::default());
        let (log, _) = world.start(&book).await;
        let clients = (0..16_u64).map(|client| {
            let log = log.clone();
            tokio::spawn(async move {
                for number in 0..20 {
                    put(&log, client * 100 + number, 5000).await.unwrap();
                    let extent = append(&log, number, 300_000).await.unwrap();
                    assert!(
                        read(&log, &extent, 1000..250_000).await.unwrap() == pattern(number, 300_000)[1000..250_000]
                    );
                }
            })
        });
        for client in join_all(clients).await {
            client.unwrap();
        }
        assert_eq!(book.mutations().len(), 320);
        book.verify(&log).await;
        log.shutdown().await;
    });
}
