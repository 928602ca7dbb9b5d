//! An endpoint as it is measured beside the floors: by the client and the workers of every other load.

use std::sync::Arc;

use anyhow::{Context, ensure};
use gabion_segment::Durability;

use super::{FloorArgs, Layer, Measurement, Round, Subject, stopped};
use crate::{
    cleanup::Leftovers,
    cli::Payload,
    clock::Stamp,
    content::Content,
    credentials::identity,
    driver::{is_stopped, judge, make_bucket, run_folder},
    factory::Factory,
    sizes::Sizes,
    stats::Stats,
    threads::Threads,
    workload::{Action, End, Goal, Load, Phase, Share},
};

/// What all keys begin with; the folder of the run follows.
const PREFIX: &str = "floor/";
const SEED: u64 = 1;

/// An endpoint and the load on it.
pub(super) struct Endpoint {
    url: String,
    durability: Durability,
    factory: Arc<Factory>,
    threads: usize,
    load: Arc<Load>,
    run: String,
    /// The server's process, if it is known.
    server_pid: Option<u32>,
    /// The bucket was made by this run; nothing where there is no storage.
    created: Option<bool>,
}

/// The load of a run.
fn load(args: &FloorArgs, run: &str, verify: bool) -> Load {
    Load {
        content: Content::new(SEED),
        prefix: format!("{PREFIX}{run}"),
        run_len: run.len(),
        sizes: Sizes::fixed(args.size),
        seed: SEED,
        workers: args.concurrency as usize,
        payload: Payload::Unsigned,
        verify,
        prepared: args.objects(),
        progress: (0..args.concurrency).map(|_| 0.into()).collect(),
        ..Load::empty(Share::WHOLE)
    }
}

impl Endpoint {
    /// Of a server, which nothing is asked of yet.
    ///
    /// # Errors
    /// When the address is none, or credentials are missing.
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
            url: url.to_owned(),
            durability,
            factory: Arc::new(factory),
            threads,
            load: Arc::new(load(args, &run, false)),
            run,
            server_pid,
            created: None,
        })
    }

    /// The server of a floor: what is read is not what was written.
    ///
    /// # Errors
    /// When the address is none.
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
    fn check(&self, args: &FloorArgs) -> anyhow::Result<()> {
        let load = Arc::new(load(args, &self.run, true));
        let phase = Phase { name: "", goal: Goal::EachPrepared(Action::Get), timed: false };
        let begin = || Ok((Stamp::now(), End::Done));
        let stats = self.threads().run(&load, phase, begin, &mut |_| {})?.stats;
        if is_stopped() {
            return Err(stopped());
        }
        judge([&stats].into_iter())
            .and_then(|()| each_was_read(&stats, load.prepared))
            .with_context(|| format!("reading what was written to {}", self.name()))
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
    fn prepare(&mut self, args: &FloorArgs) -> anyhow::Result<()> {
        self.created = Some(make_bucket(&self.factory, &self.url)?);
        self.threads().prepare(&self.load, &mut |_| {}).context("writing the objects that are read")?;
        if is_stopped() {
            return Err(stopped());
        }
        self.check(args)
    }

    fn measure(&mut self, measurement: Measurement) -> anyhow::Result<Option<Round>> {
        let goal = match measurement.action {
            Action::Put => Goal::Write,
            action => Goal::Any(action),
        };
        let begin = || {
            let start = Stamp::now().plus(measurement.warmup);
            Ok((start, End::At(start.plus(measurement.duration))))
        };
        let phase = Phase { name: "", goal, timed: true };
        let outcome = self.threads().run(&self.load, phase, begin, &mut |_| {})?;
        Ok(Some(Round { stats: outcome.stats, server_cpu: outcome.server_cpu }))
    }

    fn clean_up(&mut self) -> anyhow::Result<()> {
        let Some(created) = self.created else { return Ok(()) };
        let left = Leftovers { factory: &self.factory, prefix: PREFIX, run: &self.run, uploads: false, created };
        left.remove().with_context(|| self.name())
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use parking_lot::Mutex;

    use super::*;
    use crate::test_server::{Bucket, serve};

    /// An endpoint of this server, and what was asked for.
    fn endpoint(url: &str, flags: &[&str]) -> (Endpoint, FloorArgs) {
        use clap::Parser;
        let line = ["bench", "floor", "--access-key", "a", "--secret-key", "s", "-c", "3"].iter().chain(flags);
        let args = *crate::cli::Program::parse_from(line).cli.command.unwrap().into_settings().unwrap_err();
        (Endpoint::new(&args, Durability::Sync, url, None).unwrap(), args)
    }

    #[test]
    fn each_object_is_compared_once_before_anything_is_measured() {
        let bucket = Arc::new(Mutex::new(Bucket::default()));
        let (_server, url) = serve(&bucket);
        let (mut endpoint, args) = endpoint(&url, &["--objects", "50"]);
        endpoint.prepare(&args).unwrap();
        let reads: Vec<u32> = bucket.lock().reads.values().copied().collect();
        assert_eq!(reads, [1; 50]);
        let objects: Vec<String> = bucket.lock().objects.keys().cloned().collect();
        let refuse = |expected: &str| {
            let error = format!("{:#}", endpoint.check(&args).unwrap_err());
            assert!(error.contains(expected), "{error}");
        };
        let was = bucket.lock().objects.insert(objects[7].clone(), Bytes::from_static(b"other"));
        refuse("1 objects were not read as they were written");
        bucket.lock().objects.insert(objects[7].clone(), was.unwrap());
        bucket.lock().objects.remove(&objects[49]);
        refuse("49 of 50 objects were read, 1 × 404");
    }
}
