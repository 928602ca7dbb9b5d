//! How fast a lost index is back: rebuilt from all mutations, and restored from its snapshot in the log.
//!
//! `cargo run --release --ignore-rust-version -p gabion-store --example rebuild_speed -- DIRECTORY [objects] [bytes] [geometry]`
//!
//! Writes so many objects (1 000 000 of 512 bytes on 4+2) through the store to targets below the directory, with fjall for the index, and
//! prints Markdown. The directory must not exist; it is left for a closer look.

#![allow(clippy::disallowed_methods, reason = "a measurement: the wall clock is its result")]
#![allow(clippy::print_stdout, reason = "a program that prints figures")]
#![allow(clippy::unwrap_used, reason = "a measurement")]

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use gabion_metadata::IndexOptions;
use gabion_platform::{DriverChoice, DriverOptions, OsEntropy, SystemClock, open_disk};
use gabion_segment::{LogConfig, LogTarget};
use gabion_store::{
    Attributes, EmbeddedIndex, Env, ObjectBody, PutObject, RebuildReport, Silent, Store, StoreConfig, WriteConditions,
};
use gabion_types::{BucketName, Geometry, ObjectKey};

/// Puts under way at a time.
const WRITERS: u64 = 256;
/// One in so many objects is written after the snapshot.
const LATER_SHARE: u64 = 50;

struct Deployment {
    root: PathBuf,
    geometry: Geometry,
}

impl Deployment {
    fn targets(&self) -> Vec<LogTarget> {
        let target = |number: usize| {
            let path = self.root.join(format!("target-{number}"));
            std::fs::create_dir_all(&path).unwrap();
            let opened = open_disk(&path, DriverChoice::Auto, DriverOptions::default(), None).unwrap();
            LogTarget { name: path.display().to_string(), disk: Some(opened.disk), failure_domain: number.to_string() }
        };
        (0..self.geometry.shards()).map(target).collect()
    }

    fn config(&self) -> StoreConfig {
        let mut log = LogConfig::new(self.geometry);
        log.target_reserve_bytes = 0;
        // Taken when it is asked for, and not in between.
        StoreConfig { index_snapshot_bytes: u64::MAX, ..StoreConfig::new(log) }
    }

    fn env() -> Env {
        Env { clock: Arc::new(SystemClock), entropy: Arc::new(OsEntropy) }
    }

    fn factory(&self) -> Box<EmbeddedIndex> {
        Box::new(EmbeddedIndex::new(self.root.join("index"), IndexOptions::default()))
    }

    async fn open(&self) -> Store {
        let opened =
            Store::open(self.config(), self.targets(), self.factory(), Self::env(), Arc::new(Silent)).await.unwrap();
        opened.0
    }

    async fn rebuild(&self, restore: bool) -> (RebuildReport, Duration) {
        let config = StoreConfig { index_snapshot_restore: restore, ..self.config() };
        let began = Instant::now();
        let report = Store::rebuild_index(config, self.targets(), self.factory(), Self::env(), Arc::new(Silent)).await;
        (report.unwrap(), began.elapsed())
    }
}

fn bucket() -> BucketName {
    BucketName::new("bucket").unwrap()
}

/// Puts the objects with these numbers; how long it took.
async fn fill(store: &Store, numbers: std::ops::Range<u64>, body: &Bytes) -> Duration {
    let began = Instant::now();
    let writers = (0..WRITERS).map(|writer| {
        let (store, body, numbers) = (store.clone(), body.clone(), numbers.clone());
        tokio::spawn(async move {
            for number in numbers.skip(writer as usize).step_by(WRITERS as usize) {
                // Spread over the key space, as the keys of many clients are.
                let key = format!("objects/{:016x}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
                let request = PutObject {
                    bucket: bucket(),
                    key: ObjectKey::new(&key).unwrap(),
                    attributes: Attributes::default(),
                    conditions: WriteConditions::default(),
                };
                store.put_object(request, ObjectBody::from_bytes(body.clone())).await.unwrap();
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    began.elapsed()
}

fn per_second(count: u64, took: Duration) -> f64 {
    count as f64 / took.as_secs_f64()
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let root: PathBuf = arguments.next().expect("a directory that does not exist").into();
    assert!(!Path::new(&root).exists(), "{} is there", root.display());
    let objects: u64 = arguments.next().map_or(1_000_000, |text| text.parse().unwrap());
    let body_bytes: usize = arguments.next().map_or(512, |text| text.parse().unwrap());
    let geometry: Geometry = arguments.next().as_deref().unwrap_or("4+2").parse().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(measure(Deployment { root, geometry }, objects, body_bytes));
}

async fn measure(deployment: Deployment, objects: u64, body_bytes: usize) {
    let body = Bytes::from(vec![7; body_bytes]);
    let store = deployment.open().await;
    store.create_bucket(bucket(), None).await.unwrap();
    let took = fill(&store, 0..objects, &body).await;
    store.shutdown().await;
    drop(store);
    println!("{objects} objects of {body_bytes} bytes on {}", deployment.geometry);
    println!("\n| step | seconds | per second |\n| --- | ---: | ---: |");
    let line = |step: &str, count: u64, took: Duration, what: &str| {
        println!("| {step} | {:.1} | {:.0} {what} |", took.as_secs_f64(), per_second(count, took));
    };
    line("written", objects, took, "objects");
    let (report, took) = deployment.rebuild(false).await;
    assert_eq!((report.objects, report.open.rows_restored), (objects, 0));
    line("rebuilt from all mutations", objects, took, "objects");
    let store = deployment.open().await;
    let began = Instant::now();
    let snapshot = store.snapshot_index().await.unwrap().unwrap();
    line(&format!("snapshot of {} bytes written", snapshot.bytes), snapshot.rows, began.elapsed(), "rows");
    let later = objects / LATER_SHARE;
    fill(&store, objects..objects + later, &body).await;
    store.shutdown().await;
    drop(store);
    let (report, took) = deployment.rebuild(true).await;
    assert_eq!((report.objects, report.open.rows_restored), (objects + later, snapshot.rows));
    let replayed = report.open.mutations_replayed;
    line(&format!("restored from it, {replayed} mutations replayed"), objects + later, took, "objects");
}
