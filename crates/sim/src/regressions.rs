//! Runs that found something once. They go on to be run, although a change of the simulator makes another run of a seed: each costs
//! a moment, and what was found is told by its name.

use crate::{Overrides, Params};

/// A run with a name.
#[derive(Clone, Copy, Debug)]
pub struct Regression {
    /// What was found.
    pub name: &'static str,
    /// The seed that found it.
    pub seed: u64,
}

impl Regression {
    /// The run.
    #[must_use]
    pub fn params(&self) -> Params {
        Params::derive(self.seed, Overrides::default())
    }
}

/// All of them.
pub const REGRESSIONS: &[Regression] = &[];
