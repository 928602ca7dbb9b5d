//! A write's buffers and how far it has come: short writes and the limit on vectors are dealt with here, once for
//! all drivers.

use std::io::IoSlice;

use bytes::{Buf, Bytes};

/// Most buffers that one vectored call may name (Linux' `UIO_MAXIOV`).
pub(crate) const VECTOR_MAX: usize = 1024;

/// The parts of a write that are not yet written.
#[derive(Debug)]
pub(crate) struct Parts {
    parts: Vec<Bytes>,
    /// Index of the first part that is not wholly written; that part is cut as bytes are written.
    next: usize,
    offset: u64,
}

impl Parts {
    /// All of `parts`, to be written back to back from `offset` on.
    pub(crate) fn new(offset: u64, parts: Vec<Bytes>) -> Self {
        let mut this = Self { parts, next: 0, offset };
        this.skip_empty();
        this
    }

    /// Where in the file the rest begins.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Length of the rest, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.rest().iter().map(Bytes::len).sum()
    }

    /// Copies the front of the rest, which is at least as long, to `to`.
    pub(crate) fn copy_front(&self, mut to: &mut [u8]) {
        for part in self.rest() {
            let (now, later) = to.split_at_mut(part.len().min(to.len()));
            now.copy_from_slice(&part[..now.len()]);
            to = later;
        }
        debug_assert!(to.is_empty(), "the rest is at least as long");
    }

    /// Whether all is written.
    pub(crate) fn is_done(&self) -> bool {
        self.next == self.parts.len()
    }

    /// The parts of the rest; the first is cut to what is left of it.
    pub(crate) fn rest(&self) -> &[Bytes] {
        &self.parts[self.next..]
    }

    /// The rest as vectors, at most [`VECTOR_MAX`].
    pub(crate) fn vectors(&self) -> Vec<IoSlice<'_>> {
        self.rest().iter().take(VECTOR_MAX).map(|part| IoSlice::new(part)).collect()
    }

    /// Notes that the first `bytes` of the rest are written.
    pub(crate) fn advance(&mut self, mut bytes: usize) {
        self.offset += bytes as u64;
        while bytes > 0 {
            let part = &mut self.parts[self.next];
            let step = bytes.min(part.len());
            part.advance(step);
            bytes -= step;
            self.skip_empty();
        }
    }

    fn skip_empty(&mut self) {
        while self.parts.get(self.next).is_some_and(Bytes::is_empty) {
            self.next += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_sequence_of_short_writes_writes_every_byte_once() {
        let text = b"the quick brown fox";
        for step in 1..=text.len() {
            let parts = [&text[..3], b"", &text[3..4], &text[4..12], b"", &text[12..], b""];
            let mut parts = Parts::new(100, parts.map(Bytes::from_static).to_vec());
            let mut written = Vec::new();
            while !parts.is_done() {
                let rest: Vec<u8> = parts.vectors().iter().flat_map(|slice| slice.to_vec()).collect();
                assert_eq!(parts.offset(), 100 + written.len() as u64);
                assert_eq!(parts.bytes(), rest.len());
                let step = step.min(rest.len());
                let mut front = vec![0; step];
                parts.copy_front(&mut front);
                assert_eq!(front, rest[..step]);
                written.extend_from_slice(&rest[..step]);
                parts.advance(step);
            }
            assert_eq!(written, text);
        }
    }

    #[test]
    fn nothing_to_write_is_done() {
        assert!(Parts::new(0, vec![]).is_done());
        assert!(Parts::new(0, vec![Bytes::new(), Bytes::new()]).is_done());
    }

    #[test]
    fn vectors_are_limited() {
        let parts = Parts::new(0, vec![Bytes::from_static(b"x"); VECTOR_MAX + 1]);
        assert_eq!(parts.vectors().len(), VECTOR_MAX);
    }
}
