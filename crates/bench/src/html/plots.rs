//! What a server reaches as its clients become more, in drawings that stand alone: rates, latencies, and shares of the HTTP floor.
//!
//! From tables of `gabion bench floor --json`, one for each number of clients; docs/BENCHMARKS.md shows them.

use std::{fs, path::Path};

use anyhow::{Context, ensure};
use serde::Deserialize;

use super::chart::{Chart, Line, measured_at};
use super::scale::Scale;
use crate::{
    report::{Latency, Machine},
    units::{show_bytes, show_round_count, show_us},
};

/// What is read of a table.
#[derive(Deserialize)]
struct Table {
    size_bytes: u64,
    concurrency: u32,
    /// As the next two, absent from tables that did not record it.
    threads: Option<usize>,
    duration_seconds: Option<f64>,
    touch_memory_bytes: Option<u64>,
    geometry: String,
    machine: Machine,
    rows: Vec<Row>,
}

impl Table {
    /// What must be the same in all that are drawn as one.
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    fn subject(&self) -> String {
        let Machine { cpu, cpus, .. } = &self.machine;
        let size = show_bytes(self.size_bytes as f64);
        let threads = self.threads.map(|threads| format!(", {threads} threads of the client"));
        let seconds = self.duration_seconds.map(|seconds| format!(", {seconds} s"));
        let touched = self.touch_memory_bytes.map(|bytes| format!(", {} touched before", show_bytes(bytes as f64)));
        let how: String = [threads, seconds, touched].into_iter().flatten().collect();
        format!("objects of {size} on {} and {cpus} cores of {cpu}{how}", self.geometry)
    }
}

#[derive(Deserialize)]
struct Row {
    operation: String,
    layer: String,
    durability: Option<String>,
    ops_per_s: f64,
    latency_us: Latency,
    #[serde(default)]
    shares: Vec<Share>,
}

#[derive(Deserialize)]
struct Share {
    floor: String,
    share: f64,
}

/// What has a line: how it is called, what is done, and by a server of which durability, the first that a table has.
struct Subject {
    name: &'static str,
    operation: &'static str,
    durabilities: &'static [&'static str],
}

/// Reading does not depend on the durability.
const SUBJECTS: [Subject; 4] = [
    Subject { name: "stat", operation: "stat", durabilities: &["sync", "relaxed"] },
    Subject { name: "get", operation: "get", durabilities: &["sync", "relaxed"] },
    Subject { name: "put, relaxed", operation: "put", durabilities: &["relaxed"] },
    Subject { name: "put, sync", operation: "put", durabilities: &["sync"] },
];

/// Reads the tables in `files` and writes `rates.svg`, `latencies.svg` and `shares.svg` into `directory`.
///
/// # Errors
/// When a file can not be read or is no such table, when there is nothing in them to be drawn, or a drawing can not be written.
pub(crate) fn write<P: AsRef<Path>>(files: &[P], directory: &Path) -> anyhow::Result<()> {
    let mut tables = Vec::new();
    for file in files.iter().map(AsRef::as_ref) {
        let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
        let table: Table = serde_json::from_str(&text)
            .with_context(|| format!("{} is no table of `gabion bench floor --json`", file.display()))?;
        tables.push(table);
    }
    tables.sort_by_key(|table| table.concurrency);
    are_one(&tables)?;
    fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
    for (name, drawing) in drawings(&tables)? {
        let path = directory.join(name);
        fs::write(&path, drawing).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// Refuses tables that make no line together.
fn are_one(tables: &[Table]) -> anyhow::Result<()> {
    for pair in tables.windows(2) {
        let (one, other) = (pair[0].subject(), pair[1].subject());
        ensure!(one == other, "these tables are of different things: {one}, and {other}");
        let clients = pair[0].concurrency;
        ensure!(
            clients != pair[1].concurrency,
            "two of these tables are of {clients} clients: give one of each number"
        );
    }
    Ok(())
}

fn drawings(tables: &[Table]) -> anyhow::Result<[(&'static str, String); 3]> {
    let charts = [("rates.svg", rates(tables)), ("latencies.svg", latencies(tables)), ("shares.svg", shares(tables))];
    for (name, chart) in &charts {
        ensure!(!chart.lines.is_empty(), "{name}: the tables have no server to be drawn; measure one with --endpoint");
    }
    Ok(charts.map(|(name, chart)| (name, chart.drawing())))
}

/// A value of each table in which it is, over the number of clients.
fn over_clients(tables: &[Table], value: impl Fn(&Table) -> Option<f64>) -> Vec<(f64, f64)> {
    tables.iter().filter_map(|table| Some((f64::from(table.concurrency), value(table)?))).collect()
}

impl Table {
    /// The row of a server.
    fn server(&self, subject: &Subject) -> Option<&Row> {
        let of = |durability: &str| {
            self.rows.iter().find(|row| {
                row.layer == "endpoint"
                    && row.operation == subject.operation
                    && row.durability.as_deref() == Some(durability)
            })
        };
        subject.durabilities.iter().find_map(|durability| of(durability))
    }

    /// The row of HTTP without storage.
    fn floor(&self, operation: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.layer == "http" && row.operation == operation)
    }
}

impl Row {
    fn share_of_http(&self) -> Option<f64> {
        self.shares.iter().find(|share| share.floor == "http").map(|share| share.share)
    }
}

fn line(name: impl Into<String>, colour: usize, dashed: bool, points: Vec<(f64, f64)>) -> Option<Line> {
    (!points.is_empty()).then(|| Line { name: name.into(), colour, dashed, points })
}

/// The lines of a chart over the number of clients.
fn chart(title: &'static str, y: fn(&[f64]) -> Scale, show_y: fn(f64) -> String, lines: Vec<Line>) -> Chart {
    let clients = measured_at(&lines);
    let values: Vec<f64> = lines.iter().flat_map(|line| &line.points).map(|point| point.1).collect();
    Chart {
        title,
        x_title: "clients",
        x: Scale::Log(1.0, clients.last().map_or(2.0, |most| most.max(2.0))),
        y: y(&values),
        x_marks: clients,
        show_x: |clients| clients.to_string(),
        show_y,
        filled: false,
        lines,
    }
}

fn linear(values: &[f64]) -> Scale {
    Scale::linear(values.iter().copied().fold(0.0, f64::max))
}

fn log(values: &[f64]) -> Scale {
    Scale::log(values.iter().copied())
}

fn rates(tables: &[Table]) -> Chart {
    let servers = SUBJECTS.iter().enumerate().filter_map(|(colour, subject)| {
        line(subject.name, colour, false, over_clients(tables, |table| Some(table.server(subject)?.ops_per_s)))
    });
    let floors = ["stat", "get", "put"].into_iter().enumerate().filter_map(|(colour, operation)| {
        let points = over_clients(tables, |table| Some(table.floor(operation)?.ops_per_s));
        line(format!("{operation} by HTTP alone"), colour, true, points)
    });
    chart("Operations per second", linear, show_round_count, servers.chain(floors).collect())
}

fn latencies(tables: &[Table]) -> Chart {
    type Pick = fn(&Latency) -> f64;
    let picks: [(&str, Pick, bool); 2] = [("p50", |latency| latency.p50, false), ("p99", |latency| latency.p99, true)];
    let lines = picks.iter().flat_map(|(pick_name, pick, dashed)| {
        SUBJECTS.iter().enumerate().filter_map(move |(colour, subject)| {
            let points = over_clients(tables, |table| Some(pick(&table.server(subject)?.latency_us)));
            line(format!("{}: {pick_name}", subject.name), colour, *dashed, points)
        })
    });
    chart("Latency", log, show_us, lines.collect())
}

fn shares(tables: &[Table]) -> Chart {
    let lines = SUBJECTS.iter().enumerate().filter_map(|(colour, subject)| {
        let points = over_clients(tables, |table| Some(table.server(subject)?.share_of_http()? * 100.0));
        line(subject.name, colour, false, points)
    });
    let percent = |percent: f64| format!("{percent:.0} %");
    chart("Share of what HTTP alone reaches", linear, percent, lines.collect())
}

#[cfg(test)]
mod tests {
    use super::super::tests::assert_well_formed;
    use super::*;

    const LATENCY: &str =
        r#"{"mean": 900.0, "p50": 800.0, "p90": 1000.0, "p99": 2000.0, "p999": 3000.0, "max": 4000.0}"#;

    fn table(clients: u32) -> Table {
        let row = |layer: &str, durability: &str, shares: &str| {
            format!(
                r#"{{"operation": "put", "layer": "{layer}", {durability} "ops_per_s": {}.5, "latency_us": {LATENCY}, "shares": [{shares}]}}"#,
                clients * 1000
            )
        };
        let rows = [
            row("http", "", ""),
            row(
                "endpoint",
                r#""durability": "sync","#,
                r#"{"floor": "http", "share": 0.25}, {"floor": "log", "share": 0.5}"#,
            ),
        ];
        let machine = r#"{"cpu": "a", "cpus": 2, "memory_bytes": 1, "kernel": "b"}"#;
        let table = format!(
            r#"{{"size_bytes": {}, "concurrency": {clients}, "geometry": "4+2", "machine": {machine}, "rows": [{}]}}"#,
            4096,
            rows.join(",")
        );
        serde_json::from_str(&table).unwrap()
    }

    #[test]
    fn drawings_have_a_line_for_what_was_measured() {
        let drawings = drawings(&[table(1), table(16), table(256)]).unwrap();
        for (name, drawing) in &drawings {
            assert_well_formed(drawing);
            assert!(drawing.starts_with("<svg xmlns=") && !drawing.contains("NaN"), "{name}");
            assert!(drawing.contains("put, sync") && !drawing.contains("put, relaxed"), "{name}");
        }
        assert!(drawings[0].1.contains("put by HTTP alone"));
        // Each number of clients is written where it was measured, and colours are also there for viewers that know none by name.
        for clients in [1, 16, 256] {
            assert!(drawings[0].1.contains(&format!("text-anchor=\"middle\">{clients}</text>")), "{clients}");
        }
        assert!(drawings[0].1.contains(".c1 { stroke: #c9531a; stroke: var(--c1); }"), "{}", drawings[0].1);
        assert!(drawings[2].1.contains("256\nput, sync: 25 %"));
    }

    #[test]
    fn reads_of_a_relaxed_server_are_drawn_where_there_is_no_other() {
        let mut table = table(4);
        table.rows[1].operation = "get".to_owned();
        table.rows[1].durability = Some("relaxed".to_owned());
        for (name, drawing) in drawings(&[table]).unwrap() {
            assert!(drawing.contains("\nget"), "{name}: {drawing}");
        }
    }

    #[test]
    fn tables_of_different_things_make_no_line() {
        are_one(&[table(1), table(4)]).unwrap();
        assert!(are_one(&[table(4), table(4)]).unwrap_err().to_string().contains("of 4 clients"));
        let other = Table { size_bytes: 1 << 20, ..table(4) };
        assert!(are_one(&[table(1), other]).unwrap_err().to_string().contains("1.0 MiB"));
        let other = Table { machine: Machine { cpus: 4, ..table(4).machine }, ..table(4) };
        assert!(are_one(&[table(1), other]).is_err());
    }

    #[test]
    fn a_table_without_a_server_is_refused() {
        let mut table = table(1);
        table.rows.truncate(1);
        assert!(drawings(&[table]).unwrap_err().to_string().contains("latencies.svg"));
    }
}
