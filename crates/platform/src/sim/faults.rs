//! What is to go wrong, as a value.

use std::io;

/// Faults to inject into a [`super::SimDisk`]; what is not named stays as it is.
#[derive(Debug, Clone, Default)]
pub struct FaultPlan {
    pub(super) reads: Countdown,
    pub(super) writes: Countdown,
    pub(super) syncs: Countdown,
    pub(super) offline: Option<bool>,
    pub(super) capacity_bytes: Option<u64>,
    pub(super) flips: Vec<(String, u64)>,
}

impl FaultPlan {
    /// No fault.
    pub fn new() -> Self {
        Self::default()
    }

    /// The next `count` reads, of files in part or whole, fail with `kind`.
    pub fn fail_reads(self, count: u32, kind: io::ErrorKind) -> Self {
        Self { reads: Countdown(Some((count, kind))), ..self }
    }

    /// The next `count` writes and length changes fail with `kind`.
    pub fn fail_writes(self, count: u32, kind: io::ErrorKind) -> Self {
        Self { writes: Countdown(Some((count, kind))), ..self }
    }

    /// The next `count` syncs, of files or directories, fail with `kind`; a durable write has one, a file written
    /// whole two.
    pub fn fail_syncs(self, count: u32, kind: io::ErrorKind) -> Self {
        Self { syncs: Countdown(Some((count, kind))), ..self }
    }

    /// The disk answers nothing any more, or does so again.
    pub fn offline(self, offline: bool) -> Self {
        Self { offline: Some(offline), ..self }
    }

    /// The disk holds no more than `capacity_bytes`.
    pub fn full_at(self, capacity_bytes: u64) -> Self {
        Self { capacity_bytes: Some(capacity_bytes), ..self }
    }

    /// A bit flips in the byte at `offset` of the file `path`, once, now.
    pub fn flip_bit(mut self, path: &str, offset: u64) -> Self {
        self.flips.push((path.to_owned(), offset));
        self
    }

    /// Takes over what `plan` names, flips excepted.
    pub(super) fn merge(&mut self, plan: FaultPlan) {
        for (ours, theirs) in
            [(&mut self.reads, plan.reads), (&mut self.writes, plan.writes), (&mut self.syncs, plan.syncs)]
        {
            if theirs.0.is_some() {
                *ours = theirs;
            }
        }
        self.offline = plan.offline.or(self.offline);
        self.capacity_bytes = plan.capacity_bytes.or(self.capacity_bytes);
    }
}

/// How many more operations of one sort fail, and how.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Countdown(Option<(u32, io::ErrorKind)>);

impl Countdown {
    /// Fails if one of the failures is left.
    pub(super) fn step(&mut self) -> io::Result<()> {
        match &mut self.0 {
            Some((left, kind)) if *left > 0 => {
                *left -= 1;
                Err(io::Error::new(*kind, "injected fault"))
            }
            _ => Ok(()),
        }
    }
}
