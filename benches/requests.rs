//! A request from its parsed head to its last byte, without sockets and disks: what the front, the store, the log and the index cost by themselves.
//!
//! One thread, a simulated disk, the index in memory; requests are signed once and sent again and again. `cargo bench -p gabion-benches --ignore-rust-version --bench requests`; under
//! callgrind the same program tells where the instructions go (docs/BENCHMARKS.md).
#![allow(clippy::unwrap_used)]

#[allow(dead_code, reason = "the tests use all of it")]
#[path = "../crates/server/tests/s3/harness.rs"]
mod harness;

use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use harness::{Payload, S3, Sent, peer};
use http::Request;
use http_body_util::BodyExt;

/// Whether the operations that are asked for most go by s3s.
const FAST_PATH: bool = true;
/// Keys of the listing, and of one page.
const KEYS: usize = 1000;

/// Sends a request and takes in all of its answer.
async fn answered(s3: &S3, request: &Request<Bytes>) -> usize {
    let (parts, body) = request.clone().into_parts();
    let response = s3.service.call(Request::from_parts(parts, Sent::new(body)), peer()).await;
    assert!(response.status().is_success(), "{}", response.status());
    response.into_body().collect().await.unwrap().to_bytes().len()
}

fn requests(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (s3, calls) = runtime.block_on(async {
        let s3 = S3::with_bucket().await;
        for key in 0..KEYS {
            s3.put(&format!("/bkt/listed/{key:08}")).send(&s3).await.expect(200);
        }
        let object = || s3.put("/bkt/key").body(vec![7; 4096]);
        object().send(&s3).await.expect(200);
        let calls = [
            ("stat", s3.head("/bkt/key")),
            ("get 4 KiB", s3.get("/bkt/key")),
            ("put 4 KiB", object()),
            ("put 4 KiB unsigned", object().payload(Payload::Unsigned)),
            ("delete", s3.delete("/bkt/none")),
        ];
        let calls = calls.map(|(name, call)| (name, call.build().map(Bytes::from)));
        (s3, calls)
    });
    let mut group = criterion.benchmark_group("request");
    for (name, request) in &calls {
        group.bench_function(*name, |bencher| bencher.iter(|| runtime.block_on(answered(&s3, request))));
    }
    let page = s3.get("/bkt?list-type=2&prefix=listed/").build().map(Bytes::from);
    group.throughput(Throughput::Elements(KEYS as u64));
    group.bench_function("list 1000 keys", |bencher| bencher.iter(|| runtime.block_on(answered(&s3, &page))));
    group.finish();
}

criterion_group!(benches, requests);
criterion_main!(benches);
