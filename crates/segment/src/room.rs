//! How much room the targets have, from the view of compaction: may it move so much, and must it hurry.

use futures::future::join_all;

use crate::core::Core;
use crate::lane::open::Purpose;

/// Segments that writers can still open before they are refused, below which space is short.
const SHORT_SEGMENTS: u64 = 4;
/// Segments that they should be able to open once it is not short any more: more is not worth the copying, less would soon be short again.
const ENOUGH_SEGMENTS: u64 = 6;

/// Room on the targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Payload in bytes that compaction may write before it finds no room.
    pub moved_bytes: u64,
    /// Whether writers will soon be refused, or are already.
    pub is_short: bool,
    /// Payload in bytes that has to be given back so that there is enough room again; zero as long as it is not short.
    pub lacking_bytes: u64,
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
    let with_segments = |count| core.left_bytes(Purpose::Data).saturating_add(count * core.shard_bytes_full());
    let payload_bytes = |shard_bytes: u64| shard_bytes.saturating_mul(geometry.data() as u64);
    let is_short = least < with_segments(SHORT_SEGMENTS);
    let lacking = if is_short { with_segments(ENOUGH_SEGMENTS) - least } else { 0 };
    Room {
        moved_bytes: payload_bytes(least.saturating_sub(core.left_bytes(Purpose::Moved))),
        is_short,
        lacking_bytes: payload_bytes(lacking),
    }
}
