//! `gabion server`: wiring, from settings to a running server and to its end.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gabion_platform::{Clock, OsEntropy, SystemClock};
use gabion_server::access_log::{AccessLog, AccessLogTarget, AccessLogWriter};
use gabion_server::admin::{Admin, Changes, Phase};
use gabion_server::audit::AuditLog;
use gabion_server::credentials::{Account, Credentials, SecretKey};
use gabion_server::http::{HttpLimits, HttpServer, Listener, Observer};
use gabion_server::iam::{Iam, IamOptions};
use gabion_server::inventory::{InventoryFigures, InventoryOptions};
use gabion_server::lifecycle::{DAY_MS, LifecycleFigures, LifecycleOptions};
use gabion_server::metrics::{AccessLogFigures, AuditFigures, ServerMetrics};
use gabion_server::notifications::{NotificationFigures, NotificationOptions};
use gabion_server::s3::{LogDeliveryFigures, LogDeliveryOptions, S3Options, S3Service};
use gabion_server::tls::ReloadingTls;
use gabion_store::{OpenReport, Progress, Store, StoreError};
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::config::{AccessLogChoice, Config, DomainName, ListenAddress};
use crate::deployment::{self, Deployment};
use crate::exit::Failure;
use crate::files::NamedFiles;
use crate::keys;
use crate::output;
use crate::state::CredentialsFrom;
use crate::targets::{Begin, Described, Opener, of_members};

/// Serves until a signal ends it.
///
/// # Errors
/// When the server can not start.
pub(crate) fn run(config: Config) -> Result<(), Failure> {
    crate::logging::start(&config)?;
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    if let Some(workers) = config.workers {
        runtime.worker_threads(workers);
    }
    let runtime = runtime
        .thread_name("gabion")
        .enable_all()
        .build()
        .map_err(|error| Failure::failed(format!("the threads can not be started: {error}")))?;
    runtime.block_on(serve(config))
}

/// What clients may do, from the settings.
pub(crate) fn limits(config: &Config) -> HttpLimits {
    HttpLimits {
        connections_max: config.limits_connections_max,
        header_timeout: config.limits_header_timeout.0,
        idle_timeout: config.limits_idle_timeout.0,
        progress_timeout: config.limits_progress_timeout.0,
        progress_bytes_min: config.limits_progress_bytes_min.0,
        header_count_max: config.limits_header_count_max,
        header_bytes_max: config.limits_header_bytes_max.in_memory(),
        buffer_bytes_max: config.limits_buffer_bytes_max.in_memory(),
        streams_max: u32::try_from(config.limits_streams_max).unwrap_or(u32::MAX),
        drain_timeout: config.limits_drain_timeout.0,
    }
}

async fn serve(config: Config) -> Result<(), Failure> {
    let mut signals = Signals::listen()?;
    let NamedFiles { tls, keys, seal_key, audit_webhook, notification_targets } = NamedFiles::read(&config)?;
    let stop_watching = CancellationToken::new();
    let _stop_watching = stop_watching.clone().drop_guard();
    // Whatever can be wrong is found before the log is replayed, which may take a while.
    let Deployment { state, targets, described, store: store_config, index } =
        Deployment::open(&config, Begin::IfEmpty).await?;
    let geometry = store_config.log.geometry;
    let (credentials, credentials_from) = state.credentials(&OsEntropy)?;
    let listeners = bind(&config.listen, tls.as_ref()).await?;
    let admin_listeners = bind(&config.admin_listen.0, None).await?;
    let (access_log, access_log_writer) = log_file(&config.access_log, "--access-log")?;
    let (audit_file, audit_writer) = log_file(&config.audit_log, "--audit-log")?;
    let (audit, audit_poster) = AuditLog::new(audit_file, audit_webhook);
    if let Some(tls) = &tls {
        tokio::spawn(Arc::clone(tls).watch(stop_watching.clone()));
    }

    let metrics = ServerMetrics::new();
    let mut registry = Registry::default();
    metrics.register(&mut registry);
    if let Some(access_log) = &access_log {
        registry.register_collector(Box::new(AccessLogFigures(access_log.clone())));
    }
    let lifecycle_figures = Arc::new(LifecycleFigures::default());
    lifecycle_figures.register(&mut registry);
    let inventory_figures = Arc::new(InventoryFigures::default());
    inventory_figures.register(&mut registry);
    let log_figures = LogDeliveryFigures::default();
    log_figures.register(&mut registry);
    let notifications = NotificationOptions {
        targets: notification_targets,
        queue_bytes: config.notifications_queue_bytes.0,
        when_full: config.notifications_when_full.0,
        records_per_message: config.notifications_records_per_message,
        figures: NotificationFigures::default(),
    };
    notifications.figures.register(&mut registry);
    registry.register_collector(Box::new(AuditFigures(audit.clone())));
    let changes = Changes::new(state.admin_token(&OsEntropy)?, Arc::new(Opener { driver: config.driver }));
    let admin = Admin::new(registry, env!("CARGO_PKG_VERSION"), Some(changes));
    let stop_admin = CancellationToken::new();
    let admin_server = HttpServer { handler: admin.handler(), limits: limits(&config), observer: None };
    let admin_addresses = addresses(&admin_listeners)?;
    let admin_task = tokio::spawn(admin_server.serve(admin_listeners, stop_admin.clone().cancelled_owned()));

    let opening =
        Store::open(store_config, targets, Box::new(index), deployment::env(), Arc::new(LoggedProgress::default()));
    let (store, report) = tokio::select! {
        opened = opening => opened.map_err(deployment::not_opened)?,
        () = signals.stop() => {
            tracing::info!("stopped before the store was open");
            return Ok(());
        }
    };
    log_report(&report);
    state.remember(&store.status().log.deployment)?;
    store.keep_keys(Arc::new(keys::with_site(keys, &store).await));
    let observer = Observer { clock: Arc::new(SystemClock), metrics, access_log };
    let iam = iam(&config, store.clone(), credentials, seal_key)?;
    admin.set_audit(audit.clone(), Arc::new(SystemClock));
    let service = service(&config, store.clone(), Arc::clone(&iam), log_figures, audit, notifications)?;
    let stop_tasks = CancellationToken::new();
    let stop_notifying = CancellationToken::new();
    let audit_posting = audit_poster.map(|poster| tokio::spawn(poster.run(stop_tasks.clone())));
    let lifecycle = {
        let (service, stop) = (service.clone(), stop_tasks.clone());
        let options = lifecycle_options(&config);
        tokio::spawn(async move { service.run_lifecycle(options, lifecycle_figures, stop).await })
    };
    let inventory = {
        let (service, stop) = (service.clone(), stop_tasks.clone());
        let options = InventoryOptions { debug_day_ms: debug_day_ms(&config) };
        tokio::spawn(async move { service.run_inventory(options, inventory_figures, stop).await })
    };
    let log_delivery = {
        let (service, stop) = (service.clone(), stop_tasks.clone());
        let interval_ms = u64::try_from(config.logging_interval.0.as_millis()).unwrap_or(u64::MAX);
        tokio::spawn(async move { service.run_log_delivery(LogDeliveryOptions { interval_ms }, stop).await })
    };
    let notifying = {
        let (service, stop) = (service.clone(), stop_notifying.clone());
        tokio::spawn(async move { service.run_notifications(stop).await })
    };
    let welcome = Welcome {
        addresses: addresses(&listeners)?,
        admin: admin_addresses,
        tls: tls.is_some(),
        region: &config.region.0,
        credentials: &credentials_from,
        geometry: geometry.to_string(),
        targets: of_members(described, &store.status().log.targets.into_iter().map(|target| target.name).collect()),
    };
    output::print(&welcome.text())?;
    admin.set_iam(iam);
    admin.set_phase(Phase::Serving(store.clone()));

    let stop = CancellationToken::new();
    let server = HttpServer { handler: service.clone(), limits: limits(&config), observer: Some(observer) };
    let mut serving = tokio::spawn(server.serve(listeners, stop.clone().cancelled_owned()));
    loop {
        tokio::select! {
            event = signals.next() => match event {
                Event::Stop => break,
                Event::Reopen => [&access_log_writer, &audit_writer].into_iter().flatten().for_each(AccessLogWriter::reopen),
            },
            outcome = &mut serving => {
                outcome.map_err(|error| Failure::failed(format!("the server failed: {error}")))?;
                return Err(Failure::failed("the server stopped by itself"));
            }
        }
    }
    tracing::info!("stopping: what is in flight is finished first; another signal stops at once");
    admin.set_phase(Phase::Stopping);
    stop.cancel();
    let finish = async {
        match serving.await {
            Ok(drained) if drained.cut > 0 => {
                tracing::warn!(cut = drained.cut, "connections were still busy after limits.drain_timeout and were cut")
            }
            Ok(_) => {}
            Err(error) => tracing::error!(%error, "the server failed while it stopped"),
        }
        // Before those are stopped who tell others of it.
        service.finish().await;
        stop_tasks.cancel();
        if let Err(error) = lifecycle.await {
            tracing::error!(%error, "the task for lifecycle rules failed");
        }
        if let Err(error) = inventory.await {
            tracing::error!(%error, "the task for inventories failed");
        }
        if let Some(posting) = audit_posting
            && let Err(error) = posting.await
        {
            tracing::error!(%error, "the audit log's poster failed");
        }
        if let Err(error) = log_delivery.await {
            tracing::error!(%error, "the task that delivers the logs of buckets failed");
        }
        // Of what the others did to the last, others are told.
        stop_notifying.cancel();
        if let Err(error) = notifying.await {
            tracing::error!(%error, "the task that delivers notifications failed");
        }
        store.shutdown().await;
        stop_admin.cancel();
        if let Err(error) = admin_task.await {
            tracing::error!(%error, "the admin page failed");
        }
    };
    tokio::select! {
        () = finish => {}
        () = signals.stop() => return Err(Failure::failed("stopped at once by a second signal; the next start replays the log")),
    }
    [access_log_writer, audit_writer].into_iter().flatten().for_each(AccessLogWriter::close);
    drop(state);
    tracing::info!("stopped");
    Ok(())
}

/// How long days are of lifecycle rules and inventories, if they are not as long as they are.
fn debug_day_ms(config: &Config) -> Option<u64> {
    let day_ms = u64::try_from(config.lifecycle_debug_day.0.as_millis()).unwrap_or(u64::MAX);
    (day_ms != DAY_MS).then_some(day_ms)
}

fn lifecycle_options(config: &Config) -> LifecycleOptions {
    LifecycleOptions {
        debug_day_ms: debug_day_ms(config),
        deletions_per_second: u32::try_from(config.lifecycle_deletions_per_s).unwrap_or(u32::MAX),
    }
}

/// Users and policies, as they are stored.
fn iam(config: &Config, store: Store, root: Credentials, seal_key: Option<SecretKey>) -> Result<Arc<Iam>, Failure> {
    let derived = Account::first(&store.status().log.deployment);
    let first_account = Account {
        id: config.iam_account_id.clone().unwrap_or(derived.id),
        canonical_id: config.iam_canonical_id.clone().unwrap_or(derived.canonical_id),
        ..derived
    };
    let options = IamOptions { root, first_account, seal_key, near_providers: config.iam_near_providers };
    Iam::open(store, options, Arc::new(SystemClock), Arc::new(OsEntropy)).map_err(|error| match error {
        StoreError::InvalidRequest(why) => Failure::config(why),
        other => Failure::failed(format!("users and policies can not be read: {other}")),
    })
}

fn service(
    config: &Config,
    store: Store,
    iam: Arc<Iam>,
    log_figures: LogDeliveryFigures,
    audit: AuditLog,
    notifications: NotificationOptions,
) -> Result<S3Service, Failure> {
    let options = S3Options {
        region: config.region.0.clone(),
        domains: domains(&config.domain),
        website_domains: domains(&config.website_domain),
        sigv2: config.sigv2,
        customer_keys: config.encryption_customer_keys.0,
        default_encryption: config.encryption_default.0,
        fast_path: true,
        object_ownership: config.object_ownership,
        log_figures,
        audit,
        notifications,
    };
    S3Service::with_iam(store, iam, options, Arc::new(SystemClock), &OsEntropy)
        .map_err(|error| Failure::config(error.to_string()))
}

fn domains(given: &[DomainName]) -> Vec<String> {
    given.iter().map(|DomainName(domain)| domain.clone()).collect()
}

async fn bind(listen: &[ListenAddress], tls: Option<&Arc<ReloadingTls>>) -> Result<Vec<Listener>, Failure> {
    let mut listeners = Vec::with_capacity(listen.len());
    for ListenAddress(address) in listen {
        let tcp = TcpListener::bind(address).await.map_err(|error| {
            Failure::failed(format!(
                "can not listen on {address}: {error}; choose another address with --listen or --admin-listen"
            ))
        })?;
        listeners.push(Listener { tcp, tls: tls.cloned() });
    }
    Ok(listeners)
}

fn addresses(listeners: &[Listener]) -> Result<Vec<String>, Failure> {
    listeners
        .iter()
        .map(|listener| match listener.tcp.local_addr() {
            Ok(address) => Ok(address.to_string()),
            Err(error) => Err(Failure::failed(format!("a listening socket has no address: {error}"))),
        })
        .collect()
}

fn log_file(choice: &AccessLogChoice, flag: &str) -> Result<(Option<AccessLog>, Option<AccessLogWriter>), Failure> {
    let target = match choice {
        AccessLogChoice::Off => return Ok((None, None)),
        AccessLogChoice::Stdout => AccessLogTarget::Stdout,
        AccessLogChoice::File(path) => AccessLogTarget::File(path.clone()),
    };
    let (log, writer) = AccessLog::open(target).map_err(|error| {
        let path = match choice {
            AccessLogChoice::File(path) => format!("{}: ", path.display()),
            _ => String::new(),
        };
        Failure::failed(format!("the log can not be opened: {path}{error}; see {flag}"))
    })?;
    Ok((Some(log), Some(writer)))
}

/// What is said at the start, on standard output.
struct Welcome<'a> {
    addresses: Vec<String>,
    admin: Vec<String>,
    tls: bool,
    region: &'a str,
    credentials: &'a CredentialsFrom,
    geometry: String,
    targets: Vec<Described>,
}

impl Welcome<'_> {
    fn text(&self) -> String {
        let mut out = String::new();
        let scheme = if self.tls { "https" } else { "http" };
        // Writing to a String can not fail.
        for address in &self.addresses {
            let _ = writeln!(out, "endpoint:    {scheme}://{address}");
        }
        for address in &self.admin {
            let _ = writeln!(out, "admin:       http://{address}");
        }
        let _ = writeln!(out, "region:      {}", self.region);
        let credentials = match self.credentials {
            CredentialsFrom::Environment => "from the environment".to_owned(),
            CredentialsFrom::File(path) => path.display().to_string(),
            CredentialsFrom::Generated(path) => format!("{} (just generated)", path.display()),
        };
        let _ = writeln!(out, "credentials: {credentials}");
        let _ = writeln!(out, "geometry:    {}", self.geometry);
        for target in &self.targets {
            let _ = writeln!(out, "target:      {target}");
        }
        out
    }
}

fn log_report(report: &OpenReport) {
    for warning in &report.warnings {
        tracing::warn!("{warning}");
    }
    if let Some(reason) = &report.index_rebuilt {
        tracing::warn!(%reason, "the index was rebuilt from the segments");
    }
    if report.segments_unreadable > 0 {
        tracing::error!(
            segments = report.segments_unreadable,
            "segments can not be read, or not all of them: more of their shards are lost, damaged or silent than parity replaces"
        );
    }
    tracing::info!(
        segments = report.segments,
        mutations_replayed = report.mutations_replayed,
        stripes_rolled_forward = report.stripes_rolled_forward,
        stripes_voided = report.stripes_voided,
        "the store is open"
    );
}

/// Says every few seconds how far a long replay is.
#[derive(Default)]
struct LoggedProgress {
    said_ns: AtomicU64,
}

impl Progress for LoggedProgress {
    fn replayed(&self, mutations: u64, bytes_done: u64, bytes_total: u64) {
        const EVERY_NS: u64 = 5_000_000_000;
        let now_ns = SystemClock.monotonic_ns();
        let said_ns = self.said_ns.load(Ordering::Relaxed);
        if said_ns == 0 {
            // The first report starts the clock: a short replay says nothing.
            self.said_ns.store(now_ns.max(1), Ordering::Relaxed);
        } else if now_ns.saturating_sub(said_ns) >= EVERY_NS {
            self.said_ns.store(now_ns, Ordering::Relaxed);
            tracing::info!(mutations, bytes_done, bytes_total, "replaying the log");
        }
    }
}

/// The signals that a server listens to.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

/// What a signal asks for.
enum Event {
    Stop,
    Reopen,
}

impl Signals {
    fn listen() -> Result<Self, Failure> {
        let listen =
            |kind| signal(kind).map_err(|error| Failure::failed(format!("signals can not be received: {error}")));
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            hangup: listen(SignalKind::hangup())?,
        })
    }

    /// Resolves at a signal to stop.
    async fn stop(&mut self) {
        while !matches!(self.next().await, Event::Stop) {}
    }

    async fn next(&mut self) -> Event {
        tokio::select! {
            _ = self.terminate.recv() => Event::Stop,
            _ = self.interrupt.recv() => Event::Stop,
            _ = self.hangup.recv() => Event::Reopen,
        }
    }
}
