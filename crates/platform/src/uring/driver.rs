//! The driver thread: the one owner of the ring and of every operation in it.

use std::io;
use std::os::fd::AsRawFd;
use std::process;
use std::sync::Arc;
use std::thread;

use io_uring::squeue::Entry;
use io_uring::{IoUring, Probe, opcode, types};
use rustix::io::Errno;

use super::operation::{Next, Operation};
use super::ring::{Intake, Request};

/// Marks the completion of the read on the eventfd; no slot has this number.
const WAKE: u64 = u64::MAX;

/// The ring, and what is in it.
pub(super) struct Driver {
    ring: IoUring,
    intake: Arc<Intake>,
    /// Operations in flight by slot, which is their entries' user data.
    slots: Slots,
    /// The kernel writes the eventfd's counter here while `wake_armed`.
    wake_count: Box<[u8; 8]>,
    wake_armed: bool,
    /// Completions that were taken off the ring and are not dealt with yet.
    completions: Vec<(u64, i32)>,
    requests: Vec<Request>,
}

impl Driver {
    pub(super) fn new(intake: Arc<Intake>, in_flight_max: usize) -> io::Result<Self> {
        // An entry for each operation and one for the wake-up: the submission queue is never full between two calls, and
        // the completion queue, twice as long, never overflows.
        let entries = (in_flight_max + 1).next_power_of_two() as u32;
        let mut ring = build(entries)?;
        probe(&mut ring)?;
        Ok(Self {
            ring,
            intake,
            slots: Slots::default(),
            wake_count: Box::new([0; 8]),
            wake_armed: false,
            completions: Vec::new(),
            requests: Vec::new(),
        })
    }

    /// Serves until the last handle is gone and nothing is in flight.
    pub(super) fn run(mut self) {
        let guard = AbortOnUnwind;
        loop {
            self.accept();
            if self.intake.is_closing() {
                // All requests were pushed before the last handle went, so `accept`, if it ran after, has seen them.
                self.accept();
                if self.slots.is_empty() && !self.wake_armed {
                    break;
                }
            } else if !self.wake_armed {
                self.arm_wake();
            }
            let sleeps = self.intake.fall_asleep();
            self.enter(usize::from(sleeps));
            self.intake.rise();
            self.complete();
        }
        std::mem::forget(guard);
    }

    fn accept(&mut self) {
        let mut requests = std::mem::take(&mut self.requests);
        self.intake.take(&mut requests);
        for request in requests.drain(..) {
            let slot = self.slots.insert(Operation::new(request));
            self.push_round(slot);
        }
        self.requests = requests;
    }

    /// Puts the next entry of the operation in `slot` into the submission queue.
    fn push_round(&mut self, slot: usize) {
        let entry = self.slots.get(slot).entry();
        self.push(entry.user_data(slot as u64));
    }

    fn arm_wake(&mut self) {
        let fd = types::Fd(self.intake.wake_fd().as_raw_fd());
        let entry = opcode::Read::new(fd, self.wake_count.as_mut_ptr(), 8).build().user_data(WAKE);
        self.push(entry);
        self.wake_armed = true;
    }

    fn push(&mut self, entry: Entry) {
        // SAFETY: what the entry points to is owned by its operation, which stays in its slot until its completion
        // is in (`complete`), or by `self.wake_count`, and `run` does not return before the wake-up's completion is in. Descriptors are held open by the operation's file and by the intake. If this thread
        // unwinds, `AbortOnUnwind` ends the process before anything is freed.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.expect("the submission queue has room for every operation that is admitted");
    }

    /// Hands the queue to the kernel and waits for `want` completions.
    fn enter(&mut self, want: usize) {
        match self.ring.submit_and_wait(want) {
            // What the kernel did not take, for want of memory, it is given with the next call.
            Ok(_) => {}
            Err(error) => match Errno::from_io_error(&error) {
                // Interrupted, or out of memory for now; nothing was taken, and the queue is handed over again.
                Some(Errno::INTR) => {}
                Some(Errno::AGAIN | Errno::BUSY | Errno::NOMEM) => thread::yield_now(),
                _ => panic!("io_uring_enter failed: {error}"),
            },
        }
    }

    fn complete(&mut self) {
        let mut completions = std::mem::take(&mut self.completions);
        completions.extend(self.ring.completion().map(|entry| (entry.user_data(), entry.result())));
        for (user_data, result) in completions.drain(..) {
            if user_data == WAKE {
                self.wake_armed = false;
                continue;
            }
            let slot = user_data as usize;
            match self.slots.get(slot).completed(result) {
                Next::Again => self.push_round(slot),
                Next::Done(result) => self.slots.remove(slot).finish(result),
            }
        }
        self.completions = completions;
    }
}

/// A driver that has lost its bookkeeping can not know which memory the kernel will still write to: nothing may be
/// freed any more.
struct AbortOnUnwind;

impl Drop for AbortOnUnwind {
    fn drop(&mut self) {
        process::abort();
    }
}

/// Operations by number, numbers used again.
#[derive(Default)]
struct Slots {
    operations: Vec<Option<Operation>>,
    free: Vec<usize>,
}

impl Slots {
    fn insert(&mut self, operation: Operation) -> usize {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.operations.push(None);
            self.operations.len() - 1
        });
        self.operations[slot] = Some(operation);
        slot
    }

    fn get(&mut self, slot: usize) -> &mut Operation {
        self.operations[slot].as_mut().expect("a completion belongs to an operation in flight")
    }

    fn remove(&mut self, slot: usize) -> Operation {
        self.free.push(slot);
        self.operations[slot].take().expect("an operation in flight ends once")
    }

    fn is_empty(&self) -> bool {
        self.free.len() == self.operations.len()
    }
}

fn build(entries: u32) -> io::Result<IoUring> {
    // Completions are run when we ask for them, not by interrupting this thread (Linux 6.1).
    let modern = IoUring::builder()
        .dontfork()
        .setup_single_issuer()
        .setup_coop_taskrun()
        .setup_defer_taskrun()
        .setup_taskrun_flag()
        .build(entries);
    match modern {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => IoUring::builder().dontfork().build(entries),
        built => built,
    }
}

/// Checks that the kernel knows our operations and that the ring turns: sandboxes allow the setup and forbid the
/// rest.
fn probe(ring: &mut IoUring) -> io::Result<()> {
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe)?;
    if !ring.params().is_feature_nodrop()
        || ![opcode::Read::CODE, opcode::Writev::CODE].iter().all(|code| probe.is_supported(*code))
    {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "the kernel's io_uring is too old"));
    }
    // SAFETY: the entry points to nothing.
    let pushed = unsafe { ring.submission().push(&opcode::Nop::new().build()) };
    pushed.expect("a new queue is empty");
    ring.submit_and_wait(1)?;
    match ring.completion().next() {
        Some(_) => Ok(()),
        None => Err(io::Error::new(io::ErrorKind::Unsupported, "the kernel's io_uring does not complete")),
    }
}
