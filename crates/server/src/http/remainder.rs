//! What is left of a body when its request was answered early.
//!
//! A client that sends while we close loses the answer: its next write is reset, and many report that instead of reading what came before. So a
//! reasonable rest is taken in and thrown away while the answer is under way.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use gabion_store::BodyPiece;
use http::{Request, Version, header};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::runtime::Handle;

use super::ReadInto;
use super::long_body::{DISCARDED_BYTES_MAX, LongBody};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Longest time for it.
pub(super) const DISCARDING: Duration = Duration::from_secs(10);

/// A body as it arrives. Dropped before its end, the rest is discarded.
pub struct Arriving(Inner);

enum Inner {
    Incoming(ByHyper),
    /// From the connection, which sees to the rest itself.
    Long(Box<LongBody>),
    /// All that there is of it, which is something.
    Whole(Bytes),
    Ended,
}

struct ByHyper {
    /// Nothing once its rest is discarded.
    incoming: Option<Incoming>,
    /// Whether there may be a rest that the client sends unasked.
    is_sent: bool,
}

impl Arriving {
    /// The body of a request, and whether hyper is to be left alone with its rest: HTTP/2 resets streams one by one, and whoever expects to be asked
    /// does not send before he is.
    pub(super) fn of(request: Request<Incoming>) -> Request<Arriving> {
        let is_sent = request.version() < Version::HTTP_2 && !request.headers().contains_key(header::EXPECT);
        request.map(|incoming| Arriving(Inner::Incoming(ByHyper { incoming: Some(incoming), is_sent })))
    }

    /// A body that is here already.
    pub(super) fn whole(bytes: Bytes) -> Self {
        Self(if bytes.is_empty() { Inner::Ended } else { Inner::Whole(bytes) })
    }

    /// A body that is read from its connection.
    pub(super) fn long(body: LongBody) -> Self {
        Self(Inner::Long(Box::new(body)))
    }

    /// Whether nothing of it has to be waited for.
    pub(super) fn is_here(&self) -> bool {
        matches!(&self.0, Inner::Whole(_)) || self.is_end_stream()
    }
}

impl Body for Arriving {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = match &mut self.0 {
            Inner::Incoming(body) => ready!(body.poll_frame(cx)),
            Inner::Long(body) => match ready!(body.poll_piece(cx, &mut [])) {
                Some(Ok(piece)) => Some(Ok(Frame::data(piece.into_bytes()))),
                Some(Err(error)) => Some(Err(error.into())),
                None => None,
            },
            Inner::Whole(bytes) => {
                let bytes = std::mem::take(bytes);
                self.0 = Inner::Ended;
                return Poll::Ready(Some(Ok(Frame::data(bytes))));
            }
            Inner::Ended => return Poll::Ready(None),
        };
        if !matches!(&frame, Some(Ok(_))) {
            self.0 = Inner::Ended;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Inner::Incoming(body) => body.incoming.as_ref().is_none_or(Incoming::is_end_stream),
            Inner::Long(body) => body.left() == 0,
            Inner::Whole(_) => false,
            Inner::Ended => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Inner::Incoming(body) => body.incoming.as_ref().map_or(SizeHint::with_exact(0), Incoming::size_hint),
            Inner::Long(body) => SizeHint::with_exact(body.left()),
            Inner::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Inner::Ended => SizeHint::with_exact(0),
        }
    }
}

impl ReadInto for Arriving {
    fn poll_into(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        room: &mut [u8],
    ) -> Poll<Option<Result<BodyPiece, BoxError>>> {
        if let Inner::Long(body) = &mut self.0 {
            let piece = ready!(body.poll_piece(cx, room)).map(|piece| piece.map_err(BoxError::from));
            if !matches!(&piece, Some(Ok(_))) {
                self.0 = Inner::Ended;
            }
            return Poll::Ready(piece);
        }
        poll_data(self, cx)
    }
}

impl ReadInto for Incoming {
    fn poll_into(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        _room: &mut [u8],
    ) -> Poll<Option<Result<BodyPiece, hyper::Error>>> {
        poll_data(self, cx)
    }
}

/// The next bytes of a body that has memory of its own.
fn poll_data<B: Body<Data = Bytes>>(
    mut body: Pin<&mut B>,
    cx: &mut Context<'_>,
) -> Poll<Option<Result<BodyPiece, B::Error>>> {
    loop {
        match ready!(body.as_mut().poll_frame(cx)).transpose()?.map(Frame::into_data) {
            Some(Ok(bytes)) => return Poll::Ready(Some(Ok(BodyPiece::Bytes(bytes)))),
            // Trailers are nobody's business.
            Some(Err(_)) => {}
            None => return Poll::Ready(None),
        }
    }
}

impl ByHyper {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Some(incoming) = &mut self.incoming else { return Poll::Ready(None) };
        let frame = ready!(Pin::new(incoming).poll_frame(cx));
        // Bytes that came were asked for.
        self.is_sent |= matches!(&frame, Some(Ok(_)));
        if !matches!(&frame, Some(Ok(_))) {
            self.incoming = None;
        }
        Poll::Ready(frame.map(|frame| frame.map_err(BoxError::from)))
    }
}

impl Drop for ByHyper {
    fn drop(&mut self) {
        let Some(incoming) = self.incoming.take() else { return };
        if !self.is_sent || incoming.is_end_stream() || incoming.size_hint().lower() > DISCARDED_BYTES_MAX {
            return;
        }
        if let Ok(runtime) = Handle::try_current() {
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
