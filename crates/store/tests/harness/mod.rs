//! A deployment on simulated disks that can crash, lose its index and come back.

pub mod counted;
pub mod truth;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::StreamExt;
use gabion_metadata::{
    Index, IndexError, MemoryIndex, ScanRange, Table, Write, keys as keys_of,
    rows::{Row, SegmentRow, may_be_rebuilt_as},
};
use gabion_platform::{Disk, Entropy, ManualClock, SeededEntropy, SimDisk, SimPower};
use gabion_segment::{LogConfig, LogTarget};
use gabion_store::{
    AppendObject, Attributes, CompleteUpload, CompletedPart, CopyMetadata, CopyObject, CopySource, DeleteObject, Env,
    GetObject, IndexFactory, ListObjects, ListedObjects, ObjectBody, OpenReport, PutObject, PutResult, RangeRequest,
    ReadConditions, RenameObject, Silent, Store, StoreConfig, StoreError, UploadRef, VerifyReport, WriteConditions,
};
use gabion_types::{BucketName, Geometry, ObjectKey, SegmentId, limits::BLOCK_BYTES};
use parking_lot::Mutex;

use counted::{CountedIndex, Interruption, ObjectsAskedFor, ScannedRows};

/// Time does not pass by itself; it begins here.
pub const START_MS: u64 = 1_750_000_000_000;

/// A deployment.
pub struct World {
    pub disks: Vec<SimDisk>,
    /// What all disks hang on.
    pub power: SimPower,
    pub index: Arc<SharedIndex>,
    pub clock: Arc<ManualClock>,
    pub config: StoreConfig,
    entropy: Arc<dyn Entropy>,
    crashes: u64,
}

/// How a store begins again.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Start {
    Restarted,
    Crashed,
    /// With an index that was made anew.
    Rebuilt,
}

impl Start {
    pub const ALL: [Self; 3] = [Self::Restarted, Self::Crashed, Self::Rebuilt];
}

/// An index in memory that outlives the store.
#[derive(Default)]
pub struct SharedIndex {
    pub current: Mutex<MemoryIndex>,
    /// Rows that the stores which opened it scanned.
    pub scanned: ScannedRows,
    pub asked_for: ObjectsAskedFor,
    pub interruption: Interruption,
}

struct Factory(Arc<SharedIndex>);

impl IndexFactory for Factory {
    fn open(&self) -> Result<Arc<dyn Index>, IndexError> {
        let (inner, held) = (self.0.current.lock().clone(), &self.0);
        let (scanned, asked_for) = (held.scanned.clone(), held.asked_for.clone());
        let interruption = held.interruption.clone();
        Ok(Arc::new(CountedIndex { inner, scanned, asked_for, interruption }))
    }

    fn destroy(&self) -> Result<(), IndexError> {
        *self.0.current.lock() = MemoryIndex::new();
        Ok(())
    }
}

/// Small segments and stripes, and nothing that happens by itself.
pub fn config(data: usize, parity: usize) -> StoreConfig {
    let mut log = LogConfig::new(Geometry::new(data, parity).unwrap());
    log.segment_payload_bytes = 4 << 20;
    log.stripe_payload_bytes = 2 * data * BLOCK_BYTES;
    log.small_lanes = 2;
    log.large_lanes = 2;
    log.target_reserve_bytes = 0;
    let mut config = StoreConfig::new(log);
    config.checkpoint_interval_ms = u64::MAX / 1_000_000;
    config.checkpoint_bytes = u64::MAX;
    config.index_snapshot_bytes = u64::MAX;
    config.index_snapshot_interval_h = 0;
    config.compaction.interval_ms = u64::MAX / 1_000_000;
    config.repair_interval_ms = 0;
    config.scrub_interval_h = 0;
    config.compaction.punch_holes = false;
    config.compaction.writers_wait_ms = 0;
    config.part_bytes_min = 10;
    config
}

impl World {
    pub fn new(seed: u64, config: StoreConfig) -> Self {
        let shards = config.log.geometry.shards() as u64;
        let power = SimPower::new();
        Self {
            disks: (0..shards).map(|disk| SimDisk::powered(seed * 1000 + disk, &power)).collect(),
            power,
            index: Arc::default(),
            clock: Arc::new(ManualClock::new(START_MS)),
            config,
            entropy: Arc::new(SeededEntropy::new(seed)),
            crashes: seed,
        }
    }

    /// A stopped deployment without parity and without its index: objects "00" to "19" in a bucket, of which the stripe of "04" can not be read.
    pub async fn with_a_lost_stripe(seed: u64) -> Self {
        let mut config = config(1, 0);
        config.log.small_lanes = 1;
        let mut world = Self::new(seed, config);
        let store = world.open().await;
        store.create_bucket(bucket("bucket"), None).await.unwrap();
        // A stripe of 4 KiB each: header, record, data.
        for i in 0..20 {
            put(&store, "bucket", &format!("{i:02}"), &bytes(i, 1000)).await;
        }
        let path = world.disks[0].paths().into_iter().find(|path| path.starts_with("segments/")).unwrap();
        // The next start seals the segment: its end is known whatever is damaged before it.
        let store = world.restart(store).await;
        store.shutdown().await;
        drop(store);
        // They come after the file's header of 4 KiB; the first is the bucket's. That of "04" is damaged behind its header.
        let stripe_of_04 = 4096 * (1 + 5);
        (200..400).step_by(20).for_each(|at| world.disks[0].corrupt(&path, stripe_of_04 + at));
        world.lose_index();
        world
    }

    pub fn env(&self) -> Env {
        Env { clock: Arc::clone(&self.clock) as _, entropy: Arc::clone(&self.entropy) }
    }

    pub fn targets(&self) -> Vec<LogTarget> {
        let target = |(number, disk): (usize, &SimDisk)| LogTarget {
            name: format!("disk {number}"),
            disk: Some(Arc::new(disk.clone()) as Arc<dyn Disk>),
            failure_domain: format!("domain {number}"),
        };
        self.disks.iter().enumerate().map(target).collect()
    }

    pub fn factory(&self) -> Box<dyn IndexFactory> {
        Box::new(Factory(Arc::clone(&self.index)))
    }

    /// A store on these disks, each with its number, as `wrap` has them.
    pub async fn open_on(&self, wrap: impl Fn(usize, &SimDisk) -> Arc<dyn Disk>) -> Store {
        let mut targets = self.targets();
        for (number, target) in targets.iter_mut().enumerate() {
            target.disk = Some(wrap(number, &self.disks[number]));
        }
        self.open_targets(targets).await.unwrap().0
    }

    pub async fn try_open(&self) -> Result<(Store, OpenReport), StoreError> {
        self.open_targets(self.targets()).await
    }

    async fn open_targets(&self, targets: Vec<LogTarget>) -> Result<(Store, OpenReport), StoreError> {
        Store::open(self.config.clone(), targets, self.factory(), self.env(), Arc::new(Silent)).await
    }

    /// Compares the index with one that is built anew.
    pub async fn verify(&self) -> VerifyReport {
        let scratch = Box::new(Factory(Arc::default()));
        let (config, targets, env) = (self.config.clone(), self.targets(), self.env());
        Store::verify_index(config, targets, self.factory(), scratch, env, Arc::new(Silent)).await.unwrap()
    }

    pub async fn open(&self) -> Store {
        self.try_open().await.unwrap().0
    }

    /// Power loss: disks lose what was not synced, the index all but `keep_commits` commits after its last persist.
    pub async fn crash(&mut self, store: Store, keep_commits: usize) {
        self.crashes += 1;
        for (number, disk) in self.disks.iter_mut().enumerate() {
            disk.crash(self.crashes * 100 + number as u64);
            *disk = disk.reopen();
        }
        self.power.restore();
        drop(store);
        let index = self.index.current.lock().clone();
        index.crash(keep_commits);
        *self.index.current.lock() = fork(&index);
        // What is left of the old store finds its disks gone and ends.
        for _ in 0..200 {
            tokio::task::yield_now().await;
        }
    }

    pub async fn crash_and_open(&mut self, store: Store, keep_commits: usize) -> Store {
        self.crash(store, keep_commits).await;
        self.open().await
    }

    pub async fn restart(&mut self, store: Store) -> Store {
        store.shutdown().await;
        drop(store);
        self.open().await
    }

    /// Begins again, in this way.
    pub async fn begin_again(&mut self, store: Store, start: Start) -> Store {
        match start {
            Start::Restarted => self.restart(store).await,
            Start::Crashed => self.crash_and_open(store, 0).await,
            Start::Rebuilt => self.rebuild(store).await,
        }
    }

    /// Makes the index anew, of what the store leaves.
    pub async fn rebuild(&self, store: Store) -> Store {
        store.shutdown().await;
        drop(store);
        let (config, targets, factory, env) = (self.config.clone(), self.targets(), self.factory(), self.env());
        Store::rebuild_index(config, targets, factory, env, Arc::new(Silent)).await.unwrap();
        truth::check_counters(&self.index.current.lock());
        self.open().await
    }

    /// The targets come back, and it is time to ask those that failed whether they work again.
    pub fn restore_power(&self) {
        self.power.restore();
        self.clock.advance(Duration::from_secs(60));
    }

    pub fn lose_index(&self) {
        *self.index.current.lock() = MemoryIndex::new();
    }

    /// All rows but those that say how far the index got.
    pub fn rows(&self) -> Vec<(Table, Vec<u8>, Vec<u8>)> {
        let tables = Table::ALL.into_iter().filter(|table| !matches!(table, Table::System | Table::Segment));
        let mut rows: Vec<_> = tables.flat_map(|table| self.rows_of(table)).collect();
        rows.extend(self.snapshot_row().map(|row| (Table::System, b"snapshot".to_vec(), row)));
        rows
    }

    /// The index that was made of the log is the one that there was.
    #[track_caller]
    pub fn check_rebuilt(&self, before: &[(Table, Vec<u8>, Vec<u8>)]) {
        let rebuilt = self.rows();
        let keys = |rows: &[(Table, Vec<u8>, Vec<u8>)]| -> Vec<_> {
            rows.iter().map(|(table, key, _)| (*table, key.clone())).collect()
        };
        assert_eq!(keys(&rebuilt), keys(before));
        for ((table, key, rebuilt), (_, _, before)) in rebuilt.iter().zip(before) {
            assert!(may_be_rebuilt_as(*table, before, rebuilt), "{table:?} {key:?}: {before:?} became {rebuilt:?}");
        }
    }

    /// The rows of segments.
    pub fn segment_rows(&self) -> BTreeMap<SegmentId, SegmentRow> {
        let rows = self.rows_of(Table::Segment).into_iter();
        rows.map(|(_, key, row)| (keys_of::decode_segment(&key).unwrap(), SegmentRow::decode(&row).unwrap())).collect()
    }

    /// The row of the newest snapshot.
    pub fn snapshot_row(&self) -> Option<Vec<u8>> {
        let row = self.index.current.lock().get(Table::System, &keys_of::system("snapshot")).unwrap();
        row.map(|row| row.to_vec())
    }

    fn rows_of(&self, table: Table) -> Vec<(Table, Vec<u8>, Vec<u8>)> {
        let index = self.index.current.lock().clone();
        let rows = index.scan(ScanRange::all(table), usize::MAX).unwrap();
        rows.into_iter().map(|(key, row)| (table, key, row.to_vec())).collect()
    }
}

/// A copy that shares nothing with the original.
pub fn fork(index: &MemoryIndex) -> MemoryIndex {
    let copy = MemoryIndex::new();
    for table in Table::ALL {
        let rows = index.scan(ScanRange::all(table), usize::MAX).unwrap();
        let writes = rows.into_iter().map(|(key, row)| Write::Put(table, key, row.to_vec()));
        copy.commit(&[], writes.collect()).unwrap();
    }
    copy.persist().unwrap();
    copy
}

pub fn bucket(name: &str) -> BucketName {
    BucketName::new(name).unwrap()
}

pub fn key(name: &str) -> ObjectKey {
    ObjectKey::new(name).unwrap()
}

/// Bytes that differ by seed and place.
pub fn bytes(seed: u64, len: usize) -> Bytes {
    let mut out = vec![0; len];
    SeededEntropy::new(seed).fill(&mut out);
    out.into()
}

pub fn put_request(bucket_name: &str, name: &str) -> PutObject {
    PutObject {
        bucket: bucket(bucket_name),
        key: key(name),
        attributes: Attributes::default(),
        conditions: WriteConditions::default(),
    }
}

/// A copy of an object in the bucket `bucket`, with all that it has.
/// Of an upload, without conditions or checksums.
pub fn complete_request(target: UploadRef, parts: Vec<CompletedPart>) -> CompleteUpload {
    CompleteUpload {
        target,
        parts,
        conditions: WriteConditions::default(),
        expected_size: None,
        checksum: None,
        checksum_kind: None,
        default_retention: None,
    }
}

pub fn copy_request(from: &str, to: &str) -> CopyObject {
    CopyObject {
        source: CopySource {
            bucket: bucket("bucket"),
            key: key(from),
            version: None,
            conditions: ReadConditions::default(),
        },
        is_version_named: false,
        bucket: bucket("bucket"),
        key: key(to),
        metadata: CopyMetadata::Copy { own: Box::default() },
        tags: None,
        owner: None,
        creator: None,
        acl: None,
        conditions: WriteConditions::default(),
        checksum_algorithm: None,
    }
}

/// A store on three targets with one bucket, whose compaction takes every segment of which anything is dead.
pub async fn compacting(seed: u64) -> (World, Store) {
    let mut world = World::new(seed, config(2, 1));
    world.config.compaction.live_ratio_max = 1.0;
    let store = world.open().await;
    store.create_bucket(bucket("bucket"), None).await.unwrap();
    (world, store)
}

/// Whether what stands on a request of unknown outcome was refused for that.
pub fn was_refused_as_unknown(outcome: &Result<(), StoreError>) -> bool {
    match outcome {
        Ok(()) => false,
        Err(StoreError::Unavailable(why)) => why.contains("unknown") || panic!("{why}"),
        Err(error) => panic!("{error:?}"),
    }
}

pub async fn put(store: &Store, bucket: &str, name: &str, body: &Bytes) -> PutResult {
    store.put_object(put_request(bucket, name), ObjectBody::from_bytes(body.clone())).await.unwrap()
}

pub async fn read(store: &Store, request: GetObject) -> Result<Bytes, StoreError> {
    let mut read = store.get_object(request).await?;
    let mut out = Vec::new();
    while let Some(bytes) = read.body.next().await {
        out.extend_from_slice(&bytes?);
    }
    assert_eq!(out.len() as u64, read.len);
    Ok(out.into())
}

pub async fn get(store: &Store, bucket_name: &str, name: &str) -> Result<Bytes, StoreError> {
    read(store, GetObject::whole(bucket(bucket_name), key(name))).await
}

pub async fn get_range(store: &Store, bucket_name: &str, name: &str, range: RangeRequest) -> Result<Bytes, StoreError> {
    let whole = GetObject::whole(bucket(bucket_name), key(name));
    read(store, GetObject { range: Some(range), ..whole }).await
}

pub async fn delete(store: &Store, bucket_name: &str, name: &str) -> bool {
    let request = DeleteObject::current(key(name));
    store.delete_object(bucket(bucket_name), request).await.unwrap().existed
}

/// Appends to an object of the bucket `bucket`, where it ends or is said to end.
pub async fn append(store: &Store, name: &str, offset_bytes: u64, body: &Bytes) -> Result<PutResult, StoreError> {
    let object = put_request("bucket", name);
    store.append_object(AppendObject { object, offset_bytes }, ObjectBody::from_bytes(body.clone())).await
}

/// Gives an object of the bucket `bucket` another key.
pub fn rename_request(from: &str, to: &str) -> RenameObject {
    RenameObject {
        bucket: bucket("bucket"),
        from: key(from),
        to: key(to),
        source_conditions: ReadConditions::default(),
        target_conditions: ReadConditions::default(),
        client_token: None,
        customer: None,
    }
}

pub async fn put_object_tags(
    store: &Store,
    bucket: BucketName,
    key: ObjectKey,
    tags: Vec<(String, String)>,
) -> Result<(), StoreError> {
    let change = |attributes: &mut Attributes| {
        attributes.tags = tags;
        Ok(())
    };
    store.update_attributes(bucket, key, None, change).await.map(|_| ())
}

pub async fn list_all(store: &Store, bucket_name: &str) -> ListedObjects {
    let request = ListObjects {
        bucket: bucket(bucket_name),
        prefix: String::new(),
        delimiter: None,
        after: None,
        max: usize::MAX - 1,
    };
    store.list_objects(request).await.unwrap()
}

pub async fn keys(store: &Store, bucket_name: &str) -> Vec<String> {
    list_all(store, bucket_name).await.entries.into_iter().map(|entry| entry.key).collect()
}
