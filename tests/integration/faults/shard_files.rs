//! Shard files: flipped bits, cut off, removed, swapped, old.

use std::{fs, path::PathBuf};

use gabion_tests::Server;

use super::{
    Outcome::{self, NeverWrong, Served},
    Row,
    deployment::{Filled, Shape, copy_tree},
    files::{Place, flip, remove, shard_files, shards, swap, truncate},
    run,
};

/// Two targets may be wrong.
const WRONG: [usize; 2] = [1, 4];

#[tokio::test]
async fn shard_files_with_flipped_bits() {
    type DoIt = fn(&Server, &Filled);
    let all: [(&'static str, DoIt, DoIt); 5] = [
        (
            "a flipped bit in the header of shard files",
            |server, _| flip(&on(server), Place::Header),
            |server, _| {
                flip(&only(server), Place::Header);
            },
        ),
        (
            "a flipped bit in the first chunk header",
            |server, _| flip(&on(server), Place::ChunkHeader),
            |server, _| {
                flip(&only(server), Place::ChunkHeader);
            },
        ),
        (
            "a flipped bit in the first payload",
            |server, _| flip(&on(server), Place::Payload),
            |server, _| {
                flip(&only(server), Place::Payload);
            },
        ),
        (
            "a flipped bit in every block",
            |server, _| flip(&on(server), Place::Everywhere),
            |server, _| {
                flip(&only(server), Place::Everywhere);
            },
        ),
        (
            "a flipped bit in the seal",
            |server, _| flip(&on(server), Place::End),
            |server, _| {
                flip(&only(server), Place::End);
            },
        ),
    ];
    for (fault, on_six, on_one) in all {
        let row = |shape, do_it, outcome| Row { fault, shape, do_it, outcome, says: &[] };
        run(vec![row(Shape::Six, on_six, Served), row(Shape::Single, on_one, NeverWrong)]).await;
    }
    let row = |fault, do_it: DoIt| Row { fault, shape: Shape::Six, do_it, outcome: Served, says: &[] };
    run(vec![
        row("flipped bits in two data shards of every segment", |server, _| {
            flip(&shards(server, &["000", "003"]), Place::Everywhere);
        }),
        row("flipped bits in all parity shards", |server, _| flip(&shards(server, &["004", "005"]), Place::Everywhere)),
    ])
    .await;
}

fn on(server: &Server) -> Vec<PathBuf> {
    shard_files(server, &WRONG)
}

fn only(server: &Server) -> Vec<PathBuf> {
    shard_files(server, &[0])
}

#[tokio::test]
async fn shard_files_that_are_cut_off_removed_swapped_or_old() {
    fn row(fault: &'static str, do_it: fn(&Server, &Filled), outcome: Outcome) -> Row {
        Row { fault, shape: Shape::Six, do_it, outcome, says: &[] }
    }
    run(vec![
        row("shard files cut to nothing", |server, _| truncate(&on(server), |_| 0), Served),
        row("shard files cut in half", |server, _| truncate(&on(server), |len| len / 2), Served),
        row("shard files without their last block", |server, _| truncate(&on(server), |len| len - 4096), Served),
        row("shard files without their last byte", |server, _| truncate(&on(server), |len| len - 1), Served),
        row("shard files with a block too many", |server, _| truncate(&on(server), |len| len + 4096), Served),
        row("two data shards of every segment removed", |server, _| remove(&shards(server, &["001", "002"])), Served),
        row(
            "both parity shards of every segment removed",
            |server, _| remove(&shards(server, &["004", "005"])),
            Served,
        ),
        row(
            "shard files of a target swapped with one another",
            |server, _| {
                let files = on(server);
                files.chunks_exact(2).for_each(|pair| swap(&pair[0], &pair[1]));
            },
            Served,
        ),
        row(
            "shard files swapped between two targets",
            |server, _| {
                let [one, other] = WRONG.map(|target| shard_files(server, &[target]));
                one.iter().zip(&other).for_each(|(one, other)| swap(one, other));
            },
            Served,
        ),
        row(
            "the segments directories of two targets swapped",
            |server, _| {
                let [one, other] = WRONG.map(|target| server.targets()[target].join("segments"));
                swap(&one, &other);
            },
            Served,
        ),
        row("shard files replaced by older copies", replace_by_older, Served),
        row(
            "three shards of every segment with flipped bits",
            |server, _| {
                flip(&shards(server, &["000", "002", "004"]), Place::Everywhere);
            },
            NeverWrong,
        ),
    ])
    .await;
}

/// Those shard files of two targets that were there when the deployment was half full are put back as they were then.
fn replace_by_older(server: &Server, filled: &Filled) {
    let mut replaced = 0;
    for target in WRONG {
        for path in shard_files(server, &[target]) {
            let name = path.strip_prefix(&server.targets()[target]).unwrap();
            let older = filled.early(&format!("target{target}")).join(name);
            if older.exists() {
                fs::remove_file(&path).unwrap();
                copy_tree(&older, &path);
                replaced += 1;
            }
        }
    }
    assert!(replaced > 0, "no segment lived that long");
}
