//! What the judge of histories accepts, and what it does not.

use std::collections::BTreeSet;

use gabion_sim::linearize::{Answer, Op, Post, Pre, State, Value, Verdict, search};

fn op(called: u64, answer: Answer, pre: Pre, post: Post) -> Op {
    Op { called, answer, pre, post }
}

fn put(called: u64, returned: u64, value: Value) -> Op {
    op(called, Answer::Done(returned), Pre::Any, Post::Put(value))
}

fn get(called: u64, returned: u64, value: Option<Value>) -> Op {
    op(called, Answer::Done(returned), value.map_or(Pre::Absent, Pre::Is), Post::Same)
}

fn values(ops: &[Op]) -> Vec<Option<Value>> {
    let start = [State { value: None, open: BTreeSet::new() }].into();
    match search(ops, &start) {
        Verdict::Possible(states) => {
            let mut values: Vec<_> = states.into_iter().map(|state| state.value).collect();
            values.dedup();
            values
        }
        Verdict::Impossible => Vec::new(),
        Verdict::TooHard => panic!("too hard"),
    }
}

#[test]
fn reads_see_the_last_write() {
    assert_eq!(values(&[put(0, 1, 7), get(2, 3, Some(7))]), [Some(7)]);
    assert!(values(&[put(0, 1, 7), get(2, 3, None)]).is_empty());
    assert!(values(&[put(0, 1, 7), put(2, 3, 8), get(4, 5, Some(7))]).is_empty());
}

#[test]
fn concurrent_writes_have_either_order_but_one() {
    let both = [put(0, 9, 1), put(1, 8, 2)];
    assert_eq!(values(&both), [Some(1), Some(2)]);
    let flips = [put(0, 3, 1), put(0, 3, 2), get(4, 5, Some(1)), get(6, 7, Some(2))];
    assert!(values(&flips).is_empty(), "what was overwritten came back");
}

#[test]
fn what_was_not_answered_is_there_or_not_and_once_seen_stays() {
    let lost = op(2, Answer::Unknown(3), Pre::Any, Post::Put(2));
    assert_eq!(values(&[put(0, 1, 1), lost.clone(), get(4, 5, Some(1)), get(6, 7, Some(2))]), [Some(2)]);
    assert!(values(&[put(0, 1, 1), lost.clone(), get(4, 5, Some(2)), get(6, 7, Some(1))]).is_empty());
    let overwritten = [put(0, 1, 1), lost.clone(), put(4, 5, 3), get(6, 7, Some(2))];
    assert!(values(&overwritten).is_empty(), "it came back after a later write was acknowledged");
    let under_way = op(2, Answer::None, Pre::Any, Post::Put(2));
    assert_eq!(values(&[put(0, 1, 1), under_way, put(4, 5, 3), get(6, 7, Some(2))]), [Some(2)]);
}

#[test]
fn conditions_are_part_of_the_operation() {
    let create = |called, returned, value| op(called, Answer::Done(returned), Pre::Absent, Post::Put(value));
    assert!(values(&[create(0, 9, 1), create(0, 9, 2)]).is_empty(), "two created the same key");
    let refused = op(0, Answer::Done(9), Pre::Present, Post::Same);
    assert_eq!(values(&[create(0, 9, 1), refused.clone()]), [Some(1)]);
    assert!(values(&[refused]).is_empty());
    let replace = op(2, Answer::Done(3), Pre::Is(1), Post::Delete);
    assert_eq!(values(&[put(0, 1, 1), replace.clone()]), [None]);
    assert!(values(&[put(0, 1, 2), replace]).is_empty());
}
