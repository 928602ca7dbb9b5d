//! `cargo xtask bench shares`: what a server reaches of the limits of its machine, against the shares that were set as targets.
//!
//! Two release servers run side by side, one with each durability, on the same drives as the floors; `gabion bench floor` measures all of them in turn.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, ensure};
use rustix::fs::statvfs;
use serde_json::Value;

use super::{ACCESS_KEY, SECRET_KEY, Server, remove};
use crate::{process::output, summary::say};

const GEOMETRY: &str = "4+2";
const TARGETS: usize = 6;
/// What a server and its files take of the page cache and of memory while it is measured, and more.
pub(super) const TOUCHED_MEMORY: &str = "2GiB";
/// What one lone put may take beyond HTTP and one sync, in microseconds.
const LONE_PUT_US: f64 = 150.0;
const KEYS_PER_S: f64 = 300_000.0;
/// Of the rate of folders with a tenth of the keys: their cost is to follow folders, not keys.
const FOLDERS_SHARE: f64 = 0.5;
/// What a drive of these days takes at most in a second, in bytes, as far as room goes.
const DRIVE_BYTES_PER_S: u64 = 4 << 30;
/// What two servers take at most of small puts, in bytes per second of each one's measurement.
const SMALL_BYTES_PER_S: u64 = 512 << 20;
/// What they take of objects that are there to be deleted, in bytes for each round: 64 000 of 4 KiB for each server, which do not give their space back before it ends.
const DELETED_BYTES: u64 = 3 << 30;
/// What the floors, the objects that are read and those that are listed take beside it, in bytes.
const OTHER_BYTES: u64 = 16 << 30;

/// How much is measured.
pub(super) struct Extent {
    pub(super) seconds: u64,
    /// Of objects of 16 MiB, which fill a disk.
    pub(super) large_seconds: u64,
    pub(super) rounds: usize,
    /// Keys of the listing.
    pub(super) keys: u64,
    /// Folders of the listing of folders, and keys in each.
    pub(super) folders: u64,
    pub(super) per_folder: u64,
}

/// A target: the share of the floors in `of` that a rate must reach.
struct Wish {
    size: &'static str,
    clients: &'static str,
    operation: &'static str,
    of: &'static [&'static str],
    relaxed: f64,
    sync: f64,
}

const WISHES: [Wish; 6] = [
    Wish { size: "4KiB", clients: "64", operation: "put", of: &["http"], relaxed: 0.60, sync: 0.50 },
    Wish { size: "4KiB", clients: "64", operation: "get", of: &["http"], relaxed: 0.75, sync: 0.75 },
    Wish { size: "4KiB", clients: "64", operation: "stat", of: &["http"], relaxed: 0.80, sync: 0.80 },
    Wish { size: "16MiB", clients: "16", operation: "put", of: &["http", "files"], relaxed: 0.80, sync: 0.75 },
    Wish { size: "16MiB", clients: "16", operation: "get", of: &["http", "files"], relaxed: 0.80, sync: 0.75 },
    // An HTTP server that does not send the same 16 MiB out of the processor's caches again and again, if it has so large ones.
    Wish { size: "16MiB", clients: "16", operation: "get", of: &["http-each", "files"], relaxed: 0.80, sync: 0.75 },
];

/// Measures and prints the tables, as Markdown.
///
/// # Errors
/// When a server or a load fails.
pub(super) fn run(program: &Path, directory: &Path, extent: &Extent) -> anyhow::Result<()> {
    let place = directory.join(format!("gabion-shares-{}", std::process::id()));
    fs::create_dir_all(&place).with_context(|| place.display().to_string())?;
    let measured = check_room(&place, extent).and_then(|()| measure(program, &place, extent));
    remove(&place, measured)
}

/// Before anything is written: a disk that fills up hours later has measured nothing.
///
/// # Errors
/// When there is too little room for what a fast drive could take.
fn check_room(place: &Path, extent: &Extent) -> anyhow::Result<()> {
    let system = statvfs(place).with_context(|| format!("asking how much room there is in {}", place.display()))?;
    let free = system.f_bavail * system.f_frsize;
    // One server at a time keeps all that it is given, warm-ups of half a second included.
    let rounds = u64::try_from(extent.rounds)?;
    let halves = |seconds: u64| seconds.saturating_mul(2).saturating_add(1).saturating_mul(rounds);
    let large = halves(extent.large_seconds).saturating_mul(DRIVE_BYTES_PER_S / 2);
    let small = halves(extent.seconds).saturating_mul(SMALL_BYTES_PER_S / 2);
    let deleted = DELETED_BYTES.saturating_mul(rounds);
    let needed = OTHER_BYTES.saturating_add(large).saturating_add(small).saturating_add(deleted);
    let gib = |bytes: u64| bytes >> 30;
    ensure!(
        free >= needed,
        "{} has {} GiB free, and {rounds} rounds of {} s, {} s with large objects, may take {} GiB: choose another --dir, or fewer --rounds, --seconds or --large-seconds",
        place.display(),
        gib(free),
        extent.seconds,
        extent.large_seconds,
        gib(needed),
    );
    Ok(())
}

fn measure(program: &Path, place: &Path, extent: &Extent) -> anyhow::Result<()> {
    let (relaxed, sync) = (serve(program, place, "relaxed")?, serve(program, place, "sync")?);
    let floors = place.join("floors");
    fs::create_dir_all(&floors)?;
    let bench = Bench { program, floors, extent };
    let both = [("sync", &sync), ("relaxed", &relaxed)];
    let small = bench.floor("4KiB", "64", "put,get,stat,delete", &both, extent.seconds)?;
    let lone = bench.floor("4KiB", "1", "put,get", &both, extent.seconds)?;
    // Pages of a thousand keys, of objects with one byte each.
    bench.floor("1", "1", "list", &both, extent.seconds)?;
    // One after the other: what the first wrote is gone before the second writes as much.
    let mut large = Vec::new();
    for (durability, server) in [("relaxed", &relaxed), ("sync", &sync)] {
        large.push(bench.floor("16MiB", "16", "put,get", &[(durability, server)], extent.large_seconds)?);
    }
    let mut out =
        String::from("\n| what | durability | share | of | target | |\n| --- | --- | ---: | --- | ---: | --- |\n");
    for wish in &WISHES {
        for (index, (durability, target)) in [("relaxed", wish.relaxed), ("sync", wish.sync)].into_iter().enumerate() {
            let table = if wish.size == "4KiB" { &small } else { &large[index] };
            let (floor, share) = worst_share(row(table, wish.operation, "endpoint", durability)?, wish.of)?;
            out += &format!(
                "| {} {}, {} clients | {durability} | {:.0} % | {floor} | ≥ {:.0} % | {} |\n",
                wish.size,
                wish.operation,
                wish.clients,
                share * 100.0,
                target * 100.0,
                met(share >= target),
            );
        }
    }
    out += &lone_put(&lone)?;
    out += &bench.listings(&sync)?;
    say(&out);
    Ok(())
}

/// A release server on six directories of its own.
pub(super) fn serve(program: &Path, place: &Path, durability: &str) -> anyhow::Result<Server> {
    Server::start(program, &place.join(durability), GEOMETRY, TARGETS, &["--durability", durability])
}

fn met(met: bool) -> &'static str {
    if met { "met" } else { "missed" }
}

fn number(value: &Value) -> anyhow::Result<f64> {
    value.as_f64().context("a figure is missing from the report")
}

/// The row of an operation in a layer; floors that know no durability have any.
fn row<'a>(table: &'a Value, operation: &str, layer: &str, durability: &str) -> anyhow::Result<&'a Value> {
    let rows = table["rows"].as_array().context("the report has no rows")?;
    let fits = |row: &&Value| {
        row["operation"] == operation
            && row["layer"] == layer
            && row["durability"].as_str().is_none_or(|found| found == durability)
    };
    rows.iter().find(fits).with_context(|| format!("the report has no {operation} of {layer}, {durability}"))
}

/// The lowest of these floors and the share that the endpoint reaches of it.
fn worst_share<'a>(row: &'a Value, of: &[&str]) -> anyhow::Result<(&'a str, f64)> {
    let shares = row["shares"].as_array().context("the report has no shares")?;
    let mut lowest: Option<(&str, f64)> = None;
    for share in shares {
        let (floor, share) = (share["floor"].as_str().unwrap_or_default(), number(&share["share"])?);
        if of.contains(&floor) && lowest.is_none_or(|(_, found)| share > found) {
            lowest = Some((floor, share));
        }
    }
    lowest.context("the report has no share of these floors")
}

fn figures(table: &Value) -> anyhow::Result<String> {
    let mut out = format!(
        "\n{} bytes, {} clients, {}, {}, {} CPUs, {}:\n\n| operation | what | ops/s | MiB/s | p50 µs | p99 µs | errors | server CPU µs | share of lowest floor |\n\
         | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n",
        table["size_bytes"],
        table["concurrency"],
        table["geometry"].as_str().unwrap_or_default(),
        table["machine"]["cpu"].as_str().unwrap_or_default(),
        table["machine"]["cpus"],
        table["started"].as_str().unwrap_or_default(),
    );
    for row in table["rows"].as_array().context("the report has no rows")? {
        let share = row["share_of_lowest"].as_f64().map_or_else(String::new, |share| format!("{:.0} %", share * 100.0));
        let cpu = row["server_cpu_us_per_op"].as_f64().map_or_else(String::new, |cpu_us| format!("{cpu_us:.1}"));
        let what = match (row["layer"].as_str().unwrap_or_default(), row["durability"].as_str()) {
            ("endpoint", Some(durability)) => format!("**server, {durability}**"),
            _ => row["subject"].as_str().unwrap_or_default().to_owned(),
        };
        out += &format!(
            "| {} | {what} | {:.0} | {:.1} | {:.0} | {:.0} | {} | {cpu} | {share} |\n",
            row["operation"].as_str().unwrap_or_default(),
            number(&row["ops_per_s"])?,
            number(&row["bytes_per_s"])? / 1_048_576.0,
            number(&row["latency_us"]["p50"])?,
            number(&row["latency_us"]["p99"])?,
            row["error_count"],
        );
    }
    Ok(out)
}

/// A lone put against HTTP and one sync.
fn lone_put(table: &Value) -> anyhow::Result<String> {
    let p50 = |layer, durability| number(&row(table, "put", layer, durability)?["latency_us"]["p50"]);
    let bound = p50("http", "")? + p50("data-sync", "")? + LONE_PUT_US;
    let mut out = String::new();
    for durability in ["relaxed", "sync"] {
        let put = p50("endpoint", durability)?;
        let verdict = met(put <= bound);
        out += &format!(
            "| 4KiB put, 1 client, p50 | {durability} | {put:.0} µs | HTTP + one sync + 150 µs | ≤ {bound:.0} µs | {verdict} |\n"
        );
    }
    Ok(out)
}

/// Refuses to judge requests of which some failed: they cost others than those that succeed, and a rate without them is none of the whole.
///
/// # Errors
/// With the first row that has errors.
pub(super) fn without_errors(rows: &Value) -> anyhow::Result<()> {
    for row in rows.as_array().context("the report has no rows")? {
        let errors = row["error_count"].as_u64().context("the report has no count of errors")?;
        let operation = row["operation"].as_str().unwrap_or_default();
        let subject = row["subject"].as_str().map_or_else(String::new, |subject| format!(" of {subject}"));
        ensure!(errors == 0, "{operation}{subject}: {errors} requests failed: {}", row["errors"]);
    }
    Ok(())
}

struct Bench<'a> {
    program: &'a Path,
    floors: PathBuf,
    extent: &'a Extent,
}

impl Bench<'_> {
    fn bench(&self, arguments: &[&str]) -> anyhow::Result<Value> {
        say(&format!("gabion bench {}", arguments.join(" ")));
        let mut command = Command::new(self.program);
        command.arg("bench").args(arguments).args(["--json", "-"]);
        let text = output(command.env("GABION_ACCESS_KEY", ACCESS_KEY).env("GABION_SECRET_KEY", SECRET_KEY))?;
        serde_json::from_str(&text).context("reading the report of gabion bench")
    }

    /// The table of floors and servers, which is shown.
    ///
    /// # Errors
    /// When it can not be measured, or a request failed.
    fn floor(
        &self,
        size: &str,
        clients: &str,
        operations: &str,
        servers: &[(&str, &Server)],
        seconds: u64,
    ) -> anyhow::Result<Value> {
        let joined = |of: &dyn Fn(&(&str, &Server)) -> String| servers.iter().map(of).collect::<Vec<_>>().join(",");
        let endpoints = joined(&|(durability, server)| format!("{durability}={}", server.endpoint));
        let pids = joined(&|(_, server)| server.pid().to_string());
        let (seconds, rounds) = (format!("{seconds}s"), self.extent.rounds.to_string());
        let targets = self.floors.display().to_string();
        let table = self.bench(&[
            "floor",
            "--size",
            size,
            "-c",
            clients,
            "--operation",
            operations,
            "--targets",
            &targets,
            "--geometry",
            GEOMETRY,
            "--endpoint",
            &endpoints,
            "--duration",
            &seconds,
            "--rounds",
            &rounds,
            "--touch-memory",
            TOUCHED_MEMORY,
            "--server-pid",
            &pids,
        ])?;
        say(&figures(&table)?);
        without_errors(&table["rows"])?;
        Ok(table)
    }

    /// One client lists all keys, and folders of many and of few keys.
    fn listings(&self, server: &Server) -> anyhow::Result<String> {
        let Extent { keys, folders, per_folder, .. } = *self.extent;
        let few = (per_folder / 10).max(1);
        let keys_per_s = self.list(server, "keys/", keys, per_folder, &[])?;
        let delimiter = ["--delimiter", "/"];
        let many_per_s = self.list(server, "many/", folders * per_folder, per_folder, &delimiter)?;
        let few_per_s = self.list(server, "few/", folders * few, few, &delimiter)?;
        let verdict = met(keys_per_s >= KEYS_PER_S);
        let (share, least) = (many_per_s / few_per_s * 100.0, FOLDERS_SHARE * 100.0);
        let folders_verdict = met(share >= least);
        Ok(format!(
            "| list of {keys} keys, 1 client | | {keys_per_s:.0} keys/s | | ≥ {KEYS_PER_S:.0} keys/s | {verdict} |\n\
             | list of {folders} folders of {per_folder} keys, 1 client | | {many_per_s:.0} folders/s, {share:.0} % | {few_per_s:.0} folders/s of {few} keys | ≥ {least:.0} % | {folders_verdict} |\n"
        ))
    }

    fn list(
        &self,
        server: &Server,
        prefix: &str,
        objects: u64,
        per_folder: u64,
        flags: &[&str],
    ) -> anyhow::Result<f64> {
        let (objects, per_folder) = (objects.to_string(), per_folder.to_string());
        let seconds = format!("{}s", self.extent.seconds);
        let common =
            ["--endpoint", &server.endpoint, "--bucket", "listed", "--prefix", prefix, "--size", "1", "--keep"];
        let these = ["--objects", &objects, "--per-folder", &per_folder];
        // Written by many, listed by one.
        self.bench(&[&["list", "-c", "64", "-n", "1", "--warmup", "0s"], &common[..], &these].concat())?;
        let list = ["list", "-c", "1", "--no-prepare", "--duration", &seconds];
        let report = self.bench(&[&list, &common[..], &these, flags].concat())?;
        without_errors(&report["results"])?;
        number(&report["results"][0]["entries_per_s"])
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rows_with_errors_are_not_judged() {
        let row = |errors: u64| json!({"operation": "put", "subject": "a server", "error_count": errors, "errors": {"503": errors}});
        without_errors(&json!([row(0), row(0)])).unwrap();
        let error = without_errors(&json!([row(0), row(7)])).unwrap_err().to_string();
        assert_eq!(error, r#"put of a server: 7 requests failed: {"503":7}"#);
    }
}
