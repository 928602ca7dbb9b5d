//! Pages of the page cache on their way to a socket, which are not copied.
//!
//! What is read from a file to be verified is in the page cache at that moment. [`PagePipe`] takes hold of those pages through a pipe and hands them to a socket: the copy
//! from memory of this process into that of the socket is saved (docs/adr/0020).
//!
//! A page that was lent can be dropped from the page cache, and it keeps its bytes for who has it: until the last byte was received, on the same machine by the program at the other end.
//! Bytes that may be lent must thus never be changed in place: what [`DiskFile::evict`] is for.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use rustix::io::{Errno, retry_on_intr};
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use rustix::time::{ClockId, clock_gettime};

use crate::disk::DiskFile;

/// Where bytes lie in a file.
#[derive(Clone)]
pub struct FilePlace {
    /// The file.
    pub file: Arc<dyn DiskFile>,
    /// Offset in it of the first byte.
    pub offset: u64,
}

impl fmt::Debug for FilePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FilePlace").field("offset", &self.offset).finish_non_exhaustive()
    }
}

/// Where the bytes lie that a stream gave last; shared by the stream and by who sends what it gives.
#[derive(Debug, Clone, Default)]
pub struct FilePlaces(Arc<Mutex<VecDeque<Placed>>>);

/// Bytes in memory, by address and length, and in a file.
#[derive(Debug)]
struct Placed {
    address: usize,
    len: usize,
    place: FilePlace,
}

impl FilePlaces {
    /// Sets them anew: of `pieces`, which lie at `places`, one after the other.
    pub fn set(&self, pieces: &[Bytes], places: impl IntoIterator<Item = FilePlace>) {
        let mut placed = self.0.lock();
        placed.clear();
        placed.extend(pieces.iter().zip(places).map(|(piece, place)| Placed {
            address: piece.as_ptr().addr(),
            len: piece.len(),
            place,
        }));
    }

    /// Forgets all of them.
    pub fn clear(&self) {
        self.0.lock().clear();
    }

    /// Whether there is none left to be taken.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// Takes the place of a piece, which must be the very bytes that it was set of. Those of pieces before it are forgotten.
    pub fn take(&self, piece: &Bytes) -> Option<FilePlace> {
        let mut placed = self.0.lock();
        let key = (piece.as_ptr().addr(), piece.len());
        let at = placed.iter().position(|placed| (placed.address, placed.len) == key)?;
        placed.drain(..=at).next_back().map(|placed| placed.place)
    }
}

/// Bytes of a pipe, if all of its pages are full. Pieces begin and end amid pages, so that half a mebibyte of them needs more than as many. Unprivileged users may have pipes of 1 MiB,
/// and 64 MiB of them, as a rule.
const PIPE_BYTES: usize = 1 << 20;

/// Most pipes at a time. Clients beyond are served with copies.
const PIPES_MAX: usize = 64;

/// Pipes that are not in use.
static IDLE: Mutex<Vec<Ends>> = Mutex::new(Vec::new());
/// How many there are, in use or not.
static COUNT: AtomicUsize = AtomicUsize::new(0);

#[derive(Debug)]
struct Ends {
    read: OwnedFd,
    write: OwnedFd,
}

/// Holds pages between files and a socket. At most 64 are there at a time, with two descriptors each.
#[derive(Debug)]
pub struct PagePipe {
    /// Empty only while being dropped.
    ends: Option<Ends>,
    /// What it holds.
    bytes: usize,
}

impl PagePipe {
    /// An empty one; nothing if there are as many as there may be, or the kernel can not do it.
    #[must_use]
    pub fn take() -> Option<Self> {
        if !Self::is_supported() {
            return None;
        }
        if let Some(ends) = IDLE.lock().pop() {
            return Some(Self { ends: Some(ends), bytes: 0 });
        }
        let counted =
            COUNT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| (count < PIPES_MAX).then_some(count + 1));
        counted.ok()?;
        // From here on dropping it counts it off.
        let mut pipe = Self { ends: None, bytes: 0 };
        pipe.ends = Some(Ends::new().ok()?);
        Some(pipe)
    }

    /// Whether pages can be sent here at all. Asked for the first time it tries, twice if need be, which takes a fifth of a second each time that the kernel waits.
    #[must_use]
    pub fn is_supported() -> bool {
        static SUPPORTED: LazyLock<bool> = LazyLock::new(|| match try_out().or_else(|_| try_out()) {
            Ok(()) => true,
            Err(error) => {
                tracing::info!(%error, "what is sent is copied: the kernel can not pass pages on");
                false
            }
        });
        *SUPPORTED
    }

    /// Takes hold of up to `len` bytes at a place in a file; says of how many it has.
    pub fn fill(&mut self, place: &FilePlace, len: usize) -> usize {
        let Some(ends) = &self.ends else { return 0 };
        // What it is that hinders, whoever reads the file will hear.
        let filled = place.file.lend_pages(ends.write.as_fd(), place.offset, len).unwrap_or(0);
        self.bytes += filled;
        filled
    }

    /// Hands up to `len` bytes to a socket that does not block; says how many it took.
    ///
    /// # Errors
    /// `WouldBlock` when the socket takes nothing now; any other: it is broken.
    pub fn send(&mut self, socket: BorrowedFd<'_>, len: usize) -> io::Result<usize> {
        let Some(ends) = &self.ends else { return Ok(0) };
        let sent = retry_on_intr(|| splice(&ends.read, None, socket, None, len, SpliceFlags::NONBLOCK))?;
        self.bytes = self.bytes.saturating_sub(sent);
        Ok(sent)
    }
}

impl Drop for PagePipe {
    fn drop(&mut self) {
        match self.ends.take() {
            Some(ends) if self.bytes == 0 => IDLE.lock().push(ends),
            // What is in it nobody may get.
            _ => {
                COUNT.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }
}

impl Ends {
    fn new() -> io::Result<Self> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        // The system bounds the pipes of a user.
        fcntl_setpipe_size(&write, PIPE_BYTES)?;
        Ok(Self { read, write })
    }
}

/// Longest time that a socket is waited for which takes nothing, should the kernel wait.
const TRIAL: Duration = Duration::from_millis(200);

/// Sends a page to a socket that takes nothing. It is not to block; but kernels were that waited all the same, and a thread of ours would wait for a client.
fn try_out() -> io::Result<()> {
    let (mut socket, _peer) = UnixStream::pair()?;
    socket.set_write_timeout(Some(TRIAL))?;
    socket.set_nonblocking(true)?;
    while socket.write(&[0; 4096]).is_ok() {}
    let ends = Ends::new()?;
    rustix::io::write(&ends.write, &[0; 4096])?;
    let now = || Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default();
    let before = now();
    let sent = splice(&ends.read, None, &socket, None, 4096, SpliceFlags::NONBLOCK);
    let waited = now().saturating_sub(before);
    match sent {
        Err(Errno::AGAIN) if waited < TRIAL / 2 => Ok(()),
        Err(Errno::AGAIN) => Err(io::Error::other("it waits for sockets that are not to block")),
        Err(errno) => Err(errno.into()),
        Ok(_) => Err(io::Error::other("a full socket took a page")),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};

    use rustix::fs::{Mode, OFlags};

    use super::*;
    use crate::host::{HostFile, Writes};
    use crate::threads::{Pool, ThreadFile};

    /// Held by tests that take pipes: one of them takes all.
    static TURN: Mutex<()> = Mutex::new(());

    /// A file of which each block has its number in every byte.
    fn numbered(blocks: u8) -> (tempfile::TempDir, FilePlace) {
        written((0..blocks).map(|number| vec![number; 4096]))
    }

    /// A file that was written so.
    fn written(pieces: impl IntoIterator<Item = Vec<u8>>) -> (tempfile::TempDir, FilePlace) {
        let dir = tempfile::tempdir().unwrap();
        let fd = rustix::fs::open(dir.path().join("f"), OFlags::RDWR | OFlags::CREATE, Mode::RWXU).unwrap();
        for piece in pieces {
            assert_eq!(rustix::io::write(&fd, &piece).unwrap(), piece.len());
        }
        // What is dirty can not be dropped.
        rustix::fs::fdatasync(&fd).unwrap();
        let file = ThreadFile::new(HostFile::new(fd, "f", Pool::new(1, 1), Writes::InPlace));
        (dir, FilePlace { file: Arc::new(file), offset: 0 })
    }

    fn at(place: &FilePlace, offset: u64) -> FilePlace {
        FilePlace { offset, ..place.clone() }
    }

    /// What was received may be given back a moment later, on the processor that sent it.
    fn until(let_go: impl Fn() -> bool) {
        assert!((0..10_000).any(|_| let_go()), "nobody has it any more");
    }

    fn connection() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let far = listener.accept().unwrap().0;
        near.set_nonblocking(true).unwrap();
        (near, far)
    }

    #[test]
    fn pages_go_from_files_to_a_socket() {
        let _turn = TURN.lock();
        let (_dir, file) = numbered(8);
        let (near, mut far) = connection();
        let Some(mut pipe) = PagePipe::take() else { return };
        assert_eq!(pipe.fill(&at(&file, 4096), 8192), 8192);
        assert_eq!(pipe.fill(&at(&file, 100), 10), 10);
        assert_eq!(pipe.fill(&at(&file, 7 * 4096), 8192), 4096, "the file ends");
        assert_eq!(pipe.fill(&at(&file, 8 * 4096), 4096), 0);
        assert_eq!(pipe.send(near.as_fd(), 8000).unwrap(), 8000);
        let mut sent = 8000;
        while sent < 8192 + 10 + 4096 {
            sent += pipe.send(near.as_fd(), 8192 + 10 + 4096 - sent).unwrap();
        }
        drop(near);
        let mut got = Vec::new();
        far.read_to_end(&mut got).unwrap();
        assert_eq!(got, [vec![1; 4096], vec![2; 4096], vec![0; 10], vec![7; 4096]].concat());
    }

    #[test]
    fn a_socket_that_takes_nothing_is_not_waited_for() {
        let _turn = TURN.lock();
        let (_dir, file) = numbered(128);
        let (near, mut far) = connection();
        let Some(mut pipe) = PagePipe::take() else { return };
        let (mut filled, mut sent) = (0, 0);
        let error = loop {
            if filled == sent {
                filled += pipe.fill(&file, 128 * 4096);
            }
            match pipe.send(near.as_fd(), filled - sent) {
                Ok(bytes) => sent += bytes,
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        drop((near, pipe));
        let mut got = Vec::new();
        far.read_to_end(&mut got).unwrap();
        assert_eq!(got.len(), sent);
        assert!(got.iter().enumerate().all(|(at, &byte)| byte == (at / 4096 % 128) as u8));
    }

    #[test]
    fn what_was_left_in_a_pipe_nobody_gets() {
        let _turn = TURN.lock();
        let (_dir, file) = numbered(3);
        let Some(mut pipe) = PagePipe::take() else { return };
        assert_eq!(pipe.fill(&file, 4096), 4096);
        drop(pipe);
        let pipes: Vec<_> = std::iter::from_fn(PagePipe::take).collect();
        assert!(pipes.len() <= PIPES_MAX);
        let (near, _far) = connection();
        for mut pipe in pipes {
            let error = pipe.send(near.as_fd(), 4096).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "it is empty");
        }
    }

    #[test]
    fn a_range_is_not_let_go_while_somebody_has_a_page_at_its_edge() {
        let _turn = TURN.lock();
        let (_dir, place) = numbered(16);
        let evict = |offset, len| futures::executor::block_on(place.file.evict(offset, len)).unwrap();
        let Some(mut pipe) = PagePipe::take() else { return };
        // Not every file system that tests run on can drop pages.
        if !evict(4096, 8192) {
            return;
        }
        assert_eq!(pipe.fill(&at(&place, 8 * 4096), 4096), 4096);
        assert!(!evict(8 * 4096, 8192));
        assert!(!evict(6 * 4096, 3 * 4096));
        assert!(evict(8 * 4096, 0));
        let (near, mut far) = connection();
        assert_eq!(pipe.send(near.as_fd(), 4096).unwrap(), 4096);
        assert!(!evict(8 * 4096, 8192), "it is on its way");
        far.read_exact(&mut [0; 4096]).unwrap();
        drop((near, far, pipe));
        until(|| evict(8 * 4096, 8192));
    }

    #[test]
    fn a_hole_changes_nothing_that_was_lent() {
        // In one piece, of which the kernel makes large pages where it can.
        let (_dir, place) = written([vec![7; 2 << 20]]);
        let _turn = TURN.lock();
        let Some(mut pipe) = PagePipe::take() else { return };
        let (hole, len) = (38 * 4096, 5 * 4096);
        let may_punch = || futures::executor::block_on(place.file.evict(hole, len)).unwrap();
        // Not every file system that tests run on can drop pages.
        if !may_punch() || pipe.fill(&at(&place, 40 * 4096), 4096) < 4096 {
            return;
        }
        let punched = may_punch();
        if punched {
            futures::executor::block_on(place.file.punch(hole, len)).unwrap();
        }
        let (near, mut far) = connection();
        assert_eq!(pipe.send(near.as_fd(), 4096).unwrap(), 4096);
        let mut got = [0; 4096];
        far.read_exact(&mut got).unwrap();
        assert_eq!(got, [7; 4096]);
        drop((near, far, pipe));
        if !punched {
            until(may_punch);
        }
    }

    #[test]
    fn only_the_very_bytes_have_a_place() {
        let (_dir, file) = numbered(1);
        let pieces: Vec<Bytes> = [3, 4, 5].map(|len| Bytes::from(vec![1; len])).to_vec();
        let places = FilePlaces::default();
        places.set(&pieces, (0..3).map(|offset| at(&file, offset)));
        let offset = |piece: &Bytes| places.take(piece).map(|place| place.offset);
        assert_eq!(offset(&Bytes::from(vec![1; 3])), None);
        assert_eq!(offset(&pieces[1].slice(1..)), None);
        assert_eq!(offset(&pieces[1]), Some(1));
        assert_eq!((offset(&pieces[0]), offset(&pieces[1])), (None, None), "they are behind it");
        assert_eq!(offset(&pieces[2]), Some(2));
        places.set(&pieces[..1], [at(&file, 9)]);
        assert_eq!((offset(&pieces[2]), offset(&pieces[0])), (None, Some(9)));
    }
}
