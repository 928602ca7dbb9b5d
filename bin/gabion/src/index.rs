//! The index in the state directory.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use gabion_metadata::{IndexError, IndexOptions};
use gabion_store::EmbeddedIndex;

use crate::config::Config;

/// The index of a state directory.
pub(crate) fn present(state: &Path, config: &Config) -> EmbeddedIndex {
    embedded(dir(state), config)
}

/// Another one, beside it, that is there for a while.
pub(crate) fn scratch(state: &Path, config: &Config) -> EmbeddedIndex {
    embedded(scratch_dir(state), config)
}

/// One that is to take the place of the present one when it is complete.
pub(crate) fn successor(state: &Path, config: &Config) -> EmbeddedIndex {
    embedded(successor_dir(state), config)
}

fn embedded(dir: PathBuf, config: &Config) -> EmbeddedIndex {
    let options = IndexOptions {
        cache_bytes: config.index_cache_bytes.0,
        journal_bytes_max: config.index_journal_bytes.0,
        row_cache_bytes: config.index_row_cache_bytes.0,
    };
    EmbeddedIndex::new(dir, options)
}

/// Deletes what a rebuild has left that did not come to its end, and what it has replaced.
///
/// # Errors
/// Those of the file system.
pub(crate) fn tidy(state: &Path) -> Result<(), IndexError> {
    for dir in [successor_dir(state), predecessor_dir(state)] {
        match fs::remove_dir_all(dir) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
    }
    Ok(())
}

/// Whether one can take the place of the present one, which goes by names: before hours are spent on it.
///
/// # Errors
/// A sentence, if the present one is not an ordinary directory of the state directory; and those of the file system.
pub(crate) fn check_replaceable(state: &Path) -> io::Result<()> {
    let place = dir(state);
    let found = match fs::symlink_metadata(&place) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    let what = if found.is_symlink() {
        "a symbolic link"
    } else if found.dev() != fs::metadata(state)?.dev() {
        "a mount point"
    } else {
        return Ok(());
    };
    Err(io::Error::other(format!(
        "{place} is {what}, and another directory can not take its place; delete what is in it, and the next start builds the index there \
         (or give another drive to the whole state directory)",
        place = place.display()
    )))
}

/// Puts it there. Nobody has either of them open. A crash between the steps leaves no index, which the next start builds from the log.
///
/// # Errors
/// Those of the file system, and of the index.
pub(crate) fn succeed(state: &Path) -> Result<(), IndexError> {
    // Before anything is deleted: the directory may be one that can not be renamed.
    match fs::rename(dir(state), predecessor_dir(state)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    if let Err(error) = fs::rename(successor_dir(state), dir(state)) {
        // The one that was there is better than none.
        let _ = fs::rename(predecessor_dir(state), dir(state));
        return Err(error.into());
    }
    File::open(state)?.sync_all()?;
    if let Err(error) = tidy(state) {
        tracing::warn!(%error, "the index that was replaced is not deleted");
    }
    Ok(())
}

/// Where the index of a state directory lies.
pub(crate) fn dir(state: &Path) -> PathBuf {
    state.join("index")
}

/// Where one lies that is there for a while.
pub(crate) fn scratch_dir(state: &Path) -> PathBuf {
    state.join("index.verify")
}

/// Where an index lies that is not complete yet.
fn successor_dir(state: &Path) -> PathBuf {
    state.join("index.new")
}

/// Where the one lies that is being replaced.
fn predecessor_dir(state: &Path) -> PathBuf {
    state.join("index.old")
}
