//! S3 from the outside: raw requests, signed here, against a store on a simulated disk. docs/SEMANTICS.md names these tests.
#![allow(clippy::unwrap_used)]

mod auth;
mod bodies;
mod buckets;
mod copies;
mod errors;
mod harness;
mod listing;
mod multipart;
mod objects;
mod wire;
