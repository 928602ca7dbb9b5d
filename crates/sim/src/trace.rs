//! What happened, in order: a hash of all of it, and the last lines of it.

use std::collections::VecDeque;

/// Lines that are kept for the report of a failure.
const LINES_MAX: usize = 60;

/// The trace of a run.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    lines: VecDeque<String>,
    count: u64,
    hash: u64,
    is_loud: bool,
}

impl Trace {
    /// An empty trace; a loud one is printed as it comes.
    pub(crate) fn new(is_loud: bool) -> Self {
        Self { is_loud, ..Self::default() }
    }

    /// Adds a line.
    #[expect(clippy::print_stderr, reason = "it was asked for")]
    pub(crate) fn say(&mut self, line: String) {
        for byte in line.bytes() {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
        }
        self.add(self.count);
        if self.is_loud {
            eprintln!("{:>6} {line}", self.count);
        }
        if self.lines.len() == LINES_MAX {
            self.lines.pop_front();
        }
        self.lines.push_back(format!("{:>6} {line}", self.count));
        self.count += 1;
    }

    /// Adds a number to the hash.
    pub(crate) fn add(&mut self, word: u64) {
        self.hash = (self.hash ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(31);
    }

    /// What depends on every line.
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    /// The last lines.
    pub(crate) fn tail(&self) -> Vec<String> {
        self.lines.iter().cloned().collect()
    }
}
