//! Whether a request's body came to its end.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

/// Answers the question after the body has been handed over.
#[derive(Clone)]
pub(super) struct Received(Arc<AtomicBool>);

pin_project_lite::pin_project! {
    /// A body that is watched.
    pub(super) struct Watched<B> {
        #[pin]
        inner: B,
        received: Received,
    }
}

impl Received {
    /// Watches a body.
    pub(super) fn watch<B: Body>(body: B) -> (Watched<B>, Received) {
        let received = Received(Arc::new(AtomicBool::new(body.is_end_stream())));
        (Watched { inner: body, received: received.clone() }, received)
    }

    /// Whether there is nothing left of it.
    pub(super) fn is_complete(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl<B: Body<Data = Bytes>> Body for Watched<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.project();
        let mut inner = this.inner;
        let frame = std::task::ready!(inner.as_mut().poll_frame(cx));
        if frame.is_none() || inner.is_end_stream() {
            this.received.0.store(true, Ordering::Relaxed);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
