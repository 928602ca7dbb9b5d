//! The simulated machine: disks on one power supply, a state directory, a clock.

use std::{cell::RefCell, collections::BTreeSet, sync::Arc};

use gabion_platform::{Dice, Disk, SeededEntropy, SimDisk, SimPower};
use gabion_segment::LogTarget;
use gabion_store::{Env, OpenReport, Silent, Store, StoreConfig, StoreError};

use crate::{clock::SimClock, index::StateDir, params::Params};

/// A target that has it is one, or was.
const MEMBERSHIP_FILE: &str = "gabion.json";

/// The machine.
pub(crate) struct Machine {
    pub(crate) disks: Vec<SimDisk>,
    /// Whether the directory of each target is there.
    pub(crate) mounted: Vec<bool>,
    pub(crate) power: SimPower,
    pub(crate) state_dir: StateDir,
    pub(crate) clock: Arc<SimClock>,
    entropy: Arc<SeededEntropy>,
    /// Targets that the deployment is made of; those behind them are spare until they join.
    founders: usize,
    /// Spare targets that joined, or were to.
    taken: RefCell<BTreeSet<usize>>,
    /// Targets that were removed, and taken off the command line.
    left: RefCell<BTreeSet<usize>>,
    /// Targets of which it is not known whether they are members still.
    in_doubt: RefCell<BTreeSet<usize>>,
    /// Targets that were to be removed at some time.
    unwanted: RefCell<BTreeSet<usize>>,
    pub(crate) config: StoreConfig,
}

impl Machine {
    pub(crate) fn new(params: &Params, dice: &mut Dice) -> Self {
        let power = SimPower::new();
        Self {
            disks: (0..params.targets + params.spare_targets).map(|_| SimDisk::powered(dice.word(), &power)).collect(),
            mounted: vec![true; params.targets + params.spare_targets],
            founders: params.targets,
            taken: RefCell::default(),
            left: RefCell::default(),
            in_doubt: RefCell::default(),
            unwanted: RefCell::default(),
            power,
            state_dir: StateDir::default(),
            clock: Arc::default(),
            entropy: Arc::new(SeededEntropy::new(dice.word())),
            config: params.config(),
        }
    }

    fn env(&self) -> Env {
        Env { clock: Arc::clone(&self.clock) as _, entropy: Arc::clone(&self.entropy) as _ }
    }

    /// A target as it is given on the command line.
    pub(crate) fn target(&self, number: usize) -> LogTarget {
        LogTarget {
            name: format!("target {number}"),
            disk: self.mounted[number].then(|| Arc::new(self.disks[number].clone()) as Arc<dyn Disk>),
            failure_domain: format!("domain {number}"),
        }
    }

    /// Whether a target is on the command line: those that joined are, and those that may have.
    pub(crate) fn is_given(&self, number: usize) -> bool {
        let may_have_joined = || self.disks[number].paths().iter().any(|path| path == MEMBERSHIP_FILE);
        !self.left.borrow().contains(&number) && (number < self.founders || may_have_joined())
    }

    /// Takes a target that was never used. One that was emptied after it joined is no spare: its member is lost.
    pub(crate) fn take_spare(&self) -> Option<usize> {
        let spare = (self.founders..self.disks.len()).find(|disk| !self.taken.borrow().contains(disk))?;
        self.taken.borrow_mut().insert(spare);
        Some(spare).filter(|spare| self.mounted[*spare])
    }

    /// A target is being removed; says whether it was to be before.
    pub(crate) fn doubt(&self, number: usize) -> bool {
        self.in_doubt.borrow_mut().insert(number);
        !self.unwanted.borrow_mut().insert(number)
    }

    /// That was refused, and was never asked for before.
    pub(crate) fn doubt_no_more(&self, number: usize) {
        self.in_doubt.borrow_mut().remove(&number);
        self.unwanted.borrow_mut().remove(&number);
    }

    /// The target that a refused start is about, if it was to be removed: it took effect, though it seemed not to, and nothing on the target tells
    /// any more. The operator reads the sentence and takes it off the command line.
    pub(crate) fn told_off(&self, refusal: &str) -> Option<usize> {
        let is_it = |number: &usize| refusal.contains(&format!("{} ", self.target(*number).name));
        let number = self.unwanted.borrow().iter().copied().filter(|number| self.is_given(*number)).find(is_it)?;
        refusal.contains("it is no member").then_some(number)
    }

    /// Whether it is unknown if a target is a member.
    pub(crate) fn is_in_doubt(&self, number: usize) -> bool {
        self.in_doubt.borrow().contains(&number)
    }

    /// It is known which targets are members.
    pub(crate) fn is_known(&self) {
        self.in_doubt.borrow_mut().clear();
    }

    /// A target was removed, and is taken off the command line.
    pub(crate) fn has_left(&self, number: usize) {
        self.left.borrow_mut().insert(number);
    }

    fn targets(&self) -> Vec<LogTarget> {
        (0..self.disks.len()).filter(|number| self.is_given(*number)).map(|number| self.target(number)).collect()
    }

    /// The process starts.
    pub(crate) async fn open(&self) -> Result<(Store, OpenReport), StoreError> {
        let index = Box::new(self.state_dir.clone());
        Store::open(self.config.clone(), self.targets(), index, self.env(), Arc::new(Silent)).await
    }

    /// The index is thrown away and made anew from the segments.
    pub(crate) async fn rebuild(&self) -> Result<(), StoreError> {
        let index = Box::new(self.state_dir.clone());
        Store::rebuild_index(self.config.clone(), self.targets(), index, self.env(), Arc::new(Silent)).await.map(drop)
    }

    /// The power is out, and comes back.
    pub(crate) fn lose_power(&mut self, dice: &mut Dice) {
        self.disks.iter().for_each(|disk| disk.crash(dice.word()));
        let commits = self.state_dir.unpersisted() as u64;
        self.state_dir.crash(dice.below(commits + 1) as usize);
        self.restart();
    }

    /// The process is dead, the machine is not.
    pub(crate) fn restart(&mut self) {
        self.power.restore();
        for disk in &mut self.disks {
            disk.kill();
            *disk = disk.reopen();
        }
    }

    /// A number that depends on all that was asked of the disks.
    pub(crate) fn digest(&self) -> u64 {
        self.disks.iter().fold(self.power.steps(), |sum, disk| sum.rotate_left(7) ^ disk.digest())
    }
}
