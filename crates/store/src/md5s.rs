//! The MD5s of all bodies that arrive at the moment, taken together.
//!
//! MD5 is the largest single cost of a small put, and what limits a large one; many at once cost little more than one ([`Md5::update_many`]). There is no timer and no thread. A
//! body leaves its bytes here and goes on; when all that are open have left some, or enough for all the lanes of a vector, whoever came last takes them together. So does a body
//! that has left as much as it may, or has come to its end, with those that are there then. Large bodies leave cells of their stripes, which are in memory until they are durable; what
//! is left then is taken soon, or at once where its body waits for memory. The only body that is open does its own at once, and so do all where the machine has no vectors for it.

use std::{
    collections::VecDeque,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::{Buf, Bytes};
use gabion_erasure::Md5;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Bytes below which waiting for others costs more than it saves.
const BYTES_MIN: usize = 1024;
/// Most bytes of a stream that are taken at once: nobody who shares a vector with a longer one waits for it for long.
const SLICE_BYTES: usize = 64 * 1024;
/// Most bytes, and pieces, of memory of its own that a body leaves to be taken later.
const LEFT_BYTES_MAX: usize = 256 * 1024;
const LEFT_PIECES_MAX: usize = 64;
/// Most bytes that it leaves of memory that is there for something else as well: others get a chance to have left some, too, but nobody who is stalled keeps the end of a long body waiting for the MD5 of all of it.
const LEFT_IN_PLACE_BYTES_MAX: usize = 8 << 20;

/// Takes MD5s together.
#[derive(Default)]
pub struct Md5s {
    bodies: AtomicUsize,
    /// Those that have left bytes.
    waiting: Mutex<VecDeque<Arc<Stream>>>,
}

/// What a body has left.
struct Stream {
    state: Mutex<State>,
    /// Rings when it was taken further by somebody.
    taken: Notify,
}

struct State {
    /// Nothing while somebody takes it further.
    md5: Option<Md5>,
    left: VecDeque<Bytes>,
    left_bytes: usize,
    /// Whether it is among those that wait.
    waits: bool,
    /// Whoever took it did not come to an end.
    is_lost: bool,
}

/// A stream that is being taken further, with the bytes to be taken.
struct Job {
    stream: Arc<Stream>,
    /// Until it is given back.
    md5: Option<Md5>,
    pieces: VecDeque<Bytes>,
}

/// The MD5 of one body.
pub struct BodyMd5<'a> {
    all: &'a Md5s,
    stream: Arc<Stream>,
}

impl Md5s {
    /// Begins a body.
    pub fn begin(&self) -> BodyMd5<'_> {
        self.bodies.fetch_add(1, Ordering::Relaxed);
        let state =
            State { md5: Some(Md5::default()), left: VecDeque::new(), left_bytes: 0, waits: false, is_lost: false };
        BodyMd5 { all: self, stream: Arc::new(Stream { state: Mutex::new(state), taken: Notify::new() }) }
    }

    /// Takes some who wait further. Says whether there was any.
    fn work(&self) -> bool {
        let streams: Vec<Arc<Stream>> = {
            let mut waiting = self.waiting.lock();
            let count = waiting.len().min(Md5::lanes());
            waiting.drain(..count).collect()
        };
        let any = !streams.is_empty();
        let mut jobs: Vec<Job> = streams
            .iter()
            .filter_map(|stream| {
                let mut state = stream.state.lock();
                state.waits = false;
                stream.take(&mut state)
            })
            .collect();
        together(&mut jobs);
        jobs.into_iter().for_each(|job| job.give_back(self));
        any
    }

    /// Has a stream wait, if it has anything to wait for and nobody has it. Whoever has it lets it wait afterwards.
    fn enlist(&self, stream: &Arc<Stream>, state: &mut State) {
        if !state.waits && state.md5.is_some() && !state.left.is_empty() {
            state.waits = true;
            self.waiting.lock().push_back(Arc::clone(stream));
        }
    }

    /// Whether those who wait fill a vector, or nobody else is to come.
    fn is_worth_it(&self) -> bool {
        let enough = self.bodies.load(Ordering::Relaxed).min(Md5::lanes());
        self.waiting.lock().len() >= enough
    }

    /// Whether there is nobody to share with.
    fn is_alone(&self) -> bool {
        self.bodies.load(Ordering::Relaxed) < 2 || Md5::lanes() == 1
    }
}

/// Takes all bytes of all jobs: as far as the shortest piece goes they go side by side.
fn together(jobs: &mut [Job]) {
    loop {
        let first = |job: &Job| job.pieces.front().map(Bytes::len);
        let Some(run) = jobs.iter().filter_map(first).min() else { return };
        let mut streams: Vec<(&mut Md5, &[u8])> = Vec::with_capacity(jobs.len());
        for Job { md5, pieces, .. } in &mut *jobs {
            if let (Some(md5), Some(piece)) = (md5, pieces.front()) {
                streams.push((md5, &piece[..run]));
            }
        }
        Md5::update_many(&mut streams);
        for job in &mut *jobs {
            if let Some(piece) = job.pieces.front_mut() {
                piece.advance(run);
                if piece.is_empty() {
                    job.pieces.pop_front();
                }
            }
        }
    }
}

impl Stream {
    /// Takes it, with some of its bytes; nothing if somebody has it, or if nothing is left: who waited may have been seen to meanwhile, and be about
    /// to finish.
    fn take(self: &Arc<Self>, state: &mut State) -> Option<Job> {
        if state.left.is_empty() {
            return None;
        }
        let md5 = state.md5.take()?;
        let (mut pieces, mut room) = (VecDeque::new(), SLICE_BYTES);
        while room > 0
            && let Some(piece) = state.left.front_mut()
        {
            let front = piece.split_to(piece.len().min(room));
            if piece.is_empty() {
                state.left.pop_front();
            }
            room -= front.len();
            pieces.push_back(front);
        }
        state.left_bytes -= SLICE_BYTES - room;
        Some(Job { stream: Arc::clone(self), md5: Some(md5), pieces })
    }
}

impl Job {
    /// Gives the stream back, which waits again if more was left meanwhile.
    fn give_back(mut self, all: &Md5s) {
        let mut state = self.stream.state.lock();
        state.md5 = self.md5.take();
        all.enlist(&self.stream, &mut state);
        drop(state);
        self.stream.taken.notify_waiters();
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if self.md5.is_some() {
            self.stream.state.lock().is_lost = true;
            self.stream.taken.notify_waiters();
        }
    }
}

impl BodyMd5<'_> {
    /// Appends `bytes`.
    pub async fn update(&mut self, bytes: &Bytes) {
        self.append(bytes.clone(), LEFT_BYTES_MAX, LEFT_PIECES_MAX).await;
    }

    /// Appends `bytes` of memory that is needed for a while anyway.
    pub(crate) async fn update_in_place(&mut self, bytes: Bytes) {
        self.append(bytes, LEFT_IN_PLACE_BYTES_MAX, usize::MAX).await;
    }

    async fn append(&mut self, bytes: Bytes, bytes_max: usize, pieces_max: usize) {
        if bytes.is_empty() {
            return;
        }
        let is_alone = self.all.is_alone();
        {
            let mut state = self.stream.state.lock();
            state.left_bytes += bytes.len();
            state.left.push_back(bytes);
            if !is_alone {
                self.all.enlist(&self.stream, &mut state);
            }
        }
        if is_alone {
            self.settle(0, 0).await;
        } else if self.has_left_more_than(bytes_max, pieces_max) {
            // Others that are ready leave what they have first.
            tokio::task::yield_now().await;
            self.settle(bytes_max, pieces_max).await;
        } else if self.all.is_worth_it() {
            self.all.work();
        }
    }

    /// Sees to it that no more than the last `bytes` are kept.
    pub(crate) async fn settle_to(&self, bytes: usize) {
        self.settle(bytes, usize::MAX).await;
    }

    fn has_left_more_than(&self, bytes: usize, pieces: usize) -> bool {
        let state = self.stream.state.lock();
        state.left_bytes > bytes || state.left.len() > pieces
    }

    /// Sees to it that no more is left than so much; if nothing is to be left, that nobody has it.
    async fn settle(&self, bytes_max: usize, pieces_max: usize) {
        loop {
            // Before the look: what happens after it is not missed.
            let mut taken = pin!(self.stream.taken.notified());
            taken.as_mut().enable();
            let own = {
                let mut state = self.stream.state.lock();
                assert!(!state.is_lost, "whoever takes a stream gives it back");
                let is_here = state.md5.is_some() || bytes_max > 0;
                if is_here && state.left_bytes <= bytes_max && state.left.len() <= pieces_max {
                    return;
                }
                if self.all.is_alone() {
                    self.stream.take(&mut state)
                } else {
                    self.all.enlist(&self.stream, &mut state);
                    None
                }
            };
            match own {
                Some(mut job) => {
                    together(std::slice::from_mut(&mut job));
                    job.give_back(self.all);
                }
                None if self.all.work() => {}
                // Somebody has it.
                None => {
                    taken.await;
                    continue;
                }
            }
            if self.has_left_more_than(bytes_max, pieces_max) {
                // There may be a good deal more, and others have to do something else.
                tokio::task::yield_now().await;
            }
        }
    }

    /// The MD5 of all bytes.
    pub async fn finish(self) -> [u8; 16] {
        let left_bytes = self.stream.state.lock().left_bytes;
        if left_bytes >= BYTES_MIN && !self.all.is_alone() {
            tokio::task::yield_now().await;
        }
        self.settle(0, 0).await;
        let md5 = self.stream.state.lock().md5.take();
        md5.expect("nobody has it").finish()
    }
}

impl Drop for BodyMd5<'_> {
    fn drop(&mut self) {
        self.all.bodies.fetch_sub(1, Ordering::Relaxed);
        let mut state = self.stream.state.lock();
        state.left.clear();
        state.left_bytes = 0;
        if std::mem::take(&mut state.waits) {
            self.all.waiting.lock().retain(|other| !Arc::ptr_eq(other, &self.stream));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(seed: usize, len: usize) -> Bytes {
        (0..len).map(|at| (at * 31 + seed * 7) as u8).collect()
    }

    fn alone(bytes: &[u8]) -> [u8; 16] {
        let mut md5 = Md5::default();
        md5.update(bytes);
        md5.finish()
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn bodies_that_come_together_keep_their_own_digests() {
        let md5s = Arc::new(Md5s::default());
        let tasks: Vec<_> = (0..200)
            .map(|seed| {
                let md5s = Arc::clone(&md5s);
                tokio::spawn(async move {
                    let mut md5 = md5s.begin();
                    let mut all = Vec::new();
                    for piece in 0..seed % 5 + 1 {
                        let bytes = body(seed, 700 + seed * 13 + piece * 50_000);
                        md5.update(&bytes).await;
                        all.extend_from_slice(&bytes);
                    }
                    assert_eq!(md5.finish().await, alone(&all));
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(md5s.bodies.load(Ordering::Relaxed), 0);
        assert!(md5s.waiting.lock().is_empty());
    }

    #[tokio::test]
    async fn what_all_have_left_is_taken_together() {
        if Md5::lanes() == 1 {
            return;
        }
        let md5s = Md5s::default();
        let (mut one, mut other) = (md5s.begin(), md5s.begin());
        let left_bytes = |body: &BodyMd5<'_>| body.stream.state.lock().left_bytes;
        one.update(&body(1, 5000)).await;
        assert_eq!((left_bytes(&one), md5s.waiting.lock().len()), (5000, 1));
        other.update(&body(2, 7000)).await;
        assert_eq!((left_bytes(&one), left_bytes(&other), md5s.waiting.lock().len()), (0, 0, 0));
        one.update(&body(3, 5000)).await;
        assert_eq!(one.finish().await, alone(&[body(1, 5000), body(3, 5000)].concat()));
        // It is the only one now.
        other.update(&body(4, 7000)).await;
        assert_eq!((left_bytes(&other), md5s.waiting.lock().len()), (0, 0));
        assert_eq!(other.finish().await, alone(&[body(2, 7000), body(4, 7000)].concat()));
    }

    /// One that waits, and takes what it left itself when the others are gone, is not taken from it once more: it may be about to finish.
    #[tokio::test]
    async fn a_body_that_was_seen_to_is_nobody_elses() {
        if Md5::lanes() == 1 {
            return;
        }
        let md5s = Md5s::default();
        let (mut one, other) = (md5s.begin(), md5s.begin());
        one.update(&body(1, 5000)).await;
        drop(other);
        one.update(&body(2, 5000)).await;
        assert_eq!((one.stream.state.lock().left_bytes, md5s.waiting.lock().len()), (0, 1));
        let stream = Arc::clone(&one.stream);
        assert!(stream.take(&mut stream.state.lock()).is_none());
        md5s.work();
        assert!(stream.state.lock().md5.is_some());
        assert_eq!(one.finish().await, alone(&[body(1, 5000), body(2, 5000)].concat()));
    }

    #[tokio::test]
    async fn a_body_that_nobody_keeps_up_with_leaves_no_more_than_it_may() {
        let md5s = Md5s::default();
        let _idle = md5s.begin();
        let mut md5 = md5s.begin();
        let mut all = Vec::new();
        for piece in 0..40 {
            let bytes = body(piece, [100_000, 1, 600_000][piece % 3]);
            all.extend_from_slice(&bytes);
            md5.update(&bytes).await;
            assert!(md5.stream.state.lock().left_bytes <= LEFT_BYTES_MAX);
        }
        for piece in 0..3 * LEFT_PIECES_MAX {
            md5.update(&body(piece, 1)).await;
            all.extend_from_slice(&body(piece, 1));
            assert!(md5.stream.state.lock().left.len() <= LEFT_PIECES_MAX);
        }
        assert_eq!(md5.finish().await, alone(&all));
    }

    #[tokio::test]
    async fn a_body_that_is_dropped_while_it_waits_leaves_nothing() {
        if Md5::lanes() == 1 {
            return;
        }
        let md5s = Md5s::default();
        let _other = md5s.begin();
        {
            let mut md5 = md5s.begin();
            md5.update(&body(1, 5000)).await;
            assert_eq!(md5s.waiting.lock().len(), 1);
        }
        assert!(md5s.waiting.lock().is_empty());
    }
}
