//! Where the bytes of a body are once it is sealed: frames of one size, the last one shorter, each with its tag behind it.

/// Bytes that a frame is longer when it is sealed.
pub(crate) const TAG_BYTES: u32 = 16;
/// Frames are no longer, in bytes: one is held in memory by every body on its way.
const FRAME_BYTES_MAX: u32 = 16 << 20;

/// Frames of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frames {
    frame_bytes: u32,
}

/// Where a range of a body lies in the sealed body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SealedRange {
    /// Number of the first frame that is needed.
    pub first_frame: u64,
    /// Offset of its first byte in the sealed body.
    pub start: u64,
    /// Offset just after the last byte of the last frame that is needed.
    pub end: u64,
}

impl Frames {
    /// What new bodies are sealed in: 64 KiB. Larger ones are sealed and opened no faster (docs/adr/0015), and are read in vain by those who ask for a few bytes.
    pub const USUAL: Frames = Frames { frame_bytes: 64 * 1024 };

    /// Frames of so many bytes; nothing when no body has such.
    #[must_use]
    pub const fn new(frame_bytes: u32) -> Option<Self> {
        match frame_bytes {
            1..=FRAME_BYTES_MAX => Some(Self { frame_bytes }),
            _ => None,
        }
    }

    /// Bytes of a frame before it is sealed.
    #[must_use]
    pub const fn frame_bytes(self) -> u32 {
        self.frame_bytes
    }

    /// Number of frames of a body of `len` bytes. One without bytes has none.
    #[must_use]
    pub const fn count(self, len: u64) -> u64 {
        len.div_ceil(self.frame_bytes as u64)
    }

    /// Length of a body of `len` bytes when it is sealed.
    #[must_use]
    pub const fn sealed_len(self, len: u64) -> u64 {
        len.saturating_add(self.count(len).saturating_mul(TAG_BYTES as u64))
    }

    /// The frames that hold the bytes from `start` up to `end` of a body of `len` bytes.
    ///
    /// # Panics
    /// When there are no such bytes.
    #[must_use]
    pub fn locate(self, len: u64, start: u64, end: u64) -> SealedRange {
        assert!(start < end && end <= len, "a range lies within its body");
        let frame_bytes = u64::from(self.frame_bytes);
        let first_frame = start / frame_bytes;
        let last_frame = (end - 1) / frame_bytes;
        let sealed_bytes = frame_bytes + u64::from(TAG_BYTES);
        SealedRange {
            first_frame,
            start: first_frame * sealed_bytes,
            end: ((last_frame + 1) * sealed_bytes).min(self.sealed_len(len)),
        }
    }

    /// Bytes of a frame of a body of `len` bytes when it is sealed, and whether it is the last one.
    pub(crate) fn sealed_frame(self, len: u64, frame: u64) -> (usize, bool) {
        let is_last = frame + 1 >= self.count(len);
        let bytes = (len - frame * u64::from(self.frame_bytes)).min(u64::from(self.frame_bytes));
        // At most FRAME_BYTES_MAX and the tag.
        (bytes as usize + TAG_BYTES as usize, is_last)
    }
}
