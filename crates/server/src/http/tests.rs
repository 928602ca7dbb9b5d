//! Limits and shutdown over real sockets. Time is tokio's paused clock: it jumps to the next timer when nothing else can
//! happen, so that a timeout costs no time and no test depends on how fast the machine is.

use std::future::poll_fn;
use std::io::{self, Write};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use gabion_platform::{DiskFile, Durable, FilePlace, FilePlaces, IoFuture, ManualClock, PagePipe};
use http::{HeaderValue, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::*;
use crate::metrics::ServerMetrics;
use crate::tls::{ReloadingTls, TlsFiles};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Whether plain requests are answered without hyper.
const BOTH_WAYS: [bool; 2] = [true, false];

/// Lengths of pieces that say that they lie in files.
const PLACED: [usize; 6] = [100_000, 100, 300_000, 400_000, 65_536, 7];

/// A file that lends pages of the letter that the offset says, `A` and so on, so that they can be told from what is in memory.
struct Lettered;

impl DiskFile for Lettered {
    fn lend_pages(&self, pipe: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<usize> {
        let letter = b'A' + u8::try_from(offset).unwrap();
        std::fs::File::from(pipe.try_clone_to_owned()?).write(&vec![letter; len])
    }

    fn read_at(&self, _: u64, _: usize) -> IoFuture<Bytes> {
        unreachable!("it was read")
    }

    fn write_at(&self, _: u64, _: Vec<Bytes>, _: Durable) -> IoFuture<()> {
        unreachable!("nobody writes")
    }

    fn sync(&self) -> IoFuture<()> {
        unreachable!("nobody writes")
    }

    fn len(&self) -> IoFuture<u64> {
        unreachable!("nobody asks")
    }

    fn set_len(&self, _: u64) -> IoFuture<()> {
        unreachable!("nobody writes")
    }

    fn punch(&self, _: u64, _: u64) -> IoFuture<()> {
        unreachable!("nobody writes")
    }

    fn prewrite(&self, _: u64, _: u64) -> IoFuture<bool> {
        unreachable!("nobody writes")
    }
}

/// Answers by path: `/echo` sends the body back, `/apart` as well, but has it read by another task, which is not stopped with the request; `/big` says a lot, `/dropped` wants no body and waits to be released; `/hold` waits to be released, `/flood` sends without end, `/long` 16 MiB in pieces, `/longest` says how long the longest piece of the body is, `/pieces` sends some, whose number nobody says, `/lies/N` says
/// that five bytes are N, `/late` waits in the middle of its body, `/host` says what it was called, `/none` has no body, `/close` closes.
#[derive(Clone, Default)]
struct Paths {
    held: Arc<Notify>,
    release: Arc<Notify>,
}

fn full(text: impl Into<Bytes>) -> UnsyncBoxBody<Bytes, BoxError> {
    Full::new(text.into()).map_err(|never| match never {}).boxed_unsync()
}

/// Reads a body as objects are read: to where it is wanted.
async fn read_to_room(mut body: RequestBody) -> Result<Vec<u8>, BoxError> {
    let (mut read, mut room) = (Vec::new(), [0; 3001]);
    while let Some(piece) = poll_fn(|cx| Pin::new(&mut body).poll_into(cx, &mut room)).await {
        read.extend_from_slice(piece?.bytes(&room));
        room.fill(b'?');
    }
    Ok(read)
}

impl Handler for Paths {
    type Body = UnsyncBoxBody<Bytes, BoxError>;

    fn handle<'a>(
        &'a self,
        head: &mut Parts,
        body: RequestBody,
        peer: Peer,
    ) -> impl Future<Output = Answer<Self::Body>> + Send + use<'a> {
        let request = Request::from_parts(take_head(head), body);
        self.answer(request, peer)
    }
}

impl Paths {
    async fn answer(&self, request: Request<RequestBody>, peer: Peer) -> Answer<UnsyncBoxBody<Bytes, BoxError>> {
        let response = match request.uri().path() {
            "/echo" => match read_to_room(request.into_body()).await {
                Ok(body) => Response::new(full(body)),
                Err(error) => Response::new(full(format!("failed: {error}"))),
            },
            "/apart" => {
                let held = Arc::clone(&self.held);
                let read = tokio::spawn(async move {
                    let body = read_to_room(request.into_body()).await;
                    held.notify_one();
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    body
                });
                match read.await.unwrap() {
                    Ok(body) => Response::new(full(body)),
                    Err(error) => Response::new(full(format!("failed: {error}"))),
                }
            }
            "/dropped" => {
                drop(request);
                self.held.notify_one();
                self.release.notified().await;
                Response::new(full("released"))
            }
            "/big" => Response::new(full(vec![b'b'; 16 << 20])),
            "/hold" => {
                self.held.notify_one();
                self.release.notified().await;
                Response::new(full("released"))
            }
            "/flood" => {
                let frame = || Ok::<_, BoxError>(http_body::Frame::data(Bytes::from(vec![0; 64 * 1024])));
                let frames = futures::stream::iter(std::iter::repeat_with(frame));
                Response::new(StreamBody::new(frames).boxed_unsync())
            }
            "/long" => {
                let frame = || Ok::<_, BoxError>(http_body::Frame::data(Bytes::from(vec![0; 64 * 1024])));
                let frames = futures::stream::iter(std::iter::repeat_with(frame).take(256));
                Response::new(StreamBody::new(frames).boxed_unsync())
            }
            "/pieces" => {
                let frame = |text: &'static str| Ok::<_, BoxError>(http_body::Frame::data(Bytes::from(text)));
                let frames = futures::stream::iter(["one", "", "three"].map(frame));
                Response::new(StreamBody::new(frames).boxed_unsync())
            }
            "/late" => {
                let (held, release) = (Arc::clone(&self.held), Arc::clone(&self.release));
                let first = futures::stream::iter([Ok::<_, BoxError>(http_body::Frame::data(Bytes::from("early")))]);
                let last = futures::stream::once(async move {
                    held.notify_one();
                    release.notified().await;
                    Ok(http_body::Frame::data(Bytes::from("late")))
                });
                Response::new(StreamBody::new(futures::StreamExt::chain(first, last)).boxed_unsync())
            }
            "/placed" => {
                let pieces: Vec<Bytes> = PLACED.map(|len| Bytes::from(vec![b'm'; len])).to_vec();
                let places = FilePlaces::default();
                places.set(&pieces, (0..).map(|offset| FilePlace { file: Arc::new(Lettered), offset }));
                let frames = pieces.into_iter().map(|piece| Ok::<_, BoxError>(http_body::Frame::data(piece)));
                let body = StreamBody::new(futures::stream::iter(frames)).boxed_unsync();
                let length = PLACED.iter().sum::<usize>();
                let mut response = Response::builder().header(header::CONTENT_LENGTH, length).body(body).unwrap();
                response.extensions_mut().insert(places);
                response
            }
            "/longest" => {
                let (mut body, mut longest) = (request.into_body(), 0);
                while let Some(frame) = body.frame().await {
                    longest = longest.max(frame.unwrap().into_data().map_or(0, |data| data.len()));
                }
                Response::new(full(format!("{longest} bytes")))
            }
            "/host" => {
                let hosts = request.headers().get_all(header::HOST).iter().map(HeaderValue::as_bytes);
                Response::new(full(hosts.collect::<Vec<_>>().join(&b","[..])))
            }
            "/none" => Response::builder().status(StatusCode::NO_CONTENT).body(full("")).unwrap(),
            "/close" => Response::builder().header(header::CONNECTION, "close").body(full("closes")).unwrap(),
            path if path.starts_with("/lies/") => {
                let frame = Ok::<_, BoxError>(http_body::Frame::data(Bytes::from("bytes")));
                let body = StreamBody::new(futures::stream::iter([frame])).boxed_unsync();
                Response::builder().header(header::CONTENT_LENGTH, &path[6..]).body(body).unwrap()
            }
            _ => Response::new(full(if peer.tls { "tls" } else { "clear" })),
        };
        Answer { response, operation: OperationName("Test") }
    }
}

struct Running {
    address: SocketAddr,
    paths: Paths,
    metrics: Arc<ServerMetrics>,
    stop: oneshot::Sender<()>,
    server: JoinHandle<Drained>,
}

impl Running {
    async fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).await.unwrap();
        // Otherwise the kernel may hold bytes back for a real 40 ms, in which the paused clock runs far ahead.
        stream.set_nodelay(true).unwrap();
        stream
    }

    async fn stop(self) -> Drained {
        let _ = self.stop.send(());
        self.server.await.unwrap()
    }

    fn page(&self) -> String {
        let mut registry = prometheus_client::registry::Registry::default();
        self.metrics.register(&mut registry);
        let mut page = String::new();
        prometheus_client::encoding::text::encode(&mut page, &registry).unwrap();
        page
    }
}

fn limits() -> HttpLimits {
    HttpLimits {
        connections_max: 2,
        header_timeout: Duration::from_secs(10),
        idle_timeout: Duration::from_secs(60),
        progress_timeout: Duration::from_secs(20),
        header_bytes_max: 4096,
        header_count_max: 16,
        drain_timeout: Duration::from_secs(30),
        ..HttpLimits::default()
    }
}

async fn start(limits: HttpLimits, tls: Option<Arc<ReloadingTls>>) -> Running {
    start_by(true, limits, tls).await
}

async fn start_by(direct: bool, limits: HttpLimits, tls: Option<Arc<ReloadingTls>>) -> Running {
    let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = tcp.local_addr().unwrap();
    let (paths, metrics) = (Paths::default(), ServerMetrics::new());
    let observer = Observer { clock: Arc::new(ManualClock::new(0)), metrics: Arc::clone(&metrics), access_log: None };
    let server = HttpServer { handler: paths.clone(), limits, observer: Some(observer) };
    let (stop, stopped) = oneshot::channel();
    let server = tokio::spawn(server.serve_by(direct, vec![Listener { tcp, tls }], async move {
        let _ = stopped.await;
    }));
    Running { address, paths, metrics, stop, server }
}

/// A client of HTTP/2, and what becomes of its connection.
async fn http2(stream: TcpStream) -> (SendRequest<Empty<Bytes>>, JoinHandle<hyper::Result<()>>) {
    let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (client, connection) = handshake.await.unwrap();
    (client, tokio::spawn(connection))
}

async fn send(stream: &mut (impl tokio::io::AsyncWrite + Unpin), text: &str) {
    stream.write_all(text.as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
}

/// What the server sends until it closes.
async fn until_closed(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> String {
    let mut bytes = Vec::new();
    // A reset is an end, too.
    let _ = stream.read_to_end(&mut bytes).await;
    String::from_utf8(bytes).unwrap()
}

/// Reads up to and with `end`.
async fn until(stream: &mut (impl tokio::io::AsyncRead + Unpin), end: &str) -> String {
    let mut text = String::new();
    while !text.ends_with(end) {
        let byte = stream.read_u8().await.unwrap();
        text.push(char::from(byte));
    }
    text
}

#[tokio::test(start_paused = true)]
async fn a_client_that_never_ends_its_head_is_cut() {
    let server = start(limits(), None).await;
    for head in ["", "GET", "GET / HTTP/1.1\r\nHost: x\r\n"] {
        let began = Instant::now();
        let mut stream = server.connect().await;
        send(&mut stream, head).await;
        assert_eq!(until_closed(&mut stream).await, "");
        assert_eq!(began.elapsed().as_secs(), 10, "{head:?}");
    }
    let page = server.page();
    assert!(page.contains("gabion_http_connections_closed_total{reason=\"header_timeout\"} 3"), "{page}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_trickles_its_head_is_cut() {
    let server = start(limits(), None).await;
    let mut stream = server.connect().await;
    let began = Instant::now();
    send(&mut stream, "GET / HTTP/1.1\r\n").await;
    for _ in 0..4 {
        tokio::time::sleep(Duration::from_secs(2)).await;
        send(&mut stream, "X-A: b\r\n").await;
    }
    assert_eq!(until_closed(&mut stream).await, "");
    assert_eq!(began.elapsed().as_secs(), 10);
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_closed_after_its_own_time() {
    for direct in BOTH_WAYS {
        let server = start_by(direct, limits(), None).await;
        let mut stream = server.connect().await;
        send(&mut stream, "GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
        assert!(until(&mut stream, "clear").await.starts_with("HTTP/1.1 200 OK"));
        // Longer than a head may take, shorter than the idle time: it is still served.
        tokio::time::sleep(Duration::from_secs(50)).await;
        send(&mut stream, "GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
        assert!(until(&mut stream, "clear").await.starts_with("HTTP/1.1 200 OK"));
        let began = Instant::now();
        assert_eq!(until_closed(&mut stream).await, "");
        assert_eq!(began.elapsed().as_secs(), 60);
        let page = server.page();
        assert!(page.contains("gabion_http_requests_total{operation=\"Test\",status=\"200\"} 2"), "{page}");
    }
}

/// One request in pieces, the answer to which comes before the body.
async fn answered_early(server: &Running, head: &str, pieces: usize) -> std::io::Result<usize> {
    let mut stream = server.connect().await;
    send(&mut stream, head).await;
    assert!(until(&mut stream, "clear").await.starts_with("HTTP/1.1 200 OK"));
    for _ in 0..pieces {
        stream.write_all(&[b'x'; 1000]).await?;
        tokio::task::yield_now().await;
    }
    stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await?;
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).await
}

#[tokio::test(start_paused = true)]
async fn what_is_sent_after_an_early_answer_is_taken() {
    for direct in BOTH_WAYS {
        let server = start_by(direct, limits(), None).await;
        let head = "PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n";
        let next = answered_early(&server, head, 100).await.expect("the connection is not reset");
        assert!(next > 0, "the next request is answered, too: {direct}");
    }
}

#[tokio::test(start_paused = true)]
async fn too_much_after_an_early_answer_is_not() {
    for direct in BOTH_WAYS {
        let server = start_by(direct, limits(), None).await;
        let head = "PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 10000000\r\n\r\n";
        let next = answered_early(&server, head, 10_000).await;
        assert!(next.as_ref().is_ok_and(|bytes| *bytes == 0) || next.is_err(), "{direct}: {next:?}");
    }
}

/// Who is not asked for his body may send it or not: what comes next on the connection is no request that anybody could tell.
#[tokio::test(start_paused = true)]
async fn who_is_refused_before_he_is_asked_is_not_waited_for() {
    for direct in BOTH_WAYS {
        let server = start_by(direct, limits(), None).await;
        let mut stream = server.connect().await;
        let began = Instant::now();
        send(&mut stream, "PUT / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 100000\r\n\r\n").await;
        let answer = until_closed(&mut stream).await;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("clear"), "{direct}: {answer}");
        assert_eq!(began.elapsed().as_secs(), 0, "{direct}");
    }
}

/// Who begins to send without having been asked, as clients do after a second, gets his answer all the same.
#[tokio::test(start_paused = true)]
async fn who_does_not_wait_to_be_asked_is_answered() {
    for length in [5, 100_000] {
        let server = start(limits(), None).await;
        let mut stream = server.connect().await;
        let head =
            format!("PUT /dropped HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: {length}\r\n\r\n");
        send(&mut stream, &head).await;
        server.paths.held.notified().await;
        send(&mut stream, &"x".repeat(length)).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        server.paths.release.notify_one();
        let answer = until_closed(&mut stream).await;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("released"), "{length}: {answer}");
        assert!(answer.contains("connection: close\r\n"), "{length}: {answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_expects_to_be_asked_for_his_body_is() {
    for direct in BOTH_WAYS {
        let server = start_by(direct, limits(), None).await;
        let mut stream = server.connect().await;
        for (path, length) in [("/echo", 5), ("/apart", 5), ("/echo", 3_000_000)] {
            let body = "x".repeat(length);
            send(
                &mut stream,
                &format!("PUT {path} HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: {length}\r\n\r\n"),
            )
            .await;
            assert_eq!(until(&mut stream, "\r\n\r\n").await, "HTTP/1.1 100 Continue\r\n\r\n", "{direct}");
            send(&mut stream, &body).await;
            assert!(until(&mut stream, "\r\n\r\n").await.starts_with("HTTP/1.1 200 OK\r\n"), "{direct}");
            let mut echoed = vec![0; length];
            stream.read_exact(&mut echoed).await.unwrap();
            assert_eq!(echoed, body.as_bytes(), "{direct}");
        }
    }
}

/// A client that ends its side amid its body is told what is missing, however long that takes to find out.
#[tokio::test(start_paused = true)]
async fn who_ends_amid_his_body_is_told() {
    for direct in BOTH_WAYS {
        for path in ["/echo", "/apart"] {
            for (length, sent) in [(5, 2), (100_000, 0), (100_000, 5), (100_000, 90_000)] {
                let server = start_by(direct, limits(), None).await;
                let mut stream = server.connect().await;
                send(&mut stream, &format!("PUT {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n")).await;
                send(&mut stream, &"x".repeat(sent)).await;
                stream.shutdown().await.unwrap();
                let answer = until_closed(&mut stream).await;
                let about = format!("{direct} {path} {length} {sent}");
                assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("failed: "), "{about}: {answer}");
                let page = server.page();
                let counted = "gabion_http_requests_total{operation=\"Test\",status=\"200\"} 1";
                assert!(page.contains(counted), "{about}: {page}");
            }
        }
    }
}

/// What nobody wants of a body, and what follows it, are told from each other, whenever they come.
#[tokio::test(start_paused = true)]
async fn what_follows_a_body_that_nobody_wants_is_not_lost() {
    let head = "PUT /dropped HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n";
    let all = format!("{head}{}GET /close HTTP/1.1\r\nHost: x\r\n\r\n", "x".repeat(100_000));
    for direct in BOTH_WAYS {
        // All before the answer, much of it, some, and nothing but the head.
        for before in [all.len(), all.len() - 10, head.len() + 50_000, head.len() + 5, head.len()] {
            let server = start_by(direct, limits(), None).await;
            let mut stream = server.connect().await;
            send(&mut stream, &all[..before]).await;
            server.paths.held.notified().await;
            tokio::time::sleep(Duration::from_secs(1)).await;
            server.paths.release.notify_one();
            assert!(until(&mut stream, "released").await.starts_with("HTTP/1.1 200 OK\r\n"), "{direct} {before}");
            send(&mut stream, &all[before..]).await;
            assert!(until_closed(&mut stream).await.ends_with("closes"), "{direct} {before}");
        }
    }
}

/// A client that sends all before it looks at the answer gets it, also where neither fits into the sockets.
#[tokio::test]
async fn a_long_answer_does_not_wait_for_who_sends_first() {
    for direct in BOTH_WAYS {
        let server = start_by(direct, limits(), None).await;
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.set_send_buffer_size(32 * 1024).unwrap();
        let mut stream = socket.connect(server.address).await.unwrap();
        let exchange = async {
            send(&mut stream, "PUT /big HTTP/1.1\r\nHost: x\r\nContent-Length: 3000000\r\n\r\n").await;
            stream.write_all(&vec![b'x'; 3_000_000]).await.unwrap();
            until(&mut stream, "\r\n\r\n").await;
            let mut body = vec![0; 16 << 20];
            stream.read_exact(&mut body).await.unwrap();
            assert!(body.iter().all(|&byte| byte == b'b'));
            send(&mut stream, "GET /close HTTP/1.1\r\nHost: x\r\n\r\n").await;
            until_closed(&mut stream).await
        };
        let said = tokio::time::timeout(Duration::from_secs(60), exchange).await.expect("neither waits for the other");
        assert!(said.ends_with("closes"), "{direct}: {said}");
        server.stop().await;
    }
}

/// However long a body is, no more of it is in memory than a connection may buffer.
#[tokio::test]
async fn a_long_body_comes_in_pieces_of_bounded_length() {
    // A kernel that has much at once brings much at once.
    for (buffer_bytes_max, piece_bytes_min) in [(8192, 1), (512 * 1024, 64 * 1024)] {
        let server = start(HttpLimits { buffer_bytes_max, ..limits() }, None).await;
        let mut stream = server.connect().await;
        send(&mut stream, "PUT /longest HTTP/1.1\r\nHost: x\r\nContent-Length: 9000000\r\n\r\n").await;
        stream.write_all(&vec![b'x'; 9_000_000]).await.unwrap();
        let answer = until(&mut stream, " bytes").await;
        let longest = answer.rsplit("\r\n").next().unwrap().strip_suffix(" bytes").unwrap();
        let longest: usize = longest.parse().unwrap();
        assert!((piece_bytes_min..=buffer_bytes_max).contains(&longest), "{longest} of {buffer_bytes_max}");
        drop(stream);
        server.stop().await;
    }
}

/// A connection on which long bodies have come is not another's for that: large answers are sent from files.
#[tokio::test]
async fn a_connection_stays_after_a_long_body() {
    let server = start(limits(), None).await;
    let mut stream = server.connect().await;
    let body = "y".repeat(1_000_000);
    send(&mut stream, &format!("PUT /echo HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", body.len())).await;
    send(&mut stream, &body).await;
    assert!(until(&mut stream, "\r\n\r\n").await.starts_with("HTTP/1.1 200 OK\r\n"));
    let mut echoed = vec![0; body.len()];
    stream.read_exact(&mut echoed).await.unwrap();
    assert_eq!(echoed, body.as_bytes());
    send(&mut stream, "GET /placed HTTP/1.1\r\nHost: x\r\n\r\n").await;
    until(&mut stream, "\r\n\r\n").await;
    let mut body = vec![0; PLACED.iter().sum()];
    stream.read_exact(&mut body).await.unwrap();
    let letter = if PagePipe::take().is_some() { b'A' } else { b'm' };
    assert!(body[..PLACED[0]].iter().all(|&byte| byte == letter));
    drop(stream);
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn who_hangs_up_amid_his_body_is_noticed() {
    for direct in BOTH_WAYS {
        for path in ["/echo", "/apart"] {
            for sent in [0, 100, 90_000] {
                let server = start_by(direct, limits(), None).await;
                let mut stream = server.connect().await;
                send(&mut stream, &format!("PUT {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n")).await;
                send(&mut stream, &"x".repeat(sent)).await;
                tokio::time::sleep(Duration::from_secs(1)).await;
                drop(stream);
                tokio::time::sleep(Duration::from_secs(1)).await;
                let page = server.page();
                assert!(page.contains("gabion_http_requests_in_flight 0"), "{direct} {path} {sent}: {page}");
                assert!(page.contains("gabion_http_connections 0"), "{direct} {path} {sent}: {page}");
            }
        }
    }
}

/// Who reads a body in another task is not left with the connection when the server has cut it.
#[tokio::test(start_paused = true)]
async fn a_body_ends_with_its_connection() {
    for direct in BOTH_WAYS {
        let server = start_by(direct, limits(), None).await;
        let mut stream = server.connect().await;
        send(&mut stream, "PUT /apart HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n0123").await;
        let paths = server.paths.clone();
        let stopping = tokio::spawn(server.stop());
        for _ in 0..2 {
            tokio::time::sleep(Duration::from_secs(12)).await;
            // So that it is not a stall.
            stream.write_all(&[b'x'; 5000]).await.unwrap();
        }
        assert_eq!(stopping.await.unwrap(), Drained { cut: 1 }, "{direct}");
        let cut = Instant::now();
        paths.held.notified().await;
        assert_eq!(cut.elapsed().as_secs(), 0, "{direct}");
        assert_eq!(until_closed(&mut stream).await, "", "{direct}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_may_be_slow_but_not_stall() {
    for direct in BOTH_WAYS {
        let server = start_by(direct, HttpLimits { progress_bytes_min: 10, ..limits() }, None).await;
        let mut stream = server.connect().await;
        send(&mut stream, "PUT /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n").await;
        for _ in 0..10 {
            tokio::time::sleep(Duration::from_secs(15)).await;
            send(&mut stream, "0123456789").await;
        }
        assert!(until(&mut stream, "0123456789").await.starts_with("HTTP/1.1 200 OK"));

        let mut stream = server.connect().await;
        send(&mut stream, "PUT /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n0123456789").await;
        let answer = until_closed(&mut stream).await;
        assert!(answer.ends_with("failed: the client stopped sending or receiving"), "{answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_stops_taking_its_answer_is_cut() {
    for direct in BOTH_WAYS {
        let server = start_by(direct, limits(), None).await;
        let mut stream = server.connect().await;
        send(&mut stream, "GET /flood HTTP/1.1\r\nHost: x\r\n\r\n").await;
        until(&mut stream, "\r\n\r\n").await;
        tokio::time::sleep(Duration::from_secs(3600)).await;
        let page = server.page();
        assert!(page.contains("gabion_http_connections_closed_total{reason=\"stalled\"} 1"), "{page}");
        assert!(page.contains("gabion_http_requests_aborted_total{operation=\"Test\"} 1"), "{page}");
        assert!(page.contains("gabion_http_requests_in_flight 0"), "{page}");
    }
}

/// Its last piece is handed over long before it is there.
#[tokio::test(start_paused = true)]
async fn a_slow_client_gets_all_of_its_answer() {
    for direct in BOTH_WAYS {
        let server = start_by(direct, limits(), None).await;
        let mut stream = server.connect().await;
        send(&mut stream, "GET /big HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
        until(&mut stream, "\r\n\r\n").await;
        let (mut piece, mut bytes) = (vec![0; 128 << 10], 0);
        loop {
            tokio::time::sleep(Duration::from_secs(1)).await;
            match stream.read_exact(&mut piece).await {
                Ok(read) => bytes += read,
                Err(error) => break assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof),
            }
        }
        assert_eq!(bytes, 16 << 20);
    }
}

/// Its streams wait for windows, and the connection for nothing.
#[tokio::test(start_paused = true)]
async fn a_client_of_http2_that_stops_taking_its_answers_is_cut() {
    // Of the long ones the last piece is on its way, and nobody asks for more.
    for path in ["/flood", "/big"] {
        let server = start(limits(), None).await;
        let (mut client, connection) = http2(server.connect().await).await;
        let request = |path: &str| Request::builder().uri(format!("http://x{path}")).body(Empty::new()).unwrap();
        let untaken = client.send_request(request(path)).await.unwrap();
        // One that is in flight says nothing of the other.
        let held = tokio::spawn(client.send_request(request("/hold")));
        server.paths.held.notified().await;
        let began = Instant::now();
        assert!(connection.await.unwrap().is_err());
        assert!((200..=220).contains(&began.elapsed().as_secs()), "{path}: {:?}", began.elapsed());
        let page = server.page();
        assert!(page.contains("gabion_http_connections_closed_total{reason=\"stalled\"} 1"), "{page}");
        assert!(page.contains("gabion_http_requests_in_flight 0"), "{page}");
        assert!(held.await.unwrap().is_err());
        drop(untaken);
    }
}

/// Answers to pings are no work.
#[tokio::test(start_paused = true)]
async fn a_client_of_http2_that_only_pings_is_idle() {
    let server = start(limits(), None).await;
    let io = TokioIo::new(server.connect().await);
    let (mut client, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
        .timer(hyper_util::rt::TokioTimer::new())
        .keep_alive_interval(Duration::from_secs(5))
        .keep_alive_while_idle(true)
        .handshake::<_, Empty<Bytes>>(io)
        .await
        .unwrap();
    let connection = tokio::spawn(connection);
    let request = Request::builder().uri("http://x/").body(Empty::new()).unwrap();
    client.send_request(request).await.unwrap().into_body().collect().await.unwrap();
    let began = Instant::now();
    let _ = connection.await.unwrap();
    assert!((60..=70).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
    assert!(server.page().contains("gabion_http_connections_closed_total{reason=\"idle\"} 1"));
}

/// Who takes little of many answers, but some, is served.
#[tokio::test(start_paused = true)]
async fn a_slow_client_of_http2_gets_all_of_its_answers() {
    let server = start(limits(), None).await;
    let (mut client, connection) = http2(server.connect().await).await;
    let request = || Request::builder().uri("http://x/long").body(Empty::new()).unwrap();
    let mut bodies = Vec::new();
    for _ in 0..2 {
        bodies.push(client.send_request(request()).await.unwrap().into_body());
    }
    let mut bytes = 0;
    while !bodies.is_empty() {
        let mut body = bodies.remove(0);
        tokio::time::sleep(Duration::from_millis(500)).await;
        if let Some(frame) = body.frame().await {
            bytes += frame.unwrap().data_ref().map_or(0, Bytes::len);
            bodies.push(body);
        }
    }
    assert_eq!(bytes, 32 << 20);
    // All was sent long before: the server has closed the connection, perhaps.
    connection.abort();
}

#[tokio::test(start_paused = true)]
async fn heads_are_bounded_in_bytes_and_fields() {
    let server = start(limits(), None).await;
    let long = format!("GET / HTTP/1.1\r\nHost: x\r\nX-Long: {}\r\n\r\n", "a".repeat(5000));
    let many = format!("GET / HTTP/1.1\r\nHost: x\r\n{}\r\n", "X-A: b\r\n".repeat(17));
    let endless = format!("GET / HTTP/1.1\r\nHost: x\r\nX-Long: {}", "a".repeat(1024 * 1024));
    let table = [(long, "400 Bad Request"), (many, "431 "), (endless, "431 ")];
    for (head, expected) in table {
        let mut stream = server.connect().await;
        // The server may close before all is sent.
        let _ = stream.write_all(head.as_bytes()).await;
        let mut status = [0; 64];
        let length = stream.read(&mut status).await.unwrap();
        let status = String::from_utf8_lossy(&status[..length]);
        assert!(status.starts_with(&format!("HTTP/1.1 {expected}")), "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn connections_beyond_the_limit_wait_for_their_turn() {
    let server = start(HttpLimits { connections_max: 1, ..limits() }, None).await;
    let mut first = server.connect().await;
    send(&mut first, "GET /hold HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
    server.paths.held.notified().await;
    let mut second = server.connect().await;
    send(&mut second, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
    let second = tokio::spawn(async move { until_closed(&mut second).await });
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert!(!second.is_finished(), "one connection is all that is served");
    server.paths.release.notify_one();
    assert!(until_closed(&mut first).await.ends_with("released"));
    assert!(second.await.unwrap().ends_with("clear"));
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_finishes_what_is_in_flight_and_closes_the_rest() {
    for direct in BOTH_WAYS {
        let server = start_by(direct, limits(), None).await;
        let mut idle = server.connect().await;
        send(&mut idle, "GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
        until(&mut idle, "clear").await;
        let mut busy = server.connect().await;
        send(&mut busy, "GET /hold HTTP/1.1\r\nHost: x\r\n\r\n").await;
        server.paths.held.notified().await;

        let Running { address, paths, stop, server, .. } = server;
        stop.send(()).unwrap();
        assert_eq!(until_closed(&mut idle).await, "", "an idle connection is closed at once");
        assert!(TcpStream::connect(address).await.is_err(), "nothing is accepted any more");
        assert!(!server.is_finished());
        paths.release.notify_one();
        let answer = until_closed(&mut busy).await;
        assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("released"), "{answer}");
        assert_eq!(server.await.unwrap(), Drained { cut: 0 });
    }
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_does_not_wait_for_ever() {
    for direct in BOTH_WAYS {
        let server = start_by(direct, limits(), None).await;
        let mut busy = server.connect().await;
        send(&mut busy, "GET /hold HTTP/1.1\r\nHost: x\r\n\r\n").await;
        server.paths.held.notified().await;
        let began = Instant::now();
        assert_eq!(server.stop().await, Drained { cut: 1 });
        assert_eq!(began.elapsed().as_secs(), 30);
        assert_eq!(until_closed(&mut busy).await, "");
    }
}

#[tokio::test(start_paused = true)]
async fn http2_is_spoken_in_the_clear_and_ends_gracefully() {
    let server = start(limits(), None).await;
    let (mut client, connection) = http2(server.connect().await).await;
    let request = |path: &str| Request::builder().uri(format!("http://x{path}")).body(Empty::new()).unwrap();
    let answer = client.send_request(request("/")).await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "clear");
    // Where HTTP/1 has it, and only once.
    for named in [None, Some("x")] {
        let mut request = request("/host");
        request.headers_mut().extend(named.map(|host| (header::HOST, HeaderValue::from_static(host))));
        let answer = client.send_request(request).await.unwrap();
        assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "x", "{named:?}");
    }

    let held = tokio::spawn(client.send_request(request("/hold")));
    server.paths.held.notified().await;
    let paths = server.paths.clone();
    let stopping = tokio::spawn(server.stop());
    tokio::task::yield_now().await;
    paths.release.notify_one();
    let answer = held.await.unwrap().unwrap();
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "released");
    assert_eq!(stopping.await.unwrap(), Drained { cut: 0 });
    drop(client);
    connection.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn tls_is_spoken_and_a_client_that_is_not_is_cut() {
    let testdata = |name: &str| format!("{}/testdata/tls/{name}", env!("CARGO_MANIFEST_DIR"));
    let files = TlsFiles { certificate: testdata("certificate.pem").into(), key: testdata("key.pem").into() };
    let server = start(limits(), Some(Arc::new(ReloadingTls::load(files).unwrap()))).await;

    let name = || rustls::pki_types::ServerName::try_from("localhost").unwrap();
    let offering = |protocols: &[&[u8]]| {
        let mut config = crate::tls::tests::client();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        tokio_rustls::TlsConnector::from(Arc::new(config))
    };
    for (offered, spoken) in [(&[&b"h2"[..]][..], &b"h2"[..]), (&[b"h2", b"http/1.1"], b"http/1.1")] {
        let stream = offering(offered).connect(name(), server.connect().await).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(spoken));
    }
    let mut stream = offering(&[b"http/1.1"]).connect(name(), server.connect().await).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    send(&mut stream, "GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
    let answer = until(&mut stream, "tls").await;
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    assert!(answer.to_lowercase().contains(header::CONTENT_LENGTH.as_str()), "{answer}");
    let body = "z".repeat(1_000_000);
    for (headers, says) in [("", ""), ("Expect: 100-continue\r\n", "HTTP/1.1 100 Continue\r\n\r\n")] {
        send(&mut stream, &format!("PUT /echo HTTP/1.1\r\nHost: x\r\n{headers}Content-Length: 1000000\r\n\r\n")).await;
        if !says.is_empty() {
            assert_eq!(until(&mut stream, "\r\n\r\n").await, says);
        }
        send(&mut stream, &body).await;
        assert!(until(&mut stream, "\r\n\r\n").await.starts_with("HTTP/1.1 200 OK\r\n"));
        let mut echoed = vec![0; body.len()];
        stream.read_exact(&mut echoed).await.unwrap();
        assert_eq!(echoed, body.as_bytes());
    }
    // Answered early, and the rest is thrown away.
    send(&mut stream, "PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n").await;
    send(&mut stream, &body).await;
    assert!(until(&mut stream, "tls").await.starts_with("HTTP/1.1 200 OK\r\n"));
    send(&mut stream, "GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert!(until(&mut stream, "tls").await.starts_with("HTTP/1.1 200 OK\r\n"));

    let mut clear = server.connect().await;
    send(&mut clear, "GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert!(!until_closed_lossy(&mut clear).await.contains("HTTP"));
    let began = Instant::now();
    let mut mute = server.connect().await;
    until_closed_lossy(&mut mute).await;
    assert_eq!(began.elapsed().as_secs(), 10);
}

async fn until_closed_lossy(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes).await;
    String::from_utf8_lossy(&bytes).into_owned()
}

/// What comes back on a connection that these pieces are sent on, without dates; lines of heads in their order by name.
async fn exchanged(direct: bool, pieces: &[&str]) -> String {
    let server = start_by(direct, limits(), None).await;
    let mut stream = server.connect().await;
    for piece in pieces {
        // The server may have closed.
        let _ = stream.write_all(piece.as_bytes()).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let said = until_closed_lossy(&mut stream).await;
    let mut out = Vec::new();
    let mut head = Vec::new();
    for line in said.split_inclusive("\r\n") {
        match line {
            "\r\n" => {
                head.sort_unstable();
                out.append(&mut head);
                out.push(line);
            }
            line if line.starts_with("date: ") => {}
            line if line.contains(": ") => head.push(line),
            line => out.push(line),
        }
    }
    out.append(&mut head);
    out.concat()
}

#[tokio::test(start_paused = true)]
async fn what_is_answered_without_hyper_is_what_hyper_answers() {
    const END: &str = "GET /close HTTP/1.1\r\nHost: x\r\n\r\n";
    let long = format!("PUT /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 70000\r\n\r\n{}", "a".repeat(70_000));
    let long_and_next = format!("{long}GET /pieces HTTP/1.1\r\nHost: x\r\n\r\n");
    let many = format!("GET / HTTP/1.1\r\nHost: x\r\n{}\r\n", "X-A: b\r\n".repeat(17));
    let put = |headers: &str, body: &str| format!("PUT /echo HTTP/1.1\r\nHost: x\r\n{headers}\r\n{body}");
    let (expects, both) = (
        put("Expect: 100-continue\r\nContent-Length: 5\r\n", "hello"),
        put("Content-Length: 5\r\nContent-Length: 5\r\n", "hello"),
    );
    let (chunked, signed) =
        (put("Transfer-Encoding: chunked\r\n", "5\r\nhello\r\n0\r\n\r\n"), put("Content-Length: +5\r\n", "hello"));
    let (whole, huge) =
        (put("Content-Length: 5\r\n", "hello"), put("Content-Length: 99999999999999999999\r\n", "hello"));
    let table: &[&[&str]] = &[
        &["GET / HTTP/1.1\r\nHost: x\r\n\r\n"],
        &["HEAD / HTTP/1.1\r\nHost: x\r\n\r\n"],
        &["HEAD /pieces HTTP/1.1\r\nHost: x\r\n\r\n"],
        &["GET /pieces HTTP/1.1\r\nHost: x\r\n\r\n"],
        &["GET /none HTTP/1.1\r\nHost: x\r\n\r\n"],
        &["GET /lies/5 HTTP/1.1\r\nHost: x\r\n\r\n"],
        &["HEAD /lies/7 HTTP/1.1\r\nHost: x\r\n\r\n"],
        &["GET /echo HTTP/1.1\r\nHost: x\r\n\r\n"],
        &["GET / HTTP/1.1\r\nHost: x\r\nConnection: keep-alive\r\n\r\n"],
        &["GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"],
        &["GET / HTTP/1.0\r\nHost: x\r\n\r\n"],
        &["GET / HTTP/1.1\nHost: x\n\n"],
        &["\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n"],
        &["GET http://x/pieces HTTP/1.1\r\nHost: x\r\n\r\n"],
        &["OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n"],
        &["CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n"],
        &["BREW / HTTP/1.1\r\nHost: x\r\n\r\n"],
        &["GET / HTTP/1.1\r\nHost: x\r\nUpgrade: h2c\r\n\r\n"],
        &["G", "ET / HT", "TP/1.1\r\nHo", "st: x\r\n\r", "\n"],
        &[&whole],
        &[&whole, &whole, &whole],
        &[&whole[..40], &whole[40..]],
        &["PUT /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n", "he", "llo"],
        &[
            "PUT /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhelloGET / HTTP/1.1\r\nHost: x\r\n\r\nGE",
            "T /pieces HTTP/1.1\r\nHost: x\r\n\r\n",
        ],
        &["PUT /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"],
        &["PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello"],
        &[&long],
        &[&long, &long, &whole],
        &[&long[..40], &long[40..60], &long[60..60_000], &long[60_000..]],
        &[&long_and_next],
        &[&long_and_next[..69_000], &long_and_next[69_000..]],
        &[&long.replace("/echo", "/apart"), &whole],
        &[&long.replace("/echo", "/"), &whole],
        &[&long.replace("/echo", "/none"), &whole],
        &[&long.replace("/echo", "/close"), &whole],
        &[&long.replace("PUT /echo", "HEAD /"), &whole],
        &[&long.replace("PUT /echo", "GET /pieces"), &whole],
        &[&expects],
        &[&expects[..expects.len() - 5], &expects[expects.len() - 5..]],
        &[&expects.replace("/echo", "/"), &whole],
        &[&expects.replace("Length: 5", "Length: 0")],
        &[&expects.replace("100-continue", "100-CONTINUE")],
        &[&expects.replace("100-continue", "200-ok")],
        &[&expects.replace("Content", "Expect: 100-continue\r\nContent")],
        &[&expects.replace("1.1\r", "1.0\r")],
        &[&chunked],
        &[&both],
        // What is no request.
        &[&signed],
        &[&huge],
        &[&many],
        &["GET / HTTP/1.1\r\nHost : x\r\n\r\n"],
        &["GET / HTTP/1.1\r\n\r\n"],
        &["GET / HTTP/1.0\r\n\r\n"],
        &["GET / HTTP/1.1\r\nHost: x\r\nHost: x\r\n\r\n"],
        &["PUT /echo HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello"],
        &["GET / HTTP/1.1\r\nHost: x\r\n folded\r\n\r\n"],
        &["GET / HTTP/1.1\r\nHost: \u{7f}\r\n\r\n"],
        &["GET /\u{fc} HTTP/1.1\r\nHost: x\r\n\r\n"],
        &["GET HTTP/1.1\r\nHost: x\r\n\r\n"],
        &["GET / HTTP/1.1\r\nHost: x\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"],
        &["GET / HTTP/3.0\r\nHost: x\r\n\r\n"],
        &["\0\0\0"],
        &[""],
    ];
    for pieces in table {
        let pieces: Vec<&str> = pieces.iter().copied().chain([END]).collect();
        let (direct, hyper) = (exchanged(true, &pieces).await, exchanged(false, &pieces).await);
        assert_eq!(direct, hyper, "{pieces:?}");
    }
    // A body of another length than was announced breaks the connection: here also one that is too long, which hyper cuts off.
    for path in ["/lies/4", "/lies/6"] {
        let said = exchanged(true, &[&format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"), END]).await;
        assert!(!said.contains("closes"), "{path}: {said}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_names_its_host_and_only_once() {
    for (head, status) in [
        ("GET / HTTP/1.1\r\nHost: x\r\n", "200"),
        ("GET / HTTP/1.1\r\nHost:\r\n", "200"),
        ("GET / HTTP/1.0\r\n", "200"),
        ("GET / HTTP/1.1\r\n", "400"),
        ("GET http://x/ HTTP/1.1\r\n", "400"),
        ("GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n", "400"),
        ("GET / HTTP/1.0\r\nHost: x\r\nHost: x\r\n", "400"),
    ] {
        for direct in BOTH_WAYS {
            let said = exchanged(direct, &[&format!("{head}\r\n")]).await;
            let (_, after_version) = said.split_once("HTTP/1.").unwrap();
            assert_eq!(&after_version[2..5], status, "{head:?} {direct}: {said}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_far_behind_its_head_is_waited_for() {
    for direct in BOTH_WAYS {
        let server = start_by(direct, limits(), None).await;
        let mut stream = server.connect().await;
        for pause_s in [0, 1, 15] {
            send(&mut stream, "PUT /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhe").await;
            tokio::time::sleep(Duration::from_secs(pause_s)).await;
            send(&mut stream, "llo").await;
            assert!(until(&mut stream, "hello").await.starts_with("HTTP/1.1 200 OK"), "{direct}");
            send(&mut stream, "GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
            assert!(until(&mut stream, "clear").await.starts_with("HTTP/1.1 200 OK"), "{direct}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn who_has_sent_all_of_several_requests_is_answered() {
    for direct in BOTH_WAYS {
        let server = start_by(direct, limits(), None).await;
        let mut stream = server.connect().await;
        let (hold, next) = ("GET /hold HTTP/1.1\r\nHost: x\r\n\r\n", "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        send(&mut stream, &[hold, next].concat()).await;
        stream.shutdown().await.unwrap();
        server.paths.held.notified().await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        server.paths.release.notify_one();
        let said = until_closed(&mut stream).await;
        // hyper takes the end for that of all behind the one that is under way.
        assert!(said.contains("released") && (said.ends_with("clear") || !direct), "{direct}: {said}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_hangs_up_takes_his_request_with_him() {
    for direct in BOTH_WAYS {
        let server = start_by(direct, limits(), None).await;
        let mut stream = server.connect().await;
        send(&mut stream, "GET /hold HTTP/1.1\r\nHost: x\r\n\r\n").await;
        server.paths.held.notified().await;
        drop(stream);
        tokio::time::sleep(Duration::from_secs(1)).await;
        let page = server.page();
        assert!(page.contains("gabion_http_requests_in_flight 0"), "{direct}: {page}");
        assert!(
            page.contains("gabion_http_requests_total{operation=\"Unknown\",status=\"499\"} 1"),
            "{direct}: {page}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_in_the_middle_of_a_body_ends_with_it() {
    for direct in BOTH_WAYS {
        for request in ["GET /late HTTP/1.1\r\nHost: x\r\n\r\n", "GET /late HTTP/1.1\r\nHost: x\r\nUpgrade: no\r\n\r\n"]
        {
            let server = start_by(direct, limits(), None).await;
            let mut stream = server.connect().await;
            send(&mut stream, request).await;
            server.paths.held.notified().await;
            let paths = server.paths.clone();
            let stopping = tokio::spawn(server.stop());
            tokio::time::sleep(Duration::from_secs(1)).await;
            paths.release.notify_one();
            let began = Instant::now();
            assert!(until_closed(&mut stream).await.ends_with("4\r\nlate\r\n0\r\n\r\n"), "{direct}");
            assert_eq!((stopping.await.unwrap(), began.elapsed().as_secs()), (Drained { cut: 0 }, 0), "{direct}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_while_a_body_arrives_waits_for_it() {
    for direct in BOTH_WAYS {
        let server = start_by(direct, limits(), None).await;
        let mut stream = server.connect().await;
        send(&mut stream, "PUT /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhe").await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        let stopping = tokio::spawn(server.stop());
        tokio::time::sleep(Duration::from_secs(5)).await;
        send(&mut stream, "llo").await;
        let answer = until_closed(&mut stream).await;
        assert!(answer.ends_with("hello"), "{direct}: {answer}");
        assert_eq!(stopping.await.unwrap(), Drained { cut: 0 }, "{direct}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_hangs_up_in_the_middle_of_an_answer_is_noticed() {
    for direct in BOTH_WAYS {
        let server = start_by(direct, limits(), None).await;
        let mut stream = server.connect().await;
        send(&mut stream, "GET /late HTTP/1.1\r\nHost: x\r\n\r\n").await;
        server.paths.held.notified().await;
        drop(stream);
        tokio::time::sleep(Duration::from_secs(1)).await;
        let page = server.page();
        assert!(page.contains("gabion_http_requests_in_flight 0"), "{direct}: {page}");
        assert!(page.contains("gabion_http_connections 0"), "{direct}: {page}");
    }
}

/// What lies in files is sent from there, as far as the pipe goes, and what is short or follows it from memory, all of it in order.
#[tokio::test]
async fn long_pieces_are_sent_from_the_files_that_they_lie_in() {
    // A user may have no more pipes, too.
    let supported = PagePipe::take().is_some();
    let server = start(limits(), None).await;
    let mut stream = server.connect().await;
    for round in 1..=3 {
        send(&mut stream, "GET /placed HTTP/1.1\r\nHost: x\r\n\r\n").await;
        let head = until(&mut stream, "\r\n\r\n").await;
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        let mut body = vec![0; PLACED.iter().sum()];
        stream.read_exact(&mut body).await.unwrap();
        let (mut at, mut from_files) = (0, 0);
        for (number, len) in PLACED.into_iter().enumerate() {
            let piece = &body[at..at + len];
            let letter = b'A' + number as u8;
            let of_file = piece.iter().take_while(|&&byte| byte == letter).count();
            assert!(piece[of_file..].iter().all(|&byte| byte == b'm'), "piece {number}");
            // The first one fits in any case.
            let whole = number == 0 && supported;
            assert!(of_file == 0 || (supported && len >= 16 * 1024), "piece {number}: {of_file}");
            assert!(!whole || of_file == len, "piece {number}: {of_file}");
            at += len;
            from_files += of_file;
        }
        let counted = format!("gabion_http_uncopied_bytes_total {}\n", round * from_files);
        // It is counted when the kernel has it, which may be after the client.
        let is_counted = async {
            while !server.page().contains(&counted) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), is_counted).await.expect(&counted);
    }
    drop(stream);
    server.stop().await;
}

#[tokio::test]
async fn hyper_sends_from_memory() {
    let server = start_by(false, limits(), None).await;
    let mut stream = server.connect().await;
    send(&mut stream, "GET /placed HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
    let text = until_closed(&mut stream).await;
    assert!(text.ends_with(&"m".repeat(PLACED.iter().sum())));
    server.stop().await;
}

/// A client that hangs up while pages are on their way takes nothing from those after it.
#[tokio::test]
async fn who_hangs_up_amid_pages_leaves_none_to_the_next() {
    let server = start(limits(), None).await;
    for _ in 0..70 {
        let mut stream = server.connect().await;
        send(&mut stream, "GET /placed HTTP/1.1\r\nHost: x\r\n\r\n").await;
        stream.read_u8().await.unwrap();
        drop(stream);
    }
    let mut stream = server.connect().await;
    send(&mut stream, "GET /placed HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
    let text = until_closed(&mut stream).await;
    assert!(text.ends_with(&"m".repeat(7)), "hyper serves what is to be closed");
    let mut stream = server.connect().await;
    send(&mut stream, "GET /placed HTTP/1.1\r\nHost: x\r\n\r\n").await;
    until(&mut stream, "\r\n\r\n").await;
    let mut body = vec![0; PLACED.iter().sum()];
    stream.read_exact(&mut body).await.unwrap();
    let letter = if PagePipe::take().is_some() { b'A' } else { b'm' };
    assert!(body[..PLACED[0]].iter().all(|&byte| byte == letter));
    drop(stream);
    server.stop().await;
}
