//! `gabion bench floor`: what this machine could do at best, in the same run as what a server on it does.
//!
//! Three floors, each without what lies above it: an HTTP server without storage behind the same client (of gets also one that has more to send than the processor's caches hold), the log
//! without HTTP, and files with the writes and syncs of the log but nothing else. Of small puts two more, which take the cores from each other as a server's parts do: HTTP with the log
//! behind it, and with files. They are measured in turn with the endpoints, round by round, so that whatever else the machine does meets all alike; the median round
//! is shown. This is the one module of the crate that knows the log and the disk; the rest is an S3 client.

mod behind;
mod cli;
mod endpoint;
mod files;
mod http;
mod log;
mod page;
mod place;
mod table;

use std::time::Duration;

use anyhow::{Context, anyhow};
use gabion_platform::{sync_file_systems, touch_memory};
use gabion_segment::Durability;
use tokio::{runtime::Runtime, task::JoinSet};

pub(crate) use cli::FloorArgs;

use crate::{
    clock::{Stamp, unix_seconds},
    driver::{BenchError, judge_each},
    failure::all_of,
    output::Outputs,
    progress::{Progress, Whole},
    stats::{Kind, Stats},
    stop::{has_told, is_stopped, stop_when_asked},
    threads::cores,
    workload::Action,
};
use behind::Behind;
use table::{Row, Table};

/// What a subject is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Layer {
    /// HTTP without storage, the same bytes in every answer.
    Http,
    /// The same, with bytes of its own for each object.
    HttpEach,
    /// The log without HTTP.
    Log(Durability),
    /// HTTP with nothing but the log behind it.
    HttpLog(Durability),
    /// Files without the log.
    Files(Durability),
    /// HTTP with nothing but files behind it.
    HttpFiles(Durability),
    /// One write and one sync at a time, of one file.
    DataSync,
    /// A server, with the durability that it is said to have.
    Endpoint(Durability),
}

impl Layer {
    /// Whether a request to a server of this durability passes here.
    fn is_below(self, durability: Durability) -> bool {
        match self {
            Layer::Http | Layer::HttpEach => true,
            Layer::Log(own) | Layer::HttpLog(own) | Layer::Files(own) | Layer::HttpFiles(own) => own == durability,
            Layer::DataSync | Layer::Endpoint(_) => false,
        }
    }

    /// Whether it is one part of a server, which has all cores for itself.
    fn is_alone(self) -> bool {
        !matches!(self, Layer::HttpLog(_) | Layer::HttpFiles(_))
    }
}

/// What is measured.
#[derive(Clone, Copy, Debug)]
struct Measurement {
    action: Action,
    size_bytes: u64,
    concurrency: usize,
    warmup: Duration,
    duration: Duration,
}

/// Whether an operation that begins now belongs to a measurement that is over at `end`.
fn goes_on(end: Stamp) -> bool {
    !is_stopped() && Stamp::now() < end
}

/// What one subject came to in one round.
struct Round {
    stats: Stats,
    /// CPU time of the server, where it is a process that is known.
    server_cpu: Option<Duration>,
    /// How much of the time that the client's threads could have they took, where there is a client.
    client_busy: Option<f64>,
}

impl From<Stats> for Round {
    fn from(stats: Stats) -> Self {
        Self { stats, server_cpu: None, client_busy: None }
    }
}

/// All rounds of one subject together.
fn sum(rounds: &[Round]) -> Stats {
    let mut sum = Stats::new(Stamp::now());
    rounds.iter().for_each(|round| sum.merge(&round.stats));
    sum
}

/// Something that can be measured.
trait Subject {
    /// What it is called in the table.
    fn name(&self) -> String;

    fn layer(&self) -> Layer;

    /// Writes what it reads.
    ///
    /// # Errors
    /// When that fails, or it was stopped before.
    fn prepare(&mut self) -> anyhow::Result<()> {
        Ok(())
    }

    /// The figures of one round; nothing where the operation does not come by.
    ///
    /// # Errors
    /// When it can not be measured.
    fn measure(&mut self, measurement: Measurement) -> anyhow::Result<Option<Round>>;

    /// Removes what it wrote, also where it was not wholly prepared.
    ///
    /// # Errors
    /// With what stays.
    fn clean_up(&mut self) -> anyhow::Result<()> {
        Ok(())
    }
}

/// What others have left to be written, or to be found by the host, is not to be paid by who is measured next.
fn settle(args: &FloorArgs) -> anyhow::Result<()> {
    sync_file_systems();
    touch_memory(args.touch_memory).context("touching memory")?;
    Ok(())
}

/// Threads for what is measured in place of a server: as many as one has.
fn runtime() -> anyhow::Result<Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(cores()).enable_all().build().context("starting the threads of the floor")
}

/// Runs tasks beside each other: what all of them came to since `start`.
///
/// # Errors
/// That of the first task that failed.
async fn run_all<T>(tasks: impl Iterator<Item = T>, start: Stamp) -> anyhow::Result<Round>
where
    T: Future<Output = anyhow::Result<Stats>> + Send + 'static,
{
    let (mut tasks, mut sum) = (tasks.collect::<JoinSet<_>>(), Stats::new(start));
    while let Some(stats) = tasks.join_next().await {
        sum.merge(&stats.context("a task of the floor panicked")??);
    }
    Ok(sum.into())
}

/// Measures all floors and endpoints, and prints the table.
///
/// # Errors
/// `Usage` when flags do not go together, an endpoint is invalid or credentials are missing; `Failed` when something can not be measured, or came to no operation, or read wrong bytes, in all rounds.
pub(crate) fn run(args: &FloorArgs) -> Result<(), BenchError> {
    args.check().map_err(BenchError::Usage)?;
    if http::was_server(args)? {
        return Ok(());
    }
    let endpoints = endpoints(args).map_err(BenchError::usage)?;
    stop_when_asked()?;
    let outputs = Outputs::open(args.json.as_deref(), None)?;
    let mut subjects = Vec::new();
    let measured = add_subjects(args, endpoints, &mut subjects).and_then(|()| measure_all(args, &mut subjects));
    let told =
        measured.and_then(|(table, judged)| all_of([outputs.publish(&table, &table.text(), String::new), judged]));
    has_told(&told);
    Ok(all_of([told, clean_up(&mut subjects)])?)
}

/// Removes what was written, from the last to the first: an endpoint that made a bucket which others use as well deletes it when they have left it.
fn clean_up(subjects: &mut [Box<dyn Subject>]) -> anyhow::Result<()> {
    all_of(subjects.iter_mut().rev().map(|subject| subject.clean_up()))
}

/// Those that are measured. Nothing is asked of them yet.
///
/// # Errors
/// When an address is invalid, or credentials are missing.
fn endpoints(args: &FloorArgs) -> anyhow::Result<Vec<endpoint::Endpoint>> {
    let pids = args.server_pid.iter().copied().map(Some).chain(std::iter::repeat(None));
    args.endpoints()
        .zip(pids)
        .map(|((durability, url), pid)| endpoint::Endpoint::new(args, durability, url, pid))
        .collect()
}

/// Makes all else that is measured and prepares it. What was begun is added, so that it is removed whatever comes.
fn add_subjects(
    args: &FloorArgs,
    endpoints: Vec<endpoint::Endpoint>,
    subjects: &mut Vec<Box<dyn Subject>>,
) -> anyhow::Result<()> {
    subjects.push(Box::new(http::HttpFloor::new(args, Behind::One)?));
    if args.operation.contains(&cli::FloorOperation::Get) {
        subjects.push(Box::new(http::HttpFloor::new(args, Behind::Each)?));
    }
    for durability in args.durabilities() {
        if !args.targets.is_empty() {
            subjects.push(Box::new(log::LogFloor::open(args, durability)?));
            subjects.push(Box::new(http::HttpFloor::new(args, Behind::Log(durability))?));
            subjects.push(Box::new(files::FileFloor::open(args, durability)?));
            subjects.push(Box::new(http::HttpFloor::new(args, Behind::Files(durability))?));
        }
    }
    if !args.targets.is_empty() && args.operation.contains(&cli::FloorOperation::Put) {
        subjects.push(Box::new(files::DataSync::open(args)?));
    }
    for endpoint in endpoints {
        subjects.push(Box::new(endpoint));
    }
    for subject in subjects {
        subject.prepare()?;
    }
    Ok(())
}

/// What is left of a run that is stopped.
fn stopped() -> anyhow::Error {
    anyhow!("stopped before all was measured")
}

/// The table, and what is wrong with what is in it. What ends the measurement early costs the round that was under way, and not those before.
///
/// # Errors
/// What ended the first round.
fn measure_all(args: &FloorArgs, subjects: &mut [Box<dyn Subject>]) -> anyhow::Result<(Table, anyhow::Result<()>)> {
    let started = unix_seconds();
    let mut rounds: Vec<Vec<Round>> = Vec::new();
    let actions: Vec<Action> = args.operation.iter().map(|operation| operation.action()).collect();
    let width = subjects.len();
    rounds.resize_with(actions.len() * width, Vec::new);
    let progress = Progress::new("measuring", Whole::Operations(u64::from(args.rounds) * rounds.len() as u64));
    let (mut complete, mut ended) = (0, Ok(()));
    while complete < args.rounds && ended.is_ok() {
        match measure_round(args, complete, &actions, subjects, &progress) {
            Ok(figures) => {
                rounds.iter_mut().zip(figures).for_each(|(rounds, figures)| rounds.extend(figures));
                complete += 1;
            }
            Err(error) => ended = Err(error),
        }
    }
    progress.finish();
    let ended = match ended {
        Err(error) if complete == 0 => return Err(error),
        ended => ended.with_context(|| format!("figures are of {complete} of {} rounds", args.rounds)),
    };
    let (mut rows, mut sums) = (Vec::new(), Vec::new());
    for (row, action) in actions.iter().enumerate() {
        for (column, subject) in subjects.iter().enumerate() {
            let figures = &rounds[row * width + column];
            let kind = Kind::from(*action);
            if let Some(shown) = Row::new(kind, subject.name(), subject.layer(), figures) {
                rows.push(shown);
                sums.push((format!("{} of {}", kind.name(), subject.name()), sum(figures)));
            }
        }
    }
    let judged = judge_each(sums.iter().map(|(name, sum)| (&**name, sum)));
    Ok((Table::new(args, complete, started, rows), all_of([judged, ended])))
}

/// One round of all operations of all subjects, in the order of the table.
///
/// # Errors
/// When something can not be measured, or the run is stopped.
fn measure_round(
    args: &FloorArgs,
    round: u32,
    actions: &[Action],
    subjects: &mut [Box<dyn Subject>],
    progress: &Progress,
) -> anyhow::Result<Vec<Option<Round>>> {
    let width = subjects.len();
    let mut figures: Vec<Option<Round>> = Vec::new();
    figures.resize_with(actions.len() * width, || None);
    for (row, action) in actions.iter().enumerate() {
        for turn in 0..width {
            // Every other round goes backwards: what one leaves behind (caches, writes under way) is not always met by the same one.
            let column = if round.is_multiple_of(2) { turn } else { width - 1 - turn };
            let subject = &mut subjects[column];
            if is_stopped() {
                return Err(stopped());
            }
            let measurement = Measurement {
                action: *action,
                size_bytes: args.size,
                concurrency: args.concurrency as usize,
                warmup: args.warmup,
                duration: args.duration,
            };
            let name = subject.name();
            let measured = settle(args).and_then(|()| subject.measure(measurement));
            figures[row * width + column] = measured.with_context(|| format!("measuring {name}"))?;
            progress.step();
        }
    }
    if is_stopped() { Err(stopped()) } else { Ok(figures) }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;
    use crate::{
        floor::cli::tests::args,
        stats::Done,
        test_server::{Bucket, serve},
    };

    /// One that counts an operation or none.
    struct Counts(Option<Stats>);

    impl Subject for Counts {
        fn name(&self) -> String {
            if self.0.is_some() { "busy" } else { "idle" }.to_owned()
        }

        fn layer(&self) -> Layer {
            Layer::DataSync
        }

        fn measure(&mut self, _: Measurement) -> anyhow::Result<Option<Round>> {
            Ok(Some(self.0.clone().unwrap_or_else(|| Stats::new(Stamp::now())).into()))
        }
    }

    #[test]
    fn who_came_to_no_operation_is_told_beside_those_that_did() {
        let now = Stamp::now();
        let mut stats = Stats::new(now);
        stats.record(Kind::Put, now, Stamp::now(), Ok(Done::bytes(1)));
        let args = args(&["--operation", "put", "--rounds", "2"]);
        let subjects: &mut [Box<dyn Subject>] = &mut [Box::new(Counts(Some(stats))), Box::new(Counts(None))];
        let (_, judged) = measure_all(&args, subjects).unwrap();
        assert_eq!(judged.unwrap_err().to_string(), "put of idle: no operation succeeded");
        measure_all(&args, &mut subjects[..1]).unwrap().1.unwrap();
    }

    /// One that can be measured so many times.
    struct Fails(u32);

    impl Subject for Fails {
        fn name(&self) -> String {
            "frail".to_owned()
        }

        fn layer(&self) -> Layer {
            Layer::DataSync
        }

        fn measure(&mut self, _: Measurement) -> anyhow::Result<Option<Round>> {
            self.0 = self.0.checked_sub(1).ok_or_else(|| anyhow!("no space left"))?;
            let now = Stamp::now();
            let mut stats = Stats::new(now);
            stats.record(Kind::Put, now, Stamp::now(), Ok(Done::bytes(1)));
            Ok(Some(stats.into()))
        }
    }

    #[test]
    fn what_fails_in_a_later_round_costs_that_round() {
        let args = args(&["--operation", "put", "--rounds", "9"]);
        let steady = || -> Box<dyn Subject> { Box::new(Fails(u32::MAX)) };
        let (table, judged) = measure_all(&args, &mut [steady(), Box::new(Fails(2)), steady()]).unwrap();
        let error = format!("{:#}", judged.unwrap_err());
        assert_eq!(error, "figures are of 2 of 9 rounds: measuring frail: no space left");
        let json = serde_json::to_value(&table).unwrap();
        assert_eq!(json["rounds"], 2);
        for row in json["rows"].as_array().unwrap() {
            assert_eq!(row["rounds_ops_per_s"].as_array().unwrap().len(), 2);
        }
        let error = measure_all(&args, &mut [steady(), Box::new(Fails(0))]).unwrap_err();
        assert_eq!(format!("{error:#}"), "measuring frail: no space left");
    }

    /// One that notes when it is cleaned up.
    struct Notes(u32, Arc<Mutex<Vec<u32>>>);

    impl Subject for Notes {
        fn name(&self) -> String {
            self.0.to_string()
        }

        fn layer(&self) -> Layer {
            Layer::DataSync
        }

        fn measure(&mut self, _: Measurement) -> anyhow::Result<Option<Round>> {
            Ok(None)
        }

        fn clean_up(&mut self) -> anyhow::Result<()> {
            self.1.lock().push(self.0);
            Err(anyhow!("stays {}", self.0))
        }
    }

    #[test]
    fn who_made_a_bucket_for_others_is_cleaned_up_behind_them() {
        let noted = Arc::<Mutex<Vec<u32>>>::default();
        let subjects: &mut [Box<dyn Subject>] =
            &mut [0, 1, 2].map(|number| -> Box<dyn Subject> { Box::new(Notes(number, Arc::clone(&noted))) });
        let error = clean_up(subjects).unwrap_err();
        assert_eq!(*noted.lock(), [2, 1, 0]);
        assert_eq!(error.to_string(), "stays 2\nstays 1\nstays 0", "none hides another");
    }

    #[test]
    fn endpoints_are_judged_before_anything_is_written() {
        let place = tempfile::tempdir().unwrap();
        let target = place.path().to_str().unwrap();
        let flags = ["--endpoint", "ftp://a:1", "--access-key", "a", "--secret-key", "s", "--targets", target];
        let outcome = run(&args(&flags));
        assert!(matches!(&outcome, Err(BenchError::Usage(why)) if why.contains("ftp://a:1")), "{outcome:?}");
        assert_eq!(place.path().read_dir().unwrap().count(), 0);
    }

    #[test]
    fn what_failed_in_all_rounds_is_no_measurement() {
        let refused = Some(("PUT ", 503, "SlowDown"));
        let (_server, url) = serve(&Arc::new(Mutex::new(Bucket { refused, ..Bucket::default() })));
        let args = args(
            &[
                &["--access-key", "a", "--secret-key", "s", "--operation", "put"][..],
                &["--rounds", "2", "-d", "20ms", "--warmup", "0s", "-c", "2"],
            ]
            .concat(),
        );
        let endpoint = endpoint::Endpoint::new(&args, Durability::Sync, &url, None).unwrap();
        let (table, judged) = measure_all(&args, &mut [Box::new(endpoint)]).unwrap();
        assert_eq!(judged.unwrap_err().to_string(), format!("put of {url} (sync): no operation succeeded"));
        assert!(table.text().contains(" × 503 SlowDown\n"), "{}", table.text());
    }
}
