//! What breaks, and when: never more at a time than the geometry must bear.
//!
//! A target that failed in any way, or on which anything was damaged, is *afflicted*, and stays so: nothing says that all of it is
//! whole again. At most `m` targets are; one that gets full is one of them, since new segments do without it, and have less
//! parity until they are repaired. The others lose what was not synced when the power goes out, and get slow. So whatever was acknowledged can be read, and any loss is a bug.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::ErrorKind,
};

use gabion_platform::{Dice, DiskImage, FaultPlan, FaultRates, OneIn};

use crate::{machine::Machine, params::Params, trace::Trace};

/// The state of what is broken.
pub(crate) struct Atlas {
    /// Most targets that may be afflicted.
    afflicted_max: usize,
    afflicted: BTreeSet<usize>,
    offline: BTreeSet<usize>,
    full: BTreeSet<usize>,
    /// Targets on which operations fail by chance.
    noisy: BTreeSet<usize>,
    /// What a target held at some time.
    images: BTreeMap<usize, DiskImage>,
}

impl Atlas {
    pub(crate) fn new(params: &Params) -> Self {
        Self {
            afflicted_max: if params.targets_fail { params.geometry.parity() } else { 0 },
            afflicted: BTreeSet::new(),
            offline: BTreeSet::new(),
            full: BTreeSet::new(),
            noisy: BTreeSet::new(),
            images: BTreeMap::new(),
        }
    }

    /// Whether requests that change something may fail.
    pub(crate) fn writes_may_fail(&self) -> bool {
        !self.afflicted.is_empty() || !self.full.is_empty()
    }

    /// Whether a target is damaged, or may be.
    pub(crate) fn is_afflicted(&self, target: usize) -> bool {
        self.afflicted.contains(&target)
    }

    /// Whether operations fail by chance, so that opening may fail too.
    pub(crate) fn is_noisy(&self) -> bool {
        !self.noisy.is_empty()
    }

    /// Something may break, or come back, while the process runs.
    pub(crate) fn strike(&mut self, machine: &Machine, dice: &mut Dice, trace: &mut Trace) {
        let any = dice.below(machine.disks.len() as u64) as usize;
        match dice.below(12) {
            0 => self.slow(any, machine, dice, trace),
            1 => {
                if let Some(target) = self.victim(any, dice) {
                    self.fill(target, machine, dice, trace);
                }
            }
            2 => self.relieve(machine, trace),
            3 => {
                trace.say(format!("an image of target {any} is taken"));
                self.images.insert(any, machine.disks[any].image());
            }
            4..=9 => {
                if let Some(target) = self.victim(any, dice) {
                    self.break_target(target, machine, dice, trace);
                }
            }
            _ => {}
        }
    }

    /// Something may break, or come back, while no process runs.
    pub(crate) fn strike_between_lives(&mut self, machine: &mut Machine, dice: &mut Dice, trace: &mut Trace) {
        self.quiet(machine, dice, trace);
        let any = dice.below(machine.disks.len() as u64) as usize;
        let kind = dice.below(8);
        let Some(target) = (kind < 4).then(|| self.victim(any, dice)).flatten() else { return };
        match kind {
            0 => {
                trace.say(format!("target {target} is not mounted"));
                machine.mounted[target] = false;
            }
            1 => {
                trace.say(format!("target {target} is mounted"));
                machine.mounted[target] = true;
            }
            2 => {
                let Some(image) = self.images.get(&target) else { return };
                trace.say(format!("target {target} comes back stale"));
                machine.disks[target].restore(image);
            }
            // An empty directory that is no member is refused, as it should be.
            _ if dice.below(3) == 0 && !machine.is_in_doubt(target) => {
                trace.say(format!("target {target} is replaced by an empty one"));
                machine.disks[target].restore(&DiskImage::default());
            }
            _ => {}
        }
        machine.restart();
    }

    /// Ends what fails by chance, so that a process can start.
    pub(crate) fn silence(&mut self, machine: &Machine, trace: &mut Trace) {
        trace.say("what failed by chance works".to_owned());
        for &target in &self.noisy {
            machine.disks[target].set_rates(FaultRates::default());
            let none = FaultPlan::new().fail_reads(0, ErrorKind::Other).fail_writes(0, ErrorKind::Other);
            machine.disks[target].inject(none.fail_syncs(0, ErrorKind::Other));
        }
        self.noisy.clear();
    }

    /// Ends all that can end by itself.
    pub(crate) fn end(&mut self, machine: &mut Machine, trace: &mut Trace) {
        self.silence(machine, trace);
        self.relieve(machine, trace);
        for target in std::mem::take(&mut self.offline) {
            machine.disks[target].offline(false);
        }
        for disk in &machine.disks {
            disk.set_rates(FaultRates::default());
        }
        machine.mounted.fill(true);
    }

    /// A target that may break: one that is afflicted, or `any` if there may be one more.
    fn victim(&mut self, any: usize, dice: &mut Dice) -> Option<usize> {
        if self.afflicted.len() < self.afflicted_max && (self.afflicted.is_empty() || dice.coin()) {
            self.afflicted.insert(any);
            return Some(any);
        }
        let count = self.afflicted.len() as u64;
        if count == 0 { None } else { self.afflicted.iter().nth(dice.below(count) as usize).copied() }
    }

    fn break_target(&mut self, target: usize, machine: &Machine, dice: &mut Dice, trace: &mut Trace) {
        let disk = &machine.disks[target];
        let kind = dice.below(10);
        trace.say(format!("target {target} breaks ({kind})"));
        let count = 1 + dice.below(20) as u32;
        let often = OneIn(2 + dice.below(30) as u32);
        match kind {
            0 | 1 => {
                let is_offline = !self.offline.remove(&target);
                if is_offline {
                    self.offline.insert(target);
                }
                disk.offline(is_offline);
            }
            2 => disk.fail_reads(count, ErrorKind::Other),
            3 => disk.fail_writes(count, ErrorKind::Other),
            4 => disk.fail_syncs(count, ErrorKind::Other),
            5 => disk.rot(count),
            6 => disk.set_rates(FaultRates { read_fails: often, short_reads: often, ..FaultRates::default() }),
            7 => disk.set_rates(FaultRates { write_fails: often, sync_fails: often, ..FaultRates::default() }),
            8 => disk.set_rates(FaultRates { misdirected_writes: often, ..FaultRates::default() }),
            9 if dice.coin() => disk.set_rates(FaultRates { hangs: often, ..FaultRates::default() }),
            _ => disk.set_rates(FaultRates::default()),
        }
        if matches!(kind, 2..=4 | 6..=8) {
            self.noisy.insert(target);
        }
    }

    fn slow(&mut self, target: usize, machine: &Machine, dice: &mut Dice, trace: &mut Trace) {
        let slow_turns_max = if dice.coin() { 5 + dice.below(200) as u32 } else { 0 };
        let slow_ms_max = if dice.coin() { 1 + dice.below(3) as u32 } else { 0 };
        // It replaces the rates of a noisy target: those stay noisy.
        let is_slowed = |number: &usize| !self.noisy.contains(number);
        // A network or an enclosure is slow, or a drive.
        let targets = if dice.coin() { 0..machine.disks.len() } else { target..target + 1 };
        for target in targets.filter(is_slowed) {
            trace.say(format!("target {target} waits up to {slow_turns_max} turns and {slow_ms_max} ms"));
            machine.disks[target].set_rates(FaultRates { slow_turns_max, slow_ms_max, ..FaultRates::default() });
        }
    }

    fn fill(&mut self, target: usize, machine: &Machine, dice: &mut Dice, trace: &mut Trace) {
        let disk = &machine.disks[target];
        let room = dice.below(4 << 20);
        trace.say(format!("target {target} has {room} bytes left"));
        disk.full_at(disk.used_bytes() + room);
        self.full.insert(target);
    }

    fn relieve(&mut self, machine: &Machine, trace: &mut Trace) {
        for target in std::mem::take(&mut self.full) {
            trace.say(format!("target {target} has room again"));
            machine.disks[target].full_at(1 << 40);
        }
    }

    /// Some of what failed by chance may work again.
    fn quiet(&mut self, machine: &Machine, dice: &mut Dice, trace: &mut Trace) {
        if self.is_noisy() && dice.coin() {
            self.silence(machine, trace);
        }
    }
}
