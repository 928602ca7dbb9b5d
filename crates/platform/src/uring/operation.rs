//! One read in flight: its entry in the ring, and what the completions mean.
//!
//! It owns the buffer that its entry points to, until the completion is in. A short read goes on where it stopped.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use bytes::Bytes;
use io_uring::squeue::{Entry, Flags};
use io_uring::{opcode, types};
use rustix::io::Errno;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::ring::Request;
use crate::host::HostFile;

/// Most bytes that Linux moves in one read (`MAX_RW_COUNT`).
const TRANSFER_BYTES_MAX: usize = 0x7fff_f000;

/// Reads from this size on go to the kernel's workers at once. Otherwise the driver thread itself copies what the page
/// cache holds, one read after the other: with eight cached 1 MiB reads in flight, 513 and 657 us each that way, 113 and
/// 132 us by workers (2 cores, ext4, noisy machine, two runs each). The border is a choice: at 256 KiB workers were no
/// slower at any depth, smaller reads were not tried.
const WORKER_READ_BYTES_MIN: usize = 256 << 10;

/// A read that is in the ring, or about to be.
pub(super) struct Operation {
    file: Arc<HostFile>,
    permit: OwnedSemaphorePermit,
    offset: u64,
    len: usize,
    /// What was read; its spare capacity is the kernel's.
    buffer: Vec<u8>,
    reply: oneshot::Sender<io::Result<Bytes>>,
}

/// What a completion leads to.
#[derive(Debug)]
pub(super) enum Next {
    /// Another entry.
    Again,
    /// The submitter is to be told.
    Done(io::Result<()>),
}

impl Operation {
    pub(super) fn new(request: Request) -> Self {
        let Request { file, offset, len, reply, permit } = request;
        Self { file, permit, offset, len, buffer: Vec::with_capacity(len), reply }
    }

    /// The next entry. It points into the operation's buffer: it must live, and not be asked again, until the
    /// completion is in.
    pub(super) fn entry(&mut self) -> Entry {
        let fd = types::Fd(self.file.fd().as_raw_fd());
        let done = self.buffer.len();
        let count = (self.len - done).min(TRANSFER_BYTES_MAX);
        let target = self.buffer.spare_capacity_mut()[..count].as_mut_ptr().cast();
        let entry = opcode::Read::new(fd, target, count as u32).offset(self.offset + done as u64).build();
        if count >= WORKER_READ_BYTES_MIN { entry.flags(Flags::ASYNC) } else { entry }
    }

    /// Takes the completion of an entry: a count of bytes, or a negative error number.
    pub(super) fn completed(&mut self, result: i32) -> Next {
        match usize::try_from(result) {
            Ok(0) => Next::Done(Ok(())),
            Ok(count) => {
                let done = self.buffer.len() + count;
                assert!(done <= self.len, "the kernel read more than it was asked for");
                // SAFETY: `done` is within the capacity, which is at least `len` since `Operation::new`; the bytes
                // up to the former length were initialised before, and the kernel has written the `count` bytes
                // after them, to where `entry` pointed it.
                unsafe { self.buffer.set_len(done) };
                if done == self.len { Next::Done(Ok(())) } else { Next::Again }
            }
            Err(_) => {
                let error = io::Error::from_raw_os_error(result.saturating_neg());
                match Errno::from_io_error(&error) {
                    Some(Errno::INTR | Errno::AGAIN) => Next::Again,
                    _ => Next::Done(Err(error)),
                }
            }
        }
    }

    /// Tells the submitter, if it still listens, after making room for the next operation.
    pub(super) fn finish(self, result: io::Result<()>) {
        drop(self.permit);
        let result = result.map(|()| Bytes::from(self.buffer)).map_err(|error| self.file.explain(error, "read"));
        let _ = self.reply.send(result);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Writes;
    use crate::threads::Pool;
    use tokio::sync::Semaphore;

    fn read(len: usize) -> (Operation, oneshot::Receiver<io::Result<Bytes>>) {
        let fd = rustix::fs::open("/dev/null", rustix::fs::OFlags::RDWR, rustix::fs::Mode::empty()).unwrap();
        let file = Arc::new(HostFile::new(fd, "f", Pool::new(1, 1), Writes::Cached));
        let permit = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        let (reply, answer) = oneshot::channel();
        (Operation::new(Request { file, offset: 0, len, reply, permit }), answer)
    }

    #[test]
    fn a_short_read_goes_on_to_the_end_of_the_file() {
        let (mut op, mut answer) = read(10);
        for count in [4, -libc::EINTR, 2] {
            op.entry();
            if count > 0 {
                for slot in &mut op.buffer.spare_capacity_mut()[..count as usize] {
                    slot.write(7);
                }
            }
            assert!(matches!(op.completed(count), Next::Again));
        }
        op.entry();
        let Next::Done(result) = op.completed(0) else { panic!("done") };
        op.finish(result);
        assert_eq!(answer.try_recv().unwrap().unwrap(), [7; 6][..]);
    }

    #[test]
    fn an_error_is_told() {
        let (mut op, mut answer) = read(10);
        op.entry();
        let Next::Done(result) = op.completed(-libc::ESTALE) else { panic!("done") };
        op.finish(result);
        let error = answer.try_recv().unwrap().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StaleNetworkFileHandle);
    }
}
