//! Power loss on real file systems: what was acknowledged is there after the next mount, the index included.
//!
//! Targets and state lie on file systems of the test's own ([`crate::small_disk`]), which lose power at random moments under the load of
//! [`crate::workload`]; then the server is killed, the file systems are mounted anew and everything is verified. `GABION_POWER_CUTS` sets how often,
//! over all of these tests.

use std::{fs, io::Write, path::Path};

use aws_sdk_s3::primitives::ByteStream;
use gabion_tests::{Content, Server, Setup, seed, seeded};
use rand::{Rng, rngs::SmallRng};

use crate::{
    BUCKET,
    forgetful::ForgetfulDisk,
    small_disk::{FileSystem, SmallDisk},
    workload::{Model, busy, verify, write_until_cut},
};

/// Cuts of all tests here together, unless `GABION_POWER_CUTS` says otherwise.
const CUTS: usize = 15;
/// Room for hours: at a thousand cuts there is more to compact than at ten. The image takes what is used of it.
const DISK_MIB: u32 = 1024;

/// The cuts of one of five tests.
fn cuts() -> usize {
    let all =
        std::env::var("GABION_POWER_CUTS").map_or(CUTS, |text| text.parse().expect("GABION_POWER_CUTS is a number"));
    all.div_ceil(5)
}

/// A busy server that keeps little room free, whose state lies at `state`.
fn small(setup: Setup, place: &Path, state: &Path) -> Setup {
    busy(setup)
        .below(place)
        .state(state)
        .flag("--segment-target-reserve-bytes", "16MiB")
        .flag("--index-reserve-bytes", "8MiB")
}

/// What can lose power.
trait Drive {
    fn cut_power(&self);
    fn power_on(&self, random: &mut SmallRng);
}

impl Drive for SmallDisk {
    fn cut_power(&self) {
        SmallDisk::cut_power(self).unwrap();
    }

    fn power_on(&self, _: &mut SmallRng) {
        SmallDisk::power_on(self);
    }
}

impl Drive for ForgetfulDisk {
    fn cut_power(&self) {
        ForgetfulDisk::cut_power(self);
    }

    fn power_on(&self, random: &mut SmallRng) {
        ForgetfulDisk::power_on(self, random);
    }
}

async fn power_is_cut_again_and_again(setup: Setup, disks: &[impl Drive]) {
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
                disks[(first + number) % disks.len()].cut_power();
            }
            server.kill().await;
            Ok(())
        };
        model = write_until_cut(&mut server, model, &mut random, cut).await.map_err(context).unwrap();
        for disk in disks {
            disk.power_on(&mut random);
        }
        // The power may fail again while the server starts.
        if random.random_range(0..100) < 25 {
            server.launch().unwrap();
            tokio::time::sleep(std::time::Duration::from_micros(random.random_range(0..200_000))).await;
            for disk in disks {
                disk.cut_power();
            }
            server.kill().await;
            for disk in disks {
                disk.power_on(&mut random);
            }
        }
        server.spawn().await.map_err(context).unwrap();
        verify(&server, &mut model).await.map_err(context).unwrap();
    }
    let (objects, uploads) = model.counts();
    let log = server.log();
    let rebuilt: Vec<&str> = log.lines().filter(|line| line.contains("the index was rebuilt")).collect();
    println!(
        "{cuts} power cuts under load, {objects} objects and {uploads} uploads left; rebuilt indices: {rebuilt:#?}"
    );
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

/// Everything that was not synced may be lost, kept in part or torn, names included.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn power_loss_on_a_disk_that_forgets() {
    let Some(disk) = ForgetfulDisk::mount() else { return };
    let setup = small(Setup::single(), disk.path(), &disk.path().join("state"));
    power_is_cut_again_and_again(setup, std::slice::from_ref(&disk)).await;
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

/// The same for the disk that forgets, of which more is lost: names, and parts of what was written.
#[tokio::test]
async fn a_disk_that_forgets_loses_what_no_sync_covers() {
    let Some(disk) = ForgetfulDisk::mount() else { return };
    let mut random = seeded(7, 2);
    let at = |name: &str| disk.path().join(name);
    let bytes = vec![7; 8192];
    let (mut bytes_lost, mut torn, mut names_lost) = (0, 0, 0);
    for round in 0..16 {
        for (name, sync, sync_directory) in [("kept", true, true), ("unsynced", false, true), ("unnamed", true, false)]
        {
            let mut file = fs::File::create(at(&format!("{name}{round}"))).unwrap();
            file.write_all(&bytes).unwrap();
            if sync {
                file.sync_all().unwrap();
            }
            if sync_directory {
                fs::File::open(disk.path()).unwrap().sync_all().unwrap();
            }
        }
        disk.cut_power();
        assert!(fs::read(at("kept0")).is_err(), "nothing works without power");
        disk.power_on(&mut random);
        assert!((0..=round).all(|round| fs::read(at(&format!("kept{round}"))).is_ok_and(|found| found == bytes)));
        match fs::read(at(&format!("unsynced{round}"))).unwrap() {
            found if found.is_empty() => bytes_lost += 1,
            found if found != bytes => torn += 1,
            _ => {}
        }
        match fs::read(at(&format!("unnamed{round}"))) {
            Ok(found) => assert_eq!(found, bytes),
            Err(_) => names_lost += 1,
        }
    }
    assert!(bytes_lost > 0 && torn > 0 && names_lost > 0, "{bytes_lost} {torn} {names_lost}");
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
