//! Targets that come back as older images of themselves: what was freed since stays freed, what lives is kept (docs/adr/0010).

use std::sync::Arc;
use std::time::Duration;

use gabion_platform::{Disk, DiskImage, SimDisk};
use gabion_segment::{Log, LogError, LogTarget, TargetMode, TargetState};
use gabion_types::{SegmentId, TargetId};

use crate::book::{Book, Page};
use crate::world::{World, life, put, steps};

const FILE_BYTES_MAX: usize = 1 << 20;

/// Two epochs pass, as they do while the server runs.
async fn forget(world: &World, log: &Log) -> usize {
    let mut forgotten = 0;
    for _ in 0..2 {
        world.clock.advance(Duration::from_millis(world.config.epoch_interval_ms));
        forgotten += log.forget_freed().await.unwrap();
    }
    forgotten
}

fn only_segment(book: &Book) -> SegmentId {
    let open = book.known().into_iter().filter(|known| known.applied_stripes > 0);
    let ids: Vec<SegmentId> = open.map(|known| known.id).collect();
    assert_eq!(ids.len(), 1);
    ids[0]
}

/// A world in which a segment was written, freed and forgotten, and with it the record that said so; and images of the targets from before.
struct Freed {
    world: World,
    id: SegmentId,
    images: Vec<DiskImage>,
    /// What lives.
    book: Arc<Book>,
}

fn freed(geometry: &str, disks: usize, seed: u64) -> Freed {
    let mut world = World::with_disks(geometry.parse().unwrap(), disks, seed);
    let book = Arc::new(Book::default());
    life(async {
        let (log, _) = world.start(&book).await;
        put(&log, 1, 2000).await.unwrap();
        log.shutdown().await;
    });
    world.kill();
    let id = only_segment(&book);
    let images = world.disks.iter().map(SimDisk::image).collect();
    life(async {
        let (log, _) = world.start(&book).await;
        log.free(id, vec![]).await.unwrap();
        assert_eq!(forget(&world, &log).await, 1);
        log.shutdown().await;
    });
    world.kill();
    // The segment with the record goes, too, when all that was in it was forgotten.
    life(async {
        let (log, _) = world.start(&book).await;
        put(&log, 2, 2000).await.unwrap();
        let with_record: Vec<SegmentId> =
            book.known().iter().filter(|it| it.sealed.is_some()).map(|it| it.id).collect();
        for segment in with_record {
            log.free(segment, vec![]).await.unwrap();
        }
        assert!(forget(&world, &log).await > 0);
        log.shutdown().await;
    });
    world.kill();
    Freed { world, id, images, book }
}

fn mutations(book: &Book) -> Vec<String> {
    book.mutations().into_values().collect()
}

#[test]
fn what_was_freed_does_not_come_back_with_an_older_image() {
    for (geometry, disks, stale, seed) in
        [("1+1", 2, vec![0], 1), ("1+1", 3, vec![1], 2), ("2+2", 4, vec![1, 2], 3), ("2+2", 4, vec![0, 3], 4)]
    {
        let Freed { mut world, id, images, book } = freed(geometry, disks, seed);
        for &target in &stale {
            world.disks[target].restore(&images[target]);
        }
        world.reopen();
        let held = stale
            .iter()
            .filter(|target| world.disks[**target].paths().iter().any(|path| path.contains(&id.to_string())));
        let held = held.count();
        let rebuilt = Arc::new(Book::default());
        life(async {
            let (log, recovery) = world.start(&rebuilt).await;
            assert_eq!(mutations(&rebuilt), ["put 2 2000"], "{geometry}");
            assert_eq!(rebuilt.mutations(), book.mutations());
            assert!(recovery.unreadable.is_empty(), "{:?}", recovery.unreadable);
            let told = recovery.warnings.iter().filter(|warning| warning.contains("older image of itself"));
            assert_eq!(told.count(), stale.len(), "{:?}", recovery.warnings);
            let status = log.status();
            assert_eq!(status.targets.iter().filter(|target| target.stale).count(), stale.len());
            assert_eq!(status.targets.iter().map(|target| target.set_aside_files).sum::<usize>(), held);
            log.repair(true).await.unwrap();
            rebuilt.verify(&log).await;
            log.shutdown().await;
        });
        world.kill();
        // The files are kept under other names, and do not count at any later start.
        let kept = world.shard_files().into_iter().filter(|path| path.contains(&id.to_string()));
        assert!(kept.clone().all(|path| path.ends_with(".stale")) && kept.count() == held, "{:?}", world.shard_files());
        let again = Arc::new(Book::default());
        life(async {
            let (log, recovery) = world.start(&again).await;
            assert_eq!(again.mutations(), book.mutations());
            assert!(recovery.warnings.is_empty(), "{:?}", recovery.warnings);
            assert!(log.status().targets.iter().all(|target| !target.stale));
        });
    }
}

#[test]
fn a_power_cut_at_any_step_of_setting_aside_brings_nothing_back() {
    let mut cut = 0;
    for step in 0..60 {
        let Freed { mut world, images, book, .. } = freed("1+1", 2, 100 + step);
        world.disks[0].restore(&images[0]);
        world.reopen();
        for turn in 0..2 {
            let power = world.power();
            life(async {
                let opening = async {
                    let rebuilt = Arc::new(Book::default());
                    world.open(rebuilt.known()).await.map(drop)
                };
                tokio::select! {
                    biased;
                    outcome = opening => outcome.unwrap(),
                    () = power.fails_after(step + turn, step) => cut += 1,
                }
            });
            world.crash(step);
        }
        let rebuilt = Arc::new(Book::default());
        life(async {
            world.start(&rebuilt).await;
            assert_eq!(rebuilt.mutations(), book.mutations(), "step {step}");
        });
    }
    assert!(cut > 30, "{cut}: the test tests nothing");
}

/// A target that was away while epochs passed is behind, but no older image: its shards may be the last ones.
#[test]
fn a_target_that_was_away_is_not_stale() {
    let mut world = World::with_disks("1+1".parse().unwrap(), 3, 7);
    let book = Arc::new(Book::default());
    life(async {
        let (log, _) = world.start(&book).await;
        put(&log, 1, 2000).await.unwrap();
        log.shutdown().await;
    });
    world.kill();
    let living = only_segment(&book);
    let holds =
        |world: &World, disk: usize| world.disks[disk].paths().iter().any(|path| path.contains(&living.to_string()));
    let away = (0..3).find(|disk| holds(&world, *disk)).unwrap();
    let other = (0..3).rfind(|disk| holds(&world, *disk)).unwrap();
    world.absent = vec![away];
    life(async {
        let (log, _) = world.start(&book).await;
        put(&log, 2, 2000).await.unwrap();
        log.shutdown().await;
    });
    world.kill();
    life(async {
        let (log, _) = world.start(&book).await;
        let dead = book.known().into_iter().find(|known| known.sealed.is_some() && known.id != living).unwrap();
        log.free(dead.id, vec![]).await.unwrap();
        let epoch = log.status().membership_epoch;
        // Nobody knows what the one that is away comes back as: what was freed is remembered until it is there.
        assert_eq!(forget(&world, &log).await, 0);
        assert!(log.status().membership_epoch > epoch);
        log.shutdown().await;
    });
    world.kill();
    world.absent = vec![other];
    let rebuilt = Arc::new(Book::default());
    life(async {
        let (log, _) = world.start(&rebuilt).await;
        assert_eq!(mutations(&rebuilt), ["put 1 2000"]);
        assert!(log.status().targets.iter().all(|target| !target.stale));
        rebuilt.verify(&log).await;
    });
}

#[test]
fn a_target_that_returns_as_an_older_image_while_the_log_is_open_is_left_alone() {
    let mut world = World::with_disks("1+1".parse().unwrap(), 3, 8);
    let book = Arc::new(Book::default());
    life(async {
        let (log, _) = world.start(&book).await;
        let disk = world.disks[0].clone();
        let old = disk.read_file("gabion.json", FILE_BYTES_MAX).await.unwrap();
        put(&log, 1, 2000).await.unwrap();
        log.shutdown().await;
        drop(log);
        let (log, _) = world.start(&book).await;
        log.free(only_segment(&book), vec![]).await.unwrap();
        assert_eq!(forget(&world, &log).await, 1);
        let newest = disk.read_file("gabion.json", FILE_BYTES_MAX).await.unwrap();
        assert_ne!(old, newest);
        let state = |log: &Log| log.status().targets[0].state;
        // It fails, and is the older image when it answers again.
        disk.offline(true);
        while state(&log) != TargetState::Failed {
            log.repair(true).await.unwrap();
        }
        disk.offline(false);
        disk.write_file("gabion.json", old.clone()).await.unwrap();
        world.clock.advance(Duration::from_millis(world.config.reprobe_ms));
        log.repair(true).await.unwrap();
        assert_eq!(state(&log), TargetState::Failed);
        let status = log.status().targets[0].clone();
        assert!(status.stale && status.last_error.unwrap().contains("older image"));
        // Nor is it told the newest list, which would hide what it is.
        let epoch = log.status().membership_epoch;
        log.target_undrain(log.status().targets[1].id, TargetMode::Apply).await.unwrap();
        assert_eq!(log.status().membership_epoch, epoch + 1);
        assert_eq!(disk.read_file("gabion.json", FILE_BYTES_MAX).await.unwrap(), old);
    });
}

/// A world of two targets with two living segments; the second came to be, and lies, on both.
struct Living {
    world: World,
    book: Arc<Book>,
    image: DiskImage,
}

fn living(seed: u64) -> Living {
    let mut world = World::with_disks("1+1".parse().unwrap(), 2, seed);
    world.config.upkeep.repair_delay_ms = 0;
    let book = Arc::new(Book::default());
    life(async {
        let (log, _) = world.start(&book).await;
        put(&log, 1, 2000).await.unwrap();
        log.shutdown().await;
    });
    world.kill();
    let image = world.disks[1].image();
    Living { world, book, image }
}

/// The next lists say that a target was seen with later ones than its image has.
async fn see(log: &Log, disk: usize) {
    for _ in 0..2 {
        log.target_undrain(id_of(log, disk), TargetMode::Apply).await.unwrap();
    }
}

/// What was on a target that was given up is not yet built anew, and the only other copy is on one that comes back older: together that is more than
/// parity replaces, and nothing of it is set aside.
#[test]
fn what_is_left_on_an_older_image_alone_lives_until_a_lost_target_is_rebuilt() {
    for has_index in [true, false] {
        let Living { mut world, book, image } = living(20);
        world.absent = vec![0];
        life(async {
            let (log, _) = world.start(&book).await;
            see(&log, 1).await;
            let lost = log.status().missing_members[0];
            let disk = SimDisk::new(9020);
            world.disks.push(disk.clone());
            let new = LogTarget { name: "disk2".to_owned(), disk: Some(Arc::new(disk)), failure_domain: String::new() };
            assert!(log.target_replace(lost, new, TargetMode::Apply).await.unwrap().applied);
        });
        world.kill();
        world.disks[1].restore(&image);
        world.disks.remove(0);
        world.absent.clear();
        world.reopen();
        let opened = if has_index { Arc::clone(&book) } else { Arc::new(Book::default()) };
        life(async {
            let (log, recovery) = world.start(&opened).await;
            assert!(log.status().targets.iter().any(|target| target.stale), "the test tests nothing");
            assert!(recovery.unreadable.is_empty(), "{:?}", recovery.unreadable);
            assert_eq!(opened.mutations(), book.mutations());
            assert_eq!(mutations(&opened), ["put 1 2000"]);
            assert!(world.shard_files().iter().all(|path| !path.ends_with(".stale")));
            assert!(
                recovery.warnings.iter().any(|warning| warning.contains("1 that left are not built anew")),
                "{recovery:?}"
            );
            log.repair(true).await.unwrap();
            opened.verify(&log).await;
        });
    }
}

/// How a target leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leaving {
    /// Its shards are moved away, and then it is removed.
    Drained,
    /// It is away, is removed as lost, and its shards are built anew.
    Lost,
}

/// A segment on two of three targets; one of these leaves, and the segment is freed and forgotten, before that or after.
struct Left {
    world: World,
    /// The target that stays, as it was when it held the segment.
    stays: usize,
    image: DiskImage,
    /// What an index held then.
    page: Page,
    id: SegmentId,
}

fn id_of(log: &Log, disk: usize) -> TargetId {
    log.status().targets.iter().find(|target| target.name == format!("disk{disk}")).unwrap().id
}

fn holders(world: &World, id: SegmentId) -> Vec<usize> {
    let holds = |disk: &usize| world.disks[*disk].paths().iter().any(|path| path.contains(&id.to_string()));
    (0..world.disks.len()).filter(holds).collect()
}

/// Frees all sealed segments, twice, so that nothing tells of the first any more.
async fn free_all(world: &mut World, book: &Arc<Book>) {
    for round in 0..2 {
        let (log, _) = world.start(book).await;
        put(&log, 100 + round, 100).await.unwrap();
        let sealed: Vec<SegmentId> =
            book.known().iter().filter(|it| it.sealed.is_some() && !it.freed).map(|it| it.id).collect();
        for id in sealed {
            log.free(id, vec![]).await.unwrap();
        }
        assert!(forget(world, &log).await > 0);
        log.shutdown().await;
    }
}

async fn leave(world: &mut World, book: &Arc<Book>, target: usize, leaving: Leaving) {
    if leaving == Leaving::Lost {
        world.absent = vec![target];
    }
    let (log, _) = world.start(book).await;
    let id = id_of(&log, target);
    if leaving == Leaving::Drained {
        log.target_drain(id, TargetMode::Apply).await.unwrap();
        steps(500).await;
        log.repair(true).await.unwrap();
    }
    assert!(log.target_remove(id, leaving == Leaving::Lost, TargetMode::Apply).await.unwrap().applied);
    if leaving == Leaving::Lost {
        log.repair(true).await.unwrap();
        forget(world, &log).await;
    }
    assert!(lost_on(world, (target + 1) % 3).await.is_empty());
    log.shutdown().await;
}

fn left(leaving: Leaving, freed_first: bool, seed: u64) -> Left {
    let mut world = World::with_disks("1+1".parse().unwrap(), 3, seed);
    world.config.upkeep.repair_delay_ms = 0;
    let book = Arc::new(Book::default());
    life(async {
        let (log, _) = world.start(&book).await;
        put(&log, 1, 2000).await.unwrap();
        log.shutdown().await;
    });
    world.kill();
    let id = only_segment(&book);
    let on = holders(&world, id);
    let (leaves, stays) = (on[0], on[1]);
    let (image, page) = (world.disks[stays].image(), book.snapshot());
    if freed_first {
        life(free_all(&mut world, &book));
        world.kill();
    }
    life(leave(&mut world, &book, leaves, leaving));
    world.kill();
    if !freed_first {
        life(free_all(&mut world, &book));
        world.kill();
    }
    world.absent = vec![leaves];
    Left { world, stays, image, page, id }
}

/// The ids of the targets that the list on a disk says are lost.
async fn lost_on(world: &World, disk: usize) -> Vec<String> {
    let bytes = world.disks[disk].read_file("gabion.json", FILE_BYTES_MAX).await.unwrap();
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    let lost = text.split("\"lost\": [").nth(1).expect("it says who is lost").split(']').next().unwrap();
    lost.split(',').map(|id| id.trim().trim_matches('"').to_owned()).filter(|id| !id.is_empty()).collect()
}

/// Where the other target of a freed segment has left, what is on an older image is no more alive than if it had stayed.
#[test]
fn what_was_freed_does_not_come_back_when_another_target_has_left() {
    let ways = [(Leaving::Drained, true), (Leaving::Drained, false), (Leaving::Lost, true), (Leaving::Lost, false)];
    for (seed, (leaving, freed_first)) in (40..).zip(ways) {
        let Left { mut world, stays, image, id, .. } = left(leaving, freed_first, seed);
        world.disks[stays].restore(&image);
        world.reopen();
        assert!(holders(&world, id).contains(&stays), "the test tests nothing");
        let rebuilt = Arc::new(Book::default());
        life(async {
            let (log, recovery) = world.start(&rebuilt).await;
            assert!(log.status().targets.iter().any(|target| target.stale), "the test tests nothing");
            assert_eq!(mutations(&rebuilt), ["put 101 100"], "{leaving:?}, freed first: {freed_first}");
            assert!(recovery.unreadable.is_empty(), "{:?}", recovery.unreadable);
        });
    }
}

/// Nor does an older copy of the index keep what was freed, although a target that held it can not be asked any more, and another one is away.
#[test]
fn an_older_index_is_noticed_when_a_target_has_left_that_held_what_it_names() {
    for (seed, leaving) in (60..).zip([Leaving::Drained, Leaving::Lost]) {
        let Left { mut world, stays, page, id, .. } = left(leaving, true, seed);
        world.absent = (0..3).filter(|disk| *disk != stays).collect();
        let known = page.segments.values().cloned().collect();
        let outcome = life(async { world.open(known).await.map(drop) });
        assert!(matches!(outcome, Err(LogError::IndexAhead { segment }) if segment == id), "{leaving:?}: {outcome:?}");
    }
}

/// As many targets as a segment bears may be away: its files would be on the others.
#[test]
fn an_older_index_is_noticed_while_a_target_is_away_that_held_what_it_names() {
    let mut world = World::with_disks("1+1".parse().unwrap(), 2, 70);
    let book = Arc::new(Book::default());
    life(async {
        let (log, _) = world.start(&book).await;
        put(&log, 1, 2000).await.unwrap();
        log.shutdown().await;
    });
    world.kill();
    let (id, page) = (only_segment(&book), book.snapshot());
    life(free_all(&mut world, &book));
    world.kill();
    for away in [0, 1] {
        world.absent = vec![away];
        let known = page.segments.values().cloned().collect();
        let outcome = life(async { world.open(known).await.map(drop) });
        assert!(matches!(outcome, Err(LogError::IndexAhead { segment }) if segment == id), "{away}: {outcome:?}");
    }
}

/// A shard was moved to a target that is lost now; neither the header on the older image nor an index can tell, but the list of members says that there is a lost one.
#[test]
fn what_was_moved_to_a_lost_target_lives_on_an_older_image() {
    let mut world = World::with_disks("1+1".parse().unwrap(), 3, 50);
    world.config.upkeep.repair_delay_ms = 0;
    let book = Arc::new(Book::default());
    life(async {
        let (log, _) = world.start(&book).await;
        put(&log, 1, 2000).await.unwrap();
        log.shutdown().await;
    });
    world.kill();
    let id = only_segment(&book);
    let on = holders(&world, id);
    let (from, stays) = (on[0], on[1]);
    let to = 3 - from - stays;
    let image = world.disks[stays].image();
    life(async {
        let (log, _) = world.start(&book).await;
        log.target_drain(id_of(&log, from), TargetMode::Apply).await.unwrap();
        log.repair(true).await.unwrap();
        log.target_undrain(id_of(&log, from), TargetMode::Apply).await.unwrap();
        log.shutdown().await;
    });
    world.kill();
    assert_eq!(holders(&world, id).iter().filter(|disk| **disk == to).count(), 1);
    world.absent = vec![to];
    life(async {
        let (log, _) = world.start(&book).await;
        let target = id_of(&log, to);
        assert!(log.target_remove(target, true, TargetMode::Apply).await.unwrap().applied);
        assert_eq!(lost_on(&world, stays).await, [target.to_string()]);
    });
    world.kill();
    world.disks[stays].restore(&image);
    world.reopen();
    let rebuilt = Arc::new(Book::default());
    life(async {
        let (log, recovery) = world.start(&rebuilt).await;
        assert!(log.status().targets.iter().any(|target| target.stale), "the test tests nothing");
        assert_eq!(mutations(&rebuilt), ["put 1 2000"], "{:?}", recovery.warnings);
        log.repair(true).await.unwrap();
        rebuilt.verify(&log).await;
        forget(&world, &log).await;
        assert!(lost_on(&world, stays).await.is_empty());
    });
}

/// The power goes at any step while a lost target is given up and its shard is built anew: the segment lives, on the older image if there it is alone.
#[test]
fn a_power_cut_while_a_lost_target_is_rebuilt_takes_nothing() {
    let mut lists = [0, 0, 0];
    for step in 0..70 {
        let mut world = World::with_disks("1+1".parse().unwrap(), 3, 200 + step);
        world.config.upkeep.repair_delay_ms = 0;
        let book = Arc::new(Book::default());
        life(async {
            let (log, _) = world.start(&book).await;
            put(&log, 1, 2000).await.unwrap();
            log.shutdown().await;
        });
        world.kill();
        let on = holders(&world, only_segment(&book));
        let image = world.disks[on[1]].image();
        world.absent = vec![on[0]];
        life(async {
            let (log, _) = world.start(&book).await;
            see(&log, on[1]).await;
            let target = id_of(&log, on[0]);
            let power = world.power();
            let giving_up = async {
                log.target_remove(target, true, TargetMode::Apply).await.unwrap();
                log.repair(true).await.unwrap();
                forget(&world, &log).await;
            };
            tokio::select! {
                biased;
                () = giving_up => {}
                () = power.fails_after(step, step) => {}
            }
        });
        world.crash(step);
        let stage = life(async {
            let text = world.disks[3 - on[0] - on[1]].read_file("gabion.json", FILE_BYTES_MAX).await.unwrap();
            let members = String::from_utf8(text.to_vec()).unwrap().matches("\"draining\"").count();
            if members == 3 { 0 } else { 2 - lost_on(&world, 3 - on[0] - on[1]).await.len() }
        });
        lists[stage] += 1;
        world.disks[on[1]].restore(&image);
        world.reopen();
        let rebuilt = Arc::new(Book::default());
        life(async {
            let (log, recovery) = world.start(&rebuilt).await;
            assert!(log.status().targets.iter().any(|target| target.stale), "the test tests nothing");
            assert_eq!(mutations(&rebuilt), ["put 1 2000"], "step {step}: {:?}", recovery.warnings);
        });
    }
    assert!(lists.iter().all(|count| *count > 2), "a member, lost, rebuilt: {lists:?}");
}

async fn epoch_on(world: &World, disk: usize) -> String {
    let bytes = world.disks[disk].read_file("gabion.json", FILE_BYTES_MAX).await.unwrap();
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    text.lines().find(|line| line.contains("\"epoch\"")).unwrap().to_owned()
}

/// A target that takes lists while the others fail is not ahead of them by more than one, and that one does not undo what is changed without it.
#[test]
fn no_target_runs_ahead_with_epochs_that_the_others_did_not_take() {
    for is_known_to_fail in [true, false] {
        let mut world = World::with_disks("2+1".parse().unwrap(), 3, 30);
        world.config.reprobe_ms = 1;
        let book = Arc::new(Book::default());
        life(async {
            let (log, _) = world.start(&book).await;
            put(&log, 1, 2000).await.unwrap();
            log.shutdown().await;
        });
        world.kill();
        life(async {
            let (log, _) = world.start(&book).await;
            log.free(only_segment(&book), vec![]).await.unwrap();
            let before = epoch_on(&world, 0).await;
            let failed = |log: &Log| log.status().targets.iter().filter(|it| it.state == TargetState::Failed).count();
            let mut epochs = Vec::new();
            for _ in 0..5 {
                world.clock.advance(Duration::from_millis(world.config.epoch_interval_ms));
                log.repair(true).await.unwrap();
                assert_eq!(failed(&log), 0);
                world.disks[1].offline(true);
                world.disks[2].offline(true);
                if is_known_to_fail {
                    world.clock.advance(Duration::from_millis(world.config.epoch_interval_ms));
                    log.repair(true).await.unwrap();
                    assert_eq!(failed(&log), 2);
                    assert_eq!(log.forget_freed().await.unwrap(), 0);
                } else {
                    assert!(log.forget_freed().await.is_err());
                }
                epochs.push(epoch_on(&world, 0).await);
                world.disks[1].offline(false);
                world.disks[2].offline(false);
            }
            assert_eq!(epochs[0] == before, is_known_to_fail);
            assert!(epochs.iter().all(|epoch| *epoch == epochs[0]), "{epochs:?}");
        });
        world.kill();
        // What changes without the one that is ahead stays changed when it is back.
        world.absent = vec![0];
        let new = SimDisk::new(9030);
        life(async {
            let (log, _) = world.start(&book).await;
            let old = log.status().targets.iter().find(|target| target.name == "disk1").unwrap().id;
            world.disks.push(new.clone());
            let new = LogTarget {
                name: "disk3".to_owned(),
                disk: Some(Arc::new(new.clone())),
                failure_domain: String::new(),
            };
            assert!(log.target_replace(old, new, TargetMode::Apply).await.unwrap().applied);
        });
        world.kill();
        world.absent.clear();
        life(async {
            let (log, recovery) = world.start(&book).await;
            assert_eq!(log.status().targets.len(), 4, "{:?}", recovery.warnings);
            assert!(log.status().targets.iter().all(|target| target.state == TargetState::Online));
        });
    }
}
