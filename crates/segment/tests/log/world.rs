//! Simulated machines: disks that outlive the process, and processes that end in every way.

use std::future::Future;
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use gabion_erasure::crc64;
use gabion_platform::{Clock, Disk, Entropy, ManualClock, SeededEntropy, SimDisk};
use gabion_segment::{
    Committed, Env, KnownSegment, Log, LogConfig, LogError, LogTarget, NewRecord, Recovery, StripeBuffer,
};
use gabion_types::{Extent, Geometry};

use crate::book::Book;

pub(crate) struct World {
    pub(crate) disks: Vec<SimDisk>,
    /// Targets that are not there at the moment.
    pub(crate) absent: Vec<usize>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) config: LogConfig,
    seed: u64,
    life: u64,
}

impl World {
    pub(crate) fn new(geometry: &str, seed: u64) -> Self {
        let geometry: Geometry = geometry.parse().unwrap();
        Self::with_disks(geometry, geometry.shards(), seed)
    }

    pub(crate) fn with_disks(geometry: Geometry, disks: usize, seed: u64) -> Self {
        let mut config = LogConfig::new(geometry);
        config.small_lanes = 1;
        config.large_lanes = 1;
        config.stripe_payload_bytes = geometry.data() * 4 * 65_536;
        config.segment_payload_bytes = geometry.data() as u64 * (3 << 20);
        config.target_reserve_bytes = 1 << 20;
        Self {
            disks: (0..disks as u64).map(|disk| SimDisk::new(seed.wrapping_mul(31).wrapping_add(disk))).collect(),
            absent: Vec::new(),
            clock: Arc::new(ManualClock::new(1_700_000_000_000)),
            config,
            seed,
            life: 0,
        }
    }

    pub(crate) fn targets(&self) -> Vec<LogTarget> {
        self.disks
            .iter()
            .enumerate()
            .map(|(number, disk)| LogTarget {
                name: format!("disk{number}"),
                disk: (!self.absent.contains(&number)).then(|| Arc::new(disk.clone()) as Arc<dyn Disk>),
                failure_domain: format!("domain{number}"),
            })
            .collect()
    }

    pub(crate) fn env(&mut self) -> Env {
        self.life += 1;
        let entropy = SeededEntropy::new(self.seed.wrapping_mul(1_000_003).wrapping_add(self.life));
        Env { clock: Arc::clone(&self.clock) as Arc<dyn Clock>, entropy: Arc::new(entropy) as Arc<dyn Entropy> }
    }

    pub(crate) async fn open(&mut self, known: Vec<KnownSegment>) -> Result<(Log, Recovery), LogError> {
        let env = self.env();
        Log::open(self.config.clone(), self.targets(), known, env).await
    }

    /// Opens, replays into `book`, starts.
    pub(crate) async fn start(&mut self, book: &Arc<Book>) -> (Log, Recovery) {
        self.start_on(self.targets(), book).await
    }

    /// The same on other targets.
    pub(crate) async fn start_on(&mut self, targets: Vec<LogTarget>, book: &Arc<Book>) -> (Log, Recovery) {
        let opened = Log::open(self.config.clone(), targets, book.known(), self.env());
        let (log, recovery) = opened.await.unwrap();
        book.replay(&log, &recovery).await;
        log.start(Arc::clone(book) as Arc<dyn gabion_segment::Applier>);
        (log, recovery)
    }

    /// Power loss on all disks: what was not synced is kept, lost or torn.
    pub(crate) fn crash(&mut self, seed: u64) {
        for (number, disk) in self.disks.iter_mut().enumerate() {
            disk.crash(seed.wrapping_mul(1009).wrapping_add(number as u64));
            *disk = disk.reopen();
        }
    }

    /// The disks, to lose power in the middle of a future that borrows the world; [`World::reopen`] comes after.
    pub(crate) fn power(&self) -> Power {
        Power(self.disks.clone())
    }

    /// A new process gets its handles.
    pub(crate) fn reopen(&mut self) {
        for disk in &mut self.disks {
            *disk = disk.reopen();
        }
    }

    /// The process dies; nothing is lost.
    pub(crate) fn kill(&mut self) {
        for disk in &mut self.disks {
            disk.kill();
            *disk = disk.reopen();
        }
    }

    /// Flips a bit in the shard file of `shard` of the segment of `extent`, at `offset` in its stripe.
    pub(crate) fn rot(&self, extent: &Extent, shard: usize, offset: u64) {
        let suffix = format!("{}.{shard:03}", extent.segment);
        let (disk, path) = self.find(&suffix).expect("the shard is somewhere");
        disk.corrupt(&path, extent.stripe_offset + offset);
    }

    /// The disk and path of the file whose path ends so.
    pub(crate) fn find(&self, suffix: &str) -> Option<(&SimDisk, String)> {
        self.disks.iter().find_map(|disk| {
            let path = disk.paths().into_iter().find(|path| path.ends_with(suffix))?;
            Some((disk, path))
        })
    }

    /// Paths of all shard files on all disks.
    pub(crate) fn shard_files(&self) -> Vec<String> {
        let paths = self.disks.iter().flat_map(|disk| disk.paths());
        paths.filter(|path| path.starts_with("segments/")).collect()
    }
}

/// The power supply of all disks.
pub(crate) struct Power(Vec<SimDisk>);

impl Power {
    /// Power loss after this many steps.
    pub(crate) async fn fails_after(self, count: u64, seed: u64) {
        steps(count).await;
        for (number, disk) in self.0.iter().enumerate() {
            disk.crash(seed.wrapping_mul(1009).wrapping_add(number as u64));
        }
    }
}

/// Runs one life of a process: whatever it started dies with it. One task is polled at a time, so that [`steps`] are short.
pub(crate) fn life<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .event_interval(1)
        .build()
        .unwrap()
        .block_on(work)
}

/// The same where threads are waited for: a clock that stands still runs ahead meanwhile.
pub(crate) fn life_with_threads<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(work)
}

/// Polls other tasks this often.
pub(crate) async fn steps(count: u64) {
    for _ in 0..count {
        tokio::task::yield_now().await;
    }
}

/// The mutation of object `name` with `len` bytes; it says what its data is.
pub(crate) fn mutation(name: u64, len: usize) -> String {
    format!("put {name} {len}")
}

/// The data that belongs to a mutation.
pub(crate) fn data_of(mutation: &str) -> Vec<u8> {
    let mut words = mutation.split(' ').skip(1).map(|word| word.parse::<u64>().unwrap_or(0));
    let (name, len) = (words.next().unwrap_or(0), words.next().unwrap_or(0));
    pattern(name, len as usize)
}

/// `len` bytes that depend on `seed` and their place: cut out of one long noise, since tests compare gigabytes.
pub(crate) fn pattern(seed: u64, len: usize) -> Vec<u8> {
    static NOISE: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let mut noise = vec![0; 4 << 20];
        SeededEntropy::new(1).fill(&mut noise);
        noise
    });
    let start = (seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 43) as usize;
    NOISE[start..start + len].to_vec()
}

pub(crate) fn record(name: u64, len: usize) -> NewRecord {
    let mutation = mutation(name, len);
    let data = data_of(&mutation);
    let data_crc64 = if data.is_empty() { 0 } else { crc64(&data) };
    let data = if data.is_empty() { Vec::new() } else { vec![Bytes::from(data)] };
    NewRecord { mutation: Bytes::from(mutation), data, data_crc64 }
}

pub(crate) async fn put(log: &Log, name: u64, len: usize) -> Result<Committed, LogError> {
    log.commit(record(name, len)).await
}

pub(crate) async fn append(log: &Log, seed: u64, len: usize) -> Result<Extent, LogError> {
    let mut buffer: StripeBuffer = log.stripe_buffer().await?;
    assert_eq!(buffer.put(&pattern(seed, len)), len);
    log.append(buffer).await
}

pub(crate) async fn read(log: &Log, extent: &Extent, range: std::ops::Range<u32>) -> Result<Vec<u8>, LogError> {
    Ok(log.read(extent, range).await?.concat())
}
