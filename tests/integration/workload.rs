//! Writers that are cut off at any moment, and what the server may hold afterwards.
//!
//! Each writer has keys and uploads of its own and does one thing at a time, so that for every key, upload and part the test knows the
//! acknowledged state and at most one state that a request in flight would have led to. After a cut (a kill, a power loss) everything is read and
//! compared, and what is there becomes the acknowledged state.

use std::{
    collections::{BTreeMap, BTreeSet},
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
use gabion_tests::{Content, Outcome, Server, Setup, bytes_of, failure, seeded};
use md5::{Digest, Md5};
use rand::{Rng, rngs::SmallRng};
use tokio::{sync::Notify, task::JoinSet};

use crate::BUCKET;

const WRITERS: usize = 8;
const KEYS_PER_WRITER: usize = 8;
const UPLOADS_PER_WRITER: usize = 2;
const PART_BYTES_MIN: usize = 5 << 20;

/// A server that does by itself, all the time, what others do now and then: segments so small that they fill up and die under the load, compaction
/// at its keenest, the index written to the log again and again.
pub(crate) fn busy(setup: Setup) -> Setup {
    setup
        .flag("--segment-payload-bytes", "4MiB")
        .flag("--segment-stripe-bytes", "1MiB")
        .flag("--compaction-interval", "50ms")
        .flag("--compaction-live-ratio-max", "0.9")
        .flag("--index-snapshot-bytes", "16MiB")
}

/// What a key may hold: nothing, or the parts of its bytes, one after another.
type State = Option<Vec<Content>>;

fn bytes_in(parts: &[Content]) -> Bytes {
    parts.iter().flat_map(|part| part.bytes()).collect()
}

/// The entity tag of one part, or of an object that was not uploaded in parts.
fn tag(content: Content) -> String {
    format!("\"{}\"", hex::encode(Md5::digest(content.bytes())))
}

/// What is known of one key or part.
#[derive(Clone, Debug)]
struct Known<T> {
    acknowledged: T,
    /// What a request without an answer would have led to.
    in_flight: Option<T>,
}

impl<T: Default> Default for Known<T> {
    fn default() -> Self {
        Self { acknowledged: T::default(), in_flight: None }
    }
}

/// A request without an answer that would have ended an upload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ending {
    Complete,
    Abort,
}

/// An upload that is not known to have ended.
#[derive(Clone, Default, Debug)]
struct Upload {
    key: String,
    parts: BTreeMap<i32, Known<Option<Content>>>,
    ending: Option<Ending>,
}

/// What the server must hold.
#[derive(Clone, Default, Debug)]
pub(crate) struct Model {
    objects: BTreeMap<String, Known<State>>,
    uploads: BTreeMap<String, Upload>,
    /// Keys for which an upload was asked for without an answer: one may be there.
    uploads_in_flight: BTreeSet<String>,
}

impl Model {
    /// Number of objects and of open uploads.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let objects = self.objects.values().filter(|known| known.acknowledged.is_some()).count();
        (objects, self.uploads.len())
    }
}

/// What all writers of a round share.
struct Round {
    model: Mutex<Model>,
    acknowledged: AtomicU64,
    /// The server is about to be cut off: failures from now on are expected.
    cutting: Mutex<bool>,
    progress: Notify,
}

impl Round {
    fn change<T>(&self, change: impl FnOnce(&mut Model) -> T) -> T {
        change(&mut self.model.lock().unwrap())
    }

    fn begin(&self, key: &str, next: State) {
        self.change(|model| model.objects.entry(key.to_owned()).or_default().in_flight = Some(next));
    }

    fn acknowledge(&self, key: &str) {
        self.change(|model| {
            let known = model.objects.get_mut(key).expect("begun");
            known.acknowledged = known.in_flight.take().expect("begun");
        });
    }

    fn state(&self, key: &str) -> State {
        self.change(|model| model.objects.get(key).and_then(|known| known.acknowledged.clone()))
    }
}

/// One writer: its generator, and what its keys begin with.
struct Writer {
    round: Arc<Round>,
    client: Client,
    prefix: String,
    random: SmallRng,
}

impl Writer {
    fn key(&mut self) -> String {
        format!("{}{}", self.prefix, self.random.random_range(0..KEYS_PER_WRITER))
    }

    fn content(&mut self, sizes: std::ops::Range<usize>) -> Content {
        Content::new(self.random.random(), self.random.random_range(sizes))
    }

    /// Random changes until the server is gone.
    async fn run(mut self) -> anyhow::Result<()> {
        loop {
            match self.step().await {
                Ok(()) => {
                    self.round.acknowledged.fetch_add(1, Ordering::Relaxed);
                    self.round.progress.notify_one();
                }
                Err(_) if *self.round.cutting.lock().unwrap() => return Ok(()),
                Err(outcome) => anyhow::bail!("{}: {outcome:?} from a server that was left alone", self.prefix),
            }
        }
    }

    async fn step(&mut self) -> Result<(), Outcome> {
        let key = self.key();
        match self.random.random_range(0..100) {
            0..55 => {
                let content = self.content(0..20_000);
                self.put(&key, content).await
            }
            55..66 => {
                let content = self.content(900_000..6_000_000);
                self.put(&key, content).await
            }
            66..80 => {
                self.round.begin(&key, None);
                self.client.delete_object().bucket(BUCKET).key(&key).send().await.map_err(outcome)?;
                self.round.acknowledge(&key);
                Ok(())
            }
            80..90 => {
                let source = self.key();
                self.copy(&source, &key).await
            }
            _ => self.upload_step(&key).await,
        }
    }

    async fn put(&self, key: &str, content: Content) -> Result<(), Outcome> {
        self.round.begin(key, Some(vec![content]));
        let body = ByteStream::from(content.bytes());
        self.client.put_object().bucket(BUCKET).key(key).body(body).send().await.map_err(outcome)?;
        self.round.acknowledge(key);
        Ok(())
    }

    async fn copy(&self, source: &str, key: &str) -> Result<(), Outcome> {
        let state = self.round.state(source);
        if state.is_none() || source == key {
            return Ok(());
        }
        self.round.begin(key, state);
        let copy = self.client.copy_object().copy_source(format!("{BUCKET}/{source}")).bucket(BUCKET).key(key);
        copy.send().await.map_err(outcome)?;
        self.round.acknowledge(key);
        Ok(())
    }

    /// Begins an upload, or goes on with one: another part, the same part anew, completion, abortion.
    async fn upload_step(&mut self, key: &str) -> Result<(), Outcome> {
        let open: Vec<(String, Upload)> = self.round.change(|model| {
            let own = model.uploads.iter().filter(|(_, upload)| upload.key.starts_with(&self.prefix));
            own.map(|(id, upload)| (id.clone(), upload.clone())).collect()
        });
        if open.is_empty() || (open.len() < UPLOADS_PER_WRITER && self.random.random_range(0..4) == 0) {
            return self.create_upload(key).await;
        }
        let (id, upload) = &open[self.random.random_range(0..open.len())];
        match self.random.random_range(0..100) {
            0..20 if !upload.parts.is_empty() => self.complete(id, upload).await,
            20..35 => self.abort(id, upload).await,
            _ => self.upload_part(id, upload).await,
        }
    }

    async fn create_upload(&self, key: &str) -> Result<(), Outcome> {
        self.round.change(|model| model.uploads_in_flight.insert(key.to_owned()));
        let created = self.client.create_multipart_upload().bucket(BUCKET).key(key).send().await.map_err(outcome)?;
        let id = created.upload_id().expect("an upload has an id").to_owned();
        self.round.change(|model| {
            model.uploads_in_flight.remove(key);
            model.uploads.insert(id, Upload { key: key.to_owned(), ..Upload::default() });
        });
        Ok(())
    }

    async fn upload_part(&mut self, id: &str, upload: &Upload) -> Result<(), Outcome> {
        // Parts before the last have a least size: the third is always the last.
        let number = self.random.random_range(1..=3);
        let sizes = if number == 3 { 1..1_500_000 } else { PART_BYTES_MIN..PART_BYTES_MIN + 100_000 };
        let content = self.content(sizes);
        let part = |model: &mut Model, change: &dyn Fn(&mut Known<Option<Content>>)| {
            change(model.uploads.get_mut(id).expect("it is open").parts.entry(number).or_default());
        };
        self.round.change(|model| part(model, &|known| known.in_flight = Some(Some(content))));
        let request = self.client.upload_part().bucket(BUCKET).key(&upload.key).upload_id(id).part_number(number);
        request.body(ByteStream::from(content.bytes())).send().await.map_err(outcome)?;
        self.round.change(|model| part(model, &|known| known.acknowledged = known.in_flight.take().expect("begun")));
        Ok(())
    }

    async fn complete(&self, id: &str, upload: &Upload) -> Result<(), Outcome> {
        let contents: Vec<(i32, Content)> =
            upload.parts.iter().filter_map(|(number, part)| Some((*number, part.acknowledged?))).collect();
        let parts = contents
            .iter()
            .map(|&(number, content)| CompletedPart::builder().part_number(number).e_tag(tag(content)).build());
        let parts = CompletedMultipartUpload::builder().set_parts(Some(parts.collect())).build();
        self.round.change(|model| model.uploads.get_mut(id).expect("it is open").ending = Some(Ending::Complete));
        self.round.begin(&upload.key, Some(contents.iter().map(|(_, content)| *content).collect()));
        let complete = self.client.complete_multipart_upload().bucket(BUCKET).key(&upload.key).upload_id(id);
        complete.multipart_upload(parts).send().await.map_err(outcome)?;
        self.round.acknowledge(&upload.key);
        self.round.change(|model| model.uploads.remove(id));
        Ok(())
    }

    async fn abort(&self, id: &str, upload: &Upload) -> Result<(), Outcome> {
        self.round.change(|model| model.uploads.get_mut(id).expect("it is open").ending = Some(Ending::Abort));
        let abort = self.client.abort_multipart_upload().bucket(BUCKET).key(&upload.key).upload_id(id);
        abort.send().await.map_err(outcome)?;
        self.round.change(|model| model.uploads.remove(id));
        Ok(())
    }
}

fn outcome<E>(error: aws_sdk_s3::error::SdkError<E>) -> Outcome
where
    E: aws_sdk_s3::error::ProvideErrorMetadata + std::error::Error + 'static,
{
    failure(Err::<(), _>(error))
}

/// Runs writers until `cut`, called at a random moment, has cut the server off.
pub(crate) async fn write_until_cut(
    server: &mut Server,
    model: Model,
    random: &mut SmallRng,
    cut: impl AsyncFnOnce(&mut Server) -> anyhow::Result<()>,
) -> anyhow::Result<Model> {
    let round = Arc::new(Round {
        model: Mutex::new(model),
        acknowledged: AtomicU64::new(0),
        cutting: Mutex::new(false),
        progress: Notify::new(),
    });
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let random = seeded(random.random(), writer as u64);
        let (round, client, prefix) = (Arc::clone(&round), server.client(), format!("writer{writer}/"));
        writers.spawn(Writer { round, client, prefix, random }.run());
    }
    // Half of the cuts come right after an acknowledgement, half at any time.
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
    *round.cutting.lock().unwrap() = true;
    cut(server).await?;
    while let Some(writer) = writers.join_next().await {
        writer??;
    }
    let round = Arc::into_inner(round).expect("all writers have ended");
    Ok(round.model.into_inner().expect("no writer panicked"))
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

/// Reads everything, compares, and takes what is there as acknowledged from now on.
///
/// # Errors
/// With the first thing that is neither what was acknowledged nor what was in flight.
pub(crate) async fn verify(server: &Server, model: &mut Model) -> anyhow::Result<()> {
    let client = server.client();
    let moved = verify_objects(&client, model).await?;
    verify_listing(&client, model).await?;
    verify_uploads(&client, model, &moved).await
}

/// Returns the keys that hold what was in flight.
async fn verify_objects(client: &Client, model: &mut Model) -> anyhow::Result<BTreeSet<String>> {
    let reads = stream::iter(model.objects.keys().cloned().collect::<Vec<_>>()).map(|key| {
        let client = client.clone();
        async move { read(&client, &key).await.map(|bytes| (key, bytes)) }
    });
    let found: Vec<_> = reads.buffer_unordered(4).collect().await;
    let mut moved = BTreeSet::new();
    for result in found {
        let (key, bytes) = result?;
        let known = model.objects.get_mut(&key).expect("its key was read");
        let is = |state: &State| bytes.as_deref() == state.as_deref().map(bytes_in).as_deref();
        let in_flight = known.in_flight.take();
        if is(&known.acknowledged) {
            continue;
        }
        match in_flight {
            Some(state) if is(&state) => {
                known.acknowledged = state;
                moved.insert(key);
            }
            other => anyhow::bail!(
                "{key} holds {:?} bytes, neither what was acknowledged ({:?}) nor what was in flight ({other:?})",
                bytes.map(|bytes| bytes.len()),
                known.acknowledged
            ),
        }
    }
    Ok(moved)
}

async fn verify_listing(client: &Client, model: &Model) -> anyhow::Result<()> {
    let mut pages = client.list_objects_v2().bucket(BUCKET).max_keys(17).into_paginator().send();
    let mut listed = Vec::new();
    while let Some(page) = pages.next().await {
        let page = page?;
        listed.extend(page.contents().iter().map(|object| (object.key().unwrap().to_owned(), object.size().unwrap())));
    }
    let expected: Vec<_> = model
        .objects
        .iter()
        .filter_map(|(key, known)| {
            let len: usize = known.acknowledged.as_ref()?.iter().map(|part| part.len).sum();
            Some((key.clone(), len as i64))
        })
        .collect();
    anyhow::ensure!(listed == expected, "the listing {listed:?} is not {expected:?}");
    Ok(())
}

async fn verify_uploads(client: &Client, model: &mut Model, moved: &BTreeSet<String>) -> anyhow::Result<()> {
    let listed = client.list_multipart_uploads().bucket(BUCKET).send().await?;
    anyhow::ensure!(listed.is_truncated() != Some(true), "there are more uploads than were ever open");
    let mut listed: BTreeMap<String, String> = listed
        .uploads()
        .iter()
        .map(|upload| (upload.upload_id().unwrap().to_owned(), upload.key().unwrap().to_owned()))
        .collect();
    let mut open = BTreeMap::new();
    for (id, mut upload) in std::mem::take(&mut model.uploads) {
        let there = listed.remove(&id);
        anyhow::ensure!(there.as_ref().is_none_or(|key| *key == upload.key), "upload {id} is one of {there:?}");
        match (there.is_some(), upload.ending.take()) {
            // A completion moves the object and ends the upload, or does neither.
            (there, Some(Ending::Complete)) if there == moved.contains(&upload.key) => anyhow::bail!(
                "of the completion of {id} half took effect: object changed {}, upload there {there}",
                moved.contains(&upload.key)
            ),
            (false, None) => anyhow::bail!("upload {id} of {} is lost: {upload:?}", upload.key),
            (false, Some(_)) => {}
            (true, _) => {
                verify_parts(client, &id, &mut upload).await?;
                open.insert(id, upload);
            }
        }
    }
    let mut in_flight = std::mem::take(&mut model.uploads_in_flight);
    for (id, key) in listed {
        anyhow::ensure!(in_flight.remove(&key), "nobody asked for upload {id} of {key}, or it had ended");
        open.insert(id, Upload { key, ..Upload::default() });
    }
    model.uploads = open;
    Ok(())
}

async fn verify_parts(client: &Client, id: &str, upload: &mut Upload) -> anyhow::Result<()> {
    let listed = client.list_parts().bucket(BUCKET).key(&upload.key).upload_id(id).send().await?;
    let mut found: BTreeMap<i32, String> =
        listed.parts().iter().map(|part| (part.part_number().unwrap(), part.e_tag().unwrap().to_owned())).collect();
    for (number, known) in &mut upload.parts {
        let there = found.remove(number);
        let in_flight = known.in_flight.take();
        if there == known.acknowledged.map(tag) {
            continue;
        }
        match in_flight {
            Some(content) if there == content.map(tag) => known.acknowledged = content,
            other => {
                anyhow::bail!("part {number} of {id} is {there:?}, neither {:?} nor {other:?}", known.acknowledged)
            }
        }
    }
    anyhow::ensure!(found.is_empty(), "nobody sent these parts of {id}: {found:?}");
    upload.parts.retain(|_, known| known.acknowledged.is_some());
    Ok(())
}
