//! The table of floors and endpoints.

use std::collections::BTreeMap;

use gabion_segment::Durability;
use hdrhistogram::Histogram;
use serde::Serialize;

use super::{FloorArgs, Layer, Round};
use crate::{
    report::{Latency, Machine, SATURATED, utc},
    stats::Kind,
    units::show_bytes,
};

/// What was measured, for people and for programs.
#[derive(Serialize, Debug)]
pub(super) struct Table {
    /// Version of the client.
    version: String,
    started: String,
    size_bytes: u64,
    concurrency: u32,
    /// Threads of the client.
    threads: usize,
    geometry: String,
    /// Directories that the floors of log and files lie in.
    targets: usize,
    /// Objects that are read.
    objects: u64,
    duration_seconds: f64,
    warmup_seconds: f64,
    touch_memory_bytes: u64,
    rounds: u32,
    machine: Machine,
    rows: Vec<Row>,
}

/// One operation of one subject: its median round; of an even number the mean of the two in the middle.
#[derive(Clone, Serialize, Debug)]
pub(super) struct Row {
    operation: &'static str,
    subject: String,
    /// `http`, `http-each`, `log`, `http-log`, `files`, `http-files`, `data-sync` or `endpoint`.
    layer: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    durability: Option<String>,
    ops_per_s: f64,
    bytes_per_s: f64,
    latency_us: Latency,
    error_count: u64,
    /// Those of all rounds, by kind.
    errors: BTreeMap<String, u64>,
    /// Rates of all rounds.
    rounds_ops_per_s: Vec<f64>,
    /// CPU time of the server per request, in the kernel and outside; the median of the rounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    server_cpu_us_per_op: Option<f64>,
    /// How much of the time that the client's threads could have they took; the median of the rounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    client_busy: Option<f64>,
    /// Of an endpoint: its rate as a share of each floor on its path, and of the lowest of those that have all cores for themselves.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    shares: Vec<Share>,
    #[serde(skip_serializing_if = "Option::is_none")]
    share_of_lowest: Option<f64>,
    #[serde(skip)]
    place: Layer,
}

/// A rate as a share of a floor, round by round, as each round meets what the machine does at that time: the median, of an even number the mean of the two in the middle, and what lies
/// around it.
#[derive(Clone, Serialize, Debug)]
struct Share {
    floor: &'static str,
    share: f64,
    lowest: f64,
    highest: f64,
}

impl Share {
    /// Of nothing there is no share: rounds in which the floor came to no operation say nothing, and a floor that did so in most of them neither.
    fn new(floor: &Row, rates: &[f64]) -> Option<Self> {
        let rounds = rates.iter().zip(&floor.rounds_ops_per_s).filter(|(_, floor)| **floor > 0.0);
        let mut shares: Vec<f64> = rounds.map(|(rate, floor)| rate / floor).collect();
        shares.sort_by(f64::total_cmp);
        let (a, b) = middle(&shares).filter(|_| floor.ops_per_s > 0.0)?;
        Some(Self { floor: floor.layer, share: a.midpoint(*b), lowest: shares[0], highest: shares[shares.len() - 1] })
    }
}

impl Layer {
    fn key(self) -> &'static str {
        match self {
            Layer::Http => "http",
            Layer::HttpEach => "http-each",
            Layer::Log(_) => "log",
            Layer::HttpLog(_) => "http-log",
            Layer::Files(_) => "files",
            Layer::HttpFiles(_) => "http-files",
            Layer::DataSync => "data-sync",
            Layer::Endpoint(_) => "endpoint",
        }
    }

    fn durability(self) -> Option<Durability> {
        match self {
            Layer::Http | Layer::HttpEach | Layer::DataSync => None,
            Layer::Log(durability)
            | Layer::HttpLog(durability)
            | Layer::Files(durability)
            | Layer::HttpFiles(durability)
            | Layer::Endpoint(durability) => Some(durability),
        }
    }
}

/// The two in the middle of what is sorted, or the one twice: the median is their mean.
fn middle<T>(sorted: &[T]) -> Option<(&T, &T)> {
    Some((sorted.get(sorted.len().checked_sub(1)? / 2)?, sorted.get(sorted.len() / 2)?))
}

impl Row {
    /// Of all rounds of one subject; nothing if there were none.
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    pub(super) fn new(kind: Kind, subject: String, place: Layer, rounds: &[Round]) -> Option<Self> {
        let empty = Histogram::new(3).expect("three digits are within the bounds of a histogram");
        let (mut figures, mut server_cpu_us, mut errors) = (Vec::new(), Vec::new(), BTreeMap::new());
        let mut client_busy: Vec<f64> = rounds.iter().filter_map(|round| round.client_busy).collect();
        client_busy.sort_by(f64::total_cmp);
        for Round { stats, server_cpu, .. } in rounds {
            let seconds = stats.elapsed().as_secs_f64().max(1e-9);
            let series = stats.series.get(&kind);
            let latency = series.map_or(&empty, |series| &series.latency_ns);
            let bytes = series.map_or(0, |series| series.bytes);
            let operations = series.map_or(0, crate::stats::Series::operations);
            figures.push((operations as f64 / seconds, bytes as f64 / seconds, Latency::new(latency)));
            for (kind, count) in series.iter().flat_map(|series| &series.errors) {
                *errors.entry(kind.clone()).or_default() += count;
            }
            let ended = series.map_or(0, |series| series.ended);
            let cpu_us = server_cpu.map(|cpu| cpu.as_secs_f64() * 1e6 / ended as f64);
            server_cpu_us.extend(cpu_us.filter(|cpu_us| cpu_us.is_finite()));
        }
        server_cpu_us.sort_by(f64::total_cmp);
        let rounds_ops_per_s = figures.iter().map(|figures| figures.0).collect();
        figures.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (a, b) = middle(&figures)?;
        Some(Self {
            operation: kind.name(),
            subject,
            layer: place.key(),
            durability: place.durability().map(|durability| durability.to_string()),
            ops_per_s: a.0.midpoint(b.0),
            bytes_per_s: a.1.midpoint(b.1),
            latency_us: Latency::mean_of(&[&a.2, &b.2]),
            error_count: errors.values().sum(),
            errors,
            rounds_ops_per_s,
            server_cpu_us_per_op: middle(&server_cpu_us).map(|(a, b)| a.midpoint(*b)),
            client_busy: middle(&client_busy).map(|(a, b)| a.midpoint(*b)),
            shares: Vec::new(),
            share_of_lowest: None,
            place,
        })
    }
}

impl Row {
    /// What is to be known before the row is believed.
    fn cautions(&self) -> impl Iterator<Item = String> {
        let busy = self.client_busy.filter(|busy| *busy >= SATURATED).map(|busy| {
            format!(
                "the client's threads were busy for {:.0} % of the time that they can have: this may be their limit; see --threads",
                busy * 100.0
            )
        });
        let passed = self.shares.iter().filter(|share| share.share > 1.0);
        let passed = passed.map(|share| format!("faster than {}: it was no floor in this run", share.floor));
        busy.into_iter().chain(passed)
    }
}

impl Table {
    /// Of so many rounds.
    pub(super) fn new(args: &FloorArgs, rounds: u32, started: u64, mut rows: Vec<Row>) -> Self {
        let floors = rows.clone();
        for row in &mut rows {
            let Layer::Endpoint(durability) = row.place else { continue };
            let below =
                floors.iter().filter(|floor| floor.operation == row.operation && floor.place.is_below(durability));
            let below = below.filter_map(|floor| Some((floor.place, Share::new(floor, &row.rounds_ops_per_s)?)));
            let below: Vec<(Layer, Share)> = below.collect();
            let alone = below.iter().filter(|(place, _)| place.is_alone());
            row.share_of_lowest = alone.map(|(_, share)| share.share).max_by(f64::total_cmp);
            row.shares = below.into_iter().map(|(_, share)| share).collect();
        }
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started: utc(started),
            size_bytes: args.size,
            concurrency: args.concurrency,
            threads: args.threads(),
            geometry: args.geometry.to_string(),
            targets: args.targets.len(),
            objects: args.objects(),
            duration_seconds: args.duration.as_secs_f64(),
            warmup_seconds: args.warmup.as_secs_f64(),
            touch_memory_bytes: args.touch_memory,
            rounds,
            machine: Machine::here(),
            rows,
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    pub(super) fn text(&self) -> String {
        let width = self.rows.iter().map(|row| row.subject.len()).max().unwrap_or(0);
        let mut out = format!(
            "objects of {}, {} clients, {}, median of {} rounds\n{:<10}{:<width$}       ops/s       bytes/s    p50 µs    p99 µs  errors  server CPU µs  share of\n",
            show_bytes(self.size_bytes as f64),
            self.concurrency,
            self.geometry,
            self.rounds,
            "operation",
            "",
        );
        for row in &self.rows {
            let shares = row.shares.iter().map(|Share { floor, share, lowest, highest }| {
                let [share, lowest, highest] = [share, lowest, highest].map(|share| share * 100.0);
                format!("  {floor} {share:.0} % ({lowest:.0}–{highest:.0})")
            });
            let cpu = row.server_cpu_us_per_op.map_or_else(String::new, |cpu_us| format!("{cpu_us:.1}"));
            out += &format!(
                "{:<10}{:<width$} {:>11.1} {:>11}/s {:>9.0} {:>9.0} {:>7} {:>14}{}\n",
                row.operation,
                row.subject,
                row.ops_per_s,
                show_bytes(row.bytes_per_s),
                row.latency_us.p50,
                row.latency_us.p99,
                row.error_count,
                cpu,
                shares.collect::<String>(),
            );
            for (kind, count) in &row.errors {
                out += &format!("{:<10}{count} × {kind}\n", "");
            }
            for caution in row.cautions() {
                out += &format!("{:<10}{caution}\n", "");
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        cli::Program,
        clock::Stamp,
        stats::{Done, Stats},
    };

    fn round(operations: u64) -> Round {
        let start = Stamp::now();
        let mut stats = Stats::new(start);
        let end = start.plus(Duration::from_secs(1));
        (0..operations).for_each(|_| stats.record(Kind::Put, start, end, Ok(Done::bytes(4096))));
        let server_cpu = Some(Duration::from_millis(operations * operations));
        Round { stats: stats.finish(), server_cpu, client_busy: Some(0.5) }
    }

    #[test]
    fn an_endpoint_is_compared_with_the_floors_on_its_path() {
        use clap::Parser;
        let command = Program::parse_from(["bench", "floor", "--endpoint", "relaxed=http://b,http://a"]).cli.command;
        let args = *command.unwrap().into_settings().unwrap_err();
        let endpoints: Vec<_> = args.endpoints().collect();
        assert_eq!(endpoints, [(Durability::Relaxed, "http://b"), (Durability::Sync, "http://a")]);
        assert_eq!(args.durabilities(), [Durability::Sync, Durability::Relaxed]);
        let row = |layer: Layer, rounds: &[u64]| {
            let rounds: Vec<Round> = rounds.iter().copied().map(round).collect();
            Row::new(Kind::Put, format!("{layer:?}"), layer, &rounds).unwrap()
        };
        let table = Table::new(
            &args,
            1,
            0,
            vec![
                row(Layer::Http, &[100, 300, 200]),
                row(Layer::Log(Durability::Sync), &[80; 3]),
                row(Layer::HttpLog(Durability::Sync), &[75; 3]),
                row(Layer::Log(Durability::Relaxed), &[400; 3]),
                row(Layer::Files(Durability::Sync), &[0, 50, 0]),
                row(Layer::DataSync, &[1; 3]),
                row(Layer::Endpoint(Durability::Sync), &[60; 3]),
                row(Layer::Endpoint(Durability::Relaxed), &[50; 3]),
            ],
        );
        assert_eq!(table.rows[0].ops_per_s, 200.0, "the median round");
        assert_eq!(table.rows[0].server_cpu_us_per_op, Some(200_000.0), "and the median of what each round took");
        assert_eq!(table.rows[4].server_cpu_us_per_op, Some(50_000.0), "a round without operations says nothing");
        let shares = |row: &Row| row.shares.iter().map(|share| (share.floor, share.share)).collect::<Vec<_>>();
        assert_eq!(
            shares(&table.rows[6]),
            [("http", 0.3), ("log", 0.75), ("http-log", 0.8)],
            "of a floor of zero there is no share"
        );
        assert_eq!(shares(&table.rows[7]), [("http", 0.25), ("log", 0.125)]);
        assert_eq!([6, 7].map(|row| table.rows[row].share_of_lowest), [Some(0.75), Some(0.25)]);
        assert!(table.text().contains("http 30 % (20–60)  log 75 % (75–75)"), "{}", table.text());
        assert!(Row::new(Kind::Put, String::new(), Layer::Http, &[]).is_none());
    }

    #[test]
    fn the_median_of_an_even_number_is_the_mean_of_the_two_in_the_middle() {
        let row = |operations: &[u64]| {
            let rounds: Vec<Round> = operations.iter().copied().map(round).collect();
            Row::new(Kind::Put, String::new(), Layer::Http, &rounds).unwrap()
        };
        let even = row(&[400, 100, 200, 1000]);
        assert_eq!(
            (even.ops_per_s, even.bytes_per_s, even.server_cpu_us_per_op),
            (300.0, 1_228_800.0, Some(300_000.0))
        );
        assert!((even.latency_us.p50 - 1e6).abs() < 1e3, "{}", even.latency_us.p50);
        assert_eq!(row(&[300]).ops_per_s, 300.0);
    }

    /// A machine that is slower by the hour meets both alike.
    #[test]
    fn each_round_has_its_share() {
        use crate::floor::cli::tests::args;
        let row = |layer: Layer, busy: f64, rounds: &[u64]| {
            let rounds: Vec<Round> =
                rounds.iter().map(|count| Round { client_busy: Some(busy), ..round(*count) }).collect();
            Row::new(Kind::Put, format!("{layer:?}"), layer, &rounds).unwrap()
        };
        let endpoint = Layer::Endpoint(Durability::Sync);
        for (server, expected, told) in [
            (&[50, 100, 200][..], [0.5, 0.5, 0.5], "\n"),
            (&[40, 100, 220], [0.5, 0.4, 0.55], "\n"),
            (&[110, 220, 440], [1.1, 1.1, 1.1], "\n          faster than http: it was no floor in this run\n"),
        ] {
            let rows = vec![row(Layer::Http, 0.5, &[100, 200, 400]), row(endpoint, 0.5, server)];
            let table = Table::new(&args(&[]), 3, 0, rows);
            let Share { share, lowest, highest, .. } = table.rows[1].shares[0];
            assert_eq!([share, lowest, highest], expected);
            let end = format!(" % ({:.0}–{:.0}){told}", lowest * 100.0, highest * 100.0);
            assert!(table.text().ends_with(&end), "{}", table.text());
        }
        let text = Table::new(&args(&[]), 3, 0, vec![row(Layer::Http, 0.93, &[100])]).text();
        assert!(text.contains("\n          the client's threads were busy for 93 % of the time"), "{text}");
    }

    #[test]
    fn errors_of_all_rounds_are_told_by_kind() {
        use crate::floor::cli::tests::args;
        let failed = |kind: &str| {
            let start = Stamp::now();
            let mut stats = Stats::new(start);
            stats.record(Kind::Put, start, start, Err(kind.to_owned()));
            Round::from(stats.finish())
        };
        let rounds = [failed("503"), round(1), failed("timeout"), failed("503")];
        let row = Row::new(Kind::Put, String::new(), Layer::Http, &rounds).unwrap();
        assert_eq!(row.error_count, 3);
        let text = Table::new(&args(&[]), 1, 0, vec![row]).text();
        assert!(text.ends_with("\n          2 × 503\n          1 × timeout\n"), "{text}");
    }
}
