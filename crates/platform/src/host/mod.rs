//! What the two real drivers share: names ([`namespace`]) and open files ([`mod@file`]).
//!
//! The drivers differ only in how bytes move. Creating, opening, listing, renaming and removing are rare, may block
//! for long (a journal commit, a remote metadata server), and half of them have no io_uring operation: both drivers
//! run them on a thread pool.

mod direct;
mod disk;
mod file;
mod namespace;

pub(crate) use disk::{DataPath, HostDisk};
pub(crate) use file::{HostFile, Writes};
pub(crate) use namespace::Namespace;
