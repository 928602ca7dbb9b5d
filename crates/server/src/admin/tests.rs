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
use crate::audit::AuditLog;
use crate::http::RequestFigures;
use crate::metrics::tests::figures;
use crate::metrics::{AccessLogFigures, AuditFigures, ServerMetrics};

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
    let admin = Admin::new(Registry::default(), "0.0.0", None);
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
    let admin = Admin::new(Registry::default(), "0.0.0", None);
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
    let metrics = get_page(&admin, "/metrics").await.1;
    for expected in ["gabion_target_state{target=\"/t2\",state=\"absent\"} 1\n", "gabion_store_available 0\n"] {
        assert!(metrics.contains(expected), "{metrics}");
    }
    let (_, status) = get_page(&admin, "/status").await;
    assert!(status.contains("\"unavailable\":\"2 targets are up"), "{status}");
    degraded.shutdown().await;
}

#[tokio::test]
async fn the_documentation_lists_every_metric_and_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let (log, writer) = AccessLog::open(AccessLogTarget::File(dir.path().join("log"))).unwrap();
    let mut registry = Registry::default();
    let metrics = ServerMetrics::new();
    metrics.register(&mut registry);
    crate::lifecycle::LifecycleFigures::default().register(&mut registry);
    crate::inventory::InventoryFigures::default().register(&mut registry);
    crate::s3::LogDeliveryFigures::default().register(&mut registry);
    let notification_figures = crate::notifications::NotificationFigures::default();
    notification_figures.register(&mut registry);
    // Figures by label show once there is a label.
    drop(notification_figures.of("target"));
    drop(metrics.connection_opened());
    metrics.request_began();
    metrics.request_ended(&RequestFigures { sent_bytes: 1, ..figures(StatusCode::OK, false) });
    registry.register_collector(Box::new(AccessLogFigures(log)));
    registry.register_collector(Box::new(AuditFigures(AuditLog::default())));
    let admin = Admin::new(registry, "0.0.0", None);
    let store = store(0).await;
    admin.set_phase(Phase::Serving(store.clone()));
    let (_, page) = get_page(&admin, "/metrics").await;
    store.shutdown().await;
    writer.close();

    let kinds = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")).map(str::to_owned);
    let shown: BTreeSet<String> = kinds.collect();
    let samples = |begin: &str| page.lines().filter(move |line| line.starts_with(begin)).collect::<Vec<_>>();
    for kind in &shown {
        let (name, kind) = kind.split_once(' ').unwrap();
        assert!(!samples(name).is_empty(), "{name} in\n{page}");
        if kind == "histogram" {
            // OpenMetrics wants a last bucket that is of everything.
            let (buckets, counts) = (samples(&format!("{name}_bucket")), samples(&format!("{name}_count")));
            let last = buckets.last().unwrap();
            assert!(last.contains("le=\"+Inf\""), "{name} in\n{page}");
            assert_eq!((counts.len(), last.rsplit(' ').next()), (1, counts[0].rsplit(' ').next()), "{name} in\n{page}");
        }
    }
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

/// Gives an empty simulated disk for every path but one.
struct Opener;

impl OpenTarget for Opener {
    fn open(
        &self,
        path: String,
        label: Option<String>,
    ) -> futures::future::BoxFuture<'static, Result<LogTarget, String>> {
        Box::pin(async move {
            if path == "/nothing" {
                return Err("/nothing is no directory".to_owned());
            }
            let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(77));
            Ok(LogTarget { name: path, disk: Some(disk), failure_domain: label.unwrap_or_default() })
        })
    }
}

async fn post_page(admin: &Admin, path: &str, token: Option<&str>, body: &str) -> (StatusCode, String) {
    let mut request = Request::builder().method("POST").uri(path).header(header::CONTENT_TYPE, "application/json");
    if let Some(token) = token {
        request = request.header(header::AUTHORIZATION, token);
    }
    let response = admin.handler().router.oneshot(request.body(Body::from(body.to_owned())).unwrap()).await.unwrap();
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn changes_want_the_token_and_sense() {
    const TOKEN: &str = "Bearer right";
    let add = r#"{"target":"/t3","label":"rack"}"#;
    let read_only = Admin::new(Registry::default(), "0.0.0", None);
    assert_eq!(post_page(&read_only, "/targets/add", Some(TOKEN), add).await.0, StatusCode::FORBIDDEN);

    let changes = Changes::new(crate::credentials::SecretKey::new("right"), Arc::new(Opener));
    let admin = Admin::new(Registry::default(), "0.0.0", Some(changes));
    for token in [None, Some("right"), Some("Bearer wrong"), Some("Bearer righ"), Some("Bearer right ")] {
        assert_eq!(post_page(&admin, "/targets/add", token, add).await.0, StatusCode::UNAUTHORIZED, "{token:?}");
        assert_eq!(post_page(&admin, "/scrub", token, "").await.0, StatusCode::UNAUTHORIZED, "{token:?}");
    }
    assert_eq!(post_page(&admin, "/targets/add", Some(TOKEN), add).await.0, StatusCode::SERVICE_UNAVAILABLE);

    let store = store(0).await;
    admin.set_phase(Phase::Serving(store.clone()));
    let refused = [
        ("/targets/paint", r#"{"target":"/t0"}"#, "is no action"),
        ("/targets/add", r#"{"target":"/nothing"}"#, "is no directory"),
        ("/targets/drain", r#"{"target":"/t9"}"#, "they are: /t0, /t1, /t2"),
        ("/targets/drain", r#"{"target":"/t0","label":"x"}"#, "takes no label"),
        ("/targets/drain", r#"{"target":"/t0","lost":true}"#, "lost belongs to remove"),
        ("/targets/drain", r#"{"target":"/t0","until_percent":5}"#, "belongs to rebalance"),
        ("/targets/rebalance", r#"{"target":""}"#, "belongs to rebalance"),
        ("/targets/rebalance", r#"{"target":"/t0","until_percent":5}"#, "takes no target"),
        ("/targets/rebalance", r#"{"target":"","until_percent":200}"#, "200 % is no share"),
        ("/targets/replace", r#"{"target":"/t0"}"#, "belongs to replace"),
        ("/targets/drain", r#"{"target":"/t0"}"#, "needs 3"),
    ];
    for (path, body, expected) in refused {
        let (status, answer) = post_page(&admin, path, Some(TOKEN), body).await;
        assert!(status == StatusCode::BAD_REQUEST && answer.contains(expected), "{path} {body}: {status} {answer}");
    }
    let unknown = post_page(&admin, "/targets/add", Some(TOKEN), r#"{"target":"/t3","lable":"x"}"#).await;
    assert!(unknown.0.is_client_error() && unknown.1.contains("lable"), "{unknown:?}");

    assert_eq!(post_page(&admin, "/scrub", Some(TOKEN), "{}").await.0, StatusCode::ACCEPTED);
    let dry = post_page(&admin, "/targets/add", Some(TOKEN), r#"{"target":"/t3","dry_run":true}"#).await;
    assert!(dry.0.is_success() && dry.1.contains("\"applied\":false"), "{dry:?}");
    assert_eq!(store.status().log.targets.len(), 3);
    let added = post_page(&admin, "/targets/add", Some(TOKEN), add).await;
    assert!(added.0.is_success() && added.1.contains("\"applied\":true"), "{added:?}");
    assert_eq!(store.status().log.targets.len(), 4);
    assert_eq!(post_page(&admin, "/targets/drain", Some(TOKEN), r#"{"target":"/t0/"}"#).await.0, StatusCode::OK);
    store.shutdown().await;
}

#[tokio::test]
async fn what_operators_change_is_written_down() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.log");
    let (file, writer) = AccessLog::open(AccessLogTarget::File(path.clone())).unwrap();
    let (audit, _) = AuditLog::new(Some(file), None);
    let changes = Changes::new(crate::credentials::SecretKey::new("right"), Arc::new(Opener));
    let admin = Admin::new(Registry::default(), "0.0.0", Some(changes));
    let store = store(0).await;
    let clock = Arc::new(ManualClock::new(1_700_000_000_123));
    let options = crate::iam::IamOptions {
        root: crate::credentials::Credentials::new("ROOT", "secret"),
        first_account: crate::credentials::Account::first("test"),
        seal_key: None,
        near_providers: false,
    };
    let entropy = Arc::new(SeededEntropy::new(8));
    admin.set_iam(Iam::open(store.clone(), options, Arc::clone(&clock) as Arc<dyn Clock>, entropy).unwrap());
    admin.set_phase(Phase::Serving(store.clone()));
    let handler = admin.handler();
    let peer = Peer { address: "192.0.2.1:4711".parse().unwrap(), tls: false };
    let ask = async |path: &str, token: &str, body: &str| {
        let request = Request::builder().method("POST").uri(path).header(header::CONTENT_TYPE, "application/json");
        let request = request.header(header::AUTHORIZATION, token).body(Body::from(body.to_owned())).unwrap();
        handler.audited(request, peer, audit.clone(), Arc::clone(&clock) as Arc<dyn Clock>).await.status()
    };
    let key = r#"{"account":null,"access_key":"TAKEN","secret_key":"over-from-elsewhere"}"#;
    let table = [
        ("/iam/user/create", "Bearer right", r#"{"name":"ann"}"#, StatusCode::OK),
        ("/iam/user/list", "Bearer right", "{}", StatusCode::OK),
        ("/iam/user/create", "Bearer right", r#"{"name":"ann"}"#, StatusCode::CONFLICT),
        ("/iam/key/create", "Bearer right", key, StatusCode::OK),
        ("/iam/user/list", "Bearer wrong", r#"{"name":"stranger"}"#, StatusCode::UNAUTHORIZED),
        ("/targets/drain", "Bearer right", r#"{"target":"/t0","dry_run":true}"#, StatusCode::OK),
    ];
    for (path, token, body, expected) in table {
        assert_eq!(ask(path, token, body).await, expected, "{path} {body}");
    }
    store.shutdown().await;
    drop((handler, admin, audit));
    writer.close();
    let text = std::fs::read_to_string(&path).unwrap();
    let shown = |line: &str| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!((line["peer"].as_str(), line["time"].as_str().is_some()), (Some("192.0.2.1:4711"), true));
        format!(
            "{} {} {} {} {}",
            line["operation"], line["outcome"], line["status"], line["principal"], line["request"]
        )
        .replace('"', "")
    };
    assert_eq!(
        text.lines().map(shown).collect::<Vec<_>>(),
        [
            "admin:user/create allowed 200 operator {name:ann}",
            "admin:user/create allowed 409 operator {name:ann}",
            "admin:key/create allowed 200 operator {access_key:TAKEN,secret_key:***}",
            "admin:user/list denied 401 null null",
            "admin:targets/drain allowed 200 operator {dry_run:true,target:/t0}",
        ]
    );
}
