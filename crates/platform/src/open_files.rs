//! How many files the process may have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Taken where the system sets no limit.
const UNLIMITED: usize = 1 << 20;

/// Raises the soft limit on open files to the hard one, and returns what applies now.
///
/// A server needs a file per shard that it reads and a socket per client; the usual soft limit of 1024 is for programs
/// that use `select`.
pub fn raise_open_files_limit() -> usize {
    let before = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: before.maximum, maximum: before.maximum });
    let applies = if raised.is_ok() { before.maximum } else { before.current };
    applies.map_or(UNLIMITED, |limit| usize::try_from(limit).unwrap_or(UNLIMITED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_becomes_the_hard_one() {
        let applies = raise_open_files_limit();
        let now = getrlimit(Resource::Nofile);
        assert_eq!(now.current, now.maximum);
        assert_eq!(applies, now.current.map_or(UNLIMITED, |limit| usize::try_from(limit).unwrap()));
    }
}
