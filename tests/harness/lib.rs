//! What the integration tests share: a server that is spawned, killed and started again, a client for it, and objects whose content
//! follows from a seed.
//!
//! The server is the built program, named by `GABION_TEST_BIN` (`cargo xtask integration` builds it); nothing of its code is linked here.
#![forbid(unsafe_code)]

mod client;
mod content;
mod http;
mod metrics;
mod random;
mod server;

pub use client::{Outcome, bytes_of, client_for, failure, small_client};
pub use content::Content;
pub use http::{Answer, exchange, get};
pub use metrics::Metrics;
pub use random::{seed, seeded};
pub use server::{Server, Setup, client_command};
