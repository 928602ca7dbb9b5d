//! Random operations against a model, with restarts, crashes and the loss of the index in between.

use std::collections::BTreeMap;

use bytes::Bytes;
use gabion_store::{
    AppendObject, ByteRange, CompletedPart, CopyMetadata, CopyObject, CopySource, CreateUpload, DeleteObject,
    EtagMatch, ListObjects, ListUploads, ObjectBody, ReadConditions, RenameObject, Silent, Store, StoreError,
    UploadPart, UploadPartCopy, UploadRef, WriteConditions,
};
use gabion_types::UploadId;
use proptest::prelude::*;

use crate::harness::{truth::check_counters, *};

const BUCKETS: [&str; 2] = ["bucket-a", "bucket-b"];
const KEYS: [&str; 9] = ["a", "a/b", "a/b/c", "a/c", "b", "b/\u{0}x", "b/ü", "c/", "c/d"];

/// What can happen. Indices are taken modulo what is there.
#[derive(Clone, Debug)]
enum Op {
    CreateBucket(usize),
    DeleteBucket(usize),
    Put { at: (usize, usize), size: usize },
    PutIfAbsent { at: (usize, usize), size: usize },
    PutIfMatch { at: (usize, usize), right: bool },
    Delete { at: (usize, usize) },
    DeleteIfMatch { at: (usize, usize), right: bool },
    Copy { from: (usize, usize), to: (usize, usize), tags: Option<u8> },
    Tag { at: (usize, usize), tags: u8 },
    Rename { from: (usize, usize), to: usize },
    CrashInRename { from: (usize, usize), to: usize, polls: usize },
    Append { at: (usize, usize), size: usize, right: bool },
    Begin { at: (usize, usize) },
    Part { upload: usize, number: u16, size: usize },
    PartCopy { upload: usize, number: u16, from: (usize, usize), range: bool },
    Complete { upload: usize, skip: bool },
    Abort { upload: usize },
    List { bucket: usize, prefix: usize, delimited: bool, max: usize },
    Restart,
    Crash { keep_commits: usize },
    CrashAndLoseIndex { restore: bool },
    Checkpoint,
    Snapshot,
    Free,
    Compact,
    CrashInCompaction { polls: usize, keep_commits: usize },
}

fn op() -> impl Strategy<Value = Op> {
    let at = (0..BUCKETS.len(), 0..KEYS.len());
    let size = prop_oneof![
        6 => 0_usize..5000,
        3 => 100_000_usize..400_000,
        1 => (1_usize << 20) + 1..2_500_000,
    ];
    prop_oneof![
        2 => (0..BUCKETS.len()).prop_map(Op::CreateBucket),
        1 => (0..BUCKETS.len()).prop_map(Op::DeleteBucket),
        12 => (at.clone(), size.clone()).prop_map(|(at, size)| Op::Put { at, size }),
        2 => (at.clone(), size.clone()).prop_map(|(at, size)| Op::PutIfAbsent { at, size }),
        2 => (at.clone(), any::<bool>()).prop_map(|(at, right)| Op::PutIfMatch { at, right }),
        7 => at.clone().prop_map(|at| Op::Delete { at }),
        2 => (at.clone(), any::<bool>()).prop_map(|(at, right)| Op::DeleteIfMatch { at, right }),
        4 => (at.clone(), at.clone(), prop::option::weighted(0.2, 0_u8..3))
            .prop_map(|(from, to, tags)| Op::Copy { from, to, tags }),
        3 => (at.clone(), 0_u8..3).prop_map(|(at, tags)| Op::Tag { at, tags }),
        4 => (at.clone(), 0..KEYS.len()).prop_map(|(from, to)| Op::Rename { from, to }),
        1 => (at.clone(), 0..KEYS.len(), 0_usize..60)
            .prop_map(|(from, to, polls)| Op::CrashInRename { from, to, polls }),
        6 => (at.clone(), size.clone(), prop::bool::weighted(0.9))
            .prop_map(|(at, size, right)| Op::Append { at, size, right }),
        3 => at.clone().prop_map(|at| Op::Begin { at }),
        5 => (0_usize..4, 1_u16..5, size).prop_map(|(upload, number, size)| Op::Part { upload, number, size }),
        2 => (0_usize..4, 1_u16..5, at, any::<bool>())
            .prop_map(|(upload, number, from, range)| Op::PartCopy { upload, number, from, range }),
        3 => (0_usize..4, any::<bool>()).prop_map(|(upload, skip)| Op::Complete { upload, skip }),
        1 => (0_usize..4).prop_map(|upload| Op::Abort { upload }),
        3 => (0..BUCKETS.len(), 0_usize..5, any::<bool>(), 1_usize..6)
            .prop_map(|(bucket, prefix, delimited, max)| Op::List { bucket, prefix, delimited, max }),
        1 => Just(Op::Restart),
        2 => (0_usize..6).prop_map(|keep_commits| Op::Crash { keep_commits }),
        1 => any::<bool>().prop_map(|restore| Op::CrashAndLoseIndex { restore }),
        1 => Just(Op::Checkpoint),
        2 => Just(Op::Snapshot),
        3 => Just(Op::Free),
        3 => Just(Op::Compact),
        2 => (0_usize..400, 0_usize..6)
            .prop_map(|(polls, keep_commits)| Op::CrashInCompaction { polls, keep_commits }),
    ]
}

#[derive(Default)]
struct Model {
    buckets: BTreeMap<usize, BTreeMap<usize, Object>>,
    uploads: BTreeMap<UploadId, Upload>,
}

#[derive(Clone)]
struct Object {
    body: Bytes,
    etag: String,
    parts: Option<Vec<(u16, usize)>>,
    /// Number of its tags.
    tags: u8,
}

struct Upload {
    at: (usize, usize),
    parts: BTreeMap<u16, (Bytes, String)>,
}

impl Model {
    fn object(&self, at: (usize, usize)) -> Option<&Object> {
        self.buckets.get(&at.0)?.get(&at.1)
    }

    fn put(&mut self, at: (usize, usize), object: Object) {
        self.buckets.get_mut(&at.0).unwrap().insert(at.1, object);
    }

    fn rename(&mut self, from: (usize, usize), to: (usize, usize)) {
        let object = self.buckets.get_mut(&from.0).unwrap().remove(&from.1).unwrap();
        self.put(to, object);
    }

    fn upload(&self, number: usize) -> Option<UploadId> {
        let count = self.uploads.len();
        (count > 0).then(|| *self.uploads.keys().nth(number % count).unwrap())
    }
}

struct Run {
    world: World,
    store: Store,
    model: Model,
    bodies: u64,
}

impl Run {
    fn body(&mut self, size: usize) -> Bytes {
        self.bodies += 1;
        bytes(self.bodies, size)
    }

    async fn put_with(&mut self, at: (usize, usize), size: usize, conditions: WriteConditions, expected: &str) {
        let body = self.body(size);
        let request = gabion_store::PutObject { conditions, ..put_request(BUCKETS[at.0], KEYS[at.1]) };
        let got = self.store.put_object(request, ObjectBody::from_bytes(body.clone())).await;
        assert_eq!(outcome(&got), expected);
        if let Ok(put) = got {
            self.model.put(at, Object { body, etag: put.etag.to_string(), parts: None, tags: 0 });
        }
    }

    async fn step(mut self, op: Op) -> Self {
        self.world.clock.advance(std::time::Duration::from_millis(7));
        match op {
            Op::CreateBucket(number) => {
                let got = self.store.create_bucket(bucket(BUCKETS[number]), None).await;
                let exists = self.model.buckets.contains_key(&number);
                assert_eq!(outcome(&got), if exists { "BucketAlreadyOwnedByYou" } else { "ok" });
                self.model.buckets.entry(number).or_default();
            }
            Op::DeleteBucket(number) => {
                let got = self.store.delete_bucket(&bucket(BUCKETS[number])).await;
                match self.model.buckets.get(&number) {
                    None => assert_eq!(outcome(&got), "NoSuchBucket"),
                    Some(objects) if !objects.is_empty() => assert_eq!(outcome(&got), "BucketNotEmpty"),
                    Some(_) => {
                        assert_eq!(outcome(&got), "ok");
                        self.model.buckets.remove(&number);
                        self.model.uploads.retain(|_, upload| upload.at.0 != number);
                    }
                }
            }
            Op::Put { at, size } => {
                let expected = if self.model.buckets.contains_key(&at.0) { "ok" } else { "NoSuchBucket" };
                self.put_with(at, size, WriteConditions::default(), expected).await;
            }
            Op::PutIfAbsent { at, size } => {
                let expected = match (self.model.buckets.contains_key(&at.0), self.model.object(at)) {
                    (false, _) => "NoSuchBucket",
                    (true, None) => "ok",
                    (true, Some(_)) => "PreconditionFailed",
                };
                let conditions = WriteConditions { if_none_match: Some(EtagMatch::Any), if_match: None };
                self.put_with(at, size, conditions, expected).await;
            }
            Op::PutIfMatch { at, right } => {
                let etag = self.model.object(at).map_or("x".into(), |object| object.etag.clone());
                let etag = if right { etag } else { "no such tag".into() };
                let expected = match (self.model.buckets.contains_key(&at.0), self.model.object(at)) {
                    (false, _) => "NoSuchBucket",
                    (true, None) => "NoSuchKey",
                    (true, Some(_)) if right => "ok",
                    (true, Some(_)) => "PreconditionFailed",
                };
                let if_match = Some(EtagMatch::OneOf(vec![etag]));
                self.put_with(at, 77, WriteConditions { if_none_match: None, if_match }, expected).await;
            }
            Op::Delete { at } => self.delete(at, None).await,
            Op::DeleteIfMatch { at, right } => self.delete(at, Some(right)).await,
            Op::Copy { from, to, tags } => self.copy(from, to, tags).await,
            Op::Tag { at, tags } => {
                let (bucket, key) = (bucket(BUCKETS[at.0]), key(KEYS[at.1]));
                let got = put_object_tags(&self.store, bucket, key, numbered(tags)).await;
                let expected = match (self.model.buckets.contains_key(&at.0), self.model.object(at)) {
                    (false, _) => "NoSuchBucket",
                    (true, None) => "NoSuchKey",
                    (true, Some(_)) => "ok",
                };
                assert_eq!(outcome(&got), expected);
                if let Some(object) = self.model.buckets.get_mut(&at.0).and_then(|objects| objects.get_mut(&at.1)) {
                    object.tags = tags;
                }
            }
            Op::Rename { from, to } => {
                let to = (from.0, to);
                let got = self.store.rename_object(renaming(from, to)).await;
                let expected = match self.model.object(from) {
                    _ if from == to => "InvalidRequest",
                    None if self.model.buckets.contains_key(&from.0) => "NoSuchKey",
                    None => "NoSuchBucket",
                    Some(_) => "ok",
                };
                assert_eq!(outcome(&got), expected);
                if got.is_ok() {
                    self.model.rename(from, to);
                }
            }
            Op::CrashInRename { from, to, polls } => {
                let to = (from.0, to);
                if from == to || self.model.object(from).is_none() {
                    return self;
                }
                let store = self.store.clone();
                let task = tokio::spawn(async move { store.rename_object(renaming(from, to)).await });
                for _ in 0..polls {
                    tokio::task::yield_now().await;
                }
                let is_acknowledged = task.is_finished();
                task.abort();
                self.store = self.world.crash_and_open(self.store, 0).await;
                // Whether or not it was done: which is for the model to know.
                let left = get(&self.store, BUCKETS[from.0], KEYS[from.1]).await.is_err();
                assert!(left || !is_acknowledged);
                if left {
                    self.model.rename(from, to);
                }
                self.check_all().await;
            }
            Op::Append { at, size, right } => {
                let body = self.body(size);
                let before = self.model.object(at).cloned();
                let offset_bytes = before.as_ref().map_or(0, |object| object.body.len() as u64) + u64::from(!right);
                let request = AppendObject { object: put_request(BUCKETS[at.0], KEYS[at.1]), offset_bytes };
                let got = self.store.append_object(request, ObjectBody::from_bytes(body.clone())).await;
                let expected = match self.model.buckets.contains_key(&at.0) {
                    false => "NoSuchBucket",
                    true if right => "ok",
                    true => "InvalidWriteOffset",
                };
                assert_eq!(outcome(&got), expected);
                if let Ok(put) = got {
                    let before = before.map_or((Bytes::new(), 0), |object| (object.body, object.tags));
                    let body = Bytes::from([before.0, body].concat());
                    assert_eq!(put.size, body.len() as u64);
                    self.model.put(at, Object { body, etag: put.etag.to_string(), parts: None, tags: before.1 });
                }
            }
            Op::Begin { at } => {
                let request = CreateUpload {
                    bucket: bucket(BUCKETS[at.0]),
                    key: key(KEYS[at.1]),
                    attributes: Default::default(),
                    checksum: None,
                };
                let got = self.store.create_upload(request).await;
                let expected = if self.model.buckets.contains_key(&at.0) { "ok" } else { "NoSuchBucket" };
                assert_eq!(outcome(&got), expected);
                if let Ok(upload) = got {
                    self.model.uploads.insert(upload, Upload { at, parts: BTreeMap::new() });
                }
            }
            Op::Part { upload, number, size } => {
                let Some(upload) = self.model.upload(upload) else { return self };
                let body = self.body(size);
                let request = UploadPart { target: self.target(upload), part_number: number };
                let part = self.store.upload_part(request, ObjectBody::from_bytes(body.clone())).await.unwrap();
                self.model.uploads.get_mut(&upload).unwrap().parts.insert(number, (body, part.etag.to_string()));
            }
            Op::PartCopy { upload, number, from, range } => {
                let Some(upload) = self.model.upload(upload) else { return self };
                let Some(source) = self.model.object(from).cloned() else { return self };
                let size = source.body.len() as u64;
                let range = (range && size > 3).then_some(ByteRange { first: 1, last: size - 2 });
                let body = range.map_or(source.body.clone(), |r| source.body.slice(r.first as usize..=r.last as usize));
                let request = UploadPartCopy {
                    target: self.target(upload),
                    part_number: number,
                    source: copy_source(from),
                    range,
                };
                let part = self.store.upload_part_copy(request).await.unwrap();
                assert_eq!(part.size, body.len() as u64);
                self.model.uploads.get_mut(&upload).unwrap().parts.insert(number, (body, part.etag.to_string()));
            }
            Op::Complete { upload, skip } => self.complete(upload, skip).await,
            Op::Abort { upload } => {
                let Some(upload) = self.model.upload(upload) else { return self };
                let target = self.target(upload);
                self.store.abort_upload(target.clone()).await.unwrap();
                assert_eq!(outcome(&self.store.abort_upload(target).await), "NoSuchUpload");
                self.model.uploads.remove(&upload);
            }
            Op::List { bucket, prefix, delimited, max } => self.list(bucket, prefix, delimited, max).await,
            Op::Restart => {
                self.store = self.world.restart(self.store).await;
                self.check_all().await;
            }
            Op::Crash { keep_commits } => {
                self.store = self.world.crash_and_open(self.store, keep_commits).await;
                self.check_all().await;
            }
            Op::CrashAndLoseIndex { restore } => {
                self.world.crash(self.store, 0).await;
                self.world.lose_index();
                self.world.config.index_snapshot_restore = restore;
                self.store = self.world.open().await;
                self.world.config.index_snapshot_restore = true;
                self.check_all().await;
            }
            Op::Checkpoint => self.store.checkpoint().await.unwrap(),
            Op::Snapshot => {
                self.store.snapshot_index().await.unwrap().expect("nothing speaks against it");
            }
            Op::Free => {
                self.store.free_dead_segments().await.unwrap();
            }
            Op::Compact => {
                let compacted = self.store.compact().await.unwrap();
                assert_eq!((compacted.rows_changed, compacted.rows_failed), (0, 0));
                self.check_all().await;
            }
            Op::CrashInCompaction { polls, keep_commits } => {
                let store = self.store.clone();
                let task = tokio::spawn(async move { store.compact().await });
                for _ in 0..polls {
                    tokio::task::yield_now().await;
                }
                task.abort();
                self.store = self.world.crash_and_open(self.store, keep_commits).await;
                self.check_all().await;
            }
        }
        self
    }

    fn target(&self, upload: UploadId) -> UploadRef {
        let at = self.model.uploads[&upload].at;
        UploadRef { bucket: bucket(BUCKETS[at.0]), key: key(KEYS[at.1]), upload }
    }

    async fn delete(&mut self, at: (usize, usize), if_match: Option<bool>) {
        let etag = self.model.object(at).map_or("x".into(), |object| object.etag.clone());
        let tag = |right| EtagMatch::OneOf(vec![if right { etag.clone() } else { "no such tag".into() }]);
        let request = DeleteObject { if_match: if_match.map(tag), ..DeleteObject::current(key(KEYS[at.1])) };
        let got = self.store.delete_object(bucket(BUCKETS[at.0]), request).await;
        let expected = match (self.model.buckets.contains_key(&at.0), self.model.object(at), if_match) {
            (false, ..) => "NoSuchBucket",
            (true, None, Some(_)) => "NoSuchKey",
            (true, Some(_), Some(false)) => "PreconditionFailed",
            _ => "ok",
        };
        assert_eq!(outcome(&got), expected);
        if let Ok(deleted) = got {
            let existed = self.model.buckets.get_mut(&at.0).unwrap().remove(&at.1).is_some();
            assert_eq!(deleted.existed, existed);
        }
    }

    async fn copy(&mut self, from: (usize, usize), to: (usize, usize), tags: Option<u8>) {
        let request = CopyObject {
            source: copy_source(from),
            is_version_named: false,
            bucket: bucket(BUCKETS[to.0]),
            key: key(KEYS[to.1]),
            metadata: CopyMetadata::Copy { own: Box::default() },
            tags: tags.map(numbered),
            owner: None,
            creator: None,
            acl: None,
            conditions: WriteConditions::default(),
            checksum_algorithm: None,
        };
        let got = self.store.copy_object(request).await;
        let exists = |at: usize| self.model.buckets.contains_key(&at);
        let expected = match self.model.object(from) {
            None if exists(from.0) => "NoSuchKey",
            None => "NoSuchBucket",
            Some(_) if from == to && tags.is_none() => "InvalidRequest",
            Some(_) if !exists(to.0) => "NoSuchBucket",
            Some(_) => "ok",
        };
        assert_eq!(outcome(&got), expected);
        if got.is_ok() {
            let source = self.model.object(from).unwrap().clone();
            let tags = tags.unwrap_or(source.tags);
            self.model.put(to, Object { tags, ..source });
        }
    }

    async fn complete(&mut self, upload: usize, skip: bool) {
        let Some(upload) = self.model.upload(upload) else { return };
        let named: Vec<(u16, (Bytes, String))> =
            self.model.uploads[&upload].parts.clone().into_iter().skip(usize::from(skip)).collect();
        let part = |(number, (_, etag)): &(u16, (Bytes, String))| CompletedPart {
            part_number: *number,
            etag: etag.clone(),
            checksums: Vec::new(),
        };
        let request = complete_request(self.target(upload), named.iter().map(part).collect());
        let got = self.store.complete_upload(request).await;
        let is_small = |(_, (body, _)): &(u16, (Bytes, String))| body.len() < 10;
        let expected = match named.split_last() {
            None => "InvalidRequest",
            Some((_, rest)) if rest.iter().any(is_small) => "EntityTooSmall",
            Some(_) => "ok",
        };
        assert_eq!(outcome(&got), expected);
        if let Ok(put) = got {
            let body: Vec<u8> = named.iter().flat_map(|(_, (body, _))| body.iter().copied()).collect();
            let parts = named.iter().map(|(number, (body, _))| (*number, body.len())).collect();
            let at = self.model.uploads.remove(&upload).unwrap().at;
            let etag = put.etag.to_string();
            self.model.put(at, Object { body: body.into(), etag, parts: Some(parts), tags: 0 });
        }
    }

    /// Pages through a listing, and compares with one that is made naively.
    async fn list(&mut self, number: usize, prefix: usize, delimited: bool, max: usize) {
        let prefix = ["", "a", "a/", "b/", "c/"][prefix];
        let delimiter = delimited.then(|| "/".to_owned());
        let mut got = Vec::new();
        let mut after = None;
        loop {
            let request = ListObjects {
                bucket: bucket(BUCKETS[number]),
                prefix: prefix.into(),
                delimiter: delimiter.clone(),
                after: after.clone(),
                max,
            };
            let page = match self.store.list_objects(request).await {
                Ok(page) => page,
                Err(error) => {
                    assert!(matches!(error, StoreError::NoSuchBucket) && !self.model.buckets.contains_key(&number));
                    return;
                }
            };
            let mut names: Vec<String> = page.entries.iter().map(|entry| entry.key.clone()).collect();
            names.extend(page.common_prefixes.iter().map(|prefix| format!("{prefix}*")));
            names.sort();
            assert!(names.len() <= max && (page.truncated == page.next.is_some()));
            got.extend(names);
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        let mut expected: Vec<String> = Vec::new();
        for &at in self.model.buckets[&number].keys() {
            let Some(rest) = KEYS[at].strip_prefix(prefix) else { continue };
            match rest.find('/').filter(|_| delimited) {
                None => expected.push(KEYS[at].into()),
                Some(end) => expected.push(format!("{prefix}{}*", &rest[..=end])),
            }
        }
        expected.sort();
        expected.dedup();
        got.sort();
        assert_eq!(got, expected);
    }

    /// Everything is there, and nothing else.
    async fn check_all(&self) {
        for (number, name) in BUCKETS.into_iter().enumerate() {
            let Some(objects) = self.model.buckets.get(&number) else {
                assert_eq!(outcome(&self.store.head_bucket(&bucket(name)).await), "NoSuchBucket");
                continue;
            };
            let mut expected: Vec<&str> = objects.keys().map(|&at| KEYS[at]).collect();
            expected.sort_unstable();
            assert_eq!(keys(&self.store, name).await, expected);
            for (&at, object) in objects {
                assert_eq!(get(&self.store, name, KEYS[at]).await.unwrap(), object.body, "{}", KEYS[at]);
                let request = gabion_store::GetObject::whole(bucket(name), key(KEYS[at]));
                let head = self.store.head_object(&request).unwrap();
                assert_eq!(head.info.etag.to_string(), object.etag);
                assert_eq!(head.info.attributes.tags, numbered(object.tags));
                let mut start = 0;
                for &(number, size) in object.parts.iter().flatten() {
                    let part = gabion_store::GetObject { part_number: Some(number), ..request.clone() };
                    assert_eq!(read(&self.store, part).await.unwrap(), object.body.slice(start..start + size));
                    start += size;
                }
            }
            let request = ListUploads {
                bucket: bucket(name),
                prefix: String::new(),
                delimiter: None,
                key_marker: None,
                upload_id_marker: None,
                max: 1000,
            };
            let uploads = self.store.list_uploads(request).await.unwrap().uploads;
            let expected: Vec<UploadId> =
                self.model.uploads.iter().filter(|(_, upload)| upload.at.0 == number).map(|(id, _)| *id).collect();
            let mut got: Vec<UploadId> = uploads.iter().map(|upload| upload.upload).collect();
            got.sort();
            assert_eq!(got, expected);
        }
        for &upload in self.model.uploads.keys() {
            let request = gabion_store::ListParts { target: self.target(upload), after: 0, max: 1000 };
            let parts = self.store.list_parts(request).await.unwrap().parts;
            let got: Vec<(u16, u64)> = parts.iter().map(|part| (part.part_number, part.size)).collect();
            let expected: Vec<(u16, u64)> =
                self.model.uploads[&upload].parts.iter().map(|(n, (body, _))| (*n, body.len() as u64)).collect();
            assert_eq!(got, expected);
        }
        check_counters(&self.world.index.current.lock());
    }
}

/// So many tags.
fn numbered(count: u8) -> Vec<(String, String)> {
    (0..count).map(|number| (format!("tag {number}"), count.to_string())).collect()
}

fn copy_source(at: (usize, usize)) -> CopySource {
    CopySource {
        bucket: bucket(BUCKETS[at.0]),
        key: key(KEYS[at.1]),
        version: None,
        conditions: ReadConditions::default(),
    }
}

fn renaming(from: (usize, usize), to: (usize, usize)) -> RenameObject {
    RenameObject { bucket: bucket(BUCKETS[from.0]), ..rename_request(KEYS[from.1], KEYS[to.1]) }
}

fn outcome<T>(result: &Result<T, StoreError>) -> String {
    match result {
        Ok(_) => "ok".into(),
        Err(error) => format!("{error:?}").split([' ', '(']).next().unwrap().into(),
    }
}

async fn run(seed: u64, geometry: (usize, usize), ops: Vec<Op>) {
    let mut world = World::new(seed, config(geometry.0, geometry.1));
    world.config.compaction.live_ratio_max = 1.0;
    world.config.compaction.punch_holes = seed.is_multiple_of(2);
    let store = world.open().await;
    let mut run = Run { world, store, model: Model::default(), bodies: seed << 32 };
    run = run.step(Op::CreateBucket(0)).await;
    for op in ops {
        run = run.step(op).await;
    }
    run.check_all().await;
    // The index that is rebuilt from the segments is the one that was lost, with and without its snapshot.
    run.store.shutdown().await;
    let had_snapshot = run.world.snapshot_row().is_some();
    for restore in [true, false] {
        run.world.config.index_snapshot_restore = restore;
        let report = run.world.verify().await;
        assert_eq!(report.differences, []);
        assert_eq!(report.rebuilt.rows_restored > 0, restore && had_snapshot, "{report:?}");
        assert_eq!(report.rebuilt.stripes_voided, 0, "the present index sealed everything");
    }
    let before = run.world.rows();
    let (factory, targets) = (run.world.factory(), run.world.targets());
    let (config, env) = (run.world.config.clone(), run.world.env());
    let report = Store::rebuild_index(config, targets, factory, env, std::sync::Arc::new(Silent)).await.unwrap();
    assert!(report.open.index_rebuilt.is_some());
    run.world.check_rebuilt(&before);
    run.store = run.world.open().await;
    run.check_all().await;
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 200, ..ProptestConfig::with_cases(cases(48)) })]

    #[test]
    fn random_operations_agree_with_the_model(
        seed in 1_u64..1_000_000,
        geometry in prop::sample::select(vec![(1, 0), (1, 1), (2, 1), (4, 2)]),
        ops in prop::collection::vec(op(), 1..80),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(run(seed, geometry, ops));
    }
}

/// So many, or more on request: `GABION_MODEL_CASES`.
pub fn cases(default: u32) -> u32 {
    std::env::var("GABION_MODEL_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(default)
}
