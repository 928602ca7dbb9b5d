//! S3 from the outside: raw requests, signed here, against a store on a simulated disk. docs/SEMANTICS.md names these tests.
//!
//! `tests/slow_path` runs the same with s3s in front of all operations.
#![allow(clippy::unwrap_used)]

mod access;
mod appends;
mod auth;
mod bodies;
mod buckets;
mod configs;
mod connections;
mod copies;
mod cors;
mod differential;
mod encryption;
mod errors;
mod etags;
mod harness;
mod iam;
mod inventory;
mod lifecycle;
mod listing;
mod logging;
mod multipart;
mod notifications;
mod object_lock;
mod objects;
mod posts;
mod renames;
mod tags;
mod twins;
mod versions;
mod website;
mod wire;

/// Whether the operations that are asked for most go by s3s.
const FAST_PATH: bool = true;
