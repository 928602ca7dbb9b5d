//! Hole punching: large stripes to which no row refers give back their space where they lie (docs/adr/0007).
//!
//! Which stripes are live is read from one snapshot of the index. A stripe that is dead there stays dead: nothing in flight refers to
//! its segment (that is made sure of before the snapshot is taken), and a copy refers only to what a row refers to. Readers who began before it was dead
//! keep their segments pinned, and those are left alone. Before a hole is punched a
//! checkpoint makes that durable: no start finds a row that needs the bytes.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::atomic::{AtomicBool, Ordering},
};

use futures::stream::{self, StreamExt};
use gabion_metadata::{
    Table, WalkedRow,
    rows::{LaneKind, SegmentState},
};
use gabion_segment::{DeadStripe, LogError};
use gabion_types::{Extent, SegmentId};
use parking_lot::Mutex;

use super::NoRound;
use crate::{StoreError, apply::Segment, references::References, store::Inner, tasks};

/// Full stripes that a segment must have to give before it is looked at.
const STRIPES_MIN: u64 = 2;
/// Part of a full stripe that is enough when space is short: else nearly two stripes in every segment could not be had by anybody.
const STRIPE_SHARE_SHORT: u64 = 4;

/// How much of a segment of large objects may be live so that it is compacted although its dead stripes could be punched out: it
/// costs files, and next to nothing to move.
const LIVE_RATIO_PUNCHED: f64 = 0.1;

/// What hole punching remembers.
#[derive(Default)]
pub(crate) struct Punching {
    /// A target can not: segments of large objects are compacted instead.
    unsupported: AtomicBool,
    /// What is noted as holes and is to be punched yet, by segment.
    left: Mutex<HashMap<SegmentId, Left>>,
    /// Segments of which a target failed, and when.
    failed_ms: Mutex<HashMap<SegmentId, u64>>,
    /// Segments that repair has put off, and until when they are not looked at again for what nothing needs.
    looked_at_ms: Mutex<HashMap<SegmentId, u64>>,
}

/// What is still to be punched out of a segment.
#[derive(Default)]
struct Left {
    /// Payload of the stripes, in bytes, by their offsets.
    stripes: BTreeMap<u64, u64>,
    /// When that was tried.
    tried_ms: u64,
}

impl Left {
    fn bytes(&self) -> u64 {
        self.stripes.values().sum()
    }
}

/// Rows of the index that are looked through in one turn.
const ROWS_A_TURN: usize = 16 * 1024;
/// Segments that are looked at side by side.
const LOOKS_AT_ONCE: usize = 16;
/// When it is looked again whether anything needs what can not be repaired of a segment, in ms.
const NEEDLESS_AGAIN_MS: u64 = 3_600_000;
/// The same of one that somebody read.
const NEEDLESS_READ_MS: u64 = 60_000;
/// How long what was left is let alone, since each try goes through the index: in ms, when space is short and else.
const AGAIN_SHORT_MS: u64 = 10_000;
const AGAIN_MS: u64 = 600_000;

/// Whether what was tried then is to be tried again.
fn is_due(tried_ms: u64, now_ms: u64, is_short: bool) -> bool {
    now_ms.saturating_sub(tried_ms) >= if is_short { AGAIN_SHORT_MS } else { AGAIN_MS }
}

impl Punching {
    pub(super) fn is_on(&self, inner: &Inner) -> bool {
        inner.config.compaction.punch_holes && !self.unsupported.load(Ordering::Relaxed)
    }

    /// The payload that was left of a segment, in bytes, if it is time to try again.
    pub(super) fn due_bytes(&self, segment: SegmentId, now_ms: u64, is_short: bool) -> u64 {
        let left = self.left.lock();
        let due = left.get(&segment).filter(|left| is_due(left.tried_ms, now_ms, is_short));
        due.map_or(0, Left::bytes)
    }

    /// Whether a segment is let alone, as one of its targets failed lately.
    pub(super) fn rests(&self, segment: SegmentId, now_ms: u64, is_short: bool) -> bool {
        self.failed_ms.lock().get(&segment).is_some_and(|&failed_ms| !is_due(failed_ms, now_ms, is_short))
    }

    /// Its turn comes again; the others do not wait for it.
    fn failed(&self, segment: SegmentId, now_ms: u64, error: &LogError) {
        tracing::debug!(%segment, %error, "no holes can be punched in a segment for now");
        self.failed_ms.lock().insert(segment, now_ms);
    }

    /// Stripes of a segment are to be punched.
    fn add<'a>(&self, segment: SegmentId, stripes: impl Iterator<Item = &'a DeadStripe>, now_ms: u64) {
        let mut left = self.left.lock();
        let left = left.entry(segment).or_default();
        left.tried_ms = now_ms;
        left.stripes.extend(stripes.map(|stripe| (stripe.offset, stripe.payload_bytes)));
    }

    /// It is of no use to try it soon again.
    fn tried(&self, segment: SegmentId, now_ms: u64) {
        if let Some(left) = self.left.lock().get_mut(&segment) {
            left.tried_ms = now_ms;
        }
    }

    /// Of a segment only these are to be punched still; returns the payload of those that were, in bytes.
    fn leave(&self, segment: SegmentId, stripes: &[DeadStripe]) -> u64 {
        let mut all = self.left.lock();
        let Some(left) = all.get_mut(&segment) else { return 0 };
        let before = left.bytes();
        let offsets: BTreeSet<u64> = stripes.iter().map(|stripe| stripe.offset).collect();
        left.stripes.retain(|offset, _| offsets.contains(offset));
        let bytes = left.bytes();
        if bytes == 0 {
            all.remove(&segment);
        }
        before - bytes
    }

    /// Forgets segments that are going or gone: their space comes back as a whole.
    fn forget_gone(&self, inner: &Inner) {
        inner.apply.with_segments(|segments| {
            let is_sealed = |segment: &Segment| segment.row.state == SegmentState::Sealed;
            self.left.lock().retain(|&id, _| segments.get(id).is_some_and(is_sealed));
            self.failed_ms.lock().retain(|&id, _| segments.get(id).is_some_and(is_sealed));
        });
    }
}

/// Offsets of the live stripes of segments of large objects.
pub(crate) type LiveStripes = HashMap<SegmentId, BTreeSet<u64>>;

/// The live stripes of those of `wanted` that are sealed segments of large objects to which nothing in flight may come to refer.
pub(crate) async fn live_stripes(inner: &Inner, wanted: &HashSet<SegmentId>) -> Result<LiveStripes, StoreError> {
    // First this, then the rows: what was in flight before is in it.
    let settled = |id: &SegmentId| {
        inner.apply.with_segments(|segments| {
            segments.get(*id).is_some_and(|segment| {
                segment.row.kind == LaneKind::Large
                    && segment.row.state == SegmentState::Sealed
                    && inner.holds.is_free(*id, segment.sealed_epoch)
                    // What can not be read at the moment may refer to it.
                    && !inner.apply.is_kept(*id)
            })
        })
    };
    let mut live: LiveStripes = wanted.iter().filter(|id| settled(id)).map(|&id| (id, BTreeSet::new())).collect();
    if live.is_empty() {
        return Ok(live);
    }
    let mut note = |extent: &Extent| {
        if let Some(stripes) = live.get_mut(&extent.segment) {
            stripes.insert(extent.stripe_offset);
        }
    };
    // Nor are those dead that hold the index' own snapshot.
    let mut rows = inner.index.walk(&[Table::Object, Table::Part, Table::Manifest, Table::System, Table::Version])?;
    loop {
        let walk = || {
            for _ in 0..ROWS_A_TURN {
                let Some(WalkedRow { table, key, row }) = rows.next()? else { return Ok(true) };
                References::of_row(table, key, row)?.extents.iter().for_each(&mut note);
            }
            Ok::<_, StoreError>(false)
        };
        let is_last = tasks::blocking(walk)?;
        inner.require_open()?;
        if is_last {
            return Ok(live);
        }
        tokio::task::yield_now().await;
    }
}

/// Whether it is holes that give back the space of a segment, and not moving what is live: it holds large objects, and enough of them.
pub(super) fn is_punched(segment: &Segment) -> bool {
    let row = &segment.row;
    row.kind == LaneKind::Large && row.live_bytes as f64 > LIVE_RATIO_PUNCHED * row.written_bytes as f64
}

/// What punching would give back of a sealed segment, in bytes of payload.
pub(super) fn punchable_bytes(inner: &Inner, segment: &Segment, is_short: bool) -> u64 {
    let row = &segment.row;
    if !is_punched(segment) {
        return 0;
    }
    let kept_bytes = row.live_bytes.unsigned_abs() + row.punched_bytes.unwrap_or(0);
    let dead_bytes = row.written_bytes.saturating_sub(kept_bytes);
    let stripe_bytes = inner.log.stripe_payload_bytes() as u64;
    let least_bytes = if is_short { stripe_bytes / STRIPE_SHARE_SHORT } else { STRIPES_MIN * stripe_bytes };
    if dead_bytes < least_bytes { 0 } else { dead_bytes }
}

/// Has all that is dead in segments of large objects count as holes, where the index was built anew: some of it is, and nobody knows what. To whoever
/// checks or rebuilds shards the holes would be damage. What it comes to is not counted: all of it is punched later. Returns whether all could be looked at.
pub(crate) async fn note_all_holes(inner: &Inner) -> Result<bool, StoreError> {
    let may_have = |segment: &Segment| {
        let row = &segment.row;
        row.kind == LaneKind::Large
            && row.state == SegmentState::Sealed
            && row.live_bytes.unsigned_abs() < row.written_bytes
    };
    let wanted = inner.apply.with_segments(|segments| {
        let wanted = segments.iter().filter(|(_, segment)| may_have(segment));
        wanted.map(|(id, _)| id).collect()
    });
    Ok(note_holes(inner, &wanted).await?.iter().all(|(_, found)| matches!(found, Found::Dead | Found::Nothing)))
}

/// The same for segments of which a shard could not be built anew: what is lost may be what nothing needs, as a power cut leaves it of what was not
/// acknowledged, or not durably. They are tried again if there is any such; returns whether there is. Not beside a round of compaction: it may share what it has moved with
/// further rows, so that what is dead does not stay dead.
pub(crate) async fn note_needless(inner: &Inner, _no_round: NoRound<'_>) -> Result<bool, StoreError> {
    let (now_ms, looked_at) = (inner.env.clock.now_ms(), &inner.compaction.punching.looked_at_ms);
    let mut wanted: HashSet<SegmentId> = inner.log.repair_put_off().into_iter().collect();
    {
        let mut looked_at = looked_at.lock();
        looked_at.retain(|id, &mut until_ms| wanted.contains(id) && now_ms < until_ms);
        wanted.retain(|id| !looked_at.contains_key(id));
    }
    let mut has_dead = false;
    for (id, found) in note_holes(inner, &wanted).await? {
        let again_ms = if found == Found::BeingRead { NEEDLESS_READ_MS } else { NEEDLESS_AGAIN_MS };
        looked_at.lock().insert(id, now_ms.saturating_add(again_ms));
        if found == Found::Dead {
            inner.log.repair_again(id);
            has_dead = true;
        }
    }
    Ok(has_dead)
}

/// What a look for dead stripes of a segment came to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    Dead,
    /// All is needed, or the segment is about to go.
    Nothing,
    /// Somebody reads it.
    BeingRead,
    /// It can not be read.
    Unreadable,
}

/// Looks for dead stripes, and notes that they may be holes.
async fn note_holes(inner: &Inner, wanted: &HashSet<SegmentId>) -> Result<Vec<(SegmentId, Found)>, StoreError> {
    let live = live_stripes(inner, wanted).await?;
    // In an order, so that a simulation goes the same way each time.
    let live: BTreeMap<_, _> = live.into_iter().collect();
    let mut noted = Vec::new();
    if live.is_empty() {
        return Ok(noted);
    }
    // Only when it is durable that nothing needs them: what is built without them does not come back.
    inner.checkpoint().await?;
    let look = |(id, live): (SegmentId, BTreeSet<u64>)| async move { (id, inner.log.dead_stripes(id, &live).await) };
    let mut looks = stream::iter(live).map(look).buffered(LOOKS_AT_ONCE);
    while let Some((id, dead)) = looks.next().await {
        inner.require_open()?;
        match dead {
            Ok(Some(dead)) => {
                if !dead.is_empty() {
                    inner.apply.may_be_punched(id, &dead)?;
                }
                noted.push((id, if dead.is_empty() { Found::Nothing } else { Found::Dead }));
            }
            // Its turn comes again, when it can not be repaired.
            Ok(None) => noted.push((id, Found::BeingRead)),
            Err(error) if is_going(&error) => noted.push((id, Found::Nothing)),
            Err(error) => {
                tracing::warn!(segment = %id, %error, "holes of a segment may be taken for damage: it can not be read");
                noted.push((id, Found::Unreadable));
            }
        }
    }
    Ok(noted)
}

/// Punches what is dead out of `segments`; returns the payload that was given back, in bytes.
pub(super) async fn punch(inner: &Inner, segments: &HashSet<SegmentId>) -> Result<u64, StoreError> {
    let punching = &inner.compaction.punching;
    punching.forget_gone(inner);
    let now_ms = inner.env.clock.now_ms();
    let live = live_stripes(inner, segments).await?;
    // In an order, so that a simulation goes the same way each time.
    let live: BTreeMap<_, _> = live.into_iter().collect();
    if live.is_empty() {
        return Ok(0);
    }
    // Only when it is durable that nothing needs them: what is built or moved from now on is built without them.
    inner.checkpoint().await?;
    let (mut holes, mut given_back) = (Vec::new(), 0);
    for (id, live) in live {
        inner.require_open()?;
        let dead = match inner.log.dead_stripes(id, &live).await {
            Ok(Some(dead)) => dead,
            // Somebody reads it: its turn comes with a later round.
            Ok(None) => {
                punching.tried(id, now_ms);
                continue;
            }
            Err(error) if is_going(&error) => continue,
            Err(error) if is_of_targets(&error) => {
                punching.failed(id, now_ms, &error);
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let before = inner.apply.punched(id, &dead)?;
        // Those before are holes, but for what is left of them, and of what a crash has left nobody knows: all are punched.
        punching.add(id, dead.iter().filter(|stripe| before.binary_search(&stripe.offset).is_err()), now_ms);
        holes.push((id, dead));
    }
    // Only when it is durable that nothing needs them, and what they are: nobody is to take a hole for damage.
    inner.checkpoint().await?;
    for (id, dead) in holes {
        inner.require_open()?;
        let left = match inner.log.punch(id, &dead).await {
            Err(error) if is_going(&error) => continue,
            Err(error) if is_of_targets(&error) => {
                punching.failed(id, now_ms, &error);
                continue;
            }
            left => left?,
        };
        let Some(left) = left else {
            punching.unsupported.store(true, Ordering::Relaxed);
            tracing::info!("a target can not punch holes: segments of large objects are compacted");
            return Ok(0);
        };
        given_back += punching.leave(id, &left);
    }
    inner.metrics.punched_bytes.add(given_back);
    Ok(given_back)
}

/// Whether the segment is deleted meanwhile: its space comes back that way.
fn is_going(error: &LogError) -> bool {
    matches!(error, LogError::NotFound(_) | LogError::Invalid(_))
}

/// Whether what failed are targets of this segment, and not what all need.
fn is_of_targets(error: &LogError) -> bool {
    matches!(
        error,
        LogError::Unavailable(_) | LogError::Unreadable { .. } | LogError::Corrupt { .. } | LogError::Io { .. }
    )
}
