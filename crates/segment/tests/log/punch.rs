//! Holes: what is dead of a segment of large objects goes, and nothing else does, whatever else is lost.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::sync::Arc;

use gabion_platform::Disk;
use gabion_segment::inspect::{ChunkState, inspect_stripe};
use gabion_segment::{Durability, KnownSegment, Liveness, Log, LogError};
use gabion_types::{Extent, SegmentId};

use crate::book::Book;
use crate::world::{World, append, life, pattern, read};

const STRIPES: u64 = 6;
const LEN: usize = 100_000;

/// A segment of [`STRIPES`] large stripes whose writer died.
fn written(geometry: &str, durability: Durability, seed: u64) -> (World, Arc<Book>, Vec<Extent>) {
    let mut world = World::new(geometry, seed);
    world.config.durability = durability;
    let book = Arc::new(Book::default());
    let extents = life(async {
        let (log, _) = world.start(&book).await;
        let mut extents = Vec::new();
        for name in 0..STRIPES {
            extents.push(append(&log, name, LEN).await.unwrap());
        }
        extents
    });
    assert!(extents.iter().all(|extent| extent.segment == extents[0].segment));
    world.kill();
    (world, book, extents)
}

/// Punches out all but `live`; how many stripes that were, unless none may be.
async fn punch_all_but(log: &Log, extents: &[Extent], live: &[usize]) -> Option<usize> {
    let live: BTreeSet<u64> = live.iter().map(|&at| extents[at].stripe_offset).collect();
    let dead = log.dead_stripes(extents[0].segment, &live).await.unwrap()?;
    assert_eq!(log.punch(extents[0].segment, &dead).await.unwrap(), Some(Vec::new()));
    Some(dead.len())
}

async fn check_live(log: &Log, extents: &[Extent], live: &[usize]) {
    for &at in live {
        let bytes = read(log, &extents[at], 0..extents[at].len).await.unwrap();
        assert!(bytes == pattern(at as u64, LEN));
    }
}

#[test]
fn inspection_tells_holes_from_damage() {
    let (mut world, book, extents) = written("2+1", Durability::Sync, 1);
    life(async {
        let (log, _) = world.start(&book).await;
        assert_eq!(punch_all_but(&log, &extents, &[2]).await, Some(4));
    });
    life(async {
        for (index, is_hole) in [(0, true), (1, true), (2, false), (5, false)] {
            let stripe = inspect_stripe(&world.targets(), extents[0].segment, index).await.unwrap();
            let expected = if is_hole { ChunkState::Punched } else { ChunkState::Valid };
            assert!(stripe.chunks.iter().all(|chunk| chunk.state == expected), "stripe {index}: {:?}", stripe.chunks);
        }
        // Zeros of one shard alone, and of the last stripe, which is never punched out, are damage.
        for (index, shards) in [(2, 0..1), (5, 0..3)] {
            for shard in shards {
                let (disk, path) = world.find(&format!("{}.{shard:03}", extents[0].segment)).unwrap();
                let file = disk.open(&path).await.unwrap();
                file.punch(extents[index].stripe_offset + 4096, 45_056).await.unwrap();
            }
            let stripe = inspect_stripe(&world.targets(), extents[0].segment, index as u32).await.unwrap();
            assert!(matches!(stripe.chunks[0].state, ChunkState::Corrupt(_)), "stripe {index}: {:?}", stripe.chunks);
        }
        world.rot(&extents[2], 1, 5000);
        let stripe = inspect_stripe(&world.targets(), extents[0].segment, 2).await.unwrap();
        assert!(matches!(stripe.chunks[1].state, ChunkState::Corrupt(_)), "{:?}", stripe.chunks);
    });
}

#[test]
fn holes_are_neither_damage_nor_an_end_though_power_and_index_are_lost() {
    // The power cut takes the files' lengths as well, now and then of all shards: then nothing but its headers lead to the seal.
    for geometry in ["1+0", "2+1", "4+2"] {
        for durability in [Durability::Sync, Durability::Relaxed] {
            for seed in 0..24 {
                let (mut world, book, extents) = written(geometry, durability, seed);
                life(async {
                    let (log, _) = world.start(&book).await;
                    assert_eq!(punch_all_but(&log, &extents, &[2]).await, Some(4), "the last one stays, too");
                    check_live(&log, &extents, &[2, 5]).await;
                });
                world.crash(seed);
                let rebuilt = Arc::new(Book::default());
                life(async {
                    let (log, recovery) = world.start(&rebuilt).await;
                    assert_eq!(recovery.unreadable, [], "{geometry}, {durability:?}, seed {seed}");
                    let found = recovery.segments.iter().find(|found| found.info.id == extents[0].segment).unwrap();
                    assert_eq!(u64::from(found.seal.stripes), STRIPES, "{geometry}, {durability:?}, seed {seed}");
                    check_live(&log, &extents, &[2, 5]).await;
                });
            }
        }
    }
}

/// Stripes that nobody needs.
struct Dead(BTreeSet<u64>);

impl Liveness for Dead {
    fn is_live(&self, _: SegmentId, stripe_offset: u64) -> bool {
        !self.0.contains(&stripe_offset)
    }
}

#[test]
fn headers_of_what_is_dead_lead_on_and_are_repaired() {
    let (mut world, book, extents) = written("2+1", Durability::Sync, 1);
    life(async {
        let (log, _) = world.start(&book).await;
        log.set_liveness(Arc::new(Dead([extents[1].stripe_offset].into())));
        let bad_shards = async || {
            let scrubbed = log.scrub_next(None).await.unwrap().unwrap();
            assert_eq!(scrubbed.segment, extents[0].segment);
            scrubbed.bad_shards
        };
        world.rot(&extents[1], 0, 5000);
        assert_eq!(bad_shards().await, 0, "nobody reads it");
        for shard in 0..3 {
            world.rot(&extents[1], shard, 10);
            assert_eq!(bad_shards().await, 1, "{shard}");
            assert_eq!(log.repair(true).await.unwrap().shards_built, 1, "{shard}");
            assert_eq!(bad_shards().await, 0, "{shard}");
        }
        check_live(&log, &extents, &[0, 2, 3, 4, 5]).await;
    });
}

#[test]
fn a_seal_is_durable_before_there_is_a_hole() {
    for geometry in ["1+0", "1+2", "2+1"] {
        for durability in [Durability::Sync, Durability::Relaxed] {
            let (mut world, book, extents) = written(geometry, durability, 1);
            life(async {
                let (log, _) = world.start(&book).await;
                let sealed = |known: KnownSegment| (known.id == extents[0].segment).then_some(known.sealed?);
                let seal = book.known().into_iter().find_map(sealed).unwrap();
                let last = extents.last().unwrap();
                for shard in 0..world.disks.len() {
                    world.rot(last, shard, seal.end_offset - last.stripe_offset + 9);
                }
                // Where it can not be written there are no holes.
                world.disks[0].fail_writes(1, ErrorKind::Other);
                let live: BTreeSet<u64> = [extents[2].stripe_offset].into();
                let dead = log.dead_stripes(extents[0].segment, &live).await.unwrap().unwrap();
                let refused = log.punch(extents[0].segment, &dead).await;
                assert!(matches!(refused, Err(LogError::Unavailable(_))), "{refused:?}");
                check_live(&log, &extents, &[0, 1, 2, 3, 4, 5]).await;
                assert_eq!(punch_all_but(&log, &extents, &[2]).await, Some(4));
                // Who lacked the seal may lack a stripe.
                let wanted = log.status().repairs.iter().filter(|entry| entry.segment == extents[0].segment).count();
                assert_eq!(wanted, world.disks.len());
            });
            world.crash(1);
            life(async {
                let (log, recovery) = world.start(&Arc::new(Book::default())).await;
                assert_eq!(recovery.unreadable, [], "{geometry}, {durability:?}");
                check_live(&log, &extents, &[2, 5]).await;
            });
        }
    }
}

#[test]
fn holes_are_punched_while_targets_are_absent() {
    let (mut world, book, extents) = written("1+2", Durability::Sync, 1);
    world.absent = vec![2];
    life(async {
        let (log, _) = world.start(&book).await;
        assert_eq!(punch_all_but(&log, &extents, &[2]).await, Some(4));
        check_live(&log, &extents, &[2, 5]).await;
    });
}
