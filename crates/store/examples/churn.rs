//! `cargo xtask bench churn`: what it costs to overwrite a uniformly random tenth of a nearly full store again and again.
//!
//! A store on one simulated disk of a fixed size is filled to a share of it; then rounds of overwrites and deletions go on while compaction runs by
//! itself, as in a server, until the write amplification of a few rounds is that of the few before. What is counted does not depend on the
//! machine's speed, but how rounds of compaction fall between the writes does.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a program for developers: it prints figures, and ends where one can not be had"
)]

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{StreamExt, stream};
use gabion_metadata::{
    Index, IndexError, MemoryIndex, ScanRange, Table,
    rows::{LaneKind, Row, SegmentRow, SegmentState},
};
use gabion_platform::{Disk, Entropy, OsEntropy, SeededEntropy, SimDisk, SystemClock};
use gabion_segment::{LogConfig, LogTarget};
use gabion_store::{
    Attributes, DeleteObject, Env, IndexFactory, ObjectBody, PutObject, Silent, Store, StoreConfig, StoreError,
    WriteConditions,
};
use gabion_types::{BucketName, Geometry, ObjectKey};

/// What a disk holds of its units: all in the proportion of a large one, so that 80 % full is 80 % full.
const CAPACITY_SEGMENTS: u64 = 256;
const RESERVE_SEGMENTS: u64 = 8;
const SEGMENT_STRIPES: u64 = 8;
const FILL_PERCENT: u64 = 80;
const CLIENTS: usize = 32;
/// Rounds that are compared with as many before; they are within this of each other when it is steady.
const WINDOW: usize = 5;
const STEADY: f64 = 0.05;
const ROUNDS_MAX: u64 = 60;
/// One in so many overwrites is a deletion and a new object.
const DELETED_SHARE: u64 = 10;
const BUCKET: &str = "churn";

/// Sizes of objects: the key says which.
struct Load {
    name: &'static str,
    sizes: &'static [usize],
    segment_bytes: u64,
}

impl Load {
    fn capacity_bytes(&self) -> u64 {
        CAPACITY_SEGMENTS * self.segment_bytes
    }
}

const LOADS: [Load; 4] = [
    Load { name: "4 KiB", sizes: &[4 << 10], segment_bytes: 1 << 20 },
    Load { name: "16 KiB", sizes: &[16 << 10], segment_bytes: 1 << 20 },
    Load { name: "256 KiB", sizes: &[256 << 10], segment_bytes: 4 << 20 },
    Load {
        name: "4 KiB to 8 MiB",
        sizes: &[4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 2 << 20, 3 << 20, 5 << 20, 8 << 20],
        segment_bytes: 4 << 20,
    },
];

struct Factory(MemoryIndex);

impl IndexFactory for Factory {
    fn open(&self) -> Result<Arc<dyn Index>, IndexError> {
        Ok(Arc::new(self.0.clone()))
    }

    fn destroy(&self) -> Result<(), IndexError> {
        Ok(())
    }
}

#[tokio::main]
async fn main() {
    let wanted = std::env::args().nth(1);
    println!(
        "| objects | round | put MiB | to disk MiB | write amplification | moved MiB | of what it was moved out of | punched MiB | \
         held back | refused puts, deletions | used | live, mean | by tenths of live bytes |"
    );
    println!("| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |");
    for load in LOADS.iter().filter(|load| wanted.as_ref().is_none_or(|wanted| wanted == load.name)) {
        churn(load).await;
    }
}

async fn churn(load: &Load) {
    let disk = SimDisk::new(1);
    disk.full_at(load.capacity_bytes());
    let index = MemoryIndex::new();
    let store = open(&disk, &index, load).await;
    store.create_bucket(BucketName::new(BUCKET).unwrap(), None).await.unwrap();
    // A record of a mutation is some 200 bytes.
    let mean_bytes = load.sizes.iter().sum::<usize>() as u64 / load.sizes.len() as u64 + 200;
    let objects = load.capacity_bytes() * FILL_PERCENT / 100 / mean_bytes;
    let mut dice = Dice(SeededEntropy::new(7));
    let mut amplifications = Vec::new();
    for round in 0..=ROUNDS_MAX {
        let keys: Vec<u64> = match round {
            0 => (0..objects).collect(),
            _ => (0..(objects / 10).max(1)).map(|_| dice.below(objects)).collect(),
        };
        let before = figures(&store);
        let refused = put_all(&store, load, &keys, round).await;
        let after = figures(&store);
        let put_bytes: usize = keys.iter().map(|&key| size_of(load, key)).sum();
        let amplification = (after.stored - before.stored) as f64 / put_bytes as f64;
        amplifications.push(amplification);
        let (mean, tenths) = live_ratios(&index);
        let freed = after.freed - before.freed;
        println!(
            "| {} | {} | {:.0} | {:.0} | {amplification:.2} | {:.0} | {} | {:.0} | {} | {}, {} | {:.0} % | {mean:.2} | {tenths} |",
            load.name,
            if round == 0 { "fill".to_owned() } else { round.to_string() },
            mib(put_bytes as u64),
            mib(after.stored - before.stored),
            mib(after.moved - before.moved),
            if freed == 0 { "-".into() } else { format!("{:.2}", (after.moved - before.moved) as f64 / freed as f64) },
            mib(after.punched - before.punched),
            after.held_back - before.held_back,
            refused.puts,
            refused.deletions,
            disk.used_bytes() as f64 / load.capacity_bytes() as f64 * 100.0,
        );
        if let Some((earlier, last)) = amplifications[1..].rchunk_pair(WINDOW)
            && (earlier / last - 1.0).abs() < STEADY
        {
            println!("| {} | **last {WINDOW}** | | | **{last:.2}** | | | | | | | | |", load.name);
            break;
        }
    }
    store.shutdown().await;
}

/// Means of the last elements, and of as many before.
trait Windows {
    fn rchunk_pair(&self, len: usize) -> Option<(f64, f64)>;
}

impl Windows for [f64] {
    fn rchunk_pair(&self, len: usize) -> Option<(f64, f64)> {
        let mean = |window: &[f64]| window.iter().sum::<f64>() / window.len() as f64;
        let (rest, last) = self.split_at(self.len().checked_sub(len)?);
        Some((mean(&rest[rest.len().checked_sub(len)?..]), mean(last)))
    }
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

async fn open(disk: &SimDisk, index: &MemoryIndex, load: &Load) -> Store {
    let mut log = LogConfig::new(Geometry::SINGLE);
    log.segment_payload_bytes = load.segment_bytes;
    log.stripe_payload_bytes = (load.segment_bytes / SEGMENT_STRIPES) as usize;
    log.small_lanes = 1;
    log.large_lanes = 1;
    log.target_reserve_bytes = RESERVE_SEGMENTS * load.segment_bytes;
    let mut config = StoreConfig::new(log);
    config.compaction.interval_ms = 20;
    config.compaction.bytes_per_s = 0;
    config.index_reserve_bytes = 0;
    let target = LogTarget {
        name: "disk".into(),
        disk: Some(Arc::new(disk.clone()) as Arc<dyn Disk>),
        failure_domain: "disk".into(),
    };
    let env = Env { clock: Arc::new(SystemClock), entropy: Arc::new(OsEntropy) };
    let factory = Box::new(Factory(index.clone()));
    Store::open(config, vec![target], factory, env, Arc::new(Silent)).await.unwrap().0
}

/// Counters, in bytes.
struct Figures {
    stored: u64,
    moved: u64,
    freed: u64,
    punched: u64,
    held_back: u64,
}

fn figures(store: &Store) -> Figures {
    Figures {
        stored: store.log_metrics().stored_bytes.get(),
        moved: store.metrics().compaction_moved_bytes.get(),
        freed: store.metrics().freed_bytes.get(),
        punched: store.metrics().punched_bytes.get(),
        held_back: store.metrics().writes_held_back.get(),
    }
}

/// Live share of sealed segments: the mean, and how many there are in each tenth, small segments and large ones apart.
fn live_ratios(index: &MemoryIndex) -> (f64, String) {
    let rows = index.scan(ScanRange::all(Table::Segment), usize::MAX).unwrap();
    let (mut live, mut written, mut tenths) = (0, 0, [[0; 10]; 2]);
    for (_, row) in rows {
        let row = SegmentRow::decode(&row).unwrap();
        let kept = row.written_bytes - row.punched_bytes.unwrap_or(0);
        if row.state != SegmentState::Sealed || kept == 0 {
            continue;
        }
        live += row.live_bytes;
        written += kept;
        let tenth = (row.live_bytes.max(0) as f64 / kept as f64 * 10.0) as usize;
        tenths[usize::from(row.kind == LaneKind::Large)][tenth.min(9)] += 1;
    }
    let text = |tenths: [i32; 10]| tenths.map(|count| count.to_string()).join(" ");
    (live as f64 / written.max(1) as f64, format!("{} / {}", text(tenths[0]), text(tenths[1])))
}

/// How often a client was told that there is no room, and tried again.
#[derive(Default)]
struct Refused {
    puts: u64,
    deletions: u64,
}

/// Puts all of `keys`; some are deleted first.
async fn put_all(store: &Store, load: &Load, keys: &[u64], round: u64) -> Refused {
    let puts = keys.iter().enumerate().map(|(number, &key)| async move {
        let deletes = round > 0 && (number as u64).is_multiple_of(DELETED_SHARE);
        let deletions = if deletes { delete(store, key).await } else { 0 };
        Refused { puts: put(store, key, round, size_of(load, key)).await, deletions }
    });
    let add = |sum: Refused, one: Refused| async move {
        Refused { puts: sum.puts + one.puts, deletions: sum.deletions + one.deletions }
    };
    stream::iter(puts).buffer_unordered(CLIENTS).fold(Refused::default(), add).await
}

fn size_of(load: &Load, key: u64) -> usize {
    load.sizes[key as usize % load.sizes.len()]
}

fn name(key: u64) -> (BucketName, ObjectKey) {
    (BucketName::new(BUCKET).unwrap(), ObjectKey::new(&format!("{key:08}")).unwrap())
}

async fn put(store: &Store, key: u64, round: u64, object_bytes: usize) -> u64 {
    let mut body = vec![0; object_bytes];
    SeededEntropy::new(key ^ (round << 40)).fill(&mut body);
    let body = Bytes::from(body);
    let mut refused = 0;
    loop {
        let (bucket, key) = name(key);
        let request =
            PutObject { bucket, key, attributes: Attributes::default(), conditions: WriteConditions::default() };
        match store.put_object(request, ObjectBody::from_bytes(body.clone())).await {
            Ok(_) => return refused,
            Err(error) => wait(&error, &mut refused).await,
        }
    }
}

async fn delete(store: &Store, key: u64) -> u64 {
    let mut refused = 0;
    loop {
        let (bucket, key) = name(key);
        match store.delete_object(bucket, DeleteObject::current(key)).await {
            Ok(_) => return refused,
            Err(error) => wait(&error, &mut refused).await,
        }
    }
}

/// As a client that is told to come again.
async fn wait(error: &StoreError, refused: &mut u64) {
    assert!(matches!(error, StoreError::NoSpace | StoreError::Busy | StoreError::Unavailable(_)), "{error}");
    *refused += 1;
    tokio::time::sleep(Duration::from_millis(50)).await;
}

struct Dice(SeededEntropy);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        let mut bytes = [0; 8];
        self.0.fill(&mut bytes);
        u64::from_le_bytes(bytes) % end
    }
}
