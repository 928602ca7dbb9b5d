//! What a load consists of: its phases, the names of its objects, and what all workers share.

mod pace;
mod plan;
mod worker;

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use pace::Paces;
pub(crate) use plan::Action;
pub(crate) use worker::Worker;

use crate::{
    cli::{Operation, Payload, Settings},
    clock::Stamp,
    content::{Content, Window, mix},
    sizes::Sizes,
    stats::Kind,
    stop::is_stopped,
};

/// One phase of a load: all workers begin it together, and the next begins when all have ended it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Phase {
    /// Empty if there is only one.
    pub(crate) name: &'static str,
    pub(crate) goal: Goal,
    /// It lasts as long, or for as many operations, as was asked for; else until there is nothing left to do.
    pub(crate) timed: bool,
}

/// What a worker does in a phase.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Goal {
    /// New objects, numbered by each worker.
    Write,
    /// New objects, each in parts.
    Upload,
    /// Prepared objects in random order.
    Any(Action),
    /// The listing, page by page, over and over.
    List,
    /// Every prepared object once, whoever does it.
    EachPrepared(Action),
    Mixed,
    /// Every object that the first phase wrote, once: those of another worker.
    Each(Action),
    /// The working set is written.
    FillSets,
    /// The oldest object of a set is read and deleted, and a new one written.
    TurnSets,
    /// The working set is deleted.
    ClearSets,
}

impl Goal {
    /// Operations of each that is counted.
    pub(crate) fn operations_per_step(self) -> u64 {
        if self == Goal::TurnSets { plan::TURN.len() as u64 } else { 1 }
    }
}

const fn phase(name: &'static str, goal: Goal, timed: bool) -> Phase {
    Phase { name, goal, timed }
}

/// The phases of an operation.
pub(crate) fn phases(operation: Operation) -> &'static [Phase] {
    match operation {
        Operation::Put => const { &[phase("", Goal::Write, true)] },
        Operation::Get => const { &[phase("", Goal::Any(Action::Get), true)] },
        Operation::Stat => const { &[phase("", Goal::Any(Action::Stat), true)] },
        Operation::List => const { &[phase("", Goal::List, true)] },
        Operation::Delete => const { &[phase("", Goal::EachPrepared(Action::Delete), true)] },
        Operation::Mixed => const { &[phase("", Goal::Mixed, true)] },
        Operation::Multipart => const { &[phase("", Goal::Upload, true)] },
        Operation::MdtestEasy => {
            const {
                &[
                    phase("create", Goal::Write, true),
                    phase("stat", Goal::Each(Action::Stat), false),
                    phase("delete", Goal::Each(Action::Delete), false),
                ]
            }
        }
        Operation::MdtestHard => {
            const {
                &[
                    phase("create", Goal::Write, true),
                    phase("stat", Goal::Each(Action::Stat), false),
                    phase("read", Goal::Each(Action::Get), false),
                    phase("delete", Goal::Each(Action::Delete), false),
                ]
            }
        }
        Operation::IorEasy | Operation::IorHard => {
            const { &[phase("write", Goal::Write, true), phase("read", Goal::Each(Action::Get), false)] }
        }
        Operation::MdWorkbench => {
            const {
                &[
                    phase("precreate", Goal::FillSets, false),
                    phase("benchmark", Goal::TurnSets, true),
                    phase("cleanup", Goal::ClearSets, false),
                ]
            }
        }
    }
}

/// Most keys of a page that S3 gives.
pub(crate) const LISTED_MAX: u32 = 1000;

/// An object's place in the order of its kind; its key follows from it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Name {
    /// Written before the measurement.
    Prepared(u64),
    /// The `number`th of this worker.
    Written { worker: u32, number: u64 },
    /// The `number`th of a worker's set.
    InSet { worker: u32, set: u32, number: u64 },
}

/// What all workers of a load share, in all of its phases.
pub(crate) struct Load {
    pub(crate) operation: Operation,
    pub(crate) content: Content,
    /// What all keys begin with.
    pub(crate) prefix: String,
    /// The run's own name, which follows in the keys of what is to be removed, and of what the measurement writes: content does not follow from it, so that runs are alike.
    pub(crate) run: String,
    /// The objects that are there before the measurement stay, for a run that finds them by the prefix alone.
    pub(crate) keeps: bool,
    pub(crate) sizes: Sizes,
    pub(crate) seed: u64,
    /// Workers in all processes.
    pub(crate) workers: usize,
    /// Endpoints that these are dealt to.
    pub(crate) endpoints: usize,
    /// Operations that all of them are to begin in a second; else as many as they can.
    pub(crate) rate: Option<f64>,
    pub(crate) payload: Payload,
    pub(crate) verify: bool,
    /// Objects that exist, numbered from 0.
    pub(crate) prepared: u64,
    /// Requests to write these that failed and were sent again: what they wrote may come later.
    pub(crate) rewritten: AtomicU64,
    /// Prepared objects that lie in one folder, if they do.
    pub(crate) per_folder: Option<u64>,
    pub(crate) scatter: bool,
    pub(crate) delimiter: Option<String>,
    pub(crate) max_keys: u32,
    /// Fewest entries that all pages of a listing have together.
    pub(crate) listed_min: u64,
    pub(crate) part_bytes: u64,
    /// Sets of each worker.
    pub(crate) sets: u64,
    /// Objects of each set.
    pub(crate) set_objects: u64,
    /// This process and how many there are.
    pub(crate) process: Share,
    /// For each worker of all processes, how far it came: objects written, or steps made.
    pub(crate) progress: Vec<AtomicU64>,
}

/// One of several that share the work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Share {
    pub(crate) index: usize,
    pub(crate) of: usize,
}

impl Share {
    pub(crate) const WHOLE: Self = Share { index: 0, of: 1 };

    /// This one's part of `count`.
    pub(crate) fn part(self, count: u64) -> u64 {
        let (index, of) = (self.index as u64, self.of as u64);
        count / of + u64::from(index < count % of)
    }
}

impl Load {
    /// A load of nothing, to be filled in.
    pub(crate) fn empty(process: Share) -> Self {
        Self {
            operation: Operation::Put,
            content: Content::new(0),
            prefix: String::new(),
            run: String::new(),
            keeps: false,
            sizes: Sizes::fixed(0),
            seed: 0,
            workers: 0,
            endpoints: 1,
            rate: None,
            payload: Payload::Unsigned,
            verify: true,
            prepared: 0,
            rewritten: AtomicU64::new(0),
            per_folder: None,
            scatter: false,
            delimiter: None,
            max_keys: LISTED_MAX,
            listed_min: 0,
            part_bytes: 1,
            sets: 1,
            set_objects: 1,
            process,
            progress: Vec::new(),
        }
    }

    pub(crate) fn new(settings: &Settings, process: Share) -> Self {
        let args = &settings.load;
        let workers = args.concurrency as usize;
        Self {
            operation: settings.operation,
            content: Content::new(args.seed),
            prefix: args.prefix.clone(),
            run: settings.run.clone(),
            keeps: settings.keeps(),
            sizes: settings.sizes(),
            seed: args.seed,
            workers,
            endpoints: args.endpoint.len(),
            rate: args.rate,
            payload: args.payload,
            verify: !args.no_verify,
            prepared: settings.prepared_objects(),
            rewritten: AtomicU64::new(0),
            per_folder: args.per_folder,
            scatter: args.scatter,
            delimiter: settings.delimiter.clone(),
            max_keys: settings.max_keys,
            listed_min: settings.listed_min(),
            part_bytes: settings.part_bytes,
            sets: u64::from(settings.sets),
            set_objects: settings.set_objects,
            process,
            progress: (0..workers).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Numbers of the workers of this process.
    pub(crate) fn own_workers(&self) -> impl Iterator<Item = usize> {
        (self.process.index..self.workers).step_by(self.process.of)
    }

    /// What the keys of the objects begin with that there are before the measurement.
    pub(crate) fn listed_prefix(&self) -> String {
        if self.keeps { self.prefix.clone() } else { [&*self.prefix, &self.run].concat() }
    }

    /// Writes the object's key to `key`.
    pub(crate) fn write_key(&self, key: &mut String, name: Name) {
        key.clear();
        key.push_str(&self.prefix);
        if !(self.keeps && matches!(name, Name::Prepared(_))) {
            key.push_str(&self.run);
        }
        match name {
            Name::Prepared(index) => {
                if let Some(per_folder) = self.per_folder {
                    push_padded(key, index / per_folder, 8);
                    key.push('/');
                }
                self.push_number(key, 0, index);
            }
            Name::Written { worker, number } if self.shares_one_prefix() => {
                self.push_number(key, worker, number);
                key.push('.');
                push_padded(key, worker.into(), 5);
            }
            Name::Written { worker, number } => {
                key.push('w');
                push_padded(key, worker.into(), 5);
                key.push('/');
                self.push_number(key, worker, number);
            }
            Name::InSet { worker, set, number } => {
                key.push('w');
                push_padded(key, worker.into(), 5);
                key.push_str("/s");
                push_padded(key, set.into(), 4);
                key.push('/');
                self.push_number(key, worker, number);
            }
        }
    }

    /// What tells an object from the others of its folder.
    fn push_number(&self, key: &mut String, worker: u32, number: u64) {
        if self.scatter {
            push_padded(key, mix(mix(worker.into()) ^ number) % SCATTERED, SCATTERED_DIGITS);
            key.push('-');
        }
        push_padded(key, number, 10);
    }

    /// All workers write to one prefix, in turn, as processes write to one directory or one file in the hard patterns.
    fn shares_one_prefix(&self) -> bool {
        matches!(self.operation, Operation::MdtestHard | Operation::IorHard)
    }

    /// The content that the object has.
    pub(crate) fn content_of(&self, key: &str) -> Window<'_> {
        let (prefix, rest) = key.split_at(self.prefix.len());
        let hash = match rest.strip_prefix(&*self.run).filter(|_| !self.run.is_empty()) {
            Some(name) => self.content.hash([prefix, name]),
            None => self.content.hash([key, ""]),
        };
        self.content.of(hash, self.sizes.of(hash))
    }
}

/// When a phase is over.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    At(Stamp),
    /// After so many operations of this process.
    After(u64),
    /// When there is nothing left to do.
    Done,
}

/// One phase while it runs.
pub(crate) struct Run {
    pub(crate) goal: Goal,
    pub(crate) start: Stamp,
    pub(crate) end: End,
    /// Operations begun, against [`End::After`].
    begun: AtomicU64,
    /// Prepared objects that workers of this process were dealt, each once.
    dealt: AtomicU64,
    /// When they are due, if they come at a rate.
    paces: Option<Paces>,
    /// A worker found nothing left to do.
    exhausted: AtomicBool,
    /// A worker that had more to do found the time over.
    reached_end: AtomicBool,
    /// When the first worker found the run stopped.
    stopped: OnceLock<Stamp>,
}

impl Run {
    pub(crate) fn new(goal: Goal, start: Stamp, end: End) -> Self {
        let (begun, dealt) = (AtomicU64::new(0), AtomicU64::new(0));
        let (exhausted, reached_end) = (AtomicBool::new(false), AtomicBool::new(false));
        let stopped = OnceLock::new();
        Self { goal, start, end, begun, dealt, paces: None, exhausted, reached_end, stopped }
    }

    /// The same at the rate of the load, if it has one; before its start there is time from now on.
    pub(crate) fn at_the_rate_of(self, load: &Load) -> Self {
        let paces = |rate| Paces::new(rate, load, self.start, Stamp::now());
        Self { paces: load.rate.map(paces), ..self }
    }

    /// Whether the phase went on until its time was over: it was not stopped before, and there was work until then.
    pub(crate) fn reached_end(&self) -> bool {
        self.reached_end.load(Ordering::Relaxed)
    }

    /// When it was stopped before its end, as its workers saw it.
    pub(crate) fn stopped(&self) -> Option<Stamp> {
        self.stopped.get().copied()
    }

    fn is_stopped(&self, now: Stamp) -> bool {
        let is_stopped = is_stopped();
        if is_stopped {
            self.stopped.get_or_init(|| now);
        }
        is_stopped
    }

    /// Whether time ends it, if nothing else does.
    pub(crate) fn ends_at_a_moment(&self) -> bool {
        matches!(self.end, End::At(_))
    }

    /// There is nothing left to do.
    pub(crate) fn exhaust(&self) {
        self.exhausted.store(true, Ordering::Relaxed);
    }

    /// Notes that an operation of this worker begins.
    fn begins(&self, worker: usize) {
        if let Some(paces) = &self.paces {
            paces.of(worker).begins();
        }
    }

    /// Operations of a rate that were due before the time was over and had not begun by then, and how long the first of them had been due; nothing if there are none.
    pub(crate) fn missed(&self) -> Option<(u64, Duration)> {
        match (&self.paces, self.end) {
            (Some(paces), End::At(end)) if self.reached_end() => paces.missed(end),
            _ => None,
        }
    }

    /// Whether nothing that is tried again is to be tried any more.
    fn is_out_of_time(&self, now: Stamp) -> bool {
        self.is_stopped(now) || matches!(self.end, End::At(end) if now >= end)
    }

    /// Whether nothing is left to wait for.
    fn is_over(&self, now: Stamp) -> bool {
        let is_done = match self.end {
            End::At(end) => now >= end,
            End::After(count) => self.begun.load(Ordering::Relaxed) >= count,
            End::Done => false,
        };
        is_done || self.exhausted.load(Ordering::Relaxed) || self.is_stopped(now)
    }

    /// Whether an operation that begins now still belongs to the phase.
    pub(crate) fn goes_on(&self, now: Stamp) -> bool {
        if self.is_stopped(now) {
            return false;
        }
        match self.end {
            End::At(end) => {
                if now >= end && !self.exhausted.load(Ordering::Relaxed) {
                    self.reached_end.store(true, Ordering::Relaxed);
                }
                now < end
            }
            End::After(count) => now < self.start || self.begun.fetch_add(1, Ordering::Relaxed) < count,
            End::Done => true,
        }
    }
}

/// Places that scattered names begin at, and the digits that these take.
const SCATTERED: u64 = 10_u64.pow(SCATTERED_DIGITS as u32);
const SCATTERED_DIGITS: usize = 8;

/// Adds `number` with at least `digits` digits.
fn push_padded(out: &mut String, number: u64, digits: usize) {
    let mut text = [b'0'; 20];
    let (mut rest, mut begin) = (number, text.len());
    while rest > 0 || text.len() - begin < digits {
        begin -= 1;
        text[begin] = b'0' + u8::try_from(rest % 10).expect("one digit");
        rest /= 10;
    }
    out.push_str(std::str::from_utf8(&text[begin..]).expect("digits"));
}

/// What an action is counted as.
impl From<Action> for Kind {
    fn from(action: Action) -> Self {
        match action {
            Action::Put => Kind::Put,
            Action::Get => Kind::Get,
            Action::Stat => Kind::Stat,
            Action::Delete => Kind::Delete,
            Action::List => Kind::List,
            Action::Upload => Kind::Multipart,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn numbers_are_padded() {
        for (number, digits, text) in [(0, 3, "000"), (7, 1, "7"), (12, 5, "00012"), (123_456, 3, "123456")] {
            let mut out = String::new();
            push_padded(&mut out, number, digits);
            assert_eq!(out, text);
        }
        let mut out = String::new();
        push_padded(&mut out, u64::MAX, 10);
        assert_eq!(out, u64::MAX.to_string());
    }

    #[test]
    fn scattered_names_are_each_once_and_in_no_order() {
        let args = Settings::for_tests(Operation::Put, &["--scatter"]);
        let load = Load::new(&args, Share { index: 0, of: 1 });
        let keys: Vec<String> = (0..1000)
            .map(|number| {
                let mut key = String::new();
                load.write_key(&mut key, Name::Written { worker: number as u32 % 2, number: number / 2 });
                key
            })
            .collect();
        assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), keys.len());
        let own: Vec<&String> = keys.iter().step_by(2).collect();
        let ascending = own.windows(2).filter(|pair| pair[0] < pair[1]).count();
        assert!((200..300).contains(&ascending), "{ascending} of 499 neighbours ascend");
    }

    #[test]
    fn shares_make_up_the_whole() {
        for (count, of) in [(0, 1), (10, 3), (2, 4), (1_000_000, 7)] {
            let sum: u64 = (0..of).map(|index| Share { index, of }.part(count)).sum();
            assert_eq!(sum, count);
        }
    }
}
