//! The log over directories: a full stripe of a large object, and records of 4 KiB of one client and of many at once, written with each durability; and both read, with all targets and
//! with one that is lost.
//!
//! `cargo bench -p gabion-benches --ignore-rust-version --bench log`. The directories lie in `TMPDIR`: with `/dev/shm` there is no drive to wait for, and what is
//! left of writing is coding, lanes, drivers and copies. Reads are what users have on a file system with a page cache to look into, which that is not.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::{env, fs, mem, process};

use bytes::Bytes;
use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use futures::future::join_all;
use gabion_erasure::crc64;
use gabion_platform::{DriverChoice, DriverOptions, OsEntropy, SystemClock, open_disk};
use gabion_segment::{
    AppliedStripe, Applier, ApplyError, Durability, Env, Log, LogConfig, LogTarget, NewRecord, SegmentChange,
    StripeBuffer,
};
use gabion_types::{Extent, Geometry, SegmentId};
use tokio::runtime::{Builder, Runtime};

const GEOMETRIES: [(usize, usize); 2] = [(1, 0), (4, 2)];
const DURABILITIES: [(&str, Durability); 2] = [("sync", Durability::Sync), ("relaxed", Durability::Relaxed)];
/// Clients whose records share stripes.
const CLIENTS: [usize; 4] = [1, 16, 64, 256];
const RECORD_BYTES: usize = 4 << 10;
/// Bytes of a mutation: a row of an object with a short key.
const MUTATION_BYTES: usize = 150;

/// An index that keeps nothing but the names of segments that are full.
#[derive(Default)]
struct Sealed(Mutex<Vec<SegmentId>>);

impl Applier for Sealed {
    fn apply(&self, _: &AppliedStripe) -> Result<(), ApplyError> {
        Ok(())
    }

    fn segment_changed(&self, change: SegmentChange) -> Result<(), ApplyError> {
        if let SegmentChange::Sealed { id, .. } = change {
            self.0.lock().unwrap().push(id);
        }
        Ok(())
    }
}

/// A log in directories of its own, which go with it.
struct World {
    runtime: Runtime,
    geometry: Geometry,
    durability: Durability,
    log: Log,
    sealed: Arc<Sealed>,
    root: PathBuf,
}

impl World {
    fn new(geometry: Geometry, durability: Durability) -> Self {
        let root = env::temp_dir().join(format!("gabion-bench-log-{}-{geometry}", process::id()));
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let sealed = Arc::new(Sealed::default());
        let log = runtime.block_on(opened(&root, geometry, durability, None, &sealed));
        Self { runtime, geometry, durability, log, sealed, root }
    }

    /// The same log, opened anew without one of its targets.
    fn lose(&mut self, lost: usize) {
        let Self { runtime, geometry, durability, log, sealed, root } = self;
        runtime.block_on(log.shutdown());
        *log = runtime.block_on(opened(root, *geometry, *durability, Some(lost), sealed));
    }

    /// Loses targets, one at a time, until reads of `extent` lack one.
    fn lose_one_of(&mut self, extent: &Extent) {
        for lost in 0..self.geometry.shards() {
            self.lose(lost);
            self.read(extent);
            if self.log.metrics().degraded_reads.get() > 0 {
                return;
            }
        }
        panic!("the extent lies nowhere");
    }

    fn read(&self, extent: &Extent) {
        self.runtime.block_on(self.log.read(extent, 0..extent.len)).unwrap();
    }

    /// Gives back the room of segments that are full: nothing refers to them.
    fn free(&self) {
        for id in mem::take(&mut *self.sealed.0.lock().unwrap()) {
            self.runtime.block_on(self.log.free(id, Vec::new())).unwrap();
        }
    }

    fn stripe(&self, bytes: &[u8]) -> StripeBuffer {
        self.free();
        let mut stripe = self.runtime.block_on(self.log.stripe_buffer()).unwrap();
        assert_eq!(stripe.put(bytes), bytes.len());
        stripe
    }
}

async fn opened(
    root: &Path,
    geometry: Geometry,
    durability: Durability,
    lost: Option<usize>,
    sealed: &Arc<Sealed>,
) -> Log {
    let target = |number| {
        let path = root.join(format!("target-{number}"));
        fs::create_dir_all(&path).unwrap();
        let opened = open_disk(&path, DriverChoice::Auto, DriverOptions::default(), None).unwrap();
        let failure_domain = format!("domain-{number}");
        let disk = (lost != Some(number)).then_some(opened.disk);
        LogTarget { name: path.display().to_string(), disk, failure_domain }
    };
    let targets = (0..geometry.shards()).map(target).collect();
    let mut config = LogConfig::new(geometry);
    config.durability = durability;
    (config.small_lanes, config.large_lanes) = (1, 1);
    // What is written goes again soon.
    config.segment_payload_bytes = 128 << 20;
    config.target_reserve_bytes = 0;
    let env = Env { clock: Arc::new(SystemClock), entropy: Arc::new(OsEntropy) };
    let (log, _) = Log::open(config, targets, Vec::new(), env).await.unwrap();
    log.start(Arc::clone(sealed) as Arc<dyn Applier>);
    log
}

impl Drop for World {
    fn drop(&mut self) {
        self.runtime.block_on(self.log.shutdown());
        fs::remove_dir_all(&self.root).unwrap();
    }
}

fn written(criterion: &mut Criterion) {
    for (k, m) in GEOMETRIES {
        for (name, durability) in DURABILITIES {
            let geometry = Geometry::new(k, m).unwrap();
            let world = World::new(geometry, durability);
            let World { runtime, log, .. } = &world;
            let mut group = criterion.benchmark_group(format!("log {geometry} {name}"));

            let bytes = vec![7; log.stripe_payload_bytes()];
            group.throughput(Throughput::Bytes(bytes.len() as u64));
            group.bench_function("append stripe", |bencher| {
                let append = |stripe| runtime.block_on(log.append(stripe)).unwrap();
                bencher.iter_batched(|| world.stripe(&bytes), append, BatchSize::PerIteration);
            });

            let record = small_record();
            for clients in CLIENTS {
                group.throughput(Throughput::Bytes((clients * RECORD_BYTES) as u64));
                group.bench_function(BenchmarkId::new("commit 4 KiB of clients", clients), |bencher| {
                    let next = || {
                        world.free();
                        vec![record.clone(); clients]
                    };
                    let commit = |records: Vec<NewRecord>| {
                        let commits = records.into_iter().map(|record| log.commit(record));
                        for committed in runtime.block_on(join_all(commits)) {
                            committed.unwrap();
                        }
                    };
                    bencher.iter_batched(next, commit, BatchSize::PerIteration);
                });
            }
            group.finish();
        }
    }
}

fn read(criterion: &mut Criterion) {
    for (k, m) in GEOMETRIES {
        let geometry = Geometry::new(k, m).unwrap();
        let mut world = World::new(geometry, Durability::Sync);
        let mut group = criterion.benchmark_group(format!("log {geometry}"));
        let World { runtime, log, .. } = &world;
        let small = runtime.block_on(log.commit(small_record())).unwrap().extents[0];
        let large = runtime.block_on(log.append(world.stripe(&vec![7; log.stripe_payload_bytes()]))).unwrap();
        // What lies on a drive that is lost is made of what the others have.
        for is_lost in [false, true] {
            for (name, extent) in [("4 KiB", &small), ("stripe", &large)] {
                if is_lost && m == 0 {
                    continue;
                }
                let name = match is_lost {
                    true => {
                        world.lose_one_of(extent);
                        format!("read {name} of which a chunk is lost")
                    }
                    false => format!("read {name}"),
                };
                group.throughput(Throughput::Bytes(extent.len.into()));
                group.bench_function(name, |bencher| bencher.iter(|| world.read(extent)));
            }
        }
        group.finish();
    }
}

fn small_record() -> NewRecord {
    let data = Bytes::from(vec![7; RECORD_BYTES]);
    let data_crc64 = crc64(&data);
    NewRecord { mutation: vec![7; MUTATION_BYTES].into(), data: vec![data], data_crc64 }
}

criterion_group!(benches, written, read);
criterion_main!(benches);
