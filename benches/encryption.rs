//! Bodies that are sealed and opened as they pass, and the wrapping of their keys. What that costs a request is in `requests`.
//!
//! `cargo bench -p gabion-benches --ignore-rust-version --bench encryption`. Beside them stands a copy, which sealing makes as well.
#![allow(missing_docs)] // criterion's macros make public functions

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use gabion_encryption::{BodyRange, BodySalt, Frames, Opener, Sealer, SecretKey, WrapSalt};

const BODY_BYTES: [usize; 3] = [4 << 10, 64 << 10, 1 << 20];
/// Bytes of a body that there are at a time, as behind a connection.
const PIECE_BYTES: usize = 64 << 10;
const SALT: BodySalt = [7; 16];

fn key(byte: u8) -> SecretKey {
    SecretKey::filled(|bytes| bytes.fill(byte))
}

/// The frames of a body, one after the other.
fn sealed(data_key: &SecretKey, body: &[u8]) -> Vec<Vec<u8>> {
    let mut sealer = Sealer::new(data_key, &SALT, 0, Frames::USUAL, Some(body.len() as u64));
    let mut frames = Vec::new();
    for mut piece in body.chunks(PIECE_BYTES) {
        while !piece.is_empty() {
            frames.extend(sealer.take(&mut piece));
        }
    }
    frames.extend(sealer.finish());
    frames
}

/// Opens the frames of a body of `len` bytes, and says how many came of them.
fn opened(data_key: &SecretKey, frames: &[u8], len: usize) -> usize {
    let end = len as u64;
    let body = BodyRange { salt: SALT, part_number: 0, len: end, start: 0, end };
    let mut opener = Opener::new(data_key.clone(), Frames::USUAL, [body]);
    let mut found = 0;
    for mut piece in frames.chunks(PIECE_BYTES) {
        while !piece.is_empty() {
            let plain = opener.take(&mut piece).expect("nobody has touched it");
            found += plain.map_or(0, |plain| plain.len());
        }
    }
    assert_eq!(found, len);
    found
}

fn bodies(criterion: &mut Criterion) {
    let data_key = key(1);
    let mut group = criterion.benchmark_group("body");
    for len in BODY_BYTES {
        let body = vec![7; len];
        let frames = sealed(&data_key, &body).concat();
        let mut copy = vec![0; len];
        group.throughput(Throughput::Bytes(len as u64));
        group.bench_function(BenchmarkId::new("memcpy", len), |bencher| {
            bencher.iter(|| black_box(&mut copy[..]).copy_from_slice(black_box(&body)));
        });
        group.bench_function(BenchmarkId::new("seal", len), |bencher| {
            bencher.iter(|| sealed(&data_key, black_box(&body)));
        });
        group.bench_function(BenchmarkId::new("open", len), |bencher| {
            bencher.iter(|| opened(&data_key, black_box(&frames), len));
        });
    }
    group.finish();
}

/// What each object has a key of its own for.
fn keys(criterion: &mut Criterion) {
    const PURPOSE: &[u8] = b"an object";
    const SALT: WrapSalt = [7; 32];
    let (master, data_key) = (key(1), key(2));
    let wrapped = master.wrap(&data_key, PURPOSE, &SALT);
    let mut group = criterion.benchmark_group("key");
    group.bench_function("wrap", |bencher| bencher.iter(|| master.wrap(black_box(&data_key), PURPOSE, &SALT)));
    group.bench_function("unwrap", |bencher| {
        bencher.iter(|| master.unwrap(black_box(&wrapped), PURPOSE).expect("it is the key that wrapped it"));
    });
    group.finish();
}

criterion_group!(benches, bodies, keys);
criterion_main!(benches);
