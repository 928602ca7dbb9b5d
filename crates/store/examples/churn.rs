//! `cargo xtask bench churn`: what it costs to overwrite a uniformly random tenth of a nearly full store again and again.
//!
//! A store on one simulated disk of a fixed size is filled to a share of it; then rounds of overwrites go on while compaction runs by itself, as
//! in a server. What is counted does not depend on the machine's speed, but how rounds of compaction fall between the writes does.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a program for developers: it prints figures, and ends where one can not be had"
)]

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{StreamExt, stream};
use gabion_metadata::{Index, IndexError, MemoryIndex};
use gabion_platform::{Disk, Entropy, OsEntropy, SeededEntropy, SimDisk, SystemClock};
use gabion_segment::{LogConfig, LogTarget};
use gabion_store::{
    Attributes, Env, IndexFactory, ObjectBody, PutObject, Silent, Store, StoreConfig, StoreError, WriteConditions,
};
use gabion_types::{BucketName, Geometry, ObjectKey};

const CAPACITY_BYTES: u64 = 512 << 20;
const RESERVE_BYTES: u64 = 48 << 20;
const SEGMENT_BYTES: u64 = 8 << 20;
const FILL_PERCENT: u64 = 80;
const CLIENTS: usize = 32;
const ROUNDS: u64 = 12;
const BUCKET: &str = "churn";

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
    println!("| object | round | put MiB | to disk MiB | write amplification | moved MiB | told to wait | used |");
    println!("| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    for object_bytes in [16 << 10, 256 << 10] {
        churn(object_bytes).await;
    }
}

async fn churn(object_bytes: usize) {
    let disk = SimDisk::new(1);
    disk.full_at(CAPACITY_BYTES);
    let store = open(&disk).await;
    store.create_bucket(BucketName::new(BUCKET).unwrap(), None).await.unwrap();
    // A record of a mutation is some 200 bytes.
    let objects = CAPACITY_BYTES * FILL_PERCENT / 100 / (object_bytes as u64 + 200);
    let mut dice = Dice(SeededEntropy::new(7));
    for round in 0..=ROUNDS {
        let keys: Vec<u64> = match round {
            0 => (0..objects).collect(),
            _ => (0..objects / 10).map(|_| dice.below(objects)).collect(),
        };
        let before = figures(&store);
        let refusals = put_all(&store, &keys, round, object_bytes).await;
        let after = figures(&store);
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let put_bytes = (keys.len() * object_bytes) as u64;
        println!(
            "| {} KiB | {} | {:.0} | {:.0} | {:.2} | {:.0} | {refusals} | {:.0} % |",
            object_bytes >> 10,
            if round == 0 { "fill".to_owned() } else { round.to_string() },
            mib(put_bytes),
            mib(after.stored_bytes - before.stored_bytes),
            (after.stored_bytes - before.stored_bytes) as f64 / put_bytes as f64,
            mib(after.moved_bytes - before.moved_bytes),
            disk.used_bytes() as f64 / CAPACITY_BYTES as f64 * 100.0,
        );
    }
    store.shutdown().await;
}

async fn open(disk: &SimDisk) -> Store {
    let mut log = LogConfig::new(Geometry::SINGLE);
    log.segment_payload_bytes = SEGMENT_BYTES;
    log.stripe_payload_bytes = 1 << 20;
    log.small_lanes = 1;
    log.large_lanes = 1;
    log.target_reserve_bytes = RESERVE_BYTES;
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
    let factory = Box::new(Factory(MemoryIndex::new()));
    Store::open(config, vec![target], factory, env, Arc::new(Silent)).await.unwrap().0
}

struct Figures {
    stored_bytes: u64,
    moved_bytes: u64,
}

fn figures(store: &Store) -> Figures {
    Figures {
        stored_bytes: store.log_metrics().stored_bytes.get(),
        moved_bytes: store.metrics().compaction_moved_bytes.get(),
    }
}

/// Puts all of `keys`; returns how often a client was told that there is no room, and tried again.
async fn put_all(store: &Store, keys: &[u64], round: u64, object_bytes: usize) -> u64 {
    let puts = stream::iter(keys.iter().map(|&key| put(store, key, round, object_bytes)));
    puts.buffer_unordered(CLIENTS).fold(0, |refusals, refused| async move { refusals + refused }).await
}

async fn put(store: &Store, key: u64, round: u64, object_bytes: usize) -> u64 {
    let mut body = vec![0; object_bytes];
    SeededEntropy::new(key ^ (round << 40)).fill(&mut body);
    let body = Bytes::from(body);
    let mut refused = 0;
    loop {
        let request = PutObject {
            bucket: BucketName::new(BUCKET).unwrap(),
            key: ObjectKey::new(&format!("{key:08}")).unwrap(),
            attributes: Attributes::default(),
            conditions: WriteConditions::default(),
        };
        match store.put_object(request, ObjectBody::from_bytes(body.clone())).await {
            Ok(_) => return refused,
            Err(StoreError::NoSpace | StoreError::Busy) => {
                refused += 1;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

struct Dice(SeededEntropy);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        let mut bytes = [0; 8];
        self.0.fill(&mut bytes);
        u64::from_le_bytes(bytes) % end
    }
}
