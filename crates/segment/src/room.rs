//! How much room the targets have: what compaction may move, whether it must hurry, and what writers may write meanwhile.

use std::iter::repeat_n;

use futures::future::join_all;

use crate::core::Core;
use crate::lane::open::Purpose;
use crate::segment_info::LaneKind;

/// Full segments that writers can still write for certain, below which space is short.
const SHORT_SEGMENTS: u64 = 2;
/// Segments that they should be able to write once it is not short any more: more is not worth the copying, less would soon be short again.
const ENOUGH_SEGMENTS: u64 = 4;
/// What is moved takes more room than it has payload: one part in so many for headers and padding.
const MOVED_OVERHEAD: u64 = 16;
/// Segments that compaction's lanes may have open with little in them.
const MOVED_LANES: u64 = 2;

/// What the room is asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Demand {
    /// Payload that compaction is about to move, in bytes.
    pub moving_bytes: u64,
    /// Payload that writers are about to write or wait to, in bytes: as long as that does not fit, space is short.
    pub writers_bytes: u64,
}

/// Room on the targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Payload in bytes that compaction may write before it finds no room.
    pub moved_bytes: u64,
    /// Payload in bytes, headers and padding included, that writers may write for certain before they are refused: whichever lanes it goes
    /// through, and beside what compaction is about to move.
    pub data_bytes: u64,
    /// Whether writers will soon be refused, or are already.
    pub is_short: bool,
    /// Payload in bytes that has to be given back so that there is enough room again; zero as long as it is not short.
    pub lacking_bytes: u64,
    /// How much of the reserve of each target compaction is about to take, in bytes: writers may be lent that ([`crate::Log::lend`]).
    pub lent_bytes: u64,
}

/// Asks all targets. Those that do not answer are left out, as when a segment is opened: as long as enough do, writers go on.
pub(crate) async fn room(core: &Core, demand: Demand) -> Room {
    let targets = &core.media.targets;
    let mut available: Vec<u64> = join_all(targets.staying().into_iter().map(|number| targets.room(number)))
        .await
        .into_iter()
        .flatten()
        .map(|space| space.available_bytes)
        .collect();
    available.sort_unstable_by_key(|&bytes| std::cmp::Reverse(bytes));
    let geometry = core.config.geometry;
    // A segment takes as much of each of its targets: the last of them is what counts.
    let least = match available.len() {
        found if found >= geometry.quorum() => available[found.min(geometry.shards()) - 1],
        _ => 0,
    };
    of(core, least, demand)
}

/// The room where the last target of a segment has `least` bytes.
fn of(core: &Core, least: u64, demand: Demand) -> Room {
    let data_shards = core.config.geometry.data() as u64;
    let payload_bytes = |shard_bytes: u64| shard_bytes.saturating_mul(data_shards);
    let full = core.config.shard_bytes_full(LaneKind::Large);
    let (data_left, moved_left) = (core.left_bytes(Purpose::Data), core.left_bytes(Purpose::Moved));
    let moving = match demand.moving_bytes.div_ceil(data_shards) {
        0 => 0,
        bytes => {
            bytes + bytes / MOVED_OVERHEAD + MOVED_LANES * core.shard_bytes(least, LaneKind::Large, Purpose::Moved)
        }
    };
    // Compaction takes what only it may take, and the rest of what writers may, too.
    let lent_bytes = moving.min(data_left - moved_left);
    let certain = core.certain_bytes(least.saturating_sub(moving - lent_bytes));
    let with_segments = |count: u64| (count * full).saturating_add(demand.writers_bytes.div_ceil(data_shards));
    let is_short = certain < with_segments(SHORT_SEGMENTS);
    let lacking = if is_short { with_segments(ENOUGH_SEGMENTS) - certain } else { 0 };
    Room {
        moved_bytes: payload_bytes(least.saturating_sub(moved_left)),
        data_bytes: payload_bytes(certain),
        is_short,
        lacking_bytes: payload_bytes(lacking),
        lent_bytes,
    }
}

impl Core {
    /// What writers can write for certain to each target, in bytes, when `room` is left there: every lane may have to open a segment before
    /// one of them gets the rest.
    fn certain_bytes(&self, room: u64) -> u64 {
        let left = self.left_bytes(Purpose::Data);
        let mut room = room;
        let large = repeat_n(LaneKind::Large, self.config.large_lanes);
        for kind in large.chain(repeat_n(LaneKind::Small, self.config.small_lanes)) {
            room = room.saturating_sub(self.shard_bytes(room, kind, Purpose::Data));
        }
        room.saturating_sub(left)
    }
}
