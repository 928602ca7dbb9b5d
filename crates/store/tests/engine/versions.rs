//! Versions: random operations against a model, with restarts, crashes, compaction and the loss of the index in between.

use std::collections::BTreeMap;

use bytes::Bytes;
use gabion_store::{
    Attributes, ConfigScope, CopySource, DeleteObject, GetObject, ListDetails, ListVersions, ReadConditions, Retention,
    RetentionMode, Store, StoreError, VERSIONING, VersionId, Versioning,
};
use gabion_types::Seq;
use proptest::prelude::*;

use crate::harness::{truth::check_counters, *};

const KEYS: [&str; 5] = ["a", "a/b", "a/\u{0}c", "b", "b/"];

#[derive(Clone, Debug)]
enum Op {
    Put { at: usize, size: usize },
    Delete { at: usize },
    DeleteVersion { at: usize, which: usize },
    DeleteNull { at: usize },
    Copy { from: usize, which: usize, to: usize },
    Tag { at: usize, which: usize },
    Rename { from: usize, to: usize },
    Append { at: usize, size: usize },
    Keep(Versioning),
    List { max: usize, prefix: usize, delimited: bool },
    Compact,
    Free,
    Snapshot,
    Restart,
    CrashAndLoseIndex { keep_snapshot: bool },
}

fn ops() -> impl Strategy<Value = Op> {
    let at = 0..KEYS.len();
    prop_oneof![
        8 => (at.clone(), prop::sample::select(vec![0, 10, 3000, 70_000])).prop_map(|(at, size)| Op::Put { at, size }),
        3 => at.clone().prop_map(|at| Op::Delete { at }),
        4 => (at.clone(), 0..8_usize).prop_map(|(at, which)| Op::DeleteVersion { at, which }),
        2 => at.clone().prop_map(|at| Op::DeleteNull { at }),
        2 => (at.clone(), 0..8_usize, at.clone()).prop_map(|(from, which, to)| Op::Copy { from, which, to }),
        2 => (at.clone(), 0..8_usize).prop_map(|(at, which)| Op::Tag { at, which }),
        2 => (at.clone(), at.clone()).prop_map(|(from, to)| Op::Rename { from, to }),
        2 => (at, prop::sample::select(vec![0, 10, 3000, 70_000])).prop_map(|(at, size)| Op::Append { at, size }),
        1 => prop::sample::select(vec![Versioning::Enabled, Versioning::Enabled, Versioning::Suspended]).prop_map(Op::Keep),
        3 => (1..6_usize, 0..4_usize, any::<bool>())
            .prop_map(|(max, prefix, delimited)| Op::List { max, prefix, delimited }),
        1 => Just(Op::Compact),
        1 => Just(Op::Free),
        1 => Just(Op::Snapshot),
        1 => Just(Op::Restart),
        1 => any::<bool>().prop_map(|keep_snapshot| Op::CrashAndLoseIndex { keep_snapshot }),
    ]
}

/// A version as it should be; of a key the newest is the last.
#[derive(Clone, Debug, PartialEq)]
struct Expected {
    id: VersionId,
    /// Nothing for a delete marker.
    content: Option<Bytes>,
    tags: Vec<(String, String)>,
}

/// A key, and of a version its id, whether it is the newest, and whether it is a delete marker; nothing of a common prefix.
type Told = (String, Option<(VersionId, bool, bool)>);

struct Run {
    world: World,
    store: Store,
    versioning: Versioning,
    model: BTreeMap<String, Vec<Expected>>,
    count: u64,
}

impl Run {
    async fn new(seed: u64) -> Self {
        let mut world = World::new(seed, config(2, 1));
        world.config.compaction.live_ratio_max = 1.0;
        let store = world.open().await;
        store.create_bucket(bucket("bucket"), None).await.unwrap();
        Self { world, store, versioning: Versioning::Never, model: BTreeMap::new(), count: 0 }
    }

    fn of(&mut self, at: usize) -> &mut Vec<Expected> {
        self.model.entry(KEYS[at].to_owned()).or_default()
    }

    /// A new version takes its place, and that of the `null` version if it is one.
    fn add(&mut self, at: usize, version: Expected) {
        let versions = self.of(at);
        if version.id == VersionId::Null {
            versions.retain(|other| other.id != VersionId::Null);
        }
        versions.push(version);
    }

    fn pick(&self, at: usize, which: usize) -> Option<Expected> {
        let versions = self.model.get(KEYS[at])?;
        versions.get(which % versions.len().max(1)).cloned()
    }

    async fn run(&mut self, op: Op) {
        match op {
            Op::Put { at, size } => {
                self.count += 1;
                let content = bytes(self.count, size);
                let result = put(&self.store, "bucket", KEYS[at], &content).await;
                let id = self.new_id(result.version);
                self.add(at, Expected { id, content: Some(content), tags: Vec::new() });
            }
            Op::Delete { at } => {
                let request = DeleteObject::current(key(KEYS[at]));
                let deleted = self.store.delete_object(bucket("bucket"), request).await.unwrap();
                assert_eq!(deleted.is_marker, self.versioning != Versioning::Never);
                match self.versioning {
                    Versioning::Never => drop(self.model.remove(KEYS[at])),
                    _ => {
                        let id = self.new_id(deleted.version);
                        self.add(at, Expected { id, content: None, tags: Vec::new() });
                    }
                }
            }
            Op::DeleteVersion { at, which } => {
                let Some(version) = self.pick(at, which) else { return };
                self.delete_version(at, version.id, Some(version)).await;
            }
            Op::DeleteNull { at } => {
                let null = self.of(at).iter().find(|version| version.id == VersionId::Null).cloned();
                self.delete_version(at, VersionId::Null, null).await;
            }
            Op::Copy { from, which, to } => {
                let Some(version) = self.pick(from, which) else { return };
                let mut request = copy_request(KEYS[from], KEYS[to]);
                request.source = CopySource {
                    bucket: bucket("bucket"),
                    key: key(KEYS[from]),
                    version: Some(version.id),
                    conditions: ReadConditions::default(),
                };
                request.is_version_named = true;
                let copied = self.store.copy_object(request).await;
                if version.content.is_none() {
                    assert!(matches!(copied.unwrap_err(), StoreError::InvalidRequest(_)));
                    return;
                }
                let id = self.new_id(copied.unwrap().version);
                self.add(to, Expected { id, ..version });
            }
            Op::Tag { at, which } => {
                let Some(version) = self.pick(at, which) else { return };
                self.count += 1;
                let tags = vec![("count".to_owned(), self.count.to_string())];
                let (written, bucket) = (tags.clone(), bucket("bucket"));
                let change = |attributes: &mut Attributes| {
                    attributes.tags = written;
                    Ok(())
                };
                let changed = self.store.update_attributes(bucket, key(KEYS[at]), Some(version.id), change).await;
                if version.content.is_none() {
                    assert!(matches!(changed.unwrap_err(), StoreError::DeleteMarker { is_named: true, .. }));
                    return;
                }
                changed.unwrap();
                self.of(at).iter_mut().find(|other| other.id == version.id).unwrap().tags = tags;
            }
            Op::Rename { from, to } => {
                let renamed = self.store.rename_object(rename_request(KEYS[from], KEYS[to])).await;
                match (renamed, self.of(from).last().cloned()) {
                    (Err(StoreError::InvalidRequest(_)), _) => {
                        assert!(from == to || self.versioning != Versioning::Never);
                    }
                    (Err(StoreError::NoSuchKey), None) => {}
                    (Err(StoreError::DeleteMarker { .. }), Some(newest)) => assert_eq!(newest.content, None),
                    (renamed, Some(object)) => {
                        assert_eq!((renamed.unwrap().version, self.versioning), (VersionId::Null, Versioning::Never));
                        self.of(from).clear();
                        self.add(to, object);
                    }
                    (renamed, None) => panic!("{renamed:?}"),
                }
            }
            Op::Append { at, size } => {
                self.count += 1;
                let more = bytes(self.count, size);
                let content = self.of(at).last().and_then(|version| version.content.clone()).unwrap_or_default();
                let appended = append(&self.store, KEYS[at], content.len() as u64, &more).await;
                if self.versioning != Versioning::Never {
                    assert!(matches!(appended.unwrap_err(), StoreError::InvalidRequest(_)));
                    return;
                }
                assert_eq!(appended.unwrap().size as usize, content.len() + size);
                let tags = self.of(at).last().map_or_else(Vec::new, |version| version.tags.clone());
                let content = Some([content, more].concat().into());
                self.add(at, Expected { id: VersionId::Null, content, tags });
            }
            Op::Keep(versioning) => {
                let document = Bytes::from_static(versioning.document().as_bytes());
                self.store.put_config(ConfigScope::Bucket(bucket("bucket")), VERSIONING, document).await.unwrap();
                self.versioning = versioning;
            }
            Op::List { max, prefix, delimited } => self.list(max, ["", "a", "a/", "c"][prefix], delimited).await,
            Op::Compact => drop(self.store.compact().await.unwrap()),
            Op::Free => drop(self.store.free_dead_segments().await.unwrap()),
            Op::Snapshot => drop(self.store.snapshot_index().await.unwrap()),
            Op::Restart => self.store = self.world.restart(self.store.clone()).await,
            Op::CrashAndLoseIndex { keep_snapshot } => {
                self.world.config.index_snapshot_restore = keep_snapshot;
                self.world.lose_index();
                self.store = self.world.crash_and_open(self.store.clone(), 0).await;
                self.check().await;
            }
        }
    }

    fn new_id(&self, version: Option<VersionId>) -> VersionId {
        match (self.versioning, version) {
            (Versioning::Never | Versioning::Suspended, None) | (Versioning::Suspended, Some(VersionId::Null)) => {
                VersionId::Null
            }
            (Versioning::Enabled, Some(id @ VersionId::Of(_))) => id,
            other => panic!("{other:?}"),
        }
    }

    async fn delete_version(&mut self, at: usize, id: VersionId, found: Option<Expected>) {
        let request = DeleteObject { version: Some(id), ..DeleteObject::current(key(KEYS[at])) };
        let deleted = self.store.delete_object(bucket("bucket"), request).await.unwrap();
        assert_eq!((deleted.existed, deleted.version), (found.is_some(), Some(id)));
        assert_eq!(deleted.is_marker, found.is_some_and(|version| version.content.is_none()));
        self.of(at).retain(|version| version.id != id);
    }

    async fn list(&self, max: usize, prefix: &str, delimited: bool) {
        let mut expected = Vec::new();
        for (key, versions) in
            self.model.iter().filter(|(key, versions)| key.starts_with(prefix) && !versions.is_empty())
        {
            if let Some(at) = key[prefix.len()..].find('/').filter(|_| delimited) {
                let common = key[..prefix.len() + at + 1].to_owned();
                if expected.last() != Some(&(common.clone(), None)) {
                    expected.push((common, None));
                }
                continue;
            }
            let told = versions.iter().rev().enumerate();
            expected.extend(
                told.map(|(age, version)| (key.clone(), Some((version.id, age == 0, version.content.is_none())))),
            );
        }
        let (mut told, mut after) = (Vec::new(), None);
        loop {
            let request = ListVersions {
                bucket: bucket("bucket"),
                prefix: prefix.to_owned(),
                delimiter: delimited.then(|| "/".to_owned()),
                after,
                max,
            };
            let page = self.store.list_versions(request).await.unwrap();
            assert!(page.entries.len() + page.common_prefixes.len() <= max);
            let mut entries: Vec<_> = page
                .entries
                .into_iter()
                .map(|entry| (entry.object.key, Some((entry.version, entry.is_latest, entry.is_marker))))
                .chain(page.common_prefixes.into_iter().map(|prefix| (prefix, None)))
                .collect();
            entries.sort_by(|a, b| a.0.cmp(&b.0));
            told.extend(entries);
            assert_eq!(page.truncated, page.next.is_some());
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        assert_eq!(told, expected);
        if !delimited {
            let current = expected.iter().filter(|(_, told)| matches!(told, Some((_, true, false)))).cloned().collect();
            self.list_details(max, prefix, true, expected).await;
            self.list_details(max, prefix, false, current).await;
        }
    }

    /// What walks a whole bucket finds the same.
    async fn list_details(&self, max: usize, prefix: &str, all_versions: bool, expected: Vec<Told>) {
        let (mut told, mut after) = (Vec::new(), None);
        loop {
            let request = ListDetails { bucket: bucket("bucket"), prefix: prefix.to_owned(), all_versions, after, max };
            let page = self.store.list_details(request).await.unwrap();
            assert!(page.entries.len() <= max);
            for entry in page.entries {
                told.push((entry.key, Some((entry.info.version, entry.is_latest, entry.is_marker))));
            }
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        assert_eq!(told, expected, "all versions: {all_versions}");
    }

    /// All that can be read is what it should be.
    async fn check(&self) {
        check_counters(&self.world.index.current.lock());
        for (name, versions) in &self.model {
            let whole = GetObject::whole(bucket("bucket"), key(name));
            let current = versions.last().and_then(|version| version.content.clone());
            match (read(&self.store, whole.clone()).await, current) {
                (Ok(content), Some(expected)) => assert_eq!(content, expected),
                (Err(StoreError::NoSuchKey), None) => assert!(versions.is_empty(), "{name}: {versions:?}"),
                (Err(StoreError::DeleteMarker { version, is_named: false, .. }), None) => {
                    assert_eq!(Some(version), versions.last().map(|version| version.id));
                }
                (other, expected) => panic!("{name}: {other:?}, not {expected:?}"),
            }
            for version in versions {
                let got = read(&self.store, GetObject { version: Some(version.id), ..whole.clone() }).await;
                match &version.content {
                    Some(content) => {
                        assert_eq!(got.unwrap(), content);
                        let info = self.store.object_info(&whole.bucket, &whole.key, Some(version.id)).await.unwrap();
                        assert_eq!((info.version, info.attributes.tags), (version.id, version.tags.clone()));
                    }
                    None => assert!(matches!(got.unwrap_err(), StoreError::DeleteMarker { is_named: true, .. })),
                }
            }
        }
        self.list(1000, "", false).await;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn they_are_what_a_model_says(seed in 1_u64..1_000_000, ops in prop::collection::vec(ops(), 1..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let mut run = Run::new(seed).await;
            for op in ops {
                run.run(op).await;
            }
            run.check().await;
            run.run(Op::Compact).await;
            run.check().await;
            // The index that is rebuilt from the segments is the present one.
            run.store.shutdown().await;
            for restore in [true, false] {
                run.world.config.index_snapshot_restore = restore;
                assert_eq!(run.world.verify().await.differences, []);
            }
        });
    }
}

#[tokio::test]
async fn a_locked_version_stays() {
    let mut run = Run::new(1).await;
    run.run(Op::Keep(Versioning::Enabled)).await;
    let until_ms = START_MS + 1000;
    let held = Attributes { legal_hold: Some(true), ..Attributes::default() };
    let retained = |mode| Attributes { retention: Some(Retention { mode, until_ms }), ..Attributes::default() };
    let (governed, complied) = (retained(RetentionMode::Governance), retained(RetentionMode::Compliance));
    for (attributes, bypass_governance, later, is_deleted) in [
        (held.clone(), true, true, false),
        (governed.clone(), false, false, false),
        (governed.clone(), true, false, true),
        (governed, false, true, true),
        (complied.clone(), true, false, false),
        (complied, false, true, true),
    ] {
        run.world.clock.set_now_ms(if later { until_ms } else { START_MS });
        let request = gabion_store::PutObject { attributes: attributes.clone(), ..put_request("bucket", "key") };
        let body = gabion_store::ObjectBody::from_bytes(bytes(1, 10));
        let version = run.store.put_object(request, body).await.unwrap().version;
        let delete = DeleteObject { version, bypass_governance, ..DeleteObject::current(key("key")) };
        let deleted = run.store.delete_object(bucket("bucket"), delete).await;
        match deleted {
            Ok(_) => assert!(is_deleted, "{attributes:?}"),
            Err(StoreError::AccessDenied(_)) => assert!(!is_deleted, "{attributes:?}"),
            Err(error) => panic!("{error}"),
        }
        // A delete marker may come over it.
        run.store.delete_object(bucket("bucket"), DeleteObject::current(key("key"))).await.unwrap();
    }
}

/// What a page goes on with below a delimiter was told by its common prefix.
#[tokio::test]
async fn a_page_that_begins_below_a_delimiter_tells_nothing_of_its_key() {
    let world = World::new(9, config(1, 0));
    let store = world.open().await;
    store.create_bucket(bucket("bucket"), None).await.unwrap();
    put(&store, "bucket", "a/b", &bytes(1, 10)).await;
    let document = Versioning::Enabled.document().into();
    store.put_config(ConfigScope::Bucket(bucket("bucket")), VERSIONING, document).await.unwrap();
    let newest = put(&store, "bucket", "a/b", &bytes(2, 10)).await;
    let above = VersionId::Of(Seq::from_u64(newest.seq.as_u64() + 1));
    for (delimiter, version, count) in [
        (None, newest.version.unwrap(), 1),
        (None, above, 2),
        (Some("/"), newest.version.unwrap(), 0),
        (Some("/"), above, 0),
    ] {
        let request = ListVersions {
            bucket: bucket("bucket"),
            prefix: String::new(),
            delimiter: delimiter.map(str::to_owned),
            after: Some(("a/b".into(), Some(version))),
            max: 10,
        };
        let page = store.list_versions(request).await.unwrap();
        assert_eq!((page.entries.len(), page.common_prefixes.len()), (count, 0), "{delimiter:?} {version:?}");
    }
}
