//! The targets of a deployment and how each of them does.
//!
//! Targets come and go while the log is open, but a target keeps its place in the list: one that left only says so.

mod change;
pub(crate) mod lost;
pub(crate) mod membership;
mod open;
mod silent;

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use gabion_platform::{Clock, Disk, Space};
use gabion_types::{DeploymentId, Geometry, TargetId};
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

pub(crate) use change::Newcomer;
pub(crate) use open::open_targets;
use silent::Silence;
pub(crate) use silent::{OVERDUE, SYNC_OVERDUE, is_overdue, overdue};

use crate::config::LogConfig;
use crate::placement::Candidate;
use crate::status::{TargetState, TargetStatus};
use membership::{MEMBERSHIP_BYTES_MAX, MEMBERSHIP_FILE, Member, Membership};

/// How long a target may take to say how much room it has, or whether it works again: a drive that hangs never does, and must not keep those from going on who can do without it.
const ANSWER: Duration = Duration::from_secs(10);

/// Files that a target removes at a time.
const REMOVALS_AT_ONCE: usize = 64;

const PROBE_FILE: &str = "gabion.probe";
const PROBE_TEXT: &[u8] = b"gabion asks whether this target takes writes\n";

/// All targets that were given, and all members of the deployment.
pub(crate) struct TargetSet {
    pub(crate) deployment: DeploymentId,
    targets: RwLock<Vec<Arc<Target>>>,
    roster: Mutex<Roster>,
    /// Held while the members change.
    change_turn: tokio::sync::Mutex<()>,
    /// See [`TargetSet::operator_turn`].
    operator_turn: tokio::sync::Mutex<()>,
    /// See [`TargetSet::placing`].
    placing: RwLock<()>,
    opened_ns: u64,
    clock: Arc<dyn Clock>,
    reprobe_ms: u64,
    /// Most targets that may be damaged at a time.
    parity: usize,
    /// How often a target has come that takes writes: a new one, or one that took none for a while.
    gained: AtomicU64,
    silence: Arc<Silence>,
}

/// The members of the deployment.
#[derive(Debug, Clone)]
struct Roster {
    geometry: Geometry,
    epoch: u64,
    /// The highest epoch that was ever written, also by a change that failed: no other list gets it.
    written_epoch: u64,
    /// No image that a member could come back as, and that is not noticed, has an epoch below this one: what the newest list that is on more
    /// targets than may be damaged says of the member that was seen last.
    settled_epoch: u64,
    members: Vec<Member>,
    /// See [`Membership::lost`].
    lost: Option<BTreeSet<TargetId>>,
    /// A list for nothing but its epoch that too few targets took: it is written again as it is.
    unfinished: Option<Membership>,
}

/// One target.
pub(crate) struct Target {
    pub(crate) name: String,
    /// `NONE` if it is absent and which member it would be is not known.
    pub(crate) id: TargetId,
    pub(crate) failure_domain: String,
    /// Nothing if it is absent, or left: what it holds of the machine (descriptors, its lock) ends with what is under way there.
    disk: RwLock<Option<Arc<dyn Disk>>>,
    /// It is no member any more.
    gone: AtomicBool,
    /// It is drained, or the list of members that lacks it may count at the next start.
    draining: AtomicBool,
    being_removed: AtomicBool,
    /// What it was to do and has not done in time.
    overdue: AtomicUsize,
    /// Of that, reads and writes.
    owed: AtomicUsize,
    /// That of all.
    silence: Arc<Silence>,
    /// See [`TargetSet::removal_turn`].
    removals: Arc<Semaphore>,
    health: Mutex<Health>,
    own: Mutex<Own>,
}

/// Has a target count as one that leaves while its removal is looked into.
#[must_use]
pub(crate) struct Removal(Arc<Target>);

impl Drop for Removal {
    fn drop(&mut self) {
        self.0.being_removed.store(false, Ordering::SeqCst);
    }
}

/// What targets are good for a new segment.
#[derive(Default)]
pub(crate) struct Candidates {
    pub(crate) with_room: Vec<Candidate>,
    /// Those that lack nothing but room.
    pub(crate) full: Vec<usize>,
}

/// What is known of the list of members that lies on a target.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Own {
    /// Its epoch: the target durably has, or had, it.
    epoch: u64,
    /// It is an older one: the target is an old image of itself. No list is written to it before what it must not bring back was set aside.
    is_behind: bool,
    /// It was one in this life of the process.
    was_behind: bool,
    /// Files that were set aside on it at this start or an earlier one.
    set_aside_files: usize,
}

struct Health {
    state: TargetState,
    failed_at_ms: u64,
    /// Since when it takes no writes, by the monotonic clock.
    down_since_ns: Option<u64>,
    available_bytes: u64,
    total_bytes: u64,
    last_error: Option<String>,
    /// How many are waiting for something that should have been done, or have given it up.
    waits: usize,
}

/// What can be expected of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It is there.
    Here,
    /// It is there, and its shards are to be moved away.
    Leaving,
    /// It is absent or failed since this moment of the monotonic clock; `given_up` if it is drained or replaced: it is not waited for.
    Down { since_ns: u64, given_up: bool },
    /// It is no member: what it held is lost.
    Gone,
}

/// Whether an operation failed for want of room alone.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

impl Target {
    fn new(
        name: String,
        id: TargetId,
        failure_domain: String,
        disk: Option<Arc<dyn Disk>>,
        own: Own,
        now_ns: u64,
        silence: &Arc<Silence>,
    ) -> Self {
        let state = if disk.is_some() { TargetState::Online } else { TargetState::Absent };
        let down_since_ns = disk.is_none().then_some(now_ns);
        let health = Health {
            state,
            failed_at_ms: 0,
            down_since_ns,
            available_bytes: 0,
            total_bytes: 0,
            last_error: None,
            waits: 0,
        };
        Self {
            name,
            id,
            failure_domain,
            disk: RwLock::new(disk),
            gone: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            being_removed: AtomicBool::new(false),
            overdue: AtomicUsize::new(0),
            owed: AtomicUsize::new(0),
            silence: Arc::clone(silence),
            removals: Arc::new(Semaphore::new(REMOVALS_AT_ONCE)),
            health: Mutex::new(health),
            own: Mutex::new(own),
        }
    }

    /// Whether it is an old image of itself that was not made harmless yet.
    pub(crate) fn is_behind(&self) -> bool {
        self.own.lock().is_behind
    }

    /// Says how many files were found set aside on it.
    pub(crate) fn count_set_aside(&self, files: usize) {
        self.own.lock().set_aside_files += files;
    }

    pub(crate) fn state(&self) -> TargetState {
        self.health.lock().state
    }

    /// Its disk, if it is there and has not left.
    pub(crate) fn disk(&self) -> Option<Arc<dyn Disk>> {
        self.disk.read().clone()
    }

    /// Whether it can be reached, as far as is known.
    fn is_present(&self) -> bool {
        self.disk.read().is_some()
    }

    /// It is no member any more.
    fn leave(&self) {
        self.gone.store(true, Ordering::SeqCst);
        let disk = self.disk.write().take();
        drop(disk);
    }

    /// See [`TargetSet::failed`].
    fn failed(&self, clock: &dyn Clock, error: &io::Error) {
        let full = is_full(error);
        let mut health = self.health.lock();
        // One that failed is found to work again by a probe, not by a lack of room.
        let state = if full && health.state != TargetState::Failed { TargetState::Full } else { TargetState::Failed };
        if health.state != state {
            tracing::error!(target_name = %self.name, %error, ?state, "a target failed");
        }
        health.state = state;
        health.failed_at_ms = clock.now_ms();
        if !full && health.down_since_ns.is_none() {
            health.down_since_ns = Some(clock.monotonic_ns());
        }
        health.last_error = Some(error.to_string());
    }

    fn is_draining(&self) -> bool {
        self.draining.load(Ordering::SeqCst) || self.being_removed.load(Ordering::SeqCst)
    }
}

impl TargetSet {
    fn new(
        targets: Vec<Target>,
        silence: Arc<Silence>,
        newest: Membership,
        clock: Arc<dyn Clock>,
        config: &LogConfig,
    ) -> Self {
        let this = Self {
            deployment: newest.deployment,
            targets: RwLock::new(targets.into_iter().map(Arc::new).collect()),
            change_turn: tokio::sync::Mutex::default(),
            operator_turn: tokio::sync::Mutex::default(),
            placing: RwLock::default(),
            opened_ns: clock.monotonic_ns(),
            roster: Mutex::new(Roster {
                geometry: newest.geometry,
                epoch: newest.epoch,
                written_epoch: newest.epoch,
                settled_epoch: 0,
                members: newest.members,
                lost: newest.lost,
                unfinished: None,
            }),
            clock,
            reprobe_ms: config.reprobe_ms,
            parity: config.geometry.parity().max(newest.geometry.parity()),
            gained: AtomicU64::new(0),
            silence,
        };
        this.mark_draining();
        this
    }

    /// Grows with each target that takes writes and did not before: what was opened without it could be opened with it now.
    pub(crate) fn gained(&self) -> u64 {
        self.gained.load(Ordering::SeqCst)
    }

    fn gain(&self) {
        self.gained.fetch_add(1, Ordering::SeqCst);
    }

    /// The target at a place in the list.
    pub(crate) fn at(&self, number: usize) -> Arc<Target> {
        Arc::clone(&self.targets.read()[number])
    }

    /// All targets that are not gone, each with its place.
    pub(crate) fn all(&self) -> Vec<(usize, Arc<Target>)> {
        let targets = self.targets.read();
        let there = targets.iter().enumerate().filter(|(_, target)| !target.gone.load(Ordering::SeqCst));
        there.map(|(number, target)| (number, Arc::clone(target))).collect()
    }

    /// The place of the target `id` in the list, if it is present.
    pub(crate) fn find(&self, id: TargetId) -> Option<usize> {
        if id == TargetId::NONE {
            return None;
        }
        self.targets.read().iter().position(|target| target.id == id && target.is_present())
    }

    /// The target `id`, if it is present.
    pub(crate) fn present(&self, id: TargetId) -> Option<Arc<Target>> {
        self.find(id).map(|number| self.at(number))
    }

    /// The disk of the present target `id`.
    pub(crate) fn disk(&self, id: TargetId) -> Option<Arc<dyn Disk>> {
        self.present(id)?.disk()
    }

    /// Waits until the target `id` may remove one more file, if it is there.
    pub(crate) async fn removal_turn(&self, id: TargetId) -> Option<OwnedSemaphorePermit> {
        let target = self.present(id)?;
        Some(Arc::clone(&target.removals).acquire_owned().await.expect("the semaphore is never closed"))
    }

    /// Whether `id` belongs to the deployment.
    pub(crate) fn is_member(&self, id: TargetId) -> bool {
        self.roster.lock().members.iter().any(|member| member.id == id)
    }

    /// How many targets left of whose shards some may stand nowhere else, as far as is known.
    pub(crate) fn lost(&self) -> usize {
        self.roster.lock().lost.as_ref().map_or(0, BTreeSet::len)
    }

    /// Whether a target left, and nothing that lives has a shard there that stands nowhere else.
    pub(crate) fn is_missed_by_none(&self, id: TargetId) -> bool {
        let roster = self.roster.lock();
        let is_member = roster.members.iter().any(|member| member.id == id);
        id != TargetId::NONE && !is_member && roster.lost.as_ref().is_some_and(|lost| !lost.contains(&id))
    }

    /// Held by an operator's change from the look at what can be done until it is: what one change leaves is what the next one finds.
    pub(crate) async fn operator_turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.operator_turn.lock().await
    }

    /// Has the target `id` count as one that leaves, if it is there: what is found to lie on it afterwards is all that ever will, but for what is written to a segment
    /// that is open.
    pub(crate) fn begin_removal(&self, id: TargetId) -> Option<Removal> {
        let target = self.present(id)?;
        let _nobody_places = self.placing.write();
        target.being_removed.store(true, Ordering::SeqCst);
        Some(Removal(target))
    }

    /// As long as it is held, no target is marked as one that leaves: who looks for such marks, and then lets a segment name targets that have none, is seen
    /// by whoever looks after they were marked.
    pub(crate) fn placing(&self) -> RwLockReadGuard<'_, ()> {
        self.placing.read()
    }

    /// Members of the deployment that no given target is.
    pub(crate) fn missing_members(&self) -> Vec<TargetId> {
        let members: Vec<TargetId> = self.roster.lock().members.iter().map(|member| member.id).collect();
        members.into_iter().filter(|id| self.find(*id).is_none()).collect()
    }

    /// Whether a target is absent or failed, so that what lies on it can not be read for now.
    pub(crate) fn lacks_some(&self) -> bool {
        let is_away = |target: &Target| matches!(target.state(), TargetState::Absent | TargetState::Failed);
        !self.missing_members().is_empty() || self.all().iter().any(|(_, target)| is_away(target))
    }

    /// The epoch of the list of members.
    pub(crate) fn epoch(&self) -> u64 {
        self.roster.lock().epoch
    }

    /// The highest epoch that a list on any target has.
    pub(crate) fn written_epoch(&self) -> u64 {
        self.roster.lock().written_epoch
    }

    /// Whatever a member comes back as: it has a list of this epoch or a later one, or is known to be stale.
    pub(crate) fn settled_epoch(&self) -> u64 {
        self.roster.lock().settled_epoch
    }

    /// Most targets that may be damaged at a time: absent, or old images of themselves.
    pub(crate) fn parity(&self) -> usize {
        self.parity
    }

    /// The member that is to take the shards of `id`, if there is one.
    pub(crate) fn replacement(&self, id: TargetId) -> Option<TargetId> {
        if id == TargetId::NONE {
            return None;
        }
        self.roster.lock().members.iter().find(|member| member.replaces == id).map(|member| member.id)
    }

    /// The failure domain of a member, as far as it is known.
    pub(crate) fn failure_domain(&self, id: TargetId) -> Option<String> {
        if let Some(target) = self.present(id) {
            return Some(target.failure_domain.clone());
        }
        self.roster.lock().members.iter().find(|member| member.id == id).map(|member| member.failure_domain.clone())
    }

    /// What can be expected of the target `id`.
    pub(crate) fn standing(&self, id: TargetId) -> Standing {
        let (is_member, given_up) = {
            let roster = self.roster.lock();
            let member = roster.members.iter().find(|member| member.id == id);
            let is_replaced = || roster.members.iter().any(|member| member.replaces == id);
            (member.is_some(), member.is_some_and(|member| member.draining || is_replaced()))
        };
        if !is_member {
            return Standing::Gone;
        }
        let Some(target) = self.present(id) else { return Standing::Down { since_ns: self.opened_ns, given_up } };
        let health = target.health.lock();
        match health.down_since_ns {
            Some(since_ns) => Standing::Down { since_ns, given_up },
            None if target.is_draining() => Standing::Leaving,
            None => Standing::Here,
        }
    }

    /// Whether no more is to be written to the target at this place.
    pub(crate) fn is_leaving(&self, number: usize) -> bool {
        let targets = self.targets.read();
        targets[number].is_draining() || targets[number].gone.load(Ordering::SeqCst)
    }

    /// Notes that a write, sync or creation failed, or that the target does not answer.
    pub(crate) fn failed(&self, number: usize, error: &io::Error) {
        self.at(number).failed(&*self.clock, error);
    }

    /// The targets that are not gone, each with its place and whether it leaves: all of one moment, so that one that leaves is never told without the
    /// one that came in its stead.
    fn all_at_once(&self) -> Vec<(usize, Arc<Target>, bool)> {
        let _nobody_leaves = self.placing();
        let with_mark = |(number, target): (usize, Arc<Target>)| {
            let is_draining = target.is_draining();
            (number, target, is_draining)
        };
        self.all().into_iter().map(with_mark).collect()
    }

    /// The places of the targets that stay, all of one moment.
    pub(crate) fn staying(&self) -> Vec<usize> {
        self.all_at_once().into_iter().filter(|(.., leaves)| !leaves).map(|(number, ..)| number).collect()
    }

    /// Asks every target how much room it has; `wanted_bytes` is what it must have to be a candidate. Whether it leaves is what it was when
    /// the first one was asked: whoever writes to a candidate looks again.
    pub(crate) async fn candidates(&self, wanted_bytes: u64) -> Candidates {
        let all = self.all_at_once();
        let ask = |(number, target, leaves): &(usize, Arc<Target>, bool)| {
            self.candidate(*number, Arc::clone(target), *leaves, wanted_bytes)
        };
        let asked = join_all(all.iter().map(ask)).await;
        let mut found = Candidates::default();
        for asked in asked.into_iter().flatten() {
            match asked {
                Ok(candidate) => found.with_room.push(candidate),
                Err(number) => found.full.push(number),
            }
        }
        found
    }

    /// A candidate, or the place of a target that lacks nothing but room; nothing if it can not be one, as when it leaves. What the target's state
    /// says is no answer: others ask at the same time, for more room or for less.
    async fn candidate(
        &self,
        number: usize,
        target: Arc<Target>,
        leaves: bool,
        wanted_bytes: u64,
    ) -> Option<Result<Candidate, usize>> {
        let space = self.room(number).await?;
        let fits = space.available_bytes >= wanted_bytes;
        {
            let mut health = target.health.lock();
            if health.state == TargetState::Failed {
                return None;
            }
            health.state = if fits { TargetState::Online } else { TargetState::Full };
        }
        let candidate = || Candidate {
            target: number,
            failure_domain: target.failure_domain.clone(),
            available_bytes: space.available_bytes,
        };
        (!leaves).then(|| if fits { Ok(candidate()) } else { Err(number) })
    }

    /// The room on a target that is there and takes writes; one that failed is probed, if it is time. Nothing, too, if it does not answer: it is not asked again before it has.
    pub(crate) async fn room(&self, number: usize) -> Option<Space> {
        let target = self.at(number);
        let disk = target.disk()?;
        if target.is_silent() {
            return None;
        }
        if target.state() == TargetState::Failed && !timeout(ANSWER, self.probe(&target, &disk)).await.unwrap_or(false)
        {
            return None;
        }
        let space = match target.in_time(ANSWER, disk.space()).await {
            Ok(space) => space,
            Err(error) if is_overdue(&error) => return None,
            Err(error) => {
                self.failed(number, &error);
                return None;
            }
        };
        let mut health = target.health.lock();
        if health.state == TargetState::Failed {
            return None;
        }
        health.available_bytes = space.available_bytes;
        health.total_bytes = space.total_bytes;
        Some(space)
    }

    /// Whether what answers under a target's name is the target, and no older image of it.
    ///
    /// # Errors
    /// Any: it is not, or can not be asked.
    async fn recognise(&self, target: &Target, disk: &Arc<dyn Disk>) -> io::Result<()> {
        let found = match disk.read_file(MEMBERSHIP_FILE, MEMBERSHIP_BYTES_MAX).await {
            Ok(bytes) => Membership::decode(&bytes).map_err(|why| format!("its gabion.json can not be read: {why}")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err("its gabion.json is gone: is it mounted?".to_owned())
            }
            Err(error) => return Err(error),
        };
        let found = found.map_err(io::Error::other)?;
        if found.target != target.id || found.deployment != self.deployment {
            return Err(io::Error::other(format!(
                "it is target {} of deployment {} now",
                found.target, found.deployment
            )));
        }
        let mut own = target.own.lock();
        if found.epoch < own.epoch {
            own.is_behind = true;
            own.was_behind = true;
            return Err(io::Error::other(format!(
                "it came back as an older image of itself (its list of members has epoch {}, it had {}): it is left alone until the next start",
                found.epoch, own.epoch
            )));
        }
        if own.is_behind {
            return Err(io::Error::other("it is an older image of itself, and is left alone until the next start"));
        }
        Ok(())
    }

    /// Whether a failed target works again: asked at most every `reprobe_ms`.
    async fn probe(&self, target: &Target, disk: &Arc<dyn Disk>) -> bool {
        let now_ms = self.clock.now_ms();
        {
            let mut health = target.health.lock();
            // A clock that was set back must not keep the target out for ever.
            if now_ms.abs_diff(health.failed_at_ms) < self.reprobe_ms {
                return false;
            }
            health.failed_at_ms = now_ms;
        }
        let outcome = match self.recognise(target, disk).await {
            Ok(()) => disk.write_file(PROBE_FILE, Bytes::from_static(PROBE_TEXT)).await,
            Err(error) => Err(error),
        };
        let mut health = target.health.lock();
        match outcome {
            Ok(()) => {
                tracing::warn!(target_name = %target.name, "a failed target takes writes again");
                health.state = TargetState::Online;
                health.down_since_ns = None;
                self.gain();
                true
            }
            Err(error) => {
                health.last_error = Some(error.to_string());
                false
            }
        }
    }

    /// How all targets do; `shards` says how many shards of sealed segments a target holds, and how many of others.
    pub(crate) fn status(&self, shards: impl Fn(TargetId) -> (usize, usize)) -> Vec<TargetStatus> {
        let members = self.roster.lock().members.clone();
        let status = |(_, target): (usize, Arc<Target>)| {
            let (health, own) = (target.health.lock(), *target.own.lock());
            let member = members.iter().find(|member| member.id == target.id);
            let (sealed_shards, open_shards) = shards(target.id);
            TargetStatus {
                name: target.name.clone(),
                id: target.id,
                failure_domain: target.failure_domain.clone(),
                state: health.state,
                draining: target.is_draining(),
                replaces: member.map(|member| member.replaces).filter(|id| *id != TargetId::NONE),
                silent: health.waits > 0,
                stale: own.was_behind,
                set_aside_files: own.set_aside_files,
                shards: sealed_shards,
                open_shards,
                available_bytes: health.available_bytes,
                total_bytes: health.total_bytes,
                last_error: health.last_error.clone(),
            }
        };
        self.all().into_iter().map(status).collect()
    }

    /// Marks those that a list is about to drop: as long as no other one counts, the next start may find it.
    fn mark_dropped(&self, next: &Membership) {
        let _nobody_places = self.placing.write();
        let is_dropped = |target: &Target| self.is_member(target.id) && next.member(target.id).is_none();
        for (_, target) in self.all().iter().filter(|(_, target)| is_dropped(target)) {
            target.draining.store(true, Ordering::SeqCst);
        }
    }

    /// Takes the draining marks of the targets from the list of members, and marks those that left.
    fn mark_draining(&self) {
        let _nobody_places = self.placing.write();
        let members = self.roster.lock().members.clone();
        for target in self.targets.read().iter() {
            let member = members.iter().find(|member| member.id == target.id);
            let drains = member.is_some_and(|member| member.draining);
            if target.draining.swap(drains, Ordering::SeqCst) && !drains && member.is_some() {
                self.gain();
            }
            if target.id != TargetId::NONE && member.is_none() {
                target.leave();
            }
        }
    }
}
