//! The simulator's own tests. They stand outside of the crate so that it is built once: it and what it calls, the whole store, take most of the time of this step.

mod bugs;
mod linearize;
mod runs;
