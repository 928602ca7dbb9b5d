//! The side of a ring that submitters see: admission, intake, and the wake-up of the driver.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use rustix::event::EventfdFlags;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::driver::Driver;
use super::operation::Sink;
use crate::clock::{Clock, SystemClock};
use crate::disk::IoFuture;
use crate::host::HostFile;
use crate::parts::Parts;

/// Most operations in flight on one ring, whatever is asked for: its queues lie in memory that is never given back.
const IN_FLIGHT_MAX: usize = 1024;

/// Most writes in place under way at a time: those of dozens of stripes. Threads do the others.
const SHARED_IN_FLIGHT_MAX: usize = 256;

/// How long a request may wait for a driver that starts others: one takes it some ten microseconds.
const LEFT_ALONE: Duration = Duration::from_millis(10);

/// The ring that all targets share, started by the first of them and ended with the last.
///
/// # Errors
/// Those of [`Ring::start`].
pub(super) fn shared() -> io::Result<Arc<Ring>> {
    static SHARED: Mutex<Weak<Ring>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock();
    if let Some(ring) = shared.upgrade() {
        return Ok(ring);
    }
    let ring = Ring::start(SHARED_IN_FLIGHT_MAX)?;
    *shared = Arc::downgrade(&ring);
    Ok(ring)
}

/// Handle of a ring; when the last one goes, the driver finishes what is in flight and ends.
#[derive(Debug)]
pub(crate) struct Ring {
    intake: Arc<Intake>,
    admission: Arc<Semaphore>,
    in_flight_max: usize,
}

/// What passes from submitters to the driver. The permits of `admission` bound its length.
#[derive(Debug)]
pub(super) struct Intake {
    waiting: Mutex<Waiting>,
    wake: OwnedFd,
    /// Set by the driver before it looks at `requests` for the last time and sleeps; who clears it must wake it.
    asleep: AtomicBool,
    closing: AtomicBool,
}

/// Requests that the driver has not taken.
#[derive(Debug, Default)]
struct Waiting {
    requests: Vec<Request>,
    /// Since when, if there are any.
    since_ns: Option<u64>,
}

/// An operation, not yet the kernel's.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) file: Arc<HostFile>,
    pub(super) work: Work,
    /// Makes room for the next one when this one is done.
    pub(super) permit: OwnedSemaphorePermit,
}

/// A descriptor for reading once in order, where the bytes go, and the turns that let it be open.
#[derive(Debug)]
pub(super) struct Reader {
    pub(super) fd: OwnedFd,
    pub(super) sink: Arc<Sink>,
    pub(super) _turns: (OwnedSemaphorePermit, Option<OwnedSemaphorePermit>),
}

/// What is to be done, and who is told.
#[derive(Debug)]
pub(super) enum Work {
    /// Reads up to `len` bytes, at least one.
    Read { offset: u64, len: usize, reply: oneshot::Sender<io::Result<Bytes>> },
    /// Reads them along a descriptor of its own, and keeps nothing of them.
    Load { reader: Reader, offset: u64, len: usize, reply: oneshot::Sender<()> },
    /// Writes all parts, of which [`HostFile::goes_in_place`] holds, past the page cache; they are durable when it is told.
    WriteInPlace { parts: Parts, reply: oneshot::Sender<io::Result<()>> },
}

impl Ring {
    /// Starts a driver thread with a ring for `in_flight_max` operations (at least 1, at most [`IN_FLIGHT_MAX`]).
    ///
    /// # Errors
    /// If the kernel does not allow io_uring, lacks an operation that we need, or has no resources for it.
    pub(crate) fn start(in_flight_max: usize) -> io::Result<Arc<Self>> {
        let in_flight_max = in_flight_max.clamp(1, IN_FLIGHT_MAX);
        let intake = Arc::new(Intake {
            waiting: Mutex::default(),
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
        Ok(Arc::new(Self { intake, admission: Arc::new(Semaphore::new(in_flight_max)), in_flight_max }))
    }

    /// How many operations are in flight at most.
    pub(super) fn in_flight_max(&self) -> usize {
        self.in_flight_max
    }

    /// Reads up to `len` bytes, at least one, at `offset`.
    pub(super) fn read(self: &Arc<Self>, file: Arc<HostFile>, offset: u64, len: usize) -> IoFuture<Bytes> {
        let ring = Arc::clone(self);
        Box::pin(async move {
            let permit = Arc::clone(&ring.admission).acquire_owned().await.expect("the semaphore is never closed");
            let (reply, answer) = oneshot::channel();
            ring.intake.push(Request { file, work: Work::Read { offset, len, reply }, permit });
            answer.await.expect("the driver answers every request before it ends, and lives while a handle does")
        })
    }

    /// Reads up to `len` bytes at `offset` along `reader`, for the page cache alone; no further than it came when this is dropped.
    pub(super) async fn load(&self, file: Arc<HostFile>, reader: Reader, offset: u64, len: usize) {
        let permit = Arc::clone(&self.admission).acquire_owned().await.expect("the semaphore is never closed");
        let (reply, answer) = oneshot::channel();
        self.intake.push(Request { file, work: Work::Load { reader, offset, len, reply }, permit });
        // The driver answers every request before it ends.
        let _ = answer.await;
    }

    /// Begins to write `parts`, of which [`HostFile::goes_in_place`] holds. Gives them back where they would have to wait: when the ring is full, or its driver does not
    /// come for what it was given, as a drive that hangs holds it up.
    pub(super) fn begin_in_place(
        &self,
        file: &Arc<HostFile>,
        parts: Parts,
    ) -> Result<oneshot::Receiver<io::Result<()>>, Parts> {
        let Ok(permit) = Arc::clone(&self.admission).try_acquire_owned() else { return Err(parts) };
        if self.intake.is_left_alone() {
            return Err(parts);
        }
        let (reply, answer) = oneshot::channel();
        self.intake.push(Request { file: Arc::clone(file), work: Work::WriteInPlace { parts, reply }, permit });
        Ok(answer)
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
        let mut waiting = self.waiting.lock();
        waiting.since_ns.get_or_insert_with(|| SystemClock.monotonic_ns());
        waiting.requests.push(request);
        drop(waiting);
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
        let mut waiting = self.waiting.lock();
        waiting.since_ns = None;
        std::mem::swap(&mut waiting.requests, requests);
    }

    /// Whether the driver has not come for long: it is in the kernel, which should not keep it.
    fn is_left_alone(&self) -> bool {
        let since_ns = self.waiting.lock().since_ns;
        since_ns
            .is_some_and(|since_ns| SystemClock.monotonic_ns().saturating_sub(since_ns) > LEFT_ALONE.as_nanos() as u64)
    }

    /// Announces that the driver is going to sleep; false if it must not, because something has come.
    pub(super) fn fall_asleep(&self) -> bool {
        self.asleep.store(true, Ordering::Release);
        let may = self.waiting.lock().requests.is_empty();
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

    #[test]
    fn what_would_have_to_wait_is_given_back() {
        let dir = tempfile::tempdir().unwrap();
        let fd = rustix::fs::open(dir.path().join("f"), OFlags::RDWR | OFlags::CREATE, Mode::RWXU).unwrap();
        let file = Arc::new(HostFile::new(fd, "f", Pool::new(1, 1), Writes::InPlace));
        // A ring without a driver: nobody comes.
        let intake = Intake {
            waiting: Mutex::default(),
            wake: rustix::event::eventfd(0, EventfdFlags::CLOEXEC).unwrap(),
            asleep: AtomicBool::new(false),
            closing: AtomicBool::new(false),
        };
        let ring = Ring { intake: Arc::new(intake), admission: Arc::new(Semaphore::new(2)), in_flight_max: 2 };
        let begin = || ring.begin_in_place(&file, Parts::new(0, vec![Bytes::from_static(b"bytes")]));
        assert!(begin().is_ok());
        while !ring.intake.is_left_alone() {
            thread::yield_now();
        }
        assert_eq!(begin().unwrap_err().bytes(), 5, "the driver does not come");
        let mut taken = Vec::new();
        ring.intake.take(&mut taken);
        assert_eq!(taken.len(), 1);
        assert!(begin().is_ok());
        assert_eq!(begin().unwrap_err().bytes(), 5, "both permits are taken");
    }
}
