//! `kill -9` at random moments: what was acknowledged is there, what was not is old or new, and the listing agrees.
//!
//! The load is that of [`crate::workload`], with compaction and snapshots of the index at work. Some kills hit the
//! server while it starts; in some rounds the index is deleted. The choices follow from a seed, which is printed; the moment of a kill is as random
//! as the scheduler. `GABION_KILLS` sets how many kills there are in all of these tests together.

use std::{fs, time::Duration};

use gabion_tests::{Server, Setup, seed, seeded};
use rand::{Rng, rngs::SmallRng};

use crate::{
    BUCKET,
    workload::{Model, busy, verify, write_until_cut},
};

/// Kills of all tests here together, unless `GABION_KILLS` says otherwise.
const KILLS: usize = 60;

/// The kills of a test that has so many hundredths of them.
fn kills(percent: usize) -> usize {
    let all = std::env::var("GABION_KILLS").map_or(KILLS, |text| text.parse().expect("GABION_KILLS is a number"));
    (all * percent).div_ceil(100)
}

/// What happens to the storage between a kill and the next start.
struct Losses {
    /// A target that is removed when half of the rounds are over.
    midway: Option<usize>,
    /// A target that is removed before the last start, after which everything is read and nothing written.
    last: Option<usize>,
    /// Of a hundred rounds, how many lose the index.
    index_percent: u32,
}

async fn killed_again_and_again(setup: Setup, rounds: usize, losses: Losses) {
    let seed = seed();
    println!("GABION_TEST_SEED={seed}");
    let mut random = seeded(seed, 0);
    let mut server = Server::start(busy(setup)).await.unwrap();
    server.client().create_bucket().bucket(BUCKET).send().await.unwrap();
    let mut model = Model::default();
    let (mut kills, mut freed, mut moved) = (0, 0.0, 0.0);
    for round in 0..rounds {
        let context = |error: anyhow::Error| format!("seed {seed}, round {round}: {error:#}");
        model = write_until_cut(&mut server, model, &mut random, async |server: &mut Server| {
            server.kill().await;
            Ok(())
        })
        .await
        .map_err(context)
        .unwrap();
        kills += 1;
        if let Some(target) = losses.midway.filter(|_| round == rounds / 2) {
            fs::remove_dir_all(&server.targets()[target]).unwrap();
        }
        if random.random_range(0..100) < losses.index_percent {
            fs::remove_dir_all(server.state().join("index")).unwrap();
        }
        kills += kill_starts(&mut server, &mut random).await;
        server.spawn_degraded().await.map_err(context).unwrap();
        verify(&server, &mut model).await.map_err(context).unwrap();
        let metrics = server.metrics().await.unwrap();
        freed += metrics.sum("gabion_store_segments_freed_total");
        moved += metrics.sum("gabion_store_compaction_rows_moved_total");
    }
    let (objects, uploads) = model.counts();
    println!(
        "{kills} kills, {objects} objects and {uploads} uploads left; between a start and the next load alone {freed} segments were freed and {moved} \
         rows moved"
    );
    assert!(freed > 0.0 && moved > 0.0, "neither deletion nor compaction of segments was under test");
    assert!(server.stop().await.unwrap(), "{}", server.log_tail());
    if let Some(target) = losses.last {
        fs::remove_dir_all(&server.targets()[target]).unwrap();
    }
    server.spawn_degraded().await.unwrap();
    verify(&server, &mut model).await.unwrap();
}

/// A start may be killed too, at any point of its recovery.
async fn kill_starts(server: &mut Server, random: &mut SmallRng) -> usize {
    let mut kills = 0;
    while random.random_range(0..100) < 25 {
        server.launch().unwrap();
        tokio::time::sleep(Duration::from_micros(random.random_range(0..200_000))).await;
        server.kill().await;
        kills += 1;
    }
    kills
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_nine_on_four_plus_two() {
    killed_again_and_again(Setup::six(), kills(40), Losses { midway: None, last: None, index_percent: 15 }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_nine_on_one_plus_zero() {
    killed_again_and_again(Setup::single(), kills(40), Losses { midway: None, last: None, index_percent: 15 }).await;
}

/// One target is lost on the way, and writing goes on with five; at the end another one is, and everything is still there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_nine_and_lost_targets_on_four_plus_two() {
    killed_again_and_again(Setup::six(), kills(20), Losses { midway: Some(2), last: Some(5), index_percent: 10 }).await;
}
