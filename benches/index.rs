//! The index as the server has it (fjall behind the row cache): a row that is looked for, the rows of a batch of puts and of one of deletes, a page of a listing, what is behind a folder,
//! and all rows in their order, as snapshots of the index read them.
//!
//! `cargo bench -p gabion-benches --ignore-rust-version --bench index`. The index lies in `TMPDIR`.
#![allow(clippy::unwrap_used)]

use std::path::PathBuf;
use std::{env, fs, process};

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use gabion_metadata::{CachedIndex, FjallIndex, Index, IndexOptions, ScanRange, Table, Write, keys};
use gabion_types::{BucketName, ObjectKey};

/// Rows that there are at first.
const ROWS: u64 = 100_000;
/// Rows of a batch: as many puts as share a stripe when 64 clients put.
const BATCH_ROWS: u64 = 32;
/// Rows of a page.
const PAGE_ROWS: usize = 1000;
/// Bytes of a row: of an object with a content type and a checksum.
const ROW_BYTES: usize = 150;

/// An index in a directory of its own, which goes with it.
struct World {
    index: CachedIndex<FjallIndex>,
    bucket: BucketName,
    root: PathBuf,
}

impl World {
    fn new() -> Self {
        let root = env::temp_dir().join(format!("gabion-bench-index-{}", process::id()));
        let options = IndexOptions::default();
        let index = CachedIndex::new(FjallIndex::open(&root, options).unwrap(), options.row_cache_bytes);
        let world = Self { index, bucket: BucketName::new("bucket").unwrap(), root };
        for first in (0..ROWS).step_by(1000) {
            world.index.commit(&[], world.puts(first, 1000)).unwrap();
        }
        world
    }

    /// The key of a row; those of neighbours lie far from each other, as those of clients do.
    fn key(&self, number: u64) -> Vec<u8> {
        let spread = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        keys::object(&self.bucket, &ObjectKey::new(&format!("some/prefix/{spread:016x}")).unwrap())
    }

    fn puts(&self, first: u64, count: u64) -> Vec<Write> {
        (first..first + count).map(|number| Write::Put(Table::Object, self.key(number), vec![7; ROW_BYTES])).collect()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

fn index(criterion: &mut Criterion) {
    let world = World::new();
    let mut group = criterion.benchmark_group("index");
    let cached = world.key(ROWS / 2);
    group.bench_function("a row that the cache has", |bencher| {
        bencher.iter(|| world.index.get(Table::Object, &cached).unwrap().unwrap());
    });
    // What engines take for a row, by the engine itself: every row that was asked for is in the cache.
    let mut number = 0;
    group.bench_function("a row of the engine", |bencher| {
        bencher.iter(|| {
            number = (number + 1) % ROWS;
            world.index.engine().get(Table::Object, &world.key(number)).unwrap().unwrap()
        });
    });
    let mut absent = u64::MAX / 2;
    group.bench_function("a row that is not there", |bencher| {
        bencher.iter(|| {
            absent += 1;
            world.index.get(Table::Object, &world.key(absent)).unwrap()
        });
    });
    group.throughput(Throughput::Elements(BATCH_ROWS));
    let mut next = ROWS;
    group.bench_function("a batch of new rows", |bencher| {
        let batch = || {
            next += BATCH_ROWS;
            world.puts(next, BATCH_ROWS)
        };
        bencher.iter_batched(batch, |writes| world.index.commit(&[], writes).unwrap(), BatchSize::PerIteration);
    });
    let mut first = 0;
    group.bench_function("a batch of rows that are replaced", |bencher| {
        let batch = || {
            first = (first + BATCH_ROWS) % (ROWS / 2);
            world.puts(first, BATCH_ROWS)
        };
        bencher.iter_batched(batch, |writes| world.index.commit(&[], writes).unwrap(), BatchSize::PerIteration);
    });
    let first = ROWS / 2;
    group.bench_function("a batch of deletes", |bencher| {
        let batch = || {
            // Those that were deleted come back first, which is not counted.
            world.index.commit(&[], world.puts(first, BATCH_ROWS)).unwrap();
            (first..first + BATCH_ROWS).map(|number| Write::Delete(Table::Object, world.key(number))).collect()
        };
        bencher.iter_batched(batch, |writes| world.index.commit(&[], writes).unwrap(), BatchSize::PerIteration);
    });
    group.throughput(Throughput::Elements(PAGE_ROWS as u64));
    group.bench_function("a page of 1000 rows", |bencher| {
        bencher.iter(|| world.index.scan(ScanRange::all(Table::Object), PAGE_ROWS).unwrap().len());
    });
    group.throughput(Throughput::Elements(1));
    let mut number = 0;
    group.bench_function("the row behind a key", |bencher| {
        bencher.iter(|| {
            number = (number + 1) % (ROWS / 2);
            world.index.scan(ScanRange::all(Table::Object).after(&world.key(number)), 1).unwrap().len()
        });
    });
    group.sample_size(10).throughput(Throughput::Elements(ROWS));
    group.bench_function("a walk over all rows", |bencher| {
        bencher.iter(|| {
            let mut walk = world.index.walk(&[Table::Object]).unwrap();
            let mut rows = 0;
            while walk.next().unwrap().is_some() {
                rows += 1;
            }
            assert!(rows >= ROWS / 2);
        });
    });
    group.finish();
}

criterion_group!(benches, index);
criterion_main!(benches);
