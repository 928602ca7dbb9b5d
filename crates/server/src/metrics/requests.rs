//! What is counted of requests: by each thread for itself, and added up at each scrape.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};

use gabion_types::Striped;
use parking_lot::Mutex;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, NoLabelSet};
use prometheus_client::metrics::MetricType;

use super::{ByOperation, ByStatus, figure, names};
use crate::http::RequestFigures;

/// The lowest bound of the latencies: a row in memory.
const SHORTEST_NS: u64 = 50_000;
/// Bounds, each the double of the one before: the last is 26 s, a large object on a slow target.
const BOUNDS: usize = 20;

/// The figures of all requests.
#[derive(Debug, Default)]
pub(super) struct Requests(Striped<OfThread>);

/// Those of one thread, or of a few.
#[derive(Debug, Default)]
struct OfThread {
    /// Those that began here without those that ended here.
    in_flight: AtomicI64,
    operations: Mutex<Vec<(&'static str, OfOperation)>>,
}

/// Of the requests for one operation.
#[derive(Debug, Default)]
struct OfOperation {
    /// How many there were with each status; mostly it is one.
    statuses: Vec<(u16, u64)>,
    aborted: u64,
    received_bytes: u64,
    sent_bytes: u64,
    total: Latencies,
    first_byte: Latencies,
}

#[derive(Debug, Default)]
struct Latencies {
    /// The last is of what is above all bounds.
    buckets: [u64; BOUNDS + 1],
    sum_ns: u64,
}

impl Requests {
    pub(super) fn began(&self) {
        self.0.mine().in_flight.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn ended(&self, figures: &RequestFigures) {
        let mine = self.0.mine();
        mine.in_flight.fetch_sub(1, Ordering::Relaxed);
        let mut operations = mine.operations.lock();
        entry(&mut operations, figures.operation).add(figures);
    }

    /// Writes everything to the page.
    pub(super) fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let operations = self.by_operation();
        let each = || operations.iter().map(|(name, of)| (ByOperation { operation: name }, of));
        let statuses = operations.iter().flat_map(|(operation, of)| {
            of.statuses.iter().map(|&(status, count)| (ByStatus { operation, status }, count))
        });
        counters(encoder, names::REQUESTS, statuses)?;
        let some = |count: fn(&OfOperation) -> u64| {
            each().map(move |(labels, of)| (labels, count(of))).filter(|(_, count)| *count > 0)
        };
        counters(encoder, names::ABORTED, some(|of| of.aborted))?;
        counters(encoder, names::RECEIVED, some(|of| of.received_bytes))?;
        counters(encoder, names::SENT, some(|of| of.sent_bytes))?;
        histograms(encoder, names::DURATION, each().map(|(labels, of)| (labels, &of.total)))?;
        histograms(encoder, names::FIRST_BYTE, each().map(|(labels, of)| (labels, &of.first_byte)))?;
        figure(encoder, names::IN_FLIGHT, MetricType::Gauge)?.encode_gauge(&self.in_flight())
    }

    /// Off by those that begin here and end there while threads are gone through: that may look like fewer than none.
    fn in_flight(&self) -> i64 {
        self.0.iter().map(|of| of.in_flight.load(Ordering::Relaxed)).sum::<i64>().max(0)
    }

    fn by_operation(&self) -> BTreeMap<&'static str, OfOperation> {
        let mut all = BTreeMap::<_, OfOperation>::new();
        for thread in self.0.iter() {
            for (name, of) in &*thread.operations.lock() {
                all.entry(*name).or_default().add_all(of);
            }
        }
        all
    }
}

/// What belongs to `key`, made if it is not there: few keys are in use at a time.
fn entry<K: PartialEq, V: Default>(entries: &mut Vec<(K, V)>, key: K) -> &mut V {
    let found = entries.iter().position(|(known, _)| *known == key);
    let index = found.unwrap_or_else(|| {
        entries.push((key, V::default()));
        entries.len() - 1
    });
    &mut entries[index].1
}

impl OfOperation {
    fn add(&mut self, figures: &RequestFigures) {
        *entry(&mut self.statuses, figures.status.as_u16()) += 1;
        self.aborted += u64::from(!figures.complete);
        self.received_bytes += figures.received_bytes;
        self.sent_bytes += figures.sent_bytes;
        self.total.observe(figures.total_ns);
        self.first_byte.observe(figures.first_byte_ns);
    }

    fn add_all(&mut self, other: &Self) {
        for &(status, count) in &other.statuses {
            *entry(&mut self.statuses, status) += count;
        }
        self.aborted += other.aborted;
        self.received_bytes += other.received_bytes;
        self.sent_bytes += other.sent_bytes;
        self.total.add_all(&other.total);
        self.first_byte.add_all(&other.first_byte);
    }
}

impl Latencies {
    fn observe(&mut self, ns: u64) {
        // Bounds are part of their buckets.
        let beyond = ns.saturating_sub(1) / SHORTEST_NS;
        let bucket = beyond.checked_ilog2().map_or(0, |doublings| doublings as usize + 1);
        self.buckets[bucket.min(BOUNDS)] += 1;
        self.sum_ns = self.sum_ns.saturating_add(ns);
    }

    fn add_all(&mut self, other: &Self) {
        self.buckets.iter_mut().zip(other.buckets).for_each(|(sum, count)| *sum += count);
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
    }

    /// Bounds in seconds, each with the observations of its bucket alone.
    fn in_seconds(&self) -> Vec<(f64, u64)> {
        let bounds = (0..BOUNDS).map(|doublings| seconds(SHORTEST_NS << doublings)).chain([f64::INFINITY]);
        bounds.zip(self.buckets).collect()
    }
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

fn counters<L: EncodeLabelSet>(
    encoder: &mut DescriptorEncoder<'_>,
    names: (&str, &str),
    rows: impl Iterator<Item = (L, u64)>,
) -> fmt::Result {
    let mut metric = figure(encoder, names, MetricType::Counter)?;
    for (labels, value) in rows {
        metric.encode_family(&labels)?.encode_counter::<NoLabelSet, _, f64>(&value, None)?;
    }
    Ok(())
}

fn histograms<'a>(
    encoder: &mut DescriptorEncoder<'_>,
    names: (&str, &str),
    rows: impl Iterator<Item = (ByOperation, &'a Latencies)>,
) -> fmt::Result {
    let mut metric = figure(encoder, names, MetricType::Histogram)?;
    for (labels, latencies) in rows {
        let count = latencies.buckets.iter().sum();
        metric.encode_family(&labels)?.encode_histogram::<NoLabelSet>(
            seconds(latencies.sum_ns),
            count,
            &latencies.in_seconds(),
            None,
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;

    #[test]
    fn a_latency_falls_into_the_bucket_whose_bound_holds_it() {
        let bounds: Vec<u64> = (0..BOUNDS).map(|doublings| SHORTEST_NS << doublings).collect();
        let near = bounds.iter().flat_map(|bound| [bound - 1, *bound, bound + 1]);
        for ns in near.chain([0, 1, u64::MAX]) {
            let mut latencies = Latencies::default();
            latencies.observe(ns);
            let expected = bounds.partition_point(|&bound| bound < ns);
            let found = latencies.buckets.iter().position(|&count| count == 1);
            assert_eq!(found, Some(expected), "{ns}");
        }
    }

    #[test]
    fn threads_are_added_up() {
        let requests = Requests::default();
        let put = |status, complete| crate::metrics::tests::figures(status, complete);
        let ended = [
            put(StatusCode::OK, true),
            put(StatusCode::NOT_FOUND, false),
            RequestFigures { operation: "GetObject", ..put(StatusCode::OK, true) },
        ];
        // They end where they did not begin.
        std::thread::scope(|scope| {
            for figures in ended.iter().cycle().take(40 * ended.len()) {
                scope.spawn(|| requests.began());
                scope.spawn(|| requests.ended(figures));
            }
            scope.spawn(|| requests.began());
        });
        assert_eq!(requests.in_flight(), 1);
        let found = requests.by_operation();
        assert!(found.keys().eq(&["GetObject", "PutObject"]));
        let puts = &found["PutObject"];
        let statuses: BTreeMap<u16, u64> = puts.statuses.iter().copied().collect();
        assert_eq!((puts.statuses.len(), statuses), (2, BTreeMap::from([(200, 40), (404, 40)])));
        assert_eq!((puts.received_bytes, puts.aborted), (800, 40));
        assert_eq!((puts.total.sum_ns, puts.total.buckets.iter().sum::<u64>()), (160_000_000, 80));
        assert_eq!((found["GetObject"].first_byte.sum_ns, found["GetObject"].statuses.len()), (40_000_000, 1));
    }
}
