//! What a server and a rebuild have in common: targets, state directory and settings, ready for the store.

use std::path::PathBuf;
use std::sync::Arc;

use gabion_platform::{OsEntropy, SystemClock, raise_open_files_limit};
use gabion_segment::{LogConfig, LogTarget};
use gabion_store::{CompactionConfig, EmbeddedIndex, Env, StoreConfig, StoreError};

use crate::config::{ByteCount, Config, place};
use crate::exit::Failure;
use crate::index;
use crate::state::{self, State};
use crate::targets::{self, Begin, Described};

/// Shard files that reads keep open: a quarter of what the process may have, the rest is for connections, lanes and the index.
const OPEN_FILES_MIN: usize = 128;
const OPEN_FILES_MAX: usize = 16 * 1024;

/// A deployment whose store can be opened.
#[derive(Debug)]
pub(crate) struct Deployment {
    /// The state directory, which is ours as long as this lives.
    pub(crate) state: State,
    /// The targets.
    pub(crate) targets: Vec<LogTarget>,
    /// What was found of each.
    pub(crate) described: Vec<Described>,
    /// Settings of the store.
    pub(crate) store: StoreConfig,
    /// The index in the state directory.
    pub(crate) index: EmbeddedIndex,
}

impl Deployment {
    /// Opens the targets and takes the state directory.
    ///
    /// # Errors
    /// When the targets or the state directory can not be used, or contradict the configuration.
    pub(crate) async fn open(config: &Config, begin: Begin) -> Result<Self, Failure> {
        // The default state directory lies in a target, and is missing where the target is.
        let remembered = match &config.state {
            Some(dir) => state::deployment(dir)?,
            None => None,
        };
        check_state(config)?;
        let opened = targets::open(config, remembered, begin).await?;
        let geometry = targets::geometry(opened.stored_geometry, config.geometry, opened.targets.len())?;
        if let Some(broken) = config.broken_with(geometry) {
            return Err(Failure::config(broken));
        }
        let state = match &config.state {
            Some(dir) => dir.clone(),
            None if opened.first_is_member => default_state(config)?,
            None => {
                return Err(Failure::targets(format!(
                    "the first target {} is missing or empty, and with it the state directory: name another target first to begin with an \
                     empty state there (the index is then rebuilt, and new credentials are made unless they are in the environment), or give --state",
                    opened.targets[0].name
                )));
            }
        };
        let state = State::open(&state)?;
        if let Err(error) = index::tidy(&state.dir) {
            tracing::warn!(%error, "what an unfinished rebuild of the index has left is not deleted");
        }
        let index = index::present(&state.dir, config);
        let mut store = store_config(config, geometry, raise_open_files_limit());
        store.log.expected_deployment = state::deployment(&state.dir)?;
        Ok(Self { state, targets: opened.targets, described: opened.described, store, index })
    }
}

/// # Errors
/// When the state directory is a target: each has a lock of the same name.
fn check_state(config: &Config) -> Result<(), Failure> {
    let state = config.state.as_deref().map(place);
    match config.targets.iter().find(|target| Some(place(target)) == state) {
        None => Ok(()),
        Some(target) => Err(Failure::config(format!(
            "{} is given as a target and as the state directory: give another with --state, beside the targets or below one",
            target.display()
        ))),
    }
}

fn default_state(config: &Config) -> Result<PathBuf, Failure> {
    let first = config.targets.first().ok_or_else(|| Failure::config("no targets are given"))?;
    Ok(first.join("state"))
}

/// The store's settings.
fn store_config(config: &Config, geometry: gabion_types::Geometry, open_files: usize) -> StoreConfig {
    let mut log = LogConfig::new(geometry);
    log.open_files_max = (open_files / 4).clamp(OPEN_FILES_MIN, OPEN_FILES_MAX);
    log.durability = config.durability;
    log.small_lanes = config.lanes_small;
    log.large_lanes = config.lanes_large;
    log.segment_payload_bytes = config.segment_payload_bytes.0;
    log.stripe_payload_bytes = config.segment_stripe_bytes.map_or(log.stripe_payload_bytes, ByteCount::in_memory);
    log.stripe_memory_bytes = config.memory_stripe_bytes.0;
    log.prewrite_records_max = config.segment_prewrite_records;
    log.target_reserve_bytes = config.segment_target_reserve_bytes.0;
    log.warm_bytes = config.memory_warm_bytes.0;
    log.upkeep.repair_delay_ms = config.repair_delay.millis();
    log.upkeep.repair_bytes_per_s = config.repair_bytes_per_s.0;
    log.upkeep.repair_concurrency = config.repair_concurrency;
    log.upkeep.scrub_bytes_per_s = config.scrub_bytes_per_s.0;
    let mut store = StoreConfig::new(log);
    store.region.clone_from(&config.region.0);
    store.etag = config.etag;
    store.checkpoint_interval_ms = config.checkpoint_interval.millis();
    store.index_reserve_bytes = config.index_reserve_bytes.0;
    store.index_snapshot_bytes = config.index_snapshot_bytes.0;
    store.index_snapshot_interval_h = config.index_snapshot_interval_hours as u64;
    store.memory_wait_ms = config.memory_wait.millis();
    store.scrub_interval_h = config.scrub_interval_hours as u64;
    store.checkpoint_bytes = config.checkpoint_bytes.0;
    store.put_memory_bytes = config.memory_put_bytes.0;
    store.read_memory_bytes = config.memory_read_bytes.0;
    store.read_ahead_stripes = config.memory_read_ahead_stripes;
    store.compaction = CompactionConfig {
        live_ratio_max: config.compaction_live_ratio_max.0,
        bytes_per_s: config.compaction_bytes_per_s.0,
        interval_ms: config.compaction_interval.millis(),
        punch_holes: config.compaction_punch_holes,
        writers_wait_ms: config.compaction_writers_wait.millis(),
        round_bytes_max: config.compaction_round_bytes.0,
    };
    store
}

/// The real world.
pub(crate) fn env() -> Env {
    Env { clock: Arc::new(SystemClock), entropy: Arc::new(OsEntropy) }
}

/// Why a store did not open, as the program's end.
pub(crate) fn not_opened(error: StoreError) -> Failure {
    match error {
        StoreError::Unavailable(why) => Failure::targets(why),
        StoreError::InvalidRequest(why) => Failure::config(why),
        other => Failure::failed(format!("the store can not be opened: {other}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Layers;

    #[test]
    fn the_state_directory_is_no_target() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("a");
        std::fs::create_dir(&target).unwrap();
        let checked = |state: PathBuf| {
            let texts = |path: &std::path::Path| vec![path.display().to_string()];
            let flags = [("targets", texts(&target)), ("state", texts(&state))].into();
            check_state(&Config::read(&Layers { flags, ..Layers::default() }.resolve()).unwrap())
        };
        let failure = checked(dir.path().join("a/../a")).unwrap_err().to_string();
        assert!(failure.contains("as a target and as the state directory"), "{failure}");
        checked(target.join("state")).unwrap();
        checked(dir.path().join("other")).unwrap();
    }
}
