//! What a worker does next.

use std::sync::atomic::Ordering;

use super::{Goal, Load, Name, Run};
use crate::content::{Random, mix};

/// One operation of a worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    Put,
    Get,
    Stat,
    Delete,
    List,
    /// An object in parts.
    Upload,
}

/// A worker's way through one phase.
pub(crate) struct Plan {
    worker: usize,
    random: Random,
    /// Number of the object or step that comes next.
    next: u64,
    /// Place within a step of several operations.
    within: usize,
    /// The operation there failed, and the next step needs it.
    again: bool,
    /// Objects that only this worker changes, of a mixed load.
    owned: Vec<Name>,
    /// Deletions of a mixed load that are put off until there is another object.
    deletions_due: u64,
    /// What was chosen last.
    current: Option<Name>,
}

/// A step of md-workbench on one set: the oldest object is looked at, read and deleted, and a new one written.
pub(super) const TURN: [Action; 4] = [Action::Stat, Action::Get, Action::Delete, Action::Put];

impl Plan {
    pub(crate) fn new(worker: usize, load: &Load, run: &Run) -> Self {
        let owned = match run.goal {
            Goal::Mixed => (worker as u64..load.prepared).step_by(load.workers).map(Name::Prepared).collect(),
            _ => Vec::new(),
        };
        // Generators go from number to number by one step: seeds a few steps apart would give all workers the same sequence, a little shifted.
        let random = Random::new(mix(load.seed ^ mix(worker as u64 + 1)));
        let next = match run.goal {
            Goal::Write | Goal::Upload | Goal::TurnSets => load.progress[worker].load(Ordering::Relaxed),
            _ => 0,
        };
        Self { worker, random, next, within: 0, again: false, owned, deletions_due: 0, current: None }
    }

    /// Whether the phase may end here: no step is half done.
    pub(crate) fn is_between_steps(&self) -> bool {
        self.within == 0
    }

    /// Whether the next operation is one that failed before: what there is holds together without it, should the phase end here.
    pub(crate) fn tries_again(&self) -> bool {
        self.again
    }

    /// The next operation, and the key of its object in `key`; nothing when all is done.
    pub(crate) fn choose(&mut self, load: &Load, run: &Run, key: &mut String) -> Option<Action> {
        let (action, name) = match run.goal {
            Goal::Write => (Action::Put, self.written(self.next)),
            Goal::Upload => (Action::Upload, self.written(self.next)),
            Goal::Any(action) => (action, Name::Prepared(self.random.next() % load.prepared.max(1))),
            Goal::List => {
                self.current = None;
                return Some(Action::List);
            }
            Goal::EachPrepared(action) => {
                let turn = run.dealt.fetch_add(1, Ordering::Relaxed);
                let index = turn * load.process.of as u64 + load.process.index as u64;
                if index >= load.prepared {
                    return None;
                }
                (action, Name::Prepared(index))
            }
            Goal::Mixed => self.choose_mixed(),
            Goal::Each(action) => {
                let owner = (self.worker + 1) % load.workers;
                if self.next >= load.progress[owner].load(Ordering::Relaxed) {
                    return None;
                }
                (action, Name::Written { worker: narrow(owner as u64), number: self.next })
            }
            Goal::FillSets | Goal::ClearSets => self.choose_of_sets(load, run.goal)?,
            Goal::TurnSets => {
                let (set, turn) = (self.next % load.sets, self.next / load.sets);
                let action = TURN[self.within];
                let number = if action == Action::Put { turn + load.set_objects } else { turn };
                (action, self.in_set(set, number))
            }
        };
        self.current = Some(name);
        load.write_key(key, name);
        Some(action)
    }

    /// 45 % get, 30 % stat, 15 % put, 10 % delete.
    /// The last object is not deleted before there is another one: a put that only makes something to read would take from the shares.
    fn choose_mixed(&mut self) -> (Action, Name) {
        loop {
            let is_due = self.deletions_due > 0 && self.owned.len() > 1;
            let dice = if is_due { 99 } else { self.random.below(100) };
            if self.owned.is_empty() || (75..90).contains(&dice) {
                return (Action::Put, self.written(self.next));
            }
            let index = self.random.below(self.owned.len());
            match dice {
                0..45 => return (Action::Get, self.owned[index]),
                45..75 => return (Action::Stat, self.owned[index]),
                _ if self.owned.len() == 1 => self.deletions_due += 1,
                _ => {
                    self.deletions_due -= u64::from(is_due);
                    return (Action::Delete, self.owned.swap_remove(index));
                }
            }
        }
    }

    /// Object after object of each set, as they are when the phase begins.
    fn choose_of_sets(&self, load: &Load, goal: Goal) -> Option<(Action, Name)> {
        let (set, index) = (self.next % load.sets, self.next / load.sets);
        if index >= load.set_objects {
            return None;
        }
        if goal == Goal::FillSets {
            return Some((Action::Put, self.in_set(set, index)));
        }
        let turns = load.progress[self.worker].load(Ordering::Relaxed);
        let oldest = turns / load.sets + u64::from(set < turns % load.sets);
        Some((Action::Delete, self.in_set(set, oldest + index)))
    }

    /// Notes how the operation that was chosen went.
    pub(crate) fn done(&mut self, load: &Load, run: &Run, action: Action, succeeded: bool) {
        match run.goal {
            // A number whose put failed is used again: the phases that follow find no gap.
            Goal::Write | Goal::Upload if succeeded => {
                self.next += 1;
                load.progress[self.worker].store(self.next, Ordering::Relaxed);
            }
            Goal::Mixed if action == Action::Put => {
                self.next += 1;
                self.owned.extend(self.current.filter(|_| succeeded));
            }
            Goal::FillSets if succeeded => self.next += 1,
            Goal::Each(_) | Goal::ClearSets => self.next += 1,
            // A set is to have as many objects behind the step as before.
            Goal::TurnSets if !succeeded && matches!(action, Action::Delete | Action::Put) => self.again = true,
            Goal::TurnSets => {
                self.again = false;
                self.within = (self.within + 1) % TURN.len();
                if self.within == 0 {
                    self.next += 1;
                    load.progress[self.worker].store(self.next, Ordering::Relaxed);
                }
            }
            _ => {}
        }
    }

    fn written(&self, number: u64) -> Name {
        Name::Written { worker: narrow(self.worker as u64), number }
    }

    fn in_set(&self, set: u64, number: u64) -> Name {
        Name::InSet { worker: narrow(self.worker as u64), set: narrow(set), number }
    }
}

/// Workers and sets are counted in 32 bits on the command line.
fn narrow(number: u64) -> u32 {
    u32::try_from(number).expect("workers and sets are counted in 32 bits")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{
        cli::{Operation, Settings},
        clock::Stamp,
        workload::{End, Share, phases},
    };

    /// Runs a load against a set of keys, in which every operation must make sense; returns the actions of each phase.
    fn play(operation: Operation, flags: &[&str], steps: usize) -> (Vec<Vec<Action>>, BTreeSet<String>) {
        let load = Load::new(&Settings::for_tests(operation, flags), Share::WHOLE);
        let mut there = BTreeSet::new();
        let mut key = String::new();
        for index in 0..load.prepared {
            load.write_key(&mut key, Name::Prepared(index));
            there.insert(key.clone());
        }
        let mut played = Vec::new();
        for phase in phases(operation) {
            let run = Run::new(phase.goal, Stamp::now(), End::Done);
            let mut actions = Vec::new();
            for worker in load.own_workers() {
                let mut plan = Plan::new(worker, &load, &run);
                let mut rest = steps;
                while !plan.is_between_steps() || !phase.timed || rest > 0 {
                    let Some(action) = plan.choose(&load, &run, &mut key) else { break };
                    match action {
                        Action::Put | Action::Upload => assert!(there.insert(key.clone()), "{key} was there"),
                        Action::Delete => assert!(there.remove(&key), "{key} was not there"),
                        Action::Get | Action::Stat => assert!(there.contains(&key), "{key} is not there"),
                        Action::List => {}
                    }
                    plan.done(&load, &run, action, true);
                    actions.push(action);
                    rest = rest.saturating_sub(1);
                }
            }
            played.push(actions);
        }
        (played, there)
    }

    fn count(actions: &[Action], action: Action) -> usize {
        actions.iter().filter(|found| **found == action).count()
    }

    #[test]
    fn mdtest_creates_and_then_visits_each_object_once() {
        for (operation, phases) in [(Operation::MdtestEasy, 3), (Operation::MdtestHard, 4)] {
            let (played, left) = play(operation, &["-c", "3"], 50);
            assert_eq!(played.iter().map(Vec::len).collect::<Vec<_>>(), vec![150; phases]);
            assert!(left.is_empty());
        }
        let (played, left) = play(Operation::IorHard, &["-c", "3"], 50);
        assert_eq!((count(&played[0], Action::Put), count(&played[1], Action::Get), left.len()), (150, 150, 150));
    }

    #[test]
    fn md_workbench_keeps_its_working_set_and_clears_it() {
        for steps in [0, 1, 3, 4, 9, 40, 41] {
            let flags = ["-c", "2", "--data-sets", "3", "--precreate", "5"];
            let (played, left) = play(Operation::MdWorkbench, &flags, steps);
            assert_eq!(count(&played[0], Action::Put), 2 * 3 * 5);
            assert_eq!(played[1].len(), 2 * steps.next_multiple_of(4), "a step that was begun is ended");
            assert_eq!(count(&played[1], Action::Put), count(&played[1], Action::Delete));
            assert_eq!(count(&played[2], Action::Delete), 2 * 3 * 5);
            assert!(left.is_empty(), "{left:?}");
        }
    }

    #[test]
    fn md_workbench_repeats_what_its_working_set_needs() {
        let settings =
            Settings::for_tests(Operation::MdWorkbench, &["-c", "1", "--data-sets", "1", "--precreate", "2"]);
        let load = Load::new(&settings, Share::WHOLE);
        let run = Run::new(Goal::TurnSets, Stamp::now(), End::Done);
        let mut plan = Plan::new(0, &load, &run);
        let (mut key, mut done) = (String::new(), Vec::new());
        // Every other operation fails.
        for turn in 0..10 {
            let action = plan.choose(&load, &run, &mut key).unwrap();
            plan.done(&load, &run, action, turn % 2 == 1);
            assert_eq!(plan.tries_again(), turn % 2 == 0 && matches!(action, Action::Delete | Action::Put));
            done.push((action, key.clone().split_off(key.len() - 2)));
        }
        let expected = [
            (Action::Stat, "00"),
            (Action::Get, "00"),
            (Action::Delete, "00"),
            (Action::Delete, "00"),
            (Action::Put, "02"),
            (Action::Put, "02"),
            (Action::Stat, "01"),
            (Action::Get, "01"),
            (Action::Delete, "01"),
            (Action::Delete, "01"),
        ];
        assert_eq!(done, expected.map(|(action, number)| (action, number.to_owned())));
        assert_eq!(load.progress[0].load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_mixed_load_has_its_shares() {
        // However few objects there are.
        for objects in ["1000", "4"] {
            let (played, _) = play(Operation::Mixed, &["-c", "4", "--objects", objects], 10_000);
            for (action, percent) in [(Action::Get, 45), (Action::Stat, 30), (Action::Put, 15), (Action::Delete, 10)] {
                let found = count(&played[0], action);
                assert!(found.abs_diff(percent * 400) < 1000, "{objects} objects, {action:?}: {found} of 40000");
            }
        }
    }

    #[test]
    fn workers_read_other_objects_than_each_other() {
        let load =
            Load::new(&Settings::for_tests(Operation::Get, &["-c", "64", "--objects", "10000000"]), Share::WHOLE);
        let run = Run::new(Goal::Any(Action::Get), Stamp::now(), End::Done);
        let mut key = String::new();
        let mut keys = BTreeSet::new();
        for worker in load.own_workers() {
            let mut plan = Plan::new(worker, &load, &run);
            for _ in 0..1000 {
                plan.choose(&load, &run, &mut key).unwrap();
                keys.insert(key.clone());
            }
        }
        // Of 64 000 that are drawn from 10 M some 200 are drawn twice.
        assert!(keys.len() > 63_600, "{}", keys.len());
    }

    #[test]
    fn every_prepared_object_is_deleted_once_whoever_does_it() {
        let (played, left) = play(Operation::Delete, &["-c", "4", "--objects", "100"], 1000);
        assert_eq!((played[0].len(), left.len()), (100, 0));
    }

    #[test]
    fn a_number_whose_put_failed_is_used_again() {
        let load = Load::new(&Settings::for_tests(Operation::Put, &["-c", "1"]), Share::WHOLE);
        let run = Run::new(Goal::Write, Stamp::now(), End::Done);
        let mut plan = Plan::new(0, &load, &run);
        let mut keys = Vec::new();
        for succeeded in [true, false, true] {
            let mut key = String::new();
            let action = plan.choose(&load, &run, &mut key).unwrap();
            plan.done(&load, &run, action, succeeded);
            keys.push(key);
        }
        assert_eq!(keys[1], keys[2]);
        assert_ne!(keys[0], keys[1]);
        assert_eq!(load.progress[0].load(Ordering::Relaxed), 2);
    }
}
