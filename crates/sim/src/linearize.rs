//! Whether a history of one key is linearizable: Wing and Gong's search, with memory of what was tried.
//!
//! A key is a register that holds a body or nothing. An operation requires something of what it finds and leaves something. It
//! takes effect at one moment between its call and its return. One that never returned, or that failed in a way that leaves open
//! whether it took effect, may take effect at any moment after its call, or never; but not after a later call changed the key
//! and was acknowledged: its place in the log is before that one's.

use std::collections::{BTreeSet, HashSet};

pub use crate::values::Value;

/// Operations of a window at most.
const OPS_MAX: usize = 512;
/// States that are tried before the search gives up.
const TRIES_MAX: usize = 1_000_000;

/// What an operation requires of the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pre {
    /// Nothing.
    Any,
    /// There is no object.
    Absent,
    /// There is one.
    Present,
    /// There is this one.
    Is(Value),
    /// There is an object, and it is not this.
    IsOther(Value),
}

/// What an operation leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Post {
    /// What it found.
    Same,
    /// A body.
    Put(Value),
    /// A body that the caller does not know.
    PutUnknown,
    /// No object.
    Delete,
}

/// When an operation was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It took effect, before this moment.
    Done(u64),
    /// It may have taken effect, or may do so; it ended at this moment.
    Unknown(u64),
    /// It is under way, for all that is known.
    None,
}

/// An operation on one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Op {
    /// When it was called.
    pub called: u64,
    /// When it was answered.
    pub answer: Answer,
    /// What it requires.
    pub pre: Pre,
    /// What it leaves.
    pub post: Post,
}

/// What the key may hold, and which operations of unknown outcome (by place) may still take effect.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct State {
    /// The body that it holds.
    pub value: Option<Value>,
    /// The operations of unknown outcome.
    pub open: BTreeSet<usize>,
}

/// What the search found.
pub enum Verdict {
    /// These states are possible afterwards.
    Possible(BTreeSet<State>),
    /// No order of the operations explains what they answered.
    Impossible,
    /// It would take too long.
    TooHard,
}

type Done = [u64; OPS_MAX / 64];

impl Pre {
    fn holds(&self, value: Option<Value>) -> bool {
        match self {
            Pre::Any => true,
            Pre::Absent => value.is_none(),
            Pre::Present => value.is_some(),
            Pre::Is(wanted) => value == Some(*wanted),
            Pre::IsOther(other) => value.is_some_and(|value| value != *other),
        }
    }
}

/// What `ops` may lead to from any of `states`.
pub fn search(ops: &[Op], states: &BTreeSet<State>) -> Verdict {
    if ops.len() > OPS_MAX {
        return Verdict::TooHard;
    }
    let seen: BTreeSet<Value> =
        ops.iter().filter_map(|op| if let Pre::Is(value) = op.pre { Some(value) } else { None }).collect();
    let mut stack: Vec<(Done, Option<Value>)> = Vec::new();
    // There may be a hundred thousand states: none is held against all others.
    let open_somewhere: BTreeSet<usize> = states.iter().flat_map(|state| &state.open).copied().collect();
    let carried = ops.iter().take_while(|op| matches!(op.answer, Answer::Unknown(_))).count();
    for state in states {
        let mut done = Done::default();
        // What was of unknown outcome in an earlier window and took effect in it.
        let was_decided = |at: &usize| open_somewhere.contains(at) && !state.open.contains(at);
        (0..carried).filter(was_decided).for_each(|at| set(&mut done, at));
        stack.push((done, state.value));
    }
    let (mut tried, mut found) = (HashSet::new(), BTreeSet::new());
    while let Some((done, value)) = stack.pop() {
        if !tried.insert((done, value)) {
            continue;
        }
        if tried.len() > TRIES_MAX {
            return Verdict::TooHard;
        }
        let left = || (0..ops.len()).filter(|at| !is_set(&done, *at));
        let returned = |at: usize| if let Answer::Done(at) = ops[at].answer { Some(at) } else { None };
        let Some(earliest) = left().filter_map(returned).min() else {
            let open = left().collect();
            found.insert(State { value, open });
            // One of unknown outcome may still take effect; then it shows later.
            continue;
        };
        let may_go = |at: &usize| ops[*at].called < earliest && !is_late(ops, &done, *at) && ops[*at].pre.holds(value);
        // Reading what is there excludes nothing: it need not be tried later.
        let is_read = |at: &usize| ops[*at].post == Post::Same;
        if let Some(at) = left().filter(may_go).find(is_read) {
            stack.push((with(&done, at), value));
            continue;
        }
        for at in left().filter(may_go) {
            match ops[at].post {
                Post::Same => {}
                Post::Put(value) => stack.push((with(&done, at), Some(value))),
                Post::PutUnknown => stack.extend(seen.iter().map(|value| (with(&done, at), Some(*value)))),
                Post::Delete => stack.push((with(&done, at), None)),
            }
        }
    }
    if found.is_empty() { Verdict::Impossible } else { Verdict::Possible(found) }
}

/// Whether a later change was acknowledged already, before which this one has its place.
fn is_late(ops: &[Op], done: &Done, at: usize) -> bool {
    let Answer::Unknown(ended) = ops[at].answer else { return false };
    let is_later =
        |op: &Op| matches!(op.answer, Answer::Done(_)) && op.called > ended && !matches!(op.post, Post::Same);
    ops.iter().enumerate().any(|(other, op)| is_set(done, other) && is_later(op))
}

fn is_set(done: &Done, at: usize) -> bool {
    done[at / 64] & (1 << (at % 64)) != 0
}

fn set(done: &mut Done, at: usize) {
    done[at / 64] |= 1 << (at % 64);
}

fn with(done: &Done, at: usize) -> Done {
    let mut done = *done;
    set(&mut done, at);
    done
}
