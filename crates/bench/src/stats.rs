//! What was measured: latencies in HDR histograms, bytes, errors by kind, and the same for each second.
//!
//! Workers of one thread share one [`Stats`]; those of threads and processes are merged afterwards, exactly: histograms add up bucket by bucket.

use std::{collections::BTreeMap, time::Duration};

use hdrhistogram::{
    Histogram,
    serialization::{Deserializer, Serializer, V2Serializer},
};
use serde::{Deserialize, Serialize};

use crate::{clock::Stamp, failure::Failure, workload::End};

/// What is counted and timed by itself.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    Put,
    Get,
    Stat,
    List,
    Delete,
    /// A whole upload in parts.
    Multipart,
    CreateUpload,
    Part,
    CompleteUpload,
    /// All operations of a load of several kinds: what each of them comes to is as much the dice's doing.
    All,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Put => "put",
            Kind::Get => "get",
            Kind::Stat => "stat",
            Kind::List => "list",
            Kind::Delete => "delete",
            Kind::Multipart => "multipart",
            Kind::CreateUpload => "create-upload",
            Kind::Part => "part",
            Kind::CompleteUpload => "complete-upload",
            Kind::All => "all",
        }
    }

    /// Whether it is one request of an operation that is counted as a whole.
    fn is_part_of_another(self) -> bool {
        matches!(self, Kind::CreateUpload | Kind::Part | Kind::CompleteUpload)
    }
}

/// What one operation moved.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(crate) struct Done {
    pub(crate) bytes: u64,
    /// Keys and common prefixes of a page.
    pub(crate) entries: u64,
}

impl Done {
    pub(crate) fn bytes(bytes: u64) -> Self {
        Self { bytes, entries: 0 }
    }
}

/// Operations that ended within one second of the measurement.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
pub(crate) struct Second {
    pub(crate) operations: u64,
    pub(crate) bytes: u64,
    pub(crate) errors: BTreeMap<String, u64>,
    /// Latencies in nanoseconds, two digits, serialised as V2: a histogram of its own would take some 14 KiB.
    latency_v2: Vec<u8>,
}

impl Second {
    /// Latencies in nanoseconds.
    pub(crate) fn latency_ns(&self) -> Histogram<u32> {
        decode(&self.latency_v2).unwrap_or_else(coarse)
    }

    fn merge(&mut self, other: &Second) {
        self.operations += other.operations;
        self.bytes += other.bytes;
        add_errors(&mut self.errors, &other.errors);
        if self.latency_v2.is_empty() {
            self.latency_v2.clone_from(&other.latency_v2);
        } else if !other.latency_v2.is_empty() {
            let mut sum = self.latency_ns();
            sum.add(other.latency_ns()).expect("the histogram resizes");
            self.latency_v2 = encode(&sum);
        }
    }
}

/// Adds errors up, kind by kind.
pub(crate) fn add_errors(sum: &mut BTreeMap<String, u64>, errors: &BTreeMap<String, u64>) {
    for (kind, count) in errors {
        *sum.entry(kind.clone()).or_default() += count;
    }
}

fn fine() -> Histogram<u64> {
    Histogram::new(3).expect("three digits are within the bounds of a histogram")
}

fn coarse() -> Histogram<u32> {
    Histogram::new(2).expect("two digits are within the bounds of a histogram")
}

/// A histogram in the V2 form of HDR.
pub(crate) fn encode<C: hdrhistogram::Counter>(histogram: &Histogram<C>) -> Vec<u8> {
    let mut out = Vec::new();
    V2Serializer::new().serialize(histogram, &mut out).expect("a histogram that was recorded here can be serialised");
    out
}

fn decode<C: hdrhistogram::Counter>(bytes: &[u8]) -> Option<Histogram<C>> {
    let mut histogram = Deserializer::new().deserialize(&mut &*bytes).ok()?;
    histogram.auto(true);
    Some(histogram)
}

/// The figures of one kind of operation.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    /// Latency in nanoseconds, three significant digits.
    pub(crate) latency_ns: Histogram<u64>,
    /// Operations that ended within the time of the measurement, whenever they began, well or not: what CPU times are divided by.
    pub(crate) ended: u64,
    /// Operations that began before the measurement and succeeded within its time: in the rates alone.
    pub(crate) early: u64,
    /// Operations that succeeded when the measurement was over; bytes and entries are without theirs.
    pub(crate) late: u64,
    /// Operations that began before the measurement and succeeded when it was over: in no figure.
    pub(crate) outlasted: u64,
    pub(crate) bytes: u64,
    pub(crate) entries: u64,
    pub(crate) errors: BTreeMap<String, u64>,
    /// Requests that were sent once more because the server closed the connection that they came on; in the latencies like all others.
    pub(crate) retries: u64,
    pub(crate) seconds: Vec<Second>,
    /// Latencies of the last of the seconds.
    current_ns: Histogram<u32>,
}

impl Series {
    fn new() -> Self {
        Self {
            latency_ns: fine(),
            ended: 0,
            early: 0,
            late: 0,
            outlasted: 0,
            bytes: 0,
            entries: 0,
            errors: BTreeMap::new(),
            retries: 0,
            seconds: Vec::new(),
            current_ns: coarse(),
        }
    }

    /// Goes on to the second `elapsed` after the start, if it is kept; ends of operations ascend within a thread.
    fn enter(&mut self, elapsed: Duration) -> Option<&mut Second> {
        let second = usize::try_from(elapsed.as_secs()).ok().filter(|second| *second < SECONDS_MAX)?;
        if self.seconds.len() <= second {
            self.seal();
            self.seconds.resize(second + 1, Second::default());
        }
        self.seconds.last_mut()
    }

    /// Puts the latencies of the last second where they belong.
    fn seal(&mut self) {
        if let (Some(last), false) = (self.seconds.last_mut(), self.current_ns.is_empty()) {
            last.latency_v2 = encode(&self.current_ns);
            self.current_ns.reset();
        }
    }

    fn merge(&mut self, other: &Series) {
        self.latency_ns.add(&other.latency_ns).expect("the histogram resizes");
        self.ended += other.ended;
        self.early += other.early;
        self.late += other.late;
        self.outlasted += other.outlasted;
        self.bytes += other.bytes;
        self.entries += other.entries;
        self.retries += other.retries;
        add_errors(&mut self.errors, &other.errors);
        if self.seconds.len() < other.seconds.len() {
            self.seconds.resize(other.seconds.len(), Second::default());
        }
        for (mine, theirs) in self.seconds.iter_mut().zip(&other.seconds) {
            mine.merge(theirs);
        }
    }

    /// Operations that succeeded within the measurement, whenever they began.
    pub(crate) fn operations(&self) -> u64 {
        self.early + self.latency_ns.len() - self.late
    }

    /// Takes one that moved `done` and succeeded `elapsed` after the start.
    fn count(&mut self, done: Done, elapsed: Duration) {
        if let Some(second) = self.enter(elapsed) {
            second.operations += 1;
            second.bytes += done.bytes;
        }
        self.bytes += done.bytes;
        self.entries += done.entries;
    }

    /// Errors of every kind.
    pub(crate) fn error_count(&self) -> u64 {
        self.errors.values().sum()
    }
}

/// The figures of one thread, or of all, in one phase.
#[derive(Clone, Debug)]
pub(crate) struct Stats {
    start: Stamp,
    /// From the start to the begin of the first operation that counts, where no moment ends the measurement: until then the warm-up was under way.
    first: Option<Duration>,
    /// From the start to the end of the last operation that succeeded, in time.
    last: Duration,
    /// From the start to when the run was stopped.
    stopped: Duration,
    /// From the start to when the last worker gave up.
    gave_up: Duration,
    /// Workers, if it is known how many.
    workers: u64,
    /// How long the measurement was to be; what ends later is in the latencies and errors, but in no rate.
    window: Option<Duration>,
    /// It went on until the window was over.
    whole: bool,
    /// Workers that met too many failures in a row, and did not do what was left.
    pub(crate) given_up: u64,
    /// Operations that nobody was free for when they were due.
    pub(crate) late_starts: u64,
    /// How late the latest of them began.
    pub(crate) latest_start: Duration,
    /// Operations that were due and had not begun when the time was over.
    pub(crate) missed_starts: u64,
    /// For how long the first of them had been due by then.
    pub(crate) longest_missed: Duration,
    /// What became of the operations that each endpoint was asked for, by its number.
    pub(crate) endpoints: BTreeMap<usize, Tally>,
    /// Operations that were under way when the run was stopped, and were not waited for.
    pub(crate) abandoned: u64,
    /// Objects that there may be at most of what was written, whenever that was: of a request that failed, too.
    pub(crate) written_max: u64,
    /// Deletions that succeeded, whenever that was.
    pub(crate) deleted: u64,
    /// Client processes that were lost with what they measured, and why, a line each. The figures are of the others.
    pub(crate) lost: Vec<String>,
    /// An operation was not answered, in time or at all, whenever it began: what it wrote may yet become an object.
    pub(crate) pending: bool,
    pub(crate) series: BTreeMap<Kind, Series>,
}

/// What became of the operations that one endpoint was asked for.
#[derive(Clone, Default, Serialize, Deserialize, Debug, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) succeeded: u64,
    pub(crate) failed: u64,
    /// What the first that failed said.
    pub(crate) first_failure: Option<String>,
}

impl Tally {
    fn merge(&mut self, other: &Tally) {
        self.succeeded += other.succeeded;
        self.failed += other.failed;
        if self.first_failure.is_none() {
            self.first_failure.clone_from(&other.first_failure);
        }
    }
}

/// Longest measurement of which every second is kept; what ends later is in the sums alone.
pub(crate) const SECONDS_MAX: usize = 24 * 3600;

impl Stats {
    /// Measures from `start` on.
    pub(crate) fn new(start: Stamp) -> Self {
        Self {
            start,
            first: None,
            last: Duration::ZERO,
            stopped: Duration::ZERO,
            gave_up: Duration::ZERO,
            workers: 0,
            window: None,
            whole: false,
            given_up: 0,
            late_starts: 0,
            latest_start: Duration::ZERO,
            missed_starts: 0,
            longest_missed: Duration::ZERO,
            endpoints: BTreeMap::new(),
            abandoned: 0,
            written_max: 0,
            deleted: 0,
            lost: Vec::new(),
            pending: false,
            series: BTreeMap::new(),
        }
    }

    /// Measures from `start` to `end`, if that is a moment.
    pub(crate) fn within(start: Stamp, end: End) -> Self {
        let window = if let End::At(end) = end { Some(end.since(start)) } else { None };
        Self { window, ..Self::new(start) }
    }

    /// The time was over before the work was.
    pub(crate) fn reached_end(&mut self) {
        self.whole = true;
    }

    /// A worker does not do what is left.
    pub(crate) fn give_up(&mut self, now: Stamp) {
        self.given_up += 1;
        self.gave_up = self.gave_up.max(now.since(self.start));
    }

    /// So many workers did what was to be done, or gave up.
    pub(crate) fn of_workers(&mut self, workers: u64) {
        self.workers += workers;
    }

    /// What was left at that moment is not done.
    pub(crate) fn stop_at(&mut self, now: Stamp) {
        self.stopped = self.stopped.max(now.since(self.start));
    }

    /// An operation began so late.
    pub(crate) fn began_late(&mut self, late: Duration) {
        self.late_starts += 1;
        self.latest_start = self.latest_start.max(late);
    }

    /// So many operations were due and had not begun when the time was over, the first of them since so long.
    pub(crate) fn missed(&mut self, count: u64, longest: Duration) {
        self.missed_starts += count;
        self.longest_missed = self.longest_missed.max(longest);
    }

    /// The run was stopped amid an operation, which is in no figure.
    pub(crate) fn abandon(&mut self, kind: Kind) {
        self.changed(kind, false);
        self.abandoned += 1;
        self.pending = true;
    }

    /// Client processes were lost: what they wrote may be anything.
    pub(crate) fn lose(&mut self, lost: Vec<String>) {
        self.lost.extend(lost);
        self.pending = true;
    }

    /// Notes what an operation has made of the objects that there are.
    fn changed(&mut self, kind: Kind, succeeded: bool) {
        self.written_max += u64::from(matches!(kind, Kind::Put | Kind::Multipart));
        self.deleted += u64::from(kind == Kind::Delete && succeeded);
    }

    /// Notes what an endpoint did of what it was asked for, whenever that was.
    pub(crate) fn answered(&mut self, endpoint: usize, failure: Option<&Failure>) {
        self.pending |= failure.is_some_and(Failure::leaves_pending);
        let tally = self.endpoints.entry(endpoint).or_default();
        match failure {
            None => tally.succeeded += 1,
            Some(failure) => {
                tally.failed += 1;
                tally.first_failure.get_or_insert_with(|| failure.to_string());
            }
        }
    }

    /// Notes one operation that ran from `begin` to `end`. Latencies and errors are of what began in the measurement, however long it took. Rates take what ended
    /// within its time: without what was under way when it began, long operations would seem to be fewer than they are, since those that are under way when it ends
    /// are left out. Where the work is a count of operations, those before are none of it. What was under way from before its start until after its end is its, too,
    /// when it fails: an endpoint that hangs makes no other errors. What begins when it is over, as the last requests of an upload that began in it may, is none of it.
    /// Wrong bytes are an error whenever they come.
    pub(crate) fn record(&mut self, kind: Kind, begin: Stamp, end: Stamp, outcome: Result<Done, String>) {
        let elapsed = end.since(self.start);
        let in_time = end >= self.start && !self.is_over(end);
        let is_early = begin < self.start;
        let outlasts = is_early && self.is_over(end);
        let is_wrong = outcome.as_ref().is_err_and(|kind| *kind == Failure::Mismatch.kind());
        self.changed(kind, outcome.is_ok());
        if (end < self.start || self.is_over(begin)) && !is_wrong {
            return;
        }
        if self.window.is_none() && !is_early {
            self.begins(begin.since(self.start));
        }
        let series = self.series.entry(kind).or_insert_with(Series::new);
        series.ended += u64::from(in_time);
        match outcome {
            Ok(_) if is_early && self.window.is_none() => {}
            Ok(_) if outlasts => series.outlasted += 1,
            Ok(done) if is_early => {
                series.early += 1;
                self.last = self.last.max(elapsed);
                series.count(done, elapsed);
            }
            Ok(done) => {
                let ns = u64::try_from(end.since(begin).as_nanos()).unwrap_or(u64::MAX);
                series.latency_ns.record(ns).expect("the histogram resizes");
                if in_time {
                    self.last = self.last.max(elapsed);
                    series.count(done, elapsed);
                    if series.enter(elapsed).is_some() {
                        series.current_ns.record(ns).expect("the histogram resizes");
                    }
                } else {
                    series.late += 1;
                }
            }
            Err(_) if is_early && !outlasts && !is_wrong => {}
            Err(kind) => {
                if in_time && let Some(second) = series.enter(elapsed) {
                    *second.errors.entry(kind.clone()).or_default() += 1;
                }
                *series.errors.entry(kind).or_default() += 1;
            }
        }
    }

    /// Whether the measurement is over at this moment.
    fn is_over(&self, at: Stamp) -> bool {
        self.window.is_some_and(|window| at.since(self.start) >= window)
    }

    fn begins(&mut self, after: Duration) {
        self.first = Some(self.first.map_or(after, |first| first.min(after)));
    }

    /// Notes requests of an operation of this kind, begun at `begin`, that were sent once more.
    pub(crate) fn record_retries(&mut self, kind: Kind, begin: Stamp, count: u64) {
        if count > 0 && begin >= self.start && !self.is_over(begin) {
            self.series.entry(kind).or_insert_with(Series::new).retries += count;
        }
    }

    /// No more is recorded: what was is complete.
    pub(crate) fn finish(mut self) -> Self {
        self.series.values_mut().for_each(Series::seal);
        self
    }

    /// Adds the figures of others that measured from the same start. All are finished.
    pub(crate) fn merge(&mut self, other: &Stats) {
        if let Some(first) = other.first {
            self.begins(first);
        }
        self.last = self.last.max(other.last);
        self.stopped = self.stopped.max(other.stopped);
        self.gave_up = self.gave_up.max(other.gave_up);
        self.workers += other.workers;
        self.window = self.window.max(other.window);
        self.whole |= other.whole;
        self.given_up += other.given_up;
        self.late_starts += other.late_starts;
        self.latest_start = self.latest_start.max(other.latest_start);
        self.missed(other.missed_starts, other.longest_missed);
        for (endpoint, tally) in &other.endpoints {
            self.endpoints.entry(*endpoint).or_default().merge(tally);
        }
        self.abandoned += other.abandoned;
        self.written_max += other.written_max;
        self.deleted += other.deleted;
        self.lost.extend(other.lost.iter().cloned());
        self.pending |= other.pending;
        for (kind, series) in &other.series {
            self.series.entry(*kind).or_insert_with(Series::new).merge(series);
        }
    }

    /// How long after the start the measurement began: of a count of operations with the first of them.
    pub(crate) fn first(&self) -> Duration {
        self.first.unwrap_or_default()
    }

    /// What rates are divided by: the whole window, or where the work was over earlier, the time until the last success, or until all workers had given up or were stopped; of a count of
    /// operations, from the begin of the first of them. A request that hangs adds nothing, nor do workers that give up, where others did what there was to do.
    pub(crate) fn elapsed(&self) -> Duration {
        let gave_up = if self.given_up == self.workers { self.gave_up } else { Duration::ZERO };
        let cut_off = self.stopped.max(gave_up).min(self.window.unwrap_or(Duration::MAX));
        let worked = self.last.max(cut_off).saturating_sub(self.first());
        self.window.filter(|_| self.whole).unwrap_or(worked)
    }

    /// What was asked for: an upload in parts is one, of which no part is any good without the others.
    fn whole_operations(&self) -> impl Iterator<Item = &Series> {
        self.series.iter().filter(|(kind, _)| !kind.is_part_of_another()).map(|(_, series)| series)
    }

    /// The figures of all operations together, where there are several kinds.
    pub(crate) fn all(&self) -> Option<Series> {
        let mut sum = Series::new();
        self.whole_operations().for_each(|series| sum.merge(series));
        (self.whole_operations().nth(1).is_some()).then_some(sum)
    }

    /// Operations that succeeded, whenever they began, and those that failed.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let succeeded = self.whole_operations().map(|series| series.early + series.latency_ns.len()).sum();
        (succeeded, self.whole_operations().map(Series::error_count).sum())
    }

    /// Whether operations ended, and all of them when the measurement was over.
    pub(crate) fn is_too_short(&self) -> bool {
        let after_it = |series: &Series| series.outlasted + series.late > 0;
        self.whole_operations().any(after_it) && self.whole_operations().all(|series| series.ended == 0)
    }

    /// Whether all whose failure would have counted failed, but for what ended after the measurement.
    pub(crate) fn is_in_vain(&self) -> bool {
        self.counts().1 > 0 && self.whole_operations().all(|series| series.latency_ns.len() == series.late)
    }

    /// Bytes moved, counted once where an operation is made of others.
    pub(crate) fn bytes(&self) -> u64 {
        self.series.iter().filter(|(kind, _)| **kind != Kind::Part).map(|(_, series)| series.bytes).sum()
    }
}

/// [`Stats`] on their way from one process to another.
#[derive(Serialize, Deserialize, Debug)]
pub(crate) struct WireStats {
    first_ns: Option<u64>,
    last_ns: u64,
    stopped_ns: u64,
    gave_up_ns: u64,
    workers: u64,
    window_ns: Option<u64>,
    whole: bool,
    given_up: u64,
    late_starts: u64,
    latest_start_ns: u64,
    missed_starts: u64,
    longest_missed_ns: u64,
    endpoints: BTreeMap<usize, Tally>,
    abandoned: u64,
    written_max: u64,
    deleted: u64,
    pending: bool,
    series: BTreeMap<Kind, WireSeries>,
}

#[derive(Serialize, Deserialize, Debug)]
struct WireSeries {
    latency_v2: String,
    ended: u64,
    early: u64,
    late: u64,
    outlasted: u64,
    bytes: u64,
    entries: u64,
    errors: BTreeMap<String, u64>,
    retries: u64,
    seconds: Vec<(u64, u64, BTreeMap<String, u64>, String)>,
}

fn text_of(bytes: &[u8]) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

fn bytes_of(text: &str) -> anyhow::Result<Vec<u8>> {
    use base64::Engine;
    Ok(base64::engine::general_purpose::STANDARD.decode(text)?)
}

impl WireStats {
    /// Of finished figures.
    pub(crate) fn new(stats: &Stats) -> Self {
        let series = stats.series.iter().map(|(kind, series)| {
            let seconds = series.seconds.iter();
            let wire = WireSeries {
                latency_v2: text_of(&encode(&series.latency_ns)),
                ended: series.ended,
                early: series.early,
                late: series.late,
                outlasted: series.outlasted,
                bytes: series.bytes,
                entries: series.entries,
                errors: series.errors.clone(),
                retries: series.retries,
                seconds: seconds
                    .map(|second| (second.operations, second.bytes, second.errors.clone(), text_of(&second.latency_v2)))
                    .collect(),
            };
            (*kind, wire)
        });
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Self {
            first_ns: stats.first.map(ns),
            last_ns: ns(stats.last),
            stopped_ns: ns(stats.stopped),
            gave_up_ns: ns(stats.gave_up),
            workers: stats.workers,
            window_ns: stats.window.map(ns),
            whole: stats.whole,
            given_up: stats.given_up,
            late_starts: stats.late_starts,
            latest_start_ns: ns(stats.latest_start),
            missed_starts: stats.missed_starts,
            longest_missed_ns: ns(stats.longest_missed),
            endpoints: stats.endpoints.clone(),
            abandoned: stats.abandoned,
            written_max: stats.written_max,
            deleted: stats.deleted,
            pending: stats.pending,
            series: series.collect(),
        }
    }

    /// The figures again.
    ///
    /// # Errors
    /// When a histogram is not one.
    pub(crate) fn into_stats(self, start: Stamp) -> anyhow::Result<Stats> {
        let mut stats = Stats {
            first: self.first_ns.map(Duration::from_nanos),
            last: Duration::from_nanos(self.last_ns),
            stopped: Duration::from_nanos(self.stopped_ns),
            gave_up: Duration::from_nanos(self.gave_up_ns),
            workers: self.workers,
            window: self.window_ns.map(Duration::from_nanos),
            whole: self.whole,
            given_up: self.given_up,
            late_starts: self.late_starts,
            latest_start: Duration::from_nanos(self.latest_start_ns),
            missed_starts: self.missed_starts,
            longest_missed: Duration::from_nanos(self.longest_missed_ns),
            endpoints: self.endpoints,
            abandoned: self.abandoned,
            written_max: self.written_max,
            deleted: self.deleted,
            pending: self.pending,
            ..Stats::new(start)
        };
        for (kind, wire) in self.series {
            let latency_ns = decode(&bytes_of(&wire.latency_v2)?);
            let mut series = Series {
                latency_ns: latency_ns.ok_or_else(|| anyhow::anyhow!("a histogram can not be read"))?,
                ended: wire.ended,
                early: wire.early,
                late: wire.late,
                outlasted: wire.outlasted,
                bytes: wire.bytes,
                entries: wire.entries,
                errors: wire.errors,
                retries: wire.retries,
                ..Series::new()
            };
            for (operations, bytes, errors, latency) in wire.seconds {
                series.seconds.push(Second { operations, bytes, errors, latency_v2: bytes_of(&latency)? });
            }
            stats.series.insert(kind, series);
        }
        Ok(stats)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Fault;

    const BYTES: Result<Done, String> = Ok(Done { bytes: 10, entries: 0 });

    fn sample() -> (Stats, Stats) {
        let start = Stamp::now();
        let at = |ms| start.plus(Duration::from_millis(ms));
        let mut one = Stats::new(at(1000));
        one.record(Kind::Put, at(500), at(1500), BYTES);
        one.record(Kind::Put, at(1000), at(1200), BYTES);
        one.record(Kind::Put, at(1200), at(3400), BYTES);
        let mut two = Stats::new(at(1000));
        two.record(Kind::Put, at(1100), at(1300), Err("503 SlowDown".into()));
        two.record(Kind::Put, at(1100), at(1700), BYTES);
        two.record(Kind::Get, at(1100), at(1300), Ok(Done::bytes(7)));
        one.record_retries(Kind::Put, at(1000), 1);
        two.record_retries(Kind::Put, at(1100), 2);
        two.record_retries(Kind::Put, at(900), 4);
        one.give_up(at(3000));
        two.give_up(at(2900));
        one.began_late(Duration::from_millis(30));
        two.began_late(Duration::from_millis(20));
        one.missed(4, Duration::from_millis(50));
        two.missed(1, Duration::from_millis(70));
        one.answered(0, None);
        two.answered(0, Some(&Failure::Timeout));
        two.answered(1, Some(&Failure::Mismatch));
        two.answered(1, Some(&Failure::Timeout));
        (one.finish(), two.finish())
    }

    fn check(sum: &Stats) {
        assert_eq!(sum.elapsed(), Duration::from_millis(2400));
        assert_eq!((sum.counts(), sum.bytes(), sum.given_up), ((4, 1), 37, 2));
        assert_eq!((sum.late_starts, sum.latest_start), (2, Duration::from_millis(30)));
        assert_eq!((sum.missed_starts, sum.longest_missed), (5, Duration::from_millis(70)));
        let tallies = [(1, 1, "timeout"), (0, 2, "content mismatch")].map(|(succeeded, failed, first)| Tally {
            succeeded,
            failed,
            first_failure: Some(first.to_owned()),
        });
        assert!(sum.endpoints.values().eq(&tallies), "{:?}", sum.endpoints);
        let put = &sum.series[&Kind::Put];
        assert_eq!((put.latency_ns.len(), put.bytes, put.error_count(), put.retries), (3, 30, 1, 3));
        let counts: Vec<_> =
            put.seconds.iter().map(|second| (second.operations, second.errors.values().sum::<u64>())).collect();
        assert_eq!(counts, [(2, 1), (0, 0), (1, 0)]);
        let first = put.seconds[0].latency_ns();
        assert_eq!(first.len(), 2);
        assert!(first.equivalent(first.min(), 200_000_000) && first.equivalent(first.max(), 600_000_000));
        assert_eq!(sum.series[&Kind::Get].bytes, 7);
    }

    #[test]
    fn a_request_that_hangs_does_not_stretch_the_measurement() {
        let start = Stamp::now();
        let at = |ms| start.plus(Duration::from_millis(ms));
        for whole in [true, false] {
            let mut stats = Stats::within(start, End::At(at(10_000)));
            stats.record(Kind::Put, at(0), at(4000), BYTES);
            stats.record(Kind::Put, at(9000), at(10_000), BYTES);
            stats.record(Kind::Put, at(9000), at(70_000), Err("timeout".into()));
            if whole {
                stats.reached_end();
            }
            let mut sum = Stats::new(start);
            sum.merge(&WireStats::new(&stats.finish()).into_stats(start).unwrap());
            assert_eq!(sum.elapsed(), Duration::from_secs(if whole { 10 } else { 4 }));
            let put = &sum.series[&Kind::Put];
            assert_eq!((put.operations(), put.bytes, put.seconds.len()), (1, 10, 5));
            assert_eq!((put.latency_ns.len(), put.error_count()), (2, 1));
        }
        let mut stats = Stats::within(start, End::Done);
        stats.record(Kind::Put, at(0), at(4000), BYTES);
        stats.record(Kind::Put, at(0), at(60_000), Err("timeout".into()));
        assert_eq!(stats.elapsed(), Duration::from_secs(4));
    }

    #[test]
    fn time_in_which_an_endpoint_was_gone_is_measured() {
        let start = Stamp::now();
        let at = |ms| start.plus(Duration::from_millis(ms));
        for (end, whole, cut_off, expected) in [
            (End::At(at(10_000)), false, 9000, 9000),
            (End::At(at(10_000)), false, 12_000, 10_000),
            (End::At(at(10_000)), true, 12_000, 10_000),
            (End::After(9), false, 9000, 8000),
            (End::Done, false, 9000, 8000),
        ] {
            let mut stats = Stats::within(start, end);
            stats.record(Kind::Put, at(1000), at(2000), BYTES);
            stats.stop_at(at(cut_off));
            if whole {
                stats.reached_end();
            }
            let mut sum = Stats::new(start);
            sum.merge(&WireStats::new(&stats.finish()).into_stats(start).unwrap());
            assert_eq!(sum.elapsed(), Duration::from_millis(expected), "{end:?}");
        }
    }

    #[test]
    fn workers_that_give_up_hold_up_no_others() {
        let start = Stamp::now();
        let at = |ms| start.plus(Duration::from_millis(ms));
        for (workers, expected) in [(3, 2000), (2, 9000)] {
            let mut sum = Stats::new(start);
            for worker in 0..2 {
                let mut stats = Stats::within(start, End::Done);
                stats.record(Kind::Put, at(0), at(2000), BYTES);
                stats.give_up(at(9000 - worker));
                sum.merge(&WireStats::new(&stats.finish()).into_stats(start).unwrap());
            }
            sum.of_workers(workers);
            assert_eq!(sum.elapsed(), Duration::from_millis(expected), "2 of {workers} gave up");
        }
    }

    #[test]
    fn a_count_of_operations_takes_from_the_first_of_them_on() {
        let start = Stamp::now();
        let at = |ms| start.plus(Duration::from_millis(ms));
        let mut sum = Stats::new(at(1000));
        // Two workers, still with their last operation of the warm-up when the measurement begins.
        for (begin, free) in [(600, 1600), (700, 1700)] {
            let mut stats = Stats::within(at(1000), End::After(2));
            stats.record(Kind::Get, at(begin), at(free), BYTES);
            stats.record(Kind::Get, at(free), at(free + 1000), BYTES);
            sum.merge(&WireStats::new(&stats.finish()).into_stats(at(1000)).unwrap());
        }
        assert_eq!((sum.counts(), sum.elapsed()), ((2, 0), Duration::from_millis(1100)));
    }

    #[test]
    fn what_ends_after_the_last_second_that_is_kept_is_in_no_other() {
        let start = Stamp::now();
        let at = |seconds| start.plus(Duration::from_secs(seconds));
        let last = SECONDS_MAX as u64;
        let mut stats = Stats::within(start, End::At(at(2 * last)));
        for end in [last - 1, last, last + 1] {
            stats.record(Kind::Put, at(last - 2), at(end), BYTES);
            stats.record(Kind::Put, at(last - 2), at(end), Err("timeout".into()));
        }
        let put = &stats.finish().series[&Kind::Put];
        assert_eq!((put.operations(), put.bytes, put.error_count(), put.latency_ns.len()), (3, 30, 3, 3));
        let second = put.seconds.last().unwrap();
        assert_eq!((put.seconds.len(), second.operations, second.errors.len()), (SECONDS_MAX, 1, 1));
        assert_eq!(second.latency_ns().len(), 1);
    }

    #[test]
    fn rates_take_as_many_as_end_in_any_other_time() {
        // Four clients that are never idle, with an operation of 700 ms each: whatever is looked at, 5.7 end in a second.
        let zero = Stamp::now();
        let at = |ms| zero.plus(Duration::from_millis(ms));
        let mut stats = Stats::within(at(1000), End::At(at(8000)));
        for client in 0..4 {
            for begin in (client * 175..8000).step_by(700) {
                stats.record(Kind::Put, at(begin), at(begin + 700), BYTES);
            }
        }
        // An error of the warm-up took its time, as far as it was in the measurement, and is no error of that; what lasted from before it until after it is in no rate.
        stats.record(Kind::Put, at(900), at(1100), Err("timeout".into()));
        stats.record(Kind::Put, at(800), at(900), Err("timeout".into()));
        stats.record(Kind::Put, at(900), at(8100), BYTES);
        stats.record(Kind::Put, at(900), at(8100), Err("timeout".into()));
        stats.reached_end();
        let mut sum = Stats::new(at(1000));
        sum.merge(&WireStats::new(&stats.finish()).into_stats(at(1000)).unwrap());
        let put = &sum.series[&Kind::Put];
        assert_eq!((put.operations(), put.bytes, put.error_count(), put.outlasted), (40, 400, 1, 1));
        assert_eq!((put.early, put.late, put.latency_ns.len()), (4, 4, 40), "latencies are of those that began in it");
        assert_eq!(put.ended, 41);
        assert_eq!(put.seconds.iter().map(|second| second.operations).sum::<u64>(), 40);
        assert_eq!(put.seconds.iter().map(|second| second.latency_ns().len()).sum::<u64>(), 36);
    }

    #[test]
    fn what_outlasts_the_measurement_fails_in_it_or_is_counted_by_itself() {
        let start = Stamp::now();
        let at = |ms| start.plus(Duration::from_millis(ms));
        let mut stats = Stats::within(at(1000), End::At(at(2000)));
        stats.record(Kind::Multipart, at(900), at(2000), BYTES);
        stats.record(Kind::Part, at(900), at(2000), BYTES);
        assert_eq!((stats.counts(), stats.is_too_short(), stats.bytes()), ((0, 0), true, 0));
        assert!(!stats.is_in_vain(), "it took long, and did not fail");
        stats.record(Kind::Multipart, at(900), at(2000), Err("timeout".into()));
        assert_eq!((stats.counts(), stats.is_in_vain()), ((0, 1), true));
        // A count of operations has no end that one could outlast.
        let mut stats = Stats::within(at(1000), End::After(1));
        stats.record(Kind::Get, at(900), at(9000), BYTES);
        stats.record(Kind::Get, at(900), at(9000), Err("timeout".into()));
        assert_eq!((stats.counts(), stats.is_too_short()), ((0, 0), false));
        // All of it ends after its time.
        let mut stats = Stats::within(at(1000), End::At(at(2000)));
        stats.record(Kind::Get, at(1100), at(2000), BYTES);
        assert_eq!((stats.counts(), stats.is_too_short()), ((1, 0), true));
        stats.record(Kind::Get, at(1100), at(1999), Err("timeout".into()));
        assert!(!stats.is_too_short() && stats.is_in_vain());
        stats.record(Kind::Get, at(1100), at(1999), BYTES);
        assert!(!stats.is_too_short() && !stats.is_in_vain());
    }

    #[test]
    fn what_begins_after_the_measurement_is_none_of_it() {
        let start = Stamp::now();
        let at = |ms| start.plus(Duration::from_millis(ms));
        let mut stats = Stats::within(start, End::At(at(1000)));
        // An upload that began in time.
        stats.record(Kind::Part, at(900), at(1100), BYTES);
        for begin in [1000, 1100] {
            stats.record(Kind::Part, at(begin), at(begin + 100), BYTES);
            stats.record(Kind::Part, at(begin), at(begin + 100), Err("503 SlowDown".into()));
            stats.record(Kind::CompleteUpload, at(begin), at(begin + 100), BYTES);
            stats.record_retries(Kind::Delete, at(begin), 1);
        }
        stats.record(Kind::Multipart, at(900), at(1300), BYTES);
        stats.record(Kind::Get, at(1100), at(1200), Err(Failure::Mismatch.kind()));
        let series = stats.finish().series;
        assert_eq!(series.keys().copied().collect::<Vec<_>>(), [Kind::Get, Kind::Multipart, Kind::Part]);
        let part = &series[&Kind::Part];
        assert_eq!((part.latency_ns.len(), part.late, part.error_count(), part.ended), (1, 1, 0, 0));
        assert_eq!((series[&Kind::Multipart].late, series[&Kind::Get].error_count()), (1, 1));
    }

    #[test]
    fn what_was_not_answered_may_yet_be_written() {
        let connection = |fault| Failure::Connection { fault, reason: String::new() };
        for (failure, expected) in [
            (Failure::Timeout, true),
            (connection(Fault::Reset), true),
            (connection(Fault::CutShort), true),
            (connection(Fault::Refused), false),
            (Failure::Mismatch, false),
        ] {
            let mut stats = Stats::new(Stamp::now());
            stats.answered(0, Some(&failure));
            let mut sum = Stats::new(Stamp::now());
            sum.merge(&WireStats::new(&stats.finish()).into_stats(Stamp::now()).unwrap());
            assert_eq!(sum.pending, expected, "{failure:?}");
        }
    }

    #[test]
    fn what_began_before_the_measurement_hides_no_failure_of_it() {
        let start = Stamp::now();
        let at = |ms| start.plus(Duration::from_millis(ms));
        let mut stats = Stats::within(at(1000), End::At(at(2000)));
        stats.record(Kind::Get, at(900), at(1100), BYTES);
        assert!(!stats.is_in_vain(), "it was short, and did not fail");
        stats.record(Kind::Get, at(1100), at(1200), Err("connection".into()));
        assert!(stats.is_in_vain());
        stats.record(Kind::Get, at(1100), at(1200), BYTES);
        assert!(!stats.is_in_vain());
        // Wrong bytes are wrong in the warm-up, too.
        for (begin, end) in [(100, 200), (900, 1300), (900, 2300)] {
            stats.record(Kind::Get, at(begin), at(end), Err(Failure::Mismatch.kind()));
        }
        let get = &stats.finish().series[&Kind::Get];
        assert_eq!((get.errors[&Failure::Mismatch.kind()], get.ended), (3, 4));
    }

    #[test]
    fn warm_up_is_left_out_and_workers_add_up() {
        let (mut one, two) = sample();
        one.merge(&two);
        check(&one);
    }

    #[test]
    fn other_processes_add_up_as_threads_do() {
        let (one, two) = sample();
        let mut sum = Stats::new(one.start);
        for stats in [one, two] {
            let line = serde_json::to_string(&WireStats::new(&stats)).unwrap();
            let wire: WireStats = serde_json::from_str(&line).unwrap();
            sum.merge(&wire.into_stats(stats.start).unwrap());
        }
        check(&sum);
        let damaged = serde_json::json!({"first_ns": null, "last_ns": 1, "stopped_ns": 0, "gave_up_ns": 0, "workers": 1, "window_ns": null, "whole": false, "given_up": 0, "late_starts": 0, "latest_start_ns": 0, "missed_starts": 0, "longest_missed_ns": 0, "endpoints": {}, "abandoned": 0, "written_max": 0, "deleted": 0, "pending": false, "series": {"put":
            {"latency_v2": "AAAA", "ended": 0, "early": 0, "late": 0, "outlasted": 0, "bytes": 0, "entries": 0, "errors": {}, "retries": 0, "seconds": []}}});
        let wire: WireStats = serde_json::from_value(damaged).unwrap();
        assert!(wire.into_stats(Stamp::now()).is_err());
    }
}
