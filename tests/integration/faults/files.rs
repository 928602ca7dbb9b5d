//! Files, damaged.

use std::{
    fs,
    path::{Path, PathBuf},
};

use gabion_tests::Server;

/// Where in a shard file (`docs/FORMAT.md`).
#[derive(Clone, Copy)]
pub(crate) enum Place {
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
pub(crate) fn shard_files(server: &Server, targets: &[usize]) -> Vec<PathBuf> {
    targets.iter().flat_map(|target| files(&server.targets()[*target].join("segments"))).collect()
}

/// The shard files, of all targets, that are these shards of their segments.
pub(super) fn shards(server: &Server, wanted: &[&str]) -> Vec<PathBuf> {
    let all: Vec<usize> = (0..server.targets().len()).collect();
    let is_wanted = |path: &PathBuf| path.extension().is_some_and(|shard| wanted.iter().any(|other| shard == *other));
    shard_files(server, &all).into_iter().filter(is_wanted).collect()
}

/// Flips a bit at every offset of a place.
pub(crate) fn flip(paths: &[PathBuf], place: Place) {
    assert!(!paths.is_empty(), "there is nothing to damage");
    for path in paths {
        let mut bytes = fs::read(path).unwrap();
        for offset in place.offsets(bytes.len()) {
            bytes[offset] ^= 0x10;
        }
        fs::write(path, bytes).unwrap();
    }
}

/// Flips a bit in the middle of each.
pub(super) fn flip_middle(paths: &[PathBuf]) {
    assert!(!paths.is_empty(), "there is nothing to damage");
    for path in paths {
        let mut bytes = fs::read(path).unwrap();
        let middle = bytes.len() / 2;
        if let Some(byte) = bytes.get_mut(middle) {
            *byte ^= 0x10;
        }
        fs::write(path, bytes).unwrap();
    }
}

/// Cuts each to what `len` makes of its length.
pub(super) fn truncate(paths: &[PathBuf], len: fn(u64) -> u64) {
    assert!(!paths.is_empty(), "there is nothing to damage");
    for path in paths {
        let file = fs::File::options().write(true).open(path).unwrap();
        file.set_len(len(file.metadata().unwrap().len())).unwrap();
    }
}

/// Removes them.
pub(super) fn remove(paths: &[PathBuf]) {
    assert!(!paths.is_empty(), "there is nothing to damage");
    paths.iter().for_each(|path| fs::remove_file(path).unwrap());
}

/// Swaps the contents of two files.
pub(super) fn swap(a: &Path, b: &Path) {
    let between = a.with_extension("swapped");
    fs::rename(a, &between).unwrap();
    fs::rename(b, a).unwrap();
    fs::rename(&between, b).unwrap();
}

/// Removes what is in a directory, and leaves the directory.
pub(super) fn empty(directory: &Path) {
    fs::remove_dir_all(directory).unwrap();
    fs::create_dir(directory).unwrap();
}
