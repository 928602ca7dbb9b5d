//! Deterministic simulation: the real store, log, index rows and code on a simulated machine that fails on purpose.
//!
//! One seed decides everything: geometry, sizes, what clients ask, how their requests interleave, what breaks and when the power
//! goes out. The same seed goes the same way each time. What may break is said by the header of the simulated disk
//! (`gabion_platform::SimDisk`); the `atlas` keeps it within what the geometry must bear, so that any loss is a bug.
//!
//! A run is a sequence of *lives* of one process. Each opens the store, checks that everything that was acknowledged is there, lets
//! clients work in *phases* that end in a full check, and ends in a clean shutdown, by the death of the process or by power loss
//! before any step of any disk, also while it opens.
//!
//! What this crate must not know: how anything is stored. It asks the store's public API and reads rows of the index.
//!
//! Who calls it: `cargo xtask sim`, and CI.
#![forbid(unsafe_code)]

mod atlas;
mod check;
mod client;
mod clock;
mod history;
mod index;
mod life;
// Public for the tests, which stand outside of the crate (Cargo.toml).
pub mod linearize;
mod machine;
mod operator;
mod params;
pub mod regressions;
mod run;
mod trace;
mod truth;
mod uploads;
mod values;

pub use params::{Overrides, Params};
pub use run::{Failure, Report, run};
