//! `gabion rebuild-index`: the index anew from the segments, with a progress bar.

use std::sync::Arc;
use std::time::Duration;

use gabion_store::{Progress, Store};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::config::Config;
use crate::deployment::{self, Deployment};
use crate::exit::Failure;
use crate::output;

/// Rebuilds and reports.
///
/// # Errors
/// When a server runs on the state directory, or the targets can not be used.
pub(crate) fn run(config: Config) -> Result<(), Failure> {
    crate::logging::start(&config)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::failed(format!("the threads can not be started: {error}")))?;
    runtime.block_on(rebuild(config))
}

async fn rebuild(config: Config) -> Result<(), Failure> {
    let Deployment { state, targets, store, index, .. } = Deployment::open(&config).await?;
    let bar = Arc::new(Bar::new());
    let progress: Arc<dyn Progress> = Arc::clone(&bar) as Arc<dyn Progress>;
    let rebuilt = Store::rebuild_index(store, targets, Box::new(index), deployment::env(), progress).await;
    bar.0.finish_and_clear();
    let report = rebuilt.map_err(deployment::not_opened)?;
    drop(state);
    for warning in &report.open.warnings {
        tracing::warn!("{warning}");
    }
    if report.open.segments_unreadable > 0 {
        tracing::error!(
            segments = report.open.segments_unreadable,
            "segments have too few shards left to be read; what only they hold is not in the index"
        );
    }
    output::print(&format!(
        "index rebuilt: {} buckets, {} objects, from {} mutations in {} segments\n",
        report.buckets, report.objects, report.open.mutations_replayed, report.open.segments
    ))
}

struct Bar(ProgressBar);

impl Bar {
    fn new() -> Self {
        let style =
            ProgressStyle::with_template("{spinner} {bar:40} {bytes}/{total_bytes} {bytes_per_sec} eta {eta} {msg}")
                .expect("the template is well formed");
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10)).with_style(style);
        bar.enable_steady_tick(Duration::from_millis(100));
        Self(bar)
    }
}

impl Progress for Bar {
    fn replayed(&self, mutations: u64, bytes_done: u64, bytes_total: u64) {
        self.0.set_length(bytes_total);
        self.0.set_position(bytes_done);
        self.0.set_message(format!("{mutations} mutations"));
    }
}
