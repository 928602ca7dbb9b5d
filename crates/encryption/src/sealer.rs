//! Sealing a body as it passes.

use crate::{BodySalt, Frames, SecretKey, key::BodyKey};

/// Makes frames of a body. Holds one frame back: only at the end is it known which one is the last.
pub struct Sealer {
    key: BodyKey,
    frames: Frames,
    next: u64,
    filling: Vec<u8>,
    /// Bytes that the body has at most, as far as that is known: what is filled need not be larger.
    len_max: u64,
}

impl Sealer {
    /// A body of an object, or of a part of it: then with its number, else 0. `len_max` is the most that it has, if that is known.
    #[must_use]
    pub fn new(data_key: &SecretKey, salt: &BodySalt, part_number: u16, frames: Frames, len_max: Option<u64>) -> Self {
        let key = data_key.of_body(salt, part_number, frames.frame_bytes());
        Self { key, frames, next: 0, filling: Vec::new(), len_max: len_max.unwrap_or(u64::MAX) }
    }

    /// Takes from `bytes` as much as it can; a sealed frame when one is full and the body goes on. To be called until `bytes` is empty.
    pub fn take(&mut self, bytes: &mut &[u8]) -> Option<Vec<u8>> {
        let frame_bytes = self.frames.frame_bytes() as usize;
        let full = (self.filling.len() == frame_bytes && !bytes.is_empty()).then(|| self.seal(false));
        if !bytes.is_empty() {
            if self.filling.capacity() == 0 {
                let tagged = self.frames.sealed_len(u64::from(self.frames.frame_bytes()).min(self.len_max));
                self.filling.reserve_exact(tagged as usize);
            }
            let taken = bytes.len().min(frame_bytes - self.filling.len());
            self.filling.extend_from_slice(&bytes[..taken]);
            *bytes = &bytes[taken..];
        }
        full
    }

    /// The last frame; nothing for a body without bytes.
    #[must_use]
    pub fn finish(mut self) -> Option<Vec<u8>> {
        (!self.filling.is_empty()).then(|| self.seal(true))
    }

    fn seal(&mut self, is_last: bool) -> Vec<u8> {
        let mut frame = std::mem::take(&mut self.filling);
        self.key.seal(self.next, is_last, &mut frame);
        self.next += 1;
        frame
    }
}

impl std::fmt::Debug for Sealer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sealer").field("next", &self.next).finish_non_exhaustive()
    }
}
