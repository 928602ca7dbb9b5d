//! Requests that make an object of one that is there: appends, and renaming.

use gabion_metadata::rows::Attributes;
use gabion_store::{
    AppendObject, EtagMatch, GetObject, PutObject, ReadConditions, RenameObject, StoreError, WriteConditions,
};

use super::{
    Client, hang_up_after,
    objects::{Written, refused_because},
};
use crate::{
    linearize::{Post, Pre},
    values::Value,
};

impl Client<'_> {
    /// What is under a key at the moment; nothing if that can not be known.
    async fn look(&self, key: usize) -> Option<Option<Value>> {
        let (called, (bucket, name)) = {
            let mut world = self.world();
            (world.tick(), world.keys[key].clone())
        };
        match self.store.head_object(&GetObject::whole(bucket, name)) {
            Ok(head) => {
                let etag = head.info.etag.to_string();
                self.saw_tag(key, called, &etag, head.info.size);
                self.world().values.find(&etag).map(Some)
            }
            Err(StoreError::NoSuchKey) => {
                self.saw(key, called, None);
                Some(None)
            }
            Err(StoreError::NoSuchBucket) => {
                self.world().saw_bucket_of(key, called, false);
                None
            }
            Err(error) => {
                self.read_failed(&format!("head {key}"), &error);
                None
            }
        }
    }

    pub(super) async fn append(&self) {
        let key = self.world().any_key();
        let Some(before) = self.look(key).await else { return };
        let (written, request, body, polls) = {
            let mut world = self.world();
            let called = world.tick();
            let len = world.any_len();
            let none = WriteConditions::default();
            // What is appended to is what was seen: else it would not be known what comes of it.
            let (pre, conditions, offset_bytes, value, bytes) = match before {
                Some(before) => {
                    let (part, bytes) = world.values.fresh_part(len);
                    let value = world.values.appended(before, &part);
                    let body = world.values.body(before);
                    let if_match = Some(EtagMatch::OneOf(vec![body.etag.clone()]));
                    (Pre::Is(before), WriteConditions { if_match, ..none }, body.len as u64, value, bytes)
                }
                None => {
                    let (value, bytes) = world.values.fresh(len);
                    (Pre::Absent, WriteConditions { if_none_match: Some(EtagMatch::Any), ..none }, 0, value, bytes)
                }
            };
            let (ends_early, polls) = (world.dice.below(20) == 0, world.any_polls());
            let body = world.any_body(&bytes, ends_early);
            let post = if ends_early { Post::Same } else { Post::Put(value) };
            let call = world.call(key, pre.clone(), post);
            let (bucket, name) = world.keys[key].clone();
            let object = PutObject { bucket, key: name, attributes: Attributes::default(), conditions };
            let written = Written { call, called, key, value, pre, ends_early };
            (written, AppendObject { object, offset_bytes }, body, polls)
        };
        let what = format!("append to {key}, which makes {}", written.value);
        let outcome = hang_up_after(polls, self.store.append_object(request, body)).await;
        self.judge(&what, written, outcome);
    }

    pub(super) async fn rename(&self) {
        let (from, to) = {
            let mut world = self.world();
            let from = world.any_key();
            let bucket = &world.keys[from].0;
            let others = (0..world.keys.len()).filter(|&key| key != from && world.keys[key].0 == *bucket);
            let others: Vec<usize> = others.collect();
            if others.is_empty() {
                return;
            }
            let at = world.dice.below(others.len() as u64) as usize;
            (from, others[at])
        };
        let Some(Some(value)) = self.look(from).await else { return };
        let (left, came, called, request, polls) = {
            let mut world = self.world();
            let called = world.tick();
            let polls = world.any_polls();
            let left = world.call(from, Pre::Is(value), Post::Delete);
            let came = world.call(to, Pre::Any, Post::Put(value));
            let etag = world.values.body(value).etag.clone();
            let none = ReadConditions::default();
            let (bucket, key) = world.keys[from].clone();
            let request = RenameObject {
                bucket,
                from: key,
                to: world.keys[to].1.clone(),
                source_conditions: ReadConditions { if_match: Some(EtagMatch::OneOf(vec![etag])), ..none.clone() },
                target_conditions: none,
                client_token: None,
                customer: None,
            };
            (left, came, called, request, polls)
        };
        let what = format!("rename {value} from {from} to {to}");
        let outcome = hang_up_after(polls, self.store.rename_object(request)).await;
        if let Some(Err(error)) = &outcome
            && !matches!(error, StoreError::NoSuchBucket | StoreError::NoSuchKey | StoreError::PreconditionFailed(_))
        {
            self.all_failed(&[left, came], &what, error);
            self.world().renames.push((left, came));
            return;
        }
        let mut world = self.world();
        let now = world.tick();
        self.trace_in(&mut world, format_args!("{what}: {:?}", outcome.as_ref().map(Result::is_ok)));
        match outcome {
            None => world.renames.push((left, came)),
            Some(Ok(info)) => {
                world.registers[from].done(left, now);
                world.registers[to].done(came, now);
                world.saw_bucket_of(from, called, true);
                if world.values.find(&info.etag.to_string()) != Some(value) {
                    world.violate(format!("{what}: the tag is {}", info.etag));
                }
            }
            Some(Err(error)) => {
                world.registers[to].refused(came, now);
                match refused_because(&Pre::Is(value), &error) {
                    Some(found) => world.registers[from].done_as(left, now, found, Post::Same),
                    None => {
                        world.registers[from].refused(left, now);
                        world.saw_bucket_of(from, called, false);
                    }
                }
            }
        }
    }
}
