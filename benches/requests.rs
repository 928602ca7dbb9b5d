//! A request from its parsed head to its last byte, without sockets and disks: what the front, the store, the log and the index cost by themselves.
//!
//! One thread, a simulated disk (of what a large body costs, its copies are a good part), the index in memory; requests are signed once and sent again and again.
//! `cargo bench -p gabion-benches --ignore-rust-version --bench requests`; under `perf record` it shows where their time goes (docs/BENCHMARKS.md).
#![allow(clippy::unwrap_used)]

#[allow(dead_code, reason = "the tests use all of it")]
#[path = "../crates/server/tests/s3/harness.rs"]
mod harness;
#[path = "service.rs"]
mod service;

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use gabion_platform::SystemClock;
use gabion_server::keys::{KeyFile, KeyRing, KeySources};
use gabion_server::s3::S3Service;
use gabion_store::{ChecksumAlgorithm, EtagKind};
use harness::{Call, Payload, S3, checksum};
use http::Request;
use serde_json::json;
use service::{PIECE_BYTES, built, runtime, sent};
use tokio::task::JoinSet;

/// Whether the operations that are asked for most go by the fast path, and not by s3s, where a bench does not say.
const FAST_PATH: bool = true;
/// Keys of a listing, and of one page; folders of another one; versions of a third; keys that are deleted by one request.
const KEYS: usize = 1000;
/// Keys of a folder.
const FOLDER_KEYS: usize = 2;
/// Versions of each key.
const VERSIONS: usize = 10;
/// Statements of a policy.
const STATEMENTS: usize = 20;
/// Bytes of a part where the parts are what is to be looked at.
const PART_BYTES: usize = 1 << 10;
const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// Sends a request and takes in all of its answer.
async fn answered(service: &S3Service, request: &Request<Bytes>) -> usize {
    let (status, body) = sent(service, request).await;
    assert!(status.is_success(), "{status}: {body:?}");
    body.len()
}

/// Sends all of them at once.
async fn all_answered(service: &S3Service, requests: &[Request<Bytes>]) {
    let mut calls = JoinSet::new();
    for request in requests {
        let (service, request) = (service.clone(), request.clone());
        calls.spawn(async move { answered(&service, &request).await });
    }
    calls.join_all().await;
}

/// Each request on both ways: its signature is verified by our own code, or by s3s.
fn requests(criterion: &mut Criterion) {
    let runtime = runtime();
    let put = |key: &str, bytes| Call::new("PUT", &format!("/bkt/{key}")).body(vec![7; bytes]);
    // A checksum that is taken in any case.
    let trailer = ("x-amz-checksum-crc64nvme", checksum(ChecksumAlgorithm::Crc64Nvme, &[7; MIB]));
    let signed_chunks = Payload::SignedChunks { chunk_bytes: PIECE_BYTES, trailer: None };
    let unsigned_chunks = Payload::UnsignedChunks { chunk_bytes: PIECE_BYTES, trailer };
    for (name, fast_path) in [("request", true), ("request by s3s", false)] {
        let (s3, upload) = runtime.block_on(async {
            let s3 = S3::with(|options| options.fast_path = fast_path).await;
            s3.put("/bkt").send(&s3).await.expect(200);
            for key in 0..KEYS {
                put(&format!("listed/{key:08}"), 0).send(&s3).await.expect(200);
                for number in 0..FOLDER_KEYS {
                    put(&format!("folders/{key:08}/{number}"), 0).send(&s3).await.expect(200);
                }
            }
            put("small", 4 * KIB).send(&s3).await.expect(200);
            put("large", MIB).send(&s3).await.expect(200);
            let upload = s3.post("/bkt/parts?uploads").send(&s3).await.expect(200).element("UploadId").unwrap();
            (s3, upload)
        });
        let answer = |request: &Request<Bytes>| runtime.block_on(answered(&s3.service, request));
        let mut group = criterion.benchmark_group(name);
        for (name, call) in [
            ("stat", s3.head("/bkt/small")),
            ("get 4 KiB", s3.get("/bkt/small")),
            ("get 1 MiB", s3.get("/bkt/large")),
            ("get 4 KiB of 1 MiB", s3.get("/bkt/large").header("range", "bytes=500000-504095")),
            ("put 4 KiB", put("small", 4 * KIB)),
            ("put 4 KiB unsigned", put("small", 4 * KIB).payload(Payload::Unsigned)),
            ("put 1 MiB", put("large", MIB)),
            ("put 1 MiB unsigned", put("large", MIB).payload(Payload::Unsigned)),
            ("put 1 MiB in signed chunks", put("large", MIB).payload(signed_chunks.clone())),
            ("put 1 MiB in unsigned chunks", put("large", MIB).payload(unsigned_chunks.clone())),
            ("put 16 MiB", put("larger", 16 * MIB)),
            ("put 16 MiB unsigned", put("larger", 16 * MIB).payload(Payload::Unsigned)),
            ("copy 4 KiB", s3.put("/bkt/copy").header("x-amz-copy-source", "/bkt/small")),
            ("copy 1 MiB", s3.put("/bkt/copy").header("x-amz-copy-source", "/bkt/large")),
            ("put part of 8 MiB", put(&format!("parts?partNumber=1&uploadId={upload}"), 8 * MIB)),
        ] {
            let request = built(call);
            group.bench_function(name, |bencher| bencher.iter(|| answer(&request)));
        }
        // Of an object that is there; its put is not counted.
        let (put, delete) = (built(put("gone", 4 * KIB)), built(s3.delete("/bkt/gone")));
        group.bench_function("delete", |bencher| {
            bencher.iter_batched(|| answer(&put), |_| answer(&delete), BatchSize::PerIteration);
        });
        let page = built(s3.get("/bkt?list-type=2&prefix=listed/"));
        group.throughput(Throughput::Elements(KEYS as u64));
        group.bench_function("list 1000 keys", |bencher| bencher.iter(|| answer(&page)));
        let page = built(s3.get("/bkt?list-type=2&prefix=folders/&delimiter=/"));
        group.bench_function("list 1000 folders", |bencher| bencher.iter(|| answer(&page)));
        group.finish();
    }
}

/// A bucket with versions: what a put adds to, and pages of them.
fn versions(criterion: &mut Criterion) {
    let runtime = runtime();
    let s3 = runtime.block_on(async {
        let s3 = S3::with_bucket().await;
        let enabled = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
        s3.put("/bkt?versioning").body(enabled).send(&s3).await.expect(200);
        for _ in 0..VERSIONS {
            for key in 0..KEYS / VERSIONS {
                s3.put(&format!("/bkt/listed/{key:08}")).send(&s3).await.expect(200);
            }
        }
        s3
    });
    let answer = |request: &Request<Bytes>| runtime.block_on(answered(&s3.service, request));
    let mut group = criterion.benchmark_group("versions");
    let put = built(s3.put("/bkt/put").body(vec![7; 4 * KIB]));
    group.bench_function("put 4 KiB", |bencher| bencher.iter(|| answer(&put)));
    group.throughput(Throughput::Elements(KEYS as u64));
    let page = built(s3.get("/bkt?versions&prefix=listed/"));
    group.bench_function("list 1000 versions", |bencher| bencher.iter(|| answer(&page)));
    group.finish();
}

/// DeleteObjects; the puts are not counted.
fn many_deletes(criterion: &mut Criterion) {
    let runtime = runtime();
    let s3 = runtime.block_on(S3::with_bucket());
    let key = |key| format!("gone/{key:08}");
    let objects: String = (0..KEYS).map(|at| format!("<Object><Key>{}</Key></Object>", key(at))).collect();
    let delete = built(s3.post("/bkt?delete").body(format!("<Delete><Quiet>true</Quiet>{objects}</Delete>")).md5());
    let puts: Vec<_> = (0..KEYS).map(|at| built(s3.put(&format!("/bkt/{}", key(at))).body("x"))).collect();
    let mut group = criterion.benchmark_group("delete many");
    // There are far more puts than deletions.
    group.sample_size(10).warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_millis(100));
    group.throughput(Throughput::Elements(KEYS as u64));
    group.bench_function("1000 keys", |bencher| {
        let put = || runtime.block_on(all_answered(&s3.service, &puts));
        bencher.iter_batched(put, |()| runtime.block_on(answered(&s3.service, &delete)), BatchSize::PerIteration);
    });
    group.finish();
}

/// A stat by a user to whom policies allow it, beside one by the root of the deployment, to whom they are not asked of.
fn policies(criterion: &mut Criterion) {
    let runtime = runtime();
    let (s3, user) = runtime.block_on(async {
        let s3 = S3::with_iam().await;
        s3.put("/bkt").send(&s3).await.expect(200);
        s3.put("/bkt/key").body("x").send(&s3).await.expect(200);
        let iam = s3.iam.as_ref().unwrap();
        let ask = |action: &'static str, request: serde_json::Value| {
            let iam = Arc::clone(iam);
            async move { iam.administer(action, serde_json::from_value(request).unwrap()).await.unwrap() }
        };
        ask("user/create", json!({ "name": "ann" })).await;
        let made = ask("key/create", json!({ "user": "ann" })).await;
        let key = ["access_key", "secret_key"].map(|name| &*made[name].as_str().unwrap().to_owned().leak());
        // What does not apply comes first.
        let statement = |at: usize| {
            json!({ "Effect": "Allow", "Action": ["s3:GetObject", "s3:PutObject"],
                "Resource": format!("arn:aws:s3:::bkt/{}*", if at + 1 == STATEMENTS { String::new() } else { format!("{at}/") }),
                "Condition": { "StringLike": { "aws:UserAgent": "*" }, "IpAddress": { "aws:SourceIp": "0.0.0.0/0" } } })
        };
        let statements: Vec<_> = (0..STATEMENTS).map(statement).collect();
        let document = json!({ "Version": "2012-10-17", "Statement": statements }).to_string();
        ask("policy/create", json!({ "name": "p", "document": document })).await;
        ask("policy/attach", json!({ "policy": "p", "user": "ann" })).await;
        (s3, key)
    });
    let answer = |request: &Request<Bytes>| runtime.block_on(answered(&s3.service, request));
    let mut group = criterion.benchmark_group("stat");
    let stat = s3.head("/bkt/key").header("user-agent", "bench");
    let by_user = stat.clone().change(|call| [call.access_key, call.secret_key] = user);
    for (name, call) in [("by root", stat), ("by a user with a policy of 20 statements", by_user)] {
        let request = built(call);
        group.bench_function(name, |bencher| bencher.iter(|| answer(&request)));
    }
    group.finish();
}

/// What begins an upload and gives it up, a page of those that there are, and what makes one object of parts, whose puts are not counted.
fn uploads(criterion: &mut Criterion) {
    let runtime = runtime();
    let s3 = runtime.block_on(S3::with_bucket());
    let begin = || {
        let begun = runtime.block_on(s3.post("/bkt/parts?uploads").send(&s3)).expect(200);
        built(s3.delete(&format!("/bkt/parts?uploadId={}", begun.element("UploadId").unwrap())))
    };
    let answer = |request: &Request<Bytes>| runtime.block_on(answered(&s3.service, request));
    let mut group = criterion.benchmark_group("upload");
    let create = built(s3.post("/bkt/listed?uploads"));
    // Few of them: each stays.
    group.sample_size(10).warm_up_time(Duration::from_millis(100)).measurement_time(Duration::from_millis(100));
    group.bench_function("create", |bencher| bencher.iter(|| answer(&create)));
    group.bench_function("abort", |bencher| {
        bencher.iter_batched(begin, |abort| answer(&abort), BatchSize::PerIteration);
    });
    for _ in 0..KEYS {
        answer(&create);
    }
    let page = built(s3.get("/bkt?uploads&prefix=listed"));
    group.throughput(Throughput::Elements(KEYS as u64));
    group.bench_function("list 1000 uploads", |bencher| bencher.iter(|| answer(&page)));
    group.finish();
    let uploaded = |parts: usize| {
        runtime.block_on(async {
            // What the upload before has left.
            s3.store.free_dead_segments().await.unwrap();
            let upload = s3.post("/bkt/parts?uploads").send(&s3).await.expect(200).element("UploadId").unwrap();
            let mut document = String::from("<CompleteMultipartUpload>");
            for number in 1..=parts {
                let put = s3.put(&format!("/bkt/parts?partNumber={number}&uploadId={upload}"));
                let put = put.body(vec![7; PART_BYTES]).send(&s3).await.expect(200);
                let etag = put.header("etag").unwrap();
                document += &format!("<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>");
            }
            document += "</CompleteMultipartUpload>";
            built(s3.post(&format!("/bkt/parts?uploadId={upload}")).body(document))
        })
    };
    let mut group = criterion.benchmark_group("complete upload");
    // There are far more puts than completions.
    group.sample_size(10).warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_millis(100));
    for parts in [10, 1000] {
        group.throughput(Throughput::Elements(parts as u64));
        group.bench_function(BenchmarkId::new("parts", parts), |bencher| {
            let complete = |request| runtime.block_on(answered(&s3.service, &request));
            bencher.iter_batched(|| uploaded(parts), complete, BatchSize::PerIteration);
        });
    }
    group.finish();
}

/// Bodies that are encrypted with the site's master key, beside bodies that are not. The tag of both is the MD5 of what was sent.
fn encrypted(criterion: &mut Criterion) {
    let runtime = runtime();
    let s3 = runtime.block_on(S3::with_bucket());
    let file = KeyFile::parse(&format!("master {}", BASE64_STANDARD.encode([7; 32]))).unwrap();
    let keys = KeyRing::new(KeySources { file, ..KeySources::default() }, Arc::new(SystemClock)).unwrap();
    s3.store.keep_keys(Arc::new(keys));
    let answer = |request: &Request<Bytes>| runtime.block_on(answered(&s3.service, request));
    for (name, is_encrypted) in [("encrypted", true), ("not encrypted", false)] {
        let mut group = criterion.benchmark_group(name);
        for bytes in [4 * KIB, 64 * KIB, MIB] {
            let put = s3.put("/bkt/key").body(vec![7; bytes]).payload(Payload::Unsigned);
            let put = if is_encrypted { put.header("x-amz-server-side-encryption", "AES256") } else { put };
            let (put, get) = (built(put), built(s3.get("/bkt/key")));
            group.throughput(Throughput::Bytes(bytes as u64));
            group.bench_function(BenchmarkId::new("put", bytes), |bencher| bencher.iter(|| answer(&put)));
            // A filter may have left its put out.
            answer(&put);
            group.bench_function(BenchmarkId::new("get", bytes), |bencher| bencher.iter(|| answer(&get)));
        }
        group.finish();
    }
}

/// Bodies that arrive at once, with an MD5 that can not wait for the log, with one that can, as it can of small ones that say nothing of theirs, and without any: the difference is
/// what the store's MD5s cost, which are taken together. Throughput counts all bodies.
fn bodies(criterion: &mut Criterion) {
    let runtime = runtime();
    let mut group = criterion.benchmark_group("bodies at once");
    for (name, etag, says_md5, sizes) in [
        ("with MD5", EtagKind::Md5, true, &[4 * KIB, MIB][..]),
        ("with MD5 taken late", EtagKind::Md5, false, &[4 * KIB]),
        ("without", EtagKind::Crc64Nvme, false, &[4 * KIB, MIB]),
    ] {
        let s3 = runtime.block_on(S3::with_tags(etag));
        for &bytes in sizes {
            let put = |key| s3.put(&format!("/bkt/{key}")).body(vec![7; bytes]).payload(Payload::Unsigned);
            let put = |key: usize| if says_md5 { put(key).md5() } else { put(key) };
            for count in [1, 4, 16] {
                let requests: Vec<_> = (0..count).map(put).map(built).collect();
                group.throughput(Throughput::Bytes((count * bytes) as u64));
                group.bench_function(BenchmarkId::new(format!("{count} {name}"), bytes), |bencher| {
                    // As much is written at once as a few segments hold: more than is freed beside it.
                    let free = || runtime.block_on(s3.store.free_dead_segments()).unwrap();
                    let put = |_| runtime.block_on(all_answered(&s3.service, &requests));
                    bencher.iter_batched(free, put, BatchSize::PerIteration);
                });
            }
        }
    }
    group.finish();
}

criterion_group!(benches, requests, versions, many_deletes, policies, uploads, encrypted, bodies);
criterion_main!(benches);
