//! The targets of a deployment and how each of them does.

pub(crate) mod membership;
mod open;

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::join_all;
use gabion_platform::{Clock, Disk};
use gabion_types::{DeploymentId, TargetId};
use parking_lot::Mutex;

pub(crate) use open::open_targets;

use crate::placement::Candidate;
use crate::status::{TargetState, TargetStatus};

const PROBE_FILE: &str = "gabion.probe";

/// All targets that were given.
pub(crate) struct TargetSet {
    pub(crate) deployment: DeploymentId,
    pub(crate) targets: Vec<Target>,
    /// Members of the deployment that no given target is.
    pub(crate) missing_members: Vec<TargetId>,
    clock: Arc<dyn Clock>,
    reprobe_ms: u64,
}

/// One target.
pub(crate) struct Target {
    pub(crate) name: String,
    /// `NONE` if it is absent: which member it would be is not known.
    pub(crate) id: TargetId,
    pub(crate) failure_domain: String,
    pub(crate) disk: Option<Arc<dyn Disk>>,
    health: Mutex<Health>,
}

struct Health {
    state: TargetState,
    failed_at_ms: u64,
    available_bytes: u64,
    total_bytes: u64,
    last_error: Option<String>,
}

impl Target {
    pub(crate) fn new(name: String, id: TargetId, failure_domain: String, disk: Option<Arc<dyn Disk>>) -> Self {
        let state = if disk.is_some() { TargetState::Online } else { TargetState::Absent };
        let health = Health { state, failed_at_ms: 0, available_bytes: 0, total_bytes: 0, last_error: None };
        Self { name, id, failure_domain, disk, health: Mutex::new(health) }
    }

    pub(crate) fn state(&self) -> TargetState {
        self.health.lock().state
    }

    fn status(&self) -> TargetStatus {
        let health = self.health.lock();
        TargetStatus {
            name: self.name.clone(),
            id: self.id,
            failure_domain: self.failure_domain.clone(),
            state: health.state,
            available_bytes: health.available_bytes,
            total_bytes: health.total_bytes,
            last_error: health.last_error.clone(),
        }
    }
}

impl TargetSet {
    /// The place of the target `id` in the list, if it is present.
    pub(crate) fn find(&self, id: TargetId) -> Option<usize> {
        if id == TargetId::NONE {
            return None;
        }
        self.targets.iter().position(|target| target.id == id && target.disk.is_some())
    }

    /// The disk of the present target `id`.
    pub(crate) fn disk(&self, id: TargetId) -> Option<&Arc<dyn Disk>> {
        self.targets[self.find(id)?].disk.as_ref()
    }

    /// Notes that a write, sync or creation failed.
    pub(crate) fn failed(&self, target: usize, error: &io::Error) {
        let target = &self.targets[target];
        let full = error.kind() == io::ErrorKind::StorageFull || error.kind() == io::ErrorKind::QuotaExceeded;
        let state = if full { TargetState::Full } else { TargetState::Failed };
        let mut health = target.health.lock();
        if health.state != state {
            tracing::error!(target_name = %target.name, %error, ?state, "a target failed a write");
        }
        health.state = state;
        health.failed_at_ms = self.clock.now_ms();
        health.last_error = Some(error.to_string());
    }

    /// Asks every target that may take writes how much room it has; `wanted_bytes` is what it must have to be a candidate.
    pub(crate) async fn candidates(&self, wanted_bytes: u64) -> Vec<Candidate> {
        let asked = join_all((0..self.targets.len()).map(|target| self.candidate(target, wanted_bytes))).await;
        asked.into_iter().flatten().collect()
    }

    /// The targets that lack nothing but room.
    pub(crate) fn full(&self) -> impl Iterator<Item = usize> {
        let is_full = |(number, target): (usize, &Target)| (target.state() == TargetState::Full).then_some(number);
        self.targets.iter().enumerate().filter_map(is_full)
    }

    async fn candidate(&self, number: usize, wanted_bytes: u64) -> Option<Candidate> {
        let target = &self.targets[number];
        let disk = target.disk.as_ref()?;
        if target.state() == TargetState::Failed && !self.probe(target, disk).await {
            return None;
        }
        let space = match disk.space().await {
            Ok(space) => space,
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
        let fits = space.available_bytes >= wanted_bytes;
        health.state = if fits { TargetState::Online } else { TargetState::Full };
        fits.then(|| Candidate {
            target: number,
            failure_domain: target.failure_domain.clone(),
            available_bytes: space.available_bytes,
        })
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
        let outcome =
            disk.write_file(PROBE_FILE, Bytes::from_static(b"gabion asks whether this target takes writes\n")).await;
        let mut health = target.health.lock();
        match outcome {
            Ok(()) => {
                tracing::warn!(target_name = %target.name, "a failed target takes writes again");
                health.state = TargetState::Online;
                true
            }
            Err(error) => {
                health.last_error = Some(error.to_string());
                false
            }
        }
    }

    pub(crate) fn status(&self) -> Vec<TargetStatus> {
        self.targets.iter().map(Target::status).collect()
    }
}
