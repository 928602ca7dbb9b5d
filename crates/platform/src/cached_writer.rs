//! One thread that writes to the page cache of several files.
//!
//! What the page cache takes at once costs less than to wake a thread for it: six chunks of a stripe that six threads write, each of its own target, are six wake-ups
//! for a few microseconds of copying each. Where nobody waits for the disk, one thread does them one after the other.

use std::future::{pending, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use crate::disk::{CachedWrite, IoFuture};
use crate::threads::Pool;

/// Does writes in the order in which they come. Its thread is started with the first.
#[derive(Debug)]
pub struct CachedWriter {
    pool: Arc<Pool>,
}

/// What became of writes.
pub enum CachedWrites {
    /// Each was done, and came to this.
    Done(Vec<io::Result<()>>),
    /// One takes too long, and nothing behind it was or will be begun.
    Stuck {
        /// Its number among them.
        at: usize,
        /// Resolves when it has ended, whatever came of it.
        ended: IoFuture<()>,
    },
}

/// How far a thread has come.
#[derive(Debug, Default)]
struct Progress(AtomicUsize);

impl Progress {
    const STOPPED: usize = 1 << (usize::BITS - 1);

    /// Whether the next one, of this number, may begin.
    fn begins(&self, number: usize) -> bool {
        let next = |state: usize| (state & Self::STOPPED == 0).then_some(number);
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, next).is_ok()
    }

    /// Nothing begins any more; which one is under way.
    fn stop(&self) -> usize {
        self.0.fetch_or(Self::STOPPED, Ordering::AcqRel) & !Self::STOPPED
    }
}

impl CachedWriter {
    /// For one caller at a time: what others give it meanwhile waits.
    #[expect(clippy::new_without_default, reason = "it stands for a thread")]
    pub fn new() -> Self {
        Self { pool: Pool::new(1, 1) }
    }

    /// Does all `writes`, whatever becomes of each, and says what did. They begin when the future is first polled, and are then done even if it is dropped.
    ///
    /// # Errors
    /// No thread can be started, or it came to grief: what is written is unknown.
    pub async fn write(&self, writes: Vec<CachedWrite>) -> io::Result<Vec<io::Result<()>>> {
        match self.write_until(writes, pending()).await? {
            CachedWrites::Done(outcomes) => Ok(outcomes),
            CachedWrites::Stuck { .. } => unreachable!("it is never late"),
        }
    }

    /// The same until `late` resolves. One that is stuck has the thread for itself: what comes next is for another writer.
    ///
    /// # Errors
    /// As [`CachedWriter::write`].
    pub async fn write_until(
        &self,
        writes: Vec<CachedWrite>,
        mut late: impl Future<Output = ()> + Unpin,
    ) -> io::Result<CachedWrites> {
        let progress = Arc::new(Progress::default());
        let of_thread = Arc::clone(&progress);
        let mut done = self.pool.run(move || {
            let begun = writes.into_iter().enumerate().take_while(|(number, _)| of_thread.begins(*number));
            Ok(begun.map(|(_, write)| write()).collect())
        });
        let ended = poll_fn(|context| match done.as_mut().poll(context) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending => Pin::new(&mut late).poll(context).map(|()| None),
        });
        if let Some(done) = ended.await {
            return Ok(CachedWrites::Done(done?));
        }
        let at = progress.stop();
        let ended = Box::pin(async move { done.await.map(|_: Vec<io::Result<()>>| ()) });
        Ok(CachedWrites::Stuck { at, ended })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use parking_lot::Mutex;

    use super::*;

    #[tokio::test]
    async fn each_is_done_in_its_turn_and_answered() {
        let done = Arc::new(Mutex::new(Vec::new()));
        let write = |number: u32| -> CachedWrite {
            let done = Arc::clone(&done);
            Box::new(move || {
                done.lock().push(number);
                if number == 1 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
            })
        };
        let outcomes = CachedWriter::new().write((0..4).map(write).collect()).await.unwrap();
        assert_eq!(*done.lock(), [0, 1, 2, 3], "an error ends none of the others");
        let kinds: Vec<_> = outcomes.into_iter().map(|outcome| outcome.err().map(|error| error.kind())).collect();
        assert_eq!(kinds, [None, Some(io::ErrorKind::StorageFull), None, None]);
    }

    #[tokio::test]
    async fn behind_one_that_is_stuck_nothing_begins() {
        let (done, gate) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Barrier::new(2)));
        let (begun, has_begun) = tokio::sync::oneshot::channel();
        let begun = Arc::new(Mutex::new(Some(begun)));
        let write = |number: u32| -> CachedWrite {
            let (done, gate, begun) = (Arc::clone(&done), Arc::clone(&gate), Arc::clone(&begun));
            Box::new(move || {
                if number == 1 {
                    let _ = begun.lock().take().expect("it is told once").send(());
                    gate.wait();
                }
                done.lock().push(number);
                Ok(())
            })
        };
        let late = Box::pin(async { drop(has_begun.await) });
        let written = CachedWriter::new().write_until((0..4).map(write).collect(), late).await.unwrap();
        let CachedWrites::Stuck { at, ended } = written else { panic!("the second is stuck") };
        assert_eq!(at, 1);
        gate.wait();
        ended.await.unwrap();
        assert_eq!(*done.lock(), [0, 1]);
    }
}
