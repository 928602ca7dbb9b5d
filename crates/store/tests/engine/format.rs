//! Deployments that earlier versions of the format wrote are read for ever: `tests/fixtures`.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use gabion_platform::{DriverChoice, DriverOptions, OsEntropy, SystemClock, open_disk};
use gabion_segment::LogTarget;
use gabion_store::{
    Env, GetObject, IndexFactory, ListBuckets, ListParts, ListUploads, OpenReport, RangeRequest, Silent, Store,
    UploadRef,
};
use gabion_types::{Geometry, limits::BLOCK_BYTES};

use crate::{harness::*, real::embedded};

const BUCKET: &str = "fixture";

/// What must be read of an object.
struct Expected {
    bytes: usize,
    crc64: u64,
    tag: String,
    parts: u32,
    /// Written while the last target was away: its segments have one shard less.
    one_away: bool,
}

/// What the index comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum From {
    /// The fixture has it.
    Index,
    /// Its newest snapshot in the log, if there is one.
    Snapshot,
    /// All mutations.
    Mutations,
}

/// A copy of a fixture: opening writes to it.
struct Copy {
    root: tempfile::TempDir,
    geometry: Geometry,
}

impl Copy {
    fn new(fixture: &Path) -> Self {
        let root = tempfile::tempdir().unwrap();
        copy_tree(fixture, root.path());
        Self { root, geometry: fixture.file_name().unwrap().to_str().unwrap().parse().unwrap() }
    }

    fn manifest(&self) -> BTreeMap<String, Expected> {
        let text = fs::read_to_string(self.root.path().join("manifest.tsv")).unwrap();
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let read = |line: &str| {
            let [key, bytes, crc64, tag, parts, one_away] = line.split('\t').collect::<Vec<_>>()[..] else {
                panic!("{line}")
            };
            let expected = Expected {
                bytes: bytes.parse().unwrap(),
                crc64: u64::from_str_radix(crc64, 16).unwrap(),
                tag: tag.to_owned(),
                parts: parts.parse().unwrap(),
                one_away: one_away.parse().unwrap(),
            };
            (key.to_owned(), expected)
        };
        lines.map(read).collect()
    }

    /// Opens it without the targets `away`, with its own index or without any.
    async fn open(&self, away: &[usize], with_index: bool) -> (Store, OpenReport) {
        self.open_from(away, if with_index { From::Index } else { From::Snapshot }).await
    }

    async fn open_from(&self, away: &[usize], from: From) -> (Store, OpenReport) {
        let target = |number: usize| {
            let path = self.root.path().join(format!("target-{number}"));
            let opened = || open_disk(&path, DriverChoice::Threads, DriverOptions::default(), None).unwrap();
            let disk = (!away.contains(&number)).then(|| opened().disk);
            LogTarget { name: format!("target {number}"), disk, failure_domain: format!("domain-{number}") }
        };
        let factory: Box<dyn IndexFactory> = match from {
            From::Index => Box::new(embedded(self.root.path())),
            From::Snapshot | From::Mutations => World::new(1, config(1, 0)).factory(),
        };
        let mut config = config(self.geometry.data(), self.geometry.parity());
        config.index_snapshot_restore = from != From::Mutations;
        config.log.stripe_payload_bytes = self.geometry.data() * BLOCK_BYTES;
        let env = Env { clock: Arc::new(SystemClock), entropy: Arc::new(OsEntropy) };
        let targets = (0..self.geometry.shards()).map(target).collect();
        Store::open(config, targets, factory, env, Arc::new(Silent)).await.unwrap()
    }

    /// Reads everything and compares; without what has lost more than m shards.
    async fn check(&self, store: &Store, away: &[usize]) {
        let last = self.geometry.shards() - 1;
        let short = away.iter().filter(|&&target| target != last).count() + 1 > self.geometry.parity();
        let manifest = self.manifest();
        for (name, expected) in &manifest {
            if expected.one_away && short {
                continue;
            }
            let what = format!("{name} of {} without {away:?}", self.geometry);
            let got = get(store, BUCKET, name).await.unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!((got.len(), gabion_erasure::crc64(&got)), (expected.bytes, expected.crc64), "{what}");
            let whole = GetObject::whole(bucket(BUCKET), key(name));
            let info = store.head_object(&whole).unwrap().info;
            assert_eq!(info.etag.to_string(), expected.tag, "{what}");
            assert_eq!(info.parts_count.unwrap_or(0), expected.parts, "{what}");
            if expected.parts == 0 {
                assert_eq!(info.attributes.content_type.as_deref(), Some("text/x-stone"), "{what}");
                assert_eq!(info.attributes.user, [("mason".to_owned(), "gabion".to_owned())], "{what}");
            } else {
                let last_part = GetObject { part_number: Some(expected.parts as u16), ..whole };
                let tail = read(store, last_part).await.unwrap();
                assert!(!tail.is_empty() && got.ends_with(&tail), "{what}");
            }
            if expected.bytes > 10 {
                let range = RangeRequest::Last(expected.bytes as u64 / 3);
                assert_eq!(get_range(store, BUCKET, name, range).await.unwrap(), got[got.len() - got.len() / 3..]);
            }
        }
        let listed = keys(store, BUCKET).await;
        let may_be_missing = |name: &&String| short && manifest[*name].one_away;
        let expected: Vec<_> = manifest.keys().filter(|name| listed.contains(name) || !may_be_missing(name)).collect();
        assert_eq!(listed.iter().collect::<Vec<_>>(), expected, "{} without {away:?}", self.geometry);
        check_uploads_and_buckets(store).await;
    }
}

async fn check_uploads_and_buckets(store: &Store) {
    let all = ListBuckets { prefix: None, after: None, max: 10, owner: None };
    let names: Vec<_> = store.list_buckets(all).await.unwrap().buckets.into_iter().map(|b| b.name).collect();
    assert_eq!(names, [bucket(BUCKET), bucket("fixture-empty")]);
    let uploads = ListUploads {
        bucket: bucket(BUCKET),
        prefix: String::new(),
        delimiter: None,
        key_marker: None,
        upload_id_marker: None,
        max: 10,
    };
    let uploads = store.list_uploads(uploads).await.unwrap().uploads;
    assert_eq!(uploads.iter().map(|upload| &upload.key[..]).collect::<Vec<_>>(), ["never-completed"]);
    let target = UploadRef { bucket: bucket(BUCKET), key: key("never-completed"), upload: uploads[0].upload };
    let parts = store.list_parts(ListParts { target, after: 0, max: 10 }).await.unwrap().parts;
    assert_eq!(parts.iter().map(|part| (part.part_number, part.size)).collect::<Vec<_>>(), [(3, 5000)]);
}

fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_tree(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// Every deployment of every format version.
fn fixtures() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures");
    let directories = |path: &Path| {
        let entries = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.is_dir()).collect::<Vec<_>>()
    };
    let found: Vec<_> = directories(&root).iter().flat_map(|version| directories(version)).collect();
    assert!(found.len() >= 2, "{found:?}");
    found
}

#[tokio::test]
async fn every_format_opens_for_ever() {
    for fixture in fixtures() {
        let copy = Copy::new(&fixture);
        let (store, report) = copy.open(&[], true).await;
        assert_eq!(report.index_rebuilt, None, "{}: {report:?}", fixture.display());
        copy.check(&store, &[]).await;
        // What is written now joins what was there.
        put(&store, "fixture-empty", "new", &bytes(1, 2000)).await;
        store.shutdown().await;
        drop(store);
        let (store, report) = copy.open(&[], true).await;
        assert_eq!(report.mutations_replayed, 0, "{report:?}");
        copy.check(&store, &[]).await;
        assert_eq!(get(&store, "fixture-empty", "new").await.unwrap(), bytes(1, 2000));
        store.shutdown().await;
    }
}

#[tokio::test]
async fn every_format_is_rebuilt_from_its_segments() {
    for fixture in fixtures() {
        let copy = Copy::new(&fixture);
        let (store, report) = copy.open(&[], false).await;
        assert!(report.index_rebuilt.is_some(), "{report:?}");
        assert!(report.rows_restored + report.mutations_replayed > 50, "{report:?}");
        copy.check(&store, &[]).await;
        store.shutdown().await;
    }
}

/// Lists of members of version 3 do not say which targets are lost: an older image is believed what the others can not contradict.
#[tokio::test]
async fn what_an_older_list_of_members_does_not_say_costs_nothing() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/members-3");
    for from in [From::Index, From::Mutations] {
        let copy = Copy::new(&root.join("1+1"));
        // All that was written before the other target was replaced lies here alone.
        fs::copy(copy.root.path().join("older-members.json"), copy.root.path().join("target-1/gabion.json")).unwrap();
        let (store, _) = copy.open_from(&[], from).await;
        assert!(store.status().log.targets[1].stale, "the test tests nothing");
        copy.check(&store, &[]).await;
        assert!(store.repair_now().await.unwrap().shards_built > 0);
        store.shutdown().await;
    }
}

#[tokio::test]
async fn what_compaction_left_is_read_whatever_the_index_comes_from() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/format-1-compacted");
    for (from, away) in [(From::Index, 1), (From::Snapshot, 0), (From::Mutations, 2)] {
        let copy = Copy::new(&root.join("2+1"));
        let (store, report) = copy.open_from(&[away], from).await;
        assert_eq!(report.rows_restored > 0, from == From::Snapshot, "{report:?}");
        copy.check(&store, &[]).await;
        // And moved once more.
        store.compact().await.unwrap();
        copy.check(&store, &[]).await;
        store.shutdown().await;
    }
}

#[tokio::test]
async fn every_format_bears_the_loss_of_parity_targets() {
    for fixture in fixtures() {
        let geometry = Copy::new(&fixture).geometry;
        let pairs = (0..geometry.shards()).flat_map(|a| (0..a).map(move |b| [a, b]));
        let losses = pairs.filter(|_| geometry.parity() == 2);
        for (number, away) in losses.enumerate() {
            let copy = Copy::new(&fixture);
            let with_index = number.is_multiple_of(4);
            let (store, report) = copy.open(&away, with_index).await;
            assert_eq!(report.index_rebuilt.is_some(), !with_index, "{report:?}");
            copy.check(&store, &away).await;
            store.shutdown().await;
        }
    }
}
