//! What a run found, for people and for programs.
//!
//! The JSON form is documented in docs/BENCHMARKS.md; fields are added, never changed.

mod asked;
mod machine;
mod text;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, ensure};
use base64::{Engine, engine::general_purpose::STANDARD};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

pub(crate) use asked::Asked;
pub(crate) use machine::Machine;
pub(crate) use text::{SATURATED, busy_share};

use crate::{
    cli::Settings,
    sign::civil_date,
    stats::{Kind, SECONDS_MAX, Second, Series, Stats, encode},
    threads::Outcome,
};

/// The whole report: what was asked for, and the figures of each kind of operation in each phase.
#[derive(Clone, Serialize, Deserialize, Debug)]
pub(crate) struct Report {
    /// Version of the client.
    pub(crate) version: String,
    /// When the first phase began, in UTC.
    pub(crate) started: String,
    /// The endpoints, with commas between them.
    pub(crate) endpoint: String,
    pub(crate) load: String,
    /// Sizes as they were given.
    pub(crate) size: String,
    /// Average size.
    pub(crate) size_bytes: u64,
    pub(crate) concurrency: u32,
    pub(crate) processes: u32,
    /// Threads of all client processes.
    pub(crate) threads: u32,
    pub(crate) payload: String,
    pub(crate) verified: bool,
    /// What else was asked for. Absent from reports that did not record it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) asked: Option<Asked>,
    /// All phases together.
    pub(crate) seconds: f64,
    /// It was stopped before its end: the figures are of what was measured until then.
    #[serde(default)]
    pub(crate) interrupted: bool,
    /// CPU time of all client processes per request.
    pub(crate) client_cpu_us_per_op: f64,
    /// That of the server, if its processes are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) server_cpu_us_per_op: Option<f64>,
    pub(crate) phases: Vec<PhaseCost>,
    pub(crate) machine: Machine,
    /// What is to be known of further runs that it stands for.
    #[serde(skip)]
    pub(crate) of_other_runs: Vec<String>,
    /// Kind by kind; where there are several in a phase, the last of it is of all of them.
    pub(crate) results: Vec<Figures>,
}

/// What one phase took.
#[derive(Clone, Serialize, Deserialize, Debug)]
pub(crate) struct PhaseCost {
    pub(crate) phase: String,
    pub(crate) seconds: f64,
    /// Requests that CPU times are divided by: those that ended in the measurement, well or not, whenever they began.
    pub(crate) requests: u64,
    /// Workers that met too many failures in a row, and did not do what was left.
    #[serde(default)]
    pub(crate) given_up: u64,
    /// Client processes that were lost with what they measured.
    #[serde(default)]
    pub(crate) lost_processes: u64,
    /// Operations that were under way when the run was stopped, and were not waited for: in no figure.
    #[serde(default)]
    pub(crate) abandoned: u64,
    /// Operations that nobody was free for when they were due, where they came at a rate, and how late the latest of them began.
    #[serde(default)]
    pub(crate) late_starts: u64,
    #[serde(default)]
    pub(crate) latest_start_us: f64,
    /// Operations of a rate that were due and had not begun when the time was over, and for how long the first of them had been due by then: they are in no latency.
    #[serde(default)]
    pub(crate) missed_starts: u64,
    #[serde(default)]
    pub(crate) longest_missed_us: f64,
    /// What each endpoint did of what it was asked for, the warm-up included. Absent from reports that did not record it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) endpoints: Vec<EndpointCounts>,
    pub(crate) client_cpu_seconds: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) server_cpu_seconds: Option<f64>,
    /// The time that CPU times are of: it goes on behind the last success.
    /// Absent from reports that did not record it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) metered_seconds: Option<f64>,
}

/// What became of the operations that one endpoint was asked for.
#[derive(Clone, Serialize, Deserialize, Debug)]
pub(crate) struct EndpointCounts {
    pub(crate) endpoint: String,
    pub(crate) succeeded: u64,
    pub(crate) failed: u64,
    /// What the first that failed said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) first_failure: Option<String>,
}

/// The figures of one kind of operation in one phase.
#[derive(Clone, Serialize, Deserialize, Debug)]
pub(crate) struct Figures {
    pub(crate) operation: String,
    /// Empty if there is only one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) phase: String,
    /// That succeeded within `seconds`.
    pub(crate) operations: u64,
    /// Of these, those that began before, in the warm-up: they are not in the latencies.
    /// Absent from reports that did not count them.
    #[serde(default)]
    pub(crate) early_operations: Option<u64>,
    /// That succeeded later: in the latencies alone.
    #[serde(default)]
    pub(crate) late_operations: u64,
    /// That began before `seconds` and succeeded after it: in no figure.
    #[serde(default)]
    pub(crate) outlasted_operations: u64,
    /// The time that was asked for; else from the start of the phase, or of a count of operations from the first of them, to its last success.
    pub(crate) seconds: f64,
    /// How much of the first row of `per_second` was over when that time began.
    #[serde(default)]
    pub(crate) lead_seconds: f64,
    pub(crate) ops_per_s: f64,
    /// The rates of several runs that it is the mean of.
    #[serde(skip)]
    pub(crate) run_rates: Vec<f64>,
    pub(crate) bytes_per_s: f64,
    /// Keys and folders, of listings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) entries_per_s: Option<f64>,
    pub(crate) latency_us: Latency,
    pub(crate) error_count: u64,
    pub(crate) errors: BTreeMap<String, u64>,
    /// Requests that were sent once more because the server had closed the connection; no errors, but in the latencies.
    #[serde(default)]
    pub(crate) retries: u64,
    /// Every second up to the end of `seconds`, from that on in which they begin, also those in which nothing ended, of the first 24 hours.
    pub(crate) per_second: Vec<PerSecond>,
    /// How many operations took up to so long, and longer than the row before says.
    pub(crate) latency_distribution: Vec<Bucket>,
    /// The whole histogram of nanoseconds, in HDR's V2 form, base64.
    pub(crate) latency_ns_hdr_v2: String,
}

/// Latency of successful operations in microseconds.
#[derive(Clone, Copy, Serialize, Deserialize, Debug)]
pub(crate) struct Latency {
    pub(crate) mean: f64,
    pub(crate) p50: f64,
    pub(crate) p90: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
    pub(crate) max: f64,
}

/// What ended within one second.
#[derive(Clone, Serialize, Deserialize, Debug)]
pub(crate) struct PerSecond {
    pub(crate) second: usize,
    pub(crate) ops: u64,
    pub(crate) bytes: u64,
    pub(crate) errors: u64,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) errors_by_kind: BTreeMap<String, u64>,
    pub(crate) p50_us: f64,
    /// Absent, as `p999_us`, from reports that did not record it.
    #[serde(default)]
    pub(crate) p90_us: f64,
    pub(crate) p99_us: f64,
    #[serde(default)]
    pub(crate) p999_us: f64,
    pub(crate) max_us: f64,
}

/// A step of the distribution.
#[derive(Clone, Copy, Serialize, Deserialize, Debug)]
pub(crate) struct Bucket {
    pub(crate) up_to_us: f64,
    pub(crate) count: u64,
}

/// Steps of the distribution per factor of ten.
const STEPS_PER_DECADE: f64 = 20.0;

#[expect(clippy::cast_precision_loss, reason = "figures for people: 53 bits are plenty")]
fn us(ns: u64) -> f64 {
    ns as f64 / 1000.0
}

/// Zero of nothing.
#[expect(clippy::cast_precision_loss, reason = "figures for people: 53 bits are plenty")]
pub(crate) fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (count, sum) = values.fold((0_u64, 0.0), |(count, sum), value| (count + 1, sum + value));
    sum / count.max(1) as f64
}

#[expect(clippy::cast_precision_loss, reason = "figures for people: 53 bits are plenty")]
fn rate(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
}

impl Latency {
    pub(crate) fn new(ns: &Histogram<u64>) -> Self {
        let at = |quantile| us(ns.value_at_quantile(quantile));
        let (p50, p90, p99, p999) = (at(0.5), at(0.9), at(0.99), at(0.999));
        Self { mean: ns.mean() / 1000.0, p50, p90, p99, p999, max: us(ns.max()) }
    }

    /// The mean of several, figure by figure.
    pub(crate) fn mean_of(several: &[&Self]) -> Self {
        let mean = |of: fn(&Self) -> f64| mean(several.iter().map(|latency| of(latency)));
        Self {
            mean: mean(|latency| latency.mean),
            p50: mean(|latency| latency.p50),
            p90: mean(|latency| latency.p90),
            p99: mean(|latency| latency.p99),
            p999: mean(|latency| latency.p999),
            max: mean(|latency| latency.max),
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a step of a few hundred")]
fn distribution(ns: &Histogram<u64>) -> Vec<Bucket> {
    let mut steps: BTreeMap<i32, u64> = BTreeMap::new();
    for value in ns.iter_recorded() {
        let step = us(value.value_iterated_to().max(1)).log10() * STEPS_PER_DECADE;
        *steps.entry(step.ceil() as i32).or_default() += value.count_at_value();
    }
    let bucket = |(step, count)| Bucket { up_to_us: 10_f64.powf(f64::from(step) / STEPS_PER_DECADE), count };
    steps.into_iter().map(bucket).collect()
}

/// A second of which no more than this was over at its begin counts as whole: the first operation begins a moment after the start.
const LEAD_SECONDS_MAX: f64 = 0.01;

/// Seconds that had begun when so much time was over.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "seconds of a run")]
fn begun_seconds(seconds: f64) -> usize {
    seconds.ceil() as usize
}

impl Figures {
    /// Of a measurement that began `first` after the start, and took `seconds`.
    fn new(phase: &str, kind: Kind, series: &Series, first: Duration, seconds: f64) -> Self {
        let latency = &series.latency_ns;
        let lead_seconds = f64::from(first.subsec_nanos()) / 1e9;
        let (nothing, begun) = (Second::default(), begun_seconds(lead_seconds + seconds));
        let before = usize::try_from(first.as_secs()).unwrap_or(usize::MAX).min(series.seconds.len());
        let measured = &series.seconds[before..];
        let rows = measured.iter().chain(std::iter::repeat(&nothing));
        let rows = rows.take(begun.max(measured.len()).min(SECONDS_MAX));
        let per_second = rows.enumerate().map(|(second, counts)| {
            let ns = counts.latency_ns();
            PerSecond {
                second,
                ops: counts.operations,
                bytes: counts.bytes,
                errors: counts.errors.values().sum(),
                errors_by_kind: counts.errors.clone(),
                p50_us: us(ns.value_at_quantile(0.5)),
                p90_us: us(ns.value_at_quantile(0.9)),
                p99_us: us(ns.value_at_quantile(0.99)),
                p999_us: us(ns.value_at_quantile(0.999)),
                max_us: us(ns.max()),
            }
        });
        Self {
            operation: kind.name().to_owned(),
            phase: phase.to_owned(),
            operations: series.operations(),
            early_operations: Some(series.early),
            late_operations: series.late,
            outlasted_operations: series.outlasted,
            seconds,
            lead_seconds,
            ops_per_s: rate(series.operations(), seconds),
            run_rates: Vec::new(),
            bytes_per_s: rate(series.bytes, seconds),
            entries_per_s: (kind == Kind::List).then(|| rate(series.entries, seconds)),
            latency_us: Latency::new(latency),
            error_count: series.error_count(),
            errors: series.errors.clone(),
            retries: series.retries,
            per_second: per_second.collect(),
            latency_distribution: distribution(latency),
            latency_ns_hdr_v2: STANDARD.encode(encode(latency)),
        }
    }

    /// The seconds that were measured from their first moment to their last. Older reports have one row more for all that ended after 24 hours.
    pub(crate) fn whole_seconds(&self) -> &[PerSecond] {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "seconds of a run")]
        let whole = (self.lead_seconds + self.seconds) as usize;
        let until = whole.min(SECONDS_MAX).min(self.per_second.len());
        let from = usize::from(self.lead_seconds > LEAD_SECONDS_MAX);
        &self.per_second[from.min(until)..until]
    }

    /// The distribution without gaps: where no operation fell there is a zero.
    pub(crate) fn latency_steps(&self) -> impl Iterator<Item = (f64, u64)> {
        let factor = 10_f64.powf(1.0 / STEPS_PER_DECADE);
        let mut before: Option<f64> = None;
        self.latency_distribution.iter().flat_map(move |step| {
            let mut steps = Vec::new();
            let mut gap = before.replace(step.up_to_us).map_or(step.up_to_us, |before| before * factor);
            // Halfway to the next step: both edges come from the same powers, but not from the same roundings.
            while gap * factor.sqrt() < step.up_to_us {
                steps.push((gap, 0));
                gap *= factor;
            }
            steps.push((step.up_to_us, step.count));
            steps
        })
    }

    /// Whether it is of all operations together: what went wrong is said of each kind.
    pub(crate) fn is_sum(&self) -> bool {
        self.operation == Kind::All.name()
    }

    /// What is said of those that are in no figure.
    pub(crate) fn outlasted(&self) -> Option<String> {
        let count = self.outlasted_operations;
        (count > 0 && !self.is_sum()).then(|| format!("{count} × under way from before the start until after the end"))
    }

    /// What it is called where several stand side by side.
    pub(crate) fn name(&self) -> String {
        if self.phase.is_empty() { self.operation.clone() } else { format!("{}: {}", self.phase, self.operation) }
    }
}

/// What each endpoint did.
fn endpoints(urls: &[String], stats: &Stats) -> Vec<EndpointCounts> {
    let named = urls.iter().enumerate().filter_map(|(number, url)| Some((url, stats.endpoints.get(&number)?)));
    let counts = named.map(|(url, tally)| EndpointCounts {
        endpoint: url.clone(),
        succeeded: tally.succeeded,
        failed: tally.failed,
        first_failure: tally.first_failure.clone(),
    });
    counts.collect()
}

/// Requests of a phase that ended in it: an upload in parts is made of others.
fn requests(stats: &Stats) -> u64 {
    let series = stats.series.iter().filter(|(kind, _)| **kind != Kind::Multipart);
    series.map(|(_, series)| series.ended).sum()
}

impl Report {
    /// Of phases with their names, begun at `started_unix_s`.
    pub(crate) fn new(settings: &Settings, threads: usize, started_unix_s: u64, phases: &[(&str, Outcome)]) -> Self {
        let args = &settings.load;
        let seconds_of = |outcome: &Outcome| outcome.stats.elapsed().as_secs_f64();
        let requests_made: u64 = phases.iter().map(|(_, outcome)| requests(&outcome.stats)).sum();
        #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
        let per_request = |cpu: Duration| cpu.as_secs_f64() * 1e6 / requests_made.max(1) as f64;
        let results = phases.iter().flat_map(|(name, outcome)| {
            let (first, seconds) = (outcome.stats.first(), seconds_of(outcome));
            let figures = move |kind, series: &_| Figures::new(name, kind, series, first, seconds);
            let all = outcome.stats.all().map(|all| figures(Kind::All, &all));
            outcome.stats.series.iter().map(move |(kind, series)| figures(*kind, series)).chain(all)
        });
        let costs = phases.iter().map(|(name, outcome)| PhaseCost {
            phase: (*name).to_owned(),
            seconds: seconds_of(outcome),
            requests: requests(&outcome.stats),
            given_up: outcome.stats.given_up,
            lost_processes: outcome.stats.lost.len() as u64,
            abandoned: outcome.stats.abandoned,
            late_starts: outcome.stats.late_starts,
            latest_start_us: outcome.stats.latest_start.as_secs_f64() * 1e6,
            missed_starts: outcome.stats.missed_starts,
            longest_missed_us: outcome.stats.longest_missed.as_secs_f64() * 1e6,
            endpoints: endpoints(&args.endpoint, &outcome.stats),
            client_cpu_seconds: outcome.client_cpu.as_secs_f64(),
            server_cpu_seconds: outcome.server_cpu.map(|cpu| cpu.as_secs_f64()),
            metered_seconds: Some(outcome.metered.as_secs_f64()),
        });
        let server_cpu: Option<Duration> = phases.iter().map(|(_, outcome)| outcome.server_cpu).sum();
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started: utc(started_unix_s),
            endpoint: args.endpoint.join(","),
            load: settings.operation.name().to_owned(),
            size: settings.sizes().to_string(),
            size_bytes: settings.sizes().mean(),
            concurrency: args.concurrency,
            processes: args.processes,
            threads: u32::try_from(threads).unwrap_or(u32::MAX),
            payload: args.payload.name().to_owned(),
            verified: !args.no_verify,
            asked: Some(Asked::new(settings)),
            seconds: phases.iter().map(|(_, outcome)| seconds_of(outcome)).sum(),
            interrupted: false,
            client_cpu_us_per_op: per_request(phases.iter().map(|(_, outcome)| outcome.client_cpu).sum()),
            server_cpu_us_per_op: server_cpu.map(per_request),
            phases: costs.collect(),
            machine: Machine::here(),
            of_other_runs: Vec::new(),
            results: results.collect(),
        }
    }

    /// As programs get it: with what is to be known of it.
    pub(crate) fn published(&self) -> impl Serialize {
        #[derive(Serialize)]
        struct Published<'a> {
            #[serde(flatten)]
            report: &'a Report,
            /// What was wrong, or makes it of less worth than it may seem, a sentence each.
            #[serde(skip_serializing_if = "Vec::is_empty")]
            warnings: Vec<String>,
        }
        Published { report: self, warnings: self.cautions() }
    }

    /// Reads a report that `--json` wrote.
    ///
    /// # Errors
    /// When the file can not be read, or is none, or has steps of a distribution that can not be.
    pub(crate) fn read(path: &std::path::Path) -> anyhow::Result<Self> {
        let shown = path.display();
        let text = std::fs::read(path).with_context(|| format!("reading {shown}"))?;
        let what = || format!("{shown} is no report of gabion bench --json");
        let report: Self = serde_json::from_slice(&text).with_context(what)?;
        let mut steps = report.results.iter().flat_map(|figures| &figures.latency_distribution);
        // What is missing between two steps is found by factors, which lead nowhere from 0, nor from numbers that are too small to grow by them.
        let is_sound = steps.all(|step| step.up_to_us >= f64::MIN_POSITIVE);
        ensure!(is_sound, "{}: up_to_us of a step of latency_distribution must be above 0", what());
        Ok(report)
    }
}

/// A moment as `2026-01-31 23:59:59 UTC`.
pub(crate) fn utc(unix_seconds: u64) -> String {
    let (year, month, day) = civil_date(unix_seconds / 86_400);
    let second = unix_seconds % 86_400;
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02} UTC", second / 3600, second / 60 % 60, second % 60)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{cli::Operation, clock::Stamp, stats::Done, workload::End};

    /// A report of two puts and a refusal.
    pub(crate) fn sample() -> Report {
        let settings = Settings::for_tests(Operation::Put, &["--size", "4KiB", "-c", "2"]);
        let start = Stamp::now();
        let mut stats = Stats::new(start);
        for ms in [500, 1500] {
            let end = start.plus(Duration::from_millis(ms));
            stats.record(
                Kind::Put,
                end.plus(Duration::ZERO),
                end.plus(Duration::from_millis(500)),
                Ok(Done::bytes(4096)),
            );
        }
        let end = start.plus(Duration::from_millis(1900));
        stats.record(Kind::Put, start, end, Err("503 SlowDown".into()));
        stats.record_retries(Kind::Put, start, 3);
        let client_cpu = Duration::from_micros(60);
        let (server_cpu, metered) = (Some(3 * client_cpu), Duration::from_secs(2));
        let outcome = Outcome { stats: stats.finish(), client_cpu, server_cpu, metered };
        Report::new(&settings, 2, 0, &[("", outcome)])
    }

    /// The figures of a phase.
    fn figures_of(stats: Stats) -> Vec<Figures> {
        let (client_cpu, metered) = (Duration::ZERO, Duration::ZERO);
        let outcome = Outcome { stats: stats.finish(), client_cpu, server_cpu: None, metered };
        Report::new(&Settings::for_tests(Operation::Put, &[]), 1, 0, &[("", outcome)]).results
    }

    #[test]
    fn json_has_what_its_readers_expect() {
        let json = serde_json::to_value(sample()).unwrap();
        let result = &json["results"][0];
        assert_eq!(result["operation"], "put");
        assert_eq!(result["ops_per_s"], 1.0);
        assert_eq!(result["bytes_per_s"], 4096.0);
        assert_eq!((&result["errors"]["503 SlowDown"], &result["error_count"]), (&1.into(), &1.into()));
        assert_eq!(result["retries"], 3);
        for quantile in ["p50", "p90", "p99", "p999", "max"] {
            let us = result["latency_us"][quantile].as_f64().unwrap();
            assert!((us - 500_000.0).abs() < 1_000.0, "{quantile}: {us}");
        }
        let operations: Vec<_> =
            result["per_second"].as_array().unwrap().iter().map(|row| row["ops"].clone()).collect();
        assert_eq!(operations, [0, 1, 1]);
        let cost = [&json["client_cpu_us_per_op"], &json["server_cpu_us_per_op"]].map(|cost| cost.as_f64().unwrap());
        assert_eq!(cost, [20.0, 60.0]);
        assert_eq!((&json["started"], &json["size_bytes"]), (&"1970-01-01 00:00:00 UTC".into(), &4096.into()));
        let again: Report = serde_json::from_value(json.clone()).unwrap();
        assert_eq!(serde_json::to_value(again).unwrap(), json);
        let asked = serde_json::json!({
            "duration_seconds": 10.0, "warmup_seconds": 1.0, "timeout_seconds": 60.0, "seed": 1, "scattered": false
        });
        assert_eq!(json["asked"], asked);
        assert_eq!(serde_json::to_value(sample().published()).unwrap(), json, "there is nothing to be told");
        let mut faulty = sample();
        faulty.phases[0].given_up = 1;
        let faulty = serde_json::to_value(faulty.published()).unwrap();
        let told = ["put: 1 worker gave up after too many failures in a row"];
        assert_eq!((&faulty["load"], &faulty["warnings"]), (&"put".into(), &serde_json::json!(told)));
    }

    #[test]
    fn several_kinds_have_a_sum() {
        let start = Stamp::now();
        let at = |ms| start.plus(Duration::from_millis(ms));
        let mut stats = Stats::within(start, End::At(at(2000)));
        for (kind, ms) in [(Kind::Get, 100), (Kind::Put, 300), (Kind::Stat, 1200)] {
            stats.record(kind, at(0), at(ms), Ok(Done::bytes(10)));
        }
        stats.record(Kind::Put, at(0), at(400), Err("503".into()));
        stats.reached_end();
        let figures = figures_of(stats.clone());
        assert_eq!(figures.iter().map(|row| &*row.operation).collect::<Vec<_>>(), ["put", "get", "stat", "all"]);
        let all = &figures[3];
        assert_eq!((all.operations, all.ops_per_s, all.bytes_per_s, all.error_count), (3, 1.5, 15.0, 1));
        assert_eq!(all.per_second.iter().map(|row| row.ops).collect::<Vec<_>>(), [2, 1]);
        assert!((all.latency_us.max - 1.2e6).abs() < 1e3, "{:?}", all.latency_us);
        // Parts are none by themselves.
        let mut stats = Stats::within(start, End::At(at(2000)));
        stats.record(Kind::Part, at(0), at(100), Ok(Done::bytes(10)));
        stats.record(Kind::Multipart, at(0), at(100), Ok(Done::bytes(10)));
        assert!(figures_of(stats).iter().all(|row| row.operation != "all"));
    }

    #[test]
    fn an_outage_that_ends_a_run_is_seen() {
        let start = Stamp::now();
        let at = |ms| start.plus(Duration::from_millis(ms));
        let mut stats = Stats::within(start, End::At(at(20_000)));
        stats.record(Kind::Put, at(0), at(500), Ok(Done::bytes(1)));
        stats.record(Kind::Put, at(500), at(4500), Err("timeout".into()));
        stats.stop_at(at(6000));
        let figures = figures_of(stats).remove(0);
        assert_eq!((figures.seconds, figures.whole_seconds().len()), (6.0, 6));
        assert_eq!(figures.whole_seconds()[4].errors, 1);
    }

    #[test]
    fn steps_of_a_distribution_that_can_not_be_are_refused() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("report.json");
        let mut report = sample();
        for (up_to_us, is_sound) in
            [(f64::MIN_POSITIVE, true), (f64::MIN_POSITIVE / 2.0, false), (0.0, false), (-1.0, false)]
        {
            report.results[0].latency_distribution =
                [up_to_us, 1000.0].map(|up_to_us| Bucket { up_to_us, count: 1 }).into();
            std::fs::write(&path, serde_json::to_vec(&report).unwrap()).unwrap();
            let read = Report::read(&path);
            assert_eq!(read.is_ok(), is_sound, "{up_to_us}");
            if let Ok(report) = read {
                assert!((6000..6500).contains(&report.results[0].latency_steps().count()));
            }
        }
    }

    #[test]
    fn a_stall_at_the_end_is_seen() {
        let start = Stamp::now();
        let at = |ms| start.plus(Duration::from_millis(ms));
        let mut stats = Stats::within(start, End::At(at(4500)));
        stats.record(Kind::Put, at(0), at(500), Ok(Done::bytes(1)));
        stats.record(Kind::Get, at(0), at(2500), Ok(Done::bytes(1)));
        stats.reached_end();
        for (figures, expected) in figures_of(stats).iter().zip([[1, 0, 0, 0, 0], [0, 0, 1, 0, 0]]) {
            let operations = figures.per_second.iter().map(|second| second.ops);
            assert_eq!(operations.collect::<Vec<_>>(), expected);
            assert_eq!(figures.whole_seconds().len(), 4);
        }
    }

    #[test]
    fn seconds_are_those_from_the_first_operation_of_a_count_on() {
        let start = Stamp::now();
        let at = |ms| start.plus(Duration::from_millis(ms));
        // Until the first begins, the warm-up is under way.
        for (first, rows, whole) in [
            (3250, vec![1, 1, 1, 0, 1], 1..4),
            (3000, vec![1, 1, 1, 0, 1], 0..4),
            (0, vec![0, 0, 0, 1, 1, 1, 0, 1], 0..7),
        ] {
            let mut stats = Stats::within(start, End::After(4));
            stats.record(Kind::Get, start.before(Duration::from_secs(1)), at(first), Ok(Done::bytes(1)));
            for end in [3500, 4500, 5500, 7250] {
                stats.record(Kind::Get, at(first), at(end), Ok(Done::bytes(1)));
            }
            let figures = figures_of(stats).remove(0);
            assert_eq!(figures.per_second.iter().map(|second| second.ops).collect::<Vec<_>>(), rows);
            assert_eq!(
                figures.per_second.iter().map(|second| second.second).collect::<Vec<_>>(),
                (0..rows.len()).collect::<Vec<_>>()
            );
            let seconds = figures.whole_seconds().iter().map(|second| second.second);
            assert_eq!(seconds.collect::<Vec<_>>(), whole.collect::<Vec<_>>(), "{first}");
        }
        // One that begins a moment after the start takes nothing from its second.
        let mut stats = Stats::within(start, End::After(1));
        stats.record(Kind::Get, at(2), at(2500), Ok(Done::bytes(1)));
        assert_eq!(figures_of(stats)[0].whole_seconds().len(), 2);
    }

    #[test]
    fn all_that_ended_after_a_day_is_no_second() {
        let mut figures = sample().results.remove(0);
        let row = figures.per_second[0].clone();
        figures.per_second.resize(SECONDS_MAX + 1, row);
        figures.seconds = 2.0 * SECONDS_MAX as f64;
        assert_eq!(figures.whole_seconds().len(), SECONDS_MAX);
    }

    #[test]
    fn the_distribution_counts_every_operation_once() {
        let mut ns = Histogram::new(3).unwrap();
        (1..=1000_u64).for_each(|value| ns.record(value * 1000).unwrap());
        let steps = distribution(&ns);
        assert_eq!(steps.iter().map(|step| step.count).sum::<u64>(), 1000);
        assert!(steps.windows(2).all(|pair| pair[0].up_to_us < pair[1].up_to_us));
        let below: u64 = steps.iter().filter(|step| step.up_to_us < 101.0).map(|step| step.count).sum();
        assert!((98..=100).contains(&below), "{below}");
    }
}
