//! Over real directories, with fjall.

use std::sync::Arc;

use gabion_metadata::{FjallIndex, IndexOptions};
use gabion_platform::{DriverChoice, DriverOptions, OsEntropy, SystemClock, open_disk};
use gabion_segment::LogTarget;
use gabion_store::{EmbeddedIndex, Env, OpenReport, Silent, Store};

use crate::harness::*;

/// fjall in a directory, with little memory.
pub fn embedded(root: &std::path::Path) -> EmbeddedIndex {
    let options = IndexOptions { cache_bytes: 8 << 20, row_cache_bytes: 1 << 20, ..IndexOptions::default() };
    EmbeddedIndex::new(root.join("index"), options)
}

async fn open(root: &std::path::Path) -> (Store, OpenReport) {
    let target = |number: usize| {
        let path = root.join(format!("target-{number}"));
        std::fs::create_dir_all(&path).unwrap();
        let opened = open_disk(&path, DriverChoice::Threads, DriverOptions::default(), None).unwrap();
        LogTarget { name: path.display().to_string(), disk: Some(opened.disk), failure_domain: number.to_string() }
    };
    let env = Env { clock: Arc::new(SystemClock), entropy: Arc::new(OsEntropy) };
    let factory = Box::new(embedded(root));
    let mut config = config(2, 1);
    config.checkpoint_interval_ms = 5;
    Store::open(config, (0..3).map(target).collect(), factory, env, Arc::new(Silent)).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarts_and_rebuilds_on_real_directories() {
    let root = tempfile::tempdir().unwrap();
    let (mut store, report) = open(root.path()).await;
    assert_eq!(report, OpenReport::default());
    store.create_bucket(bucket("bucket"), None).await.unwrap();
    for round in 0..3_u64 {
        for i in 0..10 {
            let size = if i == 0 { 2_500_000 } else { 5000 };
            put(&store, "bucket", &format!("{round} {i}"), &bytes(round * 10 + i, size)).await;
        }
        delete(&store, "bucket", &format!("{round} 9")).await;
        store.shutdown().await;
        drop(store);
        if round == 1 {
            FjallIndex::remove(&root.path().join("index")).unwrap();
        }
        let (opened, report) = open(root.path()).await;
        store = opened;
        assert_eq!(report.index_rebuilt.is_some(), round == 1, "{report:?}");
        assert_eq!(report.mutations_replayed > 0, round == 1, "a clean start replays nothing: {report:?}");
        assert_eq!(keys(&store, "bucket").await.len() as u64, (round + 1) * 9);
        for i in 0..9 {
            let size = if i == 0 { 2_500_000 } else { 5000 };
            assert_eq!(get(&store, "bucket", &format!("{round} {i}")).await.unwrap(), bytes(round * 10 + i, size));
        }
    }
    store.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_shards_come_back_on_real_directories() {
    let root = tempfile::tempdir().unwrap();
    let (store, _) = open(root.path()).await;
    store.create_bucket(bucket("bucket"), None).await.unwrap();
    for i in 0..4 {
        put(&store, "bucket", &format!("{i}"), &bytes(i, 900_000)).await;
    }
    store.shutdown().await;
    drop(store);
    // One target loses all its shards, and when they are built anew, another one.
    std::fs::remove_dir_all(root.path().join("target-1/segments")).unwrap();
    let (store, _) = open(root.path()).await;
    let missing = store.status().log.redundancy.iter().skip(1).sum::<usize>();
    assert!(missing > 0);
    let pass = store.repair_now().await.unwrap();
    assert_eq!((pass.shards_built, pass.shards_failed), (missing, 0), "{pass:?}");
    let scrubbed = store.scrub_now().await.unwrap();
    assert_eq!(scrubbed.bad_shards, 0);
    assert!(scrubbed.cross_check.unwrap().is_clean());
    store.shutdown().await;
    drop(store);
    std::fs::remove_dir_all(root.path().join("target-0/segments")).unwrap();
    FjallIndex::remove(&root.path().join("index")).unwrap();
    let (store, _) = open(root.path()).await;
    for i in 0..4 {
        assert!(get(&store, "bucket", &format!("{i}")).await.unwrap() == bytes(i, 900_000), "{i}");
    }
    store.shutdown().await;
}
