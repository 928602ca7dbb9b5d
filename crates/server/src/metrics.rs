//! Every figure that the server counts, with unit and labels, in one table; `docs/METRICS.md` lists the same rows.
//!
//! The log's own counters and the store's state are read at each scrape by [`store::StoreFigures`]; their names are in the
//! table there.

pub mod store;

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::access_log::AccessLog;
use crate::audit::AuditLog;
use crate::http::RequestFigures;

/// Names and meanings, as they stand in `docs/METRICS.md`. Counters get the suffix `_total` on the page.
mod names {
    pub(super) const REQUESTS: (&str, &str) = ("gabion_http_requests", "S3 requests answered");
    pub(super) const ABORTED: (&str, &str) =
        ("gabion_http_requests_aborted", "S3 requests whose answer was not sent to its end");
    pub(super) const IN_FLIGHT: (&str, &str) = ("gabion_http_requests_in_flight", "S3 requests being served");
    pub(super) const DURATION: (&str, &str) =
        ("gabion_http_request_duration_seconds", "Time from a request's head to the end of its answer");
    pub(super) const FIRST_BYTE: (&str, &str) =
        ("gabion_http_first_byte_seconds", "Time from a request's head to the head of its answer");
    pub(super) const RECEIVED: (&str, &str) = ("gabion_http_received_bytes", "Bytes of request bodies received");
    pub(super) const SENT: (&str, &str) = ("gabion_http_sent_bytes", "Bytes of answer bodies sent");
    pub(super) const UNCOPIED: (&str, &str) = (
        "gabion_http_uncopied_bytes",
        "Bytes of answer bodies that went from the page cache to a socket without a copy",
    );
    pub(super) const CONNECTIONS: (&str, &str) = ("gabion_http_connections", "Open connections on the data port");
    pub(super) const CLOSED: (&str, &str) = ("gabion_http_connections_closed", "Connections ended on the data port");
    pub(super) const LOG_DROPPED: (&str, &str) =
        ("gabion_access_log_dropped_lines", "Lines of the access log that were dropped");
    pub(super) const AUDIT_DROPPED: (&str, &str) =
        ("gabion_audit_log_dropped_lines", "Lines of the audit log that were dropped");
}

#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByOperation {
    operation: &'static str,
}

#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByStatus {
    operation: &'static str,
    status: u16,
}

#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByReason {
    reason: &'static str,
}

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closed {
    /// The client closed it, or asked for that.
    Client,
    /// No request for too long.
    Idle,
    /// A request's head took too long.
    HeaderTimeout,
    /// The client stopped taking its answer.
    Stalled,
    /// The TLS handshake failed.
    Handshake,
    /// The connection or what was sent on it was broken.
    Error,
    /// The server shut down; what was in flight was finished.
    Shutdown,
    /// The server shut down and the drain time was over.
    Cut,
}

impl Closed {
    const fn label(self) -> &'static str {
        match self {
            Closed::Client => "client",
            Closed::Idle => "idle",
            Closed::HeaderTimeout => "header_timeout",
            Closed::Stalled => "stalled",
            Closed::Handshake => "handshake",
            Closed::Error => "error",
            Closed::Shutdown => "shutdown",
            Closed::Cut => "cut",
        }
    }
}

type Latencies = Family<ByOperation, Histogram, fn() -> Histogram>;

/// The figures of the data port. Shared by all connections.
#[derive(Debug)]
pub struct ServerMetrics {
    requests: Family<ByStatus, Counter>,
    aborted: Family<ByOperation, Counter>,
    in_flight: Gauge,
    duration: Latencies,
    first_byte: Latencies,
    received: Family<ByOperation, Counter>,
    sent: Family<ByOperation, Counter>,
    uncopied: Counter,
    connections: Gauge,
    closed: Family<ByReason, Counter>,
}

/// 50 µs, doubling to 26 s: a row in memory to a large object on a slow target.
fn latency_buckets() -> Histogram {
    Histogram::new(exponential_buckets(50e-6, 2.0, 20))
}

impl Default for ServerMetrics {
    fn default() -> Self {
        Self {
            requests: Family::default(),
            aborted: Family::default(),
            in_flight: Gauge::default(),
            duration: Family::new_with_constructor(latency_buckets),
            first_byte: Family::new_with_constructor(latency_buckets),
            received: Family::default(),
            sent: Family::default(),
            uncopied: Counter::default(),
            connections: Gauge::default(),
            closed: Family::default(),
        }
    }
}

impl ServerMetrics {
    /// All figures at zero.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// Makes the figures show on the page of `registry`.
    pub fn register(&self, registry: &mut Registry) {
        let mut counter = |(name, help): (&str, &str), metric: &Family<ByOperation, Counter>| {
            registry.register(name, help, metric.clone());
        };
        counter(names::ABORTED, &self.aborted);
        counter(names::RECEIVED, &self.received);
        counter(names::SENT, &self.sent);
        registry.register(names::UNCOPIED.0, names::UNCOPIED.1, self.uncopied.clone());
        registry.register(names::REQUESTS.0, names::REQUESTS.1, self.requests.clone());
        registry.register(names::IN_FLIGHT.0, names::IN_FLIGHT.1, self.in_flight.clone());
        registry.register(names::DURATION.0, names::DURATION.1, self.duration.clone());
        registry.register(names::FIRST_BYTE.0, names::FIRST_BYTE.1, self.first_byte.clone());
        registry.register(names::CONNECTIONS.0, names::CONNECTIONS.1, self.connections.clone());
        registry.register(names::CLOSED.0, names::CLOSED.1, self.closed.clone());
    }

    pub(crate) fn request_began(&self) {
        self.in_flight.inc();
    }

    pub(crate) fn request_ended(&self, figures: &RequestFigures) {
        let operation = ByOperation { operation: figures.operation };
        let seconds = |ns: u64| ns as f64 / 1e9;
        self.in_flight.dec();
        self.requests.get_or_create(&ByStatus { operation: figures.operation, status: figures.status.as_u16() }).inc();
        self.duration.get_or_create(&operation).observe(seconds(figures.total_ns));
        self.first_byte.get_or_create(&operation).observe(seconds(figures.first_byte_ns));
        if figures.received_bytes > 0 {
            self.received.get_or_create(&operation).inc_by(figures.received_bytes);
        }
        if figures.sent_bytes > 0 {
            self.sent.get_or_create(&operation).inc_by(figures.sent_bytes);
        }
        if !figures.complete {
            self.aborted.get_or_create(&operation).inc();
        }
    }

    pub(crate) fn sent_uncopied(&self, bytes: u64) {
        self.uncopied.inc_by(bytes);
    }

    pub(crate) fn connection_opened(self: &Arc<Self>) -> OpenConnection {
        self.connections.inc();
        OpenConnection { metrics: Arc::clone(self), reason: Closed::Error }
    }
}

/// Counts as an open connection while it lives.
#[derive(Debug)]
pub(crate) struct OpenConnection {
    metrics: Arc<ServerMetrics>,
    reason: Closed,
}

impl OpenConnection {
    pub(crate) fn closed(mut self, reason: Closed) {
        self.reason = reason;
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.metrics.connections.dec();
        self.metrics.closed.get_or_create(&ByReason { reason: self.reason.label() }).inc();
    }
}

/// Shows how many lines of the access log were dropped.
#[derive(Debug)]
pub struct AccessLogFigures(pub AccessLog);

impl Collector for AccessLogFigures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        use prometheus_client::encoding::EncodeMetric;
        let (name, help) = names::LOG_DROPPED;
        let metric = encoder.encode_descriptor(name, &format!("{help}."), None, MetricType::Counter)?;
        ConstCounter::new(self.0.dropped_lines()).encode(metric)
    }
}

/// Shows how many lines of the audit log were dropped.
#[derive(Debug)]
pub struct AuditFigures(pub AuditLog);

impl Collector for AuditFigures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        use prometheus_client::encoding::EncodeMetric;
        let (name, help) = names::AUDIT_DROPPED;
        let metric = encoder.encode_descriptor(name, &format!("{help}."), None, MetricType::Counter)?;
        ConstCounter::new(self.0.dropped_lines()).encode(metric)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use http::StatusCode;

    use super::*;

    pub(crate) fn figures(status: StatusCode, complete: bool) -> RequestFigures {
        RequestFigures {
            operation: "PutObject",
            status,
            received_bytes: 10,
            sent_bytes: 0,
            first_byte_ns: 1_000_000,
            total_ns: 2_000_000,
            complete,
        }
    }

    #[test]
    fn a_request_shows_by_operation_and_status() {
        let metrics = ServerMetrics::new();
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        let connection = metrics.connection_opened();
        for (status, complete) in [(StatusCode::OK, true), (StatusCode::OK, true), (StatusCode::NOT_FOUND, false)] {
            metrics.request_began();
            metrics.request_ended(&figures(status, complete));
        }
        metrics.request_began();
        let mut page = String::new();
        prometheus_client::encoding::text::encode(&mut page, &registry).unwrap();
        for expected in [
            "gabion_http_requests_total{operation=\"PutObject\",status=\"200\"} 2\n",
            "gabion_http_requests_total{operation=\"PutObject\",status=\"404\"} 1\n",
            "gabion_http_requests_aborted_total{operation=\"PutObject\"} 1\n",
            "gabion_http_received_bytes_total{operation=\"PutObject\"} 30\n",
            "gabion_http_requests_in_flight 1\n",
            "gabion_http_connections 1\n",
            "gabion_http_request_duration_seconds_count{operation=\"PutObject\"} 3\n",
        ] {
            assert!(page.contains(expected), "{expected} in\n{page}");
        }
        connection.closed(Closed::Idle);
        page.clear();
        prometheus_client::encoding::text::encode(&mut page, &registry).unwrap();
        assert!(page.contains("gabion_http_connections_closed_total{reason=\"idle\"} 1\n"), "{page}");
        assert!(page.contains("gabion_http_connections 0\n"), "{page}");
    }
}
