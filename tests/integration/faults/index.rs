//! The state directory: index files damaged, removed, older; another deployment's; lost.

use std::{
    fs,
    path::{Path, PathBuf},
};

use gabion_tests::Server;

use super::{
    Outcome::{self, Refused, Served},
    Row,
    deployment::{Filled, Shape, copy_tree},
    files::{empty, files, flip_middle, truncate},
    run,
};

fn row(fault: &'static str, do_it: fn(&Server, &Filled), outcome: Outcome, says: &'static [&'static str]) -> Row {
    Row { fault, shape: Shape::Six, do_it, outcome, says }
}

/// The files of the index whose path has this in it.
fn index_files(server: &Server, part: &str) -> Vec<PathBuf> {
    files(&server.state().join("index")).into_iter().filter(|path| path.to_string_lossy().contains(part)).collect()
}

fn replace(path: &Path, by: &Path) {
    fs::remove_dir_all(path).unwrap();
    copy_tree(by, path);
}

#[tokio::test]
async fn state_directories_that_are_lost_or_not_ours() {
    // The other deployment of the last row.
    Shape::Single.filled().await;
    const REBUILT: &[&str] = &["the index was rebuilt from the segments"];
    run(vec![
        row("the state directory removed", |server, _| fs::remove_dir_all(server.state()).unwrap(), Served, REBUILT),
        row("the state directory emptied", |server, _| empty(server.state()), Served, REBUILT),
        row(
            "the index removed",
            |server, _| fs::remove_dir_all(server.state().join("index")).unwrap(),
            Served,
            REBUILT,
        ),
        row("the index emptied", |server, _| empty(&server.state().join("index")), Served, REBUILT),
        row(
            "the state directory restored from an older copy",
            |server, filled| replace(server.state(), &filled.early("state")),
            Served,
            &[],
        ),
        row(
            "the state directory of another deployment",
            |server, _| replace(server.state(), &Shape::Single.made().late("state")),
            Refused(4),
            &["the targets belong to deployment", "the state directory to "],
        ),
    ])
    .await;
}

#[tokio::test]
async fn index_files_that_are_damaged() {
    run(vec![
        row("a flipped bit in the index' journal", |server, _| flip_middle(&index_files(server, ".jnl")), Served, &[]),
        row(
            "the index' journal cut in half",
            |server, _| truncate(&index_files(server, ".jnl"), |len| len / 2),
            Served,
            &[],
        ),
        row(
            "the index' journal cut to nothing",
            |server, _| truncate(&index_files(server, ".jnl"), |_| 0),
            Served,
            &[],
        ),
        row("the index' journal removed", |server, _| remove(&index_files(server, ".jnl")), Served, &[]),
        row(
            "flipped bits in the tables of the index",
            |server, _| flip_middle(&index_files(server, "/tables/")),
            Served,
            &[],
        ),
        row(
            "the tables of the index cut in half",
            |server, _| truncate(&index_files(server, "/tables/"), |len| len / 2),
            Served,
            &[],
        ),
        row("the tables of the index removed", |server, _| remove(&index_files(server, "/tables/")), Served, &[]),
        row(
            "flipped bits in the versions of the index",
            |server, _| flip_middle(&index_files(server, "/current")),
            Served,
            &[],
        ),
        row(
            "the mark of the last checkpoint flipped",
            |server, _| flip_middle(&index_files(server, "persisted")),
            Served,
            &[],
        ),
        row(
            "the mark of the last checkpoint removed",
            |server, _| remove(&index_files(server, "persisted")),
            Served,
            &[],
        ),
        row(
            "the journal of an older copy of the index",
            |server, filled| {
                for path in index_files(server, ".jnl") {
                    let older = filled.early("state").join(path.strip_prefix(server.state()).unwrap());
                    if older.exists() {
                        fs::remove_file(&path).unwrap();
                        copy_tree(&older, &path);
                    }
                }
            },
            Served,
            &[],
        ),
    ])
    .await;
}

fn remove(paths: &[PathBuf]) {
    assert!(!paths.is_empty());
    paths.iter().for_each(|path| fs::remove_file(path).unwrap());
}
