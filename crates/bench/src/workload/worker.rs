//! One worker: a connection and one request at a time, until the phase ends.

use std::time::Duration;

use parking_lot::Mutex;

use super::{Action, Goal, Load, Run, pace::LATE_MIN, plan::Plan};
use crate::{
    clock::Stamp,
    cover::Cover,
    failure::Failure,
    limit::Limit,
    patience::Patience,
    s3::{Client, Listing, Order},
    stats::{Done, Kind, Stats},
    stop::is_stopped,
};

/// A worker and what it keeps between requests.
pub(crate) struct Worker {
    number: usize,
    /// Number of the endpoint that it asks.
    endpoint: usize,
    client: Client,
    limit: Limit,
    key: String,
    /// Where its listing goes on.
    token: Option<String>,
    /// Entries on the pages of that listing until there.
    listed: u64,
    /// The last entry of the page before, if it is not the first.
    last_before: Option<String>,
}

/// How long a worker waits after a failure, so that an endpoint that is down is not asked in a busy loop.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(10);

/// Failures in a row after which a worker gives a phase up that would last until all is done: a second or more in which nobody answers, or only says that it can not.
const FAILURES_MAX: u32 = 100;
/// The same of requests that were not answered in time, each of which takes so long.
const TIMEOUTS_MAX: u32 = 3;

/// Failures in a row that say nothing of the object, but that the endpoint is not there, or can not answer now.
#[derive(Default)]
struct Silence {
    failures: u32,
    timeouts: u32,
}

impl Silence {
    /// Whether it has lasted too long, with this operation. What a working set needs is tried until it is there: then any failure counts, as one that does not pass would come for ever.
    fn is_too_long(&mut self, goal: Goal, outcome: &Result<Done, Failure>) -> bool {
        match outcome {
            Err(failure) if failure.may_pass() || matches!(goal, Goal::FillSets | Goal::TurnSets) => {
                self.failures += 1;
                self.timeouts += u32::from(*failure == Failure::Timeout);
            }
            _ => *self = Self::default(),
        }
        self.failures >= FAILURES_MAX || self.timeouts >= TIMEOUTS_MAX
    }
}

impl Worker {
    pub(crate) fn new(number: usize, endpoint: usize, client: Client, limit: Limit) -> Self {
        Self { number, endpoint, client, limit, key: String::new(), token: None, listed: 0, last_before: None }
    }

    /// Connects ahead of the phase; if that fails, the first request will say why.
    pub(crate) async fn connect(&mut self) {
        let client = &mut self.client;
        let connecting = async { client.connect().await.map_err(Failure::from) };
        let _ = self.limit.run(Stamp::now(), connecting).await;
    }

    /// Runs until the phase ends.
    pub(crate) async fn run(&mut self, load: &Load, run: &Run, stats: &Mutex<Stats>) {
        let mut plan = Plan::new(self.number, load, run);
        let mut silence = Silence::default();
        let mut lag = Duration::ZERO;
        loop {
            let late_since = run.turn(self.number, &mut lag).await;
            let decided = Stamp::now();
            if plan.is_between_steps() && !run.goes_on(decided) || plan.tries_again() && run.is_out_of_time(decided) {
                break;
            }
            run.begins(self.number);
            let Some(action) = plan.choose(load, run, &mut self.key) else {
                run.exhaust();
                break;
            };
            // Where operations are counted, requests are of those that are; where time is measured, of those that begin in it.
            let warm_up = (decided < run.start && !run.ends_at_a_moment()).then_some(decided);
            let (begin, outcome) = self.perform(load, action, warm_up, stats).await;
            if outcome == Err(Failure::Stopped) {
                stats.lock().abandon(action.into());
                break;
            }
            let waited = late_since.map_or(Duration::ZERO, |due| decided.since(due.max(run.start)));
            // What was not counted against the operations that were asked for is warm-up, also if the measurement began while its body was hashed.
            let begin = if decided < run.start { decided } else { begin.before(waited) };
            let succeeded = outcome.is_ok();
            let gives_up = silence.is_too_long(run.goal, &outcome) && !run.ends_at_a_moment();
            {
                let mut stats = stats.lock();
                if waited >= LATE_MIN {
                    stats.began_late(waited);
                }
                stats.answered(self.endpoint, outcome.as_ref().err());
                stats.record(action.into(), begin, Stamp::now(), outcome.map_err(|failure| failure.kind()));
                stats.record_retries(action.into(), begin, self.client.take_retries());
            }
            plan.done(load, run, action, succeeded);
            if gives_up {
                stats.lock().give_up(Stamp::now());
                break;
            }
            if !succeeded {
                tokio::time::sleep(PAUSE_AFTER_FAILURE).await;
            }
        }
    }

    /// Writes the object `key`.
    ///
    /// # Errors
    /// The request's.
    pub(crate) async fn put(&mut self, load: &Load, key: &str) -> Result<(), Failure> {
        key.clone_into(&mut self.key);
        self.put_current(load).await.1.map(drop)
    }

    /// Hashes and checksums of the body are not part of the latency.
    async fn put_current(&mut self, load: &Load) -> (Stamp, Result<Done, Failure>) {
        let content = load.content_of(&self.key);
        let cover = Cover::of(load.payload, content);
        let begin = Stamp::now();
        let outcome = self.limit.run(begin, self.client.put(&self.key, content, &cover)).await;
        (begin, outcome.map(Done::bytes))
    }

    /// `warm_up`: when it was decided on, if it is none of the operations that are counted.
    async fn perform(
        &mut self,
        load: &Load,
        action: Action,
        warm_up: Option<Stamp>,
        stats: &Mutex<Stats>,
    ) -> (Stamp, Result<Done, Failure>) {
        match action {
            Action::Put => self.put_current(load).await,
            Action::Get => {
                let expected = load.content_of(&self.key);
                let begin = Stamp::now();
                let get = self.client.get(&self.key, expected, load.verify);
                (begin, self.limit.run(begin, get).await.map(Done::bytes))
            }
            Action::Stat => {
                let length = load.content_of(&self.key).remaining();
                let begin = Stamp::now();
                let stat = self.client.stat(&self.key, length, load.verify);
                (begin, self.limit.run(begin, stat).await.map(|()| Done::default()))
            }
            Action::Delete => {
                let begin = Stamp::now();
                (begin, self.limit.run(begin, self.client.delete(&self.key)).await.map(|()| Done::default()))
            }
            Action::List => self.list(load).await,
            Action::Upload => {
                let begin = Stamp::now();
                (begin, self.upload(load, warm_up, stats).await)
            }
        }
    }

    async fn list(&mut self, load: &Load) -> (Stamp, Result<Done, Failure>) {
        let token = self.token.take();
        if token.is_none() {
            (self.listed, self.last_before) = (0, None);
        }
        let prefix = load.listed_prefix();
        let listing = Listing {
            prefix: &prefix,
            delimiter: load.delimiter.as_deref(),
            max_keys: load.max_keys,
            token: token.as_deref(),
            order: if load.verify { Order::Behind(self.last_before.as_deref()) } else { Order::Any },
        };
        let begin = Stamp::now();
        let page = self.limit.run(begin, self.client.list(listing)).await;
        let outcome = page.and_then(|page| {
            self.last_before = page.last;
            self.token = page.next;
            self.listed += page.entries;
            // A page may hold less than was asked for; that all of them do is known at the last.
            if self.token.is_none() && self.listed < load.listed_min {
                return Err(Failure::Incomplete);
            }
            Ok(Done { bytes: page.bytes, entries: page.entries })
        });
        (begin, outcome)
    }

    /// Writes one object in parts, one after the other; each request is timed by itself. `warm_up` as of [`Worker::perform`].
    async fn upload(&mut self, load: &Load, warm_up: Option<Stamp>, stats: &Mutex<Stats>) -> Result<Done, Failure> {
        let note = |kind, begin, outcome: &Result<u64, Failure>| {
            if *outcome == Err(Failure::Stopped) {
                return;
            }
            let outcome = outcome.as_ref().map(|bytes| Done::bytes(*bytes)).map_err(Failure::kind);
            stats.lock().record(kind, warm_up.unwrap_or(begin), Stamp::now(), outcome);
        };
        let mut content = load.content_of(&self.key);
        let bytes = content.remaining();
        let (client, limit, key) = (&mut self.client, &mut self.limit, &self.key);
        let begin = Stamp::now();
        let created = limit.run(begin, client.create_upload(key)).await;
        note(Kind::CreateUpload, begin, &created.as_ref().map(|_| 0).map_err(Clone::clone));
        let upload = created?;
        let mut etags = Vec::new();
        let sent: Result<(), Failure> = async {
            loop {
                // There may be thousands of parts to come.
                if is_stopped() {
                    return Err(Failure::Stopped);
                }
                let part = content.split_to(load.part_bytes);
                let cover = Cover::of(load.payload, part);
                let number = u32::try_from(etags.len() + 1).expect("an upload has at most 10000 parts");
                let begin = Stamp::now();
                let sent = limit.run(begin, client.upload_part(key, &upload, number, part, &cover)).await;
                note(Kind::Part, begin, &sent.as_ref().map(|_| part.remaining()).map_err(Clone::clone));
                etags.push(sent?);
                if content.remaining() == 0 {
                    break;
                }
            }
            let begin = Stamp::now();
            let completed = limit.run(begin, client.complete_upload(key, &upload, &etags)).await;
            note(Kind::CompleteUpload, begin, &completed.as_ref().map(|()| 0).map_err(Clone::clone));
            completed
        }
        .await;
        if let Err(failure) = sent {
            // What was sent is not kept for ever, and some servers do not list it; that the upload failed is what counts.
            let mut patience = Patience::default();
            while let Err(failure) = limit.run(Stamp::now(), client.abort_upload(key, &upload)).await {
                // Of a server that does not answer nobody waits here.
                let answers = matches!(failure, Failure::Status { .. });
                if !answers || patience.after(failure).await.is_err() {
                    break;
                }
            }
            return Err(failure);
        }
        Ok(Done::bytes(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_that_is_gone_is_not_asked_for_ever() {
        let tries = |goal, failure: &Failure| {
            let (mut silence, mut tries) = (Silence::default(), 1);
            while !silence.is_too_long(goal, &Err(failure.clone())) && tries < 1000 {
                tries += 1;
            }
            tries
        };
        let status = |status| Failure::Status { status, code: String::new() };
        for goal in [Goal::Write, Goal::FillSets] {
            assert_eq!((tries(goal, &Failure::Timeout), tries(goal, &status(503))), (TIMEOUTS_MAX, FAILURES_MAX));
        }
        assert_eq!((tries(Goal::Write, &status(404)), tries(Goal::Write, &Failure::Mismatch)), (1000, 1000));
        // What is refused is tried again until the set is filled.
        assert_eq!(tries(Goal::FillSets, &status(403)), FAILURES_MAX);
        let mut silence = Silence::default();
        for _ in 0..1000 {
            assert!(!silence.is_too_long(Goal::FillSets, &Err(Failure::Timeout)));
            assert!(!silence.is_too_long(Goal::FillSets, &Ok(Done::default())));
        }
    }
}
