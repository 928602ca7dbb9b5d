//! Laws of the log, over simulated disks: what crashes, losses and rot may and may not do.

#![allow(clippy::unwrap_used)]

mod book;
mod bounds;
mod cached;
mod crash;
mod degraded;
mod faults;
mod free;
mod hung;
mod inspect;
mod members;
mod prewritten;
mod punch;
mod read_write;
mod relaxed;
mod repair;
mod space;
mod stale;
mod targets;
mod world;
