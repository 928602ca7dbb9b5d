//! One read in flight: its entry in the ring, and what the completions mean.
//!
//! It owns the buffer that its entry points to, until the completion is in. A short read goes on where it stopped.

use std::cell::UnsafeCell;
use std::fmt;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use bytes::Bytes;
use io_uring::squeue::{Entry, Flags};
use io_uring::{opcode, types};
use rustix::io::Errno;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::ring::{Reader, Request, Work};
use crate::disk::Durable;
use crate::host::HostFile;
use crate::parts::{Parts, VECTOR_MAX};

/// Most bytes that Linux moves in one read (`MAX_RW_COUNT`).
const TRANSFER_BYTES_MAX: usize = 0x7fff_f000;

/// Reads from this size on go to the kernel's workers at once. Otherwise the driver thread itself copies what the page
/// cache holds, one read after the other: with eight cached 1 MiB reads in flight, 513 and 657 us each that way, 113 and
/// 132 us by workers (2 cores, ext4, noisy machine, two runs each). The border is a choice: at 256 KiB workers were no
/// slower at any depth, smaller reads were not tried.
const WORKER_READ_BYTES_MIN: usize = 256 << 10;

/// Bytes of the sink.
const SINK_BYTES: usize = 128 << 10;

/// Where the kernel puts what is read for the page cache alone, many at a time in the same bytes: nobody reads them. Each target has its own, which stays in the caches of
/// the processor that its driver runs on.
pub(super) struct Sink(UnsafeCell<[u8; SINK_BYTES]>);

// SAFETY: no reference to its bytes is ever made, only the address is handed to the kernel.
unsafe impl Sync for Sink {}

impl Sink {
    pub(super) fn new() -> Self {
        Self(UnsafeCell::new([0; SINK_BYTES]))
    }
}

impl fmt::Debug for Sink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sink")
    }
}

/// How much of the `rest` at `at` of a file is read next for the page cache, when `done` bytes were. By two reads of a page each the kernel takes a
/// reader for one that goes on, from the smallest size on: it reads four times as much ahead each time, in pages four times as large.
fn load_count(at: u64, rest: usize, done: usize) -> usize {
    let page_bytes = rustix::param::page_size();
    let most = if done < 2 * page_bytes { page_bytes - at as usize % page_bytes } else { SINK_BYTES };
    rest.min(most).min(SINK_BYTES)
}

/// An operation that is in the ring, or about to be.
pub(super) struct Operation {
    file: Arc<HostFile>,
    permit: OwnedSemaphorePermit,
    state: State,
}

enum State {
    /// `buffer` is what was read; its spare capacity is the kernel's.
    Read { offset: u64, len: usize, buffer: Vec<u8>, reply: oneshot::Sender<io::Result<Bytes>> },
    /// `done` bytes are in the page cache.
    Load { reader: Reader, offset: u64, len: usize, done: usize, reply: oneshot::Sender<()> },
    /// `vectors` are the kernel's, and point into `parts`.
    WriteInPlace { parts: Parts, vectors: Vec<libc::iovec>, reply: oneshot::Sender<io::Result<()>> },
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
        let Request { file, work, permit } = request;
        let state = match work {
            Work::Read { offset, len, reply } => State::Read { offset, len, buffer: Vec::with_capacity(len), reply },
            Work::Load { reader, offset, len, reply } => State::Load { reader, offset, len, done: 0, reply },
            Work::WriteInPlace { parts, reply } => State::WriteInPlace { parts, vectors: Vec::new(), reply },
        };
        Self { file, permit, state }
    }

    /// The next entry. It points into what the operation owns: that must live, and not be asked again, until the
    /// completion is in.
    pub(super) fn entry(&mut self) -> Entry {
        match &mut self.state {
            State::Read { offset, len, buffer, .. } => {
                let fd = types::Fd(self.file.fd().as_raw_fd());
                let done = buffer.len();
                let count = (*len - done).min(TRANSFER_BYTES_MAX);
                let target = buffer.spare_capacity_mut()[..count].as_mut_ptr().cast();
                let entry = opcode::Read::new(fd, target, count as u32).offset(*offset + done as u64).build();
                if count >= WORKER_READ_BYTES_MIN { entry.flags(Flags::ASYNC) } else { entry }
            }
            State::Load { reader, offset, len, done, .. } => {
                let at = *offset + *done as u64;
                let count = load_count(at, *len - *done, *done);
                opcode::Read::new(types::Fd(reader.fd.as_raw_fd()), reader.sink.0.get().cast(), count as u32)
                    .offset(at)
                    .build()
            }
            State::WriteInPlace { parts, vectors, .. } => {
                let fd = types::Fd(self.file.direct_fd().expect("it goes in place").as_raw_fd());
                let vector =
                    |part: &Bytes| libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() };
                *vectors = parts.rest().iter().take(VECTOR_MAX).map(vector).collect();
                let entry = opcode::Writev::new(fd, vectors.as_ptr(), vectors.len() as u32);
                entry.offset(parts.offset()).rw_flags(libc::RWF_DSYNC).build()
            }
        }
    }

    /// Takes the completion of an entry: a count of bytes, or a negative error number.
    pub(super) fn completed(&mut self, result: i32) -> Next {
        let count = usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(result.saturating_neg()));
        match (&mut self.state, count) {
            (State::Read { .. }, Ok(0)) => Next::Done(Ok(())),
            (State::Read { len, buffer, .. }, Ok(count)) => {
                let done = buffer.len() + count;
                assert!(done <= *len, "the kernel read more than it was asked for");
                // SAFETY: `done` is within the capacity, which is at least `len` since `Operation::new`; the bytes
                // up to the former length were initialised before, and the kernel has written the `count` bytes
                // after them, to where `entry` pointed it.
                unsafe { buffer.set_len(done) };
                if done == *len { Next::Done(Ok(())) } else { Next::Again }
            }
            (State::Read { .. }, Err(error)) => match Errno::from_io_error(&error) {
                Some(Errno::INTR | Errno::AGAIN) => Next::Again,
                _ => Next::Done(Err(error)),
            },
            (State::Load { .. }, Ok(0)) => Next::Done(Ok(())),
            (State::Load { len, done, reply, .. }, Ok(count)) => {
                *done += count;
                if *done >= *len || reply.is_closed() { Next::Done(Ok(())) } else { Next::Again }
            }
            (State::Load { reply, .. }, Err(error)) => match Errno::from_io_error(&error) {
                Some(Errno::INTR | Errno::AGAIN) if !reply.is_closed() => Next::Again,
                _ => Next::Done(Err(error)),
            },
            (State::WriteInPlace { parts, .. }, Ok(count)) => {
                assert!(count <= parts.bytes(), "the kernel wrote more than it was given");
                parts.advance(count);
                Next::Done(Ok(()))
            }
            (State::WriteInPlace { .. }, Err(error)) => match Errno::from_io_error(&error) {
                // A thread goes on.
                Some(Errno::INTR | Errno::AGAIN) => Next::Done(Ok(())),
                Some(Errno::INVAL | Errno::OPNOTSUPP) => {
                    self.file.refuse_direct();
                    Next::Done(Ok(()))
                }
                _ => Next::Done(Err(error)),
            },
        }
    }

    /// Tells the submitter, if it still listens, after making room for the next operation.
    pub(super) fn finish(self, result: io::Result<()>) {
        drop(self.permit);
        match self.state {
            State::Read { buffer, reply, .. } => {
                let result = result.map(|()| Bytes::from(buffer)).map_err(|error| self.file.explain(error, "read"));
                let _ = reply.send(result);
            }
            // Whoever reads what could not be loaded will hear.
            State::Load { reader, reply, .. } => {
                // Before the file: whoever closes that last may have to wait, and does so elsewhere.
                drop(reader);
                let _ = reply.send(());
            }
            State::WriteInPlace { parts, reply, .. } if result.is_err() || parts.is_done() => {
                let _ = reply.send(result.map_err(|error| self.file.explain(error, "write")));
            }
            // What the kernel left is written by a thread, whether or not the submitter listens.
            State::WriteInPlace { parts, reply, .. } => {
                let (file, pool) = (Arc::clone(&self.file), Arc::clone(self.file.pool()));
                pool.detach(move || {
                    let _ = reply.send(file.write_at(parts, Durable::Yes));
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Writes;
    use crate::threads::Pool;
    use std::os::fd::OwnedFd;
    use tokio::sync::Semaphore;

    fn operation(work: Work) -> Operation {
        let fd = rustix::fs::open("/dev/null", rustix::fs::OFlags::RDWR, rustix::fs::Mode::empty()).unwrap();
        operation_on(fd, work)
    }

    fn operation_on(fd: OwnedFd, work: Work) -> Operation {
        let file = Arc::new(HostFile::new(fd, "f", Pool::new(1, 1), Writes::InPlace));
        let permit = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        Operation::new(Request { file, work, permit })
    }

    fn read(len: usize) -> (Operation, oneshot::Receiver<io::Result<Bytes>>) {
        let (reply, answer) = oneshot::channel();
        (operation(Work::Read { offset: 0, len, reply }), answer)
    }

    /// What a write of 10 bytes at 4096 comes to that the ring ends with `result`, and what the file has then.
    fn write(result: i32) -> io::Result<Vec<u8>> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CREATE;
        let fd = rustix::fs::open(&path, flags, rustix::fs::Mode::RWXU).unwrap();
        let (reply, answer) = oneshot::channel();
        let parts = Parts::new(4096, vec![Bytes::from_static(b"0123"), Bytes::from_static(b"456789")]);
        let mut op = operation_on(fd, Work::WriteInPlace { parts, reply });
        let Next::Done(result) = op.completed(result) else { panic!("a thread goes on with it, not the ring") };
        op.finish(result);
        answer.blocking_recv().unwrap()?;
        Ok(std::fs::read(&path).unwrap())
    }

    #[test]
    fn a_short_read_goes_on_to_the_end_of_the_file() {
        let (mut op, mut answer) = read(10);
        for count in [4, -libc::EINTR, 2] {
            op.entry();
            if count > 0 {
                let State::Read { buffer, .. } = &mut op.state else { panic!("a read") };
                for slot in &mut buffer.spare_capacity_mut()[..count as usize] {
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
        let error = write(-libc::EIO).unwrap_err();
        assert!(error.to_string().contains("write"), "{error}");
        assert_eq!(write(-libc::ENOSPC).unwrap_err().kind(), io::ErrorKind::StorageFull);
    }

    #[test]
    fn a_load_begins_with_a_page_twice_and_ends_with_the_file_or_its_reader() {
        let load = |offset, len| {
            let reader = rustix::fs::open("/dev/null", rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty()).unwrap();
            let turn = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
            let reader = Reader { fd: reader, sink: Arc::new(Sink::new()), _turns: (turn, None) };
            let (reply, answer) = oneshot::channel();
            (operation(Work::Load { reader, offset, len, reply }), answer)
        };
        let page = rustix::param::page_size();
        assert_eq!(load_count(100, 1 << 20, 0), page - 100);
        assert_eq!(load_count(page as u64, 1 << 20, page - 100), page);
        assert_eq!(load_count(2 * page as u64, 1 << 20, 2 * page), SINK_BYTES);
        assert_eq!(load_count(2 * page as u64, 10, 2 * page), 10);
        for (results, ends) in [(&[4, -libc::EINTR, 6][..], 3), (&[4, 0], 2), (&[-libc::EIO], 1)] {
            let (mut op, mut answer) = load(0, 10);
            let mut count = 0;
            for &result in results {
                op.entry();
                count += 1;
                if let Next::Done(result) = op.completed(result) {
                    op.finish(result);
                    break;
                }
            }
            assert_eq!(count, ends);
            assert!(answer.try_recv().is_ok(), "an error is for who reads");
        }
        for result in [4, -libc::EAGAIN] {
            let (mut op, answer) = load(0, 10);
            op.entry();
            drop(answer);
            assert!(matches!(op.completed(result), Next::Done(_)), "nobody waits for the rest");
        }
    }

    #[test]
    fn what_the_kernel_leaves_of_a_write_in_place_is_written_by_a_thread() {
        // Nothing here goes to the kernel but what the thread writes.
        assert!(write(10).unwrap().is_empty());
        assert_eq!(write(5).unwrap()[4096..], [0, 0, 0, 0, 0, b'5', b'6', b'7', b'8', b'9']);
        for errno in [0, -libc::EINTR, -libc::EAGAIN, -libc::EINVAL, -libc::EOPNOTSUPP] {
            assert_eq!(write(errno).unwrap()[4096..], *b"0123456789");
        }
    }

    #[test]
    fn a_write_in_place_is_durable_and_past_the_page_cache() {
        let dir = tempfile::tempdir().unwrap();
        let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CREATE;
        let fd = rustix::fs::open(dir.path().join("f"), flags, rustix::fs::Mode::RWXU).unwrap();
        let (reply, _) = oneshot::channel();
        let parts = Parts::new(8192, vec![Bytes::from_static(&[7; 4096]), Bytes::from_static(&[8; 4096])]);
        let mut op = operation_on(fd, Work::WriteInPlace { parts, reply });
        if !op.file.prewrite(0, 65_536).unwrap() {
            return;
        }
        let entry = op.entry();
        // SAFETY: an entry is a submission queue entry as the kernel reads it, 64 bytes (`io_uring_sqe`).
        let bytes: [u8; 64] = unsafe { std::mem::transmute_copy(&entry) };
        let number = |at: usize| i32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
        assert_eq!((bytes[0], number(24), number(28)), (opcode::Writev::CODE, 2, libc::RWF_DSYNC));
        assert_eq!(number(4), op.file.direct_fd().unwrap().as_raw_fd());
        assert_eq!(u64::from_ne_bytes(bytes[8..16].try_into().unwrap()), 8192);
    }
}
