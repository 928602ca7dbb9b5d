//! The simulated machine: disks on one power supply, a state directory, a clock.

use std::sync::Arc;

use gabion_platform::{Dice, Disk, SeededEntropy, SimDisk, SimPower};
use gabion_segment::LogTarget;
use gabion_store::{Env, OpenReport, Silent, Store, StoreConfig, StoreError};

use crate::{clock::SimClock, index::StateDir, params::Params};

/// The machine.
pub(crate) struct Machine {
    pub(crate) disks: Vec<SimDisk>,
    /// Whether the directory of each target is there.
    pub(crate) mounted: Vec<bool>,
    pub(crate) power: SimPower,
    pub(crate) state_dir: StateDir,
    pub(crate) clock: Arc<SimClock>,
    entropy: Arc<SeededEntropy>,
    pub(crate) config: StoreConfig,
}

impl Machine {
    pub(crate) fn new(params: &Params, dice: &mut Dice) -> Self {
        let power = SimPower::new();
        Self {
            disks: (0..params.targets).map(|_| SimDisk::powered(dice.word(), &power)).collect(),
            mounted: vec![true; params.targets],
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

    fn targets(&self) -> Vec<LogTarget> {
        let target = |(number, disk): (usize, &SimDisk)| LogTarget {
            name: format!("target {number}"),
            disk: self.mounted[number].then(|| Arc::new(disk.clone()) as Arc<dyn Disk>),
            failure_domain: format!("domain {number}"),
        };
        self.disks.iter().enumerate().map(target).collect()
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
