//! Writes a small deployment of the format that this program writes, with a manifest of what must be read from it for ever.
//!
//! `cargo run --ignore-rust-version -p gabion-store --example make_format_fixture -- tests/fixtures/format-N`, and the same with
//! `tests/fixtures/format-N-compacted compacted` for one that was compacted, and `tests/fixtures/members-N members`, with the version of `gabion.json`,
//! for one that lost a target.
//!
//! For a *new* format version only: what is committed under `tests/fixtures` is never written again. The test is
//! `tests/engine/format.rs`. Bodies are text with a period, so that the repository keeps little of them.

#![allow(clippy::unwrap_used, reason = "a generator that a person runs")]

use std::{fs, ops::Range, path::Path, sync::Arc};

use bytes::Bytes;
use gabion_metadata::IndexOptions;
use gabion_platform::{DriverChoice, DriverOptions, OsEntropy, SystemClock, open_disk};
use gabion_segment::{LogConfig, LogTarget};
use gabion_store::{
    Attributes, CompleteUpload, CompletedPart, CopyMetadata, CopyObject, CopySource, CreateUpload, DeleteObject,
    EmbeddedIndex, Env, Etag, ObjectBody, PutObject, ReadConditions, Silent, Store, StoreConfig, TargetMode,
    UploadPart, UploadRef, WriteConditions,
};
use gabion_types::{BucketName, Geometry, ObjectKey, limits::BLOCK_BYTES};

/// Bodies repeat with this period, but for a number at its beginning.
const PERIOD_BYTES: usize = 4096;
/// The bucket that everything is in, and one that stays empty.
const BUCKET: &str = "fixture";
const EMPTY_BUCKET: &str = "fixture-empty";
/// What makes a directory a target.
const MEMBERS: &str = "gabion.json";

fn main() {
    let root = std::env::args().nth(1).expect("the directory to write");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let kind = std::env::args().nth(2).unwrap_or_default();
    let geometries = match &kind[..] {
        "compacted" => &["2+1"][..],
        "members" => &["1+1"],
        _ => &["4+2", "1+0"],
    };
    for geometry in geometries {
        let directory = Path::new(&root).join(geometry);
        assert!(!directory.exists(), "{} is there: a fixture is never written again", directory.display());
        let geometry = geometry.parse().unwrap();
        match &kind[..] {
            "compacted" => runtime.block_on(compacted(&directory, geometry)),
            "members" => runtime.block_on(members_lost(&directory, geometry)),
            _ => runtime.block_on(deployment(&directory, geometry)),
        }
    }
    // The last server of each deployment was not shut down, and is not now: its segments stay open, as after a kill.
    std::process::exit(0);
}

async fn deployment(root: &Path, geometry: Geometry) {
    let mut manifest = Vec::new();
    let (all, one_away) = (geometry.shards(), geometry.shards() - geometry.parity().min(1));

    let store = open(root, geometry, all).await;
    for bucket in [BUCKET, EMPTY_BUCKET] {
        store.create_bucket(BucketName::new(bucket).unwrap(), None).await.unwrap();
    }
    store.shutdown().await;
    drop(store);

    let store = open(root, geometry, all).await;
    put(&store, "dies/large", 1_100_000).await;
    for i in 0..40 {
        put(&store, &format!("dies/{i}"), 500).await;
    }
    store.shutdown().await;
    drop(store);

    // Their segments die, and then the segment of their deletions: the bucket's own creation is older, so the deletions are carried.
    let store = open(root, geometry, all).await;
    for name in (0..40).map(|i| format!("dies/{i}")).chain(["dies/large".to_owned()]) {
        delete(&store, &name).await;
    }
    put(&store, "dies/later", 20_000).await;
    store.shutdown().await;
    drop(store);
    let store = open(root, geometry, all).await;
    delete(&store, "dies/later").await;
    store.free_dead_segments().await.unwrap();
    assert!(store.metrics().mutations_carried.get() > 0, "deletions are carried");
    for size in [0, 1, 100, 4095, 4096, 4097, 20_000, 131_072, 131_073, 300_000, 600_000, 1_048_577] {
        manifest.push(put(&store, &format!("size/{size}"), size).await);
    }
    manifest.push(put(&store, "unicode/\u{e9}\u{4e2d}\u{1f980} +%/", 333).await);
    for i in 0..10 {
        put(&store, &format!("deleted/{i}"), 700 + i).await;
        put(&store, &format!("overwritten/{i}"), 700 + i).await;
    }
    for i in 0..10 {
        delete(&store, &format!("deleted/{i}")).await;
        manifest.push(put(&store, &format!("overwritten/{i}"), 2 * (700 + i)).await);
    }
    manifest.push(multipart(&store, "multipart", &[300_000, 1_048_577, 20_000, 7]).await);
    let open_upload = begin(&store, "never-completed").await;
    part(&store, &open_upload, 3, 5000).await;
    for name in ["size/100", "size/300000", "size/1048577", "multipart"] {
        let source = manifest.iter().find(|line| line.key == name).unwrap().clone();
        manifest.push(copy(&store, source).await);
    }
    store.shutdown().await;
    drop(store);

    if geometry.parity() > 0 {
        let store = open(root, geometry, one_away).await;
        for size in [1000, 200_000, 1_050_000] {
            let line = put(&store, &format!("one-target-away/{size}"), size).await;
            manifest.push(Line { one_away: true, ..line });
        }
        store.shutdown().await;
        drop(store);
    }

    let store = open(root, geometry, all).await;
    for size in [10, 6000, 150_000] {
        manifest.push(put(&store, &format!("not-sealed/{size}"), size).await);
    }
    store.checkpoint().await.unwrap();
    // Never dropped: that would end its lanes, as a shutdown does.
    std::mem::forget(store);
    write_manifest(root, &manifest);
}

/// What compaction leaves: rows that were moved, an object that was moved part by part, a snapshot of the index whose record was moved, holes.
async fn compacted(root: &Path, geometry: Geometry) {
    let mut manifest = Vec::new();
    let all = geometry.shards();
    let restarted = async |store: Store, punch_holes| {
        store.shutdown().await;
        drop(store);
        open_to_compact(root, geometry, all, punch_holes).await
    };
    let store = open_to_compact(root, geometry, all, false).await;
    for bucket in [BUCKET, EMPTY_BUCKET] {
        store.create_bucket(BucketName::new(bucket).unwrap(), None).await.unwrap();
    }
    for size in [0, 1, 4096, 20_000, 131_073, 1_048_577] {
        manifest.push(put(&store, &format!("size/{size}"), size).await);
        put(&store, &format!("dies/{size}"), size + 3000).await;
    }
    manifest.push(multipart(&store, "multipart", &[1000; 20]).await);
    let open_upload = begin(&store, "never-completed").await;
    part(&store, &open_upload, 3, 5000).await;
    for name in ["size/20000", "multipart"] {
        let source = manifest.iter().find(|line| line.key == name).unwrap().clone();
        manifest.push(copy(&store, source).await);
    }
    store.snapshot_index().await.unwrap().unwrap();
    for size in [0, 1, 4096, 20_000, 131_073, 1_048_577] {
        delete(&store, &format!("dies/{size}")).await;
    }
    let store = restarted(store, false).await;
    let moved = store.compact().await.unwrap();
    assert!(moved.rows_moved > 10 && moved.rows_failed == 0 && moved.victims_freed > 1, "{moved:?}");

    put(&store, "dies/hole", 1_100_000).await;
    manifest.push(put(&store, "beside-a-hole", 1_048_578).await);
    put(&store, "dies/hole", 1_100_001).await;
    delete(&store, "dies/hole").await;
    let store = restarted(store, true).await;
    let punched = store.compact().await.unwrap();
    assert!(punched.punched_bytes > 500_000, "{punched:?}");
    for size in [10, 6000, 150_000] {
        manifest.push(put(&store, &format!("not-sealed/{size}"), size).await);
    }
    store.checkpoint().await.unwrap();
    std::mem::forget(store);
    write_manifest(root, &manifest);
}

/// One target was lost and replaced, and nothing of it was built anew: all that was written before lies on the last target alone. Its first list of
/// members is kept, with which it is an older image of itself.
async fn members_lost(root: &Path, geometry: Geometry) {
    let mut manifest = Vec::new();
    let all = geometry.shards();
    let store = open(root, geometry, all).await;
    for bucket in [BUCKET, EMPTY_BUCKET] {
        store.create_bucket(BucketName::new(bucket).unwrap(), None).await.unwrap();
    }
    for size in (0..45).chain([4096, 20_000, 131_073]) {
        manifest.push(put(&store, &format!("size/{size}"), size).await);
    }
    let open_upload = begin(&store, "never-completed").await;
    part(&store, &open_upload, 3, 5000).await;
    store.shutdown().await;
    drop(store);
    fs::copy(root.join(format!("target-{}/{MEMBERS}", all - 1)), root.join("older-members.json")).unwrap();
    fs::remove_dir_all(root.join("target-0")).unwrap();

    let config = |config: &mut StoreConfig| config.repair_interval_ms = 0;
    let store = open_some(root, geometry, 1..all, config).await;
    let (lost, stays) = {
        let log = store.status().log;
        (log.missing_members[0], log.targets[all - 1].id)
    };
    store.target_replace(lost, target(root, 0, true), TargetMode::Apply).await.unwrap();
    // Another list, which says that the last one was had.
    store.target_undrain(stays, TargetMode::Apply).await.unwrap();
    for size in [10, 6000, 150_000] {
        manifest.push(put(&store, &format!("not-sealed/{size}"), size).await);
    }
    store.checkpoint().await.unwrap();
    std::mem::forget(store);
    write_manifest(root, &manifest);
}

fn write_manifest(root: &Path, manifest: &[Line]) {
    let mut text = "# key\tbytes\tcrc64nvme\ttag\tparts\twritten while the last target was away\n".to_owned();
    for line in manifest {
        text += &format!(
            "{}\t{}\t{:016x}\t{}\t{}\t{}\n",
            line.key, line.bytes, line.crc64, line.etag, line.parts, line.one_away
        );
    }
    fs::write(root.join("manifest.tsv"), text).unwrap();
}

/// What must be read.
#[derive(Clone)]
struct Line {
    key: String,
    bytes: usize,
    crc64: u64,
    etag: Etag,
    parts: usize,
    one_away: bool,
}

/// Opens the deployment with its first targets only.
async fn open(root: &Path, geometry: Geometry, present: usize) -> Store {
    open_some(root, geometry, 0..present, |_| {}).await
}

/// Opens it so that a round compacts whatever is not wholly live, and only when it is asked to.
async fn open_to_compact(root: &Path, geometry: Geometry, present: usize, punch_holes: bool) -> Store {
    open_some(root, geometry, 0..present, |config| {
        config.compaction.punch_holes = punch_holes;
        config.compaction.live_ratio_max = 1.0;
        config.compaction.interval_ms = 1 << 40;
        // So small that an object of twenty parts is moved part by part.
        config.move_bytes_max = 800;
    })
    .await
}

fn target(root: &Path, number: usize, is_there: bool) -> LogTarget {
    let path = root.join(format!("target-{number}"));
    let disk = is_there.then(|| {
        fs::create_dir_all(&path).unwrap();
        open_disk(&path, DriverChoice::Threads, DriverOptions::default(), None).unwrap().disk
    });
    LogTarget { name: format!("target {number}"), disk, failure_domain: format!("domain-{number}") }
}

async fn open_some(
    root: &Path,
    geometry: Geometry,
    present: Range<usize>,
    change: impl FnOnce(&mut StoreConfig),
) -> Store {
    let mut log = LogConfig::new(geometry);
    log.segment_payload_bytes = 1 << 20;
    log.stripe_payload_bytes = geometry.data() * BLOCK_BYTES;
    log.target_reserve_bytes = 0;
    (log.small_lanes, log.large_lanes) = (1, 1);
    let mut config = StoreConfig { part_bytes_min: 1, ..StoreConfig::new(log) };
    change(&mut config);
    let env = Env { clock: Arc::new(SystemClock), entropy: Arc::new(OsEntropy) };
    let factory = Box::new(EmbeddedIndex::new(root.join("index"), IndexOptions::default()));
    let targets = (0..geometry.shards()).map(|number| target(root, number, present.contains(&number))).collect();
    Store::open(config, targets, factory, env, Arc::new(Silent)).await.unwrap().0
}

/// Text that tells its object and its place.
fn body(name: &str, bytes: usize) -> Bytes {
    let text = format!(" {name} is a stone of Gabion's format fixture.");
    let mut period: Vec<u8> = text.bytes().cycle().take(PERIOD_BYTES).collect();
    let mut body = Vec::with_capacity(bytes + PERIOD_BYTES);
    for number in 0_u32.. {
        if body.len() >= bytes {
            break;
        }
        period[..8].copy_from_slice(format!("{number:08}").as_bytes());
        body.extend_from_slice(&period);
    }
    body.truncate(bytes);
    body.into()
}

fn bucket() -> BucketName {
    BucketName::new(BUCKET).unwrap()
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new(name).unwrap()
}

async fn put(store: &Store, name: &str, bytes: usize) -> Line {
    let body = body(name, bytes);
    let attributes = Attributes {
        content_type: Some("text/x-stone".into()),
        user: vec![("mason".into(), "gabion".into())],
        ..Attributes::default()
    };
    let request = PutObject { bucket: bucket(), key: key(name), attributes, conditions: WriteConditions::default() };
    let crc64 = gabion_erasure::crc64(&body);
    let put = store.put_object(request, ObjectBody::from_bytes(body)).await.unwrap();
    Line { key: name.to_owned(), bytes, crc64, etag: put.etag, parts: 0, one_away: false }
}

async fn delete(store: &Store, name: &str) {
    let request = DeleteObject::current(key(name));
    assert!(store.delete_object(bucket(), request).await.unwrap().existed);
}

async fn begin(store: &Store, name: &str) -> UploadRef {
    let request = CreateUpload { bucket: bucket(), key: key(name), attributes: Attributes::default(), checksum: None };
    UploadRef { bucket: bucket(), key: key(name), upload: store.create_upload(request).await.unwrap() }
}

async fn part(store: &Store, target: &UploadRef, part_number: u16, bytes: usize) -> (Bytes, CompletedPart) {
    let body = body(&format!("{}/{part_number}", target.key.as_str()), bytes);
    let request = UploadPart { target: target.clone(), part_number };
    let part = store.upload_part(request, ObjectBody::from_bytes(body.clone())).await.unwrap();
    (body, CompletedPart { part_number, etag: part.etag.to_string(), checksums: Vec::new() })
}

async fn multipart(store: &Store, name: &str, sizes: &[usize]) -> Line {
    let target = begin(store, name).await;
    let (mut whole, mut parts) = (Vec::new(), Vec::new());
    for (number, &bytes) in (1..).zip(sizes) {
        let (body, completed) = part(store, &target, number, bytes).await;
        whole.extend_from_slice(&body);
        parts.push(completed);
    }
    let request = CompleteUpload {
        target,
        parts,
        conditions: WriteConditions::default(),
        expected_size: None,
        checksum: None,
        checksum_kind: None,
        default_retention: None,
    };
    let etag = store.complete_upload(request).await.unwrap().etag;
    let crc64 = gabion_erasure::crc64(&whole);
    Line { key: name.to_owned(), bytes: whole.len(), crc64, etag, parts: sizes.len(), one_away: false }
}

async fn copy(store: &Store, source: Line) -> Line {
    let name = format!("copy/{}", source.key);
    let request = CopyObject {
        source: CopySource {
            bucket: bucket(),
            key: key(&source.key),
            version: None,
            conditions: ReadConditions::default(),
        },
        is_version_named: false,
        bucket: bucket(),
        key: key(&name),
        metadata: CopyMetadata::Copy { own: Box::default() },
        tags: None,
        owner: None,
        creator: None,
        acl: None,
        conditions: WriteConditions::default(),
        checksum_algorithm: None,
    };
    store.copy_object(request).await.unwrap();
    Line { key: name, ..source }
}
