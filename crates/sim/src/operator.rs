//! The operator: changes the targets of the deployment while clients are at work.
//!
//! No more redundancy is given up than the atlas has taken already: as many targets as a segment has shards stay in use, and only
//! what is damaged anyway is removed as lost.

use std::cell::RefCell;

use gabion_platform::Dice;
use gabion_store::{Store, StoreError, TargetMode};
use gabion_types::TargetId;

use crate::{atlas::Atlas, client::World, machine::Machine, params::Params};

/// A member, as the store tells.
struct Member {
    id: TargetId,
    disk: usize,
    is_draining: bool,
}

/// Does one thing, or nothing.
pub(crate) async fn act(
    store: &Store,
    machine: &Machine,
    world: &RefCell<World>,
    atlas: &Atlas,
    params: &Params,
    dice: &mut Dice,
) {
    let members = members(store, machine);
    let staying = members.iter().filter(|member| !member.is_draining).count();
    let is_spared = staying > params.geometry.shards();
    if members.is_empty() {
        return;
    }
    let Member { id, disk, is_draining } = members[dice.below(members.len() as u64) as usize];
    let apply = TargetMode::Apply;
    let kind = dice.below(6);
    let spare = if kind < 2 { machine.take_spare() } else { None };
    let (what, outcome) = match (kind, spare) {
        (0, Some(new)) => (format!("target {new} joins"), store.target_add(machine.target(new), apply).await),
        (1, Some(new)) => {
            let _ = machine.doubt(disk);
            let outcome = store.target_replace(id, machine.target(new), apply).await;
            (format!("target {new} replaces {disk}"), outcome)
        }
        (2 | 3, _) if is_draining => {
            let _ = machine.doubt(disk);
            let outcome = store.target_remove(id, false, apply).await;
            (format!("target {disk} is removed"), outcome)
        }
        (3, _) if is_spared && dice.coin() => {
            let is_old = machine.doubt(disk);
            let outcome = store.target_remove(id, false, apply).await;
            // As mostly: something lies on it.
            if !is_old && matches!(outcome, Err(StoreError::InvalidRequest(_))) {
                machine.doubt_no_more(disk);
            }
            (format!("target {disk} is removed undrained"), outcome)
        }
        (2 | 3, _) if is_spared => (format!("target {disk} is drained"), store.target_drain(id, apply).await),
        (4, _) if is_draining => {
            (format!("target {disk} is not drained any more"), store.target_undrain(id, apply).await)
        }
        (5, _) if is_spared && atlas.is_afflicted(disk) => {
            let _ = machine.doubt(disk);
            let outcome = store.target_remove(id, true, apply).await;
            (format!("target {disk} is removed as lost"), outcome)
        }
        _ => return,
    };
    if outcome.is_ok() {
        look(store, machine);
    }
    let mut world = world.borrow_mut();
    match outcome {
        Ok(_) => world.trace.say(what),
        Err(StoreError::InvalidRequest(why)) => world.trace.say(format!("{what}: refused: {why}")),
        Err(error) => {
            world.trace.say(format!("{what}: {error}"));
            if !world.writes_may_fail && !machine.power.is_out() {
                world.violate(format!("{what}: {error}"));
            }
        }
    }
}

/// Takes off the command line what is no member any more; done after every start and every change. (One that is absent is listed.)
pub(crate) fn look(store: &Store, machine: &Machine) {
    let listed: Vec<String> = store.status().log.targets.into_iter().map(|target| target.name).collect();
    let is_listed = |disk: usize| listed.contains(&machine.target(disk).name);
    (0..machine.disks.len())
        .filter(|disk| machine.is_given(*disk) && !is_listed(*disk))
        .for_each(|disk| machine.has_left(disk));
    machine.is_known();
}

fn members(store: &Store, machine: &Machine) -> Vec<Member> {
    let targets = store.status().log.targets;
    let member = |target: &gabion_store::TargetStatus| {
        let disk = (0..machine.disks.len()).find(|disk| machine.target(*disk).name == target.name)?;
        (target.id != TargetId::NONE).then_some(Member { id: target.id, disk, is_draining: target.draining })
    };
    targets.iter().filter_map(member).collect()
}
