//! Opening what was sealed, as it passes: ranges of bodies, one after the other.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

use crate::{BodySalt, Frames, SecretKey, Tampered, frames::TAG_BYTES, key::BodyKey};

/// A range of a body that is to be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyRange {
    /// The body's salt.
    pub salt: BodySalt,
    /// The number of the part that the body is, or 0.
    pub part_number: u16,
    /// Length of the body in bytes, unsealed.
    pub len: u64,
    /// Offset in the body of the first byte that is asked for.
    pub start: u64,
    /// Offset just after the last one; not before `start`.
    pub end: u64,
}

/// Opens ranges of bodies of one object from their frames, which come without a gap. Holds one frame at most.
pub struct Opener {
    data_key: SecretKey,
    frames: Frames,
    bodies: VecDeque<BodyRange>,
    /// The body that is being opened.
    open: Option<Open>,
    sealed: BytesMut,
}

struct Open {
    key: BodyKey,
    body: BodyRange,
    frame: u64,
    /// Number of the frame behind the last that is needed.
    end_frame: u64,
}

impl Opener {
    /// Of ranges that have bytes.
    #[must_use]
    pub fn new(data_key: SecretKey, frames: Frames, bodies: impl IntoIterator<Item = BodyRange>) -> Self {
        let bodies = bodies.into_iter().filter(|body| body.start < body.end).collect();
        Self { data_key, frames, bodies, open: None, sealed: BytesMut::new() }
    }

    /// Takes from `sealed`, which are the next bytes of the frames, as much as it can; the bytes of a frame when it is complete. To be called until `sealed`
    /// is empty.
    ///
    /// # Errors
    /// When the frame is not what was sealed there.
    pub fn take(&mut self, sealed: &mut &[u8]) -> Result<Option<Bytes>, Tampered> {
        let frames = self.frames;
        let Some(open) = self.next_body() else {
            // Nobody asked for what comes now.
            return if sealed.is_empty() { Ok(None) } else { Err(Tampered) };
        };
        let (sealed_bytes, is_last) = frames.sealed_frame(open.body.len, open.frame);
        if self.sealed.is_empty() {
            self.sealed.reserve(sealed_bytes);
        }
        let taken = sealed.len().min(sealed_bytes - self.sealed.len());
        self.sealed.extend_from_slice(&sealed[..taken]);
        *sealed = &sealed[taken..];
        if self.sealed.len() < sealed_bytes {
            return Ok(None);
        }
        let Some(open) = &mut self.open else { return Ok(None) };
        let len = open.key.open(open.frame, is_last, &mut self.sealed)?;
        let mut plain = std::mem::take(&mut self.sealed).freeze();
        plain.truncate(len);
        let from = open.frame * u64::from(self.frames.frame_bytes());
        let (start, end) = (open.body.start.max(from) - from, open.body.end.min(from + len as u64) - from);
        open.frame += 1;
        // Both are within the frame.
        Ok(Some(plain.slice(start as usize..end as usize)))
    }

    /// Whether all that was asked for has been opened: if not when the frames end, they are cut.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.bodies.is_empty() && self.open.as_ref().is_none_or(|open| open.frame == open.end_frame)
    }

    /// The body that the next frame belongs to.
    fn next_body(&mut self) -> Option<&Open> {
        if self.open.as_ref().is_none_or(|open| open.frame == open.end_frame) {
            let body = self.bodies.pop_front()?;
            let key = self.data_key.of_body(&body.salt, body.part_number, self.frames.frame_bytes());
            let located = self.frames.locate(body.len, body.start, body.end);
            let sealed_bytes = u64::from(self.frames.frame_bytes()) + u64::from(TAG_BYTES);
            let end_frame = located.end.div_ceil(sealed_bytes);
            self.open = Some(Open { key, body, frame: located.first_frame, end_frame });
        }
        self.open.as_ref()
    }
}

impl std::fmt::Debug for Opener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Opener").field("bodies", &self.bodies).finish_non_exhaustive()
    }
}
