//! HTTP/1.1 as clients nearly always send it: a head that is not too long, no body or one of a known length, a connection that stays.
//!
//! Such requests are read and answered here, by a loop with one buffer for what comes and one for heads that go; long bodies are read as they are asked for
//! ([`LongBody`]). With whatever is not plain (HTTP/2, chunked bodies, `Connection: close`, heads that are malformed or too long) the connection goes to hyper, for good, with what
//! has been read: so there is one judge of errors, and all that this loop may do wrong is to take what hyper would have refused. Answers are framed as hyper frames them;
//! `http/tests.rs` compares the two.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{self, IoSlice, Write};
use std::mem::MaybeUninit;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, UNIX_EPOCH};

use bytes::{Buf, Bytes, BytesMut};
use gabion_platform::{FilePlace, FilePlaces, PagePipe};
use http::header::{CONNECTION, CONTENT_LENGTH, DATE, EXPECT, TRANSFER_ENCODING, UPGRADE};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, Uri, Version};
use http_body::Body;
use httpdate::HttpDate;
use tokio::io::AsyncWrite;

use super::activity::Activity;
use super::connection::{Begun, Shared, either};
use super::long_body::{After, Lender, LongBody, READ_BYTES, Wire};
use super::observe::Observer;
use super::remainder::{Arriving, DISCARDING};
use super::{ANSWER_HEADERS, BUFFER_BYTES_MIN, Handler, HttpLimits, Peer, no_head};

/// Longest head that is read here, in bytes.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Most headers.
const HEADERS_MAX: usize = 64;
/// Longest body, in bytes, that is in memory before its request is looked at.
const BODY_BYTES_MAX: usize = 64 * 1024;
/// How long it may be behind its head.
const BODY_WAIT: Duration = Duration::from_millis(200);
/// How long a client that was not asked for its body, or has too much of it, may take to close its side behind its answer.
const LINGERING: Duration = Duration::from_secs(1);
/// Most bytes of a body that are copied behind their head.
const COPIED_BYTES_MAX: usize = 8 * 1024;
/// Most pieces of a body that are sent at once, and their bytes.
const PIECES_MAX: usize = 16;
const PIECES_BYTES: usize = 512 * 1024;

/// Fewest bytes that are sent from the file that they lie in: of fewer a copy costs less than their pages' way through a pipe.
const PAGES_BYTES_MIN: usize = 16 * 1024;

/// How it ended.
pub(super) enum Outcome {
    /// What was read of the next request is for hyper.
    HandOver {
        /// Whether there were requests before: then HTTP/1 it is.
        served: bool,
    },
    /// The connection is to be closed.
    Closed,
    /// It broke.
    Broken(io::Error),
}

/// Serves requests until one is not plain, or the connection ends. `ending` says that the next answer is the last. The wire is here but for the time that a body has it.
pub(super) async fn serve<H: Handler>(
    shared: &Arc<Shared<H>>,
    observer: &Arc<Observer>,
    activity: &Arc<Activity>,
    peer: Peer,
    home: &mut Option<Box<Wire>>,
    ending: &AtomicBool,
) -> Outcome {
    let bounds = Bounds::new(&shared.limits);
    let mut answer_head = Vec::new();
    // That of each request in turn. When it was answered, the next one's headers lie where those of the answer did.
    let mut head = no_head();
    let mut served = false;
    loop {
        let Some(wire) = home else { return Outcome::Broken(io::ErrorKind::NotConnected.into()) };
        let body = match next(bounds, activity, wire, &mut head).await {
            Ok(Some(body)) => body,
            Ok(None) if wire.input.is_empty() => return close(wire).await,
            Ok(None) => return Outcome::HandOver { served },
            Err(error) => return Outcome::Broken(error),
        };
        served = true;
        let headless = head.method == Method::HEAD;
        let (body, lender) = body.arriving(home, bounds.buffer_bytes);
        let mut after = After::Next;
        let (begun, body) = Begun::new(&shared.limits, Some(observer), activity, peer, &head, body);
        let answer = match body {
            Err(refusal) => Err(refusal),
            Ok(body) => {
                let mut handling = pin!(shared.handler.handle(&mut head, body, peer));
                // A client that hangs up while it waits takes its request with it, as with hyper. One that does so amid its body is told what is missing.
                let answer = poll_fn(|cx| {
                    if let Poll::Ready(answer) = handling.as_mut().poll(cx) {
                        return Poll::Ready(Some(answer));
                    }
                    if let (None, Some(lender)) = (&home, &lender)
                        && let Poll::Ready((wire, follows)) = lender.poll_returned(cx)
                    {
                        (*home, after) = (Some(wire), follows);
                    }
                    let gone = home.as_deref_mut().is_some_and(|wire| wire.is_gone(HEAD_BYTES_MAX, cx));
                    if gone { Poll::Ready(None) } else { Poll::Pending }
                });
                match answer.await {
                    Some(answer) => Ok(answer),
                    None => return Outcome::Closed,
                }
            }
        };
        let mut response = begun.answered(either(answer));
        if let (None, Some(lender)) = (&home, &lender) {
            // Somebody else has to let go of the body.
            let returned = poll_fn(|cx| lender.poll_returned(cx));
            match tokio::time::timeout(shared.limits.progress_timeout, returned).await {
                Ok((wire, follows)) => (*home, after) = (Some(wire), follows),
                Err(late) => return Outcome::Broken(late.into()),
            }
        }
        let Some(wire) = home.as_deref_mut().filter(|_| after != After::Garbled) else {
            return Outcome::Broken(io::ErrorKind::BrokenPipe.into());
        };
        if after != After::Next || ending.load(Ordering::Relaxed) {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        let stays = response.headers().get(CONNECTION).is_none_or(|value| value != "close");
        let in_flight = response.body_mut().take_in_flight();
        let way = Way { wire, pieces_bytes: bounds.pieces_bytes, observer };
        match send(way, headless, response, &mut answer_head).await {
            Ok(headers) => vacate(&mut head, headers),
            Err(error) => return Outcome::Broken(error),
        }
        // What is sent after an early answer would cost it, were the connection closed.
        let skipped = if wire.skips() {
            tokio::time::timeout(DISCARDING, poll_fn(|cx| wire.poll_skipped(cx))).await.unwrap_or(false)
        } else {
            true
        };
        if !stays || !skipped || ending.load(Ordering::Relaxed) {
            let outcome = close(wire).await;
            if after == After::Rest {
                let _ = tokio::time::timeout(LINGERING, wire.linger()).await;
            }
            return outcome;
        }
        drop(in_flight);
    }
}

/// Leaves nothing of a request in its head, and the map of the headers of its answer for those of the next. One that is larger than requests need is not kept for as long as
/// their connection stays.
fn vacate(head: &mut Parts, mut headers: HeaderMap) {
    if headers.capacity() > 2 * HEADERS_MAX {
        headers = HeaderMap::new();
    }
    // At once: what they are slices of is wanted again.
    headers.clear();
    (head.method, head.uri, head.headers) = (Method::GET, Uri::default(), headers);
    head.extensions.clear();
}

async fn close(wire: &mut Wire) -> Outcome {
    let closed = poll_fn(|cx| Pin::new(&mut wire.transport).poll_shutdown(cx)).await;
    closed.map_or_else(Outcome::Broken, |()| Outcome::Closed)
}

/// How much is taken in, and sent at once.
#[derive(Clone, Copy)]
struct Bounds {
    headers: usize,
    head_bytes: usize,
    body_bytes: usize,
    /// Of a long body.
    buffer_bytes: usize,
    pieces_bytes: usize,
}

impl Bounds {
    fn new(limits: &HttpLimits) -> Self {
        let most = |bytes: usize| bytes.min(limits.buffer_bytes_max);
        Self {
            headers: limits.header_count_max.min(HEADERS_MAX),
            head_bytes: most(HEAD_BYTES_MAX),
            body_bytes: most(BODY_BYTES_MAX),
            buffer_bytes: limits.buffer_bytes_max.max(BUFFER_BYTES_MIN),
            pieces_bytes: most(PIECES_BYTES),
        }
    }
}

/// The next request: its head goes to `head`. Nothing when there is none, or one that is not plain: then the input is as it came.
async fn next(bounds: Bounds, activity: &Arc<Activity>, wire: &mut Wire, head: &mut Parts) -> io::Result<Option<Next>> {
    let mut body_bytes = bounds.body_bytes;
    loop {
        match Taken::from(&mut wire.input, Bounds { body_bytes, ..bounds }, head) {
            Taken::Request(body) => return Ok(Some(body)),
            Taken::Other => return Ok(None),
            Taken::HeadIsMissing if wire.input.len() >= bounds.head_bytes => return Ok(None),
            Taken::HeadIsMissing => {
                if poll_fn(|cx| wire.poll_more(READ_BYTES, cx)).await? == 0 {
                    return Ok(None);
                }
            }
            Taken::BodyIsMissing(whole) => {
                // The head is complete: it is not for that that the client is waited for.
                let _in_flight = activity.begin(false);
                if !matches!(tokio::time::timeout(BODY_WAIT, fill(wire, whole)).await, Ok(Ok(true))) {
                    // It is waited for, and counted as one that breaks off, like a long one.
                    body_bytes = 0;
                }
            }
        }
    }
}

/// Reads until there are so many bytes, and says whether they came.
async fn fill(wire: &mut Wire, bytes: usize) -> io::Result<bool> {
    while wire.input.len() < bytes {
        let room = bytes - wire.input.len();
        if poll_fn(|cx| wire.poll_more(room, cx)).await? == 0 {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The body of a request.
enum Next {
    Whole(Bytes),
    /// So many bytes follow.
    Long {
        bytes: u64,
        expects: bool,
    },
}

impl Next {
    /// Has a long body read from the wire, which comes back by the lender.
    fn arriving(self, home: &mut Option<Box<Wire>>, buffer_bytes: usize) -> (Arriving, Option<Lender>) {
        match self {
            Next::Whole(bytes) => (Arriving::whole(bytes), None),
            Next::Long { bytes, expects } => match home.take() {
                Some(wire) => {
                    let (body, lender) = LongBody::lend(wire, bytes, expects, buffer_bytes);
                    (Arriving::long(body), Some(lender))
                }
                None => (Arriving::whole(Bytes::new()), None),
            },
        }
    }
}

/// What there is at the beginning of the input.
enum Taken {
    /// A request, which is not there any more. What has come of a long body is.
    Request(Next),
    HeadIsMissing,
    /// There must be so many bytes.
    BodyIsMissing(usize),
    /// Something that is for hyper.
    Other,
}

/// Where something lies in the input: its first byte, and the one behind it.
type Place = (usize, usize);

impl Taken {
    /// What a request says but for its body is put into `parts`, which has no headers.
    fn from(input: &mut BytesMut, bounds: Bounds, parts: &mut Parts) -> Self {
        let mut headers = [const { MaybeUninit::uninit() }; HEADERS_MAX];
        let mut parsed = httparse::Request::new(&mut []);
        let head_bytes = match parsed.parse_with_uninit_headers(input, &mut headers) {
            Ok(httparse::Status::Complete(bytes)) => bytes,
            Ok(httparse::Status::Partial) => return Taken::HeadIsMissing,
            Err(_) => return Taken::Other,
        };
        let (Some(1), Some(method), Some(target)) = (parsed.version, parsed.method, parsed.path) else {
            return Taken::Other;
        };
        let (Ok(method), Some(announced)) = (Method::from_bytes(method.as_bytes()), Announced::by(parsed.headers))
        else {
            return Taken::Other;
        };
        if head_bytes > bounds.head_bytes || parsed.headers.len() > bounds.headers || method == Method::CONNECT {
            return Taken::Other;
        }
        let short = usize::try_from(announced.bytes).ok();
        let short = short.filter(|bytes| !announced.expects && *bytes <= bounds.body_bytes);
        if let Some(bytes) = short.filter(|bytes| input.len() < head_bytes + bytes) {
            return Taken::BodyIsMissing(head_bytes + bytes);
        }
        let start = input.as_ptr().addr();
        let place = |text: &[u8]| (text.as_ptr().addr() - start, text.as_ptr().addr() - start + text.len());
        let mut places = [(Place::default(), Place::default()); HEADERS_MAX];
        for (slot, header) in places.iter_mut().zip(&*parsed.headers) {
            *slot = (place(header.name.as_bytes()), place(header.value));
        }
        let (count, target) = (parsed.headers.len(), place(target.as_bytes()));
        let head = input.split_to(head_bytes).freeze();
        if target_and_headers(&head, target, &places[..count], parts).is_none() {
            let rest = std::mem::replace(input, BytesMut::from(&*head));
            input.unsplit(rest);
            return Taken::Other;
        }
        (parts.method, parts.version) = (method, Version::HTTP_11);
        let body = match short {
            Some(0) => Next::Whole(Bytes::new()),
            Some(bytes) => Next::Whole(input.split_to(bytes).freeze()),
            None => Next::Long { bytes: announced.bytes, expects: announced.expects },
        };
        Taken::Request(body)
    }
}

/// What a head says of the body.
#[derive(Clone, Copy)]
struct Announced {
    bytes: u64,
    /// The client waits to be asked for it.
    expects: bool,
}

impl Announced {
    /// Nothing if it is not plain what the headers say of it or of the connection.
    fn by(headers: &[httparse::Header<'_>]) -> Option<Self> {
        let (mut length, mut expects) = (None, false);
        for header in headers {
            let is = |name: HeaderName| header.name.eq_ignore_ascii_case(name.as_str());
            match header.name.len() {
                14 if is(CONTENT_LENGTH) => {
                    let digits = std::str::from_utf8(header.value).ok().filter(|digits| !digits.starts_with('+'))?;
                    if length.replace(digits.parse().ok()?).is_some() {
                        return None;
                    }
                }
                10 if is(CONNECTION) && !header.value.eq_ignore_ascii_case(b"keep-alive") => return None,
                17 if is(TRANSFER_ENCODING) => return None,
                6 if is(EXPECT) && expects => return None,
                6 if is(EXPECT) && header.value.eq_ignore_ascii_case(b"100-continue") => expects = true,
                6 if is(EXPECT) => return None,
                7 if is(UPGRADE) => return None,
                _ => {}
            }
        }
        let bytes = length.unwrap_or(0);
        // Hyper knows no longer ones; and whether one who expects nothing is to be asked is seen where all are answered.
        (bytes <= u64::MAX - 2 && !(expects && bytes == 0)).then_some(Self { bytes, expects })
    }
}

fn target_and_headers(head: &Bytes, target: Place, places: &[(Place, Place)], parts: &mut Parts) -> Option<()> {
    parts.uri = Uri::from_maybe_shared(head.slice(target.0..target.1)).ok()?;
    parts.headers.reserve(places.len().max(ANSWER_HEADERS));
    for (name, value) in places {
        parts.headers.append(
            header_name(head.get(name.0..name.1)?)?,
            HeaderValue::from_maybe_shared(head.slice(value.0..value.1)).ok()?,
        );
    }
    Some(())
}

/// The name of a header; for those that `http` does not know and every signed request has, without an allocation.
fn header_name(name: &[u8]) -> Option<HeaderName> {
    static SIGNED: [HeaderName; 2] =
        [HeaderName::from_static("x-amz-date"), HeaderName::from_static("x-amz-content-sha256")];
    match SIGNED.iter().find(|signed| name.eq_ignore_ascii_case(signed.as_str().as_bytes())) {
        Some(signed) => Some(signed.clone()),
        None => HeaderName::from_bytes(name).ok(),
    }
}

/// How a body is told where it ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Framing {
    /// There is none.
    Nothing,
    /// By a length that the head says.
    Length,
    /// By chunks.
    Chunked,
}

/// What an answer is sent on.
struct Way<'a> {
    /// Its input takes what the client sends meanwhile.
    wire: &'a mut Wire,
    /// How much of the body is sent at once.
    pieces_bytes: usize,
    observer: &'a Observer,
}

/// Sends an answer to its end; gives its headers back.
async fn send<B>(way: Way<'_>, headless: bool, response: Response<B>, head: &mut Vec<u8>) -> io::Result<HeaderMap>
where
    B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>>,
{
    let Way { wire, pieces_bytes, observer } = way;
    let (mut parts, body) = response.into_parts();
    let places = parts.extensions.remove::<FilePlaces>().filter(|_| wire.transport.takes_pages());
    let exact = if body.is_end_stream() { Some(0) } else { body.size_hint().exact() };
    head.clear();
    let framing = push_head(head, parts.status, &parts.headers, exact, headless);
    push_date(head, observer.clock.now_ms());
    let mut body = pin!(body);
    let mut pieces = Pieces::default();
    let mut at = 0;
    let mut ended = framing == Framing::Nothing;
    // What the head has announced and the body has not brought.
    let mut left = match framing {
        Framing::Length => announced(&parts.headers).or(exact),
        Framing::Nothing if !headless && !is_bodiless(parts.status) => announced(&parts.headers),
        Framing::Nothing | Framing::Chunked => None,
    };
    loop {
        // As much as is there goes together; of pages, those that were read together: what is read next is to be sent at once, too, not after a wait.
        let (mut bytes, mut placed_end) = (0, false);
        while !ended && !placed_end && pieces.queue.len() < PIECES_MAX && bytes < pieces_bytes {
            let frame = poll_fn(|cx| match body.as_mut().poll_frame(cx) {
                Poll::Pending if at < head.len() || !pieces.queue.is_empty() => Poll::Ready(Ok(None)),
                Poll::Pending => look_around(wire, cx).map(Err),
                Poll::Ready(frame) => Poll::Ready(Ok(Some(frame))),
            });
            let Some(frame) = frame.await? else { break };
            match frame {
                None => ended = true,
                Some(Err(error)) => return Err(io::Error::other(error)),
                Some(Ok(frame)) => {
                    // Nothing that is served has trailers.
                    if let Ok(data) = frame.into_data()
                        && !data.is_empty()
                    {
                        bytes += data.len();
                        if let Some(left) = &mut left {
                            let rest = left.checked_sub(data.len() as u64);
                            *left = rest.ok_or_else(|| io::Error::other("the body is longer than was announced"))?;
                        }
                        let place = places.as_ref().and_then(|places| places.take(&data));
                        pieces.push(data, place, framing);
                        placed_end = places.as_ref().is_some_and(|places| pieces.pages() > 0 && places.is_empty());
                    }
                    ended = framing == Framing::Length && body.is_end_stream();
                }
            }
            if ended && framing == Framing::Chunked {
                pieces.queue.push_back(Piece::Bytes(Bytes::from_static(b"0\r\n\r\n")));
            }
        }
        if at == 0 && bytes <= COPIED_BYTES_MAX {
            // One buffer costs the kernel less than a list of two.
            pieces.append_to(head);
        }
        let uncopied = pieces.pages();
        write(wire, &head[at..], &mut pieces).await?;
        if let Some(places) = &places {
            // After a wait for the client, who knows whether the page cache still has them.
            places.clear();
            // Others may need the pipe while the body is waited for.
            pieces.pipe = None;
        }
        if uncopied > 0 {
            observer.metrics.sent_uncopied(uncopied as u64);
        }
        at = head.len();
        if ended && left.is_some_and(|left| left > 0) {
            return Err(io::Error::other("the body is shorter than was announced"));
        }
        if ended {
            poll_fn(|cx| Pin::new(&mut wire.transport).poll_flush(cx)).await?;
            return Ok(parts.headers);
        }
    }
}

/// While there is nothing to send: what TLS still has goes out, and a client that hangs up is noticed.
fn look_around(wire: &mut Wire, cx: &mut Context<'_>) -> Poll<io::Error> {
    if let Poll::Ready(Err(error)) = Pin::new(&mut wire.transport).poll_flush(cx) {
        return Poll::Ready(error);
    }
    if wire.is_gone(HEAD_BYTES_MAX, cx) { Poll::Ready(io::ErrorKind::ConnectionAborted.into()) } else { Poll::Pending }
}

fn announced(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// A part of an answer's body.
enum Piece {
    Bytes(Bytes),
    /// So many bytes of the pipe.
    Pages(usize),
}

impl Piece {
    fn pages(&self) -> usize {
        match self {
            Piece::Bytes(_) => 0,
            Piece::Pages(bytes) => *bytes,
        }
    }
}

/// What is sent together.
#[derive(Default)]
struct Pieces {
    queue: VecDeque<Piece>,
    /// Has the pages.
    pipe: Option<PagePipe>,
}

impl Pieces {
    /// Adds bytes of the body, framed. Where they lie in a file, they are sent from there.
    fn push(&mut self, mut data: Bytes, place: Option<FilePlace>, framing: Framing) {
        if framing != Framing::Length {
            let around = [Bytes::from(format!("{:X}\r\n", data.len())), data, Bytes::from_static(b"\r\n")];
            return self.queue.extend(around.map(Piece::Bytes));
        }
        // At once: the pages were read a moment before.
        if let Some(place) = place.filter(|_| data.len() >= PAGES_BYTES_MIN) {
            if self.pipe.is_none() {
                self.pipe = PagePipe::take();
            }
            let filled = self.pipe.as_mut().map_or(0, |pipe| pipe.fill(&place, data.len()));
            if filled > 0 {
                self.queue.push_back(Piece::Pages(filled));
                data.advance(filled);
            }
        }
        if !data.is_empty() {
            self.queue.push_back(Piece::Bytes(data));
        }
    }

    /// Moves the bytes at its front to the end of `head`.
    fn append_to(&mut self, head: &mut Vec<u8>) {
        while let Some(Piece::Bytes(bytes)) = self.queue.front() {
            head.extend_from_slice(bytes);
            self.queue.pop_front();
        }
    }

    /// The bytes before the first pages.
    fn bytes(&self) -> impl Iterator<Item = &[u8]> {
        self.queue.iter().map_while(|piece| match piece {
            Piece::Bytes(bytes) => Some(&**bytes),
            Piece::Pages(_) => None,
        })
    }

    /// How many bytes of pages there are, one after the other, at its front.
    fn pages_first(&self) -> usize {
        self.queue.iter().map(Piece::pages).take_while(|&bytes| bytes > 0).sum()
    }

    /// How many there are in all.
    fn pages(&self) -> usize {
        self.queue.iter().map(Piece::pages).sum()
    }

    /// Takes off what was sent.
    fn advance(&mut self, mut sent: usize) {
        while let Some(piece) = self.queue.front_mut().filter(|_| sent > 0) {
            let left = match piece {
                Piece::Bytes(bytes) => {
                    let of_piece = sent.min(bytes.len());
                    sent -= of_piece;
                    bytes.advance(of_piece);
                    bytes.len()
                }
                Piece::Pages(bytes) => {
                    let of_piece = sent.min(*bytes);
                    sent -= of_piece;
                    *bytes -= of_piece;
                    *bytes
                }
            };
            if left == 0 {
                self.queue.pop_front();
            }
        }
    }
}

/// Writes all of these. A client that sends what nobody wants before it takes them is not waited for in vain.
async fn write(wire: &mut Wire, head: &[u8], pieces: &mut Pieces) -> io::Result<()> {
    let mut head = head;
    poll_fn(|cx| {
        while !head.is_empty() || !pieces.queue.is_empty() {
            let pages = pieces.pages_first();
            let written = if let Some(pipe) = pieces.pipe.as_mut().filter(|_| head.is_empty() && pages > 0) {
                wire.transport.poll_send_pages(cx, pipe, pages)
            } else {
                let mut slices = [IoSlice::new(&[]); 3 * PIECES_MAX + 2];
                let all = std::iter::once(head).filter(|head| !head.is_empty()).chain(pieces.bytes());
                let count = slices.iter_mut().zip(all).map(|(slice, bytes)| *slice = IoSlice::new(bytes)).count();
                Pin::new(&mut wire.transport).poll_write_vectored(cx, &slices[..count])
            };
            let Poll::Ready(written) = written else {
                // What it says is looked at when all is written.
                let _ = wire.poll_skipped(cx);
                return Poll::Pending;
            };
            let written = written?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            let of_head = written.min(head.len());
            head = &head[of_head..];
            pieces.advance(written - of_head);
        }
        Poll::Ready(Ok(()))
    })
    .await
}

/// Writes the head but for the date and its end, and says how the body is framed; as hyper does it.
fn push_head(
    head: &mut Vec<u8>,
    status: StatusCode,
    headers: &HeaderMap,
    exact: Option<u64>,
    headless: bool,
) -> Framing {
    head.extend_from_slice(b"HTTP/1.1 ");
    head.extend_from_slice(status.as_str().as_bytes());
    head.push(b' ');
    head.extend_from_slice(status.canonical_reason().unwrap_or("<none>").as_bytes());
    head.extend_from_slice(b"\r\n");
    for (name, value) in headers {
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            head.extend_from_slice(part);
        }
    }
    let bodiless = is_bodiless(status);
    let framing = match exact {
        _ if bodiless || headless => Framing::Nothing,
        Some(0) => Framing::Nothing,
        Some(_) => Framing::Length,
        None if headers.contains_key(CONTENT_LENGTH) => Framing::Length,
        None => Framing::Chunked,
    };
    if !headers.contains_key(CONTENT_LENGTH) && !bodiless {
        match exact {
            // Nobody knows how long the body would be.
            Some(0) if headless => {}
            None if headless => {}
            Some(length) => {
                // A vector takes all that is written to it.
                let _ = write!(head, "content-length: {length}\r\n");
            }
            None => head.extend_from_slice(b"transfer-encoding: chunked\r\n"),
        }
    }
    framing
}

/// Whether answers of this status have no body, whatever the request was.
fn is_bodiless(status: StatusCode) -> bool {
    status.is_informational() || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
}

thread_local! {
    /// The second that was last written as a date, and how.
    static DATE_LINE: RefCell<(u64, Vec<u8>)> = const { RefCell::new((u64::MAX, Vec::new())) };
}

/// Writes the date and the end of the head.
fn push_date(head: &mut Vec<u8>, now_ms: u64) {
    DATE_LINE.with_borrow_mut(|(second, line)| {
        if *second != now_ms / 1000 {
            *second = now_ms / 1000;
            let date = HttpDate::from(UNIX_EPOCH + Duration::from_secs(now_ms / 1000));
            *line = format!("{DATE}: {date}\r\n\r\n").into_bytes();
        }
        head.extend_from_slice(line);
    });
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Pieces that heads are made of, and what does not belong there.
    fn head() -> impl Strategy<Value = Vec<u8>> {
        let line = prop_oneof![
            Just(b"GET / HTTP/1.1\r\n".to_vec()),
            Just(b"PUT /a%20b?x HTTP/1.1\r\n".to_vec()),
            Just(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec()),
            Just(b"Host: x\r\n".to_vec()),
            Just(b"\r\n".to_vec()),
            Just(b"Expect: 100-continue\r\n".to_vec()),
            Just(b"Connection: close\r\n".to_vec()),
            Just(b"Transfer-Encoding: chunked\r\n".to_vec()),
            (0u64..200_000).prop_map(|length| format!("Content-Length: {length}\r\n").into_bytes()),
            prop::collection::vec(any::<u8>(), 0..40),
        ];
        prop::collection::vec(line, 0..12).prop_map(|lines| lines.concat())
    }

    #[test]
    fn nothing_of_a_head_is_kept_but_a_map_that_is_not_large() {
        for (count, is_kept) in [(0, true), (HEADERS_MAX, true), (4 * HEADERS_MAX, false)] {
            let name = |number| HeaderName::try_from(format!("x-{number}")).unwrap();
            let headers = (0..count).map(|number| (name(number), HeaderValue::from_static("x"))).collect::<HeaderMap>();
            let (capacity, mut head) = (headers.capacity(), no_head());
            head.extensions.insert("of the last");
            (head.method, head.uri) = (Method::from_bytes(&[b'M'; 100]).unwrap(), Uri::from_static("/of/the/last"));
            vacate(&mut head, headers);
            let Parts { method, uri, headers, extensions, .. } = head;
            assert_eq!((headers.len(), headers.capacity() == capacity), (0, is_kept), "{count}");
            assert!(method == Method::GET && uri == "/" && extensions.is_empty());
        }
    }

    proptest! {
        #[test]
        fn no_input_makes_it_panic_or_lose_a_byte(bytes in head(), headers_max in 0usize..8) {
            let mut input = BytesMut::from(&*bytes);
            let mut head = no_head();
            let limits = HttpLimits { header_count_max: headers_max, ..HttpLimits::default() };
            match Taken::from(&mut input, Bounds::new(&limits), &mut head) {
                Taken::Request(body) => {
                    let body = match body {
                        Next::Whole(body) => body.len(),
                        Next::Long { bytes, expects } => {
                            prop_assert!(bytes > BODY_BYTES_MAX as u64 || (expects && bytes > 0));
                            0
                        }
                    };
                    prop_assert!(body <= BODY_BYTES_MAX && head.headers.len() <= headers_max);
                    prop_assert!(bytes.ends_with(&input));
                    let taken = &bytes[..bytes.len() - input.len() - body];
                    prop_assert!(taken.ends_with(b"\n"), "the head ends with its last line");
                }
                Taken::BodyIsMissing(whole) => {
                    prop_assert_eq!(&*input, &*bytes);
                    prop_assert!(whole > bytes.len() && whole <= bytes.len() + BODY_BYTES_MAX);
                }
                Taken::HeadIsMissing | Taken::Other => prop_assert_eq!(&*input, &*bytes),
            }
        }
    }
}
