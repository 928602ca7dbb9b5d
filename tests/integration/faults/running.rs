//! Faults under a running server.

use std::{fs, os::unix::fs::FileExt, process::Command};

use aws_sdk_s3::Client;
use gabion_tests::{Server, Setup};

use super::{
    deployment::{Shape, put_new, verify_new},
    files::{Place, empty, flip, remove, shard_files, truncate},
};
use crate::small_disk::{FileSystem, SmallDisk};

/// What is done to the targets of a running server.
type Fault = fn(&Server);

/// The first write after a fault may be what finds it; then writes go on without the target.
async fn write_at_last(client: &Client) -> anyhow::Result<()> {
    let mut last = Ok(());
    for _ in 0..5 {
        last = put_new(client).await;
        if last.is_ok() {
            return Ok(());
        }
    }
    anyhow::bail!("writes do not go on: {last:?}")
}

#[tokio::test]
async fn targets_and_shard_files_that_are_damaged_under_a_running_server() {
    let rows: [(&str, Fault); 6] = [
        ("a target removed", |server| fs::remove_dir_all(&server.targets()[2]).unwrap()),
        ("a target emptied", |server| empty(&server.targets()[2])),
        ("two targets with flipped bits", |server| flip(&shard_files(server, &[0, 3]), Place::Everywhere)),
        ("two targets with shard files cut in half", |server| truncate(&shard_files(server, &[1, 5]), |len| len / 2)),
        ("the shard files of a target removed", |server| remove(&shard_files(server, &[4]))),
        ("the index removed", |server| fs::remove_dir_all(server.state().join("index")).unwrap()),
    ];
    for (fault, do_it) in rows {
        let filled = Shape::Six.filled().await;
        let mut server = filled.server(Shape::Six.setup());
        let outcome = async {
            server.spawn().await?;
            // Files are open and rows are cached when it happens.
            filled.verify(&server.client()).await?;
            // It stands meanwhile: else it may free a segment whose files are about to be damaged.
            server.paused(|| do_it(&server)).await?;
            filled.verify(&server.client()).await?;
            write_at_last(&server.client()).await?;
            verify_new(&server.client()).await?;
            server.kill().await;
            server.spawn().await?;
            filled.verify(&server.client()).await?;
            verify_new(&server.client()).await
        };
        let outcome: anyhow::Result<()> = outcome.await;
        outcome.unwrap_or_else(|error| panic!("{fault}: {error:#}\n{}", server.log_tail()));
        assert!(!server.log().contains("panicked"), "{fault}: {}", server.log());
        println!("{fault}, under a running server: as expected");
    }
}

/// A server on the filled deployment whose fourth target is a file system of its own.
async fn with_a_small_disk() -> Option<(Server, SmallDisk, tempfile::TempDir)> {
    let place = tempfile::tempdir().unwrap();
    let disk = SmallDisk::mount_at(FileSystem::Ext4, 256, &place.path().join("target3"))?;
    let setup: Setup = Shape::Six.setup().below(place.path()).flag("--segment-target-reserve-bytes", "16MiB");
    let server = Shape::Six.filled().await.server(setup);
    disk.sync();
    Some((server, disk, place))
}

#[tokio::test]
async fn a_target_whose_file_system_turns_read_only_is_done_without() {
    let Some((mut server, disk, _place)) = with_a_small_disk().await else { return };
    let filled = Shape::Six.filled().await;
    server.spawn().await.unwrap();
    disk.fail();
    filled.verify(&server.client()).await.unwrap();
    write_at_last(&server.client()).await.unwrap();
    verify_new(&server.client()).await.unwrap();
    server.kill().await;
    // It stays so over a start.
    server.spawn().await.unwrap();
    filled.verify(&server.client()).await.unwrap();
    verify_new(&server.client()).await.unwrap();
    write_at_last(&server.client()).await.unwrap();
    server.kill().await;
    // And is well again.
    disk.power_on();
    server.spawn().await.unwrap();
    filled.verify(&server.client()).await.unwrap();
    verify_new(&server.client()).await.unwrap();
    put_new(&server.client()).await.unwrap();
    assert!(!server.log().contains("panicked"), "{}", server.log());
}

#[tokio::test]
async fn a_target_that_is_read_only_at_the_start_is_done_without() {
    let Some((mut server, disk, _place)) = with_a_small_disk().await else { return };
    let filled = Shape::Six.filled().await;
    disk.make_read_only();
    server.spawn().await.unwrap();
    filled.verify(&server.client()).await.unwrap();
    write_at_last(&server.client()).await.unwrap();
    server.crash().await.unwrap();
    filled.verify(&server.client()).await.unwrap();
    verify_new(&server.client()).await.unwrap();
    assert!(!server.log().contains("panicked"), "{}", server.log());
}

#[tokio::test]
async fn a_target_that_someone_else_fills_up_is_done_without() {
    let Some((mut server, disk, _place)) = with_a_small_disk().await else { return };
    let filled = Shape::Six.filled().await;
    server.spawn().await.unwrap();
    let filler = disk.path().join("filler");
    // More than fits: what there is is taken.
    let _ = Command::new("dd")
        .args(["if=/dev/zero", "bs=1M", "status=none"])
        .arg(format!("of={}", filler.display()))
        .status();
    filled.verify(&server.client()).await.unwrap();
    write_at_last(&server.client()).await.unwrap();
    verify_new(&server.client()).await.unwrap();
    server.crash().await.unwrap();
    filled.verify(&server.client()).await.unwrap();
    verify_new(&server.client()).await.unwrap();
    write_at_last(&server.client()).await.unwrap();
    fs::remove_file(filler).unwrap();
    server.crash().await.unwrap();
    filled.verify(&server.client()).await.unwrap();
    put_new(&server.client()).await.unwrap();
    assert!(!server.log().contains("panicked"), "{}", server.log());
}

/// More targets fail than parity replaces: errors, no wrong bytes, and all is there when they are back.
#[tokio::test]
async fn three_drives_that_fail_at_once_lose_nothing_when_they_are_back() {
    let place = tempfile::tempdir().unwrap();
    let disks: Option<Vec<SmallDisk>> = ["target0", "target2", "target5"]
        .iter()
        .map(|name| SmallDisk::mount_at(FileSystem::Ext4, 256, &place.path().join(name)))
        .collect();
    let Some(disks) = disks else { return };
    let filled = Shape::Six.filled().await;
    let setup: Setup = Shape::Six.setup().below(place.path()).flag("--segment-target-reserve-bytes", "16MiB");
    let mut server = filled.server(setup);
    disks.iter().for_each(SmallDisk::sync);
    server.spawn().await.unwrap();
    put_new(&server.client()).await.unwrap();
    for disk in &disks {
        disk.cut_power().unwrap();
    }
    let (lost, refusals) = filled.verify_served(&server.client()).await.unwrap();
    println!("{lost} objects can not be read while three drives are away");
    // They are not lost, and nobody is told so.
    let is_unavailable = |refused: &gabion_tests::Outcome| {
        *refused == gabion_tests::Outcome::Refused(503, "ServiceUnavailable".to_owned())
    };
    assert!(!refusals.is_empty() && refusals.iter().all(is_unavailable), "{refusals:?}");
    let refused = put_new(&server.client()).await.unwrap_err();
    assert_eq!(refused.status(), Some(503), "{refused:?}");
    assert!(!server.log().contains("corrupt"), "{}", server.log_tail());
    server.kill().await;
    let refused = server.spawn_degraded().await.unwrap_err().to_string();
    assert!(refused.contains("exit status: 4") && refused.contains("can do without 2 at most"), "{refused}");
    for disk in &disks {
        disk.power_on();
    }
    server.spawn().await.unwrap();
    filled.verify(&server.client()).await.unwrap();
    verify_new(&server.client()).await.unwrap();
    assert!(!server.log().contains("panicked"), "{}", server.log());
}

/// A bit on its own: what the reader gets is right, and the server counts what it found.
#[tokio::test]
async fn damage_that_a_read_meets_is_counted() {
    let filled = Shape::Six.filled().await;
    let mut server = filled.server(Shape::Six.setup());
    server.spawn().await.unwrap();
    for path in shard_files(&server, &[0]) {
        let file = fs::File::options().read(true).write(true).open(path).unwrap();
        for block in 1..file.metadata().unwrap().len() / 4096 {
            let (mut byte, offset) = ([0], block * 4096 + 500);
            file.read_exact_at(&mut byte, offset).unwrap();
            file.write_all_at(&[byte[0] ^ 1], offset).unwrap();
        }
    }
    filled.verify(&server.client()).await.unwrap();
    let metrics = server.metrics().await.unwrap();
    assert!(metrics.sum("gabion_log_corrupt_chunks_total") > 0.0);
    assert!(metrics.sum("gabion_log_degraded_reads_total") > 0.0);
}
