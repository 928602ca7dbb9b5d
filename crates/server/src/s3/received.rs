//! Whether a request's body was asked for, and came to its end.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use gabion_store::BodyPiece;
use http_body::{Body, Frame, SizeHint};

use crate::http::ReadInto;

/// Answers these questions after the body has been handed over. Of a request without a body nothing needs to be kept.
#[derive(Clone)]
pub(super) struct Received(Option<Arc<Progress>>);

struct Progress {
    asked: AtomicBool,
    complete: AtomicBool,
}

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
        let progress = || Arc::new(Progress { asked: AtomicBool::new(false), complete: AtomicBool::new(false) });
        let received = Received((!body.is_end_stream()).then(progress));
        (Watched { inner: body, received: received.clone() }, received)
    }

    /// Whether there is nothing left of it.
    pub(super) fn is_complete(&self) -> bool {
        self.0.as_ref().is_none_or(|progress| progress.complete.load(Ordering::Relaxed))
    }

    /// Whether somebody waited for bytes of it: then `100 Continue` is said, if the client waits for that.
    pub(super) fn was_asked_for(&self) -> bool {
        self.0.as_ref().is_some_and(|progress| progress.asked.load(Ordering::Relaxed))
    }
}

impl<B: Body<Data = Bytes>> Watched<B> {
    fn poll_next<T>(self: Pin<&mut Self>, poll: impl FnOnce(Pin<&mut B>) -> Poll<Option<T>>) -> Poll<Option<T>> {
        let this = self.project();
        let mut inner = this.inner;
        let Some(progress) = &this.received.0 else { return poll(inner) };
        if !inner.is_end_stream() {
            progress.asked.store(true, Ordering::Relaxed);
        }
        let next = std::task::ready!(poll(inner.as_mut()));
        if next.is_none() || inner.is_end_stream() {
            progress.complete.store(true, Ordering::Relaxed);
        }
        Poll::Ready(next)
    }
}

impl<B: ReadInto> ReadInto for Watched<B> {
    fn poll_into(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        room: &mut [u8],
    ) -> Poll<Option<Result<BodyPiece, B::Error>>> {
        self.poll_next(|inner| inner.poll_into(cx, room))
    }
}

impl<B: Body<Data = Bytes>> Body for Watched<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        self.poll_next(|inner| inner.poll_frame(cx))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
