//! How much room the targets have, from the view of compaction: may it move so much, and must it hurry.

use futures::future::join_all;

use crate::core::Core;
use crate::lane::open::Purpose;

/// Segments that writers can still open before they are refused, below which space is short.
const SHORT_SEGMENTS: u64 = 4;

/// Room on the targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Payload in bytes that compaction may write before it finds no room.
    pub moved_bytes: u64,
    /// Whether writers will soon be refused, or are already.
    pub is_short: bool,
}

/// Asks all targets. One that does not answer has none.
pub(crate) async fn room(core: &Core) -> Room {
    let targets = core.media.targets.all().into_iter().filter(|(number, _)| !core.media.targets.is_leaving(*number));
    let asked = targets.filter_map(|(_, target)| target.disk.clone()).map(|disk| disk.space());
    let mut available: Vec<u64> =
        join_all(asked).await.into_iter().map(|space| space.map_or(0, |space| space.available_bytes)).collect();
    available.sort_unstable_by_key(|&bytes| std::cmp::Reverse(bytes));
    let geometry = core.config.geometry;
    // A segment takes as much of each of its targets: the last of them is what counts.
    let least = available.get(geometry.shards() - 1).or(available.get(geometry.quorum() - 1)).copied().unwrap_or(0);
    let short = core.left_bytes(Purpose::Data).saturating_add(SHORT_SEGMENTS * core.shard_bytes_full());
    Room {
        moved_bytes: least.saturating_sub(core.left_bytes(Purpose::Moved)).saturating_mul(geometry.data() as u64),
        is_short: least < short,
    }
}
