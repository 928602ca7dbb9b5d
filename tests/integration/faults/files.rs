//! Files, damaged.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use gabion_tests::Server;

/// Where in a shard file (`docs/FORMAT.md`).
#[derive(Clone, Copy)]
pub(super) enum Place {
    /// The header block.
    Header,
    /// The header of the first chunk.
    ChunkHeader,
    /// The payload of the first chunk.
    Payload,
    /// A bit in every block after the header.
    Everywhere,
    /// The last block, which is the seal if there is one.
    End,
}

const BLOCK_BYTES: usize = 4096;

impl Place {
    fn offsets(self, len: usize) -> Vec<usize> {
        let offsets = match self {
            Place::Header => vec![20],
            Place::ChunkHeader => vec![BLOCK_BYTES + 30],
            Place::Payload => vec![BLOCK_BYTES + 300],
            Place::Everywhere => (BLOCK_BYTES..len).step_by(BLOCK_BYTES).map(|block| block + 77).collect(),
            Place::End => vec![len.saturating_sub(BLOCK_BYTES) + 20],
        };
        offsets.into_iter().filter(|offset| *offset < len).collect()
    }
}

/// All files below a directory, in order.
pub(super) fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display())) {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            found.extend(files(&entry.path()));
        } else {
            found.push(entry.path());
        }
    }
    found.sort();
    found
}

/// The shard files of these targets.
pub(super) fn shard_files(server: &Server, targets: &[usize]) -> Vec<PathBuf> {
    targets.iter().flat_map(|target| files(&server.targets()[*target].join("segments"))).collect()
}

/// The shard files, of all targets, that are these shards of their segments.
pub(super) fn shards(server: &Server, wanted: &[&str]) -> Vec<PathBuf> {
    let all: Vec<usize> = (0..server.targets().len()).collect();
    let is_wanted = |path: &PathBuf| path.extension().is_some_and(|shard| wanted.iter().any(|other| shard == *other));
    shard_files(server, &all).into_iter().filter(is_wanted).collect()
}

/// Nothing where the file is gone: a running server frees segments.
///
/// # Panics
/// At any other error.
fn unless_gone<T>(path: &Path, outcome: io::Result<T>) -> Option<T> {
    match outcome {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        outcome => Some(outcome.unwrap_or_else(|error| panic!("{}: {error}", path.display()))),
    }
}

/// Damages those that are there, of which there must be one.
fn damage(paths: &[PathBuf], one: impl Fn(&Path) -> Option<()>) {
    assert!(paths.iter().filter_map(|path| one(path)).count() > 0, "there is nothing to damage");
}

/// Writes each anew with other bytes.
fn rewrite(paths: &[PathBuf], change: impl Fn(&mut [u8])) {
    damage(paths, |path| {
        let mut bytes = unless_gone(path, fs::read(path))?;
        change(&mut bytes);
        let mut file = unless_gone(path, fs::File::options().write(true).truncate(true).open(path))?;
        file.write_all(&bytes).unwrap();
        Some(())
    });
}

/// Flips a bit at every offset of a place.
pub(super) fn flip(paths: &[PathBuf], place: Place) {
    rewrite(paths, |bytes| place.offsets(bytes.len()).into_iter().for_each(|offset| bytes[offset] ^= 0x10));
}

/// Flips a bit in the middle of each.
pub(super) fn flip_middle(paths: &[PathBuf]) {
    rewrite(paths, |bytes| {
        let middle = bytes.len() / 2;
        if let Some(byte) = bytes.get_mut(middle) {
            *byte ^= 0x10;
        }
    });
}

/// Cuts each to what `len` makes of its length.
pub(super) fn truncate(paths: &[PathBuf], len: fn(u64) -> u64) {
    damage(paths, |path| {
        let file = unless_gone(path, fs::File::options().write(true).open(path))?;
        file.set_len(len(file.metadata().unwrap().len())).unwrap();
        Some(())
    });
}

/// Removes them.
pub(super) fn remove(paths: &[PathBuf]) {
    damage(paths, |path| unless_gone(path, fs::remove_file(path)));
}

/// Swaps the contents of two files.
pub(super) fn swap(a: &Path, b: &Path) {
    let between = a.with_extension("swapped");
    fs::rename(a, &between).unwrap();
    fs::rename(b, a).unwrap();
    fs::rename(&between, b).unwrap();
}

/// Removes a directory and what is in it, whatever a running server makes there meanwhile.
pub(super) fn remove_tree(directory: &Path) {
    while let Err(error) = fs::remove_dir_all(directory) {
        assert_eq!(error.kind(), io::ErrorKind::DirectoryNotEmpty, "{}: {error}", directory.display());
    }
}

/// Removes what is in a directory, and leaves the directory.
pub(super) fn empty(directory: &Path) {
    remove_tree(directory);
    fs::create_dir_all(directory).unwrap();
}
