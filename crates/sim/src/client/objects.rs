//! Requests about objects.

use super::{Client, World, hang_up_after};
use crate::{
    history::Call,
    linearize::{Post, Pre},
    values::Value,
};
use bytes::Bytes;
use futures::StreamExt;
use gabion_metadata::rows::Attributes;
use gabion_store::{
    BodyError, ByteRange, CopyMetadata, CopyObject, CopySource, DeleteObject, EtagMatch, GetObject, ListObjects,
    ObjectBody, ObjectRead, PutObject, PutResult, RangeRequest, ReadConditions, StoreError, WriteConditions,
};

/// A condition of a write, as a request and as what it requires.
pub(super) struct Condition {
    pub(super) request: WriteConditions,
    pub(super) pre: Pre,
}

/// A write of a whole object, as it was asked for.
pub(super) struct Written {
    pub(super) call: Call,
    /// When it was.
    pub(super) called: u64,
    pub(super) key: usize,
    pub(super) value: Value,
    pub(super) pre: Pre,
    /// Whether its body does, which is no object then.
    pub(super) ends_early: bool,
}

impl World {
    /// Mostly none.
    pub(super) fn any_condition(&mut self) -> Condition {
        let none = WriteConditions::default();
        match self.dice.below(10) {
            0 => {
                Condition { request: WriteConditions { if_none_match: Some(EtagMatch::Any), ..none }, pre: Pre::Absent }
            }
            1 if self.values.count() > 0 => {
                let count = self.values.count();
                // A late one is more likely to be there.
                let value = count - 1 - self.dice.below(u64::from(count.min(6))) as Value;
                let tags = vec![self.values.body(value).etag.clone()];
                Condition {
                    request: WriteConditions { if_match: Some(EtagMatch::OneOf(tags)), ..none },
                    pre: Pre::Is(value),
                }
            }
            _ => Condition { request: none, pre: Pre::Any },
        }
    }

    pub(super) fn any_polls(&mut self) -> Option<u64> {
        (self.dice.below(16) == 0).then(|| self.dice.below(12))
    }

    /// `bytes` in pieces; `ends_early` leaves out the end, and says so.
    pub(super) fn any_body(&mut self, bytes: &Bytes, ends_early: bool) -> ObjectBody {
        let piece_bytes = match self.dice.below(3) {
            0 => bytes.len().max(1),
            _ => 1 + self.dice.below(300_000) as usize,
        };
        let mut pieces: Vec<Result<Bytes, BodyError>> = (0..bytes.len())
            .step_by(piece_bytes)
            .map(|at| Ok(bytes.slice(at..bytes.len().min(at + piece_bytes))))
            .collect();
        if ends_early {
            pieces.truncate(pieces.len() / 2);
            pieces.push(Err(BodyError::Incomplete));
        }
        let stream = futures::stream::iter(pieces).then(async |piece| {
            tokio::task::yield_now().await;
            piece
        });
        let length = self.dice.coin().then_some(bytes.len() as u64);
        ObjectBody::from_stream(stream.boxed(), length)
    }

    pub(super) fn source(&self, key: usize) -> CopySource {
        let (bucket, key) = self.keys[key].clone();
        CopySource { bucket, key, version: None, conditions: ReadConditions::default() }
    }
}

/// What a key must have been when its condition did not hold.
pub(super) fn refused_because(pre: &Pre, error: &StoreError) -> Option<Pre> {
    match (pre, error) {
        (Pre::Absent, StoreError::PreconditionFailed(_)) => Some(Pre::Present),
        (Pre::Is(value), StoreError::PreconditionFailed(_)) => Some(Pre::IsOther(*value)),
        (Pre::Is(_), StoreError::NoSuchKey) => Some(Pre::Absent),
        _ => None,
    }
}

impl Client<'_> {
    pub(super) async fn put(&self) {
        let (written, request, body, polls) = {
            let mut world = self.world();
            let called = world.tick();
            let key = world.any_key();
            let len = world.any_len();
            let (value, bytes) = world.values.fresh(len);
            let ends_early = world.dice.below(20) == 0;
            let (condition, polls) = (world.any_condition(), world.any_polls());
            let body = world.any_body(&bytes, ends_early);
            let post = if ends_early { Post::Same } else { Post::Put(value) };
            let call = world.call(key, condition.pre.clone(), post);
            let (bucket, name) = world.keys[key].clone();
            let attributes = Attributes::default();
            let request = PutObject { bucket, key: name, attributes, conditions: condition.request };
            (Written { call, called, key, value, pre: condition.pre, ends_early }, request, body, polls)
        };
        let what = format!("put {} under {}", written.value, written.key);
        let outcome = hang_up_after(polls, self.store.put_object(request, body)).await;
        self.judge(&what, written, outcome);
    }

    /// What the outcome of a write of a whole object says of its key; nothing when it was hung up on.
    pub(super) fn judge(&self, what: &str, written: Written, outcome: Option<Result<PutResult, StoreError>>) {
        let Written { call, called, key, value, pre, ends_early } = written;
        let mut world = self.world();
        let now = world.tick();
        match outcome {
            None => self.trace_in(&mut world, format_args!("{what}: hung up")),
            Some(Ok(put)) => {
                self.trace_in(&mut world, format_args!("{what}"));
                world.registers[key].done(call, now);
                world.saw_bucket_of(key, called, true);
                if ends_early {
                    world.violate(format!("{what}: a body that ended early was stored"));
                } else if world.values.find(&put.etag.to_string()) != Some(value) {
                    world.violate(format!("{what}: the tag is {}", put.etag));
                }
            }
            Some(Err(StoreError::Body(BodyError::Incomplete))) if ends_early => {
                world.registers[key].refused(call, now);
            }
            Some(Err(StoreError::NoSuchBucket)) => {
                world.registers[key].refused(call, now);
                world.saw_bucket_of(key, called, false);
            }
            Some(Err(error)) => match refused_because(&pre, &error) {
                Some(found) => {
                    self.trace_in(&mut world, format_args!("{what}: refused: {found:?}"));
                    world.registers[key].done_as(call, now, found, Post::Same);
                }
                None => {
                    drop(world);
                    self.failed(call, what, &error);
                }
            },
        }
    }

    pub(super) async fn delete(&self) {
        let key = self.world().any_key();
        self.delete_key(key).await;
    }

    pub(super) async fn delete_key(&self, key: usize) {
        let (call, called, bucket, request, pre, polls) = {
            let mut world = self.world();
            let called = world.tick();
            let (mut condition, polls) = (world.any_condition(), world.any_polls());
            if condition.request.if_none_match.is_some() {
                condition = Condition { request: WriteConditions::default(), pre: Pre::Any };
            }
            let call = world.call(key, condition.pre.clone(), Post::Delete);
            let (bucket, name) = world.keys[key].clone();
            (
                call,
                called,
                bucket,
                DeleteObject { if_match: condition.request.if_match, ..DeleteObject::current(name) },
                condition.pre,
                polls,
            )
        };
        let outcome = hang_up_after(polls, self.store.delete_object(bucket, request)).await;
        let mut world = self.world();
        let now = world.tick();
        let number = self.number;
        match outcome {
            None => world.trace.say(format!("client {number}: delete {key}: hung up")),
            Some(Ok(deleted)) => {
                world.trace.say(format!("client {number}: delete {key}: {}", deleted.existed));
                let pre = match pre {
                    Pre::Any if deleted.existed => Pre::Present,
                    Pre::Any => Pre::Absent,
                    pre => pre,
                };
                world.registers[key].done_as(call, now, pre, Post::Delete);
                world.saw_bucket_of(key, called, true);
            }
            Some(Err(StoreError::NoSuchBucket)) => {
                world.registers[key].refused(call, now);
                world.saw_bucket_of(key, called, false);
            }
            Some(Err(error)) => match refused_because(&pre, &error) {
                Some(found) => world.registers[key].done_as(call, now, found, Post::Same),
                None => {
                    drop(world);
                    self.failed(call, &format!("delete {key}"), &error);
                }
            },
        }
    }

    pub(super) async fn copy(&self) {
        let (call, called, from, to, request) = {
            let mut world = self.world();
            let (from, to) = (world.any_key(), world.any_key());
            if from == to {
                return;
            }
            let call = world.call(to, Pre::Any, Post::PutUnknown);
            let called = world.tick();
            let (bucket, key) = world.keys[to].clone();
            let metadata = CopyMetadata::Copy { own: Box::default() };
            let request = CopyObject {
                source: world.source(from),
                is_version_named: false,
                bucket,
                key,
                metadata,
                tags: None,
                owner: None,
                creator: None,
                acl: None,
                conditions: WriteConditions::default(),
                checksum_algorithm: None,
            };
            (call, called, from, to, request)
        };
        let outcome = self.store.copy_object(request).await;
        let mut world = self.world();
        let now = world.tick();
        match outcome {
            Ok(copied) => {
                let etag = copied.etag.to_string();
                self.trace_in(&mut world, format_args!("copy {from} to {to}: {etag}"));
                let Some(value) = world.values.find(&etag) else {
                    return world.violate(format!("a copy has the tag {etag}, which nothing has"));
                };
                world.registers[to].done_as(call, now, Pre::Any, Post::Put(value));
                world.saw_bucket_of(to, called, true);
                world.saw_bucket_of(from, called, true);
                world.saw(from, called, Some(value));
            }
            Err(StoreError::NoSuchKey) => {
                world.registers[to].refused(call, now);
                world.saw(from, called, None);
            }
            Err(StoreError::NoSuchBucket) => {
                world.registers[to].refused(call, now);
                let changing = [to, from].into_iter().find(|key| world.is_in_changing(*key));
                world.saw_bucket_of(changing.unwrap_or(to), called, false);
            }
            Err(error) => {
                drop(world);
                self.failed(call, &format!("copy {from} to {to}"), &error);
            }
        }
    }

    pub(super) async fn get(&self) {
        let (called, key, request, is_slow) = {
            let mut world = self.world();
            let key = world.any_key();
            let (bucket, name) = world.keys[key].clone();
            let whole = GetObject::whole(bucket, name);
            let first = world.dice.below(200_000);
            let range = match world.dice.below(4) {
                0 => Some(RangeRequest::Between(first, first + world.dice.below(300_000))),
                1 => Some(RangeRequest::Last(first + 1)),
                _ => None,
            };
            let is_slow = world.dice.below(3) == 0;
            (world.tick(), key, GetObject { range, ..whole }, is_slow)
        };
        match self.store.get_object(request).await {
            Ok(read) => self.read(key, called, read, is_slow).await,
            Err(StoreError::NoSuchKey) => self.saw(key, called, None),
            Err(StoreError::NoSuchBucket) => self.world().saw_bucket_of(key, called, false),
            Err(StoreError::InvalidRange { .. }) => {}
            Err(error) => self.read_failed(&format!("get {key}"), &error),
        }
    }

    /// Reads and checks a whole body.
    pub(crate) async fn read(&self, key: usize, called: u64, mut read: ObjectRead, is_slow: bool) {
        let etag = read.info.etag.to_string();
        let Some(value) = self.world().values.find(&etag) else {
            return self.world().violate(format!("key {key} has the tag {etag}, which nothing has"));
        };
        self.saw(key, called, Some(value));
        let len = self.world().values.body(value).len;
        let range = read.range.map_or(0..len, |ByteRange { first, last }| first as usize..last as usize + 1);
        let mut got = Vec::with_capacity(range.len());
        while let Some(bytes) = read.body.next().await {
            match bytes {
                Ok(bytes) => got.extend_from_slice(&bytes),
                Err(error) => return self.read_failed(&format!("reading body {value} of key {key}"), &error),
            }
            if is_slow {
                tokio::time::sleep(std::time::Duration::from_millis(3)).await;
            }
        }
        let mut world = self.world();
        let verified = world.values.verify(value, range.start, range.end, &got);
        if let Err(wrong) = verified {
            world.violate(format!("get {key}: {wrong}"));
        }
    }

    pub(super) async fn head(&self) {
        let (called, key, request) = {
            let mut world = self.world();
            let key = world.any_key();
            let (bucket, name) = world.keys[key].clone();
            (world.tick(), key, GetObject::whole(bucket, name))
        };
        match self.store.head_object(&request) {
            Ok(head) => self.saw_tag(key, called, &head.info.etag.to_string(), head.info.size),
            Err(StoreError::NoSuchKey) => self.saw(key, called, None),
            Err(StoreError::NoSuchBucket) => self.world().saw_bucket_of(key, called, false),
            Err(error) => self.read_failed(&format!("head {key}"), &error),
        }
    }

    /// A page of a listing says of each key up to its end what it holds.
    pub(super) async fn list(&self) {
        let (called, bucket, max) = {
            let mut world = self.world();
            let bucket = {
                let count = world.buckets.len() as u64;
                world.dice.below(count) as usize
            };
            let bucket = world.buckets[bucket].clone();
            (world.tick(), bucket, 1 + world.dice.below(6) as usize)
        };
        let request = ListObjects { bucket: bucket.clone(), prefix: String::new(), delimiter: None, after: None, max };
        let page = match self.store.list_objects(request).await {
            Ok(page) => page,
            Err(StoreError::NoSuchBucket) => return self.world().saw_bucket(&bucket, called, false),
            Err(error) => return self.read_failed("list", &error),
        };
        self.world().saw_bucket(&bucket, called, true);
        let keys = self.world().keys.clone();
        for (number, (_, key)) in keys.iter().enumerate().filter(|(_, (of, _))| *of == bucket) {
            let is_beyond = page.next.as_ref().is_some_and(|last| key.as_str() > last.as_str());
            match page.entries.iter().find(|entry| entry.key == key.as_str()) {
                Some(entry) => self.saw_tag(number, called, &entry.etag.to_string(), entry.size),
                None if is_beyond => {}
                None => self.saw(number, called, None),
            }
        }
    }

    pub(crate) fn saw(&self, key: usize, called: u64, value: Option<Value>) {
        let mut world = self.world();
        self.trace_in(&mut world, format_args!("saw {value:?} under {key}"));
        world.saw_bucket_of(key, called, true);
        world.saw(key, called, value);
    }

    pub(crate) fn saw_tag(&self, key: usize, called: u64, etag: &str, size: u64) {
        let found = self.world().values.find(etag);
        match found {
            Some(value) if self.world().values.body(value).len as u64 == size => self.saw(key, called, Some(value)),
            _ => self.world().violate(format!("key {key} has the tag {etag} and {size} bytes, which nothing has")),
        }
    }

    pub(super) fn trace_in(&self, world: &mut World, what: std::fmt::Arguments<'_>) {
        let number = self.number;
        world.trace.say(format!("client {number}: {what}"));
    }
}
