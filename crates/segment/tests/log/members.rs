//! Targets that join, are drained, leave and are replaced, while everything goes on.

use std::sync::Arc;

use gabion_platform::{Disk, FaultRates, SimDisk};
use gabion_segment::{Log, LogError, LogTarget, TargetMode, TargetPlan};
use gabion_types::{SegmentId, TargetId};

use crate::book::Book;
use crate::world::{World, append, life, put, steps};

/// A deployment with some sealed segments.
fn written(geometry: &str, disks: usize, seed: u64) -> (World, Arc<Book>) {
    let mut world = World::with_disks(geometry.parse().unwrap(), disks, seed);
    world.config.upkeep.repair_delay_ms = 0;
    let book = Arc::new(Book::default());
    for round in 0..2 {
        life(async {
            let (log, _) = world.start(&book).await;
            for name in 0..3 {
                put(&log, round * 10 + name, 2000 + name as usize * 30_000).await.unwrap();
            }
            append(&log, 9, 70_000).await.unwrap();
        });
        world.kill();
    }
    (world, book)
}

fn newcomer(world: &mut World, label: &str) -> LogTarget {
    let number = world.disks.len();
    let disk = SimDisk::new(9000 + number as u64);
    world.disks.push(disk.clone());
    LogTarget { name: format!("disk{number}"), disk: Some(Arc::new(disk)), failure_domain: label.to_owned() }
}

/// The id of a disk.
fn id_of(log: &Log, number: usize) -> TargetId {
    let name = format!("disk{number}");
    log.status().targets.iter().find(|target| target.name == name).expect("it is there").id
}

fn files_on(disk: &SimDisk) -> usize {
    disk.paths().iter().filter(|path| path.starts_with("segments/")).count()
}

fn refused(outcome: Result<TargetPlan, LogError>) -> String {
    match outcome {
        Err(LogError::Invalid(sentence)) => sentence,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_new_target_joins_and_fills_up() {
    let (mut world, book) = written("2+1", 3, 1);
    life(async {
        let (log, _) = world.start(&book).await;
        let epoch = log.status().membership_epoch;
        let target = newcomer(&mut world, "");
        let plan = log.target_add(target.clone(), TargetMode::DryRun).await.unwrap();
        assert!(plan.fits && !plan.applied && plan.segments == 0, "{plan:?}");
        assert_eq!(log.status().membership_epoch, epoch);
        assert!(world.disks[3].paths().is_empty());
        let plan = log.target_add(target.clone(), TargetMode::Apply).await.unwrap();
        assert!(plan.applied && plan.target == id_of(&log, 3).to_string());
        assert_eq!(log.status().membership_epoch, epoch + 1);
        assert!(refused(log.target_add(target, TargetMode::Apply).await).contains("already"));
    });
    for _ in 0..6 {
        world.kill();
        life(async {
            let (log, recovery) = world.start(&book).await;
            assert!(recovery.warnings.is_empty(), "{:?}", recovery.warnings);
            put(&log, 77, 5000).await.unwrap();
        });
    }
    assert!(files_on(&world.disks[3]) > 0);
    // Once it is a member, it is missed.
    world.kill();
    world.disks.pop();
    life(async {
        let (log, recovery) = world.start(&book).await;
        assert_eq!(log.status().missing_members.len(), 1);
        assert!(!recovery.warnings.is_empty());
        book.verify(&log).await;
    });
}

#[test]
fn what_is_not_empty_or_belongs_elsewhere_does_not_join() {
    let (mut world, book) = written("2+1", 3, 2);
    let (other, _) = written("1+0", 1, 3);
    life(async {
        let (log, _) = world.start(&book).await;
        let target = |disk: &SimDisk| LogTarget {
            name: "new".to_owned(),
            disk: Some(Arc::new(disk.reopen()) as Arc<dyn Disk>),
            failure_domain: String::new(),
        };
        let sentence = refused(log.target_add(target(&other.disks[0]), TargetMode::Apply).await);
        assert!(sentence.contains("belongs to deployment"), "{sentence}");
        let foreign = other.disks[0].reopen();
        foreign.unlink("gabion.json").await.unwrap();
        let sentence = refused(log.target_add(target(&foreign), TargetMode::DryRun).await);
        assert!(sentence.contains("holds shards"), "{sentence}");
        let absent = LogTarget { disk: None, ..target(&foreign) };
        assert!(refused(log.target_add(absent, TargetMode::Apply).await).contains("not there"));
    });
}

#[test]
fn a_drained_target_is_empty_and_can_leave() {
    for from_scratch in [false, true] {
        let (mut world, book) = written("2+1", 4, 4);
        let victim = (0..4).max_by_key(|number| files_on(&world.disks[*number])).unwrap();
        life(async {
            let (log, _) = world.start(&book).await;
            put(&log, 50, 1000).await.unwrap();
            let id = id_of(&log, victim);
            assert!(refused(log.target_remove(id, false, TargetMode::Apply).await).contains("drain it first"));
            let plan = log.target_drain(id, TargetMode::DryRun).await.unwrap();
            assert!(plan.fits && plan.segments > 0 && plan.bytes > 0, "{plan:?}");
            log.target_drain(id, TargetMode::Apply).await.unwrap();
            // Nothing is written: the lane lets go of it all the same.
            steps(500).await;
            let pass = log.repair(false).await.unwrap();
            assert_eq!((pass.shards_failed, pass.shards_blocked), (0, 0));
            assert_eq!(files_on(&world.disks[victim]), 0);
            for name in 60..64 {
                put(&log, name, 1000).await.unwrap();
            }
            assert_eq!(files_on(&world.disks[victim]), 0, "no new segment goes there");
            book.verify(&log).await;
            assert!(log.target_remove(id, false, TargetMode::Apply).await.unwrap().applied);
        });
        world.kill();
        // It may still be named: it is left alone.
        let book = if from_scratch { Arc::new(Book::default()) } else { book };
        life(async {
            let (log, recovery) = world.start(&book).await;
            assert!(recovery.warnings.iter().any(|warning| warning.contains("no member")), "{:?}", recovery.warnings);
            assert_eq!(log.status().targets.len(), 3);
            book.verify(&log).await;
            assert_eq!(log.status().redundancy.iter().skip(1).sum::<usize>(), 0);
            // It may come back, as a new one.
            let target = LogTarget { failure_domain: String::new(), ..world.targets()[victim].clone() };
            assert!(log.target_add(target, TargetMode::Apply).await.unwrap().applied);
        });
    }
}

#[test]
fn a_drain_that_can_not_be_is_refused() {
    let (mut world, book) = written("2+1", 3, 5);
    life(async {
        let (log, _) = world.start(&book).await;
        let id = id_of(&log, 0);
        let plan = log.target_drain(id, TargetMode::DryRun).await.unwrap();
        assert!(!plan.fits && plan.warnings.len() == 2, "{plan:?}");
        assert!(refused(log.target_drain(id, TargetMode::Apply).await).contains("Nothing was changed"));
        assert!(refused(log.target_drain(TargetId::from_u128(5), TargetMode::Apply).await).contains("no target"));
        assert!(log.status().targets.iter().all(|target| !target.draining));
    });
}

#[test]
fn a_lost_target_is_replaced_by_an_empty_one() {
    for geometry in ["1+1", "2+1", "4+2"] {
        let shards = geometry.parse::<gabion_types::Geometry>().unwrap().shards();
        let (mut world, book) = written(geometry, shards, 6);
        world.absent = vec![0];
        life(async {
            let (log, _) = world.start(&book).await;
            let lost = log.status().missing_members[0];
            assert_eq!(id_of(&log, 0), lost, "its directory tells which one it is");
            let plan = log.target_replace(lost, newcomer(&mut world, ""), TargetMode::Apply).await.unwrap();
            assert!(plan.applied && plan.segments > 0, "{plan:?}");
            let pass = log.repair(false).await.unwrap();
            assert_eq!((pass.shards_built, pass.shards_failed, pass.shards_blocked), (plan.segments, 0, 0));
            assert!(log.status().missing_members.is_empty());
            assert_eq!(log.status().redundancy.len(), 1);
            put(&log, 99, 10_000).await.unwrap();
            book.verify(&log).await;
        });
        world.kill();
        // The old one is no member any more, wherever it turns up.
        world.absent.clear();
        let rebuilt = Arc::new(Book::default());
        life(async {
            let (log, recovery) = world.start(&rebuilt).await;
            assert!(recovery.warnings.iter().any(|warning| warning.contains("disk0")), "{:?}", recovery.warnings);
            assert_eq!(rebuilt.mutations(), book.mutations());
            assert!(rebuilt.known().iter().all(|known| known.former.is_empty()));
            for disk in 1..world.disks.len() {
                world.disks[disk].offline(true);
                rebuilt.verify(&log).await;
                world.disks[disk].offline(false);
            }
        });
    }
}

#[test]
fn segments_that_are_written_to_are_counted_with_what_is_moved() {
    let mut world = World::new("2+1", 43);
    let book = Arc::new(Book::default());
    life(async {
        let (log, _) = world.start(&book).await;
        put(&log, 1, 100_000).await.unwrap();
        append(&log, 9, 70_000).await.unwrap();
        let old = id_of(&log, 1);
        let shards = |number: usize| {
            let status = log.status();
            (status.targets[number].shards, status.targets[number].open_shards)
        };
        assert_eq!(shards(1), (0, 2));
        let plan = log.target_replace(old, newcomer(&mut world, ""), TargetMode::Apply).await.unwrap();
        assert_eq!((plan.segments, plan.open_segments), (2, 2), "{plan:?}");
        // Half of what was written, with headers and seals.
        assert!((85_000..200_000).contains(&plan.bytes), "{plan:?}");
        steps(500).await;
        assert_eq!(shards(1), (2, 0), "they are sealed");
        assert_eq!(log.repair(false).await.unwrap().shards_built, 2);
        assert_eq!((shards(1), shards(3)), ((0, 0), (2, 0)));
        book.verify(&log).await;
    });
}

/// Nothing has been written to it yet.
#[test]
fn the_room_on_a_target_that_has_just_joined_is_known() {
    let (mut world, book) = written("2+1", 3, 44);
    life(async {
        let (log, _) = world.start(&book).await;
        let sizes = || log.status().targets.iter().map(|target| target.total_bytes).collect::<Vec<_>>();
        log.target_add(newcomer(&mut world, ""), TargetMode::Apply).await.unwrap();
        assert!(sizes()[3] > 0, "{:?}", sizes());
        log.target_replace(id_of(&log, 0), newcomer(&mut world, ""), TargetMode::Apply).await.unwrap();
        assert!(sizes()[4] > 0, "{:?}", sizes());
    });
}

#[test]
fn files_that_go_with_a_lost_target_are_left_of_no_segment() {
    for replaced in [false, true] {
        let (mut world, book) = written("2+1", 4, 45);
        let held = |world: &World, id: SegmentId| world.disks[0].paths().iter().any(|it| it.contains(&id.to_string()));
        let known = book.known().into_iter().find(|it| it.sealed.is_some() && held(&world, it.id));
        let id = known.expect("some segment has a shard there").id;
        world.absent = vec![0];
        life(async {
            let (log, _) = world.start(&book).await;
            let lost = log.status().missing_members[0];
            let freed = log.free(id, vec![]).await.unwrap();
            assert_eq!(freed.left.len(), 1);
            assert!(log.remembered().is_empty());
            if replaced {
                log.target_replace(lost, newcomer(&mut world, ""), TargetMode::Apply).await.unwrap();
            } else {
                log.target_remove(lost, true, TargetMode::Apply).await.unwrap();
            }
            assert!(log.remembered().contains(&id), "nothing is left of it");
        });
    }
}

#[test]
fn a_target_that_works_is_replaced_while_it_serves() {
    let (mut world, book) = written("2+1", 3, 7);
    life(async {
        let (log, _) = world.start(&book).await;
        put(&log, 50, 1000).await.unwrap();
        let old = id_of(&log, 1);
        log.target_replace(old, newcomer(&mut world, ""), TargetMode::Apply).await.unwrap();
        steps(500).await;
        log.repair(false).await.unwrap();
        book.verify(&log).await;
        assert_eq!(files_on(&world.disks[1]), 0);
        let domain =
            |name: &str| log.status().targets.iter().find(|target| target.name == name).unwrap().failure_domain.clone();
        assert_eq!(domain("disk3"), "domain1");
        assert!(log.target_remove(old, false, TargetMode::Apply).await.unwrap().applied);
    });
}

/// The old target answers late how much room it has: by then it leaves, and the new one was not there to be asked.
#[test]
fn a_target_is_replaced_while_a_segment_is_opened() {
    for seed in 0..40 {
        let (mut world, book) = written("2+1", 3, 400 + seed);
        life(async {
            let (log, _) = world.start(&book).await;
            let (old, new) = (id_of(&log, 1), newcomer(&mut world, ""));
            world.disks[1].set_rates(FaultRates { slow_turns_max: 200, ..FaultRates::default() });
            let (written, replaced) =
                tokio::join!(put(&log, 50, 1000), log.target_replace(old, new, TargetMode::Apply));
            assert!(written.is_ok() && replaced.is_ok(), "seed {seed}: {written:?}, {replaced:?}");
            book.verify(&log).await;
        });
    }
}

/// Each of two changes would leave enough targets, but not both.
#[test]
fn changes_at_the_same_time_know_of_each_other() {
    for seed in 0..10 {
        let (mut world, book) = written("2+1", 4, 500 + seed);
        life(async {
            let (log, _) = world.start(&book).await;
            let ids = [id_of(&log, 0), id_of(&log, 1)];
            let (first, second) =
                tokio::join!(log.target_drain(ids[0], TargetMode::Apply), log.target_drain(ids[1], TargetMode::Apply));
            let drained = [first.is_ok(), second.is_ok()];
            assert!(drained[0] != drained[1], "seed {seed}: {first:?}, {second:?}");
            assert!(refused(if drained[0] { second } else { first }).contains("targets would be left"));
            put(&log, 50, 1000).await.unwrap();

            let new = newcomer(&mut world, "");
            let (first, second) =
                tokio::join!(log.target_add(new.clone(), TargetMode::Apply), log.target_add(new, TargetMode::Apply));
            assert!(first.is_ok() != second.is_ok(), "seed {seed}: {first:?}, {second:?}");
            assert_eq!(log.status().targets.len(), 5);
        });
    }
}

/// A target on which nothing lies is removed while the next segment is opened: it goes elsewhere, or the target stays.
#[test]
fn nothing_is_written_to_a_target_that_is_being_removed() {
    let mut removed = 0;
    for seed in 0..200 {
        let (mut world, book) = written("1+0", 1, 600 + seed);
        life(async {
            let (log, _) = world.start(&book).await;
            log.target_add(newcomer(&mut world, ""), TargetMode::Apply).await.unwrap();
            let empty = id_of(&log, 1);
            for disk in &world.disks {
                disk.set_rates(FaultRates { slow_turns_max: 20, ..FaultRates::default() });
            }
            // The other one has much less room: this one is chosen.
            world.disks[0].full_at(64 << 20);
            let lost = seed % 2 == 1;
            let remove = async {
                steps(seed % 25).await;
                log.target_remove(empty, lost, TargetMode::Apply).await
            };
            let (written, gone) = tokio::join!(put(&log, 50, 1000), remove);
            written.unwrap();
            removed += usize::from(gone.is_ok());
            assert!(gone.is_ok() || !log.status().targets[1].draining, "what is refused changes nothing");
            book.verify(&log).await;
        });
    }
    assert!((20..180).contains(&removed), "{removed}");
}

/// Too few targets take the list without it: the next start may find that it left.
#[test]
fn nothing_is_written_to_a_target_that_may_have_been_removed() {
    [false, true].into_iter().for_each(may_have_been_removed);
}

fn may_have_been_removed(is_kept: bool) {
    let (mut world, book) = written("1+0", 1, 700);
    life(async {
        let (log, _) = world.start(&book).await;
        for _ in 0..3 {
            log.target_add(newcomer(&mut world, ""), TargetMode::Apply).await.unwrap();
        }
        world.disks[0].full_at(64 << 20);
        for disk in &world.disks[2..] {
            disk.fail_writes(1, std::io::ErrorKind::Other);
        }
        let outcome = log.target_remove(id_of(&log, 1), false, TargetMode::Apply).await;
        assert!(matches!(&outcome, Err(LogError::Unavailable(why)) if why.contains("next start")), "{outcome:?}");
        let is_draining = || log.status().targets[1].draining;
        assert!(is_draining());
        for name in 50..60 {
            put(&log, name, 1000).await.unwrap();
        }
        assert_eq!(files_on(&world.disks[1]), 0);
        if is_kept {
            log.target_undrain(id_of(&log, 1), TargetMode::Apply).await.unwrap();
            assert!(!is_draining());
        }
    });
    world.kill();
    life(async {
        let (log, _) = world.start(&book).await;
        let status = log.status();
        let member = status.targets.iter().find(|target| target.name == "disk1" && target.id != TargetId::NONE);
        assert_eq!(member.is_some(), is_kept);
        assert!(member.is_none_or(|target| !target.draining));
        book.verify(&log).await;
    });
}

#[test]
fn no_target_is_removed_that_new_segments_need() {
    let (mut world, book) = written("2+1", 4, 710);
    life(async {
        let (log, _) = world.start(&book).await;
        log.target_drain(id_of(&log, 0), TargetMode::Apply).await.unwrap();
        let sentence = refused(log.target_remove(id_of(&log, 1), false, TargetMode::Apply).await);
        assert!(sentence.contains("2 targets would be left"), "{sentence}");
        assert!(!log.status().targets[1].draining);
        put(&log, 50, 1000).await.unwrap();
    });
}

/// Who replaces a target has decided: its shards are not waited for, though it is still a member and may come back.
#[test]
fn a_failed_target_that_is_replaced_is_not_waited_for() {
    let (mut world, book) = written("2+1", 3, 9);
    world.config.upkeep.repair_delay_ms = 3_600_000;
    life(async {
        let (log, _) = world.start(&book).await;
        world.disks[1].offline(true);
        for name in 50..54 {
            let _ = put(&log, name, 1000).await;
        }
        let status = log.status();
        assert_eq!(status.targets[1].state, gabion_segment::TargetState::Failed);
        assert_eq!(log.repair(false).await.unwrap().shards_built, 0);
        assert!(status.repair.shards_left == 0 && status.repair.shards_waiting > 0, "{:?}", status.repair);
        let old = id_of(&log, 1);
        log.target_replace(old, newcomer(&mut world, ""), TargetMode::Apply).await.unwrap();
        let repair = log.status().repair;
        assert!(repair.shards_left > 0 && repair.shards_waiting == 0, "{repair:?}");
        let pass = log.repair(false).await.unwrap();
        assert_eq!((pass.shards_built, pass.shards_failed, pass.lost_stripes), (repair.shards_left, 0, 0));
        let repair = log.status().repair;
        assert_eq!((repair.shards_left, repair.bytes_left, repair.shards_waiting), (0, 0, 0));
        book.verify(&log).await;
    });
}

#[test]
fn readers_and_writers_go_on_while_shards_move() {
    for seed in 0..6 {
        let (mut world, book) = written("2+1", 4, 20 + seed);
        let victim = (0..4).max_by_key(|number| files_on(&world.disks[*number])).unwrap();
        life(async {
            let (log, _) = world.start(&book).await;
            let id = id_of(&log, victim);
            log.target_drain(id, TargetMode::Apply).await.unwrap();
            let mut moving = std::pin::pin!(log.repair(false));
            let mut rounds = 0;
            let pass = loop {
                tokio::select! {
                    biased;
                    pass = &mut moving => break pass.unwrap(),
                    () = async {
                        book.verify(&log).await;
                        put(&log, 100 + rounds, 700).await.unwrap();
                    } => rounds += 1,
                }
            };
            assert!(pass.shards_built > 0 && rounds > 0, "{pass:?}, {rounds} rounds");
            book.verify(&log).await;
            assert!(log.target_remove(id, false, TargetMode::Apply).await.unwrap().applied);
        });
    }
}

/// A drive that failed since the start is as good as one that was absent then: what is left of a segment does not count on it.
#[test]
fn the_last_copy_is_not_given_up_for_a_drive_that_failed() {
    let (mut world, book) = written("2+1", 4, 8);
    life(async {
        let (log, _) = world.start(&book).await;
        let holders: Vec<usize> = (0..4).filter(|number| files_on(&world.disks[*number]) > 0).collect();
        let (failed, asked) = (holders[0], holders[1]);
        assert!(log.target_remove(id_of(&log, asked), true, TargetMode::DryRun).await.is_ok());
        world.disks[failed].offline(true);
        for number in 0..8 {
            put(&log, 200 + number, 700).await.unwrap();
        }
        assert_eq!(log.status().targets[failed].state, gabion_segment::TargetState::Failed);
        // Whoever reads meanwhile notes shards that are out of reach: they are not lost for that.
        book.verify(&log).await;
        let sentence = refused(log.target_remove(id_of(&log, asked), true, TargetMode::Apply).await);
        assert!(sentence.contains("too few shards"), "{sentence}");
        // It can be read again, though it is not known yet: it is not given up for the other one either.
        world.disks[failed].offline(false);
        world.disks[asked].offline(true);
        for number in 0..8 {
            let _ = put(&log, 300 + number, 700).await;
        }
        let sentence = refused(log.target_remove(id_of(&log, failed), true, TargetMode::Apply).await);
        assert!(sentence.contains("too few shards"), "{sentence}");
        world.disks[asked].offline(false);
    });
}

/// A segment was opened a shard short, and lost another one; a third is away while a target with the fourth is drained. Nobody knows of that shard, so it
/// does not move, and is needed when the one that is away comes back.
#[test]
fn a_target_with_shards_of_what_could_not_be_read_does_not_leave() {
    let mut world = World::with_disks("4+2".parse().unwrap(), 7, 11);
    world.config.upkeep.repair_delay_ms = 0;
    life(async { drop(world.open(vec![]).await.unwrap()) });
    world.kill();
    world.absent = vec![5, 6];
    let book = Arc::new(Book::default());
    life(async {
        let (log, _) = world.start(&book).await;
        put(&log, 1, 20_000).await.unwrap();
    });
    world.kill();
    world.absent = vec![0, 1];
    let rebuilt = Arc::new(Book::default());
    life(async {
        let (log, recovery) = world.start(&rebuilt).await;
        assert_eq!(recovery.unreadable.len(), 1, "{:?}", recovery.unreadable);
        let drained = id_of(&log, 2);
        log.target_drain(drained, TargetMode::Apply).await.unwrap();
        log.repair(false).await.unwrap();
        assert_eq!(log.status().targets[2].shards, 0);
        assert!(!log.target_remove(drained, false, TargetMode::DryRun).await.unwrap().fits);
        let sentence = refused(log.target_remove(drained, false, TargetMode::Apply).await);
        assert!(sentence.contains("shards of 1 segments lie on it that could not be read"), "{sentence}");
        // Of one that is away it is not known. One on which nothing lies may leave.
        let plan = log.target_remove(id_of(&log, 1), false, TargetMode::DryRun).await.unwrap();
        assert!(plan.warnings.iter().any(|warning| warning.contains("is not known (it is not there)")), "{plan:?}");
        assert!(log.target_remove(id_of(&log, 6), false, TargetMode::DryRun).await.unwrap().fits);
    });
    world.kill();
    world.absent = vec![0];
    life(async {
        let (log, recovery) = world.start(&book).await;
        assert!(recovery.unreadable.is_empty(), "{:?}", recovery.unreadable);
        book.verify(&log).await;
        log.repair(false).await.unwrap();
        assert!(log.target_remove(id_of(&log, 2), false, TargetMode::Apply).await.unwrap().applied);
        book.verify(&log).await;
    });
}

#[test]
fn a_lost_target_is_given_up_and_its_shards_spread() {
    let (mut world, book) = written("2+1", 4, 8);
    let victim = (0..4).max_by_key(|number| files_on(&world.disks[*number])).unwrap();
    world.absent = vec![victim];
    life(async {
        let (log, _) = world.start(&book).await;
        let lost = log.status().missing_members[0];
        assert!(refused(log.target_remove(lost, false, TargetMode::Apply).await).contains("lost"));
        let plan = log.target_remove(lost, true, TargetMode::Apply).await.unwrap();
        assert!(plan.fits && plan.segments > 0, "{plan:?}");
        assert_eq!(log.repair(false).await.unwrap().shards_built, plan.segments);
        assert_eq!(log.status().redundancy.len(), 1);
        book.verify(&log).await;
    });
    // One that is there, and the last copy of something, is not given up.
    world.kill();
    life(async {
        let (log, _) = world.start(&book).await;
        let id = log.status().targets.iter().find(|target| target.shards > 0).unwrap().id;
        for target in
            log.status().targets.iter().filter(|target| target.id != id && target.id != TargetId::NONE).take(1)
        {
            let plan = log.target_remove(target.id, true, TargetMode::DryRun).await.unwrap();
            assert!(!plan.applied);
        }
        assert!(refused(log.target_remove(id, true, TargetMode::Apply).await).contains("Nothing was changed"));
    });
    // The drive that was given up is back on the list, and does not say any more what it was.
    world.kill();
    world.absent.clear();
    world.disks[victim].corrupt("gabion.json", 40);
    life(async {
        let (log, recovery) = world.start(&book).await;
        let is_told = |warning: &String| warning.contains(&format!("disk{victim}")) && warning.contains("left alone");
        assert!(recovery.warnings.iter().any(is_told), "{:?}", recovery.warnings);
        assert_eq!(log.status().missing_members.len(), 0);
        book.verify(&log).await;
    });
}

/// Power fails at any step of a change; what the next start finds is the old list or the new one, as a whole, and the change can be
/// made then.
#[test]
fn a_crash_in_a_change_leaves_the_old_members_or_the_new_ones() {
    let mut seen = [0, 0];
    for (step, seed) in (0..14).flat_map(|step| (0..6).map(move |seed| (step, seed))) {
        let (mut world, book) = written("2+1", 3, 300 + seed);
        life(async {
            let (log, _) = world.start(&book).await;
            let target = newcomer(&mut world, "");
            let old = id_of(&log, 0);
            let power = world.power().fails_after(step, step * 31 + seed);
            tokio::select! {
                biased;
                _ = log.target_replace(old, target, TargetMode::Apply) => {}
                () = power => {}
            }
            steps(50).await;
        });
        world.reopen();
        let added = world.disks.pop().unwrap();
        let is_member = life(async {
            // A start without the newcomer shows whether the others know of it.
            let (log, _) = world.start(&book).await;
            book.verify(&log).await;
            !log.status().missing_members.is_empty()
        });
        seen[usize::from(is_member)] += 1;
        world.kill();
        world.disks.push(added.reopen());
        if !is_member && added.reopen().paths().iter().all(|path| path != "gabion.json") {
            world.disks.pop();
        }
        life(async {
            let (log, _) = world.start(&book).await;
            let status = log.status();
            let draining = status.targets.iter().filter(|target| target.draining).count();
            assert_eq!(status.targets.len() == 4, draining == 1, "the list came as a whole: {:?}", status.targets);
            assert_eq!(status.targets.len(), world.disks.len());
            let old = id_of(&log, 0);
            if status.targets.len() == 3 {
                let target = newcomer(&mut world, "");
                log.target_replace(old, target, TargetMode::Apply).await.unwrap();
            }
            steps(200).await;
            log.repair(false).await.unwrap();
            assert!(log.target_remove(old, false, TargetMode::Apply).await.unwrap().applied);
            book.verify(&log).await;
        });
    }
    assert!(seen[0] > 5 && seen[1] > 5, "{seen:?}");
}

/// Every disk holds at most one shard of a segment, and every segment has all of its shards.
fn is_spread(world: &World, shards: usize) -> bool {
    let mut held = std::collections::BTreeMap::new();
    for disk in &world.disks {
        let mut segments: Vec<String> = disk.paths().into_iter().filter_map(segment_in).collect();
        segments.sort();
        let count = segments.len();
        segments.dedup();
        if segments.len() < count {
            return false;
        }
        segments.into_iter().for_each(|segment| *held.entry(segment).or_insert(0) += 1);
    }
    held.values().all(|count| *count == shards)
}

fn segment_in(path: String) -> Option<String> {
    let name = path.strip_prefix("segments/")?.split('/').nth(1)?;
    Some(name.split('.').next()?.to_owned())
}

/// A deployment with a target that joined when all was written.
async fn with_a_new_target(world: &mut World, book: &Arc<Book>) -> Log {
    let (log, _) = world.start(book).await;
    let target = newcomer(world, "domain3");
    log.target_add(target, TargetMode::Apply).await.unwrap();
    world.disks.iter().for_each(|disk| disk.full_at(64 << 20));
    log
}

#[test]
fn a_new_target_takes_shards_of_the_others_when_that_is_asked_for() {
    let (mut world, book) = written("2+1", 3, 41);
    world.config.target_reserve_bytes = 0;
    life(async {
        let log = with_a_new_target(&mut world, &book).await;
        assert_eq!(log.repair(false).await.unwrap().shards_built, 0, "nothing moves by itself");
        let plan = log.rebalance(0, TargetMode::DryRun).await;
        assert!(plan.segments > 0 && plan.bytes > 0 && !plan.applied, "{plan:?}");
        assert!(log.rebalancing().is_none() && files_on(&world.disks[3]) == 0);
        assert!(log.rebalance(100, TargetMode::DryRun).await.segments == 0);
        assert!(log.rebalance(0, TargetMode::Apply).await.applied);
        assert_eq!(log.rebalancing(), Some(0));
        let pass = log.repair(false).await.unwrap();
        assert_eq!(pass.shards_built, plan.segments, "{pass:?}");
        assert_eq!(files_on(&world.disks[3]), plan.segments);
        assert!(log.rebalancing().is_none() && log.status().rebalance.is_none());
        assert_eq!(log.rebalance(0, TargetMode::DryRun).await.segments, 0, "as alike as whole shards make them");
        assert_eq!(log.status().redundancy.len(), 1, "nothing is missing");
        book.verify(&log).await;
    });
    world.kill();
    life(async {
        let (log, _) = world.start(&book).await;
        book.verify(&log).await;
        assert!(is_spread(&world, 3));
    });
}

#[test]
fn a_rebalance_that_is_cut_off_goes_on() {
    let mut cut = 0;
    for step in 0..10 {
        let (mut world, book) = written("2+1", 3, 700 + step);
        let step = step * 4;
        world.config.target_reserve_bytes = 0;
        life(async {
            let log = with_a_new_target(&mut world, &book).await;
            log.rebalance(0, TargetMode::Apply).await;
            let power = world.power().fails_after(step, step * 31);
            tokio::select! {
                biased;
                _ = log.repair(false) => {}
                () = power => cut += 1,
            }
            steps(50).await;
        });
        world.reopen();
        life(async {
            let (log, _) = world.start(&book).await;
            book.verify(&log).await;
            world.disks.iter().for_each(|disk| disk.full_at(64 << 20));
            log.rebalance_on(0);
            log.repair(false).await.unwrap();
            assert!(log.rebalancing().is_none());
            assert_eq!(log.rebalance(0, TargetMode::DryRun).await.segments, 0);
            book.verify(&log).await;
        });
    }
    assert!(cut > 3, "the power failed in {cut} of them");
}
