//! Targets that are not there, or not what they were, when the server starts.

use std::fs;

use gabion_tests::Server;

use super::{
    Outcome::{NeverWrong, ReadOnly, Refused, Served},
    Row,
    deployment::{Filled, Shape, copy_tree},
    files::empty,
    run,
};

fn remove(server: &Server, targets: &[usize]) {
    for target in targets {
        fs::remove_dir_all(&server.targets()[*target]).unwrap();
    }
}

/// Puts back the copy of a target that was made when the deployment was half full.
fn restore(server: &Server, filled: &Filled, target: usize) {
    remove(server, &[target]);
    copy_tree(&filled.early(&format!("target{target}")), &server.targets()[target]);
}

#[tokio::test]
async fn targets_that_are_not_what_they_were_at_the_start() {
    let row = |fault, do_it, outcome, says| Row { fault, shape: Shape::Six, do_it, outcome, says };
    run(vec![
        row(
            "one target removed",
            |server, _| remove(server, &[1]),
            Served,
            &["target1 is missing", "counts as absent"],
        ),
        row(
            "two targets removed",
            |server, _| remove(server, &[0, 5]),
            ReadOnly,
            &["target0 is missing", "target5 is missing"],
        ),
        row(
            "three targets removed",
            |server, _| remove(server, &[0, 2, 4]),
            Refused(4),
            &["3 of the 6 targets of deployment", "target0", "target2", "target4", "can do without 2 at most"],
        ),
        row(
            "one target emptied",
            |server, _| empty(&server.targets()[3]),
            Served,
            &["target3 is empty: it counts as absent"],
        ),
        row(
            "all targets emptied",
            |server, _| server.targets().iter().for_each(|target| empty(target)),
            Refused(4),
            &["are their file systems mounted?", "Nothing was made or formatted"],
        ),
        row("the segments of a target removed", |server, _| remove_segments(server, 2), Served, &[]),
        row("a target restored from an older copy", |server, filled| restore(server, filled, 2), Served, &[]),
        row(
            "two targets restored from an older copy",
            |server, filled| {
                restore(server, filled, 0);
                restore(server, filled, 4);
            },
            Served,
            &[],
        ),
    ])
    .await;
    let row = |fault, do_it, outcome, says| Row { fault, shape: Shape::Single, do_it, outcome, says };
    run(vec![
        row(
            "the only target restored from an older copy",
            |server, filled| restore(server, filled, 0),
            NeverWrong,
            &[],
        ),
        row("the segments of the only target removed", |server, _| remove_segments(server, 0), NeverWrong, &[]),
    ])
    .await;
}

fn remove_segments(server: &Server, target: usize) {
    fs::remove_dir_all(server.targets()[target].join("segments")).unwrap();
}
