//! The body of an authenticated request, whoever authenticated it: bytes without framing, and why there are no more.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt};
use gabion_erasure::Digester;
use gabion_store::{BodyError, ChecksumAlgorithm};
use http::HeaderMap;
use http_body_util::BodyDataStream;
use parking_lot::Mutex;
use s3s::stream::ByteStream;
use s3s::stream::aws_chunked_stream::AwsChunkedStreamError;
use s3s::stream::upload_stream::UploadStreamError;

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

    /// A body of which s3s has taken the framing off.
    pub(super) fn of_s3s(body: s3s::Body) -> Self {
        let exact = body.remaining_length().exact().map(|length| length as u64);
        Self::new(Box::pin(body.map(|bytes| bytes.map_err(|error| body_error(&*error)))), exact)
    }

    /// A body that arrives in these pieces.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn of_pieces(pieces: Vec<Result<Bytes, BodyError>>) -> Self {
        Self::new(Box::pin(stream::iter(pieces)), None)
    }

    /// A body as it came from the client, with what its signature says about it.
    pub(super) fn framed<B>(body: B, framing: Framing) -> (Self, Option<TakeTrailers>)
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let exact = body.size_hint().exact();
        let frames = Box::pin(BodyDataStream::new(body).map(|bytes| bytes.map_err(|error| body_error(&*error.into()))));
        match framing {
            Framing::Plain { sha256: None, .. } => (Self::new(frames, exact), None),
            Framing::Plain { sha256: Some(sha256), length } => {
                let digester = Digester::new(false, &[ChecksumAlgorithm::Sha256]);
                let stream = Hashed { frames, digester: Some(digester), sha256, left: length.or(exact) };
                (Self::new(Box::pin(stream), exact), None)
            }
            Framing::Chunked(signing) => {
                let chunks = Chunks::new(frames, signing, SIGNED_CHUNK_BYTES_MAX);
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
                if found.is_some_and(|found| found.checksums.iter().any(|sum| sum.as_bytes() != this.sha256)) {
                    return Poll::Ready(Some(Err(BodyError::Sha256Mismatch)));
                }
            }
            (Some(Err(_)), _) => this.digester = None,
            (_, None) => {}
        }
        Poll::Ready(next)
    }
}

/// What a broken body means: s3s's own errors, ours below them, or the connection's.
fn body_error(error: &(dyn std::error::Error + 'static)) -> BodyError {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<UploadStreamError>() {
            match error {
                UploadStreamError::Sha256Mismatch => return BodyError::Sha256Mismatch,
                UploadStreamError::LengthMismatch | UploadStreamError::Incomplete => return BodyError::Incomplete,
                UploadStreamError::Underlying(_) => {}
            }
        } else if let Some(error) = error.downcast_ref::<AwsChunkedStreamError>() {
            match error {
                AwsChunkedStreamError::SignatureMismatch => return BodyError::BadChunkSignature,
                AwsChunkedStreamError::ChunkMetaTooLarge(..) | AwsChunkedStreamError::ChunkDataTooLarge(..) => {
                    return BodyError::TooLarge;
                }
                AwsChunkedStreamError::TrailersTooLarge(..) | AwsChunkedStreamError::TooManyTrailerHeaders(..) => {
                    return BodyError::Malformed("The trailers are too large.".into());
                }
                AwsChunkedStreamError::Underlying(_) => {}
                AwsChunkedStreamError::FormatError
                | AwsChunkedStreamError::Incomplete
                | AwsChunkedStreamError::LengthMismatch => return BodyError::Incomplete,
            }
        } else if error.is::<Stalled>() {
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
    use s3s::StdError;

    use super::*;

    #[test]
    fn broken_bodies_say_why() {
        let boxed = |error: StdError| UploadStreamError::Underlying(error);
        let table: Vec<(StdError, BodyError)> = vec![
            (UploadStreamError::Sha256Mismatch.into(), BodyError::Sha256Mismatch),
            (UploadStreamError::Incomplete.into(), BodyError::Incomplete),
            (AwsChunkedStreamError::SignatureMismatch.into(), BodyError::BadChunkSignature),
            (AwsChunkedStreamError::FormatError.into(), BodyError::Incomplete),
            (AwsChunkedStreamError::ChunkDataTooLarge(2, 1).into(), BodyError::TooLarge),
            (boxed(Stalled.into()).into(), BodyError::TimedOut),
            (boxed(std::io::Error::other(Stalled).into()).into(), BodyError::TimedOut),
            (AwsChunkedStreamError::Underlying(Stalled.into()).into(), BodyError::TimedOut),
            (std::io::Error::other("reset").into(), BodyError::Incomplete),
        ];
        for (error, expected) in table {
            assert_eq!(body_error(&*error), expected, "{error}");
        }
    }
}
