//! Coding and checksums, beside a copy of the same bytes in the same run.
//!
//! `cargo bench -p gabion-benches --ignore-rust-version --bench erasure`. Throughput counts the bytes of the data shards: a copy of them
//! is what any write of them costs at least, so the ratio to `memcpy` is what a change of machine leaves alone.
#![allow(missing_docs)] // criterion's macros make public functions

use std::hint::black_box;

use bytes::Bytes;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use futures::future::join_all;
use gabion_erasure::{
    ChecksumAlgorithm, Codec, Crc64Shift, Digester, Md5, Sha256, crc64, crc64_combine, crc64_kernels, kernel,
};
use gabion_store::Md5s;
use gabion_types::Geometry;
use sha2::Digest;
use shards::Shards;
use tokio::runtime::Builder;

mod shards;

/// Bytes of a body that there are at a time.
const PIECE_BYTES: usize = 64 * 1024;
const SHARD_BYTES: [usize; 3] = [4 * 1024, 64 * 1024, 1024 * 1024];
const GEOMETRIES: [(usize, usize); 2] = [(4, 2), (8, 3)];

fn code(criterion: &mut Criterion) {
    for (k, m) in GEOMETRIES {
        let geometry = Geometry::new(k, m).expect("a valid geometry");
        let mut group = criterion.benchmark_group(format!("code {geometry}"));
        for len in SHARD_BYTES {
            group.throughput(Throughput::Bytes((k * len) as u64));
            let data = Shards::new(k, len);
            let data = data.slices();
            let (mut parity, mut copy) = (Shards::new(m, len), Shards::new(k, len));
            let (mut parity, mut copy) = (parity.slices_mut(), copy.slices_mut());

            group.bench_function(BenchmarkId::new("memcpy", len), |bencher| {
                bencher.iter(|| {
                    for (to, from) in copy.iter_mut().zip(black_box(&data)) {
                        to.copy_from_slice(from);
                    }
                    black_box(&mut copy);
                });
            });
            for kernel in kernel::available() {
                let codec = Codec::with_kernel(geometry, *kernel);
                let id = BenchmarkId::new(format!("encode {}", kernel.name()), len);
                group.bench_function(id, |bencher| {
                    bencher.iter(|| codec.encode(black_box(&data), black_box(&mut parity)).expect("shards fit"));
                });
            }

            let own_bytes = vec![len; k];
            let codec = Codec::new(geometry);
            group.bench_function(BenchmarkId::new("encode, then crc64", len), |bencher| {
                bencher.iter(|| shards::encode_then_crcs(&codec, black_box(&data), black_box(&mut parity)));
            });
            for kernel in kernel::available() {
                let codec = Codec::with_kernel(geometry, *kernel);
                let id = BenchmarkId::new(format!("encode with crc64 {}", kernel.name()), len);
                group.bench_function(id, |bencher| {
                    bencher.iter(|| {
                        let (data, parity) = (black_box(&data), black_box(&mut parity));
                        codec.encode_with_crcs(data, parity, &own_bytes, shards::BLOCK).expect("shards fit")
                    });
                });
            }

            // The worst case: as many data shards are lost as there is parity.
            codec.encode(&data, &mut parity).expect("shards fit");
            let present = data[m..].iter().copied().chain(parity.iter().map(|shard| &**shard));
            let have: Vec<(usize, &[u8])> = (m..).zip(present).collect();
            let mut want: Vec<(usize, &mut [u8])> =
                copy.iter_mut().take(m).map(|shard| &mut **shard).enumerate().collect();
            for kernel in kernel::available() {
                let codec = Codec::with_kernel(geometry, *kernel);
                let id = BenchmarkId::new(format!("reconstruct {}", kernel.name()), len);
                group.bench_function(id, |bencher| {
                    bencher.iter(|| codec.reconstruct(black_box(&have), black_box(&mut want)).expect("shards fit"));
                });
            }
        }
        group.finish();
    }
}

fn checksums(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("checksums");
    for len in SHARD_BYTES {
        group.throughput(Throughput::Bytes(len as u64));
        let bytes = Shards::new(1, len);
        let bytes = bytes.slices()[0];
        let mut copy = vec![0; len];
        group.bench_function(BenchmarkId::new("memcpy", len), |bencher| {
            bencher.iter(|| black_box(&mut copy[..]).copy_from_slice(black_box(bytes)));
        });
        group.bench_function(BenchmarkId::new("crc64", len), |bencher| bencher.iter(|| crc64(black_box(bytes))));
        for (name, kernel) in crc64_kernels() {
            let id = BenchmarkId::new(format!("crc64 by {name}"), len);
            group.bench_function(id, |bencher| bencher.iter(|| kernel(black_box(bytes))));
        }
        for algorithm in ChecksumAlgorithm::ALL {
            group.bench_function(BenchmarkId::new(algorithm.as_str(), len), |bencher| {
                bencher.iter(|| {
                    let mut digester = Digester::new(false, &[algorithm]);
                    digester.update(black_box(bytes));
                    digester.finish()
                });
            });
        }
    }
    group.finish();
}

/// MD5 of several bodies at once; throughput counts all of them. How many lanes a kernel takes is for it to choose: no more than those streams need, but for
/// one stream, which goes by itself.
fn md5(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("md5");
    for len in [4 * 1024, 256 * 1024, 1024 * 1024] {
        for count in [1, 2, 4, 8, 16] {
            let bodies = Shards::new(count, len);
            let bodies = bodies.slices();
            group.throughput(Throughput::Bytes((count * len) as u64));
            for kernel in Md5::kernels() {
                let id = BenchmarkId::new(format!("{} {count} streams", kernel.name()), len);
                group.bench_function(id, |bencher| {
                    bencher.iter(|| {
                        let mut md5s = vec![Md5::default(); count];
                        let mut streams: Vec<_> =
                            md5s.iter_mut().zip(black_box(&bodies)).map(|(md5, body)| (md5, *body)).collect();
                        Md5::update_many_with(*kernel, &mut streams);
                        black_box(md5s);
                    });
                });
            }
        }
    }
    group.finish();
}

/// The same by what takes them of all bodies that arrive at the moment, in pieces as a connection has them: of bodies that come at the same time, which take turns as tasks of
/// one thread do. Beside it one body without anybody to share with, which must not wait for others.
fn md5_of_bodies(criterion: &mut Criterion) {
    let runtime = Builder::new_current_thread().build().expect("a runtime without I/O");
    let mut group = criterion.benchmark_group("md5 of bodies");
    for len in [4 * 1024, 1024 * 1024] {
        for count in [1, 2, 4, 8, 16, 64] {
            let bodies = Shards::new(count, len);
            let pieces = |body: &[u8]| body.chunks(PIECE_BYTES).map(Bytes::copy_from_slice).collect::<Vec<_>>();
            let bodies: Vec<Vec<Bytes>> = bodies.slices().into_iter().map(pieces).collect();
            group.throughput(Throughput::Bytes((count * len) as u64));
            group.bench_function(BenchmarkId::new(format!("{count} bodies"), len), |bencher| {
                let md5s = Md5s::default();
                let digested = async |body: &Vec<Bytes>| {
                    let mut md5 = md5s.begin();
                    for piece in body {
                        md5.update(piece).await;
                        // As if it had to wait for what comes.
                        tokio::task::yield_now().await;
                    }
                    md5.finish().await
                };
                bencher.iter(|| runtime.block_on(join_all(black_box(&bodies).iter().map(digested))));
            });
        }
    }
    group.finish();
}

/// SHA-256 of several streams at once; throughput counts all of them. Beside it that of the crate `sha2`, which has one.
fn sha256(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("sha256");
    for len in [4 * 1024, 64 * 1024] {
        for count in [1, 2, 8] {
            let bodies = Shards::new(count, len);
            let bodies = bodies.slices();
            group.throughput(Throughput::Bytes((count * len) as u64));
            group.bench_function(BenchmarkId::new(format!("{count} streams"), len), |bencher| {
                bencher.iter(|| {
                    let mut all = vec![Sha256::default(); count];
                    let mut streams: Vec<_> =
                        all.iter_mut().zip(black_box(&bodies)).map(|(sha256, body)| (sha256, *body)).collect();
                    Sha256::update_many(&mut streams);
                    black_box(all);
                });
            });
        }
        let body = Shards::new(1, len);
        group.throughput(Throughput::Bytes(len as u64));
        group.bench_function(BenchmarkId::new("sha2", len), |bencher| {
            bencher.iter(|| sha2::Sha256::digest(black_box(body.slices()[0])));
        });
    }
    group.finish();
}

fn combine(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("crc64 combine");
    let (a, b) = (crc64(b"a"), crc64(b"b"));
    for len in [64 * 1024, 1_234_567] {
        group.bench_function(BenchmarkId::new("any length", len), |bencher| {
            bencher.iter(|| crc64_combine(black_box(a), black_box(b), black_box(len)));
        });
    }
    let shift = Crc64Shift::new(1_234_567);
    group.bench_function("fixed length", |bencher| bencher.iter(|| shift.combine(black_box(a), black_box(b))));
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20);
    targets = code, checksums, md5, md5_of_bodies, sha256, combine
}
criterion_main!(benches);
