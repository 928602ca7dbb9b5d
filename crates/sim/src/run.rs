//! A run: lives of a process, one after another, until its operations are used up.

use std::{
    cell::{Cell, RefCell},
    fmt,
};

use gabion_metadata::rows::may_be_rebuilt_as;
use gabion_platform::Dice;
use gabion_store::TargetState;
use tokio::runtime::{Builder, Runtime};

use crate::{
    atlas::Atlas,
    client::World,
    index::IndexRow,
    life::{End, Life, Plan},
    machine::Machine,
    params::{Params, pick},
};

thread_local! {
    /// What panicked on this thread: a run has one of its own.
    static PANICS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    static IS_WATCHED: Cell<bool> = const { Cell::new(false) };
}

/// What a run came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Depends on every step: two runs with the same one went the same way.
    pub hash: u64,
    /// Operations of clients.
    pub ops: u64,
    /// Those of them that were refused.
    pub refused: u64,
    /// Lives of the process.
    pub lives: u64,
    /// Lives that ended in the middle of something.
    pub cuts: u64,
    /// Steps of all disks.
    pub steps: u64,
    /// Stripes whose records waited for others, in lives that were not cut off.
    pub held: u64,
}

/// A run in which something was as it must not be.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The run.
    pub params: Params,
    /// What was wrong.
    pub what: String,
    /// The last lines of its trace.
    pub trace: Vec<String>,
}

/// Runs `params` to its end; a loud one prints its trace.
///
/// # Errors
/// The first thing that must not be.
pub fn run(params: &Params, is_loud: bool) -> Result<Report, Box<Failure>> {
    watch_panics();
    PANICS.with_borrow_mut(Vec::clear);
    let mut dice = Dice::new(params.seed ^ 0x5157_0b1e);
    let world = World::new(params, Dice::new(dice.word()), is_loud);
    let machine = Machine::new(params, &mut dice);
    let mut run =
        Run { params, atlas: Atlas::new(params), dice, world: RefCell::new(world), machine, lives: 0, cuts: 0 };
    run.world.get_mut().trace.say(format!("{params:?}"));
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run.all())).unwrap_or(Ok(()));
    let panics = PANICS.with_borrow(|panics| panics.join("; "));
    let outcome = if panics.is_empty() { outcome } else { Err(format!("panicked: {panics}")) };
    let digest = run.machine.digest();
    let world = run.world.get_mut();
    world.trace.add(digest);
    match outcome {
        Ok(()) => Ok(Report {
            hash: world.trace.hash(),
            ops: world.ops,
            refused: world.refused,
            lives: run.lives,
            cuts: run.cuts,
            steps: run.machine.power.steps(),
            held: world.held,
        }),
        Err(what) => Err(Box::new(Failure { params: params.clone(), what, trace: world.trace.tail() })),
    }
}

struct Run<'a> {
    params: &'a Params,
    atlas: Atlas,
    dice: Dice,
    world: RefCell<World>,
    machine: Machine,
    lives: u64,
    cuts: u64,
}

impl Run<'_> {
    fn all(&mut self) -> Result<(), String> {
        while self.world.get_mut().ops < self.params.ops {
            let plan = self.plan();
            let end = self.live(plan)?;
            self.after(end);
        }
        self.finale()
    }

    fn plan(&mut self) -> Plan {
        let left = self.params.ops - self.world.get_mut().ops;
        let dice = &mut self.dice;
        let cut_while_opening = (dice.below(4) == 0).then(|| dice.below(600));
        let mut phases: Vec<(u64, Option<u64>)> =
            (0..1 + dice.below(3)).map(|_| (left.min(5 + dice.below(60)), None)).collect();
        if dice.below(3) > 0
            && let Some((ops, cut_after)) = phases.last_mut()
        {
            *cut_after = Some(dice.below(*ops * 40));
        }
        Plan { cut_while_opening, phases, is_shut_down: dice.coin() }
    }

    fn live(&mut self, plan: Plan) -> Result<End, String> {
        self.lives += 1;
        self.world.get_mut().trace.say(format!("life {}: {plan:?}", self.lives));
        let runtime = runtime()?;
        let life = Life { machine: &self.machine, world: &self.world, params: self.params };
        let end = runtime.block_on(life.live(plan, &mut self.atlas, &mut self.dice));
        // Whatever was under way is dropped here, as with a process that dies.
        drop(runtime);
        PANICS.with_borrow(|panics| if panics.is_empty() { end } else { Err("a task panicked".to_owned()) })
    }

    /// What happens between two lives.
    fn after(&mut self, end: End) {
        let digest = self.machine.digest();
        let world = self.world.get_mut();
        world.trace.add(digest);
        let now = world.tick();
        world.registers.iter_mut().for_each(|register| register.cut(now));
        world.uploads.iter_mut().for_each(|upload| upload.is_busy = false);
        self.cuts += u64::from(end == End::Cut);
        let dice = &mut self.dice;
        let loses_power = dice.below(3) > 0;
        world.trace.say(format!("ended: {end:?}, power lost: {loses_power}"));
        if loses_power {
            if self.params.is_relaxed {
                world.lost_power();
            }
            self.machine.lose_power(dice);
        } else {
            self.machine.restart();
        }
        if world.has_buckets {
            self.atlas.strike_between_lives(&mut self.machine, dice, &mut world.trace);
        }
        let state_dir = &self.machine.state_dir;
        let fate = pick(dice, &["", "", "", "", "lost", "damaged", "copied", "copied", "restored", "clock"]);
        match fate {
            "lost" => state_dir.lose(),
            "damaged" => state_dir.damage(),
            "copied" => state_dir.back_up(),
            "restored" => drop(state_dir.restore_backup()),
            "clock" => self.machine.clock.step_wall(dice.below(20_000) as i64 - 10_000),
            _ => {}
        }
        if !fate.is_empty() {
            world.trace.say(format!("the state directory: {fate}"));
        }
    }

    /// All is well at last: everything is there, also after the index is made anew.
    fn finale(&mut self) -> Result<(), String> {
        self.world.get_mut().trace.say("finale".to_owned());
        self.atlas.end(&mut self.machine, &mut self.world.get_mut().trace);
        let quiet = Plan { cut_while_opening: None, phases: Vec::new(), is_shut_down: true };
        self.live(quiet.clone())?;
        self.machine.restart();
        let before = self.machine.state_dir.rows();
        let runtime = runtime()?;
        let rebuilt = runtime.block_on(async {
            self.machine.clock.begin();
            let rebuilt = self.machine.rebuild().await;
            self.machine.clock.freeze();
            rebuilt
        });
        drop(runtime);
        rebuilt.map_err(|error| format!("the index can not be rebuilt: {error}"))?;
        let after = self.machine.state_dir.rows();
        if let Some(difference) = difference(&before, &after) {
            return Err(format!("the index that was rebuilt differs: {difference}"));
        }
        self.machine.restart();
        self.live(quiet)?;
        self.heal()
    }

    /// What was damaged, missing or left out on the way is whole again, when it has been read and repaired.
    fn heal(&mut self) -> Result<(), String> {
        self.machine.restart();
        let runtime = runtime()?;
        let healed = runtime.block_on(async {
            self.machine.clock.begin();
            let healed = healed(&self.machine).await;
            self.machine.clock.freeze();
            healed
        });
        drop(runtime);
        healed.map_err(|what| format!("it does not heal: {what}"))
    }
}

/// Reads and repairs everything, twice.
async fn healed(machine: &Machine) -> Result<(), String> {
    let (store, _) = machine.open().await.map_err(|error| error.to_string())?;
    let mut bad_shards = 0;
    for _ in 0..2 {
        bad_shards = store.scrub_now().await.map_err(|error| format!("a scrub: {error}"))?.bad_shards;
        store.repair_now().await.map_err(|error| format!("a repair: {error}"))?;
    }
    let log = store.status().log;
    store.shutdown().await;
    drop(store);
    let has_all =
        log.missing_members.is_empty() && log.targets.iter().all(|target| target.state == TargetState::Online);
    let lacking: usize = log.redundancy.iter().skip(1).sum();
    // Without a target there may be too few for all shards of a segment.
    if has_all && (lacking > 0 || bad_shards > 0) {
        return Err(format!(
            "{bad_shards} bad shards in the second scrub, segments by shards that they lack: {:?}",
            log.redundancy
        ));
    }
    Ok(())
}

fn runtime() -> Result<Runtime, String> {
    Builder::new_current_thread().enable_time().start_paused(true).build().map_err(|error| error.to_string())
}

/// The first row that a rebuilt index has otherwise than the one before.
fn difference(before: &[IndexRow], after: &[IndexRow]) -> Option<String> {
    let is_same = |present: &IndexRow, rebuilt: &IndexRow| {
        (present.0, &present.1) == (rebuilt.0, &rebuilt.1) && may_be_rebuilt_as(present.0, &present.2, &rebuilt.2)
    };
    if before.len() == after.len() && before.iter().zip(after).all(|(present, rebuilt)| is_same(present, rebuilt)) {
        return None;
    }
    let only_before = before.iter().find(|present| !after.iter().any(|rebuilt| is_same(present, rebuilt)));
    let only_after = after.iter().find(|rebuilt| !before.iter().any(|present| is_same(present, rebuilt)));
    Some(format!("before {only_before:?}, after {only_after:?}"))
}

/// Keeps what panics say, for the report of the run on whose thread they are.
fn watch_panics() {
    if IS_WATCHED.replace(true) {
        return;
    }
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let others = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if IS_WATCHED.get() {
                PANICS.with_borrow_mut(|panics| panics.push(info.to_string()));
            } else {
                others(info);
            }
        }));
    });
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.trace {
            writeln!(f, "{line}")?;
        }
        writeln!(f, "{}", self.what)?;
        write!(f, "again: cargo xtask sim {}", self.params)
    }
}
