//! The index in the state directory.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use gabion_metadata::{CachedIndex, FjallIndex, Index, IndexError, IndexOptions};
use gabion_store::IndexFactory;

use crate::config::Config;

/// Opens fjall with a row cache in front, in `STATE/index`.
#[derive(Debug)]
pub(crate) struct EmbeddedIndex {
    dir: PathBuf,
    options: IndexOptions,
}

impl EmbeddedIndex {
    /// The index of a state directory.
    pub(crate) fn new(state: &Path, config: &Config) -> Self {
        Self::at(dir(state), config)
    }

    /// Another one, beside it, that is there for a while.
    pub(crate) fn scratch(state: &Path, config: &Config) -> Self {
        Self::at(Self::scratch_dir(state), config)
    }

    /// Where that one lies.
    pub(crate) fn scratch_dir(state: &Path) -> PathBuf {
        state.join("index.verify")
    }

    fn at(dir: PathBuf, config: &Config) -> Self {
        let options = IndexOptions {
            cache_bytes: config.index_cache_bytes.0,
            journal_bytes_max: config.index_journal_bytes.0,
            row_cache_bytes: config.index_row_cache_bytes.0,
        };
        Self { dir, options }
    }
}

/// Where the index of a state directory lies.
pub(crate) fn dir(state: &Path) -> PathBuf {
    state.join("index")
}

impl IndexFactory for EmbeddedIndex {
    fn open(&self) -> Result<Arc<dyn Index>, IndexError> {
        let engine = FjallIndex::open(&self.dir, self.options)?;
        Ok(Arc::new(CachedIndex::new(engine, self.options.row_cache_bytes)))
    }

    fn destroy(&self) -> Result<(), IndexError> {
        FjallIndex::remove(&self.dir)
    }
}
