//! One life of the process: from its start to its end, whatever that is.

use std::{
    cell::RefCell,
    future::{Future, pending},
    time::Duration,
};

use futures::future::join_all;
use gabion_platform::Dice;
use gabion_store::{Store, StoreError};

use crate::{
    atlas::Atlas,
    check,
    client::{Client, World},
    machine::Machine,
    operator,
    params::Params,
};

/// Attempts to open while operations fail by chance.
const OPEN_ATTEMPTS_MAX: usize = 4;

/// How a life is to go.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Steps of all disks before the process ends while it starts.
    pub(crate) cut_while_opening: Option<u64>,
    /// Operations of clients, and steps before the process ends, if it does so in this phase.
    pub(crate) phases: Vec<(u64, Option<u64>)>,
    /// Whether it is shut down; else it dies while nothing is asked of it.
    pub(crate) is_shut_down: bool,
}

/// How a life ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// In the middle of something.
    Cut,
    /// While nothing was asked of it.
    Idle,
    ShutDown,
}

/// A life.
pub(crate) struct Life<'a> {
    pub(crate) machine: &'a Machine,
    pub(crate) world: &'a RefCell<World>,
    pub(crate) params: &'a Params,
}

impl Life<'_> {
    /// Lives it, within a runtime of its own.
    ///
    /// # Errors
    /// What must not have been.
    pub(crate) async fn live(&self, plan: Plan, atlas: &mut Atlas, dice: &mut Dice) -> Result<End, String> {
        self.machine.clock.begin();
        if let Some(steps) = plan.cut_while_opening {
            self.machine.power.cut_after(steps);
        }
        let ended = tokio::select! {
            biased;
            () = self.machine.power.wait_until_out() => Ok(End::Cut),
            ended = self.unless_cut(self.to_its_end(plan, atlas, dice)) => ended,
        };
        self.machine.clock.freeze();
        ended
    }

    async fn to_its_end(&self, plan: Plan, atlas: &mut Atlas, dice: &mut Dice) -> Result<End, String> {
        let store = self.open(atlas).await?;
        operator::look(&store, self.machine);
        if atlas.writes_may_fail() {
            self.world.borrow_mut().writes_may_fail = true;
        }
        let has_upkeep = self.params.has_upkeep;
        let client = |number| {
            let (store, world, machine) = (store.clone(), self.world, self.machine);
            Client { number, store, world, machine, has_upkeep }
        };
        self.create_buckets(&store).await?;
        check::full(&client(0), true).await?;
        self.unless_out().await;
        // What recovery found, it has made durable.
        self.world.borrow_mut().synced();
        for (ops, cut_after) in plan.phases {
            if let Some(steps) = cut_after {
                self.machine.power.cut_after(steps);
            }
            let clients: Vec<_> = (1..=self.params.clients).map(client).collect();
            let each = ops.div_ceil(self.params.clients);
            let work = join_all(clients.iter().map(|client| client.work(each)));
            futures::join!(work, self.chaos(&store, atlas, dice));
            if let Some(violation) = self.world.borrow().violation.clone() {
                return Err(violation);
            }
            check::full(&client(0), false).await?;
            self.world.borrow_mut().trace.say("checked".to_owned());
            self.sync(&store, dice).await?;
        }
        self.world.borrow_mut().held += store.log_metrics().held_us.snapshot().buckets.iter().sum::<u64>();
        if !plan.is_shut_down {
            return Ok(End::Idle);
        }
        store.shutdown().await;
        self.unless_out().await;
        if !self.world.borrow().writes_may_fail {
            self.world.borrow_mut().synced();
        }
        Ok(End::ShutDown)
    }

    /// With relaxed durability: now and then a checkpoint, after which nothing that was acknowledged may be lost with the power.
    async fn sync(&self, store: &Store, dice: &mut Dice) -> Result<(), String> {
        if !self.params.is_relaxed || dice.coin() {
            return Ok(());
        }
        let outcome = store.checkpoint().await;
        self.unless_out().await;
        let mut world = self.world.borrow_mut();
        match outcome {
            Ok(()) => world.synced(),
            Err(error) if world.writes_may_fail => world.trace.say(format!("a checkpoint: {error}")),
            Err(error) => return Err(format!("a checkpoint: {error}")),
        }
        Ok(())
    }

    /// The process starts.
    async fn open(&self, atlas: &mut Atlas) -> Result<Store, String> {
        for _ in 0..OPEN_ATTEMPTS_MAX {
            match self.machine.open().await {
                Ok((store, report)) => {
                    let mut world = self.world.borrow_mut();
                    world.trace.say(format!(
                        "opened: {:?} rebuilt, {} replayed, {} rolled forward, {} voided, {} unreadable",
                        report.index_rebuilt,
                        report.mutations_replayed,
                        report.stripes_rolled_forward,
                        report.stripes_voided,
                        report.segments_unreadable
                    ));
                    return Ok(store);
                }
                Err(error) => {
                    self.unless_out().await;
                    self.world.borrow_mut().trace.say(format!("can not be opened: {error}"));
                    if let Some(number) = self.machine.told_off(&error.to_string()) {
                        self.machine.has_left(number);
                        continue;
                    }
                    if !atlas.is_noisy() {
                        return Err(format!("can not be opened: {error}"));
                    }
                    atlas.silence(self.machine, &mut self.world.borrow_mut().trace);
                }
            }
        }
        Err("can not be opened".to_owned())
    }

    async fn create_buckets(&self, store: &Store) -> Result<(), String> {
        let buckets = self.world.borrow().buckets.clone();
        for bucket in buckets.into_iter().filter(|bucket| !self.world.borrow().is_changing(bucket)) {
            if store.head_bucket(&bucket).await.is_ok() {
                continue;
            }
            let is_lost = self.world.borrow().has_buckets;
            if is_lost {
                return Err(format!("bucket {bucket} is gone"));
            }
            match store.create_bucket(bucket, None).await {
                Ok(()) | Err(StoreError::BucketAlreadyOwnedByYou) => {}
                Err(error) => return Err(format!("create a bucket: {error}")),
            }
        }
        if self.params.is_relaxed && !self.world.borrow().has_buckets {
            store.checkpoint().await.map_err(|error| format!("a checkpoint: {error}"))?;
            self.unless_out().await;
        }
        self.world.borrow_mut().has_buckets = true;
        Ok(())
    }

    /// What breaks while clients are at work.
    async fn chaos(&self, store: &Store, atlas: &mut Atlas, dice: &mut Dice) {
        for _ in 0..dice.below(4) {
            {
                let mut world = self.world.borrow_mut();
                atlas.strike(self.machine, dice, &mut world.trace);
                world.writes_may_fail |= atlas.writes_may_fail();
            }
            if self.params.spare_targets > 0 {
                operator::act(store, self.machine, self.world, atlas, self.params, dice).await;
            }
            tokio::time::sleep(Duration::from_millis(dice.below(30))).await;
        }
    }

    /// What `work` comes to, unless the power is out: then it means nothing.
    async fn unless_cut<T>(&self, work: impl Future<Output = T>) -> T {
        let outcome = work.await;
        self.unless_out().await;
        outcome
    }

    /// Goes on unless the power is out: then this life has ended, and what it saw last means nothing.
    async fn unless_out(&self) {
        if self.machine.power.is_out() {
            pending::<()>().await;
        }
    }
}
