//! Which directories make up a deployment.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gabion_platform::{Disk, Opening, SimDisk, SimPower};
use gabion_segment::{Log, LogError, TargetMode, TargetState};
use gabion_types::{DeploymentId, SegmentId};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::book::Book;
use crate::world::{World, append, life, put, steps};

fn refusal(world: &mut World) -> String {
    match life(world.open(vec![])) {
        Err(LogError::Targets(sentence)) => sentence,
        other => panic!("{other:?}"),
    }
}

/// A formatted deployment with a record in it.
fn formatted(geometry: &str, seed: u64) -> World {
    let mut world = World::new(geometry, seed);
    life(async {
        let (log, _) = world.start(&Arc::new(Book::default())).await;
        put(&log, 1, 1000).await.unwrap();
    });
    world.kill();
    world
}

#[test]
fn too_few_directories_are_not_formatted() {
    let mut world = World::with_disks("4+2".parse().unwrap(), 5, 1);
    let sentence = refusal(&mut world);
    assert!(sentence.contains("needs 6 targets, 5 were given"), "{sentence}");
    assert!(world.disks.iter().all(|disk| disk.paths().is_empty()));
}

#[test]
fn only_the_deployment_that_is_expected_is_opened() {
    let expected = Some(DeploymentId::from_u128(7));
    let mut unmounted = World::new("2+1", 90);
    unmounted.config.expected_deployment = expected;
    let sentence = refusal(&mut unmounted);
    assert!(sentence.contains("Nothing was formatted"), "{sentence}");
    assert!(unmounted.disks.iter().all(|disk| disk.paths().is_empty()));

    let mut other = formatted("2+1", 91);
    other.config.expected_deployment = expected;
    let sentence = refusal(&mut other);
    assert!(sentence.contains("the state directory to 00000000000000000000000000000007"), "{sentence}");
}

/// An empty directory of a deployment that was served is a drive that is not mounted, not one whose formatting was cut off.
#[test]
fn what_was_served_is_not_formatted_again() {
    let mut world = World::with_disks("1+0".parse().unwrap(), 3, 92);
    let deployment = life(async {
        let (log, _) = world.start(&Arc::new(Book::default())).await;
        put(&log, 1, 1000).await.unwrap();
        log.deployment()
    });
    world.kill();
    let used = (0..3).find(|disk| world.disks[*disk].paths().len() > 1).unwrap();
    world.disks[used] = SimDisk::new(93);
    world.config.expected_deployment = Some(deployment);
    let sentence = refusal(&mut world);
    assert!(sentence.contains(&format!("disk{used}")), "{sentence}");
    assert!(world.disks[used].paths().is_empty());
}

#[test]
fn a_missing_directory_is_not_formatted_around() {
    let mut world = World::new("2+1", 2);
    world.absent = vec![1];
    let sentence = refusal(&mut world);
    assert!(sentence.contains("disk1") && sentence.contains("nothing was formatted"), "{sentence}");
}

#[test]
fn directories_of_two_deployments_are_refused() {
    let mut world = formatted("2+1", 3);
    let other = formatted("2+1", 4);
    world.disks[2] = other.disks[2].clone();
    let sentence = refusal(&mut world);
    assert!(sentence.contains("disk0") && sentence.contains("disk2"), "{sentence}");
}

#[test]
fn the_same_directory_twice_is_refused() {
    let mut world = formatted("2+1", 5);
    world.disks[2] = world.disks[1].clone();
    let sentence = refusal(&mut world);
    assert!(sentence.contains("disk1 and disk2"), "{sentence}");
}

#[test]
fn a_stranger_beside_all_members_is_refused_and_counts_as_absent_otherwise() {
    let mut world = formatted("2+1", 6);
    world.disks.push(SimDisk::new(7));
    let sentence = refusal(&mut world);
    assert!(sentence.contains("disk3") && sentence.contains("no member"), "{sentence}");
    world.disks.swap_remove(1);
    life(async {
        let (log, recovery) = world.open(vec![]).await.unwrap();
        assert!(recovery.warnings.iter().any(|warning| warning.contains("disk1")), "{:?}", recovery.warnings);
        assert_eq!(log.status().missing_members.len(), 1);
    });
}

#[test]
fn a_damaged_membership_counts_as_absent() {
    let mut world = formatted("2+1", 8);
    world.disks[0].corrupt("gabion.json", 40);
    life(async {
        let (_, recovery) = world.open(vec![]).await.unwrap();
        assert!(recovery.warnings[0].contains("disk0"), "{:?}", recovery.warnings);
    });
    world.kill();
    world.disks[1].corrupt("gabion.json", 40);
    let sentence = refusal(&mut world);
    assert!(sentence.contains("disk0, disk1"), "{sentence}");
}

#[test]
fn a_target_that_can_not_be_listed_counts_as_absent() {
    let mut world = formatted("2+1", 9);
    life(async {
        // The membership is read, then the target goes.
        world.disks[0].fail_reads(0, std::io::ErrorKind::Other);
        let (log, _) = world.open(vec![]).await.unwrap();
        assert!(log.status().missing_members.is_empty());
    });
}

#[test]
fn segments_without_a_membership_are_not_formatted_over() {
    let mut world = World::new("1+0", 10);
    life(world.disks[0].create("segments/00/x", 0)).unwrap();
    let sentence = refusal(&mut world);
    assert!(sentence.contains("segments but no gabion.json"), "{sentence}");
}

#[test]
fn a_crash_in_formatting_is_finished_at_the_next_start() {
    for step in 0..40 {
        let mut world = World::new("4+2", 20 + step);
        life(async {
            let power = world.power().fails_after(step, step);
            tokio::select! {
                biased;
                _ = world.open(vec![]) => {}
                () = power => {}
            }
        });
        world.reopen();
        life(async {
            let (log, recovery) = world.start(&Arc::new(Book::default())).await;
            assert!(recovery.warnings.is_empty(), "step {step}: {:?}", recovery.warnings);
            put(&log, 1, 1000).await.unwrap();
        });
    }
}

#[test]
fn an_opened_segment_without_stripes_leaves_nothing_behind() {
    // The power fails at any step of the first write.
    for (geometry, step) in ["1+0", "2+1"].into_iter().flat_map(|geometry| (0..60).map(move |step| (geometry, step))) {
        let mut world = World::new(geometry, 100 + step);
        life(async {
            let (log, _) = world.start(&Arc::new(Book::default())).await;
            tokio::select! {
                biased;
                _ = put(&log, 1, 10) => {}
                () = steps(step) => {}
            }
            world.crash(step);
        });
        let book = Arc::new(Book::default());
        life(async {
            let (log, recovery) = world.start(&book).await;
            assert!(recovery.unreadable.is_empty(), "step {step}: {:?}", recovery.unreadable);
            book.verify(&log).await;
            assert_eq!(world.shard_files().is_empty(), book.mutations().is_empty(), "step {step}");
        });
    }
}

/// The power fails while a segment is opened, and before the next start a target goes: what was not opened holds nothing, wherever its other
/// files are, and is no loss.
#[test]
fn an_opening_that_was_cut_off_is_no_loss_with_targets_absent() {
    let mut acknowledged = 0;
    for (absent, step) in
        [vec![0], vec![2, 5]].into_iter().flat_map(|lost| (0..70).map(move |step| (lost.clone(), step)))
    {
        let mut world = World::new("4+2", 700 + step);
        let book = Arc::new(Book::default());
        let is_acknowledged = life(async {
            let (log, _) = world.start(&book).await;
            let outcome = tokio::select! {
                biased;
                outcome = put(&log, 1, 10) => Some(outcome.is_ok()),
                () = steps(step) => None,
            };
            world.crash(step);
            outcome == Some(true)
        });
        acknowledged += usize::from(is_acknowledged);
        world.absent = absent.clone();
        for book in [Arc::new(Book::default()), book] {
            life(async {
                let (log, recovery) = world.start(&book).await;
                assert!(recovery.unreadable.is_empty(), "{absent:?}, step {step}: {:?}", recovery.unreadable);
                book.verify(&log).await;
                assert!(!is_acknowledged || !book.mutations().is_empty(), "{absent:?}, step {step}");
            });
            world.kill();
        }
        world.absent.clear();
        let book = Arc::new(Book::default());
        life(async {
            let (log, recovery) = world.start(&book).await;
            assert!(recovery.unreadable.is_empty(), "{absent:?}, step {step}, later: {:?}", recovery.unreadable);
            book.verify(&log).await;
            assert!(!is_acknowledged || !book.mutations().is_empty(), "{absent:?}, step {step}, later");
        });
    }
    assert!(acknowledged > 10, "{acknowledged}");
}

/// A process died between giving `gabion.json` its name and making that durable: whoever finds it there relies on it, and power fails later.
#[test]
fn a_membership_that_was_found_survives_a_power_cut() {
    let mut cut = 0;
    for step in 0..24 {
        let power = SimPower::new();
        let mut world = World::with_disks("1+0".parse().unwrap(), 3, 300 + step);
        world.disks = (0..3).map(|disk| SimDisk::powered(300 + disk, &power)).collect();
        power.cut_after(step);
        let ended = life(async {
            tokio::select! {
                biased;
                outcome = world.open(vec![]) => outcome.is_ok(),
                () = steps(1000) => false,
            }
        });
        power.restore();
        cut += u32::from(!ended);
        world.kill();
        let book = Arc::new(Book::default());
        life(async {
            let (log, _) = world.start(&book).await;
            put(&log, 1, 1000).await.unwrap();
        });
        world.crash(step);
        life(async {
            let (log, _) = world.start(&book).await;
            book.verify(&log).await;
        });
    }
    assert!(cut > 5, "{cut}: the test tests nothing");
}

/// Starts the log with another disk in the place of the second.
async fn start_on(world: &mut World, second: Arc<dyn Disk>) -> (Log, Arc<Book>) {
    let mut targets = world.targets();
    targets[1].disk = Some(second);
    let book = Arc::new(Book::default());
    let (log, _) = world.start_on(targets, &book).await;
    (log, book)
}

fn segment_files(world: &World, disk: usize) -> usize {
    world.disks[disk].paths().iter().filter(|path| path.starts_with("segments/")).count()
}

/// Lanes begin new segments on the others, and repair looks after them: a drive that hangs is waited for once.
#[test]
fn a_target_that_never_answers_holds_up_nobody_who_can_do_without_it() {
    let mut world = World::with_disks("2+1".parse().unwrap(), 4, 94);
    let answers = Arc::new(Semaphore::new(0));
    let let_in = Arc::clone(&answers);
    let hung = world.disks[1].with_space(Arc::new(move |space| {
        let answers = Arc::clone(&let_in);
        Box::pin(async move {
            answers.acquire().await.unwrap().forget();
            space.await
        })
    }));
    life(async {
        let (log, _) = start_on(&mut world, hung).await;
        let begin = Instant::now();
        for stripe in 0..40 {
            put(&log, stripe, 1000).await.unwrap();
            append(&log, stripe, 400_000).await.unwrap();
        }
        log.repair(true).await.unwrap();
        let placed = [0, 1, 2, 3].map(|disk| segment_files(&world, disk));
        assert!(placed[1] == 0 && placed[0] > 2 && placed[2] > 2 && placed[3] > 2, "{placed:?}");
        assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", begin.elapsed());
        answers.add_permits(1000);
        steps(100).await;
        for stripe in 40..80 {
            append(&log, stripe, 400_000).await.unwrap();
        }
        assert!(segment_files(&world, 1) > 0);
    });
}

#[test]
fn a_target_that_never_makes_a_file_holds_up_nobody_who_can_do_without_it() {
    let mut world = World::with_disks("2+1".parse().unwrap(), 4, 95);
    let answers = Arc::new(Semaphore::new(0));
    let made = Arc::clone(&answers);
    let hung = world.disks[1].wrapped(Arc::new(move |opening, _, file| {
        let answers = Arc::clone(&made);
        match opening {
            Opening::Existing => file,
            Opening::Created => Box::pin(async move {
                answers.acquire().await.unwrap().forget();
                file.await
            }),
        }
    }));
    life(async {
        let (log, book) = start_on(&mut world, hung).await;
        let begin = Instant::now();
        for stripe in 0..40 {
            put(&log, stripe, 1000).await.unwrap();
            append(&log, stripe, 400_000).await.unwrap();
        }
        log.repair(true).await.unwrap();
        let placed = [0, 1, 2, 3].map(|disk| segment_files(&world, disk));
        assert!(placed[1] == 0 && placed[0] > 2 && placed[2] > 2 && placed[3] > 2, "{placed:?}");
        assert!(begin.elapsed() < Duration::from_secs(100), "{:?}", begin.elapsed());
        assert!(log.status().targets.iter().all(|target| target.state == TargetState::Online), "nothing has failed");
        answers.add_permits(1000);
        steps(200).await;
        assert_eq!(segment_files(&world, 1), 0, "what is made too late is removed");
        for stripe in 40..80 {
            append(&log, stripe, 400_000).await.unwrap();
        }
        assert!(segment_files(&world, 1) > 0);
        book.verify(&log).await;
    });
}

#[test]
fn a_target_that_hangs_holds_up_neither_removals_nor_lists_of_members() {
    let mut world = World::with_disks("2+1".parse().unwrap(), 4, 96);
    life(async {
        let (log, _) = world.start(&Arc::new(Book::default())).await;
        for stripe in 0..40 {
            append(&log, stripe, 400_000).await.unwrap();
        }
    });
    world.kill();
    let (hangs, answers) = (Arc::new(AtomicBool::new(false)), Arc::new(Semaphore::new(0)));
    let (is_hung, let_in) = (Arc::clone(&hangs), Arc::clone(&answers));
    let hung = world.disks[1].with_changes(Arc::new(move |change| {
        if !is_hung.load(Ordering::SeqCst) {
            return change;
        }
        let answers = Arc::clone(&let_in);
        Box::pin(async move {
            answers.acquire().await.unwrap().forget();
            change.await
        })
    }));
    life(async {
        let (log, book) = start_on(&mut world, hung).await;
        let has =
            |disk: usize, id: SegmentId| world.disks[disk].paths().iter().any(|path| path.contains(&id.to_string()));
        let id = book.known().iter().find(|known| known.sealed.is_some() && has(1, known.id)).unwrap().id;
        let is_there = |disk: usize| has(disk, id);
        // Its segment is open from now on.
        put(&log, 2, 1000).await.unwrap();
        hangs.store(true, Ordering::SeqCst);
        let begin = Instant::now();
        // Lists of members that it does not take count all the same.
        let third = log.status().targets[2].id;
        log.target_drain(third, TargetMode::Apply).await.unwrap();
        log.target_undrain(third, TargetMode::Apply).await.unwrap();
        let freed = log.free(id, vec![]).await.unwrap();
        let left: Vec<_> = freed.left.iter().map(|(_, target)| *target).collect();
        assert_eq!(left, [log.status().targets[1].id]);
        assert_eq!([0, 1, 2, 3].map(is_there), [false, true, false, false]);
        log.forget_freed().await.unwrap();
        put(&log, 7, 1000).await.unwrap();
        assert!(begin.elapsed() < Duration::from_secs(100), "{:?}", begin.elapsed());
        hangs.store(false, Ordering::SeqCst);
        answers.add_permits(1000);
        steps(200).await;
        // A list came late, and none before it that is newer: it is no older image of itself.
        for _ in 0..3 {
            world.clock.advance(Duration::from_millis(world.config.epoch_interval_ms));
            log.forget_freed().await.unwrap();
        }
        assert!(!is_there(1), "it is removed when the drive answers");
        assert!(log.status().targets.iter().all(|target| target.state == TargetState::Online));
        assert_eq!(book.snapshot().removed, [id], "that it is gone is noticed before the next start");
    });
}
