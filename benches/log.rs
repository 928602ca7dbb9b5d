//! The log over directories, for one client: a full stripe of a large object, and a record of 4 KiB, written and read.
//!
//! `cargo bench -p gabion-benches --ignore-rust-version --bench log`. The directories lie in `TMPDIR`: with `/dev/shm` there is no drive to wait for, and what is
//! left of writing is coding, lanes, drivers and copies. Reads are what users have on a file system with a page cache to look into, which that is not.
#![allow(clippy::unwrap_used)]

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::{env, fs, mem, process};

use bytes::Bytes;
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use gabion_erasure::crc64;
use gabion_platform::{DriverChoice, DriverOptions, OsEntropy, SystemClock, open_disk};
use gabion_segment::{
    AppliedStripe, Applier, ApplyError, Env, Log, LogConfig, LogTarget, NewRecord, SegmentChange, StripeBuffer,
};
use gabion_types::{Geometry, SegmentId};
use tokio::runtime::{Builder, Runtime};

const GEOMETRIES: [(usize, usize); 2] = [(1, 0), (4, 2)];
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
    log: Log,
    sealed: Arc<Sealed>,
    root: PathBuf,
}

impl World {
    fn new(geometry: Geometry) -> Self {
        let root = env::temp_dir().join(format!("gabion-bench-log-{}-{geometry}", process::id()));
        let target = |number| {
            let path = root.join(format!("target-{number}"));
            fs::create_dir_all(&path).unwrap();
            let opened = open_disk(&path, DriverChoice::Auto, DriverOptions::default(), None).unwrap();
            let failure_domain = format!("domain-{number}");
            LogTarget { name: path.display().to_string(), disk: Some(opened.disk), failure_domain }
        };
        let targets = (0..geometry.shards()).map(target).collect();
        let mut config = LogConfig::new(geometry);
        (config.small_lanes, config.large_lanes) = (1, 1);
        // What is written goes again soon.
        config.segment_payload_bytes = 128 << 20;
        config.target_reserve_bytes = 0;
        let env = Env { clock: Arc::new(SystemClock), entropy: Arc::new(OsEntropy) };
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let sealed = Arc::new(Sealed::default());
        let log = runtime.block_on(async {
            let (log, _) = Log::open(config, targets, Vec::new(), env).await.unwrap();
            log.start(Arc::clone(&sealed) as Arc<dyn Applier>);
            log
        });
        Self { runtime, log, sealed, root }
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

impl Drop for World {
    fn drop(&mut self) {
        self.runtime.block_on(self.log.shutdown());
        fs::remove_dir_all(&self.root).unwrap();
    }
}

fn log(criterion: &mut Criterion) {
    for (k, m) in GEOMETRIES {
        let geometry = Geometry::new(k, m).unwrap();
        let world = World::new(geometry);
        let World { runtime, log, .. } = &world;
        let mut group = criterion.benchmark_group(format!("log {geometry}"));

        let bytes = vec![7; log.stripe_payload_bytes()];
        group.throughput(Throughput::Bytes(bytes.len() as u64));
        group.bench_function("append stripe", |bencher| {
            let append = |stripe| runtime.block_on(log.append(stripe)).unwrap();
            bencher.iter_batched(|| world.stripe(&bytes), append, BatchSize::PerIteration);
        });

        let data = Bytes::from(vec![7; RECORD_BYTES]);
        let data_crc64 = crc64(&data);
        let record = NewRecord { mutation: vec![7; MUTATION_BYTES].into(), data: vec![data], data_crc64 };
        let commit = |record| runtime.block_on(log.commit(record)).unwrap();
        group.throughput(Throughput::Bytes(RECORD_BYTES as u64));
        group.bench_function("commit 4 KiB", |bencher| {
            let next = || {
                world.free();
                record.clone()
            };
            bencher.iter_batched(next, commit, BatchSize::PerIteration);
        });
        let extent = commit(record).extents[0];
        group.bench_function("read 4 KiB", |bencher| {
            bencher.iter(|| runtime.block_on(log.read(&extent, 0..extent.len)).unwrap());
        });
        group.finish();
    }
}

criterion_group!(benches, log);
criterion_main!(benches);
