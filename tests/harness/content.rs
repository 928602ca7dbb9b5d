//! Objects that need not be remembered: a seed and a length.

use std::fmt;

use bytes::Bytes;
use rand::{RngCore, SeedableRng, rngs::SmallRng};

/// The content of an object or part.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Content {
    /// What the bytes follow from.
    pub seed: u64,
    /// Length in bytes.
    pub len: usize,
}

impl Content {
    /// Content of `len` bytes.
    #[must_use]
    pub fn new(seed: u64, len: usize) -> Self {
        Self { seed, len }
    }

    /// All bytes.
    #[must_use]
    pub fn bytes(self) -> Bytes {
        let mut bytes = vec![0; self.len];
        SmallRng::seed_from_u64(self.seed).fill_bytes(&mut bytes);
        bytes.into()
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes of seed {:x}", self.len, self.seed)
    }
}
