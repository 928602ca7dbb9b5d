//! What a request costs, counted: allocations are the same on any machine, so a change that adds some is seen where times would hide it.
//!
//! One thread, a simulated disk, the index in memory: what is counted is the front, the store, the log and the codec, without sockets; and the front again with one.
#![allow(clippy::unwrap_used)]

#[allow(dead_code, reason = "the tests of `tests/s3` use all of it")]
#[path = "../s3/harness.rs"]
mod harness;

use std::sync::Arc;

use bytes::Bytes;
use gabion_platform::SystemClock;
use gabion_server::http::{HttpLimits, HttpServer, Listener, Observer};
use gabion_server::metrics::ServerMetrics;
use harness::{Call, Payload, S3, Sent, peer};
use http::Request;
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Whether the operations that are asked for most go by s3s.
const FAST_PATH: bool = true;
/// Requests that are counted, after as many that fill caches and pools.
const REQUESTS: u64 = 200;

/// Sends a request and takes in all of its answer.
async fn answered(s3: &S3, request: &Request<Bytes>) {
    let (parts, body) = request.clone().into_parts();
    let response = s3.service.call(Request::from_parts(parts, Sent::new(body)), peer()).await;
    assert!(response.status().is_success(), "{}", response.status());
    response.into_body().collect().await.unwrap();
}

/// The bounds are what was measured and a tenth; whoever lowers a count lowers its bound.
#[test]
fn allocations_per_request_are_bounded() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (s3, upload) = runtime.block_on(async {
        let s3 = S3::with_bucket().await;
        for key in 0..100 {
            s3.put(&format!("/bkt/listed/{key:08}")).send(&s3).await.expect(200);
        }
        s3.put("/bkt/key").body(vec![7; 4096]).send(&s3).await.expect(200);
        s3.put("/bkt/long").header("x-amz-meta-long", "x".repeat(600)).send(&s3).await.expect(200);
        for number in 1..=2 * REQUESTS {
            s3.put(&format!("/bkt/deleted/{number}")).body(vec![7; 4096]).send(&s3).await.expect(200);
        }
        s3.put("/bkt/large").body(vec![7; 4 << 20]).payload(Payload::Unsigned).send(&s3).await.expect(200);
        let upload = s3.post("/bkt/parts?uploads").send(&s3).await.expect(200).element("UploadId").unwrap();
        (s3, upload)
    });
    let size = |method: &str| {
        let request = s3.call(method, "/bkt/key").build().map(Sent::new);
        size_of_val(&s3.service.call(request, peer()))
    };
    // It is copied wherever it is handed on, so its size is a cost as well.
    let (future_bytes, most) = (size("GET"), 1750);
    println!("future of a request: {future_bytes} bytes");
    assert!(future_bytes <= most, "{future_bytes} bytes, at most {most} were");
    // The same request again and again, or one for each number from 1 on.
    let same = |call: Call| vec![call; 2 * REQUESTS as usize];
    let each = |call: &dyn Fn(u64) -> Call| (1..=2 * REQUESTS).map(call).collect::<Vec<_>>();
    let part = |number| s3.put(&format!("/bkt/parts?partNumber={number}&uploadId={upload}")).body(vec![7; 4096]);
    // As SDKs send bodies: in chunks, with a checksum behind them.
    let trailer = ("x-amz-checksum-crc32", harness::checksum(gabion_store::ChecksumAlgorithm::Crc32, &[7; 4096]));
    let in_chunks = |payload| s3.put("/bkt/key").body(vec![7; 4096]).payload(payload);
    let calls = [
        ("HeadObject", same(s3.head("/bkt/key")), (15, 6100)),
        // Its row is decoded each time.
        ("HeadObject of a long row", same(s3.head("/bkt/long")), (27, 9000)),
        ("GetObject of 4 KiB", same(s3.get("/bkt/key")), (26, 13_600)),
        ("PutObject of 4 KiB, signed", same(s3.put("/bkt/key").body(vec![7; 4096])), (135, 38_900)),
        (
            "PutObject of 4 KiB, unsigned",
            same(s3.put("/bkt/key").body(vec![7; 4096]).payload(Payload::Unsigned)),
            (131, 38_500),
        ),
        (
            "PutObject of 4 KiB, unsigned chunks",
            same(in_chunks(Payload::UnsignedChunks { chunk_bytes: 65_536, trailer })),
            (152, 39_600),
        ),
        (
            "PutObject of 4 KiB, signed chunks",
            same(in_chunks(Payload::SignedChunks { chunk_bytes: 65_536, trailer: None })),
            (147, 40_300),
        ),
        ("UploadPart of 4 KiB, signed", each(&part), (155, 44_500)),
        ("DeleteObject", each(&|number| s3.delete(&format!("/bkt/deleted/{number}"))), (101, 26_800)),
        // Nothing is logged.
        ("DeleteObject of none", same(s3.delete("/bkt/none")), (14, 7500)),
        // In stripes.
        ("GetObject of 4 MiB", same(s3.get("/bkt/large")), (102, 4_650_000)),
        (
            "GetObject, 4 KiB of 4 MiB",
            same(s3.get("/bkt/large").header("range", "bytes=1000000-1004095")),
            (38, 83_400),
        ),
        ("CopyObject of 4 MiB", same(s3.put("/bkt/copy").header("x-amz-copy-source", "/bkt/large")), (725, 87_200)),
        ("ListObjectsV2 of 1 folder of 100 keys", same(s3.get("/bkt?list-type=2&prefix=l&delimiter=/")), (135, 20_900)),
        ("ListObjectsV2 of 100 keys", same(s3.get("/bkt?list-type=2&prefix=listed/")), (530, 150_000)),
        // At the end: what it leaves to be tidied is done beside what comes next.
        (
            "PutObject of 4 MiB, unsigned",
            same(s3.put("/bkt/large").body(vec![7; 4 << 20]).payload(Payload::Unsigned)),
            (3500, 9_600_000),
        ),
    ];
    let mut over = Vec::new();
    for (name, calls, most) in calls {
        let requests: Vec<_> = calls.into_iter().map(|call| call.build().map(Bytes::from)).collect();
        // Bytes that are cloned for the first time allocate their counter: not the server's.
        requests.iter().for_each(|request| drop(request.clone()));
        let (first, rest) = requests.split_at(REQUESTS as usize);
        let send = |requests: &[Request<Bytes>]| {
            requests.iter().for_each(|request| runtime.block_on(answered(&s3, request)));
        };
        send(first);
        let counted = allocation_counter::measure(|| send(rest));
        let (count, bytes) = (counted.count_total / REQUESTS, counted.bytes_total / REQUESTS);
        println!("{name}: {count} allocations, {bytes} bytes");
        if count > most.0 || bytes > most.1 {
            over.push(format!("{name}: {count} allocations and {bytes} bytes, at most {most:?} were"));
        }
    }
    assert!(over.is_empty(), "{over:#?}");
}

/// A request as it goes over the wire.
fn on_wire(call: Call) -> Vec<u8> {
    let request = call.build();
    let mut wire = format!("{} {} HTTP/1.1\r\n", request.method(), request.uri().path()).into_bytes();
    for (name, value) in request.headers().iter().filter(|(name, _)| *name != http::header::CONTENT_LENGTH) {
        wire.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
    }
    wire.extend(format!("content-length: {}\r\n\r\n", request.body().len()).into_bytes());
    wire.extend(request.body());
    wire
}

/// Sends a request and reads an answer: its head, and so many bytes behind it.
async fn exchange(stream: &mut TcpStream, wire: &[u8], answer: &mut [u8], body_bytes: usize) {
    stream.write_all(wire).await.unwrap();
    let (mut bytes, mut wanted) = (0, None);
    while wanted != Some(bytes) {
        bytes += stream.read(&mut answer[bytes..]).await.unwrap();
        let head = answer[..bytes].windows(4).position(|end| end == b"\r\n\r\n");
        wanted = wanted.or(head.map(|at| at + 4 + body_bytes));
    }
    assert!(answer.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(answer));
}

/// A connection to a server of this service.
async fn connected(s3: &S3) -> TcpStream {
    let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let stream = TcpStream::connect(tcp.local_addr().unwrap()).await.unwrap();
    let observer = Observer { clock: Arc::new(SystemClock), metrics: ServerMetrics::new(), access_log: None };
    let server = HttpServer { handler: s3.service.clone(), limits: HttpLimits::default(), observer: Some(observer) };
    tokio::spawn(server.serve(vec![Listener { tcp, tls: None }], std::future::pending()));
    stream
}

/// With a connection: its buffer, and the map of its headers, are there for the next request.
#[test]
fn allocations_of_a_connection_are_bounded() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // What it remembers of objects that were read: nothing, or more than all.
    let [(s3, mut stream), (_warm, mut warm_stream)] = [0, 1 << 20].map(|warm_bytes| {
        runtime.block_on(async {
            let s3 = S3::with_store(|config| config.log.warm_bytes = warm_bytes).await;
            s3.put("/bkt/key").body(vec![7; 4096]).send(&s3).await.expect(200);
            let stream = connected(&s3).await;
            (s3, stream)
        })
    });
    let put = s3.put("/bkt/key").body(vec![7; 4096]).payload(Payload::Unsigned);
    for (name, is_warm, call, body_bytes, most) in [
        ("HeadObject", false, s3.head("/bkt/key"), 0, (8, 1000)),
        ("GetObject of 4 KiB", false, s3.get("/bkt/key"), 4096, (20, 8400)),
        ("GetObject of 4 KiB in memory", true, s3.get("/bkt/key"), 4096, (11, 1200)),
        ("PutObject of 4 KiB, unsigned", false, put, 0, (131, 34_700)),
    ] {
        let stream = if is_warm { &mut warm_stream } else { &mut stream };
        let (wire, mut answer) = (on_wire(call), [0; 8192]);
        let mut send =
            || (0..REQUESTS).for_each(|_| runtime.block_on(exchange(stream, &wire, &mut answer, body_bytes)));
        send();
        let counted = allocation_counter::measure(send);
        let (count, bytes) = (counted.count_total / REQUESTS, counted.bytes_total / REQUESTS);
        println!("{name} by a connection: {count} allocations, {bytes} bytes");
        assert!(
            count <= most.0 && bytes <= most.1,
            "{name}: {count} allocations and {bytes} bytes, at most {most:?} were"
        );
    }
}
