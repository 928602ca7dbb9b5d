//! A small HTTP/1.1 client: one connection per worker, one request at a time, nothing allocated per request.
//!
//! A load generator shares its machine with what it measures more often than not, so its own cost is what this client is written for: the head of a request is
//! put together in a buffer that is kept, bodies go out as slices of the content pool and come in as slices of a read buffer. docs/BENCHMARKS.md has
//! what that saves against hyper.
//!
//! It does no pipelining, no `Expect: 100-continue` and no HTTP/2.

mod chunked;
mod connection;
mod endpoint;
mod response;
mod tls;

pub(crate) use chunked::{CHUNK_BYTES, Chunked, Seal};
pub(crate) use connection::{Body, Connection};
pub(crate) use endpoint::Endpoint;
pub(crate) use response::{Head, HttpError};
pub(crate) use tls::Trust;
