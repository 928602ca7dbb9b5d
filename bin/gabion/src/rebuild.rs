//! `gabion rebuild-index`: the index anew from the segments, with a progress bar; or a comparison of the one that is there.

use std::sync::Arc;
use std::time::Duration;

use gabion_store::{OpenReport, Progress, RowFault, Store};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::config::Config;
use crate::deployment::{self, Deployment};
use crate::exit::Failure;
use crate::index;
use crate::output;
use crate::targets::Begin;

/// What is wanted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    /// A comparison, and no new index.
    pub(crate) verify: bool,
    /// To read everything.
    pub(crate) without_snapshot: bool,
}

/// Rebuilds and reports.
///
/// # Errors
/// When a server runs on the state directory, the targets can not be used, or a comparison found rows that differ.
pub(crate) fn run(config: Config, wish: Wish) -> Result<(), Failure> {
    crate::logging::start(&config)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::failed(format!("the threads can not be started: {error}")))?;
    runtime.block_on(async {
        let mut deployment = Deployment::open(&config, Begin::Never).await?;
        deployment.store.index_snapshot_restore = !wish.without_snapshot;
        if wish.verify { verify(deployment, &config).await } else { rebuild(deployment, &config).await }
    })
}

/// Beside the one that is there, which stays until the other is complete.
async fn rebuild(deployment: Deployment, config: &Config) -> Result<(), Failure> {
    let Deployment { state, targets, store, .. } = deployment;
    // Rather now than when all is built.
    index::check_replaceable(&state.dir)
        .map_err(|error| Failure::failed(format!("the index can not be rebuilt: {error}")))?;
    index::tidy(&state.dir)
        .map_err(|error| Failure::failed(format!("what is left of an earlier rebuild can not be deleted: {error}")))?;
    let index = index::successor(&state.dir, config);
    let bar = Arc::new(Bar::new());
    let progress: Arc<dyn Progress> = Arc::clone(&bar) as Arc<dyn Progress>;
    let rebuilt = Store::rebuild_index(store, targets, Box::new(index), deployment::env(), progress).await;
    bar.0.finish_and_clear();
    let report = rebuilt.map_err(|error| {
        // What there is of it takes room, and is of no use to anybody.
        if let Err(error) = index::tidy(&state.dir) {
            tracing::debug!(%error, "the index that was begun is not deleted");
        }
        deployment::not_opened(error)
    })?;
    index::succeed(&state.dir).map_err(|error| {
        Failure::failed(format!("the new index is complete, and can not take the place of the old one: {error}"))
    })?;
    drop(state);
    warn(&report.open);
    output::print(&format!(
        "index rebuilt: {} buckets, {} objects, from {} rows of its snapshot and {} mutations in {} segments\n",
        report.buckets, report.objects, report.open.rows_restored, report.open.mutations_replayed, report.open.segments
    ))
}

async fn verify(deployment: Deployment, config: &Config) -> Result<(), Failure> {
    let Deployment { state, targets, store, index, .. } = deployment;
    let scratch = index::scratch(&state.dir, config);
    let bar = Arc::new(Bar::new());
    let progress: Arc<dyn Progress> = Arc::clone(&bar) as Arc<dyn Progress>;
    let verified =
        Store::verify_index(store, targets, Box::new(index), Box::new(scratch), deployment::env(), progress).await;
    bar.0.finish_and_clear();
    // What is left of it is an empty directory.
    let _ = std::fs::remove_dir(index::scratch_dir(&state.dir));
    let report = verified.map_err(deployment::not_opened)?;
    drop(state);
    warn(&report.rebuilt);
    for difference in &report.differences {
        let fault = match difference.fault {
            RowFault::Missing => "missing",
            RowFault::Surplus => "surplus",
            RowFault::Different => "different",
        };
        output::print(&format!("{fault}: {} {}\n", difference.table, difference.key.escape_ascii()))?;
    }
    output::print(&format!(
        "index verified: {} rows compared, {} differ; the other was built from {} rows of a snapshot and {} mutations\n",
        report.rows, report.differing, report.rebuilt.rows_restored, report.rebuilt.mutations_replayed
    ))?;
    match report.differing {
        0 => Ok(()),
        count => Err(Failure::failed(format!("{count} rows of the index are not what the log says"))),
    }
}

fn warn(report: &OpenReport) {
    for warning in &report.warnings {
        tracing::warn!("{warning}");
    }
    if report.segments_unreadable > 0 {
        tracing::error!(
            segments = report.segments_unreadable,
            "segments can not be read, or not all of them; what only they hold is not in the index"
        );
    }
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
