//! `cargo xtask bench …`: the tables of docs/BENCHMARKS.md.
//!
//! First figures: two release servers run at once, one on six directories (4+2) and one on a single one (1+0). Loads alternate between them and are repeated in
//! rounds, so that whatever else the machine does meets all of them alike; the median of the rounds is shown, with the errors of all.

mod plots;
mod repair;
mod shares;

use std::{
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context, bail, ensure};
use rustix::process::Signal;
use serde_json::Value;

use crate::{
    cargo::{build_release, cargo},
    http::{get, sample_sum},
    process::{output, run as run_command, signal},
    summary::say,
};

/// Figures that the server counts: what they are called on its metrics page.
const SYNCS: &str = "gabion_log_syncs_total";
const WRITTEN_BYTES: [&str; 2] = ["gabion_log_stored_bytes_total", "gabion_log_prewritten_bytes_total"];
const READS: &str = "gabion_log_reads_total";

pub(crate) const ACCESS_KEY: &str = "benchmark";
pub(crate) const SECRET_KEY: &str = "only-on-loopback-while-this-runs";

const USAGE: &str = "cargo xtask bench churn | first-figures [--dir DIRECTORY] [--seconds 5] [--rounds 3] | plots [--dir DIRECTORY] [--seconds 5] [--rounds 3] [--program GABION] \
                     | repair [--dir DIRECTORY] [--gib 1] [--program GABION] \
                     | shares [--dir DIRECTORY] [--seconds 5] [--large-seconds 1] [--rounds 3] [--keys 1000000] [--folders 1000] [--per-folder 100] [--program GABION]";

struct Options {
    directory: PathBuf,
    seconds: u64,
    large_seconds: u64,
    rounds: usize,
    gib: u64,
    keys: u64,
    folders: u64,
    per_folder: u64,
    /// A server to be measured instead of one that is built.
    program: Option<PathBuf>,
}

/// Runs the benchmark that the first argument names.
///
/// # Errors
/// When the arguments are not understood, or a server or load fails.
pub(crate) fn run(arguments: &[String]) -> anyhow::Result<()> {
    match arguments.first().map(String::as_str) {
        Some("first-figures" | "plots" | "repair" | "shares") => {}
        Some("churn") if arguments.len() == 1 => return churn(),
        _ => bail!("{USAGE}"),
    }
    let mut options = Options {
        directory: std::env::temp_dir(),
        seconds: 5,
        large_seconds: 1,
        rounds: 3,
        gib: 1,
        keys: 1_000_000,
        folders: 1000,
        per_folder: 100,
        program: None,
    };
    for pair in arguments[1..].chunks(2) {
        let [name, value] = pair else { bail!("{USAGE}") };
        match name.as_str() {
            "--dir" => options.directory = value.into(),
            "--seconds" => options.seconds = value.parse().context(USAGE)?,
            "--large-seconds" => options.large_seconds = value.parse().context(USAGE)?,
            "--rounds" => options.rounds = value.parse().context(USAGE)?,
            "--program" => options.program = Some(value.into()),
            "--gib" => options.gib = value.parse().context(USAGE)?,
            "--keys" => options.keys = value.parse().context(USAGE)?,
            "--folders" => options.folders = value.parse().context(USAGE)?,
            "--per-folder" => options.per_folder = value.parse().context(USAGE)?,
            _ => bail!("{USAGE}"),
        }
    }
    if arguments[0] == "repair" {
        let program = options.program.map_or_else(build_release, Ok)?;
        return repair::run(&program, &options.directory, options.gib);
    }
    if arguments[0] == "plots" {
        let program = options.program.map_or_else(build_release, Ok)?;
        return plots::run(&program, &options.directory, options.seconds, options.rounds);
    }
    if arguments[0] == "shares" {
        let Options { directory, seconds, large_seconds, rounds, keys, folders, per_folder, program, .. } = options;
        let program = program.map_or_else(build_release, Ok)?;
        let extent = shares::Extent { seconds, large_seconds, rounds, keys, folders, per_folder };
        return shares::run(&program, &directory, &extent);
    }
    first_figures(&options)
}

/// What compaction costs; see `crates/store/examples/churn.rs`.
fn churn() -> anyhow::Result<()> {
    let mut command = cargo("run")?;
    command.args(["--quiet", "--package", "gabion-store", "--example", "churn"]);
    run_command(&mut command)
}

fn first_figures(options: &Options) -> anyhow::Result<()> {
    let program = build_release()?;
    let place = options.directory.join(format!("gabion-first-figures-{}", std::process::id()));
    fs::create_dir_all(&place).with_context(|| place.display().to_string())?;
    let servers = [Server::start(&program, &place, "4+2", 6, &[])?, Server::start(&program, &place, "1+0", 1, &[])?];
    let timed = timed_table(options, &program, &servers);
    let counted = timed.and_then(|timed| Ok(timed + "\n" + &counted_table(&program, &servers)?));
    drop(servers);
    remove(&place, counted.map(|tables| say(&tables)))
}

/// Removes `place`, whatever came of the work in it.
///
/// # Errors
/// What the work failed with; else that the place stays.
fn remove(place: &Path, outcome: anyhow::Result<()>) -> anyhow::Result<()> {
    let removed = fs::remove_dir_all(place);
    outcome?;
    removed.with_context(|| format!("removing {}", place.display()))
}

/// One cell of the timed table.
struct Load {
    operation: &'static str,
    size: &'static str,
    clients: u32,
}

const LOADS: [Load; 8] = [
    Load { operation: "put", size: "4KiB", clients: 1 },
    Load { operation: "put", size: "4KiB", clients: 64 },
    Load { operation: "get", size: "4KiB", clients: 1 },
    Load { operation: "get", size: "4KiB", clients: 64 },
    Load { operation: "put", size: "16MiB", clients: 1 },
    Load { operation: "put", size: "16MiB", clients: 64 },
    Load { operation: "get", size: "16MiB", clients: 1 },
    Load { operation: "get", size: "16MiB", clients: 64 },
];

/// The figures of one run of `gabion bench`.
#[derive(Clone, Copy)]
struct Figures {
    ops_per_s: f64,
    bytes_per_s: f64,
    p50_us: f64,
    p99_us: f64,
}

fn timed_table(options: &Options, program: &Path, servers: &[Server; 2]) -> anyhow::Result<String> {
    let mut runs: Vec<Vec<Figures>> = (0..LOADS.len() * servers.len()).map(|_| Vec::new()).collect();
    for round in 0..options.rounds {
        for (index, load) in LOADS.iter().enumerate() {
            for (place, server) in servers.iter().enumerate() {
                say(&format!(
                    "round {}: {} {} × {} on {}",
                    round + 1,
                    load.operation,
                    load.size,
                    load.clients,
                    server.geometry
                ));
                let seconds = format!("{}s", options.seconds);
                let arguments = ["--duration", &seconds, "--warmup", "1s"];
                let objects: &[&str] = if load.operation == "put" { &[] } else { &["--objects", "128"] };
                let arguments = [&arguments[..], objects].concat();
                runs[index * servers.len() + place].push(server.load(program, load, &arguments)?);
            }
        }
    }
    let mut table = String::from(
        "| operation | size | clients | geometry | ops/s | MiB/s | p50 ms | p99 ms |\n\
         | --- | ---: | ---: | --- | ---: | ---: | ---: | ---: |\n",
    );
    for (index, rounds) in runs.iter().enumerate() {
        let (load, server) = (&LOADS[index / servers.len()], &servers[index % servers.len()]);
        let figures = median(rounds)?;
        table += &format!(
            "| {} | {} | {} | {} | {:.0} | {:.0} | {:.2} | {:.2} |\n",
            load.operation,
            load.size,
            load.clients,
            server.geometry,
            figures.ops_per_s,
            figures.bytes_per_s / 1_048_576.0,
            figures.p50_us / 1000.0,
            figures.p99_us / 1000.0,
        );
    }
    Ok(table)
}

/// The run with the median rate; of an even number the mean of the two in the middle, as `gabion bench floor` has it.
fn median(rounds: &[Figures]) -> anyhow::Result<Figures> {
    ensure!(!rounds.is_empty(), "--rounds must not be 0");
    let mut sorted = rounds.to_vec();
    sorted.sort_by(|a, b| a.ops_per_s.total_cmp(&b.ops_per_s));
    let (a, b) = (sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
    Ok(Figures {
        ops_per_s: a.ops_per_s.midpoint(b.ops_per_s),
        bytes_per_s: a.bytes_per_s.midpoint(b.bytes_per_s),
        p50_us: a.p50_us.midpoint(b.p50_us),
        p99_us: a.p99_us.midpoint(b.p99_us),
    })
}

/// What one object costs: counted, not timed.
fn counted_table(program: &Path, servers: &[Server; 2]) -> anyhow::Result<String> {
    let mut table = String::from(
        "| objects | clients | geometry | syncs per object | bytes written per object | pieces per get | files before and after |\n\
         | --- | ---: | --- | ---: | ---: | ---: | --- |\n",
    );
    for (size, count, clients) in [("4KiB", 20_000, 1), ("4KiB", 100_000, 64), ("16MiB", 64, 16)] {
        for server in servers {
            let put = Load { operation: "put", size, clients };
            let (before, files_before) = (server.metrics()?, server.files()?);
            let number = count.to_string();
            server.load(program, &put, &["--count", &number, "--warmup", "0s", "--keep"])?;
            let (after, files_after) = (server.metrics()?, server.files()?);
            // Puts name their objects by worker: the objects that gets read are written first, and cost no read.
            let get = Load { operation: "get", ..put };
            let arguments = ["--count", &number, "--warmup", "0s", "--objects", &number];
            server.load(program, &get, &arguments)?;
            let read = server.metrics()?;
            let per_object = |name| (sample_sum(&after, name, "") - sample_sum(&before, name, "")) / f64::from(count);
            table += &format!(
                "| {count} × {size} | {clients} | {} | {:.3} | {:.0} | {:.2} | {files_before} → {files_after} |\n",
                server.geometry,
                per_object(SYNCS),
                WRITTEN_BYTES.map(per_object).iter().sum::<f64>(),
                (sample_sum(&read, READS, "") - sample_sum(&after, READS, "")) / f64::from(count),
            );
        }
    }
    Ok(table)
}

impl Figures {
    /// What a report of `gabion bench` says.
    ///
    /// # Errors
    /// When requests failed, too.
    fn read(text: &str) -> anyhow::Result<Self> {
        let report: Value = serde_json::from_str(text).context("reading the report of gabion bench")?;
        shares::without_errors(&report["results"])?;
        let result = &report["results"][0];
        let number = |value: &Value| value.as_f64().context("a figure is missing from the report");
        Ok(Self {
            ops_per_s: number(&result["ops_per_s"])?,
            bytes_per_s: number(&result["bytes_per_s"])?,
            p50_us: number(&result["latency_us"]["p50"])?,
            p99_us: number(&result["latency_us"]["p99"])?,
        })
    }
}

/// A server that ends with this value.
pub(crate) struct Server {
    child: Child,
    geometry: &'static str,
    pub(crate) endpoint: String,
    pub(crate) admin: String,
    targets: Vec<PathBuf>,
}

impl Server {
    /// Starts on so many directories that it makes, in one of the geometry's name.
    pub(crate) fn start(
        program: &Path,
        place: &Path,
        geometry: &'static str,
        targets: usize,
        arguments: &[&str],
    ) -> anyhow::Result<Self> {
        let directory = place.join(geometry);
        let targets: Vec<PathBuf> = (0..targets).map(|index| directory.join(format!("target{index}"))).collect();
        for target in &targets {
            fs::create_dir_all(target).with_context(|| target.display().to_string())?;
        }
        Self::open(program, place, geometry, targets, arguments)
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Starts on targets that there are.
    pub(crate) fn open(
        program: &Path,
        place: &Path,
        geometry: &'static str,
        targets: Vec<PathBuf>,
        arguments: &[&str],
    ) -> anyhow::Result<Self> {
        let place = place.join(geometry);
        fs::create_dir_all(&place)?;
        let (listen, admin) = (free_address()?, free_address()?);
        let log = fs::File::create(place.join("log"))?;
        let child = Command::new(program)
            .arg("server")
            .args(&targets)
            .args(["--geometry", geometry, "--listen", &listen, "--admin-listen", &admin, "--state"])
            .arg(place.join("state"))
            .args(arguments)
            .env("GABION_ROOT_ACCESS_KEY", ACCESS_KEY)
            .env("GABION_ROOT_SECRET_KEY", SECRET_KEY)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("starting the server")?;
        let mut server = Self { child, geometry, endpoint: format!("http://{listen}"), admin, targets };
        server.wait_until_ready().with_context(|| fs::read_to_string(place.join("log")).unwrap_or_default())?;
        Ok(server)
    }

    #[expect(clippy::disallowed_methods, reason = "polls a program of its own; no executor is blocked")]
    fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        for _ in 0..600 {
            if get(&self.admin, "/health/ready").is_ok() {
                return Ok(());
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("the server ended: {status}");
            }
            thread::sleep(Duration::from_millis(100));
        }
        bail!("the server was not ready within a minute")
    }

    /// Ends it as an operator does, so that it leaves nothing undone.
    ///
    /// # Errors
    /// When it can not be told, or ends with an error.
    pub(crate) fn stop(mut self) -> anyhow::Result<()> {
        signal(&self.child, Signal::TERM)?;
        let status = self.child.wait()?;
        ensure!(status.success(), "the server ended: {status}");
        Ok(())
    }

    fn load(&self, program: &Path, load: &Load, arguments: &[&str]) -> anyhow::Result<Figures> {
        Figures::read(&output(&mut self.load_command(program, load, arguments))?)
    }

    fn load_command(&self, program: &Path, load: &Load, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .args(["bench", load.operation, "--size", load.size, "--concurrency", &load.clients.to_string()])
            .args(["--endpoint", &self.endpoint, "--json", "-"])
            .args(arguments)
            .env("GABION_ACCESS_KEY", ACCESS_KEY)
            .env("GABION_SECRET_KEY", SECRET_KEY);
        command
    }

    fn metrics(&self) -> anyhow::Result<String> {
        get(&self.admin, "/metrics")
    }

    /// Files and directories on all targets.
    fn files(&self) -> anyhow::Result<usize> {
        self.targets.iter().map(|target| count_entries(target)).sum()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself; there is nothing else to be done.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn count_entries(directory: &Path) -> anyhow::Result<usize> {
    let mut count = 0;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        count += 1;
        if entry.file_type()?.is_dir() {
            count += count_entries(&entry.path())?;
        }
    }
    Ok(count)
}

/// A loopback address that nobody listens on now.
fn free_address() -> anyhow::Result<String> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string())
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn what_can_not_be_removed_hides_no_error() {
        let nowhere = Path::new("/nowhere/gabion");
        assert_eq!(remove(nowhere, Err(anyhow!("no server"))).unwrap_err().to_string(), "no server");
        assert_eq!(remove(nowhere, Ok(())).unwrap_err().to_string(), "removing /nowhere/gabion");
    }

    #[test]
    fn the_median_of_an_even_number_is_the_mean_of_the_two_in_the_middle() {
        let run = |rate: f64| Figures { ops_per_s: rate, bytes_per_s: 2.0 * rate, p50_us: 7.0, p99_us: 9.0 };
        let rates = |rates: &[f64]| {
            let figures = median(&rates.iter().copied().map(run).collect::<Vec<_>>()).unwrap();
            (figures.ops_per_s, figures.bytes_per_s, figures.p50_us)
        };
        assert_eq!(rates(&[9.0, 1.0, 4.0, 2.0]), (3.0, 6.0, 7.0));
        assert_eq!(rates(&[9.0, 1.0, 4.0]), (4.0, 8.0, 7.0));
        assert!(median(&[]).is_err());
    }
}
