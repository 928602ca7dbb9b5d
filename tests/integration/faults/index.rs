//! The state directory: index files damaged, removed, older; another deployment's; lost.

use std::{
    fs,
    path::{Path, PathBuf},
};

use gabion_tests::Server;

use super::{
    Outcome::{self, ReadOnly, Refused, Served},
    Row,
    deployment::{Filled, Shape, copy_tree},
    files::{Place, empty, files, flip, flip_middle, remove, shard_files, truncate},
    run,
};

/// What a start says that had no index to begin with.
const REBUILT: &[&str] = &["the index was rebuilt from the segments"];

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

/// The index is lost, and as much besides as parity replaces: everything comes from the segments that are left.
#[tokio::test]
async fn an_index_that_is_lost_with_two_targets() {
    fn lose(server: &Server) {
        fs::remove_dir_all(server.state().join("index")).unwrap();
    }
    fn older(server: &Server, filled: &Filled) {
        replace(&server.state().join("index"), &filled.early("state").join("index"));
    }
    fn both(server: &Server) -> Vec<PathBuf> {
        shard_files(server, &[0, 4])
    }
    fn remove_targets(server: &Server) {
        [2, 3].iter().for_each(|target| fs::remove_dir_all(&server.targets()[*target]).unwrap());
    }
    run(vec![
        row(
            "the index and two targets removed",
            |server, _| {
                lose(server);
                remove_targets(server);
            },
            ReadOnly,
            REBUILT,
        ),
        row(
            "an older index, and two targets removed",
            |server, filled| {
                older(server, filled);
                remove_targets(server);
            },
            ReadOnly,
            &[],
        ),
        row(
            "the index removed, and a flipped bit in every block of two targets",
            |server, _| {
                lose(server);
                flip(&both(server), Place::Everywhere);
            },
            Served,
            REBUILT,
        ),
        row(
            "an older index, and a flipped bit in every block of two targets",
            |server, filled| {
                older(server, filled);
                flip(&both(server), Place::Everywhere);
            },
            Served,
            &[],
        ),
        row(
            "the index removed, and flipped bits in the headers of two targets",
            |server, _| {
                lose(server);
                flip(&both(server), Place::Header);
            },
            Served,
            REBUILT,
        ),
        row(
            "the index removed, and the shard files of two targets cut in half",
            |server, _| {
                lose(server);
                truncate(&both(server), |len| len / 2);
            },
            Served,
            REBUILT,
        ),
        row(
            "the index removed, and the shard files of two targets without their last block",
            |server, _| {
                lose(server);
                truncate(&both(server), |len| len - 4096);
            },
            Served,
            REBUILT,
        ),
    ])
    .await;
}
