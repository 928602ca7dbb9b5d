//! `kill -9` at random moments: what was acknowledged is there, what was not is old or new, and the listing agrees.
//!
//! Each writer has keys of its own and does one thing at a time, so that for every key the test knows the acknowledged state and
//! at most one state that a request in flight would have led to. After each kill the server is started again, every key is read and compared, and
//! what is read becomes the acknowledged state. Some kills hit the server while it starts; in some rounds the index is deleted.
//! The choices follow from a seed, which is printed; the moment of a kill is as random as the scheduler.

use std::{
    collections::BTreeMap,
    fs,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use aws_sdk_s3::{
    Client,
    primitives::ByteStream,
    types::{CompletedMultipartUpload, CompletedPart},
};
use bytes::Bytes;
use futures::{StreamExt, stream};
use gabion_tests::{Content, Outcome, Server, Setup, bytes_of, failure, seed, seeded};
use rand::{Rng, rngs::SmallRng};
use tokio::{sync::Notify, task::JoinSet};

use crate::BUCKET;

const WRITERS: usize = 8;
const KEYS_PER_WRITER: usize = 8;
const PART_BYTES: usize = 5 << 20;

/// What a key may hold: nothing, or the parts of its bytes, one after another.
type State = Option<Vec<Content>>;

fn bytes_in(parts: &[Content]) -> Bytes {
    parts.iter().flat_map(|part| part.bytes()).collect()
}

/// What is known of one key.
#[derive(Clone, Default, Debug)]
struct Known {
    acknowledged: State,
    /// The state that a request without an answer would have led to.
    in_flight: Option<State>,
}

/// What all writers share.
struct Round {
    known: Mutex<BTreeMap<String, Known>>,
    acknowledged: AtomicU64,
    /// The server is about to be killed: failures from now on are expected.
    killing: Mutex<bool>,
    progress: Notify,
}

impl Round {
    fn begin(&self, key: &str, next: State) {
        self.known.lock().unwrap().entry(key.to_owned()).or_default().in_flight = Some(next);
    }

    fn acknowledge(&self, key: &str) {
        let mut known = self.known.lock().unwrap();
        let known = known.get_mut(key).expect("begun");
        known.acknowledged = known.in_flight.take().expect("begun");
        self.acknowledged.fetch_add(1, Ordering::Relaxed);
        self.progress.notify_one();
    }

    fn acknowledged_state(&self, key: &str) -> State {
        self.known.lock().unwrap().get(key).and_then(|known| known.acknowledged.clone())
    }
}

/// One writer: random changes of its own keys until the server is gone.
async fn write(round: Arc<Round>, client: Client, writer: usize, mut random: SmallRng) -> anyhow::Result<()> {
    let key = |index: usize| format!("writer{writer}/{index}");
    loop {
        let target = key(random.random_range(0..KEYS_PER_WRITER));
        let source = key(random.random_range(0..KEYS_PER_WRITER));
        let source_state = round.acknowledged_state(&source);
        let done = match random.random_range(0..100) {
            0..55 => {
                let content = Content::new(random.random(), random.random_range(0..20_000));
                put(&round, &client, &target, content).await
            }
            55..68 => {
                let content = Content::new(random.random(), random.random_range(900_000..6_000_000));
                put(&round, &client, &target, content).await
            }
            68..82 => {
                round.begin(&target, None);
                client.delete_object().bucket(BUCKET).key(&target).send().await.map(drop).map_err(outcome)
            }
            82..94 if source_state.is_some() && source != target => {
                round.begin(&target, source_state);
                let copy = client.copy_object().copy_source(format!("{BUCKET}/{source}")).bucket(BUCKET).key(&target);
                copy.send().await.map(drop).map_err(outcome)
            }
            94.. => {
                let parts = [
                    Content::new(random.random(), PART_BYTES + random.random_range(0..100_000)),
                    Content::new(random.random(), random.random_range(1..2_000_000)),
                ];
                multipart(&round, &client, &target, parts).await
            }
            _ => continue,
        };
        match done {
            Ok(()) => round.acknowledge(&target),
            Err(_) if *round.killing.lock().unwrap() => return Ok(()),
            Err(outcome) => anyhow::bail!("{target}: {outcome:?} from a server that was not killed"),
        }
    }
}

fn outcome<E>(error: aws_sdk_s3::error::SdkError<E>) -> Outcome
where
    E: aws_sdk_s3::error::ProvideErrorMetadata + std::error::Error + 'static,
{
    failure(Err::<(), _>(error))
}

async fn put(round: &Round, client: &Client, key: &str, content: Content) -> Result<(), Outcome> {
    round.begin(key, Some(vec![content]));
    let body = ByteStream::from(content.bytes());
    client.put_object().bucket(BUCKET).key(key).body(body).send().await.map(drop).map_err(outcome)
}

async fn multipart(round: &Round, client: &Client, key: &str, contents: [Content; 2]) -> Result<(), Outcome> {
    // Until it is completed the upload changes nothing.
    let unchanged = round.acknowledged_state(key);
    round.begin(key, unchanged);
    let created = client.create_multipart_upload().bucket(BUCKET).key(key).send().await.map_err(outcome)?;
    let id = created.upload_id().expect("an upload has an id");
    let mut parts = Vec::new();
    for (index, content) in contents.into_iter().enumerate() {
        let number = index as i32 + 1;
        let part = client.upload_part().bucket(BUCKET).key(key).upload_id(id).part_number(number);
        let part = part.body(ByteStream::from(content.bytes())).send().await.map_err(outcome)?;
        parts.push(CompletedPart::builder().part_number(number).set_e_tag(part.e_tag().map(str::to_owned)).build());
    }
    round.begin(key, Some(contents.to_vec()));
    let upload = CompletedMultipartUpload::builder().set_parts(Some(parts)).build();
    let complete = client.complete_multipart_upload().bucket(BUCKET).key(key).upload_id(id).multipart_upload(upload);
    complete.send().await.map(drop).map_err(outcome)
}

/// What a key holds now.
async fn read(client: &Client, key: &str) -> anyhow::Result<Option<Bytes>> {
    match client.get_object().bucket(BUCKET).key(key).send().await {
        Ok(got) => Ok(Some(bytes_of(got).await?)),
        Err(error) => match outcome(error) {
            Outcome::Refused(404, code) if code == "NoSuchKey" => Ok(None),
            other => anyhow::bail!("reading {key}: {other:?}"),
        },
    }
}

/// Reads every key, compares, and takes what is there as acknowledged from now on.
async fn verify(server: &Server, known: &mut BTreeMap<String, Known>) -> anyhow::Result<()> {
    let client = server.client();
    let reads = stream::iter(known.keys().cloned().collect::<Vec<_>>()).map(|key| {
        let client = client.clone();
        async move { read(&client, &key).await.map(|bytes| (key, bytes)) }
    });
    let found: Vec<_> = reads.buffer_unordered(4).collect().await;
    for result in found {
        let (key, bytes) = result?;
        let known = known.get_mut(&key).expect("its key was read");
        let is = |state: &State| bytes.as_deref() == state.as_deref().map(bytes_in).as_deref();
        let in_flight = known.in_flight.take();
        if is(&known.acknowledged) {
            continue;
        }
        match in_flight {
            Some(state) if is(&state) => known.acknowledged = state,
            other => anyhow::bail!(
                "{key} holds {:?} bytes, neither what was acknowledged ({:?}) nor what was in flight ({other:?})",
                bytes.map(|bytes| bytes.len()),
                known.acknowledged
            ),
        }
    }
    let mut pages = client.list_objects_v2().bucket(BUCKET).max_keys(17).into_paginator().send();
    let mut listed = Vec::new();
    while let Some(page) = pages.next().await {
        let page = page?;
        listed.extend(page.contents().iter().map(|object| (object.key().unwrap().to_owned(), object.size().unwrap())));
    }
    let expected: Vec<_> = known
        .iter()
        .filter_map(|(key, known)| {
            let len: usize = known.acknowledged.as_ref()?.iter().map(|part| part.len).sum();
            Some((key.clone(), len as i64))
        })
        .collect();
    anyhow::ensure!(listed == expected, "the listing {listed:?} is not {expected:?}");
    Ok(())
}

/// Writers run until the server is killed at a random moment.
async fn write_until_killed(
    server: &mut Server,
    known: BTreeMap<String, Known>,
    random: &mut SmallRng,
) -> anyhow::Result<BTreeMap<String, Known>> {
    let round = Arc::new(Round {
        known: Mutex::new(known),
        acknowledged: AtomicU64::new(0),
        killing: Mutex::new(false),
        progress: Notify::new(),
    });
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let random = seeded(random.random(), writer as u64);
        writers.spawn(write(Arc::clone(&round), server.client(), writer, random));
    }
    // Half of the kills come right after an acknowledgement, half at any time.
    let enough = random.random_range(1..150);
    let moment = Duration::from_micros(random.random_range(0..20_000));
    let by_count = random.random::<bool>();
    let wait = async {
        while round.acknowledged.load(Ordering::Relaxed) < enough {
            round.progress.notified().await;
        }
        if !by_count {
            tokio::time::sleep(moment).await;
        }
    };
    tokio::select! {
        () = wait => {}
        Some(ended) = writers.join_next() => ended??,
    }
    *round.killing.lock().unwrap() = true;
    server.kill().await;
    while let Some(writer) = writers.join_next().await {
        writer??;
    }
    let round = Arc::into_inner(round).expect("all writers have ended");
    Ok(round.known.into_inner().expect("no writer panicked"))
}

/// What happens to the storage between a kill and the next start.
struct Losses {
    /// Rounds before which one more target is removed, and which.
    targets: Vec<(usize, usize)>,
    /// Of a hundred rounds, how many lose the index.
    index_percent: u32,
}

async fn killed_again_and_again(setup: Setup, rounds: usize, losses: Losses) {
    let seed = seed();
    println!("GABION_TEST_SEED={seed}");
    let mut random = seeded(seed, 0);
    let mut server = Server::start(setup).await.unwrap();
    server.client().create_bucket().bucket(BUCKET).send().await.unwrap();
    let mut known = BTreeMap::new();
    for round in 0..rounds {
        let context = |error: anyhow::Error| format!("seed {seed}, round {round}: {error:#}");
        known = write_until_killed(&mut server, known, &mut random).await.map_err(context).unwrap();
        for (_, target) in losses.targets.iter().filter(|(before, _)| *before == round) {
            fs::remove_dir_all(&server.targets()[*target]).unwrap();
        }
        if random.random_range(0..100) < losses.index_percent {
            fs::remove_dir_all(server.state().join("index")).unwrap();
        }
        // A start may be killed too, at any point of its recovery.
        while random.random_range(0..100) < 25 {
            server.launch().unwrap();
            tokio::time::sleep(Duration::from_micros(random.random_range(0..200_000))).await;
            server.kill().await;
        }
        server.spawn_degraded().await.map_err(context).unwrap();
        verify(&server, &mut known).await.map_err(context).unwrap();
    }
    let objects = known.values().filter(|known| known.acknowledged.is_some()).count();
    println!("{rounds} kills, {objects} objects left");
    assert!(server.stop().await.unwrap(), "{}", server.log_tail());
    server.spawn_degraded().await.unwrap();
    verify(&server, &mut known).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_nine_on_four_plus_two() {
    killed_again_and_again(Setup::six(), 25, Losses { targets: vec![], index_percent: 15 }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_nine_on_one_plus_zero() {
    killed_again_and_again(Setup::single(), 25, Losses { targets: vec![], index_percent: 15 }).await;
}

/// One target is lost on the way, and writing goes on with five; at the end another one is, and everything is still there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_nine_and_lost_targets_on_four_plus_two() {
    let losses = Losses { targets: vec![(4, 2), (11, 5)], index_percent: 10 };
    killed_again_and_again(Setup::six(), 12, losses).await;
}
