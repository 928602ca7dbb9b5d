//! Coding beside a copy of the same bytes, in turn.
//!
//! `cargo bench -p gabion-benches --ignore-rust-version --bench ratios` prints a table of Markdown. Criterion measures one thing after the other, so that on a machine which others use, too, a ratio
//! of two of its figures says little. Here everything has its turn within a few milliseconds, thousands of times, and what counts is the median: of the rates, and of the ratios
//! to the copy of the same turn.
#![allow(clippy::disallowed_methods, reason = "a measurement: the wall clock is its result")]
#![allow(clippy::print_stdout, reason = "the table is the result")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use gabion_erasure::Codec;
use gabion_types::Geometry;
use shards::Shards;

mod shards;

const GEOMETRIES: [(usize, usize); 2] = [(4, 2), (8, 3)];
const SHARD_BYTES: [usize; 4] = [4 << 10, 64 << 10, 1 << 20, 2 << 20];
/// How long each row of the table takes.
const ROW: Duration = Duration::from_secs(4);
/// Bytes that each of them does in a turn, as far as whole passes go: short beside what a scheduler gives at a time.
const TURN_BYTES: usize = 4 << 20;
const NAMES: [&str; 5] = ["memcpy", "encode", "reconstruct", "encode, then crc64", "encode with crc64"];

fn main() {
    println!(
        "| geometry, bytes of a shard | {} GiB/s | {} |",
        NAMES[0],
        NAMES[1..].iter().map(|name| format!("{name} GiB/s | ratio")).collect::<Vec<_>>().join(" | ")
    );
    println!("| --- | ---: |{}", " ---: | ---: |".repeat(NAMES.len() - 1));
    for (k, m) in GEOMETRIES {
        for len in SHARD_BYTES {
            row(Geometry::new(k, m).expect("a valid geometry"), len);
        }
    }
}

/// Measures and prints one row.
fn row(geometry: Geometry, len: usize) {
    let (k, m) = (geometry.data(), geometry.parity());
    let codec = Codec::new(geometry);
    let own_bytes = vec![len; k];
    let passes = (TURN_BYTES / (k * len)).max(1);
    let (data, mut parity, mut copy) = (Shards::new(k, len), Shards::new(m, len), Shards::new(k, len));
    let (data, mut parity, mut copy) = (data.slices(), parity.slices_mut(), copy.slices_mut());
    let mut rates: [Vec<f64>; NAMES.len()] = Default::default();
    // Where it is only tried whether it runs, as `cargo test` does it, one turn is enough.
    let time = if std::env::args().any(|argument| argument == "--bench") { ROW } else { Duration::ZERO };
    let start = Instant::now();
    while rates[0].is_empty() || start.elapsed() < time {
        for (what, rates) in rates.iter_mut().enumerate() {
            let turn = Instant::now();
            for _ in 0..passes {
                let data = black_box(&data);
                match what {
                    0 => copy.iter_mut().zip(data).for_each(|(to, from)| to.copy_from_slice(from)),
                    1 => codec.encode(data, black_box(&mut parity)).expect("shards fit"),
                    2 => lose_and_rebuild(&codec, data, &parity, &mut copy),
                    3 => drop(black_box(shards::encode_then_crcs(&codec, data, &mut parity))),
                    _ => drop(black_box(
                        codec.encode_with_crcs(data, &mut parity, &own_bytes, shards::BLOCK).expect("shards fit"),
                    )),
                }
                black_box(&mut copy);
            }
            rates.push((passes * k * len) as f64 / turn.elapsed().as_secs_f64() / f64::from(1 << 30));
        }
    }
    print!("| {geometry}, {len} | {:.1} |", median(rates[0].clone()));
    for other in &rates[1..] {
        let ratios = other.iter().zip(&rates[0]).map(|(rate, copied)| rate / copied).collect();
        print!(" {:.1} | {:.2} |", median(other.clone()), median(ratios));
    }
    println!();
}

/// The worst case: as many data shards are lost as there is parity.
fn lose_and_rebuild(codec: &Codec, data: &[&[u8]], parity: &[&mut [u8]], rebuilt: &mut [&mut [u8]]) {
    let lost = parity.len();
    let present = data[lost..].iter().copied().chain(parity.iter().map(|shard| &**shard));
    let have: Vec<(usize, &[u8])> = (lost..).zip(present).collect();
    let mut want: Vec<(usize, &mut [u8])> =
        rebuilt.iter_mut().take(lost).map(|shard| &mut **shard).enumerate().collect();
    codec.reconstruct(&have, &mut want).expect("shards fit");
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}
