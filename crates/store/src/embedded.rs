//! The index that the program comes with.

use std::{path::PathBuf, sync::Arc};

use gabion_metadata::{CachedIndex, FjallIndex, Index, IndexError, IndexOptions};

use crate::IndexFactory;

/// Opens fjall in a directory, with a row cache in front.
#[derive(Debug)]
pub struct EmbeddedIndex {
    dir: PathBuf,
    options: IndexOptions,
}

impl EmbeddedIndex {
    /// The index in `dir`, which need not be there.
    pub fn new(dir: impl Into<PathBuf>, options: IndexOptions) -> Self {
        Self { dir: dir.into(), options }
    }
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
