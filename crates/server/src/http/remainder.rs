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

/// A body as it arrives. Dropped before its end, the rest is discarded.
pub struct Arriving {
    inner: Inner,
    /// Whether there may be a rest that the client sends unasked.
    is_sent: bool,
}

enum Inner {
    /// By hyper.
    Incoming(Incoming),
    /// All that there is of it, which is something.
    Whole(Bytes),
    Ended,
}

impl Arriving {
    /// The body of a request, and whether hyper is to be left alone with its rest: HTTP/2 resets streams one by one, and whoever expects to be asked
    /// does not send before he is.
    pub(super) fn of(request: Request<Incoming>) -> Request<Arriving> {
        let is_sent = request.version() < Version::HTTP_2 && !request.headers().contains_key(header::EXPECT);
        request.map(|inner| Arriving { inner: Inner::Incoming(inner), is_sent })
    }

    /// A body that is here already.
    pub(super) fn whole(bytes: Bytes) -> Self {
        let inner = if bytes.is_empty() { Inner::Ended } else { Inner::Whole(bytes) };
        Self { inner, is_sent: false }
    }
}

impl Body for Arriving {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let incoming = match &mut self.inner {
            Inner::Incoming(incoming) => incoming,
            Inner::Whole(bytes) => {
                let bytes = std::mem::take(bytes);
                self.inner = Inner::Ended;
                return Poll::Ready(Some(Ok(Frame::data(bytes))));
            }
            Inner::Ended => return Poll::Ready(None),
        };
        let frame = std::task::ready!(Pin::new(incoming).poll_frame(cx));
        // Bytes that came were asked for.
        self.is_sent |= matches!(&frame, Some(Ok(_)));
        if !matches!(&frame, Some(Ok(_))) {
            self.inner = Inner::Ended;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.inner {
            Inner::Incoming(incoming) => incoming.is_end_stream(),
            Inner::Whole(_) => false,
            Inner::Ended => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.inner {
            Inner::Incoming(incoming) => incoming.size_hint(),
            Inner::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Inner::Ended => SizeHint::with_exact(0),
        }
    }
}

impl Drop for Arriving {
    fn drop(&mut self) {
        if !self.is_sent || self.is_end_stream() || self.size_hint().lower() > DISCARDED_BYTES_MAX {
            return;
        }
        if let (Inner::Incoming(incoming), Ok(runtime)) =
            (std::mem::replace(&mut self.inner, Inner::Ended), Handle::try_current())
        {
            runtime.spawn(tokio::time::timeout(DISCARDING, discard(incoming)));
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
