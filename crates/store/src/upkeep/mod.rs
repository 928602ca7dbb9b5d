//! Keeping what is written, as far as the store has to do with it: when repair runs, and the targets' comings and goings.

mod repair;
mod targets;

pub(crate) use repair::repairs;
