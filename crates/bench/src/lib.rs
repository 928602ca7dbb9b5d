//! The load generator behind `gabion bench`: an S3 client that drives any endpoint and measures it.
//!
//! It is not a part of the server and knows nothing of it: requests are built, signed and sent here, over one
//! connection per worker, and every body read is compared with the bytes that were written. Object content is derived from the key and a seed, so
//! nothing is remembered between a put and a get. Only `floor` looks below HTTP: it measures what the log and the disk could do by themselves.
//!
//! Measuring time is the purpose of this crate: `clock` reads the wall clock, and nothing else does.
#![forbid(unsafe_code)]

mod cleanup;
mod cli;
mod clock;
mod compare;
mod content;
mod cover;
mod cpu;
mod credentials;
mod driver;
mod factory;
mod failure;
mod floor;
mod html;
mod http;
mod limit;
mod output;
mod patience;
mod processes;
mod program;
mod progress;
mod report;
mod s3;
mod sign;
mod sizes;
mod stats;
mod stop;
#[cfg(test)]
mod test_server;
mod threads;
mod units;
mod workload;
mod xml;

pub use cli::Cli;
pub use driver::{BenchError, run};
