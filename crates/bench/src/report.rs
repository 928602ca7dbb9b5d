//! What a run found, for people and for programs.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{
    cli::{Cli, Operation, Payload},
    stats::{Series, Stats},
    units::show_bytes,
};

/// The whole report: what was asked for, and the figures of each kind of operation.
#[derive(Serialize, Debug)]
pub(crate) struct Report {
    endpoint: String,
    load: &'static str,
    size_bytes: u64,
    concurrency: u32,
    payload: &'static str,
    verified: bool,
    seconds: f64,
    results: Vec<Figures>,
}

/// The figures of one kind of operation.
#[derive(Serialize, Debug)]
struct Figures {
    operation: &'static str,
    operations: u64,
    ops_per_s: f64,
    bytes_per_s: f64,
    latency_us: Latency,
    error_count: u64,
    errors: BTreeMap<String, u64>,
    per_second: Vec<PerSecond>,
}

/// Latency of successful operations in microseconds.
#[derive(Serialize, Debug)]
struct Latency {
    mean: f64,
    p50: f64,
    p90: f64,
    p99: f64,
    p999: f64,
    max: f64,
}

/// What ended within one second.
#[derive(Serialize, Debug)]
struct PerSecond {
    second: usize,
    ops: u64,
    bytes: u64,
}

fn name(operation: Operation) -> &'static str {
    match operation {
        Operation::Put => "put",
        Operation::Get => "get",
        Operation::Stat => "stat",
        Operation::Delete => "delete",
        Operation::List => "list",
        Operation::Mixed => "mixed",
    }
}

impl Figures {
    #[expect(clippy::cast_precision_loss, reason = "figures for people: 53 bits are plenty")]
    fn new(operation: Operation, series: &Series, seconds: f64) -> Self {
        let us = |ns: u64| ns as f64 / 1000.0;
        let latency = &series.latency_ns;
        let at = |quantile| us(latency.value_at_quantile(quantile));
        let operations = latency.len();
        let rate = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
        Self {
            operation: name(operation),
            operations,
            ops_per_s: rate(operations),
            bytes_per_s: rate(series.bytes),
            latency_us: Latency {
                mean: latency.mean() / 1000.0,
                p50: at(0.5),
                p90: at(0.9),
                p99: at(0.99),
                p999: at(0.999),
                max: us(latency.max()),
            },
            error_count: series.error_count(),
            errors: series.errors.clone(),
            per_second: series
                .seconds
                .iter()
                .enumerate()
                .map(|(second, counts)| PerSecond { second, ops: counts.operations, bytes: counts.bytes })
                .collect(),
        }
    }
}

impl Report {
    pub(crate) fn new(cli: &Cli, stats: &Stats) -> Self {
        let seconds = stats.elapsed().as_secs_f64();
        Self {
            endpoint: cli.endpoint.clone(),
            load: name(cli.operation),
            size_bytes: cli.size,
            concurrency: cli.concurrency,
            payload: match cli.payload {
                Payload::Unsigned => "unsigned",
                Payload::Signed => "signed",
            },
            verified: !cli.no_verify,
            seconds,
            results: stats.series.iter().map(|(operation, series)| Figures::new(*operation, series, seconds)).collect(),
        }
    }

    /// The report as a table.
    pub(crate) fn text(&self) -> String {
        let mut out = format!(
            "{} of {} with {} workers against {}, {:.1} s\n",
            self.load,
            show_bytes(self.size_bytes as f64),
            self.concurrency,
            self.endpoint,
            self.seconds
        );
        out += "operation      ops/s       bytes/s    p50 µs    p90 µs    p99 µs  p99.9 µs    max µs  errors\n";
        for row in &self.results {
            let latency = &row.latency_us;
            out += &format!(
                "{:<9} {:>10.1} {:>11}/s {:>9.0} {:>9.0} {:>9.0} {:>9.0} {:>9.0} {:>7}\n",
                row.operation,
                row.ops_per_s,
                show_bytes(row.bytes_per_s),
                latency.p50,
                latency.p90,
                latency.p99,
                latency.p999,
                latency.max,
                row.error_count,
            );
            for (kind, count) in &row.errors {
                out += &format!("          {count} × {kind}\n");
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::Parser;

    use super::*;
    use crate::clock::Stamp;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        cli: Cli,
    }

    #[test]
    fn json_has_what_its_readers_expect() {
        let cli = Program::parse_from(["bench", "put", "--size", "4KiB", "-c", "2"]).cli;
        let start = Stamp::now();
        let mut stats = Stats::new(start);
        let end = start.plus(Duration::from_millis(500));
        stats.record(Operation::Put, start, end, Ok(4096));
        stats.record(Operation::Put, start, end, Err("503 SlowDown".into()));
        let report = Report::new(&cli, &stats);
        let json = serde_json::to_value(&report).unwrap();
        let result = &json["results"][0];
        assert_eq!(result["operation"], "put");
        assert_eq!(result["ops_per_s"], 2.0);
        assert_eq!(result["bytes_per_s"], 8192.0);
        assert_eq!(result["errors"]["503 SlowDown"], 1);
        for quantile in ["p50", "p90", "p99", "p999", "max"] {
            let us = result["latency_us"][quantile].as_f64().unwrap();
            assert!((us - 500_000.0).abs() < 1_000.0, "{quantile}: {us}");
        }
        assert!(report.text().contains("1 × 503 SlowDown"));
    }
}
