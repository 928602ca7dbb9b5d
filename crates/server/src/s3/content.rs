//! The body of an authenticated request, whoever authenticated it: bytes without framing, and why there are no more.
//!
//! s3s verifies heads alone: the body waits beside the request ([`Waiting`]) and is unframed here, so that there is one judge of framing.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::stream;
use gabion_erasure::Digester;
use gabion_store::{BodyError, BodyPiece, BodySource, ChecksumAlgorithm};
use http::HeaderMap;
use parking_lot::Mutex;

use crate::auth::sigv4::{Chunks, Framing};
use crate::http::{ReadInto, Stalled};

/// Takes the trailers when the body has been read to its end.
pub(super) type TakeTrailers = Box<dyn FnOnce() -> Option<HeaderMap> + Send + Sync>;

/// The bytes of a request's body.
pub(super) struct Content {
    /// Never locked: it makes this `Sync`, which futures that hold a reference want.
    source: Mutex<Box<dyn BodySource>>,
    exact: Option<u64>,
}

impl Default for Content {
    fn default() -> Self {
        Self::new(Box::new(stream::empty()), Some(0))
    }
}

impl Content {
    fn new(source: Box<dyn BodySource>, exact: Option<u64>) -> Self {
        Self { source: Mutex::new(source), exact }
    }

    /// A body that arrives in these pieces.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn of_pieces(pieces: Vec<Result<Bytes, BodyError>>) -> Self {
        Self::of_source(Box::new(stream::iter(pieces)))
    }

    /// A body that comes from there.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn of_source(source: Box<dyn BodySource>) -> Self {
        Self::new(source, None)
    }

    /// A body as it comes from the client.
    fn raw<B>(body: B) -> Self
    where
        B: ReadInto + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let exact = body.size_hint().exact();
        Self::new(Box::new(Raw(body)), exact)
    }

    /// A body as it comes from the client, with what its signature says about it.
    pub(super) fn framed<B>(body: B, framing: Framing) -> (Self, Option<TakeTrailers>)
    where
        B: ReadInto + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        Self::raw(body).unframed(framing)
    }

    fn unframed(self, framing: Framing) -> (Self, Option<TakeTrailers>) {
        let (source, exact) = (self.source.into_inner(), self.exact);
        match framing {
            Framing::Plain { sha256: None, .. } => (Self::new(source, exact), None),
            Framing::Plain { sha256: Some(sha256), length } => {
                let digester = Digester::new(false, &[ChecksumAlgorithm::Sha256]);
                let hashed = Hashed { source, digester: Some(digester), sha256, left: length.or(exact) };
                (Self::new(Box::new(hashed), exact), None)
            }
            Framing::Chunked { signing, has_trailers } => {
                let chunks = Chunks::new(source, signing, has_trailers);
                let trailers = chunks.trailers();
                let take: TakeTrailers = Box::new(move || trailers.lock().take());
                (Self::new(Box::new(chunks), None), Some(take))
            }
        }
    }

    /// Bytes that are left, as far as HTTP says so.
    pub(super) fn exact(&self) -> Option<u64> {
        self.exact
    }

    /// The next bytes.
    pub(super) async fn next(&mut self) -> Option<Result<Bytes, BodyError>> {
        let piece = poll_fn(|cx| self.poll_piece(cx, &mut [])).await?;
        Some(piece.map(|piece| piece.into_bytes()))
    }
}

impl BodySource for Content {
    fn poll_piece(&mut self, cx: &mut Context<'_>, room: &mut [u8]) -> Poll<Option<Result<BodyPiece, BodyError>>> {
        self.source.get_mut().poll_piece(cx, room)
    }
}

/// The bytes as they come.
struct Raw<B>(B);

impl<B> BodySource for Raw<B>
where
    B: ReadInto + Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    fn poll_piece(&mut self, cx: &mut Context<'_>, room: &mut [u8]) -> Poll<Option<Result<BodyPiece, BodyError>>> {
        let piece = ready!(Pin::new(&mut self.0).poll_into(cx, room));
        Poll::Ready(piece.map(|piece| piece.map_err(|error| body_error(&*error.into()))))
    }
}

/// The body of a request whose head s3s verifies.
#[derive(Clone)]
pub(super) struct Waiting(Arc<Mutex<Option<Content>>>);

impl Waiting {
    pub(super) fn new<B>(body: B) -> Self
    where
        B: ReadInto + Send + 'static,
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
struct Hashed {
    source: Box<dyn BodySource>,
    /// Until the end was seen.
    digester: Option<Digester>,
    sha256: [u8; 32],
    /// Bytes that are missing, if their number was said: a body that is cut off is told so, not that it hashes to something else.
    left: Option<u64>,
}

impl BodySource for Hashed {
    fn poll_piece(&mut self, cx: &mut Context<'_>, room: &mut [u8]) -> Poll<Option<Result<BodyPiece, BodyError>>> {
        let next = ready!(self.source.poll_piece(cx, room));
        match (&next, self.digester.as_mut()) {
            (Some(Ok(piece)), Some(digester)) => {
                digester.update(piece.bytes(room));
                self.left = self.left.map(|left| left.saturating_sub(piece.len() as u64));
            }
            (None, Some(_)) if self.left.is_some_and(|left| left > 0) => {
                self.digester = None;
                return Poll::Ready(Some(Err(BodyError::Incomplete)));
            }
            (None, Some(_)) => {
                let found = self.digester.take().map(Digester::finish);
                let found = found.and_then(|found| found.checksums.first()?.as_bytes().try_into().ok());
                if let Some(found) = found.filter(|found| *found != self.sha256) {
                    return Poll::Ready(Some(Err(BodyError::Sha256Mismatch { found })));
                }
            }
            (Some(Err(_)), _) => self.digester = None,
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
