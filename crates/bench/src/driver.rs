//! A whole run: prepare, measure, report, clean up.

use std::{
    collections::hash_map::RandomState,
    future::{Future, poll_fn},
    hash::{BuildHasher, Hasher},
    io::Write,
    path::Path,
    sync::{Arc, atomic::Ordering},
    task::Poll,
    time::Duration,
};

use anyhow::{Context, bail};
use tokio::{
    runtime::{Builder, Runtime},
    signal::unix::{Signal, SignalKind, signal},
};

use crate::{
    cli::{Cli, Operation, Settings},
    clock::{Stamp, unix_seconds},
    factory::Factory,
    failure::Failure,
    processes::{self, Processes},
    progress::{Progress, Whole},
    report::Report,
    s3::{Client, Listing},
    stats::Stats,
    threads::{Outcome, Threads},
    workload::{End, Load, Phase, STOP, Share, phases},
};

/// Why a run ended without a result.
#[derive(Debug)]
pub enum BenchError {
    /// What was asked for makes no sense.
    Usage(String),
    /// It was tried and failed.
    Failed(anyhow::Error),
}

impl From<anyhow::Error> for BenchError {
    fn from(error: anyhow::Error) -> Self {
        BenchError::Failed(error)
    }
}

/// Runs what `cli` describes and writes its report. Starts runtimes of its own: not to be called from within one.
///
/// # Errors
/// `Usage` when flags do not go together; `Failed` when the endpoint can not be reached or refuses the preparation, when no operation succeeded, or when a body read was not
/// the one written.
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
    Ok(run_load(settings)?)
}

/// Threads of each client process.
fn threads(settings: &Settings) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    settings.load.threads.unwrap_or(cores.min(4)).max(1)
}

/// A name that no other run has, as a folder: what lies in it is this run's to remove.
pub(crate) fn run_folder() -> String {
    // The standard library's hasher is keyed with random numbers of the system.
    let random = || RandomState::new().build_hasher().finish();
    format!("{:08x}-{:016x}/", unix_seconds(), random())
}

fn run_load(mut settings: Settings) -> anyhow::Result<()> {
    let share = processes::own_share()?;
    settings.run = match &share {
        Some((_, run)) => run.clone(),
        None if settings.keeps() => String::new(),
        None => run_folder(),
    };
    let settings = &settings;
    let args = &settings.load;
    let factory = Arc::new(Factory::new(&args.access, &args.endpoint, &args.bucket)?);
    stop_when_asked(&[SignalKind::interrupt()])?;
    if let Some((share, _)) = share {
        return processes::serve(settings, &factory, threads(settings), share);
    }
    let runtime = Builder::new_current_thread().enable_all().build().context("starting the client")?;
    let mut client = factory.client(0);
    let created = limited(&runtime, &factory, client.create_bucket())
        .with_context(|| format!("preparing the bucket {:?} at {}", args.bucket, args.endpoint[0]))?;
    let started = unix_seconds();
    let measured = measure(settings, &factory);
    let cleaned = match &*settings.run {
        "" => Ok(()),
        run => {
            let uploads = match settings.operation {
                // First: one whose end was not waited for may yet become an object.
                Operation::Multipart => abort_uploads(&args.prefix, run, &runtime, &factory, &mut client),
                _ => Ok(()),
            };
            uploads.and_then(|()| clean_up(&args.prefix, run, &runtime, &factory, &mut client, created))
        }
    };
    let outcomes = measured?;
    publish(settings, &Report::new(settings, threads(settings) * args.processes as usize, started, &outcomes))?;
    cleaned.with_context(|| format!("removing what was written below {}{}", args.prefix, settings.run))?;
    judge(outcomes.iter().map(|(_, outcome)| &outcome.stats))
}

/// The first of these signals ends the measurement: what was measured is reported, what was written is removed. The second ends the program.
///
/// # Errors
/// When the signals can not be received.
pub(crate) fn stop_when_asked(kinds: &[SignalKind]) -> anyhow::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build().context("starting the client")?;
    let entered = runtime.enter();
    let signals = kinds.iter().map(|kind| signal(*kind)).collect::<Result<Vec<_>, _>>();
    let mut signals = signals.context("listening to signals")?;
    drop(entered);
    std::thread::spawn(move || {
        runtime.block_on(async {
            any_of(&mut signals).await;
            STOP.store(true, Ordering::Relaxed);
            any_of(&mut signals).await;
            std::process::exit(130);
        });
    });
    Ok(())
}

async fn any_of(signals: &mut [Signal]) {
    poll_fn(|context| {
        let came = signals.iter_mut().any(|signal| signal.poll_recv(context).is_ready());
        if came { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// Runs one request within the time limit.
pub(crate) fn limited<T>(
    runtime: &Runtime,
    factory: &Factory,
    request: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    runtime.block_on(async { factory.limit().run(Stamp::now(), request).await })
}

/// Start and end of a phase for which all are ready at `ready`.
pub(crate) fn bounds(settings: &Settings, phase: Phase, ready: Stamp) -> (Stamp, End) {
    let args = &settings.load;
    // What a delete or a phase of a pattern uses up or leaves behind belongs to the measurement.
    let warm = phase.timed && phases(settings.operation).len() == 1 && settings.operation != Operation::Delete;
    let start = ready.plus(if warm { args.warmup } else { Duration::ZERO });
    let end = match (phase.timed, args.count) {
        (false, _) => End::Done,
        (true, Some(count)) => End::After(count),
        (true, None) => End::At(start.plus(args.duration)),
    };
    (start, end)
}

fn measure(settings: &Settings, factory: &Arc<Factory>) -> anyhow::Result<Vec<(&'static str, Outcome)>> {
    let args = &settings.load;
    let load = Arc::new(Load::new(settings, Share::WHOLE));
    let threads = Threads { factory, count: threads(settings), server_pids: &args.server_pid };
    if !args.no_prepare && load.prepared > 0 {
        let mut progress = Progress::new("preparing", Whole::Operations(load.prepared));
        threads.prepare(&load, &mut |tick| progress.tick(tick)).context("writing the objects that the load needs")?;
        progress.finish();
    }
    let mut processes = if args.processes > 1 { Some(Processes::start(settings)?) } else { None };
    let mut outcomes = Vec::new();
    for (index, phase) in phases(settings.operation).iter().enumerate() {
        let name = if phase.name.is_empty() { settings.operation.name() } else { phase.name };
        let whole = match bounds(settings, *phase, Stamp::now()).1 {
            End::At(_) => Whole::Time(args.duration),
            End::After(count) => Whole::Operations(count),
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
        outcomes.push((phase.name, outcome));
    }
    Ok(outcomes)
}

/// Gives up the uploads in parts below the run's own folder that were neither completed nor given up: a request of theirs was not answered in time.
fn abort_uploads(
    prefix: &str,
    run: &str,
    runtime: &Runtime,
    factory: &Factory,
    client: &mut Client,
) -> Result<(), Failure> {
    let mut before = Vec::new();
    loop {
        let uploads = limited(runtime, factory, client.list_uploads(&format!("{prefix}{run}")))?;
        // Where those that were given up are listed on, there is nothing more to do.
        if uploads.is_empty() || uploads == before {
            return Ok(());
        }
        for (key, upload) in &uploads {
            match limited(runtime, factory, client.abort_upload(key, upload)) {
                Ok(()) | Err(Failure::Status { status: 404, .. }) => {}
                Err(failure) => return Err(failure),
            }
        }
        before = uploads;
    }
}

/// Deletes what lies below the run's own folder, and the bucket if this run created it and nobody else uses it.
///
/// A prefix that was given may hold what others wrote: it is never deleted, whatever it is.
pub(crate) fn clean_up(
    prefix: &str,
    run: &str,
    runtime: &Runtime,
    factory: &Factory,
    client: &mut Client,
    created: bool,
) -> Result<(), Failure> {
    assert!(run.len() > 1 && run.ends_with('/'), "only a folder of the run's own is emptied");
    let prefix = format!("{prefix}{run}");
    let listing = Listing { prefix: &prefix, delimiter: None, max_keys: 1000, token: None };
    let mut progress = Progress::new("cleaning up", Whole::Unknown);
    let mut tick = crate::threads::Tick::default();
    loop {
        limited(runtime, factory, client.list(listing))?;
        // A server that lists what was not asked for deletes nothing of others.
        let mut keys = client.listed_keys();
        keys.retain(|key| key.starts_with(&prefix));
        if keys.is_empty() {
            break;
        }
        limited(runtime, factory, client.delete_keys(&keys))?;
        tick.operations += keys.len() as u64;
        progress.tick(tick);
    }
    progress.finish();
    if !created {
        return Ok(());
    }
    match limited(runtime, factory, client.delete_bucket()) {
        // Another run has written to it.
        Err(Failure::Status { status: 409, .. }) => Ok(()),
        outcome => outcome,
    }
}

fn publish(settings: &Settings, report: &Report) -> anyhow::Result<()> {
    let args = &settings.load;
    let mut text = true;
    if let Some(path) = &args.json {
        let json = serde_json::to_string_pretty(report)? + "\n";
        if path == Path::new("-") {
            print(&json)?;
            text = false;
        } else {
            std::fs::write(path, json).with_context(|| format!("writing {}", path.display()))?;
        }
    }
    if let Some(path) = &args.html {
        std::fs::write(path, crate::html::page(&[report])).with_context(|| format!("writing {}", path.display()))?;
    }
    if text { print(&report.text()) } else { Ok(()) }
}

/// Writes a text to the standard output.
///
/// # Errors
/// When nobody reads it.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    Ok(stdout.flush()?)
}

/// A load that did nothing right, or read wrong bytes, is no measurement.
pub(crate) fn judge<'a>(phases: impl Iterator<Item = &'a Stats>) -> anyhow::Result<()> {
    let (mut mismatches, mut succeeded, mut in_vain) = (0, 0, false);
    for stats in phases {
        let wrong = stats.series.values().filter_map(|series| series.errors.get(&Failure::Mismatch.kind()));
        mismatches += wrong.sum::<u64>();
        succeeded += stats.counts().0;
        in_vain |= stats.is_in_vain();
    }
    if mismatches > 0 {
        bail!("{mismatches} objects were not read as they were written");
    }
    if in_vain || succeeded == 0 {
        bail!("no operation succeeded");
    }
    Ok(())
}

#[cfg(test)]
mod tests;
