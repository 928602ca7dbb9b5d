//! One connection: handshake, requests, watchdog, end.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri, Version, header};
use http_body::Body as _;
use http_body_util::{Either, Full};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use super::activity::{Activity, Expired, InFlight};
use super::direct::{self, Outcome};
use super::limits::BUFFER_BYTES_MIN;
use super::long_body::Wire;
use super::observe::{ByteCount, ObservedBody, Observer, PIECE_BYTES_MAX, Pending};
use super::seldom::Seldom;
use super::transport::{Channel, Transport};
use super::{Answer, Arriving, Handler, HttpLimits, Peer, RequestBody};
use crate::metrics::Closed;
use crate::tls::ReloadingTls;

/// What all connections of a server share.
pub(super) struct Shared<H> {
    pub(super) handler: H,
    pub(super) limits: HttpLimits,
    pub(super) observer: Option<Observer>,
    /// Requests in flight are finished, then the connection is closed.
    pub(super) closing: CancellationToken,
    /// The connection is closed at once.
    pub(super) cut: CancellationToken,
    pub(super) http: auto::Builder<TokioExecutor>,
    /// The same for connections that have spoken HTTP/1 before.
    pub(super) http1: auto::Builder<TokioExecutor>,
    /// Whether plain requests are answered without hyper.
    pub(super) direct: bool,
}

/// Bytes of an HTTP/2 stream that a client may send ahead of the server's reading.
const STREAM_WINDOW_BYTES: u32 = 512 * 1024;
/// The same for all streams of a connection.
const CONNECTION_WINDOW_BYTES: u32 = 2 * 1024 * 1024;

/// Most headers of a request if hyper is told nothing: for so many it has room on the stack.
const HYPER_HEADERS_MAX: usize = 100;

/// The HTTP settings that follow from the limits.
pub(super) fn builder(limits: &HttpLimits) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        // hyper's own timer would also run between requests; `Activity` tells the two apart.
        .header_read_timeout(None)
        .max_buf_size(limits.buffer_bytes_max.max(BUFFER_BYTES_MIN))
        // Extents go to the socket as they are, without a copy into one buffer.
        .writev(true);
    if limits.header_count_max != HYPER_HEADERS_MAX {
        // Said explicitly, even that number would cost two allocations of some KiB per request.
        builder.http1().max_headers(limits.header_count_max);
    }
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.streams_max)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        // Of all streams together about what a connection of HTTP/1 has; a piece of an answer is queued as a whole.
        .max_send_buf_size((limits.buffer_bytes_max / limits.streams_max.max(1) as usize).max(PIECE_BYTES_MAX))
        .max_header_list_size(u32::try_from(limits.header_bytes_max).unwrap_or(u32::MAX));
    builder
}

/// Serves one accepted connection to its end.
pub(super) async fn run<H: Handler>(
    shared: Arc<Shared<H>>,
    stream: TcpStream,
    address: SocketAddr,
    tls: Option<Arc<ReloadingTls>>,
) {
    let gauge = shared.observer.as_ref().map(|observer| observer.metrics.connection_opened());
    let reason = serve(&shared, stream, address, tls).await;
    if let Some(gauge) = gauge {
        gauge.closed(reason);
    }
}

async fn serve<H: Handler>(
    shared: &Arc<Shared<H>>,
    stream: TcpStream,
    address: SocketAddr,
    tls: Option<Arc<ReloadingTls>>,
) -> Closed {
    // A small answer must not wait for the acknowledgement of the one before.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%address, %error, "the connection is gone before it was served");
        return Closed::Error;
    }
    let peer = Peer { address, tls: tls.is_some() };
    let channel = match tls {
        None => Channel::Clear(stream),
        Some(tls) => {
            let handshake = tokio::time::timeout(shared.limits.header_timeout, tls.accept(stream));
            let outcome = tokio::select! {
                outcome = handshake => outcome,
                () = shared.closing.cancelled() => return Closed::Shutdown,
            };
            match outcome {
                Ok(Ok(stream)) => Channel::Tls(Box::new(stream)),
                Ok(Err(error)) => {
                    tracing::debug!(%address, %error, "TLS handshake failed");
                    return Closed::Handshake;
                }
                Err(_) => return Closed::Handshake,
            }
        }
    };
    let activity = Activity::new();
    // Requests share one of their connection: to share that of all, processors would take it from each other.
    let observer = shared.observer.clone().map(Arc::new);
    let transport = Transport::new(channel, Arc::clone(&activity), &shared.limits);
    let mut wire = Some(Box::new(Wire::new(transport)));
    let mut end = pin!(Seldom::new(async {
        tokio::select! {
            () = shared.cut.cancelled() => End::Cut,
            () = shared.closing.cancelled() => End::Closing,
            expired = activity.watch(&shared.limits) => End::Expired(expired),
        }
    }));
    let mut cut = pin!(Seldom::new(shared.cut.cancelled()));
    // What ends the connection from our side; the client may always be first.
    let mut reason = None;
    let mut http = &shared.http;
    if let Some(observer) = observer.as_ref().filter(|_| shared.direct) {
        let ending = AtomicBool::new(false);
        let handed_over = {
            let mut serving = pin!(direct::serve(shared, observer, &activity, peer, &mut wire, &ending));
            loop {
                tokio::select! {
                    // It is nearly always the one that woke the task.
                    biased;
                    outcome = serving.as_mut() => match outcome {
                        Outcome::HandOver { served } => break Some(served),
                        Outcome::Closed => return reason.unwrap_or(Closed::Client),
                        Outcome::Broken(error) => return reason.unwrap_or_else(|| broken(address, &error)),
                    },
                    end = end.as_mut(), if reason.is_none() => match closed_by(end, address) {
                        Some(closed) => return closed,
                        None if !activity.is_busy() => break None,
                        None => {
                            reason = Some(Closed::Shutdown);
                            ending.store(true, Ordering::Relaxed);
                        }
                    },
                    () = cut.as_mut(), if reason.is_some() => return Closed::Cut,
                }
            }
        };
        match (handed_over, &mut wire) {
            (Some(served), _) if served => http = &shared.http1,
            (Some(_), _) => {}
            (None, Some(wire)) => {
                tokio::select! {
                    // It has nothing to lose.
                    _ = wire.transport.shutdown() => {}
                    () = cut.as_mut() => {}
                }
                return Closed::Shutdown;
            }
            (None, None) => return Closed::Shutdown,
        }
    }
    // Nobody has a body now.
    let Some(wire) = wire else { return Closed::Error };
    let Wire { mut transport, input, .. } = *wire;
    transport.unread(input);
    let service =
        service_fn(|request| answer(Arc::clone(shared), observer.as_ref(), &activity, peer, Arriving::of(request)));
    let mut connection = pin!(http.serve_connection(TokioIo::new(transport), service));
    // Hyper has to see what was read before it hears that no more is to come.
    let mut told = reason.is_none();
    loop {
        tokio::select! {
            biased;
            outcome = connection.as_mut() => {
                let outcome = outcome.map_or_else(|error| broken(address, &*error), |()| Closed::Client);
                return reason.unwrap_or(outcome);
            }
            () = std::future::ready(()), if !told => {
                told = true;
                connection.as_mut().graceful_shutdown();
            }
            end = end.as_mut(), if reason.is_none() => match closed_by(end, address) {
                Some(closed) => return closed,
                None => {
                    reason = Some(Closed::Shutdown);
                    connection.as_mut().graceful_shutdown();
                }
            },
            () = cut.as_mut(), if reason.is_some() => return Closed::Cut,
        }
    }
}

/// What may end a connection from our side.
enum End {
    Expired(Expired),
    /// The server stops: what is in flight is finished.
    Closing,
    Cut,
}

/// Why a connection is closed at once; nothing if what is in flight is to be finished first.
fn closed_by(end: End, address: SocketAddr) -> Option<Closed> {
    match end {
        // Between two requests nothing is lost.
        End::Expired(Expired::Idle) => Some(Closed::Idle),
        End::Expired(Expired::Header) => {
            tracing::debug!(%address, "closed: the head of a request took too long");
            Some(Closed::HeaderTimeout)
        }
        End::Expired(Expired::Stalled) => {
            tracing::debug!(%address, "closed: the client takes nothing of its answers");
            Some(Closed::Stalled)
        }
        End::Cut => Some(Closed::Cut),
        End::Closing => None,
    }
}

fn broken(address: SocketAddr, error: &(dyn std::error::Error + 'static)) -> Closed {
    tracing::debug!(%address, error, "connection ended with an error");
    if is_stall(error) { Closed::Stalled } else { Closed::Error }
}

fn is_stall(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        // An `io::Error` shows the error inside it only by downcast, not as its source.
        let inner = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        if error.is::<super::Stalled>() || inner.is_some_and(|inner| inner.is::<super::Stalled>()) {
            return true;
        }
        next = error.source();
    }
    false
}

type Answered<H> = Response<ObservedBody<Either<Full<Bytes>, <H as Handler>::Body>>>;

/// A request that is being answered.
pub(super) struct Begun {
    in_flight: InFlight,
    pending: Option<Pending>,
    headless: bool,
    closes: bool,
}

impl Begun {
    /// Takes up a request. Its body is for the handler, unless it is refused.
    pub(super) fn new(
        limits: &HttpLimits,
        observer: Option<&Arc<Observer>>,
        activity: &Arc<Activity>,
        peer: Peer,
        head: &Parts,
        body: Arriving,
    ) -> (Self, Result<RequestBody, Response<Full<Bytes>>>) {
        let in_flight = activity.begin(head.version == Version::HTTP_2);
        let received = ByteCount::of(&body);
        let pending = observer.map(|observer| Pending::new(observer, peer.address, head, received.clone()));
        let headless = head.method == Method::HEAD;
        let closes = answered_without_continue(head, &body);
        let body = match refusal(head, limits.header_bytes_max) {
            None => Ok(RequestBody::new(body, limits, received)),
            Some(refusal) => Err(refusal),
        };
        (Self { in_flight, pending, headless, closes }, body)
    }

    /// The answer, as it is sent.
    pub(super) fn answered<B: http_body::Body<Data = Bytes>>(self, mut answer: Answer<B>) -> Response<ObservedBody<B>> {
        let Self { in_flight, mut pending, headless, closes } = self;
        if closes {
            answer.response.headers_mut().insert(header::CONNECTION, header::HeaderValue::from_static("close"));
        }
        if let Some(pending) = &mut pending {
            pending.answered(&answer);
        }
        answer.response.map(|body| ObservedBody::new(body, in_flight, pending, headless))
    }
}

/// What a handler, or somebody before it, makes of a request.
pub(super) fn either<A, B>(answer: Result<Answer<B>, Response<A>>) -> Answer<Either<A, B>> {
    match answer {
        Ok(Answer { response, operation }) => Answer { response: response.map(Either::Right), operation },
        Err(refusal) => Answer::from(refusal.map(Either::Left)),
    }
}

/// Answers a request that hyper has read. As much as can be is done before the future is made, which is moved about.
fn answer<H: Handler>(
    shared: Arc<Shared<H>>,
    observer: Option<&Arc<Observer>>,
    activity: &Arc<Activity>,
    peer: Peer,
    request: Request<Arriving>,
) -> impl Future<Output = Result<Answered<H>, Infallible>> + Send + use<H> {
    let (mut head, body) = request.into_parts();
    name_host(&mut head);
    let (begun, body) = Begun::new(&shared.limits, observer, activity, peer, &head, body);
    async move {
        let answer = match body {
            Ok(body) => Ok(shared.handler.handle(&mut head, body, peer).await),
            Err(refusal) => Err(refusal),
        };
        Ok(begun.answered(either(answer)))
    }
}

/// HTTP/2 says the host in a place of its own; signatures and logs want it where HTTP/1 has it.
fn name_host(head: &mut Parts) {
    if head.version == Version::HTTP_2
        && !head.headers.contains_key(header::HOST)
        && let Some(Ok(host)) = head.uri.authority().map(|host| header::HeaderValue::from_str(host.as_str()))
    {
        head.headers.insert(header::HOST, host);
    }
}

/// Whether the request expects `100 Continue` for an empty body, which HTTP lets a server skip. aws-cli 1 (its botocore up to 1.43) sends this for
/// empty files and misreads the next answer on the connection when the first one was final: it hangs until its timeout. Closing is its way out.
fn answered_without_continue(head: &Parts, body: &Arriving) -> bool {
    let expects =
        head.headers.get(header::EXPECT).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"));
    expects && head.version == Version::HTTP_11 && body.is_end_stream()
}

fn head_bytes(uri: &Uri, headers: &HeaderMap) -> usize {
    let target = uri.path_and_query().map_or(0, |target| target.as_str().len());
    headers.iter().fold(target, |sum, (name, value)| sum + name.as_str().len() + value.len())
}

/// What is answered to a request that nobody else is to see.
fn refusal(head: &Parts, bytes_max: usize) -> Option<Response<Full<Bytes>>> {
    let Parts { uri, headers, version, .. } = head;
    if head_bytes(uri, headers) > bytes_max {
        let size = format!("<MaxSizeAllowed>{bytes_max}</MaxSizeAllowed>");
        let message = "Your request header section exceeds the maximum allowed size.";
        return Some(refused("RequestHeaderSectionTooLarge", message, &size));
    }
    // Whoever stands before this server and goes by another line, or by none, must not take the answer for that of another host.
    let hosts = headers.get_all(header::HOST).iter().take(2).count();
    match (hosts, *version) {
        (1, _) | (0, Version::HTTP_09 | Version::HTTP_10) => None,
        _ => Some(refused("InvalidRequest", "The request must name its host, and only once.", "")),
    }
}

/// A refusal, in the manner of S3; `details` are elements.
fn refused(code: &str, message: &str, details: &str) -> Response<Full<Bytes>> {
    let body = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>{code}</Code><Message>{message}</Message>{details}</Error>"
    );
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = StatusCode::BAD_REQUEST;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/xml"));
    headers.insert(header::CONNECTION, header::HeaderValue::from_static("close"));
    response
}
