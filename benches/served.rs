//! A whole server over directories, with each durability, for one client on one connection: bodies of every size by the way that each takes, from memory, from the page cache by a
//! copy, or lent by it to the socket; and what has none.
//!
//! `cargo bench -p gabion-benches --ignore-rust-version --bench served`. The directories lie in `TMPDIR`, which must be a file system with a page cache for pages to be lent.
#![allow(clippy::unwrap_used)]

#[allow(dead_code, reason = "the tests use all of it")]
#[path = "../crates/server/tests/s3/harness.rs"]
mod harness;

use std::cell::RefCell;
use std::future::pending;
use std::path::PathBuf;
use std::sync::Arc;
use std::{env, fs, process};

use bytes::Bytes;
use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use gabion_metadata::IndexOptions;
use gabion_platform::{DriverChoice, DriverOptions, OsEntropy, SystemClock, open_disk};
use gabion_segment::{Durability, LogConfig, LogTarget};
use gabion_server::credentials::Credentials;
use gabion_server::http::{HttpLimits, HttpServer, Listener, Observer};
use gabion_server::metrics::ServerMetrics;
use gabion_server::s3::{S3Options, S3Service};
use gabion_store::{EmbeddedIndex, Env, Silent, Store, StoreConfig};
use gabion_types::Geometry;
use harness::{ACCESS_KEY, Call, Payload, REGION, SECRET_KEY};
use md5::{Digest, Md5};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};

/// Whether the operations that are asked for most go by the fast path, and not by s3s, where a bench does not say.
const FAST_PATH: bool = true;
const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
const LARGE_BYTES: usize = 16 * MIB;
/// As long as no head of an answer is.
const HEAD_BYTES_MAX: usize = 16 * KIB;
const DURABILITIES: [(&str, Durability); 2] = [("sync", Durability::Sync), ("relaxed", Durability::Relaxed)];
/// Keys of a listing, all in one page.
const KEYS: usize = 1000;
/// Parts of an upload, and their length: the shortest that there may be.
const PARTS: usize = 2;
const PART_BYTES: usize = 5 * MIB;

/// A server in directories of its own, which go with it, and a connection to it.
struct World {
    runtime: Runtime,
    store: Store,
    stream: TcpStream,
    room: Vec<u8>,
    root: PathBuf,
}

impl World {
    fn new(durability: Durability) -> Self {
        let root = env::temp_dir().join(format!("gabion-bench-served-{}", process::id()));
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let geometry = Geometry::new(4, 2).unwrap();
        let target = |number| {
            let path = root.join(format!("target-{number}"));
            fs::create_dir_all(&path).unwrap();
            let opened = open_disk(&path, DriverChoice::Auto, DriverOptions::default(), None).unwrap();
            let failure_domain = format!("domain-{number}");
            LogTarget { name: path.display().to_string(), disk: Some(opened.disk), failure_domain }
        };
        let targets = (0..geometry.shards()).map(target).collect();
        let mut log = LogConfig::new(geometry);
        log.target_reserve_bytes = 0;
        log.durability = durability;
        let env = Env { clock: Arc::new(SystemClock), entropy: Arc::new(OsEntropy) };
        let index = Box::new(EmbeddedIndex::new(root.join("index"), IndexOptions::default()));
        let (store, stream) = runtime.block_on(async {
            let (store, _) = Store::open(StoreConfig::new(log), targets, index, env, Arc::new(Silent)).await.unwrap();
            let credentials = Arc::new(Credentials::new(ACCESS_KEY, SECRET_KEY));
            let options = S3Options { region: REGION.into(), fast_path: FAST_PATH, ..S3Options::default() };
            let handler =
                S3Service::new(store.clone(), credentials, options, Arc::new(SystemClock), &OsEntropy).unwrap();
            let metrics = ServerMetrics::new();
            let observer = Some(Observer { clock: Arc::new(SystemClock), metrics, access_log: None });
            let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = tcp.local_addr().unwrap();
            let server = HttpServer { handler, limits: HttpLimits::default(), observer };
            tokio::spawn(server.serve(vec![Listener { tcp, tls: None }], pending()));
            let stream = TcpStream::connect(address).await.unwrap();
            stream.set_nodelay(true).unwrap();
            (store, stream)
        });
        Self { runtime, store, stream, room: vec![0; MIB], root }
    }

    /// Has what was replaced go before it fills the drive.
    fn free(&self) {
        self.runtime.block_on(self.store.free_dead_segments()).unwrap();
    }

    /// Sends a request and reads its answer; gives the body of a short one.
    fn answered(&mut self, request: &[u8]) -> &[u8] {
        let Self { runtime, stream, room, .. } = self;
        let body = runtime.block_on(async {
            stream.write_all(request).await.unwrap();
            let mut found = 0;
            let head_bytes = loop {
                let bytes = stream.read(&mut room[found..]).await.unwrap();
                assert_ne!(bytes, 0, "the server has closed the connection");
                found += bytes;
                let end = room[..found.min(HEAD_BYTES_MAX)].windows(4).position(|bytes| bytes == b"\r\n\r\n");
                if let Some(end) = end {
                    break end + 4;
                }
            };
            let head = String::from_utf8_lossy(&room[..head_bytes]).to_lowercase();
            assert!(head.starts_with("http/1.1 20"), "{head}");
            let told = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            let is_bodiless = request.starts_with(b"HEAD ");
            let body_bytes = told.filter(|_| !is_bodiless).map_or(0, |bytes| bytes.parse::<usize>().unwrap());
            let answer_bytes = head_bytes + body_bytes;
            let is_short = answer_bytes <= room.len();
            while found < answer_bytes {
                let from = if is_short { found } else { 0 };
                let bytes = stream.read(&mut room[from..]).await.unwrap();
                assert_ne!(bytes, 0, "the server has closed the connection");
                found += bytes;
            }
            if is_short { head_bytes..answer_bytes } else { 0..0 }
        });
        &self.room[body]
    }

    /// Puts an object of parts, from the beginning of its upload to its end.
    fn uploaded(&mut self, part: &[u8], part_md5: &str) {
        let created = self.answered(&wired(Call::new("POST", "/bkt/parts?uploads")));
        let upload = harness::element(&String::from_utf8_lossy(created), "UploadId").unwrap();
        let mut document = String::from("<CompleteMultipartUpload>");
        for number in 1..=PARTS {
            let put = Call::new("PUT", &format!("/bkt/parts?partNumber={number}&uploadId={upload}"));
            self.answered(&wired(put.body(part).payload(Payload::Unsigned)));
            document += &format!("<Part><PartNumber>{number}</PartNumber><ETag>{part_md5}</ETag></Part>");
        }
        document += "</CompleteMultipartUpload>";
        self.answered(&wired(Call::new("POST", &format!("/bkt/parts?uploadId={upload}")).body(document)));
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.runtime.block_on(self.store.shutdown());
        let _ = fs::remove_dir_all(&self.root);
    }
}

/// A request as it goes over the wire.
fn wired(call: Call) -> Vec<u8> {
    let (head, body) = call.build().map(Bytes::from).into_parts();
    let mut wire = format!("{} {} HTTP/1.1\r\n", head.method, head.uri).into_bytes();
    for (name, value) in &head.headers {
        wire.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
    }
    wire.extend(b"\r\n");
    wire.extend(body);
    wire
}

fn served(criterion: &mut Criterion) {
    for (name, durability) in DURABILITIES {
        let world = RefCell::new(World::new(durability));
        let answered = |request: &[u8]| world.borrow_mut().answered(request).len();
        let free = || world.borrow().free();
        answered(&wired(Call::new("PUT", "/bkt")));
        let put = |key: &str, bytes| wired(Call::new("PUT", key).body(vec![7; bytes]).payload(Payload::Unsigned));
        let mut group = criterion.benchmark_group(format!("served {name}"));
        for bytes in [4 * KIB, 256 * KIB, MIB, LARGE_BYTES] {
            let key = format!("/bkt/{bytes}");
            let (put, get) = (put(&key, bytes), wired(Call::new("GET", &key)));
            group.throughput(Throughput::Bytes(bytes as u64));
            group.bench_function(BenchmarkId::new("put", bytes), |bencher| {
                bencher.iter_batched(free, |()| answered(&put), BatchSize::PerIteration);
            });
            answered(&put);
            group.bench_function(BenchmarkId::new("get", bytes), |bencher| bencher.iter(|| answered(&get)));
        }
        group.throughput(Throughput::Elements(1));
        let stat = wired(Call::new("HEAD", &format!("/bkt/{}", 4 * KIB)));
        group.bench_function("stat", |bencher| bencher.iter(|| answered(&stat)));
        let (put_gone, delete) = (put("/bkt/gone", 4 * KIB), wired(Call::new("DELETE", "/bkt/gone")));
        let put_it = || {
            free();
            answered(&put_gone)
        };
        group.bench_function("delete", |bencher| {
            bencher.iter_batched(put_it, |_| answered(&delete), BatchSize::PerIteration);
        });
        let part = vec![7; PART_BYTES];
        let part_md5 = hex::encode(Md5::digest(&part));
        group.throughput(Throughput::Bytes((PARTS * PART_BYTES) as u64));
        group.bench_function("upload of two parts", |bencher| {
            let uploaded = |()| world.borrow_mut().uploaded(&part, &part_md5);
            bencher.iter_batched(free, uploaded, BatchSize::PerIteration);
        });
        for key in 0..KEYS {
            answered(&put(&format!("/bkt/listed/{key:08}"), 0));
        }
        let page = wired(Call::new("GET", "/bkt?list-type=2&prefix=listed/"));
        group.throughput(Throughput::Elements(KEYS as u64));
        group.bench_function("list 1000 keys", |bencher| bencher.iter(|| answered(&page)));
        group.finish();
    }
}

criterion_group!(benches, served);
criterion_main!(benches);
