//! `cargo xtask bench repair`: how fast a lost target is rebuilt and everything is scrubbed, what that costs in CPU time, what clients feel of it, and
//! what the same disk does when the same bytes are only read and written.
//!
//! The page cache is made to forget the shard files before each measurement, as far as the kernel follows the advice.

use std::{
    collections::BTreeMap,
    fs,
    io::{Read, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use rustix::process::Signal;
use serde_json::Value;

use super::{Figures, Load, Server, remove};
use crate::{
    http::{get, sample_sum},
    process::{output, signal},
    summary::say,
};

const GEOMETRY: &str = "4+2";
const DATA: usize = 4;
const TARGETS: usize = 6;
/// Segments that are rebuilt at once, as the server does it by default.
const WORKERS: usize = 2;
const PIECE_BYTES: usize = 1 << 20;
/// Ticks of `/proc/PID/stat` in a second, on every Linux.
const TICKS_PER_S: f64 = 100.0;
const EVERY: Duration = Duration::from_millis(50);
/// A server is idle that takes less than this share of a core for so long.
const IDLE: Duration = Duration::from_secs(1);
const IDLE_SHARE: f64 = 0.05;

/// What clients do meanwhile.
const GETS: Load = Load { operation: "get", size: "64KiB", clients: 4 };
const GETS_OF: [&str; 2] = ["--objects", "512"];
/// Grows when they do: the objects that they get are written first.
const GETS_BEGUN: &str = "gabion_log_read_bytes_total";

/// What was measured of one thing.
struct Measured {
    what: String,
    bytes: f64,
    seconds: f64,
    cpu_s: Option<f64>,
    gets: Option<Figures>,
}

struct Bench<'a> {
    program: &'a Path,
    place: PathBuf,
    targets: Vec<PathBuf>,
    rows: Vec<Measured>,
}

/// Fills a deployment with `gib` GiB and measures.
///
/// # Errors
/// When a server, a load or a command fails.
pub(super) fn run(program: &Path, directory: &Path, gib: u64) -> anyhow::Result<()> {
    let place = directory.join(format!("gabion-repair-{}", std::process::id()));
    let targets = (0..TARGETS).map(|number| place.join(format!("target{number}"))).collect();
    let mut bench = Bench { program, place: place.clone(), targets, rows: Vec::new() };
    let outcome = bench.all(gib);
    remove(&place, outcome.map(|()| say(&bench.table())))
}

impl Bench<'_> {
    fn all(&mut self, gib: u64) -> anyhow::Result<()> {
        for target in &self.targets {
            fs::create_dir_all(target)?;
        }
        self.fill(gib)?;
        // A restart seals the segments.
        let server = self.start()?;
        server.wait_until_idle()?;
        self.scrub(&server)?;
        drop(server);
        self.plain_reads()?;
        for with_gets in [false, true] {
            let (lost, new) = self.lose(usize::from(with_gets))?;
            self.plain_rebuild(&lost)?;
            self.rebuild(&lost, &new, with_gets)?;
        }
        Ok(())
    }

    fn start(&self) -> anyhow::Result<Server> {
        let arguments =
            ["--segment-payload-bytes", "128MiB", "--scrub-bytes-per-s", "0", "--scrub-interval-hours", "0"];
        Server::open(self.program, &self.place, GEOMETRY, self.targets.clone(), &arguments)
    }

    /// Three quarters in large objects, one in small ones.
    fn fill(&self, gib: u64) -> anyhow::Result<()> {
        let server = self.start()?;
        for (size, objects, clients) in [("4MiB", gib * 192, 8), ("64KiB", gib * 4096, 32)] {
            say(&format!("{objects} objects of {size}"));
            let (count, prefix) = (objects.to_string(), format!("{size}/"));
            let arguments = ["--count", &count, "--warmup", "0s", "--keep", "--prefix", &prefix];
            server.load(self.program, &Load { operation: "put", size, clients }, &arguments)?;
        }
        Ok(())
    }

    fn scrub(&mut self, server: &Server) -> anyhow::Result<()> {
        let alone = self.scrub_once(server, false)?;
        let seconds = alone.seconds;
        self.rows.push(alone);
        let gets = server.load(
            self.program,
            &GETS,
            &["--duration", &format!("{:.0}s", seconds.max(3.0)), "--warmup", "0s", GETS_OF[0], GETS_OF[1]],
        )?;
        self.rows.push(Measured {
            what: "gets alone".to_owned(),
            bytes: 0.0,
            seconds: 0.0,
            cpu_s: None,
            gets: Some(gets),
        });
        let with = self.scrub_once(server, true)?;
        self.rows.push(with);
        Ok(())
    }

    fn scrub_once(&self, server: &Server, with_gets: bool) -> anyhow::Result<Measured> {
        self.forget()?;
        let before = (server.metrics()?, server.cpu_s()?);
        let (outcome, gets) = self.beside(server, with_gets, || {
            let started = now();
            self.command(server, &["scrub", "--wait"])?;
            Ok(started.elapsed().as_secs_f64())
        })?;
        let bytes = sample_sum(&server.metrics()?, "gabion_scrub_bytes_total", "")
            - sample_sum(&before.0, "gabion_scrub_bytes_total", "");
        let what = if gets.is_some() { "scrub, gets meanwhile" } else { "scrub" }.to_owned();
        let cpu_s = gets.is_none().then_some(server.cpu_s()? - before.1);
        Ok(Measured { what, bytes, seconds: outcome, cpu_s, gets })
    }

    /// Takes the contents of a target away; its directory, and the one that is to take its place.
    fn lose(&mut self, number: usize) -> anyhow::Result<(PathBuf, PathBuf)> {
        let lost = self.targets[number].clone();
        let new = self.place.join(format!("replacement{number}"));
        fs::create_dir_all(&new)?;
        fs::rename(&lost, self.place.join(format!("lost{number}")))?;
        Ok((lost, new))
    }

    fn rebuild(&mut self, lost: &Path, new: &Path, with_gets: bool) -> anyhow::Result<()> {
        let server = self.start()?;
        server.wait_until_idle()?;
        self.forget()?;
        let before = (server.metrics()?, server.cpu_s()?);
        let (seconds, gets) = self.beside(&server, with_gets, || {
            let started = now();
            self.command(&server, &["target", "replace", &lost.to_string_lossy(), &new.to_string_lossy()])?;
            wait_for_repair(&server)?;
            Ok(started.elapsed().as_secs_f64())
        })?;
        let bytes = sample_sum(&server.metrics()?, "gabion_repair_bytes_total", "")
            - sample_sum(&before.0, "gabion_repair_bytes_total", "");
        let what = if with_gets { "rebuild, gets meanwhile" } else { "rebuild" }.to_owned();
        let cpu_s = (!with_gets).then_some(server.cpu_s()? - before.1);
        self.rows.push(Measured { what, bytes, seconds, cpu_s, gets });
        drop(server);
        let place = self.targets.iter_mut().find(|target| *target == lost).context("it was one of the targets")?;
        *place = new.to_owned();
        Ok(())
    }

    /// Runs `work`, with gets beside it if they are asked for: they begin before it, and end when it does.
    fn beside<T>(
        &self,
        server: &Server,
        with_gets: bool,
        work: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<(T, Option<Figures>)> {
        if !with_gets {
            return Ok((work()?, None));
        }
        let before = sample_sum(&server.metrics()?, GETS_BEGUN, "");
        let arguments = ["--duration", "1h", "--warmup", "0s", GETS_OF[0], GETS_OF[1]];
        let mut command = server.load_command(self.program, &GETS, &arguments);
        let mut gets = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().context("starting the gets")?;
        let begun = || Ok(sample_sum(&server.metrics()?, GETS_BEGUN, "") > before);
        let done = wait_while_alive(&mut gets, begun).and_then(|()| work());
        let alive = ensure_alive(&mut gets);
        if alive.is_ok() {
            // The first SIGINT has it report what it measured so far.
            signal(&gets, Signal::INT)?;
        }
        let report = gets.wait_with_output().context("waiting for the gets")?;
        let done = done?;
        alive?;
        let report = String::from_utf8(report.stdout).context("the report of the gets")?;
        Ok((done, Some(Figures::read(&report)?)))
    }

    fn command(&self, server: &Server, words: &[&str]) -> anyhow::Result<String> {
        let (admin, state) = (format!("http://{}", server.admin), self.place.join(GEOMETRY).join("state"));
        output(Command::new(self.program).args(words).args(["--admin", &admin, "--state"]).arg(state))
    }

    /// All shard files by segment.
    fn shards(&self) -> anyhow::Result<BTreeMap<String, Vec<PathBuf>>> {
        let mut found: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
        for target in self.targets.iter().filter(|target| target.is_dir()) {
            for directory in fs::read_dir(target.join("segments"))? {
                for file in fs::read_dir(directory?.path())? {
                    let path = file?.path();
                    let name = path.file_stem().context("a shard file has a name")?.to_string_lossy().into_owned();
                    found.entry(name).or_default().push(path);
                }
            }
        }
        Ok(found)
    }

    /// Has the kernel drop the shard files from its page cache.
    fn forget(&self) -> anyhow::Result<()> {
        for path in self.shards()?.into_values().flatten() {
            let file = format!("of={}", path.display());
            output(Command::new("dd").args([
                &file,
                "oflag=nocache",
                "conv=notrunc,fdatasync",
                "count=0",
                "status=none",
            ]))?;
        }
        Ok(())
    }

    /// Reads all shard files, one after the other, as a scrub does.
    fn plain_reads(&mut self) -> anyhow::Result<()> {
        self.forget()?;
        let (started, mut bytes, mut piece) = (now(), 0, vec![0; PIECE_BYTES]);
        for path in self.shards()?.into_values().flatten() {
            let mut file = fs::File::open(path)?;
            loop {
                match file.read(&mut piece)? {
                    0 => break,
                    count => bytes += count,
                }
            }
        }
        let seconds = started.elapsed().as_secs_f64();
        self.rows.push(Measured {
            what: "plain reads of the same files".into(),
            bytes: bytes as f64,
            seconds,
            cpu_s: None,
            gets: None,
        });
        Ok(())
    }

    /// Does to the disk what rebuilding the shards on `lost` takes: reads as many others as there are data shards, writes and syncs as much, and
    /// reads it back.
    fn plain_rebuild(&mut self, lost: &Path) -> anyhow::Result<()> {
        self.forget()?;
        let scratch = self.place.join("scratch");
        fs::create_dir_all(&scratch)?;
        let segments: Vec<Vec<PathBuf>> =
            self.shards()?.into_values().filter(|files| files.len() == TARGETS - 1).collect();
        if segments.is_empty() {
            bail!("nothing lay on {}", lost.display());
        }
        let started = now();
        let bytes = thread::scope(|scope| {
            let (segments, scratch) = (&segments, &scratch);
            let workers: Vec<_> = (0..WORKERS)
                .map(|worker| {
                    scope.spawn(move || {
                        let mine = segments.iter().enumerate().filter(|(number, _)| number % WORKERS == worker);
                        mine.map(|(number, files)| plain_shard(files, &scratch.join(number.to_string())))
                            .sum::<anyhow::Result<u64>>()
                    })
                })
                .collect();
            let joined =
                workers.into_iter().map(|worker| worker.join().map_err(|_| anyhow::anyhow!("a copy panicked"))?);
            joined.sum::<anyhow::Result<u64>>()
        })?;
        let seconds = started.elapsed().as_secs_f64();
        fs::remove_dir_all(&scratch)?;
        self.rows.push(Measured {
            what: "plain reads and writes of the same bytes".into(),
            bytes: bytes as f64,
            seconds,
            cpu_s: None,
            gets: None,
        });
        Ok(())
    }

    fn table(&self) -> String {
        let mut table = String::from(
            "| what | GiB | s | MiB/s | CPU s per GiB | gets/s | p50 ms | p99 ms |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n",
        );
        for row in &self.rows {
            let gib = row.bytes / f64::from(1 << 30);
            let work = if row.bytes > 0.0 {
                let cpu = row.cpu_s.map_or_else(String::new, |cpu| format!("{:.2}", cpu / gib));
                format!("{gib:.2} | {:.1} | {:.0} | {cpu}", row.seconds, gib * 1024.0 / row.seconds)
            } else {
                " | | | ".to_owned()
            };
            let gets = row.gets.map_or_else(
                || " | | ".to_owned(),
                |gets| format!("{:.0} | {:.2} | {:.2}", gets.ops_per_s, gets.p50_us / 1000.0, gets.p99_us / 1000.0),
            );
            table += &format!("| {} | {work} | {gets} |\n", row.what);
        }
        table
    }
}

/// Reads pieces of [`DATA`] files at once and writes one of them, then reads that back.
fn plain_shard(files: &[PathBuf], to: &Path) -> anyhow::Result<u64> {
    let mut sources: Vec<fs::File> = files.iter().take(DATA).map(fs::File::open).collect::<Result<_, _>>()?;
    let mut pieces = vec![vec![0; PIECE_BYTES]; DATA];
    let (mut file, mut written) = (fs::File::create(to)?, 0);
    loop {
        let counts: Vec<std::io::Result<usize>> = thread::scope(|scope| {
            let reads: Vec<_> = sources
                .iter_mut()
                .zip(&mut pieces)
                .map(|(source, piece)| scope.spawn(move || source.read(piece)))
                .collect();
            reads
                .into_iter()
                .map(|read| read.join().unwrap_or_else(|_| Err(std::io::Error::other("a read panicked"))))
                .collect()
        });
        let count = counts.into_iter().collect::<Result<Vec<_>, _>>()?.into_iter().max().unwrap_or(0);
        if count == 0 {
            break;
        }
        file.write_all(&pieces[0][..count])?;
        written += count as u64;
    }
    file.sync_data()?;
    std::io::copy(&mut fs::File::open(to)?, &mut std::io::sink())?;
    Ok(written)
}

#[expect(clippy::disallowed_methods, reason = "a real clock times real programs")]
fn now() -> Instant {
    Instant::now()
}

/// Refuses a load that has ended before it was told to.
fn ensure_alive(load: &mut Child) -> anyhow::Result<()> {
    match load.try_wait().context("looking after the load")? {
        None => Ok(()),
        Some(status) => bail!("the load ended before it was told to: {status}"),
    }
}

/// Waits for what the load brings about.
fn wait_while_alive(load: &mut Child, mut is_so: impl FnMut() -> anyhow::Result<bool>) -> anyhow::Result<()> {
    wait_until(|| {
        ensure_alive(load)?;
        is_so()
    })
}

fn wait_for_repair(server: &Server) -> anyhow::Result<()> {
    wait_until(|| {
        let status: Value = serde_json::from_str(&get(&server.admin, "/status")?).context("reading /status")?;
        let repair = &status["store"]["log"]["repair"];
        let shards_left = repair["shards_left"].as_u64().context("/status says nothing of repair")?;
        Ok(shards_left == 0 && repair["running"] == false)
    })
}

#[expect(clippy::disallowed_methods, reason = "polls a program of its own; no executor is blocked")]
fn wait_until(mut is_so: impl FnMut() -> anyhow::Result<bool>) -> anyhow::Result<()> {
    while !is_so()? {
        thread::sleep(EVERY);
    }
    Ok(())
}

impl Server {
    /// Waits until what the start has left to do is done: compaction looks at the rows, dead segments go.
    fn wait_until_idle(&self) -> anyhow::Result<()> {
        let mut seen = (self.cpu_s()?, now());
        wait_until(|| {
            if seen.1.elapsed() < IDLE {
                return Ok(false);
            }
            let before = std::mem::replace(&mut seen, (self.cpu_s()?, now()));
            Ok(seen.0 - before.0 <= IDLE.as_secs_f64() * IDLE_SHARE)
        })
    }

    /// CPU time that the server has taken, in seconds.
    fn cpu_s(&self) -> anyhow::Result<f64> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        let (_, fields) = stat.rsplit_once(") ").context("/proc/PID/stat has a name in brackets")?;
        let ticks = |index: usize| fields.split(' ').nth(index).and_then(|field| field.parse::<f64>().ok());
        // utime and stime, fields 14 and 15; the first after the name is the third.
        let (user, system) = ticks(11).zip(ticks(12)).context("/proc/PID/stat has times")?;
        Ok((user + system) / TICKS_PER_S)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_that_has_ended_is_not_waited_for() {
        let mut load = Command::new("false").spawn().unwrap();
        let error = wait_while_alive(&mut load, || Ok(false)).unwrap_err().to_string();
        assert!(error.contains("exit status: 1"), "{error}");
    }
}
