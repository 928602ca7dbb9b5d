//! What was measured: latencies in HDR histograms, bytes, errors by kind, and counts per second.

use std::{collections::BTreeMap, time::Duration};

use hdrhistogram::Histogram;

use crate::{cli::Operation, clock::Stamp};

/// Operations and bytes that ended within one second of the measurement.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(crate) struct Second {
    pub(crate) operations: u64,
    pub(crate) bytes: u64,
}

/// The figures of one kind of operation.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    /// Latency in nanoseconds, three significant digits.
    pub(crate) latency_ns: Histogram<u64>,
    pub(crate) bytes: u64,
    pub(crate) errors: BTreeMap<String, u64>,
    pub(crate) seconds: Vec<Second>,
}

impl Series {
    fn new() -> Self {
        let latency_ns = Histogram::new(3).expect("three digits are within the bounds of a histogram");
        Self { latency_ns, bytes: 0, errors: BTreeMap::new(), seconds: Vec::new() }
    }

    fn merge(&mut self, other: &Series) {
        self.latency_ns.add(&other.latency_ns).expect("the histogram resizes");
        self.bytes += other.bytes;
        for (kind, count) in &other.errors {
            *self.errors.entry(kind.clone()).or_default() += count;
        }
        if self.seconds.len() < other.seconds.len() {
            self.seconds.resize(other.seconds.len(), Second::default());
        }
        for (mine, theirs) in self.seconds.iter_mut().zip(&other.seconds) {
            mine.operations += theirs.operations;
            mine.bytes += theirs.bytes;
        }
    }

    /// Errors of every kind.
    pub(crate) fn error_count(&self) -> u64 {
        self.errors.values().sum()
    }
}

/// The figures of one worker, or of all.
#[derive(Clone, Debug)]
pub(crate) struct Stats {
    start: Stamp,
    last: Stamp,
    pub(crate) series: BTreeMap<Operation, Series>,
}

/// Longest measurement of which every second is kept; later seconds count to the last.
const SECONDS_MAX: usize = 24 * 3600;

impl Stats {
    /// Measures from `start` on.
    pub(crate) fn new(start: Stamp) -> Self {
        Self { start, last: start, series: BTreeMap::new() }
    }

    /// Notes one operation that ran from `begin` to `end`; those that began before the start are warm-up.
    pub(crate) fn record(&mut self, operation: Operation, begin: Stamp, end: Stamp, outcome: Result<u64, String>) {
        if begin < self.start {
            return;
        }
        self.last = self.last.max(end);
        let series = self.series.entry(operation).or_insert_with(Series::new);
        match outcome {
            Ok(bytes) => {
                let ns = u64::try_from(end.since(begin).as_nanos()).unwrap_or(u64::MAX);
                series.latency_ns.record(ns).expect("the histogram resizes");
                series.bytes += bytes;
                let second = usize::try_from(end.since(self.start).as_secs()).unwrap_or(SECONDS_MAX).min(SECONDS_MAX);
                if series.seconds.len() <= second {
                    series.seconds.resize(second + 1, Second::default());
                }
                series.seconds[second].operations += 1;
                series.seconds[second].bytes += bytes;
            }
            Err(kind) => *series.errors.entry(kind).or_default() += 1,
        }
    }

    /// Adds the figures of another worker that measured from the same start.
    pub(crate) fn merge(&mut self, other: &Stats) {
        self.last = self.last.max(other.last);
        for (operation, series) in &other.series {
            self.series.entry(*operation).or_insert_with(Series::new).merge(series);
        }
    }

    /// From the start to the end of the last operation.
    pub(crate) fn elapsed(&self) -> Duration {
        self.last.since(self.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warm_up_is_left_out_and_workers_add_up() {
        let start = Stamp::now();
        let at = |ms| start.plus(Duration::from_millis(ms));
        let mut one = Stats::new(at(1000));
        one.record(Operation::Put, at(500), at(1500), Ok(10));
        one.record(Operation::Put, at(1000), at(1200), Ok(10));
        one.record(Operation::Put, at(1200), at(3400), Ok(10));
        let mut two = Stats::new(at(1000));
        two.record(Operation::Put, at(1100), at(1300), Err("503 SlowDown".into()));
        two.record(Operation::Get, at(1100), at(1300), Ok(7));
        one.merge(&two);
        assert_eq!(one.elapsed(), Duration::from_millis(2400));
        let put = &one.series[&Operation::Put];
        assert_eq!((put.latency_ns.len(), put.bytes, put.error_count()), (2, 20, 1));
        let counts: Vec<_> = put.seconds.iter().map(|second| second.operations).collect();
        assert_eq!(counts, [1, 0, 1]);
        assert_eq!(one.series[&Operation::Get].bytes, 7);
    }
}
