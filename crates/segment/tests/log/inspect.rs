//! What `gabion inspect` shows.

use std::sync::Arc;

use gabion_segment::LogError;
use gabion_segment::inspect::{ChunkState, inspect_segment, inspect_stripe, inspect_target};
use gabion_types::{Place, SegmentId};

use crate::book::Book;
use crate::world::{World, append, life, put};

#[test]
fn shows_targets_segments_and_stripes_with_their_damage() {
    let mut world = World::new("2+1", 1);
    let book = Arc::new(Book::default());
    let (small, large) = life(async {
        let (log, _) = world.start(&book).await;
        put(&log, 1, 5000).await.unwrap();
        let small = put(&log, 2, 300_000).await.unwrap();
        (small, append(&log, 3, 200_000).await.unwrap())
    });
    world.kill();
    life(async {
        let target = inspect_target(&world.targets()[0]).await.unwrap();
        assert_eq!((target.geometry.as_str(), target.members.len(), target.segments.len()), ("2+1", 3, 2));
        let segment = inspect_segment(&world.targets(), small.home.segment).await.unwrap();
        assert_eq!((segment.kind.as_str(), segment.stripes.len(), segment.sealed), ("small", 2, false));
        assert!(segment.stripes.iter().all(|stripe| stripe.headers.iter().all(|state| *state == ChunkState::Valid)));
        // Recovery seals it.
        drop(world.open(vec![]).await.unwrap());
        let segment = inspect_segment(&world.targets(), small.home.segment).await.unwrap();
        assert!(segment.shards.iter().all(|shard| shard.seal.as_ref().is_some_and(|seal| seal.stripes == 2)));

        let stripe = inspect_stripe(&world.targets(), small.home.segment, 1).await.unwrap();
        assert_eq!(stripe.records.len(), 1);
        assert_eq!(stripe.records[0].pieces.len(), 2);
        assert!(stripe.chunks.iter().all(|chunk| chunk.state == ChunkState::Valid));
        let Place::Chunk { shard, start } = small.extents[0].place else { panic!("{small:?}") };
        world.rot(&small.extents[0], shard.into(), u64::from(start) + 70_000);
        let stripe = inspect_stripe(&world.targets(), small.home.segment, 1).await.unwrap();
        assert!(matches!(stripe.chunks[usize::from(shard)].state, ChunkState::Corrupt(_)));
        assert!(matches!(stripe.records[0].pieces[0].state, ChunkState::Corrupt(_)));
        assert_eq!(stripe.records[0].pieces[1].state, ChunkState::Valid);

        world.absent = vec![0];
        let stripe = inspect_stripe(&world.targets(), large.segment, 0).await.unwrap();
        assert_eq!(stripe.chunks.iter().filter(|chunk| chunk.state == ChunkState::Missing).count(), 1);
        assert!(matches!(inspect_stripe(&world.targets(), large.segment, 7).await, Err(LogError::Invalid(_))));
        assert!(matches!(inspect_segment(&world.targets(), SegmentId::new(1, 1)).await, Err(LogError::NotFound(_))));
    });
}
