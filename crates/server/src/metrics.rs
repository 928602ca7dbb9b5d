//! Every figure that the server counts, with unit and labels, in one table; `docs/METRICS.md` lists the same rows.
//!
//! The log's own counters and the store's state are read at each scrape by [`store::StoreFigures`]; their names are in the
//! table there.

mod requests;
pub mod store;

use std::fmt;
use std::sync::Arc;

use gabion_types::Counter;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::access_log::AccessLog;
use crate::audit::AuditLog;
use crate::http::RequestFigures;
use requests::Requests;

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

/// The figures of the data port. Shared by all connections.
#[derive(Debug, Default)]
pub struct ServerMetrics {
    requests: Requests,
    uncopied: Counter,
    connections: Gauge,
    closed: Family<ByReason, prometheus_client::metrics::counter::Counter>,
}

impl ServerMetrics {
    /// All figures at zero.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// Makes the figures show on the page of `registry`.
    pub fn register(self: &Arc<Self>, registry: &mut Registry) {
        registry.register(names::CONNECTIONS.0, names::CONNECTIONS.1, self.connections.clone());
        registry.register(names::CLOSED.0, names::CLOSED.1, self.closed.clone());
        registry.register_collector(Box::new(DataPort(Arc::clone(self))));
    }

    pub(crate) fn request_began(&self) {
        self.requests.began();
    }

    pub(crate) fn request_ended(&self, figures: &RequestFigures) {
        self.requests.ended(figures);
    }

    pub(crate) fn sent_uncopied(&self, bytes: u64) {
        self.uncopied.add(bytes);
    }

    pub(crate) fn connection_opened(self: &Arc<Self>) -> OpenConnection {
        self.connections.inc();
        OpenConnection { metrics: Arc::clone(self), reason: Closed::Error }
    }
}

/// Shows what threads count for themselves.
#[derive(Debug)]
struct DataPort(Arc<ServerMetrics>);

impl Collector for DataPort {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        self.0.requests.encode(&mut encoder)?;
        counter(&mut encoder, names::UNCOPIED, self.0.uncopied.get())
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
        counter(&mut encoder, names::LOG_DROPPED, self.0.dropped_lines())
    }
}

/// Shows how many lines of the audit log were dropped.
#[derive(Debug)]
pub struct AuditFigures(pub AuditLog);

impl Collector for AuditFigures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        counter(&mut encoder, names::AUDIT_DROPPED, self.0.dropped_lines())
    }
}

/// Begins a figure on the page. Its meaning ends with a dot there, as the registry writes those of its own.
fn figure<'a>(
    encoder: &'a mut DescriptorEncoder<'_>,
    (name, help): (&'a str, &str),
    kind: MetricType,
) -> Result<MetricEncoder<'a>, fmt::Error> {
    let help = help.trim().trim_end_matches('.');
    encoder.encode_descriptor(name, &format!("{help}."), None, kind)
}

fn counter(encoder: &mut DescriptorEncoder<'_>, names: (&str, &str), value: u64) -> fmt::Result {
    figure(encoder, names, MetricType::Counter)?.encode_counter::<NoLabelSet, _, f64>(&value, None)
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
