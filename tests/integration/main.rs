//! The built server, driven from outside: every S3 operation, crashes, lost targets, full disks, and what an object costs.
//!
//! `cargo xtask integration [FILTER]` builds the server and runs these tests. Each test has a server of its own.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "all of this crate is tests, helpers of tests included")]

use aws_sdk_s3::Client;
use gabion_tests::{Server, Setup};

mod bench;
mod buckets;
mod checksums;
mod conditional_writes;
mod copies;
mod durability;
mod faults;
mod forgetful;
mod full_disk;
mod idle;
mod kill_nine;
mod limits;
mod listings;
mod memory;
mod multipart;
mod objects;
mod operations;
mod power_loss;
mod protocol;
mod small_disk;
mod workload;

/// The bucket that [`served`] creates.
const BUCKET: &str = "bucket";

/// A 4+2 server, a client with the SDK's default behaviour, and an empty bucket.
async fn served() -> (Server, Client) {
    let server = Server::start(Setup::six()).await.unwrap();
    let client = server.client();
    client.create_bucket().bucket(BUCKET).send().await.unwrap();
    (server, client)
}

/// `Refused` in short.
fn refused(status: u16, code: &str) -> gabion_tests::Outcome {
    gabion_tests::Outcome::Refused(status, code.to_owned())
}
