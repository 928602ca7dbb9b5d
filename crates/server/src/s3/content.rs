//! The body of an authenticated request, whoever authenticated it: bytes without framing, and why there are no more.
//!
//! s3s verifies heads alone: the body waits beside the request ([`Waiting`]) and is unframed here, so that there is one judge of framing.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt};
use gabion_erasure::Digester;
use gabion_store::{BodyError, ChecksumAlgorithm};
use http::HeaderMap;
use http_body_util::BodyDataStream;
use parking_lot::Mutex;

use super::SIGNED_CHUNK_BYTES_MAX;
use crate::auth::sigv4::{Chunks, Framing};
use crate::http::Stalled;

/// Takes the trailers when the body has been read to its end.
pub(super) type TakeTrailers = Box<dyn FnOnce() -> Option<HeaderMap> + Send + Sync>;

/// The bytes of a request's body.
pub(super) struct Content {
    /// Never locked: it makes this `Sync`, which futures that hold a reference want.
    stream: Mutex<BoxStream<'static, Result<Bytes, BodyError>>>,
    exact: Option<u64>,
}

impl Default for Content {
    fn default() -> Self {
        Self::new(Box::pin(stream::empty()), Some(0))
    }
}

impl Content {
    fn new(stream: BoxStream<'static, Result<Bytes, BodyError>>, exact: Option<u64>) -> Self {
        Self { stream: Mutex::new(stream), exact }
    }

    /// A body that arrives in these pieces.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn of_pieces(pieces: Vec<Result<Bytes, BodyError>>) -> Self {
        Self::new(Box::pin(stream::iter(pieces)), None)
    }

    /// A body as it comes from the client.
    fn raw<B>(body: B) -> Self
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let exact = body.size_hint().exact();
        let frames = BodyDataStream::new(body).map(|bytes| bytes.map_err(|error| body_error(&*error.into())));
        Self::new(Box::pin(frames), exact)
    }

    /// A body as it comes from the client, with what its signature says about it.
    pub(super) fn framed<B>(body: B, framing: Framing) -> (Self, Option<TakeTrailers>)
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        Self::raw(body).unframed(framing)
    }

    fn unframed(self, framing: Framing) -> (Self, Option<TakeTrailers>) {
        let (frames, exact) = (self.stream.into_inner(), self.exact);
        match framing {
            Framing::Plain { sha256: None, .. } => (Self::new(frames, exact), None),
            Framing::Plain { sha256: Some(sha256), length } => {
                let digester = Digester::new(false, &[ChecksumAlgorithm::Sha256]);
                let stream = Hashed { frames, digester: Some(digester), sha256, left: length.or(exact) };
                (Self::new(Box::pin(stream), exact), None)
            }
            Framing::Chunked { signing, has_trailers } => {
                let chunks = Chunks::new(frames, signing, has_trailers, SIGNED_CHUNK_BYTES_MAX);
                let trailers = chunks.trailers();
                let take: TakeTrailers = Box::new(move || trailers.lock().take());
                (Self::new(Box::pin(chunks), None), Some(take))
            }
        }
    }

    /// Bytes that are left, as far as HTTP says so.
    pub(super) fn exact(&self) -> Option<u64> {
        self.exact
    }

    /// The next bytes.
    pub(super) async fn next(&mut self) -> Option<Result<Bytes, BodyError>> {
        self.stream.get_mut().next().await
    }
}

/// The body of a request whose head s3s verifies.
#[derive(Clone)]
pub(super) struct Waiting(Arc<Mutex<Option<Content>>>);

impl Waiting {
    pub(super) fn new<B>(body: B) -> Self
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        Self(Arc::new(Mutex::new(Some(Content::raw(body)))))
    }

    /// The body, and its trailers, now that it is known how it comes.
    pub(super) fn unframed(&self, framing: Framing) -> (Content, Option<TakeTrailers>) {
        self.0.lock().take().unwrap_or_default().unframed(framing)
    }
}

/// Bytes that must have a certain SHA-256.
struct Hashed<S> {
    frames: S,
    /// Until the end was seen.
    digester: Option<Digester>,
    sha256: [u8; 32],
    /// Bytes that are missing, if their number was said: a body that is cut off is told so, not that it hashes to something else.
    left: Option<u64>,
}

impl<S: Stream<Item = Result<Bytes, BodyError>> + Unpin> Stream for Hashed<S> {
    type Item = Result<Bytes, BodyError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        let next = ready!(Pin::new(&mut this.frames).poll_next(cx));
        match (&next, this.digester.as_mut()) {
            (Some(Ok(bytes)), Some(digester)) => {
                digester.update(bytes);
                this.left = this.left.map(|left| left.saturating_sub(bytes.len() as u64));
            }
            (None, Some(_)) if this.left.is_some_and(|left| left > 0) => {
                this.digester = None;
                return Poll::Ready(Some(Err(BodyError::Incomplete)));
            }
            (None, Some(_)) => {
                let found = this.digester.take().map(Digester::finish);
                let found = found.and_then(|found| found.checksums.first()?.as_bytes().try_into().ok());
                if let Some(found) = found.filter(|found| *found != this.sha256) {
                    return Poll::Ready(Some(Err(BodyError::Sha256Mismatch { found })));
                }
            }
            (Some(Err(_)), _) => this.digester = None,
            (_, None) => {}
        }
        Poll::Ready(next)
    }
}

/// What a broken body means: an error of ours, however deep in the connection's, or the connection's.
fn body_error(error: &(dyn std::error::Error + 'static)) -> BodyError {
    let mut next = Some(error);
    while let Some(error) = next {
        if error.is::<Stalled>() {
            return BodyError::TimedOut;
        }
        let inner = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        next = match inner {
            Some(inner) => Some(inner as &(dyn std::error::Error + 'static)),
            None => error.source(),
        };
    }
    BodyError::Incomplete
}

#[cfg(test)]
mod tests {
    use super::*;

    type Boxed = Box<dyn std::error::Error + Send + Sync>;

    #[test]
    fn broken_bodies_say_why() {
        let table: Vec<(Boxed, BodyError)> = vec![
            (Stalled.into(), BodyError::TimedOut),
            (std::io::Error::other(Stalled).into(), BodyError::TimedOut),
            (std::io::Error::other("reset").into(), BodyError::Incomplete),
        ];
        for (error, expected) in table {
            assert_eq!(body_error(&*error), expected, "{error}");
        }
    }
}
