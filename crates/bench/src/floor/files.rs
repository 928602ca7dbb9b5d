//! The floor of the drives: the writes and syncs of the log, and its reads, without the log.
//!
//! A small stripe holds what all clients have to write, so that as many objects as there are clients become durable with each step; a large one is
//! at most as long as that of the log, and an object has as many as there, all alike. Nothing is coded, checked or remembered. Files are as long as shards of such segments are, and follow one another. They go when the measurement is over and not before: a
//! drive may be faster where the same blocks are written again and again, which the log does not do.

use std::{io, sync::Arc};

use anyhow::Context;
use bytes::Bytes;
use futures::future::try_join_all;
use gabion_platform::{CachedWriter, Disk, DiskFile, Durable};
use gabion_segment::{Durability, IN_A_ROW_BYTES_MAX, LaneKind, LogConfig, stored_bytes};
use gabion_types::limits::{CHUNK_ALIGN_BYTES, INLINE_BYTES_MAX};
use tokio::{
    runtime::Runtime,
    sync::{mpsc, oneshot},
    task::JoinSet,
};

use super::{FloorArgs, Layer, Measurement, Round, Subject, goes_on, place::Place, run_all, runtime};
use crate::{
    clock::Stamp,
    content::Random,
    stats::{Done, Kind, Stats},
    workload::{Action, End},
};

/// Bytes of an object's record beside its data.
const RECORD_BYTES: u64 = 256;
/// Length of a file that one block after the other is written to, in bytes: it has so few extents that ext4 needs no tree for them.
const DATA_SYNC_FILE_BYTES: u64 = 112 << 20;

/// How the log would write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Pattern {
    /// Files that are written for each stripe.
    shards: usize,
    lanes: usize,
    /// Length of a file, in bytes.
    shard_bytes: u64,
    /// Bytes written to each file at once.
    chunk_bytes: u64,
    /// Objects that a step of a lane makes durable, or, if it takes several steps, how many.
    objects_per_step: u64,
    steps_per_object: u64,
    /// Bytes of a read, and how many make up an object.
    read_bytes: u64,
    reads_per_object: usize,
}

impl Pattern {
    fn new(args: &FloorArgs, durability: Durability) -> Self {
        let config = LogConfig { durability, ..LogConfig::new(args.geometry) };
        let (size, data, clients) = (args.size, args.geometry.data() as u64, u64::from(args.concurrency));
        let shards = args.geometry.shards();
        if size <= INLINE_BYTES_MAX as u64 {
            let objects_max = (config.batch_records_max as u64).min(config.batch_bytes_max as u64 / size);
            let objects = clients.clamp(1, objects_max.max(1));
            Self {
                shards,
                // As the log has it where one batch takes all: lanes that sync at the same time take longer (docs/MEASUREMENTS.md, "Floors behind HTTP").
                lanes: 1,
                shard_bytes: config.shard_bytes_full(LaneKind::Small),
                chunk_bytes: small_chunk_bytes(objects, data, size),
                objects_per_step: objects,
                steps_per_object: 1,
                read_bytes: size,
                reads_per_object: 1,
            }
        } else {
            // All alike, so that together they hold an object and hardly more.
            let steps = size.div_ceil(config.stripe_payload_bytes as u64);
            let stripe_bytes = size.div_ceil(steps);
            Self {
                shards,
                lanes: config.large_lanes.min(args.concurrency as usize),
                shard_bytes: config.shard_bytes_full(LaneKind::Large),
                chunk_bytes: stored_bytes(data as usize, stripe_bytes.div_ceil(data) as usize) as u64,
                objects_per_step: 1,
                steps_per_object: steps,
                read_bytes: stripe_bytes.div_ceil(data),
                reads_per_object: usize::try_from(steps * data).unwrap_or(usize::MAX),
            }
        }
    }
}

/// Bytes of a chunk in its file: those of a stripe of small objects, of which each data shard has its part.
fn small_chunk_bytes(objects: u64, data_shards: u64, size: u64) -> u64 {
    stored_bytes(data_shards as usize, (objects.div_ceil(data_shards) * (size + RECORD_BYTES)) as usize) as u64
}

/// Files on the targets.
pub(super) struct FileFloor {
    durability: Durability,
    runtime: Runtime,
    pattern: Pattern,
    disks: Vec<Arc<dyn Disk>>,
    /// Files to read from, one on each target, and their length.
    read_from: Option<(Vec<Arc<dyn DiskFile>>, u64)>,
    objects: u64,
    _place: Place,
}

impl FileFloor {
    /// # Errors
    /// When a target can not be used.
    pub(super) fn open(args: &FloorArgs, durability: Durability) -> anyhow::Result<Self> {
        let place = Place::make(args, &format!("files-{durability}"))?;
        let runtime = runtime()?;
        let disks = place.disks()?.into_iter().map(|(_, disk)| disk).collect();
        Ok(Self {
            durability,
            runtime,
            pattern: Pattern::new(args, durability),
            disks,
            read_from: None,
            objects: args.objects(),
            _place: place,
        })
    }

    /// Writes the files that are read: as many bytes as the objects have.
    async fn fill(&self) -> anyhow::Result<(Vec<Arc<dyn DiskFile>>, u64)> {
        let Pattern { read_bytes, reads_per_object, .. } = self.pattern;
        let bytes = self.objects * read_bytes * reads_per_object as u64 / self.disks.len() as u64;
        let bytes = bytes.max(2 * read_bytes).next_multiple_of(CHUNK_ALIGN_BYTES as u64);
        let block = Bytes::from(vec![0x5a; 1 << 20]);
        let mut files = Vec::new();
        for disk in &self.disks {
            let file = disk.create("read", 0).await?;
            let mut offset = 0;
            while offset < bytes {
                let len = usize::try_from((bytes - offset).min(block.len() as u64)).expect("at most a MiB");
                file.write_at(offset, vec![block.slice(..len)], Durable::No).await?;
                offset += len as u64;
            }
            file.sync().await?;
            files.push(file);
        }
        Ok((files, bytes))
    }
}

impl Subject for FileFloor {
    fn name(&self) -> String {
        format!("files without log ({})", self.durability)
    }

    fn layer(&self) -> Layer {
        Layer::Files(self.durability)
    }

    fn measure(&mut self, measurement: Measurement) -> anyhow::Result<Option<Round>> {
        if !matches!(measurement.action, Action::Put | Action::Get) {
            return Ok(None);
        }
        if measurement.action == Action::Get && self.read_from.is_none() {
            self.read_from = Some(self.runtime.block_on(self.fill()).context("writing what is to be read")?);
        }
        self.runtime.block_on(async {
            if measurement.action == Action::Put {
                return write_all(self.pattern, self.durability, &self.disks, measurement).await.map(Some);
            }
            let Some((files, bytes)) = &self.read_from else { return Ok(None) };
            let start = Stamp::now().plus(measurement.warmup);
            let readers = (0..measurement.concurrency).map(|number| {
                let reader = Reader { files: files.clone(), bytes: *bytes, pattern: self.pattern };
                reader.run(measurement, start, number as u64)
            });
            run_all(readers, start).await.map(Some)
        })
    }
}

/// Puts by all lanes. They are timed from when their first files are there: to make these is not what is measured, and may take longer.
async fn write_all(
    pattern: Pattern,
    durability: Durability,
    disks: &[Arc<dyn Disk>],
    measurement: Measurement,
) -> anyhow::Result<Round> {
    let lanes = (0..pattern.lanes).map(|number| Series::begin(number, pattern, durability, disks.to_vec()));
    let lanes = try_join_all(lanes).await?;
    let start = Stamp::now().plus(measurement.warmup);
    run_all(lanes.into_iter().map(|series| write_stripes(series, measurement, start)), start).await
}

/// The files that a lane writes to, one on each target, which follow one another.
struct Series {
    number: usize,
    pattern: Pattern,
    durable: Durable,
    /// Writes small chunks that nobody waits for the drive with.
    in_a_row: Option<CachedWriter>,
    disks: Vec<Arc<dyn Disk>>,
    /// How many there were on each target, with those that are written to.
    count: usize,
    files: Vec<Arc<dyn DiskFile>>,
    offset: u64,
}

impl Series {
    async fn begin(
        number: usize,
        pattern: Pattern,
        durability: Durability,
        disks: Vec<Arc<dyn Disk>>,
    ) -> anyhow::Result<Self> {
        let durable = if durability == Durability::Sync { Durable::Yes } else { Durable::No };
        let is_short = pattern.chunk_bytes * pattern.shards as u64 <= IN_A_ROW_BYTES_MAX as u64;
        let in_a_row = (durable == Durable::No && is_short).then(CachedWriter::new);
        let mut this = Self { number, pattern, durable, in_a_row, disks, count: 0, files: Vec::new(), offset: 0 };
        this.next().await?;
        Ok(this)
    }

    async fn next(&mut self) -> anyhow::Result<()> {
        self.count += 1;
        let mut files = Vec::new();
        for disk in &self.disks[..self.pattern.shards] {
            files.push(disk.create(&self.path(self.count), self.pattern.shard_bytes).await?);
        }
        // Not before all are there: else the next chunk would be written to fewer.
        (self.files, self.offset) = (files, 0);
        Ok(())
    }

    /// Writes the chunk to all files, and waits for the last.
    async fn write(&mut self, chunk: &Bytes) -> anyhow::Result<()> {
        if self.offset + chunk.len() as u64 > self.pattern.shard_bytes {
            self.next().await?;
        }
        let files = self.files.iter();
        let in_a_row = self.in_a_row.as_ref().and_then(|writer| {
            let writes = files.clone().map(|file| file.cached_write(self.offset, vec![chunk.clone()]));
            Some(writer.write(writes.collect::<Option<Vec<_>>>()?))
        });
        match in_a_row {
            Some(writes) => writes.await?.into_iter().collect::<io::Result<()>>()?,
            None => {
                let writes = files.map(|file| file.write_at(self.offset, vec![chunk.clone()], self.durable));
                try_join_all(writes).await?;
            }
        }
        self.offset += chunk.len() as u64;
        Ok(())
    }

    fn path(&self, file: usize) -> String {
        format!("lane-{}-{file}", self.number)
    }

    /// Removes them all.
    async fn remove(mut self) -> anyhow::Result<()> {
        self.files.clear();
        for file in 1..=self.count {
            for disk in &self.disks[..self.pattern.shards] {
                disk.unlink(&self.path(file)).await?;
            }
        }
        Ok(())
    }
}

/// One writer: a stripe at a time.
async fn write_stripes(mut series: Series, measurement: Measurement, start: Stamp) -> anyhow::Result<Stats> {
    let mut stats = Stats::within(start, End::At(start.plus(measurement.duration)));
    let end = start.plus(measurement.duration);
    let pattern = series.pattern;
    let chunk = Bytes::from(vec![0x5a; usize::try_from(pattern.chunk_bytes)?]);
    while goes_on(end) {
        let begin = Stamp::now();
        for _ in 0..pattern.steps_per_object {
            series.write(&chunk).await?;
        }
        let now = Stamp::now();
        for _ in 0..pattern.objects_per_step {
            stats.record(Kind::Put, begin, now, Ok(Done::bytes(measurement.size_bytes)));
        }
    }
    series.remove().await?;
    stats.reached_end();
    Ok(stats.finish())
}

/// Small objects that come one by one, and are written by a lane: as many together as came while it wrote others.
pub(super) struct Batches {
    waiting: mpsc::UnboundedSender<Waiting>,
}

/// One that is told what became of its object.
type Waiting = oneshot::Sender<Result<(), String>>;

impl Batches {
    /// Starts the lane. It ends with this.
    ///
    /// # Errors
    /// When a target can not be used.
    pub(super) async fn start(
        args: &FloorArgs,
        durability: Durability,
        disks: &[Arc<dyn Disk>],
    ) -> anyhow::Result<Self> {
        let pattern = Pattern::new(args, durability);
        let (waiting, queue) = mpsc::unbounded_channel();
        let series = Series::begin(0, pattern, durability, disks.to_vec()).await?;
        tokio::spawn(write_batches(series, queue, args.size, args.geometry.data() as u64));
        Ok(Self { waiting })
    }

    /// Returns when an object is written.
    ///
    /// # Errors
    /// When it could not be.
    pub(super) async fn put(&self) -> anyhow::Result<()> {
        let (waiting, outcome) = oneshot::channel();
        self.waiting.send(waiting).ok().context("its lane has ended")?;
        outcome.await.context("its lane has ended")?.map_err(anyhow::Error::msg)
    }
}

/// A lane of [`Batches`], until there will be no more of them.
async fn write_batches(mut series: Series, mut queue: mpsc::UnboundedReceiver<Waiting>, size: u64, data_shards: u64) {
    let Pattern { chunk_bytes, objects_per_step, .. } = series.pattern;
    let chunk = Bytes::from(vec![0x5a; chunk_bytes as usize]);
    let mut batch = Vec::new();
    loop {
        if queue.recv_many(&mut batch, objects_per_step as usize).await == 0 {
            return;
        }
        let bytes = small_chunk_bytes(batch.len() as u64, data_shards, size);
        let outcome = series.write(&chunk.slice(..bytes as usize)).await.map_err(|error| format!("{error:#}"));
        for waiting in batch.drain(..) {
            // A client that has gone does not wait.
            let _ = waiting.send(outcome.clone());
        }
    }
}

/// One client that reads objects at random places.
struct Reader {
    files: Vec<Arc<dyn DiskFile>>,
    bytes: u64,
    pattern: Pattern,
}

impl Reader {
    async fn run(self, measurement: Measurement, start: Stamp, number: u64) -> anyhow::Result<Stats> {
        let mut stats = Stats::within(start, End::At(start.plus(measurement.duration)));
        let mut random = Random::new(number + 1);
        let end = start.plus(measurement.duration);
        let len = usize::try_from(self.pattern.read_bytes)?;
        let places = (self.bytes - self.pattern.read_bytes) / CHUNK_ALIGN_BYTES as u64 + 1;
        while goes_on(end) {
            let begin = Stamp::now();
            let mut rest = self.pattern.reads_per_object;
            while rest > 0 {
                let together = rest.min(self.files.len());
                let mut reads = JoinSet::new();
                for index in 0..together {
                    let file = if together == 1 { random.below(self.files.len()) } else { index };
                    let offset = random.next() % places * CHUNK_ALIGN_BYTES as u64;
                    reads.spawn(self.files[file].read_at(offset, len));
                }
                while let Some(read) = reads.join_next().await {
                    read.context("a read of the floor panicked")??;
                }
                rest -= together;
            }
            stats.record(Kind::Get, begin, Stamp::now(), Ok(Done::bytes(measurement.size_bytes)));
        }
        stats.reached_end();
        Ok(stats.finish())
    }
}

/// One block written and synced after the other: what a single durable write costs on the first target.
pub(super) struct DataSync {
    runtime: Runtime,
    disk: Arc<dyn Disk>,
    _place: Place,
}

impl DataSync {
    /// # Errors
    /// When the target can not be used.
    pub(super) fn open(args: &FloorArgs) -> anyhow::Result<Self> {
        let place = Place::make(args, "sync")?;
        let disk = place.disks()?.swap_remove(0).1;
        Ok(Self { runtime: runtime()?, disk, _place: place })
    }
}

impl Subject for DataSync {
    fn name(&self) -> String {
        "one write and sync at a time".to_owned()
    }

    fn layer(&self) -> Layer {
        Layer::DataSync
    }

    fn measure(&mut self, measurement: Measurement) -> anyhow::Result<Option<Round>> {
        if measurement.action != Action::Put {
            return Ok(None);
        }
        let pattern = Pattern {
            shards: 1,
            lanes: 1,
            shard_bytes: DATA_SYNC_FILE_BYTES,
            chunk_bytes: CHUNK_ALIGN_BYTES as u64,
            objects_per_step: 1,
            steps_per_object: 1,
            read_bytes: 0,
            reads_per_object: 0,
        };
        let of_blocks = Measurement { size_bytes: CHUNK_ALIGN_BYTES as u64, ..measurement };
        let disk = [Arc::clone(&self.disk)];
        self.runtime.block_on(write_all(pattern, Durability::Sync, &disk, of_blocks)).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use gabion_platform::{DirEntry, DriverChoice, DriverOptions, IoFuture, Space, open_disk};

    use super::*;
    use crate::floor::cli::tests::args;

    #[test]
    fn chunks_are_as_long_as_those_of_the_log() {
        // `cargo xtask integration limits` counts what the log writes.
        let per_object = |objects: u64| small_chunk_bytes(objects, 4, 4096) as f64 * 6.0 / objects as f64;
        assert_eq!([1, 4, 64].map(|objects| small_chunk_bytes(objects, 4, 4096)), [8192, 8192, 73728]);
        assert!((6528.0..7200.0).contains(&per_object(64)), "{}", per_object(64));
        assert_eq!(stored_bytes(4, 2 << 20), (2 << 20) + 4096);
        let args = args(&["--size", "4KiB", "-c", "4000"]);
        let pattern = Pattern::new(&args, Durability::Sync);
        assert_eq!(pattern.objects_per_step, 1024, "no more than a batch of the log has");
    }

    #[test]
    fn a_large_object_moves_no_more_than_it_has() {
        let log = LogConfig::new("4+2".parse().unwrap()).stripe_payload_bytes as u64;
        for size in [(1 << 20) + 1, log - 1, log, log + 1, 2 * log, 2 * log + log / 8, 9 * log - 4097] {
            let args = args(&["--geometry", "4+2", "--size", &size.to_string()]);
            let pattern = Pattern::new(&args, Durability::Sync);
            assert_eq!(pattern.steps_per_object, size.div_ceil(log), "as many stripes as the log makes of {size}");
            assert_eq!(pattern.reads_per_object as u64, 4 * pattern.steps_per_object);
            let read = pattern.read_bytes * pattern.reads_per_object as u64;
            // Rounded up once for each stripe and each of its chunks.
            assert!((size..size + 5 * pattern.steps_per_object).contains(&read), "{read} of {size}");
            assert_eq!(pattern.chunk_bytes, stored_bytes(4, pattern.read_bytes as usize) as u64);
        }
    }

    /// A disk that takes its time to make a file.
    struct SlowToCreate(Arc<dyn Disk>, Duration);

    impl Disk for SlowToCreate {
        fn create(&self, path: &str, preallocate_bytes: u64) -> IoFuture<Arc<dyn DiskFile>> {
            let (create, time) = (self.0.create(path, preallocate_bytes), self.1);
            Box::pin(async move {
                tokio::time::sleep(time).await;
                create.await
            })
        }

        fn unlink(&self, path: &str) -> IoFuture<()> {
            self.0.unlink(path)
        }

        fn open(&self, _: &str) -> IoFuture<Arc<dyn DiskFile>> {
            unreachable!("nobody asks for it")
        }

        fn list(&self, _: &str) -> IoFuture<Vec<DirEntry>> {
            unreachable!("nobody asks for it")
        }

        fn read_file(&self, _: &str, _: usize) -> IoFuture<Bytes> {
            unreachable!("nobody asks for it")
        }

        fn write_file(&self, _: &str, _: Bytes) -> IoFuture<()> {
            unreachable!("nobody asks for it")
        }

        fn rename(&self, _: &str, _: &str) -> IoFuture<()> {
            unreachable!("nobody asks for it")
        }

        fn sync_dir(&self, _: &str) -> IoFuture<()> {
            unreachable!("nobody asks for it")
        }

        fn space(&self) -> IoFuture<Space> {
            unreachable!("nobody asks for it")
        }
    }

    #[tokio::test]
    async fn the_first_files_are_there_before_anything_is_timed() {
        let place = tempfile::tempdir().unwrap();
        let disk = open_disk(place.path(), DriverChoice::Auto, DriverOptions::default(), None).unwrap().disk;
        let duration = Duration::from_millis(500);
        let disks: [Arc<dyn Disk>; 1] = [Arc::new(SlowToCreate(disk, 2 * duration))];
        let args = args(&["--geometry", "1+0", "--size", "4KiB", "-c", "2"]);
        let pattern = Pattern::new(&args, Durability::Relaxed);
        let (action, size_bytes, warmup) = (Action::Put, 4096, Duration::ZERO);
        let measurement = Measurement { action, size_bytes, concurrency: 2, warmup, duration };
        let round = write_all(pattern, Durability::Relaxed, &disks, measurement).await.unwrap();
        assert!(round.stats.counts().0 > 0);
    }

    #[tokio::test]
    async fn what_can_not_be_written_is_not_answered_as_if_it_were() {
        let place = tempfile::tempdir().unwrap();
        let open = |name: &str| {
            let directory = place.path().join(name);
            std::fs::create_dir_all(&directory).unwrap();
            open_disk(&directory, DriverChoice::Auto, DriverOptions::default(), None).unwrap().disk
        };
        let disks = [open("0"), open("1")];
        let args = args(&["--geometry", "1+1", "--size", "4KiB", "-c", "2"]);
        for (lane, durability) in [Durability::Sync, Durability::Relaxed].into_iter().enumerate() {
            let mut pattern = Pattern::new(&args, durability);
            // Two chunks of one object fill a file.
            pattern.shard_bytes = 2 * small_chunk_bytes(1, 1, 4096);
            let series = Series::begin(lane, pattern, durability, disks.to_vec()).await.unwrap();
            let (waiting, queue) = mpsc::unbounded_channel();
            let task = tokio::spawn(write_batches(series, queue, 4096, 1));
            let batches = Batches { waiting };
            // The second file is there already, and the third is not.
            std::fs::write(place.path().join(format!("1/lane-{lane}-2")), "in the way").unwrap();
            let mut failed = Vec::new();
            for number in 0..6 {
                if let Err(error) = batches.put().await {
                    failed.push((number, error.to_string()));
                }
            }
            assert!(failed.len() == 1 && failed[0].0 == 2, "{failed:?}");
            drop(batches);
            task.await.unwrap();
            let written = std::fs::read(place.path().join(format!("1/lane-{lane}-3"))).unwrap();
            assert_eq!(written[..100], [0x5a; 100], "{durability}");
        }
    }
}
