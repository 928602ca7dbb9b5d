//! What is counted of notifications, per target.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByTarget {
    target: String,
}

/// The figures of all targets. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct NotificationFigures {
    queued: Family<ByTarget, Counter>,
    delivered: Family<ByTarget, Counter>,
    failures: Family<ByTarget, Counter>,
    dropped: Family<ByTarget, Counter>,
    waiting: Family<ByTarget, Gauge>,
    waiting_bytes: Family<ByTarget, Gauge>,
    oldest_s: Family<ByTarget, Gauge>,
}

/// Those of one target.
#[derive(Debug)]
pub(crate) struct TargetFigures {
    pub(super) queued: Counter,
    pub(super) delivered: Counter,
    pub(super) failures: Counter,
    pub(super) dropped: Counter,
    pub(super) waiting: Gauge,
    pub(super) waiting_bytes: Gauge,
    pub(super) oldest_s: Gauge,
}

impl NotificationFigures {
    /// Makes the figures show on the page of `registry`.
    pub fn register(&self, registry: &mut Registry) {
        let mut counter = |name: &str, help: &str, metric: &Family<ByTarget, Counter>| {
            registry.register(name, help, metric.clone());
        };
        counter("gabion_notifications_queued", "Events that were put into a target's queue", &self.queued);
        counter("gabion_notifications_delivered", "Events that a target took", &self.delivered);
        counter("gabion_notifications_failures", "Attempts to deliver that failed; they are repeated", &self.failures);
        let help = "Events that were dropped: the queue was full, or no such target is configured any more";
        counter("gabion_notifications_dropped", help, &self.dropped);
        let mut gauge = |name: &str, help: &str, metric: &Family<ByTarget, Gauge>| {
            registry.register(name, help, metric.clone());
        };
        gauge("gabion_notifications_waiting", "Events in a target's queue", &self.waiting);
        gauge("gabion_notifications_waiting_bytes", "Bytes of a target's queue", &self.waiting_bytes);
        let help = "Unix time of the oldest event in a target's queue; 0 when it is empty";
        gauge("gabion_notifications_oldest_seconds", help, &self.oldest_s);
    }

    /// Those of one target, which show from now on.
    pub(crate) fn of(&self, target: &str) -> TargetFigures {
        let label = ByTarget { target: target.to_owned() };
        TargetFigures {
            queued: self.queued.get_or_create(&label).clone(),
            delivered: self.delivered.get_or_create(&label).clone(),
            failures: self.failures.get_or_create(&label).clone(),
            dropped: self.dropped.get_or_create(&label).clone(),
            waiting: self.waiting.get_or_create(&label).clone(),
            waiting_bytes: self.waiting_bytes.get_or_create(&label).clone(),
            oldest_s: self.oldest_s.get_or_create(&label).clone(),
        }
    }
}
