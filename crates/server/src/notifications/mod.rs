//! Notifications of what happens to objects: a bucket says whom to tell of what, the operator says where they are.
//!
//! An event is durable before the operation that it tells of is acknowledged (`queue`), and is delivered at least once (`delivery`), in the order in which a
//! target's events became durable. A target that does not answer holds up only itself. `rules` is what a bucket says, `record` what is
//! sent, `target` where; `s3::notifications` asks for all of it. Why so: docs/adr/0017-notifications.md.

mod delivery;
mod event;
mod figures;
mod nats;
mod queue;
mod record;
mod rules;
mod target;
mod webhook;

use std::collections::BTreeMap;
use std::sync::Arc;

use gabion_platform::Clock;
use gabion_store::Store;
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::error::S3Error;
use delivery::Courier;
use queue::{Line, Pieces, Queue};

pub(crate) use event::{EventName, EventSet};
pub use figures::NotificationFigures;
pub(crate) use record::{Happened, Origin};
pub(crate) use rules::{NotificationRules, Rule};
pub use target::{Destination, NotificationTarget};

/// What events are counted under whose target is not configured any more, or not for the bucket's account.
const NO_TARGET: &str = "none";

/// What becomes of events when a queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum WhenFull {
    /// What would make more is refused, before it takes effect: nothing is lost.
    #[default]
    Refuse,
    /// They are dropped and counted.
    Drop,
}

/// Who can be notified, and how.
#[derive(Clone, Debug)]
pub struct NotificationOptions {
    /// Those who can be.
    pub targets: Vec<NotificationTarget>,
    /// Longest queue of a target, in bytes.
    pub queue_bytes: u64,
    /// What becomes of events beyond that.
    pub when_full: WhenFull,
    /// Most records of a message.
    pub records_per_message: usize,
    /// Counts what becomes of events.
    pub figures: NotificationFigures,
}

impl Default for NotificationOptions {
    fn default() -> Self {
        Self {
            targets: Vec::new(),
            queue_bytes: 256 << 20,
            when_full: WhenFull::default(),
            records_per_message: 1,
            figures: NotificationFigures::default(),
        }
    }
}

/// Takes events, and delivers them.
pub(crate) struct Notifier {
    queues: BTreeMap<String, Arc<Queue>>,
    /// Until they are run.
    idle: Mutex<Vec<(NotificationTarget, Arc<Queue>, Pieces)>>,
    records_per_message: usize,
    figures: NotificationFigures,
}

impl Notifier {
    pub(crate) fn new(options: NotificationOptions) -> Self {
        let (mut queues, mut idle) = (BTreeMap::new(), Vec::new());
        for target in &options.targets {
            let (queue, pieces) = Queue::new(target, &options);
            let queue = Arc::new(queue);
            queues.insert(target.name.clone(), Arc::clone(&queue));
            idle.push((target.clone(), queue, pieces));
        }
        let NotificationOptions { records_per_message, figures, .. } = options;
        Self { queues, idle: Mutex::new(idle), records_per_message, figures }
    }

    /// Whether there is a target of that name, for buckets of this account.
    pub(crate) fn knows(&self, target: &str, account: Option<&str>) -> bool {
        self.queue(target, account).is_some()
    }

    fn queue(&self, target: &str, account: Option<&str>) -> Option<&Arc<Queue>> {
        self.queues.get(target).filter(|queue| queue.is_for(account))
    }

    /// Whether there is room for events that may be about to happen in a bucket of this account, of this key if it is known.
    ///
    /// # Errors
    /// `SlowDown`, `ServiceUnavailable`.
    pub(crate) fn admit(
        &self,
        rules: &NotificationRules,
        events: EventSet,
        key: Option<&str>,
        account: Option<&str>,
    ) -> Result<(), S3Error> {
        self.admit_to(rules.maybe_about(events, key), account)
    }

    /// Whether there is room for the events of an announcement.
    ///
    /// # Errors
    /// As [`Notifier::admit`].
    pub(crate) fn admit_announcement(&self, rules: &NotificationRules, account: Option<&str>) -> Result<(), S3Error> {
        self.admit_to(rules.rules.iter().filter(|rule| rule.is_announced()), account)
    }

    fn admit_to<'a>(&self, mut rules: impl Iterator<Item = &'a Rule>, account: Option<&str>) -> Result<(), S3Error> {
        rules.try_for_each(|rule| self.queue(&rule.target, account).map_or(Ok(()), |queue| queue.admit()))
    }

    /// Tells those who want to know what happened; it is durable when this returns.
    ///
    /// # Errors
    /// `ServiceUnavailable` when it may not be durable.
    pub(crate) async fn tell(
        &self,
        rules: &NotificationRules,
        origin: &Origin,
        happened: &[Happened],
    ) -> Result<(), S3Error> {
        let mut told: BTreeMap<&str, Vec<Line>> = BTreeMap::new();
        for event in happened {
            if let Some(rule) = rules.about(event.event, &event.key) {
                told.entry(&rule.target).or_default().push(Line::Record(record::record(event, origin, &rule.id)));
            }
        }
        self.add(told, origin).await
    }

    /// Tells topics and queues that they will be notified.
    ///
    /// # Errors
    /// As [`Notifier::tell`].
    pub(crate) async fn announce(&self, rules: &NotificationRules, origin: &Origin) -> Result<(), S3Error> {
        let wants = |rule: &&Rule| rule.is_announced() && self.knows(&rule.target, origin.account.as_deref());
        let told = rules.rules.iter().filter(wants).map(|rule| {
            let line = Line::Message(record::test_event(origin));
            (rule.target.as_str(), vec![line])
        });
        self.add(told.collect(), origin).await
    }

    async fn add(&self, told: BTreeMap<&str, Vec<Line>>, origin: &Origin) -> Result<(), S3Error> {
        let mut adding = Vec::with_capacity(told.len());
        for (target, lines) in told {
            match self.queue(target, origin.account.as_deref()) {
                Some(queue) => adding.push(queue.add(lines)),
                // The operator took it away: nobody would ever deliver them.
                None => {
                    self.figures.of(NO_TARGET).dropped.inc_by(lines.len() as u64);
                }
            }
        }
        futures::future::join_all(adding).await.into_iter().collect()
    }

    /// Keeps and delivers events until it is told to stop; to be run once.
    pub(crate) async fn run(&self, store: &Store, clock: &Arc<dyn Clock>, stop: CancellationToken) {
        let idle = std::mem::take(&mut *self.idle.lock());
        self.warn_of_others(store);
        let mut running = JoinSet::new();
        for (target, queue, pieces) in idle {
            let (store, clock, stop) = (store.clone(), Arc::clone(clock), stop.clone());
            let records = self.records_per_message;
            running.spawn(async move {
                let Some(last) = counted(&queue, &store, &stop).await else { return };
                let courier = Courier { queue: &queue, store: &store, clock: &*clock, records };
                tokio::join!(queue.write(&store, &*clock, pieces, last, &stop), courier.run(&target, &stop));
            });
        }
        while let Some(ended) = running.join_next().await {
            if let Err(error) = ended {
                tracing::error!(%error, "the task that delivers the notifications for a target failed");
            }
        }
    }

    /// Says what waits for targets that are not configured: it waits until they are again.
    fn warn_of_others(&self, store: &Store) {
        let mut after: Option<String> = None;
        while let Ok(mut page) = store.list_site_configs(queue::PREFIX, after.as_deref(), 1)
            && let Some((name, _)) = page.pop()
        {
            let target = name.strip_prefix(queue::PREFIX).and_then(|name| name.split('/').next()).unwrap_or_default();
            if !self.queues.contains_key(target) {
                tracing::warn!(to = target, "notifications wait for a target that is not configured any more");
            }
            // Behind all of its documents: a digit is before a colon.
            after = Some(format!("{}{target}/:", queue::PREFIX).max(name));
        }
    }
}

/// What is there from before; nothing when the server stops first.
async fn counted(queue: &Queue, store: &Store, stop: &CancellationToken) -> Option<u64> {
    const PAUSE: std::time::Duration = std::time::Duration::from_secs(1);
    loop {
        match queue.count(store).await {
            Ok(last) => return Some(last),
            Err(error) => tracing::warn!(to = queue.target, %error, "the notifications that wait can not be counted"),
        }
        tokio::select! {
            () = stop.cancelled() => return None,
            () = tokio::time::sleep(PAUSE) => {}
        }
    }
}
