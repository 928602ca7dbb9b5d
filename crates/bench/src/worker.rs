//! One worker: a connection and one request at a time, until the measurement ends.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use crate::{
    cli::{Operation, Payload},
    clock::Stamp,
    content::{Content, Random},
    s3::{Client, Failure, payload_hash},
    stats::Stats,
};

/// What all workers of one measurement share.
pub(crate) struct Load {
    pub(crate) operation: Operation,
    pub(crate) content: Content,
    pub(crate) prefix: String,
    pub(crate) size: u64,
    pub(crate) seed: u64,
    pub(crate) workers: usize,
    pub(crate) payload: Payload,
    pub(crate) verify: bool,
    /// Objects that exist, numbered from 0.
    pub(crate) prepared: u64,
    /// Number of the next prepared object to delete.
    pub(crate) next_delete: AtomicU64,
    /// Operations measured so far, against `count`.
    pub(crate) begun: AtomicU64,
    pub(crate) start: Stamp,
    pub(crate) end: End,
}

/// When a measurement is over.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    At(Stamp),
    After(u64),
}

impl Load {
    /// Key of the prepared object `index`.
    pub(crate) fn key(&self, index: u64) -> String {
        format!("{}{index:010}", self.prefix)
    }

    /// Writes the object `key`; the hash of a signed body is not part of the latency.
    pub(crate) async fn put(&self, client: &mut Client, key: &str) -> (Stamp, Result<u64, Failure>) {
        let content = self.content.of(key, self.size);
        let hash = (self.payload == Payload::Signed).then(|| payload_hash(content.clone()));
        let begin = Stamp::now();
        (begin, client.within_limit(async |client| client.put(key, content, hash.as_deref()).await).await)
    }

    /// Whether an operation that begins now still belongs to the measurement.
    fn goes_on(&self, now: Stamp) -> bool {
        match self.end {
            End::At(end) => now < end,
            End::After(count) => now < self.start || self.begun.fetch_add(1, Ordering::Relaxed) < count,
        }
    }
}

/// One step of a load.
enum Step {
    Put(String),
    Get(String),
    Stat(String),
    Delete(String),
    List,
}

/// A worker and what it remembers between requests.
pub(crate) struct Worker {
    number: usize,
    client: Client,
    random: Random,
    written: u64,
    /// Keys that only this worker changes: of a mixed load.
    owned: Vec<String>,
    /// Where its listing goes on.
    token: Option<String>,
}

/// How long a worker waits after a failure, so that an endpoint that is down is not asked in a busy loop.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(10);

impl Worker {
    pub(crate) fn new(number: usize, client: Client, load: &Load) -> Self {
        let owned = if load.operation == Operation::Mixed {
            (number as u64..load.prepared).step_by(load.workers).map(|index| load.key(index)).collect()
        } else {
            Vec::new()
        };
        let random = Random::new(load.seed ^ (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        Self { number, client, random, written: 0, owned, token: None }
    }

    /// Runs until the load ends.
    pub(crate) async fn run(mut self, load: &Load) -> Stats {
        let mut stats = Stats::new(load.start);
        while load.goes_on(Stamp::now()) {
            let Some(step) = self.choose(load) else { break };
            let (operation, begin, outcome) = self.perform(load, step).await;
            let failed = outcome.is_err();
            stats.record(operation, begin, Stamp::now(), outcome.map_err(|failure| failure.kind()));
            if failed {
                tokio::time::sleep(PAUSE_AFTER_FAILURE).await;
            }
        }
        stats
    }

    fn choose(&mut self, load: &Load) -> Option<Step> {
        Some(match load.operation {
            Operation::Put => Step::Put(self.fresh_key(load)),
            Operation::Get => Step::Get(self.any_key(load)),
            Operation::Stat => Step::Stat(self.any_key(load)),
            Operation::List => Step::List,
            Operation::Delete => {
                let index = load.next_delete.fetch_add(1, Ordering::Relaxed);
                if index >= load.prepared {
                    return None;
                }
                Step::Delete(load.key(index))
            }
            Operation::Mixed => self.choose_mixed(load),
        })
    }

    fn choose_mixed(&mut self, load: &Load) -> Step {
        let dice = self.random.below(100);
        if self.owned.is_empty() || (75..90).contains(&dice) {
            return Step::Put(self.fresh_key(load));
        }
        let index = self.random.below(self.owned.len());
        match dice {
            0..45 => Step::Get(self.owned[index].clone()),
            45..75 => Step::Stat(self.owned[index].clone()),
            _ => Step::Delete(self.owned.swap_remove(index)),
        }
    }

    fn fresh_key(&mut self, load: &Load) -> String {
        self.written += 1;
        format!("{}w{:05}/{:010}", load.prefix, self.number, self.written)
    }

    fn any_key(&mut self, load: &Load) -> String {
        load.key(self.random.next() % load.prepared.max(1))
    }

    async fn perform(&mut self, load: &Load, step: Step) -> (Operation, Stamp, Result<u64, Failure>) {
        let client = &mut self.client;
        match step {
            Step::Put(key) => {
                let (begin, outcome) = load.put(client, &key).await;
                if load.operation == Operation::Mixed && outcome.is_ok() {
                    self.owned.push(key);
                }
                (Operation::Put, begin, outcome)
            }
            Step::Get(key) => {
                let expected = load.verify.then(|| load.content.of(&key, load.size));
                let begin = Stamp::now();
                (Operation::Get, begin, client.within_limit(async |client| client.get(&key, expected).await).await)
            }
            Step::Stat(key) => {
                let begin = Stamp::now();
                (Operation::Stat, begin, client.within_limit(async |client| client.stat(&key).await).await)
            }
            Step::Delete(key) => {
                let begin = Stamp::now();
                (Operation::Delete, begin, client.within_limit(async |client| client.delete(&key).await).await)
            }
            Step::List => {
                let token = self.token.take();
                let begin = Stamp::now();
                let page = client.within_limit(async |client| client.list(&load.prefix, token.as_deref()).await).await;
                let outcome = page.map(|page| {
                    self.token = page.next;
                    page.bytes
                });
                (Operation::List, begin, outcome)
            }
        }
    }
}
