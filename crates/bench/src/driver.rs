//! A whole run: prepare, measure, report, clean up.

use std::{
    io::Write,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, bail};
use tokio::task::JoinSet;

use crate::{
    cli::{Cli, Operation},
    clock::Stamp,
    connection::{Connection, Endpoint},
    content::Content,
    report::Report,
    s3::{Client, Failure},
    sign::Identity,
    stats::Stats,
    worker::{End, Load, Worker},
};

/// Runs the load that `cli` describes and writes its report. Starts a runtime of its own: not to be called from within one.
///
/// # Errors
/// When the endpoint can not be reached or refuses the preparation, when no operation succeeded, or when a body read was not
/// the one written.
pub fn run(cli: Cli) -> anyhow::Result<()> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(cli.threads.unwrap_or(cores.min(4)).max(1))
        .enable_all()
        .build()
        .context("starting the client's threads")?;
    runtime.block_on(run_all(&cli))
}

async fn run_all(cli: &Cli) -> anyhow::Result<()> {
    let factory = ClientFactory::new(cli)?;
    let mut client = factory.client();
    let created = client.create_bucket().await.with_context(|| format!("preparing the bucket {:?}", cli.bucket))?;
    let load = measure_after_preparation(cli, &factory).await;
    let cleaned = if cli.keep { Ok(()) } else { clean_up(cli, &mut client, created).await };
    let stats = load?;
    publish(cli, &Report::new(cli, &stats))?;
    cleaned.context("removing what was written")?;
    judge(&stats)
}

/// Makes clients, one per worker.
struct ClientFactory {
    endpoint: Endpoint,
    timeout: Duration,
    identity: Identity,
    bucket: String,
}

impl ClientFactory {
    fn new(cli: &Cli) -> anyhow::Result<Self> {
        let pick = |flag: &Option<String>, names: [&str; 2], what: &str| {
            let from_environment = || names.iter().find_map(|name| std::env::var(name).ok());
            flag.clone()
                .or_else(from_environment)
                .with_context(|| format!("no {what}: give {} or {} in the environment", names[0], names[1]))
        };
        Ok(Self {
            endpoint: Endpoint::parse(&cli.endpoint)?,
            timeout: cli.timeout,
            identity: Identity {
                access_key: pick(&cli.access_key, ["GABION_ACCESS_KEY", "AWS_ACCESS_KEY_ID"], "access key")?,
                secret_key: pick(&cli.secret_key, ["GABION_SECRET_KEY", "AWS_SECRET_ACCESS_KEY"], "secret key")?,
                region: cli.region.clone(),
            },
            bucket: cli.bucket.clone(),
        })
    }

    fn client(&self) -> Client {
        let connection = Connection::new(self.endpoint.clone(), self.timeout);
        Client::new(connection, self.identity.clone(), &self.bucket)
    }
}

async fn measure_after_preparation(cli: &Cli, factory: &ClientFactory) -> anyhow::Result<Stats> {
    let mut load = Load {
        operation: cli.operation,
        content: Content::new(cli.seed),
        prefix: cli.prefix.clone(),
        size: cli.size,
        seed: cli.seed,
        workers: cli.concurrency as usize,
        payload: cli.payload,
        verify: !cli.no_verify,
        prepared: cli.prepared_objects(),
        next_delete: AtomicU64::new(0),
        begun: AtomicU64::new(0),
        start: Stamp::now(),
        end: End::After(0),
    };
    if !cli.no_prepare {
        load = prepare(load, factory).await.context("writing the objects that the load needs")?;
    }
    // Every object can be deleted once: a warm-up would only use them up.
    let warmup = if cli.operation == Operation::Delete { Duration::ZERO } else { cli.warmup };
    load.start = Stamp::now().plus(warmup);
    load.end = cli.count.map_or_else(|| End::At(load.start.plus(cli.duration)), End::After);
    let load = Arc::new(load);
    let mut workers = JoinSet::new();
    for number in 0..load.workers {
        let worker = Worker::new(number, factory.client(), &load);
        let load = Arc::clone(&load);
        workers.spawn(async move { worker.run(&load).await });
    }
    let mut stats = Stats::new(load.start);
    while let Some(worker) = workers.join_next().await {
        stats.merge(&worker.context("a worker panicked")?);
    }
    Ok(stats)
}

/// Writes the prepared objects with all workers.
async fn prepare(load: Load, factory: &ClientFactory) -> anyhow::Result<Load> {
    let load = Arc::new(load);
    let next = Arc::new(AtomicU64::new(0));
    let mut workers = JoinSet::new();
    for _ in 0..load.workers.min(usize::try_from(load.prepared).unwrap_or(usize::MAX)) {
        let (load, next, mut client) = (Arc::clone(&load), Arc::clone(&next), factory.client());
        workers.spawn(async move {
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= load.prepared {
                    return Ok(());
                }
                let key = load.key(index);
                load.put(&mut client, &key).await.1.with_context(|| format!("put {key}"))?;
            }
        });
    }
    while let Some(worker) = workers.join_next().await {
        let done: anyhow::Result<()> = worker.context("a worker panicked")?;
        done?;
    }
    Ok(Arc::into_inner(load).expect("all workers have ended"))
}

/// Deletes every object under the prefix, and the bucket if this run created it.
async fn clean_up(cli: &Cli, client: &mut Client, created: bool) -> Result<(), Failure> {
    loop {
        let page = client.within_limit(async |client| client.list(&cli.prefix, None).await).await?;
        if page.keys.is_empty() {
            break;
        }
        client.within_limit(async |client| client.delete_keys(&page.keys).await).await?;
    }
    if created { client.within_limit(async |client| client.delete_bucket().await).await } else { Ok(()) }
}

fn publish(cli: &Cli, report: &Report) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout().lock();
    match &cli.json {
        Some(path) if path.as_os_str() == "-" => {
            serde_json::to_writer_pretty(&mut stdout, report)?;
            writeln!(stdout)?;
        }
        Some(path) => {
            std::fs::write(path, serde_json::to_vec_pretty(report)?).with_context(|| path.display().to_string())?;
            write!(stdout, "{}", report.text())?;
        }
        None => write!(stdout, "{}", report.text())?,
    }
    stdout.flush()?;
    Ok(())
}

/// A load that did nothing right, or read wrong bytes, is no measurement.
fn judge(stats: &Stats) -> anyhow::Result<()> {
    let mismatches: u64 = stats.series.values().filter_map(|series| series.errors.get(&Failure::Mismatch.kind())).sum();
    if mismatches > 0 {
        bail!("{mismatches} objects were not read as they were written");
    }
    if stats.series.values().all(|series| series.latency_ns.is_empty()) {
        bail!("no operation succeeded");
    }
    Ok(())
}
