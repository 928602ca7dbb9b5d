//! A bounded pool of threads for blocking calls on one target.
//!
//! Threads are started when work waits and none is idle, up to a limit, and stay. Submitters wait asynchronously
//! and in order when the limit of jobs, waiting and running, is reached. When the pool is dropped its threads
//! finish what is queued and end.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;

use parking_lot::{Condvar, Mutex};
use tokio::sync::{Semaphore, oneshot};

use crate::disk::IoFuture;

type Job = Box<dyn FnOnce() + Send>;

/// Handle of the pool; the last one to go ends the threads.
#[derive(Debug)]
pub(crate) struct Pool {
    shared: Arc<Shared>,
    admission: Arc<Semaphore>,
}

struct Shared {
    queue: Mutex<Queue>,
    work: Condvar,
    threads_max: usize,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// Threads that wait for work, those included that are woken but do not run yet.
    idle: usize,
    threads: usize,
    closing: bool,
}

impl Pool {
    /// A pool of at most `threads_max` threads that admits `jobs_max` jobs at once; both are at least one.
    pub(crate) fn new(threads_max: usize, jobs_max: usize) -> Arc<Self> {
        let shared = Shared { queue: Mutex::default(), work: Condvar::new(), threads_max: threads_max.max(1) };
        Arc::new(Self { shared: Arc::new(shared), admission: Arc::new(Semaphore::new(jobs_max.max(1))) })
    }

    /// Runs `work` on a thread. It is queued once the future is polled and there is room, and then runs even if the
    /// future is dropped.
    pub(crate) fn run<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> IoFuture<T> {
        let pool = Arc::clone(self);
        Box::pin(async move {
            let permit = Arc::clone(&pool.admission).acquire_owned().await.expect("the semaphore is never closed");
            let (reply, answer) = oneshot::channel();
            pool.shared.push(Box::new(move || {
                let result = work();
                drop(permit);
                // No one listens if the future was dropped.
                let _ = reply.send(result);
            }))?;
            answer.await.unwrap_or_else(|_| Err(io::Error::other("a disk operation panicked")))
        })
    }

    /// Runs `work`, which no one waits for, without regard to the limit of jobs: for closing files, of which there
    /// is a limited number already.
    pub(crate) fn detach(&self, work: impl FnOnce() + Send + 'static) {
        // If no thread can be started, the job is dropped by `push`, and with it the file is closed right here.
        let _ = self.shared.push(Box::new(work));
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // Not joined: the last handle may be dropped by one of the threads, or by a thread that must not block.
        self.shared.queue.lock().closing = true;
        self.shared.work.notify_all();
    }
}

impl Shared {
    fn push(self: &Arc<Self>, job: Job) -> io::Result<()> {
        let mut queue = self.queue.lock();
        if queue.jobs.len() >= queue.idle && queue.threads < self.threads_max {
            let shared = Arc::clone(self);
            match thread::Builder::new().name("gabion-disk".into()).spawn(move || shared.work()) {
                Ok(_) => queue.threads += 1,
                // The threads that there are do the work, if later.
                Err(error) if queue.threads > 0 => tracing::debug!(%error, "no further thread for disk operations"),
                Err(error) => return Err(error),
            }
        }
        queue.jobs.push_back(job);
        drop(queue);
        self.work.notify_one();
        Ok(())
    }

    fn work(&self) {
        let mut queue = self.queue.lock();
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                drop(queue);
                // The job's own channel tells its submitter; the thread lives on.
                let _ = catch_unwind(AssertUnwindSafe(job));
                queue = self.queue.lock();
            } else if queue.closing {
                return;
            } else {
                queue.idle += 1;
                self.work.wait(&mut queue);
                queue.idle -= 1;
            }
        }
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("threads_max", &self.threads_max).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::future::join_all;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[tokio::test]
    async fn threads_grow_to_the_limit_and_no_further() {
        let pool = Pool::new(3, 100);
        assert_eq!(pool.shared.queue.lock().threads, 0);
        // Three jobs meet at a barrier: three threads are needed, and enough.
        let barrier = Arc::new(std::sync::Barrier::new(3));
        let jobs = (0..30).map(|_| {
            let barrier = Arc::clone(&barrier);
            pool.run(move || {
                barrier.wait();
                Ok(())
            })
        });
        for result in join_all(jobs).await {
            result.unwrap();
        }
        assert_eq!(pool.shared.queue.lock().threads, 3);
    }

    #[tokio::test]
    async fn jobs_above_the_limit_wait_for_their_turn() {
        let pool = Pool::new(8, 2);
        let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let jobs = (0..50).map(|_| {
            let (running, most) = (Arc::clone(&running), Arc::clone(&most));
            pool.run(move || {
                most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                thread::yield_now();
                running.fetch_sub(1, Ordering::SeqCst);
                Ok(())
            })
        });
        join_all(jobs).await;
        assert!(most.load(Ordering::SeqCst) <= 2);
    }

    #[tokio::test]
    async fn a_panic_is_an_error_and_the_thread_lives_on() {
        let pool = Pool::new(1, 1);
        let panicked = pool.run(|| -> io::Result<()> { panic!("on purpose") }).await;
        assert_eq!(panicked.unwrap_err().kind(), io::ErrorKind::Other);
        assert_eq!(pool.run(|| Ok(7)).await.unwrap(), 7);
    }

    #[tokio::test]
    async fn what_is_queued_is_done_after_the_pool_is_gone() {
        let pool = Pool::new(1, 8);
        let (done, seen) = oneshot::channel();
        let gate = Arc::new(std::sync::Barrier::new(2));
        let at_gate = Arc::clone(&gate);
        pool.detach(move || {
            at_gate.wait();
        });
        pool.detach(move || done.send(()).unwrap());
        drop(pool);
        gate.wait();
        seen.await.unwrap();
    }
}
