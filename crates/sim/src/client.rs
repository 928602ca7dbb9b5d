//! Clients: they ask for things at random, and write down what they were told.

mod buckets;
mod documents;
mod multipart;
mod objects;
mod rewrites;

use std::{
    cell::{RefCell, RefMut},
    collections::BTreeMap,
    future::Future,
    task::Poll,
    time::Duration,
};

use gabion_platform::Dice;
use gabion_store::{Store, StoreError};
use gabion_types::{BucketName, ObjectKey};

use crate::{
    check,
    history::{Call, Register},
    linearize::{Post, Pre},
    machine::Machine,
    params::{Params, pick},
    trace::Trace,
    uploads::Upload,
    values::{Value, Values},
};

/// Buckets that keys lie in, and that stay.
const BUCKETS: [&str; 2] = ["bucket-a", "bucket-b"];
/// One that comes and goes.
const CHANGING_BUCKET: &str = "bucket-c";

/// What all clients know together, over all lives.
pub(crate) struct World {
    pub(crate) dice: Dice,
    pub(crate) trace: Trace,
    pub(crate) values: Values,
    /// The last one comes and goes, if `buckets_change`.
    pub(crate) buckets: Vec<BucketName>,
    pub(crate) keys: Vec<(BucketName, ObjectKey)>,
    /// Those of the keys, one of the bucket that comes and goes, and those of the buckets' documents.
    pub(crate) registers: Vec<Register>,
    /// The last document that was written.
    documents: Value,
    pub(crate) buckets_change: bool,
    /// Deletions of that bucket that are under way, and when the last one ended.
    deletions: Deletions,
    pub(crate) uploads: Vec<Upload>,
    /// By key: uploads that were asked for without an answer.
    pub(crate) unknown_uploads: BTreeMap<usize, usize>,
    /// Renamings of unknown outcome: what became of the old key, and of the new one.
    pub(crate) renames: Vec<(Call, Call)>,
    /// Whether the buckets were created.
    pub(crate) has_buckets: bool,
    /// The first thing that must not be.
    pub(crate) violation: Option<String>,
    /// Whether requests that change something may fail.
    pub(crate) writes_may_fail: bool,
    /// Operations that were begun.
    pub(crate) ops: u64,
    /// Operations that were refused.
    pub(crate) refused: u64,
    /// Stripes whose records waited for others, in lives that were not cut off.
    pub(crate) held: u64,
    now: u64,
}

#[derive(Default)]
struct Deletions {
    under_way: usize,
    last_ended: u64,
}

impl World {
    pub(crate) fn new(params: &Params, dice: Dice, is_loud: bool) -> Self {
        let names = BUCKETS.into_iter().chain(params.buckets_change.then_some(CHANGING_BUCKET));
        let buckets: Vec<BucketName> =
            names.map(|name| BucketName::new(name).expect("the names above are valid")).collect();
        let key = |number: usize| {
            let bucket = buckets[number % buckets.len()].clone();
            let folder = ["a/", "b/", "", "a/b/"][number / 2 % 4];
            (bucket, ObjectKey::new(&format!("{folder}key-{number}")).expect("this is a valid key"))
        };
        Self {
            dice,
            trace: Trace::new(is_loud),
            values: Values::new(params.seed, params.etag),
            keys: (0..params.keys).map(key).collect(),
            registers: (0..=params.keys + buckets.len()).map(|_| Register::default()).collect(),
            documents: 0,
            buckets_change: params.buckets_change,
            deletions: Deletions::default(),
            buckets,
            uploads: Vec::new(),
            unknown_uploads: BTreeMap::new(),
            renames: Vec::new(),
            has_buckets: false,
            violation: None,
            writes_may_fail: false,
            ops: 0,
            refused: 0,
            held: 0,
            now: 0,
        }
    }

    /// All that was acknowledged is durable, and nothing is asked.
    pub(crate) fn synced(&mut self) {
        self.trace.say("all is durable".to_owned());
        self.registers.iter_mut().for_each(Register::synced);
        self.uploads.iter_mut().for_each(Upload::synced);
    }

    /// The power went out: what was not synced may be lost.
    pub(crate) fn lost_power(&mut self) {
        self.renames.clear();
        self.registers.iter_mut().for_each(Register::lost_power);
        self.uploads.iter_mut().for_each(Upload::lost_power);
    }

    /// The next moment.
    pub(crate) fn tick(&mut self) -> u64 {
        self.now += 1;
        self.now
    }

    /// Something is as it must not be.
    pub(crate) fn violate(&mut self, what: String) {
        self.trace.say(format!("VIOLATION: {what}"));
        self.violation.get_or_insert(what);
    }

    pub(crate) fn any_key(&mut self) -> usize {
        // The first ones are hot.
        let limit = if self.dice.coin() { self.keys.len().min(2) } else { self.keys.len() };
        self.dice.below(limit as u64) as usize
    }

    fn any_bucket(&mut self) -> BucketName {
        let place = self.dice.below(self.buckets.len() as u64) as usize;
        self.buckets[place].clone()
    }

    fn call(&mut self, key: usize, pre: Pre, post: Post) -> Call {
        let now = self.tick();
        self.registers[key].call(key, now, pre, post)
    }

    /// What was seen of a key since `called`.
    pub(crate) fn saw(&mut self, key: usize, called: u64, value: Option<Value>) {
        let now = self.tick();
        self.registers[key].saw(called, now, value.map_or(Pre::Absent, Pre::Is));
    }

    /// Length of a body.
    fn any_len(&mut self) -> usize {
        let dice = &mut self.dice;
        match dice.below(20) {
            0 => 0,
            1..=11 => dice.below(6000) as usize,
            12..=15 => dice.below(100_000) as usize,
            16..=18 => (128 << 10) + dice.below(500_000) as usize,
            _ => (1 << 20) + dice.below(1_500_000) as usize,
        }
    }
}

/// A client.
pub(crate) struct Client<'a> {
    pub(crate) number: u64,
    pub(crate) store: Store,
    pub(crate) world: &'a RefCell<World>,
    pub(crate) machine: &'a Machine,
    /// Whether it asks for compaction, repair and scrubs, too.
    pub(crate) has_upkeep: bool,
}

/// What an error of a change means.
enum Fate {
    /// It took no effect.
    Refused,
    /// It may have taken effect.
    Unknown,
}

impl Client<'_> {
    /// Asks for `ops` things, one after another.
    pub(crate) async fn work(&self, ops: u64) {
        for _ in 0..ops {
            if self.machine.power.is_out() || self.world().violation.is_some() {
                return;
            }
            let (kind, think_ms, buckets_change) = {
                let mut world = self.world();
                world.ops += 1;
                (world.dice.below(100), pick(&mut world.dice, &[0, 0, 0, 1, 10]), world.buckets_change)
            };
            if think_ms > 0 {
                tokio::time::sleep(Duration::from_millis(think_ms)).await;
            }
            match kind {
                0..=24 => self.put().await,
                25..=29 => self.append().await,
                30..=48 => self.get().await,
                49 => self.read_any_document(),
                50..=52 => self.head().await,
                53 if think_ms > 0 => self.delete_document().await,
                53 => self.put_document().await,
                54 | 55 if buckets_change => self.create_bucket().await,
                56 | 57 if buckets_change => self.delete_bucket().await,
                54..=64 => self.delete().await,
                65..=67 => self.copy().await,
                68..=70 => self.rename().await,
                71..=74 => self.list().await,
                75..=78 => self.create_upload().await,
                79..=87 => self.upload_part().await,
                88..=89 => self.upload_part_copy().await,
                90..=93 => self.complete_upload().await,
                94 => self.abort_upload().await,
                95 if think_ms > 0 => self.upkeep("a snapshot", self.store.snapshot_index().await.map(drop)),
                95 => self.upkeep("a checkpoint", self.store.checkpoint().await),
                96 => self.upkeep("freeing", self.store.free_dead_segments().await.map(drop)),
                97 if self.has_upkeep => self.upkeep("compaction", self.store.compact().await.map(drop)),
                98 if self.has_upkeep => self.upkeep("repair", self.store.repair_now().await.map(drop)),
                99 if self.has_upkeep => self.upkeep("a scrub", self.store.scrub_now().await.map(drop)),
                _ => self.put().await,
            }
            if let Err(violation) = check::within_bounds(&self.store, self.machine) {
                self.world().violate(violation);
            }
        }
    }

    fn world(&self) -> RefMut<'_, World> {
        self.world.borrow_mut()
    }

    fn say(&self, what: std::fmt::Arguments<'_>) {
        self.world().trace.say(format!("client {}: {what}", self.number));
    }

    fn upkeep(&self, what: &str, outcome: Result<(), StoreError>) {
        match outcome {
            Ok(()) => {}
            // A pass over everything may end where a target is gone; what it was to do is left for the next one.
            Err(error) if self.world().writes_may_fail => self.say(format_args!("{what}: {error}")),
            Err(error) => drop(self.fate(what, &error)),
        }
    }

    /// What to make of an error of a change; that it is one at all may be a violation.
    fn fate(&self, what: &str, error: &StoreError) -> Fate {
        let mut world = self.world();
        let number = self.number;
        world.trace.say(format!("client {number}: {what}: {error}"));
        world.refused += 1;
        if self.machine.power.is_out() {
            return Fate::Unknown;
        }
        match error {
            StoreError::Busy => Fate::Refused,
            StoreError::NoSpace | StoreError::Unavailable(_) | StoreError::Unreadable(_) if world.writes_may_fail => {
                Fate::Unknown
            }
            _ => {
                world.violate(format!("{what}: {error}"));
                Fate::Unknown
            }
        }
    }

    /// A change of one key came to nothing, or may have.
    fn failed(&self, call: Call, what: &str, error: &StoreError) {
        self.all_failed(&[call], what, error);
    }

    /// A change of several things at once came to nothing, or may have.
    fn all_failed(&self, calls: &[Call], what: &str, error: &StoreError) {
        let fate = self.fate(what, error);
        let mut world = self.world();
        let now = world.tick();
        for &call in calls {
            match fate {
                Fate::Refused => world.registers[call.key].refused(call, now),
                Fate::Unknown => world.registers[call.key].unknown(call, now),
            }
        }
    }

    /// Whether an error of a read is to be taken for granted: the machine died under it.
    pub(crate) fn read_failed(&self, what: &str, error: &StoreError) {
        let is_out = self.machine.power.is_out();
        let mut world = self.world();
        if !is_out {
            world.violate(format!("{what}: {error}"));
        }
    }
}

/// Runs `work`, but drops it after `polls` polls, as for a client that hangs up.
async fn hang_up_after<T>(polls: Option<u64>, work: impl Future<Output = T>) -> Option<T> {
    let Some(mut left) = polls else { return Some(work.await) };
    let mut work = std::pin::pin!(work);
    std::future::poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        work.as_mut().poll(context).map(Some)
    })
    .await
}
