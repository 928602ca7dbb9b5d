//! The admin page, before there is a store and with one on simulated disks.

use std::collections::BTreeSet;
use std::sync::Arc;

use gabion_metadata::{Index, IndexError, MemoryIndex};
use gabion_platform::{Disk, ManualClock, SeededEntropy, SimDisk};
use gabion_segment::{LogConfig, LogTarget};
use gabion_store::{Env, IndexFactory, Silent, StoreConfig};
use http_body_util::BodyExt;

use super::*;
use crate::access_log::{AccessLog, AccessLogTarget};
use crate::http::RequestLine;
use crate::metrics::tests::line;
use crate::metrics::{AccessLogFigures, ServerMetrics};

async fn get_page(admin: &Admin, path: &str) -> (StatusCode, String) {
    let request = Request::builder().uri(path).body(Body::empty()).unwrap();
    let response = admin.handler().router.oneshot(request).await.unwrap();
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

struct OneIndex(MemoryIndex);

impl IndexFactory for OneIndex {
    fn open(&self) -> Result<Arc<dyn Index>, IndexError> {
        Ok(Arc::new(self.0.clone()))
    }

    fn destroy(&self) -> Result<(), IndexError> {
        Ok(())
    }
}

/// A store with geometry 2+1, of whose three targets the last `missing` are not there any more.
async fn store(missing: usize) -> Store {
    let clock = Arc::new(ManualClock::new(1_700_000_000_000));
    let env = || Env { clock: clock.clone(), entropy: Arc::new(SeededEntropy::new(7)) };
    let disks: Vec<Arc<dyn Disk>> = (0..3).map(|seed| Arc::new(SimDisk::new(seed)) as Arc<dyn Disk>).collect();
    let targets = |missing: usize| -> Vec<LogTarget> {
        let target = |(index, disk): (usize, &Arc<dyn Disk>)| LogTarget {
            name: format!("/t{index}"),
            disk: (index + missing < 3).then(|| Arc::clone(disk)),
            failure_domain: index.to_string(),
        };
        disks.iter().enumerate().map(target).collect()
    };
    let config = || StoreConfig::new(LogConfig::new("2+1".parse().unwrap()));
    let index = MemoryIndex::new();
    let open =
        |missing| Store::open(config(), targets(missing), Box::new(OneIndex(index.clone())), env(), Arc::new(Silent));
    let (formatted, _) = open(0).await.unwrap();
    if missing == 0 {
        return formatted;
    }
    formatted.shutdown().await;
    open(missing).await.unwrap().0
}

#[tokio::test]
async fn a_starting_server_is_alive_and_not_ready() {
    let admin = Admin::new(Registry::default(), "0.0.0");
    assert_eq!(get_page(&admin, "/health/live").await, (StatusCode::OK, "ok\n".to_owned()));
    let (status, body) = get_page(&admin, "/health/ready").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(body.contains("\"ready\":false") && body.contains("starting"), "{body}");
    let (status, body) = get_page(&admin, "/status").await;
    assert_eq!((status, body.as_str()), (StatusCode::OK, "{\"version\":\"0.0.0\",\"phase\":\"starting\"}"));
    let (status, body) = get_page(&admin, "/metrics").await;
    assert_eq!((status, body.as_str()), (StatusCode::OK, "# EOF\n"));
    assert_eq!(get_page(&admin, "/").await.0, StatusCode::NOT_FOUND);
    admin.set_phase(Phase::Stopping);
    assert!(get_page(&admin, "/health/ready").await.1.contains("stopping"));
}

#[tokio::test]
async fn a_serving_server_is_ready_as_long_as_a_quorum_is_up() {
    let admin = Admin::new(Registry::default(), "0.0.0");
    let whole = store(0).await;
    admin.set_phase(Phase::Serving(whole.clone()));
    assert_eq!(get_page(&admin, "/health/ready").await, (StatusCode::OK, "{\"ready\":true}".to_owned()));
    let (_, status) = get_page(&admin, "/status").await;
    for expected in ["\"phase\":\"serving\"", "\"geometry\":\"2+1\"", "\"state\":\"online\"", "\"name\":\"/t2\""] {
        assert!(status.contains(expected), "{status}");
    }
    whole.shutdown().await;

    // Reads go on with two of three, but a write needs all three of 2+1.
    let degraded = store(1).await;
    admin.set_phase(Phase::Serving(degraded.clone()));
    let (status, body) = get_page(&admin, "/health/ready").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{body}");
    assert!(body.contains("2 targets are up, 2+1 needs 3 to acknowledge a write"), "{body}");
    assert!(get_page(&admin, "/metrics").await.1.contains("gabion_target_state{target=\"/t2\",state=\"absent\"} 1\n"));
    degraded.shutdown().await;
}

#[tokio::test]
async fn the_documentation_lists_every_metric_and_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let (log, writer) = AccessLog::open(AccessLogTarget::File(dir.path().join("log"))).unwrap();
    let mut registry = Registry::default();
    let metrics = ServerMetrics::new();
    metrics.register(&mut registry);
    // Figures by label show once there is a label.
    drop(metrics.connection_opened());
    metrics.request_began();
    metrics.request_ended(&RequestLine { sent_bytes: 1, ..line(StatusCode::OK, false) });
    registry.register_collector(Box::new(AccessLogFigures(log)));
    let admin = Admin::new(registry, "0.0.0");
    let store = store(0).await;
    admin.set_phase(Phase::Serving(store.clone()));
    let (_, page) = get_page(&admin, "/metrics").await;
    store.shutdown().await;
    writer.close();

    let kinds = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")).map(str::to_owned);
    let shown: BTreeSet<String> = kinds.collect();
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/METRICS.md")).unwrap();
    let row = |line: &str| {
        let mut cells = line.strip_prefix("| `gabion_")?.split('|');
        let name = cells.next()?.trim().trim_end_matches('`').to_owned();
        Some(format!("gabion_{name} {}", cells.next()?.trim()))
    };
    // The table of what to watch names metrics as well, with conditions; rows of metrics have four cells.
    let rows = text.lines().filter(|line| line.matches('|').count() == 5).filter_map(row);
    let listed: BTreeSet<String> = rows.collect();
    assert_eq!(shown, listed, "the page on the left, docs/METRICS.md on the right");
}
