//! What happened to each key since its state was last known.

use std::collections::BTreeSet;

use crate::{
    linearize::{Answer, Op, Post, Pre, State, Verdict, search},
    values::Value,
};

/// The history of a key.
#[derive(Debug)]
pub(crate) struct Register {
    ops: Vec<Op>,
    /// What may be the state before `ops`.
    states: BTreeSet<State>,
    /// What it may have been since it was last known to be durable.
    since_sync: BTreeSet<Option<Value>>,
}

/// Names a call until it is answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) key: usize,
    place: usize,
}

impl Default for Register {
    fn default() -> Self {
        Self {
            ops: Vec::new(),
            states: [State { value: None, open: BTreeSet::new() }].into(),
            since_sync: [None].into(),
        }
    }
}

impl Register {
    /// A change is asked for: from now on it may take effect.
    pub(crate) fn call(&mut self, key: usize, now: u64, pre: Pre, post: Post) -> Call {
        self.may_be(&post);
        self.ops.push(Op { called: now, answer: Answer::None, pre, post });
        Call { key, place: self.ops.len() - 1 }
    }

    /// It took effect.
    pub(crate) fn done(&mut self, call: Call, now: u64) {
        self.ops[call.place].answer = Answer::Done(now);
    }

    /// It was found that it took effect, or had none, as this says.
    pub(crate) fn done_as(&mut self, call: Call, now: u64, pre: Pre, post: Post) {
        self.may_be(&post);
        let op = &mut self.ops[call.place];
        (op.pre, op.post, op.answer) = (pre, post, Answer::Done(now));
    }

    /// It may have taken effect.
    pub(crate) fn unknown(&mut self, call: Call, now: u64) {
        self.ops[call.place].answer = Answer::Unknown(now);
    }

    /// It took no effect, and nothing was learnt.
    pub(crate) fn refused(&mut self, call: Call, now: u64) {
        self.done_as(call, now, Pre::Any, Post::Same);
    }

    /// Something was seen between `called` and `now`.
    pub(crate) fn saw(&mut self, called: u64, now: u64, pre: Pre) {
        self.ops.push(Op { called, answer: Answer::Done(now), pre, post: Post::Same });
    }

    fn may_be(&mut self, post: &Post) {
        match post {
            Post::Put(value) => drop(self.since_sync.insert(Some(*value))),
            Post::Delete => drop(self.since_sync.insert(None)),
            Post::Same | Post::PutUnknown => {}
        }
    }

    /// All that was acknowledged is durable; called while nothing is asked, after [`Register::settle`].
    pub(crate) fn synced(&mut self) {
        self.since_sync = self.states.iter().map(|state| state.value).collect();
        let open: Vec<Post> = self.ops.iter().map(|op| op.post.clone()).collect();
        open.iter().for_each(|post| self.may_be(post));
    }

    /// The power went out, and what was not synced may be lost: it may be anything that it was since.
    pub(crate) fn lost_power(&mut self) {
        // What a copy put that was not answered is not known: it may take effect still, for all that is known.
        self.ops.retain(|op| op.post == Post::PutUnknown && matches!(op.answer, Answer::Unknown(_)));
        let open: BTreeSet<usize> = (0..self.ops.len()).collect();
        self.states = self.since_sync.iter().map(|value| State { value: *value, open: open.clone() }).collect();
    }

    /// The process is gone: what is under way may have taken effect.
    pub(crate) fn cut(&mut self, now: u64) {
        self.ops.iter_mut().filter(|op| op.answer == Answer::None).for_each(|op| op.answer = Answer::Unknown(now));
    }

    /// Whether a call of unknown outcome took effect, if what was seen leaves no doubt.
    pub(crate) fn took_effect(&self, call: Call, now: u64) -> Option<bool> {
        let is_possible = |took_effect: bool| {
            let mut register = Self { ops: self.ops.clone(), states: self.states.clone(), since_sync: BTreeSet::new() };
            if took_effect {
                register.done(call, now);
            } else {
                register.refused(call, now);
            }
            register.cut(now);
            register.ops.sort_by_key(|op| !matches!(op.answer, Answer::Unknown(_)));
            !matches!(search(&register.ops, &register.states), Verdict::Impossible)
        };
        match (is_possible(true), is_possible(false)) {
            (true, false) => Some(true),
            (false, true) => Some(false),
            // Both, or neither: then the history says so itself.
            _ => None,
        }
    }

    /// Checks what happened, after a read that nothing was concurrent to; forgets what is decided: everything if the store
    /// was opened again since the last call of unknown outcome.
    ///
    /// # Errors
    /// The history, if it is not linearizable.
    pub(crate) fn settle(&mut self, now: u64, all_decided: bool) -> Result<(), String> {
        self.cut(now);
        self.ops.sort_by_key(|op| !matches!(op.answer, Answer::Unknown(_)));
        let states = match search(&self.ops, &self.states) {
            Verdict::Possible(states) => states,
            Verdict::Impossible => return Err(self.to_string()),
            Verdict::TooHard => {
                // The last read says what is there; whatever was open stays so.
                let last = self.ops.iter().rev().find(|op| matches!(op.pre, Pre::Is(_) | Pre::Absent));
                let value = last.and_then(|op| if let Pre::Is(value) = op.pre { Some(value) } else { None });
                let unknown = self.ops.iter().take_while(|op| matches!(op.answer, Answer::Unknown(_))).count();
                [State { value, open: (0..unknown).collect() }].into()
            }
        };
        self.since_sync.extend(states.iter().map(|state| state.value));
        if all_decided {
            self.states = states.into_iter().map(|state| State { open: BTreeSet::new(), ..state }).collect();
            self.ops.clear();
            return Ok(());
        }
        // Those that took effect in all states are of no more interest.
        let open: BTreeSet<usize> = states.iter().flat_map(|state| state.open.iter().copied()).collect();
        let place = |at: &usize| open.range(..at).count();
        let renumber = |state: State| State { open: state.open.iter().map(place).collect(), ..state };
        self.states = states.into_iter().map(renumber).collect();
        self.ops = open.iter().map(|at| self.ops[*at].clone()).collect();
        Ok(())
    }
}

impl std::fmt::Display for Register {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let before: Vec<_> = self.states.iter().map(|state| (state.value, &state.open)).collect();
        writeln!(f, "before: {before:?} (body, calls that may still take effect)")?;
        let mut ops: Vec<_> = self.ops.iter().enumerate().collect();
        ops.sort_by_key(|(_, op)| op.called);
        for (place, op) in ops {
            writeln!(f, "  [{place}] called {} answered {:?}: {:?} -> {:?}", op.called, op.answer, op.pre, op.post)?;
        }
        Ok(())
    }
}
