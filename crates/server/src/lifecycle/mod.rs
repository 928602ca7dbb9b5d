//! Lifecycle rules: what ends by itself, and when.
//!
//! `rules` reads and checks them, `due` says what they mean for an object or an upload at a moment, `history` how long versions have not been current; all three are pure. `worker` walks the buckets that have
//! rules and does what is due. Source: AWS, "Managing the lifecycle of objects".

pub(crate) mod due;
mod history;
pub(crate) mod rules;
pub(crate) mod worker;

pub use due::DAY_MS;
pub(crate) use due::Days;
pub(crate) use rules::LifecycleRules;
pub use worker::{LifecycleFigures, LifecycleOptions};
