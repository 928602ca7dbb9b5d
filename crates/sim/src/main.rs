//! `gabion-sim`: runs seeds until one fails; `cargo xtask sim` builds and starts it.
#![forbid(unsafe_code)]

use std::{
    io::Write,
    ops::Range,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    time::{Duration, Instant, SystemTime},
};

use anyhow::{Context, bail};
use gabion_sim::{Failure, Overrides, Params, Report, regressions::REGRESSIONS, run};

const HELP: &str = "\
cargo xtask sim [OPTIONS]

  --seed N         this seed alone
  --seeds A..B     these seeds
  --seconds S      fresh seeds for so long (60 unless seeds are given)
  --steps N        operations of clients in each run, instead of what the seed has
  --geometry K+M   geometry, instead of what the seed has
  --calm           no target fails: crashes, restarts and loss of the index only
  --regressions    the named regressions first
  --jobs N         runs at a time (as many as there are CPUs)
  --loud           print the trace as it comes
";

/// A run that takes longer hangs.
const HANGS_AFTER: Duration = Duration::from_secs(240);

struct Options {
    seeds: Option<Range<u64>>,
    seconds: Option<u64>,
    overrides: Overrides,
    regressions: bool,
    jobs: usize,
    is_loud: bool,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| matches!(argument.as_str(), "help" | "--help" | "-h")) {
        say(HELP);
        return ExitCode::SUCCESS;
    }
    let outcome = Options::parse(&arguments).and_then(|options| options.run());
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            say(&format!("error: {error:#}"));
            ExitCode::from(2)
        }
    }
}

/// Writes a line; a closed pipe is no reason to fail.
fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

#[expect(clippy::disallowed_methods, reason = "how long to go on is real time; the simulation has its own")]
fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "a fresh seed is one that was not run before")]
fn fresh_seed() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    since.as_millis() as u64 * 1000
}

impl Options {
    fn parse(arguments: &[String]) -> anyhow::Result<Self> {
        let jobs = std::thread::available_parallelism().map_or(1, usize::from);
        let mut options = Self {
            seeds: None,
            seconds: None,
            overrides: Overrides::default(),
            regressions: false,
            jobs,
            is_loud: false,
        };
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().with_context(|| format!("{argument} needs a value"));
            match argument.as_str() {
                "--seed" => {
                    let seed: u64 = value()?.parse().context("--seed")?;
                    options.seeds = Some(seed..seed + 1);
                }
                "--seeds" => {
                    let (first, end) = value()?.split_once("..").context("--seeds A..B")?;
                    options.seeds = Some(first.parse().context("--seeds")?..end.parse().context("--seeds")?);
                }
                "--seconds" => options.seconds = Some(value()?.parse().context("--seconds")?),
                "--steps" => options.overrides.ops = Some(value()?.parse().context("--steps")?),
                "--geometry" => options.overrides.geometry = Some(value()?.parse().context("--geometry")?),
                "--jobs" => options.jobs = value()?.parse::<usize>().context("--jobs")?.max(1),
                "--calm" => options.overrides.calm = true,
                "--regressions" => options.regressions = true,
                "--loud" => options.is_loud = true,
                _ => bail!("{argument} is not an option\n\n{HELP}"),
            }
        }
        Ok(options)
    }

    /// Runs everything that was asked for; false if something failed.
    fn run(self) -> anyhow::Result<bool> {
        if self.regressions {
            let mut total = Total::default();
            for regression in REGRESSIONS {
                match run(&regression.params(), self.is_loud) {
                    Ok(report) => total.add(&report),
                    Err(failure) => {
                        say(&format!("regression {:?}:\n{failure}", regression.name));
                        return Ok(false);
                    }
                }
            }
            say(&format!("{} named regressions: {total}", REGRESSIONS.len()));
        }
        let seconds = self.seconds.or(self.seeds.is_none().then_some(60));
        let seeds = self.seeds.clone().unwrap_or_else(|| {
            let first = fresh_seed();
            first..u64::MAX
        });
        say(&format!("seeds from {}", seeds.start));
        let began = now();
        let deadline = seconds.map(|seconds| began + Duration::from_secs(seconds));
        let (total, failure) = self.run_seeds(seeds, deadline)?;
        let took = began.elapsed().as_secs_f64();
        match failure {
            None => {
                say(&format!("{total}, {took:.1} s"));
                Ok(true)
            }
            Some(failure) => {
                say(&format!("{failure}\nafter {total}, {took:.1} s"));
                Ok(false)
            }
        }
    }

    /// Runs seeds on as many threads as there are jobs, until the first failure, the end or the deadline.
    fn run_seeds(&self, seeds: Range<u64>, deadline: Option<Instant>) -> anyhow::Result<(Total, Option<Box<Failure>>)> {
        let next = Arc::new(AtomicU64::new(seeds.start));
        let (sender, results) = mpsc::channel();
        for _ in 0..self.jobs {
            let (next, sender) = (Arc::clone(&next), sender.clone());
            let (overrides, is_loud, end) = (self.overrides.clone(), self.is_loud, seeds.end);
            let work = move || loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= end || deadline.is_some_and(|deadline| now() >= deadline) {
                    return;
                }
                if sender.send((seed, None)).is_err() {
                    return;
                }
                let outcome = run(&Params::derive(seed, overrides.clone()), is_loud);
                if sender.send((seed, Some(outcome))).is_err() {
                    return;
                }
            };
            std::thread::Builder::new().name("gabion-sim".into()).spawn(work).context("starting a thread")?;
        }
        drop(sender);
        let (mut total, mut under_way) = (Total::default(), Vec::new());
        loop {
            match results.recv_timeout(HANGS_AFTER) {
                Ok((seed, None)) => under_way.push(seed),
                Ok((seed, Some(outcome))) => {
                    under_way.retain(|other| *other != seed);
                    match outcome {
                        Ok(report) => total.add(&report),
                        Err(failure) => return Ok((total, Some(failure))),
                    }
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => return Ok((total, None)),
                Err(mpsc::RecvTimeoutError::Timeout) => bail!("one of the seeds {under_way:?} hangs"),
            }
        }
    }
}

/// What all runs came to.
#[derive(Default)]
struct Total {
    runs: u64,
    ops: u64,
    refused: u64,
    lives: u64,
    cuts: u64,
    steps: u64,
    held: u64,
    hash: u64,
}

impl Total {
    fn add(&mut self, report: &Report) {
        self.runs += 1;
        self.ops += report.ops;
        self.refused += report.refused;
        self.lives += report.lives;
        self.cuts += report.cuts;
        self.steps += report.steps;
        self.held += report.held;
        self.hash ^= report.hash;
    }
}

impl std::fmt::Display for Total {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { runs, ops, refused, lives, cuts, steps, held, hash } = self;
        write!(
            f,
            "{runs} seeds passed: {ops} operations ({refused} refused), {lives} lives ({cuts} cut off), {steps} disk steps, {held} stripes kept for others, hash {hash:016x}"
        )
    }
}
