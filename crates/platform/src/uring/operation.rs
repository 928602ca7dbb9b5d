//! One operation in flight: which entries it puts into the ring, and what their completions mean.
//!
//! It owns the buffers that its entries point to, until the last of its completions is in. Short reads and writes
//! go on where they stopped; a durable write is a write linked to a sync, and the sync counts only if it ran after
//! the last byte was written.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use bytes::Bytes;
use io_uring::squeue::{Entry, Flags};
use io_uring::{opcode, types};
use rustix::io::Errno;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::ring::{Request, Work};
use crate::disk::Durable;
use crate::host::HostFile;
use crate::parts::{Parts, VECTOR_MAX};

/// Most bytes that Linux moves in one read or write (`MAX_RW_COUNT`).
const TRANSFER_BYTES_MAX: usize = 0x7fff_f000;

/// Reads from this size on go to the kernel's workers at once. Otherwise the driver thread itself copies what the page
/// cache holds, one read after the other: with eight cached 1 MiB reads in flight, 513 and 657 us each that way, 113 and
/// 132 us by workers (2 cores, ext4, noisy machine, two runs each). The border is a choice: at 256 KiB workers were no
/// slower at any depth, smaller reads were not tried.
const WORKER_READ_BYTES_MIN: usize = 256 << 10;

/// An operation that is in the ring, or about to be.
pub(super) struct Operation {
    file: Arc<HostFile>,
    permit: OwnedSemaphorePermit,
    kind: Kind,
    /// Entries in the ring whose completions are not in yet.
    outstanding: u8,
}

enum Kind {
    Read(Read),
    Write(Write),
}

/// Which entry of an operation a completion is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Transfer,
    Sync,
}

/// The entries for one round.
pub(super) enum Entries {
    One(Entry, Stage),
    /// A write and the sync that is linked to it.
    Linked(Entry, Entry),
}

/// What a completion leads to.
#[derive(Debug)]
pub(super) enum Next {
    /// Another completion is on its way.
    Wait,
    /// Another round of entries.
    Again,
    /// The submitter is to be told.
    Done(io::Result<()>),
}

impl Operation {
    pub(super) fn new(request: Request) -> Self {
        let kind = match request.work {
            Work::Read { offset, len, reply } => {
                Kind::Read(Read { offset, len, buffer: Vec::with_capacity(len), reply })
            }
            Work::Write { parts, durable, reply } => Kind::Write(Write {
                parts,
                durable,
                vectors: Vec::new(),
                written: None,
                synced: None,
                link_broken: false,
                reply,
            }),
        };
        Self { file: request.file, permit: request.permit, kind, outstanding: 0 }
    }

    /// The entries of the next round. They point into the operation's buffers: it must live, and not be asked
    /// again, until their completions are in.
    pub(super) fn entries(&mut self) -> Entries {
        let fd = types::Fd(self.file.fd().as_raw_fd());
        let entries = match &mut self.kind {
            Kind::Read(read) => Entries::One(read.entry(fd), Stage::Transfer),
            Kind::Write(write) => write.entries(fd),
        };
        self.outstanding = match entries {
            Entries::One(..) => 1,
            Entries::Linked(..) => 2,
        };
        entries
    }

    /// Takes the completion of one entry: a count of bytes, or a negative error number.
    pub(super) fn completed(&mut self, stage: Stage, result: i32) -> Next {
        self.outstanding = self.outstanding.checked_sub(1).expect("a completion belongs to an entry");
        match &mut self.kind {
            Kind::Read(read) => read.completed(result),
            Kind::Write(write) => {
                match stage {
                    Stage::Transfer => write.written = Some(result),
                    Stage::Sync => write.synced = Some(result),
                }
                if self.outstanding > 0 { Next::Wait } else { write.round() }
            }
        }
    }

    /// The kernel may have taken the two entries of a link apart: the sync of this round proves nothing.
    pub(super) fn distrust_link(&mut self) {
        if let Kind::Write(write) = &mut self.kind {
            write.link_broken = true;
        }
    }

    /// Tells the submitter, if it still listens, after making room for the next operation.
    pub(super) fn finish(self, result: io::Result<()>) {
        drop(self.permit);
        match self.kind {
            Kind::Read(read) => {
                let result = result.map(|()| Bytes::from(read.buffer)).map_err(|e| self.file.explain(e, "read"));
                let _ = read.reply.send(result);
            }
            Kind::Write(write) => {
                let action = if write.parts.is_done() { "sync" } else { "write" };
                let _ = write.reply.send(result.map_err(|error| self.file.explain(error, action)));
            }
        }
    }
}

struct Read {
    offset: u64,
    len: usize,
    /// What was read; its spare capacity is the kernel's.
    buffer: Vec<u8>,
    reply: oneshot::Sender<io::Result<Bytes>>,
}

impl Read {
    fn entry(&mut self, fd: types::Fd) -> Entry {
        let done = self.buffer.len();
        let count = (self.len - done).min(TRANSFER_BYTES_MAX);
        let target = self.buffer.spare_capacity_mut()[..count].as_mut_ptr().cast();
        let entry = opcode::Read::new(fd, target, count as u32).offset(self.offset + done as u64).build();
        if count >= WORKER_READ_BYTES_MIN { entry.flags(Flags::ASYNC) } else { entry }
    }

    fn completed(&mut self, result: i32) -> Next {
        match transferred(result) {
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
            Err(error) if is_transient(&error) => Next::Again,
            Err(error) => Next::Done(Err(error)),
        }
    }
}

struct Write {
    parts: Parts,
    durable: Durable,
    /// What the kernel was pointed to in this round; points into `parts`.
    vectors: Vec<libc::iovec>,
    /// Results of this round.
    written: Option<i32>,
    synced: Option<i32>,
    link_broken: bool,
    reply: oneshot::Sender<io::Result<()>>,
}

impl Write {
    fn entries(&mut self, fd: types::Fd) -> Entries {
        self.link_broken = false;
        let sync = opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build();
        let rest = self.parts.rest();
        let offset = self.parts.offset();
        let write = match rest {
            [] => return Entries::One(sync, Stage::Sync),
            [part] => {
                let count = part.len().min(TRANSFER_BYTES_MAX) as u32;
                opcode::Write::new(fd, part.as_ptr(), count).offset(offset).build()
            }
            _ => {
                self.vectors.clear();
                self.vectors.extend(
                    rest.iter()
                        .take(VECTOR_MAX)
                        .map(|part| libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() }),
                );
                opcode::Writev::new(fd, self.vectors.as_ptr(), self.vectors.len() as u32).offset(offset).build()
            }
        };
        // A write that can not be the last needs no sync behind it.
        let last = rest.len() <= VECTOR_MAX && rest.iter().map(Bytes::len).sum::<usize>() <= TRANSFER_BYTES_MAX;
        match self.durable {
            Durable::Yes if last => Entries::Linked(write.flags(Flags::IO_LINK), sync),
            _ => Entries::One(write, Stage::Transfer),
        }
    }

    /// Judges a round whose completions are all in.
    fn round(&mut self) -> Next {
        let was_done = self.parts.is_done();
        if let Some(result) = self.written.take() {
            match transferred(result) {
                Ok(0) => return Next::Done(Err(io::ErrorKind::WriteZero.into())),
                Ok(count) => self.parts.advance(count),
                Err(error) if is_transient(&error) => {}
                Err(error) => return Next::Done(Err(error)),
            }
        }
        let is_done = self.parts.is_done();
        if let Some(result) = self.synced.take() {
            match transferred(result) {
                Ok(_) if is_done && (was_done || !self.link_broken) => return Next::Done(Ok(())),
                Ok(_) => {}
                // A short write breaks the link: the kernel cancels the sync, and the rest brings another.
                Err(error) if is_transient(&error) || error.raw_os_error() == Some(libc::ECANCELED) => {}
                // An error that the sync found is told once by the kernel, so it is told by us, whatever the write
                // did.
                Err(error) => return Next::Done(Err(error)),
            }
        }
        if is_done && self.durable == Durable::No { Next::Done(Ok(())) } else { Next::Again }
    }
}

fn transferred(result: i32) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(result.saturating_neg()))
}

fn is_transient(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::INTR | Errno::AGAIN))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::threads::Pool;
    use tokio::sync::Semaphore;

    type Answer<T> = oneshot::Receiver<io::Result<T>>;

    fn operation(work: Work) -> Operation {
        let fd = rustix::fs::open("/dev/null", rustix::fs::OFlags::RDWR, rustix::fs::Mode::empty()).unwrap();
        let file = Arc::new(HostFile::new(fd, "f", Pool::new(1, 1)));
        let permit = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        Operation::new(Request { file, work, permit })
    }

    fn write(parts: &[&'static [u8]], durable: Durable) -> (Operation, Answer<()>) {
        let (reply, answer) = oneshot::channel();
        let parts = Parts::new(10, parts.iter().map(|part| Bytes::from_static(part)).collect());
        (operation(Work::Write { parts, durable, reply }), answer)
    }

    fn offset(operation: &Operation) -> u64 {
        let Kind::Write(write) = &operation.kind else { panic!("a write") };
        write.parts.offset()
    }

    #[test]
    fn a_short_write_breaks_the_link_and_both_are_done_again() {
        let (mut op, mut answer) = write(&[b"abc", b"defg"], Durable::Yes);
        assert!(matches!(op.entries(), Entries::Linked(..)));
        assert!(matches!(op.completed(Stage::Transfer, 4), Next::Wait));
        assert!(matches!(op.completed(Stage::Sync, -libc::ECANCELED), Next::Again));
        assert_eq!(offset(&op), 14);
        assert!(matches!(op.entries(), Entries::Linked(..)));
        assert!(matches!(op.completed(Stage::Transfer, 3), Next::Wait));
        let Next::Done(result) = op.completed(Stage::Sync, 0) else { panic!("done") };
        op.finish(result);
        answer.try_recv().unwrap().unwrap();
    }

    #[test]
    fn a_sync_that_ran_although_the_write_was_short_proves_nothing() {
        let (mut op, _answer) = write(&[b"abc"], Durable::Yes);
        op.entries();
        op.completed(Stage::Transfer, 1);
        assert!(matches!(op.completed(Stage::Sync, 0), Next::Again));
        op.entries();
        op.completed(Stage::Transfer, 2);
        assert!(matches!(op.completed(Stage::Sync, 0), Next::Done(Ok(()))));
    }

    #[test]
    fn a_sync_of_a_broken_link_is_done_again_alone() {
        let (mut op, _answer) = write(&[b"abc"], Durable::Yes);
        op.entries();
        op.distrust_link();
        op.completed(Stage::Sync, 0);
        assert!(matches!(op.completed(Stage::Transfer, 3), Next::Again));
        assert!(matches!(op.entries(), Entries::One(_, Stage::Sync)));
        assert!(matches!(op.completed(Stage::Sync, 0), Next::Done(Ok(()))));
    }

    #[test]
    fn an_error_of_either_entry_is_told() {
        let table: &[(i32, i32, io::ErrorKind)] = &[
            (-libc::ENOSPC, -libc::ECANCELED, io::ErrorKind::StorageFull),
            (-libc::EDQUOT, -libc::ECANCELED, io::ErrorKind::StorageFull),
            (0, -libc::ECANCELED, io::ErrorKind::WriteZero),
            (3, -libc::EROFS, io::ErrorKind::ReadOnlyFilesystem),
            (1, -libc::ENOSPC, io::ErrorKind::StorageFull),
        ];
        for (written, synced, kind) in table {
            let (mut op, mut answer) = write(&[b"abc"], Durable::Yes);
            op.entries();
            op.completed(Stage::Transfer, *written);
            let Next::Done(result) = op.completed(Stage::Sync, *synced) else { panic!("done") };
            op.finish(result);
            assert_eq!(answer.try_recv().unwrap().unwrap_err().kind(), *kind, "{written} {synced}");
        }
    }

    #[test]
    fn an_interrupted_write_is_done_again() {
        let (mut op, _answer) = write(&[b"abc"], Durable::No);
        op.entries();
        assert!(matches!(op.completed(Stage::Transfer, -libc::EINTR), Next::Again));
        op.entries();
        assert!(matches!(op.completed(Stage::Transfer, 3), Next::Done(Ok(()))));
    }

    #[test]
    fn more_parts_than_a_vector_takes_are_written_in_rounds_and_synced_once() {
        let (mut op, _answer) = write(&[&b"x"[..]; VECTOR_MAX + 1], Durable::Yes);
        assert!(matches!(op.entries(), Entries::One(_, Stage::Transfer)));
        assert!(matches!(op.completed(Stage::Transfer, VECTOR_MAX as i32), Next::Again));
        assert!(matches!(op.entries(), Entries::Linked(..)));
    }

    #[test]
    fn a_short_read_goes_on_to_the_end_of_the_file() {
        let (reply, mut answer) = oneshot::channel();
        let mut op = operation(Work::Read { offset: 0, len: 10, reply });
        for count in [4, -libc::EINTR, 2] {
            op.entries();
            if let (Kind::Read(read), true) = (&mut op.kind, count > 0) {
                for slot in &mut read.buffer.spare_capacity_mut()[..count as usize] {
                    slot.write(7);
                }
            }
            assert!(matches!(op.completed(Stage::Transfer, count), Next::Again));
        }
        op.entries();
        let Next::Done(result) = op.completed(Stage::Transfer, 0) else { panic!("done") };
        op.finish(result);
        assert_eq!(answer.try_recv().unwrap().unwrap(), [7; 6][..]);
    }
}
