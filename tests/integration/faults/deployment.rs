//! A deployment that was filled once, and copies of it that faults are done to.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use aws_sdk_s3::{
    Client,
    primitives::ByteStream,
    types::{CompletedMultipartUpload, CompletedPart},
};
use gabion_tests::{Content, Outcome, Server, Setup, bytes_of, failure};
use tokio::sync::OnceCell;

use crate::BUCKET;

/// What is stored: parts of each key.
type Objects = BTreeMap<String, Vec<Content>>;

/// A filled deployment as files: when it was half full, and when it was full. Both were killed, so that some segments are sealed and some not.
pub(super) struct Filled {
    directory: tempfile::TempDir,
    objects: Objects,
}

/// Which deployment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Shape {
    /// 4+2 on six targets.
    Six,
    /// 1+0.
    Single,
}

impl Shape {
    pub(super) fn setup(self) -> Setup {
        let setup = match self {
            Shape::Six => Setup::six(),
            Shape::Single => Setup::single(),
        };
        // Small segments: some are full and sealed, some died between the two copies.
        setup.flag("--segment-payload-bytes", "4MiB").flag("--segment-stripe-bytes", "1MiB")
    }

    fn cell(self) -> &'static OnceCell<Filled> {
        static SIX: OnceCell<Filled> = OnceCell::const_new();
        static SINGLE: OnceCell<Filled> = OnceCell::const_new();
        if self == Shape::Six { &SIX } else { &SINGLE }
    }

    /// The filled deployment of this shape, made once.
    pub(super) async fn filled(self) -> &'static Filled {
        self.cell().get_or_init(|| Filled::make(self)).await
    }

    /// The same, when it was made before.
    pub(super) fn made(self) -> &'static Filled {
        self.cell().get().expect("the test made it first")
    }
}

/// Objects of every path: empty, small, at the edge, large.
const SIZES: [usize; 9] = [0, 1, 100, 4096, 60_000, 300_000, 1 << 20, (1 << 20) + 1, 4_000_000];

impl Filled {
    async fn make(shape: Shape) -> Self {
        let mut server = Server::start(shape.setup()).await.unwrap();
        let directory = tempfile::tempdir().unwrap();
        let mut objects = Objects::new();
        server.client().create_bucket().bucket(BUCKET).send().await.unwrap();
        for (index, half) in ["early", "late"].into_iter().enumerate() {
            fill(&server.client(), index as u64, &mut objects).await;
            server.kill().await;
            let copy = directory.path().join(half);
            fs::create_dir(&copy).unwrap();
            for from in server.targets().iter().map(PathBuf::as_path).chain([server.state()]) {
                copy_tree(from, &copy.join(from.file_name().unwrap()));
            }
            server.spawn().await.unwrap();
            verify(&server.client(), &objects).await.unwrap();
        }
        Self { directory, objects }
    }

    /// A server on a copy of the full deployment, not started.
    pub(super) fn server(&self, setup: Setup) -> Server {
        let server = Server::new(setup).unwrap();
        for to in server.targets().iter().map(PathBuf::as_path).chain([server.state()]) {
            // A target may be a mounted file system: its contents are what is copied.
            fs::create_dir_all(to).unwrap();
            copy_tree(&self.late(to.file_name().unwrap().to_str().unwrap()).join("."), to);
        }
        server
    }

    /// A target or the state directory, as it was when the deployment was half full.
    pub(super) fn early(&self, name: &str) -> PathBuf {
        self.directory.path().join("early").join(name)
    }

    /// The same when it was full.
    pub(super) fn late(&self, name: &str) -> PathBuf {
        self.directory.path().join("late").join(name)
    }

    /// Reads everything; all must be there and nothing else.
    pub(super) async fn verify(&self, client: &Client) -> anyhow::Result<()> {
        verify(client, &self.objects).await
    }

    /// Reads everything that can be read: what is served must be right. Returns how many objects were not served, and the answers to those that were
    /// refused. Only the first bytes of an object are read before it is answered: where later ones fail, the answer breaks off, and nothing of it
    /// may have been sent by then.
    pub(super) async fn verify_served(&self, client: &Client) -> anyhow::Result<(usize, Vec<Outcome>)> {
        let (mut lost, mut refusals) = (0, Vec::new());
        for (key, parts) in &self.objects {
            let got = match client.get_object().bucket(BUCKET).key(key).send().await {
                Ok(got) => got,
                refused => {
                    lost += 1;
                    refusals.extend(Some(failure(refused)).filter(|outcome| outcome.status().is_some()));
                    continue;
                }
            };
            match bytes_of(got).await {
                // An older state of a key is a lost write, and not wrong bytes.
                Ok(bytes) if bytes != bytes_in(parts) => match older(key) {
                    Some(older) if bytes == older.bytes() => lost += 1,
                    _ => anyhow::bail!("{key} is served with wrong bytes ({} of them)", bytes.len()),
                },
                Ok(_) => {}
                Err(_) => lost += 1,
            }
        }
        Ok((lost, refusals))
    }
}

/// What a key held before it was overwritten.
fn older(key: &str) -> Option<Content> {
    let index: usize = key.strip_prefix("first/")?.parse().ok()?;
    Some(Content::new(index as u64, SIZES[index]))
}

async fn put(client: &Client, objects: &mut Objects, key: String, content: Content) {
    let body = ByteStream::from(content.bytes());
    client.put_object().bucket(BUCKET).key(&key).body(body).send().await.unwrap();
    objects.insert(key, vec![content]);
}

/// Fills in one half: objects of all sizes, a multipart object; the second overwrites and deletes of the first.
async fn fill(client: &Client, half: u64, objects: &mut Objects) {
    let name = if half == 0 { "first" } else { "second" };
    for (index, size) in SIZES.into_iter().enumerate() {
        put(client, objects, format!("{name}/{index}"), Content::new(half * 100 + index as u64, size)).await;
        put(client, objects, format!("{name}/gone/{index}"), Content::new(half * 100 + 50 + index as u64, size)).await;
    }
    let key = format!("{name}/parts");
    let created = client.create_multipart_upload().bucket(BUCKET).key(&key).send().await.unwrap();
    let (id, mut parts) = (created.upload_id().unwrap(), Vec::new());
    let contents = vec![Content::new(half * 100 + 90, 5 << 20), Content::new(half * 100 + 91, 700_000)];
    for (number, content) in (1..).zip(&contents) {
        let part = client.upload_part().bucket(BUCKET).key(&key).upload_id(id).part_number(number);
        let part = part.body(ByteStream::from(content.bytes())).send().await.unwrap();
        parts.push(CompletedPart::builder().part_number(number).set_e_tag(part.e_tag().map(str::to_owned)).build());
    }
    let upload = CompletedMultipartUpload::builder().set_parts(Some(parts)).build();
    let complete = client.complete_multipart_upload().bucket(BUCKET).key(&key).upload_id(id).multipart_upload(upload);
    complete.send().await.unwrap();
    objects.insert(key, contents);
    if half == 0 {
        return;
    }
    for (index, size) in SIZES.into_iter().enumerate() {
        if index % 2 == 0 {
            put(client, objects, format!("first/{index}"), Content::new(200 + index as u64, size)).await;
        }
        for name in ["first", "second"] {
            let key = format!("{name}/gone/{index}");
            client.delete_object().bucket(BUCKET).key(&key).send().await.unwrap();
            objects.remove(&key);
        }
    }
}

fn bytes_in(parts: &[Content]) -> Vec<u8> {
    parts.iter().flat_map(|part| part.bytes()).collect()
}

async fn verify(client: &Client, objects: &Objects) -> anyhow::Result<()> {
    for (key, parts) in objects {
        let got = client.get_object().bucket(BUCKET).key(key).send().await;
        let got = got.map_err(|error| anyhow::anyhow!("{key}: {:?}", failure(Err::<(), _>(error))))?;
        let bytes = bytes_of(got).await?;
        anyhow::ensure!(bytes == bytes_in(parts), "{key} has wrong bytes: {} of them", bytes.len());
    }
    let listed = client.list_objects_v2().bucket(BUCKET).send().await?;
    let mut listed: Vec<&str> = listed.contents().iter().map(|object| object.key().unwrap()).collect();
    // What a row of the table writes itself.
    listed.retain(|key| *key != NEW_KEY);
    anyhow::ensure!(listed.iter().copied().eq(objects.keys()), "the listing is {listed:?}");
    Ok(())
}

/// What is written after a fault.
const NEW_KEY: &str = "new";
const NEW: Content = Content { seed: 4711, len: 2_500_000 };

/// Writes something, large and small.
pub(super) async fn put_new(client: &Client) -> Result<(), Outcome> {
    let body = ByteStream::from(NEW.bytes());
    let put = client.put_object().bucket(BUCKET).key(NEW_KEY).body(body).send().await;
    put.map(drop).map_err(|error| failure(Err::<(), _>(error)))
}

/// Reads what [`put_new`] wrote.
pub(super) async fn verify_new(client: &Client) -> anyhow::Result<()> {
    let got = client.get_object().bucket(BUCKET).key(NEW_KEY).send().await;
    let got = got.map_err(|error| anyhow::anyhow!("{NEW_KEY}: {:?}", failure(Err::<(), _>(error))))?;
    anyhow::ensure!(bytes_of(got).await? == NEW.bytes(), "what was written after the fault has wrong bytes");
    Ok(())
}

/// Copies a file or directory, holes and all.
pub(super) fn copy_tree(from: &Path, to: &Path) {
    let status = Command::new("cp").args(["-a", "--sparse=always", "--no-target-directory"]).args([from, to]).status();
    assert!(status.unwrap().success(), "cp {} {}", from.display(), to.display());
}
