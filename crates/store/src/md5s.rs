//! The MD5s of all bodies that arrive at the moment, taken together.
//!
//! MD5 is the largest single cost of a small put, and what limits a large one; many at once cost little more than one ([`Md5::update_many`]). There is no timer and no thread: who has
//! bytes leaves them here, lets all others that are ready do the same, and then does the work of all who wait. The only body that is open does its own at once, and so do all where
//! the machine has no vectors for it.

use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use gabion_erasure::Md5;
use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Bytes below which waiting for others costs more than it saves.
const BYTES_MIN: usize = 1024;
/// Most bytes of a stream that are taken at once: nobody who shares a vector with a longer one waits for it for long.
const SLICE_BYTES: usize = 64 * 1024;

/// Takes MD5s together.
#[derive(Default)]
pub(crate) struct Md5s {
    bodies: AtomicUsize,
    waiting: Mutex<Vec<Job>>,
}

struct Job {
    md5: Md5,
    bytes: Bytes,
    done: oneshot::Sender<Md5>,
}

/// The MD5 of one body.
pub(crate) struct BodyMd5<'a> {
    all: &'a Md5s,
    md5: Md5,
}

impl Md5s {
    /// Begins a body.
    pub(crate) fn begin(&self) -> BodyMd5<'_> {
        self.bodies.fetch_add(1, Ordering::Relaxed);
        BodyMd5 { all: self, md5: Md5::default() }
    }

    /// Does the work of some who wait. Says whether there was any.
    fn work(&self) -> bool {
        let mut jobs: Vec<Job> = {
            let mut waiting = self.waiting.lock();
            let count = waiting.len().min(Md5::lanes());
            waiting.drain(..count).collect()
        };
        let mut streams: Vec<(&mut Md5, &[u8])> = jobs.iter_mut().map(|job| (&mut job.md5, &job.bytes[..])).collect();
        Md5::update_many(&mut streams);
        let any = !jobs.is_empty();
        for job in jobs {
            // A client that hung up takes nothing.
            let _ = job.done.send(job.md5);
        }
        any
    }
}

impl BodyMd5<'_> {
    /// Appends `bytes`.
    pub(crate) async fn update(&mut self, bytes: &Bytes) {
        let mut left = bytes.clone();
        while !left.is_empty() {
            let slice = left.split_to(left.len().min(SLICE_BYTES));
            if slice.len() < BYTES_MIN || self.all.bodies.load(Ordering::Relaxed) < 2 || Md5::lanes() == 1 {
                self.md5.update(&slice);
            } else {
                self.share(slice).await;
            }
        }
    }

    /// Appends `bytes` together with whoever else has some.
    async fn share(&mut self, bytes: Bytes) {
        // Before the channel: it is dropped behind it, when what was to be received is known to be wanted no more.
        let leaves = Leaves(self.all);
        let (done, mut result) = oneshot::channel();
        let md5 = std::mem::take(&mut self.md5);
        self.all.waiting.lock().push(Job { md5, bytes, done });
        tokio::task::yield_now().await;
        // What is not among the first is among the next; what nobody has left to do is being done by somebody.
        while result.try_recv().map(|md5| self.md5 = md5).is_err() {
            if !self.all.work() {
                self.md5 = result.await.expect("a job is done by whoever took it");
                break;
            }
        }
        std::mem::forget(leaves);
    }

    /// The MD5 of all bytes.
    pub(crate) fn finish(&mut self) -> [u8; 16] {
        std::mem::take(&mut self.md5).finish()
    }
}

impl Drop for BodyMd5<'_> {
    fn drop(&mut self) {
        self.all.bodies.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Forgets the jobs of those who no longer wait, so that none keeps its bytes.
struct Leaves<'a>(&'a Md5s);

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        self.0.waiting.lock().retain(|job| !job.done.is_closed());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

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
                    assert_eq!(md5.finish(), alone(&all));
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
    async fn a_body_that_is_dropped_while_it_waits_leaves_nothing() {
        if Md5::lanes() == 1 {
            return;
        }
        let md5s = Md5s::default();
        let _other = md5s.begin();
        let bytes = body(1, 5000);
        {
            let mut md5 = md5s.begin();
            let mut update = Box::pin(md5.update(&bytes));
            assert!(futures::poll!(&mut update).is_pending());
            assert_eq!(md5s.waiting.lock().len(), 1);
        }
        assert!(md5s.waiting.lock().is_empty());
    }
}
