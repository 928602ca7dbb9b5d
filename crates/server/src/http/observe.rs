//! What is known of a request when its answer has been sent: for metrics, the access log and the debug log.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use gabion_platform::Clock;
use http::request::Parts;
use http::{HeaderMap, HeaderName, Method, StatusCode, Uri, Version, header};
use http_body::{Body, Frame, SizeHint};
use tracing::Level;

use super::activity::InFlight;
use super::{Answer, OperationName};
use crate::access_log::AccessLog;
use crate::metrics::ServerMetrics;

/// The header that carries the request's id in an answer.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-amz-request-id");

/// Most bytes of an answer that are handed to HTTP/2 at once. What it has is in memory that nobody counts, however little its client takes; the rest is held by the body, and counted.
pub(super) const PIECE_BYTES_MAX: usize = 16 * 1024;

/// Where finished requests are reported.
#[derive(Clone)]
pub struct Observer {
    /// Measures how long requests take.
    pub clock: Arc<dyn Clock>,
    /// Counts them.
    pub metrics: Arc<ServerMetrics>,
    /// Writes a line for each, if it is wanted.
    pub access_log: Option<AccessLog>,
}

/// Bytes that have passed, shared between a body and the request's record. Of a request without a body none do.
#[derive(Debug, Clone, Default)]
pub(super) struct ByteCount(Option<Arc<AtomicU64>>);

impl ByteCount {
    /// Of what `body` will bring.
    pub(super) fn of<B: Body>(body: &B) -> Self {
        Self((!body.is_end_stream()).then(Arc::default))
    }

    pub(super) fn add(&self, bytes: u64) {
        if let Some(count) = &self.0 {
            count.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    fn get(&self) -> u64 {
        self.0.as_ref().map_or(0, |count| count.load(Ordering::Relaxed))
    }
}

/// What is counted of a finished request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestFigures {
    /// The S3 operation; `Unknown` if it was refused before one was recognised.
    pub operation: &'static str,
    /// Status of the answer.
    pub status: StatusCode,
    /// Bytes of the body that were received.
    pub received_bytes: u64,
    /// Bytes of the answer's body that were handed to the connection.
    pub sent_bytes: u64,
    /// From the request's head, or the end of a short body that was read with it, to the answer's head, in nanoseconds.
    pub first_byte_ns: u64,
    /// From there to the end of the answer, in nanoseconds.
    pub total_ns: u64,
    /// Whether the whole answer was handed to the connection; otherwise the client hung up or the body failed.
    pub complete: bool,
}

/// What logs say of a finished request beside its figures.
#[derive(Debug)]
pub struct RequestLine {
    /// When its head had been read, in ms since 1970.
    pub time_ms: u64,
    /// The client.
    pub peer: SocketAddr,
    /// Its method.
    pub method: Method,
    /// Its path and query, as sent.
    pub uri: Uri,
    /// HTTP version.
    pub version: Version,
    /// Id that the answer carried.
    pub request_id: Option<String>,
    /// What the client says it is.
    pub user_agent: Option<String>,
}

/// A request whose answer is not there yet. A client may hang up before: then dropping it reports that.
pub(super) struct Pending {
    /// Nothing once it was reported.
    observer: Option<Arc<Observer>>,
    received: ByteCount,
    started_ns: u64,
    figures: RequestFigures,
    /// Only if a log wants it.
    line: Option<Box<RequestLine>>,
}

/// The status that is reported for a request whose client hung up before there was an answer (nginx's convention).
const CLIENT_CLOSED_REQUEST: u16 = 499;

impl Pending {
    pub(super) fn new(observer: &Arc<Observer>, peer: SocketAddr, head: &Parts, received: ByteCount) -> Self {
        observer.metrics.request_began();
        let logged = observer.access_log.is_some() || tracing::enabled!(target: "gabion::request", Level::DEBUG);
        let line = logged.then(|| {
            Box::new(RequestLine {
                time_ms: observer.clock.now_ms(),
                peer,
                method: head.method.clone(),
                uri: head.uri.clone(),
                version: head.version,
                request_id: None,
                user_agent: text(&head.headers, &header::USER_AGENT),
            })
        });
        let figures = RequestFigures {
            operation: OperationName::UNKNOWN.0,
            status: StatusCode::from_u16(CLIENT_CLOSED_REQUEST).expect("a status of three digits"),
            received_bytes: 0,
            sent_bytes: 0,
            first_byte_ns: 0,
            total_ns: 0,
            complete: false,
        };
        let started_ns = observer.clock.monotonic_ns();
        Self { observer: Some(Arc::clone(observer)), received, started_ns, figures, line }
    }

    /// The answer's head is there.
    pub(super) fn answered<B>(&mut self, answer: &Answer<B>) {
        if let Some(observer) = &self.observer {
            self.figures.first_byte_ns = observer.clock.monotonic_ns().saturating_sub(self.started_ns);
        }
        self.figures.status = answer.response.status();
        self.figures.operation = answer.operation.0;
        if let Some(line) = &mut self.line {
            line.request_id = text(answer.response.headers(), &REQUEST_ID);
        }
    }

    fn finish(&mut self, sent_bytes: u64, complete: bool) {
        if let Some(observer) = self.observer.take() {
            let total_ns = observer.clock.monotonic_ns().saturating_sub(self.started_ns);
            self.report(&observer, total_ns, sent_bytes, complete);
        }
    }

    /// Nothing is sent of the answer but its head, which was there just now.
    fn finish_with_head(&mut self) {
        if let Some(observer) = self.observer.take() {
            self.report(&observer, self.figures.first_byte_ns, 0, true);
        }
    }

    fn report(&mut self, observer: &Observer, total_ns: u64, sent_bytes: u64, complete: bool) {
        let figures = &mut self.figures;
        figures.total_ns = total_ns;
        figures.sent_bytes = sent_bytes;
        figures.complete = complete;
        figures.received_bytes = self.received.get();
        observer.metrics.request_ended(figures);
        let Some(line) = self.line.take() else { return };
        tracing::debug!(
            target: "gabion::request",
            operation = figures.operation,
            status = figures.status.as_u16(),
            method = %line.method,
            path = line.uri.path(),
            peer = %line.peer,
            received_bytes = figures.received_bytes,
            sent_bytes = figures.sent_bytes,
            total_us = figures.total_ns / 1000,
            request_id = line.request_id.as_deref().unwrap_or(""),
            complete = figures.complete,
            "request"
        );
        if let Some(access_log) = &observer.access_log {
            access_log.write(&line, figures);
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.finish(0, false);
    }
}

fn text(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    let value = headers.get(name)?;
    Some(String::from_utf8_lossy(value.as_bytes()).into_owned())
}

pin_project_lite::pin_project! {
    /// An answer's body that reports its request when it has ended or was dropped.
    pub(super) struct ObservedBody<B> {
        #[pin]
        inner: B,
        // What is left of a piece that was too long for HTTP/2.
        rest: Bytes,
        // Holds the connection busy until the answer has been handed over.
        in_flight: Option<InFlight>,
        pending: Option<Pending>,
        sent_bytes: u64,
        // Whether the end was seen, or there is nothing that must be sent.
        ended: bool,
    }

    impl<B> PinnedDrop for ObservedBody<B> {
        fn drop(this: Pin<&mut Self>) {
            let this = this.project();
            if let Some(mut pending) = this.pending.take() {
                pending.finish(*this.sent_bytes, *this.ended);
            }
        }
    }
}

impl<B: Body<Data = Bytes>> ObservedBody<B> {
    /// `headless` says that the body is not sent at all: the request was a HEAD.
    pub(super) fn new(inner: B, in_flight: InFlight, mut pending: Option<Pending>, headless: bool) -> Self {
        let ended = headless || inner.is_end_stream();
        if ended && let Some(mut pending) = pending.take() {
            // Nothing will be asked for of it.
            pending.finish_with_head();
        }
        Self { inner, rest: Bytes::new(), in_flight: Some(in_flight), pending, sent_bytes: 0, ended }
    }

    /// Takes what holds the connection busy, for who knows when the answer has been sent.
    pub(super) fn take_in_flight(&mut self) -> Option<InFlight> {
        self.in_flight.take()
    }
}

impl<B: Body<Data = Bytes>> Body for ObservedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let mut this = self.project();
        let mut frame = match std::mem::take(this.rest) {
            rest if rest.is_empty() => std::task::ready!(this.inner.as_mut().poll_frame(cx)),
            rest => Some(Ok(Frame::data(rest))),
        };
        if let Some(activity) = this.in_flight.as_ref().map(InFlight::activity).filter(|activity| activity.is_http2()) {
            let piece = |mut data: Bytes| {
                *this.rest = data.split_off(data.len().min(PIECE_BYTES_MAX));
                activity.unsent(data)
            };
            frame = frame.map(|frame| frame.map(|frame| frame.map_data(piece)));
        }
        match &frame {
            Some(Ok(data)) => {
                *this.sent_bytes += data.data_ref().map_or(0, |data| data.len() as u64);
                *this.ended = this.rest.is_empty() && this.inner.is_end_stream();
            }
            Some(Err(_)) => *this.ended = false,
            None => *this.ended = true,
        }
        if *this.ended || matches!(frame, Some(Err(_))) {
            if let Some(mut pending) = this.pending.take() {
                pending.finish(*this.sent_bytes, *this.ended);
            }
            *this.in_flight = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (inner, rest) = (self.inner.size_hint(), self.rest.len() as u64);
        let mut hint = SizeHint::new();
        // The upper bound first: it may not be below the other.
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper.saturating_add(rest));
        }
        hint.set_lower(inner.lower().saturating_add(rest));
        hint
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::Waker;

    use http_body_util::Full;

    use super::super::activity::Activity;
    use super::*;

    #[test]
    fn http2_is_given_an_answer_in_pieces() {
        let bytes = Bytes::from_iter((0..100_000).map(|number| number as u8));
        for (http2, longest) in [(true, PIECE_BYTES_MAX), (false, bytes.len())] {
            let activity = Activity::new();
            let body = ObservedBody::new(Full::new(bytes.clone()), activity.begin(http2), None, false);
            let (mut body, mut cx) = (pin!(body), Context::from_waker(Waker::noop()));
            let mut sent = Vec::new();
            while !body.is_end_stream() {
                assert_eq!(body.size_hint().exact(), Some((bytes.len() - sent.len()) as u64));
                let Poll::Ready(Some(Ok(frame))) = body.as_mut().poll_frame(&mut cx) else { panic!("it is all there") };
                let piece = frame.into_data().unwrap();
                assert!(piece.len() <= longest && activity.is_busy() == (sent.len() + piece.len() < bytes.len()));
                sent.extend_from_slice(&piece);
            }
            assert_eq!(sent, bytes);
            assert!(matches!(body.poll_frame(&mut cx), Poll::Ready(None)));
        }
    }
}
