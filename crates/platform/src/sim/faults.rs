//! What is to go wrong, as a value.

use std::io;

use crate::entropy::Dice;

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
        self.fail_reads_after(0, count, kind)
    }

    /// As [`FaultPlan::fail_reads`], after `passed` reads that do not.
    pub fn fail_reads_after(self, passed: u32, count: u32, kind: io::ErrorKind) -> Self {
        Self { reads: Countdown(Some(Failures { passed, left: count, kind })), ..self }
    }

    /// The next `count` writes and length changes fail with `kind`.
    pub fn fail_writes(self, count: u32, kind: io::ErrorKind) -> Self {
        Self { writes: Countdown(Some(Failures { passed: 0, left: count, kind })), ..self }
    }

    /// The next `count` syncs, of files or directories, fail with `kind`; a durable write has one, a file written
    /// whole two.
    pub fn fail_syncs(self, count: u32, kind: io::ErrorKind) -> Self {
        Self { syncs: Countdown(Some(Failures { passed: 0, left: count, kind })), ..self }
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
pub(super) struct Countdown(Option<Failures>);

#[derive(Debug, Clone, Copy)]
struct Failures {
    /// Operations that come before.
    passed: u32,
    left: u32,
    kind: io::ErrorKind,
}

impl Countdown {
    /// Fails if one of the failures is left.
    pub(super) fn step(&mut self) -> io::Result<()> {
        match &mut self.0 {
            Some(failures) if failures.passed > 0 => {
                failures.passed -= 1;
                Ok(())
            }
            Some(failures) if failures.left > 0 => {
                failures.left -= 1;
                Err(io::Error::new(failures.kind, "injected fault"))
            }
            _ => Ok(()),
        }
    }
}

/// One in so many operations, by chance; zero is none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OneIn(pub u32);

impl OneIn {
    /// Whether this operation is the one.
    pub(super) fn hits(self, dice: &mut Dice) -> bool {
        self.0 > 0 && dice.below(self.0.into()) == 0
    }

    /// Fails if this operation is the one.
    pub(super) fn strikes(self, dice: &mut Dice) -> io::Result<()> {
        if self.hits(dice) { Err(io::Error::other("injected fault")) } else { Ok(()) }
    }
}

/// How often operations of a [`super::SimDisk`] go wrong by chance.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FaultRates {
    /// Reads that fail.
    pub read_fails: OneIn,
    /// Writes and length changes that fail.
    pub write_fails: OneIn,
    /// Syncs of files or directories that fail.
    pub sync_fails: OneIn,
    /// Reads of a part of a file that give too few bytes.
    pub short_reads: OneIn,
    /// Writes that hit another file.
    pub misdirected_writes: OneIn,
    /// Most turns that an operation waits before a step; zero: one at most.
    pub slow_turns_max: u32,
    /// Most milliseconds of tokio's clock that it waits besides, half of the time.
    pub slow_ms_max: u32,
    /// Operations that come to nothing for a time, up to [`HANGS_S_MAX`].
    pub hangs: OneIn,
}

/// Longest that an operation hangs, in seconds of tokio's clock.
pub const HANGS_S_MAX: u64 = 150;
