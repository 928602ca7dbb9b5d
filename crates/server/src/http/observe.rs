//! What is known of a request when its answer has been sent: for metrics, the access log and the debug log.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use gabion_platform::Clock;
use http::{HeaderMap, HeaderName, Method, Request, Response, StatusCode, Uri, Version, header};
use http_body::{Body, Frame, SizeHint};

use super::OperationName;
use super::activity::InFlight;
use crate::access_log::AccessLog;
use crate::metrics::ServerMetrics;

/// The header that carries the request's id in an answer.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-amz-request-id");

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

/// Bytes that have passed, shared between a body and the request's record.
#[derive(Debug, Clone, Default)]
pub(super) struct ByteCount(Arc<AtomicU64>);

impl ByteCount {
    pub(super) fn add(&self, bytes: u64) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A finished request.
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
    /// The S3 operation; `Unknown` if it was refused before one was recognised.
    pub operation: &'static str,
    /// Status of the answer.
    pub status: StatusCode,
    /// Id that the answer carried.
    pub request_id: Option<String>,
    /// What the client says it is.
    pub user_agent: Option<String>,
    /// Bytes of the body that were received.
    pub received_bytes: u64,
    /// Bytes of the answer's body that were handed to the connection.
    pub sent_bytes: u64,
    /// From the request's head to the answer's head, in nanoseconds.
    pub first_byte_ns: u64,
    /// From the request's head to the end of the answer, in nanoseconds.
    pub total_ns: u64,
    /// Whether the whole answer was handed to the connection; otherwise the client hung up or the body failed.
    pub complete: bool,
}

/// A request whose answer is not there yet. A client may hang up before: then dropping it reports that.
pub(super) struct Pending {
    observer: Observer,
    received: ByteCount,
    started_ns: u64,
    line: Option<RequestLine>,
}

/// The status that is reported for a request whose client hung up before there was an answer (nginx's convention).
const CLIENT_CLOSED_REQUEST: u16 = 499;

impl Pending {
    pub(super) fn new<B>(observer: &Observer, peer: SocketAddr, request: &Request<B>, received: ByteCount) -> Self {
        observer.metrics.request_began();
        let user_agent = match &observer.access_log {
            Some(_) => text(request.headers(), &header::USER_AGENT),
            None => None,
        };
        let line = RequestLine {
            time_ms: observer.clock.now_ms(),
            peer,
            method: request.method().clone(),
            uri: request.uri().clone(),
            version: request.version(),
            operation: OperationName::UNKNOWN.0,
            status: StatusCode::from_u16(CLIENT_CLOSED_REQUEST).expect("a status of three digits"),
            request_id: None,
            user_agent,
            received_bytes: 0,
            sent_bytes: 0,
            first_byte_ns: 0,
            total_ns: 0,
            complete: false,
        };
        Self { observer: observer.clone(), received, started_ns: observer.clock.monotonic_ns(), line: Some(line) }
    }

    /// The answer's head is there.
    pub(super) fn answered<B>(&mut self, response: &Response<B>) {
        let first_byte_ns = self.observer.clock.monotonic_ns().saturating_sub(self.started_ns);
        let Some(line) = &mut self.line else { return };
        line.first_byte_ns = first_byte_ns;
        line.status = response.status();
        if let Some(operation) = response.extensions().get::<OperationName>() {
            line.operation = operation.0;
        }
        if self.observer.access_log.is_some() || tracing::enabled!(tracing::Level::DEBUG) {
            line.request_id = text(response.headers(), &REQUEST_ID);
        }
    }

    fn finish(&mut self, sent_bytes: u64, complete: bool) {
        let Some(mut line) = self.line.take() else { return };
        line.sent_bytes = sent_bytes;
        line.complete = complete;
        line.received_bytes = self.received.get();
        line.total_ns = self.observer.clock.monotonic_ns().saturating_sub(self.started_ns);
        self.observer.metrics.request_ended(&line);
        tracing::debug!(
            target: "gabion::request",
            operation = line.operation,
            status = line.status.as_u16(),
            method = %line.method,
            path = line.uri.path(),
            peer = %line.peer,
            received_bytes = line.received_bytes,
            sent_bytes = line.sent_bytes,
            total_us = line.total_ns / 1000,
            request_id = line.request_id.as_deref().unwrap_or(""),
            complete = line.complete,
            "request"
        );
        if let Some(access_log) = &self.observer.access_log {
            access_log.write(&line);
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
    pub(super) fn new(inner: B, in_flight: InFlight, pending: Option<Pending>, headless: bool) -> Self {
        let ended = headless || inner.is_end_stream();
        Self { inner, in_flight: Some(in_flight), pending, sent_bytes: 0, ended }
    }
}

impl<B: Body<Data = Bytes>> Body for ObservedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let mut this = self.project();
        let frame = std::task::ready!(this.inner.as_mut().poll_frame(cx));
        match &frame {
            Some(Ok(data)) => {
                *this.sent_bytes += data.data_ref().map_or(0, |data| data.len() as u64);
                *this.ended = this.inner.is_end_stream();
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
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
