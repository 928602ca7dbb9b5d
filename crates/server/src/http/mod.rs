//! HTTP/1.1 and HTTP/2 on TCP and TLS, with limits: connections in, requests to a [`Handler`].
//!
//! It knows no S3: the handler does. Of a client it bounds everything: the number of connections, the time for a handshake and
//! for a request's head, the size of that head, the time between requests, and the progress of bodies in both
//! directions (a slow client is served, a stalled one is cut). Shutting down, it stops accepting, finishes what is in flight
//! and closes.
//!
//! Timers are tokio's, so that tests run on its paused clock.

mod activity;
mod connection;
mod direct;
mod limits;
mod long_body;
mod observe;
mod progress;
mod remainder;
mod seldom;
mod server;
mod transport;

#[cfg(test)]
mod tests;

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use gabion_store::BodyPiece;
use http::request::Parts;
use http::{Request, Response};
use http_body::Body;

pub use limits::{BUFFER_BYTES_MIN, HttpLimits};
pub use observe::{Observer, RequestFigures, RequestLine};
pub use progress::{RequestBody, Stalled};
pub use remainder::Arriving;
pub use server::{Drained, HttpServer, Listener};

/// As many headers as a get answers with: maps that answers are written to have room for them at once, those of requests too, which some are written to.
pub(crate) const ANSWER_HEADERS: usize = 12;

/// The head of no request.
fn no_head() -> Parts {
    Request::new(()).into_parts().0
}

/// Takes the whole head of a request, and leaves that of none.
pub(crate) fn take_head(head: &mut Parts) -> Parts {
    std::mem::replace(head, no_head())
}

/// A body that can be read to where it is wanted.
pub trait ReadInto: Body<Data = Bytes> + Unpin {
    /// The next bytes; nothing at the end. Those that would be read into memory for this are read into `room`, if there is any.
    fn poll_into(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        room: &mut [u8],
    ) -> Poll<Option<Result<BodyPiece, Self::Error>>>;
}

/// The other end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Its address.
    pub address: SocketAddr,
    /// Whether the connection is encrypted.
    pub tls: bool,
}

/// Which operation a request was, for metrics and logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OperationName(pub &'static str);

impl OperationName {
    /// The request was refused before an operation was recognised.
    pub const UNKNOWN: OperationName = OperationName("Unknown");
}

/// What a handler makes of a request.
#[derive(Debug)]
pub struct Answer<B> {
    /// What the client gets.
    pub response: Response<B>,
    /// What was asked for.
    pub operation: OperationName,
}

impl<B> From<Response<B>> for Answer<B> {
    /// Of a request that is no operation.
    fn from(response: Response<B>) -> Self {
        Self { response, operation: OperationName::UNKNOWN }
    }
}

/// What answers requests: S3 on the data port, health and figures on the admin port.
pub trait Handler: Clone + Send + Sync + 'static {
    /// The body of its answers.
    type Body: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static;

    /// Answers a request; failures are answers too. Dropping the future means that the client is gone. An answer is not sent before its request's body was read or dropped.
    /// What it needs of the head it takes at once: the head stays where it is, as it is long, and makes room for the next one.
    fn handle<'a>(
        &'a self,
        head: &mut Parts,
        body: RequestBody,
        peer: Peer,
    ) -> impl Future<Output = Answer<Self::Body>> + Send + use<'a, Self>;
}
