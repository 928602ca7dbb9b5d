//! Keeping what is written, as far as the store has to do with it: when repair runs, and the targets' comings and goings.

mod cross_check;
mod damage;
mod rebalance;
mod repair;
mod scrub;
mod targets;

pub use cross_check::CrossCheck;
pub(crate) use damage::{NotedDamage, note as note_damage, resume as resume_damage};
pub(crate) use repair::repairs;
pub(crate) use scrub::{Scrub, scrubs, status as scrub_status};
pub use scrub::{ScrubReport, ScrubStatus};
