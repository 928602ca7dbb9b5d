//! `gabion.json`: damaged, swapped, of another deployment.

use std::{fs, path::PathBuf};

use gabion_tests::Server;

use super::{
    Outcome::{self, Refused, Served},
    Row,
    deployment::{Filled, Shape},
    files::{flip_middle, swap, truncate},
    run,
};

fn membership(server: &Server, target: usize) -> PathBuf {
    server.targets()[target].join("gabion.json")
}

#[tokio::test]
async fn memberships_that_are_wrong_at_the_start() {
    // The other deployment of the last row.
    Shape::Single.filled().await;
    fn row(fault: &'static str, do_it: fn(&Server, &Filled), outcome: Outcome, says: &'static [&'static str]) -> Row {
        Row { fault, shape: Shape::Six, do_it, outcome, says }
    }
    run(vec![
        row(
            "a gabion.json removed",
            |server, _| fs::remove_file(membership(server, 0)).unwrap(),
            Served,
            &["target0 has segments but no gabion.json"],
        ),
        row(
            "a gabion.json with a flipped bit",
            |server, _| flip_middle(&[membership(server, 1)]),
            Served,
            &["target1 has an unreadable gabion.json"],
        ),
        row(
            "a gabion.json cut in half",
            |server, _| truncate(&[membership(server, 2)], |len| len / 2),
            Served,
            &["target2 has an unreadable gabion.json"],
        ),
        row(
            "an empty gabion.json",
            |server, _| truncate(&[membership(server, 5)], |_| 0),
            Served,
            &["target5 has an unreadable gabion.json"],
        ),
        row(
            "the gabion.json of two targets swapped",
            |server, _| swap(&membership(server, 1), &membership(server, 4)),
            Served,
            &[],
        ),
        row(
            "the gabion.json of one target on another",
            |server, _| {
                fs::copy(membership(server, 1), membership(server, 4)).unwrap();
            },
            Refused(4),
            &["target1 and ", "target4 are the same target"],
        ),
        row(
            "the gabion.json of another deployment",
            |server, _| {
                let other = Shape::Single.made().late("target0");
                fs::copy(other.join("gabion.json"), membership(server, 3)).unwrap();
            },
            Refused(4),
            &["target3 belongs to deployment", "target0 to deployment"],
        ),
    ])
    .await;
}
