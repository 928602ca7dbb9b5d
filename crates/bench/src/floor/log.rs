//! The floor of storage: the log as the server has it, its records committed and read by tasks in this process.

use std::sync::Arc;

use anyhow::Context;
use bytes::Bytes;
use futures::future::try_join_all;
use gabion_erasure::crc64;
use gabion_platform::{OsEntropy, SystemClock};
use gabion_segment::{
    AppliedStripe, Applier, ApplyError, Durability, Env, Log, LogConfig, LogError, LogTarget, NewRecord, SegmentChange,
};
use gabion_types::{Extent, limits::INLINE_BYTES_MAX};
use parking_lot::Mutex;
use tokio::{runtime::Runtime, sync::Semaphore};

use super::{FloorArgs, Layer, Measurement, Round, Subject, goes_on, place::Place, run_all, runtime, settle, stopped};
use crate::{
    clock::Stamp,
    content::Random,
    stats::{Done, Kind, Stats},
    stop::is_stopped,
    workload::{Action, End},
};

/// Bytes of a mutation: those of an object's row with a key of usual length.
const MUTATION_BYTES: usize = 200;

/// The row that goes with each object.
pub(super) fn mutation() -> Bytes {
    Bytes::from(vec![0x4d; MUTATION_BYTES])
}

/// Stripes of large objects under way for each lane: one that it writes, and one that waits for it.
const STRIPES_PER_LANE: usize = 2;

/// Bytes of objects, those that ended in warm-ups left out, after which the next measurement of puts begins with an empty log: nothing in one is ever dead, and rounds are many.
const RENEWED_AFTER_BYTES: u64 = 4 << 30;

/// The log in directories of its own.
pub(super) struct LogFloor {
    args: FloorArgs,
    durability: Durability,
    /// Nothing between one log and the next.
    opened: Option<Opened>,
    /// How many there were before it.
    number: u32,
    /// Bytes of objects that it was given.
    put_bytes: u64,
}

/// A log that is being measured.
struct Opened {
    log: Log,
    runtime: Runtime,
    work: Arc<Work>,
    /// Goes last: its directories are in use until then.
    _place: Place,
}

/// What all tasks share.
struct Work {
    mutation: Bytes,
    data: Bytes,
    data_crc64: u64,
    /// Stripes of large objects that may be under way: what the lanes can not write yet would only take memory, which is then cold when it is written.
    stripes: Arc<Semaphore>,
    /// Where objects lie that can be read.
    written: Mutex<Vec<Vec<Extent>>>,
    written_max: usize,
}

/// An index that costs nothing.
struct NoIndex;

impl Applier for NoIndex {
    fn apply(&self, _: &AppliedStripe) -> Result<(), ApplyError> {
        Ok(())
    }

    fn segment_changed(&self, _: SegmentChange) -> Result<(), ApplyError> {
        Ok(())
    }
}

impl LogFloor {
    /// Opens an empty log on the targets.
    ///
    /// # Errors
    /// When a target can not be used.
    pub(super) fn open(args: &FloorArgs, durability: Durability) -> anyhow::Result<Self> {
        let opened = Some(Opened::open(args, durability, 0)?);
        Ok(Self { args: args.clone(), durability, opened, number: 0, put_bytes: 0 })
    }

    /// The log, with what is to be read; for puts an empty one, if much was written since it was opened.
    fn opened(&mut self, action: Action) -> anyhow::Result<&Opened> {
        if action == Action::Put && self.put_bytes > RENEWED_AFTER_BYTES {
            // It goes first: its room is needed.
            self.opened = None;
            (self.number, self.put_bytes) = (self.number + 1, 0);
        }
        let opened = match self.opened.take() {
            Some(opened) => opened,
            None => Opened::open(&self.args, self.durability, self.number)?,
        };
        let opened = self.opened.insert(opened);
        // The first record opens a segment, which is not what puts are measured for.
        let objects = if action == Action::Get { opened.work.written_max } else { 1 };
        if opened.fill(objects, self.args.concurrency)? {
            settle(&self.args)?;
        }
        Ok(opened)
    }
}

impl Opened {
    fn open(args: &FloorArgs, durability: Durability, number: u32) -> anyhow::Result<Self> {
        let place = Place::make(args, &format!("log-{durability}-{number}"))?;
        let runtime = runtime()?;
        let stripes = Arc::new(Semaphore::new(STRIPES_PER_LANE * LogConfig::new(args.geometry).large_lanes));
        let log = runtime.block_on(open_log(args, durability, &place))?;
        let data = Bytes::from(vec![0x5a; usize::try_from(args.size).context("a size beyond memory")?]);
        let work = Work {
            mutation: mutation(),
            data_crc64: if data.len() <= INLINE_BYTES_MAX { crc64(&data) } else { 0 },
            data,
            stripes,
            written: Mutex::default(),
            written_max: usize::try_from(args.objects()).unwrap_or(usize::MAX),
        };
        Ok(Self { log, runtime, work: Arc::new(work), _place: place })
    }

    /// Writes objects, by so many tasks, until there are as many as `objects`; `false` if they were there.
    fn fill(&self, objects: usize, concurrency: u32) -> anyhow::Result<bool> {
        let lack = move |work: &Work| work.written.lock().len() < objects;
        if !lack(&self.work) {
            return Ok(false);
        }
        let tasks = (0..objects.min(concurrency as usize)).map(|_| {
            let (log, work) = (self.log.clone(), Arc::clone(&self.work));
            async move {
                while lack(&work) && !is_stopped() {
                    put(&log, &work).await?;
                }
                Ok::<_, LogError>(())
            }
        });
        self.runtime.block_on(try_join_all(tasks)).context("writing what is to be read")?;
        if is_stopped() { Err(stopped()) } else { Ok(true) }
    }
}

/// An empty log in these directories, with nothing to apply records to; it runs in the runtime that this is called in.
///
/// # Errors
/// When a target can not be used.
pub(super) async fn open_log(args: &FloorArgs, durability: Durability, place: &Place) -> anyhow::Result<Log> {
    let config = LogConfig { durability, ..LogConfig::new(args.geometry) };
    let targets = place.disks()?.into_iter().map(|(directory, disk)| LogTarget {
        name: directory.display().to_string(),
        failure_domain: directory.display().to_string(),
        disk: Some(disk),
    });
    let env = Env { clock: Arc::new(SystemClock), entropy: Arc::new(OsEntropy) };
    let (log, _) = Log::open(config, targets.collect(), Vec::new(), env).await?;
    log.start(Arc::new(NoIndex));
    Ok(log)
}

impl Subject for LogFloor {
    fn name(&self) -> String {
        format!("log without HTTP ({})", self.durability)
    }

    fn layer(&self) -> Layer {
        Layer::Log(self.durability)
    }

    fn measure(&mut self, measurement: Measurement) -> anyhow::Result<Option<Round>> {
        if !matches!(measurement.action, Action::Put | Action::Get) {
            return Ok(None);
        }
        let Opened { log, runtime, work, .. } = self.opened(measurement.action)?;
        let start = Stamp::now().plus(measurement.warmup);
        let clients = (0..measurement.concurrency)
            .map(|number| run(log.clone(), Arc::clone(work), measurement, start, number as u64));
        let round = runtime.block_on(run_all(clients, start))?;
        self.put_bytes += round.stats.series.get(&Kind::Put).map_or(0, |series| series.bytes);
        Ok(Some(round))
    }
}

async fn run(log: Log, work: Arc<Work>, measurement: Measurement, start: Stamp, number: u64) -> anyhow::Result<Stats> {
    let mut stats = Stats::within(start, End::At(start.plus(measurement.duration)));
    let mut random = Random::new(number + 1);
    let end = start.plus(measurement.duration);
    while goes_on(end) {
        let begin = Stamp::now();
        let outcome = match measurement.action {
            Action::Put => put(&log, &work).await,
            _ => get(&log, &work, &mut random).await,
        };
        let outcome = outcome.map(|()| Done::bytes(work.data.len() as u64)).map_err(|error| error.to_string());
        stats.record(Kind::from(measurement.action), begin, Stamp::now(), outcome);
    }
    stats.reached_end();
    Ok(stats.finish())
}

/// Makes one object durable, as the store does: a small one in one record, a large one in stripes of its own and then the record.
async fn put(log: &Log, work: &Work) -> Result<(), LogError> {
    let small = work.data.len() <= INLINE_BYTES_MAX;
    let mut stripes = Vec::new();
    let mut rest = if small { &[][..] } else { &work.data[..] };
    while !rest.is_empty() {
        let turn = Arc::clone(&work.stripes).acquire_owned().await.expect("the semaphore is never closed");
        let mut stripe = log.stripe_buffer().await?;
        rest = &rest[stripe.put(rest)..];
        let log = log.clone();
        stripes.push(tokio::spawn(async move {
            let outcome = log.append(stripe).await;
            drop(turn);
            outcome
        }));
    }
    let mut extents = Vec::new();
    for stripe in stripes {
        extents.push(stripe.await.map_err(|error| LogError::Unavailable(error.to_string()))??);
    }
    let data = if small { vec![work.data.clone()] } else { Vec::new() };
    let record = NewRecord { mutation: work.mutation.clone(), data, data_crc64: work.data_crc64 };
    extents.extend(log.commit(record).await?.extents);
    let mut written = work.written.lock();
    if written.len() < work.written_max {
        written.push(extents);
    }
    Ok(())
}

/// Reads any object that was written.
async fn get(log: &Log, work: &Work, random: &mut Random) -> Result<(), LogError> {
    let extents = {
        let written = work.written.lock();
        written[random.below(written.len())].clone()
    };
    for extent in &extents {
        log.read(extent, 0..extent.len).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::floor::cli::tests::args;

    #[test]
    fn all_objects_are_there_before_any_is_read() {
        let place = tempfile::tempdir().unwrap();
        let targets = place.path().display().to_string();
        let args = args(&["--targets", &targets, "--geometry", "1+0", "--objects", "50", "-c", "3"]);
        let mut floor = LogFloor::open(&args, Durability::Relaxed).unwrap();
        let (action, warmup, duration) = (Action::Get, Duration::ZERO, Duration::from_millis(1));
        let measurement = Measurement { action, size_bytes: args.size, concurrency: 3, warmup, duration };
        floor.measure(measurement).unwrap().unwrap();
        assert_eq!(floor.opened.unwrap().work.written.lock().len(), 50);
    }
}
