//! What is left of a body when its request was answered early.
//!
//! A client that sends while we close loses the answer: its next write is reset, and many report that instead of reading what came before. So a
//! reasonable rest is taken in and thrown away while the answer is under way.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Version, header};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::runtime::Handle;

/// Most bytes that are thrown away. From 1 or 2 MiB on SDKs ask before they send; bodies in chunks are a little longer than what is in them.
const DISCARDED_BYTES_MAX: u64 = 4 << 20;

/// Longest time for it.
const DISCARDING: Duration = Duration::from_secs(10);

/// A body as hyper gives it. Dropped before its end, the rest is discarded.
pub struct Arriving {
    inner: Option<Incoming>,
    /// Whether there may be a rest that the client sends unasked.
    is_sent: bool,
}

impl Arriving {
    /// The body of a request, and whether hyper is to be left alone with its rest: HTTP/2 resets streams one by one, and whoever expects to be asked
    /// does not send before he is.
    pub(super) fn of(request: Request<Incoming>) -> Request<Arriving> {
        let is_sent = request.version() < Version::HTTP_2 && !request.headers().contains_key(header::EXPECT);
        request.map(|inner| Arriving { inner: Some(inner), is_sent })
    }
}

impl Body for Arriving {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match &mut self.inner {
            Some(inner) => {
                let frame = std::task::ready!(Pin::new(inner).poll_frame(cx));
                // Bytes that came were asked for.
                self.is_sent |= matches!(&frame, Some(Ok(_)));
                if !matches!(&frame, Some(Ok(_))) {
                    self.inner = None;
                }
                Poll::Ready(frame)
            }
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

impl Drop for Arriving {
    fn drop(&mut self) {
        if !self.is_sent || self.is_end_stream() || self.size_hint().lower() > DISCARDED_BYTES_MAX {
            return;
        }
        if let (Some(inner), Ok(runtime)) = (self.inner.take(), Handle::try_current()) {
            runtime.spawn(tokio::time::timeout(DISCARDING, discard(inner)));
        }
    }
}

async fn discard(mut body: Incoming) {
    let mut left = DISCARDED_BYTES_MAX;
    while let Some(Ok(frame)) = body.frame().await {
        let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
        match left.checked_sub(bytes) {
            Some(rest) => left = rest,
            None => return,
        }
    }
}
