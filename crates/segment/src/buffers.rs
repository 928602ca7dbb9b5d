//! Memory for chunks, used again: a fresh megabyte costs 256 page faults, a warm one none.

use bytes::{Buf, Bytes, BytesMut};
use gabion_types::limits::CHUNK_ALIGN_BYTES;
use parking_lot::Mutex;

/// Most buffers that are kept.
const KEPT_MAX: usize = 64;
/// Length of the shortest buffer, in bytes: stripes of small records are of all lengths, and each is to find one that is warm.
const BUFFER_BYTES_MIN: usize = 64 * 1024;
/// Longer buffers are left to the allocator, in bytes.
const KEPT_BYTES_MAX: usize = 8 * 1024 * 1024 + 64 * 1024;

/// A bounded store of buffers.
#[derive(Default)]
pub(crate) struct Buffers {
    kept: Mutex<Vec<BytesMut>>,
}

impl Buffers {
    /// An empty buffer with room for `bytes`.
    pub(crate) fn take(&self, bytes: usize) -> BytesMut {
        let mut buffer = self.used(bytes);
        buffer.clear();
        buffer
    }

    /// A buffer of `bytes` zeros.
    pub(crate) fn zeroed(&self, bytes: usize) -> BytesMut {
        let mut buffer = self.take(bytes);
        buffer.resize(bytes, 0);
        buffer
    }

    /// A buffer of `bytes` that may be anything, for whoever overwrites every one of them: a pass over the memory less.
    pub(crate) fn to_be_overwritten(&self, bytes: usize) -> BytesMut {
        let mut buffer = self.used(bytes);
        // Only what it never held is filled.
        buffer.resize(bytes, 0);
        buffer
    }

    /// A buffer with room for `bytes` that begins where drives can take it from, as it was given back.
    fn used(&self, bytes: usize) -> BytesMut {
        let bytes = bytes.max(BUFFER_BYTES_MIN);
        // One more than twice as large would waste memory that the budget did not count. What came back last is warm.
        let mut kept = self.kept.lock();
        let fits = kept.iter().rposition(|buffer| buffer.capacity() >= bytes && buffer.capacity() <= 2 * bytes);
        if let Some(place) = fits {
            return kept.swap_remove(place);
        }
        drop(kept);
        let mut buffer = BytesMut::with_capacity(bytes + CHUNK_ALIGN_BYTES);
        let before = buffer.as_ptr().align_offset(CHUNK_ALIGN_BYTES);
        buffer.resize(before, 0);
        buffer.advance(before);
        buffer
    }

    /// Takes a buffer back, if nobody else holds it any more.
    pub(crate) fn give(&self, bytes: Bytes) {
        let Ok(buffer) = bytes.try_into_mut() else { return };
        let mut kept = self.kept.lock();
        if (BUFFER_BYTES_MIN..=KEPT_BYTES_MAX).contains(&buffer.capacity()) && kept.len() < KEPT_MAX {
            kept.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_come_back_unless_someone_holds_them() {
        let buffers = Buffers::default();
        let mut buffer = buffers.zeroed(100_000);
        buffer[5] = 1;
        let frozen = buffer.freeze();
        let held = frozen.clone();
        buffers.give(frozen);
        assert!(buffers.kept.lock().is_empty());
        buffers.give(held);
        assert_eq!(buffers.kept.lock().len(), 1);
        assert!(buffers.zeroed(90_000).iter().all(|&byte| byte == 0));
        assert!(buffers.kept.lock().is_empty());
    }

    #[test]
    fn what_is_to_be_overwritten_is_not_filled_twice() {
        let buffers = Buffers::default();
        let give = |len| {
            let mut buffer = buffers.take(100_000);
            buffer.resize(len, 7);
            buffers.give(buffer.freeze());
        };
        give(90_000);
        let buffer = buffers.to_be_overwritten(95_000);
        assert_eq!(buffer.len(), 95_000);
        assert!(buffer[..90_000].iter().all(|&byte| byte == 7) && buffer[90_000..].iter().all(|&byte| byte == 0));
        buffers.give(buffer.freeze());
        assert_eq!(buffers.to_be_overwritten(60_000).len(), 60_000);
        give(90_000);
        assert!(buffers.take(90_000).is_empty());
        give(90_000);
        assert!(buffers.zeroed(95_000).iter().all(|&byte| byte == 0));
    }

    #[test]
    fn buffers_begin_where_drives_can_take_them_from() {
        let buffers = Buffers::default();
        for bytes in [BUFFER_BYTES_MIN, 2 << 20, (2 << 20) + 4096] {
            for _ in 0..3 {
                let buffer = buffers.zeroed(bytes);
                assert!(buffer.as_ptr().addr().is_multiple_of(CHUNK_ALIGN_BYTES));
                buffers.give(buffer.freeze());
            }
            assert_eq!(buffers.kept.lock().len(), 1, "it was used again");
            buffers.kept.lock().clear();
        }
    }

    #[test]
    fn short_buffers_serve_each_other() {
        let buffers = Buffers::default();
        let mut longer = buffers.zeroed(50_000);
        longer.fill(1);
        let memory = longer.as_ptr();
        buffers.give(longer.freeze());
        let shorter = buffers.zeroed(4096);
        assert_eq!((shorter.as_ptr(), &shorter[..]), (memory, &[0; 4096][..]));
    }
}
