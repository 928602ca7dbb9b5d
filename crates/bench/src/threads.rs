//! The threads of one client process: each runs its share of the workers by itself.
//!
//! A thread has a runtime of its own, so that a worker never moves and no two threads meet: that costs the client less than a pool that steals work.

use std::{
    io,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread::Builder,
    time::Duration,
};

use anyhow::{Context, bail};
use gabion_platform::schedule_as_batch;
use parking_lot::Mutex;
use tokio::{runtime::Runtime, task::JoinSet};

use crate::{
    clock::Stamp,
    cpu::{Meter, Spent},
    factory::Factory,
    failure::Failure,
    patience::Patience,
    stats::Stats,
    stop::is_stopped,
    workload::{End, Load, Name, Phase, Run},
};

/// What was tried when there is no thread.
const STARTING: &str = "starting a thread of the client";

/// How often progress is told.
const TICK: Duration = Duration::from_millis(200);

/// How far a phase is.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Tick {
    pub(crate) operations: u64,
    pub(crate) errors: u64,
    pub(crate) bytes: u64,
}

/// What one phase came to.
pub(crate) struct Outcome {
    pub(crate) stats: Stats,
    /// CPU time of this process in the measurement: not that of the warm-up, nor, where it was to last so long, of what ended after it.
    pub(crate) client_cpu: Duration,
    /// That of the server's processes, if they are known.
    pub(crate) server_cpu: Option<Duration>,
    /// The time that these were measured in: until the end of all, where no moment ended it.
    pub(crate) metered: Duration,
}

/// The client's threads.
pub(crate) struct Threads<'a> {
    pub(crate) factory: &'a Arc<Factory>,
    pub(crate) count: usize,
    pub(crate) server_pids: &'a [u32],
}

impl Threads<'_> {
    /// Runs one phase. `begin` is asked for its start and end when all workers are connected; `tick` is told how far it is.
    ///
    /// # Errors
    /// When a thread can not be started, and what `begin` has.
    pub(crate) fn run(
        &self,
        load: &Arc<Load>,
        phase: Phase,
        begin: impl FnOnce() -> anyhow::Result<(Stamp, End)>,
        tick: &mut dyn FnMut(Tick),
    ) -> anyhow::Result<Outcome> {
        let workers: Vec<usize> = load.own_workers().collect();
        let count = used(self.count, workers.len());
        let stats: Vec<OnceLock<Arc<Mutex<Stats>>>> = (0..count).map(|_| OnceLock::new()).collect();
        let (connected, connections) = mpsc::channel();
        let (ended, endings) = mpsc::channel();
        std::thread::scope(|scope| {
            // Threads whose start is not said end by themselves.
            let mut starts = Vec::with_capacity(count);
            for index in 0..count {
                let (start, started) = mpsc::channel::<Arc<Run>>();
                let (connected, ended, stats) = (connected.clone(), ended.clone(), &stats[index]);
                let own: Vec<usize> = workers.iter().skip(index).step_by(count).copied().collect();
                let (factory, load) = (Arc::clone(self.factory), Arc::clone(load));
                let thread = move || {
                    let runtime = runtime();
                    let crew = runtime.map(|runtime| (runtime.block_on(connect(&factory, &own)), runtime));
                    let (crew, fault) = match crew {
                        Ok(crew) => (Some(crew), Ok(())),
                        Err(error) => (None, Err(error)),
                    };
                    // Whoever listens has ended only if it failed.
                    let _ = connected.send(fault);
                    drop(connected);
                    let outcome = match (crew, started.recv()) {
                        (Some((workers, runtime)), Ok(run)) => {
                            let stats = Arc::clone(
                                stats.get_or_init(|| Arc::new(Mutex::new(Stats::within(run.start, run.end)))),
                            );
                            runtime.block_on(work(workers, &load, &run, &stats))
                        }
                        // Nothing was begun.
                        _ => Ok(()),
                    };
                    let _ = ended.send(outcome);
                };
                Builder::new().spawn_scoped(scope, thread).context(STARTING)?;
                starts.push(start);
            }
            drop((connected, ended));
            for _ in 0..count {
                connections.recv().context("a thread of the client ended early")?.context(STARTING)?;
            }
            let (start, end) = begin()?;
            let run = Arc::new(Run::new(phase.goal, start, end).at_the_rate_of(load));
            for start in starts {
                // It is missed at the end.
                let _ = start.send(Arc::clone(&run));
            }
            let mut outcome = self.watch((start, end), count, &endings, &stats, tick)?;
            outcome.stats.of_workers(workers.len() as u64);
            if run.reached_end() {
                outcome.stats.reached_end();
            }
            if let Some(stopped) = run.stopped() {
                outcome.stats.stop_at(stopped);
            }
            if let Some((count, longest)) = run.missed() {
                outcome.stats.missed(count, longest);
            }
            Ok(outcome)
        })
    }

    /// Waits for the end of all threads.
    fn watch(
        &self,
        (start, end): (Stamp, End),
        count: usize,
        endings: &mpsc::Receiver<anyhow::Result<()>>,
        stats: &[OnceLock<Arc<Mutex<Stats>>>],
        tick: &mut dyn FnMut(Tick),
    ) -> anyhow::Result<Outcome> {
        let meter = Meter::start(self.server_pids, start, end).context(STARTING)?;
        let mut running = count;
        while running > 0 {
            match endings.recv_timeout(TICK) {
                Ok(outcome) => {
                    outcome?;
                    running -= 1;
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => bail!("a thread of the client ended early"),
            }
            tick(so_far(stats));
        }
        let Spent { own: client_cpu, others: server_cpu, within: metered } = meter.spent();
        let mut sum = Stats::new(start);
        for stats in stats.iter().filter_map(OnceLock::get) {
            sum.merge(&stats.lock().clone().finish());
        }
        Ok(Outcome { stats: sum, client_cpu, server_cpu, metered })
    }

    /// Writes the objects that a load needs, with as many workers as it has.
    ///
    /// # Errors
    /// That of the first object that could not be written, however often it was tried.
    pub(crate) fn prepare(&self, load: &Arc<Load>, tick: &mut dyn FnMut(Tick)) -> anyhow::Result<()> {
        let workers = load.workers.min(usize::try_from(load.prepared).unwrap_or(usize::MAX));
        let count = used(self.count, workers);
        let next = Arc::new(AtomicU64::new(0));
        let (ended, endings) = mpsc::channel();
        std::thread::scope(|scope| {
            for index in 0..count {
                let (factory, load, next) = (Arc::clone(self.factory), Arc::clone(load), Arc::clone(&next));
                let ended = ended.clone();
                let own: Vec<usize> = (0..workers).skip(index).step_by(count).collect();
                let prepared = load.prepared;
                let thread = {
                    let next = Arc::clone(&next);
                    move || {
                        let outcome = runtime()
                            .context(STARTING)
                            .and_then(|runtime| runtime.block_on(write_prepared(&factory, &own, &load, &next)));
                        if outcome.is_err() {
                            next.store(load.prepared, Ordering::Relaxed);
                        }
                        // Whoever listens has ended only if it failed.
                        let _ = ended.send(outcome);
                    }
                };
                if let Err(error) = Builder::new().spawn_scoped(scope, thread) {
                    // Those that there are write no more.
                    next.store(prepared, Ordering::Relaxed);
                    return Err(error).context(STARTING);
                }
            }
            drop(ended);
            let mut running = count;
            while running > 0 {
                match endings.recv_timeout(TICK) {
                    Ok(outcome) => {
                        outcome?;
                        running -= 1;
                    }
                    Err(mpsc::RecvTimeoutError::Timeout) => {}
                    Err(mpsc::RecvTimeoutError::Disconnected) => bail!("a thread of the client ended early"),
                }
                let written = next.load(Ordering::Relaxed).min(load.prepared);
                tick(Tick { operations: written, ..Tick::default() });
            }
            Ok(())
        })
    }
}

/// Processors of this machine that there are for this process.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Threads of a client, of which so many are asked for.
pub(crate) fn wanted(threads: Option<usize>) -> usize {
    threads.unwrap_or(cores().min(4)).max(1)
}

/// How many of `threads` that there may be are started for so many workers.
pub(crate) fn used(threads: usize, workers: usize) -> usize {
    threads.clamp(1, workers.max(1))
}

/// That of the calling thread, which is not to interrupt a server on the same machine at each of its answers, as a client elsewhere would not: it waits for its turn, and
/// then takes all that have come.
fn runtime() -> io::Result<Runtime> {
    // Where the system does not know this, figures are lower.
    let _ = schedule_as_batch();
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

/// What all threads have counted until now.
fn so_far(stats: &[OnceLock<Arc<Mutex<Stats>>>]) -> Tick {
    stats.iter().filter_map(OnceLock::get).fold(Tick::default(), |sum, stats| {
        let stats = stats.lock();
        let (operations, errors) = stats.counts();
        Tick { operations: sum.operations + operations, errors: sum.errors + errors, bytes: sum.bytes + stats.bytes() }
    })
}

/// Makes the workers and connects them, all at once.
async fn connect(factory: &Factory, numbers: &[usize]) -> Vec<crate::workload::Worker> {
    let mut connecting = JoinSet::new();
    for number in numbers {
        let mut worker = factory.worker(*number);
        connecting.spawn(async move {
            worker.connect().await;
            worker
        });
    }
    connecting.join_all().await
}

async fn work(
    workers: Vec<crate::workload::Worker>,
    load: &Arc<Load>,
    run: &Arc<Run>,
    stats: &Arc<Mutex<Stats>>,
) -> anyhow::Result<()> {
    let mut tasks = JoinSet::new();
    for mut worker in workers {
        let (load, run, stats) = (Arc::clone(load), Arc::clone(run), Arc::clone(stats));
        tasks.spawn(async move { worker.run(&load, &run, &stats).await });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.context("a worker panicked")?;
    }
    Ok(())
}

async fn write_prepared(
    factory: &Arc<Factory>,
    numbers: &[usize],
    load: &Arc<Load>,
    next: &Arc<AtomicU64>,
) -> anyhow::Result<()> {
    let mut tasks = JoinSet::new();
    for number in numbers {
        let (mut worker, load, next) = (factory.patient_worker(*number), Arc::clone(load), Arc::clone(next));
        tasks.spawn(async move {
            let mut key = String::new();
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= load.prepared || is_stopped() {
                    return anyhow::Ok(());
                }
                load.write_key(&mut key, Name::Prepared(index));
                let mut patience = Patience::default();
                while !is_stopped()
                    && let Err(failure) = worker.put(&load, &key).await
                    && failure != Failure::Stopped
                {
                    load.rewritten.fetch_add(1, Ordering::Relaxed);
                    patience.after(failure).await.with_context(|| format!("put {key}"))?;
                }
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.context("a worker panicked")??;
    }
    Ok(())
}
