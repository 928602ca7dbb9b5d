//! An endpoint as it is measured beside the floors: by the client and the workers of every other load.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use anyhow::{Context, ensure};
use gabion_segment::Durability;

use super::{FloorArgs, Layer, Measurement, Round, Subject, settle, stopped};
use crate::{
    cleanup::{Leftovers, lease},
    cli::Payload,
    clock::Stamp,
    content::Content,
    credentials::identity,
    driver::{judge, make_bucket, run_folder},
    factory::Factory,
    report::busy_share,
    sizes::Sizes,
    stats::Stats,
    stop::is_stopped,
    threads::{Threads, cores, used},
    workload::{Action, End, Goal, LISTED_MAX, Load, Phase, Share},
};

/// What all keys begin with; the folder of the run follows, and one for each use: what is put is not listed, and what is deleted not read.
pub(super) const PREFIX: &str = "floor/";
pub(super) const READ_FOLDER: &str = "read/";
const WRITE_FOLDER: &str = "write/";
const DELETE_FOLDER: &str = "delete/";
const SEED: u64 = 1;

/// An endpoint and the loads on it.
pub(super) struct Endpoint {
    args: FloorArgs,
    url: String,
    durability: Durability,
    factory: Arc<Factory>,
    threads: usize,
    /// Of gets, stats and listings.
    read: Arc<Load>,
    written: Arc<Load>,
    deleted: Arc<Load>,
    run: String,
    lease: String,
    /// The server's process, if it is known.
    server_pid: Option<u32>,
    /// The bucket was made by this run; nothing where there is no storage.
    created: Option<bool>,
    /// Most objects that were written, if that is known, and how many of them were deleted.
    written_max: Option<u64>,
    deletions: u64,
    /// What a request that was not answered wrote may yet become an object.
    pending: bool,
}

/// The load of a run in one of its folders, on objects that are as many as are read.
fn load(args: &FloorArgs, run: &str, folder: &str) -> Load {
    Load {
        content: Content::new(SEED),
        prefix: PREFIX.to_owned(),
        run: [run, folder].concat(),
        sizes: Sizes::fixed(args.size),
        seed: SEED,
        workers: args.concurrency as usize,
        payload: Payload::Unsigned,
        verify: false,
        prepared: args.objects(),
        progress: (0..args.concurrency).map(|_| 0.into()).collect(),
        ..Load::empty(Share::WHOLE)
    }
}

impl Endpoint {
    /// Of a server, which nothing is asked of yet.
    ///
    /// # Errors
    /// When the address is invalid, or credentials are missing.
    pub(super) fn new(
        args: &FloorArgs,
        durability: Durability,
        url: &str,
        server_pid: Option<u32>,
    ) -> anyhow::Result<Self> {
        let factory = Factory::new(&args.access, &[url.to_owned()], &args.bucket)?;
        let run = run_folder();
        let threads = args.threads();
        Ok(Self {
            args: args.clone(),
            url: url.to_owned(),
            durability,
            factory: Arc::new(factory),
            threads,
            read: Arc::new(Load { listed_min: args.objects().min(LISTED_MAX.into()), ..load(args, &run, READ_FOLDER) }),
            written: Arc::new(load(args, &run, WRITE_FOLDER)),
            deleted: Arc::new(Load { prepared: args.deletes(), ..load(args, &run, DELETE_FOLDER) }),
            lease: lease(PREFIX, &run),
            run,
            server_pid,
            created: None,
            written_max: Some(0),
            deletions: 0,
            pending: false,
        })
    }

    /// The server of a floor: what is read is not what was written.
    ///
    /// # Errors
    /// When the address is invalid.
    pub(super) fn of_floor(args: &FloorArgs, url: &str, server_pid: u32) -> anyhow::Result<Self> {
        let mut args = args.clone();
        // It takes any signature; the client signs and sends what it does elsewhere, or in a name of its own where there are no endpoints.
        if identity(&args.access).is_err() {
            args.access.access_key = Some("floor".to_owned());
            args.access.secret_key = Some("floor".to_owned());
        }
        Self::new(&args, Durability::Sync, url, Some(server_pid))
    }

    /// Reads each object once, and compares every byte with what was written. The measurement does not: what the floor answers with was never
    /// written, and the client is to do as much with an endpoint's answers, and no more.
    fn check(&self) -> anyhow::Result<()> {
        let load = Arc::new(Load { verify: true, ..load(&self.args, &self.run, READ_FOLDER) });
        let phase = Phase { name: "", goal: Goal::EachPrepared(Action::Get), timed: false };
        let begin = || Ok((Stamp::now(), End::Done));
        let stats = self.threads().run(&load, phase, begin, &mut |_| {})?.stats;
        if is_stopped() {
            return Err(stopped());
        }
        judge([("", &stats)].into_iter())
            .and_then(|()| each_was_read(&stats, load.prepared))
            .with_context(|| format!("reading what was written to {}", self.name()))
    }

    /// Whether it keeps what it is given: a floor, which does not, is not prepared.
    fn stores(&self) -> bool {
        self.created.is_some()
    }

    /// Writes the objects that a load needs.
    fn write(&mut self, load: &Arc<Load>, what: &'static str) -> anyhow::Result<()> {
        let written = self.threads().prepare(load, &mut |_| {});
        let again = load.rewritten.swap(0, Ordering::Relaxed);
        self.written_max = self.written_max.map(|sum| sum + load.prepared + again);
        written.context(what)?;
        if is_stopped() { Err(stopped()) } else { Ok(()) }
    }

    fn threads(&self) -> Threads<'_> {
        Threads { factory: &self.factory, count: self.threads, server_pids: self.server_pid.as_slice() }
    }
}

/// Refuses to take some for all.
///
/// # Errors
/// With what the others failed with.
fn each_was_read(stats: &Stats, objects: u64) -> anyhow::Result<()> {
    let read = stats.counts().0;
    let errors = stats.series.values().flat_map(|series| &series.errors);
    let errors: String = errors.map(|(kind, count)| format!(", {count} × {kind}")).collect();
    ensure!(read == objects, "{read} of {objects} objects were read{errors}");
    Ok(())
}

impl Subject for Endpoint {
    fn name(&self) -> String {
        format!("{} ({})", self.url, self.durability)
    }

    fn layer(&self) -> Layer {
        Layer::Endpoint(self.durability)
    }

    /// Makes the bucket and writes the objects that are read.
    fn prepare(&mut self) -> anyhow::Result<()> {
        self.created = Some(make_bucket(&self.factory, &self.url, Some(&self.lease))?);
        self.write(&Arc::clone(&self.read), "writing the objects that are read")?;
        self.check()
    }

    fn measure(&mut self, measurement: Measurement) -> anyhow::Result<Option<Round>> {
        let (load, goal, warmup) = match measurement.action {
            Action::Put => (&self.written, Goal::Write, measurement.warmup),
            Action::List => (&self.read, Goal::List, measurement.warmup),
            // What a warm-up deleted would not be there to be measured.
            Action::Delete if self.stores() => (&self.deleted, Goal::EachPrepared(Action::Delete), Duration::ZERO),
            action => (&self.read, Goal::Any(action), measurement.warmup),
        };
        let load = Arc::clone(load);
        if goal == Goal::EachPrepared(Action::Delete) {
            // Those that the round before left are written again.
            self.write(&load, "writing the objects that are deleted")?;
            settle(&self.args)?;
        }
        let begin = || {
            let start = Stamp::now().plus(warmup);
            Ok((start, End::At(start.plus(measurement.duration))))
        };
        let phase = Phase { name: "", goal, timed: true };
        let outcome = self.threads().run(&load, phase, begin, &mut |_| {});
        let written = outcome.as_ref().ok().map(|outcome| outcome.stats.written_max);
        self.written_max = self.written_max.zip(written).map(|(sum, more)| sum + more);
        let outcome = outcome?;
        self.deletions += outcome.stats.deleted;
        self.pending |= outcome.stats.pending;
        let [threads, cpus] =
            [used(self.threads, load.workers), cores()].map(|count| u32::try_from(count).unwrap_or(u32::MAX));
        let busy = busy_share(outcome.client_cpu.as_secs_f64(), outcome.metered.as_secs_f64(), threads, cpus);
        Ok(Some(Round { stats: outcome.stats, server_cpu: outcome.server_cpu, client_busy: busy }))
    }

    fn clean_up(&mut self) -> anyhow::Result<()> {
        let Some(created) = self.created else { return Ok(()) };
        let (factory, run, pending) = (&self.factory, &self.run, self.pending);
        let lease = Some(&*self.lease);
        let objects_max = self.written_max.map(|written| written.saturating_sub(self.deletions));
        let left = Leftovers {
            factory,
            prefix: PREFIX,
            run,
            lease,
            keeps: false,
            uploads: false,
            pending,
            objects_max,
            created,
        };
        left.remove().with_context(|| self.name())
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use parking_lot::Mutex;

    use super::*;
    use crate::{
        floor::cli::tests::args,
        test_server::{Bucket, serve},
    };

    fn endpoint(url: &str, flags: &[&str]) -> Endpoint {
        let args = args(&[&["--access-key", "a", "--secret-key", "s", "-c", "3"], flags].concat());
        Endpoint::new(&args, Durability::Sync, url, None).unwrap()
    }

    fn measured(endpoint: &mut Endpoint, action: Action, duration: Duration) -> Stats {
        let (warmup, size_bytes, concurrency) = (Duration::from_millis(1), 4096, 3);
        let measurement = Measurement { action, size_bytes, concurrency, warmup, duration };
        endpoint.measure(measurement).unwrap().unwrap().stats
    }

    #[test]
    fn each_object_is_compared_once_before_anything_is_measured() {
        let bucket = Arc::new(Mutex::new(Bucket::default()));
        let (_server, url) = serve(&bucket);
        let mut endpoint = endpoint(&url, &["--objects", "50"]);
        endpoint.prepare().unwrap();
        let reads: Vec<u32> = bucket.lock().reads.values().copied().collect();
        assert_eq!(reads, [1; 50]);
        let objects: Vec<String> = bucket.lock().objects.keys().cloned().collect();
        let refuse = |expected: &str| {
            let error = format!("{:#}", endpoint.check().unwrap_err());
            assert!(error.contains(expected), "{error}");
        };
        let was = bucket.lock().objects.insert(objects[7].clone(), Bytes::from_static(b"other"));
        refuse("1 objects were not read as they were written");
        bucket.lock().objects.insert(objects[7].clone(), was.unwrap());
        bucket.lock().objects.remove(&objects[49]);
        refuse("49 of 50 objects were read, 1 × 404");
    }

    #[test]
    fn every_object_that_is_deleted_is_there() {
        let bucket = Arc::new(Mutex::new(Bucket::default()));
        let (_server, url) = serve(&bucket);
        let mut endpoint = endpoint(&url, &["--objects", "5", "--deletes", "40"]);
        endpoint.prepare().unwrap();
        // Until all are deleted, until the time is over, and again until all are.
        for duration in [60_000, 1, 60_000].map(Duration::from_millis) {
            let (_, failed) = measured(&mut endpoint, Action::Delete, duration).counts();
            assert_eq!(failed, 0);
        }
        assert_eq!(bucket.lock().missed, 0);
        assert_eq!(bucket.lock().objects.len(), 5 + 1, "those that are read stay, and the lease of the bucket");
        assert!(bucket.lock().deleted >= 80);
    }

    #[test]
    fn what_is_put_is_not_listed() {
        let bucket = Arc::new(Mutex::new(Bucket::default()));
        let (_server, url) = serve(&bucket);
        let mut endpoint = endpoint(&url, &["--objects", "5"]);
        endpoint.prepare().unwrap();
        let of = |stats: Stats, action: Action| {
            assert_eq!(stats.counts().1, 0);
            let series = &stats.series[&action.into()];
            (series.operations(), series.entries)
        };
        let (puts, _) = of(measured(&mut endpoint, Action::Put, Duration::from_millis(20)), Action::Put);
        let (pages, keys) = of(measured(&mut endpoint, Action::List, Duration::from_millis(20)), Action::List);
        assert!(puts > 0 && pages > 0 && keys == 5 * pages, "{puts}, {pages} of {keys}");
        bucket.lock().objects.clear();
        assert_eq!(measured(&mut endpoint, Action::List, Duration::from_millis(1)).counts().0, 0, "none are there");
    }
}
