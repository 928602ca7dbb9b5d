//! Bringing back what is missing, the most endangered segments first.
//!
//! A pass looks at what is missing now, works at some of it, and looks again; nothing is remembered between two passes but figures.
//! So it may be stopped anywhere and begun again, and what is lost meanwhile is found as soon as the segments at hand are done.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use futures::future::join_all;
use futures::stream::{self, StreamExt};
use gabion_types::SegmentId;
use parking_lot::Mutex;
use serde::Serialize;

use super::Pace;
use super::census::{Census, Need, Patience};
use super::destination::{Rooms, destination};
use super::install::{Installed, has_former, install, remove_former};
use super::rebalance;
use crate::config::LogConfig;
use crate::core::Core;
use crate::error::LogError;
use crate::segment::{Pin, Segment};
use crate::status::{RepairEntry, RepairStatus};

/// Segments that are worked at before the most endangered ones are looked for again, per worker.
const SEGMENTS_PER_LOOK: usize = 8;

/// How long a shard is left alone of which too little is left: a target that comes back may help.
const HOPELESS_MS: u64 = 3_600_000;

/// What a log remembers of its repair.
pub(crate) struct Repair {
    pub(crate) pace: Pace,
    attempts: AtomicU64,
    running: AtomicBool,
    /// One pass at a time.
    turn: tokio::sync::Mutex<()>,
    progress: Mutex<Progress>,
    /// Shards that could not be built, and when they are tried again, by the monotonic clock.
    later: Mutex<HashMap<RepairEntry, u64>>,
}

#[derive(Debug, Clone, Default)]
struct Progress {
    started_ns: u64,
    bytes_done: u64,
    /// Shards that had nowhere to go, or whose segment could not be read.
    blocked: usize,
    last_error: Option<String>,
}

/// What a pass did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct RepairPass {
    /// Shards that were built anew, in place or elsewhere.
    pub shards_built: usize,
    /// Their bytes.
    pub bytes_built: u64,
    /// Shards that were asked for and turned out to be good.
    pub shards_good: usize,
    /// Shards that found no target to go to.
    pub shards_blocked: usize,
    /// Shards that could not be built.
    pub shards_failed: usize,
    /// Stripes that are lost for good: more of their chunks are gone than parity replaces.
    pub lost_stripes: u64,
}

impl RepairPass {
    /// Adds what another pass did.
    pub fn add(&mut self, other: &Self) {
        self.shards_built += other.shards_built;
        self.bytes_built += other.bytes_built;
        self.shards_good += other.shards_good;
        self.shards_blocked += other.shards_blocked;
        self.shards_failed += other.shards_failed;
        self.lost_stripes += other.lost_stripes;
    }
}

impl Repair {
    pub(crate) fn new(config: &LogConfig) -> Self {
        Self {
            pace: Pace::new(config.upkeep.repair_bytes_per_s),
            attempts: AtomicU64::new(0),
            running: AtomicBool::new(false),
            turn: tokio::sync::Mutex::default(),
            progress: Mutex::default(),
            later: Mutex::default(),
        }
    }

    /// Puts off a shard that could not be built.
    fn put_off(&self, core: &Core, entry: RepairEntry, for_ms: u64) {
        let until_ns = core.media.clock.monotonic_ns().saturating_add(for_ms.saturating_mul(1_000_000));
        self.later.lock().insert(entry, until_ns);
    }

    /// Segments with shards that are put off.
    pub(crate) fn put_off_segments(&self) -> BTreeSet<SegmentId> {
        self.later.lock().keys().map(|entry| entry.segment).collect()
    }

    /// Nothing of a segment is put off any more.
    pub(crate) fn again(&self, segment: SegmentId) {
        self.later.lock().retain(|entry, _| entry.segment != segment);
    }

    /// Takes out of `needs` what is put off.
    fn leave_for_later(&self, core: &Core, needs: &mut Vec<Need>) {
        let now_ns = core.media.clock.monotonic_ns();
        let mut later = self.later.lock();
        later.retain(|_, until_ns| *until_ns > now_ns);
        if later.is_empty() {
            return;
        }
        needs.retain_mut(|need| {
            let (segment, had) = (need.segment.id, need.shards.len());
            need.shards.retain(|&shard| !later.contains_key(&RepairEntry { segment, shard }));
            !need.shards.is_empty() || had == 0
        });
    }

    /// A number that no other attempt to build a shard has.
    pub(crate) fn next_attempt(&self) -> u64 {
        self.attempts.fetch_add(1, Ordering::Relaxed)
    }

    /// How far repair is.
    pub(crate) fn status(&self, core: &Core, census: &Census) -> RepairStatus {
        let progress = self.progress.lock().clone();
        let bytes_left: u64 = census.needs.iter().map(Need::bytes).sum();
        let running = self.running.load(Ordering::SeqCst);
        let elapsed_us = core.elapsed_us(progress.started_ns);
        let is_measured = running && elapsed_us > 0;
        let bytes_per_s =
            if is_measured { (u128::from(progress.bytes_done) * 1_000_000 / u128::from(elapsed_us)) as u64 } else { 0 };
        RepairStatus {
            running,
            segments_left: census.needs.iter().filter(|need| !need.shards.is_empty()).count(),
            shards_left: census.needs.iter().map(|need| need.shards.len()).sum(),
            bytes_left,
            shards_waiting: census.waiting,
            overflowed: core.media.repairs.has_overflowed(),
            bytes_per_s,
            eta_s: (bytes_per_s > 0).then(|| bytes_left / bytes_per_s),
            blocked: progress.blocked,
            last_error: progress.last_error,
        }
    }
}

/// Says that a pass ended, however it did.
struct Running<'a>(&'a AtomicBool);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

/// Repairs until nothing is left that can be repaired now; `look_again` has lanes end segments that lack a shard: only of those that have ended it is built.
pub(crate) async fn pass(core: &Core, patience: Patience, look_again: impl Fn()) -> Result<RepairPass, LogError> {
    let repair = &core.repair;
    let _turn = repair.turn.lock().await;
    repair.running.store(true, Ordering::SeqCst);
    let _running = Running(&repair.running);
    *repair.progress.lock() = Progress { started_ns: core.media.clock.monotonic_ns(), ..Progress::default() };
    // Targets that failed are asked whether they work again: nobody else does while nothing is written.
    let targets = &core.media.targets;
    join_all(targets.all().into_iter().map(|(number, _)| targets.room(number))).await;
    let mut total = RepairPass::default();
    let mut tried: HashSet<SegmentId> = HashSet::new();
    let mut immovable: HashSet<SegmentId> = HashSet::new();
    let workers = core.config.upkeep.repair_concurrency.max(1);
    loop {
        core.check_poison()?;
        // The pass may go on for days.
        look_again();
        let rooms = Rooms::ask(core).await;
        let mut census = Census::take(core, patience);
        if patience == Patience::Delay {
            repair.leave_for_later(core, &mut census.needs);
        }
        // What has nowhere to go is passed over, however much it is: what can be done may stand behind it, and looking again for each few that can not would take for ever.
        let mut shards_blocked = 0;
        let fresh = census.needs.into_iter().filter(|need| !tried.contains(&need.segment.id)).filter(|need| {
            let can_go = can_go(need, &rooms);
            shards_blocked += if can_go { 0 } else { need.shards.len() };
            can_go
        });
        let chosen: Vec<Need> = fresh.take(workers * SEGMENTS_PER_LOOK).collect();
        if chosen.is_empty() {
            // Only when nothing is endangered, and not for long: what is lost meanwhile comes first.
            if rebalance::step(core, workers * SEGMENTS_PER_LOOK, &mut immovable, &mut total).await {
                // What was repaired in it, or could not be, may have to be since.
                tried.clear();
                continue;
            }
            total.shards_blocked += shards_blocked;
            break;
        }
        tried.extend(chosen.iter().map(|need| need.segment.id));
        let mut outcomes = stream::iter(chosen).map(|need| repair_segment(core, need)).buffer_unordered(workers);
        while let Some(outcome) = outcomes.next().await {
            total.add(&outcome);
        }
    }
    repair.progress.lock().blocked = total.shards_blocked;
    Ok(total)
}

/// Whether there may be something to be done for a segment now.
fn can_go(need: &Need, rooms: &Rooms) -> bool {
    let info = need.segment.info();
    need.has_stale || need.shards.iter().any(|&shard| rooms.are_enough(&info, shard.into(), need.shard_bytes))
}

/// Works at one segment; what fails is told and left for the next pass.
async fn repair_segment(core: &Core, need: Need) -> RepairPass {
    let mut done = RepairPass::default();
    let segment = &need.segment;
    let _turn = segment.move_turn.lock().await;
    if !segment.pin() {
        return done;
    }
    let _pin = Pin::new(vec![Arc::clone(segment)]);
    for &shard in &need.shards {
        repair_shard(core, segment, shard.into(), need.shard_bytes, &mut done).await;
    }
    if let Err(error) = remove_former(core, segment, None).await {
        note(core, segment, &error);
    }
    done
}

async fn repair_shard(core: &Core, segment: &Segment, shard: usize, shard_bytes: u64, done: &mut RepairPass) {
    let metrics = &core.media.metrics;
    let entry = RepairEntry { segment: segment.id, shard: shard as u8 };
    let info = segment.info();
    let Some(mut place) = destination(core, &info, shard, shard_bytes, false).await else {
        done.shards_blocked += 1;
        return;
    };
    let mut outcome = install(core, segment, shard, place, &core.repair.pace).await;
    // A former copy gives way to a whole one only. Elsewhere stripes that can not be had are left out, and the others gain.
    if matches!(outcome, Err(LogError::Corrupt { .. }))
        && has_former(&info, shard, core.media.targets.at(place).id)
        && let Some(other) = destination(core, &info, shard, shard_bytes, true).await
    {
        place = other;
        outcome = install(core, segment, shard, place, &core.repair.pace).await;
    }
    match outcome {
        Ok(Installed::WasGood) => done.shards_good += 1,
        Ok(Installed::Built { bytes, lost_stripes }) => {
            done.shards_built += 1;
            done.bytes_built += bytes;
            done.lost_stripes += lost_stripes;
            metrics.repair_shards.add(1);
            metrics.repair_bytes.add(bytes);
            metrics.repair_lost_stripes.add(lost_stripes);
            core.repair.progress.lock().bytes_done += bytes;
            let target = core.media.targets.at(place).id;
            if lost_stripes > 0 {
                core.repair.put_off(core, entry, HOPELESS_MS);
                tracing::error!(segment = %segment.id, shard, lost_stripes, "a shard was built anew, but stripes of it are lost");
            } else {
                tracing::info!(segment = %segment.id, shard, %target, bytes, "a shard was built anew");
            }
        }
        // It goes away: nothing is left to repair.
        Err(LogError::NotFound(_)) => {}
        Err(error) => {
            done.shards_failed += 1;
            metrics.repair_failures.add(1);
            let hopeless = matches!(error, LogError::Corrupt { .. });
            core.repair.put_off(core, entry, if hopeless { HOPELESS_MS } else { core.config.reprobe_ms });
            note(core, segment, &error);
        }
    }
}

/// Builds one shard on a given target.
pub(crate) async fn repair_onto(
    core: &Core,
    segment: Arc<Segment>,
    shard: usize,
    place: usize,
) -> Result<Installed, LogError> {
    let _turn = segment.move_turn.lock().await;
    if !segment.pin() {
        return Err(LogError::NotFound(segment.id));
    }
    let _pin = Pin::new(vec![Arc::clone(&segment)]);
    let target = core.media.targets.at(place).id;
    let info = segment.info();
    let holds_another = info.targets.iter().enumerate().any(|(other, holder)| other != shard && *holder == target);
    if shard >= info.geometry.shards() || holds_another {
        return Err(LogError::Invalid(format!(
            "shard {shard} of segment {} can not go to target {target}",
            segment.id
        )));
    }
    install(core, &segment, shard, place, &core.repair.pace).await
}

fn note(core: &Core, segment: &Segment, error: &LogError) {
    tracing::warn!(segment = %segment.id, %error, "a segment could not be repaired; it is tried again");
    core.repair.progress.lock().last_error = Some(format!("segment {}: {error}", segment.id));
}
