//! Memory for chunks: begins where drives can take it from, is read by many while one still fills it, and is used again. A fresh megabyte costs 256 page faults, a warm one none.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::slice;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use parking_lot::Mutex;

/// What addresses, offsets and lengths must be multiples of past the page cache, in bytes: the largest logical block of any drive that there is. Buffers begin at such.
pub(crate) const ALIGN_BYTES: usize = 4096;
/// Most buffers that are kept.
const KEPT_MAX: usize = 64;
/// Length of the shortest buffer, in bytes: stripes of small records are of all lengths, and each is to find one that is warm.
const BUFFER_BYTES_MIN: usize = 64 * 1024;
/// Longer buffers are left to the allocator, in bytes.
const KEPT_BYTES_MAX: usize = 8 * 1024 * 1024 + 64 * 1024;

/// A bounded store of buffers, which come back by themselves.
#[derive(Clone, Debug, Default)]
pub struct Buffers(Arc<Mutex<Vec<Region>>>);

impl Buffers {
    /// A buffer of `bytes` zeros.
    #[must_use]
    pub fn zeroed(&self, bytes: usize) -> Buffer {
        let mut buffer = self.take(bytes);
        buffer.fill(0);
        buffer
    }

    /// A buffer of `bytes` that may be anything, for whoever overwrites every one of them: a pass over the memory less.
    #[must_use]
    pub fn take(&self, bytes: usize) -> Buffer {
        // One more than twice as large would waste memory that no budget counted. What came back last is warm.
        let wanted = bytes.max(BUFFER_BYTES_MIN);
        let mut kept = self.0.lock();
        let fits = kept.iter().rposition(|region| (wanted..=2 * wanted).contains(&region.bytes()));
        let found = fits.map(|place| kept.remove(place));
        drop(kept);
        let region = found.unwrap_or_else(|| Region::new(wanted));
        Buffer { memory: Memory { region: Some(region), home: Arc::downgrade(&self.0) }, len: bytes }
    }
}

/// Memory from the allocator. Every byte of it has a value.
#[derive(Debug)]
struct Region {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: nothing else points to it, and it does not care who frees it.
unsafe impl Send for Region {}
// SAFETY: through a reference to it only its address can be had.
unsafe impl Sync for Region {}

impl Region {
    fn new(bytes: usize) -> Self {
        let layout = Layout::from_size_align(bytes, ALIGN_BYTES).expect("it is no longer than memory can be");
        assert!(bytes > 0, "the allocator wants a length");
        // SAFETY: it has a length.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) });
        Self { start: start.unwrap_or_else(|| handle_alloc_error(layout)), layout }
    }

    fn bytes(&self) -> usize {
        self.layout.size()
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: it came from there, with this layout.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}

/// A region that goes back to where it came from.
#[derive(Debug)]
struct Memory {
    /// Nothing once it is on its way back.
    region: Option<Region>,
    home: Weak<Mutex<Vec<Region>>>,
}

impl Memory {
    fn region(&self) -> &Region {
        self.region.as_ref().expect("it is here until it is dropped")
    }

    /// Where a range begins, which lies within the region.
    fn start_of(&self, range: &Range<usize>) -> *mut u8 {
        let region = self.region();
        assert!(range.start <= range.end && range.end <= region.bytes(), "{range:?} of {} bytes", region.bytes());
        // SAFETY: that far it is memory of the region, or its end.
        unsafe { region.start.as_ptr().add(range.start) }
    }

    /// # Safety
    /// For as long as the slice lives nobody may write there.
    unsafe fn read(&self, range: Range<usize>) -> &[u8] {
        // SAFETY: it lies within the region, whose bytes have values; the caller sees to the rest.
        unsafe { slice::from_raw_parts(self.start_of(&range), range.len()) }
    }

    /// # Safety
    /// For as long as the slice lives nobody else may read or write there.
    #[expect(clippy::mut_from_ref, reason = "parts of it are others'")]
    unsafe fn write(&self, range: Range<usize>) -> &mut [u8] {
        // SAFETY: it lies within the region, whose bytes have values; the caller sees to the rest.
        unsafe { slice::from_raw_parts_mut(self.start_of(&range), range.len()) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let (Some(region), Some(home)) = (self.region.take(), self.home.upgrade()) else { return };
        if region.bytes() > KEPT_BYTES_MAX {
            return;
        }
        let mut kept = home.lock();
        // What was wanted least lately goes: perhaps nobody writes anything so long, or so short, any more.
        let idle = (kept.len() >= KEPT_MAX).then(|| kept.remove(0));
        kept.push(region);
        drop(kept);
        drop(idle);
    }
}

/// Memory that one has.
pub struct Buffer {
    memory: Memory,
    len: usize,
}

impl Buffer {
    /// Bytes that it can hold.
    fn capacity(&self) -> usize {
        self.memory.region().bytes()
    }

    /// Makes it shorter, or longer by zeros, up to its capacity.
    pub fn resize(&mut self, len: usize) {
        let before = self.len;
        assert!(len <= self.capacity(), "{len} of {} bytes", self.capacity());
        self.len = len;
        if before < len {
            self[before..].fill(0);
        }
    }

    /// What is in it, for all who want to read it.
    #[must_use]
    pub fn freeze(self) -> Bytes {
        let Self { memory, len } = self;
        Bytes::from_owner(Part { memory: Arc::new(memory), range: 0..len, _with: () })
    }

    /// To be filled from the front, behind `front_bytes` that are written last.
    #[must_use]
    pub fn fill_behind(self, front_bytes: usize) -> Chunk {
        let Self { memory, len } = self;
        assert!(front_bytes <= len, "{front_bytes} of {len} bytes");
        Chunk { memory: Arc::new(memory), filled: front_bytes..front_bytes, len }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: nobody else has it, and the slice keeps this one from writing.
        unsafe { self.memory.read(0..self.len) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: nobody else has it, and the slice keeps this one.
        unsafe { self.memory.write(0..self.len) }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer").field("len", &self.len).finish_non_exhaustive()
    }
}

/// Memory that is filled from the front, while others read what is filled.
pub struct Chunk {
    memory: Arc<Memory>,
    /// What may be read by others, and is written no more. Before and behind it nobody else reads or writes.
    filled: Range<usize>,
    len: usize,
}

impl Chunk {
    /// What was filled.
    #[must_use]
    pub fn filled(&self) -> &[u8] {
        // SAFETY: nobody writes there any more.
        unsafe { self.memory.read(self.filled.clone()) }
    }

    /// Bytes that were filled.
    #[must_use]
    pub fn filled_bytes(&self) -> usize {
        self.filled.len()
    }

    /// Room for what is to come.
    pub fn room(&mut self) -> &mut [u8] {
        // SAFETY: nobody else has what is not filled, and the slice keeps this one.
        unsafe { self.memory.write(self.filled.end..self.len) }
    }

    /// Counts the front of the room as filled.
    pub fn advance(&mut self, bytes: usize) {
        assert!(bytes <= self.len - self.filled.end, "{bytes} bytes are more than there is room for");
        self.filled.end += bytes;
    }

    /// Fills in `bytes`.
    pub fn put(&mut self, bytes: &[u8]) {
        self.room()[..bytes.len()].copy_from_slice(bytes);
        self.advance(bytes.len());
    }

    /// Some of what was filled, to be kept for as long as one likes, and `with` it. The front counts into the range.
    #[must_use]
    pub fn part<T: Send + 'static>(&self, range: Range<usize>, with: T) -> Bytes {
        let Range { start, end } = self.filled;
        assert!(start <= range.start && range.end <= end, "{range:?} of {start}..{end}");
        Bytes::from_owner(Part { memory: Arc::clone(&self.memory), range, _with: with })
    }

    /// What lies before all that was filled; nothing once it was shared.
    pub fn front(&mut self) -> &mut [u8] {
        // SAFETY: nobody else has what is not filled, and the slice keeps this one.
        unsafe { self.memory.write(0..self.filled.start) }
    }

    /// All of it with its front, which counts as filled from now on.
    pub fn share(&mut self) -> Bytes {
        self.filled.start = 0;
        self.part(0..self.filled.end, ())
    }
}

impl fmt::Debug for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chunk").field("filled", &self.filled).field("len", &self.len).finish_non_exhaustive()
    }
}

/// Some of it, which is written no more.
struct Part<T> {
    memory: Arc<Memory>,
    range: Range<usize>,
    _with: T,
}

impl<T> AsRef<[u8]> for Part<T> {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: it was filled, or nobody has it who could write to it.
        unsafe { self.memory.read(self.range.clone()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(buffers: &Buffers) -> usize {
        buffers.0.lock().len()
    }

    #[test]
    fn buffers_come_back_when_nobody_holds_them_any_more() {
        let buffers = Buffers::default();
        let mut buffer = buffers.zeroed(100_000);
        buffer[5] = 1;
        let frozen = buffer.freeze();
        let held = frozen.slice(3..8);
        drop(frozen);
        assert_eq!((kept(&buffers), &held[..]), (0, &[0, 0, 1, 0, 0][..]));
        drop(held);
        assert_eq!(kept(&buffers), 1);
        assert!(buffers.zeroed(90_000).iter().all(|&byte| byte == 0));
        drop(buffers.take(300_000));
        assert_eq!(kept(&buffers), 2, "one was too short");
        drop(buffers.take(KEPT_BYTES_MAX + 1));
        assert_eq!(kept(&buffers), 2, "one was too long");
        let last = buffers.take(1);
        drop(buffers);
        drop(last);
    }

    #[test]
    fn what_nobody_wants_any_more_makes_room_for_what_is_wanted() {
        let buffers = Buffers::default();
        let many = |bytes| (0..KEPT_MAX + 3).map(|_| buffers.take(bytes)).collect::<Vec<_>>();
        drop(many(2 << 20));
        assert_eq!(kept(&buffers), KEPT_MAX);
        drop(many(BUFFER_BYTES_MIN));
        assert_eq!(kept(&buffers), KEPT_MAX);
        let first = buffers.take(BUFFER_BYTES_MIN);
        assert_eq!(kept(&buffers), KEPT_MAX - 1, "it was used again");
        drop(first);
    }

    #[test]
    fn buffers_begin_where_drives_can_take_them_from() {
        let buffers = Buffers::default();
        for bytes in [1, BUFFER_BYTES_MIN, 2 << 20, (2 << 20) + 4096] {
            for _ in 0..3 {
                let buffer = buffers.zeroed(bytes);
                assert!(buffer.as_ptr().addr().is_multiple_of(ALIGN_BYTES));
            }
            assert_eq!(kept(&buffers), 1, "it was used again");
            buffers.0.lock().clear();
        }
    }

    #[test]
    fn a_buffer_grows_by_zeros() {
        let buffers = Buffers::default();
        buffers.take(100_000).fill(7);
        let mut buffer = buffers.take(90_000);
        assert!(buffer.iter().all(|&byte| byte == 7));
        buffer.resize(10);
        buffer.resize(100_000);
        assert!(buffer[..10].iter().all(|&byte| byte == 7) && buffer[10..].iter().all(|&byte| byte == 0));
    }

    #[test]
    fn what_is_filled_is_read_while_more_comes() {
        let buffers = Buffers::default();
        let mut chunk = buffers.take(1000).fill_behind(10);
        chunk.put(&[1; 100]);
        let early = chunk.part(60..110, ());
        chunk.room()[..3].fill(2);
        chunk.advance(3);
        assert_eq!((early.len(), chunk.filled_bytes(), chunk.room().len()), (50, 103, 1000 - 113));
        chunk.front().fill(3);
        let whole = chunk.share();
        assert!(chunk.front().is_empty());
        assert_eq!(whole, [vec![3; 10], vec![1; 100], vec![2; 3]].concat());
        assert_eq!(chunk.filled(), whole);
        drop((chunk, whole));
        assert_eq!((kept(&buffers), &early[..]), (0, &[1; 50][..]));
        drop(early);
        assert_eq!(kept(&buffers), 1);
    }

    #[test]
    #[should_panic(expected = "more than there is room for")]
    fn no_more_is_filled_than_there_is_room_for() {
        let mut chunk = Buffers::default().take(1000).fill_behind(10);
        chunk.advance(991);
    }
}
