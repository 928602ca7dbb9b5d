//! Signatures: of a request, and of the chunks of its body.
//!
//! What verifies them is private to the server. So requests are sent to the service, as in `requests`, that find as little as may be behind their signatures: the index and the
//! disk are not what is measured. `cargo bench -p gabion-benches --ignore-rust-version --bench signatures`.
#![allow(clippy::unwrap_used)]

#[allow(dead_code, reason = "the tests use all of it")]
#[path = "../crates/server/tests/s3/harness.rs"]
mod harness;
#[path = "service.rs"]
mod service;

use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use gabion_server::s3::S3Service;
use gabion_store::{ChecksumAlgorithm, EtagKind};
use harness::{Payload, S3, Sign, checksum};
use http::Request;
use service::{PIECE_BYTES, built, runtime, sent};

/// Whether the operations that are asked for most go by the fast path, and not by s3s, where a bench does not say.
const FAST_PATH: bool = true;
/// Bytes of a body: one that is kept in memory until its record is written.
const BODY_BYTES: usize = 256 << 10;
/// The smallest chunk that others may follow.
const SMALL_CHUNK_BYTES: usize = 8 << 10;
/// Seconds that a request which is signed in its query is good for.
const EXPIRES_S: u64 = 24 * 60 * 60;

/// Lets everybody read a bucket.
const PUBLIC: &str = r#"{"Version":"2012-10-17","Statement":{"Effect":"Allow","Principal":"*","Action":["s3:GetObject","s3:ListBucket"],"Resource":["arn:aws:s3:::bkt","arn:aws:s3:::bkt/*"]}}"#;

/// Sends a request that is refused for another reason than its signature, and takes in all of its answer.
async fn refused(service: &S3Service, request: &Request<Bytes>, status: u16) -> usize {
    let (found, body) = sent(service, request).await;
    assert_eq!(found, status, "{body:?}");
    body.len()
}

/// A HEAD of a key that is not there, in a bucket that everybody may read. One that is not signed goes by s3s: what it takes there less than one that is signed is what s3s takes to
/// verify it. What our own code takes for that is not to be told from the rest of its request, which bounds it.
fn requests(criterion: &mut Criterion) {
    let runtime = runtime();
    let [fast, by_s3s] = [true, false].map(|fast_path| {
        runtime.block_on(async {
            let s3 = S3::with(|options| options.fast_path = fast_path).await;
            s3.put("/bkt").send(&s3).await.expect(200);
            s3.put("/bkt?policy").body(PUBLIC).send(&s3).await.expect(204);
            s3
        })
    });
    let mut group = criterion.benchmark_group("signature");
    for (name, s3, sign) in [
        ("in headers", &fast, Sign::Header),
        ("in the query", &fast, Sign::Query(EXPIRES_S)),
        ("in headers, by s3s", &by_s3s, Sign::Header),
        ("in the query, by s3s", &by_s3s, Sign::Query(EXPIRES_S)),
        ("none, by s3s", &by_s3s, Sign::Not),
    ] {
        let request = built(s3.head("/bkt/some/prefix/that-is-not-there").sign(sign));
        group.bench_function(name, |bencher| {
            bencher.iter(|| runtime.block_on(refused(&s3.service, &request, 404)));
        });
    }
    group.finish();
}

/// Bodies that are not what their checksum says: they are read to their end, and nothing is written. Beside a body as it is, whose bytes are looked at for that checksum alone, stand
/// its framing, the signatures of its chunks, and its own signature.
fn chunks(criterion: &mut Criterion) {
    let runtime = runtime();
    let s3 = runtime.block_on(S3::with_tags(EtagKind::Crc64Nvme));
    let wrong = ("x-amz-checksum-crc64nvme", checksum(ChecksumAlgorithm::Crc64Nvme, &[]));
    let put = |payload| s3.put("/bkt/key").body(vec![7; BODY_BYTES]).payload(payload);
    let with_header = |payload| put(payload).header(wrong.0, wrong.1.clone());
    let signed = |chunk_bytes| with_header(Payload::SignedChunks { chunk_bytes, trailer: None });
    let unsigned = |chunk_bytes| put(Payload::UnsignedChunks { chunk_bytes, trailer: wrong.clone() });
    let mut group = criterion.benchmark_group("chunks");
    group.throughput(Throughput::Bytes(BODY_BYTES as u64));
    for (name, call) in [
        ("none", with_header(Payload::Unsigned)),
        ("none, signed", with_header(Payload::Signed)),
        ("unsigned, of 8 KiB", unsigned(SMALL_CHUNK_BYTES)),
        ("unsigned, of 64 KiB", unsigned(PIECE_BYTES)),
        ("signed, of 8 KiB", signed(SMALL_CHUNK_BYTES)),
        ("signed, of 64 KiB", signed(PIECE_BYTES)),
    ] {
        let request = built(call);
        group.bench_function(name, |bencher| {
            bencher.iter(|| runtime.block_on(refused(&s3.service, &request, 400)));
        });
    }
    group.finish();
}

criterion_group!(benches, requests, chunks);
criterion_main!(benches);
