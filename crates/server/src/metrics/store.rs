//! The store's figures, read at each scrape: nothing is counted twice.
//!
//! Store and log name their own counters (`crates/store/src/metrics.rs`, `crates/segment/src/metrics.rs`); here they get the
//! prefixes `gabion_store_` and `gabion_log_` and, as Prometheus wants it, seconds instead of microseconds.

use std::fmt;
use std::sync::Arc;

use gabion_store::{Store, StoreStatus};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, NoLabelSet};
use prometheus_client::metrics::MetricType;

use super::{counter, figure};
use crate::admin::unready;

/// Gives the store while there is one.
pub type StoreSource = Arc<dyn Fn() -> Option<Store> + Send + Sync>;

/// Shows the figures of the store, and none while it is not open.
pub struct StoreFigures(pub StoreSource);

impl fmt::Debug for StoreFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoreFigures")
    }
}

/// Names of gauges and counters without labels: kind, name, meaning.
const PLAIN: [(Kind, &str, &str); 27] = [
    (Kind::Gauge, "gabion_store_available", "1 if the store takes writes, else 0"),
    (Kind::Gauge, "gabion_store_live_bytes", "Bytes in segments that some row needs, references counted"),
    (Kind::Gauge, "gabion_store_written_bytes", "Bytes ever written to the segments that exist"),
    (Kind::Gauge, "gabion_store_segments_to_free", "Segments that wait to be deleted"),
    (
        Kind::Gauge,
        "gabion_store_segments_to_compact",
        "Segments of which so little is live that they are to be compacted",
    ),
    (Kind::Gauge, "gabion_store_compaction_debt_bytes", "What compacting them gives back, in bytes of payload"),
    (
        Kind::Gauge,
        "gabion_store_holds_back",
        "1 while space is short and writes are let in as fast as compaction makes room, else 0",
    ),
    (Kind::Gauge, "gabion_store_writers_waiting", "Writes that wait for room"),
    (
        Kind::Gauge,
        "gabion_store_unsettled",
        "Uploads and buckets that are refused changes: whether an earlier request took effect is unknown until the next start",
    ),
    (Kind::Gauge, "gabion_log_open_segments", "Segments that a lane writes"),
    (Kind::Gauge, "gabion_log_sealed_segments", "Sealed segments"),
    (Kind::Gauge, "gabion_log_unreadable_segments", "Segments with fewer readable shards than data shards"),
    (Kind::Gauge, "gabion_log_repair_queue", "Shards that were found damaged and are not repaired yet"),
    (
        Kind::Gauge,
        "gabion_repair_segments_degraded",
        "Segments that lack a shard, those that are being written among them",
    ),
    (
        Kind::Gauge,
        "gabion_repair_segments_at_risk",
        "Segments of which no further shard may be lost, those that are being written among them",
    ),
    (
        Kind::Gauge,
        "gabion_repair_left_shards",
        "Shards to be built anew or moved, without those whose targets are waited for",
    ),
    (Kind::Gauge, "gabion_repair_left_bytes", "Bytes of the shards to be built anew or moved"),
    (Kind::Gauge, "gabion_repair_waiting_shards", "Shards that are missing and whose targets are waited for"),
    (Kind::Gauge, "gabion_rebalance_left_bytes", "Bytes of the shards to be moved from fuller to emptier targets"),
    (Kind::Gauge, "gabion_scrub_unread_shards", "Shards that the scrub under way, or the last one, could not read"),
    (
        Kind::Gauge,
        "gabion_index_disk_bytes",
        "Bytes of all files of the index, its journal included, and tables that are merged already but still read",
    ),
    (Kind::Gauge, "gabion_index_journal_bytes", "Bytes of the index' journal"),
    (Kind::Gauge, "gabion_index_available_bytes", "Bytes that may still be written to the index' file system"),
    (Kind::Counter, "gabion_index_cache_hits", "Point reads answered by the row cache"),
    (Kind::Counter, "gabion_index_cache_misses", "Point reads passed on to the engine"),
    (Kind::Gauge, "gabion_index_cached_rows", "Rows in the row cache"),
    (Kind::Gauge, "gabion_index_cached_bytes", "Bytes of the rows in the row cache"),
];

const TARGET_STATE: (&str, &str) = ("gabion_target_state", "1 for the state that a target is in, 0 for the others");
const TARGET_AVAILABLE: (&str, &str) = ("gabion_target_available_bytes", "Bytes that may still be written to a target");
const TARGET_TOTAL: (&str, &str) = ("gabion_target_total_bytes", "Size of a target's file system in bytes");
const TARGET_SILENT: (&str, &str) =
    ("gabion_target_silent", "1 for a target that has not done in time what it was to do, 0 for the others");
const TARGET_STALE: (&str, &str) = (
    "gabion_target_stale",
    "1 for a target that came back as an older image of itself in this life of the server, 0 for the others",
);
const TARGET_SET_ASIDE: (&str, &str) = (
    "gabion_target_set_aside_files",
    "Shard files that were set aside because their target came back as an older image of itself",
);
const LANE_QUEUED: (&str, &str) = ("gabion_lane_queued", "Records or stripes that wait in a lane");
const LANE_QUEUED_BYTES: (&str, &str) = ("gabion_lane_queued_bytes", "Bytes that wait in a lane");
const LANE_IN_FLIGHT: (&str, &str) = ("gabion_lane_in_flight", "Records or stripes that a lane writes or applies");

/// What the names of the log's counters begin with that stand on their own.
const UPKEEP: [&str; 3] = ["repair_", "rebalance_", "scrub_"];

/// States of a target as they are written in `/status`.
const TARGET_STATES: [&str; 4] = ["online", "absent", "failed", "full"];

#[derive(Clone, Copy)]
enum Kind {
    Gauge,
    Counter,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByTarget {
    target: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByTargetState {
    target: String,
    state: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByLane {
    kind: String,
    lane: usize,
}

impl Collector for StoreFigures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(store) = (self.0)() else { return Ok(()) };
        let status = store.status();
        plain(&mut encoder, &status)?;
        targets(&mut encoder, &status)?;
        lanes(&mut encoder, &status)?;
        counted(&mut encoder, &store)
    }
}

fn plain(encoder: &mut DescriptorEncoder<'_>, status: &StoreStatus) -> Result<(), fmt::Error> {
    let available = unready(status).is_none();
    let count = |count: usize| count as u64;
    let values: [u64; PLAIN.len()] = [
        u64::from(available),
        status.live_bytes,
        status.written_bytes,
        count(status.dead_segments + status.freeing_segments),
        count(status.compaction_segments),
        status.compaction_debt_bytes,
        u64::from(status.holds_back),
        count(status.writers_waiting),
        count(status.unsettled_uploads + status.unsettled_buckets.len()),
        count(status.log.open_segments),
        count(status.log.sealed_segments),
        count(status.log.unreadable_segments),
        count(status.log.repairs.len()),
        count(status.log.redundancy.iter().skip(1).sum()),
        count(status.log.at_risk),
        count(status.log.repair.shards_left),
        status.log.repair.bytes_left,
        count(status.log.repair.shards_waiting),
        status.log.rebalance.as_ref().map_or(0, |rebalance| rebalance.bytes_left),
        status.scrub.unread_shards,
        status.index.disk_bytes,
        status.index.journal_bytes,
        status.index_available_bytes.unwrap_or(0),
        status.index.cache_hits,
        status.index.cache_misses,
        status.index.cached_rows,
        status.index.cached_bytes,
    ];
    for ((kind, name, help), value) in PLAIN.into_iter().zip(values) {
        match kind {
            Kind::Gauge => figure(encoder, (name, help), MetricType::Gauge)?.encode_gauge(&value)?,
            Kind::Counter => counter(encoder, (name, help), value)?,
        }
    }
    Ok(())
}

fn targets(encoder: &mut DescriptorEncoder<'_>, status: &StoreStatus) -> Result<(), fmt::Error> {
    let targets = &status.log.targets;
    let states = targets.iter().flat_map(|target| {
        let current = crate::admin::target_state(target.state);
        TARGET_STATES.map(|state| (ByTargetState { target: target.name.clone(), state }, u64::from(state == current)))
    });
    family(encoder, TARGET_STATE, states)?;
    let label = |target: &str| ByTarget { target: target.to_owned() };
    family(encoder, TARGET_AVAILABLE, targets.iter().map(|target| (label(&target.name), target.available_bytes)))?;
    family(encoder, TARGET_TOTAL, targets.iter().map(|target| (label(&target.name), target.total_bytes)))?;
    family(encoder, TARGET_SILENT, targets.iter().map(|target| (label(&target.name), u64::from(target.silent))))?;
    family(encoder, TARGET_STALE, targets.iter().map(|target| (label(&target.name), u64::from(target.stale))))?;
    let set_aside = targets.iter().map(|target| (label(&target.name), target.set_aside_files as u64));
    family(encoder, TARGET_SET_ASIDE, set_aside)
}

fn lanes(encoder: &mut DescriptorEncoder<'_>, status: &StoreStatus) -> Result<(), fmt::Error> {
    let lanes = || {
        status.log.lanes.iter().enumerate().map(|(lane, figures)| {
            let kind = format!("{:?}", figures.kind).to_lowercase();
            (ByLane { kind, lane }, figures)
        })
    };
    family(encoder, LANE_QUEUED, lanes().map(|(label, lane)| (label, lane.queued as u64)))?;
    family(encoder, LANE_QUEUED_BYTES, lanes().map(|(label, lane)| (label, lane.queued_bytes as u64)))?;
    family(encoder, LANE_IN_FLIGHT, lanes().map(|(label, lane)| (label, lane.in_flight as u64)))
}

fn counted(encoder: &mut DescriptorEncoder<'_>, store: &Store) -> Result<(), fmt::Error> {
    for (name, help, value) in store.metrics().counters() {
        counter(encoder, (&format!("gabion_store_{name}"), help), value)?;
    }
    let metrics = store.log_metrics();
    for (name, help, value) in metrics.counters() {
        let prefix = if UPKEEP.iter().any(|part| name.starts_with(part)) { "gabion" } else { "gabion_log" };
        counter(encoder, (&format!("{prefix}_{name}"), help), value)?;
    }
    for (name, help, snapshot) in metrics.histograms() {
        let (name, scale) = match name.strip_suffix("_us") {
            Some(name) => (format!("gabion_log_{name}_seconds"), 1e-6),
            None => (format!("gabion_log_{name}"), 1.0),
        };
        let help = help.replace("Microseconds", "Seconds");
        let bounds = snapshot.bounds.iter().map(|&bound| bound as f64 * scale).chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = bounds.zip(snapshot.buckets.iter().copied()).collect();
        figure(encoder, (&name, &help), MetricType::Histogram)?.encode_histogram::<NoLabelSet>(
            snapshot.sum as f64 * scale,
            snapshot.buckets.iter().sum(),
            &buckets,
            None,
        )?;
    }
    Ok(())
}

fn family<L: EncodeLabelSet>(
    encoder: &mut DescriptorEncoder<'_>,
    names: (&str, &str),
    rows: impl Iterator<Item = (L, u64)>,
) -> Result<(), fmt::Error> {
    let mut metric = figure(encoder, names, MetricType::Gauge)?;
    for (labels, value) in rows {
        metric.encode_family(&labels)?.encode_gauge(&value)?;
    }
    Ok(())
}
