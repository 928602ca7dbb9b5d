//! Power loss on real file systems: what was acknowledged is there after the next mount, the index included.
//!
//! Targets and state lie on file systems of the test's own ([`crate::small_disk`]), which lose power at random moments under the load of
//! [`crate::workload`]; then the server is killed, the file systems are mounted anew and everything is verified. `GABION_POWER_CUTS` sets how often,
//! over all of these tests.

use std::{fs, io::Write, path::Path};

use aws_sdk_s3::primitives::ByteStream;
use gabion_tests::{Content, Server, Setup, seed, seeded};
use rand::Rng;

use crate::{
    BUCKET,
    small_disk::{FileSystem, SmallDisk},
    workload::{Model, busy, verify, write_until_cut},
};

/// Cuts of all tests here together, unless `GABION_POWER_CUTS` says otherwise.
const CUTS: usize = 12;
/// The least size that mkfs.xfs accepts.
const DISK_MIB: u32 = 320;

/// The cuts of one of four tests.
fn cuts() -> usize {
    let all =
        std::env::var("GABION_POWER_CUTS").map_or(CUTS, |text| text.parse().expect("GABION_POWER_CUTS is a number"));
    all.div_ceil(4)
}

/// A busy server that keeps little room free, whose state lies at `state`.
fn small(setup: Setup, place: &Path, state: &Path) -> Setup {
    busy(setup)
        .below(place)
        .state(state)
        .flag("--segment-target-reserve-bytes", "16MiB")
        .flag("--index-reserve-bytes", "8MiB")
}

async fn power_is_cut_again_and_again(setup: Setup, disks: &[SmallDisk]) {
    let seed = seed();
    println!("GABION_TEST_SEED={seed}");
    let mut random = seeded(seed, 1);
    let mut server = Server::start(setup).await.unwrap();
    server.client().create_bucket().bucket(BUCKET).send().await.unwrap();
    let mut model = Model::default();
    let cuts = cuts();
    for round in 0..cuts {
        let context = |error: anyhow::Error| format!("seed {seed}, cut {round}: {error:#}");
        // One drive after another, in any order: they do not stop at the same instant.
        let first = random.random_range(0..disks.len());
        let cut = async |server: &mut Server| {
            for number in 0..disks.len() {
                disks[(first + number) % disks.len()].cut_power().map_err(anyhow::Error::msg)?;
            }
            server.kill().await;
            Ok(())
        };
        model = write_until_cut(&mut server, model, &mut random, cut).await.map_err(context).unwrap();
        for disk in disks {
            disk.power_on();
        }
        // The power may fail again while the server starts.
        if random.random_range(0..100) < 25 {
            server.launch().unwrap();
            tokio::time::sleep(std::time::Duration::from_micros(random.random_range(0..200_000))).await;
            for disk in disks {
                disk.cut_power().unwrap();
            }
            server.kill().await;
            for disk in disks {
                disk.power_on();
            }
        }
        server.spawn().await.map_err(context).unwrap();
        verify(&server, &mut model).await.map_err(context).unwrap();
    }
    let (objects, uploads) = model.counts();
    println!("{cuts} power cuts under load, {objects} objects and {uploads} uploads left");
    assert!(server.stop().await.unwrap(), "{}", server.log_tail());
}

async fn on_one_disk(setup: Setup, file_system: FileSystem) {
    let Some(disk) = SmallDisk::mount(file_system, DISK_MIB) else { return };
    let setup = small(setup, disk.path(), &disk.path().join("state"));
    power_is_cut_again_and_again(setup, std::slice::from_ref(&disk)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn power_loss_on_ext4() {
    on_one_disk(Setup::single(), FileSystem::Ext4).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn power_loss_on_xfs() {
    on_one_disk(Setup::single(), FileSystem::Xfs).await;
}

/// The kernel moves the bytes in another way here: the plain calls, not the ring.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn power_loss_with_the_threads_driver() {
    on_one_disk(Setup::single().flag("--driver", "threads"), FileSystem::Ext4).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn power_loss_of_six_drives_of_four_plus_two() {
    let place = tempfile::tempdir().unwrap();
    let names = ["target0", "target1", "target2", "target3", "target4", "target5"];
    let disks: Option<Vec<SmallDisk>> =
        names.iter().map(|name| SmallDisk::mount_at(FileSystem::Ext4, 128, &place.path().join(name))).collect();
    let Some(disks) = disks else { return };
    let state = disks[0].path().join("state");
    power_is_cut_again_and_again(small(Setup::six(), place.path(), &state), &disks).await;
}

/// The tests above prove something: on the same file systems a write that was not synced is lost, and one that was is not.
#[tokio::test]
async fn what_was_not_synced_is_lost_with_the_power() {
    for file_system in [FileSystem::Ext4, FileSystem::Xfs] {
        let Some(disk) = SmallDisk::mount(file_system, DISK_MIB) else { continue };
        let write = |name: &str, sync: bool| {
            let mut file = fs::File::create(disk.path().join(name)).unwrap();
            file.write_all(b"bytes").unwrap();
            if sync {
                file.sync_all().unwrap();
            }
        };
        write("synced", true);
        write("unsynced", false);
        disk.cut_power().unwrap();
        disk.power_on();
        assert_eq!(fs::read(disk.path().join("synced")).unwrap(), b"bytes", "{file_system:?}");
        assert!(fs::read(disk.path().join("unsynced")).unwrap_or_default().is_empty(), "{file_system:?}");
    }
}

/// What `durability = "relaxed"` says of itself: acknowledged writes are lost that no checkpoint has covered, and nothing is served wrong.
#[tokio::test]
async fn relaxed_durability_may_lose_the_last_writes_and_serves_nothing_wrong() {
    let Some(disk) = SmallDisk::mount(FileSystem::Ext4, DISK_MIB) else { return };
    let setup = small(Setup::single(), disk.path(), &disk.path().join("state"));
    let mut server =
        Server::start(setup.flag("--durability", "relaxed").flag("--checkpoint-interval", "1h")).await.unwrap();
    let client = server.client();
    client.create_bucket().bucket(BUCKET).send().await.unwrap();
    let content = |number: u64| Content::new(number, 50_000);
    for number in 0..20 {
        let body = ByteStream::from(content(number).bytes());
        client.put_object().bucket(BUCKET).key(number.to_string()).body(body).send().await.unwrap();
    }
    disk.cut_power().unwrap();
    server.kill().await;
    disk.power_on();
    server.spawn().await.unwrap();
    let mut left = 0;
    for number in 0..20 {
        let Ok(got) = server.client().get_object().bucket(BUCKET).key(number.to_string()).send().await else {
            continue;
        };
        assert_eq!(gabion_tests::bytes_of(got).await.unwrap(), content(number).bytes());
        left += 1;
    }
    assert!(left < 20, "the page cache was lost, and with it at least the last write");
}
