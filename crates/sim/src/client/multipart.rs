//! Requests about multipart uploads.

use gabion_metadata::rows::Attributes;
use gabion_store::{
    ByteRange, CompleteUpload, CompletedPart, CreateUpload, StoreError, UploadPart, UploadPartCopy, UploadRef,
};

use super::{Client, World, objects::refused_because};
use crate::params::PART_BYTES_MIN;
use crate::{
    linearize::{Post, Pre},
    uploads::{Life, Upload},
};

impl World {
    /// Takes an upload that nobody works on.
    fn take_upload(&mut self) -> Option<usize> {
        let is_free = |(at, upload): (usize, &Upload)| (upload.life != Life::Ended && !upload.is_busy).then_some(at);
        let free: Vec<usize> = self.uploads.iter().enumerate().filter_map(is_free).collect();
        if free.is_empty() {
            return None;
        }
        let at = free[self.dice.below(free.len() as u64) as usize];
        self.uploads[at].is_busy = true;
        Some(at)
    }

    pub(crate) fn upload_ref(&self, at: usize) -> UploadRef {
        let upload = &self.uploads[at];
        let (bucket, key) = self.keys[upload.key].clone();
        UploadRef { bucket, key, upload: upload.id }
    }

    /// The store says that an upload is not there.
    fn upload_is_gone(&mut self, at: usize) {
        let upload = &mut self.uploads[at];
        if upload.life == Life::Open && !upload.may_be_gone {
            let id = upload.id;
            self.violate(format!("upload {id} is gone"));
        } else {
            upload.life = Life::Ended;
        }
    }
}

impl Client<'_> {
    pub(super) async fn create_upload(&self) {
        let (key, called, request) = {
            let mut world = self.world();
            let key = world.any_key();
            let called = world.tick();
            *world.unknown_uploads.entry(key).or_default() += 1;
            let (bucket, name) = world.keys[key].clone();
            (key, called, CreateUpload { bucket, key: name, attributes: Attributes::default(), checksum: None })
        };
        match self.store.create_upload(request).await {
            Ok(id) => {
                self.say(format_args!("upload {id} to {key}"));
                let mut world = self.world();
                let may_be_gone = world.may_be_gone(key, called);
                world.uploads.push(Upload { may_be_gone, ..Upload::new(id, key) });
                world.saw_bucket_of(key, called, true);
                *world.unknown_uploads.entry(key).or_default() -= 1;
            }
            Err(StoreError::NoSuchBucket) => {
                let mut world = self.world();
                *world.unknown_uploads.entry(key).or_default() -= 1;
                world.saw_bucket_of(key, called, false);
            }
            Err(error) => drop(self.fate("create an upload", &error)),
        }
    }

    pub(super) async fn upload_part(&self) {
        let (at, number, part, request, body) = {
            let mut world = self.world();
            let Some(at) = world.take_upload() else { return };
            let number = 1 + world.dice.below(4) as u16;
            let len = world.any_len().max(PART_BYTES_MIN);
            let (part, bytes) = world.values.fresh_part(len);
            world.uploads[at].may_have(number, part.clone());
            let body = world.any_body(&bytes, false);
            (at, number, part, UploadPart { target: world.upload_ref(at), part_number: number }, body)
        };
        let outcome = self.store.upload_part(request, body).await.map(|stored| stored.etag.to_string());
        self.stored_part(at, number, part, outcome);
    }

    pub(super) async fn upload_part_copy(&self) {
        let (at, number, request, was_unknown) = {
            let mut world = self.world();
            let Some(at) = world.take_upload() else { return };
            let (number, from) = (1 + world.dice.below(4) as u16, world.any_key());
            let range = world.dice.coin().then_some(ByteRange { first: 3, last: 60 });
            let (target, source) = (world.upload_ref(at), world.source(from));
            // What it copies is not known before it is told: until then nobody may name the part.
            let was_unknown = std::mem::replace(&mut world.uploads[at].is_unknown, true);
            let request = UploadPartCopy { target, part_number: number, source, range };
            (at, number, request, was_unknown)
        };
        let range = request.range;
        let outcome = self.store.upload_part_copy(request).await;
        self.world().uploads[at].is_busy = false;
        match outcome {
            Ok(stored) => {
                let etag = stored.etag.to_string();
                let mut world = self.world();
                // What it was copied from is told by its tag only: not which body, since some begin alike.
                let bodies = 0..world.values.count();
                let found = bodies.rev().find_map(|value| {
                    let len = world.values.body(value).len;
                    let (first, end) = range.map_or((0, len), |range| (range.first as usize, range.last as usize + 1));
                    if end > len || (end - first) as u64 != stored.size {
                        return None;
                    }
                    let part = world.values.part_of(value, first, end);
                    (part.etag() == etag).then_some(part)
                });
                let Some(part) = found else {
                    return world.violate(format!("a copied part has the tag {etag}, which no such part has"));
                };
                world.uploads[at].is_unknown = was_unknown;
                drop(world);
                self.stored_part(at, number, part, Ok(etag));
            }
            // Of the upload, or of what is copied.
            Err(StoreError::NoSuchBucket) => self.world().uploads[at].is_unknown = was_unknown,
            Err(StoreError::NoSuchKey | StoreError::InvalidRange { .. } | StoreError::InvalidRequest(_)) => {
                self.world().uploads[at].is_unknown = was_unknown;
            }
            Err(StoreError::NoSuchUpload) => self.world().upload_is_gone(at),
            Err(error) => {
                if let super::Fate::Refused = self.fate("copy a part", &error) {
                    self.world().uploads[at].is_unknown = was_unknown;
                }
            }
        }
    }

    fn stored_part(&self, at: usize, number: u16, part: crate::values::Part, outcome: Result<String, StoreError>) {
        let mut world = self.world();
        world.uploads[at].is_busy = false;
        match outcome {
            Ok(etag) => {
                let id = world.uploads[at].id;
                self.trace_in(&mut world, format_args!("part {number} of {id}: {etag}"));
                if etag != part.etag() {
                    return world.violate(format!("part {number} of {id} has the tag {etag}, not {}", part.etag()));
                }
                world.uploads[at].has(number, part);
            }
            Err(StoreError::NoSuchUpload | StoreError::NoSuchBucket) => world.upload_is_gone(at),
            Err(error) => {
                drop(world);
                self.fate("upload a part", &error);
            }
        }
    }

    pub(super) async fn complete_upload(&self) {
        let (at, call, value, pre, request, is_small) = {
            let mut world = self.world();
            let Some(at) = world.take_upload() else { return };
            let mut parts = world.uploads[at].certain();
            if parts.len() > 1 && world.dice.below(4) == 0 {
                parts.remove(0);
            }
            if parts.is_empty() || world.uploads[at].is_unknown {
                world.uploads[at].is_busy = false;
                return;
            }
            let named = |(number, part): &(u16, crate::values::Part)| CompletedPart {
                part_number: *number,
                etag: part.etag(),
                checksums: Vec::new(),
            };
            let condition = world.any_condition();
            let request = CompleteUpload {
                target: world.upload_ref(at),
                parts: parts.iter().map(named).collect(),
                conditions: condition.request,
                expected_size: None,
                checksum: None,
                checksum_kind: None,
                default_retention: None,
            };
            let is_small = parts.iter().rev().skip(1).any(|(_, part)| part.len < PART_BYTES_MIN);
            let parts: Vec<_> = parts.iter().map(|(_, part)| part).collect();
            let value = world.values.whole(&parts);
            let key = world.uploads[at].key;
            let call = world.call(key, condition.pre.clone(), Post::Put(value));
            (at, call, value, condition.pre, request, is_small)
        };
        let was = std::mem::replace(&mut self.world().uploads[at].life, Life::MaybeEnded);
        let outcome = self.store.complete_upload(request).await;
        let mut world = self.world();
        world.uploads[at].is_busy = false;
        let now = world.tick();
        match outcome {
            Ok(put) => {
                let key = call.key;
                self.trace_in(&mut world, format_args!("completed {value} under {key}"));
                world.registers[call.key].done(call, now);
                world.uploads[at].life = Life::Ended;
                if world.values.find(&put.etag.to_string()) != Some(value) {
                    world.violate(format!("complete {value}: the tag is {}", put.etag));
                }
            }
            Err(StoreError::NoSuchUpload | StoreError::NoSuchBucket) => {
                world.uploads[at].stays(was);
                world.registers[call.key].refused(call, now);
                world.upload_is_gone(at);
            }
            Err(StoreError::EntityTooSmall { .. }) if is_small => {
                world.uploads[at].stays(was);
                world.registers[call.key].refused(call, now);
            }
            Err(error) => {
                let because: Option<Pre> = refused_because(&pre, &error);
                if let Some(found) = because {
                    world.uploads[at].stays(was);
                    world.registers[call.key].done_as(call, now, found, Post::Same);
                    return;
                }
                drop(world);
                if matches!(error, StoreError::Busy) {
                    self.world().uploads[at].stays(was);
                }
                self.failed(call, &format!("complete {value}"), &error);
            }
        }
    }

    pub(super) async fn abort_upload(&self) {
        let (at, target) = {
            let mut world = self.world();
            let Some(at) = world.take_upload() else { return };
            (at, world.upload_ref(at))
        };
        let was = std::mem::replace(&mut self.world().uploads[at].life, Life::MaybeEnded);
        let outcome = self.store.abort_upload(target).await;
        self.world().uploads[at].is_busy = false;
        match outcome {
            Ok(()) => self.world().uploads[at].life = Life::Ended,
            Err(StoreError::NoSuchUpload | StoreError::NoSuchBucket) => {
                let mut world = self.world();
                world.uploads[at].stays(was);
                world.upload_is_gone(at);
            }
            Err(error) => {
                if let super::Fate::Refused = self.fate("abort an upload", &error) {
                    self.world().uploads[at].stays(was);
                }
            }
        }
    }
}
