//! The MD5s of small bodies, taken together: at the latest when the log closes the batch that they are in.
//!
//! Nobody needs the entity tag of a small object before its record is written. By then many have gathered, and a vector of MD5s costs little more than one
//! (`crate::md5s` is for bodies that can not wait, or that say what their MD5 is to be). Whoever brings the last that a vector has room for takes them all, beside the lane,
//! which closes batches one after the other; what is left then is taken by whoever needs the first of it.

use std::sync::{Arc, OnceLock, Weak};

use bytes::Bytes;
use gabion_erasure::Md5;
use parking_lot::Mutex;

/// Longest body that may wait, in bytes: a vector of such bodies takes whoever has it some tens of microseconds.
const BYTES_MAX: u64 = 8 * 1024;

/// All MD5s that are not taken yet, unless nobody wants them any more.
#[derive(Default)]
pub(crate) struct LateMd5s {
    waiting: Mutex<Vec<Weak<LateMd5>>>,
}

/// The MD5 of one body.
pub(crate) struct LateMd5 {
    pieces: Vec<Bytes>,
    digest: OnceLock<[u8; 16]>,
    /// Those that somebody takes it with, once he has begun.
    group: OnceLock<Group>,
}

/// MD5s that are taken together.
type Group = Arc<[Weak<LateMd5>]>;

impl LateMd5s {
    /// Whether the MD5 of a body of so many bytes may wait, on this machine.
    pub(crate) fn takes(bytes: u64) -> bool {
        bytes <= BYTES_MAX && Md5::lanes() > 1
    }

    /// The MD5 of `pieces`, one after the other. If that makes as many as can be taken together, they are.
    pub(crate) fn later(&self, pieces: Vec<Bytes>) -> Arc<LateMd5> {
        let late = Arc::new(LateMd5 { pieces, digest: OnceLock::new(), group: OnceLock::new() });
        let mut waiting = self.waiting.lock();
        waiting.push(Arc::downgrade(&late));
        if waiting.len() >= Md5::lanes() {
            // Those whose record was refused are wanted by nobody.
            waiting.retain(|late| late.strong_count() > 0);
        }
        let full = (waiting.len() >= Md5::lanes()).then(|| group(&mut waiting));
        drop(waiting);
        full.iter().for_each(digest);
        late
    }

    /// Takes `wanted` now, and those that wait with it.
    pub(crate) fn take(&self, wanted: &LateMd5) -> [u8; 16] {
        if wanted.digest.get().is_none() {
            let mut waiting = self.waiting.lock();
            // Somebody may be taking it at this moment, and may have lost his core to others: nobody waits for him, nor takes one after the other of those that he has.
            let group = wanted.group.get().cloned().unwrap_or_else(|| group(&mut waiting));
            drop(waiting);
            digest(&group);
        }
        *wanted.digest.get().expect("it was in its group")
    }
}

/// Makes a group of all that wait: no more than can be taken together.
fn group(waiting: &mut Vec<Weak<LateMd5>>) -> Group {
    let group: Group = waiting.drain(..).collect();
    for late in group.iter().filter_map(Weak::upgrade) {
        // It was waiting: it has none.
        let _ = late.group.set(Arc::clone(&group));
    }
    group
}

/// Takes the MD5s of a group, of those that somebody may want still.
fn digest(group: &Group) {
    let wanted = group.iter().filter_map(Weak::upgrade);
    let bodies: Vec<Arc<LateMd5>> = wanted.filter(|late| late.digest.get().is_none()).collect();
    let mut md5s = vec![Md5::default(); bodies.len()];
    for piece in 0..bodies.iter().map(|body| body.pieces.len()).max().unwrap_or(0) {
        let pieces = bodies.iter().map(|body| body.pieces.get(piece).map_or(&[][..], |piece| piece));
        Md5::update_many(&mut md5s.iter_mut().zip(pieces).collect::<Vec<_>>());
    }
    for (body, digest) in bodies.iter().zip(Md5::finish_many(&md5s)) {
        // Two may have taken it: they come to the same.
        let _ = body.digest.set(digest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now(pieces: &[Bytes]) -> [u8; 16] {
        let mut md5 = Md5::default();
        pieces.iter().for_each(|piece| md5.update(piece));
        md5.finish()
    }

    fn body(seed: usize) -> Vec<Bytes> {
        (0..seed % 4).map(|piece| vec![seed as u8; seed * 37 % 5000 + piece].into()).collect()
    }

    fn are_taken(lates: &[Arc<LateMd5>]) -> Vec<bool> {
        lates.iter().map(|late| late.digest.get().is_some()).collect()
    }

    #[test]
    fn who_brings_the_last_of_a_group_takes_it() {
        let all = LateMd5s::default();
        let count = 2 * Md5::lanes() + 1;
        let mut lates: Vec<Arc<LateMd5>> = Vec::new();
        for seed in 0..count {
            lates.push(all.later(body(seed)));
            let taken = lates.len() / Md5::lanes() * Md5::lanes();
            let expected: Vec<bool> = (0..lates.len()).map(|at| at < taken).collect();
            assert_eq!(are_taken(&lates), expected);
        }
        for (seed, late) in lates.iter().enumerate() {
            assert_eq!(all.take(late), now(&body(seed)));
        }
        assert!(all.waiting.lock().is_empty());
    }

    #[test]
    fn the_first_that_is_needed_takes_those_that_wait() {
        let all = LateMd5s::default();
        let lates: Vec<_> = (1..Md5::lanes()).map(|seed| all.later(body(seed))).collect();
        let Some(first) = lates.first() else { return };
        assert_eq!(all.take(first), now(&body(1)));
        assert!(are_taken(&lates).into_iter().all(|taken| taken));
        assert!(all.waiting.lock().is_empty());
    }

    #[test]
    fn what_nobody_wants_takes_no_memory_and_no_room_in_a_vector() {
        let all = LateMd5s::default();
        let kept: Vec<_> = (1..Md5::lanes()).map(|seed| all.later(body(seed))).collect();
        (0..10_000).for_each(|_| drop(all.later(Vec::new())));
        assert!(all.waiting.lock().len() <= Md5::lanes());
        assert!(!are_taken(&kept).contains(&false), "the first that was refused was the last of their group");
        let all = LateMd5s::default();
        let one = all.later(body(1));
        (0..10_000).for_each(|_| drop(all.later(Vec::new())));
        assert_eq!(one.digest.get().is_some(), Md5::lanes() <= 2, "those that were refused make no group");
        assert_eq!(all.take(&one), now(&body(1)));
    }

    #[test]
    fn many_at_once_get_their_own() {
        let all = LateMd5s::default();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let all = &all;
                scope.spawn(move || {
                    for round in 0..200 {
                        let seeds = (0..5).map(|at| thread * 1000 + round * 5 + at);
                        let lates: Vec<_> = seeds.map(|seed| (seed, all.later(body(seed)))).collect();
                        for (seed, late) in lates {
                            assert_eq!(all.take(&late), now(&body(seed)));
                        }
                    }
                });
            }
        });
        assert!(all.waiting.lock().iter().all(|late| late.upgrade().is_none()));
    }

    #[test]
    fn what_somebody_else_has_begun_is_taken_once_more_and_together() {
        let all = LateMd5s::default();
        let lates: Vec<_> = (1..Md5::lanes()).map(|seed| all.later(body(seed))).collect();
        let Some(first) = lates.first() else { return };
        let begun = group(&mut all.waiting.lock());
        assert_eq!(begun.len(), lates.len());
        // He lost his core to others.
        assert_eq!(all.take(first), now(&body(1)));
        assert!(are_taken(&lates).into_iter().all(|taken| taken));
        digest(&begun);
        assert_eq!(all.take(first), now(&body(1)));
    }
}
