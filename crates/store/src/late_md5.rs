//! The MD5s of small bodies, taken when the log closes the batch that they are in.
//!
//! Nobody needs the entity tag of a small object before its record is written. By then many have gathered, and sixteen MD5s cost little more than one
//! (`crate::md5s` is for bodies that can not wait, or that say what their MD5 is to be). Whoever needs the first of them takes them all.

use std::sync::{Arc, OnceLock, Weak};

use bytes::Bytes;
use gabion_erasure::Md5;
use parking_lot::Mutex;

/// Longest body that may wait, in bytes: a batch of such bodies takes a lane some tens of microseconds.
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
}

impl LateMd5s {
    /// Whether the MD5 of a body of so many bytes may wait, on this machine.
    pub(crate) fn takes(bytes: u64) -> bool {
        bytes <= BYTES_MAX && Md5::lanes() > 1
    }

    /// The MD5 of `pieces`, one after the other.
    pub(crate) fn later(&self, pieces: Vec<Bytes>) -> Arc<LateMd5> {
        let late = Arc::new(LateMd5 { pieces, digest: OnceLock::new() });
        let mut waiting = self.waiting.lock();
        if waiting.len() == waiting.capacity() {
            // Those whose record was refused are wanted by nobody.
            waiting.retain(|late| late.strong_count() > 0);
        }
        waiting.push(Arc::downgrade(&late));
        drop(waiting);
        late
    }

    /// Takes `wanted` now, and those that wait with it.
    pub(crate) fn take(&self, wanted: &LateMd5) -> [u8; 16] {
        while wanted.digest.get().is_none() {
            let waiting: Vec<Weak<LateMd5>> = {
                let mut waiting = self.waiting.lock();
                let count = waiting.len().min(Md5::lanes());
                waiting.drain(..count).collect()
            };
            if waiting.is_empty() {
                // Somebody is taking it at this moment: there is nothing to wait with.
                digest(&[wanted]);
            }
            let waiting: Vec<Arc<LateMd5>> = waiting.iter().filter_map(Weak::upgrade).collect();
            digest(&waiting.iter().map(|late| &**late).collect::<Vec<_>>());
        }
        *wanted.digest.get().expect("it was taken")
    }
}

/// Takes the MD5s of several bodies together.
fn digest(bodies: &[&LateMd5]) {
    let mut md5s = vec![Md5::default(); bodies.len()];
    for piece in 0..bodies.iter().map(|body| body.pieces.len()).max().unwrap_or(0) {
        let pieces = bodies.iter().map(|body| body.pieces.get(piece).map_or(&[][..], |piece| piece));
        Md5::update_many(&mut md5s.iter_mut().zip(pieces).collect::<Vec<_>>());
    }
    for (body, md5) in bodies.iter().zip(md5s) {
        // Two may have taken it: they come to the same.
        let _ = body.digest.set(md5.finish());
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

    #[test]
    fn the_first_that_is_needed_takes_those_that_wait() {
        let all = LateMd5s::default();
        let body = |seed: usize| -> Vec<Bytes> {
            (0..seed % 4).map(|piece| vec![seed as u8; seed * 37 % 5000 + piece].into()).collect()
        };
        let bodies: Vec<_> = (0..2 * Md5::lanes()).map(|seed| all.later(body(seed))).collect();
        let unwanted = all.later(body(7));
        drop(unwanted);
        assert_eq!(all.take(&bodies[1]), now(&body(1)));
        assert_eq!(all.waiting.lock().len(), Md5::lanes() + 1, "a vector of them was taken");
        for (seed, late) in bodies.iter().enumerate() {
            assert_eq!(all.take(late), now(&body(seed)));
        }
        // Nobody asked for the last one.
        assert!(all.waiting.lock().iter().all(|late| late.upgrade().is_none()));
    }

    #[test]
    fn what_nobody_wants_takes_no_memory() {
        let all = LateMd5s::default();
        let kept: Vec<_> = (0..10).map(|_| all.later(Vec::new())).collect();
        (0..10_000).for_each(|_| drop(all.later(Vec::new())));
        assert!(all.waiting.lock().capacity() < 100);
        assert!(kept.iter().all(|late| all.take(late) == now(&[])));
    }

    #[test]
    fn what_somebody_else_has_begun_is_taken_once_more() {
        let all = LateMd5s::default();
        let late = all.later(vec![Bytes::from_static(b"abc")]);
        all.waiting.lock().clear();
        assert_eq!(all.take(&late), now(&[Bytes::from_static(b"abc")]));
    }
}
