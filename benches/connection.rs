//! A connection without storage behind it: requests that stay on one socket of the loopback interface, from their first byte to the last one of their answer; in the clear and by
//! TLS, and what it takes to connect.
//!
//! One thread is both the client and the server; the client writes bytes that it has at hand and counts what comes. `cargo bench -p gabion-benches --ignore-rust-version --bench connection`.
#![allow(clippy::unwrap_used)]

use std::future::{pending, poll_fn};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use gabion_platform::SystemClock;
use gabion_server::http::{Answer, Handler, HttpLimits, HttpServer, Listener, Observer, Peer, ReadInto, RequestBody};
use gabion_server::metrics::ServerMetrics;
use gabion_server::tls::{ReloadingTls, TlsFiles};
use http::header::CONTENT_LENGTH;
use http::request::Parts;
use http::{Method, Response};
use http_body::Body as _;
use http_body_util::Full;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio_rustls::TlsConnector;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
/// Bytes that a body is read into at a time: those of a chunk of a stripe.
const ROOM_BYTES: usize = 64 * KIB;

/// Reads bodies and forgets them; answers with bytes that it has at hand.
#[derive(Clone)]
struct Forgetful(Bytes);

impl Handler for Forgetful {
    type Body = Full<Bytes>;

    fn handle<'a>(
        &'a self,
        head: &mut Parts,
        mut body: RequestBody,
        _: Peer,
    ) -> impl Future<Output = Answer<Self::Body>> + Send + use<'a> {
        let mut response = Response::new(Full::default());
        match head.method {
            Method::GET => *response.body_mut() = Full::new(self.0.clone()),
            Method::HEAD => {
                response.headers_mut().insert(CONTENT_LENGTH, self.0.len().into());
            }
            _ => {}
        }
        async move {
            if !body.is_end_stream() {
                let mut room = vec![0; ROOM_BYTES];
                while let Some(piece) = poll_fn(|cx| Pin::new(&mut body).poll_into(cx, &mut room)).await {
                    piece.unwrap();
                }
            }
            response.into()
        }
    }
}

/// How clients are spoken to, and how requests are read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// By our own loop, with what is counted of requests.
    Direct,
    /// The same, by TLS.
    Tls,
    /// By hyper, with nothing counted.
    Hyper,
}

/// What a connection is to the client.
trait Stream: AsyncRead + AsyncWrite + Unpin {}

impl<S: AsyncRead + AsyncWrite + Unpin> Stream for S {}

/// A server and a connection to it.
struct World {
    runtime: Runtime,
    address: SocketAddr,
    connector: Option<TlsConnector>,
    stream: Box<dyn Stream>,
    /// What comes, and is forgotten.
    room: Vec<u8>,
}

impl World {
    /// Of a server whose bodies have so many bytes.
    fn new(body_bytes: usize, way: Way) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        // Without an observer it leaves all to hyper.
        let observer = (way != Way::Hyper).then(|| Observer {
            clock: Arc::new(SystemClock),
            metrics: ServerMetrics::new(),
            access_log: None,
        });
        let (tls, connector) = if way == Way::Tls { secrets() } else { Default::default() };
        let address = runtime.block_on(async {
            let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = tcp.local_addr().unwrap();
            let handler = Forgetful(Bytes::from(vec![7; body_bytes]));
            let server = HttpServer { handler, limits: HttpLimits::default(), observer };
            tokio::spawn(server.serve(vec![Listener { tcp, tls }], pending()));
            address
        });
        let stream = runtime.block_on(connected(address, connector.as_ref()));
        Self { runtime, address, connector, stream, room: vec![0; MIB] }
    }

    /// Connects anew.
    fn reconnect(&mut self) {
        self.stream = self.runtime.block_on(connected(self.address, self.connector.as_ref()));
    }

    /// Sends a request and reads as many bytes as its answer has, or until its head has ended if that is not known. Gives their number.
    fn answered(&mut self, request: &[u8], answer_bytes: Option<usize>) -> usize {
        let Self { runtime, stream, room, .. } = self;
        runtime.block_on(async {
            stream.write_all(request).await.unwrap();
            let mut found = 0;
            loop {
                let bytes = stream.read(room).await.unwrap();
                assert_ne!(bytes, 0, "the server has closed the connection");
                found += bytes;
                let is_all = answer_bytes.map_or_else(|| room[..bytes].ends_with(b"\r\n\r\n"), |all| found >= all);
                if is_all {
                    return found;
                }
            }
        })
    }
}

async fn connected(address: SocketAddr, connector: Option<&TlsConnector>) -> Box<dyn Stream> {
    let stream = TcpStream::connect(address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    match connector {
        Some(connector) => {
            let name = ServerName::try_from("localhost").unwrap();
            Box::new(connector.connect(name, stream).await.unwrap())
        }
        None => Box::new(stream),
    }
}

/// What a server speaks TLS with, and a client that trusts it.
fn secrets() -> (Option<Arc<ReloadingTls>>, Option<TlsConnector>) {
    let path = |name: &str| -> PathBuf {
        [env!("CARGO_MANIFEST_DIR"), "../crates/server/testdata/tls", name].iter().collect()
    };
    let files = TlsFiles { certificate: path("certificate.pem"), key: path("key.pem") };
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(&files.certificate).unwrap()).unwrap();
    let mut config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    // A session that is resumed is another thing than a new one.
    config.resumption = rustls::client::Resumption::disabled();
    (Some(Arc::new(ReloadingTls::load(files).unwrap())), Some(TlsConnector::from(Arc::new(config))))
}

/// A request as SDKs send it: with as many headers as a signed one has, of about their length.
fn request(method: &str, body_bytes: usize) -> Vec<u8> {
    let signature = "0123456789abcdef".repeat(4);
    let mut request = format!(
        "{method} /bucket/some/prefix/key HTTP/1.1\r\nhost: s3.test:9000\r\nuser-agent: aws-sdk-rust/1.3 os/linux lang/rust\r\n\
         x-amz-date: 20260101T000000Z\r\nx-amz-content-sha256: UNSIGNED-PAYLOAD\r\n\
         authorization: AWS4-HMAC-SHA256 Credential=AKTEST/20260101/us-east-1/s3/aws4_request, \
         SignedHeaders=host;x-amz-content-sha256;x-amz-date, Signature={signature}\r\n"
    )
    .into_bytes();
    if method == "PUT" {
        request.extend(format!("content-length: {body_bytes}\r\n").bytes());
    }
    request.extend(b"\r\n");
    if method == "PUT" {
        request.resize(request.len() + body_bytes, 7);
    }
    request
}

/// Each request on all ways.
fn connection(criterion: &mut Criterion) {
    for (name, way) in
        [("connection", Way::Direct), ("connection by TLS", Way::Tls), ("connection by hyper", Way::Hyper)]
    {
        let mut group = criterion.benchmark_group(name);
        for (name, method, body_bytes) in [
            ("HEAD", "HEAD", 4 * KIB),
            ("GET 4 KiB", "GET", 4 * KIB),
            ("GET 1 MiB", "GET", MIB),
            ("PUT 4 KiB", "PUT", 4 * KIB),
            // Longer ones are read when they are asked for.
            ("PUT 64 KiB", "PUT", 64 * KIB),
            ("PUT 1 MiB", "PUT", MIB),
        ] {
            let mut world = World::new(body_bytes, way);
            let request = request(method, body_bytes);
            // All answers have a head of the same length.
            let head_bytes = world.answered(&self::request("HEAD", 0), None);
            let answer_bytes = if method == "GET" { Some(head_bytes + body_bytes) } else { None };
            if method != "HEAD" {
                group.throughput(Throughput::Bytes(body_bytes as u64));
            }
            group.bench_function(name, |bencher| bencher.iter(|| world.answered(&request, answer_bytes)));
        }
        group.finish();
    }
}

/// A connection that is made for one request, as by clients that keep none.
fn connecting(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("connect, HEAD, and close");
    for (name, way) in [("in the clear", Way::Direct), ("by TLS", Way::Tls)] {
        let mut world = World::new(4 * KIB, way);
        let request = request("HEAD", 0);
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                world.reconnect();
                world.answered(&request, None)
            });
        });
    }
    group.finish();
}

criterion_group!(benches, connection, connecting);
criterion_main!(benches);
