//! Writes past the page cache: long ones, and short ones to blocks that were written ahead.
//!
//! Long ones pay more for it than it gives them: pages to be found and filled, marked, collected and written back cost two to four times what
//! the copy does (docs/adr/0012). What lies in memory as drives take it is written from there, at once. Else it is copied, piece by piece, into a buffer that
//! stays with its thread and warm: a mebibyte for each of the few threads that a target has.
//!
//! It is as durable as any write: when the file was synced. Reads of the same file go by the page cache as before; the kernel forgets what it holds of a range that is written so.
//!
//! What is short stays in the page cache, where it is read soon, unless it must be durable at once and lies where zeros were written ahead: then the write and
//! its sync are one write to the drive and nothing else, which takes up to a fifth less past the page cache (docs/adr/0018).

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::memory::ALIGN_BYTES;
use crate::parts::Parts;

/// Length of the shortest write that goes this way wherever it lies, in bytes: short ones are read again soon.
const WRITE_BYTES_MIN: usize = 512 << 10;
/// Most bytes that a thread copies and writes at once, and keeps.
const PIECE_BYTES_MAX: usize = 1 << 20;

/// Zeros to write ahead, in blocks of memory.
static ZEROS: Zeros = Zeros([0; ZEROS_BYTES]);
const ZEROS_BYTES: usize = 64 << 10;
#[repr(align(4096))]
struct Zeros([u8; ZEROS_BYTES]);

/// What came of it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// What is left, if anything, must go by the page cache.
    Written,
    /// So must it, and so must all later writes: the file system can not do it.
    Unsupported,
}

/// Whether a write begins and ends where it must.
pub(super) fn is_aligned(parts: &Parts) -> bool {
    parts.bytes().is_multiple_of(ALIGN_BYTES) && parts.offset().is_multiple_of(ALIGN_BYTES as u64)
}

/// Whether a write is long enough to go past the page cache wherever it lies.
pub(super) fn is_long(parts: &Parts) -> bool {
    parts.bytes() >= WRITE_BYTES_MIN
}

/// Writes `parts`, which are then done as far as they are written. To be made durable by a sync of the file, as any write.
pub(super) fn write(direct: BorrowedFd<'_>, parts: &mut Parts) -> io::Result<Outcome> {
    if lies_in_blocks(parts) {
        return write_as_it_lies(direct, parts);
    }
    BUFFER.with_borrow_mut(|buffer| {
        let start = aligned(buffer);
        while !parts.is_done() {
            let pieces = parts.bytes().div_ceil(PIECE_BYTES_MAX);
            let piece_bytes = parts.bytes().div_ceil(pieces).next_multiple_of(ALIGN_BYTES).min(parts.bytes());
            let piece = &mut buffer[start..start + piece_bytes];
            parts.copy_front(piece);
            match rustix::io::pwrite(direct, piece, parts.offset()) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => parts.advance(bytes),
                Err(Errno::INTR) => {}
                Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(Outcome::Unsupported),
                Err(errno) => return Err(errno.into()),
            }
            if !parts.offset().is_multiple_of(ALIGN_BYTES as u64) {
                // It was cut short where no such write can begin.
                break;
            }
        }
        Ok(Outcome::Written)
    })
}

/// Writes `len` zeros at `offset`, both multiples of a block. To be made durable by a sync, as any write.
pub(super) fn write_zeros(direct: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<Outcome> {
    let end = offset + len;
    let mut at = offset;
    while at < end {
        let mut rest = (end - at).min(PIECE_BYTES_MAX as u64) as usize;
        let mut vectors = Vec::with_capacity(rest.div_ceil(ZEROS_BYTES));
        while rest > 0 {
            let bytes = rest.min(ZEROS_BYTES);
            vectors.push(IoSlice::new(&ZEROS.0[..bytes]));
            rest -= bytes;
        }
        match rustix::io::pwritev(direct, &vectors, at) {
            // What was cut short goes on where such a write can begin, if that is further on.
            Ok(bytes) if bytes < ALIGN_BYTES => return Err(io::ErrorKind::WriteZero.into()),
            Ok(bytes) => at += (bytes / ALIGN_BYTES * ALIGN_BYTES) as u64,
            Err(Errno::INTR) => {}
            Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(Outcome::Unsupported),
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(Outcome::Written)
}

/// Whether the drive can take all parts from where they lie.
pub(super) fn lies_in_blocks(parts: &Parts) -> bool {
    let is_multiple = |bytes: usize| bytes.is_multiple_of(ALIGN_BYTES);
    parts.rest().iter().all(|part| is_multiple(part.as_ptr().addr()) && is_multiple(part.len()))
}

fn write_as_it_lies(direct: BorrowedFd<'_>, parts: &mut Parts) -> io::Result<Outcome> {
    // What was cut short goes on if it can.
    while !parts.is_done() && is_aligned(parts) && lies_in_blocks(parts) {
        match rustix::io::pwritev(direct, &parts.vectors(), parts.offset()) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(bytes) => parts.advance(bytes),
            Err(Errno::INTR) => {}
            Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(Outcome::Unsupported),
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(Outcome::Written)
}

/// The same file again, for writes past the page cache.
pub(super) fn open(file: BorrowedFd<'_>) -> rustix::io::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    rustix::fs::open(path, OFlags::WRONLY | OFlags::DIRECT | OFlags::CLOEXEC, Mode::empty())
}

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Makes the buffer as long as a piece may be; says where in it one begins.
fn aligned(buffer: &mut Vec<u8>) -> usize {
    buffer.resize(PIECE_BYTES_MAX + ALIGN_BYTES, 0);
    buffer.as_ptr().align_offset(ALIGN_BYTES)
}

#[cfg(test)]
mod tests {
    use bytes::{Buf, Bytes, BytesMut};
    use rustix::fs::{Advice, fadvise};

    use super::*;
    use crate::host::file::{read_at, write_at};

    fn pattern(len: usize, seed: usize) -> Bytes {
        (0..len).map(|at| ((at * 31 + at / 4096 * 7 + seed) % 251) as u8).collect()
    }

    /// A copy of `bytes` that begins at a block in memory.
    fn at_a_block(bytes: &[u8]) -> Bytes {
        let mut copy = BytesMut::with_capacity(bytes.len() + ALIGN_BYTES);
        let before = copy.as_ptr().align_offset(ALIGN_BYTES);
        copy.resize(before, 0);
        copy.advance(before);
        copy.extend_from_slice(bytes);
        copy.freeze()
    }

    #[test]
    fn what_is_written_past_the_page_cache_is_read_through_it() {
        let dir = tempfile::tempdir().unwrap();
        let flags = OFlags::RDWR | OFlags::CREATE;
        let file = rustix::fs::open(dir.path().join("f"), flags, Mode::RWXU).unwrap();
        let mut expected = vec![0; 8 << 20];
        write_at(&file, Parts::new(0, vec![expected.clone().into()])).unwrap();
        // Lengths around a piece, with parts that end anywhere; each over pages that the cache holds.
        for (round, len) in [512 << 10, 1 << 20, (1 << 20) + 4096, (2 << 20) + 4096, 5 << 20].into_iter().enumerate() {
            let offset = round * 3 * 4096;
            assert_eq!(read_at(&file, 0, expected.len()).unwrap(), expected);
            let bytes = pattern(len, round);
            let cuts = [0, 100, 100, 5000, len / 2 + 1, len];
            let anywhere = cuts.windows(2).map(|cut| bytes.slice(cut[0]..cut[1])).collect();
            let whole = at_a_block(&bytes);
            let in_blocks = vec![whole.slice(..8192), whole.slice(8192..)];
            let flipped = at_a_block(&bytes.iter().map(|byte| !byte).collect::<Vec<_>>());
            // The last one counts.
            for (parts, lies_well) in [(vec![flipped], true), (anywhere, false), (in_blocks, true)] {
                let mut parts = Parts::new(offset as u64, parts);
                assert!(is_long(&parts) && is_aligned(&parts) && lies_in_blocks(&parts) == lies_well);
                let Ok(direct) = open(file.as_fd()) else { return };
                match write(direct.as_fd(), &mut parts).unwrap() {
                    Outcome::Written => assert!(parts.is_done()),
                    Outcome::Unsupported => return,
                }
            }
            expected[offset..offset + len].copy_from_slice(&bytes);
            assert_eq!(read_at(&file, 0, expected.len()).unwrap(), expected, "{len}");
            rustix::fs::fsync(&file).unwrap();
            fadvise(&file, 0, None, Advice::DontNeed).unwrap();
            assert_eq!(read_at(&file, 0, expected.len()).unwrap(), expected, "{len}, from the drive");
        }
    }

    #[test]
    fn short_or_crooked_writes_are_left_to_the_page_cache() {
        let takes = |parts: &Parts| is_aligned(parts) && is_long(parts);
        for (offset, len) in [(0, WRITE_BYTES_MIN - 4096), (512, WRITE_BYTES_MIN), (0, WRITE_BYTES_MIN + 1)] {
            assert!(!takes(&Parts::new(offset, vec![pattern(len, 0)])), "{offset} {len}");
        }
        assert!(takes(&Parts::new(8192, vec![pattern(100, 0), pattern(WRITE_BYTES_MIN - 100, 0)])));
    }

    #[test]
    fn zeros_of_any_number_of_blocks_are_written_where_they_are_to() {
        let dir = tempfile::tempdir().unwrap();
        let file = rustix::fs::open(dir.path().join("f"), OFlags::RDWR | OFlags::CREATE, Mode::RWXU).unwrap();
        let Ok(direct) = open(file.as_fd()) else { return };
        let bytes = pattern(4 << 20, 1);
        for (offset, len) in [(4096, 4096), (8192, ZEROS_BYTES + 4096), (0, 3 * PIECE_BYTES_MAX + 8192)] {
            write_at(&file, Parts::new(0, vec![bytes.clone()])).unwrap();
            if write_zeros(direct.as_fd(), offset as u64, len as u64).unwrap() == Outcome::Unsupported {
                return;
            }
            let mut expected = bytes.to_vec();
            expected[offset..offset + len].fill(0);
            assert_eq!(read_at(&file, 0, expected.len()).unwrap(), expected, "{offset} {len}");
        }
    }

    #[test]
    fn where_it_can_not_be_there_is_no_descriptor() {
        let nowhere = rustix::fs::open("/dev/null", OFlags::RDWR, Mode::empty()).unwrap();
        assert!(open(nowhere.as_fd()).is_err());
    }
}
