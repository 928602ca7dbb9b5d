//! Connections that are read without hyper against those that hyper reads: the same requests, byte by byte, get the same answers.

use std::net::SocketAddr;
use std::sync::Arc;

use gabion_platform::{Dice, SystemClock};
use gabion_server::http::{HttpLimits, HttpServer, Listener, Observer};
use gabion_server::metrics::ServerMetrics;
use http::Request;
use http::header::CONTENT_LENGTH;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::differential::changes;
use crate::harness::S3;
use crate::twins::{by_others, good, twins};

/// Serves on a port. Whoever has nobody to report to has hyper read everything.
async fn serve(s3: &S3, reports: bool) -> Client {
    let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = tcp.local_addr().unwrap();
    let observer = Observer { clock: Arc::new(SystemClock), metrics: ServerMetrics::new(), access_log: None };
    let server = HttpServer {
        handler: s3.service.clone(),
        limits: HttpLimits::default(),
        observer: reports.then_some(observer),
    };
    tokio::spawn(server.serve(vec![Listener { tcp, tls: None }], std::future::pending()));
    Client { address, stream: None, connected: 0 }
}

/// What sends requests on one connection as long as the server keeps it.
struct Client {
    address: SocketAddr,
    stream: Option<TcpStream>,
    connected: u32,
}

impl Client {
    /// The answer: its head, without what differs from request to request, and its body.
    async fn ask(&mut self, request: &Request<Vec<u8>>) -> (String, String) {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => {
                self.connected += 1;
                TcpStream::connect(self.address).await.unwrap()
            }
        };
        let (mut reading, mut writing) = stream.split();
        let mut sent = format!("{} {} HTTP/1.1\r\n", request.method(), request.uri()).into_bytes();
        for (name, value) in request.headers() {
            sent.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
        }
        sent.extend(b"\r\n");
        sent.extend(request.body());
        // Who is refused beforehand may find the connection closed.
        let (_, (head, mut body)) = tokio::join!(writing.write_all(&sent), head(&mut reading));
        let said =
            |name: &str| head.lines().find_map(|line| line.strip_prefix(name).and_then(|rest| rest.strip_prefix(": ")));
        let closes = said("connection") == Some("close");
        let status = &head["HTTP/1.1 ".len()..][..3];
        let bodiless = request.method() == "HEAD" || ["204", "304"].contains(&status);
        let bytes = said("content-length").filter(|_| !bodiless).map_or(0, |text| text.parse().unwrap());
        assert_eq!(said("transfer-encoding"), None, "{head}");
        while body.len() < bytes {
            assert!(reading.read_buf(&mut body).await.unwrap() > 0, "{head}");
        }
        if closes {
            // Whatever the client still sent is taken first, so that no reset overtakes the answer.
            reading.read_to_end(&mut body).await.unwrap();
        } else {
            self.stream = Some(stream);
        }
        assert_eq!(body.len(), bytes, "{head}");
        // Ids of versions follow from what else there was to commit, which is a matter of turns.
        let differing = ["date: ", "x-amz-request-id: ", "x-amz-version-id: "];
        let shown = |line: &str| differing.iter().find_map(|name| line.starts_with(name).then_some(*name));
        let mut lines: Vec<&str> = head.split("\r\n").map(|line| shown(line).unwrap_or(line)).collect();
        lines[1..].sort_unstable();
        let body = String::from_utf8_lossy(&body).into_owned();
        (lines.join("\n"), body.split("<RequestId>").next().unwrap_or_default().to_owned())
    }
}

/// Reads a head that is no `100 Continue`, and what came behind it.
async fn head(stream: &mut (impl AsyncReadExt + Unpin)) -> (String, Vec<u8>) {
    let mut read = Vec::new();
    loop {
        let end = read.windows(4).position(|bytes| bytes == b"\r\n\r\n");
        let Some(end) = end else {
            let more = stream.read_buf(&mut read).await.unwrap();
            assert!(more > 0, "the connection ended after {}", String::from_utf8_lossy(&read));
            continue;
        };
        let rest = read.split_off(end + 4);
        let head = String::from_utf8(std::mem::replace(&mut read, rest)).unwrap();
        if !head.starts_with("HTTP/1.1 100") {
            return (head.trim_end().to_owned(), read);
        }
    }
}

/// Whether a body is as long as its head says. What else there is `http/tests.rs` compares.
fn is_framed(request: &Request<Vec<u8>>) -> bool {
    let mut lengths = request.headers().get_all(CONTENT_LENGTH).iter();
    let bytes = request.body().len();
    match (lengths.next(), lengths.next()) {
        (None, _) => bytes == 0,
        (Some(said), None) => said.as_bytes() == bytes.to_string().as_bytes(),
        (Some(_), Some(_)) => false,
    }
}

#[tokio::test]
async fn connections_answer_alike_with_hyper_and_without() {
    both_connections_answer_alike(true).await;
}

/// With s3s in front of all operations, which lends itself no bodies.
#[tokio::test]
async fn connections_before_s3s_answer_alike_with_hyper_and_without() {
    both_connections_answer_alike(false).await;
}

async fn both_connections_answer_alike(fast_path: bool) {
    let ([one, other], stage, _) = twins([fast_path; 2]).await;
    let (mut direct, mut hyper) = (serve(&one, true).await, serve(&other, false).await);
    let mut dice = Dice::new(2);
    let (mut asked, mut refused) = (0, 0);
    for (kind, call) in good(&stage).into_iter().chain(by_others(&stage)) {
        let request = call.build();
        let mut requests = vec![("unchanged".into(), request.clone())];
        requests.extend(changes(&request, &mut dice));
        for (what, request) in requests.into_iter().filter(|(_, request)| is_framed(request)) {
            let (found, expected) = (direct.ask(&request).await, hyper.ask(&request).await);
            assert_eq!(found, expected, "{kind}, {what}: {:?}", request.uri());
            asked += 1;
            refused += u32::from(!expected.0.starts_with("HTTP/1.1 2"));
        }
    }
    assert!(asked > 15_000 && refused > asked / 2, "{asked} {refused}");
    // Most answers leave a connection as it is.
    assert_eq!(direct.connected, hyper.connected);
    assert!(direct.connected < asked / 3, "{} {asked}", direct.connected);
}
