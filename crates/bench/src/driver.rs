//! A whole run: prepare, measure, report, clean up.

use std::{
    collections::hash_map::RandomState,
    hash::{BuildHasher, Hasher},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use anyhow::{Context, anyhow, bail};
use gabion_types::BucketName;
use tokio::runtime::Builder;

use crate::{
    cleanup::{Leftovers, lease},
    cli::{Cli, LoadArgs, Operation, Settings},
    clock::{Stamp, unix_seconds},
    factory::Factory,
    failure::{Failure, all_of},
    limit::Limit,
    output::Outputs,
    patience::Patience,
    processes::{self, Processes},
    progress::{Progress, Whole},
    report::Report,
    s3::Client,
    stats::Stats,
    stop::{has_told, is_stopped, stop_when_asked},
    threads::{self, Outcome, Threads},
    workload::{End, Load, Name, Phase, Share, phases},
};

/// Why a run ended without a result.
#[derive(Debug)]
pub enum BenchError {
    /// What was asked for makes no sense.
    Usage(String),
    /// It was tried and failed.
    Failed(anyhow::Error),
}

impl BenchError {
    /// Of what was found before anything was tried.
    pub(crate) fn usage(error: anyhow::Error) -> Self {
        BenchError::Usage(format!("{error:#}"))
    }
}

impl From<anyhow::Error> for BenchError {
    fn from(error: anyhow::Error) -> Self {
        BenchError::Failed(error)
    }
}

/// Runs what `cli` describes and writes its report. Starts runtimes of its own: not to be called from within one.
///
/// # Errors
/// `Usage` when flags do not go together, an endpoint is invalid or credentials are missing: nothing was sent. `Failed` when the endpoint can not be reached or refuses
/// the preparation, when no operation of a phase succeeded, when a body read was not the one written, when workers gave up or the run was stopped, and when
/// something could not be removed or written: all that there is to say, a line each.
pub fn run(cli: Cli) -> Result<(), BenchError> {
    let Some(command) = cli.command else {
        if let Some(directory) = &cli.out {
            return Ok(crate::html::plots::write(&cli.plot, directory)?);
        }
        return Ok(crate::compare::run(&cli.compare, cli.html.as_deref())?);
    };
    let settings = match command.into_settings() {
        Ok(settings) => settings,
        Err(floor) => return crate::floor::run(&floor),
    };
    settings.check().map_err(BenchError::Usage)?;
    let LoadArgs { access, endpoint, bucket, .. } = &settings.load;
    let factory = Factory::new(access, endpoint, bucket).map_err(BenchError::usage)?;
    Ok(run_load(settings, &Arc::new(factory))?)
}

/// Threads of each client process.
fn threads(settings: &Settings) -> usize {
    threads::wanted(settings.load.threads)
}

/// Threads of all client processes: no more in each than it has workers.
fn used_threads(settings: &Settings) -> usize {
    let (processes, workers) = (settings.load.processes as usize, u64::from(settings.load.concurrency));
    let workers_of = |index| usize::try_from(Share { index, of: processes }.part(workers)).expect("counted in 32 bits");
    (0..processes).map(|index| threads::used(threads(settings), workers_of(index))).sum()
}

/// A name that no other run has, as a folder: what lies in it is this run's to remove.
pub(crate) fn run_folder() -> String {
    // The standard library's hasher is keyed with random numbers of the system.
    let random = || RandomState::new().build_hasher().finish();
    format!("{:08x}-{:016x}/", unix_seconds(), random())
}

fn run_load(mut settings: Settings, factory: &Arc<Factory>) -> anyhow::Result<()> {
    let share = processes::own_share()?;
    settings.run = match &share {
        Some((_, run)) => run.clone(),
        None => run_folder(),
    };
    let settings = &settings;
    let args = &settings.load;
    stop_when_asked()?;
    if let Some((share, _)) = share {
        return processes::serve(settings, factory, threads(settings), share);
    }
    let outputs = Outputs::open(args.json.as_deref(), args.html.as_deref())?;
    let finds = args.no_prepare && settings.prepared_objects() > 0;
    // A listing of all that is kept would have the lease in it; what it lists keeps the bucket as well.
    let leases = !(finds || settings.keeps() && settings.operation == Operation::List);
    let lease = leases.then(|| lease(&args.prefix, &settings.run));
    let created = if finds {
        find_objects(settings, factory)?;
        false
    } else {
        make_bucket(factory, &args.endpoint[0], lease.as_deref())?
    };
    let measured = measure(settings, factory);
    // Nobody waited for the end of what was not answered, nor, where it failed before its end, for what was under way.
    let has_ended = |measured: &Measured| measured.outcomes.iter().all(|(_, outcome)| !outcome.stats.pending);
    let pending = !measured.as_ref().is_ok_and(has_ended);
    let objects_max = measured.as_ref().ok().and_then(|measured| measured.objects_max());
    // First: what is removed may take long, and whoever does not wait for that has the result.
    let told = measured.and_then(|Measured { started, outcomes, interrupted, .. }| {
        let threads = used_threads(settings);
        let report = Report { interrupted, ..Report::new(settings, threads, started, &outcomes) };
        let published = outputs.publish(&report.published(), &report.text(), || crate::html::page(&[&report]));
        let stopped =
            if interrupted { Err(anyhow!("interrupted: figures are of what was measured until then")) } else { Ok(()) };
        let judged = judge(outcomes.iter().map(|(name, outcome)| (*name, &outcome.stats)));
        let dead = report.dead_endpoints().into_iter().map(|line| Err(anyhow!(line)));
        all_of([published, stopped, judged].into_iter().chain(dead))
    });
    has_told(&told);
    let left = Leftovers {
        factory,
        prefix: &args.prefix,
        run: &settings.run,
        lease: lease.as_deref(),
        keeps: settings.keeps(),
        uploads: settings.operation == Operation::Multipart,
        pending,
        objects_max,
        created,
    };
    all_of([told, left.remove()])
}

/// How often a bucket is made that others delete at the same time.
const MAKING_MAX: u32 = 5;

/// Makes the bucket, and the run's lease of it if it is to have one; `false` when it was there.
///
/// # Errors
/// When the endpoint can not be reached or refuses: nothing was written yet, so that this is tried once.
pub(crate) fn make_bucket(factory: &Factory, url: &str, lease: Option<&str>) -> anyhow::Result<bool> {
    let runtime = Builder::new_current_thread().enable_all().build().context("starting the client")?;
    let (mut client, mut limit) = (factory.client(0), factory.patient_limit());
    let made = runtime.block_on(async {
        let mut made = 0;
        loop {
            let created = limit.run(Stamp::now(), client.create_bucket()).await?;
            let Some(lease) = lease else { return Ok(created) };
            made += 1;
            match hold(&mut client, &mut limit, lease).await {
                // The run that had made it was about to leave it.
                Err(Failure::Status { status: 404, .. }) if made < MAKING_MAX => {}
                Err(failure @ Failure::Status { status: 404, .. }) => return Err(failure),
                // Who can not write this can write no objects, which will be told of those, and needs no bucket to be held for them.
                _ => return Ok(created),
            }
        }
    });
    made.map_err(|failure| of_bucket(failure, "preparing", factory, url))
}

/// Writes the lease.
async fn hold(client: &mut Client, limit: &mut Limit, lease: &str) -> Result<(), Failure> {
    let mut patience = Patience::default();
    loop {
        match limit.run(Stamp::now(), client.put_empty(lease)).await {
            Err(failure @ Failure::Status { .. }) => patience.after(failure).await?,
            outcome => return outcome,
        }
    }
}

/// A failure of a request for the bucket, with what may be wrong: what was refused is not said in an answer to HEAD.
fn of_bucket(failure: Failure, doing: &str, factory: &Factory, url: &str) -> anyhow::Error {
    let name = BucketName::new(factory.bucket());
    let hint = match (&failure, name) {
        (Failure::Status { status: 400, .. }, Err(error)) => format!(": this may be no {error}"),
        (Failure::Status { status: 401 | 403, .. }, _) => {
            ": the access key or the secret key is wrong, or its owner has no right to this bucket".to_owned()
        }
        (Failure::Status { status: 301 | 400, .. }, _) => {
            ": --region may be none of the server's or not the bucket's, or the session token is wrong or has expired"
                .to_owned()
        }
        _ => String::new(),
    };
    anyhow!(failure).context(format!("{doing} the bucket {:?} at {url}{hint}", factory.bucket()))
}

/// Looks for what a run with `--no-prepare` takes for granted: the bucket, and the first and the last of its objects, but of those that are listed.
///
/// # Errors
/// When they are not there: nothing was written, or removed.
fn find_objects(settings: &Settings, factory: &Factory) -> anyhow::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build().context("starting the client")?;
    let (mut client, mut limit) = (factory.client(0), factory.patient_limit());
    let (bucket, url) = (factory.bucket(), &settings.load.endpoint[0]);
    let found = runtime.block_on(async { limit.run(Stamp::now(), client.head_bucket()).await });
    match found {
        Err(Failure::Status { status: 404, .. }) => bail!(
            "--no-prepare is for objects that are there, and there is no bucket {bucket:?} at {url}: run without it first, with --keep"
        ),
        found => found.map_err(|failure| of_bucket(failure, "looking for", factory, url))?,
    }
    if settings.operation == Operation::List {
        return Ok(());
    }
    let load = Load::new(settings, Share::WHOLE);
    for index in [0, load.prepared - 1] {
        let mut key = String::new();
        load.write_key(&mut key, Name::Prepared(index));
        let length = load.content_of(&key).remaining();
        let found = runtime.block_on(async { limit.run(Stamp::now(), client.stat(&key, length, false)).await });
        match found {
            Err(Failure::Status { status: 404, .. }) => bail!(
                "--no-prepare is for objects that are there, and there is no {key:?} in the bucket {bucket:?}: they are those that get, stat or list wrote with --keep (delete and mixed delete some of theirs, from the first on); give as many --objects, and the same --prefix, --per-folder and --scatter"
            ),
            Err(Failure::Mismatch) => {}
            found => found.with_context(|| format!("looking for {key:?} in the bucket {bucket:?}"))?,
        }
    }
    Ok(())
}

/// Whether an operation runs for a while before it is measured: what a delete or a phase of a pattern uses up or leaves behind belongs to the measurement.
pub(crate) fn is_warmed_up(operation: Operation) -> bool {
    phases(operation).len() == 1 && operation != Operation::Delete
}

/// Start and end of a phase for which all are ready at `ready`.
pub(crate) fn bounds(settings: &Settings, phase: Phase, ready: Stamp) -> (Stamp, End) {
    let args = &settings.load;
    let start = ready.plus(if is_warmed_up(settings.operation) { args.warmup } else { Duration::ZERO });
    let end = match (phase.timed, args.count) {
        (false, _) => End::Done,
        (true, Some(count)) => End::After(count),
        (true, None) => End::At(start.plus(args.duration)),
    };
    (start, end)
}

/// What a run came to.
struct Measured {
    /// When the first phase began, in seconds since 1970.
    started: u64,
    /// Most objects that the preparation wrote.
    prepared_max: u64,
    /// Phases that began, with their names.
    outcomes: Vec<(&'static str, Outcome)>,
    /// It was stopped before its end.
    interrupted: bool,
}

impl Measured {
    /// Most objects that are there; nothing where a client process took with it what it knew, or workers gave up, so that others deleted what had not been written.
    fn objects_max(&self) -> Option<u64> {
        let all = || self.outcomes.iter().map(|(_, outcome)| &outcome.stats);
        let written: u64 = all().map(|stats| stats.written_max).sum();
        let deleted: u64 = all().map(|stats| stats.deleted).sum();
        let is_known = all().all(|stats| stats.lost.is_empty() && stats.given_up == 0);
        is_known.then(|| (self.prepared_max + written).saturating_sub(deleted))
    }
}

fn measure(settings: &Settings, factory: &Arc<Factory>) -> anyhow::Result<Measured> {
    let args = &settings.load;
    let load = Arc::new(Load::new(settings, Share::WHOLE));
    let threads = Threads { factory, count: threads(settings), server_pids: &args.server_pid };
    if !args.no_prepare && load.prepared > 0 {
        let mut progress = Progress::new("preparing", Whole::Operations(load.prepared));
        threads.prepare(&load, &mut |tick| progress.tick(tick)).context("writing the objects that the load needs")?;
        progress.finish();
    }
    if is_stopped() {
        bail!("stopped before anything was measured");
    }
    let mut processes = if args.processes > 1 { Some(Processes::start(settings)?) } else { None };
    let started = unix_seconds();
    let mut outcomes = Vec::new();
    for (index, phase) in phases(settings.operation).iter().enumerate() {
        if is_stopped() {
            break;
        }
        let name = if phase.name.is_empty() { settings.operation.name() } else { phase.name };
        let whole = match bounds(settings, *phase, Stamp::now()).1 {
            End::At(_) => Whole::Time(args.duration),
            End::After(count) => Whole::Operations(count.saturating_mul(phase.goal.operations_per_step())),
            End::Done => Whole::Unknown,
        };
        let progress = std::cell::RefCell::new(Progress::new(name, whole));
        let mut tick = |tick| progress.borrow_mut().tick(tick);
        let outcome = match &mut processes {
            Some(processes) => {
                processes.run(index, *phase, settings, |start| progress.borrow_mut().starts(start), &mut tick)?
            }
            None => {
                let begin = || {
                    let bounds = bounds(settings, *phase, Stamp::now());
                    progress.borrow_mut().starts(bounds.0);
                    Ok(bounds)
                };
                threads.run(&load, *phase, begin, &mut tick)?
            }
        };
        progress.into_inner().finish();
        let is_whole = outcome.stats.lost.is_empty();
        outcomes.push((phase.name, outcome));
        if !is_whole {
            // What it wrote is not known to those that would go on with it.
            break;
        }
    }
    let prepared_max = load.prepared + load.rewritten.load(Ordering::Relaxed);
    Ok(Measured { started, prepared_max, outcomes, interrupted: is_stopped() })
}

/// A load that did nothing right, or read wrong bytes, is no measurement. Phases come with their names, which are empty where there is only one.
///
/// # Errors
/// All that is wrong, a line each.
pub(crate) fn judge<'a>(phases: impl Iterator<Item = (&'a str, &'a Stats)>) -> anyhow::Result<()> {
    let (mut succeeded, mut faults) = (0, Vec::new());
    for (name, stats) in phases {
        succeeded += stats.counts().0;
        faults.extend(faults_of(stats).into_iter().map(|fault| placed(name, &fault)));
    }
    if succeeded == 0 && faults.is_empty() {
        faults.push(NOTHING.to_owned());
    }
    all_of(faults.into_iter().map(|fault| Err(anyhow!(fault))))
}

/// The same of loads that stand beside each other: what one came to does not stand for another.
///
/// # Errors
/// As [`judge`].
pub(crate) fn judge_each<'a>(loads: impl Iterator<Item = (&'a str, &'a Stats)>) -> anyhow::Result<()> {
    let faults = loads.flat_map(|(name, stats)| {
        let mut faults = faults_of(stats);
        if faults.is_empty() && stats.counts().0 == 0 {
            faults.push(NOTHING.to_owned());
        }
        faults.into_iter().map(move |fault| Err(anyhow!(placed(name, &fault))))
    });
    all_of(faults)
}

fn placed(name: &str, fault: &str) -> String {
    if name.is_empty() { fault.to_owned() } else { format!("{name}: {fault}") }
}

const NOTHING: &str = "no operation succeeded";

fn faults_of(stats: &Stats) -> Vec<String> {
    let mut faults = stats.lost.clone();
    let wrong = stats.series.values().filter_map(|series| series.errors.get(&Failure::Mismatch.kind()));
    let wrong: u64 = wrong.sum();
    if wrong > 0 {
        faults.push(format!("{wrong} objects were not read as they were written"));
    }
    if stats.given_up > 0 {
        faults
            .push(format!("{} workers gave up before all was done, after too many failures in a row", stats.given_up));
    }
    if stats.is_too_short() {
        faults.push("no operation ended within the measurement; give a longer --duration".to_owned());
    } else if stats.is_in_vain() {
        faults.push(NOTHING.to_owned());
    }
    faults
}

#[cfg(test)]
mod tests;
