//! The side of a ring that submitters see: admission, intake, and the wake-up of the driver.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread;

use bytes::Bytes;
use parking_lot::Mutex;
use rustix::event::EventfdFlags;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::driver::Driver;
use crate::disk::IoFuture;
use crate::host::HostFile;

/// Most operations in flight on one ring, whatever is asked for: its queues lie in memory that is never given back.
const IN_FLIGHT_MAX: usize = 1024;

/// Handle of a ring; when the last one goes, the driver finishes what is in flight and ends.
#[derive(Debug)]
pub(crate) struct Ring {
    intake: Arc<Intake>,
    admission: Arc<Semaphore>,
}

/// What passes from submitters to the driver. The permits of `admission` bound its length.
#[derive(Debug)]
pub(super) struct Intake {
    requests: Mutex<Vec<Request>>,
    wake: OwnedFd,
    /// Set by the driver before it looks at `requests` for the last time and sleeps; who clears it must wake it.
    asleep: AtomicBool,
    closing: AtomicBool,
}

/// A read, not yet the kernel's.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) file: Arc<HostFile>,
    pub(super) offset: u64,
    pub(super) len: usize,
    /// Who is told.
    pub(super) reply: oneshot::Sender<io::Result<Bytes>>,
    /// Makes room for the next one when this one is done.
    pub(super) permit: OwnedSemaphorePermit,
}

impl Ring {
    /// Starts a driver thread with a ring for `in_flight_max` operations (at least 1, at most [`IN_FLIGHT_MAX`]).
    ///
    /// # Errors
    /// If the kernel does not allow io_uring, lacks an operation that we need, or has no resources for it.
    pub(crate) fn start(in_flight_max: usize) -> io::Result<Arc<Self>> {
        let in_flight_max = in_flight_max.clamp(1, IN_FLIGHT_MAX);
        let intake = Arc::new(Intake {
            requests: Mutex::default(),
            wake: rustix::event::eventfd(0, EventfdFlags::CLOEXEC)?,
            asleep: AtomicBool::new(false),
            closing: AtomicBool::new(false),
        });
        let (started, outcome) = sync_channel(1);
        let drivers = Arc::clone(&intake);
        thread::Builder::new().name("gabion-ring".into()).spawn(move || {
            // The ring is made by the thread that uses it: a single issuer is what lets the kernel skip its locks.
            match Driver::new(drivers, in_flight_max) {
                Ok(driver) => {
                    let _ = started.send(Ok(()));
                    driver.run();
                }
                Err(error) => {
                    let _ = started.send(Err(error));
                }
            }
        })?;
        outcome.recv().unwrap_or_else(|_| Err(io::Error::other("the driver thread ended at its start")))?;
        Ok(Arc::new(Self { intake, admission: Arc::new(Semaphore::new(in_flight_max)) }))
    }

    /// Reads up to `len` bytes, at least one, at `offset`.
    pub(super) fn read(self: &Arc<Self>, file: Arc<HostFile>, offset: u64, len: usize) -> IoFuture<Bytes> {
        let ring = Arc::clone(self);
        Box::pin(async move {
            let permit = Arc::clone(&ring.admission).acquire_owned().await.expect("the semaphore is never closed");
            let (reply, answer) = oneshot::channel();
            ring.intake.push(Request { file, offset, len, reply, permit });
            answer.await.expect("the driver answers every request before it ends, and lives while a handle does")
        })
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.intake.closing.store(true, Ordering::Release);
        // Whether it sleeps or not: it ends only once it has seen a wake-up, so that the kernel holds no buffer of
        // its.
        self.intake.wake();
    }
}

impl Intake {
    fn push(&self, request: Request) {
        self.requests.lock().push(request);
        // The lock orders this after the driver's last look if that look missed the request.
        if self.asleep.swap(false, Ordering::AcqRel) {
            self.wake();
        }
    }

    fn wake(&self) {
        // An eventfd takes 2^64 - 2 wake-ups before a write would block; what else can fail here is a closed
        // descriptor.
        rustix::io::retry_on_intr(|| rustix::io::write(&self.wake, &1_u64.to_ne_bytes())).expect("our eventfd is open");
    }

    pub(super) fn wake_fd(&self) -> &OwnedFd {
        &self.wake
    }

    /// Moves what has come into `requests`, which is empty.
    pub(super) fn take(&self, requests: &mut Vec<Request>) {
        std::mem::swap(&mut *self.requests.lock(), requests);
    }

    /// Announces that the driver is going to sleep; false if it must not, because something has come.
    pub(super) fn fall_asleep(&self) -> bool {
        self.asleep.store(true, Ordering::Release);
        let may = self.requests.lock().is_empty();
        if !may {
            self.rise();
        }
        may
    }

    /// The driver is awake, and no one need wake it.
    pub(super) fn rise(&self) {
        self.asleep.store(false, Ordering::Release);
    }

    pub(super) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Writes;
    use crate::threads::Pool;
    use rustix::fs::{Mode, OFlags};

    #[test]
    fn the_driver_finishes_what_is_in_flight_and_ends_with_the_last_handle() {
        let Ok(ring) = Ring::start(4) else { return };
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, b"bytes").unwrap();
        let fd = rustix::fs::open(&path, OFlags::RDONLY, Mode::empty()).unwrap();
        let file = Arc::new(HostFile::new(fd, "f", Pool::new(1, 1), Writes::Cached));
        // Polled once, so that they are on their way; some may be done already.
        let mut reads: Vec<_> = (0..4).map(|at| ring.read(Arc::clone(&file), at, 10)).collect();
        reads.iter_mut().for_each(|read| drop(futures::FutureExt::now_or_never(read)));
        drop((file, reads));
        let intake = Arc::downgrade(&ring.intake);
        drop(ring);
        // The driver thread holds the other reference.
        while intake.strong_count() > 0 {
            thread::yield_now();
        }
    }
}
